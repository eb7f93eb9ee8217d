"""Aggregates over a scan, distinct values among them: from metadata where that proves them, folded from the
rows that have to be read elsewhere."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

import pyarrow as pa

from accel.arrays import integers_array, whole
from accel.decode.pool import DecodePool
from accel.errors import SchemaMismatchError
from accel.indexes.expressions import Expression
from accel.planning.aggregates import (
    Aggregate,
    Aggregates,
    Function,
    Measure,
    Tally,
    check_aggregates,
    finish,
    resolve_aggregates,
    tally_array,
)
from accel.planning.distinct_answers import DistinctWay
from accel.planning.fact_answers import figures_suffice, matching_facts, tally_of_figures
from accel.planning.file_entry import ColumnFigures, FileEntry, FileFacts
from accel.planning.file_planner import FilePlan
from accel.planning.handle import FileHandle
from accel.planning.metadata_answers import MEASURES_KEY, MetadataAnswer, answer_tasks, narrow_tasks
from accel.planning.query import Question
from accel.planning.read_request import OnBadIndex
from accel.planning.task import ScanTask
from accel.reader.reader import Reader, read_dictionary
from accel.scanning.run import RunHandle

__all__ = ["Aggregation"]


_NO_FIGURES: Final = ColumnFigures(type=pa.null())


class Aggregation:
    """One aggregation over the parts of a scan: each is run with it, then `fold`ed; then `result`.

    Parameters
    ----------
    aggregates : sequence, optional
        The caller's list, checked here.
    distinct : str, optional
        The column whose distinct values are wanted instead: a column of the result, or a dotted path into
        structs.
    limited : bool
        Whether a limit chooses some of the rows, which metadata cannot tell from others: all rows are read
        then.
    selected : bool
        Whether the caller selects rows, so that pruning has left out rows that match.
    case_sensitive : bool
        Whether columns are named as the result has them in case, too.

    Notes
    -----
    The answers from metadata are stored by file until their part is folded, so that a file which changed and
    was planned again counts once, in its current version.
    """

    def __init__(
        self,
        aggregates: Any,
        *,
        distinct: str | None = None,
        limited: bool,
        selected: bool = False,
        case_sensitive: bool = True,
    ) -> None:
        self._requested = (
            check_aggregates(aggregates) if distinct is None else (Aggregate(distinct, Function.DISTINCT),)
        )
        self._limited = limited
        self._selected = selected
        self._case_sensitive = case_sensitive
        self.takes_values = distinct is not None
        """Whether it takes the distinct values of columns; see `FactAnswers.takes_values`."""
        self._found: Aggregates | None = None
        self._tallies: tuple[Tally, ...] = ()
        self.rows = 0
        """Rows so far."""
        self._answers: dict[int, tuple[FileEntry | None, MetadataAnswer]] = {}
        self._folded: Counter[str] = Counter()

    # -- what the run asks -----------------------------------------------------------------------

    def narrow(self, question: Question) -> Question:
        """Return the question, with no more columns than the aggregates take."""
        found = self.resolve(question.output)
        return replace(question, output=found.project(range(len(found.measures))))

    async def answer(
        self, reader: Reader, file: FileEntry, handle: FileHandle, plan: FilePlan
    ) -> tuple[FilePlan, int]:
        """Answer from the metadata of one file; return the plan of the rest, and the round trips that it
        took.

        For a file that is planned again it is called again: the last call counts.
        """
        if self._limited:
            return plan, 0

        def steps(on_bad_index: OnBadIndex) -> Any:
            return answer_tasks(
                handle,
                plan.tasks,
                aggregates=self._resolved,
                # Rows that are gone are chosen in a way that the predicate does not tell.
                selected=self._selected or file.deleted is not None,
                probe_min_bytes=reader.probe_min_bytes(file.root),
                read_dictionary=read_dictionary,
                on_bad_index=on_bad_index,
            )

        answer, trips = await reader.ask(file, handle, steps)
        # A file that is named twice counts twice.
        self._answers[id(file)] = (file, answer)
        left = plan.with_tasks(answer.tasks, handle)
        reader.metrics.add("rows_from_metadata", answer.rows)
        return left, trips

    def fact_columns(self) -> tuple[str, ...] | None:
        """Return the columns whose bounds and counts are used; see `FactAnswers.fact_columns`."""
        if self._limited:
            return None
        return tuple(dict.fromkeys(one.column for one in self._requested if one.column is not None))

    def facts_suffice(self, facts: FileFacts, paths: Mapping[str, tuple[str, ...]]) -> bool:
        """Return whether facts answer for a file; see `FactAnswers.facts_suffice`."""
        functions: dict[str, set[Function]] = {}
        for one in self._requested:
            if one.column is not None:
                functions.setdefault(one.column, set()).add(one.function)
        return all(
            figures_suffice(facts.figures.get(paths.get(name, ()), _NO_FIGURES), wanted)
            for name, wanted in functions.items()
        )

    def answer_facts(self, file: FileEntry, question: Question) -> int | None:
        """Answer from the facts that the source has of a file, which need not be opened then; None where they
        do not prove it.

        Returns
        -------
        int or None
            The rows of the file.
        """
        facts = None if self._limited else matching_facts(file)
        if facts is None or facts.num_rows is None:
            return None
        tallies = []
        for measure in self._resolved.measures:
            plain = measure.of is Expression.VALUE and measure.path[0] not in question.partition_names
            figures = facts.figures.get(measure.path) if plain else None
            tally = None if figures is None else tally_of_figures(measure, figures)
            if tally is None:
                return None
            tallies.append(tally)
        units = Counter({f"files by {DistinctWay.CATALOG}": 1}) if self.takes_values else Counter()
        self._answers[id(file)] = file, MetadataAnswer([], tuple(tallies), facts.num_rows, units)
        return facts.num_rows

    def begin_again(self) -> None:
        """Forget the answers from metadata that were not folded yet."""
        self._answers.clear()
        if not self.rows:
            self._found, self._tallies = None, ()

    def answer_planned(
        self, reader: Reader, tasks: Sequence[ScanTask], schema: pa.Schema
    ) -> Sequence[ScanTask]:
        """Answer the tasks of a plan. Without the metadata of their files only rows can be counted."""
        found = self.resolve(schema)
        if self._limited:
            return tasks
        answer = narrow_tasks(tasks, found)
        self._answers[-1] = (None, answer)
        reader.metrics.add("rows_from_metadata", answer.rows)
        return answer.tasks

    @property
    def _resolved(self) -> Aggregates:
        if self._found is None:
            raise RuntimeError("an aggregation is resolved before files are answered")
        return self._found

    def resolve(self, schema: pa.Schema) -> Aggregates:
        found = resolve_aggregates(self._requested, schema, case_sensitive=self._case_sensitive)
        if self._found is None:
            self._found = found
            self._tallies = found.tallies()
        elif self._found.measures != found.measures:
            raise SchemaMismatchError(
                "the parts of the scan have different columns", hint="give `schema=` with types that hold all"
            )
        return found

    @property
    def units(self) -> Mapping[str, int]:
        """The units, by level and way, whose distinct values were found so far."""
        total = Counter(self._folded)
        for _, answer in self._answers.values():
            total.update(answer.units)
        return dict(sorted(total.items()))

    @property
    def answered(self) -> int:
        """Rows that metadata answered, of runs that were not folded yet."""
        return sum(answer.rows for _, answer in self._answers.values())

    # -- folding ---------------------------------------------------------------------------------

    async def fold(self, running: RunHandle, *, decode_threads: int) -> None:
        """Take in all of one run."""
        while (batch := await running.take()) is not None:
            if self.takes_values or any(one.of is not Expression.VALUE for one in self._resolved.measures):
                # Texts are folded one by one, and values are hashed, which would hold up the I/O loop.
                await DecodePool.shared(decode_threads).run(partial(self._add, batch))
            else:
                self._add(batch)
        if self._found is None and any(aggregate.column is not None for aggregate in self._requested):
            # Nothing was planned: the schema says whether there are such columns, and of what type.
            await running.schema()
        # In the order of the files, not of their planning: floats add up the same every time.
        ordered = sorted(self._answers.values(), key=lambda one: "" if one[0] is None else one[0].url)
        for _, answer in ordered:
            self.rows += answer.rows
            self._folded.update(answer.units)
            for into, tally in zip(self._tallies, answer.tallies, strict=True):
                into.add(tally)
        self._answers.clear()

    def _add(self, batch: pa.RecordBatch) -> None:
        self.rows += batch.num_rows
        columns, by_rows = self._counted_for(batch)
        for ordinal in columns:
            measure = self._resolved.measures[ordinal]
            values = _member_of(batch.column(batch.schema.get_field_index(measure.path[0])), measure)
            self._tallies[ordinal].add(tally_array(measure, values))
        for ordinal in by_rows:
            self._tallies[ordinal].count += batch.num_rows

    def _counted_for(self, batch: pa.RecordBatch) -> tuple[Sequence[int], Sequence[int]]:
        """Return the measures that a batch has the columns of, and those that only count its rows."""
        every = range(len(self._resolved.measures))
        listed = (batch.schema.metadata or {}).get(MEASURES_KEY)
        if listed is None:
            return (every, ()) if batch.num_columns else ((), every)
        columns, _, by_rows = listed.decode().partition(";")
        return _ordinals(columns), _ordinals(by_rows)

    def values(self) -> pa.Array:
        """Return the distinct values in ascending order."""
        if self._found is None:
            return pa.nulls(0)
        return finish(self._found.measures[0], Function.DISTINCT, self._tallies[0])

    def result(self) -> pa.Table:
        """Return the aggregates, as a table of one row."""
        found = self._found if self._found is not None else self.resolve(pa.schema([]))
        arrays = []
        for aggregate, at in zip(found.requested, found.of, strict=True):
            if at < 0:
                arrays.append(integers_array([self.rows], pa.int64()))
            else:
                arrays.append(finish(found.measures[at], aggregate.function, self._tallies[at]))
        return pa.Table.from_arrays(arrays, names=[aggregate.name for aggregate in found.requested])


def _ordinals(listed: str) -> list[int]:
    return [int(ordinal) for ordinal in listed.split(",") if ordinal]


def _member_of(array: pa.Array, measure: Measure) -> pa.Array:
    """Return the field of a struct that a measure is of, null where any struct around it is."""
    array = whole(array)
    for name in measure.path[1:]:
        array = array.flatten()[array.type.get_field_index(name)]
    return array
