"""The pieces of one task are fetched: each in one round trip, and nothing twice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from accel.cache.cache import Cache
from accel.cache.cache_key import file_key
from accel.cache.pinned_reads import ByteSource, PinnedReads
from accel.cache.result_tier import ResultCacheEntry
from accel.coalesce import Merging
from accel.decode.chunks import LeafBytes
from accel.decode.verify import needs_dictionary
from accel.errors import AccelError
from accel.format.model import OffsetIndex
from accel.metrics import Metrics
from accel.options import MIB
from accel.planning.handle import FileHandle
from accel.planning.page_indexes import locate_pages, page_reads
from accel.planning.pages import LeafReads, Piece
from accel.planning.task import ScanTask
from accel.ranges import ByteRange, Kind, ReadKey, Stash, Want
from accel.reader.memory_reads import GivenPages, LoadedBytes
from accel.reader.shared_pages import CarriedPages, DictionaryReads, until_done
from accel.runtime.threads import WORK
from accel.store.client import Client

__all__ = ["PieceRead", "TaskReads"]

# Bytes of a chunk below which its pages are located on the event loop, because they are few.
_FEW_PAGES = MIB
# Bytes of a chunk up to which pages are not located, because the next scan reads all of it in less time.
LEAST_TAUGHT = 8 << 10


@dataclass(frozen=True, slots=True)
class PieceRead:
    """A piece and its bytes."""

    piece: Piece
    leaves: Mapping[int, LeafBytes]
    round_trips: int


@dataclass(slots=True)
class TaskReads:
    """Fetches the pieces of one task; pages that straddle a cut, and dictionary pages, are fetched once."""

    task: ScanTask
    client: Client
    cache: Cache
    metrics: Metrics
    handle: FileHandle | None = None
    """Receives the page locations of chunks that were read whole."""
    two_phases: bool = False
    """Whether to read the filter's columns first, and the others only where rows match."""
    current: bool = False
    """Whether the file's version is the current one, so that cached pages of it may be used."""
    merging: Merging | None = None
    """How ranges become requests; None leaves this to the client."""
    learns: bool = False
    """Whether a small result may be kept for other scans, because the task was planned here."""
    batch_rows: int = 0
    """The most rows of a batch."""
    most_bytes: int = 0
    """The most bytes that `held_bytes` returns, because more could never be admitted."""
    source: PinnedReads | None = None
    """Reads what is not in memory; by default a source of its own is made."""
    _source: PinnedReads = field(init=False)
    result: ResultCacheEntry = field(init=False)
    """The result of the task, if it is cached."""
    carried: CarriedPages = field(default_factory=CarriedPages)
    """The pages that straddle a cut."""
    _dictionaries: DictionaryReads = field(init=False)
    _bytes: ByteSource = field(init=False)
    """Where all bytes of the task come from: what is in memory, then `_source`."""
    _wants: tuple[Piece, list[Want], list[int]] | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self._dictionaries = DictionaryReads(self.task, self.client, self.cache, self.metrics)
        self._source = self.source or PinnedReads(
            self.client,
            self.cache,
            file=self.task.file.id,
            metrics=self.metrics,
            current=self.current,
            merging=self.merging,
            dictionaries=not self._dictionaries.keeps(),
            confirms=self.handle is None,
        )
        loaded = self.task.file.loaded
        self._bytes = LoadedBytes(self.task.file, self._source) if loaded else self._source
        self.result = ResultCacheEntry(
            self.task,
            self.cache.result_tier,
            token=self.client.token,
            handle=self.handle if self.learns and self._source.shares and self.cache.data else None,
            batch_rows=self.batch_rows,
        )

    def missing(self, want: Want) -> ByteRange | None:
        """Return the part of a range that has to be requested from the store, or None."""
        return self._bytes.missing(want)

    def has_dictionary(self, key: ReadKey) -> bool:
        """Return whether a dictionary page is cached."""
        return self._dictionaries.cached(key) is not None

    def _reweigh(self, handle: FileHandle) -> None:
        self.cache.reweigh(file_key(self.client.token, self.task.path), handle, handle.weigh())

    def in_phases(self, piece: Piece) -> bool:
        """Return whether a piece is read in two phases: neither if all of it matches nor if its result is
        cached."""
        if not self.two_phases or piece.certain.count == piece.rows.count:
            return False
        return self.result.get_piece(piece) is None

    def held_bytes(self, piece: Piece) -> int:
        """Return the bytes in memory while a piece is read in one phase: see `Piece.held_bytes`.

        Dictionaries, and pages behind its rows, are added up to `most_bytes`, because the piece cannot be
        cut.
        """
        if self.result.get_piece(piece) is not None:
            return 0
        fetched = piece.held_bytes
        along = self._dictionaries.count_bytes(piece) + piece.behind_bytes
        return max(fetched, min(fetched + along, self.most_bytes))

    def expect(self, pieces: list[Piece]) -> None:
        """Note the pages that straddle a cut, given all pieces in order before the first is fetched.

        Pages that are read only where rows match are noted by `share`.
        """
        for piece in pieces:
            for part in piece.leaves:
                if part.carried and (part.reads.for_filter or not self.two_phases):
                    self.carried.expect(part.reads, part.lo)

    def share(self, parts: Sequence[Piece]) -> None:
        """Note the pages of a piece, or of its second phase in parts, that a later part or piece may read
        too."""
        for number, piece in enumerate(parts):
            for part in piece.leaves:
                if part.reads.whole or part.reads.for_filter or part.lo >= part.hi:
                    continue
                if number and part.carried:
                    self.carried.expect(part.reads, part.lo)
                if int(part.reads.stop_row[part.hi - 1]) > piece.stop:
                    self.carried.offer(part.reads, part.hi - 1)

    async def fetch(self, piece: Piece) -> PieceRead:
        """Fetch the bytes of a piece in one round trip, with the dictionaries that its pages need by the
        footer."""
        wants, counts = self._page_wants(piece)
        wanted = self._dictionaries.wanted(piece)
        try:
            if wanted:
                stash, trips = await self._read_with(piece, wants, wanted)
            else:
                stash, trips = await self._read(wants)
        except BaseException:
            self._abandon(piece)
            raise
        self._carry(piece, stash)
        keys = {want.key.column: want.key for want in wanted}
        leaves: dict[int, LeafBytes] = {}
        taught = False
        stop = 0
        for part, count in zip(piece.leaves, counts, strict=True):
            reads = part.reads
            start, stop = stop, stop + count
            pages = tuple([stash[want.key] for want in wants[start:stop]])
            if part.carried:
                pages = (await self.carried.take(reads, part.lo, until=piece.stop), *pages)
            if reads.whole and self._teaches(reads):
                await self._learn(reads, pages[0])
                taught = True
            key = keys.get(reads.column)
            leaves[reads.leaf] = LeafBytes(None if key is None else stash.get(key), pages)
        if taught and self.handle is not None:
            self._reweigh(self.handle)
        return PieceRead(piece, leaves, trips)

    async def _read_with(self, piece: Piece, wants: list[Want], wanted: Sequence[Want]) -> tuple[Stash, int]:
        """Return the pages of a piece with the dictionary pages that they need, and the round trips."""
        dictionaries = self._dictionaries
        sought = dictionaries.seek(wanted)
        try:
            # Cached dictionaries are decompressed while the pages are on their way.
            packing = dictionaries.pack(piece, sought)
            try:
                found, trips = await self._read([*wants, *sought.fetched])
            finally:
                await until_done(packing)
            await dictionaries.bring(piece, sought, found)
        except BaseException:
            dictionaries.give_up(sought)
            raise
        return {**found, **sought.stash}, trips

    def wants(self, piece: Piece) -> list[Want]:
        """Return the ranges that `fetch` of a piece takes: its pages, and dictionary pages that are not
        cached."""
        dictionaries = self._dictionaries.wanted(piece)
        lacking = [want for want in dictionaries if not self.has_dictionary(want.key)]
        return [*self._page_wants(piece)[0], *lacking]

    def _page_wants(self, piece: Piece) -> tuple[list[Want], list[int]]:
        """Return the pages of a piece to read, and how many of each leaf. Those of the last piece are
        remembered, which neighbours ask for twice."""
        if self._wants is None or self._wants[0] is not piece:
            wants: list[Want] = []
            counts: list[int] = []
            for part in piece.leaves:
                own = part.wants(self.task.row_group)
                wants += own
                counts.append(len(own))
            self._wants = piece, wants, counts
        return self._wants[1], self._wants[2]

    def give(self, came: Stash) -> None:
        """Take pages that were fetched along with those of other tasks."""
        self._bytes = GivenPages(came, self._bytes)

    async def ask(self, wants: list[Want]) -> tuple[Stash, int]:
        """Read ranges of the file, for this task and for those `beside` it; return their bytes and the round
        trips."""
        return await self._read(wants)

    def beside(self, task: ScanTask) -> TaskReads:
        """Return the reads of a task of another row group of the file, as small as this one and read in one
        phase: what is not in memory is requested in the same way."""
        return TaskReads(
            task,
            self.client,
            self.cache,
            self.metrics,
            self.handle,
            current=self.current,
            merging=self.merging,
            learns=self.learns,
            batch_rows=self.batch_rows,
            most_bytes=self.most_bytes,
            source=self._source,
        )

    async def complete(self, read: PieceRead) -> PieceRead | None:
        """Fetch the dictionaries that a piece lacked when it did not decode; None where it lacks none."""
        late: dict[int, Want] = {}
        for part in read.piece.leaves:
            fetched = read.leaves[part.reads.leaf]
            place = None if part.reads.whole else part.dictionary_want(self.task.row_group)
            if place is not None and fetched.dictionary is None and any(map(needs_dictionary, fetched.pages)):
                late[part.reads.leaf] = place
        if not late:
            return None
        self.metrics.add("late_dictionaries", len(late))
        found, trips = await self._dictionaries.ask([*late.values()], self._read)
        leaves = {leaf: LeafBytes(found[want.key], read.leaves[leaf].pages) for leaf, want in late.items()}
        return PieceRead(read.piece, {**read.leaves, **leaves}, read.round_trips + trips)

    async def fetch_chunks(self) -> ScanTask:
        """Read the chunks without an offset index, and return the task with their pages located in memory."""
        task, group = self.task, self.task.row_group
        wants = {
            leaf.leaf: Want(ReadKey(Kind.CHUNK, group, leaf.column), leaf.chunk)
            for leaf in task.reads
            if leaf.whole
        }
        stash, _ = await self._read(list(wants.values()))
        reads = []
        for leaf in task.reads:
            index = await self._learn(leaf, stash[wants[leaf.leaf].key]) if leaf.whole else None
            if index is not None:
                rows = task.rows if leaf.for_output else task.rows.without(task.certain, task.num_rows)
                leaf = page_reads(leaf, index, rows=rows, num_rows=task.num_rows)
            reads.append(leaf)
        if self.handle is not None:
            self._reweigh(self.handle)
        loaded = tuple((want.range.start, stash[want.key]) for want in wants.values())
        file = replace(task.file, loaded=task.file.loaded + loaded)
        return replace(task, file=file, reads=tuple(reads))

    def over(self, task: ScanTask) -> TaskReads:
        """Return the reads of another form of the task, such as `fetch_chunks` returns, in one phase."""
        return replace(self, task=task, two_phases=False, carried=CarriedPages())

    def _teaches(self, reads: LeafReads) -> bool:
        """Return whether to locate the pages of a chunk that was read whole, because the file has no offset
        index."""
        handle = self.handle
        if handle is None or reads.chunk.length <= LEAST_TAUGHT:
            return False
        return not handle.has_offset_index(self.task.row_group, reads.column)

    async def _learn(self, reads: LeafReads, chunk: memoryview) -> OffsetIndex | None:
        """Locate the pages of a chunk that was read whole, for this scan or a later one."""
        key = (self.task.row_group, reads.column)
        if self.handle is not None and self.handle.view.offset_indexes.get(key) is not None:
            return self.handle.view.offset_indexes[key]
        if reads.max_repetition and self.handle is not None and self.handle.distrusted:
            # The rows in the page headers may be what was wrong.
            return None
        locate = partial(
            locate_pages,
            chunk,
            start=reads.chunk.start,
            num_rows=self.task.num_rows,
            num_values=reads.num_values,
            max_repetition=reads.max_repetition,
        )
        # A hundred pages take milliseconds, which would hold up the event loop.
        index = locate() if len(chunk) < _FEW_PAGES else await WORK.run(locate)
        if self.handle is not None:
            self.handle.view.offset_indexes[key] = index
        return index

    async def _read(self, wants: list[Want]) -> tuple[Stash, int]:
        """Return ranges from memory or in one round trip, and the number of round trips."""
        if not wants:
            return {}, 0
        try:
            return await self._bytes.read(wants)
        except AccelError as error:
            raise error.of(self.task.file.url) from error.__cause__

    def _carry(self, piece: Piece, stash: Mapping[ReadKey, memoryview]) -> None:
        """Hand the pages that later pieces share to those that wait for them."""
        if not self.carried:
            return
        for part in piece.leaves:
            if part.reads.whole:
                continue
            offset, size = part.reads.offset, part.reads.size
            for lo, hi in part.runs():
                want = part.run_want(self.task.row_group, lo, hi=hi)
                for at in range(lo, hi):
                    start = int(offset[at]) - want.range.start
                    self.carried.bring(part.reads, at, stash[want.key][start : start + int(size[at])])

    def _abandon(self, piece: Piece) -> None:
        for part in piece.leaves:
            for at in range(part.lo + (1 if part.carried else 0), part.hi):
                self.carried.fail(part.reads, at)
