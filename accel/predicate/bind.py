"""Binding a predicate to a schema: names become columns, literals become native values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import pyarrow as pa

from accel.arrays import from_numpy
from accel.errors import ColumnNotFoundError, PredicateError
from accel.predicate import expr as ast
from accel.predicate.atoms import (
    Against,
    AllOf,
    AnyOf,
    Bound,
    BoundColumn,
    Fixed,
    IsTrue,
    Kernel,
    Keys,
    Matches,
    Negation,
    Node,
    Null,
    Order,
    Pair,
    Truth,
    compile_pattern,
)
from accel.predicate.coerce import nearest_double, order_atom
from accel.predicate.expr import Column, column_named, column_of, quoted_path
from accel.predicate.kinds import Family, Kind, kind_of
from accel.predicate.membership import array_keys, joined, list_keys, membership
from accel.predicate.sql import name_sql, text_hint

__all__ = [
    "Bound",
    "KeyCache",
    "bind",
    "binds_long",
    "resolve",
    "resolve_named",
    "settled",
]

KeyCache: TypeAlias = "dict[tuple[int, Kind], tuple[ast.InList | ast.InArray, Keys]]"
"""The keys of IN lists, by the id of the node and the kind of column; the node is stored to keep its id its
own."""

# Values of IN lists; binding many more would block the event loop for too long.
_LONG = 5000
# A condition costs as much as this many values.
_CONDITION = 10


def binds_long(expr: ast.Expr) -> bool:
    """Return whether binding takes long: the predicate has thousands of values or hundreds of conditions."""
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
    expr: ast.Expr,
    schema: pa.Schema,
    *,
    query_schema: pa.Schema | None = None,
    key_cache: KeyCache | None = None,
) -> Bound:
    """Resolve the columns of a predicate and convert its literals to their types.

    Parameters
    ----------
    expr : Expr
        Any predicate.
    schema : pyarrow.Schema
        The schema of the rows; its decoded types decide how values compare.
    query_schema : pyarrow.Schema, optional
        The schema of the whole data set, where `schema` is one file's. A literal compared with a float column
        of it is rounded to a double even where the file stores integers.
    key_cache : dict, optional
        The keys of IN lists that were converted before; those converted now are added.

    Returns
    -------
    Bound
        Immutable and picklable; it has each column once, in order of first appearance.

    Raises
    ------
    ColumnNotFoundError
        A column does not exist; the hint lists similar names.
    PredicateError
        Two things cannot be compared; the error has the position of the literal where it has one.
    """
    binder = _Binder(schema, query_schema, {} if key_cache is None else key_cache)
    try:
        root = binder.node(expr)
    except RecursionError:
        raise PredicateError("the predicate is nested too deeply") from None
    return Bound(tuple(binder.columns), root)


def settled(expr: ast.Expr, schema: pa.Schema) -> ast.Expr:
    """Return the tree with those conditions of Arrow in accel's own nodes that mean the same over this
    schema's types.

    Raises as `bind` does.
    """
    match expr:
        case ast.And() | ast.Or():
            return ast.join(type(expr), [settled(part, schema) for part in expr.operands])
        case ast.Not():
            return ast.Not(settled(expr.operand, schema))
        case ast.Opaque():
            from accel.predicate.arrow_expression import meaning

            said = meaning(expr, [resolve(named, schema).type for named in expr.columns])
            return expr if said is None else said
    return expr


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


class _Binder:
    """Binds one tree, collecting its columns."""

    def __init__(self, schema: pa.Schema, query_schema: pa.Schema | None, key_cache: KeyCache) -> None:
        self.schema = schema
        self.query_schema = query_schema
        self.key_cache = key_cache
        self.columns: list[BoundColumn] = []
        self._ordinals: dict[tuple[str, ...], int] = {}
        self._seen: dict[ast.Column, int] = {}
        self._doubles: set[int] = set()

    def column(self, named: ast.Column) -> tuple[int, BoundColumn]:
        ordinal = self._seen.get(named)
        if ordinal is None:
            bound = resolve(named, self.schema if self.query_schema is None else self.query_schema)
            family = bound.kind.family
            if self.query_schema is not None:
                # Names resolve against the query's schema only, never against fields that just this file has.
                bound = follow(named, bound.path, schema=self.schema)
            ordinal = self._ordinals.setdefault(bound.path, len(self.columns))
            if ordinal == len(self.columns):
                self.columns.append(bound)
                if family is Family.FLOAT and bound.kind.family is Family.INTEGER:
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
            case ast.Opaque():
                return self.opaque(expr)
        raise TypeError(f"{type(expr).__name__} is no predicate")

    def opaque(self, expr: ast.Opaque) -> Node:
        query_schema = self.schema if self.query_schema is None else self.query_schema
        types = tuple(resolve(named, query_schema).type for named in expr.columns)
        from accel.predicate.arrow_expression import check_expression, meaning

        said = meaning(expr, types)
        if said is not None:
            return self.node(said)
        check_expression(expr.expression, tuple(named.path for named in expr.columns), types)
        return Kernel(expr.expression, tuple(self.column(named)[0] for named in expr.columns), types)

    def flag(self, named: ast.Column) -> Node:
        ordinal, column = self.column(named)
        if column.kind.family is Family.NULL:
            return Truth(None)
        if column.kind.family is not Family.BOOLEAN:
            raise PredicateError(
                f"{_shown(named, column)} is not boolean and is no predicate alone",
                position=named.position,
                hint="compare it with something",
            )
        return Against(ordinal, Order.EQ, True)

    def compare(self, expr: ast.Compare) -> Node:
        op, left, right = expr.op, expr.left, expr.right
        if isinstance(left, ast.Literal):
            op, left, right = op.mirrored, right, left
        if isinstance(left, ast.Literal):
            raise PredicateError("a comparison without a column", position=expr.position)
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
                position=right.position,
            )
        if not distinct:
            return Truth(None) if nulls else _negated(Pair(a, b, order), negated)
        both = AllOf((self.node(ast.IsNull(left)), self.node(ast.IsNull(right))))
        return _negated(both if nulls else AnyOf((IsTrue(Pair(a, b, order)), both)), negated)

    def among(self, expr: ast.InList | ast.InArray) -> Node:
        ordinal, column = self.column(expr.column)
        self.ordered(expr.column, column)
        # An empty list is an empty disjunction: false, even for null.
        if not len(expr.values):
            return Truth(False)
        if column.kind.family is Family.NULL:
            return Truth(None)
        doubles = ordinal in self._doubles
        keys = self.keys(expr, kind_of(pa.float64()) if doubles else column.kind, _shown(expr.column, column))
        if doubles:
            where, position = _shown(expr.column, column), expr.position
            keys = array_keys(from_numpy(keys.sorted), column.kind, where=where, position=position)
        with_null = None in expr.values if isinstance(expr, ast.InList) else expr.values.null_count > 0
        return membership(ordinal, column, keys, with_null=with_null)

    def keys(self, expr: ast.InList | ast.InArray, kind: Kind, where: str) -> Keys:
        """Return the keys of a list for a column of this kind, converted once."""
        cached = self.key_cache.get((id(expr), kind))
        if cached is None:
            if isinstance(expr, ast.InArray):
                keys = array_keys(expr.values, kind, where=where, position=expr.position)
            else:
                present = (value for value in expr.values if value is not None)
                keys = list_keys(present, kind, where=where, position=expr.position)
            cached = self.key_cache[id(expr), kind] = expr, keys
        return cached[1]

    def like(self, expr: ast.Like) -> Node:
        ordinal, column = self.column(expr.column)
        pattern = compile_pattern(expr.pattern, ignore_case=expr.ignore_case, position=expr.position)
        if column.kind.family is Family.NULL:
            return Truth(None)
        if column.kind.family is not Family.TEXT:
            raise PredicateError(
                f"{_shown(expr.column, column)} is not text and has no LIKE", position=expr.position
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
                position=named.position,
                hint="only IS NULL and IS NOT NULL apply to it",
            )


def _flat(expr: ast.And | ast.Or, kind: type[ast.And | ast.Or]) -> list[ast.Expr]:
    """Return the operands of nested ANDs (ORs) in order, without recursion, since chains may be long."""
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
    # A UUID column compares with bytes but not with text.
    return a.group is b.group or {a, b} == {Family.UUID, Family.BINARY}


def _negated(node: Node, negated: bool) -> Node:
    if not negated:
        return node
    return node.operand if isinstance(node, Negation) else Negation(node)


def _shown(named: ast.Column, column: BoundColumn) -> str:
    return f"column {named.name!r} ({column.type})"


def resolve(column: Column, schema: pa.Schema, *, ignore_case: bool = False) -> BoundColumn:
    """Find a column: a top-level one, or a field down through structs.

    The first names of the path may together be one top-level name with dots in it, as far as `Column.head`
    allows. The first such reading that the schema has is used, from the shortest name on or, by
    `Column.whole_first`, the longest. What is found has the names of the schema; with `ignore_case` these may
    differ from those of the path in case.

    Raises
    ------
    ColumnNotFoundError
        The column does not exist.
    PredicateError
        The name is ambiguous, or a part of the path is no struct.
    """
    path = column.path
    refusal: PredicateError | ColumnNotFoundError | None = None
    cuts = range(1, column.head + 1)
    for cut in reversed(cuts) if column.whole_first else cuts:
        top = _find(column, ".".join(path[:cut]), schema, ignore_case=ignore_case)
        if top is None:
            continue
        try:
            return _below(column, top, (top.name, *path[cut:]), ignore_case=ignore_case)
        except (PredicateError, ColumnNotFoundError) as error:
            refusal = refusal or error
    missing = refusal or _missing(column, path[0], schema.names)
    if column.head == 1:
        missing.hint = _other_reading(column, schema) or missing.hint
    raise missing


def resolve_named(name: str, schema: pa.Schema) -> BoundColumn:
    """Resolve a name that is a Python value, as in `columns=`; errors are those of `resolve`."""
    path = None if name in schema.names else quoted_path(name)
    return resolve(column_named(name) if path is None else column_of(path), schema)


def _find(
    column: Column,
    name: str,
    fields: pa.Schema | pa.StructType,
    *,
    ignore_case: bool,
    above: str = "",
) -> pa.Field | None:
    """Return the one field that a name means; None where there is none, and raise where there are several."""
    if ignore_case:
        lowered = name.lower()
        # Of a schema, to ask for all names is much faster than to ask each field.
        names = fields.names if isinstance(fields, pa.Schema) else [field.name for field in fields]
        places = [at for at, one in enumerate(names) if one.lower() == lowered]
    else:
        places = fields.get_all_field_indices(name)
    if len(places) > 1:
        raise _ambiguous(column, above + name, [above + fields.field(at).name for at in places])
    return fields.field(places[0]) if places else None


def follow(column: Column, path: tuple[str, ...], *, schema: pa.Schema) -> BoundColumn:
    """Return the column at a path whose first name the schema has once; errors are those of `resolve`."""
    return _below(column, schema.field(path[0]), path, ignore_case=False)


def _below(column: Column, field: pa.Field, path: tuple[str, ...], *, ignore_case: bool) -> BoundColumn:
    names = [field.name]
    for depth in range(1, len(path)):
        field = _child(column, field, path, depth, ignore_case=ignore_case)
        names.append(field.name)
    return BoundColumn(tuple(names), field.type)


def _child(
    column: Column, field: pa.Field, parts: tuple[str, ...], depth: int, *, ignore_case: bool
) -> pa.Field:
    above, part = ".".join(parts[:depth]), parts[depth]
    kind = field.type
    if not pa.types.is_struct(kind):
        raise PredicateError(
            f"column {above!r} is {field.type} and has no field {part!r}",
            position=column.position,
            hint="a dotted path goes through structs only",
        )
    found = _find(column, part, kind, ignore_case=ignore_case, above=f"{above}.")
    if found is None:
        raise _missing(column, part, [f.name for f in kind], within=above)
    return found


def _missing(
    column: Column, name: str, names: list[str], *, within: str | None = None
) -> ColumnNotFoundError:
    import difflib

    close = difflib.get_close_matches(name, names, 3)
    close += [other for other in names if other.lower() == name.lower() and other not in close][:3]
    inside = f" in {within!r}" if within else ""
    if close:
        hint = "did you mean " + " or ".join(repr(other) for other in close) + "?"
    else:
        shown = ", ".join(names[:10]) + (", ..." if len(names) > 10 else "")
        hint = f"there are: {shown}" if names else "there are no columns"
        if names and within is None and column.position >= 0:
            hint += f"; {_as_text(column.name)}"
    detail = f": no {name!r}{inside}" if name != column.name else ""
    return ColumnNotFoundError(
        f"no column {column.name!r}{detail}", column=None if within else name, hint=hint
    )


def _other_reading(column: Column, schema: pa.Schema) -> str | None:
    """Return the other way to write a name: dots as part of it, or as a path into structs; None where neither
    exists."""
    name, is_text = column.name, column.position >= 0
    if len(column.path) > 1:
        if name not in schema.names:
            return None
        return f"the column of that name is {name_sql(Column((name,))) if is_text else repr(name)}"
    meant = column_named(name)
    if meant.head == 1:
        return None
    try:
        resolve(meant, schema)
    except (PredicateError, ColumnNotFoundError):
        return None
    if is_text:
        return f"in double quotes a dot is part of the name; without them {name} is the field of a struct"
    return f"the name of a filter list is exact; the field of a struct is {tuple(name.split('.'))}"


def _as_text(name: str) -> str:
    """Return a hint for a name in predicate text that was probably meant as a literal."""
    if name in ("None", "none", "nan", "NaN"):
        return "null is NULL, after IS or IS NOT" if "o" in name else "write DOUBLE 'NaN'"
    if len(name) > 60:
        return "text stands in single quotes"
    return text_hint(name)


def _ambiguous(column: Column, name: str, found: Sequence[str]) -> PredicateError:
    same = len(set(found)) < len(found)
    why = "several have that name" if same else f"{' and '.join(map(repr, found))} differ in case alone"
    return PredicateError(f"column {name!r} is ambiguous: {why}", position=column.position)
