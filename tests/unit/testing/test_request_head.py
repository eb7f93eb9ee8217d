"""Heads of requests: what is taken, and what is refused."""

from __future__ import annotations

import pytest

from accel.testing.request_head import parse_head


def test_a_head_is_taken_apart() -> None:
    head = parse_head(
        b"PUT /b/k?x=1 HTTP/1.1\r\nHost: a:1\r\nX-Twice: 1\r\nx-twice:\t2 \r\nContent-Length: 12\r\nConnection: Close"
    )
    assert (head.method, head.target, head.body_size, head.last) == ("PUT", "/b/k?x=1", 12, True)
    assert head.lines == (
        ("Host", "a:1"),
        ("X-Twice", "1"),
        ("x-twice", "2"),
        ("Content-Length", "12"),
        ("Connection", "Close"),
    )
    assert head.headers == {"host": "a:1", "x-twice": "2", "content-length": "12", "connection": "Close"}


def test_a_request_without_headers_has_no_body_and_keeps_the_connection() -> None:
    head = parse_head(b"GET / HTTP/1.1")
    assert (head.body_size, head.last, head.headers) == (0, False, {})


def test_a_length_that_is_not_said_is_unknown() -> None:
    assert parse_head(b"PUT / HTTP/1.1\r\nTransfer-Encoding: chunked").body_size is None


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"GET /", id="no version"),
        pytest.param(b"GET / HTTP/1.0", id="old version"),
        pytest.param(b"GET /a b HTTP/1.1", id="space in target"),
        pytest.param(b"GET / HTTP/1.1\r\nHost", id="no colon"),
        pytest.param(b"GET / HTTP/1.1\r\nHost : a", id="space before colon"),
        pytest.param(b"GET / HTTP/1.1\r\n: a", id="no name"),
        pytest.param(b"PUT / HTTP/1.1\r\nContent-Length: -1", id="negative length"),
        pytest.param(b"PUT / HTTP/1.1\r\nContent-Length: 1e9", id="odd length"),
        pytest.param(b"PUT / HTTP/1.1\r\nContent-Length: \xb2", id="a digit, but not of these"),
        pytest.param(b"PUT / HTTP/1.1\r\nContent-Length: " + b"9" * 5000, id="endless length"),
    ],
)
def test_what_is_no_request_is_refused(raw: bytes) -> None:
    with pytest.raises(ValueError, match=r"unpack|not "):
        parse_head(raw)
