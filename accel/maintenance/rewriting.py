"""Rewrite the rows of some files as others: in an order, laid out anew, in bounded memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from accel.catalog.sorted_runs import SortedRuns
from accel.maintenance.layout import FileCutter, Layout, OpenFile, RowFacts, WrittenFile
from accel.maintenance.ordering import Ordering
from accel.options import Options
from accel.writing.storable import plain_schema, storable
from accel.writing.stored_types import StoredTypes

__all__ = ["Rewrite"]

_RUN_SHARE = 4
"""A sort takes some times the memory of its rows: this share of `memory_limit` is for these."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Rewrite:
    """What becomes of rows. It pickles, so that workers can do it."""

    stored: StoredTypes
    """The columns of the table, and how they are stored."""
    ordering: Ordering
    layout: Layout
    options: Options

    def plain(self, batch: pa.RecordBatch) -> pa.Table:
        """Return rows in types that can be sorted and written."""
        return storable(pa.Table.from_arrays(batch.columns, schema=self.stored.schema), dictionaries=False)

    def plain_schema(self) -> pa.Schema:
        """Return the schema of `plain`."""
        return plain_schema(self.stored.schema)

    def of_columns(self, names: Sequence[str]) -> Rewrite:
        """Return what becomes of some of the columns."""
        return replace(self, stored=self.stored.of_columns(names))

    def write(
        self,
        tables: Iterable[pa.Table],
        open_file: OpenFile,
        *,
        name: Callable[[int], str],
        note: Callable[[str, int], None],
        complete: Callable[[WrittenFile], None] | None = None,
        written: Sequence[WrittenFile] = (),
        skip: int = 0,
    ) -> list[WrittenFile]:
        """Write rows, as `plain` returns them, to files.

        Parameters
        ----------
        tables : iterable of pyarrow.Table
        open_file, name : callable
            As for `FileCutter`.
        note : callable
            Called with "read" or "write" and a number of rows.
        complete, written
            As for `FileCutter`.
        skip : int
            The rows, in their order, that are in files already.
        """
        facts = RowFacts(self.layout.blooms)
        with self._sorter() as sorter:
            rows = self._in_order(tables, sorter, facts, note) if self.ordering else _noted(tables, note)
            rows = _behind(rows, skip) if skip else rows
            begun = next(rows, None)  # everything is read by now, if it is sorted
            with FileCutter(
                self.layout, open_file, name=name, facts=facts, stored=self.stored, options=self.options,
                written=written, complete=complete,
            ) as cutter:  # fmt: skip
                while begun is not None:
                    cutter.add(begun)
                    note("write", len(begun))
                    begun = next(rows, None)
                return cutter.finish(self.plain_schema())

    def _sorter(self) -> SortedRuns:
        directions: Sequence[str] = self.ordering.directions
        # By place, as names may be there twice: the keys, then the columns of the rows.
        order = [(str(at), direction) for at, direction in enumerate(directions)]
        return SortedRuns(order, run_bytes=self.options.memory_limit // _RUN_SHARE)

    def _in_order(
        self,
        tables: Iterable[pa.Table],
        sorter: SortedRuns,
        facts: RowFacts,
        note: Callable[[str, int], None],
    ) -> Iterator[pa.Table]:
        schema = None
        for table in tables:
            keys, columns = self.ordering.keys(table)
            facts.add(table, columns)
            schema = schema or table.schema
            both = [*keys.columns, *table.columns]
            sorter.add(pa.Table.from_arrays(both, names=[str(at) for at in range(len(both))]))
            note("read", len(table))
        num_keys = len(self.ordering.directions)
        for ordered in sorter.sorted():
            yield pa.Table.from_arrays(ordered.columns[num_keys:], schema=schema)


def _noted(tables: Iterable[pa.Table], note: Callable[[str, int], None]) -> Iterator[pa.Table]:
    for table in tables:
        note("read", len(table))
        yield table


def _behind(tables: Iterator[pa.Table], skip: int) -> Iterator[pa.Table]:
    """Yield the rows behind the first ones."""
    for table in tables:
        if len(table) > skip:
            yield table.slice(skip)
        skip = max(0, skip - len(table))
