"""Which of the objects that a store listed are the data files of a source."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NoReturn

from accel.errors import ObjectNotFoundError
from accel.planning.file_entry import FileEntry
from accel.store.location import LOCAL_ROOT
from accel.store.range_store import ObjectEntry
from accel.store.tasks import each
from accel.tables.pattern import has_hidden
from accel.tables.source import Named, SourceShape, looked_for

__all__ = ["choose", "choose_surely", "lies_below", "nothing", "visible"]


async def choose(item: Named, entries: Sequence[ObjectEntry]) -> Sequence[FileEntry]:
    """The data files of a directory, glob, or open name, from its listing sorted by path.

    Raises
    ------
    ObjectNotFoundError
        A directory without a data file, or a pattern that nothing matches.
    """
    if item.shape is SourceShape.GLOB:
        return await _choose_matching(item, entries)
    files = await visible(item, entries)
    if files:
        return files
    if item.shape is SourceShape.OPEN:
        # An object store lists what is below a name, and not the object of that name.
        itself = [entry for entry in entries if entry.path == item.location.path and entry.size]
        if itself:
            return (item.as_file(itself[0]),)
        if not entries:
            return (item.as_file(),)
    nothing(item)


async def visible(item: Named, entries: Sequence[ObjectEntry]) -> Sequence[FileEntry]:
    """What a directory takes of its listing: neither hidden names nor markers."""
    take = _taking(item, entries)
    return [file for file in await each(entries, take) if file is not None]


def choose_surely(item: Named, page: Iterable[ObjectEntry]) -> Iterator[FileEntry]:
    """Those of a few entries that `choose` takes whatever else is listed: none that is empty.

    Save that an object whose name is the pattern itself may come later, and be all that is meant.
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


def _taking(item: Named, entries: Sequence[ObjectEntry]) -> Callable[[ObjectEntry], FileEntry | None]:
    """What makes a data file of an entry that is one; all `entries` tell of an empty one whether it is."""
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
        if has_hidden(relative):
            return None
        return place(entry, relative)

    return take


def nothing(item: Named) -> NoReturn:
    """Say that a source holds no file."""
    if item.shape is SourceShape.GLOB:
        hint = "an object whose name holds *, ? or [ is named with glob=False"
        if "?" in item.text and "=" in item.text.partition("?")[2]:
            hint += "; options are no part of a URL, but given by storage_options"
        if "{" in item.text:
            hint += "; braces are not expanded, a list of patterns is taken"
        place = looked_for(item.text) if item.location.scheme == "file" else None
        if place is not None:
            hint += f"; {place}"
        raise ObjectNotFoundError("nothing matches the pattern", path=item.text, hint=hint)
    raise ObjectNotFoundError(
        "the directory holds no data file",
        path=item.text,
        hint="names that begin with _ or . and empty markers do not count",
    )


async def _choose_matching(item: Named, entries: Sequence[ObjectEntry]) -> Sequence[FileEntry]:
    pattern = item.pattern
    if pattern is None:
        raise TypeError("a glob has a pattern")
    exact = _exact_path(item)
    for entry in entries:
        if entry.path == exact:
            return (item.as_file(entry),)
    data = [entry for entry in entries if entry.path != item.prefix and not _is_marker(item, entry, entries)]
    # Only where no file matches are directories meant: `year=201[23]`, or `*.parquet` as Spark writes them.
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
    nothing(item)


def _exact_path(item: Named) -> str:
    tail = item.text[len(item.base) :]
    return f"{item.prefix}/{tail}" if item.prefix else tail


def _is_marker(item: Named, entry: ObjectEntry, entries: Sequence[ObjectEntry]) -> bool:
    """Whether an empty object stands for a directory: what consoles and Hadoop leave behind."""
    if entry.size:
        return False
    name = entry.path.rstrip("/").rpartition("/")[2]
    if name.endswith("_$folder$"):
        return True
    if item.location.root == LOCAL_ROOT:
        return False  # directories are told from files: this is one that is being written, or was cut off
    if "." not in name or entry.path.endswith("/"):
        return True
    # `x.parquet/`, whose slash obstore takes away, stands before the parts that Spark wrote below it.
    return lies_below(f"{entry.path}/", entries)


def lies_below(prefix: str, entries: Sequence[ObjectEntry]) -> bool:
    """Whether one of the entries, in the order of their paths, has the prefix."""
    place = bisect_left(entries, prefix, key=lambda entry: entry.path)
    return place < len(entries) and entries[place].path.startswith(prefix)
