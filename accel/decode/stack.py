"""Small row groups of one file are decoded together, from a file in memory that has a row group for each of
them; and so are the columns of a row group that has many and few rows.

A chunk that is decoded by itself costs dozens of microseconds of Python, however few its values are.
Here all page headers are verified at once, pyarrow is called once, and the filter is evaluated on all rows at
once. If anything is wrong or rare, the row groups are decoded one by one instead, which reports what is
wrong.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from accel.arrays import Bools, Int64s, bools
from accel.decode.arrow import ParquetReader, fields_of, open_reader, schema_of, translate_errors
from accel.decode.chunks import LeafBytes
from accel.decode.extensions import is_composite
from accel.decode.piece import filter_rows, make_batches, match_rows
from accel.decode.splice import SplicedChunk, plan_splice, splice_groups
from accel.decode.trim import trim
from accel.decode.verify import (
    DICTIONARY_PAGE_ENCODINGS,
    IS_DATA,
    IS_DICTIONARY,
    PageFacts,
    check_sizes,
    check_text_sizes,
    value_width,
)
from accel.format.model import Encoding, Leaf, PageTable, PageType, Physical, SchemaElement
from accel.format.page_header import walk_chunks
from accel.planning.leaf_chunks import READABLE_CODECS, level_bytes
from accel.planning.pages import LeafReads, Piece, PieceLeaf
from accel.planning.projection import has_instants
from accel.planning.selection import RowSelection
from accel.planning.task import ScanTask
from accel.ranges import Buffer

__all__ = [
    "MOST_ROWS",
    "Layer",
    "NotStackable",
    "StackKind",
    "StackedPages",
    "decode_stack",
    "split_stack",
    "stack_kind",
    "verify_stack",
]

Columns: TypeAlias = dict[str, pa.Array | pa.ChunkedArray]

MOST_ROWS = 4096
"""Rows of a row group above which Python takes the smaller part of the time, and the pages without a row that
matches are worth leaving out."""
# The same where there is nothing to leave out, because each chunk is a single page or is read whole.
MOST_PAGE_ROWS = 1 << 15
# Rows of a batch below which reading in steps takes longer than reading row groups one by one.
_LEAST_ROWS = 1024


@dataclass(frozen=True, slots=True)
class StackKind:
    """The properties that pieces of one file must share to be decoded together."""

    leaves: tuple[int, ...]
    whole: tuple[bool, ...]
    """For each leaf, whether it is read as a whole chunk rather than by pages."""
    in_doubt: bool
    """Whether the filter is evaluated on all rows; else it is evaluated on none."""


@dataclass(frozen=True, slots=True, eq=False)
class Layer:
    """One piece of a stack, with its bytes."""

    task: ScanTask
    piece: Piece
    leaves: Mapping[int, LeafBytes]


def stack_kind(task: ScanTask, piece: Piece) -> StackKind | None:
    """Return the kind of pieces that a piece may be decoded with; None where it is large or rare."""
    certain = piece.certain.count
    if task.num_rows > MOST_PAGE_ROWS or not piece.leaves or (certain and certain < piece.rows.count):
        return None
    large = task.num_rows > MOST_ROWS
    schema = task.file.schema
    if task.file.question.row_number is not None:
        return None
    leaves = tuple(part.reads.leaf for part in piece.leaves)
    for part in piece.leaves:
        leaf = schema.leaves[part.reads.leaf]
        if leaf.max_repetition or len(leaf.path) > 1 or not _is_complete(part):
            return None
        if large and part.reads.total_pages > 1:
            return None
    whole = tuple(part.reads.whole for part in piece.leaves)
    return None if has_instants(schema, leaves) else StackKind(leaves, whole, not certain)


def _is_complete(part: PieceLeaf) -> bool:
    """Return whether all data pages of the chunk are present."""
    reads = part.reads
    return reads.whole or (not part.carried and part.hi - part.lo == reads.total_pages)


def decode_stack(
    layers: Sequence[Layer],
    *,
    batch_rows: int,
    memory_limit: int,
    verify_checksums: bool = True,
    matched: list[int] | None = None,
) -> list[pa.RecordBatch] | None:
    """Return what `decode_piece` returns for each layer, in order, in batches of up to `batch_rows` rows.

    Parameters
    ----------
    layers : sequence of Layer
        Layers of one file and one kind, in order.
    matched : list of int, optional
        Receives how many rows of each layer match.

    Returns
    -------
    list of pyarrow.RecordBatch or None
        None where the layers have to be decoded one by one.
    """
    try:
        stack = _Stack(layers, memory_limit, verify_checksums)
        batches = stack.batches(batch_rows)
    except Exception:  # noqa: BLE001 - decoding one by one reports what is wrong
        return None
    if matched is not None:
        matched.extend(stack.matched)
    return batches


def split_stack(
    batches: Sequence[pa.RecordBatch], matched: Sequence[int], *, batch_rows: int
) -> list[list[pa.RecordBatch]]:
    """Return the batches of each layer, given those of all and how many rows of each match."""
    out: list[list[pa.RecordBatch]] = []
    joined = pa.Table.from_batches(batches) if len(batches) > 1 else None
    start = 0
    for count in matched:
        if joined is not None:
            out.append(joined.slice(start, count).to_batches(max_chunksize=batch_rows))
        else:
            places = range(start, start + count, batch_rows)
            out.append([batches[0].slice(at, min(batch_rows, start + count - at)) for at in places])
        start += count
    return out


class _Stack:
    def __init__(self, layers: Sequence[Layer], memory_limit: int, verify_checksums: bool) -> None:
        self._verify_checksums = verify_checksums
        self._layers = layers
        self._task = layers[0].task
        self._memory_limit = memory_limit
        self.matched: list[int] = []
        """The rows of each layer that match, once `batches` has returned."""
        # All layers are of one kind.
        self._places = {part.reads.leaf: place for place, part in enumerate(layers[0].piece.leaves)}

    def batches(self, batch_rows: int) -> list[pa.RecordBatch]:
        query = self._task.file.query
        counts = [layer.piece.rows.count for layer in self._layers]
        self.matched = counts
        if self._layers[0].piece.certain or query.bound is None:
            columns = self._decode(query.output_leaves, self._layers)
            return make_batches(self._task, columns, sum(counts), batch_rows, memory_limit=self._memory_limit)
        columns = self._decode(query.filter_leaves, self._layers)
        matches = match_rows(self._task, columns, sum(counts))
        parts = np.split(matches, np.cumsum(counts)[:-1])
        self.matched = [int(np.count_nonzero(part)) for part in parts]
        matched = sum(self.matched)
        if not matched:
            return []
        # The other columns are decoded only in row groups that have a row that matches.
        left = [number for number, count in enumerate(self.matched) if count]
        fresh = self._decode(
            [leaf for leaf in query.output_leaves if leaf not in query.filter_leaves],
            [self._layers[number] for number in left],
        )
        wanted = {field.name for field in query.output}
        columns = {
            **_filtered({name: array for name, array in columns.items() if name in wanted}, matches),
            **_filtered(fresh, np.concatenate([parts[number] for number in left])),
        }
        return make_batches(self._task, columns, matched, batch_rows, memory_limit=self._memory_limit)

    def _decode(self, leaves: Sequence[int], layers: Sequence[Layer]) -> Columns:
        """Return the columns of these leaves, by name, at the rows of the layers' pieces."""
        if not leaves:
            return {}
        file = self._task.file
        leaves = sorted(leaves)
        schema = schema_of(file, leaves)
        if any(isinstance(kind, pa.DictionaryType) or is_composite(kind) for kind in schema.types):
            # Each row group has its own dictionary, which only decoding one by one can return.
            raise NotStackable
        num_rows = [layer.task.num_rows for layer in layers]
        rows, total = _rows(layers, num_rows), sum(num_rows)
        stacked: dict[int, StackedPages] = {}
        groups: list[dict[int, SplicedChunk]] = [{} for _ in layers]
        longest = 0
        for alike in self._alike(leaves):
            pages = self._verified(alike, layers, np.array(num_rows, np.int64))
            longest += len(alike) * pages.longest
            for place, leaf in enumerate(alike):
                stacked[leaf] = pages
                for group, chunk in zip(groups, pages.chunks[place :: len(alike)], strict=True):
                    group[leaf] = chunk
        fields = fields_of(file.schema, leaves)
        plan = plan_splice(file.schema, file.key_value, fields=fields, created_by=file.created_by)
        with translate_errors():
            data = splice_groups(plan, groups, num_rows=num_rows)
            reader = open_reader(data, verify_checksums=self._verify_checksums)
            table = self._read(reader, num_rows, len(leaves), longest=longest)
        columns: Columns = {}
        for field, array, leaf in zip(schema, table.columns, leaves, strict=True):
            if not array.type.equals(field.type) or len(array) != total:
                raise NotStackable
            check_text_sizes(array, stacked[leaf].facts, leaf=file.schema.leaves[leaf])
            array = trim(array, rows)
            columns[field.name] = array.chunk(0) if array.num_chunks == 1 else array
        return columns

    def _read(
        self, reader: ParquetReader, num_rows: Sequence[int], columns: int, *, longest: int
    ) -> pa.Table:
        """Read all row groups; in steps where long texts that many rows refer to might exceed the limit."""
        groups = list(range(len(num_rows)))
        step = self._memory_limit // max(1, longest)
        if step >= sum(num_rows):
            return reader.read_row_groups(groups, range(columns), use_threads=False)
        if step < _LEAST_ROWS:
            raise NotStackable
        batches, nbytes = [], 0
        for batch in reader.iter_batches(step, groups, range(columns), use_threads=False):
            batches.append(batch)
            nbytes += batch.nbytes
            if nbytes > self._memory_limit:
                raise NotStackable
        return pa.Table.from_batches(batches)

    def _alike(self, leaves: Sequence[int]) -> Iterable[Sequence[int]]:
        """Return the leaves in lists of those that are verified together, as they are stored alike."""
        schema, reads = self._task.file.schema, self._layers[0].piece.leaves
        found: dict[Hashable, list[int]] = {}
        for leaf in leaves:
            node = schema.leaves[leaf]
            element = schema.elements[node.element]
            # Texts that may not be null are compared with the pages of their own column.
            own = leaf if element.physical is Physical.BYTE_ARRAY and not node.max_definition else None
            whole = reads[self._places[leaf]].reads.whole
            key = element.physical, element.type_length, node.max_definition, whole, own
            found.setdefault(key, []).append(leaf)
        return found.values()

    def _verified(self, leaves: Sequence[int], layers: Sequence[Layer], num_rows: Int64s) -> StackedPages:
        """Verify the chunks of leaves that are stored alike, of one layer after the other."""
        schema = self._task.file.schema
        node = schema.leaves[leaves[0]]
        places = [self._places[leaf] for leaf in leaves]
        return verify_stack(
            [_parts(layer.leaves[leaf]) for layer in layers for leaf in leaves],
            node,
            reads=[layer.piece.leaves[place].reads for layer in layers for place in places],
            element=schema.elements[node.element],
            num_rows=num_rows.repeat(len(leaves)),
            memory_limit=self._memory_limit,
        )


def _parts(fetched: LeafBytes) -> Sequence[Buffer]:
    return fetched.pages if fetched.dictionary is None else (fetched.dictionary, *fetched.pages)


def _rows(layers: Sequence[Layer], num_rows: Sequence[int]) -> RowSelection:
    """Return the rows of the layers' pieces, counted over all rows of their row groups."""
    ranges: list[tuple[int, int]] = []
    before = 0
    for layer, count in zip(layers, num_rows, strict=True):
        ranges += [(before + start, before + stop) for start, stop in layer.piece.rows]
        before += count
    return RowSelection.of(ranges)


def _filtered(columns: Mapping[str, pa.Array | pa.ChunkedArray], matches: Bools) -> Columns:
    if matches.all():
        return dict(columns)
    packed = bools(matches)
    return {name: filter_rows(array, packed) for name, array in columns.items()}


# Pages of a chunk above which it is not small.
_MOST_PAGES = 64


class NotStackable(Exception):
    """A chunk is wrong or rare, so the row groups have to be decoded one by one."""


@dataclass(frozen=True, slots=True, eq=False)
class StackedPages:
    """The verified chunks of columns that are stored alike."""

    facts: PageFacts
    """The facts of all pages as if they were one chunk's, without parts and dictionary."""
    chunks: tuple[SplicedChunk, ...]
    """Each chunk, for its row group of the spliced file."""
    longest: int
    """The most bytes of one text; 0 for other types."""


def verify_stack(
    chunks: Sequence[Sequence[Buffer]],
    leaf: Leaf,
    *,
    reads: Sequence[LeafReads],
    element: SchemaElement,
    num_rows: Int64s,
    memory_limit: int | None,
) -> StackedPages:
    """Verify all page headers of the chunks of columns that are not nested and stored alike.

    Parameters
    ----------
    chunks : sequence of sequences of buffers
        All pages of each: the whole chunk, or the data pages behind the dictionary page that they need.
    leaf, element : Leaf, SchemaElement
        One of the columns.
    reads : sequence of LeafReads
        The metadata of each; either all of them are whole, or none.
    num_rows : array
        The rows of the row group of each.
    memory_limit : int, optional
        As in `verify_chunk`, for all chunks together.

    Raises
    ------
    NotStackable
        A chunk is wrong or rare.
    ParquetFormatError
        A page header does not decode.
    """
    if not all(one.codec in READABLE_CODECS for one in reads):
        raise NotStackable
    walked = _walk(chunks, reads)
    table, is_data, encoded = walked.table, walked.is_data, walked.encoded
    if (table.crc == 0).any():
        # pyarrow does not know that 0 stands for no checksum.
        raise NotStackable
    _check_values(walked, reads, num_rows)
    longest = _check_dictionaries(walked, element)
    if leaf.max_definition == 0:
        check_sizes([table], leaf, element)
    total, sizes = int(num_rows.sum()), np.add.reduceat(table.uncompressed, walked.firsts)
    uncompressed = int(sizes.sum())
    decoded = total * (value_width(element) + level_bytes(leaf))
    if memory_limit is not None and max(decoded, uncompressed) > memory_limit:
        raise NotStackable
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
    spliced = tuple(
        SplicedChunk(tuple(parts), one.codec, count, size)
        for parts, one, count, size in zip(chunks, reads, num_rows.tolist(), sizes.tolist(), strict=True)
    )
    return StackedPages(facts, spliced, longest)


class _Walked(NamedTuple):
    """The pages of all chunks, and where each chunk begins and ends."""

    table: PageTable
    firsts: Int64s
    stops: Int64s
    is_data: Bools
    encoded: Bools
    """The data pages that are dictionary-encoded."""
    dictionaries: Bools
    """For each chunk, whether it begins with a dictionary page."""


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
        raise NotStackable
    stops = np.add.reduceat(met, np.cumsum([0, *buffers[:-1]])).cumsum()
    # What is behind the values of a whole chunk may be padding, or show that a header is wrong.
    if reads[0].whole and table.end[stops - 1].tolist() != [len(part) for (part,) in chunks]:
        raise NotStackable
    firsts = np.append(0, stops[:-1])
    is_data = IS_DATA[table.type]
    dictionaries = table.type[firsts] == PageType.DICTIONARY_PAGE
    return _Walked(table, firsts, stops, is_data, IS_DICTIONARY[table.encoding] & is_data, dictionaries)


def _check_values(walked: _Walked, reads: Sequence[LeafReads], num_rows: Int64s) -> None:
    """Verify that each chunk has a value for each row, and the dictionary that its pages need."""
    table, firsts, is_data = walked.table, walked.firsts, walked.is_data
    values = table.num_values[is_data]
    # Behind a dictionary page, each chunk has only data pages that are not empty.
    if len(values) + np.count_nonzero(walked.dictionaries) != len(is_data) or not values.all():
        raise NotStackable
    if not reads[0].whole and not np.array_equal(
        values, np.concatenate([one.stop_row - one.first_row for one in reads])
    ):
        raise NotStackable
    counts = np.add.reduceat(np.where(is_data, table.num_values, 0), firsts)
    lost = np.logical_or.reduceat(walked.encoded, firsts) & ~walked.dictionaries
    if (counts != num_rows).any() or lost.any():
        raise NotStackable
    # Texts that repeat a part of the one before may decode to any length.
    if (table.encoding == Encoding.DELTA_BYTE_ARRAY).any():
        raise NotStackable


def _check_dictionaries(walked: _Walked, element: SchemaElement) -> int:
    """Verify the dictionaries that pages refer to; return the most bytes that one of their texts can have."""
    table, named = walked.table, np.logical_or.reduceat(walked.encoded, walked.firsts)
    places = walked.firsts[walked.dictionaries & named]
    if not len(places):
        return 0
    entries, sizes = table.num_values[places], table.uncompressed[places]
    if not np.isin(table.encoding[places], DICTIONARY_PAGE_ENCODINGS).all():
        raise NotStackable
    if element.physical is Physical.BOOLEAN or (entries * value_width(element) > sizes).any():
        raise NotStackable
    # A text has the most bytes if all others are empty.
    return int((sizes - 4 * entries).max()) if element.physical is Physical.BYTE_ARRAY else 0
