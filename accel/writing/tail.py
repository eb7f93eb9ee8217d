"""A footer with other page index locations and other key-value metadata, all else byte for byte as it was.

Sources: parquet-format `parquet.thrift` (FileMetaData, RowGroup, ColumnChunk, KeyValue, ColumnOrder).

The footer is not decoded into values and encoded again: the fields that stay are copied as the bytes
they are, known to accel or not, so that memory and risk stay small.
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
    FALSE,
    I32,
    I64,
    LIST,
    STRUCT,
    Struct,
    ThriftReader,
    encode_list_header,
    encode_zigzag,
    write_struct,
)
from accel.planning.opening import MOST_TAIL
from accel.writing.index_building import BuiltIndex
from accel.writing.original import At, cut_at
from accel.writing.page_indexes import PageIndexes
from accel.writing.scratch import ScratchBytes

if TYPE_CHECKING:
    from accel.arrays import Int64s

__all__ = [
    "IDX1_KEY",
    "TOC_KEY",
    "NewTail",
    "PageIndexPlaces",
    "PlacedIndex",
    "check_container",
    "earlier_entries",
    "edit_footer",
    "encode_container",
    "head_of",
    "kept_entries",
    "make_tail",
    "verify_tail",
]

_ROW_GROUPS, _KEY_VALUE, _ORDERS = 4, 5, 7
_COLUMNS = 1
_PLACES = (4, 5, 6, 7)
"""Of a ColumnChunk: offset index offset and length, column index offset and length."""


@dataclass(frozen=True, slots=True, eq=False)
class PageIndexPlaces:
    """Where the page indexes are, arrays of shape (row groups, leaves); -1 for none."""

    offset_index_offset: Int64s
    offset_index_length: Int64s
    column_index_offset: Int64s
    column_index_length: Int64s


def edit_footer(
    footer: bytes,
    *,
    places: PageIndexPlaces,
    key_value: Mapping[str, bytes | None],
    type_orders: int = 0,
) -> bytes:
    """The footer's Thrift bytes, edited.

    Parameters
    ----------
    footer : bytes
        Thrift bytes that `parse_footer` accepts.
    places : PageIndexPlaces
        Of all chunks; what the footer says of them is replaced.
    key_value : mapping
        Keys to set, or to remove (None). Other pairs stay, in their order; new ones come last.
    type_orders : int
        Write a list of so many TYPE_ORDER column orders in place of the footer's; 0 leaves it alone.

    Raises
    ------
    ParquetFormatError
        The footer does not decode, or has other row groups and columns than `places`.
    """
    reader = ThriftReader(footer)
    fields: list[tuple[int, int, bytes]] = []
    try:
        for number, ctype, start in _spans(reader):
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
    return _struct(sorted(fields, key=lambda entry: entry[0]))


def _spans(reader: ThriftReader) -> Iterator[tuple[int, int, int]]:
    """(field id, type, start) of each field of a struct; the reader stands behind its value."""
    for number, ctype in reader.fields():
        start = reader.pos
        reader.skip(ctype)
        yield number, ctype, start


def _edit_groups(reader: ThriftReader, places: PageIndexPlaces) -> bytes:
    groups, leaves = places.offset_index_offset.shape
    size = reader.list_of(STRUCT)
    if size != groups:
        raise ParquetFormatError(f"{size} row groups where {groups} were read", place="footer")
    # One conversion for all chunks: a number of numpy's costs more than the chunk's other fields.
    table = [
        places.offset_index_offset.tolist(),
        places.offset_index_length.tolist(),
        places.column_index_offset.tolist(),
        places.column_index_length.tolist(),
    ]
    out = [encode_list_header(STRUCT, size)]
    for group in range(size):
        fields: list[tuple[int, int, bytes]] = []
        for number, ctype, start in _spans(reader):
            value = bytes(reader.buf[start : reader.pos])
            if number == _COLUMNS and ctype == LIST:
                rows = [column[group] for column in table]
                value = _edit_chunks(ThriftReader(reader.buf, start, end=reader.pos), rows, leaves)
            fields.append((number, ctype, value))
        out.append(_struct(fields))
    return b"".join(out)


def _edit_chunks(reader: ThriftReader, places: list[list[int]], leaves: int) -> bytes:
    size = reader.list_of(STRUCT)
    if size != leaves:
        raise ParquetFormatError(f"{size} column chunks where {leaves} were read", place="footer")
    out = [encode_list_header(STRUCT, size)]
    for leaf in range(size):
        fields = [
            (number, ctype, bytes(reader.buf[start : reader.pos]))
            for number, ctype, start in _spans(reader)
            if number not in _PLACES
        ]
        for first, (offset, length) in ((4, (places[0], places[1])), (6, (places[2], places[3]))):
            if offset[leaf] > 0:
                fields.append((first, I64, encode_zigzag(offset[leaf])))
                fields.append((first + 1, I32, encode_zigzag(length[leaf])))
        out.append(_struct(sorted(fields, key=lambda entry: entry[0])))
    return b"".join(out)


def _edit_pairs(reader: ThriftReader, changes: Mapping[str, bytes | None]) -> bytes:
    pairs: list[bytes] = []
    for _ in range(reader.list_of(STRUCT)):
        begin = reader.pos
        key = None
        for number, ctype, start in _spans(reader):
            if number == 1 and ctype == BINARY:
                key = ThriftReader(reader.buf, start, end=reader.pos).text()
        if key not in changes:
            pairs.append(bytes(reader.buf[begin : reader.pos]))
    for name, value in changes.items():
        if value is not None:
            raw = name.encode("utf-8", "surrogateescape")
            pairs.append(write_struct({1: (BINARY, raw), 2: (BINARY, value)}))
    return encode_list_header(STRUCT, len(pairs)) + b"".join(pairs)


def _struct(fields: list[tuple[int, int, bytes]]) -> bytes:
    out = bytearray()
    last = 0
    for number, ctype, value in fields:
        if 0 < number - last <= 15:
            out.append((number - last) << 4 | ctype)
        else:
            out.append(ctype)
            out += encode_zigzag(number)
        last = number
        if ctype > FALSE:
            out += value
    out.append(0)
    return bytes(out)


_REPRODUCIBLE = "SOURCE_DATE_EPOCH"
"""The environment variable by which builds ask for the same bytes every time: seconds are not written then."""


@dataclass(frozen=True, slots=True, eq=False)
class PlacedIndex:
    """An index, and where in the file it is to stand."""

    index: BuiltIndex
    offset: int
    head_again: tuple[int, int] | None = None
    """Where its head stands once more: offset and length."""


def encode_container(
    metadata: FileMetadata, placed: Sequence[PlacedIndex], *, kept: Sequence[Entry]
) -> dict[str, bytes | None]:
    """The footer keys to set; None for one to remove. `kept` are entries of before that stay."""
    pairs: dict[str, bytes | None] = {TOC_KEY: None}
    for each in placed:
        if each.index.wanted.kind is None:
            pairs[IDX1_KEY] = str(each.offset).encode()
    entries = [*kept, *(_entry(each) for each in placed)]
    if entries:
        pairs[TOC_KEY] = encode_toc(entries, metadata)
    return pairs


def _entry(placed: PlacedIndex) -> Entry:
    index, wanted = placed.index, placed.index.wanted
    check, head, head_check = _checksums(index)
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
        checksum=check,
        head=head,
        head_checksum=head_check,
        head_again=placed.head_again,
        params={} if wanted.kind is None else dict(wanted.kind.params),
        columns=_covered(index),
        seconds=None if _REPRODUCIBLE in os.environ else index.seconds,
    )


def _checksums(index: BuiltIndex) -> tuple[int, int, int | None]:
    """The checksum of an index, the length of its head, and that one's checksum; 0 and None where it has none."""
    head_bytes = getattr(index.wanted.kind, "head_bytes", None)
    head, head_check = 0, None
    whole = Checksum()
    for at, piece in enumerate(index.data.pieces()):
        if at == 0 and head_bytes is not None:
            # A head is kept in one piece.
            head = head_bytes(piece)
            head_check = checksum(piece[:head])
        whole.add(piece)
    return whole.value, head, head_check


def head_of(index: BuiltIndex) -> bytes:
    """The part of an index that finds the others; empty where it is not read in parts."""
    head_bytes = getattr(index.wanted.kind, "head_bytes", None)
    if head_bytes is None:
        return b""
    first = next(index.data.pieces())
    return bytes(first[: head_bytes(first)])


def _covered(index: BuiltIndex) -> tuple[CoveredColumn, ...]:
    """What an index of several columns speaks of; each column as it is, where its kind does not say."""
    leaves, kind = index.wanted.leaves, index.wanted.kind
    covers = getattr(kind, "covers", None)
    told = [(at, "value") for at in range(len(leaves))] if covers is None else covers()
    return (
        tuple(CoveredColumn(leaves[at].path, index.signatures[at], of) for at, of in told) if leaves else ()
    )


def check_container(
    metadata: FileMetadata, built: Sequence[BuiltIndex], *, kept: Sequence[Entry], start: int
) -> None:
    """Read the keys of a new footer back, and hold them against the indexes that stand from `start` on, and those kept.

    Raises AccelError where they differ.
    """
    at = start
    toc = parse_toc(metadata)
    entries = toc.entries if toc is not None else ()
    if len(entries) != len(kept) + len(built):
        raise AccelError(f"{len(entries)} indexes read back where {len(kept) + len(built)} should be")
    if list(entries[: len(kept)]) != list(kept):
        raise AccelError("an index that was to stay does not read back")
    for entry, index in zip(entries[len(kept) :], built, strict=True):
        if (entry.offset, entry.length, entry.kind) != (at, index.data.length, index.wanted.kind_name):
            raise AccelError(f"an index of column {index.wanted.column} does not read back")
        if index.wanted.kind is None and metadata.key_value.get(IDX1_KEY) != str(at).encode():
            raise AccelError(f"the key {IDX1_KEY} does not read back")
        at += index.data.length


def earlier_entries(metadata: FileMetadata) -> tuple[Entry, ...]:
    """accel's own earlier indexes. A table of contents that makes no sense names nothing: what it meant stays in the
    file."""
    try:
        toc = parse_toc(metadata)
    except IndexFormatError:
        return ()
    return toc.entries if toc is not None else ()


def kept_entries(metadata: FileMetadata, *, idx1: bool) -> tuple[Entry, ...]:
    """Those that stay: an IDX1, where none is written anew, so that its column stays known."""
    offset = metadata.key_value.get(IDX1_KEY)
    entries = () if idx1 else earlier_entries(metadata)
    return tuple(e for e in entries if e.kind == "idx1" and offset == str(e.offset).encode())


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
