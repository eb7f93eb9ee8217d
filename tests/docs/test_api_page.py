"""The API page has an entry for each public name, and none for what is not there."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from types import ModuleType

import pytest

import accel

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/api.md").read_text(encoding="utf-8")
ENTRIES = re.findall(r"^::: (\S+)$", PAGE, re.MULTILINE)
MEMBERS = set(re.findall(r"^        - (\w+)$", PAGE, re.MULTILINE))
MEMBERS |= {name for names in re.findall(r"members: \[(.*)\]", PAGE) for name in names.split(", ")}
ELSEWHERE = {"Options": "options.md", "indexes": "indexes.md", "spark": "spark.md", "stores": "stores.md"}


@pytest.mark.parametrize("name", accel.__all__)
def test_each_public_name_has_an_entry(name: str) -> None:
    if name in ELSEWHERE:
        assert (ROOT / "docs" / ELSEWHERE[name]).exists()
    else:
        assert f"accel.{name}" in ENTRIES or name in MEMBERS


@pytest.mark.parametrize(
    "module", [accel.indexes, accel.spark, accel.stores], ids=lambda module: module.__name__
)
def test_so_do_those_of_its_parts(module: ModuleType) -> None:
    entries = {entry.rpartition(".")[2] for entry in ENTRIES}
    assert set(module.__all__) <= entries | MEMBERS


@pytest.mark.parametrize("entry", ENTRIES)
def test_each_entry_is_there(entry: str) -> None:
    parts = entry.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            found: object = importlib.import_module(".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        for part in parts[cut:]:
            found = getattr(found, part)
        return
    pytest.fail(f"no module of {entry}")
