import pytest

from kermit.errors import ModelError
from kermit.registry import Registry
from kermit.training.task import TRAINING_TASKS, BestMetric


@pytest.mark.parametrize(("higher", "value", "better"), [(True, 3.0, True), (True, 1.0, False), (False, 1.0, True)])
def test_a_metric_defines_whether_higher_is_better(higher: bool, value: float, better: bool) -> None:
    metric = BestMetric("metric", "Metric", higher=higher)
    assert metric.improves(value, before=2.0) is better
    assert not metric.improves(2.0, before=2.0), "as good is not better"
    assert metric.improves(value, before=None)


def test_a_registry_imports_on_demand_and_accepts_additions() -> None:
    registry: Registry[object] = Registry("number", {"pi": "math:pi"})
    assert registry.loaded() == []
    assert registry.get("pi") == pytest.approx(3.14159, abs=1e-5)
    registry.add("two", 2)
    assert (registry.names(), registry.get("two")) == (["pi", "two"], 2)
    with pytest.raises(ModelError, match="unknown number 'tau'; known: pi, two"):
        registry.get("tau")


def test_every_listed_task_exists() -> None:
    names = TRAINING_TASKS.names()
    assert [TRAINING_TASKS.get(name).name for name in names] == names
