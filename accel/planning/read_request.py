"""How a pure step asks for bytes: it yields what it needs, and returns its value.

The reader answers from the network, a test by a plain function; both drive the same generator.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from accel.errors import IndexFormatError
from accel.format.model import FileMetadata
from accel.ranges import Stash, Want

if TYPE_CHECKING:
    from accel.format.packed import PackedMetadata

__all__ = ["Need", "NeedTail", "OnBadIndex", "Steps", "Tail"]


@dataclass(frozen=True, slots=True)
class Need:
    """Byte ranges of the file at hand, all wanted at once: one round trip. Answered by a `Stash`."""

    wants: tuple[Want, ...]


@dataclass(frozen=True, slots=True)
class NeedTail:
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
    """What its footer says, where that was parsed on the way."""


T = TypeVar("T")
Steps: TypeAlias = Generator[Need | NeedTail, "Stash | Tail", T]
OnBadIndex: TypeAlias = Callable[[IndexFormatError], None]
"""Told by a step of each index that does not verify, and is passed over; it may raise."""
