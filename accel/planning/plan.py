"""Plan and its explanation: the tasks of a scan, and the requests, round trips and bytes that it will
take."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from accel.coalesce import Merging
from accel.errors import AccelError
from accel.metrics import Metrics, TableFacts
from accel.planning.pages import Piece, PieceSize, piece_wants
from accel.planning.task import ScanTask
from accel.planning.two_phase import cut_task, filter_phase, output_phase
from accel.ranges import ByteRange, ReadKey, Want

if TYPE_CHECKING:
    from accel.pictures.file_map import FileMap
    from accel.planning.ordered_reads import OrderedReads
    from accel.planning.query import Question

__all__ = [
    "Explain",
    "Plan",
    "RequestLevel",
    "TaskIO",
    "predict_pieces",
    "predict_task",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestLevel:
    """The I/O of one step of a scan."""

    name: str
    requests: int
    round_trips: int
    bytes: int
    measured: bool
    """True for requests that were made (explaining runs the planning), False for a prediction."""


@dataclass(frozen=True, slots=True)
class TaskIO:
    """The predicted I/O of one task."""

    requests: int
    bytes: int
    round_trips: int
    late_dictionaries: int
    """Dictionary pages that may be requested in a second round trip: the footer does not prove that the
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
    """Return the requests of a task, by the same functions that will make them.

    Parameters
    ----------
    have_dictionary : collection of ReadKey
        Dictionary pages that are cached.
    missing : callable
        Returns the part of a want that has to be requested.
    two_phases : bool
        The filter's columns come first: what the others ask for is then the most that it can be, in bytes.
    """
    prediction = _Prediction(set(have_dictionary), merging, missing)
    for piece in cut_task(task, size=size, two_phases=two_phases):
        waves = sum(
            prediction.take([(task, phase)])
            for phase in (_phases(piece) if two_phases else _waves(task, piece))
        )
        prediction.trips = max(prediction.trips, waves)
        prediction.take_late(task, piece)
    return prediction.io()


def predict_pieces(
    pieces: Sequence[tuple[ScanTask, Piece]],
    *,
    have_dictionary: Collection[ReadKey],
    merging: Merging,
    missing: Callable[[Want], ByteRange | None],
) -> TaskIO:
    """Return the requests of pieces of several tasks of a file that are fetched together: see
    `predict_task`."""
    prediction = _Prediction(set(have_dictionary), merging, missing)
    prediction.trips = prediction.take(pieces)
    for task, piece in pieces:
        prediction.take_late(task, piece)
    return prediction.io()


class _Prediction:
    """The prediction so far."""

    def __init__(
        self, cached: set[ReadKey], merging: Merging, missing: Callable[[Want], ByteRange | None]
    ) -> None:
        self._cached, self._merging, self._missing = cached, merging, missing
        self._requests = self._bytes = self.trips = 0
        self._late: dict[ReadKey, int] = {}

    def take(self, pieces: Iterable[tuple[ScanTask, Piece]]) -> int:
        """Add the requests of pieces that are fetched at once; return the round trips that they take: one or
        none."""
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
    """Return the parts of a piece that are fetched together: whole chunks that are cut after fetching come
    first."""
    if not task.cut_when_read:
        return (piece,)
    whole = tuple(part for part in piece.leaves if part.reads.whole)
    paged = tuple(part for part in piece.leaves if not part.reads.whole)
    return replace(piece, leaves=whole), replace(piece, leaves=paged)


def _phases(piece: Piece) -> tuple[Piece, ...]:
    """Return both phases, the second as if a row of every page matched."""
    if piece.rows.count == piece.certain.count:
        return (piece,)
    return filter_phase(piece), output_phase(piece, piece.rows, is_carried=lambda leaf, ordinal: True)


@dataclass(slots=True, kw_only=True)
class Explain:
    """The explanation of a plan: print it, or ask `requests`, `round_trips` and `bytes`, each by level.

    Planning reads metadata for real, so those levels are measured; `data` is predicted from what the plan
    names, by the code that will make the requests. A prediction equals the fact unless a step depends on
    what an earlier one finds: then `notes` say so, with a bound.
    """

    source: str
    """The source, without credentials."""
    where: str | None
    """As SQL, cut where it is long."""
    columns: Sequence[str]
    """The columns of the result."""
    files: tuple[int, int]
    """Remaining and all files."""
    catalog: tuple[int, int] | None = None
    """Files that an index outside the files knows in their current version: those that it left, and all; None
    without an index."""
    catalog_dropped: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """What each table of that index ruled out, as `Metrics.catalog_dropped` counts it."""
    table: TableFacts | None = None
    """What was read of a table, and what it said of its files; None where the source is none."""
    row_groups: tuple[int, int]
    """Remaining and all row groups of the files that were opened."""
    pages: tuple[int, int]
    """Remaining and all pages of the columns that are read, in the row groups that remain, without chunks
    that are read whole."""
    rows: tuple[int, int]
    """Rows that may match, and all rows of the files that were opened."""
    rows_certain: int
    """Rows that match for certain before they are read, by statistics or an index."""
    rows_from_metadata: int = 0
    """Rows that an aggregate counts without reading them."""
    distinct_units: Mapping[str, int] = field(default_factory=dict)
    """Files, row groups and pages whose distinct values come from metadata, by where they come from, and
    those to read."""
    levels: tuple[RequestLevel, ...]
    """The steps in their order: "listing", "log" of a table, "catalog" where there is one, "metadata",
    "indexes", "data"."""
    notes: tuple[str, ...] = ()
    """The conditions of the prediction, and the decisions that an estimate made."""
    skipped: Mapping[str, str] = field(default_factory=dict)
    """With `on_error="skip"`, the files that planning left out, and why."""
    order: OrderedReads | None = None
    """For `order_by` with a limit, the order of reading: `files` that are opened before rows are read, and
    all; what is read `first`, each with its file, row group, rows and bound; how many pages and row groups
    may follow (`left_parts`); and what is known of all rows of the result (`bound`)."""
    analyzed: Mapping[str, object] | None = None
    """The counts of a real run, for `explain(analyze=True)`."""
    maps: tuple[FileMap, ...] = field(default=(), compare=False)
    """What becomes of the pages of the first files that are read, for `to_html`."""

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
        if self.table is not None:
            lines += _table_lines(self.table)
        lines.append("pruning    kept of total")
        if self.catalog is not None:
            remaining, total = self.catalog
            lines.append(f"  {'catalog':<11}{remaining:>14,} of {total:,}")
            lines += [
                f"    {table} dropped {_counted(counts)}" for table, counts in self.catalog_dropped.items()
            ]
        for name, (remaining, total) in (
            ("files", self.files),
            ("row groups", self.row_groups),
            ("pages", self.pages),
            ("rows", self.rows),
        ):
            lines.append(f"  {name:<11}{remaining:>14,} of {total:,}")
        if self.rows_certain and self.where is not None:
            lines.append(f"  {'':<11}{self.rows_certain:>14,} rows proved to match without being read")
        if self.rows_from_metadata:
            lines.append(f"  {'':<11}{self.rows_from_metadata:>14,} rows answered from metadata")
        if self.distinct_units:
            shown = ", ".join(f"{number:,} {unit}" for unit, number in self.distinct_units.items())
            lines.append(f"distinct   {shown}")
        if self.order is not None:
            lines += self.order.lines()
        lines.append(f"requests   {'count':>7} {'trips':>6} {'bytes':>14}")
        for level in self.levels:
            kind = "" if level.measured else "  (predicted)"
            lines.append(
                f"  {level.name:<9}{level.requests:>7,} {level.round_trips:>6} {level.bytes:>14,}{kind}"
            )
        lines += [f"  note: {note}" for note in self.notes]
        lines += [f"  left out: {reason}" for reason in self.skipped.values()]
        if self.analyzed is not None:
            lines.append("run        what happened")
            lines += [f"  {name:<18}{value}" for name, value in self.analyzed.items()]
        return "\n".join(lines)

    __repr__ = __str__

    def to_html(self) -> str:
        """Return the explanation as an HTML file of its own: what is read and ruled out, with a picture of
        each of the first files, page by page.

        Returns
        -------
        str
            The file: it needs no other, and no network.

        Examples
        --------
        >>> import accel
        >>> text = accel.scan("flights/", where="month = 1 AND day = 5").explain().to_html()
        >>> text.startswith("<!doctype html>")
        True
        """
        from accel.pictures.document import page

        return page(f"What a scan of {self.source} reads", *self._pictures())

    def _pictures(self) -> Iterator[str]:
        """Yield the parts of the explanation as HTML."""
        from accel.pictures.document import facts_table, preformatted
        from accel.pictures.file_map import draw_file, draw_legend

        if self.where is not None:
            yield preformatted(f"where {self.where}")
        kept = (
            ("files", self.files),
            ("row groups", self.row_groups),
            ("pages", self.pages),
            ("rows", self.rows),
        )
        yield facts_table(("level", "kept", "of"), ((name, *counts) for name, counts in kept))
        if self.order is not None:
            yield preformatted("\n".join(self.order.lines()))
        if self.maps:
            yield "<h2>Pages, by file and column</h2>"
            yield draw_legend(self.maps)
            if self.order is not None:
                yield '<p class="accel-note">All that may be read is drawn as read: see the order above.</p>'
            yield from map(draw_file, self.maps)
            left = self.files[0] - len(self.maps)
            if left > 0:
                yield f'<p class="accel-note">and {left:,} more files</p>'
        yield "<h2>In words</h2>"
        yield preformatted(str(self))

    def _repr_html_(self) -> str:
        """Show the explanation in a notebook."""
        from accel.pictures.document import fragment

        return fragment(*self._pictures())


def _table_lines(table: TableFacts) -> list[str]:
    """Return what an explanation says of a table."""
    out = [f"table      {table.format}, version {table.version}, {table.files:,} files"]
    excluded = (("partition", table.excluded_by_partition), ("bounds", table.excluded_by_bounds))
    out += [f"  {count:,} files ruled out by {by}" for by, count in excluded if count]
    if table.deleted_rows:
        out.append(f"  {table.deleted_rows:,} deleted rows in the files that were planned")
    out.append(f"  {table.log_requests:,} requests for what the table says")
    return out


def _counted(counts: Mapping[str, int]) -> str:
    """Return the counts of a table of an index that are not 0, as text."""
    names = ("files", "row_groups", "pages", "rows")
    some = [f"{counts[name]:,} {name.replace('_', ' ')}" for name in names if counts.get(name)]
    return ", ".join(some) or "nothing"


_TASKS_PER_BATCH = 256
BATCH_BYTES = 256 << 20
"""A column of a batch holds 2 GiB at most, and a long predicate is in every row."""


class Plan:
    """The tasks of a scan, in order.

    It pickles, and `to_arrow` gives it as a table with one row a task (`from_arrow` reads that back).
    Iterating gives the same rows as record batches, which is what `mapInArrow` takes. Scan it by
    `accel.scan(plan)`; `where`, `columns`, `selection`, `schema`, `embedded` and `partitioning` are part of
    it and cannot be given again.
    """

    def __init__(
        self,
        tasks: Sequence[ScanTask],
        *,
        schema: pa.Schema,
        explained: Explain | Callable[[], Explain] | None = None,
        metrics: Metrics | None = None,
    ) -> None:
        self.tasks: tuple[ScanTask, ...] = tuple(tasks)
        self.metrics = Metrics() if metrics is None else metrics
        """The counts of its planning; of a plan that was read back there are none."""
        strange = set(map(type, self.tasks)) - {ScanTask}
        if strange:
            raise TypeError(f"a plan is made of tasks, not of a {strange.pop().__name__}")
        self.schema = schema
        self._explained = explained

    @classmethod
    def from_arrow(cls, data: pa.Table | pa.RecordBatch) -> Plan:
        """Read a plan back from what `to_arrow` returned.

        Parameters
        ----------
        data : pyarrow.Table or pyarrow.RecordBatch
            The tasks, one per row.

        Returns
        -------
        Plan
            The plan, without its explanation.

        Raises
        ------
        AccelError
            The rows are no tasks of this version.
        TypeError
            This is no table or record batch.
        """
        from accel.planning.task_arrow import decode_tasks

        if not isinstance(data, pa.Table | pa.RecordBatch):
            raise TypeError(f"tasks come as a pyarrow.Table or RecordBatch, not as a {type(data).__name__}")

        batches = [data] if isinstance(data, pa.RecordBatch) else data.to_batches()
        tasks = [task for batch in batches for task in decode_tasks(batch)]
        schema = tasks[0].file.question.output if tasks else pa.schema([])
        metadata = data.schema.metadata or {}
        if not tasks and b"accel.schema" in metadata:
            schema = pa.ipc.read_schema(pa.py_buffer(metadata[b"accel.schema"]))
        return cls(tasks, schema=schema)

    def to_arrow(self) -> pa.Table:
        """Convert the plan to Arrow.

        Returns
        -------
        pyarrow.Table
            One row per task, with the columns of `accel.spark.TASK_SCHEMA`.
        """
        from accel.planning.task_arrow import TASK_ARROW_SCHEMA

        schema = TASK_ARROW_SCHEMA.with_metadata({"accel.schema": self.schema.serialize().to_pybytes()})
        return pa.Table.from_batches([b.replace_schema_metadata(schema.metadata) for b in self], schema)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        from accel.planning.task_arrow import encode_batches

        if not self.tasks:
            # Consumers take the columns from the first batch.
            yield _no_tasks()
        yield from encode_batches(self.tasks, most_rows=_TASKS_PER_BATCH, most_bytes=BATCH_BYTES)

    def __len__(self) -> int:
        return len(self.tasks)

    def __repr__(self) -> str:
        rows = sum(task.rows.count for task in self.tasks)
        return f"Plan({len(self.tasks)} tasks, {rows} rows)"

    def _repr_html_(self) -> str:
        """Show what would be read, in a notebook."""
        if self._explained is None:
            from accel.pictures.document import fragment, preformatted

            return fragment(preformatted(repr(self)))
        return self.explain()._repr_html_()

    def __getstate__(self) -> dict[str, object]:
        explained = None if self._explained is None else self.explain()
        return {"table": self.to_arrow(), "explained": explained}

    def __setstate__(self, state: dict[str, object]) -> None:
        other = Plan.from_arrow(state["table"])
        self.tasks, self.schema, self.metrics = other.tasks, other.schema, other.metrics
        explained = state["explained"]
        self._explained = explained if isinstance(explained, Explain) else None

    def explain(self) -> Explain:
        """Explain what planning did, and what scanning the plan would request when this is first called.

        Returns
        -------
        Explain
            The explanation.

        Raises
        ------
        AccelError
            The plan was read back from Arrow, which does not tell.
        """
        if self._explained is None:
            raise AccelError(
                "a plan read back from Arrow does not know how it came about",
                hint="explain the scan, or accel.scan(plan)",
            )
        if callable(self._explained):
            self._explained = self._explained()
        return self._explained

    @property
    def question(self) -> Question | None:
        """The question that all of its tasks share; None for a plan without tasks."""
        return self.tasks[0].file.question if self.tasks else None


def _no_tasks() -> pa.RecordBatch:
    from accel.planning.task_arrow import TASK_ARROW_SCHEMA

    columns = [pa.nulls(0, field.type) for field in TASK_ARROW_SCHEMA]
    return pa.RecordBatch.from_arrays(columns, schema=TASK_ARROW_SCHEMA)
