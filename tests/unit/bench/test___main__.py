"""The command: what a run is compared with, and what becomes of the baseline."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from bench import __main__ as under_test
from bench import gate
from bench.document import Document
from bench.sample import Failure
from tests.unit.bench.samples import document, sample

WRONG = Failure(
    case="point", mode="warm", at=0, system="accel", kind="rows", text="0 rows, where most found 1"
)
RUN = document(
    *(sample(system, 0.1, case=case) for case in ("point", "miss") for system in ("accel", "floor", "polars"))
)
PART = document(*(sample(system, 0.1, requests=4) for system in ("accel", "floor", "polars")))


@pytest.fixture
def baseline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "baseline.json"
    gate.update_baseline(RUN, path)
    monkeypatch.setattr(under_test, "read_baseline", lambda setting: gate.read_baseline(setting, path))
    monkeypatch.setattr(
        under_test,
        "update_baseline",
        lambda document, *, cases: gate.update_baseline(document, path, cases=cases),
    )
    return path


def judge(run: Document, *arguments: str) -> int:
    return under_test.judge(run, under_test.parse_arguments(arguments))


@pytest.mark.parametrize("run", [replace(PART, only={"cases": ["point"]}), PART], ids=["kept", "given"])
def test_a_run_of_some_cases_becomes_the_baseline_of_these(baseline: Path, run: Document) -> None:
    arguments = ["--again"] if run.only else ["--cases", "point"]
    assert judge(run, *arguments, "--update-baseline") == 0
    assert gate.read_baseline("quick", baseline) == gate.figures(RUN) | gate.figures(PART)


def test_a_run_of_some_cases_is_compared_with_these(
    baseline: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert judge(replace(PART, only={"cases": ["point"]}), "--gate") == 0
    assert judge(PART, "--gate") == 1
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition(":")[2][:12] for line in lines] == [" miss, warm:"] * 7


@pytest.mark.parametrize(("seconds", "status"), [(0.105, 0), (0.106, 1)])
def test_the_gate_is_shut_where_accel_takes_a_twentieth_longer_than_its_peers_let_it(
    baseline: Path, capsys: pytest.CaptureFixture[str], seconds: float, status: int
) -> None:
    slower = [replace(s, seconds=seconds) if s.system == "accel" else s for s in RUN.samples]
    assert judge(document(*slower), "--gate") == status
    told = capsys.readouterr()
    assert sorted(told.err.splitlines()) == status * [
        "WORSE: miss, warm: polars's time over accel's is 0.943, was 1",
        "WORSE: point, warm: polars's time over accel's is 0.943, was 1",
    ]
    assert told.out == (
        "the gate: 2 figures are worse than the baseline\n" if status else "the gate: passed\n"
    )


def test_a_run_of_all_cases_replaces_the_baseline(baseline: Path) -> None:
    assert judge(PART, "--update-baseline") == 0
    assert gate.read_baseline("quick", baseline) == gate.figures(PART)


def test_a_run_with_wrong_answers_is_no_baseline(baseline: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = baseline.read_text()
    assert judge(replace(RUN, failures=[WRONG], samples=PART.samples), "--update-baseline") == 1
    assert baseline.read_text() == before
    told = capsys.readouterr()
    assert told.err == (
        "WRONG: accel, point, warm: 0 rows, where most found 1\n"
        "the answers differ: the run is not made the baseline\n"
    )
    assert told.out == ""


@pytest.mark.parametrize("argument", ["--gate", "--update-baseline"])
def test_a_run_of_some_systems_is_neither_compared_nor_a_baseline(
    baseline: Path, argument: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = json.loads(baseline.read_text())
    with pytest.raises(SystemExit, match="2"):
        under_test.parse_arguments(["--systems", "accel,floor", argument])
    assert "ratios to all systems" in capsys.readouterr().err
    assert judge(replace(RUN, only={"systems": ["accel", "floor"]}), "--again", argument) == 1
    assert "ratios to all systems" in capsys.readouterr().err
    assert json.loads(baseline.read_text()) == before
