"""The files of a scan in blocks: pruned together by cached metadata, or opened ahead and then pruned
together.

Stage 2 of the pipeline. In: blocks of file entries. Out, in order: the files that may hold matching rows, as
jobs; the others are counted as planning each by itself would count them. What bounds it: files are looked at
in blocks of 64, and opened ahead as `footer_prefetch` allows.
"""

from __future__ import annotations

import asyncio
import enum
import functools
import time
from collections import deque
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa

from accel.errors import AccelError
from accel.metrics import Metrics
from accel.planning.file_entry import FileBlock, FileEntry
from accel.planning.file_planner import FilePlan
from accel.planning.handle import FileHandle
from accel.planning.query import Question
from accel.reader.footer_prefetch import FooterPrefetcher, PrefetchedFile
from accel.runtime.tasks import breathe
from accel.scanning.file_jobs import FileJob, FileJobs, skips_over
from accel.scanning.resolved_source import ResolvedSource
from accel.scanning.spec import SKIPPED, OnError

if TYPE_CHECKING:
    from accel.scanning.aggregating import Aggregation
    from accel.scanning.ordering import TopRows

__all__ = ["FileStream", "ListingSpeculation", "plan_files"]


class _Excluded(enum.Enum):
    """A file that is not read, for a reason that needs no metadata."""

    UNOPENED = "unopened"
    """Excluded by its partition values, or by the facts of the source."""
    ANSWERED = "answered"
    """The facts of the source answer for all of its rows."""


_Found: TypeAlias = "_Excluded | FileHandle | PrefetchedFile | None"
"""A handle where cached metadata excludes the file, a prefetched file that will tell, None where it may hold
rows."""


# Files pruned at a time: enough that numpy's calls cost each of them little, few enough for a slice of the
# loop.
_BLOCK = 64
# Files of a source; fewer are opened one by one.
_FEW = 4


class FileStream(FileJobs):
    """The files that are left to plan, each with its place among all.

    Parameters
    ----------
    source : ResolvedSource
    pruned : dict, optional
        Receives the plans of the files that are pruned, by their places.
    """

    def __init__(self, source: ResolvedSource, *, pruned: dict[int, FilePlan] | None = None) -> None:
        self._source = source
        self.reader = source.reader
        source.takes_all = True
        self._block = FileBlock((), pa.schema([]), 0, more=True)
        """The block that the files are of; before the first one, this."""
        self._began = False
        self._first: FileEntry | None = None
        """The first file of all, where the question opens it."""
        self._files: Sequence[FileEntry] = ()
        self._start = 0
        """Place of the first of these files among all of the source."""
        self._at = 0
        self._ready: deque[tuple[int, FileEntry, _Found]] = deque()
        self._uncounted = _Uncounted()
        self._question: Question | None = None
        self._prunes = source.spec.prunes_blocks
        self._pruned = pruned
        # Thousands of files share it, or the garbage collector would hold up the loop.
        self._plan_without_tasks = None if pruned is None else functools.cache(_plan_without_tasks)
        self._turn = asyncio.Lock()
        self._prefetcher: FooterPrefetcher | None = None

    @property
    def num_files(self) -> int:
        """Files that were taken from the source so far, and are to be read or were pruned."""
        return self._start + len(self._files)

    async def aclose(self) -> None:
        """End what is under way for files that nobody has taken."""
        if self._prefetcher is not None:
            await self._prefetcher.aclose()
        await self._source.aclose()

    async def question(self) -> Question:
        """Return the question, with its schema settled."""
        return await self._source.question()

    def speculate(self) -> ListingSpeculation | None:
        """Return the same files as the cache knows them, where it does."""
        cached = self._source.as_cached()
        return None if cached is None else ListingSpeculation(self._source, *cached)

    async def __anext__(self) -> FileJob:
        """Return the next file that is left, as a job."""
        left = await self.next()
        if left is None:
            raise StopAsyncIteration
        return self._source.job(left[1], left[2])

    @property
    def exhausted(self) -> bool:
        """Whether all files were looked at, and those that are left came out."""
        return not self._ready and self._at >= len(self._files) and not self._block.more

    async def next(self) -> tuple[int, FileEntry, PrefetchedFile | None] | None:
        """Return the next file that is left, its place, and what opening it ahead has come to; None after the
        last.

        Files are pruned, and counted, on the way to it. Several tasks may await it at once.
        """
        async with self._turn:
            while True:
                await self._look_ahead()
                if len(self._files) > 1 or self._block.more:
                    await breathe()
                left = self._take_next()
                self._uncounted.count(self._source.reader.metrics)
                if left is not None:
                    return left
                if self._ready and self._prefetcher is not None:
                    await self._prefetcher.progress()
                elif self._at >= len(self._files) and not self._block.more:
                    return None

    def _take_next(self) -> tuple[int, FileEntry, PrefetchedFile | None] | None:
        """Return the next of the files that were looked at and are left, if that is clear by now."""
        ready, uncounted = self._ready, self._uncounted
        waves = self._block.round_trips
        while ready:
            place, file, found = ready[0]
            opened = found if isinstance(found, PrefetchedFile) else None
            if opened is not None:
                if not opened.done:
                    return None
                if not opened.excluded:
                    found = None
            ready.popleft()
            if found is None:
                return place, file, opened
            handle = opened.handle if opened is not None else found if isinstance(found, FileHandle) else None
            uncounted.add(handle, waves if opened is None else waves + opened.round_trips, hit=opened is None)
            if opened is not None:
                counts = self._source.counts
                counts.opening_trips = max(counts.opening_trips, opened.round_trips)
            if self._pruned is not None and self._plan_without_tasks is not None:
                size = (0, 0) if handle is None else (handle.num_row_groups, handle.num_rows)
                self._pruned[place] = self._plan_without_tasks(*size)
        return None

    async def _look_ahead(self) -> None:
        """Have enough files pruned, or being opened, for the next ones to be ready."""
        source = self._source
        while True:
            exhausted = self._at >= len(self._files)
            if exhausted and (self._ready or not self._block.more or not await self._take_block()):
                return
            if self._at >= len(self._files):
                continue
            prefetcher = self._prefetcher
            if self._ready and (prefetcher is None or len(self._ready) + _BLOCK > prefetcher.depth):
                return
            unasked = self._prunes and source.settles_unasked()
            if source.settled is None and (unasked or self._awaits_facts()):
                await source.question()
            self._look_at_some()

    async def _take_block(self) -> bool:
        """Go on with the next block of the source; False where there is none."""
        source = self._source
        block = await (source.next_block() if self._began else source.first_block())
        self._start, self._at = self.num_files, 0
        if block is None:
            self._files, self._block = (), FileBlock((), self._block.partition_schema, 0)
            return False
        self._block = block
        first, self._began = not self._began, True
        if first and source.declared is None:
            self._first = block.files[0]
        self._files = await self._left_of(block)
        if first:
            self._prefetcher = source.prefetcher
            if self._prefetcher is None and (len(self._files) > _FEW or block.more):
                self._prefetcher = source.make_prefetcher()
            if len(self._files) == 1 and not block.more:
                # There is nothing to prune together, or to open ahead.
                self._ready.append((0, self._files[0], None))
                self._at = 1
        return True

    async def _left_of(self, block: FileBlock) -> Sequence[FileEntry]:
        """Return the files of a block of which rows may be read; those that its source rules out are
        counted."""
        source = self._source
        if not self._prunes or not (block.bounds or block.partition_values):
            return source.chosen(block)
        left = source.chosen(block, await source.question())
        ruled_out = len(block.files) - len(left)
        if ruled_out:
            self.reader.metrics.files.add(total=ruled_out, kept=0)
            self.reader.metrics.deepest(block.round_trips)
        return left

    def _look_at_some(self) -> None:
        """Prune the next files of the block together, and ask for those that have to be opened."""
        source = self._source
        start, self._at = self._at, min(self._at + _BLOCK, len(self._files))
        files = self._files[start : self._at]
        for file in files:
            source.reader.offer_facts(file)
        if self._prunes and self._question is None:
            self._question = self._source.settled
        prefetcher, first = self._prefetcher, self._first
        found: list[_Found] = [None] * len(files)
        if prefetcher is not None:
            # The question opens the first file.
            found = [None if file is first else prefetcher.take_early(file) for file in files]
        if self._prunes and self._question:
            self.prune(files, self._question, found)
        if source.answers is not None and source.settled is not None:
            self._answer(files, source.answers, source.settled, found)
        if prefetcher is not None:
            paths = self._source.paths
            for place, file in enumerate(files):
                # A file that its path seems to exclude may never be opened.
                if found[place] is None and file is not first and not paths.exclude_as_listed(file):
                    found[place] = prefetcher.ask(file)
        places = range(self._start + start, self._start + self._at)
        self._ready.extend(zip(places, files, found, strict=True))

    def _awaits_facts(self) -> bool:
        """Return whether facts may answer for the next files.

        Else these are opened while the question is settled.
        """
        if self._source.answers is None:
            return False
        from accel.planning.fact_answers import matching_facts

        return any(matching_facts(file) is not None for file in self._files[self._at : self._at + _BLOCK])

    def _answer(
        self,
        files: Sequence[FileEntry],
        answers: Aggregation | TopRows,
        question: Question,
        found: list[_Found],
    ) -> None:
        """Note which of the files without a verdict need not be opened, as facts answer for them."""
        for place, file in enumerate(files):
            if found[place] is None:
                rows = answers.answer_facts(file, question)
                if rows is not None:
                    found[place] = _Excluded.ANSWERED
                    self.reader.metrics.add("rows_from_metadata", rows)

    def prune(self, files: Sequence[FileEntry], question: Question, found: list[_Found]) -> None:
        """Note which of the files without a verdict statistics exclude."""
        source, now = self._source, time.monotonic()
        places: list[int] = []
        cached: list[tuple[FileEntry, FileHandle]] = []
        for place, file in enumerate(files):
            if found[place] is not None:
                continue
            try:
                if source.paths.exclude(file, question):
                    found[place] = _Excluded.UNOPENED
                    continue
            except AccelError:
                continue  # the error is raised when the file is planned
            if file is self._first:
                continue  # the question has opened it, and hands it on
            handle = source.reader.cached_handle(file, now)
            if handle is not None:
                places.append(place)
                cached.append((file, handle))
        excluded = source.excluded(cached, question)
        for place, (_, handle), is_excluded in zip(places, cached, excluded, strict=True):
            if is_excluded:
                found[place] = handle


@dataclass(slots=True)
class _Uncounted:
    """Pruned files that are not in the metrics yet: to count each by itself would cost as much as to prune
    it."""

    files: int = 0
    row_groups: int = 0
    rows: int = 0
    hits: int = 0
    round_trips: int = 0

    def add(self, handle: FileHandle | None, round_trips: int, *, hit: bool) -> None:
        """Count one more file; `hit`: its handle, if it has one, was cached."""
        self.files += 1
        if handle is not None:
            self.row_groups += handle.num_row_groups
            self.rows += handle.num_rows
            self.hits += hit
        self.round_trips = max(self.round_trips, round_trips)

    def count(self, metrics: Metrics) -> None:
        """Add them to the metrics."""
        if self.files:
            metrics.files.add(total=self.files, kept=0)
            metrics.row_groups.add(total=self.row_groups, kept=0)
            metrics.rows.add(total=self.rows, kept=0)
            metrics.add("metadata_hits", self.hits)
            metrics.deepest(self.round_trips)
            self.files = self.row_groups = self.rows = self.hits = 0


class ListingSpeculation:
    """The files of a source as the cache knows them, until its store has confirmed that.

    Parameters
    ----------
    asking : ResolvedSource
        The source that asks the store; it is read instead where the files have changed.
    assumed : ResolvedSource
        The source that reads the files as they are cached.
    expected : FileBlock
        The files of `assumed`.
    """

    def __init__(self, asking: ResolvedSource, assumed: ResolvedSource, expected: FileBlock) -> None:
        self._asking = asking
        self._source = assumed
        self.jobs = FileStream(assumed)
        self._expected = expected
        self._moment = time.monotonic()

    async def holds(self) -> bool:
        """Return whether the source still holds the files that were expected."""
        freshness = self._source.reader.opener.freshness
        block = await self._asking.confirm(self._expected)
        facts = None if block is None else block.files[0].facts
        current = None if facts is None else facts.handle
        # A single file is confirmed by its handle: the pass may have used another one by now.
        if block is None or any(current is not None and used is not current for used in freshness.assumed):
            if self._source.answers is not None:
                self._source.answers.begin_again()
            return False
        freshness.confirm_assumed(self._moment)
        self._source.reader.metrics.deepest(block.round_trips)
        return True


async def plan_files(source: ResolvedSource) -> list[FilePlan]:
    """Return the plans of all files of a source, in order.

    Of several files that cannot be planned, the error is that of the first.
    """
    plans: dict[int, FilePlan] = {}
    stream = FileStream(source, pruned=plans)
    under_way: set[int] = set()
    ended, failed = asyncio.Event(), False

    async def work() -> None:
        nonlocal failed
        while not failed and (left := await stream.next()) is not None:
            place, file, opened = left
            under_way.add(place)
            try:
                plans[place] = await _plan_or_skip(source, file, opened)
            except Exception:
                # Files come out in order, so that those before it are done or under way. It stays among them:
                # a later failure waits for it, and is cancelled.
                failed = True
                while min(under_way) < place:
                    ended.clear()
                    await ended.wait()
                raise
            under_way.discard(place)
            ended.set()

    most = source.spec.options.max_files_in_flight
    block = await source.first_block()
    workers = most if block.more else min(len(block.files), most)
    async with aclosing(stream), asyncio.TaskGroup() as group:
        for _ in range(workers - 1):
            group.create_task(work())
        await work()
    return [plans[place] for place in range(stream.num_files)]


async def _plan_or_skip(source: ResolvedSource, file: FileEntry, opened: PrefetchedFile | None) -> FilePlan:
    try:
        return await source.plan_current(file, opened)
    except SKIPPED as error:
        skips = source.on_error is OnError.SKIP
        if not skips or not skips_over(error, file.url, source.reader, warns=False):
            raise
        plan = FilePlan()
        source.count(plan, 1)
        return plan


def _plan_without_tasks(row_groups: int, rows: int) -> FilePlan:
    """Return the plan of a file of this size that was pruned."""
    return FilePlan(row_groups=row_groups, rows=rows)
