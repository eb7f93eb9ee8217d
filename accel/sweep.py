"""The files of a scan: those that cached metadata excludes passed over many at a time, those not met yet opened ahead.

What is passed over is what planning one by one would drop, and it is counted alike; only the work is less. The
other files come out in order, to be planned in the plain way.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING

from accel.errors import AccelError
from accel.file_run import FileWork
from accel.io.slices import breathe
from accel.openings import Opening, Openings
from accel.planning.file import DataFile, Listing
from accel.planning.filing import FilePlan
from accel.planning.handle import FileHandle
from accel.planning.query import Question
from accel.records import dataclass
from accel.run import WorkSource
from accel.screen import excluded_together

if TYPE_CHECKING:
    from accel.session import Session

__all__ = ["Sweep", "plan_files"]


@dataclass(frozen=True, slots=True)
class _Passed:
    """A file that is not read, as planning would have found it."""

    plan: FilePlan
    cached: bool
    """By its metadata; else by its path."""


# Files judged at a time: enough that numpy's calls cost each of them little, few enough for a slice of the loop.
_BLOCK = 128
# Files that are looked at ahead of the one whose turn it is.
_AHEAD = 2 * _BLOCK
# Files; fewer are opened one by one.
_FEW = 4


class Sweep(WorkSource):
    """The files of a session that are left to plan, each with its place among all.

    Parameters
    ----------
    session : Session
    listing : Listing
        All files of the source.
    files : sequence of DataFile
        Those to read, in order.
    passed : dict, optional
        Is given the plans of the files that are passed over, by their places.
    """

    def __init__(
        self,
        session: Session,
        listing: Listing,
        files: Sequence[DataFile],
        passed: dict[int, FilePlan] | None = None,
    ) -> None:
        self._session = session
        self._listing = listing
        self._files = files
        self._at = 0
        self._ready: deque[tuple[int, _Passed | Opening | None]] = deque()
        self._question: Question | None = None
        self._screens = session.spec.screens and len(files) > 1
        self._passed = passed
        self._turn = asyncio.Lock()
        options, reader = session.spec.options, session.reader
        # With a limit the first files may be enough.
        self._openings = (
            Openings(reader.opener, self._judge_opened, most=options.max_files_in_flight)
            if len(files) > _FEW and session.limit is None and options.max_files_in_flight > 1
            else None
        )

    @property
    def waits(self) -> bool:
        """Whether the next file may be long in coming."""
        return self._openings is not None

    async def aclose(self) -> None:
        """End what is under way for files that nobody has taken."""
        if self._openings is not None:
            await self._openings.aclose()

    async def next(self) -> tuple[int, DataFile, Opening | None] | None:
        """The next file that is left, its place, and what opening it ahead has come to; None after the last.

        Files are passed over, and counted, on the way to it. May be awaited by several tasks at once.
        """
        async with self._turn:
            while True:
                await breathe()
                await self._look_ahead()
                while self._ready:
                    place, found = self._ready[0]
                    if isinstance(found, Opening) and not found.done:
                        break
                    self._ready.popleft()
                    if isinstance(found, Opening) and found.excluded:
                        self._pass_opened(place, found)
                    elif isinstance(found, _Passed):
                        self._pass_over(place, found)
                    else:
                        return place, self._files[place], found
                    if not len(self._ready) % _BLOCK:
                        await breathe()
                if self._ready and self._openings is not None:
                    await self._openings.progress()
                elif self._at >= len(self._files):
                    return None

    async def __anext__(self) -> FileWork:
        """The next file that is left, as work of a run."""
        left = await self.next()
        if left is None:
            raise StopAsyncIteration
        return self._session.file_work(left[1], left[2])

    async def _look_ahead(self) -> None:
        """Have enough files looked at, or being opened, for the next ones to be at hand."""
        while self._at < len(self._files):
            if self._ready and (self._openings is None or len(self._ready) > _AHEAD - _BLOCK):
                return
            if self._screens and self._session.settled is None and self._session.settles_unasked():
                await self._session.question()
            self._take_block()

    def _pass_over(self, place: int, passed: _Passed) -> None:
        metrics = self._session.reader.metrics
        if passed.cached:
            metrics.add("metadata_hits")
        metrics.deepest(self._listing.round_trips)
        self._count(place, passed.plan)

    def _pass_opened(self, place: int, opened: Opening) -> None:
        session = self._session
        session.reader.metrics.deepest(self._listing.round_trips + opened.round_trips)
        session.counts.opening_trips = max(session.counts.opening_trips, opened.round_trips)
        if opened.handle is not None:
            self._count(place, _nothing_of(opened.handle))

    def _count(self, place: int, plan: FilePlan) -> None:
        self._session.count(plan, 1)
        if self._passed is not None:
            self._passed[place] = plan

    def _take_block(self) -> None:
        start, self._at = self._at, min(self._at + _BLOCK, len(self._files))
        files = self._files[start : self._at]
        if self._screens and self._question is None:
            self._question = self._session.settled
        found: list[_Passed | Opening | None] = []
        found += (
            self._judge(files, self._question) if self._screens and self._question else [None] * len(files)
        )
        openings = self._openings
        if openings is not None:
            first, paths = self._listing.files[0], self._session.paths
            for place, file in enumerate(files):
                # The question opens the first; what its path seems to exclude may never be opened.
                if found[place] is None and file is not first and not paths.seem_to_exclude(file):
                    found[place] = openings.ask(file)
        self._ready.extend(enumerate(found, start))

    async def _judge_opened(self, opened: Sequence[tuple[DataFile, FileHandle]]) -> list[bool]:
        """Of files that have just been opened, whether planning each would find that nothing is to be read."""
        out = [False] * len(opened)
        if not self._screens:
            return out
        try:
            question = await self._session.question()
        except Exception:  # noqa: BLE001 - told when the first file's turn comes
            return out
        session = self._session
        return excluded_together(opened, question, session.paths, check=session.check_names)

    def _judge(self, files: Sequence[DataFile], question: Question) -> list[_Passed | None]:
        """For each file what planning it would find, where that is nothing to read; None where it may be more."""
        session, now = self._session, time.monotonic()
        found: list[_Passed | None] = [None] * len(files)
        places: list[int] = []
        at_hand: list[tuple[DataFile, FileHandle]] = []
        for place, file in enumerate(files):
            try:
                if session.paths.exclude(file, question):
                    found[place] = _Passed(FilePlan(), cached=False)
                    continue
            except AccelError:
                continue  # planned in its turn, the file says what is wrong
            handle = self._at_hand(file, now)
            if handle is not None:
                places.append(place)
                at_hand.append((file, handle))
        out = excluded_together(at_hand, question, session.paths, check=session.check_names)
        for place, (_, handle), excluded in zip(places, at_hand, out, strict=True):
            if excluded:
                found[place] = _Passed(_nothing_of(handle), cached=True)
        return found

    def _at_hand(self, file: DataFile, now: float) -> FileHandle | None:
        """The cached handle of a file, where it may be used unasked."""
        if file is self._listing.files[0]:
            return None  # the question has opened it, and hands it on
        return self._session.reader.at_hand(file, now)


def _nothing_of(handle: FileHandle) -> FilePlan:
    return FilePlan(row_groups=handle.metadata.num_row_groups, rows=handle.metadata.num_rows)


async def plan_files(session: Session) -> list[FilePlan]:
    """The plans of all files of a session, in order."""
    files = await session.files()
    plans: dict[int, FilePlan] = {}
    sweep = Sweep(session, await session.listing(), files, plans)

    async def work() -> None:
        while (left := await sweep.next()) is not None:
            place, file, opened = left
            plans[place] = await session.plan_current(file, opened)

    if len(files) == 1:
        plans[0] = await session.plan_current(files[0])
    else:
        async with aclosing(sweep), asyncio.TaskGroup() as group:
            for _ in range(min(len(files), session.spec.options.max_files_in_flight)):
                group.create_task(work())
    return [plans[place] for place in range(len(files))]
