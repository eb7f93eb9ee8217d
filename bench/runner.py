"""Every system on the same queries, one call at a time, in turn."""

from __future__ import annotations

import contextlib
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from bench.network import FIRST_BYTE, Network, Traffic
from bench.peers.child import Child
from bench.peers.endpoint import Endpoint
from bench.peers.protocol import Measured, PeerError, Unsupported
from bench.queries import Query
from bench.sample import Failure, Sample
from bench.suite import Axis, Case, Mode

__all__ = ["Effort", "Runner"]

_LATE = 4.0
_Answer = TypeVar("_Answer", str, tuple[int, ...])


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How many samples each case gets. A round is a turn of every system: one sample, and more while they are
    quick."""

    samples: dict[Mode, int]
    heavy_samples: int
    """Of cases in which a sample takes seconds."""
    sweep_samples: int
    """Of cases that are there for a plot only."""
    at_once_modes: tuple[Mode, ...]
    """In which modes many queries at once are asked: the systems that read most need minutes."""
    budget: float
    """Seconds of one mode of one case after which no round begins, once `least` were taken."""
    least: int
    turn: float = 0.0
    """Seconds after which a turn ends: whoever answers sooner is asked again, for one sample in so many
    rounds as the slowest leave time for says little."""
    deadline: float | None = None
    """Of `time.monotonic`: each mode of each case gets its part of the time until then, and at most
    `budget`."""
    share: float = 2.0
    """A system sits out rounds while it has taken so many times what the median system has, and more than an
    even part of the budget: else the slowest would leave the others few samples."""
    brisk: float = 2.0
    """Seconds of a turn. Whoever took no more in the last one is asked again although the time is over: those
    that a ratio compares are the quickest."""
    brisk_rounds: int = 1
    """Until there were so many rounds."""
    limit: float = 120.0
    """Seconds that one call may take."""
    patience: float = 15.0
    """Seconds of a call after which its system is asked nothing more in that case."""
    introduction: float = 2.0
    """Seconds after which a system is taken to have met a file."""

    def samples_of(self, case: Case, mode: Mode) -> int:
        """Samples of a system in a mode of a case, if there is time."""
        wanted = self.samples[mode]
        if case.at_once > 1 and mode not in self.at_once_modes:
            return 0
        if case.heavy or case.at_once > 1:
            wanted = min(wanted, self.heavy_samples)
        return min(wanted, self.sweep_samples) if case.swept else wanted

    def budget_of(self, weights: Sequence[float], now: float) -> float:
        """Seconds for the first of the modes that are left, which weigh so much."""
        if self.deadline is None:
            return self.budget
        return max(0.0, min(self.budget, (self.deadline - now) * weights[0] / sum(weights)))

    def is_over(self, rounds: int, passed: float, budget: float) -> bool:
        """Whether a mode is to end after so many rounds and seconds; where time is short, one round is
        enough."""
        enough = 1 if self.deadline is not None and passed > _LATE * budget else self.least
        return rounds >= enough and passed > budget

    def asked_on(self, rounds: int, turns: Mapping[str, float]) -> list[str]:
        """Of the systems, by what their last turns took, those that a mode does not end for when its time is
        over."""
        return [name for name, took in turns.items() if took <= self.brisk and rounds < self.brisk_rounds]

    def sits_out(self, name: str, spent: Mapping[str, float], budget: float) -> bool:
        """Whether a system has had so much of a mode's time that the others go on without it."""
        even = budget / len(spent)
        return spent[name] > max(even, self.share * statistics.median(spent.values()))


@dataclass(slots=True)
class _Round:
    """The queries of one round, the same for every system, of which a quick one is asked more."""

    fresh: Callable[[], tuple[Query, ...]]
    most: int
    """Queries of this round, one for each sample of a turn."""
    queries: list[tuple[Query, ...]] = field(default_factory=list)
    found: list[dict[str, Measured]] = field(default_factory=list)
    """What each was answered, by system."""

    def query(self, number: int) -> tuple[Query, ...]:
        """What is asked in the sample of that number of each turn."""
        if number == len(self.queries):
            self.queries.append(self.fresh())
            self.found.append({})
        return self.queries[number]


@dataclass(slots=True)
class Runner:
    """The systems of a run, and what came of it.

    Parameters
    ----------
    network : Network
        Where the data is.
    names : sequence of str
        Systems, in the order in which the first round asks them.
    effort : Effort
        How often.
    tell : callable
        Takes a line about what goes on.
    """

    network: Network
    names: Sequence[str]
    effort: Effort
    tell: Callable[[str], None]
    samples: list[Sample] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    stopped: bool = False
    """Whether not all was asked."""
    _children: dict[str, Child] = field(default_factory=dict)
    _first: Sequence[Query] = ()
    _tls: bool = False

    @property
    def _endpoint(self) -> Endpoint:
        return self.network.secure_endpoint if self._tls else self.network.endpoint

    def open(self, first: Sequence[Query], *, tls: bool = False) -> None:
        """Start every system and ask it the first queries; one that cannot be had is left out, and said.

        With `tls`, the systems reach the store by TLS.
        """
        self._first, self._tls = first, tls
        self.network.begin()
        for name in self.names:
            child = Child(name, limit=self.effort.limit)
            try:
                child.open(self._endpoint)
                for query in first:
                    with contextlib.suppress(Unsupported):
                        child.run(query)
            except (PeerError, Unsupported) as error:
                child.close()
                kind = "unsupported" if isinstance(error, Unsupported) else "error"
                self._fail(_START, Mode.COLD, name, kind, str(error))
                continue
            except BaseException:
                child.close()
                raise
            self._children[name] = child

    def close(self) -> None:
        """End all processes."""
        for child in self._children.values():
            child.close()
        self._children.clear()

    def run(self, cases: Iterable[Case]) -> None:
        """All modes of all cases."""
        todo = [(case, mode) for case in cases for mode in case.modes if self.effort.samples_of(case, mode)]
        weights = [_weight(case) for case, _ in todo]
        able: list[str] = []
        for number, (case, mode) in enumerate(todo):
            if case.tls != self._tls:
                # In new processes, which meet the other way to the store as the first one.
                self.close()
                self.open(self._first, tls=case.tls)
                self.tell(f"the store is reached by {'TLS' if case.tls else 'plain HTTP'} from here on")
            if not number or todo[number - 1][0] is not case:
                able = list(self._children)
            able = self._time_mode(
                case, mode, able, self.effort.budget_of(weights[number:], time.monotonic())
            )

    def _time_mode(self, case: Case, mode: Mode, able: list[str], budget: float) -> list[str]:
        """One mode, and a line about it."""
        started, before = time.monotonic(), len(self.samples)
        able = self._run_mode(case, mode, able, budget)
        counts = Counter(sample.system for sample in self.samples[before:])
        most = max(counts.values(), default=0)
        fewer = ", ".join(f"{name} {count}" for name, count in counts.items() if count < most)
        label = f"{case.name} {case.at:g}" if case.axis is not Axis.NONE else case.name
        self.tell(
            f"{label}, {mode}: up to {most} samples of each of {len(counts)} systems"
            + (f" ({fewer})" if fewer else "")
            + f", {time.monotonic() - started:.1f} s, {budget:.1f} allowed"
        )
        return able

    def _run_mode(self, case: Case, mode: Mode, able: list[str], budget: float) -> list[str]:
        """Take the samples of one mode; the systems that are still able."""
        repeated = case.take() if mode is Mode.REPEATED else ()
        started = time.monotonic()
        if mode is not Mode.COLD:
            able = [name for name in able if self._meet(case, mode, name, repeated)]
        spent, turns = dict.fromkeys(able, 0.0), dict.fromkeys(able, 0.0)
        most, taken = self.effort.samples_of(case, mode), 0
        # What a system loads at the first query of a kind is part of no answer: in the first mode one is not
        # counted. Before the others it has met the file.
        number = -1 if mode is Mode.COLD else 0
        while able and taken < most:
            over = self.effort.is_over(number, time.monotonic() - started, budget)
            asking = [name for name in self.effort.asked_on(number, turns) if name in able] if over else able
            if not asking:
                break
            asked = _Round(lambda: repeated or case.take(), most - taken if number >= 0 else 1)
            # Whoever comes after another may find the machine warmer: turns are taken.
            turn = number % len(asking)
            for name in asking[turn:] + asking[:turn]:
                if not over and number > 0 and self.effort.sits_out(name, spent, budget):
                    continue
                began = time.monotonic()
                if not self._turn(case, mode, name, number, asked):
                    able = [other for other in able if other != name]
                turns[name] = time.monotonic() - began
                spent[name] += turns[name]
            if number >= 0:
                taken += len(asked.queries)
            for found in asked.found:
                self._compare(case, mode, found)
            number += 1
        return able

    def _turn(self, case: Case, mode: Mode, name: str, number: int, asked: _Round) -> bool:
        """The samples of one system in a round; whether it is to be asked again."""
        ends = time.monotonic() + self.effort.turn
        for sample in range(asked.most):
            if sample and time.monotonic() >= ends:
                break
            queries = asked.query(sample)
            again = mode is Mode.WARM and case.overlapping and (number or sample)
            if again and not self._meet(case, mode, name, ()):
                return False
            took = self._call(case, mode, name, queries)
            if took is None:
                return False
            asked.found[sample][name] = took
            passed = self.network.end()
            slow = took.seconds > self.effort.patience
            if slow or number >= 0:
                self._keep(case, mode, max(0, number), name, took, passed)
            if slow:
                text = f"a call took {took.seconds:.0f} s: it was asked no more"
                self._fail(case, mode, name, "slow", text)
                return False
        return True

    def _meet(self, case: Case, mode: Mode, name: str, repeated: tuple[Query, ...]) -> bool:
        """Let a system get to know the file, and in the repeated mode the query itself."""
        child = self._children[name]
        # At the case's own delay: some systems learn from what they see.
        self.network.begin(_delay(case))
        try:
            if mode is Mode.WARM:
                child.forget()
                started = time.monotonic()
                for query in case.met:
                    child.run(query)
                    if time.monotonic() - started > self.effort.introduction:
                        break
            elif len(repeated) > 1:
                child.concurrently(repeated)
            else:
                child.run(repeated[0])
        except (Unsupported, PeerError) as error:
            return self._lose(case, mode, name, error)
        self.network.end()
        return True

    def _call(self, case: Case, mode: Mode, name: str, queries: tuple[Query, ...]) -> Measured | None:
        """One call; None when the system cannot do it."""
        child = self._children[name]
        try:
            if mode is Mode.COLD:
                child.forget()
            self.network.begin(_delay(case))
            return child.concurrently(queries) if len(queries) > 1 else child.run(queries[0])
        except (Unsupported, PeerError) as error:
            self._lose(case, mode, name, error)
            return None

    def _keep(self, case: Case, mode: Mode, number: int, name: str, took: Measured, passed: Traffic) -> None:
        self.samples.append(
            Sample(
                case=case.name,
                mode=mode,
                at=case.at,
                round=number,
                system=name,
                seconds=took.seconds,
                first=took.first,
                rows=took.rows,
                cpu=took.cpu,
                peak=took.peak,
                requests=passed.requests,
                lists=passed.lists,
                trips=passed.trips,
                bytes=passed.bytes,
            )
        )

    def _compare(self, case: Case, mode: Mode, found: Mapping[str, Measured]) -> None:
        """All systems must have found the same rows, and the same values in them; whoever differs from most
        is named."""
        rows = {name: took.each or (took.rows,) for name, took in found.items()}
        for name, usual in _unusual(rows):
            text = f"{sum(rows[name])} rows, where most systems found {sum(usual)}"
            self._fail(case, mode, name, "rows", text)
        # Not told of long answers, of streams, of many at once, nor by the floor.
        values = {name: took.digest for name, took in found.items() if took.digest}
        for name, _ in _unusual(values):
            self._fail(case, mode, name, "rows", "other values in its rows than most systems found")

    def _lose(self, case: Case, mode: Mode, name: str, error: Unsupported | PeerError) -> bool:
        """Write down why a system drops out of a case, and have it running again for the next."""
        kind = "unsupported" if isinstance(error, Unsupported) else "error"
        self._fail(case, mode, name, kind, str(error))
        if kind == "error":
            child = self._children[name]
            child.close()
            try:
                child.open(self._endpoint)
            except (PeerError, Unsupported) as again:
                del self._children[name]
                child.close()
                self._fail(_START, mode, name, "error", f"it did not start again: {again}")
        return False

    def _fail(self, case: Case, mode: Mode, name: str, kind: str, text: str) -> None:
        self.failures.append(
            Failure(case=case.name, mode=mode, at=case.at, system=name, kind=kind, text=text)
        )
        lines = text.strip().splitlines() or [""]
        self.tell(f"  {name}: {kind}: {lines[-1][:200]}")


_START = Case(name="start", what="", fresh=iter(()), met=())
_HEAVY, _SWEPT = 3.0, 0.5


def _weight(case: Case) -> float:
    """How much of a run's time a mode of a case is worth, one lookup's being 1."""
    return (_HEAVY if case.heavy or case.at_once > 1 else 1.0) * (_SWEPT if case.swept else 1.0)


def _unusual(answers: Mapping[str, _Answer]) -> list[tuple[str, _Answer]]:
    """Who answered otherwise than most, and what most answered."""
    usual = Counter(answers.values()).most_common(1)
    return [(name, usual[0][0]) for name, answer in answers.items() if answer != usual[0][0]]


def _delay(case: Case) -> float:
    """Seconds to the first byte."""
    return case.at / 1000 if case.axis is Axis.DELAY else FIRST_BYTE
