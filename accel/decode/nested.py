"""Nested columns are built from leaves that were decoded one by one.

Each leaf is decoded to its own chain of lists and structs. In a valid file the chains of one field agree
wherever they share an ancestor, so the offsets and validity come from the first leaf, and the values from
every leaf.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from accel.arrays import Int64s, list_items, packed_validity, validity
from accel.decode.arrow import ParquetReader, open_reader, translate_errors
from accel.decode.chunks import ChunkPages
from accel.decode.dictionary_arrays import MOST_JOINED, check_indices, named_bytes
from accel.decode.extensions import num_leaves
from accel.decode.splice import SplicePlan
from accel.decode.trim import place_rows
from accel.decode.units import Unit, Verified, most_text
from accel.errors import MemoryLimitError, ParquetFormatError
from accel.format.model import ParquetSchema, Repetition
from accel.format.page_index import PageIndexMismatchError
from accel.planning.selection import RowSelection

__all__ = [
    "Siblings",
    "check_levels",
    "count_levels",
    "list_sizes",
    "merge_leaves",
    "weigh_lists",
]


def merge_leaves(arrays: Sequence[pa.Array], target: pa.DataType) -> pa.Array:
    """Return one array of type `target` made of the arrays of its leaves, in the schema's order.

    Parameters
    ----------
    arrays : sequence of pyarrow.Array
        The same rows of each leaf of `target`, nested as `target` but with that leaf only.

    Raises
    ------
    ParquetFormatError
        The leaves disagree about their lists, or do not have the shape of `target`.
    """
    if len({len(array) for array in arrays}) != 1:
        raise ParquetFormatError("the leaves of a nested column have different numbers of rows")
    if len(arrays) == 1 and arrays[0].type.equals(target):
        return arrays[0]
    if isinstance(target, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(target, merge_leaves(_storages(arrays), target.storage_type))
    arrays = _storages(arrays)
    if pa.types.is_struct(target):
        return _merge_struct(arrays, target)
    if pa.types.is_fixed_size_list(target):
        return _merge_fixed(arrays, target)
    if _is_list(target):
        return _merge_lists(arrays, target)
    raise ParquetFormatError(f"a leaf decoded as {arrays[0].type} where {target} is due")


def count_levels(array: pa.Array) -> Int64s | None:
    """Return how many level values each row of a leaf's array has; None where each has one.

    A null or empty list has one. So the counts of a page's rows add up to its number of values, which shows
    whether it has the rows that the offset index says.
    """
    if isinstance(array.type, pa.BaseExtensionType):
        array = array.storage
    kind = array.type
    if pa.types.is_struct(kind):
        return count_levels(array.field(0))
    if pa.types.is_fixed_size_list(kind):
        counts = count_levels(_fixed_values(array))
        size = kind.list_size
        rows = np.full(len(array), size) if counts is None else counts.reshape(len(array), size).sum(axis=1)
        valid = _validity(array)
        return np.maximum(rows if valid is None else np.where(valid, rows, 1), 1)
    if not _is_list(kind):
        return None
    offsets, values = _open_list(array)
    counts = count_levels(values)
    if counts is None:
        return np.maximum(np.diff(offsets), 1)
    before = np.concatenate((np.zeros(1, np.int64), np.cumsum(counts)))
    return np.maximum(np.diff(before[offsets]), 1)


def list_sizes(array: pa.Array, depth: int) -> list[Int64s]:
    """Return the sizes of a leaf's lists: of the outermost list by row, of the next one by item, and so on.

    There are up to `depth` levels; a null list has size 0.
    """
    levels: list[Int64s] = []
    while len(levels) < depth:
        if isinstance(array.type, pa.BaseExtensionType):
            array = array.storage
        elif pa.types.is_struct(array.type):
            array = array.field(0)
        elif pa.types.is_fixed_size_list(array.type):
            levels.append(np.full(len(array), array.type.list_size))
            array = _fixed_values(array)
        elif _is_list(array.type):
            offsets, array = _open_list(array)
            levels.append(np.diff(offsets))
        else:
            break
    return levels


def _storages(arrays: Sequence[pa.Array]) -> list[pa.Array]:
    return [a.storage if isinstance(a.type, pa.BaseExtensionType) else a for a in arrays]


def _is_list(kind: pa.DataType) -> bool:
    is_view = pa.types.is_list_view(kind) or pa.types.is_large_list_view(kind)
    return bool(is_view or pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_map(kind))


def _merge_struct(arrays: Sequence[pa.Array], target: pa.DataType) -> pa.Array:
    if not all(pa.types.is_struct(a.type) and a.type.num_fields == 1 for a in arrays):
        raise ParquetFormatError(f"a leaf decoded as {arrays[0].type} where {target} is due")
    children = []
    at = 0
    for i in range(target.num_fields):
        kind = target.field(i).type
        width = num_leaves(kind)
        children.append(merge_leaves([a.field(0) for a in arrays[at : at + width]], kind))
        at += width
    return pa.Array.from_buffers(target, len(arrays[0]), [packed_validity(arrays[0])], children=children)


def _merge_fixed(arrays: Sequence[pa.Array], target: pa.DataType) -> pa.Array:
    if not all(pa.types.is_fixed_size_list(a.type) for a in arrays):
        raise ParquetFormatError(f"a leaf decoded as {arrays[0].type} where {target} is due")
    values = merge_leaves([_fixed_values(a) for a in arrays], target.value_type)
    return pa.Array.from_buffers(target, len(arrays[0]), [packed_validity(arrays[0])], children=[values])


def _merge_lists(arrays: Sequence[pa.Array], target: pa.DataType) -> pa.Array:
    if not all(_is_list(a.type) for a in arrays):
        raise ParquetFormatError(f"a leaf decoded as {arrays[0].type} where {target} is due")
    opened = [_open_list(a) for a in arrays]
    offsets = opened[0][0]
    for other, _ in opened[1:]:
        if not np.array_equal(offsets, other):
            raise ParquetFormatError("the leaves of a nested column do not agree about its lists")
    if pa.types.is_map(target):
        item = pa.struct([target.key_field, target.item_field])
    else:
        item = target.value_type
    values = merge_leaves([values for _, values in opened], item)
    is_wide = pa.types.is_large_list(target) or pa.types.is_large_list_view(target)
    offsets = np.ascontiguousarray(offsets, np.int64 if is_wide else np.int32)
    buffers = [packed_validity(arrays[0])]
    if pa.types.is_list_view(target) or pa.types.is_large_list_view(target):
        buffers += [pa.py_buffer(np.ascontiguousarray(offsets[:-1])), pa.py_buffer(np.diff(offsets))]
    else:
        buffers.append(pa.py_buffer(offsets))
    return pa.Array.from_buffers(target, len(arrays[0]), buffers, children=[values])


def _open_list(array: pa.Array) -> tuple[Int64s, pa.Array]:
    """Return offsets that start at 0, one more than rows, and only the values that they cover."""
    kind = array.type
    is_wide = pa.types.is_large_list(kind) or pa.types.is_large_list_view(kind)
    width = np.int64 if is_wide else np.int32
    if pa.types.is_list_view(kind) or pa.types.is_large_list_view(kind):
        sizes = _numbers(array.buffers()[2], width, array.offset, len(array))
        valid = _validity(array)
        if valid is not None:
            sizes = np.where(valid, sizes, 0)
        return np.concatenate((np.zeros(1, np.int64), np.cumsum(sizes, dtype=np.int64))), list_items(array)
    if not len(array):
        return np.zeros(1, np.int64), array.values.slice(0, 0)
    offsets = _numbers(array.buffers()[1], width, array.offset, len(array) + 1).astype(np.int64)
    first = int(offsets[0])
    return offsets - first, array.values.slice(first, int(offsets[-1]) - first)


def _fixed_values(array: pa.Array) -> pa.Array:
    size = array.type.list_size
    return array.values.slice(array.offset * size, len(array) * size)


def _numbers(buffer: pa.Buffer, dtype: type, offset: int, count: int) -> npt.NDArray[np.signedinteger]:
    return np.frombuffer(buffer, dtype, count, offset * np.dtype(dtype).itemsize)


def _validity(array: pa.Array) -> npt.NDArray[np.bool_] | None:
    return validity(array) if array.null_count else None


def check_levels(chunk: ChunkPages, array: pa.ChunkedArray, *, page_values: Int64s) -> None:
    """Compare the level values of decoded rows with the pages that should have these rows.

    Raises
    ------
    ParquetFormatError
        A page has other rows.
    """
    levels = [(count_levels(part), len(part)) for part in array.chunks]
    counts = np.concatenate([np.ones(rows, np.int64) if some is None else some for some, rows in levels])
    opens = np.cumsum(chunk.stop_rows - chunk.first_rows) - (chunk.stop_rows - chunk.first_rows)
    wrong = np.add.reduceat(counts, opens) != page_values
    if bool(wrong.any()):
        raise PageIndexMismatchError(
            f"data page {int(np.flatnonzero(wrong)[0])} of those read does not hold the rows that the offset "
            "index says"
        )


class Siblings:
    """Compares the lists of leaves of one field, in all rows that are decoded of both.

    `merge_leaves` compares them in the rows that are wanted, which may look right where earlier rows of their
    pages do not.

    Parameters
    ----------
    verified : Verified
        The pages.
    units : sequence of Unit
        All units that are decoded, each field's in the schema's order.
    wanted : int
        The number of rows that are wanted of each.
    """

    def __init__(self, verified: Verified, units: Sequence[Unit], *, wanted: int) -> None:
        self._verified = verified
        self._pairs: list[tuple[int, int, int]] = []
        self._depths: dict[int, int] = {}
        self._sizes: dict[int, list[Int64s]] = {}
        for one, other in itertools.pairwise(units):
            if one.field != other.field or one.num_rows == wanted == other.num_rows:
                continue
            leaves = one.leaves[0], other.leaves[0]
            depth = _shared_lists(verified.schema, *leaves)
            if depth:
                self._pairs.append((*leaves, depth))
                self._depths.update((leaf, max(depth, self._depths.get(leaf, 0))) for leaf in leaves)

    def add(self, leaf: int, array: pa.ChunkedArray) -> None:
        """Add all decoded rows of a leaf's pages."""
        depth = self._depths.get(leaf)
        if depth is not None:
            parts = [list_sizes(part, depth) for part in array.chunks]
            self._sizes[leaf] = [np.concatenate(level) for level in zip(*parts, strict=True)]

    def check(self) -> None:
        """Compare the lists after all leaves have been added.

        Raises
        ------
        ParquetFormatError
            They differ.
        """
        for one, other, depth in self._pairs:
            chunks = self._verified.chunks
            common = _rows_of(chunks[one]).intersect(_rows_of(chunks[other]))
            mine, theirs = (_cut(self._sizes[leaf][:depth], chunks[leaf], common) for leaf in (one, other))
            if not all(map(np.array_equal, mine, theirs)):
                raise ParquetFormatError(
                    "the leaves of a nested column do not agree about its lists",
                    place=self._verified.place((one, other)),
                )


def _shared_lists(schema: ParquetSchema, one: int, other: int) -> int:
    """Return the number of nested lists that two leaves of a field share."""
    depth = 0
    for mine, theirs in zip(schema.leaves[one].ancestors, schema.leaves[other].ancestors, strict=False):
        if mine != theirs:
            break
        depth += schema.elements[mine].repetition == Repetition.REPEATED
    return depth


def _rows_of(chunk: ChunkPages) -> RowSelection:
    opens = np.append(True, chunk.first_rows[1:] != chunk.stop_rows[:-1])
    return RowSelection(chunk.first_rows[opens], chunk.stop_rows[np.append(opens[1:], True)])


def _cut(levels: Sequence[Int64s], chunk: ChunkPages, rows: RowSelection) -> list[Int64s]:
    """Return the sizes of the lists of some rows, of the lists in these, and so on."""
    placed = place_rows(chunk, rows)
    starts, stops = placed.starts, placed.stops
    found: list[Int64s] = []
    for sizes in levels:
        runs = zip(starts.tolist(), stops.tolist(), strict=True)
        found.append(np.concatenate([sizes[:0], *(sizes[start:stop] for start, stop in runs)]))
        before = np.concatenate((np.zeros(1, np.int64), np.cumsum(sizes)))
        starts, stops = before[starts], before[stops]
    return found


def weigh_lists(
    verified: Verified, steps: Mapping[Unit, int], *, plan: SplicePlan, data: pa.Buffer
) -> dict[Unit, int]:
    """Return the units that still have to be decoded in steps after the texts in their lists have been
    measured.

    Parameters
    ----------
    steps : mapping
        What `step_of` returns for each unit.
    plan, data
        The file in memory that has their pages.

    Raises
    ------
    MemoryLimitError
        The texts of a leaf take more than the limit.
    ParquetFormatError
        The pages do not decode.
    """
    limit = verified.memory_limit
    if limit is None:
        return dict(steps)
    return {unit: step for unit, step in steps.items() if not _fits(verified, unit, plan, data, limit)}


def _fits(verified: Verified, unit: Unit, plan: SplicePlan, data: pa.Buffer, limit: int) -> bool:
    sizes = [_weigh(verified, leaf, plan, data, limit) for leaf in unit.leaves]
    return max(sizes) <= limit and sum(sizes) <= MOST_JOINED


def _weigh(verified: Verified, leaf: int, plan: SplicePlan, data: pa.Buffer, limit: int) -> int:
    """Return the bytes of a leaf's texts, or an upper bound where that is small or they are in no list."""
    most = most_text(verified, leaf, limit)
    facts = verified.facts[leaf]
    if most <= limit or facts.prefixed > limit or not verified.schema.leaves[leaf].max_repetition:
        return most
    place = partial(verified.place, (leaf,))
    with translate_errors(place=place):
        column = plan.column(leaf)
        reader = open_reader(data, coded=[column])
        # pyarrow makes dictionaries of texts only. Columns that are dictionaries in any case do not grow.
        if not _is_coded(reader, column) or _is_coded(open_reader(data), column):
            return most
        array = check_indices(reader.read_row_groups([0], [column], use_threads=False).column(0))
        size = sum(named_bytes(_innermost(chunk)) for chunk in array.chunks)
    if size > limit:
        raise MemoryLimitError(
            f"the column decodes to more than {limit} bytes",
            place=place(),
            hint="raise `options.memory_limit`",
        )
    return size


def _is_coded(reader: ParquetReader, column: int) -> bool:
    """Return whether a column's values, in any lists, are decoded to dictionary indices."""
    leaves, pending = [], list(reversed(reader.schema_arrow.types))
    while pending:
        kind = pending.pop()
        while isinstance(kind, pa.BaseExtensionType):
            kind = kind.storage_type
        if kind.num_fields:
            pending += [kind.field(at).type for at in reversed(range(kind.num_fields))]
        else:
            leaves.append(kind)
    return bool(pa.types.is_dictionary(leaves[column]))


def _innermost(array: pa.Array) -> pa.Array:
    """Return the values of a leaf, without its lists and structs."""
    while array.type.num_fields:
        array = array.field(0) if pa.types.is_struct(array.type) else array.values
    return array
