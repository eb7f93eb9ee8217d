"""Footers of files that one writer wrote with one schema, read together.

Source: parquet-format `parquet.thrift` (FileMetaData).

Such footers differ in their row groups only: the bytes before those, up to the schema's end, are the same, and so
are the bytes behind them. The same bytes mean the same, so they need no second reading; and the elements of
several lists of row groups, one list after the other, are those of one longer list, which is read in lockstep
(`format.chunk_lanes`). Where anything does not fit, nothing is read here: a footer means the same whoever reads it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from accel.errors import ParquetFormatError
from accel.format.chunk import allows
from accel.format.chunk_lanes import read_groups_at_once
from accel.format.chunk_table import build_chunks
from accel.format.footer import FooterBytes, find_lost_values
from accel.format.model import ChunkTable, FileMetadata
from accel.format.packed import Kin, PackedMetadata, pack_chunks
from accel.format.row_groups import RowGroups
from accel.format.thrift import I64, LIST, STRUCT, ThriftReader
from accel.format.writers import leaves_out_dictionary_header

if TYPE_CHECKING:
    from accel.arrays import Int64s

__all__ = ["Alike", "learn_alike", "read_alike"]

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
