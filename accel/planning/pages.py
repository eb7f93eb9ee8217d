"""From selected rows to keyed page reads, cut into pieces of bounded size."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from accel.format.footer import stated_rows
from accel.format.model import ChunkTable, Encoding, FileMetadata, OffsetIndex
from accel.options import MIB, Options
from accel.planning.leaf_chunks import DECODED_SHARE
from accel.planning.selection import RowSelection
from accel.ranges import ByteRange, Kind, ReadKey, Want

if TYPE_CHECKING:
    from accel.arrays import Int64s

__all__ = [
    "DICTIONARY_ENCODINGS",
    "LeafReads",
    "PagesOf",
    "Piece",
    "PieceLeaf",
    "PieceSize",
    "cut_pieces",
    "dictionary_wants",
    "pages_holding",
    "piece_wants",
]

# A piece of more columns is larger, as far as memory allows, so that its pages of each column are worth a
# request.
_COLUMNS = 96
# A piece of a scan with a limit is no larger.
_LIMITED_BYTES = MIB
# Adjacent pages form one range up to about so many bytes: no request is cut to less.
LONG_RUN = 512 << 10


@dataclass(frozen=True, slots=True, eq=False)
class LeafReads:
    """The pages of one column chunk that a task needs; the arrays run over those pages, in row order."""

    leaf: int
    """Ordinal in the task's schema."""
    column: int
    """Ordinal in the file's schema: what keys and messages say."""
    codec: int
    chunk: ByteRange
    dictionary: ByteRange | None
    """Where the dictionary page is, if the chunk has one (None too when the chunk is read whole)."""
    dictionary_pages: int
    """The chunk's first so many data pages are dictionary-encoded; -1 where the footer does not say."""
    num_values: int
    """The values of the chunk, nulls and repeated values included."""
    expansion: float
    """Decoded bytes per compressed byte, over the chunk."""
    for_filter: bool
    for_output: bool
    max_repetition: int
    """The leaf's; above 0 inside lists. There some writers let a row go on on the next page, which the format
    forbids: see `reach`."""
    ordinal: Int64s
    offset: Int64s
    size: Int64s
    first_row: Int64s
    stop_row: Int64s
    total_pages: int
    """Data pages of the chunk; 0 where there is no offset index and the chunk is read whole."""
    # It is read dozens of times in a lookup.
    whole: bool = field(init=False)
    """No offset index: the chunk is read and decoded as one."""
    nbytes: int = field(init=False)
    """Compressed bytes of the pages, or of the whole chunk."""
    weight: float = field(init=False)
    """The weight of a compressed byte in the size of a piece."""

    def __post_init__(self) -> None:
        whole = self.total_pages == 0
        object.__setattr__(self, "whole", whole)
        object.__setattr__(self, "nbytes", self.chunk.length if whole else _total(self.size))
        object.__setattr__(self, "weight", max(1.0, self.expansion / DECODED_SHARE))

    def reach(self, rows: RowSelection) -> RowSelection:
        """Return the rows whose pages it takes to read these. Inside a list one more after each run of them:
        where it begins a page, that page shows whether the row before it was at its end."""
        return rows.grown() if self.max_repetition else rows

    def narrow(self, rows: RowSelection) -> LeafReads:
        """Narrow the reads to the pages that these rows take; a chunk that is read whole stays whole."""
        if self.whole:
            return self
        return self.take(self.reach(rows).counts(self.first_row, self.stop_row) > 0)

    def take(self, pages: Int64s | npt.NDArray[np.bool_]) -> LeafReads:
        """Narrow the reads to some pages, given by their places in the arrays or by a mask."""
        return replace(
            self,
            ordinal=self.ordinal[pages],
            offset=self.offset[pages],
            size=self.size[pages],
            first_row=self.first_row[pages],
            stop_row=self.stop_row[pages],
        )


@dataclass(frozen=True, slots=True)
class PieceLeaf:
    """The part of a leaf's pages, `lo..hi` of its arrays, that a piece decodes."""

    reads: LeafReads
    lo: int
    hi: int
    carried: bool
    """Page `lo` straddles the cut: an earlier piece fetches it."""
    nbytes: int = field(init=False, compare=False)
    """Compressed bytes of its pages, or of the whole chunk."""

    def __post_init__(self) -> None:
        reads = self.reads
        every = reads.whole or (self.lo == 0 and self.hi == len(reads.size))
        nbytes = reads.nbytes if every else _total(reads.size[self.lo : self.hi])
        object.__setattr__(self, "nbytes", nbytes)

    @property
    def decoded_bytes(self) -> float:
        """Bytes of the pages in Arrow, about."""
        return self.nbytes * self.reads.expansion

    @property
    def needs_dictionary(self) -> bool:
        """Whether a page of this piece is dictionary-encoded, as far as the footer says."""
        reads = self.reads
        if reads.dictionary is None or self.lo >= self.hi:
            return False
        return reads.dictionary_pages < 0 or int(reads.ordinal[self.lo]) < reads.dictionary_pages

    def dictionary_want(self, row_group: int) -> Want | None:
        if self.reads.dictionary is None:
            return None
        return Want(ReadKey(Kind.DICTIONARY, row_group, self.reads.column), self.reads.dictionary)

    def runs(self) -> list[tuple[int, int]]:
        """Return stretches of pages, as `lo..hi`, whose bytes follow each other; without a carried page.

        A long one is given as several: requests may then be cut between them, and nothing has to be joined.
        """
        lo = self.lo + (1 if self.carried else 0)
        if lo >= self.hi:
            return []
        if self.hi - lo == 1:
            return [(lo, self.hi)]
        offset, size = self.reads.offset, self.reads.size
        gaps = offset[lo + 1 : self.hi] != (offset + size)[lo : self.hi - 1]
        if int(offset[self.hi - 1] + size[self.hi - 1] - offset[lo]) > LONG_RUN:
            stretch = (offset[lo : self.hi] - offset[lo]) // LONG_RUN
            gaps |= stretch[1:] != stretch[:-1]
        breaks = np.flatnonzero(gaps) + lo + 1
        edges = [lo, *breaks.tolist(), self.hi]
        return list(itertools.pairwise(edges))

    def run_want(self, row_group: int, lo: int, *, hi: int) -> Want:
        reads = self.reads
        start, end = int(reads.offset[lo]), int(reads.offset[hi - 1] + reads.size[hi - 1])
        key = ReadKey(Kind.PAGE, row_group, reads.column, int(reads.ordinal[lo]))
        return Want(key, ByteRange(start, end))

    def chunk_want(self, row_group: int) -> Want:
        return Want(ReadKey(Kind.CHUNK, row_group, self.reads.column), self.reads.chunk)

    def wants(self, row_group: int) -> list[Want]:
        """Return what to read: its pages, without a carried one, or the chunk."""
        if self.reads.whole:
            return [self.chunk_want(row_group)]
        return [self.run_want(row_group, lo, hi=hi) for lo, hi in self.runs()]


@dataclass(frozen=True, slots=True)
class PieceSize:
    """About how large the pieces of a task are to be, in bytes as `Piece.weight` counts them."""

    usual: int
    """The size of a piece of up to 96 columns."""
    most: int = 0
    """With more columns a piece is larger in proportion, up to this; never smaller than usual."""

    @classmethod
    def under(cls, options: Options, *, limit: int | None) -> PieceSize:
        """Return the size that the options have, or a small one under a limit of rows.

        The first piece may be enough then.
        """
        if limit is None:
            return cls(options.cut_bytes, options.widest_bytes)
        return cls(min(options.cut_bytes, _LIMITED_BYTES))

    def of(self, columns: int) -> int:
        """Return the bytes of a piece of so many columns."""
        return max(self.usual, min(self.usual * columns // _COLUMNS, self.most))


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a task that is fetched at once and decoded at once."""

    rows: RowSelection
    """Rows to hand out, filter permitting."""
    certain: RowSelection
    """The rows among them that are certain to match."""
    leaves: tuple[PieceLeaf, ...]
    start: int
    stop: int
    """The row window of the row group that the piece covers."""
    # They are read several times in a lookup.
    fetched_bytes: int = field(init=False, compare=False)
    """Compressed bytes of its pages (dictionaries aside)."""
    weight: float = field(init=False, compare=False)
    """Its size as `PieceSize` means it: compressed bytes, those that decode to very many counted as more."""
    held_bytes: int = field(init=False, compare=False)
    """An estimate of what fetching and decoding it holds in memory; without `behind_bytes`."""
    behind_bytes: int = field(init=False, compare=False)
    """The bytes of pages without a row of the piece, which only show that a row has ended: see
    `LeafReads.reach`."""

    def __post_init__(self) -> None:
        fetched = behind = 0
        weight = held = 0.0
        for part in self.leaves:
            reads, nbytes = part.reads, part.nbytes
            own = self._behind(part) if reads.max_repetition else 0
            fetched += nbytes
            behind += own
            weight += nbytes * reads.weight
            held += (nbytes - own) * (1.0 + reads.expansion)
        object.__setattr__(self, "fetched_bytes", fetched)
        object.__setattr__(self, "weight", weight)
        object.__setattr__(self, "held_bytes", int(held))
        object.__setattr__(self, "behind_bytes", behind)

    def _behind(self, part: PieceLeaf) -> int:
        reads, lo, hi = part.reads, part.lo, part.hi
        if lo >= hi:
            return 0
        return _total(reads.size[lo:hi][self.rows.counts(reads.first_row[lo:hi], reads.stop_row[lo:hi]) == 0])


def _total(sizes: Int64s) -> int:
    return sizes.item(0) if len(sizes) == 1 else int(np.add.reduce(sizes))


def cut_pieces(
    reads: Sequence[LeafReads],
    rows: RowSelection,
    *,
    certain: RowSelection,
    num_rows: int,
    size: PieceSize,
    weighed: Sequence[LeafReads] | None = None,
) -> list[Piece]:
    """Cut a task at page boundaries into pieces of about a size.

    Chunks without an offset index cannot be cut; a task that reads one is a single piece.

    Parameters
    ----------
    weighed : sequence of LeafReads, optional
        Those of `reads` whose bytes count, where the others come later and in part; by default all.
    """
    if not rows:
        return []
    whole = any(r.whole for r in reads)
    weighed = reads if weighed is None else weighed
    inner = [] if whole else _cut_rows(weighed, size.of(len(weighed)))
    if not inner:
        maybe = rows.without(certain, num_rows)
        uncut = [_piece_leaf(r, rows if r.for_output else maybe, fetched=0) for r in reads]
        return [Piece(rows, certain, tuple(uncut), 0, num_rows)]
    cuts = [0, *inner, num_rows]
    pieces: list[Piece] = []
    fetched = [0] * len(reads)
    for start, stop in itertools.pairwise(cuts):
        part = rows.within(start, stop)
        if not part:
            continue
        certain_part = certain.within(start, stop)
        maybe = part.without(certain_part, num_rows)
        leaves = []
        for i, r in enumerate(reads):
            leaf = _piece_leaf(r, part if r.for_output else maybe, fetched=fetched[i])
            fetched[i] = max(fetched[i], leaf.hi)
            leaves.append(leaf)
        pieces.append(Piece(part, certain_part, tuple(leaves), start, stop))
    return pieces


def _piece_leaf(reads: LeafReads, rows: RowSelection, *, fetched: int) -> PieceLeaf:
    if reads.whole or not rows:
        return PieceLeaf(reads, 0, 0, False)
    lo = int(reads.stop_row.searchsorted(rows.starts[0], "right"))
    hi = int(reads.first_row.searchsorted(reads.reach(rows).stops[-1], "left"))
    return PieceLeaf(reads, lo, hi, carried=lo < hi and lo < fetched)


def _cut_rows(reads: Sequence[LeafReads], nbytes: int) -> list[int]:
    """Return the rows to cut at: page starts of the heaviest leaf, whenever enough bytes have accumulated."""
    if not reads:
        return []
    if sum(_total(r.size) * r.weight for r in reads) <= nbytes:
        return []
    weights = [r.size * r.weight for r in reads]
    heaviest = reads[int(np.argmax([w.sum() for w in weights]))]
    first = np.concatenate([r.first_row for r in reads])
    order = np.argsort(first, kind="stable")
    cumulative = np.concatenate(([0.0], np.cumsum(np.concatenate(weights)[order])))
    # The bytes accumulated before each page of the heaviest leaf.
    before = cumulative[np.searchsorted(first[order], heaviest.first_row, side="left")]
    cuts: list[int] = []
    spent = 0.0
    for row, weight in zip(heaviest.first_row.tolist()[1:], before.tolist()[1:], strict=True):
        if weight - spent >= nbytes:
            cuts.append(int(row))
            spent = weight
    return cuts


def piece_wants(
    piece: Piece, row_group: int, *, have_dictionary: Callable[[ReadKey], bool]
) -> tuple[list[Want], list[Want]]:
    """Return the reads of a piece in its one round trip: its pages, and the dictionaries that are missing."""
    pages = [want for part in piece.leaves for want in part.wants(row_group)]
    return pages, [want for want in dictionary_wants(piece, row_group) if not have_dictionary(want.key)]


def dictionary_wants(piece: Piece, row_group: int) -> list[Want]:
    """Return the dictionaries that a piece's pages need by the footer."""
    wants = (
        part.dictionary_want(row_group)
        for part in piece.leaves
        if not part.reads.whole and part.needs_dictionary
    )
    return [want for want in wants if want is not None]


DICTIONARY_ENCODINGS = (1 << Encoding.PLAIN_DICTIONARY) | (1 << Encoding.RLE_DICTIONARY)
"""Their bits among `ChunkTable.encodings`."""
_NOTHING = np.empty(0, np.int64)
# The most page layouts of one row group that are remembered.
_MOST_SHAPES = 8


class PagesOf:
    """The pages of one row group's chunks that hold some rows.

    Chunks often have their pages begin at the same rows, and then share the array that says so: it is looked
    at once.
    """

    def __init__(self, rows: RowSelection, num_rows: int) -> None:
        self.all_rows = rows.count == num_rows
        self._rows = rows
        self._num_rows = num_rows
        self._found: list[tuple[Int64s, bool, tuple[Int64s, Int64s, Int64s, slice | Int64s]]] = []

    def reads(
        self,
        metadata: FileMetadata,
        row_group: int,
        leaf: int,
        *,
        index: OffsetIndex | None,
        expansion: float,
        for_filter: bool,
        for_output: bool,
    ) -> LeafReads:
        """Return the reads of one chunk that decoding the rows takes; `expansion` as in `LeafChunks`.

        Raises
        ------
        ValueError
            The chunk, or what lies before its first page, has no place in a file.
        """
        chunks, at = metadata.chunks, (row_group, leaf)
        max_repetition = metadata.schema.leaves[leaf].max_repetition
        chunk = ByteRange(chunks.start.item(at), chunks.end.item(at))
        dictionary, dictionary_pages = None, 0
        if index is None:
            ordinal = offset = size = first = stop = _NOTHING
            total = 0
        else:
            ordinal, first, stop, places = self._pages(index.first_row, max_repetition > 0)
            offset, size, total = index.offset, index.size, len(index.offset)
            if chunk.start < offset.item(0):
                dictionary = ByteRange(chunk.start, offset.item(0))
                dictionary_pages = pages_in_dictionary(chunks, at)
            if len(ordinal) != total:
                offset, size = offset[places], size[places]
        return LeafReads(
            leaf,
            leaf,
            chunks.codec.item(at),
            chunk,
            dictionary,
            dictionary_pages,
            _values_of(metadata, at, rows=self._num_rows),
            expansion,
            for_filter,
            for_output,
            max_repetition,
            ordinal,
            offset,
            size,
            first,
            stop,
            total,
        )

    def _pages(self, first_row: Int64s, repeated: bool) -> tuple[Int64s, Int64s, Int64s, slice | Int64s]:
        for starts, same, found in self._found:
            if starts is first_row and same is repeated:
                return found
        rows = self._rows.grown() if repeated else self._rows  # as `LeafReads.reach` has it
        found = pages_holding(first_row, rows, self._num_rows)
        if len(self._found) < _MOST_SHAPES:
            self._found.append((first_row, repeated, found))
        return found


def pages_holding(
    first_row: Int64s, rows: RowSelection, num_rows: int
) -> tuple[Int64s, Int64s, Int64s, slice | Int64s]:
    """Return the pages that hold some rows: ordinals, first and stop rows, and places in `first_row`."""
    keep = rows.units(first_row, num_rows)
    if not isinstance(keep, slice):
        return keep, first_row[keep], np.append(first_row[1:], num_rows)[keep], keep
    lo, hi = keep.start, keep.stop
    if hi < len(first_row):
        stop = first_row[lo + 1 : hi + 1]
    else:
        stop = np.empty(hi - lo, np.int64)
        stop[:-1] = first_row[lo + 1 :]
        stop[-1:] = num_rows
    return np.arange(lo, hi), first_row[keep], stop, keep


def _values_of(metadata: FileMetadata, at: tuple[int, int], *, rows: int) -> int:
    """Return the values of a chunk by its footer.

    A flat chunk may have more than its rows: cuDF has counted those of a list beside it. Where the footer
    contradicts itself about the rows, it has as many as rows.
    """
    values: int = metadata.chunks.num_values.item(at)
    if values <= rows or metadata.schema.leaves[at[1]].max_repetition:
        return values
    return values if stated_rows(metadata.footer) == metadata.num_rows else rows


def pages_in_dictionary(chunks: ChunkTable, at: tuple[int, int]) -> int:
    counted = int(chunks.dictionary_pages[at])
    if counted >= 0:
        return counted
    return -1 if int(chunks.encodings[at]) & DICTIONARY_ENCODINGS else 0
