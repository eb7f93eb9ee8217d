"""Columns read as indices, page by page, or in two parts: what comes out is what pyarrow's own reading of the
whole gives.

Random columns of the types that have such a way, beside others that have none: nulls, required and optional,
every codec, both kinds of page, dictionaries that run full midway, whole chunks and chosen pages, several row
groups.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from accel.decode import columns, dictionary_decode, direct_decoders, units
from accel.decode.dictionary_arrays import Values
from accel.decode.trim import is_view
from tests.unit.decode.selected import (
    assert_same,
    decode,
    open_metadata,
    random_rows,
    truth,
)

_CODECS = ["none", "snappy", "gzip", "brotli", "zstd", "lz4"]


def _decimals(rng: random.Random, rows: int, entries: int, kind: pa.DataType) -> pa.Array:
    top = 10**kind.precision - 1
    few = [rng.randint(-top, top) for _ in range(entries)] + [0, -1, top, -top]
    width = kind.bit_width // 8
    data = b"".join(rng.choice(few).to_bytes(width, "little", signed=True) for _ in range(rows))
    return pa.Array.from_buffers(kind, rows, [None, pa.py_buffer(data)])


def _fixed(rng: random.Random, rows: int, entries: int, kind: pa.DataType) -> pa.Array:
    few = [rng.randbytes(kind.byte_width) for _ in range(entries)]
    return pa.Array.from_buffers(
        kind, rows, [None, pa.py_buffer(b"".join(rng.choice(few) for _ in range(rows)))]
    )


def _texts(rng: random.Random, rows: int, entries: int, kind: pa.DataType) -> pa.Array:
    few = ["é" * rng.randrange(5) + str(rng.randrange(10**6)) for _ in range(entries)] + [""]
    texts = pa.array([rng.choice(few) for _ in range(rows)], pa.string())
    return texts if is_view(kind) else texts.cast(kind)


def _column(rng: random.Random, rows: int) -> pa.Array:
    entries = rng.choice([1, 3, 40, 1000])
    make, kind = rng.choice(
        [
            *(
                (_texts, kind)
                for kind in (
                    pa.string(),
                    pa.large_string(),
                    pa.string_view(),
                    pa.binary(),
                    pa.large_binary(),
                )
            ),
            *((_fixed, pa.binary(width)) for width in (1, 5, 16)),
            *((_decimals, pa.decimal128(precision, 2)) for precision in (3, 9, 15, 18, 20, 30, 38)),
            (_decimals, pa.decimal256(60, 5)),
        ]
    )
    array = make(rng, rows, entries, kind)
    share = rng.choice([0.0, 0.0, 0.2, 1.0])
    # A run without nulls, so that some pages have none.
    valid = np.array([place < rows // 3 or rng.random() >= share for place in range(rows)])
    if share:
        array = pc.if_else(pa.array(valid), array, pa.nulls(rows, array.type))
    return array if array.type == kind else array.cast(kind)


def _file(rng: random.Random, rows: int) -> tuple[bytes, pa.Schema]:
    arrays = [_column(rng, rows) for _ in range(3)]
    names = ["a", "b", "c"]
    fields = [
        pa.field(n, a.type, nullable=bool(a.null_count) or rng.random() < 0.5) for n, a in zip(names, arrays)
    ]
    # Beside them one that is never read so: its parent may be null.
    nested = pa.StructArray.from_arrays(
        [arrays[0]], ["x"], mask=pa.array([rng.random() < 0.1 for _ in range(rows)])
    )
    table = pa.Table.from_arrays([*arrays, nested], schema=pa.schema([*fields, pa.field("s", nested.type)]))
    options: dict[str, Any] = {
        "compression": rng.choice(_CODECS),
        "data_page_version": rng.choice(["1.0", "2.0"]),
        "use_dictionary": rng.random() < 0.8,
        "dictionary_pagesize_limit": rng.choice([60, 500, 1 << 20]),
        "write_page_index": rng.random() < 0.8,
        "write_page_checksum": rng.random() < 0.5,
        "store_schema": rng.random() < 0.5,
        "max_rows_per_page": rng.choice([7, 40, 1000]),
        "write_batch_size": rng.choice([7, 40]),
        "row_group_size": rng.choice([rows, 1 + rows // 2]),
    }
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, **options)
    return sink.getvalue().to_pybytes(), table.schema


@pytest.mark.parametrize("seed", range(60))
def test_every_way_gives_what_pyarrow_gives(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(seed)
    rows = rng.choice([1, 60, 400, 2500])
    data, _ = _file(rng, rows)
    monkeypatch.setattr(direct_decoders, "MOST_PICKED", rng.choice([0, 1 << 15]))
    monkeypatch.setattr(direct_decoders, "SEVERAL", rng.choice([1, 4]))
    monkeypatch.setattr(dictionary_decode, "FEW_VALUES", rng.choice([0, 4096]))
    groups = len(open_metadata(data).group_rows)
    for group in range(groups):
        count = int(open_metadata(data).group_rows[group])
        for _ in range(4):
            chosen, whole = random_rows(rng, count), rng.random() < 0.3
            expected = truth(data, chosen, group=group)
            for values in Values:
                assert_same(decode(data, chosen, group=group, whole=whole, values=values), expected)
            with monkeypatch.context() as slow:
                slow.setattr(units, "stays_indexed", lambda *given, **named: False)
                slow.setattr(columns, "read_directly", lambda *given, **named: None)
                assert_same(decode(data, chosen, group=group, whole=whole, values=Values.DECODED), expected)
