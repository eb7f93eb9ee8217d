"""Which rows of a file matched the predicates that were put to it: asked again, only these are read.

Others call it a predicate cache (Redshift) or a query condition cache (ClickHouse). It holds for one version of a file
and for one predicate as it is evaluated over that file, and lives in the result tier of the cache.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from accel.planning.selection import RowSelection

__all__ = ["Evaluation", "PredicateCache", "is_selective"]

# Where more of them match, most pages are needed anyway.
_MOST_SHARE = 256


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


class PredicateCache(Protocol):
    """What earlier scans have found of one version of a file, by predicate and row group."""

    def under(self, predicate: bytes | None) -> Mapping[int, Evaluation]:
        """Return what is known by row group under the predicate of that key."""
        ...

    def learn(self, predicate: bytes, row_group: int, *, tested: RowSelection, matched: RowSelection) -> None:
        """Take in what one evaluation has found: `matched` is a part of `tested`."""
        ...

    def forget(self) -> None:
        """Drop all that is known of this version."""
        ...


def is_selective(tested: int, matched: int) -> bool:
    """Whether to remember what a predicate has selected of so many rows."""
    return matched * _MOST_SHARE <= tested
