"""All reads of one store: merged, gated, retried, pinned and counted."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from contextlib import nullcontext
from functools import cached_property, partial
from typing import TYPE_CHECKING

from accel.errors import (
    ObjectChangedError,
    ParquetFormatError,
    StoreError,
)
from accel.metrics import Metrics
from accel.options import MIB, Options
from accel.planning.coalesce import Fetch, Merging, RequestShape, assemble, joined_bytes
from accel.ranges import ByteRange, Kind, ObjectId, Stash, Suffix, Want
from accel.store.faults import SuffixUnsupportedError, foremost
from accel.store.fetch import Fetcher, Pin, same_etag
from accel.store.gate import Gate
from accel.store.groups import Group
from accel.store.hedge import Hedge
from accel.store.location import LOCAL_ROOT
from accel.store.naming import Naming
from accel.store.network import Network, network_to
from accel.store.range_store import Header, ObjectEntry, PageSeen, Payload, RangeStore
from accel.store.retry import Retry
from accel.store.threads import WORK

if TYPE_CHECKING:
    from accel.store.listing import Cuts, Listings
    from accel.store.pool import Pool

__all__ = ["Client"]


class Client:
    """What the reader reads through. Its methods are awaited on one event loop: the I/O loop.

    Parameters
    ----------
    store : RangeStore
    root : str
        The store's root, as `store.location` names it.
    token : str
        Stands for the store and its credentials in cache keys; holds none in clear.
    options : Options
    retry : Retry, optional
        In place of the one that `options` describe; tests bring a clock of their own.
    network, cuts : Network, Cuts, optional
        What has been learned of the store, and of its listings, by another client.
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
        self._retry = Retry.of(options) if retry is None else retry
        self.gate = Gate(options.max_requests_in_flight, max_bytes=options.memory_limit)
        local = root == LOCAL_ROOT
        self.network = network_to(root, options) if network is None else network
        """What has been learned of the way to the store."""
        self._fetcher = Fetcher(
            store,
            gate=self.gate,
            retry=self._retry,
            network=self.network,
            hedge=Hedge(
                self.network,
                self.gate,
                share=0.0 if local else options.hedge_share,
                factor=options.hedge_factor,
                floor=options.hedge_floor,
            ),
            allow_unpinned=options.allow_unpinned,
        )
        self._cuts = cuts
        # The ranges that one read wants of a local file are asked for in one call.
        self._pooled = not local
        # A store that is known to have none need not say so first.
        self.suffixes = bool(getattr(store, "suffixes", True))
        warning = getattr(store, "warning", None)
        self.warning = warning if isinstance(warning, str) else None
        """What whoever made the store should know."""

    def __repr__(self) -> str:
        return f"Client({self.root!r})"

    @cached_property
    def _listings(self) -> Listings:
        from accel.store.listing import Listings

        return Listings(self.store, gate=self.gate, retry=self._retry, cuts=self._cuts)

    @cached_property
    def _pool(self) -> Pool:
        from accel.store.pool import Pool

        return Pool(self.gate)

    def shape(self) -> RequestShape:
        """What requests should look like: as the options say, else as the network is known to be now."""
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
        """Bring all wanted ranges of one object at once, each exactly.

        Parameters
        ----------
        path : str
        wants : sequence of Want
        pin : ObjectId or None
            The version that they must be of. None: they only have to be of one and the same.
        metrics : Metrics
            A request counts for its `Fetch.kind`.
        merging : Merging, optional
            How ranges are merged and split; by default as `shape` has it.

        Raises
        ------
        ObjectChangedError
            The store says by status, etag or size that this is another version, or the object is gone.
        StoreError
            The first failure of any request; the others are cancelled. Also where the store gives no etag
            and `options.allow_unpinned` does not let that pass.
        """
        if not wants:
            return {}
        merging = merging or self.shape().merging(sum(want.range.length for want in wants))
        fetches = merging.requests(wants)
        known = Pin() if pin is None else Pin(pin.size, pin.etag)
        payloads: Sequence[Payload]
        with self._naming(path):
            self._check_pin(path, wants, pin)
            if self._pooled and pin is not None and pin.etag is not None and self._pool.takes(fetches):
                send, shortest = partial(self._fetch, path), self.shape().merging(0)
                parts = await self._pool.read(
                    path, wants, pin=known, metrics=metrics, merging=shortest, send=send
                )
                return assemble(wants, parts)
            with self._pool.passing(len(fetches)) if self._pooled else nullcontext():
                if len(fetches) == 1:
                    payloads = [await self._fetch(path, fetches[0], known, metrics)]
                else:
                    payloads = await self._fetch_all(path, fetches, known, metrics)
            if pin is None:
                self._check_agreement(path, payloads)
        parts = [(payload.range, payload.data) for payload in payloads]
        if joined_bytes(fetches) > MIB:  # it would hold up the loop
            return await WORK.run(assemble, wants, parts)
        return assemble(wants, parts)

    async def read_tail(
        self, path: str, length: int, *, metrics: Metrics, pin: ObjectId | None = None
    ) -> Payload:
        """The last `length` bytes of an object, or all of it where it is shorter.

        One request; its answer tells the object's size. With a pin (of a listing) the range is exact and
        of that version; without, it is a suffix range. A store that has none costs one HEAD before.

        Raises
        ------
        ParquetFormatError
            The object is empty.
        """
        with self._naming(path):
            return await self._read_tail(path, length, metrics, pin)

    async def revalidate(self, pin: ObjectId, *, metrics: Metrics) -> bool:
        """Whether the pinned version is still the current one: one conditional request of a few bytes.

        False without an etag to compare, and where the object is gone.
        """
        if pin.etag is None or pin.size < 1:
            return False
        last = ByteRange(max(0, pin.size - 8), pin.size)
        try:
            with self._naming(pin.path):
                await self._fetcher.fetch(
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
    ) -> list[ObjectEntry]:
        """Objects below `prefix`, sorted by path: what `Listings.list_below` says, and raises."""
        with self._naming(prefix):
            return await self._listings.list_below(
                prefix, Metrics() if metrics is None else metrics, begun=begun
            )

    async def head(self, path: str, *, metrics: Metrics | None = None) -> ObjectEntry:
        """Size and etag of one object, without its bytes."""
        with self._naming(path):
            return await self._head(path, Metrics() if metrics is None else metrics)

    def _naming(self, path: str) -> Naming:
        return Naming(self.root, path)

    async def _read_tail(self, path: str, length: int, metrics: Metrics, pin: ObjectId | None) -> Payload:
        if pin is None and self.suffixes:
            try:
                return await self._fetcher.fetch(
                    path, Suffix(length), pin=Pin(), kind=Kind.TAIL, metrics=metrics
                )
            except SuffixUnsupportedError as error:
                entry = await self._head(path, metrics, after=error)
                # A server that refuses the end of an object that has one knows no suffix ranges.
                self.suffixes = not error.certain and entry.size <= 0
            except StoreError as error:
                if error.status != 416:
                    raise
                raise ParquetFormatError("the file is empty", path=path) from None
        elif pin is None:
            entry = await self._head(path, metrics)
        else:
            entry = ObjectEntry(path, pin.size, pin.etag)
        if entry.size <= 0:
            raise ParquetFormatError("the file is empty", path=path)
        payload = await self._fetcher.fetch(
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

        async def ask() -> ObjectEntry:
            try:
                async with self.gate.slot(0):
                    return await store.head(path)
            finally:
                metrics.count_request(Kind.HEAD, 0)

        return await self._retry.run(ask, on_retry=lambda: metrics.add("retries"))

    async def _fetch(self, path: str, fetch: Fetch, pin: Pin, metrics: Metrics) -> Payload:
        return await self._fetcher.fetch(path, fetch.range, pin=pin, kind=fetch.kind, metrics=metrics)

    async def _fetch_all(
        self, path: str, fetches: Sequence[Fetch], pin: Pin, metrics: Metrics
    ) -> Sequence[Payload]:
        if self._fetcher.gathers:
            ranges = [(fetch.range, fetch.kind) for fetch in fetches]
            gathered = await self._fetcher.gather(path, ranges, pin=pin, metrics=metrics)
            if gathered is not None:
                return gathered
        try:
            async with Group() as group:
                tasks = [group.create_task(self._fetch(path, f, pin, metrics)) for f in fetches]
        except BaseExceptionGroup as failures:
            failure = foremost(failures)
        else:
            return [task.result() for task in tasks]
        raise failure

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


def _unpinnable(path: str) -> StoreError:
    return StoreError(
        "the store gives no etag, so several reads of this object may mix two versions of it",
        path=path,
        hint="options.allow_unpinned reads it without that protection",
    )
