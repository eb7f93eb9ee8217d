"""Raw minima and maxima turned into comparable values, or into "unknown".

Sources: parquet-format `parquet.thrift` (Statistics, ColumnIndex, ColumnOrder), `PageIndex.md`.

A bound is claimed only where its order is defined and its bytes are of the right shape, where its writer is not known
to get it wrong (`format.writers`), and where nothing beside it contradicts it. Nothing here raises for what a writer
got wrong, since unknown bounds only cost a read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from accel.format.annotations import LogicalType
from accel.format.bound_values import decode_bounds
from accel.format.domain import Bounds, Domain
from accel.format.model import (
    ColumnIndex,
    ColumnOrder,
    Encoding,
    FileMetadata,
    Leaf,
    Physical,
    SchemaElement,
)
from accel.format.page_claims import agrees_with_chunk
from accel.format.reading import Raw, Reading, plain_type, reading_of
from accel.format.writers import Doubts, doubts_about, miscounts_nulls

if TYPE_CHECKING:
    from accel.arrays import Bools, Int64s
    from accel.format.packed import Kin, PackedMetadata

__all__ = [
    "chunk_bounds",
    "chunk_extremes",
    "joined_chunk_bounds",
    "null_counts",
    "page_bounds",
    "page_extremes",
]

_DICTIONARY_ENCODED = 1 << Encoding.PLAIN_DICTIONARY | 1 << Encoding.RLE_DICTIONARY


@dataclass(frozen=True, slots=True)
class _Side:
    """Raw lower, or raw upper, bounds: positions in a blob, start -1 where absent."""

    start: Int64s
    length: Int64s


@dataclass(frozen=True, slots=True, eq=False)
class _Statistics:
    """What the footers of one file, or of several, say of one column in each row group."""

    rows: Int64s
    """Of each row group."""
    column: Callable[[str], npt.NDArray[Any]]
    """A column of the ChunkTable by its name."""
    blob: bytes
    """The footer, or the footers one after the other."""
    shift: Int64s | None = None
    """Where in `blob` the footer of each row group begins; None where there is but one footer."""

    def side(self, name: str) -> _Side:
        """One of the four bounds: "min", "max", and the deprecated "old_min" and "old_max"."""
        starts = self.column(f"{name}_start")
        if self.shift is not None:
            starts = np.where(starts >= 0, starts + self.shift, -1)
        return _Side(starts, self.column(f"{name}_length"))


@dataclass(frozen=True, slots=True)
class _Counts:
    values: Int64s
    nulls: Int64s
    nans: Int64s


def chunk_bounds(metadata: FileMetadata, leaf_ordinal: int, *, arrow_type: pa.DataType) -> Bounds:
    """Bounds of one column in each row group, from the chunks' statistics.

    Parameters
    ----------
    metadata : FileMetadata
    leaf_ordinal : int
        Of the column, among the schema's leaves.
    arrow_type : pyarrow.DataType
        What the column decodes to: integer bounds are in its ticks and scale.

    Returns
    -------
    Bounds
        One unit a row group. The domain is NONE where Parquet's and Arrow's types do not go with each
        other in a way known here; the counts hold even so. Of repeated columns nothing is known.
    """
    chunks = metadata.chunks

    def column(name: str) -> npt.NDArray[Any]:
        found: npt.NDArray[Any] = getattr(chunks, name)[:, leaf_ordinal]
        return found

    stored = _Statistics(metadata.group_rows, column, metadata.footer)
    return _chunk_bounds(metadata, leaf_ordinal, stored, arrow_type)


def joined_chunk_bounds(
    files: Sequence[PackedMetadata], leaf_ordinal: int, *, arrow_type: pa.DataType
) -> Bounds:
    """`chunk_bounds` of files with one schema, one order of this column and the same doubts about it, one file's units
    after the other's."""
    from accel.format.packed import chunks_of_leaf

    rows = np.concatenate([file.group_rows for file in files])
    columns = chunks_of_leaf(files, leaf_ordinal)
    blob, shift = files[0].footer, None
    if len(files) > 1:
        blob = b"".join([file.footer for file in files])
        sizes = np.array([len(file.footer) for file in files], np.int64)
        shift = np.repeat(np.cumsum(sizes) - sizes, [file.num_row_groups for file in files])
    stored = _Statistics(rows, columns.__getitem__, blob, shift)
    return _chunk_bounds(files[0].kin, leaf_ordinal, stored, arrow_type)


def _chunk_bounds(
    metadata: FileMetadata | Kin, leaf_ordinal: int, stored: _Statistics, arrow_type: pa.DataType
) -> Bounds:
    rows, column = stored.rows, stored.column
    leaf = metadata.schema.leaves[leaf_ordinal]
    if leaf.max_repetition > 0:
        return Bounds.unknown(np.full(len(rows), -1, np.int64))
    element = metadata.schema.elements[leaf.element]
    doubts = doubts_about(metadata, leaf_ordinal, arrow_type=arrow_type)
    here = (column("external") == 0) & (column("encrypted") == 0)
    nulls = _settle_nulls(column, rows, doubts)
    nans = np.where(here, column("nan_count"), -1)
    counts = _settle_counts(rows, np.where(here, nulls, -1), nans, element, leaf, arrow_type)
    reading = reading_of(element, arrow_type)
    if reading is None or doubts.bounds:
        return _counts_only(counts)

    lower, upper = stored.side("min"), stored.side("max")
    ordered = _is_ordered(metadata, leaf_ordinal, reading)
    current = np.full(len(rows), ordered) & ((lower.start >= 0) | (upper.start >= 0))
    if reading.signed_order:
        # The two pairs are never mixed: they may be of different orders.
        lower = _choose(current, lower, stored.side("old_min"))
        upper = _choose(current, upper, stored.side("old_max"))
        current = np.ones(len(rows), bool)
    usable = here & current & (counts.nulls < np.maximum(rows, 1))
    whole = column("max_exact") == 1
    return _make_bounds(stored.blob, reading, lower, upper, usable, counts, whole=whole)


def _settle_nulls(column: Callable[[str], npt.NDArray[Any]], rows: Int64s, doubts: Doubts) -> Int64s:
    """The null counts of chunks that are believed."""
    nulls = column("null_count")
    if doubts.null_counts:
        return np.full_like(nulls, -1)
    full = _is_all_null_with_bounds(column, rows)
    if full.any():
        nulls = np.where(full, -1, nulls)
    if doubts.repeated_null_counts:
        coded = (column("encodings") & _DICTIONARY_ENCODED) != 0
        nulls = np.where(coded & (nulls > 0), -1, nulls)
    return nulls


def _is_all_null_with_bounds(column: Callable[[str], npt.NDArray[Any]], rows: Int64s) -> Bools:
    """Where a chunk counts as many nulls as it has values, and gives bounds of these: the count is wrong, or else the
    bounds are of nothing and may be any."""
    full: Bools = (column("null_count") >= rows) & (rows > 0)
    if full.any():
        names = ("min_start", "max_start", "old_min_start", "old_max_start")
        full &= np.logical_or.reduce([column(name) >= 0 for name in names])
    return full


def null_counts(metadata: FileMetadata, leaf_ordinal: int, *, arrow_type: pa.DataType) -> Int64s:
    """The null counts of a column in each row group that are believed, also inside lists; -1 for others."""
    doubts = doubts_about(metadata, leaf_ordinal, arrow_type=arrow_type)
    chunks = metadata.chunks
    return _settle_nulls(
        lambda name: getattr(chunks, name)[:, leaf_ordinal], chunks.num_values[:, leaf_ordinal], doubts
    )


def chunk_extremes(
    metadata: FileMetadata, leaf_ordinal: int, *, arrow_type: pa.DataType
) -> tuple[npt.NDArray[np.int8], npt.NDArray[np.int8]]:
    """Whether the lower, and whether the upper, bounds of a column in each row group occur as values: 1, 0, or -1 where
    the statistics do not say."""
    chunks, rows = metadata.chunks, metadata.group_rows

    def column(name: str) -> npt.NDArray[Any]:
        found: npt.NDArray[Any] = getattr(chunks, name)[:, leaf_ordinal]
        return found

    doubtful = _is_all_null_with_bounds(column, rows)
    if doubts_about(metadata, leaf_ordinal, arrow_type=arrow_type).extremes:
        doubtful = doubtful | (column("null_count") != 0)
    low, high = (np.where(doubtful, np.int8(0), column(name)) for name in ("min_exact", "max_exact"))
    return low, high


def page_extremes(
    metadata: FileMetadata,
    leaf_ordinal: int,
    index: ColumnIndex,
    page_rows: Int64s,
    *,
    arrow_type: pa.DataType,
) -> npt.NDArray[np.int8]:
    """The same of both bounds of each page, of which a column index says nothing: 0 or -1."""
    doubtful = ~index.null_pages & (index.null_count >= page_rows)
    if doubts_about(metadata, leaf_ordinal, arrow_type=arrow_type).extremes:
        doubtful |= index.null_count != 0
    return np.where(doubtful, np.int8(0), np.int8(-1))


def page_bounds(
    metadata: FileMetadata,
    leaf_ordinal: int,
    index: ColumnIndex,
    page_rows: Int64s,
    *,
    arrow_type: pa.DataType,
    chunk: Bounds | None = None,
) -> Bounds:
    """Bounds of one column in each data page of a chunk, from its column index.

    Parameters
    ----------
    metadata, leaf_ordinal, arrow_type
        As for `chunk_bounds`.
    index : ColumnIndex
    page_rows : array of int64
        Rows of each page, of the same length.
    chunk : Bounds, optional
        Of the whole chunk, as one unit: what the pages say is not believed where it contradicts that.

    Returns
    -------
    Bounds
        One unit a page. The boundary order is not trusted to imply anything.
    """
    leaf = metadata.schema.leaves[leaf_ordinal]
    if leaf.max_repetition > 0 or index.num_pages != len(page_rows):
        return Bounds.unknown(np.full(len(page_rows), -1, np.int64))
    element = metadata.schema.elements[leaf.element]
    doubts = doubts_about(metadata, leaf_ordinal, arrow_type=arrow_type)
    nulls = _settle_page_nulls(index, page_rows, doubts, chunk)
    # A page that is not all null may hold NaN, too: to its writer a page without bounds, as one of nothing but NaN is, may
    # have looked all null.
    counts = _settle_counts(page_rows, nulls, index.nan_count, element, leaf, arrow_type)
    reading = reading_of(element, arrow_type)
    if reading is None or doubts.bounds:
        return _counts_only(counts)
    usable = ~index.null_pages & np.full(len(page_rows), _is_ordered(metadata, leaf_ordinal, reading))
    lower = _Side(index.min_start, index.min_length)
    upper = _Side(index.max_start, index.max_length)
    if doubts.page_uppers and reading.raw is Raw.BYTES:
        upper = _Side(np.full_like(index.max_start, -1), index.max_length)
    whole = np.zeros(len(page_rows), bool)
    found = _make_bounds(index.blob, reading, lower, upper, usable, counts, whole=whole)
    if chunk is not None and not agrees_with_chunk(found, chunk, valued=~index.null_pages):
        return _counts_only(counts)
    return found


def _settle_page_nulls(index: ColumnIndex, page_rows: Int64s, doubts: Doubts, chunk: Bounds | None) -> Int64s:
    """The null counts of pages that are believed."""
    if doubts.null_counts:
        return np.full(len(page_rows), -1, np.int64)
    # A page that claims to be all null, and to have fewer nulls than rows, or bounds, is not believed.
    bounded = (index.min_length > 0) | (index.max_length > 0)
    nulls = np.where(index.null_pages & (index.null_count < 0) & ~bounded, page_rows, index.null_count)
    nulls = np.where(index.null_pages == (nulls == page_rows), nulls, -1)
    if doubts.repeated_null_counts:
        nulls = np.where(nulls > 0, -1, nulls)
    if chunk is not None and chunk.null_count[0] >= 0:
        # Nor are pages that have more nulls together than their chunk has, or fewer.
        counted = nulls >= 0
        total, whole = int(nulls[counted].sum()), int(chunk.null_count[0])
        if total > whole or (counted.all() and total < whole):
            return np.full(len(page_rows), -1, np.int64)
    return nulls


def _is_ordered(metadata: FileMetadata | Kin, leaf_ordinal: int, reading: Reading) -> bool:
    order = metadata.column_orders[leaf_ordinal]
    if order == ColumnOrder.IEEE754_TOTAL:
        return reading.domain is Domain.FLOAT
    return bool(order == ColumnOrder.TYPE_DEFINED)


def _choose(first: Bools, a: _Side, b: _Side) -> _Side:
    return _Side(np.where(first, a.start, b.start), np.where(first, a.length, b.length))


def _settle_counts(
    values: Int64s, nulls: Int64s, nans: Int64s, element: SchemaElement, leaf: Leaf, arrow_type: pa.DataType
) -> _Counts:
    """Counts that cannot be true, or may not be, become unknown; what the types say needs no count."""
    plain = plain_type(arrow_type)
    if plain is not None and pa.types.is_null(plain):
        # So it is decoded, whatever is stored.
        nulls = values
    elif leaf.max_definition == 0:
        nulls = np.zeros_like(values)
    else:
        nulls = np.where((nulls >= 0) & (nulls <= values), nulls, -1)
        if miscounts_nulls(element, leaf):
            nulls = np.where(nulls == values, nulls, -1)
    floating = (
        element.physical in (Physical.FLOAT, Physical.DOUBLE) or element.logical_type == LogicalType.FLOAT16
    )
    if not floating:
        return _Counts(values, nulls, np.zeros_like(values))
    possible = (nans >= 0) & (nans <= values - np.maximum(nulls, 0))
    nans = np.where(possible, nans, -1)
    return _Counts(values, nulls, np.where(nulls == values, 0, nans))


def _counts_only(counts: _Counts) -> Bounds:
    n = len(counts.values)
    nothing, void = np.zeros(n, bool), np.zeros(n, np.int64)
    return Bounds(Domain.NONE, void, void, nothing, nothing, counts.values, counts.nulls, counts.nans)


def _make_bounds(
    blob: bytes,
    reading: Reading,
    lower: _Side,
    upper: _Side,
    usable: Bools,
    counts: _Counts,
    *,
    whole: Bools,
) -> Bounds:
    """The bounds where they are usable; `whole` tells which upper ones are known not to be cut."""
    low, has_low = decode_bounds(
        blob, reading, start=lower.start, length=lower.length, wanted=usable & (lower.start >= 0)
    )
    high, has_high = decode_bounds(
        blob, reading, start=upper.start, length=upper.length, wanted=usable & (upper.start >= 0)
    )
    if reading.least is not None:
        has_low = has_high = has_low & has_high
    if reading.raw is Raw.BYTES:
        has_high = has_high & (whole | ~_is_topmost(high))
    if reading.domain is Domain.FLOAT:
        low, high = np.where(low == 0, -0.0, low), np.where(high == 0, 0.0, high)
    both = has_low & has_high
    if both.any():
        crossed = both.copy()
        crossed[both] = np.greater(low[both], high[both]).astype(bool)
        has_low, has_high = has_low & ~crossed, has_high & ~crossed
    return Bounds(reading.domain, low, high, has_low, has_high, counts.values, counts.nulls, counts.nans)


def _is_topmost(values: npt.NDArray[Any]) -> Bools:
    """Where all bytes are 0xFF, so that a bound which was cut there could not be raised."""
    return np.array([v[:1] == b"\xff" and not v.strip(b"\xff") for v in values.tolist()], bool)
