"""A scan's source made definite: its files, its schema, its question, and the work on each file.

Lives on the I/O loop, one per run. Files are opened while the first one still settles the schema, so that
a directory costs one listing, one wave of footers and one of data.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from accel.errors import AccelError, ObjectChangedError, SchemaMismatchError
from accel.planning.file import DataFile, Listing
from accel.planning.filing import FilePlan
from accel.planning.handle import FileHandle
from accel.planning.paths import PathValues
from accel.planning.projection import settle_schemas
from accel.planning.query import Question
from accel.planning.selection import RowSelection, match_selection
from accel.planning.task import ScanTask
from accel.reader.reader import Reader
from accel.scanning.finder import Finder
from accel.scanning.scan_spec import ScanSpec
from accel.scanning.works import FileWork, Works, WorkSource
from accel.store.threads import WORK

if TYPE_CHECKING:
    from accel.predicate.bind import KnownKeys
    from accel.scanning.answering import Answering
    from accel.scanning.openings import Opening, Openings

__all__ = ["Session"]

_NO_COLUMNS = pa.schema([])


@dataclass(slots=True)
class _Counts:
    """What planning found, over the files planned so far."""

    files_kept: int = 0
    opening_trips: int = 0
    index_trips: int = 0


class Session:
    """Resolves a `ScanSpec` with the help of a reader, and plans its files one by one."""

    def __init__(
        self,
        spec: ScanSpec,
        reader: Reader,
        *,
        finder: Finder | None = None,
        limit: int | None = None,
        answering: Answering | None = None,
        first_names: list[str] | None = None,
    ) -> None:
        self.spec = spec
        self.reader = reader
        self._finder = Finder(spec, reader) if finder is None else finder
        self.first_names = first_names
        """With `by_position`: the columns of the first file, in order, that every file must have."""
        self.limit = spec.at_most(limit)
        """Rows that will be taken at most; None for all."""
        self.answering = answering
        self.counts = _Counts()
        self._listing: Listing | None = None
        self.settled: Question | None = None
        """The question, once it is settled."""
        self._settled_by: pa.Schema | None = None
        """The first file's own, where that is what the question goes by."""
        self._unsettled: Exception | None = None
        self._settling = asyncio.Lock()
        self._listing_lock = asyncio.Lock()
        self._first: tuple[FileHandle, int] | None = None
        self._reads = False
        """Rows are going to be read, not only planned: set by `work`."""
        self._takes_all = False
        """All files are going to be planned: set by `files`."""
        self.openings: Openings | None = None
        """What opens files already, as their directory is still being listed. Closed with the sweep that takes it."""
        self._handles: dict[str, FileHandle] = {}
        self._selection: dict[str, dict[int, RowSelection]] | None = None
        self.paths = PathValues(spec.where, _NO_COLUMNS)

    @property
    def assumes(self) -> bool:
        """Whether `recall` may know something."""
        return self._finder.assumes

    def recall(self) -> Listing | None:
        """What the source is likely to be found to be: see `Finder.recall`."""
        return self._finder.recall()

    async def listing(self) -> Listing:
        """The files of the source."""
        if self._listing is None:
            async with self._listing_lock:
                self._listing = self._listing or self._take(await self._find())
        return self._listing

    def assume(self, listing: Listing) -> None:
        """Take the files of a source to be these, before it has been listed."""
        self.reader.opener.freshness.assume_current()
        self._listing = self._take(replace(listing, round_trips=0))

    def _take(self, listing: Listing) -> Listing:
        self.reader.num_files = len(listing.files)
        if self.spec.selection is not None:
            self._selection = match_selection(self.spec.selection, listing.files)
        if len(listing.partition_schema):
            self.paths = PathValues(self.spec.where, listing.partition_schema)
        return listing

    async def _find(self) -> Listing:
        several = False
        self.reader.opener.freshness.note_listing(time.monotonic())
        try:
            listing = await self._finder.find(
                begun=self._open_early if self._takes_all and self.spec.selection is None else None,
                # Metadata may answer what is asked of all rows.
                reads=self._reads and (self.answering is None or self.spec.where is not None),
            )
            self._first = self._finder.first
            several = len(listing.files) > 1
        finally:
            if not several:
                # No sweep is going to close them: a file alone is opened by itself.
                openings, self.openings = self.openings, None
                if openings is not None:
                    await openings.aclose()
        return listing

    def _open_early(self, files: Iterable[DataFile]) -> None:
        if self.openings is None:
            from accel.scanning.sweep import openings_for

            self.openings = openings_for(self)
            if self.openings is not None:
                self.openings.ask_early(files)

    async def _open_first(self, file: DataFile) -> tuple[FileHandle, int]:
        """The first file, for the question and for its own plan."""
        early = None
        if self.openings is not None:
            with suppress(ObjectChangedError):  # the version that is there now will do as well
                early = await self.openings.open_early(file)
        return early or await self.reader.open(file)

    async def question(self) -> Question:
        """What is asked, with the schema settled: by `schema=`, else by the first file. Found out once."""
        if self.settled is None:
            # Whoever is cancelled leaves it to the next who asks.
            async with self._settling:
                if self._unsettled is not None:
                    raise self._unsettled
                if self.settled is None:
                    try:
                        self.settled = await self._settle()
                    except Exception as error:
                        self._unsettled = error
                        raise
        return self.settled

    async def _settle(self) -> Question:
        spec = self.spec
        listing = await self.listing()
        schema = spec.schema
        own: Sequence[str] = ()
        if schema is None or len(listing.partition_schema):
            # A column of the file wins over one of its path: only the file tells whether it has it.
            if self._first is None:
                self._first = await self._open_first(listing.files[0])
            handle, trips = self._first
            self.counts.opening_trips = max(self.counts.opening_trips, trips)
            own = handle.arrow_schema.names
            if schema is None:
                schema = self._settled_by = self.reader.opener.schema_of(handle)
                if spec.by_position and spec.columns is None:
                    self.first_names = list(own)
        # A schema given by the caller may name partition columns, and then types and places them.
        partitions = tuple(name for name in listing.partition_schema.names if name not in own)
        last = [f for f in listing.partition_schema if f.name in partitions and f.name not in schema.names]
        if last:
            schema = pa.schema([*schema, *last])
        bound = None
        keys: KnownKeys = {}
        try:
            alone = spec.schema is None and len(listing.files) == 1 and not spec.by_position
            data_set, output = settle_schemas(schema, spec.columns, alone=alone)
            if spec.embedded:
                from accel.predicate.resolve import refuse_missing

                refuse_missing(spec.embedded, data_set)
            if spec.where is not None:
                from accel.predicate.bind import bind, binds_long

                # Refuses what no file could answer before any is read.
                work = partial(bind, spec.where, data_set, known=keys)
                bound = await WORK.run(work) if binds_long(spec.where) else work()
        except AccelError as error:
            raise spec.tell(error, listing.files[0].url) from None
        question = Question(spec.where, data_set, output, partitions, embedded=spec.embedded)
        question = question if self.answering is None else self.answering.narrow(question)
        question.compiled.bound, question.compiled.keys = bound, keys
        return question

    async def _settle_anew(self, file: DataFile, handle: FileHandle, opening: int) -> None:
        """Have the question be of the first file as it is now: no rows come out under the columns of another version.

        Raises ObjectChangedError where other files are read by that of before.
        """
        by = self._settled_by
        if by is None or self.reader.opener.schema_of(handle).equals(by):
            return
        if len((await self.listing()).files) > 1:
            raise ObjectChangedError(
                "the first file, which settled the schema of the scan, was replaced by one with other columns",
                path=file.url,
                hint="scan again",
            )
        if self.answering is not None:
            self.answering.begin_again()
        self._first, self.settled = (handle, opening), None
        await self.question()
        self._first = None

    # -- files -----------------------------------------------------------------------------------

    async def files(self) -> list[DataFile]:
        """The files to read, in order: all of them are going to be planned."""
        self._takes_all = True
        files, chosen = (await self.listing()).files, self._selection
        return list(files) if chosen is None else [f for f in files if f.url in chosen]

    async def work(self) -> WorkSource:
        """The files to read, in order, each with the way to plan it; what is passed over is counted on the way."""
        self._reads = True
        files = await self.files()
        if len(files) == 1:
            return Works([self.file_work(files[0])])  # nothing is judged together, or opened ahead
        from accel.scanning.sweep import Sweep

        return Sweep(self, await self.listing(), files=files)

    async def plan_current(self, file: DataFile, opened: Opening | None = None) -> FilePlan:
        """Plan a file, once more where it turns out to have changed since its metadata was cached."""
        try:
            return (await self.plan_file(file, opened))[0]
        except ObjectChangedError:
            self._forget(file)
            return (await self.plan_file(file))[0]

    def _forget(self, file: DataFile) -> bool:
        self.reader.forget(file.root, file.path)
        self.reader.metrics.add("replans")
        return True

    def file_work(self, file: DataFile, opened: Opening | None = None) -> FileWork:
        """How to plan one file, which may have been opened ahead, and what to do where it has to be planned again."""
        planned: FilePlan | None = None

        async def tasks() -> tuple[Sequence[ScanTask], int]:
            nonlocal planned, opened
            if planned is not None:
                self.count(planned, -1)  # counted once, however often it is planned
                planned = None
            ahead, opened = opened, None
            planned, trips = await self.plan_file(file, ahead)
            return planned.tasks, trips

        def distrust() -> bool:
            handle = self._handles.get(file.url)
            tasks = () if planned is None else planned.tasks
            return handle is not None and self.reader.distrust(file, handle, tasks)

        return FileWork(tasks, lambda: self._forget(file), distrust)

    async def plan_file(self, file: DataFile, opened: Opening | None = None) -> tuple[FilePlan, int]:
        """Plan one file: the plan, and the round trips up to its data (the listing's included)."""
        if opened is not None and opened.error is not None:
            raise opened.error
        listing = await self.listing()
        if self.paths.seem_to_exclude(file) and self.paths.exclude(file, await self.question()):
            plan = FilePlan()
            self.count(plan, 1)
            return plan, listing.round_trips
        if file is listing.files[0]:
            # The question opens this one; let it, rather than ask twice.
            await self.question()
            (handle, opening), self._first = self._first or await self._open_first(file), None
            await self._settle_anew(file, handle, opening)
        elif opened is not None and opened.handle is not None:
            handle, opening = opened.handle, opened.round_trips
        else:
            handle, opening = await self.reader.open(file)
        question = await self.question()
        self.check_names(file, handle)
        self._handles[file.url] = handle
        partition = self.paths.of(file, question)
        plan, indexing = await self.reader.plan(
            file,
            handle,
            question,
            partition=partition,
            selection=None if self._selection is None else self._selection[file.url],
            limit=self.limit,
        )
        if self.answering is not None:
            plan, more = await self.answering.answer(self.reader, file, handle, plan)
            indexing += more
        self.count(plan, 1)
        counts = self.counts
        counts.opening_trips = max(counts.opening_trips, opening)
        counts.index_trips = max(counts.index_trips, indexing)
        return plan, listing.round_trips + opening + indexing

    def count(self, plan: FilePlan, sign: int) -> None:
        """Count a planned file in, or out again (`sign` is 1 or -1)."""
        self.counts.files_kept += sign if plan.tasks else 0
        self.reader.metrics.count_file(plan, sign)

    def check_names(self, file: DataFile, handle: FileHandle) -> None:
        """Raise SchemaMismatchError where columns go by position and the file has other ones than the first."""
        if self.first_names is not None and list(handle.arrow_schema.names) != self.first_names:
            raise SchemaMismatchError(
                "its columns differ in name or order from the first file's",
                path=file.url,
                hint="mapInArrow matches columns by position: give columns= or schema=",
            )

    def settles_unasked(self) -> bool:
        """Whether the question can be settled without a request."""
        listing = self._listing
        if listing is None or self.settled is not None or self._first is not None:
            return listing is not None
        if self.spec.schema is not None and not len(listing.partition_schema):
            return True
        return self.reader.at_hand(listing.files[0], time.monotonic()) is not None
