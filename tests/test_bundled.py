"""The bundled model: it loads offline, translates in both directions, infills, and is small."""

import re

import pytest
import sacrebleu
from safetensors import safe_open

from kermit import Factorization, Kermit, KermitForInsertion
from kermit.decoding import Constraints, DecodingSettings, Finish
from kermit.loading import bundled_model

PAIRS = [
    ("A man is playing a guitar.", "Ein Mann spielt Gitarre."),
    ("Two dogs are running through the snow.", "Zwei Hunde rennen durch den Schnee."),
    ("A woman is reading a book.", "Eine Frau liest ein Buch."),
    ("Three children are playing in the park.", "Drei Kinder spielen im Park."),
    ("I don't understand.", "Ich verstehe nicht."),
    ("Where is my book?", "Wo ist mein Buch?"),
]
ENGLISH, GERMAN = ([pair[side] for pair in PAIRS] for side in (0, 1))


@pytest.fixture(scope="module")
def kermit() -> Kermit:
    return Kermit.from_pretrained()


@pytest.mark.parametrize(("texts", "to", "references"), [(ENGLISH, "de", GERMAN), (GERMAN, "en", ENGLISH)])
def test_it_translates_simple_sentences_in_both_directions(kermit, texts, to, references):
    results = kermit.translate(texts, to)
    found = [result.y if to == "de" else result.x for result in results]
    assert all(result.finish is Finish.FINISHED for result in results)
    assert sacrebleu.corpus_chrf(found, [references]).score > 45, found


def test_it_prefers_the_translation_to_another_sentence(kermit):
    right = kermit.score(ENGLISH, GERMAN, factorization=Factorization.Y_GIVEN_X, orders=4)
    wrong = kermit.score(ENGLISH, GERMAN[1:] + GERMAN[:1], factorization=Factorization.Y_GIVEN_X, orders=4)
    assert sum(a.log_prob > b.log_prob for a, b in zip(right, wrong, strict=True)) >= len(PAIRS) - 1


def test_it_infills_both_languages(kermit):
    how = DecodingSettings(constraints=Constraints(min_tokens_per_blank=1))
    [english] = kermit.infill(["A man is ____ a bike."], settings=how)
    [german] = kermit.infill([""], ["Ein Mann ____ ein Buch."], settings=how)
    assert re.fullmatch(r"A man is \w.* a bike\.", english.x)
    assert re.fullmatch(r"Ein Mann \w.* ein Buch\.", german.y)


def test_it_is_small_and_stored_in_half_precision():
    files = list(bundled_model().rglob("*"))
    assert sum(file.stat().st_size for file in files) <= 45_000_000
    with safe_open(bundled_model() / "model.safetensors", "pt") as weights:
        assert {weights.get_slice(name).get_dtype() for name in weights.keys()} == {"F16"}  # noqa: SIM118
    card = (bundled_model() / "README.md").read_text(encoding="utf-8")
    assert re.search(r"\| Tatoeba \| de-en \| left to right \| \d", card)
    assert re.search(r"\| Multi30k \| en-de \| parallel \| \d", card)


def test_any_user_of_transformers_can_load_it():
    model = KermitForInsertion.from_pretrained(bundled_model())
    assert model.config.languages == {"x": "en", "y": "de"}
