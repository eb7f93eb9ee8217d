"""Indexes asked by a predicate: leaf by leaf, with what statistics prove.

Evidence of several sources for one leaf is intersected: each allows every outcome that occurs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from accel.errors import IndexFormatError
from accel.format.domain import Bounds
from accel.indexes.kind import ParsedIndex
from accel.indexes.native import signature_of
from accel.indexes.question import LeafQuestion, question_of
from accel.predicate.atoms import AllOf, AnyOf, Bound, Fixed, IsTrue, Negation, Node, Pair, Truth
from accel.predicate.evidence import Evidence
from accel.predicate.prune import prune

__all__ = ["Consulted", "ask", "consult", "questions_of"]


def ask(parsed: ParsedIndex, question: LeafQuestion, *, units: int, signature: str) -> Evidence | None:
    """What an index proves of one leaf.

    Parameters
    ----------
    parsed : ParsedIndex
        Of any kind, trusted or not.
    question : LeafQuestion
        The leaf.
    units : int
        Units that the answer must be of.
    signature : str
        `signature_of` the column's type when the index was built; where the scan's differs, the
        question is not put.

    Raises
    ------
    IndexFormatError
        The index raised, or gave what is no evidence.
    """
    if question.op != "is null" and signature != signature_of(question.arrow_type):
        return None
    try:
        found = parsed.prune(question)
    except Exception as error:  # a kind may be anybody's
        raise IndexFormatError(f"an index failed while pruning: {type(error).__name__}: {error}") from error
    if found is None:
        return None
    if not isinstance(found, Evidence):
        raise IndexFormatError(f"an index answered with {type(found).__name__}, not with Evidence")
    flags = (found.may_true, found.may_false, found.may_null)
    if any(not isinstance(f, np.ndarray) or f.dtype != bool or f.shape != (units,) for f in flags):
        raise IndexFormatError(f"an index answered with other than {units} truth values")
    if question.with_null:
        # What the list does not hold is NULL.
        return Evidence(found.may_true, np.zeros(units, bool), found.may_null | found.may_false)
    return found


@dataclass(frozen=True, slots=True, eq=False)
class Consulted:
    """One index over a column, as `consult` takes it."""

    parsed: ParsedIndex
    signature: str
    """Of the column's type when it was built."""
    label: str = ""
    """What to call it in warnings."""


def questions_of(bound: Bound) -> tuple[LeafQuestion, ...]:
    """All that indexes could be asked for a predicate: decides which are worth fetching."""
    found: list[LeafQuestion] = []
    stack: list[Node] = [bound.root]
    while stack:
        node = stack.pop()
        if isinstance(node, AllOf | AnyOf):
            stack += node.operands
        elif isinstance(node, Negation | IsTrue):
            stack.append(node.operand)
        elif not isinstance(node, Pair | Fixed | Truth):
            question = question_of(node, bound.columns[node.column])
            found += [] if question is None else [question]
    return tuple(found)


def consult(
    bound: Bound,
    indexes: Mapping[tuple[str, ...], Sequence[Consulted]],
    n: int,
    *,
    bounds: Mapping[tuple[str, ...], Bounds],
    on_failure: Callable[[Consulted, IndexFormatError], None],
) -> Evidence:
    """What bounds and indexes together prove of a predicate, for each of n units.

    Parameters
    ----------
    bound : Bound
        The predicate.
    indexes : Mapping of tuple of str to Sequence of Consulted
        By column path, each of n units.
    n : int
        Units.
    bounds : Mapping of tuple of str to Bounds
        As `accel.predicate.prune.prune` takes them.
    on_failure : callable
        Told of an index that failed; it is then as if it had not been there.
    """

    def walk(node: Node) -> Evidence:
        match node:
            case AllOf() | AnyOf():
                result = walk(node.operands[0])
                for operand in node.operands[1:]:
                    other = walk(operand)
                    result = result & other if isinstance(node, AllOf) else result | other
                return result
            case Negation():
                return ~walk(node.operand)
            case IsTrue():
                inner = walk(node.operand)
                return Evidence(inner.may_true, inner.may_false | inner.may_null, np.zeros(n, bool))
            case _:
                return leaf(node)

    def leaf(node: Node) -> Evidence:
        result = prune(Bound(bound.columns, node), bounds, n)
        if isinstance(node, Truth | Pair | Fixed | AllOf | AnyOf | Negation | IsTrue):
            return result
        column = bound.columns[node.column]
        here = indexes.get(column.path, ())
        question = question_of(node, column) if here else None
        for index in here if question is not None else ():
            try:
                found = ask(index.parsed, question, units=n, signature=index.signature) if question else None
            except IndexFormatError as error:
                on_failure(index, error)
                continue
            if found is not None:
                result = _both(result, found)
        return result

    return walk(bound.root)


def _both(a: Evidence, b: Evidence) -> Evidence:
    return Evidence(a.may_true & b.may_true, a.may_false & b.may_false, a.may_null & b.may_null)
