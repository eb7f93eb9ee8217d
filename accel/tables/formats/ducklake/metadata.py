"""What the catalog says of a table in one version: the questions that are asked of it, and their answers as
columns.

Whatever has a begin and an end is there in version v where begin <= v and v < end, or there is no end.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from accel.errors import TableFormatError
from accel.tables.formats.ducklake.databases import Session
from accel.tables.formats.ducklake.types import LakeColumn, column_tree

__all__ = [
    "InlinedTable",
    "LakeVersion",
    "TableName",
    "check_numbers",
    "find_version",
    "read_mappings",
    "read_state",
    "visible",
]

_VERSION: Final = "1.0"


@dataclass(frozen=True, slots=True)
class TableName:
    """A table in a schema."""

    schema: str
    table: str

    @classmethod
    def parse(cls, name: str) -> TableName:
        """Return the parts of `schema.table`, each perhaps in double quotes; the schema is `main` where none
        is named.

        Raises
        ------
        ValueError
            It is no such name.
        """
        part = r'(?:"((?:[^"]|"")+)"|([^".]+))'
        found = re.fullmatch(rf"(?:{part}\.)?{part}", name, re.DOTALL)
        if found is None:
            raise ValueError(f"{name!r} is no name of a table: write schema.table")
        quoted, plain, quoted_table, plain_table = found.groups()
        schema = quoted.replace('""', '"') if quoted else plain or "main"
        return cls(schema, quoted_table.replace('""', '"') if quoted_table else plain_table)

    def __str__(self) -> str:
        return f"{self.schema}.{self.table}"


@dataclass(frozen=True, slots=True)
class InlinedTable:
    """A table of the catalog that has rows of the user's, as columns were in one schema version."""

    name: str
    columns: tuple[LakeColumn, ...]


@dataclass(frozen=True, slots=True, eq=False)
class LakeVersion:
    """A table in one version."""

    version: int
    table: int
    """Its id."""
    data_path: str
    """Where its data are, as the catalog has it."""
    folders: tuple[tuple[str, bool], ...]
    """The paths of schema and table, and whether each is relative to what is before it."""
    columns: tuple[LakeColumn, ...]
    inlined: tuple[InlinedTable, ...]
    deletes: str | None
    """The table of the catalog that names deleted rows; None where there is none."""
    files: int = 0
    """How many files it has."""


def visible(alias: str, version: int) -> str:
    """Return the condition that something is there in a version."""
    return f"{alias}.begin_snapshot <= {version} AND COALESCE({alias}.end_snapshot > {version}, TRUE)"


def read_state(session: Session) -> tuple[Any, ...]:
    """Return what differs once the catalog was written to: no snapshot changes, but for those that expire."""
    return session.fetch(
        "SELECT MAX(snapshot_id), COUNT(*), MAX(CAST(snapshot_time AS VARCHAR)) FROM ducklake_snapshot"
    )[0]


def find_version(
    session: Session,
    name: TableName,
    *,
    newest: Any,
    version: int | None,
    moment: datetime.datetime | None,
) -> LakeVersion:
    """Return what the catalog says of a table in a version; in the newest one where neither it nor a moment
    is given.

    Raises
    ------
    TableFormatError
        There is no such table or version, or the catalog is of another version, encrypted, or contradicts
        itself.
    """
    said = dict(session.fetch("SELECT key, value FROM ducklake_metadata WHERE scope IS NULL"))
    if said.get("version") != _VERSION:
        raise TableFormatError(
            f"the catalog is of version {str(said.get('version'))[:40]!r}, and accel reads {_VERSION}",
            hint="DuckDB migrates older catalogs when it attaches them",
        )
    if str(said.get("encrypted", "false")).lower() not in ("false", "0"):
        raise TableFormatError(
            "the lake is encrypted, which accel does not read",
            hint="the keys of its files are in the catalog: whoever may read that may read them by DuckDB",
        )
    at = _snapshot(session, newest, version, moment)
    found = session.fetch(
        "SELECT t.table_id, s.path, s.path_is_relative, t.path, t.path_is_relative, (SELECT COUNT(*) FROM "
        f"ducklake_data_file f WHERE f.table_id = t.table_id AND {visible('f', at)}) FROM ducklake_table t "
        f"JOIN ducklake_schema s ON s.schema_id = t.schema_id WHERE t.table_name = ? AND s.schema_name = ? "
        f"AND {visible('t', at)} AND {visible('s', at)}",
        (name.table, name.schema),
    )
    if len(found) != 1:
        raise TableFormatError(
            f"{len(found) or 'no'} tables are called {str(name)!r} in version {at}",
            hint=None if found else "names are as they were in that version; write schema.table",
        )
    table, schema_path, schema_relative, path, relative, files = found[0]
    check_numbers(table, files)
    rows = session.fetch(
        "SELECT column_id, parent_column, column_order, column_name, column_type, nulls_allowed, "
        f"initial_default, begin_snapshot, end_snapshot FROM ducklake_column WHERE table_id = {table}"
    )
    columns = _columns_at(rows, at)
    if not columns:
        raise TableFormatError(f"the table has no columns in version {at}")
    deletes = f"ducklake_inlined_delete_{table}"
    return LakeVersion(
        version=at,
        table=table,
        data_path=str(said.get("data_path", "")),
        folders=((schema_path, bool(schema_relative)), (path, bool(relative))),
        columns=columns,
        inlined=tuple(_inlined_tables(session, table, at, rows)),
        deletes=deletes if session.tables_named([deletes]) else None,
        files=files,
    )


def _snapshot(session: Session, newest: Any, version: int | None, moment: datetime.datetime | None) -> int:
    if version is not None:
        found = session.fetch(f"SELECT snapshot_id FROM ducklake_snapshot WHERE snapshot_id = {version}")
        if not found:
            least, most = session.fetch("SELECT MIN(snapshot_id), MAX(snapshot_id) FROM ducklake_snapshot")[0]
            raise TableFormatError(
                f"there is no version {version}",
                hint=f"the catalog has {least} to {most}, and some of them may have expired",
            )
        return version
    if moment is None:
        if newest is None:
            raise TableFormatError("the catalog has no snapshot")
        check_numbers(newest)
        return int(newest)
    times = session.fetch("SELECT snapshot_id, CAST(snapshot_time AS VARCHAR) FROM ducklake_snapshot")
    moments = [(_instant(time), number) for number, time in times]
    before = [(time, number) for time, number in moments if time <= moment]
    if not before:
        raise TableFormatError(
            f"no version is as old as {moment.isoformat()}",
            hint=f"the first is of {min(moments)[0].isoformat()}" if moments else None,
        )
    found_at = max(before)[1]
    check_numbers(found_at)
    return int(found_at)


def _instant(value: Any) -> datetime.datetime:
    """Return the time of a snapshot, which SQLite has as text."""
    if isinstance(value, str):
        text = re.sub(r"([+-]\d\d)$", r"\1:00", value.strip())
        try:
            value = datetime.datetime.fromisoformat(text)
        except ValueError:
            raise TableFormatError(f"{value[:60]!r} is no time of a snapshot") from None
    if not isinstance(value, datetime.datetime):
        raise TableFormatError(f"{value!r} is no time of a snapshot")
    return value if value.tzinfo is not None else value.replace(tzinfo=datetime.UTC)


def check_numbers(*numbers: Any) -> None:
    """Raise TableFormatError where one of some numbers that the catalog has is none, or negative."""
    for number in numbers:
        if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < 1 << 62:
            raise TableFormatError(f"the catalog has {str(number)[:60]!r} where a number belongs")


def _columns_at(rows: Sequence[tuple[Any, ...]], version: int) -> tuple[LakeColumn, ...]:
    there = []
    for number, parent, order, name, kind, nullable, default, begin, end in rows:
        check_numbers(number, begin, *(one for one in (parent, end) if one is not None))
        if not isinstance(name, str) or not isinstance(kind, str):
            raise TableFormatError(f"the column {number} has no name or no type")
        if begin <= version and (end is None or version < end):
            there.append(
                (number, parent, order if isinstance(order, int) else 0, name, kind, nullable, default)
            )
    return column_tree(there)


def _inlined_tables(
    session: Session, table: int, at: int, rows: Sequence[tuple[Any, ...]]
) -> list[InlinedTable]:
    """Return the tables of inlined rows, each with the columns of its schema version."""
    found = session.fetch(
        "SELECT i.table_name, i.schema_version, MIN(v.begin_snapshot) FROM ducklake_inlined_data_tables i "
        "LEFT JOIN ducklake_schema_versions v ON v.schema_version = i.schema_version "
        f"AND v.table_id = i.table_id WHERE i.table_id = {table} GROUP BY 1, 2 ORDER BY 2"
    )
    inlined = []
    for name, schema_version, begin in found:
        if name != f"ducklake_inlined_data_{table}_{schema_version}":
            raise TableFormatError(f"the catalog has {str(name)[:80]!r} for rows of the table {table}")
        # What was created and never altered may have no schema version of its own.
        begin = min(row[7] for row in rows) if begin is None else begin
        check_numbers(schema_version, begin)
        if begin <= at:
            inlined.append(InlinedTable(name, _columns_at(rows, begin)))
    return inlined


def read_mappings(session: Session, found: LakeVersion) -> list[tuple[Any, ...]]:
    """Return how files of others name their columns: mapping, id, name, field id, parent, and whether the
    path has the values."""
    return session.fetch(
        "SELECT n.mapping_id, n.column_id, n.source_name, n.target_field_id, n.parent_column, n.is_partition "
        "FROM ducklake_name_mapping n JOIN ducklake_column_mapping m ON m.mapping_id = n.mapping_id "
        f"WHERE m.table_id = {found.table} ORDER BY n.mapping_id, n.column_id"
    )
