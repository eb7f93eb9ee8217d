"""The numbers of a report that the README shows. They are committed, and its table and picture are made of
them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from bench.document import Document
from bench.suite import Mode, over_tls
from bench.summary import SUBJECT, Line, Place, Summary

__all__ = [
    "COMMITTED",
    "NAMES",
    "SHOWN",
    "Published",
    "Question",
    "published",
    "read_published",
    "write_published",
]

COMMITTED: Final = Path(__file__).with_name("published.json")
SHOWN: Final[Sequence[tuple[str, str, Mode]]] = (
    ("one row by a sorted key", over_tls("point"), Mode.WARM),
    ("one row by a sorted key, nothing cached", over_tls("point"), Mode.COLD),
    ("one row by an unsorted key, under an embedded bitmap", over_tls("point bitmap"), Mode.WARM),
    ("1 % of the rows, by the sort key", over_tls("range 1%"), Mode.WARM),
    ("one row of 2,000 files, nothing cached", over_tls("many files"), Mode.COLD),
    ("two weak predicates, every page needed", over_tls("weak and weak"), Mode.WARM),
)
"""The queries: what the README calls them, and the case and mode of the benchmark. All by TLS, as people have
it."""
NAMES: Final[Mapping[str, str]] = {
    "accel": "accel",
    "arro3": "arro3",
    "datafusion": "DataFusion",
    "datafusion-pushdown": "DataFusion with pushdown",
    "duckdb": "DuckDB",
    "duckdb-cached": "DuckDB with its cache",
    "polars": "Polars",
    "pyarrow": "pyarrow",
    "spark": "Spark",
}
"""What readers call the systems."""
_DRAWN: Final[Mapping[str, Sequence[str]]] = {
    "accel": ("accel",),
    "DuckDB": ("duckdb",),
    "Polars": ("polars",),
    "DataFusion": ("datafusion", "datafusion-pushdown"),
}
"""The bars of the picture: the faster of several settings of one system."""
_DIGITS: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A query, and what systems took to answer it. Seconds are medians."""

    name: str
    seconds: Mapping[str, float]
    """By the name of a bar; a system that could not answer is missing."""
    other: str
    """The fastest system but accel, whether it has a bar or not."""
    other_seconds: float
    other_bytes: int
    requests: int
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """What is committed of a report."""

    run: str
    """The run, in words."""
    questions: Sequence[Question]
    tls: bool = False
    """Whether the store was reached by TLS."""


def published(document: Document) -> Published:
    """Take from a report what the README shows.

    Raises
    ------
    ValueError
        The report lacks a query, or another system there.
    """
    machine, network = document.machine, document.network
    run = (
        f"TPC-H lineitem and other files at scale {document.scale.removeprefix('scale-')}; "
        f"{1000 * network['first_byte']:g} ms to the first byte and {network['bandwidth'] / 1e6:g} MB/s for each response, by TLS; "
        f"{machine['cores']} cores, load {machine['load']:.0f}"
    )
    places = {(place.case, place.mode): place for place, _ in document.summary}
    return Published(
        tls=True,
        run=run,
        questions=[
            _question(name, places.get((case, mode.value)), document.summary, f"{case}, {mode.value}")
            for name, case, mode in SHOWN
        ],
    )


def _question(name: str, place: Place | None, summary: Summary, what: str) -> Question:
    lines = {} if place is None else summary.places[place]
    subject = lines.get(SUBJECT)
    other = None if place is None else summary.rival(place)
    if subject is None or other is None:
        raise ValueError(f"the report has no {what}, of accel and another system")
    return Question(
        name=name,
        seconds=_bars(lines),
        other=NAMES[other.system],
        other_seconds=_rounded(other.p50),
        other_bytes=round(other.bytes),
        requests=round(subject.requests),
        bytes=round(subject.bytes),
    )


def _bars(lines: Mapping[str, Line]) -> dict[str, float]:
    found = {
        name: [lines[system].p50 for system in systems if system in lines] for name, systems in _DRAWN.items()
    }
    return {name: _rounded(min(times)) for name, times in found.items() if times}


def _rounded(seconds: float) -> float:
    return float(f"{seconds:.{_DIGITS}g}")


def write_published(found: Published, path: Path = COMMITTED) -> None:
    """Write the numbers, to be committed."""
    path.write_text(json.dumps(asdict(found), indent=1) + "\n")


def read_published(path: Path = COMMITTED) -> Published:
    """Read what `write_published` wrote."""
    fields = json.loads(path.read_text())
    questions = [Question(**question) for question in fields.pop("questions")]
    return Published(**fields, questions=questions)
