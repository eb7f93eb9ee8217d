"""DataFusion over its object store, with and without filter pushdown: both are run, as neither wins
everywhere.

Settings, and why:

- Each table is registered once and kept: since 50 its parsed footers and page indexes are then cached, and
  since 52 its statistics and listings (release notes; all on by default). The caches' limits are raised from
  50, 20 and 1 MB, so that the wide table and the 2,000 files fit.
- `metadata_size_hint` stays at 512 KiB, the default since 51: one request for footer and page index.
- `target_partitions` at four times the cores: a partition waits for one request at a time, and "increasing
  partitions can increase concurrency". Scans took 0.5 to 0.75 of the time, lookups the same.
- `meta_fetch_concurrency` from 32 to 128: so many files are met at a time when a table is registered. 2,000
  small files took 0.9 s instead of 2.4.
- `max_in_list_size` from 20 to 1,000: longer IN lists would not prune ("higher values help in cases such as
  filtering on a list of 25 to 100 identifiers"). IN of 100 keys took 0.45 of the time, a quarter of the
  bytes.
- `parse_float_as_decimal`: 0.05 against a decimal column is a decimal, and prunes.
- Page index, bloom filters and statistics are on by default. `pushdown_filters` is off by default; with it
  goes `reorder_filters`, which the documentation names beside it.
- Many queries at once: one thread each over one context. `collect` releases the GIL, and all share
  DataFusion's own runtime.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from bench.peers import sql
from bench.peers.endpoint import Endpoint
from bench.peers.protocol import Answer, Peer, Unsupported
from bench.queries import Query

__all__ = ["DataFusion"]

_RUNTIME = ("metadata_cache_limit", "file_statistics_cache_limit", "list_files_cache_limit")
_AT_ONCE = 64


class DataFusion(Peer):
    """`datafusion`, in SQL.

    Parameters
    ----------
    pushdown : bool
        Filter rows while decoding ("late materialization").
    """

    def __init__(self, *, pushdown: bool = False) -> None:
        self._pushdown = pushdown

    def open(self, endpoint: Endpoint) -> None:
        import datafusion
        import datafusion.object_store

        self._datafusion = datafusion
        self._endpoint = endpoint
        self.forget()

    def forget(self) -> None:
        options = {
            "datafusion.execution.meta_fetch_concurrency": 128,
            "datafusion.execution.target_partitions": 4 * (os.cpu_count() or 1),
            "datafusion.execution.parquet.pushdown_filters": self._pushdown,
            "datafusion.execution.parquet.reorder_filters": self._pushdown,
            "datafusion.execution.parquet.max_in_list_size": 1000,
            "datafusion.sql_parser.parse_float_as_decimal": True,
        }
        config = self._datafusion.SessionConfig()
        for key, value in options.items():
            config = config.set(key, str(value).lower())
        context = self._datafusion.SessionContext(config)
        for limit in _RUNTIME:
            context.sql(f"SET datafusion.runtime.{limit} = '1G'").collect()
        endpoint = self._endpoint
        store = self._datafusion.object_store.AmazonS3(
            bucket_name=endpoint.bucket,
            region=endpoint.region,
            access_key_id=endpoint.access_key_id,
            secret_access_key=endpoint.secret_access_key,
            endpoint=endpoint.url,
            allow_http=True,
        )
        context.register_object_store("s3://", store, endpoint.bucket)
        self._context = context
        self._tables: dict[tuple[str, ...], str] = {}

    def _table(self, query: Query) -> str:
        """The name under which the query's files are registered, once."""
        if query.row_groups is not None:
            raise Unsupported("SQL has no words for row groups, and Python no access plan")
        name = self._tables.get(query.paths)
        if name is None:
            name = f"t{len(self._tables)}"
            parts = [name] if len(query.paths) == 1 else [f"{name}_{i}" for i in range(len(query.paths))]
            for part, path in zip(parts, query.paths, strict=True):
                self._context.register_parquet(part, self._endpoint.object_url(path))
            if len(parts) > 1:
                union = " UNION ALL ".join(f"SELECT * FROM {part}" for part in parts)
                self._context.sql(f"CREATE VIEW {name} AS {union}").collect()
            self._tables[query.paths] = name
        return name

    def run(self, query: Query) -> Answer:
        started = time.perf_counter()
        statement = sql.select(query, self._table(query))
        if query.where or query.count:
            rows, batches = self._collect(query, statement)
            return Answer(rows, time.perf_counter() - started, batches)
        first, rows = None, 0
        for batch in self._context.sql(statement).execute_stream():
            first = first or time.perf_counter() - started
            rows += batch.to_pyarrow().num_rows
        return Answer(rows, first or time.perf_counter() - started)

    def _collect(self, query: Query, statement: str) -> tuple[int, list[Any] | None]:
        batches: list[Any] = self._context.sql(statement).collect()
        if query.count:
            return int(batches[0].column(0)[0].as_py()), None
        return sum(batch.num_rows for batch in batches), batches

    def concurrently(self, queries: Sequence[Query]) -> list[int]:
        statements = [sql.select(query, self._table(query)) for query in queries]
        with ThreadPoolExecutor(_AT_ONCE) as threads:
            return [rows for rows, _ in threads.map(self._collect, queries, statements)]
