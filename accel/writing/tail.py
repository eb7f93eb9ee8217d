"""The new end of a file: indexes, page indexes and the footer that finds them.

```
 [ kept as it was ... ] [ IDX1 ] [ indexes ] [ column indexes ] [ offset indexes ] [ heads again ] [ footer ] [ length, PAR1 ]
                        ^ cut
```
Heads are those parts of large indexes that find the others, packed: beside the footer the first read brings them.
Nothing before the cut moves, so no offset of data, dictionary or bloom filter changes. One suffix read brings
everything behind it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from accel.errors import AccelError
from accel.format.embedded import Entry, verify_head
from accel.format.footer import MAGIC, parse_footer
from accel.format.model import FileMetadata
from accel.format.packed_heads import LONGEST_HEAD, pack_head, unpack_head
from accel.format.page_index import chunk_offset_index, parse_column_index
from accel.planning.opening import MOST_TAIL
from accel.writing.building import BuiltIndex
from accel.writing.container import (
    IDX1_KEY,
    TOC_KEY,
    PlacedIndex,
    check_container,
    earlier_entries,
    encode_container,
    head_of,
    kept_entries,
)
from accel.writing.footer_edit import PageIndexPlaces, edit_footer
from accel.writing.original import At, cut_at
from accel.writing.page_indexes import PageIndexes
from accel.writing.scratch import ScratchBytes

__all__ = ["NewTail", "make_tail", "verify_tail"]

# Bytes of an index; a smaller one is read as a whole.
_LARGE = 64 << 10
# Bytes of heads that stand beside the footer: they come with most first reads, asked for or not.
_MOST_HEADS = 256 << 10
# Bytes that the table of contents and the places of page indexes may add to a footer, about.
_FOOTER_GROWTH = 2 << 10


@dataclass(frozen=True, slots=True, eq=False)
class NewTail:
    """What stands in the new file from `start` on."""

    start: int
    """The cut: the bytes before it are those of the original."""
    run: tuple[ScratchBytes, ...]
    """The indexes, in their order."""
    rest: bytes
    """Page indexes, footer, its length and the magic."""
    kept: tuple[Entry, ...]
    """Indexes of before that stay where they are."""
    index_bytes: int
    page_index_bytes: int
    footer_bytes: int

    @property
    def length(self) -> int:
        return sum(kept.length for kept in self.run) + len(self.rest)

    @property
    def file_size(self) -> int:
        return self.start + self.length

    def read(self) -> Iterator[bytes]:
        """All of it, part by part."""
        for kept in self.run:
            yield from kept.pieces()
        yield self.rest


def make_tail(
    metadata: FileMetadata,
    built: Sequence[BuiltIndex],
    *,
    found: PageIndexes,
    idx1: bool,
) -> NewTail:
    """Lay everything out behind the cut.

    Parameters
    ----------
    metadata : FileMetadata
        Of the original.
    built : sequence of BuiltIndex
        The indexes, of which at most one is IDX1.
    found : PageIndexes
        All page indexes that the file is to have.
    idx1 : bool
        Whether they take the place of the original's IDX1 too, and not only of its other indexes.
    """
    kept = kept_entries(metadata, idx1=idx1)
    gone = [e for e in earlier_entries(metadata) if idx1 or e.kind != "idx1"]
    own = [(e.offset, e.offset + e.length) for e in gone]
    own += [(e.head_again[0], sum(e.head_again)) for e in gone if e.head_again is not None]
    start = cut_at(metadata, own)
    at = start
    run: list[ScratchBytes] = []
    placed: list[PlacedIndex] = []
    for index in in_order(built):
        placed.append(PlacedIndex(index, at))
        run.append(index.data)
        at += index.data.length
    index_bytes = at - start
    parts: list[bytes] = []
    shape = metadata.chunks.start.shape
    arrays = [np.full(shape, -1, np.int64) for _ in range(4)]
    for halves, offsets, lengths in (
        (found.column_bytes, arrays[2], arrays[3]),
        (found.offset_bytes, arrays[0], arrays[1]),
    ):
        for chunk in sorted(halves):
            data = halves[chunk]
            offsets[chunk], lengths[chunk] = at, len(data)
            parts.append(data)
            at += len(data)
    page_index_bytes = at - start - index_bytes
    # Page indexes that would come with the footer shall come still.
    near = page_index_bytes + len(metadata.footer) + _FOOTER_GROWTH
    room = MOST_TAIL - near if near <= MOST_TAIL else _MOST_HEADS
    placed, heads = _heads_again(placed, at, min(room, _MOST_HEADS))
    index_bytes += sum(map(len, heads))
    parts += heads
    footer = edit_footer(
        metadata.footer,
        places=PageIndexPlaces(*arrays),
        key_value=encode_container(metadata, placed, kept=kept),
        type_orders=len(metadata.schema.leaves) if found.type_orders else 0,
    )
    parts += [footer, len(footer).to_bytes(4, "little"), MAGIC]
    return NewTail(start, tuple(run), b"".join(parts), kept, index_bytes, page_index_bytes, len(footer))


def _heads_again(placed: Sequence[PlacedIndex], at: int, room: int) -> tuple[list[PlacedIndex], list[bytes]]:
    """The heads of large indexes once more, from `at` on, as far as there is room; and who they belong to."""
    told: list[PlacedIndex] = []
    heads: list[bytes] = []
    for each in placed:
        head = head_of(each.index) if each.index.data.length > _LARGE else b""
        packed = pack_head(head) if 0 < len(head) <= LONGEST_HEAD else b""
        if not 0 < len(packed) <= room:
            told.append(each)
            continue
        told.append(replace(each, head_again=(at, len(packed))))
        heads.append(packed)
        at += len(packed)
        room -= len(packed)
    return told, heads


def in_order(built: Sequence[BuiltIndex]) -> list[BuiltIndex]:
    """As they stand in the file: IDX1 first, since what comes behind it may be replaced later without moving it."""
    return sorted(built, key=lambda index: index.wanted.kind is not None)


def verify_tail(tail: NewTail, original: FileMetadata, *, built: Sequence[BuiltIndex]) -> FileMetadata:
    """Read the new file's end back as a reader would, and hold it against the original.

    Returns
    -------
    FileMetadata
        Of the new file.

    Raises
    ------
    AccelError
        Anything differs that should not: this is a fault of accel's, and nothing is to be written.
    """
    data, offset = tail.rest, tail.file_size - len(tail.rest)
    begin = tail.file_size - 8 - tail.footer_bytes
    metadata = parse_footer(data[begin - offset : -8], file_size=tail.file_size, footer_start=begin)
    _same(metadata, original)
    chunks = metadata.chunks
    bloom_ends = chunks.bloom_offset + np.maximum(chunks.bloom_length, 0)
    if int(np.max(bloom_ends, initial=0)) > tail.start:
        raise AccelError("a bloom filter lies among the page indexes: the file's footer contradicts itself")
    for chunk in np.argwhere(chunks.offset_index_offset > 0).tolist():
        _check_page_index(metadata, data, offset, (chunk[0], chunk[1]))
    check_container(metadata, in_order(built), kept=tail.kept, start=tail.start)
    _check_heads(metadata, data, offset)
    return metadata


def _same(new: FileMetadata, old: FileMetadata) -> None:
    chunks, before = new.chunks, old.chunks
    # Not where a chunk ends: of a writer that left out dictionary headers that is a guess, cut off by the footer.
    names = (
        "start",
        "data_page_offset",
        "codec",
        "num_values",
        "compressed",
        "uncompressed",
        "bloom_offset",
        "bloom_length",
    )
    same = (
        new.schema == old.schema
        and new.created_by == old.created_by
        and new.group_rows.tolist() == old.group_rows.tolist()
        and all(np.array_equal(getattr(chunks, name), getattr(before, name)) for name in names)
        and _others(new) == _others(old)
    )
    if not same:
        raise AccelError("the new footer does not say what the old one did")


def _others(metadata: FileMetadata) -> dict[str, bytes]:
    return {key: value for key, value in metadata.key_value.items() if key not in (TOC_KEY, IDX1_KEY)}


def _check_heads(metadata: FileMetadata, data: bytes, start: int) -> None:
    for entry in earlier_entries(metadata):
        if entry.head_again is not None:
            at, length = entry.head_again[0] - start, entry.head_again[1]
            verify_head(entry, unpack_head(data[at : at + length], entry.head))


def _check_page_index(metadata: FileMetadata, data: bytes, start: int, at: At) -> None:
    chunks = metadata.chunks

    def part(name: str) -> bytes:
        offset = int(getattr(chunks, f"{name}_offset")[at]) - start
        return data[offset : offset + int(getattr(chunks, f"{name}_length")[at])]

    index = chunk_offset_index(part("offset_index"), metadata, *at)
    if int(chunks.column_index_offset[at]) > 0:
        parse_column_index(part("column_index"), num_pages=index.num_pages)
