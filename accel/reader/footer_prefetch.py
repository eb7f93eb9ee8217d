"""Files that no cache knows, opened ahead of their turn: requested by a few tasks, parsed and pruned many at
a time.

Part of stage 2. In: file entries. Out: `PrefetchedFile`s, each with a handle, an error, or the verdict that
its statistics exclude it. What bounds it: `Options.max_files_in_flight` requests, 512 files ahead, and a
quarter of `memory_limit` for tails that are not settled.

A small file costs its request and little else: no task, no timer and no parse of its own. Whatever is out of
the ordinary about a file is left to `Opener.open`, or raised when its turn comes.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Generic, TypeVar

from accel.decode.arrow import shared_schema
from accel.errors import AccelError, refuse_unforeseen
from accel.format.footer import FooterBytes, parse_footer
from accel.format.footer_batch import FooterTemplate, find_template, parse_footers
from accel.format.model import FileMetadata, ParquetSchema
from accel.format.packed import PackedMetadata
from accel.planning.file_entry import FileEntry
from accel.planning.handle import FileHandle
from accel.planning.opening import LEAST_TAIL, footer_in
from accel.planning.read_request import ReadRequest, Steps, Tail, TailRequest
from accel.ranges import Stash
from accel.reader.opener import Opener
from accel.reader.tails import given_tail
from accel.runtime.tasks import breathe, foreign_cancellation
from accel.store.client import Client

__all__ = [
    "BatchWorker",
    "FooterBatchParser",
    "FooterPrefetcher",
    "PrefetchedFile",
    "Prune",
    "RequestWidth",
]

Prune = Callable[[Sequence[tuple[FileEntry, FileHandle]]], Awaitable[Sequence[bool]]]
"""Tells for files that have just been opened which of them hold nothing that matches."""

_BATCH: Final = 64
"""Files parsed or pruned together: more gain little, and would hold up the loop."""
DEPTH: Final = 512
"""Files ahead of the one whose turn it is: while some are parsed, requests for others are under way."""
_SHARE: Final = 4
"""Tails that are not settled take at most one part in so many of `memory_limit`."""
PATIENCE: Final = 2e-4
"""Seconds to wait for more responses, per request under way, before those that came are handled."""


@dataclass(slots=True, eq=False)
class PrefetchedFile:
    """One file, from its request to the verdict."""

    file: FileEntry
    client: Client
    flight: asyncio.Future[FileHandle | None]
    """Others who want the same file meanwhile wait for it."""
    done: bool = False
    """Nothing more is under way. Without a handle and an error the file is to be opened by `Opener.open`."""
    handle: FileHandle | None = None
    round_trips: int = 1
    excluded: bool = False
    """The statistics of the file exclude it: there is nothing to read."""
    error: Exception | None = None
    """To be raised in the file's turn."""
    seen: list[Stash | Tail] = field(default_factory=list)
    """The bytes that came, the tail first. Empty for a file whose handle is made already."""
    recalled_at: float | None = None
    """When the version of bytes was checked that did not come from the store, but from the file's source or a
    cache."""
    asks_store: bool = False
    """These bytes turned out to be of no use."""
    sent_at: float = 0.0
    hint: int = 0
    """Bytes of the end of the file that were requested first."""

    @property
    def is_recalled(self) -> bool:
        """Whether its metadata did not come from the store."""
        return not self.seen or self.recalled_at is not None


class FooterPrefetcher:
    """Opens files ahead for one scan. Used on one event loop; `aclose` ends what is under way.

    Parameters
    ----------
    opener : Opener
    prune : callable
        Awaited with files that have just been opened.
    most : int
        Requests under way at once, at most: see `RequestWidth`.
    """

    def __init__(self, opener: Opener, prune: Prune, *, most: int) -> None:
        self._opener = opener
        self._prune = prune
        self._most = most
        self._width = RequestWidth(most, widened=self._send_more)
        self._parser = FooterBatchParser(shared_schema)
        self._queue: deque[PrefetchedFile] = deque()
        self._arrived = BatchWorker(self._start, self._open_some, most=_BATCH, then=self._look)
        self._open: set[PrefetchedFile] = set()
        self._early: dict[tuple[str, str], PrefetchedFile] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._requests = 0
        self._unpruned = BatchWorker(
            self._start, self._prune_some, most=_BATCH, then=lambda: self._unpruned.begin()
        )
        self._longest = opener.options.tail_hint or LEAST_TAIL
        self._timer: asyncio.TimerHandle | None = None
        self._progress: asyncio.Future[None] | None = None
        self._closing = False
        self.failed = False
        """One of the files could not be opened: no other is opened ahead of it any more."""

    @property
    def depth(self) -> int:
        """How many files may be opened ahead."""
        return min(DEPTH, max(self._most, self._room))

    @property
    def _room(self) -> int:
        """How many tails may be in memory that are not settled."""
        return self._opener.options.memory_limit // _SHARE // self._longest

    def ask(self, file: FileEntry) -> PrefetchedFile | None:
        """Begin to open a file; returns None where `Opener.open` is to do it."""
        begun = None if self.failed else self._opener.begin(file)
        if begun is None:
            return None
        client, flight = begun
        prefetched = PrefetchedFile(file, client, flight)
        self._open.add(prefetched)
        self._queue.append(prefetched)
        self._send()
        return prefetched

    def ask_early(self, files: Iterable[FileEntry]) -> None:
        """Begin to open the first of some files that are certain to be taken by `take_early`.

        None of them may be settled before the source has yielded all of its files, so their memory is bounded
        here.
        """
        self._start(self._ask_early(files))

    async def _ask_early(self, files: Iterable[FileEntry]) -> None:
        sent = cached = 0
        for file in files:
            await breathe()
            prefetched = self.ask(file)
            if prefetched is None:
                cached += 1
                if cached > 1:  # one may have been opened for the schema; with two, all may be cached
                    break
                continue
            self._early[file.root, file.path] = prefetched
            self._longest = max(self._longest, self._opener.hints.of(prefetched.client, file, concurrent=1))
            sent += 1
            if sent >= min(DEPTH, self._room):
                break

    async def open_early(self, file: FileEntry) -> tuple[FileHandle, int] | None:
        """Wait for a file that `ask_early` began to open. Returns as `Opener.open` does, or None where that
        is to open the file."""
        prefetched = self.take_early(file)
        if prefetched is None:
            return None
        handle = await asyncio.shield(prefetched.flight)
        if prefetched.error is not None:
            raise prefetched.error
        return None if handle is None else (handle, prefetched.round_trips)

    def take_early(self, file: FileEntry) -> PrefetchedFile | None:
        """Return the file as `ask_early` began to open it, handed out once; None where it did not, or for
        another version."""
        prefetched = self._early.pop((file.root, file.path), None)
        return prefetched if prefetched is not None and prefetched.file == file else None

    async def progress(self) -> None:
        """Wait until some file is settled."""
        if self._progress is None:
            self._progress = asyncio.get_running_loop().create_future()
        await asyncio.shield(self._progress)

    async def aclose(self) -> None:
        """End all requests. Their files are to be opened by `Opener.open`."""
        self._closing = True
        self._width.close()
        if self._timer is not None:
            self._timer.cancel()
        for task in self._tasks:
            task.cancel()
        try:
            if self._tasks:
                await asyncio.wait(self._tasks)
        finally:
            # A caller that is cancelled here leaves nobody waiting.
            for prefetched in tuple(self._open):
                self._settle(prefetched)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        """Have an unexpected error of a task raised in the turn of every file that it may have left
        waiting."""
        self._tasks.discard(task)
        error = (
            task.exception() if not task.cancelled() else None if self._closing else foreign_cancellation()
        )
        if isinstance(error, Exception):
            self._arrived.waiting.clear()
            self._unpruned.waiting.clear()
            for prefetched in tuple(self._open):
                self._fail(prefetched, error)

    # -- requests --------------------------------------------------------------------------------

    def _send(self) -> None:
        if self._requests < self._width.now:
            self._requests += 1
            self._start(self._read())
        else:
            self._width.ask()

    def _send_more(self) -> None:
        # One more than there is room for: it asks for more room again.
        for _ in range(min(self._width.now - self._requests + 1, len(self._queue))):
            self._send()

    async def _read(self) -> None:
        """Request the tails of files, one after the other, until none is left."""
        try:
            while self._queue:
                await breathe()
                if not self._queue:
                    break
                prefetched = self._queue.popleft()
                prefetched.sent_at = time.monotonic()
                try:
                    client, file = prefetched.client, prefetched.file
                    prefetched.hint = self._opener.hints.of(client, file, concurrent=len(self._open))
                    self._longest = max(self._longest, prefetched.hint)
                    if not await self._recall(prefetched):
                        prefetched.seen.append(
                            await self._opener.fetch_tail(client, file, hint=prefetched.hint)
                        )
                except Exception as error:  # noqa: BLE001 - raised when its turn comes
                    self._fail(prefetched, error)
                else:
                    self._arrived.waiting.append(prefetched)
                    self._look()
        finally:
            self._requests -= 1
        if not self._requests:
            self._look()

    async def _recall(self, prefetched: PrefetchedFile) -> bool:
        """Find the metadata of a file where it costs less than a request; return whether that came to
        something."""
        opener, client, file = self._opener, prefetched.client, prefetched.file
        if prefetched.asks_store or not (opener.freshness.stores(client) or given_tail(file) is not None):
            return False
        if file.etag is None and not file.immutable:
            recalled = await opener.recall(client, file)
            if recalled is not None:
                prefetched.handle, prefetched.round_trips = recalled
            return recalled is not None
        found = await opener.recall_tail(client, file)
        if found is None:
            return False
        tail, prefetched.recalled_at = found
        prefetched.seen.append(tail)
        return True

    def _look(self) -> None:
        """Parse what has arrived, if that is enough by now."""
        arrived = self._arrived
        if arrived.busy or not arrived.waiting:
            return
        coming = self._requests + len(self._queue) - 1
        if len(arrived.waiting) >= _BATCH or coming <= 0:
            self._parse_now()
        elif self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._requests * PATIENCE, self._parse_now)

    def _parse_now(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._arrived.begin()

    # -- what has arrived ------------------------------------------------------------------------

    async def _open_some(self, some: Sequence[PrefetchedFile]) -> None:
        opened = [prefetched for prefetched in some if prefetched.handle is not None]
        arrived = [(prefetched, prefetched.seen[0]) for prefetched in some if prefetched.handle is None]
        tails = [(prefetched, tail) for prefetched, tail in arrived if isinstance(tail, Tail)]
        parsed = self._parser.parse([tail for _, tail in tails])
        for (prefetched, tail), metadata in zip(tails, parsed, strict=True):
            await breathe()
            steps = self._opener.steps(prefetched.file, prefetched.hint)
            try:
                next(steps)
                request = steps.send(
                    tail if metadata is None else Tail(tail.data, tail.start, tail.size, tail.etag, metadata)
                )
            except StopIteration as done:
                if await self._is_open(prefetched, done.value):
                    opened.append(prefetched)
            except Exception as error:  # noqa: BLE001 - raised when its turn comes
                if prefetched.recalled_at is None:
                    self._fail(prefetched, error)
                else:
                    self._ask_store(prefetched)
            else:
                if prefetched.recalled_at is None:
                    self._start(self._finish(prefetched, tail, steps, request))
                else:
                    steps.close()
                    self._ask_store(prefetched)
        await self._conclude(opened)

    async def _finish(
        self,
        prefetched: PrefetchedFile,
        tail: Tail,
        steps: Steps[FileHandle],
        request: ReadRequest | TailRequest,
    ) -> None:
        """Request what the tail lacks of a longer footer."""
        try:
            handle, trips = await self._opener.drive_on(
                steps,
                request,
                client=prefetched.client,
                path=prefetched.file.path,
                tail=tail,
                seen=prefetched.seen,
            )
        except Exception as error:  # noqa: BLE001 - raised when its turn comes
            self._fail(prefetched, error)
        else:
            prefetched.round_trips += trips
            if await self._is_open(prefetched, handle):
                await self._conclude([prefetched])

    async def _is_open(self, prefetched: PrefetchedFile, handle: FileHandle) -> bool:
        """Note the handle of a file; return False where its bytes were useless, and the store is queried."""
        if prefetched.recalled_at is None:
            handle.checked_at = prefetched.sent_at
        else:
            trips = await self._opener.freshness.confirm_recalled(
                prefetched.client, handle, prefetched.file, checked_at=prefetched.recalled_at
            )
            if trips is None:
                self._ask_store(prefetched)
                return False
            prefetched.round_trips = trips
        prefetched.handle = handle
        return True

    def _ask_store(self, prefetched: PrefetchedFile) -> None:
        prefetched.seen, prefetched.recalled_at, prefetched.asks_store = [], None, True
        self._queue.appendleft(prefetched)
        self._send()

    async def _conclude(self, opened: Sequence[PrefetchedFile]) -> None:
        """Cache files that are open; they are pruned next."""
        opener, recalled = self._opener, 0
        for prefetched in opened:
            if prefetched.handle is None:
                raise TypeError("a file that is not open cannot be cached")
            opener.adopt(prefetched.client, prefetched.file, handle=prefetched.handle, hint=prefetched.hint)
            # Pruning may wait for the question, which may wait for this file.
            opener.end(prefetched.flight, prefetched.handle)
            recalled += prefetched.is_recalled
        opener.metrics.add("metadata_hits", recalled)
        opener.metrics.add("metadata_misses", len(opened) - recalled)
        for prefetched in opened:
            if (
                not prefetched.is_recalled
                and prefetched.handle is not None
                and opener.freshness.stores(prefetched.client)
            ):
                await opener.freshness.store(prefetched.client, prefetched.handle, prefetched.seen)
        self._unpruned.waiting += opened
        self._unpruned.begin()

    async def _prune_some(self, some: Sequence[PrefetchedFile]) -> None:
        """Settle files that are open. Nobody else waits for what is done here."""
        await breathe()
        pairs = [(prefetched.file, prefetched.handle) for prefetched in some if prefetched.handle is not None]
        for prefetched, excluded in zip(some, await self._prune(pairs), strict=True):
            prefetched.excluded = excluded
            if not prefetched.is_recalled and not excluded:
                tail = prefetched.seen[0]
                if isinstance(tail, Tail):
                    path, among = prefetched.file.path, len(self._open)
                    self._opener.tails.keep(prefetched.client, path, tail, among=among)
            self._settle(prefetched)

    def _fail(self, prefetched: PrefetchedFile, error: Exception) -> None:
        self.failed = True
        prefetched.error = self._opener.named(error, prefetched.file)
        self._settle(prefetched)
        # The turn of this file decides whether the others are opened at all.
        while self._queue:
            self._settle(self._queue.popleft())

    def _settle(self, prefetched: PrefetchedFile) -> None:
        prefetched.done = True
        prefetched.seen = []
        self._open.discard(prefetched)
        self._opener.end(prefetched.flight, prefetched.handle)
        if self._progress is not None:
            if not self._progress.done():
                self._progress.set_result(None)
            self._progress = None


T = TypeVar("T")


class BatchWorker(Generic[T]):
    """Works through items some at a time, in the order in which they were added.

    Parameters
    ----------
    start : callable
        Starts a coroutine as a task that the caller owns.
    do : callable
        Awaited with some items.
    most : int
        Items at a time, at most.
    then : callable
        Called after each batch, unless the batch failed.
    """

    def __init__(
        self,
        start: Callable[[Coroutine[Any, Any, None]], None],
        do: Callable[[Sequence[T]], Awaitable[None]],
        *,
        most: int,
        then: Callable[[], None],
    ) -> None:
        self._start = start
        self._do = do
        self._most = most
        self._then = then
        self.waiting: list[T] = []
        self.busy = False

    def begin(self) -> None:
        """Start on the next batch, unless one is under way."""
        if self.waiting and not self.busy:
            self.busy = True
            self._start(self._go())

    async def _go(self) -> None:
        some, self.waiting = self.waiting[: self._most], self.waiting[self._most :]
        try:
            await self._do(some)
        finally:
            self.busy = False
        self._then()


AT_FIRST: Final = 128
"""Requests under way at once until the loop is seen to have time for more."""
LOOK: Final = 0.005
"""Seconds after which the load of the loop is measured, while files wait."""
MORE: Final = 32
"""How much the limit of requests is raised at a time."""
_BUSY: Final = 0.75
"""A loop that is busy for more than this share of the time gains nothing from more connections."""


class RequestWidth:
    """A limit that grows while the loop is idle. Used on one event loop; `close` ends its timer.

    Parameters
    ----------
    most : int
        The limit never grows beyond this.
    widened : callable
        Called after each measurement, whether the limit has grown or not.
    """

    def __init__(self, most: int, *, widened: Callable[[], None]) -> None:
        self._most = most
        self._widened = widened
        self.now = min(most, AT_FIRST)
        """The limit."""
        self._timer: asyncio.TimerHandle | None = None
        self._since = 0.0
        self._worked = 0.0

    def ask(self) -> None:
        """Measure the load soon: somebody waits for the limit to grow."""
        if self._timer is None and self.now < self._most:
            self._since, self._worked = time.monotonic(), time.thread_time()
            self._timer = asyncio.get_running_loop().call_later(LOOK, self._look)

    def close(self) -> None:
        """Stop measuring."""
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        self._timer = None
        if time.thread_time() - self._worked < _BUSY * (time.monotonic() - self._since):
            self.now = min(self.now + MORE, self._most)
        self._widened()


_FEWEST: Final = 4
"""Footers; fewer are parsed faster one by one."""
_LONGEST: Final = 16 * 1024
"""Bytes of a footer; longer ones gain nothing."""
_TEMPLATES: Final = 8
"""How many footer layouts are remembered; the one learned first is dropped."""


class FooterBatchParser:
    """Parses the footers of one scan that arrive at about the same time together, where they are laid out
    alike.

    A footer of a few column chunks takes an interpreter longer than its request; thirty at once take little
    longer than three (`format.footer_batch`).

    Parameters
    ----------
    shared : callable
        Returns an equal schema object that another file has, if there is one.
    """

    def __init__(self, shared: Callable[[ParquetSchema], ParquetSchema]) -> None:
        self._shared = shared
        self._templates: deque[FooterTemplate] = deque(maxlen=_TEMPLATES)
        self._failed_templates = 0

    def parse(self, tails: Sequence[Tail]) -> list[FileMetadata | PackedMetadata | None]:
        """Parse the footer in each tail; None where the caller has to do it."""
        found: list[FileMetadata | PackedMetadata | None] = [None] * len(tails)
        if len(tails) < _FEWEST or self._failed_templates > _TEMPLATES:
            return found
        waiting = [
            (place, footer)
            for place, tail in enumerate(tails)
            if (footer := footer_in(tail, _LONGEST)) is not None
        ]
        waiting = self._parse_alike(waiting, found)
        if len(waiting) >= _FEWEST:
            self._parse_alike(self._learn(waiting, found), found)
        return found

    def _parse_alike(
        self, waiting: list[tuple[int, FooterBytes]], found: list[FileMetadata | PackedMetadata | None]
    ) -> list[tuple[int, FooterBytes]]:
        """Parse footers of layouts met before; returns the other footers."""
        for kind in self._templates:
            if len(waiting) < _FEWEST:
                break
            fitting = [one for one in waiting if kind.fits(one[1].data)]
            read = _read_alike(kind, [footer for _, footer in fitting]) if len(fitting) >= _FEWEST else None
            if read is None:
                continue
            for (place, _), metadata in zip(fitting, read, strict=True):
                found[place] = metadata
            waiting = [one for one in waiting if found[one[0]] is None]
            self._failed_templates = 0
        return waiting

    def _learn(
        self, waiting: list[tuple[int, FooterBytes]], found: list[FileMetadata | PackedMetadata | None]
    ) -> list[tuple[int, FooterBytes]]:
        """Parse the first footer alone, as the template of a layout; returns the other footers."""
        (place, footer), *rest = waiting
        self._failed_templates += 1
        try:
            metadata = parse_footer(footer.data, file_size=footer.file_size, footer_start=footer.footer_start)
        except AccelError:
            return waiting
        metadata = replace(metadata, schema=self._shared(metadata.schema))
        found[place] = metadata
        kind = find_template(metadata)
        if kind is not None:
            self._templates.appendleft(kind)
        return rest


def _read_alike(kind: FooterTemplate, footers: Sequence[FooterBytes]) -> list[PackedMetadata] | None:
    try:
        with refuse_unforeseen("footer"):
            return parse_footers(kind, footers)
    except AccelError:
        # Parsed one by one, the footer that is damaged is named by its file.
        return None
