"""The tables of segments that lie in a database, read in pages."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np
import pyarrow as pa

from accel.catalog.describing import WHOLE_FILE, column_text
from accel.catalog.head import REBUILD, Segment, SegmentObject, Table, ordinals_of
from accel.catalog.homes.sql_pages import Layout, Page, Part, check_range, page_rows
from accel.catalog.intervals import Interval, required_intervals
from accel.catalog.segments import BOUND_COLUMNS, MatchingFiles
from accel.errors import IndexFormatError
from accel.metrics import Metrics
from accel.planning.selection import RowSelection
from accel.predicate.atoms import Bound
from accel.predicate.bind import bind
from accel.predicate.evaluate import evaluate
from accel.predicate.expr import Expr
from accel.ranges import Kind
from accel.runtime.threads import DATABASES

if TYPE_CHECKING:
    from accel.arrays import Int64s
    from accel.catalog.homes.sql_database import Database, Session

__all__ = ["DatabaseTables"]

T = TypeVar("T")
AT_ONCE: Final = 256
"""Pages that one statement returns at most."""


class DatabaseTables:
    """The `TableReader` of a catalog in a database.

    Parameters
    ----------
    database : Database
    metrics : Metrics
        Counts the statements as requests, and the bytes of pages.
    """

    def __init__(self, database: Database, *, metrics: Metrics) -> None:
        self._database = database
        self._metrics = metrics

    def schema(self, segment: Segment, table: str) -> pa.Schema:
        """Return the columns of a table; see `TableReader.schema`."""
        return _layout(segment.objects[table]).schema

    def inline_bytes(self, segment: Segment, table: str, column: str) -> int | None:
        """Return the bytes of a column that takes no request to read; see `TableReader.inline_bytes`."""
        return None

    async def read(
        self,
        segment: Segment,
        table: str,
        columns: Sequence[str],
        *,
        where: Expr | None = None,
        rows: RowSelection | None = None,
    ) -> tuple[pa.Table, int]:
        """Read columns of the rows that match; see `TableReader.read`."""
        one = segment.objects[table]
        layout = _layout(one)
        unknown = [name for name in columns if name not in layout.schema.names]
        if unknown:
            raise IndexFormatError(f"the table {table} of the catalog lacks the column {unknown[0]!r}")
        bound = None if where is None else bind(where, layout.schema)
        wanted = {*columns, *(() if bound is None else (column.path[0] for column in bound.columns))}
        parts = [at for at, part in enumerate(layout.parts) if wanted & set(part.columns)]
        if bound is not None and table == Table.BOUNDS:
            parts = [at for at in parts if _may_hold(layout.parts[at], bound)]

        def work(session: Session) -> tuple[pa.Table, int]:
            reading = _Reading(session, self._database, one, self._metrics)
            found = reading.rows(parts, layout, bound=bound, rows=rows)
            return found, reading.statements

        found, trips = await self._run(work)
        if bound is not None:
            arrays = {column.path: found.column(column.path[0]) for column in bound.columns}
            found = found.filter(pa.array(evaluate(bound, arrays, found.num_rows)))
        return found.select(list(columns)), trips

    def compares(self, segment: Segment, column: str) -> bool:
        """Return whether `matching` finds bounds of a column by their values; see `TableReader.compares`."""
        one = segment.objects.get(Table.BOUNDS)
        return one is not None and any(part.keyed and part.column == column for part in _layout(one).parts)

    async def matching(
        self, segment: Segment, bound: Bound, *, constant: frozenset[str]
    ) -> MatchingFiles | None:
        """Return the files that the home itself finds left; see `TableReader.matching`.

        Bounds of a column that a comparison limits are looked up by that comparison.
        """
        one = segment.objects.get(Table.BOUNDS)
        if one is None:
            return None
        layout = _layout(one)
        by_column = {part.column: at for at, part in enumerate(layout.parts) if part.keyed}
        lookups: list[tuple[str, int, Sequence[Interval]]] = []
        for ordinal, intervals in required_intervals(bound).items():
            column = bound.columns[ordinal]
            name = column_text(column.path)
            at = by_column.get(name)
            if at is None or column.path[0] in constant:
                continue
            if layout.parts[at].family == column.kind.family.group.value:
                lookups.append((name, at, intervals))
        if not lookups:
            return None

        def work(session: Session) -> MatchingFiles:
            reading = _Reading(session, self._database, one, self._metrics)
            may = np.ones(segment.num_files, bool)
            bounds: dict[str, pa.Table] = {}
            for name, at, intervals in lookups:
                part = layout.parts[at]
                pages = reading.in_intervals(at, part, intervals)
                rows = _joined([page_rows(page, part, layout.schema) for page in pages], part, layout.schema)
                named = rows.column("file").to_numpy()
                if len(named) and not 0 <= int(named.min()) <= int(named.max()) < len(may):
                    raise IndexFormatError("the catalog has bounds of files that it does not list")
                absent = ordinals_of(part.absent, limit=len(may))
                if part.num_rows + len(absent) != len(may):
                    raise IndexFormatError("the catalog lacks bounds of files", hint=REBUILD)
                here = np.zeros(len(may), bool)
                here[named] = True
                here[list(absent)] = True
                may &= here
                bounds[name] = rows.select(list(BOUND_COLUMNS))
            files = np.flatnonzero(may)
            left = {
                name: rows.filter(pa.array(may[rows.column("file").to_numpy()]))
                for name, rows in bounds.items()
            }
            return MatchingFiles(files, left, reading.statements)

        return await self._run(work)

    async def _run(self, work: Callable[[Session], T]) -> T:
        return await DATABASES.run(self._database.read, work)


class _Reading:
    """Reads pages of one object in a thread."""

    def __init__(self, session: Session, database: Database, one: SegmentObject, metrics: Metrics) -> None:
        self._session = session
        self._tables = database.tables
        self._name = one.name
        self._object = _row_of(one)
        self._metrics = metrics
        self.statements = 0

    def rows(
        self, parts: Sequence[int], layout: Layout, *, bound: Bound | None, rows: RowSelection | None
    ) -> pa.Table:
        """Return rows of the parts: those of `rows`, else those that `bound` may match, else all."""
        by_part: dict[int, list[Page]] = {}
        if rows is not None:
            for at in parts:
                by_part[at] = self.by_number(at, _pages_of(rows, layout.parts[at]))
        else:
            whole = list(parts)
            for at in parts:
                intervals = None if bound is None else _of_first_column(bound, layout.parts[at])
                if intervals is not None:
                    by_part[at] = self.in_intervals(at, layout.parts[at], intervals)
                    whole.remove(at)
            by_part |= self.whole_parts(whole, layout)
        tables = []
        for at in parts:
            part = layout.parts[at]
            table = _joined(
                [page_rows(page, part, layout.schema) for page in by_part[at]], part, layout.schema
            )
            if rows is not None:
                table = table.take(pa.array(_places(rows, by_part[at], part)))
            tables.append(table)
        return _side_by_side(tables, layout.schema)

    def whole_parts(self, parts: Sequence[int], layout: Layout) -> dict[int, list[Page]]:
        """Return all pages of some parts."""
        found: dict[int, list[Page]] = {at: [] for at in parts}
        last = (-1, -1)
        query = self._tables.of_parts(len(parts))
        while parts:
            pages = self._fetch(query, (self._object, *parts, *last, AT_ONCE))
            for page in pages:
                if page.part not in found:
                    raise _missing()
                found[page.part].append(page)
                last = page.part, page.number
            if len(pages) < AT_ONCE:
                break
        for at, pages in found.items():
            # The head may tell of more pages than could be listed.
            if len(pages) != layout.parts[at].num_pages or any(
                page.number != number for number, page in enumerate(pages)
            ):
                raise _missing()
        return found

    def by_number(self, part: int, numbers: Sequence[int]) -> list[Page]:
        """Return some pages of a part, in order."""
        found: list[Page] = []
        for start in range(0, len(numbers), AT_ONCE):
            some = numbers[start : start + AT_ONCE]
            found += self._fetch(self._tables.by_number(len(some)), (self._object, part, *some))
        found.sort(key=lambda page: page.number)
        if [page.number for page in found] != list(numbers):
            raise _missing()
        return found

    def in_intervals(self, at: int, part: Part, intervals: Sequence[Interval]) -> list[Page]:
        """Return the pages of a part that may hold values of intervals, in order."""
        found: dict[int, Page] = {}
        for interval in intervals:
            seen: list[Page] = []
            while True:
                after = seen[-1].number if seen else -1
                lower, upper = interval.lower, interval.upper
                place = self._object, at
                pages = self._fetch(
                    self._tables.in_range(),
                    (*place, lower, *place, upper, part.num_pages - 1, upper, lower, *place, after, AT_ONCE),
                )
                seen += pages
                if len(pages) < AT_ONCE:
                    break
            found |= {page.number: page for page in check_range(seen, part, interval)}
        return [found[number] for number in sorted(found)]

    def _fetch(self, statement: str, parameters: Sequence[Any]) -> list[Page]:
        pages = [Page.of_row(row) for row in self._session.fetch(statement, parameters)]
        self.statements += 1
        received = sum(len(page.content or b"") for page in pages)
        self._metrics.count_request(Kind.CATALOG, received)
        for page in pages:
            page.check(self._name)
        return pages


def _layout(one: SegmentObject) -> Layout:
    layout = Layout.decode(one.tail)
    layout.check_rows(one.num_rows)
    return layout


def _row_of(one: SegmentObject) -> int:
    """Return the row of the SQL table `objects`."""
    if one.etag is None or not one.etag.isdecimal():
        raise IndexFormatError(f"the catalog does not tell where the database has its object {one.name}")
    return int(one.etag)


def _missing() -> IndexFormatError:
    return IndexFormatError("a page of the catalog is missing from the database", hint=REBUILD)


def _may_hold(part: Part, bound: Bound) -> bool:
    """Return whether a part of `bounds` may hold rows that match, by its column and its row groups."""
    from accel.predicate.prune import prune
    from accel.predicate.value_bounds import range_bounds

    groups = (WHOLE_FILE, WHOLE_FILE) if part.whole else (0, 2**31 - 1)
    text = None if part.column is None else pa.scalar(part.column)
    claims: Mapping[tuple[str, ...], Any] = {
        ("column",): range_bounds(
            text, text, kind=pa.string(), num_values=part.num_rows, null_count=0, nan_count=0
        ),
        ("row_group",): range_bounds(
            *(pa.scalar(group, pa.int32()) for group in groups),
            kind=pa.int32(),
            num_values=part.num_rows,
            null_count=0,
            nan_count=0,
        ),
    }
    return bool(prune(bound, claims, 1).may_true[0])


def _of_first_column(bound: Bound, part: Part) -> Sequence[Interval] | None:
    """Return the intervals by which pages of a table are found; None where all are read."""
    if not part.keyed or part.column is not None:
        return None
    for ordinal, intervals in required_intervals(bound).items():
        if bound.columns[ordinal].path == part.columns[:1]:
            return intervals
    return None


def _pages_of(rows: RowSelection, part: Part) -> list[int]:
    numbers: set[int] = set()
    for start, stop in rows:
        numbers.update(range(start // part.page_rows, (stop - 1) // part.page_rows + 1))
    return sorted(numbers)


def _places(rows: RowSelection, pages: Sequence[Page], part: Part) -> Int64s:
    """Return where rows of a part are in some pages of it that are put together."""
    starts: dict[int, int] = {}
    total = 0
    for page in pages:
        starts[page.number] = total
        total += part.rows_of(page.number)
    wanted = np.concatenate([np.arange(start, stop) for start, stop in rows])
    firsts = np.array([starts[number] for number in (wanted // part.page_rows).tolist()], np.int64)
    places: Int64s = firsts + wanted % part.page_rows
    return places


def _joined(batches: Sequence[pa.RecordBatch], part: Part, schema: pa.Schema) -> pa.Table:
    return pa.Table.from_batches(batches, pa.schema([schema.field(name) for name in part.columns]))


def _side_by_side(tables: Sequence[pa.Table], schema: pa.Schema) -> pa.Table:
    """Join the parts of one table: end to end where they have the same columns, else side by side."""
    if not tables:
        return schema.empty_table()
    if all(table.schema.names == tables[0].schema.names for table in tables):
        return pa.concat_tables(tables)
    if len({table.num_rows for table in tables}) > 1:
        raise IndexFormatError("the parts of a table of the catalog differ in their rows")
    arrays = {name: table.column(name) for table in tables for name in table.schema.names}
    columns = [f for f in schema if f.name in arrays]
    return pa.Table.from_arrays([arrays[f.name] for f in columns], schema=pa.schema(columns))
