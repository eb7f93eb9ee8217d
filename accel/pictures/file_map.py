"""FileMap: what became of every page of a file, by column, and its drawing.

A column is a strip of its pages, as long as the file has rows; lines mark the row groups. Colour says what
became of a page, and so does the text that appears over it: nothing is said by colour alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from html import escape
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from accel.pictures.document import byte_count

if TYPE_CHECKING:
    from accel.arrays import Int64s

__all__ = ["FATES", "ColumnMap", "Fate", "FileMap", "draw_file", "draw_legend"]


class Fate(IntEnum):
    """What became of a page. A span in which several meet is drawn as the first of them in this order."""

    READ = 0
    LATE = 1
    PROVED = 2
    EMBEDDED = 3
    BLOOM = 4
    DICTIONARY = 5
    PAGE_INDEX = 6
    STATISTICS = 7
    OUTSIDE = 8


FATES: Final[Mapping[int, str]] = {
    Fate.READ: "read",
    Fate.LATE: "read where rows match",
    Fate.PROVED: "not needed: its rows are known to match",
    Fate.EMBEDDED: "ruled out by an index in the file",
    Fate.BLOOM: "ruled out by a bloom filter",
    Fate.DICTIONARY: "ruled out by a dictionary",
    Fate.PAGE_INDEX: "ruled out by the page index",
    Fate.STATISTICS: "ruled out by statistics",
    Fate.OUTSIDE: "ruled out by an index outside the file, or a selection",
}
"""What is said of the pages of a scan."""

_MOST_SPANS: Final = 240
"""Spans that are drawn of a strip: more are narrower than a pixel."""
_THIN: Final = 120
"""Spans that are a smaller part of a strip have no border, which would be all that is seen of them."""
_MOST_LINES: Final = 64
"""Row groups of which the lines are drawn."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ColumnMap:
    """The pages of one column over the whole file, in order."""

    name: str
    first_rows: Int64s
    """The row of the file at which each page starts."""
    fates: npt.NDArray[np.uint8]
    """Of `Fate`; of another file than a scan reads, numbers that `FileMap.names` explains."""
    nbytes: Int64s
    """Compressed."""

    @classmethod
    def joined(cls, name: str, chunks: Sequence[tuple[Int64s, npt.NDArray[np.uint8], Int64s]]) -> ColumnMap:
        """Return the map of a column from its first rows, fates and bytes in each row group."""
        first = np.concatenate([np.zeros(0, np.int64), *(chunk[0] for chunk in chunks)])
        fates = np.concatenate([np.zeros(0, np.uint8), *(chunk[1] for chunk in chunks)])
        nbytes = np.concatenate([np.zeros(0, np.int64), *(chunk[2] for chunk in chunks)])
        return cls(name=name, first_rows=first, fates=fates, nbytes=nbytes)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FileMap:
    """The pages of one file, of the columns that a scan names."""

    name: str
    """Without credentials."""
    size: int
    """Bytes."""
    num_rows: int
    group_rows: Int64s
    """The row of the file at which each row group starts."""
    columns: tuple[ColumnMap, ...]
    others: int = 0
    """Columns that are not drawn: those that are not asked for, and those beyond the first that are."""
    names: Mapping[int, str] = field(default_factory=lambda: FATES)
    """What is said of each fate."""

    def nbytes(self, fate: int) -> int:
        """Return the compressed bytes of the pages of one fate."""
        return sum(int(column.nbytes[column.fates == fate].sum()) for column in self.columns)


class _Span(NamedTuple):
    start: int
    stop: int
    fate: int
    pages: int
    nbytes: int


def draw_file(file: FileMap) -> str:
    """Return a file as HTML: a strip for each column."""
    groups = len(file.group_rows)
    facts = f"{byte_count(file.size)}, {file.num_rows:,} rows in {groups:,} row group{'s' * (groups != 1)}"
    if file.names is FATES:
        read = file.nbytes(Fate.READ) + file.nbytes(Fate.LATE)
        facts += f", {byte_count(read)} of pages to read"
    strips = "".join(_draw_column(file, column) for column in file.columns)
    rest = f'<p class="accel-note">{file.others:,} more columns are not drawn</p>' if file.others else ""
    return (
        f'<figure class="accel-file"><figcaption><b>{escape(file.name)}</b> <span>{facts}</span></figcaption>'
        f'<div class="accel-strips">{strips}</div>{rest}</figure>'
    )


def _draw_column(file: FileMap, column: ColumnMap) -> str:
    rows = max(1, file.num_rows)
    drawn = "".join(_draw_span(file, span) for span in _spans(column, file.num_rows))
    lines = ""
    if 1 < len(file.group_rows) <= _MOST_LINES:
        path = "".join(f"M{row} 0V1" for row in file.group_rows[1:].tolist())
        lines = f'<path d="{path}"/>'
    return (
        f"<label>{escape(column.name)}</label>"
        f'<svg viewBox="0 0 {rows} 1" preserveAspectRatio="none" role="img" '
        f'aria-label="{escape(_summary(column, file.names), quote=True)}">{drawn}{lines}</svg>'
    )


def _draw_span(file: FileMap, span: _Span) -> str:
    width = span.stop - span.start
    thin = " accel-thin" if width * _THIN < file.num_rows else ""
    return (
        f'<rect class="accel-f{span.fate}{thin}" x="{span.start}" width="{width}" height="1">'
        f"<title>{escape(_tell(span, file.names))}</title></rect>"
    )


def _spans(column: ColumnMap, num_rows: int) -> Iterator[_Span]:
    """Yield what is drawn: the pages, or, where they are many, what lies between the pixels of a strip."""
    first, fates = column.first_rows, column.fates
    if not len(first):
        return
    if len(first) <= _MOST_SPANS:
        starts = np.arange(len(first))
    else:
        # Neighbours of one fate are one span, unless a span is too long to show where its pages lie.
        pixel = first * _MOST_SPANS // max(1, num_rows)
        starts = np.flatnonzero(np.append(True, pixel[1:] != pixel[:-1]))
    ends = np.append(starts[1:], len(first))
    stops = np.append(first[starts[1:]], num_rows)
    worst = np.minimum.reduceat(fates, starts)
    totals = np.add.reduceat(column.nbytes, starts)
    for at in range(len(starts)):
        yield _Span(
            int(first[starts[at]]),
            int(stops[at]),
            int(worst[at]),
            int(ends[at] - starts[at]),
            int(totals[at]),
        )


def _tell(span: _Span, names: Mapping[int, str]) -> str:
    pages = "1 page" if span.pages == 1 else f"{span.pages:,} pages"
    return f"rows {span.start:,} to {span.stop:,}: {pages}, {byte_count(span.nbytes)}, {names[span.fate]}"


def _summary(column: ColumnMap, names: Mapping[int, str]) -> str:
    counts = np.bincount(column.fates, minlength=len(names)).tolist()
    parts = [f"{count:,} {names[fate]}" for fate, count in enumerate(counts) if count]
    return f"{column.name}: pages {', '.join(parts) or 'none'}"


def draw_legend(files: Sequence[FileMap]) -> str:
    """Return what the colours mean as HTML, with the pages and bytes of each, of the fates that there are."""
    rows = []
    for fate, name in files[0].names.items() if files else ():
        pages = sum(int((column.fates == fate).sum()) for file in files for column in file.columns)
        if pages:
            nbytes = sum(file.nbytes(fate) for file in files)
            rows.append(
                f'<li><i class="accel-f{int(fate)}"></i>{escape(name)} '
                f"<span>{pages:,} page{'s' * (pages != 1)}, {byte_count(nbytes)}</span></li>"
            )
    return f'<ul class="accel-legend">{"".join(rows)}</ul>' if rows else ""
