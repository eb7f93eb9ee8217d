"""Footers that arrive at about the same time, parsed together where they are alike.

A footer of a few chunks takes an interpreter longer than its request; thirty at once take little longer than
three (`format.footers`). What is left over here is parsed in the plain way, by who asked.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from accel.errors import AccelError
from accel.format.footer import parse_footer
from accel.format.footers import Alike, FooterBytes, learn_alike, read_alike
from accel.format.model import FileMetadata, ParquetSchema
from accel.planning.need import Tail
from accel.planning.opening import footer_in

__all__ = ["FooterDesk"]

_FEWEST: Final = 4
"""Footers; fewer are sooner parsed one by one."""
_MOST: Final = 32
"""Footers at a time: a slice of the loop."""
_LONGEST: Final = 16 * 1024
"""Bytes of a footer; longer ones gain nothing."""
_PATIENCE: Final = 5e-5
"""Seconds for which a footer waits for others, for each that is on its way: less than parsing that alone takes."""
_KINDS: Final = 8
"""Kinds of footers that are remembered, of those met last."""

_Waiting = tuple[FooterBytes, "asyncio.Future[FileMetadata | None]"]


class FooterDesk:
    """Where the footers of one scan are handed in. Used on one event loop.

    Parameters
    ----------
    shared : callable
        Gives an equal schema that another file has, if there is one.
    """

    def __init__(self, shared: Callable[[ParquetSchema], ParquetSchema]) -> None:
        self._shared = shared
        self.expected = 0
        """Files that are being opened, those that wait here included."""
        self._waiting: list[_Waiting] = []
        self._timer: asyncio.TimerHandle | None = None
        self._kinds: deque[Alike] = deque(maxlen=_KINDS)
        self._learned_in_vain = 0

    async def parse(self, tail: Tail) -> FileMetadata | None:
        """What the footer at the end of a file says; None where that is left to the caller."""
        if self.expected < _FEWEST or self._learned_in_vain > _KINDS:
            return None
        footer = footer_in(tail, _LONGEST)
        if footer is None:
            return None
        loop = asyncio.get_running_loop()
        found: asyncio.Future[FileMetadata | None] = loop.create_future()
        self._waiting.append((footer, found))
        if len(self._waiting) >= min(_MOST, self.expected):
            self._parse_all()
        elif self._timer is None:
            self._timer = loop.call_later(self.expected * _PATIENCE, self._parse_all)
        return await found

    def _parse_all(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        waiting, self._waiting = self._waiting, []
        try:
            left = self._parse_known([one for one in waiting if not one[1].done()])
            if len(left) >= _FEWEST:
                self._parse_known(self._learn(left))
        finally:
            for _, found in waiting:
                if not found.done():
                    found.set_result(None)

    def _parse_known(self, waiting: list[_Waiting]) -> list[_Waiting]:
        """Answer those that are like others before; returns the rest."""
        for kind in self._kinds:
            if len(waiting) < _FEWEST:
                break
            fitting = [one for one in waiting if kind.fits(one[0].data)]
            read = read_alike(kind, [footer for footer, _ in fitting]) if len(fitting) >= _FEWEST else None
            if read is None:
                continue
            for (_, found), metadata in zip(fitting, read, strict=True):
                found.set_result(metadata)
            waiting = [one for one in waiting if not one[1].done()]
            self._learned_in_vain = 0
        return waiting

    def _learn(self, waiting: list[_Waiting]) -> list[_Waiting]:
        """Parse the first in the plain way, for others to be compared with; returns the others."""
        (footer, found), *rest = waiting
        self._learned_in_vain += 1
        try:
            metadata = parse_footer(footer.data, file_size=footer.file_size, footer_start=footer.footer_start)
        except AccelError:
            return waiting
        metadata = replace(metadata, schema=self._shared(metadata.schema))
        found.set_result(metadata)
        kind = learn_alike(metadata)
        if kind is not None:
            self._kinds.appendleft(kind)
        return rest
