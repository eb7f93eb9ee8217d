"""The metrics of one scan: what was pruned, requested and returned."""

from __future__ import annotations

import dataclasses
import itertools
import logging
import threading
import warnings
from collections.abc import Callable, Sequence, Sized
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, Protocol, TypeAlias

from accel.errors import ObjectNotFoundError, redact
from accel.events import SLOW, Event, Listener, emit, listens
from accel.ranges import Kind

__all__ = ["Counter", "Metrics", "TableFacts"]


@dataclass(slots=True)
class Counter:
    """The units of one level of pruning, and those that were left."""

    total: int = 0
    kept: int = 0

    def add(self, *, total: int, kept: int) -> None:
        self.total += total
        self.kept += kept

    def __str__(self) -> str:
        return f"{self.kept:,} of {self.total:,}"


@dataclass(slots=True, kw_only=True)
class TableFacts:
    """What a run read of a table, and what the table said of its files."""

    format: str
    """"Delta", "Iceberg", "DuckLake" or "Hive"."""
    location: str
    """Where the table is, without credentials."""
    version: int
    """The version that was read, or the id of the snapshot."""
    files: int = 0
    """Files of that version."""
    excluded_by_partition: int = 0
    """Files that their partition values rule out."""
    excluded_by_bounds: int = 0
    """Files that the bounds in the table's metadata rule out."""
    deleted_rows: int = 0
    """Rows of the planned files that the table has deleted."""
    log_requests: int = 0
    """Requests for the log, the manifests or the catalog, and for deleted rows."""

    def named_in(self, error: ObjectNotFoundError) -> ObjectNotFoundError:
        """Return the error of a file that this version names and that is not there: it says why."""
        if self.version >= 0:
            error.message = (
                f"the file is gone: version {self.version} of the {self.format} table {self.location} has "
                f"been vacuumed ({error.message})"
            )
            error.hint = (
                "read a newer version, or keep files longer than scans take; within max_age a cache has the "
                "version that it knows"
            )
        return error


Count: TypeAlias = Literal[
    "cached_bytes",
    "catalog_learned",
    "catalog_stale",
    "data_hits",
    "decoder_fallbacks",
    "dictionary_hits",
    "fallbacks",
    "indexes_ignored",
    "late_dictionaries",
    "late_pieces",
    "learning_failures",
    "metadata_hits",
    "metadata_misses",
    "replans",
    "restarts",
    "retries",
    "rows_from_metadata",
    "rows_out",
    "rows_recalled",
    "shared_failures",
    "shared_hits",
]
"""The counts that `Metrics.add` adds to; requests and their bytes are counted by `Metrics.count_request`."""


class Planned(Protocol):
    """The counts of the plan of one file (`planning.file_planner.FilePlan`)."""

    @property
    def tasks(self) -> Sized: ...

    row_groups: int
    row_groups_kept: int
    pages: int
    pages_kept: int
    rows: int
    rows_kept: int
    chunks_whole: int


_NOTHING: tuple[object, ...] = (0, None, [], {}, {"total": 0, "kept": 0})


@dataclass(slots=True, repr=False)
class Metrics:
    """The counts of one run of a scan. Its repr shows the counts that are not 0.

    It is updated on the I/O loop and by decode threads, and may be read on any thread.
    """

    requests: int = 0
    """Requests sent, retries included."""
    bytes: int = 0
    """Body bytes received."""
    round_trips: int = 0
    """Dependent waves of requests of the file that had the most, including the listing."""
    retries: int = 0
    """Requests that repeat a failed one."""
    requests_by_kind: dict[Kind, int] = field(default_factory=dict)
    """`requests` by kind: "data page", "listing", ... A request for several kinds counts for that of most of
    its bytes; dictionary pages that come with data pages or column chunks do not count in this."""
    bytes_by_kind: dict[Kind, int] = field(default_factory=dict)
    """`bytes` by kind, likewise."""
    catalog: Counter = field(default_factory=Counter)
    """Files that an index outside the files has in their current version; `kept`: those that it left."""
    catalog_dropped: dict[str, dict[str, int]] = field(default_factory=dict)
    """By table of the index ("bounds", or a kind and its columns): the `files` that it ruled out in addition
    to those before it, and of files that were left the `row_groups`, `pages` and `rows`."""
    catalog_stale: int = 0
    """Files that the index does not know, or knows in another version: they are read as if there were no
    index."""
    catalog_learned: int = 0
    """Files that the scan has opened and that were added to the index after it, where it learns."""
    learning_failures: int = 0
    """Failed attempts to add files to the index, which `warnings` explains."""
    table: TableFacts | None = None
    """Of a scan of a table: its version, and what the table said of its files."""
    files: Counter = field(default_factory=Counter)
    """`total`: files of the source; `kept`: those that pruning left. The other levels count alike."""
    row_groups: Counter = field(default_factory=Counter)
    """Row groups of the opened files."""
    pages: Counter = field(default_factory=Counter)
    """Data pages of the projected and filter columns in the row groups that were left, except those of column
    chunks that are read whole without their page index."""
    rows: Counter = field(default_factory=Counter)
    """Rows of the opened files; `kept`: those that pruning left, before the filter is evaluated."""
    rows_out: int = 0
    """Rows returned."""
    rows_from_metadata: int = 0
    """Rows that an aggregate or a count included without reading them."""
    distinct_units: dict[str, int] = field(default_factory=dict)
    """Files, row groups and pages whose distinct values were found, by where they came from: "row groups by
    dictionary"."""
    metadata_hits: int = 0
    """Files whose metadata came from the cache."""
    metadata_misses: int = 0
    """Files whose metadata was read."""
    shared_hits: int = 0
    """Files of `metadata_hits` whose metadata came from the shared cache."""
    shared_failures: int = 0
    """Lookups that the shared cache did not answer in time, or with a damaged entry: the file itself was
    read."""
    rows_recalled: int = 0
    """Rows that came from the cache as an earlier scan had decoded them."""
    dictionary_hits: int = 0
    """Dictionary pages that came from the cache."""
    data_hits: int = 0
    """Ranges of data pages that came whole from the cache."""
    cached_bytes: int = 0
    """Bytes of data that came from the cache."""
    late_dictionaries: int = 0
    """Dictionary pages that were requested after the data pages had shown that they are needed."""
    late_pieces: int = 0
    """Pieces whose filter columns were read first, and the other columns only where rows matched."""
    fallbacks: int = 0
    """Column chunks read whole because their page index was missing or not trustworthy."""
    decoder_fallbacks: int = 0
    """Column chunks, or their parts in a piece, that accel began to decode itself and left to pyarrow because
    of nulls or an unsupported page."""
    replans: int = 0
    """Files that changed before any of their rows was returned, and were planned again."""
    restarts: int = 0
    """1 if reading had begun by an earlier listing, and began again because the files had changed."""
    indexes_ignored: int = 0
    """Indexes that failed verification, or are of an unknown kind or version."""
    warnings: list[str] = field(default_factory=list)
    """What was ignored and why, a hundred entries at most."""
    skipped: dict[str, str] = field(default_factory=dict)
    """With `on_error="skip"`, why files were left out, by their URLs; a thousand entries at most."""
    listener: Listener | None = field(default=None, repr=False, compare=False)
    """Takes the events of the run: see `Options.on_event`."""
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)
    _number: int = field(default_factory=itertools.count(1).__next__, repr=False, compare=False)

    def __repr__(self) -> str:
        counts = (f"{name}={value}" for name, value in self.as_dict().items() if value not in _NOTHING)
        return f"Metrics({', '.join(counts)})"

    def _repr_html_(self) -> str:
        """Show the counts that are not 0 in a notebook, and the requests by their kinds."""
        from accel.pictures.document import byte_count, facts_table, fragment

        counts = self.as_dict()
        by_kind = [
            (str(kind), number, byte_count(self.bytes_by_kind.get(kind, 0)))
            for kind, number in sorted(self.requests_by_kind.items())
        ]
        others = [
            (name, value if isinstance(value, int) else str(value))
            for name, value in counts.items()
            if value not in _NOTHING and not name.endswith("_by_kind")
        ]
        return fragment(
            facts_table(("count", "value"), others),
            facts_table(("requests", "count", "bytes"), by_kind) if by_kind else "",
        )

    def __reduce__(self) -> tuple[Callable[[], Metrics], tuple[()]]:
        # The copy has the counts of this moment.
        with self._lock:
            counts = {f.name: _copied(getattr(self, f.name)) for f in dataclasses.fields(self) if f.repr}
        return partial(Metrics, **counts), ()

    def emit(self, name: str, *, is_shown: bool = False, **facts: Any) -> None:
        """Report an event of the run.

        Parameters
        ----------
        name : str
            Its name: see `Event`.
        is_shown : bool
            Whether it is a warning of Python's, too.
        **facts
            The other fields of it.
        """
        emit(self.listener, Event(name=name, scan=self._number, **facts), is_shown=is_shown)

    def report_request(
        self,
        kind: Kind,
        path: str,
        *,
        place: object,
        nbytes: int,
        seconds: float,
        error: BaseException | None = None,
    ) -> None:
        """Report a request that has ended, if anybody takes such reports.

        Parameters
        ----------
        kind : Kind
            What it reads.
        path : str
            The object.
        place : object
            The range of bytes; None for none.
        nbytes : int
            The bytes that came.
        seconds : float
            How long it took.
        error : BaseException or None
            How it failed.
        """
        if listens(self.listener, level=logging.DEBUG if seconds < SLOW else logging.INFO):
            text = None if error is None else redact(f"{type(error).__name__}: {error}")
            self.emit(
                "request",
                path=redact(path),
                kind=str(kind),
                place=None if place is None else str(place),
                nbytes=nbytes,
                seconds=seconds,
                text=text,
            )

    def count_request(self, kind: Kind, received: int) -> None:
        """Count one request and the bytes of its body (0 if it failed)."""
        with self._lock:
            self.requests += 1
            self.bytes += received
            self.requests_by_kind[kind] = self.requests_by_kind.get(kind, 0) + 1
            self.bytes_by_kind[kind] = self.bytes_by_kind.get(kind, 0) + received

    def absorb(self, other: Metrics, kind: Kind = Kind.CATALOG) -> None:
        """Count the requests of a scan of what describes files, and take over its warnings.

        Parameters
        ----------
        other : Metrics
            The counts of that scan.
        kind : Kind
            What they are counted as: an index outside the files, or the metadata of a table.
        """
        with self._lock:
            self.requests += other.requests
            self.bytes += other.bytes
            self.retries += other.retries
            for counts, number in (
                (self.requests_by_kind, other.requests),
                (self.bytes_by_kind, other.bytes),
            ):
                if number:
                    counts[kind] = counts.get(kind, 0) + number
        for text in other.warnings:
            self.warn(text)

    def merge(self, other: Metrics) -> None:
        """Add the counts of another run, as of another part of the same job; `round_trips` becomes the
        greater of both.

        Parameters
        ----------
        other : Metrics
            The counts of that run.
        """
        given = Metrics(
            **{f.name: _copied(getattr(other, f.name)) for f in dataclasses.fields(other) if f.repr}
        )
        with self._lock:
            for f in dataclasses.fields(given):
                mine, theirs = getattr(self, f.name), getattr(given, f.name)
                if isinstance(mine, Counter):
                    mine.add(total=theirs.total, kept=theirs.kept)
                elif f.name == "catalog_dropped":
                    continue  # by table, below
                elif f.name == "skipped":
                    mine.update(theirs)
                elif isinstance(mine, dict):
                    for kind, number in theirs.items():
                        mine[kind] = mine.get(kind, 0) + number
                elif f.name == "round_trips":
                    self.round_trips = max(mine, theirs)
                elif isinstance(mine, int):
                    setattr(self, f.name, mine + theirs)
        self.table = self.table or given.table
        for table, dropped in given.catalog_dropped.items():
            self.count_dropped(table, **dropped)
        self._take_warnings(given.warnings)

    def count_dropped(self, table: str, **counts: int) -> None:
        """Add to the counts of `catalog_dropped`.

        Parameters
        ----------
        table : str
            A table of the index.
        **counts : int
            What it ruled out, by name.
        """
        with self._lock:
            found = self.catalog_dropped.setdefault(table, {})
            for name, number in counts.items():
                found[name] = found.get(name, 0) + number

    def add(self, name: Count, amount: int = 1) -> None:
        """Add to one of the plain integer counts."""
        with self._lock:
            setattr(self, name, getattr(self, name) + amount)

    def deepest(self, round_trips: int) -> None:
        """Set `round_trips` if this is more."""
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
        if plan.chunks_whole:
            self.add("fallbacks", sign * plan.chunks_whole)

    def begin_again(self) -> None:
        """Reset the counts of planning and reading, which begin again; requests stay counted."""
        with self._lock:
            for counter in (self.files, self.row_groups, self.pages, self.rows):
                counter.total = counter.kept = 0
            self.round_trips = self.fallbacks = self.decoder_fallbacks = 0
            self.rows_from_metadata = self.rows_recalled = 0
            self.restarts += 1

    def skip(self, url: str, error: Exception, *, warns: bool) -> None:
        """Note that a file is left out.

        Parameters
        ----------
        url : str
            The file.
        error : Exception
            Why.
        warns : bool
            Whether the first of the run is a warning of Python's, too.
        """
        name, reason = redact(url), redact(str(error))
        with self._lock:
            first = not self.skipped
            if len(self.skipped) < 1000:
                self.skipped[name] = reason
        text = f"skipped: {reason}"
        if first and warns:
            text += "; `metrics.skipped` has all that are left out"
            warnings.warn(text, stacklevel=2)
        self.warn(text, is_shown=first and warns)

    def warn(self, text: str, *, is_shown: bool = False) -> None:
        """Add to `warnings`, unless there are a hundred.

        Parameters
        ----------
        text : str
            What it says.
        is_shown : bool
            Whether it is a warning of Python's, too.
        """
        self._take_warnings([text])
        self.emit("warning", is_shown=is_shown, text=redact(text))

    def _take_warnings(self, texts: Sequence[str]) -> None:
        """Add to `warnings` what is told already where it happened."""
        with self._lock:
            self.warnings += texts[: max(0, 100 - len(self.warnings))]

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
            elif isinstance(value, TableFacts):
                value = dataclasses.asdict(value)
            out[name] = value
        return out


def _copied(value: Any) -> Any:
    if isinstance(value, Counter):
        return Counter(value.total, value.kept)
    if isinstance(value, dict):
        return {key: _copied(each) for key, each in value.items()}
    if isinstance(value, TableFacts):
        return dataclasses.replace(value)
    return value.copy() if isinstance(value, list) else value
