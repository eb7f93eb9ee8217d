"""Pruning: row groups of a block of files by their statistics, then the pages of what is left.

Pruning drops only what provably does not match: a unit whose bounds are unknown stays.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from accel.arrays import sort_distinct
from accel.format.bounds import chunk_bounds, joined_chunk_bounds, page_bounds
from accel.format.domain import Bounds, Domain
from accel.format.writers import doubts_about
from accel.planning.handle import FileHandle, SharedStatistics, group_starts
from accel.planning.index_evidence import IndexStatements, concatenate
from accel.planning.query import FileQuery
from accel.planning.selection import RowSelection
from accel.predicate.prune import Verdict, prune

if TYPE_CHECKING:
    from accel.arrays import Int64s

__all__ = [
    "PageVerdicts",
    "RemainingGroups",
    "bounds_of_pages",
    "excluded_files",
    "group_bounds",
    "prune_pages",
    "prune_row_groups",
]

RemainingGroups: TypeAlias = "Sequence[tuple[int, bool]]"
"""Row groups that statistics leave, in order, each with whether all of its rows are known to match."""

_ColumnBounds: TypeAlias = "dict[tuple[str, ...], Bounds]"

# Longer footers, in bytes, are not copied to be pruned together with others.
_LONGEST_FOOTER = 64 * 1024


# -- row groups --------------------------------------------------------------------------------------


def group_bounds(handle: FileHandle, leaf: int, *, kind: pa.DataType) -> Bounds:
    """Return the statistics of one column, by row group."""
    view = handle.view
    bounds = view.chunk_bounds.get(leaf)
    if bounds is None:
        bounds = None if handle.statistics is None else handle.statistics.of(handle, leaf)
        if bounds is None:
            bounds = chunk_bounds(view.metadata, leaf, arrow_type=kind)
        view.chunk_bounds[leaf] = bounds
    return bounds


def prune_row_groups(handle: FileHandle, query: FileQuery) -> npt.NDArray[np.int8]:
    """Return one `Verdict` a row group, from chunk statistics and constants."""
    metadata = handle.metadata
    if query.bound is None:
        return np.full(metadata.num_row_groups, Verdict.ALL, np.int8)
    # What is planned next looks into them, too.
    bounds = {path: group_bounds(handle, leaf, kind=kind) for path, leaf, kind in query.prunable}
    judged = None if handle.statistics is None else handle.statistics.verdicts(handle, query)
    return _judge(query, bounds, metadata.group_rows) if judged is None else judged


def excluded_files(handles: Sequence[FileHandle], query: FileQuery) -> list[bool]:
    """Return, for each file of a block, whether `prune_row_groups` drops all its row groups.

    Parameters
    ----------
    handles : sequence of FileHandle
        Files of the schema that `query` was compiled for.
    query : FileQuery
        The compiled question of all these files, constants included.
    """
    excluded = [query.bound is not None and not handle.num_row_groups for handle in handles]
    if query.bound is None:
        return excluded
    blocks: dict[object, list[int]] = {}
    forms: dict[int, object] = {}
    for place, handle in enumerate(handles):
        if excluded[place]:
            continue
        if handle.footer_bytes > _LONGEST_FOOTER:
            blocks[place] = [place]
            continue
        shared = handle.shared
        form = forms.get(id(shared))
        if form is None:
            form = forms[id(shared)] = _form(handle, query)
        blocks.setdefault(form, []).append(place)
    for places in blocks.values():
        some = [handles[place] for place in places]
        for place, verdict in zip(places, _excluded(some, query), strict=True):
            excluded[place] = verdict
            if verdict and handles[place].statistics is not None:
                handles[place].fold()
    return excluded


def _form(handle: FileHandle, query: FileQuery) -> object:
    """Return a key that is equal for files whose bounds of the predicate's columns are read alike.

    They are of one schema, order and trust.
    """
    shared = handle.shared
    columns = [
        (int(shared.column_orders[leaf]), doubts_about(shared, leaf, arrow_type=kind))
        for _, leaf, kind in query.prunable
    ]
    return id(shared.schema), *columns


def _excluded(handles: Sequence[FileHandle], query: FileQuery) -> list[bool]:
    """Return whether each file is excluded; all are of one form, and none is without row groups."""
    if len(handles) == 1:
        return [bool((prune_row_groups(handles[0], query) == Verdict.NONE).all())]
    statistics = handles[0].statistics
    if statistics is not None and not statistics.holds(handles):
        statistics = None
    by_leaf = {} if statistics is None else statistics.bounds
    missing = {leaf: kind for _, leaf, kind in query.prunable if leaf not in by_leaf}
    if missing:
        packed = [handle.pack() for handle in handles]
        found = {leaf: joined_chunk_bounds(packed, leaf, arrow_type=kind) for leaf, kind in missing.items()}
        if any(b.domain is Domain.INTEGER and b.lower.dtype == object for b in found.values()):
            # The integers of a file fit no fixed width: each file is pruned by itself, in its own width.
            return [verdict for handle in handles for verdict in _excluded([handle], query)]
        by_leaf = by_leaf | found
    if statistics is None:
        rows, starts = np.concatenate([handle.group_rows for handle in handles]), group_starts(handles)
    else:
        rows, starts = statistics.rows, statistics.starts
    if missing:
        statistics = SharedStatistics(handles, rows, by_leaf)
    bounds = {path: by_leaf[leaf] for path, leaf, _ in query.prunable}
    verdicts = _judge(query, bounds, rows)
    if statistics is not None:
        statistics.note_verdicts(query, verdicts)
    remain = verdicts != Verdict.NONE
    return [not any_remains for any_remains in np.logical_or.reduceat(remain, starts).tolist()]


def _judge(query: FileQuery, bounds: _ColumnBounds, rows: Int64s) -> npt.NDArray[np.int8]:
    """Return one `Verdict` for each of some row groups, whichever files they are of."""
    if query.bound is None:
        raise TypeError("there is no predicate")
    _add_constants(bounds, query, rows)
    verdicts = prune(query.bound, bounds, len(rows)).verdicts()
    verdicts[rows == 0] = Verdict.NONE
    return verdicts


def _add_constants(bounds: _ColumnBounds, query: FileQuery, rows: Int64s) -> None:
    """Add the columns that have one value in all rows, for units of so many rows."""
    if query.constants:
        from accel.predicate.value_bounds import constant_bounds

        for path, value in query.constants.items():
            bounds[path] = constant_bounds(value, rows)


# -- pages -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class PageVerdicts:
    """The rows of one row group that page bounds leave."""

    rows: RowSelection
    """Rows that may match."""
    certain: RowSelection
    """The rows among them that are certain to match."""


@dataclass(frozen=True, slots=True, eq=False)
class _Stretches:
    """The stretches of one row group's rows that are judged, and the bounds of each."""

    row_group: int
    num_rows: int
    first_rows: Int64s
    bounds: _ColumnBounds


def prune_pages(
    handle: FileHandle, query: FileQuery, *, groups: Sequence[int], evidence: IndexStatements
) -> list[PageVerdicts]:
    """Return which rows of some row groups, all of which `prune_row_groups` leaves undecided, may match: by
    the column indexes in memory and the evidence of other indexes.

    Pages of different columns do not align, so the rows are cut wherever any of them starts a page,
    and each stretch is judged by the bounds of the pages that it lies in.
    """
    rows_of = handle.metadata.group_rows
    if query.bound is None:
        every = [RowSelection.all(rows_of.item(group)) for group in groups]
        return [PageVerdicts(rows, rows) for rows in every]
    cut = [one for group in groups if (one := _cut(handle, query, group, evidence)) is not None]
    found = dict(zip([one.row_group for one in cut], _judge_stretches(query, cut, evidence), strict=True))
    # What statistics alone tell of the others has been told.
    return [
        found[group]
        if group in found
        else PageVerdicts(RowSelection.all(rows_of.item(group)), RowSelection.none())
        for group in groups
    ]


def _judge_stretches(
    query: FileQuery, cut: Sequence[_Stretches], evidence: IndexStatements
) -> list[PageVerdicts]:
    """Return which rows of some row groups may match, by the bounds of their stretches."""
    if query.bound is None or not cut:
        return []
    bounds: _ColumnBounds = {}
    for path in cut[0].bounds:
        parts = [one.bounds[path] for one in cut]
        if len(cut) > 1 and not Bounds.joinable(parts):  # these cannot be compared at once
            return [found for one in cut for found in _judge_stretches(query, [one], evidence)]
        bounds[path] = parts[0] if len(cut) == 1 else Bounds.join(parts)
    sizes = [len(one.first_rows) for one in cut]
    index_evidence = concatenate(
        [(evidence.of_rows(one.row_group, one.first_rows), len(one.first_rows)) for one in cut]
    )
    verdicts = prune(query.bound, bounds, sum(sizes), index_evidence=index_evidence).verdicts()
    may, certain = verdicts != Verdict.NONE, verdicts == Verdict.ALL
    all_may, any_certain = bool(may.all()), bool(certain.any())
    out = []
    stop = 0
    for one, size in zip(cut, sizes, strict=True):
        start, stop = stop, stop + size
        out.append(
            PageVerdicts(
                RowSelection.all(one.num_rows)
                if all_may
                else RowSelection.from_units(one.first_rows, one.num_rows, keep=may[start:stop]),
                RowSelection.from_units(one.first_rows, one.num_rows, keep=certain[start:stop])
                if any_certain
                else RowSelection.none(),
            )
        )
    return out


def _cut(
    handle: FileHandle, query: FileQuery, row_group: int, evidence: IndexStatements
) -> _Stretches | None:
    """Return the stretches of a row group; None where only its statistics tell of them."""
    num_rows = handle.metadata.group_rows.item(row_group)
    paged: dict[tuple[str, ...], tuple[Int64s, Bounds]] = {}
    whole: list[tuple[tuple[str, ...], int, pa.DataType]] = []
    for column in query.prunable:
        path, leaf, kind = column
        found = bounds_of_pages(handle, leaf, kind=kind, row_group=row_group)
        if found is None:
            whole.append(column)
        else:
            paged[path] = found
    if not paged and not evidence.covers(row_group):
        return None
    starts = [*(first for first, _ in paged.values()), *evidence.cuts(row_group)]
    aligned = bool(starts) and all(
        other is starts[0] or np.array_equal(starts[0], other) for other in starts[1:]
    )
    cuts = starts[0] if aligned else sort_distinct(np.concatenate([np.zeros(1, np.int64), *starts]))
    bounds: _ColumnBounds = {
        path: b if aligned else b.take(np.searchsorted(first, cuts, side="right") - 1)
        for path, (first, b) in paged.items()
    }
    here = np.full(len(cuts), row_group)
    bounds |= {path: group_bounds(handle, leaf, kind=kind).take(here) for path, leaf, kind in whole}
    if query.constants:
        _add_constants(bounds, query, np.diff(np.append(cuts, num_rows)))
    return _Stretches(row_group, num_rows, cuts, bounds)


def bounds_of_pages(
    handle: FileHandle, leaf: int, *, kind: pa.DataType, row_group: int
) -> tuple[Int64s, Bounds] | None:
    """Return where the pages of one chunk start, and their bounds by the column index.

    None where the column index or the offset index is not in memory.
    """
    view = handle.view
    offsets = view.offset_indexes.get((row_group, leaf))
    index = view.column_indexes.get((row_group, leaf))
    if offsets is None or index is None or index.num_pages != offsets.num_pages:
        return None
    bounds = view.page_bounds.get((row_group, leaf))
    if bounds is None:
        num_rows = int(view.metadata.group_rows[row_group])
        rows = np.diff(np.append(offsets.first_row, num_rows))
        chunk = group_bounds(handle, leaf, kind=kind).part(row_group, row_group + 1)
        bounds = page_bounds(view.metadata, leaf, index, rows, arrow_type=kind, chunk=chunk)
        view.page_bounds[(row_group, leaf)] = bounds
    return offsets.first_row, bounds
