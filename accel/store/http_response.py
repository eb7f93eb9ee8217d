"""HTTP/1.1 responses: a strict parser of their heads, the errors that a status means, and the place of the
wanted bytes in the body."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from accel.errors import AccessDeniedError, ObjectNotFoundError, ParquetFormatError, StoreError
from accel.ranges import ByteRange, Suffix
from accel.store.range_store import Payload
from accel.store.request_errors import (
    CREDENTIAL_FAULTS,
    EmptyObjectError,
    IncompleteBodyError,
    ShortObjectError,
    SuffixUnsupportedError,
    changed_object,
    quoted,
    short_answer,
    transient_code,
    transient_status,
)

__all__ = [
    "HEAD_END",
    "BodyPlace",
    "ResponseHead",
    "proxy_refusal",
    "range_header",
    "read_answer",
    "read_head",
    "refusal",
    "retry_after",
]

_CONTENT_RANGE = re.compile(r"bytes ([0-9]{1,19})-([0-9]{1,19})/([0-9]{1,19}|\*)", re.IGNORECASE)
# S3 returns the encoding `aws-chunked` of an upload, although it has removed the chunks.
_PLAIN = frozenset(("", "identity", "aws-chunked"))
_UNSATISFIED = re.compile(r"bytes \*/([0-9]{1,19})", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class BodyPlace:
    """The place of the wanted bytes in the body of a response."""

    range: ByteRange | None
    """The bytes of the object that will be read; None for the end of an object of unknown length, sent
    whole."""
    skip: int
    """Bytes of the body before them."""
    size: int | None
    etag: str | None
    came: int | None = None
    """Bytes of `range` that the body holds, its first ones; None for all of them."""

    @property
    def length(self) -> int | None:
        """The wanted bytes that the body holds; None if that is not known."""
        return self.came if self.came is not None or self.range is None else self.range.length

    def payload(self, body: memoryview, path: str, *, cut: str | None = None) -> Payload:
        """Return the answer to a read whose range is known, by what came of the body from the first wanted
        byte on.

        Raises
        ------
        IncompleteBodyError
            Bytes are missing: the body was cut, for the reason `cut`, or the server sends fewer at a time.
        """
        if self.range is None or self.length is None:
            raise ValueError("the range is not known")
        if len(body) < self.length:
            raise IncompleteBodyError(
                f"{cut or 'the body ended'} after {len(body)} bytes of the body",
                path=path,
                range=self.range,
                partial=body,
                size=self.size,
                etag=self.etag,
            )
        if self.length < self.range.length:
            raise short_answer(path, self.range, body[: self.length], size=self.size, etag=self.etag)
        return Payload(body[: self.length], self.range, self.size, self.etag)


def range_header(want: ByteRange | Suffix) -> str:
    """Return the value of the Range header; the end of HTTP's ranges is inclusive."""
    if isinstance(want, Suffix):
        return f"bytes=-{want.length}"
    return f"bytes={want.start}-{want.end - 1}"


def refusal(
    status: int,
    headers: Mapping[str, str],
    path: str,
    want: ByteRange | Suffix | None,
    *,
    code: str | None = None,
) -> StoreError | ParquetFormatError | None:
    """Return the error that a status means, None for 200 and 206. `code` is the error code in the body, if
    there is one."""
    place = None if want is None else str(want)
    if status in (200, 206):
        return None
    if status == 412:
        return changed_object(path, place)
    if status in (404, 410):
        hint = "there is no such bucket" if code == "NoSuchBucket" else None
        return ObjectNotFoundError("there is no such object", path=path, hint=hint, status=status)
    if status == 416 and want is not None:
        return _unsatisfiable(headers, path, want)
    fault = CREDENTIAL_FAULTS.get(code or "")
    busy = transient_code(code)
    if status in (400, 501) and isinstance(want, Suffix) and fault is None and not busy:
        return SuffixUnsupportedError(path=path, sent=True, certain=False, status=status)
    hint = fault
    if status in (401, 403) and hint is None:
        hint = (
            "a presigned URL may have expired: make a new one"
            if "?" in path
            else "give credentials by `storage_options={'headers': {'Authorization': ...}}`"
        )
    kind = AccessDeniedError if status in (401, 403) else StoreError
    return kind(
        f"the server answered with status {status}" + (f" [{code}]" if code else ""),
        path=path,
        place=place,
        hint=hint,
        status=status,
        transient=busy or transient_status(status),
        retry_after=retry_after(headers.get("Retry-After")),
    )


def proxy_refusal(status: int, path: str) -> StoreError:
    """Return the error for a status with which a proxy refused to connect to the server."""
    hint = "credentials for it stand in its URL: http://user:password@host:port" if status == 407 else None
    return StoreError(
        f"the proxy answered with status {status}",
        path=path,
        hint=hint,
        transient=transient_status(status),
    )


def _unsatisfiable(
    headers: Mapping[str, str], path: str, want: ByteRange | Suffix
) -> StoreError | ParquetFormatError:
    found = _UNSATISFIED.fullmatch(headers.get("Content-Range", "").strip())
    size = int(found[1]) if found else None
    if isinstance(want, ByteRange):
        return ShortObjectError(path=path, want=want, size=size, etag=headers.get("ETag"))
    if size == 0:
        return EmptyObjectError(path)
    return SuffixUnsupportedError(path=path, sent=True, certain=False, status=416)


def read_answer(
    status: int, headers: Mapping[str, str], *, path: str, want: ByteRange | Suffix, max_unranged: int
) -> BodyPlace:
    """Check the head of a 200 or 206 against the request.

    Raises
    ------
    StoreError
        The Content-Range is missing, malformed, or not the requested one; the body has a Content-Encoding; or
        the whole object is sent and the wanted part ends after `max_unranged` bytes.
    ParquetFormatError
        The object is empty.
    """
    encoding = headers.get("Content-Encoding", "")
    if encoding and not _PLAIN.issuperset(part.strip().lower() for part in encoding.split(",")):
        raise StoreError(
            f"the server encodes the body ({quoted(encoding.strip().lower(), 40)}), so its bytes are not the "
            "file's",
            path=path,
            hint="configure the proxy in between not to compress Parquet files",
        )
    etag = headers.get("ETag")
    if status == 206:
        return _ranged(headers, path, want, etag)
    return _unranged(headers, path, want, etag, max_unranged)


def _ranged(headers: Mapping[str, str], path: str, want: ByteRange | Suffix, etag: str | None) -> BodyPlace:
    header = headers.get("Content-Range", "").strip()
    found = _CONTENT_RANGE.fullmatch(header)
    if found is None:
        raise _wrong_range(path, want, header)
    start, end = int(found[1]), int(found[2]) + 1
    size = None if found[3] == "*" else int(found[3])
    if start >= end or (size is not None and end > size):
        raise _wrong_range(path, want, header)
    if isinstance(want, Suffix):
        if size is None:
            raise SuffixUnsupportedError(path=path, sent=True, certain=False)
        first = max(0, size - want.length)
        if start > first and end == size:
            # The server sends fewer bytes at a time, and the first ones are missing.
            raise SuffixUnsupportedError(path=path, sent=True, certain=False)
        whole = ByteRange(first, size)
    elif start == want.start and end < want.end and end == size:
        raise ShortObjectError(path=path, want=want, size=size, etag=etag)
    else:
        whole = want
    came, length = end - start, headers.get("Content-Length", "")
    if start != whole.start or end > whole.end or (came < whole.length and length not in ("", str(came))):
        raise _wrong_range(path, want, header)
    return BodyPlace(whole, 0, size, etag, came=came)


def _unranged(
    headers: Mapping[str, str], path: str, want: ByteRange | Suffix, etag: str | None, limit: int
) -> BodyPlace:
    length = headers.get("Content-Length", "")
    size = int(length) if length.isascii() and length.isdigit() and len(length) < 20 else None
    if size == 0:
        raise EmptyObjectError(path)
    if size is not None and isinstance(want, ByteRange) and want.end > size:
        raise ShortObjectError(path=path, want=want, size=size, etag=etag)
    if isinstance(want, Suffix) and "x-ms-version" in headers and (size is None or size > want.length):
        # Azure under another host name: it has ranges, but no suffix ranges.
        raise SuffixUnsupportedError(path=path, sent=True, certain=True)
    needed = want.end if isinstance(want, ByteRange) else size
    if needed is not None and needed > limit:
        raise StoreError(
            f"the server ignores ranges, and {needed} bytes would have to be read for {want}",
            path=path,
            hint="raise `options.max_unranged_bytes`, or serve the file from a server that answers ranges",
        )
    if isinstance(want, ByteRange):
        return BodyPlace(want, want.start, size, etag)
    if size is None:
        return BodyPlace(None, 0, None, etag)
    start = max(0, size - want.length)
    return BodyPlace(ByteRange(start, size), start, size, etag)


def _wrong_range(path: str, want: ByteRange | Suffix, header: str) -> StoreError:
    return StoreError(
        f"the server answered with Content-Range {quoted(header, 80)!r}",
        path=path,
        place=str(want),
        status=206,
    )


def retry_after(value: str | None) -> float | None:
    """Return the seconds that a Retry-After header names, or those until its date; None if it is neither."""
    if value is None:
        return None
    text = value.strip()
    if text.isascii() and text.isdigit():
        return float(text[:9])
    try:
        from email.utils import parsedate_to_datetime

        when = parsedate_to_datetime(text)
    except (TypeError, ValueError, OverflowError):  # the last for numbers too large
        return None
    if when.tzinfo is None:
        when = when.replace(tzinfo=UTC)
    return max(0.0, (when - datetime.now(UTC)).total_seconds())


HEAD_END = b"\r\n\r\n"

# The headers that are read, as the rest of accel spells them; all others are ignored.
_HEADERS = {
    b"connection": "Connection",
    b"content-encoding": "Content-Encoding",
    b"content-length": "Content-Length",
    b"content-range": "Content-Range",
    b"etag": "ETag",
    b"location": "Location",
    b"retry-after": "Retry-After",
    b"transfer-encoding": "Transfer-Encoding",
    b"x-ms-version": "x-ms-version",
}
# A status line, and lines that all are headers: a name without blanks, a colon, and a value on the same line.
# Status 101 ends HTTP on a connection, and is never asked for.
_HEAD = re.compile(rb"HTTP/1\.([01]) ([2-5][0-9]{2}|10[023])(?: [^\r\n]*)?(?:\r\n[!-9;-~]+:[^\r\n]*)*")
_WITHOUT_BODY = frozenset((204, 304))
_HEADER = re.compile(rb"\n(" + b"|".join(_HEADERS) + rb"):([^\r\n]*)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class ResponseHead:
    """The head of a response."""

    status: int
    headers: Mapping[str, str]
    """The headers that accel reads, by their usual spelling."""
    length: int | None
    """Bytes of the body; None if it is chunked, or ends with the connection."""
    keep_alive: bool
    """Whether the connection may be used again once the body has been read."""
    chunked: bool = False
    """Whether the body is sent in chunks, and in no other encoding."""

    @property
    def interim(self) -> bool:
        """Whether another response follows, which is the answer."""
        return self.status < 200


def read_head(raw: bytes) -> ResponseHead:
    """Parse the bytes before the empty line.

    Raises
    ------
    ValueError
        It is no HTTP/1 response, a line is folded or no header, a header that accel reads came with
        two values, or the body is sent in another encoding than chunks.
    """
    found = _HEAD.fullmatch(raw)
    if found is None:
        raise ValueError("this is no head of an HTTP response")
    headers: dict[str, str] = {}
    for name, raw_value in _HEADER.findall(raw):
        header, value = _HEADERS[name.lower()], raw_value.strip().decode("latin-1")
        if header == "Connection" and header in headers:
            value = f"{headers[header]}, {value}"
        elif headers.get(header, value) != value:
            raise ValueError(f"{header} twice")
        headers[header] = value
    encoding = headers.get("Transfer-Encoding")
    chunked = encoding is not None and encoding.lower() == "chunked" and found[1] == b"1"
    if encoding is not None and not chunked:
        raise ValueError("the head names an encoding that is not chunks")
    status, length = int(found[2]), _length(headers)
    if status in _WITHOUT_BODY:
        length, chunked = 0, False
    return ResponseHead(status, headers, length, _keep_alive(found[1], headers), chunked)


def _length(headers: Mapping[str, str]) -> int | None:
    text = headers.get("Content-Length")
    if text is None or "Transfer-Encoding" in headers:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise ValueError("Content-Length is no number")
    return int(text)


def _keep_alive(minor: bytes, headers: Mapping[str, str]) -> bool:
    if minor == b"0":
        return False
    connection = headers.get("Connection")
    return connection is None or "close" not in connection.lower()
