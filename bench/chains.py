"""The depth of dependent requests, from nothing but when each began and ended."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["round_trips"]


def round_trips(times: Iterable[tuple[float, float]]) -> int:
    """The most requests of which each began after the one before had ended.

    A request that began while all others were under way cannot have waited for one; one that began after
    another's end may have, and is taken to. Taking always the request that ends first gives the longest such
    chain.

    Parameters
    ----------
    times : iterable of (begin, end)
        In any order, of one clock.
    """
    depth, free = 0, float("-inf")
    for end, begin in sorted((end, begin) for begin, end in times):
        if begin >= free:
            depth, free = depth + 1, end
    return depth
