"""Scan: one question over Parquet files, with its asynchronous, blocking and Arrow faces."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self

import pyarrow as pa

from accel.errors import AccelError
from accel.metrics import Metrics
from accel.scanning.engine import NO_COLUMNS, Engine, ScanRuns
from accel.scanning.iterating import AwaitedBatches, BlockingBatches, FixedSchemaBatches
from accel.scanning.spec import check_count
from accel.store import io_loop

if TYPE_CHECKING:
    from accel.planning.plan import Explain
    from accel.scanning.aggregating import Aggregation
    from accel.scanning.collecting_distinct import DistinctCollection

__all__ = ["Scan"]

Asked = Sequence[tuple[str | Sequence[str], str]]
"""Aggregates: a column and a function each."""


class Scan:
    """A query over Parquet files. Nothing is read before a result is used.

    Made by `accel.scan`. Iterate it (`async for` or `for`) for record batches in bounded memory, or call
    `to_table`, `head`, `count_rows`, `to_reader`; duckdb, polars and pyarrow take it as an Arrow stream.
    Each of them runs the scan again (a scan over an iterator runs once). A scan may be used from several
    threads and event loops at once. Failures are `AccelError`s that name the file, the place and what to do;
    only wrong arguments raise a plain `TypeError` or `ValueError`.

    Rows come in the order of the source's files, and within a file in the order of its row groups. With `order=False`
    rows of one file may lie between those of another.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._runs = ScanRuns(engine)
        self._schema: pa.Schema | None = None

    # -- what it is ------------------------------------------------------------------------------

    @property
    def schema(self) -> pa.Schema:
        """The schema of the result. The first access reads one footer, if `schema=` was not given.

        From an iterator the first record batch is pulled for it; an iterator without any has no columns.
        """
        if self._schema is None:
            sample = self._engine.sample()
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
            sample = self._engine.sample()
            self._schema = NO_COLUMNS if sample is None else await io_loop.bridge(sample.schema(Metrics()))
        return self._schema

    @property
    def metrics(self) -> Metrics:
        """The counts of the run that was started last, also while it is under way; for an iterator, those of its last batch."""
        return self._runs.metrics

    def __repr__(self) -> str:
        spec = self._engine.spec
        parts = [self._engine.describe()]
        if spec.where is not None:
            from accel.predicate.sql import to_sql

            parts.append(f"where={_short(to_sql(spec.where, max_values=3))}")
        if spec.columns is not None:
            parts.append(f"columns=[{_short(', '.join(map(str, spec.columns)))}]")
        if spec.selection is not None:
            parts.append(f"selection={len(spec.selection)} files")
        if spec.limit is not None:
            parts.append(f"limit={spec.limit}")
        return f"Scan({', '.join(parts)})"

    # -- running ---------------------------------------------------------------------------------

    def __aiter__(self) -> AwaitedBatches:
        """`to_batches`, awaited; `aclose` stops the iterator early."""
        return AwaitedBatches(self._engine, self._runs)

    def to_batches(self) -> BlockingBatches:
        """Read the record batches one by one, in file order (any order with `order=False`).

        Closing the iterator stops early and waits until no request is in flight. An iterator that is dropped stops, too, and
        nothing waits for that.

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
            The scan was closed meanwhile, or is over an iterator and has run; with `options.strict`, any of these for
            what would else have been passed over.
        """
        return BlockingBatches(self._engine, self._runs)

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

    def aggregate(self, aggregates: Asked) -> pa.Table:
        """Counts, sums, minima and maxima of the result, in one row.

        Rows are read only where metadata does not prove the answer: see docs/aggregates.md.

        Parameters
        ----------
        aggregates : sequence of (column, function)
            As `pyarrow.Table.group_by([]).aggregate` takes them: a column of the result and "count" (of values that
            are not null), "sum", "min" or "max"; or `([], "count_all")` for the rows. A column may be a dotted path
            into structs, or an expression that a zone map can hold: `lower(x)`, `year(x)`, `month(x)`, `day(x)`, `hour(x)`.

        Returns
        -------
        pyarrow.Table
            One row; columns in the order given, named `x_sum` or `count_all`, of pyarrow's types. Nulls are left out;
            of no values, a sum, minimum or maximum is null.

        Raises
        ------
        ColumnNotFoundError
            A column is not in the scan's result.
        SchemaMismatchError
            A function has no meaning for its column's type, or for a text of it, which is not UTF-8.
        ObjectNotFoundError, ObjectChangedError, StoreError, ParquetFormatError, MemoryLimitError, AccelError
            As `to_batches` does.
        """
        aggregation = self._aggregation(aggregates)
        for part in self._engine.parts():
            io_loop.run(self._runs.fold(part, aggregation))
            if aggregation.rows == self._runs.limit():
                break
        return aggregation.result()

    async def aggregate_async(self, aggregates: Asked) -> pa.Table:
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
        aggregation = self._aggregation(aggregates)
        for part in self._engine.parts():
            await io_loop.bridge(self._runs.fold(part, aggregation))
            if aggregation.rows == self._runs.limit():
                break
        return aggregation.result()

    def _aggregation(self, aggregates: Asked) -> Aggregation:
        from accel.scanning.aggregating import Aggregation

        return Aggregation(aggregates, limited=self._runs.limit() is not None)

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
            The values in ascending order, each once, of the column's type without dictionary encoding; NaN follows the
            numbers, and null, where there is one, is the last. -0.0 becomes 0.0.

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
        collection = self._collection(column)
        for part in self._engine.parts():
            io_loop.run(self._runs.fold(part, collection))
            if collection.rows == self._runs.limit():
                break
        return self._collected(collection)

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
        collection = self._collection(column)
        for part in self._engine.parts():
            await io_loop.bridge(self._runs.fold(part, collection))
            if collection.rows == self._runs.limit():
                break
        return self._collected(collection)

    def _collection(self, column: str) -> DistinctCollection:
        from accel.scanning.collecting_distinct import DistinctCollection

        limited, selected = self._runs.limit() is not None, self._engine.spec.selection is not None
        return DistinctCollection(column, limited=limited, selected=selected)

    def _collected(self, collection: DistinctCollection) -> pa.Array:
        self._runs.metrics.distinct_units = dict(collection.units)
        return collection.result()

    def explain(
        self, *, analyze: bool = False, aggregates: Asked | None = None, distinct: str | None = None
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
        self, *, analyze: bool = False, aggregates: Asked | None = None, distinct: str | None = None
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

    async def _explain(self, analyze: bool, aggregates: Asked | None, distinct: str | None) -> Explain:
        if self._engine.stream:
            raise AccelError(
                "a scan over an iterator cannot be explained", hint="explain a scan of the paths as a list"
            )
        if aggregates is not None and distinct is not None:
            raise ValueError("aggregates and distinct values are explained one at a time")

        def ask() -> Aggregation | DistinctCollection | None:
            if distinct is not None:
                return self._collection(distinct)
            return None if aggregates is None else self._aggregation(aggregates)

        asking = ask()
        planned = await self._engine.plan(Metrics(), aggregation=asking)
        explained = planned.explain()
        if asking is not None:
            explained = dataclasses.replace(
                explained, rows_from_metadata=asking.answered, distinct_units=asking.units
            )
        if analyze:
            counted = Metrics()  # another run of this scan may start meanwhile
            folding = ask()
            if folding is None:
                await self._runs.exhaust(metrics=counted)
            else:
                await self._runs.fold(self._engine, folding, metrics=counted)
            counts = {k: v for k, v in counted.as_dict().items() if v not in (0, [], {})}
            explained = dataclasses.replace(explained, analyzed=counts)
        return explained

    # -- Arrow -----------------------------------------------------------------------------------

    def to_reader(self) -> pa.RecordBatchReader:
        """Open the result as a stream of record batches for other libraries, in file order (any order with `order=False`).

        Returns
        -------
        pyarrow.RecordBatchReader
            The batches.

        Raises
        ------
        ObjectNotFoundError, StoreError, ParquetFormatError, AccelError
            The schema cannot be read. Later failures are raised from the reader, as `to_batches` raises them; also
            ObjectChangedError where the batches no longer have `schema`, which then is read anew.
        """
        schema = self.schema
        batches = FixedSchemaBatches(self._engine, self._runs, schema=schema, forget=self._forget_schema)
        return pa.RecordBatchReader.from_batches(schema, batches)

    def _forget_schema(self) -> None:
        self._schema = None

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def __arrow_c_schema__(self) -> object:
        return self.schema.__arrow_c_schema__()

    # -- ending ----------------------------------------------------------------------------------

    def close(self) -> None:
        """Stop all runs of this scan: none of its requests is in flight afterwards, nor those by which an index learns."""
        self._runs.end_all()
        if self._engine.settle is not None:
            io_loop.run_to_end(self._engine.settle)

    async def aclose(self) -> None:
        """`close`, awaited."""
        await self._runs.end_all_async()
        if self._engine.settle is not None:
            await io_loop.bridge_to_end(self._engine.settle)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


_COUNT = (((), "count_all"),)


def _short(text: str) -> str:
    return text if len(text) <= 120 else f"{text[:117]}..."
