"""Two ways to one answer, measured by turns in one warm Spark session behind the slow network."""

from __future__ import annotations

import math
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from bench.e2e.figures import Figure
from bench.network import Network

__all__ = ["SPARK", "Bench", "Found", "Measured", "Side", "ratio"]

SPARK = "Spark"
"""The name of the side that the others are compared with."""
UNMEASURED = 2
"""Turns before those that count: the JVM compiles, the Python workers import."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What one side of a case took: medians."""

    case: str
    side: str
    rows: int
    seconds: float
    least: float
    """The seconds of the fastest turn."""
    requests: float
    bytes: float

    def row(self) -> dict[str, object]:
        """The row of the printed table."""
        return {
            "case": self.case,
            "side": self.side,
            "rows": f"{self.rows:,}",
            "ms": f"{1e3 * self.seconds:,.0f}",
            "least": f"{1e3 * self.least:,.0f}",
            "requests": f"{self.requests:,.0f}",
            "KB": f"{self.bytes / 1e3:,.1f}",
        }


Side: TypeAlias = Callable[[int], Any]
"""Answers the question of one turn; the same turn asks the same of every side."""
Found: TypeAlias = tuple[list[Measured], list[Figure]]
"""What a case measured, and what of it has a target."""


@dataclass(frozen=True, slots=True)
class Bench:
    """What the cases share."""

    network: Network
    spark: Any
    """The session."""
    scale: float
    """Of the sizes that the numbers are wanted for."""
    times: int
    """The turns of each case that count."""

    def size(self, whole: int, *, least: int) -> int:
        """Files, rows or megabytes: so many, at this scale."""
        return max(least, round(whole * self.scale))

    @property
    def storage_options(self) -> dict[str, str]:
        """accel's, through the slow network."""
        return self.network.endpoint.storage_options()

    def by_turns(
        self,
        case: str,
        sides: Mapping[str, Side],
        *,
        of: Callable[[Any], Any] = lambda answer: answer,
        rows: Callable[[Any], int] = len,
        times: int | None = None,
        unmeasured: int = UNMEASURED,
    ) -> dict[str, Measured]:
        """Ask all sides in turn.

        Parameters
        ----------
        case : str
        sides : mapping of str to function
        of : function
            What is compared of an answer, when the clock has stopped.
        rows : function
            The rows of what is compared.
        times : int, optional
            The turns that count, after those that are `unmeasured`.

        Raises
        ------
        AssertionError
            The sides answer differently.
        """
        seconds: dict[str, list[float]] = {name: [] for name in sides}
        passed: dict[str, list[Any]] = {name: [] for name in sides}
        count = 0
        times = times or self.times
        for turn in range(-unmeasured, times):
            answers, last = {}, {}
            # Each side goes first in every other turn.
            for name in list(sides) if turn % 2 else reversed(list(sides)):
                self.network.begin()
                started = time.perf_counter()
                answer = sides[name](turn + unmeasured)
                took = last[name] = time.perf_counter() - started
                traffic = self.network.end()
                answers[name] = of(answer)
                if turn >= 0:
                    seconds[name].append(took)
                    passed[name].append(traffic)
            print(
                case, turn, {name: round(took, 2) for name, took in last.items()}, file=sys.stderr, flush=True
            )
            first, *others = answers.values()
            if any(other != first for other in others):
                raise AssertionError(f"{case}: the answers differ: {str(answers)[:2000]}")
            count = rows(first)
        return {
            name: Measured(
                case=case,
                side=name,
                rows=count,
                seconds=statistics.median(seconds[name]),
                least=min(seconds[name]),
                requests=statistics.median(traffic.requests for traffic in passed[name]),
                bytes=statistics.median(traffic.bytes for traffic in passed[name]),
            )
            for name in sides
        }


def ratio(
    found: Mapping[str, Measured], side: str, *, of: str, target: float | None = None, least: bool = False
) -> Figure:
    """A side's number over Spark's and what is to be reached, if anything; with `least`, Spark's over it.

    Parameters
    ----------
    of : {"seconds", "requests", "bytes"}
    """
    ours, theirs = getattr(found[side], of), getattr(found[SPARK], of)
    above, below = (theirs, ours) if least else (ours, theirs)
    value = above / below if below else math.inf
    words = f"{of} of Spark over those of {side}" if least else f"{of} of {side} over those of Spark"
    return Figure(case=found[side].case, what=words, value=value, unit="x", target=target, least=least)
