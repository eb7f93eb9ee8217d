"""From selected rows to keyed page reads, cut into pieces of bounded size."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from accel.format.model import Codec
from accel.options import MIB, Options
from accel.planning.decoded_size import DECODED_SHARE
from accel.planning.selection import RowSelection
from accel.ranges import ByteRange, Kind, ReadKey, Want

if TYPE_CHECKING:
    from accel.arrays import Int64s

__all__ = [
    "READABLE_CODECS",
    "LeafReads",
    "Piece",
    "PieceLeaf",
    "PieceSize",
    "cut_pieces",
    "dictionary_wants",
    "piece_wants",
]


# A piece of more columns than this is larger, as far as memory allows, so that what it wants of each is worth a request.
_COLUMNS = 96
# A piece of a scan with a limit is no larger.
_LIMITED_BYTES = MIB
# Pages that follow each other are wanted together up to about so many bytes: no request is cut to less.
_LONG_RUN = 512 << 10
READABLE_CODECS = frozenset(Codec) - {Codec.LZO}
"""Those whose pages can be decoded."""


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
    """Of the chunk, nulls and repeated values included."""
    expansion: float
    """Decoded bytes per compressed byte, over the chunk."""
    for_filter: bool
    for_output: bool
    max_repetition: int
    """The leaf's; above 0 inside lists. There some writers let a row go on on the next page, which the format forbids: see
    `reach`."""
    ordinal: Int64s
    offset: Int64s
    size: Int64s
    first_row: Int64s
    stop_row: Int64s
    total_pages: int
    """Data pages of the chunk; 0 where there is no offset index and the chunk is read whole."""
    # Asked for dozens of times a lookup.
    whole: bool = field(init=False)
    """No offset index: the chunk is read and decoded as one."""
    nbytes: int = field(init=False)
    """Compressed bytes of the pages, or of the whole chunk."""
    weight: float = field(init=False)
    """Of a compressed byte, when it comes to how much is read and decoded at once."""

    def __post_init__(self) -> None:
        whole = self.total_pages == 0
        object.__setattr__(self, "whole", whole)
        object.__setattr__(self, "nbytes", self.chunk.length if whole else _total(self.size))
        object.__setattr__(self, "weight", max(1.0, self.expansion / DECODED_SHARE))

    def reach(self, rows: RowSelection) -> RowSelection:
        """The rows whose pages it takes to read these. Inside a list one more after each run of them: where it begins a
        page, that page shows whether the row before it was at its end."""
        return rows.grown() if self.max_repetition else rows

    def narrow(self, rows: RowSelection) -> LeafReads:
        """The same, for the pages that it takes to read these rows; a chunk that is read whole stays so."""
        if self.whole:
            return self
        return self.take(self.reach(rows).counts(self.first_row, self.stop_row) > 0)

    def take(self, pages: Int64s | npt.NDArray[np.bool_]) -> LeafReads:
        """The same, for some of its pages, by their places in the arrays or a mask of these."""
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
        """Whether a page of this piece is dictionary-encoded, as far as the footer tells."""
        reads = self.reads
        if reads.dictionary is None or self.lo >= self.hi:
            return False
        return reads.dictionary_pages < 0 or int(reads.ordinal[self.lo]) < reads.dictionary_pages

    def dictionary_want(self, row_group: int) -> Want | None:
        if self.reads.dictionary is None:
            return None
        return Want(ReadKey(Kind.DICTIONARY, row_group, self.reads.column), self.reads.dictionary)

    def runs(self) -> list[tuple[int, int]]:
        """Stretches of pages, as `lo..hi`, whose bytes follow each other; without a carried page.

        A long one is given as several: requests may then be cut between them, and nothing has to be joined.
        """
        lo = self.lo + (1 if self.carried else 0)
        if lo >= self.hi:
            return []
        if self.hi - lo == 1:
            return [(lo, self.hi)]
        offset, size = self.reads.offset, self.reads.size
        apart = offset[lo + 1 : self.hi] != (offset + size)[lo : self.hi - 1]
        if int(offset[self.hi - 1] + size[self.hi - 1] - offset[lo]) > _LONG_RUN:
            stretch = (offset[lo : self.hi] - offset[lo]) // _LONG_RUN
            apart |= stretch[1:] != stretch[:-1]
        breaks = np.flatnonzero(apart) + lo + 1
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
        """Its pages, without a carried one, or the chunk."""
        if self.reads.whole:
            return [self.chunk_want(row_group)]
        return [self.run_want(row_group, lo, hi=hi) for lo, hi in self.runs()]


@dataclass(frozen=True, slots=True)
class PieceSize:
    """About how large the pieces of a task are to be, in bytes as `Piece.weight` counts them."""

    usual: int
    """Of up to 96 columns."""
    most: int = 0
    """With more columns a piece is larger in proportion, up to this; never smaller than usual."""

    @classmethod
    def under(cls, options: Options, *, limit: int | None) -> PieceSize:
        """As the options have it; with a limit of rows they are small, as the first may be enough."""
        if limit is None:
            return cls(options.cut_bytes, options.widest_bytes)
        return cls(min(options.cut_bytes, _LIMITED_BYTES))

    def of(self, columns: int) -> int:
        """Bytes of a piece of so many columns."""
        return max(self.usual, min(self.usual * columns // _COLUMNS, self.most))


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a task that is fetched at once and decoded at once."""

    rows: RowSelection
    """Rows to hand out, filter permitting."""
    sure: RowSelection
    """Those of them that are known to match."""
    leaves: tuple[PieceLeaf, ...]
    start: int
    stop: int
    """The row window of the row group that the piece covers."""

    @property
    def fetched_bytes(self) -> int:
        """Compressed bytes of its pages (dictionaries aside)."""
        return sum(p.nbytes for p in self.leaves)

    @property
    def weight(self) -> float:
        """Its size as `PieceSize` means it: compressed bytes, those that decode to very many counted as more."""
        return sum(p.nbytes * p.reads.weight for p in self.leaves)

    @property
    def held_bytes(self) -> int:
        """An estimate of what fetching and decoding it holds in memory; without `behind_bytes`."""
        return int(sum((p.nbytes - self._behind(p)) * (1.0 + p.reads.expansion) for p in self.leaves))

    @property
    def behind_bytes(self) -> int:
        """Of its pages those that hold none of its rows, and only show whether one has ended: see `LeafReads.reach`."""
        return sum(self._behind(part) for part in self.leaves)

    def _behind(self, part: PieceLeaf) -> int:
        reads, lo, hi = part.reads, part.lo, part.hi
        if not reads.max_repetition or lo >= hi:
            return 0
        return _total(reads.size[lo:hi][self.rows.counts(reads.first_row[lo:hi], reads.stop_row[lo:hi]) == 0])


def _total(sizes: Int64s) -> int:
    return sizes.item(0) if len(sizes) == 1 else int(np.add.reduce(sizes))


def cut_pieces(
    reads: Sequence[LeafReads],
    rows: RowSelection,
    *,
    sure: RowSelection,
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
    cuts = [0, *inner, num_rows]
    pieces: list[Piece] = []
    fetched = [0] * len(reads)
    for start, stop in itertools.pairwise(cuts):
        part = rows.within(start, stop) if inner else rows
        if not part:
            continue
        sure_part = sure.within(start, stop) if inner else sure
        maybe = part.without(sure_part, num_rows)
        leaves = []
        for i, r in enumerate(reads):
            leaf = _piece_leaf(r, part if r.for_output else maybe, fetched=fetched[i])
            fetched[i] = max(fetched[i], leaf.hi)
            leaves.append(leaf)
        pieces.append(Piece(part, sure_part, tuple(leaves), start, stop))
    return pieces


def _piece_leaf(reads: LeafReads, rows: RowSelection, *, fetched: int) -> PieceLeaf:
    if reads.whole or not rows:
        return PieceLeaf(reads, 0, 0, False)
    lo = int(reads.stop_row.searchsorted(rows.starts[0], "right"))
    hi = int(reads.first_row.searchsorted(reads.reach(rows).stops[-1], "left"))
    return PieceLeaf(reads, lo, hi, carried=lo < hi and lo < fetched)


def _cut_rows(reads: Sequence[LeafReads], nbytes: int) -> list[int]:
    """Rows to cut at: page starts of the heaviest leaf, wherever enough has come together."""
    if not reads:
        return []
    if sum(_total(r.size) * r.weight for r in reads) <= nbytes:
        return []
    weights = [r.size * r.weight for r in reads]
    heaviest = reads[int(np.argmax([w.sum() for w in weights]))]
    first = np.concatenate([r.first_row for r in reads])
    order = np.argsort(first, kind="stable")
    cumulative = np.concatenate(([0.0], np.cumsum(np.concatenate(weights)[order])))
    # What has come together before each page of the heaviest leaf starts.
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
    """What a piece asks for in its one round trip: its pages, and the dictionaries that it lacks."""
    pages = [want for part in piece.leaves for want in part.wants(row_group)]
    return pages, [want for want in dictionary_wants(piece, row_group) if not have_dictionary(want.key)]


def dictionary_wants(piece: Piece, row_group: int) -> list[Want]:
    """The dictionaries of a piece's pages, as far as the footer tells that they need them."""
    wants = (
        part.dictionary_want(row_group)
        for part in piece.leaves
        if not part.reads.whole and part.needs_dictionary
    )
    return [want for want in wants if want is not None]
