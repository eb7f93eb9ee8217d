"""From an opened file and a question to scan tasks: one wave of page indexes at most, often none."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from accel.errors import AccelError, EncryptedFileError, IndexFormatError, ParquetFormatError
from accel.format.model import Codec
from accel.format.page_index import parse_column_index, parse_offset_index
from accel.planning.handle import FileHandle
from accel.planning.need import Need, Steps, Tail
from accel.planning.pages import LeafReads, leaf_reads
from accel.planning.pruning import PageVerdicts, prunable_leaves, prune_pages, prune_row_groups
from accel.planning.query import FileQuery
from accel.planning.selection import RowSelection
from accel.planning.task import ScanTask, TaskFile
from accel.predicate.evidence import Verdict
from accel.ranges import ByteRange, Kind, ReadKey, Want

__all__ = ["FilePlan", "plan_file"]

_CODECS = frozenset(
    {Codec.UNCOMPRESSED, Codec.SNAPPY, Codec.GZIP, Codec.BROTLI, Codec.LZ4, Codec.ZSTD, Codec.LZ4_RAW}
)


@dataclass(slots=True)
class FilePlan:
    """The tasks of one file, in the order of its row groups, and what pruning did."""

    tasks: list[ScanTask] = field(default_factory=list)
    row_groups: int = 0
    row_groups_kept: int = 0
    pages: int = 0
    pages_kept: int = 0
    rows: int = 0
    rows_kept: int = 0
    rows_sure: int = 0
    index_round_trips: int = 0
    chunks_whole: int = 0
    """Column chunks to be read whole for want of an offset index, although a part may be enough."""
    ignored: list[str] = field(default_factory=list)
    """What did not verify and was passed over."""


def plan_file(
    handle: FileHandle,
    task_file: TaskFile,
    *,
    selection: Mapping[int, RowSelection] | None,
    piece_bytes: int,
    on_bad_index: Callable[[IndexFormatError], None],
) -> Steps[FilePlan]:
    """Prune a file's row groups and pages, and name the pages that the rest needs.

    Parameters
    ----------
    selection : mapping, optional
        The caller's own access plan: rows by row group; row groups not named are not read.
    piece_bytes : int
        Row groups above this get their offset index read even if all rows are wanted, to be cut.
    on_bad_index : callable
        Told of each page index that does not verify; it may raise.
    """
    query = task_file.query
    plan = FilePlan()
    verdicts = prune_row_groups(handle, query)
    kept: list[tuple[int, bool]] = []
    for group in range(handle.metadata.num_row_groups):
        num_rows = int(handle.metadata.group_rows[group])
        plan.row_groups += 1
        plan.rows += num_rows
        wanted = selection is None or bool(selection.get(group))
        if verdicts[group] != Verdict.NONE and wanted and num_rows:
            kept.append((group, verdicts[group] == Verdict.ALL))
    _check_selection(handle, selection)
    plan.row_groups_kept = len(kept)
    wants = _index_wants(handle, query, kept, selection, piece_bytes)
    if wants:
        plan.index_round_trips = yield from _load_indexes(handle, wants, plan, on_bad_index)
    for group, certain in kept:
        num_rows = int(handle.metadata.group_rows[group])
        if certain:
            rows = RowSelection.all(num_rows)
            found = PageVerdicts(rows, rows)
        else:
            found = prune_pages(handle, query, group)
        rows, sure = found.rows, found.sure
        if selection is not None:
            rows, sure = rows.intersect(selection[group]), sure.intersect(selection[group])
        if rows:
            _add_task(plan, handle, task_file, group, rows, sure)
        else:
            plan.row_groups_kept -= 1
    return plan


def _check_selection(handle: FileHandle, selection: Mapping[int, RowSelection] | None) -> None:
    for group, rows in (selection or {}).items():
        groups = handle.metadata.num_row_groups
        if not 0 <= group < groups:
            raise ValueError(f"selection names row group {group}; {handle.id.path} has {groups}")
        if rows and int(rows.stops[-1]) > int(handle.metadata.group_rows[group]):
            raise ValueError(
                f"selection goes to row {int(rows.stops[-1])} of row group {group} of {handle.id.path}, "
                f"which has {int(handle.metadata.group_rows[group])} rows"
            )


def _index_wants(
    handle: FileHandle,
    query: FileQuery,
    kept: Sequence[tuple[int, bool]],
    selection: Mapping[int, RowSelection] | None,
    piece_bytes: int,
) -> list[Want]:
    """The page indexes that planning takes and the handle does not hold yet."""
    if handle.distrusted:
        return []
    chunks = handle.metadata.chunks
    prunable = sorted(set(prunable_leaves(handle, query).values()))
    every = sorted({*query.output_leaves, *query.filter_leaves})
    wants: list[Want] = []
    for group, certain in kept:
        bounded = [leaf for leaf in prunable if chunks.column_index_offset[group, leaf] > 0]
        prune = bool(bounded) and not certain
        leaves = query.output_leaves if certain else every
        partial = selection is not None and selection[group].count < handle.metadata.group_rows[group]
        large = sum(int(chunks.compressed[group, leaf]) for leaf in leaves) > piece_bytes
        if prune:
            for leaf in bounded:
                if (group, leaf) not in handle.column_indexes:
                    wants += _index_want(handle, Kind.COLUMN_INDEX, group, leaf)
        if prune or partial or large:
            for leaf in leaves:
                if (group, leaf) not in handle.offset_indexes:
                    wants += _index_want(handle, Kind.OFFSET_INDEX, group, leaf)
    return wants


def _index_want(handle: FileHandle, kind: Kind, group: int, leaf: int) -> list[Want]:
    chunks = handle.metadata.chunks
    if kind is Kind.COLUMN_INDEX:
        offset, length = chunks.column_index_offset[group, leaf], chunks.column_index_length[group, leaf]
    else:
        offset, length = chunks.offset_index_offset[group, leaf], chunks.offset_index_length[group, leaf]
    if offset <= 0 or length <= 0:
        return []
    return [Want(ReadKey(kind, group, leaf), ByteRange(int(offset), int(offset + length)))]


def _load_indexes(
    handle: FileHandle,
    wants: list[Want],
    plan: FilePlan,
    on_bad_index: Callable[[IndexFormatError], None],
) -> Steps[int]:
    """Parse the wanted indexes from the tail at hand, or from one more round trip."""
    missing = tuple(want for want in wants if handle.in_tail(want.range) is None)
    stash = (yield Need(missing)) if missing else {}
    if isinstance(stash, Tail):
        raise TypeError("ranges were asked for")
    # Offset indexes first: a column index is checked against the number of pages.
    for want in sorted(wants, key=lambda w: w.key.kind != Kind.OFFSET_INDEX):
        data = handle.in_tail(want.range)
        if data is None:
            data = stash[want.key]
        try:
            _parse_index(handle, want.key, data)
        except IndexFormatError as error:
            error.at(path=handle.id.path, place=str(want.key))
            plan.ignored.append(str(error))
            on_bad_index(error)
    return 1 if missing else 0


def _parse_index(handle: FileHandle, key: ReadKey, data: memoryview) -> None:
    group, leaf = key.row_group, key.column
    chunks = handle.metadata.chunks
    if key.kind is Kind.OFFSET_INDEX:
        handle.offset_indexes[group, leaf] = None
        handle.offset_indexes[group, leaf] = parse_offset_index(
            data,
            num_rows=int(handle.metadata.group_rows[group]),
            lower=int(chunks.start[group, leaf]),
            upper=int(chunks.end[group, leaf]),
        )
        return
    handle.column_indexes[group, leaf] = None
    offsets = handle.offset_indexes.get((group, leaf))
    if offsets is not None:
        handle.column_indexes[group, leaf] = parse_column_index(data, num_pages=offsets.num_pages)


def _add_task(
    plan: FilePlan,
    handle: FileHandle,
    task_file: TaskFile,
    group: int,
    rows: RowSelection,
    sure: RowSelection,
) -> None:
    query = task_file.query
    num_rows = int(handle.metadata.group_rows[group])
    maybe = rows.intersect(sure.invert(num_rows)) if sure else rows
    filters = frozenset(query.filter_leaves) if maybe else frozenset()
    outputs = frozenset(query.output_leaves)
    reads: list[LeafReads] = []
    for leaf in sorted(filters | outputs):
        _check_chunk(handle, group, leaf)
        reads.append(
            leaf_reads(
                handle.metadata.chunks,
                handle.offset_indexes.get((group, leaf)),
                rows if leaf in outputs else maybe,
                row_group=group,
                num_rows=num_rows,
                column=leaf,
                leaf=leaf,
                for_filter=leaf in filters,
                for_output=leaf in outputs,
            )
        )
    plan.pages += sum(r.total_pages for r in reads)
    plan.pages_kept += sum(len(r.ordinal) for r in reads)
    if maybe or rows.count < num_rows:
        plan.chunks_whole += sum(r.whole for r in reads)
    plan.rows_kept += rows.count
    plan.rows_sure += sure.count
    plan.tasks.append(ScanTask(task_file, group, num_rows, rows, sure, tuple(reads)))


def _check_chunk(handle: FileHandle, group: int, leaf: int) -> None:
    """Refuse what no page of can be read, before anything is asked for."""
    chunks = handle.metadata.chunks
    at = (group, leaf)
    error: AccelError | None = None
    if chunks.encrypted[at]:
        error = EncryptedFileError("the column is encrypted", hint="accel reads no encrypted columns")
    elif chunks.external[at]:
        error = ParquetFormatError("the column's data lives in another file (file_path is set)")
    elif int(chunks.codec[at]) not in _CODECS:
        error = ParquetFormatError(f"compression codec {int(chunks.codec[at])} is not supported")
    elif chunks.start[at] < 4 or chunks.end[at] <= chunks.start[at]:
        error = ParquetFormatError("the column chunk has no bytes")
    if error is not None:
        name = ".".join(handle.metadata.schema.leaves[leaf].path)
        raise error.at(path=handle.id.path, place=f"row group {group}, column {name}")
