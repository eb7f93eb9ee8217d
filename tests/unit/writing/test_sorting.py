from __future__ import annotations

import datetime
import struct
import uuid
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from accel.writing import write_table
from tests.unit.writing.files import read_all

_DAYS = [datetime.date(2026, 1, day) for day in (1, 2, 3)]
_DECIMALS = [Decimal("-1.50"), Decimal("0.25"), Decimal("7.00")]
_WORDS = ["B", "a", "é"]
_KINDS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "decimal32": (pa.decimal32(5, 2), _DECIMALS),
    "decimal64": (pa.decimal64(15, 2), _DECIMALS),
    "decimal128": (pa.decimal128(30, 2), _DECIMALS),
    "decimal256": (pa.decimal256(50, 2), _DECIMALS),
    "float16": (pa.float16(), [-1.5, 0.25, 7.0]),
    "float32": (pa.float32(), [float("-inf"), 0.25, float("inf")]),
    "uint64": (pa.uint64(), [0, 5, 2**64 - 1]),
    "date32": (pa.date32(), _DAYS),
    "date64": (pa.date64(), _DAYS),
    "string": (pa.string(), _WORDS),
    "fixed": (pa.binary(2), [b"\x00\x00", b"\x7fa", b"\xffa"]),
    "uuid": (pa.uuid(), [uuid.UUID(int=1), uuid.UUID(int=2), uuid.UUID(int=2**127)]),
    "dictionary": (pa.dictionary(pa.int8(), pa.string()), _WORDS),
    "dictionary of numbers": (pa.dictionary(pa.int8(), pa.int64()), [-3, 4, 20]),
}


def _told(path: Path) -> list[tuple[int, bool, bool]]:
    keys = pq.read_metadata(path).row_group(0).sorting_columns
    return [(key.column_index, key.descending, key.nulls_first) for key in keys]


@pytest.mark.parametrize("keys", [["x"], ["x", ("n", "descending")]], ids=["one key", "several keys"])
@pytest.mark.parametrize("kind", _KINDS)
def test_every_type_with_an_order(tmp_path: Path, kind: str, keys: list[Any]) -> None:
    to, (low, middle, high) = _KINDS[kind]
    column = pa.chunked_array([pa.array([high, None], to), pa.array([low, high, middle], to)])
    table = pa.table({"point": [{"x": 1, "y": 2}] * 5, "n": range(5), "x": column})
    for name, direction in ("up", "ascending"), ("down", "descending"):
        path = tmp_path / name
        write_table(table, path, sort_by=[("x", direction), *keys[1:]])
        equal = [3, 0] if keys[1:] else [0, 3]
        order = [2, 4, *equal, 1] if direction == "ascending" else [*equal, 4, 2, 1]
        assert read_all(path).column("n").to_pylist() == order
        assert _told(path) == [(3, direction == "descending", False), (2, True, False)][: len(keys)]


_NAN, _INF = float("nan"), float("inf")


@pytest.mark.parametrize("to", [pa.float16(), pa.float32(), pa.float64()], ids=str)
@pytest.mark.parametrize("encoded", [False, True], ids=["plain", "dictionary"])
def test_nan_is_greatest_and_minus_zero_less_than_zero(
    tmp_path: Path, to: pa.DataType, *, encoded: bool
) -> None:
    column = pa.array([0.0, _NAN, -_INF, -0.0, None, 0.0, _INF, -1.0, _NAN, -0.0], to)
    table = pa.table({"n": range(10), "x": column.dictionary_encode() if encoded else column})
    for direction, order in (
        ("ascending", [2, 7, 3, 9, 0, 5, 6, 1, 8, 4]),
        ("descending", [1, 8, 6, 0, 5, 3, 9, 7, 2, 4]),
    ):
        write_table(table, tmp_path / direction, sort_by=[("x", direction), "n"])
        assert read_all(tmp_path / direction).column("n").to_pylist() == order
        assert _told(tmp_path / direction) == [(1, direction == "descending", False), (0, False, False)]


def test_a_nan_that_readers_place_differently_is_not_told(tmp_path: Path) -> None:
    """With a sign, as x86 makes of 0/0: below all numbers in total order, the greatest in SQL."""
    other = struct.unpack("<d", bytes.fromhex("000000000000f8ff"))[0]
    table = pa.table({"a": [2, 1, 1], "x": [1.0, other, 3.0], "b": [1, 2, 3]})
    write_table(table, tmp_path / "a.parquet", sort_by=["a", "x", "b"])
    assert read_all(tmp_path / "a.parquet").column("b").to_pylist() == [3, 2, 1]
    assert _told(tmp_path / "a.parquet") == [(0, False, False)]
    write_table(table, tmp_path / "a.parquet", sort_by=["x", "a"])
    assert _told(tmp_path / "a.parquet") == []


def test_nothing_is_told_behind_moments_that_are_truncated(tmp_path: Path) -> None:
    table = pa.table({"t": pa.array([1001, 1002], pa.timestamp("us")), "n": [2, 1]})
    cut: dict[str, Any] = {"coerce_timestamps": "ms", "allow_truncated_timestamps": True}
    write_table(table, tmp_path / "a.parquet", sort_by=["t", "n"], **cut)
    assert _told(tmp_path / "a.parquet") == [(0, False, False)]
    write_table(table, tmp_path / "a.parquet", sort_by=["t", "n"])
    assert _told(tmp_path / "a.parquet") == [(0, False, False), (1, False, False)]


def test_a_column_named_as_a_field_of_another(tmp_path: Path) -> None:
    table = pa.table({"a.b": [2, 1], "a": [{"b": 3}, {"b": 4}]})
    write_table(table, tmp_path / "a.parquet", sort_by="a.b")
    assert _told(tmp_path / "a.parquet") == [(0, False, False)]


@pytest.mark.parametrize(
    "column",
    [
        pytest.param(pa.array([[1]]), id="list"),
        pytest.param(pa.array([{"y": 1}]), id="struct"),
        pytest.param(pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int64())), id="map"),
    ],
)
def test_what_has_no_order(tmp_path: Path, column: pa.Array) -> None:
    with pytest.raises(ValueError, match=r"^sort_by: column 'x' is of type .*, which has no order$"):
        write_table(pa.table({"x": column}), tmp_path / "a.parquet", sort_by="x")


def test_no_keys(tmp_path: Path) -> None:
    write_table(pa.table({"x": [2, 1]}), tmp_path / "a.parquet", sort_by=[])
    assert read_all(tmp_path / "a.parquet").to_pydict() == {"x": [2, 1]}
    assert _told(tmp_path / "a.parquet") == []


def test_datafusion_trusts_what_is_told(tmp_path: Path) -> None:
    datafusion = pytest.importorskip("datafusion")
    table = pa.table(
        {"x": [1.0, _NAN, 2.0, None], "d": pa.array(_DECIMALS[::-1] + [None], pa.decimal64(15, 2))}
    )
    for name, keys in ("x", [("x", "descending")]), ("d", ["d", "x"]):
        write_table(table, tmp_path / f"{name}.parquet", sort_by=keys)
        context = datafusion.SessionContext()
        context.register_parquet("t", tmp_path / f"{name}.parquet")
        order = "x DESC NULLS LAST" if name == "x" else "d NULLS LAST, x NULLS LAST"
        found = context.sql(f"SELECT {name} FROM t ORDER BY {order} LIMIT 1").to_pydict()[name]
        assert str(found) == {"x": "[nan]", "d": "[Decimal('-1.50')]"}[name]
