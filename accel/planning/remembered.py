"""Which rows of a file matched the predicates that were put to it: asked again, only these are read.

Others call it a predicate cache (Redshift) or a query condition cache (ClickHouse). It holds for one version of a
file, as all that its handle does, and for one predicate as it is evaluated over that file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cachetools import LRUCache

from accel.planning.selection import RowSelection

__all__ = ["Evaluation", "Remembered", "is_selective"]

# Where more of them match, most pages are needed anyway.
_MOST_SHARE = 256
# Of a file, and as a part of the cache that holds it: its metadata must not be displaced by this.
_MOST_BYTES = 1 << 20
_SHARE_OF_CACHE = 64


@dataclass(frozen=True, slots=True, eq=False)
class Evaluation:
    """What is known of one row group under one predicate."""

    tested: RowSelection
    """Rows that the predicate was evaluated on."""
    matched: RowSelection
    """Those of them that match."""

    @property
    def nbytes(self) -> int:
        return 16 * (len(self.tested) + len(self.matched)) + 400

    def settle(self, rows: RowSelection, sure: RowSelection, num_rows: int) -> RowSelection | None:
        """All that match of `rows`, of which `sure` are known to; None where others than those tested are in doubt."""
        maybe = rows.without(sure, num_rows)
        if maybe.without(self.tested, num_rows):
            return None
        return sure.union(maybe.intersect(self.matched))

    def with_more(self, tested: RowSelection, matched: RowSelection) -> Evaluation:
        return Evaluation(self.tested.union(tested), self.matched.union(matched))


@dataclass(frozen=True, slots=True, eq=False)
class _Known:
    """Under one predicate, by row group."""

    groups: Mapping[int, Evaluation]
    nbytes: int


class Remembered:
    """Of one file, by predicate and row group; the predicate that was asked for longest ago goes first.

    Parameters
    ----------
    cache_bytes : int
        What the cache holds at most that the file's metadata is in.
    """

    __slots__ = ("_found",)

    def __init__(self, cache_bytes: int) -> None:
        most = min(_MOST_BYTES, cache_bytes // _SHARE_OF_CACHE)
        self._found: LRUCache[bytes, _Known] = LRUCache(most, getsizeof=lambda known: known.nbytes)

    @property
    def nbytes(self) -> int:
        return int(self._found.currsize)

    def under(self, key: bytes | None) -> Mapping[int, Evaluation]:
        """By row group, what is known under the predicate of that key."""
        known = None if key is None else self._found.get(key)
        return {} if known is None else known.groups

    def learn(self, key: bytes, row_group: int, *, tested: RowSelection, matched: RowSelection) -> None:
        """Take in what one evaluation has found: `matched` is a part of `tested`."""
        groups = dict(self.under(key))
        known = groups.get(row_group)
        groups[row_group] = Evaluation(tested, matched) if known is None else known.with_more(tested, matched)
        nbytes = len(key) + 600 + sum(evaluation.nbytes for evaluation in groups.values())
        self._found.pop(key, None)
        if nbytes <= self._found.maxsize:
            self._found[key] = _Known(groups, nbytes)


def is_selective(tested: int, matched: int) -> bool:
    """Whether to remember what a predicate has selected of so many rows."""
    return matched * _MOST_SHARE <= tested
