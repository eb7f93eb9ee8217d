"""An external sort: rows that do not fit into memory, sorted as runs on disk and merged.

Rows come file by file; as many as the memory allows are sorted and written as a run into a temporary
directory, and at the end the runs are merged, a few blocks of each at a time. The order is Arrow's: nulls
come last, NaN after all numbers, in either direction. The sort is stable, whatever the memory: rows that are
alike come out in the order in which they came.
"""

from __future__ import annotations

import contextlib
import itertools
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self, TypeAlias

import numpy as np
import pyarrow as pa

from accel import kernels
from accel.arrays import bools, mask, validity, whole
from accel.options import MIB

if TYPE_CHECKING:
    from accel.arrays import Bools

__all__ = ["RUN_BYTES", "SortKeys", "SortedRuns"]

SortKeys: TypeAlias = Sequence[tuple[str, str]]
"""Columns to sort by, each "ascending" or "descending"."""

RUN_BYTES: Final = 32 * MIB
"""Bytes of rows that are sorted in memory at once; sorting takes about two and a half times as much."""
_LEAST_BLOCK_ROWS: Final = 256
_BLOCK_ROWS: Final = 1 << 16


class SortedRuns:
    """Sorts rows. A context manager, which removes its files.

    Parameters
    ----------
    order : sequence of (str, str)
        The columns to sort by, and the direction of each. Where they are all that there are, rows that are
        equal come out once.
    run_bytes : int
        Bytes of rows that are sorted in memory at once.
    """

    def __init__(self, order: SortKeys, *, run_bytes: int = RUN_BYTES) -> None:
        self._order = list(order)
        self.run_bytes = run_bytes
        self._waiting: list[pa.Table] = []
        self._bytes = 0
        self._runs: list[Path] = []
        self._directory: tempfile.TemporaryDirectory[str] | None = None
        self.spilled = 0
        """Bytes that were written to disk."""
        self.num_rows = 0
        """Rows that come out."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Remove the files."""
        self._waiting, self._bytes, self._runs = [], 0, []
        directory, self._directory = self._directory, None
        if directory is not None:
            directory.cleanup()

    def add(self, rows: pa.Table) -> None:
        """Add rows, all of one schema. Rows in different calls that are equal all come out."""
        # What is sorted in small parts is merged in half the time that the whole takes to be sorted.
        ordered = rows.sort_by(self._order)
        if ordered.column_names == [name for name, _ in self._order]:
            ordered = _distinct(ordered.combine_chunks())
        self._waiting.append(ordered)
        self.num_rows += len(ordered)
        self._bytes += ordered.nbytes
        if self._bytes > self.run_bytes:
            self._spill()

    def reader(self) -> pa.RecordBatchReader | None:
        """Return all rows in order, in batches of bounded size; None where there are none. To be called once.

        The files have to stay until it is read to its end.
        """
        tables = self.sorted()
        first = next(tables, None)
        if first is None:
            return None
        batches = (batch for table in itertools.chain((first,), tables) for batch in table.to_batches())
        return pa.RecordBatchReader.from_batches(first.schema, batches)

    def sorted(self) -> Iterator[pa.Table]:
        """Yield all rows in order, in tables of bounded size. To be called once."""
        if not self._runs:
            if self._waiting:
                whole = self._sort_waiting()
                for start in range(0, max(1, len(whole)), _BLOCK_ROWS):
                    yield whole.slice(start, _BLOCK_ROWS)
            return
        if self._waiting:
            self._spill()
        with contextlib.ExitStack() as stack:
            # Not mapped: pages of mapped files count as memory of the process.
            files = [stack.enter_context(pa.OSFile(str(path), "rb")) for path in self._runs]
            runs = [_Run(pa.ipc.open_file(file), self._order) for file in files]
            while runs:
                # What follows in any run comes after the last row of the run that ends first; that run alone
                # may go on with equal rows.
                ends = pa.Table.from_batches([run.rows.slice(len(run.rows) - 1) for run in runs])
                first = kernels.sort_indices(ends, sort_keys=self._order)[0].as_py()
                (first_end,) = ends.slice(first, 1).combine_chunks().to_batches()
                parts = [run.take_until(first_end, equal=at <= first) for at, run in enumerate(runs)]
                yield pa.Table.from_batches(parts).sort_by(self._order)
                runs = [run for run in runs if run.fill()]

    def _sort_waiting(self) -> pa.Table:
        together = pa.concat_tables(self._waiting)
        self._waiting, self._bytes = [], 0
        return together.sort_by(self._order).combine_chunks()

    def _spill(self) -> None:
        table = self._sort_waiting()
        if self._directory is None:
            self._directory = tempfile.TemporaryDirectory(prefix="accel-sort-")
        path = Path(self._directory.name) / f"{len(self._runs)}.arrow"
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table, max_chunksize=self._block_rows(table))
        self._runs.append(path)
        self.spilled += path.stat().st_size

    def _block_rows(self, table: pa.Table) -> int:
        """Return the rows of a block, so that a block of each of many runs fits into memory."""
        row = max(1, table.nbytes // max(1, len(table)))
        return int(max(_LEAST_BLOCK_ROWS, min(_BLOCK_ROWS, self.run_bytes // 64 // row)))


class _Run:
    """A run on disk, of which some rows are in memory."""

    def __init__(self, file: pa.ipc.RecordBatchFileReader, order: SortKeys) -> None:
        self._file = file
        self._order = order
        self._next = 0
        self.rows: pa.RecordBatch = pa.RecordBatch.from_arrays(
            [pa.nulls(0, field.type) for field in file.schema], schema=file.schema
        )
        """The rows in memory."""
        self.fill()

    def fill(self) -> bool:
        """Have rows in memory; False where there are none any more."""
        if not len(self.rows) and self._next < self._file.num_record_batches:
            self.rows = self._file.get_batch(self._next)
            self._next += 1
        return bool(len(self.rows))

    def take_until(self, last: pa.RecordBatch, *, equal: bool) -> pa.RecordBatch:
        """Take the rows that come before one row, and those that are equal to it if `equal`."""
        before = np.zeros(len(self.rows), bool)
        alike = np.ones(len(self.rows), bool)
        for name, direction in self._order:
            mine, limit = self.rows.column(name), last.column(name)[0]
            before |= alike & _before(mine, limit, direction)
            alike &= _equal(mine, limit)
        count = int(np.count_nonzero(before | alike if equal else before))
        taken, self.rows = self.rows.slice(0, count), self.rows.slice(count)
        return taken


def _distinct(table: pa.Table) -> pa.Table:
    """Return the rows of a sorted table that differ from the one before."""
    if len(table) < 2:
        return table
    differs = np.zeros(len(table), bool)
    differs[0] = True
    for column in table.columns:
        array = whole(column)
        differs[1:] |= ~_equal(array[1:], array[:-1])
    return table if bool(differs.all()) else table.filter(bools(differs))


# Arrow sorts null after all values, and NaN after all numbers, in either direction; all of either are alike.


def _before(values: pa.Array, limit: pa.Scalar, direction: str) -> Bools:
    if not limit.is_valid:
        return validity(values)
    if pa.types.is_floating(values.type) and bool(np.isnan(limit.as_py())):
        return mask(kernels.invert(kernels.is_nan(values)))
    if direction == "ascending":
        return mask(kernels.less(values, limit))
    return mask(kernels.greater(values, limit))


def _equal(values: pa.Array, others: pa.Array | pa.Scalar) -> Bools:
    found = kernels.equal(values, others)
    if pa.types.is_floating(values.type):
        found = kernels.or_(found, kernels.and_(kernels.is_nan(values), kernels.is_nan(others)))
    if isinstance(others, pa.Scalar):
        return mask(found) if others.is_valid else ~validity(values)
    return mask(found) | (~validity(values) & ~validity(others))
