"""PLAIN values taken out of their pages: the columns, the pages, and the same bytes as pyarrow's."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from accel.decode.plain_pages import (
    DataPage,
    Form,
    Shape,
    data_pages,
    form_of,
    is_plain,
    read_plain,
    value_bytes,
    widen,
)
from accel.decode.verify import verify_chunk
from accel.errors import ParquetFormatError
from accel.format.model import Codec, Encoding
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
    facts = verify_chunk(chunk, leaf, element=element, memory_limit=None, place=lambda: "here")
    kind = pq.read_schema(pa.BufferReader(data)).field(0).type
    form = form_of(kind, element)
    assert form is not None
    optional = leaf.max_definition > 0
    pages = data_pages(chunk, facts)
    touched = rows.counts(chunk.first_rows, chunk.stop_rows) > 0
    if not all(
        is_plain(page, form, optional=optional) for page, used in zip(pages, touched, strict=True) if used
    ):
        return None
    return read_plain(pages, rows, kind=kind, form=form, optional=optional)


@pytest.mark.parametrize("width", range(1, 17))
@pytest.mark.parametrize("count", [0, 1, 2, 9, 50])
def test_integers_of_every_width(width: int, count: int) -> None:
    rng = random.Random(width * 100 + count)
    top = 1 << (8 * width - 1)
    numbers = [rng.choice([0, -1, top - 1, -top, rng.randrange(-top, top)]) for _ in range(count)]
    raw = b"".join(number.to_bytes(width, "big", signed=True) for number in numbers)
    out = np.empty((count, 2), np.int64)
    widen(np.frombuffer(raw, np.uint8), width, out=out)
    found = [int.from_bytes(row.tobytes(), "little", signed=True) for row in out]
    assert found == numbers


_PAGES: dict[str, dict[str, Any]] = {
    "v1": {},
    "v2": {"data_page_version": "2.0", "compression": "none"},
    "v2, of which some are not worth compressing": {"data_page_version": "2.0", "compression": "zstd"},
    "required": {"nullable": False},
    "required v2": {"nullable": False, "data_page_version": "2.0", "compression": "none"},
    **{codec: {"compression": codec} for codec in ("none", "gzip", "zstd", "lz4", "brotli")},
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
        (_BYTES, {"column_encoding": {"c": "BYTE_STREAM_SPLIT"}}),
        (_BYTES, {"column_encoding": {"c": "DELTA_BYTE_ARRAY"}}),
    ],
    ids=["a null", "a null v2", "split bytes", "common prefixes"],
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


def _are_present(levels: bytes, count: int) -> bool:
    """Whether the values of a v2 page with these definition levels are read."""
    body = memoryview(levels + bytes(count))
    page = DataPage(
        body,
        codec=Codec.UNCOMPRESSED,
        is_v2=True,
        uncompressed=len(body),
        num_values=count,
        num_nulls=0,
        encoding=Encoding.PLAIN,
        level_bytes=len(levels),
        level_encoding=Encoding.RLE,
        crc=-1,
    )
    (raw,) = value_bytes([page], optional=True)
    return raw is not None and len(raw) == count


def test_levels_that_end_early_or_say_otherwise() -> None:
    assert _are_present(bytes([20, 1]), 10)
    assert _are_present(bytes([6, 1, 14, 1]), 10)
    assert _are_present(b"", 0)
    for levels in ([], [20], [20, 0], [18, 1], [3, 255, 3], [0x80, 0x80, 0x80], [0, 1] * 3):
        assert not _are_present(bytes(levels), 10), levels


def test_which_types_are_taken() -> None:
    element = open_metadata(_write(_BYTES)).schema.elements[1]
    assert form_of(pa.binary(3), element) == Form(Shape.COPIED, 3, 3)
    assert form_of(pa.decimal128(6, 2), element) == Form(Shape.SWAPPED, 3, 16)
    for kind in (pa.binary(4), pa.binary(), pa.decimal256(6, 2), pa.float16(), pa.uuid(), pa.string()):
        assert form_of(kind, element) is None, kind


_MOMENTS = pa.array(range(_ROWS), pa.timestamp("ms"))


@pytest.mark.parametrize(
    ("array", "kind", "form"),
    [
        (_MOMENTS, pa.timestamp("ms"), Form(Shape.COPIED, 8, 8)),
        (_MOMENTS, pa.timestamp("ms", "UTC"), Form(Shape.COPIED, 8, 8)),
        (_MOMENTS, pa.timestamp("us"), None),
        (_MOMENTS, pa.time64("us"), None),
        (_MOMENTS, pa.date64(), None),
        (_MOMENTS, pa.int32(), None),
        (pa.array(range(_ROWS), pa.uint8()), pa.uint8(), Form(Shape.NARROWED, 4, 1)),
        (pa.array(range(_ROWS), pa.uint8()), pa.int64(), None),
        (pa.array(range(_ROWS), pa.float32()), pa.float64(), None),
        (pa.array(["a"] * _ROWS), pa.large_binary(), Form(Shape.TEXT, 0, 0)),
        (pa.array(["a"] * _ROWS), pa.string_view(), None),
        (pa.array([True] * _ROWS), pa.bool_(), None),
    ],
)
def test_a_form_fits_the_type_that_comes_out(array: pa.Array, kind: pa.DataType, form: Form | None) -> None:
    assert form_of(kind, open_metadata(_write(array)).schema.elements[1]) == form


_IDS = pa.array([f"{number:05}" for number in range(_ROWS)])


def _but(row: int, text: str) -> pa.Array:
    texts = _IDS.to_pylist()
    texts[row] = text
    return pa.array(texts)


@pytest.mark.parametrize(
    ("array", "taken"),
    [
        (_IDS, True),
        (_IDS.cast(pa.large_string()), True),
        (pa.array([""] * _ROWS), True),
        (pa.array(["é"] * _ROWS), True),
        (pa.array(["x" * (1 + row // 30) for row in range(_ROWS)]), True),
        (_but(40, "000"), False),
        (pa.concat_arrays([_but(40, "000")[:50], pa.array(["0000000"]), _IDS[51:]]), False),
    ],
    ids=["ids", "large", "empty", "umlauts", "another length in each page", "one is short", "short and long"],
)
@pytest.mark.parametrize("options", _PAGES.values(), ids=_PAGES)
def test_texts_of_one_length(array: pa.Array, taken: bool, options: dict[str, Any]) -> None:
    data = _write(array, **options)
    found = _read(data, RowSelection.all(_ROWS))
    assert found == (array if taken else None)
    few = RowSelection.of([(0, 1), (29, 31), (45, 46), (99, 100)])
    for rows in (few, RowSelection.all(_ROWS)):
        kept = pa.concat_arrays([array[a:b] for a, b in rows])
        assert decode(data, rows)["c"].combine_chunks().equals(kept)
        assert decode(data, rows, whole=True)["c"].combine_chunks().equals(kept)


def test_texts_that_are_no_text_come_out_as_pyarrow_has_them() -> None:
    offsets = np.arange(0, 2 * _ROWS + 2, 2, np.int32)
    wrong = pa.Array.from_buffers(
        pa.string(), _ROWS, [None, pa.py_buffer(offsets), pa.py_buffer(b"\xff\xfe" * _ROWS)]
    )
    found = decode(_write(wrong), RowSelection.all(_ROWS))["c"].combine_chunks()
    assert found.buffers()[2].to_pybytes() == b"\xff\xfe" * _ROWS
