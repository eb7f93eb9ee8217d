"""How many bytes the texts of lists come to, told before any of them is made.

One row may be a list that names one long entry of its dictionary a million times: no cut between rows bounds that.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import pyarrow as pa

from accel.decode.arrow import ParquetReader, open_reader, translate_errors
from accel.decode.indexed import MOST_JOINED, check_indices, named_bytes
from accel.decode.splice import SplicePlan
from accel.decode.units import Unit, Verified, most_text
from accel.errors import MemoryLimitError

__all__ = ["weigh_lists"]


def weigh_lists(
    known: Verified, steps: Mapping[Unit, int], *, plan: SplicePlan, data: pa.Buffer
) -> dict[Unit, int]:
    """The units that are still decoded by steps once the texts of their lists have been weighed.

    Parameters
    ----------
    steps : mapping
        What `step_of` gives.
    plan, data
        The file in memory that has their pages.

    Raises
    ------
    MemoryLimitError
        Those of a leaf come to more than the limit.
    ParquetFormatError
        The pages do not decode.
    """
    limit = known.memory_limit
    if limit is None:
        return dict(steps)
    return {unit: step for unit, step in steps.items() if not _fits(known, unit, plan, data, limit)}


def _fits(known: Verified, unit: Unit, plan: SplicePlan, data: pa.Buffer, limit: int) -> bool:
    sizes = [_weigh(known, leaf, plan, data, limit) for leaf in unit.leaves]
    return max(sizes) <= limit and sum(sizes) <= MOST_JOINED


def _weigh(known: Verified, leaf: int, plan: SplicePlan, data: pa.Buffer, limit: int) -> int:
    """Bytes of a leaf's texts; what they are at most where that is little, or where they are in no list."""
    most = most_text(known, leaf, limit)
    facts = known.facts[leaf]
    if most <= limit or facts.prefixed > limit or not known.schema.leaves[leaf].max_repetition:
        return most
    place = partial(known.place, (leaf,))
    with translate_errors(place=place):
        column = plan.column(leaf)
        reader = open_reader(data, coded=[column])
        # Of others than texts pyarrow makes no dictionaries; those that come so anyway stay as small as they are.
        if not _is_coded(reader, column) or _is_coded(open_reader(data), column):
            return most
        array = check_indices(reader.read_row_groups([0], [column], use_threads=False).column(0))
        size = sum(named_bytes(_innermost(chunk)) for chunk in array.chunks)
    if size > limit:
        raise MemoryLimitError(
            f"the column decodes to more than {limit} bytes",
            place=place(),
            hint="raise options.memory_limit",
        )
    return size


def _is_coded(reader: ParquetReader, column: int) -> bool:
    """Whether a column's values, in whatever lists, come as indices into a dictionary."""
    kind = reader.read_row_groups([], [column], use_threads=False).schema.field(0).type
    while kind.num_fields == 1:
        kind = kind.field(0).type
    return bool(pa.types.is_dictionary(kind))


def _innermost(array: pa.Array) -> pa.Array:
    """The values of a leaf, out of all its lists and structs."""
    while array.type.num_fields:
        array = array.field(0) if pa.types.is_struct(array.type) else array.values
    return array
