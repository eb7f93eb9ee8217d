"""Small row groups of one file, decoded together: from one file in memory that has a row group for each of them.

Decoded by itself a row group costs some hundred microseconds of Python, however few its rows are. Here all their page
headers are checked at once, pyarrow is called once, and the filter looks at all rows at once. What is wrong or rare is
left to be decoded one by one: that says what it is, or does it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pyarrow as pa

from accel.arrays import bools
from accel.decode.arrow import ParquetReader, fields_of, open_reader, schema_of, translate_errors
from accel.decode.extensions import is_dressed
from accel.decode.leaf_bytes import LeafBytes
from accel.decode.outcome import filter_rows, make_batches, match_rows
from accel.decode.splice import plan_splice, splice_groups
from accel.decode.stacked_pages import StackedPages, Unusual, verify_stack
from accel.decode.text_sizes import check_text_sizes
from accel.decode.trim import trim
from accel.planning.pages import Piece, PieceLeaf
from accel.planning.projection import has_instants
from accel.planning.selection import RowSelection
from accel.planning.task import ScanTask
from accel.ranges import Buffer

if TYPE_CHECKING:
    from accel.arrays import Bools, Int64s

__all__ = ["Layer", "StackKind", "decode_stack", "stack_kind"]

Columns: TypeAlias = dict[str, pa.Array | pa.ChunkedArray]

# Of a row group of more the Python is the smaller part.
_MOST_ROWS = 4096
# To read fewer at a time takes longer than to read row groups one by one.
_LEAST_ROWS = 1024


@dataclass(frozen=True, slots=True)
class StackKind:
    """What pieces of one file have in common that are decoded together."""

    leaves: tuple[int, ...]
    whole: tuple[bool, ...]
    """Of each leaf: what is there of it is the whole chunk, not its pages."""
    in_doubt: bool
    """The filter is to be evaluated on all their rows; else on none."""


@dataclass(frozen=True, slots=True, eq=False)
class Layer:
    """One piece of a stack, with its bytes."""

    task: ScanTask
    piece: Piece
    leaves: Mapping[int, LeafBytes]


def stack_kind(task: ScanTask, piece: Piece) -> StackKind | None:
    """With which pieces of its file one may be decoded; None where it is large, or of a rare kind."""
    sure = piece.sure.count
    if task.num_rows > _MOST_ROWS or not piece.leaves or (sure and sure < piece.rows.count):
        return None
    schema = task.file.schema
    leaves = tuple(part.reads.leaf for part in piece.leaves)
    for part in piece.leaves:
        leaf = schema.leaves[part.reads.leaf]
        if leaf.max_repetition or len(leaf.path) > 1 or not _is_complete(part):
            return None
    whole = tuple(part.reads.whole for part in piece.leaves)
    return None if has_instants(schema, leaves) else StackKind(leaves, whole, not sure)


def _is_complete(part: PieceLeaf) -> bool:
    """Whether all data pages of the chunk are there."""
    reads = part.reads
    return reads.whole or (not part.carried and part.hi - part.lo == reads.total_pages)


def decode_stack(
    layers: Sequence[Layer], *, batch_rows: int, memory_limit: int, verify_checksums: bool = True
) -> list[pa.RecordBatch] | None:
    """What `decode_piece` gives of each, one after the other, in batches of up to `batch_rows` rows.

    Parameters
    ----------
    layers : sequence of Layer
        Of one file and one kind, in order.

    Returns
    -------
    list of pyarrow.RecordBatch or None
        None where they have to be decoded one by one.
    """
    try:
        return _Stack(layers, memory_limit, verify_checksums).batches(batch_rows)
    except Exception:  # noqa: BLE001 - decoded one by one, they say what is wrong
        return None


class _Stack:
    def __init__(self, layers: Sequence[Layer], memory_limit: int, verify_checksums: bool) -> None:
        self._verify_checksums = verify_checksums
        self._layers = layers
        self._task = layers[0].task
        self._memory_limit = memory_limit
        # As all are of one kind.
        self._places = {part.reads.leaf: place for place, part in enumerate(layers[0].piece.leaves)}

    def batches(self, batch_rows: int) -> list[pa.RecordBatch]:
        query = self._task.file.query
        counts = [layer.piece.rows.count for layer in self._layers]
        if self._layers[0].piece.sure or query.bound is None:
            columns = self._decode(query.output_leaves, self._layers)
            return make_batches(self._task, columns, sum(counts), batch_rows, memory_limit=self._memory_limit)
        columns = self._decode(query.filter_leaves, self._layers)
        matches = match_rows(self._task, columns, sum(counts))
        matched = int(np.count_nonzero(matches))
        if not matched:
            return []
        # Of the other columns only row groups are decoded in which rows match.
        parts = np.split(matches, np.cumsum(counts)[:-1])
        left = [number for number, part in enumerate(parts) if part.any()]
        fresh = self._decode(
            [leaf for leaf in query.output_leaves if leaf not in query.filter_leaves],
            [self._layers[number] for number in left],
        )
        wanted = {field.name for field in query.output}
        columns = {
            **_filtered({name: array for name, array in columns.items() if name in wanted}, matches),
            **_filtered(fresh, np.concatenate([parts[number] for number in left])),
        }
        return make_batches(self._task, columns, matched, batch_rows, memory_limit=self._memory_limit)

    def _decode(self, leaves: Sequence[int], layers: Sequence[Layer]) -> Columns:
        """The columns that are these leaves, by name, at the rows of the layers' pieces."""
        if not leaves:
            return {}
        file = self._task.file
        leaves = sorted(leaves)
        schema = schema_of(file, leaves)
        if any(isinstance(kind, pa.DictionaryType) or is_dressed(kind) for kind in schema.types):
            # Each row group's own dictionary: whoever reads one by one knows what to make of them.
            raise Unusual
        num_rows = [layer.task.num_rows for layer in layers]
        rows = _rows(layers, num_rows)
        stacked = [self._verified(leaf, layers, np.array(num_rows, np.int64)) for leaf in leaves]
        fields = fields_of(file.schema, leaves)
        plan = plan_splice(file.schema, file.key_value, fields=fields, created_by=file.created_by)
        groups = [
            dict(zip(leaves, chunks, strict=True))
            for chunks in zip(*(pages.chunks for pages in stacked), strict=True)
        ]
        with translate_errors():
            data = splice_groups(plan, groups, num_rows=num_rows)
            reader = open_reader(data, verify_checksums=self._verify_checksums)
            table = self._read(reader, num_rows, len(leaves), longest=sum(one.longest for one in stacked))
        columns: Columns = {}
        for field, array, leaf, pages in zip(schema, table.columns, leaves, stacked, strict=True):
            if not array.type.equals(field.type) or len(array) != pages.facts.num_values:
                raise Unusual
            check_text_sizes(array, pages.facts, leaf=file.schema.leaves[leaf])
            array = trim(array, rows)
            columns[field.name] = array.chunk(0) if array.num_chunks == 1 else array
        return columns

    def _read(
        self, reader: ParquetReader, num_rows: Sequence[int], columns: int, *, longest: int
    ) -> pa.Table:
        """All of it; by steps where a few long texts that are named by many rows might take more than the limit."""
        groups = list(range(len(num_rows)))
        step = self._memory_limit // max(1, longest)
        if step >= sum(num_rows):
            return reader.read_row_groups(groups, range(columns), use_threads=False)
        if step < _LEAST_ROWS:
            raise Unusual
        batches, held = [], 0
        for batch in reader.iter_batches(step, groups, range(columns), use_threads=False):
            batches.append(batch)
            held += batch.nbytes
            if held > self._memory_limit:
                raise Unusual
        return pa.Table.from_batches(batches)

    def _verified(self, leaf: int, layers: Sequence[Layer], num_rows: Int64s) -> StackedPages:
        schema = self._task.file.schema
        node, place = schema.leaves[leaf], self._places[leaf]
        return verify_stack(
            [_parts(layer.leaves[leaf]) for layer in layers],
            node,
            reads=[layer.piece.leaves[place].reads for layer in layers],
            element=schema.elements[node.element],
            num_rows=num_rows,
            memory_limit=self._memory_limit,
        )


def _parts(held: LeafBytes) -> Sequence[Buffer]:
    return held.pages if held.dictionary is None else (held.dictionary, *held.pages)


def _rows(layers: Sequence[Layer], num_rows: Sequence[int]) -> RowSelection:
    """Where the rows of the layers' pieces lie among all rows of their row groups."""
    ranges: list[tuple[int, int]] = []
    before = 0
    for layer, count in zip(layers, num_rows, strict=True):
        ranges += [(before + start, before + stop) for start, stop in layer.piece.rows]
        before += count
    return RowSelection.of(ranges)


def _filtered(columns: Mapping[str, pa.Array | pa.ChunkedArray], matches: Bools) -> Columns:
    if matches.all():
        return dict(columns)
    packed = bools(matches)
    return {name: filter_rows(array, packed) for name, array in columns.items()}
