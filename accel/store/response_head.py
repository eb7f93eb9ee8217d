"""The head of an HTTP/1.1 response, read strictly, pure: where two readers might differ, it is refused.

Source: RFC 9112, sections 4 to 6 and 9.3.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["HEAD_END", "ResponseHead", "read_head"]

HEAD_END = b"\r\n\r\n"

# What is asked of a head, as the rest of accel spells it. All other headers are passed over.
_KNOWN = {
    b"connection": "Connection",
    b"content-encoding": "Content-Encoding",
    b"content-length": "Content-Length",
    b"content-range": "Content-Range",
    b"etag": "ETag",
    b"retry-after": "Retry-After",
    b"transfer-encoding": "Transfer-Encoding",
}
_STATUS_LINE = rb"HTTP/1\.([01]) ([2-5][0-9]{2})(?: [^\r\n]*)?"
# A head whose lines are all headers without a doubt, as nearly every one is, and of those the known ones.
_USUAL = re.compile(_STATUS_LINE + rb"(?:\r\n[!-9;-~]+:[^\r\n]*)*")
_ASKED = re.compile(rb"\n(" + b"|".join(_KNOWN) + rb"):([^\r\n]*)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class ResponseHead:
    """What a response says of itself before its body."""

    status: int
    headers: Mapping[str, str]
    """Those that accel asks for, by their usual spelling."""
    length: int | None
    """Bytes of the body; None where only its own framing, or the end of the connection, tells."""
    keeps: bool
    """Whether the connection may be used again once the body has been read."""


def read_head(raw: bytes) -> ResponseHead:
    """Parse all before the empty line.

    Raises
    ------
    ValueError
        It is no final HTTP/1 response, a line is folded or no header, or a header that matters came twice.
    """
    told = _USUAL.fullmatch(raw)
    if told is None:
        return _read_lines(raw)
    headers: dict[str, str] = {}
    for name, value in _ASKED.findall(raw):
        known = _KNOWN[name.lower()]
        if known in headers:
            raise ValueError(f"{known} twice")
        headers[known] = value.strip().decode("latin-1")
    return ResponseHead(int(told[2]), headers, _length(headers), _keeps(told[1], headers))


def _read_lines(raw: bytes) -> ResponseHead:
    """Any head, line by line."""
    first, *lines = raw.split(b"\r\n")
    told = re.fullmatch(_STATUS_LINE, first)
    if told is None:
        raise ValueError("no status line")
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(b":")
        if not colon or not name or name != name.strip() or b"\n" in line or b"\r" in line:
            raise ValueError("a line that is no header")
        known = _KNOWN.get(name.lower())
        if known is None:
            continue
        if known in headers:
            raise ValueError(f"{known} twice")
        headers[known] = value.strip().decode("latin-1")
    return ResponseHead(int(told[2]), headers, _length(headers), _keeps(told[1], headers))


def _length(headers: Mapping[str, str]) -> int | None:
    text = headers.get("Content-Length")
    if text is None or "Transfer-Encoding" in headers:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise ValueError("Content-Length is no number")
    return int(text)


def _keeps(minor: bytes, headers: Mapping[str, str]) -> bool:
    if minor == b"0":
        return False
    said = headers.get("Connection")
    return said is None or "close" not in said.lower()
