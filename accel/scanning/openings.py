"""Files that no cache knows, opened ahead of their turn: asked for by few tasks, parsed and judged many at a time.

A small file costs its request and little else then: no task, no timer and no parse of its own. Whatever is unusual
about one is left to `Opener.open`, or told when its turn comes.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from accel.decode.shared_schemas import shared_schema
from accel.planning.file import DataFile
from accel.planning.handle import FileHandle
from accel.planning.need import Need, NeedTail, Steps, Tail
from accel.planning.opening import LEAST_TAIL
from accel.ranges import Stash
from accel.reader.opener import Opener
from accel.scanning.batches import Batches
from accel.scanning.footer_desk import FooterDesk
from accel.scanning.width import Width
from accel.store.client import Client
from accel.store.tasks import breathe, foreign_cancellation

__all__ = ["Judge", "Opening", "Openings"]

Judge = Callable[[Sequence[tuple[DataFile, FileHandle]]], Awaitable[Sequence[bool]]]
"""Of some files that have just been opened, which are known to have nothing that is asked for."""

_BATCH: Final = 64
"""Files looked at together: more gain little, and would hold up the loop."""
_DEPTH: Final = 512
"""Files ahead of the one whose turn it is: while some are looked at, requests for others are under way."""
_SHARE: Final = 4
"""What has come and is not settled holds at most one part in so many of `memory_limit`."""
_PATIENCE: Final = 2e-4
"""Seconds to wait for more responses, per request under way, before those that came are handled."""


@dataclass(slots=True, eq=False)
class Opening:
    """One file, from its request to the verdict."""

    file: DataFile
    client: Client
    flight: asyncio.Future[FileHandle | None]
    """What others wait for who want the same file meanwhile."""
    done: bool = False
    """Nothing more is under way. Without a handle and an error the file is for others to open."""
    handle: FileHandle | None = None
    round_trips: int = 1
    excluded: bool = False
    """By its statistics: there is nothing to be read."""
    error: Exception | None = None
    """To be raised in the file's turn."""
    seen: list[Stash | Tail] = field(default_factory=list)
    """What came of it: the tail first. Nothing of a file that is known from the disk."""
    asked_at: float = 0.0
    hint: int = 0
    """Bytes of its end that were asked for first."""


class Openings:
    """Opens files ahead for one scan. Used on one event loop; `aclose` ends what is under way.

    Parameters
    ----------
    opener : Opener
    judge : callable
        Awaited with files that have just been opened.
    most : int
        Requests under way at once, at most: see `Width`.
    """

    def __init__(self, opener: Opener, judge: Judge, *, most: int) -> None:
        self._opener = opener
        self._judge = judge
        self._most = most
        self._width = Width(most, widened=self._send_more)
        self._desk = FooterDesk(shared_schema)
        self._queue: deque[Opening] = deque()
        self._came = Batches(self._start, self._open_some, most=_BATCH, then=self._look)
        self._open: set[Opening] = set()
        self._early: dict[tuple[str, str], Opening] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._readers = 0
        self._unjudged = Batches(
            self._start, self._judge_some, most=_BATCH, then=lambda: self._unjudged.begin()
        )
        self._longest = opener.options.tail_hint or LEAST_TAIL
        self._timer: asyncio.TimerHandle | None = None
        self._progress: asyncio.Future[None] | None = None
        self._closing = False
        self.failed = False
        """One of the files could not be opened: it is not worth to go on ahead of that."""

    @property
    def depth(self) -> int:
        """How many files may be looked at ahead."""
        return min(_DEPTH, max(self._most, self._room))

    @property
    def _room(self) -> int:
        """How many files' ends may be held that are not settled."""
        return self._opener.options.memory_limit // _SHARE // self._longest

    def ask(self, file: DataFile) -> Opening | None:
        """Begin to open a file; None where that is left to `Opener.open`."""
        begun = None if self.failed else self._opener.begin(file)
        if begun is None:
            return None
        client, flight = begun
        opening = Opening(file, client, flight)
        self._open.add(opening)
        self._queue.append(opening)
        self._send()
        return opening

    def ask_early(self, files: Iterable[DataFile]) -> None:
        """Begin to open the first of files that are sure to be asked for, by `take_early` first, as they are.

        None of them may be settled before all are known: what they hold meanwhile is bounded.
        """
        self._start(self._ask_early(files))

    async def _ask_early(self, files: Iterable[DataFile]) -> None:
        asked = known = 0
        for file in files:
            await breathe()
            opening = self.ask(file)
            if opening is None:
                known += 1
                if known > 1:  # the schema, which one tells, may have been asked for; here all may be known
                    break
                continue
            self._early[file.root, file.path] = opening
            self._longest = max(self._longest, self._opener.hint(opening.client, file, abreast=1))
            asked += 1
            if asked >= min(_DEPTH, self._room):
                break

    async def open_early(self, file: DataFile) -> tuple[FileHandle, int] | None:
        """What `ask_early` has begun for a file, awaited: as `Opener.open` gives it, which is to be asked where this is
        None."""
        opening = self.take_early(file)
        if opening is None:
            return None
        handle = await asyncio.shield(opening.flight)
        if opening.error is not None:
            raise opening.error
        return None if handle is None else (handle, opening.round_trips)

    def take_early(self, file: DataFile) -> Opening | None:
        """What `ask_early` has begun for a file, handed out once; None where that was nothing, or of another version."""
        opening = self._early.pop((file.root, file.path), None)
        return opening if opening is not None and opening.file == file else None

    async def progress(self) -> None:
        """Wait until some file is settled."""
        if self._progress is None:
            self._progress = asyncio.get_running_loop().create_future()
        await asyncio.shield(self._progress)

    async def aclose(self) -> None:
        """End all requests; what they were for is for others to open."""
        self._closing = True
        self._width.close()
        if self._timer is not None:
            self._timer.cancel()
        for task in self._tasks:
            task.cancel()
        try:
            if self._tasks:
                await asyncio.wait(self._tasks)
        finally:
            # Whoever is cancelled here leaves nobody waiting for it.
            for opening in tuple(self._open):
                self._settle(opening)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        """What a task should not have raised is told in their turn by all whom it may have left waiting."""
        self._tasks.discard(task)
        error = (
            task.exception() if not task.cancelled() else None if self._closing else foreign_cancellation()
        )
        if isinstance(error, Exception):
            self._came.waiting.clear()
            self._unjudged.waiting.clear()
            for opening in tuple(self._open):
                self._fail(opening, error)

    # -- requests --------------------------------------------------------------------------------

    def _send(self) -> None:
        if self._readers < self._width.now:
            self._readers += 1
            self._start(self._read())
        else:
            self._width.ask()

    def _send_more(self) -> None:
        # One more than there is room for: that one asks for more room again.
        for _ in range(min(self._width.now - self._readers + 1, len(self._queue))):
            self._send()

    async def _read(self) -> None:
        """Bring the tails of files, one after the other, until none is left."""
        try:
            while self._queue:
                await breathe()
                if not self._queue:
                    break
                opening = self._queue.popleft()
                opening.asked_at = time.monotonic()
                try:
                    client, file = opening.client, opening.file
                    opening.hint = self._opener.hint(client, file, abreast=len(self._open))
                    self._longest = max(self._longest, opening.hint)
                    recalled = await self._opener.recall(client, file) if self._opener.keeps(client) else None
                    if recalled is None:
                        opening.seen.append(await self._opener.fetch_tail(client, file, hint=opening.hint))
                    else:
                        opening.handle, opening.round_trips = recalled
                except Exception as error:  # noqa: BLE001 - raised when its turn comes
                    self._fail(opening, error)
                else:
                    self._came.waiting.append(opening)
                    self._look()
        finally:
            self._readers -= 1
        if not self._readers:
            self._look()

    def _look(self) -> None:
        """Go through what has come, if that is worth it by now."""
        came = self._came
        if came.busy or not came.waiting:
            return
        coming = self._readers + len(self._queue) - 1
        if len(came.waiting) >= _BATCH or coming <= 0:
            self._digest_now()
        elif self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._readers * _PATIENCE, self._digest_now)

    def _digest_now(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._came.begin()

    # -- what has come ---------------------------------------------------------------------------

    async def _open_some(self, some: Sequence[Opening]) -> None:
        opened = [opening for opening in some if opening.handle is not None]
        came = [(opening, opening.seen[0]) for opening in some if opening.handle is None]
        tails = [(opening, tail) for opening, tail in came if isinstance(tail, Tail)]
        parsed = self._desk.parse([tail for _, tail in tails])
        for (opening, tail), metadata in zip(tails, parsed, strict=True):
            await breathe()
            steps = self._opener.steps(opening.file, opening.hint)
            try:
                next(steps)
                need = steps.send(
                    tail if metadata is None else Tail(tail.data, tail.start, tail.size, tail.etag, metadata)
                )
            except StopIteration as done:
                self._is_open(opening, done.value)
                opened.append(opening)
            except Exception as error:  # noqa: BLE001 - raised when its turn comes
                self._fail(opening, error)
            else:
                self._start(self._finish(opening, tail, steps, need))
        await self._conclude(opened)

    async def _finish(
        self, opening: Opening, tail: Tail, steps: Steps[FileHandle], need: Need | NeedTail
    ) -> None:
        """Bring what the tail lacks of a longer footer."""
        try:
            handle, trips = await self._opener.drive_on(
                steps, need, client=opening.client, path=opening.file.path, tail=tail, seen=opening.seen
            )
        except Exception as error:  # noqa: BLE001 - raised when its turn comes
            self._fail(opening, error)
        else:
            opening.round_trips += trips
            self._is_open(opening, handle)
            await self._conclude([opening])

    def _is_open(self, opening: Opening, handle: FileHandle) -> None:
        handle.checked_at = opening.asked_at
        opening.handle = handle

    async def _conclude(self, opened: Sequence[Opening]) -> None:
        """Keep files that are open; the verdict on them follows."""
        opener, recalled = self._opener, 0
        for opening in opened:
            if opening.handle is None:
                raise TypeError("a file that is not open cannot be kept")
            opener.adopt(opening.client, opening.file, handle=opening.handle, hint=opening.hint)
            # What a verdict waits for may itself wait for this file.
            opener.end(opening.flight, opening.handle)
            recalled += not opening.seen
        opener.metrics.add("metadata_hits", recalled)
        opener.metrics.add("metadata_misses", len(opened) - recalled)
        for opening in opened:
            if opening.seen and opening.handle is not None and opener.keeps(opening.client):
                await opener.keep(opening.client, opening.handle, opening.seen)
        self._unjudged.waiting += opened
        self._unjudged.begin()

    async def _judge_some(self, some: Sequence[Opening]) -> None:
        """Settle what is open. Nothing that anybody else could wait for is done here."""
        await breathe()
        pairs = [(opening.file, opening.handle) for opening in some if opening.handle is not None]
        for opening, excluded in zip(some, await self._judge(pairs), strict=True):
            opening.excluded = excluded
            if opening.seen and not excluded:
                tail = opening.seen[0]
                self._opener.keep_tail(opening.client, opening.file, tail, among=len(self._open))
            self._settle(opening)

    def _fail(self, opening: Opening, error: Exception) -> None:
        self.failed = True
        opening.error = self._opener.named(error, opening.file)
        self._settle(opening)
        # Whether the others are wanted is known when that one's turn has come.
        while self._queue:
            self._settle(self._queue.popleft())

    def _settle(self, opening: Opening) -> None:
        opening.done = True
        opening.seen = []
        self._open.discard(opening)
        self._opener.end(opening.flight, opening.handle)
        if self._progress is not None:
            if not self._progress.done():
                self._progress.set_result(None)
            self._progress = None
