"""Samples brought together: one line for each system in each mode of each case."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from bench.prices import dollars_a_million
from bench.sample import Sample

__all__ = ["DATA_CACHED", "FLOOR", "SUBJECT", "Line", "Place", "Summary", "percentile", "summarise"]

SUBJECT = "accel"
FLOOR = "floor"
"""No system one could use: what the others are measured against."""
DATA_CACHED = frozenset({"duckdb-cached"})
"""Systems that keep data, not only metadata, between queries."""


def percentile(values: Sequence[float], share: float) -> float:
    """The nearest rank: the least value that at least `share` of all do not exceed."""
    if not values:
        raise ValueError("no values")
    ordered = sorted(values)
    # Of the share as it is written: 0.07 * 100 is more than 7.
    rank = math.ceil(Fraction(str(share)) * len(ordered))
    return ordered[min(max(rank, 1), len(ordered)) - 1]


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """A mode of a case, at a place on its axis."""

    case: str
    at: float
    mode: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A system at a place. Seconds and bytes; medians where nothing else is said."""

    system: str
    samples: int
    p50: float
    p99: float
    first: float
    requests: float
    """The mean."""
    lists: float
    trips: int
    bytes: float
    most_bytes: int
    """Of any sample."""
    cpu: float
    peak: int
    """The most of any sample."""
    rows: int

    @property
    def dollars(self) -> float:
        """For a million such queries, by S3's list price."""
        return dollars_a_million(self.requests, self.lists)


@dataclass(frozen=True, slots=True)
class Summary:
    """The lines of every place, in the order in which they were measured."""

    places: Mapping[Place, Mapping[str, Line]]

    def line(self, place: Place, system: str) -> Line | None:
        """Of a system, if it could answer."""
        return self.places.get(place, {}).get(system)

    def peers(self, place: Place, *, cached: bool = True) -> list[Line]:
        """All but accel and the floor; `cached=False` leaves out who keeps data between queries."""
        lines = self.places.get(place, {}).values()
        others = [line for line in lines if line.system not in (SUBJECT, FLOOR)]
        return [line for line in others if cached or line.system not in DATA_CACHED]

    def fastest(self, place: Place, *, cached: bool = True) -> Line | None:
        """The peer of the least median time."""
        return min(self.peers(place, cached=cached), key=lambda line: line.p50, default=None)

    def rival(self, place: Place) -> Line | None:
        """The fastest peer that does what accel is asked to do there: data from a cache counts only on a
        repeat."""
        return self.fastest(place, cached=place.mode == "repeated")

    def ratio(self, place: Place, line: Line) -> float | None:
        """A line's median time over accel's."""
        subject = self.line(place, SUBJECT)
        return None if subject is None else line.p50 / subject.p50

    def over_floor(self, place: Place, line: Line) -> float | None:
        """A line's median time over the floor's."""
        floor = self.line(place, FLOOR)
        return None if floor is None else line.p50 / floor.p50

    def over_minimum(self, place: Place, line: Line) -> float | None:
        """A line's bytes over the floor's; None where the floor needs none or is not there."""
        floor = self.line(place, FLOOR)
        return line.bytes / floor.bytes if floor is not None and floor.bytes else None

    def __iter__(self) -> Iterator[tuple[Place, Mapping[str, Line]]]:
        return iter(self.places.items())


def summarise(samples: Iterable[Sample]) -> Summary:
    """Bring the samples of a run together."""
    parts: dict[Place, dict[str, list[Sample]]] = {}
    for sample in samples:
        place = Place(sample.case, sample.at, sample.mode)
        parts.setdefault(place, {}).setdefault(sample.system, []).append(sample)
    return Summary(
        {
            place: {system: _line(system, taken) for system, taken in systems.items()}
            for place, systems in parts.items()
        }
    )


def _line(system: str, taken: Sequence[Sample]) -> Line:
    seconds = [sample.seconds for sample in taken]
    return Line(
        system=system,
        samples=len(taken),
        p50=statistics.median(seconds),
        p99=percentile(seconds, 0.99),
        first=statistics.median(sample.first for sample in taken),
        requests=statistics.mean(sample.requests for sample in taken),
        lists=statistics.mean(sample.lists for sample in taken),
        trips=int(statistics.median_high(sample.trips for sample in taken)),
        bytes=statistics.median(sample.bytes for sample in taken),
        most_bytes=max(sample.bytes for sample in taken),
        cpu=statistics.median(sample.cpu for sample in taken),
        peak=max(sample.peak for sample in taken),
        rows=int(statistics.median_high(sample.rows for sample in taken)),
    )
