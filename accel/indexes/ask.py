"""An index of anybody's kind asked about one leaf of a predicate, and its answer checked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from accel.errors import IndexFormatError
from accel.indexes.kind import ParsedIndex
from accel.indexes.native import signature_of
from accel.indexes.question import LeafOp, LeafQuestion
from accel.predicate.prune import Evidence

__all__ = ["ask", "ask_all", "guarded"]


def guarded(call: Callable[..., Any], *given: Any, **named: Any) -> Any:
    """What a method of a kind, or of an index that it parsed, returns.

    Raises
    ------
    IndexFormatError
        It raised: a kind may be anybody's, and whatever it raises says that its index is not to be used.
    """
    try:
        return call(*given, **named)
    except IndexFormatError:
        raise
    except Exception as error:
        raise IndexFormatError(f"an index failed: {type(error).__name__}: {error}") from error


def ask(parsed: ParsedIndex, question: LeafQuestion, *, units: int, signature: str) -> Evidence | None:
    """What an index proves of one leaf; None where it cannot say.

    Parameters
    ----------
    parsed : ParsedIndex
        Of any kind, trusted or not.
    question : LeafQuestion
        The leaf.
    units : int
        Entries that the answer must have: 1, the pages, or the row ranges (`len(parsed.first_rows)`).
    signature : str
        `signature_of` the column's type when the index was built; where the scan's differs, the
        question is not put.

    Raises
    ------
    IndexFormatError
        The index raised, or gave what is no evidence.
    """
    if question.op is not LeafOp.IS_NULL and signature != signature_of(question.arrow_type):
        return None
    found: Evidence | None = guarded(parsed.prune, question)
    if found is None:
        return None
    _check(found, units)
    if question.with_null:
        # What the list does not hold is NULL.
        return Evidence(found.may_true, np.zeros(units, bool), found.may_null | found.may_false)
    return found


def ask_all(parsed: Any, asked: Sequence[tuple[LeafQuestion, bool]], *, units: int) -> Evidence | None:
    """What an index of several columns proves of leaves together: that each is true, or false where it comes with False.

    None where it cannot say. The signatures of the leaves' columns are the caller's to check. Raises as `ask` does.
    """
    together = getattr(parsed, "prune_all", None)
    if together is None or not asked:
        return None
    found: Evidence | None = guarded(together, asked)
    if found is not None:
        _check(found, units)
    return found


def _check(found: object, units: int) -> None:
    if not isinstance(found, Evidence):
        raise IndexFormatError(f"an index answered with {type(found).__name__}, not with Evidence")
    flags = (found.may_true, found.may_false, found.may_null)
    if any(not isinstance(f, np.ndarray) or f.dtype != bool or f.shape != (units,) for f in flags):
        raise IndexFormatError(f"an index answered with other than {units} truth values")
