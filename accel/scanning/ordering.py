"""The order of a scan, as it takes part in planning: which columns are read first, and of which files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final, TypeVar

import pyarrow as pa

from accel.errors import SchemaMismatchError
from accel.format.domain import Domain
from accel.planning.file_entry import FileEntry, FileFacts
from accel.planning.file_planner import FilePlan
from accel.planning.handle import FileHandle
from accel.planning.projection import narrow_type, split_name, type_at
from accel.planning.query import Question
from accel.planning.row_order import SortKey
from accel.planning.task import ScanTask
from accel.predicate.kinds import kind_of
from accel.reader.reader import Reader

__all__ = ["TopRows"]

T = TypeVar("T")


class TopRows:
    """The order of a scan, and what it asks of each file.

    It takes part in planning as an aggregate does, which narrows the question to its own columns and looks at
    what is known of each file; it answers nothing from that.

    Parameters
    ----------
    order : sequence of SortKey
    limit : int
        The rows that are wanted.
    case_sensitive : bool
        Whether the order names columns as the data set has them in case, too.
    """

    takes_values: Final = False

    def __init__(self, order: Sequence[SortKey], limit: int, *, case_sensitive: bool = True) -> None:
        self.order = order
        self._case_sensitive = case_sensitive
        self.limit = limit
        self.whole: Question | None = None
        """The question, with the columns of the result."""
        self.paths: tuple[tuple[str, ...], ...] = ()
        """The keys, from the top level down."""
        self.number = self.ordinal = ""
        """The columns that have the number of a row, and of its file."""
        self.opened: dict[str, tuple[FileEntry, FileHandle, FilePlan]] = {}
        """By URL, the files whose plans have been made."""

    def narrow(self, question: Question) -> Question:
        """Return the question with no other columns in its result than the keys, and where each row is.

        Raises
        ------
        ColumnNotFoundError
            There is no such column.
        SchemaMismatchError
            The values of a column have no order.
        """
        self.whole = question
        schema = question.schema
        sensitive = self._case_sensitive
        self.paths = tuple(split_name(key.column, schema, case_sensitive=sensitive) for key in self.order)
        below: dict[str, list[tuple[str, ...]]] = {}
        for key, path in zip(self.order, self.paths, strict=True):
            kind = type_at(schema, path)
            orderless = kind_of(kind).domain is Domain.NONE and not pa.types.is_null(kind)
            if orderless or path[0] == question.row_number:
                raise SchemaMismatchError(f"there is no order by column {key.column!r}, which is {kind}")
            if len(schema.get_all_field_indices(path[0])) > 1:
                raise SchemaMismatchError(f"the scan has several columns named {path[0]!r}")
            below.setdefault(path[0], []).append(path[1:])
        fields = []
        for name, paths in below.items():
            column = schema.field(name)
            fields.append(column.with_type(narrow_type(column.type, paths)).remove_metadata())
        self.number, self.ordinal = (_unused(name, schema) for name in ("row", "file"))
        added = [pa.field(self.number, pa.int64()), pa.field(self.ordinal, pa.int64())]
        return replace(question, output=pa.schema([*fields, *added]), row_number=self.number)

    async def answer(
        self, reader: Reader, file: FileEntry, handle: FileHandle, plan: FilePlan
    ) -> tuple[FilePlan, int]:
        """Take notice of an opened file."""
        self.opened[file.url] = file, handle, plan
        return plan, 0

    def fact_columns(self) -> tuple[str, ...] | None:
        """Return the first key; see `FactAnswers.fact_columns`."""
        return (self.order[0].column,)

    def facts_suffice(self, facts: FileFacts, paths: Mapping[str, tuple[str, ...]]) -> bool:
        """Return whether facts bound the first key; see `FactAnswers.facts_suffice`."""
        found = facts.figures.get(paths.get(self.order[0].column, ()))
        bounds = None if found is None else found.bounds
        return bounds is not None and bool(bounds.has_lower[0] and bounds.has_upper[0])

    def answer_facts(self, file: FileEntry, question: Question) -> int | None:
        """Answer nothing; see `MetadataAnswers.answer_facts`."""
        return None

    def answer_planned(
        self, reader: Reader, tasks: Sequence[ScanTask], schema: pa.Schema
    ) -> Sequence[ScanTask]:
        """Answer nothing; see `MetadataAnswers.answer_planned`."""
        return tasks

    def begin_again(self) -> None:
        """Forget the files."""
        self.opened.clear()


def _unused(name: str, schema: pa.Schema) -> str:
    while name in schema.names:
        name = f"_{name}"
    return name
