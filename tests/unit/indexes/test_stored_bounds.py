"""Bounds as bytes, in tables and in embedded indexes, and bounds of several units together."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from accel.errors import IndexFormatError
from accel.format.domain import Bounds, Domain
from accel.indexes.native import uniform
from accel.indexes.stored_bounds import BOUND_FIELDS, StoredBounds
from accel.indexes.wire import BlobReader, BlobWriter
from accel.indexes.zone_bounds import unit_bounds

MAGIC = b"TEST"
VALUES: dict[str, tuple[pa.DataType, list[list[Any]]]] = {
    "int64": (pa.int64(), [[5, -3, None], [None], [2**63 - 1, -(2**63)]]),
    "uint64": (pa.uint64(), [[2**64 - 1, 0], [7]]),
    "float64": (pa.float64(), [[1.5, math.nan], [math.nan], [-math.inf, 2.0]]),
    "string": (pa.string(), [["b", "a"], [None], ["x" * 64]]),
    "bool": (pa.bool_(), [[True, None], [False, True]]),
}


def bounds_of(name: str) -> tuple[pa.DataType, Bounds]:
    kind, units = VALUES[name]
    starts = np.cumsum([0, *map(len, units)])[:-1]
    return kind, unit_bounds(uniform(pa.array([v for unit in units for v in unit], kind)), starts)


def shown(bounds: Bounds) -> list[tuple[Any, ...]]:
    """What is known of each unit."""
    assert bounds.lower_exact is not None
    assert bounds.upper_exact is not None
    columns = (
        bounds.has_lower, bounds.lower, bounds.lower_exact, bounds.has_upper, bounds.upper, bounds.upper_exact,
        bounds.num_values, bounds.null_count, bounds.nan_count,
    )  # fmt: skip
    return [
        (low if has_low else None, low_exact and has_low, high if has_high else None, high_exact and has_high, *counts)
        for has_low, low, low_exact, has_high, high, high_exact, *counts in zip(
            *(column.tolist() for column in columns), strict=True
        )
    ]  # fmt: skip


@pytest.mark.parametrize("name", VALUES)
def test_tables_and_embedded_indexes_give_back_what_was_stored(name: str) -> None:
    kind, bounds = bounds_of(name)
    stored = StoredBounds.of(bounds, kind)
    table = pa.Table.from_arrays(stored.arrays(), schema=pa.schema(BOUND_FIELDS))
    out = BlobWriter(MAGIC)
    stored.write(out)
    blob = BlobReader(out.bytes(), MAGIC)
    found = StoredBounds.read(blob, len(bounds))
    blob.end()
    for each in (StoredBounds.of_table(table), found):
        assert each.compares_with(kind)
        assert shown(each.decode(kind)) == shown(bounds)


def test_values_of_another_family_have_no_bounds() -> None:
    kind, bounds = bounds_of("string")
    stored = StoredBounds.of(bounds, kind)
    assert not stored.compares_with(pa.float64())
    found = stored.decode(pa.float64())
    assert (found.has_lower.any(), found.has_upper.any()) == (False, False)
    assert (found.null_count.tolist(), found.nan_count.tolist()) == ([0, 1, 0], [-1, -1, -1])


def test_long_text_and_wide_numbers_are_rounded_outward_and_are_no_values() -> None:
    long = unit_bounds(uniform(pa.array(["x" * 65])), np.zeros(1, np.int64))
    assert shown(StoredBounds.of(long, pa.string()).decode(pa.string()))[0][:4] == (
        b"x" * 64, False, b"x" * 63 + b"y", False,
    )  # fmt: skip
    number = 3**76
    one = np.ones(1, np.int64)
    ends = np.array([number], object)
    wide = Bounds(
        Domain.INTEGER, ends, ends, one == 1, one == 1, one, one * 0, one * 0, one == 1, one == 1
    )  # fmt: skip
    kind = pa.decimal128(38, 0)
    found = StoredBounds.of(wide, kind).decode(kind)
    assert found.lower[0] < number < found.upper[0]
    assert (found.lower_exact.tolist(), found.upper_exact.tolist()) == ([False], [False])  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("at", "value", "message"),
    [
        (7 + 4, 0xFF, "counts that contradict"),  # rows
        (-1, None, "ends early"),
        (7 + 4 + 24 + 2, 3, "of its encoding"),  # bytes of each bound
    ],
)
def test_damaged_bytes_are_refused(at: int, value: int | None, message: str) -> None:
    out = BlobWriter(MAGIC)
    StoredBounds.of(unit_bounds(pa.array([1, 2]), np.zeros(1, np.int64)), pa.int64()).write(out)
    data = bytearray(out.bytes())
    if value is None:
        del data[at]
    else:
        data[len(MAGIC) + at + (7 if message.startswith("counts") else 0)] = value
    with pytest.raises(IndexFormatError, match=message):
        StoredBounds.read(BlobReader(bytes(data), MAGIC), 1)


def test_units_together() -> None:
    _, bounds = bounds_of("int64")
    whole = bounds.fold(np.array([2, 1, 0]))
    assert shown(whole) == [
        (-3, True, 5, True, 4, 2, 0),
        (-(2**63), True, 2**63 - 1, True, 2, 0, 0),
        (None, False, None, False, 0, 0, 0),
    ]
    assert whole.sums == (2, -1, 0)
    assert shown(bounds.part(0, 1).spread(np.array([1]), 2)) == [
        (None, False, None, False, -1, -1, -1),
        (-3, True, 5, True, 3, 1, 0),
    ]


def test_a_unit_without_bounds_leaves_none_for_all() -> None:
    _, bounds = bounds_of("string")
    unknown = Bounds.unknown(np.array([3]))
    unknown = Bounds(
        Domain.BYTES, np.array([b""], object), np.array([b""], object), unknown.has_lower, unknown.has_upper,
        unknown.num_values, unknown.null_count, unknown.nan_count,
    )  # fmt: skip
    whole = Bounds.join([bounds, unknown]).fold(np.array([4]))
    assert (whole.has_lower.tolist(), whole.has_upper.tolist(), whole.lower_exact) == ([False], [False], None)
    assert (whole.num_values.tolist(), whole.null_count.tolist()) == ([7], [-1])
