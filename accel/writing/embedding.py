"""`embed`: indexes put into a file that exists, whoever wrote it, without touching its data."""

from __future__ import annotations

import asyncio
import os
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from typing import Any

from accel.cache.freshness import PART_BYTES, put_object
from accel.errors import AccelError, ObjectChangedError, StoreError
from accel.options import Options, check_options
from accel.store import io_loop
from accel.store.client import Connector
from accel.store.local_store import copy_bytes, write_beside
from accel.store.location import parse_url
from accel.store.range_store import Writer, is_weak
from accel.store.tasks import see
from accel.store.threads import FILES
from accel.writing.report import EmbedProgress, EmbedReport, warn_of_idle
from accel.writing.source import LocalSource, RemoteSource, Source, open_local, open_remote
from accel.writing.survey import Made, prepare, report_on
from accel.writing.wanted import Indexes

__all__ = ["embed", "embed_async"]

_AHEAD = 2
"""Parts that are read while another is uploaded."""

Path = str | os.PathLike[str]


def embed(
    src: Path,
    dst: Path | None = None,
    *,
    indexes: Indexes,
    storage_options: Mapping[str, Any] | None = None,
    store: object | None = None,
    options: Options | None = None,
    progress: Callable[[EmbedProgress], None] | None = None,
    dry_run: bool = False,
) -> EmbedReport:
    """Put indexes into an existing Parquet file, and the page index where it lacks one.

    The data is not decoded and encoded again: every byte of it stays as and where it is. What changes is the
    file's end, and any other reader of Parquet reads the same rows from it as before.

    Parameters
    ----------
    src : str or PathLike
        One file: a URL or a path.
    dst : str or PathLike, optional
        Where to; by default in place. A file or object of that name is replaced.
    indexes : mapping
        Column (a name, or the dotted path of a struct's field) -> kind: a name ("distinct", "bitmap", ...,
        "idx1" for the distinct-value list of the DataFusion example), a kind object, a pair of either and
        a level ("file", "row group", "page", "row range"), or a list of these. Without a level an index is by
        page where the kind can be. For a zone map of several things their list stands for the column:
        "a, lower(s), (a, b)"; "*" for a kind that names its columns. Earlier indexes of accel's are replaced.
        {} adds the page index alone.
    storage_options, store, options
        As of `accel.scan`; they hold for `src` and `dst` alike. In place on an object store the file is
        put in one conditional request, up to `options.max_conditional_put_bytes`.
    progress : callable, optional
        Told now and then how far it is; called from this or another thread. What it raises ends the run.
    dry_run : bool
        Build everything and write nothing.

    Returns
    -------
    EmbedReport

    Warns
    -----
    UserWarning
        An index rules nothing out. So says `warnings` of the report, too.

    Raises
    ------
    TypeError
        `src` is no path, or `indexes` does not map columns to kinds; or another argument is of no type named here.
    ColumnNotFoundError, SchemaMismatchError, ValueError
        An index cannot be had of that column, or of that kind.
    ObjectNotFoundError
        There is no such file.
    ParquetFormatError
        It is no Parquet file, or damaged.
    EncryptedFileError
        It is encrypted or signed.
    MemoryLimitError
        A page, or what an index is built of, takes more than `options.memory_limit`; idx1 has too many texts.
    ObjectChangedError
        Somebody changed the file meanwhile; their version is left as it is.
    StoreError
        A store failed, cannot write, or cannot replace an object of that size in place.
    IndexFormatError
        With `options.strict`: the page index of the file does not verify, or contradicts the pages.
    AccelError
        A kind failed, or what it built does not read back.
    """
    job = _Job(
        src,
        dst,
        indexes=indexes,
        storage_options=storage_options,
        store=store,
        options=options,
        progress=progress,
        dry_run=dry_run,
    )
    # They may be credentials, and whoever shows a failure may show the variables of its frames.
    del src, dst, storage_options, store
    report = job.run()
    warn_of_idle(report)
    return report


async def embed_async(
    src: Path,
    dst: Path | None = None,
    *,
    indexes: Indexes,
    storage_options: Mapping[str, Any] | None = None,
    store: object | None = None,
    options: Options | None = None,
    progress: Callable[[EmbedProgress], None] | None = None,
    dry_run: bool = False,
) -> EmbedReport:
    """`embed` for event loops. Cancelling it leaves the file as it was, or as it was to become."""
    job = _Job(
        src,
        dst,
        indexes=indexes,
        storage_options=storage_options,
        store=store,
        options=options,
        progress=progress,
        dry_run=dry_run,
    )
    del src, dst, storage_options, store
    work = asyncio.ensure_future(asyncio.to_thread(job.run))
    try:
        report = await asyncio.shield(work)
    except asyncio.CancelledError:
        job.cancelled.set()
        # Cancelled once more it waits all the same: the thread may be putting the new file in place.
        while not work.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait((work,))
        see(work)
        raise
    warn_of_idle(report)
    return report


class _Cancelled(Exception):
    """The job was told to stop."""


class _Job:
    """One call of `embed`; `run` blocks."""

    def __init__(
        self,
        src: Path,
        dst: Path | None,
        *,
        indexes: Indexes,
        storage_options: Mapping[str, Any] | None,
        store: object | None,
        options: Options | None,
        progress: Callable[[EmbedProgress], None] | None,
        dry_run: bool,
    ) -> None:
        if not isinstance(src, str | os.PathLike):
            raise TypeError(
                f"embed takes one file, a path or URL: call it for each of a {type(src).__name__}"
            )
        if progress is not None and not callable(progress):
            raise TypeError(f"progress is something to call, not a {type(progress).__name__}")
        if not isinstance(dry_run, bool):
            raise TypeError(f"dry_run is True or False, not {dry_run!r:.80}")
        self.src = parse_url(src, in_store=store is not None)
        self.dst = self.src if dst is None else parse_url(dst, in_store=store is not None)
        self.indexes = indexes
        self.options = check_options(options)
        self.connector = Connector(storage_options=storage_options, store=store, options=self.options)
        self.progress = progress
        self.dry_run = dry_run
        self.cancelled = threading.Event()
        self.done = 0

    def run(self) -> EmbedReport:
        source = self._open()
        try:
            self._check_target(source)
            made = prepare(source, self.indexes, options=self.options, counter=self._counter)
            if not self.dry_run:
                self._write(made)
            return report_on(made, path=str(self.dst), written=not self.dry_run)
        except AccelError as error:
            raise error.at(path=source.name)
        finally:
            source.close()

    def _open(self) -> Source:
        if self.src.scheme == "file":
            return open_local("/" + self.src.path)
        return open_remote(self.connector.client(self.src), self.src)

    @property
    def in_place(self) -> bool:
        if self.src.scheme == self.dst.scheme == "file":
            return os.path.realpath("/" + self.src.path) == os.path.realpath("/" + self.dst.path)
        return (self.src.root, self.src.path) == (self.dst.root, self.dst.path)

    def _check_target(self, source: Source) -> None:
        """Refuse at once what could only fail at the end."""
        if self.dst.path.endswith("/") or not self.dst.path:
            raise StoreError("the target is a directory", path=str(self.dst), hint="name a file")
        if self.dst.scheme == "file":
            return
        writer = self.connector.client(self.dst).store
        if not isinstance(writer, Writer):
            raise StoreError("this store cannot be written to", path=str(self.dst), hint="name another dst")
        if not self.in_place or not isinstance(source, RemoteSource):
            return
        limit = self.options.max_conditional_put_bytes
        if source.size > limit:
            raise StoreError(
                f"an object of {source.size} bytes cannot be replaced in place: one request takes up to {limit}",
                path=source.name,
                hint="write to another name by dst, or raise options.max_conditional_put_bytes",
            )
        if source.pin.etag is None or is_weak(source.pin.etag):
            raise StoreError("a weak etag protects no replacement", path=source.name, hint="name another dst")

    def _counter(self, stage: str, total: int) -> Callable[[int], None]:
        self.done = 0

        def note(count: int) -> None:
            self.done += count
            if self.cancelled.is_set():
                raise _Cancelled
            if self.progress is not None:
                self.progress(EmbedProgress(stage, min(self.done, total), total))

        note(0)
        return note

    def _write(self, made: Made) -> None:
        note = self._counter("copy", made.tail.file_size)
        if self.dst.scheme == "file":
            self._write_local(made, os.path.realpath("/" + self.dst.path), note)
        else:
            io_loop.run(self._write_object(made, note))

    def _write_local(self, made: Made, target: str, note: Callable[[int], None]) -> None:
        source, tail = made.original.source, made.tail
        local = source if isinstance(source, LocalSource) else None
        like = local.found if local is not None and self.in_place else None
        check = local.check_unchanged if local is not None else None
        with write_beside(target, like=like, check=check) as file:
            if local is not None:
                copy_bytes(local.handle, file.fileno(), length=tail.start, note=note)
            else:
                for start in range(0, tail.start, PART_BYTES):
                    [data] = source.read([(start, min(tail.start, start + PART_BYTES))])
                    file.write(data)
                    note(len(data))
            for part in tail.read():
                file.write(part)
            file.flush()
            note(tail.length)
            self._read_back(file.fileno(), made)

    def _read_back(self, handle: int, made: Made) -> None:
        """The end of what was written, as it stands in the new file."""
        tail = made.tail
        if os.fstat(handle).st_size != tail.file_size:
            raise AccelError("the copy has not the size that it should have")
        at = tail.start
        for part in tail.read():
            if os.pread(handle, len(part), at) != part:
                raise AccelError("the copy does not read back as it was written")
            at += len(part)

    async def _write_object(self, made: Made, note: Callable[[int], None]) -> None:
        client, parts, size = self.connector.client(self.dst), _parts(made, note), made.tail.file_size
        source = made.original.source
        pinned = source.pin.etag if self.in_place and isinstance(source, RemoteSource) else None
        try:
            await put_object(client, self.dst.path, parts=parts, size=size, if_match=pinned)
        except ObjectChangedError as error:
            if not self.in_place:  # the source, which may be local
                raise error.of(source.name) from error.__cause__
            raise ObjectChangedError(
                "the object was changed meanwhile, and is left as it is",
                path=str(self.dst),
                hint="start again",
            ) from error
        except AccelError as error:
            if error.path == self.dst.path:  # a store knows only the path in it
                error.of(str(self.dst))
            raise


async def _parts(made: Made, note: Callable[[int], None]) -> AsyncIterator[bytes]:
    """The new file from front to end; some of it is read ahead while the last part is on its way."""
    source, tail = made.original.source, made.tail
    ahead: deque[asyncio.Task[list[memoryview]]] = deque()
    try:
        for start in range(0, tail.start + _AHEAD * PART_BYTES, PART_BYTES):
            if start < tail.start:
                wanted = [(start, min(tail.start, start + PART_BYTES))]
                if isinstance(source, RemoteSource):
                    read = source.fetch(wanted)
                else:
                    read = FILES.run(source.read, wanted)
                ahead.append(asyncio.create_task(read))
            if ahead and start >= _AHEAD * PART_BYTES:
                [data] = await ahead.popleft()
                note(len(data))
                yield bytes(data)
        if isinstance(source, LocalSource):
            # No read of it is pinned: without its footer what was sent so far is given up.
            await FILES.run(source.check_unchanged)
        for part in tail.read():
            note(len(part))
            yield part
    finally:
        for task in ahead:
            task.cancel()
        await asyncio.gather(*ahead, return_exceptions=True)
