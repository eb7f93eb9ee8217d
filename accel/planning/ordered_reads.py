"""What a scan of the first rows in an order reads first, and when it stops, as `explain` tells it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from accel.errors import PredicateError
from accel.format.domain import Domain, storage_type
from accel.planning.aggregates import array_of
from accel.planning.row_order import ANY, Rank, SortKey
from accel.predicate.kinds import Family, kind_of
from accel.predicate.literal import literal_value
from accel.predicate.sql import literal_sql

__all__ = ["FirstRead", "OrderedReads", "show_best", "show_last"]

_SHOWN = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstRead:
    """A page, or a row group that is not divided into pages, that is read before others."""

    file: str
    """Its URL, without credentials."""
    row_group: int
    rows: tuple[int, int]
    """The first row, and the one behind the last, by their numbers in the file."""
    bound: str
    """What is known of the first key in these rows, as `ts <= 7`."""

    def __str__(self) -> str:
        first, stop = self.rows
        return f"{self.file}, row group {self.row_group}, rows {first:,} to {stop - 1:,}: {self.bound}"


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderedReads:
    """In which order the first rows are looked for: what is opened and read first, and what may follow."""

    order: tuple[str, ...]
    """The keys, as `ts DESC`."""
    limit: int
    files: tuple[int, int]
    """Files that are opened before any row is read, and all that the source leaves: where bounds are known
    beforehand, of a table, an index or a path, those with the best are opened, and else all."""
    first: tuple[FirstRead, ...]
    """What is read first, the best bounds first, cut where it is much."""
    first_parts: int
    """The number of pages and row groups that are read first."""
    left_parts: int
    """The number of pages, row groups and unopened files that may hold one of the rows; what is read first is
    among them."""
    bound: str | None
    """What is true of all rows of the result by the counts of rows alone, as `ts >= 5`: no part without such
    a row is read. None where the counts do not tell."""

    def lines(self) -> Iterator[str]:
        """Yield the lines of an explanation."""
        if not self.limit:
            yield f"order      {', '.join(self.order)}; no row is wanted, and none read"
            return
        opened, files = self.files
        yield f"order      {', '.join(self.order)}; the first {self.limit:,}"
        if opened < files:
            yield f"  opened   {opened:,} of {files:,} files before rows are read: their bounds are the best"
        else:
            yield f"  opened   {_count(files, 'file')}, to look at the statistics"
        for at, one in enumerate(self.first):
            yield f"  {'' if at else 'read':<9}{one}"
        if self.first_parts > len(self.first):
            yield f"  {'':<9}and {self.first_parts - len(self.first):,} more at the same time"
        left = self.left_parts - self.first_parts
        if left:
            yield f"  then     {_count(left, 'other part')} at most, the best bounds first"
        if self.first_parts:
            until = "  stops    when no part that is left can hold one of these rows"
            yield until if self.bound is None else f"{until}: they have {self.bound}"


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def show_best(key: SortKey, rank: Rank, kind: pa.DataType) -> str:
    """Return as text what is known of rows that do not come before a rank.

    Parameters
    ----------
    key : SortKey
    rank : Rank
    kind : pyarrow.DataType
        The type of the key.
    """
    if rank == ANY:
        return f"nothing is known of {key.column}"
    return _bounded(key, "<=" if key.descending else ">=", rank, kind)


def show_last(key: SortKey, rank: Rank, kind: pa.DataType) -> str:
    """Return as text what is known of rows that do not come after a rank; see `show_best`."""
    bound = _bounded(key, ">=" if key.descending else "<=", rank, kind)
    return f"{bound}, or are null or NaN" if key.nulls_first else bound


def _bounded(key: SortKey, sign: str, rank: Rank, kind: pa.DataType) -> str:
    if rank[1] is None:
        return f"{key.column} is null or NaN, or may be"
    return f"{key.column} {sign} {_text(rank[1], kind)}"


def _text(value: object, kind: pa.DataType) -> str:
    """Return a native value as SQL has it, cut where it is long."""
    found = kind_of(kind)
    try:
        if found.domain is Domain.FLOAT:
            text = repr(value)
        elif found.domain is Domain.BYTES and isinstance(value, bytes):
            # The end of a bound may be cut inside a character.
            text = literal_sql(value.decode("utf-8", "replace") if found.family is Family.TEXT else value)
        else:
            text = literal_sql(literal_value(array_of(value, storage_type(kind))[0]))
    except (PredicateError, pa.ArrowException):
        text = str(value)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."
