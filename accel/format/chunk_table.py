"""Building a `ChunkTable`: every number of every chunk checked, start and end derived.

Sources: parquet-format `parquet.thrift` (ColumnChunk, ColumnMetaData), PARQUET-816.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from accel.errors import ParquetFormatError
from accel.format.model import MISPLACED, ChunkTable, ParquetSchema
from accel.format.writers import leaves_out_dictionary_header

if TYPE_CHECKING:
    from accel.arrays import Bools, Int64s

__all__ = ["build_chunks"]

DICTIONARY_HEADER: Final = 100
"""No dictionary page header of the writers of PARQUET-816 is longer."""


def build_chunks(
    found: dict[str, Int64s], schema: ParquetSchema, *, footer_start: int | Int64s, created_by: str
) -> ChunkTable:
    """Check the numbers of all chunks, as `format.chunk.chunk_arrays` has them, and derive the rest.

    The arrays are taken over, and changed. `footer_start` may be a column, for row groups of several files; not
    of a writer of `leaves_out_dictionary_header`.

    Raises ParquetFormatError naming the first chunk at fault: a physical type other than the
    schema's, a negative size or count, a range that is not within the file before the footer.
    """
    external, encrypted = found["external"] != 0, found["encrypted"] != 0
    physical = found["physical"]
    present = physical >= 0
    checks = _Checks(schema)
    wanted = np.array([schema.elements[leaf.element].physical for leaf in schema.leaves], np.int64)
    checks.refuse(present & (physical != wanted), "a physical type that is not the schema's", physical)
    # pyarrow refuses these too: levels that the schema does not have would be read as values.
    for name, most in (
        ("repetitions", [leaf.max_repetition for leaf in schema.leaves]),
        ("definitions", [leaf.max_definition for leaf in schema.leaves]),
    ):
        length = found.pop(name)
        checks.refuse(
            (length > 0) & (length != np.array(most, np.int64) + 1),
            f"a histogram of {name} that does not fit the schema, of length",
            length,
        )
    # A chunk in another file, or whose metadata is encrypted, has no place in this one.
    local = present & ~external
    for name in ("codec", "num_values", "compressed", "uncompressed", "data_page_offset"):
        checks.refuse(present & (found[name] < 0), f"no valid {name}", found[name])
    checks.refuse(present & (found["codec"] > 127), "no valid codec", found["codec"])

    data = found["data_page_offset"]
    dictionary = found["dictionary_page_offset"]
    dictionary = np.where((dictionary > 0) & (dictionary < data), dictionary, -1)
    start = np.where(dictionary > 0, dictionary, data)
    compressed = found["compressed"]
    checks.refuse(local & (start > footer_start), "pages that start after the footer", start)
    checks.refuse(local & (compressed > footer_start - start), "pages that reach into the footer", compressed)
    end = np.where(local, start + np.where(local, compressed, 0), -1)
    start = np.where(local, start, -1)
    checks.refuse(local & (compressed > 0) & (data >= end), "data pages after the chunk's end", data)
    if leaves_out_dictionary_header(created_by):
        if not isinstance(footer_start, int):
            raise TypeError("the footer of one file starts at one place")
        end = _pad(start, end, local & (compressed > 0), footer_start)
    for name in ("column_index", "offset_index", "bloom"):
        _place_index(found, name, external, footer_start)
    for name in ("null_count", "distinct_count", "nan_count", "unencoded"):
        np.maximum(found[name], -1, out=found[name])
    for name in ("min_exact", "max_exact"):
        found[name] = found[name].astype(np.int8)
    del found["physical"]
    found["dictionary_page_offset"] = dictionary
    return ChunkTable(
        start=start,
        end=end,
        codec=found.pop("codec").astype(np.int8),
        encodings=found.pop("encodings").astype(np.uint32),
        dictionary_pages=found.pop("dictionary_pages").astype(np.int32),
        plain_pages=found.pop("plain_pages").astype(np.int32),
        min_exact=found.pop("min_exact").astype(np.int8),
        max_exact=found.pop("max_exact").astype(np.int8),
        external=external,
        encrypted=encrypted,
        **{name: values for name, values in found.items() if name not in ("external", "encrypted")},
    )


class _Checks:
    """Refusals that name the row group and the column."""

    def __init__(self, schema: ParquetSchema) -> None:
        self.schema = schema

    def refuse(self, wrong: Bools, message: str, values: Int64s) -> None:
        if not wrong.any():
            return
        group, ordinal = (int(i) for i in np.argwhere(wrong)[0])
        path = ".".join(self.schema.leaves[ordinal].path)
        value = int(values[group, ordinal])
        raise ParquetFormatError(
            f"{message}: {'it is missing' if value == -1 else value}",
            place=f"footer, row group {group}, column {path[:200]}",
        )


def _place_index(found: dict[str, Int64s], name: str, external: Bools, footer_start: int | Int64s) -> None:
    """Tell indexes that are absent (-1), and those whose place is outside the file (MISPLACED), by their offsets."""
    offset, length = found[f"{name}_offset"], found[f"{name}_length"]
    misplaced = (offset < -1) | (length < -1) | (offset > footer_start)
    misplaced |= (offset > 0) & (length > footer_start - offset)
    absent = (offset <= 0) | (length == 0) | external
    if name != "bloom":
        absent |= length < 0
    misplaced &= ~external
    offset[absent] = -1
    length[absent] = -1
    offset[misplaced] = MISPLACED
    length[misplaced] = -1


def _pad(start: Int64s, end: Int64s, local: Bools, footer_start: int) -> Int64s:
    """Ends moved on by a dictionary header, though not into the next chunk or the footer."""
    starts = np.append(np.sort(start[local]), footer_start)
    following = starts[np.minimum(np.searchsorted(starts, start, "right"), len(starts) - 1)]
    padded = np.minimum(end + DICTIONARY_HEADER, following)
    return np.where(local, np.maximum(end, padded), end)
