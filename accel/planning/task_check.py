"""The numbers of a scan task that was planned elsewhere, before anything is read by them.

A checksum tells what was damaged on its way, not what was wrong when it was written: by another program, or by hand.
"""

from __future__ import annotations

from typing import Final

from accel.errors import ParquetFormatError
from accel.planning.pages import LeafReads
from accel.planning.selection import RowSelection
from accel.planning.task import ScanTask

__all__ = ["check_task"]

_MOST: Final = 1 << 62
"""No number of bytes or rows is larger; two of them can be added."""


def check_task(task: ScanTask) -> None:
    """See that the rows are some of the row group's, and that the pages are some of the file's and hold those rows.

    Raises
    ------
    ParquetFormatError
        They do not.
    """
    file, query = task.file, task.file.query
    named = isinstance(file.root, str) and isinstance(file.url, str) and isinstance(file.id.path, str)
    if not named or not 0 <= file.id.size < _MOST or task.row_group < 0 or not 0 <= task.num_rows < _MOST:
        raise ParquetFormatError("a scan task names no row group of a file")
    if not (_is_within(task.rows, task.num_rows) and _is_within(task.sure, task.num_rows)):
        raise ParquetFormatError(
            f"the rows of a scan task are not some of the {task.num_rows} of its row group"
        )
    if task.sure.intersect(task.rows).count != task.sure.count:
        raise ParquetFormatError("a scan task is sure of rows that it does not read")
    maybe = task.rows.without(task.sure, task.num_rows)
    filters, outputs = set(query.filter_leaves), set(query.output_leaves)
    leaves = [reads.leaf for reads in task.reads]
    columns = [reads.column for reads in task.reads]
    if leaves != sorted(set(leaves)) or columns != sorted(set(columns)) or (columns and columns[0] < 0):
        raise ParquetFormatError("the columns of a scan task are not in order")
    if {reads.leaf for reads in task.reads if reads.for_output} != outputs:
        raise ParquetFormatError("a scan task does not read the columns of its result")
    filtered = {reads.leaf for reads in task.reads if reads.for_filter}
    if not filtered <= filters or (maybe and filtered != filters):
        raise ParquetFormatError("a scan task does not read the columns of its filter")
    for reads in task.reads:
        wanted = task.rows if reads.for_output else maybe if reads.for_filter else RowSelection.none()
        fault = _chunk_fault(reads, file.id.size) or _pages_fault(reads, wanted, task.num_rows)
        if fault:
            raise ParquetFormatError(f"a scan task {fault} (column {reads.column})")


def _is_within(rows: RowSelection, num_rows: int) -> bool:
    starts, stops = rows.starts, rows.stops
    if len(starts) != len(stops):
        return False
    if not len(starts):
        return True
    apart = len(starts) == 1 or bool((stops[:-1] <= starts[1:]).all())
    return apart and starts.item(0) >= 0 and stops.item(-1) <= num_rows and bool((starts < stops).all())


def _chunk_fault(reads: LeafReads, size: int) -> str:
    """What is wrong with what it says of the chunk; "" if nothing is."""
    ends = [reads.chunk.end] if reads.dictionary is None else [reads.chunk.end, reads.dictionary.end]
    if max(ends) > size:
        return "names pages outside its file"
    if not 0.0 <= reads.expansion <= _MOST or not 0 <= reads.num_values < _MOST:
        return "says that a chunk holds no number of values"
    if reads.dictionary_pages < -1 or reads.total_pages < (len(reads.ordinal) > 0):
        return "miscounts the pages of a chunk"
    return ""


def _pages_fault(reads: LeafReads, wanted: RowSelection, num_rows: int) -> str:
    """What is wrong with the pages; "" if nothing is."""
    if reads.whole:
        return ""
    ordinal, first, stop = reads.ordinal, reads.first_row, reads.stop_row
    if not len(ordinal):
        return "reads no page of rows that it wants" if wanted else ""
    if (
        ordinal.item(0) < 0
        or ordinal.item(-1) >= reads.total_pages
        or bool((ordinal[1:] <= ordinal[:-1]).any())
    ):
        return "miscounts the pages of a chunk"
    offset, size, end = reads.offset, reads.size, reads.chunk.end
    # Neither sum nor difference overflows, once the places are those of the file.
    if bool((offset < reads.chunk.start).any()) or bool((offset >= end).any()) or bool((size <= 0).any()):
        return "names pages outside their chunk"
    if bool((size > end - offset).any()) or bool((offset[1:] < (offset + size)[:-1]).any()):
        return "names pages that overlap"
    if first.item(0) < 0 or stop.item(-1) > num_rows or bool((stop < first).any()):
        return "names rows that its row group does not have"
    if bool((first[1:] < stop[:-1]).any()):
        return "names rows of several pages"
    if int(wanted.counts(first, stop).sum()) != wanted.count:
        return "reads no page of rows that it wants"
    return ""
