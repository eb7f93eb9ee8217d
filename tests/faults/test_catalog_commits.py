"""Many writers and readers of one catalog, on stores that fail now and then, and builders that are killed.

Each file says in its rows which file it is and which version of it, so that every answer can be compared with
the states that the directory went through while it was read.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import threading
import time
import uuid
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pytest

import accel
from accel.testing import DictStore, FaultStore, Status, write_file
from tests.support.proxy import Proxy
from tests.support.relay import Passage
from tests.support.s3 import S3Admin

# Files are replaced all the time, which scans by the list of the index tell.
pytestmark = pytest.mark.filterwarnings("ignore:.*replaced since the index at:UserWarning")

ROWS = 4
SECONDS = 2.5
STAYING = range(6)
"""Files that are there from the beginning, and that are replaced but never removed."""
COMING = range(6, 10)
OPTIONS = accel.Options(backoff_base=0.001, backoff_max=0.01)
State = dict[int, int]
"""The version of each file that is there."""


def content(number: int, version: int) -> bytes:
    return write_file(
        pa.table({"file": [number] * ROWS, "version": [version] * ROWS, "row": list(range(ROWS))})
    )


class Directory(Protocol):
    """The directory of the files, whatever it lies in."""

    source: str
    given: dict[str, Any]

    def put(self, name: str, data: bytes) -> None: ...
    def remove(self, name: str) -> None: ...


class History:
    """What was in the directory, one change after another. One thread changes it."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory
        self._version = 0
        self.states: list[State] = [{}]

    def put(self, number: int) -> None:
        self._version += 1
        # Whoever looks from here on may see either.
        self.states.append({**self.states[-1], number: self._version})
        self._directory.put(f"{number}.parquet", content(number, self._version))
        self.states.append(self.states[-1])

    def remove(self, number: int) -> None:
        self.states.append({at: version for at, version in self.states[-1].items() if at != number})
        self._directory.remove(f"{number}.parquet")
        self.states.append(self.states[-1])

    def change(self, r: random.Random) -> None:
        number = r.choice([*STAYING, *COMING])
        if number in COMING and number in self.states[-1] and r.random() < 0.6:
            self.remove(number)
        else:
            self.put(number)

    def since(self, start: int) -> list[State]:
        """The states that there were, from just before `start` on."""
        return self.states[max(0, start - 2) :]


def read(directory: Directory, where: str | None, **given: Any) -> State:
    """The files that came and their versions; every file whole, and in one version."""
    scan = accel.scan(directory.source, where, options=OPTIONS, **{"cache": None, **directory.given, **given})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = scan.to_table().to_pylist()
    files: dict[int, list[tuple[int, int]]] = {}
    for row in found:
        files.setdefault(row["file"], []).append((row["version"], row["row"]))
    for number, rows in files.items():
        assert rows == [(rows[0][0], at) for at in range(ROWS)], (number, rows)
    return {number: rows[0][0] for number, rows in files.items()}


def check(found: State, states: list[State], *, wanted: Callable[[int], bool]) -> None:
    """Whether what came may have been in the directory while it was read."""
    numbers = {number for state in states for number in state if wanted(number)}
    assert found.keys() <= numbers
    for number in numbers:
        versions = {state.get(number) for state in states}
        assert found.get(number) in versions, (number, found.get(number), versions)


class Crowd:
    """Writers, readers and one who changes files, for some seconds."""

    def __init__(self, directory: Directory, *, seed: int, faulty: bool, to: str | None = None) -> None:
        self._directory = directory
        self._to = to
        self._index = to or f"{directory.source.rstrip('/')}/_accel"
        self._faulty = faulty
        self._seed = seed
        self._failures: list[BaseException] = []
        self._stop = threading.Event()
        self.history = History(directory)
        self.refreshed = self.answered = self.refused = 0

    def run(self, *, writers: int = 3, readers: int = 3, seconds: float = SECONDS) -> None:
        for number in STAYING:
            self.history.put(number)
        self._surely(
            lambda: accel.build_index(
                self._directory.source, to=self._to, options=OPTIONS, **self._directory.given
            )
        )
        works = [self._change] + [self._write] * writers + [self._read] * readers
        threads = [
            threading.Thread(target=self._guarded, args=(work, random.Random(f"{self._seed} {at}")))
            for at, work in enumerate(works)
        ]
        for thread in threads:
            thread.start()
        self._stop.wait(seconds)
        # A busy machine takes longer to come to something.
        for _ in range(100):
            if min(self.refreshed, self.answered) < 5:
                self._stop.wait(0.1)
        self._stop.set()
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive()
        for failure in self._failures:
            raise failure
        assert min(self.refreshed, self.answered) > 0
        self._compare()

    def _compare(self) -> None:
        """Now that nothing changes: the catalog, the store and the history are of one mind."""
        report = self._surely(
            lambda: accel.refresh_index(self._index, options=OPTIONS, **self._directory.given)
        )
        last = self.history.states[-1]
        assert report.files == len(last)
        assert not report.skipped
        for given in ({"index": None}, {"index": self._index}, {"index": self._index, "listing": "index"}):
            assert self._surely(lambda given=given: read(self._directory, None, **given)) == last
        again = self._surely(
            lambda: accel.refresh_index(self._index, options=OPTIONS, **self._directory.given)
        )
        assert (again.added, again.removed) == (0, 0)

    def _surely(self, work: Callable[[], Any]) -> Any:
        """What work comes to; where the store fails, in one of some attempts."""
        for _ in range(20 if self._faulty else 0):
            try:
                return work()
            except accel.AccelError:
                continue
        return work()

    def _guarded(self, work: Callable[[random.Random], None], r: random.Random) -> None:
        try:
            while not self._stop.is_set():
                work(r)
        except BaseException as error:  # noqa: BLE001 - raised by the test
            self._failures.append(error)
            self._stop.set()

    def _change(self, r: random.Random) -> None:
        self.history.change(r)
        time.sleep(r.uniform(0, 0.06))

    def _write(self, r: random.Random) -> None:
        verb = r.choices(["refresh", "compact", "vacuum"], [8, 2, 1])[0]
        given = {"options": OPTIONS, **self._directory.given}
        try:
            if verb == "refresh":
                accel.refresh_index(self._index, **given)
            elif verb == "compact":
                accel.compact_index(self._index, **given)
            else:
                # What was replaced within these seconds may still be read.
                accel.vacuum_index(self._index, grace=3600, **given)
            self.refreshed += 1
        except accel.AccelError:
            if not self._faulty:
                raise
            self.refused += 1

    def _read(self, r: random.Random) -> None:
        one = r.choice([*STAYING, *COMING])
        where, wanted = r.choice(
            [
                (None, lambda number: True),
                ("row >= 0", lambda number: True),
                (f"file = {one}", lambda number: number == one),
                (f"file >= {one} AND version > 0", lambda number: number >= one),
            ]
        )
        listing = r.choice(["store", "index"])
        start = len(self.history.states)
        try:
            found = read(self._directory, where, index=self._index, listing=listing)
        except accel.AccelError as error:
            # A file may be gone, or have changed twice; and the store may have failed too often.
            expected = (accel.ObjectNotFoundError, accel.ObjectChangedError)
            if not self._faulty and not isinstance(error, expected):
                raise
            self.refused += 1
            return
        self.answered += 1
        if listing == "store":
            check(found, self.history.since(start), wanted=wanted)
            return
        # The list may be as old as the catalog, but it never lacks what was there all the time.
        states = self.history.since(0)
        check(found, states[len(STAYING) * 2 :], wanted=lambda number: wanted(number) and number in found)
        assert {number for number in STAYING if wanted(number)} <= found.keys()


# -- in memory ---------------------------------------------------------------------------------------


class Unreliable(FaultStore):
    """A store that takes objects, and fails now and then: reads, writes that were not made, and writes that
    were."""

    def __init__(self, inner: DictStore, seed: int, rate: float) -> None:
        self._r = random.Random(seed)
        self._rate = rate
        super().__init__(inner, lambda _: Status(503) if self._fails() else None)

    def _fails(self) -> bool:
        return self._r.random() < self._rate

    async def write(self, path: str, parts: Any, **given: Any) -> None:
        if self._fails():
            raise accel.StoreError("the server answered 503", path=path)
        await self.inner.write(path, parts, **given)  # type: ignore[attr-defined]
        if self._fails():
            raise accel.StoreError("the answer was lost", path=path)

    async def remove(self, path: str) -> None:
        await self.inner.remove(path)  # type: ignore[attr-defined]


class InMemory:
    def __init__(self, *, seed: int, rate: float) -> None:
        self._store = DictStore()
        self.source = "t/"
        self.given = {"store": Unreliable(self._store, seed, rate) if rate else self._store}

    def put(self, name: str, data: bytes) -> None:
        self._store.put(f"t/{name}", data)

    def remove(self, name: str) -> None:
        self._store.delete(f"t/{name}")


@pytest.mark.parametrize("rate", [0.0, 0.03], ids=["reliable", "unreliable"])
def test_writers_and_readers_in_memory(rate: float) -> None:
    Crowd(InMemory(seed=3, rate=rate), seed=3, faulty=bool(rate)).run()


# -- a local directory -------------------------------------------------------------------------------


class Local:
    def __init__(self, path: Path) -> None:
        self._path = path
        self.source = str(path)
        self.given: dict[str, Any] = {}

    def put(self, name: str, data: bytes) -> None:
        beside = self._path / f".{name}.new"
        beside.write_bytes(data)
        beside.replace(self._path / name)

    def remove(self, name: str) -> None:
        (self._path / name).unlink()


def test_writers_and_readers_of_a_local_directory(tmp_path: Path) -> None:
    (tmp_path / "t").mkdir()
    Crowd(Local(tmp_path / "t"), seed=4, faulty=False).run()
    # No temporary file is left.
    assert not [path for path in (tmp_path / "t" / "_accel").iterdir() if path.name.endswith(".part")]


# -- MinIO -------------------------------------------------------------------------------------------


class Bucket:
    def __init__(self, minio: S3Admin, endpoint: str) -> None:
        self._minio, self._bucket = minio, f"catalog-{uuid.uuid4().hex[:12]}"
        minio.create_bucket(self._bucket)
        self.source = f"s3://{self._bucket}/t/"
        self.given = {"storage_options": minio.storage_options(endpoint)}

    def put(self, name: str, data: bytes) -> None:
        self._minio.put(self._bucket, f"t/{name}", data)

    def remove(self, name: str) -> None:
        self._minio.delete(self._bucket, f"t/{name}")


@pytest.mark.parametrize("rate", [0.0, 0.02], ids=["reliable", "unreliable"])
def test_writers_and_readers_of_minio(minio: S3Admin, make_proxy: Callable[..., Proxy], rate: float) -> None:
    r = random.Random(5)

    def script(passage: Passage) -> Status | None:
        return Status(503) if r.random() < rate else None

    proxy = make_proxy(minio.url, script=script)
    Crowd(Bucket(minio, proxy.url), seed=5, faulty=bool(rate)).run()


# -- builders that are killed ------------------------------------------------------------------------

KILLS = 50
BUDGET = 25.0


def keep(source: str) -> None:
    """Refresh and compact an index until somebody ends this process."""
    while True:
        accel.build_index(source)
        accel.compact_index(f"{source}/_accel")


@pytest.fixture
def forks() -> Iterator[Any]:
    """Processes that start at once, as what they import is there."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["accel.catalog.inspecting", "accel.writing.table_writer", __name__])
    yield context


def test_a_builder_is_killed_at_many_moments(tmp_path: Path, forks: Any) -> None:
    directory = Local(tmp_path)
    history = History(directory)
    index = str(tmp_path / "_accel")
    r = random.Random(6)
    for number in STAYING:
        history.put(number)
    ends = time.monotonic() + BUDGET
    kills = busy = 0
    while kills < KILLS and time.monotonic() < ends:
        process = forks.Process(target=keep, args=(str(tmp_path),), daemon=True)
        process.start()
        moment = time.monotonic() + r.uniform(0, 0.2)
        while time.monotonic() < moment:
            history.change(r)
            time.sleep(r.uniform(0, 0.03))
        assert process.exitcode is None
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        kills += 1
        last = history.states[-1]
        assert read(directory, None, index="auto") == last
        assert read(directory, "version >= 0", index="auto") == last
        if (tmp_path / "_accel" / "head").exists():
            busy += 1
        if kills % 5 == 0:
            report = accel.build_index(str(tmp_path))
            assert report.files == len(last)
            assert read(directory, None, index=index, listing="index") == last
    assert kills >= 10
    assert busy
    history.change(r)
    assert accel.refresh_index(index).files == len(history.states[-1])
    assert read(directory, None, index=index, listing="index") == history.states[-1]
    accel.vacuum_index(index, grace=0)
    assert read(directory, None, index=index, listing="index") == history.states[-1]
    left = {path.name.partition("-")[0] for path in (tmp_path / "_accel").iterdir()}
    assert left >= {"head", "files", "bounds"}
    assert len([path for path in (tmp_path / "_accel").iterdir() if path.suffix == ".parquet"]) <= 2 * 17
