"""DuckDB with its real httpfs, in SQL: once with its data cache off, once with all of its caches on.

The extension is PyPI's `duckdb-extension-httpfs`, loaded by path, with the DuckDB that it pins: no download
at run time, and the very code that `INSTALL httpfs` fetches.

Settings, and why:

- `parquet_metadata_cache` and `enable_http_metadata_cache` (both off by default) in both: footers are parsed
  once, and the HEAD of each open is saved. They are what makes it metadata-warm.
- `enable_external_file_cache` (on by default) keeps the bytes of files: it is what `duckdb-cached` has and
  `duckdb` has not. A system that answers from a data cache sends nothing; the two are therefore told apart.
  `validate_external_file_cache` stays at its default.
- `threads` at five times the cores, with the data cache at three: DuckDB reads remote files synchronously, a
  request a thread, and its guide ("Tuning workloads: querying remote files") advises two to five times the
  cores. Against three threads on two cores, ten took 0.6 to 0.8 of the time of scans, IN of 100 keys and weak
  filters that send requests, and 1.1 to 1.3 of it where the cache answers, which is what `duckdb-cached` is
  for.
- The HTTP client stays the default one: with `curl` 2,000 small files took 1.2 times as long.
- `httpfs_connection_caching`: connections outlive the query.
- By TLS, `enable_server_cert_verification` (off by default) with `ca_cert_file`: all others verify the server.
- The statement itself names `read_parquet`: a view would be bound again by every query all the same.
- Many queries at once: a cursor a thread, as the guide on several Python threads has it.
"""

from __future__ import annotations

import importlib.resources
import os
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from bench.peers import sql
from bench.peers.endpoint import Endpoint
from bench.peers.protocol import Answer, Peer, Unsupported
from bench.queries import Query

__all__ = ["DuckDB"]

_AT_ONCE = 32
_BATCH_ROWS = 122_880
_THREADS_A_CORE = {False: 5, True: 3}


class DuckDB(Peer):
    """`duckdb`.

    Parameters
    ----------
    cached : bool
        Keep the bytes of remote files too.
    """

    def __init__(self, *, cached: bool = False) -> None:
        self._cached = cached
        self._connection: Any = None

    def open(self, endpoint: Endpoint) -> None:
        import duckdb

        try:
            folder = importlib.resources.files("duckdb_extension_httpfs")
        except ModuleNotFoundError:
            raise Unsupported(
                "PyPI's duckdb-extension-httpfs is not installed: it is in the extra `bench`"
            ) from None
        # There is one for each DuckDB: of another version it would be refused.
        self._extension = folder / "extensions" / f"v{duckdb.__version__}" / "httpfs.duckdb_extension"
        self._duckdb = duckdb
        self._endpoint = endpoint
        self.forget()

    def prepare(self, query: Query) -> None:
        """Nothing is to be known before."""

    def forget(self) -> None:
        if self._connection is not None:
            self._connection.close()
        # Unnamed databases in memory share nothing.
        connection = self._connection = self._duckdb.connect(":memory:")
        connection.load_extension(str(self._extension))
        settings = {
            "enable_external_file_cache": self._cached,
            "enable_http_metadata_cache": True,
            "enable_progress_bar": False,
            "httpfs_connection_caching": True,
            "parquet_metadata_cache": True,
            "threads": _THREADS_A_CORE[self._cached] * (os.cpu_count() or 1),
        }
        for name, value in settings.items():
            connection.execute(f"SET {name} = {str(value).lower()}")
        endpoint = self._endpoint
        if endpoint.tls:  # for cursors too
            connection.execute("SET GLOBAL enable_server_cert_verification = true")
            connection.execute(f"SET GLOBAL ca_cert_file = {sql.literal(endpoint.authorities)}")
        secret = {
            "KEY_ID": endpoint.access_key_id,
            "SECRET": endpoint.secret_access_key,
            "REGION": endpoint.region,
            "ENDPOINT": endpoint.netloc,
            "URL_STYLE": "path",
        }
        words = ", ".join(f"{name} {sql.literal(value)}" for name, value in secret.items())
        connection.execute(f"CREATE SECRET (TYPE s3, {words}, USE_SSL {str(endpoint.tls).lower()})")

    def _statement(self, query: Query) -> str:
        if query.row_groups is not None:
            raise Unsupported("read_parquet takes no row groups")
        keys = [path + "*.parquet" if path.endswith("/") else path for path in query.paths]
        urls = [sql.literal(self._endpoint.object_url(key)) for key in keys]
        return sql.select(query, f"read_parquet([{', '.join(urls)}])")

    def run(self, query: Query) -> Answer:
        started = time.perf_counter()
        statement = self._statement(query)
        if query.where or query.count:
            rows, table = _take(self._connection, query, statement)
            return Answer(rows, time.perf_counter() - started, table)
        first, rows = None, 0
        for batch in self._connection.execute(statement).to_arrow_reader(_BATCH_ROWS):
            first = first or time.perf_counter() - started
            rows += batch.num_rows
        return Answer(rows, first or time.perf_counter() - started)

    def concurrently(self, queries: Sequence[Query]) -> list[int]:
        own = threading.local()

        def one(query: Query) -> int:
            if not hasattr(own, "cursor"):
                own.cursor = self._connection.cursor()
            return _take(own.cursor, query, self._statement(query))[0]

        with ThreadPoolExecutor(_AT_ONCE) as threads:
            return list(threads.map(one, queries))


def _take(connection: Any, query: Query, statement: str) -> tuple[int, Any]:
    found = connection.execute(statement)
    if query.count:
        return int(found.fetchone()[0]), None
    table = found.to_arrow_table()
    return int(table.num_rows), table
