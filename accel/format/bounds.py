"""Raw minima and maxima turned into comparable values, or into "unknown".

Sources: parquet-format `parquet.thrift` (Statistics, ColumnIndex, ColumnOrder), `PageIndex.md`.

A bound counts only where its order is defined, its bytes have the right length, its writer has no known fault
(`format.writers`) and no other statistic contradicts it. Wrong statistics raise no error, since an unknown
bound only costs a read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from accel.format.domain import (
    BoundEncoding,
    Bounds,
    Domain,
    RawType,
    bound_encoding,
    decode_bounds,
    storage_type,
)
from accel.format.model import ColumnIndex, ColumnOrder, Encoding, FileMetadata, Leaf, Physical, SchemaElement
from accel.format.packed import PackedMetadata, SharedMetadata, chunks_of_leaf
from accel.format.schema import LogicalType
from accel.format.writers import Doubts, doubts_about, miscounts_nulls

if TYPE_CHECKING:
    from accel.arrays import Bools, Int64s

__all__ = [
    "agrees_with_chunk",
    "chunk_bounds",
    "exact_chunk_bounds",
    "exact_joined_bounds",
    "exact_page_bounds",
    "joined_chunk_bounds",
    "null_counts",
    "page_bounds",
    "settle_exactness",
]

_DICTIONARY_ENCODED = 1 << Encoding.PLAIN_DICTIONARY | 1 << Encoding.RLE_DICTIONARY


@dataclass(frozen=True, slots=True)
class _Side:
    """The raw lower or upper bounds, as positions in a blob; the start is -1 where there is none."""

    start: Int64s
    length: Int64s


@dataclass(frozen=True, slots=True, eq=False)
class _Statistics:
    """The statistics of one column in each row group, of one file or of several."""

    rows: Int64s
    """Rows of each row group."""
    column: Callable[[str], npt.NDArray[Any]]
    """Returns a column of the ChunkTable by its name."""
    blob: bytes
    """The footer, or the concatenated footers."""
    shift: Int64s | None = None
    """The offset in `blob` of each row group's footer; None for a single footer."""

    def side(self, name: str) -> _Side:
        """Return one of the four bounds: "min", "max", and the deprecated "old_min" and "old_max"."""
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
    """Return the bounds of one column in each row group, from the chunks' statistics.

    Parameters
    ----------
    metadata : FileMetadata
    leaf_ordinal : int
        The column's place among the schema's leaves.
    arrow_type : pyarrow.DataType
        What the column decodes to: integer bounds are in its ticks and scale.

    Returns
    -------
    Bounds
        One unit a row group. The domain is NONE where this reader does not support the pair of Parquet
        and Arrow types; the counts are valid even then. For repeated columns nothing is claimed.
    """
    stored = _Statistics(metadata.group_rows, _chunk_column(metadata, leaf_ordinal), metadata.footer)
    return _chunk_bounds(metadata, leaf_ordinal, stored, arrow_type)


def _chunk_column(metadata: FileMetadata, leaf_ordinal: int) -> Callable[[str], npt.NDArray[Any]]:
    """Return a function that returns a leaf's column of the ChunkTable by its name."""
    chunks = metadata.chunks
    return lambda name: getattr(chunks, name)[:, leaf_ordinal]


def joined_chunk_bounds(
    files: Sequence[PackedMetadata], leaf_ordinal: int, *, arrow_type: pa.DataType
) -> Bounds:
    """Return the `chunk_bounds` of several files, concatenated.

    The files have one schema, and the same column order and doubts for this column.
    """
    rows = np.concatenate([file.group_rows for file in files])
    columns = chunks_of_leaf(files, leaf_ordinal)
    blob, shift = files[0].footer, None
    if len(files) > 1:
        blob = b"".join([file.footer for file in files])
        sizes = np.array([len(file.footer) for file in files], np.int64)
        shift = np.repeat(np.cumsum(sizes) - sizes, [file.num_row_groups for file in files])
    stored = _Statistics(rows, columns.__getitem__, blob, shift)
    return _chunk_bounds(files[0].shared, leaf_ordinal, stored, arrow_type)


def exact_joined_bounds(
    files: Sequence[PackedMetadata], leaf_ordinal: int, bounds: Bounds, *, arrow_type: pa.DataType
) -> Bounds:
    """Return the `joined_chunk_bounds` of a column, with what is known of their exactness."""
    rows = np.concatenate([file.group_rows for file in files])
    column = chunks_of_leaf(files, leaf_ordinal).__getitem__
    return _exact_bounds(files[0].shared, leaf_ordinal, bounds, column, rows, arrow_type)


def _chunk_bounds(
    metadata: FileMetadata | SharedMetadata, leaf_ordinal: int, stored: _Statistics, arrow_type: pa.DataType
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
    encoding = bound_encoding(element, arrow_type)
    if encoding is None or doubts.bounds:
        return _counts_only(counts)

    lower, upper = stored.side("min"), stored.side("max")
    ordered = _is_ordered(metadata, leaf_ordinal, encoding)
    current = np.full(len(rows), ordered) & ((lower.start >= 0) | (upper.start >= 0))
    if encoding.signed_order:
        # The two pairs are never mixed: they may be of different orders.
        lower = _choose(current, lower, stored.side("old_min"))
        upper = _choose(current, upper, stored.side("old_max"))
        current = np.ones(len(rows), bool)
    usable = here & current & (counts.nulls < np.maximum(rows, 1))
    whole = column("max_exact") == 1
    return _make_bounds(stored.blob, encoding, lower, upper, usable, counts, whole=whole)


def _settle_nulls(column: Callable[[str], npt.NDArray[Any]], rows: Int64s, doubts: Doubts) -> Int64s:
    """Return the null counts of chunks, -1 where they are not trusted."""
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
    """Return where a chunk counts as many nulls as values and still has bounds: either the count or the
    bounds are wrong."""
    full: Bools = (column("null_count") >= rows) & (rows > 0)
    if full.any():
        names = ("min_start", "max_start", "old_min_start", "old_max_start")
        full &= np.logical_or.reduce([column(name) >= 0 for name in names])
    return full


def null_counts(metadata: FileMetadata, leaf_ordinal: int, *, arrow_type: pa.DataType) -> Int64s:
    """Return the null counts of a column in each row group, also inside lists; -1 where they are not
    trusted."""
    column = _chunk_column(metadata, leaf_ordinal)
    doubts = doubts_about(metadata, leaf_ordinal, arrow_type=arrow_type)
    return _settle_nulls(column, column("num_values"), doubts)


_LEAST_CUT: Final = 16
"""Bytes. Writers that cut bounds leave as many at least: equal bounds of fewer are values."""


def exact_chunk_bounds(
    metadata: FileMetadata, leaf_ordinal: int, bounds: Bounds, *, arrow_type: pa.DataType
) -> Bounds:
    """Return the `chunk_bounds` of a column, with what is known of their exactness."""
    column = _chunk_column(metadata, leaf_ordinal)
    return _exact_bounds(metadata, leaf_ordinal, bounds, column, metadata.group_rows, arrow_type)


def _exact_bounds(
    metadata: FileMetadata | SharedMetadata,
    leaf_ordinal: int,
    bounds: Bounds,
    column: Callable[[str], npt.NDArray[Any]],
    rows: Int64s,
    arrow_type: pa.DataType,
) -> Bounds:
    doubtful = _is_all_null_with_bounds(column, rows)
    if doubts_about(metadata, leaf_ordinal, arrow_type=arrow_type).extremes:
        doubtful = doubtful | (column("null_count") != 0)
    low, high = (np.where(doubtful, np.int8(0), column(name)) for name in ("min_exact", "max_exact"))
    return settle_exactness(bounds, _element(metadata, leaf_ordinal), low, high)


def _element(metadata: FileMetadata | SharedMetadata, leaf_ordinal: int) -> SchemaElement:
    return metadata.schema.elements[metadata.schema.leaves[leaf_ordinal].element]


def exact_page_bounds(
    metadata: FileMetadata,
    leaf_ordinal: int,
    index: ColumnIndex,
    bounds: Bounds,
    *,
    arrow_type: pa.DataType,
) -> Bounds:
    """Return the `page_bounds` of a column, with what is known of their exactness. A column index does not
    record it."""
    doubtful = ~index.null_pages & (index.null_count >= bounds.num_values)
    if doubts_about(metadata, leaf_ordinal, arrow_type=arrow_type).extremes:
        doubtful |= index.null_count != 0
    found = np.where(doubtful, np.int8(0), np.int8(-1))
    return settle_exactness(bounds, _element(metadata, leaf_ordinal), found, found)


def settle_exactness(
    bounds: Bounds, element: SchemaElement, low: npt.NDArray[Any], high: npt.NDArray[Any]
) -> Bounds:
    """Return bounds with their exactness.

    Parameters
    ----------
    bounds : Bounds
        The bounds of a column that is not repeated.
    element : SchemaElement
        The column's.
    low, high : array of int8
        Whether they occur as values, by the metadata: 1, 0, or -1 where that is unknown.
    """
    # Numbers of a fixed width cannot be cut short, texts and decimals in bytes can.
    if element.physical is not Physical.BYTE_ARRAY and bounds.domain is not Domain.BYTES:
        return replace(
            bounds, lower_exact=bounds.has_lower & (low != 0), upper_exact=bounds.has_upper & (high != 0)
        )
    lower_exact, upper_exact = bounds.has_lower & (low == 1), bounds.has_upper & (high == 1)
    # Of values between two equal bounds, which were not cut, there is one.
    open_to = bounds.has_lower & bounds.has_upper & (low != 0) & (high != 0) & ~(lower_exact & upper_exact)
    for at in np.flatnonzero(open_to).tolist():
        value = bounds.lower[at]
        if value == bounds.upper[at] and (not isinstance(value, bytes) or len(value) < _LEAST_CUT):
            lower_exact[at] = upper_exact[at] = True
    return replace(bounds, lower_exact=lower_exact, upper_exact=upper_exact)


def page_bounds(
    metadata: FileMetadata,
    leaf_ordinal: int,
    index: ColumnIndex,
    page_rows: Int64s,
    *,
    arrow_type: pa.DataType,
    chunk: Bounds | None = None,
) -> Bounds:
    """Return the bounds of one column in each data page of a chunk, from its column index.

    Parameters
    ----------
    metadata, leaf_ordinal, arrow_type
        As for `chunk_bounds`.
    index : ColumnIndex
    page_rows : array of int64
        Rows of each page, of the same length.
    chunk : Bounds, optional
        Bounds of the whole chunk, as one unit. Page bounds that contradict them are not used.

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
    # A null page may hold NaN too: some writers mark a page of nothing but NaN, which has no bounds, as a
    # null page.
    counts = _settle_counts(page_rows, nulls, index.nan_count, element, leaf, arrow_type)
    encoding = bound_encoding(element, arrow_type)
    if encoding is None or doubts.bounds:
        return _counts_only(counts)
    usable = ~index.null_pages & np.full(len(page_rows), _is_ordered(metadata, leaf_ordinal, encoding))
    lower = _Side(index.min_start, index.min_length)
    upper = _Side(index.max_start, index.max_length)
    if doubts.page_uppers and encoding.raw is RawType.BYTES:
        upper = _Side(np.full_like(index.max_start, -1), index.max_length)
    whole = np.zeros(len(page_rows), bool)
    found = _make_bounds(index.blob, encoding, lower, upper, usable, counts, whole=whole)
    if chunk is not None and not agrees_with_chunk(found, chunk, valued=~index.null_pages):
        return _counts_only(counts)
    return found


def _settle_page_nulls(index: ColumnIndex, page_rows: Int64s, doubts: Doubts, chunk: Bounds | None) -> Int64s:
    """Return the null counts of pages, -1 where they are not trusted."""
    if doubts.null_counts:
        return np.full(len(page_rows), -1, np.int64)
    # A null page with bounds, or with fewer nulls than rows, contradicts itself.
    bounded = (index.min_length > 0) | (index.max_length > 0)
    nulls = np.where(index.null_pages & (index.null_count < 0) & ~bounded, page_rows, index.null_count)
    nulls = np.where(index.null_pages == (nulls == page_rows), nulls, -1)
    if doubts.repeated_null_counts:
        nulls = np.where(nulls > 0, -1, nulls)
    if chunk is not None and chunk.null_count[0] >= 0:
        # So do pages whose nulls together differ from the chunk's count.
        counted = nulls >= 0
        total, whole = int(nulls[counted].sum()), int(chunk.null_count[0])
        if total > whole or (counted.all() and total < whole):
            return np.full(len(page_rows), -1, np.int64)
    return nulls


def _is_ordered(metadata: FileMetadata | SharedMetadata, leaf_ordinal: int, encoding: BoundEncoding) -> bool:
    order = metadata.column_orders[leaf_ordinal]
    if order == ColumnOrder.IEEE754_TOTAL:
        return encoding.domain is Domain.FLOAT
    return bool(order == ColumnOrder.TYPE_DEFINED)


def _choose(first: Bools, a: _Side, b: _Side) -> _Side:
    return _Side(np.where(first, a.start, b.start), np.where(first, a.length, b.length))


def _settle_counts(
    values: Int64s, nulls: Int64s, nans: Int64s, element: SchemaElement, leaf: Leaf, arrow_type: pa.DataType
) -> _Counts:
    """Make impossible and doubtful counts unknown, and derive the counts that follow from the types."""
    if pa.types.is_null(storage_type(arrow_type)):
        # A column of type null decodes to nulls, whatever is stored.
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
    encoding: BoundEncoding,
    lower: _Side,
    upper: _Side,
    usable: Bools,
    counts: _Counts,
    *,
    whole: Bools,
) -> Bounds:
    """Decode the bounds where they are usable; `whole` marks upper bounds that are certainly not
    truncated."""
    low, has_low = decode_bounds(
        blob, encoding, start=lower.start, length=lower.length, wanted=usable & (lower.start >= 0)
    )
    high, has_high = decode_bounds(
        blob, encoding, start=upper.start, length=upper.length, wanted=usable & (upper.start >= 0)
    )
    if encoding.least is not None:
        has_low = has_high = has_low & has_high
    if encoding.raw is RawType.BYTES:
        has_high = has_high & (whole | ~_is_topmost(high))
    if encoding.domain is Domain.FLOAT:
        low, high = np.where(low == 0, -0.0, low), np.where(high == 0, 0.0, high)
    both = has_low & has_high
    if both.any():
        crossed = both.copy()
        crossed[both] = np.greater(low[both], high[both]).astype(bool)
        has_low, has_high = has_low & ~crossed, has_high & ~crossed
    return Bounds(encoding.domain, low, high, has_low, has_high, counts.values, counts.nulls, counts.nans)


def _is_topmost(values: npt.NDArray[Any]) -> Bools:
    """Return where all bytes are 0xFF, so that a writer that truncated the bound could not have raised it."""
    return np.array([v[:1] == b"\xff" and not v.strip(b"\xff") for v in values.tolist()], bool)


def agrees_with_chunk(pages: Bounds, chunk: Bounds, *, valued: Bools) -> bool:
    """Return whether the bounds of pages are consistent with those of their chunk.

    They are not where a page's bound lies outside the chunk's, or where all pages together do not reach as
    far.

    Parameters
    ----------
    pages : Bounds
        One unit a page.
    chunk : Bounds
        One unit, of the same domain.
    valued : array of bool
        Pages that may hold values.
    """
    if pages.domain is not chunk.domain or pages.domain is Domain.NONE or not valued.any():
        return True
    lower, upper = pages.lower[pages.has_lower], pages.upper[pages.has_upper]
    all_lower, all_upper = bool(pages.has_lower[valued].all()), bool(pages.has_upper[valued].all())
    in_bytes = pages.domain is Domain.BYTES
    if chunk.has_lower[0]:
        least: Any = chunk.lower[0]
        if len(upper) and upper.min() < least:
            return False
        first = lower.min() if len(lower) else least
        if first < least and not (in_bytes and all(_is_cut(v, least) for v in lower.tolist() if v < least)):
            return False
        if first > least and all_lower and not (in_bytes and _is_cut(least, first)):
            return False
    if chunk.has_upper[0]:
        most: Any = chunk.upper[0]
        if len(lower) and lower.max() > most:
            return False
        last = upper.max() if len(upper) else most
        if last > most and not (in_bytes and all(_is_raised(v, most) for v in upper.tolist() if v > most)):
            return False
        if last < most and all_upper and not (in_bytes and _is_raised(most, last)):
            return False
    return True


def _is_cut(bound: bytes, value: bytes) -> bool:
    """Return whether a lower bound may be this value, truncated."""
    return value.startswith(bound)


def _is_raised(bound: bytes, value: bytes) -> bool:
    """Return whether an upper bound above a value may be that value truncated and then raised in its last
    byte or character."""
    # Where a byte overflowed, the one before it was raised instead.
    bound = bound.rstrip(b"\x00")
    if not bound:
        return False
    if value.startswith(bound[:-1] + bytes((bound[-1] - 1,))):
        return True
    text = bound.decode("utf-8", "surrogateescape")
    point = ord(text[-1]) - 1
    if point >= 0xDC7F and point < 0xDFFF:  # a byte that is no text
        return False
    before = chr(0xD7FF if point == 0xDFFF else point)
    return value.startswith((text[:-1] + before).encode("utf-8", "surrogateescape"))
