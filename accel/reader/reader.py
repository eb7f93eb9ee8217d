"""Open files and run pieces of tasks: the one place where plan, I/O and decode meet.

Everything here runs on the private I/O loop (`store.io_loop`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa

from accel.cache.cache import Cache, file_key
from accel.coalesce import Merging, RequestShape
from accel.decode.codecs import is_uncompressed
from accel.decode.pool import DecodePiece, DecodePool, DecodeStack, MatchPiece
from accel.errors import AccelError, IndexFormatError, ObjectChangedError
from accel.format.model import SchemaElement
from accel.metrics import Metrics
from accel.options import Options, Phases
from accel.planning.file_entry import FileEntry
from accel.planning.file_planner import FilePlan, plan_file
from accel.planning.handle import FileHandle
from accel.planning.query import Question
from accel.planning.read_request import OnBadIndex, Steps
from accel.planning.selection import RowSelection
from accel.planning.task import ScanTask, describe_file
from accel.planning.two_phase import LEAST_LATE_BYTES, ObservedSelectivity, late_bytes
from accel.reader.opener import Opener, Tails
from accel.reader.task_reads import PieceRead, TaskReads
from accel.store.client import Client
from accel.store.location import LOCAL_ROOT

if TYPE_CHECKING:
    from accel.decode.stack import Layer
    from accel.planning.two_phase import Forecast

__all__ = ["Reader", "Tails"]

T = TypeVar("T")

# Pieces of local files that are under way beyond those that are being decoded.
_LOCAL_AHEAD = 2
# Bytes in doubt; for fewer no index is read, as its answer has to be parsed too.
_LEAST_PROBED = 1 << 20
# Bytes of all wanted chunks of a file; fewer are read whole: to learn which of their pages are wanted takes longer.
_WHOLE_BYTES = 8 << 10
# The bounds of what is decoded on the I/O loop, which more would hold up. A piece may take so many times
# `inline_decode_bytes` in memory,
_INLINE_EXPANSION = 16
# or, where its rows are looked through for some, be so many times as large and take so many times that in memory: to hand
# it over costs more than a thread gains, as most of it is only decompressed.
_INLINE_SOUGHT, _INLINE_SOUGHT_EXPANSION = 4, 8
# Its dictionaries may be so many times as large: a page names few of their entries, but all are decoded.
_INLINE_DICTIONARIES = 4
# A dictionary that needs no decompression counts as this much smaller: nothing else in it takes long.
_UNCOMPRESSED = 8
# Columns of a piece: each costs a fifth of a millisecond, however little it holds.
_INLINE_LEAVES = 12
# Column chunks of row groups decoded together: each costs a quarter of that.
_INLINE_CHUNKS = 48


class Reader:
    """Opens, plans and reads files of any number of stores for one scan.

    With `learns` other scans are told which rows matched (`planning.remembered`); not where somebody else may have made
    the plan, who says where in a file which rows are.
    """

    def __init__(
        self,
        client_for: Callable[[str], Client],
        *,
        cache: Cache,
        options: Options,
        metrics: Metrics,
        tails: Tails = Tails.DROP,
        learns: bool = True,
    ) -> None:
        self._client_for = client_for
        self._cache = cache
        self._opener = Opener(client_for, cache=cache, options=options, metrics=metrics, tails=tails)
        self.options = options
        self.metrics = metrics
        self.num_files = 1
        """Files of the scan: they wait for their indexes at the same time."""
        self._learns = learns
        self.seen = ObservedSelectivity()
        # Versions that were current by then, give or take the cache's `max_age`, stand for the whole run.
        self._started = time.monotonic()
        self._shapes: dict[str, RequestShape] = {}
        self._pool = DecodePool.shared(options.decode_threads)

    def client(self, root: str) -> Client:
        return self._client_for(root)

    @property
    def opener(self) -> Opener:
        """What opens its files."""
        return self._opener

    # -- opening ---------------------------------------------------------------------------------

    async def open(self, file: FileEntry) -> tuple[FileHandle, int]:
        """The handle of a file's current version, and the round trips it took: see `Opener.open`."""
        handle, trips = await self._opener.open(file)
        facts = file.facts
        if facts is not None and facts.pinned and (handle.etag, handle.size) != (facts.etag, facts.size):
            raise ObjectChangedError("the object is another version", path=file.url)
        return handle, trips

    def at_hand(self, file: FileEntry, now: float) -> FileHandle | None:
        """The cached handle of a file, if it may be used without asking: see `Opener.at_hand`."""
        return self._opener.at_hand(file, now)

    def max_pieces(self, root: str) -> int:
        """Pieces of a store's files that may be under way at once: of local files no more than keep the decoding threads
        busy."""
        most = self.options.max_tasks_in_flight
        return min(most, self._pool.threads + _LOCAL_AHEAD) if root == LOCAL_ROOT else most

    # -- planning --------------------------------------------------------------------------------

    def probe_min_bytes(self, root: str) -> int:
        """Pages in doubt of a store's files that are worth a round trip to an index, in bytes."""
        given = self.options.probe_min_bytes
        if given is not None:
            return given
        return max(_LEAST_PROBED, self._client_for(root).network.trip_bytes // max(1, self.num_files))

    def came_along_from(self, task: ScanTask) -> int | None:
        """Where the bytes start that came with the footer of a task's file, and that the task does not read from; None where there
        are none."""
        return self._opener.dropped_from(self._client_for(task.file.root), task.file.id)

    async def plan(
        self,
        file: FileEntry,
        handle: FileHandle,
        question: Question,
        *,
        partition: Mapping[str, pa.Scalar],
        selection: Mapping[int, RowSelection] | None = None,
        limit: int | None = None,
    ) -> tuple[FilePlan, int]:
        """The tasks of one opened file, and the round trips that its page indexes took."""
        self._refuse_passed_over(handle, file.url)
        client = self._client_for(file.root)
        task_file = describe_file(
            file,
            handle,
            question,
            partition=partition,
            arrow_schema=self._opener.schema_of(handle),
            int96_unit=self._opener.int96_unit,
        )
        tail = self._opener.take_tail(client, handle)
        if tail is not None and not task_file.at_hand:
            task_file = replace(task_file, at_hand=(tail,))
        steps = plan_file(
            handle,
            task_file,
            selection=selection,
            limit=limit,
            piece_bytes=self.options.cut_bytes,
            probe_min_bytes=self.probe_min_bytes(file.root),
            early_bytes=client.network.early_bytes,
            whole_bytes=_WHOLE_BYTES,
            read_dictionary=_read_dictionary,
            on_bad_index=lambda error: self._on_bad_index(error, handle, file.url),
        )
        trips = 1
        try:
            plan, trips = await self._opener.drive(steps, client, file.path, handle.id)
        except AccelError as error:
            raise error.of(file.url) from error.__cause__
        finally:
            # Planning that failed or was cancelled may have read indexes as well.
            if handle.has_grown(read=trips > 0):
                self._cache.reweigh(file_key(client.token, file.path), handle, handle.weigh())
        return plan, trips

    async def ask(
        self,
        file: FileEntry,
        handle: FileHandle,
        make: Callable[[OnBadIndex], Steps[T]],
    ) -> tuple[T, int]:
        """What some steps find out about an opened file, and the round trips it took.

        `make` is given what they tell of an index that does not verify.
        """
        self._refuse_passed_over(handle, file.url)
        client = self._client_for(file.root)
        before = handle.nbytes
        steps = make(lambda error: self._on_bad_index(error, handle, file.url))
        try:
            found = await self._opener.drive(steps, client, file.path, handle.id)
        except AccelError as error:
            raise error.of(file.url) from error.__cause__
        if handle.nbytes != before:
            self._cache.reweigh(file_key(client.token, file.path), handle, handle.weigh())
        return found

    def _refuse_passed_over(self, handle: FileHandle, url: str) -> None:
        """Refuse, if scans are strict, a cached file of which an earlier scan has passed something over."""
        if self.options.strict and handle.passed_over is not None:
            raise handle.passed_over.of(url)

    def _on_bad_index(self, error: IndexFormatError, handle: FileHandle, url: str) -> None:
        error.of(url)
        handle.passed_over = handle.passed_over or error
        if self.options.strict:
            raise error
        self.metrics.add("indexes_ignored")
        self.metrics.warn(str(error))

    def forget(self, root: str, path: str) -> None:
        """Drop what is cached of a file that turned out to have changed."""
        self._opener.forget(root, path)

    def distrust(self, file: FileEntry, handle: FileHandle, tasks: Sequence[ScanTask]) -> bool:
        """Give up the page index of a file whose pages contradict it; False where `tasks` did without it, or scans are
        strict."""
        if self.options.strict or all(read.whole for task in tasks for read in task.reads):
            return False
        # Another scan may have found out meanwhile.
        if not handle.distrusted:
            handle.distrusted = True
            handle.view.offset_indexes.clear()
            handle.view.column_indexes.clear()
            handle.view.page_bounds.clear()
            if handle.remembered is not None:
                handle.remembered.forget()
                handle.remembered = None
            contradicted = IndexFormatError("the page index contradicts the pages", path=file.url)
            handle.passed_over = handle.passed_over or contradicted
            self.metrics.warn(f"{contradicted}, and is not used")
        self.metrics.add("indexes_ignored")
        return True

    # -- reading ---------------------------------------------------------------------------------

    def reads(self, task: ScanTask, *, abreast: int = 1) -> TaskReads:
        """What fetches the pieces of a task, of which `abreast` are read at the same time."""
        client = self._client_for(task.file.root)
        handle = self._cache.get(file_key(client.token, task.path))
        if not isinstance(handle, FileHandle) or handle.id != task.file.id:
            handle = None
        forecast = self.forecast(task, abreast=abreast)
        return TaskReads(
            task,
            client,
            self._cache,
            self.metrics,
            handle,
            two_phases=forecast is not None,
            current=handle is not None and self._opener.stands(client, handle, moment=self._started),
            merging=self.merging(task, forecast, abreast=abreast),
            learns=self._learns,
            batch_rows=self.options.batch_rows,
            most_held=self.options.memory_limit,
        )

    def merging(self, task: ScanTask, forecast: Forecast | None, *, abreast: int) -> Merging:
        """How the ranges of a task become requests, by the network as it was measured when this run began."""
        shape = self._shapes.get(task.file.root)
        if shape is None:
            shape = self._shapes[task.file.root] = self._client_for(task.file.root).shape()
        # In two phases, the first one has the long ranges.
        nbytes = task.nbytes if forecast is None else forecast.first_bytes
        return shape.merging(nbytes * abreast, reads=abreast)

    def forecast(self, task: ScanTask, *, abreast: int) -> Forecast | None:
        """The forecast for reading a task in two phases; None where it is read in one."""
        if self.options.phases == Phases.ONE:
            return None
        late = late_bytes(task)
        forced = self.options.phases == Phases.TWO
        if late < (1 if forced else LEAST_LATE_BYTES):
            return None
        from accel.planning.two_phase import forecast

        network = self._client_for(task.file.root).network
        found = forecast(
            task,
            self.seen.share(task.share),
            latency=network.latency,
            bandwidth=network.total_bandwidth,
            abreast=abreast,
        )
        return found if forced or found.pays else None

    async def decode(
        self, task: ScanTask, read: PieceRead, *, found: list[RowSelection] | None = None
    ) -> list[pa.RecordBatch]:
        """Decode and filter fetched pages: on the I/O loop where they are few, else in a thread.

        `found` is given the rows that match, where they are few.
        """
        options = self.options
        left: list[int] = []
        call = DecodePiece(
            task,
            read.piece,
            read.leaves,
            options.batch_rows,
            options.memory_limit,
            options.verify_checksums,
            found,
            left,
        )
        batches = call() if self._is_little(read) else await self._pool.run(call)
        self._count_left(left)
        return batches

    async def decode_stack(self, layers: Sequence[Layer]) -> list[pa.RecordBatch] | None:
        """Decode and filter small pieces of one file together; None where that has to be done one by one."""
        options = self.options
        call = DecodeStack(layers, options.batch_rows, options.memory_limit, options.verify_checksums)
        little, pieces = options.inline_decode_bytes, [layer.piece for layer in layers]
        inline = (
            sum(len(piece.leaves) for piece in pieces) <= _INLINE_CHUNKS
            and sum(piece.fetched_bytes for piece in pieces) <= little
            and sum(piece.held_bytes for piece in pieces) <= _INLINE_EXPANSION * little
        )
        return call() if inline else await self._pool.run(call)

    async def match(self, task: ScanTask, read: PieceRead) -> RowSelection:
        """The rows of a piece that match, from its filter's columns; inline or in a thread likewise."""
        options = self.options
        left: list[int] = []
        call = MatchPiece(task, read.piece, read.leaves, options.memory_limit, options.verify_checksums, left)
        rows = call() if self._is_little(read) else await self._pool.run(call)
        self._count_left(left)
        return rows

    def _count_left(self, left: Sequence[int]) -> None:
        """Count the leaves that a direct decoder left to pyarrow, each once."""
        if left:
            self.metrics.add("decoder_fallbacks", len(set(left)))

    def _is_little(self, read: PieceRead) -> bool:
        little, piece = self.options.inline_decode_bytes, read.piece
        fetched = piece.fetched_bytes
        if len(piece.leaves) > _INLINE_LEAVES or fetched > (1 if piece.sure else _INLINE_SOUGHT) * little:
            return False
        expansion = _INLINE_EXPANSION if fetched <= little else _INLINE_SOUGHT_EXPANSION
        dictionaries = 0
        for leaf in read.leaves.values():
            page = leaf.dictionary
            if page is not None:
                dictionaries += len(page) // _UNCOMPRESSED if is_uncompressed(page) else len(page)
        return dictionaries <= _INLINE_DICTIONARIES * little and piece.held_bytes <= expansion * little


def _read_dictionary(page: memoryview, codec: int, element: SchemaElement, kind: pa.DataType) -> pa.Array:
    from accel.decode.dictionary_decode import dictionary_values

    return dictionary_values(page, codec, element, arrow_type=kind)
