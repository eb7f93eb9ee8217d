"""The runner over systems that are made up: turns, comparison, what drops out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import count
from typing import ClassVar

import pytest

from bench import runner as under_test
from bench.network import Traffic
from bench.peers.protocol import Measured, PeerError, Unsupported
from bench.queries import Query
from bench.runner import Effort, Runner
from bench.suite import Case, Mode

EFFORT = Effort(
    samples={Mode.COLD: 2, Mode.WARM: 3, Mode.REPEATED: 2},
    heavy_samples=1,
    sweep_samples=1,
    at_once_modes=(Mode.WARM,),
    budget=100,
    least=1,
)


class FakeNetwork:
    endpoint, secure_endpoint = "plain", "by TLS"

    def begin(self, first_byte: float = 0.03) -> None:
        pass

    def end(self) -> Traffic:
        return Traffic(requests=3, lists=0, trips=1, bytes=10)


class FakeChild:
    """Answers by its name; writes down what it was asked."""

    log: ClassVar[list[tuple[str, str]]] = []

    def __init__(self, name: str, *, limit: float) -> None:
        self.name = name

    def open(self, endpoint: object) -> None:
        self.log.append((self.name, "open" if endpoint == "plain" else f"open {endpoint}"))
        if self.name == "absent":
            raise PeerError("it is not installed")
        if self.name == "lost" and self.log.count((self.name, "open")) > 1:
            raise PeerError("no memory")

    def close(self) -> None:
        self.log.append((self.name, "close"))

    def forget(self) -> None:
        self.log.append((self.name, "forget"))

    def run(self, query: Query) -> Measured:
        self.log.append((self.name, str(query.where[0][2])))
        if self.name == "unable":
            raise Unsupported("no words for it")
        if self.name in ("dying", "lost"):
            raise PeerError("Traceback\nValueError: died")
        digest = {"floor": "", "other": "beef"}.get(self.name, "cafe")
        return Measured(0.1, 0.1, 2 if self.name == "wrong" else 1, 0.01, 5, digest=digest)

    def concurrently(self, queries: Sequence[Query]) -> Measured:
        self.log.append((self.name, f"{len(queries)} at once"))
        return Measured(0.1, 0.1, len(queries), 0.01, 5, (1,) * len(queries))


@pytest.fixture
def fakes(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    monkeypatch.setattr(under_test, "Child", FakeChild)
    monkeypatch.setattr(FakeChild, "log", [])
    return FakeChild.log


def queries() -> Iterator[Query]:
    return (Query("q", ("a",), where=(("k", "=", i),)) for i in count())


def case(**more: object) -> Case:
    met = (Query("q", ("a",), where=(("k", "=", -1),)),)
    return Case(**({"name": "q", "what": "", "fresh": queries(), "met": met} | more))  # type: ignore[arg-type]


def run(names: list[str], *cases: Case) -> Runner:
    made = Runner(FakeNetwork(), names, EFFORT, lambda line: None)  # type: ignore[arg-type]
    made.open(())
    made.run(cases)
    made.close()
    return made


def test_systems_start_anew_where_the_store_is_reached_by_tls(fakes: list[tuple[str, str]]) -> None:
    made = run(["a", "b"], case(modes=(Mode.COLD,)), case(name="q over TLS", modes=(Mode.COLD,), tls=True))
    starts = [what for what in fakes if what[1].startswith(("open", "close"))]
    assert starts == [
        *((name, "open") for name in "ab"),
        *((name, "close") for name in "ab"),
        *((name, "open by TLS") for name in "ab"),
        *((name, "close") for name in "ab"),
    ]
    assert {sample.case for sample in made.samples} == {"q", "q over TLS"}


def test_every_round_asks_all_in_turn(fakes: list[tuple[str, str]]) -> None:
    made = run(["a", "b"], case())
    assert [what for what in fakes if what[1] not in ("open", "close")] == [
        # Not counted.
        *[("b", "forget"), ("b", "0"), ("a", "forget"), ("a", "0")],
        *[("a", "forget"), ("a", "1"), ("b", "forget"), ("b", "1")],
        *[("b", "forget"), ("b", "2"), ("a", "forget"), ("a", "2")],
        *[("a", "forget"), ("a", "-1"), ("b", "forget"), ("b", "-1")],
        *[("a", "3"), ("b", "3"), ("b", "4"), ("a", "4"), ("a", "5"), ("b", "5")],
        *[("a", "6"), ("b", "6"), ("a", "6"), ("b", "6"), ("b", "6"), ("a", "6")],
    ]
    assert [(s.mode, s.system, s.requests) for s in made.samples[:2]] == [("cold", "a", 3), ("cold", "b", 3)]
    assert [s.round for s in made.samples] == [0, 0, 1, 1, 0, 0, 1, 1, 2, 2, 0, 0, 1, 1]
    assert len(made.samples) == 14
    assert made.failures == []


def test_overlapping_queries_meet_the_file_before_each_sample(fakes: list[tuple[str, str]]) -> None:
    run(["a"], case(modes=(Mode.WARM,), overlapping=True))
    asked = [what for _, what in fakes if what not in ("open", "close")]
    assert asked == ["forget", "-1", "0", "forget", "-1", "1", "forget", "-1", "2"]


def test_many_at_once_only_in_some_modes(fakes: list[tuple[str, str]]) -> None:
    made = run(["a"], case(at_once=4))
    assert [what for _, what in fakes] == ["open", "forget", "-1", "4 at once", "close"]
    assert [(s.mode, s.rows) for s in made.samples] == [("warm", 4)]


def test_who_finds_other_rows_is_named(fakes: list[tuple[str, str]]) -> None:
    made = run(["a", "wrong", "b"], case(modes=(Mode.COLD,)))
    assert {(f.system, f.kind, f.text) for f in made.failures} == {
        ("wrong", "rows", "2 rows, where most systems found 1")
    }


def test_who_finds_other_values_is_named(fakes: list[tuple[str, str]]) -> None:
    made = run(["a", "other", "floor", "b"], case(modes=(Mode.COLD,)))
    assert {(f.system, f.kind, f.text) for f in made.failures} == {
        ("other", "rows", "other values in its rows than most systems found")
    }


@pytest.mark.parametrize(("name", "kind", "opened"), [("unable", "unsupported", 1), ("dying", "error", 2)])
def test_who_cannot_answer_drops_out(fakes: list[tuple[str, str]], name: str, kind: str, opened: int) -> None:
    made = run(["a", name], case())
    assert [(f.system, f.kind) for f in made.failures] == [(name, kind)]
    assert {s.system for s in made.samples} == {"a"}
    assert fakes.count((name, "open")) == opened


def test_who_does_not_start_is_left_out(fakes: list[tuple[str, str]]) -> None:
    made = run(["a", "absent"], case())
    assert [(f.system, f.case, f.text) for f in made.failures] == [("absent", "start", "it is not installed")]
    assert {s.system for s in made.samples} == {"a"}


def test_who_is_slow_is_asked_no_more(fakes: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch) -> None:
    quick = FakeChild.run

    def slow(self: FakeChild, query: Query) -> Measured:
        took = quick(self, query)
        return replace(took, seconds=16.0) if self.name == "slow" else took

    monkeypatch.setattr(FakeChild, "run", slow)
    made = run(["a", "slow"], case())
    # Of a call that was not to count, as there is no other.
    assert [(s.system, s.mode, s.round) for s in made.samples if s.system == "slow"] == [("slow", "cold", 0)]
    assert [(f.kind, f.text) for f in made.failures] == [("slow", "a call took 16 s: it was asked no more")]


def test_who_does_not_start_again_is_gone(fakes: list[tuple[str, str]]) -> None:
    made = run(["a", "lost"], case(), case(name="r"))
    assert [(f.system, f.case, f.kind) for f in made.failures] == [
        ("lost", "q", "error"),
        ("lost", "start", "error"),
    ]
    assert {(s.system, s.case) for s in made.samples} == {("a", "q"), ("a", "r")}


@pytest.mark.parametrize(
    ("spent", "budget", "out"),
    [
        pytest.param({"a": 1.0, "b": 1.1, "c": 1.9}, 3.0, [], id="alike"),
        pytest.param({"a": 1.0, "b": 1.1, "c": 9.0}, 3.0, ["c"], id="slow"),
        pytest.param({"a": 1.0, "b": 1.1, "c": 9.0}, 30.0, [], id="slow, but there is time"),
        pytest.param({"a": 0.1, "b": 1.1}, 1.0, [], id="of two, nobody is slow"),
    ],
)
def test_who_sits_out(spent: dict[str, float], budget: float, out: list[str]) -> None:
    assert [name for name in spent if EFFORT.sits_out(name, spent, budget)] == out


@pytest.mark.parametrize(
    ("rounds", "passed", "deadline", "over"),
    [
        pytest.param(1, 9.0, None, False, id="fewer than the least"),
        pytest.param(2, 9.0, None, True, id="the least"),
        pytest.param(2, 1.0, None, False, id="there is time"),
        pytest.param(1, 7.0, 1e9, False, id="not that late"),
        pytest.param(1, 9.0, 1e9, True, id="late"),
        pytest.param(0, 9.0, 1e9, False, id="late, but one round there is"),
    ],
)
def test_when_a_mode_is_over(rounds: int, passed: float, deadline: float | None, over: bool) -> None:
    effort = replace(EFFORT, least=2, deadline=deadline)
    assert effort.is_over(rounds, passed, 2.0) is over


def test_the_quick_are_asked_on_when_the_time_is_over(
    fakes: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each call takes what it says, by a clock of the test's own; one becomes slow."""
    now, takes = [0.0], {"a": 0.25, "slow": 5.0, "b": 0.5}
    quick = FakeChild.run

    def timed(self: FakeChild, query: Query) -> Measured:
        now[0] += takes[self.name] if self.name != "b" or query.where[0][2] != 2 else 4.0
        return quick(self, query)

    monkeypatch.setattr(FakeChild, "run", timed)
    monkeypatch.setattr(under_test.time, "monotonic", lambda: now[0])
    effort = replace(EFFORT, samples={Mode.COLD: 9}, budget=0.0, deadline=0.0, brisk=2.0, brisk_rounds=4)
    made = Runner(FakeNetwork(), [*takes], effort, lambda line: None)  # type: ignore[arg-type]
    made.open(())
    made.run([case(modes=(Mode.COLD,))])
    made.close()
    assert [(s.system, s.round) for s in made.samples] == [
        *[("a", 0), ("slow", 0), ("b", 0)],
        *[("b", 1), ("a", 1)],
        *[("a", 2)],
        *[("a", 3)],
    ]


@pytest.mark.parametrize(
    ("deadline", "budget"),
    [
        pytest.param(None, 100, id="none"),
        pytest.param(1060.0, 40, id="its part"),
        pytest.param(9000.0, 100, id="time enough"),
        pytest.param(900.0, 0, id="late"),
    ],
)
def test_the_budget_of_a_mode(deadline: float | None, budget: float) -> None:
    assert replace(EFFORT, deadline=deadline).budget_of([2.0, 1.0], 1000.0) == pytest.approx(budget)


def test_the_slow_leave_the_others_more_samples(
    fakes: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each call takes what it says, by a clock of the test's own."""
    now = [0.0]
    quick = FakeChild.run

    def timed(self: FakeChild, query: Query) -> Measured:
        now[0] += 5.0 if self.name == "slow" else 0.25
        return quick(self, query)

    monkeypatch.setattr(FakeChild, "run", timed)
    monkeypatch.setattr(under_test.time, "monotonic", lambda: now[0])
    effort = replace(EFFORT, samples={Mode.COLD: 100}, budget=16.0)
    made = Runner(FakeNetwork(), ["a", "slow", "b"], effort, lambda line: None)  # type: ignore[arg-type]
    made.open(())
    made.run([case(modes=(Mode.COLD,))])
    made.close()
    taken = [s.system for s in made.samples]
    assert {name: taken.count(name) for name in ("a", "slow", "b")} == {"a": 12, "slow": 1, "b": 12}


def test_the_quick_are_asked_more_in_their_turn(
    fakes: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each by its own time, and all the same queries; who found what is compared query by query."""
    now = [0.0]
    quick = FakeChild.run
    takes = {"a": 0.25, "slow": 1.5, "wrong": 0.5}

    def timed(self: FakeChild, query: Query) -> Measured:
        now[0] += takes[self.name]
        # One of the queries that the slow one is not asked.
        return replace(quick(self, query), rows=2 if (self.name, query.where[0][2]) == ("wrong", 2) else 1)

    monkeypatch.setattr(FakeChild, "run", timed)
    monkeypatch.setattr(under_test.time, "monotonic", lambda: now[0])
    effort = replace(EFFORT, samples={Mode.COLD: 6, Mode.WARM: 3}, turn=1.0, share=100.0)
    made = Runner(FakeNetwork(), [*takes], effort, lambda line: None)  # type: ignore[arg-type]
    made.open(())
    made.run([case(modes=(Mode.COLD,)), case(modes=(Mode.WARM,), overlapping=True)])
    made.close()
    asked = [(name, what) for name, what in fakes if what not in ("open", "close", "forget")]
    assert asked == [
        # Not counted: one sample a turn.
        *[("wrong", "0"), ("a", "0"), ("slow", "0")],
        *[("a", "1"), ("a", "2"), ("a", "3"), ("a", "4"), ("slow", "1"), ("wrong", "1"), ("wrong", "2")],
        # Two are left.
        *[("slow", "5"), ("wrong", "5"), ("wrong", "6"), ("a", "5"), ("a", "6")],
        # Whoever keeps data must meet the file anew before each.
        *[("a", "-1"), ("slow", "-1"), ("wrong", "-1")],
        *[("a", "0"), ("a", "-1"), ("a", "1"), ("a", "-1"), ("a", "2")],
        *[("slow", "0"), ("wrong", "0"), ("wrong", "-1"), ("wrong", "1")],
    ]
    assert [(s.system, s.round) for s in made.samples if s.mode == "cold"] == [
        *4 * [("a", 0)],
        *[("slow", 0), ("wrong", 0), ("wrong", 0)],
        *[("slow", 1), ("wrong", 1), ("wrong", 1), ("a", 1), ("a", 1)],
    ]
    assert [(f.system, f.text) for f in made.failures] == [
        ("wrong", "2 rows, where most systems found 1"),
    ]
