"""Damaged bytes of every kind that `accel.format` parses: a value or an AccelError, soon and small.

Never fed to pyarrow, which aborts on some of them.
"""

from __future__ import annotations

import random
import time
import tracemalloc
from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa
import pytest

from accel.errors import AccelError, ParquetFormatError
from accel.format.bounds import chunk_bounds, page_bounds
from accel.format.footer import parse_footer, parse_tail
from accel.format.page_header import parse_page_header, walk_pages
from accel.format.page_index import parse_column_index, parse_offset_index
from accel.format.thrift import read_struct
from tests.unit.format.files import footer_of, parse, write

ROWS, PAGES = 200, 10
TYPES = [pa.int32(), pa.string(), pa.int64(), pa.decimal128(30, 2), pa.float64()]
SEED = 20261121
SECONDS = 5.0
"""For one damaged piece; the slowest takes milliseconds."""


def build() -> bytes:
    from decimal import Decimal

    numbers = [None if i % 7 == 0 else i for i in range(ROWS)]
    columns = [
        pa.array(numbers, TYPES[0]),
        pa.array([None if v is None else f"text {v}" for v in numbers]),
        pa.array([[v, v] for v in numbers], pa.list_(TYPES[2])),
        pa.array([None if v is None else Decimal(v) for v in numbers], TYPES[3]),
        pa.array(np.arange(ROWS) / 3),
    ]
    table = pa.Table.from_arrays(columns, ["i", "s", "l", "d", "f"])
    return write(
        table,
        write_page_index=True,
        max_rows_per_page=ROWS // PAGES,
        data_page_version="2.0",
        row_group_size=ROWS,
    )


RAW = build()
FOOTER, FOOTER_START = footer_of(RAW)
METADATA = parse(RAW)


def read_footer(data: bytes) -> None:
    metadata = parse_footer(data, file_size=len(RAW), footer_start=FOOTER_START)
    chunks = metadata.chunks
    local = (chunks.start >= 0) & ~chunks.external
    assert (chunks.start[local] <= chunks.end[local]).all()
    assert (chunks.end <= FOOTER_START).all()
    for name in ("column_index", "offset_index", "bloom"):
        offset, length = getattr(chunks, f"{name}_offset"), getattr(chunks, f"{name}_length")
        assert (offset + np.maximum(length, 0) <= FOOTER_START).all()
    assert metadata.num_rows == metadata.group_rows.sum() >= 0
    for leaf in range(min(len(metadata.schema.leaves), len(TYPES))):
        for kind in (TYPES[leaf], pa.int64(), pa.binary()):
            bounds = chunk_bounds(metadata, leaf, arrow_type=kind)
            assert len(bounds) == metadata.num_row_groups


def read_offset_index(data: bytes) -> None:
    index = parse_offset_index(data, num_rows=ROWS, lower=4, upper=FOOTER_START)
    assert (index.offset >= 4).all()
    assert (index.offset + index.size <= FOOTER_START).all()
    assert (np.diff(index.first_row) > 0).all()


def column_index_reader(leaf: int) -> Callable[[bytes], None]:
    def read(data: bytes) -> None:
        index = parse_column_index(data, num_pages=PAGES)
        rows = np.full(PAGES, ROWS // PAGES)
        bounds = page_bounds(METADATA, leaf, index, rows, arrow_type=TYPES[leaf])
        assert len(bounds) == PAGES
        assert (index.min_start + index.min_length <= len(data)).all()
        assert (index.max_start + index.max_length <= len(data)).all()

    return read


def read_pages(data: bytes) -> None:
    pages = walk_pages(data, max_pages=100)
    assert (pages.start < pages.body).all()
    assert (pages.end <= len(data)).all()


def read_header(data: bytes) -> None:
    header = parse_page_header(data)
    assert 0 < header.header_length <= len(data)
    assert min(header.compressed_size, header.uncompressed_size, header.num_values) >= 0


def piece(name: str, leaf: int) -> bytes:
    start = int(getattr(METADATA.chunks, f"{name}_offset")[0, leaf])
    return RAW[start : start + int(getattr(METADATA.chunks, f"{name}_length")[0, leaf])]


def chunk_bytes(leaf: int) -> bytes:
    return RAW[int(METADATA.chunks.start[0, leaf]) : int(METADATA.chunks.end[0, leaf])]


PIECES: dict[str, tuple[bytes, Callable[[bytes], None]]] = {
    "footer": (FOOTER, read_footer),
    "thrift": (FOOTER, lambda data: read_struct(data) and None),
    "offset index": (piece("offset_index", 1), read_offset_index),
    "column index of numbers": (piece("column_index", 0), column_index_reader(0)),
    "column index of texts": (piece("column_index", 1), column_index_reader(1)),
    "column index of decimals": (piece("column_index", 3), column_index_reader(3)),
    "column index of floats": (piece("column_index", 4), column_index_reader(4)),
    "pages": (chunk_bytes(1), read_pages),
    "page header": (chunk_bytes(0)[:80], read_header),
}


def outcome(read: Callable[[bytes], None], data: bytes) -> bool:
    """Whether the bytes were taken; anything but that or an AccelError fails the test."""
    begun = time.perf_counter()
    try:
        read(data)
    except AccelError as error:
        assert str(error)
        taken = False
    else:
        taken = True
    assert time.perf_counter() - begun < SECONDS
    return taken


def flips(data: bytes) -> Iterator[bytes]:
    """Every byte set to the values that lie best, and to one that chance picks."""
    chance = random.Random(SEED)
    for at in range(len(data)):
        changes = {0x00, 0x7F, 0x80, 0xFF, data[at] ^ 1, data[at] ^ 0x10, chance.randrange(256)} - {data[at]}
        for value in sorted(changes):
            yield data[:at] + bytes([value]) + data[at + 1 :]


@pytest.mark.parametrize("name", PIECES)
def test_whole_bytes_are_taken(name):
    data, read = PIECES[name]
    assert outcome(read, data)


@pytest.mark.parametrize("name", PIECES)
def test_truncated_at_every_byte(name):
    data, read = PIECES[name]
    taken = [length for length in range(len(data)) if outcome(read, data[:length])]
    if name == "footer":
        assert taken == []
    if name == "pages":
        # A cut between two pages cannot be seen.
        starts = walk_pages(data, max_pages=100).start.tolist()
        assert taken == starts


@pytest.mark.parametrize("name", PIECES)
def test_every_byte_changed(name):
    data, read = PIECES[name]
    refused = sum(not outcome(read, damaged) for damaged in flips(data[:1500] if name == "pages" else data))
    assert refused > 0


@pytest.mark.parametrize("name", PIECES)
def test_noise_over_stretches(name):
    data, read = PIECES[name]
    chance = random.Random(SEED)
    refused = 0
    for _ in range(400):
        at, length = chance.randrange(len(data)), chance.randrange(1, 40)
        damaged = data[:at] + chance.randbytes(length) + data[at + chance.choice([0, length]) :]
        refused += not outcome(read, damaged)
    assert refused > 0


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


HUGE = varint((1 << 31) - 1)
BOMBS = {
    "schema list of two billion": b"\x15\x02\x19\xfc" + HUGE,
    "row group list of two billion": b"\x49\xfc" + HUGE,
    "key-value list of two billion": b"\x59\xfc" + HUGE,
    "order list of two billion": b"\x79\xfc" + HUGE,
    "created_by of two billion": b"\x68" + HUGE,
    "empty schema elements": b"\x29\xfc" + varint(100_000) + bytes(100_000),
    "empty row groups": b"\x29\x1c\x48\x01r\x15\x00\x00\x29\xfc" + varint(200_000) + bytes(200_000),
    "empty encrypted chunks": b"\x29\x1c\x48\x01r\x15\x00\x00\x29\x1c\x19\xfc"
    + varint(100_000)
    + b"\x8c\x00\x00" * 100_000,
    "nested unknown structs": b"\x9c" + b"\x1c" * 100_000,
    "nested unknown lists": b"\x99" + b"\x19" * 100_000,
    "nothing": b"",
    "stop": b"\x00",
    "zeros": bytes(100_000),
    "ones": b"\xff" * 100_000,
}


@pytest.mark.parametrize("data", BOMBS.values(), ids=BOMBS.keys())
def test_bombs_are_refused_in_bounded_memory(data):
    tracemalloc.start()
    try:
        begun = time.perf_counter()
        with pytest.raises(ParquetFormatError):
            parse_footer(data, file_size=1 << 20, footer_start=1000)
        assert time.perf_counter() - begun < SECONDS
        assert tracemalloc.get_traced_memory()[1] < 100 * len(data) + (1 << 20)
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("length", range(9))
def test_tails_of_any_bytes(length):
    chance = random.Random(SEED + length)
    for _ in range(50):
        tail = chance.randbytes(length)
        with pytest.raises(AccelError):
            parse_tail(tail)
