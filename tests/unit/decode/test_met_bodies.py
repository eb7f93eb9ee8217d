"""A body met before is what it was decompressed to then, to the byte; another never is."""

from __future__ import annotations

import asyncio
from collections import Counter

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import accel
from accel.decode import bodies
from accel.decode.bodies import decompress
from accel.decode.met_bodies import _MOST_EACH, Body, MetBodies
from accel.format.model import Codec
from accel.testing import DictStore

ZSTD = int(Codec.ZSTD)
SIZE = 5000


class Unpacked:
    """`decompress`, and which bodies it was asked for."""

    def __init__(self) -> None:
        self.asked: Counter[bytes] = Counter()

    def __call__(self, body: memoryview, codec: int, size: int) -> Body | None:
        self.asked[bytes(body)] += 1
        return decompress(body, codec, size)


def packed(seed: int, size: int = SIZE) -> bytes:
    raw = np.random.default_rng(seed).integers(0, 50, size).astype(np.uint8).tobytes()
    return bytes(pa.Codec("zstd").compress(raw, asbytes=True))


def test_a_body_is_decompressed_once_wherever_it_lies() -> None:
    met, unpack, body = MetBodies(), Unpacked(), packed(1)
    expected = bodies.decompress(memoryview(body), ZSTD, SIZE)
    assert expected is not None
    for stored in (memoryview(body), memoryview(bytearray(body)), memoryview(b"x" + body)[1:]):
        found = met.decompress(stored, ZSTD, SIZE, unpack)
        assert found is not None
        assert found.tobytes() == expected.tobytes()
        with pytest.raises(ValueError, match="read-only"):
            found[0] = 1
    assert unpack.asked == {body: 1}


def test_a_buffer_that_is_written_anew_is_another_body() -> None:
    met, unpack = MetBodies(), Unpacked()
    one, other = packed(1), packed(2)
    length = min(len(one), len(other))
    reused = bytearray(one)
    first = met.decompress(memoryview(reused), ZSTD, SIZE, unpack)
    reused[:] = other
    second = met.decompress(memoryview(reused), ZSTD, SIZE, unpack)
    assert first is not None
    assert second is not None
    assert first.tobytes() != second.tobytes()
    assert length > 0
    assert unpack.asked == {one: 1, other: 1}


def test_bodies_that_agree_at_both_ends_are_told_apart() -> None:
    """Their places are the same: the second takes that of the first."""

    def unpack(body: memoryview, codec: int, size: int) -> Body:
        return np.full(size, body[len(body) // 2], np.uint8)

    met = MetBodies()
    one, other = bytes(1000), bytes(500) + b"\1" + bytes(499)
    for body in (one, other, one, other, other):
        found = met.decompress(memoryview(body), ZSTD, SIZE, unpack)
        assert found is not None
        assert found[0] == body[500]
    assert len(met) == 1


@pytest.mark.parametrize(
    ("body", "size"),
    [
        pytest.param(packed(1, 4095), 4095, id="too short to be worth it"),
        pytest.param(packed(1, _MOST_EACH), _MOST_EACH, id="too long"),
        pytest.param(b"no frame of zstd" * 10, SIZE, id="damaged"),
        pytest.param(packed(1), SIZE - 1, id="of another length"),
    ],
)
def test_what_is_not_remembered(body: bytes, size: int) -> None:
    met, unpack = MetBodies(), Unpacked()
    for _ in range(2):
        found = met.decompress(memoryview(body), ZSTD, size, unpack)
        plain = bodies.decompress(memoryview(body), ZSTD, size)
        assert (found is None) == (plain is None)
        assert found is None or found.tobytes() == plain.tobytes()
    assert unpack.asked == {body: 2}
    assert len(met) == 0


def test_no_more_is_held_than_the_limit() -> None:
    each = SIZE + len(packed(1))
    met, unpack = MetBodies(limit=3 * each + 300), Unpacked()
    kept = [packed(seed) for seed in range(5)]
    for body in (*kept, *kept[2:], kept[0]):
        met.decompress(memoryview(body), ZSTD, SIZE, unpack)
    assert [unpack.asked[body] for body in kept] == [2, 1, 1, 1, 1]
    assert len(met) == 3
    assert len(MetBodies(limit=100)) == 0
    assert MetBodies(limit=100).decompress(memoryview(kept[0]), ZSTD, SIZE, unpack) is not None


def lookup_file(codec: str) -> bytes:
    """Pages of 1,000 rows with a page index."""
    rows = np.arange(20_000)
    texts = [f"text number {row * 7919 % 20_000} of many" for row in rows]
    table = pa.table({"key": 3 * rows, "value": rows * 0.3, "name": texts})
    sink = pa.BufferOutputStream()
    layout = {"data_page_size": 1, "write_batch_size": 1000, "write_page_index": True}
    pq.write_table(table, sink, compression=codec, use_dictionary=False, **layout)
    return bytes(sink.getvalue().to_pybytes())


@pytest.mark.parametrize("codec", ["zstd", "snappy", "gzip", "lz4", "none"])
async def test_many_lookups_of_the_same_pages(codec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows are the same as one by one without it, and each page of theirs is decompressed once."""
    unpack, met = Unpacked(), MetBodies()
    store = DictStore({"f.parquet": lookup_file(codec)})

    def look_up(key: int) -> accel.Scan:
        return accel.scan("f.parquet", where=f"key = {key}", store=store)

    keys = [3 * row for row in range(7000, 7200, 10)]
    with monkeypatch.context() as patch:
        patch.setattr(bodies, "_FEW", 0)
        expected = [look_up(key).to_table() for key in keys]
    monkeypatch.setattr(bodies, "met_bodies", met)
    found = await asyncio.gather(*(look_up(key).to_table_async() for key in keys))
    assert [table.num_rows for table in found] == [1] * len(keys)
    assert all(one.equals(other) for one, other in zip(found, expected, strict=True))
    assert (len(met) > 0) == (codec != "none")
    monkeypatch.setattr(bodies, "decompress", unpack)
    for key, table in zip(keys, expected, strict=True):
        assert look_up(key).to_table().equals(table)
    assert codec == "none" or not [
        body for body, times in unpack.asked.items() if times > 1 and len(body) > 4096
    ]
