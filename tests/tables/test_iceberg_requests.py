"""What an Iceberg table costs in requests: exact ones, in waves."""

from __future__ import annotations

import io
import struct
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import accel
import accel.tables
from accel.ranges import ByteRange
from accel.testing import RecordingStore
from tests.tables.iceberg_writer import IcebergWriter, parquet_bytes

MANIFESTS, FILES, ROWS = 10, 5, 40


def long_bytes(value: int) -> bytes:
    return struct.pack("<q", value)


def made() -> tuple[str, RecordingStore]:
    """Fifty files of a sorted key, in ten manifests, which are partitioned by the hundreds of the key."""
    writer = IcebergWriter(
        [(1, "id", "long"), (2, "text", "string")],
        specs=[
            {
                "spec-id": 0,
                "fields": [{"source-id": 1, "field-id": 1000, "name": "t", "transform": "truncate[200]"}],
            }
        ],
    )
    for manifest in range(MANIFESTS):
        entries = []
        for file in range(FILES):
            first = (manifest * FILES + file) * ROWS
            ids = pa.array(range(first, first + ROWS), pa.int64())
            data = parquet_bytes(
                {"id": (1, ids), "text": (2, pa.array([f"t{i}" * 20 for i in range(ROWS)]))},
                write_page_index=True,
                compression="none",
            )
            entries.append(
                writer.file(
                    f"data/{manifest}-{file}.parquet",
                    data,
                    ROWS,
                    partition={"t": first // 200 * 200},
                    lower_bounds={1: long_bytes(first)},
                    upper_bounds={1: long_bytes(first + ROWS - 1)},
                    null_value_counts={1: 0},
                )
            )
        low = long_bytes(manifest * 200)
        writer.manifest(
            entries,
            partition=[(1000, "t", "long")],
            summaries=[
                {"contains_null": False, "contains_nan": None, "lower_bound": low, "upper_bound": low}
            ],
        )
    return writer.save(), RecordingStore(writer.store)


def test_one_file_by_bounds_costs_the_manifests_that_match_and_four_requests_in_five_waves() -> None:
    url, recording = made()
    cache = accel.Cache()
    table = accel.tables.iceberg(url)
    scan = accel.scan(table, "id = 777", store=recording, cache=cache, index=None)
    assert scan.to_table().column("id").to_pylist() == [777]
    paths = [call.path for call in recording.calls]
    assert paths[:3] == ["t/metadata/v1.metadata.json", "t/metadata/snap-7.avro", "t/metadata/m3.avro"]
    assert set(paths[3:]) == {"t/data/3-4.parquet"}
    assert recording.requests <= 5 and recording.waves <= 5
    facts = scan.metrics.table
    assert facts is not None
    assert (facts.files, facts.excluded_by_partition, facts.excluded_by_bounds) == (50, 45, 4)
    assert facts.log_requests == 3


def test_known_metadata_are_not_asked_for_again() -> None:
    url, recording = made()
    cache = accel.Cache()
    table = accel.tables.iceberg(url)
    accel.scan(table, "id = 777", store=recording, cache=cache).to_table()
    before = recording.requests
    assert accel.scan(table, "id = 778", store=recording, cache=cache).count_rows() == 1
    assert recording.requests - before <= 1  # the pages, where they are not cached
    before = recording.requests
    assert accel.scan(table, "id = 801", store=recording, cache=cache).count_rows() == 1
    new = [call.path for call in recording.calls[before:]]
    assert new[0] == "t/metadata/m4.avro" and set(new[1:]) == {"t/data/4-0.parquet"} and len(new) <= 3


def test_another_filter_asks_for_no_metadata_again() -> None:
    """Only the bounds of a filter's columns are kept, and the packed manifests for other filters."""
    url, recording = made()
    cache = accel.Cache()
    table = accel.tables.iceberg(url)
    assert accel.scan(table, "id < 2", store=recording, cache=cache).count_rows() == 2
    recording.calls.clear()
    other = accel.scan(table, "id < 2 AND text > 't'", store=recording, cache=cache)
    assert other.count_rows() == 2
    assert not [call for call in recording.calls if "/metadata/" in call.path]
    assert other.metrics.table is not None and other.metrics.table.excluded_by_bounds == 4
    for uncached in (None, accel.Cache(memory=1)):
        recording.calls.clear()
        assert accel.scan(table, "id < 2", store=recording, cache=uncached).count_rows() == 2
        paths = [call.path for call in recording.calls if "/metadata/" in call.path]
        assert len(paths) == len(set(paths)) == 3


def test_a_directory_costs_a_listing_beside_the_hint() -> None:
    url, recording = made()
    table = accel.tables.iceberg(url.partition("/metadata")[0])
    scan = accel.scan(table, "id = 777", store=recording, index=None)
    assert scan.to_table().num_rows == 1
    first = [call for call in recording.calls if call.wave == 1]
    assert sorted(call.path for call in first) == ["t/metadata/", "t/metadata/version-hint.text"]
    assert recording.waves <= 6


def test_a_manifest_is_read_with_its_known_length() -> None:
    url, recording = made()
    accel.scan(accel.tables.iceberg(url), "id = 777", store=recording).to_table()
    manifest = next(call for call in recording.calls if call.path == "t/metadata/m3.avro")
    assert manifest.want == ByteRange(0, len(recording.inner.objects["t/metadata/m3.avro"]))


def test_an_index_over_the_table_finds_a_key_that_no_bound_knows() -> None:
    url, recording = made()
    table = accel.tables.iceberg(url)
    accel.build_index(table, indexes={"text": "keys"}, to="indexes/t", store=recording.inner)
    cache = accel.Cache()
    text = "t17" * 20
    scan = accel.scan(table, accel.col("text") == text, index="indexes/t", store=recording, cache=cache)
    assert scan.to_table().column("id").to_pylist() == [at * ROWS + 17 for at in range(MANIFESTS * FILES)]
    before = recording.requests
    absent = accel.scan(table, "text = 'nowhere'", index="indexes/t", store=recording, cache=cache)
    assert absent.count_rows() == 0
    assert not [call for call in recording.calls[before:] if "/data/" in call.path]


PAGE = 10_000


def with_equality_deletes() -> tuple[str, RecordingStore]:
    """A file of two row groups, each of four pages a column, and an equality delete of some keys."""
    writer = IcebergWriter([(1, "id", "long"), (2, "key", "long")])
    data = parquet_bytes(
        {
            "id": (1, pa.array(range(8 * PAGE), pa.int64())),
            "key": (2, pa.array([i % 100 for i in range(8 * PAGE)], pa.int64())),
        },
        write_page_index=True,
        compression="none",
        use_dictionary=False,
        max_rows_per_page=PAGE,
        row_group_size=4 * PAGE,
    )
    writer.manifest([writer.file("data/a.parquet", data, 8 * PAGE)], sequence=1)
    keys = parquet_bytes({"key": (2, pa.array([0, 99, None], pa.int64()))})
    deletes = writer.file("data/e.parquet", keys, 3, content=2, equality_ids=[2])
    writer.manifest([deletes], content=1, sequence=2)
    return writer.save(), RecordingStore(writer.store)


def test_equality_deletes_read_the_key_columns_of_the_planned_rows_alone() -> None:
    url, recording = with_equality_deletes()
    table = accel.tables.iceberg(url)
    options = accel.Options(tail_hint=2048, max_gap_bytes=0)
    first = 5 * PAGE + 10

    def scan(**given: Any) -> accel.Scan:
        where = f"id >= {first} AND id < {first + 200}"
        given = {"cache": accel.Cache(), "options": options, "index": None, **given}
        return accel.scan(table, where, store=recording, **given)

    left = [i for i in range(first, first + 200) if i % 100 not in (0, 99)]
    assert scan(columns=["id"]).to_table()["id"].to_pylist() == left
    group = pq.read_metadata(io.BytesIO(recording.inner.objects["t/data/a.parquet"])).row_group(1)
    calls = [call for call in recording.calls if call.path == "t/data/a.parquet"]
    assert [call.wave for call in calls] == [4, 5, 6]  # the footer beside the deletes, then keys, then rows
    for call, column in zip(calls[1:], (1, 0), strict=True):
        chunk = group.column(column)
        page = chunk.total_compressed_size // 4
        start = chunk.data_page_offset + page
        assert call.want.length <= page + 64 and start - 64 <= call.want.start <= start + 64
    assert [call.wave for call in recording.calls if call.path == "t/data/e.parquet"] == [4]


def test_every_verb_takes_the_rows_off_whose_keys_are_deleted() -> None:
    url, recording = with_equality_deletes()
    table, store = accel.tables.iceberg(url), recording.inner
    left = [i for i in range(8 * PAGE) if i % 100 not in (0, 99)]
    scan = accel.scan(table, store=store)
    assert scan.count_rows() == len(left)
    assert scan.head(5)["id"].to_pylist() == left[:5]
    assert accel.rows(table, 5 * PAGE, 7, store=store)["id"].to_pylist() == left[5 * PAGE : 5 * PAGE + 7]
    found = accel.scan(table, "key >= 98", store=store)
    assert found.count_rows() == 8 * PAGE // 100
    ends = found.aggregate([("id", "min"), ("id", "max"), ([], "count_all")]).to_pylist()
    assert ends == [{"id_min": 98, "id_max": 8 * PAGE - 2, "count_all": 8 * PAGE // 100}]
    assert found.metrics.table is not None and found.metrics.table.deleted_rows == 8 * PAGE // 50
    assert accel.scan(table, "key = 99", store=store).count_rows() == 0
    top = accel.scan(table, store=store, order_by="id desc", limit=3)
    assert top.to_table()["id"].to_pylist() == left[:-4:-1]
    window = {url.replace("metadata/v1.metadata.json", "data/a.parquet"): {1: [(0, 2), (98, 103)]}}
    chosen = accel.scan(table, selection=window, store=store).to_table()["id"].to_pylist()
    assert chosen == [4 * PAGE + i for i in (1, 98, 101, 102)]
