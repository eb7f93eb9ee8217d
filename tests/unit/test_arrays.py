"""Arrays by their buffers, against pyarrow's own ways."""

from __future__ import annotations

import datetime
import decimal
import importlib.util
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accel import arrays
from accel.errors import MemoryLimitError

FLAGS = st.lists(st.one_of(st.none(), st.booleans()), max_size=40)


@given(FLAGS, st.integers(0, 10), st.integers(0, 40))
def test_bits_of_slices(values: list[bool | None], start: int, length: int) -> None:
    array = pa.array(values, pa.bool_()).slice(start, length)
    shown = array.to_pylist()
    assert arrays.mask(array).tolist() == [value is True for value in shown]
    assert arrays.validity(array).tolist() == [value is not None for value in shown]


@given(FLAGS)
def test_booleans_there_and_back(values: list[bool | None]) -> None:
    array = arrays.bools(
        np.array([value is True for value in values], bool), np.array([v is not None for v in values], bool)
    )
    array.validate(full=True)
    assert array.to_pylist() == values


INTEGERS = {
    "int8": (pa.int8(), [-128, 0, 127]),
    "uint64": (pa.uint64(), [0, 2**64 - 1]),
    "decimal128": (pa.decimal128(20, 3), [-(10**19), 0, 10**19]),
    "decimal256": (pa.decimal256(60, 3), [-(10**50), 7]),
    "float": (pa.float64(), [0.5, -1.25]),
}


@pytest.mark.parametrize("case", INTEGERS)
def test_raw_integers_there_and_back(case: str) -> None:
    kind, values = INTEGERS[case]
    array = arrays.integers_array(values, kind)
    array.validate(full=True)
    assert (array.type, array.null_count) == (kind, 0)
    assert list(arrays.integers(array)) == values
    assert list(arrays.integers(array.slice(1))) == values[1:]
    if case == "decimal128":
        assert array.to_pylist() == [decimal.Decimal(v).scaleb(-3) for v in values]


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), pa.string(), pa.large_string()])
@pytest.mark.parametrize("values", [[], [b""], [b"a", b"", b"bcd"]])
def test_bytes(kind: pa.DataType, values: list[bytes]) -> None:
    array = arrays.bytes_array(values, kind)
    array.validate(full=True)
    assert array.equals(pa.array([v if "binary" in str(kind) else v.decode() for v in values], kind))


@pytest.mark.parametrize("kind", [pa.string(), pa.binary()], ids=str)
def test_more_bytes_than_offsets_reach_are_refused(kind: pa.DataType) -> None:
    with pytest.raises(MemoryLimitError, match="2147483648 bytes"):
        arrays.bytes_array([b"x" * (1 << 20)] * 2048, kind)


@pytest.mark.parametrize(
    ("value", "kind", "want"),
    [
        (True, pa.bool_(), pa.scalar(True)),
        (7, pa.int16(), pa.scalar(7, pa.int16())),
        (1.5, pa.float32(), pa.scalar(1.5, pa.float32())),
        (b"x", pa.string(), pa.scalar("x")),
    ],
)
def test_one(value: Any, kind: pa.DataType, want: pa.Scalar) -> None:
    assert arrays.one(value, kind).equals(want)


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (None, pa.int64()),
        (5, pa.int16()),
        (-2.5, pa.float64()),
        (True, pa.bool_()),
        ("x", pa.string()),
        (b"\x00\xff", pa.binary()),
        (datetime.date(2024, 2, 29), pa.date32()),
        (datetime.datetime(2024, 2, 29, 12, 30, 1, 5), pa.timestamp("us")),
        (decimal.Decimal("12.50"), pa.decimal128(9, 2)),
    ],
)
def test_make_scalar_equals_pyarrows(value: Any, kind: pa.DataType) -> None:
    assert arrays.make_scalar(value, kind).equals(pa.scalar(value, kind))


@pytest.mark.parametrize(
    ("value", "kind"), [("x", pa.int64()), (300, pa.int8()), ("2024-13-01", pa.date32())]
)
def test_what_is_none_of_a_type(value: Any, kind: pa.DataType) -> None:
    with pytest.raises(pa.ArrowInvalid):
        arrays.make_scalar(value, kind)


@pytest.mark.parametrize("dtype", ["int8", "uint32", "float64", "bool"])
def test_from_numpy(dtype: str) -> None:
    values = np.array([0, 1, 1, 0, 5], dtype)
    assert arrays.from_numpy(values).equals(pa.array(values))
    assert arrays.from_numpy(values[::2]).equals(pa.array(values[::2]))


def test_relabelled_repeated_whole() -> None:
    days = pa.array([1, None, 3], pa.int32())
    assert arrays.relabel(days.slice(1), pa.date32()).equals(days.slice(1).cast(pa.date32()))
    assert arrays.repeat_scalar(pa.scalar("x"), 3).to_pylist() == ["x"] * 3
    assert arrays.repeat_scalar(pa.scalar(None, pa.int8()), 2).equals(pa.nulls(2, pa.int8()))
    chunks = pa.chunked_array([[1], [2, 3]])
    assert arrays.whole(chunks).equals(pa.array([1, 2, 3]))
    assert arrays.whole(pa.chunked_array([[1]])).equals(pa.array([1]))
    runs = pa.RunEndEncodedArray.from_arrays(pa.array([2, 3], pa.int32()), pa.array(["a", "b"]))
    assert arrays.whole(runs).equals(pa.array(["a", "a", "b"]))


def _required(field: pa.Field) -> pa.Field:
    return field.with_nullable(False)


def _wide(field: pa.Field) -> pa.Field:
    return field.with_type(pa.large_string())


KEY, TEXT = pa.field("key", pa.string(), nullable=False), pa.field("x", pa.string())


@pytest.mark.parametrize(
    ("kind", "changed", "keys_too"),
    [
        (pa.struct([TEXT, KEY]), pa.struct([_required(TEXT), KEY]), None),
        (pa.struct([]), pa.struct([]), None),
        (pa.list_(TEXT), pa.list_(_required(TEXT)), None),
        (pa.large_list(TEXT), pa.large_list(_required(TEXT)), None),
        (pa.list_(TEXT, 2), pa.list_(_required(TEXT), 2), None),
        (
            pa.map_(KEY, TEXT, keys_sorted=True),
            pa.map_(KEY, _required(TEXT), keys_sorted=True),
            pa.map_(_wide(KEY), _required(TEXT), keys_sorted=True),
        ),
        (pa.int8(), None, None),
        (pa.list_view(TEXT), None, None),
        (pa.dictionary(pa.int8(), pa.string()), None, None),
        (pa.uuid(), None, None),
    ],
    ids=str,
)
def test_fields_inside_a_type(
    kind: pa.DataType, changed: pa.DataType | None, keys_too: pa.DataType | None
) -> None:
    assert arrays.change_fields(kind, _required) == changed
    assert arrays.change_fields(kind, _required, keys=_wide) == (keys_too or changed)


def test_maps_as_lists() -> None:
    maps = pa.array([[(1, "a"), (2, None)], None, []], pa.map_(pa.int8(), pa.string()))
    pairs = [[{"key": 1, "value": "a"}, {"key": 2, "value": None}], None, []]
    assert arrays.map_lists(maps).to_pylist() == pairs
    assert arrays.map_lists(maps.slice(1)).to_pylist() == pairs[1:]


def test_buffers_joined() -> None:
    joined = arrays.join_buffers([b"ab", b"", memoryview(b"xcdx")[1:3], bytearray(b"e")])
    assert joined.to_pybytes() == b"abcde"
    assert arrays.join_buffers([]).to_pybytes() == b""


def test_types_without_a_validity_bitmap() -> None:
    assert arrays.validity(pa.nulls(3)).tolist() == [False] * 3
    assert arrays.validity(pa.array([], pa.int8())).tolist() == []


@given(st.lists(st.integers(-3, 3)), st.sampled_from(["int64", "uint64", "float64", "int8"]))
def test_numbers_sorted_each_once(numbers: list[int], dtype: str) -> None:
    given_numbers = np.array(numbers, np.int64).astype(dtype)
    found = arrays.sort_distinct(given_numbers)
    assert found.dtype == dtype
    assert found.tolist() == sorted(set(given_numbers.tolist()))


VALUES: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.string(): st.text(max_size=5),
    pa.binary(): st.binary(max_size=5),
    pa.bool_(): st.booleans(),
    pa.int64(): st.integers(-(1 << 63), (1 << 63) - 1),
    pa.int32(): st.integers(-(1 << 31), (1 << 31) - 1),
    pa.float64(): st.floats(),
    pa.float32(): st.floats(width=32),
    pa.decimal128(9, 2): st.decimals(-1000, 1000, places=2),
    pa.date32(): st.dates(),
}


@given(
    st.sampled_from(list(VALUES)).flatmap(
        lambda kind: st.tuples(st.just(kind), st.lists(st.none() | VALUES[kind]))
    )
)
def test_values_as_pyarrow_makes_them(case: tuple[pa.DataType, list[Any]]) -> None:
    kind, values = case
    made = arrays.values_array(values, kind)
    made.validate(full=True)
    expected = pa.array(values, kind)
    assert made.type == kind and made.null_count == expected.null_count
    # NaN equals nothing, but it is shown.
    assert made.equals(expected) or repr(made.to_pylist()) == repr(expected.to_pylist())


@pytest.mark.parametrize(
    ("values", "kind"),
    [([1 << 70], pa.int64()), (["a", b"b"], pa.bool_()), ([True], pa.string())],
)
def test_values_of_another_type_are_refused_as_pyarrow_does(values: list[Any], kind: pa.DataType) -> None:
    with pytest.raises((pa.ArrowInvalid, pa.ArrowTypeError, OverflowError)) as expected:
        pa.array(values, kind)
    with pytest.raises(expected.type):
        arrays.values_array(values, kind)


@pytest.mark.parametrize("kind", [pa.int64(), pa.int32(), pa.uint16(), pa.float32()])
def test_masked_numbers(kind: pa.DataType) -> None:
    numbers, valid = np.arange(20), np.arange(20) % 3 > 0
    made = arrays.masked_numbers(numbers, valid, kind)
    made.validate(full=True)
    assert made.equals(pa.array([n if n % 3 else None for n in range(20)], kind))
    assert arrays.masked_numbers(numbers, valid | True, kind).null_count == 0
    assert arrays.masked_numbers(numbers[:0], valid[:0], kind).equals(pa.nulls(0, kind))


def test_bytes_are_counted_of_views_too() -> None:
    plain = pa.array(range(100), pa.int64())
    assert arrays.bytes_of(plain.slice(10, 5)) == 40
    views = pa.array(["a text of some length"] * 10, pa.string_view())
    for rows in (views, pa.record_batch({"a": views}), pa.table({"a": views})):
        assert arrays.bytes_of(rows) >= 10 * 16


def test_bits_are_counted_without_numpy_2(monkeypatch: pytest.MonkeyPatch) -> None:
    words = np.array([0, 1, 2**64 - 1, 0x8080_8080_8080_8080, 0x0123_4567_89AB_CDEF], np.uint64)
    expected = [0, 1, 64, 8, 32]
    assert arrays.count_ones(words).tolist() == expected
    monkeypatch.delattr(np, "bitwise_count", raising=False)
    spec = importlib.util.spec_from_file_location("arrays_of_older_numpy", arrays.__file__)
    assert spec is not None
    assert spec.loader is not None
    older = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(older)
    assert older.count_ones(words).tolist() == expected
