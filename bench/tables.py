"""The report as text: one table to look at, and all of it as Markdown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from bench.document import Document
from bench.summary import FLOOR, SUBJECT, Line, Place, Summary
from bench.targets import Verdict

__all__ = ["aligned", "label", "markdown", "overview", "table"]

Cells = Sequence[str]

OVERVIEW = (
    "query",
    "mode",
    "accel ms",
    "/ floor",
    "fastest peer",
    "x accel",
    "requests",
    "trips",
    "KB",
    "/ min",
    "peer KB",
)
DETAIL = (
    "system",
    "n",
    "p50 ms",
    "x accel",
    "p99 ms",
    "first ms",
    "requests",
    "trips",
    "KB",
    "/ min",
    "CPU ms",
    "peak MB",
    "$/M",
)


def label(document: Document, place: Place) -> str:
    """The name of a case, with the place on its axis if it has one."""
    note = document.cases.get(place.case)
    return f"{place.case} {place.at:g}" if note is not None and note.axis else place.case


def overview(document: Document) -> list[Cells]:
    """accel against the floor and the fastest peer, a row for each mode of each case; the head first."""
    rows: list[Cells] = [OVERVIEW]
    summary = document.summary
    for place, lines in summary:
        subject, peer = lines.get(SUBJECT), summary.rival(place)
        if subject is None:
            continue
        rows.append(
            (
                label(document, place),
                place.mode,
                _ms(subject.p50),
                _ratio(summary.over_floor(place, subject)),
                "-" if peer is None else peer.system,
                _ratio(None if peer is None else summary.ratio(place, peer)),
                f"{subject.requests:.3g}",
                str(subject.trips),
                _kb(subject.bytes),
                _ratio(summary.over_minimum(place, subject)),
                "-" if peer is None else _kb(peer.bytes),
            )
        )
    return rows


def aligned(rows: Sequence[Cells]) -> str:
    """Rows as text in columns, the first two and names to the left."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    texts = {
        i
        for i, cell in enumerate(rows[0])
        if cell in ("query", "mode", "fastest peer", "system", "target", "met")
    }
    return "\n".join(
        "  ".join(
            cell.ljust(width) if i in texts else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )


_STORES = {
    "memory": "`memory`: MinIO answered each object once, then its bytes came from the memory of the proxy",
    "minio": "`minio`: MinIO answered every request, through the proxy",
}


def markdown(document: Document, verdicts: Sequence[Verdict]) -> str:
    """The whole report."""
    return "\n".join(_sections(document, verdicts)) + "\n"


def _sections(document: Document, verdicts: Sequence[Verdict]) -> Iterator[str]:
    machine, network = document.machine, document.network
    yield "# The benchmark"
    yield ""
    yield (
        f"{len(document.samples):,} samples at scale `{document.scale}`, {1000 * network['first_byte']:g} ms to the first byte, "
        f"{network['bandwidth'] / 1e6:g} MB/s a response. **Absolute times are those of this machine** "
        f"({machine['cores']} cores of {machine['processor']}, load {machine['load']}); compare ratios."
    )
    yield ""
    yield f"Store: {_STORES[document.store]}."
    yield ""
    if document.effort:
        yield _sampling(document)
        yield ""
    yield "Versions: " + ", ".join(f"{name} {version}" for name, version in machine["versions"].items()) + "."
    yield "\n## accel, the floor and the fastest peer\n"
    yield table(overview(document))
    yield "\nThe fastest peer is one that does not answer from a cache of data, but where the query is repeated."
    yield "\n## Targets\n"
    yield table([("target", "measured", "met"), *((v.target, v.measured, v.word) for v in verdicts)])
    yield "\n## Every system"
    for place, lines in document.summary:
        note = document.cases.get(place.case)
        yield f"\n### {label(document, place)}, {place.mode}\n"
        if note is not None:
            yield f"{note.what[:1].upper()}{note.what[1:]}. Rows: {_rows(lines)}.\n"
        yield table([DETAIL, *(_detail(document.summary, place, line) for line in _ordered(lines))])
    yield from _left_out(document)


def _sampling(document: Document) -> str:
    effort, minutes, turn = document.effort, document.effort.get("minutes"), document.effort.get("turn")
    part = f", or when its part of {minutes:g} minutes was over" if minutes else ""
    more = f", and whoever has answered within {turn:g} s once more" if turn else ""
    taken = Counter(sample.system for sample in document.samples)
    return (
        f"Samples: each round asks every system once, in rotating order{more}; {effort['least']:g} rounds at least, and none began "
        f"after {effort['budget']:g} s of a mode of a case{part}. A system that had taken {effort['share']:g} times what the "
        "median system had, and more than its even part of the time, sat out rounds; after a call of "
        f"{effort['patience']:g} s it was asked no more in that case, and after {effort['limit']:g} s the call was ended. `n` is "
        "how many samples a line has; in all: "
        + ", ".join(f"{name} {taken[name]:,}" for name in document.systems)
        + "."
    )


def _left_out(document: Document) -> Iterator[str]:
    if document.failures:
        yield "\n## What could not be asked, or went wrong\n"
        seen = set()
        for failure in document.failures:
            told = (failure.system, failure.case, failure.kind, _last(failure.text))
            if told not in seen:
                seen.add(told)
                yield f"- {failure.system}, {failure.case or 'start'}: {failure.kind}: {_last(failure.text)}"
    if document.skipped:
        yield "\n## Skipped\n"
        yield from (f"- {name}: {why}" for name, why in document.skipped.items())
    for name, found in document.micro.items():
        yield f"\n## bench.micro.{name}\n"
        yield table([("what", "value"), *((what, f"{value:.4g}") for what, value in found.items())])


def _ordered(lines: Mapping[str, Line]) -> list[Line]:
    return sorted(lines.values(), key=lambda line: (line.system != FLOOR, line.p50))


def _rows(lines: Mapping[str, Line]) -> str:
    found = sorted({line.rows for line in lines.values()})
    return " or ".join(f"{rows:,}" for rows in found)


def _detail(summary: Summary, place: Place, line: Line) -> Cells:
    return (
        f"**{line.system}**" if line.system == SUBJECT else line.system,
        str(line.samples),
        _ms(line.p50),
        _ratio(summary.ratio(place, line)),
        _ms(line.p99),
        _ms(line.first),
        f"{line.requests:.4g}",
        str(line.trips),
        _kb(line.bytes),
        _ratio(summary.over_minimum(place, line)),
        _ms(line.cpu),
        f"{line.peak / 1e6:.0f}",
        f"{line.dollars:.2f}",
    )


def table(rows: Sequence[Cells]) -> str:
    head, *body = ("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows)
    return "\n".join((head, "|" + "---|" * len(rows[0]), *body))


def _last(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1][:300] if lines else ""


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:.1f}"


def _kb(size: float) -> str:
    return f"{size / 1000:,.1f}" if size < 1e7 else f"{size / 1000:,.0f}"


def _ratio(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
