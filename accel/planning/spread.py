"""How the values of a column lie in one row group, as far as its statistics tell: for guesses, never for a verdict."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from accel.format.domain import Bounds, Domain

if TYPE_CHECKING:
    from accel.planning.file_view import FileView

__all__ = ["BELOW", "EQUAL", "Spread", "place_of", "spread_of"]

EQUAL = 0.02
"""The fraction of values that equal another, where nothing is known."""
BELOW = 0.3
"""The fraction of values on one side of another, where nothing is known."""
# Of a text as much as orders it, as a number.
_PLACE_BYTES = 6


@dataclass(frozen=True, slots=True)
class Spread:
    """The values of one column in one row group, between two bounds."""

    nulls: float
    """The fraction of nulls."""
    values: int
    lower: float | None
    upper: float | None
    discrete: bool
    """Values are whole numbers: a range holds no more distinct ones than it is wide."""

    def equal(self) -> float:
        """Of the values, those equal to a given one."""
        if self.discrete and self.lower is not None and self.upper is not None:
            width = self.upper - self.lower + 1
            return 1.0 / max(1.0, min(width, self.values))
        return EQUAL

    def below(self, at: float) -> float:
        """Of the values, those not above a point."""
        lower, upper = self.lower, self.upper
        if lower is None or upper is None or not math.isfinite(upper - lower):
            return BELOW
        if upper <= lower:
            return 1.0 if at >= lower else 0.0
        return min(1.0, max(0.0, (at - lower) / (upper - lower)))


def spread_of(view: FileView, row_group: int, leaf: int | None) -> Spread:
    """That of a leaf's chunk; of a column without one, or without statistics that were read, what is always true."""
    found = None if leaf is None else view.spreads.get((row_group, leaf))
    if found is not None:
        return found
    rows = view.metadata.group_rows.item(row_group)
    bounds = None if leaf is None else view.chunk_bounds.get(leaf)
    if leaf is None or bounds is None:
        return Spread(0.0, rows, None, None, False)
    nulls = max(0, bounds.null_count.item(row_group))
    found = view.spreads[row_group, leaf] = Spread(
        nulls / max(1, rows),
        rows - nulls,
        _bound(bounds, bounds.lower, bounds.has_lower, row_group),
        _bound(bounds, bounds.upper, bounds.has_upper, row_group),
        bounds.domain is Domain.INTEGER or bounds.domain is Domain.BOOLEAN,
    )
    return found


def _bound(bounds: Bounds, values: Any, known: Any, row_group: int) -> float | None:
    if bounds.domain is Domain.NONE or not known.item(row_group):
        return None
    return place_of(values.item(row_group))


def place_of(value: Any) -> float | None:
    """A native value on the number line, in the order of its domain; None where it has no place."""
    if type(value) is float:
        return value
    if isinstance(value, bytes):
        return float(int.from_bytes(value[:_PLACE_BYTES].ljust(_PLACE_BYTES, b"\0"), "big"))
    try:
        return float(value)
    except (OverflowError, TypeError, ValueError):
        return None
