"""Explains a planning: makes an `Explain` of its counts and of the requests that its tasks will take."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from accel.metrics import Metrics
from accel.planning.file_entry import FileBlock
from accel.planning.file_planner import FilePlan
from accel.planning.pages import PieceSize
from accel.planning.plan import Explain, RequestLevel, TaskIO, predict_pieces, predict_task
from accel.planning.query import Question
from accel.planning.task import ScanTask
from accel.predicate.expr import Expr
from accel.ranges import ByteRange, Kind, ReadKey, Want
from accel.reader.admission import Budget
from accel.reader.piece_reads import Neighbours, join_neighbours
from accel.reader.reader import Reader
from accel.reader.task_reads import TaskReads
from accel.scanning.resolved_source import ResolvedSource

if TYPE_CHECKING:
    from accel.pictures.file_map import FileMap

__all__ = ["explain_plans"]

# Files of which a picture is made.
_MOST_DRAWN = 6
# Characters of a predicate that are shown.
_MOST_SHOWN = 400
_EARLY = (
    "the source was listed before: a scan reads the files of that listing while it lists anew, one round "
    "trip less, and reads again what it holds now where that differs"
)
_STALE = (
    "{:,} files are read as if there were no index: it does not know them, or knows them in another version"
)
_CATALOG = (Kind.CATALOG,)
_LOG = (Kind.TABLE,)
_LISTING = (Kind.LISTING, Kind.HEAD)
_METADATA = (Kind.TAIL, Kind.FOOTER, Kind.REVALIDATE)
# Planning reads no data: the dictionaries that it asks for say which row groups have a value.
_INDEXES = (Kind.OFFSET_INDEX, Kind.COLUMN_INDEX, Kind.BLOOM, Kind.INDEX, Kind.DICTIONARY)


def explain_plans(
    resolved: ResolvedSource,
    plans: Sequence[FilePlan],
    *,
    question: Question,
    source: str,
    block: FileBlock,
    forgets: bool,
) -> Callable[[], Explain]:
    """Return a function that makes the Explain of this planning, with a prediction of the requests for its
    tasks.

    The prediction is made when the function is called, as few callers want it. The function does not keep the
    resolved source alive. With `forgets` no cache keeps the footers, so a run reads them again.
    """
    metrics, counts, reader = resolved.reader.metrics, resolved.counts, resolved.reader
    known = metrics.catalog
    used = bool(known.total or metrics.catalog_stale)
    trips = block.round_trips - block.catalog_trips
    listed = min(trips, 1) if metrics.requests_by_kind.get(Kind.LISTING) else 0
    measured = (
        _level("listing", metrics, _LISTING, trips if metrics.table is None else listed),
        *(() if metrics.table is None else (_level("log", metrics, _LOG, trips - listed),)),
        *((_level("catalog", metrics, _CATALOG, block.catalog_trips),) if used else ()),
        _level("metadata", metrics, _METADATA, counts.opening_trips),
        _level("indexes", metrics, _INDEXES, counts.index_trips),
    )
    files = counts.files_kept, resolved.num_files + known.total - known.kept
    # The first rows of an order may be in any file.
    limit = None if resolved.spec.order_by else resolved.spec.limit
    dropped = {table: dict(counts) for table, counts in metrics.catalog_dropped.items()}
    answered, stale = ((known.kept, known.total) if used else None), metrics.catalog_stale
    early = resolved.expects
    drawn = _drawn(plans)
    facts = None if metrics.table is None else replace(metrics.table)

    def explain() -> Explain:
        data = [io for plan in plans for io in _predicted(reader, plan.tasks, limit=limit)]
        predicted = RequestLevel(
            name="data",
            requests=sum(io.requests for io in data),
            round_trips=max((io.round_trips for io in data), default=0),
            bytes=sum(io.bytes for io in data),
            measured=False,
        )
        return Explain(
            source=source,
            where=None if question.where is None else _sql(question.where),
            columns=tuple(question.output.names),
            files=files,
            catalog=answered,
            table=facts,
            catalog_dropped=dropped,
            row_groups=_sums(plans, "row_groups_kept", "row_groups"),
            pages=_sums(plans, "pages_kept", "pages"),
            rows=_sums(plans, "rows_kept", "rows"),
            rows_certain=sum(plan.rows_certain for plan in plans),
            maps=tuple(file for plan in drawn if (file := _map(reader, plan, limit)) is not None),
            levels=(*measured, predicted),
            notes=(
                *((_EARLY,) if early else ()),
                *((_STALE.format(stale),) if stale else ()),
                *(_with_footers(reader, plans, data, limit) if forgets else ()),
                *_notes(reader, plans, data, limit),
            ),
        )

    return explain


def _drawn(plans: Sequence[FilePlan]) -> list[FilePlan]:
    """Return the plans of which pictures are made, and drop what only pictures need of the others: it holds
    the metadata of their files."""
    read = [plan for plan in plans if plan.tasks]
    drawn = (read or list(plans))[:_MOST_DRAWN]
    kept = set(map(id, drawn))
    for plan in plans:
        if id(plan) not in kept:
            plan.draft, plan.drafted = None, {}
    return drawn


def _map(reader: Reader, plan: FilePlan, limit: int | None) -> FileMap | None:
    from accel.planning.page_fates import map_file

    concurrent = _concurrent(plan.tasks, limit)
    return map_file(plan, is_late=lambda task: reader.forecast(task, concurrent=concurrent) is not None)


def _with_footers(
    reader: Reader, plans: Sequence[FilePlan], data: Sequence[TaskIO], limit: int | None
) -> Iterator[str]:
    """Note the bytes of data that come with the footers, for a run that has to read these again."""
    near = [plan for plan in plans if plan.tasks and reader.came_along_from(plan.tasks[0]) is not None]
    if not near:
        return
    predicted = sum(io.bytes for plan in near for io in _predicted(reader, plan.tasks, limit=limit))
    rest = sum(io.bytes for plan in near for io in _predicted(reader, plan.tasks, limit=limit, opens=True))
    if rest < predicted:
        yield (
            f"{predicted - rest:,} bytes of the data level come with the footers where a scan reads these "
            "itself, as it does without a cache: then it asks for "
            f"{sum(io.bytes for io in data) - predicted + rest:,}"
        )


def _notes(
    reader: Reader, plans: Sequence[FilePlan], data: Sequence[TaskIO], limit: int | None
) -> Iterator[str]:
    late = sum(io.late_dictionaries for io in data)
    if late:
        yield (
            f"up to {late} dictionary pages ({sum(io.late_bytes for io in data):,} bytes) in one more round "
            "trip, if a page turns out to need one that the footer says it does not"
        )
    whole = sum(plan.chunks_whole for plan in plans)
    if whole:
        yield f"{whole} column chunks are read whole: the file has no usable offset index for them"
    yield from _selectivity(reader, plans, limit)
    if limit is not None:
        yield (
            f"limit {limit}: reading stops when that many rows have come; "
            "it asks for no more bytes than the data level tells"
        )


def _selectivity(reader: Reader, plans: Sequence[FilePlan], limit: int | None) -> Iterator[str]:
    """Note how many rows the filters are expected to leave, and how tasks are read for that."""
    guessed = [(task, _concurrent(plan.tasks, limit)) for plan in plans for task in plan.guessed]
    if not guessed:
        return
    doubtful = sum(task.rows.count - task.certain.count for task, _ in guessed)
    expected = sum((task.rows.count - task.certain.count) * task.share for task, _ in guessed)
    by = "sketches" if all(plan.sketched for plan in plans if plan.guessed) else "statistics"
    expectation = f"about {expected:,.0f} of {doubtful:,} undecided rows are expected to match (by {by}): "
    found = [reader.forecast(task, concurrent=concurrent) for task, concurrent in guessed]
    late = [forecast for forecast in found if forecast is not None]
    if not late:
        yield expectation + "all columns are read at once, a second round trip would save less than it costs"
        return
    yield expectation + (
        f"{len(late)} of {len(guessed)} tasks read the filter's columns first "
        f"({sum(f.first_bytes for f in late):,} bytes), then the others where rows match "
        f"(about {sum(f.expected_bytes for f in late):,} of {sum(f.late_bytes for f in late):,} bytes); "
        "it asks for no more bytes than the data level tells, in more requests where matching pages lie apart"
    )


def _predicted(
    reader: Reader, tasks: Sequence[ScanTask], *, limit: int | None, opens: bool = False
) -> Iterator[TaskIO]:
    """Predict the requests for the tasks of a file, put together as a run does; with `opens` it opens the
    file, too."""
    concurrent, size = _concurrent(tasks, limit), PieceSize.under(reader.options, limit=limit)
    if concurrent < 2:
        budget = Budget(limit)
        for task in tasks:
            if budget.spent:
                break
            yield _predict(reader, budget.cut(task), size=size, concurrent=concurrent, opens=opens)
        return
    for one in join_neighbours(reader, tasks, concurrent=concurrent, size=size):
        if isinstance(one, Neighbours):
            first, *_ = one.each
            yield predict_pieces(
                [(each.task, each.piece) for each in one.each],
                have_dictionary={key for each in one.each for key in _dictionaries(each.task, each.reads)},
                merging=reader.merging(first.task, None, concurrent=concurrent),
                missing=_missing(reader, first.reads, opens=opens),
            )
        else:
            yield _predict(reader, one, size=size, concurrent=concurrent, opens=opens)


def _concurrent(tasks: Sequence[ScanTask], limit: int | None) -> int:
    """Return how many tasks of a file are read at once: with a limit one, as the first may be enough."""
    return len(tasks) if limit is None else 1


def _dictionaries(task: ScanTask, reads: TaskReads) -> set[ReadKey]:
    """Return the keys of the dictionary pages that are cached."""
    keys = (ReadKey(Kind.DICTIONARY, task.row_group, leaf.column) for leaf in task.reads)
    return {key for key in keys if reads.has_dictionary(key)}


def _missing(reader: Reader, reads: TaskReads, *, opens: bool) -> Callable[[Want], ByteRange | None]:
    """Return the part of a want to request, where a run that `opens` the file has its end in memory."""
    start = reader.came_along_from(reads.task) if opens else None
    if start is None:
        return reads.missing

    def missing(want: Want) -> ByteRange | None:
        rest = reads.missing(want)
        if rest is None or rest.end <= start:
            return rest
        return ByteRange(rest.start, start) if rest.start < start else None

    return missing


def _predict(reader: Reader, task: ScanTask, *, size: PieceSize, concurrent: int, opens: bool) -> TaskIO:
    reads = reader.reads(task, concurrent=concurrent)
    return predict_task(
        task,
        have_dictionary=_dictionaries(task, reads),
        size=size,
        merging=reader.merging(task, reader.forecast(task, concurrent=concurrent), concurrent=concurrent),
        missing=_missing(reader, reads, opens=opens),
        two_phases=reads.two_phases,
    )


def _level(name: str, metrics: Metrics, kinds: Sequence[Kind], round_trips: int) -> RequestLevel:
    return RequestLevel(
        name=name,
        requests=sum(metrics.requests_by_kind.get(kind, 0) for kind in kinds),
        round_trips=round_trips,
        bytes=sum(metrics.bytes_by_kind.get(kind, 0) for kind in kinds),
        measured=True,
    )


def _sums(plans: Sequence[FilePlan], remaining: str, total: str) -> tuple[int, int]:
    return sum(getattr(p, remaining) for p in plans), sum(getattr(p, total) for p in plans)


def _sql(where: Expr) -> str:
    from accel.predicate.sql import to_sql

    # So many values fill it; printing a million would cost seconds of the loop.
    text = to_sql(where, max_values=_MOST_SHOWN)
    return text if len(text) <= _MOST_SHOWN else f"{text[: _MOST_SHOWN - 3]}..."
