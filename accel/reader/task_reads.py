"""The pieces of one task are fetched: each in one round trip, and nothing twice."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from accel.cache.cache import Cache
from accel.cache.cache_key import file_key
from accel.cache.pinned_reads import PinnedReads
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
from accel.planning.pages import LeafReads, Piece, dictionary_wants, piece_wants
from accel.planning.selection import RowSelection
from accel.planning.task import ScanTask
from accel.ranges import ByteRange, Kind, ReadKey, Stash, Want
from accel.reader.shared_pages import CarriedPages, DictionaryReads, until_done
from accel.store.client import Client
from accel.store.threads import WORK

__all__ = ["PieceRead", "TaskReads"]

# Bytes of a chunk below which its pages are located on the event loop, because they are few.
_FEW_PAGES = MIB
# Bytes of a chunk up to which pages are not located, because the next scan reads all of it in less time.
_LEAST_TAUGHT = 8 << 10
# Rows in doubt below which evaluating the filter again is faster than looking up its result.
_LEAST_TESTED = 1 << 16


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
    """Whether the rows that match may be remembered for other scans, because the task was planned here."""
    batch_rows: int = 0
    """The most rows of a batch."""
    most_bytes: int = 0
    """The most bytes that `held_bytes` returns, because more could never be admitted."""
    _source: PinnedReads = field(init=False)
    result: ResultCacheEntry = field(init=False)
    """The result of the task, if it is cached."""
    carried: CarriedPages = field(default_factory=CarriedPages)
    """The pages that straddle a cut."""
    _dictionaries: DictionaryReads = field(init=False)
    _given: dict[ReadKey, memoryview] = field(default_factory=dict)
    """Pages that were fetched along with those of another task."""

    def __post_init__(self) -> None:
        self._dictionaries = DictionaryReads(self.task, self.client, self.cache, self.metrics)
        self._source = PinnedReads(
            self.client,
            self.cache,
            file=self.task.file.id,
            metrics=self.metrics,
            current=self.current,
            merging=self.merging,
            dictionaries=not self._dictionaries.keeps(),
            confirms=self.handle is None,
        )
        self.result = ResultCacheEntry(
            self.task,
            self.cache.result_tier,
            token=self.client.token,
            handle=self.handle if self.learns and self._source.shares and self.cache.data else None,
            batch_rows=self.batch_rows,
        )

    def missing(self, want: Want) -> ByteRange | None:
        """Return the part of a range that has to be requested from the store, or None."""
        rest = self.task.file.missing(want.range)
        return None if rest is None else self._source.missing(Want(want.key, rest))

    def has_dictionary(self, key: ReadKey) -> bool:
        """Return whether a dictionary page is cached."""
        return self._dictionaries.cached(key) is not None

    @property
    def remembers(self) -> bool:
        """Whether the rows that match are worth remembering: see `planning.predicate_cache`."""
        handle = self.handle if self.learns else None
        if handle is None or self.task.rows.count - self.task.sure.count < _LEAST_TESTED:
            return False
        # A page index that is wrong may have given other rows.
        return handle.etag is not None and not handle.distrusted

    def remember(self, rows: RowSelection, *, sure: RowSelection, matched: RowSelection) -> None:
        """Remember which of some rows match, if `remembers` holds and they are few; `sure` is a part of both."""
        handle, task, file = self.handle, self.task, self.task.file
        if handle is None or not self.remembers:
            return
        from accel.cache.result_tier import MatchedRows
        from accel.planning.predicate_cache import is_selective
        from accel.planning.question_keys import predicate_key

        if not is_selective(rows.count - sure.count, matched.count - sure.count):
            return
        key = predicate_key(file)
        if key is None:
            return
        if handle.predicate_cache is None:
            handle.predicate_cache = MatchedRows(self.cache.result_tier, self.client.token, handle.id)
        tested, matched = rows.without(sure, task.num_rows), matched.without(sure, task.num_rows)
        handle.predicate_cache.learn(key, task.row_group, tested=tested, matched=matched)

    def _reweigh(self, handle: FileHandle) -> None:
        self.cache.reweigh(file_key(self.client.token, self.task.path), handle, handle.weigh())

    def in_phases(self, piece: Piece) -> bool:
        """Return whether a piece is read in two phases: neither if all of it matches nor if its result is cached."""
        if not self.two_phases or piece.sure.count == piece.rows.count:
            return False
        return self.result.get_piece(piece) is None

    def held_bytes(self, piece: Piece) -> int:
        """Return the bytes in memory while a piece is read in one phase: see `Piece.held_bytes`.

        Dictionaries, and pages behind its rows, are added up to `most_bytes`, because the piece cannot be cut.
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
        """Note the pages of a piece, or of its second phase in parts, that a later part or piece may read too."""
        for number, piece in enumerate(parts):
            for part in piece.leaves:
                if part.reads.whole or part.reads.for_filter or part.lo >= part.hi:
                    continue
                if number and part.carried:
                    self.carried.expect(part.reads, part.lo)
                if int(part.reads.stop_row[part.hi - 1]) > piece.stop:
                    self.carried.offer(part.reads, part.hi - 1)

    async def fetch(self, piece: Piece) -> PieceRead:
        """Fetch the bytes of a piece in one round trip, with the dictionaries that its pages need by the footer."""
        group = self.task.row_group
        wants = [part.wants(group) for part in piece.leaves]
        wanted = dictionary_wants(piece, group)
        dictionaries = self._dictionaries
        sought = dictionaries.seek(wanted)
        try:
            # Cached dictionaries are decompressed while the pages are on their way.
            packing = dictionaries.pack(piece, sought)
            try:
                found, trips = await self._read([*itertools.chain.from_iterable(wants), *sought.asked])
            finally:
                await until_done(packing)
            if wanted:
                await dictionaries.bring(piece, sought, found)
        except BaseException:
            dictionaries.give_up(sought)
            self._abandon(piece)
            raise
        stash = {**found, **sought.stash}
        self._carry(piece, stash)
        leaves: dict[int, LeafBytes] = {}
        taught = False
        for part, own in zip(piece.leaves, wants, strict=True):
            found_pages = [stash[want.key] for want in own]
            if part.carried:
                found_pages.insert(0, await self.carried.take(part.reads, part.lo, until=piece.stop))
            place = None if part.reads.whole else part.dictionary_want(group)
            if part.reads.whole and self._teaches(part.reads):
                await self._learn(part.reads, found_pages[0])
                taught = True
            dictionary = None if place is None else stash.get(place.key)
            leaves[part.reads.leaf] = LeafBytes(dictionary, tuple(found_pages))
        if taught and self.handle is not None:
            self._reweigh(self.handle)
        return PieceRead(piece, leaves, trips)

    def lacking(self, piece: Piece) -> list[Want]:
        """Return the ranges that `fetch` of a piece requests: its pages, and dictionary pages that are not cached."""
        pages, dictionaries = piece_wants(piece, self.task.row_group, have_dictionary=self.has_dictionary)
        return self._remote([*pages, *dictionaries])

    def give(self, came: Stash) -> None:
        """Take pages that were `lacking` and have been fetched along with those of other tasks."""
        self._given |= came

    async def ask(self, wants: list[Want]) -> tuple[Stash, int]:
        """Read ranges of the file; return their bytes and the round trips."""
        try:
            return await self._source.read(wants)
        except AccelError as error:
            raise error.of(self.task.file.url) from error.__cause__

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
        """Read the chunks that have no offset index, and return the task with their pages located and at hand."""
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
                rows = task.rows if leaf.for_output else task.rows.without(task.sure, task.num_rows)
                leaf = page_reads(leaf, index, rows=rows, num_rows=task.num_rows)
            reads.append(leaf)
        if self.handle is not None:
            self._reweigh(self.handle)
        at_hand = tuple((want.range.start, stash[want.key]) for want in wants.values())
        file = replace(task.file, at_hand=task.file.at_hand + at_hand)
        return replace(task, file=file, reads=tuple(reads))

    def over(self, task: ScanTask) -> TaskReads:
        """Return the reads of another form of the task, such as `fetch_chunks` returns, in one phase."""
        return replace(self, task=task, two_phases=False, carried=CarriedPages(), _given={})

    def _teaches(self, reads: LeafReads) -> bool:
        """Return whether to locate the pages of a chunk that was read whole, because the file has no offset index."""
        handle = self.handle
        if handle is None or reads.chunk.length <= _LEAST_TAUGHT:
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
        """Return ranges from what is at hand or in one round trip, and the number of round trips."""
        file = self.task.file
        remote = self._remote(wants)
        given: Stash = {}
        if self._given:
            given = {want.key: self._given.pop(want.key) for want in remote if want.key in self._given}
            remote = [want for want in remote if want.key not in given]
        came, trips = await self.ask(remote) if remote else ({}, 0)
        fetched = {**given, **came} if given else came
        stash = {want.key: file.complete(want.range, fetched.get(want.key)) for want in wants}
        return stash, trips

    def _remote(self, wants: Sequence[Want]) -> list[Want]:
        """Return the parts of ranges that are not at hand."""
        missing = self.task.file.missing
        return [Want(want.key, rest) for want in wants if (rest := missing(want.range)) is not None]

    def _carry(self, piece: Piece, stash: Mapping[ReadKey, memoryview]) -> None:
        """Hand the pages that later pieces share to those that wait for them."""
        for part in piece.leaves:
            if part.reads.whole or not self.carried:
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
