"""Checksums of what accel puts into files: XXH64, seed 0; and a JSON object that carries its own."""

from __future__ import annotations

from accel.errors import IndexFormatError
from accel.ranges import Buffer

__all__ = ["Checksum", "check_seal", "checksum", "seal"]

_SEAL = b',"checksum":"%016x"}'
_SEAL_BYTES = len(_SEAL % 0)


def checksum(data: Buffer) -> int:
    """XXH64, seed 0."""
    import xxhash

    return int(xxhash.xxh64_intdigest(data))


class Checksum:
    """The same, of bytes that come piece by piece."""

    __slots__ = ("_state",)

    def __init__(self) -> None:
        import xxhash

        self._state = xxhash.xxh64()

    def add(self, data: Buffer) -> None:
        self._state.update(data)

    @property
    def value(self) -> int:
        return int(self._state.intdigest())


def seal(text: bytes) -> bytes:
    """A JSON object that is not empty, with a last field "checksum": of all that stands before the comma ahead of it."""
    body = text[:-1]
    return body + _SEAL % checksum(body)


def check_seal(text: bytes) -> None:
    """Raises IndexFormatError where the object is not as it was sealed."""
    body = text[:-_SEAL_BYTES]
    if text[-_SEAL_BYTES:] != _SEAL % checksum(body):
        raise IndexFormatError("the table of contents has a wrong checksum", hint="embed the indexes again")
