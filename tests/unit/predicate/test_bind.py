"""Names become columns, also in schemas with dots in their names; what has no meaning is refused at its
place."""

from __future__ import annotations

import itertools
import pickle
import time
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import accel
from accel.errors import AccelError, ColumnNotFoundError, PredicateError
from accel.predicate.atoms import (
    Against,
    AllOf,
    Among,
    AnyOf,
    Bound,
    BoundColumn,
    Fixed,
    IsTrue,
    Negation,
    Null,
    Order,
    Pair,
    Truth,
)
from accel.predicate.bind import KeyCache, bind, binds_long, resolve
from accel.predicate.evaluate import outcome
from accel.predicate.expr import (
    And,
    Column,
    Compare,
    Constant,
    InArray,
    InList,
    IsNull,
    Like,
    Literal,
    Not,
    Op,
    Or,
    column_named,
)
from accel.predicate.parser import parse
from accel.predicate.where import to_expr
from accel.testing import DictStore, write_file
from tests.oracle import rowwise

POINT = pa.struct([("x", pa.int32()), ("y.z", pa.int32()), ("inner", pa.struct([("w", pa.string())]))])
SCHEMA = pa.schema(
    [
        ("a", pa.int64()),
        ("p", POINT),
        ("p.x", pa.string()),
        ("list", pa.list_(pa.int8())),
        ("twice", pa.int8()),
        ("twice", pa.int8()),
        ("Name", pa.string()),
        ("nothing", pa.null()),
        ("flag", pa.bool_()),
        ("id", pa.uuid()),
        ("raw", pa.binary(16)),
        ("seconds", pa.duration("s")),
        ("day", pa.date32()),
    ]
)


@pytest.mark.parametrize(
    ("column", "path", "kind"),
    [
        (Column(("a",)), ("a",), pa.int64()),
        (Column(("p", "x"), head=2, whole_first=True), ("p.x",), pa.string()),
        (Column(("p", "inner", "w")), ("p", "inner", "w"), pa.string()),
        (column_named("p.inner.w"), ("p", "inner", "w"), pa.string()),
        (Column(("p", "y.z")), ("p", "y.z"), pa.int32()),
        (Column(("p",)), ("p",), POINT),
    ],
    ids=["plain", "exact-name-wins", "path", "named", "quoted-part", "struct"],
)
def test_columns_are_found(column: Column, path: tuple[str, ...], kind: pa.DataType) -> None:
    assert bind(IsNull(column), SCHEMA) == Bound((BoundColumn(path, kind),), Null(0))


@pytest.mark.parametrize(
    ("column", "error", "message"),
    [
        (Column(("aa",)), ColumnNotFoundError, "no column 'aa' (did you mean 'a'?)"),
        (Column(("name",)), ColumnNotFoundError, "no column 'name' (did you mean 'Name'?)"),
        (
            column_named("p.inner.v"),
            ColumnNotFoundError,
            "no column 'p.inner.v': no 'v' in 'p.inner' (there are: w)",
        ),
        (
            Column(("p.inner.w",)),
            ColumnNotFoundError,
            "no column 'p.inner.w'",
        ),
        (Column(("a", "b"), head=2, position=7), PredicateError, "column 'a' is int64 and has no field 'b'"),
        (Column(("list", "item"), head=2), PredicateError, "a dotted path goes through structs only"),
        (Column(("twice",)), PredicateError, "column 'twice' is ambiguous"),
    ],
    ids=["close", "case", "in-struct", "quoted-is-one-name", "not-a-struct", "list", "ambiguous"],
)
def test_columns_that_are_not_there(column: Column, error: type[Exception], message: str) -> None:
    with pytest.raises(error) as caught:
        bind(IsNull(column), SCHEMA)
    assert message in str(caught.value)
    if isinstance(caught.value, PredicateError):
        assert caught.value.position == (7 if column.position == 7 else None)


A, FLAG, NOTHING = Column(("a",)), Column(("flag",)), Column(("nothing",))
FIVE = Literal(5)


@pytest.mark.parametrize(
    ("expr", "root"),
    [
        (Compare(Op.EQ, A, FIVE), Against(0, Order.EQ, 5)),
        (Compare(Op.NE, A, FIVE), Negation(Against(0, Order.EQ, 5))),
        (Compare(Op.LT, A, FIVE), Against(0, Order.LE, 4)),
        (Compare(Op.GE, A, FIVE), Negation(Against(0, Order.LE, 4))),
        (Compare(Op.GT, FIVE, A), Against(0, Order.LE, 4)),
        (Not(Compare(Op.GT, A, FIVE)), Against(0, Order.LE, 5)),
        (Compare(Op.DISTINCT, A, FIVE), Negation(IsTrue(Against(0, Order.EQ, 5)))),
        (Compare(Op.EQ, A, Literal(None)), Truth(None)),
        (Compare(Op.DISTINCT, A, Literal(None)), Negation(Null(0))),
        (Compare(Op.NOT_DISTINCT, Literal(None), A), Null(0)),
        (Compare(Op.EQ, A, Literal(7.5)), Fixed(0, False)),
        (Compare(Op.LT, A, Literal(7.5)), Against(0, Order.LE, 7)),
        (Compare(Op.EQ, NOTHING, FIVE), Truth(None)),
        (Compare(Op.DISTINCT, NOTHING, FIVE), Negation(Truth(False))),
        (Compare(Op.NOT_DISTINCT, NOTHING, Literal(None)), Truth(True)),
        (Compare(Op.LE, A, Column(("a",))), Pair(0, 0, Order.LE)),
        (Compare(Op.EQ, A, NOTHING), Truth(None)),
        (FLAG, Against(0, Order.EQ, True)),
        (Compare(Op.GT, FLAG, Literal(False)), Negation(Against(0, Order.EQ, False))),
        (NOTHING, Truth(None)),
        (IsNull(NOTHING), Truth(True)),
        (Constant(None), Truth(None)),
        (InList(A, ()), Truth(False)),
        (InList(A, (5,)), Against(0, Order.EQ, 5)),
        (InList(A, (5.5, None)), Truth(None)),
        (InList(A, (2**70, 0.5)), Fixed(0, False)),
        (InList(FLAG, (True, False)), Fixed(0, True)),
        (InList(FLAG, (True, None)), AnyOf((Against(0, Order.EQ, True), Truth(None)))),
        (Like(Column(("Name",)), "abc"), Against(0, Order.EQ, b"abc")),
        (Like(Column(("Name",)), "%%"), Fixed(0, True)),
        (Compare(Op.EQ, Column(("seconds",)), Literal(3)), Against(0, Order.EQ, 3)),
        (
            And((And((A_IS := IsNull(A), Constant(True))), Constant(False))),
            AllOf((Null(0), Truth(True), Truth(False))),
        ),
        (Or((Or((A_IS, A_IS)), A_IS)), AnyOf((Null(0), Null(0), Null(0)))),
    ],
    ids=str,
)
def test_the_normal_form(expr: object, root: object) -> None:
    assert bind(expr, SCHEMA).root == root  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "expr",
    [
        Compare(Op.EQ, A, Literal("5", position=4)),
        Compare(Op.EQ, A, Literal(True, position=4)),
        Compare(Op.EQ, A, Literal(b"5", position=4)),
        Compare(Op.EQ, FLAG, Literal(1, position=4)),
        Compare(Op.EQ, Column(("Name",)), Literal(1, position=4)),
        Compare(Op.EQ, Column(("day",)), Literal(1, position=4)),
        Compare(Op.EQ, Column(("day",)), Literal("yesterday", position=4)),
        Compare(Op.EQ, Column(("day",)), Literal("2013-02-30", position=4)),
        Compare(Op.EQ, Column(("id",)), Literal("0011", position=4)),
        Compare(Op.EQ, Column(("seconds",)), Literal(1.5, position=4)),
        Compare(Op.EQ, Column(("p",), position=4), Literal(1)),
        Compare(Op.EQ, Column(("list",), position=4), Literal(None)),
        Compare(Op.EQ, A, Column(("Name",), position=4)),
        Compare(Op.EQ, Column(("id",)), Column(("Name",), position=4)),
        InList(A, (1, "x"), position=4),
        pytest.param(InArray(A, pa.array(["x"]), position=4), id="InArray"),
        Like(A, "5%", position=4),
        Like(Column(("raw",)), "5%", position=4),
        Like(Column(("Name",)), "ab\\", position=4),
        Column(("a",), position=4),
        Compare(Op.EQ, Literal(1), Literal(1), position=4),
        Compare(Op.EQ, Column(("Name",)), Literal("\ud800", position=4)),
    ],
    ids=str,
)
def test_what_cannot_be_compared_is_refused_at_its_place(expr: object) -> None:
    with pytest.raises(PredicateError) as caught:
        bind(expr, SCHEMA)  # type: ignore[arg-type]
    assert caught.value.position == 4


RANGES = pa.schema(
    [
        ("a", pa.int64()),
        ("u", pa.uint8()),
        ("f", pa.float64()),
        ("s", pa.string()),
        ("d", pa.date32()),
        ("n", pa.decimal128(9, 2)),
    ]
)
AT_FIVE, UP_TO_FIVE = Against(0, Order.EQ, 5), Against(0, Order.LE, 5)


@pytest.mark.parametrize(
    ("where", "root"),
    [
        ("a BETWEEN 5 AND 5", AT_FIVE),
        ("a <= 5 AND a >= 5", AT_FIVE),
        ("a > 4 AND a < 6", AT_FIVE),
        ("a > 4.5 AND a < 5.5", AT_FIVE),
        ("NOT (a < 5 OR a > 5)", AT_FIVE),
        ("a < 5 OR a > 5", Negation(AT_FIVE)),
        ("a < 5 OR a > 6", AnyOf((Against(0, Order.LE, 4), Negation(Against(0, Order.LE, 6))))),
        ("a >= 5 AND (a <= 9 AND a <= 5)", AllOf((AT_FIVE, Against(0, Order.LE, 9)))),
        ("a >= 5 AND a <= 5 AND a >= 5", AllOf((AT_FIVE, Negation(Against(0, Order.LE, 4))))),
        ("a >= 5 AND f <= 5", AllOf((Negation(Against(0, Order.LE, 4)), Against(1, Order.LE, 5.0)))),
        ("a >= 6 AND a <= 5", AllOf((Negation(UP_TO_FIVE), UP_TO_FIVE))),
        ("u >= 255 AND u <= 255", Against(0, Order.EQ, 255)),
        ("u >= 0 AND u <= 0", Against(0, Order.EQ, 0)),
        ("u < 0 OR u > 0", Negation(Against(0, Order.EQ, 0))),
        ("u <= 300 AND u <= 0", Against(0, Order.EQ, 0)),
        (
            "u <= 300 AND u <= 0 AND u >= 255",
            AllOf((Against(0, Order.EQ, 0), Negation(Against(0, Order.LE, 254)))),
        ),
        ("f BETWEEN 0.5 AND 0.5", Against(0, Order.EQ, 0.5)),
        ("f BETWEEN -0.0 AND 0.0", Against(0, Order.EQ, 0.0)),
        ("f >= 0.5 AND f < 0.5", AllOf((Negation(Against(0, Order.LT, 0.5)), Against(0, Order.LT, 0.5)))),
        ("f > 0.5 AND f <= 0.5", AllOf((Negation(Against(0, Order.LE, 0.5)), Against(0, Order.LE, 0.5)))),
        ("f < 0.5 OR f > 0.5", Negation(Against(0, Order.EQ, 0.5))),
        ("f <= 0.5 OR f > 0.5", AnyOf((Against(0, Order.LE, 0.5), Negation(Against(0, Order.LE, 0.5))))),
        ("s BETWEEN 'x' AND 'x'", Against(0, Order.EQ, b"x")),
        ("d BETWEEN DATE '1970-01-06' AND DATE '1970-01-06'", AT_FIVE),
        ("d >= DATE '1970-01-06' AND d < DATE '1970-01-07'", AT_FIVE),
        ("n BETWEEN 0.05 AND 0.05", AT_FIVE),
    ],
)
def test_a_range_of_one_value_is_an_equality(where: str, root: object) -> None:
    assert bind(to_expr(where), RANGES).root == root


ENDS = {
    "a": ([None, 4, 5, 6, -(2**63), 2**63 - 1], ["4", "5", "5.5", "6", str(2**63 - 1), str(-(2**63))]),
    "u": ([None, 0, 1, 254, 255], ["-1", "0", "1", "254", "255", "256"]),
    "f": (
        [None, 0.0, -0.0, 0.5, float("nan"), float("inf"), float("-inf")],
        ["0.0", "-0.0", "0.5", "DOUBLE 'NaN'", "DOUBLE 'Infinity'", "DOUBLE '-Infinity'"],
    ),
    "s": ([None, "", "w", "x", "xx"], ["''", "'w'", "'x'", "'xx'"]),
}


@pytest.mark.parametrize("name", ENDS)
def test_ranges_of_one_value_hold_the_rows_that_both_ends_hold(name: str) -> None:
    cells, literals = ENDS[name]
    table = pa.table({name: pa.array(cells, RANGES.field(name).type)})
    found, wanted = {}, {}
    for first, second in itertools.product(itertools.product(["<", "<=", ">", ">="], literals), repeat=2):
        for word in ("AND", "OR"):
            where = f"{name} {' '.join(first)} {word} {name} {' '.join(second)}"
            bound = bind(to_expr(where), table.schema)
            found[where] = outcome(bound, {(name,): table.column(0).chunk(0)}, len(cells)).to_pylist()
            wanted[where] = rowwise.evaluate(to_expr(where), table)
    assert found == wanted


def test_uuid_compares_with_its_bytes() -> None:
    bound = bind(Compare(Op.EQ, Column(("id",)), Column(("raw",))), SCHEMA)
    assert bound.root == Pair(0, 1, Order.EQ)


def test_each_column_stands_once_in_order_of_appearance() -> None:
    expr = Or(
        (
            Compare(Op.EQ, column_named("p.x"), Literal("")),
            IsNull(A),
            Compare(Op.LT, A, column_named("p.inner.x")),
        )
    )
    with pytest.raises(ColumnNotFoundError):
        bind(expr, SCHEMA)
    expr = Or((IsNull(column_named("p.x")), IsNull(A), Compare(Op.LT, A, A)))
    assert [column.path for column in bind(expr, SCHEMA).columns] == [("p.x",), ("a",)]


def test_bound_predicates_pickle() -> None:
    expr = And((InList(A, (1, 2, None)), Like(Column(("Name",)), "a%"), IsNull(column_named("p.inner.w"))))
    bound = bind(expr, SCHEMA)
    copy = pickle.loads(pickle.dumps(bound))
    assert copy.columns == bound.columns
    assert copy.root.operands[1:] == bound.root.operands[1:]
    assert copy.root.operands[0].keys.values.equals(bound.root.operands[0].keys.values)


def test_long_chains_need_no_stack() -> None:
    chain: object = IsNull(A)
    for _ in range(20_000):
        chain = And((chain, IsNull(A)))  # type: ignore[arg-type]
    assert len(bind(chain, SCHEMA).root.operands) == 20_001  # type: ignore[arg-type, union-attr]


def test_deep_nesting_is_an_error_of_ours() -> None:
    deep: object = IsNull(A)
    for i in range(20_000):
        deep = (And if i % 2 else Or)((deep, IsNull(A)))  # type: ignore[arg-type]
    with pytest.raises(PredicateError, match="nested too deeply"):
        bind(deep, SCHEMA)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("where", "as_if"),
    [
        ("a = 1.00000000000000000000001", "a = 1"),
        ("a < 0.99999999999999999999", "a < 1"),
        ("a > 9007199254740993", "a > 9007199254740992"),
        ("a IS DISTINCT FROM 1.00000000000000000000001", "a IS DISTINCT FROM 1"),
        ("a IN (1.00000000000000000000001, 2, NULL)", "a IN (1, 2, NULL)"),
        ("a NOT IN (1.5, DOUBLE 'NaN', 3)", "a NOT IN (3, 3)"),
        ("a = 0.1", "a = 0.1"),
        ("a IS NULL", "a IS NULL"),
    ],
)
def test_whole_numbers_that_are_meant_as_floats(where: str, as_if: str) -> None:
    kind = pa.int64()
    schema, meant = pa.schema([("a", kind)]), pa.schema([("a", pa.float64())])
    values = {("a",): pa.array([None, -1, 0, 1, 2, 3, 2**53, 2**53 + 1], kind)}

    def answers(bound: Bound) -> list[bool | None]:
        return outcome(bound, values, 8).to_pylist()  # type: ignore[no-any-return]

    assert answers(bind(to_expr(where), schema, query_schema=meant)) == answers(bind(to_expr(as_if), schema))
    assert answers(bind(to_expr(where), schema, query_schema=schema)) == answers(bind(to_expr(where), schema))


def test_a_hundred_thousand_keys_bind_in_no_time() -> None:
    keys = pa.array(range(100_000, 0, -1), pa.int32())
    start = time.perf_counter()
    root = bind(InArray(A, keys), SCHEMA).root
    assert isinstance(root, Among)
    assert (len(root.keys.values), root.keys.values.type, root.with_null) == (100_000, pa.int64(), False)
    assert root.keys.sorted.tolist() == list(range(1, 100_001))
    assert time.perf_counter() - start < 1  # measured 3 ms; a loop over Python values takes more


@pytest.mark.parametrize(
    ("where", "long"),
    [
        ("a = 1", False),
        (f"a IN ({', '.join(map(str, range(900)))})", False),
        (" OR ".join(f"a = {i}" for i in range(300)), False),
        (" OR ".join(f"NOT (a < {i} AND a > {i})" for i in range(300)), True),
        ([("a", "in", range(10_000))], True),
        ([("a", "not in", np.arange(10_000))], True),
    ],
    ids=["one", "900 keys", "300 conditions", "600 conditions", "10,000 keys", "an array"],
)
def test_what_binds_long(where: Any, long: bool) -> None:
    expr = to_expr(where)
    assert expr is not None
    assert binds_long(expr) is long


def test_keys_are_found_once_for_each_kind_of_column() -> None:
    known: KeyCache = {}
    expr = InArray(A, pa.array(range(100)))
    first = bind(expr, SCHEMA, key_cache=known).root
    assert bind(expr, SCHEMA, key_cache=known).root.keys is first.keys  # type: ignore[union-attr]
    other = bind(expr, pa.schema([("a", pa.int8())]), key_cache=known).root
    assert other.keys.values.type == pa.int8()  # type: ignore[union-attr]
    assert bind(InArray(A, pa.array(range(100))), SCHEMA, key_cache=known).root.keys is not first.keys  # type: ignore[union-attr]


def struct(**kinds: pa.DataType) -> pa.DataType:
    return pa.struct(list(kinds.items()))


INT, TEXT = pa.int64(), pa.string()
DOTTED = pa.schema(
    [
        ("a.b", struct(x=INT, y=struct(z=INT))),
        ("a", struct(b=struct(x=TEXT, w=TEXT))),
        ("a.b.y", struct(v=TEXT)),
        ("whole.name", INT),
        ("twice.x", struct(n=INT)),
        ("twice.x", struct(n=INT)),
    ]
)


@pytest.mark.parametrize(
    ("name", "field", "whole"),
    [
        # The path that text means by it, and that a name in Python means.
        ("a.b", ("a", "b"), ("a.b",)),
        ("a.b.x", ("a", "b", "x"), ("a.b", "x")),
        ("a.b.w", ("a", "b", "w"), ("a", "b", "w")),
        ("a.b.y", ("a.b", "y"), ("a.b.y",)),
        ("a.b.y.z", ("a.b", "y", "z"), ("a.b", "y", "z")),
        ("a.b.y.v", ("a.b.y", "v"), ("a.b.y", "v")),
        ("whole.name", ("whole.name",), ("whole.name",)),
    ],
)
def test_what_dots_that_may_be_part_of_a_name_mean(
    name: str, field: tuple[str, ...], whole: tuple[str, ...]
) -> None:
    assert (resolve(parse_column(name), DOTTED).path, resolve(column_named(name), DOTTED).path) == (
        field,
        whole,
    )


@pytest.mark.parametrize(
    ("text", "path", "kind"),
    [
        ('"a.b"', ("a.b",), DOTTED.field("a.b").type),
        ('"a"."b"', ("a", "b"), DOTTED.field("a").type.field("b").type),
        ('"a".b', ("a", "b"), DOTTED.field("a").type.field("b").type),
        ('a."b"', ("a", "b"), DOTTED.field("a").type.field("b").type),
        ('"a"."b"."x"', ("a", "b", "x"), TEXT),
        ('"a.b".x', ("a.b", "x"), INT),
        ('a.b."x"', ("a", "b", "x"), TEXT),
        ('a.b."y".z', ("a.b", "y", "z"), INT),
        ('"a.b.y"."v"', ("a.b.y", "v"), TEXT),
        ('"whole.name"', ("whole.name",), INT),
    ],
)
def test_names_in_quotes_are_exact(text: str, path: tuple[str, ...], kind: pa.DataType) -> None:
    assert resolve(parse_column(text), DOTTED) == BoundColumn(path, kind)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('"a"."b"."y"', "no column 'a.b.y': no 'y' in 'a.b' (the column of that name is \"a.b.y\")"),
        ('a."b".y.v', "no column 'a.b.y.v': no 'y' in 'a.b' (there are: x, w)"),
        ('"whole"."name"', "no column 'whole.name': no 'whole' (the column of that name is \"whole.name\")"),
        (
            '"a.b.x"',
            "no column 'a.b.x' (in double quotes a dot is part of the name; without them a.b.x is the field of a struct)",
        ),
    ],
)
def test_exact_names_that_are_not_there(text: str, message: str) -> None:
    with pytest.raises(ColumnNotFoundError) as caught:
        resolve(parse_column(text), DOTTED)
    assert str(caught.value) == message


def parse_column(text: str) -> Column:
    column = parse(text)
    assert isinstance(column, Column)
    return column


@pytest.mark.parametrize(
    ("name", "error", "message"),
    [
        ("a.b.q", ColumnNotFoundError, "no column 'a.b.q': no 'q' in 'a.b' (there are: x, y)"),
        ("a.b.y.q", ColumnNotFoundError, "no column 'a.b.y.q': no 'q' in 'a.b.y' (there are: v)"),
        ("a.b.x.q", PredicateError, "column 'a.b.x' is int64 and has no field 'q'"),
        ("whole.name.q", PredicateError, "column 'whole.name' is int64 and has no field 'q'"),
        ("whole.other", ColumnNotFoundError, "no column 'whole.other': no 'whole'"),
        ("twice.x.n", PredicateError, "column 'twice.x' is ambiguous"),
    ],
)
def test_what_is_not_there(name: str, error: type[AccelError], message: str) -> None:
    with pytest.raises(error) as caught:
        resolve(column_named(name), DOTTED)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ('n = "x"', "no column 'x' (there are: s, n; text stands in single quotes: 'x')"),
        (f'n = "{"x" * 61}"', f"no column '{'x' * 61}' (there are: s, n; text stands in single quotes)"),
        ("n = None", "no column 'None' (there are: s, n; null is NULL, after IS or IS NOT)"),
        ("n = nan", "no column 'nan' (there are: s, n; write DOUBLE 'NaN')"),
        (accel.col("x") == 1, "no column 'x' (there are: s, n)"),
        ([("x", "=", 1)], "no column 'x' (there are: s, n)"),
        (
            '"s.b" = 1',
            "no column 's.b' (in double quotes a dot is part of the name; without them s.b is the field of a struct)",
        ),
        (
            [("s.b", "=", 1)],
            "no column 's.b' (the name of a filter list is exact; the field of a struct is ('s', 'b'))",
        ),
        ([("s.c", "=", 1)], "no column 's.c' (there are: s, n)"),
    ],
    ids=str,
)
def test_what_may_have_been_meant(where: Any, message: str) -> None:
    store = DictStore({"f": write_file(pa.table({"s": [{"b": 1}], "n": [1]}))})
    with pytest.raises(ColumnNotFoundError) as caught:
        accel.scan("f", where, store=store, cache=None).to_table()
    assert str(caught.value) == f"f: {message}"


@pytest.mark.parametrize(
    "where",
    [
        accel.col("a.b")["x"] == 1,
        accel.col("a.b.x") == 1,
        'a.b."x" = 1',
        '"a.b".x = 1',
        [(("a.b", "x"), "=", 1)],
        "a.b.x = 1",
    ],
    ids=str,
)
def test_all_ways_to_name_it(where: Any) -> None:
    store = DictStore({"f": write_file(pa.table({"a.b": [{"x": 1}, {"x": 2}]}))})
    assert accel.scan("f", where, store=store, cache=None).to_table().to_pylist() == [{"a.b": {"x": 1}}]


def test_a_files_own_fields_are_not_meant() -> None:
    """What a name stands for is settled by the data set, not by each of its files."""
    first = pa.table({"a.b": [{"y": 0}], "a": [{"b": {"x": 1}}]})
    later = pa.table({"a.b": [{"y": 0, "x": 1}], "a": [{"b": {"x": 2}}]})
    store = DictStore({"f0": write_file(first), "f1": write_file(later)})
    found = accel.scan(["f0", "f1"], "a.b.x = 1", columns=["a"], store=store, cache=None)
    assert found.to_table().to_pylist() == [{"a": {"b": {"x": 1}}}]
