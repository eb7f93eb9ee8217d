"""Several processes describe shares of the files of one index; one commit makes an index of what they
wrote."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import accel
from accel.catalog.inspecting import inspect_index, verify_index
from accel.catalog.shares import (
    DESCRIBED_SCHEMA,
    SHARE_SCHEMA,
    commit_shares,
    describe_shares,
    plan_shares,
)
from accel.testing import DictStore, Layout, RecordingStore, write_file

INDEX = "d/_accel"
FILES, ROWS = 12, 300


def file(first: int) -> bytes:
    values = np.random.default_rng(first).permutation(ROWS) + first
    return write_file(pa.table({"k": values, "id": values.astype(str)}), Layout(page_rows=50))


def name(number: int) -> str:
    return f"d/part-{number:02}.parquet"


@pytest.fixture
def store() -> DictStore:
    return DictStore({name(number): file(1000 * number) for number in range(FILES)})


def described(shares: pa.Table, store: DictStore, **given: Any) -> list[pa.RecordBatch]:
    """Each share as if by a process of its own, to which it travels as bytes."""
    batches = pickle.loads(pickle.dumps(shares.to_batches(max_chunksize=1)))
    return [
        found for batch in batches for found in describe_shares([batch], index=INDEX, store=store, **given)
    ]


def rows(store: DictStore, where: str, **given: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (
        accel.scan("d/", where, store=store, cache=None, **given).to_table().to_pylist()
    )
    return found


@pytest.mark.parametrize("shares", [1, 5, 100])
def test_an_index_of_shares_is_the_index_of_one_builder(store: DictStore, shares: int) -> None:
    planned = plan_shares("d/", shares=shares, indexes={"id": "keys"}, store=store)
    assert planned.schema == SHARE_SCHEMA
    assert [path for row in planned["path"].to_pylist() for path in row] == [
        name(number).removeprefix("d/") for number in range(FILES)
    ]
    assert len(planned) == {1: 1, 5: 4, 100: FILES}[shares]
    batches = described(planned, store)
    assert all(batch.schema == DESCRIBED_SCHEMA for batch in batches)
    # Nothing is committed before.
    assert inspect_index(INDEX, store=store).files == 0
    report = commit_shares(INDEX, pickle.loads(pickle.dumps(batches)), store=store)
    assert (report.files, report.added, report.removed, report.segments) == (FILES, FILES, 0, len(planned))
    assert verify_index(INDEX, store=store).is_empty
    for where in ("id = '5007'", "k = 11299", "k < 3"):
        assert rows(store, where, index=INDEX, listing="index") == rows(store, where, index=None)
    assert accel.compact_index(INDEX, store=store).segments == 1
    assert verify_index(INDEX, store=store).is_empty


def test_workers_read_no_head_and_write_none(store: DictStore) -> None:
    planned = plan_shares("d/", shares=2, store=store)

    class Recorded(RecordingStore):
        """It takes objects, as the store below does."""

        async def write(self, path: str, *given: Any, **more: Any) -> None:
            written.append(path)
            await store.write(path, *given, **more)

    written: list[str] = []
    recorded = Recorded(store)
    (first, _) = planned.to_batches(max_chunksize=1)
    (row,) = pa.Table.from_batches(describe_shares([first], index=INDEX, store=recorded)).to_pylist()
    assert len(row["path"]) == FILES // 2
    asked = {call.path for call in recorded.calls}
    assert {path for path in asked if path.startswith("d/part")} == {name(at) for at in range(FILES // 2)}
    assert not any(path.endswith("head") for path in asked | set(written))
    assert sorted(path.rpartition("/")[2].partition("-")[0] for path in written) == ["bounds", "files"]
    # Of each object that was written the version is asked for.
    assert row["requests"] == recorded.requests - 2 == FILES // 2


def test_shares_bring_an_index_up_to_date(store: DictStore) -> None:
    accel.build_index("d/", store=store)
    store.put(name(3), file(50_000))
    store.put(name(4), b"no longer Parquet")
    store.put(name(40), file(60_000))
    store.delete(name(5))
    planned = plan_shares(None, to=INDEX, shares=2, store=store)
    assert sorted(path for row in planned["path"].to_pylist() for path in row) == [
        name(number).removeprefix("d/") for number in (3, 4, 40)
    ]
    report = commit_shares(INDEX, described(planned, store), store=store)
    assert (report.files, report.added, report.unchanged) == (FILES - 1, 2, FILES - 3)
    assert list(report.skipped) == ["part-04.parquet"]
    store.delete(name(4))
    assert verify_index(INDEX, store=store).is_empty
    assert len(plan_shares(None, to=INDEX, shares=2, store=store)) == 0


def test_shares_describe_files_anew_for_a_kind_that_the_index_lacks(store: DictStore) -> None:
    accel.build_index("d/", store=store)
    planned = plan_shares("d/", shares=2, indexes={"id": "keys"}, store=store)
    assert [len(row) for row in planned["path"].to_pylist()] == [6, 6]
    found = described(planned, store)
    assert commit_shares(INDEX, found[:1], store=store).files == FILES
    assert len(plan_shares("d/", shares=1, indexes={"id": "keys"}, store=store)["path"][0]) == 6
    assert commit_shares(INDEX, found[1:], store=store).files == FILES
    assert len(plan_shares("d/", shares=2, indexes={"id": "keys"}, store=store)) == 0
    assert {one.table: one.uncovered for one in inspect_index(INDEX, store=store).tables} == {
        "files": 0, "bounds": 0, "keys id": 0,
    }  # fmt: skip
    assert verify_index(INDEX, store=store).is_empty


def test_a_share_that_is_described_twice_or_not_at_all_does_no_harm(store: DictStore) -> None:
    planned = plan_shares("d/", shares=3, store=store)
    first, second, _ = described(planned, store)
    again, *_ = described(planned, store)
    report = commit_shares(INDEX, [first, second, again], store=store)
    assert report.files == 8
    # What no commit names is removed.
    left = {path for path in store.objects if path.startswith(f"{INDEX}/")}
    report = commit_shares(INDEX, [], store=store)
    assert (report.files, report.added, report.unchanged) == (8, 0, 8)
    assert len(plan_shares(None, to=INDEX, shares=1, store=store)["path"][0]) == 4
    assert {path for path in store.objects if path.startswith(f"{INDEX}/")} == left
    assert accel.refresh_index(INDEX, store=store).added == 4
    assert verify_index(INDEX, store=store).is_empty


def test_two_jobs_at_the_same_time_list_each_file_once(store: DictStore) -> None:
    planned = plan_shares("d/", shares=2, store=store)
    mine, theirs = described(planned, store), described(planned, store)
    assert commit_shares(INDEX, mine, store=store).files == FILES
    assert commit_shares(INDEX, theirs, store=store).files == FILES
    assert verify_index(INDEX, store=store).is_empty


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"source": "d/", "shares": 0}, ValueError),
        ({"source": None, "shares": 1}, ValueError),
        ({"source": None, "to": "x/", "shares": 1}, accel.ObjectNotFoundError),
        ({"source": "d/", "to": "d/", "shares": 1}, accel.StoreError),
    ],
    ids=["no share", "nothing named", "no index", "the files' own directory"],
)
def test_what_cannot_be_planned_is_refused(
    store: DictStore, given: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        plan_shares(given.pop("source"), **given, store=store)
