"""Which rows fresh queries ask for: random ones, each in a part of the file that no earlier one has
touched."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

__all__ = ["BLOCK", "fresh_rows", "fresh_slots", "row_of_each_group"]

BLOCK = 10_000
"""Rows that two samples are apart: the rows of a page where the writer leaves the default."""


def fresh_rows(rows: int, seed: int, *, block: int = BLOCK) -> Iterator[int]:
    """Row numbers below `rows`, without end: a random row of a random block, no block twice until all were
    met."""
    rng = random.Random(seed)
    for slot in fresh_slots(-(-rows // block), seed + 1):
        first = slot * block
        yield rng.randrange(first, min(first + block, rows))


def fresh_slots(count: int, seed: int) -> Iterator[int]:
    """All numbers below `count` in random order, then in another one, and so on."""
    rng = random.Random(seed)
    while True:
        slots = list(range(count))
        rng.shuffle(slots)
        yield from slots


def row_of_each_group(starts: Sequence[int], most: int) -> list[int]:
    """A row near the start of up to `most` row groups, evenly chosen: there dictionaries still hold.

    `starts` has the first row of each group, and at its end the number of rows.
    """
    groups = len(starts) - 1
    chosen = range(groups) if groups <= most else (groups * i // most for i in range(most))
    return [starts[group] + (starts[group + 1] - starts[group]) // 100 for group in chosen]
