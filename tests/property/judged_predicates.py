"""Random predicates as text, and their truth for each row by `pyarrow.compute` alone: a judge that shares
nothing with accel."""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import strategies as st

__all__ = ["Judged", "predicates"]

_OPS: dict[str, Callable[[Any, Any], Any]] = {
    "=": pc.equal,
    "<>": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}
_EPOCH = datetime.datetime(2020, 1, 1)
_LITERALS: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "n": (pa.int64(), st.sampled_from([0, 5, 50, 95]).flatmap(lambda c: st.integers(c - 7, c + 7))),
    "x": (pa.float64(), st.sampled_from([0.0, 0.5, 5.0, 9.5, 1.5, -7.25, 4.0, 1e300])),
    "s": (pa.string(), st.sampled_from(["abc", "abd", "q", "zz" * 60, "", "é" * 40, "none", "é" * 30])),
    "d": (
        pa.decimal128(12, 2),
        st.integers(0, 9_700).map(lambda cents: decimal.Decimal(cents).scaleb(-2)),
    ),
    "t": (
        pa.timestamp("us"),
        st.integers(-1, 130).map(lambda hours: _EPOCH + datetime.timedelta(hours=hours)),
    ),
    "st.v": (pa.int16(), st.integers(-1, 12)),
    "e": (pa.int64(), st.sampled_from([1, 2, 10, 3])),
}
"""By column: its type, and values around those that the files have."""
_PATTERNS = st.sampled_from(["ab%", "%bc", "%b%", "%zzzz%", "_", "q", "%é%", "a_c", "%ééé%", "none%"])


@dataclass(frozen=True)
class Judged:
    """A predicate."""

    sql: str
    truth: Callable[[pa.Table], Any]
    """True, false or null for each row."""

    def __repr__(self) -> str:
        return self.sql

    def filter(self, table: pa.Table) -> pa.Table:
        """Return the rows for which it is true."""
        found = self.truth(table)
        found = found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found
        return table.filter(pc.fill_null(found, False))


def _column(table: pa.Table, name: str) -> Any:
    top, _, field = name.partition(".")
    column = table.column(top).combine_chunks()
    return pc.struct_field(column, field) if field else column


def _nan(column: Any) -> Any:
    return pc.is_nan(column)


def _quoted(value: Any) -> str:
    if isinstance(value, str | datetime.datetime):
        return "'" + str(value).replace("'", "''") + "'"
    # An exponent makes it a double, as a point alone makes a decimal.
    return repr(value) if isinstance(value, float) and "e" in repr(value) else str(value)


def _compare(name: str, op: str, value: Any) -> Judged:
    kind = _LITERALS[name][0]
    literal = pa.scalar(value, kind)

    def truth(table: pa.Table) -> Any:
        column = _column(table, name)
        found = _OPS[op](column, literal)
        # NaN is above every number.
        return pc.or_(found, _nan(column)) if op in (">", ">=") and name == "x" else found

    return Judged(f"{name} {op} {_quoted(value)}", truth)


def _among(name: str, values: list[Any], with_null: bool) -> Judged:
    literals = pa.array(values, _LITERALS[name][0])

    def truth(table: pa.Table) -> Any:
        column = _column(table, name)
        found: Any = pc.is_in(column, value_set=literals)
        if name == "x":  # of zeros of either sign
            equal = [pc.equal(column, one) for one in literals]
            found = equal[0]
            for one in equal[1:]:
                found = pc.or_(found, one)
        null = pa.scalar(None, pa.bool_())
        absent = pc.invert(found) if with_null else pa.array([False] * len(column))
        unknown = pc.or_(pc.is_null(column), pc.fill_null(absent, True))
        return pc.if_else(unknown, null, found)

    listed = [_quoted(value) for value in values] + (["NULL"] if with_null else [])
    return Judged(f"{name} IN ({', '.join(listed)})", truth)


def _is_null(name: str, negated: bool) -> Judged:
    def truth(table: pa.Table) -> Any:
        found = pc.is_null(_column(table, name))
        return pc.invert(found) if negated else found

    return Judged(f"{name} IS {'NOT ' if negated else ''}NULL", truth)


def _distinct(name: str, value: Any) -> Judged:
    literal = pa.scalar(value, _LITERALS[name][0])
    return Judged(
        f"{name} IS DISTINCT FROM {_quoted(value)}",
        lambda table: pc.fill_null(pc.not_equal(_column(table, name), literal), True),
    )


def _between(name: str, values: list[Any]) -> Judged:
    low, high = sorted(values)
    both = _compare(name, ">=", low), _compare(name, "<=", high)
    return Judged(
        f"{name} BETWEEN {_quoted(low)} AND {_quoted(high)}",
        lambda table: pc.and_kleene(both[0].truth(table), both[1].truth(table)),
    )


def _like(pattern: str, either_case: bool) -> Judged:
    return Judged(
        f"s {'ILIKE' if either_case else 'LIKE'} '{pattern}'",
        lambda table: pc.match_like(_column(table, "s"), pattern, ignore_case=either_case),
    )


def _not(one: Judged) -> Judged:
    return Judged(f"NOT ({one.sql})", lambda table: pc.invert(one.truth(table)))


def _joined(word: str, parts: list[Judged]) -> Judged:
    join = pc.and_kleene if word == "AND" else pc.or_kleene

    def truth(table: pa.Table) -> Any:
        found = parts[0].truth(table)
        for part in parts[1:]:
            found = join(found, part.truth(table))
        return found

    return Judged(f" {word} ".join(f"({part.sql})" for part in parts), truth)


def _of_column(name: str) -> st.SearchStrategy[Judged]:
    values = _LITERALS[name][1]
    return st.one_of(
        st.builds(_compare, st.just(name), st.sampled_from(sorted(_OPS)), values),
        st.builds(_compare, st.just(name), st.just("="), values),
        st.builds(
            _among, st.just(name), st.lists(values, min_size=1, max_size=4, unique=True), st.booleans()
        ),
        st.builds(_is_null, st.just(name), st.booleans()),
        st.builds(_distinct, st.just(name), values),
        st.builds(_between, st.just(name), st.lists(values, min_size=2, max_size=2)),
    )


_TERMS = st.one_of(
    *(_of_column(name) for name in _LITERALS),
    st.builds(_like, _PATTERNS, st.booleans()),
    st.just(Judged("b", lambda table: _column(table, "b"))),
)


def predicates() -> st.SearchStrategy[Judged]:
    """Predicates of a few terms over the columns of `tests.property.test_catalog`, and the partition column
    `e`."""
    return st.recursive(
        _TERMS,
        lambda parts: st.one_of(
            st.builds(_not, parts),
            st.builds(_joined, st.sampled_from(["AND", "OR"]), st.lists(parts, min_size=2, max_size=3)),
        ),
        max_leaves=5,
    )
