"""The counts of the abilities benchmark on examples worked out by hand, and every part with a tiny model."""

import gzip
import json
import math
import random
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from insertion_models import cached_model_of
from scripts import load_script

from kermit.canvas import Segment
from kermit.data.joint_tokenizer import train_tokenizer
from kermit.decoding import Finish, Strategy
from kermit.errors import ModelError
from kermit.tasks.translation import Direction

abilities = load_script("benchmarks/abilities.py")

ENGLISH = ["I saw 3 dogs.", "The house is green.", "We met at 2:30.", "A girl sleeps here!"]
GERMAN = ["Ich sah 3 Hunde.", "Das Haus ist grün.", "Wir trafen uns um 2.30.", "Ein Mädchen schläft hier!"]
SIDES = {"en": ENGLISH, "de": GERMAN}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Test sets of four pairs; training text in which every word occurs five times."""
    folder = tmp_path_factory.mktemp("data")
    files = {"multi30k/test_2016_flickr": 1, "tatoeba/test": 1, "tatoeba_full/train": 3, "multi30k/train": 2}
    for name, times in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        for language, texts in SIDES.items():
            with gzip.open(folder / f"{name}.{language}.gz", "wt", encoding="utf-8") as stream:
                stream.writelines(f"{text}\n" for text in texts * times)
    return folder


def saved(folder: Path, **settings: object) -> Path:
    tokenizer = train_tokenizer([*ENGLISH, *GERMAN] * 3, 300)
    for part in (cached_model_of(tokenizer, **settings), tokenizer):
        part.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(tmp_path_factory.mktemp("model"))


def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[list, str]:
    """The rows that the script prints, and its tables."""
    monkeypatch.setattr(sys, "argv", ["abilities.py", *map(str, arguments)])
    abilities.main()
    lines = capsys.readouterr().out.splitlines()
    rows = [json.loads(line) for line in lines if line.startswith("{")]
    return rows, "\n".join(lines[len(rows) :])


# ---------------------------------------------------------------------------------------------------- worked examples


@pytest.mark.parametrize(
    ("source", "translated", "kept"),
    [
        ("It cost 1,000 dollars.", "Es kostete 1.000 Dollar.", True),
        ("At 2:30, OK?", "Um 2.30 Uhr, ja?", True),
        ("He is 13.", "Er ist 13 Jahre alt.", True),
        ("He is 13.", "Er ist 31.", False),
        ("8 rows and 8 columns", "8 Reihen und Spalten", False),
        ("In 2019", "2019 waren es 5", True),
        ("Born in 1813", "Geboren 18 13", False),
    ],
)
def test_a_number_is_kept_whatever_its_separators(source, translated, kept):
    assert (abilities.numbers_in(source) <= abilities.numbers_in(translated)) is kept


@pytest.mark.parametrize(
    ("source", "translated", "kept"),
    [("2 men", "Zwei Männer", True), ("2 men", "Drei Männer", False), ("22 men", "Zwei Männer", False)],
)
def test_a_small_number_may_be_written_as_a_word(source, translated, kept):
    assert abilities.keeps_numbers(source, translated, words=True) is kept
    assert not abilities.keeps_numbers(source, translated, words=False)


def test_other_numbers_have_the_same_shape_and_leave_the_words_alone():
    draw = random.Random(0)
    for _ in range(50):
        text = abilities.other_numbers("At 2:30 the 1st of 1,000 dogs ran 4.5 miles.", draw)
        assert re.fullmatch(r"At [2-9]:[1-5]\d the 1st of [2-9],[2-9]\d\d dogs ran [2-9]\.[2-9] miles\.", text)


@pytest.mark.parametrize(
    ("digits", "minutes", "low", "high"),
    [
        ("1869", False, 1500, 2099),
        ("13", False, 10, 23),
        ("30", True, 10, 59),
        ("64", False, 20, 99),
        ("3", False, 2, 9),
    ],
)
def test_years_days_and_minutes_stay_plausible(digits, minutes, low, high):
    draw = random.Random(0)
    assert all(low <= int(abilities.other_number(digits, minutes, draw)) <= high for _ in range(200))


def test_texts_with_numbers_are_the_real_ones_and_then_distinct_variants():
    texts, made = abilities.texts_with_numbers(["I have 64 dogs.", "No number.", "The 1st."], 20)
    assert texts[:2] == ["I have 64 dogs.", "The 1st."]
    assert made == 18
    assert len(set(texts)) == 20
    assert all(re.fullmatch(r"I have \d\d dogs\.", text) for text in texts[2:])
    assert abilities.texts_with_numbers(["I have 64 dogs.", "No number.", "The 1st."], 20) == (texts, made)
    assert abilities.texts_with_numbers(["I have 64 dogs.", "It is 5."], 1) == (["I have 64 dogs."], 0)
    assert abilities.texts_with_numbers(["The 1st.", "None."], 5) == (["The 1st."], 0)


@pytest.mark.parametrize("text", ["Two words.", "1 2 3", "don't can't won't", "x2 y-z it's"])
def test_texts_without_three_words_or_without_a_word_of_letters_are_not_blanked(text):
    assert abilities.blanked(text) is None


def test_a_blank_replaces_one_whole_word_and_always_the_same_one():
    texts = [f"Tom{i} doesn't like the un-real cat, ok?" for i in range(60)]
    found = [abilities.blanked(text) for text in texts]
    words = {re.fullmatch(re.escape(b).replace("____", "(.*)"), t)[1] for t, b in zip(texts, found, strict=True)}
    assert words == {"like", "the", "cat", "ok"}
    assert found == [abilities.blanked(text) for text in texts]


def test_the_choice_of_the_blanked_word_does_not_change():
    """Otherwise model cards could not be compared over time."""
    assert [abilities.blanked(text) for text in ENGLISH[1:]] == [
        "____ house is green.",
        "We met ____ 2:30.",
        "A ____ sleeps here!",
    ]


def test_words_of_one_language_are_frequent_in_it_and_never_in_the_other():
    english = ["Tom met the cat in Bonn"] * 5 + ["rare"]
    german = ["Tom traf die Katze in Bonn"] * 5 + ["selten the", "fast"] * 4
    words = abilities.words_of_one_language({"en": english, "de": german})
    assert words == {"en": {"met", "cat"}, "de": {"traf", "die", "Katze"}}
    assert abilities.has_words_of(words["de"], "The Katze!")
    assert not abilities.has_words_of(words["de"], "Tom is in Bonn; Katzen are cats.")


def test_a_perplexity_is_the_inverse_geometric_mean_of_the_probabilities():
    assert abilities.perplexity([math.log(1 / 2), math.log(1 / 8)]) == pytest.approx(4)


def test_perplexities_are_compared_by_medians_and_by_means():
    assert abilities.against([2.0, 4.0, 12.0], [1.0, 2.0, 6.0]) == {
        "perplexity_median": 4.0,
        "original_median": 2.0,
        "ratio_median": 2.0,
        "perplexity_mean": 6.0,
        "original_mean": 3.0,
        "ratio_mean": 2.0,
    }


@pytest.mark.parametrize(
    ("text", "without"), [("Go!", "Go"), ("What?! ", "What"), ("So ...", "So"), ("No. 5", "No. 5"), ('"Hm."', '"Hm."')]
)
def test_only_the_final_punctuation_mark_is_removed(text, without):
    assert abilities.without_final_mark(text) == without


def test_a_ratio_to_zero_is_none():
    assert abilities.ratio(3, 2) == 1.5
    assert abilities.ratio(1.0, 0.0) is None
    assert abilities.share([]) is None


# ------------------------------------------------------------------------------------------- a model with known output


class Echo:
    """Translates a text into itself, fills blanks with `at`, and samples given texts."""

    def __init__(self, drawn=()):
        self.drawn = drawn

    def segment(self, name):
        return {"en": Segment.X, "de": Segment.Y}[name]

    def translate(self, texts, to, settings, split_sentences):
        assert not split_sentences
        return [result(text, text) for text in texts]

    def infill(self, x, y, settings):
        return [result(*(text.replace("____", "at") for text in pair)) for pair in zip(x, y, strict=True)]

    def sample(self, count, *, segment, seed, settings):
        if not self.drawn:
            raise ModelError(f"not trained to sample {segment}")
        return [result(*pair) for pair in self.drawn[:count]]


def result(x, y):
    return SimpleNamespace(x=x, y=y, rounds=2, tokens=3, log_prob=-1.0, finish=Finish.FINISHED)


def bench(data, **more):
    return abilities.Bench(Echo(more.pop("drawn", ())), data, Strategy.PARALLEL, **more)


def test_copying_the_source_scores_as_high_as_the_sides_are_similar(data):
    rows = list(abilities.translation(bench(data, limit=2)))
    assert len(rows) == 2 * 2 * len(abilities.WAYS)
    assert {row["texts"] for row in rows} == {2}
    assert rows[0]["mean_rounds"] == rows[0]["mean_log2"] == rows[0]["log2_of_mean"] == 2.0
    assert rows[0]["unfinished"] == 0.0
    assert rows[0]["length_ratio"] == 1.0
    assert "BLEU|nrefs:1|case:mixed" in rows[0]["signature"]


def test_robustness_ignores_case(data):
    rows = list(abilities.robustness(bench(data)))
    assert [row["change"] for row in rows[:4]] == ["as it is", "lower case", "capitals", "no final mark"]
    assert rows[1]["bleu"] == rows[0]["bleu"] > 0
    assert [row["ratio"] for row in rows[:2]] == [1.0, 1.0]
    assert rows[3]["ratio"] < 1
    assert "case:lc" in rows[0]["signature"]


def test_copying_the_source_keeps_all_numbers(data):
    for row in abilities.numbers(bench(data, limit=10)):
        assert (row["texts"], row["made"], row["kept"], row["kept_in_real"]) == (10, 8, 1.0, 1.0)


def test_a_blank_filled_with_the_word_itself_is_exact(data):
    rows = list(abilities.infilling(bench(data, log_probs=lambda texts: [[math.log(1 / 2)]] * len(texts))))
    assert [(row["language"], row["given"], row["search"]) for row in rows] == [
        (language, given, search)
        for language, given in (("en", "nothing"), ("en", "de"), ("de", "nothing"), ("de", "en"))
        for search in ("greedy", "best of 8", "best of 64")
    ]
    assert rows[0]["exact"] == 0.25  # We met ____ 2:30.
    assert rows[0]["ratio_median"] == rows[0]["ratio_mean"] == 1.0
    assert rows[0]["perplexity_median"] == 2.0
    assert "perplexity_median" not in rows[6]


def test_samples_are_described_and_scored_by_the_teacher(data):
    way = Direction("en", "de")
    teacher = SimpleNamespace(
        translate=lambda texts, to, split_sentences: [SimpleNamespace(x="", y="Das Haus")] * len(texts),
        segment=lambda to: Segment.Y,
    )
    drawn = [("The house", "Das Haus"), ("The house", "Das Haus"), ("Das house is green", "Das Haus"), ("", "Das")]
    log_probs = {"The house": 2, "Das house is green": 8} | dict.fromkeys(ENGLISH, 4)
    how = {
        "drawn": drawn,
        "teachers": {way: teacher},
        "log_probs": lambda texts: [[-math.log(log_probs[text])] for text in texts],
    }
    rows = {(row.get("drawn"), row.get("language")): row for row in abilities.sampling(bench(data, limit=4, **how))}
    assert rows["none: tatoeba test", "en"]["perplexity_median"] == 4.0
    english = rows["both", "en"]
    assert english["words"] == (2 + 2 + 4 + 0) / 4
    assert (english["empty"], english["duplicates"], english["foreign_words"]) == (0.25, 0.25, 0.25)
    assert english["perplexity_median"] == 2.0
    assert rows["both", "de"]["foreign_words"] == 0.0
    taught = [row for row in abilities.sampling(bench(data, **how)) if "teacher_chrf" in row]
    assert [(row["direction"], row["texts"], row["teacher_chrf"]) for row in taught] == [("en-de", 3, 100.0)]


def test_parts_that_need_a_missing_file_are_skipped_with_a_note(data, tmp_path):
    (tmp_path / "tatoeba").symlink_to(data / "tatoeba")
    rows = list(abilities.sampling(bench(tmp_path, drawn=[("The house", "Das Haus")], limit=1)))
    notes = [row["skipped"] for row in rows if "skipped" in row]
    assert any("does not exist" in note for note in notes)
    assert any("--language-model" in note for note in notes)
    assert {"teacher_chrf needs --teacher-en-de", "teacher_chrf needs --teacher-de-en"} <= set(notes)
    assert {"skipped": "perplexity needs --language-model"} in list(abilities.infilling(bench(data)))


# ------------------------------------------------------------------------------------------------------ a tiny model


@pytest.mark.slow
def test_every_part_runs_and_is_reproducible(model, data, monkeypatch, capsys, tmp_path):
    output = tmp_path / "results.json"
    arguments = ("--model", model, "--data", data, "--limit", 2)
    rows, tables = run(monkeypatch, capsys, *arguments, "--output", output)
    assert list(dict.fromkeys(row["part"] for row in rows)) == list(abilities.PARTS)
    assert all("texts" in row or "skipped" in row for row in rows)
    assert all("--" in row["skipped"] for row in rows if "skipped" in row)  # no option was given for it
    assert {row["strategy"] for row in rows if row["part"] == "translation"} == set(abilities.WAYS)
    assert re.findall(r"^### (\w+)$", tables, re.MULTILINE) == list(abilities.PARTS)
    written = json.loads(output.read_text(encoding="utf-8"))
    assert written["rows"] == rows
    assert len(written["weights"]) == 64
    again, _ = run(monkeypatch, capsys, *arguments, "--only", "infilling", "sampling")
    assert again == [row for row in rows if row["part"] in ("infilling", "sampling")]


def test_parts_that_the_model_was_not_trained_for_are_skipped_with_a_note(data, monkeypatch, capsys, tmp_path):
    folder = saved(tmp_path / "model", factorizations=["y_given_x"], orders=("balanced_tree",))
    arguments = ("--model", folder, "--data", data, "--limit", 1, "--only", "translation", "sampling")
    rows, tables = run(monkeypatch, capsys, *arguments)
    told = [row for row in rows if "skipped" not in row and row["part"] == "translation"]
    assert [(row["direction"], row["strategy"]) for row in told] == [("en-de", "parallel")] * 2
    assert "Skipped: left_to_right decoding needs a model trained with left_to_right" in tables
    assert "Skipped: the model was not trained to translate de to en" in tables
    for what in ("sample en", "sample de", "sample pairs"):
        assert f"Skipped: the model was not trained to {what}" in tables


def test_the_strategy_can_be_chosen(model, data, monkeypatch, capsys):
    arguments = ("--model", model, "--data", data, "--limit", 1, "--only", "numbers")
    rows, _ = run(monkeypatch, capsys, *arguments, "--strategy", "left_to_right")
    assert {row["strategy"] for row in rows} == {"left_to_right"}


def test_perplexities_do_not_depend_on_the_batch(monkeypatch):
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    tokenizer = train_tokenizer(ENGLISH, 280)
    torch.manual_seed(0)
    shape = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    causal = LlamaForCausalLM(LlamaConfig(vocab_size=len(tokenizer), **shape)).eval()
    tokenizer.bos_token = tokenizer.cls_token
    monkeypatch.setattr(abilities, "load_causal_lm", lambda path: (causal, tokenizer))
    together, alone = (abilities.language_model("lm.gguf", batch_size=size)(ENGLISH) for size in (4, 1))
    assert [len(row) for row in together] == [
        len(tokenizer(text, add_special_tokens=False)["input_ids"]) for text in ENGLISH
    ]
    for one, other in zip(together, alone, strict=True):
        assert one == pytest.approx(other, abs=1e-5)
    ids = [tokenizer.bos_token_id, *tokenizer(ENGLISH[0], add_special_tokens=False)["input_ids"]]
    with torch.inference_mode():
        first = causal(torch.tensor([ids])).logits.log_softmax(-1)[0, 0, ids[1]]
    assert together[0][0] == pytest.approx(first.item(), abs=1e-5)
