"""What a report becomes on the pages that show it."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from bench.bars import bars
from bench.document import Document, joined, write_document
from bench.publish import (
    BEGIN,
    END,
    PICTURE,
    main,
    performance_block,
    readme_table,
    replaced,
    run_table,
    tls_table,
)
from bench.published import COMMITTED, SHOWN, published, read_published, write_published
from bench.suite import OVER_TLS, over_tls
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
SECURE = {over_tls(case): modes for case, modes in OVER_TLS.items()}


def whole_run() -> Document:
    samples = []
    every = [
        (case, mode) for cases in (CASES, OVER_TLS, SECURE) for case, modes in cases.items() for mode in modes
    ]
    for case, mode in dict.fromkeys(every):
        accel = {"requests": 400, "bytes": 40_400_000} if case == "many points" else {"requests": 5}
        samples += [
            sample("accel", 0.0412, case=case, mode=mode, **accel),
            sample("polars", 0.0206 if case == "small groups" else 1.2, case=case, mode=mode, bytes=5_400),
            sample("duckdb-cached", 0.9, case=case, mode=mode, bytes=0),
        ]
    return document(*samples)


def test_the_rows_of_the_longer_table() -> None:
    head, rule, *rows = run_table(whole_run()).splitlines()
    assert head.count("|") == rule.count("|") == 7
    assert len(rows) == sum(map(len, CASES.values()))
    assert rows[0] == "| one row by a sorted key | 41.2 ms | Polars, 29.13 | 5 | 1 | 1 KB, 5 KB |"
    # A cache of data counts where the question is repeated.
    assert rows[2] == "| the same again | 41.2 ms | DuckDB with its cache, 21.84 | 5 | 1 | 1 KB, 0 |"
    assert rows[6] == "| 256 lookups at once | 41.2 ms | Polars, 29.13 | 400 |  | 40 MB, 5 KB |"
    assert "| 50,000 rows of 100 small row groups | 41.2 ms | Polars, **0.50** | 5 | 1 | 1 KB, 5 KB |" in rows


def test_the_table_of_what_tls_changes() -> None:
    head, _, *rows = tls_table(whole_run()).splitlines()
    assert head.startswith("| case and mode | accel, plain |")
    assert len(rows) == sum(map(len, OVER_TLS.values()))
    assert rows[1] == "| point, warm | 41.2 ms | Polars, 29.13 | 41.2 ms | Polars, 29.13 |"


def some_systems() -> Document:
    """A run of all queries of the README, in which DuckDB has no answer to the last."""
    samples = []
    for number, (_, case, mode) in enumerate(SHOWN):
        times = {"accel": 0.04, "duckdb": 0.2, "polars": 0.08, "datafusion": 0.1, "datafusion-pushdown": 0.06}
        if number == len(SHOWN) - 1:
            del times["duckdb"]
            times["polars"] = 0.02
        samples += [sample(name, time, case=case, mode=mode.value) for name, time in times.items()]
    return document(*samples, scale="scale-1")


def test_the_table_of_the_readme() -> None:
    _, _, first, *_, last = readme_table(published(some_systems())).splitlines()
    # The faster of DataFusion's settings is a bar, by its own name it is in the table.
    assert first == (
        "| one row by a sorted key | 40 ms | DataFusion with pushdown, 60 ms | 1.50 | 5 | 1 KB, 1 KB |"
    )
    assert "| query, over TLS |" in readme_table(published(some_systems()))
    assert last == (
        "| two weak predicates, every page needed | 40 ms | Polars, 20 ms | **0.50** | 5 | 1 KB, 1 KB |"
    )


def test_the_bars() -> None:
    found = published(some_systems())
    assert found.questions[0].seconds == {"accel": 0.04, "DuckDB": 0.2, "Polars": 0.08, "DataFusion": 0.06}
    picture = bars(found)
    widths = [float(w) for w in re.findall(r'width="([\d.]+)" height="13"', picture)]
    # One scale a query; the whole length is the slowest system's.
    assert widths[:4] == [41.0, 205.0, 82.0, 61.5]
    assert len(widths) == 4 * len(SHOWN) - 1
    assert picture.count("no answer") == 1
    assert all(f">{name}</text>" in picture for name, _, _ in SHOWN)
    ElementTree.fromstring(picture)


def test_a_run_of_some_cases_is_refused() -> None:
    run = document(sample("accel", 0.1), sample("polars", 0.2))
    with pytest.raises(ValueError, match="no point, cold, of accel and another system"):
        run_table(run)
    with pytest.raises(ValueError, match="no point over TLS, warm, of accel and another system"):
        published(run)
    with pytest.raises(ValueError, match="no point, cold, of accel and another system"):
        tls_table(run)


def test_the_pages_are_written(tmp_path: Path) -> None:
    write_document(whole_run(), tmp_path / "report.json")
    for folder in ("docs/assets", "bench"):
        (tmp_path / folder).mkdir(parents=True)
    for name in ("README.md", "docs/measurements.md"):
        (tmp_path / name).write_text(f"before\n\n{BEGIN}\nold\n\n{END}\n\nafter\n")
    assert main(["--report", str(tmp_path / "report.json"), "--root", str(tmp_path)]) == 0
    found = published(whole_run())
    table = readme_table(found)
    assert (tmp_path / "README.md").read_text() == f"before\n\n{BEGIN}\n\n{table}\n\n{END}\n\nafter\n"
    block = performance_block(whole_run())
    assert (
        tmp_path / "docs/measurements.md"
    ).read_text() == f"before\n\n{BEGIN}\n\n{block}\n\n{END}\n\nafter\n"
    assert "```text\ntarget " in block
    assert run_table(whole_run()) in block
    assert tls_table(whole_run()) in block
    assert (tmp_path / PICTURE).read_text() == bars(found)
    assert read_published(tmp_path / "bench/published.json") == found


def test_cases_of_a_later_report_stand_for_those_of_the_earlier(tmp_path: Path) -> None:
    later = document(
        sample("accel", 0.5, case="point", mode="cold"), sample("polars", 1.0, case="point", mode="cold")
    )
    run = joined(whole_run(), later)
    assert [one for one in run.samples if one.case == "point"] == later.samples
    others = [one for one in run.samples if one.case != "point"]
    assert others == [one for one in whole_run().samples if one.case != "point"]
    assert run.summary != whole_run().summary
    with pytest.raises(ValueError, match="differ in their networks"):
        joined(run, replace(later, network={"first_byte": 0.1, "bandwidth": 9e7}))
    # `main` reads them in this order.
    secure = tuple(over_tls(case) for case in OVER_TLS)
    again = document(*(one for one in whole_run().samples if one.case in secure))
    for name, one in (("first", whole_run()), ("second", again)):
        write_document(one, tmp_path / f"{name}.json")
    for folder in ("docs/assets", "bench"):
        (tmp_path / folder).mkdir(parents=True)
    for name in ("README.md", "docs/measurements.md"):
        (tmp_path / name).write_text(f"{BEGIN}\n{END}")
    reports = [f"--report={tmp_path / name}.json" for name in ("first", "second")]
    assert main([*reports, "--root", str(tmp_path)]) == 0
    assert read_published(tmp_path / "bench/published.json") == published(joined(whole_run(), again))


def test_the_readme_is_made_of_committed_numbers_alone(tmp_path: Path) -> None:
    for folder in ("docs/assets", "bench"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "README.md").write_text(f"{BEGIN}\n{END}")
    write_published(published(some_systems()), tmp_path / "bench/published.json")
    assert main(["--committed", "--root", str(tmp_path)]) == 0
    assert "DataFusion with pushdown, 60 ms" in (tmp_path / "README.md").read_text()
    assert (tmp_path / PICTURE).read_text() == bars(published(some_systems()))


def test_the_project_shows_its_committed_numbers() -> None:
    found = read_published(COMMITTED)
    assert [question.name for question in found.questions] == [name for name, _, _ in SHOWN]
    assert readme_table(found) in (ROOT / "README.md").read_text()
    assert (ROOT / PICTURE).read_text() == bars(found)


@pytest.mark.parametrize("name", ["README.md", "docs/measurements.md"])
def test_the_pages_of_the_project_have_the_markers(name: str) -> None:
    text = (ROOT / name).read_text()
    assert text.count(BEGIN) == 1
    assert text.index(END) > text.index(BEGIN)
    assert "new" in replaced(text, "new")


def test_a_page_without_markers_is_refused() -> None:
    with pytest.raises(ValueError, match="markers"):
        replaced("text", "new")
