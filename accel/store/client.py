"""The client of one store, whose reads are coalesced, gated, retried, pinned and counted."""

from __future__ import annotations

import dataclasses
import sys
import time
from collections.abc import Awaitable, Callable, Sequence

from accel.coalesce import Fetch, Merging, RequestShape, assemble, joined_bytes
from accel.errors import (
    ObjectChangedError,
    ParquetFormatError,
    StoreError,
)
from accel.metrics import Metrics
from accel.options import MIB, Options
from accel.ranges import ByteRange, Kind, ObjectId, Stash, Suffix, Want
from accel.runtime.tasks import Group
from accel.runtime.threads import WORK
from accel.store.fetch import Fetcher, Pin, Retry
from accel.store.gate import Gate, open_file_limit
from accel.store.listing import Cuts, Listings
from accel.store.network import Network, network_to
from accel.store.range_store import Header, Mover, ObjectEntry, PageSeen, Payload, RangeStore, Remover
from accel.store.request_errors import (
    EmptyObjectError,
    ErrorContext,
    SuffixUnsupportedError,
    raising_foremost,
)
from accel.versions import same_etag

__all__ = ["Client"]


class Client:
    """Reads one store: coalesces ranges, bounds what is under way, retries, checks versions, counts. Used on
    the I/O loop.

    Parameters
    ----------
    store : RangeStore
    root : str
        The root of the store, as in `Location.root`.
    token : str
        Identifies the store and its credentials in cache keys, and reveals none of them.
    options : Options
    retry : Retry, optional
        Replaces the one that `options` describe, for tests with a clock of their own.
    network, cuts : Network, Cuts, optional
        What earlier clients have measured of the store, and remembered of its listings.
    """

    def __init__(
        self,
        store: RangeStore,
        *,
        root: str,
        token: str,
        options: Options,
        retry: Retry | None = None,
        network: Network | None = None,
        cuts: Cuts | None = None,
    ) -> None:
        self.store = store
        self.root = root
        self.token = token
        self.options = options
        self.retry = Retry.of(options) if retry is None else retry
        # Each request may need a connection of its own, which is an open file.
        most = min(options.max_requests_in_flight, max(1, open_file_limit() // 2))
        self.gate = Gate(most, max_bytes=options.memory_limit)
        self.network = network_to(root, options) if network is None else network
        """The measured latency and bandwidth."""
        self.fetcher = Fetcher(
            store,
            gate=self.gate,
            retry=self.retry,
            network=self.network,
            allow_unpinned=options.allow_unpinned,
        )
        self.listings = Listings(store, gate=self.gate, retry=self.retry, cuts=cuts)
        # Without them, the size is requested first.
        self.suffixes = bool(getattr(store, "suffixes", True))
        warning = getattr(store, "warning", None)
        self.warning = warning if isinstance(warning, str) else None
        """A text for the metrics about how the store was made; None if there is none."""

    def __repr__(self) -> str:
        return f"Client({self.root!r})"

    def shape(self) -> RequestShape:
        """Return the shape of requests, by the options, or else by the measured network."""
        gap, network = self.options.max_gap_bytes, self.network
        return RequestShape(
            gap_bytes=network.gap_bytes if gap is None else gap,
            wide_gap_bytes=network.wide_gap_bytes if gap is None else gap,
            few_requests=network.few_requests,
            streams=network.few_streams,
            max_coalesced_bytes=self.options.max_coalesced_bytes,
        )

    async def read(
        self,
        path: str,
        wants: Sequence[Want],
        *,
        pin: ObjectId | None,
        metrics: Metrics,
        merging: Merging | None = None,
    ) -> Stash:
        """Return exactly the wanted ranges of one object, fetched concurrently.

        Parameters
        ----------
        path : str
        wants : sequence of Want
        pin : ObjectId or None
            The version to read. None: any, but the same for all ranges.
        metrics : Metrics
            Counts each request by its `Fetch.kind`.
        merging : Merging, optional
            How ranges are merged and split, by default by `shape`.

        Raises
        ------
        ObjectChangedError
            The status, etag or size shows another version, or the object is gone.
        StoreError
            A request failed; the others are cancelled then. Or the store gives no etag, and
            `options.allow_unpinned` is not set.
        """
        if not wants:
            return {}
        merging = merging or self.shape().merging(sum(want.range.length for want in wants))
        fetches = merging.requests(wants)
        version = Pin() if pin is None else Pin(pin.size, pin.etag)
        payloads: Sequence[Payload]
        with self._naming(path):
            self._check_pin(path, wants, pin)
            if len(fetches) == 1:
                payloads = [await self._fetch(path, fetches[0], version, metrics)]
            else:
                payloads = await self._fetch_all(path, fetches, version, metrics)
            if pin is None:
                self._check_agreement(path, payloads)
        parts = [(payload.range, payload.data) for payload in payloads]
        if joined_bytes(fetches) > MIB:  # to copy so much would block the loop
            return await WORK.run(assemble, wants, parts)
        return assemble(wants, parts)

    async def read_tail(
        self, path: str, length: int, *, metrics: Metrics, pin: ObjectId | None = None
    ) -> Payload:
        """Return the last `length` bytes of an object, or all of it if it is shorter.

        Without a pin the request is a suffix range, whose response gives the size of the object; a store
        without suffix ranges costs a HEAD request before. With the pin of a listing the range is exact, and
        of that version.

        Raises
        ------
        ParquetFormatError
            The object is empty.
        """
        with self._naming(path):
            return await self._read_tail(path, length, metrics, pin)

    async def revalidate(self, pin: ObjectId, *, metrics: Metrics) -> bool:
        """Return whether the pinned version is still current, by one conditional request of a few bytes.

        Return False if there is no etag to compare, and if the object is gone.
        """
        if pin.etag is None or pin.size < 1:
            return False
        last = ByteRange(max(0, pin.size - 8), pin.size)
        try:
            with self._naming(pin.path):
                await self.fetcher.fetch(
                    pin.path, last, pin=Pin(pin.size, pin.etag), kind=Kind.REVALIDATE, metrics=metrics
                )
        except ObjectChangedError:
            return False
        return True

    async def list_below(
        self,
        prefix: str,
        *,
        metrics: Metrics | None = None,
        begun: PageSeen | None = None,
        after: str | None = None,
    ) -> list[ObjectEntry]:
        """Return the objects below `prefix`, sorted by path: see `Listings.list_below`."""
        with self._naming(prefix):
            return await self.listings.list_below(
                prefix, Metrics() if metrics is None else metrics, begun=begun, after=after
            )

    async def head(self, path: str, *, metrics: Metrics | None = None) -> ObjectEntry:
        """Return the size and etag of one object."""
        with self._naming(path):
            return await self._head(path, Metrics() if metrics is None else metrics)

    async def remove(self, path: str) -> None:
        """Remove an object; one that is not there is no error. Raises StoreError."""
        store = self.store
        if not isinstance(store, Remover):
            raise StoreError("this store removes no objects", path=path)
        await self._change(path, lambda: store.remove(path))

    async def move(self, path: str, to: str) -> None:
        """Give an object another name: see `Mover.move`. Raises StoreError."""
        store = self.store
        if not isinstance(store, Mover):
            raise StoreError("this store neither renames nor copies objects", path=path)
        await self._change(path, lambda: store.move(path, to))

    async def _change(self, path: str, request: Callable[[], Awaitable[None]]) -> None:
        async def attempt() -> None:
            async with self.gate.slot():
                await request()

        with self._naming(path):
            await self.retry.run(attempt, on_retry=_pass)

    def _naming(self, path: str) -> ErrorContext:
        return ErrorContext(self.root, path)

    async def _read_tail(self, path: str, length: int, metrics: Metrics, pin: ObjectId | None) -> Payload:
        if pin is None and self.suffixes:
            try:
                return await self.fetcher.fetch(
                    path, Suffix(length), pin=Pin(), kind=Kind.TAIL, metrics=metrics
                )
            except SuffixUnsupportedError as error:
                entry = await self._head(path, metrics, after=error)
                # A server that refuses the end of an object that is not empty has no suffix ranges.
                self.suffixes = not error.certain and entry.size <= 0
            except StoreError as error:
                if error.status != 416:
                    raise
                raise EmptyObjectError(path) from None
        elif pin is None:
            entry = await self._head(path, metrics)
        else:
            entry = ObjectEntry(path, pin.size, pin.etag)
        if entry.size <= 0:
            raise EmptyObjectError(path)
        payload = await self.fetcher.fetch(
            path,
            ByteRange(max(0, entry.size - length), entry.size),
            pin=Pin(entry.size, entry.etag),
            kind=Kind.TAIL,
            metrics=metrics,
        )
        return payload if payload.size is not None else dataclasses.replace(payload, size=entry.size)

    async def _head(
        self, path: str, metrics: Metrics, *, after: SuffixUnsupportedError | None = None
    ) -> ObjectEntry:
        store = self.store
        if not isinstance(store, Header):
            raise StoreError(
                "the object's size is not known: the store has neither suffix ranges nor `head`",
                path=path,
                status=None if after is None else after.status,
            )

        async def attempt() -> ObjectEntry:
            started, came = time.perf_counter(), False
            try:
                async with self.gate.slot():
                    found = await store.head(path)
                came = True
                return found
            finally:
                metrics.count_request(Kind.HEAD, 0)
                took = time.perf_counter() - started
                failure = None if came else sys.exception()
                metrics.report_request(Kind.HEAD, path, place=None, nbytes=0, seconds=took, error=failure)

        return await self.retry.run(attempt, on_retry=lambda: metrics.add("retries"))

    async def _fetch(self, path: str, fetch: Fetch, pin: Pin, metrics: Metrics) -> Payload:
        return await self.fetcher.fetch(path, fetch.range, pin=pin, kind=fetch.kind, metrics=metrics)

    async def _fetch_all(
        self, path: str, fetches: Sequence[Fetch], pin: Pin, metrics: Metrics
    ) -> Sequence[Payload]:
        if self.fetcher.gathers:
            ranges = [(fetch.range, fetch.kind) for fetch in fetches]
            gathered = await self.fetcher.gather(path, ranges, pin=pin, metrics=metrics)
            if gathered is not None:
                return gathered
        with raising_foremost():
            async with Group() as group:
                tasks = [group.create_task(self._fetch(path, f, pin, metrics)) for f in fetches]
        return [task.result() for task in tasks]

    def _check_pin(self, path: str, wants: Sequence[Want], pin: ObjectId | None) -> None:
        if pin is None:
            return
        for want in wants:
            if want.range.end > pin.size:
                raise ParquetFormatError(
                    f"{want.key} lies past the end of the file ({pin.size} bytes)",
                    path=path,
                    place=str(want.range),
                )
        if pin.etag is None and not self.options.allow_unpinned:
            raise _unpinnable(path)

    def _check_agreement(self, path: str, payloads: Sequence[Payload]) -> None:
        first = payloads[0]
        for other in payloads[1:]:
            if first.etag is None or other.etag is None:
                if not self.options.allow_unpinned:
                    raise _unpinnable(path)
            elif not same_etag(first.etag, other.etag):
                raise ObjectChangedError("the object changed while it was read", path=path)
            if None not in (first.size, other.size) and first.size != other.size:
                raise ObjectChangedError("the object changed its size while it was read", path=path)


def _pass() -> None:
    """Count nothing."""


def _unpinnable(path: str) -> StoreError:
    return StoreError(
        "the store gives no etag, so several reads of this object may mix two versions of it",
        path=path,
        hint="`options.allow_unpinned` reads it without that protection",
    )
