"""Bitmaps and matrices of bits: round trips, and bytes that break their rules."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pyarrow as pa
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st
from pyroaring import BitMap

from accel.errors import IndexFormatError
from accel.indexes.matrix import Matrix, bitmap_runs, decode_bitmap, encode_bitmap, write_matrix
from accel.indexes.native import Tag, hash_natives, hash_values, uniform
from accel.indexes.wire import BlobReader, BlobWriter

SETS = {
    "none": [],
    "one": [0],
    "largest": [2**32 - 1],
    "array": list(range(0, 5000, 3)),
    "bitset": list(range(0, 65536, 2)),
    "run": list(range(10, 60000)),
    "five containers": [k * 65536 + i for k in range(5) for i in (1, 9)],
    "nine containers of runs": [k * 65536 + i for k in range(9) for i in range(100)],
    "all forms": [*range(0, 65536, 2), *range(65536, 100_000), 200_000, 300_000, 400_001],
}


def members(bitmap: BitMap) -> list[int]:
    return np.frombuffer(bitmap.to_array(), np.uint32).tolist()


@pytest.mark.parametrize("name", SETS)
def test_there_and_back(name: str) -> None:
    data = encode_bitmap(np.array(SETS[name], np.uint32))
    assert members(decode_bitmap(memoryview(data), limit=2**32)) == SETS[name]
    if SETS[name]:
        with pytest.raises(IndexFormatError, match="members that are not"):
            decode_bitmap(memoryview(data), limit=SETS[name][-1])


@pytest.mark.parametrize("name", SETS)
def test_runs(name: str) -> None:
    bitmap = decode_bitmap(memoryview(encode_bitmap(np.array(SETS[name], np.uint32))), limit=2**32)
    runs = [pair for first, last in bitmap_runs(bitmap) for pair in zip(first, last, strict=True)]
    assert [i for first, last in runs for i in range(first, last + 1)] == SETS[name]


@pytest.mark.parametrize("name", SETS)
def test_truncated(name: str) -> None:
    data = encode_bitmap(np.array(SETS[name], np.uint32))
    for length in sorted({*range(min(len(data), 64)), len(data) // 2, len(data) - 1}):
        with pytest.raises(IndexFormatError):
            decode_bitmap(memoryview(data[:length]), limit=2**32)
    with pytest.raises(IndexFormatError):
        decode_bitmap(memoryview(data + b"\0"), limit=2**32)


def test_what_breaks_the_rules_never_reaches_the_library() -> None:
    def array(*values: int) -> bytes:
        head = (12346).to_bytes(4, "little") + (1).to_bytes(4, "little")
        card = (len(values) - 1).to_bytes(2, "little")
        return (
            head
            + b"\0\0"
            + card
            + (16).to_bytes(4, "little")
            + b"".join(v.to_bytes(2, "little") for v in values)
        )

    assert members(decode_bitmap(memoryview(array(1, 5)), limit=9)) == [1, 5]
    for broken in (array(5, 1), array(5, 5)):
        with pytest.raises(IndexFormatError, match="out of order"):
            decode_bitmap(memoryview(broken), limit=9)
    bitset = bytearray(encode_bitmap(np.array(SETS["bitset"], np.uint32)))
    bitset[-1] ^= 0x80
    with pytest.raises(IndexFormatError, match="cardinality"):
        decode_bitmap(memoryview(bytes(bitset)), limit=2**32)
    run = bytearray(encode_bitmap(np.array(SETS["run"], np.uint32)))
    run[-1] ^= 0xFF
    with pytest.raises(IndexFormatError, match="runs that overlap"):
        decode_bitmap(memoryview(bytes(run)), limit=2**32)


def containers(*given: tuple[int, bytes, int, bool]) -> bytes:
    """A bitmap of fewer than four containers: key, body, cardinality, and whether it is of runs."""
    assert len(given) < 4
    flags = sum(run << number for number, (_, _, _, run) in enumerate(given))
    cookie = 12347 | (len(given) - 1) << 16
    heads = b"".join(
        key.to_bytes(2, "little") + (card - 1).to_bytes(2, "little") for key, _, card, _ in given
    )
    return cookie.to_bytes(4, "little") + bytes([flags]) + heads + b"".join(body for _, body, _, _ in given)


ARRAY = b"\x01\0\x05\0\x07\0"
RUNS = b"\x01\0\x02\0\x03\0"


def test_containers_of_several_forms_lie_one_behind_the_other() -> None:
    data = containers((0, ARRAY, 3, False), (2, RUNS, 4, True), (3, ARRAY, 3, False))
    expected = [1, 5, 7, *(2 << 16 | low for low in (2, 3, 4, 5)), *(3 << 16 | low for low in (1, 5, 7))]
    assert members(decode_bitmap(memoryview(data), limit=2**32)) == expected


@pytest.mark.parametrize("keys", [(2, 0), (2, 2)], ids=["descending", "twice the same"])
def test_containers_ascend(keys: tuple[int, int]) -> None:
    data = containers((keys[0], ARRAY, 3, False), (keys[1], RUNS, 4, True))
    with pytest.raises(IndexFormatError, match="containers out of order"):
        decode_bitmap(memoryview(data), limit=2**32)


@settings(max_examples=300, deadline=None, derandomize=True, database=None)
@given(
    st.binary(max_size=64)
    | st.binary(max_size=60).map(lambda b: b":0\0\0" + b)
    | st.binary(max_size=60).map(lambda b: b";0\0\0" + b)
)
def test_any_bytes_are_refused_or_a_bitmap(data: bytes) -> None:
    try:
        found = decode_bitmap(memoryview(data), limit=2**32)
    except IndexFormatError:
        return
    values = members(found)
    assert values == sorted(set(values))


@pytest.mark.parametrize("density", [1.0, 0.97, 0.3, 0.02])
@pytest.mark.parametrize("members_per_block", [2**32, 40, 7])
def test_matrix(members_per_block: int, density: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("accel.indexes.matrix.MEMBERS", members_per_block)
    monkeypatch.setattr("accel.indexes.matrix.FEW", 3)
    keys, units = 23, 7
    chance = np.random.default_rng(11)
    bits = chance.random((keys, units)) < density
    out = BlobWriter(b"test")
    write_matrix(out, np.flatnonzero(bits.ravel()), keys=keys, units=units)
    blob = BlobReader(out.bytes(), b"test")
    found = Matrix.read(blob, keys=keys, units=units)
    blob.end()
    assert [found.row(key).tolist() for key in range(keys)] == [np.flatnonzero(row).tolist() for row in bits]
    for wanted in (0.0, 0.1, 0.5, 1.0):
        chosen = chance.random(keys) < wanted
        assert found.any(chosen).tolist() == bits[chosen].any(axis=0).tolist()
        assert found.all(np.flatnonzero(chosen).tolist()).tolist() == bits[chosen].all(axis=0).tolist()


def test_runs_of_very_many_cells_are_not_counted_out() -> None:
    """Some kilobytes, which are hundreds of megabytes of cells."""
    bitmap = BitMap(range(1, (1 << 25) - 1))
    bitmap.run_optimize()
    keys, units = 1 << 9, 1 << 16
    out = BlobWriter(b"test")
    out.block(bitmap.serialize())
    found = Matrix.read(BlobReader(out.bytes(), b"test"), keys=keys, units=units)
    tracemalloc.start()
    try:
        held = found.any(np.arange(keys) < keys - 1)
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()
    assert held.all()


def test_more_cells_than_are_written_are_not_listed() -> None:
    bitmap = BitMap(range((1 << 32) - 1))
    bitmap.run_optimize()
    out = BlobWriter(b"test")
    out.block(bitmap.serialize())
    data = out.bytes()
    assert len(data) < 1 << 20
    found = Matrix.read(BlobReader(data, b"test"), keys=1 << 12, units=1 << 20)
    tracemalloc.start()
    try:
        for most in (5, 1 << 62):
            with pytest.raises(IndexFormatError, match="more than are written"):
                found.cells(most=most)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
    few = BlobWriter(b"test")
    write_matrix(few, np.array([1, 7, 12]), keys=3, units=7)
    keys, units = Matrix.read(BlobReader(few.bytes(), b"test"), keys=3, units=7).cells(most=3)
    assert (keys.tolist(), units.tolist()) == ([0, 1, 1], [1, 0, 5])


HASHED = [
    (
        pa.array([0, -1, 2**62], pa.int64()),
        Tag.INT64,
        [b"\0" * 8, b"\xff" * 8, (2**62).to_bytes(8, "little")],
    ),
    (pa.array([2**64 - 1], pa.uint64()), Tag.UINT64, [b"\xff" * 8]),
    (pa.array([-0.0, 1.0]), Tag.FLOAT64, [b"\0" * 8, b"\0\0\0\0\0\0\xf0?"]),
    (pa.array([True, False]), Tag.BOOLEAN, [b"\1" + b"\0" * 7, b"\0" * 8]),
    (pa.array(["", "é"]), Tag.BYTES, [b"", "é".encode()]),
    (pa.array([None, 5]).cast(pa.decimal128(20, 0)).slice(1), Tag.INT128, [(5).to_bytes(16, "little")]),
]


@pytest.mark.parametrize(("array", "tag", "stored"), HASHED, ids=[case[1].name for case in HASHED])
def test_hashes_are_xxh64_of_what_is_stored(array: pa.Array, tag: Tag, stored: list[bytes]) -> None:
    expected = [xxhash.xxh64_intdigest(data) for data in stored]
    assert hash_values(uniform(array)).tolist() == expected
    natives = [
        int(v) if tag is Tag.INT128 else v.encode() if isinstance(v, str) else v for v in array.to_pylist()
    ]
    assert (
        hash_natives(tuple(v + 0.0 if isinstance(v, float) else v for v in natives), tag).tolist() == expected
    )
