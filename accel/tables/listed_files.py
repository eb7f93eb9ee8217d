"""Choose the data files of a source among the objects that a store lists."""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NoReturn, Protocol

from accel.errors import ObjectNotFoundError, StoreError
from accel.metrics import Metrics
from accel.planning.file_entry import FileEntry
from accel.runtime.tasks import Group, each
from accel.store.local_store import etag_of
from accel.store.location import LOCAL_ROOT, Location
from accel.store.range_store import ObjectEntry, PageSeen, Payload
from accel.store.request_errors import raising_foremost, system_error
from accel.tables.named_source import NamedSource, SourceShape, has_hidden_name, working_directory_hint

__all__ = [
    "ListingClient",
    "choose",
    "choose_certain_files",
    "expand_local_glob",
    "find_directory_markers",
    "has_prefix",
    "raise_no_files",
    "visible_files",
]


async def choose(item: NamedSource, entries: Sequence[ObjectEntry]) -> Sequence[FileEntry]:
    """Return the data files of a directory, glob, or open name, from its listing sorted by path.

    Raises
    ------
    ObjectNotFoundError
        The directory holds no data file, or nothing matches the pattern.
    """
    if item.shape is SourceShape.GLOB:
        return await _choose_matching(item, entries)
    files = await visible_files(item, entries)
    if files:
        return files
    if item.shape is SourceShape.OPEN:
        # An object store lists the objects below a name, but not the object of that name.
        itself = [entry for entry in entries if entry.path == item.location.path and entry.size]
        if itself:
            return (item.as_file(itself[0]),)
        if not entries:
            return (item.as_file(),)
    raise_no_files(item)


async def visible_files(item: NamedSource, entries: Sequence[ObjectEntry]) -> Sequence[FileEntry]:
    """Return the files of a directory from its listing, without hidden names and markers."""
    take = _taking(item, entries)
    return [file for file in await each(entries, take) if file is not None]


def choose_certain_files(item: NamedSource, page: Iterable[ObjectEntry]) -> Iterator[FileEntry]:
    """Yield the files of a page that `choose` returns whatever else is listed, so no empty ones.

    There is one exception: an object named like the pattern itself may come later, and replace all of them.
    """
    data = (entry for entry in page if entry.size)
    pattern = item.pattern
    if pattern is None:
        return (file for file in map(_taking(item, ()), data) if file is not None)
    if pattern.directories:
        return iter(())
    place, named = (
        item.placing(),
        ((entry, item.relative(entry)) for entry in data if entry.path != item.prefix),
    )
    return (place(entry, relative) for entry, relative in named if pattern.match(relative))


def _taking(item: NamedSource, entries: Sequence[ObjectEntry]) -> Callable[[ObjectEntry], FileEntry | None]:
    """Return a function from an entry to its data file, or None; all `entries` show whether an empty one is a
    marker."""
    prefix = item.prefix
    below = f"{prefix}/" if prefix else ""
    start, place = len(below), item.placing()

    def take(entry: ObjectEntry) -> FileEntry | None:
        path = entry.path
        if (
            not path.startswith(below)
            or len(path) == start
            or not entry.size
            and _is_marker(item, entry, entries)
        ):
            return None
        relative = path[start:]
        if has_hidden_name(relative):
            return None
        return place(entry, relative)

    return take


def raise_no_files(item: NamedSource) -> NoReturn:
    """Raise the error of a source without files."""
    if item.shape is SourceShape.GLOB:
        hint = "an object whose name holds *, ? or [ is named with `glob=False`"
        if "?" in item.text and "=" in item.text.partition("?")[2]:
            hint += "; options are no part of a URL, but given by `storage_options`"
        if "{" in item.text:
            hint += "; braces are not expanded, a list of patterns is taken"
        place = working_directory_hint(item.text) if item.location.scheme == "file" else None
        if place is not None:
            hint += f"; {place}"
        raise ObjectNotFoundError("nothing matches the pattern", path=item.text, hint=hint)
    raise ObjectNotFoundError(
        "the directory holds no data file",
        path=item.text,
        hint="names that begin with _ or . and empty markers do not count",
    )


async def _choose_matching(item: NamedSource, entries: Sequence[ObjectEntry]) -> Sequence[FileEntry]:
    pattern = item.pattern
    if pattern is None:
        raise TypeError("a glob has a pattern")
    exact = _exact_path(item)
    for entry in entries:
        if entry.path == exact:
            return (item.as_file(entry),)
    data = [entry for entry in entries if entry.path != item.prefix and not _is_marker(item, entry, entries)]
    # A pattern means directories only if no file matches: `year=201[23]`, or `*.parquet` as Spark writes
    # them.
    place = item.placing()
    tests = (pattern.match_above,) if pattern.directories else (pattern.match, pattern.match_above)
    for test in tests:
        matching = await each(data, lambda entry, test=test: test(item.relative(entry)))  # type: ignore[misc]
        files = [
            place(entry, item.relative(entry))
            for entry, matches in zip(data, matching, strict=True)
            if matches
        ]
        if files:
            return files
    raise_no_files(item)


def _exact_path(item: NamedSource) -> str:
    tail = item.text[len(item.base) :]
    return f"{item.prefix}/{tail}" if item.prefix else tail


def _is_marker(item: NamedSource, entry: ObjectEntry, entries: Sequence[ObjectEntry]) -> bool:
    """Return whether an empty object is the marker of a directory, as consoles and Hadoop leave it behind."""
    if entry.size:
        return False
    name = entry.path.rstrip("/").rpartition("/")[2]
    if name.endswith("_$folder$"):
        return True
    if item.location.root == LOCAL_ROOT:
        return False  # an empty file, which is being written or was cut off
    if "." not in name or entry.path.endswith("/"):
        return True
    # obstore lists the marker `x.parquet/` without its slash, before the parts that Spark wrote below it.
    return has_prefix(f"{entry.path}/", entries)


def has_prefix(prefix: str, entries: Sequence[ObjectEntry]) -> bool:
    """Return whether one of the entries, which are in the order of their paths, has the prefix."""
    place = bisect_left(entries, prefix, key=lambda entry: entry.path)
    return place < len(entries) and entries[place].path.startswith(prefix)


_AT_ONCE: Final = 16


class ListingClient(Protocol):
    """The part of `store.client.Client` that listing uses."""

    async def list_below(
        self, prefix: str, *, metrics: Metrics | None = None, begun: PageSeen | None = None
    ) -> list[ObjectEntry]:
        """Return the objects at or below a prefix, by path; `begun` may be called with some while others are
        awaited."""
        ...

    async def head(self, path: str, *, metrics: Metrics | None = None) -> ObjectEntry:
        """Return size and etag of one object; requested for objects that are listed as empty files."""
        ...

    async def read_tail(self, path: str, length: int, *, metrics: Metrics) -> Payload:
        """Return the last bytes of an object; requested for the journal of files that are being replaced."""
        ...


async def find_directory_markers(
    files: Iterable[FileEntry], client: ListingClient, *, metrics: Metrics
) -> set[str]:
    """Return the paths among some listed files that no object has.

    obstore lists the marker `x.parquet/` as `x.parquet`, like an empty file of that name; only a request can
    tell them apart. Requests are sent 16 at a time, as long as one of them finds a marker: an empty file ends
    the scan anyway.
    """
    doubtful = [file.path for file in files if file.size == 0]
    found: set[str] = set()
    for start in range(0, len(doubtful), _AT_ONCE):
        paths = doubtful[start : start + _AT_ONCE]
        with raising_foremost():
            async with Group() as group:
                tasks = {path: group.create_task(_is_missing(path, client, metrics)) for path in paths}
        missing = {path for path, task in tasks.items() if task.result()}
        if not missing:
            break
        found |= missing
    return found


async def _is_missing(path: str, client: ListingClient, metrics: Metrics) -> bool:
    try:
        await client.head(path, metrics=metrics)
    except ObjectNotFoundError:
        return True
    except StoreError:
        pass  # reading the file will raise the error
    return False


def expand_local_glob(item: NamedSource) -> tuple[Sequence[FileEntry], Sequence[NamedSource]]:
    """Return the files that match a local glob, sorted by path, and the directories that do.

    Symbolic links are followed, except in a circle.

    Raises
    ------
    ObjectNotFoundError
        Neither a file nor a directory matches.
    StoreError
        A directory on the way cannot be read.
    """
    pattern = item.pattern
    if pattern is None:
        raise TypeError("a glob has a pattern")
    files: list[str] = []
    directories: list[str] = []
    root = f"/{item.prefix}" if item.prefix else "/"
    pending = [("", pattern.start, frozenset[tuple[int, int]]())]
    while pending:
        relative, states, above = pending.pop()
        names, identity = _read(os.path.join(root, relative), item)
        if identity is None or identity in above:
            continue
        for name, is_directory in names:
            after = pattern.step(states, name)
            path = f"{relative}/{name}" if relative else name
            if not after:
                continue
            if is_directory:
                if pattern.accepts(after):
                    directories.append(path)
                pending.append((path, after, above | {identity}))
            elif pattern.accepts(after) and not pattern.directories:
                files.append(path)
    if not files and not directories:
        raise_no_files(item)
    return [item.named_below(path, _version(root, path)) for path in sorted(files)], [
        _directory(item, path) for path in sorted(_outermost(directories))
    ]


def _version(root: str, relative: str) -> tuple[int, str] | None:
    try:
        found = os.stat(os.path.join(root, relative))
    except OSError:  # gone since: opening it will raise the error
        return None
    return found.st_size, etag_of(found)


def _read(path: str, item: NamedSource) -> tuple[list[tuple[str, bool]], tuple[int, int] | None]:
    try:
        status = os.stat(path)
        with os.scandir(path) as entries:
            names = [(e.name, e.is_dir()) for e in entries if e.is_dir() or e.is_file()]
    except (FileNotFoundError, NotADirectoryError):
        return [], None
    except OSError as error:
        raise system_error(error, path=path, place=f"pattern {item.text}") from error
    return names, (status.st_dev, status.st_ino)


def _outermost(directories: Sequence[str]) -> list[str]:
    outermost: list[str] = []
    for path in sorted(directories, key=lambda d: d.split("/")):
        if not outermost or not path.startswith(outermost[-1] + "/"):
            outermost.append(path)
    return outermost


def _directory(item: NamedSource, relative: str) -> NamedSource:
    file = item.named_below(relative)
    location = Location(item.location.scheme, item.location.root, file.path + "/")
    return NamedSource(item.text, location, SourceShape.DIRECTORY, file.url + "/")
