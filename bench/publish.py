"""`python -m bench.publish`: the last report of `python -m bench` goes into the pages that show it.

The README has a picture and a table of a few queries, and docs/measurements.md the targets and a longer table.
Their numbers come from the report alone, so that none is typed by hand. Those of the README are committed
beside it (`bench/published.json`): `python -m bench.publish --committed` makes its table and picture of them
again, without a report.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from functools import reduce
from pathlib import Path
from typing import Final

from bench.bars import bars
from bench.document import Document, joined, read_document
from bench.published import (
    NAMES,
    Published,
    Question,
    published,
    read_published,
    write_published,
)
from bench.suite import OVER_TLS, Mode, over_tls
from bench.summary import SUBJECT, Line, Place
from bench.tables import aligned, table
from bench.targets import verdicts

__all__ = [
    "BEGIN",
    "END",
    "PICTURE",
    "main",
    "performance_block",
    "readme_table",
    "replaced",
    "run_table",
    "tls_table",
]

BEGIN: Final = "<!-- measured: python -m bench.publish writes this from the last report -->"
END: Final = "<!-- end of what is measured -->"
_ROOT: Final = Path(__file__).resolve().parent.parent
_REPORT: Final = Path(__file__).with_name("report") / "report.json"
PICTURE: Final = "docs/assets/queries.svg"
_NUMBERS: Final = "bench/published.json"
_MANY_REQUESTS: Final = 100
"""Above this number of requests the trips depend on the cores more than on the query."""

_README_HEAD: Final = (
    "query",
    "accel",
    "fastest other system",
    "its time over accel's",
    "requests",
    "bytes: accel, the other",
)
_HEAD: Final = (
    "query",
    "accel",
    "fastest other system, its time over accel's",
    "requests",
    "round trips",
    "bytes: accel, the other",
)
_TLS_HEAD: Final = (
    "case and mode",
    "accel, plain",
    "fastest other system, its time over accel's",
    "accel, over TLS",
    "fastest other system over TLS",
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


def readme_table(found: Published) -> str:
    """Return the table of the README in Markdown."""
    query, *others = _README_HEAD
    head = (f"{query}, over TLS" if found.tls else query, *others)
    return table([head, *map(_readme_row, found.questions)])


def _readme_row(question: Question) -> Sequence[str]:
    seconds = question.seconds["accel"]
    return (
        question.name,
        _time(seconds),
        f"{question.other}, {_time(question.other_seconds)}",
        _ratio(question.other_seconds / seconds),
        f"{question.requests:,}",
        f"{_bytes(question.bytes)}, {_bytes(question.other_bytes)}",
    )


def _ratio(ratio: float) -> str:
    """Return a ratio, in bold where accel loses."""
    return f"{ratio:.2f}" if ratio >= 1 else f"**{ratio:.2f}**"


def run_table(document: Document) -> str:
    """Return the longer table in Markdown.

    Raises
    ------
    ValueError
        The run lacks a place that is shown, or another system there.
    """
    return table([_HEAD, *_rows(document)])


def _rows(document: Document) -> Iterator[Sequence[str]]:
    for name, case, mode in _SHOWN:
        yield _row(name, *_compared(document, case, mode))


def _compared(document: Document, case: str, mode: Mode) -> tuple[Place, Line, Line]:
    """Return a place of the report, with the lines of accel and of the fastest other system there."""
    summary = document.summary
    place = next((place for place, _ in summary if (place.case, place.mode) == (case, mode.value)), None)
    subject = None if place is None else summary.line(place, SUBJECT)
    peer = None if place is None else summary.rival(place)
    if place is None or subject is None or peer is None:
        raise ValueError(f"the report has no {case}, {mode.value}, of accel and another system")
    return place, subject, peer


def tls_table(document: Document) -> str:
    """Return the table of the queries that were asked by TLS too, in Markdown.

    Raises
    ------
    ValueError
        The run lacks a place that is shown, or another system there.
    """
    return table([_TLS_HEAD, *_tls_rows(document)])


def _tls_rows(document: Document) -> Iterator[Sequence[str]]:
    for case, modes in OVER_TLS.items():
        for mode in modes:
            cells = [f"{case}, {mode.value}"]
            for name in (case, over_tls(case)):
                _, subject, peer = _compared(document, name, mode)
                cells += [_time(subject.p50), f"{NAMES[peer.system]}, {_ratio(peer.p50 / subject.p50)}"]
            yield cells


def _row(name: str, place: Place, subject: Line, peer: Line) -> Sequence[str]:
    trips = "" if subject.requests > _MANY_REQUESTS else str(subject.trips)
    return (
        name,
        _time(subject.p50),
        f"{NAMES[peer.system]}, {_ratio(peer.p50 / subject.p50)}",
        f"{subject.requests:,.0f}",
        trips,
        f"{_bytes(subject.bytes)}, {_bytes(peer.bytes)}",
    )


def _time(seconds: float) -> str:
    return f"{1000 * seconds:.3g} ms" if seconds < 1 else f"{seconds:.2f} s"


def _bytes(size: float) -> str:
    if size < 1e3:
        return f"{size:.0f}"
    return f"{size / 1e3:,.0f} KB" if size < 1e7 else f"{size / 1e6:,.0f} MB"


def performance_block(document: Document) -> str:
    """Return what docs/measurements.md shows of a run: what became of the targets that it measured, the longer
    table, and what TLS changes."""
    measured = [v for v in verdicts(document) if v.value is not None]
    rows = [("target", "measured", "met"), *((v.target, v.measured, v.word) for v in measured)]
    targets = f"<!-- not run: the printed result of a run -->\n```text\n{aligned(rows)}\n```"
    return f"{targets}\n\n{run_table(document)}\n\nPlain, as above, and over TLS:\n\n{tls_table(document)}"


def replaced(text: str, content: str, *, begin: str = BEGIN) -> str:
    """Return a page with something else between the two markers, of which each writer has a first one of its
    own.

    Raises
    ------
    ValueError
        The page lacks one of the markers.
    """
    before, found, rest = text.partition(begin)
    _, end, after = rest.partition(END)
    if not found or not end:
        raise ValueError("the page lacks the markers of what is measured")
    return f"{before}{found}\n\n{content}\n\n{end}{after}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the pages, the picture and the numbers."""
    parser = argparse.ArgumentParser(prog="python -m bench.publish", description=__doc__.split("\n", 1)[0])
    parser.add_argument(
        "--report",
        type=Path,
        action="append",
        help="the file of the report; of several, a later one's cases stand for those of the earlier",
    )
    parser.add_argument("--root", type=Path, default=_ROOT, help="the folder of the project")
    parser.add_argument(
        "--committed", action="store_true", help=f"the README alone, of the numbers in {_NUMBERS}: no report"
    )
    given = parser.parse_args(arguments)
    root: Path = given.root
    if given.committed:
        found = read_published(root / _NUMBERS)
    else:
        document = reduce(joined, map(read_document, given.report or [_REPORT]))
        found = published(document)
        write_published(found, root / _NUMBERS)
        _fill(root / "docs/measurements.md", performance_block(document))
    _fill(root / "README.md", readme_table(found))
    (root / PICTURE).write_text(bars(found))
    return 0


def _fill(page: Path, content: str) -> None:
    page.write_text(replaced(page.read_text(), content))


if __name__ == "__main__":
    raise SystemExit(main())
