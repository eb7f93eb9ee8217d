"""What was worked out of the schema of a file, kept for the next piece of it."""

from __future__ import annotations

import threading
from collections.abc import Hashable, Mapping
from typing import Generic, TypeVar

from cachetools import LRUCache

from accel.format.model import ParquetSchema

__all__ = ["SchemaMemo"]

T = TypeVar("T")


class SchemaMemo(Generic[T]):
    """Values by schema, key-value metadata and question; the least recently used goes first.

    Parameters
    ----------
    entries : int
        How many are kept.

    Notes
    -----
    A schema is known by its identity and metadata by what it holds: each scan of one cached file has the
    same schema, and a mapping of its own. May be used from several threads.
    """

    def __init__(self, entries: int) -> None:
        self._lock = threading.Lock()
        self._entries: LRUCache[Hashable, tuple[ParquetSchema, Mapping[str, bytes], T]] = LRUCache(entries)

    def get(self, schema: ParquetSchema, key_value: Mapping[str, bytes], question: Hashable) -> T | None:
        """The value that was put for these, or None."""
        with self._lock:
            entry = self._entries.get((id(schema), question))
        # An id may have been used again: the entry keeps its schema alive, so identity settles it.
        if entry is None or entry[0] is not schema:
            return None
        return entry[2] if entry[1] is key_value or entry[1] == key_value else None

    def put(self, schema: ParquetSchema, key_value: Mapping[str, bytes], question: Hashable, value: T) -> T:
        """Keep a value; returns it."""
        with self._lock:
            self._entries[id(schema), question] = (schema, key_value, value)
        return value
