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
from accel.format.bounds import chunk_bounds, joined_chunk_bounds, page_bounds
from accel.format.domain import Bounds, Domain
from accel.format.model import FileMetadata
from accel.format.writers import doubts_about
from accel.planning.handle import FileHandle
from accel.planning.index_evidence import Witnesses, together
from accel.planning.query import FileQuery
from accel.planning.selection import RowSelection
from accel.predicate.constant import constant_bounds
from accel.predicate.evidence import Evidence, Verdict
from accel.predicate.prune import prune

if TYPE_CHECKING:
    from accel.arrays import Int64s
    from accel.format.packed import Kin

__all__ = [
    "KeptGroups",
    "KnownTerms",
    "PageVerdicts",
    "Shelf",
    "bounds_of_pages",
    "excluded_files",
    "group_bounds",
    "group_starts",
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
        from accel.predicate.constant import constant_bounds

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
    verdicts = prune(query.bound, bounds, sum(sizes), witness=witness).verdicts()
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
        from accel.predicate.constant import constant_bounds

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
        if not Bounds.alike(parts):
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
    from accel.predicate.constant import constant_bounds

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


_LONGEST = 64 * 1024
"""Bytes of a footer; longer ones are not copied to be looked at together."""
_FEWEST = 8
"""Files; of fewer the bounds stay with each."""


def excluded_files(handles: Sequence[FileHandle], query: FileQuery) -> list[bool]:
    """Of each file, whether `prune_row_groups` drops all of its row groups.

    Parameters
    ----------
    handles : sequence of FileHandle
        Files of the schema that `query` was compiled for.
    query : FileQuery
        The same for all of them, constants included.
    """
    if query.bound is None or not handles:
        return [False] * len(handles)
    excluded = [not handle.num_row_groups for handle in handles]
    asked = [(place, handle) for place, handle in enumerate(handles) if not excluded[place]]
    if not asked:
        return excluded
    shelf = asked[0][1].shelf
    if (
        shelf is not None
        and all(leaf in shelf.bounds for _, leaf, _ in query.prunable)
        and shelf.holds([handle for _, handle in asked])
    ):
        found = {path: shelf.bounds[leaf] for path, leaf, _ in query.prunable}
        verdicts = _judge(query, found, shelf.rows, shelf.starts)
    else:
        verdicts = _judge_apart([handle for _, handle in asked], query)
    for (place, handle), verdict in zip(asked, verdicts, strict=True):
        excluded[place] = verdict
        if verdict and handle.shelf is not None:
            handle.fold()
    return excluded


def _judge_apart(handles: Sequence[FileHandle], query: FileQuery) -> list[bool]:
    """The same for files that were not judged together before, none of them without row groups."""
    found = _learn_together(handles, query)
    if found is not None:
        shelf = _shelve(handles, _rows_of(handles), {leaf: found[path] for path, leaf, _ in query.prunable})
        return _judge(query, found, shelf.rows, shelf.starts)
    excluded = [False] * len(handles)
    columns = [_bounds_of(handles, leaf, kind) for _, leaf, kind in query.prunable]
    alike: dict[tuple[object, ...], list[tuple[int, FileHandle, tuple[Bounds, ...]]]] = {}
    for place, (handle, *bounds) in enumerate(zip(handles, *columns, strict=True)):
        # What one writer wrote as numbers another may not have: bounds are joined with their like.
        form = tuple([(id(b.domain), b.lower.dtype.char, b.upper.dtype.char) for b in bounds])
        one = place, handle, tuple(bounds)
        if form in alike:
            alike[form].append(one)
        else:
            alike[form] = [one]
    for some in alike.values():
        places, kept, bounds_of = zip(*some, strict=True)
        rows = _rows_of(kept)
        joined = {
            path: Bounds.join([bounds[at] for bounds in bounds_of]) if len(kept) > 1 else bounds_of[0][at]
            for at, (path, _, _) in enumerate(query.prunable)
        }
        verdicts = _judge(query, joined, rows, group_starts(kept))
        for place, verdict in zip(places, verdicts, strict=True):
            excluded[place] = verdict
        if len(kept) >= _FEWEST and joined:
            _shelve(kept, rows, {leaf: joined[path] for path, leaf, _ in query.prunable})
        else:
            for handle, bounds in zip(kept, bounds_of, strict=True):
                for (_, leaf, _), known in zip(query.prunable, bounds, strict=True):
                    handle.chunk_bounds[leaf] = known
    return excluded


def _learn_together(handles: Sequence[FileHandle], query: FileQuery) -> dict[tuple[str, ...], Bounds] | None:
    """The bounds of files of which nothing is known yet, or other columns' only, one after the other; None where they
    are not alike."""
    if len(handles) < _FEWEST or not query.prunable:
        return None
    first, shelf = handles[0].kin, handles[0].shelf
    for handle in handles:
        kin = handle.kin
        if (
            kin.schema is not first.schema
            or handle.keeps_bounds
            or handle.shelf is not shelf
            or handle.footer_bytes > _LONGEST
            or (kin is not first and not _bounded_alike(kin, first, query))
        ):
            return None
    if shelf is not None and not shelf.holds(handles):
        return None
    files = [handle.pack() for handle in handles]
    found = {}
    for path, leaf, kind in query.prunable:
        joined = None if shelf is None else shelf.bounds.get(leaf)
        if joined is None:
            joined = joined_chunk_bounds(files, leaf, arrow_type=kind)
        if joined.domain is Domain.INTEGER and joined.lower.dtype == object:
            return None  # one of them has numbers that take no fixed width, and is to be alone with that
        found[path] = joined
    return found


def _shelve(handles: Sequence[FileHandle], rows: Int64s, bounds: dict[int, Bounds]) -> Shelf:
    """Keep bounds together, with those of other columns that are kept so already."""
    before = handles[0].shelf
    if before is not None and before.holds(handles):
        bounds = before.bounds | bounds
    return Shelf(handles, rows, bounds)


def _bounds_of(handles: Sequence[FileHandle], leaf: int, kind: pa.DataType) -> list[Bounds]:
    """What `group_bounds` finds for each, found for those together that are of one schema object."""
    found: list[Bounds | None] = []
    alike: dict[tuple[object, ...], list[int]] = {}
    for place, handle in enumerate(handles):
        bounds = handle.kept_bounds(leaf)
        if bounds is None and handle.shelf is not None:
            bounds = handle.shelf.of(handle, leaf)
        found.append(bounds)
        if bounds is None and handle.footer_bytes <= _LONGEST:
            kin = handle.kin
            form = id(kin.schema), int(kin.column_orders[leaf]), doubts_about(kin, leaf, arrow_type=kind)
            alike.setdefault(form, []).append(place)
    for places in alike.values():
        if len(places) == 1:
            continue
        joined = joined_chunk_bounds([handles[place].pack() for place in places], leaf, arrow_type=kind)
        if joined.domain is Domain.INTEGER and joined.lower.dtype == object:
            continue  # one of them has numbers that take no fixed width, and is to be alone with that
        begin = 0
        for place in places:
            end = begin + handles[place].num_row_groups
            found[place] = joined.part(begin, end)
            begin = end
    return [
        group_bounds(handle, leaf, kind=kind) if bounds is None else bounds
        for handle, bounds in zip(handles, found, strict=True)
    ]


def _bounded_alike(one: Kin | FileMetadata, other: Kin | FileMetadata, query: FileQuery) -> bool:
    """Whether bounds of the columns that are asked for are of the same order, and as much believed."""
    orders = one.column_orders, other.column_orders
    return all(
        orders[0].item(leaf) == orders[1].item(leaf)
        and doubts_about(one, leaf, arrow_type=kind) == doubts_about(other, leaf, arrow_type=kind)
        for _, leaf, kind in query.prunable
    )


def _rows_of(handles: Sequence[FileHandle]) -> Int64s:
    """Of each row group, one file's after the other's."""
    return np.concatenate([handle.group_rows for handle in handles])


def _judge(
    query: FileQuery, bounds: dict[tuple[str, ...], Bounds], rows: Int64s, starts: Int64s
) -> list[bool]:
    """Whether each file is excluded, of which the row groups lie from `starts` on; none is without any."""
    if query.bound is None:
        raise TypeError("there is no predicate")
    for path, value in query.constants.items():
        bounds[path] = constant_bounds(value, rows)
    some = prune(query.bound, bounds, len(rows)).verdicts() != Verdict.NONE
    some &= rows != 0
    kept: list[bool] = np.logical_or.reduceat(some, starts).tolist()
    return [not keep for keep in kept]


def group_starts(handles: Sequence[FileHandle]) -> Int64s:
    """The first row group of each file, where one file's follow the other's."""
    counts = np.array([handle.num_row_groups for handle in handles], np.int64)
    starts: Int64s = np.cumsum(counts) - counts
    return starts


class Shelf:
    """The chunk bounds of some files, one file's row groups after the other's. Each file knows its place on it.

    Python's garbage collector goes through every object of every file; these are a few for all of them.
    """

    __slots__ = ("bounds", "files", "rows", "starts")

    def __init__(self, handles: Sequence[FileHandle], rows: Int64s, bounds: dict[int, Bounds]) -> None:
        self.files = len(handles)
        self.rows = rows
        """Of each row group."""
        self.starts = group_starts(handles)
        """The first row group of each file."""
        self.bounds = bounds
        """By leaf."""
        for handle, start in zip(handles, self.starts.tolist(), strict=True):
            handle.shelf, handle.shelf_at = self, start
            for leaf in bounds:
                handle.drop_bounds(leaf)

    def of(self, handle: FileHandle, leaf: int) -> Bounds | None:
        """Those of one file."""
        found = self.bounds.get(leaf)
        if found is None:
            return None
        return found.part(handle.shelf_at, handle.shelf_at + handle.num_row_groups)

    def holds(self, handles: Sequence[FileHandle]) -> bool:
        """Whether it is of just these, in this order."""
        if len(handles) != self.files:
            return False
        places: list[int] = self.starts.tolist()
        return [handle.shelf_at if handle.shelf is self else -1 for handle in handles] == places
