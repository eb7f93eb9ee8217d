"""What metadata says of one column's values, ready to be compared.

The Parquet specification's sources: `parquet.thrift` (Statistics, ColumnIndex, ColumnOrder).
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from accel.arrays import Bools, Int64s

__all__ = ["Bounds", "Domain"]


class Domain(enum.Enum):
    """How the values of `Bounds` are to be compared, and their numpy type."""

    INTEGER = "integer"
    """int64, uint64 or object arrays of Python ints: integers of every width and sign, dates (days),
    times and timestamps (ticks of the column's own unit), decimals (unscaled). INT96: nanoseconds."""
    FLOAT = "float"
    """float64 arrays; NaN never is a bound, and zeros are already widened to -0.0 below, 0.0 above."""
    BYTES = "bytes"
    """object arrays of `bytes`, compared bytewise: text, binary, fixed, UUID."""
    BOOLEAN = "boolean"
    """bool arrays."""
    NONE = "none"
    """No order: only the counts can be used."""


@dataclass(frozen=True, slots=True, eq=False)
class Bounds:
    """What metadata proves of the values of one column in n units; every array has length n.

    Where `has_lower` (`has_upper`) is set, every value of the unit that is neither null nor NaN is
    >= `lower` (<= `upper`). A bound need not occur as a value (writers truncate). Nothing at all
    is claimed where the flags are unset: unknown keeps.
    """

    domain: Domain
    lower: npt.NDArray[np.generic]
    upper: npt.NDArray[np.generic]
    has_lower: Bools
    has_upper: Bools
    num_values: Int64s
    """Values of the unit, nulls included; for a column that is not repeated, its rows. -1 unknown."""
    null_count: Int64s
    """-1 unknown (absent is never zero)."""
    nan_count: Int64s
    """-1 unknown; 0 for domains without NaN."""
    read: object = field(default=None, init=False, repr=False)
    """What pruning made of them, for the next question; it follows from the rest."""

    def keep_read(self, made: object) -> None:
        """Remember it."""
        object.__setattr__(self, "read", made)

    def __len__(self) -> int:
        return len(self.has_lower)

    def take(self, units: Int64s) -> Bounds:
        """The same claims for other units: unit i of the result is a part of unit `units[i]`.

        Counts then are only right as "none", "all" or "some", which is all that pruning asks: a count
        that is neither zero nor everything becomes unknown.
        """
        values = self.num_values[units]
        return Bounds(
            domain=self.domain,
            lower=self.lower[units],
            upper=self.upper[units],
            has_lower=self.has_lower[units],
            has_upper=self.has_upper[units],
            num_values=values,
            null_count=_all_or_none(self.null_count[units], values),
            nan_count=_all_or_none(self.nan_count[units], values),
        )

    def part(self, begin: int, end: int) -> Bounds:
        """The claims for a half-open range of the units, as they are: views."""
        return Bounds(
            self.domain,
            self.lower[begin:end],
            self.upper[begin:end],
            self.has_lower[begin:end],
            self.has_upper[begin:end],
            self.num_values[begin:end],
            self.null_count[begin:end],
            self.nan_count[begin:end],
        )

    @classmethod
    def join(cls, parts: Sequence[Bounds]) -> Bounds:
        """The claims of some that are `alike`, one after the other."""
        return cls(
            parts[0].domain,
            np.concatenate([part.lower for part in parts]),
            np.concatenate([part.upper for part in parts]),
            np.concatenate([part.has_lower for part in parts]),
            np.concatenate([part.has_upper for part in parts]),
            np.concatenate([part.num_values for part in parts]),
            np.concatenate([part.null_count for part in parts]),
            np.concatenate([part.nan_count for part in parts]),
        )

    @staticmethod
    def alike(parts: Sequence[Bounds]) -> bool:
        """Whether they are of one domain and type."""
        first = parts[0]
        for part in parts:
            if part.domain is not first.domain:
                return False
            if part.lower.dtype != first.lower.dtype or part.upper.dtype != first.upper.dtype:
                return False
        return True

    @classmethod
    def unknown(cls, num_values: Int64s) -> Bounds:
        """Nothing is known of `len(num_values)` units but their sizes."""
        n = len(num_values)
        nothing = np.full(n, -1, np.int64)
        empty: npt.NDArray[np.generic] = np.zeros(n, np.int64)
        return cls(
            Domain.NONE, empty, empty, np.zeros(n, bool), np.zeros(n, bool), num_values, nothing, nothing
        )


def _all_or_none(count: Int64s, total: Int64s) -> Int64s:
    return np.where((count == 0) | ((count == total) & (total >= 0)), count, -1)
