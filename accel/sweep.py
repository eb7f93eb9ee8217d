"""The files of a scan, those that cached metadata excludes passed over many at a time.

What is passed over is what planning one by one would drop, and it is counted alike; only the work is less. The
other files come out in order, to be planned in the plain way.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import TYPE_CHECKING

from accel.errors import AccelError
from accel.file_run import FileWork
from accel.io.slices import breathe
from accel.planning.file import DataFile, Listing
from accel.planning.filing import FilePlan
from accel.planning.handle import FileHandle
from accel.planning.query import FileQuery, Question
from accel.planning.screening import excluded_files
from accel.records import dataclass
from accel.screen import shared_query

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


class Sweep(AsyncIterator[FileWork]):
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
        self._ready: deque[tuple[int, _Passed | None]] = deque()
        self._question: Question | None = None
        self._screens = session.spec.screens and len(files) > 1
        self._passed = passed

    async def next(self) -> tuple[int, DataFile] | None:
        """The next file that is left; None after the last.

        Files are passed over, and counted, on the way to it. May be awaited by several tasks at once.
        """
        while True:
            await breathe()
            while self._ready:
                place, passed = self._ready.popleft()
                if passed is None:
                    return place, self._files[place]
                self._pass_over(place, passed)
            if self._at >= len(self._files):
                return None
            if self._screens and self._session.settled is None and self._session.settles_unasked():
                await self._session.question()
                continue
            self._take_block()

    async def __anext__(self) -> FileWork:
        """The next file that is left, as work of a run."""
        left = await self.next()
        if left is None:
            raise StopAsyncIteration
        return self._session.file_work(left[1])

    def _pass_over(self, place: int, passed: _Passed) -> None:
        metrics = self._session.reader.metrics
        if passed.cached:
            metrics.add("metadata_hits")
        metrics.deepest(self._listing.round_trips)
        self._session.count(passed.plan, 1)
        if self._passed is not None:
            self._passed[place] = passed.plan

    def _take_block(self) -> None:
        start, self._at = self._at, min(self._at + _BLOCK, len(self._files))
        found: Iterable[_Passed | None] = (None,) * (self._at - start)
        if self._screens:
            if self._question is None:
                self._question = self._session.settled
            if self._question is not None:
                found = self._judge(self._files[start : self._at], self._question)
        self._ready.extend(enumerate(found, start))

    def _judge(self, files: Sequence[DataFile], question: Question) -> list[_Passed | None]:
        """For each file what planning it would find, where that is nothing to read; None where it may be more."""
        now = time.monotonic()
        found: list[_Passed | None] = [None] * len(files)
        alike: dict[object, tuple[FileQuery, list[int], list[FileHandle]]] = {}
        for place, file in enumerate(files):
            try:
                if self._session.paths.exclude(file, question):
                    found[place] = _Passed(FilePlan(), cached=False)
                    continue
                handle = self._at_hand(file, now)
                if handle is None:
                    continue
                query, key = self._query(file, handle, question)
            except AccelError:
                continue  # planned in its turn, the file says what is wrong
            _, places, handles = alike.setdefault(key, (query, [], []))
            places.append(place)
            handles.append(handle)
        for query, places, handles in alike.values():
            for place, handle, out in zip(places, handles, excluded_files(handles, query), strict=True):
                if out:
                    metadata = handle.metadata
                    plan = FilePlan(row_groups=metadata.num_row_groups, rows=metadata.num_rows)
                    found[place] = _Passed(plan, cached=True)
        return found

    def _at_hand(self, file: DataFile, now: float) -> FileHandle | None:
        """The cached handle of a file, where it may be used unasked and its statistics are all that need be asked."""
        if file is self._listing.files[0]:
            return None  # the question has opened it, and hands it on
        handle = self._session.reader.at_hand(file, now)
        # A table of indexes that does not verify is told of, whatever the statistics say.
        return None if handle is None or handle.bad_toc is not None else handle

    def _query(self, file: DataFile, handle: FileHandle, question: Question) -> tuple[FileQuery, object]:
        """What the statistics of a file are asked, and a key that is equal for files that share it."""
        self._session.check_names(file, handle)
        return shared_query(file, handle, question, self._session.paths)


async def plan_files(session: Session) -> list[FilePlan]:
    """The plans of all files of a session, in order."""
    files = await session.files()
    plans: dict[int, FilePlan] = {}
    sweep = Sweep(session, await session.listing(), files, plans)

    async def work() -> None:
        while (left := await sweep.next()) is not None:
            place, file = left
            plans[place] = await session.plan_current(file)

    if len(files) == 1:
        plans[0] = await session.plan_current(files[0])
    else:
        async with asyncio.TaskGroup() as group:
            for _ in range(min(len(files), session.spec.options.max_files_in_flight)):
                group.create_task(work())
    return [plans[place] for place in range(len(files))]
