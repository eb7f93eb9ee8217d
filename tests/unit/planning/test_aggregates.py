"""Figures folded from values, against pyarrow's own."""

from __future__ import annotations

import datetime
import decimal
import math
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from accel.arrays import relabel
from accel.errors import AccelError, ColumnNotFoundError, SchemaMismatchError
from accel.indexes.expressions import Expression
from accel.planning.aggregates import (
    Function,
    Tally,
    check_aggregates,
    finish,
    resolve_aggregates,
    tally_array,
    tally_constant,
)

D = decimal.Decimal
NAN = math.nan
DAY = datetime.date(2020, 2, 29)
BIG = (1 << 63) - 1

PLAIN: dict[str, pa.Array] = {
    "int8": pa.array([1, -5, None], pa.int8()),
    "int64 that overflows": pa.array([BIG, BIG, None, 7]),
    "uint8": pa.array([200, 100], pa.uint8()),
    "uint64 that overflows": pa.array([2**64 - 1, 2], pa.uint64()),
    "double": pa.array([1.5, None, -2.0]),
    "float": pa.array([1.1, 2.2], pa.float32()),
    "NaN among others": pa.array([NAN, 2.0, None, NAN, 1.0]),
    "nothing but NaN": pa.array([NAN, None, NAN]),
    "infinite": pa.array([math.inf, 1.0]),
    "both infinities": pa.array([math.inf, -math.inf]),
    "bool": pa.array([True, False, None, True]),
    "decimal": pa.array([D("1.25"), D("-2.50"), None]),
    "decimal that overflows": pa.array([D("9" * 38)] * 3, pa.decimal128(38, 0)),
    "decimal256": pa.array([D("1.25"), D("7" * 48)], pa.decimal256(52, 2)),
    "null": pa.nulls(3),
    "all null": pa.nulls(2, pa.int64()),
    "empty": pa.array([], pa.float64()),
}
ORDERED = PLAIN | {
    "string": pa.array(["b", "", None, "\U0001f600", "ä"]),
    "large_string": pa.array(["b", "a"], pa.large_string()),
    "binary": pa.array([b"\xff", b"a", None]),
    "fixed": pa.array([b"ab", b"\xff\x00"], pa.binary(2)),
    "date32": pa.array([DAY, None]),
    "date64": pa.array([DAY, DAY + datetime.timedelta(9)], pa.date64()),
    "timestamp": pa.array([5, None, -3], pa.timestamp("ns", "Europe/Vienna")),
    "time32": pa.array([5, 3], pa.time32("ms")),
    "time64": pa.array([5, 3], pa.time64("us")),
}
OWN: dict[str, tuple[pa.Array, dict[str, Any], pa.DataType, pa.DataType]] = {
    "half": (pa.array([1.5, None, 2.0], pa.float16()), {"sum": 3.5, "max": 2.0}, pa.float64(), pa.float16()),
    "decimal64": (
        pa.array([D("9" * 16 + ".25")] * 200, pa.decimal64(18, 2)),
        {"sum": D("9" * 16 + ".25") * 200, "max": D("9" * 16 + ".25")},
        pa.decimal128(38, 2),
        pa.decimal64(18, 2),
    ),
    "dictionary of numbers": (
        pa.array([3, None, 4]).dictionary_encode(),
        {"sum": 7, "max": 4},
        pa.int64(),
        pa.int64(),
    ),
    "runs": (pc.run_end_encode(pa.array([3, 3, 4])), {"sum": 10, "max": 4}, pa.int64(), pa.int64()),
}


def fold(array: pa.Array, function: str, step: int | None = None) -> pa.Array:
    found = resolve_aggregates(check_aggregates([("x", function)]), pa.schema([("x", array.type)]))
    total = Tally()
    for at in range(0, max(len(array), 1), step or max(len(array), 1)):
        total.add(tally_array(found.measures[0], array.slice(at, step)))
    out = finish(found.measures[0], Function(function), total)
    out.validate(full=True)
    return out


def same(a: Any, b: Any) -> bool:
    return bool(a == b) or (isinstance(a, float) and math.isnan(a) and math.isnan(b))


@pytest.mark.parametrize("step", [None, 1, 2])
@pytest.mark.parametrize(
    ("name", "function"),
    [(name, "sum") for name in PLAIN] + [(name, f) for name in ORDERED for f in ("min", "max", "count")],
)
def test_as_pyarrow_has_it(name: str, function: str, step: int | None) -> None:
    array = ORDERED[name]
    table = pa.Table.from_arrays([array], names=["x"])
    wanted = table.group_by([]).aggregate([("x", function)]).column(0)
    found = fold(array, function, step)
    assert found.type == wanted.type
    assert same(found[0].as_py(), wanted[0].as_py())


@pytest.mark.parametrize("name", OWN)
@pytest.mark.parametrize("function", ["sum", "max"])
def test_what_pyarrow_has_not(name: str, function: str) -> None:
    array, wanted, summed, plain = OWN[name]
    found = fold(array, function)
    assert found[0].as_py() == wanted[function]
    assert found.type == (summed if function == "sum" else plain)


@pytest.mark.parametrize("kind", [pa.string_view(), pa.binary_view(), pa.dictionary(pa.int8(), pa.string())])
def test_texts_that_pyarrow_does_not_compare(kind: pa.DataType) -> None:
    array = pa.array(["b", None, "a"]).cast(kind)
    assert [fold(array, f)[0].as_py() for f in ("min", "max", "count")] in (["a", "b", 2], [b"a", b"b", 2])


_TEXTS = [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())]


@pytest.mark.parametrize("kind", _TEXTS, ids=str)
def test_texts_that_are_not_utf8(kind: pa.DataType) -> None:
    plain = pa.array([b"a", None, b"\xff" * 20, b"B"]).view(pa.string())
    array = plain.dictionary_encode() if pa.types.is_dictionary(kind) else _relabelled(plain, kind)
    schema = pa.schema([("s", array.type)])
    asked = [("s", "min"), ("s", "max"), ("lower(s)", "count")]
    found = resolve_aggregates(check_aggregates(asked), schema)
    text, folded = (tally_array(measure, array) for measure in found.measures)
    ends = [finish(found.measures[0], function, text) for function in (Function.MIN, Function.MAX)]
    assert [end.type for end in ends] == [found.measures[0].type] * 2
    assert [end[0].as_buffer().to_pybytes() for end in ends] == [b"B", b"\xff" * 20]
    assert finish(found.measures[1], Function.COUNT, folded).to_pylist() == [3]
    [least] = resolve_aggregates(check_aggregates([("lower(s)", "min")]), schema).measures
    with pytest.raises(SchemaMismatchError, match=r"^column s: lower\(\) of text that is not UTF-8$"):
        tally_array(least, array)


def _relabelled(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """The same bytes as another type of text; a cast would look at them."""
    binary = {pa.string(): pa.binary(), pa.large_string(): pa.large_binary()}.get(kind, pa.binary_view())
    return relabel(array.view(pa.binary()).cast(binary), kind)


@pytest.mark.parametrize("values", [[-0.0], [0.0, -0.0], [-0.0, 0.0]])
def test_a_zero_has_no_sign(values: list[float]) -> None:
    for function in ("min", "max", "sum"):
        assert math.copysign(1.0, fold(pa.array(values), function)[0].as_py()) == 1.0


def test_the_field_of_an_expression() -> None:
    schema = pa.schema([("s", pa.string()), ("d", pa.date32())])
    found = resolve_aggregates(check_aggregates([("lower(s)", "min"), ("year(d)", "sum")]), schema)
    lower = tally_array(found.measures[0], pa.array(["B", None, "Ab", "STRASSE"]))
    assert finish(found.measures[0], Function.MIN, lower).to_pylist() == ["ab"]
    year = tally_array(found.measures[1], pa.array([DAY, None, DAY]))
    assert finish(found.measures[1], Function.SUM, year).to_pylist() == [4040]


@pytest.mark.parametrize(
    ("value", "rows", "wanted"),
    [
        (pa.scalar(7), 3, (3, 7, 7, 21)),
        (pa.scalar(7), 0, (0, None, None, 0)),
        (pa.scalar(None, pa.int64()), 3, (0, None, None, 0)),
        (pa.scalar(-0.5), 2, (2, -0.5, -0.5, -1.0)),
    ],
)
def test_rows_of_one_value(value: pa.Scalar, rows: int, wanted: tuple[Any, ...]) -> None:
    asked = [("x", "sum"), ("x", "min"), ("x", "max")]
    found = resolve_aggregates(check_aggregates(asked), pa.schema([("x", value.type)]))
    tally = tally_constant(found.measures[0], value, rows=rows)
    assert (tally.count, tally.low, tally.high, tally.total) == wanted


def test_columns_in_several_chunks() -> None:
    array = pa.chunked_array([pa.array([1, 2]), pa.array([], pa.int64()), pa.array([None, 4])])
    found = resolve_aggregates(check_aggregates([("x", "sum")]), pa.schema([("x", pa.int64())]))
    assert tally_array(found.measures[0], array) == Tally(count=3, total=7)
    assert np.int64(7) == tally_array(found.measures[0], array).total


# -- measures ---------------------------------------------------------------------------------------


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
