"""Delta tables: what is asked for, what is cached, versions, and the ways in."""

from __future__ import annotations

import datetime
import json
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest

import accel
from accel.cli.main import main
from accel.testing import RecordingStore
from tests.support.delta_table import VECTORS, DeltaTableInMemory
from tests.support.s3 import S3Admin

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])


def rows(first: int, count: int = 10) -> pa.Table:
    ids = list(range(first, first + count))
    return pa.table({"id": ids, "name": [f"n{one:04d}" for one in ids]}, SCHEMA)


def table_of(commits: int, *, checkpoint: int | None = None) -> DeltaTableInMemory:
    """Return a table of a file for each commit."""
    table = DeltaTableInMemory(SCHEMA)
    adds = []
    for at in range(commits):
        adds.append(table.add(f"part-{at}.parquet", rows(at * 10)))
        table.commit(adds[-1])
        if table.version == checkpoint:
            table.checkpoint(adds)
    return table


def asked(store: RecordingStore) -> list[str]:
    return [f"{call.path.removeprefix('t/').removeprefix('_delta_log/').lstrip('0')}" for call in store.calls]


# -- requests ----------------------------------------------------------------------------------


def test_a_cold_lookup_takes_three_waves() -> None:
    """LIST, the hint and the head of an index; the checkpoint and the commits after it; the file."""
    store = RecordingStore(table_of(20, checkpoint=17).store)
    cache = accel.Cache()
    scan = accel.scan(accel.tables.delta("t"), "id = 33", store=store, cache=cache)
    assert scan.to_table().to_pydict() == {"id": [33], "name": ["n0033"]}
    assert store.waves == 3
    assert sorted(asked(store)) == sorted(
        [
            "_accel/head",
            "_delta_log",
            "_last_checkpoint",
            "17.checkpoint.parquet",
            "18.json",
            "19.json",
            "20.json",
            "part-3.parquet",
        ]
    )
    facts = scan.metrics.table
    assert facts is not None
    assert (facts.format, facts.version, facts.files, facts.excluded_by_bounds) == ("Delta", 20, 20, 19)
    assert facts.log_requests == 6


def test_a_known_table_takes_no_request_within_max_age_and_one_listing_after() -> None:
    table = table_of(6)
    store = RecordingStore(table.store)
    cache = accel.Cache(data=0)
    accel.scan(accel.tables.delta("t"), "id = 33", store=store, cache=cache).to_table()
    store.clear()
    assert accel.scan(accel.tables.delta("t"), "id = 44", store=store, cache=cache).to_table().num_rows == 1
    assert asked(store) == ["part-4.parquet"]

    old = accel.Cache(max_age=0, data=0)
    accel.scan(accel.tables.delta("t"), "id = 33", store=store, cache=old).to_table()
    store.clear()
    assert accel.scan(accel.tables.delta("t"), "id = 44", store=store, cache=old).to_table().num_rows == 1
    assert asked(store) == ["_delta_log", "part-4.parquet"]

    table.commit(table.add("new.parquet", rows(1000)))
    store.clear()
    assert accel.scan(accel.tables.delta("t"), "id = 1003", store=store, cache=old).to_table().num_rows == 1
    assert asked(store) == ["_delta_log", "7.json", "new.parquet"]


def test_another_filter_needs_no_more_of_a_checkpoint_with_statistics_as_text() -> None:
    store = RecordingStore(table_of(20, checkpoint=20).store)
    cache = accel.Cache()
    accel.plan(accel.tables.delta("t"), "id = 33", store=store, cache=cache)
    store.clear()
    plan = accel.plan(accel.tables.delta("t"), "name = 'n0140'", store=store, cache=cache)
    assert len(plan.tasks) == 1
    assert asked(store) == ["part-14.parquet"]


def test_rows_are_counted_by_the_log() -> None:
    table = table_of(9)
    store = RecordingStore(table.store)
    assert accel.scan(accel.tables.delta("t"), store=store, cache=accel.Cache()).count_rows() == 90
    assert not [path for path in asked(store) if path.endswith(".parquet")]


def test_a_table_that_was_made_anew_is_read_anew() -> None:
    table = table_of(3)
    cache = accel.Cache(max_age=0)
    assert accel.scan(accel.tables.delta("t"), store=table.store, cache=cache).count_rows() == 30
    for path in list(table.store.objects):
        table.store.delete(path)
    other = table_of(3)
    other.commit(other.add("more.parquet", rows(500)))
    other.version = 2  # the commit of version 3 says something else than before
    other.commit(other.add("part-9.parquet", rows(900, 5)))
    for path, data in other.store.objects.items():
        if not path.endswith("4.json"):
            table.store.put(path, data)
    assert accel.scan(accel.tables.delta("t"), store=table.store, cache=cache).count_rows() == 25


# -- versions ----------------------------------------------------------------------------------


def test_versions_and_moments() -> None:
    table = table_of(4)
    for version in range(5):
        table.store.modified[f"t/_delta_log/{version:020d}.json"] = 1_700_000_000 + version * 60
    # A clock that goes back: the version counts as a millisecond younger than the one before.
    table.store.modified["t/_delta_log/00000000000000000003.json"] = 1_600_000_000

    def count(**given: Any) -> int:
        return accel.scan(accel.tables.delta("t", **given), store=table.store).count_rows()

    assert [count(version=version) for version in range(5)] == [0, 10, 20, 30, 40]
    start = datetime.datetime.fromtimestamp(1_700_000_000, datetime.UTC)
    minute = datetime.timedelta(minutes=1)
    assert count(timestamp=start) == 0
    assert count(timestamp=start + 1.5 * minute) == 10
    assert count(timestamp=start + 2 * minute) == 20
    assert count(timestamp=(start + 3 * minute).isoformat()) == 30
    assert count(timestamp=start + 100 * minute) == 40
    assert count(timestamp=(start + 1.5 * minute).replace(tzinfo=None)) == 10
    with pytest.raises(accel.TableFormatError, match="before all versions"):
        count(timestamp=start - minute)
    with pytest.raises(accel.TableFormatError, match="no version 9: the newest one is 4"):
        count(version=9)
    for wrong in ({"version": -1}, {"timestamp": "yesterday"}, {"version": 1, "timestamp": start}):
        with pytest.raises(ValueError, match="version|timestamp"):
            accel.tables.delta("t", **wrong)
    with pytest.raises(TypeError, match="version"):
        accel.tables.delta("t", version="1")  # type: ignore[arg-type]


def test_a_store_without_times_says_so() -> None:
    with pytest.raises(accel.TableFormatError, match="does not tell when"):
        accel.scan(accel.tables.delta("t", timestamp="2024-01-01"), store=table_of(2).store).count_rows()


def test_times_within_commits_count_from_their_version_on() -> None:
    table = DeltaTableInMemory(SCHEMA)
    table.commit(table.add("a.parquet", rows(0)))
    changed = {
        **table.metadata,
        "configuration": {
            "delta.enableInCommitTimestamps": "true",
            "delta.inCommitTimestampEnablementVersion": "2",
            "delta.inCommitTimestampEnablementTimestamp": "5000",
        },
    }
    table.commit({"commitInfo": {"inCommitTimestamp": 5000}}, {"metaData": changed})
    table.commit({"commitInfo": {"inCommitTimestamp": 7000}}, table.add("b.parquet", rows(10)))
    for version, seconds in enumerate((1, 2, 900, 900)):
        table.store.modified[f"t/_delta_log/{version:020d}.json"] = seconds

    def count(milliseconds: int) -> int:
        moment = datetime.datetime.fromtimestamp(milliseconds / 1000, datetime.UTC)
        return accel.scan(accel.tables.delta("t", timestamp=moment), store=table.store).count_rows()

    assert [count(at) for at in (1000, 2000, 4999, 5000, 6999, 7000)] == [0, 10, 10, 10, 10, 20]
    with pytest.raises(accel.TableFormatError, match="before all versions"):
        count(500)


# -- deleted rows ------------------------------------------------------------------------------


def vector(table: DeltaTableInMemory, path: str, gone: dict[str, list[int]]) -> dict[str, dict[str, Any]]:
    """Write vectors into one file, and return what describes each."""
    import struct
    import zlib

    from pyroaring import BitMap64

    out: dict[str, dict[str, Any]] = {}
    data = bytearray(b"\1")
    for name, numbers in gone.items():
        blob = struct.pack("<I", 1681511377) + BitMap64(numbers).serialize()
        out[name] = {
            "storageType": "p",
            "pathOrInlineDv": path,
            "offset": len(data),
            "sizeInBytes": len(blob),
            "cardinality": len(numbers),
        }
        data += struct.pack(">I", len(blob)) + blob + struct.pack(">I", zlib.crc32(blob))
    table.store.put(path, bytes(data))
    return out


def test_vectors_are_loaded_of_planned_files_only_and_together() -> None:
    table = DeltaTableInMemory(SCHEMA, protocol=VECTORS)
    names = [f"part-{at}.parquet" for at in range(30)]
    described = vector(table, "t/deletes.bin", {name: [at % 10, 9] for at, name in enumerate(names)})
    table.commit(
        *(
            table.add(
                name, rows(at * 10), deletionVector={**described[name], "cardinality": len({at % 10, 9})}
            )
            for at, name in enumerate(names)
        )
    )
    store = RecordingStore(table.store)
    cache = accel.Cache()
    one = accel.scan(accel.tables.delta("t"), "id between 40 and 49", store=store, cache=cache)
    assert one.to_table()["id"].to_pylist() == [40, 41, 42, 43, 45, 46, 47, 48]
    vectors = [call for call in store.calls if call.path.endswith(".bin")]
    assert len(vectors) == 1
    assert vectors[0].received < 60
    assert one.metrics.table is not None
    assert one.metrics.table.deleted_rows == 2

    store.clear()
    scan = accel.scan(accel.tables.delta("t"), store=store, cache=accel.Cache())
    kept = [at * 10 + row for at in range(30) for row in range(9) if row != at % 10]
    assert scan.to_table()["id"].to_pylist() == kept
    assert len([call for call in store.calls if call.path.endswith(".bin")]) <= 5
    assert accel.scan(accel.tables.delta("t"), store=table.store).count_rows() == len(kept)
    assert accel.distinct(accel.tables.delta("t"), "id", store=table.store).to_pylist() == kept


def test_a_file_gets_another_vector() -> None:
    table = DeltaTableInMemory(SCHEMA, protocol=VECTORS)
    add = table.add("a.parquet", rows(0))
    table.commit(add)
    first = vector(table, "t/1.bin", {"a": [1]})["a"]
    second = vector(table, "t/2.bin", {"a": [1, 2]})["a"]
    table.commit({"remove": {"path": "a.parquet"}}, {"add": {**add["add"], "deletionVector": first}})
    table.commit(
        {"remove": {"path": "a.parquet", "deletionVector": first}},
        {"add": {**add["add"], "deletionVector": second}},
    )
    counts = [
        accel.scan(accel.tables.delta("t", version=at), store=table.store).count_rows() for at in range(4)
    ]
    assert counts == [0, 10, 9, 8]
    assert accel.scan(accel.tables.delta("t"), store=table.store).to_table()["id"].to_pylist() == [
        0,
        *range(3, 10),
    ]


# -- the ways in -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A table that deltalake has written and rewritten, with files that no longer count."""
    at = str(tmp_path_factory.mktemp("delta") / "events")
    for part in range(4):
        table = pa.table({"id": range(part * 10, part * 10 + 10), "region": [["eu", "us"][part % 2]] * 10})
        deltalake.write_deltalake(at, table, mode="append", partition_by=["region"])
    deltalake.DeltaTable(at).optimize.compact()
    deltalake.DeltaTable(at).delete("id = 7")
    return at


def test_a_directory_is_recognised(written: str) -> None:
    expected = [one for one in range(40) if one != 7]
    for source in (written, f"{written}/", Path(written), f"file://{written}"):
        assert sorted(accel.scan(source).to_table()["id"].to_pylist()) == expected
    assert accel.scan(written, table="delta").count_rows() == 39
    assert accel.scan(written, table=None).count_rows() > 39
    assert sorted(accel.distinct(written, "region").to_pylist()) == ["eu", "us"]
    with pytest.raises(accel.TableFormatError, match="part of a Delta table"):
        accel.scan(f"{written}/**/*.parquet").count_rows()
    with pytest.raises(ValueError, match="which is one path"):
        accel.scan([written], table="delta")


def test_a_directory_in_a_store_is_recognised_by_its_first_page_and_remembered() -> None:
    table = table_of(3)
    store = RecordingStore(table.store)
    cache = accel.Cache(data=0, max_age=0)
    assert accel.scan("t", "id = 3", store=store, cache=cache).to_table().num_rows == 1
    assert asked(store)[:2] == ["t", "_delta_log"]
    store.clear()
    assert accel.scan("t", "id = 3", store=store, cache=cache).to_table().num_rows == 1
    assert asked(store) == ["_delta_log"]  # which rows match is remembered


def test_an_opened_table_is_a_source_in_its_version(written: str) -> None:
    opened = deltalake.DeltaTable(written, version=1)
    assert accel.scan(opened, "region = 'us'").count_rows() == 10
    assert accel.scan(opened).metrics is not None
    assert accel.plan(opened, "id = 3").metrics.table is not None
    with pytest.raises(accel.TableFormatError, match="the source is a table"):
        accel.scan(opened, table=None)


def test_a_table_as_a_source_is_planned_explained_and_pickled(written: str) -> None:
    table = accel.tables.delta(written, version=5, storage_options={"secret_access_key": "hush"})
    assert "hush" not in repr(table)
    shown = str(accel.scan(written, "region = 'eu' and id < 5").explain())
    assert "Delta, version" in shown
    assert "ruled out by partition" in shown
    plan = accel.plan(written, "id in (3, 33)")
    again = pickle.loads(pickle.dumps(plan))
    assert sorted(accel.scan(again).to_table()["id"].to_pylist()) == [3, 33]
    assert accel.scan(written, "id = 3").head(1).num_rows == 1
    assert accel.scan(pickle.loads(pickle.dumps(accel.tables.delta(written)))).count_rows() == 39
    assert accel.scan(written).aggregate([("id", "max"), ("id", "min")]).to_pylist() == [
        {"id_max": 39, "id_min": 0}
    ]


def test_a_selection_names_files_of_the_table(written: str) -> None:
    file = next(iter(deltalake.DeltaTable(written).file_uris()))
    rows_of_file = accel.scan(accel.tables.delta(written), selection={file: {0: [(0, 2)]}}).to_table()
    assert rows_of_file.num_rows == 2


def test_the_command_line(written: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["scan", written, "--table", "delta", "--version", "2", "--count"]) == 0
    assert capsys.readouterr().out.strip() == "30"
    assert main(["inspect", written, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["table"], found["files"], found["partition_columns"]) == ("Delta", 2, ["region"])
    assert main(["inspect", written, "--table", "delta", "--version", "1"]) == 0
    assert "version           1" in capsys.readouterr().out
    assert main(["scan", written, "--version", "2", "--count"]) == 2
    assert "it needs --table delta or --table iceberg" in capsys.readouterr().err


def test_nothing_of_it_is_imported_for_plain_files() -> None:
    code = "import accel, sys; print([m for m in sys.modules if 'formats.delta' in m or m.startswith('deltalake')])"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"


# -- partition values, other stores ----------------------------------------------------------------


def test_a_timestamp_of_a_partition_is_of_the_zone_that_the_caller_names() -> None:
    schema = pa.schema([("id", pa.int64()), ("at", pa.timestamp("us", "UTC"))])
    table = DeltaTableInMemory(schema, partition_columns=["at"])
    texts = ["2024-07-01 00:30:00", "2024-01-01T12:00:00Z", "2024-10-27 02:30:00", "2024-03-31 02:30:00", ""]
    for at, text in enumerate(texts):
        add = table.add(f"{at}.parquet", pa.table({"id": [at]}))
        table.commit({"add": {**add["add"], "partitionValues": {"at": text}}})

    def instants(**given: Any) -> list[str | None]:
        found = accel.scan(accel.tables.delta("t", **given), store=table.store, cache=None).to_table()
        values = found.sort_by("id")["at"].to_pylist()
        return [None if one is None else f"{one:%Y-%m-%dT%H:%M}" for one in values]

    utc = ["2024-07-01T00:30", "2024-01-01T12:00", "2024-10-27T02:30", "2024-03-31T02:30", None]
    assert instants() == utc
    # An hour that there is twice is the first, one that there is not is the end of the gap.
    berlin = ["2024-06-30T22:30", "2024-01-01T12:00", "2024-10-27T00:30", "2024-03-31T01:00", None]
    assert instants(time_zone="Europe/Berlin") == berlin
    named = accel.tables.delta("t", time_zone="Europe/Berlin")
    where = "at < TIMESTAMP '2024-07-01T00:00:00Z' AND at > TIMESTAMP '2024-06-01T00:00:00Z'"
    assert accel.scan(named, where, store=table.store, cache=None).to_table()["id"].to_pylist() == [0]
    with pytest.raises(ValueError, match="no time zone 'Nowhere/At'"):
        accel.tables.delta("t", time_zone="Nowhere/At")


def test_files_of_another_store_are_read_where_that_is_allowed(minio: S3Admin, bucket: str) -> None:
    """As a shallow clone names them."""
    other = f"{bucket}-source"
    minio.create_bucket(other)
    table = table_of(2)
    add = table.add("cloned.parquet", rows(100))
    table.commit({"add": {**add["add"], "path": f"s3://{other}/cloned.parquet"}})
    for path, data in table.store.objects.items():
        minio.put(other if "cloned" in path else bucket, path.replace("t/cloned", "cloned"), data)
    options = minio.storage_options()
    url = f"s3://{bucket}/t"
    with pytest.raises(accel.TableFormatError, match="another store than the table") as caught:
        accel.scan(url, storage_options=options, cache=None).to_table()
    assert "allowed_stores" in str(caught.value)
    allowed = accel.tables.delta(url, allowed_stores=[f"s3://{other}"])
    assert accel.scan(allowed, storage_options=options, cache=None).count_rows() == 30
    assert (
        accel.scan(pickle.loads(pickle.dumps(allowed)), "id = 105", storage_options=options).count_rows() == 1
    )
    with pytest.raises(TypeError, match="not one text"):
        accel.tables.delta(url, allowed_stores="s3://x")
