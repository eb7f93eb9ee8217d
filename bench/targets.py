"""What accel is to reach, as ratios within one run, and whether a run shows it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from bench.document import Document
from bench.suite import over_tls
from bench.summary import DATA_CACHED, FLOOR, SUBJECT, Line, Place, Summary

__all__ = ["Bound", "Verdict", "verdicts"]

_SCANNERS = ("pyarrow", "polars", "duckdb")


class Bound(StrEnum):
    """Which side of the limit is good."""

    AT_MOST = "<="
    AT_LEAST = ">="
    EQUAL = "="


@dataclass(frozen=True, slots=True)
class Verdict:
    """One target and what was measured; None where this run has no number for it."""

    target: str
    bound: Bound
    limit: float
    value: float | None
    against: str = ""
    """The peer that the value is a ratio to."""

    @property
    def met(self) -> bool | None:
        """Whether it was reached; None where that is not known."""
        if self.value is None:
            return None
        match self.bound:
            case Bound.AT_MOST:
                return self.value <= self.limit
            case Bound.AT_LEAST:
                return self.value >= self.limit
            case Bound.EQUAL:
                return self.value == self.limit

    @property
    def measured(self) -> str:
        """The value as text, with what it was compared to."""
        if self.value is None:
            return "not measured"
        text = f"{self.value:.3g} ({self.bound} {self.limit:g})"
        return f"{text} vs {self.against}" if self.against else text

    @property
    def word(self) -> str:
        """yes, no or -."""
        return {True: "yes", False: "no", None: "-"}[self.met]


def verdicts(document: Document) -> list[Verdict]:
    """All targets, in their order."""
    places = _main_places(document)
    summary = document.summary
    return [
        *_lookups(summary, places),
        *_over_tls(summary, places),
        *_broader(summary, places),
        *_scans(summary, places, document.micro),
        *_micro(document.micro),
    ]


Places = Mapping[tuple[str, str], Place]


def _main_places(document: Document) -> Places:
    """The place of each case and mode; of a swept case the one that was measured last."""
    return {(place.case, place.mode): place for place, _ in document.summary}


def _lookups(summary: Summary, places: Places) -> Iterator[Verdict]:
    warm, cold, again = (places.get(("point", mode)) for mode in ("warm", "cold", "repeated"))
    subject = _subject(summary, warm)
    over = summary.over_floor(warm, subject) if warm and subject else None
    yield Verdict("warm point lookup: p50 over the floor's", Bound.AT_MOST, 1.15, over, FLOOR)
    yield _faster("warm point lookup: fastest peer without a data cache", summary, warm, 2.5, cached=False)
    minimum = summary.over_minimum(warm, subject) if warm and subject else None
    yield Verdict("warm point lookup: bytes over the needed", Bound.AT_MOST, 1.05, minimum, FLOOR)
    first = _subject(summary, cold)
    trips = None if first is None else float(first.trips)
    yield Verdict("cold point lookup: round trips", Bound.AT_MOST, 2, trips)
    yield _faster("cold point lookup: fastest peer", summary, cold, 3)
    same = _subject(summary, again)
    yield Verdict("repeated lookup: requests", Bound.EQUAL, 0, None if same is None else same.requests)
    cached = [] if again is None else [p for p in summary.peers(again) if p.system in DATA_CACHED]
    yield _against("repeated lookup: DuckDB with its cache", same, min(cached, key=_p50, default=None), 3)
    cpu = None if subject is None else 1000 * subject.cpu
    yield Verdict("CPU per warm lookup of five columns, ms", Bound.AT_MOST, 5, cpu)
    least = min([] if warm is None else summary.peers(warm), key=lambda line: line.cpu, default=None)
    ratio = None if subject is None or least is None else least.cpu / subject.cpu
    yield Verdict("CPU per warm lookup: best peer's over accel's", Bound.AT_LEAST, 5, ratio, _name(least))


def _over_tls(summary: Summary, places: Places) -> Iterator[Verdict]:
    warm = places.get((over_tls("point"), "warm"))
    subject = _subject(summary, warm)
    over = summary.over_floor(warm, subject) if warm and subject else None
    yield Verdict("warm point lookup over TLS: p50 over the floor's", Bound.AT_MOST, 1.2, over, FLOOR)
    title = "warm point lookup over TLS: fastest peer without a data cache"
    yield _faster(title, summary, warm, 2.5, cached=False)


def _broader(summary: Summary, places: Places) -> Iterator[Verdict]:
    many = places.get(("many points", "warm"))
    yield _faster("many lookups at once: throughput over the best peer's", summary, many, 3, cached=False)
    wide = places.get(("wide filter", "warm"))
    yield _faster("selective filter, every column: fastest peer", summary, wide, 2, cached=False)
    subject = _subject(summary, wide)
    peer = None if wide is None else summary.fastest(wide, cached=False)
    share = None if subject is None or peer is None or not peer.bytes else subject.bytes / peer.bytes
    title = "selective filter, every column: bytes over the fastest peer's"
    yield Verdict(title, Bound.AT_MOST, 0.2, share, _name(peer))
    yield _faster(
        "1 % range of a sorted column", summary, places.get(("range 1%", "warm")), 1.5, cached=False
    )
    yield _faster("many small files, selective, cold", summary, places.get(("many files", "cold")), 2)


def _scans(summary: Summary, places: Places, micro: Mapping[str, Mapping[str, float]]) -> Iterator[Verdict]:
    cold = places.get(("scan all", "cold"))
    subject = _subject(summary, cold)
    lines = [] if cold is None else [p for p in summary.peers(cold) if p.system in _SCANNERS]
    fastest = min(lines, key=_p50, default=None)
    yield _against("full scan over the network: throughput", subject, fastest, 1)
    pyarrow = next((line for line in lines if line.system == "pyarrow"), None)
    cpu = None if subject is None or pyarrow is None else subject.cpu / pyarrow.cpu
    yield Verdict("full scan over the network: CPU over pyarrow's", Bound.AT_MOST, 1.1, cpu, _name(pyarrow))
    local = micro.get("full_scan", {})
    wall, used = (_found(local, "all columns", "accel, table", f": {what}") for what in ("wall", "cpu"))
    yield Verdict("full scan of a local file: time over the fastest peer's", Bound.AT_MOST, 1, _worst(wall))
    yield Verdict("full scan of a local file: CPU over pyarrow's", Bound.AT_MOST, 1.1, _worst(used))


def _micro(micro: Mapping[str, Mapping[str, float]]) -> Iterator[Verdict]:
    """What micro-benchmarks say; of several numbers for one target, the worst."""
    for target, limit, module, parts in (
        ("footer of 2,000 columns x 20 groups: time over pyarrow's", 1.2, "footer", ("2,000 columns",)),
        ("footer of 100 columns x 50 groups: time over pyarrow's", 1.2, "footer", ("100 columns",)),
        ("cached file, predicate to plan, ms", 0.5, "planning", ("one file", "accel.plan, ms CPU")),
        ("10,000 cached files, us each", 50, "planning", ("cached, a ", "us CPU a file")),
        (
            "import and first scan over pyarrow's and obstore's imports",
            1.2,
            "startup",
            ("import accel, first scan, wall",),
        ),
        ("peak memory of a full scan of 5 GB, MiB", 512, "memory", ("",)),
    ):
        yield Verdict(target, Bound.AT_MOST, limit, _worst(_found(micro.get(module, {}), *parts)))


def _found(measured: Mapping[str, float], *parts: str) -> list[float]:
    return [value for name, value in measured.items() if all(part in name for part in parts)]


def _worst(values: Sequence[float]) -> float | None:
    return max(values, default=None)


def _subject(summary: Summary, place: Place | None) -> Line | None:
    return None if place is None else summary.line(place, SUBJECT)


def _faster(
    target: str, summary: Summary, place: Place | None, limit: float, *, cached: bool = True
) -> Verdict:
    peer = None if place is None else summary.fastest(place, cached=cached)
    return _against(target, _subject(summary, place), peer, limit)


def _against(target: str, subject: Line | None, peer: Line | None, limit: float) -> Verdict:
    """How many times as long the peer takes."""
    ratio = None if subject is None or peer is None else peer.p50 / subject.p50
    return Verdict(target, Bound.AT_LEAST, limit, ratio, _name(peer))


def _name(line: Line | None) -> str:
    return "" if line is None else line.system


def _p50(line: Line) -> float:
    return line.p50
