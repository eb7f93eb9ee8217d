"""DuckLakes made in a test by DuckDB, with its extensions from PyPI, which are loaded by their paths."""

from __future__ import annotations

import importlib
import pathlib
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import unquote, urlsplit

import pyarrow as pa

if TYPE_CHECKING:
    import duckdb

__all__ = ["Lake", "matching", "same_rows"]

_EXTENSIONS = ("ducklake", "sqlite_scanner", "postgres_scanner", "httpfs")


class Lake:
    """A lake, attached in a DuckDB of its own as `lake`, for the time of a `with`.

    Parameters
    ----------
    catalog : str
        As `accel.tables.ducklake` takes it.
    data : Path or str
        The directory of the data.
    options : str
        More options of ATTACH.
    """

    def __init__(self, catalog: str, data: pathlib.Path | str, options: str = "") -> None:
        self.catalog = catalog
        self.data = str(data)
        self._options = options
        self._connection: duckdb.DuckDBPyConnection | None = None

    @property
    def connection(self) -> duckdb.DuckDBPyConnection:
        """The connection, which is made again after `close`."""
        if self._connection is None:
            self._connection = connect()
            options = f"data_path '{self.data}'{', ' + self._options if self._options else ''}"
            self._connection.execute(f"ATTACH '{_address(self.catalog)}' AS lake ({options})")
            self._connection.execute("USE lake")
        return self._connection

    def close(self) -> None:
        """Detach the lake, so that others may open a file of DuckDB's."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def run(self, *statements: str) -> None:
        """Run statements."""
        for statement in statements:
            self.connection.execute(statement)

    def query(self, statement: str) -> pa.Table:
        """Return the rows of a query."""
        table: pa.Table = self.connection.execute(statement).to_arrow_table()
        return table

    def at(self, version: int, table: str = "events") -> pa.Table:
        """Return all rows of a version. DuckDB filters them elsewhere (`matching`): its own statistics of a
        lake's columns fail it now and then."""
        return self.query(f"SELECT * FROM {table} AT (VERSION => {version})")

    def version(self) -> int:
        """Return the newest snapshot."""
        return int(self.query("SELECT max(snapshot_id) AS v FROM lake.snapshots()")["v"][0].as_py())


def connect() -> duckdb.DuckDBPyConnection:
    """Return a connection with the extensions."""
    import duckdb

    connection = duckdb.connect(config={"allow_unsigned_extensions": "true"})
    connection.execute("SET TimeZone = 'UTC'")
    for name in _EXTENSIONS:
        home = pathlib.Path(str(importlib.import_module(f"duckdb_extension_{name}").__file__)).parent
        (path,) = home.glob(f"extensions/*/{name}.duckdb_extension")
        connection.execute(f"LOAD '{path}'")
    return connection


def _address(catalog: str) -> str:
    parts = urlsplit(catalog)
    if parts.scheme == "sqlite":
        return f"ducklake:sqlite:{unquote(parts.path[1:])}"
    if parts.scheme == "duckdb":
        return f"ducklake:{unquote(parts.path[1:])}"
    fields = {
        "host": parts.hostname,
        "port": parts.port,
        "user": parts.username,
        "password": unquote(parts.password or ""),
        "dbname": parts.path[1:],
    }
    words = " ".join(f"{name}={value}" for name, value in fields.items())
    return f"ducklake:postgres:{words}"


def matching(rows: pa.Table, where: str) -> pa.Table:
    """Return the rows that match a condition, by DuckDB over a table of its own."""
    import duckdb

    if not where:
        return rows
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("given", rows)
        connection.execute("CREATE TABLE own AS SELECT * FROM given")
        found: pa.Table = connection.execute(f"SELECT * FROM own WHERE {where}").to_arrow_table()
        return found


def same_rows(found: pa.Table, expected: pa.Table) -> None:
    """Fail where two tables differ in the names of their columns or in their rows, in any order."""
    assert found.column_names == expected.column_names
    assert _sorted(found) == _sorted(expected)


def _sorted(table: pa.Table) -> Sequence[str]:
    return sorted(repr([plain(value) for value in row.values()]) for row in table.to_pylist())


def plain(value: Any) -> Any:
    """Return a value without the name of its zone, which DuckDB and accel spell differently."""
    if hasattr(value, "tzinfo") and value.tzinfo is not None and hasattr(value, "date"):
        return value.isoformat().replace("Etc/", "")
    if isinstance(value, dict):
        return {name: plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    return value
