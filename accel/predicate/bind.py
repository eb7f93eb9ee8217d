"""Predicate and schema brought together: names become columns, literals native values."""

from __future__ import annotations

from typing import TypeAlias

import pyarrow as pa

from accel.arrays import from_numpy
from accel.errors import PredicateError
from accel.predicate import expr as ast
from accel.predicate.atoms import (
    Against,
    AllOf,
    AnyOf,
    Bound,
    BoundColumn,
    Fixed,
    IsTrue,
    Keys,
    Matches,
    Negation,
    Node,
    Null,
    Order,
    Pair,
    Truth,
)
from accel.predicate.coerce import nearest_double, order_atom
from accel.predicate.kinds import Family, Kind, kind_of
from accel.predicate.membership import joined, membership
from accel.predicate.resolve import follow, place, resolve

__all__ = ["Bound", "BoundColumn", "KnownKeys", "bind", "binds_long"]

KnownKeys: TypeAlias = "dict[tuple[int, Kind], tuple[ast.InList | ast.InArray, Keys]]"
"""What lists of IN have come to, by the node and the kind of column."""

# Values; many more take longer than a loop should be held up.
_LONG = 5000
# A condition takes as long as so many values.
_CONDITION = 10


def binds_long(expr: ast.Expr) -> bool:
    """Whether binding it is long work: it has thousands of values or hundreds of conditions."""
    left = _LONG
    stack = [expr]
    while stack and left >= 0:
        node = stack.pop()
        left -= _CONDITION
        if isinstance(node, ast.InList | ast.InArray):
            left -= len(node.values)
        elif isinstance(node, ast.And | ast.Or):
            stack += node.operands
        elif isinstance(node, ast.Not):
            stack.append(node.operand)
    return left < 0


def bind(
    expr: ast.Expr, schema: pa.Schema, *, meant: pa.Schema | None = None, known: KnownKeys | None = None
) -> Bound:
    """Resolve the columns of a predicate and put its literals into their terms.

    Parameters
    ----------
    expr : Expr
        Any predicate.
    schema : pyarrow.Schema
        The columns as the rows will come; their decoded types decide how values compare.
    meant : pyarrow.Schema, optional
        The columns that the predicate is about, where those are some file's. Beside floats a literal is a double:
        it stays that where the file has whole numbers.
    known : dict, optional
        Keys of its lists that were found before; takes those that are found now.

    Returns
    -------
    Bound
        Immutable, picklable; its columns stand in order of first appearance, each once.

    Raises
    ------
    ColumnNotFoundError
        There is no such column; the hint lists names that are close.
    PredicateError
        A comparison that has no meaning, at the literal's position where it has one.
    """
    binder = _Binder(schema, meant, {} if known is None else known)
    try:
        root = binder.node(expr)
    except RecursionError:
        raise PredicateError("the predicate is nested too deeply") from None
    return Bound(tuple(binder.columns), root)


_PLAIN: dict[ast.Op, tuple[Order, bool]] = {
    # op: the order of `left op right`, and whether it is negated
    ast.Op.EQ: (Order.EQ, False),
    ast.Op.NE: (Order.EQ, True),
    ast.Op.LT: (Order.LT, False),
    ast.Op.LE: (Order.LE, False),
    ast.Op.GT: (Order.LE, True),
    ast.Op.GE: (Order.LT, True),
    ast.Op.NOT_DISTINCT: (Order.EQ, False),
    ast.Op.DISTINCT: (Order.EQ, True),
}
_MIRRORED = {ast.Op.LT: ast.Op.GT, ast.Op.LE: ast.Op.GE, ast.Op.GT: ast.Op.LT, ast.Op.GE: ast.Op.LE}


class _Binder:
    """One walk of a tree: collects its columns."""

    def __init__(self, schema: pa.Schema, meant: pa.Schema | None, known: KnownKeys) -> None:
        self.schema = schema
        self.meant = meant
        self.known = known
        self.columns: list[BoundColumn] = []
        self._ordinals: dict[tuple[str, ...], int] = {}
        self._seen: dict[ast.Column, int] = {}
        self._doubles: set[int] = set()

    def column(self, named: ast.Column) -> tuple[int, BoundColumn]:
        ordinal = self._seen.get(named)
        if ordinal is None:
            bound = resolve(named, self.schema if self.meant is None else self.meant)
            meant = bound.kind.family
            if self.meant is not None:
                # A file's own fields are nothing that a name could mean.
                bound = follow(named, bound.path, schema=self.schema)
            ordinal = self._ordinals.setdefault(bound.path, len(self.columns))
            if ordinal == len(self.columns):
                self.columns.append(bound)
                if meant is Family.FLOAT and bound.kind.family is Family.INTEGER:
                    self._doubles.add(ordinal)
            self._seen[named] = ordinal
        return ordinal, self.columns[ordinal]

    def node(self, expr: ast.Expr) -> Node:
        match expr:
            case ast.And():
                return joined(AllOf, [self.node(part) for part in _flat(expr, ast.And)], self.columns)
            case ast.Or():
                return joined(AnyOf, [self.node(part) for part in _flat(expr, ast.Or)], self.columns)
            case ast.Not():
                inner = self.node(expr.operand)
                return inner.operand if isinstance(inner, Negation) else Negation(inner)
            case ast.Constant():
                return Truth(expr.value)
            case ast.IsNull():
                ordinal, column = self.column(expr.column)
                return Truth(True) if column.kind.family is Family.NULL else Null(ordinal)
            case ast.Compare():
                return self.compare(expr)
            case ast.InList() | ast.InArray():
                return self.among(expr)
            case ast.Like():
                return self.like(expr)
            case ast.Column():
                return self.flag(expr)
        raise TypeError(f"{type(expr).__name__} is no predicate")

    def flag(self, named: ast.Column) -> Node:
        ordinal, column = self.column(named)
        if column.kind.family is Family.NULL:
            return Truth(None)
        if column.kind.family is not Family.BOOLEAN:
            raise PredicateError(
                f"{_shown(named, column)} is not boolean and is no predicate alone",
                position=place(named.position),
                hint="compare it with something",
            )
        return Against(ordinal, Order.EQ, True)

    def compare(self, expr: ast.Compare) -> Node:
        op, left, right = expr.op, expr.left, expr.right
        if isinstance(left, ast.Literal):
            op, left, right = _MIRRORED.get(op, op), right, left
        if isinstance(left, ast.Literal):
            raise PredicateError("a comparison without a column", position=place(expr.position))
        if isinstance(right, ast.Column):
            return self.pair(op, left, right)
        ordinal, column = self.column(left)
        self.ordered(left, column)
        order, negated = _PLAIN[op]
        distinct = op in (ast.Op.DISTINCT, ast.Op.NOT_DISTINCT)
        atom: Node
        if right.value is None or column.kind.family is Family.NULL:
            if not distinct:
                return Truth(None)
            both = right.value is None and column.kind.family is Family.NULL
            atom = Truth(both) if column.kind.family is Family.NULL else Null(ordinal)
        else:
            position = right.position if right.position >= 0 else expr.position
            value = nearest_double(right.value) if ordinal in self._doubles else right.value
            atom = order_atom(
                ordinal, column.kind, order=order, value=value, where=_shown(left, column), position=position
            )
            atom = IsTrue(atom) if distinct else atom
        return _negated(atom, negated)

    def pair(self, op: ast.Op, left: ast.Column, right: ast.Column) -> Node:
        (a, first), (b, second) = self.column(left), self.column(right)
        self.ordered(left, first)
        self.ordered(right, second)
        order, negated = _PLAIN[op]
        distinct = op in (ast.Op.DISTINCT, ast.Op.NOT_DISTINCT)
        nulls = Family.NULL in (first.kind.family, second.kind.family)
        if not nulls and not _comparable(first.kind.family, second.kind.family):
            raise PredicateError(
                f"{_shown(left, first)} cannot be compared with {_shown(right, second)}",
                position=place(right.position),
            )
        if not distinct:
            return Truth(None) if nulls else _negated(Pair(a, b, order), negated)
        both = AllOf((self.node(ast.IsNull(left)), self.node(ast.IsNull(right))))
        return _negated(both if nulls else AnyOf((IsTrue(Pair(a, b, order)), both)), negated)

    def among(self, expr: ast.InList | ast.InArray) -> Node:
        ordinal, column = self.column(expr.column)
        self.ordered(expr.column, column)
        # A disjunction of nothing: false, of a null too.
        if not len(expr.values):
            return Truth(False)
        if column.kind.family is Family.NULL:
            return Truth(None)
        doubles = ordinal in self._doubles
        keys = self.keys(expr, kind_of(pa.float64()) if doubles else column.kind, _shown(expr.column, column))
        if doubles:
            from accel.predicate.keys import array_keys

            where, position = _shown(expr.column, column), expr.position
            keys = array_keys(from_numpy(keys.sorted), column.kind, where=where, position=position)
        with_null = None in expr.values if isinstance(expr, ast.InList) else expr.values.null_count > 0
        return membership(ordinal, column, keys, with_null=with_null)

    def keys(self, expr: ast.InList | ast.InArray, kind: Kind, where: str) -> Keys:
        """The keys of a list for a column of this kind, found out once."""
        # The entry keeps the node alive: its id stays its own.
        known = self.known.get((id(expr), kind))
        if known is None:
            from accel.predicate.keys import array_keys, list_keys

            if isinstance(expr, ast.InArray):
                keys = array_keys(expr.values, kind, where=where, position=expr.position)
            else:
                present = (value for value in expr.values if value is not None)
                keys = list_keys(present, kind, where=where, position=expr.position)
            known = self.known[id(expr), kind] = expr, keys
        return known[1]

    def like(self, expr: ast.Like) -> Node:
        ordinal, column = self.column(expr.column)
        from accel.predicate.like import compile_pattern

        pattern = compile_pattern(expr.pattern, ignore_case=expr.ignore_case, position=expr.position)
        if column.kind.family is Family.NULL:
            return Truth(None)
        if column.kind.family is not Family.TEXT:
            raise PredicateError(
                f"{_shown(expr.column, column)} is not text and has no LIKE", position=place(expr.position)
            )
        if pattern.literal is not None:
            if not pattern.literal and (pattern.open_start or pattern.open_end):
                return Fixed(ordinal, True)
            if not (pattern.open_start or pattern.open_end or pattern.ignore_case):
                return Against(ordinal, Order.EQ, pattern.literal)
        return Matches(ordinal, pattern)

    def ordered(self, named: ast.Column, column: BoundColumn) -> None:
        if column.kind.family is Family.OPAQUE:
            raise PredicateError(
                f"{_shown(named, column)} cannot be compared",
                position=place(named.position),
                hint="only IS NULL and IS NOT NULL apply to it",
            )


def _flat(expr: ast.And | ast.Or, kind: type[ast.And | ast.Or]) -> list[ast.Expr]:
    """The operands of nested ANDs (ORs) in order, without recursion: chains may be long."""
    out: list[ast.Expr] = []
    stack: list[ast.Expr] = [expr]
    while stack:
        part = stack.pop()
        if isinstance(part, kind):
            stack += reversed(part.operands)
        else:
            out.append(part)
    return out


def _comparable(a: Family, b: Family) -> bool:
    # A UUID column may stand beside its bytes, but not beside text.
    return a.group is b.group or {a, b} == {Family.UUID, Family.BINARY}


def _negated(node: Node, negated: bool) -> Node:
    if not negated:
        return node
    return node.operand if isinstance(node, Negation) else Negation(node)


def _shown(named: ast.Column, column: BoundColumn) -> str:
    return f"column {named.name!r} ({column.type})"
