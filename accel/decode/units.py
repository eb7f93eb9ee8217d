"""Units, which are decoded as one array each, and the units that one call of pyarrow can decode."""

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
    """A leaf or a whole top-level field, which is decoded as one array."""

    field: int
    """Position in the output."""
    leaves: tuple[int, ...]
    num_rows: int
    indexed: bool
    """Whether it is read as indices into its dictionary."""
    joined: bool = False
    """Whether it has several leaves with lists, which pyarrow puts together.

    They must have the same number of rows, or the lists of one might hide what another lacks."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Verified:
    """The pages of one call, after their headers have been verified."""

    schema: ParquetSchema
    chunks: Mapping[int, ChunkPages]
    facts: Mapping[int, PageFacts]
    """By leaf, for those that are read."""
    memory_limit: int | None
    place: Callable[[Iterable[int]], str]
    """Names leaves in errors."""


def cut_units(verified: Verified, fields: Sequence[int], *, arrow_schema: pa.Schema) -> list[Unit]:
    """Return the units of each field: one if its pages certainly align, else one for each leaf.

    A field of a composite extension type has one for each leaf, too."""
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
    """Verify that leaves of the same lists have the same number of level values in whole chunks.

    Raises
    ------
    ParquetFormatError
        The numbers differ.
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
    """Group the units that one call of pyarrow can decode: with one row count and different fields, or one in
    steps."""
    batches: dict[tuple[int, int], list[Unit]] = {}
    seen: dict[int, int] = {}
    for number, unit in enumerate(units):
        ordinal = seen.get(unit.field, 0)
        seen[unit.field] = ordinal + 1
        key = (unit.num_rows, ordinal) if unit not in steps else (-1, number)
        batches.setdefault(key, []).append(unit)
    return list(batches.values())


def _aligned(chunks: Sequence[ChunkPages]) -> bool:
    """Return whether each is the first page or a whole chunk, and all have the same number of rows."""
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
    """Return the number of rows to decode at once if the values may exceed the limit, else None.

    They may because a dictionary can hold one long value to which the pages refer a million times.
    """
    limit = verified.memory_limit
    if limit is None or unit.indexed:
        return None
    worst = max(most_text(verified, leaf, limit or 1) for leaf in unit.leaves)
    return None if worst <= limit else max(1, unit.num_rows * limit // worst)


def most_text(verified: Verified, leaf: int, limit: int) -> int:
    """Return the most bytes that the texts of a leaf can take, as exactly as choosing a step needs it."""
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
"""If there are more steps than this, the longest text of the dictionary is determined."""
