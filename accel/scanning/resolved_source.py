"""A scan's source resolved: its files, the schema that they settle, the question, and how each file is opened
and planned.

Stages 1 to 3 of the pipeline meet here: in comes a `FileSource` and a `ScanSpec`, out come blocks of files,
and a plan for each file. One object serves one run, on the I/O loop. Files are opened while the first one
still settles the schema, so a directory costs one listing, one wave of footers and one wave of data.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from accel.errors import (
    AccelError,
    ObjectChangedError,
    ObjectNotFoundError,
    SchemaMismatchError,
    TableFormatError,
    redact,
)
from accel.planning.data_set import DataSet, UnionSchema
from accel.planning.deleted_rows import DeletedRows
from accel.planning.file_entry import FileBlock, FileEntry
from accel.planning.file_planner import FilePlan, check_selection
from accel.planning.handle import FileHandle
from accel.planning.partition_pruning import PartitionValues
from accel.planning.query import Question
from accel.planning.selection import RowSelection
from accel.planning.task import ScanTask, without_rows
from accel.predicate.expr import name_key
from accel.reader.footer_prefetch import FooterPrefetcher, PrefetchedFile
from accel.reader.reader import Reader
from accel.runtime.tasks import Group
from accel.scanning.block_stream import BlockStream
from accel.scanning.file_jobs import FileJob, skips_over
from accel.scanning.file_source import FileColumns, FileSource, SourceRequest
from accel.scanning.questions import caseless_names, settle_question, spelled
from accel.scanning.selected_source import SelectedSource
from accel.scanning.spec import SKIPPED, OnError, ScanSpec
from accel.store.request_errors import foremost

if TYPE_CHECKING:
    from accel.scanning.aggregating import Aggregation
    from accel.scanning.ordering import TopRows

__all__ = ["ResolvedSource"]

_NO_COLUMNS = pa.schema([])
_UNITED = 512
"""Files that are opened together for the union of their schemas."""


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
    answers : Aggregation or TopRows, optional
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
        answers: Aggregation | TopRows | None = None,
        first_names: list[str] | None = None,
        on_error: OnError = OnError.RAISE,
    ) -> None:
        self.spec = spec
        self.on_error = on_error
        self.reader = make_reader()
        self._make_reader = make_reader
        self._source = source if spec.selection is None else SelectedSource(source, spec.selection)
        self.first_names = first_names
        self.limit = spec.at_most(limit)
        """Rows that will be taken at most; None for all."""
        self.answers = answers
        self.counts = _Counts()
        self.num_files = 0
        """Files that the source has yielded so far."""
        self._blocks: BlockStream | None = None
        self._finished = False
        self._first_block: FileBlock | None = None
        self._finding = asyncio.Lock()
        self.declared: pa.Schema | None = None
        """The schema as the source says it, once it was read; None where files settle it."""
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
        """Opens files already while the source still lists others. The stream of files that takes it closes
        it."""
        self._handles: dict[str, FileHandle] = {}
        self._searched: set[str] = set()
        """The URLs of files whose values were asked which rows are gone."""
        self._defaults: dict[int, Mapping[str, pa.Scalar]] = {}
        self._named: set[tuple[str, str]] = set()
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
        block = await self._blocks.next() if first.more and self._blocks is not None else None
        return None if block is None else self._take(block)

    async def _find(self) -> FileBlock:
        several = False
        self.reader.opener.freshness.note_listing(time.monotonic())
        try:
            self.declared = await self._source.schema(self._request())
            request = replace(self._request(), declared=self.declared)
            self._blocks = BlockStream(self._source.blocks(request), name=str(self._source))
            block = await self._blocks.next()
            if block is None:
                raise ObjectNotFoundError("the source names no files", path=str(self._source))
            if block.more and self.spec.unites and self.declared is None:
                # Any file may have a column of its own.
                files = [*block.files]
                while (after := await self._blocks.next()) is not None:
                    files += after.files
                block = replace(block, files=tuple(files), more=False)
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

    async def aclose(self) -> None:
        """End what the source has under way, and tell it that no more files are opened."""
        prefetcher, self.prefetcher = self.prefetcher, None
        if prefetcher is not None:
            await prefetcher.aclose()
        if self._blocks is not None:
            await self._blocks.aclose()
        if not self._finished:
            self._finished = True
            self._source.finish(self._request())

    def _request(self) -> SourceRequest:
        early = self.takes_all and self.spec.selection is None and not self.spec.unites
        spec = self.spec if self.declared is None else spelled(self.spec, self.declared)
        return SourceRequest(
            reader=self.reader,
            where=spec.where,
            columns=spec.columns,
            answers=None if self.spec.selection is not None or self.spec.embedded else self.answers,
            on_entries=self._prefetch if early else None,
            in_store=self.spec.in_store,
        )

    def _take(self, block: FileBlock) -> FileBlock:
        self.num_files += len(block.files)
        self.reader.num_files = self.num_files
        if len(block.partition_schema):
            # What it remembers is of this block: there may be many more.
            self.paths = PartitionValues(
                self.spec.where, block.partition_schema, case_sensitive=self.spec.case_sensitive
            )
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
            on_error=self.on_error,
        )
        try:
            other.reader.opener.freshness.assume_current()
            other._first_block = other._take(replace(expected, round_trips=0, more=False))
        except AccelError:
            return None
        return other, expected

    async def confirm(self, expected: FileBlock) -> FileBlock | None:
        """Ask the store whether the source still is what `as_cached` took it for: see
        `FileSource.confirm`."""
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
        """Return whether the question can be settled without a request."""
        block = self._first_block
        if block is None or self.settled is not None or self._first is not None:
            return block is not None
        if self.declared is not None or (self.spec.schema is not None and not len(block.partition_schema)):
            return True
        if self.spec.unites:
            return False
        return self.reader.cached_handle(block.files[0], time.monotonic()) is not None

    async def _settle(self) -> Question:
        spec = self.spec
        block = await self.first_block()
        schema = self.declared if spec.schema is None else spec.schema
        own: Sequence[str] = ()
        if self.declared is None and (schema is None or len(block.partition_schema)):
            schema, own = await self._schema_of_files(block, schema)
        columns = DataSet.of(
            schema or _NO_COLUMNS, block.partition_schema, own=own, case_sensitive=spec.case_sensitive
        )
        given = spec.schema is not None or self.declared is not None or spec.unites
        alone = not given and self._is_single(block) and not spec.by_position
        try:
            whole = await settle_question(
                spec,
                columns,
                alone=alone,
                folded=self.answers is not None,
                evolution=self._source.evolution,
            )
        except AccelError as error:
            raise self._explained(error, block) from None
        question = whole if self.answers is None else self.answers.narrow(whole)
        question.compiled.bound, question.compiled.keys = whole.compiled.bound, whole.compiled.keys
        if not spec.case_sensitive:
            try:
                # The first rows in an order are found by its columns, and then read whole.
                names = caseless_names(question, result=whole if spec.order_by else question)
            except AccelError as error:
                raise self._explained(error, block) from None
            self.reader.opener.schemas.caseless = names
        return question

    def _explained(self, error: AccelError, block: FileBlock) -> AccelError:
        """Return an error about the columns of the data set, with the file that settled them."""
        url = block.files[0].url if len(block.files) and self.declared is None else str(self._source)
        of_first = self.declared is None and not self._is_single(block)
        return self.spec.explain_error(error, url, hint_for=self._source.hint_for, of_first=of_first)

    async def _schema_of_files(
        self, block: FileBlock, given: pa.Schema | None
    ) -> tuple[pa.Schema, Sequence[str]]:
        """Return the schema that the files settle, unless one is given, and the names of the columns that
        they have."""
        # A column of the file wins over one of its path: only the file itself shows whether it has it.
        if self._first is None:
            self._first = await self._open_first_of(block.files)
        handle, trips = self._first
        self.counts.opening_trips = max(self.counts.opening_trips, trips)
        own = handle.arrow_schema.names
        if given is not None:
            return given, own
        schema = self.reader.opener.schemas.of_rows(handle)
        if self.spec.unites and not self._is_single(block):
            united = await self._unite(block.files)
            return united, united.names
        self._settled_by = schema
        if self.spec.by_position and self.spec.columns is None:
            self.first_names = list(own)
        return schema, own

    async def _unite(self, files: Sequence[FileEntry]) -> pa.Schema:
        """Open all files, some at a time, and return the union of their schemas; their metadata is cached."""
        union = UnionSchema(case_sensitive=self.spec.case_sensitive)
        for start in range(0, len(files), _UNITED):
            some = files[start : start + _UNITED]
            for file, handle in await self._opened_together(some):
                union.add(self.reader.opener.schemas.of_rows(handle), url=file.url)
        return union.schema

    async def _opened_together(self, files: Sequence[FileEntry]) -> Sequence[tuple[FileEntry, FileHandle]]:
        """Open files at once; those that are left out are told of when their turn comes."""
        try:
            return list(zip(files, await self.reader.open_all(files), strict=True))
        except SKIPPED:
            if self.on_error is not OnError.SKIP:
                raise
        found = []
        for file in files:
            with suppress(*SKIPPED):
                found.append((file, (await self.reader.open(file))[0]))
        return found

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
        return early or await self.reader.open(file)

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
        from accel.scanning.block_pruning import excluded_together

        return excluded_together(
            opened,
            question,
            constants=partial(self.constants_of, question=question),
            check=self.check_names,
            schemas_of=self.reader.opener.schemas.under_names,
        )

    def constants_of(
        self, file: FileEntry, arrow_schema: pa.Schema, *, question: Question
    ) -> Mapping[str, pa.Scalar]:
        """Return the values of columns that a file does not have itself: of partitions, and defaults of
        columns added later."""
        values = self.paths.of(file, question)
        mapping = file.columns
        if mapping is None or not mapping.defaults:
            return values
        defaults = self._defaults.get(id(mapping))
        if defaults is None:
            defaults = self._defaults[id(mapping)] = mapping.defaults_of(question.schema)
        have = frozenset(arrow_schema.names) - question.evolution.coalesced
        return {**{name: value for name, value in defaults.items() if name not in have}, **values}

    async def _settle_anew(self, file: FileEntry, handle: FileHandle, opening: int) -> None:
        """Settle the question by the first file as it is now: no rows come out under the columns of another
        version.

        Raises ObjectChangedError where other files are read by the question of before.
        """
        by = self._settled_by
        if by is None or self.reader.opener.schemas.of_rows(handle).equals(by):
            return
        if not self._is_single(await self.first_block()):
            raise ObjectChangedError(
                "the first file, which settled the schema of the scan, was replaced by one with other "
                "columns",
                path=file.url,
                hint="scan again",
            )
        if self.answers is not None:
            self.answers.begin_again()
        self._first, self.settled = (handle, opening), None
        await self.question()
        self._first = None

    # -- stages 2 and 3: open and plan -----------------------------------------------------------

    def chosen(self, block: FileBlock, question: Question | None = None) -> Sequence[FileEntry]:
        """Return the files of a block of which rows may be read: those that a selection names, and that what
        the source knows does not rule out under the question, if that is given.

        Raises
        ------
        TableFormatError
            The source has two entries of one path.
        """
        files = block.files
        if self.spec.selection is not None:
            return [file for file in files if file.selected]
        excluded = None
        if question is not None:
            from accel.scanning.block_pruning import excluded_by_bounds

            excluded = excluded_by_bounds(block, question)
        if excluded is not None:
            files = [files[at] for at in np.flatnonzero(~excluded.excluded).tolist()]
            facts = self.reader.metrics.table
            if facts is not None:
                facts.excluded_by_partition += excluded.by_partition
                facts.excluded_by_bounds += len(block.files) - len(files) - excluded.by_partition
        if isinstance(block.files, FileColumns):
            for file in files:
                name = file.root, file.path
                if name in self._named:
                    raise TableFormatError("the source names the file twice", path=file.url)
                self._named.add(name)
        return files

    async def plan_current(self, file: FileEntry, opened: PrefetchedFile | None = None) -> FilePlan:
        """Plan a file, once more where it turns out to have changed since its metadata was cached."""
        try:
            return (await self.plan_file(file, opened))[0]
        except ObjectNotFoundError as error:
            table = self.reader.metrics.table
            raise error if table is None else table.named_in(error) from None
        except ObjectChangedError:
            self._forget(file)
            return (await self.plan_file(file))[0]

    def _forget(self, file: FileEntry) -> bool:
        self.reader.forget(file.root, file.path)
        self.reader.metrics.add("replans")
        self.reader.metrics.emit("replan", path=redact(file.url))
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

        def skip(error: Exception) -> bool:
            return skips_over(error, file.url, self.reader)

        skips = self.on_error is OnError.SKIP
        return FileJob(tasks, lambda: self._forget(file), distrust, skip if skips else None)

    async def plan_file(self, file: FileEntry, opened: PrefetchedFile | None = None) -> tuple[FilePlan, int]:
        """Plan one file: the plan, and the round trips up to its data (those of the listing included)."""
        if opened is not None and opened.error is not None:
            raise opened.error
        block = await self.first_block()
        if self.paths.exclude_as_listed(file) and self.paths.exclude(file, await self.question()):
            plan = FilePlan()
            self.count(plan, 1)
            return plan, block.round_trips
        file, handle, opening = await self.open_file(file, opened)
        question = await self.question()
        _, arrow_schema = self.reader.opener.schemas.under_names(file, handle)
        plan, indexing = await self.reader.plan(
            file,
            handle,
            question,
            partition=self.constants_of(file, arrow_schema, question=question),
            selection=self.rows_of(file, handle),
            limit=self.limit,
        )
        if file.deleted is not None and file.deleted.finder is not None and plan.tasks:
            rows = {task.row_group: task.rows for task in plan.tasks}
            plan = _without(plan, await self._found(file, rows), handle)
            indexing += 1
        if self.answers is not None:
            plan, more = await self.answers.answer(self.reader, file, handle, plan)
            indexing += more
        self.count(plan, 1)
        counts = self.counts
        counts.opening_trips = max(counts.opening_trips, opening)
        counts.index_trips = max(counts.index_trips, indexing)
        return plan, block.round_trips + opening + indexing

    async def open_all_rows(self, file: FileEntry) -> tuple[FileEntry, FileHandle, int]:
        """Return a file as `open_file` does, with the deleted rows of the whole file."""
        file, handle, trips = await self.open_file(file)
        deleted = file.deleted
        if deleted is None or deleted.finder is None:
            return file, handle, trips
        found = await self._found(file, self.rows_of(file, handle) or {})
        return replace(file, deleted=deleted.with_found(found)), handle, trips + 1

    async def open_file(
        self, file: FileEntry, opened: PrefetchedFile | None = None
    ) -> tuple[FileEntry, FileHandle, int]:
        """Return a file with its deleted rows loaded, its handle, and the round trips that it took.

        Those that values of the file tell are not among them.
        """
        block = await self.first_block()
        file, handle, opening = await self._with_deleted(file, self._opened(file, block, opened))
        if self.spec.by_position:
            await self.question()  # which settles the names that all files have to have
            self.check_names(file, handle)
        file.refuse_other(handle)
        self._source.note_version(file, handle)
        self._handles[file.url] = handle
        return file, handle, opening

    async def _opened(
        self, file: FileEntry, block: FileBlock, opened: PrefetchedFile | None
    ) -> tuple[FileHandle, int]:
        """Return the handle of a file to plan, which may have been opened ahead, and the round trips that it
        took."""
        first = None if self.declared is not None else block.files[0]
        if file is first:
            # The question opens this one or, where files may be left out, the first that can be opened.
            await self.question()
        if file is (self._settling_file or first):
            (handle, opening), self._first = self._first or await self._open_first(file), None
            await self._settle_anew(file, handle, opening)
            return handle, opening
        if opened is not None and opened.handle is not None:
            return opened.handle, opened.round_trips
        return await self.reader.open(file)

    async def _with_deleted(
        self, file: FileEntry, opening: Coroutine[Any, Any, tuple[FileHandle, int]]
    ) -> tuple[FileEntry, FileHandle, int]:
        """Open a file and load its deleted rows, both at once; return it with these."""
        deleted = file.deleted
        if deleted is None or deleted.rows is not None:
            return file, *(await opening)
        try:
            async with Group() as group:
                loading = group.create_task(deleted.load())
                handle, trips = await opening
        except BaseExceptionGroup as failures:
            failure = foremost(failures)
        else:
            rows, facts = loading.result(), self.reader.metrics.table
            if facts is not None and file.url not in self._handles:
                facts.deleted_rows += rows.count or 0
            return replace(file, deleted=rows), handle, max(trips, 1)
        raise failure.at(path=file.url) if isinstance(failure, AccelError) else failure

    async def _found(self, file: FileEntry, rows: Mapping[int, RowSelection]) -> DeletedRows:
        """Return which of some rows of a file are gone, as its values tell."""
        if file.deleted is None:
            return DeletedRows.of(())
        try:
            found = await file.deleted.found_among(rows)
        except AccelError as error:
            raise error.at(path=file.url) from None
        facts = self.reader.metrics.table
        if facts is not None and file.url not in self._searched:
            facts.deleted_rows += found.count or 0
        self._searched.add(file.url)
        return found

    def rows_of(self, file: FileEntry, handle: FileHandle) -> Mapping[int, RowSelection] | None:
        """Return the rows to read: those that the caller selects, without those that are gone, and those of
        them that may match as far as the source knows; None for all.

        What may match counts for one version of the file, and for no other.
        """
        rows = file.selected
        if rows is not None:
            check_selection(handle, rows, url=file.url)
        if file.deleted is not None:
            try:
                rows = _intersect(rows, file.deleted.remaining(handle.group_rows))
            except AccelError as error:
                raise error.at(path=file.url) from None
        facts = self.reader.opener.facts_of(file)
        if facts is None or facts.may_match is None or self.spec.where is None:
            return rows
        return _intersect(rows, facts.may_match) if facts.version.is_same(handle.version) else rows

    def count(self, plan: FilePlan, sign: int) -> None:
        """Count a planned file in, or out again (`sign` is 1 or -1)."""
        self.counts.files_kept += sign if plan.tasks else 0
        self.reader.metrics.count_file(plan, sign)

    def check_names(self, file: FileEntry, handle: FileHandle) -> None:
        """Raise SchemaMismatchError where columns go by position and the file has others than the first
        one."""
        names, first = list(handle.arrow_schema.names), self.first_names
        if first is None or names == first:
            return
        key = name_key(case_sensitive=self.spec.case_sensitive)
        if [*map(key, names)] != [*map(key, first)]:
            raise SchemaMismatchError(
                "its columns differ in name or order from the first file's",
                path=file.url,
                hint="mapInArrow matches columns by position: give columns= or schema=",
            )


def _without(plan: FilePlan, gone: DeletedRows, handle: FileHandle) -> FilePlan:
    """Return a plan without the rows that are gone."""
    if not gone.count:
        return plan
    left = gone.remaining(handle.group_rows)
    narrowed = (
        without_rows(task, left.get(task.row_group, RowSelection.none()).invert(task.num_rows))
        for task in plan.tasks
    )
    return plan.with_tasks((task for task in narrowed if task is not None), handle)


def _intersect(
    one: Mapping[int, RowSelection] | None, other: Mapping[int, RowSelection]
) -> Mapping[int, RowSelection]:
    """Return the rows in both, by row group; None stands for all rows."""
    if one is None:
        return other
    return {group: one[group].intersect(other[group]) for group in sorted(one.keys() & other.keys())}
