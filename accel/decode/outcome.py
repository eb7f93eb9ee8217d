"""Decoded columns -> which of their rows match, and the record batches that they make."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from accel import kernels
from accel.arrays import from_numpy, mask, repeat_scalar
from accel.decode.trim import is_view, take_views
from accel.planning.selection import RowSelection
from accel.planning.task import ScanTask

__all__ = ["filter_rows", "make_batches", "match_rows"]

# Arrays in more chunks than this are joined before a filter looks at them.
_MOST_CUTS = 8


def match_rows(task: ScanTask, columns: Mapping[str, pa.Array], num_rows: int) -> npt.NDArray[np.bool_]:
    from accel.predicate.evaluate import evaluate

    query = task.file.query
    if query.bound is None:
        return np.ones(num_rows, bool)
    arrays = {path: _pick(columns[path[0]], path[1:]) for path in query.filter_paths}
    for path, kind in query.conformed.items():
        arrays[path] = _conformed(arrays[path], pa.field(".".join(path), kind), task.file.url)
    cuts = _cuts(arrays.values(), num_rows)
    masks = []
    for start, stop in itertools.pairwise(cuts):
        part = {path: _part(array, start, stop) for path, array in arrays.items()}
        for path, value in query.constants.items():
            part[path] = repeat_scalar(value, stop - start)
        masks.append(evaluate(query.bound, part, stop - start))
    return masks[0] if len(masks) == 1 else np.concatenate(masks)


def _cuts(arrays: Iterable[pa.Array | pa.ChunkedArray], num_rows: int) -> list[int]:
    """The rows at which arrays are cut, so that none is joined to be looked at; both ends where that are many."""
    ends = {0, num_rows}
    for array in arrays:
        if isinstance(array, pa.ChunkedArray) and len(array) == num_rows:
            ends.update(itertools.accumulate(map(len, array.chunks)))
    return sorted(ends) if num_rows and len(ends) <= _MOST_CUTS else [0, num_rows]


def _part(array: pa.Array | pa.ChunkedArray, start: int, stop: int) -> pa.Array | pa.ChunkedArray:
    return array if stop - start == len(array) else array.slice(start, stop - start)


def _pick(array: pa.Array | pa.ChunkedArray, path: tuple[str, ...]) -> pa.Array | pa.ChunkedArray:
    """A struct's descendant; null where any of its parents is null."""
    if not path:
        return array
    if isinstance(array, pa.ChunkedArray):
        return pa.chunked_array([_pick(chunk, path) for chunk in array.chunks])
    index = array.type.get_field_index(path[0])
    return _pick(array.flatten()[index], path[1:])


def filter_rows(array: pa.Array | pa.ChunkedArray, keep: pa.BooleanArray) -> pa.Array | pa.ChunkedArray:
    if _has_views(array.type):
        # pyarrow has no filter for views: join the slices.
        if isinstance(array, pa.ChunkedArray):
            array = pa.concat_arrays(array.chunks)
        if is_view(array.type):
            return take_views(array, from_numpy(np.flatnonzero(mask(keep))))
        return pa.concat_arrays([array.slice(a, b - a) for a, b in RowSelection.from_mask(mask(keep))])
    return kernels.filter(array, keep)


def _has_views(kind: pa.DataType) -> bool:
    if is_view(kind):
        return True
    if pa.types.is_dictionary(kind):
        # Its indices are filtered.
        return False
    if isinstance(kind, pa.BaseExtensionType):
        return _has_views(kind.storage_type)
    return any(_has_views(kind.field(i).type) for i in range(kind.num_fields))


def make_batches(
    task: ScanTask, columns: Mapping[str, pa.Array], num_rows: int, batch_rows: int
) -> list[pa.RecordBatch]:
    query = task.file.query
    schema = query.output
    if len(schema) == 0:
        return [_empty_columns(min(batch_rows, num_rows - at)) for at in range(0, num_rows, batch_rows)]
    arrays = []
    for field in schema:
        constant = query.output_constants.get(field.name)
        if constant is not None:
            arrays.append(repeat_scalar(constant, num_rows))
            continue
        arrays.append(_conformed(columns[field.name], field, task.file.url))
    if any(isinstance(a, pa.ChunkedArray) for a in arrays):
        table = pa.Table.from_arrays(arrays, schema=schema)
        return [b for b in table.to_batches(max_chunksize=batch_rows) if b.num_rows]
    batch = pa.RecordBatch.from_arrays(arrays, schema=schema)
    return [batch.slice(at, batch_rows) for at in range(0, num_rows, batch_rows)]


def _conformed(array: pa.Array | pa.ChunkedArray, field: pa.Field, url: str) -> pa.Array | pa.ChunkedArray:
    if array.type.equals(field.type):
        return array
    from accel.planning.conform import conform_array

    if not isinstance(array, pa.ChunkedArray):
        return conform_array(array, field.type, url=url, name=field.name)
    parts = [conform_array(chunk, field.type, url=url, name=field.name) for chunk in array.chunks]
    return pa.chunked_array(parts, field.type)


def _empty_columns(num_rows: int) -> pa.RecordBatch:
    """A batch of rows without columns."""
    return pa.RecordBatch.from_struct_array(pa.nulls(num_rows, pa.struct([])))
