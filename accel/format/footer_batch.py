"""Row groups parsed together: those of one large footer, or of many footers of one writer and one schema.

Source: parquet-format `parquet.thrift` (FileMetaData).

The footers that one writer writes with one schema differ only in their row groups: the bytes up to the schema's end
and the bytes after the row groups are the same. A `FooterTemplate` holds those bytes and their meaning, so that they
are parsed once. The row groups of all the footers are concatenated and parsed as one list with numpy
(`format.thrift_batch`). Where a footer is unusual in any way, nothing is parsed here and `parse_footer` reads it:
both ways give the same metadata.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from accel.errors import ParquetFormatError
from accel.format.footer import FooterBytes, find_lost_values
from accel.format.model import ChunkTable, FileMetadata, SortingColumn
from accel.format.packed import PackedMetadata, SharedMetadata, pack_chunks
from accel.format.row_groups import (
    SLOTS,
    GroupReader,
    RowGroups,
    allows,
    build_chunks,
    empty_row,
    read_chunk_on,
    read_sorting_columns,
)
from accel.format.thrift import I16, I32, I64, LIST, STRUCT, ThriftReader, encode_list_header
from accel.format.thrift_batch import CHUNK_FIELDS, Field, StructBatch, Words, as_words
from accel.format.writers import leaves_out_dictionary_header
from accel.ranges import Buffer

if TYPE_CHECKING:
    from accel.arrays import Int64s

__all__ = [
    "FooterTemplate",
    "find_template",
    "parse_footers",
    "read_row_groups",
]

_PADDING: Final = bytes(16)
"""Follows the last row group, because the batch reads eight bytes at a time."""
_ROWS_HEAD: Final = 1 << 4 | I64
_GROUPS_HEAD: Final = 1 << 4 | LIST
_MOST_ROWS: Final = 1 << 40
"""Most rows of a regular row group; `parse_footer` checks those with more."""
_POSITIONS: Final = ("min_start", "max_start", "old_min_start", "old_max_start")
"""The columns of the ChunkTable that point into the footer."""


@dataclass(frozen=True, slots=True, eq=False)
class FooterTemplate:
    """The bytes that the footers of one writer and one schema have in common, and their meaning."""

    head: bytes
    """The bytes up to the schema's end."""
    tail: bytes
    """The bytes after the row groups."""
    shared: SharedMetadata
    """The metadata that these bytes encode."""

    def fits(self, data: bytes) -> bool:
        """Return whether a footer begins and ends as the template does."""
        head, tail = self.head, self.tail
        return len(data) > len(head) + len(tail) and data.startswith(head) and data.endswith(tail)


def find_template(metadata: FileMetadata) -> FooterTemplate | None:
    """Derive the template of a parsed footer; None where its fields are not in the usual order and types."""
    data = metadata.footer
    if leaves_out_dictionary_header(metadata.created_by):
        return None  # a chunk's end depends on the file's other chunks
    reader = ThriftReader(data)
    ends: list[int] = []
    try:
        for number, ctype in reader.fields():
            at = len(ends) + 1
            if (number != at) if at <= 4 else (number <= 4):
                return None
            reader.skip(ctype)
            ends.append(reader.pos)
    except ParquetFormatError:
        return None
    if len(ends) < 4 or data[ends[1]] != _ROWS_HEAD or data[ends[2]] != _GROUPS_HEAD:
        return None
    return FooterTemplate(data[: ends[1]], data[ends[3] :], SharedMetadata.of(metadata))


def parse_footers(template: FooterTemplate, footers: Sequence[FooterBytes]) -> list[PackedMetadata] | None:
    """Parse footers that fit a template; None where one of them is unusual or invalid.

    On None the caller parses each by `parse_footer`, which gives the same metadata or the error.
    """
    schema = template.shared.schema
    try:
        begins, counts = _find_lists(template, footers)
    except ParquetFormatError:
        return None
    parts = [
        footer.data[begin : len(footer.data) - len(template.tail)]
        for footer, begin in zip(footers, begins, strict=True)
    ]
    joined = b"".join((*parts, _PADDING))
    reader = ThriftReader(joined)
    # The exclusive ends of each file's bytes and row groups.
    ends = np.cumsum([len(part) for part in parts])
    last = np.cumsum(counts)
    groups = read_row_groups(reader, int(last[-1]), len(schema.leaves))
    if groups is None or not np.array_equal(np.array([0, *groups.ends], np.int64)[last], ends):
        return None
    try:
        found = _build(template, footers, groups, np.array(counts, np.int64))
    except (ParquetFormatError, OverflowError):
        return None
    if found is None:
        return None
    rows, sizes, chunks = found
    shift = np.array(begins, np.int64) - ends + [len(part) for part in parts]
    for name in _POSITIONS:
        positions = getattr(chunks, name)
        np.add(positions, np.repeat(shift, counts)[:, None], out=positions, where=positions >= 0)
    return _divide(
        template.shared, footers, groups, rows, pack_chunks(chunks, rows, sizes=sizes), last.tolist()
    )


def _find_lists(template: FooterTemplate, footers: Sequence[FooterBytes]) -> tuple[list[int], list[int]]:
    """Return the offset of each footer's first row group, and the number of its row groups."""
    begins, counts = [], []
    leaves = len(template.shared.schema.leaves)
    for footer in footers:
        data = footer.data
        if footer.footer_start < 0 or footer.footer_start + len(data) > footer.file_size:
            raise ParquetFormatError("a footer beyond its file")
        reader = ThriftReader(data, len(template.head))
        if reader.byte() != _ROWS_HEAD:
            reader.fail("no number of rows")
        reader.varint()
        if reader.byte() != _GROUPS_HEAD:
            reader.fail("no row groups")
        count = reader.list_of(STRUCT)
        if reader.pos > len(data) - len(template.tail) or not allows(reader, count * leaves):
            reader.fail("no room for row groups")
        begins.append(reader.pos)
        counts.append(count)
    return begins, counts


def _build(
    template: FooterTemplate, footers: Sequence[FooterBytes], groups: RowGroups, counts: Int64s
) -> tuple[Int64s, Int64s, ChunkTable] | None:
    """Return the rows, sizes and chunks of all row groups, with the checks of `parse_footer`; None where one fails."""
    rows, sizes = np.array(groups.rows, np.int64), np.array(groups.sizes, np.int64)
    if (rows < 0).any() or (rows > _MOST_ROWS).any():
        return None
    starts = np.repeat(np.array([footer.footer_start for footer in footers], np.int64), counts)
    shared = template.shared
    chunks = build_chunks(
        groups.chunks(len(shared.schema.leaves)),
        shared.schema,
        footer_start=starts[:, None],
        created_by=shared.created_by,
    )
    return None if find_lost_values(rows, chunks) is not None else (rows, sizes, chunks)


def _divide(
    shared: SharedMetadata,
    footers: Sequence[FooterBytes],
    groups: RowGroups,
    rows: Int64s,
    numbers: Int64s,
    last: Sequence[int],
) -> list[PackedMetadata]:
    """Give each file its part of the arrays, as views."""
    is_sorted = any(groups.sorting)
    before = [0, *np.cumsum(rows).tolist()]
    out = []
    begin = 0
    for footer, end in zip(footers, last, strict=True):
        out.append(
            PackedMetadata(
                shared,
                numbers[begin:end],
                tuple(groups.sorting[begin:end]) if is_sorted else None,
                footer.data,
                footer.file_size,
                footer.footer_start,
                before[end] - before[begin],
            )
        )
        begin = end
    return out


_FEW_GROUPS: Final = 16
"""Fewest row groups whose last fields are read together; reading fewer one by one is faster."""
_TAIL: Final[tuple[Field, ...]] = (
    (2, I64, lambda batch: {"size": batch.number()}),
    (3, I64, lambda batch: {"rows": batch.number()}),
    (5, I64, lambda batch: {"offset": batch.number()}),
    (6, I64, lambda batch: {"compressed": batch.number()}),
    (7, I16, lambda batch: {"ordinal": batch.number()}),
)
"""The fields of a RowGroup after its chunks, without its sorting columns."""
_BLOCK: Final = 1 << 16
"""Bytes searched at a time: small enough for the processor's cache."""
_USUAL_BITS: Final = np.uint64(0x0F_00_F1_00_00)
_USUAL: Final = np.uint64(I32 << 32)
"""The expected bytes there: a physical type's number, and a list of i32."""
_FILE_OFFSET: Final = 2 << 4 | I64
"""The header of `file_offset` as the first field of a ColumnChunk."""
_OFFSET_BITS: Final = np.array([0, 0, *(int("80" * n + "ff", 16) for n in range(1, 8))], np.uint64)
_OFFSETS: Final = np.array([0, 0, *(int("80" * n + f"{_FILE_OFFSET:02x}", 16) for n in range(7))], np.uint64)
"""By the number of bytes of that field: the mask of its header and of its varint's top bits, and their values."""


def read_row_groups(reader: ThriftReader, num_groups: int, num_leaves: int) -> RowGroups | None:
    """Read the elements of FileMetaData's list of row groups, and move `reader` behind them.

    Return None, without moving the reader, where they are not as usual.
    """
    count = num_groups * num_leaves
    buf = reader.buf
    if not isinstance(buf, bytes) or not count or not allows(reader, count):
        return None
    words = as_words(buf)
    heads = _find_chunks(buf, words, reader.pos, count)
    if heads is None:
        return None
    batch = StructBatch(words, heads, last=2)
    shape = num_groups, num_leaves
    try:
        found = batch.read(CHUNK_FIELDS)
        ends = batch.pos
        irregular = np.flatnonzero(batch.irregular)
        rows = np.empty((len(irregular), len(SLOTS)), np.int64)
        for place, struct in enumerate(irregular.tolist()):
            plain = ThriftReader(buf, int(heads[struct]))
            rows[place] = read_chunk_on(plain)
            ends[struct] = plain.pos
        groups = _read_groups(reader, words, heads.reshape(shape), ends.reshape(shape))
    except (ParquetFormatError, IndexError, OverflowError):
        return None
    if groups is None:
        return None
    # Fields that no chunk has share one array: `build_chunks` leaves absent values unchanged.
    absent: dict[int, Int64s] = {}
    groups.numbers = arrays = {}
    empty = empty_row()
    for name, slot in SLOTS.items():
        values = found.get(name)
        if len(irregular):
            if values is None:
                values = np.full(count, empty[slot], np.int64)
            values[irregular] = rows[:, slot]
        elif values is None:
            values = absent.get(empty[slot])
            if values is None:
                values = absent[empty[slot]] = np.full(count, empty[slot], np.int64)
        arrays[name] = values.reshape(shape)
    return groups


def _find_chunks(buf: bytes, words: Words, begin: int, count: int) -> Int64s | None:
    """Find the headers of the chunks' metadata structs, by the headers of the two fields that follow; None where their
    number is not `count`."""
    data = np.frombuffer(buf, np.uint8, len(buf) - begin, begin)
    found = []
    like, other = np.empty((2, _BLOCK), np.bool_)
    for at in range(0, len(data) - 4, _BLOCK):
        size = min(_BLOCK, len(data) - 4 - at)
        np.equal(data[at : at + size], 3 - 2 << 4 | STRUCT, out=like[:size])
        for ahead, byte in ((1, 1 << 4 | I32), (3, 2 - 1 << 4 | LIST)):
            np.equal(data[at + ahead : at + ahead + size], byte, out=other[:size])
            like[:size] &= other[:size]
        found.append(np.flatnonzero(like[:size]) + at)
    heads = np.concatenate(found) + begin if found else np.zeros(0, np.int64)
    if len(heads) and heads[-1] >= len(words):
        return None
    usual = (words[heads] & _USUAL_BITS) == _USUAL
    if not usual.all():
        heads = heads[usual]
    return heads if len(heads) == count else None


def _read_groups(reader: ThriftReader, words: Words, heads: Int64s, ends: Int64s) -> RowGroups | None:
    """Read the fields around the chunks; None where the bytes hold anything else."""
    buf = reader.buf
    num_leaves = heads.shape[1]
    if ends.max() >= len(words):
        return None  # a chunk has left the buffer
    # The first bytes of a RowGroup with this number of chunks.
    opening = bytes((1 << 4 | LIST,)) + encode_list_header(STRUCT, num_leaves)
    groups = RowGroups()
    group_reader = GroupReader(groups)
    starts = np.empty_like(ends)
    starts[:, 1:] = ends[:, :-1]
    at = reader.pos
    for group, (end, (rows, size, after, sorting)) in enumerate(
        zip(ends[:, -1].tolist(), _read_tails(buf, words, ends[:, -1]), strict=True)
    ):
        if buf[at : at + len(opening)] != opening:
            return None
        starts[group, 0] = at + len(opening)
        if after > 0:
            groups.add(num_leaves, rows, size, sorting)
            at = after
        else:
            plain = ThriftReader(buf, end)
            group_reader.read_on(plain, num_leaves)
            at = plain.pos
        groups.ends.append(at)
    if not _is_all(words, starts.reshape(-1), heads.reshape(-1)):
        return None
    reader.pos = at
    return groups


def _is_all(words: Words, starts: Int64s, heads: Int64s) -> bool:
    """Return whether only the file offset lies between each chunk's start and its metadata."""
    lengths = heads - starts
    if lengths.min() < 2 or lengths.max() > 8:
        return False
    found = words[starts]
    found &= _OFFSET_BITS[lengths]
    return bool((found == _OFFSETS[lengths]).all())


def _read_tails(
    buf: Buffer, words: Words, ends: Int64s
) -> list[tuple[int, int, int, tuple[SortingColumn, ...]]]:
    """Return the rows, bytes, end and sorting of each row group; the end is 0 where `GroupReader` must read it."""
    nothing: list[tuple[int, int, int, tuple[SortingColumn, ...]]] = [(0, 0, 0, ())] * len(ends)
    if len(ends) < _FEW_GROUPS:
        return nothing
    batch = StructBatch(words, ends, last=1)
    sorting: list[tuple[SortingColumn, ...]] = [()]

    def read_sorting(batch: StructBatch) -> dict[str, Int64s]:
        """Read the sorting columns of the first row group; others are irregular unless their bytes are equal."""
        at = batch.pos + 1
        plain = ThriftReader(buf, int(at[0]))
        sorting.append(read_sorting_columns(plain))
        size = plain.pos - int(at[0])
        for ahead in range(0, size, 8):
            part = words[at + ahead] << np.uint64(8 * max(0, 8 - (size - ahead)))
            batch.irregular |= part != part[0]
        batch.move(size + 1)
        return {"sorting": np.ones(len(at), np.int64)}

    try:
        found = batch.read((*_TAIL[:2], (4, LIST, read_sorting), *_TAIL[2:]))
    except IndexError:  # the last row group ends in the buffer's last bytes
        return nothing
    if not found.keys() >= {"rows", "size"}:
        return nothing
    usual = ~batch.irregular & (found["rows"] >= 0) & (found["size"] >= 0)
    after = np.where(usual, batch.pos, 0).tolist()
    sorted_by = found.get("sorting", np.zeros(len(ends), np.int64))
    columns = [sorting[index] if index > 0 else () for index in sorted_by.tolist()]
    return list(zip(found["rows"].tolist(), found["size"].tolist(), after, columns, strict=True))
