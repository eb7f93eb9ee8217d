"""`distinct`: the few values of a low-cardinality column, and the units that have each.

It answers every question by testing each value. It stores each value once, and about two bytes for each value
in each unit. Where there are more values than the limit, only null flags are stored.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from accel.arrays import integers
from accel.errors import IndexFormatError
from accel.indexes.kind import ChunkValues, IndexKind, Level, Presence
from accel.indexes.matrix import Matrix, distinct_cells, write_matrix
from accel.indexes.native import code_values, tag_of
from accel.indexes.question import LeafOp, LeafQuestion
from accel.indexes.wire import BlobReader, BlobWriter
from accel.predicate.prune import Evidence

if TYPE_CHECKING:
    from accel.arrays import Int64s

__all__ = ["Distinct", "ParsedDistinct"]


_MAGIC = b"AIDs"
_TOO_MANY = "it lists no values, as there are too many; take bitmap instead"


@dataclass(frozen=True, slots=True, kw_only=True)
class Distinct(IndexKind):
    """The distinct values of a low-cardinality column.

    Parameters
    ----------
    max_values : int
        An index of a file or a row group with more distinct values than this stores none.
    max_bytes : int
        An index whose values take more Arrow bytes than this, plus 16 for each value, stores none.
    """

    name: ClassVar[str] = "distinct"
    version: ClassVar[int] = 1
    levels: ClassVar[frozenset[Level]] = frozenset({Level.FILE, Level.ROW_GROUP, Level.PAGE})
    ops: ClassVar[frozenset[LeafOp]] = frozenset(LeafOp)

    max_values: int = 4096
    max_bytes: int = 1 << 20

    def builder(self, *, level: Level) -> _Builder:
        """Start a new index; see `IndexKind.builder`."""
        return _Builder(self, level)

    def parse(self, data: bytes, *, level: Level, units: int) -> ParsedDistinct:
        """Parse an index; see `IndexKind.parse`."""
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

    def shortcoming(self, data: bytes, *, units: int) -> str | None:
        """Return why an index rules nothing out but nulls, or None; see `IndexKind.shortcoming`."""
        blob = BlobReader(data, _MAGIC)
        blob.units(units)
        some = bool(blob.presence(units).value.any())
        return _TOO_MANY if some and not blob.u32() else None

    @property
    def params(self) -> Mapping[str, Any]:
        """The parameters that the table of contents of a file shows."""
        return {"max_values": self.max_values, "max_bytes": self.max_bytes}


class _Builder:
    def __init__(self, kind: Distinct, level: Level) -> None:
        self.kind = kind
        self.paged = level is Level.PAGE
        self.level = level
        self.values: pa.Array | None = None
        self.presence: list[Presence] = []
        self.units = 0
        self.keys: list[Int64s] = []
        """The positions of the values of the cells that are set."""
        self.places: list[Int64s] = []
        self.overflow = False

    def add(self, chunk: ChunkValues) -> None:
        here = Presence.of(chunk, self.level)
        first, self.units = self.units, self.units + len(here)
        self.presence.append(here)
        if not self.paged and len(self.presence) > 1:
            self.presence = [self.presence[0] | self.presence[1]]
        if self.overflow:
            return
        coded = code_values(chunk.array)
        moved = self._take(coded.values)
        if self.overflow or not self.paged or not len(here):
            return
        codes, units = coded.codes, chunk.units(self.level)
        if bool(here.null.any()):
            valid = codes >= 0
            codes, units = codes[valid], units[valid]
        count = len(coded.values)
        cells = distinct_cells(units, codes, width=max(count, 1), height=len(here))
        unit, code = np.divmod(cells, max(count, 1))
        self.keys.append(moved[code])
        self.places.append(unit + first)

    def _take(self, values: pa.Array) -> Int64s:
        """Add values to the distinct ones; return the position of each among them."""
        before = 0 if self.values is None else len(self.values)
        if not before:
            self.values, moved = values, np.arange(len(values))
        else:
            joined = pa.concat_arrays([self.values, values]).dictionary_encode()
            self.values, moved = joined.dictionary, integers(joined.indices)[before:].astype(np.int64)
        kind = self.kind
        self.overflow = len(self.values) > kind.max_values or self.values.nbytes > kind.max_bytes + 16 * len(
            self.values
        )
        if self.overflow:
            self.values, self.keys, self.places = None, [], []
        return moved

    def finish(self) -> bytes:
        presence = Presence.joined(self.presence)
        if not self.presence and not self.paged:
            presence = Presence(np.zeros(1, bool), np.zeros(1, bool))
        out = BlobWriter(_MAGIC)
        out.u32(len(presence))
        out.presence(presence)
        out.u32(int(self.values is not None))
        if self.values is not None:
            out.values(self.values)
            if self.paged:
                none = [np.zeros(0, np.int64)]
                cells = np.concatenate(self.keys or none) * len(presence) + np.concatenate(
                    self.places or none
                )
                write_matrix(out, np.sort(cells), keys=len(self.values), units=len(presence))
        return out.bytes()


@dataclass(frozen=True, slots=True, eq=False)
class ParsedDistinct:
    """A parsed distinct index."""

    presence: Presence
    values: pa.Array | None
    """The distinct values of all units, uniform; None where there were too many."""
    matrix: Matrix | None
    """The units that have each value; None where one unit has all."""
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
        """Describe the index for `accel inspect`."""
        return {"values": None if self.values is None else len(self.values), "units": len(self.presence)}
