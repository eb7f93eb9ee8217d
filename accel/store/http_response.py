"""HTTP/1.1 responses, pure: the head read strictly, and what it promises of the body."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from accel.errors import AccessDeniedError, ObjectNotFoundError, ParquetFormatError, StoreError
from accel.ranges import ByteRange, Suffix
from accel.store.request_errors import (
    CREDENTIAL_FAULTS,
    ShortObjectError,
    SuffixUnsupportedError,
    changed_object,
    quoted,
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
# S3 hands out what an upload was framed by, though it has taken the frames off: `aws-chunked`.
_PLAIN = frozenset(("", "identity", "aws-chunked"))
_UNSATISFIED = re.compile(r"bytes \*/([0-9]{1,19})", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class BodyPlace:
    """Where the wanted bytes are in the body to come."""

    range: ByteRange | None
    """What will be had; None where only the body's end will tell (a whole object of unknown length)."""
    skip: int
    """Bytes of the body that come before it."""
    size: int | None
    etag: str | None


def range_header(want: ByteRange | Suffix) -> str:
    """What to ask for; the one place with HTTP's inclusive end."""
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
    """The error that a status stands for, None for 200 and 206. `code` is the server's own word for it."""
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
    if status in (400, 501) and isinstance(want, Suffix) and fault is None:
        return SuffixUnsupportedError(path=path, sent=True, certain=False, status=status)
    hint = fault
    if status in (401, 403) and hint is None:
        hint = (
            "a presigned URL may have expired: make a new one"
            if "?" in path
            else "give credentials by storage_options={'headers': {'Authorization': ...}}"
        )
    kind = AccessDeniedError if status in (401, 403) else StoreError
    return kind(
        f"the server answered with status {status}" + (f" [{code}]" if code else ""),
        path=path,
        place=place,
        hint=hint,
        status=status,
        transient=transient_status(status),
        retry_after=retry_after(headers.get("Retry-After")),
    )


def proxy_refusal(status: int, path: str) -> StoreError:
    """What it means that a proxy would not make the connection; the server has said nothing."""
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
        return ParquetFormatError("the file is empty", path=path)
    return SuffixUnsupportedError(path=path, sent=True, certain=False, status=416)


def read_answer(
    status: int, headers: Mapping[str, str], *, path: str, want: ByteRange | Suffix, max_unranged: int
) -> BodyPlace:
    """Check the head of a 200 or 206 against what was asked for.

    Raises
    ------
    StoreError
        A Content-Range that is missing, malformed, or not the one asked for; a Content-Encoding; a whole
        object whose wanted part ends behind `max_unranged`.
    ParquetFormatError
        The object is empty.
    """
    encoding = headers.get("Content-Encoding", "")
    if encoding and not _PLAIN.issuperset(part.strip().lower() for part in encoding.split(",")):
        raise StoreError(
            f"the server encodes the body ({quoted(encoding.strip().lower(), 40)}), so its bytes are not the file's",
            path=path,
            hint="a proxy that compresses Parquet files must be told not to",
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
        if (start, end) != (max(0, size - want.length), size):
            raise _wrong_range(path, want, header)
        return BodyPlace(ByteRange(start, end), 0, size, etag)
    if start == want.start and end < want.end and end == size:
        raise ShortObjectError(path=path, want=want, size=size, etag=etag)
    if (start, end) != (want.start, want.end):
        raise _wrong_range(path, want, header)
    return BodyPlace(want, 0, size, etag)


def _unranged(
    headers: Mapping[str, str], path: str, want: ByteRange | Suffix, etag: str | None, limit: int
) -> BodyPlace:
    length = headers.get("Content-Length", "")
    size = int(length) if length.isascii() and length.isdigit() and len(length) < 20 else None
    if size == 0:
        raise ParquetFormatError("the file is empty", path=path)
    if size is not None and isinstance(want, ByteRange) and want.end > size:
        raise ShortObjectError(path=path, want=want, size=size, etag=etag)
    if isinstance(want, Suffix) and "x-ms-version" in headers and (size is None or size > want.length):
        # Azure, by a name of its user's: it knows ranges, but not this one.
        raise SuffixUnsupportedError(path=path, sent=True, certain=True)
    needed = want.end if isinstance(want, ByteRange) else size
    if needed is not None and needed > limit:
        raise StoreError(
            f"the server ignores ranges, and {needed} bytes would have to be read for {want}",
            path=path,
            hint="raise options.max_unranged_bytes, or serve the file where ranges are known",
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
    """The header's seconds, or the seconds until its date; None for neither."""
    if value is None:
        return None
    text = value.strip()
    if text.isascii() and text.isdigit():
        return float(text[:9])
    try:
        when = parsedate_to_datetime(text)
    except (TypeError, ValueError, OverflowError):  # the last for numbers too large
        return None
    if when.tzinfo is None:
        when = when.replace(tzinfo=UTC)
    return max(0.0, (when - datetime.now(UTC)).total_seconds())


HEAD_END = b"\r\n\r\n"

# What is asked of a head, as the rest of accel spells it. All other headers are passed over.
_HEADERS = {
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
_ASKED = re.compile(rb"\n(" + b"|".join(_HEADERS) + rb"):([^\r\n]*)", re.IGNORECASE)


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
    found = _USUAL.fullmatch(raw)
    if found is None:
        return _read_lines(raw)
    headers: dict[str, str] = {}
    for name, value in _ASKED.findall(raw):
        header = _HEADERS[name.lower()]
        if header in headers:
            raise ValueError(f"{header} twice")
        headers[header] = value.strip().decode("latin-1")
    return ResponseHead(int(found[2]), headers, _length(headers), _keeps(found[1], headers))


def _read_lines(raw: bytes) -> ResponseHead:
    """Any head, line by line."""
    first, *lines = raw.split(b"\r\n")
    found = re.fullmatch(_STATUS_LINE, first)
    if found is None:
        raise ValueError("no status line")
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(b":")
        if not colon or not name or name != name.strip() or b"\n" in line or b"\r" in line:
            raise ValueError("a line that is no header")
        header = _HEADERS.get(name.lower())
        if header is None:
            continue
        if header in headers:
            raise ValueError(f"{header} twice")
        headers[header] = value.strip().decode("latin-1")
    return ResponseHead(int(found[2]), headers, _length(headers), _keeps(found[1], headers))


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
    connection = headers.get("Connection")
    return connection is None or "close" not in connection.lower()
