"""Listings as the origin gave them, told again in the same words until something is written."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from cachetools import LRUCache

from accel.testing.shelf import OWN, ShelfObject

__all__ = ["Directory", "is_listing"]

_LIMIT: Final = 64 << 20
"""Bytes of answers, of those asked for last."""
_LISTING = re.compile(r"/[^/?]+/?\?(?:[^#]*&)?list-type=2(?:&[^#]*)?")


def is_listing(target: str) -> bool:
    """Whether a request asks for one page of a bucket's listing (S3's second version)."""
    return _LISTING.fullmatch(target) is not None


class Directory:
    """Pages of listings, by the very request that asked for them.

    A page differs by the bucket's content and by nothing else, so who writes past the proxy says `forget`.
    """

    def __init__(self, *, limit: int = _LIMIT) -> None:
        self._pages: LRUCache[str, ShelfObject] = LRUCache(limit, getsizeof=lambda page: len(page.data))
        self.writes = 0
        """How often something may have been written: what was asked for before the last time is not to be kept."""

    def find(self, target: str) -> ShelfObject | None:
        """The answer to a request, where it is kept."""
        return self._pages.get(target)

    def keep(self, target: str, headers: Mapping[str, str], body: bytes, *, writes: int) -> None:
        """Keep the answer to a request that was sent when there had been so many `writes`."""
        if writes == self.writes and len(body) <= self._pages.maxsize:
            said = "".join(
                f"{name}: {value}\r\n" for name, value in headers.items() if name.lower() not in OWN
            )
            self._pages[target] = ShelfObject(memoryview(body), "", said.encode("latin-1"))

    def forget(self) -> None:
        """Drop all: something is being written, or was."""
        self.writes += 1
        self._pages.clear()
