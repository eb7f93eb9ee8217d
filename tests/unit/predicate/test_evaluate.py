"""The exact filter over every layout that an array can come in."""

from __future__ import annotations

import decimal
import json
import math
import subprocess
import sys
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from accel import kernels
from accel.predicate.bind import bind
from accel.predicate.evaluate import evaluate, outcome
from accel.predicate.expr import (
    And,
    Column,
    Compare,
    Constant,
    Expr,
    InArray,
    InList,
    IsNull,
    Like,
    Literal,
    Not,
    Op,
    Or,
)

D = decimal.Decimal
NAN = math.nan
A, B = Column(("a",)), Column(("b",))


def answers(expr: Expr, **columns: Any) -> list[bool | None]:
    schema = pa.schema([(name, array.type) for name, array in columns.items()])
    rows = len(next(iter(columns.values())))
    return outcome(bind(expr, schema), {(name,): array for name, array in columns.items()}, rows).to_pylist()


PLAIN = pa.array(["a", "b", None, "c", "b"])
LAYOUTS = {
    "plain": PLAIN,
    "sliced": pa.concat_arrays([pa.array(["x", None, "y"]), PLAIN, PLAIN]).slice(3, 5),
    "chunked": pa.chunked_array([PLAIN[:2], PLAIN[2:2], PLAIN[2:]]),
    "no chunk": pa.chunked_array([], pa.string()),
    "large": PLAIN.cast(pa.large_string()),
    "view": PLAIN.cast(pa.string_view()),
    "sliced view": pa.concat_arrays([PLAIN, PLAIN]).cast(pa.string_view())[5:],
    "dictionary": PLAIN.dictionary_encode(),
    "sliced dictionary": pa.concat_arrays([PLAIN, PLAIN]).dictionary_encode()[5:],
    "chunks of dictionaries": pa.chunked_array(
        [PLAIN[:2].dictionary_encode(), PLAIN[2:].dictionary_encode()]
    ),
    "null in the dictionary": pa.DictionaryArray.from_arrays(
        pa.array([0, 2, 1, 3, 2], pa.uint8()), pa.array(["a", None, "b", "c"])
    ),
    "dictionary longer than the rows": pa.DictionaryArray.from_arrays(
        pa.array([0, 1, None, 2, 1]), pa.array(["a", "b", "c", *"defghij"])
    ),
    "dictionary of views": pa.DictionaryArray.from_arrays(
        pa.array([0, 1, None, 2, 1]), pa.array(["a", "b", "c"], pa.string_view())
    ),
    "run-end encoded": pa.RunEndEncodedArray.from_arrays([1, 2, 3, 4, 5], PLAIN),
    "binary": PLAIN.cast(pa.binary()),
    "fixed": PLAIN.cast(pa.binary()).cast(pa.binary(1)),
    "binary view": PLAIN.cast(pa.binary_view()),
}


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS.keys())
def test_layouts(layout: Any) -> None:
    cases: list[tuple[Expr, list[bool | None]]] = [
        (Compare(Op.EQ, A, Literal("b")), [False, True, None, False, True]),
        (Compare(Op.GT, A, Literal("aa")), [False, True, None, True, True]),
        (Compare(Op.DISTINCT, A, Literal("b")), [True, False, True, True, False]),
        (InList(A, ("a", "c", None)), [True, None, None, True, None]),
        (InList(A, ("a", "c")), [True, False, None, True, False]),
        (IsNull(A), [False, False, True, False, False]),
        (Compare(Op.EQ, A, A), [True, True, None, True, True]),
        (Compare(Op.NOT_DISTINCT, A, A), [True] * 5),
    ]
    rows = len(layout)
    for expr, expected in cases:
        assert answers(expr, a=layout) == expected[:rows], expr
    if "b" not in str(layout.type).split("string")[0] or "string" in str(layout.type):
        assert answers(Like(A, "%b"), a=layout) == [False, True, None, False, True][:rows]
        assert answers(Like(A, "_"), a=layout) == [True, True, None, True, True][:rows]


SIGNED = pa.array([-1, 2**53 + 1, 2**63 - 1, None, 0], pa.int64())


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        (SIGNED, pa.array([2**64 - 1, 2**53 + 1, 2**63, 1, 0], pa.uint64()), "< = < N ="),
        (SIGNED, pa.array([-1.0, 2.0**53, 2.0**63, 1.0, -0.0]), "= > < N ="),
        (SIGNED, pa.array([NAN, math.inf, -math.inf, NAN, 0.5]), "< < > N <"),
        (SIGNED, pa.array([-1, 0, 5, 5, None], pa.int8()), "= > > N N"),
        (SIGNED[:1], pa.array([200], pa.uint8()), "<"),
        (pa.array([2**64 - 1, 0, 5], pa.uint64()), pa.array([2.0**64, -0.5, 5.0]), "< > ="),
        (pa.array([NAN, NAN, 1.0, -0.0]), pa.array([NAN, 1.0, NAN, 0.0], pa.float32()), "= > < ="),
        (pa.array([0.1]), pa.array([0.1], pa.float32()), "<"),
        (pa.array([0.5], pa.float16()), pa.array([0.5], pa.float64()), "="),
        (pa.array([D("1.00"), D("1.01")]), pa.array([1, 1], pa.int32()), "= >"),
        (pa.array([D("1.00"), D("1.01")]), pa.array([D("1.000"), D("1.011")]), "= <"),
        (pa.array([D("0.10"), D("0.50"), D("1.00")]), pa.array([0.1, 0.5, NAN]), "< = <"),
        (
            pa.array([D("1"), D("2")], pa.decimal32(5, 2)),
            pa.array([D("1"), D("3")], pa.decimal256(60, 9)),
            "= <",
        ),
        (pa.array([D(10) ** 37], pa.decimal128(38, 0)), pa.array([D("0.1")], pa.decimal256(76, 70)), ">"),
        (pa.array([D("1E+2")], pa.decimal128(5, -2)), pa.array([100], pa.int8()), "="),
        (
            pa.array([1, -1, 2**62], pa.int64()).view(pa.timestamp("s")),
            pa.array([10**9, -1, 0]).view(pa.timestamp("ns")),
            "= < >",
        ),
        (
            pa.array([1, 0], pa.int32()).view(pa.date32()),
            pa.array([86_400_000, 1]).view(pa.timestamp("ms", "UTC")),
            "= <",
        ),
        (pa.array([1], pa.int32()).view(pa.date32()), pa.array([86_400_000]).view(pa.date64()), "="),
        (
            pa.array([1, 2], pa.int32()).view(pa.time32("s")),
            pa.array([10**9, 1]).view(pa.time64("ns")),
            "= >",
        ),
        (pa.array([1]).view(pa.duration("s")), pa.array([1001]).view(pa.duration("ms")), "<"),
        (
            pa.array(["é", "a", None]),
            pa.array(["z", "a", "a"], pa.large_string()).dictionary_encode(),
            "> = N",
        ),
        (pa.array(["a"], pa.string_view()), pa.array([b"a\x00"], pa.binary(2)), "<"),
        (pa.array([True, False, None]), pa.array([False, False, True]), "> = N"),
        (pa.nulls(2), pa.array([1, None]), "N N"),
    ],
    ids=lambda value: str(getattr(value, "type", "")),
)
def test_column_to_column_is_exact(left: pa.Array, right: pa.Array, expected: str) -> None:
    places = expected.split()
    for a, b, names in ((left, right, "<=>"), (right, left, ">=<")):
        for op, name in ((Op.LT, names[0]), (Op.EQ, "="), (Op.GT, names[2])):
            got = answers(Compare(op, A, B), a=a, b=b)
            assert got == [None if place == "N" else place == name for place in places], op
            opposite = {Op.LT: Op.GE, Op.EQ: Op.NE, Op.GT: Op.LE}[op]
            assert answers(Compare(opposite, A, B), a=a, b=b) == [None if g is None else not g for g in got]


@pytest.mark.parametrize("integers", [[0, None, None], [None, None, None], [0, 3, None]])
def test_a_scale_beyond_int64_stands_beside_integers(integers: list[int | None]) -> None:
    left, right = pa.array(integers, pa.int64()), pa.array([D("0.5"), D(3), D(0)], pa.decimal128(38, 30))
    truth = [None if n is None else n < d for n, d in zip(integers, right.to_pylist(), strict=True)]
    assert answers(Compare(Op.LT, A, B), a=left, b=right) == truth
    assert answers(Compare(Op.GT, B, A), a=left, b=right) == truth


@pytest.mark.parametrize("keys", [[0], [3], [0, 3], [], [-(2**63), 2**63 - 1]])
def test_keys_of_a_column_of_a_scale_beyond_int64(keys: list[int]) -> None:
    values = [D("0.5"), D(0), D(3), None]
    column = pa.array(values, pa.decimal128(38, 30))
    truth = [None if d is None else d in keys for d in values]
    assert answers(InArray(A, pa.array(keys, pa.int64())), a=column) == (truth if keys else [False] * 4)


@pytest.mark.parametrize(
    "column", [pa.int32(), pa.uint64(), pa.float64(), pa.decimal128(38, 2), pa.string()], ids=str
)
@pytest.mark.parametrize("with_null", [False, True], ids=["", "with null"])
def test_few_values_among_many_keys(column: pa.DataType, with_null: bool) -> None:
    keys = pa.array([*range(0, 4000, 2), *([None] if with_null else [])]).cast(column)
    values = [0, 1, 2, None, 3998, 3999, 7777]
    truth = [
        None if n is None else True if n in range(0, 4000, 2) else None if with_null else False
        for n in values
    ]
    assert answers(InArray(A, keys), a=pa.array(values).cast(column)) == truth
    coded = pa.array(values * 2000).cast(column).dictionary_encode()
    assert answers(InArray(A, keys), a=coded) == truth * 2000


def test_many_keys_are_not_made_a_set_for_few_values(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes, real = [], kernels.is_in

    def is_in(values: pa.Array, *, value_set: pa.Array) -> pa.Array:
        sizes.append(len(value_set))
        return real(values, value_set=value_set)

    monkeypatch.setattr(kernels, "is_in", is_in)
    assert answers(InArray(A, pa.array(range(10_000))), a=pa.array([5, 6, 70_000])) == [True, True, False]
    assert answers(InArray(A, pa.array(range(100))), a=pa.array([5, 6, 70_000])) == [True, True, False]
    assert sizes == [2, 100]


def test_distinct_columns_know_null() -> None:
    a, b = pa.array([1, None, None, 2]), pa.array([1, None, 1, 3])
    assert answers(Compare(Op.NOT_DISTINCT, A, B), a=a, b=b) == [True, True, False, False]
    assert answers(Compare(Op.DISTINCT, A, B), a=a, b=b) == [False, False, True, True]
    assert answers(Compare(Op.DISTINCT, A, B), a=a, b=pa.nulls(4)) == [True, False, False, True]


TRUE, FALSE, NULL = Constant(True), Constant(False), Constant(None)


def test_three_valued_logic_over_rows_and_constants() -> None:
    a = pa.array([True, False, None])
    assert answers(And((A, TRUE)), a=a) == [True, False, None]
    assert answers(And((A, NULL)), a=a) == [None, False, None]
    assert answers(And((FALSE, A)), a=a) == [False, False, False]
    assert answers(Or((A, FALSE)), a=a) == [True, False, None]
    assert answers(Or((NULL, A)), a=a) == [True, None, None]
    assert answers(Or((A, TRUE)), a=a) == [True, True, True]
    assert answers(Not(A), a=a) == [False, True, None]
    assert answers(And((NULL, Not(NULL))), a=a) == [None, None, None]
    b = pa.array([None, None, None], pa.bool_())
    assert answers(And((A, B)), a=a, b=b) == [None, False, None]
    assert answers(Or((A, B)), a=a, b=b) == [True, None, None]


@pytest.mark.parametrize("value", [True, False, None], ids=str)
@pytest.mark.parametrize("rows", [0, 3])
def test_a_constant_fills_the_rows(value: bool | None, rows: int) -> None:
    bound = bind(Constant(value), pa.schema([]))
    assert outcome(bound, {}, rows).to_pylist() == [value] * rows
    assert evaluate(bound, {}, rows).tolist() == [value is True] * rows


def test_a_field_of_a_null_struct_is_null() -> None:
    inner = pa.StructArray.from_arrays(
        [pa.array([1, 2, 3, None])], ["y"], mask=pa.array([False, True, False, False])
    )
    outer = pa.StructArray.from_arrays([inner], ["x"], mask=pa.array([False, False, True, False]))
    schema = pa.schema([("s", outer.type)])
    expr = Compare(Op.GE, Column(("s", "x", "y")), Literal(0))
    bound = bind(expr, schema)
    assert bound.columns[0].path == ("s", "x", "y")
    for given in (
        {("s",): outer},
        {("s", "x"): outer.flatten()[0]},
        {("s",): pa.chunked_array([outer[:2], outer[2:]])},
    ):
        assert outcome(bound, given, 4).to_pylist() == [True, None, None, None]
    sliced = pa.concat_arrays([outer, outer])[3:7]
    assert outcome(bound, {("s",): sliced}, 4).to_pylist() == [None, True, None, None]
    leaf = {("s", "x", "y"): pa.array([None, 5, -5, 0])}
    assert outcome(bound, leaf, 4).to_pylist() == [None, True, False, True]


def test_nested_columns_are_null_or_not() -> None:
    assert answers(IsNull(A), a=pa.array([[1], None, []])) == [False, True, False]
    assert answers(IsNull(A), a=pa.array([{"x": 1}, None])) == [False, True]
    assert answers(Not(IsNull(A)), a=pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int8()))) == [
        True,
        False,
    ]


def test_an_array_of_another_type_is_widened_to_the_bound_one() -> None:
    bound = bind(Compare(Op.GT, A, Literal(200)), pa.schema([("a", pa.int64())]))
    assert outcome(bound, {("a",): pa.array([1, 201], pa.int16())}, 2).to_pylist() == [False, True]
    bound = bind(InList(A, ("x", "z")), pa.schema([("a", pa.string())]))
    for kind in (pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.large_string())):
        given = pa.array(["x", "y"], pa.large_string())
        given = given.dictionary_encode().cast(kind) if pa.types.is_dictionary(kind) else given.cast(kind)
        assert outcome(bound, {("a",): given}, 2).to_pylist() == [True, False]


def test_what_stands_under_a_null_never_matters() -> None:
    values = pa.Array.from_buffers(
        pa.float64(), 2, [pa.py_buffer(b"\x01"), pa.py_buffer(np.array([1.0, NAN]).tobytes())]
    )
    assert answers(Compare(Op.GT, A, Literal(0)), a=values) == [True, None]
    assert answers(Compare(Op.EQ, A, Literal(NAN)), a=values) == [False, None]
    assert answers(InList(A, (NAN, 5.0)), a=values) == [False, None]
    assert answers(Compare(Op.GE, A, B), a=values, b=pa.array([1, 1])) == [True, None]


def test_the_mask_is_true_only_where_the_predicate_is() -> None:
    bound = bind(Compare(Op.GT, A, Literal(1)), pa.schema([("a", pa.int64())]))
    got = evaluate(bound, {("a",): pa.array([*[2, None, 1] * 5])[2:]}, 13)
    assert got.dtype == np.bool_
    assert got.tolist() == [False, *[True, False, False] * 4]


def test_misuse_is_told() -> None:
    bound = bind(Compare(Op.GT, A, Literal(1)), pa.schema([("a", pa.int64())]))
    with pytest.raises(KeyError, match="no array for column 'a'"):
        outcome(bound, {}, 3)
    with pytest.raises(ValueError, match="column 'a' has 2 values for 3 rows"):
        outcome(bound, {("a",): pa.array([1, 2])}, 3)


_SCRIPT = """
import json, sys
import numpy as np, pyarrow as pa
from accel.format.domain import Bounds
from accel.predicate.bind import bind
from accel.predicate.value_bounds import constant_bounds
from accel.predicate.evaluate import evaluate
from accel.predicate.expr import *
from accel.predicate.prune import prune

def make(kind, values):
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(np.array(values).tobytes())])

a = make(pa.int64(), [1, 2, 3])
f = make(pa.float64(), [1.0, float("nan"), 3.0])
s = a.cast(pa.string())
d = s.dictionary_encode()
t = a.view(pa.timestamp("us", "UTC"))
st = pa.StructArray.from_arrays([a], ["x"])
columns = {("a",): a, ("f",): f, ("s",): s, ("d",): d, ("t",): t, ("st",): st, ("v",): s.cast(pa.string_view())}
schema = pa.schema([(p[0], c.type) for p, c in columns.items()])
C, L = column_named, Literal
expr = Or((
    And((Compare(Op.GT, C("a"), L(1)), Compare(Op.LT, C("f"), L(2.5)), Like(C("s"), "2%"))),
    Not(Like(C("d"), "_", True)), Compare(Op.EQ, C("t"), L("2013-01-01")), Compare(Op.DISTINCT, C("v"), L("1")),
    InList(C("d"), ("1", "3", None)), InArray(C("s"), s), InArray(C("a"), a), InArray(C("t"), t),
    Compare(Op.LE, C("a"), C("f")), Compare(Op.LE, C("s"), C("d")), IsNull(C("st.x")),
    InList(C("f"), (0.0, float("nan"))), Compare(Op.NOT_DISTINCT, C("a"), C("st.x")),
))
mask = evaluate(bind(expr, schema), columns, 3)
bounds = {("a",): constant_bounds(a[0], np.array([3])), ("s",): constant_bounds(s[0], np.array([3]))}
verdicts = prune(bind(expr, schema), bounds, 1).verdicts()
unwanted = {"pandas", "pyarrow.acero", "pyarrow._acero", "pyarrow.dataset", "pyarrow._dataset", "aiohttp"}
print(json.dumps([mask.tolist(), verdicts.tolist(), sorted(unwanted & set(sys.modules))]))
"""


def test_nothing_heavy_is_imported() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.stderr == ""
    assert json.loads(done.stdout) == [[True, True, True], [2], []]
