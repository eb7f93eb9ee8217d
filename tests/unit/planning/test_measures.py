"""What an aggregation may ask, and what its columns are called."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from accel.errors import AccelError, ColumnNotFoundError, SchemaMismatchError
from accel.indexes.expressions import Expression
from accel.planning.aggregates import Function, check_aggregates, resolve_aggregates

SCHEMA = pa.schema(
    [
        ("x", pa.int32()),
        ("s", pa.string()),
        ("d", pa.date32()),
        ("st", pa.struct([("a", pa.int64()), ("b", pa.struct([("c", pa.string())]))])),
        ("a.b", pa.float64()),
        ("year(x)", pa.int8()),
        ("dic", pa.dictionary(pa.int8(), pa.large_string())),
        ("list", pa.list_(pa.int8())),
        ("id", pa.uuid()),
        ("nothing", pa.null()),
    ]
)


def test_names_are_those_of_pyarrow() -> None:
    asked = [
        ("x", "sum"),
        (["s"], "min"),
        ([], "count_all"),
        ((), "count_all"),
        ("st.b.c", "max"),
        ("lower(s)", "count"),
    ]
    plain = [("x", "sum"), (["s"], "min"), ([], "count_all")]
    table = SCHEMA.empty_table()
    names = [aggregate.name for aggregate in check_aggregates(asked)]
    assert names == ["x_sum", "s_min", "count_all", "count_all", "st.b.c_max", "lower(s)_count"]
    assert table.group_by([]).aggregate(plain).column_names == names[:3]


@pytest.mark.parametrize(
    ("asked", "error", "says"),
    [
        ("x", TypeError, "a list such as"),
        (7, TypeError, "a list such as"),
        ([], ValueError, "of nothing"),
        (["x"], TypeError, "a list such as"),
        (("x", "sum"), TypeError, "a list such as"),
        ({"x": "sum"}, TypeError, "a list such as"),
        ([("x",)], TypeError, "a pair"),
        ([("x", "median")], ValueError, "no aggregate 'median', only count, sum, min, max, count_all"),
        ([("x", "sum", None)], ValueError, "options are not taken"),
        ([(["x", "s"], "sum")], ValueError, "takes one column, not 2"),
        ([("x", "count_all")], ValueError, "takes no column"),
        ([([], "sum")], ValueError, "takes a column"),
        ([(7, "sum")], TypeError, "named by a string"),
        ([("x", ["sum"])], ValueError, "no aggregate"),
    ],
)
def test_what_is_no_aggregate(asked: Any, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        check_aggregates(asked)


def test_measures_are_columns_and_expressions_once_each() -> None:
    found = resolve_aggregates(
        check_aggregates(
            [
                ("x", "sum"),
                ("lower(s)", "max"),
                ([], "count_all"),
                ("x", "min"),
                ("st.a", "sum"),
                ("year(d)", "min"),
            ]
        ),
        SCHEMA,
    )
    assert found.of == (0, 1, -1, 0, 2, 3)
    assert [(m.path, m.of, m.type, m.functions) for m in found.measures] == [
        (("x",), Expression.VALUE, pa.int32(), {Function.SUM, Function.MIN}),
        (("s",), Expression.LOWER, pa.string(), {Function.MAX}),
        (("st", "a"), Expression.VALUE, pa.int64(), {Function.SUM}),
        (("d",), Expression.YEAR, pa.int64(), {Function.MIN}),
    ]
    assert found.project([0, 2]) == pa.schema([("x", pa.int32()), ("st", pa.struct([("a", pa.int64())]))])


def test_an_exact_name_goes_first() -> None:
    found = resolve_aggregates(check_aggregates([("a.b", "sum"), ("year(x)", "sum")]), SCHEMA)
    assert [(m.path, m.of) for m in found.measures] == [
        (("a.b",), Expression.VALUE),
        (("year(x)",), Expression.VALUE),
    ]


def test_structs_are_cut_down_to_what_is_meant() -> None:
    found = resolve_aggregates(check_aggregates([("st.b.c", "max"), ("st", "count")]), SCHEMA)
    assert found.project([0]).field("st").type == pa.struct([("b", pa.struct([("c", pa.string())]))])
    assert found.project([0, 1]).field("st").type == SCHEMA.field("st").type


@pytest.mark.parametrize(
    ("column", "function", "error"),
    [
        ("y", "sum", ColumnNotFoundError),
        ("lower(y)", "max", ColumnNotFoundError),
        ("upper(s)", "max", ColumnNotFoundError),
        ("s", "sum", SchemaMismatchError),
        ("d", "sum", SchemaMismatchError),
        ("list", "min", SchemaMismatchError),
        ("st", "max", SchemaMismatchError),
        ("id", "min", SchemaMismatchError),
        ("lower(x)", "min", SchemaMismatchError),
        ("year(s)", "count", SchemaMismatchError),
    ],
)
def test_what_has_no_meaning(column: str, function: str, error: type[AccelError]) -> None:
    with pytest.raises(error):
        resolve_aggregates(check_aggregates([(column, function)]), SCHEMA)


@pytest.mark.parametrize("column", ["list", "st", "id", "dic", "nothing"])
def test_everything_can_be_counted(column: str) -> None:
    assert resolve_aggregates(check_aggregates([(column, "count")]), SCHEMA).measures


def test_two_columns_of_a_name() -> None:
    twice = pa.schema([("x", pa.int8()), ("x", pa.int8())])
    with pytest.raises(SchemaMismatchError, match="several columns named 'x'"):
        resolve_aggregates(check_aggregates([("x", "sum")]), twice)
    assert resolve_aggregates(check_aggregates([([], "count_all")]), twice).measures == ()
