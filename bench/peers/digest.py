"""A short name for the values of an answer, by which systems are compared: they may differ in types, and in
the order of rows."""

from __future__ import annotations

import datetime as dt
import decimal
import hashlib
from typing import Any

__all__ = ["MOST_ROWS", "digest"]

MOST_ROWS = 5_000
"""Of longer answers only the number of rows is compared: to sort them would take longer than the query."""


def digest(answer: Any) -> str:
    """Sixteen hexadecimal digits of what a table says, whatever the order of its rows and columns; "" where
    it is not told.

    Parameters
    ----------
    answer : pyarrow.Table, list of it or of batches, polars.DataFrame, or None
        What a system gave.
    """
    rows: list[str] = []
    for part in answer if isinstance(answer, list) else [answer]:
        if part is None:
            return ""
        table = part.to_arrow() if hasattr(part, "to_arrow") else part
        if len(rows) + table.num_rows > MOST_ROWS:
            return ""
        names = sorted(table.schema.names)
        rows += [repr([(name, _plain(row[name])) for name in names]) for row in table.to_pylist()]
    return hashlib.sha256("\n".join(sorted(rows)).encode()).hexdigest()[:16]


def _plain(value: Any) -> Any:
    """The same for all systems: moments in UTC, decimals as numbers, text as text."""
    if isinstance(value, decimal.Decimal):
        return str(value.normalize())
    if isinstance(value, dt.datetime):
        zoned = value if value.tzinfo is not None else value.replace(tzinfo=dt.UTC)
        return zoned.astimezone(dt.UTC).strftime("%Y-%m-%d %H:%M:%S.%f")
    if isinstance(value, dt.date):
        return value.isoformat()
    return value
