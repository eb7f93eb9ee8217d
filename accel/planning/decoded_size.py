"""How large a column chunk is once decoded, as far as the footer tells: a few bytes can be a million values."""

from __future__ import annotations

from accel.format.model import FileMetadata, Physical

__all__ = ["DECODED_SHARE", "decoded_bytes"]

DECODED_SHARE = 4
"""Chunks and pages are weighed by their compressed bytes, or by this share of the decoded ones if more."""

_WIDTHS = {
    Physical.INT32: 4,
    Physical.INT64: 8,
    Physical.INT96: 8,
    Physical.FLOAT: 4,
    Physical.DOUBLE: 8,
    Physical.BYTE_ARRAY: 4,
}
"""Bytes of a value in Arrow; of a text, of its offset."""


def decoded_bytes(metadata: FileMetadata, row_group: int, leaf: int) -> int:
    """Bytes of a chunk in Arrow. Of dictionary-encoded texts only newer writers tell how long they are."""
    chunks, at = metadata.chunks, (row_group, leaf)
    element = metadata.schema.elements[metadata.schema.leaves[leaf].element]
    width = 0
    if element.physical is Physical.FIXED_LEN_BYTE_ARRAY:
        width = element.type_length
    elif element.physical is not None:
        width = _WIDTHS.get(element.physical, 0)
    values = int(chunks.num_values[at]) * width + max(0, int(chunks.unencoded[at]))
    return max(values, int(chunks.uncompressed[at]))
