"""The selected rows are cut out of decoded pages."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from accel import kernels
from accel.arrays import Int64s, from_numpy
from accel.decode.chunks import ChunkPages
from accel.planning.selection import RowSelection

__all__ = ["holds_views", "is_view", "place_rows", "take_views", "trim"]

_FEW_SLICES = 12
"""Up to this number of ranges, joining slices is faster than gathering by index."""
_LEAST_SHARE = 2
"""A slice of less than 1/_LEAST_SHARE of an array is copied, so that it does not keep the rest in memory."""


def place_rows(chunk: ChunkPages, rows: RowSelection) -> RowSelection:
    """Return where the selected rows of the row group lie in the decoded pages, counted from their start.

    Raises
    ------
    ValueError
        A selected row is on none of the pages.
    """
    if not rows:
        return rows
    first, stop = chunk.first_rows, chunk.stop_rows
    if len(first) == 1 or (len(first) and (first[1:] == stop[:-1]).all()):
        # The pages are one run, so ranges that did not touch still do not.
        if rows.starts[0] < first[0] or rows.stops[-1] > stop[-1]:
            raise _missing(chunk, rows)
        return RowSelection(rows.starts - first[0], rows.stops - first[0]) if first[0] else rows
    # Each selected range lies within one run of adjacent pages.
    opens = np.flatnonzero(np.append(True, first[1:] != stop[:-1]))
    run_first = first[opens]
    run_stop = stop[np.append(opens[1:], len(stop)) - 1]
    before = np.cumsum(run_stop - run_first) - (run_stop - run_first)
    owner = np.searchsorted(run_first, rows.starts, side="right") - 1
    if bool((owner < 0).any()) or bool((rows.stops > run_stop[owner]).any()):
        raise _missing(chunk, rows)
    shift = before[owner] - run_first[owner]
    starts, stops = rows.starts + shift, rows.stops + shift
    # Ranges with a gap between them in the row group may touch here.
    opens_range = np.append(True, starts[1:] != stops[:-1])
    return RowSelection(starts[opens_range], stops[np.append(opens_range[1:], True)])


def _missing(chunk: ChunkPages, rows: RowSelection) -> ValueError:
    return ValueError(f"rows {rows!r} are not all on the pages given for leaf {chunk.leaf}")


def trim(array: pa.ChunkedArray, rows: RowSelection) -> pa.ChunkedArray:
    """Return the selected rows of `array`, in order and in no more chunks than `array` has."""
    if rows.count == len(array):
        return array
    parts = []
    start = 0
    for chunk in array.chunks:
        stop = start + len(chunk)
        part = rows.within(start, stop) if array.num_chunks > 1 else rows
        if part:
            parts.append(_trim_chunk(chunk, part.starts - start, part.stops - start))
        start = stop
    return pa.chunked_array(parts, type=array.type)


def _trim_chunk(array: pa.Array, starts: Int64s, stops: Int64s) -> pa.Array:
    count = int((stops - starts).sum())
    if count == len(array):
        return array
    if len(starts) == 1 and count * _LEAST_SHARE > len(array):
        return array.slice(int(starts[0]), count)
    if len(starts) > _FEW_SLICES and (is_view(array.type) or not holds_views(array.type)):
        indices = from_numpy(RowSelection(starts, stops).row_numbers())
        return take_views(array, indices) if is_view(array.type) else kernels.take(array, indices)
    slices = [array.slice(a, b - a) for a, b in zip(starts.tolist(), stops.tolist(), strict=True)]
    return pa.concat_arrays(slices)


def take_views(array: pa.Array, indices: pa.Array) -> pa.Array:
    """Return the views at these places, null where a place is null; they share the text.

    pyarrow has no `take` for views, so their 16-byte heads are gathered.
    """
    validity, heads, *texts = array.buffers()
    fixed = pa.Array.from_buffers(pa.binary(16), len(array), [validity, heads], offset=array.offset)
    taken = kernels.take(fixed, indices)
    return pa.Array.from_buffers(array.type, len(taken), [*taken.buffers(), *texts], offset=taken.offset)


def is_view(kind: pa.DataType) -> bool:
    """Return whether a type is string_view or binary_view."""
    return bool(pa.types.is_string_view(kind) or pa.types.is_binary_view(kind))


def holds_views(kind: pa.DataType) -> bool:
    """Return whether a type is a view, or holds one at any depth; of dictionaries only the indices count."""
    if is_view(kind):
        return True
    if isinstance(kind, pa.BaseExtensionType):
        return holds_views(kind.storage_type)
    if pa.types.is_dictionary(kind):
        return False
    return any(holds_views(kind.field(i).type) for i in range(kind.num_fields))
