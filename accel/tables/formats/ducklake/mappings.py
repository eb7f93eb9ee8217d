"""Which columns of a file are meant: by field ids in files of DuckLake's own, by names in files that others
have written and that were added, whose paths may hold values of partitions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import unquote

import pyarrow as pa

from accel.errors import TableFormatError
from accel.planning.column_mapping import ColumnMapping, MappedColumn
from accel.tables.formats.ducklake.inlined import default_of, scalar_of
from accel.tables.formats.ducklake.metadata import LakeVersion
from accel.tables.formats.ducklake.types import LakeColumn

__all__ = ["LakeMappings"]

_NULL: Final = "__HIVE_DEFAULT_PARTITION__"
_NOWHERE: Final = "\ufdd1"
"""A noncharacter of Unicode: what no column of a file is called."""
_MOST: Final = 100_000
"""Different mappings of one version."""


class LakeMappings:
    """Finds the column mapping of each file of a version; files that are mapped alike share one.

    Parameters
    ----------
    found : LakeVersion
    rows : sequence of tuple
        As `metadata.read_mappings` returns them.

    Raises
    ------
    TableFormatError
        A default is no value of its column, or mappings contradict themselves.
    """

    def __init__(self, found: LakeVersion, rows: Sequence[tuple[Any, ...]]) -> None:
        self._columns = found.columns
        self._defaults = {column.id: default_of(column) for column in found.columns}
        self.own = ColumnMapping([column.mapped(self._defaults[column.id]) for column in found.columns])
        """That of files of DuckLake's own."""
        self._added: dict[int, dict[int | None, list[tuple[Any, ...]]]] = {}
        for row in rows:
            self._added.setdefault(row[0], {}).setdefault(row[4], []).append(row)
        self._known: dict[tuple[Any, ...], ColumnMapping] = {}

    def of(self, mapping: int | None, url: str) -> ColumnMapping:
        """Return the mapping of a file.

        Parameters
        ----------
        mapping : int or None
            The mapping that the catalog names; None for files of DuckLake's own.
        url : str

        Raises
        ------
        TableFormatError
            There is no such mapping, or the path lacks a value of a partition.
        """
        if mapping is None:
            return self.own
        below = self._added.get(mapping)
        if below is None:
            raise TableFormatError(
                f"the catalog has no mapping {str(mapping)[:40]}, which a file names", path=url
            )
        partitions = [row for row in below.get(None, ()) if row[5]]
        segments = _segments(url) if partitions else {}
        values = tuple(segments.get(str(row[2])) for row in partitions)
        key = (mapping, *values)
        known = self._known.get(key)
        if known is None:
            if len(self._known) >= _MOST:
                raise TableFormatError(f"more than {_MOST} partitions of added files", path=url)
            for row, value in zip(partitions, values, strict=True):
                if value is None:
                    raise TableFormatError(f"the path has no value of {str(row[2])[:80]!r}", path=url)
            constants = {row[3]: value for row, value in zip(partitions, values, strict=True)}
            known = self._known[key] = self._make(below, constants)
        return known

    def _make(
        self, below: Mapping[int | None, Sequence[tuple[Any, ...]]], constants: Mapping[int, str | None]
    ) -> ColumnMapping:
        named = {row[3]: row for row in below.get(None, ()) if not row[5]}
        columns = []
        for column in self._columns:
            default = self._defaults[column.id]
            if column.id in constants:
                text = constants[column.id]
                default = None if text is None or text == _NULL else scalar_of(unquote(text), column)
                columns.append(MappedColumn(column.name, f"{_NOWHERE}{column.id}", default=default))
            elif column.id in named:
                columns.append(_named(column, named[column.id], below, default))
            else:
                columns.append(MappedColumn(column.name, f"{_NOWHERE}{column.id}", default=default))
        return ColumnMapping(columns)


def _named(
    column: LakeColumn,
    row: Sequence[Any],
    below: Mapping[int | None, Sequence[tuple[Any, ...]]],
    default: pa.Scalar | None = None,
) -> MappedColumn:
    if not isinstance(row[2], str) or not row[2]:
        raise TableFormatError(f"a mapping of the column {column.name!r} has no name")
    children = {one[3]: one for one in below.get(row[1], ())}
    parts = tuple(
        _named(child, children[child.id], below) for child in column.children if child.id in children
    )
    if column.type.lower() == "struct":
        # A struct of which the file has no field that is left: all of its fields are others.
        parts = parts or (MappedColumn(column.name, _NOWHERE),)
        return MappedColumn(column.name, row[2], fields=parts, default=default)
    if len(parts) < len(column.children):
        raise TableFormatError(f"a mapping of the column {column.name!r} lacks what is below it")
    return MappedColumn(column.name, row[2], elements=parts, default=default)


def _segments(url: str) -> dict[str, str]:
    """Return the values that a path spells, as it spells them."""
    pairs = (segment.partition("=") for segment in url.split("/")[:-1] if "=" in segment)
    return {unquote(name): value for name, _, value in pairs}
