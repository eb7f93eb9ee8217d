"""A zone map asked: the bounds of a column as statistics are, those of an expression by what follows for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from accel.format.domain import Bounds
from accel.indexes.expressions import Expression, apply_to_value, output_type
from accel.indexes.folding import fold_settled
from accel.indexes.kind import Presence
from accel.indexes.native import tag_of
from accel.indexes.question import MANY_KEYS, LeafOp, LeafQuestion
from accel.indexes.zone_stats import ZoneStats
from accel.predicate.atoms import Against, Bound, BoundColumn, Node, Order, Pattern, successor
from accel.predicate.prune import Evidence, prune

if TYPE_CHECKING:
    from accel.arrays import Bools

__all__ = ["prune_zones"]


_PATH = ("value",)


def prune_zones(of: Expression, stats: ZoneStats, *, question: LeafQuestion) -> Evidence | None:
    """Evidence for each unit; None where the expression says nothing of the question."""
    if question.op is LeafOp.IS_NULL:
        return _presence(stats).nulls()
    try:
        kind = output_type(of, question.arrow_type)
    except ValueError:
        return None
    if tag_of(kind) is not stats.tag:
        return None
    bounds = stats.bounds()
    if of is Expression.VALUE:
        return _prune(bounds, kind, question.atom)
    hit = _expression_hit(of, bounds, kind, question)
    # That the expressions are equal says nothing of the values: any may fail.
    return None if hit is None else _presence(stats).evidence(hit)


def _presence(stats: ZoneStats) -> Presence:
    return Presence(stats.nulls > 0, stats.counts > 0)


def _prune(bounds: Bounds, kind: pa.DataType, atom: Node) -> Evidence:
    return prune(Bound((BoundColumn(_PATH, kind),), atom), {_PATH: bounds}, len(bounds))


def _expression_hit(
    of: Expression, bounds: Bounds, kind: pa.DataType, question: LeafQuestion
) -> Bools | None:
    """Units whose expression may be that of a value that passes."""
    if question.op is LeafOp.LIKE and question.pattern is not None:
        prefix = _folded_prefix(question.pattern) if of is Expression.LOWER else b""
        return _starting(bounds, kind, prefix) if prefix else None
    values = [
        apply_to_value(of, value, kind=question.arrow_type) for value in question.values[: MANY_KEYS + 1]
    ]
    if None in values or len(values) > MANY_KEYS:
        return None
    if question.op in (LeafOp.LE, LeafOp.LT):
        # Below the value, the expression may still be equal.
        return _prune(bounds, kind, Against(0, Order.LE, values[0])).may_true if of.monotone else None
    hit = np.zeros(len(bounds), bool)
    for value in set(values):
        hit |= _prune(bounds, kind, Against(0, Order.EQ, value)).may_true
    return hit


def _folded_prefix(pattern: Pattern) -> bytes:
    # A dot of the pattern's own is escaped: one that leads is `_` or the start of `%`.
    if not pattern.runs or pattern.regex.startswith(r"\A(?s:."):
        return b""
    return fold_settled(pattern.runs[0].encode()) or b""


def _starting(bounds: Bounds, kind: pa.DataType, prefix: bytes) -> Bools:
    """Units with a value that may start with the prefix."""
    below = _prune(bounds, kind, Against(0, Order.LT, prefix)).may_false
    above = successor(prefix)
    return below if above is None else below & _prune(bounds, kind, Against(0, Order.LT, above)).may_true
