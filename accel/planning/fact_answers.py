"""Questions about all rows of a file answered by the facts of its source, so that the file need not be opened.

The facts are those of an index outside the files: rows, and bounds and counts of columns, of a version of the file all of
whose rows match. What they do not prove is left to the file's own metadata.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pyarrow as pa

from accel.arrays import repeat_scalar
from accel.format.domain import Domain
from accel.indexes.native import code_values, native_values, tag_of
from accel.planning.aggregates import Function, Measure, Tally, tally_constant
from accel.planning.distinct_values import DistinctSet
from accel.planning.file_entry import FileEntry, FileFacts, ValueRange
from accel.predicate.kinds import kind_of

__all__ = ["distinct_of_facts", "distinct_of_range", "matching_facts", "range_answers", "tally_of_range"]

_SUMMED = (Domain.INTEGER, Domain.BOOLEAN)


def matching_facts(file: FileEntry) -> FileFacts | None:
    """Return the facts of a file all of whose rows match, where they are of the version that the entry is of."""
    facts = file.facts
    if facts is None or not facts.all_match or facts.num_rows is None:
        return None
    if file.etag is None or file.etag != facts.etag or file.size != facts.size:
        return None
    return facts


def range_answers(values: ValueRange, functions: Collection[Function], num_rows: int) -> bool:
    """Return whether the range of a column answers the functions over it."""
    nulls, nans = values.null_count, values.nan_count
    if nulls is None:
        return False
    if nulls == num_rows:
        return True
    ends = values.exact and nans is not None and values.lower is not None and values.upper is not None
    known = {
        Function.COUNT: True,
        Function.MIN: ends,
        Function.MAX: ends,
        Function.SUM: ends and not nans and _one_value(values) and _has_exact_sum(values),
    }
    return all(known[function] for function in functions)


def _has_exact_sum(values: ValueRange) -> bool:
    return values.lower is not None and kind_of(values.lower.type).domain in _SUMMED


def _one_value(values: ValueRange) -> bool:
    if values.lower is None or values.upper is None:
        return False
    return bool(_native(values.lower) == _native(values.upper))


def _native(value: pa.Scalar) -> Any:
    found = native_values(repeat_scalar(value, 1))[0]
    return found.item() if hasattr(found, "item") else found


def tally_of_range(measure: Measure, values: ValueRange, num_rows: int) -> Tally | None:
    """Return the figures of a column of which `range_answers` says so; None where they are of another type."""
    nulls = values.null_count or 0
    count = num_rows - nulls
    if not count or measure.functions == {Function.COUNT}:
        return Tally(count=count)
    if values.lower is None or values.upper is None or not _same_values(values.lower.type, measure.type):
        return None
    low = tally_constant(measure, values.lower, rows=count)
    high = tally_constant(measure, values.upper, rows=count)
    return Tally(
        count=count, nan=bool(values.nan_count), low=low.low, high=high.high, total=low.total
    )  # fmt: skip


def distinct_of_facts(measure: Measure, facts: FileFacts) -> DistinctSet | None:
    """Return the values of a column in a file; None where the facts do not tell them all."""
    listed, values = facts.values.get(measure.path), facts.bounds.get(measure.path)
    if listed is not None and _same_values(listed.type, measure.type):
        found = DistinctSet(measure.type)
        found.add_column(listed)
        return found
    return None if values is None else distinct_of_range(measure.type, values, facts.num_rows or 0)


def distinct_of_range(kind: pa.DataType, values: ValueRange, num_rows: int) -> DistinctSet | None:
    """Return the values of a column; None where others than its bounds may occur."""
    nulls, nans = values.null_count, values.nan_count
    if nulls is None:
        return None
    found = DistinctSet(kind)
    found.null = nulls > 0
    if nulls == num_rows:
        return found
    if nans != 0 or values.lower is None or values.upper is None:
        return None
    if not _same_values(values.lower.type, kind) or not (_one_value(values) or _are_neighbours(values)):
        return None
    for bound in (values.lower, values.upper):
        found.add(code_values(repeat_scalar(bound, 1)).values)
    return found


def _are_neighbours(values: ValueRange) -> bool:
    """Whether both bounds occur, and there is nothing between them."""
    if not values.exact or kind_of(values.lower.type).domain not in _SUMMED:  # type: ignore[union-attr]
        return False
    return int(_native(values.upper)) - int(_native(values.lower)) == 1


def _same_values(here: pa.DataType, there: pa.DataType) -> bool:
    """Whether the values of a file are those of the result, and need no widening."""
    a, b = kind_of(here), kind_of(there)
    return a.domain is b.domain and a.step == b.step and tag_of(here) is tag_of(there)
