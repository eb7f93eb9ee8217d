"""Aggregates over a scan: from metadata where that proves them, folded from the rows that have to be read elsewhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa

from accel.arrays import integers_array, whole
from accel.decode.pool import DecodePool
from accel.errors import SchemaMismatchError
from accel.indexes.expressions import Expression
from accel.planning.aggregates import (
    Aggregates,
    Function,
    Measure,
    Tally,
    check_aggregates,
    finish,
    resolve_aggregates,
    tally_array,
)
from accel.planning.fact_answers import matching_facts, range_answers, tally_of_range
from accel.planning.file_entry import FileEntry, FileFacts
from accel.planning.file_planner import FilePlan
from accel.planning.handle import FileHandle
from accel.planning.metadata_answers import MEASURES_KEY, MetadataAnswer, answer_tasks, narrow_tasks
from accel.planning.query import Question
from accel.planning.read_request import OnBadIndex
from accel.planning.task import ScanTask
from accel.reader.reader import Reader
from accel.scanning.run import RunHandle

__all__ = ["Aggregation", "member_of"]


class Aggregation:
    """One aggregation over the parts of a scan: each is run with it, then `fold`ed; then `result`.

    Parameters
    ----------
    aggregates : sequence
        The caller's list, checked here.
    limited : bool
        Whether a limit chooses some of the rows, which metadata cannot tell from others: all rows are read then.

    Notes
    -----
    The answers from metadata are stored by file until their part is folded, so that a file which changed and was planned
    again counts once, in its current version.
    """

    def __init__(self, aggregates: Any, *, limited: bool) -> None:
        self._asked = check_aggregates(aggregates)
        self._limited = limited
        self._found: Aggregates | None = None
        self._tallies: tuple[Tally, ...] = ()
        self.rows = 0
        """Rows so far."""
        self._answers: dict[int, tuple[FileEntry | None, MetadataAnswer]] = {}

    # -- what the run asks -----------------------------------------------------------------------

    def narrow(self, question: Question) -> Question:
        """Return the question, with no more columns than the aggregates take."""
        found = self._resolve(question.output)
        return replace(question, output=found.project(range(len(found.measures))))

    async def answer(
        self, reader: Reader, file: FileEntry, handle: FileHandle, plan: FilePlan
    ) -> tuple[FilePlan, int]:
        """Answer from the metadata of one file; return the plan of the rest, and the round trips that it took."""
        if self._limited:
            return plan, 0

        def steps(on_bad_index: OnBadIndex) -> Any:
            return answer_tasks(
                handle,
                plan.tasks,
                aggregates=self._resolved,
                probe_min_bytes=reader.probe_min_bytes(file.root),
                on_bad_index=on_bad_index,
            )

        answer, trips = await reader.ask(file, handle, steps)
        # A file that is named twice counts twice.
        self._answers[id(file)] = (file, answer)
        left = plan.with_tasks(answer.tasks, handle)
        reader.metrics.add("rows_from_metadata", answer.rows)
        return left, trips

    def fact_columns(self) -> tuple[str, ...] | None:
        """See `FactAnswers.fact_columns`."""
        if self._limited:
            return None
        return tuple(dict.fromkeys(one.column for one in self._asked if one.column is not None))

    @property
    def takes_values(self) -> bool:
        """See `FactAnswers.takes_values`."""
        return False

    def facts_suffice(self, facts: FileFacts, paths: Mapping[str, tuple[str, ...]]) -> bool:
        """See `FactAnswers.facts_suffice`."""
        functions: dict[str, set[Function]] = {}
        for one in self._asked:
            if one.column is not None:
                functions.setdefault(one.column, set()).add(one.function)
        ranges = [(facts.bounds.get(paths.get(name, ())), asked) for name, asked in functions.items()]
        return all(
            values is not None and range_answers(values, asked, facts.num_rows or 0)
            for values, asked in ranges
        )

    def answer_facts(self, file: FileEntry, question: Question) -> int | None:
        """See `MetadataAnswers.answer_facts`."""
        facts = None if self._limited else matching_facts(file)
        if facts is None or facts.num_rows is None:
            return None
        tallies = []
        for measure in self._resolved.measures:
            values = None if measure.path[0] in question.partition_names else facts.bounds.get(measure.path)
            plain = measure.of is Expression.VALUE and values is not None
            if values is None or not plain or not range_answers(values, measure.functions, facts.num_rows):
                return None
            tally = tally_of_range(measure, values, facts.num_rows)
            if tally is None:
                return None
            tallies.append(tally)
        self._answers[id(file)] = file, MetadataAnswer([], tuple(tallies), facts.num_rows)
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
        found = self._resolve(schema)
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

    def _resolve(self, schema: pa.Schema) -> Aggregates:
        found = resolve_aggregates(self._asked, schema)
        if self._found is None:
            self._found = found
            self._tallies = tuple(Tally() for _ in found.measures)
        elif self._found.measures != found.measures:
            raise SchemaMismatchError(
                "the parts of the scan have different columns", hint="give schema= with types that hold all"
            )
        return found

    @property
    def units(self) -> Mapping[str, int]:
        """Aggregates have no report by units."""
        return {}

    @property
    def answered(self) -> int:
        """Rows that metadata answered, of runs that were not folded yet."""
        return sum(answer.rows for _, answer in self._answers.values())

    # -- folding ---------------------------------------------------------------------------------

    async def fold(self, running: RunHandle, *, decode_threads: int) -> None:
        """Take in all of one run."""
        while (batch := await running.take()) is not None:
            if any(measure.of is not Expression.VALUE for measure in self._resolved.measures):
                # Texts are folded one by one, which would hold up the I/O loop.
                await DecodePool.shared(decode_threads).run(partial(self._add, batch))
            else:
                self._add(batch)
        if self._found is None and any(aggregate.column is not None for aggregate in self._asked):
            # Nothing was planned: the schema says whether there are such columns, and of what type.
            await running.schema()
        # In the order of the files, not of their planning: floats add up the same every time.
        ordered = sorted(self._answers.values(), key=lambda one: "" if one[0] is None else one[0].url)
        for _, answer in ordered:
            self.rows += answer.rows
            for into, tally in zip(self._tallies, answer.tallies, strict=True):
                into.add(tally)
        self._answers.clear()

    def _add(self, batch: pa.RecordBatch) -> None:
        self.rows += batch.num_rows
        columns, by_rows = self._counted_for(batch)
        for ordinal in columns:
            measure = self._resolved.measures[ordinal]
            values = member_of(batch.column(batch.schema.get_field_index(measure.path[0])), measure)
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

    def result(self) -> pa.Table:
        """Return the aggregates, as a table of one row."""
        found = self._found if self._found is not None else self._resolve(pa.schema([]))
        arrays = []
        for aggregate, at in zip(found.asked, found.of, strict=True):
            if at < 0:
                arrays.append(integers_array([self.rows], pa.int64()))
            else:
                arrays.append(finish(found.measures[at], aggregate.function, self._tallies[at]))
        return pa.Table.from_arrays(arrays, names=[aggregate.name for aggregate in found.asked])


def _ordinals(listed: str) -> list[int]:
    return [int(ordinal) for ordinal in listed.split(",") if ordinal]


def member_of(array: pa.Array, measure: Measure) -> pa.Array:
    """Return the field of a struct that a measure is of, null where any struct around it is."""
    array = whole(array)
    for name in measure.path[1:]:
        array = array.flatten()[array.type.get_field_index(name)]
    return array
