"""How many bytes values take, and PLAIN pages therefore have.

Source: parquet-format `Encodings.md` (PLAIN).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from accel.errors import ParquetFormatError
from accel.format.model import Encoding, Leaf, PageTable, PageType, Physical, SchemaElement
from accel.format.runs import find_runs
from accel.planning.pages import BOOLEAN_BYTES

__all__ = ["PageBody", "begins_with_levels", "check_sizes", "value_width"]

PageBody: TypeAlias = Callable[[int, int], bytes | None]

_WIDTHS = {
    Physical.BOOLEAN: BOOLEAN_BYTES,
    Physical.INT32: 4,
    Physical.INT64: 8,
    Physical.INT96: 12,
    Physical.FLOAT: 4,
    Physical.DOUBLE: 8,
    Physical.BYTE_ARRAY: 4,
}


def value_width(element: SchemaElement) -> int:
    """Bytes of a value as it is decoded, and, but for booleans, as it is stored; of a text, those of its length."""
    if element.physical is Physical.FIXED_LEN_BYTE_ARRAY:
        return element.type_length
    return 4 if element.physical is None else _WIDTHS[element.physical]


def check_sizes(
    walked: Sequence[PageTable], leaf: Leaf, element: SchemaElement, *, body: PageBody | None = None
) -> None:
    """Hold PLAIN pages without levels against what their values take.

    Where there is less, values are missing. More may lie behind the values, as fastparquet lets it; but where the page
    begins with levels, the schema says `required` of a column that was written as `optional`, and pyarrow would take
    the levels for values.

    Parameters
    ----------
    body : callable, optional
        Gives what a page decompresses to, by the numbers of its buffer and its page; None where it does not decompress.
        Without it no page may have more than its values.
    """
    if any((table.num_nulls > 0).any() for table in walked):
        raise ParquetFormatError("a page with nulls, of a column that the schema says has none")
    if leaf.max_repetition or element.physical in (None, Physical.BYTE_ARRAY):
        return
    bits = 1 if element.physical is Physical.BOOLEAN else 8 * value_width(element)
    for number, table in enumerate(walked):
        due = (table.num_values * bits + 7) >> 3
        other = (
            (table.encoding == Encoding.PLAIN)
            & (table.type == PageType.DATA_PAGE)
            & (table.uncompressed != due)
        )
        if not any(other.tolist()):
            continue
        for page in np.flatnonzero(other).tolist():
            count, size = int(table.num_values[page]), int(table.uncompressed[page])
            raw = body(number, page) if size > due[page] and body is not None else None
            if raw is None or begins_with_levels(raw, count):
                raise ParquetFormatError(
                    f"a page of {size} bytes for {count} values, which take {int(due[page])}"
                )


def begins_with_levels(raw: bytes, count: int) -> bool:
    """Whether a v1 page begins with just the definition levels of so many values, each of which may be null."""
    stop = 4 + int.from_bytes(raw[:4], "little")
    if not 4 < stop <= len(raw):
        return False
    return find_runs(raw[:stop], start=4, width=1, count=count, most_runs=count) is not None
