"""What a catalog says of whole files, as facts that answer counts, extremes and distinct values without their metadata.

Bounds of a file in a catalog may have been cut, or come from a writer that cuts them. They are values of the column where both
are equal and short, and where the type has a fixed width: integers, floats, dates, times and timestamps. Of decimals and
truth values are only in the metadata. A file counts only if its columns are those of the first file of the scan, by which
the types of the question are settled.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from accel.arrays import whole
from accel.catalog.describing import column_text, schema_fingerprint
from accel.catalog.kind import check_ordinals
from accel.catalog.segments import SegmentReader, SegmentTables
from accel.errors import AccelError
from accel.format.domain import Bounds, Domain, storage_type
from accel.indexes.native import from_natives, tag_of
from accel.planning.distinct_values import as_column
from accel.planning.file_entry import FileEntry, FileFacts, ValueRange
from accel.planning.handle import FileHandle
from accel.planning.projection import split_name, type_at
from accel.predicate.atoms import BoundColumn
from accel.predicate.kinds import Family, kind_of
from accel.scanning.file_source import FactAnswers

if TYPE_CHECKING:
    from accel.arrays import Bools, Int64s

__all__ = ["answering_facts", "column_texts"]

_EXACT: Final = frozenset(
    {Family.INTEGER, Family.FLOAT, Family.DATE, Family.TIME, Family.TIMESTAMP, Family.DURATION}
)
"""Bounds of these families are values, or else the catalog has no count of nulls."""
_LEAST_CUT: Final = 16
"""Bytes. Writers that cut bounds leave as many at least."""
_MOST_INTEGER: Final = 1 << 63
"""Integers, or nanoseconds, whose encoding is exact."""


def column_texts(names: Sequence[str]) -> frozenset[str]:
    """Return the columns that a caller may mean by names, by `column_text`."""
    return frozenset(text for name in names for text in (column_text((name,)), column_text(name.split("."))))


async def answering_facts(
    answers: FactAnswers,
    files: Sequence[tuple[FileEntry, SegmentTables, int]],
    first: FileHandle,
    *,
    all_match: Mapping[str, Bools] | None,
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
    reader : SegmentReader
    """
    asked = answers.fact_columns()
    none: list[FileFacts | None] = [None] * len(files)
    paths: dict[str, tuple[str, ...]] = {}
    for name in asked or ():
        with suppress(AccelError):
            paths[name] = split_name(name, first.arrow_schema)
    if asked is None or not files:
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
    ranges = {
        key: {path: _ranges(tables, path, first) for path in paths.values()}
        for key, tables in segments.items()
    }
    out: list[FileFacts | None] = []
    for file, tables, at in files:
        counts, key = tables.counts, tables.segment.id
        matches = all_match is None or (key in all_match and bool(all_match[key][at]))
        if counts is None or not matches or counts.fingerprints[at] != fingerprint:
            out.append(None)
            continue
        facts = FileFacts(
            size=file.size,
            etag=file.etag,
            num_rows=int(counts.num_rows[at]),
            all_match=True,
            bounds={path: found(at) for path, found in ranges[key].items() if found is not None},
            values={
                path: values.of_file(at) for path, values in listed.get(key, {}).items() if values.covered[at]
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
        from accel.catalog.distincts import Distincts
        from accel.catalog.kind import file_column

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


def _ranges(
    tables: SegmentTables, path: tuple[str, ...], first: FileHandle
) -> Callable[[int], ValueRange] | None:
    """Return the evidence of the range of a column in each file; None where the catalog has nothing about the column."""
    if column_text(path) not in tables.columns:
        return None
    kind = type_at(first.arrow_schema, path)
    bounds = tables.bounds_of(BoundColumn(path, kind))
    exact = _exact(bounds, kind)
    lower, upper = _scalars(bounds.lower, kind), _scalars(bounds.upper, kind)

    def of_file(at: int) -> ValueRange:
        nulls, nans = int(bounds.null_count[at]), int(bounds.nan_count[at])
        known = bool(exact[at])
        return ValueRange(
            lower=lower[at] if known and lower is not None else None,
            upper=upper[at] if known and upper is not None else None,
            null_count=nulls if nulls >= 0 else None,
            nan_count=nans if nans >= 0 else None,
            exact=known,
        )

    return of_file


def _exact(bounds: Bounds, kind: pa.DataType) -> Bools:
    """Where both bounds are values."""
    found = kind_of(kind)
    ends = list(zip(bounds.lower.tolist(), bounds.upper.tolist(), strict=True))
    if bounds.domain is Domain.BYTES:
        values = [low == high and len(low) < _LEAST_CUT for low, high in ends]
    elif bounds.domain is Domain.INTEGER and found.family in _EXACT:
        values = [max(abs(low), abs(high)) * found.numerator < _MOST_INTEGER for low, high in ends]
    elif bounds.domain is Domain.FLOAT:
        values = [True] * len(ends)
    else:
        values = [low == high for low, high in ends]
    exact: Bools = bounds.has_lower & bounds.has_upper & np.array(values, bool)
    return exact


def _scalars(values: Any, kind: pa.DataType) -> pa.Array | None:
    """Native bounds as values of the column's type."""
    tag = tag_of(kind)
    if tag is None:
        return None
    floating = kind_of(kind).domain is Domain.FLOAT
    natives = [value + 0.0 for value in values.tolist()] if floating else values.tolist()
    width = storage_type(kind)
    if pa.types.is_fixed_size_binary(width):
        # Where there is no bound, there is an empty one.
        natives = [value if len(value) == width.byte_width else bytes(width.byte_width) for value in natives]
    return as_column(from_natives(natives, tag), kind)
