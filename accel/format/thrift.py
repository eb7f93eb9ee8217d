"""Thrift's compact protocol: a reader, a writer, and fast loops for structs of integers and lists of numbers.

Source: apache/thrift `doc/specs/thrift-compact-protocol.md`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeAlias

import numpy as np

from accel.errors import ParquetFormatError
from accel.ranges import Buffer

if TYPE_CHECKING:
    from accel.arrays import Int64s

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
    "Handler",
    "Struct",
    "ThriftList",
    "ThriftMap",
    "ThriftReader",
    "encode_list_header",
    "encode_varint",
    "encode_zigzag",
    "field_spans",
    "join_spans",
    "read_ints",
    "read_struct",
    "read_zigzags",
    "write_struct",
]

TRUE: Final = 1
"""The type of a boolean field is its value; as a list's element type, 1 and 2 both mean boolean."""
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
"""Deepest nesting of structs and containers. Parquet's metadata needs fewer than ten levels."""

Struct: TypeAlias = dict[int, tuple[int, Any]]
"""Field id -> (compact type, value). Values: bool, int, float, bytes, Struct, ThriftList, ThriftMap."""


@dataclass(slots=True)
class ThriftList:
    """A list or a set: the compact type of its elements, and the elements."""

    etype: int
    items: list[Any]


@dataclass(slots=True)
class ThriftMap:
    """A map as pairs, in the order of reading; both types are 0 for an empty map."""

    ktype: int
    vtype: int
    items: list[tuple[Any, Any]]


def write_struct(fields: Struct) -> bytes:
    """Encode a generic struct, its fields in ascending order of their ids.

    Raises ValueError for what the protocol cannot encode (a number beyond int64, an unknown type).
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
    """Encode a nonnegative number as ULEB128."""
    if value < 0x80:
        return bytes((value,))
    if value < 0x4000:
        return bytes((value & 0x7F | 0x80, value >> 7))
    if value < 0x20_0000:
        return bytes((value & 0x7F | 0x80, value >> 7 & 0x7F | 0x80, value >> 14))
    last = 7 * ((value.bit_length() - 1) // 7)
    return bytes([value >> shift & 0x7F | 0x80 for shift in range(0, last, 7)] + [value >> last])


def encode_zigzag(value: int) -> bytes:
    """Encode a signed number as integer fields have it. Raises ValueError beyond int64."""
    if 0 <= value < 0x40:
        return bytes((value << 1,))
    return encode_varint(_zigzag(value))


def encode_list_header(etype: int, size: int) -> bytes:
    """Encode the header of a list: the compact type and the number of its elements."""
    if size < 15:
        return bytes((size << 4 | etype,))
    return bytes((0xF0 | etype,)) + encode_varint(size)


def _write_varint(out: bytearray, value: int) -> None:
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


# The fewest bytes of an element, by type.
_LEAST = {TRUE: 1, FALSE: 1, I8: 1, I16: 1, I32: 1, I64: 1, DOUBLE: 8, BINARY: 1}
_LEAST |= {LIST: 1, SET: 1, MAP: 1, STRUCT: 1, UUID: 16}


class ThriftReader:
    """A position in compact-protocol bytes, with methods that read what is there.

    Parameters
    ----------
    buf : Buffer
        Bytes, or a contiguous memoryview of unsigned bytes.
    pos, end : int
        The half-open part of `buf` that may be read; `end` defaults to the end of `buf`.

    Every method raises ParquetFormatError for invalid bytes. Hot loops use `buf` and `pos` directly
    and write `pos` back; `buf` ends where reading must end, so single bytes need no bounds check
    but IndexError.
    """

    __slots__ = ("buf", "pos", "size")

    def __init__(self, buf: Buffer, pos: int = 0, *, end: int | None = None) -> None:
        size = len(buf)
        if end is None:
            end = size
        if not 0 <= pos <= end <= size:
            raise ParquetFormatError(f"Thrift bytes {pos}..{end} lie outside a buffer of {size}")
        self.buf: Buffer = buf if end == size else memoryview(buf)[:end]
        self.pos = pos
        self.size = end

    def fail(self, message: str) -> NoReturn:
        raise ParquetFormatError(f"{message}, at byte {self.pos} of the Thrift data")

    def byte(self) -> int:
        pos = self.pos
        if pos >= self.size:
            self.fail("the data ends early")
        self.pos = pos + 1
        return self.buf[pos]

    def varint(self) -> int:
        """Read an unsigned number below 2**64."""
        buf = self.buf
        pos = self.pos
        try:
            byte = buf[pos]
            pos += 1
            if byte < 0x80:
                self.pos = pos
                return byte
            value = byte & 0x7F
            shift = 7
            while True:
                byte = buf[pos]
                pos += 1
                value |= (byte & 0x7F) << shift
                if byte < 0x80:
                    break
                shift += 7
                if shift > 63:
                    self.fail("a number of more than ten bytes")
        except IndexError:
            self.fail("the data ends within a number")
        if value >> 64:
            self.fail("a number of more than 64 bits")
        self.pos = pos
        return value

    def zigzag(self) -> int:
        """Read a signed number within int64: an i16, i32 or i64."""
        value = self.varint()
        return (value >> 1) ^ -(value & 1)

    def i32(self) -> int:
        value = self.zigzag()
        if not -0x80000000 <= value <= 0x7FFFFFFF:
            self.fail(f"{value} does not fit into 32 bits")
        return value

    def span(self) -> tuple[int, int]:
        """Skip a binary; return its start and length."""
        length = self.varint()
        start = self.pos
        if length > self.size - start:
            self.fail(f"a binary of {length} bytes where {self.size - start} are left")
        self.pos = start + length
        return start, length

    def binary(self) -> bytes:
        start, length = self.span()
        return bytes(self.buf[start : start + length])

    def text(self) -> str:
        """Read a binary as UTF-8, with surrogate escapes for invalid bytes so that names stay distinct."""
        return self.binary().decode("utf-8", "surrogateescape")

    def fields(self) -> Iterator[tuple[int, int]]:
        """Yield (field id, compact type) of each field up to STOP; the caller reads or skips each value."""
        last = 0
        while True:
            head = self.byte()
            if head == 0:
                return
            ctype = head & 0x0F
            if head >> 4:
                last += head >> 4
            else:
                last = self.zigzag()
            if ctype not in _LEAST or not -0x8000 <= last <= 0x7FFF:
                self.fail(f"no field can be {last} of type {ctype}")
            yield last, ctype

    def list_header(self) -> tuple[int, int]:
        """Read (element type, size) and check that the elements fit into the remaining bytes."""
        head = self.byte()
        etype, size = head & 0x0F, head >> 4
        if size == 15:
            size = self.varint()
        least = _LEAST.get(etype)
        if least is None:
            if size == 0:
                return etype, 0
            self.fail(f"no list can have elements of type {etype}")
        if size * least > self.size - self.pos:
            self.fail(f"a list of {size} where {self.size - self.pos} bytes are left")
        return etype, size

    def list_of(self, etype: int) -> int:
        """Read the size of a list whose elements must have this type."""
        found, size = self.list_header()
        if found != etype and size:
            self.fail(f"a list of type {found} where type {etype} belongs")
        return size

    def map_header(self) -> tuple[int, int, int]:
        """Read (key type, value type, size) and check that the pairs fit into the remaining bytes."""
        size = self.varint()
        if size == 0:
            return 0, 0, 0
        types = self.byte()
        ktype, vtype = types >> 4, types & 0x0F
        if ktype not in _LEAST or vtype not in _LEAST:
            self.fail(f"no map can be of types {ktype} and {vtype}")
        if size * (_LEAST[ktype] + _LEAST[vtype]) > self.size - self.pos:
            self.fail(f"a map of {size} where {self.size - self.pos} bytes are left")
        return ktype, vtype, size

    def skip(self, ctype: int, depth: int = 0) -> None:
        """Skip the value of a field. A boolean field has no bytes of its own."""
        if ctype > FALSE:
            self._skip_value(ctype, depth)

    def _skip_value(self, ctype: int, depth: int) -> None:
        if I16 <= ctype <= I64:
            self.varint()
        elif ctype == BINARY:
            self.span()
        elif ctype <= I8:
            self._advance(1)
        elif ctype == DOUBLE:
            self._advance(8)
        elif ctype == UUID:
            self._advance(16)
        elif depth >= MAX_DEPTH:
            self.fail(f"more than {MAX_DEPTH} levels of nesting")
        elif ctype == STRUCT:
            for _, inner in self.fields():
                self.skip(inner, depth + 1)
        elif ctype == MAP:
            ktype, vtype, size = self.map_header()
            for _ in range(size):
                self._skip_value(ktype, depth + 1)
                self._skip_value(vtype, depth + 1)
        elif ctype in (LIST, SET):
            etype, size = self.list_header()
            for _ in range(size):
                self._skip_value(etype, depth + 1)
        else:
            self.fail(f"unknown Thrift type {ctype}")

    def _advance(self, count: int) -> None:
        if count > self.size - self.pos:
            self.fail("the data ends within a value")
        self.pos += count

    def value(self, ctype: int, depth: int = 0) -> Any:
        """Read a generic value, other than a boolean field; see `Struct`."""
        if I16 <= ctype <= I64:
            return self.zigzag()
        if ctype == BINARY:
            return self.binary()
        if ctype <= FALSE:
            return self.byte() == TRUE
        if ctype == I8:
            byte = self.byte()
            return byte - 256 if byte > 127 else byte
        if ctype in (DOUBLE, UUID):
            start = self.pos
            self._advance(8 if ctype == DOUBLE else 16)
            raw = bytes(self.buf[start : self.pos])
            return struct.unpack("<d", raw)[0] if ctype == DOUBLE else raw
        if depth >= MAX_DEPTH:
            self.fail(f"more than {MAX_DEPTH} levels of nesting")
        if ctype == STRUCT:
            return self.struct(depth + 1)
        if ctype == MAP:
            ktype, vtype, size = self.map_header()
            pairs = [(self.value(ktype, depth + 1), self.value(vtype, depth + 1)) for _ in range(size)]
            return ThriftMap(ktype, vtype, pairs)
        etype, size = self.list_header()
        return ThriftList(etype, [self.value(etype, depth + 1) for _ in range(size)])

    def struct(self, depth: int = 0) -> Struct:
        fields: Struct = {}
        for field, ctype in self.fields():
            fields[field] = (ctype, ctype == TRUE if ctype <= FALSE else self.value(ctype, depth))
        return fields


def read_struct(buf: Buffer, pos: int = 0) -> tuple[Struct, int]:
    """Read the generic struct at `pos`; return it and the position behind it.

    `write_struct` gives the same bytes again if they were canonical: fields in ascending order, each
    header and number as short as possible.
    """
    reader = ThriftReader(buf, pos)
    return reader.struct(), reader.pos


Span: TypeAlias = tuple[int, int, bytes]
"""A field of a struct that is not decoded: its id, its compact type, and the bytes of its value."""


def field_spans(reader: ThriftReader) -> Iterator[tuple[int, int, int]]:
    """Yield (field id, compact type, start) of each field of a struct, with the reader behind its value."""
    for number, ctype in reader.fields():
        start = reader.pos
        reader.skip(ctype)
        yield number, ctype, start


def join_spans(fields: Sequence[Span]) -> bytes:
    """Encode a struct of fields whose values are encoded, in ascending order of their ids."""
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


def read_zigzags(reader: ThriftReader, count: int) -> Int64s:
    """Read the next `count` numbers; raises ParquetFormatError where one is invalid or they end early."""
    buf = reader.buf
    pos = reader.pos
    values = []
    try:
        for _ in range(count):
            value = buf[pos]
            if value < 128:
                pos += 1
            else:
                reader.pos = pos
                value = reader.varint()
                pos = reader.pos
            values.append((value >> 1) ^ -(value & 1))
    except IndexError:
        reader.fail("the data ends early")
    reader.pos = pos
    return np.array(values, np.int64)


Handler: TypeAlias = Callable[[ThriftReader, list[int]], None]


def read_ints(
    reader: ThriftReader,
    row: list[int],
    *,
    slots: Mapping[int, int],
    handlers: Mapping[int, Handler],
    field: int = 0,
) -> None:
    """Read a struct: integer fields into `row` by `slots`, other fields by the handler of `field << 4 |
    type`.

    Fields in neither are skipped. `field` is the last field that has been read already. Raises IndexError
    where the data ends early.
    """
    buf = reader.buf
    pos = reader.pos
    while True:
        head = buf[pos]
        pos += 1
        if head > 15:
            field += head >> 4
        elif head == 0:
            reader.pos = pos
            return
        else:
            reader.pos = pos
            field = reader.zigzag()
            pos = reader.pos
        ctype = head & 15
        if 4 <= ctype <= 6:
            value = buf[pos]
            pos += 1
            if value > 127:
                value &= 127
                shift = 7
                while True:
                    byte = buf[pos]
                    pos += 1
                    if byte < 128:
                        value |= byte << shift
                        break
                    value |= (byte & 127) << shift
                    shift += 7
                    if shift > 63:
                        reader.fail("a number of more than ten bytes")
            slot = slots.get(field)
            if slot is not None:
                row[slot] = (value >> 1) ^ -(value & 1)
        else:
            reader.pos = pos
            handler = handlers.get(field << 4 | ctype)
            if handler is None:
                reader.skip(ctype)
            else:
                handler(reader, row)
            pos = reader.pos
