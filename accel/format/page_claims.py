"""The bounds of a chunk's pages held against the chunk's own: what contradicts itself is not believed.

Sources: parquet-format `PageIndex.md`, and `parquet.thrift` (Statistics): lower bounds of bytes may be cut short, upper
ones cut short and raised.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from accel.format.domain import Bounds, Domain

if TYPE_CHECKING:
    from accel.arrays import Bools

__all__ = ["agrees_with_chunk"]


def agrees_with_chunk(pages: Bounds, chunk: Bounds, *, valued: Bools) -> bool:
    """Whether bounds of pages may be right if those of their chunk are.

    They may not where one of them is outside of the chunk's, nor where all of them together do not reach as far.

    Parameters
    ----------
    pages : Bounds
        One unit a page.
    chunk : Bounds
        One unit, of the same domain.
    valued : array of bool
        Pages that may hold values.
    """
    if pages.domain is not chunk.domain or pages.domain is Domain.NONE or not valued.any():
        return True
    lower, upper = pages.lower[pages.has_lower], pages.upper[pages.has_upper]
    all_lower, all_upper = bool(pages.has_lower[valued].all()), bool(pages.has_upper[valued].all())
    in_bytes = pages.domain is Domain.BYTES
    if chunk.has_lower[0]:
        least: Any = chunk.lower[0]
        if len(upper) and upper.min() < least:
            return False
        first = lower.min() if len(lower) else least
        if first < least and not (in_bytes and all(_is_cut(v, least) for v in lower.tolist() if v < least)):
            return False
        if first > least and all_lower and not (in_bytes and _is_cut(least, first)):
            return False
    if chunk.has_upper[0]:
        most: Any = chunk.upper[0]
        if len(lower) and lower.max() > most:
            return False
        last = upper.max() if len(upper) else most
        if last > most and not (in_bytes and all(_is_raised(v, most) for v in upper.tolist() if v > most)):
            return False
        if last < most and all_upper and not (in_bytes and _is_raised(most, last)):
            return False
    return True


def _is_cut(bound: bytes, value: bytes) -> bool:
    """Whether a lower bound may be a value cut short."""
    return value.startswith(bound)


def _is_raised(bound: bytes, value: bytes) -> bool:
    """Whether an upper bound, which is above a value, may be that value cut short and raised: in its last byte that
    could be, or in its last character."""
    # Where a byte overflowed, the one before it was raised instead.
    bound = bound.rstrip(b"\x00")
    if not bound:
        return False
    if value.startswith(bound[:-1] + bytes((bound[-1] - 1,))):
        return True
    text = bound.decode("utf-8", "surrogateescape")
    point = ord(text[-1]) - 1
    if point >= 0xDC7F and point < 0xDFFF:  # a byte that is no text
        return False
    before = chr(0xD7FF if point == 0xDFFF else point)
    return value.startswith((text[:-1] + before).encode("utf-8", "surrogateescape"))
