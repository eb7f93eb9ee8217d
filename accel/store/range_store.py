"""The seam between accel and a transport: one method, and a few optional protocols."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias, runtime_checkable

from accel.ranges import Buffer, ByteRange, Suffix

__all__ = [
    "LIST_PAGE",
    "Gatherer",
    "Header",
    "Lister",
    "ObjectEntry",
    "PageSeen",
    "Pager",
    "Payload",
    "RangeStore",
    "Remover",
    "Writer",
    "can_be_sent",
    "is_weak",
    "version_of",
]

LIST_PAGE = 1000
"""Keys in a full page of a listing, as S3 sends it."""


def is_weak(etag: str) -> bool:
    """Return whether an etag is weak. A weak one never satisfies If-Match, so it is compared with every response instead."""
    return etag.startswith(("W/", "w/"))


def can_be_sent(text: str) -> bool:
    """Return whether a text, such as an etag, can be the value of a header."""
    return text.isascii() and text.isprintable()


def version_of(etag: str | None) -> str | None:
    """Return the etag, or None if it is empty and so tells no versions apart."""
    return etag if etag and etag.strip('" \t') not in ("", "W/", "w/") else None


@dataclass(frozen=True, slots=True)
class Payload:
    """The answer to one read."""

    data: Buffer
    """The body; its length is that of `range`."""
    range: ByteRange
    """The bytes of the object that `data` holds."""
    size: int | None
    """The size of the whole object, if the store tells it."""
    etag: str | None
    """As the store wrote it, quotes and weakness mark included; None if there is none, or it is empty."""

    def __post_init__(self) -> None:
        if self.etag is not None and version_of(self.etag) is None:
            object.__setattr__(self, "etag", None)


@dataclass(frozen=True, slots=True)
class ObjectEntry:
    """One object of a listing; `path` is relative to the root of the store, without a leading slash."""

    path: str
    size: int
    etag: str | None = None
    """As in `Payload`."""

    def __post_init__(self) -> None:
        if self.etag is not None and version_of(self.etag) is None:
            object.__setattr__(self, "etag", None)


PageSeen: TypeAlias = Callable[[Sequence[ObjectEntry]], None]
"""A function that is called with a page of a listing while other pages are under way."""


@runtime_checkable
class RangeStore(Protocol):
    """The interface that a store must implement.

    The other protocols are optional. So is an attribute `suffixes`: False if the store cannot read the end of an object of
    unknown size; it must implement `Header` then.
    """

    async def read(self, path: str, want: ByteRange | Suffix, *, if_match: str | None = None) -> Payload:
        """Read exactly one range of one object; for a suffix longer than the object, all of it.

        It sends one request and does not retry, as accel bounds, retries, merges and counts requests. It is called
        concurrently, on an event loop of accel's own. Cancelling it ends the request.

        Parameters
        ----------
        path : str
            Relative to the store's root, without a leading slash.
        want : ByteRange or Suffix
        if_match : str, optional
            The etag that the object must have; it was returned by `read` before, and is not weak.

        Returns
        -------
        Payload

        Raises
        ------
        ObjectNotFoundError
            There is no such object.
        ObjectChangedError
            The object has another etag than `if_match` (HTTP's 412).
        StoreError
            Any other failure; `transient` says whether the same request may succeed later.
        """
        ...


@runtime_checkable
class Gatherer(Protocol):
    """A store for which several ranges of one object cost hardly more than one."""

    async def gather_ranges(
        self, path: str, wants: Sequence[ByteRange], *, if_match: str | None = None
    ) -> Sequence[Payload]:
        """Read exactly these ranges, all of one version; raises as `RangeStore.read` does."""
        ...


@runtime_checkable
class Lister(Protocol):
    """A store that lists."""

    def list(self, prefix: str) -> AsyncIterator[ObjectEntry]:
        """List the objects at or below `prefix`, sorted by path. A prefix ends with a path segment; "" is the root."""
        ...


@runtime_checkable
class Pager(Protocol):
    """A store that lists by pages, with one request for each."""

    @property
    def cuts_listings(self) -> bool:
        """Whether keys are listed in byte order, and can be listed from a given key on without listing those before it."""
        ...

    def pages(self, prefix: str, *, after: str | None = None) -> AsyncGenerator[Sequence[ObjectEntry], None]:
        """Yield the objects of `Lister.list` in pages, in the order of the store. A page is requested when it is needed.

        With `after`, only objects with a greater key are listed.
        """
        ...


@runtime_checkable
class Header(Protocol):
    """A store that returns the size and etag of an object without its bytes."""

    async def head(self, path: str) -> ObjectEntry:
        """Return the size and etag by one request; raises as `RangeStore.read` does."""
        ...


@runtime_checkable
class Writer(Protocol):
    """A store that can be written to."""

    async def write(
        self,
        path: str,
        parts: AsyncIterator[bytes],
        *,
        size: int,
        if_match: str | None = None,
        if_absent: bool = False,
    ) -> None:
        """Write one object of `size` bytes, which appears whole or not at all.

        With `if_match` it replaces only that version, by one request from memory; ObjectChangedError is raised if there
        is another version. With `if_absent` likewise, only if no object has the name. Without, it replaces any object of
        that name, in bounded memory. An exception of `parts` is raised, and nothing is written.
        """
        ...


@runtime_checkable
class Remover(Protocol):
    """A store that removes objects."""

    async def remove(self, path: str) -> None:
        """Remove an object; one that is not there is no error."""
        ...
