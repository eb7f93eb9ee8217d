"""One fetched piece of a task becomes record batches: its pages are decoded, filtered and conformed to the
schema."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial

import numpy as np
import pyarrow as pa

from accel import kernels
from accel.arrays import Bools, bools, from_numpy, mask, repeat_scalar
from accel.decode.arrow import schema_of
from accel.decode.chunks import ChunkPages, LeafBytes, narrow_leaf
from accel.decode.columns import StoredRowGroup, decode_columns
from accel.decode.dictionary_arrays import Values, is_indexed, look_up
from accel.decode.pool import release_now_and_then
from accel.decode.trim import holds_views, is_view, take_views
from accel.errors import AccelError, MemoryLimitError, refuse_unforeseen
from accel.planning.pages import Piece
from accel.planning.query import FileQuery
from accel.planning.selection import RowSelection
from accel.planning.task import ScanTask, TaskFile

__all__ = [
    "decode_piece",
    "filter_rows",
    "make_batches",
    "match_piece",
    "match_rows",
]

# Decoded bytes of columns that the filter does not use, up to which they are decoded along with the filter's:
# each call of the decoder has a fixed cost.
LEAST_LATE_BYTES = 64 << 10
# Bytes of a piece before which unused memory may be returned.
_LARGE = 4 << 20


def decode_piece(
    task: ScanTask,
    piece: Piece,
    fetched: Mapping[int, LeafBytes],
    *,
    batch_rows: int,
    memory_limit: int,
    verify_checksums: bool = True,
    left: list[int] | None = None,
) -> list[pa.RecordBatch]:
    """Decode and filter a piece.

    Parameters
    ----------
    fetched : mapping
        The bytes of every leaf of the piece, by leaf of the task's schema.
    batch_rows : int
        The most rows of one batch.
    memory_limit : int
        The bytes that a page may decode to.
    verify_checksums : bool
        Whether pages that have a checksum are compared with it.
    left : list of int, optional
        Receives the leaves that a direct decoder left to pyarrow.

    Returns
    -------
    list of pyarrow.RecordBatch
        Batches of the scan's output schema, in row order, none of them empty.
    """
    if piece.held_bytes > _LARGE:
        release_now_and_then(piece.held_bytes)
    with _errors_of(task):
        decoder = _Decoder(task, piece, fetched, memory_limit, verify_checksums, left)
        columns, num_rows = decoder.matching()
        return (
            make_batches(task, columns, num_rows, batch_rows, memory_limit=memory_limit) if num_rows else []
        )


def match_piece(
    task: ScanTask,
    piece: Piece,
    fetched: Mapping[int, LeafBytes],
    *,
    memory_limit: int,
    verify_checksums: bool = True,
    left: list[int] | None = None,
) -> RowSelection:
    """Return the rows of a piece that match, from the leaves that its filter needs.

    Parameters and errors are those of `decode_piece`.
    """
    with _errors_of(task):
        return _Decoder(task, piece, fetched, memory_limit, verify_checksums, left).match()


@contextmanager
def _errors_of(task: ScanTask) -> Iterator[None]:
    """Make every error an AccelError that names the task's file."""
    try:
        with refuse_unforeseen(f"row group {task.row_group}"):
            yield
    except AccelError as error:
        raise error.of(task.file.url) from error.__cause__


class _Decoder:
    """Decodes columns of one piece."""

    def __init__(
        self,
        task: ScanTask,
        piece: Piece,
        fetched: Mapping[int, LeafBytes],
        memory_limit: int,
        verify_checksums: bool,
        left: list[int] | None,
    ) -> None:
        self._task = task
        self._piece = piece
        self._parts = {part.reads.leaf: part for part in piece.leaves}
        self._fetched = fetched
        self._memory_limit = memory_limit
        self._verify_checksums = verify_checksums
        self._left = left
        self._kinds: dict[str, pa.DataType] = {}

    def matching(self) -> tuple[dict[str, pa.Array], int]:
        """Return the result's columns at the rows that match, and the number of these rows.

        Where the filter decides on every row, its columns are decoded once and serve the result as well. The
        other columns are decoded along with them, or later from the pages that hold a row that matches.
        """
        query, piece = self._task.file.query, self._piece
        if piece.certain:
            rows = self.match()
            return (self._numbered(self.decode(query.output_leaves, rows), rows) if rows else {}), rows.count
        late = self.late_leaves()
        leaves = query.filter_leaves if late else sorted({*query.filter_leaves, *query.output_leaves})
        columns = self.decode(leaves, piece.rows, values=Values.INDEXED)
        matches = match_rows(self._task, columns, piece.rows.count)
        matched = int(np.count_nonzero(matches))
        if not matched:
            return {}, 0
        refined = piece.rows.refine(matches)
        fresh = self.decode(late, refined, values=Values.INDEXED) if late else {}
        columns = {f.name: columns[f.name] for f in query.output if f.name in columns and f.name not in fresh}
        if matched < len(matches):
            packed = bools(matches)
            columns = {name: filter_rows(array, packed) for name, array in columns.items()}
        return self._numbered(self._look_up({**columns, **fresh}), refined), matched

    def _numbered(self, columns: dict[str, pa.Array], rows: RowSelection) -> dict[str, pa.Array]:
        """Return the columns, with the numbers of these rows in the file where the result has them."""
        name = self._task.file.question.row_number
        if name is None or self._task.file.query.output.get_field_index(name) < 0:
            return columns
        if 8 * rows.count > self._memory_limit:
            raise MemoryLimitError(
                f"the numbers of {rows.count} rows", place=f"row group {self._task.row_group}"
            )
        numbers = from_numpy(self._task.first_row + rows.row_numbers())
        if name in columns:
            # The file has numbers of its own, of rows that were moved into it.
            numbers = kernels.fill_null(columns[name], numbers)
        return {**columns, name: numbers}

    def match(self) -> RowSelection:
        """Return the rows that match without a filter, and those of the others that the filter accepts."""
        piece = self._piece
        maybe = piece.rows.without(piece.certain, self._task.num_rows)
        if not maybe:
            return piece.certain
        columns = self.decode(self._task.file.query.filter_leaves, maybe, values=Values.INDEXED)
        return piece.certain.union(maybe.refine(match_rows(self._task, columns, maybe.count)))

    def decode(
        self, leaves: Sequence[int], rows: RowSelection, *, values: Values = Values.DECODED
    ) -> dict[str, pa.Array]:
        """Return the top-level columns that hold these leaves, by name, at the given rows."""
        if not leaves:
            return {}
        file = self._task.file
        schema = schema_of(file, leaves)
        arrays = decode_columns(
            StoredRowGroup(
                file.id.path,
                self._task.row_group,
                file.schema,
                file.key_value,
                file.created_by,
                file.int96_unit,
            ),
            {leaf: self._chunk(leaf, rows) for leaf in leaves},
            rows=rows,
            arrow_schema=schema,
            values=values,
            memory_limit=self._memory_limit,
            verify_checksums=self._verify_checksums,
            left=self._left,
        )
        self._kinds.update(zip(schema.names, schema.types, strict=True))
        return dict(zip(schema.names, arrays, strict=True))

    def _look_up(self, columns: Mapping[str, pa.Array]) -> dict[str, pa.Array]:
        """Return the columns with values in place of dictionary indices."""
        out = {}
        for name, array in columns.items():
            kind = self._kinds[name]
            if is_indexed(array, kind):
                place = f"row group {self._task.row_group}, column {name}"
                array = look_up(array, kind, memory_limit=self._memory_limit, place=place)
            out[name] = array
        return out

    def late_leaves(self) -> list[int]:
        """Return the leaves of the result's columns that the filter does not decode in full.

        The list is empty where they decode to so little that a call of their own does not pay.
        """
        query, leaves = self._task.file.query, self._task.file.schema.leaves
        # A struct of which the filter uses another part is decoded again.
        differ = set(query.output_leaves).symmetric_difference(query.filter_leaves)
        fresh = {leaves[leaf].path[0] for leaf in differ}
        late = [leaf for leaf in query.output_leaves if leaves[leaf].path[0] in fresh]
        return late if sum(self._parts[leaf].decoded_bytes for leaf in late) > LEAST_LATE_BYTES else []

    def _chunk(self, leaf: int, rows: RowSelection) -> ChunkPages:
        """Return the pages of a leaf that hold the rows."""
        part, fetched = narrow_leaf(
            self._parts[leaf], self._fetched[leaf], rows=rows, memory_limit=self._memory_limit
        )
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


# Bytes of a batch that shares the columns of another one.
_BATCH_BYTES = 128


def match_rows(task: ScanTask, columns: Mapping[str, pa.Array], num_rows: int) -> Bools:
    """Return which rows of decoded columns the task's filter accepts."""
    from accel.predicate.evaluate import evaluate

    query = task.file.query
    if query.bound is None:
        return np.ones(num_rows, bool)
    columns = _coalesced(columns, query)
    own = [path for path in query.filter_paths if path not in query.filled]
    arrays = {path: _pick(columns[path[0]], path[1:]) for path in own}
    for path, (above, kind) in query.filled.items():
        # Of the struct there is nothing but its nulls.
        struct = _pick(columns[above[0]], above[1:])
        arrays[path] = _pick(_conformed(struct, above, kind, file=task.file), path[-1:])
    for path, kind in query.conformed.items():
        arrays[path] = _conformed(arrays[path], path, kind, file=task.file)
    arrays.update((path, repeat_scalar(value, num_rows)) for path, value in query.constants.items())
    return evaluate(query.bound, arrays, num_rows)


def _coalesced(columns: Mapping[str, pa.Array], query: FileQuery) -> Mapping[str, pa.Array]:
    """Return the columns, of which those whose nulls stand for a value have that."""
    filled = {
        name: kernels.fill_null(_plain(columns[name]), value)
        for name, value in query.coalesced.items()
        if name in columns and value.is_valid
    }
    return {**columns, **filled} if filled else columns


def _plain(array: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Return values in place of dictionary indices."""
    return array.cast(array.type.value_type) if pa.types.is_dictionary(array.type) else array


def _pick(array: pa.Array | pa.ChunkedArray, path: tuple[str, ...]) -> pa.Array | pa.ChunkedArray:
    """Return a descendant of a struct; it is null where any of its parents is null."""
    if not path:
        return array
    if isinstance(array, pa.ChunkedArray):
        return pa.chunked_array([_pick(chunk, path) for chunk in array.chunks])
    index = array.type.get_field_index(path[0])
    return _pick(array.flatten()[index], path[1:])


def filter_rows(array: pa.Array | pa.ChunkedArray, keep: pa.BooleanArray) -> pa.Array | pa.ChunkedArray:
    """Return the rows of an array for which `keep` is true."""
    if holds_views(array.type):
        # pyarrow has no filter for views, so slices are joined.
        if isinstance(array, pa.ChunkedArray):
            array = pa.concat_arrays(array.chunks)
        if is_view(array.type):
            return take_views(array, from_numpy(np.flatnonzero(mask(keep))))
        return pa.concat_arrays([array.slice(a, b - a) for a, b in RowSelection.from_mask(mask(keep))])
    return kernels.filter(array, keep)


def make_batches(
    task: ScanTask, columns: Mapping[str, pa.Array], num_rows: int, batch_rows: int, *, memory_limit: int
) -> list[pa.RecordBatch]:
    """Return the result's columns of `num_rows` rows in batches.

    Raises
    ------
    MemoryLimitError
        No column is read, and the list of batches alone would take more memory than the limit.
    """
    query = task.file.query
    schema, constants = query.output, query.output_constants
    fields = [field for field in schema if field.name not in constants]
    if not fields:
        return _constant_batches(query, num_rows, batch_rows, memory_limit)
    columns = _coalesced(columns, query)
    arrays = [_conformed(columns[field.name], (field.name,), field.type, file=task.file) for field in fields]
    own = schema if len(fields) == len(schema) else pa.schema(fields)
    if any(isinstance(a, pa.ChunkedArray) for a in arrays):
        table = pa.Table.from_arrays(arrays, schema=own)
        batches = [b for b in table.to_batches(max_chunksize=batch_rows) if b.num_rows]
    else:
        batch = pa.RecordBatch.from_arrays(arrays, schema=own)
        batches = [batch.slice(at, batch_rows) for at in range(0, num_rows, batch_rows)]
    return batches if own is schema else _with_constants(batches, query)


def _with_constants(batches: list[pa.RecordBatch], query: FileQuery) -> list[pa.RecordBatch]:
    """Return the batches with the constant columns added, of which all batches share one array."""
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


def _constant_batches(
    query: FileQuery, num_rows: int, batch_rows: int, memory_limit: int
) -> list[pa.RecordBatch]:
    """Return batches of constants or of no column: the same one repeated, because only the footer limits
    their number."""
    whole, rest = divmod(num_rows, batch_rows)
    if whole * _BATCH_BYTES > memory_limit:
        raise MemoryLimitError(
            f"a row group of {num_rows} rows, of which no column is read",
            place=f"batches of {batch_rows} rows",
            hint="`count_rows` answers how many there are",
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


def _conformed(
    array: pa.Array | pa.ChunkedArray, path: Sequence[str], kind: pa.DataType, *, file: TaskFile
) -> pa.Array | pa.ChunkedArray:
    if array.type.equals(kind):
        return array
    from accel.planning.conform import conform_array

    defaults = file.question.evolution.defaults
    for name in path:
        defaults = defaults.below(name)
    conform = partial(conform_array, to=kind, url=file.url, name=".".join(path), defaults=defaults)
    if not isinstance(array, pa.ChunkedArray):
        return conform(array)
    return pa.chunked_array([conform(chunk) for chunk in array.chunks], kind)


def _empty_columns(num_rows: int) -> pa.RecordBatch:
    """Return a batch of rows without columns."""
    return pa.RecordBatch.from_struct_array(pa.nulls(num_rows, pa.struct([])))
