"""`zonemap`: minimum, maximum, null count, sum and count of units, of a column, of an expression over it,
or of several columns.

Answers every question by its bounds. Costs about 60 bytes a unit for numbers, and twice the bounds' own length for
text (cut at 64 bytes). Unlike Parquet's statistics it counts NaN, says whether a bound is exact, and has sums.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from accel.errors import IndexFormatError, SchemaMismatchError
from accel.indexes.expressions import Expression, apply_expression
from accel.indexes.kind import ChunkValues, IndexKind, Level
from accel.indexes.native import Tag, from_natives, native_values, tag_of
from accel.indexes.question import LeafOp, LeafQuestion
from accel.indexes.wire import BlobReader, BlobWriter
from accel.indexes.zone_prune import prune_zones
from accel.indexes.zone_stats import FILL, ZoneStats, unit_stats
from accel.predicate.evidence import Evidence

__all__ = ["ParsedZonemap", "Zonemap"]

_MAGIC = b"AIZm"
_SUM_BYTES = 16
_MAX_MEMBERS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Zonemap(IndexKind):
    """Bounds, counts and sums of units.

    Parameters
    ----------
    of : str
        The expression: "value", "lower", "year", "month", "day" or "hour".
    columns : tuple of tuple of str
        For a zone map of several columns: their paths, in the order of the fields of the struct array that
        `build` then gets. Empty for one column.
    """

    name: ClassVar[str] = "zonemap"
    version: ClassVar[int] = 1
    levels: ClassVar[frozenset[Level]] = frozenset({Level.FILE, Level.ROW_GROUP, Level.PAGE})
    ops: ClassVar[frozenset[LeafOp]] = frozenset(LeafOp)

    of: str = "value"
    columns: tuple[tuple[str, ...], ...] = ()

    def __post_init__(self) -> None:
        try:
            Expression(self.of)
        except ValueError:
            known = ", ".join(Expression)
            raise ValueError(f"a zone map is of one of {known}, not of {self.of!r}") from None

    def build(self, chunks: Iterable[ChunkValues], *, level: Level) -> bytes:
        gathered: list[list[ZoneStats]] = []
        for chunk in chunks:
            try:
                members = self._members(chunk.array)
                arrays = [apply_expression(Expression(self.of), array) for array in members]
            except UnicodeDecodeError:
                raise SchemaMismatchError(f"{self.of}() of text that is not UTF-8") from None
            gathered.append([unit_stats(array, chunk.starts(level)) for array in arrays])
        if not gathered:
            raise ValueError("a zone map of nothing: pass a chunk without rows for a file without row groups")
        figures = [
            ZoneStats.merged(parts) if level is Level.FILE else parts[0]
            for parts in zip(*gathered, strict=True)
        ]
        out = BlobWriter(_MAGIC)
        out.u32(len(figures[0].rows))
        out.block(self.of.encode())
        out.u32(len(figures))
        for path, stats in zip(self.columns or ((),), figures, strict=True):
            out.u32(len(path))
            for part in path:
                out.block(part.encode())
            _write_stats(out, stats)
        return out.bytes()

    def _members(self, array: pa.Array) -> list[pa.Array]:
        if not self.columns:
            return [array]
        if not pa.types.is_struct(array.type) or array.type.num_fields != len(self.columns):
            raise SchemaMismatchError(f"a zone map of {len(self.columns)} columns cannot be of {array.type}")
        members: list[pa.Array] = array.flatten()
        return members

    def parse(self, data: bytes, *, level: Level, units: int) -> ParsedZonemap:
        blob = BlobReader(data, _MAGIC)
        blob.units(units)
        try:
            of = Expression(bytes(blob.block()).decode())
            count = blob.u32()
            if not 1 <= count <= _MAX_MEMBERS:
                raise IndexFormatError(f"a zone map of {count} columns")
            members: dict[tuple[str, ...], ZoneStats] = {}
            for _ in range(count):
                parts = blob.u32()
                if parts > _MAX_MEMBERS:
                    raise IndexFormatError(f"a zone map has a path of {parts} parts")
                path = tuple(bytes(blob.block()).decode() for _ in range(parts))
                members[path] = _read_stats(blob, units)
        except ValueError as error:
            if isinstance(error, IndexFormatError):
                raise
            raise IndexFormatError(f"a zone map has a text that is none: {error}") from error
        blob.end()
        return ParsedZonemap(of, members, 4 * len(data))

    @property
    def params(self) -> Mapping[str, Any]:
        several = {"columns": [list(path) for path in self.columns]} if self.columns else {}
        return {"of": self.of, **several}


def _write_stats(out: BlobWriter, stats: ZoneStats) -> None:
    out.array(stats.rows, "<i8")
    out.array(stats.nulls, "<i8")
    out.array(stats.nans, "<i8")
    out.flags(stats.exact)
    for bounds in (stats.lower, stats.upper):
        out.flags(np.array([value is not None for value in bounds], bool))
        filled = [FILL[stats.tag] if value is None else value for value in bounds]
        out.values(from_natives(filled, stats.tag))
    sums = stats.sums
    whole = sums is not None and stats.tag is not Tag.FLOAT64
    if sums is None or (whole and any(abs(total) >> 126 for total in sums if isinstance(total, int))):
        out.u32(0)
    elif whole:
        out.u32(1)
        raw = b"".join(int(total).to_bytes(_SUM_BYTES, "little", signed=True) for total in sums)
        out.array(np.frombuffer(raw, np.uint8), "u1")
    else:
        out.u32(2)
        out.array(np.array(sums, np.float64), "<f8")


def _read_stats(blob: BlobReader, units: int) -> ZoneStats:
    rows, nulls, nans = (blob.array(units, "<i8").astype(np.int64) for _ in range(3))
    good = (nulls >= 0) & (nans >= 0) & (nulls <= rows) & (nans <= rows - nulls)
    if not bool(good.all()):
        raise IndexFormatError("a zone map's counts contradict each other")
    exact = blob.flags(units)
    sides: list[tuple[Any, ...]] = []
    tags = set()
    for _ in range(2):
        has = blob.flags(units)
        values = blob.values()
        if len(values) != units:
            raise IndexFormatError("a zone map has bounds of another number of units")
        tags.add(tag_of(values.type))
        natives = native_values(values).tolist()
        sides.append(tuple(v if there else None for v, there in zip(natives, has.tolist(), strict=True)))
    tag = tags.pop()
    if tags or tag is None:
        raise IndexFormatError("a zone map has bounds of two types")
    if tag is Tag.FLOAT64 and any(v is not None and math.isnan(v) for side in sides for v in side):
        raise IndexFormatError("a zone map has NaN for a bound")
    form = blob.u32()
    sums: tuple[int | float, ...] | None = None
    if form == 1:
        raw = bytes(blob.take(units * _SUM_BYTES))
        pieces = (raw[i : i + _SUM_BYTES] for i in range(0, len(raw), _SUM_BYTES))
        sums = tuple(int.from_bytes(piece, "little", signed=True) for piece in pieces)
    elif form == 2:
        sums = tuple(blob.array(units, "<f8").tolist())
    elif form:
        raise IndexFormatError("a zone map has sums of an unknown form")
    return ZoneStats(tag, sides[0], sides[1], exact, rows, nulls, nans, sums)


@dataclass(frozen=True, slots=True, eq=False)
class ParsedZonemap:
    """A zone map read back."""

    of: Expression
    members: Mapping[tuple[str, ...], ZoneStats]
    """The figures by column path; under the empty path where it is of one column."""
    nbytes: int

    def stats(self, path: tuple[str, ...]) -> ZoneStats | None:
        """The figures of a column: what `count`, `min`, `max` and `sum` of whole units can be answered from."""
        return self.members.get(path, self.members.get(()))

    def prune(self, question: LeafQuestion) -> Evidence | None:
        stats = self.stats(question.path)
        return None if stats is None else prune_zones(self.of, stats, question)

    def describe(self) -> Mapping[str, Any]:
        """What `accel inspect` shows."""
        units = {len(stats.rows) for stats in self.members.values()}
        return {"of": str(self.of), "columns": len(self.members), "units": max(units)}
