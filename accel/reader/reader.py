"""Files are opened and planned, and their tasks fetched and decoded: plan, I/O and decode meet here.

Everything in this module runs on the private I/O loop (`store.io_loop`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from accel.cache.cache import Cache
from accel.cache.cache_key import file_key
from accel.coalesce import Merging, RequestShape
from accel.decode.codecs import is_uncompressed
from accel.decode.pool import DecodePool
from accel.errors import AccelError, IndexFormatError
from accel.format.model import SchemaElement
from accel.metrics import Metrics
from accel.options import Options, Phases
from accel.planning.file_entry import FileEntry
from accel.planning.file_planner import FilePlan, plan_file
from accel.planning.handle import FileHandle
from accel.planning.page_indexes import PlanSizes
from accel.planning.query import Question
from accel.planning.read_request import OnBadIndex, Steps
from accel.planning.selection import RowSelection
from accel.planning.task import ScanTask, describe_file
from accel.planning.two_phase import LEAST_LATE_BYTES, ObservedSelectivity, late_bytes
from accel.reader.footer_prefetch import FooterPrefetcher
from accel.reader.opener import Opener
from accel.reader.tails import Tails
from accel.reader.task_reads import PieceRead, TaskReads
from accel.runtime.tasks import Group
from accel.store.client import Client
from accel.store.clients import Clients
from accel.store.gate import Slot
from accel.store.location import LOCAL_ROOT
from accel.store.request_errors import raising_foremost

if TYPE_CHECKING:
    from accel.decode.stack import Layer
    from accel.planning.two_phase import Forecast
    from accel.reader.alike_pieces import AlikePieces

__all__ = ["Reader", "Tails", "read_dictionary"]

T = TypeVar("T")

# Pieces of local files that may be under way beyond those that are being decoded.
_LOCAL_AHEAD = 2
# Bytes of undecided pages below which no index is read, because its answer has to be parsed too.
_LEAST_PROBED = 1 << 20
# Bytes of all wanted chunks of a file below which they are read whole, because planning their pages takes
# longer.
WHOLE_BYTES = 8 << 10
# Bounds of a piece that is decoded on the I/O loop, as factors of `inline_decode_bytes`; larger ones would
# hold it up. Its bytes in memory:
_INLINE_EXPANSION = 16
# If the filter chooses among its rows, its fetched bytes and its bytes in memory: most of them are only
# decompressed, and handing the piece to a thread costs more than it gains.
_INLINE_SOUGHT, _INLINE_SOUGHT_EXPANSION = 4, 8
# Its dictionaries, of which all entries are decoded though few are used:
_INLINE_DICTIONARIES = 4
# A dictionary that needs no decompression counts as this many times smaller.
_UNCOMPRESSED = 8
# Columns of a piece, each of which costs a fifth of a millisecond.
_INLINE_LEAVES = 12
# Column chunks of row groups decoded together, each of which costs a quarter of that.
_INLINE_CHUNKS = 48
# Columns of a piece of few rows from which they are decoded together.
_MANY_COLUMNS = 24
# Files of a scan from which their pieces may be decoded together.
MANY_FILES = 4


async def _keep_all(opened: Sequence[tuple[FileEntry, FileHandle]]) -> Sequence[bool]:
    return [False] * len(opened)


class Reader:
    """Opens, plans and reads files of any number of stores for one scan.

    With `learns` it keeps small results for other scans (`cache.result_tier`). A plan that others may have
    made does not allow this, because it says where rows are.
    """

    def __init__(
        self,
        clients: Clients[Client],
        *,
        cache: Cache,
        options: Options,
        metrics: Metrics,
        tails: Tails = Tails.DROP,
        learns: bool = True,
    ) -> None:
        self._clients = clients
        self._cache = cache
        self._opener = Opener(clients, cache=cache, options=options, metrics=metrics, tails=tails)
        self.options = options
        self.metrics = metrics
        self.num_files = 1
        """The number of files of the scan, which wait for their indexes at the same time."""
        self._learns = learns
        self.seen = ObservedSelectivity()
        # Versions that are current at this time, within the cache's `max_age`, are used for the whole run.
        self._started = time.monotonic()
        self._shapes: dict[str, RequestShape] = {}
        self._pool = DecodePool.shared(options.decode_threads)
        self._alike: AlikePieces | None = None

    def client(self, root: str) -> Client:
        return self._clients.client(root)

    @property
    def clients(self) -> Clients[Client]:
        """The clients of the stores of its files."""
        return self._clients

    @property
    def cache(self) -> Cache:
        """The cache of the scan."""
        return self._cache

    @property
    def opener(self) -> Opener:
        """The opener of its files."""
        return self._opener

    # -- opening ---------------------------------------------------------------------------------

    async def open(self, file: FileEntry) -> tuple[FileHandle, int]:
        """Return the handle of a file's current version, and the round trips: what the source has of it, or
        see `Opener.open`."""
        facts = self._opener.facts_of(file)
        if facts is not None and facts.handle is not None and facts.round_trips is not None:
            return facts.handle, facts.round_trips
        self.offer_facts(file)
        return await self._opener.open(file)

    def offer_facts(self, file: FileEntry) -> None:
        """Have the metadata that the source knows of a file cached, if nothing is."""
        facts = self._opener.facts_of(file)
        if facts is not None and facts.handle is not None:
            self._opener.offer(file, facts.handle)

    async def open_all(self, files: Sequence[FileEntry]) -> list[FileHandle]:
        """Open a block of files together and return their handles; of several errors raise the foremost.

        Footers that arrive at about the same time are parsed together.
        """
        return await self._open_block(files, lambda opening: opening)

    async def open_each(self, files: Sequence[FileEntry]) -> list[FileHandle | AccelError]:
        """Open a block of files, as `open_all` does, and return the handle or the error of each."""

        async def caught(opening: Coroutine[Any, Any, FileHandle]) -> FileHandle | AccelError:
            try:
                return await opening
            except AccelError as error:
                return error

        return await self._open_block(files, caught)

    async def _open_block(
        self,
        files: Sequence[FileEntry],
        around: Callable[[Coroutine[Any, Any, FileHandle]], Coroutine[Any, Any, T]],
    ) -> list[T]:
        ahead = FooterPrefetcher(self._opener, _keep_all, most=self.options.max_files_in_flight)

        async def open_one(file: FileEntry) -> FileHandle:
            self.offer_facts(file)
            prefetched = ahead.ask(file)
            handle = None if prefetched is None else await asyncio.shield(prefetched.flight)
            if prefetched is not None and prefetched.error is not None:
                raise prefetched.error
            return (await self.open(file))[0] if handle is None else handle

        try:
            with raising_foremost():
                async with Group() as group:
                    tasks = [group.create_task(around(open_one(file))) for file in files]
        finally:
            await ahead.aclose()
        return [task.result() for task in tasks]

    def cached_handle(self, file: FileEntry, now: float) -> FileHandle | None:
        """Return the cached handle of a file, if it may be used without a request; see `Opener`."""
        return self._opener.cached_handle(file, now)

    def max_pieces(self, root: str) -> int:
        """Return how many pieces of a store's files may be under way; local ones only keep the decoding
        threads busy."""
        most = self.options.max_tasks_in_flight
        return min(most, self._pool.threads + _LOCAL_AHEAD) if root == LOCAL_ROOT else most

    # -- planning --------------------------------------------------------------------------------

    def probe_min_bytes(self, root: str) -> int:
        """Return the bytes of undecided pages that are worth a round trip to an index of a store's file."""
        given = self.options.probe_min_bytes
        if given is not None:
            return given
        return max(_LEAST_PROBED, self._clients.client(root).network.trip_bytes // max(1, self.num_files))

    def came_along_from(self, task: ScanTask) -> int | None:
        """Return where the bytes start that were fetched with the footer of a task's file and dropped, or
        None."""
        return self._opener.tails.dropped_from(self._clients.client(task.file.root), task.file.id)

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
        """Plan the tasks of one opened file; return them and the round trips that its page indexes took."""
        self._refuse_passed_over(handle, file.url)
        client = self._clients.client(file.root)
        schema, arrow_schema = self._opener.schemas.under_names(file, handle)
        task_file = describe_file(
            file,
            handle,
            question,
            partition=partition,
            schema=schema,
            arrow_schema=arrow_schema,
            int96_unit=self._opener.schemas.int96_unit_of(file),
        )
        tail = self._opener.tails.take(client, handle)
        if tail is not None and not task_file.loaded:
            task_file = replace(task_file, loaded=(tail,))
        steps = plan_file(
            handle,
            task_file,
            selection=selection,
            limit=limit,
            first_row=file.first_row,
            sizes=PlanSizes(
                piece_bytes=self.options.cut_bytes,
                probe_min_bytes=self.probe_min_bytes(file.root),
                early_bytes=client.network.early_bytes,
                whole_bytes=WHOLE_BYTES,
            ),
            read_dictionary=read_dictionary,
            on_bad_index=lambda error: self._on_bad_index(error, handle, file.url),
        )
        try:
            plan, trips = await self._opener.drive(steps, client, file.path, handle.id)
        except AccelError as error:
            raise error.of(file.url) from error.__cause__
        finally:
            # Planning that failed or was cancelled may have found indexes, too, be it in what is cached of
            # the file.
            if handle.has_grown():
                self._cache.reweigh(file_key(client.token, file.path), handle, handle.weigh())
        return plan, trips

    async def ask(
        self,
        file: FileEntry,
        handle: FileHandle,
        make: Callable[[OnBadIndex], Steps[T]],
    ) -> tuple[T, int]:
        """Run steps over an opened file; return their result and the round trips.

        `make` receives a callback for indexes that do not verify, and returns the steps.
        """
        self._refuse_passed_over(handle, file.url)
        client = self._clients.client(file.root)
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
        """Refuse a cached file of which an earlier scan ignored an index, if scans are strict."""
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
        """Drop the cached metadata of a file that has changed."""
        self._opener.forget(root, path)

    def distrust(self, file: FileEntry, handle: FileHandle, tasks: Sequence[ScanTask]) -> bool:
        """Stop using the page index of a file whose pages contradict it.

        The result is False if `tasks` did not use it, or scans are strict.
        """
        if self.options.strict or all(read.whole for task in tasks for read in task.reads):
            return False
        # Another scan may have done this meanwhile.
        if not handle.distrusted:
            handle.distrusted = True
            handle.view.offset_indexes.clear()
            handle.view.column_indexes.clear()
            handle.view.page_bounds.clear()
            self._cache.result_tier.forget(self._clients.client(file.root).token, handle.id)
            contradicted = IndexFormatError("the page index contradicts the pages", path=file.url)
            handle.passed_over = handle.passed_over or contradicted
            self.metrics.warn(f"{contradicted}, and is not used")
        self.metrics.add("indexes_ignored")
        return True

    # -- reading ---------------------------------------------------------------------------------

    def reads(self, task: ScanTask, *, concurrent: int = 1) -> TaskReads:
        """Return the reads of a task, of which `concurrent` run at the same time."""
        client = self._clients.client(task.file.root)
        handle = self._cache.get(file_key(client.token, task.path))
        if not isinstance(handle, FileHandle) or handle.id != task.file.id:
            handle = None
        forecast = self.forecast(task, concurrent=concurrent)
        return TaskReads(
            task,
            client,
            self._cache,
            self.metrics,
            handle,
            two_phases=forecast is not None,
            current=self._is_current(client, task, handle),
            merging=self.merging(task, forecast, concurrent=concurrent),
            learns=self._learns,
            batch_rows=self.options.batch_rows,
            most_bytes=self.options.memory_limit,
        )

    def _is_current(self, client: Client, task: ScanTask, handle: FileHandle | None) -> bool:
        """Return whether the version of a task is known to be current, so that cached pages of it may be
        used."""
        if handle is not None:
            return self._opener.stands(client, handle, moment=self._started)
        return self._opener.freshness.was_confirmed(client, task.file.id, self._started)

    def merging(self, task: ScanTask, forecast: Forecast | None, *, concurrent: int) -> Merging:
        """Return how ranges of a task become requests, by the network as it was measured when this run
        began."""
        shape = self._shapes.get(task.file.root)
        if shape is None:
            shape = self._shapes[task.file.root] = self._clients.client(task.file.root).shape()
        # In two phases, the first one has the long ranges.
        nbytes = task.nbytes if forecast is None else forecast.first_bytes
        return shape.merging(nbytes * concurrent, reads=concurrent)

    def forecast(self, task: ScanTask, *, concurrent: int) -> Forecast | None:
        """Return the forecast for reading a task in two phases; None if it is read in one."""
        if self.options.phases == Phases.ONE:
            return None
        forced = self.options.phases == Phases.TWO
        least = 1 if forced else LEAST_LATE_BYTES
        if task.nbytes < least or late_bytes(task) < least:
            return None
        from accel.planning.two_phase import forecast

        network = self._clients.client(task.file.root).network
        found = forecast(
            task,
            self.seen.share(task.share),
            latency=network.latency,
            bandwidth=network.total_bandwidth,
            concurrent=concurrent,
        )
        return found if forced or found.pays else None

    async def decode(self, task: ScanTask, read: PieceRead) -> list[pa.RecordBatch]:
        """Decode and filter fetched pages, on the I/O loop if they are few, else in a thread."""
        from accel.decode.piece import decode_piece

        piece = read.piece
        if piece.certain and len(piece.leaves) >= _MANY_COLUMNS:
            from accel.decode.stack import MOST_ROWS, Layer, stack_kind

            if task.num_rows <= MOST_ROWS and stack_kind(task, piece) is not None:
                batches = await self.decode_stack([Layer(task, piece, read.leaves)], [])
                if batches is not None:
                    return batches
        return await self._run(task, read, partial(decode_piece, batch_rows=self.options.batch_rows))

    async def decode_alike(
        self, task: ScanTask, read: PieceRead, permit: Slot | None
    ) -> list[pa.RecordBatch] | None:
        """Decode and filter the little that was fetched of one of many files, with that of others; None where
        it has to be decoded by itself."""
        if self.num_files < MANY_FILES or not self._is_little(read):
            return None
        if self._alike is None:
            from accel.reader.alike_pieces import AlikePieces

            self._alike = AlikePieces(self._decode_layers)
        return await self._alike.decode(task, read, permit)

    async def _decode_layers(self, layers: Sequence[Layer]) -> list[list[pa.RecordBatch]] | None:
        """Decode and filter small pieces together, and return the batches of each; None where they have to be
        decoded one by one."""
        from accel.decode.stack import split_stack

        matched: list[int] = []
        rows = sum(layer.piece.rows.count for layer in layers)
        batches = await self.decode_stack(layers, matched, batch_rows=rows)
        if batches is None:
            return None
        return split_stack(batches, matched, batch_rows=self.options.batch_rows)

    async def decode_stack(
        self, layers: Sequence[Layer], matched: list[int], *, batch_rows: int | None = None
    ) -> list[pa.RecordBatch] | None:
        """Decode and filter small pieces together; None where they have to be decoded one by one. `matched`
        receives how many rows of each match. By default a batch has the rows that the options allow."""
        from accel.decode.stack import decode_stack

        options = self.options
        call = partial(
            decode_stack,
            layers,
            batch_rows=options.batch_rows if batch_rows is None else batch_rows,
            memory_limit=options.memory_limit,
            verify_checksums=options.verify_checksums,
            matched=matched,
        )
        little, pieces = options.inline_decode_bytes, [layer.piece for layer in layers]
        inline = (
            sum(len(piece.leaves) for piece in pieces) <= _INLINE_CHUNKS
            and sum(piece.fetched_bytes for piece in pieces) <= little
            and sum(piece.held_bytes for piece in pieces) <= _INLINE_EXPANSION * little
        )
        return call() if inline else await self._pool.run(call)

    async def match(self, task: ScanTask, read: PieceRead) -> RowSelection:
        """Return the rows of a piece that match, from its filter's columns; on the loop or in a thread as
        `decode`."""
        from accel.decode.piece import match_piece

        return await self._run(task, read, match_piece)

    async def _run(self, task: ScanTask, read: PieceRead, decode: Callable[..., T]) -> T:
        """Call a decoder on the I/O loop or in a thread, and count the leaves that it left to pyarrow."""
        options = self.options
        left: list[int] = []
        call = partial(
            decode,
            task,
            read.piece,
            read.leaves,
            memory_limit=options.memory_limit,
            verify_checksums=options.verify_checksums,
            left=left,
        )
        found = call() if self._is_little(read) else await self._pool.run(call)
        if left:
            self.metrics.add("decoder_fallbacks", len(set(left)))
        return found

    def _is_little(self, read: PieceRead) -> bool:
        little, piece = self.options.inline_decode_bytes, read.piece
        fetched = piece.fetched_bytes
        if len(piece.leaves) > _INLINE_LEAVES or fetched > (1 if piece.certain else _INLINE_SOUGHT) * little:
            return False
        expansion = _INLINE_EXPANSION if fetched <= little else _INLINE_SOUGHT_EXPANSION
        dictionaries = 0
        for leaf in read.leaves.values():
            page = leaf.dictionary
            if page is not None:
                dictionaries += len(page) // _UNCOMPRESSED if is_uncompressed(page) else len(page)
        return dictionaries <= _INLINE_DICTIONARIES * little and piece.held_bytes <= expansion * little


def read_dictionary(page: memoryview, codec: int, element: SchemaElement, kind: pa.DataType) -> pa.Array:
    """Return the entries of a dictionary page: see `planning.index_lookup.ReadDictionary`."""
    from accel.decode.dictionary_decode import dictionary_values

    return dictionary_values(page, codec, element, arrow_type=kind)
