"""Snappy by cramjam's library, which takes a third to two thirds of the time that pyarrow's takes.

Most files of the world are Snappy: it is the default of Spark, and of pyarrow. The library is loaded once it pays; until then,
and where it is not installed, pyarrow's codec does the same.

Source: snappy `format_description.txt` (a stream begins with its decompressed length).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from accel.ranges import Buffer

if TYPE_CHECKING:
    import pyarrow as pa

    from accel.decode.bodies import Bytes

__all__ = ["Unpack", "fast_snappy"]


Unpack: TypeAlias = "Callable[[Buffer, Bytes | memoryview | pa.Buffer], bool]"
"""Decompress bytes into others, which have the size that is due; whether they came to just that."""

_LEAST_BYTES: Final = 8 << 20
"""Decompressed: what is saved of so many is what it takes to load the library, 1 to 3 ms."""


class _Library:
    """What is known of it."""

    __slots__ = ("missing", "seen", "unpack")

    def __init__(self) -> None:
        self.unpack: Unpack | None = None
        self.missing = False
        self.seen = 0
        """Bytes that were decompressed without it, or are about to be."""


_library = _Library()


def fast_snappy(nbytes: int) -> Unpack | None:
    """The library's decompression, told how many bytes are due now; None where pyarrow's is to be taken."""
    if _library.unpack is not None or _library.missing:
        return _library.unpack
    # Threads may lose one another's count: it comes to as much a little later.
    _library.seen += nbytes
    if _library.seen >= _LEAST_BYTES:
        _load()
    return _library.unpack


def _load() -> None:
    try:
        from cramjam import DecompressionError, snappy
    except ImportError:
        _library.missing = True
        return
    _library.unpack = _checked(snappy.decompress_raw_into, DecompressionError)


def _checked(decompress: Callable[[Any, Any], int], refusal: type[Exception]) -> Unpack:
    def unpack(body: Buffer, out: Bytes | memoryview | pa.Buffer) -> bool:
        try:
            # A stream that is longer is refused before a byte is written, one that is shorter leaves bytes as they are.
            return decompress(body, out) == len(out)
        except refusal:
            return False

    return unpack
