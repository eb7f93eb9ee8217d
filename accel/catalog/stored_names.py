"""The names by which a catalog knows the columns of a table: those that outlive a rename.

Files of a table may have other names for columns than the table has by now. A catalog goes by the names in
the files where these identify a column, and by field ids otherwise, so that it serves every version of the
table.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from cachetools import LRUCache

from accel.decode.arrow import arrow_schema
from accel.options import Int96Unit
from accel.planning.column_mapping import ColumnMapping
from accel.planning.file_entry import FileEntry
from accel.planning.handle import FileHandle
from accel.predicate.atoms import Bound

__all__ = ["StoredNames", "bound_to_stored", "mappings_of"]

_MOST_FORMS = 256
"""Schemas of files that are remembered under other names."""


class StoredNames:
    """Shows opened files under other names of their columns; files of one schema share what is made for
    them."""

    def __init__(self) -> None:
        self._forms: LRUCache[tuple[object, ...], tuple[object, ...]] = LRUCache(_MOST_FORMS)

    def view(self, handle: FileHandle, columns: ColumnMapping | None) -> FileHandle:
        """Return a file under the names of a mapping; itself where there is none.

        Raises
        ------
        TableFormatError
            Two columns of the file are the same one of the data set.
        """
        if columns is None:
            return handle
        handle.pack()
        shared = handle.shared
        schema = columns.relabel(shared.schema)
        key = id(schema), id(shared), columns.int96_unit
        # What the ids are of stays alive with the entry.
        found = self._forms.get(key)
        if found is None:
            unit = Int96Unit(columns.int96_unit or Int96Unit.NS)
            arrow = arrow_schema(schema, shared.key_value, int96_unit=unit)
            found = self._forms[key] = schema, shared, replace(shared, schema=schema), arrow
        return handle.relabelled(found[2], found[3])  # type: ignore[arg-type]


def mappings_of(files: Iterable[FileEntry]) -> list[ColumnMapping | None]:
    """Return the different mappings of some files, in order."""
    return list({id(file.columns): file.columns for file in files}.values())


def bound_to_stored(
    bound: Bound, mappings: Sequence[ColumnMapping | None], *, constant: frozenset[str]
) -> Bound | None:
    """Return a predicate over the names that a catalog has; None where files have several names for a column.

    Parameters
    ----------
    bound : Bound
        The predicate over the names of the data set.
    mappings : sequence of ColumnMapping or None
        Those of the files.
    constant : frozenset of str
        Columns whose values do not come from the files, and that keep their names.
    """
    columns = []
    for column in bound.columns:
        if column.path[0] in constant:
            columns.append(column)
            continue
        paths = {column.path if one is None else one.stored_path(column.path) for one in mappings}
        path = paths.pop()
        if paths or path is None or path[0] in constant:
            return None
        columns.append(replace(column, path=path))
    if len({column.path for column in columns}) < len(columns):
        return None
    return Bound(tuple(columns), bound.root)
