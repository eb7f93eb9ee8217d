"""HTML that stands by itself: no script, font or file from elsewhere. It is light or dark as the reader
has it, and fits on a screen of any width."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import Final

__all__ = ["byte_count", "facts_table", "fragment", "page", "preformatted"]

# Of `Fate`, in its order. What is read is blue, what an index has ruled out warm, and the rest pale.
_COLOURS: Final = {
    "light": "#1857c0 #63a1ff #7a5cc8 #c0453a #e07b39 #d9a520 #8fae8b #d3d8d2 #e6dcec",
    "dark": "#5b9dff #2f5f9f #a68cf0 #e0695e #c9743c #b8912c #5d7a5a #3c423b #4a4050",
}


def _variables(name: str) -> str:
    return "".join(f"--f{number}:{colour};" for number, colour in enumerate(_COLOURS[name].split()))


_STYLE: Final = f"""
.accel{{{_variables("light")}--line:#fff;--text:#1b1f24;--soft:#5b6470;--edge:#d8dde3;--back:#fff;
color:var(--text);background:var(--back);font:14px/1.45 system-ui,sans-serif;max-width:60rem;padding:.5rem}}
@media (prefers-color-scheme:dark){{.accel{{{_variables("dark")}--line:#15181c;--text:#e6e9ed;--soft:#9aa4b0;
--edge:#3a424c;--back:#15181c}}}}
.accel h1{{font-size:1.25rem;margin:.2rem 0 .6rem;overflow-wrap:anywhere}}
.accel h2{{font-size:1rem;margin:1.2rem 0 .4rem}}
.accel pre{{overflow-x:auto;font:12px/1.4 ui-monospace,monospace;color:var(--text);background:none;
white-space:pre-wrap;margin:.4rem 0}}
.accel figure{{margin:1rem 0}}
.accel figcaption{{overflow-wrap:anywhere;margin-bottom:.3rem}}
.accel figcaption span,.accel li span,.accel .accel-note{{color:var(--soft)}}
.accel .accel-strips{{display:grid;grid-template-columns:minmax(4rem,max-content) 1fr;gap:3px .6rem;
align-items:center}}
.accel label{{max-width:14rem;overflow:hidden;text-overflow:ellipsis;white-space:nowrap;text-align:right;
font:12px ui-monospace,monospace}}
.accel svg{{width:100%;height:18px;display:block;border-radius:2px;background:var(--edge)}}
.accel rect{{stroke:var(--line);stroke-width:1;vector-effect:non-scaling-stroke}}
.accel rect.accel-thin{{stroke-width:.2}}
.accel svg path{{stroke:var(--text);stroke-width:1.5;vector-effect:non-scaling-stroke}}
.accel ul.accel-legend{{list-style:none;display:flex;flex-wrap:wrap;gap:.2rem 1.2rem;
padding:0;margin:.6rem 0}}
.accel i{{display:inline-block;width:.9em;height:.9em;margin-right:.4em;border-radius:2px;
vertical-align:-.1em}}
.accel ul.accel-advice{{margin:.4rem 0;padding-left:1.2rem}}
.accel .accel-scroll{{overflow-x:auto}}
.accel table{{border-collapse:collapse;font-size:13px}}
.accel td,.accel th{{padding:.15rem .7rem .15rem 0;text-align:left;border:0;
border-bottom:1px solid var(--edge);
background:none;color:var(--text);white-space:nowrap}}
.accel td.n{{text-align:right;font-variant-numeric:tabular-nums}}
@media (max-width:30rem){{.accel .accel-strips{{grid-template-columns:1fr;gap:1px}}
.accel label{{text-align:left;margin-top:.3rem}}}}
""" + "".join(
    f".accel rect.accel-f{n}{{fill:var(--f{n})}}.accel i.accel-f{n}{{background:var(--f{n})}}\n"
    for n in range(len(_COLOURS["light"].split()))
)


def fragment(*parts: str) -> str:
    """Return parts, which are HTML, as one piece with its style, as a notebook shows it."""
    return f'<div class="accel"><style>{_STYLE}</style>{"".join(parts)}</div>'


def page(title: str, *parts: str) -> str:
    """Return parts, which are HTML, as a file of its own."""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f"<title>{escape(title)}</title><style>body{{margin:0}}@media (prefers-color-scheme:dark)"
        "{body{background:#15181c}}.accel{margin:auto}</style></head>"
        f"<body>{fragment(f'<h1>{escape(title)}</h1>', *parts)}</body></html>\n"
    )


def preformatted(text: str) -> str:
    """Return a text as HTML that shows it as it is."""
    return f"<pre>{escape(text)}</pre>"


def facts_table(headers: Iterable[str], rows: Iterable[Iterable[str | int]]) -> str:
    """Return a table. Numbers are aligned to the right, and have separators."""
    head = "".join(f"<th>{escape(name)}</th>" for name in headers)
    body = "".join(
        "<tr>"
        + "".join(
            f'<td class="n">{cell:,}</td>' if isinstance(cell, int) else f"<td>{escape(cell)}</td>"
            for cell in row
        )
        + "</tr>"
        for row in rows
    )
    return (
        f'<div class="accel-scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
    )


def byte_count(number: int) -> str:
    """Return a number of bytes as people read it: 512 B, 1.5 KiB, 20 MiB."""
    size = float(number)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024 or unit == "GiB":
            break
        size /= 1024
    if unit == "B":
        return f"{number} B"
    return f"{size:.1f} {unit}" if size < 10 else f"{size:,.0f} {unit}"
