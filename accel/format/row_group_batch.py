"""Row groups of one footer, or of several concatenated ones, read together with numpy.

Source: parquet-format `parquet.thrift` (RowGroup, ColumnChunk).

Where a row group is not as writers usually write it, nothing is read here, and `format.row_groups` reads all
of them one by one: both ways give the same numbers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from accel.errors import ParquetFormatError
from accel.format.model import SortingColumn
from accel.format.row_groups import (
    SLOTS,
    GroupReader,
    RowGroups,
    allows,
    empty_row,
    read_chunk_on,
    read_sorting_columns,
)
from accel.format.thrift import I16, I32, I64, LIST, STRUCT, ThriftReader, encode_list_header
from accel.format.thrift_batch import CHUNK_FIELDS, Field, StructBatch, Words, as_words
from accel.ranges import Buffer

if TYPE_CHECKING:
    from accel.arrays import Int64s

__all__ = ["read_row_groups"]

FEW_GROUPS: Final = 16
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
"""By the number of bytes of that field: the mask of its header and of its varint's top bits, and their
values."""


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
    """Find the headers of the chunks' metadata structs, by the headers of the two fields that follow; None
    where their number is not `count`."""
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
    """Return the rows, bytes, end and sorting of each row group; the end is 0 where `GroupReader` must read
    it."""
    nothing: list[tuple[int, int, int, tuple[SortingColumn, ...]]] = [(0, 0, 0, ())] * len(ends)
    if len(ends) < FEW_GROUPS:
        return nothing
    batch = StructBatch(words, ends, last=1)
    sorting: list[tuple[SortingColumn, ...]] = [()]

    def read_sorting(batch: StructBatch) -> dict[str, Int64s]:
        """Read the sorting columns of the first row group; others are irregular unless their bytes are
        equal."""
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
