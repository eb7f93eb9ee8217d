"""The counts of one scan: what was pruned, what was asked for, what came back."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Sized
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, Protocol, TypeAlias

from accel.ranges import Kind

__all__ = ["Counter", "Metrics"]


@dataclass(slots=True)
class Counter:
    """How many units a level started with, and how many it left."""

    total: int = 0
    kept: int = 0

    def add(self, *, total: int, kept: int) -> None:
        self.total += total
        self.kept += kept


Count: TypeAlias = Literal[
    "cached_bytes",
    "data_hits",
    "decoder_fallbacks",
    "dictionary_hits",
    "fallbacks",
    "indexes_ignored",
    "late_dictionaries",
    "late_pieces",
    "metadata_hits",
    "metadata_misses",
    "replans",
    "restarts",
    "retries",
    "row_groups_remembered",
    "rows_from_metadata",
    "rows_out",
    "rows_recalled",
]
"""The plain counts that are added to by name; requests and what they bring are counted together."""


class Planned(Protocol):
    """What planning left of one file (`planning.file_planner.FilePlan`)."""

    @property
    def tasks(self) -> Sized: ...

    row_groups: int
    row_groups_kept: int
    pages: int
    pages_kept: int
    rows: int
    rows_kept: int
    chunks_whole: int
    remembered_groups: int


_NOTHING: tuple[object, ...] = (0, [], {}, {"total": 0, "kept": 0})


@dataclass(slots=True, repr=False)
class Metrics:
    """What one run of a scan did; as text, the counts that are not 0.

    Written on the I/O loop and by decode threads, read by anybody.
    """

    requests: int = 0
    """Requests sent, retries included."""
    bytes: int = 0
    """Body bytes received."""
    round_trips: int = 0
    """Dependent waves of requests of the file that had the most (listing included)."""
    retries: int = 0
    """Requests sent again after one that failed."""
    requests_by_kind: dict[Kind, int] = field(default_factory=dict)
    """`requests`, by what was asked for: "data page", "listing", ... A request for several things counts for what most of
    its bytes are, and for "data page" or "column chunk" where dictionary pages come along with these."""
    bytes_by_kind: dict[Kind, int] = field(default_factory=dict)
    """`bytes`, likewise."""
    files: Counter = field(default_factory=Counter)
    """`total`: files the source names; `kept`: those that pruning left. The other levels count alike."""
    row_groups: Counter = field(default_factory=Counter)
    """Of the files that were opened."""
    pages: Counter = field(default_factory=Counter)
    """Data pages of the projected and filter columns of the row groups that were kept; of chunks that are read whole
    without a look at their page index, none."""
    rows: Counter = field(default_factory=Counter)
    """Of the files that were opened; `kept`: those that pruning left, whether the filter is still to be put to them or not."""
    rows_out: int = 0
    """Rows handed out."""
    rows_from_metadata: int = 0
    """Rows that an aggregate or a count took in without anything of them being read."""
    metadata_hits: int = 0
    """Files whose metadata came from the cache."""
    metadata_misses: int = 0
    """Files whose metadata was read."""
    row_groups_remembered: int = 0
    """Row groups of which an earlier scan has found which rows match the same predicate: only these were read."""
    rows_recalled: int = 0
    """Rows that were at hand as an earlier scan had decoded them."""
    dictionary_hits: int = 0
    """Dictionary pages that came from the cache."""
    data_hits: int = 0
    """Runs of data pages that came whole from the cache."""
    cached_bytes: int = 0
    """Bytes of data that came from the cache."""
    late_dictionaries: int = 0
    """Dictionary pages that turned out to be needed when the data pages came, and were asked for then."""
    late_pieces: int = 0
    """Pieces whose filter columns were read first, and the other columns only where rows matched."""
    fallbacks: int = 0
    """Column chunks read whole because their page index could not be trusted or was absent."""
    decoder_fallbacks: int = 0
    """Column chunks, or the part of one that a piece has, that accel began to decode itself and left to pyarrow as a whole: it
    met nulls, or a page of a form that it does not take."""
    replans: int = 0
    """Files that changed before a row of them was handed out, and were planned again."""
    restarts: int = 0
    """1 where reading had begun before the store was asked (`early_run`), and was dropped: the files are others now."""
    indexes_ignored: int = 0
    """Indexes that did not verify, or that this version does not know."""
    warnings: list[str] = field(default_factory=list)
    """What was passed over and why, a hundred at most."""
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)

    def __repr__(self) -> str:
        told = (f"{name}={value}" for name, value in self.as_dict().items() if value not in _NOTHING)
        return f"Metrics({', '.join(told)})"

    def __reduce__(self) -> tuple[Callable[[], Metrics], tuple[()]]:
        # A copy is of this moment, and is counted by itself.
        with self._lock:
            counts = {f.name: _copied(getattr(self, f.name)) for f in dataclasses.fields(self) if f.repr}
        return partial(Metrics, **counts), ()

    def count_request(self, kind: Kind, received: int) -> None:
        """Count one request and the body bytes it brought (0 for a failed one)."""
        with self._lock:
            self.requests += 1
            self.bytes += received
            self.requests_by_kind[kind] = self.requests_by_kind.get(kind, 0) + 1
            self.bytes_by_kind[kind] = self.bytes_by_kind.get(kind, 0) + received

    def add(self, name: Count, amount: int = 1) -> None:
        """Add to one of the plain integer counts."""
        with self._lock:
            setattr(self, name, getattr(self, name) + amount)

    def deepest(self, round_trips: int) -> None:
        """Keep the greatest number of dependent waves seen."""
        with self._lock:
            self.round_trips = max(self.round_trips, round_trips)

    def count_file(self, plan: Planned, sign: int) -> None:
        """Count what planning leaves of a file, or take it out again.

        Parameters
        ----------
        plan : Planned
            The plan of the file.
        sign : int
            1 to count it, -1 to take it out.
        """
        self.files.add(total=sign, kept=sign if plan.tasks else 0)
        self.row_groups.add(total=sign * plan.row_groups, kept=sign * plan.row_groups_kept)
        self.pages.add(total=sign * plan.pages, kept=sign * plan.pages_kept)
        self.rows.add(total=sign * plan.rows, kept=sign * plan.rows_kept)
        if plan.chunks_whole or plan.remembered_groups:
            self.add("fallbacks", sign * plan.chunks_whole)
            self.add("row_groups_remembered", sign * plan.remembered_groups)

    def begin_again(self) -> None:
        """Drop the counts of what was planned and read, as that is done anew; what was requested stays."""
        with self._lock:
            for counter in (self.files, self.row_groups, self.pages, self.rows):
                counter.total = counter.kept = 0
            self.round_trips = self.fallbacks = self.row_groups_remembered = self.decoder_fallbacks = 0
            self.rows_from_metadata = self.rows_recalled = 0
            self.restarts += 1

    def warn(self, text: str) -> None:
        """Add to `warnings`, which are no more than a hundred."""
        with self._lock:
            if len(self.warnings) < 100:
                self.warnings.append(text)

    def as_dict(self) -> dict[str, object]:
        """Return the counts as plain values, for logs and JSON.

        Returns
        -------
        dict
            The counts by name.
        """
        out: dict[str, object] = {}
        with self._lock:
            counts = {f.name: _copied(getattr(self, f.name)) for f in dataclasses.fields(self) if f.repr}
        for name, value in counts.items():
            if isinstance(value, Counter):
                value = {"total": value.total, "kept": value.kept}
            elif isinstance(value, dict):
                value = {str(k): v for k, v in value.items()}
            out[name] = value
        return out


def _copied(value: Any) -> Any:
    if isinstance(value, Counter):
        return Counter(value.total, value.kept)
    return value.copy() if isinstance(value, dict | list) else value
