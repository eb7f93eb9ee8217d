"""Broken Delta logs: an error that names the table, the version and what to do, or the right rows."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import accel
from accel.testing import DictStore
from tests.support.delta_table import PROTOCOL, VECTORS, DeltaTableInMemory

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])
HERE = Path(__file__).parent / "delta"


def rows(first: int, count: int = 10) -> pa.Table:
    ids = list(range(first, first + count))
    return pa.table({"id": ids, "name": [f"n{one:04d}" for one in ids]}, SCHEMA)


def read(table: DeltaTableInMemory, where: str | None = None, **given: Any) -> pa.Table:
    return accel.scan(
        accel.tables.delta("t", **given), where, store=table.store, cache=accel.Cache()
    ).to_table()


def log(table: DeltaTableInMemory, version: int) -> str:
    return f"t/_delta_log/{version:020d}.json"


def change(table: DeltaTableInMemory, version: int, to: Callable[[bytes], bytes]) -> None:
    path = log(table, version)
    table.store.put(path, to(table.store.objects[path]))


@pytest.fixture
def table() -> DeltaTableInMemory:
    made = DeltaTableInMemory(SCHEMA)
    for at in range(4):
        made.commit(made.add(f"part-{at}.parquet", rows(at * 10)))
    return made


@pytest.mark.parametrize(
    ("to", "message"),
    [
        (lambda data: data[: len(data) // 2], "cannot be read"),
        (lambda data: b"", "empty"),
        (lambda data: b"\xff\xfe" + data, "is no text"),
        (lambda data: b'{"add": 5}', "cannot be read"),
        (lambda data: b'{"add": {"path": "x"}}', "no size"),
        (lambda data: b'{"add": {"size": 4}}', "names no file"),
        (lambda data: data.replace(b'"size": ', b'"size": -'), "no size"),
        (lambda data: b'{"protocol": 7}', "cannot be read"),
        (lambda data: b'{"metaData": {"id": 1}}', "no schema"),
        (lambda data: data + b"\n" + data.replace(b'"add"', b'"remove"'), "two actions in one commit"),
        (lambda data: b'{"x": ' + b"[" * 200_000, "cannot be read"),
        (lambda data: b'{"protocol": ' + b"[" * 200_000, "cannot be read"),
    ],
)
def test_a_damaged_commit_names_its_version(
    table: DeltaTableInMemory, to: Callable[[bytes], bytes], message: str
) -> None:
    change(table, 2, to)
    with pytest.raises(accel.TableFormatError, match=message) as failed:
        read(table)
    assert "_delta_log, version 2" in str(failed.value) or "2.json" in str(failed.value)
    assert read(table, version=1).num_rows == 10


def test_a_commit_that_is_gone_names_its_version(table: DeltaTableInMemory) -> None:
    table.store.delete(log(table, 2))
    with pytest.raises(accel.TableFormatError, match="t/_delta_log: the log lacks version 2"):
        read(table)


def test_a_file_twice_with_other_vectors_is_refused() -> None:
    table = DeltaTableInMemory(SCHEMA, protocol=VECTORS)
    add = table.add("a.parquet", rows(0))
    gone = {"storageType": "i", "pathOrInlineDv": "", "sizeInBytes": 0, "cardinality": 0}
    table.commit(add, {"add": {**add["add"], "deletionVector": gone}})
    with pytest.raises(accel.TableFormatError, match=r"version 1: the log has the file 'a\.parquet' twice"):
        read(table)


@pytest.mark.parametrize(
    "text",
    [
        '{"version": 99}',
        "{",
        "[]",
        "7",
        '{"v2Checkpoint": {"path": 4}}',
        '{"v2Checkpoint": {"path": "x"}}',
        "[" * 99_999,
    ],
)
def test_a_hint_that_lies_does_no_harm(table: DeltaTableInMemory, text: str) -> None:
    table.write_log("_last_checkpoint", text.encode())
    assert read(table).num_rows == 40


def test_a_checkpoint_that_is_no_parquet_is_an_error(table: DeltaTableInMemory) -> None:
    table.write_log(f"{3:020d}.checkpoint.parquet", b"PAR1 nothing PAR1")
    with pytest.raises(accel.AccelError, match=r"3\.checkpoint\.parquet"):
        read(table)


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("../other/secret.parquet", "whose path climbs"),
        ("a/%2e%2e/%2e%2e/b.parquet", "whose path climbs"),
        ("s3://elsewhere/b.parquet", "in another store|another store"),
        ("file:///etc/passwd", "in another store|another store"),
        ("ftp://host/x.parquet", "names the file"),
        ("http://169.254.169.254/latest", "another store"),
    ],
)
def test_a_path_out_of_the_table_is_refused(path: str, message: str, tmp_path: Path) -> None:
    made = DeltaTableInMemory(SCHEMA)
    add = made.add("a.parquet", rows(0))
    made.commit({"add": {**add["add"], "path": path}})
    if "://" in path:  # in a store that a caller gave, all URLs mean its own objects
        for name, data in made.store.objects.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_bytes(data)
        if path.startswith("file:"):
            pytest.skip("a local table may name local files, as shallow clones do")
        with pytest.raises(accel.AccelError, match=message):
            accel.scan(accel.tables.delta(tmp_path / "t")).to_table()
        return
    with pytest.raises(accel.TableFormatError, match=message):
        read(made)


def test_a_file_of_another_size_than_the_log_says_is_refused(table: DeltaTableInMemory) -> None:
    table.write_file("part-1.parquet", rows(50, 99))
    with pytest.raises(accel.AccelError, match="part-1"):
        read(table)


def test_statistics_of_other_types_count_for_nothing_and_are_counted(table: DeltaTableInMemory) -> None:
    stats = json.dumps(
        {"numRecords": "many", "minValues": {"id": "x"}, "maxValues": {"id": []}, "nullCount": 3}
    )
    table.commit(table.add("odd.parquet", rows(100), stats=stats))
    scan = accel.scan(accel.tables.delta("t"), "id = 105", store=table.store, cache=accel.Cache())
    assert scan.to_table()["id"].to_pylist() == [105]
    assert any("statistics of 1 files" in warning for warning in scan.metrics.warnings)


def test_a_vector_beyond_the_file_is_refused() -> None:
    from tests.tables.test_delta import vector

    made = DeltaTableInMemory(SCHEMA, protocol=VECTORS)
    described = vector(made, "t/d.bin", {"a": [3, 10]})["a"]
    made.commit(made.add("a.parquet", rows(0), deletionVector=described))
    with pytest.raises(accel.TableFormatError, match="row 10 is named as deleted"):
        read(made)
    huge = {**described, "cardinality": 1 << 60}
    made.commit(
        {"remove": {"path": "a.parquet", "deletionVector": described}},
        made.add("b.parquet", rows(0), deletionVector=huge),
    )
    with pytest.raises(accel.TableFormatError, match="memory_limit"):
        read(made)


def test_a_credential_in_a_location_is_shown_nowhere() -> None:
    url = "https://host/table?X-Amz-Signature=hush&X-Amz-Credential=hush"
    scan = accel.scan(accel.tables.delta(url))
    with pytest.raises(accel.AccelError) as failed:
        scan.to_table()
    assert "hush" not in f"{failed.value}{scan.metrics}{accel.tables.delta(url)!r}"


def objects_of(name: str) -> dict[str, bytes]:
    root = HERE / name / "table"
    return {
        f"t/{os.path.relpath(path, root)}": path.read_bytes() for path in root.rglob("*") if path.is_file()
    }


@pytest.mark.parametrize("name", ["mapped_by_name", "v2_json", "v2_parquet", "several_parts"])
def test_whatever_is_damaged_the_error_is_of_accel(name: str) -> None:
    """Bytes that change in a log end in an error of accel's, or in rows; in no other exception."""
    random_ = random.Random(name)
    objects = objects_of(name)
    paths = [path for path in objects if not path.endswith(".crc") and "part-" not in path]
    outcomes = {"rows": 0, "errors": 0}
    for _ in range(25):
        path = random_.choice(paths)
        data = bytearray(objects[path])
        for _ in range(random_.randint(1, 3)):
            at = random_.randrange(len(data))
            kind = random_.random()
            if kind < 0.5:
                data[at] = random_.randrange(256)
            elif kind < 0.75:
                del data[at:]
                data += b" "
            else:
                data[at:at] = data[at : at + 20]
        store = DictStore({**objects, path: bytes(data)})
        try:
            accel.scan(accel.tables.delta("t"), "id > 5", store=store, cache=accel.Cache()).to_table()
            outcomes["rows"] += 1
        except accel.AccelError:
            outcomes["errors"] += 1
    assert min(outcomes.values()) > 0, outcomes


def test_features_that_are_not_read_are_refused_before_any_file() -> None:
    made = DeltaTableInMemory(
        SCHEMA, protocol={"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["geospatial", "x"]}
    )
    with pytest.raises(accel.TableFormatError, match="'geospatial', 'x'"):
        read(made)
    made.commit({"protocol": dict(PROTOCOL)})
    assert read(made).num_rows == 0
