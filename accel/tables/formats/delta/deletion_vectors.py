"""Where deletion vectors are: inline in the log, or in a file that may hold several.

Source: the Delta protocol, "Deletion Vectors", "Deletion Vector Format"; ZeroMQ's RFC 32 for Z85.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from accel.errors import TableFormatError
from accel.ranges import ByteRange

__all__ = ["VectorPlace", "decode_z85"]

_ALPHABET: Final = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_DIGITS: Final = {character: digit for digit, character in enumerate(_ALPHABET)}
_UUID_CHARACTERS: Final = 20
_MOST_BYTES: Final = 1 << 30


@dataclass(frozen=True, slots=True)
class VectorPlace:
    """Where a deletion vector is."""

    cardinality: int
    inline: bytes | None = None
    """The vector itself, if it is in the log."""
    path: str | None = None
    """The path of its file: below the table, or absolute."""
    absolute: bool = False
    part: ByteRange | None = None
    """The bytes of its file: length, vector and checksum."""

    @classmethod
    def of(cls, found: Mapping[str, Any]) -> VectorPlace:
        """Read what an action says of a vector.

        Raises
        ------
        TableFormatError
            It is none.
        """
        kind, text = found.get("storageType"), found.get("pathOrInlineDv")
        size: Any = found.get("sizeInBytes")
        count: Any = found.get("cardinality")
        offset: Any = found.get("offset")
        if not (_is_count(size) and _is_count(count) and isinstance(text, str) and size <= _MOST_BYTES):
            raise TableFormatError(f"a deletion vector is described by {dict(found)!r:.200}")
        if kind == "i":
            data = decode_z85(text)
            if not size <= len(data) < size + 4:
                raise TableFormatError(f"a deletion vector in the log has {len(data)} bytes, not {size}")
            return cls(count, inline=data[:size])
        start = 1 if offset is None else offset
        if not _is_count(start):
            raise TableFormatError(f"a deletion vector begins at {offset!r:.40}")
        part = ByteRange(start, start + size + 8)
        if kind == "p":
            return cls(count, path=text, absolute=True, part=part)
        if kind != "u" or len(text) < _UUID_CHARACTERS:
            raise TableFormatError(f"a deletion vector is stored as {kind!r:.40}, {text!r:.80}")
        directory, name = text[:-_UUID_CHARACTERS], uuid.UUID(bytes=decode_z85(text[-_UUID_CHARACTERS:]))
        below = f"{directory}/" if directory else ""
        return cls(count, path=f"{below}deletion_vector_{name}.bin", part=part)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def decode_z85(text: str) -> bytes:
    """Return the bytes of a text in Z85.

    Raises
    ------
    TableFormatError
        It is no such text.
    """
    digits = [_DIGITS.get(ord(character), -1) for character in text]
    if len(digits) % 5 or -1 in digits:
        raise TableFormatError(f"{text!r:.80} is no text in Z85")
    out = bytearray()
    for at in range(0, len(digits), 5):
        value = 0
        for digit in digits[at : at + 5]:
            value = value * 85 + digit
        if value >= 1 << 32:
            raise TableFormatError(f"{text!r:.80} is no text in Z85")
        out += value.to_bytes(4, "big")
    return bytes(out)
