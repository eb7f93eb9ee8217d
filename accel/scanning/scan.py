"""Scan: one question over Parquet files, with its asynchronous, blocking and Arrow faces."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Coroutine, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, Self

import pyarrow as pa

from accel.errors import AccelError
from accel.metrics import Metrics
from accel.planning.selection import RowSelection
from accel.runtime import io_loop
from accel.scanning.engine import NO_COLUMNS, Engine, ScanRuns
from accel.scanning.iterating import AwaitedBatches, BlockingBatches, FixedSchemaBatches
from accel.scanning.spec import check_count, is_planned

if TYPE_CHECKING:
    import duckdb
    import pandas
    import polars
    from pyarrow.dataset import Dataset

    from accel.planning.plan import Explain
    from accel.scanning.aggregating import Aggregation

__all__ = ["Scan"]

AggregateSpecs = Sequence[tuple[str | Sequence[str], str]]
"""Aggregates: a column and a function each."""
_COUNT: AggregateSpecs = (((), "count_all"),)


class Scan:
    """A query over Parquet files. Nothing is read before a result is used.

    Made by `accel.scan`. Iterate it (`async for` or `for`) for record batches in bounded memory, or call
    `to_table`, `to_pandas`, `to_polars`, `to_pylist`, `head`, `count_rows`, `to_reader`; duckdb, polars and
    pyarrow take it as an Arrow stream. Each of them runs the scan again (a scan over an iterator runs once).
    A scan may be used from several threads and event loops at once. Failures are `AccelError`s that name the
    file, the place and what to do; only wrong arguments raise a plain `TypeError` or `ValueError`.

    Rows come in the order of the source's files, and within a file in the order of its row groups. With
    `order=False` rows of one file may lie between those of another.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._runs = ScanRuns(engine)
        self._schema: pa.Schema | None = None

    # -- what it is ------------------------------------------------------------------------------

    @property
    def schema(self) -> pa.Schema:
        """The schema of the result. The first access reads one footer, if `schema=` was not given.

        From an iterator the first record batch is pulled for it; an iterator without any has no columns.
        """
        if self._schema is None:
            sample = self.engine.sample()
            self._schema = NO_COLUMNS if sample is None else io_loop.run(sample.schema(Metrics()))
        return self._schema

    async def schema_async(self) -> pa.Schema:
        """Return `schema` from a coroutine.

        Returns
        -------
        pyarrow.Schema
            The schema of the result.
        """
        if self._schema is None:
            sample = self.engine.sample()
            self._schema = NO_COLUMNS if sample is None else await io_loop.bridge(sample.schema(Metrics()))
        return self._schema

    @property
    def metrics(self) -> Metrics:
        """The counts of the run that was started last, also while it is under way; for an iterator, those of
        its last batch."""
        return self._runs.metrics

    def __repr__(self) -> str:
        spec = self.engine.spec
        parts = [self.engine.describe()]
        if spec.where is not None:
            from accel.predicate.sql import to_sql

            parts.append(f"where={_short(to_sql(spec.where, max_values=3))}")
        if spec.columns is not None:
            parts.append(f"columns=[{_short(', '.join(map(str, spec.columns)))}]")
        if spec.selection is not None:
            parts.append(f"selection={len(spec.selection)} files")
        if spec.order_by:
            parts.append(f"order_by={_short(', '.join(map(str, spec.order_by)))}")
        if spec.limit is not None:
            parts.append(f"limit={spec.limit}")
        return f"Scan({', '.join(parts)})"

    def _repr_html_(self) -> str:
        """Show the question and the schema in a notebook, as far as they are known without I/O."""
        from accel.pictures.document import fragment, preformatted

        lines = [repr(self)]
        if self._schema is None:
            lines.append("the schema is read when it is asked for: scan.schema")
        else:
            lines += [f"  {field.name}: {field.type}" for field in self._schema]
        lines.append("scan.explain() shows what would be read")
        return fragment(preformatted("\n".join(lines)))

    def _changed(self, **changes: Any) -> Scan:
        """Return another question about the same source; `changes` are fields of its `ScanSpec`."""
        return Scan(self.engine.changed(**changes))

    # -- running ---------------------------------------------------------------------------------

    def __aiter__(self) -> AwaitedBatches:
        """`to_batches`, awaited; `aclose` stops the iterator early."""
        return AwaitedBatches(self.engine, self._runs)

    def to_batches(self) -> BlockingBatches:
        """Read the record batches one by one, in file order (any order with `order=False`).

        Closing the iterator stops early and waits until no request is in flight. An iterator that is dropped
        stops, too, and nothing waits for that.

        Returns
        -------
        iterator of pyarrow.RecordBatch
            The batches, with a method `close`.

        Raises
        ------
        PredicateError, ColumnNotFoundError, SchemaMismatchError
            The question does not fit the files.
        ValueError
            `selection` names a file, a row group or a row that there is not; `columns` has one twice.
        ObjectNotFoundError
            There is no such file.
        ObjectChangedError
            A file was replaced when rows of it had been handed out, or since it was planned by `accel.plan`.
        StoreError
            The store did not answer, or refused.
        ParquetFormatError, EncryptedFileError
            A file cannot be read.
        MemoryLimitError
            Something that cannot be cut takes more than `options.memory_limit`.
        AccelError
            The scan was closed meanwhile, or is over an iterator and has run; with `options.strict`, any of
            these for what would else have been passed over.
        """
        return BlockingBatches(self.engine, self._runs)

    __iter__ = to_batches

    def to_table(self) -> pa.Table:
        """Read the whole result, in file order (any order with `order=False`).

        This works inside a running event loop, too, which it blocks meanwhile.

        Returns
        -------
        pyarrow.Table
            All rows of the result.

        Raises
        ------
        ObjectNotFoundError, ObjectChangedError, StoreError, ParquetFormatError, MemoryLimitError, AccelError
            As `to_batches` does.
        """
        return self._runs.table(self._runs.limit())

    async def to_table_async(self) -> pa.Table:
        """Read the whole result from a coroutine, as `to_table` does.

        Returns
        -------
        pyarrow.Table
            All rows of the result.
        """
        return await self._runs.table_async(self._runs.limit())

    def to_pandas(self, **options: Any) -> pandas.DataFrame:
        """Read the whole result into a DataFrame of pandas, in file order (any order with `order=False`).

        Parameters
        ----------
        **options
            As `pyarrow.Table.to_pandas` takes them: `types_mapper`, `date_as_object`, `split_blocks` and
            others.

        Returns
        -------
        pandas.DataFrame
            All rows of the result.

        Raises
        ------
        ModuleNotFoundError
            pandas is not installed.
        ObjectNotFoundError, ObjectChangedError, StoreError, ParquetFormatError, MemoryLimitError, AccelError
            As `to_batches` does.

        Examples
        --------
        >>> accel.scan("s3://bucket/flights/", "carrier = 'HA'").to_pandas(types_mapper=pandas.ArrowDtype)
        """
        _check_installed("pandas", "to_pandas")
        return self.to_table().to_pandas(**options)

    async def to_pandas_async(self, **options: Any) -> pandas.DataFrame:
        """Read the whole result from a coroutine, as `to_pandas` does. A thread imports pandas and converts.

        Parameters
        ----------
        **options
            As for `to_pandas`.

        Returns
        -------
        pandas.DataFrame
            All rows of the result.
        """
        _check_installed("pandas", "to_pandas_async")
        return await asyncio.to_thread((await self.to_table_async()).to_pandas, **options)

    def to_polars(self) -> polars.DataFrame:
        """Read the whole result into a DataFrame of Polars, in file order (any order with `order=False`).

        Returns
        -------
        polars.DataFrame
            All rows of the result.

        Raises
        ------
        ModuleNotFoundError
            Polars is not installed.
        ObjectNotFoundError, ObjectChangedError, StoreError, ParquetFormatError, MemoryLimitError, AccelError
            As `to_batches` does.
        """
        _check_installed("polars", "to_polars")
        return _polars_of(self.to_table())

    async def to_polars_async(self) -> polars.DataFrame:
        """Read the whole result from a coroutine, as `to_polars` does. A thread imports Polars and converts.

        Returns
        -------
        polars.DataFrame
            All rows of the result.
        """
        _check_installed("polars", "to_polars_async")
        return await asyncio.to_thread(_polars_of, await self.to_table_async())

    def to_pylist(self) -> list[dict[str, Any]]:
        """Read the whole result into objects of Python, in file order (any order with `order=False`).

        Returns
        -------
        list of dict
            The rows: a dictionary by column name for each, with the values of `pyarrow.Table.to_pylist`.

        Raises
        ------
        ObjectNotFoundError, ObjectChangedError, StoreError, ParquetFormatError, MemoryLimitError, AccelError
            As `to_batches` does.
        """
        rows: list[dict[str, Any]] = self.to_table().to_pylist()
        return rows

    async def to_pylist_async(self) -> list[dict[str, Any]]:
        """Read the whole result from a coroutine, as `to_pylist` does. A thread converts.

        Returns
        -------
        list of dict
            The rows.
        """
        rows: list[dict[str, Any]] = await asyncio.to_thread((await self.to_table_async()).to_pylist)
        return rows

    def head(self, num_rows: int = 10) -> pa.Table:
        """Read the first rows in file order (any rows with `order=False`), and stop when they have come.

        Parameters
        ----------
        num_rows : int, default 10
            The number of rows.

        Returns
        -------
        pyarrow.Table
            That many rows, or all if there are fewer.

        Raises
        ------
        ValueError
            The number is negative, or not whole.
        ObjectNotFoundError, ObjectChangedError, StoreError, ParquetFormatError, MemoryLimitError, AccelError
            As `to_batches` does.
        """
        return self._runs.table(self._runs.limit(check_count(num_rows)))

    async def head_async(self, num_rows: int = 10) -> pa.Table:
        """Read the first rows from a coroutine, as `head` does.

        Parameters
        ----------
        num_rows : int, default 10
            The number of rows.

        Returns
        -------
        pyarrow.Table
            That many rows, or all if there are fewer.
        """
        return await self._runs.table_async(self._runs.limit(check_count(num_rows)))

    def count_rows(self) -> int:
        """Count the rows that match, from metadata alone where it proves them.

        Returns
        -------
        int
            The number of rows of the result.

        Raises
        ------
        ObjectNotFoundError, ObjectChangedError, StoreError, ParquetFormatError, MemoryLimitError, AccelError
            As `to_batches` does.
        """
        return int(self.aggregate(_COUNT)["count_all"][0].as_py())

    async def count_rows_async(self) -> int:
        """Count the rows that match from a coroutine, as `count_rows` does.

        Returns
        -------
        int
            The number of rows of the result.
        """
        return int((await self.aggregate_async(_COUNT))["count_all"][0].as_py())

    def aggregate(self, aggregates: AggregateSpecs) -> pa.Table:
        """Return counts, sums, minima and maxima of the result, in one row.

        Rows are read only where metadata does not prove the answer: see docs/aggregates.md.

        Parameters
        ----------
        aggregates : sequence of (column, function)
            As `pyarrow.Table.group_by([]).aggregate` takes them: a column of the result and "count" (of
            values that are not null), "sum", "min" or "max"; or `([], "count_all")` for the rows. A column
            may be a dotted path into structs, or an expression that a zone map can hold: `lower(x)`,
            `year(x)`, `month(x)`, `day(x)`, `hour(x)`.

        Returns
        -------
        pyarrow.Table
            One row; columns in the order given, named `x_sum` or `count_all`, of pyarrow's types. Nulls are
            left out; of no values, a sum, minimum or maximum is null.

        Raises
        ------
        ColumnNotFoundError
            A column is not in the scan's result.
        SchemaMismatchError
            A function has no meaning for its column's type, or for a text of it, which is not UTF-8.
        ObjectNotFoundError, ObjectChangedError, StoreError, ParquetFormatError, MemoryLimitError, AccelError
            As `to_batches` does.
        """
        return self._fold(self._aggregation(aggregates)).result()

    async def aggregate_async(self, aggregates: AggregateSpecs) -> pa.Table:
        """Aggregate the result from a coroutine, as `aggregate` does.

        Parameters
        ----------
        aggregates : sequence of (column, function)
            As for `aggregate`.

        Returns
        -------
        pyarrow.Table
            One row.
        """
        return (await self._fold_async(self._aggregation(aggregates))).result()

    def _aggregation(self, aggregates: AggregateSpecs | None, *, distinct: str | None = None) -> Aggregation:
        if self.engine.spec.order_by and aggregates is not _COUNT:
            raise ValueError("the first rows in an order are not aggregated: read them by to_table()")
        from accel.scanning.aggregating import Aggregation

        spec, limited = self.engine.spec, self._runs.limit() is not None
        selected, exact = spec.selection is not None, spec.case_sensitive
        return Aggregation(
            aggregates, distinct=distinct, limited=limited, selected=selected, case_sensitive=exact
        )

    def _fold(self, aggregation: Aggregation) -> Aggregation:
        for part in self.engine.parts():
            io_loop.run(self._runs.fold(part, aggregation))
            if aggregation.rows == self._runs.limit():
                break
        self._runs.metrics.distinct_units = dict(aggregation.units)
        return aggregation

    async def _fold_async(self, aggregation: Aggregation) -> Aggregation:
        for part in self.engine.parts():
            await io_loop.bridge(self._runs.fold(part, aggregation))
            if aggregation.rows == self._runs.limit():
                break
        self._runs.metrics.distinct_units = dict(aggregation.units)
        return aggregation

    def _slice(self, offset: int, num_rows: int) -> Coroutine[Any, Any, pa.Table]:
        """Return what reads rows by their numbers."""
        if self.engine.stream or is_planned(self.engine.spec.source):
            raise ValueError("rows are numbered over files, not over a plan or an iterator")
        first = check_count(offset, "offset")
        return self._runs.window(RowSelection.of([(first, check_count(first + check_count(num_rows)))]))

    def distinct(self, column: str) -> pa.Array:
        """Find the distinct values of a column of the result.

        Rows are read only where metadata does not prove their values: see docs/aggregates.md.

        Parameters
        ----------
        column : str
            A column of the result, or a dotted path into structs.

        Returns
        -------
        pyarrow.Array
            The values in ascending order, each once, of the column's type without dictionary encoding; NaN
            follows the numbers, and null, where there is one, is the last. -0.0 becomes 0.0.

        Raises
        ------
        ColumnNotFoundError
            The column is not in the scan's result.
        SchemaMismatchError
            Its values have no order: lists, structs.
        ObjectNotFoundError, ObjectChangedError, StoreError, ParquetFormatError, MemoryLimitError, AccelError
            As `to_batches` does.

        Examples
        --------
        >>> accel.scan("s3://bucket/flights/", "dep_delay > 60").distinct("carrier")
        """
        return self._fold(self._distinct(column)).values()

    async def distinct_async(self, column: str) -> pa.Array:
        """Find the distinct values of a column from a coroutine, as `distinct` does.

        Parameters
        ----------
        column : str
            As for `distinct`.

        Returns
        -------
        pyarrow.Array
            The values in ascending order.
        """
        return (await self._fold_async(self._distinct(column))).values()

    def _distinct(self, column: str) -> Aggregation:
        if not isinstance(column, str):
            raise TypeError(f"a column is named by a string, not {column!r:.80}")
        return self._aggregation(None, distinct=column)

    def explain(
        self, *, analyze: bool = False, aggregates: AggregateSpecs | None = None, distinct: str | None = None
    ) -> Explain:
        """Plan the scan, reading metadata but no data.

        Parameters
        ----------
        analyze : bool
            Also run the scan, and add the counts of the run.
        aggregates : sequence of (column, function), optional
            Explain `aggregate` with these, and not the reading of all rows.
        distinct : str, optional
            Explain `distinct` of this column, and not the reading of all rows.

        Returns
        -------
        Explain
            What pruning leaves, and which requests a run will send.

        Raises
        ------
        AccelError
            The scan is over an iterator.
        ObjectNotFoundError, ObjectChangedError, StoreError, ParquetFormatError, MemoryLimitError
            As `to_batches` does; the last only with `analyze`.
        """
        return io_loop.run(self._explain(analyze, aggregates, distinct))

    async def explain_async(
        self, *, analyze: bool = False, aggregates: AggregateSpecs | None = None, distinct: str | None = None
    ) -> Explain:
        """Plan the scan from a coroutine, as `explain` does.

        Parameters
        ----------
        analyze, aggregates, distinct
            As for `explain`.

        Returns
        -------
        Explain
            What pruning leaves, and which requests a run will send.
        """
        return await io_loop.bridge(self._explain(analyze, aggregates, distinct))

    async def _explain(
        self, analyze: bool, aggregates: AggregateSpecs | None, distinct: str | None
    ) -> Explain:
        if self.engine.stream:
            raise AccelError(
                "a scan over an iterator cannot be explained", hint="explain a scan of the paths as a list"
            )
        if aggregates is not None and distinct is not None:
            raise ValueError("aggregates and distinct values are explained one at a time")

        def ask() -> Aggregation | None:
            if distinct is not None:
                return self._distinct(distinct)
            return None if aggregates is None else self._aggregation(aggregates)

        asking, engine = ask(), self.engine.with_one_deadline()
        planned = await engine.plan(Metrics(), aggregation=asking)
        explained = dataclasses.replace(planned.explain(), skipped=dict(planned.metrics.skipped))
        if asking is not None:
            explained = dataclasses.replace(
                explained, rows_from_metadata=asking.answered, distinct_units=asking.units
            )
        order = self.engine.spec.order_by
        if order and asking is None:
            note = (
                f"ordered by {', '.join(map(str, order))}: rows are read from the best bounds down, until no "
                "other can be among the first; the data level is that of all rows that may match"
            )
            explained = dataclasses.replace(
                explained, notes=(*explained.notes, note), order=await engine.preview_order(Metrics())
            )
        if analyze:
            counted = Metrics()  # another run of this scan may start meanwhile
            folding = ask()
            if folding is None:
                await self._runs.exhaust(engine, metrics=counted)
            else:
                await self._runs.fold(engine, folding, metrics=counted)
            counts = {k: v for k, v in counted.as_dict().items() if v not in (0, [], {})}
            explained = dataclasses.replace(explained, analyzed=counts)
        return explained

    # -- Arrow -----------------------------------------------------------------------------------

    def to_reader(self) -> pa.RecordBatchReader:
        """Open the result as a stream of record batches for other libraries, in file order (any order with
        `order=False`).

        Returns
        -------
        pyarrow.RecordBatchReader
            The batches.

        Raises
        ------
        ObjectNotFoundError, StoreError, ParquetFormatError, AccelError
            The schema cannot be read. Later failures are raised from the reader, as `to_batches` raises them;
            also ObjectChangedError where the batches no longer have `schema`, which then is read anew.
        """
        schema = self.schema
        batches = FixedSchemaBatches(self.engine, self._runs, schema=schema, forget=self._forget_schema)
        return pa.RecordBatchReader.from_batches(schema, batches)

    def to_dataset(self) -> Dataset:
        """Return the scan as a data set of pyarrow, for engines that push filters and columns into one
        (docs/engines.md).

        Its columns are those of the scan, its rows those that the scan's predicate keeps. `accel.dataset`
        makes the same, and one that pickles.

        Returns
        -------
        pyarrow.dataset.Dataset
            The data set.

        Raises
        ------
        ValueError
            The scan has a limit, or is of a plan or an iterator.
        ObjectNotFoundError, StoreError, ParquetFormatError, AccelError
            The schema cannot be read.
        """
        from accel.scanning.arrow_dataset import AccelDataset

        return AccelDataset(self)

    def to_duckdb(self, connection: duckdb.DuckDBPyConnection | None = None) -> duckdb.DuckDBPyRelation:
        """Return the scan as a relation of DuckDB, which pushes filters and columns into it
        (docs/engines.md).

        Parameters
        ----------
        connection : duckdb.DuckDBPyConnection, optional
            The connection that queries it; by default DuckDB's own.

        Returns
        -------
        duckdb.DuckDBPyRelation
            The rows, as a table in a query: `relation.query("flights", "SELECT count(*) FROM flights")`.

        Raises
        ------
        ModuleNotFoundError
            DuckDB is not installed.
        ValueError, ObjectNotFoundError, StoreError, ParquetFormatError, AccelError
            As `to_dataset` does.
        """
        _check_installed("duckdb", "to_duckdb")
        import duckdb

        found = self.to_dataset()
        return duckdb.from_arrow(found) if connection is None else connection.from_arrow(found)

    def _forget_schema(self) -> None:
        self._schema = None

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def __arrow_c_schema__(self) -> object:
        return self.schema.__arrow_c_schema__()

    def __array__(self, *_: object, **__: object) -> NoReturn:
        # numpy and pandas.DataFrame would take a scan for one value, or its batches for rows.
        raise TypeError("a Scan is no array: use to_pandas(), to_polars(), to_pylist() or to_table()")

    # -- ending ----------------------------------------------------------------------------------

    def close(self) -> None:
        """Stop all runs of this scan: none of its requests is in flight afterwards, nor those by which an
        index learns."""
        self._runs.end_all()
        if self.engine.settle is not None:
            io_loop.run_to_end(self.engine.settle)

    async def aclose(self) -> None:
        """Close the scan, as `close` does, and await it."""
        await self._runs.end_all_async()
        if self.engine.settle is not None:
            await io_loop.bridge_to_end(self.engine.settle)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


def _check_installed(name: str, method: str) -> None:
    """Raise before anything is read if a library is missing. It is not imported."""
    from importlib.util import find_spec

    if find_spec(name) is None:
        raise ModuleNotFoundError(f"{method} needs {name}: pip install {name}", name=name)


def _polars_of(table: pa.Table) -> polars.DataFrame:
    import polars

    return polars.DataFrame(table)


def _short(text: str) -> str:
    return text if len(text) <= 120 else f"{text[:117]}..."
