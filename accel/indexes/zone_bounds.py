"""What zone maps consist of: bounds and sums of units of rows, taken from values, and the bytes of sums."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from accel import kernels
from accel.arrays import integers, validity
from accel.errors import IndexFormatError
from accel.format.domain import Bounds, Domain
from accel.indexes.bound_bytes import LONGEST
from accel.indexes.expressions import is_settled, numbers_of
from accel.indexes.native import FILL, NUMPY, Tag, code_values, tag_of
from accel.indexes.wire import BlobReader, BlobWriter
from accel.predicate.atoms import successor

if TYPE_CHECKING:
    from accel.arrays import Bools, Int64s

__all__ = ["folded_bounds", "read_sums", "unit_bounds", "write_sums"]

DOMAINS: Final = {
    Tag.INT64: Domain.INTEGER,
    Tag.UINT64: Domain.INTEGER,
    Tag.INT128: Domain.INTEGER,
    Tag.INT256: Domain.INTEGER,
    Tag.FLOAT64: Domain.FLOAT,
    Tag.BYTES: Domain.BYTES,
    Tag.BOOLEAN: Domain.BOOLEAN,
}
_SUM_BYTES: Final = 16


def unit_bounds(values: pa.Array, starts: Int64s) -> Bounds:
    """Return the bounds and sums of runs of rows of a uniform array; every run has rows, or the one run has
    none."""
    tag = tag_of(values.type)
    if tag is None:
        raise TypeError(f"{values.type} is no stored type")
    units = len(starts)
    rows = np.diff(np.append(starts, len(values))).astype(np.int64) if units else starts
    if not len(values):
        zero, none = np.zeros(units, np.int64), np.zeros(units, bool)
        ends, summed = _ends([None] * units, tag), tag not in (Tag.BYTES, Tag.BOOLEAN)
        return Bounds(
            DOMAINS[tag], ends, ends, none, none, rows, zero, zero, ~none, ~none,
            (0,) * units if summed else None,
        )  # fmt: skip
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
    lower_exact = upper_exact = np.ones(units, bool)
    has_upper = some
    if tag is Tag.BYTES:
        lower_exact, upper_exact = (
            np.array([len(end or b"") <= LONGEST for end in ends]) for ends in (low, high)
        )
        low = [None if value is None else value[:LONGEST] for value in low]
        high = [_cut_upper(value) for value in high]
        has_upper = np.array([value is not None for value in high], bool)
    sums = None if numbers is None or tag is Tag.BOOLEAN else _sums(numbers, valid, starts)
    return Bounds(
        domain=DOMAINS[tag],
        lower=_ends(low, tag),
        upper=_ends(high, tag),
        has_lower=some,
        has_upper=has_upper,
        num_values=rows,
        null_count=nulls,
        nan_count=nans,
        lower_exact=lower_exact,
        upper_exact=upper_exact,
        sums=sums,
    )


def _ends(values: Sequence[Any], tag: Tag) -> npt.NDArray[Any]:
    filled = [FILL[tag] if value is None else value for value in values]
    if tag is Tag.BOOLEAN:
        return np.array(filled, bool)
    if tag in NUMPY:
        return np.array(filled, NUMPY[tag]).astype(NUMPY[tag][1:])
    out = np.empty(len(filled), object)
    out[:] = filled
    return out


def folded_bounds(values: pa.Array, starts: Int64s) -> Bounds:
    """Return the `unit_bounds` of folded text; units with text that is not settled have no bounds."""
    found = unit_bounds(values, starts)
    stops = [*starts.tolist(), len(values)]
    settled = np.array(
        [_is_settled(values.slice(start, stop - start)) for start, stop in pairwise(stops)], bool
    )
    if found.lower_exact is None or found.upper_exact is None or bool(settled.all()):
        return found
    return dataclasses.replace(
        found,
        has_lower=found.has_lower & settled,
        has_upper=found.has_upper & settled,
        lower_exact=found.lower_exact & settled,
        upper_exact=found.upper_exact & settled,
    )


def _is_settled(values: pa.Array) -> bool:
    _, offsets, data = values.buffers()
    if data is None or not len(values):
        return True
    wide = pa.types.is_large_binary(values.type)
    bounds = np.frombuffer(offsets, np.int64 if wide else np.int32)
    return is_settled(bytes(data[bounds[values.offset] : bounds[values.offset + len(values)]]))


def _cut_upper(value: bytes | None) -> bytes | None:
    return value if value is None or len(value) <= LONGEST else successor(value[:LONGEST])


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


def write_sums(out: BlobWriter, sums: Sequence[int | float] | None) -> None:
    """Write a u32 form and the sums of units: none, whole numbers, or doubles."""
    if sums is None or any(isinstance(total, int) and abs(total) >> 126 for total in sums):
        out.u32(0)
    elif any(isinstance(total, float) for total in sums):
        out.u32(2)
        out.array(np.array(sums, np.float64), "<f8")
    else:
        out.u32(1)
        raw = b"".join(int(total).to_bytes(_SUM_BYTES, "little", signed=True) for total in sums)
        out.array(np.frombuffer(raw, np.uint8), "u1")


def read_sums(blob: BlobReader, units: int) -> tuple[int | float, ...] | None:
    """Read what `write_sums` wrote; raises IndexFormatError for another form."""
    match blob.u32():
        case 0:
            return None
        case 1:
            raw = bytes(blob.take(units * _SUM_BYTES))
            pieces = (raw[i : i + _SUM_BYTES] for i in range(0, len(raw), _SUM_BYTES))
            return tuple(int.from_bytes(piece, "little", signed=True) for piece in pieces)
        case 2:
            return tuple(blob.array(units, "<f8").tolist())
    raise IndexFormatError("a zone map has sums of an unknown form")
