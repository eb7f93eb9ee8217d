"""The formats of tables that are built, and how a source that the user names becomes a table.

A format is one line here: its name in `table=`, its name in messages, the module that reads it, and the
package of whose opened tables it makes a source; and whether a directory or a catalog names its tables.
Nothing is imported before a table of it is named.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final, Protocol, cast

from accel.errors import TableFormatError
from accel.tables.table import Table

__all__ = ["FORMATS", "TableFormat", "format_titled", "settle_source", "table_at"]


class FormatModule(Protocol):
    """The module that reads a format."""

    def open_directory(self, url: str, **options: Any) -> Table:
        """Return the table of a directory; `version`, `timestamp` and `storage_options` may be given."""
        ...

    def open_in_catalog(self, catalog: str, name: str, **options: Any) -> Table:
        """Return the table that a catalog names; options as for `open_directory`."""
        ...

    def of_opened(self, opened: object) -> Table:
        """Return the table of an object of the format's own library, in its version and with its options."""
        ...


@dataclass(frozen=True, slots=True)
class TableFormat:
    """A format of tables."""

    name: str
    """As `table=` has it."""
    title: str
    """As messages have it, and `ForeignTable.format`."""
    home: str
    """The module that reads it: see `FormatModule`."""
    package: str | None = None
    """The package whose opened tables are sources."""
    by_directory: bool = True
    """Whether a directory tells that it is such a table."""
    by_catalog: bool = False
    """Whether a catalog names such tables."""

    @property
    def module(self) -> FormatModule:
        """The module, imported."""
        return cast("FormatModule", import_module(self.home))


FORMATS: Final[Mapping[str, TableFormat]] = {
    one.name: one
    for one in (
        TableFormat("delta", "Delta", "accel.tables.formats.delta.table", "deltalake"),
        TableFormat("iceberg", "Iceberg", "accel.tables.formats.iceberg.table", "pyiceberg", by_catalog=True),
        TableFormat(
            "ducklake", "DuckLake", "accel.tables.formats.ducklake.table", by_directory=False, by_catalog=True
        ),
        TableFormat("hive", "Hive", "accel.tables.formats.hive.table", by_directory=False, by_catalog=True),
    )
}
"""By name."""
_PACKAGES: Final = {one.package: one for one in FORMATS.values() if one.package is not None}


def format_titled(title: str) -> TableFormat | None:
    """Return the format of a name as messages have it; None where it is not built."""
    return next((one for one in FORMATS.values() if one.title == title and one.by_directory), None)


def table_at(
    name: str,
    url: str | os.PathLike[str],
    *,
    catalog: str | None = None,
    version: int | None = None,
    timestamp: Any = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Table:
    """Return the table of a directory, or the one that a catalog names.

    Parameters
    ----------
    name : str
        The format, as `table=` has it.
    url : str or PathLike
        The directory; with `catalog`, the name of the table in it.
    catalog : str, optional
        The catalog: a URL, or, of Iceberg, its name in pyiceberg's configuration.
    version : int, optional
        The version, or the id of the snapshot, to read.
    timestamp : datetime or str, optional
        A moment instead.
    storage_options : mapping, optional
        Those of its files, where the scan is given none.

    Raises
    ------
    ValueError
        There is no such format, it is not named in that way, or it takes no such argument.
    """
    found = FORMATS.get(name)
    if found is None:
        meant = difflib.get_close_matches(name, FORMATS, 1)
        told = f"did you mean {meant[0]!r}?" if meant else f"there are {', '.join(FORMATS)}"
        raise ValueError(f"there is no format of tables {name!r:.80} ({told})")
    if catalog is None and not found.by_directory:
        raise ValueError(
            f"a table of {found.title} is named in a catalog, and no catalog is given; "
            f"in Python the source is accel.tables.{name}(catalog, name)"
        )
    if catalog is not None and not found.by_catalog:
        raise ValueError(f"a table of {found.title} is named by its directory, and by no catalog")
    options = {"version": version, "timestamp": timestamp, "storage_options": storage_options}
    given = {key: value for key, value in options.items() if value is not None}
    if catalog is None:
        return found.module.open_directory(os.fsdecode(url), **given)
    return found.module.open_in_catalog(catalog, os.fsdecode(url), **given)


def settle_source(
    source: Any,
    arguments: Mapping[str, Any],
    *,
    catalog: str | None = None,
    version: int | None = None,
    timestamp: Any = None,
) -> tuple[Any, dict[str, Any]]:
    """Return a source and the arguments of a scan, where a table that is named has become one.

    An opened table of a format's own library becomes a source, a path becomes one where `table=` names a
    format. The storage options of a table count where the scan is given none, and no store.

    Parameters
    ----------
    source
        As for `accel.scan`.
    arguments : mapping
        The other arguments of `accel.scan`.
    catalog, version, timestamp : optional
        As for `table_at`; the source is a path or a name then, and `table=` names a format.

    Raises
    ------
    ValueError
        `table=` names a format that is not built, or does not go with the source.
    """
    given = dict(arguments)
    name = given.get("table", "auto")
    package = type(source).__module__.partition(".")[0]
    if package in _PACKAGES:
        source = _PACKAGES[package].module.of_opened(source)
    elif isinstance(name, str) and name != "auto":
        if not isinstance(source, str | os.PathLike):
            table_at(name, "table", catalog=catalog)  # refuses a format that there is not
            raise ValueError(f"{name!r} is the format of a table, which is one path, or one name")
        source = table_at(name, source, catalog=catalog, version=version, timestamp=timestamp)
        given["table"] = "auto"
    elif version is not None or timestamp is not None:
        names = " or ".join(f'`table="{one.name}"`' for one in FORMATS.values() if one.by_directory)
        raise ValueError(f"a version or a timestamp is of a table: it needs {names}")
    elif catalog is not None:
        names = " or ".join(one.name for one in FORMATS.values() if one.by_catalog)
        raise ValueError(f"a catalog names tables: it needs their format as `table=`, {names}")
    if isinstance(source, Table):
        if name is None:
            raise TableFormatError("`table=None` reads the files of paths, and the source is a table")
        columns = given.get("columns")
        source, numbered = source.with_columns(columns if isinstance(columns, list | tuple) else ())
        if numbered is not None:
            if given.get("row_number") not in (None, numbered):
                raise ValueError(
                    f"rows have one number each: {numbered!r}, or what row_number names, not both"
                )
            given["row_number"] = numbered
        if given.get("storage_options") is None and given.get("store") is None:
            own = source.storage_options
            if own is not None:
                given["storage_options"] = own
    return source, given
