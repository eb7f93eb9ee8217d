"""The verbs `scan`, `plan` and `distinct`: they check their arguments, choose a source of files and hand it
to `scanning`."""

from __future__ import annotations

from collections.abc import Coroutine, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal, Unpack, cast

import pyarrow as pa

from accel.cache.cache import Cache
from accel.catalog.asking.source_choice import SourceChoice
from accel.metrics import Metrics
from accel.runtime import io_loop
from accel.scanning.engine import Engine
from accel.scanning.scan import Scan
from accel.scanning.signatures import refuse_unknown, spells_out
from accel.scanning.spec import (
    SCAN_DEFAULTS,
    ColumnOptions,
    OnError,
    PlanOptions,
    QueryOptions,
    ScanOptions,
    check_arguments,
)
from accel.store.clients import Connector
from accel.tables.table import Table
from accel.tables.table_formats import settle_source

if TYPE_CHECKING:
    from accel.planning.plan import Plan
    from accel.predicate.where import Where
    from accel.scanning.spec import Source

__all__ = ["distinct", "distinct_async", "plan", "plan_async", "rows", "rows_async", "scan"]


@spells_out(ScanOptions)
def scan(source: Source, where: Where = None, **arguments: Unpack[ScanOptions]) -> Scan:
    """Query Parquet files. No I/O happens before the result is used.

    Parameters
    ----------
    source : str, path, list, FileSource, Plan, or iterator of record batches
        A URL or path, a list of them, a glob, a directory (hive partitions are recognised), a `FileSource` of
        your own (docs/sources.md), a `Plan`; or the record batches that `mapInArrow` passes, with a `path`
        column or with the tasks of a plan.
    where : str, list, or expression, optional
        A SQL boolean expression (docs/predicates.md), pyarrow's filter lists, or `accel.col("a") > 1`.
    **arguments
        Those of `ScanOptions`.

    Returns
    -------
    Scan
        The query, to be read as batches, a table or a count, or explained.

    Raises
    ------
    PredicateError
        `where` does not parse, or is no predicate.
    TypeError
        Another argument is of none of these types, or unknown. `store` and `storage_options` are checked when
        the result is used, which raises StoreError.
    ValueError
        The arguments contradict each other.

    Examples
    --------
    >>> scan = accel.scan("s3://bucket/flights/", "carrier = 'UA'", columns=["flight", "dep_delay"])
    >>> scan.to_table()
    """
    refuse_unknown("scan", arguments, ScanOptions)
    return Scan(_engine(source, where, arguments))


def _engine(source: Source, where: Where, arguments: QueryOptions) -> Engine:
    source, settled = settle_source(source, arguments)
    given = SCAN_DEFAULTS | cast("ScanOptions", settled)
    cache = given["cache"]
    spec = check_arguments(source, where, in_store=given["store"] is not None, **given)
    if cache is not None and not isinstance(cache, Cache):
        raise TypeError(f"cache is an accel.Cache, or None for none, not {cache!r:.80}")
    connector = Connector(
        storage_options=given["storage_options"], store=given["store"], options=spec.options
    )
    if isinstance(source, Table):
        table = source
        connector.otherwise(lambda: table.vended_options)
    choice = SourceChoice(
        spec,
        connector,
        index=given["index"],
        listing=given["listing"],
        learn=given["learn"],
        cache=cache,
    )
    return Engine(
        spec,
        connector,
        cache=cache,
        make_source=choice.make,
        settle=choice.settle if given["learn"] else None,
    )


@spells_out(PlanOptions, as_for="scan")
def plan(
    source: Source,
    where: Where = None,
    *,
    on_error: Literal["raise", "skip"] = "raise",
    **arguments: Unpack[PlanOptions],
) -> Plan:
    """Plan a scan: read its metadata and find the pages to read, but read no data.

    `limit` and `order` are arguments of the scan of the plan. For an iterator of record batches with a `path`
    column, as `mapInArrow` passes it, the plan is of those files.

    Parameters
    ----------
    source, where
        As for `scan`.
    on_error : {"raise", "skip"}
        What happens to a file that is missing or broken: its error is raised, or the plan goes without it and
        names it in `plan.metrics.warnings`.
    **arguments
        As for `scan`.

    Returns
    -------
    Plan
        The tasks that `accel.scan(plan)` runs, here or on other machines.

    Raises
    ------
    TypeError, ValueError
        As `scan` raises them.
    PredicateError, ColumnNotFoundError, SchemaMismatchError
        The predicate does not parse, or the query does not fit the files.
    ParquetFormatError, EncryptedFileError
        A file cannot be read.
    StoreError
        The store did not answer, or holds no such file (ObjectNotFoundError).
    """
    refuse_unknown("plan", arguments, PlanOptions)
    parts = _plan_parts(_engine(source, where, arguments), OnError(on_error))
    # Credentials must not stay in the variables of a frame that a traceback may show.
    del source, arguments
    return _one_plan([io_loop.run(part) for part in parts])


@spells_out(PlanOptions, as_for="scan")
async def plan_async(
    source: Source,
    where: Where = None,
    *,
    on_error: Literal["raise", "skip"] = "raise",
    **arguments: Unpack[PlanOptions],
) -> Plan:
    """Plan a scan from a coroutine.

    Parameters
    ----------
    source, where
        As for `scan`.
    on_error : {"raise", "skip"}
        What happens to a file that is missing or broken: its error is raised, or the plan goes without it and
        names it in `plan.metrics.warnings`.
    **arguments
        As for `scan`.

    Returns
    -------
    Plan
        As `plan` returns it.

    Raises
    ------
    AccelError, TypeError, ValueError
        As `plan` raises them.
    """
    refuse_unknown("plan_async", arguments, PlanOptions)
    parts = _plan_parts(_engine(source, where, arguments), OnError(on_error))
    del source, arguments
    return _one_plan([await io_loop.bridge(part) for part in parts])


def _plan_parts(engine: Engine, on_error: OnError) -> Iterator[Coroutine[Any, Any, Plan]]:
    """Plan each part of a scan; an iterator that is its source is pulled by whoever takes these."""
    return (part.plan(Metrics(), on_error=on_error) for part in engine.parts())


@spells_out(QueryOptions, as_for="scan")
def distinct(source: Source, column: str, where: Where = None, **arguments: Unpack[QueryOptions]) -> pa.Array:
    """Find the distinct values of a column of Parquet files.

    They come from the paths, an index outside the files, statistics, embedded indexes and dictionary pages
    where these prove them, and from the rows of the other pages: see docs/aggregates.md. `Scan.distinct` does
    the same for a scan, whose `explain(distinct=...)` and `metrics.distinct_units` tell which.

    Parameters
    ----------
    source : str, path, list, Plan, or iterator of record batches
        As for `scan`.
    column : str
        The column, or a dotted path into structs.
    where : str, list, or expression, optional
        Which rows count, as for `scan`.
    **arguments
        As for `scan`.

    Returns
    -------
    pyarrow.Array
        The values in ascending order, each once, of the column's type without dictionary encoding; NaN
        follows the numbers, and null, where there is one, is the last. -0.0 becomes 0.0.

    Raises
    ------
    ColumnNotFoundError
        There is no such column.
    SchemaMismatchError
        The values of the column have no order: lists, structs.
    TypeError, ValueError, PredicateError, ParquetFormatError, EncryptedFileError, StoreError
        As `plan` raises them.

    Examples
    --------
    >>> accel.distinct("s3://bucket/flights/", "carrier", "dep_delay > 60")
    """
    refuse_unknown("distinct", arguments, QueryOptions)
    whole = Scan(_engine(source, where, arguments))
    del source, arguments
    return whole.distinct(column)


@spells_out(QueryOptions, as_for="scan")
async def distinct_async(
    source: Source, column: str, where: Where = None, **arguments: Unpack[QueryOptions]
) -> pa.Array:
    """Find the distinct values of a column from a coroutine, as `distinct` does.

    Parameters
    ----------
    source, column, where
        As for `distinct`.
    **arguments
        As for `scan`.

    Returns
    -------
    pyarrow.Array
        The values in ascending order.

    Raises
    ------
    AccelError, TypeError, ValueError
        As `distinct` raises them.
    """
    refuse_unknown("distinct_async", arguments, QueryOptions)
    whole = Scan(_engine(source, where, arguments))
    del source, arguments
    return await whole.distinct_async(column)


@spells_out(ColumnOptions, as_for="scan")
def rows(source: Source, offset: int, num_rows: int, **arguments: Unpack[ColumnOptions]) -> pa.Table:
    """Read rows by their numbers, counted over all files in order: the `num_rows` from row `offset` on.

    Only the pages that hold them are read, of nested columns, too. Files before them are opened for their
    footers, unless a table counts their rows.

    Parameters
    ----------
    source : str, path, list, or FileSource
        As for `scan`.
    offset : int
        The number of the first row; 0 for the first of all.
    num_rows : int
        The number of rows.
    **arguments
        As for `scan`.

    Returns
    -------
    pyarrow.Table
        The rows; fewer, or none, where there are no more.

    Raises
    ------
    ValueError
        A number is negative, or the source is a plan or an iterator.
    TypeError, ColumnNotFoundError, ParquetFormatError, EncryptedFileError, StoreError
        As `plan` raises them.

    Examples
    --------
    >>> accel.rows("s3://bucket/flights/", 1_000_000, 100, columns=["carrier", "flight"])
    """
    refuse_unknown("rows", arguments, ColumnOptions)
    whole = Scan(_engine(source, None, arguments))
    del source, arguments
    return io_loop.run(whole._slice(offset, num_rows))


@spells_out(ColumnOptions, as_for="scan")
async def rows_async(
    source: Source, offset: int, num_rows: int, **arguments: Unpack[ColumnOptions]
) -> pa.Table:
    """Read rows by their numbers from a coroutine, as `rows` does.

    Parameters
    ----------
    source, offset, num_rows
        As for `rows`.
    **arguments
        As for `scan`.

    Returns
    -------
    pyarrow.Table
        The rows.

    Raises
    ------
    AccelError, TypeError, ValueError
        As `rows` raises them.
    """
    refuse_unknown("rows_async", arguments, ColumnOptions)
    whole = Scan(_engine(source, None, arguments))
    del source, arguments
    return await io_loop.bridge(whole._slice(offset, num_rows))


def _one_plan(plans: Sequence[Plan]) -> Plan:
    if len(plans) == 1:
        return plans[0]
    from accel.planning.plan import Plan

    tasks = [task for plan in plans for task in plan.tasks]
    metrics = Metrics()
    for plan in plans:
        metrics.merge(plan.metrics)
    return Plan(tasks, schema=plans[0].schema if plans else pa.schema([]), metrics=metrics)
