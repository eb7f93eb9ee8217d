"""`accel inspect` of a table: its version, its schema, and what its log says of its files."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

from accel.cli.terminal import console_for
from accel.cli.values import safe_text
from accel.errors import redact
from accel.pictures.document import byte_count
from accel.reader.reader import Reader
from accel.scanning.file_source import SourceRequest
from accel.tables.table import Snapshot, Table

__all__ = ["InspectedTable", "described", "inspect_table", "print_table_facts"]


@dataclass(frozen=True, slots=True, eq=False)
class InspectedTable:
    """A table, and its version."""

    table: Table
    snapshot: Snapshot


async def inspect_table(table: Table, reader: Reader) -> InspectedTable:
    """Return what is known of a table before its files."""
    return InspectedTable(table, await table.source().snapshot(SourceRequest(reader=reader)))


def described(found: InspectedTable) -> dict[str, Any]:
    """Return what is shown, as JSON has it."""
    snapshot = found.snapshot
    return {
        "table": found.table.format,
        "url": redact(found.table.location),
        "version": snapshot.version,
        "schema": [{"name": field.name, "type": str(field.type)} for field in snapshot.schema],
        **snapshot.properties,
    }


def print_table_facts(found: InspectedTable) -> None:
    """Print a table for people."""
    console = console_for(sys.stdout)

    def show(name: str, text: str) -> None:
        console.print(f"  {name:<18}{safe_text(text)}", no_wrap=True, crop=False, overflow="ignore")

    title = f"{redact(found.table.location)}: {found.table.format} table"
    console.print(safe_text(title), style="bold", no_wrap=True, crop=False, overflow="ignore")
    show("version", f"{found.snapshot.version}")
    for name, value in found.snapshot.properties.items():
        if value is None or value in ("", [], {}):
            continue
        words = name.replace("_", " ")
        if isinstance(value, dict):
            for key, each in value.items():
                show(words, f"{key}={redact(str(each))}")
        elif isinstance(value, list | tuple):
            show(words, ", ".join(map(str, value)))
        elif name == "bytes":
            show(words, f"{byte_count(value)} ({value:,} bytes)")
        else:
            show(words, f"{value:,}" if isinstance(value, int) else str(value))
    console.print()
    for field in found.snapshot.schema:
        show(field.name, str(field.type))
