"""A footer with other page index locations and other key-value metadata, all else byte for byte as it was.

Sources: parquet-format `parquet.thrift` (FileMetaData, RowGroup, ColumnChunk, KeyValue, ColumnOrder).

The footer is not decoded into values and encoded again: the fields that stay are copied as the bytes
they are, known to accel or not, so that memory and risk stay small.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from accel.errors import ParquetFormatError
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

if TYPE_CHECKING:
    from accel.arrays import Int64s

__all__ = ["PageIndexPlaces", "edit_footer"]

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
