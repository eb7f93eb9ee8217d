"""What one call of one system took."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Failure", "Sample"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One call. Times in seconds, sizes in bytes; requests and bytes are the proxy's count, the same for
    all."""

    case: str
    mode: str
    at: float
    """Where on the case's axis, where it has one."""
    round: int
    system: str
    seconds: float
    first: float
    """Until the first batch was there."""
    rows: int
    cpu: float
    peak: int
    requests: int
    lists: int
    """Of the requests, those that list a directory: they have a price of their own."""
    trips: int
    """The longest chain of requests in which each began after another had ended."""
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A system that could not answer a case, was too slow for it, or gave another answer than the others."""

    case: str
    mode: str
    at: float
    system: str
    kind: str
    """unsupported, error, slow or rows."""
    text: str
