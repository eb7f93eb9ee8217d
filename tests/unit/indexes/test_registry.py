"""Kinds by name: ours, registered ones, those of packages; and answers that are none."""

from __future__ import annotations

import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from accel.errors import IndexFormatError
from accel.indexes import Distinct, Evidence, IndexKind, Level, registry
from accel.indexes.registry import ask
from tests.unit.indexes.data import ask_for, shown

OURS = ["bitmap", "bloom", "distinct", "idx1", "ngram", "sketch", "zonemap"]


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "kinds_by_name", {})
    monkeypatch.setattr(registry, "packages_seen", False)


class Mine(IndexKind):
    name = "mine"

    def build(self, chunks: Any, *, level: Level) -> bytes:
        return b"x"

    def parse(self, data: bytes, *, level: Level, units: int) -> Any:
        return None


def test_ours() -> None:
    assert sorted(registry.kinds()) == OURS
    assert registry.find_kind("distinct") == Distinct()
    assert registry.find_kind("distinct", 2) is None
    assert registry.find_kind("nobody's") is None
    kind = Distinct(max_values=3)
    assert registry.make_kind(kind) is kind
    with pytest.raises(ValueError, match="no index kind 'nope'; there are bitmap, bloom"):
        registry.make_kind("nope")


def test_registered_kinds_are_found_by_name_and_version() -> None:
    kind = Mine()
    assert registry.register_index(kind) is kind
    assert registry.find_kind("mine", 1) is kind
    assert registry.find_kind("mine", 2) is None
    assert (kind.params, kind.levels) == ({}, frozenset({Level.PAGE}))
    assert sorted(registry.kinds()) == sorted([*OURS, "mine"])


@pytest.mark.parametrize(
    ("kind", "error", "message"),
    [
        (Mine, TypeError, r"register an instance: register_index\(Mine\(\)\)"),
        (object(), TypeError, "it does not derive from IndexKind"),
        (type("A", (Mine,), {"name": "distinct"})(), ValueError, "accel's own"),
        (type("A", (Mine,), {"name": "no name"})(), ValueError, "is no name"),
        (type("A", (Mine,), {"name": ""})(), ValueError, "is no name"),
        (type("A", (Mine,), {"name": None})(), ValueError, "is no name"),
    ],
    ids=["class", "nothing", "ours", "space", "empty", "none"],
)
def test_what_is_no_kind_is_refused(kind: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        registry.register_index(kind)


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An installed package with one good kind and two broken ones."""
    (tmp_path / "theirs.py").write_text(
        "from accel.indexes import IndexKind\n"
        "class Theirs(IndexKind):\n"
        "    name = 'theirs'\n"
        "    def build(self, chunks, *, level): return b''\n"
        "    def parse(self, data, *, level, units): return None\n"
    )
    info = tmp_path / "theirs-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[accel.indexes]\ntheirs = theirs:Theirs\nabsent = theirs:Absent\nbroken = no_such_module:Kind\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "theirs", raising=False)


@pytest.mark.usefixtures("package")
def test_kinds_of_packages_are_loaded_when_an_unknown_name_is_met() -> None:
    assert registry.find_kind("bitmap") is not None
    assert "theirs" not in sys.modules
    with pytest.warns(UserWarning) as warned:
        kind = registry.find_kind("theirs", 1)
    assert kind is not None
    assert kind.name == "theirs"
    assert sorted(str(w.message).split(" (")[0] for w in warned) == [
        "the index kind 'absent'",
        "the index kind 'broken'",
    ]
    assert registry.find_kind("theirs") is kind


def test_who_asks_while_another_thread_loads_them_is_told_of_them_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun, answered = threading.Event(), threading.Event()

    class Point:
        name, value = "slow", "slow:Kind"

        def load(self) -> IndexKind:
            assert registry.find_kind("mine") is None  # asked for by the package itself
            if not begun.is_set():
                begun.set()
                assert answered.wait(10)
            return Mine()

    monkeypatch.setattr("importlib.metadata.entry_points", lambda *, group: [Point()])
    with ThreadPoolExecutor(1) as threads:
        first = threads.submit(registry.find_kind, "mine")
        assert begun.wait(10)
        second = registry.find_kind("mine")
        answered.set()
        assert isinstance(second, Mine)
        assert first.result(10) is second


ONE, TWO = np.ones(1, bool), np.ones(2, bool)
BAD = {
    "raises": lambda: 1 / 0,
    "no evidence": lambda: True,
    "other units": lambda: Evidence(TWO, TWO, TWO),
    "no truth values": lambda: Evidence(np.ones(1), ONE, ONE),
    "a list": lambda: Evidence([True], ONE, ONE),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("name", BAD)
def test_answers_that_are_none_are_errors_of_the_index(name: str) -> None:
    parsed = SimpleNamespace(nbytes=0, prune=lambda question: BAD[name]())
    with pytest.raises(IndexFormatError):
        ask(parsed, ask_for("x = 1", pa.int64()), units=1, signature="int64:1/1")


def test_a_column_that_means_something_else_now_is_not_asked_for() -> None:
    parsed = SimpleNamespace(nbytes=0, prune=lambda question: Evidence(~ONE, ONE, ~ONE))
    question = ask_for("x = 1", pa.decimal128(9, 2))
    assert ask(parsed, question, units=1, signature="int128:1/10") is None
    assert shown(ask(parsed, question, units=1, signature="int128:1/100")) == ["F"]
    null = ask_for("x IS NULL", pa.decimal128(9, 2))
    assert shown(ask(parsed, null, units=1, signature="int128:1/10")) == ["F"]


def test_a_list_with_null_answers_null_where_it_does_not_answer_true() -> None:
    parsed = SimpleNamespace(nbytes=0, prune=lambda question: Evidence(ONE, ONE, ~ONE))
    question = ask_for("x IN (1, NULL)", pa.int64())
    assert (question.values, question.with_null) == ((1,), True)
    assert shown(ask(parsed, question, units=1, signature="int64:1/1")) == ["TN"]
