"""Drop what provably does not match: files, row groups, pages; with the count of every level.

A verdict is only as good as its bounds: whatever is unknown is kept.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from accel.arrays import sort_distinct
from accel.format.bounds import chunk_bounds, page_bounds
from accel.format.domain import Bounds
from accel.planning.handle import FileHandle
from accel.planning.query import FileQuery
from accel.planning.selection import RowSelection
from accel.planning.witness import Witnesses, together
from accel.predicate.prune import Evidence, Verdict, prune

if TYPE_CHECKING:
    from accel.arrays import Int64s

__all__ = [
    "KeptGroups",
    "KnownTerms",
    "PageVerdicts",
    "bounds_of_pages",
    "group_bounds",
    "prune_pages",
    "prune_row_groups",
]

KeptGroups: TypeAlias = "Sequence[tuple[int, bool]]"
"""Row groups that statistics leave, in order, each with whether all of its rows are known to match."""
KnownTerms: TypeAlias = "dict[tuple[int, ...], tuple[object, list[pa.Scalar], Evidence]]"
"""What partition values prove of single terms, by the term's identity and theirs."""


@dataclass(frozen=True, slots=True, eq=False)
class PageVerdicts:
    """What page bounds prove for the rows of one row group."""

    rows: RowSelection
    """Rows that may match."""
    sure: RowSelection
    """Those of them that are known to."""


def group_bounds(handle: FileHandle, leaf: int, *, kind: pa.DataType) -> Bounds:
    """What the statistics say of one column, by row group."""
    view = handle.view
    bounds = view.chunk_bounds.get(leaf)
    if bounds is None:
        bounds = None if handle.shelf is None else handle.shelf.of(handle, leaf)
        if bounds is None:
            bounds = chunk_bounds(view.metadata, leaf, arrow_type=kind)
        view.chunk_bounds[leaf] = bounds
    return bounds


def prune_row_groups(handle: FileHandle, query: FileQuery) -> npt.NDArray[np.int8]:
    """One `Verdict` a row group, from chunk statistics and constants."""
    metadata = handle.metadata
    n = metadata.num_row_groups
    if query.bound is None:
        return np.full(n, Verdict.ALL, np.int8)
    bounds = {path: group_bounds(handle, leaf, kind=kind) for path, leaf, kind in query.prunable}
    if query.constants:
        from accel.predicate.prune import constant_bounds

        bounds |= {path: constant_bounds(v, metadata.group_rows) for path, v in query.constants.items()}
    verdicts = prune(query.bound, bounds, n).verdicts()
    verdicts[metadata.group_rows == 0] = Verdict.NONE
    return verdicts


def prune_pages(
    handle: FileHandle, query: FileQuery, *, groups: Sequence[int], witnesses: Witnesses
) -> list[PageVerdicts]:
    """Which rows of some row groups may match, from the column indexes that the handle holds, and witnesses.

    Pages of different columns do not align, so the rows are cut wherever any of them starts a page,
    and each stretch is judged by the bounds of the pages that it lies in.
    """
    if query.bound is None:
        every = [RowSelection.all(int(handle.metadata.group_rows[group])) for group in groups]
        return [PageVerdicts(rows, rows) for rows in every]
    if not groups:
        return []
    cut = [_cut(handle, query, group, witnesses) for group in groups]
    bounds = cut[0].bounds if len(cut) == 1 else _join(handle, cut)
    if bounds is None:  # what cannot be compared at once
        return [
            found
            for group in groups
            for found in prune_pages(handle, query, groups=[group], witnesses=witnesses)
        ]
    sizes = [len(one.cuts) for one in cut]
    witness = together([(witnesses.of_rows(one.row_group, one.cuts), len(one.cuts)) for one in cut])
    verdicts = prune(query.bound, bounds, sum(sizes), index_evidence=witness).verdicts()
    kept, sure = verdicts != Verdict.NONE, verdicts == Verdict.ALL
    all_kept, any_sure = bool(kept.all()), bool(sure.any())
    out = []
    stop = 0
    for one, size in zip(cut, sizes, strict=True):
        start, stop = stop, stop + size
        out.append(
            PageVerdicts(
                RowSelection.all(one.num_rows)
                if all_kept
                else RowSelection.from_units(one.cuts, one.num_rows, keep=kept[start:stop]),
                RowSelection.from_units(one.cuts, one.num_rows, keep=sure[start:stop])
                if any_sure
                else RowSelection.none(),
            )
        )
    return out


@dataclass(frozen=True, slots=True, eq=False)
class _Cut:
    """The stretches of one row group that are judged, and what is known of each."""

    row_group: int
    num_rows: int
    cuts: Int64s
    """The first row of each."""
    bounds: dict[tuple[str, ...], Bounds]
    as_held: bool
    """Bounds of pages are the handle's own."""


def _cut(handle: FileHandle, query: FileQuery, row_group: int, witnesses: Witnesses) -> _Cut:
    view = handle.view
    num_rows = view.metadata.group_rows.item(row_group)
    paged: dict[tuple[str, ...], tuple[Int64s, Bounds]] = {}
    whole: dict[tuple[str, ...], Bounds] = {}
    for path, leaf, kind in query.prunable:
        found = bounds_of_pages(handle, leaf, kind=kind, row_group=row_group)
        if found is None:
            whole[path] = group_bounds(handle, leaf, kind=kind).take(np.array([row_group], np.int64))
        else:
            paged[path] = found
    starts = [*(first for first, _ in paged.values()), *witnesses.cuts(row_group)]
    aligned = bool(starts) and all(
        other is starts[0] or np.array_equal(starts[0], other) for other in starts[1:]
    )
    cuts = starts[0] if aligned else sort_distinct(np.concatenate([np.zeros(1, np.int64), *starts]))
    bounds: dict[tuple[str, ...], Bounds] = {
        path: b if aligned else b.take(np.searchsorted(first, cuts, side="right") - 1)
        for path, (first, b) in paged.items()
    }
    bounds |= {path: b.take(np.zeros(len(cuts), np.int64)) for path, b in whole.items()}
    if query.constants:
        from accel.predicate.prune import constant_bounds

        lengths = np.diff(np.append(cuts, num_rows))
        bounds |= {path: constant_bounds(value, lengths) for path, value in query.constants.items()}
    return _Cut(row_group, num_rows, cuts, bounds, aligned)


def _join(handle: FileHandle, cut: Sequence[_Cut]) -> dict[tuple[str, ...], Bounds] | None:
    """Each column's bounds one after the other; None where they are not of one kind."""
    out, joined_bounds = {}, handle.joined_bounds
    as_held = all(one.as_held for one in cut)
    for path in cut[0].bounds:
        parts = [one.bounds[path] for one in cut]
        known = joined_bounds.get(path)
        # The next question often is about the same row groups.
        if known is not None and len(known[0]) == len(parts) and all(map(operator.is_, known[0], parts)):
            out[path] = known[1]
            continue
        if not Bounds.joinable(parts):
            return None
        joined = out[path] = Bounds.join(parts)
        if as_held:
            joined_bounds[path] = (parts, joined)
    return out


def bounds_of_pages(
    handle: FileHandle, leaf: int, *, kind: pa.DataType, row_group: int
) -> tuple[Int64s, Bounds] | None:
    """Where the pages of one chunk start, and what the column index says of each; None where one half is not at hand."""
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


def partition_evidence(
    where: object, partition: Mapping[str, pa.Scalar], *, known: KnownTerms | None = None
) -> Evidence:
    """What the partition values alone prove, before any file's schema is known.

    Terms over other columns are unknown. Used to avoid opening files; it is checked again with the
    schema, since a column of the file of the same name wins. `known` takes what each term comes to, for the next
    partition that has the same scalar objects for the term's columns.
    """
    from accel.predicate import expr as e
    from accel.predicate.bind import bind
    from accel.predicate.prune import constant_bounds

    terms: KnownTerms = {} if known is None else known

    def judge_term(term: object, names: Sequence[str]) -> Evidence:
        schema = pa.schema([pa.field(name, value.type) for name, value in partition.items()])
        one = np.array([1], np.int64)
        bounds = {(name,): constant_bounds(partition[name], one) for name in names}
        return prune(bind(term, schema), bounds, 1)  # type: ignore[arg-type]

    def judge(node: object) -> Evidence:
        match node:
            case e.Not():
                return ~judge(node.operand)
            case e.And() | e.Or():
                parts = [judge(operand) for operand in node.operands]
                total = parts[0]
                for part in parts[1:]:
                    total = total & part if isinstance(node, e.And) else total | part
                return total
            case _:
                # What may be a field of the files is no partition column before their schema is known.
                tops = [column.top_level for column in e.columns_of(node)]  # type: ignore[arg-type]
                names = [name for name in tops if name is not None and name in partition]
                if len(names) < len(tops):
                    return Evidence.unknown(1)
                scalars = [partition[name] for name in names]
                key = id(node), *map(id, scalars)
                told = terms.get(key)
                if told is None:
                    # The entry keeps them alive: their ids stay their own.
                    told = terms[key] = node, scalars, judge_term(node, names)
                return told[2]

    return judge(where)
