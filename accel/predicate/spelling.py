"""A predicate whose columns are found without regard to case, in the spelling of a schema.

Everything behind it goes by exact names. Names are compared in lower case, as Spark and Hive compare them.
"""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from accel.errors import ColumnNotFoundError, PredicateError
from accel.predicate.bind import resolve
from accel.predicate.expr import (
    And,
    Column,
    Compare,
    Expr,
    InArray,
    InList,
    IsNull,
    Like,
    Not,
    Opaque,
    Operand,
    Or,
)
from accel.predicate.sql import name_sql

__all__ = ["spelled_where"]


def spelled_where(where: Expr, schema: pa.Schema) -> Expr:
    """Return a predicate with each column as a schema spells it; columns that the schema lacks stay as they
    are.

    Raises
    ------
    PredicateError
        Columns of the schema that a name means differ in case alone, a part of a path is no struct, or an
        expression of pyarrow would have to be written anew.
    """
    return _Speller(schema).node(where)


class _Speller:
    """Spells the columns of one tree."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._known: dict[Column, tuple[str, ...]] = {}

    def node(self, expr: Expr) -> Expr:
        match expr:
            case Column():
                return self.column(expr)
            case Compare():
                return replace(expr, left=self.operand(expr.left), right=self.operand(expr.right))
            case InList() | InArray() | Like() | IsNull():
                column = self.column(expr.column)
                return expr if column is expr.column else replace(expr, column=column)
            case Not():
                return Not(self.node(expr.operand))
            case And() | Or():
                return type(expr)(tuple(self.node(operand) for operand in expr.operands))
            case Opaque():
                return self.opaque(expr)
        return expr

    def operand(self, operand: Operand) -> Operand:
        return self.column(operand) if isinstance(operand, Column) else operand

    def column(self, named: Column) -> Column:
        path = self._known.get(named)
        if path is None:
            try:
                path = resolve(named, self._schema, ignore_case=True).path
            except ColumnNotFoundError:
                path = named.path
            self._known[named] = path
        return named if path == named.path else Column(path, position=named.position)

    def opaque(self, expr: Opaque) -> Expr:
        """Return a condition of pyarrow, whose bytes hold the names, in nodes of accel's own where it names
        columns otherwise."""
        spelled = [self.column(named) for named in expr.columns]
        if all(one.path == named.path for one, named in zip(spelled, expr.columns, strict=True)):
            return expr
        from accel.predicate.arrow_expression import meaning

        said = meaning(expr, [resolve(one, self._schema).type for one in spelled])
        if said is not None:
            return self.node(said)
        raise PredicateError(
            f"an expression of pyarrow that accel hands back to it names "
            f"{', '.join(named.name for named in expr.columns)} in another case than the files",
            hint=f"write {', '.join(map(name_sql, spelled))}",
        )
