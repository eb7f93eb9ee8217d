"""Coalescing: many small byte ranges of one object become few requests, and their responses become ranges
again."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from accel.arrays import join_buffers
from accel.errors import ParquetFormatError
from accel.ranges import Buffer, ByteRange, Kind, ReadKey, Stash, Want

__all__ = ["Fetch", "Merging", "RequestShape", "assemble", "coalesce", "joined_bytes"]

# Limits of the learned length of a merged request.
_SHORTEST = 512 * 1024
_LONGEST = 8 * 1024 * 1024
_DATA = {Kind.PAGE, Kind.CHUNK}


@dataclass(frozen=True, slots=True)
class Fetch:
    """One request, and the wants that it serves.

    `wants` holds every want with a byte in `range`, by start. A want that is split appears in each fetch of a
    part of it.
    """

    range: ByteRange
    wants: tuple[Want, ...]

    @property
    def kind(self) -> Kind:
        """The kind of most of the wanted bytes; dictionary pages that are fetched with data do not count."""
        if len(self.wants) == 1:
            return self.wants[0].key.kind
        share: Counter[Kind] = Counter()
        for want in self.wants:
            share[want.key.kind] += want.range.length
        if share.keys() & _DATA:
            del share[Kind.DICTIONARY]
        return share.most_common(1)[0][0]


@dataclass(frozen=True, slots=True)
class Merging:
    """How the ranges of one read become requests: see `coalesce`."""

    max_gap_bytes: int
    max_coalesced_bytes: int
    wide_gap_bytes: int = 0
    few_requests: int = 0

    def requests(self, wants: Sequence[Want]) -> list[Fetch]:
        """Return the requests that bring these ranges."""
        return coalesce(
            wants,
            max_gap_bytes=self.max_gap_bytes,
            max_coalesced_bytes=self.max_coalesced_bytes,
            wide_gap_bytes=self.wide_gap_bytes,
            few_requests=self.few_requests,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestShape:
    """The shape of requests to one store. It is fixed for a run, so that the requests are those that were
    predicted."""

    gap_bytes: int
    """Bytes that one response brings in about the time that a request costs."""
    wide_gap_bytes: int
    """Bytes that all responses together bring in that time."""
    few_requests: int
    """Requests that can be sent until the response to the first arrives."""
    streams: int
    """How many parallel responses still add throughput."""
    max_coalesced_bytes: int | None = None
    """The value of the option; None: `merging` derives it for each read."""

    def merging(self, nbytes: int, *, reads: int = 1) -> Merging:
        """Return how to merge the ranges of `reads` concurrent reads that bring about `nbytes` bytes
        together: no request is longer than the even share of a stream."""
        longest = self.max_coalesced_bytes
        if longest is None:
            # One stream gains nothing by being cut.
            share = nbytes // self.streams if self.streams > 1 else _LONGEST
            longest = min(max(share, _SHORTEST), _LONGEST)
        few = max(1, self.few_requests // max(1, reads))
        return Merging(self.gap_bytes, longest, self.wide_gap_bytes, few)


def coalesce(
    wants: Sequence[Want],
    *,
    max_gap_bytes: int,
    max_coalesced_bytes: int,
    wide_gap_bytes: int = 0,
    few_requests: int = 0,
) -> list[Fetch]:
    """Merge ranges that are close to each other, and split those that are too long for one request.

    Parameters
    ----------
    wants : sequence of Want
        In any order; they may overlap or repeat.
    max_gap_bytes : int
        Two ranges are merged when no more than this many unwanted bytes lie between them.
    max_coalesced_bytes : int
        Ranges are not merged beyond this length. Overlapping wants always share their bytes; if these, or one
        want alone, are longer, they are cut into pieces of nearly equal size. A piece, and all ranges that
        are near each other, may be up to 1.4 times this long, so that no tiny request is left.
    wide_gap_bytes, few_requests : int
        While there are more requests than `few_requests`, ranges are merged further over the narrowest gaps,
        until the next gap is wider than `wide_gap_bytes`, or the gaps would come to more than half of the
        wanted bytes. Few requests cost nothing while the first response is awaited; many cost more than the
        bytes of the gaps, which all responses bring together.

    Returns
    -------
    list of Fetch
        In ascending order and without overlap.
    """
    if not wants:
        return []
    ordered = sorted(wants, key=lambda want: (want.range.start, want.range.end))
    if max_gap_bytes < wide_gap_bytes and len(wants) > few_requests:
        max_gap_bytes = _widest_gap(ordered, max_gap_bytes, wide_gap_bytes, few_requests)
    return [
        fetch for run in _runs(ordered, max_gap_bytes) for fetch in _requests_of(run, max_coalesced_bytes)
    ]


def _runs(ordered: Sequence[Want], gap: int) -> Iterator[list[Want]]:
    """Yield the wants that follow each other with gaps of at most `gap` bytes."""
    run: list[Want] = []
    end = 0
    for want in ordered:
        if run and want.range.start - end > gap:
            yield run
            run = []
        end = max(end, want.range.end) if run else want.range.end
        run.append(want)
    yield run


def _requests_of(run: list[Want], limit: int) -> list[Fetch]:
    """Return the requests that bring a run: one, where it is not much longer than the limit."""
    whole = ByteRange(run[0].range.start, max(want.range.end for want in run))
    if _count_pieces(whole.length, limit) == 1:
        return [Fetch(whole, tuple(run))]
    fetches: list[Fetch] = []
    group: list[Want] = []
    start = end = whole.start
    for want in run:
        low, high = want.range.start, want.range.end
        if group and low >= end and high - start > limit:
            fetches.extend(_cut(ByteRange(start, end), group, limit))
            group = []
        if not group:
            start = low
        end = max(end, high)
        group.append(want)
    fetches.extend(_cut(ByteRange(start, end), group, limit))
    return fetches


def _widest_gap(ordered: Sequence[Want], narrow: int, wide: int, few: int) -> int:
    """Return the gap, from `narrow` to `wide`, over which ranges are merged for few requests to be left."""
    gaps: list[int] = []
    wanted, end = 0, ordered[0].range.start
    for want in ordered:
        start = want.range.start
        if start - end > narrow:
            gaps.append(start - end)
        wanted += max(0, want.range.end - max(start, end))
        end = max(end, want.range.end)
    gaps.sort()
    found, read = narrow, 0
    for gap in gaps[: max(0, len(gaps) + 1 - few)]:
        read += gap
        if gap > wide or read > wanted // 2:
            break
        found = gap
    return found


def _count_pieces(length: int, limit: int) -> int:
    """Return the number of pieces of at most 1.4 limits: the ceiling of length / limit - 0.4."""
    return max(1, -((4 * limit - 10 * length) // (10 * limit)))


def _cut(whole: ByteRange, wants: list[Want], limit: int) -> list[Fetch]:
    length = whole.length
    pieces = _count_pieces(length, limit)
    if pieces == 1:
        return [Fetch(whole, tuple(wants))]
    edges = [whole.start + length * i // pieces for i in range(pieces + 1)]
    return [
        Fetch(
            ByteRange(low, high),
            tuple(want for want in wants if want.range.start < high and low < want.range.end),
        )
        for low, high in pairwise(edges)
    ]


def joined_bytes(fetches: Sequence[Fetch]) -> int:
    """Return the bytes of the wants that lie in several of these fetches; `assemble` has to copy them."""
    return sum(
        want.range.length
        for one, other in pairwise(fetches)
        if one.range.end == other.range.start
        for want in other.wants
        if want.range.start < other.range.start
    )


def assemble(wants: Sequence[Want], parts: Sequence[tuple[ByteRange, Buffer]]) -> Stash:
    """Give each want its bytes.

    Parameters
    ----------
    wants : sequence of Want
        A key may come twice if it names the same range.
    parts : sequence of (ByteRange, buffer)
        What the fetches brought, in any order, without overlap.

    Returns
    -------
    Stash
        A view into the part, where one part holds the whole want; else a copy, joined.

    Raises
    ------
    ValueError
        A part is not as long as its range, or a want is not covered.
    ParquetFormatError
        A key names two ranges.
    """
    received = sorted(((r.start, r.end, memoryview(data)) for r, data in parts), key=lambda part: part[0])
    for start, end, view in received:
        if view.nbytes != end - start:
            raise ValueError(f"{view.nbytes} bytes came for {ByteRange(start, end)}")
    starts = [part[0] for part in received]
    stash: dict[ReadKey, memoryview] = {}
    ranges: dict[ReadKey, ByteRange] = {}
    for want in wants:
        first = ranges.setdefault(want.key, want.range)
        if first != want.range:
            # Tasks that were planned elsewhere may contradict each other.
            raise ParquetFormatError(f"{want.key} names both {first} and {want.range}")
        if want.key not in stash:
            stash[want.key] = _slice(want.range, received, max(bisect_right(starts, want.range.start) - 1, 0))
    return stash


def _slice(wanted: ByteRange, received: list[tuple[int, int, memoryview]], first: int) -> memoryview:
    position = wanted.start
    pieces: list[memoryview] = []
    for start, end, view in received[first:]:
        if start > position or position >= wanted.end:
            break
        if end > position:
            pieces.append(view[position - start : min(end, wanted.end) - start])
            position = min(end, wanted.end)
    if position < wanted.end:
        raise ValueError(f"no part holds {ByteRange(position, wanted.end)}")
    if len(pieces) == 1:
        return pieces[0]
    return memoryview(join_buffers(pieces)).cast("B").toreadonly()
