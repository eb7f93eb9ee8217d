"""accel at its defaults: one cache for the process, `to_table_async` gathered for many queries at once.

Nothing is tuned. `forget` takes a new `accel.Cache`; the S3 client and its sockets stay, as they do for the
others. A full scan is streamed, and its batches dropped as a consumer would; a selective query is taken as
one table.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any

from bench.peers import sql
from bench.peers.endpoint import Endpoint
from bench.peers.protocol import Answer, Peer
from bench.queries import Query

__all__ = ["Accel"]


class Accel(Peer):
    """This library."""

    def open(self, endpoint: Endpoint) -> None:
        import accel

        self._accel = accel
        self._endpoint = endpoint
        self._options = endpoint.storage_options()
        self._group_rows: dict[tuple[str, int], int] = {}
        self.forget()

    def prepare(self, query: Query) -> None:
        """A selection is of rows: whoever names row groups knows how many they have."""
        if query.row_groups is None:
            return
        for path in query.paths:
            url = self._endpoint.object_url(path)
            if (url, query.row_groups[0]) not in self._group_rows:
                past_network = self._endpoint.storage_options(past_network=True)
                plan = self._accel.plan(url, columns=[], storage_options=past_network, cache=None)
                self._group_rows.update({(url, task.row_group): task.num_rows for task in plan.tasks})

    def _scan(self, query: Query) -> Any:
        urls = [self._endpoint.object_url(path) for path in query.paths]
        selection = None
        if query.row_groups is not None:
            selection = {
                url: {group: [(0, self._group_rows[url, group])] for group in query.row_groups}
                for url in urls
            }
        return self._accel.scan(
            urls[0] if len(urls) == 1 else urls,
            sql.where(query) or None,
            columns=query.columns,
            selection=selection,
            storage_options=self._options,
            cache=self._cache,
        )

    def run(self, query: Query) -> Answer:
        started = time.perf_counter()
        scan = self._scan(query)
        table = None
        if query.count:
            rows = scan.count_rows()
        elif query.where:
            table = scan.to_table()
            rows = table.num_rows
        else:
            first, rows = None, 0
            for batch in scan:
                first = first or time.perf_counter() - started
                rows += batch.num_rows
            if first is not None:
                return Answer(rows, first)
        return Answer(rows, time.perf_counter() - started, table)

    def forget(self) -> None:
        self._cache = self._accel.Cache()

    def concurrently(self, queries: Sequence[Query]) -> list[int]:
        async def one(query: Query) -> int:
            scan = self._scan(query)
            found = await (scan.count_rows_async() if query.count else scan.to_table_async())
            return int(found if query.count else found.num_rows)

        async def every() -> list[int]:
            return await asyncio.gather(*map(one, queries))

        return asyncio.run(every())
