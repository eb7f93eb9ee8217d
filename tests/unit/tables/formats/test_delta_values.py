"""Partition values, deletion vectors and schemas of a Delta log."""

from __future__ import annotations

import datetime
import json
import struct
import zlib
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyroaring import BitMap64

import accel
from accel.ranges import ByteRange
from accel.tables.deletion_vectors import rows_of_bitmap, rows_of_vector
from accel.tables.formats.delta.deletion_vectors import VectorPlace, decode_z85
from accel.tables.formats.delta.protocol import Metadata, Protocol
from accel.tables.formats.delta.schema import TableSchema
from accel.tables.partition_texts import cast_texts


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (pa.string(), "a/b c", "a/b c"),
        (pa.int8(), "-5", -5),
        (pa.int64(), "9000000000", 9000000000),
        (pa.bool_(), "true", True),
        (pa.float32(), "1.5", 1.5),
        (pa.float64(), "-Infinity", float("-inf")),
        (pa.decimal128(12, 3), "1.125", Decimal("1.125")),
        (pa.date32(), "2024-02-29", datetime.date(2024, 2, 29)),
        (pa.binary(), "ab", b"ab"),
        (
            pa.timestamp("us", "UTC"),
            "2024-02-29 23:59:59.123456",
            datetime.datetime(2024, 2, 29, 23, 59, 59, 123456, datetime.UTC),
        ),
        (
            pa.timestamp("us", "UTC"),
            "2024-02-29T23:59:59.5Z",
            datetime.datetime(2024, 2, 29, 23, 59, 59, 500000, datetime.UTC),
        ),
        (pa.timestamp("us"), "2024-02-29 00:00:00", datetime.datetime(2024, 2, 29)),
    ],
)
def test_partition_values_are_texts(kind: pa.DataType, text: str, value: object) -> None:
    found = cast_texts(pa.array([text, "", None, text]), kind, column="p", null="")
    assert found.type == kind
    assert found.to_pylist() == [value, None, None, value]


def test_a_partition_value_of_another_type_is_refused() -> None:
    with pytest.raises(accel.TableFormatError, match="'p' is no int32"):
        cast_texts(pa.array(["x"]), pa.int32(), column="p", null="")


def blob(rows: list[int]) -> bytes:
    return struct.pack("<I", 1681511377) + BitMap64(rows).serialize()


def stored(rows: list[int]) -> bytes:
    data = blob(rows)
    return struct.pack(">I", len(data)) + data + struct.pack(">I", zlib.crc32(data))


def test_a_vector_in_a_file() -> None:
    rows = [0, 5, 70_000, 1 << 33]
    assert list(rows_of_vector(memoryview(stored(rows)), cardinality=4)) == rows
    assert list(rows_of_bitmap(blob(rows), cardinality=4)) == rows


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d[:-1], "has .* bytes"),
        (lambda d: d[:6], "6 bytes are no"),
        (lambda d: d[:-4] + b"\0\0\0\0", "checksum"),
        (lambda d: b"\0\0\0\1" + d[4:], "has 1 bytes"),
        (lambda d: stored([1, 2]), "has 2 rows"),
    ],
)
def test_a_damaged_vector_is_refused(change: Any, message: str) -> None:
    with pytest.raises(accel.TableFormatError, match=message):
        rows_of_vector(memoryview(change(stored([1, 2, 3]))), cardinality=3)


def test_a_vector_that_claims_too_much_is_refused() -> None:
    claims = struct.pack("<IQ", 1681511377, 1 << 60)
    with pytest.raises(accel.TableFormatError, match="cannot have"):
        rows_of_bitmap(claims + b"\0" * 40, cardinality=3)
    with pytest.raises(accel.TableFormatError, match="does not begin"):
        rows_of_bitmap(b"\0" * 40, cardinality=3)


def test_where_a_vector_is() -> None:
    given = {
        "storageType": "u",
        "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^",
        "offset": 4,
        "sizeInBytes": 40,
        "cardinality": 6,
    }
    place = VectorPlace.of(given)
    # The example of the protocol.
    assert place.path == "ab/deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin"
    assert place.part == ByteRange(4, 52)
    absolute = VectorPlace.of({**given, "storageType": "p", "pathOrInlineDv": "s3://b/x.bin"})
    assert (absolute.path, absolute.absolute) == ("s3://b/x.bin", True)
    for wrong in (
        {"storageType": "x"},
        {"sizeInBytes": -1},
        {"sizeInBytes": 1 << 40},
        {"cardinality": None},
        {"offset": -4},
        {"pathOrInlineDv": "short"},
        {"pathOrInlineDv": "~" * 20},
        {"storageType": "i", "pathOrInlineDv": "00000"},
    ):
        with pytest.raises(accel.TableFormatError):
            VectorPlace.of({**given, **wrong})


def test_z85() -> None:
    assert decode_z85("HelloWorld") == bytes.fromhex("864FD26FB559F75B")
    for wrong in ("abcd", "#####", "ab cd"):
        with pytest.raises(accel.TableFormatError, match="Z85"):
            decode_z85(wrong)


def field(name: str, kind: Any, **metadata: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, "nullable": True, "metadata": metadata}


def schema(*fields: dict[str, Any]) -> str:
    return json.dumps({"type": "struct", "fields": fields})


def test_every_type_has_its_arrow_type() -> None:
    text = schema(
        field("a", "decimal(10,2)"),
        field("b", {"type": "array", "elementType": "byte", "containsNull": True}),
        field("c", {"type": "map", "keyType": "string", "valueType": "short", "valueContainsNull": True}),
        field("d", {"type": "struct", "fields": [field("e", "timestamp_ntz"), field("f", "void")]}),
        field("g", "variant"),
    )
    found = TableSchema.parse(text, [], "none")
    assert found.arrow == pa.schema(
        [
            ("a", pa.decimal128(10, 2)),
            ("b", pa.list_(pa.int8())),
            ("c", pa.map_(pa.string(), pa.int16())),
            ("d", pa.struct([("e", pa.timestamp("us")), ("f", pa.null())])),
            ("g", pa.struct([("metadata", pa.binary()), ("value", pa.binary())])),
        ]
    )
    assert set(found.leaves) == {("a",), ("d", "e"), ("d", "f")}


@pytest.mark.parametrize(
    ("text", "partition", "mode", "message"),
    [
        ("{", [], "none", "cannot be read"),
        ("[]", [], "none", "cannot be read"),
        (schema(field("a", "geometry(OGC:CRS84)")), [], "none", "geometry"),
        (schema(field("a", "decimal(99,2)")), [], "none", "decimal"),
        (schema(field("a", {"type": "union"})), [], "none", "'union'"),
        (schema(field("a", "long"), field("a", "long")), [], "none", "same name"),
        (schema(field("a", "long")), ["b"], "none", "not all in the schema"),
        (schema(field("a", "long")), [], "name", "no physical name"),
        (schema(field("a", "long", **{"delta.columnMapping.physicalName": "p"})), [], "id", "no id"),
        (schema(field("a", "long")), [], "other", "'other'"),
    ],
)
def test_a_schema_that_is_none_is_refused(text: str, partition: list[str], mode: str, message: str) -> None:
    with pytest.raises(accel.TableFormatError, match=message):
        TableSchema.parse(text, partition, mode)


def test_a_schema_of_a_thousand_levels_is_refused() -> None:
    kind: Any = "long"
    for _ in range(200):
        kind = {"type": "array", "elementType": kind, "containsNull": True}
    with pytest.raises(accel.TableFormatError, match="nested"):
        TableSchema.parse(schema(field("a", kind)), [], "none")


def test_what_a_reader_must_know_is_refused_by_name() -> None:
    def check(**given: Any) -> None:
        Protocol.of({"minReaderVersion": 3, "minWriterVersion": 7, **given}).check()

    check(readerFeatures=["deletionVectors", "columnMapping", "typeWidening", "v2Checkpoint", "timestampNtz"])
    for features, message in (
        (["futureThing"], "'futureThing'"),
        (["catalogManaged"], "managed by a catalog"),
    ):
        with pytest.raises(accel.TableFormatError, match=message):
            check(readerFeatures=features)
    with pytest.raises(accel.TableFormatError, match="managed by a catalog"):
        check(readerFeatures=[], writerFeatures=["catalogOwned-preview"])
    with pytest.raises(accel.TableFormatError, match="no reader features"):
        check()
    for wrong in (
        {"minReaderVersion": "3"},
        {"minReaderVersion": 4, "readerFeatures": []},
        {"readerFeatures": "x"},
    ):
        with pytest.raises(accel.TableFormatError):
            check(**wrong)


def test_metadata_of_other_files_is_refused() -> None:
    with pytest.raises(accel.TableFormatError, match="'orc'"):
        Metadata.of({"schemaString": schema(), "format": {"provider": "orc"}})
    with pytest.raises(accel.TableFormatError, match="no schema"):
        Metadata.of({"id": "x"})
