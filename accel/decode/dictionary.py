"""What stands in a dictionary page, and how long its texts are.

A dictionary page of BYTE_ARRAY has the very bytes of a plain data page of a required column, so
pyarrow decodes it as one.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow as pa
from cachetools import LRUCache

from accel.decode.arrow import open_reader, translate_errors
from accel.decode.bodies import check_crc, decompress
from accel.decode.lone_column import lone_column
from accel.decode.plain import uniform_length
from accel.decode.splice import SplicedChunk, plan_splice, splice
from accel.errors import ParquetFormatError
from accel.format.model import (
    Codec,
    Encoding,
    Leaf,
    PageType,
    ParquetSchema,
    Physical,
    Repetition,
    SchemaElement,
)
from accel.format.page_header import parse_page_header
from accel.format.thrift import I32, STRUCT, Struct, read_struct, write_struct
from accel.ranges import Buffer, Kind

__all__ = ["dictionary_values", "longest_text"]


def longest_text(page: Buffer, codec: int) -> int:
    """The bytes of the longest entry of a BYTE_ARRAY dictionary page (header included), verified before.

    Raises
    ------
    ParquetFormatError
        It does not decode.
    """
    length = uniform_length(page, codec)
    if length is not None:
        return length
    chunks = _entries(page, codec, _SCHEMA).chunks
    return max(
        (
            int(np.diff(np.frombuffer(c.buffers()[1], np.int32, len(c) + 1, 4 * c.offset)).max())
            for c in chunks
        ),
        default=0,
    )


def dictionary_values(
    page: Buffer, codec: int, element: SchemaElement, *, arrow_type: pa.DataType
) -> pa.Array:
    """The entries of a dictionary page, in the type that the column's decoded values have.

    Parameters
    ----------
    page : Buffer
        The page, header included.
    element : SchemaElement
        The column's leaf.
    arrow_type : pyarrow.DataType
        Of the column; for dictionary types, the entries have its value type.

    Raises
    ------
    ParquetFormatError
        It does not decode, or its values are none of that type.
    """
    entries = _entries(page, codec, _required(element))
    kind = arrow_type.value_type if pa.types.is_dictionary(arrow_type) else arrow_type
    with translate_errors(place=Kind.DICTIONARY.value):
        array = entries.combine_chunks() if entries.num_chunks != 1 else entries.chunk(0)
        return array if array.type.equals(kind) else array.cast(kind)


def _required(element: SchemaElement) -> ParquetSchema:
    """A schema of this one column, without nulls. Kept, so that what is worked out of it is found again."""
    with _lock:
        known = _schemas.get(element.raw)
    if known is not None:
        return known
    fields, _ = read_struct(element.raw)
    fields[3] = (I32, int(Repetition.REQUIRED))
    required = replace(element, repetition=Repetition.REQUIRED, raw=write_struct(fields))
    leaf = Leaf(ordinal=0, path=(element.name,), element=1, ancestors=(), max_definition=0, max_repetition=0)
    schema = replace(_SCHEMA, elements=(_SCHEMA.elements[0], required), leaves=(leaf,))
    with _lock:
        _schemas[element.raw] = schema
    return schema


_lock = threading.Lock()
_schemas: LRUCache[bytes, ParquetSchema] = LRUCache(256)


def _entries(page: Buffer, codec: int, schema: ParquetSchema) -> pa.ChunkedArray:
    header = parse_page_header(page)
    body, size = memoryview(page)[header.header_length :], header.compressed_size
    crc = header.crc
    if codec != Codec.UNCOMPRESSED:
        # pyarrow would decompress it into the default pool, which may not have been used yet.
        check_crc(body, crc)
        bare = decompress(body, codec, size=header.uncompressed_size)
        if bare is not None:
            body, size, crc, codec = bare.data, header.uncompressed_size, None, Codec.UNCOMPRESSED
        elif not header.num_values and codec != Codec.LZ4:
            # pyarrow does not decompress a data page of no values.
            raise ParquetFormatError("it does not decompress to its size", place=Kind.DICTIONARY.value)
    levels: Struct = {
        1: (I32, header.num_values),
        2: (I32, int(Encoding.PLAIN)),
        3: (I32, int(Encoding.RLE)),
        4: (I32, int(Encoding.RLE)),
    }
    as_data: Struct = {
        1: (I32, int(PageType.DATA_PAGE)),
        2: (I32, header.uncompressed_size),
        3: (I32, size),
        5: (STRUCT, levels),
    }
    if crc:
        # Of the body, which stays as it is. Thrift's integers are signed.
        as_data[4] = (I32, crc - (crc >> 31 << 32))
    parts = (write_struct(as_data), body)
    chunk = SplicedChunk(parts, codec, header.num_values, header.uncompressed_size)
    plan = plan_splice(schema, _NO_METADATA, fields=[0])
    with translate_errors(place=Kind.DICTIONARY.value):
        reader = open_reader(splice(plan, {0: chunk}, num_rows=header.num_values))
        column = reader.read_row_groups([0], [0], False).column(0)
    if len(column) != header.num_values:
        raise ParquetFormatError("it has not the entries that its header says", place=Kind.DICTIONARY.value)
    return column


_NO_METADATA: Final[dict[str, bytes]] = {}
_SCHEMA: Final = lone_column("text", Physical.BYTE_ARRAY, repetition=Repetition.REQUIRED)
