"""Files that are part of a table: a Delta, Hudi, Iceberg or DuckLake table, whose log says which of them
count.

Until a table is vacuumed, its directory holds files that it has dropped or rewritten, and rows that it has
deleted. Read as files they come back, so what is seen to be part of a table is refused. What the listing
shows is judged, and the names and the footers of the files; no request is sent for that.

Sources: the Delta protocol, "File Types"; the Iceberg specification, "Table Metadata"; Hudi's `.hoodie`
directory; DuckLake's names of data files.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from accel.errors import TableFormatError, redact
from accel.format.model import ParquetSchema
from accel.runtime.tasks import breathe
from accel.store.location import parse_url
from accel.store.range_store import ObjectEntry

__all__ = [
    "ForeignTable",
    "ForeignTableError",
    "find_table",
    "first_table",
    "is_all_of",
    "named_table",
    "suspicion_of",
    "table_of_footer",
    "table_of_local_files",
]

_AT_ONCE: Final = 10_000
"""Entries that are looked at without a pause."""
_ICEBERG_KEY: Final = "iceberg.schema"
"""The footer key of the Iceberg schema, as Java's writers put it."""
_MARKS: Final = {
    "Delta": re.compile(r"^(?:(.*)/)?_delta_log/.", re.MULTILINE),
    "Hudi": re.compile(r"^(?:(.*)/)?\.hoodie/.", re.MULTILINE),
    "Iceberg": re.compile(r"^(?:(.*)/)?metadata/[^/\n]*\.metadata\.json$", re.MULTILINE),
}
"""By format, the paths that only a table has; the group is the directory of the table."""
_PYICEBERG: Final = re.compile(
    r"(?:^|/)data/(?:.*/)?\d{5}-\d+-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\.parquet$"
)
"""What pyiceberg calls its data files. Nothing in them names the table, but their columns have field ids."""
_NEEDLES: Final = {"Delta": "_delta_log/", "Hudi": ".hoodie/", "Iceberg": ".metadata.json"}
_DUCKLAKE: Final = re.compile(
    r"(?:^|/)ducklake-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}(?:-delete)?\.parquet$"
)
_WAYS: Final = {
    "Delta": "name its directory, which is read as the table, or the files that it has",
    "Hudi": "read it by Spark or hudi-rs, or name the files that it has",
    "Iceberg": "name its directory, which is read as the table, or the files that it has",
    "DuckLake": "read it by its catalog: `accel.tables.ducklake(catalog, table)`",
}


@dataclass(frozen=True, slots=True)
class ForeignTable:
    """A table that some files are part of."""

    format: str
    """"Delta", "Hudi", "Iceberg" or "DuckLake"."""
    place: str
    """Its directory, or a file of it."""

    def error(self, source: str) -> ForeignTableError:
        """Return the error of a source that is read as files."""
        error = ForeignTableError(
            f"the files are part of {'an' if self.format == 'Iceberg' else 'a'} {self.format} table, "
            f"{redact(self.place)!r}, which knows which of them count: files "
            "that it has dropped, and rows that it has deleted, would come back",
            path=source,
            hint=f"{_WAYS[self.format]}; `table=None` reads the files as files",
        )
        error.table = self
        return error


class ForeignTableError(TableFormatError):
    """Files were to be read that are part of a table."""

    table: ForeignTable
    """The table."""


def is_all_of(table: ForeignTable, source: str, *, in_store: bool = False) -> bool:
    """Return whether a source names the directory of a table, and not one above or below it."""
    return table.place.strip("/") == parse_url(source, in_store=in_store).path.strip("/")


async def find_table(entries: Sequence[ObjectEntry]) -> ForeignTable | None:
    """Return a table whose log or metadata a listing shows, at any depth; None where it shows none."""
    for start in range(0, len(entries), _AT_ONCE):
        found = first_table(entries[start : start + _AT_ONCE])
        if found is not None:
            return found
        await breathe()
    return None


def first_table(entries: Sequence[ObjectEntry]) -> ForeignTable | None:
    """Return a table whose log or metadata some entries show; None where they show none."""
    paths = "\n".join(entry.path for entry in entries)
    for kind, needle in _NEEDLES.items():
        found = _MARKS[kind].search(paths) if needle in paths else None
        if found is not None:
            return ForeignTable(kind, f"{found[1]}/" if found[1] else "/")
    return None


def named_table(paths: Sequence[str]) -> ForeignTable | None:
    """Return a DuckLake table that some paths are of by their names; None where none is."""
    for path in paths:
        if "ducklake-" in path and _DUCKLAKE.search(path):
            return ForeignTable("DuckLake", path)
    return None


def table_of_local_files(directory: str) -> ForeignTable | None:
    """Return the table that a local directory is of, where its log or metadata lies in it; None where none
    does."""
    for kind, below in (("Delta", "_delta_log"), ("Hudi", ".hoodie")):
        if os.path.isdir(os.path.join(directory, below)):
            return ForeignTable(kind, directory)
    metadata = os.path.join(directory, "metadata")
    try:
        names = os.listdir(metadata)
    except OSError:
        return None
    return (
        ForeignTable("Iceberg", directory) if any(name.endswith(".metadata.json") for name in names) else None
    )


def table_of_footer(key_value: Mapping[str, bytes], url: str) -> ForeignTable | None:
    """Return the table that the footer of a file says it is of; None where it says nothing."""
    return ForeignTable("Iceberg", url) if _ICEBERG_KEY in key_value else None


def suspicion_of(path: str, schema: ParquetSchema) -> str | None:
    """Return what is to be said of a file that seems to be part of a table, though nothing proves it; None of
    other files."""
    if _PYICEBERG.search(path) is None or all(each.field_id is None for each in schema.elements[1:]):
        return None
    return (
        f"{redact(path)}: the name and the field ids are those of pyiceberg, which leaves files below data/ "
        "that an Iceberg table has dropped: name the directory of the table, which is read as one; "
        "`table=None` reads the files as files without a word"
    )
