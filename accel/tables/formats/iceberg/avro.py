"""Avro files of records, read block by block: manifests and lists of manifests.

A block takes no more memory than its bytes may, and each record is known to take a byte at least. Logical
types are left out of the schema: values come as they are stored, and in one way. Maps from field ids, which
are most of a manifest, come as what columns are made of: see `IntPairs` and `BytesPairs`.

Other decoders were measured on 10,000 files of 20 columns: fastavro takes twice as long, as it makes an
object of each pair; pyiceberg's compiled one reads beyond the end of bytes that are cut off, and crashes.

Source: the Avro specification, "Object Container Files" and "Data Serialization".
"""

from __future__ import annotations

import json
import re
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from accel.errors import TableFormatError
from accel.options import MIB

__all__ = ["AvroFile", "BytesPairs", "IntPairs", "decode_numbers", "open_avro"]

_Read: TypeAlias = "Callable[[bytes, int], tuple[Any, int]]"

_MAGIC: Final = b"Obj\x01"
_SYNC: Final = 16
_MOST_BLOCK: Final = 64 * MIB
"""Bytes of an unpacked block."""
_MOST_BYTES: Final = 512 * MIB
"""Bytes of all unpacked blocks."""
_MOST_DEPTH: Final = 24
_MOST_PAIRS: Final = 1000
_MOST_NUMBER_BYTES: Final = 10
_PATTERN_NUMBERS: Final = 4096
_FILE: Final = 2
"""The id of the field of a manifest's entries that holds the file."""
_PRIMITIVES: Final = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})


@dataclass(frozen=True, slots=True, eq=False)
class AvroFile:
    """An Avro file whose header is read."""

    metadata: Mapping[str, bytes]
    """What the header says besides the schema."""
    schema: dict[str, Any]
    """The schema of a record, without logical types."""
    _read: _Read
    _data: memoryview
    _start: int
    _sync: bytes

    def blocks(self) -> Iterator[list[dict[str, Any]]]:
        """Yield the records, block by block.

        Raises
        ------
        TableFormatError
            The file is cut off or damaged, or takes more memory than it may.
        """
        codec = self.metadata.get("avro.codec", b"null").decode("ascii", "replace")
        at, total = self._start, 0
        while at < len(self._data):
            count, at = _long(self._data, at)
            size, at = _long(self._data, at)
            if count < 0 or size < 0 or at + size + _SYNC > len(self._data):
                raise TableFormatError("a block of the Avro file is cut off, or its length lies")
            body = _unpacked(self._data[at : at + size], codec)
            at += size
            if bytes(self._data[at : at + _SYNC]) != self._sync:
                raise TableFormatError("a block of the Avro file does not end where it says")
            at += _SYNC
            total += len(body)
            if total > _MOST_BYTES:
                raise TableFormatError(f"the Avro file unpacks to more than {_MOST_BYTES} bytes")
            if count > len(body):
                raise TableFormatError(f"a block of {len(body)} bytes claims {count} records")
            yield self._records(body, count)

    def _records(self, body: bytes, count: int) -> list[dict[str, Any]]:
        records, position, read = [], 0, self._read
        try:
            for _ in range(count):
                record, position = read(body, position)
                records.append(record)
        except (IndexError, UnicodeDecodeError, struct.error) as error:
            raise TableFormatError("a record of the Avro file does not decode") from error
        if position != len(body):
            raise TableFormatError("a block of the Avro file has more or fewer bytes than its records")
        return records


def open_avro(
    data: memoryview, *, fields: frozenset[int] | None = None, keys: frozenset[int] | None = None
) -> AvroFile:
    """Read the header of an Avro file.

    Parameters
    ----------
    data : memoryview
    fields : frozenset of int, optional
        The ids of the fields of entries, and of the files in them, that are wanted: others are passed over.
    keys : frozenset of int, optional
        The field ids that are wanted of maps to bytes.

    Raises
    ------
    TableFormatError
        It is none, or its schema is not one of records that take a byte at least.
    """
    if bytes(data[:4]) != _MAGIC:
        raise TableFormatError("the file is no Avro file")
    pairs, at = _pairs(data, 4)
    sync = bytes(data[at : at + _SYNC])
    if len(sync) < _SYNC:
        raise TableFormatError("the Avro file is cut off in its header")
    try:
        given = json.loads(pairs.get("avro.schema", b""))
    except (ValueError, RecursionError) as error:
        raise TableFormatError("the schema of the Avro file is no JSON") from error
    schema = _plain(given, 0)
    if not isinstance(schema, dict) or schema.get("type") != "record":
        raise TableFormatError("the records of the Avro file are none")
    if _least(schema, 0) < 1:
        raise TableFormatError("the records of the Avro file may take no byte")
    return AvroFile(pairs, schema, _reader(schema, _Wanted(fields, keys)), data, at + _SYNC, sync)


# -- values ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class IntPairs:
    """The pairs of field ids and numbers of one file, undecoded: two numbers of varying length for each."""

    count: int
    data: bytes


@dataclass(frozen=True, slots=True)
class BytesPairs:
    """The pairs of field ids and bytes of one file."""

    ids: list[int]
    values: list[bytes]


def _read_null(data: bytes, at: int) -> tuple[None, int]:
    return None, at


def _read_boolean(data: bytes, at: int) -> tuple[bool, int]:
    return data[at] != 0, at + 1


def _read_long(data: bytes, at: int) -> tuple[int, int]:
    byte = data[at]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), at + 1
    return _long(data, at)


def _read_float(data: bytes, at: int) -> tuple[float, int]:
    return struct.unpack_from("<f", data, at)[0], at + 4


def _read_double(data: bytes, at: int) -> tuple[float, int]:
    return struct.unpack_from("<d", data, at)[0], at + 8


def _read_bytes(data: bytes, at: int) -> tuple[bytes, int]:
    length, at = _read_long(data, at)
    end = at + length
    if length < 0 or end > len(data):
        raise TableFormatError("a value of the Avro file is cut off, or its length lies")
    return data[at:end], end


def _read_text(data: bytes, at: int) -> tuple[str, int]:
    value, at = _read_bytes(data, at)
    return value.decode(), at


_VALUES: Final[dict[str, _Read]] = {
    "null": _read_null,
    "boolean": _read_boolean,
    "int": _read_long,
    "long": _read_long,
    "float": _read_float,
    "double": _read_double,
    "bytes": _read_bytes,
    "string": _read_text,
}


@dataclass(frozen=True, slots=True)
class _Wanted:
    """What is kept of records: fields by their ids, and of maps to bytes the pairs of some keys; None for
    all."""

    fields: frozenset[int] | None = None
    keys: frozenset[int] | None = None

    def below(self, number: int | None) -> _Wanted:
        """Return the same for what a field holds: of a file its fields are chosen, and of nothing else."""
        return self if number == _FILE else _Wanted(None, self.keys)


def _reader(schema: Any, wanted: _Wanted) -> _Read:
    """Return the function that reads a value of a schema at a place, and returns the place behind it."""
    if isinstance(schema, str):
        return _VALUES[schema]
    if isinstance(schema, list):
        return _union([_reader(each, wanted) for each in schema])
    if schema["type"] == "record":
        return _record([_field(each, wanted) for each in schema["fields"]])
    if schema["type"] == "array":
        pairs = _pairs_of(schema["items"], wanted.keys)
        return _array(_reader(schema["items"], wanted)) if pairs is None else pairs
    if schema["type"] == "map":
        named = _record([("key", _read_text), ("value", _reader(schema["values"], wanted))])
        return _array(named)
    size = schema["size"]

    def fixed(data: bytes, at: int) -> tuple[bytes, int]:
        if at + size > len(data):
            raise TableFormatError("a value of the Avro file is cut off")
        return data[at : at + size], at + size

    return fixed


def _field(field: Mapping[str, Any], wanted: _Wanted) -> tuple[str | None, _Read]:
    """Return the name of a field, None where its values are passed over, and what reads it."""
    number, kind = field.get("field-id"), field["type"]
    if number is None or wanted.fields is None or number in wanted.fields:
        return field["name"], _reader(kind, wanted.below(number))
    return None, _passing(kind)


def _passing(schema: Any) -> _Read:
    """Return the function that passes over a value of a schema."""
    if isinstance(schema, list):
        return _union([_passing(each) for each in schema])
    if isinstance(schema, dict) and schema["type"] == "array" and _has_numbers(schema["items"]):
        return _pass_int_pairs
    return _reader(schema, _Wanted(None, frozenset()))


def _record(fields: list[tuple[str | None, _Read]]) -> _Read:
    def read(data: bytes, at: int) -> tuple[dict[str, Any], int]:
        out = {}
        for name, value in fields:
            found, at = value(data, at)
            if name is not None:
                out[name] = found
        return out, at

    return read


def _union(branches: list[_Read]) -> _Read:
    def read(data: bytes, at: int) -> tuple[Any, int]:
        number, at = _read_long(data, at)
        if not 0 <= number < len(branches):
            raise TableFormatError("a value of the Avro file is of no type that it may be of")
        return branches[number](data, at)

    return read


def _counts(data: bytes, at: int, least: int) -> tuple[int, int]:
    """Return the number of the items that follow, and where they begin."""
    count, at = _read_long(data, at)
    if count < 0:
        count = -count
        _, at = _read_long(data, at)
    if count * least > len(data) - at:
        raise TableFormatError(f"{len(data) - at} bytes of the Avro file cannot hold {count} items")
    return count, at


def _array(item: _Read) -> _Read:
    def read(data: bytes, at: int) -> tuple[list[Any], int]:
        out: list[Any] = []
        while True:
            count, at = _counts(data, at, 1)
            if count == 0:
                return out, at
            for _ in range(count):
                value, at = item(data, at)
                out.append(value)

    return read


def _has_numbers(items: Any) -> bool:
    """Return whether items are pairs of a field id and a number."""
    if not isinstance(items, dict) or items["type"] != "record":
        return False
    fields = [(each["name"], each["type"]) for each in items["fields"]]
    return fields in ([("key", "int"), ("value", "long")], [("key", "int"), ("value", "int")])


def _pairs_of(items: Any, keys: frozenset[int] | None) -> _Read | None:
    """Return the function that reads pairs of a field id and a number, or bytes; None for other items."""
    if _has_numbers(items):
        return _int_pairs
    if not isinstance(items, dict) or items["type"] != "record":
        return None
    fields = [(each["name"], each["type"]) for each in items["fields"]]
    if fields != [("key", "int"), ("value", "bytes")]:
        return None
    return partial(_bytes_pairs, keys=keys)


@lru_cache(maxsize=256)
def _numbers_pattern(count: int) -> re.Pattern[bytes]:
    return re.compile(rb"(?:[\x80-\xff]{0,9}[\x00-\x7f]){%d}" % count)


def _int_pairs(data: bytes, at: int) -> tuple[IntPairs, int]:
    parts: list[bytes] = []
    total, at = _walk_int_pairs(data, at, parts)
    return IntPairs(total, parts[0] if len(parts) == 1 else b"".join(parts)), at


def _pass_int_pairs(data: bytes, at: int) -> tuple[None, int]:
    return None, _walk_int_pairs(data, at, None)[1]


def _walk_int_pairs(data: bytes, at: int, parts: list[bytes] | None) -> tuple[int, int]:
    """Return the number of pairs, and the place behind them; their bytes are added to the parts."""
    total = 0
    while True:
        count, at = _counts(data, at, 2)
        if count == 0:
            return total, at
        total += count
        left = 2 * count
        while left:
            some = min(left, _PATTERN_NUMBERS)
            found = _numbers_pattern(some).match(data, at)
            if found is None:
                raise TableFormatError("the Avro file is cut off, or a number in it is too long")
            if parts is not None:
                parts.append(found[0])
            at, left = found.end(), left - some


def _bytes_pairs(data: bytes, at: int, *, keys: frozenset[int] | None) -> tuple[BytesPairs, int]:
    ids: list[int] = []
    values: list[bytes] = []
    size = len(data)
    while True:
        count, at = _counts(data, at, 2)
        if count == 0:
            return BytesPairs(ids, values), at
        for _ in range(count):
            key = data[at]
            if key < 0x80:
                at += 1
                key = (key >> 1) ^ -(key & 1)
            else:
                key, at = _long(data, at)
            length = data[at]
            if length < 0x80 and not length & 1:
                at += 1
                length >>= 1
            else:
                length, at = _long(data, at)
            end = at + length
            if length < 0 or end > size:
                raise TableFormatError("a value of the Avro file is cut off, or its length lies")
            if keys is None or key in keys:
                ids.append(key)
                values.append(data[at:end])
            at = end


def decode_numbers(data: bytes) -> npt.NDArray[np.int64]:
    """Return the numbers of varying length that bytes hold, one after the other.

    Raises
    ------
    TableFormatError
        One is cut off or too long.
    """
    raw = np.frombuffer(data, np.uint8)
    if not len(raw):
        return np.zeros(0, np.int64)
    ends = np.flatnonzero(raw < 0x80)
    if not len(ends) or ends[-1] != len(raw) - 1:
        raise TableFormatError("a number of the Avro file is cut off")
    starts = np.append(0, ends[:-1] + 1)
    lengths = ends - starts + 1
    if int(lengths.max()) > _MOST_NUMBER_BYTES:
        raise TableFormatError("a number of the Avro file is too long")
    out = np.zeros(len(ends), np.uint64)
    for at in range(int(lengths.max())):
        has = lengths > at
        bits = (raw[starts[has] + at] & 0x7F).astype(np.uint64) << np.uint64(7 * at)
        out[has] |= bits
    half = (out >> np.uint64(1)).astype(np.int64)
    return half ^ -(out & np.uint64(1)).astype(np.int64)


# -- the container ---------------------------------------------------------------------------------


def _pairs(data: memoryview, at: int) -> tuple[dict[str, bytes], int]:
    pairs: dict[str, bytes] = {}
    while True:
        count, at = _long(data, at)
        if count == 0:
            return pairs, at
        if count < 0:
            count = -count
            _, at = _long(data, at)
        if count + len(pairs) > _MOST_PAIRS:
            raise TableFormatError("the header of the Avro file has too many entries")
        for _ in range(count):
            name, at = _bytes(data, at)
            value, at = _bytes(data, at)
            pairs[name.decode("utf-8", "replace")] = value


def _bytes(data: memoryview, at: int) -> tuple[bytes, int]:
    length, at = _long(data, at)
    if length < 0 or at + length > len(data):
        raise TableFormatError("the header of the Avro file is cut off, or a length in it lies")
    return bytes(data[at : at + length]), at + length


def _long(data: bytes | memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise TableFormatError("the Avro file is cut off")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
    return (value >> 1) ^ -(value & 1), at


def _unpacked(body: memoryview, codec: str) -> bytes:
    if codec == "null":
        return bytes(body)
    if codec == "deflate":
        machine = zlib.decompressobj(-zlib.MAX_WBITS)
        try:
            out = machine.decompress(body, _MOST_BLOCK)
        except zlib.error as error:
            raise TableFormatError("a block of the Avro file does not unpack") from error
        if not machine.eof:
            raise TableFormatError("a block of the Avro file does not unpack, or to more bytes than it may")
        return out
    if codec == "snappy":
        return _snappy(body)
    if codec == "zstandard":
        return _zstandard(body)
    raise TableFormatError(
        f"the Avro file is packed by {codec[:40]!r}, which is not supported",
        hint="write.avro.compression-codec of the table may be gzip, snappy, zstd or uncompressed",
    )


def _snappy(body: memoryview) -> bytes:
    import cramjam

    payload = bytes(body[:-4])
    size = shift = 0
    for byte in payload[:5]:
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    if len(body) < 5 or size > _MOST_BLOCK:
        raise TableFormatError("a block of the Avro file unpacks to more bytes than it may")
    try:
        out = bytes(cramjam.snappy.decompress_raw(payload))
    except Exception as error:
        raise TableFormatError("a block of the Avro file does not unpack") from error
    if zlib.crc32(out) != int.from_bytes(body[-4:], "big"):
        raise TableFormatError("a block of the Avro file does not match its checksum")
    return out


def _zstandard(body: memoryview) -> bytes:
    import pyarrow as pa

    try:
        with pa.CompressedInputStream(pa.BufferReader(bytes(body)), "zstd") as stream:
            out: bytes = stream.read(_MOST_BLOCK + 1)
    except (pa.ArrowException, OSError) as error:
        raise TableFormatError("a block of the Avro file does not unpack") from error
    if len(out) > _MOST_BLOCK:
        raise TableFormatError("a block of the Avro file unpacks to more bytes than it may")
    return out


def _plain(given: Any, depth: int) -> Any:
    """Return a schema without logical types; of other than the types that manifests have it is refused."""
    if depth > _MOST_DEPTH:
        raise TableFormatError("the schema of the Avro file is nested too deeply")
    if isinstance(given, str):
        if given in _PRIMITIVES:
            return given
        raise TableFormatError(f"the Avro file has the type {given[:40]!r}, which manifests do not have")
    if isinstance(given, list):
        return [_plain(each, depth + 1) for each in given]
    if not isinstance(given, dict):
        raise TableFormatError("the schema of the Avro file is none")
    kind = given.get("type")
    if kind == "record":
        fields = [
            {
                "name": str(each["name"]),
                "type": _plain(each["type"], depth + 1),
                **({"field-id": each["field-id"]} if isinstance(each.get("field-id"), int) else {}),
            }
            for each in given.get("fields") or ()
            if isinstance(each, dict) and "type" in each and "name" in each
        ]
        if len(fields) != len(given.get("fields") or ()):
            raise TableFormatError("a field of the Avro file has no name or no type")
        return {"type": "record", "name": str(given.get("name")), "fields": fields}
    if kind == "array":
        items = _plain(given.get("items"), depth + 1)
        if _least(items, depth) < 1:
            raise TableFormatError("the items of an array of the Avro file may take no byte")
        return {"type": "array", "items": items}
    if kind == "map":
        return {"type": "map", "values": _plain(given.get("values"), depth + 1)}
    if kind == "fixed":
        size = given.get("size")
        if isinstance(size, bool) or not isinstance(size, int) or not 0 < size <= MIB:
            raise TableFormatError("a fixed type of the Avro file has no size that manifests have")
        return {"type": "fixed", "name": str(given.get("name")), "size": size}
    if isinstance(kind, str | dict | list):
        return _plain(kind, depth + 1)
    raise TableFormatError("the schema of the Avro file is none")


def _least(schema: Any, depth: int) -> int:
    """Return the fewest bytes of a value, up to 1."""
    if isinstance(schema, list) or depth > _MOST_DEPTH:
        return 1
    if isinstance(schema, str):
        return 0 if schema == "null" else 1
    if schema["type"] == "record":
        return int(any(_least(each["type"], depth + 1) for each in schema["fields"]))
    return 1
