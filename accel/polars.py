"""Lazy frames of Polars over Parquet files that accel reads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from accel.api import scan as scan_files
from accel.predicate.expr import And, join
from accel.predicate.where import to_expr
from accel.scanning.scan import Scan

if TYPE_CHECKING:
    import polars

    from accel.predicate.where import Where

__all__ = ["scan"]


def scan(source: Any, where: Where = None, **arguments: Any) -> polars.LazyFrame:
    """Open Parquet files as a lazy frame of Polars. No I/O happens before the frame is collected, or its
    schema.

    Columns, filters and row limits are pushed into accel, and rows are streamed. What accel does not
    understand of a filter is left to Polars (docs/engines.md).

    Parameters
    ----------
    source, where
        As for `accel.scan`.
    **arguments
        As for `accel.scan`, but for `limit`: `columns`, `schema`, `partitioning`, `index`, `store`,
        `storage_options`, `cache`, `options` and the others.

    Returns
    -------
    polars.LazyFrame
        The rows.

    Raises
    ------
    ModuleNotFoundError
        Polars is not installed.
    TypeError, ValueError, PredicateError
        As `accel.scan` raises them.

    Examples
    --------
    >>> flights = accel.polars.scan("s3://bucket/flights/")
    >>> flights.filter(polars.col("carrier") == "UA").select("flight").collect()
    """
    whole = scan_files(source, to_expr(where), **arguments)
    if whole.engine.stream:
        raise ValueError("a lazy frame asks anew for columns and rows: make it of paths, not of an iterator")
    if whole.engine.spec.limit is not None:
        raise ValueError(
            "a lazy frame has no limit, because filters come before it: use head or limit of the frame"
        )
    from polars.io.plugins import register_io_source

    def schema() -> polars.Schema:
        return _frame(whole.schema.empty_table()).schema

    def read(
        columns: list[str] | None, predicate: polars.Expr | None, rows: int | None, _: int | None
    ) -> Iterator[polars.DataFrame]:
        return _read(whole, columns, predicate, rows)

    return register_io_source(read, schema=schema, explain_name="accel", explain_detail=repr(whole))


def _read(
    whole: Scan, columns: list[str] | None, predicate: polars.Expr | None, rows: int | None
) -> Iterator[polars.DataFrame]:
    """Yield the frames that Polars asks for: of the first rows alone those that match."""
    changes: dict[str, Any] = {}
    if columns:
        changes["columns"] = tuple(columns)
    if rows is not None:
        # They are counted before the filter, which so says nothing of what is to be read.
        changes["limit"] = rows
    elif predicate is not None:
        from accel.predicate.polars_expression import from_polars

        pushed, own = from_polars(predicate, whole.schema), whole.engine.spec.where
        if pushed is not None:
            changes |= {"where": pushed if own is None else join(And, [own, pushed]), "where_text": None}
    batches = whole._changed(**changes).to_batches()
    try:
        for batch in batches:
            frame = _frame(batch)
            if predicate is not None:
                # Also for what was pushed: its types may be compared by other rules than the file's.
                frame = frame.filter(predicate)
            yield frame if columns is None else frame.select(columns)
    finally:
        batches.close()


def _frame(data: Any) -> polars.DataFrame:
    import polars

    found = polars.from_arrow(data)
    if not isinstance(found, polars.DataFrame):
        raise TypeError(f"Polars made a {type(found).__name__} of a table")
    return found
