"""The report: as data, as text, as pictures; and what it says of the targets."""

from dataclasses import replace
from pathlib import Path

import pytest

from bench.document import CaseNote, read_document, write_document
from bench.plots import draw_all, file_name
from bench.sample import Failure
from bench.tables import aligned, markdown, overview
from bench.targets import Bound, Verdict, verdicts
from tests.unit.bench.samples import document, sample

RUN = document(
    sample("accel", 0.1, bytes=105, cpu=0.004),
    sample("floor", 0.08, bytes=100),
    sample("polars", 0.3, bytes=900, cpu=0.02),
    sample("accel", 0.2, mode="cold", trips=2, requests=7),
    sample("polars", 0.3, mode="cold", trips=2, requests=2),
    failures=(
        Failure(case="point", mode="cold", at=0, system="arro3", kind="unsupported", text="no filter"),
    ),
    micro={"footer": {"footer parse, 2,000 columns x 20 row groups, pyarrow": 1.5}},
)


def test_the_document_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    write_document(RUN, path)
    assert read_document(path) == RUN


def test_another_format_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.write_text('{"format": 0}')
    with pytest.raises(ValueError, match="format 0"):
        read_document(path)


def test_the_overview() -> None:
    head, warm, cold = overview(RUN)
    assert dict(zip(head, warm, strict=True)) == {
        "query": "point",
        "mode": "warm",
        "accel ms": "100.0",
        "/ floor": "1.25",
        "fastest peer": "polars",
        "x accel": "3.00",
        "requests": "5",
        "trips": "1",
        "KB": "0.1",
        "/ min": "1.05",
        "peer KB": "0.9",
    }
    assert cold[:4] == ("point", "cold", "200.0", "-")


def test_aligned_text() -> None:
    assert aligned([("query", "KB"), ("a", "1,000.0"), ("bcdefgh", "2")]) == (
        "query         KB\na        1,000.0\nbcdefgh        2"
    )


def test_the_markdown_has_every_system_and_what_went_wrong() -> None:
    text = markdown(RUN, verdicts(RUN))
    assert "### point, warm\n\nWhat point is. Rows: 1.\n" in text
    assert "| **accel** | 1 | 100.0 | 1.00 | 100.0 | 100.0 | 5 | 1 | 0.1 | 1.05 | 4.0 | 0 | 2.00 |" in text
    assert "- arro3, point: unsupported: no filter" in text
    assert "Absolute times are those of this machine" in text


def test_the_markdown_says_how_samples_were_taken() -> None:
    effort = {"budget": 10.0, "least": 2, "patience": 15.0, "limit": 120.0, "share": 2.0, "minutes": 35.0}
    effort["turn"] = 0.4
    run = replace(RUN, effort=effort)
    text = markdown(run, verdicts(run))
    assert (
        "in rotating order, and whoever has answered within 0.4 s once more; 2 rounds at least, and none began after "
        "10 s of a mode of a case, or when its part of 35 minutes was over" in text
    )
    assert "in all: accel 2, floor 1, polars 2." in text


@pytest.mark.parametrize(
    ("store", "said"),
    [
        (
            "memory",
            "Store: `memory`: MinIO answered each object once, then its bytes came from the memory of the proxy.",
        ),
        ("minio", "Store: `minio`: MinIO answered every request, through the proxy."),
    ],
)
def test_the_store_is_told_and_read_back(tmp_path: Path, store: str, said: str) -> None:
    run = replace(RUN, store=store)
    assert said in markdown(run, verdicts(run)).splitlines()
    write_document(run, tmp_path / "report.json")
    assert read_document(tmp_path / "report.json").store == store


def test_a_report_that_does_not_say_was_of_minio() -> None:
    assert (RUN.store, RUN.setting, replace(RUN, store="memory").setting) == (
        "minio",
        "quick",
        "quick, memory",
    )


def test_a_swept_case_says_where_it_is() -> None:
    run = document(
        sample("accel", 0.1, case="by files", at=10), cases={"by files": CaseNote("by files", "", "files")}
    )
    assert overview(run)[1][0] == "by files 10"


def test_targets() -> None:
    found = {verdict.target: (verdict.value, verdict.word) for verdict in verdicts(RUN)}
    assert found["warm point lookup: p50 over the floor's"] == (pytest.approx(1.25), "no")
    assert found["warm point lookup: fastest peer without a data cache"] == (pytest.approx(3), "yes")
    assert found["warm point lookup: bytes over the needed"] == (pytest.approx(1.05), "yes")
    assert found["cold point lookup: round trips"] == (2, "yes")
    assert found["CPU per warm lookup of five columns, ms"] == (4, "yes")
    assert found["CPU per warm lookup: best peer's over accel's"] == (5, "yes")
    assert found["footer of 2,000 columns x 20 groups: time over pyarrow's"] == (1.5, "no")
    assert found["1 % range of a sorted column"] == (None, "-")


@pytest.mark.parametrize(
    ("bound", "value", "met"),
    [
        (Bound.AT_MOST, 1.0, True),
        (Bound.AT_MOST, 1.1, False),
        (Bound.AT_LEAST, 1.0, True),
        (Bound.AT_LEAST, 0.9, False),
        (Bound.EQUAL, 1.0, True),
        (Bound.EQUAL, 0.0, False),
        (Bound.EQUAL, None, None),
    ],
)
def test_verdicts(bound: Bound, value: float | None, met: bool | None) -> None:
    assert Verdict("t", bound, 1.0, value).met is met


def test_what_a_verdict_says() -> None:
    assert Verdict("t", Bound.AT_LEAST, 2.5, 3.21, "polars").measured == "3.21 (>= 2.5) vs polars"
    assert Verdict("t", Bound.AT_LEAST, 2.5, None, "polars").measured == "not measured"


def test_pictures(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    written = draw_all(RUN, tmp_path)
    assert [path.name for path in written] == ["latency-point.svg", "bytes.svg"]
    assert {path.suffix for path in tmp_path.iterdir()} == {".svg", ".png"}


@pytest.mark.parametrize(("case", "name"), [("range 1%", "range-1"), ("IN 100", "in-100")])
def test_file_names(case: str, name: str) -> None:
    assert file_name(case) == name
