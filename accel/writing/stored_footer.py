"""The footer of a new file gets back what pyarrow does not write of its columns: annotations, field ids,
INT96.

The fields that stay are copied as bytes. Pages need no change: of every restored leaf pyarrow has written the
plain values, and INT96 has the pages of a fixed-length type of 12 bytes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from typing import BinaryIO, Final

import numpy as np

from accel.errors import AccelError, ParquetFormatError
from accel.format.footer import MAGIC, parse_footer, parse_tail
from accel.format.model import Encoding, FileMetadata, Physical
from accel.format.thrift import (
    I32,
    LIST,
    STRUCT,
    Span,
    ThriftReader,
    encode_list_header,
    encode_zigzag,
    field_spans,
    join_spans,
)
from accel.writing.column_forms import nodes_of
from accel.writing.stored_types import StoredTypes

__all__ = ["restore_footer", "restored_end"]

_SCHEMA, _ROW_GROUPS = 2, 4
_COLUMNS, _CHUNK_METADATA, _CHUNK_TYPE = 1, 3, 1
_PLAIN_ENCODINGS: Final = sum(
    1 << encoding
    for encoding in (
        Encoding.PLAIN,
        Encoding.PLAIN_DICTIONARY,
        Encoding.RLE_DICTIONARY,
        Encoding.RLE,
        Encoding.BIT_PACKED,
    )
)
"""The encodings that an INT96 column may have, as bits; levels have the last two."""


def restore_footer(file: BinaryIO, stored: StoredTypes) -> None:
    """Write the footer of a complete file anew with what `stored` says of its columns.

    Parameters
    ----------
    file : BinaryIO
        A local file, open to be read and written, with all of it flushed.
    stored : StoredTypes

    Raises
    ------
    AccelError
        A column is not as it has to be. This is a bug of accel, and the file must not be used.
    """
    if not stored.annotations:
        return
    handle = file.fileno()
    size = os.fstat(handle).st_size
    length = parse_tail(os.pread(handle, 8, size - 8)).length
    start = size - 8 - length
    new = _restored(os.pread(handle, length, start), stored, start=start)
    file.seek(start)
    file.write(new + len(new).to_bytes(4, "little") + MAGIC)
    file.truncate()
    file.flush()


def restored_end(end: bytes, stored: StoredTypes, *, size: int) -> bytes:
    """Return the end of a file, its whole footer in it, with what `stored` says of its columns.

    Parameters
    ----------
    end : bytes
        The last bytes of the file.
    stored : StoredTypes
    size : int
        Bytes of the whole file.
    """
    length = parse_tail(end[-8:]).length
    new = _restored(end[-8 - length : -8], stored, start=size - 8 - length)
    return end[: -8 - length] + new + len(new).to_bytes(4, "little") + MAGIC


def _restored(footer: bytes, stored: StoredTypes, *, start: int) -> bytes:
    size = start + len(footer) + 8
    metadata = parse_footer(footer, file_size=size, footer_start=start)
    nodes = nodes_of(metadata.schema, stored.schema)
    elements, instants = {}, set()
    ordinals = {leaf.element: leaf.ordinal for leaf in metadata.schema.leaves}
    for path, annotation in stored.annotations.items():
        at = nodes.get(path)
        if at is None:
            raise AccelError(f"the new file has no column {'.'.join(path)}")
        elements[at] = annotation.restored(metadata.schema.elements[at])
        if annotation.is_instant:
            instants.add(ordinals[at])
    _check_instants(metadata, instants)
    new = _edited(footer, elements, instants)
    parse_footer(new, file_size=start + len(new) + 8, footer_start=start)
    return new


def _check_instants(metadata: FileMetadata, instants: Collection[int]) -> None:
    encodings = metadata.chunks.encodings[:, sorted(instants)]
    if bool((encodings & ~np.uint32(_PLAIN_ENCODINGS)).any()):
        raise AccelError("an INT96 column was written in an encoding that it cannot have")


def _edited(footer: bytes, elements: Mapping[int, bytes], instants: Collection[int]) -> bytes:
    reader = ThriftReader(footer)
    fields: list[Span] = []
    for number, ctype, start in field_spans(reader):
        value = bytes(footer[start : reader.pos])
        if number == _SCHEMA and ctype == LIST:
            value = _edit_schema(ThriftReader(value), elements)
        elif number == _ROW_GROUPS and ctype == LIST and instants:
            value = _edit_list(ThriftReader(value), lambda group, _: _edit_group(group, instants))
        fields.append((number, ctype, value))
    return join_spans(fields)


def _edit_schema(reader: ThriftReader, elements: Mapping[int, bytes]) -> bytes:
    size = reader.list_of(STRUCT)
    out = [encode_list_header(STRUCT, size)]
    for at in range(size):
        start = reader.pos
        reader.skip(STRUCT)
        out.append(elements.get(at, bytes(reader.buf[start : reader.pos])))
    return b"".join(out)


def _edit_list(reader: ThriftReader, edit: Callable[[ThriftReader, int], bytes]) -> bytes:
    size = reader.list_of(STRUCT)
    return encode_list_header(STRUCT, size) + b"".join(edit(reader, at) for at in range(size))


def _edit_group(reader: ThriftReader, instants: Collection[int]) -> bytes:
    fields: list[Span] = []
    for number, ctype, start in field_spans(reader):
        value = bytes(reader.buf[start : reader.pos])
        if number == _COLUMNS and ctype == LIST:
            value = _edit_list(
                ThriftReader(value), lambda chunk, at: _edit_chunk(chunk, instant=at in instants)
            )
        fields.append((number, ctype, value))
    return join_spans(fields)


def _edit_chunk(reader: ThriftReader, *, instant: bool) -> bytes:
    fields: list[Span] = []
    for number, ctype, start in field_spans(reader):
        value = bytes(reader.buf[start : reader.pos])
        if instant and number == _CHUNK_METADATA and ctype == STRUCT:
            value = _as_instants(ThriftReader(value))
        fields.append((number, ctype, value))
    return join_spans(fields)


def _as_instants(reader: ThriftReader) -> bytes:
    """Return the metadata of a chunk with INT96 as its type."""
    fields: list[Span] = []
    for number, ctype, start in field_spans(reader):
        value = bytes(reader.buf[start : reader.pos])
        if number == _CHUNK_TYPE and ctype == I32:
            value = encode_zigzag(Physical.INT96)
        fields.append((number, ctype, value))
    if not any(number == _CHUNK_TYPE for number, _, _ in fields):
        raise ParquetFormatError("a column chunk without a type", place="footer")
    return join_spans(fields)
