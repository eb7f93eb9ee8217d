"""What the floor knows of one row group beforehand: which bytes, how they become a small file, which of its
rows count.

Made from a task of accel's plan, outside the timing. The file is laid out by `accel.decode.splice`; decoding
it is a plain read by pyarrow. Columns that are not nested only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from accel.decode.arrow import open_reader
from accel.decode.splice import SplicedChunk, SplicePlan, plan_splice, splice
from accel.planning.pages import LeafReads
from accel.planning.selection import RowSelection
from accel.planning.task import ScanTask
from bench.peers.exact import Mask, compile_mask
from bench.peers.protocol import Unsupported
from bench.queries import Query

__all__ = ["Layout", "Range", "lay_out", "merge"]

Range = tuple[int, int]
Rows = npt.NDArray[np.int64]

_GAP = 32 << 10
"""A request costs about 0.4 ms of CPU, in which so many bytes arrive."""
_LONGEST = 8 << 20
# Below, columns are decoded one after the other: handing them to threads costs more.
_INLINE = 256 << 10


@dataclass(frozen=True, slots=True)
class _Column:
    name: str
    leaf: int
    codec: int
    dictionary: Range | None
    pages: tuple[Range, ...]
    rows: int
    """Of the pages, all together."""
    certain: Rows | slice
    """Which of them are known to match, by their place among the pages' rows."""
    maybe: Rows | slice


@dataclass(frozen=True, slots=True)
class Layout:
    """One row group's share of a query."""

    path: str
    plan: SplicePlan
    columns: tuple[_Column, ...]
    mask: Mask | None
    certain: int
    """Rows known to match."""
    maybe: int
    output: tuple[str, ...]

    @property
    def ranges(self) -> list[Range]:
        """What has to be fetched, dictionaries aside."""
        return [page for column in self.columns for page in column.pages]

    @property
    def dictionaries(self) -> list[Range]:
        """The dictionary pages that it needs."""
        return [column.dictionary for column in self.columns if column.dictionary]

    @property
    def nbytes(self) -> int:
        """Of all that."""
        return sum(end - start for start, end in (*self.ranges, *self.dictionaries))

    def decode(self, get: Callable[[Range], memoryview]) -> int:
        """The file made, decoded and filtered: every row of the answer is there, and counted."""
        if not self.columns:
            return self.certain
        chunks = {column.leaf: _chunk(column, get) for column in self.columns}
        longest = max(column.rows for column in self.columns)
        reader = open_reader(splice(self.plan, chunks, num_rows=longest))
        ordinals = {column.name: self.plan.column(column.leaf) for column in self.columns}
        if all(column.rows == longest for column in self.columns):
            table = reader.read_row_groups([0], sorted(ordinals.values()), self.nbytes > _INLINE)
            arrays = {name: table.column(name) for name in ordinals}
        else:
            arrays = {name: reader.read_column(ordinal) for name, ordinal in ordinals.items()}
        by_name = {column.name: column for column in self.columns}
        for name in self.output if self.certain else ():
            _cut(arrays[name], by_name[name].certain)
        if self.mask is None or not self.maybe:
            return self.certain
        doubtful = {name: _cut(array, by_name[name].maybe) for name, array in arrays.items()}
        mask = self.mask(doubtful)
        if not self.output:
            return self.certain + sum(int(chunk.true_count) for chunk in mask.chunks)
        found = 0
        for name in self.output:
            found = len(doubtful[name].filter(mask))
        return self.certain + found


def _chunk(column: _Column, get: Callable[[Range], memoryview]) -> SplicedChunk:
    parts = [get(page) for page in column.pages]
    if column.dictionary:
        parts.insert(0, get(column.dictionary))
    return SplicedChunk(tuple(parts), column.codec, column.rows, sum(map(len, parts)))


def _cut(array: pa.ChunkedArray, rows: Rows | slice) -> pa.ChunkedArray:
    if isinstance(rows, slice):
        return array.slice(rows.start, rows.stop - rows.start)
    return array.take(pa.array(rows))


def lay_out(query: Query, task: ScanTask) -> Layout:
    """The layout of a task."""
    schema = task.file.schema
    maybe = task.rows.intersect(task.certain.invert(task.num_rows)) if task.certain else task.rows
    if not task.needs_filter:
        maybe = task.rows.head(0)
    reads = [read for read in task.reads if read.whole or len(read.ordinal)]
    if any(len(schema.leaves[read.leaf].path) > 1 for read in reads):
        raise Unsupported("a nested column")
    # A flat leaf is its field.
    plan = plan_splice(
        schema,
        task.file.key_value,
        fields=[_field(task, read) for read in reads],
        created_by=task.file.created_by,
    )
    names = {schema.leaves[read.leaf].path[0] for read in reads}
    return Layout(
        path=task.path,
        plan=plan,
        columns=tuple(_column(task, read, certain=task.certain, maybe=maybe) for read in reads),
        mask=compile_mask(query, task.file.arrow_schema) if maybe else None,
        certain=task.certain.count,
        maybe=maybe.count,
        output=tuple(name for name in task.file.query.output.names if name in names),
    )


def _field(task: ScanTask, read: LeafReads) -> int:
    return next(i for i, (lo, hi) in enumerate(task.file.schema.field_leaves) if lo <= read.leaf < hi)


def _column(task: ScanTask, read: LeafReads, *, certain: RowSelection, maybe: RowSelection) -> _Column:
    if read.whole:
        first, stop = np.zeros(1, np.int64), np.array([task.num_rows], np.int64)
        pages: tuple[Range, ...] = ((read.chunk.start, read.chunk.end),)
        dictionary = None
    else:
        first, stop = read.first_row, read.stop_row
        pages = _runs(read.offset, read.size)
        coded = read.dictionary_pages < 0 or int(read.ordinal[0]) < read.dictionary_pages
        dictionary = (read.dictionary.start, read.dictionary.end) if read.dictionary and coded else None
    return _Column(
        name=task.file.schema.leaves[read.leaf].path[0],
        leaf=read.leaf,
        codec=read.codec,
        dictionary=dictionary,
        pages=pages,
        rows=int((stop - first).sum()),
        certain=_places(first, stop, certain if read.for_output else certain.head(0)),
        maybe=_places(first, stop, maybe),
    )


def _runs(offset: Rows, size: Rows) -> tuple[Range, ...]:
    """Pages whose bytes follow each other, as one range each."""
    breaks = np.flatnonzero(offset[1:] != (offset + size)[:-1]) + 1
    edges = [0, *breaks.tolist(), len(offset)]
    return tuple((int(offset[lo]), int(offset[hi - 1] + size[hi - 1])) for lo, hi in pairwise(edges))


def _places(first: Rows, stop: Rows, rows: RowSelection) -> Rows | slice:
    """Where selected rows of the row group are among the rows of some of its pages."""
    if not rows:
        return slice(0, 0)
    before = np.concatenate(([0], np.cumsum(stop - first)))
    page = np.searchsorted(stop, rows.starts, side="right")
    starts = before[page] + rows.starts - first[page]
    lengths = rows.stops - rows.starts
    if len(starts) == 1:
        return slice(int(starts[0]), int(starts[0] + lengths[0]))
    return np.concatenate([np.arange(at, at + n) for at, n in zip(starts, lengths, strict=True)])


def merge(ranges: Sequence[Range], *, gap: int = _GAP, longest: int = _LONGEST) -> list[Range]:
    """The requests for these ranges, ascending: neighbours in one, what is long in several of equal
    length."""
    merged: list[list[int]] = []
    for start, end in sorted(set(ranges)):
        if merged and start - merged[-1][1] <= gap:
            merged[-1][1] = max(merged[-1][1], end)
        else:
            merged.append([start, end])
    requests: list[Range] = []
    for start, end in merged:
        pieces = max(1, -(-(end - start) // longest))
        edges = [start + (end - start) * i // pieces for i in range(pieces + 1)]
        requests += list(pairwise(edges))
    return requests
