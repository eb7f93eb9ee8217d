"""The index of DataFusion's example: `IDX1`, a u64 length, and the distinct texts of a column, a line each.

It has neither checksum nor fingerprint and does not name its column: who names it vouches for it. An
empty payload may be no text or the empty one; a text with a line end cannot be told from two.
"""

from __future__ import annotations

from collections.abc import Iterable

from accel.errors import IndexFormatError, SchemaMismatchError
from accel.format.footer import IDX1_KEY
from accel.format.model import FileMetadata
from accel.ranges import Buffer

__all__ = ["IDX1_KEY", "encode_idx1", "idx1_range", "parse_idx1", "parse_idx1_offset"]

_MAGIC = b"IDX1"
_HEAD = 12
_MAX_DIGITS = 19


def parse_idx1_offset(metadata: FileMetadata) -> int | None:
    """Where the footer says that the index starts; None where it says nothing.

    Raises
    ------
    IndexFormatError
        The key's value is not ASCII digits, or points outside the file's body.
    """
    raw = metadata.key_value.get(IDX1_KEY)
    if raw is None:
        return None
    if not raw.isdigit() or len(raw) > _MAX_DIGITS:
        raise IndexFormatError(f"{IDX1_KEY} is no offset: {raw[:40]!r}", place="footer")
    offset = int(raw)
    if not len(_MAGIC) <= offset <= metadata.footer_start - _HEAD:
        raise IndexFormatError(f"{IDX1_KEY} points outside the file: {offset}", place="footer")
    return offset


def idx1_range(metadata: FileMetadata) -> tuple[int, int] | None:
    """Half-open bytes that hold the index, and possibly more behind it; None where there is none.

    Its length stands in its own head, so this ends where what the footer locates begins.

    Raises IndexFormatError as `parse_idx1_offset` does.
    """
    offset = parse_idx1_offset(metadata)
    if offset is None:
        return None
    chunks = metadata.chunks
    end = metadata.footer_start
    for starts in (
        chunks.column_index_offset,
        chunks.offset_index_offset,
        chunks.bloom_offset,
        chunks.start,
    ):
        behind = starts[starts > offset]
        if len(behind):
            end = min(end, int(behind.min()))
    return offset, end


def parse_idx1(data: Buffer) -> frozenset[bytes]:
    """The texts of an index, as UTF-8; what follows it is not looked at.

    The empty text is always taken to be among those of an empty payload.

    Raises
    ------
    IndexFormatError
        The magic, the length or the text is wrong.
    """
    view = memoryview(data)
    if bytes(view[:4]) != _MAGIC or len(view) < _HEAD:
        raise IndexFormatError(f"an IDX1 index starts with {bytes(view[:4])!r}", hint="is the offset right?")
    length = int.from_bytes(view[4:_HEAD], "little")
    if length > len(view) - _HEAD:
        raise IndexFormatError(f"an IDX1 index of {length} bytes has room for {len(view) - _HEAD}")
    payload = bytes(view[_HEAD : _HEAD + length])
    try:
        payload.decode()
    except UnicodeDecodeError as error:
        raise IndexFormatError(f"an IDX1 index is not UTF-8: {error}") from None
    return frozenset(payload.split(b"\n"))


def encode_idx1(texts: Iterable[str]) -> bytes:
    """The index of a set of texts, sorted.

    Raises
    ------
    SchemaMismatchError
        A text would read back as another: it holds a line end, ends with what some readers take for a
        part of one, or is the empty one alone.
    """
    values = sorted(set(texts))
    if values == [""] or any("\n" in value or value.endswith("\r") for value in values):
        raise SchemaMismatchError(
            "idx1 cannot hold a text with a line end, nor the empty one alone", hint="distinct can hold any"
        )
    payload = "\n".join(values).encode()
    return _MAGIC + len(payload).to_bytes(8, "little") + payload
