"""All that is to be new in a file, made before any of it is written."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from accel.errors import ParquetFormatError
from accel.format.page_index import PageIndexMismatchError
from accel.options import Options
from accel.writing.building import BuiltIndex
from accel.writing.original import Original, open_original
from accel.writing.page_indexes import PageIndexes
from accel.writing.report import EmbeddedIndex, EmbedReport, idle_warnings
from accel.writing.scratch import Scratch
from accel.writing.source import Source
from accel.writing.survey import Survey
from accel.writing.tail import NewTail, make_tail, verify_tail
from accel.writing.wanted import Indexes, WantedIndex, read_wanted

__all__ = ["Made", "prepare", "report_on"]

Counter = Callable[[str, int], Callable[[int], None]]
"""Given the name of a stage and its bytes, what is to be told of each part of them."""


@dataclass(frozen=True, slots=True, eq=False)
class Made:
    """The new end of a file, verified, and what it is made of."""

    original: Original
    built: list[BuiltIndex]
    pages: PageIndexes
    tail: NewTail
    scratch: Scratch
    """Kept, since the tail reads from it."""
    begun: float


def prepare(source: Source, indexes: Indexes, *, options: Options, counter: Counter | None = None) -> Made:
    """Read a file, build its indexes and its missing page indexes, and lay out its new end.

    Raises as `embed` does.
    """
    begun = time.perf_counter()
    original = open_original(source, options=options)
    metadata = original.metadata
    wanted = read_wanted(indexes, metadata)
    try:
        pages, built, scratch = _look_through(original, wanted, options=options, counter=counter)
    except ParquetFormatError as error:
        if not original.offset_indexes:
            raise
        # As a scan does: the page index may be wrong, and if it is not, this ends with the same error.
        original = original.without_page_index(error)
        pages, built, scratch = _look_through(original, wanted, options=options, counter=counter)
        if options.strict:
            raise PageIndexMismatchError(
                error.message, path=error.path, place=error.place
            ).as_index_error() from error
    tail = make_tail(metadata, built, found=pages, idx1=any(index.kind is None for index in wanted))
    verify_tail(tail, metadata, built=built)
    return Made(original, built, pages, tail, scratch, begun)


def _look_through(
    original: Original, wanted: Sequence[WantedIndex], *, options: Options, counter: Counter | None
) -> tuple[PageIndexes, list[BuiltIndex], Scratch]:
    scratch = Scratch()
    survey = Survey(original, wanted, options=options, scratch=scratch)
    note = _ignore if counter is None else counter("index", survey.stored_bytes())
    pages, built = survey.run(note)
    return pages, built, scratch


def _ignore(count: int) -> None:
    """Nobody wants to know."""


def report_on(made: Made, *, path: str, written: bool) -> EmbedReport:
    """What was made, in numbers."""
    tail, metadata = made.tail, made.original.metadata
    indexes = _summaries(made.built)
    return EmbedReport(
        path=path,
        written=written,
        rows=metadata.num_rows,
        size_before=metadata.file_size,
        size_after=tail.file_size,
        indexes=indexes,
        page_indexes_added=made.pages.added,
        column_indexes_added=made.pages.added_bounds,
        pages_unknown=tuple(made.pages.unknown),
        index_bytes=tail.index_bytes,
        page_index_bytes=tail.page_index_bytes,
        seconds=time.perf_counter() - made.begun,
        warnings=(*made.original.warnings, *idle_warnings(path, indexes)),
    )


def _summaries(built: list[BuiltIndex]) -> tuple[EmbeddedIndex, ...]:
    found: dict[tuple[str, str, str], list[BuiltIndex]] = {}
    for index in built:
        key = (index.wanted.column, index.wanted.kind_name, str(index.wanted.level))
        found.setdefault(key, []).append(index)
    return tuple(
        EmbeddedIndex(
            column=column,
            kind=kind,
            level=level,
            count=len(parts),
            units=sum(part.units for part in parts),
            nbytes=sum(part.data.length for part in parts),
            seconds=sum(part.seconds for part in parts),
            idle=sum(part.shortcoming is not None for part in parts),
            shortcoming=next((part.shortcoming for part in parts if part.shortcoming is not None), None),
        )
        for (column, kind, level), parts in found.items()
    )
