"""Model folders whose files are broken or do not match: a one-line error names the file and the problem."""

import json
import shutil

import pytest
from safetensors.torch import load_file, save_file
from transformers.utils import logging

from kermit import Kermit


def change(**values):
    """Change keys of the config."""

    def apply(place):
        config = json.loads((place / "config.json").read_text(encoding="utf-8"))
        (place / "config.json").write_text(json.dumps(config | values), encoding="utf-8")

    return apply


def change_trunk(**values):
    """Change keys of the trunk's part of the config."""

    def apply(place):
        config = json.loads((place / "config.json").read_text(encoding="utf-8"))
        change(trunk_config=config["trunk_config"] | values)(place)

    return apply


def lose_a_weight(place):
    weights = load_file(place / "model.safetensors")
    save_file(dict(list(weights.items())[1:]), place / "model.safetensors", metadata={"format": "pt"})


BROKEN = {
    "no JSON": (lambda place: (place / "config.json").write_text("{"), "cannot be loaded: Expecting"),
    "no object": (lambda place: (place / "config.json").write_text("[]"), "its config.json is not a JSON object"),
    "half the weights": (
        lambda place: (place / "model.safetensors").write_bytes(b"half"),
        "cannot be loaded by KermitForInsertion: Error while deserializing header",
    ),
    "languages": (change(languages=["en", "de"]), "'languages' expected a dict, got list"),
    "unnamed languages": (change(languages={"x": 1, "y": 2}), "Invalid key or value in dict 'languages'"),
    "one language": (change(languages={"x": "en"}), "languages must name x and y, as {'x': 'en', 'y': 'de'}"),
    "never generated": (change(never_generated="[MASK]"), "'never_generated' expected a list, got str"),
    "factorizations": (change(factorizations="joint"), "'factorizations' expected a list, got str"),
    "termination": (change(termination="never"), "'termination' expected one of ('slot', 'sequence'), got never"),
    "wrong type": (change_trunk(hidden_size="wide"), "'hidden_size' expected int, got str"),
    "a weight is missing": (lose_a_weight, "lacks 1 of the weights of KermitForInsertion"),
    "other shapes": (change_trunk(intermediate_size=64), "cannot be loaded by KermitForInsertion: "),
    "no tokenizer": (
        lambda place: (place / "tokenizer.json").unlink(),
        "tokenizer.json",
    ),
}


@pytest.mark.parametrize("verb", ["translate", "embed"])
@pytest.mark.parametrize("case", list(BROKEN))
def test_a_broken_model_is_a_one_line_error(case, verb, kermit, folder, tmp_path):
    place = shutil.copytree(folder, tmp_path / "broken")
    spoil, message = BROKEN[case]
    spoil(place)
    done = kermit(verb, "A man", *(("--to", "de") if verb == "translate" else ()), "--model", place)
    assert (done.code, done.out) == (2, "")
    error = done.err.splitlines()[-1]
    assert error.startswith(f"error: {place} ")
    assert message in error
    assert "Traceback" not in done.err


def test_a_model_of_another_kind_is_an_error_with_its_folder(kermit, folder, tmp_path):
    place = shutil.copytree(folder, tmp_path / "bert")
    (place / "config.json").write_text('{"model_type": "bert"}', encoding="utf-8")
    assert f"error: {place}: models of type 'bert' cannot translate" in (
        kermit("translate", "--to", "de", "A", "--model", place).err
    )
    assert "languages       unknown" in kermit("info", "--model", place).out


def test_loading_a_small_model_shows_no_progress_bar(folder, capfd):
    shown = logging.is_progress_bar_enabled()
    logging.enable_progress_bar()
    try:
        Kermit.from_pretrained(folder)
        assert "Loading weights" not in capfd.readouterr().err
        assert logging.is_progress_bar_enabled()  # as it was
    finally:
        (logging.enable_progress_bar if shown else logging.disable_progress_bar)()
