"""Units that accel decodes itself, because that is faster than by pyarrow from the spliced file."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import pyarrow as pa

from accel.decode.arrow import translate_errors
from accel.decode.dictionary_decode import MOST_PICKED, read_picks
from accel.decode.plain_pages import data_pages, form_of, is_plain, read_plain
from accel.decode.trim import place_rows
from accel.decode.units import Unit, Verified
from accel.decode.verify import DictionaryFacts
from accel.planning.selection import RowSelection

__all__ = ["direct_units", "read_directly"]


def direct_units(verified: Verified, units: Sequence[Unit], rows: RowSelection) -> Sequence[Unit]:
    """Return the units that a direct decoder may take.

    Where most rows are wanted of several units that pyarrow decodes fast, it decodes these from one file.
    """
    if len(units) < _SEVERAL:
        return units
    wanted = rows.count * _FEW
    dense = {unit for unit in units if unit.num_rows < wanted and _is_light(verified, unit)}
    return units if len(dense) < _SEVERAL else [unit for unit in units if unit not in dense]


def _is_light(verified: Verified, unit: Unit) -> bool:
    """Return whether a unit has few rows, all of them dictionary-encoded, and no more entries than rows."""
    named = verified.facts[unit.leaves[0]].sole_dictionary
    return named is not None and named.entries <= unit.num_rows <= MOST_PICKED


_SEVERAL = 4
"""The number of columns for which a file is worth opening."""
_FEW = 2
"""If less than one in this many rows is wanted, picking them is faster in any case."""
_RARE = 64
"""If less than one in this many rows is wanted of many, picking them is faster than decoding all."""


def read_directly(
    verified: Verified,
    unit: Unit,
    rows: RowSelection,
    field: pa.Field,
    *,
    left: list[int] | None = None,
) -> pa.ChunkedArray | None:
    """Return the selected rows of a unit that is a whole field, or None where pyarrow has to read them.

    `left` receives the leaf if decoding was begun and met a page that only pyarrow reads.

    Raises
    ------
    ParquetFormatError
        The pages do not decode.
    """
    leaf = verified.schema.leaves[unit.leaves[0]]
    if len(unit.leaves) > 1 or leaf.max_repetition or len(leaf.path) > 1:
        return None
    element, kind, optional = verified.schema.elements[leaf.element], field.type, leaf.max_definition > 0
    form = form_of(kind, element)
    if form is None:
        return None
    chunk, facts = verified.chunks[leaf.ordinal], verified.facts[leaf.ordinal]
    encoded = bool(facts.encoded.all())
    if encoded and (facts.dictionary is None or _are_many(unit, rows)):
        return None
    pages = data_pages(chunk, facts)
    if not encoded and not all(is_plain(page, form, optional=optional) for page in pages):
        return None
    placed = place_rows(chunk, rows)
    with translate_errors(place=partial(verified.place, unit.leaves)):
        if not encoded:
            array = read_plain(pages, placed, kind=kind, form=form, optional=optional)
        elif facts.dictionary is None or _exceeds(verified, facts.dictionary, rows):
            array = None
        else:
            array = read_picks(
                pages,
                placed,
                named=facts.dictionary,
                codec=chunk.codec,
                element=element,
                kind=kind,
                form=form,
                optional=optional,
            )
    if array is None and left is not None:
        left.append(leaf.ordinal)
    return None if array is None else pa.chunked_array([array])


def _are_many(unit: Unit, rows: RowSelection) -> bool:
    return unit.num_rows > MOST_PICKED and rows.count * _RARE > unit.num_rows


def _exceeds(verified: Verified, named: DictionaryFacts, rows: RowSelection) -> bool:
    """Return whether the texts of these rows may take more than the memory limit."""
    limit = verified.memory_limit
    return limit is not None and named.longest * rows.count > limit
