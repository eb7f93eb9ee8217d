"""Record batches of an index as Arrow's IPC has them, checked before anything is decompressed.

Each buffer of a compressed batch says how long it becomes, and pyarrow allocates that without asking; a few
bytes may stand for any number of them. Accel writes batches without compression of their own, so that no
others are read.

Source: apache/arrow `format/Message.fbs` (Message, RecordBatch), flatbuffers `docs/source/internals.md`
(tables and vtables).
"""

from __future__ import annotations

import struct

import pyarrow as pa

from accel.errors import IndexFormatError
from accel.ranges import Buffer

__all__ = ["read_batch", "read_batches"]

_HEADER_TYPE, _HEADER = 1, 2
"""Fields of a Message."""
_COMPRESSION = 3
"""Field of a RecordBatch."""
_RECORD_BATCH = 3
"""Type of the header of a message that is a batch."""
_BATCH, _SCHEMA = "record batch", "schema"


def read_batches(stream: Buffer, schema: pa.Schema) -> tuple[pa.Schema, list[pa.RecordBatch]]:
    """Return the schema of a stream with its metadata, and its batches, all of them validated.

    Parameters
    ----------
    schema : pyarrow.Schema
        The columns that the stream has to have.

    Raises
    ------
    IndexFormatError
        It has other columns, or is more than batches without compression.
    pyarrow.ArrowException, OSError, EOFError
        It cannot be read.
    """
    messages = list(pa.ipc.MessageReader.open_stream(pa.py_buffer(stream)))
    first = messages[0] if messages else None
    if first is None or first.type != _SCHEMA:
        raise IndexFormatError("rows of the index come without a schema")
    stated = pa.ipc.read_schema(first)
    if not stated.remove_metadata().equals(schema):
        raise IndexFormatError("rows of the index have other columns")
    return stated, [_batch_of(message, schema) for message in messages[1:]]


def read_batch(message: Buffer, schema: pa.Schema) -> pa.RecordBatch:
    """Return the batch of one message, validated. Raises as `read_batches` does."""
    return _batch_of(pa.ipc.read_message(pa.py_buffer(message)), schema)


def _batch_of(message: pa.ipc.Message, schema: pa.Schema) -> pa.RecordBatch:
    if message.type != _BATCH:
        raise IndexFormatError(f"where rows of the index should be is a message of the type {message.type}")
    try:
        compressed = _is_compressed(memoryview(message.metadata))
    except struct.error as error:
        raise IndexFormatError("rows of the index are damaged") from error
    if compressed:
        raise IndexFormatError("rows of the index are compressed in a way that accel does not write")
    batch = pa.ipc.read_record_batch(message, schema)
    batch.validate(full=True)
    return batch


def _is_compressed(metadata: memoryview) -> bool:
    """Return whether the metadata of a message describe a batch whose buffers are compressed."""
    (root,) = struct.unpack_from("<I", metadata)
    kind = _field(metadata, root, _HEADER_TYPE)
    header = _field(metadata, root, _HEADER)
    if not kind or not header or metadata[kind] != _RECORD_BATCH:
        raise struct.error("no batch")
    (distance,) = struct.unpack_from("<I", metadata, header)
    return bool(_field(metadata, header + distance, _COMPRESSION))


def _field(data: memoryview, table: int, number: int) -> int:
    """Return the place of a table's field; 0 where the table lacks it."""
    (back,) = struct.unpack_from("<i", data, table)
    vtable = table - back
    if vtable < 0:
        raise struct.error("a table without fields")
    (size,) = struct.unpack_from("<H", data, vtable)
    slot = 4 + 2 * number
    if slot + 2 > size:
        return 0
    (offset,) = struct.unpack_from("<H", data, vtable + slot)
    place: int = table + offset
    return place if offset else 0
