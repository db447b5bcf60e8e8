"""`OnnxEngine`: an exported model run by ONNX Runtime. No torch, no transformers.

The file holds the whole network, from token ids to log-probabilities and the best tokens (`kermit.engines.exporting`
writes it). A model with `given_layers` has a second file, which reads the given tokens. The cache is NumPy arrays.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import onnxruntime

from kermit.canvas.arrays import Floats, Integers
from kermit.engines.engine import Answer, Asked, ModelInfo, Rows
from kermit.engines.exported_files import FilePrecision, StaleFileError, context_file, find_file
from kermit.engines.given_rows import after_given, given_rows
from kermit.engines.model_info import info_from_config
from kermit.errors import ModelError, in_a_line
from kermit.loading import read_config, weight_files
from kermit.provenance import model_checksum

GRAPH_VERSION = "2"
"""The version of a file's inputs and outputs; a file of another version must be exported again."""

_PAST = "past_"
"""The prefix of inputs that take an output of an earlier call, which has the same name without it."""

_ANSWERS = ("tokens", "log_probs", "end", "location")
_OPTIONAL_ANSWERS = ("stop", "completion")

_NO_SLOTS: Integers = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True)
class OnnxCache:
    """Tokens already read: `past_keys_N`, `past_values_N` (batch, heads, length, width) and `past_states`."""

    arrays: Mapping[str, Floats]

    @property
    def length(self) -> int:
        """Number of places per row, padding included."""
        return int(self.arrays["past_states"].shape[1])

    def select(self, rows: Integers) -> OnnxCache:
        """Return the cache of some rows, in that order; a row may be repeated."""
        return OnnxCache({name: array[rows] for name, array in self.arrays.items()})

    def first(self, length: int) -> OnnxCache:
        """Return the cache of the first `length` places of every row."""
        return OnnxCache({name: np.ascontiguousarray(array[..., :length, :]) for name, array in self.arrays.items()})


class OnnxEngine:
    """An engine that runs an exported model; create it with `load`.

    `table_size` is the number of positions in the model's position table, if it has one; `context` is the loaded file
    that reads given tokens, if `session` does not read all tokens.
    """

    def __init__(
        self,
        session: onnxruntime.InferenceSession,
        info: ModelInfo,
        table_size: int | None = None,
        context: onnxruntime.InferenceSession | None = None,
    ) -> None:
        self.session, self.info, self._table_size, self.context = session, info, table_size, context
        self._inputs: dict[str, list[Any]] = {value.name: value.shape for value in session.get_inputs()}
        self._past = [name for name in self._inputs if name.startswith(_PAST)]
        self.caches: bool = bool(self._past)
        self._kept = [name.removeprefix(_PAST) for name in self._past]
        outputs = {value.name for value in session.get_outputs()}
        self._answers = [*_ANSWERS, *(name for name in _OPTIONAL_ANSWERS if name in outputs)]

    @classmethod
    def load(cls, folder: str | Path, *, precision: FilePrecision | str = "auto", threads: int = 1) -> OnnxEngine:
        """Load the exported file of a model.

        Args:
            precision: `float32`, `int8`, or `auto`: int8 if that file exists, otherwise float32.

        Raises:
            ModelError: the file is missing or cannot be used.
            StaleFileError: the weights have changed since it was exported.
        """
        folder = Path(folder)
        config = read_config(folder)
        file = find_file(folder, precision)
        context = context_file(file) if config.get("trunk_config", {}).get("given_layers") else None
        try:
            engine = cls.of(file, config, context=context, threads=threads)
        except ModelError as error:
            raise ModelError(f"{file}: {error}") from error
        _check_current(file, folder, engine.session.get_modelmeta().custom_metadata_map["weights"])
        return engine

    @classmethod
    def of(
        cls, file: Path | bytes, config: Mapping[str, Any], *, context: Path | bytes | None = None, threads: int = 1
    ) -> OnnxEngine:
        """Load an exported file, and the one that reads given tokens if there is one, from paths or contents."""
        if threads < 1:
            raise ModelError(f"threads must be 1 or more, not {threads}")
        session = _session(file, threads)
        about = session.get_modelmeta().custom_metadata_map
        reader = None if context is None else _session(context, threads)
        if reader is not None and reader.get_modelmeta().custom_metadata_map != about:
            raise ModelError("the graph for given tokens comes from another export; run `kermit export` again")
        return cls(session, _info(session, about, config), _number(about["table_size"]), reader)

    def ask(self, rows: Rows, asked: Asked) -> Answer:
        """Read rows and answer for slots."""
        length = rows.token_ids.shape[1]
        if apart := self.context is not None and rows.past is None:
            rows, asked = self._after_context(rows, asked)
        names = self._answers
        if asked.full:
            names = [*names, "content"]
        if asked.wanted is not None:
            names = [*names, "wanted_log_probs"]
        if asked.keep:
            names = [*names, *self._kept]
        found = dict(zip(names, self.session.run(names, self.feeds(rows, asked)), strict=True))
        cache = None
        if asked.keep and self.caches:
            cache = OnnxCache({past: found[name] for past, name in zip(self._past, self._kept, strict=True)})
            cache = cache.first(length) if apart and cache.length > length else cache
        return Answer(
            found["tokens"],
            found["log_probs"],
            found["end"],
            found["location"],
            found.get("stop"),
            found.get("completion"),
            found.get("content"),
            found.get("wanted_log_probs"),
            cache,
        )

    def hidden(self, rows: Rows) -> Floats:
        """Return the final states of rows, (batch, length, hidden)."""
        if self.context is not None and rows.past is None:
            real = (rows.token_ids != self.info.specials.pad_id).ravel().nonzero()[0]
            after, moved = self._after_context(rows, Asked(real, real))
            found = self.session.run(["states"], self.feeds(after, Asked(_NO_SLOTS, _NO_SLOTS)))[0]
            flat = np.zeros((rows.token_ids.size, found.shape[2]), dtype=np.float32)
            flat[real] = found.reshape(-1, found.shape[2])[moved.right]
            return flat.reshape(*rows.token_ids.shape, -1)
        states: Floats = self.session.run(["states"], self.feeds(rows, Asked(_NO_SLOTS, _NO_SLOTS)))[0]
        return states if rows.past is None else states[:, rows.past.length :]

    def values(self, rows: Rows, asked: Asked, names: Sequence[Sequence[str]]) -> list[dict[str, Any]]:
        """Return values inside the graph, and inside the one for given tokens, by their names; for calibration."""
        found = []
        if self.context is not None:
            given = self.row_feeds(given_rows(rows, self.info.specials.pad_id))
            found.append(self.context.run(names[1], given))
            rows, asked = self._after_context(rows, asked)
        found.insert(0, self.session.run(names[0], self.feeds(rows, asked)))
        return [dict(zip(*pair, strict=True)) for pair in zip(names, found, strict=True)]

    def row_feeds(self, rows: Rows) -> dict[str, Any]:
        """Return the inputs that every graph takes, by name."""
        real, places = self._real(rows.token_ids)
        return {
            "token_ids": rows.token_ids,
            "segment_ids": rows.segment_ids,
            "positions": rows.positions,
            "orders": rows.orders,
            "mask": rows.mask,
            "real": real,
            "places": places,
        }

    def _after_context(self, rows: Rows, asked: Asked) -> tuple[Rows, Asked]:
        """Read the given tokens of rows, and return what is left to read and to ask."""
        assert self.context is not None
        pad_id = self.info.specials.pad_id
        given = given_rows(rows, pad_id)
        if not given.token_ids.size:
            return rows, asked
        found = self.context.run(self._kept, self.row_feeds(given))
        cache = OnnxCache(dict(zip(self._past, found, strict=True)))
        return after_given(rows, cache, given.token_ids != pad_id, asked, pad_id)

    def feeds(self, rows: Rows, asked: Asked) -> dict[str, Any]:
        """Return the inputs of the graph, by name."""
        self._check_positions(rows.positions)
        feeds = self.row_feeds(rows) | {
            "left": asked.left,
            "right": asked.right,
            "wanted": np.zeros(len(asked.right), dtype=np.int64) if asked.wanted is None else asked.wanted,
            "top": np.array([asked.top]),
        }
        read: dict[str, Any] = {name: value for name, value in feeds.items() if name in self._inputs}
        if self.caches:
            read |= self._nothing(len(rows.token_ids)) if rows.past is None else cast("OnnxCache", rows.past).arrays
        return read

    def _real(self, token_ids: Integers) -> tuple[Integers, Integers]:
        """Return (tokens,) the places of the real tokens, and (batch, length) the index of the one at each place."""
        valid = token_ids != self.info.specials.pad_id
        real = valid.ravel().nonzero()[0]
        if not len(real):  # a graph needs at least one token
            return np.zeros(1, dtype=np.int64), np.zeros_like(token_ids)
        if len(real) == token_ids.size:
            return real, real.reshape(token_ids.shape)
        return real, (valid.ravel().cumsum().reshape(token_ids.shape) - 1) * valid

    def _nothing(self, batch: int) -> dict[str, Floats]:
        """Return an empty cache."""
        sizes = {"batch": batch, "past": 0}
        shapes = {name: [sizes.get(size, size) for size in self._inputs[name]] for name in self._past}
        return {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}

    def _check_positions(self, positions: Floats) -> None:
        """Raise if a position is beyond the model's position table."""
        if self._table_size is not None and (highest := float(positions.max())) > self._table_size - 1:
            raise ModelError(
                f"a canvas needs {math.ceil(highest) + 1} positions, but the trunk has {self._table_size};"
                " shorten the text, or use fewer blanks"
            )


def _session(file: Path | bytes, threads: int) -> onnxruntime.InferenceSession:
    """Load a graph of this version."""
    try:
        session = onnxruntime.InferenceSession(file, _options(threads), providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime does not export its exception types
        raise ModelError(f"the graph cannot be loaded: {in_a_line(error)}; run `kermit export` again") from error
    if session.get_modelmeta().custom_metadata_map.get("graph_version") != GRAPH_VERSION:
        raise ModelError("the graph was exported by another version of kermit; run `kermit export` again")
    return session


def _options(threads: int) -> onnxruntime.SessionOptions:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    # constant folding only: more fusion makes these graphs slower
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.enable_mem_pattern = False  # shapes differ between calls
    options.log_severity_level = 3
    return options


def _info(session: onnxruntime.InferenceSession, about: Mapping[str, str], config: Mapping[str, Any]) -> ModelInfo:
    widths = {value.name: value.shape[-1] for value in session.get_outputs()}
    info = info_from_config(
        config,
        vocab_size=widths["content"],
        hidden_size=widths["states"],
        max_positions=_number(about["max_positions"]),
        parameters=_number(about["parameters"]),
    )
    return replace(info, precision=about["precision"])


def _number(text: str) -> int | None:
    return int(text) if text else None


def weights_checksum(folder: Path) -> str:
    """Return a checksum of the weights of a model; empty if its folder holds only exported files."""
    return "-".join(model_checksum(file) for file in weight_files(folder))


def _check_current(file: Path, folder: Path, exported: str) -> None:
    """Raise a StaleFileError if the weights in the folder are not those with the checksum `exported`."""
    if (now := weights_checksum(folder)) and now != exported:
        raise StaleFileError(
            f"{file}: the weights in {folder} have changed since it was exported; run `kermit export {folder}` again"
        )
