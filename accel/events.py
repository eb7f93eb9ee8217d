"""Events of scans: requests, retries, warnings, files planned anew, and where a scan begins and ends.

Each goes to the logger `accel` and to the listener of the scan (`Options.on_event`). None holds a credential:
paths and texts are redacted.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from accel.errors import redact

__all__ = ["SLOW", "Event", "Listener", "emit", "listens"]

_LOGGER: Final = logging.getLogger("accel")
SLOW: Final = 5.0
"""Seconds from which on a request is worth a line by itself."""
_LEVELS: Final = {
    "request": logging.DEBUG,
    "scan started": logging.DEBUG,
    "scan ended": logging.DEBUG,
    "retry": logging.INFO,
    "replan": logging.INFO,
    "warning": logging.WARNING,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that happened in a scan.

    Examples
    --------
    >>> def show(event):
    ...     print(event)
    >>> accel.scan("s3://bucket/flights/", options=accel.Options(on_event=show)).count_rows()
    """

    name: str
    """"scan started", "request", "retry", "replan", "warning" or "scan ended"."""
    scan: int = 0
    """A number that the events of one run share, in this process."""
    path: str | None = None
    """The object, or the source of the scan; secrets are redacted."""
    kind: str | None = None
    """For a request, what it reads: "tail", "data", "listing", ..., as in `Metrics.requests_by_kind`."""
    place: str | None = None
    """For a request, the range of bytes."""
    nbytes: int = 0
    """For a request, the bytes of its body."""
    seconds: float | None = None
    """How long a request or a scan took."""
    text: str | None = None
    """What went wrong, if something did."""
    counts: Mapping[str, object] = field(default_factory=dict, repr=False)
    """At the end of a scan, `Metrics.as_dict()`."""

    @property
    def level(self) -> int:
        """The level of `logging` at which the event is logged: requests at DEBUG, and slow ones, retries and
        replans at INFO."""
        if self.name == "request" and (self.seconds or 0.0) >= SLOW:
            return logging.INFO
        return _LEVELS.get(self.name, logging.INFO)

    def __str__(self) -> str:
        took = "" if self.seconds is None else f" in {self.seconds * 1000:.1f} ms"
        if self.name == "request":
            slow = "slow request" if self.level > logging.DEBUG else "request"
            failed = "" if self.text is None else f": {self.text}"
            return f"{slow} ({self.kind}) {self.path} {self.place or ''}: {self.nbytes} bytes{took}{failed}"
        parts = (self.path, self.text)
        return f"{self.name}{took}: {': '.join(part for part in parts if part)}"


Listener: TypeAlias = Callable[[Event], object]
"""Is called with each event, on the thread that reads: it returns at once, and asks nothing of accel."""


def listens(listener: Listener | None, *, level: int = logging.DEBUG) -> bool:
    """Return whether anybody takes events of this level: an event that nobody takes is not made."""
    return listener is not None or _LOGGER.isEnabledFor(level)


def emit(listener: Listener | None, event: Event, *, is_shown: bool = False) -> None:
    """Write an event to the log and hand it to the listener, whose errors do not reach the scan.

    With `is_shown` it is a warning of Python's, too: where a program has set up no logging, Python would
    print the line of the log besides.
    """
    if _LOGGER.isEnabledFor(event.level) and not (is_shown and not _LOGGER.hasHandlers()):
        _LOGGER.log(event.level, "%s", event)
    if listener is not None:
        try:
            listener(event)
        except Exception as error:  # noqa: BLE001 - a listener that fails must not end a scan
            _LOGGER.warning("a listener failed with %s: %s", type(error).__name__, redact(str(error)))
