"""Encoded sentences on disk: one long stream of token ids, with the starts of sentences and articles.

The stream is written once, then memory-mapped and read in slices; only a few numbers per sentence are held in memory.
The cache is keyed by the content of the text, the tokenizer and the limit, as for pairs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import datasets
import numpy as np
import numpy.typing as npt
import pyarrow as pa  # type: ignore[import-untyped]
from tqdm import tqdm
from transformers import PreTrainedTokenizerFast

from kermit.data.articles import ArticleSource, read_paragraphs, split_sentences
from kermit.data.encoding import arrow_rows, encoded_once
from kermit.data.joint_tokenizer import fingerprint
from kermit.data.plain import OnBad, Report
from kermit.text.tokenizer import encode_texts

_LAYOUT = 1  # increase when the layout or sentence splitting changes, to invalidate old caches
_BLOCK = 2000
_TOKENS = pa.schema([("token", pa.int32())])
_SENTENCES = pa.schema([("length", pa.int32()), ("opens", pa.bool_())])


@dataclass(frozen=True)
class EncodedSentences:
    """The sentences of one or more sources, one after the other in a memory-mapped stream of `tokens`.

    `starts`, (sentences + 1,), is where each sentence begins, and the stream's end; `opens` is whether a sentence is
    the first of its article.
    """

    tokens: datasets.Dataset
    starts: npt.NDArray[np.int64]
    opens: npt.NDArray[np.bool_]
    sources: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.opens)

    def slice(self, start: int, length: int) -> list[int]:
        """Return `length` token ids from a place in the stream."""
        ids: list[int] = self.tokens[start : start + length]["token"] if length else []
        return ids


_Piece = tuple[npt.NDArray[np.int32], bool]
"""The ids of a sentence, or of a part of a long one, and whether it opens an article."""


def encode_articles(
    sources: Sequence[ArticleSource],
    tokenizer: PreTrainedTokenizerFast,
    *,
    max_tokens: int,
    on_bad: OnBad = OnBad.ERROR,
) -> EncodedSentences:
    """Encode every source, or load it from the cache.

    A sentence is encoded with a leading space, unless it opens an article; one of more than `max_tokens` tokens is
    split into even pieces.
    """
    streams, lengths, opens, indices = [], [], [], []
    for index, source in enumerate(sources):
        made = _encode_source(source, tokenizer, max_tokens=max_tokens, on_bad=on_bad)
        streams.append(arrow_rows(made / "tokens.arrow", source.title))
        sentences = arrow_rows(made / "sentences.arrow", source.title).data
        lengths.append(sentences.column("length").to_numpy())
        opens.append(sentences.column("opens").to_numpy())
        indices.append(np.full(len(opens[-1]), index))
    return EncodedSentences(
        tokens=datasets.concatenate_datasets(streams),
        starts=np.concatenate([[0], np.cumsum(np.concatenate(lengths), dtype=np.int64)]),
        opens=np.concatenate(opens),
        sources=np.concatenate(indices),
    )


def _encode_source(
    source: ArticleSource, tokenizer: PreTrainedTokenizerFast, *, max_tokens: int, on_bad: OnBad
) -> Path:
    key = repr(("sentences", _LAYOUT, source.checksum(), fingerprint(tokenizer), max_tokens, str(on_bad)))

    def write(scratch: Path, report: Report) -> None:
        with (
            pa.ipc.new_stream(str(scratch / "tokens.arrow"), _TOKENS) as tokens,
            pa.ipc.new_stream(str(scratch / "sentences.arrow"), _SENTENCES) as sentences,
            tqdm(desc=f"encoding {source.title}", unit=" tokens", unit_scale=True, disable=None, leave=False) as bar,
        ):
            for pieces in _pieces(_sentences(source, report), tokenizer, max_tokens):
                stream = np.concatenate([ids for ids, _ in pieces])
                tokens.write_batch(pa.record_batch([pa.array(stream, pa.int32())], schema=_TOKENS))
                columns = [[len(ids) for ids, _ in pieces], [opens for _, opens in pieces]]
                arrays = [pa.array(values, field.type) for values, field in zip(columns, _SENTENCES, strict=True)]
                sentences.write_batch(pa.record_batch(arrays, schema=_SENTENCES))
                bar.update(len(stream))

    return encoded_once(key, source.title, write, on_bad)


def _sentences(source: ArticleSource, report: Report) -> Iterator[tuple[str, bool]]:
    """Yield sentences with the leading space they are encoded with, and whether each opens an article."""
    for paragraph in read_paragraphs(source, report):
        for number, sentence in enumerate(split_sentences(paragraph.text)):
            opens = paragraph.opens and number == 0
            yield sentence if opens else f" {sentence}", opens


def _pieces(
    sentences: Iterator[tuple[str, bool]], tokenizer: PreTrainedTokenizerFast, max_tokens: int
) -> Iterator[list[_Piece]]:
    """Encode sentences block by block and split long ones; if an opening sentence has no token, the next one opens."""
    opening = False
    while block := list(islice(sentences, _BLOCK)):
        pieces = []
        for (_, opens), ids in zip(block, encode_texts(tokenizer, [text for text, _ in block]), strict=True):
            opening |= opens
            if not ids:
                continue
            for part in np.array_split(np.asarray(ids, dtype=np.int32), -(-len(ids) // max_tokens)):
                pieces.append((part, opening))
                opening = False
        if pieces:
            yield pieces
