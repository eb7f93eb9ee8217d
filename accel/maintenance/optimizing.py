"""`optimize`: rewrite the files of a directory so that selective scans read little of them."""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
import time
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from itertools import accumulate
from typing import Any, BinaryIO, Final

import pyarrow as pa

from accel.catalog.asking.published import index_beside
from accel.catalog.building.builder import CatalogBuilder
from accel.catalog.homes.objects import directory_at
from accel.catalog.verbs import IndexCall
from accel.errors import AccelError, ObjectNotFoundError, StoreError
from accel.maintenance.commits import DirectoryCommit
from accel.maintenance.layout import Layout, Preset, WrittenFile
from accel.maintenance.ordering import Ordering, Sample
from accel.maintenance.progress import JobProgress, Progress, run_to_end
from accel.maintenance.reading import read_rows
from accel.maintenance.rewriting import Rewrite
from accel.maintenance.staging import (
    PLAN_NAME,
    OutputRecord,
    RestartUnit,
    RewritePlan,
    find_outputs,
    open_staged,
    record_name,
    staged_name,
)
from accel.maintenance.table_files import TableFiles, list_table, open_table
from accel.metrics import Metrics
from accel.options import Options, check_options
from accel.planning.file_entry import FileEntry
from accel.runtime import io_loop
from accel.runtime.time_limits import check_time, time_limit, without_limit
from accel.scanning.spec import AUTO
from accel.store.clients import Connector
from accel.store.location import Location
from accel.tables.journal import AddedFile, Journal, RemovedFile, name_of_added
from accel.writing.sort_order import SortBy
from accel.writing.table_writer import BloomColumns
from accel.writing.wanted import Indexes

__all__ = ["OptimizeJob", "OptimizeReport", "optimize", "optimize_async"]

_SAMPLE_FILES: Final = 1 << 10
"""Files from which values are sampled, at most."""


Path = str | os.PathLike[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizeReport:
    """What `optimize` has done to a directory."""

    directory: str
    """Where the new files are."""
    rows: int
    """Rows of the table."""
    files_before: int
    """Files that were read."""
    files_after: int
    """Files that were written."""
    bytes_before: int
    """Bytes of the files that were read."""
    bytes_after: int
    """Bytes of the files that were written."""
    reused: int = 0
    """Files among these that a call which was killed had completed, and that were not written again."""
    finished: bool = False
    """Whether the job had been done before except for its last steps, which this call has finished."""
    left: tuple[str, ...] = ()
    """Old files that somebody else replaced in the last moment; they stay, and their rows may be there
    twice."""
    index: str | None = None
    """The index outside the files that was brought up to date."""
    warnings: tuple[str, ...] = ()
    """Indexes in the files that rule nothing out."""
    seconds: float = 0.0
    """The time that it took."""


def optimize(
    source: Path,
    *,
    to: Path | None = None,
    sort_by: SortBy | None = None,
    z_order: Sequence[str] | str | None = None,
    preset: Preset | str = Preset.SCAN,
    target_file_size: int | None = None,
    row_group_size: int | None = None,
    page_rows: int | None = None,
    blooms: BloomColumns | None = None,
    indexes: Indexes | None = None,
    index: Path | None = AUTO,
    progress: Progress | None = None,
    store: object | None = None,
    storage_options: Mapping[str, Any] | None = None,
    options: Options | None = None,
    timeout: float | None = None,
    **pyarrow_options: Any,
) -> OptimizeReport:
    """Rewrite the Parquet files of a directory: in an order across all of them, and laid out for selective
    reading.

    The table has the same rows afterwards. Rows of a partition folder (`key=value`) stay in it. In place, the
    new files are written under hidden names, and take the place of the old ones only when all of them are
    complete; a call that was killed is finished by the next one of the same arguments, which does not write
    again the files that are complete, and taken back by any other. Memory is bounded: what does not fit is
    sorted on disk.

    Parameters
    ----------
    source : str or PathLike
        The URL or path of a directory of Parquet files.
    to : str or PathLike, optional
        Another directory for the new files, which has none yet; by default they replace those of `source`.
    sort_by : str or sequence, optional
        A column, or columns and (column, "ascending" | "descending") pairs. Nulls come last, NaN is the
        greatest number. Without `sort_by` and `z_order` rows stay in their order.
    z_order : str or sequence of str, optional
        Up to eight columns whose values are to lie close together, all alike: each of them alone rules much
        out.
    preset : str
        "scan", or "random-access" for the lookup of single rows: small pages and dictionaries.
    target_file_size : int, optional
        About the bytes of a new file, by default 128 MiB; at most 4 GiB.
    row_group_size : int, optional
        The most rows of a row group; by default 1,048,576, for random access 262,144.
    page_rows : int, optional
        The most rows of a data page; by default 10,000, for random access 1,000. Needs pyarrow 23, `blooms`
        pyarrow 24.
    blooms : sequence of str or mapping, optional
        Columns that get Parquet's bloom filters, as for `accel.write_table`.
    indexes : mapping, optional
        Indexes inside the new files, as for `accel.embed`.
    index : str, PathLike or None
        An index outside the files that is brought up to date with the same commit; by default the one in
        `_accel/` of the directory, if there is one. None for none.
    progress : callable, optional
        Called now and then with a `JobProgress`, from this or another thread. An exception that it raises
        ends the run.
    store, storage_options, options
        As for `accel.scan`; they hold for both directories.
    timeout : float, optional
        Seconds after which the call ends with ScanTimeoutError, unless the new files are being put in place:
        that goes on to its end. The old files are then as they were.
    **pyarrow_options
        Options of `pyarrow.parquet.ParquetWriter`, as for `accel.write_table`.

    Returns
    -------
    OptimizeReport
        Files and bytes before and after.

    Raises
    ------
    TypeError, ValueError
        A column cannot be sorted by, or an argument is out of range.
    ObjectChangedError
        A file was changed meanwhile, or another job began in the directory. All files are as they were.
    SchemaMismatchError
        The files do not go together: no type of a column holds the values of all.
    StoreError
        A store failed, cannot move or remove objects, or `to` has files already. If the new files were
        committed, the next call finishes.
    AccelError
        A file is damaged or encrypted, or an index cannot be built.

    Examples
    --------
    >>> accel.optimize("s3://bucket/flights/", sort_by=["carrier", "flight"])  # doctest: +SKIP
    >>> order = ["origin", "dest"]
    >>> accel.optimize("flights", to="sorted", z_order=order, preset="random-access")  # doctest: +SKIP
    """
    layout = Layout.of(
        preset, target_file_size=target_file_size, row_group_size=row_group_size, page_rows=page_rows,
        blooms=blooms, indexes=indexes, writer=pyarrow_options,
    )  # fmt: skip
    ordering = Ordering.of(sort_by, z_order)
    given = {"store": store, "storage_options": storage_options, "options": options}
    job = OptimizeJob(
        source, to, layout=layout, ordering=ordering, index=index, progress=progress, given=given
    )
    # Credentials must not stay in the variables of a frame that a traceback may show.
    del source, to, store, storage_options, given
    with time_limit(timeout, job.source):
        return job.run()


async def optimize_async(
    source: Path,
    *,
    to: Path | None = None,
    sort_by: SortBy | None = None,
    z_order: Sequence[str] | str | None = None,
    preset: Preset | str = Preset.SCAN,
    target_file_size: int | None = None,
    row_group_size: int | None = None,
    page_rows: int | None = None,
    blooms: BloomColumns | None = None,
    indexes: Indexes | None = None,
    index: Path | None = AUTO,
    progress: Progress | None = None,
    store: object | None = None,
    storage_options: Mapping[str, Any] | None = None,
    options: Options | None = None,
    timeout: float | None = None,
    **pyarrow_options: Any,
) -> OptimizeReport:
    """Run `optimize` from a coroutine. Cancelled, it leaves the old files or the new ones.

    Parameters
    ----------
    source, to, sort_by, z_order, preset, target_file_size, row_group_size, page_rows, blooms, indexes, index
        As for `optimize`.
    progress
        As for `optimize`.
    store, storage_options, options, timeout, **pyarrow_options
        As for `optimize`.

    Returns
    -------
    OptimizeReport
        Files and bytes before and after.
    """
    layout = Layout.of(
        preset, target_file_size=target_file_size, row_group_size=row_group_size, page_rows=page_rows,
        blooms=blooms, indexes=indexes, writer=pyarrow_options,
    )  # fmt: skip
    ordering = Ordering.of(sort_by, z_order)
    given = {"store": store, "storage_options": storage_options, "options": options}
    job = OptimizeJob(
        source, to, layout=layout, ordering=ordering, index=index, progress=progress, given=given
    )
    del source, to, store, storage_options, given
    with time_limit(timeout, job.source):
        return await run_to_end(job.run, job.cancelled)


class _Cancelled(Exception):
    """The call was cancelled."""


class OptimizeJob:
    """One call of `optimize`: begun, carried out here or by workers, and committed. Its methods block.

    Parameters
    ----------
    source, to, index, progress
        As for `optimize`.
    layout : Layout
        How the new files are laid out.
    ordering : Ordering
        The order of the rows.
    given : mapping
        `store`, `storage_options` and `options`, as for `optimize`.
    """

    def __init__(
        self,
        source: Path,
        to: Path | None,
        *,
        layout: Layout,
        ordering: Ordering,
        index: Path | None,
        progress: Progress | None,
        given: Mapping[str, Any],
    ) -> None:
        self._started = time.monotonic()
        for path in (source, *([] if to is None else [to])):
            if not isinstance(path, str | os.PathLike):
                raise TypeError(f"optimize takes one directory, a path or URL, not a {type(path).__name__}")
        if progress is not None and not callable(progress):
            raise TypeError(f"progress is something to call, not a {type(progress).__name__}")
        self.options = check_options(given["options"])
        self.layout = layout
        self.ordering = ordering
        self._in_store = given["store"] is not None
        self._source = os.fspath(source)
        self.source = directory_at(source, in_store=self._in_store)
        self.target = self.source if to is None else directory_at(to, in_store=self._in_store)
        self._check_places()
        beside = index_beside(source if to is None else to)
        self._index = None if index is None else beside if index == AUTO else os.fspath(index)
        self._index_must_be = index is not None and index != AUTO
        self._given = {**given, "options": self.options}
        self.connector = Connector(**self._given)
        self.progress = progress
        self.cancelled = threading.Event()
        self._metrics = Metrics()
        self._reported = 0.0
        self._done: dict[str, int] = {}
        identity = (self.source.url, self.target.url, ordering.sort_by, ordering.z_order, self.layout)
        self.fingerprint = hashlib.sha256(repr(identity).encode()).hexdigest()[:16]

    def __repr__(self) -> str:
        return f"OptimizeJob({str(self.source)!r})"

    @property
    def in_place(self) -> bool:
        """Whether the new files replace the old ones."""
        return (self.source.root, self.source.path) == (self.target.root, self.target.path)

    def _check_places(self) -> None:
        if self.in_place or self.source.root != self.target.root:
            return
        one, other = self.source.path, self.target.path
        if one.startswith(other) or other.startswith(one):
            raise StoreError(
                "one of the two directories lies in the other", path=str(self.target), hint="name one beside"
            )

    # -- all of it -------------------------------------------------------------------------------

    def run(self) -> OptimizeReport:
        """Do all of it in this process."""
        finished = self.begin(RestartUnit.FILE)
        if finished is not None:
            return finished
        try:
            rewrite = self.rewrite()
            added: list[AddedFile] = []
            for number, (folder, members) in enumerate(self.table.folders().items()):
                files = self._rewrite_folder(number, members, rewrite)
                added += [self.added(folder, at, file) for at, file in enumerate(files)]
                self.warnings += [warning for file in files for warning in file.warnings]
            return self.commit(added)
        except BaseException:
            self.abandon()
            raise

    def _rewrite_folder(self, number: int, members: Sequence[int], rewrite: Rewrite) -> Sequence[WrittenFile]:
        """Write the rows of a folder that are not in files already, and return all new files."""
        written = self.outputs.get(number, [])
        skip = sum(file.rows for file in written)
        if written:
            self.note("read", skip)
            self.note("write", skip)
            if skip == sum(self._rows_of(member) for member in members):
                return written
        if not self.ordering:
            # Rows stay in their order, so the files of the first ones need not be read.
            ends = list(accumulate(self._rows_of(member) for member in members))
            done = bisect_right(ends, skip)
            members, skip = members[done:], skip - (ends[done - 1] if done else 0)
        at, start = len(written), sum(file.rows for file in written)

        def complete(file: WrittenFile) -> None:
            nonlocal start, at
            self._put_staged(record_name(number, at), OutputRecord(start=start, files=(file,)).encode())
            start, at = start + file.rows, at + 1

        return rewrite.write(
            self.tables(members, rewrite),
            self.open_new,
            name=lambda place: staged_name(number, place),
            note=self.note,
            complete=complete,
            written=written,
            skip=skip,
        )

    def _rows_of(self, member: int) -> int:
        return self.table.num_rows[self.table.paths[member]]

    # -- its parts -------------------------------------------------------------------------------

    def begin(self, unit: RestartUnit, way: str = "") -> OptimizeReport | None:
        """List and open the files, and announce the job; or finish what a call like this one has left, and
        report that.

        What such a call has written before it was killed is in `outputs`, and the plan that it followed in
        `plan`. Raises as `optimize` does.

        Parameters
        ----------
        unit : RestartUnit
            What can be taken over.
        way : str
            How the rows are cut into parts, as far as the caller says it.
        """
        # The announcement would make the directory.
        if self.source.scheme == "file" and not os.path.isdir(f"/{self.source.path}"):
            is_file = os.path.isfile(f"/{self.source.path}".rstrip("/"))
            raise ObjectNotFoundError(
                "there is no such file or directory",
                path=str(self.source),
                hint="this is a file: name the directory that it lies in" if is_file else None,
            )
        self.warnings: list[str] = []
        self.directory = DirectoryCommit(self.connector.client(self.target), self.target)
        finished = io_loop.run(self.directory.begin(self.fingerprint, published=self._published))
        if finished is not None:
            return self._report(finished, finished=True)
        try:
            self.table = io_loop.run(self._open())
            self.ordering.check(self.table.schema)
            self.layout.check(self.table.schema)
            self._key = self._plan_key(unit, way)
            io_loop.run(self._take_over(unit))
        except BaseException:
            self.abandon()
            raise
        return None

    async def _take_over(self, unit: RestartUnit) -> None:
        self.plan: RewritePlan | None = None
        self.outputs: Mapping[int, Sequence[WrittenFile]] = {}
        """Files that are complete, by the number of their folder or part."""
        if not self.directory.taken_over:
            return
        found = await find_outputs(self.directory, self._key, unit)
        if found is None:
            await self.directory.begin_anew()
        else:
            self.plan, self.outputs = found

    def _plan_key(self, unit: RestartUnit, way: str) -> str:
        """Return a digest of what the outputs depend on: these can be taken over if it is the same."""
        from accel._version import __version__

        digest = hashlib.sha256(repr((__version__, self.fingerprint, unit, way)).encode())
        digest.update(self.table.schema.serialize())
        for path, file in zip(self.table.paths, self.table.files, strict=True):
            digest.update(repr((path, file.size, file.etag)).encode())
        return digest.hexdigest()

    def record_plan(
        self, *, curve: Sequence[pa.Table] = (), limits: pa.Table | None = None, firsts: Sequence[int] = ()
    ) -> RewritePlan:
        """Write down how the rows are cut into outputs, before the first of these is written."""
        plan = RewritePlan(key=self._key, curve=tuple(curve), limits=limits, firsts=tuple(firsts))
        self._put_staged(PLAN_NAME, plan.encode())
        self.plan = plan
        return plan

    def _put_staged(self, name: str, content: bytes) -> None:
        with self.open_new(name) as file:
            file.write(content)

    async def _open(self) -> TableFiles:
        if not self.in_place:
            with suppress(ObjectNotFoundError):
                found, _ = await self._list(self.target)
                raise StoreError(
                    f"the directory has {len(found)} files already",
                    path=str(self.target),
                    hint="name an empty one",
                )
        files, paths = await self._list(self.source)
        if self._index is not None:
            try:
                await self._catalog(self._index).check_covers(self.target.root, self.target.path)
            except ObjectNotFoundError:
                if self._index_must_be:
                    raise
                self._index = None
        return await open_table(files, paths, self.connector, options=self.options, metrics=self._metrics)

    async def _list(self, directory: Location) -> tuple[list[FileEntry], list[str]]:
        text = self._source if directory is self.source else directory.url
        return await list_table(
            directory, text, self.connector, in_store=self._in_store, metrics=self._metrics
        )

    def rewrite(self) -> Rewrite:
        """Return what becomes of the rows; for a Z curve some of them are read, unless the plan has their
        ranks."""
        rewrite = Rewrite(
            stored=self.table.stored, ordering=self.ordering, layout=self.layout, options=self.options
        )
        if self.plan is None:
            sampled = self.ordering.z_order
            ordering = self.ordering.with_limits(self.sample(rewrite)) if sampled else self.ordering
            self.record_plan(curve=ordering.limits)
            return replace(rewrite, ordering=ordering)
        return replace(rewrite, ordering=replace(self.ordering, limits=self.plan.curve))

    def sample(self, rewrite: Rewrite) -> pa.Table:
        """Return some rows of the columns that the order depends on."""
        names = self.ordering.names
        members = range(0, len(self.table.files), max(1, len(self.table.files) // _SAMPLE_FILES))
        total = sum(self.table.num_rows[self.table.paths[at]] for at in members)
        narrow = rewrite.of_columns(names)
        sample = Sample(total)
        for table in self.tables(members, narrow):
            sample.add(table)
            self.note("sample", len(table), total)
        return sample.of([], narrow.plain_schema())

    def tables(self, members: Sequence[int], rewrite: Rewrite) -> Iterator[pa.Table]:
        """Yield the rows of some files."""
        urls = [self.table.files[at].url for at in members]
        return read_rows(urls, rewrite, self._given)

    def open_new(self, name: str) -> contextlib.AbstractContextManager[BinaryIO]:
        """Open a new file of a name."""
        return open_staged(self.target, self.directory.id, name, self._given)

    def added(self, folder: str, number: int, file: WrittenFile) -> AddedFile:
        """Return a file that was written for a folder, with the name that it gets: in the order of its
        number."""
        return AddedFile(
            staged=self.directory.staged(file.name),
            path=folder + name_of_added(number, self.directory.id),
            size=file.size,
            rows=file.rows,
        )

    def commit(self, added: Sequence[AddedFile]) -> OptimizeReport:
        """Have the new files take the place of the old ones. Raises as `optimize` does."""
        rows = sum(file.rows for file in added)
        before = sum(self.table.num_rows.values())
        if rows != before:
            raise AccelError(f"{rows} rows were written of {before}", path=str(self.source))
        notes = {
            "rows": rows,
            "files_before": len(self.table.files),
            "files_after": len(added),
            "bytes_before": self.table.size,
            "bytes_after": sum(file.size for file in added),
            "reused": sum(map(len, self.outputs.values())),
            "warnings": self.warnings,
        }
        removed = [
            RemovedFile(path=path, size=file.size or 0, etag=file.etag or "")
            for path, file in zip(self.table.paths, self.table.files, strict=True)
        ]
        check_time()
        with without_limit():
            io_loop.run(self._commit(added, removed, notes))
        return self._report(Journal(id="", state="committed", notes=notes, index=self._index))  # type: ignore[arg-type]

    async def _commit(
        self, added: Sequence[AddedFile], removed: Sequence[RemovedFile], notes: Mapping[str, Any]
    ) -> None:
        if not self.in_place:
            await self._check_sources(removed)
        await self.directory.commit(
            added,
            removed if self.in_place else [],
            index=self._index,
            notes=notes,
            published=self._published,
        )

    async def _check_sources(self, removed: Sequence[RemovedFile]) -> None:
        client = self.connector.client(self.source)
        await DirectoryCommit(client, self.source).check_unchanged(removed)

    async def _published(self, journal: Journal) -> None:
        if journal.index is not None:
            removed = {file.path: file.etag for file in journal.removed}
            await self._catalog(journal.index).replace_files([file.path for file in journal.added], removed)

    def _catalog(self, index: str) -> CatalogBuilder:
        return IndexCall(**self._given).builder(index)

    def abandon(self) -> None:
        """Remove what was written, unless it was committed. The next call does what fails here."""
        with suppress(AccelError), without_limit():
            io_loop.run(self.directory.abandon())

    def _report(self, journal: Journal, *, finished: bool = False) -> OptimizeReport:
        names = {field.name for field in fields(OptimizeReport)}
        notes = {name: value for name, value in journal.notes.items() if name in names}
        notes["warnings"] = tuple(notes.get("warnings", ()))
        return OptimizeReport(
            directory=str(self.target),
            index=journal.index,
            finished=finished,
            left=self.directory.left,
            seconds=time.monotonic() - self._started,
            **notes,
        )

    def note(self, stage: str, count: int, total: int | None = None) -> None:
        """Note that some rows are done; raises where the call was cancelled."""
        if self.cancelled.is_set():
            raise _Cancelled
        check_time()
        self._done[stage] = self._done.get(stage, 0) + count
        if self.progress is not None:
            whole = sum(self.table.num_rows.values()) if total is None else total
            self.progress(JobProgress(stage, self._done[stage], whole))
