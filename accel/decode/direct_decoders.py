"""Units that have a faster way than a place in the spliced file."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import pyarrow as pa

from accel.decode.arrow import translate_errors
from accel.decode.dictionary_decode import MOST_PICKED, read_picks
from accel.decode.plain_pages import DataPage, Form, data_pages, form_of, is_plain, read_plain
from accel.decode.trim import place_rows
from accel.decode.units import Unit, Verified
from accel.planning.selection import RowSelection

__all__ = ["direct_units", "read_directly"]


def direct_units(verified: Verified, units: Sequence[Unit], rows: RowSelection) -> Sequence[Unit]:
    """The units that may be read apart: where most rows of several are wanted that pyarrow decodes soon, from one file,
    all others."""
    if len(units) < _SEVERAL:
        return units
    wanted = rows.count * _FEW
    dense = {unit for unit in units if unit.num_rows < wanted and _is_light(verified, unit)}
    return units if len(dense) < _SEVERAL else [unit for unit in units if unit not in dense]


def _is_light(verified: Verified, unit: Unit) -> bool:
    """Whether its rows are few, all dictionary-encoded, and the entries no more than they."""
    named = verified.facts[unit.leaves[0]].sole_dictionary
    return named is not None and named.entries <= unit.num_rows <= MOST_PICKED


def read_directly(
    verified: Verified,
    unit: Unit,
    rows: RowSelection,
    field: pa.Field,
    *,
    left: list[int] | None = None,
) -> pa.ChunkedArray | None:
    """The selected rows of a unit, which is the field, where it has a way of its own; else None.

    Where that way was begun and has met a page that it does not take, `left` is given the leaf.

    Raises
    ------
    ParquetFormatError
        The pages do not decode.
    """
    leaf = verified.schema.leaves[unit.leaves[0]]
    if len(unit.leaves) > 1 or leaf.max_repetition or len(leaf.path) > 1:
        return None
    facts = verified.facts[leaf.ordinal]
    form = form_of(field.type, verified.schema.elements[leaf.element])
    if form is None:
        return None
    encoded = bool(facts.encoded.all())
    if encoded and (facts.dictionary is None or _are_many(unit, rows)):
        return None
    pages = data_pages(verified.chunks[leaf.ordinal], facts)
    if encoded:
        array = _pick(verified, unit, field.type, pages, form, rows)
    elif all(is_plain(page, form, optional=leaf.max_definition > 0) for page in pages):
        array = _read_pages(verified, unit, field.type, pages, form, rows)
    else:
        return None
    if array is None and left is not None:
        left.append(leaf.ordinal)
    return None if array is None else pa.chunked_array([array])


def _are_many(unit: Unit, rows: RowSelection) -> bool:
    return unit.num_rows > MOST_PICKED and rows.count * _RARE > unit.num_rows


_SEVERAL = 4
"""So many columns are worth opening a file for that holds all of them."""
_FEW = 2
"""If no more than one in so many rows is wanted, picking them is faster all the same."""
_RARE = 64
"""Of many rows, one in so many is picked for less than pyarrow decodes them all for."""
_KEPT_SHARE = 2
"""A slice of less than one part in this many is taken by itself, so that it does not hold all the rest."""


def _pick(
    verified: Verified,
    unit: Unit,
    kind: pa.DataType,
    pages: Sequence[DataPage],
    form: Form,
    rows: RowSelection,
) -> pa.Array | None:
    """The selected rows of pages that are all dictionary-encoded; None where they are read in the common way."""
    leaf = verified.schema.leaves[unit.leaves[0]]
    chunk, named = verified.chunks[leaf.ordinal], verified.facts[leaf.ordinal].dictionary
    limit = verified.memory_limit
    if named is None or (limit is not None and named.longest * rows.count > limit):
        return None
    with translate_errors(place=partial(verified.place, unit.leaves)):
        return read_picks(
            pages,
            place_rows(chunk, rows),
            named=named,
            codec=chunk.codec,
            element=verified.schema.elements[leaf.element],
            kind=kind,
            form=form,
            optional=leaf.max_definition > 0,
        )


def _read_pages(
    verified: Verified,
    unit: Unit,
    kind: pa.DataType,
    pages: Sequence[DataPage],
    form: Form,
    rows: RowSelection,
) -> pa.Array | None:
    """The selected rows of pages that may be read as they lie; None where they cannot."""
    leaf = verified.schema.leaves[unit.leaves[0]]
    placed = place_rows(verified.chunks[leaf.ordinal], rows)
    first, stop = 0, len(pages)
    ends = verified.facts[leaf.ordinal].page_values.cumsum()
    low, high = int(placed.starts[0]), int(placed.stops[-1])
    alone = len(placed.starts) == 1
    if alone:
        # Of pages next to each other all is read, and the ends are cut off.
        first, stop = int(ends.searchsorted(low, "right")), int(ends.searchsorted(high, "left")) + 1
    before, count = int(ends[first - 1]) if first else 0, int(ends[stop - 1])
    cut = alone and (high - low) * _KEPT_SHARE > count - before
    wanted = (
        RowSelection.all(count - before)
        if cut
        else RowSelection(placed.starts - before, placed.stops - before)
    )
    with translate_errors(place=partial(verified.place, unit.leaves)):
        array = read_plain(
            pages[first:stop],
            wanted,
            kind=kind,
            form=form,
            optional=leaf.max_definition > 0,
        )
    return array.slice(low - before, high - low) if cut and array is not None else array
