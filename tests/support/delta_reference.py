"""Rows as other readers have them, in a form that can be compared, and DuckDB's reader of Delta tables."""

from __future__ import annotations

import datetime
import decimal
import importlib.resources
import math
from collections import Counter
from typing import Any

import pyarrow as pa

__all__ = ["DuckDelta", "rows_of"]


class DuckDelta:
    """DuckDB with its delta extension, of the package `duckdb-extension-delta`: nothing is downloaded."""

    def __init__(self) -> None:
        self._connection: Any = None

    def read(self, path: str, where: str = "true", version: int | None = None) -> pa.Table:
        """Return the rows of a table; the connection is made anew after an error, which may break it."""
        import duckdb

        if self._connection is None:
            self._connection = duckdb.connect(config={"allow_unsigned_extensions": "true"})
            folder = importlib.resources.files("duckdb_extension_delta") / "extensions"
            file = folder / f"v{duckdb.__version__}" / "delta.duckdb_extension"
            self._connection.execute(f"load '{file}'")
            self._connection.execute("set timezone = 'UTC'")
        at = "" if version is None else f", version := {version}"
        try:
            return self._connection.execute(
                f"select * from delta_scan('{path}'{at}) where {where}"
            ).to_arrow_table()
        except Exception:
            self._connection = None
            raise


def rows_of(table: pa.Table) -> Counter[tuple[str, ...]]:
    """Return the rows of a table, in no order, with columns by name; floats to twelve digits."""
    names = sorted(table.schema.names)
    columns = [[repr(_plain(value)) for value in table.column(name).to_pylist()] for name in names]
    return Counter(zip(*columns, strict=True)) if columns else Counter()


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return "nan" if math.isnan(value) else round(value, 12) + 0.0
    if isinstance(value, datetime.datetime):
        return (value.astimezone(datetime.UTC).replace(tzinfo=None) if value.tzinfo else value).isoformat()
    if isinstance(value, datetime.date):
        return value.isoformat()
    if isinstance(value, decimal.Decimal):
        return str(value)
    if isinstance(value, dict):
        return tuple(sorted((key, _plain(each)) for key, each in value.items()))
    if isinstance(value, list | tuple):
        return tuple(_plain(each) for each in value)
    return value
