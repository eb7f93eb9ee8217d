"""Pages without a value, wherever they lie: the rows are those of the file without them."""

from __future__ import annotations

import io
import itertools
import random
import zlib
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import accel
from accel.decode.arrow import projected_schema
from accel.decode.chunks import ChunkPages
from accel.decode.columns import decode_columns
from accel.errors import ParquetFormatError
from accel.format.model import PageType
from accel.format.page_header import walk_pages
from accel.format.thrift import I32, STRUCT, write_struct
from accel.planning.selection import RowSelection
from accel.testing import DictStore
from tests.unit.decode.selected import (
    assert_same,
    chosen_pages,
    open_metadata,
    random_rows,
    truth,
    whole_chunk,
)
from tests.unit.decode.typed import FLAT, NESTED, column

_ROWS = 400
_NAMES = ["int64", "string", *NESTED]


def _empty_page(encoding: int) -> bytes:
    """A v1 data page of no values, with a body as writers give it one."""
    body = bytes(8)
    data = {1: (I32, 0), 2: (I32, encoding), 3: (I32, 3), 4: (I32, 3)}
    header = {1: (I32, 0), 2: (I32, len(body)), 3: (I32, len(body)), 5: (STRUCT, data)}
    return write_struct(header) + body


def _with_empty_pages(chunk: ChunkPages, rng: random.Random) -> ChunkPages:
    """The chunk with such pages before, between and after its own."""
    buffers, counts = [], []
    for buffer in chunk.buffers:
        table = walk_pages(buffer, max_pages=1 << 20, num_values=chunk.num_values if chunk.whole else None)
        pieces: list[bytes] = []
        pages = zip(
            table.start.tolist(),
            table.end.tolist(),
            table.type.tolist(),
            table.encoding.tolist(),
            strict=True,
        )
        for start, end, kind, encoding in pages:
            if kind != PageType.DICTIONARY_PAGE:
                counts.append(rng.choice([0, 0, 1, 2]))
                pieces += [_empty_page(encoding)] * counts[-1]
            pieces.append(bytes(memoryview(buffer)[start:end]))
        buffers.append(b"".join(pieces))
    if chunk.whole:
        return replace(chunk, buffers=tuple(buffers))
    before = np.array(counts)
    owns = np.repeat(np.arange(len(before)), before + 1)
    is_own = np.append(owns[1:] != owns[:-1], True)
    first = chunk.first_rows[owns]
    return replace(
        chunk,
        buffers=tuple(buffers),
        first_rows=first,
        stop_rows=np.where(is_own, chunk.stop_rows[owns], first),
    )


def _written(table: pa.Table, **options: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, write_page_index=True, max_rows_per_page=37, **options)
    return sink.getvalue()


@pytest.mark.parametrize("whole", [True, False], ids=["whole chunks", "pages"])
@pytest.mark.parametrize("name", _NAMES)
def test_empty_pages_are_left_out(name: str, whole: bool) -> None:
    rng = random.Random(zlib.crc32(name.encode()))
    kind, make = (FLAT | NESTED)[name]
    table = pa.Table.from_arrays([column(kind, make, _ROWS, rng, nulls=0.2)], names=["c"])
    for codec, dictionary in itertools.product(("NONE", "ZSTD"), (True, False)):
        data = _written(table, compression=codec, use_dictionary=dictionary)
        meta = open_metadata(data)
        leaves = range(len(meta.schema.leaves))
        rows = random_rows(rng, _ROWS)
        found = decode_columns(
            meta.schema,
            meta.key_value,
            chunks={
                leaf: _with_empty_pages(
                    whole_chunk(data, meta, 0, leaf) if whole else chosen_pages(data, meta, 0, leaf, rows),
                    rng,
                )
                for leaf in leaves
            },
            rows=rows,
            arrow_schema=projected_schema(meta.schema, meta.key_value, leaves=leaves),
            leaves=leaves,
            path="f",
            row_group=0,
        )
        assert_same(pa.Table.from_arrays(found, names=["c"]), truth(data, rows))


def test_of_empty_pages_alone_no_row_comes() -> None:
    data = _written(pa.table({"c": pa.array([[1]], pa.list_(pa.int32()))}), use_dictionary=False)
    meta = open_metadata(data)
    chunk = replace(whole_chunk(data, meta, 0, 0), buffers=(_empty_page(0) * 2,))
    with pytest.raises(ParquetFormatError, match="the pages hold 0 values for 1 rows"):
        decode_columns(
            meta.schema,
            meta.key_value,
            chunks={0: chunk},
            rows=RowSelection.all(1),
            arrow_schema=projected_schema(meta.schema, meta.key_value, leaves=[0]),
            leaves=[0],
            path="f",
            row_group=0,
        )


@pytest.mark.parametrize("codec", ["none", "snappy", "zstd"])
@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("index", [True, False], ids=["page index", "none"])
def test_a_page_that_pyarrow_begins_too_soon(codec: str, version: str, index: bool) -> None:
    """A small limit has it end a page in the middle of a first row, of which that page is then to have none."""
    sink = io.BytesIO()
    table = pa.table({"c": pa.array([[1, 0]], pa.list_(pa.int32())), "n": [7]})
    pq.write_table(
        table, sink, data_page_size=1, compression=codec, data_page_version=version, write_page_index=index
    )
    store = DictStore({"f": sink.getvalue()})
    for where in (None, "n = 7", "c IS NOT NULL"):
        assert accel.scan("f", where, store=store, cache=None).to_table() == table
