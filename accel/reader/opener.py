"""Files are opened: how much of the end is read first, and how their metadata reaches the cache."""

from __future__ import annotations

import asyncio
import math
import time
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeVar

from accel.cache.cache import Cache
from accel.cache.cache_key import CacheKey, Entry, file_key
from accel.cache.freshness import MetadataFreshness, recorded
from accel.decode.arrow import arrow_schema, shared_schema
from accel.errors import AccelError, ObjectChangedError
from accel.metrics import Metrics
from accel.options import Options
from accel.planning.file_entry import FileEntry, FileFacts
from accel.planning.handle import FileHandle
from accel.planning.opening import LEAST_TAIL, first_tail_bytes, open_file
from accel.planning.read_request import ReadRequest, Steps, Tail, TailRequest
from accel.ranges import Kind, ObjectId, ReadKey, Stash
from accel.reader.file_schemas import FileSchemas
from accel.reader.shared_pages import cache_dictionary, cached_dictionary, dictionary_key
from accel.reader.tails import KeptTails, Tails, given_tail
from accel.runtime.tasks import breathe
from accel.store.client import Client
from accel.store.clients import Clients
from accel.store.location import LOCAL_ROOT
from accel.versions import FileVersion

__all__ = [
    "Opener",
    "TailHints",
]

_ENOUGH: Final = 16
"""Files of a scan after which the first read of the next one is reduced to what these needed."""
_LEAST_LEAN: Final = 4 << 10
"""Bytes; a shorter response does not arrive earlier."""
_WHOLE: Final = 32 << 10
"""Bytes of a file that is read whole, so that neither this scan nor a later one sends another request for its
data."""
_LEAST_READ: Final = 8
"""Bytes of the shortest first read."""
_BEFORE_FOOTERS: Final = "before footers"
"""Names what is learned of files whose footers have known lengths."""
_CONCURRENT_BYTES: Final = 8 << 20
"""Bytes that the first reads of all files opened at the same time may fetch by the default rule."""


@dataclass(slots=True)
class _Met:
    """Statistics of the files of one store that a scan has opened."""

    least_size: int
    """Bytes of the smallest file."""
    files: int = 0
    """The number of files that are not small."""
    took: int = 0
    """The most bytes that opening one of these took."""


class TailHints:
    """Chooses the lengths of first reads for one scan; what it learns stays in the cache, by prefix.

    The default rule is for files about which nothing has been learned. With thousands of files it would fetch
    gigabytes. So files that are opened at the same time share a bound, and after some files the others are
    read by what these took, plus a quarter.

    `Options.tail_hint` replaces all of this; `Options.max_tail_hint` bounds what is learned.
    """

    def __init__(self, cache: Cache, options: Options) -> None:
        self._cache = cache
        self._options = options
        self._worth: dict[str, int] = {}
        """By store; the network model is read once for each scan."""
        self._met: dict[str, _Met] = {}
        """By store."""

    def of(self, client: Client, file: FileEntry, *, concurrent: int = 1) -> int:
        """Return how many bytes of the end of a file to read first, of `concurrent` files opened at the same
        time."""
        if file.footer_bytes is not None and self._options.tail_hint is None:
            before = self._cache.get(_key(client, file, _BEFORE_FOOTERS))
            known = file.footer_bytes + (before if isinstance(before, int) else 0)
            return _by_source(file, known, self._options)
        usual, met = self._usual(client, file), self._met.get(client.token)
        if self._options.tail_hint is not None:
            return usual
        if met is None or met.files < _ENOUGH:
            return min(usual, max(_WHOLE, _CONCURRENT_BYTES // concurrent))
        lean = max(_LEAST_LEAN, met.took * 5 // 4)
        size = met.least_size if file.size is None else file.size
        return min(usual, lean if size > _WHOLE else max(_WHOLE, lean))

    def _usual(self, client: Client, file: FileEntry) -> int:
        """Return the length by what was learned before the scan."""
        learned, given = self._cache.get(_key(client, file)), self._options.tail_hint
        if isinstance(learned, int):
            return max(learned, given or 0)
        if given is not None:
            return given
        worth = self._worth.get(client.token)
        if worth is None:
            # A second read of a local file costs no more.
            worth = 0 if client.root == LOCAL_ROOT else client.network.early_bytes
            self._worth[client.token] = worth
        return first_tail_bytes(file.size, worth)

    def learn(self, client: Client, file: FileEntry, handle: FileHandle, first_read: int) -> None:
        """Note how many bytes of its end a file needed; `first_read` is the number that was read first."""
        if file.footer_bytes is not None:
            self._learn_before(client, file, handle)
            return
        size = handle.id.size
        met = self._met.get(client.token)
        if met is None:
            met = self._met[client.token] = _Met(size)
        met.least_size = min(met.least_size, size)
        whole = size * 5 // 4 <= first_read  # no more can be needed
        if whole and size <= _WHOLE:
            return
        took = handle.suggested_tail_bytes()
        met.files += 1
        met.took = max(met.took, took)
        if whole:
            return
        took = min(took * 5 // 4, self._options.max_tail_hint)
        key = _key(client, file)
        learned = self._cache.get(key)
        if isinstance(learned, int):
            better = took > learned
        elif self._options.tail_hint is not None:
            better = took > first_read
        else:
            # The first file may also show that less is enough.
            took = max(took, min(LEAST_TAIL, self._options.max_tail_hint))
            better = took != first_read
        if better:
            self._cache.put(key, took, 256)

    def _learn_before(self, client: Client, file: FileEntry, handle: FileHandle) -> None:
        """Note how many bytes before its footer, which the source knows, a file needed: page indexes, and
        what accel has embedded. Most tables have none."""
        more = (handle.suggested_tail_bytes() - (file.footer_bytes or 0)) * 5 // 4
        key = _key(client, file, _BEFORE_FOOTERS)
        learned = self._cache.get(key)
        if more > (learned if isinstance(learned, int) else 0):
            self._cache.put(key, min(more, self._options.max_tail_hint), 256)


def _by_source(file: FileEntry, footer_bytes: int, options: Options) -> int:
    """Return how many bytes of the end of a file to read first, where its source knows the footer."""
    if file.size is not None and file.size <= _WHOLE:
        return file.size
    return max(_LEAST_READ, min(footer_bytes, options.max_tail_hint))


def _key(client: Client, file: FileEntry, place: str | None = None) -> CacheKey:
    folder = file.path.partition("?")[0].rpartition("/")[0]
    return CacheKey(client.token, folder, None, Entry.TAIL_HINT, place)


T = TypeVar("T")


class Opener:
    """Opens files of any number of stores for one scan."""

    def __init__(
        self,
        clients: Clients[Client],
        *,
        cache: Cache,
        options: Options,
        metrics: Metrics,
        tails: Tails = Tails.DROP,
    ) -> None:
        self._clients = clients
        self._cache = cache
        self.freshness = MetadataFreshness(cache, metrics)
        """The cached metadata of files, and whether it is current."""
        self.hints = TailHints(cache, options)
        self._opening = 0
        """Files that are being opened one by one."""
        self._forgotten: set[tuple[str, str]] = set()
        """Files that have changed: what their source has of them is of another version."""
        self.options = options
        self.schemas = FileSchemas(options)
        """The schemas that the scan reads files with."""
        self.metrics = metrics
        self.tails = KeptTails(tails, options.memory_limit)
        """What the first reads fetched along with the footers."""

    async def open(self, file: FileEntry) -> tuple[FileHandle, int]:
        """Return the handle of a file's current version, and the round trips that it took.

        A cached one is used while it is younger than the cache's `max_age`, or if a listing has just shown
        the same etag; else one conditional request revalidates it.
        """
        client = self._clients.client(file.root)
        key = file_key(client.token, file.path)
        now = time.monotonic()
        while True:
            handle = self._cache.get(key)
            if isinstance(handle, FileHandle):
                confirmed = await self.freshness.confirm(client, handle, file, now)
                if confirmed is not None:
                    self.metrics.add("metadata_hits")
                    return handle, confirmed
                self.freshness.forget(client, file.path)
            trips: list[int] = []

            async def load(trips: list[int] = trips) -> tuple[FileHandle, int]:
                loaded, took = await self._load(client, file)
                trips.append(took)
                return loaded, loaded.nbytes

            try:
                handle = await self._cache.load(key, load)
            except AccelError as error:
                raise error.of(file.url) from error.__cause__
            if handle is None:
                continue  # the load that this one waited for was given up
            if trips:
                return handle, trips[0]
            # The handle comes from a load that began earlier, and a listing may have shown a newer version
            # since.
            if self.freshness.is_usable(client, handle, file=file, now=now):
                self.metrics.add("metadata_misses")
                return handle, 0 if given_tail(file) is not None else 1

    def cached_handle(self, file: FileEntry, now: float) -> FileHandle | None:
        """Return the cached handle of a file that may be used at `now` (monotonic clock) without a request,
        or None."""
        client = self._clients.client(file.root)
        handle = self._cache.get(file_key(client.token, file.path))
        if not isinstance(handle, FileHandle) or not self.freshness.is_usable(
            client, handle, file=file, now=now
        ):
            return None
        return handle

    def offer(self, file: FileEntry, handle: FileHandle) -> None:
        """Cache the handle that a source has of a file, unless the cached one may be newer.

        The source may have seen any version, so the handle is revalidated unless a listing shows its etag.
        """
        key = file_key(self._clients.client(file.root).token, file.path)
        cached = self._cache.get(key)
        listed = file.version.is_same(handle.version)
        if cached is None or (listed and isinstance(cached, FileHandle) and cached.etag != handle.etag):
            handle.checked_at = handle.checked_at or -math.inf
            self._cache.put(key, handle, handle.nbytes)

    def facts_of(self, file: FileEntry) -> FileFacts | None:
        """Return what the source has of a file, unless that has turned out to be of another version."""
        return None if (file.root, file.path) in self._forgotten else file.facts

    def grow_tail(self, file: FileEntry, handle: FileHandle) -> None:
        """Add to a handle the bytes before its tail that the source has of the same version of the file."""
        given = given_tail(file)
        if given is None or not handle.version.is_same(FileVersion(given.size, given.etag)):
            return
        if given.start < handle.tail_start:
            handle.grow_tail(given.data[: handle.tail_start - given.start])
            key = file_key(self._clients.client(file.root).token, file.path)
            self._cache.reweigh(key, handle, handle.weigh())

    def stands(self, client: Client, handle: FileHandle, *, moment: float) -> bool:
        """Return whether a cached handle was of the current version at a moment: see
        `MetadataFreshness.was_current`."""
        return self.freshness.was_current(client, handle, moment)

    # -- one by one ------------------------------------------------------------------------------

    async def _load(self, client: Client, file: FileEntry) -> tuple[FileHandle, int]:
        hint = self.hints.of(client, file)
        steps = partial(self.steps, file, hint)
        seen: list[Stash | Tail] = []
        recalled = await self.recall(client, file)
        if recalled is not None:
            handle, trips = recalled
            self.metrics.add("metadata_hits")
        else:
            started = time.monotonic()
            self._opening += 1
            try:
                handle, trips = await self.drive(
                    recorded(steps(), seen), client, file.path, _listed(client, file)
                )
            except ObjectChangedError:
                # The listed version has been replaced, and the current one is as good.
                handle, trips = await self.drive(recorded(steps(), seen), client, file.path, None)
            finally:
                self._opening -= 1
            handle.checked_at = started
            await self.freshness.store(client, handle, seen)
            self.metrics.add("metadata_misses")
        self.hints.learn(client, file, handle, hint)
        return handle, trips

    def steps(self, file: FileEntry, hint: int) -> Steps[FileHandle]:
        """Return the steps that open a file, of whose end `hint` bytes are read first."""
        return open_file(
            file.path,
            hint,
            max_footer_bytes=self.options.max_footer_bytes,
            arrow_schema=arrow_schema,
            shared=shared_schema,
        )

    async def drive(self, steps: Steps[T], client: Client, path: str, pin: ObjectId | None) -> tuple[T, int]:
        """Answer the requests of steps from the network; return their result, and the round trips."""
        trips = 0
        try:
            request = next(steps)
            if isinstance(request, TailRequest):
                tail = await self._read_tail(client, path, request.length, pin)
                self.tails.keep(client, path, tail, among=self._opening)
                trips = 1 if pin is not None or client.suffixes else 2  # the first one requested the size
                pin = ObjectId(path, tail.size, tail.etag)
                # Footers that arrive together are parsed with pauses between them.
                await breathe()
                request = steps.send(tail)
            done, more = await self._answer_all(steps, request, client, path, pin)
        except StopIteration as ended:
            return ended.value, trips
        return done, trips + more

    async def drive_on(
        self,
        steps: Steps[T],
        request: ReadRequest | TailRequest,
        *,
        client: Client,
        path: str,
        tail: Tail,
        seen: list[Stash | Tail],
    ) -> tuple[T, int]:
        """Continue steps that have received the file's tail and request more; the tail's round trip is not
        counted."""
        pin = ObjectId(path, tail.size, tail.etag)
        return await self._answer_all(steps, request, client, path, pin, seen)

    async def _answer_all(
        self,
        steps: Steps[T],
        request: ReadRequest | TailRequest,
        client: Client,
        path: str,
        pin: ObjectId | None,
        seen: list[Stash | Tail] | None = None,
    ) -> tuple[T, int]:
        """Answer all further requests of steps; the answers are added to `seen`."""
        trips = 0
        while True:
            if isinstance(request, TailRequest):
                raise TypeError("the tail comes first")
            answer, sent = await self._answer(client, path, request, pin)
            trips += sent
            if seen is not None:
                seen.append(answer)
            await breathe()
            try:
                request = steps.send(answer)
            except StopIteration as done:
                return done.value, trips

    async def _read_tail(self, client: Client, path: str, length: int, pin: ObjectId | None) -> Tail:
        payload = await client.read_tail(path, length, metrics=self.metrics, pin=pin)
        size = payload.size if payload.size is not None else payload.range.end
        return Tail(memoryview(payload.data), payload.range.start, size, payload.etag)

    # -- many at a time (`FooterPrefetcher`) -------------------------------------------------------------

    def begin(self, file: FileEntry) -> tuple[Client, asyncio.Future[FileHandle | None]] | None:
        """Announce that a file is about to be opened; None if it is cached or being opened already.

        Others that want the file wait for the future, which gives its handle, or None where they have to open
        it.
        """
        client = self._clients.client(file.root)
        key = file_key(client.token, file.path)
        if self._cache.get(key) is not None:
            return None
        flight = self._cache.single_flight.lead(key)
        return None if flight is None else (client, flight)

    def end(self, flight: asyncio.Future[FileHandle | None], handle: FileHandle | None) -> None:
        """End what `begin` announced, with a handle, or with None where others have to open the file."""
        self._cache.single_flight.land(flight, value=handle)

    async def recall(self, client: Client, file: FileEntry) -> tuple[FileHandle, int] | None:
        """Return the handle of a file from usable metadata that its source, the disk or the shared cache has,
        and the round trips of its revalidation."""
        steps = partial(self.steps, file, self.hints.of(client, file))
        tail = None if self.facts_of(file) is None else given_tail(file)
        if tail is not None:
            handle = _reopen(steps(), tail)
            if (
                handle is not None
                and await self.freshness.confirm(client, handle, file, time.monotonic()) == 0
            ):
                return handle, 0
        return await self.freshness.load(client, file, steps)

    async def recall_tail(self, client: Client, file: FileEntry) -> tuple[Tail, float] | None:
        """Return the end of a file as its source, the disk or the shared cache has it, and when that was
        checked (monotonic clock); None where none has it of the version that was listed."""
        tail = None if self.facts_of(file) is None else given_tail(file)
        if tail is not None:
            return tail, self.freshness.listed_at
        return await self.freshness.find_tail(client, file)

    async def fetch_tail(self, client: Client, file: FileEntry, *, hint: int) -> Tail:
        """Read the last `hint` bytes of a file."""
        try:
            return await self._read_tail(client, file.path, hint, _listed(client, file))
        except ObjectChangedError:
            return await self._read_tail(client, file.path, hint, None)

    def adopt(self, client: Client, file: FileEntry, *, handle: FileHandle, hint: int) -> None:
        """Cache the handle of a file that was opened by a first read of `hint` bytes."""
        self.hints.learn(client, file, handle, hint)
        self._cache.put(file_key(client.token, file.path), handle, handle.nbytes)

    def named(self, error: Exception, file: FileEntry) -> Exception:
        """Return the error with the file's name in it, as the user gave it."""
        return error.of(file.url) if isinstance(error, AccelError) else error

    async def _answer(
        self, client: Client, path: str, request: ReadRequest, pin: ObjectId | None
    ) -> tuple[Stash, int]:
        """Return the requested bytes, with dictionary pages from the cache, and the round trips."""
        cached: dict[ReadKey, memoryview] = {}
        keys: dict[ReadKey, tuple[object, ...]] = {}
        for want in request.wants:
            if want.key.kind is Kind.DICTIONARY and pin is not None and pin.etag is not None:
                keys[want.key] = dictionary_key(client, pin, place=want.range)
                found = cached_dictionary(self._cache, keys[want.key])
                if found is not None:
                    cached[want.key] = memoryview(found)
        missing = [want for want in request.wants if want.key not in cached]
        if not missing:
            return cached, 0
        stash = await client.read(path, missing, pin=pin, metrics=self.metrics)
        for want in missing:
            if want.key in keys:
                cache_dictionary(self._cache, keys[want.key], bytes(stash[want.key]))
        return {**stash, **cached}, 1

    def forget(self, root: str, path: str) -> None:
        """Drop the cached metadata of a file that has changed, and use no more what its source has of it."""
        self._forgotten.add((root, path))
        self.freshness.forget(self._clients.client(root), path)


def _reopen(steps: Steps[FileHandle], tail: Tail) -> FileHandle | None:
    """Return the handle that a given tail makes; None where it makes none, and the file has to be read."""
    try:
        next(steps)
        steps.send(tail)
    except StopIteration as done:
        handle: FileHandle = done.value
        handle.checked_at = -math.inf
        return handle
    except AccelError:
        return None
    steps.close()
    return None


def _listed(client: Client, file: FileEntry) -> ObjectId | None:
    """Return the listed version for stores without suffix ranges (Azure), where its size saves a request."""
    if file.size is None or file.etag is None or client.suffixes:
        return None
    return ObjectId(file.path, file.size, file.etag)
