"""What the documentation names exists: files of the repository, public names of accel, modules that a command
runs."""

from __future__ import annotations

import importlib
import importlib.util
import re
from pathlib import Path

import pytest

import accel

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")], key=str)
# What programs write.
WRITTEN = {"bench/report/"}
PATH = re.compile(r"`((?:accel|bench|demo|docs|tests)/[\w./*-]*)`")
# `Options.memory_limit` is short for `accel.Options.memory_limit`, as pages write it.
NAME = re.compile(r"(?<![\w/.-])(?:accel(?:\.[A-Za-z]\w*)+|(?:Options|Metrics|Cache)\.\w+)")
MODULE = re.compile(r"python -m ([\w.]+)")


def missing_paths(text: str) -> list[str]:
    """Paths below the repository's directories, in backticks, that match no file or directory."""
    return [
        name for name in PATH.findall(text) if name not in WRITTEN and not any(ROOT.glob(name.rstrip("/")))
    ]


def missing_names(text: str) -> list[str]:
    """Dotted names that lead nowhere from the package `accel`."""
    return [
        name
        for name in NAME.findall(text)
        if not exists(name if name.startswith("accel.") else f"accel.{name}")
    ]


def missing_modules(text: str) -> list[str]:
    """Modules that a command line runs by `python -m` and that cannot be found."""
    return [name for name in MODULE.findall(text) if importlib.util.find_spec(name) is None]


SPANS = {"accel.request"}
"""Names of spans of OpenTelemetry that are those of nothing else."""


def exists(name: str) -> bool:
    """Whether a dotted name is an attribute, a module, a field of a dataclass, or an argument that sets a
    cache's attribute."""
    if name in SPANS:
        return True
    parts = name.split(".")
    found: object = accel
    for at, part in enumerate(parts[1:], 2):
        if hasattr(found, part):
            found = getattr(found, part)
        elif isinstance(found, type):
            return (
                part in getattr(found, "__dataclass_fields__", ()) or part in found.__init__.__annotations__
            )
        else:
            try:
                found = importlib.import_module(".".join(parts[:at]))
            except ModuleNotFoundError:
                return False
    return True


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_what_a_page_names_exists(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    if page.name != "CHANGELOG.md":  # which may name what a later version took away
        assert (missing_paths(text), missing_names(text), missing_modules(text)) == ([], [], [])


def test_what_is_missing_is_found() -> None:
    text = "`accel/nowhere/`, `accel/store/*.py`, accel.scam(url), `Options.memory_limits`, `Options.strict`, python -m bench.nothing"
    assert missing_paths(text) == ["accel/nowhere/"]
    assert missing_names(text) == ["accel.scam", "Options.memory_limits"]
    assert missing_modules(text) == ["bench.nothing"]
