"""Files opened ahead of their turn: what is asked for, shared, told, and ended."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine, Sequence
from contextlib import aclosing
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

import accel
from accel.decode.arrow import shared_schema
from accel.errors import StoreError
from accel.format.footer import parse_footer
from accel.metrics import Metrics
from accel.options import KIB, MIB
from accel.planning.read_request import Tail
from accel.ranges import Suffix
from accel.reader import footer_prefetch
from accel.reader import footer_prefetch as width
from accel.reader.footer_prefetch import BatchWorker, FooterBatchParser, PrefetchedFile, RequestWidth
from accel.reader.reader import Tails
from accel.runtime import io_loop
from accel.scanning import block_pruning
from accel.testing import DictStore, Layout, RecordingStore, table, write_file
from bench.micro.footers import WRITERS
from tests.unit.scanning.many_files import many_files, opening_tasks

FILES = 40


@pytest.fixture(scope="module")
def objects() -> dict[str, bytes]:
    return many_files(FILES)


@pytest.fixture
def store(objects: dict[str, bytes]) -> RecordingStore:
    return RecordingStore(DictStore(objects))


def keys(scan: Any) -> list[int]:
    return list(scan.to_table()["key"].to_pylist())


def test_a_request_each_and_no_more(store: RecordingStore) -> None:
    scan = accel.scan("d/", "key IN (2, 60, 159)", store=store, cache=accel.Cache())
    assert keys(scan) == [2, 60, 159]
    assert (store.requests, store.depth) == (1 + FILES, 2)
    metrics = scan.metrics
    assert (metrics.metadata_hits, metrics.metadata_misses) == (0, FILES)
    assert (metrics.files.total, metrics.files.kept, metrics.round_trips) == (FILES, 3, 2)
    assert metrics.row_groups.total == 2 * FILES


@pytest.mark.parametrize("order", [True, False])
@pytest.mark.parametrize("where", [None, "key >= 0", "key < 0", "key > 37 AND key < 90"])
def test_as_one_by_one(objects: dict[str, bytes], where: str | None, order: bool) -> None:
    def ask(**options: Any) -> tuple[list[int], dict[str, Any]]:
        scan = accel.scan(
            "d/", where, store=DictStore(objects), cache=None, order=order, options=accel.Options(**options)
        )
        return sorted(keys(scan)), scan.metrics.as_dict()

    assert ask() == ask(max_files_in_flight=1)


@pytest.mark.parametrize("hint", [16, 600], ids=["less than a footer", "less than most footers"])
def test_footers_that_are_longer_than_the_hint(objects: dict[str, bytes], hint: int) -> None:
    options = accel.Options(tail_hint=hint, max_tail_hint=hint)
    store = RecordingStore(DictStore(objects))
    scan = accel.scan("d/", "key = 77", store=store, cache=accel.Cache(), options=options)
    assert keys(scan) == [77]
    assert scan.metrics.files.kept == 1
    assert store.requests <= 1 + 2 * FILES + 2


@pytest.mark.parametrize("longer", [0, 3], ids=["all alike", "some with longer footers"])
def test_what_larger_files_take_is_what_others_of_the_scan_are_asked_for(longer: int) -> None:
    """Of 60 KB each: the first are asked for whole, those that follow for their footers, and what a longer
    footer lacks is asked for as well."""
    count, rows = 200, 1500

    def written(at: int) -> bytes:
        keys = pa.array(range(rows * at, rows * at + rows), pa.int64())
        texts = pa.array([sha256(b"%d" % key).hexdigest() for key in keys.to_pylist()])
        groups = 12 if at % 50 == 49 and at // 50 < longer else 1
        return write_file(table(key=keys, text=texts), Layout(group_rows=rows // groups))

    objects = {f"d/{at:04d}.parquet": written(at) for at in range(count)}
    store = RecordingStore(DictStore(objects))
    options = accel.Options(max_files_in_flight=8)
    scan = accel.scan("d/", "key = 270000", store=store, cache=None, options=options)
    assert scan.to_table().to_pylist() == [{"key": 270000, "text": sha256(b"270000").hexdigest()}]
    ends = [call for call in store.calls if isinstance(call.want, Suffix)]
    assert len(ends) == count
    lengths = [call.want.length for call in ends if isinstance(call.want, Suffix)]
    assert all(8 * MIB // count <= length <= 128 * KIB for length in lengths[:16])
    # Those that have come are gone through 64 at a time.
    assert (max(lengths[100:]) == 4 * KIB) == (not longer)
    assert max(lengths[160:]) < 16 * KIB
    # What a longer footer lacks is one request, until one has shown it; so are the pages of the file that has
    # the row.
    assert store.requests - 1 - count <= (longer > 0) + 2
    assert sum(call.received for call in store.calls) < sum(map(len, objects.values())) // 2


def test_round_trips_of_files_that_are_opened_only_to_be_passed_over() -> None:
    """The footers of the first and the last come at once; those of the others, which are longer, take two
    requests."""
    objects = many_files(8)
    long = table(key=pa.array(range(100, 200), pa.int64()))
    objects |= {name: write_file(long, Layout(group_rows=1)) for name in list(objects)[1:7]}
    options = accel.Options(tail_hint=2048, max_tail_hint=2048)
    store = RecordingStore(DictStore(objects))
    scan = accel.scan("d/", "key < 0", store=store, cache=None, options=options)
    assert keys(scan) == []
    assert (store.requests, store.depth, scan.metrics.round_trips) == (1 + 2 + 2 * 6, 3, 3)
    plan = accel.plan("d/", "key < 0", store=store, cache=None, options=options)
    told = plan.explain()
    assert told.round_trips == {"listing": 1, "metadata": 2, "indexes": 0, "data": 0}
    assert (told.files, told.row_groups, told.rows) == ((0, 8), (0, 2 * 2 + 6 * 100), (0, 2 * 4 + 6 * 100))


def test_one_that_is_replaced_after_it_was_opened_is_opened_anew() -> None:
    def version(first: int) -> bytes:
        keys = pa.array(range(first, first + 2000), pa.int64())
        return write_file(table(key=keys), Layout(page_rows=100, dictionary=False, codec="none"))

    class Replaced(RecordingStore):
        async def read(self, path: str, want: Any, *, if_match: str | None = None) -> Any:
            if path == "d/4" and if_match is not None and inner.objects[path] != version(9000):
                inner.put(path, version(9000))
            return await super().read(path, want, if_match=if_match)

    inner = DictStore({f"d/{at}": version(2000 * at) for at in range(6)})
    options = accel.Options(tail_hint=4096)
    scan = accel.scan(
        "d/", "key >= 8990 AND key < 9010", store=Replaced(inner), cache=accel.Cache(), options=options
    )
    assert keys(scan) == list(range(9000, 9010))
    assert scan.metrics.replans == 1


def test_a_question_that_cannot_be_settled_is_asked_once(objects: dict[str, bytes]) -> None:
    store = RecordingStore(DictStore({**objects, "d/0000.parquet": b"PAR1 this is none PAR1"}))
    with pytest.raises(accel.ParquetFormatError, match="0000"):
        keys(accel.scan("d/", "key = 77", store=store, cache=None))
    assert [call.path for call in store.calls].count("d/0000.parquet") == 1


def test_few_requests_are_under_way_at_once(store: RecordingStore) -> None:
    options = accel.Options(max_files_in_flight=5)
    assert keys(accel.scan("d/", "key = 77", store=store, cache=None, options=options)) == [77]
    assert store.peak <= 6  # and the first file's, which the question opens


def test_files_that_are_through_make_room_for_others(store: RecordingStore) -> None:
    options = accel.Options(max_files_in_flight=3)
    scan = accel.scan("d/", "key >= 0", store=store, cache=None, options=options)
    found = io_loop.run(asyncio.wait_for(scan.to_table_async(), 20))
    assert found["key"].to_pylist() == list(range(4 * FILES))


@pytest.mark.parametrize(("busy", "peak"), [(False, 12), (True, 4)], ids=["idle", "busy"])
def test_more_requests_only_while_the_loop_is_idle(
    objects: dict[str, bytes], monkeypatch: pytest.MonkeyPatch, busy: bool, peak: int
) -> None:
    class Far(RecordingStore):
        under_way = most = answered = 0
        most_unanswered = 0

        async def read(self, path: str, want: Any, *, if_match: str | None = None) -> Any:
            self.under_way += 1
            self.most = max(self.most, self.under_way)
            if self.answered < 2:  # the question's own file, and the first of the others
                self.most_unanswered = max(self.most_unanswered, self.under_way)
            # Nothing is answered before an idle loop has been seen as such, however slow the machine is.
            patience = time.monotonic() + (0.05 if busy else 10.0)
            while (busy or self.most < peak) and time.monotonic() < patience:
                await asyncio.sleep(0.005)
            self.under_way -= 1
            self.answered += 1
            return await super().read(path, want, if_match=if_match)

    work = time.monotonic if busy else float
    monkeypatch.setattr(footer_prefetch, "time", SimpleNamespace(monotonic=time.monotonic, thread_time=work))
    monkeypatch.setattr(footer_prefetch, "AT_FIRST", 4)
    monkeypatch.setattr(footer_prefetch, "MORE", 4)
    store = Far(DictStore(objects))
    options = accel.Options(max_files_in_flight=12)
    assert keys(accel.scan("d/", "key = 77", store=store, cache=None, options=options)) == [77]
    assert peak <= store.most <= peak + 1  # and the first file's, which the question opens
    # An idle loop shows before the first answer has come.
    assert peak <= store.most_unanswered


def test_a_limit_opens_no_file_ahead(store: RecordingStore) -> None:
    scan = accel.scan("d/", "key >= 0", limit=2, store=store, cache=None)
    assert keys(scan) == [0, 1]
    assert store.requests <= 3


def test_two_scans_at_once_share_the_requests(store: RecordingStore) -> None:
    cache = accel.Cache()

    async def both() -> list[Any]:
        scans = [accel.scan("d/", "key = 77", store=store, cache=cache) for _ in range(2)]
        return await asyncio.gather(*(scan.to_table_async() for scan in scans))

    assert [found["key"].to_pylist() for found in asyncio.run(both())] == [[77], [77]]
    assert len([call for call in store.calls if call.want is not None]) == FILES


def broken(*_: Any, **__: Any) -> Any:
    raise RuntimeError("broken")


def cancelled(*_: Any, **__: Any) -> Any:
    raise asyncio.CancelledError


@pytest.mark.parametrize("where", ["key = 77", "key >= 0"])
@pytest.mark.parametrize("name", ["parse", "judge"])
@pytest.mark.parametrize(
    ("fail", "error"),
    [
        (broken, pytest.raises(RuntimeError, match="broken")),
        (cancelled, pytest.raises(StoreError, match="by nobody")),
    ],
    ids=["broken", "cancelled"],
)
def test_what_fails_for_many_at_once_is_told(
    store: RecordingStore, monkeypatch: pytest.MonkeyPatch, name: str, where: str, fail: Any, error: Any
) -> None:
    """An error that no single file has made leaves nobody waiting."""
    if name == "parse":
        monkeypatch.setattr(footer_prefetch.FooterBatchParser, "parse", fail)
    else:
        monkeypatch.setattr(block_pruning, "excluded_together", fail)
    cache = accel.Cache()
    scan = accel.scan("d/", where, store=store, cache=cache)

    async def within_time() -> None:
        async with asyncio.timeout(20):
            await scan.to_table_async()

    with error:
        io_loop.run(within_time())
    assert opening_tasks() == []
    assert len(cache.single_flight) == 0
    monkeypatch.undo()
    assert keys(accel.scan("d/", "key = 77", store=store, cache=cache)) == [77]


def test_who_joins_anothers_request_has_missed_its_metadata_too(objects: dict[str, bytes]) -> None:
    store, cache = Held(objects), accel.Cache()
    name = "d/0039.parquet"

    async def both() -> list[Any]:
        scans = [accel.scan(name, "key = 159", store=store, cache=cache) for _ in range(2)]
        tasks = [asyncio.create_task(scan.to_table_async()) for scan in scans]
        for _ in range(100):
            await asyncio.sleep(0)
        store.freed.set()
        found = await asyncio.gather(*tasks)
        assert [rows["key"].to_pylist() for rows in found] == [[159], [159]]
        return [(scan.metrics.metadata_hits, scan.metrics.metadata_misses) for scan in scans]

    assert io_loop.run(both()) == [(0, 1), (0, 1)]
    assert len(store.calls) == 1


class Held(RecordingStore):
    """Answers nothing of one file until it is told to."""

    def __init__(self, objects: dict[str, bytes]) -> None:
        super().__init__(DictStore(objects))
        self.freed = asyncio.Event()

    async def read(self, path: str, want: Any, *, if_match: str | None = None) -> Any:
        if path == "d/0039.parquet":
            await self.freed.wait()
        return await super().read(path, want, if_match=if_match)


def test_one_that_is_cancelled_leaves_its_files_to_the_other(objects: dict[str, bytes]) -> None:
    store, cache = Held(objects), accel.Cache()

    async def both() -> Any:
        one = asyncio.create_task(accel.scan("d/", "key = 77", store=store, cache=cache).to_table_async())
        while not store.requests > 3:
            await asyncio.sleep(0)
        other = asyncio.create_task(accel.scan("d/", "key = 77", store=store, cache=cache).to_table_async())
        await asyncio.sleep(0.001)
        one.cancel()
        with pytest.raises(asyncio.CancelledError):
            await one
        io_loop.io_loop().call_soon_threadsafe(store.freed.set)
        return await asyncio.wait_for(other, 20)

    assert asyncio.run(both())["key"].to_pylist() == [77]


def test_what_is_wrong_with_a_file_is_told_in_its_turn(objects: dict[str, bytes]) -> None:
    broken = {**objects, "d/0030.parquet": b"PAR1 this is none PAR1"}
    scan = accel.scan("d/", "key < 20", store=DictStore(broken), cache=None)
    seen: list[int] = []
    with pytest.raises(accel.ParquetFormatError, match="0030"):
        for batch in scan:
            seen += batch.column(0).to_pylist()
    assert seen == list(range(20))
    with pytest.raises(accel.ParquetFormatError, match="0030"):
        accel.plan("d/", "key < 20", store=DictStore(broken), cache=None)


def test_what_is_ready_goes_out_while_others_are_opened(objects: dict[str, bytes]) -> None:
    """The first rows do not wait for the last file."""
    store = Held(objects)
    scan = accel.scan("d/", "key IN (5, 159)", store=store, cache=None)

    async def play() -> list[list[int]]:
        found = []
        async with asyncio.timeout(20):
            async for batch in scan:
                found.append(batch.column(0).to_pylist())
                store.freed.set()
        return found

    assert io_loop.run(play()) == [[5], [159]]


def test_closing_ends_what_is_under_way(objects: dict[str, bytes]) -> None:
    class Slow(RecordingStore):
        async def read(self, path: str, want: Any, *, if_match: str | None = None) -> Any:
            if path > "d/0010":
                await asyncio.sleep(3600)
            return await super().read(path, want, if_match=if_match)

    cache = accel.Cache()
    store = Slow(DictStore(objects))
    with accel.scan("d/", "key >= 0", store=store, cache=cache) as scan:
        assert next(iter(scan)).num_rows
    assert len(cache.single_flight) == 0

    assert opening_tasks() == []


def test_closing_stops_the_clocks(objects: dict[str, bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    """What they would begin, nobody ends any more."""

    class Slow(RecordingStore):
        async def read(self, path: str, want: Any, *, if_match: str | None = None) -> Any:
            if path > "d/0003":
                await asyncio.Event().wait()
            return await super().read(path, want, if_match=if_match)

    monkeypatch.setattr(footer_prefetch, "AT_FIRST", 4)
    monkeypatch.setattr(footer_prefetch, "LOOK", 3600.0)
    monkeypatch.setattr(footer_prefetch, "PATIENCE", 3600.0)
    clocks: dict[str, asyncio.TimerHandle] = {}

    async def play() -> None:
        loop = asyncio.get_running_loop()
        call_later = loop.call_later

        def noted(delay: float, callback: Any, *args: Any, **keywords: Any) -> asyncio.TimerHandle:
            handle = call_later(delay, callback, *args, **keywords)
            name = getattr(callback, "__qualname__", "")
            if name.startswith(("FooterPrefetcher.", "RequestWidth.")):
                clocks[name] = handle
            return handle

        monkeypatch.setattr(loop, "call_later", noted)
        task = asyncio.create_task(
            accel.scan("d/", "key = 77", store=Slow(DictStore(objects)), cache=None).to_table_async()
        )
        async with asyncio.timeout(20):
            while len(clocks) < 2:
                await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        monkeypatch.setattr(loop, "call_later", call_later)

    io_loop.run(play())
    assert {name: clock.cancelled() for name, clock in clocks.items()} == {
        "RequestWidth._look": True,
        "FooterPrefetcher._parse_now": True,
    }


def test_what_is_held_of_files_that_wait_for_the_first_is_bounded() -> None:
    """No more is looked at ahead than `memory_limit` has room for, but for the files that are looked at
    together."""
    objects = many_files(130)
    options = accel.Options(memory_limit=4 * 5 * 128 * 1024, max_files_in_flight=4)
    freed = asyncio.Event()

    class First(RecordingStore):
        async def read(self, path: str, want: Any, *, if_match: str | None = None) -> Any:
            if path == "d/0000.parquet":
                await freed.wait()
            return await super().read(path, want, if_match=if_match)

    store = First(DictStore(objects))

    def asked() -> int:
        return len({call.path for call in store.calls if call.want is not None})

    async def play() -> tuple[int, Any]:
        scan = accel.scan("d/", "key = 333", store=store, cache=None, options=options)
        task = asyncio.create_task(scan.to_table_async())
        async with asyncio.timeout(20):
            while asked() < 63:  # the first is held before it is recorded
                await asyncio.sleep(0)
            for _ in range(500):
                await asyncio.sleep(0)
            ahead = asked()
            freed.set()
            return ahead, await task

    ahead, found = io_loop.run(play())
    assert (ahead, found["key"].to_pylist()) == (63, [333])


def test_none_is_opened_ahead_after_one_that_failed(objects: dict[str, bytes]) -> None:
    broken = {**objects, "d/0001.parquet": b"PAR1 this is none PAR1"}
    scan = accel.scan("d/", "key = 77", store=DictStore(broken), cache=None)

    async def play() -> tuple[PrefetchedFile | None, PrefetchedFile | None]:
        source = scan.engine.resolved(Metrics(), Tails.DROP)
        files = (await source.first_block()).files
        ahead = source.make_prefetcher()
        assert ahead is not None
        async with aclosing(ahead):
            opening = ahead.ask(files[1])
            while opening is not None and not opening.done:
                await ahead.progress()
            return opening, ahead.ask(files[2])

    opening, after = io_loop.run(play())
    assert opening is not None
    assert isinstance(opening.error, accel.ParquetFormatError)
    assert after is None


def test_a_plan_that_fails_ends_what_is_under_way(objects: dict[str, bytes]) -> None:
    class Slow(RecordingStore):
        async def read(self, path: str, want: Any, *, if_match: str | None = None) -> Any:
            if path > "d/0010":
                await asyncio.Event().wait()
            return await super().read(path, want, if_match=if_match)

    broken = {**objects, "d/0000.parquet": b"PAR1 this is none PAR1"}
    cache = accel.Cache()
    with pytest.raises(accel.ParquetFormatError, match="0000"):
        accel.plan("d/", "key = 77", store=Slow(DictStore(broken)), cache=cache)
    assert len(cache.single_flight) == 0
    assert opening_tasks() == []


@pytest.mark.parametrize("hint", [None, 16], ids=["in one request", "in two"])
def test_the_disk_remembers_them(objects: dict[str, bytes], tmp_path: Path, hint: int | None) -> None:
    options = accel.Options(tail_hint=hint, max_tail_hint=hint or accel.Options().max_tail_hint)
    source = tmp_path / "d"
    source.mkdir()
    for name, data in objects.items():
        (source / name[2:]).write_bytes(data)
    found = []
    for _ in range(2):
        cache = accel.Cache(disk=tmp_path / "disk")
        scan = accel.scan(str(source), "key = 77", cache=cache, options=options)
        assert keys(scan) == [77]
        found.append((scan.metrics.metadata_hits, scan.metrics.metadata_misses, cache.stats().disk_hits))
    # A local file's etag is strong.
    assert found == [(0, FILES, 0), (FILES, 0, FILES)]


def test_scans_that_open_each_others_first_file(objects: dict[str, bytes]) -> None:
    """What settles the question of one is under way in the other, and the other way round."""
    names = list(objects)
    store, cache = RecordingStore(DictStore(objects)), accel.Cache()
    orders = [names, names[::-1], [*names[20:], *names[:20]], [*names, *names]]

    async def every() -> list[Any]:
        scans = [accel.scan(some, "key = 77", store=store, cache=cache) for some in orders]
        async with asyncio.timeout(30):
            return await asyncio.gather(*(scan.to_table_async() for scan in scans))

    assert [found["key"].to_pylist() for found in asyncio.run(every())] == [[77], [77], [77], [77, 77]]
    assert len({call.path for call in store.calls}) == FILES


# -- batch worker -----------------------------------------------------------------------------------


class Play:
    """BatchWorker of numbers, and what became of them."""

    def __init__(self, most: int) -> None:
        self.tasks: list[asyncio.Task[None]] = []
        self.done: list[list[int]] = []
        self.under_way = 0
        self.ended = 0
        self.broken = False
        self.batches: BatchWorker[int] = BatchWorker(self.start, self.do, most=most, then=self.then)

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        self.tasks.append(asyncio.get_running_loop().create_task(work))

    async def do(self, some: Sequence[int]) -> None:
        self.under_way += 1
        assert self.under_way == 1
        await asyncio.sleep(0)
        self.under_way -= 1
        if self.broken:
            raise ValueError("broken")
        self.done.append(list(some))

    def then(self) -> None:
        self.ended += 1
        self.batches.begin()

    async def end(self) -> None:
        while any(not task.done() for task in self.tasks):
            await asyncio.sleep(0)


@pytest.mark.parametrize(("most", "batches"), [(3, [3, 3, 1]), (7, [7]), (10, [7]), (1, [1] * 7)])
async def test_some_at_a_time_in_order(most: int, batches: list[int]) -> None:
    play = Play(most)
    play.batches.waiting += range(7)
    play.batches.begin()
    play.batches.begin()  # while some are gone through it does nothing
    await play.end()
    assert [len(some) for some in play.done] == batches
    assert [one for some in play.done for one in some] == list(range(7))
    assert (play.ended, len(play.tasks)) == (len(batches), len(batches))
    assert (play.batches.waiting, play.batches.busy) == ([], False)


async def test_what_comes_meanwhile_is_of_the_next() -> None:
    play = Play(10)
    play.batches.waiting.append(1)
    play.batches.begin()
    await asyncio.sleep(0)
    play.batches.waiting.append(2)
    await play.end()
    assert play.done == [[1], [2]]


async def test_nothing_is_begun_for_nothing() -> None:
    play = Play(3)
    play.batches.begin()
    assert play.tasks == []


async def test_a_failure_ends_that_time_only() -> None:
    play = Play(2)
    play.batches.waiting += [1, 2, 3]
    play.broken = True
    play.batches.begin()
    await asyncio.wait(play.tasks)
    assert str(play.tasks[0].exception()) == "broken"
    assert (play.ended, play.batches.busy, play.batches.waiting) == (0, False, [3])
    play.broken = False
    play.batches.begin()
    await play.end()
    assert play.done == [[3]]


# -- footer desk ------------------------------------------------------------------------------------


def file_of(groups: int, *, writer: str = "pyarrow") -> Tail:
    """The end of a file that holds a footer and little else."""
    footer = WRITERS[writer](3, groups)
    start = 1 << 20
    data = b"...." + footer + len(footer).to_bytes(4, "little") + b"PAR1"
    return Tail(memoryview(data), start - 4, start + len(footer) + 8, '"e"')


def parse_all(desk: FooterBatchParser, tails: list[Tail]) -> list[int | None]:
    """The row groups of each, None for what is left to the caller."""
    return [None if metadata is None else metadata.num_row_groups for metadata in desk.parse(tails)]


def test_few_are_left_to_the_caller():
    assert parse_all(FooterBatchParser(shared_schema), [file_of(1)] * 3) == [None] * 3


def test_many_are_parsed_together_and_share_a_schema():
    desk = FooterBatchParser(shared_schema)
    tails = [file_of(1 + number % 3) for number in range(40)]
    assert parse_all(desk, tails) == [1 + number % 3 for number in range(40)]
    first, *others = desk.parse(tails[:4])
    assert first is not None
    assert all(other is not None and other.schema is first.schema for other in others)


def test_they_say_what_each_says_by_itself():
    tails = [file_of(1 + number % 3) for number in range(6)]
    for tail, found in zip(tails, FooterBatchParser(shared_schema).parse(tails), strict=True):
        plain = parse_footer(bytes(tail.data[4:-8]), file_size=tail.size, footer_start=1 << 20)
        assert found is not None
        assert (found.num_rows, found.footer, found.footer_start) == (plain.num_rows, plain.footer, 1 << 20)


def test_what_is_not_like_the_others_is_left_to_the_caller():
    tails = [*(file_of(2) for _ in range(6)), file_of(2, writer="polars")]
    bad = Tail(memoryview(bytes(tails[0].data[:-4]) + b"PARX"), tails[0].start, tails[0].size, '"e"')
    assert parse_all(FooterBatchParser(shared_schema), [*tails, bad]) == [2] * 6 + [None, None]


def test_a_broken_footer_spoils_only_its_batch():
    desk = FooterBatchParser(shared_schema)
    good = [file_of(2) for _ in range(6)]
    assert parse_all(desk, good) == [2] * 6
    data = bytearray(good[0].data)
    at = len(data) // 2
    data[at : at + 40] = b"\xff" * 40
    broken = Tail(memoryview(bytes(data)), good[0].start, good[0].size, '"e"')
    found = parse_all(desk, [*good, broken])
    assert found[-1] is None
    assert set(found[:-1]) <= {2, None}
    assert parse_all(desk, good) == [2] * 6


def test_files_that_have_nothing_in_common_are_soon_let_be():
    desk = FooterBatchParser(shared_schema)
    writers = [name for name in WRITERS if name != "pyarrow"][:4]
    mixed = [file_of(2, writer=name) for name in writers]
    for _ in range(12):
        assert desk.parse(mixed)[1:] == [None] * 3
    assert desk.parse([file_of(2)] * 8) == [None] * 8


# -- width ------------------------------------------------------------------------------------------


class Clock:
    """Time as told, and the loop's own share of it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = self.worked = 0.0
        told = SimpleNamespace(monotonic=lambda: self.now, thread_time=lambda: self.worked)
        monkeypatch.setattr(width, "time", told)
        monkeypatch.setattr(width, "LOOK", 0.0)


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


@pytest.mark.parametrize(("worked", "grows"), [(0.0, True), (0.74, True), (0.75, False), (1.0, False)])
async def test_it_grows_while_the_loop_is_idle(
    monkeypatch: pytest.MonkeyPatch, worked: float, grows: bool
) -> None:
    clock, looked = Clock(monkeypatch), []
    limit = RequestWidth(200, widened=lambda: looked.append(limit.now))
    assert limit.now == 128
    for _ in range(3):
        limit.ask()
        limit.ask()  # it is looked at already
        clock.now += 1.0
        clock.worked += worked
        await turns()
    assert looked == ([160, 192, 200] if grows else [128, 128, 128])
    limit.ask()
    await turns()
    assert len(looked) == (3 if grows else 4)  # at its most nobody looks


async def test_a_small_limit_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    Clock(monkeypatch)
    looked: list[int] = []
    limit = RequestWidth(3, widened=lambda: looked.append(limit.now))
    limit.ask()
    await turns()
    assert (limit.now, looked) == (3, [])


async def test_closed_it_looks_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    Clock(monkeypatch)
    looked: list[int] = []
    limit = RequestWidth(200, widened=lambda: looked.append(limit.now))
    limit.close()
    limit.ask()
    limit.close()
    await turns()
    assert (limit.now, looked) == (128, [])
