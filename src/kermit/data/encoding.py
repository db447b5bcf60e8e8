"""Encoded rows on disk: token ids of both sides, written once and then memory-mapped.

A row is `{"x": ids, "y": ids, "source": index}` without special tokens. An unpaired text has an empty other side; its
source determines its factorizations. The cache is keyed by the content of the text, the tokenizer and the limits, so
that a changed file or setting is never mistaken for an old one.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, TypedDict

import datasets
import numpy as np
import numpy.typing as npt
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute  # type: ignore[import-untyped]
from transformers import PreTrainedTokenizerFast

from kermit.data.cache import cache_folder, made_once
from kermit.data.joint_tokenizer import fingerprint
from kermit.data.parallel import Pair, TextSource, read_pairs
from kermit.data.plain import Fault, OnBad, Report
from kermit.errors import DataError
from kermit.text.tokenizer import encode_texts

logger = logging.getLogger(__name__)

_LAYOUT = 1  # increase when the layout of rows changes, to invalidate old caches
_BLOCK = 2000


class Row(TypedDict):
    """One encoded text or pair; `source` is the index of its data source."""

    x: list[int]
    y: list[int]
    source: int


@dataclass(frozen=True)
class EncodedText:
    """Encoded rows of one or more sources; the numbers of tokens of their sides do not include special tokens."""

    rows: datasets.Dataset
    x_lengths: npt.NDArray[np.int64]
    y_lengths: npt.NDArray[np.int64]
    sources: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.rows)

    def epoch(self, number: int) -> EncodedText:
        """Return the rows of an epoch, which are always the same."""
        return self

    def fetch(self, indices: Iterable[int]) -> list[Row]:
        """Return the rows at the indices, in that order."""
        columns: dict[str, Any] = self.rows[[int(index) for index in indices]]
        return [
            Row(x=x, y=y, source=source)
            for x, y, source in zip(columns["x"], columns["y"], columns["source"], strict=True)
        ]


def encode_sources(
    sources: Sequence[TextSource],
    tokenizer: PreTrainedTokenizerFast,
    *,
    max_tokens: int,
    on_bad: OnBad = OnBad.ERROR,
) -> EncodedText:
    """Encode every source, or load it from the cache, and concatenate them; `source` of a row is its index here.

    A side of more than `max_tokens` tokens, without special tokens, is invalid.
    """
    tables = [
        _encode_source(source, index, tokenizer, max_tokens=max_tokens, on_bad=on_bad)
        for index, source in enumerate(sources)
    ]
    rows = datasets.concatenate_datasets(tables)
    return EncodedText(
        rows=rows,
        x_lengths=_lengths(rows, "x"),
        y_lengths=_lengths(rows, "y"),
        sources=np.asarray(rows.data.column("source").to_numpy(), dtype=np.int64),
    )


def _encode_source(
    source: TextSource, index: int, tokenizer: PreTrainedTokenizerFast, *, max_tokens: int, on_bad: OnBad
) -> datasets.Dataset:
    key = repr((_LAYOUT, source.checksum(), fingerprint(tokenizer), max_tokens, str(on_bad), index))
    name = source.hub or ", ".join(str(path) for path in source.paths)

    def write(scratch: Path, report: Report) -> None:
        with pa.ipc.new_stream(str(scratch / "rows.arrow"), _SCHEMA) as writer:
            pairs = read_pairs(source, report)
            while block := list(islice(pairs, _BLOCK)):
                rows = [dict(row) for row in _encode_block(block, index, tokenizer, max_tokens, report)]
                writer.write_batch(pa.RecordBatch.from_pylist(rows, schema=_SCHEMA))

    return arrow_rows(encoded_once(key, name, write, on_bad) / "rows.arrow", name)


def encoded_once(key: str, name: str, write: Callable[[Path, Report], None], on_bad: OnBad) -> Path:
    """Return the cache folder of a source; the first time, `write` fills it, and the report is saved there.

    `key` is everything that determines what is written.
    """

    def make(scratch: Path) -> None:
        report = Report(on_bad)
        write(scratch, report)
        (scratch / "report.json").write_text(json.dumps({"source": name, "summary": report.summary()}))

    folder = made_once(cache_folder() / "encoded" / hashlib.sha256(key.encode()).hexdigest()[:24], make)
    logger.info("%s: %s", name, json.loads((folder / "report.json").read_text())["summary"])
    return folder


def arrow_rows(path: Path, name: str) -> datasets.Dataset:
    """Return the memory-mapped rows of a file; raise if it is empty."""
    rows = datasets.Dataset.from_file(str(path))
    if len(rows) == 0:
        summary = json.loads((path.parent / "report.json").read_text())["summary"]
        raise DataError(f"{name}: no valid text ({summary}); give a file with text")
    return rows


_SCHEMA = pa.schema([("x", pa.list_(pa.int32())), ("y", pa.list_(pa.int32())), ("source", pa.int16())])


def _encode_block(
    pairs: list[Pair], index: int, tokenizer: PreTrainedTokenizerFast, max_tokens: int, report: Report
) -> Iterator[Row]:
    xs = encode_texts(tokenizer, [pair.x for pair in pairs])
    ys = encode_texts(tokenizer, [pair.y for pair in pairs])
    for pair, x, y in zip(pairs, xs, ys, strict=True):
        longest, place = max(zip((len(x), len(y)), pair.places, strict=True), key=lambda side: side[0])
        if longest > max_tokens:
            report.bad(Fault.TOO_LONG, place, f"{longest} tokens, but `data.max_tokens` is {max_tokens}")
            report.read -= 1
            continue
        yield Row(x=x, y=y, source=index)


def _lengths(rows: datasets.Dataset, column: str) -> npt.NDArray[np.int64]:
    return np.asarray(pa.compute.list_value_length(rows.data.column(column)).to_numpy(), dtype=np.int64)
