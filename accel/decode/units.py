"""What is decoded as one array, and what one call of pyarrow can decode at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa

from accel.decode.arrow import translate_errors
from accel.decode.chunks import ChunkPages
from accel.decode.dictionary_decode import longest_text, stays_indexed
from accel.decode.extensions import is_composite
from accel.decode.verify import PageFacts
from accel.errors import ParquetFormatError
from accel.format.model import ParquetSchema, Repetition

__all__ = ["Unit", "Verified", "cut_units", "group_units", "most_text", "step_of"]


@dataclass(frozen=True, slots=True, eq=False)
class Unit:
    """What is decoded as one array: a leaf, or a whole top-level field."""

    field: int
    """Position in the output."""
    leaves: tuple[int, ...]
    num_rows: int
    indexed: bool
    """Read as indices into its dictionary."""
    joined: bool = False
    """Several leaves with lists, which pyarrow puts together as it does in the file itself: of just as many rows, or
    the lists of one might hide what another lacks."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Verified:
    """The pages of one call, and what is known of them."""

    schema: ParquetSchema
    chunks: Mapping[int, ChunkPages]
    facts: Mapping[int, PageFacts]
    """Of the leaves that are read."""
    memory_limit: int | None
    place: Callable[[Iterable[int]], str]
    """Names leaves in errors."""


def cut_units(verified: Verified, fields: Sequence[int], *, arrow_schema: pa.Schema) -> list[Unit]:
    """Of each field: one unit where its pages align for certain, else one a leaf; so too where an extension type is put
    around them."""
    units: list[Unit] = []
    for position, field in enumerate(fields):
        start, stop = verified.schema.field_leaves[field]
        leaves = tuple(leaf for leaf in range(start, stop) if leaf in verified.facts)
        kind = arrow_schema.field(position).type
        chunks = [verified.chunks[leaf] for leaf in leaves]
        listed = any(verified.schema.leaves[leaf].max_repetition for leaf in leaves)
        if len(leaves) == 1 or (
            not is_composite(kind)
            and _aligned(chunks)
            and (not listed or all(chunk.whole for chunk in chunks))
        ):
            unit = _unit(verified, position, leaves, kind)
            if listed:
                _check_lists(verified, leaves)
            units.append(replace(unit, joined=True) if listed and len(leaves) > 1 else unit)
            continue
        units.extend(_unit(verified, position, (leaf,), kind) for leaf in leaves)
    return units


def _check_lists(verified: Verified, leaves: Sequence[int]) -> None:
    """That leaves of the very same lists have as many level values in whole chunks.

    Raises
    ------
    ParquetFormatError
        They have not.
    """
    elements = verified.schema.elements
    counts: dict[tuple[int, ...], tuple[int, int]] = {}
    for leaf in leaves:
        node = verified.schema.leaves[leaf]
        around = [*node.ancestors, node.element]
        lists = tuple(at for at in around if elements[at].repetition is Repetition.REPEATED)
        values = verified.facts[leaf].num_values
        other, count = counts.setdefault(lists, (leaf, values))
        if values != count:
            raise ParquetFormatError(
                f"{count} and {values} values of the same lists", place=verified.place((other, leaf))
            )


def group_units(units: Sequence[Unit], steps: Mapping[Unit, int]) -> list[list[Unit]]:
    """Units that one call of pyarrow can decode: of one row count, and at most one of a field, or one by steps."""
    batches: dict[tuple[int, int], list[Unit]] = {}
    seen: dict[int, int] = {}
    for number, unit in enumerate(units):
        turn = seen.get(unit.field, 0)
        seen[unit.field] = turn + 1
        key = (unit.num_rows, turn) if unit not in steps else (-1, number)
        batches.setdefault(key, []).append(unit)
    return list(batches.values())


def _aligned(chunks: Sequence[ChunkPages]) -> bool:
    """Whether each is the first page, or a whole chunk, and all of them have as many rows."""
    single = all(chunk.dictionary is None and chunk.first_rows.tolist() == [0] for chunk in chunks)
    return single and len({chunk.num_rows for chunk in chunks}) == 1


def _unit(verified: Verified, field: int, leaves: tuple[int, ...], kind: pa.DataType) -> Unit:
    leaf = leaves[0]
    chunk = verified.chunks[leaf]
    element = verified.schema.elements[verified.schema.leaves[leaf].element]
    num_rows = chunk.num_rows
    indexed = stays_indexed(kind, element, facts=verified.facts[leaf], codec=chunk.codec)
    return Unit(field, leaves, num_rows, indexed)


def step_of(verified: Verified, unit: Unit) -> int | None:
    """Rows to decode at once where values may grow beyond the limit: a dictionary can hold one long
    value that the pages name a million times. None where they cannot."""
    limit = verified.memory_limit
    if limit is None or unit.indexed:
        return None
    worst = max(most_text(verified, leaf, limit or 1) for leaf in unit.leaves)
    return None if worst <= limit else max(1, unit.num_rows * limit // worst)


def most_text(verified: Verified, leaf: int, limit: int) -> int:
    """Bytes that the texts of a leaf come to at most, as far as it takes to choose a step."""
    facts = verified.facts[leaf]
    if facts.dictionary is None:
        return facts.prefixed
    named = facts.dictionary.named * facts.dictionary.longest
    if named > _FEW_STEPS * limit:
        with translate_errors(place=partial(verified.place, (leaf,))):
            longest = longest_text(facts.dictionary.page, verified.chunks[leaf].codec)
            named = facts.dictionary.named * longest
    return facts.prefixed + named


_FEW_STEPS = 32
"""More of them than this, and it is worth knowing the longest text of the dictionary."""
