"""The architecture page names every room, none that is gone, and each below those that it imports."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


PACKAGES = ("reading", "opening", "running", "scanning")
"""Rooms whose own order the page tells too."""


def rows_of_the_page(title: str = "Room") -> list[list[str]]:
    """What each row of a table names, from the top."""
    page = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    table = page[page.index(f"| {title} |") :].partition("\n\n")[0]
    cells = re.findall(r"^\| (`[^|]+) \|", table, re.MULTILINE)
    return [[name.rstrip("/") for name in re.findall(r"`([^`]+)`", cell)] for cell in cells]


def imported(node: ast.AST, package: str = "accel") -> Iterator[str]:
    """What of a package some code imports, at its top or inside a function; what only type checkers see does not count."""
    if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
        return
    names: list[str] = []
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom):
        assert node.module is not None and not node.level, "imports are absolute"
        names = [f"{node.module}.{alias.name}" for alias in node.names]
    for name in names:
        rest = name.removeprefix(f"{package}.")
        if rest != name:
            yield rest.partition(".")[0]
    for child in ast.iter_child_nodes(node):
        yield from imported(child, package)


def imports_against_the_rows(rows: list[list[str]], package: str) -> set[str]:
    """What a table's order does not allow, of a package whose parts it names."""
    row_of = {name: number for number, row in enumerate(rows) for name in row}
    folder = ROOT / package.replace(".", "/")
    found = set()
    for path in sorted(folder.rglob("*.py")):
        part = path.relative_to(folder).parts[0].removesuffix(".py")
        if part == "__init__":
            continue
        for other in imported(ast.parse(path.read_text(encoding="utf-8")), package):
            # What is no part is a name of the package itself, such as its version.
            if other != part and row_of.get(other, -1) >= row_of[part]:
                found.add(f"{part} imports {other}")
    return found


def test_the_rooms_of_the_page_are_those_of_the_code() -> None:
    named = [name for row in rows_of_the_page() for name in row]
    modules = {path.stem for path in ROOT.glob("accel/*.py")} - {"__init__"}
    packages = {path.parent.name for path in ROOT.glob("accel/*/__init__.py")}
    assert sorted(named) == sorted(modules | packages)


def test_a_room_imports_only_rooms_of_the_rows_above_its_own() -> None:
    assert imports_against_the_rows(rows_of_the_page(), "accel") == set()


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_has_the_modules_and_the_order_of_its_own_table(package: str) -> None:
    rows = rows_of_the_page(f"In `{package}/`")
    modules = {path.stem for path in (ROOT / "accel" / package).glob("*.py")} - {"__init__"}
    assert sorted(name for row in rows for name in row) == sorted(modules)
    assert imports_against_the_rows(rows, f"accel.{package}") == set()


def test_imports_against_an_order_are_told() -> None:
    rows = rows_of_the_page("In `running/`")
    assert "run imports file_run" in imports_against_the_rows(rows[::-1], "accel.running")


def test_imports_are_found_wherever_they_stand() -> None:
    code = (
        "import accel.store.range_store, os\nfrom accel import kernels\n"
        "if TYPE_CHECKING:\n    from accel.cli import x\n"
        "def f():\n    from accel.planning.file import y\n"
    )
    assert list(imported(ast.parse(code))) == ["io", "kernels", "planning"]
    assert list(imported(ast.parse(code), "accel.planning")) == ["file"]


def test_every_decision_is_linked_and_numbered_once() -> None:
    page = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    files = sorted(path.name for path in ROOT.glob("docs/decisions/*.md"))
    assert sorted(re.findall(r"\(decisions/([^)]+)\)", page[page.index("## Decisions") :])) == files
    assert [int(name[:4]) for name in files] == list(range(1, len(files) + 1))
