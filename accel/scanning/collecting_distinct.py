"""The distinct values of one column of a scan: from metadata where that proves them, collected from the rows elsewhere."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa

from accel.decode.pool import DecodePool
from accel.errors import SchemaMismatchError
from accel.planning.aggregates import Aggregates
from accel.planning.distinct_answers import (
    DistinctAnswer,
    DistinctWay,
    answer_distinct,
    narrow_distinct,
    one_measure,
)
from accel.planning.distinct_values import DistinctSet, distinct_measure
from accel.planning.fact_answers import distinct_of_facts, distinct_of_range, matching_facts
from accel.planning.file_entry import FileEntry, FileFacts
from accel.planning.file_planner import FilePlan
from accel.planning.handle import FileHandle
from accel.planning.query import Question
from accel.planning.read_request import OnBadIndex
from accel.planning.task import ScanTask
from accel.reader.reader import Reader, read_dictionary
from accel.scanning.aggregating import member_of
from accel.scanning.run import RunHandle

__all__ = ["DistinctCollection"]


class DistinctCollection:
    """The distinct values of a column over the parts of a scan: each is run with it, then `fold`ed; then `result`.

    Parameters
    ----------
    column : str
        A column of the result, or a dotted path into structs.
    limited : bool
        Whether a limit chooses some of the rows, which metadata cannot tell from others: all rows are read then.
    selected : bool
        Whether the caller selects rows, so that pruning has left out rows that match.
    """

    def __init__(self, column: str, *, limited: bool, selected: bool) -> None:
        if not isinstance(column, str):
            raise TypeError(f"a column is named by a string, not {column!r:.80}")
        self._column = column
        self._limited = limited
        self._selected = selected
        self._aggregates: Aggregates | None = None
        self._found: DistinctSet | None = None
        # An answer stands beside its file, whose id is its own that long.
        self._answers: dict[int, tuple[FileEntry, DistinctAnswer]] = {}
        self._folded: Counter[str] = Counter()
        self.rows = 0
        """Rows so far."""

    # -- what the run asks -----------------------------------------------------------------------

    def narrow(self, question: Question) -> Question:
        """See `MetadataAnswers.narrow`."""
        return replace(question, output=self._resolve(question.output).project((0,)))

    async def answer(
        self, reader: Reader, file: FileEntry, handle: FileHandle, plan: FilePlan
    ) -> tuple[FilePlan, int]:
        """See `MetadataAnswers.answer`."""
        aggregates = self._aggregates
        if self._limited or aggregates is None:
            return plan, 0

        def steps(on_bad_index: OnBadIndex) -> Any:
            return answer_distinct(
                handle,
                plan.tasks,
                aggregates=aggregates,
                selected=self._selected,
                probe_min_bytes=reader.probe_min_bytes(file.root),
                read_dictionary=read_dictionary,
                on_bad_index=on_bad_index,
            )

        answer, trips = await reader.ask(file, handle, steps)
        # A file that is planned again replaces what it came to before.
        self._answers[id(file)] = file, answer
        left = plan.with_tasks(answer.tasks, handle)
        reader.metrics.add("rows_from_metadata", answer.rows)
        return left, trips

    def fact_columns(self) -> tuple[str, ...] | None:
        """See `FactAnswers.fact_columns`."""
        return None if self._limited else (self._column,)

    @property
    def takes_values(self) -> bool:
        """See `FactAnswers.takes_values`."""
        return True

    def facts_suffice(self, facts: FileFacts, paths: Mapping[str, tuple[str, ...]]) -> bool:
        """See `FactAnswers.facts_suffice`."""
        if paths.get(self._column, ()) in facts.values:
            return True
        values = facts.bounds.get(paths.get(self._column, ()))
        if values is None:
            return False
        kind = pa.null() if values.lower is None else values.lower.type
        return distinct_of_range(kind, values, facts.num_rows or 0) is not None

    def answer_facts(self, file: FileEntry, question: Question) -> int | None:
        """See `MetadataAnswers.answer_facts`."""
        facts, aggregates = matching_facts(file), self._aggregates
        if self._limited or facts is None or facts.num_rows is None or aggregates is None:
            return None
        measure = aggregates.measures[0]
        if measure.path[0] in question.partition_names:
            return None
        found = distinct_of_facts(measure, facts)
        if found is None:
            return None
        answer = DistinctAnswer(found, rows=facts.num_rows)
        answer.count("files", DistinctWay.CATALOG)
        self._answers[id(file)] = file, answer
        return facts.num_rows

    def begin_again(self) -> None:
        """See `MetadataAnswers.begin_again`."""
        self._answers.clear()
        if not self.rows:
            self._aggregates = self._found = None

    def answer_planned(
        self, reader: Reader, tasks: Sequence[ScanTask], schema: pa.Schema
    ) -> Sequence[ScanTask]:
        """See `MetadataAnswers.answer_planned`."""
        return narrow_distinct(tasks, self._resolve(schema))

    def _resolve(self, schema: pa.Schema) -> Aggregates:
        measure = distinct_measure(self._column, schema)
        if self._aggregates is None or self._found is None:
            self._aggregates, self._found = one_measure(measure, schema), DistinctSet(measure.type)
        elif self._aggregates.measures[0] != measure:
            raise SchemaMismatchError(
                "the parts of the scan have different columns", hint="give schema= with types that hold all"
            )
        return self._aggregates

    @property
    def answered(self) -> int:
        """Rows that metadata answered, of runs that were not folded yet."""
        return sum(answer.rows for _, answer in self._answers.values())

    @property
    def units(self) -> Mapping[str, int]:
        """The units, by level and way, whose values were found so far."""
        total = Counter(self._folded)
        for _, answer in self._answers.values():
            total.update(answer.units)
        return dict(sorted(total.items()))

    # -- folding ---------------------------------------------------------------------------------

    async def fold(self, running: RunHandle, *, decode_threads: int) -> None:
        """See `MetadataAnswers.fold`."""
        pool = DecodePool.shared(decode_threads)
        while (batch := await running.take()) is not None:
            await pool.run(partial(self._add, batch))
        if self._aggregates is None:
            # Nothing was planned: the schema says whether there is such a column, and of what type.
            await running.schema()
        for _, answer in self._answers.values():
            self._folded.update(answer.units)
            self.rows += answer.rows
            if self._found is not None:
                self._found.update(answer.found)
        self._answers.clear()

    def _add(self, batch: pa.RecordBatch) -> None:
        self.rows += batch.num_rows
        if self._aggregates is None or self._found is None:
            raise RuntimeError("a column is found before its values are collected")
        measure = self._aggregates.measures[0]
        values = batch.column(batch.schema.get_field_index(measure.path[0]))
        self._found.add_column(member_of(values, measure))

    def result(self) -> pa.Array:
        """Return the values in ascending order."""
        return pa.nulls(0) if self._found is None else self._found.result()
