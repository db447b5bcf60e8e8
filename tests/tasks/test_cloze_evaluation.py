"""Predictions and their scores: counts, stored files, and continuing after an interruption."""

import json
from dataclasses import dataclass, field

import pytest
from cloze_models import INSTANCES, masked_lm, tokenizer, write_data

from kermit.errors import DataError
from kermit.tasks.cloze.evaluation import PredictionLog, cloze_scores, predict, provenance_of, signature_of
from kermit.tasks.cloze.instances import ClozeSet, Skip
from kermit.tasks.cloze.layout import ClozeLayout
from kermit.tasks.cloze.masked_lm_system import MaskedLMSystem
from kermit.tasks.cloze.system import ClozeAnswer

DATA = ClozeSet(tuple(INSTANCES), 9, {Skip.ABSENT: 3})


@dataclass
class Parrot:
    """Returns given answers, in 2 passes of 3 sequences; records its batches, and has no room for `too_long`."""

    says: dict[str, str]
    too_long: str = ""
    stop_before: str = ""
    batches: list[list[str]] = field(default_factory=list)
    name: str = "parrot"

    def lay_out(self, instance):
        if instance.id == self.too_long:
            return None
        return ClozeLayout(
            instance.id, (), (1,), (), False, gap_length=len(instance.gap.split()), cut=instance.id == "q0"
        )

    def answer(self, layouts):
        if self.stop_before in [layout.id for layout in layouts]:
            raise KeyboardInterrupt
        self.batches.append([layout.id for layout in layouts])
        texts = [self.says.get(layout.id, "") for layout in layouts]
        return [ClozeAnswer(text, len(text.split()), 2, 3, -1.0) for text in texts]


def test_scores_are_means_over_all_instances():
    parrot = Parrot({"q0": "65 %", "q1": "Austria and Prussia", "q2": "dog of the king", "q5": "blue"}, too_long="q4")
    predictions = predict(parrot, INSTANCES, PredictionLog(None, {}), batch_size=2)
    assert [prediction.id for prediction in predictions] == [instance.id for instance in INSTANCES]
    scores = cloze_scores("parrot", predictions, DATA, "signed")
    assert scores.exact_match == pytest.approx(100 * 2 / 6, abs=0.01)
    # q1: "austria and prussia" has 1 word of 3 in common with "austria", F1 = 2 / (3 + 1)
    assert scores.f1 == pytest.approx(100 * (1 + 0.5 + 1) / 6, abs=0.01)
    assert (scores.instances, scores.cut, scores.too_long, scores.empty) == (6, 1, 1, 2)
    assert scores.skipped == {"answer_absent_from_sentence": 3}
    assert (scores.mean_forward_passes, scores.mean_sequences) == (2, 3)
    # over the five that were answered: answers of 2, 3, 4, 0, 1 words in gaps of 1, 1, 4, 3, 1
    assert (scores.mean_tokens, scores.mean_gap_tokens) == (2.0, 2.0)
    assert scores.signature == "signed"
    assert "exact match" in str(scores)


def test_batches_hold_instances_of_similar_length_the_longest_first():
    parrot = Parrot({})
    predict(parrot, INSTANCES, PredictionLog(None, {}), batch_size=2)
    by_length = sorted(INSTANCES, key=len, reverse=True)
    assert [identity for batch in parrot.batches for identity in batch] == [instance.id for instance in by_length]
    assert [len(batch) for batch in parrot.batches] == [2, 2, 2]


def test_an_interrupted_run_continues_where_it_stopped(tmp_path):
    says = {instance.id: instance.gap for instance in INSTANCES}
    whole = predict(Parrot(says), INSTANCES, PredictionLog(tmp_path / "whole.jsonl", {"a": 1}), batch_size=1)
    path, told = tmp_path / "predictions.jsonl", []
    with pytest.raises(KeyboardInterrupt):
        predict(Parrot(says, stop_before="q1"), INSTANCES, PredictionLog(path, {"a": 1}), batch_size=1)
    done = len(path.read_text().splitlines())
    assert 0 < done < len(INSTANCES)
    with path.open("a", encoding="utf-8") as stream:
        stream.write('{"id": "q1", "ans')  # as after a kill in the middle of a line
    parrot = Parrot(says)
    again = predict(parrot, INSTANCES, PredictionLog(path, {"a": 1}), batch_size=1, progress=told.append)
    assert len(parrot.batches) == len(INSTANCES) - done
    assert told[0] == done
    assert sum(told) == len(INSTANCES)
    assert [(p.id, p.answer, p.exact_match) for p in again] == [(p.id, p.answer, p.exact_match) for p in whole]
    records = [json.loads(line) for line in path.read_text().splitlines()]
    assert sorted(record["id"] for record in records) == sorted(says)
    parrot = Parrot(says)
    assert predict(parrot, INSTANCES, PredictionLog(path, {"a": 1})) == again
    assert not parrot.batches


def test_predictions_made_with_other_settings_are_rejected(tmp_path):
    path = tmp_path / "predictions.jsonl"
    predict(Parrot({}), INSTANCES[:1], PredictionLog(path, {"beams": 5, "weights": "abc"}))
    with pytest.raises(DataError, match=r"settings \(beams was 5, now 4;"):
        PredictionLog(path, {"beams": 4, "weights": "abc"})
    with pytest.raises(DataError, match=r"settings \(beams was 5, now not set; masks was not set, now 4;"):
        PredictionLog(path, {"masks": 4, "weights": "abc"})
    (tmp_path / "predictions.jsonl.settings.json").write_text("[1, 2]", encoding="utf-8")
    with pytest.raises(DataError, match=r"predictions\.jsonl\.settings\.json is not a manifest of"):
        PredictionLog(path, {"beams": 5, "weights": "abc"})
    (tmp_path / "predictions.jsonl.settings.json").unlink()
    with pytest.raises(DataError, match=r"without its predictions\.jsonl\.settings\.json"):
        PredictionLog(path, {"beams": 5, "weights": "abc"})


def test_the_error_lists_the_decoding_settings_that_differ(tmp_path):
    path = tmp_path / "predictions.jsonl"
    decoding = {"strategy": "parallel", "termination_penalty": 0.0, "max_tokens": 32, "max_rounds": None}
    predict(Parrot({}), INSTANCES[:1], PredictionLog(path, {"decoding": decoding}))
    changed = {"strategy": "parallel", "termination_penalty": -2.3, "max_tokens": 32, "seed": 1, "max_rounds": None}
    told = r"\(decoding\.seed was not set, now 1; decoding\.termination_penalty was 0\.0, now -2\.3;"
    with pytest.raises(DataError, match=told):
        PredictionLog(path, {"decoding": changed})
    with pytest.raises(DataError, match=r"\(decoding\.max_rounds was None, now not set;"):
        PredictionLog(path, {"decoding": {key: value for key, value in decoding.items() if value is not None}})
    with pytest.raises(DataError, match=r"\(decoding was {.*}, now not set;"):
        PredictionLog(path, {})


def test_similar_file_names_do_not_clash_and_removed_files_are_written_again(tmp_path):
    for name, beams in (("p.jsonl", 5), ("p.txt", 4)):
        predict(Parrot({}), INSTANCES[:1], PredictionLog(tmp_path / name, {"beams": beams}))
    (tmp_path / "p.jsonl").unlink()
    predict(Parrot({}), INSTANCES[:1], PredictionLog(tmp_path / "p.jsonl", {"beams": 3}))
    assert len(PredictionLog(tmp_path / "p.jsonl", {"beams": 3}).predictions) == 1
    with pytest.raises(DataError, match=r"cannot be compressed"):
        PredictionLog(tmp_path / "p.jsonl.gz", {})


def test_a_file_with_other_contents_is_rejected(tmp_path):
    path = tmp_path / "predictions.jsonl"
    PredictionLog(path, {})
    path.write_text('{"id": 1}\n', encoding="utf-8")
    with pytest.raises(DataError, match=r"predictions\.jsonl:1: not a prediction"):
        PredictionLog(path, {})


def test_the_settings_change_with_the_weights_the_search_and_the_data(tmp_path):
    words = tokenizer()
    qa2d, squad = write_data(tmp_path)
    first = provenance_of(MaskedLMSystem(masked_lm(words), words), "abc", qa2d, squad)
    assert provenance_of(MaskedLMSystem(masked_lm(words), words), "abc", qa2d, squad) == first
    assert provenance_of(MaskedLMSystem(masked_lm(words), words), "abd", qa2d, squad) != first
    other = provenance_of(MaskedLMSystem(masked_lm(words), words, beams=2), "abc", qa2d, squad)
    assert other["decoding"] != first["decoding"]
    squad.write_text(squad.read_text() + "\n", encoding="utf-8")
    assert provenance_of(MaskedLMSystem(masked_lm(words), words), "abc", qa2d, squad)["squad"] != first["squad"]
    signature = signature_of("my-model", first, 5)
    for part in ("system:masked-lm", "model:my-model@abc", "beams=5", "limit:5", "version:"):
        assert part in signature
