"""The seam between accel and a transport: one method, and a few optional protocols."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias, runtime_checkable

from accel.ranges import Buffer, ByteRange, Suffix

__all__ = [
    "LIST_PAGE",
    "Gatherer",
    "Header",
    "Lister",
    "Mover",
    "ObjectEntry",
    "PageSeen",
    "Pager",
    "Payload",
    "RangeStore",
    "Remover",
    "StatedPages",
    "Writer",
    "can_be_sent",
    "version_of",
]

LIST_PAGE = 1000
"""Keys in a full page of a listing, as S3 sends it."""


def can_be_sent(text: str) -> bool:
    """Return whether a text, such as an etag, can be the value of a header."""
    return text.isascii() and text.isprintable()


def version_of(etag: str | None) -> str | None:
    """Return the etag, or None if it is empty and so does not identify a version."""
    return etag if etag and etag.strip('" \t') not in ("", "W/", "w/") else None


@dataclass(frozen=True, slots=True)
class Payload:
    """The answer to one read."""

    data: Buffer
    """The body; its length is that of `range`."""
    range: ByteRange
    """The bytes of the object that `data` holds."""
    size: int | None
    """The size of the whole object, if the store gives it."""
    etag: str | None
    """As the store wrote it, quotes and weakness mark included; None if there is none, or it is empty."""

    def __post_init__(self) -> None:
        if self.etag is not None and version_of(self.etag) is None:
            object.__setattr__(self, "etag", None)


@dataclass(frozen=True, slots=True)
class ObjectEntry:
    """One object of a listing."""

    path: str
    """Its path, relative to the root of the store, without a leading slash."""
    size: int
    """Its bytes."""
    etag: str | None = None
    """As in `Payload`."""
    modified: float | None = field(default=None, compare=False)
    """When it was changed last, in seconds since 1970, where the listing tells."""

    def __post_init__(self) -> None:
        if self.etag is not None and version_of(self.etag) is None:
            object.__setattr__(self, "etag", None)


PageSeen: TypeAlias = Callable[[Sequence[ObjectEntry]], None]
"""A function that is called with a page of a listing while other pages are under way."""


@runtime_checkable
class RangeStore(Protocol):
    """The interface that a store must implement.

    The other protocols are optional. So is an attribute `suffixes`: False if the store cannot read the end of
    an object of unknown size; it must implement `Header` then.
    """

    async def read(self, path: str, want: ByteRange | Suffix, *, if_match: str | None = None) -> Payload:
        """Read exactly one range of one object; for a suffix longer than the object, all of it.

        It sends one request and does not retry, as accel bounds, retries, merges and counts requests. It is
        called concurrently, on an event loop of accel's own. Cancelling it ends the request.

        Parameters
        ----------
        path : str
            The object, relative to the root of the store, without a leading slash.
        want : ByteRange or Suffix
            The range.
        if_match : str, optional
            The etag that the object must have: one that `read` returned, and never a weak one.

        Returns
        -------
        Payload
            The bytes of the range, with the size and the etag of the object.

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
        """Read several ranges of one object, exactly and all of one version.

        Parameters
        ----------
        path : str
            As for `RangeStore.read`.
        wants : sequence of ByteRange
            The ranges.
        if_match : str, optional
            As for `RangeStore.read`.

        Returns
        -------
        sequence of Payload
            The ranges in the same order.
        """
        ...


@runtime_checkable
class Lister(Protocol):
    """A store that lists."""

    def list(self, prefix: str) -> AsyncIterator[ObjectEntry]:
        """List the objects at or below a prefix.

        Parameters
        ----------
        prefix : str
            Whole segments of a path; "" is the root.

        Returns
        -------
        AsyncIterator of ObjectEntry
            The objects, sorted by path.
        """
        ...


@runtime_checkable
class Pager(Protocol):
    """A store that lists by pages, with one request for each."""

    @property
    def cuts_listings(self) -> bool:
        """Whether keys are listed in byte order, and can be listed from a given key on without listing those
        before it."""
        ...

    def pages(self, prefix: str, *, after: str | None = None) -> AsyncGenerator[Sequence[ObjectEntry], None]:
        """List the objects at or below a prefix page by page, each requested only when it is wanted.

        Parameters
        ----------
        prefix : str
            As for `Lister.list`.
        after : str, optional
            List only objects with a greater key; the store need not be queried for the others.

        Returns
        -------
        AsyncGenerator of sequences of ObjectEntry
            The pages, none of them empty, in the order of the store.
        """
        ...


class StatedPages(AsyncGenerator[Sequence[ObjectEntry], None]):
    """Pages of a listing whose server says whether more follow. What `Pager.pages` returns may be of this
    class."""

    more: bool | None = None
    """Whether the server says that more pages follow than those that came; None if that is not known."""
    resumable: bool = False
    """Whether the page that failed can be requested again: by iterating on."""

    async def asend(self, value: None) -> Sequence[ObjectEntry]:
        """Return the next page."""
        raise NotImplementedError

    async def athrow(self, *args: Any) -> Sequence[ObjectEntry]:
        """End the iteration: there is nothing to close, as no request is under way between two pages."""
        self.resumable = False
        raise args[0] if isinstance(args[0], BaseException) else GeneratorExit


@runtime_checkable
class Header(Protocol):
    """A store that returns the size and etag of an object without its bytes."""

    async def head(self, path: str) -> ObjectEntry:
        """Find the size and the etag of an object in one request.

        Parameters
        ----------
        path : str
            As for `RangeStore.read`.

        Returns
        -------
        ObjectEntry
            The object.
        """
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
        """Put one object, which appears when it is whole or not at all.

        Without `if_match` an object of that name is replaced, and memory stays bounded. With it only that
        version is replaced, in one request, for which the parts are collected in memory. An exception of
        `parts` is raised again, and nothing is written.

        Parameters
        ----------
        path : str
            As for `RangeStore.read`.
        parts : AsyncIterator of bytes
            The content.
        size : int
            The number of its bytes.
        if_match : str, optional
            The etag of the version to replace; ObjectChangedError is raised if there is another.
        if_absent : bool
            Put the object only if no object has the name; ObjectChangedError is raised if one has.
        """
        ...


@runtime_checkable
class Remover(Protocol):
    """A store that removes objects."""

    async def remove(self, path: str) -> None:
        """Remove an object; one that is not there is no error.

        Parameters
        ----------
        path : str
            As for `RangeStore.read`.
        """
        ...


@runtime_checkable
class Mover(Protocol):
    """A store that renames objects, or copies them by itself, so that their bytes do not travel."""

    async def move(self, path: str, to: str) -> None:
        """Give an object another name. Under it the object appears whole, and replaces any other.

        A store that cannot rename copies and then removes; both names may exist for a moment.

        Parameters
        ----------
        path : str
            As for `RangeStore.read`; ObjectNotFoundError is raised if there is no such object.
        to : str
            The other name.
        """
        ...
