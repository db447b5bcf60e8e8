"""The chunked loss, compared with the same sum in plain code differentiated by autograd."""

import pytest
import torch
from torch import Tensor

from kermit.modeling.slot_loss import slot_loss

VOCABULARY, WIDTH, SLOTS = 11, 6, 9


def problem(seed: int, *, forbidden: tuple[int, ...] = (), slots: int = SLOTS) -> dict[str, Tensor]:
    """Random slots with one to four targets each, a token sometimes twice in a slot."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator)

    bias = normal(VOCABULARY)
    allowed = [token for token in range(VOCABULARY) if token not in forbidden]
    counts = torch.randint(1, 5, (slots,), generator=generator)
    target_slots = torch.arange(slots).repeat_interleave(counts)
    raw = torch.rand(len(target_slots), generator=generator)
    totals = torch.zeros(slots).index_add_(0, target_slots, raw)
    chosen = torch.randint(0, len(allowed), (len(target_slots),), generator=generator)
    return {
        "vectors": normal(slots, WIDTH),
        "embedding": normal(VOCABULARY, WIDTH),
        "bias": bias.index_fill(0, torch.tensor(forbidden, dtype=torch.long), -torch.inf),
        "slot_weights": torch.rand(slots, generator=generator),
        "target_slots": target_slots,
        "target_tokens": torch.tensor(allowed)[chosen],
        "target_weights": raw / totals[target_slots],
    }


def dense_loss(vectors: Tensor, embedding: Tensor, bias: Tensor, *, smoothing: float = 0.0, **asked: Tensor) -> Tensor:
    """Cross-entropy with a dense target, mixed with a flat one over the allowed tokens."""
    slot_weights, target_slots, target_tokens, target_weights = asked.values()
    log_probs = (vectors @ embedding.T + bias).log_softmax(1)
    target = torch.zeros(len(vectors), len(bias), dtype=vectors.dtype)
    target.index_put_((target_slots, target_tokens), target_weights.to(vectors.dtype), accumulate=True)
    allowed = bias.isfinite()
    target = (1 - smoothing) * target + smoothing * allowed / allowed.sum()
    return -(slot_weights[:, None] * torch.where(target > 0, target * log_probs, 0)).sum()


def loss_and_gradients(function: object, work: dict[str, Tensor], **settings: float) -> tuple[Tensor, list[Tensor]]:
    leaves = {name: work[name].clone().requires_grad_() for name in ("vectors", "embedding", "bias")}
    loss = function(**(work | leaves), **settings)  # type: ignore[operator]
    (3 * loss).backward()
    return loss.detach(), [leaf.grad for leaf in leaves.values()]  # type: ignore[misc]


@pytest.mark.parametrize("chunk", [1, 2 * VOCABULARY, 4 * VOCABULARY + 3, 9 * VOCABULARY, 10**6])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("forbidden", [(), (0, 7)])
def test_the_chunked_loss_and_its_gradients_equal_the_dense_ones(
    chunk: int, smoothing: float, forbidden: tuple[int, ...]
) -> None:
    for seed in range(3):
        work = problem(seed, forbidden=forbidden)
        loss, gradients = loss_and_gradients(slot_loss, work, smoothing=smoothing, chunk_elements=chunk)
        expected, expected_gradients = loss_and_gradients(dense_loss, work, smoothing=smoothing)
        assert float(loss) == pytest.approx(float(expected), rel=1e-5)
        for found, wanted in zip(gradients[:2], expected_gradients[:2], strict=True):
            assert torch.allclose(found, wanted, atol=1e-5)
        finite = work["bias"].isfinite()
        assert torch.allclose(gradients[2][finite], expected_gradients[2][finite], atol=1e-5)
        assert bool((gradients[2][~finite] == 0).all())


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_the_chunked_loss_supports_double_precision(smoothing: float) -> None:
    work = {n: v.double() if v.is_floating_point() else v for n, v in problem(0, forbidden=(2,)).items()}
    loss, gradients = loss_and_gradients(slot_loss, work, smoothing=smoothing)
    expected, expected_gradients = loss_and_gradients(dense_loss, work, smoothing=smoothing)
    assert float(loss) == pytest.approx(float(expected), rel=1e-5)
    assert torch.allclose(gradients[0], expected_gradients[0], atol=1e-5)


def test_a_slot_loss_worked_by_hand() -> None:
    # logits 0 and log 3 of two tokens, so p = 1/4 and 3/4; target a quarter and three quarters, weight 2
    work = {
        "vectors": torch.tensor([[1.0]]),
        "embedding": torch.tensor([[1.0], [3.0]]).log(),
        "bias": torch.zeros(2),
        "slot_weights": torch.tensor([2.0]),
        "target_slots": torch.tensor([0, 0]),
        "target_tokens": torch.tensor([0, 1]),
        "target_weights": torch.tensor([0.25, 0.75]),
    }
    p = torch.tensor([0.25, 0.75])
    assert float(slot_loss(**work)) == pytest.approx(float(-2 * (p * p.log()).sum()))


def test_without_slots_the_loss_is_zero_and_has_gradients() -> None:
    loss, gradients = loss_and_gradients(slot_loss, problem(0, slots=0))
    assert float(loss) == 0
    assert [gradient.abs().sum().item() for gradient in gradients] == [0, 0, 0]


def test_without_gradients_the_loss_is_the_same() -> None:
    work = problem(4)
    with torch.no_grad():
        alone = slot_loss(**work, chunk_elements=2 * VOCABULARY)
    assert float(alone) == pytest.approx(float(loss_and_gradients(slot_loss, work)[0]), rel=1e-6)


def test_a_frozen_embedding_gets_no_gradient() -> None:
    work = problem(1)
    vectors = work["vectors"].clone().requires_grad_()
    slot_loss(**(work | {"vectors": vectors})).backward()
    assert vectors.grad is not None
    assert work["embedding"].grad is None


def test_the_loss_under_autocast_is_close_and_its_gradients_have_the_leaves_types() -> None:
    work = problem(2)
    leaves = {name: work[name].clone().requires_grad_() for name in ("vectors", "embedding", "bias")}
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = slot_loss(**(work | leaves))
    loss.backward()
    expected, gradients = loss_and_gradients(dense_loss, work)
    assert float(loss.detach()) == pytest.approx(float(expected), rel=0.05)
    for leaf, wanted in zip(leaves.values(), gradients, strict=True):
        assert leaf.grad is not None
        assert leaf.grad.dtype == torch.float32
        assert torch.allclose(leaf.grad, wanted / 3, atol=0.1)


def many_slots(dtype: torch.dtype, scale: float = 1.0) -> list[Tensor]:
    """The gradients where one token is the target of 2,000 slots, under autocast or, for float32, without."""
    work = problem(3, slots=2000)
    work["target_tokens"] = torch.full_like(work["target_tokens"], 5)
    work["vectors"] += 1  # slightly correlated, so that nothing cancels
    work["embedding"] *= 0.1  # and logits small, so that their own rounding does not count
    leaves = {name: work[name].clone().requires_grad_() for name in ("vectors", "embedding", "bias")}
    with torch.autocast("cpu", dtype=dtype, enabled=dtype is not torch.float32):
        loss = slot_loss(**(work | leaves), chunk_elements=100 * VOCABULARY)
    (loss * scale).backward()
    return [leaf.grad / scale for leaf in leaves.values()]  # type: ignore[operator]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_the_gradient_of_a_token_that_is_the_target_of_thousands_of_slots_is_not_summed_in_half_precision(
    dtype: torch.dtype,
) -> None:
    _, expected, _ = many_slots(torch.float32)
    _, found, _ = many_slots(dtype)
    assert float((found[5] - expected[5]).norm() / expected[5].norm()) < 0.05 * torch.finfo(dtype).eps


def test_a_loss_scaled_beyond_what_float16_holds_has_finite_gradients() -> None:
    for found, expected in zip(many_slots(torch.float16, scale=2.0**17), many_slots(torch.float32), strict=True):
        assert torch.allclose(found, expected, atol=0.02 * float(expected.abs().max()))


def test_half_precision_vectors_from_autocast_work_with_a_float32_embedding() -> None:
    work = problem(2)
    leaves = {"vectors": work["vectors"].bfloat16(), "embedding": work["embedding"].clone()}
    for leaf in leaves.values():
        leaf.requires_grad_()
    slot_loss(**(work | leaves)).backward()
    _, wanted = loss_and_gradients(dense_loss, work)
    for leaf, gradient in zip(leaves.values(), wanted, strict=False):
        assert leaf.grad is not None
        assert leaf.grad.dtype == leaf.dtype
        assert torch.allclose(leaf.grad.float(), gradient / 3, atol=0.1)
