"""A scan's source made definite: its files, its schema, its question, and the work on each file.

Lives on the I/O loop, one per run. Files are opened while the first one still settles the schema, so that
a directory costs one listing, one wave of footers and one of data.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import pyarrow as pa

from accel.arrays import make_scalar
from accel.errors import AccelError, ObjectNotFoundError, SchemaMismatchError
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
from accel.run import FileWork

__all__ = ["ScanSpec", "Session"]

# Over HTTP nothing is listed, and a local directory shows that it is one.
_NO_DIRECTORIES = ("http:", "https:", "file:")

RowRanges = Mapping[int, Sequence[tuple[int, int]]]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ScanSpec:
    """The arguments of a scan, checked."""

    source: Any
    where: Expr | None = None
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
            raise ObjectNotFoundError("there are no Parquet files", path=str(self.spec.source))
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
            metrics=self.reader.metrics,
        )

    async def question(self) -> Question:
        """What is asked, with the schema settled: by `schema=`, else by the first file."""
        if self._question is None:
            self._question = asyncio.get_running_loop().create_task(self._settle())
        return await asyncio.shield(self._question)

    async def close(self) -> None:
        """End what the session still has under way."""
        if self._question is not None and not self._question.done():
            self._question.cancel()
            await asyncio.wait([self._question])

    async def _settle(self) -> Question:
        spec = self.spec
        listing = await self.listing()
        schema = spec.schema
        if schema is None:
            if self._first is None:
                self._first = await self.reader.open(listing.files[0])
            handle, trips = self._first
            self.counts.opening_trips = max(self.counts.opening_trips, trips)
            schema = handle.arrow_schema
            if spec.by_position and spec.columns is None:
                self.first_names = list(schema.names)
        partitions = [f for f in listing.partition_schema if schema.get_field_index(f.name) < 0]
        if spec.schema is not None:
            # A schema given by the caller may name partition columns, and then types them.
            partitions += [
                schema.field(f.name) for f in listing.partition_schema if schema.get_field_index(f.name) >= 0
            ]
        names = {f.name for f in partitions}
        data_set = pa.schema(
            [f for f in schema if f.name not in names or spec.schema is not None]
            + [f for f in partitions if schema.get_field_index(f.name) < 0]
        )
        try:
            if spec.where is not None:
                from accel.predicate.bind import bind

                # Refuses what no file could answer before any is read.
                bind(spec.where, data_set)
            output = project_schema(data_set, spec.columns)
        except AccelError as error:
            raise error if spec.schema is not None else error.at(path=listing.files[0].url) from None
        return Question(
            where=spec.where,
            schema=data_set,
            output=output,
            partition_names=tuple(f.name for f in partitions),
        )

    # -- files -----------------------------------------------------------------------------------

    async def _files(self) -> AsyncIterator[DataFile]:
        for file in (await self.listing()).files:
            if self._selection is None or file.url in self._selection:
                yield file

    async def work(self) -> AsyncIterator[FileWork]:
        """The files to read, in order, each with the way to plan it."""
        listing = await self.listing()
        async for file in self._files():
            yield self._file_work(file, listing)

    async def file_plans(self) -> AsyncIterator[Callable[[], Awaitable[tuple[FilePlan, int]]]]:
        """The files to read, in order, each as what plans it."""
        listing = await self.listing()
        async for file in self._files():
            yield partial(self.plan_file, file, listing)

    def _file_work(self, file: DataFile, listing: Listing) -> FileWork:
        async def tasks() -> tuple[Sequence[ScanTask], int]:
            plan, trips = await self.plan_file(file, listing)
            return plan.tasks, trips

        def distrust() -> bool:
            handle = self._handles.get(file.url)
            return handle is not None and self.reader.distrust(file, handle)

        return FileWork(tasks, lambda: self.reader.forget(file), distrust)

    async def plan_file(self, file: DataFile, listing: Listing) -> tuple[FilePlan, int]:
        """Plan one file: the plan, and the round trips up to its data (the listing's included)."""
        names = listing.partition_schema.names
        self.counts.files += 1
        metrics = self.reader.metrics
        if self._excluded(file, listing):
            question = await self.question()
            if all(name in question.partition_names for name in names):
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
            partition=constant_fields(question, names, file.partition),
            selection=None if self._selection is None else self._selection[file.url],
        )
        metrics.files.add(total=1, kept=1 if plan.tasks else 0)
        counts = self.counts
        counts.files_kept += 1 if plan.tasks else 0
        counts.opening_trips = max(counts.opening_trips, opening)
        counts.index_trips = max(counts.index_trips, indexing)
        return plan, listing.round_trips + opening + indexing

    def _excluded(self, file: DataFile, listing: Listing) -> bool:
        """Whether the partition values alone exclude a file."""
        if self.spec.where is None or not file.partition:
            return False
        schema = listing.partition_schema
        values = {f.name: make_scalar(v, f.type) for f, v in zip(schema, file.partition, strict=True)}
        try:
            return not bool(partition_evidence(self.spec.where, values).may_true[0])
        except AccelError:
            # Not comparable with the partition's type: the full binding says so, or a column of the file is meant.
            return False

    def _match_selection(self, files: Sequence[DataFile]) -> dict[str, dict[int, RowSelection]] | None:
        if self.spec.selection is None:
            return None
        known = {name: file.url for file in files for name in (file.path, file.url)}
        out: dict[str, dict[int, RowSelection]] = {}
        for name, groups in self.spec.selection.items():
            url = known.get(str(name)) or known.get(str(name).removeprefix("file://"))
            if url is None:
                raise ValueError(f"selection names {name!r}, which is not among the files of the scan")
            out[url] = {int(group): RowSelection.of(ranges) for group, ranges in groups.items()}
        return out
