"""How segments of a catalog become one: their tables are joined without the files that do not count any
more."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from accel.catalog.describing import BOUNDS_ORDER
from accel.catalog.head import CatalogHead, Segment, Table
from accel.catalog.homes.home import CatalogHome
from accel.catalog.kinds.kind import CatalogIndex, TableRows, check_ordinals, file_column, with_file_column
from accel.catalog.kinds.registry import indexes_of
from accel.catalog.segments import SegmentReader, SegmentTables
from accel.catalog.sorted_runs import SortedRuns
from accel.options import MIB
from accel.runtime.threads import WORK

if TYPE_CHECKING:
    from accel.arrays import Int64s

__all__ = ["SEGMENT_FILES", "SegmentMerger", "mergeable"]

SEGMENT_FILES: Final = 20_000
"""Files of a segment, at most: the work of so many is lost where a builder is killed, and a merge has them in
memory."""
MERGED_BYTES: Final = 32 * MIB
"""Bytes of the tables `files`, as they are stored, that a merge makes one of: decoded they have to fit into
memory."""
_MERGED_ROWS: Final = 1 << 18
"""Rows of the table of an index that a merge reads at once."""


def mergeable(tables: Sequence[SegmentTables]) -> list[list[SegmentTables]]:
    """Return the segments of the same tables that are to be merged into one each, by their paths, as far as
    that changes something."""
    groups: list[list[SegmentTables]] = []
    for one in sorted(tables, key=lambda one: (sorted(one.segment.tables), one.segment.first_path)):
        together = [one, *(groups[-1] if groups else ())]
        files = sum(each.segment.num_live for each in together)
        nbytes = sum(each.segment.objects[Table.FILES].size for each in together)
        alike = all(each.segment.tables == one.segment.tables for each in together)
        if not groups or not alike or files > SEGMENT_FILES or nbytes > MERGED_BYTES:
            groups.append([])
        groups[-1].append(one)
    return [group for group in groups if len(group) > 1 or group[0].segment.dropped]


class SegmentMerger:
    """Writes one segment in the place of several. Used on the I/O loop.

    Parameters
    ----------
    home : CatalogHome
        Takes the segment.
    reader : callable
        Makes a reader of the tables of segments.
    run_bytes : int
        Bytes of the rows that are sorted in memory at once.
    """

    def __init__(self, home: CatalogHome, reader: Callable[[], SegmentReader], *, run_bytes: int) -> None:
        self._home = home
        self._reader = reader
        self._run_bytes = run_bytes

    async def merge(self, parts: Sequence[SegmentTables], head: CatalogHead) -> Segment | None:
        """Write a segment about the files of segments that count, numbered by path; None where no file
        does."""
        files = [await self._reader().whole_table(tables, Table.FILES) for tables in parts]
        live = [tables.live() for tables in parts]
        everything = pa.concat_tables(
            [table.filter(pa.array(own)) for table, own in zip(files, live, strict=True)]
        )
        if not everything.num_rows:
            return None
        order = everything.combine_chunks().column("path").to_pylist()
        by_path = np.array(sorted(range(len(order)), key=order.__getitem__), np.int64)
        ordinals = np.empty(len(order), np.int64)
        ordinals[by_path] = np.arange(len(order))
        # The new ordinal of each file of each segment; -1 for one that does not count.
        places = [np.full(len(own), -1, np.int64) for own in live]
        done = 0
        for own, moved in zip(live, places, strict=True):
            moved[own] = ordinals[done : done + int(own.sum())]
            done += int(own.sum())
        merged = {Table.FILES: TableRows.of(everything.take(pa.array(by_path)))}
        uncovered: dict[str, frozenset[int]] = {}
        bounds = [
            _renumbered(await self._reader().whole_table(tables, Table.BOUNDS), moved)
            for tables, moved in zip(parts, places, strict=True)
        ]
        together = await WORK.run(lambda: pa.concat_tables(bounds).sort_by(BOUNDS_ORDER))
        merged[Table.BOUNDS] = TableRows.of(together)
        with contextlib.ExitStack() as stack:
            for index in indexes_of(head.indexes):
                if index.table not in parts[0].segment.tables:
                    continue  # nor is it in the others: the files are to be described again
                runs = stack.enter_context(SortedRuns(index.order, run_bytes=self._run_bytes))
                rows, uncovered[index.table] = await self._merged_index(index, parts, places, runs)
                if rows is not None:
                    merged[index.table] = rows
            segment = await self._home.put_segment(merged, num_files=len(order), uncovered=uncovered)
        return segment.with_files(order, everything.column("schema_fingerprint").unique().to_pylist())

    async def _merged_index(
        self,
        index: CatalogIndex,
        parts: Sequence[SegmentTables],
        places: Sequence[Int64s],
        runs: SortedRuns,
    ) -> tuple[TableRows | None, frozenset[int]]:
        """Return the table of an index over the files of several segments, and the files that it does not
        cover.

        `places` are the new ordinals of the files of each segment.
        """
        missing: set[int] = set()
        whole: list[pa.Table] = []
        schema = None
        for tables, moved in zip(parts, places, strict=True):
            one = tables.segment.objects.get(index.table)
            reader = self._reader()
            # Segments may differ in the type of the column; the type of the first counts.
            own = None if one is None else reader.schema(tables, index.table)
            alike = own is not None and own.equals(schema or own)
            outside = moved if not alike else moved[~tables.segment.covered_by(index.table)]
            missing |= set(outside[outside >= 0].tolist())
            if one is None or not alike:
                continue
            schema = own
            step = _MERGED_ROWS if index.rows_apart else max(1, one.num_rows)
            for start in range(0, max(1, one.num_rows), step):
                part = await reader.rows_of_table(tables, index.table, start, min(start + step, one.num_rows))
                part = await WORK.run(index.renumbered, part, moved)
                if index.rows_apart:
                    await WORK.run(runs.add, part)
                else:
                    whole.append(part)
        if whole:
            return TableRows.of(await WORK.run(index.merged, whole)), frozenset(missing)
        rows = await WORK.run(runs.reader)
        return None if rows is None else TableRows(rows, runs.num_rows), frozenset(missing)


def _renumbered(bounds: pa.Table, places: Int64s) -> pa.Table:
    """Return the rows about files that count, by the ordinals that these have now; others have -1."""
    moved = places[check_ordinals(file_column(bounds), len(places))]
    return with_file_column(bounds.filter(pa.array(moved >= 0)), moved[moved >= 0])
