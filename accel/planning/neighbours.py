"""Row groups that are small and lie side by side: what is wanted of several comes in the requests of one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from accel.planning.pages import LeafReads
from accel.planning.task import ScanTask

__all__ = ["neighbours"]

_SPAN = 512 * 1024
"""Bytes of the file, from the first to the last that is wanted of all: no request is cut to less."""

_MOST = 64
"""Tasks: to begin so many at once holds an event loop up for milliseconds."""


def neighbours(tasks: Sequence[ScanTask]) -> Iterator[Sequence[ScanTask]]:
    """The tasks of one file in order, those together that lie within `_SPAN` of each other; most are alone."""
    begun: list[ScanTask] = []
    start = end = 0
    for task in tasks:
        # Summed up sooner than looked through.
        span = None if len(tasks) == 1 or task.nbytes > _SPAN else _span(task)
        if span is None:
            if begun:
                yield begun
            begun = []
            yield [task]
            continue
        if 0 < len(begun) < _MOST and max(end, span[1]) - min(start, span[0]) <= _SPAN:
            start, end = min(start, span[0]), max(end, span[1])
            begun.append(task)
        else:
            if begun:
                yield begun
            begun, (start, end) = [task], span
    if begun:
        yield begun


def _span(task: ScanTask) -> tuple[int, int] | None:
    """From the first byte that is wanted to behind the last; None where nothing is wanted."""
    ends = [span for reads in task.reads if (span := _leaf_span(reads)) is not None]
    if not ends:
        return None
    return min(start for start, _ in ends), max(end for _, end in ends)


def _leaf_span(reads: LeafReads) -> tuple[int, int] | None:
    if reads.whole:
        return reads.chunk.start, reads.chunk.end
    if not len(reads.offset):
        return None
    start = reads.offset.item(0)
    if reads.dictionary is not None:
        start = min(start, reads.dictionary.start)
    return start, reads.offset.item(-1) + reads.size.item(-1)
