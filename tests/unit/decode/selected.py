"""A file in memory, the pages of it that hold some rows, and what pyarrow says those rows are."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from accel.decode.arrow import projected_schema
from accel.decode.chunks import ChunkPages
from accel.decode.columns import StoredRowGroup, decode_columns
from accel.decode.dictionary_arrays import Values, is_indexed, look_up
from accel.decode.verify import needs_dictionary
from accel.errors import IndexFormatError
from accel.format.footer import parse_footer, parse_tail
from accel.format.model import FileMetadata, OffsetIndex
from accel.format.page_index import parse_offset_index
from accel.planning.selection import RowSelection

LIMIT = 1 << 30


def open_metadata(data: bytes) -> FileMetadata:
    tail = parse_tail(data[-8:])
    start = len(data) - 8 - tail.length
    return parse_footer(data[start:-8], file_size=len(data), footer_start=start)


def offset_index(data: bytes, meta: FileMetadata, group: int, leaf: int) -> OffsetIndex | None:
    chunks = meta.chunks
    at, length = int(chunks.offset_index_offset[group, leaf]), int(chunks.offset_index_length[group, leaf])
    if at < 0:
        return None
    try:
        return parse_offset_index(
            data[at : at + length],
            num_rows=int(meta.group_rows[group]),
            lower=int(chunks.start[group, leaf]),
            upper=int(chunks.end[group, leaf]),
        )
    except IndexFormatError:
        # pyarrow writes a page without rows now and then: such an index is not used.
        return None


def whole_chunk(data: bytes, meta: FileMetadata, group: int, leaf: int) -> ChunkPages:
    chunks = meta.chunks
    start, end = int(chunks.start[group, leaf]), int(chunks.end[group, leaf])
    return ChunkPages(
        leaf=leaf,
        codec=int(chunks.codec[group, leaf]),
        dictionary=None,
        buffers=(memoryview(data)[start:end],),
        first_rows=np.zeros(1, np.int64),
        stop_rows=meta.group_rows[group : group + 1].copy(),
        num_values=int(chunks.num_values[group, leaf]),
        whole=True,
    )


def chosen_pages(data: bytes, meta: FileMetadata, group: int, leaf: int, rows: RowSelection) -> ChunkPages:
    """The pages of one leaf that hold `rows`, neighbours in one buffer; the whole chunk without an index."""
    index = offset_index(data, meta, group, leaf)
    if index is None:
        return whole_chunk(data, meta, group, leaf)
    num_rows = int(meta.group_rows[group])
    stops = np.append(index.first_row[1:], num_rows)
    pages = np.flatnonzero(rows.overlaps(index.first_row, num_rows))
    runs: list[list[int]] = []
    for page in pages.tolist():
        start, end = int(index.offset[page]), int(index.offset[page] + index.size[page])
        if runs and runs[-1][1] == start:
            runs[-1][1] = end
        else:
            runs.append([start, end])
    buffers = tuple(memoryview(data)[a:b] for a, b in runs)
    dictionary = None
    if any(needs_dictionary(buffer) for buffer in buffers):
        start = int(meta.chunks.start[group, leaf])
        dictionary = memoryview(data)[start : int(index.offset[0])]
    return ChunkPages(
        leaf=leaf,
        codec=int(meta.chunks.codec[group, leaf]),
        dictionary=dictionary,
        buffers=buffers,
        first_rows=index.first_row[pages],
        stop_rows=stops[pages],
        num_values=int(meta.chunks.num_values[group, leaf]),
        whole=False,
    )


def decode(
    data: bytes,
    rows: RowSelection,
    *,
    leaves: Sequence[int] | None = None,
    group: int = 0,
    memory_limit: int | None = LIMIT,
    whole: bool = False,
    values: Values = Values.DECODED,
) -> pa.Table:
    """The rows as accel decodes them, indices looked up; `leaves` defaults to all, `whole` takes whole
    chunks."""
    meta = open_metadata(data)
    wanted = range(len(meta.schema.leaves)) if leaves is None else leaves
    schema = projected_schema(meta.schema, meta.key_value, leaves=wanted)
    chunks = {
        leaf: whole_chunk(data, meta, group, leaf) if whole else chosen_pages(data, meta, group, leaf, rows)
        for leaf in wanted
    }
    arrays = decode_columns(
        StoredRowGroup("file.parquet", group, meta.schema, meta.key_value),
        chunks,
        rows=rows,
        arrow_schema=schema,
        values=values,
        memory_limit=memory_limit,
    )
    if values is Values.INDEXED:
        arrays = [
            look_up(array, kind, memory_limit=memory_limit, place="here")
            if is_indexed(array, kind)
            else array
            for array, kind in zip(arrays, schema.types, strict=True)
        ]
    return pa.Table.from_arrays(arrays, schema=schema)


def truth(
    data: bytes, rows: RowSelection, *, columns: Sequence[str] | None = None, group: int = 0
) -> pa.Table:
    """The rows as pyarrow's full read has them."""
    full = _full_read(data, None if columns is None else tuple(columns), group)
    if not rows:
        return full.slice(0, 0)
    return pa.concat_tables([full.slice(a, b - a) for a, b in rows])


@lru_cache(maxsize=8)
def _full_read(data: bytes, columns: tuple[str, ...] | None, group: int) -> pa.Table:
    file = pq.ParquetFile(pa.BufferReader(data), page_checksum_verification=True)
    return file.read_row_group(group, columns=None if columns is None else list(columns))


def random_rows(rng: random.Random, num_rows: int) -> RowSelection:
    """A few or many ranges of a few or many rows."""
    kind = rng.randrange(5)
    if kind == 0:
        at = rng.randrange(num_rows)
        return RowSelection.of([(at, at + 1)])
    if kind == 1:
        return RowSelection.all(num_rows)
    if kind == 2:
        return RowSelection.of([(i, i + 1) for i in range(num_rows) if rng.random() < 0.2])
    count = rng.randrange(1, 6)
    ends = [sorted(rng.sample(range(num_rows + 1), 2)) for _ in range(count)]
    return RowSelection.of([(a, b) for a, b in ends])


def assert_same(found: pa.Table, expected: pa.Table) -> None:
    """The same schema (metadata of fields included), the same values, and sound arrays."""
    found.validate(full=True)
    assert found.schema.types == expected.schema.types
    assert found.schema.equals(expected.schema, check_metadata=True)
    assert found.num_rows == expected.num_rows
    for name, a, b in zip(found.column_names, found.columns, expected.columns, strict=True):
        assert a.type == b.type, name
        assert a.null_count == b.null_count, name
        if not _has_floats(a.type) and a.equals(b):
            continue
        assert _values(a) == _values(b), name


def _has_floats(kind: pa.DataType) -> bool:
    """Whether Arrow's own equality would tell NaN apart from itself, or not -0.0 from 0.0."""
    if kind.num_fields:
        return any(_has_floats(kind.field(number).type) for number in range(kind.num_fields))
    return pa.types.is_floating(kind) or pa.types.is_dictionary(kind)


def _values(array: pa.ChunkedArray) -> list[str]:
    # By repr: NaN equals itself, and -0.0 is not 0.0.
    return [repr(value) for value in array.to_pylist()]
