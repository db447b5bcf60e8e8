import subprocess
import sys
from pathlib import Path

import pytest

import kermit


@pytest.mark.parametrize("name", kermit.__all__)
def test_every_public_name_exists(name: str) -> None:
    assert getattr(kermit, name).__name__ == name


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Frog'"):
        kermit.Frog  # noqa: B018


def test_importing_the_package_does_not_import_torch() -> None:
    code = "import sys, kermit; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("module", ["cli", "decoding.likelihood", "objectives", "pipeline", "rendering", "serving.app"])
def test_inference_imports_nothing_of_training(module: str) -> None:
    code = f"import sys, kermit.{module}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    training = {"torch", "transformers", "datasets", "pyarrow"} | {
        f"kermit.{package}" for package in ("data", "families", "modeling", "tasks", "training")
    }
    assert training & set(done.stdout.split()) == set()


def test_canvases_do_not_use_tensors() -> None:
    code = "import sys, kermit.canvas; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_public_names_are_listed_for_completion_before_any_is_used() -> None:
    code = "import sys, kermit; print(*dir(kermit)); sys.exit('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert {*kermit.__all__, "__version__"} <= set(done.stdout.split())


def test_importing_the_package_leaves_the_import_system_alone() -> None:
    code = "import sys; before = list(sys.meta_path); import kermit; sys.exit(sys.meta_path != before)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    "imports", ["import kermit.modeling; import transformers", "import transformers; import kermit.modeling"]
)
def test_the_models_are_registered_with_transformers_on_import(imports: str, tmp_path: Path) -> None:
    script = f"""{imports}
config = transformers.AutoConfig.for_model("kermit")
for kind in (transformers.AutoModel, transformers.AutoModelForSequenceClassification):
    print(kind._model_mapping[type(config)].__name__)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout.split() == ["KermitModel", "KermitForSequenceClassification"]
