"""The progress and the report of `embed`."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

__all__ = ["EmbedProgress", "EmbedReport", "EmbeddedIndex", "idle_warnings", "warn_of_idle"]


@dataclass(frozen=True, slots=True)
class EmbedProgress:
    """How far a call of `embed` is."""

    stage: str
    """"index" while columns are decoded, then "copy"."""
    done: int
    """Stored bytes of the columns, or bytes of the new file, that are done."""
    total: int
    """All of them."""


@dataclass(frozen=True, slots=True)
class EmbeddedIndex:
    """One kind of index of one column, over all row groups."""

    column: str
    """The column, or the list that stands for it."""
    kind: str
    """The name of the kind."""
    level: str
    """The units that it answers for."""
    count: int
    """1 for one index of the whole file, as a joined `bitmap` by page is; else one per row group."""
    units: int
    """Files, row groups, pages or rows that the indexes cover."""
    nbytes: int
    """Their bytes."""
    seconds: float
    """Processor time of building them, without decoding, which the indexes of a column share."""
    idle: int = 0
    """How many of them rule nothing out."""
    shortcoming: str | None = None
    """Why, and what to build instead."""


class _Index(Protocol):
    """The part of `EmbeddedIndex` that a warning is made of; `accel inspect` has its own class."""

    @property
    def column(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def count(self) -> int: ...
    @property
    def idle(self) -> int: ...
    @property
    def shortcoming(self) -> str | None: ...


def idle_warnings(indexes: Iterable[_Index], *, path: str | None = None) -> list[str]:
    """Return a warning for each index that rules nothing out, in some row groups at least."""
    place = "" if path is None else f"{path}: "
    return [
        f"{place}the {index.kind} index of {index.column} rules nothing out"
        f"{'' if index.count == 1 else f' in {index.idle:,} of {index.count:,} row groups'}: "
        f"{index.shortcoming}"
        for index in indexes
        if index.idle
    ]


def warn_of_idle(report: EmbedReport) -> None:
    """Warn the caller of `embed` of indexes that rule nothing out."""
    for warning in idle_warnings(report.indexes, path=report.path):
        warnings.warn(warning, stacklevel=3)


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbedReport:
    """What `embed` or `write_table` wrote, or would have written."""

    path: str
    """The new file."""
    written: bool
    """False for a dry run."""
    rows: int
    """Rows of the file."""
    size_before: int
    """Bytes of the file without the indexes."""
    size_after: int
    """Bytes of the new file."""
    indexes: tuple[EmbeddedIndex, ...]
    """The indexes by column, kind and level."""
    page_indexes_added: int
    """Column chunks that got an offset index."""
    column_indexes_added: int
    """Column chunks that got bounds for their pages."""
    pages_unknown: tuple[str, ...]
    """Columns whose pages could not be located; if there are any, the file got no offset index."""
    index_bytes: int
    """Bytes of all indexes."""
    page_index_bytes: int
    """Bytes of all page indexes."""
    seconds: float
    """How long it took."""
    warnings: tuple[str, ...] = ()
    """Page indexes that were not valid and were built again, and indexes that rule nothing out."""
