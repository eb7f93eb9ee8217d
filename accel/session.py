"""A scan's source made definite: its files, its schema, its question, and the work on each file.

Lives on the I/O loop, one per run. Files are opened while the first one still settles the schema, so that
a directory costs one listing, one wave of footers and one of data.
"""

from __future__ import annotations

import asyncio
import difflib
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import pyarrow as pa

from accel.answering import Answering
from accel.arrays import make_scalar
from accel.errors import (
    AccelError,
    ObjectChangedError,
    ObjectNotFoundError,
    PredicateError,
    SchemaMismatchError,
    redact,
)
from accel.file_run import FileWork
from accel.options import Options
from accel.planning.file import DataFile, Listing
from accel.planning.filing import FilePlan
from accel.planning.handle import FileHandle
from accel.planning.projection import project_schema
from accel.planning.pruning import partition_evidence
from accel.planning.query import Question, constant_fields
from accel.planning.selection import RowSelection
from accel.planning.task import ScanTask
from accel.predicate.expr import Expr
from accel.reader import Reader

__all__ = ["ScanSpec", "Session"]

# Over HTTP nothing is listed, and a local directory shows that it is one.
_NO_DIRECTORIES = ("http:", "https:", "file:")

RowRanges = Mapping[int, Sequence[tuple[int, int]]]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ScanSpec:
    """The arguments of a scan, checked."""

    source: Any
    where: Expr | None = None
    where_text: str | None = None
    """What `where` was parsed from, for the messages of errors."""
    columns: tuple[str, ...] | None = None
    limit: int | None = None
    selection: Mapping[str, RowRanges] | None = None
    schema: pa.Schema | None = None
    partitioning: Any = "hive"
    glob: bool = True
    order: bool = True
    by_position: bool = False
    """The consumer matches columns by position (mapInArrow): every file must have the first one's
    names in its order, unless `columns` or `schema` say what comes out."""
    embedded: Mapping[str, str] = field(default_factory=dict)
    options: Options = field(default_factory=Options)


@dataclass(slots=True)
class _Counts:
    """What planning found, over the files planned so far."""

    files: int = 0
    files_kept: int = 0
    opening_trips: int = 0
    index_trips: int = 0
    plans: list[FilePlan] = field(default_factory=list)


class Session:
    """Resolves a `ScanSpec` with the help of a reader, and plans its files one by one."""

    def __init__(self, spec: ScanSpec, reader: Reader, *, in_store: bool = False) -> None:
        self.spec = spec
        self.reader = reader
        self._in_store = in_store
        self.first_names: list[str] | None = None
        """With `by_position`: the columns of the first file, in order, that every file must have."""
        self.limit = spec.limit
        """Rows that will be taken at most; None for all."""
        self.answering: Answering | None = None
        self.counts = _Counts()
        self._listing: Listing | None = None
        self._question: asyncio.Task[Question] | None = None
        self._listing_lock = asyncio.Lock()
        self._first: tuple[FileHandle, int] | None = None
        self._handles: dict[str, FileHandle] = {}
        self._selection: dict[str, dict[int, RowSelection]] | None = None

    async def listing(self) -> Listing:
        """The files of the source."""
        if self._listing is None:
            async with self._listing_lock:
                if self._listing is None:
                    self._listing = await self._find()
        return self._listing

    async def _find(self) -> Listing:
        listing = await self._discover(self.spec.source)
        if not listing.files:
            raise ObjectNotFoundError("the source names no files")
        only = listing.files[0]
        if len(listing.files) == 1 and only.size is None and not only.root.startswith(_NO_DIRECTORIES):
            # An object's name and a directory's look alike (Spark writes directories called x.parquet): the
            # first read tells.
            try:
                self._first = await self.reader.open(only)
            except ObjectNotFoundError as missing:
                try:
                    listing = await self._discover(only.url + "/")
                except ObjectNotFoundError:
                    raise missing from None
                listing = replace(listing, round_trips=listing.round_trips + 1)
        self._selection = self._match_selection(listing.files)
        return listing

    async def _discover(self, source: Any) -> Listing:
        from accel.tables.discover import discover

        return await discover(
            source,
            client_for=self.reader.client,
            partitioning=self.spec.partitioning,
            glob=self.spec.glob,
            in_store=self._in_store,
            # Else `code=007` would be a number first, and "7" where the schema calls it text.
            as_text={f.name for f in self.spec.schema or () if _is_text(f.type)},
            metrics=self.reader.metrics,
        )

    async def question(self) -> Question:
        """What is asked, with the schema settled: by `schema=`, else by the first file."""
        if self._question is None:
            self._question = asyncio.get_running_loop().create_task(self._settle())
        return await asyncio.shield(self._question)

    async def close(self) -> None:
        """End what the session still has under way."""
        if self._question is not None:
            self._question.cancel()
            await asyncio.wait([self._question])

    @property
    def settled(self) -> Question | None:
        """The question, if it was settled."""
        task = self._question
        if task is None or not task.done() or task.cancelled() or task.exception() is not None:
            return None
        return task.result()

    async def _settle(self) -> Question:
        spec = self.spec
        listing = await self.listing()
        schema = spec.schema
        own: Sequence[str] = ()
        if schema is None or len(listing.partition_schema):
            # A column of the file wins over one of its path: only the file tells whether it has it.
            if self._first is None:
                self._first = await self.reader.open(listing.files[0])
            handle, trips = self._first
            self.counts.opening_trips = max(self.counts.opening_trips, trips)
            own = handle.arrow_schema.names
            if schema is None:
                schema = handle.arrow_schema
                if spec.by_position and spec.columns is None:
                    self.first_names = list(own)
        # A schema given by the caller may name partition columns, and then types and places them.
        partitions = tuple(name for name in listing.partition_schema.names if name not in own)
        last = [f for f in listing.partition_schema if f.name in partitions and f.name not in schema.names]
        data_set = pa.schema([*schema, *last])
        try:
            if spec.where is not None:
                from accel.predicate.bind import bind

                # Refuses what no file could answer before any is read.
                bind(spec.where, data_set)
            output = project_schema(data_set, spec.columns)
        except AccelError as error:
            if isinstance(error, PredicateError):
                error.text = error.text or spec.where_text
            raise error if spec.schema is not None else error.at(path=listing.files[0].url) from None
        question = Question(
            where=spec.where,
            schema=data_set,
            output=output,
            partition_names=partitions,
            embedded=spec.embedded,
        )
        return question if self.answering is None else self.answering.narrow(question)

    # -- files -----------------------------------------------------------------------------------

    async def _files(self) -> tuple[list[DataFile], Listing]:
        listing = await self.listing()
        chosen = self._selection
        return [f for f in listing.files if chosen is None or f.url in chosen], listing

    async def work(self) -> Iterator[FileWork]:
        """The files to read, in order, each with the way to plan it."""
        files, listing = await self._files()
        return (self._file_work(file, listing) for file in files)

    async def file_plans(self) -> Iterator[Callable[[], Awaitable[FilePlan]]]:
        """The files to read, in order, each as what plans it."""
        files, listing = await self._files()
        return (partial(self._plan_current, file, listing) for file in files)

    async def _plan_current(self, file: DataFile, listing: Listing) -> FilePlan:
        """Plan a file, once more where it turns out to have changed since its metadata was cached."""
        try:
            return (await self.plan_file(file, listing))[0]
        except ObjectChangedError:
            self._forget(file)
            return (await self.plan_file(file, listing))[0]

    def _forget(self, file: DataFile) -> bool:
        self.reader.forget(file.root, file.path)
        self.reader.metrics.add("replans")
        return True

    def _file_work(self, file: DataFile, listing: Listing) -> FileWork:
        planned: Sequence[ScanTask] = ()

        async def tasks() -> tuple[Sequence[ScanTask], int]:
            nonlocal planned
            plan, trips = await self.plan_file(file, listing)
            planned = plan.tasks
            return planned, trips

        def distrust() -> bool:
            handle = self._handles.get(file.url)
            return handle is not None and self.reader.distrust(file, handle, planned)

        return FileWork(tasks, lambda: self._forget(file), distrust)

    async def plan_file(self, file: DataFile, listing: Listing) -> tuple[FilePlan, int]:
        """Plan one file: the plan, and the round trips up to its data (the listing's included)."""
        names = listing.partition_schema.names
        self.counts.files += 1
        metrics = self.reader.metrics
        if self._seems_excluded(file, listing):
            question = await self.question()
            whole = all(name in question.partition_names for name in names)
            if whole and _excludes(self.spec.where, self._partition(question, file, listing)):
                metrics.files.add(total=1, kept=0)
                return FilePlan(), listing.round_trips
        if file is listing.files[0]:
            # The question opens this one; let it, rather than ask twice.
            await self.question()
            (handle, opening), self._first = self._first or await self.reader.open(file), None
        else:
            handle, opening = await self.reader.open(file)
        question = await self.question()
        if self.first_names is not None and list(handle.arrow_schema.names) != self.first_names:
            raise SchemaMismatchError(
                "its columns differ in name or order from the first file's",
                path=file.url,
                hint="mapInArrow matches columns by position: give columns= or schema=",
            )
        self._handles[file.url] = handle
        plan, indexing = await self.reader.plan(
            file,
            handle,
            question,
            partition=self._partition(question, file, listing),
            selection=None if self._selection is None else self._selection[file.url],
            limit=self.limit,
        )
        if self.answering is not None:
            plan, more = await self.answering.answer(self.reader, file, handle, plan)
            indexing += more
        metrics.files.add(total=1, kept=1 if plan.tasks else 0)
        counts = self.counts
        counts.files_kept += 1 if plan.tasks else 0
        counts.opening_trips = max(counts.opening_trips, opening)
        counts.index_trips = max(counts.index_trips, indexing)
        return plan, listing.round_trips + opening + indexing

    def _partition(self, question: Question, file: DataFile, listing: Listing) -> dict[str, pa.Scalar]:
        """The values that a file's path spells, in the data set's types."""
        try:
            return constant_fields(question, listing.partition_schema.names, file.partition)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise SchemaMismatchError(
                f"a partition value of its path does not fit the scan's schema: {error}",
                path=file.url,
                hint="partitioning=None leaves the paths alone",
            ) from error

    def _seems_excluded(self, file: DataFile, listing: Listing) -> bool:
        """Whether the partition values alone exclude a file, if its path's columns are meant as listed."""
        if self.spec.where is None or not file.partition:
            return False
        schema = listing.partition_schema
        values = {f.name: make_scalar(v, f.type) for f, v in zip(schema, file.partition, strict=True)}
        return _excludes(self.spec.where, values)

    def _match_selection(self, files: Sequence[DataFile]) -> dict[str, dict[int, RowSelection]] | None:
        if self.spec.selection is None:
            return None
        known = {name: file.url for file in files for name in (file.path, file.url)}
        out: dict[str, dict[int, RowSelection]] = {}
        for given, groups in self.spec.selection.items():
            name = str(given)
            url = known.get(name) or known.get(name.removeprefix("file://"))
            if url is None:
                close = difflib.get_close_matches(name, known, n=1)
                hint = f"; did you mean {redact(close[0])!r}?" if close else ""
                raise ValueError(
                    f"selection names {redact(name)!r}, which is not among the files of the scan{hint}"
                )
            out[url] = {group: RowSelection.of(ranges) for group, ranges in groups.items()}
        return out


def _is_text(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _excludes(where: Expr | None, values: Mapping[str, pa.Scalar]) -> bool:
    if where is None:
        return False
    try:
        return not bool(partition_evidence(where, values).may_true[0])
    except AccelError:
        # Not comparable with the partition's type: the full binding says so, or a column of the file is meant.
        return False
