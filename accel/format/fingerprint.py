"""What an index is tied to its file by: a hash of where the file's data lies, and of its statistics.

Specified in docs/formats.md.
"""

from __future__ import annotations

import numpy as np

from accel.format.model import FileMetadata

__all__ = ["fingerprint"]

_BOUNDS = (
    ("min_start", "min_length"),
    ("max_start", "max_length"),
    ("old_min_start", "old_min_length"),
    ("old_max_start", "old_max_length"),
)


def fingerprint(metadata: FileMetadata) -> int:
    """XXH64, seed 0, over the shape of the file's data.

    It does not depend on the keys and values of the footer, nor on page indexes and bloom filters, which
    writing an index changes. It tells a file from one with other rows, unless both lie in the same way
    and have the same statistics.
    """
    import xxhash

    chunks = metadata.chunks
    hasher = xxhash.xxh64()
    leaves = len(metadata.schema.leaves)
    hasher.update(np.array([metadata.num_rows, metadata.num_row_groups, leaves], "<i8").tobytes())
    hasher.update(np.ascontiguousarray(metadata.group_rows, "<i8").tobytes())
    for figures in (
        chunks.num_values,
        chunks.data_page_offset,
        chunks.dictionary_page_offset,
        chunks.compressed,
        chunks.uncompressed,
        chunks.null_count,
    ):
        hasher.update(np.ascontiguousarray(figures, "<i8").tobytes())
    footer = memoryview(metadata.footer)
    for start_name, length_name in _BOUNDS:
        starts = getattr(chunks, start_name).ravel().tolist()
        lengths = getattr(chunks, length_name).ravel().tolist()
        for start, length in zip(starts, lengths, strict=True):
            bound = b"" if start < 0 else footer[start : start + length]
            hasher.update((len(bound) if start >= 0 else -1).to_bytes(8, "little", signed=True))
            hasher.update(bound)
    return int(hasher.intdigest())
