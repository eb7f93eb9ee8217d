"""Questions about all rows of a file answered by the facts of its source, so that the file need not be
opened.

The facts are those of an index outside the files: rows, and figures of columns, of a version of the file all
of whose rows match. What they do not prove is left to the file's own metadata.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import numpy as np
import pyarrow as pa

from accel.indexes.native import tag_of
from accel.planning.aggregates import Function, Measure, Tally
from accel.planning.exact_figures import answerable, exact_values, tally_units
from accel.planning.file_entry import ColumnFigures, FileEntry, FileFacts
from accel.planning.promotion import promotes
from accel.predicate.kinds import kind_of

__all__ = ["figures_suffice", "matching_facts", "tally_of_figures"]


def matching_facts(file: FileEntry) -> FileFacts | None:
    """Return the facts of a file all of whose rows match, where they are of the version that the entry is
    of."""
    facts = file.facts
    if facts is None or not facts.all_match or facts.num_rows is None:
        return None
    if file.selected is not None or not file.version.is_same(facts.version):
        return None  # they are of all rows
    if file.deleted is None:
        return facts
    if file.deleted.count is None or file.deleted.count > facts.num_rows:
        return None
    # Which rows are gone is not known here, and how many are is.
    return replace(facts, num_rows=facts.num_rows - file.deleted.count, figures={})


def figures_suffice(figures: ColumnFigures, functions: Collection[Function]) -> bool:
    """Return whether the figures of a column answer the functions over it."""
    if figures.values is not None and set(functions) == {Function.DISTINCT}:
        return True
    return figures.bounds is not None and bool(answerable(figures.bounds, functions)[0])


def tally_of_figures(measure: Measure, figures: ColumnFigures) -> Tally | None:
    """Return the figures of all rows of a file; None where they do not answer the functions, or are of
    another type."""
    if not figures_suffice(figures, measure.functions):
        return None
    if measure.functions != {Function.COUNT} and not _same_values(figures.type, measure.type):
        return None
    found = measure.tally()
    if found.values is not None and figures.values is not None:
        found.values.add_column(figures.values)
    elif figures.bounds is not None:
        found.add(tally_units(figures.bounds, np.ones(1, bool), measure.functions))
        natives, null = exact_values(figures.bounds, 0) or ((), False)
        if found.values is not None:
            found.values.add_natives(natives, null=null)
    return found


def _same_values(here: pa.DataType, there: pa.DataType) -> bool:
    """Return whether the values of a file are those of the result, and need no widening."""
    a, b = kind_of(here), kind_of(there)
    alike = a.domain is b.domain and a.step == b.step and tag_of(here) is tag_of(there)
    return alike and not promotes(here, there)
