"""A database that holds catalogs: what the dialects have in common, and the tables."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Protocol, TypeVar

from accel.errors import StoreError

__all__ = ["PAGE_COLUMNS", "Database", "Session", "Tables", "catalog_name"]

T = TypeVar("T")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,39}")
_DEFAULT_NAME: Final = "accel"
PAGE_COLUMNS: Final = ("object", "part", "number", "floor", "reach", "most", "digest", "seal", "content")
_PAGE: Final = ", ".join(PAGE_COLUMNS[1:])


class Session(Protocol):
    """A connection in a transaction. Statements have `?` for parameters."""

    def fetch(self, statement: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Run a query and return its rows."""
        ...

    def change(self, statement: str, parameters: Sequence[Any] = ()) -> int:
        """Run a statement and return the number of rows that it changed."""
        ...

    def insert(self, table: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
        """Add many rows to a table."""
        ...


class Database(Protocol):
    """A database. Its calls block: they run in threads.

    They raise `StoreError` where it does not answer, `ObjectNotFoundError` where it, or a table of it, is not
    there, and `IndexFormatError` where it is damaged. `str` names it without credentials.
    """

    key: str
    """What caches have for it: different for different credentials, and telling none."""
    tables: Tables

    def read(self, work: Callable[[Session], T]) -> T:
        """Call `work` in a transaction that reads one state of the database; perhaps twice, if the connection
        broke."""
        ...

    def write(self, work: Callable[[Session], T], *, create: bool = False) -> T:
        """Call `work` in a transaction, which is committed unless it raises; `create` makes tables that are
        not there."""
        ...


class Tables:
    """The SQL tables of one catalog.

    Parameters
    ----------
    name : str
        What their names begin with.
    binary : str
        The type of bytes.
    identity : str
        The type of a key that the database counts.
    """

    def __init__(self, name: str, *, binary: str, identity: str) -> None:
        self.head, self.objects, self.pages = f"{name}_head", f"{name}_objects", f"{name}_pages"
        self._binary = binary
        self._identity = identity

    def definitions(self) -> Sequence[str]:
        """Return the statements that make them."""
        binary, pages = self._binary, self.pages
        head = f"id INTEGER PRIMARY KEY CHECK (id = 1), version TEXT NOT NULL, content {binary} NOT NULL"
        objects = f"id {self._identity}, name TEXT NOT NULL UNIQUE, size BIGINT NOT NULL"
        place = "object BIGINT NOT NULL, part INTEGER NOT NULL, number INTEGER NOT NULL"
        keys = f"floor {binary}, reach {binary}, most {binary}"
        content = f"digest {binary} NOT NULL, seal {binary} NOT NULL, content {binary} NOT NULL"
        primary = "PRIMARY KEY (object, part, number)"
        tables = {self.head: head, self.objects: objects, pages: f"{place}, {keys}, {content}, {primary}"}
        return [
            *(f"CREATE TABLE IF NOT EXISTS {name} ({columns})" for name, columns in tables.items()),
            *(
                f"CREATE INDEX IF NOT EXISTS {pages}_by_{key} ON {pages} (object, part, {key}, number) WHERE "
                f"{key} IS NOT NULL"
                for key in ("floor", "reach")
            ),
        ]

    # -- queries ---------------------------------------------------------------------------------

    def in_range(self) -> str:
        """Return the query for pages of a part that may hold values of an interval, and one page on either
        side.

        Parameters: the object, the part and the lower end; the object, the part, the upper end and the number
        of the last page; the upper and the lower end; the object, the part; the number behind which pages are
        wanted, and how many.
        """
        # Pages without values are below and above every interval, so the page behind may come first: one page
        # that is both proves then that there is none between.
        return (
            "WITH ends AS (SELECT COALESCE(("
            f"SELECT number FROM {self.pages} WHERE object = ? AND part = ? AND reach < ? "
            "ORDER BY reach DESC, number DESC LIMIT 1), 0) AS first, COALESCE(("
            f"SELECT number FROM {self.pages} WHERE object = ? AND part = ? AND floor > ? "
            "ORDER BY floor, number LIMIT 1), ?) AS last) "
            "SELECT part, number, floor, reach, most, digest, seal, "
            "CASE WHEN floor <= ? AND most >= ? THEN content END "
            f"FROM {self.pages}, ends WHERE object = ? AND part = ? AND number >= first "
            "AND number <= CASE WHEN last < first THEN first ELSE last END "
            "AND number > ? ORDER BY number LIMIT ?"
        )

    def of_parts(self, parts: int) -> str:
        """Return the query for all pages of some parts.

        Parameters: the object, the parts; part and number behind which pages are wanted, and how many.
        """
        marks = ", ".join("?" * parts)
        return (
            f"SELECT {_PAGE} FROM {self.pages} WHERE object = ? AND part IN ({marks}) "
            "AND (part, number) > (?, ?) ORDER BY part, number LIMIT ?"
        )

    def by_number(self, numbers: int) -> str:
        """Return the query for some pages of a part; parameters: the object, the part, the numbers."""
        marks = ", ".join("?" * numbers)
        return f"SELECT {_PAGE} FROM {self.pages} WHERE object = ? AND part = ? AND number IN ({marks})"


def catalog_name(fragment: str, *, shown: str) -> str:
    """Return what the names of the tables begin with, by the part of the URL behind `#`.

    Raises
    ------
    StoreError
        It is no name.
    """
    name = fragment or _DEFAULT_NAME
    if not _NAME.fullmatch(name):
        raise StoreError(
            "what follows # is no name for an index in a database",
            path=shown,
            hint="it is at most 40 letters, digits and underscores, and begins with no digit",
        )
    return name.lower()
