"""arro3-io over its own object store: arrow-rs's reader in Python, as far as it is bound.

Settings, and why:

- `read_parquet_async(path, store=...)` is all there is: it takes neither columns nor a filter nor row groups,
  so every file is read whole, and pyarrow does the rest from memory. That is what its user would do.
- Files of a directory are read at once, gathered; of an open file it keeps nothing.
- 256 queries at once are not asked of it: each would hold all of the file.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any

from bench.peers.endpoint import Endpoint
from bench.peers.protocol import Answer, Peer, Unsupported
from bench.queries import Query

__all__ = ["Arro3"]

_FILES_AT_ONCE = 64


class Arro3(Peer):
    """`arro3-io`."""

    def open(self, endpoint: Endpoint) -> None:
        import arro3.io
        import obstore
        import pyarrow
        from arro3.io.store import S3Store

        from bench.peers.exact import compile_mask

        options = endpoint.storage_options()
        settings: Any = {"client_options": {"allow_http": options.pop("allow_http") == "true"}, **options}
        self._read = arro3.io.read_parquet_async
        make: Any = S3Store  # its types know of no arguments
        self._store = make(endpoint.bucket, **settings)
        # It lists nothing itself.
        self._list = obstore.list
        self._lister = obstore.store.S3Store(endpoint.bucket, **settings)
        self._arrow, self._compile_mask = pyarrow, compile_mask
        self._runner = asyncio.Runner()

    def forget(self) -> None:
        """It keeps nothing."""

    def run(self, query: Query) -> Answer:
        if query.row_groups is not None:
            raise Unsupported("read_parquet_async takes no row groups")
        started = time.perf_counter()
        tables, first = self._runner.run(self._answer(query))
        rows = sum(int(table.num_rows) for table in tables)
        return Answer(rows, first - started, tables if query.where and not query.count else None)

    async def _answer(self, query: Query) -> tuple[list[Any], float]:
        first = 0.0
        turns = asyncio.Semaphore(_FILES_AT_ONCE)

        async def one(key: str) -> Any:
            nonlocal first
            async with turns:
                table = self._arrow.table(await self._read(key, store=self._store))
            found = self._take(query, table)
            first = first or time.perf_counter()
            return found

        keys = [key for path in query.paths for key in self._keys(path)]
        return await asyncio.gather(*map(one, keys)), first or time.perf_counter()

    def _keys(self, path: str) -> list[str]:
        if not path.endswith("/"):
            return [path]
        found = [entry["path"] for page in self._list(self._lister, path) for entry in page]
        return [key for key in found if key.endswith(".parquet")]

    def _take(self, query: Query, table: Any) -> Any:
        mask = self._compile_mask(query, table.schema)
        if query.columns is not None and not query.count:
            columns = table.select(query.columns)
        else:
            columns = table
        if mask is None:
            return columns
        return columns.filter(mask({name: table.column(name) for name, _, _ in query.where}))

    def concurrently(self, queries: Sequence[Query]) -> list[int]:
        raise Unsupported("it reads whole files: so many of them at once would not fit into memory")
