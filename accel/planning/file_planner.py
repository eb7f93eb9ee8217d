"""One opened file and a question become scan tasks.

Statistics drop row groups; page indexes, which often are in memory, cut each of the others to the rows that
may match; embedded indexes, bloom filters and dictionaries are looked up for the undecided rows, where they
may save more than they cost. What is left of each row group is one task.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
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
from accel.planning.leaf_chunks import READABLE_CODECS, LeafChunks, unreadable_chunks
from accel.planning.page_indexes import (
    PlanSizes,
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
    from accel.planning.leaf_chunks import Float64s

__all__ = ["FilePlan", "check_selection", "plan_file"]

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
    rows_certain: int = 0
    index_round_trips: int = 0
    chunks_whole: int = 0
    """Column chunks that are read whole because they have no offset index, although a part may do."""
    probed_groups: int = 0
    """Row groups that a bloom filter or a dictionary excluded."""
    guessed: list[ScanTask] = field(default_factory=list)
    """Tasks whose share of matching rows was estimated, as it may decide how they are read."""
    sketched: bool = False
    """Whether embedded sketches took part in that."""
    draft: TaskDraft | None = None
    remaining: RemainingGroups = ()
    """The row groups that statistics and the selection have left."""
    drafted: Mapping[int, ScanTask] = field(default_factory=dict)
    """The tasks that page indexes have left, by their row groups, before other indexes were looked up."""

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
        self.rows_certain += task.certain.count
        self.tasks.append(task)

    def with_tasks(self, tasks: Iterable[ScanTask], handle: FileHandle) -> FilePlan:
        """Return the same plan with fewer tasks: metadata answers for the others."""
        left = replace(self, tasks=[], pages=0, pages_kept=0, rows_kept=0, rows_certain=0, chunks_whole=0)
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
    first_row: int = 0,
    sizes: PlanSizes,
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
    first_row : int
        The number of the first row of the file, where the question has numbers.
    sizes : PlanSizes
    read_dictionary : callable
        Decodes a dictionary page.
    on_bad_index : callable
        Called with each index that does not verify; it may raise.
    """
    if selection:
        check_selection(handle, selection, url=task_file.url)
    with refuse_unforeseen("metadata"):
        query = task_file.query
        _report_misplaced(handle, query, on_bad_index)
        plan = FilePlan(row_groups=handle.num_row_groups, rows=handle.num_rows)
        groups = plan.remaining = _remaining_groups(handle, query, selection)
        draft = plan.draft = TaskDraft(handle, task_file, selection, IndexStatements(), first_row)
        if not groups and handle.bad_toc is None and not task_file.question.embedded:
            return plan  # no index is left to look up or to report
        embedded = find_embedded(handle, query, named=task_file.question.embedded, on_bad_index=on_bad_index)
        wants = page_index_wants(
            handle,
            query,
            groups=groups,
            selection=selection,
            sizes=sizes,
            limit=limit,
            pages_indexed=embedded is not None and embedded.by_page,
            answered=embedded.answered(query) if embedded is not None else (),
        )
        lookup = IndexLookup(
            handle,
            query,
            embedded=embedded,
            probe_min_bytes=sizes.probe_min_bytes,
            read_dictionary=read_dictionary,
            on_bad_index=on_bad_index,
        )
        if wants:
            early = lookup.comes_early(wants, groups, sizes.early_bytes)
            along = lookup.wants_along(draft.tasks(groups), sizes.early_bytes) if early else ()
            stash, plan.index_round_trips = yield from fetch_page_indexes(
                handle, wants, early_bytes=sizes.early_bytes, along=along
            )
            take_page_indexes(handle, wants, stash=stash, on_bad_index=on_bad_index)
            lookup.learn(stash)
        if handle.bad_toc is not None and query.bound is not None:
            on_bad_index(handle.bad_toc)
        drafted = yield from draft.in_parts(groups)
        tasks = yield from _look_up(lookup, drafted, draft=draft, plan=plan)
        plan.drafted = drafted
        _settle(plan, tasks, groups=groups, draft=draft, on_bad_index=on_bad_index)
        return plan


def _settle(
    plan: FilePlan,
    tasks: Mapping[int, ScanTask],
    *,
    groups: RemainingGroups,
    draft: TaskDraft,
    on_bad_index: OnBadIndex,
) -> None:
    """Check the tasks, estimate how selective their filter is, and count them in."""
    handle = draft.handle
    if handle.view.has_unreadable:
        _refuse_unreadable(handle, tasks)
    query = draft.task_file.query
    guesses = guess_shares(handle, query, tasks=list(tasks.values()), on_bad_index=on_bad_index)
    plan.guessed, plan.sketched = guesses.guessed, guesses.sketched
    for task in guesses.tasks:
        plan.add(task, handle)


def _look_up(
    lookup: IndexLookup, tasks: dict[int, ScanTask], *, draft: TaskDraft, plan: FilePlan
) -> Steps[dict[int, ScanTask]]:
    """Look up the undecided row groups, and draft those again that indexes have evidence about."""
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
    """Return the row groups that statistics and the caller's access plan leave, and whether all their rows
    match."""
    return [
        (group, verdict == Verdict.ALL)
        for group, verdict in enumerate(prune_row_groups(handle, query).tolist())
        if verdict != Verdict.NONE and (selection is None or selection.get(group))
    ]


def _report_misplaced(handle: FileHandle, query: FileQuery, on_bad_index: OnBadIndex) -> None:
    """Report the indexes of the query's columns that the footer places outside the file: they are not
    used."""
    metadata = handle.metadata
    for words, group, leaf in metadata.misplaced_indexes({*query.filter_leaves, *query.output_leaves}):
        on_bad_index(
            IndexFormatError(
                f"the footer places the {words} outside the file, which has {metadata.file_size} bytes",
                path=handle.id.path,
                place=f"row group {group}, column {'.'.join(metadata.schema.leaves[leaf].path)}",
            )
        )


def check_selection(handle: FileHandle, selection: Mapping[int, RowSelection], *, url: str) -> None:
    """Raise ValueError where a selection names rows or row groups that a file does not have."""
    name, groups = redact(url), handle.num_row_groups
    for group, rows in selection.items():
        if not 0 <= group < groups:
            raise ValueError(f"selection names row group {group}; {name} has {groups}")
        if rows and int(rows.stops[-1]) > int(handle.metadata.group_rows[group]):
            raise ValueError(
                f"selection goes to row {int(rows.stops[-1])} of row group {group} of {name}, "
                f"which has {int(handle.metadata.group_rows[group])} rows"
            )


@dataclass(frozen=True, eq=False)
class TaskDraft:
    """Makes the tasks of row groups from what is in memory."""

    handle: FileHandle
    task_file: TaskFile
    selection: Mapping[int, RowSelection] | None
    evidence: IndexStatements
    first_row: int

    @cached_property
    def _leaves(self) -> tuple[list[tuple[int, bool, bool]], Float64s]:
        """The leaves that the question reads, of each whether it is one of the filter and one of the result,
        and `LeafChunks.expansion` of them."""
        query = self.task_file.query
        filters, outputs = frozenset(query.filter_leaves), frozenset(query.output_leaves)
        leaves = sorted(filters | outputs)
        expansion = LeafChunks.of(self.handle.metadata, leaves).expansion
        return [(leaf, leaf in filters, leaf in outputs) for leaf in leaves], expansion

    def in_parts(self, groups: RemainingGroups) -> Steps[dict[int, ScanTask]]:
        """Make the tasks of all row groups. Many are made some at a time: before, between and after them the
        event loop runs."""
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
        doubtful = [group for group, all_match in groups if not all_match]
        verdicts = prune_pages(handle, query, groups=doubtful, evidence=self.evidence)
        pages = dict(zip(doubtful, verdicts, strict=True))
        found = {}
        first_rows = None
        if self.task_file.question.row_number is not None:
            first_rows = group_rows.cumsum() - group_rows + self.first_row
        for group, all_match in groups:
            num_rows = int(group_rows[group])
            if all_match:
                rows = certain = RowSelection.all(num_rows)
            else:
                rows, certain = pages[group].rows, pages[group].certain
            if self.selection is not None:
                rows, certain = (
                    rows.intersect(self.selection[group]),
                    certain.intersect(self.selection[group]),
                )
            if rows:
                reads = self._read_leaves(group, rows, rows.without(certain, num_rows))
                first_row = 0 if first_rows is None else int(first_rows[group])
                found[group] = ScanTask(
                    self.task_file, group, num_rows, rows, certain, reads, first_row=first_row
                )
        return found

    def _read_leaves(self, group: int, rows: RowSelection, doubtful: RowSelection) -> tuple[LeafReads, ...]:
        """Return the pages of a row group that hold these rows.

        Columns of the filter alone are read for undecided rows.
        """
        metadata, indexes = self.handle.metadata, self.handle.view.offset_indexes
        chunks, num_rows = metadata.chunks, metadata.group_rows.item(group)
        for_rows = PagesOf(rows, num_rows)
        for_doubtful = for_rows if doubtful is rows else PagesOf(doubtful, num_rows)
        (leaves, expansion), undecided = self._leaves, bool(doubtful)
        reads = []
        for (leaf, for_filter, for_output), expands in zip(leaves, expansion[group].tolist(), strict=True):
            if not (for_output or undecided):
                continue
            if chunks.end.item(group, leaf) <= chunks.start.item(group, leaf):
                _refuse_chunk(self.handle, group, leaf)
            pages = for_rows if for_output else for_doubtful
            reads.append(
                pages.reads(
                    metadata,
                    group,
                    leaf,
                    index=indexes.get((group, leaf)),
                    expansion=expands,
                    for_filter=for_filter and undecided,
                    for_output=for_output,
                )
            )
        return tuple(reads)


def _refuse_unreadable(handle: FileHandle, tasks: Mapping[int, ScanTask]) -> None:
    unreadable = unreadable_chunks(handle.metadata.chunks)
    for group, task in tasks.items():
        for reads in task.reads:
            if unreadable[group, reads.column]:
                _refuse_chunk(handle, group, reads.column)


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
