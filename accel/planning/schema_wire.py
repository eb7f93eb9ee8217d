"""A file's schema, cut down to some of its columns, as the bytes of a footer without row groups."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence

import pyarrow as pa

from accel.errors import ParquetFormatError
from accel.format.footer import ARROW_SCHEMA_KEY, parse_footer
from accel.format.model import FileMetadata, ParquetSchema
from accel.format.thrift import BINARY, I32, I64, LIST, STRUCT, Struct, ThriftList, read_struct, write_struct

__all__ = ["decode_schema", "encode_schema"]


_NUM_CHILDREN = 5
# Where the Thrift bytes of a footer may start at the earliest: after the magic.
_START = 4


def encode_schema(
    schema: ParquetSchema,
    arrow: pa.Schema,
    *,
    key_value: Mapping[str, bytes],
    leaves: Sequence[int],
    created_by: str = "",
) -> tuple[bytes, pa.Schema, dict[int, int]]:
    """Cut a schema down to the top-level columns that hold `leaves`.

    Returns
    -------
    footer : bytes
        For `decode_schema`.
    arrow : pyarrow.Schema
        The same columns of the Arrow schema.
    renumbered : dict
        The new ordinal of every leaf of those columns, by its old one.
    """
    wanted = set(leaves)
    kept = [
        i
        for i, (first, last) in enumerate(schema.field_leaves)
        if any(x in wanted for x in range(first, last))
    ]
    root, _ = read_struct(schema.elements[0].raw)
    root[_NUM_CHILDREN] = (I32, len(kept))
    elements = [root]
    renumbered: dict[int, int] = {}
    for i in kept:
        start = schema.fields[i]
        for element in range(start, schema.subtree_ends[start]):
            elements.append(read_struct(schema.elements[element].raw)[0])
        for leaf in range(*schema.field_leaves[i]):
            renumbered[leaf] = len(renumbered)
    footer: Struct = {
        1: (I32, 1),
        2: (LIST, ThriftList(STRUCT, elements)),
        3: (I64, 0),
        4: (LIST, ThriftList(STRUCT, [])),
    }
    original = _cut_arrow(key_value.get(ARROW_SCHEMA_KEY), kept, len(schema.fields))
    if original is not None:
        pair: Struct = {1: (BINARY, ARROW_SCHEMA_KEY.encode()), 2: (BINARY, original)}
        footer[5] = (LIST, ThriftList(STRUCT, [pair]))
    if created_by:
        footer[6] = (BINARY, created_by.encode())
    return write_struct(footer), pa.schema([arrow.field(i) for i in kept]), renumbered


def _cut_arrow(value: bytes | None, kept: Sequence[int], num_fields: int) -> bytes | None:
    if value is None:
        return None
    try:
        schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(value)))
    except (binascii.Error, pa.ArrowException, OSError):
        return None
    if len(schema) != num_fields:
        return None
    return base64.b64encode(pa.schema([schema.field(i) for i in kept]).serialize().to_pybytes())


def decode_schema(footer: bytes) -> FileMetadata:
    """What `encode_schema` wrote: the schema, the key-value metadata, the writer.

    Raises
    ------
    ParquetFormatError
    """
    if not isinstance(footer, bytes):
        raise ParquetFormatError("a scan task has no schema")
    return parse_footer(footer, file_size=_START + len(footer) + 8, footer_start=_START)
