"""Time against length at about 60M parameters: KERMIT in parallel and left to right, and CTranslate2's greedy search.

    python benchmarks/length_speed.py [--lengths 16 32 ... 512] [--threads 1] [--picture FILE.svg] [--output FILE.json]

Weights are random and lengths forced: the source has n tokens and n are generated, one text at a time. KERMIT never
ends a slot before the limit, so a text doubles every round, and the last round encodes the complete text, as it would
to find that it is finished. Both run in int8 and alternate; times are medians of the repeats. Needs the extras
`[train,export,distill]`.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import ctranslate2
import numpy as np
import torch
from tokenizers import Tokenizer, models
from transformers import MarianConfig, MarianMTModel, PreTrainedTokenizerFast

from kermit import Canvas, DecodingSettings, Factorization, KermitConfig, KermitForInsertion, Strategy, decode
from kermit.engines.exported_files import FilePrecision
from kermit.engines.exporting import export_model
from kermit.engines.onnx_engine import OnnxEngine
from kermit.families.transformer import BeamSearcher
from kermit.modeling.encoder import EncoderConfig
from kermit.tasks.ctranslate2_teacher import save_converted

VOCABULARY, FIRST_CONTENT, WIDTH, HEADS = 32_000, 6, 512, 8
Generate = Callable[[list[int], int], int]


def build_kermit(folder: Path, threads: int) -> tuple[OnnxEngine, int]:
    """Build a model of 12 layers for ONNX Runtime in int8; return it with its number of parameters."""
    trunk = EncoderConfig(
        vocab_size=VOCABULARY,
        hidden_size=WIDTH,
        num_hidden_layers=12,
        num_attention_heads=HEADS,
        intermediate_size=1536,
    )
    config = KermitConfig(
        trunk_config=trunk,
        cached_context=True,
        slot_vector="both",
        orders=["balanced_tree", "left_to_right"],
        blank_token_id=FIRST_CONTENT - 1,
    )
    model = KermitForInsertion(config)
    model.save_pretrained(folder)
    export_model(folder, precisions=[FilePrecision.INT8])
    return OnnxEngine.load(folder, precision=FilePrecision.INT8, threads=threads), model.num_parameters()


def kermit_generates(engine: OnnxEngine, strategy: Strategy) -> Generate:
    def generate(source: list[int], length: int) -> int:
        settings = DecodingSettings(strategy, max_tokens=length, max_rounds=length + 1, termination_penalty=1e4)
        canvas = Canvas.from_ids(engine.info.specials, source, (), generate=Factorization.Y_GIVEN_X)
        (result,) = decode(engine, [canvas], settings)
        assert result.tokens == length, result.tokens
        return result.rounds

    return generate


def build_transformer(folder: Path, threads: int) -> tuple[ctranslate2.Translator, int]:
    """Build a model of 6 and 6 layers for CTranslate2 in int8; return it with its number of parameters."""
    config = MarianConfig(
        vocab_size=VOCABULARY,
        d_model=WIDTH,
        encoder_layers=6,
        decoder_layers=6,
        encoder_attention_heads=HEADS,
        decoder_attention_heads=HEADS,
        encoder_ffn_dim=4 * WIDTH,
        decoder_ffn_dim=4 * WIDTH,
        max_position_embeddings=1024,
        activation_function="relu",
        pad_token_id=0,
        decoder_start_token_id=1,
        eos_token_id=2,
        forced_eos_token_id=None,
    )
    model = MarianMTModel(config)
    vocabulary = {str(number): number for number in range(VOCABULARY)}
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.WordLevel(vocabulary, unk_token="3")),
        pad_token="0",
        cls_token="1",
        sep_token="2",
    )
    save_converted(BeamSearcher(model, tokenizer), folder)
    return ctranslate2.Translator(str(folder), compute_type="int8", intra_threads=threads), model.num_parameters()


def transformer_generates(translator: ctranslate2.Translator) -> Generate:
    def generate(source: list[int], length: int) -> int:
        (result,) = translator.translate_batch(
            [[str(token) for token in source]],
            beam_size=1,
            min_decoding_length=length,
            max_decoding_length=length,
            max_input_length=0,
        )
        assert len(result.hypotheses[0]) == length
        return length

    return generate


def measure(systems: dict[str, Generate], lengths: list[int], repeats: int) -> list[dict]:
    rows, random = [], np.random.default_rng(0)
    for length in lengths:
        source = random.integers(FIRST_CONTENT, VOCABULARY, length).tolist()
        taken: dict[str, list[float]] = {name: [] for name in systems}
        rounds: dict[str, int] = {}
        for repeat in range(repeats + 1):
            for name, generate in systems.items():
                start = time.perf_counter()
                rounds[name] = generate(source, length)
                if repeat:  # the first is a warm-up
                    taken[name].append((time.perf_counter() - start) * 1000)
        for name, times in taken.items():
            milliseconds = round(statistics.median(times), 1)
            rows.append({"system": name, "length": length, "milliseconds": milliseconds, "rounds": rounds[name]})
            print(json.dumps(rows[-1]), flush=True)
    return rows


def draw(rows: list[dict], path: Path) -> None:
    import matplotlib.pyplot as plt

    plt.rcParams["svg.hashsalt"] = "kermit"
    figure, axes = plt.subplots(figsize=(6, 3.6))
    for name in dict.fromkeys(row["system"] for row in rows):
        points = [(row["length"], row["milliseconds"]) for row in rows if row["system"] == name]
        axes.plot(*zip(*points, strict=True), marker="o", label=name)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xlabel("tokens generated")
    axes.set_ylabel("milliseconds per text")
    axes.set_xticks(lengths := sorted({row["length"] for row in rows}), [str(length) for length in lengths])
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(path, bbox_inches="tight", metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lengths", type=int, nargs="+", default=[16, 32, 64, 128, 256, 512])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--picture", type=Path)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        engine, size = build_kermit(Path(folder) / "kermit", options.threads)
        translator, peer_size = build_transformer(Path(folder) / "transformer", options.threads)
        print(json.dumps({"kermit_parameters": size, "transformer_parameters": peer_size, "threads": options.threads}))
        systems = {
            "KERMIT, parallel": kermit_generates(engine, Strategy.PARALLEL),
            "KERMIT, left to right": kermit_generates(engine, Strategy.LEFT_TO_RIGHT),
            "CTranslate2, greedy": transformer_generates(translator),
        }
        rows = measure(systems, options.lengths, options.repeats)
    if options.output:
        options.output.write_text(json.dumps(rows, indent=1) + "\n")
    if options.picture:
        draw(rows, options.picture)


if __name__ == "__main__":
    main()
