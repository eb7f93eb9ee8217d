"""From an opened file and a question to scan tasks: one wave of indexes at most, often none."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from accel.errors import (
    AccelError,
    EncryptedFileError,
    IndexFormatError,
    ParquetFormatError,
    redact,
    refuse_unforeseen,
)
from accel.planning.handle import FileHandle
from accel.planning.index_evidence import Witnesses
from accel.planning.index_lookup import Probes, find_embedded
from accel.planning.page_indexes import (
    fetch_page_indexes,
    page_index_wants,
    take_page_indexes,
)
from accel.planning.pages import READABLE_CODECS, LeafReads, PagesOf
from accel.planning.pruning import KeptGroups, prune_pages, prune_row_groups
from accel.planning.query import FileQuery
from accel.planning.read_request import Need, OnBadIndex, Steps
from accel.planning.selection import RowSelection
from accel.planning.selectivity import Guesses, guess_shares
from accel.planning.task import ScanTask, TaskFile
from accel.predicate.evidence import Verdict

if TYPE_CHECKING:
    from accel.planning.index_lookup import ReadDictionary
    from accel.planning.remembered import Evaluation

__all__ = ["FilePlan", "plan_file"]

# Column chunks whose pages are looked for in one go: some milliseconds.
_AT_ONCE = 300


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
    remembered_groups: int = 0
    """Row groups of which is known from before which of their rows match."""
    probed_groups: int = 0
    """Row groups that a bloom filter or a dictionary excluded."""
    guessed: list[ScanTask] = field(default_factory=list)
    """Tasks whose share of matching rows was guessed, since it may decide how they are read."""
    sketched: bool = False
    """Embedded sketches had a say in that."""

    def take(self, guesses: Guesses, handle: FileHandle) -> None:
        """Take in the tasks of a file, and how selective its filter was guessed to be."""
        self.guessed, self.sketched = guesses.guessed, guesses.sketched
        for task in guesses.tasks:
            self.add(task, handle)

    def count_remembered(
        self, known: Collection[int], kept: KeptGroups, drafts: Mapping[int, ScanTask]
    ) -> None:
        """Count the row groups that were in doubt, and are no more."""
        if not known:
            return
        left = {group for group, task in drafts.items() if task.needs_filter}
        self.remembered_groups = sum(
            not sure and group in known and group not in left for group, sure in kept
        )

    def add(self, task: ScanTask, handle: FileHandle) -> None:
        """Count a task of a file in."""
        self.row_groups_kept += 1
        for reads in task.reads:
            self.pages += reads.total_pages
            self.pages_kept += len(reads.ordinal)
        if task.needs_filter or task.rows.count < task.num_rows:
            group = task.row_group
            self.chunks_whole += sum(
                r.whole and not handle.has_offset_index(group, r.column) for r in task.reads
            )
        self.rows_kept += task.rows.count
        self.rows_sure += task.sure.count
        self.tasks.append(task)


def plan_file(
    handle: FileHandle,
    task_file: TaskFile,
    *,
    selection: Mapping[int, RowSelection] | None,
    limit: int | None = None,
    piece_bytes: int,
    probe_min_bytes: int,
    early_bytes: int = 0,
    whole_bytes: int = 0,
    read_dictionary: ReadDictionary,
    on_bad_index: OnBadIndex,
) -> Steps[FilePlan]:
    """Prune a file's row groups and pages, and name the pages that the rest needs.

    Parameters
    ----------
    selection : mapping, optional
        The caller's own access plan: rows by row group; row groups not named are not read.
    limit : int, optional
        No more rows than this will be taken.
    piece_bytes : int
        Row groups above this get their offset index read even if all rows are wanted, to be cut.
    probe_min_bytes : int
        Bloom filters and dictionaries are asked for when what they may save is more.
    early_bytes : int
        All page indexes may come with the first few that a file lacks, where they are no more: see
        `fetch_page_indexes`.
    whole_bytes : int
        Chunks that come to no more, all together, are read whole: they hold hardly more than a page each, and to
        learn which is wanted would take a round trip.
    read_dictionary : callable
        Decodes a dictionary page.
    on_bad_index : callable
        Told of each index that does not verify; it may raise.
    """
    _check_selection(handle, task_file, selection)
    with refuse_unforeseen("metadata"):
        query = task_file.query
        _tell_misplaced(handle, query, on_bad_index)
        plan = FilePlan(row_groups=handle.num_row_groups, rows=handle.num_rows)
        kept = _kept_groups(handle, query, selection)
        if not kept and handle.bad_toc is None and not task_file.question.embedded:
            return plan  # no index is left to be asked, or to be told of
        embedded = find_embedded(handle, query, named=task_file.question.embedded, on_bad_index=on_bad_index)
        wants = page_index_wants(
            handle,
            query,
            kept=kept,
            selection=selection,
            piece_bytes=piece_bytes,
            limit=limit,
            pages_indexed=embedded is not None and embedded.by_page,
            answered=embedded.answered(query) if embedded is not None else (),
            whole_bytes=whole_bytes,
        )
        probes = Probes(
            handle,
            query,
            embedded=embedded,
            probe_min_bytes=probe_min_bytes,
            read_dictionary=read_dictionary,
            on_bad_index=on_bad_index,
        )
        witnesses = Witnesses()
        known = _recall(handle, task_file)
        draft = partial(_draft, handle, task_file, selection=selection, witnesses=witnesses, known=known)
        if wants:
            along = probes.along(wants, kept, draft, early_bytes)
            stash, plan.index_round_trips = yield from fetch_page_indexes(
                handle, wants, early_bytes=early_bytes, along=along
            )
            take_page_indexes(handle, wants, stash=stash, on_bad_index=on_bad_index)
            probes.learn(stash)
        if handle.bad_toc is not None and query.bound is not None:
            on_bad_index(handle.bad_toc)
        drafts = yield from _in_turns(draft, kept, leaves=len(query.output_leaves) + len(query.filter_leaves))
        in_doubt = {group: task for group, task in drafts.items() if task.needs_filter}
        if in_doubt:
            plan.index_round_trips += yield from probes.ask(in_doubt, witnesses)
            told = [group for group in in_doubt if witnesses.speaks_of(group)]
            if told:
                again = draft([(group, False) for group in told])
                plan.probed_groups += len(told) - len(again)
                gone = set(told) - again.keys()
                drafts = {
                    group: again.get(group, task) for group, task in drafts.items() if group not in gone
                }
        plan.count_remembered(known, kept, drafts)
        for group, task in drafts.items():
            _check_chunks(handle, group, task)
        plan.take(guess_shares(handle, query, tasks=list(drafts.values()), on_bad_index=on_bad_index), handle)
        return plan


def _kept_groups(
    handle: FileHandle, query: FileQuery, selection: Mapping[int, RowSelection] | None
) -> KeptGroups:
    """The row groups that statistics and the caller's access plan leave, and whether all rows of each match."""
    return [
        (group, verdict == Verdict.ALL)
        for group, verdict in enumerate(prune_row_groups(handle, query).tolist())
        if verdict != Verdict.NONE and (selection is None or selection.get(group))
    ]


def _tell_misplaced(handle: FileHandle, query: FileQuery, on_bad_index: OnBadIndex) -> None:
    """Tell of the indexes of the query's columns that the footer places outside the file: they are not asked."""
    metadata = handle.metadata
    for words, group, leaf in metadata.misplaced_indexes({*query.filter_leaves, *query.output_leaves}):
        on_bad_index(
            IndexFormatError(
                f"the footer places the {words} outside the file, which has {metadata.file_size} bytes",
                path=handle.id.path,
                place=f"row group {group}, column {'.'.join(metadata.schema.leaves[leaf].path)}",
            )
        )


def _check_selection(
    handle: FileHandle, task_file: TaskFile, selection: Mapping[int, RowSelection] | None
) -> None:
    name = redact(task_file.url)
    for group, rows in (selection or {}).items():
        groups = handle.metadata.num_row_groups
        if not 0 <= group < groups:
            raise ValueError(f"selection names row group {group}; {name} has {groups}")
        if rows and int(rows.stops[-1]) > int(handle.metadata.group_rows[group]):
            raise ValueError(
                f"selection goes to row {int(rows.stops[-1])} of row group {group} of {name}, "
                f"which has {int(handle.metadata.group_rows[group])} rows"
            )


def _recall(handle: FileHandle, task_file: TaskFile) -> Mapping[int, Evaluation]:
    """By row group: what earlier scans have found this very predicate to select."""
    remembered = handle.remembered
    if remembered is None:
        return {}
    from accel.planning.question_keys import predicate_key

    pickled = task_file.question.compiled.pickled
    return remembered.under(predicate_key(task_file.query, task_file.int96_unit, pickled=pickled))


def _in_turns(
    draft: Callable[[KeptGroups], dict[int, ScanTask]],
    kept: KeptGroups,
    *,
    leaves: int,
) -> Steps[dict[int, ScanTask]]:
    """The drafts of all row groups, some at a time: whoever drives this has other things to do."""
    drafts: dict[int, ScanTask] = {}
    at_once = max(1, _AT_ONCE // max(1, leaves))
    for start in range(0, len(kept), at_once):
        if start:
            yield Need(())
        drafts |= draft(kept[start : start + at_once])
    return drafts


def _draft(
    handle: FileHandle,
    task_file: TaskFile,
    kept: KeptGroups,
    *,
    selection: Mapping[int, RowSelection] | None,
    witnesses: Witnesses,
    known: Mapping[int, Evaluation],
) -> dict[int, ScanTask]:
    """The tasks of some row groups, as far as is known by now; none where no row of it can match."""
    query = task_file.query
    group_rows = handle.metadata.group_rows
    doubtful = [group for group, certain in kept if not certain]
    pages = dict(zip(doubtful, prune_pages(handle, query, groups=doubtful, witnesses=witnesses), strict=True))
    drafts = {}
    for group, certain in kept:
        num_rows = int(group_rows[group])
        if certain:
            rows = sure = RowSelection.all(num_rows)
        else:
            rows, sure = pages[group].rows, pages[group].sure
        if selection is not None:
            rows, sure = rows.intersect(selection[group]), sure.intersect(selection[group])
        if group in known and rows:
            settled = known[group].settle(rows, sure, num_rows)
            rows, sure = (rows, sure) if settled is None else (settled, settled)
        if rows:
            reads = _read_leaves(handle, query, group, rows, rows.without(sure, num_rows))
            drafts[group] = ScanTask(task_file, group, num_rows, rows, sure, reads)
    return drafts


def _read_leaves(
    handle: FileHandle, query: FileQuery, group: int, rows: RowSelection, maybe: RowSelection
) -> tuple[LeafReads, ...]:
    """The pages of one row group that hold these rows; of the predicate's columns, of those that it may match."""
    filters = frozenset(query.filter_leaves) if maybe else frozenset[int]()
    outputs = frozenset(query.output_leaves)
    view = handle.view
    num_rows = view.metadata.group_rows.item(group)
    wanted = PagesOf(rows, num_rows)
    doubtful = wanted if maybe is rows else PagesOf(maybe, num_rows)
    chunks, readable, indexes = view.metadata.chunks, view.readable, view.offset_indexes
    leaves = view.metadata.schema.leaves
    reads = []
    for leaf in sorted(filters | outputs):
        at = (group, leaf)
        if at not in readable and chunks.end[at] <= chunks.start[at]:
            _check_chunk(handle, group, leaf)
        for_filter, for_output = leaf in filters, leaf in outputs
        pages, index = wanted if for_output else doubtful, indexes.get(at)
        known = view.all_pages.get((group, leaf, for_filter, for_output)) if pages.all_rows else None
        if known is None or index is None or known.offset is not index.offset:
            known = pages.reads(
                view.chunk_facts(group, leaf),
                index,
                leaf,
                for_filter=for_filter,
                for_output=for_output,
                max_repetition=leaves[leaf].max_repetition,
            )
            if pages.all_rows and index is not None:
                view.all_pages[group, leaf, for_filter, for_output] = known
        reads.append(known)
    return tuple(reads)


def _check_chunks(handle: FileHandle, group: int, task: ScanTask) -> None:
    readable = handle.readable
    for reads in task.reads:
        if (group, reads.column) not in readable:
            _check_chunk(handle, group, reads.column)
            readable[group, reads.column] = True


def _check_chunk(handle: FileHandle, group: int, leaf: int) -> None:
    """Refuse what no page of can be read, before anything of it is asked for."""
    chunks = handle.metadata.chunks
    at = (group, leaf)
    error: AccelError | None = None
    if chunks.encrypted[at]:
        error = EncryptedFileError("the column is encrypted", hint="accel reads no encrypted columns")
    elif chunks.external[at]:
        error = ParquetFormatError("the column's data lives in another file (file_path is set)")
    elif int(chunks.codec[at]) not in READABLE_CODECS:
        error = ParquetFormatError(f"compression codec {int(chunks.codec[at])} is not supported")
    elif chunks.start[at] < 4 or chunks.end[at] <= chunks.start[at]:
        error = ParquetFormatError("the column chunk has no bytes")
    if error is not None:
        name = ".".join(handle.metadata.schema.leaves[leaf].path)
        raise error.at(path=handle.id.path, place=f"row group {group}, column {name}")
