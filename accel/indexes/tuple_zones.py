"""Bounds of tuples of columns in units of rows, and their bytes: for files sorted by several columns.

In a file sorted by (a, b), the bounds of `b` of a unit with two values of `a` prune little, but its bounds as
tuples decide `a = 5 AND b > 7`. In tuples NULL comes first and NaN last.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from accel import kernels
from accel.arrays import from_numpy, mask, validity
from accel.errors import IndexFormatError
from accel.indexes.bound_bytes import LONGEST
from accel.indexes.expressions import numbers_of
from accel.indexes.native import FILL, Tag, from_natives, native_values, tag_of
from accel.indexes.question import LeafOp, LeafQuestion
from accel.indexes.wire import BlobReader, BlobWriter
from accel.predicate.atoms import successor

if TYPE_CHECKING:
    from accel.arrays import Bools, Int64s

__all__ = ["TupleZones", "read_tuples", "tuple_zones", "write_tuples"]

Values = tuple[Any, ...]
"""Native values, None for NULL. With fewer values than columns it is a prefix, which bounds any
continuation."""


@dataclass(frozen=True, slots=True)
class TupleZones:
    """Bounds of n units."""

    tags: tuple[Tag, ...]
    lower: tuple[Values, ...]
    upper: tuple[Values, ...]

    @classmethod
    def joined(cls, parts: Sequence[TupleZones]) -> TupleZones:
        """Concatenate the units of all parts."""
        return cls(
            parts[0].tags,
            tuple(each for part in parts for each in part.lower),
            tuple(each for part in parts for each in part.upper),
        )

    @classmethod
    def merged(cls, parts: Sequence[TupleZones]) -> TupleZones:
        """Merge the units of all parts into one; units without rows are ignored."""
        full = [part for part in parts if part.lower[0]]
        if not full:
            return parts[0]
        lower = min((part.lower[0] for part in full), key=_key)
        # Where one bound is a prefix of the other, the prefix is the wider bound.
        upper = max((part.upper[0] for part in full), key=lambda values: (*_key(values), (3,)))
        return cls(parts[0].tags, (lower,), (upper,))

    def hit(
        self, paths: Sequence[tuple[str, ...]], questions: Sequence[tuple[LeafQuestion, bool]]
    ) -> Bools | None:
        """Return the units that may have a row with these answers, each true or false.

        Return None where no question is about the first column.
        """
        low, high = _restrict(paths, self.tags, questions)
        if not low and not high:
            return None
        return np.array(
            [
                _key(upper)[: len(low)] >= _key(low)[: len(upper)]
                and _key(lower)[: len(high)] <= _key(high)[: len(lower)]
                for lower, upper in zip(self.lower, self.upper, strict=True)
            ],
            bool,
        )


def _key(values: Values) -> tuple[tuple[Any, ...], ...]:
    return tuple(
        (0,) if v is None else (2,) if isinstance(v, float) and math.isnan(v) else (1, v) for v in values
    )


def _restrict(
    paths: Sequence[tuple[str, ...]], tags: Sequence[Tag], questions: Sequence[tuple[LeafQuestion, bool]]
) -> tuple[Values, Values]:
    """Return the lower and the upper bound of the tuples of matching rows."""
    ends: list[dict[tuple[str, ...], Any]] = [{}, {}]
    for path, tag in zip(paths, tags, strict=True):
        for question, truth in questions:
            if question.path == path and (question.op is LeafOp.IS_NULL or question.tag is tag):
                for end, values in zip(ends, _ends(question, truth), strict=True):
                    if values:
                        end.setdefault(path, values[0])
    found = []
    for end in ends:
        leading = itertools.takewhile(end.__contains__, paths)
        found.append(tuple(end[path] for path in leading))
    return found[0], found[1]


def _ends(question: LeafQuestion, truth: bool) -> tuple[Values, Values]:
    """Return the lower and the upper bound of a matching value; empty where there is none."""
    match question.op, truth:
        case LeafOp.IS_NULL, True:
            return (None,), (None,)
        case ((LeafOp.EQ | LeafOp.IN), True) if question.values:
            ordered = sorted(question.values, key=lambda value: _key((value,)))
            return (ordered[0],), (ordered[-1],)
        case ((LeafOp.LE | LeafOp.LT), True):
            return (), (question.value,)
        case ((LeafOp.LE | LeafOp.LT), False):
            return (question.value,), ()
    return (), ()


def tuple_zones(columns: Sequence[pa.Array], starts: Int64s) -> TupleZones:
    """Return the bounds of runs of rows, of uniform arrays of one length."""
    tags = tuple(tag for column in columns if (tag := tag_of(column.type)) is not None)
    rows = len(columns[0])
    keys = [_Ordered(column) for column in columns]
    lower: list[Values] = []
    upper: list[Values] = []
    # A row group without rows has no pages.
    stops = [*starts[1:].tolist(), rows] if len(starts) else []
    for start, stop in zip(starts.tolist(), stops, strict=True):
        lower.append(_extreme(keys, start, stop, greatest=False))
        upper.append(_extreme(keys, start, stop, greatest=True))
    return TupleZones(tags, tuple(lower), tuple(upper))


class _Ordered:
    """A column, prepared to find its least and greatest value among some rows."""

    def __init__(self, column: pa.Array) -> None:
        self.column = column
        self.valid = validity(column)
        self.numbers = numbers_of(column)

    def extreme(self, rows: Int64s, *, greatest: bool) -> tuple[Any, Int64s]:
        """Return the least or greatest value, and the rows that have it."""
        valid = self.valid[rows]
        if not bool(valid.all()) and (not greatest or not bool(valid.any())):
            return None, rows[~valid]
        rows = rows[valid]
        if self.numbers is None:
            return self._text(rows, greatest=greatest)
        here = self.numbers[rows]
        if here.dtype.kind == "f":
            nan = np.isnan(here)
            if bool(nan.any()):
                if greatest or bool(nan.all()):
                    return math.nan, rows[nan]
                rows, here = rows[~nan], here[~nan]
        value = here.max() if greatest else here.min()
        same = here == value
        return (value.item() if hasattr(value, "item") else value), rows[same]

    def _text(self, rows: Int64s, *, greatest: bool) -> tuple[bytes, Int64s]:
        first, last = int(rows[0]), int(rows[-1])
        here = (
            self.column.slice(first, len(rows))
            if last - first + 1 == len(rows)
            else self.column.take(from_numpy(rows))
        )
        value = kernels.min_max(here)["max" if greatest else "min"]
        return value.as_py(), rows[mask(kernels.equal(here, value))]


def _extreme(columns: Sequence[_Ordered], start: int, stop: int, *, greatest: bool) -> Values:
    rows = np.arange(start, stop, dtype=np.int64)
    found: list[Any] = []
    for column in columns:
        if not len(rows):
            break
        value, rows = column.extreme(rows, greatest=greatest)
        if isinstance(value, bytes) and len(value) > LONGEST:
            cut = successor(value[:LONGEST]) if greatest else value[:LONGEST]
            return tuple(found) if cut is None else (*found, cut)
        found.append(value)
    return tuple(found)


def write_tuples(out: BlobWriter, zones: TupleZones) -> None:
    """Write lower, then upper bounds: for each column the units that have it, where it is NULL, and
    values."""
    for side in (zones.lower, zones.upper):
        for place, tag in enumerate(zones.tags):
            here = [values[place] if len(values) > place else None for values in side]
            out.flags(np.array([len(values) > place for values in side], bool))
            out.flags(np.array([value is None for value in here], bool))
            out.values(from_natives([FILL[tag] if value is None else value for value in here], tag))


def read_tuples(blob: BlobReader, columns: int, *, units: int) -> TupleZones:
    """Read what `write_tuples` wrote; raises IndexFormatError for bytes that contradict each other."""
    sides: list[tuple[Values, ...]] = []
    tags: list[Tag] = []
    for side in range(2):
        found: list[list[Any]] = [[] for _ in range(units)]
        for place in range(columns):
            present, null = blob.flags(units).tolist(), blob.flags(units).tolist()
            stored = blob.values()
            tag = tag_of(stored.type)
            if len(stored) != units or tag is None or (side and tags[place] is not tag):
                raise IndexFormatError("a zone map has tuples of another number of units, or of two types")
            if not side:
                tags.append(tag)
            rows = zip(found, present, null, native_values(stored).tolist(), strict=True)
            for values, has, none, value in rows:
                if has and len(values) != place:
                    raise IndexFormatError("a zone map has a tuple with a gap")
                if has:
                    values.append(None if none else value)
        sides.append(tuple(map(tuple, found)))
    return TupleZones(tuple(tags), sides[0], sides[1])
