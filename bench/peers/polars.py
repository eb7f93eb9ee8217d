"""Polars: `scan_parquet`, lazily, so that projection and filter are pushed down; there is nothing it keeps
open.

Settings, and why:

- The defaults: statistics on, `parallel="auto"` (which prefilters where it pays), the streaming engine where
  it is the default. Of an open file it keeps nothing, so it reads the footer on every query; its connections
  it does keep.
- The storage options name the server in full, and the credential provider is off: none is looked for.
- `schema` is not given: the documentation offers it to save a footer, and the plan then still reads it.
- `POLARS_NUM_READERS_PRE_INIT=64` from 5 on two cores: so many files are met at a time. It is the variable
  that Polars' authors added for scans of many small files (pull request 22700). 2,000 of them took 1.6 s
  instead of 14.3.
- A count is `select(pl.len())`, which reads the footers alone where there is no filter.
- Many queries at once: `collect_all`, as documented; a thread a query is no faster. Nor did the other engine
  or another `parallel` help in any query.
- A list of values is `is_in`, a prefix `str.starts_with`: both are pushed down.
"""

from __future__ import annotations

import datetime as dt
import os
import time
from collections.abc import Sequence
from typing import Any

from bench.peers.endpoint import Endpoint
from bench.peers.protocol import Answer, Peer, Unsupported
from bench.queries import Query

__all__ = ["Polars", "expression"]


def expression(query: Query) -> Any:
    """The conditions as one expression of Polars; None where there are none."""
    import polars as pl

    parts = []
    for column, op, value in query.where:
        left = pl.col(column)
        match op:
            case "in":
                parts.append(left.is_in(list(value)))
            case "prefix":
                parts.append(left.str.starts_with(value))
            case "=":
                parts.append(left == _literal(value))
            case "<":
                parts.append(left < _literal(value))
            case "<=":
                parts.append(left <= _literal(value))
            case ">":
                parts.append(left > _literal(value))
            case _:
                parts.append(left >= _literal(value))
    joined = None
    for part in parts:
        joined = part if joined is None else joined & part
    return joined


def _literal(value: Any) -> Any:
    import polars as pl

    if isinstance(value, dt.datetime) and value.tzinfo is not None:
        # Files say UTC; a literal of another zone would be another type.
        return pl.lit(value.astimezone(dt.UTC).replace(tzinfo=None)).dt.replace_time_zone("UTC")
    return value


class Polars(Peer):
    """`polars`, lazily."""

    def open(self, endpoint: Endpoint) -> None:
        os.environ["POLARS_NUM_READERS_PRE_INIT"] = "64"
        import polars as pl

        self._pl = pl
        self._endpoint = endpoint
        self._options = {
            "aws_endpoint_url": endpoint.url,
            "aws_access_key_id": endpoint.access_key_id,
            "aws_secret_access_key": endpoint.secret_access_key,
            "aws_region": endpoint.region,
            "aws_allow_http": "true",
        }

    def forget(self) -> None:
        """It keeps nothing."""

    def _frame(self, query: Query) -> Any:
        if query.row_groups is not None:
            raise Unsupported("scan_parquet takes no row groups")
        urls = [self._endpoint.object_url(path) for path in query.paths]
        frame = self._pl.scan_parquet(urls, storage_options=self._options, credential_provider=None)
        where = expression(query)
        if where is not None:
            frame = frame.filter(where)
        if query.count:
            return frame.select(self._pl.len())
        return frame if query.columns is None else frame.select(query.columns)

    def run(self, query: Query) -> Answer:
        started = time.perf_counter()
        frame = self._frame(query).collect()
        rows = _rows(query, frame)
        return Answer(rows, time.perf_counter() - started, frame if query.where and not query.count else None)

    def concurrently(self, queries: Sequence[Query]) -> list[int]:
        found = self._pl.collect_all([self._frame(query) for query in queries])
        return [_rows(query, frame) for query, frame in zip(queries, found, strict=True)]


def _rows(query: Query, frame: Any) -> int:
    return int(frame.item()) if query.count else int(frame.height)
