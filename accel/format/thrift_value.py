"""Thrift values of the compact protocol, their types, and how they are written.

Source: apache/thrift `doc/specs/thrift-compact-protocol.md`.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

__all__ = [
    "BINARY",
    "DOUBLE",
    "FALSE",
    "I8",
    "I16",
    "I32",
    "I64",
    "LIST",
    "MAP",
    "MAX_DEPTH",
    "SET",
    "STRUCT",
    "TRUE",
    "UUID",
    "Struct",
    "ThriftList",
    "ThriftMap",
    "encode_list_header",
    "encode_varint",
    "encode_zigzag",
    "write_struct",
]

TRUE: Final = 1
"""A field's boolean is in its type; in a list both 1 and 2 say "boolean"."""
FALSE: Final = 2
I8: Final = 3
I16: Final = 4
I32: Final = 5
I64: Final = 6
DOUBLE: Final = 7
BINARY: Final = 8
LIST: Final = 9
SET: Final = 10
MAP: Final = 11
STRUCT: Final = 12
UUID: Final = 13

MAX_DEPTH: Final = 64
"""Structs and containers within each other. Parquet's own metadata needs fewer than ten."""

Struct: TypeAlias = dict[int, tuple[int, Any]]
"""Field id -> (compact type, value). Values: bool, int, float, bytes, Struct, ThriftList, ThriftMap."""


@dataclass(slots=True)
class ThriftList:
    """A list or a set: the compact type of its elements, and they."""

    etype: int
    items: list[Any]


@dataclass(slots=True)
class ThriftMap:
    """A map as pairs, in the order read; both types are 0 for an empty one."""

    ktype: int
    vtype: int
    items: list[tuple[Any, Any]]


def write_struct(fields: Struct) -> bytes:
    """Encode a generic struct, its fields in ascending order of their ids.

    Raises ValueError for what the protocol cannot say (a number beyond int64, an unknown type).
    """
    out = bytearray()
    _write_fields(out, fields, 0)
    return bytes(out)


def _write_fields(out: bytearray, fields: Struct, depth: int) -> None:
    last = 0
    for field in sorted(fields):
        ctype, value = fields[field]
        if ctype <= FALSE:
            ctype = TRUE if value else FALSE
        if 0 < field - last <= 15:
            out.append((field - last) << 4 | ctype)
        else:
            out.append(ctype)
            _write_varint(out, _zigzag(field))
        last = field
        if ctype > FALSE:
            _write_value(out, ctype, value, depth)
    out.append(0)


def _write_value(out: bytearray, ctype: int, value: Any, depth: int) -> None:
    if depth > MAX_DEPTH:
        raise ValueError(f"more than {MAX_DEPTH} levels of nesting")
    if I16 <= ctype <= I64:
        _write_varint(out, _zigzag(value))
    elif ctype == BINARY:
        _write_varint(out, len(value))
        out += value
    elif ctype <= FALSE:
        out.append(TRUE if value else FALSE)
    elif ctype == I8:
        out.append(value & 0xFF)
    elif ctype == DOUBLE:
        out += struct.pack("<d", value)
    elif ctype == UUID:
        if len(value) != 16:
            raise ValueError(f"a UUID of {len(value)} bytes")
        out += value
    elif ctype == STRUCT:
        _write_fields(out, value, depth + 1)
    elif ctype == MAP:
        _write_varint(out, len(value.items))
        if value.items:
            out.append(value.ktype << 4 | value.vtype)
        for key, item in value.items:
            _write_value(out, value.ktype, key, depth + 1)
            _write_value(out, value.vtype, item, depth + 1)
    elif ctype in (LIST, SET):
        out += encode_list_header(value.etype, len(value.items))
        for item in value.items:
            _write_value(out, value.etype, item, depth + 1)
    else:
        raise ValueError(f"unknown Thrift type {ctype}")


def _zigzag(value: int) -> int:
    if not -(1 << 63) <= value < 1 << 63:
        raise ValueError(f"{value} does not fit into 64 bits")
    return value << 1 if value >= 0 else (-value << 1) - 1


def encode_varint(value: int) -> bytes:
    """A number that is not negative, as ULEB128."""
    if value < 0x80:
        return bytes((value,))
    out = bytearray()
    _write_varint(out, value)
    return bytes(out)


def encode_zigzag(value: int) -> bytes:
    """A signed number, as fields of integers hold it. Raises ValueError for one beyond int64."""
    return encode_varint(_zigzag(value))


def encode_list_header(etype: int, size: int) -> bytes:
    """What stands before the elements of a list: their compact type and their number."""
    if size < 15:
        return bytes((size << 4 | etype,))
    return bytes((0xF0 | etype,)) + encode_varint(size)


def _write_varint(out: bytearray, value: int) -> None:
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
