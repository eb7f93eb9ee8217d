"""The architecture page names every room and none that is gone; the order of its rooms is the import contract."""

from __future__ import annotations

import re
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
