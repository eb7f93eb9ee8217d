"""Metadata of Iceberg tables that are damaged, lie, or ask for what is not read: an error that names the file, and
never another row, a crash, or memory without bounds."""

from __future__ import annotations

import io
import json
import random
import struct
import threading
import time
import tracemalloc
import zlib
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from pyroaring import BitMap64

import accel
import accel.tables
from accel.errors import AccelError, ObjectNotFoundError, StoreError, TableFormatError
from accel.testing import DictStore
from tests.tables.iceberg_writer import (
    LIST_SCHEMA,
    IcebergWriter,
    avro_bytes,
    manifest_schema,
    parquet_bytes,
)
from tests.tables.stored_tables import stored_table

COLUMNS = [(1, "id", "long")]


def made(**changes: Any) -> IcebergWriter:
    writer = IcebergWriter(COLUMNS, changes=changes)
    body = parquet_bytes({"id": (1, pa.array([1, 2, 3], pa.int64()))})
    writer.manifest([writer.file("data/a.parquet", body, 3)])
    return writer


def refusal(writer: IcebergWriter, url: str | None = None, **given: Any) -> AccelError:
    table = accel.tables.iceberg(url or writer.save(), **given)
    with pytest.raises(AccelError) as caught:
        accel.scan(table, store=writer.store, cache=accel.Cache()).to_table()
    return caught.value


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"format-version": 4}, "version '4' is not supported"),
        ({"format-version": True}, "is not supported"),
        ({"schemas": []}, "KeyError"),
        (
            {
                "schemas": [
                    {"type": "struct", "schema-id": 0, "fields": [{"id": 1, "name": "a", "type": "colour"}]}
                ]
            },
            "'colour'",
        ),
        (
            {
                "schemas": [
                    {
                        "type": "struct",
                        "schema-id": 0,
                        "fields": [
                            {"id": 1, "name": "a", "type": "int"},
                            {"id": 1, "name": "b", "type": "int"},
                        ],
                    }
                ]
            },
            "have the id 1",
        ),
        ({"current-schema-id": 5}, "no schema '5'"),
        ({"current-snapshot-id": 99}, "no snapshot 99"),
        ({"snapshots": 3}, "no list"),
        ({"snapshots": [{"snapshot-id": 1 << 70, "timestamp-ms": 1}]}, "64 bits"),
        ({"location": None, "partition-specs": [{}]}, "no list of fields"),
    ],
)
def test_metadata_that_contradict_themselves_are_refused(changes: dict[str, Any], text: str) -> None:
    error = refusal(made(**changes))
    assert text in str(error)
    if "snapshot 99" not in text:
        assert "v1.metadata.json" in str(error)


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"[" * 200_000, b'{"format-version": 2}', b"\x1f\x8b\x08\x00cut", b"\xff\xfe\x00"],
)
def test_a_metadata_file_that_is_none_is_refused(content: bytes) -> None:
    writer = made()
    url = writer.save()
    writer.put("metadata/v1.metadata.json", content)
    error = refusal(writer, url)
    assert "v1.metadata.json" in str(error)


def test_a_packed_metadata_file_that_unpacks_without_end_is_refused() -> None:
    writer = made()
    machine = zlib.compressobj(9, zlib.DEFLATED, 31)
    packed = b"".join(machine.compress(bytes(1 << 24)) for _ in range(17)) + machine.flush()
    url = writer.put("metadata/v1.gz.metadata.json", packed)
    assert "unpack" in str(refusal(writer, url))


@pytest.mark.parametrize(
    "path",
    [
        "s3://other/t/data/a.parquet",
        "file:///etc/passwd",
        "/etc/passwd",
        "https://host/x.parquet",
        "s3://lake/t/../u/a.parquet",
        "a.parquet",
    ],
)
def test_a_table_names_files_of_its_own_store_only(path: str) -> None:
    """Without a store of the caller's, which all paths would lie in."""
    from accel.tables.formats.iceberg.paths import TablePaths

    paths = TablePaths.of("s3://lake/t/metadata/v1.metadata.json", location="s3://lake/t", in_store=False)
    with pytest.raises(TableFormatError):
        paths.resolve(path)
    with pytest.raises(TableFormatError):
        paths.resolve_all(pa.array(["s3://lake/t/data/b.parquet", path]))
    assert paths.resolve("s3a://lake/t/data/b.parquet") == "s3a://lake/t/data/b.parquet"
    wide = TablePaths.of(
        "s3://lake/t/metadata/v1.metadata.json",
        location="s3://lake/t",
        in_store=False,
        allowed=["s3://other"],
    )
    assert wide.resolve("s3://other/t/data/a.parquet") == "s3://other/t/data/a.parquet"


def test_a_table_that_was_copied_is_read_where_it_is_now() -> None:
    stored = stored_table("equality_v2")
    store = DictStore(
        {f"copies/{path.removeprefix('tmp/lake/db/')}": content for path, content in stored.objects.items()}
    )
    moved = accel.tables.iceberg("copies/equality_v2", allow_moved_paths=True)
    assert accel.scan(moved, store=store).count_rows() == len(stored.versions["now"]["rows"])
    with pytest.raises(accel.errors.ObjectNotFoundError):
        accel.scan(accel.tables.iceberg("copies/equality_v2"), store=store).to_table()


def test_files_that_are_not_read_are_refused_by_name() -> None:
    writer = IcebergWriter(COLUMNS)
    writer.manifest([writer.file("data/a.orc", b"x", 3, file_format="ORC")])
    assert "ORC" in str(refusal(writer))
    writer = IcebergWriter(COLUMNS)
    writer.manifest([writer.file("data/a.parquet", b"x", 3, key_metadata=b"k")])
    assert "encrypted" in str(refusal(writer))
    writer = made()
    writer.manifests[0]["key_metadata"] = b"k"
    assert "encrypted" in str(refusal(writer))


def test_lengths_of_manifests_that_lie_are_refused() -> None:
    for wrong in (-1, 1 << 62, 10, 1 << 40):
        writer = made()
        writer.manifests[0]["manifest_length"] = wrong
        refusal(writer)
    writer = made()
    writer.manifests[0]["manifest_length"] += 1000
    refusal(writer)


def container(schema: Any, blocks: list[tuple[int, bytes]], codec: str = "null") -> bytes:
    """An Avro file of blocks as they are given: a count, and packed bytes."""

    def long(value: int) -> bytes:
        value = (value << 1) ^ (value >> 63)
        out = b""
        while value >= 0x80:
            out, value = out + bytes([value & 0x7F | 0x80]), value >> 7
        return out + bytes([value])

    def text(value: bytes) -> bytes:
        return long(len(value)) + value

    head = b"Obj\x01" + long(2) + text(b"avro.schema") + text(json.dumps(schema).encode())
    head += text(b"avro.codec") + text(codec.encode()) + long(0) + b"S" * 16
    return head + b"".join(long(count) + long(len(body)) + body + b"S" * 16 for count, body in blocks)


def raw_deflate(data: bytes) -> bytes:
    machine = zlib.compressobj(9, zlib.DEFLATED, -15)
    return machine.compress(data) + machine.flush()


EMPTY_ITEMS = {
    "type": "record",
    "name": "manifest_entry",
    "fields": [
        {"name": "status", "type": "int", "field-id": 0},
        {"name": "bomb", "type": {"type": "array", "items": "null"}, "field-id": 999},
    ],
}
BOMBS = {
    "records of no bytes": container({"type": "record", "name": "r", "fields": []}, [(1 << 60, b"")]),
    "more records than bytes": container(manifest_schema([]), [(1 << 60, b"\x02" * 10)]),
    "items of no bytes": container(EMPTY_ITEMS, [(1, b"\x00" + b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f\x00")]),
    "a block that unpacks without end": container(
        manifest_schema([]), [(1, raw_deflate(bytes(1 << 29)))], "deflate"
    ),
    "a block beyond the end": container(manifest_schema([]), [])[:-1]
    + b"S\x02\xfe\xff\xff\xff\xff\xff\xff\xff\x7f",
    "a codec that there is not": container(manifest_schema([]), [(1, b"xx")], "lzma"),
    "a text of many bytes": container(
        manifest_schema([]), [(1, b"\x02\x00\x00\x00" + b"\xfe\xff\xff\xff\xff\x7f" * 3)]
    ),
    "a schema that is nested without end": container(
        json.loads('{"type":"array","items":' * 100 + '"int"' + "}" * 100), [(1, b"\x00")]
    ),
    "no Avro": b"PAR1" * 50,
    "a schema that names itself": container(
        {"type": "record", "name": "r", "fields": [{"name": "x", "type": "r"}]}, [(1, b"\x00")]
    ),
}


@pytest.mark.parametrize("name", BOMBS)
def test_avro_bombs_are_refused_in_bounded_memory(name: str) -> None:
    writer = IcebergWriter(COLUMNS)
    writer.manifest([], data=BOMBS[name])
    began = time.monotonic()
    tracemalloc.start()
    error = refusal(writer)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert "m0.avro" in str(error)
    assert peak < 1 << 30 and time.monotonic() - began < 20


def test_flipped_and_cut_metadata_give_rows_or_an_error_of_accel() -> None:
    """Each metadata object of a table with deletes, damaged at random: no crash, and no other error."""
    stored = stored_table("evolving_v3")
    where = "id BETWEEN 40 AND 60"
    table = accel.tables.iceberg(f"/{stored.directory}")
    fields = accel.scan(table, store=DictStore(stored.objects)).schema
    rng = random.Random(42)
    metadata = sorted(
        path for path in stored.objects if path.endswith((".avro", ".puffin", ".metadata.json"))
    )
    outcomes = {"rows": 0, "error": 0}
    for _ in range(30):
        path = rng.choice(metadata)
        content = bytearray(stored.objects[path])
        if rng.random() < 0.3:
            content = content[: rng.randrange(len(content))]
        else:
            for _ in range(rng.choice([1, 1, 4])):
                content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
        store = DictStore({**stored.objects, path: bytes(content)})
        try:
            accel.scan(table, where, store=store, cache=accel.Cache()).to_table()
            outcomes["rows"] += 1
        except AccelError:
            outcomes["error"] += 1
    assert fields is not None and outcomes["error"] > 5


def with_vector(body: bytes, **facts: Any) -> IcebergWriter:
    writer = made()
    puffin = b"PFA1" + body
    given = {
        "content": 1,
        "file_format": "PUFFIN",
        "referenced_data_file": "s3://lake/t/data/a.parquet",
        "content_offset": 4,
        "content_size_in_bytes": len(body),
        **facts,
    }
    rows = given.pop("rows", 1)
    writer.manifest([writer.file("data/v.puffin", puffin, rows, **given)], content=1, sequence=5)
    return writer


def blob(rows: Any, magic: bytes = b"\xd1\xd3\x39\x64") -> bytes:
    body = magic + (rows if isinstance(rows, bytes) else BitMap64(rows).serialize())
    return struct.pack(">I", len(body)) + body + struct.pack(">I", zlib.crc32(body))


GOOD = blob([1])
VECTORS: dict[str, tuple[bytes, dict[str, Any]]] = {
    "a wrong length": (b"\x00\x00\x00\x09" + GOOD[4:], {}),
    "a wrong magic": (blob([1], b"\xd1\xd3\x39\x65"), {}),
    "a wrong checksum": (GOOD[:-1] + bytes([GOOD[-1] ^ 1]), {}),
    "a wrong cardinality": (GOOD, {"rows": 2}),
    "a row beyond the file": (blob([7]), {}),
    "more rows than the file": (blob(range(9)), {"rows": 9}),
    "a bitmap that is cut off": (blob(BitMap64([1]).serialize()[:-2]), {}),
    "bitmaps that are not there": (blob(struct.pack("<Q", 1 << 50) + bytes(8)), {}),
    "no place": (GOOD, {"content_offset": None}),
    "a place beyond the file": (GOOD, {"content_offset": 1000}),
    "a place before the file": (GOOD, {"content_offset": -4}),
    "gigabytes": (GOOD, {"content_size_in_bytes": 1 << 40}),
}


@pytest.mark.parametrize("name", VECTORS)
def test_vectors_that_are_damaged_or_lie_are_refused(name: str) -> None:
    body, facts = VECTORS[name]
    refusal(with_vector(body, **facts))


def test_a_good_vector_is_read() -> None:
    writer = with_vector(GOOD)
    assert accel.scan(accel.tables.iceberg(writer.save()), store=writer.store).to_table()[
        "id"
    ].to_pylist() == [1, 3]


@pytest.mark.parametrize("codec", ["null", "deflate", "zstandard", "snappy"])
def test_manifests_of_every_codec_are_read(codec: str) -> None:
    writer = IcebergWriter(COLUMNS)
    body = parquet_bytes({"id": (1, pa.array([1, 2, 3], pa.int64()))})
    entries = [writer.file("data/a.parquet", body, 3)]
    if codec == "snappy":
        import cramjam

        plain = io.BytesIO()
        fastavro.schemaless_writer(plain, fastavro.parse_schema(manifest_schema([])), entries[0])
        packed = bytes(cramjam.snappy.compress_raw(plain.getvalue()))
        checksum = struct.pack(">I", zlib.crc32(plain.getvalue()))
        writer.manifest([], data=container(manifest_schema([]), [(1, packed + checksum)], "snappy"))
    elif codec == "zstandard":
        plain = io.BytesIO()
        fastavro.schemaless_writer(plain, fastavro.parse_schema(manifest_schema([])), entries[0])
        packed = pa.compress(plain.getvalue(), "zstd", asbytes=True)
        writer.manifest([], data=container(manifest_schema([]), [(1, packed)], "zstandard"))
    else:
        writer.manifest([], data=avro_bytes(manifest_schema([]), entries, codec))
    assert accel.scan(accel.tables.iceberg(writer.save()), store=writer.store).count_rows() == 3


def test_bounds_of_the_wrong_length_rule_nothing_out() -> None:
    for bound in (b"", b"x", b"\x00" * 3, b"\xff" * 9):
        writer = IcebergWriter(COLUMNS)
        body = parquet_bytes({"id": (1, pa.array([1, 2, 3], pa.int64()))})
        facts = {"lower_bounds": {1: bound}, "upper_bounds": {1: bound}, "null_value_counts": {1: -1}}
        writer.manifest([writer.file("data/a.parquet", body, 3, **facts)])
        table = accel.tables.iceberg(writer.save())
        assert accel.scan(table, "id = 2", store=writer.store).count_rows() == 1
        assert accel.scan(table, "id IS NULL", store=writer.store).count_rows() == 0


def test_a_list_of_manifests_that_is_damaged_names_itself() -> None:
    writer = made()
    url = writer.save()
    writer.put("metadata/snap-7.avro", avro_bytes(LIST_SCHEMA, writer.manifests)[:-30])
    assert "snap-7.avro" in str(refusal(writer, url))


def test_positions_beyond_the_file_and_below_it_are_refused() -> None:
    for row in (3, -1, 1 << 62):
        writer = made()
        rows = parquet_bytes(
            {
                "file_path": (2147483546, pa.array(["s3://lake/t/data/a.parquet"])),
                "pos": (2147483545, pa.array([row], pa.int64())),
            }
        )
        writer.manifest([writer.file("data/d.parquet", rows, 1, content=1)], content=1, sequence=2)
        assert "a.parquet" in str(refusal(writer))


def test_columns_of_a_file_that_share_a_field_id_are_refused() -> None:
    writer = IcebergWriter(COLUMNS)
    ids = pa.array([1, 2, 3], pa.int64())
    body = parquet_bytes({"id": (1, ids), "other": (1, ids)})
    writer.manifest([writer.file("data/a.parquet", body, 3)])
    assert "'other'" in str(refusal(writer))


def test_bounds_that_contradict_themselves_rule_nothing_out() -> None:
    def long(value: int) -> bytes:
        return struct.pack("<q", value)

    for low, high, nulls in ((3, 1, 0), (1, 3, 7), (1, 3, -1)):
        writer = IcebergWriter(COLUMNS)
        body = parquet_bytes({"id": (1, pa.array([1, 2, 3], pa.int64()))})
        facts = {"lower_bounds": {1: long(low)}, "upper_bounds": {1: long(high)}}
        writer.manifest([writer.file("data/a.parquet", body, 3, **facts, null_value_counts={1: nulls})])
        table = accel.tables.iceberg(writer.save())
        for where in ("id = 2", "id >= 3", "id <= 1", "id IS NOT NULL"):
            assert accel.scan(table, where, store=writer.store).count_rows() >= 1, (low, high, nulls, where)
        assert accel.scan(table, "id IS NULL", store=writer.store).count_rows() == 0


def test_a_metadata_file_of_a_hundred_megabytes_is_read_and_a_larger_one_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from accel.tables.formats.iceberg import table as module

    writer = made(properties={"comment": "x" * 100_000_000})
    url = writer.save()
    table = accel.tables.iceberg(url)
    assert accel.scan(table, store=writer.store, cache=accel.Cache()).count_rows() == 3
    monkeypatch.setattr(module, "MOST_METADATA_BYTES", 1_000_000)
    assert "more than metadata may be" in str(refusal(writer, url))


def test_a_table_on_this_machine_reads_from_no_other_host_and_shows_no_credential(tmp_path: Path) -> None:
    """Whoever writes to one table would have the reader's machine ask any other."""
    for path in (
        "https://user:TOP-SECRET@127.0.0.1:9/a.parquet",
        "s3://other/a.parquet?X-Amz-Signature=TOP-SECRET",
        f"file://{tmp_path}/t/../../etc/passwd",
    ):
        writer = IcebergWriter(COLUMNS, root=f"file://{tmp_path}/t")
        entry = writer.file("data/a.parquet", b"", 3)
        entry["data_file"]["file_path"] = path
        writer.manifest([entry])
        writer.save()
        for name, content in writer.store.objects.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_bytes(content)
        with pytest.raises((TableFormatError, StoreError)) as caught:
            accel.scan(accel.tables.iceberg(str(tmp_path / "t")), cache=accel.Cache()).to_table()
        assert not isinstance(caught.value, ObjectNotFoundError) and "TOP-SECRET" not in str(caught.value)


def test_a_catalog_that_does_not_answer_is_not_waited_for_without_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from accel.tables.formats.iceberg import table as module

    answer = threading.Event()

    class Slow:
        def load_table(self, name: str) -> None:
            answer.wait(60)

    monkeypatch.setattr(module, "CATALOG_SECONDS", 0.2)
    try:
        with pytest.raises(accel.errors.StoreError, match=r"catalog did not answer in 0\.2 seconds"):
            accel.scan(accel.tables.iceberg("db.t", catalog=Slow())).to_table()
    finally:
        answer.set()
