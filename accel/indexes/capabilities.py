"""What an index kind may have besides what every one has: told by having it, no kind needs to derive from these."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar, Protocol

from accel.indexes.kind import IndexBuilder, IndexKind, Level, ParsedIndex

if TYPE_CHECKING:
    from accel.arrays import Int64s
    from accel.indexes.question import LeafQuestion

__all__ = [
    "CoveringKind",
    "JoinableKind",
    "JoinedIndex",
    "LimitedKind",
    "PartedIndex",
    "PartedKind",
    "StreamedKind",
]


class StreamedKind(IndexKind, Protocol):
    """A kind that is fed while pages are decoded, instead of a row group at a time."""

    def builder(self, *, level: Level) -> IndexBuilder:
        """A new index in the making."""
        ...


class PartedKind(IndexKind, Protocol):
    """A kind whose large indexes are read in parts: a head, and what that names for a question."""

    def head_bytes(self, data: bytes) -> int:
        """The length of the head of an index that was built."""
        ...

    def parse_head(self, data: bytes, *, level: Level, units: int) -> PartedIndex:
        """Read the head alone. Raises IndexFormatError, as `parse` does."""
        ...


class PartedIndex(ParsedIndex, Protocol):
    """An index of which the head was read, and perhaps some parts."""

    def wants(self, question: LeafQuestion) -> Iterable[tuple[int, int]]:
        """The stretches [start, end) of the index, in bytes, that a question needs and that are not held yet."""
        ...

    def with_parts(self, parts: Mapping[tuple[int, int], memoryview]) -> PartedIndex:
        """The same with more stretches held. Raises IndexFormatError where one does not verify."""
        ...


class LimitedKind(IndexKind, Protocol):
    """A kind whose indexes may come to rule nothing out, and which then says so."""

    def shortcoming(self, data: bytes, *, units: int) -> str | None:
        """Why an index that was built rules nothing out, and what to take instead; None where it does.

        `data` is all of it, or its head where the kind has one. Raises IndexFormatError, as `parse` does.
        """
        ...


class JoinableKind(IndexKind, Protocol):
    """A kind whose indexes of many row groups' pages become one of them all."""

    joined_version: ClassVar[int]
    """Of the bytes of such an index; `parse` gives a `JoinedIndex` for it."""

    def join(
        self, runs: Sequence[Callable[[int, int], bytes]], *, keep: Callable[[bytes], None]
    ) -> bytes | None:
        """Join indexes, of each of which a function gives the bytes [start, end).

        Hands the parts of the new one to `keep`, in order, and gives its head; None where they do not join.
        """
        ...


class JoinedIndex(ParsedIndex, Protocol):
    """An index of the pages of all row groups."""

    @property
    def group_units(self) -> Int64s | None:
        """How many of its units are of each row group, in order; None for an index of one row group."""
        ...


class CoveringKind(IndexKind, Protocol):
    """A kind of several columns."""

    @property
    def inputs(self) -> Sequence[str | tuple[str, ...]]:
        """Their names or dotted paths, or the names of their paths; it is given structs with a field a column."""
        ...

    def covers(self) -> Iterable[tuple[int, str]]:
        """What it speaks of: the position of a column in `inputs`, and `value` or an expression of it."""
        ...
