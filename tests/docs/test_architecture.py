"""The architecture page names every room and none that is gone; no room imports one of a row below its
own."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def rows_of_the_page(title: str = "Room") -> list[list[str]]:
    """What each row of a table names, from the top."""
    page = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    table = page[page.index(f"| {title} |") :].partition("\n\n")[0]
    cells = re.findall(r"^\| (`[^|]+) \|", table, re.MULTILINE)
    return [[name.rstrip("/") for name in re.findall(r"`([^`]+)`", cell)] for cell in cells]


def test_the_rooms_of_the_page_are_those_of_the_code() -> None:
    named = [name for row in rows_of_the_page() for name in row]
    modules = {path.stem for path in ROOT.glob("accel/*.py")} - {"__init__"}
    packages = {path.parent.name for path in ROOT.glob("accel/*/__init__.py")}
    assert sorted(named) == sorted(modules | packages)


def test_every_decision_is_linked_and_numbered_once() -> None:
    page = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    files = sorted(path.name for path in ROOT.glob("docs/decisions/*.md"))
    assert sorted(re.findall(r"\(decisions/([^)]+)\)", page[page.index("## Decisions") :])) == files
    assert [int(name[:4]) for name in files] == list(range(1, len(files) + 1))


def imported_rooms(path: Path) -> Iterator[str]:
    """The rooms that a module of accel imports from, anywhere in it."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module == "accel":
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("accel."):
            yield str(node.module).split(".")[1]
        elif isinstance(node, ast.Import):
            yield from (name.name.split(".")[1] for name in node.names if name.name.startswith("accel."))


def test_a_room_imports_rooms_of_rows_above_its_own() -> None:
    rows = {name: at for at, row in enumerate(rows_of_the_page()) for name in row}
    upwards = {
        (room, other)
        for path in ROOT.glob("accel/**/*.py")
        for room in [path.relative_to(ROOT / "accel").parts[0].removesuffix(".py")]
        for other in imported_rooms(path)
        if room in rows and other in rows and rows[other] > rows[room]
    }
    assert upwards == set()
