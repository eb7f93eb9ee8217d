"""From what the user names to the files of a scan: paths, lists, globs, directories."""

from __future__ import annotations

import asyncio
import operator
import os
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import takewhile
from typing import Protocol

import pyarrow as pa

from accel.metrics import Metrics
from accel.planning.file_entry import FileBlock, FileEntry
from accel.store.range_store import ObjectEntry, PageSeen
from accel.store.tasks import breathe, each
from accel.store.threads import FILES
from accel.tables.source import Named, SourceShape, may_be_local, read_source

__all__ = ["ListingClient", "discover"]


_LOGS = {"Delta": "_delta_log/", "Hudi": ".hoodie/"}
_NO_COLUMNS = pa.schema([])
_size_of = operator.attrgetter("size")

Begun = Callable[[Iterable[FileEntry]], None]
"""Is shown the first files of a listing while the others are waited for; it takes as many as it wants."""


class ListingClient(Protocol):
    """What listing needs of `store.client.Client`."""

    async def list_below(
        self,
        prefix: str,
        *,
        metrics: Metrics | None = None,
        begun: PageSeen | None = None,
    ) -> list[ObjectEntry]:
        """Objects at or below `prefix`, sorted by path; `begun` may be shown some while others are waited for."""
        ...

    async def head(self, path: str, *, metrics: Metrics | None = None) -> ObjectEntry:
        """Size and etag of one object: asked of those that are listed as empty files."""
        ...


async def discover(
    source: object,
    *,
    client_for: Callable[[str], ListingClient],
    partitioning: str | pa.Schema | None = "hive",
    glob: bool = True,
    in_store: bool = False,
    as_text: Collection[str] = (),
    metrics: Metrics,
    begun: Begun | None = None,
) -> FileBlock:
    """Find the files that a source names.

    Parameters
    ----------
    source : str, PathLike, or list or tuple of these
        Files, globs and directories, of several stores if need be. A directory is what ends in `/`, a
        bucket, a local directory, or a name without an extension below which a listing finds objects.
    client_for : callable
        From a store's root to its client.
    partitioning : "hive", None or pyarrow.Schema
        Whether `key=value` directories become columns; a schema fixes their types and order. Of one
        directory, those below it count, and all of its files must spell the same keys. Of named files,
        patterns, and several sources, the whole paths count, and the keys that all of them spell.
    glob : bool
        Whether `*`, `?`, `[...]` and `**` make a pattern. An object of exactly that name goes first.
    in_store : bool
        The caller gave a store: bare paths are relative to its root.
    as_text : collection of str
        Partition columns that are strings, whatever their values look like.
    metrics : Metrics
        Counts the listing requests.
    begun : callable, optional
        Of a single directory or pattern that takes several pages to list, it is called with files that are about to
        be among those returned, while the rest is waited for. Not where paths spell partitions.

    Returns
    -------
    FileBlock
        Sources in the order given; what one of them holds, sorted by path (by code point). A directory
        takes every file whatever its extension, save names that begin with `_` or `.` at any level below
        it, and empty markers. A file that is named twice is read twice.

    Raises
    ------
    ObjectNotFoundError
        A directory holds no data file, nothing matches a pattern, a local path does not exist.
    SchemaMismatchError
        The paths disagree on their partition keys, or a value does not fit its type.
    StoreError
        The listing failed, or the store cannot list.
    """
    if not (partitioning in ("hive", None) or isinstance(partitioning, pa.Schema)):
        raise ValueError(f"partitioning is 'hive', None, or a pyarrow.Schema, not {partitioning!r}")
    texts = _texts(source)
    named = await _name(texts, glob=glob, in_store=in_store)
    types = partitioning if isinstance(partitioning, pa.Schema) else None
    if types is None and len(named) == 1 and named[0].is_plain_file:
        return FileBlock((named[0].as_file(),), _NO_COLUMNS, 0)
    # A schema may take directories for columns that spell no name.
    listed = await _find_all(named, client_for, metrics, begun if types is None else None)
    if len(named) == len(listed) == 1:
        files = list(listed[0])
    else:
        files = await each(_owned(named, listed), lambda one: one[1])
    waves = max((_waves(named[i]) for i in listed), default=0)
    await breathe()
    # Below one directory the layout is known to be meant; elsewhere a path just may hold a `=`.
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
    schema, files = await _place(owners, files, types, whole=whole, as_text=as_text)
    return FileBlock(tuple(files), schema, waves)


async def _name(texts: Sequence[str], *, glob: bool, in_store: bool) -> Sequence[Named]:
    read = partial(read_source, glob=glob, in_store=in_store)
    if in_store or not any(map(may_be_local, texts)):
        return await each(texts, read)
    # A file system whose server is gone does not answer, and the loop is everybody's.
    return await FILES.run(lambda: list(map(read, texts)))


def _owned(
    named: Sequence[Named], listed: Mapping[int, Sequence[FileEntry]]
) -> Iterator[tuple[Named, FileEntry]]:
    """All files in order, each with the source that it is of."""
    for i, item in enumerate(named):
        if i in listed:
            for file in listed[i]:
                yield item, file
        else:
            yield item, item.as_file()


async def _place(
    owners: Sequence[Named],
    files: list[FileEntry],
    types: pa.Schema | None,
    *,
    whole: bool,
    as_text: Collection[str],
) -> tuple[pa.Schema, list[FileEntry]]:
    """The partition columns that the paths of some files spell, and the files with their values."""
    from accel.tables.hive import settle, spell

    owned = zip(owners, files, strict=True)
    spellings = await each(owned, lambda one: spell(one[1].url, one[0].directories(one[1], below=whole)))
    schema, values = settle(spellings, types, strict=whole, as_text=as_text)
    if len(schema):
        placed = zip(files, values, strict=True)
        files = await each(placed, lambda one: _with_partition(*one))
    return schema, files


def _with_partition(file: FileEntry, values: tuple[object, ...]) -> FileEntry:
    # As `dataclasses.replace`, for a third of its time.
    return FileEntry(file.root, file.path, file.url, file.size, file.etag, values)


def _texts(source: object) -> list[str]:
    items: Sequence[object] = source if isinstance(source, (list, tuple)) else (source,)
    texts = []
    for item in items:
        if not isinstance(item, (str, os.PathLike)):
            raise TypeError(f"a source is a path, a URL, or a list of these, not a {type(item).__name__}")
        texts.append(os.fsdecode(item))
    return texts


def _waves(item: Named) -> int:
    walked = item.shape is SourceShape.GLOB and item.location.scheme == "file"
    return 0 if item.shape is SourceShape.FILE or walked else 1


async def _find_all(
    named: Sequence[Named],
    client_for: Callable[[str], ListingClient],
    metrics: Metrics,
    begun: Begun | None,
) -> Mapping[int, Sequence[FileEntry]]:
    """The files of every source that needs a listing, by its place; they are listed together."""
    pending = [i for i, item in enumerate(named) if item.shape is not SourceShape.FILE]
    if len(pending) == 1:
        sole = begun if len(named) == 1 else None
        return {pending[0]: await _find(named[pending[0]], client_for, metrics, sole)}
    try:
        async with asyncio.TaskGroup() as group:
            tasks = {i: group.create_task(_find(named[i], client_for, metrics)) for i in pending}
    except BaseExceptionGroup as failures:
        failure = _first(failures)
    else:
        return {i: task.result() for i, task in tasks.items()}
    raise failure


async def _find(
    item: Named,
    client_for: Callable[[str], ListingClient],
    metrics: Metrics,
    begun: Begun | None = None,
) -> Sequence[FileEntry]:
    from accel.tables import listed, local

    if item.shape is SourceShape.GLOB and item.location.scheme == "file":
        matches, directories = await FILES.run(local.expand, item)
        if matches or not directories:
            return matches
        files: list[FileEntry] = []
        for directory in directories:
            below = await _list_below(directory, client_for, metrics)
            files += await listed.visible(directory, below)
        return files or listed.nothing(item)
    show = None if begun is None else partial(_show, item, begun)
    entries = await _list_below(item, client_for, metrics, show)
    if item.shape is not SourceShape.GLOB:
        _warn_of_tables(item, entries, metrics)
    chosen = await listed.choose(item, entries)
    if item.location.scheme == "file" or 0 not in map(_size_of, chosen):
        return chosen
    from accel.tables.markers import find_markers

    gone = await find_markers(chosen, client_for(item.location.root), metrics=metrics)
    if not gone:
        return chosen
    return await listed.choose(item, [entry for entry in entries if entry.path not in gone])


def _show(item: Named, begun: Begun, page: Sequence[ObjectEntry]) -> None:
    from accel.tables import listed

    begun(takewhile(_spells_none, listed.choose_surely(item, page)))


def _spells_none(file: FileEntry) -> bool:
    return not ("=" in file.url or "=" in file.path)


def _warn_of_tables(item: Named, entries: Sequence[ObjectEntry], metrics: Metrics) -> None:
    """A table format keeps files that are no longer part of the table: their rows would be taken for its own."""
    from accel.tables import listed

    below = f"{item.prefix}/" if item.prefix else ""
    for kind, log in _LOGS.items():
        if listed.lies_below(below + log, entries):
            text = f"{item.text}: this is a {kind} table, and all of its files are read, those it has dropped too"
            metrics.warn(text)
            warnings.warn(text, stacklevel=2)


async def _list_below(
    item: Named,
    client_for: Callable[[str], ListingClient],
    metrics: Metrics,
    begun: PageSeen | None = None,
) -> list[ObjectEntry]:
    return await client_for(item.location.root).list_below(item.prefix, metrics=metrics, begun=begun)


def _first(failures: BaseExceptionGroup[BaseException]) -> BaseException:
    error: BaseException = failures
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
