"""What `embed` says: how far it is, and what it did."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["EmbedProgress", "EmbedReport", "EmbeddedIndex"]


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
