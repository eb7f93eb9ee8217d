"""The head of a catalog: what is written comes back, and nothing that is damaged is read."""

from __future__ import annotations

import json
import struct
import tracemalloc
from typing import Any

import pyarrow as pa
import pytest
import xxhash
from pyroaring import BitMap

import accel
from accel.catalog.head import (
    FORMAT_VERSION,
    HEAD_SCHEMA,
    CatalogHead,
    Retired,
    Segment,
    SegmentObject,
)
from accel.tables.partition_paths import SpelledColumn

NAME = "files-20260102T030405Z-0123456789abcdef.parquet"
OTHER = "bounds-20260102T030405Z-fedcba9876543210.parquet"


def part(name: str, rows: int, *, content: bytes | None = b"PAR1 and so on") -> SegmentObject:
    return SegmentObject(name=name, size=14, etag='"e"', num_rows=rows, tail=b"tail", content=content)


def segment(
    id: str,
    num_files: int,
    objects: dict[str, SegmentObject],
    *,
    rows: dict[str, int] | None = None,
    **more: Any,
) -> Segment:
    num_rows = {table: one.num_rows for table, one in objects.items()} | (rows or {})
    return Segment(id=id, num_files=num_files, objects=objects, num_rows=num_rows, **more)


def head(**changes: Any) -> CatalogHead:
    segments = (
        segment(
            "one",
            3,
            {"files": part(NAME, 3), "bounds": part(OTHER, 40, content=None)},
            dropped=frozenset({0, 2}),
            spelled={"k": SpelledColumn(pa.date32(), "2024-01-01", None, True)},
        ),
        segment("two", 1, {"files": part(NAME.replace("0", "7"), 1)}),
    )
    retired = (Retired(OTHER.replace("b", "c").replace("counds", "bounds"), 12.5),)
    given: dict[str, Any] = {
        "base": "s3://bucket/a b/ü/",
        "generation": 7,
        "columns": ("a", 'b."c.d"'),
        "segments": segments,
        "retired": retired,
    }
    return CatalogHead(**(given | changes))


def shown(one: CatalogHead) -> Any:
    """All that a head says."""
    segments = [
        (
            segment.id,
            segment.num_files,
            frozenset(segment.dropped),
            segment.num_rows,
            segment.spelled,
            sorted(
                (t, o.name, o.size, o.etag, o.num_rows, o.tail, o.content) for t, o in segment.objects.items()
            ),
        )
        for segment in one.segments
    ]
    return one.base, one.generation, one.columns, dict(one.indexes), segments, one.retired


@pytest.mark.parametrize(
    "changes",
    [{}, {"columns": None}, {"columns": ()}, {"segments": ()}, {"retired": ()}, {"base": "."}],
    ids=str,
)
def test_what_is_written_comes_back(changes: dict[str, Any]) -> None:
    made = head(**changes)
    assert shown(CatalogHead.decode(made.encode())) == shown(made)


def test_it_counts_what_is_not_dropped() -> None:
    assert head().num_files == 2
    assert head().names >= {NAME, OTHER}


def test_every_changed_byte_is_found() -> None:
    data = head().encode()
    for at in range(len(data)):
        for flip in (0x01, 0xFF):
            damaged = bytearray(data)
            damaged[at] ^= flip
            with pytest.raises(accel.IndexFormatError):
                CatalogHead.decode(bytes(damaged))


def test_every_missing_end_and_whatever_follows_is_found() -> None:
    data = head().encode()
    for length in range(len(data)):
        with pytest.raises(accel.IndexFormatError):
            CatalogHead.decode(data[:length])
    for more in (b"\0", data):
        with pytest.raises(accel.IndexFormatError):
            CatalogHead.decode(data + more)


def test_another_version_says_what_to_do() -> None:
    data = bytearray(head().encode())
    data[8:12] = struct.pack("<I", 99)
    with pytest.raises(
        accel.IndexFormatError, match=r"format version 99(.|\n)*build the index again"
    ) as caught:
        CatalogHead.decode(bytes(data))
    assert "update accel" in str(caught.value)


@pytest.mark.parametrize(
    "name",
    [
        "../x",
        "../files-20260102T030405Z-0123456789abcdef.parquet",
        "/etc/passwd",
        "head",
        "",
        "files-x/../../y-0123456789abcdef.parquet",
        NAME + "\n",
        NAME + "/..",
        "..\\" + NAME,
    ],
)
def test_names_outside_the_directory_are_refused(name: str) -> None:
    one = segment("one", 3, {"files": part(name, 3)})
    with pytest.raises(accel.IndexFormatError, match="no segment's"):
        CatalogHead.decode(head(segments=(one,)).encode())
    with pytest.raises(accel.IndexFormatError, match="no segment's"):
        CatalogHead.decode(head(retired=(Retired(name, 0.0),)).encode())


def sealed(described: object, batch: pa.RecordBatch | None = None) -> bytes:
    """A head whose checksum is right, with a description of one's own."""
    schema = HEAD_SCHEMA if batch is None else batch.schema
    text = described if isinstance(described, bytes) else json.dumps(described).encode()
    schema = schema.with_metadata({b"accel.catalog": text})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        if batch is not None:
            writer.write_batch(batch.replace_schema_metadata(schema.metadata))
    payload = sink.getvalue().to_pybytes()
    return struct.pack("<8sI16s", b"ACCELCAT", FORMAT_VERSION, xxhash.xxh3_128_digest(payload)) + payload


PLAIN = {
    "base": ".",
    "generation": 0,
    "columns": None,
    "indexes": {},
    "complete": True,
    "segments": [],
    "retired": [],
}
SEGMENT = {"id": "one", "files": 1, "dropped": None}


def test_a_sealed_head_is_read() -> None:
    assert CatalogHead.decode(sealed(PLAIN)).base == "."


@pytest.mark.parametrize(
    "described",
    [
        b"",
        b"{",
        b"\xff",
        b"null",
        b"[]",
        {},
        {**PLAIN, "generation": "x"},
        {**PLAIN, "generation": None},
        {**PLAIN, "columns": 5},
        {**PLAIN, "indexes": 5},
        {**PLAIN, "segments": [SEGMENT]},
        {**PLAIN, "segments": [{}]},
        {**PLAIN, "segments": 3},
        {**PLAIN, "segments": [{**SEGMENT, "dropped": "zz"}]},
        {**PLAIN, "segments": [{**SEGMENT, "dropped": "ff" * 40}]},
        {**PLAIN, "retired": [NAME]},
        {**PLAIN, "retired": [[NAME, "x"]]},
        {**PLAIN, "retired": [[3, 1.0]]},
        b"[" * 100_000,
    ],
    ids=lambda one: repr(one)[:60],
)
def test_a_sealed_head_that_makes_no_sense_is_refused(described: object) -> None:
    with pytest.raises(accel.IndexFormatError):
        CatalogHead.decode(sealed(described))


def test_a_head_that_contradicts_itself_is_refused() -> None:
    for one in (
        segment("one", 2, {"files": part(NAME, 3)}),
        segment("one", 3, {"files": part(NAME, 3)}, dropped=frozenset({3})),
        segment("one", 3, {"bounds": part(OTHER, 3)}),
        segment("one", 3, {"files": part(NAME, 3), "bounds": part(OTHER, 5)}, rows={"bounds": 6}),
        segment("one", 3, {"files": part(NAME, 3)}, rows={"keys k": 7}),
    ):
        with pytest.raises(accel.IndexFormatError):
            CatalogHead.decode(head(segments=(one,)).encode())


@pytest.mark.parametrize("files", [10**12, 2**31, 0, -1, 3.0, True, "3", None])
def test_a_number_of_files_that_no_segment_has_is_refused(files: object) -> None:
    described = {**PLAIN, "segments": [{**SEGMENT, "files": files, "rows": {"files": files}}]}
    with pytest.raises(accel.IndexFormatError):
        CatalogHead.decode(sealed(described))


def test_few_bytes_that_name_many_files_stay_few() -> None:
    count = 500_000_000
    every = BitMap()
    every.add_range(0, count - 1)
    every.run_optimize()
    one = segment("one", count, {"files": part(NAME, count)}, dropped=every)
    tracemalloc.start()
    decoded = CatalogHead.decode(head(segments=(one,)).encode()).segments[0]
    assert (decoded.num_live, decoded.first_live) == (1, count - 1)
    assert tracemalloc.get_traced_memory()[1] < 10_000_000
    tracemalloc.stop()
    with pytest.raises(accel.IndexFormatError, match="no broken|members that are not|contradicts"):
        CatalogHead.decode(
            head(segments=(segment("one", 9, {"files": part(NAME, 9)}, dropped=every),)).encode()
        )


def test_other_columns_are_refused() -> None:
    batch = pa.RecordBatch.from_arrays([pa.array([1])], names=["x"])
    with pytest.raises(accel.IndexFormatError, match="other columns"):
        CatalogHead.decode(sealed(PLAIN, batch))


def test_a_head_whose_buffers_claim_any_length_is_refused() -> None:
    batch = pa.RecordBatch.from_arrays(
        [pa.array(["x" * 100] * 50_000, HEAD_SCHEMA.field(0).type)]
        + [pa.nulls(50_000, column.type) for column in list(HEAD_SCHEMA)[1:]],
        schema=HEAD_SCHEMA,
    )
    schema = HEAD_SCHEMA.with_metadata({b"accel.catalog": json.dumps(PLAIN).encode()})
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_stream(sink, schema, options=options) as writer:
        writer.write_batch(batch)
    payload = sink.getvalue().to_pybytes()
    data = struct.pack("<8sI16s", b"ACCELCAT", FORMAT_VERSION, xxhash.xxh3_128_digest(payload)) + payload
    assert len(data) < batch.nbytes // 10
    before = pa.total_allocated_bytes()
    with pytest.raises(accel.IndexFormatError, match="compressed in a way that accel does not write"):
        CatalogHead.decode(data)
    assert pa.total_allocated_bytes() - before < 1_000_000


def test_whatever_else_a_stream_of_arrow_may_be_is_refused() -> None:
    def decode(payload: bytes) -> CatalogHead:
        return CatalogHead.decode(
            struct.pack("<8sI16s", b"ACCELCAT", FORMAT_VERSION, xxhash.xxh3_128_digest(payload)) + payload
        )

    whole = sealed(PLAIN)[28:]
    assert decode(whole).base == "."
    for payload in (b"", whole[:-20], whole[8:], b"\xff\xff\xff\xff" + b"\0" * 4, b"\xff" * 40):
        with pytest.raises(accel.IndexFormatError):
            decode(payload)
