"""The API pages have an entry for each public name, none for what is not there, and say what the code does."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

import pytest

import accel
from tests.docs.reference import PAGES, above_of, read_entries, write_references

ROOT = Path(__file__).resolve().parents[2]
PAGE = "".join((ROOT / page).read_text(encoding="utf-8") for page in PAGES if "/api/" in page)
ENTRIES = [entry.path for entry in read_entries(PAGE)]
MEMBERS = {name for entry in read_entries(PAGE) for name in entry.members or ()}
ELSEWHERE = {
    "Options": "options.md",
    "indexes": "indexes.md",
    "spark": "spark.md",
    "stores": "stores.md",
    "tables": "tables/iceberg.md",
}


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


@pytest.mark.parametrize("page", PAGES)
def test_what_is_generated_is_up_to_date(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    assert len(read_entries(text)) > 0
    assert text.count("<!-- end of reference -->") == len(read_entries(text))
    assert write_references(text, above=above_of(page)) == text, "run `python tests/docs/reference.py`"


def test_a_page_reads_without_a_build() -> None:
    """In a checkout there are the signature, the text and the members."""
    for told in (
        "storage_options: Mapping[str, Any] | None = None,",
        "#### Scan.to_table_async",
        "### AccessDeniedError",
    ):
        assert told in PAGE
    options = (ROOT / "docs/options.md").read_text(encoding="utf-8")
    for name in accel.Options.__dataclass_fields__:
        assert f"- **`{name}`**: *" in options


def test_what_stands_between_the_places_is_left_alone() -> None:
    page = "a\n\n<!-- reference: accel.Phases (ONE) -->\nold\n<!-- end of reference -->\n\nb\n"
    written = write_references(page)
    assert written == (
        "a\n\n<!-- reference: accel.Phases (ONE) -->\n\n### accel.Phases\n\n```text\nclass Phases(enum.StrEnum)\n```\n\n"
        "When the columns that only the result needs are requested.\n\n"
        "- **`ONE`** = `'one'`: Together with the filter columns: always one round trip.\n\n<!-- end of reference -->\n\nb\n"
    )
    assert write_references(written) == written
