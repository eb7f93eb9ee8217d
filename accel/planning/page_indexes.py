"""The page indexes that planning a file takes: which, from where, and into the handle."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from accel.errors import IndexFormatError
from accel.format.model import ChunkTable, OffsetIndex
from accel.format.page_index import chunk_offset_index, parse_column_index
from accel.planning.decoded_size import DECODED_SHARE
from accel.planning.handle import FileHandle
from accel.planning.need import Need, OnBadIndex, Steps, Tail
from accel.planning.pruning import KeptGroups
from accel.planning.query import FileQuery
from accel.planning.selection import RowSelection
from accel.planning.task import DECODE_AT_ONCE
from accel.ranges import ByteRange, Kind, ReadKey, Stash, Want

if TYPE_CHECKING:
    from accel.arrays import Bools

__all__ = ["fetch_or_recall", "fetch_page_indexes", "index_want", "page_index_wants", "take_page_indexes"]

# So many may ask a file for page indexes before one that was to bring them all is taken to have failed.
_MANY = 1000
# The bounds of the pages of so many row groups lie so far apart that they take a request each.
_MANY_GROUPS = 8


def page_index_wants(
    handle: FileHandle,
    query: FileQuery,
    *,
    kept: KeptGroups,
    selection: Mapping[int, RowSelection] | None,
    piece_bytes: int,
    limit: int | None,
    pages_indexed: bool,
    answered: Collection[int] = (),
    whole_bytes: int = 0,
) -> list[Want]:
    """The page indexes that planning takes and the handle does not hold yet.

    Offset indexes are wanted where rows are left out, where a row group is to be cut, and where `limit`
    (rows, or None) may end the scan inside it; and where `pages_indexed` says that an index in the file
    speaks of pages. Of the columns `answered`, which such an index knows better, bounds are not asked for in many row
    groups. None is asked for where all chunks that are wanted come to no more than `whole_bytes`, or in row groups
    of whose chunks the footer says that each is one page.
    """
    if handle.distrusted:
        return []
    chunks, group_rows = handle.metadata.chunks, handle.metadata.group_rows
    offset_indexes, column_indexes = handle.offset_indexes, handle.column_indexes
    prunable = sorted({leaf for _, leaf, _ in query.prunable})
    every = sorted({*query.output_leaves, *query.filter_leaves})
    wants: list[Want] = []
    promised = 0
    undivided: Bools | None = None
    for at, (group, certain) in enumerate(kept):
        early = limit is not None and promised < limit
        promised += int(group_rows[group]) if certain else 0
        bounded = [leaf for leaf in prunable if chunks.column_index_offset[group, leaf] > 0]
        prune = bool(bounded) and not certain
        leaves = query.output_leaves if certain else every
        partial = selection is not None and selection[group].count < group_rows[group]
        unmet = [leaf for leaf in bounded if (group, leaf) not in column_indexes] if prune else []
        missing = [leaf for leaf in leaves if (group, leaf) not in offset_indexes]
        if missing and not (
            prune
            or partial
            or early
            or (pages_indexed and not certain)
            or sum(_weight(handle, group, leaf) for leaf in leaves) > piece_bytes
            or sum(handle.decoded_bytes(group, leaf) for leaf in leaves) > DECODE_AT_ONCE
        ):
            missing = []
        if not (unmet or missing):
            continue
        if not pages_indexed:
            if undivided is None:
                undivided = _undivided(chunks, [group for group, _ in kept], every, prunable)
            if undivided.item(at):
                continue
        for leaf in unmet:
            found = index_want(chunks, Kind.COLUMN_INDEX, group, leaf)
            if leaf not in answered or len(kept) < _MANY_GROUPS:
                wants += found
            else:
                wants += [want for want in found if handle.in_tail(want.range) is not None]
        for leaf in missing:
            wants += index_want(chunks, Kind.OFFSET_INDEX, group, leaf)
    if wants and _come_to(handle, [group for group, _ in kept], every) <= whole_bytes:
        return [want for want in wants if handle.in_tail(want.range) is not None]
    return wants


def _undivided(
    chunks: ChunkTable, groups: Sequence[int], leaves: Sequence[int], bounded: Sequence[int]
) -> Bools:
    """Of each row group whether each of its chunks is one page, of whose values the statistics tell what bounds would."""
    at = np.ix_(groups, leaves)
    coded, plain = chunks.dictionary_pages[at], chunks.plain_pages[at]
    one: Bools = ((coded >= 0) & (plain >= 0) & (coded + plain == 1)).all(axis=1)
    told = np.ix_(groups, bounded)
    known = (chunks.min_start[told] >= 0) & (chunks.max_start[told] >= 0) & (chunks.null_count[told] >= 0)
    one &= known.all(axis=1)
    return one


def _come_to(handle: FileHandle, groups: Sequence[int], leaves: Sequence[int]) -> int:
    """Compressed bytes of the chunks of some leaves in some row groups."""
    return int(handle.metadata.chunks.compressed[np.ix_(groups, leaves)].sum())


def _weight(handle: FileHandle, group: int, leaf: int) -> int:
    compressed = int(handle.metadata.chunks.compressed[group, leaf])
    return max(compressed, handle.decoded_bytes(group, leaf) // DECODED_SHARE)


def index_want(chunks: ChunkTable, kind: Kind, group: int, leaf: int) -> list[Want]:
    """One half of a chunk's page index, as one want; none where the file has none."""
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
    """Parse what came for `wants` into the handle; one that does not verify is noted as absent."""
    # Offset indexes first: a column index is checked against the number of pages.
    for want in sorted(wants, key=lambda w: w.key.kind != Kind.OFFSET_INDEX):
        try:
            _parse_index(handle, want.key, stash[want.key])
        except IndexFormatError as error:
            error.at(path=handle.id.path, place=str(want.key))
            on_bad_index(error)


def fetch_or_recall(
    handle: FileHandle, wants: Sequence[Want]
) -> Steps[tuple[dict[ReadKey, memoryview], int]]:
    """The wanted bytes, from the tail at hand or in one round trip; and how many round trips that was."""
    stash = {want.key: data for want in wants if (data := handle.in_tail(want.range)) is not None}
    missing = tuple(want for want in wants if want.key not in stash)
    if not missing:
        return stash, 0
    answer = yield Need(missing)
    if isinstance(answer, Tail):
        raise TypeError("ranges were asked for")
    return {**stash, **answer}, 1


def fetch_page_indexes(
    handle: FileHandle, wants: Sequence[Want], *, early_bytes: int, along: Sequence[Want] = ()
) -> Steps[tuple[dict[ReadKey, memoryview], int]]:
    """The same for page indexes: whoever asks a file for some again gets them all, where they are no more than
    `early_bytes`, for there will be others to ask. `along` is what else is asked for in the same round trip."""
    missing = [want for want in wants if handle.in_tail(want.range) is None]
    region = handle.index_region(early_bytes) if missing and handle.index_reads else None
    handle.index_reads += bool(missing)
    # One is enough, of many that ask at once; of what failed nobody may tell.
    asked = handle.reading_ahead
    if (
        region is None
        or (asked and handle.index_reads < asked + _MANY)
        or not all(region.covers(want.range) for want in missing)
    ):
        found, trips = yield from fetch_or_recall(handle, [*wants, *along])
        return found, trips
    key = ReadKey(Kind.OFFSET_INDEX)
    handle.reading_ahead = handle.index_reads
    try:
        answer = yield Need((Want(key, region), *along))
    finally:
        handle.reading_ahead = 0
    if isinstance(answer, Tail):
        raise TypeError("ranges were asked for")
    if region.end == handle.tail_start:
        handle.grow_tail(answer[key])
    found, more = yield from fetch_or_recall(handle, wants)
    return {**answer, **found}, 1 + more


def _parse_index(handle: FileHandle, key: ReadKey, data: memoryview) -> None:
    group, leaf = key.row_group, key.column
    if key.kind is Kind.OFFSET_INDEX:
        handle.offset_indexes[group, leaf] = None
        index = chunk_offset_index(data, handle.metadata, group, leaf)
        first = handle.first_rows.setdefault(group, index.first_row)
        if first is not index.first_row and np.array_equal(first, index.first_row):
            index = OffsetIndex(index.offset, index.size, first)
        handle.offset_indexes[group, leaf] = index
        return
    handle.column_indexes[group, leaf] = None
    offsets = handle.offset_indexes.get((group, leaf))
    if offsets is not None:
        handle.column_indexes[group, leaf] = parse_column_index(data, num_pages=offsets.num_pages)
