"""Bloom filters of pyarrow's: every value that is in one is found, nearly none that is not, and keys are the
stored bytes."""

from __future__ import annotations

import io
import struct
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from accel.errors import IndexFormatError
from accel.format.bloom import (
    BLOCK_BYTES,
    BloomHeader,
    expected_header,
    hash_keys,
    holds,
    parse_bloom_header,
    plain_keys,
    probe_block,
)
from accel.format.domain import BoundEncoding, Domain, RawType
from accel.format.thrift import BINARY, I32, STRUCT, Struct, write_struct
from tests.unit.format.files import parse

INT64 = BoundEncoding(domain=Domain.INTEGER, raw=RawType.INT64, width=8)
NAN, INF = float("nan"), float("inf")


def filter_of(values: list[int], distinct: int) -> bytes:
    """The bloom filter of a column, header and all."""
    sink = io.BytesIO()
    table = pa.table([pa.array(values, pa.int64())], names=["n"])
    pq.write_table(table, sink, bloom_filter_options={"n": {"ndv": distinct}})
    data = sink.getvalue()
    chunks = parse(data).chunks
    start, length = int(chunks.bloom_offset[0, 0]), int(chunks.bloom_length[0, 0])
    return data[start : start + length]


@pytest.mark.parametrize("distinct", [1, 20, 300, 2_000, 20_000])
def test_what_was_written_is_found_and_little_else(distinct: int) -> None:
    values = [n * n * 7919 - 5 for n in range(min(distinct, 2_000))]
    data = filter_of(values, distinct)
    header = parse_bloom_header(data)
    assert header.length + header.num_bytes == len(data)
    assert expected_header(len(data)) == header

    def found(value: int) -> bool:
        keys = plain_keys(INT64, value)
        assert keys == [struct.pack("<q", value)]
        (hashed,) = hash_keys(keys).tolist()
        start = header.length + BLOCK_BYTES * probe_block(hashed, header.num_blocks)
        return holds(data[start : start + BLOCK_BYTES], hashed)

    assert all(found(value) for value in values)
    others = [n * 1_000_003 + 1 for n in range(1, 1_001) if n * 1_000_003 + 1 not in values]
    assert sum(map(found, others)) < 60


def test_a_key_needs_its_eight_bits_and_no_others() -> None:
    (hashed,) = hash_keys([b"key"]).tolist()
    salts = (
        0x47B6137B, 0x44974D91, 0x8824AD5B, 0xA2B7289D, 0x705495C7, 0x2DF1424B, 0x9EFC4947, 0x5C6BFB31,
    )  # fmt: skip
    own = {32 * word + ((hashed * salt & 0xFFFFFFFF) >> 27) for word, salt in enumerate(salts)}
    every = (1 << 256) - 1
    lacking = {bit: (every ^ (1 << bit)).to_bytes(32, "little") for bit in range(256)}
    assert {bit for bit, block in lacking.items() if not holds(block, hashed)} == own
    assert holds(sum(1 << bit for bit in own).to_bytes(32, "little"), hashed)


@pytest.mark.parametrize(
    "length", [0, 12, 31, 32, 43, 44, 46, 47, 48, 1 << 20, (1 << 20) + 16, (1 << 31) - 1], ids=str
)
def test_a_header_is_expected_only_where_it_can_be(length: int) -> None:
    found = expected_header(length)
    if found is not None:
        assert (found.length + found.num_bytes, found.num_bytes % BLOCK_BYTES) == (length, 0)
        assert found.num_bytes > 0
        assert parse_bloom_header(header_bytes(found.num_bytes)) == found


def header_bytes(num_bytes: int, **others: Any) -> bytes:
    usual: Struct = {
        1: (I32, num_bytes),
        2: (STRUCT, {1: (STRUCT, {})}),
        3: (STRUCT, {1: (STRUCT, {})}),
        4: (STRUCT, {1: (STRUCT, {})}),
    }
    return write_struct(usual | {int(name[1:]): value for name, value in others.items()})


@pytest.mark.parametrize("blocks", [1, 2, 3, 255, 256, 257, 32_768, 1 << 20])
def test_the_usual_header_is_known_by_the_length_of_all(blocks: int) -> None:
    header = parse_bloom_header(header_bytes(32 * blocks))
    assert (header.num_bytes, header.num_blocks) == (32 * blocks, blocks)
    assert expected_header(header.length + header.num_bytes) == header


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (header_bytes(0), "a bloom filter of 0 bytes"),
        (header_bytes(-32), "a bloom filter of -32 bytes"),
        (header_bytes(31), "a bloom filter of 31 bytes"),
        (header_bytes(48), "a bloom filter of 48 bytes"),
        (header_bytes(32, f1=(BINARY, b"x")), "a bloom filter of"),
        (header_bytes(32, f2=(STRUCT, {2: (STRUCT, {})})), "the bloom filter's algorithm is not known"),
        (header_bytes(32, f3=(STRUCT, {})), "the bloom filter's hash is not known"),
        (header_bytes(32, f4=(STRUCT, {2: (STRUCT, {})})), "the bloom filter's compression is not known"),
        (header_bytes(32)[:-1], "the bloom filter's header does not parse"),
        (b"", "the bloom filter's header does not parse"),
    ],
)
def test_headers_that_are_none(data: bytes, message: str) -> None:
    with pytest.raises(IndexFormatError, match=message):
        parse_bloom_header(data)


def reading(domain: Domain, raw: RawType, *, width: int = 0, factor: int = 1) -> BoundEncoding:
    return BoundEncoding(domain=domain, raw=raw, width=width, factor=factor)


@pytest.mark.parametrize(
    ("kind", "value", "keys"),
    [
        (reading(Domain.INTEGER, RawType.INT32), 5, [b"\5\0\0\0"]),
        (reading(Domain.INTEGER, RawType.INT32), -(1 << 31), [b"\0\0\0\x80"]),
        (reading(Domain.INTEGER, RawType.INT32), 1 << 31, []),
        (reading(Domain.INTEGER, RawType.UINT32), (1 << 32) - 1, [b"\xff" * 4]),
        (reading(Domain.INTEGER, RawType.UINT32), -1, []),
        (reading(Domain.INTEGER, RawType.UINT64), 1 << 63, [bytes(7) + b"\x80"]),
        (reading(Domain.INTEGER, RawType.INT32, factor=1000), 5000, [b"\5\0\0\0"]),
        (reading(Domain.INTEGER, RawType.INT32, factor=1000), 5001, []),
        (reading(Domain.INTEGER, RawType.BIG_ENDIAN, width=3), -2, [b"\xff\xff\xfe"]),
        (reading(Domain.INTEGER, RawType.BIG_ENDIAN, width=1), 128, []),
        (reading(Domain.INTEGER, RawType.BIG_ENDIAN), 5, None),
        (reading(Domain.FLOAT, RawType.FLOAT64), 1.5, [struct.pack("<d", 1.5)]),
        (reading(Domain.FLOAT, RawType.FLOAT64), 0.0, [bytes(8), bytes(7) + b"\x80"]),
        (reading(Domain.FLOAT, RawType.FLOAT64), -0.0, [bytes(8), bytes(7) + b"\x80"]),
        (reading(Domain.FLOAT, RawType.FLOAT64), INF, [struct.pack("<d", INF)]),
        (reading(Domain.FLOAT, RawType.FLOAT64), NAN, None),
        (reading(Domain.FLOAT, RawType.FLOAT32), 0.1, []),
        (reading(Domain.FLOAT, RawType.FLOAT32), 1e300, []),
        (reading(Domain.FLOAT, RawType.FLOAT32), -0.5, [struct.pack("<f", -0.5)]),
        (reading(Domain.FLOAT, RawType.FLOAT16), 65504.0, [struct.pack("<e", 65504.0)]),
        (reading(Domain.FLOAT, RawType.FLOAT16), 65520.0, []),
        (reading(Domain.FLOAT, RawType.FLOAT64), 5, None),
        (reading(Domain.INTEGER, RawType.INT64), 5.0, None),
        (reading(Domain.BYTES, RawType.BYTES), b"ab", [b"ab"]),
        (reading(Domain.INTEGER, RawType.INT64), b"ab", None),
        (reading(Domain.BOOLEAN, RawType.INT32), True, None),
    ],
    ids=lambda value: f"{value.raw.name}" if isinstance(value, BoundEncoding) else str(value),
)
def test_keys_are_the_bytes_that_are_stored(
    kind: BoundEncoding, value: float | bytes, keys: list[bytes] | None
) -> None:
    assert plain_keys(kind, value) == keys


def test_a_header_tells_its_blocks() -> None:
    assert BloomHeader(15, 96).num_blocks == 3
    assert [probe_block(hashed, 3) for hashed in (0, (1 << 64) - 1, 1 << 63)] == [0, 2, 1]
