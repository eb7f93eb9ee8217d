"""Units that have a faster way than a place in the spliced file."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeAlias

import pyarrow as pa

from accel.decode.arrow import translate_errors
from accel.decode.chunks import ChunkPages
from accel.decode.indexed import join_arrays
from accel.decode.mixed import split_pages
from accel.decode.plain import may_be_plain, read_plain
from accel.decode.trim import place_rows
from accel.decode.units import Unit, Verified
from accel.planning.selection import RowSelection

__all__ = ["DecodePart", "read_apart"]

DecodePart: TypeAlias = Callable[[ChunkPages, RowSelection, pa.Field], pa.Array | pa.ChunkedArray]
"""Decodes rows of some pages of one column, in the common way."""


def read_apart(
    known: Verified,
    unit: Unit,
    rows: RowSelection,
    field: pa.Field,
    *,
    verify_checksums: bool,
    decode: DecodePart,
) -> pa.ChunkedArray | None:
    """The selected rows of a unit, which is the field, where it has a way of its own; else None.

    Raises
    ------
    ParquetFormatError
        The pages do not decode.
    """
    if len(unit.leaves) > 1:
        return None
    array = _plain(known, unit, rows, field.type, verify_checksums)
    if array is not None:
        return pa.chunked_array([array])
    parts = split_pages(known, unit, field.type)
    if parts is None:
        return None
    arrays: list[pa.Array] = []
    for part in parts:
        inside = rows.within(int(part.first_rows[0]), int(part.stop_rows[-1]))
        found = decode(part, inside, field)
        arrays.extend(found.chunks if isinstance(found, pa.ChunkedArray) else [found])
    return join_arrays(arrays, _MOST_COPIED)


_MOST_COPIED = 1 << 20
"""More bytes stay in two chunks: fresh memory for both costs as much as decoding them."""


def _plain(
    known: Verified, unit: Unit, rows: RowSelection, kind: pa.DataType, verify_checksums: bool
) -> pa.Array | None:
    leaf = known.schema.leaves[unit.leaves[0]]
    element, facts = known.schema.elements[leaf.element], known.facts[leaf.ordinal]
    if not may_be_plain(kind, element, leaf, facts):
        return None
    chunk = known.chunks[leaf.ordinal]
    with translate_errors(place=partial(known.place, unit.leaves)):
        return read_plain(
            chunk,
            facts,
            place_rows(chunk, rows),
            kind=kind,
            width=element.type_length,
            optional=leaf.max_definition > 0,
            verify_checksums=verify_checksums,
        )
