"""The pages of some units as one file in memory for pyarrow, and how many units each file has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import pyarrow as pa

from accel.decode.entries import splice_indices
from accel.decode.splice import SplicedChunk, SplicePlan, splice
from accel.decode.units import Unit, Verified
from accel.errors import ParquetFormatError
from accel.format.model import Codec

__all__ = ["cut_calls", "splice_units"]

_MOST_BARE: Final = 8 << 20
"""Bytes of pages that are decompressed beside one another: all of them are held until the last has been decoded."""


def cut_calls(known: Verified, units: Sequence[Unit]) -> list[list[Unit]]:
    """The units, those of a field together, by the file that they are decoded from: one, but where pages may be
    decompressed in it, and another for those that are `joined`."""
    joined = [unit for unit in units if unit.joined]
    if joined and len(joined) < len(units):
        others = [unit for unit in units if not unit.joined]
        return [*cut_calls(known, joined), *cut_calls(known, others)]
    if not any(known.chunks[leaf].codec == Codec.SNAPPY for unit in units for leaf in unit.leaves):
        return [list(units)]
    calls: list[list[Unit]] = []
    held = 0
    for unit in units:
        size = sum(known.facts[leaf].uncompressed for leaf in unit.leaves)
        if not calls or (held + size > _MOST_BARE and calls[-1][-1].field != unit.field):
            calls.append([])
            held = 0
        calls[-1].append(unit)
        held += size
    return calls


def splice_units(known: Verified, plan: SplicePlan, *, units: Sequence[Unit], num_rows: int) -> pa.Buffer:
    """A file of one row group that has the pages of these units; decompressed, where that is faster so.

    `num_rows` is that of `splice`.
    """
    leaves = [leaf for unit in units for leaf in unit.leaves]
    bare = _bare_chunks(known, plan, leaves)
    chunks = {leaf: bare.get(leaf) or _as_stored(known, plan, leaf) for leaf in leaves}
    try:
        return splice(plan, chunks, num_rows=num_rows)
    except ParquetFormatError:
        # pyarrow will say what is wrong with a page that does not decompress.
        return splice(plan, {leaf: _as_stored(known, plan, leaf) for leaf in leaves}, num_rows=num_rows)


def _as_stored(known: Verified, plan: SplicePlan, leaf: int) -> SplicedChunk:
    chunk, facts = known.chunks[leaf], known.facts[leaf]
    if leaf in plan.indexed and facts.dictionary is not None:
        return splice_indices(chunk, facts, named=facts.dictionary)
    return SplicedChunk(facts.parts, chunk.codec, facts.num_values, facts.uncompressed)


def _bare_chunks(known: Verified, plan: SplicePlan, leaves: Sequence[int]) -> Mapping[int, SplicedChunk]:
    """Those of the chunks whose pages are decompressed as they are spliced."""
    snappy = [leaf for leaf in leaves if known.chunks[leaf].codec == Codec.SNAPPY]
    if not snappy:
        return {}
    from accel.decode.bare import bare_chunk

    found: dict[int, SplicedChunk] = {}
    for leaf in snappy:
        chunk, facts = known.chunks[leaf], known.facts[leaf]
        bare = bare_chunk(chunk, facts, indexed=leaf in plan.indexed)
        if bare is not None:
            found[leaf] = bare
    return found
