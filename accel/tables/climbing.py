"""Paths that climb: with `..` they name what lies outside of the folder that they are to be in."""

from __future__ import annotations

import re
from typing import Final

import numpy as np
import pyarrow as pa

from accel.arrays import mask

__all__ = ["CLIMBING", "climbs", "first_climbing"]

CLIMBING: Final = r"(?:^|[/\\])\.\.(?:[/\\]|$)"
"""Found in paths that climb, on whichever system."""
_CLIMBING: Final = re.compile(CLIMBING)


def climbs(path: str) -> bool:
    """Return whether a path climbs."""
    return _CLIMBING.search(path) is not None


def first_climbing(paths: pa.Array) -> int | None:
    """Return the place of the first path that climbs; None where there is none."""
    import pyarrow.compute as pc

    # Few paths have two dots, which are found in a third of the time.
    if not pc.any(pc.match_substring(paths, "..")).as_py():
        return None
    found = np.flatnonzero(mask(pc.match_substring_regex(paths, CLIMBING)))
    return int(found[0]) if len(found) else None
