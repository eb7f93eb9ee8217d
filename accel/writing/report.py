"""What `embed` says: how far it is, and what it did."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["EmbedProgress", "EmbedReport", "EmbeddedIndex", "idle_warning", "idle_warnings", "warn_of_idle"]


@dataclass(frozen=True, slots=True)
class EmbedProgress:
    """How far a run is."""

    stage: str
    """"index", while columns are decoded, then "copy"."""
    done: int
    """Stored bytes of the columns, or bytes of the new file."""
    total: int


@dataclass(frozen=True, slots=True)
class EmbeddedIndex:
    """One index of one column, over all row groups."""

    column: str
    kind: str
    level: str
    count: int
    """1 where it is one index of the whole file, as a joined `bitmap` by page is, too; else one a row group."""
    units: int
    """Files, row groups, pages or rows that they speak of."""
    nbytes: int
    seconds: float
    """Processor time of building alone: decoding is shared by the indexes of a column."""
    idle: int = 0
    """Of `count`, those that rule nothing out."""
    shortcoming: str | None = None
    """Why they do not, and what to take instead."""


def idle_warning(of: str, *, count: int, idle: int, shortcoming: str | None) -> str | None:
    """What there is to say of indexes of which some rule nothing out; None where all do.

    `of` tells which they are, as "the distinct index of carrier".
    """
    if not idle:
        return None
    where = "" if count == 1 else f" in {idle:,} of {count:,} row groups"
    return f"{of} rules nothing out{where}: {shortcoming}"


def idle_warnings(path: str, indexes: Iterable[EmbeddedIndex]) -> list[str]:
    """The same of all indexes of a file, which is named."""
    found = [
        idle_warning(
            f"{path}: the {index.kind} index of {index.column}",
            count=index.count,
            idle=index.idle,
            shortcoming=index.shortcoming,
        )
        for index in indexes
    ]
    return [warning for warning in found if warning is not None]


def warn_of_idle(report: EmbedReport) -> None:
    """Warn whoever called the caller of indexes that rule nothing out: they are not what was meant."""
    for warning in idle_warnings(report.path, report.indexes):
        warnings.warn(warning, stacklevel=3)


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbedReport:
    """What was written, or would have been."""

    path: str
    written: bool
    rows: int
    size_before: int
    size_after: int
    indexes: tuple[EmbeddedIndex, ...]
    page_indexes_added: int
    """Column chunks that got an offset index."""
    column_indexes_added: int
    """Column chunks that got bounds for their pages."""
    pages_unknown: tuple[str, ...]
    """Columns whose pages could not be located: no offset index was added to the file then."""
    index_bytes: int
    page_index_bytes: int
    seconds: float
    warnings: tuple[str, ...] = ()
    """What of the file is not believed and was made anew, and which indexes rule nothing out."""
