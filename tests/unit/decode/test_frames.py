"""Zstandard bodies decompressed together come out as they do one by one, or not at all."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accel.decode.bodies import decompress
from accel.decode.frames import decompress_frames, frame_size
from accel.decode.stored import store_bytes
from accel.format.model import Codec

_SIZES = [0, 1, 255, 256, 257, 65_791, 65_792, 200_000]


def _packed(data: bytes) -> memoryview:
    return memoryview(pa.Codec("zstd").compress(data, asbytes=True))


def _streamed(data: bytes) -> memoryview:
    """As a writer that does not know the size beforehand has it."""
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as out:
        out.write(data)
    return memoryview(sink.getvalue().to_pybytes())


def _stored(data: bytes) -> memoryview:
    kept = store_bytes(data, Codec.ZSTD)
    assert kept is not None
    return memoryview(kept)


@pytest.mark.parametrize("size", _SIZES)
@pytest.mark.parametrize("pack", [_packed, _stored], ids=["compressed", "stored"])
def test_a_frame_tells_what_it_comes_to(size: int, pack: Callable[[bytes], memoryview]) -> None:
    assert frame_size(pack(b"x" * size)) == size


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\x28\xb5\x2f\xfd",
        b"\x28\xb5\x2f\xfd\x00",
        b"\x28\xb5\x2f\xfe\x20\x01\x00",
        b"\x28\xb5\x2f\xfd\x21\x00\x01\x01\x00\x00a",
        b"\x28\xb5\x2f\xfd\x28\x01\x09\x00\x00a",
        bytes(_streamed(b"x" * 1000)),
    ],
    ids=["nothing", "no header", "cut", "another magic", "a dictionary", "reserved", "untold"],
)
def test_what_does_not_tell(body: bytes) -> None:
    assert frame_size(memoryview(body)) == -1
    assert decompress_frames([memoryview(body), _packed(b"abc")], [1, 3]) is None


@given(st.lists(st.binary(max_size=400), min_size=1, max_size=6))
def test_together_as_one_by_one(texts: list[bytes]) -> None:
    bodies = [_packed(text * 3) for text in texts]
    found = decompress_frames(bodies, [3 * len(text) for text in texts])
    assert found is not None
    assert [part.tobytes() for part in found] == [text * 3 for text in texts]


@given(
    st.lists(st.binary(min_size=1, max_size=300), min_size=2, max_size=4),
    st.data(),
)
def test_damaged_frames_give_what_they_give_alone_or_nothing(texts: list[bytes], data: st.DataObject) -> None:
    """Bytes changed, and bytes moved from one body to its neighbour."""
    sizes = [len(text) for text in texts]
    bodies = [bytearray(_packed(text)) for text in texts]
    number = data.draw(st.integers(0, len(bodies) - 2))
    if data.draw(st.booleans()):
        at = data.draw(st.integers(0, len(bodies[number]) - 1))
        bodies[number][at] ^= data.draw(st.integers(1, 255))
    else:
        count = data.draw(st.integers(1, len(bodies[number])))
        moved = bodies[number][-count:]
        del bodies[number][-count:]
        bodies[number + 1][:0] = moved
    views = [memoryview(bytes(body)) for body in bodies]
    found = decompress_frames(views, sizes)
    if found is None:
        return
    alone = [decompress(view, Codec.ZSTD, size=size) for view, size in zip(views, sizes, strict=True)]
    for part, single in zip(found, alone, strict=True):
        assert single is not None
        np.testing.assert_array_equal(part, single)


def test_sizes_that_are_not_the_frames_are_refused() -> None:
    bodies = [_packed(b"abc"), _packed(b"defg")]
    assert decompress_frames(bodies, [4, 3]) is None
    assert decompress_frames(bodies, [3, 5]) is None
    whole = decompress_frames(bodies, [3, 4])
    assert whole is not None
    assert [part.tobytes() for part in whole] == [b"abc", b"defg"]
