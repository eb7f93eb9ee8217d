"""The footer: FileMetaData parsed, checked against the file, and turned into columns.

Sources: parquet-format `README.md` (File format), `parquet.thrift` (FileMetaData, RowGroup),
PARQUET-816.

Offsets count from the file's first byte. Chunks outside the file, or not before the footer, are refused and
never clipped. A page index or bloom filter outside is ignored. One with half of its location (no length, or
an offset of zero) counts as absent, except that a bloom filter may lack its length.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from accel.errors import EncryptedFileError, ParquetFormatError, refuse_unforeseen
from accel.format.model import (
    ARROW_SCHEMA_KEY,
    ChunkTable,
    ColumnOrder,
    FileMetadata,
    ParquetSchema,
    SchemaElement,
)
from accel.format.row_group_batch import read_row_groups
from accel.format.row_groups import LEAST_BYTES, GroupReader, RowGroups, build_chunks
from accel.format.schema import build_schema, read_elements
from accel.format.thrift import BINARY, I16, I64, LIST, STRUCT, ThriftReader
from accel.ranges import Buffer

if TYPE_CHECKING:
    from accel.arrays import Int64s

__all__ = [
    "AMONG_OTHERS",
    "ARROW_SCHEMA_KEY",
    "IDX1_KEY",
    "MAGIC",
    "TOC_KEY",
    "FooterBytes",
    "FooterTail",
    "find_lost_values",
    "parse_footer",
    "parse_tail",
    "stated_rows",
]

MAGIC = b"PAR1"
AMONG_OTHERS = "For a directory with other files too, name dir/*.parquet, or dir/**/*.parquet"
"""The hint for a file of a directory that is no Parquet file."""
TOC_KEY = "accel.indexes"
"""The footer key of a file's indexes, which `format.embedded` reads."""
IDX1_KEY = "distinct_index_offset"
"""The footer key of an `IDX1` index, which `format.embedded` reads too."""
_ENCRYPTED_MAGIC = b"PARE"
_REQUIRED = {2: LIST, 3: I64, 4: LIST}
"""The types of FileMetaData's required fields, without `version`."""
TYPE_DEFINED = b"\x1c\x00\x00"
"""The Thrift bytes of the usual column order."""


MIN_BATCH_CHUNKS = 64
"""Fewest chunks that are read together; reading fewer one by one is faster."""


@dataclass(frozen=True, slots=True)
class FooterBytes:
    """A footer to be parsed: the arguments of `parse_footer`."""

    data: bytes
    file_size: int
    footer_start: int


@dataclass(frozen=True, slots=True)
class FooterTail:
    """The last eight bytes of a Parquet file, parsed."""

    length: int
    """Length of the footer's Thrift bytes, which come before these eight. It is not checked against the
    file."""


def parse_tail(last8: Buffer) -> FooterTail:
    """Read a file's last eight bytes: the footer's length and the magic.

    Raises EncryptedFileError for an encrypted footer, ParquetFormatError for a file that is no Parquet.
    """
    tail = bytes(last8)
    if len(tail) != 8:
        raise ParquetFormatError(f"a Parquet file has at least 12 bytes, here are {len(tail)}")
    magic = tail[4:]
    if magic == _ENCRYPTED_MAGIC:
        raise EncryptedFileError("the footer is encrypted", hint="accel does not read encrypted Parquet")
    if magic != MAGIC:
        raise ParquetFormatError(
            f"not a Parquet file: it ends with {magic!r}, not {MAGIC!r}",
            hint=f"is the file complete? {AMONG_OTHERS}",
        )
    length = int.from_bytes(tail[:4], "little")
    if length == 0:
        raise ParquetFormatError("the footer is empty", place="footer")
    return FooterTail(length)


@dataclass(slots=True)
class _Raw:
    """FileMetaData as read, before its fields are checked against each other."""

    version: int = 0
    created_by: str = ""
    elements: list[SchemaElement] = field(default_factory=list)
    key_value: dict[str, bytes] = field(default_factory=dict)
    orders: list[int] = field(default_factory=list)
    groups: RowGroups = field(default_factory=RowGroups)


def parse_footer(data: Buffer, *, file_size: int, footer_start: int) -> FileMetadata:
    """Parse the Thrift bytes of a footer.

    Parameters
    ----------
    data : Buffer
        Exactly the footer, without the eight bytes after it. Trailing bytes in it are ignored.
    file_size, footer_start : int
        The size of the file, and the offset of the footer in it.

    Returns
    -------
    FileMetadata
        `num_rows` is the sum over the row groups, whatever the footer's own field says, because rows are
        read by row group. An unknown codec is an error only when a chunk is read.

    Raises
    ------
    ParquetFormatError
        The bytes do not decode, or contradict themselves or the file's size.
    """
    footer = bytes(data)
    if footer_start < 0 or footer_start + len(footer) > file_size:
        raise ParquetFormatError(
            f"a footer of {len(footer)} bytes at {footer_start} in a file of {file_size}", place="footer"
        )
    with refuse_unforeseen("footer"):
        return _parse(footer, file_size, footer_start)


def _parse(footer: bytes, file_size: int, footer_start: int) -> FileMetadata:
    try:
        raw = _read_file_metadata(ThriftReader(footer))
    except IndexError as error:
        raise ParquetFormatError("the footer ends early", place="footer") from error
    except ParquetFormatError as error:
        raise error.at(place="footer")
    schema = build_schema(raw.elements)
    rows, sizes = _check_groups(raw, schema)
    chunks = build_chunks(
        raw.groups.chunks(len(schema.leaves)),
        schema,
        footer_start=footer_start,
        created_by=raw.created_by,
    )
    lost = find_lost_values(rows, chunks)
    if lost is not None:
        raise ParquetFormatError(
            "a row group of no rows whose chunks have values", place=f"footer, row group {lost}"
        )
    return FileMetadata(
        version=raw.version,
        num_rows=int(rows.sum()),
        created_by=raw.created_by,
        schema=schema,
        key_value=raw.key_value,
        column_orders=_column_orders(raw.orders, schema),
        group_rows=rows,
        group_bytes=sizes,
        sorting=tuple(raw.groups.sorting),
        chunks=chunks,
        footer=footer,
        file_size=file_size,
        footer_start=footer_start,
    )


def stated_rows(footer: bytes) -> int | None:
    """Return the rows of the file as the footer's own field says, which the row groups may contradict; None
    where it does not say."""
    reader, stated = ThriftReader(footer), None
    try:
        for number, ctype in reader.fields():
            if number == 3 and ctype == I64:
                stated = reader.zigzag()
            else:
                reader.skip(ctype)
    except (ParquetFormatError, IndexError):
        return None
    return stated


def find_lost_values(rows: Int64s, chunks: ChunkTable) -> int | None:
    """Return the first row group with no rows but with values in a chunk; None where there is none.

    A reader would skip these values, and pyarrow would shift the rows after them.
    """
    if rows.all():
        return None
    lost = (rows == 0) & (chunks.num_values > 0).any(axis=1)
    return int(np.flatnonzero(lost)[0]) if lost.any() else None


def _read_file_metadata(reader: ThriftReader) -> _Raw:
    raw = _Raw()
    required = {2: "schema", 3: "num_rows", 4: "row_groups"}
    for number, ctype in reader.fields():
        if ctype == _REQUIRED.get(number):
            required.pop(number, None)
        if number == 1 and I16 <= ctype <= I64:
            raw.version = reader.i32()
        elif number == 2 and ctype == LIST:
            raw.elements = read_elements(reader)
        elif number == 4 and ctype == LIST and not raw.groups.rows:
            raw.groups = _read_groups(reader, raw.elements)
        elif number == 5 and ctype == LIST:
            for _ in range(reader.list_of(STRUCT)):
                _read_key_value(reader, raw.key_value)
        elif number == 6 and ctype == BINARY:
            raw.created_by = reader.text()
        elif number == 7 and ctype == LIST:
            raw.orders = _read_orders(reader)
        else:
            reader.skip(ctype)
    if required:
        # A file without its row groups would read as an empty one.
        reader.fail(f"the footer has no {' and no '.join(required.values())}")
    return raw


def _read_groups(reader: ThriftReader, elements: list[SchemaElement]) -> RowGroups:
    count = reader.list_of(STRUCT)
    if count * LEAST_BYTES > reader.size - reader.pos:
        reader.fail(f"{count} row groups where {reader.size - reader.pos} bytes are left")
    leaves = sum(element.physical is not None for element in elements[1:])
    groups = None
    if count * leaves >= MIN_BATCH_CHUNKS:
        groups = read_row_groups(reader, count, leaves)
    if groups is None:
        groups = RowGroups()
        group_reader = GroupReader(groups)
        for _ in range(count):
            group_reader.read(reader)
    return groups


def _read_key_value(reader: ThriftReader, into: dict[str, bytes]) -> None:
    key: str | None = None
    value = b""
    for number, ctype in reader.fields():
        if number == 1 and ctype == BINARY:
            key = reader.text()
        elif number == 2 and ctype == BINARY:
            value = reader.binary()
        else:
            reader.skip(ctype)
    if key is None:
        reader.fail("key-value metadata without a key")
    into.setdefault(key, value)


def _read_orders(reader: ThriftReader) -> list[int]:
    count = reader.list_of(STRUCT)
    usual = TYPE_DEFINED * count
    if reader.buf[reader.pos : reader.pos + len(usual)] == usual:
        reader.pos += len(usual)
        return [ColumnOrder.TYPE_DEFINED] * count
    return [_read_order(reader) for _ in range(count)]


def _read_order(reader: ThriftReader) -> int:
    order = ColumnOrder.UNDEFINED
    for number, ctype in reader.fields():
        if ctype == STRUCT and number in (1, 2):
            order = ColumnOrder(number)
        else:
            order = ColumnOrder.UNDEFINED
        reader.skip(ctype)
    return order


def _column_orders(orders: list[int], schema: ParquetSchema) -> npt.NDArray[np.int8]:
    """Return the order of each leaf; all are undefined where the list has another length."""
    if len(orders) != len(schema.leaves):
        return np.zeros(len(schema.leaves), np.int8)
    return np.array(orders, np.int8)


def _check_groups(raw: _Raw, schema: ParquetSchema) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the rows and bytes of the row groups, each of which must have a chunk for each leaf."""
    leaves = len(schema.leaves)
    groups = raw.groups
    total = 0
    for index, (columns, rows, size) in enumerate(
        zip(groups.columns, groups.rows, groups.sizes, strict=True)
    ):
        place = f"footer, row group {index}"
        if columns != leaves:
            raise ParquetFormatError(f"{columns} column chunks for {leaves} columns", place=place)
        total += rows
        if rows < 0 or total >= 1 << 62:
            raise ParquetFormatError(f"a row count of {rows}", place=place)
        if not -(1 << 63) <= size < 1 << 63:
            raise ParquetFormatError(f"a size of {size} bytes", place=place)
    return np.array(groups.rows, np.int64), np.array(groups.sizes, np.int64)
