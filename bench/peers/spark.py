"""Spark over S3A, on all cores of this machine: `local[*]`, Arrow out.

The jars of S3A do not come with PySpark: `hadoop-aws` of PySpark's own Hadoop version and the AWS SDK's
bundle, 660 MB, are fetched once from Maven Central by Spark's own `--packages` into the cache of tools, and
put on the class path afterwards, so that no session copies them.

Settings, and why:

- `fs.s3a.input.stream.type=analytics`: Amazon's analytics accelerator, which Hadoop 3.5 brings for Parquet:
  footers are prefetched and kept, column chunks read ahead and blocks kept for a while. Interleaved over
  twelve warm lookups it took 0.76 of the time of `classic`, which reads two thirds of the bytes in three
  times the requests.
- Filter pushdown, column indexes, vectored reads and the vectorized reader are on by default.
- The DataFrame of each source is kept as a view: listing and schema are then read once; footers Spark reads
  on every query.
- `fs.s3a.connection.maximum` and the threads are Hadoop's defaults since 3.4 (500 and 96), raised for just
  this.
- Adaptive execution has nothing to adapt in a scan and a filter, and costs a stage: it is off. The session is
  in UTC.
- Results come by `toArrow`, the documented way to Arrow since 4.0.
- Many queries at once: a thread each under the FAIR scheduler, as "Scheduling within an application" has it.
- CPU time and memory count the JVM. Its first queries are slow until its code is compiled: ask a few before
  measuring.
"""

from __future__ import annotations

import atexit
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from bench.peers import sql
from bench.peers.endpoint import Endpoint
from bench.peers.protocol import Answer, Peer, Unsupported
from bench.queries import Query
from tests.support.s3a import install_s3a

__all__ = ["Spark", "make_session", "stop_session"]

_AT_ONCE = 16


def make_session(
    endpoint: Endpoint, settings: Mapping[str, str], *, master: str = "local[*]", stream: str = "analytics"
) -> Any:
    """A session that reads `s3a://` URLs, in UTC; `settings` are Spark's own, besides those of this module.

    Parameters
    ----------
    stream : {"analytics", "classic"}
        S3A's input stream; both take vectored reads.
    """
    try:
        jars = install_s3a()
    except FileNotFoundError as error:
        raise Unsupported(str(error)) from None
    from pyspark.sql import SparkSession

    s3a = {
        "endpoint": endpoint.url,
        "endpoint.region": endpoint.region,
        "access.key": endpoint.access_key_id,
        "secret.key": endpoint.secret_access_key,
        "aws.credentials.provider": "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider",
        "path.style.access": "true",
        "connection.ssl.enabled": str(endpoint.url.startswith("https:")).lower(),
        "input.stream.type": stream,
    }
    every: dict[str, Any] = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraClassPath": f"{jars}/*",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "4g",
        "spark.scheduler.mode": "FAIR",
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        **{f"spark.hadoop.fs.s3a.{name}": value for name, value in s3a.items()},
        **settings,
    }
    session = SparkSession.builder.master(master).config(map=every).getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def stop_session(session: Any) -> None:
    """Stop it, and let the JVM end by itself: it has folders to remove."""
    gateway = session.sparkContext._gateway
    session.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(8)


class Spark(Peer):
    """`pyspark`, in SQL."""

    def open(self, endpoint: Endpoint) -> None:
        if endpoint.tls:
            raise Unsupported("the JVM trusts no file in PEM: it would need a key store")
        self._spark = make_session(endpoint, {"spark.sql.adaptive.enabled": "false"})
        self._endpoint = endpoint
        self._views: dict[tuple[str, ...], str] = {}
        atexit.register(stop_session, self._spark)

    def forget(self) -> None:
        for view in self._views.values():
            self._spark.catalog.dropTempView(view)
        self._views.clear()
        # The analytics stream keeps footers and blocks as long as the file system is open.
        self._spark._jvm.org.apache.hadoop.fs.FileSystem.closeAll()

    def _statement(self, query: Query) -> str:
        if query.row_groups is not None:
            raise Unsupported("SQL has no words for row groups")
        view = self._views.get(query.paths)
        if view is None:
            view = f"t{len(self._views)}"
            urls = [self._endpoint.object_url(path, scheme="s3a") for path in query.paths]
            self._spark.read.parquet(*urls).createOrReplaceTempView(view)
            self._views[query.paths] = view
        return sql.select(query, view, quote="`")

    def _take(self, query: Query, statement: str) -> tuple[int, Any]:
        found: Any = self._spark.sql(statement).toArrow()
        return (int(found.column(0)[0].as_py()), None) if query.count else (int(found.num_rows), found)

    def run(self, query: Query) -> Answer:
        started = time.perf_counter()
        rows, table = self._take(query, self._statement(query))
        return Answer(rows, time.perf_counter() - started, table)

    def concurrently(self, queries: Sequence[Query]) -> list[int]:
        from pyspark import inheritable_thread_target

        statements = [self._statement(query) for query in queries]
        with ThreadPoolExecutor(_AT_ONCE) as threads:
            take = inheritable_thread_target(self._spark)(self._take)
            return [rows for rows, _ in threads.map(take, queries, statements)]
