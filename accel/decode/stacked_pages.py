"""The same column's chunks of several row groups, held against what was promised of each, all at once.

What `verify_chunk` accepts of chunks of the plainest form is accepted here, by the same rules. Everything else, be it
wrong or only rare, is `Unusual`: such chunks are verified one by one, which also says what is wrong with which.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from accel.decode.splice import SplicedChunk
from accel.decode.value_sizes import check_sizes, value_width
from accel.decode.verify import IS_DATA, IS_DICTIONARY, PageFacts
from accel.format.model import Codec, Encoding, Leaf, PageTable, PageType, Physical, SchemaElement
from accel.format.page_runs import walk_chunks
from accel.planning.decoded_size import level_bytes
from accel.ranges import Buffer
from accel.records import dataclass

if TYPE_CHECKING:
    from accel.arrays import Bools, Int64s
    from accel.planning.pages import LeafReads

__all__ = ["StackedPages", "Unusual", "verify_stack"]

# Chunks of more are no small ones.
_MOST_PAGES = 64
_CODECS = frozenset(Codec) - {Codec.LZO}


class Unusual(Exception):
    """Something that is left to whoever verifies chunk by chunk."""


@dataclass(frozen=True, slots=True, eq=False)
class StackedPages:
    """What holds of the chunks."""

    facts: PageFacts
    """Of all their pages, as if they were one chunk's; without its parts and its dictionary."""
    chunks: tuple[SplicedChunk, ...]
    """Each, for its row group of the file to be decoded."""
    longest: int
    """Bytes of one text at most; 0 where values are none."""


def verify_stack(
    chunks: Sequence[Sequence[Buffer]],
    leaf: Leaf,
    *,
    reads: Sequence[LeafReads],
    element: SchemaElement,
    num_rows: Int64s,
    memory_limit: int | None,
) -> StackedPages:
    """Walk all page headers of chunks of a column that is not nested.

    Parameters
    ----------
    chunks : sequence of sequences of buffers
        All pages of each: the whole chunk, or its dictionary page, if its pages need one, and the data pages.
    reads : sequence of LeafReads
        What is known of each before: all of them whole, or none.
    num_rows : array
        Of each row group.
    memory_limit : int, optional
        See `verify_chunk`; for all of them together.

    Raises
    ------
    Unusual
        A chunk is wrong, or has something rare.
    ParquetFormatError
        The same.
    """
    buffers = [len(parts) for parts in chunks]
    if not all(one.codec in _CODECS for one in reads) or not all(buffers):
        raise Unusual
    whole = reads[0].whole
    due = [
        one.num_values if whole else None
        for one, many in zip(reads, buffers, strict=True)
        for _ in range(many)
    ]
    flat = [part for parts in chunks for part in parts]
    table, met = walk_chunks(flat, num_values=due, max_pages=_MOST_PAGES)
    if not met.all():
        raise Unusual
    counts = np.add.reduceat(met, np.cumsum([0, *buffers[:-1]]))
    stops = counts.cumsum()
    firsts = stops - counts
    is_data, values = IS_DATA[table.type], table.num_values
    page_values = values[is_data]
    dictionaries = table.type[firsts] == PageType.DICTIONARY_PAGE
    # But for a dictionary at its beginning a chunk has data pages alone, each of them of some values.
    if len(page_values) + np.count_nonzero(dictionaries) != len(is_data) or not page_values.all():
        raise Unusual
    if not whole:
        rows = np.concatenate([one.stop_row - one.first_row for one in reads])
        if not np.array_equal(page_values, rows):
            raise Unusual
    _check_values(table, firsts, is_data, dictionaries, num_rows)
    encoded = IS_DICTIONARY[table.encoding] & is_data
    named = np.add.reduceat(np.where(encoded, values, 0), firsts)
    longest = _check_dictionaries(table, firsts[dictionaries & (named > 0)], element)
    if leaf.max_definition == 0:
        check_sizes([table], leaf, element)
    total, uncompressed = int(num_rows.sum()), np.add.reduceat(table.uncompressed, firsts)
    decoded = total * (value_width(element) + level_bytes(leaf))
    if memory_limit is not None and max(decoded, int(uncompressed.sum())) > memory_limit:
        raise Unusual
    facts = PageFacts(
        tables=(table,),
        encoded=encoded[is_data],
        parts=(),
        page_values=page_values,
        num_values=total,
        uncompressed=int(uncompressed.sum()),
        dictionary=None,
        prefixed=0,
    )
    ends = table.end[stops - 1].tolist()
    bytes_of = (
        [_without_padding(parts, end) for parts, end in zip(chunks, ends, strict=True)] if whole else chunks
    )
    spliced = tuple(
        SplicedChunk(tuple(parts), one.codec, count, size)
        for parts, one, count, size in zip(
            bytes_of, reads, num_rows.tolist(), uncompressed.tolist(), strict=True
        )
    )
    return StackedPages(facts, spliced, longest)


def _without_padding(parts: Sequence[Buffer], end: int) -> Sequence[Buffer]:
    (chunk,) = parts
    return parts if end == len(chunk) else (memoryview(chunk)[:end],)


def _check_values(
    table: PageTable, firsts: Int64s, is_data: Bools, dictionaries: Bools, num_rows: Int64s
) -> None:
    """Each chunk has a value for each row, and a dictionary where one of its pages names entries."""
    counts = np.where(is_data, table.num_values, 0)
    encoded = IS_DICTIONARY[table.encoding] & is_data
    lost = np.logical_or.reduceat(encoded, firsts) & ~dictionaries
    if (np.add.reduceat(counts, firsts) != num_rows).any() or lost.any():
        raise Unusual
    # Texts that repeat what came before them decode to any length.
    if (table.encoding == Encoding.DELTA_BYTE_ARRAY).any():
        raise Unusual


def _check_dictionaries(table: PageTable, places: Int64s, element: SchemaElement) -> int:
    """The dictionary pages at these places; how many bytes a text of any of them has at most."""
    if not len(places):
        return 0
    entries, sizes = table.num_values[places], table.uncompressed[places]
    if element.physical is Physical.BOOLEAN or (entries * value_width(element) > sizes).any():
        raise Unusual
    # As if all other texts were empty.
    return int((sizes - 4 * entries).max()) if element.physical is Physical.BYTE_ARRAY else 0
