"""What an index kind is: a kind builds an index from a column's values and parses it; the index prunes.

Every kind derives from `IndexKind`, which describes it; its indexes have the members of `ParsedIndex`.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, runtime_checkable

import numpy as np
import pyarrow as pa

from accel.arrays import validity
from accel.indexes.native import code_values
from accel.indexes.question import LeafOp, LeafQuestion
from accel.predicate.prune import Evidence

if TYPE_CHECKING:
    from accel.arrays import Bools, Int64s
    from accel.indexes.question import LeafQuestion

__all__ = [
    "ChunkValues",
    "IndexBuilder",
    "IndexKind",
    "Level",
    "ParsedIndex",
    "PartedIndex",
    "Presence",
    "first_rows_of",
]


class Level(enum.StrEnum):
    """The units that an index answers for; the text is what files store."""

    FILE = "file"
    """One unit: the file."""
    ROW_GROUP = "row group"
    """One index a row group, of one unit."""
    PAGE = "page"
    """One index a row group; its units are the column's data pages."""
    ROW_RANGE = "row range"
    """One index a row group; its units are the rows, answered for in ranges (`first_rows_of`)."""


@dataclass(frozen=True, slots=True, eq=False)
class ChunkValues:
    """The values of one column in one row group, or in a run of its pages.

    For an index of several columns they are structs with a field for each column.
    """

    array: pa.Array
    """The decoded values, one for each row, perhaps in a dictionary array; a field comes without its
    struct."""
    first_rows: Int64s
    """The index of the first row of each data page among these rows; [0] where pages are unknown."""
    num_rows: int
    """The number of values."""

    def __post_init__(self) -> None:
        first = self.first_rows
        if len(self.array) != self.num_rows:
            raise ValueError(f"{len(self.array)} values for {self.num_rows} rows")
        good = len(first) and first[0] == 0 and bool((np.diff(first) > 0).all())
        if self.num_rows and not (good and first[-1] < self.num_rows):
            raise ValueError("pages start at row 0 and ascend, each with a row")

    def starts(self, level: Level) -> Int64s:
        """Find the first rows of the units.

        Parameters
        ----------
        level : Level
            The units.

        Returns
        -------
        int64 array
            The rows. A row group without rows has no unit at the levels of pages and rows.
        """
        if level is Level.PAGE:
            return self.first_rows if self.num_rows else self.first_rows[:0]
        if level is Level.ROW_RANGE:
            return np.arange(self.num_rows, dtype=np.int64)
        return np.zeros(1, np.int64)

    def parts(self, level: Level) -> Iterator[pa.Array]:
        """Cut the values into units.

        Parameters
        ----------
        level : Level
            The units.

        Yields
        ------
        pyarrow.Array
            The values of each unit in order.
        """
        starts = self.starts(level)
        for start, rows in zip(starts.tolist(), self._rows(starts).tolist(), strict=True):
            yield self.array.slice(start, rows)

    def units(self, level: Level) -> Int64s:
        """Find the unit of every row.

        Parameters
        ----------
        level : Level
            The units.

        Returns
        -------
        int64 array
            The number of the unit of each row.
        """
        starts = self.starts(level)
        return np.repeat(np.arange(len(starts)), self._rows(starts))

    def _rows(self, starts: Int64s) -> Int64s:
        """Return the number of rows of each unit."""
        return np.diff(np.append(starts, self.num_rows)) if len(starts) else starts


@dataclass(frozen=True, slots=True, eq=False)
class Presence:
    """Which units have nulls, and which have values."""

    null: Bools
    """Units that hold a null."""
    value: Bools
    """Units that hold a value."""

    @classmethod
    def of(cls, chunk: ChunkValues, level: Level) -> Presence:
        """Find whether each unit of a chunk holds nulls, and values.

        Parameters
        ----------
        chunk : ChunkValues
            The chunk.
        level : Level
            The units.

        Returns
        -------
        Presence
            One entry per unit.
        """
        starts = chunk.starts(level)
        if not chunk.num_rows or not len(starts):
            return cls(np.zeros(len(starts), bool), np.zeros(len(starts), bool))
        valid = _valid(chunk.array)
        return cls(np.logical_or.reduceat(~valid, starts), np.logical_or.reduceat(valid, starts))

    def __len__(self) -> int:
        return len(self.null)

    @classmethod
    def joined(cls, parts: Sequence[Presence]) -> Presence:
        """Join the units of several parts.

        Parameters
        ----------
        parts : sequence of Presence
            The parts in order.

        Returns
        -------
        Presence
            The units of all parts.
        """
        if len(parts) == 1:
            return parts[0]
        none = [np.zeros(0, bool)]
        return cls(
            np.concatenate([part.null for part in parts] or none),
            np.concatenate([part.value for part in parts] or none),
        )

    def __or__(self, other: Presence) -> Presence:
        return Presence(self.null | other.null, self.value | other.value)

    def evidence(self, hit: Bools, miss: Bools | None = None) -> Evidence:
        """Turn the outcome of a test of values into evidence.

        Parameters
        ----------
        hit : bool array
            Units in which a value may pass the test.
        miss : bool array, optional
            Units in which a value may fail it; by default any may.

        Returns
        -------
        Evidence
            The possible outcomes of each unit.
        """
        return Evidence(self.value & hit, self.value if miss is None else self.value & miss, self.null)

    def nulls(self) -> Evidence:
        """Answer IS NULL.

        Returns
        -------
        Evidence
            The possible outcomes of each unit.
        """
        return Evidence(self.null, self.value, np.zeros(len(self), bool))


def _valid(array: pa.Array) -> Bools:
    if not pa.types.is_dictionary(array.type):
        return validity(array)
    valid = validity(array.indices)
    if array.dictionary.null_count:
        valid = code_values(array).codes >= 0
    return valid


@runtime_checkable
class ParsedIndex(Protocol):
    """A parsed index."""

    @property
    def nbytes(self) -> int:
        """Bytes that the index takes in memory, for the cache's limit."""
        ...

    def prune(self, question: LeafQuestion) -> Evidence | None:
        """Find which outcomes each unit (page, row range) may have.

        Rows are pruned if the outcome `true` is ruled out.

        Parameters
        ----------
        question : LeafQuestion
            One leaf of the predicate.

        Returns
        -------
        Evidence or None
            The possible outcomes; None if the index cannot tell.
        """
        ...


def first_rows_of(parsed: ParsedIndex) -> Int64s | None:
    """Return the first row of each range, ascending from 0, for an index of row ranges; else None.

    Such an index has an attribute `first_rows`.
    """
    found: Int64s | None = getattr(parsed, "first_rows", None)
    return found


class IndexBuilder(Protocol):
    """An index that is being built."""

    def add(self, chunk: ChunkValues) -> None:
        """Add the next rows: a run of whole pages of a row group, or all of it.

        Parameters
        ----------
        chunk : ChunkValues
            The rows.
        """
        ...

    def finish(self) -> bytes:
        """Return the bytes of the index of all rows added."""
        ...


class IndexKind:
    """One kind of index: what it stores, how values become its bytes, and what it answers.

    A kind of your own derives from it, and has at least a name, `build` or `builder`, and `parse`. The other
    members are for kinds that can do more.
    """

    name: ClassVar[str] = ""
    """The name in files and in `indexes={"column": "name"}`."""
    version: ClassVar[int] = 1
    """The version of the bytes; an index of another version is not used."""
    joined_version: ClassVar[int | None] = None
    """The version of the bytes that `join` makes, whose parsed index has `group_units`: the units of each row
    group, in order. None where page indexes of row groups are not joined."""
    levels: ClassVar[frozenset[Level]] = frozenset({Level.PAGE})
    ops: ClassVar[frozenset[LeafOp]] = frozenset(LeafOp)
    """The tests that it may answer; its bytes are not fetched for others."""

    def build(self, chunks: Iterable[ChunkValues], *, level: Level) -> bytes:
        """Build the index of a file, from all row groups in order, or of one row group.

        Parameters
        ----------
        chunks : iterable of ChunkValues
            The row groups.
        level : Level
            The units that the index answers for.

        Returns
        -------
        bytes
            The index.
        """
        builder = self.builder(level=level)
        if builder is None:
            raise NotImplementedError(f"{type(self).__name__} builds no index")
        for chunk in chunks:
            builder.add(chunk)
        return builder.finish()

    def builder(self, *, level: Level) -> IndexBuilder | None:
        """Start a new index that takes values while pages are decoded, instead of a row group at a time.

        Parameters
        ----------
        level : Level
            The units that it answers for.

        Returns
        -------
        IndexBuilder or None
            The builder; None for kinds that have `build` alone.
        """
        return None

    def check_installed(self) -> None:
        """Raise ValueError if a package that builds indexes is not there."""

    def parse(self, data: bytes, *, level: Level, units: int) -> ParsedIndex:
        """Parse the bytes of an index.

        Parameters
        ----------
        data : bytes
            The bytes.
        level : Level
            The units that it answers for.
        units : int
            The number of units.

        Returns
        -------
        ParsedIndex
            The index.

        Raises
        ------
        IndexFormatError
            The bytes are damaged, or have another number of units.
        """
        raise NotImplementedError(f"{type(self).__name__} parses no index")

    @property
    def params(self) -> Mapping[str, Any]:
        """Parameters of the build, which the file records: small, and of JSON's types."""
        return {}

    @property
    def reads(self) -> frozenset[int]:
        """The versions that `parse` accepts."""
        return frozenset(one for one in (self.version, self.joined_version) if one is not None)

    def shortcoming(self, data: bytes, *, units: int) -> str | None:
        """Find out why an index cannot prune.

        Parameters
        ----------
        data : bytes
            The whole index, or its head where the kind has one.
        units : int
            The number of units.

        Returns
        -------
        str or None
            Why, and what to use instead; None where it can.

        Raises
        ------
        IndexFormatError
            As `parse` raises it.
        """
        return None

    # -- large indexes, which are read in parts: the head, and the parts that a question needs ----

    def head_bytes(self, data: bytes) -> int | None:
        """Find the length of the head of an index.

        Parameters
        ----------
        data : bytes
            All bytes of the index, or its beginning.

        Returns
        -------
        int or None
            The number of bytes; None for kinds that are read as a whole.
        """
        return None

    def parse_head(self, data: bytes, *, level: Level, units: int) -> ParsedIndex:
        """Parse the head alone.

        Parameters
        ----------
        data : bytes
            The head.
        level : Level
            The units that the index answers for.
        units : int
            The number of units.

        Returns
        -------
        ParsedIndex
            The index without its parts: a `PartedIndex`.

        Raises
        ------
        IndexFormatError
            As `parse` raises it.
        """
        return self.parse(data, level=level, units=units)

    def join(
        self, runs: Sequence[Callable[[int, int], bytes]], *, keep: Callable[[bytes], None]
    ) -> bytes | None:
        """Join the page indexes of several row groups to one, where there is a `joined_version`.

        Parameters
        ----------
        runs : sequence of callables
            For each index a function that returns its bytes [start, end).
        keep : callable
            Called with each part of the new index, in order.

        Returns
        -------
        bytes or None
            The head of the new index; None if they do not join.
        """
        return None

    # -- several columns -------------------------------------------------------------------------

    @property
    def inputs(self) -> Sequence[str | tuple[str, ...]]:
        """The columns of a kind of several, as names, dotted paths or the names of paths; it takes structs
        with a field for each."""
        return ()

    @property
    def members(self) -> Sequence[object]:
        """The parts of a kind of several columns, as texts show them."""
        return self.inputs

    def over(self, columns: Sequence[str]) -> IndexKind:
        """Return the kind for several columns.

        Parameters
        ----------
        columns : sequence of str
            Columns, and what else the kind may be of.

        Returns
        -------
        IndexKind
            The same kind over them.

        Raises
        ------
        ValueError
            It is of one column.
        """
        raise ValueError(f"index kind {self.name} is of one column, not of {', '.join(columns)!r}")

    def located(self, paths: Sequence[tuple[str, ...]]) -> IndexKind:
        """Return the kind with the paths of its inputs.

        Parameters
        ----------
        paths : sequence of paths
            The path of each of `inputs` in the file.

        Returns
        -------
        IndexKind
            The same kind with them.
        """
        return self

    def covers(self) -> Iterable[tuple[int, str]]:
        """List what a kind of several columns covers.

        Returns
        -------
        iterable of (int, str)
            Positions of columns in `inputs`, each with `value` or an expression.
        """
        return tuple((at, "value") for at in range(len(self.inputs)))


class PartedIndex(ParsedIndex, Protocol):
    """An index whose head was read, and perhaps some parts."""

    def wants(self, question: LeafQuestion) -> Iterable[tuple[int, int]]:
        """Find the byte ranges that a question needs and that are not read yet.

        Parameters
        ----------
        question : LeafQuestion
            One leaf of the predicate.

        Returns
        -------
        iterable of (int, int)
            Half-open ranges of the bytes of the index.
        """
        ...

    def with_parts(self, parts: Mapping[tuple[int, int], memoryview]) -> PartedIndex:
        """Add byte ranges to the index.

        Parameters
        ----------
        parts : mapping of (int, int) to memoryview
            The bytes of half-open ranges.

        Returns
        -------
        PartedIndex
            The same index with more ranges.

        Raises
        ------
        IndexFormatError
            A range does not verify.
        """
        ...
