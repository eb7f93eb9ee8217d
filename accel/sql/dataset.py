"""`accel.dataset`: Parquet files as a data set of pyarrow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from accel.api import scan as scan_files
from accel.predicate.where import to_expr
from accel.scanning.arrow_dataset import AccelDataset

if TYPE_CHECKING:
    import pyarrow.dataset

    from accel.predicate.where import Where

__all__ = ["dataset"]


def dataset(source: Any, where: Where = None, **arguments: Any) -> pyarrow.dataset.Dataset:
    """Open Parquet files as a data set of pyarrow, for engines that push filters and columns into one
    (docs/engines.md).

    Parameters
    ----------
    source, where
        As for `scan`.
    **arguments
        As for `scan`, but for `limit`: `columns`, `schema`, `partitioning`, `index`, `store`,
        `storage_options`, `cache`, `options` and the others.

    Returns
    -------
    pyarrow.dataset.Dataset
        The data set. Making it reads one footer, if `schema=` is not given.

    Raises
    ------
    TypeError, ValueError, PredicateError
        As `scan` raises them.
    ObjectNotFoundError, StoreError, ParquetFormatError
        The schema cannot be read.

    Examples
    --------
    >>> flights = accel.dataset("s3://bucket/flights/")
    >>> duckdb.sql("SELECT count(*) FROM flights WHERE carrier = 'UA'")
    """
    predicate = to_expr(where)
    # The cache of another process is its own.
    kept = {key: value for key, value in arguments.items() if key != "cache" or value is None}
    return AccelDataset(
        scan_files(source, predicate, **arguments), remake=(_again, (source, predicate, kept))
    )


def _again(source: Any, where: Any, arguments: dict[str, Any]) -> pyarrow.dataset.Dataset:
    return dataset(source, where, **arguments)
