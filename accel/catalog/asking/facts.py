"""What a catalog says of whole files, as facts that answer counts, extremes and distinct values without their
metadata.

A file counts only if its columns are those of the first file of the scan, by which the types of the question
are settled.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from accel.arrays import whole
from accel.catalog.describing import column_text, schema_fingerprint
from accel.catalog.kinds.kind import check_ordinals
from accel.catalog.segments import SegmentReader, SegmentTables
from accel.errors import AccelError
from accel.planning.file_entry import ColumnFigures, FileEntry, FileFacts
from accel.planning.handle import FileHandle
from accel.planning.projection import split_name, type_at
from accel.predicate.atoms import BoundColumn
from accel.scanning.file_source import FactAnswers

if TYPE_CHECKING:
    from accel.arrays import Bools, Int64s

__all__ = ["answering_facts", "column_texts"]


def column_texts(names: Sequence[str]) -> frozenset[str]:
    """Return the columns that a caller may mean by names, by `column_text`."""
    return frozenset(text for name in names for text in (column_text((name,)), column_text(name.split("."))))


async def answering_facts(
    answers: FactAnswers,
    files: Sequence[tuple[FileEntry, SegmentTables, int]],
    first: FileHandle,
    *,
    all_match: Mapping[str, Bools] | None,
    case_sensitive: bool,
    reader: SegmentReader,
) -> list[FileFacts | None]:
    """Return facts of the files that these answer for; None for the others, whose metadata is needed.

    Parameters
    ----------
    answers : FactAnswers
    files : sequence of (FileEntry, SegmentTables, int)
        Files, and where the catalog has them: the segment, and the ordinal in it.
    first : FileHandle
        The first file of the scan.
    all_match : mapping or None
        By segment, whether all rows of each file match; None where there is no predicate.
    case_sensitive : bool
        As for `split_name`.
    reader : SegmentReader
    """
    needed = answers.fact_columns()
    none: list[FileFacts | None] = [None] * len(files)
    paths: dict[str, tuple[str, ...]] = {}
    for name in needed or ():
        with suppress(AccelError):
            paths[name] = split_name(name, first.arrow_schema, case_sensitive=case_sensitive)
    if needed is None or not files:
        return none
    segments = {tables.segment.id: tables for _, tables, _ in files}
    works: list[Callable[[SegmentReader], Coroutine[Any, Any, Any]]] = []
    for tables in segments.values():
        works.append(partial(SegmentReader.load_counts, tables=tables))
        works.append(
            partial(SegmentReader.load_bounds, tables=tables, names=map(column_text, paths.values()))
        )
    await reader.side_by_side(works)
    listed: dict[str, dict[tuple[str, ...], _ListedValues]] = {}
    if answers.takes_values:
        for key, tables in segments.items():
            found = {path: await _ListedValues.read(tables, path, reader) for path in paths.values()}
            listed[key] = {path: values for path, values in found.items() if values is not None}
    fingerprint = schema_fingerprint(first.arrow_schema)
    types = {path: type_at(first.arrow_schema, path) for path in paths.values()}
    known = {
        key: {
            path: tables.bounds_of(BoundColumn(path, kind))
            for path, kind in types.items()
            if column_text(path) in tables.columns
        }
        for key, tables in segments.items()
    }
    out: list[FileFacts | None] = []
    for file, tables, at in files:
        counts, key = tables.counts, tables.segment.id
        matches = all_match is None or (key in all_match and bool(all_match[key][at]))
        if counts is None or not matches or counts.fingerprints[at] != fingerprint:
            out.append(None)
            continue
        told = listed.get(key, {})
        facts = FileFacts(
            version=file.version,
            num_rows=int(counts.num_rows[at]),
            all_match=True,
            figures={
                path: ColumnFigures(
                    type=types[path],
                    bounds=None if (bounds := known[key].get(path)) is None else bounds.part(at, at + 1),
                    values=values.of_file(at) if (values := told.get(path)) and values.covered[at] else None,
                )
                for path in types
            },
        )
        out.append(facts if answers.facts_suffice(facts, paths) else None)
    return out


@dataclass(frozen=True, slots=True, eq=False)
class _ListedValues:
    """The distinct values of a column in each file of a segment, which has an index of kind `distinct`."""

    covered: Bools
    values: pa.Array
    """Those of one file after those of the file before."""
    starts: Int64s

    @classmethod
    async def read(
        cls, tables: SegmentTables, path: tuple[str, ...], reader: SegmentReader
    ) -> _ListedValues | None:
        """Return None where there is no such index."""
        from accel.catalog.kinds.distincts import Distincts
        from accel.catalog.kinds.kind import file_column

        name = Distincts(column_text(path)).table
        if name not in tables.segment.objects:
            return None
        covered = tables.segment.covered_by(name)
        table = await reader.read_columns(tables, name, ("value", "file"))
        files = check_ordinals(file_column(table), len(covered))
        order = np.argsort(files, kind="stable")
        starts = np.searchsorted(files[order], np.arange(len(covered) + 1))
        values = whole(table.column("value")).take(pa.array(order))
        return cls(covered, values, np.asarray(starts, np.int64))

    def of_file(self, at: int) -> pa.Array:
        """Return the values in one file."""
        start, stop = self.starts[at : at + 2].tolist()
        return self.values.slice(start, stop - start)
