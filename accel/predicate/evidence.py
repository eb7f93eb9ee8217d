"""What follows for a predicate, unit by unit, from what is known before rows are read."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from accel.arrays import Bools

__all__ = ["Evidence", "Verdict"]


class Verdict(enum.IntEnum):
    """The answer of one level for one unit."""

    NONE = 0
    """No row can make the predicate true: drop the unit."""
    SOME = 1
    """Some rows may, some may not (or it is unknown): the exact filter decides."""
    ALL = 2
    """Every row makes it true: no filter column is needed."""


@dataclass(frozen=True, slots=True, eq=False)
class Evidence:
    """Which outcomes of a three-valued predicate are possible in each unit.

    Closed under NOT (swap true and false), AND and OR. All three set means unknown.
    """

    may_true: Bools
    may_false: Bools
    may_null: Bools

    @classmethod
    def unknown(cls, n: int) -> Evidence:
        """Of `n` units of which nothing is known: each may be anything."""
        return cls(np.ones(n, bool), np.ones(n, bool), np.ones(n, bool))

    def __len__(self) -> int:
        return len(self.may_true)

    def part(self, begin: int, end: int) -> Evidence:
        """Of a half-open range of the units."""
        return Evidence(self.may_true[begin:end], self.may_false[begin:end], self.may_null[begin:end])

    def meet(self, other: Evidence) -> Evidence:
        """Of the same predicate, what both leave possible."""
        return Evidence(
            self.may_true & other.may_true, self.may_false & other.may_false, self.may_null & other.may_null
        )

    def __invert__(self) -> Evidence:
        return Evidence(self.may_false, self.may_true, self.may_null)

    def __and__(self, other: Evidence) -> Evidence:
        # Per-row outcomes of the two sides are not known to be independent: allow every combination.
        return Evidence(
            self.may_true & other.may_true,
            self.may_false | other.may_false,
            (self.may_null & (other.may_null | other.may_true)) | (other.may_null & self.may_true),
        )

    def __or__(self, other: Evidence) -> Evidence:
        return Evidence(
            self.may_true | other.may_true,
            self.may_false & other.may_false,
            (self.may_null & (other.may_null | other.may_false)) | (other.may_null & self.may_false),
        )

    def verdicts(self) -> npt.NDArray[np.int8]:
        """One `Verdict` a unit."""
        surely = self.may_true & ~(self.may_false | self.may_null)
        return self.may_true.astype(np.int8) + surely  # the numbers of NONE, SOME, ALL
