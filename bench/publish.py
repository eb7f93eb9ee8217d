"""`python -m bench.publish`: the last report of `python -m bench` goes into the pages that show it.

The README has a table of some places of a run, and docs/performance.md the targets. Their numbers come from the report alone, so
that none is typed by hand.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from bench.document import Document, read_document
from bench.suite import Mode
from bench.summary import SUBJECT, Line, Place
from bench.tables import aligned, table
from bench.targets import verdicts

__all__ = ["BEGIN", "END", "main", "readme_table", "replaced", "targets_block"]

BEGIN: Final = "<!-- measured: python -m bench.publish writes this from the last report -->"
END: Final = "<!-- end of what is measured -->"
_ROOT: Final = Path(__file__).resolve().parent.parent
_REPORT: Final = Path(__file__).with_name("report") / "report.json"
_MANY_REQUESTS: Final = 100
"""Above this number of requests the trips depend on the cores more than on the query."""

_HEAD: Final = (
    "query",
    "accel",
    "fastest other system, its time over accel's",
    "requests",
    "round trips",
    "bytes: accel, the other",
)
_AGAIN: Final = "the same again"
_COLD: Final = "the same, nothing cached"
_SHOWN: Final[Sequence[tuple[str, str, Mode]]] = (
    ("one row by a sorted key", "point", Mode.WARM),
    (_COLD, "point", Mode.COLD),
    (_AGAIN, "point", Mode.REPEATED),
    ("one row by an unsorted key, under an embedded bitmap", "point bitmap", Mode.WARM),
    ("1 % of the rows by the sort key", "range 1%", Mode.WARM),
    ("100 keys by `IN`", "in 100", Mode.WARM),
    ("256 lookups at once", "many points", Mode.WARM),
    ("one row of 2,000 files, nothing cached", "many files", Mode.COLD),
    ("one row of 1,000 larger files, nothing cached", "larger files", Mode.COLD),
    ("the same, another row, the files known", "larger files", Mode.WARM),
    ("some 30 rows by an unsorted key, 18 columns", "wide filter", Mode.WARM),
    (_AGAIN, "wide filter", Mode.REPEATED),
    ("two weak predicates, every page needed", "weak and weak", Mode.WARM),
    (_COLD, "weak and weak", Mode.COLD),
    ("50,000 rows of 100 small row groups", "small groups", Mode.WARM),
    (_COLD, "small groups", Mode.COLD),
    ("flights by two unsorted columns, nothing cached", "flights", Mode.COLD),
    (_AGAIN, "flights", Mode.REPEATED),
    ("one row and five of 2,000 columns, asked again", "wide table", Mode.REPEATED),
    ("all rows, all columns", "scan all", Mode.WARM),
    (_AGAIN, "scan all", Mode.REPEATED),
)


def readme_table(document: Document) -> str:
    """Return the table in Markdown.

    Raises
    ------
    ValueError
        The run lacks a place that the README shows, or another system there.
    """
    return table([_HEAD, *_rows(document)])


def _rows(document: Document) -> Iterator[Sequence[str]]:
    summary = document.summary
    places = {(place.case, place.mode): place for place, _ in summary}
    for name, case, mode in _SHOWN:
        place = places.get((case, mode.value))
        subject = None if place is None else summary.line(place, SUBJECT)
        peer = None if place is None else summary.rival(place)
        if place is None or subject is None or peer is None:
            raise ValueError(f"the report has no {case}, {mode.value}, of accel and another system")
        yield _row(name, place, subject, peer)


def _row(name: str, place: Place, subject: Line, peer: Line) -> Sequence[str]:
    ratio = peer.p50 / subject.p50
    shown = f"{ratio:.2f}" if ratio >= 1 else f"**{ratio:.2f}**"
    trips = "" if subject.requests > _MANY_REQUESTS else str(subject.trips)
    return (
        name,
        _time(subject.p50),
        f"{_NAMES[peer.system]}, {shown}",
        f"{subject.requests:,.0f}",
        trips,
        f"{_bytes(subject.bytes)}, {_bytes(peer.bytes)}",
    )


_NAMES: Final = {
    "arro3": "arro3",
    "datafusion": "DataFusion",
    "datafusion-pushdown": "DataFusion with pushdown",
    "duckdb": "DuckDB",
    "duckdb-cached": "DuckDB with its cache",
    "polars": "Polars",
    "pyarrow": "pyarrow",
    "spark": "Spark",
}


def _time(seconds: float) -> str:
    return f"{1000 * seconds:.3g} ms" if seconds < 1 else f"{seconds:.2f} s"


def _bytes(size: float) -> str:
    if size < 1e3:
        return f"{size:.0f}"
    return f"{size / 1e3:,.0f} KB" if size < 1e7 else f"{size / 1e6:,.0f} MB"


def targets_block(document: Document) -> str:
    """Return what became of the targets that the run measured, as a block of text in Markdown."""
    measured = [v for v in verdicts(document) if v.value is not None]
    rows = [("target", "measured", "met"), *((v.target, v.measured, v.word) for v in measured)]
    return f"<!-- not run: the printed result of a run -->\n```text\n{aligned(rows)}\n```"


def replaced(text: str, content: str) -> str:
    """Return a page with something else between the two markers.

    Raises
    ------
    ValueError
        The page lacks one of the markers.
    """
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError("the page lacks the markers of what is measured")
    return f"{before}{begin}\n\n{content}\n\n{end}{after}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Write both pages."""
    parser = argparse.ArgumentParser(prog="python -m bench.publish", description=__doc__.split("\n", 1)[0])
    parser.add_argument("--report", type=Path, default=_REPORT, help="the file of the report")
    parser.add_argument("--root", type=Path, default=_ROOT, help="the folder of the project")
    given = parser.parse_args(arguments)
    document = read_document(given.report)
    contents = {"README.md": readme_table(document), "docs/performance.md": targets_block(document)}
    for name, content in contents.items():
        page: Path = given.root / name
        page.write_text(replaced(page.read_text(), content))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
