"""The tables of a catalog's segments, read from their home as far as a question needs them.

What is read stays with the snapshot in the cache: segments never change.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa

from accel import kernels
from accel.arrays import bytes_array
from accel.catalog.describing import BOUNDS_SCHEMA, FILES_SCHEMA, WHOLE_FILE, column_text
from accel.catalog.head import REBUILD, CatalogHead, Segment, Table
from accel.catalog.kinds.kind import CatalogQuestion, Hits, check_ordinals, file_column
from accel.catalog.kinds.registry import index_of_table
from accel.errors import IndexFormatError
from accel.format.domain import Bounds
from accel.indexes.stored_bounds import BOUND_FIELDS, StoredBounds
from accel.options import MIB
from accel.planning.selection import RowSelection
from accel.predicate.atoms import Bound, BoundColumn, Node
from accel.predicate.expr import And, Column, Compare, Expr, InList, Literal, Op
from accel.predicate.prune import Evidence, IndexEvidence, prune
from accel.runtime.tasks import Group
from accel.store.request_errors import raising_foremost

if TYPE_CHECKING:
    from accel.arrays import Bools, Int64s
    from accel.format.model import ParquetSchema

__all__ = [
    "BOUND_COLUMNS",
    "CatalogSnapshot",
    "ColumnBounds",
    "FileDirectory",
    "MatchingFiles",
    "SegmentReader",
    "SegmentTables",
    "TableReader",
]

T = TypeVar("T")
ColumnBounds: TypeAlias = Mapping[tuple[str, ...], Bounds]
"""Bounds of each file of a segment, by the path of the column."""
_FEW_FILES: Final = 64
"""Files whose metadata decides: bounds of further columns are not read for them."""
_PLACE_BYTES: Final = 200
"""About the memory of an entry of a dictionary of files."""
_COUNTS: Final = ("num_rows", "schema_fingerprint")
_MOST_METADATA: Final = 4 * MIB
"""Metadata of a segment that stays decoded in memory, in bytes; of more only the rows that are needed are
decoded."""


@dataclass(frozen=True, slots=True, eq=False)
class FileDirectory:
    """The files of a segment, in their order."""

    paths: Sequence[str]
    sizes: Sequence[int]
    etags: Sequence[str]
    spells_columns: bool
    """Whether a path may spell a partition column."""


@dataclass(frozen=True, slots=True, eq=False)
class _ColumnRows:
    """The rows of `bounds` about whole files, of one column."""

    files: Int64s
    stored: StoredBounds

    def decode(self, kind: pa.DataType, num_files: int) -> Bounds:
        """Return the bounds of all files, in the form of a type."""
        return self.stored.decode(kind).spread(self.files, num_files)


@dataclass(frozen=True, slots=True, eq=False)
class FileCounts:
    """Rows and schemas of the files of a segment."""

    num_rows: Int64s
    fingerprints: Sequence[str]


@dataclass(slots=True, eq=False)
class SegmentTables:
    """One segment, as far as it is read."""

    segment: Segment
    directory: FileDirectory | None = None
    counts: FileCounts | None = None
    columns: dict[str, _ColumnRows] = field(default_factory=dict)
    _decoded: dict[str, tuple[pa.DataType, Bounds]] = field(default_factory=dict)
    """The bounds of each column, for the type that was needed last."""
    first_metadata: dict[int, bytes] = field(default_factory=dict)
    """The metadata of the first file that counts, by its ordinal."""
    metadata: pa.ChunkedArray | None = None
    """The column of that name of the table `files`, of a segment that the head holds itself."""
    schemas: dict[str, tuple[ParquetSchema, pa.Schema, Mapping[str, bytes]]] = field(default_factory=dict)
    """The schemas of some files, and the texts of their footers, by their fingerprints."""

    @property
    def nbytes(self) -> int:
        """The memory that it takes, beside the head."""
        total = sum(rows.stored.nbytes for rows in self.columns.values())
        total += 64 * self.segment.num_files * len(self._decoded)
        total += 0 if self.metadata is None else int(self.metadata.nbytes)
        total += sum(map(len, self.first_metadata.values()))
        if self.directory is not None:
            total += sum(map(len, self.directory.paths)) + 200 * len(self.directory.paths)
        return total

    @property
    def first(self) -> int:
        """The ordinal of the first file that counts."""
        return self.segment.first_live

    def live(self) -> Bools:
        """Return whether each file counts. The list of files is read before."""
        live = np.ones(self.segment.num_files, bool)
        live[list(self.segment.dropped)] = False
        return live

    def may_match(
        self,
        bound: Bound,
        found: MatchingFiles | None = None,
        *,
        constant: frozenset[str],
        partition: ColumnBounds,
        index_evidence: IndexEvidence | None = None,
    ) -> Bools:
        """Return whether each file may hold rows that match, by what is read of its columns.

        Parameters
        ----------
        bound : Bound
            The predicate, over the columns of the data set.
        found : MatchingFiles, optional
            What `SegmentReader.find_bounds` returned: the files that the home left.
        constant : frozenset of str
            Top-level columns whose values do not come from the files.
        partition : mapping
            The bounds of each file, of columns that are `constant`, as far as its path spells them.
        index_evidence : callable, optional
            What indexes say of parts of the predicate.
        """
        bounds = {**self._bounds_read(bound, constant), **partition}
        if found is not None:
            return _judge(
                found,
                bound,
                bounds,
                num_files=self.segment.num_files,
                constant=constant,
                index_evidence=index_evidence,
            )
        evidence = prune(bound, bounds, self.segment.num_files, index_evidence=index_evidence)
        return evidence.may_true

    def all_match(self, bound: Bound, *, constant: frozenset[str], partition: ColumnBounds) -> Bools:
        """Return whether all rows of each file match, by what is read of its columns.

        Parameters are as for `may_match`.
        """
        bounds = {**self._bounds_read(bound, constant), **partition}
        evidence = prune(bound, bounds, self.segment.num_files)
        return ~(evidence.may_false | evidence.may_null)

    def _bounds_read(self, bound: Bound, constant: frozenset[str]) -> dict[tuple[str, ...], Bounds]:
        return {
            column.path: self.bounds_of(column)
            for column in bound.columns
            if column.path[0] not in constant and column_text(column.path) in self.columns
        }

    def bounds_of(self, column: BoundColumn) -> Bounds:
        """Return the bounds of each file, of a column that is read."""
        name = column_text(column.path)
        found = self._decoded.get(name)
        if found is None or found[0] != column.type:
            bounds = self.columns[name].decode(column.type, self.segment.num_files)
            found = self._decoded[name] = column.type, bounds
        return found[1]


@dataclass(slots=True, eq=False)
class CatalogSnapshot:
    """A catalog as one head has it."""

    head: CatalogHead
    etag: str | None
    head_bytes: int
    checked_at: float
    """When the home was queried for it (monotonic clock)."""
    tables: tuple[SegmentTables, ...]
    file_state: object = None
    """Of a home in a file, what differs once that was written to or replaced."""
    _ordinals: dict[str, tuple[SegmentTables, int]] | None = None

    @classmethod
    def of(
        cls, head: CatalogHead, *, etag: str | None, head_bytes: int, checked_at: float
    ) -> CatalogSnapshot:
        """Return a snapshot of which nothing but the head is read."""
        tables = tuple(SegmentTables(segment) for segment in head.segments)
        return cls(head, etag, head_bytes, checked_at, tables)

    @property
    def nbytes(self) -> int:
        """The memory that it takes."""
        places = 0 if self._ordinals is None else _PLACE_BYTES * len(self._ordinals)
        return 1024 + self.head_bytes + places + sum(tables.nbytes for tables in self.tables)

    def ordinals(self) -> Mapping[str, tuple[SegmentTables, int]]:
        """Return the segment and the ordinal of each file that counts, by path. The lists of files are loaded
        before."""
        if self._ordinals is None:
            self._ordinals = {}
            for tables in self.tables:
                if tables.directory is None:
                    raise TypeError("the directory of a segment is read first")
                paths, live = tables.directory.paths, tables.live().tolist()
                self._ordinals |= {
                    path: (tables, at)
                    for at, (path, counts) in enumerate(zip(paths, live, strict=True))
                    if counts
                }
        return self._ordinals


@dataclass(frozen=True, slots=True, eq=False)
class MatchingFiles:
    """The files of a segment that are left where a home compares bounds by itself."""

    files: Int64s
    """Their ordinals, ascending."""
    bounds: Mapping[str, pa.Table]
    """The rows of `bounds` about them as whole files, by column; each has the columns of `BOUND_COLUMNS`."""
    round_trips: int
    """The dependent waves of requests that it took."""


class TableReader(Protocol):
    """What reads rows of the tables of segments, as a home has them. Used on the I/O loop."""

    async def read(
        self,
        segment: Segment,
        table: str,
        columns: Sequence[str],
        *,
        where: Expr | None = None,
        rows: RowSelection | None = None,
    ) -> tuple[pa.Table, int]:
        """Read columns of the rows that match, and of no others, in the order of the table.

        Parameters
        ----------
        segment : Segment
        table : str
            The name by which the segment has it.
        columns : sequence of str
        where : Expr, optional
            Over the columns of the table.
        rows : RowSelection, optional
            The places of the rows in the table; not together with `where`.

        Returns
        -------
        table : pyarrow.Table
        round_trips : int
            The dependent waves of requests that it took.

        Raises
        ------
        IndexFormatError
            What is there is not what the head says.
        StoreError
            The home did not answer.
        """
        ...

    def schema(self, segment: Segment, table: str) -> pa.Schema:
        """Return the columns of a table. Sends no request."""
        ...

    def inline_bytes(self, segment: Segment, table: str, column: str) -> int | None:
        """Return the bytes of a column that it takes no request to read; None where it takes one."""
        ...

    def compares(self, segment: Segment, column: str) -> bool:
        """Return whether `matching` looks for bounds of a column by their values: then they are not read
        ahead."""
        ...

    async def matching(
        self, segment: Segment, bound: Bound, *, constant: frozenset[str]
    ) -> MatchingFiles | None:
        """Return the files that the home itself finds left; None where it compares no bounds.

        Every file that may match is among them, and others may be.

        Parameters
        ----------
        segment : Segment
        bound : Bound
            The predicate, over the columns of the data set.
        constant : frozenset of str
            Top-level columns whose values do not come from the files.
        """
        ...


class SegmentReader:
    """Reads what one scan asks of segments. Used on the I/O loop.

    Parameters
    ----------
    rows : TableReader
        Reads rows of their tables.
    """

    def __init__(self, rows: TableReader) -> None:
        self._rows = rows
        self.round_trips = 0
        """The dependent waves of requests so far."""

    async def side_by_side(
        self, works: Sequence[Callable[[SegmentReader], Coroutine[Any, Any, T]]]
    ) -> list[T]:
        """Do several things at the same time, each with a reader of its own; the longest counts for the round
        trips."""
        readers = [SegmentReader(self._rows) for _ in works]
        with raising_foremost():
            async with Group() as group:
                tasks = [group.create_task(work(reader)) for work, reader in zip(works, readers, strict=True)]
        self.round_trips += max((reader.round_trips for reader in readers), default=0)
        return [task.result() for task in tasks]

    async def load_first(
        self, snapshot: CatalogSnapshot, names: Iterable[str], *, counts: bool = False
    ) -> None:
        """Load in one wave what a question is likely to need of all segments: the lists of files, the bounds
        of some columns, the metadata of the first file of each, and, where they are wanted, the numbers of
        rows."""
        works: list[Callable[[SegmentReader], Coroutine[Any, Any, object]]] = []
        for tables in snapshot.tables:
            ahead = [name for name in names if not self._rows.compares(tables.segment, name)]
            works.append(partial(SegmentReader.load_directory, tables=tables))
            works.append(partial(SegmentReader.load_bounds, tables=tables, names=ahead))
            works.append(partial(SegmentReader.metadata, tables=tables, files=[tables.first]))
            if counts:
                works.append(partial(SegmentReader.load_counts, tables=tables))
        await self.side_by_side(works)

    async def load_directory(self, tables: SegmentTables) -> FileDirectory:
        """Read which files a segment is about."""
        found = tables.directory
        if found is None:
            table = await self._read(tables.segment, Table.FILES, ["path", "size", "etag"])
            if table.num_rows != tables.segment.num_files:
                raise IndexFormatError("the catalog lists other files than its head says", hint=REBUILD)
            paths, sizes, etags = (column.to_pylist() for column in table.columns)
            found = tables.directory = FileDirectory(paths, sizes, etags, any("=" in path for path in paths))
        return found

    async def load_counts(self, tables: SegmentTables) -> FileCounts:
        """Read how many rows each file of a segment has, and which files have the same columns."""
        found = tables.counts
        if found is None:
            rows, schemas = (await self.read_columns(tables, Table.FILES, _COUNTS)).columns
            numbers = np.array(rows.to_pylist(), np.int64)
            found = tables.counts = FileCounts(numbers, schemas.to_pylist())
        return found

    async def load_bounds(self, tables: SegmentTables, names: Iterable[str]) -> None:
        """Read the bounds of some columns, by `column_text`, as far as they are not read."""
        missing = sorted(set(names) - tables.columns.keys())
        if not missing or Table.BOUNDS not in tables.segment.objects:
            return
        listed = InList(Column(("column",)), tuple(missing))
        where = And((listed, Compare(Op.EQ, Column(("row_group",)), Literal(WHOLE_FILE))))
        table = await self._read(tables.segment, Table.BOUNDS, BOUND_COLUMNS, where=where)
        for name in missing:
            mine = kernels.equal(table.column("column"), bytes_array([name.encode()], pa.string())[0])
            tables.columns[name] = _column_rows(kernels.filter(table, mine), tables.segment.num_files)

    async def metadata(self, tables: SegmentTables, files: Sequence[int]) -> Mapping[int, bytes]:
        """Read the metadata of some files, by their ordinals."""
        if not files:
            return {}
        found = tables.metadata
        inline = self._rows.inline_bytes(tables.segment, Table.FILES, "metadata")
        if found is None and inline is not None and inline <= _MOST_METADATA:
            # It takes no request: it is decoded once for all scans.
            found = (await self._read(tables.segment, Table.FILES, ["metadata"])).column(0)
            tables.metadata = found if found.nbytes <= _MOST_METADATA else None
        if found is not None:
            return {at: found[at].as_py() for at in files}
        # The first file of a scan is needed for every question.
        known = tables.first_metadata
        missing = [at for at in files if at not in known]
        if not missing:
            return {at: known[at] for at in files}
        rows = RowSelection.of([(at, at + 1) for at in missing])
        table = await self._read(tables.segment, Table.FILES, ["metadata"], rows=rows)
        known = {**known, **dict(zip(missing, table.column(0).to_pylist(), strict=True))}
        if tables.first in known:
            tables.first_metadata = {tables.first: known[tables.first]}
        return {at: known[at] for at in files}

    async def look_up(self, tables: SegmentTables, question: CatalogQuestion) -> Mapping[str, Hits]:
        """Ask the indexes of a segment; returns what those say that can answer, by table."""
        segment = tables.segment
        lookups = []
        for name in sorted(segment.objects):
            index = index_of_table(name)
            lookup = None if index is None else index.ask(question, self._rows.schema(segment, name))
            if lookup is not None:
                lookups.append((name, lookup))
        works: list[Callable[[SegmentReader], Coroutine[Any, Any, pa.Table]]] = [
            partial(
                SegmentReader._read,
                segment=segment,
                table=name,
                columns=lookup.columns,
                where=lookup.where,
            )
            for name, lookup in lookups
        ]
        found = await self.side_by_side(works)
        return {
            name: lookup.answer(table, segment.covered_by(name))
            for table, (name, lookup) in zip(found, lookups, strict=True)
        }

    async def find_bounds(
        self, tables: SegmentTables, bound: Bound, *, constant: frozenset[str]
    ) -> MatchingFiles | None:
        """Read what `SegmentTables.may_match` needs: the bounds of the columns, or the files that the home
        leaves by comparing them itself.

        Parameters
        ----------
        tables : SegmentTables
        bound : Bound
            The predicate, over the columns of the data set.
        constant : frozenset of str
            Top-level columns whose values do not come from the files.
        """
        names = {column_text(column.path) for column in bound.columns if column.path[0] not in constant}
        if names <= tables.columns.keys():
            return None
        found = await self._rows.matching(tables.segment, bound, constant=constant)
        if found is None:
            await self.load_bounds(tables, names)
            return None
        self.round_trips += found.round_trips
        if len(found.files) > _FEW_FILES:
            await self.load_bounds(tables, names - found.bounds.keys())
        return found

    async def read_columns(self, tables: SegmentTables, table: str, columns: Sequence[str]) -> pa.Table:
        """Read all rows of some columns of a table."""
        return await self._read(tables.segment, table, columns)

    async def whole_table(self, tables: SegmentTables, table: str) -> pa.Table:
        """Read all rows and columns of a table."""
        schema = _SCHEMAS.get(table)
        names = self._rows.schema(tables.segment, table).names if schema is None else schema.names
        found = await self._read(tables.segment, table, names)
        return found if schema is None else found.cast(schema)

    def schema(self, tables: SegmentTables, table: str) -> pa.Schema:
        """Return the columns of a table. Sends no request."""
        return self._rows.schema(tables.segment, table)

    async def rows_of_table(self, tables: SegmentTables, table: str, start: int, stop: int) -> pa.Table:
        """Read some rows of a table, and all columns."""
        names = self.schema(tables, table).names
        if start == stop:
            return (await self._read(tables.segment, table, names)).slice(0, 0)
        rows = RowSelection.of([(start, stop)])
        return await self._read(tables.segment, table, names, rows=rows)

    async def _read(
        self,
        segment: Segment,
        table: str,
        columns: Sequence[str],
        *,
        where: Expr | None = None,
        rows: RowSelection | None = None,
    ) -> pa.Table:
        found, trips = await self._rows.read(segment, table, columns, where=where, rows=rows)
        self.round_trips += trips
        return found


BOUND_COLUMNS: Final = ("column", "file", *(known.name for known in BOUND_FIELDS))


_SCHEMAS: Final = {Table.FILES: FILES_SCHEMA, Table.BOUNDS: BOUNDS_SCHEMA}


def _judge(
    found: MatchingFiles,
    bound: Bound,
    others: ColumnBounds,
    *,
    num_files: int,
    constant: frozenset[str],
    index_evidence: IndexEvidence | None,
) -> Bools:
    """Return whether each file may match, of those that a home left; `others` are bounds of all files."""
    n = len(found.files)
    bounds = {path: one.take(found.files) for path, one in others.items()}
    for column in bound.columns:
        table = found.bounds.get(column_text(column.path))
        if column.path[0] not in constant and table is not None:
            rows = _column_rows(table, num_files)
            places = np.searchsorted(found.files, rows.files)
            bounds[column.path] = replace(rows, files=places).decode(column.type, n)

    def evidence_of_left(node: Node) -> Evidence | None:
        evidence = None if index_evidence is None else index_evidence(node)
        return None if evidence is None else evidence.take(found.files)

    may = np.zeros(num_files, bool)
    may[found.files] = prune(bound, bounds, n, index_evidence=evidence_of_left).may_true
    return may


def _column_rows(table: pa.Table, num_files: int) -> _ColumnRows:
    files = check_ordinals(file_column(table), num_files)
    return _ColumnRows(files, StoredBounds.of_table(table))
