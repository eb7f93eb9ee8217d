"""Heads of responses: what is taken, and all that is not."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accel.store.http_response import ResponseHead, read_head


def test_a_plain_head() -> None:
    raw = (
        b'HTTP/1.1 206 Partial Content\r\nServer: x\r\ncontent-LENGTH: 10\r\nETag:  "v1" \r\n'
        b"Content-Range: bytes 0-9/100\r\nX-Amz-Meta-a: content-length: 5"
    )
    headers = {"Content-Length": "10", "ETag": '"v1"', "Content-Range": "bytes 0-9/100"}
    assert read_head(raw) == ResponseHead(206, headers, 10, True)


KEEPS = {
    "1.1": (b"HTTP/1.1 200 OK", True),
    "1.0": (b"HTTP/1.0 200 OK\r\nConnection: keep-alive", False),
    "close": (b"HTTP/1.1 200 OK\r\nConnection: Close", False),
    "close among others": (b"HTTP/1.1 200 OK\r\nConnection: x, close", False),
    "keep-alive": (b"HTTP/1.1 200\r\nConnection: keep-alive", True),
}


@pytest.mark.parametrize(("raw", "keeps"), KEEPS.values(), ids=KEEPS)
def test_whether_the_connection_is_kept(raw: bytes, keeps: bool) -> None:
    assert read_head(raw).keep_alive is keeps


LENGTHS = {
    "said": (b"Content-Length: 007", 7),
    "not said": (b"Server: x", None),
    "in chunks": (b"Transfer-Encoding: chunked", None),
    "both": (b"Content-Length: 7\r\nTransfer-Encoding: chunked", None),
}


@pytest.mark.parametrize(("line", "length"), LENGTHS.values(), ids=LENGTHS)
def test_the_length_of_the_body(line: bytes, length: int | None) -> None:
    assert read_head(b"HTTP/1.1 206 x\r\n" + line).length == length


REFUSED = {
    "empty": b"",
    "another protocol": b"HTTP/2 200 OK",
    "a version to come": b"HTTP/1.2 200 OK",
    "an interim response": b"HTTP/1.1 103 Early Hints",
    "no status": b"HTTP/1.1 OK",
    "a status of four digits": b"HTTP/1.1 2060 x",
    "no colon": b"HTTP/1.1 200 OK\r\nContent-Length 5",
    "no name": b"HTTP/1.1 200 OK\r\n: 5",
    "a folded line": b"HTTP/1.1 200 OK\r\nETag: a\r\n b: c",
    "a blank before the colon": b"HTTP/1.1 200 OK\r\nContent-Length : 5",
    "a lone line feed": b"HTTP/1.1 200 OK\r\nX: a\nContent-Length: 5",
    "a lone carriage return": b"HTTP/1.1 200 OK\r\nETag: a\rContent-Length: 5",
    "two lengths": b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\ncontent-length: 6",
    "a negative length": b"HTTP/1.1 200 OK\r\nContent-Length: -5",
    "a signed length": b"HTTP/1.1 200 OK\r\nContent-Length: +5",
    "a length of other digits": "HTTP/1.1 200 OK\r\nContent-Length: ٥".encode(),
    "a length without end": b"HTTP/1.1 200 OK\r\nContent-Length: " + b"9" * 20,
    "two ranges": b"HTTP/1.1 206 x\r\nContent-Range: bytes 0-1/2\r\nContent-Range: bytes 0-1/3",
}


@pytest.mark.parametrize("raw", REFUSED.values(), ids=REFUSED)
def test_what_is_refused(raw: bytes) -> None:
    with pytest.raises(ValueError, match=r"head|twice|number"):
        read_head(raw)


PARTS = st.lists(
    st.one_of(
        st.sampled_from(
            [
                b"\r\n",
                b"\n",
                b"\r",
                b":",
                b" ",
                b"ETag",
                b"content-length",
                b"Content-Length: 5",
                b"\r\nEtag: a",
            ]
            + [b"connection:close", b"HTTP/1.1 206 x", b"x", b"\t", b"\x00", b"\xff", b"Content-Range", b"7"]
        ),
        st.binary(max_size=3),
    ),
    max_size=12,
)


@settings(max_examples=400, deadline=None)
@given(PARTS)
def test_whatever_comes_is_read_by_lines_or_refused(parts: list[bytes]) -> None:
    raw = b"HTTP/1.1 206 Partial Content\r\nServer: x\r\n" + b"".join(parts)
    try:
        head = read_head(raw)
    except ValueError:
        return
    lines = [line.partition(b":") for line in raw.split(b"\r\n")[1:]]
    assert not any(b"\n" in line or b"\r" in line for line in raw.split(b"\r\n"))
    assert all(colon and name == name.strip() for name, colon, _ in lines)
    values = {name.lower().decode("latin-1"): value.strip().decode("latin-1") for name, _, value in lines}
    assert (
        head.headers.items()
        == {name: values[name.lower()] for name in HEADERS if name.lower() in values}.items()
    )


HEADERS = [
    *("Connection", "Content-Encoding", "Content-Length", "Content-Range"),
    *("ETag", "Retry-After", "Transfer-Encoding"),
]
