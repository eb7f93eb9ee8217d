"""`embed`: put indexes into an existing file of any writer without touching its data."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from accel.errors import AccelError, IndexFormatError, ObjectChangedError, ObjectNotFoundError, StoreError
from accel.format.embedded import IDX1_KEY, fingerprint, parse_toc
from accel.indexes.kind import IndexKind
from accel.options import Options, check_options
from accel.runtime import io_loop
from accel.runtime.tasks import see
from accel.runtime.threads import FILES
from accel.runtime.time_limits import check_time, time_limit
from accel.store.clients import Connector
from accel.store.local_store import copy_bytes, write_beside
from accel.store.location import Location, parse_url
from accel.store.range_store import Writer
from accel.store.writes import PART_BYTES, put_object, swap_object
from accel.versions import is_weak
from accel.writing.original import Original, open_original
from accel.writing.report import EmbedProgress, EmbedReport, warn_of_idle
from accel.writing.source import LocalSource, RemoteSource, Source, open_local, open_remote
from accel.writing.survey import Note, PreparedFile, prepare, report_on
from accel.writing.wanted import IDX1, Indexes, WantedIndex, read_wanted

__all__ = ["EmbedJob", "embed", "embed_async"]

_AHEAD = 2
"""Parts that are read ahead while one is uploaded."""

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
    timeout: float | None = None,
) -> EmbedReport:
    """Put indexes into an existing Parquet file, and a page index if it lacks one.

    Only the end of the file changes. The data is not encoded again: every byte of it stays the same and in
    its place, and any other reader of Parquet reads the same rows as before.

    Parameters
    ----------
    src : str or PathLike
        One file: a URL or a path.
    dst : str or PathLike, optional
        The new file, which replaces any of that name; by default `src` itself.
    indexes : mapping
        Column (a name, or the dotted path of a field of a struct) -> kind: a name ("distinct", "bitmap", ...,
        "idx1" for the distinct-value list of DataFusion's example), a kind object, a pair of either and a
        level ("file", "row group", "page", "row range"), or a list of these. The default level is "page" if
        the kind has it. In place of the column, a zone map takes a list ("a, lower(s), (a, b)"), and a kind
        that names its columns takes "*". Earlier indexes of accel's are replaced. {} adds the page index
        alone.
    storage_options, store, options
        As for `accel.scan`; they hold for `src` and `dst` alike. An object is replaced in place in one
        conditional request, of up to `options.max_conditional_put_bytes`.
    progress : callable, optional
        Called now and then with an `EmbedProgress`, from this or another thread. An exception that it raises
        ends the run.
    dry_run : bool
        Whether to build everything but write nothing.
    timeout : float, optional
        Seconds after which the call ends with ScanTimeoutError; `dst` is then as it was, or has all
        indexes.

    Returns
    -------
    EmbedReport
        The indexes, their sizes and times, and warnings.

    Raises
    ------
    TypeError
        `src` is no path, `indexes` does not map columns to kinds, or another argument is of none of these
        types.
    ColumnNotFoundError, SchemaMismatchError, ValueError
        The column cannot have that index, or there is no such kind.
    ObjectNotFoundError
        There is no such file.
    ParquetFormatError
        The file is no Parquet file, or damaged.
    EncryptedFileError
        The file is encrypted or signed.
    MemoryLimitError
        A page, or the values of an index, take more than `options.memory_limit`; idx1 has too many texts.
    ObjectChangedError
        The file was changed meanwhile; the new version is left as it is.
    StoreError
        A store failed, cannot write, or cannot replace an object of that size in place.
    IndexFormatError
        The page index does not verify, or contradicts the pages, with `options.strict`.
    AccelError
        A kind failed, or the index that it built does not read back.

    Warns
    -----
    UserWarning
        An index rules nothing out; the report says so, too.

    Examples
    --------
    >>> indexes = {"carrier": "distinct", "flight": ["bitmap", ("bloom", "row group")]}
    >>> accel.embed("flights.parquet", indexes=indexes)
    """
    job = EmbedJob(
        src,
        dst,
        indexes=indexes,
        storage_options=storage_options,
        store=store,
        options=options,
        progress=progress,
        dry_run=dry_run,
    )
    limit = time_limit(timeout, job.src)
    # Credentials must not stay in the variables of a frame that a traceback may show.
    del src, dst, storage_options, store
    with limit:
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
    timeout: float | None = None,
) -> EmbedReport:
    """Put indexes into an existing Parquet file from a coroutine. Cancelled, it leaves the old file or the
    new one.

    Parameters
    ----------
    src, dst, indexes, storage_options, store, options, progress, dry_run, timeout
        As for `embed`.

    Returns
    -------
    EmbedReport
        As `embed` returns it.

    Raises
    ------
    AccelError, TypeError, ValueError
        As `embed` raises them.

    Warns
    -----
    UserWarning
        An index rules nothing out.
    """
    job = EmbedJob(
        src,
        dst,
        indexes=indexes,
        storage_options=storage_options,
        store=store,
        options=options,
        progress=progress,
        dry_run=dry_run,
    )
    limit = time_limit(timeout, job.src)
    del src, dst, storage_options, store
    with limit:
        work = asyncio.ensure_future(asyncio.to_thread(job.run))
    try:
        report = await asyncio.shield(work)
    except asyncio.CancelledError:
        job.cancelled.set()
        # Even if it is cancelled again it waits: the thread may be putting the new file in place.
        while not work.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait((work,))
        see(work)
        raise
    warn_of_idle(report)
    return report


class _Cancelled(Exception):
    """The call was cancelled."""


class EmbedJob:
    """One call of `embed`."""

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
                f"embed takes one file, a path or URL: call it for each of a {type(src).__name__}, or "
                "`accel.embed_files` for a directory"
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

    def is_done(self) -> bool:
        """Return whether the target has just the indexes wanted, and was made from the source as it is now.

        Raises as `embed` does for the source.
        """
        source = self._open(self.src)
        try:
            original = open_original(source, options=self.options)
            wanted = read_wanted(self.indexes, original.metadata)
            if self.in_place:
                return holds_indexes(original, wanted)
            data = fingerprint(original.metadata)
        finally:
            source.close()
        try:
            source = self._open(self.dst)
        except ObjectNotFoundError:
            return False
        try:
            original = open_original(source, options=self.options)
            return fingerprint(original.metadata) == data and holds_indexes(original, wanted)
        except AccelError:
            return False  # something else, which is replaced
        finally:
            source.close()

    def run(self) -> EmbedReport:
        """Do all of it, in blocking calls."""
        source = self._open(self.src)
        try:
            self._check_target(source)
            prepared = prepare(source, self.indexes, options=self.options, counter=self._counter)
            if not self.dry_run:
                self._write(prepared)
            return report_on(prepared, path=str(self.dst), written=not self.dry_run)
        except AccelError as error:
            raise error.at(path=source.name)
        finally:
            source.close()

    def _open(self, location: Location) -> Source:
        if location.scheme == "file":
            return open_local("/" + location.path)
        return open_remote(self.connector.client(location), location)

    @property
    def in_place(self) -> bool:
        """Whether the new file replaces the old one."""
        if self.src.scheme == self.dst.scheme == "file":
            return os.path.realpath("/" + self.src.path) == os.path.realpath("/" + self.dst.path)
        return (self.src.root, self.src.path) == (self.dst.root, self.dst.path)

    def _check_target(self, source: Source) -> None:
        """Refuse a target that cannot be written to before anything is built."""
        if self.dst.path.endswith("/") or not self.dst.path:
            raise StoreError("the target is a directory", path=str(self.dst), hint="name a file")
        if self.dst.scheme == "file":
            return
        writer = self.connector.client(self.dst).store
        if not isinstance(writer, Writer):
            raise StoreError("this store cannot be written to", path=str(self.dst), hint="name another `dst`")
        if not self.in_place or not isinstance(source, RemoteSource):
            return
        limit = self.options.max_conditional_put_bytes
        if source.size > limit:
            raise StoreError(
                f"an object of {source.size} bytes cannot be replaced in place: one request takes up to "
                f"{limit}",
                path=source.name,
                hint="write to another name by `dst`, or raise `options.max_conditional_put_bytes`",
            )
        if source.pin.etag is None or is_weak(source.pin.etag):
            raise StoreError(
                "a weak etag protects no replacement", path=source.name, hint="name another `dst`"
            )

    def _counter(self, stage: str, total: int) -> Note:
        self.done = 0

        def note(count: int) -> None:
            self.done += count
            if self.cancelled.is_set():
                raise _Cancelled
            check_time()
            if self.progress is not None:
                self.progress(EmbedProgress(stage, min(self.done, total), total))

        note(0)
        return note

    def _write(self, prepared: PreparedFile) -> None:
        note = self._counter("copy", prepared.tail.file_size)
        if self.dst.scheme == "file":
            self._write_local(prepared, os.path.realpath("/" + self.dst.path), note)
        else:
            io_loop.run(self._write_object(prepared, note))

    def _write_local(self, prepared: PreparedFile, target: str, note: Note) -> None:
        source, tail = prepared.original.source, prepared.tail
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
            self._read_back(file.fileno(), prepared)

    def _read_back(self, handle: int, prepared: PreparedFile) -> None:
        """Compare the end of the new file with what was written."""
        tail = prepared.tail
        if os.fstat(handle).st_size != tail.file_size:
            raise AccelError("the copy has not the size that it should have")
        at = tail.start
        for part in tail.read():
            if os.pread(handle, len(part), at) != part:
                raise AccelError("the copy does not read back as it was written")
            at += len(part)

    async def _write_object(self, prepared: PreparedFile, note: Note) -> None:
        client, size, ending = self.connector.client(self.dst), prepared.tail.file_size, prepared.tail.rest
        parts = partial(_parts, prepared, note)
        source = prepared.original.source
        pinned = source.pin.etag if self.in_place and isinstance(source, RemoteSource) else None
        try:
            if pinned is None:
                await put_object(client, self.dst.path, parts=parts(), size=size)
            else:
                await swap_object(
                    client, self.dst.path, parts=parts, size=size, ending=ending, if_match=pinned
                )
        except ObjectChangedError as error:
            if not self.in_place:  # the source has changed, which may be local
                raise error.of(source.name) from error.__cause__
            raise ObjectChangedError(
                "the object was changed meanwhile, and is left as it is",
                path=str(self.dst),
                hint="start again",
            ) from error
        except AccelError as error:
            if error.path == self.dst.path:  # a store names only the path inside it
                error.of(str(self.dst))
            raise


def holds_indexes(original: Original, wanted: Sequence[WantedIndex]) -> bool:
    """Return whether a file has a page index and just the wanted indexes. An `idx1` that is not wanted stays,
    and so counts for nothing."""
    metadata = original.metadata
    chunks = metadata.num_row_groups * len(metadata.schema.leaves)
    if len(original.offset_indexes) < chunks:
        return False
    try:
        toc = parse_toc(metadata)
    except IndexFormatError:
        return False
    idx1 = metadata.key_value.get(IDX1_KEY)
    versions = {one.kind_name: _versions(one.kind) for one in wanted}
    found = set()
    for entry in () if toc is None else toc.entries:
        if entry.kind == IDX1:
            if IDX1 not in versions:
                continue
            if idx1 != str(entry.offset).encode():  # another program wrote one since
                return False
        if entry.version not in versions.get(entry.kind, ()):
            return False
        columns = tuple((each.column, each.of) for each in entry.columns)
        found.add((entry.kind, entry.column, entry.level, _text_of(entry.params), columns))
    return found == {
        (
            one.kind_name,
            tuple(one.leaf.path),
            str(one.level),
            _text_of({} if one.kind is None else one.kind.params),
            tuple((tuple(leaf.path), of) for leaf, of in one.covers()),
        )
        for one in wanted
    }


def _versions(kind: IndexKind | None) -> tuple[int | None, ...]:
    return (1,) if kind is None else (kind.version, kind.joined_version)


def _text_of(params: Mapping[str, Any]) -> str:
    return json.dumps(params, sort_keys=True, default=str)


async def _parts(prepared: PreparedFile, note: Note) -> AsyncIterator[bytes]:
    """Yield the new file from front to end, reading ahead while a part is uploaded."""
    source, tail = prepared.original.source, prepared.tail
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
            # Reads of it are not pinned. If it has changed, the upload fails before its footer is sent.
            await FILES.run(source.check_unchanged)
        for part in tail.read():
            note(len(part))
            yield part
    finally:
        for task in ahead:
            task.cancel()
        await asyncio.gather(*ahead, return_exceptions=True)
