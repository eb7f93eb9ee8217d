"""Footers of one writer and one schema, parsed together.

Source: parquet-format `parquet.thrift` (FileMetaData).

The footers that one writer writes with one schema differ only in their row groups: the bytes up to the
schema's end and the bytes after the row groups are the same. A `FooterTemplate` holds those bytes and their
meaning, so that they are parsed once. The row groups of all the footers are concatenated and parsed as one
list (`format.row_group_batch`). Where a footer is unusual in any way, nothing is parsed here and
`parse_footer` reads it: both ways give the same metadata.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from accel.errors import ParquetFormatError
from accel.format.footer import FooterBytes, find_lost_values
from accel.format.model import ChunkTable, FileMetadata
from accel.format.packed import PackedMetadata, SharedMetadata, pack_chunks
from accel.format.row_group_batch import read_row_groups
from accel.format.row_groups import RowGroups, allows, build_chunks
from accel.format.thrift import I64, LIST, STRUCT, ThriftReader
from accel.format.writers import leaves_out_dictionary_header

if TYPE_CHECKING:
    from accel.arrays import Int64s

__all__ = [
    "FooterTemplate",
    "find_template",
    "parse_footers",
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
    """Return the rows, sizes and chunks of all row groups, with the checks of `parse_footer`; None where one
    fails."""
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
