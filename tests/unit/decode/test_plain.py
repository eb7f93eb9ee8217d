"""PLAIN values taken out of their pages: which columns, which pages, and the same bytes as pyarrow makes of them."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from accel.decode import plain
from accel.decode.plain import has_fixed_length, may_be_plain, read_plain, widen
from accel.decode.verify import verify_chunk
from accel.errors import ParquetFormatError
from accel.planning.selection import RowSelection
from tests.unit.decode.selected import chosen_pages, decode, open_metadata

_ROWS = 100
_BYTES = pa.array([bytes([i, 255 - i, i // 2]) for i in range(_ROWS)], pa.binary(3))


def _write(array: pa.Array, **options: Any) -> bytes:
    sink = pa.BufferOutputStream()
    table = pa.Table.from_arrays(
        [array], schema=pa.schema([pa.field("c", array.type, nullable=options.pop("nullable", True))])
    )
    settings = {
        "write_page_index": True,
        "max_rows_per_page": 30,
        "write_batch_size": 10,
        "use_dictionary": False,
    }
    pq.write_table(table, sink, **{**settings, **options})
    return bytes(sink.getvalue())


def _read(data: bytes, rows: RowSelection) -> pa.Array | None:
    meta = open_metadata(data)
    leaf, element = meta.schema.leaves[0], meta.schema.elements[1]
    chunk = chosen_pages(data, meta, 0, 0, RowSelection.all(_ROWS))
    facts = verify_chunk(chunk, leaf, element, memory_limit=None, place=lambda: "here")
    kind = pq.read_schema(pa.BufferReader(data)).field(0).type
    assert may_be_plain(kind, element, leaf, facts)
    return read_plain(
        chunk,
        facts,
        rows,
        kind=kind,
        width=element.type_length,
        optional=leaf.max_definition > 0,
        verify_checksums=True,
    )


@pytest.mark.parametrize("width", range(1, 17))
@pytest.mark.parametrize("count", [0, 1, 2, 9, 50])
def test_integers_of_every_width(width: int, count: int) -> None:
    rng = random.Random(width * 100 + count)
    top = 1 << (8 * width - 1)
    numbers = [rng.choice([0, -1, top - 1, -top, rng.randrange(-top, top)]) for _ in range(count)]
    raw = b"".join(number.to_bytes(width, "big", signed=True) for number in numbers)
    out = np.empty((count, 2), np.int64)
    widen(np.frombuffer(raw, np.uint8), width, out)
    found = [int.from_bytes(row.tobytes(), "little", signed=True) for row in out]
    assert found == numbers


_PAGES: dict[str, dict[str, Any]] = {
    "v1": {},
    "v2": {"data_page_version": "2.0", "compression": "none"},
    "required": {"nullable": False},
    "required v2": {"nullable": False, "data_page_version": "2.0", "compression": "none"},
    **{codec: {"compression": codec} for codec in ("none", "gzip", "zstd", "brotli", "lz4")},
}


@pytest.mark.parametrize("options", _PAGES.values(), ids=_PAGES)
def test_pages_of_the_plain_form(options: dict[str, Any]) -> None:
    data = _write(_BYTES, **options)
    few = RowSelection.of([(0, 1), (29, 31), (99, 100)])
    assert _read(data, RowSelection.all(_ROWS)).equals(_BYTES)  # type: ignore[union-attr]
    assert _read(data, few).equals(pa.concat_arrays([_BYTES[a:b] for a, b in few]))  # type: ignore[union-attr]


_NULL = pa.concat_arrays([_BYTES[:70], pa.nulls(1, _BYTES.type), _BYTES[71:]])


@pytest.mark.parametrize(
    ("array", "options"),
    [
        (_NULL, {"compression": "none"}),
        (_NULL, {"compression": "none", "data_page_version": "2.0"}),
        (_BYTES, {"data_page_version": "2.0", "compression": "zstd"}),
        (_BYTES, {"column_encoding": {"c": "BYTE_STREAM_SPLIT"}}),
        (_BYTES, {"column_encoding": {"c": "DELTA_BYTE_ARRAY"}}),
    ],
    ids=["a null", "a null v2", "not worth compressing", "split bytes", "common prefixes"],
)
def test_pages_of_another_form(array: pa.Array, options: dict[str, Any]) -> None:
    data = _write(array, **options)
    assert _read(data, RowSelection.all(_ROWS)) is None
    assert decode(data, RowSelection.all(_ROWS))["c"].combine_chunks().equals(array)
    # A page that none of the rows lie on is not looked at.
    if array is _NULL:
        assert _read(data, RowSelection.of([(0, 3)])).equals(_BYTES[:3])  # type: ignore[union-attr]


def test_a_damaged_page_is_refused_where_its_rows_are_wanted() -> None:
    data = _write(_BYTES, compression="none", write_page_checksum=True)
    meta = open_metadata(data)
    at = data.index(_BYTES[50].as_py())
    broken = data[:at] + b"\x99" + data[at + 1 :]
    with pytest.raises(ParquetFormatError, match="row group 0, column c: the CRC checksum of a page"):
        decode(broken, RowSelection.all(_ROWS))
    assert _read(broken, RowSelection.of([(0, 30)])).equals(_BYTES[:30])  # type: ignore[union-attr]
    assert len(meta.schema.leaves) == 1


def test_levels_that_end_early_or_say_otherwise() -> None:
    present = plain._all_present
    assert present(np.array([20, 1], np.uint8), 10)
    assert present(np.array([6, 1, 14, 1], np.uint8), 10)
    assert present(np.zeros(0, np.uint8), 0)
    for levels in ([], [20], [20, 0], [18, 1], [3, 255, 3], [0x80, 0x80, 0x80], [0, 1] * 3):
        assert not present(np.array(levels, np.uint8), 10), levels


def test_which_types_are_taken() -> None:
    element = open_metadata(_write(_BYTES)).schema.elements[1]
    assert has_fixed_length(pa.binary(3), element)
    assert has_fixed_length(pa.decimal128(6, 2), element)
    for kind in (pa.binary(4), pa.binary(), pa.decimal256(6, 2), pa.float16(), pa.uuid()):
        assert not has_fixed_length(kind, element)
