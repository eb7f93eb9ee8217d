"""The questions that indexes answer: each is one leaf of a predicate."""

from __future__ import annotations

import dataclasses
import enum
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from accel.arrays import mask
from accel.indexes.native import Tag, tag_of
from accel.predicate.atoms import (
    Against,
    Among,
    Bound,
    BoundColumn,
    Matches,
    Node,
    Null,
    Order,
    Pattern,
)
from accel.predicate.evaluate import outcome

if TYPE_CHECKING:
    from accel.arrays import Bools

__all__ = ["MANY_KEYS", "LeafOp", "LeafQuestion", "question_of"]


MANY_KEYS = 1000
"""An IN of more values is not looked up, since most units have one of so many."""


class LeafOp(enum.StrEnum):
    """The tests that indexes answer; all others are derived from them.

    `!=` is the negation of EQ, `>` of LE, and `>=` of LT; the engine negates. Integers (hence dates,
    timestamps and decimals) have LE and no LT; booleans have only EQ.
    """

    EQ = "="
    LT = "<"
    LE = "<="
    IN = "in"
    LIKE = "like"
    IS_NULL = "is null"


@dataclass(frozen=True, slots=True, eq=False)
class LeafQuestion:
    """`column op values`: NULL where the column is null, except IS_NULL, which never is."""

    op: LeafOp
    """The operator."""
    path: tuple[str, ...]
    """The names of the column from the top level down."""
    arrow_type: pa.DataType
    """The type of the column, as the scan sees it."""
    values: tuple[Any, ...]
    """The literals in the form of `native_values`: int, float, bytes or bool. EQ, LT and LE have one, IN has
    each once, LIKE and IS_NULL have none. NaN occurs with EQ and IN only and equals itself; a zero is 0.0."""
    pattern: Pattern | None
    """The pattern of LIKE and ILIKE (`pattern.ignore_case`); `pattern.runs` are its literal runs."""
    with_null: bool
    """Whether an IN lists NULL, so that a value not among `values` gives NULL; `ask` applies it, not the
    kind."""
    atom: Node
    """The leaf as an atom over column 0."""

    @property
    def tag(self) -> Tag | None:
        """The stored form of the column's values."""
        return tag_of(self.arrow_type)

    @property
    def value(self) -> Any:
        """The literal of EQ, LT and LE."""
        return self.values[0]

    def test(self, values: pa.Array) -> Bools:
        """Evaluate the leaf exactly.

        Parameters
        ----------
        values : pyarrow.Array
            Values without nulls, in the form that kinds get them.

        Returns
        -------
        bool array
            Whether each value passes.
        """
        bound = Bound((BoundColumn(("value",), values.type),), self.atom)
        return mask(outcome(bound, {("value",): values}, len(values)))


def question_of(node: Node, column: BoundColumn) -> LeafQuestion | None:
    """Return the question of a node of a bound predicate; None where no index could answer it.

    Parameters
    ----------
    node : Node
        Any node; only atoms over one column have a question.
    column : BoundColumn
        The column that the atom names.
    """
    op: LeafOp
    values: tuple[Any, ...] = ()
    pattern, with_null = None, False
    match node:
        case Null():
            op = LeafOp.IS_NULL
        case Matches():
            op, pattern = LeafOp.LIKE, node.pattern
        case Against():
            op, values = _OPS[node.order], (node.value,)
        case Among():
            op, with_null = LeafOp.IN, node.with_null
            values = tuple(node.keys.sorted.tolist()) + ((math.nan,) if node.keys.nan else ())
        case _:
            return None
    if op is not LeafOp.IS_NULL and tag_of(column.type) is None:
        return None
    changes: dict[str, Any] = {"with_null": False} if with_null else {}
    return LeafQuestion(
        op=op,
        path=column.path,
        arrow_type=column.type,
        values=values,
        pattern=pattern,
        with_null=with_null,
        atom=dataclasses.replace(node, column=0, **changes),
    )


_OPS = {Order.EQ: LeafOp.EQ, Order.LT: LeafOp.LT, Order.LE: LeafOp.LE}
