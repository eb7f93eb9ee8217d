"""From the tail of a file to its parsed footer: one request where the hint is large enough.

Source: parquet-format README, "File format": the footer's length and magic are the last eight bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import pyarrow as pa

from accel.errors import IndexFormatError, ParquetFormatError, refuse_unforeseen
from accel.format.footer import AMONG_OTHERS, MAGIC, TOC_KEY, FooterBytes, parse_footer, parse_tail
from accel.format.model import FileMetadata, ParquetSchema
from accel.planning.handle import FileHandle
from accel.planning.read_request import ReadRequest, Steps, Tail, TailRequest
from accel.ranges import ByteRange, Kind, ObjectId, ReadKey, Want

__all__ = ["LEAST_TAIL", "MOST_TAIL", "first_tail_bytes", "footer_in", "open_file"]

_TAIL = 8

LEAST_TAIL = 128 << 10
"""No less of a file's end is worth a request of its own, in bytes."""
# Less than the shortest read that `Network` learns bandwidth from.
MOST_TAIL = 448 << 10
# Page indexes grow with the data: pages of 20,000 rows, or of 64 KiB, take from 1/650 to 1/1200 of it.
_TAIL_SHARE = 512


def first_tail_bytes(size: int | None, worth: int) -> int:
    """Return how many bytes of a file's end to request first, where no hint was learned.

    Parameters
    ----------
    size : int or None
        The size of the file, where a listing or a table gives it.
    worth : int
        Bytes that lengthen the wait for the answer so little that they may come unasked.
    """
    most = min(MOST_TAIL, worth)
    return max(LEAST_TAIL, most if size is None else min(most, size // _TAIL_SHARE))


def open_file(
    path: str,
    hint: int,
    *,
    max_footer_bytes: int,
    arrow_schema: Callable[[ParquetSchema, Mapping[str, bytes]], pa.Schema],
    shared: Callable[[ParquetSchema], ParquetSchema] | None = None,
) -> Steps[FileHandle]:
    """Fetch and parse a footer.

    Parameters
    ----------
    path : str
        For the identity of the handle.
    hint : int
        Bytes of the first suffix read. What a longer footer lacks is requested, and only that.
    max_footer_bytes : int
        A footer that claims more is refused.
    arrow_schema : callable
        Makes the Arrow schema; it lives in a room below this one.
    shared : callable, optional
        Gives an equal schema that another file has, if there is one: what is worked out for that holds here
        too. Not called for a footer that comes parsed.

    Raises
    ------
    ParquetFormatError, EncryptedFileError
    """
    tail = yield TailRequest(max(hint, _TAIL))
    if not isinstance(tail, Tail):
        raise TypeError("a tail was asked for")
    footer_start = _find_footer(tail, path, max_footer_bytes)
    size, data, start = tail.size, tail.data, tail.start
    if footer_start < start:
        missing = Want(ReadKey(Kind.FOOTER), ByteRange(footer_start, start))
        stash = yield ReadRequest((missing,))
        if isinstance(stash, Tail):
            raise TypeError("a range was asked for")
        footer = bytes(stash[missing.key]) + bytes(data[:-_TAIL])
        before, before_start = memoryview(b""), footer_start
    else:
        footer = b"" if tail.parsed is not None else bytes(data[footer_start - start : -_TAIL])
        before, before_start = data[: footer_start - start], start
    with refuse_unforeseen("footer"):
        metadata = tail.parsed
        if metadata is None:
            metadata = _parse(footer, size, footer_start, shared)
        shared_metadata = metadata if isinstance(metadata, FileMetadata) else metadata.shared
        handle = FileHandle(
            ObjectId(path, size, tail.etag),
            metadata,
            arrow_schema=arrow_schema(shared_metadata.schema, shared_metadata.key_value),
            tail_start=before_start,
        )
        if TOC_KEY in shared_metadata.key_value:
            from accel.format.embedded import parse_toc

            try:
                handle.toc = parse_toc(handle.metadata)
            except IndexFormatError as error:
                handle.bad_toc = error
    if before_start == 0:
        # The whole file came along: its data needs no request.
        handle.set_tail(bytes(before), 0)
        return handle
    # Only page indexes are of use later, so the data bytes before them are dropped.
    first = max(size - handle.suggested_tail_bytes(), before_start)
    handle.set_tail(bytes(before[first - before_start :]), first)
    return handle


def _find_footer(tail: Tail, path: str, max_footer_bytes: int) -> int:
    """Return where the footer starts, if the end of the file names a place for it."""
    size = tail.size
    if size < _TAIL + 4:
        raise ParquetFormatError(f"{size} bytes are too few for a Parquet file", path=path, hint=AMONG_OTHERS)
    length = parse_tail(tail.data[-_TAIL:]).length
    footer_start = size - _TAIL - length
    if length > max_footer_bytes:
        raise ParquetFormatError(
            f"the footer claims to be {length} bytes long",
            path=path,
            place="footer",
            hint="raise `options.max_footer_bytes` if that is true",
        )
    if footer_start < 4:
        raise ParquetFormatError(
            f"the footer claims {length} bytes, the file has {size}", path=path, place="footer"
        )
    return footer_start


def _parse(
    footer: bytes, size: int, start: int, shared: Callable[[ParquetSchema], ParquetSchema] | None
) -> FileMetadata:
    """Parse one footer."""
    metadata = parse_footer(footer, file_size=size, footer_start=start)
    schema = metadata.schema if shared is None else shared(metadata.schema)
    return metadata if schema is metadata.schema else replace(metadata, schema=schema)


def footer_in(tail: Tail, most: int) -> FooterBytes | None:
    """Return the footer of a file, where its end holds all of it and it has no more than `most` bytes."""
    data, size = tail.data, tail.size
    if len(data) < _TAIL + 4 or data[-4:] != MAGIC:
        return None
    length = int.from_bytes(data[-_TAIL:-4], "little")
    start = size - _TAIL - length
    if not 0 < length <= min(most, len(data) - _TAIL) or start < 4:
        return None
    return FooterBytes(bytes(data[start - tail.start : -_TAIL]), size, start)
