"""Bitmap indexes of row groups, joined: the joined index answers as they do, for each of their pages."""

from __future__ import annotations

import itertools

import numpy as np
import pyarrow as pa
import pytest

from accel.errors import IndexFormatError
from accel.indexes import Bitmap, ChunkValues, Level
from accel.indexes.bitmap import ParsedBitmap, join_bitmaps
from accel.indexes.question import LeafQuestion
from tests.unit.indexes.data import ask_for

PAGE = 7
KIND = Bitmap()


def numbers(rng: np.random.Generator, count: int) -> pa.Array:
    values = rng.integers(-40, 40, count).tolist()
    return pa.array([None if value % 13 == 0 else value for value in values], pa.int64())


def uniques(rng: np.random.Generator, count: int) -> pa.Array:
    return pa.array(rng.integers(0, 1 << 62, count))


def texts(rng: np.random.Generator, count: int) -> pa.Array:
    return pa.array([f"text {value}" for value in rng.integers(0, 90, count)], pa.string())


def built(values: pa.Array) -> bytes:
    firsts = np.arange(0, max(len(values), 1), PAGE, dtype=np.int64)
    return KIND.build([ChunkValues(values, firsts, len(values))], level=Level.PAGE)


def joined(indexes: list[bytes]) -> bytes | None:
    parts: list[bytes] = []
    head = join_bitmaps([lambda a, b, data=data: data[a:b] for data in indexes], keep=parts.append)
    return None if head is None else head + b"".join(parts)


def told(parsed: ParsedBitmap, asked: LeafQuestion) -> list[list[bool]] | None:
    found = parsed.prune(asked)
    if found is None:
        return None
    return [found.may_true.tolist(), found.may_false.tolist(), found.may_null.tolist()]


@pytest.mark.parametrize("at_once", [1, 5, 64, 1 << 20])
@pytest.mark.parametrize("make", [numbers, uniques, texts])
@pytest.mark.parametrize("sizes", [(20, 20, 20, 20), (1, 0, 50, 3, 0), (0, 0), (30,), (5,) * 30], ids=str)
def test_it_says_what_they_said(monkeypatch, make, sizes, at_once):
    monkeypatch.setattr("accel.indexes.bitmap.AT_ONCE", at_once)
    monkeypatch.setattr("accel.indexes.bitmap.LEAST_PART", 3)
    rng = np.random.default_rng(sum(sizes))
    columns = [make(rng, size) for size in sizes]
    each = [built(column) for column in columns]
    data = joined(each)
    units = [-(-size // PAGE) for size in sizes]
    if not sum(units):
        assert data is None
        return
    assert data is not None
    whole = KIND.parse(data, level=Level.PAGE, units=sum(units))
    assert whole.group_units is not None
    assert whole.group_units.tolist() == units
    parsed = [KIND.parse(one, level=Level.PAGE, units=n) for one, n in zip(each, units, strict=True)]
    assert all(one.group_units is None for one in parsed)
    kind = columns[0].type
    values = sorted({value for column in columns for value in column.to_pylist() if value is not None})
    spelled = [f"'{value}'" if make is texts else str(value) for value in values]
    some = ", ".join(spelled[:9])
    absent = "'none such'" if make is texts else "77"
    wheres = [f"x = {value}" for value in spelled]
    wheres += [f"x IN ({some})", "x IS NULL", f"x = {absent}"]
    asked = [ask_for(where, kind) for where in wheres]
    for one in asked:
        parts = [told(index, one) for index in parsed]
        assert None not in parts
        assert told(whole, one) == [
            list(itertools.chain.from_iterable(part[i] for part in parts if part)) for i in range(3)
        ]
    # Of each key one part is wanted, and that is enough.
    head = KIND.head_bytes(data)
    bare = KIND.parse_head(data[:head], level=Level.PAGE, units=sum(units))
    for one in asked[: len(values)]:
        spans = bare.wants(one)
        assert len(spans) == 1
        with_part = bare.with_parts({(a, b): memoryview(data)[a:b] for a, b in spans})
        assert told(with_part, one) == told(whole, one)


def test_what_differs_is_not_joined():
    one, other = built(pa.array([1, 2])), built(pa.array(["a"]))
    assert joined([one, other]) is None
    ranges = Bitmap(range_rows=2)
    first = np.zeros(1, np.int64)
    data = ranges.build([ChunkValues(pa.array([1, 2, 3]), first, 3)], level=Level.ROW_RANGE)
    with pytest.raises(IndexFormatError):  # whose heads tell of rows that nobody named
        joined([data, data])
    again = joined([one, one])
    assert again is not None
    assert joined([again, again]) is None


def test_damaged_bytes_are_refused():
    data = built(pa.array(range(50)))
    for at in range(0, len(data), 3):
        harmed = data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :]
        with pytest.raises(IndexFormatError):
            joined([data, harmed])
    whole = joined([data, data])
    assert whole is not None
    with pytest.raises(IndexFormatError, match="units"):
        KIND.parse(whole, level=Level.PAGE, units=3)
    with pytest.raises(IndexFormatError):
        KIND.parse(whole, level=Level.ROW_RANGE, units=100)
