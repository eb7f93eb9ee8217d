"""Raw minima and maxima turned into comparable values, or into "unknown".

Sources: parquet-format `parquet.thrift` (Statistics, ColumnIndex, ColumnOrder), `PageIndex.md`.

A bound is claimed only where its order is defined and its bytes are of the right shape; nothing
here raises for what a writer got wrong, since unknown bounds only cost a read.
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
    FileMetadata,
    Leaf,
    Physical,
    Repetition,
    SchemaElement,
)
from accel.format.reading import Reading, reading_of

if TYPE_CHECKING:
    from accel.arrays import Bools, Int64s
    from accel.format.packed import Kin, PackedMetadata

__all__ = ["chunk_bounds", "joined_chunk_bounds", "miscounts_nulls", "page_bounds"]


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
    """`chunk_bounds` of files with one schema and one order of this column, one file's units after the other's."""
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
    here = (column("external") == 0) & (column("encrypted") == 0)
    nulls = np.where(here, column("null_count"), -1)
    nans = np.where(here, column("nan_count"), -1)
    counts = _settle_counts(rows, nulls, nans, element, leaf)
    reading = reading_of(element, arrow_type)
    if reading is None:
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
    return _make_bounds(stored.blob, reading, lower, upper, usable, counts)


def page_bounds(
    metadata: FileMetadata,
    leaf_ordinal: int,
    index: ColumnIndex,
    page_rows: Int64s,
    *,
    arrow_type: pa.DataType,
) -> Bounds:
    """Bounds of one column in each data page of a chunk, from its column index.

    Parameters
    ----------
    metadata, leaf_ordinal, arrow_type
        As for `chunk_bounds`.
    index : ColumnIndex
    page_rows : array of int64
        Rows of each page, of the same length.

    Returns
    -------
    Bounds
        One unit a page. The boundary order is not trusted to imply anything.
    """
    leaf = metadata.schema.leaves[leaf_ordinal]
    if leaf.max_repetition > 0 or index.num_pages != len(page_rows):
        return Bounds.unknown(np.full(len(page_rows), -1, np.int64))
    element = metadata.schema.elements[leaf.element]
    # A page that claims to be all null, and to have fewer nulls than rows, is not believed.
    nulls = np.where(index.null_pages & (index.null_count < 0), page_rows, index.null_count)
    nulls = np.where(index.null_pages == (nulls == page_rows), nulls, -1)
    # It may hold NaN, too: to its writer a page without bounds, as one of nothing but NaN is, may have looked all null.
    counts = _settle_counts(page_rows, nulls, index.nan_count, element, leaf)
    reading = reading_of(element, arrow_type)
    if reading is None:
        return _counts_only(counts)
    usable = ~index.null_pages & np.full(len(page_rows), _is_ordered(metadata, leaf_ordinal, reading))
    lower = _Side(index.min_start, index.min_length)
    upper = _Side(index.max_start, index.max_length)
    return _make_bounds(index.blob, reading, lower, upper, usable, counts)


def _is_ordered(metadata: FileMetadata | Kin, leaf_ordinal: int, reading: Reading) -> bool:
    order = metadata.column_orders[leaf_ordinal]
    if order == ColumnOrder.IEEE754_TOTAL:
        return reading.domain is Domain.FLOAT
    return bool(order == ColumnOrder.TYPE_DEFINED)


def _choose(first: Bools, a: _Side, b: _Side) -> _Side:
    return _Side(np.where(first, a.start, b.start), np.where(first, a.length, b.length))


def miscounts_nulls(element: SchemaElement, leaf: Leaf) -> bool:
    """Whether null counts of a column may lack nulls.

    Arrow's writer (26.0.1 still) counts, of texts that it was given dictionary-encoded, only their own nulls, and not
    those of the structs that they are in.
    """
    own = element.repetition == Repetition.OPTIONAL
    return element.physical == Physical.BYTE_ARRAY and leaf.max_definition > own


def _settle_counts(
    values: Int64s, nulls: Int64s, nans: Int64s, element: SchemaElement, leaf: Leaf
) -> _Counts:
    """Counts that cannot be true, or may not be, become unknown; what the schema says needs no count."""
    if leaf.max_definition == 0:
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
    blob: bytes, reading: Reading, lower: _Side, upper: _Side, usable: Bools, counts: _Counts
) -> Bounds:
    low, has_low = decode_bounds(
        blob, reading, start=lower.start, length=lower.length, wanted=usable & (lower.start >= 0)
    )
    high, has_high = decode_bounds(
        blob, reading, start=upper.start, length=upper.length, wanted=usable & (upper.start >= 0)
    )
    if reading.least is not None:
        has_low = has_high = has_low & has_high
    if reading.domain is Domain.FLOAT:
        low, high = np.where(low == 0, -0.0, low), np.where(high == 0, 0.0, high)
    both = has_low & has_high
    if both.any():
        crossed = both.copy()
        crossed[both] = np.greater(low[both], high[both]).astype(bool)
        has_low, has_high = has_low & ~crossed, has_high & ~crossed
    return Bounds(reading.domain, low, high, has_low, has_high, counts.values, counts.nulls, counts.nans)
