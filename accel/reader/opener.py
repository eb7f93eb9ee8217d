"""How much of a file's end is read first: by a rule, until a file beside it has shown what its like take."""

from __future__ import annotations

import asyncio
import enum
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeVar

import pyarrow as pa

from accel.cache.cache import Cache, CacheKey, Entry, file_key
from accel.cache.freshness import MetadataFreshness, recorded
from accel.decode.arrow import arrow_schema, holds_instants, shared_schema
from accel.errors import AccelError, ObjectChangedError
from accel.metrics import Metrics
from accel.options import Int96Unit, Options
from accel.planning.file_entry import FileEntry
from accel.planning.handle import FileHandle
from accel.planning.opening import LEAST_TAIL, first_tail_bytes, open_file
from accel.planning.read_request import ReadRequest, Steps, Tail, TailRequest
from accel.ranges import Kind, ObjectId, ReadKey, Stash
from accel.reader.shared_pages import cache_dictionary, cached_dictionary, dictionary_key
from accel.store.client import Client
from accel.store.fetch import same_etag
from accel.store.location import LOCAL_ROOT
from accel.store.tasks import breathe

__all__ = [
    "Opener",
    "TailHints",
    "Tails",
]

_ENOUGH: Final = 16
"""Files of a scan after which the first read of the next is cut down to what these needed."""
_LEAST_LEAN: Final = 4 << 10
"""Bytes; a shorter answer is no sooner here."""
_WHOLE: Final = 32 << 10
"""Bytes of a file that is read whole in any case: its data then needs no other request, in this scan and later ones."""
_ABREAST: Final = 8 << 20
"""Bytes that the first reads of all files that are opened at the same time may bring by the rule."""


@dataclass(slots=True)
class _Met:
    """The files of one store that a scan has opened."""

    least_size: int
    """Bytes of the smallest."""
    files: int = 0
    """Those that are not small."""
    took: int = 0
    """The most that one of these took."""


class TailHints:
    """The lengths of first reads, as one scan asks for them; what is learned stays in the cache, by prefix.

    The rule is for files of which nothing is known: thousands bring gigabytes by it. Where many are opened at once they
    share what it may bring, and after some of them a scan asks the others for what these took, and a quarter more.

    `Options.tail_hint`, where it is given, stands in for all that; `Options.max_tail_hint` bounds what is learned.
    """

    def __init__(self, cache: Cache, options: Options) -> None:
        self._cache = cache
        self._options = options
        self._worth: dict[str, int] = {}
        """By store, looked up once for the scan: asking the network model takes longer than everything else here."""
        self._met: dict[str, _Met] = {}
        """By store."""

    def of(self, client: Client, file: FileEntry, *, abreast: int = 1) -> int:
        """How many bytes of the end of a file are worth reading first, of so many that are opened at the same time."""
        usual, met = self._usual(client, file), self._met.get(client.token)
        if self._options.tail_hint is not None:
            return usual
        if met is None or met.files < _ENOUGH:
            return min(usual, max(_WHOLE, _ABREAST // abreast))
        lean = max(_LEAST_LEAN, met.took * 5 // 4)
        size = met.least_size if file.size is None else file.size
        return min(usual, lean if size > _WHOLE else max(_WHOLE, lean))

    def _usual(self, client: Client, file: FileEntry) -> int:
        """The length by what was learned before the scan."""
        learned, given = self._cache.get(_key(client, file)), self._options.tail_hint
        if isinstance(learned, int):
            return max(learned, given or 0)
        if given is not None:
            return given
        worth = self._worth.get(client.token)
        if worth is None:
            # Local files are as near for a second read.
            worth = 0 if client.root == LOCAL_ROOT else client.network.early_bytes
            self._worth[client.token] = worth
        return first_tail_bytes(file.size, worth)

    def learn(self, client: Client, file: FileEntry, handle: FileHandle, first_read: int) -> None:
        """Note how many bytes of its end a file needed, of which `known` were read first."""
        size = handle.id.size
        met = self._met.get(client.token)
        if met is None:
            met = self._met[client.token] = _Met(size)
        met.least_size = min(met.least_size, size)
        whole = size * 5 // 4 <= first_read  # nothing in it can ask for more
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
            # The first of them may show that less will do, too.
            took = max(took, min(LEAST_TAIL, self._options.max_tail_hint))
            better = took != first_read
        if better:
            self._cache.put(key, took, 256)


def _key(client: Client, file: FileEntry) -> CacheKey:
    folder = file.path.partition("?")[0].rpartition("/")[0]
    return CacheKey(client.token, folder, None, Entry.TAIL_HINT)


T = TypeVar("T")
_TAILS_SHARE = 4
"""Tails that tasks read from may hold one part in so many of `memory_limit`."""


class Tails(enum.Enum):
    """What becomes of data that the first read of a file brings along with the footer."""

    DROP = "drop"
    """Tasks go elsewhere, or stay: a plan of many files would hold many tails."""
    SERVE = "serve"
    """The tasks of the same run read from it."""


class Opener:
    """Opens files of any number of stores for one scan."""

    def __init__(
        self,
        client_for: Callable[[str], Client],
        *,
        cache: Cache,
        options: Options,
        metrics: Metrics,
        tails: Tails = Tails.DROP,
    ) -> None:
        self._client_for = client_for
        self._cache = cache
        self.freshness = MetadataFreshness(cache, metrics)
        """What is cached of files."""
        self._hints = TailHints(cache, options)
        self._opening = 0
        """Files that are being opened one by one."""
        self.options = options
        self.int96_unit = Int96Unit.US if options.int96_unit == Int96Unit.US else Int96Unit.NS
        """What INT96 timestamps are read to."""
        self.metrics = metrics
        self._tails: dict[tuple[str, str], tuple[ObjectId, int, memoryview]] | None = (
            {} if tails is Tails.SERVE else None
        )
        self._dropped: dict[tuple[str, str], tuple[ObjectId, int]] = {}
        """Where the tails start that no task reads from."""

    async def open(self, file: FileEntry) -> tuple[FileHandle, int]:
        """The handle of a file's current version, and the round trips it took.

        A cached one is used while it is younger than the cache's `max_age`, or a listing has just shown
        the same etag; else one conditional request asks whether it still is current.
        """
        client = self._client_for(file.root)
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
                continue  # whoever had begun gave it up
            if trips:
                return handle, trips[0]
            # One who waited for another's load, begun before, may have to ask whether it still holds: a listing may
            # have shown a newer version since.
            if self.freshness.is_usable(client, handle, file=file, now=now):
                self.metrics.add("metadata_misses")
                return handle, 1

    def schema_of(self, handle: FileHandle) -> pa.Schema:
        """The Arrow schema that this scan reads a file with."""
        shared = handle.shared
        if self.int96_unit == Int96Unit.NS or not holds_instants(shared.schema):
            return handle.arrow_schema
        return arrow_schema(shared.schema, shared.key_value, int96_unit=self.int96_unit)

    def at_hand(self, file: FileEntry, now: float) -> FileHandle | None:
        """The cached handle of a file that may be used at `now` (monotonic clock) without asking its store."""
        client = self._client_for(file.root)
        handle = self._cache.get(file_key(client.token, file.path))
        if not isinstance(handle, FileHandle) or not self.freshness.is_usable(
            client, handle, file=file, now=now
        ):
            return None
        return handle

    def offer(self, file: FileEntry, handle: FileHandle) -> None:
        """Cache the handle that a source has of a file, unless one is cached that may be newer.

        It is of whichever version the source met: the store is asked whether that is current, unless a listing tells.
        """
        key = file_key(self._client_for(file.root).token, file.path)
        cached = self._cache.get(key)
        listed = file.etag is not None and handle.etag is not None and same_etag(file.etag, handle.etag)
        if cached is None or (listed and isinstance(cached, FileHandle) and cached.etag != handle.etag):
            handle.checked_at = handle.checked_at or -math.inf
            self._cache.put(key, handle, handle.nbytes)

    def stands(self, client: Client, handle: FileHandle, *, moment: float) -> bool:
        """Whether a cached handle was of the current version at a moment, as far as `MetadataFreshness.stands` tells."""
        return self.freshness.was_current(client, handle, moment)

    # -- one by one ------------------------------------------------------------------------------

    async def _load(self, client: Client, file: FileEntry) -> tuple[FileHandle, int]:
        hint = self._hints.of(client, file)
        steps = partial(self.steps, file, hint)
        seen: list[Stash | Tail] = []
        recalled = await self.freshness.load(client, file, steps())
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
                # Not the version that was listed any more: the current one will do as well.
                handle, trips = await self.drive(recorded(steps(), seen), client, file.path, None)
            finally:
                self._opening -= 1
            handle.checked_at = started
            await self.freshness.store(client, handle, seen)
            self.metrics.add("metadata_misses")
        self._hints.learn(client, file, handle, hint)
        return handle, trips

    def steps(self, file: FileEntry, hint: int) -> Steps[FileHandle]:
        """What opens a file, of whose end `hint` bytes are read first."""
        return open_file(
            file.path,
            hint,
            max_footer_bytes=self.options.max_footer_bytes,
            arrow_schema=arrow_schema,
            shared=shared_schema,
        )

    def hint(self, client: Client, file: FileEntry, *, abreast: int) -> int:
        """How many bytes of the end of a file are worth reading first, of so many that are opened at the same time."""
        return self._hints.of(client, file, abreast=abreast)

    async def drive(self, steps: Steps[T], client: Client, path: str, pin: ObjectId | None) -> tuple[T, int]:
        """Answer a step's needs from the network; the result, and the round trips it took."""
        trips = 0
        try:
            request = next(steps)
            if isinstance(request, TailRequest):
                tail = await self._read_tail(client, path, request.length, pin)
                self._keep_tail(client, path, tail, self._opening)
                trips = 1 if pin is not None or client.suffixes else 2  # its size was asked for first
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
        """`drive`, of steps that have been given the file's tail and need more; its round trip is not counted."""
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
        """Answer all that steps still need; the answers are added to `seen`."""
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

    # -- many at a time (`openings`) -------------------------------------------------------------

    def begin(self, file: FileEntry) -> tuple[Client, asyncio.Future[FileHandle | None]] | None:
        """Announce that a file is going to be opened, unless it is cached or being opened already.

        Whoever else wants it meanwhile waits for the future: its handle, or None where they have to see to it.
        """
        client = self._client_for(file.root)
        key = file_key(client.token, file.path)
        if self._cache.get(key) is not None:
            return None
        flight = self._cache.single_flight.lead(key)
        return None if flight is None else (client, flight)

    def end(self, flight: asyncio.Future[FileHandle | None], handle: FileHandle | None) -> None:
        """End what `begin` announced: with a handle, or with None where others have to open the file."""
        self._cache.single_flight.land(flight, value=handle)

    def keeps(self, client: Client) -> bool:
        """Whether metadata of a store's files is cached on disk."""
        return self._cache.disk_for(client.token) is not None

    async def recall(self, client: Client, file: FileEntry) -> tuple[FileHandle, int] | None:
        """The handle of a file whose metadata is on disk and may be used, and the round trips to know that."""
        return await self.freshness.load(client, file, self.steps(file, self._hints.of(client, file)))

    async def keep(self, client: Client, handle: FileHandle, seen: list[Stash | Tail]) -> None:
        """Write the bytes that a file was opened by to the disk cache, if there is one."""
        await self.freshness.store(client, handle, seen)

    async def fetch_tail(self, client: Client, file: FileEntry, *, hint: int) -> Tail:
        """The end of a file, as far as the hint goes."""
        try:
            return await self._read_tail(client, file.path, hint, _listed(client, file))
        except ObjectChangedError:
            return await self._read_tail(client, file.path, hint, None)

    def adopt(self, client: Client, file: FileEntry, *, handle: FileHandle, hint: int) -> None:
        """Keep a file that was opened by a first read of `hint` bytes."""
        self._hints.learn(client, file, handle, hint)
        self._cache.put(file_key(client.token, file.path), handle, handle.nbytes)

    def keep_tail(self, client: Client, file: FileEntry, tail: Stash | Tail, *, among: int) -> None:
        """Let tasks read from the tail that came with a file's footer, where memory allows that for so many files."""
        if isinstance(tail, Tail):
            self._keep_tail(client, file.path, tail, among)

    def named(self, error: Exception, file: FileEntry) -> Exception:
        """An error that says which file it is of, as the user knows it."""
        return error.of(file.url) if isinstance(error, AccelError) else error

    async def _answer(
        self, client: Client, path: str, request: ReadRequest, pin: ObjectId | None
    ) -> tuple[Stash, int]:
        """The wanted bytes, dictionary pages from the cache where they were met before; and round trips."""
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

    def _keep_tail(self, client: Client, path: str, tail: Tail, among: int) -> None:
        if tail.etag is None:
            return
        if self._tails is None:
            self._dropped[client.token, path] = ObjectId(path, tail.size, tail.etag), tail.start
            return
        if len(tail.data) * among <= self.options.memory_limit // _TAILS_SHARE:
            pin = ObjectId(path, tail.size, tail.etag)
            self._tails[client.token, path] = (pin, tail.start, tail.data)

    def take_tail(self, client: Client, handle: FileHandle) -> tuple[int, memoryview] | None:
        """The data that the first read of this version brought along, and where it starts; handed out once."""
        found = self._tails.pop((client.token, handle.id.path), None) if self._tails is not None else None
        # Another scan may have loaded the handle, of another version than this one read the tail of.
        return found[1:] if found is not None and found[0] == handle.id else None

    def dropped_from(self, client: Client, file: ObjectId) -> int | None:
        """Where the tail of a version starts that was read here and that no task reads from; None where there is none."""
        found = self._dropped.get((client.token, file.path))
        return found[1] if found is not None and found[0] == file else None

    def forget(self, root: str, path: str) -> None:
        """Drop what is cached of a file that turned out to have changed."""
        self.freshness.forget(self._client_for(root), path)


def _listed(client: Client, file: FileEntry) -> ObjectId | None:
    """Azure has no suffix ranges: there the listing's size saves a request. Elsewhere the file is found as it is."""
    if file.size is None or file.etag is None or client.suffixes:
        return None
    return ObjectId(file.path, file.size, file.etag)
