"""The bytes of each kind, put together here as docs/formats.md has them: what files hold must not change."""

from __future__ import annotations

import struct

import numpy as np
import pyarrow as pa
import xxhash
from pyroaring import BitMap

from accel.indexes import Bitmap, Bloom, ChunkValues, Distinct, IndexKind, Level, Ngram, Sketch, Zonemap
from tests.unit.indexes.data import ask_for, pages, shown


def u32(*values: int) -> bytes:
    return struct.pack(f"<{len(values)}I", *values)


def u64(*values: int) -> bytes:
    return struct.pack(f"<{len(values)}Q", *values)


def i64(*values: int) -> bytes:
    return struct.pack(f"<{len(values)}q", *values)


def flags(*units: int) -> bytes:
    return np.packbits(np.array(units, bool), bitorder="little").tobytes()


def matrix(*cells: int) -> bytes:
    bitmap = BitMap(cells)
    bitmap.run_optimize()
    return u32(len(bitmap.serialize())) + bitmap.serialize()


def built(
    kind: IndexKind, *values: list, type: pa.DataType | None = None, level: Level = Level.PAGE
) -> bytes:
    return kind.build(iter([pages(*values, type=type)]), level=level)


def test_distinct() -> None:
    data = built(Distinct(), ["b", None], ["ac", "b"], [None])
    presence = flags(1, 0, 1) + flags(1, 1, 0)
    values = u32(6, 2) + u32(1, 3) + b"bac"
    assert data == b"AIDs" + u32(3) + presence + u32(1) + values + matrix(0, 1, 4)
    whole = built(Distinct(), ["b", None], ["ac"], level=Level.FILE)
    assert whole == b"AIDs" + u32(1) + flags(1) + flags(1) + u32(1) + values
    assert built(Distinct(max_values=1), ["b"], ["c"]) == b"AIDs" + u32(2) + flags(0, 0) + flags(1, 1) + u32(
        0
    )


def test_bitmap() -> None:
    rest = u32(3, 0) + flags(0, 1, 1) + flags(1, 1, 0) + u32(1, 1) + u32(2, 1, 0)
    part = b"AIBp" + u64(5, 2**64 - 1) + matrix(0, 3, 4)
    rest += u32(1) + u64(5) + u32(2) + u64(len(part)) + u64(xxhash.xxh64_intdigest(part))
    head = b"AIBm" + u32(len(rest) + 16) + rest
    head += u64(xxhash.xxh64_intdigest(head))
    assert built(Bitmap(), [5, -1], [-1, None], [None], type=pa.int32()) == head + part
    assert Bitmap().head_bytes(head + part) == len(head)


def test_bloom() -> None:
    salts = (0x47B6137B, 0x44974D91, 0x8824AD5B, 0xA2B7289D, 0x705495C7, 0x2DF1424B, 0x9EFC4947, 0x5C6BFB31)
    words = [0] * 8
    for text in (b"x", b"yz"):
        low = xxhash.xxh64_intdigest(text) % 2**32
        words = [word | 1 << (low * salt % 2**32 >> 27) for word, salt in zip(words, salts, strict=True)]
    first = u32(2) + flags(1, 0) + flags(0, 1) + u32(6) + u32(0, 1)
    part = u32(*words)
    rest = first + u32(1) + u64(xxhash.xxh64_intdigest(part))
    head = b"AIB2" + u32(len(rest) + 16) + rest
    data = head + u64(xxhash.xxh64_intdigest(head)) + part
    assert built(Bloom(), [None], ["x", "yz"]) == data
    assert Bloom().head_bytes(data) == len(data) - 32
    asked = ask_for("x IN ('x', 'other')", pa.string())
    parsed = Bloom().parse(data, level=Level.PAGE, units=2)
    assert shown(parsed.prune(asked)) == ["N", "TF"]


def test_the_parts_of_blooms() -> None:
    kind = Bloom()
    values = [list(range(30_000)), list(range(30_000, 60_000))]
    data = built(kind, *values, type=pa.int64())
    whole = kind.parse(data, level=Level.PAGE, units=2)
    blocks, count = whole.head.counts, len(whole.head.checksums)
    assert count > 1
    start = kind.head_bytes(data)
    words = np.frombuffer(data[start:], "<u4").reshape(count, -1, 8)
    for key in (5, 59_999):
        h = xxhash.xxh64_intdigest(i64(key))
        unit = key // 30_000
        block = (h >> 32) * int(blocks[unit]) * count >> 32
        part, inner = divmod(block, int(blocks[unit]))
        assert part == (h >> 32) * count >> 32
        assert (words[part, int(blocks[:unit].sum()) + inner] != 0).all()


def test_ngram() -> None:
    grams = sorted(int.from_bytes(g, "big") for g in (b"abc", b"bcd"))
    first = u32(2) + flags(0, 0) + flags(1, 1) + flags(0, 0)
    part = b"AINp" + u32(*grams) + matrix(0, 1, 2)
    rest = first + u32(1) + u64(grams[0]) + u32(2) + u64(len(part)) + u64(xxhash.xxh64_intdigest(part))
    head = b"AIN3" + u32(len(rest) + 16) + rest
    data = head + u64(xxhash.xxh64_intdigest(head)) + part
    assert built(Ngram(), ["aBcD", "x"], ["ABC"]) == data
    asked = ask_for("x LIKE '%abcd%'", pa.string())
    assert shown(Ngram().parse(data, level=Level.PAGE, units=2).prune(asked)) == ["TF", "F"]


def figures() -> bytes:
    """Of a page with 7, -2 and a null, and of one with a null."""
    ends = flags(1, 1) + flags(1, 0) + u32(10)
    data = u32(7) + b"integer" + i64(3, 1) + i64(1, 1) + i64(0, 0)
    data += ends + bytes.fromhex("3ffd7fffffffffffffff") + ends + bytes.fromhex("c003e000000000000000")
    return data + u32(1) + (5).to_bytes(16, "little") + (0).to_bytes(16, "little")


def test_zonemap() -> None:
    member = u32(1) + u32(5) + b"value" + u32(1) + u32(0)
    assert (
        built(Zonemap(), [7, -2, None], [None], type=pa.int16()) == b"AIZ4" + u32(2, 1) + member + figures()
    )


def test_zonemap_of_tuples() -> None:
    values = [{"a": 1, "b": "x"}, {"a": 1, "b": "y" * 65}, {"a": 2, "b": None}]
    kind = Zonemap(columns=("(a, b)",))
    array = pa.array(values, pa.struct({"a": pa.int64(), "b": pa.string()}))
    data = kind.build(iter([ChunkValues(array, np.array([0, 2]), 3)]), level=Level.PAGE)
    member = u32(2) + u32(5) + b"value" + u32(2) + u32(1) + u32(1) + b"a" + u32(1) + u32(1) + b"b"
    lower = (
        flags(1, 1) + flags(0, 0) + u32(1, 2) + i64(1, 2) + flags(1, 1) + flags(0, 1) + u32(6, 2, 1, 1) + b"x"
    )
    upper = flags(1, 1) + flags(0, 0) + u32(1, 2) + i64(1, 2)
    upper += flags(1, 1) + flags(0, 1) + u32(6, 2, 64, 64) + b"y" * 63 + b"z"
    assert data == b"AIZ4" + u32(2, 1) + member + lower + upper


def test_sketch() -> None:
    data = built(Sketch(buckets=2), [1.0, 2.0, None, 2.0], type=pa.float64(), level=Level.ROW_GROUP)
    start = b"AISk" + u32(5) + u64(4, 1, 0)
    assert data.startswith(start)
    estimate, buckets, low, _, high, length = struct.unpack_from("<dIdddI", data, len(start))
    assert (round(estimate, 3), buckets, low, high) == (2.0, 2, 1.0, 2.0)
    assert len(data) == len(start) + 8 + 4 + 24 + 4 + length
