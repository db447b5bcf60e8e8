"""The pipeline with a random model: given text is kept, and every method runs the documented decode."""

import itertools
import math
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from insertion_models import cached_model_of, trunk_config
from transformers import AutoModel

import kermit
from kermit.canvas import Factorization
from kermit.data.joint_tokenizer import train_tokenizer
from kermit.decoding import (
    DEFAULT_SAMPLING,
    Constraints,
    DecodingSettings,
    Finish,
    Sampling,
    Strategy,
    Trace,
    strategies_of,
)
from kermit.decoding.flat_settings import DecodingChoices
from kermit.decoding.likelihood import exact_log_likelihood, left_to_right_log_likelihood
from kermit.errors import DataError, DecodingError, ModelError
from kermit.loading import find_model
from kermit.modeling import KermitConfig, KermitForInsertion, special_token_settings
from kermit.pipeline import Kermit

SENTENCES = [
    "A man in a red hat is walking down the street.",
    "Two dogs, one of them black, run over the green grass.",
    "Zwei Hunde laufen über die grüne Straße; ein Mädchen schläft (nicht).",
    "It's 3.5 miles to the un-believable, unreadable house.",
]
GIVEN_WORDS = ["A", "man", "dogs,", "über", "grüne", "Straße", "(nicht)", "3.5", "It's", "un-believable", "x", "naïve"]


def pipeline(*, seed: int = 0, termination: str = "slot", batch_size: int = 64, **settings: Any) -> Kermit:
    tokenizer = train_tokenizer(SENTENCES, 320)
    config = KermitConfig(
        trunk_config=trunk_config("bert", vocab_size=len(tokenizer), max_positions=96),
        languages={"x": "en", "y": "de"},
        termination=termination,
        **special_token_settings(tokenizer),
        **settings,
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = KermitForInsertion(config)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.3 * torch.randn(parameter.shape, generator=generator)
        model.head.bias[model.specials.end_of_slot_id] += 2
    return Kermit(model, tokenizer, batch_size=batch_size)


@pytest.fixture(scope="module")
def random_kermit() -> Kermit:
    return pipeline()


@pytest.fixture(scope="module")
def ordered_kermit() -> Kermit:
    """A pipeline that inserts in rounds or from left to right."""
    tokenizer = train_tokenizer(SENTENCES, 320)
    return Kermit(cached_model_of(tokenizer), tokenizer)


# ---------------------------------------------------------------------------------------------------------- infilling


@st.composite
def templates(draw: st.DrawFn) -> str:
    """Words and blanks, mostly with a space between, sometimes touching."""
    parts = draw(st.lists(st.sampled_from([*GIVEN_WORDS, "____"]), min_size=1, max_size=7))
    text = parts[0]
    for before, after in itertools.pairwise(parts):
        touching = "____" in (before, after) and before != after and draw(st.integers(0, 4)) == 0
        text += ("" if touching else " ") + after
    return text + draw(st.sampled_from(["", ".", "!"]))


def blanked_templates() -> st.SearchStrategy[str]:
    """Templates with at least one blank."""
    return templates().map(lambda template: template if "____" in template else f"{template} ____")


def pattern(template: str) -> re.Pattern[str]:
    """What an infilled text must look like.

    White space before a blank belongs to it; a word before it must end there. A blank at the start that stays empty
    takes the white space after it along.
    """
    out, at_start, rest = "", True, template
    while found := re.search(r"(\s*)_{4,}", rest):
        fragment = rest[: found.start()]
        out += re.escape(fragment)
        at_start = at_start and fragment == ""
        if fragment[-1:].isalnum() and found[1]:
            out += r"(?![^\W_])"
        out += ".*"
        rest = rest[found.end() :]
        if at_start and rest[:1].isspace():
            rest, out = rest.lstrip(), out + r"(^|\s+)"
    return re.compile(f"^{out}{re.escape(rest)}$", re.DOTALL)


SAMPLINGS = st.one_of(
    st.none(),
    st.builds(
        Sampling,
        temperature=st.sampled_from([0.5, 1.0, 2.0, 5.0]),
        top_k=st.sampled_from([None, 5]),
        top_p=st.sampled_from([None, 0.8]),
    ),
)


@settings(max_examples=250, deadline=None)
@given(
    template=blanked_templates(),
    sampling=SAMPLINGS,
    strategy=st.sampled_from(list(Strategy)),
    least=st.integers(0, 2),
    penalty=st.sampled_from([0.0, 3.0]),
    seed=st.integers(0, 2**32),
)
def test_given_text_survives_every_infill_word_for_word(
    random_kermit: Kermit,
    ordered_kermit: Kermit,
    template: str,
    sampling: Sampling | None,
    strategy: Strategy,
    least: int,
    penalty: float,
    seed: int,
) -> None:
    how = DecodingSettings(
        strategy=strategy,
        sampling=sampling,
        termination_penalty=penalty,
        max_tokens=10,
        constraints=Constraints(min_tokens_per_blank=least, max_tokens_per_blank=4),
    )
    kermit_model = ordered_kermit if strategy is Strategy.LEFT_TO_RIGHT else random_kermit
    (result,) = kermit_model.infill([template], settings=how, seeds=[seed])
    assert pattern(template).match(result.x), (template, result.x)
    if least and result.finish is Finish.FINISHED:
        assert result.tokens >= least


@settings(max_examples=50, deadline=None)
@given(x=blanked_templates(), y=templates(), seed=st.integers(0, 1000))
def test_given_text_survives_on_both_sides_of_a_pair(random_kermit: Kermit, x: str, y: str, seed: int) -> None:
    how = DecodingSettings(sampling=Sampling(2.0), max_tokens=8)
    (result,) = random_kermit.infill([x], [y], settings=how, seeds=[seed])
    assert result.y is not None
    assert pattern(x).match(result.x), (x, result.x)
    assert pattern(y).match(result.y), (y, result.y)


@pytest.mark.parametrize("template", ["un____able", "A ____man", "A ____", "____ man", "____able", "A____ man"])
def test_every_blank_can_be_filled_whatever_it_touches(random_kermit: Kermit, template: str) -> None:
    how = DecodingSettings(sampling=Sampling(2.0), max_tokens=4, constraints=Constraints(min_tokens_per_blank=1))
    results = random_kermit.infill([template] * 12, settings=how)
    assert all(result.tokens >= 1 for result in results)
    assert all(pattern(template).match(result.x) for result in results)
    assert len({result.x for result in results}) > 3


def test_a_joined_blank_may_continue_its_word_and_another_may_not(random_kermit: Kermit) -> None:
    how = DecodingSettings(sampling=Sampling(3.0), max_tokens=2, constraints=Constraints(min_tokens_per_blank=1))
    joined = random_kermit.infill(["un____able"] * 40, settings=how)
    assert any(result.x[2].isalnum() for result in joined)
    apart = random_kermit.infill(["un ____ able"] * 40, settings=how)
    assert not any(result.x[2].isalnum() for result in apart)


def test_infilling_needs_the_same_number_of_texts_on_both_sides(random_kermit: Kermit) -> None:
    with pytest.raises(DataError, match="2 texts in x but 1 in y"):
        random_kermit.infill(["a", "b"], ["c"])


# --------------------------------------------------------------------------------------------------------- completing


WORDS = st.lists(st.sampled_from(["A", "man", "über", "Straße", "hat", "unreadable"]), max_size=3)


@settings(max_examples=80, deadline=None)
@given(x=WORDS, y=WORDS, seed=st.integers(0, 1000))
def test_completed_pairs_keep_the_given_words_whole_and_in_order(
    random_kermit: Kermit, x: list[str], y: list[str], seed: int
) -> None:
    how = DecodingSettings(sampling=Sampling(3.0), max_tokens=12, termination_penalty=4.0)
    texts = [" ... ".join(["", *words, ""]) for words in (x, y)]
    result = random_kermit.complete(*texts, settings=how, seeds=[seed])
    for words, text in ((x, result.x), (y, result.y)):
        assert text is not None
        whole = ".*".join(rf"(?<![^\W_]){re.escape(word)}(?![^\W_])" for word in words)
        assert re.search(whole, text, re.DOTALL), (words, text)


@pytest.mark.parametrize(
    ("fragment", "completed"),
    [
        ("A man ...", r"A man\b.+"),
        ("A man...", r"A man\b.+"),
        ("A man …", r"A man\b.+"),
        ("... hat.", r".+ hat\."),
        ("...hat.", r".+ hat\."),
        ("A ____ hat.", r"A\b.+ hat\."),
        ("A man....", r"A man\b.+\."),
        ("", r".+"),
    ],
)
def test_text_is_inserted_only_at_open_places(random_kermit: Kermit, fragment: str, completed: str) -> None:
    how = DecodingSettings(sampling=Sampling(3.0), max_tokens=6, termination_penalty=50.0)
    for result in random_kermit.complete([fragment] * 10, ["Hunde."] * 10, settings=how):
        assert re.fullmatch(completed, result.x, re.DOTALL), result.x
        assert (result.y, result.tokens) == ("Hunde.", 6)


def test_a_missing_side_is_generated_whole(random_kermit: Kermit) -> None:
    how = DecodingSettings(sampling=Sampling(3.0), max_tokens=6, termination_penalty=50.0)
    expected = random_kermit.complete([""], ["... hat."], settings=how)
    assert [random_kermit.complete(None, "... hat.", settings=how)] == expected
    assert [random_kermit.complete("... hat.", side="de", settings=how)] == expected
    known = pipeline(factorizations=["joint"])
    assert known.complete("A man", settings=how).y
    with pytest.raises(DataError, match=r"no open place; write \.\.\. where text may be inserted") as refused:
        random_kermit.complete(["A ...", "A man"], ["", "Hunde"])
    assert refused.value.text == 1


def test_completing_needs_the_same_number_of_texts_on_both_sides(random_kermit: Kermit) -> None:
    with pytest.raises(DataError, match="1 texts in x but 0 in y"):
        random_kermit.complete(["a"], [])


# ------------------------------------------------------------------------------------------- translating and sampling


def test_a_translation_keeps_its_source(random_kermit: Kermit) -> None:
    how = DecodingSettings(max_tokens=5)
    texts = ["A man.", "Two dogs", ""]
    there = random_kermit.translate(texts, "de", settings=how)
    assert [result.x for result in there] == texts
    back = random_kermit.translate(texts, "en", settings=how)
    assert [result.y for result in back] == texts
    assert [r.y for r in there] == [r.y for r in random_kermit.translate(texts, "y", settings=how)]
    assert all(result.tokens <= 5 for result in there + back)


def test_white_space_around_a_text_has_no_effect(random_kermit: Kermit) -> None:
    plain, spaced = ["A man."], [" \tA man. \n"]
    few = DecodingSettings(max_tokens=5)
    (there,), (same,) = (random_kermit.translate(texts, "de", settings=few) for texts in (plain, spaced))
    assert (same.x, same.y) == (spaced[0], there.y)
    assert random_kermit.score(spaced, plain, seed=3) == random_kermit.score(plain, plain, seed=3)
    assert np.array_equal(random_kermit.embed(spaced), random_kermit.embed(plain))
    (filled,), (same,) = (random_kermit.infill([f"{a}____{b}"], settings=few) for a, b in (("", ""), ("\n ", "\t")))
    assert same.x == f"\n {filled.x}\t"


def test_an_unknown_language_is_an_error_that_lists_the_known_ones(random_kermit: Kermit) -> None:
    with pytest.raises(ModelError, match="unknown language 'fr'; the model's languages are en and de"):
        random_kermit.translate(["a"], "fr")


@pytest.mark.parametrize(
    ("trained", "refused"),
    [
        (["y_given_x"], {"to en", "both", "en", "de", "both ways"}),
        (["y_given_x", "x_given_y"], {"both", "en", "de"}),
        (["x", "y_given_x"], {"to en", "both", "de", "both ways"}),
        (["joint"], set()),
        (None, set()),
    ],
)
def test_a_model_rejects_what_it_was_not_trained_for(trained: list[str] | None, refused: set[str]) -> None:
    how = DecodingSettings(max_tokens=1)
    kermit = pipeline(factorizations=trained)
    jobs: dict[str, Callable[[], object]] = {
        **{f"to {to}": lambda to=to: kermit.translate(["A"], to, settings=how) for to in ("de", "en")},
        **{side: lambda side=side: kermit.sample(segment=side, settings=how) for side in ("both", "en", "de")},
    }
    ranked = DecodingSettings(max_tokens=2, candidates=2, ranking="both_ways")
    jobs["both ways"] = lambda: kermit.translate(["A", " "], "de", settings=ranked)
    for name, ask in jobs.items():
        if name in refused:
            with pytest.raises(ModelError, match="the model was not trained to"):
                ask()
        else:
            ask()
    assert kermit.score(["A"], ["A"], orders=1)
    assert kermit.infill(["____"], settings=how)


def test_one_text_gives_one_result_and_any_iterable_a_list(random_kermit: Kermit) -> None:
    few = DecodingSettings(max_tokens=3)
    verbs: dict[str, Callable[..., Any]] = {
        "translate": lambda texts: random_kermit.translate(texts, "de", settings=few),
        "infill": lambda texts: random_kermit.infill(texts, settings=few),
        "complete": lambda texts: random_kermit.complete(texts, settings=few),
        "score": lambda texts: random_kermit.score(texts, orders=2),
        "embed": random_kermit.embed,
    }
    texts = ["A ____", "____ dogs run"]
    for verb, ask in verbs.items():
        listed = ask(texts)
        assert len(listed) == 2, verb
        for lazy in ((text for text in texts), tuple(texts), dict.fromkeys(texts).keys()):
            assert np.array_equal(np.asarray(ask(lazy), object), np.asarray(listed, object)), verb
        one = ask(texts[0])
        assert np.array_equal(np.asarray(one, object), np.asarray(ask(texts[:1])[0], object)), verb
    assert random_kermit.embed("A man").shape == (16,)
    drawn = DecodingSettings(sampling=Sampling(), max_tokens=3)
    lazy_seeds = random_kermit.infill(texts, settings=drawn, seeds=(seed for seed in (3, 4)))
    assert lazy_seeds == random_kermit.infill(texts, settings=drawn, seeds=[3, 4])


def test_one_text_and_a_list_are_not_a_pair(random_kermit: Kermit) -> None:
    with pytest.raises(DataError, match="one side is a single text and the other is a list"):
        random_kermit.score(["A"], "A")  # type: ignore[call-overload]
    for nothing in (5, b"A"):
        with pytest.raises(DataError, match="must be a string or an iterable of strings, not"):
            random_kermit.embed(nothing)  # type: ignore[arg-type]
    with pytest.raises(DataError, match="no text given"):
        random_kermit.infill(None)


def test_texts_of_the_second_side_can_be_given_alone(random_kermit: Kermit) -> None:
    few = DecodingSettings(max_tokens=3)
    expected = random_kermit.infill([""], ["Zwei ____."], settings=few)
    assert random_kermit.infill(None, ["Zwei ____."], settings=few) == expected
    assert [random_kermit.infill(None, "Zwei ____.", settings=few)] == expected
    for side in ("de", "y"):
        assert random_kermit.infill(["Zwei ____."], side=side, settings=few) == expected
    assert random_kermit.infill(["A ____."], side="en", settings=few) == random_kermit.infill(["A ____."], settings=few)
    y = random_kermit.score([""], ["Hunde"], factorization=Factorization.Y, orders=2)
    assert random_kermit.score(["Hunde"], side="de", orders=2) == random_kermit.score(None, ["Hunde"], orders=2) == y
    assert np.array_equal(random_kermit.embed(["Hunde"], side="de"), random_kermit.embed([""], ["Hunde"]))
    with pytest.raises(DataError, match="side can only be given with x alone"):
        random_kermit.infill(["A ____"], ["B"], side="de")
    with pytest.raises(ModelError, match="unknown language 'fr'"):
        random_kermit.embed(["A"], side="fr")


def test_infilling_needs_a_blank_in_every_text_that_is_not_empty(random_kermit: Kermit) -> None:
    with pytest.raises(DataError, match="no blank to fill; write a blank as four underscores, ____") as refused:
        random_kermit.infill(["A ____", "A man"])
    assert refused.value.text == 1
    few = DecodingSettings(max_tokens=3)
    assert [result.x for result in random_kermit.infill(["", " \t"], settings=few)] == ["", " \t"]
    assert random_kermit.infill("A man", "ein ____", settings=few).x == "A man"


def test_settings_may_be_a_mapping(random_kermit: Kermit) -> None:
    assert random_kermit.infill("A ____", settings={}) == random_kermit.infill("A ____")
    assert random_kermit.sample(2, settings={}) == random_kermit.sample(2)
    named = {"max_tokens": 4, "temperature": 2.0}
    expected = DecodingSettings(sampling=Sampling(2.0), max_tokens=4)
    assert random_kermit.translate("A", "de", settings=named) == random_kermit.translate("A", "de", settings=expected)
    serial = pipeline(termination="sequence")  # whose only strategy is the default
    assert serial.sample(settings={"max_tokens": 3}) == serial.sample(
        settings=DecodingSettings(Strategy.SERIAL, DEFAULT_SAMPLING, max_tokens=3)
    )
    with pytest.raises(DecodingError, match=r"unknown decoding setting 'temprature'.*did you mean 'temperature'"):
        random_kermit.sample(settings={"temprature": 1})
    with pytest.raises(DecodingError, match=r"settings must be DecodingSettings or a mapping such as .*, not list"):
        random_kermit.infill("____", settings=["parallel"])
    with pytest.raises(DecodingError, match="give seeds"):
        random_kermit.infill("____", settings={"seed": 1})
    with pytest.raises(TypeError, match="unexpected keyword argument 'sead'"):
        random_kermit.infill("____", sead=1)  # type: ignore[call-overload]


def test_a_long_text_is_translated_sentence_by_sentence(random_kermit: Kermit) -> None:
    how = DecodingSettings(sampling=Sampling(2.0), max_tokens=4)
    text = " A man runs. Two dogs run.\n\nIt is red. "
    parts = ["A man runs.", "Two dogs run.", "It is red."]
    seeds = [7, 7 + 1_000_003, 7 + 2 * 1_000_003]
    expected = random_kermit.translate(parts, "de", settings=how, seeds=seeds)
    told: list[int] = []
    short, found = random_kermit.translate(
        ["A hat.", text], "de", settings=how, seeds=[6, 7], trace=True, on_progress=told.append
    )
    assert sum(told) == 2
    assert (short.sentences, found.trace) == ((), None)
    assert [sentence.y for sentence in found.sentences] == [result.y for result in expected]
    assert all(sentence.trace is not None for sentence in found.sentences)
    assert found.x == text
    assert found.y == "{} {}\n\n{}".format(*(result.y for result in expected)).strip()
    assert found.tokens == sum(result.tokens for result in expected)
    assert found.log_prob == pytest.approx(sum(result.log_prob for result in expected), abs=1e-4)
    whole = random_kermit.translate(text, "de", settings=how, split_sentences=False)
    assert (whole.sentences, whole.tokens) == ((), 4)
    with pytest.raises(DecodingError, match="tokens") as refused:
        random_kermit.translate(["A man. A hat.", "Dogs. " + "x" * 300], "de")
    assert refused.value.text == 1


def test_a_sentence_in_capitals_is_read_in_sentence_case_and_translated_to_capitals(random_kermit: Kermit) -> None:
    how: Any = {"settings": {"max_tokens": 4, "termination_penalty": 9.0}}
    plain = random_kermit.translate("A man. Two dogs run.", "de", **how)
    found = random_kermit.translate("A MAN. Two dogs run.", "de", **how)
    assert found.y == f"{plain.sentences[0].y.upper()} {plain.sentences[1].y}"
    assert (found.x, found.sentences[0].x) == ("A MAN. Two dogs run.", "A MAN.")
    kept = random_kermit.translate("A MAN. Two dogs run.", "de", recase=False, **how)
    assert kept.sentences[0].y == random_kermit.translate("A MAN.", "de", recase=False, **how).y
    assert kept.sentences[0].y != found.sentences[0].y
    back = random_kermit.translate("A MAN.", "en", **how)
    assert back.x == random_kermit.translate("A man.", "en", **how).x.upper()


def test_the_repr_of_a_pipeline_describes_the_model(random_kermit: Kermit) -> None:
    parameters = f"{random_kermit.info.parameters:,}"
    assert repr(random_kermit) == f"Kermit('model': kermit, en and de, {parameters} parameters, float32)"


@pytest.mark.parametrize("wrong", [None, 3, b"A"])
def test_an_argument_that_is_not_text_is_an_error_that_names_it(random_kermit: Kermit, wrong: Any) -> None:
    asks: list[Callable[[list[Any]], object]] = [
        random_kermit.infill,
        random_kermit.score,
        random_kermit.embed,
        lambda texts: random_kermit.translate(texts, "de"),
        lambda texts: random_kermit.complete(["A ...", "A ..."], texts),
    ]
    for ask in asks:
        with pytest.raises(DataError, match=type(wrong).__name__) as refused:
            ask(["A ____", wrong])
        assert refused.value.text == 1


def test_impossible_numbers_are_errors(random_kermit: Kermit) -> None:
    for never in (10**6, len(random_kermit.tokenizer)):
        how = DecodingSettings(constraints=Constraints(never=frozenset({0, never})))
        with pytest.raises(DecodingError, match=f"never holds {never}, but the model's tokens end at"):
            random_kermit.infill(["____"], settings=how)
    for wrong in (-1, 0.5):
        with pytest.raises(DecodingError, match="never must hold token ids"):
            Constraints(never=frozenset({wrong}))  # type: ignore[arg-type]
        with pytest.raises(DecodingError, match="count must be"):
            random_kermit.sample(wrong)  # type: ignore[arg-type]
    with pytest.raises(DecodingError, match=r"a seed must be a whole number, not 0\.5"):
        random_kermit.infill(["____"], seeds=[0.5])  # type: ignore[list-item]
    assert random_kermit.infill(["____"], seeds=list(np.arange(1))) == random_kermit.infill(["____"], seeds=[0])
    assert random_kermit.sample(0) == []


@pytest.mark.parametrize("place", ["/no/such/folder", "./no", "../no", "~/no-such-folder", "runs/no/such"])
def test_a_missing_folder_is_not_looked_up_on_the_hub(place: str) -> None:
    for load in (Kermit.from_pretrained, find_model):
        with pytest.raises(ModelError, match=f"{place} does not exist"):
            load(place)


def test_samples_depend_on_their_seeds(random_kermit: Kermit) -> None:
    how = DecodingSettings(sampling=Sampling(), max_tokens=6)
    five = random_kermit.sample(5, seed=10, settings=how)
    two = random_kermit.sample(2, seed=12, settings=how)
    assert [(r.x, r.y) for r in five[2:4]] == [(r.x, r.y) for r in two]
    assert len({(r.x, r.y) for r in five}) > 1


def test_no_blank_stays_empty_unless_allowed() -> None:
    reluctant = pipeline()
    with torch.no_grad():
        reluctant.engine.model.head.bias[reluctant.specials.end_of_slot_id] = 50.0
    texts = ["A ____ man ____.", "____"]
    assert [result.tokens for result in reluctant.infill(texts)] == [2, 1]
    assert [result.tokens for result in reluctant.infill(texts, settings=DecodingSettings(max_rounds=5))] == [2, 1]
    free = DecodingSettings(constraints=Constraints(min_tokens_per_blank=0))
    assert [result.tokens for result in reluctant.infill(texts, settings=free)] == [0, 0]


def test_sampling_leaves_out_unlikely_tokens_by_default(random_kermit: Kermit) -> None:
    how = DecodingSettings(sampling=DEFAULT_SAMPLING)
    assert random_kermit.sample(3) == random_kermit.sample(3, settings=how)
    assert random_kermit.complete("A ...", "Ein") == random_kermit.complete("A ...", "Ein", settings=how)
    assert DecodingChoices(top_p=0.9).settings().sampling == Sampling(0.7, top_p=0.9)
    for named in ({"temperature": 1.0}, {"top_k": 3}, {"top_p": 0.5}):
        exactly = DecodingSettings(sampling=Sampling(**{"temperature": 0.7} | named))
        assert random_kermit.sample(3, settings=named) == random_kermit.sample(3, settings=exactly)
    assert random_kermit.sample(settings={"temperature": None}) == random_kermit.sample(settings=DecodingSettings())


def test_the_translation_of_a_blank_text_is_blank(random_kermit: Kermit) -> None:
    how = DecodingSettings(max_tokens=4, termination_penalty=50.0)
    nothing, space, text = random_kermit.translate(["", " \t", "A man"], to="de", settings=how, trace=True)
    assert (nothing.y, nothing.rounds, nothing.finish, nothing.log_prob) == ("", 0, Finish.FINISHED, 0.0)
    assert (space.x, space.y, space.tokens) == (" \t", "", 0)
    assert text.tokens == 4


def test_a_marginal_sample_leaves_the_other_side_empty(random_kermit: Kermit) -> None:
    how = DecodingSettings(sampling=Sampling(), max_tokens=6, termination_penalty=3.0)
    assert {result.y for result in random_kermit.sample(8, segment="en", settings=how)} == {""}
    assert {result.x for result in random_kermit.sample(8, segment="de", settings=how)} == {""}
    assert any(result.y for result in random_kermit.sample(8, segment="de", settings=how))


def test_the_batch_size_does_not_change_the_results() -> None:
    texts = ["A man ____ hat.", "____ dogs", "one ____ of ____ them", "It's ____"] * 3
    how = DecodingSettings(sampling=Sampling(), max_tokens=6)
    small, large = (
        [(r.x, r.rounds, r.finish) for r in pipeline(batch_size=size).infill(texts, settings=how)] for size in (1, 64)
    )
    assert small == large


def test_progress_is_reported_and_the_trace_is_returned_on_request(random_kermit: Kermit) -> None:
    told: list[int] = []
    results = random_kermit.infill(
        ["A ____."] * 3, trace=True, on_progress=told.append, settings=DecodingSettings(max_tokens=3)
    )
    assert sum(told) == 3
    for result in results:
        assert result.trace is not None
        inserted = [token for token in result.trace.tokens() if token.round > 0]
        assert len(inserted) == result.tokens
        assert len(result.trace.rounds) == result.rounds


# ------------------------------------------------------------------------------------------------ scoring and embedding


@pytest.mark.parametrize("termination", ["slot", "sequence"])
def test_scores_are_the_likelihoods_of_the_tokens(termination: str) -> None:
    kermit_model = pipeline(termination=termination)
    texts = ["A man", "dogs"]
    ids = [(tokens,) for tokens in kermit_model._encode(texts)]
    exact = kermit_model.score(texts, method="exact")
    assert [score.log_prob for score in exact] == pytest.approx(exact_log_likelihood(kermit_model.engine, ids))
    assert {score.method for score in exact} == {"exact"}
    weighted = kermit_model.score(texts, orders=200)
    for score, truth in zip(weighted, exact, strict=True):
        assert score.standard_error is not None
        assert score.log_prob == pytest.approx(truth.log_prob, abs=5 * score.standard_error + 1e-3)
    bound, paper = (kermit_model.score(texts, method=method) for method in ("bound", "paper_bound"))
    for number, (tokens,) in enumerate(ids):
        difference = bound[number].log_prob - paper[number].log_prob
        assert difference == pytest.approx(math.lgamma(len(tokens) + 1), abs=1e-3)


def test_a_score_from_left_to_right_is_the_log_prob_of_the_decode(ordered_kermit: Kermit) -> None:
    how = DecodingSettings(Strategy.LEFT_TO_RIGHT, Sampling(1.0), termination_penalty=-4.0, max_tokens=40)
    texts = ["A man in a red hat", "dogs", "It's 3.5 miles"]
    results = ordered_kermit.translate(texts, "de", settings=how, trace=True)
    pairs = []
    for source, result in zip(ordered_kermit._encode(texts), results, strict=True):
        assert result.finish is Finish.FINISHED
        assert result.trace is not None
        pairs.append((source, [insertion.token_id for round_ in result.trace.rounds for insertion in round_]))
    assert len({len(target) for _, target in pairs}) > 1
    found = left_to_right_log_likelihood(ordered_kermit.engine, pairs, Factorization.Y_GIVEN_X)
    assert found == pytest.approx([result.log_prob for result in results], abs=1e-3)


@pytest.mark.parametrize("way", list(Factorization))
def test_scores_from_left_to_right_are_the_likelihoods_of_the_tokens(
    ordered_kermit: Kermit, way: Factorization
) -> None:
    x, y = ["A man", "dogs"], ["Hunde", "ein Mädchen"]
    ids = list(zip(ordered_kermit._encode(x), ordered_kermit._encode(y), strict=True))
    found = ordered_kermit.score(x, y, factorization=way, method="left_to_right")
    expected = [left_to_right_log_likelihood(ordered_kermit.engine, [pair], way)[0] for pair in ids]
    assert [score.log_prob for score in found] == pytest.approx(expected, abs=1e-4)
    assert {(score.method, score.standard_error) for score in found} == {("left_to_right", None)}


def test_left_to_right_needs_a_model_trained_in_that_order(random_kermit: Kermit) -> None:
    with pytest.raises(ModelError, match="left_to_right needs a model with cached_context that was trained with"):
        random_kermit.score(["A"], method="left_to_right")
    for how in (
        DecodingSettings(Strategy.LEFT_TO_RIGHT, max_tokens=4),
        DecodingSettings(max_tokens=4, candidates=2, ranking="left_to_right"),
    ):
        for generate in (
            lambda how=how: random_kermit.translate(["A"], "de", settings=how),
            lambda how=how: random_kermit.infill(["A ____"], settings=how),
            lambda how=how: random_kermit.complete(["A ..."], ["B"], settings=how),
            lambda how=how: random_kermit.sample(settings=how),
        ):
            with pytest.raises(DecodingError, match="needs a model trained with left_to_right among its orders"):
                generate()


def test_strategies_of_lists_exactly_the_strategies_that_work(random_kermit: Kermit, ordered_kermit: Kermit) -> None:
    tokenizer = ordered_kermit.tokenizer
    ordered_alone = Kermit(cached_model_of(tokenizer, orders=("left_to_right",)), tokenizer)
    for kermit_model, expected in (
        (random_kermit, [Strategy.PARALLEL, Strategy.SERIAL]),
        (pipeline(termination="sequence"), [Strategy.SERIAL]),
        (ordered_kermit, [Strategy.PARALLEL, Strategy.SERIAL, Strategy.LEFT_TO_RIGHT]),
        (ordered_alone, [Strategy.LEFT_TO_RIGHT]),
    ):
        assert strategies_of(kermit_model.info) == expected
        for strategy in Strategy:
            how = DecodingSettings(strategy, max_tokens=2)
            if strategy in expected:
                assert kermit_model.sample(settings=how)
            else:
                with pytest.raises(DecodingError, match=f"{strategy} decoding needs"):
                    kermit_model.sample(settings=how)


def test_a_conditional_score_covers_only_one_side(random_kermit: Kermit) -> None:
    x, y = ["A man"], ["dogs"]
    given_x = random_kermit.score(x, y, factorization=Factorization.Y_GIVEN_X, method="exact")[0]
    ids = [tuple(random_kermit._encode([x[0], y[0]]))]
    expected = exact_log_likelihood(random_kermit.engine, ids, Factorization.Y_GIVEN_X)[0]
    assert given_x.log_prob == pytest.approx(expected)


@pytest.mark.parametrize("way", [Factorization.Y, Factorization.Y_GIVEN_X, Factorization.X_GIVEN_Y])
@pytest.mark.parametrize("method", ["exact", "importance"])
def test_a_score_that_needs_second_sides_is_rejected_without_them(
    random_kermit: Kermit, way: Factorization, method: str
) -> None:
    with pytest.raises(DataError, match=f"{way.value} needs the second side of every text"):
        random_kermit.score(["A man"], factorization=way, method=method)


def test_embeddings_do_not_depend_on_the_batch(random_kermit: Kermit) -> None:
    texts = ["Two dogs, one of them black, run", "A man", ""]
    together = random_kermit.embed(texts)
    assert together.shape == (3, 16)
    for number, text in enumerate(texts):
        assert np.allclose(random_kermit.embed([text])[0], together[number], atol=1e-5)
    two_by_two = Kermit(random_kermit.engine.model, random_kermit.tokenizer, batch_size=2)
    done: list[int] = []
    assert np.allclose(two_by_two.embed(texts, on_progress=done.append), together, atol=1e-5)
    assert done == [2, 1]
    first = random_kermit.embed(texts, pooling="first")
    assert first.shape == (3, 16)
    assert not np.allclose(first, together)
    assert random_kermit.embed([]).shape == (0, 16)
    assert random_kermit.embed(["A man"], ["dogs"]).shape == (1, 16)


# ------------------------------------------------------------------------------------------------------------- loading


def test_a_saved_pipeline_gives_the_same_results_once_loaded(random_kermit: Kermit, tmp_path: Path) -> None:
    random_kermit.save_pretrained(tmp_path / "best")  # as training leaves it
    again = kermit.Kermit.from_pretrained(tmp_path, device="cpu")
    assert again.languages == ("en", "de")
    how = DecodingSettings(sampling=Sampling(), max_tokens=6)
    texts = ["A man ____ hat.", "un____able"]
    ours, theirs = (one.infill(texts, settings=how) for one in (random_kermit, again))
    assert [result.x for result in ours] == [result.x for result in theirs]


def test_saved_files_have_the_permissions_of_the_umask_and_a_card(random_kermit: Kermit, tmp_path: Path) -> None:
    old = os.umask(0o027)
    try:
        random_kermit.save_pretrained(tmp_path / "saved")
    finally:
        os.umask(old)
    modes = {file.name: file.stat().st_mode & 0o777 for file in (tmp_path / "saved").iterdir()}
    assert {"README.md", "config.json", "model.safetensors", "tokenizer.json"} <= set(modes)
    assert set(modes.values()) == {0o640}
    card = (tmp_path / "saved" / "README.md").read_text()
    assert card.startswith("---\nlanguage:\n- en\n- de\n")
    assert "English and German texts" in card
    assert f"{random_kermit.info.parameters:,} parameters" in card
    (tmp_path / "saved" / "README.md").write_text("mine")
    random_kermit.save_pretrained(tmp_path / "saved")
    assert (tmp_path / "saved" / "README.md").read_text() == "mine"
    again = Kermit.from_pretrained(tmp_path / "saved")
    again.save_pretrained(tmp_path / "saved")  # into its own folder: nothing to do
    again.save_pretrained(tmp_path / "copy")
    assert (tmp_path / "copy" / "README.md").is_file()


def test_a_folder_without_a_model_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="is not a model"):
        Kermit.from_pretrained(tmp_path)


def test_another_kind_of_model_is_rejected_instead_of_getting_random_weights(tmp_path: Path) -> None:
    AutoModel.from_config(trunk_config("bert")).save_pretrained(tmp_path)
    with pytest.raises(ModelError, match="models of type 'bert' cannot translate"):
        Kermit.from_pretrained(tmp_path)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_a_truncated_file_is_an_error_that_names_the_model(name: str, random_kermit: Kermit, tmp_path: Path) -> None:
    random_kermit.engine.model.save_pretrained(tmp_path)
    random_kermit.tokenizer.save_pretrained(tmp_path)
    content = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(content[: len(content) // 2])
    with pytest.raises(ModelError, match=f"{tmp_path} cannot be loaded"):
        Kermit.from_pretrained(tmp_path)


def test_an_unknown_method_or_pooling_is_an_error(random_kermit: Kermit) -> None:
    with pytest.raises(DecodingError, match=r"method must be exact, .* or left_to_right, not 'best'"):
        random_kermit.score(["A"], method="best")  # type: ignore[arg-type]
    with pytest.raises(DecodingError, match="pooling must be mean or first, not 'cls'"):
        random_kermit.embed(["A"], pooling="cls")  # type: ignore[arg-type]


# ----------------------------------------------------------------------------------------------- lengths, seeds, rounds


@pytest.mark.parametrize("ability", ["score", "embed", "translate", "infill"])
def test_a_text_too_long_for_the_model_is_an_error_that_gives_the_limit(random_kermit: Kermit, ability: str) -> None:
    more = {"to": "de"} if ability == "translate" else {}
    with pytest.raises(DecodingError, match=r"30\d tokens") as refused:
        getattr(random_kermit, ability)(["ok ____", "x" * 300 + " ____"], **more)
    assert (refused.value.text, refused.value.limit) == (1, 94)


def test_samples_accept_seeds(random_kermit: Kermit) -> None:
    how = DecodingSettings(sampling=Sampling(2.0), max_tokens=6)
    first, second = random_kermit.sample(2, seeds=[9, 4], settings=how)
    for found, seed in ((first, 9), (second, 4)):
        (alone,) = random_kermit.sample(seed=seed, settings=how)
        assert replace(found, log_prob=0.0) == replace(alone, log_prob=0.0)
        assert found.log_prob == pytest.approx(alone.log_prob, abs=1e-4)


def test_every_method_reports_rounds_and_can_abandon_texts(random_kermit: Kermit) -> None:
    how = DecodingSettings(Strategy.SERIAL, Sampling(2.0), termination_penalty=50.0, max_tokens=5)

    def stop_the_second(traces: Mapping[int, Trace]) -> list[int]:
        told.append({number: len(trace.rounds) for number, trace in traces.items()})
        return [1]

    for call in (
        lambda: random_kermit.translate(["A", "A"], "de", settings=how, on_round=stop_the_second),
        lambda: random_kermit.infill(["____", "____"], settings=how, on_round=stop_the_second),
        lambda: random_kermit.complete(["A", "A"], ["...", ""], settings=how, on_round=stop_the_second),
        lambda: random_kermit.sample(2, settings=how, on_round=stop_the_second),
    ):
        told: list[dict[int, int]] = []
        whole, part = call()
        assert told[0] == {0: 1, 1: 1}
        assert told[1:] == [{0: number} for number in range(2, whole.rounds + 1)]
        assert (whole.tokens, part.tokens, part.rounds, part.finish) == (5, 1, 1, Finish.ABANDONED)


# ------------------------------------------------------------------------------------------------------ as it was saved


def test_translation_uses_the_models_termination_penalty_by_default() -> None:
    kermit = pipeline(termination_penalty=50.0)
    texts = SENTENCES[:2]

    def tokens(how: DecodingSettings | None) -> list[int]:
        return [result.tokens for result in kermit.translate(texts, "de", settings=how, seeds=[0, 1])]

    few = DecodingSettings(max_tokens=20)
    assert tokens(few) == [20, 20]  # the model never predicts the end
    assert tokens(DecodingSettings(max_tokens=20, termination_penalty=-50.0)) == [0, 0]
    (filled,) = kermit.infill(["A man ____."], settings=DecodingSettings(termination_penalty=0.0, max_tokens=8))
    assert kermit.infill(["A man ____."], settings=DecodingSettings(max_tokens=8)) == [filled]


def test_a_model_saved_in_half_precision_is_loaded_in_single(tmp_path: Path) -> None:
    whole = pipeline()
    for model in (whole.engine.model.half(), whole.tokenizer):
        model.save_pretrained(tmp_path)
    loaded = Kermit.from_pretrained(tmp_path)
    assert loaded.engine.model.dtype is torch.float32
    assert Kermit.from_pretrained(tmp_path).precision == "float32"
    weight = loaded.engine.model.head.project.weight
    assert torch.equal(weight, whole.engine.model.head.project.weight.float())


def test_every_method_works_in_half_precision(random_kermit: Kermit, tmp_path: Path) -> None:
    random_kermit.save_pretrained(tmp_path)
    half = Kermit.from_pretrained(tmp_path, dtype=torch.bfloat16)
    assert {parameter.dtype for parameter in half.engine.model.parameters()} == {torch.bfloat16}
    texts, how = ["A man", "Two dogs"], DecodingSettings(max_tokens=6)
    assert np.allclose(half.embed(texts), random_kermit.embed(texts), atol=0.1)
    assert half.embed(texts).dtype == np.float32
    for found, wanted in zip(half.score(texts, orders=2), random_kermit.score(texts, orders=2), strict=True):
        assert found.log_prob == pytest.approx(wanted.log_prob, rel=0.05)
    [result] = half.infill(["A man ____ hat."], settings=how)
    assert re.fullmatch(r"A man\b.* hat\.", result.x)
    assert half.translate(texts, to="de", settings=how)[0].x == "A man"


def test_the_model_is_pushed_to_the_hub_with_its_tokenizer(
    random_kermit: Kermit, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = []
    for part in (random_kermit.engine.model, random_kermit.tokenizer):
        monkeypatch.setattr(type(part), "push_to_hub", lambda self, name, **how: sent.append((self, name, how)))
    random_kermit.push_to_hub("someone/some-model", private=True)
    assert [part for part, _, _ in sent] == [random_kermit.engine.model, random_kermit.tokenizer]
    assert all((name, how) == ("someone/some-model", {"private": True}) for _, name, how in sent)


@pytest.mark.parametrize("strategy", [Strategy.PARALLEL, Strategy.LEFT_TO_RIGHT])
def test_a_translation_that_does_not_end_is_cut_off_and_reported(ordered_kermit: Kermit, strategy: Strategy) -> None:
    endless = DecodingSettings(strategy, termination_penalty=1e4)
    texts = ["A man", "A man rides a bike."]
    lengths = [len(ids) for ids in ordered_kermit._encode(texts)]
    found = ordered_kermit.translate(texts, "de", settings=endless)
    assert [result.tokens for result in found] == [2 * length + 10 for length in lengths]
    assert {result.finish for result in found} == {Finish.MAX_TOKENS}
    [longer] = ordered_kermit.translate(texts[:1], "de", settings=replace(endless, max_tokens=100))
    assert longer.tokens == 100
