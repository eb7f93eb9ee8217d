"""The files that paths name: globs and directories are listed, and a name that may be a file is opened."""

from __future__ import annotations

import asyncio
import operator
import os
import warnings
from bisect import bisect_left
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import takewhile
from typing import TYPE_CHECKING, Literal

import pyarrow as pa

from accel.cache.cache import Cache
from accel.cache.cache_key import CacheKey, Entry
from accel.errors import AccelError, ObjectNotFoundError, StoreError
from accel.metrics import Metrics
from accel.planning.file_entry import FileBlock, FileEntry, FileFacts
from accel.planning.handle import FileHandle
from accel.runtime.tasks import Group, breathe, each
from accel.runtime.threads import FILES
from accel.scanning.file_source import FileSource, SourceRequest
from accel.store.clients import Clients
from accel.store.range_store import ObjectEntry, PageSeen
from accel.store.request_errors import EmptyObjectError, raising_foremost
from accel.tables.foreign_tables import (
    ForeignTable,
    find_table,
    first_table,
    named_table,
    suspicion_of,
    table_of_footer,
    table_of_local_files,
)
from accel.tables.listed_files import (
    ListingClient,
    choose,
    choose_certain_files,
    expand_local_glob,
    find_directory_markers,
    raise_no_files,
    visible_files,
)
from accel.tables.named_source import NamedSource, SourceShape, may_be_local, read_remote, read_source

if TYPE_CHECKING:
    from accel.tables.last_listing import LastListing

__all__ = ["PathRules", "PathSource", "discover"]

# Bytes that the cache counts for the name of a directory.
_DIRECTORY_BYTES = 256
_NO_COLUMNS = pa.schema([])
# HTTP servers list nothing, and the file system tells a directory from a file.
_NO_DIRECTORIES = ("http:", "https:", "file:")


@dataclass(frozen=True, slots=True, kw_only=True)
class PathRules:
    """How the names of sources, and the paths below them, are understood."""

    partitioning: str | pa.Schema | None = "hive"
    """Whether `key=value` directories become columns; a schema fixes their types and order. For one
    directory, only directories below it count, and all files must spell the same keys. For named files,
    patterns and several sources, whole paths count, and the keys that all of them spell."""
    glob: bool = True
    """Whether `*`, `?`, `[...]` and `**` make a pattern. An object of exactly that name takes precedence."""
    as_files: bool = False
    """Whether files that are seen to be part of a table are named all the same."""
    in_store: bool = False
    """Whether paths are relative to the root of a store that the caller gave."""
    text_columns: Collection[str] = ()
    """Partition columns that are strings, whatever their values look like."""
    spelled_as: Collection[str] | None = None
    """As of `partition_paths.settle`."""


class PathSource(FileSource):
    """The files that paths, URLs, globs and directories name, as one block.

    Parameters
    ----------
    source : str, os.PathLike, or list of these
        What the caller names.
    partitioning : "hive", pyarrow.Schema or None
        How directory names become columns.
    glob : bool
        Whether wildcards form a pattern.
    in_store : bool
        Whether paths are relative to a store that the caller gave.
    text_columns : collection of str
        Partition columns whose values are texts, whatever they look like.
    spelled_as : collection of str, optional
        As of `partition_paths.settle`: given where names are compared without regard to case.
    cache : Cache, optional
        Remembers the last listing of each source, and which directories are named like a file.
    as_files : bool
        Whether files that are part of a table are read all the same.
    notice : str, optional
        The path of an object below the source, to be looked for in the listing where the source is one
        directory.
    """

    def __init__(
        self,
        source: object,
        *,
        partitioning: Literal["hive"] | pa.Schema | None = "hive",
        glob: bool = True,
        in_store: bool = False,
        text_columns: Collection[str] = (),
        spelled_as: Collection[str] | None = None,
        cache: Cache | None = None,
        as_files: bool = False,
        notice: str | None = None,
    ) -> None:
        self._notice = notice
        self.noticed: ObjectEntry | None = None
        """The object that was to be noticed, once a listing has shown it."""
        self._source = source
        self._rules = PathRules(
            partitioning=partitioning,
            glob=glob,
            as_files=as_files,
            in_store=in_store,
            text_columns=text_columns,
            spelled_as=spelled_as,
        )
        self._cache = cache
        self._last: LastListing | None = None
        """The last listing in the cache, if the source is one to list."""
        self._sole: FileEntry | None = None
        """The only file that the source can name, if that is certain without a request."""
        self._found: FileBlock | None = None
        self._metrics: Metrics | None = None
        self._suspected = False

    def expected(self, request: SourceRequest) -> FileBlock | None:
        """Return the files of the last listing, or the file whose cached metadata is too old to be
        trusted."""
        if not isinstance(self._source, str):
            return None
        self._look_up(self._listed_name(self._source), request)
        if self._last is not None:
            return self._last.recall()
        file, reader = self._sole, request.reader
        if file is None or not reader.opener.freshness.is_stale(reader.client(file.root), file):
            return None
        return FileBlock((file,), _NO_COLUMNS, 0)

    async def confirm(self, request: SourceRequest, expected: FileBlock) -> FileBlock | None:
        """List the source again, or revalidate the file."""
        if expected.round_trips:
            block = await self._find(request)
            return block if block.files is expected.files else None
        (file,), reader = expected.files, request.reader
        current = await reader.opener.freshness.revalidate(reader.client(file.root), file)
        if current is None:
            return None
        handle, trips = current
        return replace(_with_handle(expected, handle, trips), round_trips=trips)

    def _look_up(self, name: str, request: SourceRequest) -> None:
        """Find the last listing of a name, or the only file that it can mean, unless the name may be
        local."""
        self._last = self._sole = None
        cache, reader = self._cache, request.reader
        rules = self._rules
        named = None if cache is None else read_remote(name, glob=rules.glob, in_store=rules.in_store)
        if cache is None or named is None:
            return
        if named.shape is not SourceShape.FILE:
            from accel.tables.last_listing import LastListing

            # The arguments that decide which files a listing yields.
            place = (
                rules.glob,
                rules.in_store,
                rules.partitioning,
                frozenset(rules.text_columns),
                rules.as_files,
                None if rules.spelled_as is None else tuple(rules.spelled_as),
            )
            token = reader.client(named.location.root).token
            self._last = LastListing(cache, CacheKey(token, name, None, Entry.LISTING, place))
        elif named.is_plain_file and not isinstance(self._rules.partitioning, pa.Schema):
            self._sole = named.as_file()

    async def blocks(self, request: SourceRequest) -> AsyncIterator[FileBlock]:
        """Yield one block; see `FileSource.blocks`."""
        yield await self._find(request)

    async def find(self, request: SourceRequest) -> FileBlock:
        """Return the block that `blocks` yields, and has from then on."""
        return await self._find(request)

    def note_version(self, file: FileEntry, handle: FileHandle) -> None:
        """Refuse a file of a directory, pattern or list whose footer says that it is part of a table."""
        if self._rules.as_files or (
            isinstance(self._source, str | os.PathLike) and os.fspath(self._source) == file.url
        ):
            return  # a file that is named by itself is meant
        _refuse(table_of_footer(handle.shared.key_value, file.url), file.url)
        suspicion = None if self._suspected else suspicion_of(file.path, handle.metadata.schema)
        if suspicion is not None:
            self._suspected = True
            if self._metrics is not None:
                self._metrics.warn(suspicion, is_shown=True)
            warnings.warn(suspicion, stacklevel=2)

    def hint_for(self, column: str, url: str) -> str | None:
        """Return a hint if directory names spell the column; see `FileSource.hint_for`."""
        from accel.tables.partition_paths import hint_of_key

        return hint_of_key(column, url, source=self._source, partitioning=self._rules.partitioning)

    async def _find(self, request: SourceRequest) -> FileBlock:
        self._metrics = request.reader.metrics
        if self._found is None:
            if isinstance(self._source, str) and self._last is None and self._sole is None:
                self._look_up(self._listed_name(self._source), request)
            block = await self._list(self._source, request)
            if not block.files:
                raise ObjectNotFoundError("the source names no files")
            only = block.files[0]
            if len(block.files) == 1 and only.size is None and not only.root.startswith(_NO_DIRECTORIES):
                block = await self._open_or_list(only, block, request)
            self._found = block if self._last is None else await self._last.note(block)
        return self._found

    def _was_directory(self, name: str) -> bool:
        """Return whether a name that looks like a file was found to be a directory."""
        return self._cache is not None and self._cache.peek(_directory_key(name)) is True

    def _listed_name(self, name: str) -> str:
        return _below(name) if self._was_directory(name) else name

    async def _open_or_list(self, only: FileEntry, block: FileBlock, request: SourceRequest) -> FileBlock:
        """Open the file of a name, or list what lies below it: Spark writes directories called x.parquet.

        An object of the name is the file, unless it is empty and there are objects below it: then it marks a
        directory.
        """
        if self._was_directory(only.url):
            return await self._open_and_list(only, block, request)
        try:
            return _with_handle(block, *await request.reader.open(only))
        except (ObjectNotFoundError, EmptyObjectError) as missing:
            try:
                below = await self._list(_below(only.url), request)
            except ObjectNotFoundError:
                raise missing from None
            if self._cache is not None:
                self._cache.put(_directory_key(only.url), True, _DIRECTORY_BYTES)
            self._look_up(_below(only.url), request)
            return replace(below, round_trips=below.round_trips + 1)

    async def _open_and_list(self, only: FileEntry, block: FileBlock, request: SourceRequest) -> FileBlock:
        """Do both at once, for a name that was a directory the last time."""
        below: FileBlock | AccelError | None = None
        itself: tuple[FileHandle, int] | ObjectNotFoundError | EmptyObjectError | None = None

        async def look_below() -> None:
            nonlocal below
            try:
                below = await self._list(_below(only.url), request)
            except AccelError as error:  # irrelevant if there is a file of that name
                below = error

        with raising_foremost():
            async with Group() as group:
                group.create_task(look_below())
                try:
                    itself = await request.reader.open(only)
                except (ObjectNotFoundError, EmptyObjectError) as error:
                    itself = error
        if self._cache is not None and (isinstance(itself, tuple) or isinstance(below, ObjectNotFoundError)):
            self._cache.drop(_directory_key(only.url))
        if isinstance(itself, tuple):
            return _with_handle(block, *itself)
        if isinstance(below, FileBlock):
            return below
        missing = itself or ObjectNotFoundError("the source names no files")
        raise missing if below is None or isinstance(below, ObjectNotFoundError) else below

    async def _list(self, source: object, request: SourceRequest) -> FileBlock:
        return await discover(
            source,
            clients=request.reader.clients,
            rules=self._rules,
            metrics=request.reader.metrics,
            on_entries=request.on_entries,
            on_listing=None if self._notice is None else self._look_for_notice,
        )

    def _look_for_notice(self, prefix: str, entries: Sequence[ObjectEntry]) -> None:
        path = f"{prefix}/{self._notice}" if prefix else self._notice
        at = bisect_left(entries, path, key=_path_of)
        if at < len(entries) and entries[at].path == path:
            self.noticed = entries[at]


def _with_handle(block: FileBlock, handle: FileHandle, round_trips: int) -> FileBlock:
    """Return the block of a single file with the handle that was opened to find it."""
    facts = FileFacts(version=handle.version, handle=handle, round_trips=round_trips)
    file = block.files[0]
    # A third of the time of `dataclasses.replace`; a file that a path names has no more than this.
    opened = FileEntry(file.root, file.path, file.url, file.size, file.etag, file.partition, facts)
    return FileBlock((opened,), block.partition_schema, block.round_trips)


def _below(name: str) -> str:
    return f"{name}/"


_LISTINGS = 5
"""Listings of a directory whose files are being replaced, one after the other."""
_size_of = operator.attrgetter("size")

_path_of = operator.attrgetter("path")

OnListing = Callable[[str, Sequence[ObjectEntry]], None]
OnEntries = Callable[[Iterable[FileEntry]], None]
"""Called with the first files of a listing while the store lists the others; it consumes as many as it
wants."""


async def discover(
    source: object,
    *,
    clients: Clients[ListingClient],
    rules: PathRules,
    metrics: Metrics,
    on_entries: OnEntries | None = None,
    on_listing: OnListing | None = None,
) -> FileBlock:
    """Find the files that a source names.

    Parameters
    ----------
    source : str, PathLike, or list or tuple of these
        Files, globs and directories, which may be in several stores. A directory is a name that ends in `/`,
        a bucket, a local directory, or a name without an extension below which a listing finds objects.
    clients : Clients
        Those of the stores that the source may be in.
    rules : PathRules
    metrics : Metrics
        Counts the listing requests.
    on_entries : callable, optional
        Called for a single directory or pattern that takes several pages to list, with files that will be
        among the result, while the store lists the rest. Not called if paths spell partitions.
    on_listing : callable, optional
        Called for a single directory with its path and all entries below it, those with hidden names too.

    Returns
    -------
    FileBlock
        The files of each source in turn, by path (in order of code points). A directory takes every file
        whatever its extension, except names that begin with `_` or `.` at any level below it, and empty
        markers. A file that is named twice is read twice.

    Raises
    ------
    ObjectNotFoundError
        A directory holds no data file, nothing matches a pattern, or a local path does not exist.
    SchemaMismatchError
        The paths disagree on their partition keys, or a value does not fit its type.
    TableFormatError
        The files are part of a table.
    StoreError
        The listing failed, or the store cannot list.
    """
    partitioning = rules.partitioning
    if not (partitioning in ("hive", None) or isinstance(partitioning, pa.Schema)):
        raise ValueError(f"partitioning is 'hive', None, or a pyarrow.Schema, not {partitioning!r}")
    texts = _texts(source)
    named = await _name(texts, glob=rules.glob, in_store=rules.in_store)
    types = partitioning if isinstance(partitioning, pa.Schema) else None
    if types is None and len(named) == 1 and named[0].is_plain_file:
        return FileBlock((named[0].as_file(),), _NO_COLUMNS, 0)
    # With a schema, directories that spell no name may be columns.
    listed = await _find_all(
        named,
        clients,
        metrics,
        on_entries if types is None else None,
        on_listing=on_listing,
        as_files=rules.as_files,
    )
    if len(named) == len(listed) == 1:
        files = list(listed[0])
    else:
        files = await each(_owned(named, listed), lambda one: one[1])
    if not rules.as_files:
        _refuse(named_table([file.path for file in files]), texts[0] if texts else "")
    waves = max((_waves(named[i]) for i in listed), default=0)
    await breathe()
    # Below one directory `key=value` is meant as a partition; elsewhere a path may just contain a `=`.
    whole = (
        len(named) == 1
        and named[0].shape in (SourceShape.DIRECTORY, SourceShape.OPEN)
        and files[0].url != texts[0]
    )
    spelt = bool(files) if types is not None else not all(map(_spells_none, files))
    await breathe()
    if partitioning is None or not spelt:
        return FileBlock(tuple(files), _NO_COLUMNS, waves)
    owners = await each(_owned(named, listed), lambda one: one[0])
    schema, files = await _place(owners, files, types, whole=whole, rules=rules)
    return FileBlock(tuple(files), schema, waves)


async def _name(texts: Sequence[str], *, glob: bool, in_store: bool) -> Sequence[NamedSource]:
    read = partial(read_source, glob=glob, in_store=in_store)
    if len(texts) == 1 and (known := read_remote(texts[0], glob=glob, in_store=in_store)) is not None:
        return [known]
    if in_store or not any(map(may_be_local, texts)):
        return await each(texts, read)
    # In a thread: a file system whose server is gone does not answer, and must not block the loop.
    return await FILES.run(lambda: list(map(read, texts)))


def _owned(
    named: Sequence[NamedSource], listed: Mapping[int, Sequence[FileEntry]]
) -> Iterator[tuple[NamedSource, FileEntry]]:
    """Yield all files in order, each with its source."""
    for i, item in enumerate(named):
        if i in listed:
            for file in listed[i]:
                yield item, file
        else:
            yield item, item.as_file()


async def _place(
    owners: Sequence[NamedSource],
    files: list[FileEntry],
    types: pa.Schema | None,
    *,
    whole: bool,
    rules: PathRules,
) -> tuple[pa.Schema, list[FileEntry]]:
    """Return the schema of the partition columns that paths spell, and the files with their values."""
    from accel.tables.partition_paths import settle, spell

    owned = zip(owners, files, strict=True)
    spellings = await each(owned, lambda one: spell(one[1].url, one[0].directories(one[1], below=whole)))
    schema, values = settle(
        spellings, types, strict=whole, as_text=rules.text_columns, spelled_as=rules.spelled_as
    )
    if len(schema):
        placed = zip(files, values, strict=True)
        files = await each(placed, lambda one: _with_partition(*one))
    return schema, files


def _with_partition(file: FileEntry, values: tuple[object, ...]) -> FileEntry:
    # A third of the time of `dataclasses.replace`.
    return FileEntry(file.root, file.path, file.url, file.size, file.etag, values, modified=file.modified)


def _texts(source: object) -> list[str]:
    items: Sequence[object] = source if isinstance(source, (list, tuple)) else (source,)
    texts = []
    for item in items:
        if not isinstance(item, (str, os.PathLike)):
            raise TypeError(f"a source is a path, a URL, or a list of these, not a {type(item).__name__}")
        texts.append(os.fsdecode(item))
    return texts


def _waves(item: NamedSource) -> int:
    walked = item.shape is SourceShape.GLOB and item.location.scheme == "file"
    return 0 if item.shape is SourceShape.FILE or walked else 1


async def _find_all(
    named: Sequence[NamedSource],
    clients: Clients[ListingClient],
    metrics: Metrics,
    on_entries: OnEntries | None,
    *,
    on_listing: OnListing | None = None,
    as_files: bool,
) -> Mapping[int, Sequence[FileEntry]]:
    """List all sources that need it at once; return the files by the number of the source."""
    pending = [i for i, item in enumerate(named) if item.shape is not SourceShape.FILE]
    if len(pending) == 1:
        if len(named) > 1:
            on_entries = on_listing = None
        item = named[pending[0]]
        found = await _find(item, clients, metrics, on_entries, on_listing=on_listing, as_files=as_files)
        return {pending[0]: found}
    with raising_foremost():
        async with asyncio.TaskGroup() as group:
            tasks = {
                i: group.create_task(_find(named[i], clients, metrics, as_files=as_files)) for i in pending
            }
    return {i: task.result() for i, task in tasks.items()}


async def _find(
    item: NamedSource,
    clients: Clients[ListingClient],
    metrics: Metrics,
    on_entries: OnEntries | None = None,
    *,
    on_listing: OnListing | None = None,
    as_files: bool,
) -> Sequence[FileEntry]:
    if item.shape is SourceShape.GLOB and item.location.scheme == "file":
        if not as_files:
            _refuse(await FILES.run(table_of_local_files, item.location.url), item.text)
        matches, directories = await FILES.run(expand_local_glob, item)
        if matches or not directories:
            return matches
        files: list[FileEntry] = []
        for directory in directories:
            below = await _list_below(directory, clients, metrics)
            if not as_files:
                _refuse(await find_table(below), item.text)
            files += await visible_files(directory, below)
        return files or raise_no_files(item)
    show = partial(_begin, item, on_entries, on_listing, as_files)
    if item.shape is SourceShape.GLOB:
        entries: Sequence[ObjectEntry] = await _list_below(item, clients, metrics, show)
    else:
        entries = await _list_settled(item, clients, metrics, show)
        if on_listing is not None:
            on_listing(item.prefix, entries)
    if not as_files:
        _refuse(await find_table(entries), item.text)
    chosen = await choose(item, entries)
    if item.location.scheme == "file" or 0 not in map(_size_of, chosen):
        return chosen
    gone = await find_directory_markers(chosen, clients.client(item.location.root), metrics=metrics)
    if not gone:
        return chosen
    return await choose(item, [entry for entry in entries if entry.path not in gone])


async def _list_settled(
    item: NamedSource,
    clients: Clients[ListingClient],
    metrics: Metrics,
    begun: PageSeen | None,
) -> Sequence[ObjectEntry]:
    """List a directory; of files that are being replaced by others, either the old ones or the new ones."""
    from accel.tables.journal import settle_listing

    client = clients.client(item.location.root)
    for _ in range(_LISTINGS):
        entries = await _list_below(item, clients, metrics, begun)
        settled = await settle_listing(entries, item.prefix, client, metrics)
        if settled is not None:
            return settled
        begun = None
    raise StoreError(
        "files of the directory are being replaced, and not all of the new ones are there",
        path=item.text,
        hint="finish the job that was killed: call `accel.optimize` on the same directory again",
    )


def _begin(
    item: NamedSource,
    on_entries: OnEntries | None,
    on_listing: OnListing | None,
    as_files: bool,
    page: Sequence[ObjectEntry],
) -> None:
    """Look at the first page of a listing that has several."""
    if on_listing is not None and item.shape is not SourceShape.GLOB:
        on_listing(item.prefix, page)
    if not as_files:
        # A table says so early: its log sorts before most names.
        _refuse(first_table(page), item.text)
    if on_entries is not None:
        _show(item, on_entries, page)


def _show(item: NamedSource, on_entries: OnEntries, page: Sequence[ObjectEntry]) -> None:
    on_entries(takewhile(_spells_none, choose_certain_files(item, page)))


def _spells_none(file: FileEntry) -> bool:
    return not ("=" in file.url or "=" in file.path)


def _refuse(found: ForeignTable | None, source: str) -> None:
    if found is not None:
        raise found.error(source)


async def _list_below(
    item: NamedSource,
    clients: Clients[ListingClient],
    metrics: Metrics,
    begun: PageSeen | None = None,
) -> list[ObjectEntry]:
    return await clients.client(item.location.root).list_below(item.prefix, metrics=metrics, begun=begun)


def _directory_key(name: str) -> CacheKey:
    return CacheKey("", name, None, Entry.DIRECTORY)
