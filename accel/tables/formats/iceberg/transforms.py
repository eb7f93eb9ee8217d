"""Partition specs and their transforms: what the partition values of a file say of the column that they are
made of.

A value of a transform is a range of the column: `day` is the day's first and last instant, `truncate` the
least and the greatest value that are cut to it. `bucket` is none; a predicate that compares with single
values is judged by their buckets.

Source: the Iceberg specification, "Partitioning", "Partition Transforms" and appendix B.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, localcontext
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from accel.arrays import from_numpy, integers, masked_numbers, validity, values_array
from accel.errors import TableFormatError
from accel.tables.formats.iceberg.schema import whole_number

if TYPE_CHECKING:
    from accel.arrays import Int64s

__all__ = ["PartitionField", "PartitionSpec", "Transform", "bucket_of", "range_of"]

_PARAMETER: Final = re.compile(r"(bucket|truncate)\[(\d{1,9})\]")
_PERIODS: Final[Mapping[str, str]] = {"year": "Y", "month": "M", "day": "D", "hour": "h"}
_MOST_PERIODS: Final[Mapping[str, int]] = {"Y": 290_000, "M": 3_400_000, "D": 106_000_000, "h": 2_500_000_000}
"""Periods from 1970 whose microseconds fit into 64 bits."""
_MOST_YEARS_IN_NANOSECONDS: Final = 250
_DECIMAL_DIGITS: Final = 100
_MOST_POINT: Final = 0x10FFFF
_SURROGATES: Final = (0xD800, 0xDFFF)


@dataclass(frozen=True, slots=True)
class Transform:
    """A transform: its name, and the width of `truncate` or the number of buckets."""

    name: str
    """One of "identity", "bucket", "truncate", "year", "month", "day", "hour", "void"; another one is
    unknown, and says nothing of the column."""
    parameter: int = 0

    @classmethod
    def parse(cls, text: str) -> Transform:
        """Make a transform of its text."""
        found = _PARAMETER.fullmatch(text.lower())
        if found and int(found[2]) > 0:
            return cls(found[1], int(found[2]))
        return cls(text.lower())


@dataclass(frozen=True, slots=True)
class PartitionField:
    """One field of a partition spec."""

    source_id: int
    field_id: int
    name: str
    transform: Transform


@dataclass(frozen=True, slots=True)
class PartitionSpec:
    """A partition spec, with its fields in order."""

    id: int
    fields: tuple[PartitionField, ...]

    @classmethod
    def parse(cls, given: Any) -> PartitionSpec:
        """Make a spec of its JSON.

        Raises
        ------
        TableFormatError
            It is none.
        """
        fields = []
        if not isinstance(given, dict) or not isinstance(given.get("fields"), list):
            raise TableFormatError("a partition spec has no list of fields")
        for at, each in enumerate(given["fields"]):
            source = each.get("source-id")
            if source is None:
                several = each.get("source-ids") or [None]
                # A transform of several columns says nothing of one of them.
                source = several[0] if len(several) == 1 else 0
            fields.append(
                PartitionField(
                    whole_number(source, "source-id"),
                    whole_number(each.get("field-id", 1000 + at), "field-id"),
                    str(each.get("name")),
                    Transform.parse(str(each.get("transform"))),
                )
            )
        return cls(whole_number(given.get("spec-id", 0), "spec-id"), tuple(fields))

    @property
    def is_unpartitioned(self) -> bool:
        """Whether it has no field, or only ones that were dropped."""
        return all(field.transform.name == "void" for field in self.fields)


def range_of(
    transform: Transform, kind: pa.DataType, low: pa.Array, high: pa.Array
) -> tuple[pa.Array, pa.Array] | None:
    """Return the least and the greatest value of the column in units whose partition values lie between two
    arrays; None where the transform says nothing of ranges.

    Parameters
    ----------
    transform : Transform
    kind : pyarrow.DataType
        The type of the column.
    low, high : pyarrow.Array
        As manifests have them: integers, texts, bytes; null where unknown.
    """
    if transform.name == "identity":
        return low, high
    if transform.name == "truncate":
        return _truncated(transform.parameter, low, high)
    unit = _PERIODS.get(transform.name)
    if unit is None or not pa.types.is_integer(low.type) or not pa.types.is_integer(high.type):
        return None
    if not (pa.types.is_date(kind) or pa.types.is_timestamp(kind)):
        return None
    return _instants(low, unit, kind, last=False), _instants(high, unit, kind, last=True)


def _instants(values: pa.Array, unit: str, kind: pa.DataType, *, last: bool) -> pa.Array:
    """Return the first instants of periods, or their last ones.

    Writers of long ago cut instants before 1970 towards it, so that a period that is not after 1970 may hold
    the one before it.
    """
    numbers = integers(values.cast(pa.int64()).fill_null(0)).astype(np.int64)
    fine = validity(values)
    in_days = pa.types.is_date(kind)
    step = "D" if in_days else kind.unit
    most = _MOST_PERIODS[unit]
    if step == "ns":
        most = min(most, {"Y": 1, "M": 12, "D": 365, "h": 8760}[unit] * _MOST_YEARS_IN_NANOSECONDS)
    fine &= np.abs(numbers) < most
    numbers = np.where(fine, numbers, 0)
    if not last and not (in_days and unit == "D"):
        numbers = np.where(numbers <= 0, numbers - 1, numbers)
    begins = (numbers + last).astype(f"datetime64[{unit}]").astype(f"datetime64[{step}]").astype(np.int64)
    found = begins - last
    array = masked_numbers(found, fine, pa.int64())
    if in_days:
        return array.cast(pa.int32()).cast(kind)
    return array.cast(kind)


def _truncated(width: int, low: pa.Array, high: pa.Array) -> tuple[pa.Array, pa.Array] | None:
    t = pa.types
    if t.is_integer(low.type) and t.is_integer(high.type):
        numbers = integers(high.cast(pa.int64()))
        fits = validity(high) & (numbers < (1 << 62))
        above = masked_numbers(np.where(fits, numbers, 0) + (width - 1), fits, pa.int64())
        return low, above
    if t.is_decimal(low.type):
        scale = high.type.scale
        with localcontext() as context:
            context.prec = _DECIMAL_DIGITS  # a sum is not rounded
            more = Decimal(width - 1).scaleb(-scale)
            sums = [None if value is None else value + more for value in high.to_pylist()]
        most = 10 ** (high.type.precision - scale)
        return low, pa.array([x if x is not None and x < most else None for x in sums], high.type)
    if t.is_string(low.type):
        return low, values_array([_after_text(x, width) for x in high.to_pylist()], pa.string())
    if t.is_binary(low.type):
        return low, values_array([_after_bytes(x, width) for x in high.to_pylist()], pa.binary())
    return None


def _after_text(text: str | None, width: int) -> str | None:
    """Return a text that is not less than any that begins with another; None where there is none."""
    if text is None or len(text) < width:
        return text
    for at in range(len(text) - 1, -1, -1):
        point = ord(text[at]) + 1
        if _SURROGATES[0] <= point <= _SURROGATES[1]:
            point = _SURROGATES[1] + 1
        if point <= _MOST_POINT:
            return text[:at] + chr(point)
    return None


def _after_bytes(data: bytes | None, width: int) -> bytes | None:
    if data is None or len(data) < width:
        return data
    head = data.rstrip(b"\xff")
    return head[:-1] + bytes([head[-1] + 1]) if head else None


def bucket_of(values: Sequence[Any], kind: pa.DataType, count: int) -> Int64s | None:
    """Return the buckets of values of a column; None for types whose buckets are not known.

    Parameters
    ----------
    values : sequence
        Integers of the column's own unit, or bytes.
    kind : pyarrow.DataType
        The type of the column.
    count : int
        The number of buckets.
    """
    try:
        import mmh3
    except ImportError:  # nothing is ruled out then
        return None
    t = pa.types
    if t.is_integer(kind) or t.is_date(kind) or t.is_time(kind) or t.is_timestamp(kind) and kind.unit == "us":
        plain = [int(value).to_bytes(8, "little", signed=True) for value in values]
    elif t.is_decimal(kind):
        plain = [_shortest(int(value)) for value in values]
    elif (
        isinstance(kind, pa.BaseExtensionType)
        or t.is_string(kind)
        or t.is_binary(kind)
        or t.is_fixed_size_binary(kind)
    ):
        plain = [bytes(value) for value in values]
    else:
        return None
    hashes = np.array([mmh3.hash(each) for each in plain], np.int64)
    return (hashes & 0x7FFFFFFF) % count


def _shortest(value: int) -> bytes:
    """Return an integer in two's complement, in the fewest bytes."""
    length = (value if value >= 0 else ~value).bit_length() // 8 + 1
    return value.to_bytes(length, "big", signed=True)


def equal_buckets(values: Int64s) -> pa.Array:
    """Return the distinct buckets as Arrow has them."""
    return from_numpy(np.unique(values).astype(np.int32))
