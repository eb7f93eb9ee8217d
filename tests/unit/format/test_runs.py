"""Runs of the RLE/bit-packed hybrid: runs that fill exactly their values are read, all others are not."""

from __future__ import annotations

import random

import numpy as np
import pytest

from accel.format.runs import RunValues, begins_with_row, find_runs, read_head
from accel.format.thrift import encode_varint


def _packed(values: list[int], width: int) -> bytes:
    number = sum(value << (place * width) for place, value in enumerate(values))
    return encode_varint(len(values) // 8 << 1 | 1) + number.to_bytes(len(values) // 8 * width, "little")


def _repeated(value: int, times: int, width: int) -> bytes:
    return encode_varint(times << 1) + value.to_bytes((width + 7) // 8, "little")


def _values(data: bytes, width: int, count: int) -> list[int] | None:
    runs = find_runs(data, start=0, width=width, count=count, most_runs=512)
    if runs is None:
        return None
    values = RunValues(width)
    values.add(data, runs, count=count)
    found: list[int] = values.unpack().tolist()
    assert values.pick(np.arange(count)).tolist() == found
    most = max(found)
    assert (values.are_below(most), values.are_below(most + 1)) == (False, True)
    return found


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (b"\x02", (2, 1)),
        (b"\xff\xff\xff\xff\x0f", (0xFFFFFFFF, 5)),
        (b"\x82\x00", (2, 2)),
        (b"\x00", (0, 0)),
        (b"\x01", (0, 0)),
        (b"\x80\x00", (0, 0)),
        (b"\x80\x80\x80\x80\x10", (0, 0)),
        (b"\xff\xff\xff\xff\xff\x00", (0, 0)),
        (b"\x80", (0, 0)),
        (b"", (0, 0)),
    ],
    ids=[
        "one value",
        "the greatest",
        "more bytes than it takes",
        "no values",
        "no groups",
        "no values in two bytes",
        "33 bits",
        "six bytes",
        "ends early",
        "nothing",
    ],
)
def test_heads(data: bytes, found: tuple[int, int]) -> None:
    assert read_head(data, 0) == found


@pytest.mark.parametrize("width", [1, 2, 7, 8, 12, 31, 32])
def test_runs_of_both_kinds(width: int) -> None:
    rng = random.Random(width)
    data, values = b"", []
    for _ in range(20):
        part = [rng.getrandbits(width) for _ in range(8 * rng.randrange(1, 5))]
        if rng.random() < 0.5:
            part = [part[0]] * rng.randrange(1, 40)
            data += _repeated(part[0], len(part), width)
        else:
            data += _packed(part, width)
        values += part
    assert _values(data, width, len(values)) == values
    assert _values(data + _packed(values[:8], width), width, len(values) + 3) == values + values[:3]


def test_values_of_no_bits() -> None:
    assert _values(_repeated(0, 5, 0), 0, 5) == [0] * 5
    assert _values(_packed([0] * 16, 0), 0, 12) == [0] * 12


@pytest.mark.parametrize(
    ("data", "width", "count"),
    [
        (_repeated(1, 1 << 30, 3), 3, 10),
        (encode_varint(1 << 32) + b"\x01", 3, 10),
        (_repeated(1, 11, 3), 3, 10),
        (_packed([1] * 24, 3), 3, 10),
        (_packed([1] * 16, 3), 3, 8),
        (_repeated(1, 9, 3), 3, 10),
        (_repeated(1, 10, 3) + b"\x00", 3, 10),
        (_repeated(1, 10, 3)[:-1], 3, 10),
        (_packed([1] * 16, 3)[:-1], 3, 10),
        (_repeated(9, 10, 8), 3, 10),
        (_repeated(1, 10, 33), 33, 10),
        (_repeated(1, 10, 3), -1, 10),
        (b"", 3, 10),
    ],
    ids=[
        "a run of 2**30",
        "a run of 2**31",
        "one value too many",
        "a group too many",
        "a group behind the last value",
        "one value too few",
        "a byte left over",
        "no value",
        "half a group",
        "a value of more bits",
        "a width of 33",
        "no width",
        "nothing",
    ],
)
def test_what_is_not_just_so_is_not_read(data: bytes, width: int, count: int) -> None:
    assert _values(data, width, count) is None


def test_no_more_runs_than_asked_for() -> None:
    data = _repeated(1, 1, 1) * 10
    assert find_runs(data, start=0, width=1, count=10, most_runs=9) is None
    runs = find_runs(data, start=0, width=1, count=10, most_runs=10)
    assert runs is not None and (runs.most, len(runs.firsts)) == (1, 10)


@pytest.mark.parametrize(
    ("levels", "most", "told"),
    [
        pytest.param(b"\x03\xfe", 1, True, id="packed, 0 first"),
        pytest.param(b"\x03\xef", 1, False, id="packed, 1 first"),
        pytest.param(b"\x03\xfc\xff", 2, True, id="packed in two bits"),
        pytest.param(b"\x03\xfe\xff", 3, False, id="packed, 2 first"),
        pytest.param(b"\x10\x00", 1, True, id="a run of 0"),
        pytest.param(b"\x10\x01", 1, False, id="a run of 1"),
        pytest.param(b"\x80\x01\x00", 1, True, id="a long run"),
        pytest.param(b"\x80\x01\x01", 1, False, id="a long run of 1"),
        pytest.param(b"\x00\x00", 1, False, id="a run of none"),
        pytest.param(b"\x01\xfe", 1, False, id="none packed"),
        pytest.param(b"\x10", 1, False, id="cut"),
        pytest.param(b"\x80\x80\x80\x80\x80\x80\x80", 1, False, id="no number"),
        pytest.param(b"", 1, False, id="nothing"),
        pytest.param(b"\x10\x00\x01", 256, False, id="two bytes"),
    ],
)
def test_the_first_level(levels: bytes, most: int, told: bool) -> None:
    assert begins_with_row(levels, most) is told
    assert begins_with_row(memoryview(levels), most) is told
