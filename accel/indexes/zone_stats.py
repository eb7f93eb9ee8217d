"""The figures of a zone map: bounds, counts and sums of units of rows."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from accel.arrays import integers, validity
from accel.format.domain import Bounds, Domain
from accel.indexes.expressions import numbers_of
from accel.indexes.folding import is_settled
from accel.indexes.native import NUMPY, Tag, code_values, tag_of
from accel.predicate.atoms import successor

if TYPE_CHECKING:
    from accel.arrays import Bools, Int64s

__all__ = ["FILL", "ZoneStats", "folded_stats", "unit_stats"]


_LONG = 64
"""Bounds of more bytes are cut."""


@dataclass(frozen=True, slots=True, eq=False)
class ZoneStats:
    """Figures of n units, one entry each."""

    tag: Tag
    lower: tuple[Any, ...]
    """Native values; None where there is no bound. NaN is never one."""
    upper: tuple[Any, ...]
    exact: Bools
    """The bounds occur as values: they are the minimum and the maximum (of what is not NaN)."""
    rows: Int64s
    nulls: Int64s
    nans: Int64s
    sums: tuple[int | float, ...] | None
    """Of the values that are not null, decimals unscaled; None for types that have no sum."""

    @property
    def counts(self) -> Int64s:
        """Values that are not null."""
        return self.rows - self.nulls

    @property
    def unbounded(self) -> bool:
        """Whether some units hold values other than NaN, and none of those has a bound."""
        filled = np.flatnonzero(self.counts > self.nans).tolist()
        return bool(filled) and all(self.lower[at] is None and self.upper[at] is None for at in filled)

    def bounds(self) -> Bounds:
        """The same as the pruning of statistics takes it."""
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
        """The units of all parts, in order; they are of one type."""
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
        """One unit of many: `parts` are of one type, each of one unit."""
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
    """Of finite numbers; infinite where they overflow on the way, which answers nothing."""
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
"""What stands where there is no bound."""


def unit_stats(values: pa.Array, starts: Int64s) -> ZoneStats:
    """The figures of runs of rows of a uniform array; each run has a row, or there is one run and no row."""
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
    """The same of folded text: units of which some is not settled have no bounds."""
    stats = unit_stats(values, starts)
    bounds = [*starts.tolist(), len(values)]
    known = [_is_settled(values.slice(start, end - start)) for start, end in pairwise(bounds)]
    if all(known):
        return stats
    return dataclasses.replace(
        stats,
        lower=tuple(bound if has else None for bound, has in zip(stats.lower, known, strict=True)),
        upper=tuple(bound if has else None for bound, has in zip(stats.upper, known, strict=True)),
        exact=stats.exact & np.array(known, bool),
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
    """The same for values that numpy does not order."""
    if tag_of(values.type) is not Tag.BYTES:
        return _ranked(values, starts)
    ends = np.append(starts[1:], len(values))
    ranges = zip(starts.tolist(), (ends - starts).tolist(), strict=True)
    found = [pc.min_max(values.slice(start, rows)) for start, rows in ranges]
    return [each["min"].as_py() for each in found], [each["max"].as_py() for each in found]


def _ranked(values: pa.Array, starts: Int64s) -> tuple[list[Any], list[Any]]:
    """Of wide decimals: by the ranks of the values."""
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
    # In two halves, neither of which can overflow below 2**31 rows.
    shift, low = present.dtype.type(32), present.dtype.type(0xFFFFFFFF)
    high_sums = np.add.reduceat(present >> shift, starts).tolist()
    low_sums = np.add.reduceat(present & low, starts).tolist()
    return tuple((high << 32) + low for high, low in zip(high_sums, low_sums, strict=True))
