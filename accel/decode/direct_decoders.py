"""Units that accel decodes itself, because that is faster than by pyarrow from the spliced file."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import partial
from operator import itemgetter
from typing import TypeAlias

import pyarrow as pa

from accel.decode.arrow import translate_errors
from accel.decode.dictionary_decode import MOST_PICKED, read_picks
from accel.decode.plain_pages import DataPage, data_pages, form_of, is_plain, read_plain
from accel.decode.trim import place_rows
from accel.decode.units import Unit, Verified
from accel.memory import pool
from accel.planning.selection import RowSelection

__all__ = ["direct_units", "read_directly"]


Read: TypeAlias = "Callable[[Sequence[DataPage], RowSelection], pa.Array | None]"
"""Reads rows of pages of one kind."""


def direct_units(verified: Verified, units: Sequence[Unit], rows: RowSelection) -> Sequence[Unit]:
    """Return the units that a direct decoder may take.

    Where most rows are wanted of several units that pyarrow decodes fast, it decodes these from one file.
    """
    if len(units) < SEVERAL:
        return units
    wanted = rows.count * _FEW
    dense = {unit for unit in units if unit.num_rows < wanted and _is_light(verified, unit)}
    return units if len(dense) < SEVERAL else [unit for unit in units if unit not in dense]


def _is_light(verified: Verified, unit: Unit) -> bool:
    """Return whether a unit has few rows, all of them dictionary-encoded, and no more entries than rows."""
    named = verified.facts[unit.leaves[0]].sole_dictionary
    return named is not None and named.entries <= unit.num_rows <= MOST_PICKED


SEVERAL = 4
"""The number of columns for which a file is worth opening."""
_FEW = 2
"""If less than one in this many rows is wanted, picking them is faster in any case."""
_JOINED = 16 << 20
"""Bytes of arrays up to which they are copied into one."""
RARE = 64
"""If less than one in this many rows is wanted of many, picking them is faster than decoding all."""
_MANY_PAGES = 16
_LEAST_VALUES = 512
"""With fewer values a page, what Python takes for each of many pages is more than pyarrow takes for all."""


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
    named, encoded = facts.dictionary, facts.encoded.tolist()
    if any(encoded) and (named is None or _are_many(unit, rows, mixed=not all(encoded))):
        return None
    if len(encoded) >= _MANY_PAGES and unit.num_rows < _LEAST_VALUES * len(encoded):
        return None
    pages = data_pages(chunk, facts)
    if not all(
        coded or is_plain(page, form, optional=optional) for page, coded in zip(pages, encoded, strict=True)
    ):
        return None
    with translate_errors(place=partial(verified.place, unit.leaves)):
        placed = place_rows(chunk, rows)
        pick = None
        if named is not None:
            pick = partial(
                read_picks,
                named=named,
                codec=chunk.codec,
                element=element,
                kind=kind,
                form=form,
                optional=optional,
                memory_limit=verified.memory_limit,
            )
        plain = partial(read_plain, kind=kind, form=form, optional=optional)
        array = _read_stretches(pages, encoded, placed, pick, plain)
    if array is None and left is not None:
        left.append(leaf.ordinal)
    return array


def _read_stretches(
    pages: Sequence[DataPage],
    encoded: Sequence[bool],
    rows: RowSelection,
    pick: Read | None,
    plain: Read,
) -> pa.ChunkedArray | None:
    """Return rows of pages that follow each other; None where one cannot be read.

    Writers encode the first pages by a dictionary, and once it is full the others plainly.
    """
    arrays: list[pa.Array] = []
    start = 0
    for coded, group in itertools.groupby(zip(encoded, pages, strict=True), key=itemgetter(0)):
        some = [page for _, page in group]
        stop = start + sum(page.num_values for page in some)
        own = rows
        if len(some) < len(pages):
            part = rows.within(start, stop)
            own = RowSelection(part.starts - start, part.stops - start)
        start = stop
        read = pick if coded else plain
        if own:
            array = None if read is None else read(some, own)
            if array is None:
                return None
            arrays.append(array)
    if len(arrays) > 1 and sum(array.nbytes for array in arrays) <= _JOINED:
        arrays = [pa.concat_arrays(arrays, memory_pool=pool())]
    return pa.chunked_array(arrays)


def _are_many(unit: Unit, rows: RowSelection, *, mixed: bool) -> bool:
    """Return whether so many rows are wanted that pyarrow decodes the dictionary-encoded pages faster; where
    they are `mixed` with PLAIN pages, it would decode those as well."""
    return unit.num_rows > MOST_PICKED and rows.count * (_FEW if mixed else RARE) > unit.num_rows
