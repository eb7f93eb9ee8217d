"""The content of zone maps: bounds, counts and sums of units of rows, bounds of tuples, and their bytes.

Tuple bounds serve files that are sorted by several columns. In a file sorted by (a, b), the bounds of `b` of a unit
with two values of `a` prune little, but its bounds as tuples decide `a = 5 AND b > 7`. In tuples NULL comes first and
NaN last.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from accel import kernels
from accel.arrays import from_numpy, integers, mask, validity
from accel.errors import IndexFormatError
from accel.format.domain import Bounds, Domain
from accel.indexes.expressions import is_settled, numbers_of
from accel.indexes.native import NUMPY, Tag, code_values, from_natives, native_values, tag_of
from accel.indexes.question import LeafOp, LeafQuestion
from accel.indexes.wire import BlobReader, BlobWriter
from accel.predicate.atoms import successor

if TYPE_CHECKING:
    from accel.arrays import Bools, Int64s

__all__ = [
    "FILL",
    "MAX_PARTS",
    "TupleZones",
    "ZoneStats",
    "folded_stats",
    "read_path",
    "read_stats",
    "read_text",
    "read_tuples",
    "tuple_zones",
    "unit_stats",
    "write_path",
    "write_stats",
    "write_tuples",
]

_LONG = 64
"""Bounds of more bytes are cut."""


@dataclass(frozen=True, slots=True, eq=False)
class ZoneStats:
    """Bounds, counts and sums of n units; every array has an entry for each."""

    tag: Tag
    lower: tuple[Any, ...]
    """Native values; None where there is no bound. NaN is never one."""
    upper: tuple[Any, ...]
    exact: Bools
    """Whether the bounds are the minimum and the maximum of the values that are not NaN."""
    rows: Int64s
    nulls: Int64s
    nans: Int64s
    sums: tuple[int | float, ...] | None
    """Sums of the values that are not null, decimals unscaled; None for types that have no sum."""

    @property
    def counts(self) -> Int64s:
        """Values that are not null."""
        return self.rows - self.nulls

    @property
    def unbounded(self) -> bool:
        """Whether some units have values other than NaN, and none of those units has a bound."""
        filled = np.flatnonzero(self.counts > self.nans).tolist()
        return bool(filled) and all(self.lower[at] is None and self.upper[at] is None for at in filled)

    def bounds(self) -> Bounds:
        """Return the bounds in the form of Parquet's statistics."""
        has_lower = np.array([value is not None for value in self.lower], bool)
        has_upper = np.array([value is not None for value in self.upper], bool)
        return Bounds(
            domain=_DOMAINS[self.tag],
            lower=_column(self.lower, self.tag),
            upper=_column(self.upper, self.tag),
            has_lower=has_lower,
            has_upper=has_upper,
            num_values=self.rows,
            null_count=self.nulls,
            nan_count=self.nans,
        )

    @classmethod
    def joined(cls, parts: Sequence[ZoneStats]) -> ZoneStats:
        """Concatenate the units of all parts, which are of one type."""
        if len(parts) == 1:
            return parts[0]
        sums = [part.sums for part in parts]
        return cls(
            tag=parts[0].tag,
            lower=tuple(value for part in parts for value in part.lower),
            upper=tuple(value for part in parts for value in part.upper),
            exact=np.concatenate([part.exact for part in parts]),
            rows=np.concatenate([part.rows for part in parts]),
            nulls=np.concatenate([part.nulls for part in parts]),
            nans=np.concatenate([part.nans for part in parts]),
            sums=None
            if None in sums
            else tuple(total for each in sums if each is not None for total in each),
        )

    @classmethod
    def merged(cls, parts: Sequence[ZoneStats]) -> ZoneStats:
        """Merge parts of one type, each of one unit, into one unit."""
        tag = parts[0].tag
        full = [part for part in parts if int(part.counts[0] - part.nans[0])]
        lows = [part.lower[0] for part in full]
        highs = [part.upper[0] for part in full]
        sums = [part.sums[0] for part in parts if part.sums is not None]
        total = _sum_floats(sums) if tag is Tag.FLOAT64 and _finite(sums) else sum(sums)
        return cls(
            tag=tag,
            lower=(None if None in lows or not lows else min(lows),),
            upper=(None if None in highs or not highs else max(highs),),
            exact=np.array([all(bool(part.exact[0]) for part in full)]),
            rows=_total(part.rows for part in parts),
            nulls=_total(part.nulls for part in parts),
            nans=_total(part.nans for part in parts),
            sums=(total,) if len(sums) == len(parts) else None,
        )


_DOMAINS = {
    Tag.INT64: Domain.INTEGER,
    Tag.UINT64: Domain.INTEGER,
    Tag.INT128: Domain.INTEGER,
    Tag.INT256: Domain.INTEGER,
    Tag.FLOAT64: Domain.FLOAT,
    Tag.BYTES: Domain.BYTES,
    Tag.BOOLEAN: Domain.BOOLEAN,
}


def _finite(values: Sequence[int | float]) -> bool:
    return all(math.isfinite(value) for value in values)


def _sum_floats(values: Sequence[int | float]) -> float:
    """Return the sum of finite numbers; infinity, which no caller uses, where an intermediate sum overflows."""
    try:
        return math.fsum(values)
    except OverflowError:
        return math.inf


def _total(arrays: Any) -> Int64s:
    total: Int64s = np.sum(np.stack(list(arrays)), axis=0, dtype=np.int64)
    return total


def _column(values: tuple[Any, ...], tag: Tag) -> npt.NDArray[Any]:
    filled = [FILL[tag] if value is None else value for value in values]
    if tag is Tag.BOOLEAN:
        return np.array(filled, bool)
    if tag in NUMPY:
        return np.array(filled, NUMPY[tag]).astype(NUMPY[tag][1:])
    out = np.empty(len(filled), object)
    out[:] = filled
    return out


FILL: dict[Tag, Any] = {
    Tag.INT64: 0,
    Tag.UINT64: 0,
    Tag.INT128: 0,
    Tag.INT256: 0,
    Tag.FLOAT64: 0.0,
    Tag.BYTES: b"",
    Tag.BOOLEAN: False,
}
"""The value that is stored where there is no bound."""


def unit_stats(values: pa.Array, starts: Int64s) -> ZoneStats:
    """Return the statistics of runs of rows of a uniform array; every run has rows, or the one run has none."""
    tag = tag_of(values.type)
    if tag is None:
        raise TypeError(f"{values.type} is no stored type")
    units = len(starts)
    rows = np.diff(np.append(starts, len(values))).astype(np.int64) if units else starts
    if not len(values):
        nothing = (None,) * units
        zero = np.zeros(units, np.int64)
        empty = None if tag in (Tag.BYTES, Tag.BOOLEAN) else (0,) * units
        return ZoneStats(tag, nothing, nothing, np.ones(units, bool), rows, zero, zero, empty)
    valid = validity(values)
    nulls = rows - np.add.reduceat(valid.astype(np.int64), starts)
    nans, plain = np.zeros(units, np.int64), valid
    numbers = numbers_of(values)
    if tag is Tag.FLOAT64 and numbers is not None:
        nan = np.isnan(numbers) & valid
        nans, plain = np.add.reduceat(nan.astype(np.int64), starts), valid & ~nan
    some = np.logical_or.reduceat(plain, starts)
    if numbers is None or numbers.dtype == object:
        low, high = _least_and_most(values, starts)
    else:
        low, high = _extremes(numbers, plain, starts)
    lower = tuple(value if has else None for value, has in zip(low, some.tolist(), strict=True))
    upper = tuple(value if has else None for value, has in zip(high, some.tolist(), strict=True))
    exact = np.ones(units, bool)
    if tag is Tag.BYTES:
        exact = np.array(
            [max(len(a or b""), len(b or b"")) <= _LONG for a, b in zip(lower, upper, strict=True)]
        )
        lower = tuple(None if value is None else value[:_LONG] for value in lower)
        upper = tuple(_cut_upper(value) for value in upper)
    sums = None if numbers is None or tag is Tag.BOOLEAN else _sums(numbers, valid, starts)
    return ZoneStats(tag, lower, upper, exact, rows, nulls, nans, sums)


def folded_stats(values: pa.Array, starts: Int64s) -> ZoneStats:
    """Return the `unit_stats` of folded text; units with text that is not settled have no bounds."""
    stats = unit_stats(values, starts)
    bounds = [*starts.tolist(), len(values)]
    settled = [_is_settled(values.slice(start, end - start)) for start, end in pairwise(bounds)]
    if all(settled):
        return stats
    return dataclasses.replace(
        stats,
        lower=tuple(bound if has else None for bound, has in zip(stats.lower, settled, strict=True)),
        upper=tuple(bound if has else None for bound, has in zip(stats.upper, settled, strict=True)),
        exact=stats.exact & np.array(settled, bool),
    )


def _is_settled(values: pa.Array) -> bool:
    _, offsets, data = values.buffers()
    if data is None or not len(values):
        return True
    wide = pa.types.is_large_binary(values.type)
    bounds = np.frombuffer(offsets, np.int64 if wide else np.int32)
    return is_settled(bytes(data[bounds[values.offset] : bounds[values.offset + len(values)]]))


def _cut_upper(value: bytes | None) -> bytes | None:
    return value if value is None or len(value) <= _LONG else successor(value[:_LONG])


def _extremes(numbers: npt.NDArray[Any], plain: Bools, starts: Int64s) -> tuple[list[Any], list[Any]]:
    least: float
    most: float
    if numbers.dtype == bool:
        least, most = False, True
    elif numbers.dtype.kind == "f":
        least, most = -math.inf, math.inf
    else:
        least, most = np.iinfo(numbers.dtype).min, np.iinfo(numbers.dtype).max
    low = np.minimum.reduceat(np.where(plain, numbers, numbers.dtype.type(most)), starts)
    high = np.maximum.reduceat(np.where(plain, numbers, numbers.dtype.type(least)), starts)
    return low.tolist(), high.tolist()


def _least_and_most(values: pa.Array, starts: Int64s) -> tuple[list[Any], list[Any]]:
    """Return the least and greatest values of types that numpy does not order."""
    if tag_of(values.type) is not Tag.BYTES:
        return _ranked(values, starts)
    ends = np.append(starts[1:], len(values))
    ranges = zip(starts.tolist(), (ends - starts).tolist(), strict=True)
    found = [kernels.min_max(values.slice(start, rows)) for start, rows in ranges]
    return [each["min"].as_py() for each in found], [each["max"].as_py() for each in found]


def _ranked(values: pa.Array, starts: Int64s) -> tuple[list[Any], list[Any]]:
    """Return the least and greatest wide decimals, by the ranks of the values."""
    coded = code_values(values)
    natives = integers(coded.values).tolist()
    order = sorted(range(len(natives)), key=natives.__getitem__)
    rank = np.empty(len(order) + 1, np.int64)
    rank[order] = np.arange(len(order))
    valid = coded.codes >= 0
    ranks = rank[coded.codes]
    low = np.minimum.reduceat(np.where(valid, ranks, len(order)), starts)
    high = np.maximum.reduceat(np.where(valid, ranks, -1), starts)
    ordered = [natives[i] for i in order] + [None]
    return [ordered[i] for i in low.tolist()], [ordered[i] for i in high.tolist()]


def _sums(numbers: npt.NDArray[Any], valid: Bools, starts: Int64s) -> tuple[int | float, ...]:
    if numbers.dtype.kind == "f":
        with np.errstate(invalid="ignore", over="ignore"):
            floats: list[float] = np.add.reduceat(np.where(valid, numbers, 0.0), starts).tolist()
        return tuple(floats)
    present = np.where(valid, numbers, 0)
    if present.dtype == object:
        return tuple(int(total) for total in np.add.reduceat(present, starts))
    # Sum two halves, neither of which can overflow below 2**31 rows.
    shift, low = present.dtype.type(32), present.dtype.type(0xFFFFFFFF)
    high_sums = np.add.reduceat(present >> shift, starts).tolist()
    low_sums = np.add.reduceat(present & low, starts).tolist()
    return tuple((high << 32) + low for high, low in zip(high_sums, low_sums, strict=True))


Values = tuple[Any, ...]
"""Native values, None for NULL. With fewer values than columns it is a prefix, which bounds any continuation."""


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
        self, paths: Sequence[tuple[str, ...]], asked: Sequence[tuple[LeafQuestion, bool]]
    ) -> Bools | None:
        """Return the units that may have a row with these answers, each true or false.

        Return None where no question is about the first column.
        """
        low, high = _restrict(paths, self.tags, asked)
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
    paths: Sequence[tuple[str, ...]], tags: Sequence[Tag], asked: Sequence[tuple[LeafQuestion, bool]]
) -> tuple[Values, Values]:
    """Return the lower and the upper bound of the tuples of matching rows."""
    ends: list[dict[tuple[str, ...], Any]] = [{}, {}]
    for path, tag in zip(paths, tags, strict=True):
        for question, truth in asked:
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
        if isinstance(value, bytes) and len(value) > _LONG:
            cut = successor(value[:_LONG]) if greatest else value[:_LONG]
            return tuple(found) if cut is None else (*found, cut)
        found.append(value)
    return tuple(found)


def write_tuples(out: BlobWriter, zones: TupleZones) -> None:
    """Write lower, then upper bounds: for each column the units that have it, where it is NULL, and values."""
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


MAX_PARTS = 1000
"""Limit of the names of a path, the columns of a tuple, and the members of an index."""
_SUM_BYTES = 16


def write_path(out: BlobWriter, path: tuple[str, ...]) -> None:
    """Write a u32 and as many blocks."""
    out.u32(len(path))
    for part in path:
        out.block(part.encode())


def read_path(blob: BlobReader) -> tuple[str, ...]:
    """Read a path; raises IndexFormatError for other bytes."""
    parts = blob.u32()
    if parts > MAX_PARTS:
        raise IndexFormatError(f"a zone map has a path of {parts} parts")
    return tuple(read_text(blob) for _ in range(parts))


def read_text(blob: BlobReader) -> str:
    """Read a block of text; raises IndexFormatError for other bytes."""
    try:
        return bytes(blob.block()).decode()
    except UnicodeDecodeError as error:
        raise IndexFormatError(f"a zone map has a text that is none: {error}") from None


def write_stats(out: BlobWriter, stats: ZoneStats) -> None:
    """Write the statistics of one column or expression."""
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


def read_stats(blob: BlobReader, units: int) -> ZoneStats:
    """Read what `write_stats` wrote; raises IndexFormatError for bytes that contradict each other."""
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
