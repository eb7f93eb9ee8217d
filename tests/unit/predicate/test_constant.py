"""One value everywhere: exact bounds of partition columns and of columns that are missing."""

from __future__ import annotations

import datetime
import decimal
import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from accel.format.domain import Domain
from accel.predicate.bind import bind
from accel.predicate.expr import Column, Compare, IsNull, Literal, Op
from accel.predicate.prune import Verdict, constant_bounds, prune

ROWS = np.array([3, 4])


def storage(kind: Any, value: Any) -> pa.Scalar:
    return pa.ExtensionArray.from_storage(kind, pa.array([value], kind.storage_type))[0]


@pytest.mark.parametrize(
    ("scalar", "domain", "value", "dtype"),
    [
        (pa.scalar(2013, pa.int32()), Domain.INTEGER, 2013, "int64"),
        (pa.scalar(2**64 - 1, pa.uint64()), Domain.INTEGER, 2**64 - 1, "uint64"),
        (pa.scalar(datetime.date(1970, 1, 3)), Domain.INTEGER, 2, "int64"),
        (pa.scalar(5, pa.timestamp("us", "UTC")), Domain.INTEGER, 5, "int64"),
        (pa.scalar(decimal.Decimal("1.50")), Domain.INTEGER, 150, "int64"),
        (pa.scalar(decimal.Decimal(10) ** 30), Domain.INTEGER, 10**30, "object"),
        (pa.scalar(1.5, pa.float32()), Domain.FLOAT, 1.5, "float64"),
        (pa.scalar("é"), Domain.BYTES, "é".encode(), "object"),
        (pa.scalar("é", pa.string_view()), Domain.BYTES, "é".encode(), "object"),
        (pa.scalar(b"ab", pa.binary(2)), Domain.BYTES, b"ab", "object"),
        (pa.array(["x"]).dictionary_encode()[0], Domain.BYTES, b"x", "object"),
        (storage(pa.uuid(), bytes(16)), Domain.BYTES, bytes(16), "object"),
        (pa.scalar(True), Domain.BOOLEAN, True, "bool"),
    ],
    ids=lambda value: str(getattr(value, "type", "")),
)
def test_values(scalar: pa.Scalar, domain: Domain, value: Any, dtype: str) -> None:
    bounds = constant_bounds(scalar, ROWS)
    assert bounds.domain is domain
    assert bounds.lower.tolist() == bounds.upper.tolist() == [value, value]
    assert (str(bounds.lower.dtype), str(bounds.upper.dtype)) == (dtype, dtype)
    assert bounds.has_lower.tolist() == bounds.has_upper.tolist() == [True, True]
    assert (bounds.num_values.tolist(), bounds.null_count.tolist(), bounds.nan_count.tolist()) == (
        [3, 4],
        [0, 0],
        [0, 0],
    )


def test_zero_is_both_zeros() -> None:
    bounds = constant_bounds(pa.scalar(-0.0), ROWS)
    assert [math.copysign(1, end[0]) for end in (bounds.lower, bounds.upper)] == [-1, 1]


@pytest.mark.parametrize("kind", [pa.int8(), pa.float64(), pa.string(), pa.bool_(), pa.null()], ids=str)
def test_null_is_all_null(kind: pa.DataType) -> None:
    bounds = constant_bounds(pa.scalar(None, kind), ROWS)
    assert bounds.has_lower.tolist() == bounds.has_upper.tolist() == [False, False]
    assert bounds.null_count.tolist() == [3, 4]
    schema = pa.schema([("c", kind)])
    assert (
        prune(bind(IsNull(Column(("c",))), schema), {("c",): bounds}, 2).verdicts().tolist()
        == [Verdict.ALL] * 2
    )


def test_nan_is_above_every_number() -> None:
    bounds = {("c",): constant_bounds(pa.scalar(math.nan), ROWS)}
    schema = pa.schema([("c", pa.float64())])
    above = bind(Compare(Op.GT, Column(("c",)), Literal(1e308)), schema)
    below = bind(Compare(Op.LE, Column(("c",)), Literal(1e308)), schema)
    assert prune(above, bounds, 2).verdicts().tolist() == [Verdict.ALL] * 2
    assert prune(below, bounds, 2).verdicts().tolist() == [Verdict.NONE] * 2


def test_a_list_only_tells_that_it_is_there() -> None:
    bounds = constant_bounds(pa.scalar([1]), ROWS)
    assert (bounds.domain, bounds.null_count.tolist()) == (Domain.NONE, [0, 0])
