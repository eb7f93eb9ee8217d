"""One fetched piece of a task -> the record batches that it holds: decode, filter, conform."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from accel import kernels
from accel.arrays import bools, from_numpy, mask, repeat_scalar
from accel.decode.arrow import schema_of
from accel.decode.chunks import ChunkPages, LeafBytes, narrow_leaf
from accel.decode.columns import decode_columns
from accel.decode.dictionary_arrays import Values, is_indexed, look_up
from accel.decode.pool import release_now_and_then
from accel.decode.trim import is_view, take_views
from accel.errors import MemoryLimitError
from accel.planning.pages import Piece, PieceLeaf
from accel.planning.query import FileQuery
from accel.planning.selection import RowSelection
from accel.planning.task import ScanTask

__all__ = [
    "decode_piece",
    "filter_rows",
    "make_batches",
    "match_piece",
    "match_rows",
]

# What the filter does not need is decoded apart, where it decodes to more: each call has a cost of its own.
_APART_BYTES = 64 << 10
# A piece that takes more is decoded on a thread of its own.
_LARGE = 4 << 20


def decode_piece(
    task: ScanTask,
    piece: Piece,
    fetched: Mapping[int, LeafBytes],
    *,
    batch_rows: int,
    memory_limit: int,
    verify_checksums: bool = True,
    found: list[RowSelection] | None = None,
    left: list[int] | None = None,
) -> list[pa.RecordBatch]:
    """Decode and filter a piece.

    Parameters
    ----------
    fetched : mapping
        By leaf (of the task's schema): its bytes, for every leaf of the piece.
    batch_rows : int
        The most rows of one batch.
    memory_limit : int
        A page that would decode to more is refused.
    verify_checksums : bool
        Whether pages that have a checksum are held against it.
    found : list, optional
        Given the rows that match, where they are few.
    left : list of int, optional
        Given the leaves that a direct decoder left to pyarrow.

    Returns
    -------
    list of pyarrow.RecordBatch
        Of the scan's output schema, in row order, none empty.
    """
    query = task.file.query
    if piece.held_bytes > _LARGE:
        release_now_and_then(piece.held_bytes)
    maybe = piece.rows.without(piece.sure, task.num_rows)
    decoder = _Decoder(task, piece, fetched, memory_limit, verify_checksums, left)
    if not maybe:
        columns = decoder.decode(query.output_leaves, piece.rows)
        return make_batches(task, columns, piece.rows.count, batch_rows, memory_limit=memory_limit)
    if not piece.sure:
        late = decoder.late_leaves()
        if late:
            return _decode_late(task, piece, decoder, late, batch_rows, found)
        # One decode serves the filter and the result.
        leaves = sorted({*query.filter_leaves, *query.output_leaves})
        columns = decoder.decode(leaves, piece.rows, values=Values.INDEXED)
        matches = match_rows(task, columns, piece.rows.count)
        matched = int(np.count_nonzero(matches))
        if found is not None and _is_selective(len(matches), matched):
            found.append(piece.rows.refine(matches))
        if matched == 0:
            return []
        names = {f.name for f in query.output}
        columns = {n: a for n, a in columns.items() if n in names}
        if matched < len(matches):
            packed = bools(matches)
            columns = {n: filter_rows(a, packed) for n, a in columns.items()}
        return make_batches(task, decoder.look_up(columns), matched, batch_rows, memory_limit=memory_limit)
    rows = decoder.match(piece, maybe)
    if found is not None:
        found.append(rows)
    if not rows:
        return []
    columns = decoder.decode(query.output_leaves, rows)
    return make_batches(task, columns, rows.count, batch_rows, memory_limit=memory_limit)


def _decode_late(
    task: ScanTask,
    piece: Piece,
    decoder: _Decoder,
    late: Sequence[int],
    batch_rows: int,
    found: list[RowSelection] | None,
) -> list[pa.RecordBatch]:
    """Decode the filter's columns, then of the others the pages that hold a row that matches."""
    query = task.file.query
    columns = decoder.decode(query.filter_leaves, piece.rows, values=Values.INDEXED)
    matches = match_rows(task, columns, piece.rows.count)
    rows = piece.rows.refine(matches)
    if found is not None:
        found.append(rows)
    if not rows:
        return []
    matched = rows.count
    fresh = decoder.decode(late, rows, values=Values.INDEXED)
    kept = {f.name: columns[f.name] for f in query.output if f.name in columns and f.name not in fresh}
    if matched < len(matches):
        packed = bools(matches)
        kept = {n: filter_rows(a, packed) for n, a in kept.items()}
    columns = decoder.look_up({**kept, **fresh})
    return make_batches(task, columns, matched, batch_rows, memory_limit=decoder.memory_limit)


def _is_selective(tested: int, matched: int) -> bool:
    from accel.planning.predicate_cache import is_selective

    return is_selective(tested, matched)


def match_piece(
    task: ScanTask,
    piece: Piece,
    *,
    fetched: Mapping[int, LeafBytes],
    memory_limit: int,
    verify_checksums: bool = True,
    left: list[int] | None = None,
) -> RowSelection:
    """The rows of a piece that match, from the leaves that its filter needs.

    Parameters and errors are those of `decode_piece`.
    """
    maybe = piece.rows.without(piece.sure, task.num_rows)
    return _Decoder(task, piece, fetched, memory_limit, verify_checksums, left).match(piece, maybe)


class _Decoder:
    def __init__(
        self,
        task: ScanTask,
        piece: Piece,
        fetched: Mapping[int, LeafBytes],
        memory_limit: int,
        verify_checksums: bool,
        left: list[int] | None,
    ) -> None:
        self._verify_checksums = verify_checksums
        self._left = left
        self._task = task
        self._parts = {part.reads.leaf: part for part in piece.leaves}
        self._fetched = fetched
        self.memory_limit = memory_limit
        self._kinds: dict[str, pa.DataType] = {}

    def decode(
        self, leaves: Sequence[int], rows: RowSelection, *, values: Values = Values.DECODED
    ) -> dict[str, pa.Array]:
        """The top-level columns that hold these leaves, by name, at the given rows."""
        if not leaves:
            return {}
        file = self._task.file
        schema = schema_of(file, leaves)
        chunks = {leaf: self._chunk(self._parts[leaf], self._fetched[leaf], rows) for leaf in leaves}
        arrays = decode_columns(
            file.schema,
            file.key_value,
            chunks=chunks,
            rows=rows,
            arrow_schema=schema,
            leaves=leaves,
            path=file.id.path,
            row_group=self._task.row_group,
            values=values,
            memory_limit=self.memory_limit,
            created_by=file.created_by,
            int96_unit=file.int96_unit,
            verify_checksums=self._verify_checksums,
            left=self._left,
        )
        self._kinds.update(zip(schema.names, schema.types, strict=True))
        return dict(zip(schema.names, (_whole(a) for a in arrays), strict=True))

    def look_up(self, columns: Mapping[str, pa.Array]) -> dict[str, pa.Array]:
        """The columns, with what came as indices looked up."""
        out = {}
        for name, array in columns.items():
            kind = self._kinds[name]
            if is_indexed(array, kind):
                place = f"row group {self._task.row_group}, column {name}"
                array = look_up(array, kind, memory_limit=self.memory_limit, place=place)
            out[name] = array
        return out

    def match(self, piece: Piece, maybe: RowSelection) -> RowSelection:
        """The rows that are known to match, and those of `maybe` that do."""
        if not maybe:
            return piece.sure
        columns = self.decode(self._task.file.query.filter_leaves, maybe, values=Values.INDEXED)
        return piece.sure.union(maybe.refine(match_rows(self._task, columns, maybe.count)))

    def late_leaves(self) -> list[int]:
        """The leaves of the result's columns that the filter does not decode as they are wanted; none where that
        is too little for decoding apart to pay."""
        query, leaves = self._task.file.query, self._task.file.schema.leaves
        # A struct that the filter needs another part of is decoded anew.
        differ = set(query.output_leaves).symmetric_difference(query.filter_leaves)
        fresh = {leaves[leaf].path[0] for leaf in differ}
        late = [leaf for leaf in query.output_leaves if leaves[leaf].path[0] in fresh]
        return late if sum(self._parts[leaf].decoded_bytes for leaf in late) > _APART_BYTES else []

    def _chunk(self, part: PieceLeaf, fetched: LeafBytes, rows: RowSelection) -> ChunkPages:
        part, fetched = narrow_leaf(part, fetched, rows=rows, memory_limit=self.memory_limit)
        reads = part.reads
        if reads.whole:
            first, stop = np.zeros(1, np.int64), np.array([self._task.num_rows], np.int64)
        else:
            first, stop = reads.first_row[part.lo : part.hi], reads.stop_row[part.lo : part.hi]
        return ChunkPages(
            leaf=reads.leaf,
            codec=reads.codec,
            dictionary=fetched.dictionary,
            buffers=fetched.pages,
            first_rows=first,
            stop_rows=stop,
            num_values=reads.num_values,
            whole=reads.whole,
        )


def _whole(array: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    if isinstance(array, pa.ChunkedArray) and array.num_chunks == 1:
        return array.chunk(0)
    return array


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
