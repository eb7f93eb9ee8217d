"""Damaged Snappy pages by cramjam's library: what pyarrow's own makes of them, and nothing else ever
raised."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import accel
from accel.decode import codecs
from accel.decode.codecs import decompress
from accel.format.model import Codec
from accel.testing import DictStore, Layout, write_file

ROWS = 12_000
COLUMNS = {
    "numbers": pa.array(np.arange(ROWS) * 7919 % 1001),
    "texts": pa.array([f"text {i * 7919 % 997}" for i in range(ROWS)]),
    "nulls": pa.array([None if i % 7 == 0 else i / 3 for i in range(ROWS)]),
    "lists": pa.array([[i % 5] * (i % 3) for i in range(ROWS)]),
}
STREAMS = {
    "empty": b"",
    "one byte": b"a",
    "copies": b"abcabcabcabc" * 9,
    "literal": bytes(range(200)),
    "run": bytes(3000),
    "words": b"hello world 5 " * 20,
}
# Read as a length: 2**32 - 1, 2**64 - 1, more than any; 2**32, which is not Snappy's.
LENGTHS = [b"\xff\xff\xff\xff\x0f", b"\xff" * 9 + b"\x01", b"\x80" * 11, b"\x80\x80\x80\x80\x10", b""]


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Iterator[codecs.Unpack]:
    """Loaded, for however few bytes."""
    monkeypatch.setattr(codecs, "cramjam_library", codecs.CramjamLibrary())
    unpack = codecs.fast_snappy(1 << 40)
    if unpack is None:
        pytest.skip("cramjam is not installed")
    yield unpack


def by_pyarrow(stream: bytes, size: int) -> bytes | None:
    try:
        return bytes(pa.Codec("snappy").decompress(stream, decompressed_size=size, asbytes=True))
    except (pa.ArrowException, OSError, ValueError):
        return None


def damaged(stream: bytes) -> Iterator[bytes]:
    for bit in range(8 * len(stream)):
        body = bytearray(stream)
        body[bit >> 3] ^= 1 << (bit & 7)
        yield bytes(body)
    yield from (stream[:end] for end in range(len(stream)))
    yield from (length + stream[1:] for length in LENGTHS)
    yield from (stream + tail for tail in (b"\0", b"\xff\xff", stream))


@pytest.mark.parametrize("name", STREAMS)
def test_streams_of_every_flipped_bit(name: str, library: codecs.Unpack) -> None:
    data = STREAMS[name]
    stream = bytes(pa.Codec("snappy").compress(data, asbytes=True))
    known = 0
    for body in damaged(stream):
        out = bytearray(len(data))
        came = bytes(out) if library(body, out) else None
        assert came == by_pyarrow(body, len(data)), body
        known += came is not None
        # Of another size than is due nothing comes, nor is anything written behind what was given.
        for size in (len(data) + 1, max(0, len(data) - 1)):
            found = decompress(memoryview(body), Codec.SNAPPY, size=size)
            assert found is None or body[:1] != stream[:1]
    assert known or not data


def answer(data: bytes, **keywords: Any) -> tuple[str, Any]:
    try:
        found = accel.scan("f", store=DictStore({"f": data}), cache=None, **keywords).to_table()
    except accel.AccelError as error:
        return type(error).__name__, None
    return "rows", found


def test_damaged_files_are_what_pyarrow_takes_them_for(
    library: codecs.Unpack, monkeypatch: pytest.MonkeyPatch, large: bool
) -> None:
    outcomes: set[str] = set()
    for number in range(2000 if large else 60):
        rng = random.Random(number)
        name, version = rng.choice(list(COLUMNS)), rng.choice(["1.0", "2.0"])
        layout = Layout(
            group_rows=6000,
            page_rows=6000,
            codec="snappy",
            dictionary=rng.random() < 0.5,
            data_page=version,
            page_index=rng.random() < 0.5,
            checksums=rng.random() < 0.2,
        )
        data = bytearray(write_file(pa.table({"c": COLUMNS[name]}), layout))
        footer = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
        for _ in range(rng.choice([1, 1, 3])):
            data[rng.randrange(4, rng.choice([300, footer]))] ^= 1 << rng.randrange(8)
        keywords = {} if name == "lists" else {"where": rng.choice([None, "c IS NULL", "c IS NOT NULL"])}
        fast = answer(bytes(data), **keywords)
        with monkeypatch.context() as patch:
            patch.setattr(codecs.cramjam_library, "decompress", None)
            patch.setattr(codecs.cramjam_library, "missing", True)
            slow = answer(bytes(data), **keywords)
        assert fast[0] == slow[0], number
        # NaN, which damage may make, is no reason to differ.
        assert repr(fast[1] and fast[1].to_pylist()) == repr(slow[1] and slow[1].to_pylist()), number
        outcomes.add(fast[0])
    assert outcomes >= {"rows", "ParquetFormatError"}
