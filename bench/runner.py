"""Every system on the same queries, one call at a time, in turn."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from bench.network import FIRST_BYTE, Network
from bench.peers.child import Child
from bench.peers.protocol import Measured, PeerError, Unsupported
from bench.queries import Query
from bench.sample import Failure, Sample
from bench.suite import Axis, Case, Mode

__all__ = ["Effort", "Runner"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How many samples each case gets. A round is one sample of every system."""

    rounds: dict[Mode, int]
    heavy_rounds: int
    """Of cases in which a sample takes seconds."""
    sweep_rounds: int
    """Of cases that are there for a plot only."""
    at_once_modes: tuple[Mode, ...]
    """In which modes many queries at once are asked: the systems that read most need minutes."""
    budget: float
    """Seconds of one mode of one case after which no round begins, once `least` were taken."""
    least: int
    limit: float = 120.0
    """Seconds that one call may take."""
    patience: float = 15.0
    """Seconds of a call after which its system is asked nothing more in that case."""
    introduction: float = 2.0
    """Seconds after which a system is taken to have met a file."""

    def rounds_of(self, case: Case, mode: Mode) -> int:
        """Rounds of a mode of a case, if there is time."""
        wanted = self.rounds[mode]
        if case.at_once > 1 and mode not in self.at_once_modes:
            return 0
        if case.heavy or case.at_once > 1:
            wanted = min(wanted, self.heavy_rounds)
        return min(wanted, self.sweep_rounds) if case.swept else wanted


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
    _children: dict[str, Child] = field(default_factory=dict)

    def open(self, first: Sequence[Query]) -> None:
        """Start every system and ask it the first queries; one that cannot be had is left out, and said."""
        self.network.begin()
        for name in self.names:
            child = Child(name, limit=self.effort.limit)
            try:
                child.open(self.network.endpoint)
                for query in first:
                    with contextlib.suppress(Unsupported):
                        child.run(query)
            except (PeerError, Unsupported) as error:
                child.close()
                self._fail(
                    Case(name="start", what="", fresh=iter(()), met=()), Mode.COLD, name, "error", str(error)
                )
                continue
            self._children[name] = child

    def close(self) -> None:
        """End all processes."""
        for child in self._children.values():
            child.close()

    def run(self, cases: Iterable[Case]) -> None:
        """All modes of all cases."""
        for case in cases:
            able = list(self._children)
            for mode in case.modes:
                if not self.effort.rounds_of(case, mode):
                    continue
                started = time.monotonic()
                before = len(self.samples)
                able = self._run_mode(case, mode, able)
                label = f"{case.name} {case.at:g}" if case.axis is not Axis.NONE else case.name
                self.tell(
                    f"{label}, {mode}: {len(self.samples) - before} samples of {len(able)} systems, "
                    f"{time.monotonic() - started:.1f} s"
                )

    def _run_mode(self, case: Case, mode: Mode, able: list[str]) -> list[str]:
        """Take the samples of one mode; the systems that are still able."""
        repeated = case.take() if mode is Mode.REPEATED else ()
        if mode is not Mode.COLD:
            able = [name for name in able if self._meet(case, mode, name, repeated)]
        started = time.monotonic()
        for number in range(self.effort.rounds_of(case, mode)):
            if number >= self.effort.least and time.monotonic() - started > self.effort.budget:
                break
            queries = repeated or case.take()
            # Whoever comes after another may find the machine warmer: turns are taken.
            turn = number % max(1, len(able))
            found: dict[str, tuple[int, ...]] = {}
            for name in able[turn:] + able[:turn]:
                if mode is Mode.WARM and number and case.overlapping and not self._meet(case, mode, name, ()):
                    able = [other for other in able if other != name]
                    continue
                rows = self._sample(case, mode, number, name, queries)
                if rows is None:
                    able = [other for other in able if other != name]
                    continue
                found[name] = rows
                if self.samples[-1].seconds > self.effort.patience:
                    text = f"a call took {self.samples[-1].seconds:.0f} s: it was asked no more"
                    self._fail(case, mode, name, "slow", text)
                    able = [other for other in able if other != name]
            self._compare(case, mode, found)
        return able

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

    def _sample(
        self, case: Case, mode: Mode, number: int, name: str, queries: tuple[Query, ...]
    ) -> tuple[int, ...] | None:
        """One call; None when the system cannot do it."""
        child = self._children[name]
        try:
            if mode is Mode.COLD:
                child.forget()
            self.network.begin(_delay(case))
            took = child.concurrently(queries) if len(queries) > 1 else child.run(queries[0])
        except (Unsupported, PeerError) as error:
            self._lose(case, mode, name, error)
            return None
        self._keep(case, mode, number, name, took)
        return took.each or (took.rows,)

    def _keep(self, case: Case, mode: Mode, number: int, name: str, took: Measured) -> None:
        passed = self.network.end()
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

    def _compare(self, case: Case, mode: Mode, found: dict[str, tuple[int, ...]]) -> None:
        """All systems must have found the same rows; whoever differs from most is named."""
        if len(set(found.values())) <= 1:
            return
        answers = list(found.values())
        usual = max(answers, key=answers.count)
        for name, rows in found.items():
            if rows != usual:
                text = f"{sum(rows)} rows, where most systems found {sum(usual)}"
                self._fail(case, mode, name, "rows", text)

    def _lose(self, case: Case, mode: Mode, name: str, error: Unsupported | PeerError) -> bool:
        """Write down why a system drops out of a case, and have it running again for the next."""
        kind = "unsupported" if isinstance(error, Unsupported) else "error"
        self._fail(case, mode, name, kind, str(error))
        if kind == "error":
            child = self._children[name]
            child.close()
            child.open(self.network.endpoint)
        return False

    def _fail(self, case: Case, mode: Mode, name: str, kind: str, text: str) -> None:
        self.failures.append(
            Failure(case=case.name, mode=mode, at=case.at, system=name, kind=kind, text=text)
        )
        lines = text.strip().splitlines() or [""]
        self.tell(f"  {name}: {kind}: {lines[-1][:200]}")


def _delay(case: Case) -> float:
    """Seconds to the first byte."""
    return case.at / 1000 if case.axis is Axis.DELAY else FIRST_BYTE
