"""The regression gate: this run's ratios against those of a committed baseline."""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from bench.document import Document
from bench.network import FIRST_BYTE
from bench.suite import BY_DELAY
from bench.summary import SUBJECT, Place

__all__ = [
    "BASELINE",
    "WON",
    "Regression",
    "Tolerance",
    "compare",
    "figures",
    "read_baseline",
    "update_baseline",
]

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
    # What is fetched hardly depends on the machine: on the rows that were drawn, and on what was learned of
    # the network.
    "bytes over the floor's": Tolerance(1.15, 0.05),
    # The floor reads what accel's plan keeps: whether that is more than it was is only seen by itself.
    "kilobytes": Tolerance(1.15, 10.0),
    "requests": Tolerance(1.25, 2.0),
    # A request that was merely late seems to have waited.
    "round trips": Tolerance(1.0, 1.0),
}
WON = 0.95
"""What of the ratios of the peers' times to accel's must stay, of the median peer: one peer alone may have been
slower or faster than in the baseline's run, accel is in all of its ratios."""
_RATIO = "'s time over accel's"
_MOST = "most kilobytes"
"""Of any sample; not compared itself."""
# Random keys lie in pages of different sizes, and how many are asked for depends on the time there is: where
# the samples of the baseline differ, the median of one run has been twice the most of another.
_DRAWN = Tolerance(2.5, 10.0)
# Of so many requests some begin after others have ended whether they had to or not (2 to 13 "trips" of one
# case).
_MANY_REQUESTS = 100
# Of few requests in few trips none was late in any of many runs: there one trip more is a wait more.
_FEW_REQUESTS, _FEW_TRIPS = 20, 2
_EXACT = Tolerance(1.0)
# Who mostly waits for the network does so on a loaded machine, too: in some thirty runs the same code was
# never slower than this, and a lookup that takes twice as long is. What sends nothing takes milliseconds,
# which vary more.
_WAITING = Tolerance(1.5, 0.2)
_WAITING_BELOW = 1.5


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
            return f"{self.where}: {self.figure} was {_told(self.before)}, and is not measured any more"
        return f"{self.where}: {self.figure} is {_told(self.now)}, was {_told(self.before)}"


def _told(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def figures(document: Document) -> dict[str, dict[str, float]]:
    """What of a run is compared."""
    found: dict[str, dict[str, float]] = {}
    for place, lines in document.summary:
        subject = lines.get(SUBJECT)
        if subject is None:
            continue
        peers = document.summary.peers(place)
        fastest = document.summary.rival(place)
        values = {
            "time over the floor's": document.summary.over_floor(place, subject),
            "fastest peer's time over accel's": None if fastest is None else fastest.p50 / subject.p50,
            **{f"{peer.system}{_RATIO}": peer.p50 / subject.p50 for peer in peers},
            "bytes over the floor's": document.summary.over_minimum(place, subject),
            "kilobytes": subject.bytes / 1000,
            _MOST: subject.most_bytes / 1000,
            "requests": subject.requests,
            "round trips": float(subject.trips),
        }
        found[_where(place)] = {name: round(value, 3) for name, value in values.items() if value is not None}
    return found


def _where(place: Place) -> str:
    return f"{place.case} {place.at:g}, {place.mode}" if place.at else f"{place.case}, {place.mode}"


def _is_of(where: str, cases: Collection[str]) -> bool:
    """Whether a place is of one of the cases, wherever on its axis."""
    return any(re.fullmatch(rf"{re.escape(case)}( [-+.e\d]+)?, \w+", where) for case in cases)


def compare(now: Figures, before: Figures, *, cases: Collection[str] | None = None) -> list[Regression]:
    """What got worse. What the baseline does not have is not compared, nor are the round trips of many
    requests.

    Parameters
    ----------
    now, before : mapping
        Figures of this run, and of the baseline.
    cases : collection of str, optional
        Only these cases were run; by default all.
    """
    return list(_worse(now, before, cases))


def _worse(now: Figures, before: Figures, cases: Collection[str] | None) -> Iterator[Regression]:
    for where, old in before.items():
        if cases is not None and not _is_of(where, cases):
            continue
        new = now.get(where, {})
        many = max(old.get("requests", 0.0), new.get("requests", 0.0)) > _MANY_REQUESTS
        for name, value in old.items():
            if _is_ratio(name) or name == _MOST or (many and name == "round trips"):
                continue
            current = new.get(name)
            tolerance = _tolerance(name, where, new, old)
            if name == "kilobytes" and not tolerance.allows(old.get(_MOST, value), value):
                tolerance, value = _DRAWN, old[_MOST]
            if current is None or not tolerance.allows(current, value):
                yield Regression(where, name, current, value)
        yield from _fallen(where, new, old)


def _is_ratio(name: str) -> bool:
    """Whether a figure is a ratio to one peer."""
    return name.endswith(_RATIO) and name not in TOLERANCES


def _fallen(where: str, new: Mapping[str, float], old: Mapping[str, float]) -> Iterator[Regression]:
    """The ratios that fell, where those of the median peer did."""
    ratios = {name: value for name, value in old.items() if _is_ratio(name) and value > 0}
    both = {name: new[name] / value for name, value in ratios.items() if name in new}
    if ratios and not both:
        name = max(ratios, key=lambda name: ratios[name])
        yield Regression(where, name, None, ratios[name])
    elif both and statistics.median(both.values()) < WON:
        for name, share in both.items():
            if share < WON:
                yield Regression(where, name, new[name], ratios[name])


def _tolerance(name: str, where: str, new: Mapping[str, float], old: Mapping[str, float]) -> Tolerance:
    """How much worse a figure may be in this place."""
    trips = old.get("round trips", 0.0)
    if _waits(where):
        if name == "time over the floor's" and trips and old[name] < _WAITING_BELOW:
            return _WAITING
        few = max(old.get("requests", 0.0), new.get("requests", 0.0)) <= _FEW_REQUESTS and trips <= _FEW_TRIPS
        if name == "round trips" and few and not _mixed(old) and not _mixed(new):
            return _EXACT
    return TOLERANCES[name]


def _waits(where: str) -> bool:
    """Whether answers are delayed there by no less than in most cases."""
    name = where.rpartition(", ")[0]
    if name != BY_DELAY and not name.startswith(f"{BY_DELAY} "):
        return True
    return float(name.removeprefix(BY_DELAY) or 0) >= 1000 * FIRST_BYTE


def _mixed(found: Mapping[str, float]) -> bool:
    """Whether some samples sent requests and others none: chance says which is the median."""
    requests = found.get("requests", 0.0)
    return 0 < requests < 1 or bool(requests and not found.get("round trips"))


def read_baseline(setting: str, path: Path = BASELINE) -> Figures | None:
    """The baseline of `Document.setting`; None where there is none."""
    if not path.exists():
        return None
    found: Figures | None = json.loads(path.read_text()).get(setting)
    return found


def update_baseline(
    document: Document, path: Path = BASELINE, *, cases: Collection[str] | None = None
) -> None:
    """Make this run the baseline of its setting, or of these cases of it; what others have stays."""
    everything = json.loads(path.read_text()) if path.exists() else {}
    found = figures(document)
    if cases is not None:
        before = everything.get(document.setting, {})
        kept = {where: values for where, values in before.items() if not _is_of(where, cases)}
        found = kept | {where: values for where, values in found.items() if _is_of(where, cases)}
    everything[document.setting] = found
    path.write_text(json.dumps(everything, indent=1, sort_keys=True) + "\n")
