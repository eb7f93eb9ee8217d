"""How a pure step reads bytes: it yields what it needs and returns its value.

The reader answers from the network, a test with a plain function; both drive the same generator.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from accel.errors import IndexFormatError
from accel.format.model import FileMetadata
from accel.planning.handle import FileHandle
from accel.ranges import ReadKey, Stash, Want

if TYPE_CHECKING:
    from accel.format.packed import PackedMetadata

__all__ = ["OnBadIndex", "ReadRequest", "Steps", "Tail", "TailRequest", "read_ranges"]


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """Byte ranges of the current file, all in one round trip. Answered by a `Stash`; no range only lets
    others run."""

    wants: tuple[Want, ...]


@dataclass(frozen=True, slots=True)
class TailRequest:
    """The last `length` bytes of the file. Answered by a `Tail`."""

    length: int


@dataclass(frozen=True, slots=True)
class Tail:
    """The end of a file: `data` starts at `start` and reaches to the file's end, `size`."""

    data: memoryview
    start: int
    size: int
    etag: str | None
    parsed: FileMetadata | PackedMetadata | None = None
    """The parsed footer, where it was parsed together with others."""


T = TypeVar("T")
Steps: TypeAlias = Generator[ReadRequest | TailRequest, "Stash | Tail", T]
OnBadIndex: TypeAlias = Callable[[IndexFormatError], None]
"""Called with each index that does not verify and is passed over; it may raise."""


def read_ranges(handle: FileHandle, wants: Sequence[Want]) -> Steps[tuple[dict[ReadKey, memoryview], int]]:
    """Return the wanted bytes, from the tail in memory or in one round trip, and the number of round
    trips."""
    stash = {want.key: data for want in wants if (data := handle.in_tail(want.range)) is not None}
    missing = tuple(want for want in wants if want.key not in stash)
    if not missing:
        return stash, 0
    answer = yield ReadRequest(missing)
    if isinstance(answer, Tail):
        raise TypeError("ranges were asked for")
    return {**stash, **answer}, 1
