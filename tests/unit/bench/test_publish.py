"""What a report becomes on the pages that show it."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.document import Document, write_document
from bench.publish import BEGIN, END, main, readme_table, replaced, targets_block
from tests.unit.bench.samples import document, sample

ROOT = Path(__file__).resolve().parents[3]
CASES = {
    "point": ("warm", "cold", "repeated"),
    "point bitmap": ("warm",),
    "range 1%": ("warm",),
    "in 100": ("warm",),
    "many points": ("warm",),
    "many files": ("cold",),
    "larger files": ("cold", "warm"),
    "wide filter": ("warm", "repeated"),
    "weak and weak": ("warm", "cold"),
    "small groups": ("warm", "cold"),
    "flights": ("cold", "repeated"),
    "wide table": ("repeated",),
    "scan all": ("warm", "repeated"),
}


def whole_run() -> Document:
    samples = []
    for case, modes in CASES.items():
        for mode in modes:
            accel = {"requests": 400, "bytes": 40_400_000} if case == "many points" else {"requests": 5}
            samples += [
                sample("accel", 0.0412, case=case, mode=mode, **accel),
                sample(
                    "polars", 0.0206 if case == "small groups" else 1.2, case=case, mode=mode, bytes=5_400
                ),
                sample("duckdb-cached", 0.9, case=case, mode=mode, bytes=0),
            ]
    return document(*samples)


def test_the_rows_of_the_table() -> None:
    head, rule, *rows = readme_table(whole_run()).splitlines()
    assert head.count("|") == rule.count("|") == 7
    assert len(rows) == sum(map(len, CASES.values()))
    assert rows[0] == "| one row by a sorted key | 41.2 ms | Polars, 29.13 | 5 | 1 | 1 KB, 5 KB |"
    # A cache of data counts where the question is repeated.
    assert rows[2] == "| the same again | 41.2 ms | DuckDB with its cache, 21.84 | 5 | 1 | 1 KB, 0 |"
    assert rows[6] == "| 256 lookups at once | 41.2 ms | Polars, 29.13 | 400 |  | 40 MB, 5 KB |"
    assert "| 50,000 rows of 100 small row groups | 41.2 ms | Polars, **0.50** | 5 | 1 | 1 KB, 5 KB |" in rows


def test_a_run_of_some_cases_is_refused() -> None:
    run = document(sample("accel", 0.1), sample("polars", 0.2))
    with pytest.raises(ValueError, match="no point, cold, of accel and another system"):
        readme_table(run)


def test_the_pages_are_written(tmp_path: Path) -> None:
    write_document(whole_run(), tmp_path / "report.json")
    (tmp_path / "docs").mkdir()
    for name in ("README.md", "docs/performance.md"):
        (tmp_path / name).write_text(f"before\n\n{BEGIN}\nold\n\n{END}\n\nafter\n")
    assert main(["--report", str(tmp_path / "report.json"), "--root", str(tmp_path)]) == 0
    table = readme_table(whole_run())
    assert (tmp_path / "README.md").read_text() == f"before\n\n{BEGIN}\n\n{table}\n\n{END}\n\nafter\n"
    block = targets_block(whole_run())
    assert (
        tmp_path / "docs/performance.md"
    ).read_text() == f"before\n\n{BEGIN}\n\n{block}\n\n{END}\n\nafter\n"
    assert "```text\ntarget " in block


@pytest.mark.parametrize("name", ["README.md", "docs/performance.md"])
def test_the_pages_of_the_project_have_the_markers(name: str) -> None:
    text = (ROOT / name).read_text()
    assert text.count(BEGIN) == text.count(END) == 1
    assert "new" in replaced(text, "new")


def test_a_page_without_markers_is_refused() -> None:
    with pytest.raises(ValueError, match="markers"):
        replaced("text", "new")
