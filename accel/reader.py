"""Open files and run pieces of tasks: the one place where plan, I/O and decode meet.

Everything here runs on the private I/O loop (`io.runtime`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from accel.decode.arrow import file_schema
from accel.decode.piece import LeafBytes, decode_piece
from accel.decode.pool import DecodePool
from accel.decode.verify import needs_dictionary
from accel.errors import AccelError, IndexFormatError, ObjectChangedError
from accel.io.cache import Cache
from accel.io.client import Client
from accel.metrics import Metrics
from accel.options import Options
from accel.planning.file import DataFile, ObjectId
from accel.planning.filing import FilePlan, plan_file
from accel.planning.handle import FileHandle
from accel.planning.need import Need, NeedTail, Steps, Tail
from accel.planning.opening import open_file
from accel.planning.pages import Piece, PieceLeaf, piece_wants
from accel.planning.query import Question, compile_query
from accel.planning.selection import RowSelection
from accel.planning.task import ScanTask, TaskFile
from accel.ranges import ByteRange, Kind, ReadKey, Stash, Want

import pyarrow as pa  # isort: skip

__all__ = ["PieceRead", "Reader", "TaskReads"]

T = TypeVar("T")
_ARROW_SCHEMA = "ARROW:schema"


class Reader:
    """Opens, plans and reads files of any number of stores for one scan."""

    def __init__(
        self,
        client_for: Callable[[str], Client],
        *,
        cache: Cache,
        options: Options,
        metrics: Metrics,
    ) -> None:
        self._client_for = client_for
        self._cache = cache
        self.options = options
        self.metrics = metrics
        self._pool = DecodePool.shared(options.decode_threads)

    def client(self, root: str) -> Client:
        return self._client_for(root)

    # -- opening ---------------------------------------------------------------------------------

    async def open(self, file: DataFile) -> tuple[FileHandle, int]:
        """The handle of a file's current version, and the round trips it took.

        A cached one is used while it is younger than the cache's `max_age`, or a listing has just shown
        the same etag; else one conditional request asks whether it still is current.
        """
        client = self._client_for(file.root)
        key = ("file", client.token, file.path)
        now = time.monotonic()
        handle = self._cache.get(key)
        if isinstance(handle, FileHandle):
            if file.etag is not None and (file.etag, file.size) == (handle.id.etag, handle.id.size):
                handle.checked_at = now
            if handle.id.etag is not None and now - handle.checked_at < self._cache.max_age:
                self.metrics.add("metadata_hits")
                return handle, 0
            if handle.id.etag is not None and await self._is_current(client, handle):
                handle.checked_at = now
                self.metrics.add("metadata_hits")
                return handle, 1
            self._cache.drop(key)
        self.metrics.add("metadata_misses")
        trips = 0

        async def load() -> tuple[FileHandle, int]:
            nonlocal trips
            loaded, trips = await self._load(client, file)
            return loaded, loaded.nbytes

        try:
            handle = await self._cache.get_or_load(key, load)
        except AccelError as error:
            raise error.at(path=file.url) from error.__cause__
        # One who waited for another's load waited as long as that took.
        return handle, trips or 1

    async def _is_current(self, client: Client, handle: FileHandle) -> bool:
        size = handle.id.size
        want = Want(ReadKey(Kind.REVALIDATE), ByteRange(size - 4, size))
        try:
            await client.read(handle.id.path, [want], pin=handle.id, metrics=self.metrics)
        except ObjectChangedError:
            return False
        return True

    async def _load(self, client: Client, file: DataFile) -> tuple[FileHandle, int]:
        prefix = ("hint", client.token, file.path.partition("?")[0].rpartition("/")[0])
        hint = self._cache.get(prefix)
        steps = open_file(
            file.path,
            hint if isinstance(hint, int) else self.options.tail_hint,
            max_footer_bytes=self.options.max_footer_bytes,
            arrow_schema=file_schema,
        )
        started = time.monotonic()
        handle, trips = await self._drive(steps, client, file.path, None)
        handle.checked_at = started
        learned = min(handle.suggested_tail_bytes() * 5 // 4, self.options.max_tail_hint)
        if not isinstance(hint, int) or learned > hint:
            self._cache.put(prefix, max(learned, 1024), 256)
        return handle, trips

    async def _drive(
        self, steps: Steps[T], client: Client, path: str, pin: ObjectId | None
    ) -> tuple[T, int]:
        """Answer a step's needs from the network; the result, and the round trips it took."""
        trips = 0
        try:
            need = next(steps)
            while True:
                answer: Stash | Tail
                if isinstance(need, NeedTail):
                    payload = await client.read_tail(path, need.length, metrics=self.metrics)
                    data = memoryview(payload.data)
                    size = payload.size if payload.size is not None else payload.range.end
                    answer = Tail(data, payload.range.start, size, payload.etag)
                    pin = ObjectId(path, size, payload.etag)
                else:
                    answer = await client.read(path, need.wants, pin=pin, metrics=self.metrics)
                trips += 1
                need = steps.send(answer)
        except StopIteration as done:
            return done.value, trips

    # -- planning --------------------------------------------------------------------------------

    async def plan(
        self,
        file: DataFile,
        handle: FileHandle,
        question: Question,
        *,
        partition: Mapping[str, pa.Scalar],
        selection: Mapping[int, RowSelection] | None = None,
    ) -> tuple[FilePlan, int]:
        """The tasks of one opened file, and the round trips that its page indexes took."""
        task_file = describe_file(file, handle, question, partition=partition)
        steps = plan_file(
            handle,
            task_file,
            selection=selection,
            piece_bytes=self.options.piece_bytes,
            on_bad_index=self._on_bad_index,
        )
        client = self._client_for(file.root)
        before = len(handle.offset_indexes) + len(handle.column_indexes)
        try:
            plan, trips = await self._drive(steps, client, file.path, handle.id)
        except AccelError as error:
            raise error.at(path=file.url) from error.__cause__
        if len(handle.offset_indexes) + len(handle.column_indexes) != before:
            # Its weight grew.
            self._cache.put(("file", client.token, file.path), handle, handle.nbytes)
        metrics = self.metrics
        metrics.row_groups.add(total=plan.row_groups, kept=plan.row_groups_kept)
        metrics.pages.add(total=plan.pages, kept=plan.pages_kept)
        metrics.rows.add(total=plan.rows, kept=plan.rows_kept)
        if plan.chunks_whole:
            metrics.add("fallbacks", plan.chunks_whole)
        return plan, trips

    def _on_bad_index(self, error: IndexFormatError) -> None:
        if self.options.strict:
            raise error
        self.metrics.add("indexes_ignored")
        self.metrics.warn(str(error))

    def forget(self, file: DataFile) -> None:
        """Drop what is cached of a file that turned out to have changed."""
        self._cache.drop(("file", self._client_for(file.root).token, file.path))

    # -- reading ---------------------------------------------------------------------------------

    def reads(self, task: ScanTask) -> TaskReads:
        client = self._client_for(task.file.root)
        return TaskReads(task, client, self._cache, self.options, self.metrics)

    async def decode(self, task: ScanTask, read: PieceRead) -> list[pa.RecordBatch]:
        """Decode and filter what was fetched: inline when it is little, else in a thread."""
        piece = read.piece
        batch_rows, limit = self.options.batch_rows, self.options.memory_limit
        call = _Decode(task, piece, read.leaves, batch_rows, limit)
        if piece.fetched_bytes <= self.options.inline_decode_bytes:
            return call()
        return await self._pool.run(call)


@dataclass(frozen=True, slots=True)
class _Decode:
    task: ScanTask
    piece: Piece
    leaves: Mapping[int, LeafBytes]
    batch_rows: int
    memory_limit: int

    def __call__(self) -> list[pa.RecordBatch]:
        try:
            return decode_piece(
                self.task,
                self.piece,
                self.leaves,
                batch_rows=self.batch_rows,
                memory_limit=self.memory_limit,
            )
        except AccelError as error:
            raise error.at(path=self.task.file.url) from error.__cause__


def describe_file(
    file: DataFile, handle: FileHandle, question: Question, *, partition: Mapping[str, pa.Scalar]
) -> TaskFile:
    """What the tasks of an opened file share."""
    metadata = handle.metadata
    kept = {k: v for k, v in metadata.key_value.items() if k == _ARROW_SCHEMA}
    return TaskFile(
        root=file.root,
        url=file.url,
        id=handle.id,
        schema=metadata.schema,
        arrow_schema=handle.arrow_schema,
        key_value=kept,
        partition=partition,
        question=question,
        query=compile_query(
            question,
            file_schema=metadata.schema,
            arrow_schema=handle.arrow_schema,
            partition=partition,
            url=file.url,
        ),
    )


@dataclass(frozen=True, slots=True)
class PieceRead:
    """A piece with its bytes."""

    piece: Piece
    leaves: Mapping[int, LeafBytes]
    round_trips: int


@dataclass(slots=True)
class TaskReads:
    """Fetches the pieces of one task; pages that straddle a cut, and dictionaries, are fetched once."""

    task: ScanTask
    client: Client
    cache: Cache
    options: Options
    metrics: Metrics
    _carried: dict[tuple[int, int], asyncio.Future[bytes]] = field(default_factory=dict)
    _pending: dict[ReadKey, asyncio.Future[bytes]] = field(default_factory=dict)

    def _dictionary_key(self, key: ReadKey) -> tuple[object, ...]:
        file = self.task.file.id
        return ("dict", self.client.token, file.path, file.etag, file.size, key.row_group, key.column)

    def has_dictionary(self, key: ReadKey) -> bool:
        """Whether a dictionary page is cached."""
        return self._cached_dictionary(key) is not None

    def expect(self, pieces: list[Piece]) -> None:
        """Told of all pieces, in order, before the first is fetched: notes what straddles a cut."""
        loop = asyncio.get_running_loop()
        for piece in pieces:
            for part in piece.leaves:
                if part.carried:
                    key = (part.reads.leaf, int(part.reads.ordinal[part.lo]))
                    if key not in self._carried:
                        self._carried[key] = loop.create_future()

    async def fetch(self, piece: Piece) -> PieceRead:
        """The bytes of a piece: one round trip, two where a dictionary turns out to be needed."""
        group = self.task.row_group
        pages, wanted = piece_wants(piece, group, lambda key: False)
        stash, missing, awaited = self._dictionaries_at_hand(wanted)
        trips = 0
        if pages or missing:
            try:
                stash |= await self._read([*pages, *missing])
            except BaseException:
                self._abandon(piece, missing)
                raise
            trips = 1
        self._keep(missing, stash)
        for want in awaited:
            stash[want.key] = memoryview(await asyncio.shield(self._pending[want.key]))
        self._carry(piece, stash)
        leaves: dict[int, LeafBytes] = {}
        late: list[tuple[PieceLeaf, Want]] = []
        for part in piece.leaves:
            found_pages = await self._pages(part, stash)
            want = None if part.reads.whole else part.dictionary_want(group)
            dictionary = None if want is None else stash.get(want.key)
            if want is not None and dictionary is None and any(needs_dictionary(p) for p in found_pages):
                late.append((part, want))
            leaves[part.reads.leaf] = LeafBytes(dictionary, found_pages)
        if late:
            self.metrics.add("late_dictionaries", len(late))
            more = await self._late([want for _, want in late])
            trips += 1
            for part, want in late:
                leaves[part.reads.leaf] = LeafBytes(more[want.key], leaves[part.reads.leaf].pages)
        return PieceRead(piece, leaves, trips)

    def _dictionaries_at_hand(
        self, wanted: list[Want]
    ) -> tuple[dict[ReadKey, memoryview], list[Want], list[Want]]:
        """Which dictionary pages are cached, which to ask for, and which an earlier piece asked for."""
        cached: dict[ReadKey, memoryview] = {}
        missing: list[Want] = []
        awaited: list[Want] = []
        for want in wanted:
            if want.key in self._pending:
                awaited.append(want)
                continue
            found = self._cached_dictionary(want.key)
            if found is not None:
                self.metrics.add("dictionary_hits")
                cached[want.key] = memoryview(found)
            else:
                self._pending[want.key] = asyncio.get_running_loop().create_future()
                missing.append(want)
        return cached, missing, awaited

    def _cached_dictionary(self, key: ReadKey) -> bytes | None:
        if self.task.file.id.etag is None:
            return None
        found = self.cache.get(self._dictionary_key(key))
        return found if isinstance(found, bytes) else None

    async def _read(self, wants: list[Want]) -> Stash:
        file = self.task.file
        try:
            return await self.client.read(file.id.path, wants, pin=file.id, metrics=self.metrics)
        except AccelError as error:
            raise error.at(path=file.url) from error.__cause__

    async def _late(self, wants: list[Want]) -> dict[ReadKey, memoryview]:
        found: dict[ReadKey, memoryview] = {}
        for want in wants:
            hit = self._cached_dictionary(want.key)
            if hit is not None:
                found[want.key] = memoryview(hit)
        missing = [want for want in wants if want.key not in found]
        if missing:
            stash = await self._read(missing)
            found.update(stash)
            self._keep(missing, found)
        return found

    def _keep(self, wants: list[Want], stash: Mapping[ReadKey, memoryview]) -> None:
        """Cache dictionary pages like metadata: each is needed again by the next lookup."""
        for want in wants:
            # A copy, so that the merged response it came in can go.
            data = bytes(stash[want.key])
            waiting = self._pending.get(want.key)
            if waiting is not None and not waiting.done():
                waiting.set_result(data)
            if self.task.file.id.etag is not None:
                self.cache.put(self._dictionary_key(want.key), data, len(data) + 256)

    def _carry(self, piece: Piece, stash: Mapping[ReadKey, memoryview]) -> None:
        """Hand the pages that a later piece shares to whoever waits for them."""
        for part in piece.leaves:
            if part.reads.whole or not self._carried:
                continue
            for lo, hi in part.runs():
                want = part.run_want(self.task.row_group, lo, hi)
                for at in range(lo, hi):
                    waiting = self._carried.get((part.reads.leaf, int(part.reads.ordinal[at])))
                    if waiting is not None and not waiting.done():
                        start = int(part.reads.offset[at]) - want.range.start
                        waiting.set_result(bytes(stash[want.key][start : start + int(part.reads.size[at])]))

    def _abandon(self, piece: Piece, missing: list[Want]) -> None:
        for want in missing:
            self._pending[want.key].cancel()
        for part in piece.leaves:
            for at in range(part.lo + (1 if part.carried else 0), part.hi):
                waiting = self._carried.get((part.reads.leaf, int(part.reads.ordinal[at])))
                if waiting is not None and not waiting.done():
                    waiting.cancel()

    async def _pages(self, part: PieceLeaf, stash: Mapping[ReadKey, memoryview]) -> tuple[memoryview, ...]:
        group = self.task.row_group
        if part.reads.whole:
            return (stash[part.chunk_want(group).key],)
        pages = [stash[part.run_want(group, lo, hi).key] for lo, hi in part.runs()]
        if part.carried:
            key = (part.reads.leaf, int(part.reads.ordinal[part.lo]))
            pages.insert(0, memoryview(await asyncio.shield(self._carried[key])))
        return tuple(pages)
