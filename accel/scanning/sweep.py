"""The files of a scan: those that cached metadata excludes passed over many at a time, those not met yet opened ahead.

What is passed over is what planning one by one would drop, and it is counted alike; only the work is less. The
other files come out in order, to be planned in the plain way.
"""

from __future__ import annotations

import asyncio
import enum
import time
from collections import deque
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from accel.errors import AccelError
from accel.metrics import Metrics
from accel.planning.file import DataFile, Listing
from accel.planning.filing import FilePlan
from accel.planning.handle import FileHandle
from accel.planning.query import Question
from accel.scanning.openings import Opening, Openings
from accel.scanning.screen import excluded_together
from accel.scanning.works import FileWork, WorkSource
from accel.store.tasks import breathe

if TYPE_CHECKING:
    from accel.scanning.session import Session

__all__ = ["Sweep", "openings_for", "plan_files"]


class _Excluded(enum.Enum):
    """A file that is not read, for a reason that needs no metadata."""

    BY_PATH = "by path"


_Found: TypeAlias = "_Excluded | FileHandle | Opening | None"
"""A handle: cached metadata excludes the file. An opening: it tells, once it is done. None: it may have something."""


# Files judged at a time: enough that numpy's calls cost each of them little, few enough for a slice of the loop.
_BLOCK = 64
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
        *,
        files: Sequence[DataFile],
        passed: dict[int, FilePlan] | None = None,
    ) -> None:
        self._session = session
        self._listing = listing
        self._files = files
        self._at = 0
        self._ready: deque[tuple[int, _Found]] = deque()
        self._uncounted = _Uncounted()
        self._question: Question | None = None
        self._screens = session.spec.screens and len(files) > 1
        self._passed = passed
        self._nothings: dict[tuple[int, int], FilePlan] = {}
        self._turn = asyncio.Lock()
        self._openings = session.openings
        if self._openings is None and len(files) > _FEW:
            self._openings = openings_for(session)

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
                if len(self._files) > _BLOCK:
                    await breathe()
                left = self._take_next()
                self._uncounted.count(self._session.reader.metrics)
                if left is not None:
                    return left
                if self._ready and self._openings is not None:
                    await self._openings.progress()
                elif self._at >= len(self._files):
                    return None

    def _take_next(self) -> tuple[int, DataFile, Opening | None] | None:
        """The next file that is left of those that were looked at, if that is known by now."""
        ready, uncounted = self._ready, self._uncounted
        waves = self._listing.round_trips
        while ready:
            place, found = ready[0]
            opened = found if isinstance(found, Opening) else None
            if opened is not None:
                if not opened.done:
                    return None
                if not opened.excluded:
                    found = None
            ready.popleft()
            if found is None:
                return place, self._files[place], opened
            handle = opened.handle if opened is not None else found if isinstance(found, FileHandle) else None
            uncounted.add(handle, waves if opened is None else waves + opened.round_trips, met=opened is None)
            if opened is not None:
                counts = self._session.counts
                counts.opening_trips = max(counts.opening_trips, opened.round_trips)
            if self._passed is not None:
                self._passed[place] = self._nothing_of(handle)
        return None

    def _nothing_of(self, handle: FileHandle | None) -> FilePlan:
        """The plan of a file that is passed over: one for all that are of one size, thousands as they may be."""
        size = (0, 0) if handle is None else (handle.num_row_groups, handle.num_rows)
        found = self._nothings.get(size)
        if found is None:
            found = self._nothings[size] = FilePlan(row_groups=size[0], rows=size[1])
        return found

    async def __anext__(self) -> FileWork:
        """The next file that is left, as work of a run."""
        left = await self.next()
        if left is None:
            raise StopAsyncIteration
        return self._session.file_work(left[1], left[2])

    async def _look_ahead(self) -> None:
        """Have enough files looked at, or being opened, for the next ones to be at hand."""
        while self._at < len(self._files):
            if self._ready and (self._openings is None or len(self._ready) + _BLOCK > self._openings.depth):
                return
            if self._screens and self._session.settled is None and self._session.settles_unasked():
                await self._session.question()
            self._take_block()

    def _take_block(self) -> None:
        start, self._at = self._at, min(self._at + _BLOCK, len(self._files))
        files = self._files[start : self._at]
        if self._screens and self._question is None:
            self._question = self._session.settled
        openings, first = self._openings, self._listing.files[0]
        found: list[_Found] = [None] * len(files)
        if openings is not None:
            # The question opens the first.
            found = [None if file is first else openings.take_early(file) for file in files]
        if self._screens and self._question:
            self._judge(files, self._question, found)
        if openings is not None:
            paths = self._session.paths
            for place, file in enumerate(files):
                # What its path seems to exclude may never be opened.
                if found[place] is None and file is not first and not paths.seem_to_exclude(file):
                    found[place] = openings.ask(file)
        self._ready.extend(enumerate(found, start))

    def _judge(self, files: Sequence[DataFile], question: Question, found: list[_Found]) -> None:
        """Note of each file of which nothing is found yet that planning it would find nothing to read, if it would."""
        session, now = self._session, time.monotonic()
        places: list[int] = []
        at_hand: list[tuple[DataFile, FileHandle]] = []
        for place, file in enumerate(files):
            if found[place] is not None:
                continue
            try:
                if session.paths.exclude(file, question):
                    found[place] = _Excluded.BY_PATH
                    continue
            except AccelError:
                continue  # planned in its turn, the file says what is wrong
            handle = self._at_hand(file, now)
            if handle is not None:
                places.append(place)
                at_hand.append((file, handle))
        out = _excluded(session, at_hand, question)
        for place, (_, handle), excluded in zip(places, at_hand, out, strict=True):
            if excluded:
                found[place] = handle

    def _at_hand(self, file: DataFile, now: float) -> FileHandle | None:
        """The cached handle of a file, where it may be used unasked."""
        if file is self._listing.files[0]:
            return None  # the question has opened it, and hands it on
        return self._session.reader.at_hand(file, now)


@dataclass(slots=True)
class _Uncounted:
    """Files that were passed over and are not in the metrics yet: counting each by itself would cost as much again."""

    files: int = 0
    row_groups: int = 0
    rows: int = 0
    hits: int = 0
    round_trips: int = 0

    def add(self, handle: FileHandle | None, round_trips: int, *, met: bool) -> None:
        """One more; `met` before, if it has a handle."""
        self.files += 1
        if handle is not None:
            self.row_groups += handle.num_row_groups
            self.rows += handle.num_rows
            self.hits += met
        self.round_trips = max(self.round_trips, round_trips)

    def count(self, metrics: Metrics) -> None:
        """Count them."""
        if self.files:
            metrics.files.add(total=self.files, kept=0)
            metrics.row_groups.add(total=self.row_groups, kept=0)
            metrics.rows.add(total=self.rows, kept=0)
            metrics.add("metadata_hits", self.hits)
            metrics.deepest(self.round_trips)
            self.files = self.row_groups = self.rows = self.hits = 0


def openings_for(session: Session) -> Openings | None:
    """What opens the files of a session ahead of their turn; None where the first ones may be enough."""
    most = session.spec.options.max_files_in_flight
    if session.limit is not None or most == 1:
        return None

    async def judge(opened: Sequence[tuple[DataFile, FileHandle]]) -> list[bool]:
        """Of files that have just been opened, whether planning each would find that nothing is to be read."""
        out = [False] * len(opened)
        if not session.spec.screens:
            return out
        try:
            question = await session.question()
        except Exception:  # noqa: BLE001 - told when the first file's turn comes
            return out
        return _excluded(session, opened, question)

    return Openings(session.reader.opener, judge, most=most)


async def plan_files(session: Session) -> list[FilePlan]:
    """The plans of all files of a session, in order."""
    files = await session.files()
    if len(files) == 1:
        return [await session.plan_current(files[0])]
    plans: dict[int, FilePlan] = {}
    sweep = Sweep(session, await session.listing(), files=files, passed=plans)

    async def work() -> None:
        while (left := await sweep.next()) is not None:
            place, file, opened = left
            plans[place] = await session.plan_current(file, opened)

    async with aclosing(sweep), asyncio.TaskGroup() as group:
        for _ in range(min(len(files), session.spec.options.max_files_in_flight)):
            group.create_task(work())
    return [plans[place] for place in range(len(files))]


def _excluded(
    session: Session, opened: Sequence[tuple[DataFile, FileHandle]], question: Question
) -> list[bool]:
    return excluded_together(
        opened,
        question,
        paths=session.paths,
        check=session.check_names,
        schema_of=session.reader.opener.schema_of,
    )
