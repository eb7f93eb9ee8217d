"""The keys of the cache: store, path, version, kind and place."""

from __future__ import annotations

import enum
from collections.abc import Hashable
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from accel.ranges import ObjectId

__all__ = ["CacheKey", "Entry", "file_key", "version_key"]


class Entry(enum.Enum):
    """The kind of a cache entry."""

    FILE = enum.auto()
    """The handle of a file, whatever its version: `MetadataFreshness` decides whether it may be used."""
    CURRENT = enum.auto()
    """A check under way whether a version is the current one, and when (monotonic clock) one was."""
    DICTIONARY = enum.auto()
    TAIL_HINT = enum.auto()
    LISTING = enum.auto()
    DIRECTORY = enum.auto()
    """A source that is named like a file and turned out to be a directory."""
    PAGES = enum.auto()
    ROWS = enum.auto()
    CATALOG = enum.auto()
    """A snapshot of an index outside the files."""
    TABLE = enum.auto()
    """What an object says that describes a table."""

    # The hash of an enum is a Python function, and a lookup hashes thirty keys.
    __hash__ = object.__hash__


class CacheKey(NamedTuple):
    """The key of an entry of any tier."""

    store: str
    """The token of the client, so that nobody reads what another's credentials fetched."""
    path: str
    version: Hashable
    kind: Entry
    place: Any = None
    """The part of the object, or the question about it: a byte range, a predicate, ..."""


def file_key(token: str, path: str) -> CacheKey:
    """Return the key of a file's handle, and of the load that brings it."""
    return CacheKey(token, path, None, Entry.FILE)


def version_key(token: str, version: ObjectId) -> CacheKey:
    """Return the key of what is found out about one version of an object: see `Entry.CURRENT`."""
    return CacheKey(token, version.path, version, Entry.CURRENT)
