"""Page indexes: which of them planning reads, and page locations made from the page headers where there are
none.

Source: parquet-format `parquet.thrift` (DataPageHeaderV2: pages begin with a row).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from accel.errors import AccelError, IndexFormatError
from accel.format.model import ChunkTable, OffsetIndex, PageTable, PageType
from accel.format.page_header import walk_pages
from accel.format.page_index import chunk_offset_index, parse_column_index
from accel.format.runs import begins_with_row
from accel.planning.handle import FileHandle
from accel.planning.leaf_chunks import LeafChunks
from accel.planning.pages import LeafReads, pages_holding
from accel.planning.pruning import RemainingGroups
from accel.planning.query import FileQuery
from accel.planning.read_request import OnBadIndex, ReadRequest, Steps, Tail, read_ranges
from accel.planning.selection import RowSelection
from accel.planning.task import DECODE_AT_ONCE
from accel.ranges import ByteRange, Kind, ReadKey, Stash, Want

if TYPE_CHECKING:
    from accel.arrays import Bools, Int64s

__all__ = [
    "PlanSizes",
    "fetch_page_indexes",
    "index_want",
    "locate_pages",
    "page_index_wants",
    "page_reads",
    "take_page_indexes",
]

# Times `early_bytes` that all page indexes of a file may take, at most.
_MOST_EARLY = 8
# A read that was to bring all page indexes counts as failed after this many other reads.
_MANY = 1000
# From this many row groups on, the column indexes lie so far apart that they take a request each.
_MANY_GROUPS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanSizes:
    """The sizes by which planning decides what to fetch."""

    piece_bytes: int
    """Larger row groups get their offset index read even if all rows are wanted, so that they can be cut."""
    probe_min_bytes: int
    """Bloom filters and dictionaries are read when they may save more than this."""
    early_bytes: int = 0
    """All page indexes may come with the first few, where they are no more: see `fetch_page_indexes`."""
    whole_bytes: int = 0
    """Chunks that come to no more, all together, are read whole: they hold hardly more than a page each, and
    finding the page takes a round trip."""


def page_index_wants(
    handle: FileHandle,
    query: FileQuery,
    *,
    groups: RemainingGroups,
    selection: Mapping[int, RowSelection] | None,
    sizes: PlanSizes,
    limit: int | None,
    pages_indexed: bool,
    answered: Collection[int] = (),
) -> list[Want]:
    """Return the page indexes that planning takes and that are not in memory yet.

    Offset indexes are wanted where rows are left out, where a row group is to be cut, and where `limit`
    (rows, or None) may end the scan inside it; and where `pages_indexed` says that an embedded index covers
    pages. In many row groups no bounds are wanted for the columns `answered`, which an embedded index covers
    more precisely. Nothing is wanted where all chunks come to no more than `sizes.whole_bytes`, or in row
    groups whose chunks are a page each by the footer.
    """
    if handle.distrusted:
        return []
    chunks, group_rows = handle.metadata.chunks, handle.metadata.group_rows
    offset_indexes, column_indexes = handle.view.offset_indexes, handle.view.column_indexes
    prunable = sorted({leaf for _, leaf, _ in query.prunable})
    every = tuple(sorted({*query.output_leaves, *query.filter_leaves}))
    large: dict[tuple[int, ...], Bools] = {}
    wants: list[Want] = []
    promised = 0
    undivided: Bools | None = None
    for at, (group, certain) in enumerate(groups):
        early = limit is not None and promised < limit
        promised += int(group_rows[group]) if certain else 0
        bounded = [leaf for leaf in prunable if chunks.column_index_offset.item(group, leaf) > 0]
        prune = bool(bounded) and not certain
        leaves = query.output_leaves if certain else every
        cut = selection is not None and selection[group].count < group_rows[group]
        unmet = [leaf for leaf in bounded if (group, leaf) not in column_indexes] if prune else []
        missing = [
            leaf
            for leaf in leaves
            if (group, leaf) not in offset_indexes and chunks.offset_index_offset.item(group, leaf) > 0
        ]
        if missing and not (prune or cut or early or (pages_indexed and not certain)):
            if leaves not in large:
                large[leaves] = _large(handle, sizes.piece_bytes, leaves)
            if not large[leaves].item(group):
                missing = []
        if not (unmet or missing):
            continue
        if not pages_indexed:
            if undivided is None:
                undivided = _undivided(chunks, [group for group, _ in groups], every, prunable)
            if undivided.item(at):
                continue
        for leaf in unmet:
            found = index_want(chunks, Kind.COLUMN_INDEX, group, leaf)
            if leaf not in answered or len(groups) < _MANY_GROUPS:
                wants += found
            else:
                wants += [want for want in found if handle.in_tail(want.range) is not None]
        for leaf in missing:
            wants += index_want(chunks, Kind.OFFSET_INDEX, group, leaf)
    if wants and _chunk_bytes(handle, [group for group, _ in groups], every) <= sizes.whole_bytes:
        return [want for want in wants if handle.in_tail(want.range) is not None]
    return wants


def _undivided(
    chunks: ChunkTable, groups: Sequence[int], leaves: Sequence[int], bounded: Sequence[int]
) -> Bools:
    """Return whether each chunk of a row group is one page, whose bounds are those of the statistics."""
    at = np.ix_(groups, leaves)
    coded, plain = chunks.dictionary_pages[at], chunks.plain_pages[at]
    one: Bools = ((coded >= 0) & (plain >= 0) & (coded + plain == 1)).all(axis=1)
    bounds_at = np.ix_(groups, bounded)
    bounded_by_statistics = (
        (chunks.min_start[bounds_at] >= 0)
        & (chunks.max_start[bounds_at] >= 0)
        & (chunks.null_count[bounds_at] >= 0)
    )
    one &= bounded_by_statistics.all(axis=1)
    return one


def _large(handle: FileHandle, piece_bytes: int, leaves: tuple[int, ...]) -> Bools:
    """Return which row groups are too large in some leaves to be read or decoded as one piece."""
    chunks = LeafChunks.of(handle.metadata, leaves)
    out: Bools = (chunks.weight.sum(axis=1) > piece_bytes) | (chunks.decoded.sum(axis=1) > DECODE_AT_ONCE)
    return out


def _chunk_bytes(handle: FileHandle, groups: Sequence[int], leaves: Sequence[int]) -> int:
    """Return the compressed bytes of the chunks of some leaves in some row groups."""
    return int(handle.metadata.chunks.compressed[np.ix_(groups, leaves)].sum())


def index_want(chunks: ChunkTable, kind: Kind, group: int, leaf: int) -> list[Want]:
    """Return one half of a chunk's page index, as one want; none where the file has none."""
    if kind is Kind.COLUMN_INDEX:
        offset, length = chunks.column_index_offset[group, leaf], chunks.column_index_length[group, leaf]
    else:
        offset, length = chunks.offset_index_offset[group, leaf], chunks.offset_index_length[group, leaf]
    if offset <= 0 or length <= 0:
        return []
    return [Want(ReadKey(kind, group, leaf), ByteRange(int(offset), int(offset + length)))]


def take_page_indexes(
    handle: FileHandle,
    wants: Sequence[Want],
    *,
    stash: Stash,
    on_bad_index: OnBadIndex,
) -> None:
    """Parse the bytes of `wants` into the handle; an index that does not verify is noted as absent."""
    first_rows: dict[int, Int64s] = {}
    # Offset indexes come first: a column index is checked against the number of pages.
    for want in sorted(wants, key=lambda w: w.key.kind != Kind.OFFSET_INDEX):
        try:
            _parse_index(handle, want.key, stash[want.key], first_rows)
        except IndexFormatError as error:
            error.at(path=handle.id.path, place=str(want.key))
            on_bad_index(error)


def fetch_page_indexes(
    handle: FileHandle, wants: Sequence[Want], *, early_bytes: int, along: Sequence[Want] = ()
) -> Steps[tuple[dict[ReadKey, memoryview], int]]:
    """Read page indexes, and the ranges `along` in the same round trip.

    A file that is queried again gets all of its page indexes, as others will be needed: where they are no
    more than `early_bytes`, or as many times as much as page indexes of the file have been read by then, up
    to eight times.

    Returns
    -------
    stash, int
        The bytes, and the number of round trips.
    """
    view = handle.view
    missing = [want for want in wants if handle.in_tail(want.range) is None]
    region = None
    if missing and view.index_reads:
        region = handle.index_region(early_bytes * min(view.index_reads, _MOST_EARLY))
    view.index_reads += bool(missing)
    # Only one of many concurrent readers brings all of them. A read that failed reports nothing, so it
    # expires.
    ahead = view.reading_ahead
    if (
        region is None
        or (ahead and view.index_reads < ahead + _MANY)
        or not all(region.covers(want.range) for want in missing)
    ):
        found, trips = yield from read_ranges(handle, [*wants, *along])
        return found, trips
    key = ReadKey(Kind.OFFSET_INDEX)
    view.reading_ahead = view.index_reads
    try:
        answer = yield ReadRequest((Want(key, region), *along))
    finally:
        view.reading_ahead = 0
    if isinstance(answer, Tail):
        raise TypeError("ranges were asked for")
    if region.end == handle.tail_start:
        handle.grow_tail(answer[key])
    found, more = yield from read_ranges(handle, wants)
    return {**answer, **found}, 1 + more


def _parse_index(handle: FileHandle, key: ReadKey, data: memoryview, first_rows: dict[int, Int64s]) -> None:
    """Parse one half of a page index. Chunks of a row group whose pages start at the same rows share that
    array."""
    view, at = handle.view, (key.row_group, key.column)
    if key.kind is Kind.OFFSET_INDEX:
        view.offset_indexes[at] = None
        index = chunk_offset_index(data, view.metadata, *at)
        first = first_rows.setdefault(key.row_group, index.first_row)
        if first is not index.first_row and np.array_equal(first, index.first_row):
            index = OffsetIndex(index.offset, index.size, first)
        view.offset_indexes[at] = index
        return
    view.column_indexes[at] = None
    offsets = view.offset_indexes.get(at)
    if offsets is not None:
        view.column_indexes[at] = parse_column_index(data, num_pages=offsets.num_pages)


def locate_pages(
    chunk: memoryview, *, start: int, num_rows: int, num_values: int, max_repetition: int
) -> OffsetIndex | None:
    """Make the offset index of a chunk that was read whole from its page headers.

    Parameters
    ----------
    chunk : memoryview
        All bytes of the column chunk, its dictionary page included.
    start : int
        The place of the chunk in the file.
    num_rows : int
        The rows of the row group.
    num_values : int
        The values of the chunk.
    max_repetition : int
        The maximum repetition level of the leaf. Inside a list pages of version 1 do not say how many rows
        they hold.

    Returns
    -------
    OffsetIndex or None
        None where the headers do not tell rows, or do not add up to `num_rows`, or where a page begins within
        a row: unknown, not an error.
    """
    try:
        pages = walk_pages(chunk, max_pages=max(num_rows, 1) + 1, num_values=num_values)
    except AccelError:
        return None
    data = (pages.type == PageType.DATA_PAGE) | (pages.type == PageType.DATA_PAGE_V2)
    if not data.any():
        return None
    rows = np.where(
        pages.num_rows[data] >= 0, pages.num_rows[data], -1 if max_repetition else pages.num_values[data]
    )
    # An empty page would share its first row with the next one.
    if bool((rows <= 0).any()) or int(rows.sum()) != num_rows:
        return None
    if max_repetition and not _begin_with_rows(chunk, pages, max_repetition):
        return None
    begin, end = pages.start[data], pages.end[data]
    return OffsetIndex(
        offset=begin + start, size=end - begin, first_row=np.concatenate(([0], np.cumsum(rows)[:-1]))
    )


def _begin_with_rows(chunk: memoryview, pages: PageTable, max_repetition: int) -> bool:
    """Return whether each page of version 2 begins with a row, as `format.runs` describes."""
    v2 = pages.type == PageType.DATA_PAGE_V2
    lengths = (pages.level_bytes - pages.definition_bytes)[v2]
    return all(
        begins_with_row(chunk[body : body + length], max_repetition)
        for body, length in zip(pages.body[v2].tolist(), lengths.tolist(), strict=True)
    )


def page_reads(leaf: LeafReads, index: OffsetIndex, *, rows: RowSelection, num_rows: int) -> LeafReads:
    """Return the reads of a whole chunk, as reads of its pages."""
    ordinal, first_row, stop_row, keep = pages_holding(index.first_row, leaf.reach(rows), num_rows)
    first_page = int(index.offset[0])
    return replace(
        leaf,
        dictionary=ByteRange(leaf.chunk.start, first_page) if leaf.chunk.start < first_page else None,
        dictionary_pages=-1,
        ordinal=ordinal,
        offset=index.offset[keep],
        size=index.size[keep],
        first_row=first_row,
        stop_row=stop_row,
        total_pages=index.num_pages,
    )
