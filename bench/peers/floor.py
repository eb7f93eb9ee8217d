"""The floor: the same bytes by bare obstore in the fewest round trips, decoded by pyarrow from memory. No
system is it.

It is idealised in that it knows, before the clock starts, what a system has to find out: `prepare` lets accel
plan the query past the slow network, and works out the byte ranges, the small file that they become and the
rows in it that are undecided. What is timed:

- Not met since `forget`: a listing where the source is a directory; the tail of every file (128 KiB, or the
  footer where that is longer), all at once, and pyarrow's parse of the footers. A file within its tail is
  then all there.
- All ranges at once: neighbours merged over gaps of up to 32 KiB (what arrives while a request costs 0.4 ms
  of CPU), long ones split at 8 MiB. Dictionary pages that were met are kept, as metadata is; data never is,
  so that a repeated query costs its round trip again.
- pyarrow's decode of the small file, and the conditions by pyarrow.compute over the undecided rows.

There is no pinning to a version, no retry, no limit of memory. Row groups are decoded in threads where they
are large.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any

from cachetools import LRUCache

from bench.peers import sql
from bench.peers.endpoint import Endpoint
from bench.peers.layout import Layout, Range, lay_out, merge
from bench.peers.protocol import Answer, Peer
from bench.queries import Query

__all__ = ["Floor"]

_TAIL = 128 << 10
_INLINE = 256 << 10
_PREPARED = 1024
_GROUPS_AT_ONCE = 16
_REQUESTS_AT_ONCE = 64


class Floor(Peer):
    """Bare obstore and pyarrow, told what to fetch."""

    def open(self, endpoint: Endpoint) -> None:
        import obstore
        import pyarrow.parquet
        from obstore.store import S3Store

        import accel

        self._accel, self._obstore, self._parquet = accel, obstore, pyarrow.parquet
        self._endpoint = endpoint
        self._store = S3Store(endpoint.bucket, **_config(endpoint.storage_options()))
        self._origin = S3Store(endpoint.bucket, **_config(endpoint.storage_options(past_network=True)))
        self._plans = accel.Cache()
        self._runner = asyncio.Runner()
        self._gate = asyncio.Semaphore(_REQUESTS_AT_ONCE)
        self._prepared: LRUCache[Query, list[Layout]] = LRUCache(_PREPARED)
        self._tail_sizes: dict[str, int] = {}
        self._keys: dict[str, list[str]] = {}
        self.forget()

    def forget(self) -> None:
        self._listed: set[str] = set()
        self._held: dict[str, list[tuple[int, memoryview]]] = {}
        """Of each file that was met: its tail, and dictionary pages, by where they start."""

    # -- before the clock starts -------------------------------------------------------------------

    def prepare(self, query: Query) -> None:
        if query in self._prepared:
            return
        for path in query.paths:
            if path not in self._keys:
                self._keys[path] = self._list(self._origin, path) if path.endswith("/") else [path]
            for key in self._keys[path]:
                if key not in self._tail_sizes:
                    last = self._obstore.get(self._origin, key, options={"range": {"suffix": 8}})
                    footer = int.from_bytes(bytes(last.bytes())[:4], "little") + 8
                    self._tail_sizes[key] = min(max(footer, _TAIL), last.meta["size"])
        urls = [self._endpoint.object_url(path) for path in query.paths]
        plan = self._accel.plan(
            urls[0] if len(urls) == 1 else urls,
            sql.where(query) or None,
            columns=[] if query.count else query.columns,
            storage_options=self._endpoint.storage_options(past_network=True),
            cache=self._plans,
        )
        groups = query.row_groups
        tasks = [task for task in plan.tasks if groups is None or task.row_group in groups]
        self._prepared[query] = [lay_out(query, task) for task in tasks]

    def _list(self, store: Any, path: str) -> list[str]:
        found = [entry["path"] for page in self._obstore.list(store, path) for entry in page]
        return [key for key in found if key.endswith(".parquet")]

    # -- what is timed -----------------------------------------------------------------------------

    def run(self, query: Query) -> Answer:
        started = time.perf_counter()
        rows, first = self._runner.run(self._answer(query))
        return Answer(rows, (first or time.perf_counter()) - started)

    def concurrently(self, queries: Sequence[Query]) -> list[int]:
        async def every() -> list[tuple[int, float]]:
            return await asyncio.gather(*map(self._answer, queries))

        return [rows for rows, _ in self._runner.run(every())]

    async def _answer(self, query: Query) -> tuple[int, float]:
        """The rows, and when the first of them were there."""
        layouts = self._prepared[query]
        for path in query.paths:
            if path.endswith("/") and path not in self._listed:
                await asyncio.to_thread(self._list, self._store, path)
                self._listed.add(path)
        keys = [key for path in query.paths for key in self._keys[path] if key not in self._held]
        await asyncio.gather(*map(self._meet, keys))
        if len(layouts) == 1:
            decode = await self._fetch(layouts[0])
            return decode(), time.perf_counter()
        turns = asyncio.Semaphore(_GROUPS_AT_ONCE)
        first = 0.0

        async def one(layout: Layout) -> int:
            nonlocal first
            async with turns:
                decode = await self._fetch(layout)
                rows = decode() if layout.nbytes <= _INLINE else await asyncio.to_thread(decode)
            first = first or time.perf_counter()
            return rows

        return sum(await asyncio.gather(*map(one, layouts))), first

    async def _meet(self, key: str) -> None:
        """The tail of a file, and its footer parsed."""
        suffix: Any = {"range": {"suffix": self._tail_sizes[key]}}
        found = await self._obstore.get_async(self._store, key, options=suffix)
        tail = memoryview(await found.bytes_async())
        # Its offsets are not looked at: the tail alone is enough.
        self._parquet.read_metadata(_file_of(tail))
        self._held[key] = [(found.meta["size"] - len(tail), tail)]

    async def _fetch(self, layout: Layout) -> Callable[[], int]:
        """What decodes a row group, its bytes here."""
        held = self._held[layout.path]
        wanted = [page for page in layout.ranges if _find(held, page) is None]
        lacking = [page for page in layout.dictionaries if _find(held, page) is None]
        requests = merge([*wanted, *lacking])
        parts = await asyncio.gather(*(self._get(layout.path, request) for request in requests))
        here = list(zip((start for start, _ in requests), parts, strict=True))
        for page in lacking:
            held.append((page[0], memoryview(bytes(_bytes(here, page)))))
        here += held

        return lambda: layout.decode(lambda page: _bytes(here, page))

    async def _get(self, path: str, request: Range) -> memoryview:
        start, end = request
        async with self._gate:
            return memoryview(await self._obstore.get_range_async(self._store, path, start=start, end=end))


def _config(options: dict[str, str]) -> dict[str, Any]:
    options = dict(options)
    return {"client_options": {"allow_http": options.pop("allow_http") == "true"}, **options}


def _file_of(data: memoryview) -> Any:
    import pyarrow as pa

    return pa.BufferReader(pa.py_buffer(data))


def _find(held: Sequence[tuple[int, memoryview]], page: Range) -> memoryview | None:
    """The bytes of a range, where one piece has all of them."""
    for start, data in held:
        if start <= page[0] and page[1] <= start + len(data):
            return data[page[0] - start : page[1] - start]
    return None


def _bytes(held: Sequence[tuple[int, memoryview]], page: Range) -> memoryview:
    """The bytes of a range, joined where it was split."""
    found = _find(held, page)
    if found is not None:
        return found
    parts, at = [], page[0]
    for start, data in sorted(held, key=lambda piece: piece[0]):
        if start <= at < start + len(data):
            parts.append(data[at - start : page[1] - start])
            at = min(page[1], start + len(data))
    if at != page[1]:
        raise ValueError(f"bytes {page} were not fetched")
    return memoryview(b"".join(parts))
