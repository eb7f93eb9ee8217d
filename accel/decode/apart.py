"""Units that have a faster way than a place in the spliced file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeAlias, TypeVar

import pyarrow as pa

from accel.decode.arrow import translate_errors
from accel.decode.bodies import DataPage, data_pages
from accel.decode.chunks import ChunkPages
from accel.decode.forms import Form, form_of
from accel.decode.indexed import join_arrays
from accel.decode.picks import MOST_PICKED, read_picks
from accel.decode.plain import read_plain
from accel.decode.trim import place_rows, trim
from accel.decode.units import Unit, Verified
from accel.format.model import Codec
from accel.planning.selection import RowSelection

if TYPE_CHECKING:
    from accel.decode.mixed import Way

__all__ = ["DecodePart", "read_apart", "units_apart"]

_Read = TypeVar("_Read", bound="pa.Array | pa.ChunkedArray | None")
DecodePart: TypeAlias = Callable[[ChunkPages, RowSelection, pa.Field], pa.Array | pa.ChunkedArray]
"""Decodes rows of some pages of one column, in the common way."""


def units_apart(known: Verified, units: Sequence[Unit], rows: RowSelection) -> Sequence[Unit]:
    """The units that may be read apart: where most rows of several are wanted that pyarrow decodes soon, from one file,
    all others."""
    if len(units) < _SEVERAL:
        return units
    wanted = rows.count * _FEW
    dense = {unit for unit in units if unit.num_rows < wanted and _is_light(known, unit)}
    return units if len(dense) < _SEVERAL else [unit for unit in units if unit not in dense]


def _is_light(known: Verified, unit: Unit) -> bool:
    """Whether its rows are few, all dictionary-encoded, and the entries no more than they."""
    named = known.facts[unit.leaves[0]].sole_dictionary
    return named is not None and named.entries <= unit.num_rows <= MOST_PICKED


def read_apart(
    known: Verified,
    unit: Unit,
    rows: RowSelection,
    field: pa.Field,
    *,
    decode: DecodePart,
    left: list[int] | None = None,
) -> pa.ChunkedArray | None:
    """The selected rows of a unit, which is the field, where it has a way of its own; else None.

    Where that way was begun and has met a page that it does not take, `left` is given the leaf.

    Raises
    ------
    ParquetFormatError
        The pages do not decode.
    """
    leaf = known.schema.leaves[unit.leaves[0]]
    if len(unit.leaves) > 1 or leaf.max_repetition or len(leaf.path) > 1:
        return None
    facts = known.facts[leaf.ordinal]
    coded = bool(facts.encoded.all())
    if coded and facts.dictionary is None:
        return None
    form = form_of(field.type, known.schema.elements[leaf.element])
    if coded and unit.num_rows > MOST_PICKED and rows.count * _RARE > unit.num_rows:
        bare = known.chunks[leaf.ordinal].codec in _WITH_CONTEXTS and len(facts.encoded) >= _LEAST_PAGES
        found = _read_coded(known, unit, field.type, form, rows) if bare else None
        return _or_left(found, left if bare else None, leaf.ordinal)
    pages = [] if form is None else data_pages(known.chunks[leaf.ordinal], facts)
    if coded:
        if form is None:
            return None
        array = _or_left(_pick(known, unit, field.type, pages, form, rows), left, leaf.ordinal)
        return None if array is None else pa.chunked_array([array])
    from accel.decode.mixed import cut_pages, cut_ways

    ways = cut_ways(known, unit, kind=field.type, form=form, pages=pages, wanted=rows.count)
    if not ways:
        return None
    read = partial(_read_pages, known, unit, field.type, pages, form)
    if len(ways) == 1:
        array = _or_left(read(ways[0], rows), left, leaf.ordinal)
        return None if array is None else pa.chunked_array([array])
    arrays: list[pa.Array] = []
    for way in ways:
        part = cut_pages(known, leaf.ordinal, start=way.start, stop=way.stop)
        inside = rows.within(int(part.first_rows[0]), int(part.stop_rows[-1]))
        if not inside:
            continue
        found = _or_left(read(way, inside), left, leaf.ordinal) if way.plain else None
        if found is None:
            found = decode(part, inside, field)
        arrays.extend(found.chunks if isinstance(found, pa.ChunkedArray) else [found])
    return join_arrays(arrays, _MOST_COPIED)


def _or_left(found: _Read, left: list[int] | None, leaf: int) -> _Read:
    """What was read of a leaf; where that is nothing, `left` is given the leaf."""
    if found is None and left is not None:
        left.append(leaf)
    return found


_SEVERAL = 4
"""So many columns are worth opening a file for that holds all of them."""
_FEW = 2
"""If no more than one in so many rows is wanted, picking them is faster all the same."""
_RARE = 64
"""Of many rows, one in so many is picked for less than pyarrow decodes them all for."""
_WITH_CONTEXTS = frozenset({Codec.ZSTD})
"""Codecs for which pyarrow makes a context a page."""
_LEAST_PAGES = 12
"""The contexts of so many take longer than the way round them."""
_KEPT_SHARE = 2
"""A slice of less than one part in this many is taken by itself, so that it does not hold all the rest."""
_MOST_COPIED = 1 << 20
"""More bytes stay in two chunks: fresh memory for both costs as much as decoding them."""


def _read_coded(
    known: Verified,
    unit: Unit,
    kind: pa.DataType,
    form: Form | None,
    rows: RowSelection,
) -> pa.ChunkedArray | None:
    """The selected rows of pages that are all dictionary-encoded, where many rows are wanted."""
    leaf = known.schema.leaves[unit.leaves[0]]
    chunk, facts = known.chunks[leaf.ordinal], known.facts[leaf.ordinal]
    if facts.dictionary is None:
        return None
    from accel.decode.coded import read_coded

    with translate_errors(place=partial(known.place, unit.leaves)):
        array = read_coded(
            data_pages(chunk, facts),
            named=facts.dictionary,
            codec=chunk.codec,
            element=known.schema.elements[leaf.element],
            kind=kind,
            form=form,
            optional=leaf.max_definition > 0,
        )
        return None if array is None else trim(array, place_rows(chunk, rows))


def _pick(
    known: Verified,
    unit: Unit,
    kind: pa.DataType,
    pages: Sequence[DataPage],
    form: Form,
    rows: RowSelection,
) -> pa.Array | None:
    """The selected rows of pages that are all dictionary-encoded; None where they are read in the common way."""
    leaf = known.schema.leaves[unit.leaves[0]]
    chunk, named = known.chunks[leaf.ordinal], known.facts[leaf.ordinal].dictionary
    limit = known.memory_limit
    if named is None or (limit is not None and named.longest * rows.count > limit):
        return None
    with translate_errors(place=partial(known.place, unit.leaves)):
        return read_picks(
            pages,
            place_rows(chunk, rows),
            named=named,
            codec=chunk.codec,
            element=known.schema.elements[leaf.element],
            kind=kind,
            form=form,
            optional=leaf.max_definition > 0,
        )


def _read_pages(
    known: Verified,
    unit: Unit,
    kind: pa.DataType,
    pages: Sequence[DataPage],
    form: Form | None,
    way: Way,
    rows: RowSelection,
) -> pa.Array | None:
    """The selected rows of pages that may be read as they lie; None where they cannot."""
    if form is None:
        return None
    leaf = known.schema.leaves[unit.leaves[0]]
    placed = place_rows(known.chunks[leaf.ordinal], rows)
    first, stop = way.start, way.stop
    ends = known.facts[leaf.ordinal].page_values.cumsum()
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
    with translate_errors(place=partial(known.place, unit.leaves)):
        array = read_plain(
            pages[first:stop],
            wanted,
            kind=kind,
            form=form,
            optional=leaf.max_definition > 0,
        )
    return array.slice(low - before, high - low) if cut and array is not None else array
