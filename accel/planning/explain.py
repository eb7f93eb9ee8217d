"""What a scan will ask for, said before it asks: levels, requests, round trips, bytes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from accel.planning.coalesce import Merging
from accel.planning.pages import Piece, PieceSize, piece_wants
from accel.planning.task import ScanTask
from accel.planning.two_phase import cut_task, filter_phase, output_phase
from accel.ranges import ByteRange, ReadKey, Want

__all__ = ["Explain", "RequestLevel", "TaskIO", "predict_pieces", "predict_task"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestLevel:
    """The I/O of one step of a scan."""

    name: str
    requests: int
    round_trips: int
    bytes: int
    measured: bool
    """True for what was really asked for (planning is run to be explained), False for a prediction."""


@dataclass(frozen=True, slots=True)
class TaskIO:
    """What reading one task will ask for."""

    requests: int
    bytes: int
    round_trips: int
    late_dictionaries: int
    """Dictionary pages that may be asked for in a second round trip: the footer does not prove that the
    pages do without. Not counted in the other numbers."""
    late_bytes: int


def predict_task(
    task: ScanTask,
    *,
    have_dictionary: Collection[ReadKey],
    size: PieceSize,
    merging: Merging,
    missing: Callable[[Want], ByteRange | None],
    two_phases: bool,
) -> TaskIO:
    """The requests of a task, by the same functions that will make them.

    Parameters
    ----------
    have_dictionary : collection of ReadKey
        Dictionary pages that are cached.
    missing : callable
        What of a want has to be asked for.
    two_phases : bool
        The filter's columns come first: what the others ask for is then the most that it can be, in bytes.
    """
    told = _Told(set(have_dictionary), merging, missing)
    for piece in cut_task(task, size=size, two_phases=two_phases):
        waves = sum(
            told.take([(task, phase)]) for phase in (_phases(piece) if two_phases else _waves(task, piece))
        )
        told.trips = max(told.trips, waves)
        told.take_late(task, piece)
    return told.io()


def predict_pieces(
    pieces: Sequence[tuple[ScanTask, Piece]],
    *,
    have_dictionary: Collection[ReadKey],
    merging: Merging,
    missing: Callable[[Want], ByteRange | None],
) -> TaskIO:
    """The requests of pieces of several tasks of a file that are fetched together: see `predict_task`."""
    told = _Told(set(have_dictionary), merging, missing)
    told.trips = told.take(pieces)
    for task, piece in pieces:
        told.take_late(task, piece)
    return told.io()


class _Told:
    """What has been predicted so far."""

    def __init__(
        self, cached: set[ReadKey], merging: Merging, missing: Callable[[Want], ByteRange | None]
    ) -> None:
        self._cached, self._merging, self._missing = cached, merging, missing
        self._requests = self._bytes = self.trips = 0
        self._late: dict[ReadKey, int] = {}

    def take(self, pieces: Iterable[tuple[ScanTask, Piece]]) -> int:
        """Add what is fetched at once, and give the round trips that this takes: one or none."""
        remote: list[Want] = []
        for task, piece in pieces:
            pages, dictionaries = piece_wants(
                piece, task.row_group, have_dictionary=self._cached.__contains__
            )
            wants = ((want, self._missing(want)) for want in (*pages, *dictionaries))
            remote += [Want(want.key, rest) for want, rest in wants if rest is not None]
            self._cached |= {want.key for want in dictionaries}
        fetches = self._merging.requests(remote)
        self._requests += len(fetches)
        self._bytes += sum(fetch.range.length for fetch in fetches)
        return 1 if fetches else 0

    def take_late(self, task: ScanTask, piece: Piece) -> None:
        """Note the dictionaries that the pages of a piece may turn out to need."""
        for part in piece.leaves:
            want: Want | None = None if part.reads.whole else part.dictionary_want(task.row_group)
            if want is None or task.file.missing(want.range) is None:
                continue
            if part.lo < part.hi and not part.needs_dictionary:
                self._late[want.key] = want.range.length

    def io(self) -> TaskIO:
        late = {key: nbytes for key, nbytes in self._late.items() if key not in self._cached}
        return TaskIO(
            requests=self._requests,
            bytes=self._bytes,
            round_trips=self.trips,
            late_dictionaries=len(late),
            late_bytes=sum(late.values()),
        )


def _waves(task: ScanTask, piece: Piece) -> tuple[Piece, ...]:
    """What is fetched together: of a task that is cut when its whole chunks came, these first."""
    if not task.cut_when_read:
        return (piece,)
    whole = tuple(part for part in piece.leaves if part.reads.whole)
    paged = tuple(part for part in piece.leaves if not part.reads.whole)
    return replace(piece, leaves=whole), replace(piece, leaves=paged)


def _phases(piece: Piece) -> tuple[Piece, ...]:
    """Both phases, the second as if a row of every page matched."""
    if piece.rows.count == piece.sure.count:
        return (piece,)
    return filter_phase(piece), output_phase(piece, piece.rows, at_hand=lambda leaf, ordinal: True)


@dataclass(slots=True, kw_only=True)
class Explain:
    """A plan told: print it, or ask `requests`, `round_trips` and `bytes`, each by level.

    Planning reads metadata for real, so those levels are measured; `data` is predicted from what the plan
    names, by the code that will make the requests. A prediction equals the fact unless a step depends on
    what an earlier one finds: then `notes` say so, with a bound.
    """

    source: str
    where: str | None
    """As SQL, cut where it is long."""
    columns: Sequence[str]
    files: tuple[int, int]
    """Kept, and of how many; the same of all levels below."""
    row_groups: tuple[int, int]
    """Of the files that were opened."""
    pages: tuple[int, int]
    """Of the columns that are read, in the row groups that were kept; of chunks that are read whole, none."""
    rows: tuple[int, int]
    rows_sure: int
    """Rows that are known to match before anything of them is read: by statistics, or from an earlier scan."""
    rows_from_metadata: int = 0
    """Rows that an aggregate takes in without anything of them being read."""
    levels: tuple[RequestLevel, ...]
    """The steps in their order: "listing", "metadata", "indexes", "data"."""
    notes: tuple[str, ...] = ()
    """What the prediction hangs on, and what was decided by a guess."""
    analyzed: Mapping[str, object] | None = None
    """The counts of a real run, for `explain(analyze=True)`."""

    @property
    def requests(self) -> dict[str, int]:
        """By the level's name."""
        return {level.name: level.requests for level in self.levels}

    @property
    def round_trips(self) -> dict[str, int]:
        """By the level's name."""
        return {level.name: level.round_trips for level in self.levels}

    @property
    def bytes(self) -> dict[str, int]:
        """By the level's name."""
        return {level.name: level.bytes for level in self.levels}

    def __str__(self) -> str:
        lines = [f"scan {self.source}"]
        lines.append(f"  columns  {', '.join(self.columns) if self.columns else '(none: row counts only)'}")
        if self.where is not None:
            lines.append(f"  where    {self.where}")
        lines.append("pruning    kept of total")
        for name, (kept, total) in (
            ("files", self.files),
            ("row groups", self.row_groups),
            ("pages", self.pages),
            ("rows", self.rows),
        ):
            lines.append(f"  {name:<11}{kept:>14,} of {total:,}")
        if self.rows_sure and self.where is not None:
            lines.append(f"  {'':<11}{self.rows_sure:>14,} rows proved to match without being read")
        if self.rows_from_metadata:
            lines.append(f"  {'':<11}{self.rows_from_metadata:>14,} rows answered from metadata")
        lines.append(f"requests   {'count':>7} {'trips':>6} {'bytes':>14}")
        for level in self.levels:
            kind = "" if level.measured else "  (predicted)"
            lines.append(
                f"  {level.name:<9}{level.requests:>7,} {level.round_trips:>6} {level.bytes:>14,}{kind}"
            )
        lines += [f"  note: {note}" for note in self.notes]
        if self.analyzed is not None:
            lines.append("run        what happened")
            lines += [f"  {name:<18}{value}" for name, value in self.analyzed.items()]
        return "\n".join(lines)

    __repr__ = __str__
