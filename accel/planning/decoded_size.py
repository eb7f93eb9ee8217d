"""How large a column chunk is once decoded, as far as the footer tells: a few bytes can be a million values."""

from __future__ import annotations

from accel.format.model import FileMetadata, Leaf, Physical

__all__ = ["BOOLEAN_BYTES", "DECODED_SHARE", "decoded_bytes", "level_bytes"]

DECODED_SHARE = 4
"""Chunks and pages are weighed by their compressed bytes, or by this share of the decoded ones if more."""

BOOLEAN_BYTES = 2
"""Of a boolean while it is decoded: pyarrow makes a byte of it, before it packs that into a bit."""
_LEVEL_BYTES = 2
_WIDTHS = {
    Physical.BOOLEAN: BOOLEAN_BYTES,
    Physical.INT32: 4,
    Physical.INT64: 8,
    Physical.INT96: 8,
    Physical.FLOAT: 4,
    Physical.DOUBLE: 8,
    Physical.BYTE_ARRAY: 4,
}
"""Bytes of a value in Arrow; of a text, of its offset."""


def level_bytes(leaf: Leaf) -> int:
    """Bytes that pyarrow holds of a value's levels while it decodes the column."""
    return _LEVEL_BYTES * ((leaf.max_definition > 0) + (leaf.max_repetition > 0))


def decoded_bytes(metadata: FileMetadata, row_group: int, leaf: int) -> int:
    """Bytes of a chunk in Arrow. Of dictionary-encoded texts only newer writers tell how long they are.

    Levels are there for one column at a time: those of lists count, of which a row may have any number.
    """
    chunks, at = metadata.chunks, (row_group, leaf)
    node = metadata.schema.leaves[leaf]
    element = metadata.schema.elements[node.element]
    width = level_bytes(node) if node.max_repetition else 0
    if element.physical is Physical.FIXED_LEN_BYTE_ARRAY:
        width += element.type_length
    elif element.physical is not None:
        width += _WIDTHS[element.physical]
    values = int(chunks.num_values[at]) * width + max(0, int(chunks.unencoded[at]))
    return max(values, int(chunks.uncompressed[at]))
