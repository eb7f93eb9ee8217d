"""Runs over a reader that does as told: order, limits, errors in their turn, starting over, closing.

Nothing sleeps: what is fetched waits for an event that the test sets."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import accel
from accel.errors import AccelError, ObjectChangedError, ParquetFormatError, StoreError
from accel.metrics import Metrics
from accel.options import Options
from accel.planning.pages import Piece
from accel.planning.query import Question
from accel.planning.selection import RowSelection
from accel.planning.task import ScanTask
from accel.planning.two_phase import ObservedSelectivity
from accel.reader.task_reads import PieceRead
from accel.scanning.file_jobs import FileJob, FileJobs
from accel.scanning.file_run import ReadyBatch
from accel.scanning.run import Run
from accel.store.network import Network
from accel.store.request_errors import foremost
from accel.testing import DictStore, Layout, table, write_file

ROWS = 40
Batches = list[list[int]]


@pytest.fixture(scope="module")
def planned() -> list[list[ScanTask]]:
    """The tasks of six files: file i holds the rows 100 i up to 100 i + 40, in two row groups, pages of five.
    What lies between the groups keeps them from being read together."""
    store, layout = DictStore(), Layout(group_rows=20, page_rows=5, dictionary=False, codec="none")
    apart = pa.array([b"." * 60_000] * ROWS)
    for i in range(6):
        column = pa.array(np.arange(100 * i, 100 * i + ROWS))
        store.put(f"{i}", write_file(table(x=column, apart=apart), layout))
    return [list(accel.plan(f"{i}", columns=["x"], store=store, cache=None).tasks) for i in range(6)]


class FakeReader:
    """Hands out the rows that tasks name. `before` is awaited for each piece, and may raise or wait."""

    def __init__(self, before: Callable[[ScanTask, Piece], Any] | None = None, **options: Any) -> None:
        self.options = Options(**options)
        self.metrics = Metrics()
        self.seen = ObservedSelectivity()
        self.network = Network(latency=0.03, bandwidth=90e6)
        self.before = before
        self.fetched: list[tuple[str, list[tuple[int, int]]]] = []

    def client(self, root: str) -> FakeReader:
        return self

    def max_pieces(self, root: str) -> int:
        return self.options.max_tasks_in_flight

    def forecast(self, task: ScanTask, *, concurrent: int) -> None:
        """Return that a task is read in one phase."""

    def reads(self, task: ScanTask, *, concurrent: int = 1) -> FakeReads:
        return FakeReads(self, task)

    async def decode_alike(self, task: ScanTask, read: PieceRead, permit: Any) -> None:
        pass

    async def decode(self, task: ScanTask, read: PieceRead, *, found: None = None) -> list[pa.RecordBatch]:
        start = 100 * int(task.path) + 20 * task.row_group
        values = [start + row for a, b in read.piece.rows for row in range(a, b)]
        return [pa.RecordBatch.from_arrays([pa.array(values)], names=["x"])] if values else []


class FakeOutcome:
    """Nothing is kept."""

    def get_piece(self, piece: Piece) -> None:
        pass

    def put(self, piece: Piece, batches: list[pa.RecordBatch]) -> None:
        pass


class FakeReads:
    two_phases = False
    result = FakeOutcome()

    def __init__(self, reader: FakeReader, task: ScanTask) -> None:
        self.reader, self.task = reader, task

    def expect(self, pieces: list[Piece]) -> None:
        pass

    def in_phases(self, piece: Piece) -> bool:
        return False

    def held_bytes(self, piece: Piece) -> int:
        return piece.held_bytes

    async def fetch(self, piece: Piece) -> PieceRead:
        if self.reader.before is not None:
            await self.reader.before(self.task, piece)
        self.reader.fetched.append((self.task.path, list(piece.rows)))
        return PieceRead(piece, {}, 1)


class Files(FileJobs):
    """Gives the tasks of files, and fails where `failures` says so."""

    def __init__(
        self,
        reader: FakeReader,
        planned: Sequence[Sequence[ScanTask]],
        failures: dict[int, list[BaseException]],
    ) -> None:
        self.reader = reader  # type: ignore[assignment]
        self.planned = planned
        self.places = iter(range(len(planned)))
        self.failures = failures
        self.asked: list[int] = []
        self.forgotten: list[int] = []
        self.distrusted: list[int] = []
        self.gates: dict[int, asyncio.Event] = {}
        self.final = False

    async def __anext__(self) -> FileJob:
        for place in self.places:
            return self._job(place)
        raise StopAsyncIteration

    async def question(self) -> Question:
        raise NotImplementedError

    def _job(self, i: int) -> FileJob:
        async def tasks() -> tuple[Sequence[ScanTask], int]:
            self.asked.append(i)
            if i in self.gates:
                await self.gates[i].wait()
            if self.failures.get(i):
                raise self.failures[i].pop(0)
            return self.planned[i], 1

        def forget() -> bool:
            self.forgotten.append(i)
            return not self.final

        def distrust() -> bool:
            self.distrusted.append(i)
            return True

        return FileJob(tasks, forget, distrust)


def make(
    planned: Sequence[Sequence[ScanTask]],
    reader: FakeReader | None = None,
    *,
    limit: int | None = None,
    ordered: bool = True,
    failures: dict[int, list[BaseException]] | None = None,
) -> tuple[Run, Files]:
    files = Files(reader or FakeReader(), planned, failures or {})
    run = Run(files, limit=limit, ordered=ordered, speculates=False)
    return run, files


def failing(error: BaseException | type[BaseException]) -> Files:
    """A source whose files cannot be listed."""

    class Failing(Files):
        async def __anext__(self) -> FileJob:
            raise error

    return Failing(FakeReader(), [], {})


async def rows_of(run: Run) -> list[int]:
    out: list[int] = []
    async with asyncio.timeout(20):
        while (batch := await run.take()) is not None:
            out += batch.column(0).to_pylist()
    return out


async def settle() -> None:
    for _ in range(30):
        await asyncio.sleep(0)


def others() -> set[asyncio.Task[Any]]:
    return asyncio.all_tasks() - {asyncio.current_task()}  # type: ignore[arg-type]


def expected(*files: int) -> list[int]:
    return [100 * i + row for i in files for row in range(ROWS)]


async def test_rows_in_order_and_nothing_left(planned: list[list[ScanTask]]) -> None:
    run, files = make(planned)
    assert await rows_of(run) == expected(*range(6))
    assert files.asked == list(range(6))
    assert files.reader.metrics.rows_out == 6 * ROWS
    assert await run.take() is None
    assert others() == set()
    assert (run.limits.admission.admitted, run.limits.admission.pinned) == ({}, {})


async def test_no_files() -> None:
    run, _ = make([])
    assert await rows_of(run) == []


@pytest.mark.parametrize("limit", [0, 1, 39, 40, 41, 100, 139, 239, 240, 241])
@pytest.mark.parametrize("slow", range(6))
async def test_a_limit_takes_the_first_rows_whichever_file_is_planned_last(
    planned: list[list[ScanTask]], limit: int, slow: int
) -> None:
    run, files = make(planned, limit=limit)
    files.gates[slow] = gate = asyncio.Event()

    async def open_late() -> None:
        await settle()
        gate.set()

    late = asyncio.create_task(open_late())
    assert await rows_of(run) == expected(*range(6))[:limit]
    await late
    assert others() == set()


async def test_a_limit_within_the_first_file_reads_nothing_more(planned: list[list[ScanTask]]) -> None:
    reader = FakeReader()
    run, files = make(planned, reader, limit=7)
    assert await rows_of(run) == list(range(7))
    assert (files.asked, reader.fetched) == ([0], [("0", [(0, 7)])])


async def test_a_limit_behind_a_filter(planned: list[list[ScanTask]]) -> None:
    """Tasks that need their filter spend nothing, and the first files give no row."""
    filtered = [[replace(t, certain=RowSelection.none()) for t in tasks] for tasks in planned]
    filtered[0] = [replace(t, rows=RowSelection.none()) for t in filtered[0]]
    run, _ = make(filtered, limit=50)
    assert await rows_of(run) == expected(1, 2)[:50]


async def test_unordered_gives_every_row_once(planned: list[list[ScanTask]]) -> None:
    run, files = make(planned, ordered=False)
    files.gates[0] = gate = asyncio.Event()
    first = await run.take()
    assert first is not None
    assert first.column(0)[0].as_py() >= 100
    gate.set()
    rest = await rows_of(run)
    assert sorted(first.column(0).to_pylist() + rest) == expected(*range(6))


async def test_unordered_with_a_limit(planned: list[list[ScanTask]]) -> None:
    run, _ = make(planned, ordered=False, limit=110)
    rows = await rows_of(run)
    assert len(rows) == len(set(rows)) == 110
    assert set(rows) <= set(expected(*range(6)))
    assert others() == set()


async def test_an_error_comes_in_its_turn(planned: list[list[ScanTask]]) -> None:
    run, _ = make(planned, failures={2: [StoreError("gone")]})
    out: list[int] = []
    with pytest.raises(StoreError, match="gone"):
        while (batch := await run.take()) is not None:
            out += batch.column(0).to_pylist()
    assert out == expected(0, 1)
    assert await run.take() is None
    assert others() == set()


async def test_an_error_past_the_limit_is_none(planned: list[list[ScanTask]]) -> None:
    """Files 1 and 2 are opened together; 2 fails, yet file 1 has all the rows that are left."""
    run, files = make(planned, limit=60, failures={2: [StoreError("gone")]})
    files.gates[1] = gate = asyncio.Event()
    taken = asyncio.create_task(rows_of(run))
    await settle()
    assert 2 in files.asked
    gate.set()
    assert await taken == expected(0, 1)[:60]


async def test_an_error_unordered_ends_the_run(planned: list[list[ScanTask]]) -> None:
    run, _ = make(planned, ordered=False, failures={1: [StoreError("gone")]})
    with pytest.raises(StoreError, match="gone"):
        await rows_of(run)
    assert others() == set()


async def test_an_error_of_the_listing() -> None:
    run = Run(failing(StoreError("cannot list")), limit=None, ordered=True, speculates=False)
    with pytest.raises(StoreError, match="cannot list"):
        await run.take()


async def test_an_error_that_is_no_exception_ends_the_run() -> None:
    class Panic(BaseException):
        pass

    run = Run(failing(Panic), limit=None, ordered=True, speculates=False)
    with pytest.raises(Panic):
        await asyncio.wait_for(run.take(), 20)


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("files", [1, 3])
async def test_what_cancels_itself_ends_the_run(
    planned: list[list[ScanTask]], files: int, ordered: bool
) -> None:
    """A group takes a task that has ended so for one that was told to: whoever waits for it must hear of
    it."""

    async def before(task: ScanTask, piece: Piece) -> None:
        if task.row_group == 1:
            raise asyncio.CancelledError

    reader = FakeReader(before)
    run, _ = make(planned[:files], reader, ordered=ordered)
    with pytest.raises(StoreError, match="was cancelled, and by nobody who waits for it"):
        await rows_of(run)
    run, _ = make(planned[:files], ordered=ordered, failures={0: [asyncio.CancelledError()]})
    with pytest.raises(StoreError, match="was cancelled, and by nobody who waits for it"):
        await rows_of(run)
    assert others() == set()


async def test_rows_that_came_before_a_piece_failed_are_handed_out(planned: list[list[ScanTask]]) -> None:
    async def before(task: ScanTask, piece: Piece) -> None:
        if task.row_group == 1:
            raise StoreError("the second group")

    run, _ = make(planned[:1], FakeReader(before), limit=20)
    assert await rows_of(run) == list(range(20))
    run, _ = make(planned[:1], FakeReader(before))
    first = await run.take()
    assert first is not None
    assert first.column(0).to_pylist() == list(range(20))
    with pytest.raises(StoreError, match="the second group"):
        await run.take()


@pytest.mark.parametrize(
    "failure",
    [
        pytest.param(StoreError("the second group"), id="of the store"),
        pytest.param(asyncio.CancelledError(), id="of what cancels itself"),
        pytest.param(ObjectChangedError("another version"), id="of a file whose tasks are fixed"),
    ],
)
async def test_a_piece_that_fails_first_is_told_after_those_before_it(
    planned: list[list[ScanTask]], failure: BaseException
) -> None:
    """Group 0 comes in two pieces, the second of which is there only after group 1 has failed."""
    failed = asyncio.Event()

    async def before(task: ScanTask, piece: Piece) -> None:
        if task.row_group == 1:
            failed.set()
            raise failure
        await failed.wait()
        for _ in range(20):
            await asyncio.sleep(0)

    run, files = make(planned[:1], FakeReader(before))
    files.final = True
    rows: list[int] = []
    with pytest.raises(AccelError) as caught:
        while (batch := await run.take()) is not None:
            rows += batch.column(0).to_pylist()
    assert rows == list(range(20))
    assert isinstance(failure, asyncio.CancelledError) or caught.value is failure
    assert (files.asked, files.distrusted) == ([0], [])
    assert run.limits.admission.admitted == {}
    assert others() == set()


async def test_nothing_is_started_after_a_piece_that_failed(planned: list[list[ScanTask]]) -> None:
    """Four groups as those of one file: the third fails while two are on their way, and the fourth waits for
    room."""
    failed = asyncio.Event()
    started: list[tuple[str, int]] = []

    async def before(task: ScanTask, piece: Piece) -> None:
        started.append((task.path, task.row_group))
        if (task.path, task.row_group) == ("1", 0):
            failed.set()
            raise StoreError("the third group")
        await failed.wait()
        for _ in range(1 + task.row_group):
            await settle()  # the first is taken, which makes room, while the second is on its way

    reader = FakeReader(before, max_tasks_in_flight=3, piece_bytes=1)
    reader.network = Network(latency=0.0, bandwidth=1.0)  # nothing to be covered by reading further ahead
    run, _ = make([[*planned[0], *planned[1]]], reader)
    rows: list[int] = []
    with pytest.raises(StoreError, match="the third group"):
        while (batch := await run.take()) is not None:
            rows += batch.column(0).to_pylist()
    assert rows == expected(0)
    assert started == [("0", 0), ("0", 1), ("1", 0)]


async def test_a_changed_file_is_planned_once_more(planned: list[list[ScanTask]]) -> None:
    run, files = make(planned[:2], failures={1: [ObjectChangedError("new version")]})
    assert await rows_of(run) == expected(0, 1)
    assert files.asked == [0, 1, 1]
    assert files.forgotten == [1]


async def test_a_file_that_changes_twice_is_an_error(planned: list[list[ScanTask]]) -> None:
    changed: list[BaseException] = [ObjectChangedError("once"), ObjectChangedError("twice")]
    run, files = make(planned[:1], failures={0: changed})
    with pytest.raises(ObjectChangedError, match="twice"):
        await run.take()
    assert files.asked == [0, 0]


async def test_fixed_tasks_are_not_planned_again_but_forgotten(planned: list[list[ScanTask]]) -> None:
    run, files = make(planned[:1], failures={0: [ObjectChangedError("new version")]})
    files.final = True
    with pytest.raises(ObjectChangedError, match="new version"):
        await run.take()
    assert (files.asked, files.forgotten) == ([0], [0])


async def test_a_file_that_changes_after_its_first_rows_is_an_error(planned: list[list[ScanTask]]) -> None:
    first_is_out = asyncio.Event()

    async def before(task: ScanTask, piece: Piece) -> None:
        if task.row_group == 1:
            await first_is_out.wait()
            raise ObjectChangedError("too late")

    run, files = make(planned[:1], FakeReader(before))
    batch = await run.take()
    assert batch is not None
    first_is_out.set()
    with pytest.raises(ObjectChangedError, match="too late"):
        await run.take()
    assert (files.asked, files.forgotten) == ([0], [0])


async def test_pages_that_contradict_their_index_after_the_first_rows_are_an_error(
    planned: list[list[ScanTask]],
) -> None:
    """Read anew, the file would give its first rows twice."""
    first_is_out = asyncio.Event()

    async def before(task: ScanTask, piece: Piece) -> None:
        if task.row_group == 1:
            await first_is_out.wait()
            raise ParquetFormatError("the page is another")

    run, files = make(planned[:1], FakeReader(before))
    batch = await run.take()
    assert batch is not None
    first_is_out.set()
    with pytest.raises(ParquetFormatError, match="the page is another"):
        await run.take()
    assert (files.asked, files.distrusted) == ([0], [])


async def test_a_changed_file_gives_none_of_the_rows_it_had_before(planned: list[list[ScanTask]]) -> None:
    """File 1's first group was decoded, and not handed out, when its second turns out to have changed."""
    hold, seen = asyncio.Event(), []

    async def before(task: ScanTask, piece: Piece) -> None:
        if task.path == "0":
            await hold.wait()
        if task.path == "1" and task.row_group == 1 and not seen:
            seen.append(1)
            raise ObjectChangedError("new version")

    run, files = make(planned[:2], FakeReader(before))
    rows = asyncio.create_task(rows_of(run))
    await settle()
    hold.set()
    assert await rows == expected(0, 1)
    assert files.asked == [0, 1, 1]
    assert run.limits.admission.admitted == {}


async def test_nothing_comes_out_of_an_attempt_that_is_being_ended(planned: list[list[ScanTask]]) -> None:
    """The second file changed, and a piece of it takes its time to end: its first group is not handed out
    meanwhile."""
    hold, change, go = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def before(task: ScanTask, piece: Piece) -> None:
        place = (task.path, task.row_group)
        if task.path == "0":
            await hold.wait()
        elif place == ("1", 1) and not change.is_set():
            await change.wait()
            raise ObjectChangedError("new version")
        elif place == ("2", 0) and not go.is_set():
            try:
                await asyncio.sleep(60)
            finally:
                await go.wait()

    # Pieces so small that row groups are not read together.
    run, files = make([planned[0], [*planned[1], *planned[2]]], FakeReader(before, piece_bytes=1))
    rows = asyncio.create_task(rows_of(run))
    for event in (change, hold, go):
        await settle()
        event.set()
    assert await rows == expected(0, 1, 2)
    assert files.asked == [0, 1, 1]
    assert run.limits.admission.admitted == {}


async def test_pages_that_contradict_their_index_are_read_without_it(planned: list[list[ScanTask]]) -> None:
    told = []

    async def before(task: ScanTask, piece: Piece) -> None:
        if not told:
            told.append(1)
            raise ParquetFormatError("the page is another")

    run, files = make(planned[:1], FakeReader(before))
    assert await rows_of(run) == expected(0)
    assert (files.asked, files.distrusted, files.forgotten) == ([0, 0], [0], [])


async def test_a_limit_after_a_replan_of_a_shorter_file(planned: list[list[ScanTask]]) -> None:
    """What the first version would have given does not count: the next files fill up."""
    tries = []

    async def before(task: ScanTask, piece: Piece) -> None:
        if task.path == "1" and not tries:
            tries.append(1)
            files.planned = [planned[0], planned[1][1:], *planned[2:]]
            raise ObjectChangedError("shorter now")

    run, files = make(planned, FakeReader(before), limit=90)
    assert await rows_of(run) == (expected(0) + expected(1)[20:] + expected(2))[:90]


async def test_closing_a_run_whose_queue_is_full_and_whose_end_is_an_error(
    planned: list[list[ScanTask]],
) -> None:
    """The error would wait for room in the queue for ever."""
    closing = asyncio.Event()

    async def before(task: ScanTask, piece: Piece) -> None:
        if task.path == "5":
            try:
                await closing.wait()
            except asyncio.CancelledError:
                raise StoreError("while it was cancelled") from None

    run, _ = make(planned, FakeReader(before))
    assert await run.take() is not None
    await settle()
    await asyncio.wait_for(run.close(), 20)
    assert others() == set()


@pytest.mark.parametrize("by", ["close", "cancel"])
async def test_who_waits_is_told_when_the_run_is_ended(planned: list[list[ScanTask]], by: str) -> None:
    never = asyncio.Event()

    async def before(task: ScanTask, piece: Piece) -> None:
        await never.wait()

    run, _ = make(planned, FakeReader(before))
    waiting = asyncio.create_task(run.take())
    await settle()
    if by == "close":
        await run.close()
    else:
        for task in others() - {waiting}:
            task.cancel()
    with pytest.raises(AccelError, match="the scan was closed before its end"):
        await asyncio.wait_for(waiting, 20)
    if by == "close":
        with pytest.raises(AccelError, match="the scan was closed before its end"):
            await run.take()
    assert others() == set()


async def test_a_run_that_is_closed_as_its_file_changes_plans_nothing_anew(
    planned: list[list[ScanTask]],
) -> None:
    """A task that fails drops, in Python's groups before 3.13, the cancellation that comes meanwhile. What
    was planned anew then was read for nobody, and as nobody took it, waited for room for ever; and `close`
    for it."""
    begun, go = asyncio.Event(), asyncio.Event()

    async def before(task: ScanTask, piece: Piece) -> None:
        if task.row_group == 0:
            await begun.wait()
            raise ObjectChangedError("new version")
        begun.set()
        try:
            await asyncio.sleep(60)
        finally:
            await go.wait()

    run, files = make(planned[:1], FakeReader(before))
    taking = asyncio.create_task(run.take())
    await settle()
    closing = asyncio.create_task(run.close())
    await settle()
    go.set()
    async with asyncio.timeout(20):
        await closing
    with pytest.raises(AccelError, match="closed before its end"):
        await taking
    assert (files.asked, files.forgotten) == ([0], [0])
    assert others() == set()


async def test_closing_before_the_first_batch_and_twice(planned: list[list[ScanTask]]) -> None:
    run, files = make(planned)
    await run.close()
    await run.close()
    with pytest.raises(AccelError, match="closed before its end"):
        await run.take()
    assert files.asked == []


async def test_closing_after_the_end_changes_nothing(planned: list[list[ScanTask]]) -> None:
    run, _ = make(planned[:1])
    assert await rows_of(run) == expected(0)
    await run.close()
    assert await run.take() is None


@pytest.mark.parametrize("turns", range(0, 60, 3))
async def test_cancelled_at_any_turn_leaves_nothing(planned: list[list[ScanTask]], turns: int) -> None:
    async def before(task: ScanTask, piece: Piece) -> None:
        for _ in range(task.row_group + 2):
            await asyncio.sleep(0)

    run, _ = make(planned, FakeReader(before, memory_limit=900, piece_bytes=40))
    reading = asyncio.create_task(rows_of(run))
    for _ in range(turns):
        await asyncio.sleep(0)
    if reading.done():
        pytest.fail("too few turns: it had ended")
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    await run.close()
    assert others() == set()


async def test_a_slow_consumer_holds_no_more_than_the_limit(planned: list[list[ScanTask]]) -> None:
    limit = 1200
    run, _ = make(planned, FakeReader(memory_limit=limit, piece_bytes=40))
    out: list[int] = []
    most = 0
    while (batch := await run.take()) is not None:
        out += batch.column(0).to_pylist()
        await settle()
        most = max(most, sum(run.limits.admission.admitted.values()))
    assert out == expected(*range(6))
    assert 0 < most <= limit


class Halves(FakeReader):
    """Gives each piece in two batches."""

    async def decode(self, task: ScanTask, read: PieceRead, *, found: None = None) -> list[pa.RecordBatch]:
        (batch,) = await super().decode(task, read)
        return [batch.slice(0, 10), batch.slice(10)]


async def test_a_piece_holds_its_room_until_its_last_batch_is_taken(planned: list[list[ScanTask]]) -> None:
    run, _ = make(planned[:1], Halves())
    held: list[list[tuple[int, ...]]] = []
    while await run.take() is not None:
        await settle()
        held.append(sorted(run.limits.admission.admitted))
    assert held == [[(0, 0), (0, 1)], [(0, 1)], [(0, 1)], []]


async def test_a_failure_lets_go_of_nothing_that_is_still_to_be_taken(planned: list[list[ScanTask]]) -> None:
    async def before(task: ScanTask, piece: Piece) -> None:
        if task.row_group == 1:
            raise StoreError("the second group")

    run, _ = make(planned[:1], Halves(before))
    assert await run.take() is not None
    await settle()
    assert sorted(run.limits.admission.admitted) == [(0, 0)]
    assert await run.take() is not None
    assert run.limits.admission.admitted == {}
    with pytest.raises(StoreError, match="the second group"):
        await run.take()


@pytest.mark.parametrize("closed", [True, False], ids=["before its first step", "no"])
@pytest.mark.parametrize("ordered", [True, False])
async def test_whatever_ends_a_run_closes_its_files(
    planned: list[list[ScanTask]], closed: bool, ordered: bool
) -> None:
    class Closing(Files):
        closed = 0

        async def aclose(self) -> None:
            self.closed += 1

    jobs = Closing(FakeReader(), [], {})
    run = Run(jobs, limit=None, ordered=ordered, speculates=False)
    taking = asyncio.create_task(run.take())
    for _ in range(2):
        await asyncio.sleep(0)  # the files are known, and nothing has been done with them
    if closed:
        await run.close()
        with pytest.raises(AccelError, match="closed before its end"):
            await taking
    else:
        assert await taking is None
    assert jobs.closed >= 1
    assert others() == set()


async def test_a_piece_too_large_names_its_file_and_row_group(planned: list[list[ScanTask]]) -> None:
    run, _ = make(planned[:1], FakeReader(memory_limit=8, piece_bytes=1))
    with pytest.raises(accel.MemoryLimitError) as caught:
        await run.take()
    assert (caught.value.path, caught.value.place) == ("0", "row group 0")


CHANGED, FORMAT, OTHER = ObjectChangedError("c"), ParquetFormatError("f"), KeyError("k")


@pytest.mark.parametrize(
    ("errors", "shown"),
    [
        pytest.param([OTHER], OTHER, id="one"),
        pytest.param([OTHER, FORMAT], FORMAT, id="accel's own first"),
        pytest.param([FORMAT, CHANGED, OTHER], CHANGED, id="another version says most"),
        pytest.param([ExceptionGroup("", [OTHER, ExceptionGroup("", [CHANGED])])], CHANGED, id="nested"),
    ],
)
def test_the_error_of_a_group(errors: list[Exception], shown: Exception) -> None:
    assert foremost(ExceptionGroup("", errors)) is shown


@pytest.fixture
def single(planned: list[list[ScanTask]]) -> list[list[ScanTask]]:
    """One file of one piece: read by who takes it, without a task."""
    return [planned[0][:1]]


@pytest.mark.parametrize("kind", [ObjectChangedError, ParquetFormatError])
@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("planning", [True, False])
async def test_a_single_piece_is_read_once_more(
    single: list[list[ScanTask]], kind: type[AccelError], times: int, planning: bool
) -> None:
    errors: list[BaseException] = [kind("first"), kind("second")][:times]

    async def before(task: ScanTask, piece: Piece) -> None:
        if not planning and errors:
            raise errors.pop(0)

    run, files = make(single, FakeReader(before), failures={0: errors} if planning else None)
    if times == 1:
        assert await rows_of(run) == list(range(20))
    else:
        with pytest.raises(kind, match="second"):
            await run.take()
        assert await run.take() is None
    assert (files.asked, len(files.forgotten) + len(files.distrusted)) == ([0, 0], 1)
    assert (run.limits.admission.admitted, others()) == ({}, set())


async def test_closed_while_a_single_piece_is_read(single: list[list[ScanTask]]) -> None:
    never = asyncio.Event()

    async def before(task: ScanTask, piece: Piece) -> None:
        await never.wait()

    run, _ = make(single, FakeReader(before))
    waiting = [asyncio.create_task(run.take()) for _ in range(2)]
    await settle()
    await asyncio.gather(run.close(), run.close())
    for taker in waiting:
        with pytest.raises(AccelError, match="the scan was closed before its end"):
            await asyncio.wait_for(taker, 20)
        assert taker.cancelling() == 0
    assert others() == set()


async def test_cancelled_and_closed_while_a_single_piece_is_read(single: list[list[ScanTask]]) -> None:
    """Who is cancelled is told so, whatever else happens to the run."""
    never = asyncio.Event()

    async def before(task: ScanTask, piece: Piece) -> None:
        await never.wait()

    run, _ = make(single, FakeReader(before))
    taker = asyncio.create_task(run.take())
    await settle()
    taker.cancel()
    await run.close()
    with pytest.raises(asyncio.CancelledError):
        await taker
    with pytest.raises(AccelError, match="closed before its end"):
        await run.take()
    assert others() == set()


@pytest.mark.parametrize("turns", range(5))
@pytest.mark.parametrize("by", ["cancel", "close"])
async def test_ended_at_any_turn_a_single_piece_leaves_nothing(
    single: list[list[ScanTask]], turns: int, by: str
) -> None:
    async def before(task: ScanTask, piece: Piece) -> None:
        for _ in range(4):
            await asyncio.sleep(0)

    run, _ = make(single, FakeReader(before))
    reading = asyncio.create_task(rows_of(run))
    for _ in range(turns):
        await asyncio.sleep(0)
    if by == "cancel":
        reading.cancel()
    await run.close()
    with pytest.raises(asyncio.CancelledError if by == "cancel" else AccelError):
        await reading
    assert others() == set()


async def test_what_is_no_exception_ends_a_single_piece(single: list[list[ScanTask]]) -> None:
    class Panic(BaseException):
        pass

    async def before(task: ScanTask, piece: Piece) -> None:
        raise Panic

    run, _ = make(single, FakeReader(before))
    with pytest.raises(Panic):
        await asyncio.wait_for(run.take(), 20)
    assert await run.take() is None


async def test_pieces_are_decoded_in_the_order_they_are_wanted_in(planned: list[list[ScanTask]]) -> None:
    """All answers come at once, the last first: two are begun as they came, then the first ones go first."""
    came: list[asyncio.Future[None]] = []
    begun: list[int] = []
    decoded: list[int] = []

    def number(task: ScanTask) -> int:
        return 2 * int(task.path) + task.row_group

    async def before(task: ScanTask, piece: Piece) -> None:
        begun.append(number(task))
        came.append(asyncio.get_running_loop().create_future())
        if len(came) == 12:
            for answer in reversed(came):
                answer.set_result(None)
        await came[-1]

    class Slow(FakeReader):
        async def decode(
            self, task: ScanTask, read: PieceRead, *, found: None = None
        ) -> list[pa.RecordBatch]:
            decoded.append(number(task))
            await settle()
            return await super().decode(task, read)

    run, _ = make(planned, Slow(before, decode_threads=1, max_tasks_in_flight=12))
    assert await rows_of(run) == expected(*range(6))
    # On a busy machine the files do not begin in their order.
    first = begun[:-3:-1]
    assert decoded == [*first, *(each for each in range(12) if each not in first)]


async def test_what_waits_to_come_out_is_not_told_with_its_rows() -> None:
    """asyncio tells in a log what a destroyed task waited for."""
    queue: asyncio.Queue[ReadyBatch] = asyncio.Queue()
    queue.put_nowait(ReadyBatch(pa.RecordBatch.from_pydict({"name": ["confidential"]}), (0, 0), True))
    assert "confidential" not in repr(queue)


# -- run handle -------------------------------------------------------------------------------------


PLAN_AGAIN = "(plan again, by accel.plan or a new accel.spark.read: a plan names the versions that it found)"
CHANGES: dict[str, tuple[Callable[[DictStore], object], str]] = {
    "replaced": (lambda store: store.put("f", file_of([4, 5, 6])), "f: the object is another version"),
    "deleted": (
        lambda store: store.objects.pop("f"),
        "f: the object has been deleted since its metadata was read",
    ),
}


def file_of(values: list[int], kind: pa.DataType | None = None) -> bytes:
    return write_file(table(x=pa.array(values, kind or pa.int64())), Layout(dictionary=False))


@pytest.mark.parametrize("verb", ["batches", "table", "count"])
@pytest.mark.parametrize("change", CHANGES)
def test_a_plan_of_a_file_that_changed_is_to_be_made_anew(change: str, verb: str) -> None:
    """Reading it again, as is said of a single read, would find the same."""
    store = DictStore({"f": file_of([1, 2, 3])})
    plan = accel.Plan.from_arrow(accel.plan("f", "x > 1", store=store, cache=None).to_arrow())
    apply, told = CHANGES[change]
    apply(store)
    scan = accel.scan(plan, store=store, cache=None)
    with pytest.raises(accel.ObjectChangedError) as caught:
        {"batches": lambda: list(scan), "table": scan.to_table, "count": scan.count_rows}[verb]()
    assert str(caught.value) == f"{told} {PLAN_AGAIN}"


class Vanishing(DictStore):
    """Deletes its object once rows of it have come out."""

    gone = False

    async def read(self, path, want, *, if_match=None):  # type: ignore[no-untyped-def]
        if self.gone:
            self.objects.pop(path, None)
        return await super().read(path, want, if_match=if_match)


def test_a_file_that_is_deleted_while_it_is_read() -> None:
    layout = Layout(group_rows=1_000, dictionary=False, codec="none")
    store = Vanishing({"f": write_file(table(x=pa.array(range(100_000))), layout)})
    options = accel.Options(tail_hint=8, max_tasks_in_flight=1, piece_bytes=8_000, max_gap_bytes=0)
    rows = 0
    with pytest.raises(accel.ObjectNotFoundError) as caught:
        for batch in accel.scan("f", store=store, cache=None, options=options):
            rows += batch.num_rows
            store.gone = True
    assert isinstance(caught.value, accel.ObjectChangedError)
    assert str(caught.value) == (
        "f: the object has been deleted since its metadata was read (list the files anew: scan or plan again)"
    )
    assert 0 < rows < 100_000


def stream(*paths: str) -> Iterator[pa.RecordBatch]:
    return iter([pa.RecordBatch.from_pydict({"path": list(paths)})])


def test_a_value_that_spark_cannot_take_is_told_with_its_file() -> None:
    millis = pa.timestamp("ms")
    store = DictStore({"f": file_of([1, 1 << 62], millis), "g": file_of([1], millis)})
    plan = accel.plan("f", store=store, cache=None)
    for source in (stream("f"), iter(plan)):
        scan = accel.scan(source, store=store, cache=None)
        with pytest.raises(accel.SchemaMismatchError) as caught:
            list(scan)
        assert (caught.value.path, caught.value.place) == ("f", "column x")
        assert str(caught.value).startswith("f, column x: a value of type timestamp[ms] does not fit Spark's")
    # Which of several it was is not known there.
    with pytest.raises(accel.SchemaMismatchError) as caught:
        list(accel.scan(stream("g", "f"), store=store, cache=None))
    assert (caught.value.path, caught.value.place) == (None, "column x")
