"""Comparisons that hold no column: their answer, by the same rules as for columns."""

from __future__ import annotations

import datetime
import decimal
import math
import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from accel.predicate.expr import Op, Ticks, Value
from accel.predicate.moments import (
    nanos_of_date,
    nanos_of_instant,
    nanos_of_time,
    time_from_text,
    timestamp_from_text,
)

__all__ = ["check_pattern", "compare_values", "like_value"]


def compare_values(op: Op, left: Value, right: Value) -> bool | None:
    """`left op right` in three-valued logic; ValueError where the two cannot be compared."""
    if left is None or right is None:
        if op is Op.DISTINCT:
            return left is not right
        if op is Op.NOT_DISTINCT:
            return left is right
        return None
    order = _order(left, right)
    match op:
        case Op.EQ | Op.NOT_DISTINCT:
            return order == 0
        case Op.NE | Op.DISTINCT:
            return order != 0
        case Op.LT:
            return order < 0
        case Op.LE:
            return order <= 0
        case Op.GT:
            return order > 0
        case Op.GE:
            return order >= 0


def _order(left: Any, right: Any) -> int:
    kinds = _kind(left), _kind(right)
    if kinds[0] != kinds[1]:
        if kinds[0] == "text" and kinds[1] in _FROM_TEXT:
            left = _FROM_TEXT[kinds[1]](left)
        elif kinds[1] == "text" and kinds[0] in _FROM_TEXT:
            right = _FROM_TEXT[kinds[0]](right)
        elif set(kinds) not in _MIXED:
            raise ValueError(f"cannot compare {_NOUN[kinds[0]]} with {_NOUN[kinds[1]]}")
    a, b = _key(left), _key(right)
    return 0 if a == b else -1 if a < b else 1


# A date is its midnight; text stands for its UTF-8 bytes.
_MIXED = ({"date", "timestamp"}, {"text", "binary"})
_NOUN = {
    "number": "a number",
    "boolean": "a boolean",
    "text": "text",
    "binary": "binary",
    "date": "a date",
    "time": "a time",
    "timestamp": "a timestamp",
}
_FROM_TEXT: dict[str, Callable[[str], Value]] = {
    "date": timestamp_from_text,  # as a date if that is all it is
    "time": time_from_text,
    "timestamp": timestamp_from_text,
}


def _kind(value: Value) -> str:
    match value:
        case bool():
            return "boolean"
        case int() | float() | decimal.Decimal():
            return "number"
        case str():
            return "text"
        case bytes():
            return "binary"
        case datetime.datetime():
            return "timestamp"
        case datetime.date():
            return "date"
        case datetime.time():
            return "time"
        case Ticks():
            return value.kind
        case _:
            raise ValueError(f"{type(value).__name__} is no literal")


def _key(value: Any) -> Any:
    """What orders as the value does among its kind; NaN above every number and equal to itself."""
    match value:
        case bool() | bytes():
            return value
        case float() if math.isnan(value):
            return (1, 0)
        case int() | float() | decimal.Decimal():
            return (0, value)
        case str():
            return value.encode()
        case datetime.datetime():
            return nanos_of_instant(value)
        case datetime.date():
            return nanos_of_date(value)
        case datetime.time():
            return nanos_of_time(value)
        case _:
            return value.nanos


def check_pattern(pattern: str) -> None:
    """ValueError for a LIKE pattern that ends within an escape."""
    if pattern.endswith("\\") and (len(pattern) - len(pattern.rstrip("\\"))) % 2:
        raise ValueError("the pattern ends with a backslash that escapes nothing; write two")


def like_value(value: str, pattern: str, *, ignore_case: bool) -> bool:
    """Whether the text matches the LIKE pattern; ValueError for a pattern that is none."""
    check_pattern(pattern)
    if ignore_case:
        value, pattern = fold_case(value), fold_case(pattern)
    runs = _runs(pattern)
    first, last = runs[0], runs[-1]
    head = first.match(value)
    if head is None:
        return False
    if len(runs) == 1:
        return head.end() == len(value)
    position = head.end()
    # The leftmost place for each run leaves the most for those after it: no backtracking.
    for run in runs[1:-1]:
        found = run.search(value, position)
        if found is None:
            return False
        position = found.end()
    start = len(value) - _length(last)
    return start >= position and last.match(value, start) is not None


def fold_case(text: str) -> str:
    """Unicode's simple case folding: one character stays one character, so `_` still means one."""
    folded = text.casefold()
    if len(folded) == len(text):
        return folded
    return "".join(map(_fold_char, text))


def _fold_char(char: str) -> str:
    for folded in (char.casefold(), char.lower()):
        if len(folded) == 1:
            return folded
    return char


@lru_cache(maxsize=64)
def _runs(pattern: str) -> list[re.Pattern[str]]:
    """What stands between the `%` of a pattern, each an expression of fixed length."""
    runs: list[list[str]] = [[]]
    chars = iter(pattern)
    for char in chars:
        if char == "\\":
            runs[-1].append(re.escape(next(chars)))
        elif char == "_":
            runs[-1].append(".")
        elif char == "%":
            runs.append([])
        else:
            runs[-1].append(re.escape(char))
    return [re.compile("".join(run), re.DOTALL) for run in runs]


def _length(run: re.Pattern[str]) -> int:
    return len(re.sub(r"\\(.)", r"\1", run.pattern, flags=re.DOTALL))
