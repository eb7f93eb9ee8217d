"""`embed_files`: put indexes into all files of a directory."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, field
from typing import Any, Final

from accel.catalog.asking.published import index_beside
from accel.catalog.homes.objects import directory_at
from accel.catalog.verbs import IndexCall
from accel.errors import (
    AccelError,
    EncryptedFileError,
    MemoryLimitError,
    ObjectChangedError,
    ObjectNotFoundError,
    ParquetFormatError,
    StoreError,
)
from accel.maintenance.progress import JobProgress, Progress, run_to_end
from accel.maintenance.table_files import list_table
from accel.metrics import Metrics
from accel.options import Options, check_options
from accel.runtime import io_loop
from accel.runtime.time_limits import time_limit
from accel.scanning.spec import AUTO
from accel.store.clients import Connector
from accel.writing.embedding import EmbedJob
from accel.writing.wanted import Indexes

__all__ = ["EmbedFilesJob", "EmbedFilesReport", "EmbeddedFile", "embed_files", "embed_files_async"]

_AT_ONCE: Final = 4
"""Files that are worked on at once: while one waits for its store, others are decoded."""
_OF_ONE_FILE = (
    ParquetFormatError,
    EncryptedFileError,
    MemoryLimitError,
    ObjectNotFoundError,
    ObjectChangedError,
)
"""Errors of one file, which keep no other from its indexes."""

Path = str | os.PathLike[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddedFile:
    """What became of one file."""

    path: str
    """Below the directory."""
    size_before: int = 0
    size_after: int = 0
    skipped: bool = False
    """It had the indexes already."""
    failure: str | None = None
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbedFilesReport:
    """What `embed_files` has done to a directory."""

    directory: str
    """Where the files with the indexes are."""
    files: int
    """All files of the directory."""
    embedded: int
    """Files that got indexes."""
    skipped: int
    """Files that had just these indexes before."""
    failed: Mapping[str, str] = field(default_factory=dict)
    """Files that could not get them, each with the reason; they are as they were."""
    bytes_before: int = 0
    """Bytes of the files that got indexes, without these."""
    bytes_after: int = 0
    """Bytes of the same files with the indexes."""
    index: str | None = None
    """The index outside the files that was brought up to date."""
    warnings: tuple[str, ...] = ()
    """Indexes that rule nothing out, and page indexes that were built again."""
    seconds: float = 0.0
    """The time that it took."""


def embed_files(
    source: Path,
    *,
    to: Path | None = None,
    indexes: Indexes,
    index: Path | None = AUTO,
    progress: Progress | None = None,
    store: object | None = None,
    storage_options: Mapping[str, Any] | None = None,
    options: Options | None = None,
    timeout: float | None = None,
) -> EmbedFilesReport:
    """Put indexes into all Parquet files of a directory, as `accel.embed` does into one.

    Each file is replaced by itself, whole, and only if nobody has changed it meanwhile. Files that have just
    these indexes are passed over, so that a call which was stopped goes on where it is called again.

    Parameters
    ----------
    source : str or PathLike
        The URL or path of a directory of Parquet files.
    to : str or PathLike, optional
        Another directory, which gets a file with the indexes for each file of `source`; by default the files
        are replaced.
    indexes : mapping
        As for `accel.embed`.
    index : str, PathLike or None
        An index outside the files that is refreshed in the end; by default the one in `_accel/` of the
        directory, if there is one. None for none.
    progress : callable, optional
        Called with a `JobProgress` for each file that is done. An exception that it raises ends the run.
    store, storage_options, options
        As for `accel.embed`.
    timeout : float, optional
        Seconds after which the call ends with ScanTimeoutError; files that are done by then stay so.

    Returns
    -------
    EmbedFilesReport
        How many files got indexes, and which could not.

    Raises
    ------
    TypeError, ValueError, ColumnNotFoundError, SchemaMismatchError
        A column cannot have that index, or there is no such kind.
    StoreError
        A store failed or cannot be written to; the directory holds no file (ObjectNotFoundError).

    Examples
    --------
    >>> accel.embed_files("s3://bucket/flights/", indexes={"carrier": "distinct"})  # doctest: +SKIP
    """
    job = EmbedFilesJob(
        source,
        to,
        indexes=indexes,
        index=index,
        progress=progress,
        store=store,
        storage_options=storage_options,
        options=options,
    )
    # Credentials must not stay in the variables of a frame that a traceback may show.
    del source, to, store, storage_options
    with time_limit(timeout, job.source):
        return job.run()


async def embed_files_async(
    source: Path,
    *,
    to: Path | None = None,
    indexes: Indexes,
    index: Path | None = AUTO,
    progress: Progress | None = None,
    store: object | None = None,
    storage_options: Mapping[str, Any] | None = None,
    options: Options | None = None,
    timeout: float | None = None,
) -> EmbedFilesReport:
    """Run `embed_files` from a coroutine. Cancelled, it ends the files that are under way, and leaves the
    others.

    Parameters
    ----------
    source, to, indexes, index, progress, store, storage_options, options, timeout
        As for `embed_files`.

    Returns
    -------
    EmbedFilesReport
        How many files got indexes, and which could not.
    """
    job = EmbedFilesJob(
        source,
        to,
        indexes=indexes,
        index=index,
        progress=progress,
        store=store,
        storage_options=storage_options,
        options=options,
    )
    del source, to, store, storage_options
    with time_limit(timeout, job.source):
        return await run_to_end(job.run, job.cancelled)


class EmbedFilesJob:
    """One call of `embed_files`. Its methods block.

    Parameters
    ----------
    source, to, indexes, index, progress, store, storage_options, options
        As for `embed_files`.
    """

    def __init__(
        self,
        source: Path,
        to: Path | None,
        *,
        indexes: Indexes,
        index: Path | None,
        progress: Progress | None,
        store: object | None,
        storage_options: Mapping[str, Any] | None,
        options: Options | None,
    ) -> None:
        self._started = time.monotonic()
        if not isinstance(source, str | os.PathLike):
            raise TypeError(f"embed_files takes one directory, not a {type(source).__name__}")
        if not isinstance(indexes, Mapping):
            raise TypeError('indexes= maps columns to kinds: {"category": "distinct"}')
        self._given: dict[str, Any] = {
            "store": store,
            "storage_options": storage_options,
            "options": check_options(options),
        }
        self._indexes = indexes
        self._in_store = store is not None
        self._text = os.fspath(source)
        self.source = directory_at(source, in_store=self._in_store)
        self.target = self.source if to is None else directory_at(to, in_store=self._in_store)
        if self.target.root == self.source.root and self.target.path != self.source.path:
            one, other = self.source.path, self.target.path
            if one.startswith(other) or other.startswith(one):
                raise StoreError("one of the two directories lies in the other", path=str(self.target))
        self._connector = Connector(**self._given)
        self._auto = index == AUTO
        beside = index_beside(source if to is None else to)
        self._index = None if index is None else beside if self._auto else os.fspath(index)
        self._progress = progress
        self.cancelled = threading.Event()

    def __repr__(self) -> str:
        return f"EmbedFilesJob({str(self.source)!r})"

    def run(self) -> EmbedFilesReport:
        """Do all of it in this process."""
        paths = self.paths()
        return self.report(paths, self.embed(paths, total=len(paths)))

    def paths(self) -> list[str]:
        """Return the paths of all files, below the directory."""
        _, paths = io_loop.run(
            list_table(
                self.source,
                self._text,
                self._connector,
                in_store=self._in_store,
                metrics=Metrics(),
            )
        )
        return paths

    def embed(self, paths: Sequence[str], *, total: int = 0) -> Iterator[EmbeddedFile]:
        """Yield what becomes of some files."""
        if self.target.scheme == "file":
            for folder in {os.path.dirname(f"/{self.target.path}{path}") for path in paths}:
                os.makedirs(folder, exist_ok=True)
        with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="accel-embed") as pool:
            waiting: list[Future[EmbeddedFile]] = []
            try:
                for done, path in enumerate(paths):
                    waiting.append(pool.submit(copy_context().run, self._embed_one, path))
                    if len(waiting) > _AT_ONCE:
                        yield self._note(waiting.pop(0).result(), done - _AT_ONCE + 1, total)
                for left in range(len(waiting)):
                    yield self._note(waiting[left].result(), len(paths) - len(waiting) + left + 1, total)
            finally:
                for future in waiting:
                    future.cancel()

    def _note(self, file: EmbeddedFile, done: int, total: int) -> EmbeddedFile:
        if self._progress is not None:
            self._progress(JobProgress("files", done, total))
        return file

    def _embed_one(self, path: str) -> EmbeddedFile:
        if self.cancelled.is_set():
            raise AccelError("the call was cancelled")
        source = self.source.url + path
        target = None if self.target is self.source else self.target.url + path
        job = EmbedJob(source, target, indexes=self._indexes, progress=None, dry_run=False, **self._given)
        try:
            if job.is_done():
                return EmbeddedFile(path=path, skipped=True)
            try:
                report = job.run()
            except ObjectChangedError:
                # Another attempt at the same file may have been sooner.
                if job.is_done():
                    return EmbeddedFile(path=path, skipped=True)
                raise
        except _OF_ONE_FILE as error:
            return EmbeddedFile(path=path, failure=str(error))
        return EmbeddedFile(
            path=path, size_before=report.size_before, size_after=report.size_after, warnings=report.warnings
        )

    def report(self, paths: Sequence[str], files: Iterable[EmbeddedFile]) -> EmbedFilesReport:
        """Refresh the index outside the files, and report what became of all files."""
        done = list(files)
        written = [file for file in done if not file.skipped and file.failure is None]
        index = self._index
        if index is not None:
            try:
                self._refresh(index)
            except ObjectNotFoundError:
                if not self._auto:
                    raise
                index = None
        return EmbedFilesReport(
            directory=str(self.target),
            files=len(paths),
            embedded=len(written),
            skipped=sum(file.skipped for file in done),
            failed={file.path: file.failure for file in done if file.failure is not None},
            bytes_before=sum(file.size_before for file in written),
            bytes_after=sum(file.size_after for file in written),
            index=index,
            warnings=tuple(warning for file in done for warning in file.warnings),
            seconds=time.monotonic() - self._started,
        )

    def _refresh(self, index: str) -> None:
        io_loop.run(IndexCall(**self._given).refresh(index))
