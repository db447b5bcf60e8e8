"""The model on every trunk: it trains, saves, loads, sees the whole canvas, and uses segments and positions."""

import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from huggingface_hub.errors import StrictDataclassFieldValidationError
from insertion_models import (
    CLS,
    END,
    MORE_TRUNKS,
    PAD,
    SEP,
    SPECIALS,
    TRUNKS,
    VOCABULARY,
    A,
    B,
    C,
    SlotScores,
    engine_of,
    inputs_of,
    random_model,
    scores_of,
    trunk_config,
    try_without_a_trace,
)
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import AutoConfig, AutoModel, AutoModelForMaskedLM, BertConfig, PreTrainedTokenizerFast

from kermit.canvas import Canvas, CanvasBatch, Factorization, Termination
from kermit.data.joint_tokenizer import END_OF_SLOT, train_tokenizer
from kermit.decoding import DecodingSettings, Sampling, Strategy, decode
from kermit.errors import ModelError
from kermit.modeling import KermitConfig, KermitForInsertion, KermitModel
from kermit.modeling.trunk import refuse_unfit_at_work
from kermit.objectives.objective import LowerBoundObjective, SlotObjective
from kermit.objectives.orders import BalancedTreePrior, UniformPrior
from kermit.objectives.training_canvases import Texts, TrainingCanvases

EVERY_TRUNK = pytest.mark.parametrize("family", list(TRUNKS))
MANY_TRUNKS = pytest.mark.parametrize("family", [*TRUNKS, *MORE_TRUNKS])
# transformers' MPNet has neither gradient checkpointing nor scaled dot-product attention
ALL_BUT_MPNET = [family for family in TRUNKS if family != "mpnet"]
# every choice of the head, spread over the trunks' tests
HEADS = list(itertools.product(["right", "both"], ["slot", "sequence"]))


def training_canvases(termination: str, seed: int = 0) -> TrainingCanvases:
    work = [((A, B, C, A), (B, C)), ((C,), (A, A, A)), ((), (B,)), ((A, B), ())]
    ways = [Factorization.JOINT, Factorization.Y_GIVEN_X, Factorization.JOINT, Factorization.X]
    texts = Texts.of(CanvasBatch.from_segments(SPECIALS, work * 4), ways * 4)
    objective = SlotObjective(BalancedTreePrior(), termination=Termination(termination))
    return objective.sample(texts, np.random.default_rng(seed))


def starts() -> list[Canvas]:
    texts = [(A, B, C), (C,), (B, B, A, C, A), ()]
    return [Canvas.from_ids(SPECIALS, text, (), generate=Factorization.Y_GIVEN_X) for text in texts]


def decoded(model: KermitForInsertion) -> list[tuple[Any, ...]]:
    settings = DecodingSettings(strategy=Strategy.SERIAL, max_tokens=6)
    return [result.canvas.segments for result in decode(engine_of(model.eval()), starts(), settings)]


def score(model: KermitForInsertion, *canvases: Canvas) -> SlotScores:
    with torch.inference_mode():
        return scores_of(model, CanvasBatch.from_canvases(canvases))


def hidden(model: KermitForInsertion, tokens: list[int], segments: list[int]) -> torch.Tensor:
    with torch.inference_mode():
        out = model.kermit(torch.tensor([tokens]), segment_ids=torch.tensor([segments]))
    return out.last_hidden_state[0]


def is_idle(name: str, termination: str) -> bool:
    """A key's bias shifts all scores of a query, and the locations' bias all locations: softmax ignores both."""
    keys = ("key.bias", ".k.bias", "k_lin.bias", "key_proj.bias")
    return name.endswith(keys) or (name == "head.location.bias" and termination == "slot")


@MANY_TRUNKS
@pytest.mark.parametrize(("slot_vector", "termination"), HEADS)
def test_every_trunk_trains_a_step_saves_loads_and_decodes_the_same(
    family: str, slot_vector: str, termination: str, tmp_path: Path
) -> None:
    model = random_model(family, slot_vector=slot_vector, termination=termination)
    before = {name: parameter.clone() for name, parameter in model.named_parameters()}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    model.train()
    output = model(**inputs_of(training_canvases(termination)))
    assert bool(output.loss.isfinite())
    assert float(output.loss.detach()) == pytest.approx(float(output.content_loss + output.location_loss), rel=1e-5)
    output.loss.backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert bool(parameter.grad.isfinite().all()), name
    optimizer.step()
    for name, parameter in model.named_parameters():
        assert is_idle(name, termination) or not torch.equal(parameter, before[name]), name
    expected = decoded(model)
    model.save_pretrained(tmp_path)
    again = KermitForInsertion.from_pretrained(tmp_path)
    for name, weight in model.state_dict().items():
        assert torch.equal(again.state_dict()[name], weight), name
    assert decoded(again) == expected
    ours, theirs = score(model, *starts()), score(again, *starts())
    assert torch.allclose(ours.content, theirs.content, atol=1e-6)


@EVERY_TRUNK
def test_auto_classes_load_the_config_and_the_trunk(family: str, tmp_path: Path) -> None:
    model = random_model(family, slot_vector="both", positions="continue", languages={"x": "en", "y": "de"})
    model.save_pretrained(tmp_path)
    config = AutoConfig.from_pretrained(tmp_path)
    assert isinstance(config, KermitConfig)
    assert config.trunk_config.model_type == family
    assert (config.slot_vector, config.positions, config.languages) == ("both", "continue", {"x": "en", "y": "de"})
    assert config.specials == SPECIALS
    trunk = AutoModel.from_pretrained(tmp_path).eval()
    assert isinstance(trunk, KermitModel)
    tokens, segments = torch.tensor([[CLS, A, SEP, B, SEP]]), torch.tensor([[0, 0, 0, 1, 1]])
    with torch.inference_mode():
        found = trunk(tokens, segment_ids=segments).last_hidden_state
    assert torch.allclose(found[0], hidden(model, tokens[0].tolist(), segments[0].tolist()), atol=1e-6)


@MANY_TRUNKS
def test_there_is_no_causal_mask(family: str) -> None:
    model = random_model(family)
    one, other = (Canvas.from_ids(SPECIALS, (A, B, last), generate=None) for last in (A, C))
    canvases = [Canvas(SPECIALS, canvas.segments, frozenset({1})) for canvas in (one, other)]
    first, second = score(model, *canvases).content[:, A:]
    assert float((first - second).abs().max()) > 1e-4


@MANY_TRUNKS
@pytest.mark.parametrize("termination", ["slot", "sequence"])
def test_padding_does_not_change_the_scores(family: str, termination: str) -> None:
    model = random_model(family, termination=termination)
    short = Canvas.from_ids(SPECIALS, (A, B), (C,), generate=Factorization.JOINT)
    long = Canvas.from_ids(SPECIALS, (A, B, C, A, A, B), (C, C, B), generate=Factorization.JOINT)
    alone, together = score(model, short), score(model, short, long)
    slots = len(alone.rows)
    assert torch.allclose(together.content[:slots], alone.content, atol=1e-5)
    assert torch.allclose(together.location[:slots], alone.location, atol=1e-5)
    if termination == "sequence":
        assert alone.stop is not None
        assert together.stop is not None
        assert torch.allclose(together.stop[:1], alone.stop, atol=1e-5)


@MANY_TRUNKS
def test_segments_matter_beyond_positions(family: str) -> None:
    model = random_model(family, positions="continue")
    tokens = [CLS, A, SEP, A, SEP]
    apart, one = hidden(model, tokens, [0, 0, 0, 1, 1]), hidden(model, tokens, [0, 0, 0, 0, 0])
    assert float((apart - one).abs().max()) > 1e-3
    # and a pair is not the pair the other way round
    there = Canvas.from_ids(SPECIALS, (A, B), (C,), generate=Factorization.JOINT)
    back = Canvas.from_ids(SPECIALS, (C,), (A, B), generate=Factorization.JOINT)
    assert (
        float((score(model, there).content[:, A:].sum(0) - score(model, back).content[:, A:].sum(0)).abs().max()) > 1e-3
    )


@EVERY_TRUNK
def test_positions_restart_in_the_second_segment(family: str) -> None:
    """If segments differ in nothing else, a token has the same state at the same place of either segment."""
    model = random_model(family)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "segment_embeddings" in name or "token_type_embeddings" in name or "relative_attention_bias" in name:
                parameter.zero_()
    tokens, segments = [CLS, A, B, SEP, A, B, SEP], [0, 0, 0, 0, 1, 1, 1]
    restarting = hidden(model, tokens, segments)
    assert torch.allclose(restarting[1:4], restarting[4:7], atol=1e-5)
    other = random_model(family, positions="continue")
    other.load_state_dict(model.state_dict())
    continuing = hidden(other, tokens, segments)
    assert not torch.allclose(continuing[1:4], continuing[4:7], atol=1e-3)


def test_positions_are_numbered_as_the_trunk_expects() -> None:
    segments = torch.tensor([[0, 0, 0, 0, 1, 1, 0], [0, 0, 0, 1, 1, 1, 1]])
    valid = torch.tensor([[True] * 6 + [False], [True] * 7])
    bert = random_model("bert").kermit
    assert bert.position_ids(segments, valid).tolist() == [[0, 1, 2, 3, 1, 2, 0], [0, 1, 2, 1, 2, 3, 4]]
    roberta = random_model("roberta").kermit  # counts from its padding index, which is 0 here
    assert roberta.position_ids(segments, valid)[1].tolist() == [1, 2, 3, 2, 3, 4, 5]
    plain = random_model("bert", positions="continue").kermit
    assert plain.position_ids(segments, valid)[1].tolist() == [0, 1, 2, 3, 4, 5, 6]


@EVERY_TRUNK
@pytest.mark.parametrize("positions", ["restart", "continue"])
def test_the_longest_canvas_that_the_model_reports_fits(family: str, positions: str) -> None:
    model = random_model(family, positions=positions)
    info, kermit_positions = engine_of(model).info, model.kermit.max_positions
    assert kermit_positions is not None
    if positions == "restart":
        assert info.max_length is None
        assert info.max_segment_length == kermit_positions - 2
        x = y = info.max_segment_length
    else:
        assert info.max_segment_length is None
        assert info.max_length == kermit_positions
        x, y = 5, info.max_length - 8
    found = score(model, Canvas.from_ids(SPECIALS, (A,) * x, (B,) * y, generate=Factorization.JOINT))
    assert bool(found.location.isfinite().all())


@pytest.mark.parametrize("termination", ["slot", "sequence"])
def test_special_tokens_have_probability_zero(termination: str) -> None:
    model = random_model(termination=termination, never_generated=[C])
    probabilities = score(model, *starts()).content.softmax(1)
    never = [PAD, CLS, SEP, C, *([END] if termination == "sequence" else [])]
    assert bool((probabilities[:, never] == 0).all())
    rest = [token for token in range(VOCABULARY) if token not in never]
    assert bool((probabilities[:, rest] > 0).all())


@pytest.mark.parametrize("family", ALL_BUT_MPNET)
def test_gradient_checkpointing_gives_the_same_gradients(family: str) -> None:
    gradients = []
    for checkpointing in (False, True):
        model = random_model(family).train()
        if checkpointing:
            model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
            assert model.is_gradient_checkpointing
        model(**inputs_of(training_canvases("slot"))).loss.backward()
        gradients.append({name: parameter.grad for name, parameter in model.named_parameters()})
    for name, gradient in gradients[0].items():
        assert torch.allclose(gradient, gradients[1][name], atol=1e-5), name


@pytest.mark.parametrize("family", ALL_BUT_MPNET)
def test_scaled_dot_product_attention_is_the_default_and_equals_the_eager_one(family: str, tmp_path: Path) -> None:
    model = random_model(family)
    assert model.trunk.config._attn_implementation == "sdpa"
    model.save_pretrained(tmp_path)
    eager = KermitForInsertion.from_pretrained(tmp_path, attn_implementation="eager").eval()
    assert eager.trunk.config._attn_implementation == "eager"
    assert torch.allclose(score(model, *starts()).content, score(eager, *starts()).content, atol=1e-5)


def test_the_loss_of_a_batch_is_the_mean_of_its_texts() -> None:
    model = random_model()
    work = [((A, B, C),), ((C,),), ((B, A),)]
    objective = LowerBoundObjective(UniformPrior())

    def loss(rows: list[Any]) -> float:
        texts = Texts.of(CanvasBatch.from_segments(SPECIALS, rows), [Factorization.JOINT] * len(rows))
        kept = texts.present & ~texts.generated
        with torch.inference_mode():
            return float(model(**inputs_of(objective.build(texts, kept))).loss)

    assert loss(work) == pytest.approx(sum(loss([row]) for row in work) / 3, rel=1e-5)


def test_the_number_of_texts_may_be_given_for_accumulated_batches() -> None:
    model, inputs = random_model(), inputs_of(training_canvases("slot"))
    with torch.inference_mode():
        alone, among = model(**inputs).loss, model(**inputs, num_items_in_batch=64).loss
    assert float(among) == pytest.approx(float(alone) * 16 / 64, rel=1e-5)


def test_label_smoothing_applies_only_in_training() -> None:
    inputs = inputs_of(training_canvases("slot"))
    smooth, plain = random_model(label_smoothing=0.2), random_model()
    with torch.inference_mode():
        assert float(smooth.eval()(**inputs).loss) == pytest.approx(float(plain.eval()(**inputs).loss))
        assert float(smooth.train()(**inputs).loss) != pytest.approx(float(plain.train()(**inputs).loss), rel=1e-3)


@pytest.mark.parametrize("termination", ["slot", "sequence"])
def test_a_few_steps_reduce_the_loss(termination: str) -> None:
    model = random_model(termination=termination).train()
    inputs = inputs_of(training_canvases(termination))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    losses = []
    for _ in range(15):
        loss = model(**inputs).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.7 * losses[0]


def checkpoint_tokenizer() -> PreTrainedTokenizerFast:
    words = ["[CLS]", "[PAD]", "[SEP]", "[UNK]", "[MASK]", "one", "two", "three"]
    backend = Tokenizer(models.WordLevel({word: index for index, word in enumerate(words)}, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token="[PAD]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        unk_token="[UNK]",
        mask_token="[MASK]",
    )


@MANY_TRUNKS
def test_a_warm_start_keeps_the_trunks_weights_and_grows_the_vocabulary_by_end_of_slot(
    family: str, tmp_path: Path
) -> None:
    tokenizer = checkpoint_tokenizer()
    config = trunk_config(family, vocab_size=len(tokenizer))
    config.pad_token_id = tokenizer.pad_token_id
    encoder = AutoModel.from_config(config)
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter += 0.1 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(0))
    encoder.save_pretrained(tmp_path)
    model = KermitForInsertion.from_encoder(tmp_path, tokenizer, slot_vector="both").eval()
    assert tokenizer.convert_tokens_to_ids(END_OF_SLOT) == 8
    assert model.config.vocab_size == 9
    assert model.specials.end_of_slot_id == 8
    assert model.specials.others == {4}  # [MASK]; [UNK] may stand in a text
    theirs = encoder.state_dict()
    for name, weight in model.kermit.encoder.state_dict().items():
        wanted = theirs[name]
        assert torch.equal(weight[: len(wanted)], wanted), name
        assert len(weight) - len(wanted) in (0, 1), name
    # a text of one segment goes through it as through the encoder
    ids = torch.tensor([[0, 5, 6, 7, 2]])
    with torch.inference_mode():
        expected = encoder.eval()(ids, attention_mask=torch.ones_like(ids)).last_hidden_state
        found = model.kermit(ids).last_hidden_state
    assert torch.allclose(found, expected, atol=1e-5)


def test_a_loaded_encoder_gives_the_same_model_as_its_folder(tmp_path: Path) -> None:
    tokenizer = checkpoint_tokenizer()
    encoder = AutoModel.from_config(trunk_config("bert", vocab_size=16))  # more rows than the tokenizer has tokens
    model = KermitForInsertion.from_encoder(encoder, tokenizer)
    assert model.config.vocab_size == 16
    assert model.specials.others == {4, *range(9, 16)}  # rows without a token are never generated
    model.save_pretrained(tmp_path)
    assert KermitForInsertion.from_pretrained(tmp_path).specials == model.specials


@pytest.mark.parametrize("slot_vector", ["right", "both"])
def test_a_warm_started_model_initially_leaves_most_slots_empty(slot_vector: str) -> None:
    tokenizer = checkpoint_tokenizer()
    encoder = AutoModel.from_config(trunk_config("bert", vocab_size=len(tokenizer)))
    model = KermitForInsertion.from_encoder(encoder, tokenizer, slot_vector=slot_vector).eval()
    canvas = Canvas(model.specials, ((5, 6, 7),), frozenset({1, 2, 3, 4}))
    with torch.inference_mode():
        content = scores_of(model, CanvasBatch.from_canvases([canvas])).content.softmax(1)
    assert (content[:, model.specials.end_of_slot_id] - 7 / 8).abs().max() < 0.1


def test_a_loaded_encoder_is_not_modified() -> None:
    tokenizer = checkpoint_tokenizer()
    encoder = AutoModelForMaskedLM.from_config(trunk_config("bert", vocab_size=len(tokenizer)))  # its trunk is taken
    before = {name: weight.clone() for name, weight in encoder.state_dict().items()}
    settings = encoder.config.to_dict()
    model = KermitForInsertion.from_encoder(encoder, tokenizer)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    assert model.config.vocab_size == len(tokenizer) == encoder.config.vocab_size + 1  # end-of-slot is new
    assert encoder.config.to_dict() == settings
    assert encoder.state_dict().keys() == before.keys()
    assert all(torch.equal(weight, before[name]) for name, weight in encoder.state_dict().items())


def test_a_tokenizer_without_cls_and_sep_is_an_error() -> None:
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.WordLevel({"[PAD]": 0}, unk_token="[PAD]")))
    with pytest.raises(ModelError, match=r"no \[CLS\] token; set its cls_token first"):
        KermitForInsertion.from_encoder(AutoModel.from_config(trunk_config()), tokenizer)


def test_a_decoder_is_rejected_as_a_trunk() -> None:
    trunk = BertConfig(vocab_size=7, hidden_size=8, num_hidden_layers=1, num_attention_heads=1, is_decoder=True)
    with pytest.raises(ModelError, match="causal mask"):
        KermitForInsertion(KermitConfig(trunk_config=trunk))


@pytest.mark.parametrize(
    ("family", "shape", "reason"),
    [
        ("gpt2", {"n_embd": 8, "n_layer": 1, "n_head": 1}, "GPT2Model cannot be a trunk: its attention has a causal"),
        ("llama", {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1}, "LlamaModel .* causal mask"),
        ("t5", {"d_model": 8, "num_layers": 1, "num_heads": 1}, "T5Model cannot be a trunk: its forward takes no pos"),
    ],
)
def test_a_model_that_cannot_be_a_trunk_is_rejected_with_the_reason(
    family: str, shape: dict[str, int], reason: str
) -> None:
    special = {"bos_token_id": CLS, "eos_token_id": SEP, "pad_token_id": PAD}
    with pytest.raises(ModelError, match=reason):
        KermitForInsertion(KermitConfig(trunk_config=AutoConfig.for_model(family, vocab_size=7, **shape, **special)))


SMALL = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "max_position_embeddings": 16}


@pytest.mark.parametrize(
    ("family", "shape", "reason"),
    [
        (
            "openai-gpt",
            {"n_embd": 8, "n_layer": 1, "n_head": 1},
            "OpenAIGPTModel cannot be a trunk: it reads only from left",
        ),
        ("xlm", {"emb_dim": 8, "n_layers": 1, "n_heads": 1, "causal": True}, "XLMModel .* from left to right"),
        ("squeezebert", SMALL | {"embedding_size": 8, "q_groups": 1}, "SqueezeBertModel .* cannot read a canvas: "),
        ("yoso", SMALL, "YosoModel cannot be a trunk: it cannot read a canvas: "),  # of more tokens than a side
        ("ibert", SMALL, "IBertModel cannot be a trunk: its word embedding"),
        ("canine", SMALL, "CanineModel cannot be a trunk: its word embedding"),
    ],
)
def test_an_encoder_that_cannot_read_canvases_is_rejected(family: str, shape: dict[str, object], reason: str) -> None:
    special = {"bos_token_id": CLS, "eos_token_id": SEP, "pad_token_id": PAD}
    tokenizer = train_tokenizer(["a b c"], 300)
    encoder = AutoModel.from_config(AutoConfig.for_model(family, vocab_size=len(tokenizer), **special, **shape))
    with pytest.raises(ModelError, match=reason):
        KermitForInsertion.from_encoder(encoder, tokenizer)


def test_testing_a_new_trunk_has_no_side_effects() -> None:
    trunk = trunk_config("bert")
    trunk.hidden_dropout_prob = 0.5
    config = KermitConfig(trunk_config=trunk)
    model = KermitForInsertion(config)
    model.kermit.encoder.encoder.eval()
    try_without_a_trace(model)
    with torch.device("meta"):
        refuse_unfit_at_work(KermitForInsertion(config).kermit)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("termination", ["slot", "sequence"])
def test_a_model_in_half_precision_decodes_and_scores_nearly_as_in_float32(
    dtype: torch.dtype, termination: str
) -> None:
    model = random_model(termination=termination)
    full = score(model, *starts())
    half = score(model.to(dtype), *starts())
    for wanted, found in ((full.content, half.content), (full.location, half.location), (full.stop, half.stop)):
        if wanted is not None and found is not None:
            assert found.dtype == torch.float32
            finite = wanted.isfinite()
            assert torch.allclose(found[finite], wanted[finite], atol=0.2)
    for sampling in (None, Sampling()):
        settings = DecodingSettings(strategy=Strategy.SERIAL, sampling=sampling, max_tokens=6)
        assert all(math.isfinite(result.log_prob) for result in decode(engine_of(model), starts(), settings))


def test_an_encoder_in_half_precision_gives_a_model_in_float32(tmp_path: Path) -> None:
    encoder = AutoModel.from_config(trunk_config("bert", vocab_size=8), dtype=torch.bfloat16)
    model = KermitForInsertion.from_encoder(encoder, checkpoint_tokenizer())
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    model.to(torch.bfloat16).save_pretrained(tmp_path)
    for dtype in (torch.float32, torch.bfloat16):
        again = KermitForInsertion.from_pretrained(tmp_path, dtype=dtype)
        assert {parameter.dtype for parameter in again.parameters()} == {dtype}


@pytest.mark.parametrize(
    ("name", "value"), [("slot_vector", "left"), ("termination", "never"), ("positions", "backwards")]
)
def test_an_unknown_choice_is_an_error_that_lists_the_valid_ones(name: str, value: str) -> None:
    with pytest.raises(StrictDataclassFieldValidationError, match=f"'{name}' expected one of"):
        KermitConfig(trunk_config=trunk_config(), **{name: value})


def test_scores_are_returned_only_for_the_open_slots() -> None:
    model = random_model()
    canvases = [
        Canvas(SPECIALS, ((A, B), (C,)), frozenset({2, 4})),
        Canvas(SPECIALS, ((A,),), frozenset({1})),
        Canvas(SPECIALS, ((A,),)),
    ]
    found = score(model, *canvases)
    assert found.rows.tolist() == [0, 0, 1]
    assert found.slots.tolist() == [2, 4, 1]
    assert found.content.shape == (3, VOCABULARY)


@pytest.mark.parametrize(("slot_vector", "neighbours"), [("right", {3}), ("both", {2, 3})])
def test_a_slot_is_read_from_the_token_on_its_right_or_from_both_neighbours(
    slot_vector: str, neighbours: set[int]
) -> None:
    model = random_model(slot_vector=slot_vector)
    states = torch.randn(2, 5, 16, generator=torch.Generator().manual_seed(0), requires_grad=True)
    right = torch.tensor([5 + 3])  # slot 3 of the second canvas
    model.head.vectors(states, right - 1, right).square().sum().backward()
    assert states.grad is not None
    read = states.grad.abs().sum(2).nonzero().tolist()
    assert {tuple(place) for place in read} == {(1, place) for place in neighbours}


@pytest.mark.parametrize("family", ["bert", "albert", "modernbert"])
def test_adding_tokens_does_not_change_the_scores_of_the_old_ones(family: str, tmp_path: Path) -> None:
    model = random_model(family)
    before = score(model, *starts()).content
    model.resize_token_embeddings(VOCABULARY + 2, mean_resizing=False)
    grown = score(model, *starts()).content
    assert grown.shape[1] == model.config.vocab_size == VOCABULARY + 2
    assert torch.allclose(grown[:, :VOCABULARY].log_softmax(1), before, atol=1e-5)
    model(**inputs_of(training_canvases("slot"))).loss.backward()
    model.save_pretrained(tmp_path)
    again = KermitForInsertion.from_pretrained(tmp_path).eval()
    assert torch.allclose(score(again, *starts()).content, grown, atol=1e-6)
    again.resize_token_embeddings(VOCABULARY)
    assert torch.allclose(score(again, *starts()).content, before, atol=1e-6)


def test_two_sides_with_the_same_name_are_an_error_that_says_what_to_do() -> None:
    with pytest.raises(ValueError, match=r"same name, en; .* en and en2"):
        KermitConfig(trunk_config=trunk_config(), languages={"x": "en", "y": "en"})
