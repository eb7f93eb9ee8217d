"""Structs of which a plan uses some fields: these alone are read, and the others are null.

The plan goes on to name the fields of the whole struct by their places, so that a read gives it the whole
type. What nobody looks at may be null; whether the struct itself is null stays true.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from accel.planning.projection import find_type

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

    from accel.spark.catalyst import Leaf

__all__ = ["fields_to_read", "whole_structs"]

_PLAIN: Final = re.compile(r"\w+")


def fields_to_read(names: Sequence[str], leaf: Leaf, columns: pa.Schema) -> list[str] | None:
    """Return the columns to read, with dotted paths in the place of structs that are used in part.

    Parameters
    ----------
    names : sequence of str
        The columns that are used.
    leaf : Leaf
    columns : pyarrow.Schema
        All columns of the files.

    Returns
    -------
    list of str or None
        None where no struct is used in part.
    """
    found: list[str] = []
    for name in names:
        paths = leaf.fields.get(name)
        kind = columns.field(name).type if columns.get_field_index(name) >= 0 else None
        if paths is None or kind is None or not _is_plain(name, kind):
            found.append(name)
            continue
        dotted = [".".join((name, *path)) for path in _shortest(paths) or [(_narrowest(kind),)]]
        known = all(find_type(kind, path.split(".")[1:]) is not None for path in dotted)
        clear = not set(dotted) & set(columns.names)
        found += dotted if known and clear else [name]
    return found if found != list(names) else None


def _is_plain(name: str, kind: pa.DataType) -> bool:
    """Return whether names of fields are told apart by Spark, and are no paths themselves."""
    if not pa.types.is_struct(kind) or not kind.num_fields or not _PLAIN.fullmatch(name):
        return False
    fields = [kind.field(at) for at in range(kind.num_fields)]
    return len({field.name.lower() for field in fields}) == len(fields) and all(
        _PLAIN.fullmatch(field.name)
        and (not pa.types.is_struct(field.type) or _is_plain(field.name, field.type))
        for field in fields
    )


def _shortest(paths: Iterable[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Return the paths without those that lie within others."""
    found: list[tuple[str, ...]] = []
    for path in sorted(paths):
        if not found or path[: len(found[-1])] != found[-1]:
            found.append(path)
    return found


def _narrowest(kind: pa.DataType) -> str:
    """Return the field of a struct that tells for the least bytes where the struct is null."""
    fields = [kind.field(at) for at in range(kind.num_fields)]
    widths = [field.type.bit_width if pa.types.is_primitive(field.type) else 1 << 20 for field in fields]
    return str(fields[widths.index(min(widths))].name)


def whole_structs(frame: DataFrame, schema: StructType) -> DataFrame:
    """Return a DataFrame whose structs have all their fields: null where they were not read.

    Parameters
    ----------
    frame : DataFrame
        What was read.
    schema : StructType
        The columns with all their fields; it may have columns that were not read.
    """
    from pyspark.sql import functions

    columns = []
    for have in frame.schema:
        column, kind = functions.col(f"`{have.name.replace('`', '``')}`"), schema[have.name].dataType
        if have.dataType.simpleString() != kind.simpleString():
            column = _whole(column, have.dataType, kind).cast(kind).alias(have.name)
        columns.append(column)
    return frame.select(*columns)


def _whole(column: Column, have: Any, whole: Any) -> Column:
    from pyspark.sql import functions
    from pyspark.sql.types import StructType

    fields = []
    for field in whole:
        if field.name not in have.names:
            made = functions.lit(None).cast(field.dataType)
        else:
            made, of = column.getField(field.name), have[field.name].dataType
            if isinstance(of, StructType) and of.simpleString() != field.dataType.simpleString():
                made = _whole(made, of, field.dataType)
        fields.append(made.alias(field.name))
    return functions.when(column.isNotNull(), functions.struct(*fields))
