"""Open files and run pieces of tasks: the one place where plan, I/O and decode meet.

Everything here runs on the private I/O loop (`io.runtime`).
"""

from __future__ import annotations

import enum
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import pyarrow as pa

from accel.decode.arrow import file_schema
from accel.decode.dictionary import dictionary_values
from accel.decode.piece import LeafBytes, decode_piece
from accel.decode.pool import DecodePool
from accel.errors import AccelError, IndexFormatError, ObjectChangedError, redact
from accel.format.model import SchemaElement
from accel.io.cache import Cache
from accel.io.client import Client
from accel.io.held import HeldFiles
from accel.io.kept import recorded
from accel.metrics import Metrics
from accel.options import Options
from accel.planning.file import DataFile, ObjectId
from accel.planning.filing import FilePlan, plan_file
from accel.planning.handle import FileHandle
from accel.planning.need import Need, NeedTail, Steps, Tail
from accel.planning.opening import open_file
from accel.planning.pages import Piece
from accel.planning.query import Question, compile_query
from accel.planning.selection import RowSelection
from accel.planning.task import ScanTask, TaskFile
from accel.ranges import Kind, ReadKey, Stash
from accel.task_reads import PieceRead, TaskReads, dictionary_key

__all__ = ["Reader", "Tails"]

T = TypeVar("T")
_ARROW_SCHEMA = "ARROW:schema"
# What decodes to more than so many times `inline_decode_bytes` would hold up the I/O loop.
_INLINE_EXPANSION = 16
_NO_SUFFIX = ("az:", "abfss:")


class Tails(enum.Enum):
    """What becomes of the data at the end of files that the first read brings along with their footers."""

    DROP = "drop"
    """Tasks go elsewhere, or stay: a plan of many files would hold many tails."""
    SERVE = "serve"
    """The tasks of the same run read from it."""


class Reader:
    """Opens, plans and reads files of any number of stores for one scan."""

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
        self._held = HeldFiles(cache, metrics)
        self.options = options
        self.metrics = metrics
        self._tails: dict[tuple[str, str], tuple[ObjectId, int, memoryview]] | None = (
            {} if tails is Tails.SERVE else None
        )
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
        while True:
            handle = self._cache.get(key)
            if isinstance(handle, FileHandle):
                confirmed = await self._held.confirm(client, handle, file, now)
                if confirmed is not None:
                    self.metrics.add("metadata_hits")
                    return handle, confirmed
                self._held.forget(client, file.path)
            trips: list[int] = []

            async def load(trips: list[int] = trips) -> tuple[FileHandle, int]:
                loaded, took = await self._load(client, file)
                trips.append(took)
                return loaded, loaded.nbytes

            try:
                handle = await self._cache.get_or_load(key, load)
            except AccelError as error:
                raise error.of(file.url) from error.__cause__
            if trips:
                return handle, trips[0]
            # One who waited for another's load, begun before, may have to ask whether it still holds.
            if self._held.fresh(handle, now):
                self.metrics.add("metadata_misses")
                return handle, 1

    async def _load(self, client: Client, file: DataFile) -> tuple[FileHandle, int]:
        prefix = ("hint", client.token, file.path.partition("?")[0].rpartition("/")[0])
        hint = self._cache.get(prefix)

        def steps() -> Steps[FileHandle]:
            return open_file(
                file.path,
                hint if isinstance(hint, int) else self.options.tail_hint,
                max_footer_bytes=self.options.max_footer_bytes,
                arrow_schema=file_schema,
            )

        seen: list[Stash | Tail] = []
        recalled = await self._held.recall(client, file, steps())
        if recalled is not None:
            handle, trips = recalled
        else:
            started = time.monotonic()
            try:
                handle, trips = await self._drive(recorded(steps(), seen), client, file.path, _listed(file))
            except ObjectChangedError:
                # Not the version that was listed any more: the current one will do as well.
                handle, trips = await self._drive(recorded(steps(), seen), client, file.path, None)
            handle.checked_at = started
            await self._held.keep(client, handle, seen)
        self.metrics.add("metadata_misses" if recalled is None else "metadata_hits")
        learned = min(handle.suggested_tail_bytes() * 5 // 4, self.options.max_tail_hint)
        if not isinstance(hint, int) or learned > hint:
            self._cache.put(prefix, max(learned, self.options.tail_hint), 256)
        return handle, trips

    async def _drive(self, steps: Steps[T], client: Client, path: str, pin: ObjectId | None) -> tuple[T, int]:
        """Answer a step's needs from the network; the result, and the round trips it took."""
        trips = 0
        try:
            need = next(steps)
            while True:
                answer: Stash | Tail
                if isinstance(need, NeedTail):
                    payload = await client.read_tail(path, need.length, metrics=self.metrics, pin=pin)
                    data = memoryview(payload.data)
                    size = payload.size if payload.size is not None else payload.range.end
                    answer = Tail(data, payload.range.start, size, payload.etag)
                    pin = ObjectId(path, size, payload.etag)
                    if self._tails is not None and payload.etag is not None:
                        self._tails[client.token, path] = (pin, payload.range.start, data)
                else:
                    answer, sent = await self._answer(client, path, need, pin)
                    trips += sent - 1
                trips += 1
                need = steps.send(answer)
        except StopIteration as done:
            return done.value, trips

    async def _answer(self, client: Client, path: str, need: Need, pin: ObjectId | None) -> tuple[Stash, int]:
        """The wanted bytes, dictionary pages from the cache where they were met before; and round trips."""
        cached: dict[ReadKey, memoryview] = {}
        keys: dict[ReadKey, tuple[object, ...]] = {}
        for want in need.wants:
            if want.key.kind is Kind.DICTIONARY and pin is not None and pin.etag is not None:
                keys[want.key] = dictionary_key(client, pin, want.key)
                found = self._cache.get(keys[want.key])
                if isinstance(found, bytes):
                    cached[want.key] = memoryview(found)
        missing = [want for want in need.wants if want.key not in cached]
        if not missing:
            return cached, 0
        stash = await client.read(path, missing, pin=pin, metrics=self.metrics)
        for want in missing:
            if want.key in keys:
                data = bytes(stash[want.key])
                self._cache.put(keys[want.key], data, len(data) + 256)
        return {**stash, **cached}, 1

    # -- planning --------------------------------------------------------------------------------

    async def plan(
        self,
        file: DataFile,
        handle: FileHandle,
        question: Question,
        *,
        partition: Mapping[str, pa.Scalar],
        selection: Mapping[int, RowSelection] | None = None,
        limit: int | None = None,
    ) -> tuple[FilePlan, int]:
        """The tasks of one opened file, and the round trips that its page indexes took."""
        client = self._client_for(file.root)
        task_file = describe_file(file, handle, question, partition=partition)
        tail = self._tails.pop((client.token, file.path), None) if self._tails is not None else None
        # Another scan may have loaded the handle, of another version than this one read the tail of.
        if tail is not None and tail[0] == handle.id and not task_file.at_hand:
            task_file = replace(task_file, at_hand=(tail[1:],))
        steps = plan_file(
            handle,
            task_file,
            selection=selection,
            limit=limit,
            piece_bytes=self.options.cut_bytes,
            probe_min_bytes=self.options.probe_min_bytes,
            read_dictionary=_read_dictionary,
            on_bad_index=lambda error: self._on_bad_index(error, file.url),
        )
        before = len(handle.offset_indexes) + len(handle.column_indexes)
        try:
            plan, trips = await self._drive(steps, client, file.path, handle.id)
        except AccelError as error:
            raise error.of(file.url) from error.__cause__
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

    def _on_bad_index(self, error: IndexFormatError, url: str) -> None:
        error.of(url)
        if self.options.strict:
            raise error
        self.metrics.add("indexes_ignored")
        self.metrics.warn(str(error))

    def forget(self, root: str, path: str) -> None:
        """Drop what is cached of a file that turned out to have changed."""
        self._held.forget(self._client_for(root), path)

    def distrust(self, file: DataFile, handle: FileHandle, tasks: Sequence[ScanTask]) -> bool:
        """Give up the page index of a file whose pages contradict it; False where `tasks` did without it."""
        if self.options.strict or all(read.whole for task in tasks for read in task.reads):
            return False
        # Another scan may have found out meanwhile.
        if not handle.distrusted:
            handle.distrusted = True
            handle.offset_indexes.clear()
            handle.column_indexes.clear()
            handle.page_bounds.clear()
            self.metrics.warn(f"{redact(file.url)}: the page index contradicts the pages, and is not used")
        self.metrics.add("indexes_ignored")
        return True

    # -- reading ---------------------------------------------------------------------------------

    def reads(self, task: ScanTask) -> TaskReads:
        client = self._client_for(task.file.root)
        handle = self._cache.get(("file", client.token, task.path))
        known = isinstance(handle, FileHandle) and handle.id == task.file.id
        return TaskReads(task, client, self._cache, self.metrics, handle if known else None)

    async def decode(self, task: ScanTask, read: PieceRead) -> list[pa.RecordBatch]:
        """Decode and filter what was fetched: inline when it is little, else in a thread."""
        piece = read.piece
        batch_rows, limit = self.options.batch_rows, self.options.memory_limit
        call = _Decode(task, piece, read.leaves, batch_rows, limit)
        little = self.options.inline_decode_bytes
        if piece.fetched_bytes <= little and piece.held_bytes <= _INLINE_EXPANSION * little:
            return call()
        batches: list[pa.RecordBatch] = await self._pool.run(call)
        return batches


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
            raise error.of(self.task.file.url) from error.__cause__


def _listed(file: DataFile) -> ObjectId | None:
    """Azure has no suffix ranges: there the listing's size saves a request. Elsewhere the file is found as it is."""
    if file.size is None or file.etag is None or not file.root.startswith(_NO_SUFFIX):
        return None
    return ObjectId(file.path, file.size, file.etag)


def _read_dictionary(
    page: memoryview, codec: int, element: SchemaElement, arrow_type: pa.DataType
) -> pa.Array:
    return dictionary_values(page, codec, element, arrow_type=arrow_type)


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
        created_by=metadata.created_by,
        partition=partition,
        question=question,
        query=compile_query(
            question,
            file_schema=metadata.schema,
            arrow_schema=handle.arrow_schema,
            partition=partition,
            url=file.url,
        ),
        at_hand=((0, handle.tail),) if handle.tail_start == 0 else (),
    )
