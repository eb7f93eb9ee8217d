"""Checksums of bytes that come whole or in pieces, and of a JSON object within itself."""

from __future__ import annotations

import json

import pytest
import xxhash

from accel.errors import IndexFormatError
from accel.format.embedded import Checksum, check_seal, checksum, seal

TEXT = b'{"a":1,"b":[2]}'


def test_in_pieces_as_whole() -> None:
    pieces = Checksum()
    for piece in (b"an ", b"", b"index"):
        pieces.add(piece)
    assert pieces.value == checksum(b"an index") == xxhash.xxh64_intdigest(b"an index")


def test_a_sealed_object_is_the_same_with_one_more_field() -> None:
    sealed = seal(TEXT)
    check_seal(sealed)
    assert json.loads(sealed) == {"a": 1, "b": [2], "checksum": f"{checksum(TEXT[:-1]):016x}"}


@pytest.mark.parametrize("at", range(len(seal(TEXT))))
def test_any_other_byte_is_found(at: int) -> None:
    damaged = bytearray(seal(TEXT))
    damaged[at] ^= 0x20
    with pytest.raises(IndexFormatError, match="wrong checksum"):
        check_seal(bytes(damaged))


@pytest.mark.parametrize("text", [b"", b"{}", TEXT, seal(TEXT)[:-1], seal(TEXT) + b" "], ids=repr)
def test_what_is_not_sealed_is_refused(text: bytes) -> None:
    with pytest.raises(IndexFormatError, match="wrong checksum"):
        check_seal(text)
