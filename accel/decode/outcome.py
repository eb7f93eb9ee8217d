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
from accel.errors import MemoryLimitError
from accel.planning.query import FileQuery
from accel.planning.selection import RowSelection
from accel.planning.task import ScanTask

__all__ = ["filter_rows", "make_batches", "match_rows"]

# Arrays in more chunks than this are joined before a filter looks at them.
_MOST_CUTS = 8
# Bytes that one more batch takes on its way out, if its columns are those of another.
_BATCH_BYTES = 128


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
    task: ScanTask, columns: Mapping[str, pa.Array], num_rows: int, batch_rows: int, *, memory_limit: int
) -> list[pa.RecordBatch]:
    """The result's columns of so many rows, in batches.

    Raises
    ------
    MemoryLimitError
        There is no column to read, and of so many rows a list of the batches alone takes more.
    """
    query = task.file.query
    schema, constants = query.output, query.output_constants
    fields = [field for field in schema if field.name not in constants]
    if not fields:
        return _alike(query, num_rows, batch_rows, memory_limit)
    arrays = [_conformed(columns[field.name], field, task.file.url) for field in fields]
    own = schema if len(fields) == len(schema) else pa.schema(fields)
    if any(isinstance(a, pa.ChunkedArray) for a in arrays):
        table = pa.Table.from_arrays(arrays, schema=own)
        batches = [b for b in table.to_batches(max_chunksize=batch_rows) if b.num_rows]
    else:
        batch = pa.RecordBatch.from_arrays(arrays, schema=own)
        batches = [batch.slice(at, batch_rows) for at in range(0, num_rows, batch_rows)]
    return batches if own is schema else _with_constants(batches, query)


def _with_constants(batches: list[pa.RecordBatch], query: FileQuery) -> list[pa.RecordBatch]:
    """The batches with the columns whose value is known: one array of each, however many rows a row group has."""
    longest = max((b.num_rows for b in batches), default=0)
    schema, constants = query.output, query.output_constants
    repeated = {f.name: repeat_scalar(constants[f.name], longest) for f in schema if f.name in constants}
    out = []
    for batch in batches:
        own = iter(batch.columns)
        arrays = [
            repeated[f.name].slice(0, batch.num_rows) if f.name in repeated else next(own) for f in schema
        ]
        out.append(pa.RecordBatch.from_arrays(arrays, schema=schema))
    return out


def _alike(query: FileQuery, num_rows: int, batch_rows: int, memory_limit: int) -> list[pa.RecordBatch]:
    """Batches of constants, or of no column: all the same one, for of how many rows they are only the footer says."""
    whole, rest = divmod(num_rows, batch_rows)
    if whole * _BATCH_BYTES > memory_limit:
        raise MemoryLimitError(
            f"a row group of {num_rows} rows, of which no column is read",
            place=f"batches of {batch_rows} rows",
            hint="count_rows answers how many there are",
        )
    longest = min(num_rows, batch_rows)
    if len(query.output) == 0:
        batch = _empty_columns(longest)
    else:
        batch = pa.RecordBatch.from_arrays(
            [repeat_scalar(query.output_constants[f.name], longest) for f in query.output],
            schema=query.output,
        )
    return [batch] * whole + ([batch.slice(0, rest)] if rest else [])


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
