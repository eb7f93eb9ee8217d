"""A catalog in SQLite and in PostgreSQL: many at once, connections that end, and builders that are killed."""

from __future__ import annotations

import multiprocessing
import os
import random
import secrets
import signal
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest

import accel
from tests.faults.test_catalog_commits import STAYING, Crowd, History, InMemory, Local, read
from tests.support.cutting_relay import CuttingRelay
from tests.support.postgres import Postgres

# Files are replaced all the time, which scans by the list of the index tell.
pytestmark = pytest.mark.filterwarnings("ignore:.*replaced since the index at:UserWarning")

KILLS, BUDGET = 50, 12.0


def run(crowd: Crowd, *, large: bool) -> None:
    crowd.run(writers=4, readers=16, seconds=60.0 if large else 2.5)
    print(
        f"{crowd.refreshed} changes, {crowd.answered} answers, {crowd.refused} refused, "
        f"{len(crowd.history.states)} states"
    )


@pytest.mark.parametrize("rate", [0.0, 0.01], ids=["reliable", "unreliable"])
def test_writers_and_readers_of_sqlite(tmp_path: Path, rate: float, large: bool) -> None:
    to = f"sqlite:///{tmp_path}/index.db"
    run(Crowd(InMemory(seed=10, rate=rate), seed=10, faulty=bool(rate), to=to), large=large)


def test_writers_and_readers_of_postgres(postgres: Postgres, large: bool) -> None:
    to = f"{postgres.url()}#c{secrets.token_hex(8)}"
    run(Crowd(InMemory(seed=11, rate=0.0), seed=11, faulty=False, to=to), large=large)


def test_writers_and_readers_while_connections_end(postgres: Postgres, large: bool) -> None:
    with CuttingRelay(postgres.port, rate=0.01, seed=12) as relay:
        url = f"{postgres.url()}#c{secrets.token_hex(8)}".replace(f":{postgres.port}/", f":{relay.port}/")
        run(Crowd(InMemory(seed=12, rate=0.01), seed=12, faulty=True, to=url), large=large)
        assert relay.cuts > 0
        print(f"{relay.cuts} connections ended")


def keep(source: str, index: str) -> None:
    """Refresh and compact an index until somebody ends this process."""
    while True:
        accel.build_index(source, to=index)
        accel.compact_index(index)


def test_a_builder_is_killed_at_many_moments(tmp_path: Path) -> None:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(
        ["accel.catalog.inspecting", "accel.catalog.homes.sqlite", "accel.store.local_store", __name__]
    )
    (tmp_path / "t").mkdir()
    source, index = str(tmp_path / "t"), f"sqlite:///{tmp_path}/index.db"
    directory = Local(tmp_path / "t")
    history = History(directory)
    r = random.Random(13)
    for number in STAYING:
        history.put(number)
    ends = time.monotonic() + BUDGET
    kills = 0
    while kills < KILLS and time.monotonic() < ends:
        process = context.Process(target=keep, args=(source, index), daemon=True)
        process.start()
        moment = time.monotonic() + r.uniform(0, 0.2)
        while time.monotonic() < moment:
            history.change(r)
            time.sleep(r.uniform(0, 0.03))
        assert process.exitcode is None
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        kills += 1
        if kills % 5 == 0:
            last = history.states[-1]
            assert read(directory, None, index=index) == last
            assert accel.build_index(source, to=index).files == len(last)
            assert read(directory, "version >= 0", index=index, listing="index") == last
    assert kills >= 5
    last = history.states[-1]
    assert accel.build_index(source, to=index).files == len(last)
    assert read(directory, None, index=index, listing="index") == last
    # What was never part of the index stays for an hour, as somebody may be building with it.
    accel.vacuum_index(index, grace=0)
    assert read(directory, None, index=index, listing="index") == last
    with closing(sqlite3.connect(tmp_path / "index.db")) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        # No page is of an object that was not committed with it.
        query = "SELECT count(*) FROM accel_pages WHERE object NOT IN (SELECT id FROM accel_objects)"
        assert connection.execute(query).fetchall() == [(0,)]
