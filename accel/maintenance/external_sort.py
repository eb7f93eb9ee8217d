"""Sort rows that do not fit into memory: sorted runs in a temporary directory, merged block by block."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from accel.arrays import Int64s

__all__ = ["RowSorter", "count_before", "sort_positions"]

_LEAST_BLOCK_ROWS: Final = 256
_BLOCK_ROWS: Final = 1 << 16
_BLOCKS: Final = 64
"""Blocks that the rows of one run make: a block of each of so many runs fits into memory together."""


def sort_positions(keys: pa.Table, directions: Sequence[str]) -> pa.Array:
    """Return the positions of rows in the order of their keys, nulls last. The sort is stable."""
    order = list(zip(keys.column_names, directions, strict=True))
    return pc.sort_indices(keys, sort_keys=order)


def count_before(limits: pa.Table, keys: pa.Table, directions: Sequence[str]) -> Int64s:
    """Return for each row of `keys` how many rows of `limits` do not come after it."""
    together = pa.concat_tables([limits, keys])
    order = np.asarray(sort_positions(together, directions), np.int64)
    is_limit = order < len(limits)
    counts = np.cumsum(is_limit)
    found = np.empty(len(keys), np.int64)
    found[order[~is_limit] - len(limits)] = counts[~is_limit]
    return found


class RowSorter:
    """Sorts rows by the keys that come with them. A context manager, which removes its files.

    Parameters
    ----------
    directions : sequence of str
        "ascending" or "descending" for each key.
    run_bytes : int
        Bytes of rows that are sorted in memory at once.
    """

    def __init__(self, directions: Sequence[str], *, run_bytes: int) -> None:
        self._directions = tuple(directions)
        self._run_bytes = run_bytes
        self._waiting: list[pa.Table] = []
        self._bytes = 0
        self._runs: list[Path] = []
        self._schema: pa.Schema | None = None
        self._directory: tempfile.TemporaryDirectory[str] | None = None
        self.spilled = 0
        """Bytes that were written to disk."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._waiting, self._runs = [], []
        directory, self._directory = self._directory, None
        if directory is not None:
            directory.cleanup()

    def add(self, rows: pa.Table, keys: pa.Table) -> None:
        """Add rows, all of one schema without dictionaries, and their keys."""
        self._schema = self._schema or rows.schema
        # By place, as names may be there twice.
        columns = [*keys.columns, *rows.columns]
        together = pa.Table.from_arrays(columns, names=[str(at) for at in range(len(columns))])
        self._waiting.append(together)
        self._bytes += together.nbytes
        if self._bytes > self._run_bytes:
            self._spill()

    def sorted(self) -> Iterator[pa.Table]:
        """Yield all rows in order, without the keys, in tables of bounded size. To be called once."""
        if not self._runs:
            if self._waiting:
                whole = self._sort_waiting()
                for start in range(0, len(whole), _BLOCK_ROWS):
                    yield self._rows(whole.slice(start, _BLOCK_ROWS))
            return
        if self._waiting:
            self._spill()
        with contextlib.ExitStack() as stack:
            files = [stack.enter_context(pa.memory_map(str(path))) for path in self._runs]
            runs = [_Run(pa.ipc.open_file(file)) for file in files]
            runs = [run for run in runs if run.fill()]
            while runs:
                # What follows in any run comes after the last row of the run that ends first.
                ends = pa.concat_tables([self._keys(run.rows.slice(len(run.rows) - 1)) for run in runs])
                first = sort_positions(ends, self._directions)[0].as_py()
                end = ends.slice(first, 1)
                parts = [run.take(self._count(run.rows, end)) for run in runs]
                yield self._rows(self._sort(pa.concat_tables(parts)))
                runs = [run for run in runs if run.fill()]

    def _keys(self, together: pa.Table) -> pa.Table:
        return together.select(range(len(self._directions)))

    def _rows(self, together: pa.Table) -> pa.Table:
        return pa.Table.from_arrays(together.columns[len(self._directions) :], schema=self._schema)

    def _sort(self, together: pa.Table) -> pa.Table:
        return together.take(sort_positions(self._keys(together), self._directions))

    def _count(self, rows: pa.Table, end: pa.Table) -> int:
        """The rows, which are in order, that do not come after one row."""
        keys = self._keys(rows)
        low, high = 0, len(rows)
        while low < high:
            middle = (low + high) // 2
            pair = pa.concat_tables([keys.slice(middle, 1), end])
            if sort_positions(pair, self._directions)[0].as_py() == 0:
                low = middle + 1
            else:
                high = middle
        return low

    def _sort_waiting(self) -> pa.Table:
        together = self._sort(pa.concat_tables(self._waiting))
        self._waiting, self._bytes = [], 0
        return together

    def _spill(self) -> None:
        table = self._sort_waiting()
        if self._directory is None:
            self._directory = tempfile.TemporaryDirectory(prefix="accel-sort-")
        path = Path(self._directory.name) / f"{len(self._runs)}.arrow"
        row = max(1, table.nbytes // max(1, len(table)))
        block = max(_LEAST_BLOCK_ROWS, min(_BLOCK_ROWS, self._run_bytes // _BLOCKS // row))
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table.combine_chunks(), max_chunksize=block)
        self._runs.append(path)
        self.spilled += path.stat().st_size


class _Run:
    """A run on disk, of which one block is at hand."""

    def __init__(self, file: pa.ipc.RecordBatchFileReader) -> None:
        self._file = file
        self._next = 0
        self.rows: pa.Table = file.schema.empty_table()

    def fill(self) -> bool:
        """Have rows at hand; False where there are none any more."""
        while not len(self.rows) and self._next < self._file.num_record_batches:
            self.rows = pa.Table.from_batches([self._file.get_batch(self._next)])
            self._next += 1
        return bool(len(self.rows))

    def take(self, count: int) -> pa.Table:
        """Take the first rows."""
        taken, self.rows = self.rows.slice(0, count), self.rows.slice(count)
        return taken
