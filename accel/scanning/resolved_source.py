"""A scan's source resolved: its files, the schema that they settle, the question, and how each file is opened and planned.

Stages 1 to 3 of the pipeline meet here: in comes a `FileSource` and a `ScanSpec`, out come blocks of files, and a plan
for each file. One object serves one run, on the I/O loop. Files are opened while the first one still settles the schema, so a
directory costs one listing, one wave of footers and one wave of data.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from accel.errors import AccelError, ObjectChangedError, SchemaMismatchError
from accel.planning.file_entry import FileBlock, FileEntry, FileFacts, match_selection
from accel.planning.file_planner import FilePlan
from accel.planning.handle import FileHandle
from accel.planning.partition_pruning import PartitionValues
from accel.planning.projection import settle_schemas
from accel.planning.query import Question
from accel.planning.selection import RowSelection
from accel.planning.task import ScanTask
from accel.reader.reader import Reader
from accel.scanning.block_pruning import excluded_together
from accel.scanning.file_jobs import FileJob
from accel.scanning.file_source import FactAnswers, FileSource, SourceRequest
from accel.scanning.footer_prefetch import FooterPrefetcher, PrefetchedFile
from accel.scanning.spec import SKIPPED, OnError, ScanSpec
from accel.store.fetch import same_etag
from accel.store.threads import WORK

if TYPE_CHECKING:
    from accel.predicate.bind import KeyCache

__all__ = ["MetadataAnswers", "ResolvedSource"]

_NO_COLUMNS = pa.schema([])


class MetadataAnswers(FactAnswers, Protocol):
    """Answers a question about all rows from the metadata of each file, as far as possible, before rows are read."""

    def narrow(self, question: Question) -> Question:
        """Return the question, with no other columns in its output than those that may have to be read."""
        ...

    async def answer(
        self, reader: Reader, file: FileEntry, handle: FileHandle, plan: FilePlan
    ) -> tuple[FilePlan, int]:
        """Answer from the metadata of a file; return the plan of the rest, and the round trips that it took.

        For a file that is planned again it is called again: the last call counts.
        """
        ...

    def answer_facts(self, file: FileEntry, question: Question) -> int | None:
        """Answer from the facts that the source has of a file, which need not be opened then; None where they do not prove it.

        Returns
        -------
        int or None
            The rows of the file.
        """
        ...

    def answer_planned(
        self, reader: Reader, tasks: Sequence[ScanTask], schema: pa.Schema
    ) -> Sequence[ScanTask]:
        """Answer the tasks of a plan, which come without the metadata of their files; return those that are left."""
        ...

    def begin_again(self) -> None:
        """Forget all answers that were not folded yet: other files are going to be planned."""
        ...


@dataclass(slots=True)
class _Counts:
    """The counts over the files planned so far."""

    files_kept: int = 0
    opening_trips: int = 0
    index_trips: int = 0


class ResolvedSource:
    """Resolves a `ScanSpec` with the help of a reader, and plans its files one by one.

    Parameters
    ----------
    spec : ScanSpec
    make_reader : callable
        Makes a reader for the run.
    source : FileSource
        The source; it serves this run alone.
    limit : int, optional
        Rows that will be taken at most, besides the limit of `spec`.
    answers : MetadataAnswers, optional
        Answers an aggregate. What comes out of the run then is what metadata could not answer.
    first_names : list of str, optional
        The columns that every file must have, in order, where the consumer matches them by position.
    on_error : OnError
        Whether a missing or broken file may be left out. Then another one settles the schema, too.
    """

    def __init__(
        self,
        spec: ScanSpec,
        make_reader: Callable[[], Reader],
        *,
        source: FileSource,
        limit: int | None = None,
        answers: MetadataAnswers | None = None,
        first_names: list[str] | None = None,
        on_error: OnError = OnError.RAISE,
    ) -> None:
        self.spec = spec
        self.on_error = on_error
        self.reader = make_reader()
        self._make_reader = make_reader
        self._source = source
        self.first_names = first_names
        self.limit = spec.at_most(limit)
        """Rows that will be taken at most; None for all."""
        self.answers = answers
        self.counts = _Counts()
        self.num_files = 0
        """Files that the source has yielded so far."""
        self._blocks: AsyncIterator[FileBlock] | None = None
        self._first_block: FileBlock | None = None
        self._finding = asyncio.Lock()
        self.settled: Question | None = None
        """The question, once it is settled."""
        self._settled_by: pa.Schema | None = None
        """The schema of the first file, where the question goes by it."""
        self._unsettled: Exception | None = None
        self._settling = asyncio.Lock()
        self._first: tuple[FileHandle, int] | None = None
        self._settling_file: FileEntry | None = None
        """The file that settles the question, where it is not the first one."""
        self.takes_all = False
        """All files are going to be planned."""
        self.prefetcher: FooterPrefetcher | None = None
        """Opens files already while the source still lists others. The stream of files that takes it closes it."""
        self._handles: dict[str, FileHandle] = {}
        self._outdated: set[str] = set()
        """URLs of files that changed meanwhile, whose facts no longer count."""
        self._selection: dict[str, dict[int, RowSelection]] | None = None
        self.paths = PartitionValues(spec.where, _NO_COLUMNS)

    # -- stage 1: list ---------------------------------------------------------------------------

    async def first_block(self) -> FileBlock:
        """Return the first files of the source: all of them where `more` is not set."""
        if self._first_block is None:
            async with self._finding:
                if self._first_block is None:
                    self._first_block = await self._find()
        return self._first_block

    async def next_block(self) -> FileBlock | None:
        """Return the files after those that were taken last; None after the last."""
        first = await self.first_block()
        if not first.more or self._blocks is None:
            return None
        block = await anext(self._blocks, None)
        return None if block is None else self._take(block)

    async def _find(self) -> FileBlock:
        several = False
        self.reader.opener.freshness.note_listing(time.monotonic())
        try:
            self._blocks = self._source.blocks(self._request())
            block = await anext(self._blocks)
            if block.more and self.spec.selection is not None:
                # The names of a selection are looked for among all files.
                others = [file async for after in self._blocks for file in after.files]
                block = replace(block, files=(*block.files, *others), more=False)
            elif not block.more:
                # A generator that is not run to its end leaves the event loop a task to close it.
                await anext(self._blocks, None)
            several = block.more or len(block.files) > 1
            if not block.listed:
                self.reader.opener.freshness.note_listing(-math.inf)
        finally:
            if not several:
                # No stream of files is going to close it: a file alone is opened by itself.
                prefetcher, self.prefetcher = self.prefetcher, None
                if prefetcher is not None:
                    await prefetcher.aclose()
        return self._take(block)

    def finish(self) -> None:
        """Tell the source that no more files are opened."""
        self._source.finish(self._request())

    def _request(self) -> SourceRequest:
        early = self.takes_all and self.spec.selection is None
        return SourceRequest(
            reader=self.reader,
            where=self.spec.where,
            columns=self.spec.columns,
            answers=None if self.spec.selection is not None or self.spec.embedded else self.answers,
            on_entries=self._prefetch if early else None,
        )

    def _take(self, block: FileBlock) -> FileBlock:
        self.num_files += len(block.files)
        self.reader.num_files = self.num_files
        if self.spec.selection is not None:
            self._selection = match_selection(self.spec.selection, block.files)
        if len(block.partition_schema):
            # What it remembers is of this block: there may be many more.
            self.paths = PartitionValues(self.spec.where, block.partition_schema)
        return block

    def _prefetch(self, files: Iterable[FileEntry]) -> None:
        if self.prefetcher is None:
            self.prefetcher = self.make_prefetcher()
            if self.prefetcher is not None:
                self.prefetcher.ask_early(files)

    @property
    def expects(self) -> bool:
        """Whether a run would read by the cache while it asks the store."""
        return self._source.expected(self._request()) is not None

    def as_cached(self) -> tuple[ResolvedSource, FileBlock] | None:
        """Return the same source, and its files, as the cache knows them; None where it does not."""
        expected = self._source.expected(self._request())
        if expected is None:
            return None
        other = ResolvedSource(
            self.spec,
            self._make_reader,
            source=self._source,
            limit=self.limit,
            answers=self.answers,
            first_names=self.first_names,
        )
        try:
            other.reader.opener.freshness.assume_current()
            other._first_block = other._take(replace(expected, round_trips=0, more=False))
        except (AccelError, ValueError):
            # A selection may name files that were not there: those that are there now decide.
            return None
        return other, expected

    async def confirm(self, expected: FileBlock) -> FileBlock | None:
        """Ask the store whether the source still is what `as_cached` took it for: see `FileSource.confirm`."""
        self.reader.opener.freshness.note_listing(time.monotonic())
        return await self._source.confirm(self._request(), expected)

    # -- the question ----------------------------------------------------------------------------

    async def question(self) -> Question:
        """Return the question. Its schema is settled once, by `schema=` or else by the first file."""
        if self.settled is None:
            # A caller that is cancelled leaves it to the next one.
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

    def settles_unasked(self) -> bool:
        """Whether the question can be settled without a request."""
        block = self._first_block
        if block is None or self.settled is not None or self._first is not None:
            return block is not None
        if self.spec.schema is not None and not len(block.partition_schema):
            return True
        return self.reader.at_hand(block.files[0], time.monotonic()) is not None

    async def _settle(self) -> Question:
        spec = self.spec
        block = await self.first_block()
        schema = spec.schema
        own: Sequence[str] = ()
        if schema is None or len(block.partition_schema):
            # A column of the file wins over one of its path: only the file itself shows whether it has it.
            if self._first is None:
                self._first = await self._open_first_of(block.files)
            handle, trips = self._first
            self.counts.opening_trips = max(self.counts.opening_trips, trips)
            own = handle.arrow_schema.names
            if schema is None:
                schema = self._settled_by = self.reader.opener.data_set_schema(handle)
                if spec.by_position and spec.columns is None:
                    self.first_names = list(own)
        # A schema given by the caller may name partition columns, and then types and places them.
        partitions = tuple(name for name in block.partition_schema.names if name not in own)
        last = [f for f in block.partition_schema if f.name in partitions and f.name not in schema.names]
        if last:
            schema = pa.schema([*schema, *last])
        bound = None
        keys: KeyCache = {}
        try:
            alone = spec.schema is None and self._is_single(block) and not spec.by_position
            folded = self.answers is not None
            data_set, output = settle_schemas(schema, spec.columns, alone=alone, folded=folded)
            embedded: dict[tuple[str, ...], str] = {}
            if spec.embedded:
                from accel.predicate.bind import resolve_named

                embedded = {resolve_named(name, data_set).path: kind for name, kind in spec.embedded.items()}
            if spec.where is not None:
                from accel.predicate.bind import bind, binds_long

                # Refuses what no file could answer before any is read.
                work = partial(bind, spec.where, data_set, key_cache=keys)
                bound = await WORK.run(work) if binds_long(spec.where) else work()
        except AccelError as error:
            url = block.files[0].url
            raise spec.explain_error(error, url, hint_for=self._source.hint_for) from None
        question = Question(spec.where, data_set, output, partitions, embedded=embedded)
        question = question if self.answers is None else self.answers.narrow(question)
        question.compiled.bound, question.compiled.keys = bound, keys
        return question

    @staticmethod
    def _is_single(block: FileBlock) -> bool:
        return len(block.files) == 1 and not block.more

    async def _open_first_of(self, files: Sequence[FileEntry]) -> tuple[FileHandle, int]:
        """Return the first file; where files may be left out, the first that can be opened."""
        failure: AccelError | None = None
        for file in files if self.on_error is OnError.SKIP else files[:1]:
            try:
                opened = await self._open_first(file)
            except SKIPPED as error:
                failure = failure or error
                continue
            self._settling_file = file
            return opened
        raise failure or AccelError("there is no file to open")

    async def _open_first(self, file: FileEntry) -> tuple[FileHandle, int]:
        """Return the first file, for the question and for its own plan."""
        early = None
        if self.prefetcher is not None:
            with suppress(ObjectChangedError):  # the version that is there now will do as well
                early = await self.prefetcher.open_early(file)
        return early or await self._open(file)

    def make_prefetcher(self) -> FooterPrefetcher | None:
        """Return what opens the files ahead of their turn; None where the first ones may be enough."""
        most = self.spec.options.max_files_in_flight
        if self.limit is not None or most == 1:
            return None
        return FooterPrefetcher(self.reader.opener, self._prune_opened, most=most)

    async def _prune_opened(self, opened: Sequence[tuple[FileEntry, FileHandle]]) -> list[bool]:
        """Return for files that have just been opened whether planning each would find nothing to read."""
        none = [False] * len(opened)
        if not self.spec.prunes_blocks:
            return none
        try:
            question = await self.question()
        except Exception:  # noqa: BLE001 - raised when the first file's turn comes
            return none
        return self.excluded(opened, question)

    def excluded(self, opened: Sequence[tuple[FileEntry, FileHandle]], question: Question) -> list[bool]:
        """Return for each opened file whether statistics and path exclude it."""
        return excluded_together(
            opened,
            question,
            paths=self.paths,
            check=self.check_names,
            schema_of=self.reader.opener.schema_of,
        )

    def offer_facts(self, file: FileEntry) -> None:
        """Have the metadata that the source knows of a file cached, if nothing is."""
        facts = self._facts_of(file)
        if facts is not None and facts.handle is not None:
            self.reader.opener.offer(file, facts.handle)

    def _facts_of(self, file: FileEntry) -> FileFacts | None:
        return None if file.url in self._outdated else file.facts

    async def _open(self, file: FileEntry) -> tuple[FileHandle, int]:
        """Return the handle of a file, and the round trips that it took."""
        facts = self._facts_of(file)
        if facts is not None and facts.handle is not None and facts.round_trips is not None:
            return facts.handle, facts.round_trips
        self.offer_facts(file)
        return await self.reader.open(file)

    async def _settle_anew(self, file: FileEntry, handle: FileHandle, opening: int) -> None:
        """Settle the question by the first file as it is now: no rows come out under the columns of another version.

        Raises ObjectChangedError where other files are read by the question of before.
        """
        by = self._settled_by
        if by is None or self.reader.opener.data_set_schema(handle).equals(by):
            return
        if not self._is_single(await self.first_block()):
            raise ObjectChangedError(
                "the first file, which settled the schema of the scan, was replaced by one with other columns",
                path=file.url,
                hint="scan again",
            )
        if self.answers is not None:
            self.answers.begin_again()
        self._first, self.settled = (handle, opening), None
        await self.question()
        self._first = None

    # -- stages 2 and 3: open and plan -----------------------------------------------------------

    def chosen(self, block: FileBlock) -> Sequence[FileEntry]:
        """Return the files of a block that are to be read: those that a selection names, else all."""
        chosen = self._selection
        return block.files if chosen is None else [file for file in block.files if file.url in chosen]

    async def plan_current(self, file: FileEntry, opened: PrefetchedFile | None = None) -> FilePlan:
        """Plan a file, once more where it turns out to have changed since its metadata was cached."""
        try:
            return (await self.plan_file(file, opened))[0]
        except ObjectChangedError:
            self._forget(file)
            return (await self.plan_file(file))[0]

    def _forget(self, file: FileEntry) -> bool:
        self._outdated.add(file.url)
        self.reader.forget(file.root, file.path)
        self.reader.metrics.add("replans")
        return True

    def job(self, file: FileEntry, opened: PrefetchedFile | None = None) -> FileJob:
        """Return one file, which may have been opened ahead, as a job."""
        planned: FilePlan | None = None

        async def tasks() -> tuple[Sequence[ScanTask], int]:
            nonlocal planned, opened
            if planned is not None:
                self.count(planned, -1)  # a file counts once, however often it is planned
                planned = None
            ahead, opened = opened, None
            planned, trips = await self.plan_file(file, ahead)
            return planned.tasks, trips

        def distrust() -> bool:
            handle = self._handles.get(file.url)
            tasks = () if planned is None else planned.tasks
            return handle is not None and self.reader.distrust(file, handle, tasks)

        return FileJob(tasks, lambda: self._forget(file), distrust)

    async def plan_file(self, file: FileEntry, opened: PrefetchedFile | None = None) -> tuple[FilePlan, int]:
        """Plan one file: the plan, and the round trips up to its data (those of the listing included)."""
        if opened is not None and opened.error is not None:
            raise opened.error
        block = await self.first_block()
        if self.paths.exclude_as_listed(file) and self.paths.exclude(file, await self.question()):
            plan = FilePlan()
            self.count(plan, 1)
            return plan, block.round_trips
        if file is block.files[0]:
            # The question opens this one or, where files may be left out, the first that can be opened.
            await self.question()
        if file is (self._settling_file or block.files[0]):
            (handle, opening), self._first = self._first or await self._open_first(file), None
            await self._settle_anew(file, handle, opening)
        elif opened is not None and opened.handle is not None:
            handle, opening = opened.handle, opened.round_trips
        else:
            handle, opening = await self._open(file)
        question = await self.question()
        self.check_names(file, handle)
        self._handles[file.url] = handle
        plan, indexing = await self.reader.plan(
            file,
            handle,
            question,
            partition=self.paths.of(file, question),
            selection=self._rows_of(file, handle),
            limit=self.limit,
        )
        if self.answers is not None:
            plan, more = await self.answers.answer(self.reader, file, handle, plan)
            indexing += more
        self.count(plan, 1)
        counts = self.counts
        counts.opening_trips = max(counts.opening_trips, opening)
        counts.index_trips = max(counts.index_trips, indexing)
        return plan, block.round_trips + opening + indexing

    def _rows_of(self, file: FileEntry, handle: FileHandle) -> Mapping[int, RowSelection] | None:
        """Return the rows that the caller selects and that the source leaves; None for all.

        The facts of the source count for their own version of the file, and for no other.
        """
        selected = None if self._selection is None else self._selection[file.url]
        facts = self._facts_of(file)
        if facts is None or facts.rows is None or self.spec.where is None:
            return selected
        etag = handle.etag
        vouched = facts.etag is None and facts.size is None
        if not vouched and (
            etag is None
            or facts.etag is None
            or facts.size not in (None, handle.size)
            or not same_etag(facts.etag, etag)
        ):
            return selected
        if selected is None:
            return facts.rows
        shared = selected.keys() & facts.rows.keys()
        return {group: selected[group].intersect(facts.rows[group]) for group in sorted(shared)}

    def count(self, plan: FilePlan, sign: int) -> None:
        """Count a planned file in, or out again (`sign` is 1 or -1)."""
        self.counts.files_kept += sign if plan.tasks else 0
        self.reader.metrics.count_file(plan, sign)

    def check_names(self, file: FileEntry, handle: FileHandle) -> None:
        """Raise SchemaMismatchError where columns go by position and the file has others than the first one."""
        if self.first_names is not None and list(handle.arrow_schema.names) != self.first_names:
            raise SchemaMismatchError(
                "its columns differ in name or order from the first file's",
                path=file.url,
                hint="mapInArrow matches columns by position: give columns= or schema=",
            )
