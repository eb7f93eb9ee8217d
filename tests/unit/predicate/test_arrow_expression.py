"""Expressions of pyarrow.compute as `where`: what they become, and what they prune."""

from __future__ import annotations

import io
import pickle

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import accel
from accel.predicate.arrow_expression import in_sql
from accel.predicate.atoms import Against, Kernel, Order
from accel.predicate.bind import bind
from accel.predicate.codec import decode, encode
from accel.predicate.expr import (
    And,
    Compare,
    Constant,
    InArray,
    Literal,
    Not,
    Op,
    Opaque,
    column_of,
    columns_of,
)
from accel.predicate.sql import to_sql
from accel.predicate.where import to_expr
from accel.testing.stores import DictStore, RecordingStore

A, X = pc.field("a"), pc.field("x")
SCHEMA = pa.schema(
    [("a", pa.int64()), ("x", pa.float64()), ("s", pa.struct([("c", pa.int32())])), ("t", pa.string())]
)


def _root(expression):
    return bind(to_expr(expression), SCHEMA).root


def _store():
    rows = 10_000
    table = pa.table({"a": range(rows), "x": [float("nan") if i % 100 == 0 else i / 2 for i in range(rows)]})
    sink = io.BytesIO()
    pq.write_table(table, sink, row_group_size=1000)
    return RecordingStore(DictStore({"t.parquet": sink.getvalue()}))


class TestTree:
    def test_and_or_not_are_nodes_and_conditions_stay_arrows(self):
        where = to_expr((A == 1) & ~(pc.field("s", "c") > 2))
        assert isinstance(where, And)
        first, second = where.operands
        assert isinstance(first, Opaque)
        assert isinstance(second, Not)
        assert [column.path for column in columns_of(where)] == [("a",), ("s", "c")]

    def test_a_condition_of_equal_rules_becomes_an_atom(self):
        assert _root(A == 4) == Against(0, Order.EQ, 4)

    def test_a_condition_of_other_rules_stays_a_kernel(self):
        for expression in (A.cast("double") > 1, A + 1 == 2, X == pc.scalar(float("nan")), X.isin([0.0])):
            assert isinstance(_root(expression), Kernel), expression

    def test_names_are_exact(self):
        where = to_expr(pc.field("x\ny: 'z'.q") == 1)
        assert [column.path for column in columns_of(where)] == [("x\ny: 'z'.q",)]

    def test_null_literals_and_constants(self):
        assert to_expr(A == pc.scalar(None)) == Constant(None)
        assert to_expr(pc.scalar(True)) == Constant(True)
        null = pc.scalar(pa.scalar(None, pa.large_string()))
        assert isinstance(_root(pc.coalesce(pc.field("t"), null) == "a"), Kernel)

    def test_long_chains_are_no_depth(self):
        where = to_expr(any_of([A == i for i in range(500)]))
        assert len(where.operands) == 500

    def test_the_text_is_one_line(self):
        assert "\n" not in to_sql(to_expr(~A.isin([1, 2, 3])))

    def test_bytes_and_pickles_bring_the_same_tree(self):
        where = to_expr((A.isin([1, 2]) & (A + 1 > 2)) | pc.is_nan(X))
        assert decode(encode(where)) == where
        assert pickle.loads(pickle.dumps(where)) == where
        assert hash(decode(encode(where))) == hash(where)


def any_of(conditions):
    total = conditions[0]
    for condition in conditions[1:]:
        total = total | condition
    return total


class TestSqlsRules:
    """What an engine pushes, in nodes that have the rules of SQL."""

    def test_floats_are_compared_by_accel(self):
        x, c = column_of(("x",)), pc.scalar(1.5)
        assert in_sql(to_expr(X > 1.5), SCHEMA) == Compare(Op.GT, x, Literal(1.5))
        assert in_sql(to_expr(c > X), SCHEMA) == Compare(Op.LT, x, Literal(1.5))
        assert in_sql(to_expr(~(X <= 1)), SCHEMA) == Not(Compare(Op.LE, x, Literal(1)))
        assert in_sql(to_expr(X == pc.field("x")), SCHEMA) == Compare(Op.EQ, x, x)

    def test_lists_leave_null_open(self):
        found = in_sql(to_expr(A.isin([1, None]) & X.isin([0.0])), SCHEMA)
        assert found == And(
            (
                InArray(column_of(("a",)), pa.array([1])),
                InArray(column_of(("x",)), pa.array([0.0])),
            )
        )

    def test_all_else_stays(self):
        for expression in (
            A > 1,
            A > X,
            A == 1.5,
            pc.is_nan(X),
            X + 1 > 2,
            pc.field("t") == "a",
            X.is_null(),
        ):
            where = to_expr(expression)
            assert in_sql(where, SCHEMA) == where


class TestRefusals:
    def test_a_field_by_number(self):
        with pytest.raises(accel.PredicateError, match="does not serialize"):
            to_expr(pc.field(0) == 1)

    def test_what_is_not_boolean(self):
        with pytest.raises(accel.PredicateError, match="is no predicate"):
            _root(A + 1)

    def test_types_that_do_not_compare(self):
        with pytest.raises(accel.PredicateError, match="pyarrow cannot evaluate"):
            _root(pc.field("t") > 5)

    def test_a_missing_column(self):
        with pytest.raises(accel.ColumnNotFoundError):
            _root(pc.field("nothing") > 5)

    def test_other_libraries(self):
        import polars

        with pytest.raises(accel.PredicateError, match="no predicate"):
            to_expr(polars.col("a") > 1)


class TestScans:
    def test_equal_rules_prune(self):
        store = _store()
        scan = accel.scan("t.parquet", (A == 4321) & (A + 0 > 5), store=store, cache=None)
        assert scan.to_table()["a"].to_pylist() == [4321]
        assert scan.metrics.row_groups.kept == 1

    def test_nan_is_above_nothing(self):
        store = _store()
        table = accel.scan("t.parquet", X > 4998.0, store=store, cache=None).to_table()
        assert table["a"].to_pylist() == [9997, 9998, 9999]
        negated = accel.scan("t.parquet", ~(X > 0.0), store=store, cache=None).to_table()
        assert negated.num_rows == 100

    def test_columns_of_a_kernel_are_read_first(self):
        store = _store()
        scan = accel.scan("t.parquet", pc.bit_wise_and(A, 8191) == 7, columns=["x"], store=store, cache=None)
        assert scan.count_rows() == 2
