"""Texts of DuckLake's catalogs become values, or errors."""

from __future__ import annotations

import datetime
import decimal
import uuid
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accel.errors import TableFormatError
from accel.tables.formats.ducklake.types import LakeColumn, column_tree
from accel.tables.formats.ducklake.values import decode_value, named_value


def column(kind: str, *children: LakeColumn, name: str = "c", number: int = 1) -> LakeColumn:
    return LakeColumn(number, name, kind, True, None, children)


def value_of(value: Any, kind: str) -> Any:
    have = column(kind)
    return pa.array([named_value(decode_value(value, have), have)], have.arrow())[0].as_py()


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("boolean", "true", True),
        ("boolean", 0, False),
        ("int8", -5, -5),
        ("uint64", "18000000000000000000", 18_000_000_000_000_000_000),
        ("int128", "-170141183460469231731687303715884105727", -1.7014118346046923e38),
        ("float64", "-inf", float("-inf")),
        ("float64", "1e-300", 1e-300),
        ("decimal(9,3)", "-1.500", decimal.Decimal("-1.500")),
        ("date", "0044-03-15", datetime.date(44, 3, 15)),
        ("timestamp", "2024-02-29 01:02:03.5", datetime.datetime(2024, 2, 29, 1, 2, 3, 500_000)),
        ("timestamp_ms", "1969-12-31 23:59:59.25", datetime.datetime(1969, 12, 31, 23, 59, 59, 250_000)),
        ("timestamptz", "2024-01-01 01:00:00+05:30", datetime.datetime(2023, 12, 31, 19, 30, tzinfo=datetime.UTC)),
        ("timestamptz", "2024-01-01 01:00:00.25-05", datetime.datetime(2024, 1, 1, 6, 0, 0, 250_000, datetime.UTC)),
        ("time", "23:59:59.999999", datetime.time(23, 59, 59, 999_999)),
        ("timetz", "01:00:00+02", datetime.time(23, 0)),
        ("varchar", "NULL", "NULL"),
        ("varchar", "aé".encode(), "aé"),
        ("blob", b"\x00\xff", b"\x00\xff"),
        ("blob", r"\x00\xFFab", b"\x00\xffab"),
        ("json", '{"a": 1}', '{"a": 1}'),
        ("interval", "14 months 2 days 01:00:03.25", None),
        ("varchar", None, None),
        ("uuid", str(uuid.UUID(int=7)), uuid.UUID(int=7)),
    ],
)  # fmt: skip
def test_scalars(kind: str, text: Any, value: Any) -> None:
    if kind == "interval":
        value = b"".join(part.to_bytes(4, "little") for part in (14, 2, 3_603_250))
    assert value_of(text, kind) == value


def test_days_and_instants_beyond_the_years_of_python() -> None:
    assert decode_value("infinity", column("date")) == 2**31 - 1
    assert decode_value("-infinity", column("timestamp")) == -(2**63 - 1)
    assert decode_value("0001-01-01 (BC)", column("date")) == -719_528
    assert decode_value("10000-01-01", column("date")) == 2_932_897


@given(st.dates())
def test_days(day: datetime.date) -> None:
    assert decode_value(day.isoformat(), column("date")) == (day - datetime.date(1970, 1, 1)).days


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("int32", "x"), ("int32", "1_0"), ("int32", "1.5"), ("int32", b"\xff"), ("boolean", "yes"),
        ("float64", "1_0"), ("float64", "0x1"), ("float64", "1" * 1000), ("decimal(4,1)", "1e5"),
        ("date", "2024-13-01"), ("date", "tomorrow"), ("timestamp", "2024-01-01 00:00:00+00"),
        ("timestamp", "noon"), ("time", "1 o'clock"), ("uuid", "x"), ("varchar", b"\xff"), ("varchar", 5),
        ("interval", "-1 days"), ("interval", "soon"), ("struct", "{}"), ("variant", "x"),
    ],
)  # fmt: skip
def test_what_is_no_value_is_an_error(kind: str, text: Any) -> None:
    with pytest.raises(TableFormatError, match="for the column 'c'"):
        decode_value(text, column(kind))


TEXT = column("varchar", name="b", number=3)
STRUCT = column("struct", column("int32", name="a", number=2), TEXT)
LIST = column("list", column("varchar", name="element", number=2))
MAP = column("map", column("varchar", name="key", number=2), column("int32", name="value", number=3))


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (STRUCT, "{'a': 1, 'b': 'it''s {x}, \\'}", {2: 1, 3: "it's {x}, \\"}),
        (STRUCT, "{'a': NULL, 'b': NULL}", {2: None, 3: None}),
        (STRUCT, "{'a': 1, 'b': CONCAT('a', chr(0), 'b')}", {2: 1, 3: "a\0b"}),
        (STRUCT, "{'a': 1, 'b': plain text}", {2: 1, 3: "plain text"}),
        (LIST, r"['it\'s', plain, NULL, 'NULL', '', 'a\\b', 'a, b']", ["it's", "plain", None, "NULL", "", "a\\b", "a, b"]),
        (LIST, "[]", []),
        (LIST, r"[back\slash]", ["back\\slash"]),
        (MAP, "{k=1, 'a=b'=NULL, ''=3}", [("k", 1), ("a=b", None), ("", 3)]),
        (column("struct", column("timestamp", name="t", number=2)), "{'t': CAST('1970-01-01 00:00:01' AS TIMESTAMP)}", {2: 10**6}),
        (column("struct", column("float64", name="f", number=2)), "{'f': CAST('-inf' AS VARCHAR)}", {2: float("-inf")}),
        (column("list", column("struct", column("timestamp", name="t", number=5), number=4)), "[{'t': '1970-01-01 00:00:01'}, NULL]", [{5: 10**6}, None]),
    ],
)  # fmt: skip
def test_nested_values(kind: LakeColumn, text: str, value: Any) -> None:
    assert decode_value(text, kind) == value


@given(st.text(max_size=40), st.sampled_from([STRUCT, LIST, MAP]))
def test_any_text_is_a_nested_value_or_an_error(text: str, kind: LakeColumn) -> None:
    for spelt in (text, f"[{text}]", f"{{{text}}}", f"{{'a': 1, 'b': {text}}}"):
        try:
            decode_value(spelt, kind)
        except TableFormatError:
            continue


@given(st.lists(st.none() | st.text(max_size=10), max_size=5))
def test_lists_as_duckdb_shows_them(words: list[str | None]) -> None:
    quoted = ", ".join(
        "NULL" if word is None else "'" + word.replace("\\", "\\\\").replace("'", "\\'") + "'"
        for word in words
    )
    assert decode_value(f"[{quoted}]", LIST) == words


@pytest.mark.parametrize(
    "text", ["{'a': 1}", "{'a': 1, 'a': 2}", "{'a': 1, 'z': 2}", "{'a': 1, 'b': 'x}", "{'a': 1, 'b': x"]
)
def test_structs_of_other_fields_are_errors(text: str) -> None:
    with pytest.raises(TableFormatError):
        decode_value(text, STRUCT)


def test_structs_are_named_by_their_fields() -> None:
    inner = column("list", column("struct", column("int32", name="x", number=5), name="element", number=4))
    kind = column("struct", TEXT, LakeColumn(6, "l", "list", True, None, inner.children))
    value = {3: "t", 6: [{5: 1}, None]}
    assert named_value(value, kind) == {"b": "t", "l": [{"x": 1}, None]}
    assert named_value([("k", 1), ("l", None)], MAP) == [("k", 1), ("l", None)]
    assert named_value(None, kind) is None


def test_columns_form_a_tree() -> None:
    rows = [
        (4, None, 2, "m", "map", True, None), (1, None, 1, "s", "struct", True, None),
        (2, 1, 1, "x", "int32", True, None), (3, 1, 2, "y", "list", True, None),
        (7, 3, 1, "element", "decimal(9,2)", True, None), (5, 4, 1, "key", "varchar", True, None),
        (6, 4, 2, "value", "uuid", True, None),
    ]  # fmt: skip
    struct, mapping = column_tree(rows)
    assert struct.arrow() == pa.struct(
        [("x", pa.int32()), ("y", pa.list_(pa.field("element", pa.decimal128(9, 2))))]
    )
    assert mapping.arrow() == pa.map_(pa.string(), pa.uuid())
    for spoilt in (
        [*rows, rows[0]],
        [(9, 8, 1, "lost", "int32", True, None)],
        [(1, 1, 1, "own", "int32", True, None)],
    ):
        with pytest.raises(TableFormatError):
            column_tree(spoilt)
    deep = [(at, at - 1 or None, 1, "s", "struct", True, None) for at in range(1, 5000)]
    with pytest.raises(TableFormatError, match="deeper"):
        column_tree(deep)
