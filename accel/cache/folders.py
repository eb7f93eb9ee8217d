"""Names that look like a file's and are known to be directories: Spark writes directories called x.parquet."""

from __future__ import annotations

import threading
from typing import Final

from cachetools import LRUCache

__all__ = ["Folders"]

_MOST: Final = 1024


class Folders:
    """A set of names, those that were added last. It decides what is asked for at once, and nothing else.

    May be used from any thread.
    """

    def __init__(self) -> None:
        self._names: LRUCache[str, None] = LRUCache(_MOST)
        self._lock = threading.Lock()

    def __contains__(self, name: str) -> bool:
        return name in self._names

    def add(self, name: str) -> None:
        """Remember one."""
        with self._lock:
            self._names[name] = None

    def discard(self, name: str) -> None:
        """Forget one, if it is there."""
        with self._lock:
            self._names.pop(name, None)

    def clear(self) -> None:
        """Forget all."""
        with self._lock:
            self._names.clear()
