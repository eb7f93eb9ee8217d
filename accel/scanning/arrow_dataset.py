"""A data set of pyarrow that accel reads, into which DuckDB, DataFusion and Polars push their filters and
columns.

None of them filters again what it has pushed, and none of them means what Arrow does: `x > 1` is true of NaN
to all three, and false to Arrow. A scanner is not told who asks, so this module looks: a filter from an
engine is answered by SQL's rules, one from anybody else by Arrow's.
"""

from __future__ import annotations

import dataclasses
import enum
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NoReturn, Self, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyarrow.fs import FileSystemHandler, PyFileSystem

from accel.errors import AccelError
from accel.planning.selection import RowSelection
from accel.predicate.arrow_expression import field_paths, in_sql
from accel.predicate.expr import And, join
from accel.predicate.where import to_expr
from accel.runtime import io_loop
from accel.scanning.iterating import FixedSchemaBatches
from accel.scanning.spec import is_planned

__all__ = ["AccelDataset", "DatasetFragment", "DatasetScanner", "Remake"]

Scan: TypeAlias = Any
"""An `accel.Scan`, whose module imports this one."""
Remake: TypeAlias = tuple[Callable[..., Any], tuple[Any, ...]]
"""A function and its arguments that make a data set again, in another process."""


class Rules(enum.Enum):
    """What comparisons with NaN, zero and null mean in a filter."""

    ARROW = enum.auto()
    SQL = enum.auto()


# DuckDB has no module that could ask; `_Scanner` knows it.
_ENGINES: Final = frozenset({"datafusion", "polars"})


def _rules_of_caller() -> Rules:
    """Return the rules of whoever called the public method of this module that is running."""
    frame = sys._getframe(1)
    while frame.f_globals.get("__name__") == __name__:
        if frame.f_back is None:
            # An engine's own thread, which runs nothing of Python but what it calls here.
            return Rules.SQL
        frame = frame.f_back
    module = str(frame.f_globals.get("__name__"))
    return Rules.SQL if module.partition(".")[0] in _ENGINES else Rules.ARROW


class _Scanner:
    """The method `scanner`, which DuckDB alone takes from the class: `type(data).scanner(data, ...)`. Then it
    is another one."""

    def __init__(self, of_instance: Callable[..., Any], of_class: Callable[..., Any]) -> None:
        self._of_instance, self._of_class = of_instance, of_class
        self.__doc__ = of_instance.__doc__

    def __get__(self, instance: Any, owner: type | None = None) -> Callable[..., Any]:
        method: Callable[..., Any] = (
            self._of_class if instance is None else self._of_instance.__get__(instance)
        )
        return method


class AccelDataset(ds.UnionDataset):  # type: ignore[misc]
    """A data set of pyarrow whose scans are accel's. Made by `accel.dataset` and `Scan.to_dataset`."""

    # pyarrow's own code would read a data set by its C++ object, and crash where there is none. The object
    # that stands for this one has one file, which cannot be opened.
    def __init__(self, whole: Scan, *, remake: Remake | None = None) -> None:
        if whole.engine.stream or is_planned(whole.engine.spec.source):
            raise ValueError(
                "a data set asks anew for columns and rows: make it of paths, not of a plan or an iterator"
            )
        if whole.engine.spec.limit is not None:
            raise ValueError(
                "a data set has no limit, because filters come before it: give the limit to the engine"
            )
        self._whole, self._remake = whole, remake
        self._given = whole.schema
        files = PyFileSystem(_Unopened())
        form = ds.ParquetFileFormat()
        fragment = form.make_fragment("accel", filesystem=files)
        inner = ds.FileSystemDataset([fragment], self._given, form, filesystem=files)
        super().__init__(self._given, [inner])

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        if self._remake is None:
            raise TypeError("this data set does not pickle: make it by accel.dataset")
        return self._remake

    def __repr__(self) -> str:
        return f"<accel.dataset of {self._whole!r}>"

    def _scan(
        self,
        filter: pc.Expression | None = None,
        columns: Sequence[str] | None = None,
        *,
        rules: Rules = Rules.ARROW,
        limit: int | None = None,
        batch_size: int | None = None,
        **changes: Any,
    ) -> Scan:
        """Return the scan of a question about the data set."""
        spec = self._whole.engine.spec
        if filter is not None:
            added, own = to_expr(filter), spec.where
            if rules is Rules.SQL and added is not None:
                added = in_sql(added, self._given)
            changes["where"] = added if own is None or added is None else join(And, [own, added])
            changes["where_text"] = None
        if columns is not None:
            changes["columns"] = tuple(columns)
        if batch_size is not None:
            changes["options"] = dataclasses.replace(spec.options, batch_rows=batch_size)
        return self._whole._changed(limit=limit, **changes)

    def _changed(self, *change: Any, scan: Scan) -> Self:
        """Return the data set of another scan, which pickles as this one does."""
        remake = None if self._remake is None else (_change, (self, *change))
        return type(self)(scan, remake=remake)

    # -- pyarrow.dataset.Dataset -------------------------------------------------------------------

    @property
    def schema(self) -> pa.Schema:
        """The schema of the rows."""
        return self._given

    @property
    def children(self) -> list[ds.Dataset]:
        """No other data sets: this one is whole."""
        return []

    @property
    def partition_expression(self) -> pc.Expression:
        """What holds for all rows, which is nothing."""
        return pc.scalar(True)

    def scanner(
        self,
        columns: Sequence[str] | dict[str, pc.Expression] | None = None,
        filter: pc.Expression | None = None,
        batch_size: int | None = None,
        *,
        limit: int | None = None,
        **ignored: Any,
    ) -> DatasetScanner:
        """Ask for columns and rows.

        Parameters
        ----------
        columns : list of str, or dict of pyarrow.compute.Expression, optional
            Names, or expressions by the name that they get.
        filter : pyarrow.compute.Expression, optional
            Which rows, by Arrow's rules; by SQL's where an engine asks, to which NaN is above all numbers.
        batch_size : int, optional
            The most rows of a batch; by default `options.batch_rows`.
        limit : int, optional
            Stop after this many rows.
        **ignored
            Other arguments of pyarrow, which say how its own code reads.

        Returns
        -------
        DatasetScanner
            The question, with the methods of `pyarrow.dataset.Scanner`.
        """
        rules = _rules_of_caller()
        return DatasetScanner(self, columns, filter, rules=rules, batch_size=batch_size, limit=limit)

    def _scanner_of_duckdb(self, columns: Any = None, filter: Any = None, **options: Any) -> DatasetScanner:
        return DatasetScanner(self, columns, filter, rules=Rules.SQL, **options)

    scanner = _Scanner(scanner, _scanner_of_duckdb)  # type: ignore[assignment]

    def to_table(self, columns: Any = None, filter: Any = None, **options: Any) -> pa.Table:
        """Read a table; the arguments are those of `scanner`."""
        return self.scanner(columns, filter, **options).to_table()

    def to_batches(self, columns: Any = None, filter: Any = None, **options: Any) -> Iterator[pa.RecordBatch]:
        """Read record batches one by one; the arguments are those of `scanner`."""
        return self.scanner(columns, filter, **options).to_batches()

    def head(self, num_rows: int, columns: Any = None, filter: Any = None, **options: Any) -> pa.Table:
        """Read the first rows; the other arguments are those of `scanner`."""
        return self.scanner(columns, filter, **options).head(num_rows)

    def count_rows(self, filter: Any = None, **options: Any) -> int:
        """Count the rows, from metadata alone where it proves them; the arguments are those of `scanner`."""
        return self.scanner(None, filter, **options).count_rows()

    def take(self, indices: Any, columns: Any = None, filter: Any = None, **options: Any) -> pa.Table:
        """Read rows by their numbers; the other arguments are those of `scanner`. Without a filter only their
        pages are read."""
        return self.scanner(columns, filter, **options).take(indices)

    def filter(self, expression: pc.Expression) -> Self:
        """Return the data set of those rows only that match an expression."""
        if expression is None:
            raise TypeError("filter takes an expression")
        return self._changed("filter", expression, scan=self._scan(expression))

    def get_fragments(self, filter: pc.Expression | None = None) -> Iterator[DatasetFragment]:
        """Return the data set as one fragment: accel reads files in parallel itself."""
        return iter([DatasetFragment(self, filter)])

    def replace_schema(self, schema: pa.Schema) -> Self:
        """Return the data set with other columns or types, as `schema=` of `scan`."""
        return self._changed("replace_schema", schema, scan=self._scan(schema=schema, columns=None))

    def sort_by(self, sorting: Any, **options: Any) -> ds.Dataset:
        """Return the rows in an order, in memory."""
        return ds.InMemoryDataset(self.to_table().sort_by(sorting, **options))

    def join(self, right_dataset: Any, *args: Any, **options: Any) -> ds.Dataset:
        """Return the join with another data set, in memory."""
        return ds.InMemoryDataset(self.to_table().join(right_dataset.to_table(), *args, **options))

    def join_asof(self, right_dataset: Any, *args: Any, **options: Any) -> ds.Dataset:
        """Return the as-of join with another data set, in memory."""
        return ds.InMemoryDataset(self.to_table().join_asof(right_dataset.to_table(), *args, **options))


class DatasetFragment:
    """The whole of a data set, with the methods of `pyarrow.dataset.Fragment`."""

    def __init__(self, whole: AccelDataset, filter: pc.Expression | None) -> None:
        self._dataset, self._filter = whole, filter

    @property
    def physical_schema(self) -> pa.Schema:
        """The schema of the rows."""
        return self._dataset.schema

    partition_expression = AccelDataset.partition_expression

    def scanner(
        self, schema: pa.Schema | None = None, columns: Any = None, filter: Any = None, **options: Any
    ) -> DatasetScanner:
        """Ask for columns and rows, as the data set does."""
        filters = [part for part in (self._filter, filter) if part is not None]
        joined = filters[0] & filters[1] if len(filters) == 2 else filters[0] if filters else None
        whole = (
            self._dataset
            if schema is None or schema == self._dataset.schema
            else self._dataset.replace_schema(schema)
        )
        return whole.scanner(columns, joined, **options)

    def to_table(self, schema: pa.Schema | None = None, **options: Any) -> pa.Table:
        """Read a table; the arguments are those of `scanner`."""
        return self.scanner(schema, **options).to_table()

    def to_batches(self, schema: pa.Schema | None = None, **options: Any) -> Iterator[pa.RecordBatch]:
        """Read record batches one by one; the arguments are those of `scanner`."""
        return self.scanner(schema, **options).to_batches()

    def head(self, num_rows: int, **options: Any) -> pa.Table:
        """Read the first rows; the other arguments are those of `scanner`."""
        return self.scanner(**options).head(num_rows)

    def count_rows(self, filter: Any = None, **options: Any) -> int:
        """Count the rows; the arguments are those of `scanner`."""
        return self.scanner(filter=filter, **options).count_rows()

    def take(self, indices: Any, **options: Any) -> pa.Table:
        """Read rows by their numbers; the other arguments are those of `scanner`."""
        return self.scanner(**options).take(indices)


class DatasetScanner:
    """A question about a data set, with the methods of `pyarrow.dataset.Scanner`. Each of them runs it
    anew."""

    def __init__(
        self,
        whole: AccelDataset,
        columns: Any,
        filter: pc.Expression | None,
        *,
        rules: Rules,
        batch_size: int | None = None,
        limit: int | None = None,
    ) -> None:
        self._dataset, self._filter, self._rules = whole, filter, rules
        self._batch_size, self._limit = batch_size, limit
        self._made: dict[str, pc.Expression] | None = None
        self._repeated: list[str] | None = None
        if isinstance(columns, dict):
            self._made = columns
            paths = [path for made in columns.values() for path in field_paths(made)]
            columns = list(dict.fromkeys(path[0] for path in paths))
        elif columns is not None:
            named = list(columns)
            columns = list(dict.fromkeys(named))
            self._repeated = named if len(columns) < len(named) else None
        self._columns: list[str] | None = columns

    def _scan(self, limit: int | None = None, **more: Any) -> Scan:
        limits = [one for one in (limit, self._limit) if one is not None]
        scan = self._dataset._scan(
            self._filter,
            self._columns,
            rules=self._rules,
            limit=min(limits, default=None),
            batch_size=self._batch_size,
            **more,
        )
        # Whoever asks has bound to the schema of the data set: batches of another one are refused.
        scan._schema = self._known_schema()
        return scan

    def _unhurried(self) -> dict[str, Any]:
        """Return what makes a stream of all rows begin with few: of an engine's LIMIT nobody is told."""
        whole = self._filter is None and self._dataset._whole.engine.spec.where is None
        return {"gradual": whole and self._limit is None}

    def _known_schema(self) -> pa.Schema | None:
        """Return the schema of what is read, where that of the data set says it."""
        schema, names = self._dataset.schema, self._columns
        if names is None:
            return schema
        if any(schema.get_field_index(name) < 0 for name in names):
            return None
        return pa.schema([schema.field(name) for name in names])

    @property
    def dataset_schema(self) -> pa.Schema:
        """The schema of the data set."""
        return self._dataset.schema

    @property
    def projected_schema(self) -> pa.Schema:
        """The schema of the result."""
        schema = self._known_schema()
        if schema is None:
            schema = self._scan().schema
        plain = self._made is None and self._repeated is None
        return schema if plain else self._shaped(schema.empty_table()).schema

    def _shaped(self, table: pa.Table) -> pa.Table:
        """Return the columns that were asked for, of a table of those that are read."""
        if self._made is not None:
            return ds.dataset(table).to_table(columns=self._made) if self._made else table.select([])
        return table if self._repeated is None else table.select(self._repeated)

    def to_reader(self) -> pa.RecordBatchReader:
        """Open the result as a stream of record batches."""
        if self._made is None and self._repeated is None:
            return self._scan(**self._unhurried()).to_reader()
        return pa.RecordBatchReader.from_batches(self.projected_schema, self.to_batches())

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Read record batches one by one. Closing the iterator stops early."""
        scan = self._scan(**self._unhurried())
        # An engine that was told of columns of another type reads these as what they are not.
        batches = FixedSchemaBatches(scan.engine, scan._runs, schema=scan.schema, forget=scan._forget_schema)
        try:
            for batch in batches:
                if self._made is None and self._repeated is None:
                    yield batch
                else:
                    yield from self._shaped(pa.Table.from_batches([batch])).to_batches()
        finally:
            batches.close()

    def scan_batches(self) -> Iterator[ds.TaggedRecordBatch]:
        """Read record batches one by one, with the fragment that each is of."""
        fragment = DatasetFragment(self._dataset, self._filter)
        return (ds.TaggedRecordBatch(batch, fragment) for batch in self.to_batches())

    def to_table(self) -> pa.Table:
        """Read the whole result."""
        return self._shaped(self._scan().to_table())

    def head(self, num_rows: int) -> pa.Table:
        """Read the first rows, and stop when they have come."""
        return self._shaped(self._scan(num_rows).to_table())

    def count_rows(self) -> int:
        """Count the rows of the result, from metadata alone where it proves them."""
        return int(self._scan().count_rows())

    def take(self, indices: Any) -> pa.Table:
        """Read rows of the result by their numbers, in the order that these have."""
        wanted = np.asarray(
            pa.array(indices) if not isinstance(indices, pa.Array | pa.ChunkedArray) else indices
        )
        if len(wanted) and wanted.dtype.kind not in "iu":
            raise TypeError(f"rows are named by whole numbers, not by {wanted.dtype}")
        wanted = wanted.astype(np.int64)
        each, back = np.unique(wanted, return_inverse=True)
        if len(each) and each[0] < 0:
            raise IndexError(f"row {each[0]} is below 0")
        own = self._dataset._whole.engine.spec
        if self._filter is None and own.where is None and own.selection is None and self._limit is None:
            numbered = RowSelection.of((row, row + 1) for row in each)
            found, places = (
                self._shaped(io_loop.run(self._scan()._runs.window(numbered))),
                np.arange(len(each)),
            )
        else:
            found, places = self.to_table(), each
        if len(places) and places[-1] >= found.num_rows:
            raise IndexError(f"row {each[-1]} of {self.count_rows()}")
        return found.take(places[back])

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.to_reader().__arrow_c_stream__(requested_schema)


def _change(whole: AccelDataset, method: str, argument: Any) -> AccelDataset:
    changed: AccelDataset = getattr(whole, method)(argument)
    return changed


class _Unopened(FileSystemHandler):  # type: ignore[misc]
    """The files of the object that stands for a data set in C++, none of which can be opened."""

    def _refuse(self, *_: object) -> NoReturn:
        raise AccelError(
            "pyarrow's own code cannot read an accel.dataset",
            hint="pass dataset.scanner(columns=..., filter=...).to_reader(), or its to_table()",
        )

    def get_type_name(self) -> str:
        """Return the name that the repr of a file system has."""
        return "accel"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Unopened)

    __hash__ = None  # type: ignore[assignment]
    get_file_info = get_file_info_selector = create_dir = delete_dir = delete_dir_contents = _refuse
    delete_root_dir_contents = delete_file = move = copy_file = open_input_stream = open_input_file = _refuse
    open_output_stream = open_append_stream = normalize_path = _refuse
