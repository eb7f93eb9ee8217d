"""The regression gate: this run's ratios against those of a committed baseline."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from bench.document import Document
from bench.summary import SUBJECT, Place

__all__ = ["BASELINE", "Regression", "Tolerance", "compare", "figures", "read_baseline", "update_baseline"]

BASELINE = Path(__file__).with_name("baseline.json")

Figures = Mapping[str, Mapping[str, float]]
"""By "case, mode", then by figure."""


@dataclass(frozen=True, slots=True)
class Tolerance:
    """How much worse than the baseline a figure may be: by this factor, and by this much beyond it."""

    factor: float
    slack: float = 0.0
    higher_is_better: bool = False

    def allows(self, now: float, before: float) -> bool:
        """Whether `now` is not worse than `before`, within the tolerance."""
        if self.higher_is_better:
            return now >= before / self.factor - self.slack
        return now <= before * self.factor + self.slack


TOLERANCES = {
    # Times are compared within one run, yet a loaded machine does not slow all systems alike.
    "time over the floor's": Tolerance(2.0, 0.2),
    "fastest peer's time over accel's": Tolerance(2.0, higher_is_better=True),
    # What is fetched hardly depends on the machine: on the rows that were drawn, and on what was learned of the network.
    "bytes over the floor's": Tolerance(1.15, 0.05),
    "requests": Tolerance(1.25, 2.0),
    # A request that was merely late seems to have waited.
    "round trips": Tolerance(1.0, 1.0),
}
# Of so many requests some begin after others have ended whether they had to or not (2 to 13 "trips" of one case).
_MANY_REQUESTS = 100


@dataclass(frozen=True, slots=True)
class Regression:
    """A figure that is worse than the baseline allows."""

    where: str
    figure: str
    now: float | None
    """None: it is no longer measured."""
    before: float

    def __str__(self) -> str:
        if self.now is None:
            return f"{self.where}: {self.figure} was {self.before:.3g}, and is not measured any more"
        return f"{self.where}: {self.figure} is {self.now:.3g}, was {self.before:.3g}"


def figures(document: Document) -> dict[str, dict[str, float]]:
    """What of a run is compared."""
    found: dict[str, dict[str, float]] = {}
    for place, lines in document.summary:
        subject = lines.get(SUBJECT)
        if subject is None:
            continue
        peer = document.summary.rival(place)
        values = {
            "time over the floor's": document.summary.over_floor(place, subject),
            "fastest peer's time over accel's": None if peer is None else peer.p50 / subject.p50,
            "bytes over the floor's": document.summary.over_minimum(place, subject),
            "requests": subject.requests,
            "round trips": float(subject.trips),
        }
        found[_where(place)] = {name: round(value, 3) for name, value in values.items() if value is not None}
    return found


def _where(place: Place) -> str:
    return f"{place.case} {place.at:g}, {place.mode}" if place.at else f"{place.case}, {place.mode}"


def compare(now: Figures, before: Figures, *, cases: set[str] | None = None) -> list[Regression]:
    """What got worse. What the baseline does not have is not compared, nor are the round trips of many requests.

    Parameters
    ----------
    now, before : mapping
        Figures of this run, and of the baseline.
    cases : set of str, optional
        Only these cases were run; by default all.
    """
    return list(_worse(now, before, cases))


def _worse(now: Figures, before: Figures, cases: set[str] | None) -> Iterator[Regression]:
    for where, old in before.items():
        if cases is not None and not any(where.startswith((f"{case}, ", f"{case} ")) for case in cases):
            continue
        new = now.get(where, {})
        many = max(old.get("requests", 0.0), new.get("requests", 0.0)) > _MANY_REQUESTS
        for name, value in old.items():
            if many and name == "round trips":
                continue
            current = new.get(name)
            if current is None or not TOLERANCES[name].allows(current, value):
                yield Regression(where, name, current, value)


def read_baseline(setting: str, path: Path = BASELINE) -> Figures | None:
    """The baseline of `Document.setting`; None where there is none."""
    if not path.exists():
        return None
    found: Figures | None = json.loads(path.read_text()).get(setting)
    return found


def update_baseline(document: Document, path: Path = BASELINE) -> None:
    """Make this run the baseline of its setting; what others have stays."""
    everything = json.loads(path.read_text()) if path.exists() else {}
    everything[document.setting] = figures(document)
    path.write_text(json.dumps(everything, indent=1, sort_keys=True) + "\n")
