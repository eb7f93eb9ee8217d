"""The protocol of an index of the catalog: a kind, such as `keys`, over columns.

Each index has one table in every segment. A builder collects it of the files of a segment; a merge renumbers
the files in it; a scan reads the rows of it that bear on the predicate, and what these say of the files are
its `Hits`. Building, merging, looking up and verifying go through this protocol, and know no kind by name
(`kinds` is the registry).
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import pyarrow as pa

from accel.arrays import integers
from accel.catalog.describing import column_text, paths_of_text
from accel.catalog.sorted_runs import SortedRuns
from accel.errors import AccelError, IndexFormatError
from accel.indexes.kind import IndexKind
from accel.indexes.question import LeafQuestion, question_of
from accel.metrics import Metrics
from accel.planning.handle import FileHandle
from accel.planning.selection import RowSelection
from accel.predicate.atoms import Bound, Node, column_atoms
from accel.predicate.bind import resolve, settled
from accel.predicate.expr import Expr, column_named, column_tests, quoted_path
from accel.predicate.prune import Evidence

if TYPE_CHECKING:
    from accel.arrays import Bools, Int64s

__all__ = [
    "CatalogIndex",
    "CatalogQuestion",
    "FileRowsBuilder",
    "Hits",
    "IndexTableBuilder",
    "Lookup",
    "RowHits",
    "RowwiseIndex",
    "TableEncoding",
    "TableRows",
    "check_ordinals",
    "evidence_of",
    "file_column",
    "path_named",
    "rows_of",
    "with_file_column",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableEncoding:
    """How the Parquet file of a table is written."""

    page_rows: int
    use_dictionary: bool | Sequence[str] = False
    column_encoding: Mapping[str, str] = field(default_factory=dict)
    write_statistics: bool | Sequence[str] = True
    """The columns that have bounds, which the head holds for each page."""


def path_named(name: str) -> tuple[str, ...]:
    """Return the path of a column as a caller names it: dots are between its names, as far as these are not
    in double quotes."""
    if not isinstance(name, str):
        raise TypeError(f"a column is named by a text, not by {name!r:.80}")
    return quoted_path(name) or column_named(name).path


# -- asking ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class CatalogQuestion:
    """A predicate, as it is passed to indexes."""

    bound: Bound
    """It over the columns of the data set."""
    paths: Mapping[tuple[str, ...], int]
    """The columns of `bound` whose values come from the files: the place in `bound.columns` by path."""
    tests: Mapping[tuple[str, ...], Sequence[Expr]]
    """The tests of each of these columns that every matching row passes."""

    @classmethod
    def of(
        cls,
        where: Expr,
        bound: Bound,
        *,
        data_set: pa.Schema,
        constant: frozenset[str],
        names: Sequence[tuple[str, ...]] | None = None,
    ) -> CatalogQuestion:
        """Make it of a predicate and what it is bound to.

        `constant` are the top-level columns whose values do not come from the files, `names` what the data
        set calls the columns of `bound`, where the files call them otherwise.
        """
        stored = {} if names is None else dict(zip(names, (one.path for one in bound.columns), strict=True))
        paths = {column.path: at for at, column in enumerate(bound.columns) if column.path[0] not in constant}
        tests: dict[tuple[str, ...], list[Expr]] = {}
        for column, test in column_tests(settled(where, data_set)):
            try:
                path = resolve(column, data_set).path
                path = stored.get(path, path)
            except AccelError:
                continue
            if path in paths:
                tests.setdefault(path, []).append(test)
        return cls(bound, paths, tests)

    def type_of(self, path: tuple[str, ...]) -> pa.DataType:
        """Return the type of one of `paths` in the data set."""
        return self.bound.columns[self.paths[path]].type


@dataclass(frozen=True, slots=True, eq=False)
class RowHits:
    """The rows of a file that may match."""

    groups: Mapping[int, RowSelection]
    """By row group; those that are not named hold none."""
    pages_dropped: int = 0


class Hits:
    """What the table of one index says of the files of a segment. An index has those of the methods that it
    can answer."""

    def may_match(self) -> Bools | None:
        """Return whether each file may hold rows that match; None where the index cannot say."""
        return None

    def evidence(self, node: Node) -> Evidence | None:
        """Return the outcomes that a part of the bound predicate may have in each file; None where the index
        cannot say."""
        return None

    def rows(self, file: int, handle: FileHandle) -> RowHits | None:
        """Return the rows of a file that may match; None where the table says nothing of them.

        Raises
        ------
        IndexFormatError
            The file does not have such rows.
        """
        return None


@dataclass(frozen=True, slots=True, eq=False)
class Lookup:
    """What a question needs of the table of an index."""

    columns: Sequence[str]
    where: Expr | None
    """Which rows of the table; None for all."""
    answer: Callable[[pa.Table, Bools], Hits]
    """Makes hits of these rows, and of whether the table covers each file. Raises IndexFormatError where rows
    are damaged."""


def evidence_of(hits: Sequence[Hits], node: Node) -> Evidence | None:
    """Return what several indexes together say of a part of the bound predicate."""
    total: Evidence | None = None
    for one in hits:
        found = one.evidence(node)
        if found is not None:
            total = found if total is None else total.meet(found)
    return total


def rows_of(
    hits: Mapping[str, Hits], file: int, handle: FileHandle, *, metrics: Metrics
) -> Mapping[int, RowSelection] | None:
    """Return the rows of a file that may match by all indexes, by row group; None where no index says.

    `metrics` counts what each rules out, by table. Raises as `Hits.rows` does.
    """
    total: Mapping[int, RowSelection] | None = None
    for table, one in hits.items():
        found = one.rows(file, handle)
        if found is None:
            continue
        sizes = handle.group_rows.tolist()
        before = total
        if before is None:
            before = {group: RowSelection.of([(0, size)]) for group, size in enumerate(sizes) if size}
        both = {
            group: found.groups[group].intersect(rows)
            for group, rows in before.items()
            if group in found.groups
        }
        total = {group: rows for group, rows in sorted(both.items()) if rows}
        metrics.count_dropped(
            table,
            row_groups=len(before) - len(total),
            pages=found.pages_dropped,
            rows=sum(rows.count for rows in before.values()) - sum(rows.count for rows in total.values()),
        )
    return total


# -- building ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class TableRows:
    """The rows of a table of a segment, in its order."""

    rows: pa.Table | pa.RecordBatchReader
    """A reader where they may not fit into memory."""
    num_rows: int
    """How many its builder has made. The head says so, beside how many were written: a table that lacks some
    is noticed."""

    @classmethod
    def of(cls, table: pa.Table) -> TableRows:
        """Return the rows of a table in memory."""
        return cls(table, len(table))

    def in_memory(self) -> pa.Table:
        """Return all rows in memory; those of a reader are taken from it."""
        return self.rows if isinstance(self.rows, pa.Table) else self.rows.read_all()

    def batches(self) -> pa.RecordBatchReader:
        """Return the rows in batches."""
        return self.rows.to_reader() if isinstance(self.rows, pa.Table) else self.rows

    def check_written(self, written: int, table: str) -> None:
        """Raise AccelError unless so many rows have been written."""
        if written != self.num_rows:
            raise AccelError(
                f"{written} of {self.num_rows} rows of the table {table!r} of an index were written",
                hint="build it again",
            )


class IndexTableBuilder(abc.ABC):
    """Collects the table of an index for one segment."""

    def __init__(self) -> None:
        self.uncovered: set[int] = set()
        """The ordinals of files of which the table says nothing."""

    def limit_memory(self, run_bytes: int) -> None:
        """Sort no more than so many bytes of rows in memory at once, where the kind sorts rows. Called before
        the first file."""

    @abc.abstractmethod
    def accepts(self, handle: FileHandle) -> bool:
        """Return whether a file can be covered."""

    @abc.abstractmethod
    def add(self, file: int, handle: FileHandle, values: Sequence[pa.ChunkedArray]) -> bool:
        """Add a file that was accepted.

        Parameters
        ----------
        file : int
            Its ordinal; files come in ascending order.
        handle : FileHandle
        values : sequence of pyarrow.ChunkedArray
            The values of each of the index's columns, in the order of the rows, without dictionaries.

        Returns
        -------
        bool
            Whether the table covers it.
        """

    @abc.abstractmethod
    def finish(self) -> TableRows | None:
        """Return the table in its order; None where it has no row."""

    def close(self) -> None:
        """Release what the builder has on disk; what `finish` returned is of no use any more."""


class FileRowsBuilder(IndexTableBuilder):
    """Collects a table whose rows come file by file, and sorts them.

    Parameters
    ----------
    order : sequence of (str, str)
        As `CatalogIndex.order`.
    """

    def __init__(self, order: Sequence[tuple[str, str]]) -> None:
        super().__init__()
        self.rows = SortedRuns(order)

    def limit_memory(self, run_bytes: int) -> None:
        """Limit the bytes of rows that are sorted in memory at once; see `IndexTableBuilder.limit_memory`."""
        self.rows.run_bytes = run_bytes

    def finish(self) -> TableRows | None:
        """Return the table in its order; see `IndexTableBuilder.finish`."""
        found = self.rows.reader()
        return None if found is None else TableRows(found, self.rows.num_rows)

    def close(self) -> None:
        """Release what the builder has on disk; see `IndexTableBuilder.close`."""
        self.rows.close()


class CatalogIndex(abc.ABC):
    """One index of a catalog.

    Parameters
    ----------
    of : str
        The columns: each as `column_text` has it, with commas between them.
    """

    kind: ClassVar[str]
    """The name of the kind, as in `indexes={"user_id": "keys"}`: lower-case letters."""
    embedded: ClassVar[type[IndexKind] | None] = None
    """The kind of index in files that says the same: by it values become bytes and tests are answered. A kind
    that has one has its name."""
    most_columns: ClassVar[int] = 1
    values: ClassVar[str] = "one value for each row, and no booleans"
    """What the columns have that it is of, as messages say it."""
    rows_apart: ClassVar[bool] = True
    """Whether each row of its table says the same without the others: then a merge sorts the rows of several
    tables."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if cls.embedded is not None:
            cls.kind = cls.embedded.name

    def __init__(self, of: str) -> None:
        self.of = of
        self.columns = self.read_columns(of)
        if not 1 <= len(self.columns) <= self.most_columns:
            several = f"{self.most_columns} columns at most" if self.most_columns > 1 else "one column"
            raise ValueError(f"an index of kind {self.kind!r} is of {several}, not of {of!r:.200}")
        if len(set(self.columns)) < len(self.columns):
            raise ValueError(f"an index of kind {self.kind!r} names a column twice: {of!r:.200}")

    @property
    def table(self) -> str:
        """The name that heads have for its table."""
        return f"{self.kind} {self.of}"

    @classmethod
    def spelled(cls, columns: str | Sequence[str]) -> str:
        """Return the text of columns as a caller names them, for `of`."""
        names = [columns] if isinstance(columns, str) else list(columns)
        return ", ".join(column_text(path_named(name)) for name in names)

    def read_columns(self, of: str) -> tuple[tuple[str, ...], ...]:
        """Return the paths of the columns whose values are needed."""
        return paths_of_text(of)

    # -- the table -------------------------------------------------------------------------------

    @property
    @abc.abstractmethod
    def order(self) -> Sequence[tuple[str, str]]:
        """The columns that its table is sorted by, each "ascending"."""

    @abc.abstractmethod
    def encoding(self, schema: pa.Schema, num_rows: int | None) -> TableEncoding:
        """Return how a table is written, of so many rows; None where they come in parts, and nobody has
        counted them."""

    @abc.abstractmethod
    def builder(self) -> IndexTableBuilder:
        """Begin the table of a segment."""

    @abc.abstractmethod
    def renumbered(self, table: pa.Table, places: Int64s) -> pa.Table:
        """Return what a table says about files that count, in any order.

        Parameters
        ----------
        table : pyarrow.Table
        places : int64 array
            The new ordinal of each file; -1 for one that does not count.

        Raises
        ------
        IndexFormatError
            The table names files that the segment does not have.
        """

    def merged(self, tables: Sequence[pa.Table]) -> pa.Table:
        """Return one table of several of one schema, whose files are numbered alike; only where rows are not
        `rows_apart`."""
        raise NotImplementedError(f"rows of the kind {self.kind!r} are sorted into one table")

    @abc.abstractmethod
    def by_file(self, table: pa.Table, num_files: int) -> Sequence[pa.Table]:
        """Return what a table says of each file, equal for equal files; raises as `renumbered`."""

    # -- asking ----------------------------------------------------------------------------------

    def leaf_questions(self, question: CatalogQuestion) -> list[tuple[Node, LeafQuestion]]:
        """Return the tests of the column that the embedded kind answers, wherever they are in the
        predicate."""
        column = question.paths.get(self.columns[0])
        if column is None or self.embedded is None:
            return []
        found: list[tuple[Node, LeafQuestion]] = []
        for node in column_atoms(question.bound.root):
            leaf = question_of(node, question.bound.columns[column]) if node.column == column else None
            if leaf is not None and leaf.op in self.embedded.ops:
                found.append((node, leaf))
        return found

    @abc.abstractmethod
    def ask(self, question: CatalogQuestion, stored: pa.Schema) -> Lookup | None:
        """Return what a question needs of a table; None where the table cannot help.

        Parameters
        ----------
        question : CatalogQuestion
        stored : pyarrow.Schema
            The rows of the table.
        """


class RowwiseIndex(CatalogIndex):
    """An index each row of whose table is about one file, which its column `file` identifies unless the kind
    says otherwise."""

    def ordinals(self, table: pa.Table) -> Int64s:
        """Return the ordinal of the file that each row is about."""
        return file_column(table)

    def with_ordinals(self, table: pa.Table, ordinals: Int64s) -> pa.Table:
        """Return the rows about the files with these ordinals instead."""
        return with_file_column(table, ordinals)

    def renumbered(self, table: pa.Table, places: Int64s) -> pa.Table:
        """Return the rows about files that count, by their new ordinals; see `CatalogIndex.renumbered`."""
        moved = places[check_ordinals(self.ordinals(table), len(places))]
        return self.with_ordinals(table.filter(pa.array(moved >= 0)), moved[moved >= 0])

    def by_file(self, table: pa.Table, num_files: int) -> Sequence[pa.Table]:
        """Return what a table says of each file; see `CatalogIndex.by_file`."""
        files = check_ordinals(self.ordinals(table), num_files)
        by = np.argsort(files, kind="stable")
        starts = np.searchsorted(files[by], np.arange(num_files + 1))
        sorted_by_file = table.take(pa.array(by))
        return [
            sorted_by_file.slice(start, stop - start).combine_chunks()
            for start, stop in zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True)
        ]


def file_column(table: pa.Table) -> Int64s:
    """Return the column `file` of a table."""
    column = table.column("file").combine_chunks()
    array = column.chunk(0) if isinstance(column, pa.ChunkedArray) else column
    return np.asarray(integers(array), np.int64)


def with_file_column(table: pa.Table, ordinals: Int64s) -> pa.Table:
    """Return a table with other ordinals in the column `file`."""
    at = table.schema.get_field_index("file")
    return table.set_column(at, table.schema.field(at), pa.array(ordinals.astype(np.int32)))


def check_ordinals(ordinals: Int64s, num_files: int) -> Int64s:
    """Return ordinals of files.

    Raises
    ------
    IndexFormatError
        There are fewer files.
    """
    if bool(((ordinals < 0) | (ordinals >= num_files)).any()):
        raise IndexFormatError("the catalog has rows about files that it does not list")
    return ordinals
