"""The same column's chunks of several row groups, held against what was promised of each, all at once.

What `verify_chunk` accepts of chunks of the plainest form is accepted here, by the same rules. Everything else, be it
wrong or only rare, is `Unusual`: such chunks are verified one by one, which also says what is wrong with which.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from accel.decode.splice import SplicedChunk
from accel.decode.value_sizes import check_sizes, value_width
from accel.decode.verify import DICTIONARY_PAGE_ENCODINGS, IS_DATA, IS_DICTIONARY, PageFacts
from accel.format.model import Encoding, Leaf, PageTable, PageType, Physical, SchemaElement
from accel.format.page_header import walk_chunks
from accel.planning.pages import READABLE_CODECS, LeafReads, level_bytes
from accel.ranges import Buffer

if TYPE_CHECKING:
    from accel.arrays import Bools, Int64s

__all__ = ["StackedPages", "Unusual", "verify_stack"]

# Chunks of more are no small ones.
_MOST_PAGES = 64


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
    if not all(one.codec in READABLE_CODECS for one in reads):
        raise Unusual
    walked = _walk(chunks, reads)
    table, is_data, encoded = walked.table, walked.is_data, walked.encoded
    if (table.crc == 0).any():
        # It stands for none, which pyarrow does not know.
        raise Unusual
    _check_values(walked, reads, num_rows)
    longest = _check_dictionaries(walked, element)
    if leaf.max_definition == 0:
        check_sizes([table], leaf, element)
    total, sizes = int(num_rows.sum()), np.add.reduceat(table.uncompressed, walked.firsts)
    uncompressed = int(sizes.sum())
    decoded = total * (value_width(element) + level_bytes(leaf))
    if memory_limit is not None and max(decoded, uncompressed) > memory_limit:
        raise Unusual
    facts = PageFacts(
        tables=(table,),
        encoded=encoded[is_data],
        parts=(),
        page_values=table.num_values[is_data],
        num_values=total,
        uncompressed=uncompressed,
        dictionary=None,
        prefixed=0,
    )
    if reads[0].whole:
        ends = table.end[walked.stops - 1].tolist()
        chunks = [_without_padding(parts, end) for parts, end in zip(chunks, ends, strict=True)]
    spliced = tuple(
        SplicedChunk(tuple(parts), one.codec, count, size)
        for parts, one, count, size in zip(chunks, reads, num_rows.tolist(), sizes.tolist(), strict=True)
    )
    return StackedPages(facts, spliced, longest)


class _Walked(NamedTuple):
    """The pages of all chunks, and which of them are each chunk's."""

    table: PageTable
    firsts: Int64s
    stops: Int64s
    is_data: Bools
    encoded: Bools
    """The data pages that name entries of a dictionary."""
    dictionaries: Bools
    """By chunk: it begins with one."""


def _walk(chunks: Sequence[Sequence[Buffer]], reads: Sequence[LeafReads]) -> _Walked:
    buffers = [len(parts) for parts in chunks]
    # Only a whole chunk may be followed by padding.
    due = [
        one.num_values if one.whole else None
        for one, many in zip(reads, buffers, strict=True)
        for _ in range(many)
    ]
    table, met = walk_chunks(
        list(itertools.chain.from_iterable(chunks)), num_values=due, max_pages=_MOST_PAGES
    )
    if not all(buffers) or not met.all():
        raise Unusual
    stops = np.add.reduceat(met, np.cumsum([0, *buffers[:-1]])).cumsum()
    firsts = np.append(0, stops[:-1])
    is_data = IS_DATA[table.type]
    dictionaries = table.type[firsts] == PageType.DICTIONARY_PAGE
    return _Walked(table, firsts, stops, is_data, IS_DICTIONARY[table.encoding] & is_data, dictionaries)


def _without_padding(parts: Sequence[Buffer], end: int) -> Sequence[Buffer]:
    (chunk,) = parts
    return parts if end == len(chunk) else (memoryview(chunk)[:end],)


def _check_values(walked: _Walked, reads: Sequence[LeafReads], num_rows: Int64s) -> None:
    """Each chunk has a value for each row, and a dictionary where one of its pages names entries."""
    table, firsts, is_data = walked.table, walked.firsts, walked.is_data
    values = table.num_values[is_data]
    # But for a dictionary at its beginning a chunk has data pages alone, each of them of some values.
    if len(values) + np.count_nonzero(walked.dictionaries) != len(is_data) or not values.all():
        raise Unusual
    if not reads[0].whole and not np.array_equal(
        values, np.concatenate([one.stop_row - one.first_row for one in reads])
    ):
        raise Unusual
    counts = np.add.reduceat(np.where(is_data, table.num_values, 0), firsts)
    lost = np.logical_or.reduceat(walked.encoded, firsts) & ~walked.dictionaries
    if (counts != num_rows).any() or lost.any():
        raise Unusual
    # Texts that repeat what came before them decode to any length.
    if (table.encoding == Encoding.DELTA_BYTE_ARRAY).any():
        raise Unusual


def _check_dictionaries(walked: _Walked, element: SchemaElement) -> int:
    """Those that pages name; how many bytes a text of any of them has at most."""
    table, named = walked.table, np.logical_or.reduceat(walked.encoded, walked.firsts)
    places = walked.firsts[walked.dictionaries & named]
    if not len(places):
        return 0
    entries, sizes = table.num_values[places], table.uncompressed[places]
    if not np.isin(table.encoding[places], DICTIONARY_PAGE_ENCODINGS).all():
        raise Unusual
    if element.physical is Physical.BOOLEAN or (entries * value_width(element) > sizes).any():
        raise Unusual
    # As if all other texts were empty.
    return int((sizes - 4 * entries).max()) if element.physical is Physical.BYTE_ARRAY else 0
