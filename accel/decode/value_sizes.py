"""How many bytes values take, and PLAIN pages therefore have.

Source: parquet-format `Encodings.md` (PLAIN).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from accel.errors import ParquetFormatError
from accel.format.model import Encoding, Leaf, PageTable, PageType, Physical, SchemaElement
from accel.planning.decoded_size import BOOLEAN_BYTES

__all__ = ["check_sizes", "value_width"]

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


def check_sizes(walked: Sequence[PageTable], leaf: Leaf, element: SchemaElement) -> None:
    """Hold PLAIN pages without levels against what their values take: where there is more, these are levels, and the
    schema says `required` of a column that was written as `optional`. pyarrow takes the levels for values."""
    if any((table.num_nulls > 0).any() for table in walked):
        raise ParquetFormatError("a page with nulls, of a column that the schema says has none")
    if leaf.max_repetition or element.physical in (None, Physical.BYTE_ARRAY):
        return
    bits = 1 if element.physical is Physical.BOOLEAN else 8 * value_width(element)
    for table in walked:
        due = (table.num_values * bits + 7) >> 3
        other = (
            (table.encoding == Encoding.PLAIN)
            & (table.type == PageType.DATA_PAGE)
            & (table.uncompressed != due)
        )
        if any(other.tolist()):
            page = int(np.flatnonzero(other)[0])
            raise ParquetFormatError(
                f"a page of {int(table.uncompressed[page])} bytes for {int(table.num_values[page])} values, which "
                f"take {int(due[page])}"
            )
