"""Footers of files that one writer wrote with one schema, read together.

Source: parquet-format `parquet.thrift` (FileMetaData).

Such footers differ in their row groups only: the bytes before those, up to the schema's end, are the same, and so
are the bytes behind them. The same bytes mean the same, so they need no second reading; and the elements of
several lists of row groups, one list after the other, are those of one longer list, which is read in lockstep
(`format.footer_batch`). Where anything does not fit, nothing is read here: a footer means the same whoever reads it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from accel.errors import ParquetFormatError
from accel.format.footer import FooterBytes, find_lost_values
from accel.format.footer_columns import CHUNK_FIELDS, Field, Lanes, Words, as_words
from accel.format.model import ChunkTable, FileMetadata, SortingColumn
from accel.format.packed import Kin, PackedMetadata, pack_chunks
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
from accel.format.writers import leaves_out_dictionary_header
from accel.ranges import Buffer

if TYPE_CHECKING:
    from accel.arrays import Int64s

__all__ = [
    "Alike",
    "learn_alike",
    "read_alike",
    "read_groups_at_once",
]

_PADDING: Final = bytes(16)
"""Behind the last row group: lanes look at eight bytes at a time."""
_ROWS_HEAD: Final = 1 << 4 | I64
_GROUPS_HEAD: Final = 1 << 4 | LIST
_MOST_ROWS: Final = 1 << 40
"""Of one row group; what has more is left to the plain reader's checks."""
_POSITIONS: Final = ("min_start", "max_start", "old_min_start", "old_max_start")
"""The columns that point into the footer."""


@dataclass(frozen=True, slots=True, eq=False)
class Alike:
    """The bytes that the footers of one writer and one schema share, and what they say."""

    head: bytes
    """From the first byte up to the schema's end."""
    tail: bytes
    """From the end of the row groups to the last byte."""
    kin: Kin
    """What these bytes say."""

    def fits(self, data: bytes) -> bool:
        """Whether a footer may be one of these."""
        head, tail = self.head, self.tail
        return len(data) > len(head) + len(tail) and data.startswith(head) and data.endswith(tail)


def learn_alike(metadata: FileMetadata) -> Alike | None:
    """What others may have in common with a footer that was read; None where it is not as usual."""
    data = metadata.footer
    if leaves_out_dictionary_header(metadata.created_by):
        return None  # ends depend on what other chunks of the file there are
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
    return Alike(data[: ends[1]], data[ends[3] :], Kin.of(metadata))


def read_alike(alike: Alike, footers: Sequence[FooterBytes]) -> list[PackedMetadata] | None:
    """What `parse_footer` gives for each of some footers that fit, packed, or None: nothing has been read then.

    Whatever one of them has that is not usual, or not right, leaves all of them to `parse_footer`.
    """
    schema = alike.kin.schema
    try:
        begins, counts = _find_lists(alike, footers)
    except ParquetFormatError:
        return None
    parts = [
        footer.data[begin : len(footer.data) - len(alike.tail)]
        for footer, begin in zip(footers, begins, strict=True)
    ]
    joined = b"".join((*parts, _PADDING))
    reader = ThriftReader(joined)
    # One beyond the last of each file's bytes, and of each file's row groups.
    ends = np.cumsum([len(part) for part in parts])
    last = np.cumsum(counts)
    groups = read_groups_at_once(reader, int(last[-1]), len(schema.leaves))
    if groups is None or not np.array_equal(np.array([0, *groups.ends], np.int64)[last], ends):
        return None
    try:
        found = _build(alike, footers, groups, np.array(counts, np.int64))
    except (ParquetFormatError, OverflowError):
        return None
    if found is None:
        return None
    rows, sizes, chunks = found
    shift = np.array(begins, np.int64) - ends + [len(part) for part in parts]
    for name in _POSITIONS:
        positions = getattr(chunks, name)
        np.add(positions, np.repeat(shift, counts)[:, None], out=positions, where=positions >= 0)
    return _divide(alike.kin, footers, groups, rows, pack_chunks(chunks, rows, sizes=sizes), last.tolist())


def _find_lists(alike: Alike, footers: Sequence[FooterBytes]) -> tuple[list[int], list[int]]:
    """Where the first row group of each footer is, and how many there are."""
    begins, counts = [], []
    leaves = len(alike.kin.schema.leaves)
    for footer in footers:
        data = footer.data
        if footer.footer_start < 0 or footer.footer_start + len(data) > footer.file_size:
            raise ParquetFormatError("a footer beyond its file")
        reader = ThriftReader(data, len(alike.head))
        if reader.byte() != _ROWS_HEAD:
            reader.fail("no number of rows")
        reader.varint()
        if reader.byte() != _GROUPS_HEAD:
            reader.fail("no row groups")
        count = reader.list_of(STRUCT)
        if reader.pos > len(data) - len(alike.tail) or not allows(reader, count * leaves):
            reader.fail("no room for row groups")
        begins.append(reader.pos)
        counts.append(count)
    return begins, counts


def _build(
    alike: Alike, footers: Sequence[FooterBytes], groups: RowGroups, counts: Int64s
) -> tuple[Int64s, Int64s, ChunkTable] | None:
    """Rows, sizes and chunks of all row groups, checked as those of one file are."""
    rows, sizes = np.array(groups.rows, np.int64), np.array(groups.sizes, np.int64)
    if (rows < 0).any() or (rows > _MOST_ROWS).any():
        return None
    starts = np.repeat(np.array([footer.footer_start for footer in footers], np.int64), counts)
    kin = alike.kin
    chunks = build_chunks(
        groups.chunks(len(kin.schema.leaves)),
        kin.schema,
        footer_start=starts[:, None],
        created_by=kin.created_by,
    )
    return None if find_lost_values(rows, chunks) is not None else (rows, sizes, chunks)


def _divide(
    kin: Kin,
    footers: Sequence[FooterBytes],
    groups: RowGroups,
    rows: Int64s,
    numbers: Int64s,
    last: Sequence[int],
) -> list[PackedMetadata]:
    """To each file what is its own of all that was read together: views of that."""
    is_sorted = any(groups.sorting)
    before = [0, *np.cumsum(rows).tolist()]
    out = []
    begin = 0
    for footer, end in zip(footers, last, strict=True):
        out.append(
            PackedMetadata(
                kin,
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
"""Row groups; with fewer their ends are sooner read one by one."""
_TAIL: Final[tuple[Field, ...]] = (
    (2, I64, lambda lanes: {"size": lanes.number()}),
    (3, I64, lambda lanes: {"rows": lanes.number()}),
    (5, I64, lambda lanes: {"offset": lanes.number()}),
    (6, I64, lambda lanes: {"compressed": lanes.number()}),
    (7, I16, lambda lanes: {"ordinal": lanes.number()}),
)
"""Of a RowGroup, after its chunks, but for its sorting columns."""
_BLOCK: Final = 1 << 16
"""Bytes that are searched at a time: small enough for the processor's own memory."""
_USUAL_BITS: Final = np.uint64(0x0F_00_F1_00_00)
_USUAL: Final = np.uint64(I32 << 32)
"""Of what is found: a physical type's number, and a list of such."""
_FILE_OFFSET: Final = 2 << 4 | I64
"""The header of a ColumnChunk's field before its metadata, as its first."""
_OFFSET_BITS: Final = np.array([0, 0, *(int("80" * n + "ff", 16) for n in range(1, 8))], np.uint64)
_OFFSETS: Final = np.array([0, 0, *(int("80" * n + f"{_FILE_OFFSET:02x}", 16) for n in range(7))], np.uint64)
"""By how many bytes that field has: the bits that tell a header and a number of so many bytes, and what they are."""


def read_groups_at_once(reader: ThriftReader, num_groups: int, num_leaves: int) -> RowGroups | None:
    """Read the elements of FileMetaData's list of row groups, and move `reader` behind them.

    None, and nothing has been read, where they are not as usual.
    """
    count = num_groups * num_leaves
    buf = reader.buf
    if not isinstance(buf, bytes) or not count or not allows(reader, count):
        return None
    words = as_words(buf)
    heads = _find_chunks(buf, words, reader.pos, count)
    if heads is None:
        return None
    lanes = Lanes(words, heads, last=2)
    shape = num_groups, num_leaves
    try:
        found = lanes.read(CHUNK_FIELDS)
        ends = lanes.pos
        odd = np.flatnonzero(lanes.odd)
        rows = np.empty((len(odd), len(SLOTS)), np.int64)
        for place, lane in enumerate(odd.tolist()):
            plain = ThriftReader(buf, int(heads[lane]))
            rows[place] = read_chunk_on(plain)
            ends[lane] = plain.pos
        groups = _read_groups(reader, words, heads.reshape(shape), ends.reshape(shape))
    except (ParquetFormatError, IndexError, OverflowError):
        return None
    if groups is None:
        return None
    # What no chunk has is one array for all such fields: who changes absent numbers leaves them absent.
    absent: dict[int, Int64s] = {}
    groups.numbers = arrays = {}
    empty = empty_row()
    for name, slot in SLOTS.items():
        values = found.get(name)
        if len(odd):
            if values is None:
                values = np.full(count, empty[slot], np.int64)
            values[odd] = rows[:, slot]
        elif values is None:
            values = absent.get(empty[slot])
            if values is None:
                values = absent[empty[slot]] = np.full(count, empty[slot], np.int64)
        arrays[name] = values.reshape(shape)
    return groups


def _find_chunks(buf: bytes, words: Words, begin: int, count: int) -> Int64s | None:
    """Where chunks' metadata may be: the header of its struct, of its type, of its list of encodings."""
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
    """Read what is around the chunks; None where they and it are not all that is there."""
    buf = reader.buf
    num_leaves = heads.shape[1]
    if ends.max() >= len(words):
        return None  # and no lane has left the buffer
    # How a RowGroup with so many chunks begins.
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
    """Whether between chunks' starts and their metadata there is the file offset, and nothing else."""
    lengths = heads - starts
    if lengths.min() < 2 or lengths.max() > 8:
        return False
    found = words[starts]
    found &= _OFFSET_BITS[lengths]
    return bool((found == _OFFSETS[lengths]).all())


def _read_tails(
    buf: Buffer, words: Words, ends: Int64s
) -> list[tuple[int, int, int, tuple[SortingColumn, ...]]]:
    """Of each row group its rows, its bytes, where it ends, its sorting; the end is 0 where it is to be read plainly."""
    nothing: list[tuple[int, int, int, tuple[SortingColumn, ...]]] = [(0, 0, 0, ())] * len(ends)
    if len(ends) < _FEW_GROUPS:
        return nothing
    lanes = Lanes(words, ends, last=1)
    sorting: list[tuple[SortingColumn, ...]] = [()]

    def read_sorting(lanes: Lanes) -> dict[str, Int64s]:
        """The first lane's; the others' bytes must be the same."""
        at = lanes.pos + 1
        plain = ThriftReader(buf, int(at[0]))
        sorting.append(read_sorting_columns(plain))
        size = plain.pos - int(at[0])
        for ahead in range(0, size, 8):
            part = words[at + ahead] << np.uint64(8 * max(0, 8 - (size - ahead)))
            lanes.odd |= part != part[0]
        lanes.move(size + 1)
        return {"sorting": np.ones(len(at), np.int64)}

    try:
        found = lanes.read((*_TAIL[:2], (4, LIST, read_sorting), *_TAIL[2:]))
    except IndexError:  # the last one is within the last bytes
        return nothing
    if not found.keys() >= {"rows", "size"}:
        return nothing
    usual = ~lanes.odd & (found["rows"] >= 0) & (found["size"] >= 0)
    after = np.where(usual, lanes.pos, 0).tolist()
    sorted_by = found.get("sorting", np.zeros(len(ends), np.int64))
    columns = [sorting[index] if index > 0 else () for index in sorted_by.tolist()]
    return list(zip(found["rows"].tolist(), found["size"].tolist(), after, columns, strict=True))
