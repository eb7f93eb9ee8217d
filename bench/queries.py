"""What the benchmark asks: a query that every system can be asked in its own words, and its JSON."""

from __future__ import annotations

import datetime as dt
import json
from dataclasses import dataclass
from typing import Any

__all__ = ["Query", "from_json", "to_json"]

OPS = ("=", "in", "<", "<=", ">", ">=", "prefix")


@dataclass(frozen=True, slots=True)
class Query:
    """A projection and a conjunction over one or several Parquet objects of the benchmark's bucket.

    Raises
    ------
    ValueError
        When there is no path, or an operator is not one of `OPS`.
    """

    name: str
    """Unique within a run; also names the plot."""
    paths: tuple[str, ...]
    """Object keys within the bucket; a single one that ends in "/" is a directory of files."""
    columns: tuple[str, ...] | None = None
    """The columns wanted, in order; None for all."""
    where: tuple[tuple[str, str, Any], ...] = ()
    """AND of (column, op, value). Values: int, float, str, date, datetime (UTC), or for `in` a tuple of
    them."""
    count: bool = False
    """Only the number of rows is wanted."""
    row_groups: tuple[int, ...] | None = None
    """Only these row groups; a system that cannot say so does not support the query."""

    def __post_init__(self) -> None:
        if not self.paths:
            raise ValueError(f"query {self.name!r} names no object")
        for column, op, _ in self.where:
            if op not in OPS:
                raise ValueError(f"query {self.name!r} has the unknown operator {op!r} on {column!r}")


def to_json(query: Query) -> str:
    """One line of JSON; dates and moments are tagged, so that `from_json` gives the same query back."""
    return json.dumps(
        {
            "name": query.name,
            "paths": query.paths,
            "columns": query.columns,
            "where": [[column, op, _tagged(value)] for column, op, value in query.where],
            "count": query.count,
            "row_groups": query.row_groups,
        }
    )


def from_json(text: str) -> Query:
    """The query that `to_json` wrote."""
    fields = json.loads(text)
    columns, row_groups = fields["columns"], fields["row_groups"]
    return Query(
        name=fields["name"],
        paths=tuple(fields["paths"]),
        columns=None if columns is None else tuple(columns),
        where=tuple((column, op, _untagged(value)) for column, op, value in fields["where"]),
        count=fields["count"],
        row_groups=None if row_groups is None else tuple(row_groups),
    )


def _tagged(value: Any) -> Any:
    if isinstance(value, tuple):
        return {"in": [_tagged(each) for each in value]}
    if isinstance(value, dt.datetime):  # before date, which it is too
        return {"datetime": value.isoformat()}
    if isinstance(value, dt.date):
        return {"date": value.isoformat()}
    if isinstance(value, (int, float, str)):
        return value
    raise TypeError(f"{value!r} is no value of the benchmark's queries")


def _untagged(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    if "in" in value:
        return tuple(_untagged(each) for each in value["in"])
    if "datetime" in value:
        return dt.datetime.fromisoformat(value["datetime"])
    return dt.date.fromisoformat(value["date"])
