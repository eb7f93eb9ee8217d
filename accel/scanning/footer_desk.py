"""Footers that have arrived at about the same time, parsed together where they are alike.

A footer of a few chunks takes an interpreter longer than its request; thirty at once take little longer than
three (`format.footers`). What is left over here is parsed in the plain way, by who asked.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from accel.errors import AccelError, refuse_unforeseen
from accel.format.footer import FooterBytes, parse_footer
from accel.format.footers import Alike, learn_alike, read_alike
from accel.format.model import FileMetadata, ParquetSchema
from accel.format.packed import PackedMetadata
from accel.planning.need import Tail
from accel.planning.opening import footer_in

__all__ = ["FooterDesk"]

_FEWEST: Final = 4
"""Footers; fewer are sooner parsed one by one."""
_LONGEST: Final = 16 * 1024
"""Bytes of a footer; longer ones gain nothing."""
_KINDS: Final = 8
"""How many footer layouts are remembered; the one learned first is dropped."""


class FooterDesk:
    """Where the footers of one scan are handed in.

    Parameters
    ----------
    shared : callable
        Gives an equal schema that another file has, if there is one.
    """

    def __init__(self, shared: Callable[[ParquetSchema], ParquetSchema]) -> None:
        self._shared = shared
        self._kinds: deque[Alike] = deque(maxlen=_KINDS)
        self._learned_in_vain = 0

    def parse(self, tails: Sequence[Tail]) -> list[FileMetadata | PackedMetadata | None]:
        """What the footer at the end of each file says; None where that is left to the caller."""
        found: list[FileMetadata | PackedMetadata | None] = [None] * len(tails)
        if len(tails) < _FEWEST or self._learned_in_vain > _KINDS:
            return found
        waiting = [
            (place, footer)
            for place, tail in enumerate(tails)
            if (footer := footer_in(tail, _LONGEST)) is not None
        ]
        waiting = self._parse_known(waiting, found)
        if len(waiting) >= _FEWEST:
            self._parse_known(self._learn(waiting, found), found)
        return found

    def _parse_known(
        self, waiting: list[tuple[int, FooterBytes]], found: list[FileMetadata | PackedMetadata | None]
    ) -> list[tuple[int, FooterBytes]]:
        """Answer those that are like others before; returns the rest."""
        for kind in self._kinds:
            if len(waiting) < _FEWEST:
                break
            fitting = [one for one in waiting if kind.fits(one[1].data)]
            read = _read_alike(kind, [footer for _, footer in fitting]) if len(fitting) >= _FEWEST else None
            if read is None:
                continue
            for (place, _), metadata in zip(fitting, read, strict=True):
                found[place] = metadata
            waiting = [one for one in waiting if found[one[0]] is None]
            self._learned_in_vain = 0
        return waiting

    def _learn(
        self, waiting: list[tuple[int, FooterBytes]], found: list[FileMetadata | PackedMetadata | None]
    ) -> list[tuple[int, FooterBytes]]:
        """Parse the first in the plain way, for others to be compared with; returns the others."""
        (place, footer), *rest = waiting
        self._learned_in_vain += 1
        try:
            metadata = parse_footer(footer.data, file_size=footer.file_size, footer_start=footer.footer_start)
        except AccelError:
            return waiting
        metadata = replace(metadata, schema=self._shared(metadata.schema))
        found[place] = metadata
        kind = learn_alike(metadata)
        if kind is not None:
            self._kinds.appendleft(kind)
        return rest


def _read_alike(kind: Alike, footers: Sequence[FooterBytes]) -> list[PackedMetadata] | None:
    try:
        with refuse_unforeseen("footer"):
            return read_alike(kind, footers)
    except AccelError:
        # Read one by one it will be said of which file it is.
        return None
