"""One opened file and a question become scan tasks.

Statistics drop row groups; page indexes, which often are in memory, cut each of the others to the rows that may match;
embedded indexes, bloom filters and dictionaries are looked up for the rows in doubt, where they may save more than they
cost. What is left of each row group is one task.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NoReturn

from accel.errors import (
    AccelError,
    EncryptedFileError,
    IndexFormatError,
    ParquetFormatError,
    redact,
    refuse_unforeseen,
)
from accel.planning.handle import FileHandle
from accel.planning.index_evidence import IndexStatements
from accel.planning.index_lookup import IndexLookup, find_embedded
from accel.planning.leaf_chunks import READABLE_CODECS
from accel.planning.page_indexes import (
    fetch_page_indexes,
    page_index_wants,
    take_page_indexes,
)
from accel.planning.pages import LeafReads, PagesOf
from accel.planning.pruning import RemainingGroups, prune_pages, prune_row_groups
from accel.planning.query import FileQuery
from accel.planning.read_request import OnBadIndex, ReadRequest, Steps
from accel.planning.selection import RowSelection
from accel.planning.task import ScanTask, TaskFile
from accel.planning.two_phase import guess_shares
from accel.predicate.prune import Verdict

if TYPE_CHECKING:
    from accel.planning.index_lookup import ReadDictionary
    from accel.planning.predicate_cache import Evaluation

__all__ = ["FilePlan", "plan_file"]

# The column chunks whose pages are found without a break: some milliseconds.
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
    """Column chunks that are read whole because they have no offset index, although a part may do."""
    remembered_groups: int = 0
    """Row groups whose matching rows are remembered."""
    probed_groups: int = 0
    """Row groups that a bloom filter or a dictionary excluded."""
    guessed: list[ScanTask] = field(default_factory=list)
    """Tasks whose share of matching rows was estimated, as it may decide how they are read."""
    sketched: bool = False
    """Whether embedded sketches took part in that."""

    def add(self, task: ScanTask, handle: FileHandle) -> None:
        """Count a task in."""
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

    def with_tasks(self, tasks: Iterable[ScanTask], handle: FileHandle) -> FilePlan:
        """Return the same plan with fewer tasks: metadata answers for the others."""
        left = replace(self, tasks=[], pages=0, pages_kept=0, rows_kept=0, rows_sure=0, chunks_whole=0)
        for task in tasks:
            left.add(task, handle)
        left.pages, left.row_groups_kept = self.pages, self.row_groups_kept
        return left


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
    """Prune a file's row groups and pages, and make the tasks that read the rest.

    Parameters
    ----------
    selection : mapping, optional
        The caller's own access plan: rows by row group; row groups not named are not read.
    limit : int, optional
        No more rows than this will be taken.
    piece_bytes : int
        Larger row groups get their offset index read even if all rows are wanted, so that they can be cut.
    probe_min_bytes : int
        Bloom filters and dictionaries are read when they may save more than this.
    early_bytes : int
        All page indexes may come with the first few, where they are no more: see `fetch_page_indexes`.
    whole_bytes : int
        Chunks that come to no more, all together, are read whole: they hold hardly more than a page each, and finding
        the page takes a round trip.
    read_dictionary : callable
        Decodes a dictionary page.
    on_bad_index : callable
        Called with each index that does not verify; it may raise.
    """
    _check_selection(handle, task_file, selection)
    with refuse_unforeseen("metadata"):
        query = task_file.query
        _report_misplaced(handle, query, on_bad_index)
        plan = FilePlan(row_groups=handle.num_row_groups, rows=handle.num_rows)
        groups = _remaining_groups(handle, query, selection)
        if not groups and handle.bad_toc is None and not task_file.question.embedded:
            return plan  # no index is left to look up or to report
        embedded = find_embedded(handle, query, named=task_file.question.embedded, on_bad_index=on_bad_index)
        wants = page_index_wants(
            handle,
            query,
            groups=groups,
            selection=selection,
            piece_bytes=piece_bytes,
            limit=limit,
            pages_indexed=embedded is not None and embedded.by_page,
            answered=embedded.answered(query) if embedded is not None else (),
            whole_bytes=whole_bytes,
        )
        lookup = IndexLookup(
            handle,
            query,
            embedded=embedded,
            probe_min_bytes=probe_min_bytes,
            read_dictionary=read_dictionary,
            on_bad_index=on_bad_index,
        )
        draft = _Draft(handle, task_file, selection, IndexStatements(), _recall(handle, task_file))
        if wants:
            early = lookup.comes_early(wants, groups, early_bytes)
            along = lookup.wants_along(draft.tasks(groups), early_bytes) if early else ()
            stash, plan.index_round_trips = yield from fetch_page_indexes(
                handle, wants, early_bytes=early_bytes, along=along
            )
            take_page_indexes(handle, wants, stash=stash, on_bad_index=on_bad_index)
            lookup.learn(stash)
        if handle.bad_toc is not None and query.bound is not None:
            on_bad_index(handle.bad_toc)
        tasks = yield from draft.in_parts(groups)
        tasks = yield from _look_up(lookup, tasks, draft=draft, plan=plan)
        _settle(plan, tasks, groups=groups, draft=draft, on_bad_index=on_bad_index)
        return plan


def _settle(
    plan: FilePlan,
    tasks: Mapping[int, ScanTask],
    *,
    groups: RemainingGroups,
    draft: _Draft,
    on_bad_index: OnBadIndex,
) -> None:
    """Check the tasks, estimate how selective their filter is, and count them in."""
    handle = draft.handle
    plan.remembered_groups = sum(
        not certain and group in draft.matched and not (group in tasks and tasks[group].needs_filter)
        for group, certain in groups
    )
    for group, task in tasks.items():
        for reads in task.reads:
            if handle.view.chunks_of(reads.column).unreadable.item(group):
                _refuse_chunk(handle, group, reads.column)
    query = draft.task_file.query
    guesses = guess_shares(handle, query, tasks=list(tasks.values()), on_bad_index=on_bad_index)
    plan.guessed, plan.sketched = guesses.guessed, guesses.sketched
    for task in guesses.tasks:
        plan.add(task, handle)


def _look_up(
    lookup: IndexLookup, tasks: dict[int, ScanTask], *, draft: _Draft, plan: FilePlan
) -> Steps[dict[int, ScanTask]]:
    """Look up the row groups in doubt, and draft those again that indexes have evidence about."""
    in_doubt = {group: task for group, task in tasks.items() if task.needs_filter}
    if not in_doubt:
        return tasks
    plan.index_round_trips += yield from lookup.run(in_doubt, draft.evidence)
    changed = [group for group in in_doubt if draft.evidence.covers(group)]
    if not changed:
        return tasks
    again = draft.tasks([(group, False) for group in changed])
    plan.probed_groups += len(changed) - len(again)
    excluded = set(changed) - again.keys()
    return {group: again.get(group, task) for group, task in tasks.items() if group not in excluded}


def _remaining_groups(
    handle: FileHandle, query: FileQuery, selection: Mapping[int, RowSelection] | None
) -> RemainingGroups:
    """Return the row groups that statistics and the caller's access plan leave, and whether all their rows match."""
    return [
        (group, verdict == Verdict.ALL)
        for group, verdict in enumerate(prune_row_groups(handle, query).tolist())
        if verdict != Verdict.NONE and (selection is None or selection.get(group))
    ]


def _report_misplaced(handle: FileHandle, query: FileQuery, on_bad_index: OnBadIndex) -> None:
    """Report the indexes of the query's columns that the footer places outside the file: they are not used."""
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
    if not selection:
        return
    name, groups = redact(task_file.url), handle.num_row_groups
    for group, rows in selection.items():
        if not 0 <= group < groups:
            raise ValueError(f"selection names row group {group}; {name} has {groups}")
        if rows and int(rows.stops[-1]) > int(handle.metadata.group_rows[group]):
            raise ValueError(
                f"selection goes to row {int(rows.stops[-1])} of row group {group} of {name}, "
                f"which has {int(handle.metadata.group_rows[group])} rows"
            )


def _recall(handle: FileHandle, task_file: TaskFile) -> Mapping[int, Evaluation]:
    """Return which rows earlier scans found this predicate to match, by row group."""
    if handle.predicate_cache is None:
        return {}
    from accel.planning.question_keys import predicate_key

    return handle.predicate_cache.under(predicate_key(task_file))


@dataclass(frozen=True, slots=True, eq=False)
class _Draft:
    """Makes the tasks of row groups from what is in memory."""

    handle: FileHandle
    task_file: TaskFile
    selection: Mapping[int, RowSelection] | None
    evidence: IndexStatements
    matched: Mapping[int, Evaluation]
    """The rows that match by the predicate cache, by row group."""

    def in_parts(self, groups: RemainingGroups) -> Steps[dict[int, ScanTask]]:
        """Make the tasks of all row groups. Many are made some at a time: before, between and after them the event loop runs."""
        query = self.task_file.query
        leaves = len(query.output_leaves) + len(query.filter_leaves)
        at_once = max(1, _AT_ONCE // max(1, leaves))
        found: dict[int, ScanTask] = {}
        many = len(groups) > at_once
        for start in range(0, len(groups), at_once):
            if many:
                yield ReadRequest(())
            found |= self.tasks(groups[start : start + at_once])
        if many:
            yield ReadRequest(())
        return found

    def tasks(self, groups: RemainingGroups) -> dict[int, ScanTask]:
        """Make the tasks of some row groups; none for a row group in which no row can match."""
        handle, query = self.handle, self.task_file.query
        group_rows = handle.metadata.group_rows
        doubtful = [group for group, certain in groups if not certain]
        verdicts = prune_pages(handle, query, groups=doubtful, evidence=self.evidence)
        pages = dict(zip(doubtful, verdicts, strict=True))
        found = {}
        for group, certain in groups:
            num_rows = int(group_rows[group])
            if certain:
                rows = sure = RowSelection.all(num_rows)
            else:
                rows, sure = pages[group].rows, pages[group].sure
            if self.selection is not None:
                rows, sure = rows.intersect(self.selection[group]), sure.intersect(self.selection[group])
            if group in self.matched and rows:
                settled = self.matched[group].settle(rows, sure, num_rows)
                rows, sure = (rows, sure) if settled is None else (settled, settled)
            if rows:
                reads = _read_leaves(handle, query, group, rows, rows.without(sure, num_rows))
                found[group] = ScanTask(self.task_file, group, num_rows, rows, sure, reads)
        return found


def _read_leaves(
    handle: FileHandle, query: FileQuery, group: int, rows: RowSelection, doubtful: RowSelection
) -> tuple[LeafReads, ...]:
    """Return the pages of a row group that hold these rows; columns of the filter alone are read for rows in doubt."""
    filters = frozenset(query.filter_leaves) if doubtful else frozenset[int]()
    outputs = frozenset(query.output_leaves)
    view = handle.view
    metadata, indexes = view.metadata, view.offset_indexes
    num_rows = metadata.group_rows.item(group)
    for_rows = PagesOf(rows, num_rows)
    for_doubtful = for_rows if doubtful is rows else PagesOf(doubtful, num_rows)
    reads = []
    for leaf in sorted(filters | outputs):
        chunks = view.chunks_of(leaf)
        if metadata.chunks.end[group, leaf] <= metadata.chunks.start[group, leaf]:
            _refuse_chunk(handle, group, leaf)
        pages = for_rows if leaf in outputs else for_doubtful
        reads.append(
            pages.reads(
                metadata,
                group,
                leaf,
                index=indexes.get((group, leaf)),
                expansion=chunks.expansion.item(group),
                for_filter=leaf in filters,
                for_output=leaf in outputs,
            )
        )
    return tuple(reads)


def _refuse_chunk(handle: FileHandle, group: int, leaf: int) -> NoReturn:
    """Refuse a chunk that cannot be read, before any byte of it is requested."""
    chunks = handle.metadata.chunks
    at = (group, leaf)
    error: AccelError
    if chunks.encrypted[at]:
        error = EncryptedFileError("the column is encrypted", hint="accel reads no encrypted columns")
    elif chunks.external[at]:
        error = ParquetFormatError("the column's data lives in another file (file_path is set)")
    elif int(chunks.codec[at]) not in READABLE_CODECS:
        error = ParquetFormatError(f"compression codec {int(chunks.codec[at])} is not supported")
    else:
        error = ParquetFormatError("the column chunk has no bytes")
    name = ".".join(handle.metadata.schema.leaves[leaf].path)
    raise error.at(path=handle.id.path, place=f"row group {group}, column {name}")
