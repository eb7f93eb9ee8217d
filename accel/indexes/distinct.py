"""`distinct`: the values of a column of few, and which units hold which.

Answers every question, by trying it on each value. Costs: the values once, and about two bytes for each
value that a unit holds; nothing but null counts where there are more values than the limit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from accel.errors import IndexFormatError
from accel.indexes.kind import ChunkValues, IndexKind, Level, Presence
from accel.indexes.matrix import Matrix, sort_distinct, write_matrix
from accel.indexes.native import code_values, tag_of
from accel.indexes.question import LeafOp, LeafQuestion
from accel.indexes.wire import BlobReader, BlobWriter
from accel.predicate.evidence import Evidence
from accel.records import dataclass

__all__ = ["Distinct", "ParsedDistinct"]

_MAGIC = b"AIDs"


@dataclass(frozen=True, slots=True, kw_only=True)
class Distinct(IndexKind):
    """The distinct values of a low-cardinality column.

    Parameters
    ----------
    max_values : int
        A unit run (a file, or a row group) with more values than this gets no value list.
    max_bytes : int
        The same for their bytes.
    """

    name: ClassVar[str] = "distinct"
    version: ClassVar[int] = 1
    levels: ClassVar[frozenset[Level]] = frozenset({Level.FILE, Level.ROW_GROUP, Level.PAGE})
    ops: ClassVar[frozenset[LeafOp]] = frozenset(LeafOp)

    max_values: int = 4096
    max_bytes: int = 1 << 20

    def build(self, chunks: Iterable[ChunkValues], *, level: Level) -> bytes:
        values: pa.Array | None = None
        presence: Presence | None = None
        cells = np.zeros(0, np.int64)
        overflow = False
        for chunk in chunks:
            here = Presence.of(chunk, level)
            presence = here if presence is None or level is Level.PAGE else presence | here
            if overflow:
                continue
            coded = code_values(chunk.array)
            values = coded.values if values is None else _union(values, coded.values)
            overflow = len(values) > self.max_values or values.nbytes > self.max_bytes + 16 * len(values)
            if level is Level.PAGE and not overflow:
                valid = coded.codes >= 0
                cells = sort_distinct(coded.codes[valid] * len(here) + chunk.units(level)[valid])
        if presence is None:
            presence = Presence(np.zeros(1, bool), np.zeros(1, bool))
        out = BlobWriter(_MAGIC)
        out.u32(len(presence))
        out.presence(presence)
        if overflow:
            values = None
        out.u32(int(values is not None))
        if values is not None:
            out.values(values)
            if level is Level.PAGE:
                write_matrix(out, cells, keys=len(values), units=len(presence))
        return out.bytes()

    def parse(self, data: bytes, *, level: Level, units: int) -> ParsedDistinct:
        blob = BlobReader(data, _MAGIC)
        blob.units(units)
        presence = blob.presence(units)
        listed = blob.u32()
        if listed > 1:
            raise IndexFormatError("a distinct index is neither with values nor without")
        values = blob.values() if listed else None
        matrix = None
        if values is not None and level is Level.PAGE:
            matrix = Matrix.read(blob, keys=len(values), units=units)
        blob.end()
        return ParsedDistinct(presence, values, matrix, len(data))

    @property
    def params(self) -> Mapping[str, Any]:
        return {"max_values": self.max_values, "max_bytes": self.max_bytes}


def _union(a: pa.Array, b: pa.Array) -> pa.Array:
    return pa.concat_arrays([a, b]).unique()


@dataclass(frozen=True, slots=True, eq=False)
class ParsedDistinct:
    """A distinct index read back."""

    presence: Presence
    values: pa.Array | None
    """All values of all units, uniform; None where there were too many."""
    matrix: Matrix | None
    """Which unit holds which; None where there is one unit, that holds all."""
    size: int

    @property
    def nbytes(self) -> int:
        return 2 * self.size + 256

    def prune(self, question: LeafQuestion) -> Evidence | None:
        if question.op is LeafOp.IS_NULL:
            return self.presence.nulls()
        if self.values is None or question.tag is not tag_of(self.values.type):
            return None
        passing = question.test(self.values)
        return self.presence.evidence(self._units(passing), self._units(~passing))

    def _units(self, keys: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
        if self.matrix is None:
            return np.full(len(self.presence), bool(keys.any()))
        return self.matrix.any(keys)

    def describe(self) -> Mapping[str, Any]:
        """What `accel inspect` shows."""
        return {"values": None if self.values is None else len(self.values), "units": len(self.presence)}
