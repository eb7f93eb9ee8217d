"""Byte ranges, and the keys that say what a range is."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, Self, TypeAlias

from accel.errors import redact

__all__ = ["Buffer", "ByteRange", "Kind", "ObjectId", "ReadKey", "Stash", "Suffix", "Want"]

# Anything with the buffer protocol: bytes, memoryview, pyarrow.Buffer, obstore's Bytes.
# (collections.abc.Buffer is Python 3.12's; the floor is 3.11.)
Buffer: TypeAlias = "bytes | bytearray | memoryview"


# Ranges and keys are tuples, as these are made, compared and hashed without calling Python code.


class _Ends(NamedTuple):
    start: int
    end: int


class ByteRange(_Ends):
    """The bytes from `start` to before `end` of one object; at least one byte."""

    __slots__ = ()

    def __new__(cls, start: int, end: int) -> Self:
        if not 0 <= start < end:
            raise ValueError(f"not a byte range: {start}..{end}")
        return tuple.__new__(cls, (start, end))

    @property
    def length(self) -> int:
        """The number of bytes."""
        return self.end - self.start

    def covers(self, other: ByteRange) -> bool:
        """Return whether all of another range lies in this one.

        Parameters
        ----------
        other : ByteRange
            The other range.

        Returns
        -------
        bool
            False if a byte of it lies outside.
        """
        return self.start <= other.start and other.end <= self.end

    def __str__(self) -> str:
        return f"bytes {self.start}..{self.end}"


@dataclass(frozen=True, slots=True)
class ObjectId:
    """One version of one object, which pinned reads must find again."""

    path: str
    size: int
    etag: str | None
    """As the store wrote it; None if the store gives none."""

    def __repr__(self) -> str:
        # The path of a presigned URL holds its signature.
        return f"ObjectId({redact(self.path)!r}, {self.size} bytes, etag={self.etag!r})"


@dataclass(frozen=True, slots=True)
class Suffix:
    """The last `length` bytes of an object, or all of it if it is shorter."""

    length: int
    """The number of bytes."""

    def __post_init__(self) -> None:
        if self.length < 1:
            raise ValueError(f"not a suffix length: {self.length}")

    def __str__(self) -> str:
        return f"last {self.length} bytes"


class Kind(enum.StrEnum):
    """The kind of content of a byte range, or of a request."""

    TAIL = "tail"
    FOOTER = "footer"
    COLUMN_INDEX = "column index"
    OFFSET_INDEX = "offset index"
    BLOOM = "bloom filter"
    INDEX = "embedded index"
    DICTIONARY = "dictionary page"
    PAGE = "data page"
    CHUNK = "column chunk"
    REVALIDATE = "revalidation"
    HEAD = "head"
    LISTING = "listing"
    CATALOG = "catalog"
    """Whatever is read of an index outside the files."""
    TABLE = "table metadata"
    """The log, checkpoints, manifests and deleted rows of a table."""


class ReadKey(NamedTuple):
    """The key of a byte range, so that nothing is matched by position.

    `row_group` and `column` (the ordinal of the leaf in the schema) are -1 for what belongs to the whole
    file. `ordinal` is the number of a page in its chunk, else 0. The file is not part of the key, as one step
    reads only one file.
    """

    kind: Kind
    row_group: int = -1
    column: int = -1
    ordinal: int = 0

    def __str__(self) -> str:
        parts = [str(self.kind)]
        if self.kind is Kind.PAGE:
            parts[0] += f" {self.ordinal}"
        if self.row_group >= 0:
            parts.append(f"row group {self.row_group}")
        if self.column >= 0:
            parts.append(f"column {self.column}")
        return ", ".join(parts)


class Want(NamedTuple):
    """A byte range to read, and its key."""

    key: ReadKey
    range: ByteRange


# The result of reading a list of wants: exactly the wanted bytes of each key.
Stash: TypeAlias = Mapping[ReadKey, memoryview]
