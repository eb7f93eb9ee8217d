"""Jobs over objects of a real S3: it copies by itself, and its conditional puts are the commits."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import obstore
import pyarrow as pa
import pytest
from obstore.store import S3Store

import accel
from accel.tables.journal import JOURNAL_NAME
from accel.testing import write_file

ROWS, FILES = 500, 4


@pytest.fixture
def store(bucket: str, s3_options: dict[str, str]) -> S3Store:
    config = {key: value for key, value in s3_options.items() if key != "allow_http"}
    return S3Store(bucket, config=config, client_options={"allow_http": True})  # type: ignore[arg-type]


@pytest.fixture
def ids(store: S3Store) -> Sequence[int]:
    found = random.Random(3).sample(range(10**6), ROWS * FILES)
    for number in range(FILES):
        part = pa.table({"id": found[number * ROWS : (number + 1) * ROWS]})
        obstore.put(store, f"t/{number}.parquet", write_file(part))
    return found


def names(store: S3Store) -> list[str]:
    """All objects, without the records of what replaced what, by which streams go."""
    found = sorted(entry["path"] for page in obstore.list(store) for entry in page)
    return [name for name in found if "/_accel/replaced-" not in name]


def visible(store: S3Store) -> list[str]:
    """Return what is there besides records and the idle journal."""
    idle = f"_accel/{JOURNAL_NAME.rpartition('/')[2]}"
    return [name for name in names(store) if not name.endswith(idle)]


def test_in_place_with_the_index(
    bucket: str, store: S3Store, ids: Sequence[int], s3_options: dict[str, str]
) -> None:
    url = f"s3://{bucket}/t/"
    given: dict[str, Any] = {"storage_options": s3_options}
    index = accel.build_index(url, **given).index
    report = accel.optimize(url, sort_by="id", target_file_size=4_000, **given)
    assert report.index == index
    read = accel.scan(url, cache=None, **given).to_table().column("id").to_pylist()
    assert read == sorted(ids)
    scan = accel.scan(url, f"id = {ids[7]}", index=index, listing="index", cache=None, **given)
    assert scan.to_table().num_rows == 1
    assert (scan.metrics.files.kept, scan.metrics.catalog_stale) == (1, 0)
    assert [name for name in names(store) if "optimize-" in name or name[:3] in ("t/0", "t/1", "t/2")] == []


def test_killed_between_its_steps(
    bucket: str,
    store: S3Store,
    ids: Sequence[int],
    s3_options: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from accel.store.obstore_store import ObstoreStore

    url = f"s3://{bucket}/t/"
    real = ObstoreStore.move
    moved = []

    async def move(self: ObstoreStore, path: str, to: str) -> None:
        if len(moved) == 2:
            raise KeyboardInterrupt
        moved.append(to)
        await real(self, path, to)

    monkeypatch.setattr(ObstoreStore, "move", move)
    with pytest.raises(KeyboardInterrupt):
        accel.optimize(url, sort_by="id", target_file_size=1_500, storage_options=s3_options)
    monkeypatch.undo()
    assert f"t/{JOURNAL_NAME}" in names(store)
    report = accel.optimize(url, sort_by="id", target_file_size=1_500, storage_options=s3_options)
    assert report.finished
    read = accel.scan(url, cache=None, storage_options=s3_options).to_table().column("id").to_pylist()
    assert read == sorted(ids)
    assert len(visible(store)) == report.files_after > 2


def test_killed_before_its_commit(
    bucket: str,
    store: S3Store,
    ids: Sequence[int],
    s3_options: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from accel.store.obstore_store import ObstoreStore

    url = f"s3://{bucket}/t/"
    real = ObstoreStore.write
    written: list[str] = []

    async def write(self: ObstoreStore, path: str, *args: Any, **given: Any) -> None:
        if sum(path.endswith(".parquet") for path in written) == 2:
            raise KeyboardInterrupt
        written.append(path)
        await real(self, path, *args, **given)

    async def remove(self: ObstoreStore, path: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(ObstoreStore, "write", write)
    monkeypatch.setattr(ObstoreStore, "remove", remove)  # a process that is killed takes nothing back
    with pytest.raises(KeyboardInterrupt):
        accel.optimize(url, sort_by="id", target_file_size=1_500, storage_options=s3_options)
    monkeypatch.undo()
    before = [name for name in names(store) if name.endswith(".parquet") and "optimize-" in name]
    report = accel.optimize(url, sort_by="id", target_file_size=1_500, storage_options=s3_options)
    # The record of the second file is lacking.
    assert (len(before), report.reused, report.finished) == (2, 1, False)
    read = accel.scan(url, cache=None, storage_options=s3_options).to_table().column("id").to_pylist()
    assert read == sorted(ids)
    assert len(visible(store)) == report.files_after > 2


def test_an_object_that_changes_meanwhile_stays(
    bucket: str, store: S3Store, ids: Sequence[int], s3_options: dict[str, str]
) -> None:
    before = names(store)

    def change(now: accel.JobProgress) -> None:
        if now.stage == "write":
            obstore.put(store, "t/1.parquet", b"theirs")

    with pytest.raises(accel.ObjectChangedError, match="changed or removed"):
        accel.optimize(f"s3://{bucket}/t", sort_by="id", storage_options=s3_options, progress=change)
    assert bytes(obstore.get(store, "t/1.parquet").bytes()) == b"theirs"
    assert visible(store) == before


def test_into_another_directory_and_indexes_for_all(
    bucket: str, store: S3Store, ids: Sequence[int], s3_options: dict[str, str]
) -> None:
    given: dict[str, Any] = {"storage_options": s3_options}
    accel.optimize(f"s3://{bucket}/t/", to=f"s3://{bucket}/sorted/", sort_by="id", **given)
    assert len(visible(store)) == FILES + 1
    report = accel.embed_files(f"s3://{bucket}/t/", indexes={"id": "bloom"}, **given)
    assert (report.embedded, report.failed) == (FILES, {})
    assert accel.embed_files(f"s3://{bucket}/t/", indexes={"id": "bloom"}, **given).skipped == FILES
