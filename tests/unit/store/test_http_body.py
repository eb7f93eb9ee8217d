"""Bodies that are put together from parts: in chunks, by a length, up to the end of the connection."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accel.store.http_body import BodyStream

CHUNKS = b"5\r\nabcde\r\n00A;name=value\r\n0123456789\r\n0\r\nTrailer: x\r\n\r\n"
DATA = b"abcde0123456789"


def chunked(window: range = range(100)) -> BodyStream:
    return BodyStream(window, length=None, chunked=True)


@pytest.mark.parametrize("step", [1, 2, 3, 7, 100])
def test_a_body_in_chunks_is_put_together(step: int) -> None:
    body = chunked()
    ends = [body.feed(CHUNKS[start : start + step]) for start in range(0, len(CHUNKS), step)]
    assert (ends, bytes(body.body)) == ([False] * (len(ends) - 1) + [True], DATA)
    assert body.reusable


def test_what_follows_the_last_chunk_is_noticed() -> None:
    body = chunked()
    assert body.feed(CHUNKS + b"HTTP")
    assert (bytes(body.body), body.reusable) == (DATA, False)


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        pytest.param(CHUNKS.replace(b"abcde", b"abcdef"), "longer than it says", id="too many bytes"),
        pytest.param(b"x\r\n", "no size", id="no number"),
        pytest.param(b"-1\r\n", "no size", id="negative"),
        pytest.param(b"\r\n", "no size", id="an empty line"),
        pytest.param(b"123456789\r\n", "no size", id="a number of nine digits"),
        pytest.param(b"1" * 5000, "line between chunks", id="a line without an end"),
        pytest.param(b"1" * 5000 + b"\r\n", "line between chunks", id="a line that ends late"),
    ],
)
def test_what_is_no_body_in_chunks(raw: bytes, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        chunked().feed(raw)


def test_no_more_than_is_wanted_is_kept() -> None:
    body = chunked(range(2, 7))
    assert body.feed(CHUNKS[:-2])
    assert (bytes(body.body), body.reusable) == (DATA[2:7], False)


def test_a_length_ends_a_body() -> None:
    body = BodyStream(range(3, 10), length=10, chunked=False)
    assert [body.feed(b"01234"), body.feed(b"56789")] == [False, True]
    assert (bytes(body.body), body.reusable, body.ends_with_connection) == (b"3456789", True, False)


def test_what_follows_a_length_is_noticed() -> None:
    body = BodyStream(range(3, 10), length=10, chunked=False)
    assert body.feed(b"0123456789x")
    assert (bytes(body.body), body.reusable) == (b"3456789", False)


def test_nothing_else_ends_with_the_connection() -> None:
    body = BodyStream(range(3, 10), length=None, chunked=False)
    assert not body.feed(b"01234")
    assert (bytes(body.body), body.reusable, body.ends_with_connection) == (b"34", False, True)
    assert body.feed(b"5678901234")
    assert (bytes(body.body), body.reusable) == (b"3456789", False)


@settings(max_examples=200, deadline=None)
@given(
    data=st.binary(max_size=300),
    sizes=st.lists(st.integers(1, 40), max_size=20),
    cuts=st.lists(st.integers(0, 600), max_size=10),
    start=st.integers(0, 40),
    length=st.integers(1, 200),
    framing=st.sampled_from(["chunks", "length", "connection"]),
)
def test_the_window_is_the_slice_however_it_comes(
    data: bytes, sizes: list[int], cuts: list[int], start: int, length: int, framing: str
) -> None:
    raw = data
    if framing == "chunks":
        raw, left = b"", data
        for size in [*sizes, len(data)]:
            if left:
                raw += b"%x\r\n" % len(left[:size]) + left[:size] + b"\r\n"
                left = left[size:]
        raw += b"0\r\n\r\n"
    body = BodyStream(
        range(start, start + length),
        length=len(data) if framing == "length" else None,
        chunked=framing == "chunks",
    )
    ends = [0, *sorted({cut for cut in cuts if cut < len(raw)}), len(raw)]
    ended = any(body.feed(raw[begin:end]) for begin, end in itertools.pairwise(ends))
    assert bytes(body.body) == data[start : start + length]
    assert ended is (framing != "connection" or len(data) >= start + length)
