"""The new end of a file: indexes, page indexes, and the footer with their places.

Sources: parquet-format `parquet.thrift` (FileMetaData, RowGroup, ColumnChunk, KeyValue, ColumnOrder).

The footer is not decoded and encoded again: the fields that stay are copied as bytes, whether accel reads
them or not, so that memory and risk stay small.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from accel.errors import AccelError, IndexFormatError, ParquetFormatError
from accel.format.embedded import (
    IDX1_KEY,
    LONGEST_HEAD,
    TOC_KEY,
    Checksum,
    CoveredColumn,
    Entry,
    checksum,
    encode_toc,
    pack_head,
    parse_toc,
    unpack_head,
    verify_head,
)
from accel.format.footer import MAGIC, parse_footer
from accel.format.model import FileMetadata
from accel.format.page_index import chunk_offset_index, parse_column_index
from accel.format.thrift import (
    BINARY,
    I32,
    I64,
    LIST,
    STRUCT,
    Struct,
    ThriftReader,
    encode_list_header,
    encode_zigzag,
    field_spans,
    join_spans,
    write_struct,
)
from accel.planning.opening import MOST_TAIL
from accel.writing.index_building import BuiltIndex
from accel.writing.original import At, cut_at
from accel.writing.page_indexes import PageIndexes
from accel.writing.scratch import ScratchBytes

if TYPE_CHECKING:
    from accel.arrays import Int64s

__all__ = ["NewTail", "edit_footer", "make_tail", "verify_tail"]

_ROW_GROUPS, _KEY_VALUE, _ORDERS = 4, 5, 7
_COLUMNS = 1
_PLACES = (4, 5, 6, 7)
"""Fields of a ColumnChunk: offset index offset and length, column index offset and length."""


def edit_footer(
    footer: bytes,
    *,
    places: Int64s,
    key_value: Mapping[str, bytes | None],
    type_orders: int = 0,
) -> bytes:
    """Return the Thrift bytes of a footer with other page index places and key-value pairs.

    Parameters
    ----------
    footer : bytes
        Thrift bytes that `parse_footer` accepts.
    places : int64 array of shape (4, row groups, leaves)
        Offset and length of the offset index and of the column index of each chunk; -1 for none.
    key_value : mapping
        Keys to set, or to remove (None). Other pairs stay, in their order; new ones come last.
    type_orders : int
        The number of TYPE_ORDER column orders to write in place of those of the footer; 0 leaves them alone.

    Raises
    ------
    ParquetFormatError
        The footer does not decode, or has other row groups and columns than `places`.
    """
    reader = ThriftReader(footer)
    fields: list[tuple[int, int, bytes]] = []
    try:
        for number, ctype, start in field_spans(reader):
            if number == _ROW_GROUPS and ctype == LIST:
                value = _edit_groups(ThriftReader(footer, start, end=reader.pos), places)
            elif number == _KEY_VALUE and ctype == LIST:
                value = _edit_pairs(ThriftReader(footer, start, end=reader.pos), key_value)
            elif number == _ORDERS and type_orders:
                continue
            else:
                value = bytes(footer[start : reader.pos])
            fields.append((number, ctype, value))
    except IndexError as error:
        raise ParquetFormatError("the footer ends early", place="footer") from error
    have = {number for number, _, _ in fields}
    if _KEY_VALUE not in have:
        fields.append((_KEY_VALUE, LIST, _edit_pairs(ThriftReader(encode_list_header(STRUCT, 0)), key_value)))
    if type_orders:
        order: Struct = {1: (STRUCT, {})}
        fields.append(
            (_ORDERS, LIST, encode_list_header(STRUCT, type_orders) + write_struct(order) * type_orders)
        )
    if len({number for number, _, _ in fields}) != len(fields):
        raise ParquetFormatError("a field stands in the footer twice", place="footer")
    return join_spans(sorted(fields, key=lambda entry: entry[0]))


def _edit_groups(reader: ThriftReader, places: Int64s) -> bytes:
    _, groups, leaves = places.shape
    size = reader.list_of(STRUCT)
    if size != groups:
        raise ParquetFormatError(f"{size} row groups where {groups} were read", place="footer")
    table = places.tolist()
    out = [encode_list_header(STRUCT, size)]
    for group in range(size):
        fields: list[tuple[int, int, bytes]] = []
        for number, ctype, start in field_spans(reader):
            value = bytes(reader.buf[start : reader.pos])
            if number == _COLUMNS and ctype == LIST:
                rows = [column[group] for column in table]
                value = _edit_chunks(ThriftReader(reader.buf, start, end=reader.pos), rows, leaves)
            fields.append((number, ctype, value))
        out.append(join_spans(fields))
    return b"".join(out)


def _edit_chunks(reader: ThriftReader, places: list[list[int]], leaves: int) -> bytes:
    size = reader.list_of(STRUCT)
    if size != leaves:
        raise ParquetFormatError(f"{size} column chunks where {leaves} were read", place="footer")
    out = [encode_list_header(STRUCT, size)]
    for leaf in range(size):
        fields = [
            (number, ctype, bytes(reader.buf[start : reader.pos]))
            for number, ctype, start in field_spans(reader)
            if number not in _PLACES
        ]
        for first, (offset, length) in ((4, (places[0], places[1])), (6, (places[2], places[3]))):
            if offset[leaf] > 0:
                fields.append((first, I64, encode_zigzag(offset[leaf])))
                fields.append((first + 1, I32, encode_zigzag(length[leaf])))
        out.append(join_spans(sorted(fields, key=lambda entry: entry[0])))
    return b"".join(out)


def _edit_pairs(reader: ThriftReader, changes: Mapping[str, bytes | None]) -> bytes:
    pairs: list[bytes] = []
    for _ in range(reader.list_of(STRUCT)):
        begin = reader.pos
        key = None
        for number, ctype, start in field_spans(reader):
            if number == 1 and ctype == BINARY:
                key = ThriftReader(reader.buf, start, end=reader.pos).text()
        if key not in changes:
            pairs.append(bytes(reader.buf[begin : reader.pos]))
    for name, value in changes.items():
        if value is not None:
            raw = name.encode("utf-8", "surrogateescape")
            pairs.append(write_struct({1: (BINARY, raw), 2: (BINARY, value)}))
    return encode_list_header(STRUCT, len(pairs)) + b"".join(pairs)


_REPRODUCIBLE = "SOURCE_DATE_EPOCH"
"""The environment variable of reproducible builds: if it is set, times are not written."""


@dataclass(frozen=True, slots=True, eq=False)
class _PlacedIndex:
    """An index and its place in the new file."""

    index: BuiltIndex
    offset: int
    head_again: tuple[int, int] | None = None
    """Offset and length of a copy of its head."""


def _footer_keys(
    metadata: FileMetadata, placed: Sequence[_PlacedIndex], *, retained: Sequence[Entry]
) -> dict[str, bytes | None]:
    """Return the footer keys to set, or to remove (None). `retained` are entries of earlier indexes that
    stay."""
    pairs: dict[str, bytes | None] = {TOC_KEY: None}
    for each in placed:
        if each.index.wanted.kind is None:
            pairs[IDX1_KEY] = str(each.offset).encode()
    entries = [*retained, *(_entry(each) for each in placed)]
    if entries:
        pairs[TOC_KEY] = encode_toc(entries, metadata)
    return pairs


def _entry(placed: _PlacedIndex) -> Entry:
    index, wanted, head = placed.index, placed.index.wanted, _head_of(placed.index)
    whole = Checksum()
    for piece in index.data.pieces():
        whole.add(piece)
    leaf = wanted.leaf.ordinal
    signatures = dict(zip([each.ordinal for each in wanted.leaves] or [leaf], index.signatures, strict=True))
    return Entry(
        kind=wanted.kind_name,
        version=index.version,
        column=tuple(wanted.leaf.path),
        signature=signatures.get(leaf, index.signatures[0]),
        level=str(wanted.level),
        row_group=index.row_group,
        units=index.units,
        offset=placed.offset,
        length=index.data.length,
        checksum=whole.value,
        head=0 if head is None else len(head),
        head_checksum=None if head is None else checksum(head),
        head_again=placed.head_again,
        params={} if wanted.kind is None else dict(wanted.kind.params),
        columns=_covered(index),
        seconds=None if _REPRODUCIBLE in os.environ else index.seconds,
    )


def _head_of(index: BuiltIndex) -> bytes | None:
    """Return the head of an index, by which a reader finds the other parts; None for kinds that are read as a
    whole."""
    first = next(index.data.pieces(), b"")  # a head is stored in one piece
    length = None if index.wanted.kind is None else index.wanted.kind.head_bytes(first)
    return None if length is None else bytes(first[:length])


def _covered(index: BuiltIndex) -> tuple[CoveredColumn, ...]:
    """Return the columns that an index of several covers, each with its expression."""
    leaves = [leaf.ordinal for leaf in index.wanted.leaves]
    return tuple(
        CoveredColumn(leaf.path, index.signatures[leaves.index(leaf.ordinal)], of)
        for leaf, of in index.wanted.covers()
    )


def _check_entries(metadata: FileMetadata, tail: NewTail, built: Sequence[BuiltIndex]) -> None:
    """Compare the table of contents in a new footer with the indexes; raise AccelError if they differ."""
    at, retained = tail.start, tail.retained
    toc = parse_toc(metadata)
    entries = toc.entries if toc is not None else ()
    if len(entries) != len(retained) + len(built):
        raise AccelError(f"{len(entries)} indexes read back where {len(retained) + len(built)} should be")
    if entries[: len(retained)] != retained:
        raise AccelError("an index that was to stay does not read back")
    for entry, index in zip(entries[len(retained) :], built, strict=True):
        if (entry.offset, entry.length, entry.kind) != (at, index.data.length, index.wanted.kind_name):
            raise AccelError(f"an index of column {index.wanted.column} does not read back")
        if index.wanted.kind is None and metadata.key_value.get(IDX1_KEY) != str(at).encode():
            raise AccelError(f"the key {IDX1_KEY} does not read back")
        at += index.data.length


def _earlier_entries(metadata: FileMetadata) -> tuple[Entry, ...]:
    """Return the entries of accel's earlier indexes; none if the table of contents is damaged, so that they
    stay."""
    try:
        toc = parse_toc(metadata)
    except IndexFormatError:
        return ()
    return toc.entries if toc is not None else ()


def _retained_entries(metadata: FileMetadata, *, idx1: bool) -> tuple[Entry, ...]:
    """Return the entries that stay: the IDX1, unless a new one is written, because the entry names its
    column."""
    offset = metadata.key_value.get(IDX1_KEY)
    entries = () if idx1 else _earlier_entries(metadata)
    return tuple(e for e in entries if e.kind == "idx1" and offset == str(e.offset).encode())


# Bytes from which on an index is read in parts.
_LARGE = 64 << 10
# Bytes of heads beside the footer: the first read of a file fetches most of them.
_MOST_HEADS = 256 << 10
# About the bytes that the table of contents and the places of page indexes add to a footer.
_FOOTER_GROWTH = 2 << 10


@dataclass(frozen=True, slots=True, eq=False)
class NewTail:
    """The new file from `start` on."""

    start: int
    """The bytes before it are those of the original."""
    run: tuple[ScratchBytes, ...]
    """The indexes in order."""
    rest: bytes
    """Page indexes, heads, footer, its length and the magic."""
    retained: tuple[Entry, ...]
    """Entries of earlier indexes that stay where they are."""
    index_bytes: int
    page_index_bytes: int
    footer_bytes: int

    @property
    def length(self) -> int:
        """Bytes of the tail."""
        return sum(index.length for index in self.run) + len(self.rest)

    @property
    def file_size(self) -> int:
        """Bytes of the new file."""
        return self.start + self.length

    def read(self) -> Iterator[bytes]:
        """Yield the bytes, part by part."""
        for index in self.run:
            yield from index.pieces()
        yield self.rest


def make_tail(
    metadata: FileMetadata,
    built: Sequence[BuiltIndex],
    *,
    found: PageIndexes,
    idx1: bool,
) -> NewTail:
    """Lay out the new end of a file.

    Parameters
    ----------
    metadata : FileMetadata
        The metadata of the original.
    built : sequence of BuiltIndex
        The indexes, of which at most one is IDX1.
    found : PageIndexes
        The page indexes of the new file.
    idx1 : bool
        Whether the indexes replace the IDX1 of the original, and not only its other indexes.
    """
    retained = _retained_entries(metadata, idx1=idx1)
    gone = [e for e in _earlier_entries(metadata) if idx1 or e.kind != "idx1"]
    own = [(e.offset, e.offset + e.length) for e in gone]
    own += [(e.head_again[0], sum(e.head_again)) for e in gone if e.head_again is not None]
    start = cut_at(metadata, own)
    at = start
    run: list[ScratchBytes] = []
    placed: list[_PlacedIndex] = []
    for index in _in_file_order(built):
        placed.append(_PlacedIndex(index, at))
        run.append(index.data)
        at += index.data.length
    index_bytes = at - start
    parts: list[bytes] = []
    places = np.full((4, *metadata.chunks.start.shape), -1, np.int64)
    for halves, first in ((found.column_bytes, 2), (found.offset_bytes, 0)):
        for chunk in sorted(halves):
            data = halves[chunk]
            places[(slice(first, first + 2), *chunk)] = at, len(data)
            parts.append(data)
            at += len(data)
    page_index_bytes = at - start - index_bytes
    # The heads must not push page indexes out of the first read.
    near = page_index_bytes + len(metadata.footer) + _FOOTER_GROWTH
    room = MOST_TAIL - near if near <= MOST_TAIL else _MOST_HEADS
    placed, heads = _copy_heads(placed, at, min(room, _MOST_HEADS))
    index_bytes += sum(map(len, heads))
    parts += heads
    footer = edit_footer(
        metadata.footer,
        places=places,
        key_value=_footer_keys(metadata, placed, retained=retained),
        type_orders=len(metadata.schema.leaves) if found.type_orders else 0,
    )
    parts += [footer, len(footer).to_bytes(4, "little"), MAGIC]
    return NewTail(start, tuple(run), b"".join(parts), retained, index_bytes, page_index_bytes, len(footer))


def _copy_heads(placed: Sequence[_PlacedIndex], at: int, room: int) -> tuple[list[_PlacedIndex], list[bytes]]:
    """Return copies of the heads of large indexes, from `at` on, as far as there is room, and the indexes
    with their places."""
    out: list[_PlacedIndex] = []
    heads: list[bytes] = []
    for each in placed:
        head = _head_of(each.index) if each.index.data.length > _LARGE else None
        packed = pack_head(head) if head and len(head) <= LONGEST_HEAD else b""
        if 0 < len(packed) <= room:
            each = replace(each, head_again=(at, len(packed)))
            heads.append(packed)
            at += len(packed)
            room -= len(packed)
        out.append(each)
    return out, heads


def _in_file_order(built: Sequence[BuiltIndex]) -> list[BuiltIndex]:
    """Put IDX1 first: the indexes behind it can then be replaced later without moving it."""
    return sorted(built, key=lambda index: index.wanted.kind is not None)


def verify_tail(tail: NewTail, original: FileMetadata, *, built: Sequence[BuiltIndex]) -> FileMetadata:
    """Parse the new end as a reader would, and compare it with the original.

    Returns
    -------
    FileMetadata
        The metadata of the new file.

    Raises
    ------
    AccelError
        Something differs that should not. This is a bug of accel, and the file must not be written.
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
    _check_entries(metadata, tail, _in_file_order(built))
    _check_heads(metadata, data, offset)
    return metadata


def _same(new: FileMetadata, old: FileMetadata) -> None:
    chunks, before = new.chunks, old.chunks
    # Not the ends of chunks: for writers that leave out dictionary headers they are a guess, which the footer
    # cuts off.
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
    for entry in _earlier_entries(metadata):
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
