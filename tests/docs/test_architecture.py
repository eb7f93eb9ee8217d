"""The architecture page names every room, none that is gone, and each below those that it imports."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def rows_of_the_page() -> list[list[str]]:
    """The rooms of each row of the table, from the top."""
    page = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    table = page[
        page.index("| Room |") : page.index("`format`, `predicate`, `indexes` and `planning` are pure")
    ]
    cells = re.findall(r"^\| (`[^|]+) \|", table, re.MULTILINE)
    return [[name.rstrip("/") for name in re.findall(r"`([^`]+)`", cell)] for cell in cells]


def imported(node: ast.AST) -> Iterator[str]:
    """The rooms that some code imports, at its top or inside a function; what only type checkers see does not count."""
    if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
        return
    names: list[str] = []
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom):
        assert node.module is not None and not node.level, "imports are absolute"
        names = [f"{node.module}.{alias.name}" for alias in node.names]
    for name in names:
        package, _, rest = name.partition(".")
        if package == "accel" and rest:
            yield rest.partition(".")[0]
    for child in ast.iter_child_nodes(node):
        yield from imported(child)


def test_the_rooms_of_the_page_are_those_of_the_code() -> None:
    named = [name for row in rows_of_the_page() for name in row]
    modules = {path.stem for path in ROOT.glob("accel/*.py")} - {"__init__"}
    packages = {path.parent.name for path in ROOT.glob("accel/*/__init__.py")}
    assert sorted(named) == sorted(modules | packages)


def test_a_room_imports_only_rooms_of_the_rows_above_its_own() -> None:
    row_of = {name: number for number, row in enumerate(rows_of_the_page()) for name in row}
    below = set()
    for path in sorted(ROOT.glob("accel/**/*.py")):
        room = path.relative_to(ROOT / "accel").parts[0].removesuffix(".py")
        if room == "__init__":
            continue
        for other in imported(ast.parse(path.read_text(encoding="utf-8"))):
            # What is no room is a name of the package itself, such as its version.
            if other != room and row_of.get(other, -1) >= row_of[room]:
                below.add(f"{room} imports {other}")
    assert below == set()


def test_imports_are_found_wherever_they_stand() -> None:
    code = (
        "import accel.io.store, os\nfrom accel import kernels\n"
        "if TYPE_CHECKING:\n    from accel.cli import x\n"
        "def f():\n    from accel.planning.file import y\n"
    )
    assert list(imported(ast.parse(code))) == ["io", "kernels", "planning"]


def test_every_decision_is_linked_and_numbered_once() -> None:
    page = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    files = sorted(path.name for path in ROOT.glob("docs/decisions/*.md"))
    assert sorted(re.findall(r"\(decisions/([^)]+)\)", page[page.index("## Decisions") :])) == files
    assert [int(name[:4]) for name in files] == list(range(1, len(files) + 1))
