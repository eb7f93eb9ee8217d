"""The report's pictures: SVG, and PNG of the same."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.document import Document
from bench.sample import Sample
from bench.suite import Axis, Mode
from bench.summary import FLOOR, SUBJECT, Line

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["draw_all", "file_name", "with_dark_colours"]

# Systems keep their colour in every plot; accel stands out, the floor is a line that nobody crosses.
_COLOURS = {
    SUBJECT: "#d1495b",
    FLOOR: "#222222",
    "datafusion": "#2e6f95",
    "datafusion-pushdown": "#7fb2d1",
    "duckdb": "#c99700",
    "duckdb-cached": "#e9cf6b",
    "polars": "#5b8e7d",
    "pyarrow": "#7a5c99",
    "arro3": "#9a8c7c",
    "spark": "#e07a3f",
}
_OTHER = "#999999"
_DARK = (
    " <style>@media (prefers-color-scheme: dark) { text { fill: #eceef2 } "
    '[style*="fill: #ffffff"] { fill: #1e2129 !important } '
    '[style*="stroke: #000000"], [style*="stroke: #222222"] { stroke: #d5d9e0 !important } '
    '[style*="fill: #222222"] { fill: #d5d9e0 !important } }</style>\n '
)


def draw_all(document: Document, folder: Path) -> list[Path]:
    """Draw everything that the run has samples for; the SVG files."""
    import matplotlib

    matplotlib.use("agg")
    matplotlib.rcParams.update(
        {
            "svg.hashsalt": "accel",
            "svg.fonttype": "none",
            "font.size": 9,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.axisbelow": True,
            "legend.frameon": False,
        }
    )
    written = []
    for name, draw in _plots(document):
        figure = draw()
        if figure is None:
            continue
        path = folder / f"{name}.svg"
        figure.savefig(path, metadata={"Date": None})
        path.write_text(with_dark_colours(path.read_text("utf-8")), "utf-8")
        figure.set_layout_engine("none")  # it is laid out, and takes longest
        figure.savefig(path.with_suffix(".png"), dpi=120)
        _close(figure)
        written.append(path)
    return written


def with_dark_colours(svg: str) -> str:
    """The same picture of matplotlib, with other colours for the ground and the ink on dark pages."""
    return svg.replace("</defs>", f"{_DARK}</defs>", 1)


def file_name(case: str) -> str:
    """The name of a case, as part of a file's name."""
    return re.sub(r"[^a-z0-9]+", "-", case.lower()).strip("-")


def _plots(document: Document) -> Iterator[tuple[str, Callable[[], Figure | None]]]:
    for case in document.cases:
        if not case.startswith("by "):
            yield f"latency-{file_name(case)}", partial(_latency, document, case)
    yield "bytes", lambda: _bytes(document)
    for axis, name, scale in (
        (Axis.DELAY, "delay", "linear"),
        (Axis.FILES, "files", "log"),
        (Axis.COLUMNS, "columns", "log"),
    ):
        yield name, partial(_growth, document, axis, scale)


def _latency(document: Document, case: str) -> Figure | None:
    """Every sample of a case, a panel for each mode, a row for each system; the bar is the median."""
    parts: dict[str, dict[str, list[Sample]]] = {}
    for sample in document.samples:
        if sample.case == case:
            parts.setdefault(sample.mode, {}).setdefault(sample.system, []).append(sample)
    if not parts:
        return None
    systems = [name for name in document.systems if any(name in taken for taken in parts.values())]
    figure, panels = _panels(len(parts), height=1.2 + 0.28 * len(systems), sharey=True)
    for panel, (mode, taken) in zip(panels, parts.items(), strict=True):
        for row, system in enumerate(systems):
            times = [1000 * sample.seconds for sample in taken.get(system, ())]
            if times:
                colour = _COLOURS.get(system, _OTHER)
                panel.scatter(times, [row] * len(times), s=14, alpha=0.45, color=colour, linewidths=0)
                panel.plot([_median(times)] * 2, [row - 0.32, row + 0.32], color=colour, linewidth=2.2)
        panel.set(xscale="log", xlabel="ms", title=mode)
        panel.set_yticks(range(len(systems)), systems)
        _plain_log(panel.xaxis)
        panel.grid(axis="x", alpha=0.3)
    panels[0].invert_yaxis()
    figure.suptitle(f"{case}: {document.cases[case].what}", fontsize=10)
    return figure


def _bytes(document: Document) -> Figure | None:
    """Bytes over the floor's, of every metadata-warm case."""
    summary = document.summary
    rows: list[tuple[str, list[tuple[str, float]]]] = []
    for place, lines in summary:
        note = document.cases.get(place.case)
        if place.mode == Mode.WARM and note is not None and not place.case.startswith("by "):
            found = [(s, summary.over_minimum(place, line)) for s, line in lines.items() if s != FLOOR]
            known = [(system, ratio) for system, ratio in found if ratio]
            if known:
                rows.append((place.case, known))
    if not rows:
        return None
    figure, (panel,) = _panels(1, height=1.4 + 0.26 * len(rows), width=7.5)
    seen: set[str] = set()
    for row, (_, known) in enumerate(rows):
        for system, ratio in known:
            named = None if system in seen else system
            seen.add(system)
            size = 46 if system == SUBJECT else 24
            panel.scatter(
                max(ratio, 0.5), row, s=size, color=_COLOURS.get(system, _OTHER), label=named, linewidths=0
            )
    panel.axvline(1, color=_COLOURS[FLOOR], linewidth=1, linestyle="--")
    panel.set(
        xscale="log",
        xlabel="bytes over the needed ones (dashed: the floor; 0.5: half or less, by a cache)",
        title="bytes fetched, metadata warm",
    )
    panel.set_yticks(range(len(rows)), [case for case, _ in rows])
    panel.invert_yaxis()
    _plain_log(panel.xaxis)
    panel.grid(alpha=0.3)
    panel.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=8)
    return figure


def _growth(document: Document, axis: Axis, scale: str) -> Figure | None:
    """Median time along an axis, a panel for each mode that has several places."""
    points: dict[str, dict[str, list[tuple[float, Line]]]] = {}
    for place, lines in document.summary:
        note = document.cases.get(place.case)
        if note is not None and note.axis == axis:
            for system, line in lines.items():
                points.setdefault(place.mode, {}).setdefault(system, []).append((place.at, line))
    modes = {m: s for m, s in points.items() if len({at for p in s.values() for at, _ in p}) > 1}
    if not modes:
        return None
    from matplotlib.ticker import NullLocator

    figure, panels = _panels(len(modes), height=3.4)
    for panel, (mode, systems) in zip(panels, modes.items(), strict=True):
        _lines(panel, systems, document.systems)
        panel.set(xscale=scale, yscale="log", xlabel=axis, ylabel="ms, median", title=mode)
        ticks = sorted({at for taken in systems.values() for at, _ in taken})
        panel.set_xticks(ticks, [f"{at:g}" for at in ticks])
        panel.xaxis.set_minor_locator(NullLocator())
        _plain_log(panel.yaxis)
        panel.grid(alpha=0.3)
    panels[-1].legend(loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=8)
    names = {
        Axis.DELAY: "a point lookup",
        Axis.FILES: "one row of many files",
        Axis.COLUMNS: "five of many columns",
    }
    figure.suptitle(f"{names[axis]}, against {axis}", fontsize=10)
    return figure


def _lines(panel: Axes, systems: Mapping[str, Sequence[tuple[float, Line]]], order: Sequence[str]) -> None:
    for system in order:
        taken = sorted((at, 1000 * line.p50) for at, line in systems.get(system, ()))
        if taken:
            xs, ys = zip(*taken, strict=True)
            style: dict[str, Any] = {
                "linewidth": 2.4 if system == SUBJECT else 1.3,
                "marker": "o",
                "markersize": 3.5,
            }
            if system == FLOOR:
                style["linestyle"] = "--"
            panel.plot(xs, ys, color=_COLOURS.get(system, _OTHER), label=system, **style)


def _panels(
    count: int, *, height: float, width: float = 3.6, sharey: bool = False
) -> tuple[Figure, list[Axes]]:
    from matplotlib import pyplot

    size = (1.6 + width * count, height)
    figure, grid = pyplot.subplots(1, count, figsize=size, sharey=sharey, squeeze=False, layout="constrained")
    return figure, list(grid[0])


def _plain_log(axis: Any) -> None:
    """Numbers as one writes them, not powers of ten."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    axis.set_major_locator(LogLocator(base=10, subs=(1, 2, 5), numticks=12))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_locator(NullLocator())


def _median(values: Sequence[float]) -> float:
    import statistics

    return statistics.median(values)


def _close(figure: Figure) -> None:
    from matplotlib import pyplot

    pyplot.close(figure)
