"""The picture of the README: for each of a few queries the times of some systems, as bars, in SVG.

It is written by hand rather than by matplotlib, so that the same numbers give the same bytes everywhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from typing import Final

from bench.published import Published, Question

__all__ = ["bars"]

_COLUMNS: Final = 2
_PANEL: Final = (412, 118)
_MARGIN: Final = 14
_ROW: Final = 20
_LABELS: Final = 78
"""The width of the names of systems."""
_LONGEST: Final = 205
"""The length of the longest bar of a panel."""
_COLOURS: Final = {"accel": "#d1495b", "DuckDB": "#c99700", "Polars": "#5b8e7d", "DataFusion": "#2e6f95"}
_INK, _PAPER = "#222222", "#ffffff"


def bars(found: Published) -> str:
    """Return the picture. Bars of one query have one scale, which starts at 0; those of different queries do
    not."""
    width = _COLUMNS * _PANEL[0] + 2 * _MARGIN
    rows = -(-len(found.questions) // _COLUMNS)
    height = rows * _PANEL[1] + 2 * _MARGIN + 2 * _ROW
    fonts = "system-ui, -apple-system, Segoe UI, Helvetica, Arial, sans-serif"
    foot = ("Median time; shorter is better. Each query has a scale of its own.", f"{found.run}.")
    return "\n".join(
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}"',
            f'  font-family="{fonts}" font-size="12" role="img">',
            f"<title>Median times of {len(found.questions)} queries: {escape(', '.join(_COLOURS))}</title>",
            f'<rect width="{width}" height="{height}" rx="6" fill="{_PAPER}"/>',
            *_panels(found.questions),
            *(
                f'<text x="{_MARGIN}" y="{height - _MARGIN - 15 * above}" font-size="11" fill="#666666">{escape(line)}</text>'
                for above, line in zip((1, 0), foot, strict=True)
            ),
            "</svg>",
            "",
        )
    )


def _panels(questions: Sequence[Question]) -> Iterator[str]:
    for number, question in enumerate(questions):
        left = _MARGIN + number % _COLUMNS * _PANEL[0]
        top = _MARGIN + number // _COLUMNS * _PANEL[1]
        yield f'<text x="{left}" y="{top + 14}" font-weight="600" fill="{_INK}">{escape(question.name)}</text>'
        longest = max(question.seconds.values())
        for row, (system, colour) in enumerate(_COLOURS.items()):
            yield from _bar(
                system, colour, question.seconds.get(system), longest, left, top + 22 + row * _ROW
            )


def _bar(
    system: str, colour: str, seconds: float | None, longest: float, left: int, top: int
) -> Iterator[str]:
    weight = ' font-weight="600"' if system == "accel" else ""
    yield f'<text x="{left}" y="{top + 13}" fill="{_INK}"{weight}>{system}</text>'
    start = left + _LABELS
    length = 0.0 if seconds is None else _LONGEST * seconds / longest
    if seconds is not None:
        yield f'<rect x="{start}" y="{top + 3}" width="{length:.1f}" height="13" rx="2" fill="{colour}"/>'
    text = "no answer" if seconds is None else f"{1000 * seconds:,.0f} ms"
    yield f'<text x="{start + length + 6:.1f}" y="{top + 13}" fill="{_INK}"{weight}>{text}</text>'
