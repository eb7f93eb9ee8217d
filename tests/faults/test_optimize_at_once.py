"""Jobs at work in one directory at the same time, each suspended at any of its requests while others run: readers
have every row once, whoever fails says why, and nothing hangs or stays behind."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any

import pyarrow as pa
import pytest

import accel
from accel.ranges import ByteRange, Suffix
from accel.store.range_store import ObjectEntry, Payload
from accel.tables.journal import IDLE, JOURNAL_NAME
from accel.testing import DictStore, write_file

FILES, ROWS = 3, 40
SECONDS = 60
"""After which a job hangs."""


class SuspendedStore(DictStore):
    """The objects of another store, as a process sees them that is suspended before one of its requests."""

    def __init__(self, objects: DictStore, suspended_at: int | None) -> None:
        self.objects, self.etags, self.modified = objects.objects, objects.etags, objects.modified
        self.requests = 0
        self._suspended_at = suspended_at
        self.suspended, self.resumed = threading.Event(), threading.Event()

    async def _turn(self) -> None:
        number, self.requests = self.requests, self.requests + 1
        if self._suspended_at is not None and number >= self._suspended_at and not self.resumed.is_set():
            self.suspended.set()
            await asyncio.to_thread(self.resumed.wait, SECONDS)

    async def write(self, path: str, parts: AsyncIterator[bytes], **given: Any) -> None:
        await self._turn()
        await super().write(path, parts, **given)

    async def remove(self, path: str) -> None:
        await self._turn()
        await super().remove(path)

    async def move(self, path: str, to: str) -> None:
        await self._turn()
        await super().move(path, to)

    async def list(self, prefix: str) -> AsyncIterator[ObjectEntry]:
        await self._turn()
        async for entry in super().list(prefix):
            yield entry

    async def read(self, path: str, want: ByteRange | Suffix, *, if_match: str | None = None) -> Payload:
        if path.endswith(JOURNAL_NAME):
            await self._turn()
        return await super().read(path, want, if_match=if_match)


class Call(threading.Thread):
    """A call of `optimize`, in a process of its own as far as the store can tell."""

    def __init__(self, objects: DictStore, direction: str, *, suspended_at: int | None = None) -> None:
        super().__init__(daemon=True)
        self.store = SuspendedStore(objects, suspended_at)
        self.error: BaseException | None = None
        self._direction = direction

    def run(self) -> None:
        try:
            accel.optimize("t", sort_by=[("id", self._direction)], target_file_size=500, store=self.store)
        except BaseException as error:  # noqa: BLE001 (whatever it is, the test looks at it)
            self.error = error
        self.store.suspended.set()

    def reach(self) -> None:
        """Run until it is suspended, or done."""
        self.start()
        assert self.store.suspended.wait(SECONDS), "the job hangs"

    def finish(self) -> None:
        self.store.resumed.set()
        if self.ident is None:
            self.start()
        self.join(SECONDS)
        assert not self.is_alive(), "the job hangs"
        assert self.error is None or isinstance(self.error, accel.AccelError)


def fill(*, indexed: bool) -> tuple[DictStore, list[int]]:
    store, r = DictStore(), random.Random(5)
    ids = r.sample(range(10_000), ROWS * FILES)
    for number in range(FILES):
        part = ids[number * ROWS : (number + 1) * ROWS]
        store.put(f"t/{number}.parquet", write_file(pa.table({"id": part})))
    if indexed:
        accel.build_index("t", store=store)
    return store, sorted(ids)


def read(store: DictStore, **given: Any) -> list[int]:
    return accel.scan("t/", store=store, cache=None, **given).to_table()["id"].to_pylist()


def requests(*, indexed: bool) -> int:
    """Return how many requests a job makes that is alone."""
    alone = Call(fill(indexed=indexed)[0], "ascending")
    alone.finish()
    assert alone.error is None
    return alone.store.requests


@pytest.mark.parametrize("second", ["ascending", "descending"], ids=["the same job", "another job"])
@pytest.mark.parametrize("indexed", [False, True], ids=["", "with an index"])
def test_two_jobs(second: str, indexed: bool) -> None:
    count = requests(indexed=indexed)
    r = random.Random(f"{second}{indexed}")
    # Of all pairs some: one job is suspended and the other begins, is suspended too, and outlives the first.
    # These are the pairs that once doubled rows, and that left a directory which no job could work in again.
    places = [(3, count // 2 + 1), (count - 6, count + 1), (count - 2, count + 2)]
    places += [(r.randrange(count), r.randrange(count + 5)) for _ in range(4)]
    for first_at, second_at in places:
        store, ids = fill(indexed=indexed)
        first = Call(store, "ascending", suspended_at=first_at)
        other = Call(store, second, suspended_at=second_at)
        steps: list[Callable[[], object]] = [first.reach, other.reach, first.finish, other.finish]
        for step in steps:
            step()
            assert sorted(read(store)) == ids, (first_at, second_at, step)
        last = Call(store, "descending")
        last.finish()
        assert last.error is None, (first_at, second_at)
        assert read(store) == ids[::-1]
        if indexed:
            assert read(store, index="t/_accel", listing="index") == ids[::-1]
        assert [path for path in store.objects if "optimize" in path] == [f"t/{JOURNAL_NAME}"]
        assert store.objects[f"t/{JOURNAL_NAME}"] == IDLE


def test_three_jobs() -> None:
    """The third runs whole while the others are suspended: it finishes what they have committed."""
    count = requests(indexed=False)
    r = random.Random(3)
    for _ in range(6):
        store, ids = fill(indexed=False)
        first = Call(store, "ascending", suspended_at=r.randrange(count))
        second = Call(store, "descending", suspended_at=r.randrange(count + 5))
        third = Call(store, "ascending")
        calls = [second.finish, first.finish] if r.random() < 0.5 else [first.finish, second.finish]
        for step in [first.reach, second.reach, third.finish, *calls]:
            step()
            assert sorted(read(store)) == ids
        last = Call(store, "ascending")
        last.finish()
        assert last.error is None
        assert read(store) == ids


def test_a_commit_that_another_call_has_finished_is_no_failure() -> None:
    """Between the swap of the journal and the look at it another call finds it, and does the rest."""
    count = requests(indexed=False)
    done = []
    for at in range(count):
        store, ids = fill(indexed=False)
        first = Call(store, "ascending", suspended_at=at)
        first.reach()
        committed = store.objects.get(f"t/{JOURNAL_NAME}", IDLE).find(b'"committed"') > 0
        second = Call(store, "ascending")
        second.finish()
        first.finish()
        assert read(store) == ids
        if committed:
            done.append(first.error)
    assert len(done) > 5
    assert done[0] is None
