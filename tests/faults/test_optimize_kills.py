"""A job that is killed at any of its writes is finished or taken back by the next one, and no row is lost or
there twice."""

from __future__ import annotations

import random
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import accel
from accel.tables.journal import IDLE, JOURNAL_NAME, Journal, JournalState
from accel.testing import DictStore, write_file
from tests.faults.mortal_store import Killed, MortalStore

ROWS, FILES = 120, 3


def fill(store: DictStore, *, indexed: bool) -> list[int]:
    r = random.Random(5)
    ids = r.sample(range(10_000), ROWS * FILES)
    for number in range(FILES):
        part = ids[number * ROWS : (number + 1) * ROWS]
        store.put(f"t/{number}.parquet", write_file(pa.table({"id": part})))
    if indexed:
        accel.build_index("t", store=store)
    return ids


def read(store: DictStore, **given: object) -> list[int]:
    table = accel.scan("t/", store=store, cache=None, **given).to_table()  # type: ignore[arg-type]
    return table.column("id").to_pylist()


def optimize(store: DictStore) -> accel.OptimizeReport:
    return accel.optimize("t", sort_by="id", target_file_size=1_500, store=store)


def visible(store: DictStore) -> list[str]:
    return [path for path in store.objects if not path.startswith("t/_")]


def leftovers(store: DictStore) -> list[str]:
    left = [path for path in store.objects if "optimize" in path]
    idle = store.objects.get(f"t/{JOURNAL_NAME}") == IDLE
    return [path for path in left if path != f"t/{JOURNAL_NAME}" or not idle]


def deaths(*, indexed: bool) -> Iterable[tuple[int, bool]]:
    store = MortalStore()
    fill(store, indexed=indexed)
    store.changes.clear()
    optimize(store)
    return [(number, made) for number in range(len(store.changes)) for made in (False, True)]


@pytest.mark.parametrize("indexed", [False, True], ids=["", "with an index"])
def test_a_job_that_was_killed_is_finished_by_the_next(indexed: bool) -> None:
    finished = 0
    for number, made in deaths(indexed=indexed):
        store = MortalStore()
        ids = fill(store, indexed=indexed)
        before = visible(store)
        store.changes.clear()
        store.dies_at, store.makes_the_last = number, made
        with pytest.raises(Killed):
            optimize(store)
        journal = store.objects.get(f"t/{JOURNAL_NAME}")
        idle = journal in (None, IDLE)
        committed = not idle and Journal.decode(journal).state is JournalState.COMMITTED
        if not committed and not idle:
            assert visible(store) == before, "before the commit nobody sees a new file"
        store.revive()
        assert sorted(read(store)) == sorted(ids), "a reader has the old files or the new ones"
        if indexed:
            listed = read(store, index="t/_accel", listing="index")
            assert sorted(listed) == sorted(ids), "the index has the old files or the new ones"
        report = optimize(store)
        assert report.finished == committed, (number, made)
        finished += report.finished
        assert read(store) == sorted(ids)
        assert leftovers(store) == []
        assert set(visible(store)).isdisjoint(before)
        if indexed:
            assert read(store, index="t/_accel", listing="index") == sorted(ids)
    assert finished > 5


def test_a_job_of_another_kind_finishes_it_too_and_goes_on() -> None:
    store = MortalStore()
    ids = fill(store, indexed=False)
    store.changes.clear()
    optimize(store)
    moves = next(at for at, what in enumerate(store.changes) if what.startswith("move"))
    store = MortalStore()
    fill(store, indexed=False)
    store.changes.clear()
    store.dies_at = moves + 1
    with pytest.raises(Killed):
        optimize(store)
    store.revive()
    report = accel.optimize("t", sort_by=[("id", "descending")], store=store)
    assert not report.finished
    assert read(store) == sorted(ids, reverse=True)
    assert leftovers(store) == []


def test_a_damaged_journal_is_named(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": [1]}), tmp_path / "0.parquet")
    (tmp_path / "_accel").mkdir()
    for content, text in (("{", "is damaged"), ('{"version": 2}', "another version")):
        (tmp_path / JOURNAL_NAME).write_text(content)
        with pytest.raises(accel.IndexFormatError, match=text):
            accel.optimize(tmp_path)
    evil = {"staged": "_accel/optimize-1", "path": "../up", "size": 1, "rows": 1}
    journal = (
        Journal(id="1", state=JournalState.COMMITTED)
        .encode()
        .replace(b'"added": []', b'"added": [' + str(evil).replace("'", '"').encode() + b"]")
    )
    (tmp_path / JOURNAL_NAME).write_bytes(journal)
    with pytest.raises(accel.IndexFormatError, match="is damaged"):
        accel.optimize(tmp_path)
    assert pq.read_table(tmp_path / "0.parquet").num_rows == 1
