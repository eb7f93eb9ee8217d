"""The head of an HTTP/1.1 request, as far as a server of our own tests must understand it (RFC 9112)."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Head", "parse_head"]


@dataclass(frozen=True, slots=True)
class Head:
    """A request line and its headers."""

    method: str
    target: str
    lines: tuple[tuple[str, str], ...]
    """Names and values as they came."""
    headers: dict[str, str]
    """By lower-case name; of a name that came twice, the last."""

    @property
    def body_size(self) -> int | None:
        """Bytes of the body that follows; None where that is not said beforehand."""
        if "transfer-encoding" in self.headers:
            return None
        return int(self.headers.get("content-length", 0))

    @property
    def last(self) -> bool:
        """Whether the client wants the connection closed after the answer."""
        return self.headers.get("connection", "").lower() == "close"


def parse_head(raw: bytes) -> Head:
    """Parse everything before the empty line.

    Raises
    ------
    ValueError
        It is no HTTP/1.1 request.
    """
    first, *rest = raw.decode("latin-1").split("\r\n")
    method, target, version = first.split(" ")
    if version != "HTTP/1.1":
        raise ValueError(f"not HTTP/1.1: {version[:20]!r}")
    lines, headers = [], {}
    for line in rest:
        name, colon, value = line.partition(":")
        if not colon or not name or name[-1] in " \t":
            raise ValueError(f"not a header: {line[:80]!r}")
        value = value.strip(" \t")
        lines.append((name, value))
        headers[name.lower()] = value
    size = headers.get("content-length", "0")
    if not (size.isascii() and size.isdigit() and len(size) < 16):
        raise ValueError(f"not a length: {size[:20]!r}")
    return Head(method, target, tuple(lines), headers)
