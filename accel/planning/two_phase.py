"""Late materialization: the filter's columns first, the others only where rows match.

One more round trip against the bytes of pages that hold no matching row. Their decoding is spared in one
round trip, too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from accel.options import REQUEST_SECONDS
from accel.planning.handle import FileHandle
from accel.planning.pages import LeafReads, Piece, PieceLeaf, PieceSize, cut_pieces
from accel.planning.query import FileQuery
from accel.planning.read_request import OnBadIndex
from accel.planning.selection import RowSelection
from accel.planning.task import ScanTask

__all__ = [
    "LEAST_LATE_BYTES",
    "Forecast",
    "Guesses",
    "ObservedSelectivity",
    "at_once",
    "cut_output",
    "cut_task",
    "filter_phase",
    "forecast",
    "guess_shares",
    "late_bytes",
    "output_phase",
]

# The CPU time to receive a byte, however fast the network is: 1.3 to 1.7 ns were measured without TLS.
_RECEIVE_SECONDS = 2.0e-9
# The time to decode a byte of a chunk without a page index, which is decoded as a whole.
_DECODE_SECONDS = 1.0e-9
# The guess may be wrong: the saving must exceed the cost by this factor.
_MARGIN = 1.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """The expected I/O of a task that is read in two phases."""

    first_bytes: int
    """The bytes of the filter's columns, which are read in any case."""
    late_bytes: int
    """The bytes of the other columns, if all were read."""
    expected_bytes: int
    """The bytes of the other columns that are expected to be read."""
    pays: bool


def forecast(task: ScanTask, share: float, *, latency: float, bandwidth: float, concurrent: int) -> Forecast:
    """Weigh the second round trip against what it is expected to save.

    Parameters
    ----------
    share : float
        The share of the undecided rows that is expected to match, 0 to 1.
    latency : float
        Seconds to the first byte.
    bandwidth : float
        Bytes a second, all streams together.
    concurrent : int
        Tasks that are read at the same time: they wait for their second round trips together.
    """
    doubtful = task.rows.without(task.certain, task.num_rows)
    late = [reads for reads in task.reads if not reads.for_filter]
    total = sum(reads.nbytes for reads in late)
    first = sum(reads.nbytes for reads in task.reads) - total
    if not late or len(late) == len(task.reads) or not doubtful:
        return Forecast(first_bytes=first, late_bytes=total, expected_bytes=total, pays=False)
    expected = unpacked = requests = 0.0
    for reads in late:
        nbytes, runs = _expected(reads, task, doubtful, share)
        expected += nbytes
        requests += runs
        unpacked += (reads.nbytes - nbytes) * reads.expansion if reads.whole else 0.0
    saved = (total - expected) * (1 / bandwidth + _RECEIVE_SECONDS) + unpacked * _DECODE_SECONDS
    cost = latency / max(1, concurrent) + REQUEST_SECONDS * requests
    return Forecast(
        first_bytes=first,
        late_bytes=total,
        expected_bytes=round(expected),
        pays=saved > _MARGIN * cost,
    )


def _expected(reads: LeafReads, task: ScanTask, doubtful: RowSelection, share: float) -> tuple[float, float]:
    """Return the bytes of one leaf, and the runs of pages that they come in.

    Matching rows are taken to lie anywhere among the undecided ones: together they would be fewer pages.
    """
    if reads.whole:
        chance = 1.0 if task.certain else 1.0 - (1.0 - share) ** doubtful.count
        return reads.nbytes * chance, chance
    doubtful_rows = doubtful.counts(reads.first_row, reads.stop_row)
    read = 1.0 - (1.0 - share) ** doubtful_rows
    if task.certain:
        read[task.certain.counts(reads.first_row, reads.stop_row) > 0] = 1.0
    # A run begins with a page that is read after one that is not.
    runs = float(read[0] + read[1:] @ (1.0 - read[:-1])) if len(read) else 0.0
    return float(reads.size @ read), runs


def cut_task(task: ScanTask, *, size: PieceSize, two_phases: bool) -> list[Piece]:
    """Return the pieces of a task. In two phases only the filter's bytes count: the rest is cut when it is
    known what is left of it."""
    weighed = (
        [reads for reads in task.reads if reads.for_filter] if two_phases and task.needs_filter else None
    )
    return cut_pieces(
        task.reads,
        task.rows,
        certain=task.certain,
        num_rows=task.num_rows,
        size=size,
        weighed=weighed,
    )


def at_once(piece: Piece, is_carried: Callable[[int, int], bool]) -> Piece:
    """Return a piece whose rows all match, which is read at once among others that are not: of pages that
    straddle the cut, the piece before may not come to fetch those of the result. See `output_phase` for
    `is_carried`."""
    leaves = [
        replace(part, carried=is_carried(part.reads.leaf, int(part.reads.ordinal[part.lo])))
        if part.carried and not part.reads.for_filter
        else part
        for part in piece.leaves
    ]
    return replace(piece, leaves=tuple(leaves))


def filter_phase(piece: Piece) -> Piece:
    """Return the part of a piece that its filter needs."""
    return replace(piece, leaves=tuple(part for part in piece.leaves if part.reads.for_filter))


def output_phase(piece: Piece, rows: RowSelection, *, is_carried: Callable[[int, int], bool]) -> Piece:
    """Return the rest of a piece, for the rows that turned out to match.

    Parameters
    ----------
    rows : RowSelection
        Not empty, of the piece's rows.
    is_carried : callable
        Whether another piece of the task fetches a page, by leaf and ordinal: it is waited for then. Called
        once for a page and piece, where the answer counts.
    """
    leaves = []
    for part in piece.leaves:
        if part.reads.for_filter:
            continue
        leaves.append(part if part.reads.whole else _narrowed(part, rows, is_carried))
    return Piece(rows, rows, tuple(leaves), piece.start, piece.stop)


def cut_output(piece: Piece, *, num_rows: int, size: PieceSize) -> list[Piece]:
    """Cut the second phase of a piece where it is too large to decode at once."""
    if piece.weight <= size.of(len(piece.leaves)) or any(part.reads.whole for part in piece.leaves):
        return [piece]
    reads = [part.reads for part in piece.leaves]
    parts = cut_pieces(reads, piece.rows, certain=piece.certain, num_rows=num_rows, size=size)
    first = parts[0]
    # The first part still shares a page with the piece before; the last ends where the piece does.
    leaves = tuple(
        replace(leaf, carried=part.carried and leaf.lo < leaf.hi)
        for leaf, part in zip(first.leaves, piece.leaves, strict=True)
    )
    parts[0] = replace(first, leaves=leaves, start=piece.start)
    parts[-1] = replace(parts[-1], stop=piece.stop)
    return parts


def _narrowed(part: PieceLeaf, rows: RowSelection, is_carried: Callable[[int, int], bool]) -> PieceLeaf:
    reads = part.reads
    first, stop = reads.first_row[part.lo : part.hi], reads.stop_row[part.lo : part.hi]
    keep = part.lo + np.flatnonzero(reads.reach(rows).counts(first, stop) > 0)
    # A page that straddles the cut may be on its way for the piece before.
    straddles = bool(len(keep)) and int(keep[0]) == part.lo and part.carried
    carried = straddles and is_carried(reads.leaf, int(reads.ordinal[part.lo]))
    return PieceLeaf(reads.take(keep), 0, len(keep), carried)


# An estimate from metadata weighs as much as this many observed rows.
_GUESS_ROWS = 10_000


@dataclass(slots=True)
class ObservedSelectivity:
    """How many of the undecided rows have matched so far in a scan; only the I/O loop uses it."""

    tested: int = 0
    matched: int = 0

    def add(self, *, tested: int, matched: int) -> None:
        self.tested += tested
        self.matched += matched

    def share(self, guess: float) -> float:
        """Return the share of undecided rows expected to match: an estimate, corrected by the rows seen."""
        return (guess * _GUESS_ROWS + self.matched) / (_GUESS_ROWS + self.tested)


LEAST_LATE_BYTES = 256 << 10
"""With less to leave out, a second round trip never pays."""


def late_bytes(task: ScanTask) -> int:
    """Return the bytes of the columns that only the result needs: what a second phase may leave out some
    of."""
    if not task.needs_filter or not any(reads.for_filter for reads in task.reads):
        return 0
    return sum(reads.nbytes for reads in task.reads if not reads.for_filter)


@dataclass(frozen=True, slots=True)
class Guesses:
    """The tasks of one file, with `share` set where it may matter."""

    tasks: list[ScanTask]
    guessed: list[ScanTask]
    """The tasks that it was set for."""
    sketched: bool
    """Whether a sketch took part."""


def guess_shares(
    handle: FileHandle, query: FileQuery, *, tasks: list[ScanTask], on_bad_index: OnBadIndex
) -> Guesses:
    """Set the share of rows that are expected to match in the tasks of one file."""
    open_to = [task.nbytes >= LEAST_LATE_BYTES and late_bytes(task) >= LEAST_LATE_BYTES for task in tasks]
    if not any(open_to):
        return Guesses(tasks, [], False)
    # Selective look-ups seldom need this, so they do not pay for the import.
    from accel.planning.embedded import Sketches
    from accel.planning.selectivity import Selectivity

    sketches, selectivity = Sketches.of(handle, query, on_bad_index), Selectivity(handle, query)
    out: list[ScanTask] = []
    guessed: list[ScanTask] = []
    for task, matters in zip(tasks, open_to, strict=True):
        if matters:
            share = selectivity.share(
                task.row_group,
                doubtful=task.rows.count - task.certain.count,
                sketches={} if sketches is None else sketches.of_group(task.row_group),
            )
            task = replace(task, share=share)
            guessed.append(task)
        out.append(task)
    return Guesses(out, guessed, sketches is not None)
