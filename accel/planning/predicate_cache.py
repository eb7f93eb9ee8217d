"""The predicate cache: which rows of a file matched earlier predicates, so that a repeat reads only these.

It is what Redshift calls by this name, and ClickHouse a query condition cache. An entry holds for one version of a file
and for one predicate as it is evaluated over that file, and lives in the result tier of the cache.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from accel.planning.selection import RowSelection

__all__ = ["Evaluation", "PredicateCache", "is_selective"]

# At most one row in this many: where more match, most pages have to be read anyway.
_MOST_SHARE = 256


@dataclass(frozen=True, slots=True, eq=False)
class Evaluation:
    """The outcome of one predicate over one row group, as far as it was evaluated."""

    tested: RowSelection
    """Rows that the predicate was evaluated on."""
    matched: RowSelection
    """The tested rows that match."""

    @property
    def nbytes(self) -> int:
        return 16 * (len(self.tested) + len(self.matched)) + 400

    def settle(self, rows: RowSelection, sure: RowSelection, num_rows: int) -> RowSelection | None:
        """Return which of `rows` match, where `sure` are sure to; None where rows in doubt were not tested."""
        maybe = rows.without(sure, num_rows)
        if maybe.without(self.tested, num_rows):
            return None
        return sure.union(maybe.intersect(self.matched))

    def with_more(self, tested: RowSelection, matched: RowSelection) -> Evaluation:
        return Evaluation(self.tested.union(tested), self.matched.union(matched))


class PredicateCache(Protocol):
    """The evaluations that earlier scans made on one version of a file, by predicate and row group."""

    def under(self, predicate: bytes | None) -> Mapping[int, Evaluation]:
        """Return the evaluations by row group under the predicate of that key."""
        ...

    def learn(self, predicate: bytes, row_group: int, *, tested: RowSelection, matched: RowSelection) -> None:
        """Add the outcome of one evaluation: `matched` is a part of `tested`."""
        ...

    def forget(self) -> None:
        """Drop the evaluations of this version."""
        ...


def is_selective(tested: int, matched: int) -> bool:
    """Whether so few of the tested rows match that the outcome is worth storing."""
    return matched * _MOST_SHARE <= tested
