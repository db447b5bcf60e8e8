import gzip
import math
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch

from kermit.canvas import Segment
from kermit.data.parallel import Pair
from kermit.data.plain import OnBad
from kermit.decoding import LENGTH_REWARD, DecodingSettings, Finish
from kermit.decoding.candidates import ranks
from kermit.decoding.flat_settings import DecodingChoices
from kermit.errors import DataError, ModelError, Place
from kermit.families.transformer import BeamSearch
from kermit.loading import find_model
from kermit.pipeline import Kermit
from kermit.results import Generation
from kermit.tasks.distillation import distill
from kermit.tasks.translation import (
    Direction,
    direction_to,
    evaluate_translation,
    note_of,
    plot_rounds,
    read_split,
    score_translations,
    scores_table,
)

EN_DE = Direction("en", "de")


def translation(text: str, tokens: int, rounds: int, finish: Finish = Finish.FINISHED) -> Generation:
    return Generation("source", text, rounds, tokens, finish, -1.0)


def test_directions_are_read_and_written() -> None:
    assert str(Direction.parse(" en-de ")) == "en-de"
    for wrong in ("en", "en-", "-de", ""):
        with pytest.raises(DataError, match="write it as en-de"):
            Direction.parse(wrong)


def test_scores_are_sacrebleus_with_its_signature_and_the_means_are_by_hand() -> None:
    results = [translation("Ein Mann schläft auf einem Sofa.", 7, 3), translation("Zwei Hunde laufen.", 3, 2)]
    references = ["Ein Mann schläft auf einem Sofa.", "Zwei Hunde rennen schnell."]
    texts = [str(result.y) for result in results]
    scores = score_translations(texts, results, references, EN_DE, seconds=0.5, note="kermit|x:y")
    import sacrebleu

    expected = sacrebleu.corpus_bleu(texts, [references])
    assert scores.bleu == round(expected.score, 2)
    assert scores.length_ratio == round(expected.sys_len / expected.ref_len, 4)
    assert (scores.mean_tokens, scores.mean_rounds, scores.sentences_per_second) == (5.0, 2.5, 4.0)
    assert scores.mean_log2 == pytest.approx((math.log2(8) + math.log2(4)) / 2)
    assert "tok:13a" in scores.signature
    assert "nc:6" in scores.signature
    assert scores.signature.endswith("kermit|x:y")
    assert list(asdict(scores)) == [
        "direction",
        "bleu",
        "chrf",
        "length_ratio",
        "mean_rounds",
        "mean_tokens",
        "mean_log2",
        "sentences_per_second",
        "signature",
    ]
    assert "en-de" in scores_table([scores])


def test_unequal_numbers_of_texts_cannot_be_scored() -> None:
    with pytest.raises(DataError, match="translations and references differ: 1 and 0"):
        score_translations(["a"], [translation("a", 1, 1)], [], EN_DE, seconds=1)


def test_a_split_is_found_plain_or_gzipped(tmp_path: Path) -> None:
    (tmp_path / "test.en").write_text("one\n")
    (tmp_path / "test.de.gz").write_bytes(gzip.compress(b"eins\n"))
    (pair,) = read_split(tmp_path, "test", ("en", "de"))
    assert (pair.x, pair.y) == ("one", "eins")
    with pytest.raises(DataError, match=r"neither val\.en nor val\.en\.gz"):
        read_split(tmp_path, "val", ("en", "de"))


def test_rounds_are_shown_next_to_the_logarithm(tmp_path: Path) -> None:
    plot_rounds({"en-de": [translation("a", 3, 2), translation("b", 7, 4)]}, tmp_path / "rounds.png")
    assert (tmp_path / "rounds.png").read_bytes().startswith(b"\x89PNG")


def test_a_model_of_both_directions_ranks_candidates_both_ways() -> None:
    facade = Kermit.from_pretrained()
    texts = ["Two dogs are playing in the snow."]
    settings = facade.decoding({"candidates": 4, "ranking": "both_ways"}).settings()
    [found] = facade.translate(texts, "de", settings=settings)
    assert "Hunde" in str(found.y)
    facade.factorizations = frozenset({"y_given_x"})
    with pytest.raises(ModelError, match="not trained"):
        facade.translate(texts, "de", settings=settings)
    facade.translate(texts, "de", settings=facade.decoding({"candidates": 4}).settings())


def test_translations_are_rewarded_for_their_length_and_other_texts_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    rewards: list[float] = []

    def noting(*arguments: Any, length_reward: float, **options: Any) -> list[tuple[bool, float]]:
        rewards.append(length_reward)
        return ranks(*arguments, length_reward=length_reward, **options)

    monkeypatch.setattr("kermit.decoding.candidates.ranks", noting)
    kermit = Kermit.from_pretrained()
    for choices in ({}, {"length_reward": 0.25}):
        settings = kermit.decoding({"candidates": 2} | choices).settings()
        kermit.translate(["A dog."], "de", settings=settings)
    kermit.translate(["A dog."], "de", settings=DecodingSettings(candidates=2))
    kermit.infill(["A ____."], settings=DecodingSettings(candidates=2))
    assert rewards == [LENGTH_REWARD, 0.25, LENGTH_REWARD, 0.0]


def test_a_model_translates_only_in_the_directions_it_was_trained_for(teacher: Path, corpus: Path) -> None:
    facade = Kermit.from_pretrained(teacher)
    assert direction_to(facade, "de") == EN_DE
    with pytest.raises(ModelError, match="not trained for de-en, only for en-de"):
        direction_to(facade, "en")
    with pytest.raises(ModelError, match="languages are en and de"):
        direction_to(facade, "fr")
    pairs = read_split(corpus, "test", facade.languages)
    scores, results = evaluate_translation(facade, pairs, EN_DE, BeamSearch(beams=1, max_tokens=10))
    assert len(results) == len(pairs) == 12
    assert scores.direction == "en-de"


class Dictionary:
    """Translates word by word, with one dictionary per direction."""

    words: ClassVar = {"de": {"one": "eins", "two": "zwei"}, "en": {"eins": "one", "zwei": "two"}}
    languages = ("en", "de")
    factorizations = frozenset({"joint"})
    precision = "float32"
    searcher = engine = None

    def segment(self, name: str) -> Segment:
        return Segment(self.languages.index(name))

    def translate(self, texts: list[str], to: str, **_: Any) -> list[Generation]:
        found = [" ".join(self.words[to][word] for word in text.split()) for text in texts]
        return [Generation(*(text, text), 1, 1, Finish.FINISHED, -1.0) for text in found]


@pytest.mark.parametrize("way", ["en-de", "de-en"])
def test_a_direction_is_scored_against_the_other_side_of_the_pairs(way: str) -> None:
    sides = [("one two one two", "eins zwei eins zwei"), ("two two one one", "zwei zwei eins eins")]
    pairs = [Pair(x, y, (Place("x"), Place("y"))) for x, y in sides]
    scores, _ = evaluate_translation(Dictionary(), pairs, Direction.parse(way), BeamSearch())  # type: ignore[arg-type]
    assert (scores.direction, scores.bleu, scores.length_ratio) == (way, 100.0, 1.0)


def test_a_folder_without_a_model_is_an_error_and_the_best_model_of_a_run_in_progress_is_found(
    teacher: Path, tmp_path: Path
) -> None:
    with pytest.raises(ModelError, match="is not a model"):
        Kermit.from_pretrained(tmp_path)
    (tmp_path / "best").symlink_to(teacher / "best")
    assert find_model(tmp_path) == tmp_path / "best"


class StoppedError(Exception):
    pass


def test_distillation_continues_after_an_interruption(teacher: Path, corpus: Path, tmp_path: Path) -> None:
    translator = Kermit.from_pretrained(teacher)
    settings = BeamSearch(beams=2, max_tokens=30)
    arguments: Any = (translator, teacher, corpus / "train.en", EN_DE, settings)
    whole = distill(*arguments, tmp_path / "whole", block_size=50)
    assert (whole.source.name, whole.target.name) == ("train.en", "train.de")
    sources, targets = (path.read_text().splitlines() for path in (whole.source, whole.target))
    assert len(sources) == len(targets) == whole.texts == 240 - whole.unfinished
    assert whole.texts > 0

    seen = 0

    def stop_in_the_third_block(count: int) -> None:
        nonlocal seen
        seen += count
        if seen > 120:
            raise StoppedError

    output = tmp_path / "again"
    with pytest.raises(StoppedError):
        distill(*arguments, output, block_size=50, progress=stop_in_the_third_block)
    assert not (output / "train.de").exists()
    with pytest.raises(DataError, match=r"made with different settings .*decoding"):
        distill(*arguments[:4], BeamSearch(beams=1), output, block_size=50)
    made = {path.name: path.stat().st_mtime_ns for path in (output / ".train.en-de.blocks").glob("*.jsonl")}
    assert sorted(made) == ["000000.jsonl", "000001.jsonl"]
    again = distill(*arguments, output, block_size=50)
    assert again.target.read_text() == whole.target.read_text()
    assert again.source.read_text() == whole.source.read_text()

    def refuse(count: int) -> None:
        raise AssertionError("translated again")

    made_before = again.target.stat().st_mtime_ns
    assert distill(*arguments, output, block_size=50, progress=refuse) == again
    assert again.target.stat().st_mtime_ns == made_before
    again.target.unlink()
    assert distill(*arguments, output, block_size=50).target.read_text() == whole.target.read_text()


def test_a_text_too_long_for_the_teacher_is_an_error_with_its_line_or_is_skipped(teacher: Path, tmp_path: Path) -> None:
    translator = Kermit.from_pretrained(teacher)
    (tmp_path / "long.en").write_text("one two\ntwo\n" + "two " * 600 + "\none\n")
    asked: Any = (translator, teacher, tmp_path / "long.en", EN_DE, BeamSearch(max_tokens=9), tmp_path / "out")
    with pytest.raises(DataError, match=r"long\.en:3: text longer than the limit \(\d+ tokens, .*--skip-bad"):
        distill(*asked, block_size=2)
    seen: list[int] = []
    made = distill(*asked, block_size=2, on_bad=OnBad.SKIP, progress=seen.append)
    assert made.texts + made.unfinished == 3
    assert sum(seen) == 4
    pairs = [
        Pair("one", "eins", (Place("en", 1), Place("de", 1))),
        Pair("two " * 600, "zwei", (Place("en", 2), Place("de", 2))),
    ]
    with pytest.raises(DataError, match=r"^en:2: \d+ tokens"):
        evaluate_translation(translator, pairs, EN_DE, BeamSearch())


def test_only_the_first_texts_are_distilled_in_half_precision(teacher: Path, corpus: Path, tmp_path: Path) -> None:
    whole, half = Kermit.from_pretrained(teacher), Kermit.from_pretrained(teacher, dtype=torch.bfloat16)
    assert {weight.dtype for weight in half.searcher.model.parameters()} == {torch.bfloat16}
    settings = BeamSearch(beams=2, max_tokens=30)
    asked: Any = (teacher, corpus / "train.en", EN_DE, settings, tmp_path)
    made = distill(half, *asked, limit=70, block_size=50)
    assert made.texts + made.unfinished == 70
    kept = [line for line in (corpus / "train.en").read_text().splitlines()[:70] if line in made.source.read_text()]
    assert made.source.read_text().splitlines() == kept
    with pytest.raises(DataError, match=r"made with different settings .*precision"):
        distill(whole, *asked, limit=70, block_size=50)
    with pytest.raises(DataError, match=r"made with different settings .*limit"):
        distill(half, *asked, block_size=50)
    pairs = read_split(corpus, "val", half.languages)
    assert "|precision:bfloat16|" in note_of(half, settings, "val", pairs)
    assert evaluate_translation(half, pairs[:8], EN_DE, settings)[0].mean_tokens > 0


def distilled(teacher: Path, corpus: Path, output: Path, *, to: str = "de", finish: str = "finished") -> Any:
    """Distil with a translator that writes the direction before every text."""

    source = "en" if to == "de" else "de"

    class Prefixing(Dictionary):
        def translate(self, texts: list[str], to: str, **_: Any) -> list[Generation]:
            found = [f"{source}-{to} {text}" for text in texts]
            return [Generation(text, text, 1, 1, Finish(finish), 0.0) for text in found]

    fake: Any = Prefixing()
    return distill(fake, teacher, corpus / f"train.{source}", Direction(source, to), DecodingChoices(), output)


def test_distillation_does_not_overwrite_files_that_it_did_not_write(
    teacher: Path, corpus: Path, tmp_path: Path
) -> None:
    for side in ("en", "de"):
        shutil.copyfile(corpus / f"train.{side}", tmp_path / f"train.{side}")
    kept = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(DataError, match=r"train\.en is the text to translate"):
        distilled(teacher, tmp_path, tmp_path)
    with pytest.raises(DataError, match=r"train\.en was not written by this command"):
        distilled(teacher, corpus, tmp_path)
    (tmp_path / "train.en").unlink()
    (tmp_path / "train.en-de.json").write_text('{"tea')
    with pytest.raises(DataError, match=r"train\.en-de\.json is not a manifest"):
        distilled(teacher, corpus, tmp_path)
    assert (tmp_path / "train.de").read_bytes() == kept["train.de"]


def test_two_directions_are_not_distilled_into_one_folder(teacher: Path, corpus: Path, tmp_path: Path) -> None:
    first = distilled(teacher, corpus, tmp_path)
    kept = first.target.read_text()
    with pytest.raises(DataError, match="choose another output folder"):
        distilled(teacher, corpus, tmp_path, to="en")
    assert first.target.read_text() == kept
    assert distilled(teacher, corpus, tmp_path) == first


def test_distillation_in_which_no_text_finishes_overwrites_nothing(teacher: Path, corpus: Path, tmp_path: Path) -> None:
    first = distilled(teacher, corpus, tmp_path)
    kept = first.target.read_text()
    first.source.unlink()
    with pytest.raises(DataError, match=r"no pair is left \(unfinished 240\)"):
        distilled(teacher, corpus, tmp_path, finish="max_tokens")
    assert first.target.read_text() == kept
    assert distilled(teacher, corpus, tmp_path) == first
    assert sorted(path.name for path in tmp_path.iterdir()) == ["train.de", "train.en", "train.en-de.json"]


def test_pairs_that_are_visibly_wrong_are_left_out_and_counted(teacher: Path, tmp_path: Path) -> None:
    made = {
        "two dogs run": "zwei Hunde laufen",
        "three girls": "drei Mädchen Mädchen Mädchen",
        "one two three": "One two three!",
        "dogs": "Hunde und Mädchen laufen über Straßen",
        "girls sleep": None,
    }

    class Listed(Dictionary):
        def translate(self, texts: list[str], to: str, **_: Any) -> list[Generation]:
            return [Generation(text, made[text] or "", 1, 1, Finish.FINISHED, 0.0) for text in texts]

    def asked(texts: list[str], output: str, filter_pairs: bool = True) -> Any:
        (tmp_path / "some.en").write_text("".join(f"{text}\n" for text in texts))
        fake: Any = Listed()
        where = (tmp_path / "some.en", EN_DE, DecodingChoices(), tmp_path / output)
        return distill(fake, teacher, *where, filter_pairs=filter_pairs, block_size=2)

    found = asked(list(made), "out")
    assert (found.texts, found.unfinished) == (1, 1)
    assert found.filtered == {"length": 1, "copy": 1, "repetition": 1, "language": 0}
    assert found.target.read_text() == "zwei Hunde laufen\n"
    assert asked(list(made), "out") == found
    with pytest.raises(DataError, match=r"made with different settings .*filter"):
        asked(list(made), "out", filter_pairs=False)
    whole = asked(list(made), "whole", filter_pairs=False)
    assert (whole.texts, whole.unfinished, whole.filtered) == (4, 1, {})
    with pytest.raises(
        DataError, match=r"no pair is left \(unfinished 1, length 1, copy 1, repetition 1, language 0\)"
    ):
        asked(list(made)[1:], "nothing")
    assert [path.name for path in (tmp_path / "nothing").iterdir()] == ["some.en-de.json"]
