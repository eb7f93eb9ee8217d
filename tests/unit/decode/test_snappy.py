"""Snappy by the library and by pyarrow: the same bytes, the same refusals; and when the library is loaded."""

from __future__ import annotations

import random
import subprocess
import sys
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from accel.decode import codecs
from accel.decode.plain_pages import decompress
from accel.format.model import Codec

_SIZES = [0, 1, 59, 60, 61, 1_000, 65_535, 65_536, 65_537, 300_000]


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> codecs._Library:
    fresh = codecs._Library()
    monkeypatch.setattr(codecs, "_library", fresh)
    return fresh


def _use(library: codecs._Library, *, fast: bool) -> None:
    library.decompress, library.missing = None, not fast
    if fast:
        codecs._load()
        assert library.decompress is not None


def _bytes(kind: str, size: int, rng: random.Random) -> bytes:
    if kind == "noise":
        return rng.randbytes(size)
    if kind == "zeros":
        return bytes(size)
    words = [rng.randbytes(rng.randrange(1, 90)) for _ in range(20)]
    data = b"".join(rng.choices(words, k=size // 10 + 1))
    return (data * (size // max(1, len(data)) + 1))[:size]


def _by_both(library: codecs._Library, body: bytes, size: int) -> list[bytes | None]:
    found = []
    for fast in (True, False):
        _use(library, fast=fast)
        raw = decompress(memoryview(body), Codec.SNAPPY, size=size)
        found.append(None if raw is None else raw.tobytes())
    return found


@pytest.mark.parametrize("kind", ["noise", "zeros", "words"])
@pytest.mark.parametrize("size", _SIZES)
def test_both_decompress_to_the_same_bytes(kind: str, size: int, library: codecs._Library) -> None:
    data = _bytes(kind, size, random.Random(size))
    body = pa.Codec("snappy").compress(data, asbytes=True)
    assert _by_both(library, body, size) == [data, data]


@pytest.mark.parametrize("due", [-1, 1, -100, 100])
def test_another_size_than_the_page_s_is_refused_by_both(due: int, library: codecs._Library) -> None:
    body = pa.Codec("snappy").compress(_bytes("words", 5_000, random.Random(1)), asbytes=True)
    assert _by_both(library, body, 5_000 + due) == [None, None]


@pytest.mark.parametrize("seed", range(8))
def test_of_damaged_bytes_both_make_the_same(seed: int, library: codecs._Library) -> None:
    rng = random.Random(seed)
    refused = 0
    for _ in range(150):
        size = rng.choice([40, 700, 9_000])
        body = bytearray(
            pa.Codec("snappy").compress(_bytes(rng.choice(["noise", "words"]), size, rng), asbytes=True)
        )
        for _ in range(rng.choice([1, 1, 4])):
            at = rng.randrange(len(body))
            match rng.randrange(3):
                case 0:
                    body[at] = rng.randrange(256)
                case 1:
                    del body[at : at + rng.randrange(1, 4)]
                case _:
                    body[at:at] = rng.randbytes(rng.randrange(1, 4))
            body = body or bytearray(1)
        fast, slow = _by_both(library, bytes(body), size)
        assert fast == slow
        refused += fast is None
    assert 10 < refused < 150


def test_what_is_written_into_has_the_size_that_is_due(library: codecs._Library) -> None:
    _use(library, fast=True)
    unpack = library.decompress
    assert unpack is not None
    body = pa.Codec("snappy").compress(b"x" * 1_000, asbytes=True)
    held = np.full(1_020, 7, np.uint8)
    assert unpack(body, held[10:1_010])
    assert held.tobytes() == b"\7" * 10 + b"x" * 1_000 + b"\7" * 10
    held[:] = 7
    # A longer one is refused before a byte is written.
    assert not unpack(body, held[10:1_009])
    assert (held == 7).all()
    assert not unpack(body, held[10:1_011])


def test_the_library_is_loaded_once_it_pays(library: codecs._Library) -> None:
    assert codecs.fast_snappy(5 << 20) is None
    assert library.decompress is None
    assert codecs.fast_snappy((3 << 20) - 1) is None
    found = codecs.fast_snappy(1)
    assert found is not None
    assert codecs.fast_snappy(0) is found


def test_without_the_library_pyarrow_decompresses(
    library: codecs._Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "cramjam", None)
    assert codecs.fast_snappy(1 << 30) is None
    assert library.missing
    data = _bytes("words", 5_000, random.Random(2))
    body = pa.Codec("snappy").compress(data, asbytes=True)
    raw: Any = decompress(memoryview(body), Codec.SNAPPY, size=5_000)
    assert raw.tobytes() == data
    # It is not looked for again.
    monkeypatch.undo()
    assert library.missing


_SMALL = """
import sys
import pyarrow as pa
import accel
from accel.testing import DictStore, Layout, bench_table, write_file
data = write_file(bench_table(2_000), Layout(codec="snappy"))
scan = accel.scan("memory:///x.parquet", where=accel.col("key") > 1_500, store=DictStore({"x.parquet": data}))
assert scan.to_table().num_rows
print("cramjam" in sys.modules)
"""


def test_a_first_scan_of_few_bytes_does_not_load_it() -> None:
    command = [sys.executable, "-c", _SMALL]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.stdout, done.stderr) == ("False\n", "")
