"""Columns that an argument of a writer names."""

from __future__ import annotations

import pyarrow as pa

from accel.planning.projection import nearest_names

__all__ = ["find_column"]


def find_column(name: str, schema: pa.Schema, argument: str) -> int:
    """Return the position of a column.

    Parameters
    ----------
    name : str
    schema : pyarrow.Schema
    argument : str
        What names the column, for errors.

    Raises
    ------
    ValueError
        There is no such column, or there are several.
    """
    found = schema.get_all_field_indices(name)
    if len(found) > 1:
        raise ValueError(f"{argument}: there are several columns named {name!r}")
    if not found:
        raise ValueError(f"{argument}: no column {name!r} ({nearest_names(name, schema.names)})")
    return int(found[0])
