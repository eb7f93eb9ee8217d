"""What every system of the benchmark can be asked, and what it answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from bench.peers.endpoint import Endpoint
from bench.queries import Query

__all__ = ["Answer", "Measured", "Peer", "PeerError", "Unsupported"]


class Unsupported(Exception):
    """The system has no words for this query; the text says what it lacks."""


class PeerError(Exception):
    """The system failed, took too long, or its process died."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a query gave."""

    rows: int
    first: float
    """Seconds from the start of the call until the first batch was there; the whole call, where all comes at
    once."""
    values: Any = None
    """All of it, as the system gave it, where it came at once: compared when the clock has stopped."""


@dataclass(frozen=True, slots=True)
class Measured:
    """One call, as measured in the system's own process."""

    seconds: float
    first: float
    """Seconds to the first batch; of many queries at once, and of other verbs, all of them."""
    rows: int
    """Of many queries at once, of all together."""
    cpu: float
    """User and system seconds of this call, all threads, and all processes that the system started."""
    peak: int
    """The most bytes resident during the call (`VmHWM`), of all those processes together: the libraries
    included."""
    each: tuple[int, ...] = ()
    """Of many queries at once, the rows of each."""
    digest: str = ""
    """Of the values (`bench.peers.digest`); empty where they are not compared."""


class Peer(Protocol):
    """A system under test. Not thread-safe; one lives in one process."""

    def open(self, endpoint: Endpoint) -> None:
        """Import, connect, and keep open what can be kept open."""

    def prepare(self, query: Query) -> None:
        """What is to be known before the clock starts; only the floor needs anything."""

    def run(self, query: Query) -> Answer:
        """Answer one query, all of its rows fetched and decoded.

        Raises
        ------
        Unsupported
            The system cannot do this.
        """
        ...

    def forget(self) -> None:
        """As in a new process: drop every cache and every open table; imports stay."""

    def concurrently(self, queries: Sequence[Query]) -> list[int]:
        """Answer many at once, in the way that the system's documentation recommends; the rows of each."""
        ...
