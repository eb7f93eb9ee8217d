"""The kind `ngram`: for each trigram of a column's text, the pages that have it, over all files of a segment.

It answers LIKE and ILIKE with a literal run of three bytes or more, `=` and IN: a page may match where it has
every trigram. The trigrams are those of `accel.indexes.ngram`, of folded text.

The units of some millions of trigrams make a block, and are numbered in it from 0. A row of the table has the
units of a block that have one trigram, as a Roaring bitmap. Two rows describe a block: which files its units
are of, and which units may hold anything, as their text cannot be folded. So a lookup reads the rows of some
trigrams and of the descriptions, and no others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

import numpy as np
import pyarrow as pa

from accel.arrays import integers
from accel.catalog.kinds.kind import (
    CatalogIndex,
    CatalogQuestion,
    Hits,
    IndexTableBuilder,
    Lookup,
    TableEncoding,
    TableRows,
    check_ordinals,
)
from accel.catalog.kinds.units import UnitHits, file_units, is_flat, places_of
from accel.errors import IndexFormatError
from accel.indexes.kind import ChunkValues, IndexKind, Level
from accel.indexes.matrix import decode_bitmap, encode_bitmap
from accel.indexes.native import Tag, tag_of
from accel.indexes.ngram import Ngram, UnitGrams, gram_alternatives
from accel.indexes.question import question_of
from accel.planning.handle import FileHandle
from accel.planning.projection import type_at
from accel.predicate.atoms import AllOf, AnyOf, IsTrue, Node
from accel.predicate.expr import Column, InList

if TYPE_CHECKING:
    from pyroaring import BitMap

    from accel.arrays import Bools, Int64s

__all__ = ["Ngrams"]

_FILES: Final = -2
"""Stands for a trigram in the row that lists the files of a block."""
_OPAQUE: Final = -1
"""Stands for a trigram in the row of the units that may hold anything."""
_PAGES: Final = 1000
"""Pages of the table, about: the head holds where each lies."""
_BLOCK_CELLS: Final = 1 << 23
"""Trigrams of units that make a block: 8 bytes of memory for each while it is collected."""
_BLOCK_UNITS: Final = 1 << 22
"""Units of a block, where they have few trigrams; the last file may bring more."""
_MOST_FILE_UNITS: Final = 1 << 18
"""Units of a file: `MOST_METADATA` bytes of page indexes tell of fewer pages. A file of more row groups is
not covered."""
_MOST_FILE_CELLS: Final = 1 << 27
"""Trigrams of units of a file; one that has more is not covered."""
MOST_HITS: Final = 1 << 22
"""Units of an answer. A few bytes may name very many units: files of more of them are read as if they were
not covered."""
_MOST_GRAMS: Final = 12
"""Trigrams of one text that are looked up: more of them rarely rule out more."""
_MOST_LOOKED_UP: Final = 200
"""Trigrams of a whole question; of more, too much of the table would be read."""
_SCHEMA: Final = pa.schema(
    [
        pa.field("gram", pa.int32(), nullable=False),
        pa.field("block", pa.int32(), nullable=False),
        pa.field("units", pa.binary(), nullable=False),
    ]
)
Alternatives = list[list[int]]
"""A value that passes has all trigrams of one of the lists."""


class Ngrams(CatalogIndex):
    """Pages of trigrams of a text column."""

    embedded: ClassVar[type[IndexKind] | None] = Ngram
    rows_apart: ClassVar[bool] = False
    values: ClassVar[str] = "one text for each row"

    @property
    def order(self) -> Sequence[tuple[str, str]]:
        """The columns that its table is sorted by; see `CatalogIndex.order`."""
        return (("gram", "ascending"), ("block", "ascending"))

    def encoding(self, schema: pa.Schema, num_rows: int | None) -> TableEncoding:
        """Return how a table is written; see `CatalogIndex.encoding`."""
        # A lookup reads a page for each trigram.
        page_rows = min(max((num_rows or 0) // _PAGES, 16), 256)
        delta = dict.fromkeys(("gram", "block"), "DELTA_BINARY_PACKED")
        return TableEncoding(page_rows=page_rows, column_encoding=delta, write_statistics=tuple(delta))

    def builder(self) -> IndexTableBuilder:
        """Begin the table of a segment; see `CatalogIndex.builder`."""
        return _Builder(self)

    def renumbered(self, table: pa.Table, places: Int64s) -> pa.Table:
        """Return the rows about files that count, by their new ordinals; see `CatalogIndex.renumbered`."""
        units = []
        for gram, data in zip(_ints(table, "gram").tolist(), table.column("units").to_pylist(), strict=True):
            if gram == _FILES:
                files = _files_of(data)
                known = files[:, 0] >= 0
                files[known, 0] = places[check_ordinals(files[known, 0], len(places))]
                data = _packed_files(files)
            units.append(data)
        at = table.schema.get_field_index("units")
        return table.set_column(at, _SCHEMA.field("units"), pa.array(units, pa.binary()))

    def merged(self, tables: Sequence[pa.Table]) -> pa.Table:
        """Merge tables of one schema; see `CatalogIndex.merged`."""
        blocks = _Blocks()
        for table in tables:
            for block in _blocks_of(table):
                grams, units = block.cells()
                live = block.files[:, 0] >= 0
                alive = np.repeat(live, block.files[:, 1])
                moved = np.cumsum(alive) - 1
                keep = alive[units]
                opaque = np.zeros(len(alive), bool)
                opaque[_members(block.opaque)] = True
                blocks.add(block.files[live], grams[keep], moved[units[keep]], opaque[alive])
        return blocks.finish()

    def by_file(self, table: pa.Table, num_files: int) -> Sequence[pa.Table]:
        """Return what a table says of each file; see `CatalogIndex.by_file`."""
        cells = [pa.table({name: pa.array([], pa.int64()) for name in ("gram", "unit")})] * num_files
        for block in _blocks_of(table):
            check_ordinals(block.files[:, 0], num_files)
            grams, units = block.cells()
            opaque = _members(block.opaque)
            grams = np.concatenate([np.full(len(opaque), _OPAQUE, np.int64), grams])
            units = np.concatenate([opaque, units])
            owner, local = block.places(units)
            by = np.lexsort((local, grams, owner))
            starts = np.searchsorted(owner[by], np.arange(len(block.files) + 1))
            for at, file in enumerate(block.files[:, 0].tolist()):
                mine = by[starts[at] : starts[at + 1]]
                cells[file] = pa.table({"gram": pa.array(grams[mine]), "unit": pa.array(local[mine])})
        return cells

    def ask(self, question: CatalogQuestion, stored: pa.Schema) -> Lookup | None:
        """Return what a question needs of a table; see `CatalogIndex.ask`."""
        if self.columns[0] not in question.paths:
            return None
        conditions = [
            found
            for node in _operands(question.bound.root, AllOf)
            if (found := self._alternatives(node, question)) is not None
        ]
        needed = {gram for alternatives in conditions for grams in alternatives for gram in grams}
        if not conditions or len(needed) > _MOST_LOOKED_UP:
            return None
        wanted = InList(Column(("gram",)), (_FILES, _OPAQUE, *sorted(needed)))
        return Lookup(_SCHEMA.names, wanted, _Answer(self, conditions).hits)

    def _alternatives(self, node: Node, question: CatalogQuestion) -> Alternatives | None:
        """Return the trigrams of the values by which a part of the predicate may be true.

        None where trigrams cannot say.
        """
        column = question.paths[self.columns[0]]
        out: Alternatives = []
        for leaf in _operands(node, AnyOf):
            if getattr(leaf, "column", -1) != column:
                return None
            sought = question_of(leaf, question.bound.columns[column])
            lists = None if sought is None else gram_alternatives(sought)
            if lists is None or not all(map(len, lists)):
                return None
            out += [_some(grams) for grams in lists]
        return out


def _operands(node: Node, kind: type[AllOf | AnyOf]) -> Iterator[Node]:
    """Yield the operands of an AND or OR, however nested.

    A part that is true exactly where its operand is stands for that operand.
    """
    if isinstance(node, IsTrue):
        yield from _operands(node.operand, kind)
    elif isinstance(node, kind):
        for operand in node.operands:
            yield from _operands(operand, kind)
    else:
        yield node


def _some(grams: np.ndarray) -> list[int]:
    if len(grams) > _MOST_GRAMS:
        grams = grams[np.linspace(0, len(grams) - 1, _MOST_GRAMS).astype(np.int64)]
    found: list[int] = grams.astype(np.int64).tolist()
    return found


@dataclass(frozen=True, slots=True)
class _Answer:
    index: Ngrams
    conditions: Sequence[Alternatives]

    def hits(self, rows: pa.Table, covered: Bools) -> Hits:
        places = [np.zeros(0, np.int64)]
        seen = np.zeros(len(covered), np.int64)
        answered, hits = covered.copy(), 0
        for block in _blocks_of(rows):
            files = check_ordinals(block.files[:, 0], len(covered))
            np.add.at(seen, files, 1)
            units = self._units(block)
            hits += len(units)
            if hits > MOST_HITS:
                answered[files] = False
                continue
            owner, local = block.places(_members(units))
            places.append(places_of(files[owner], local))
        if bool((covered & (seen == 0)).any()):
            raise IndexFormatError("the catalog lacks the trigrams of files that it covers")
        if bool((seen > 1).any()):
            raise IndexFormatError("the catalog has the trigrams of a file twice")
        return UnitHits.of(np.concatenate(places), self.index.columns, covered=answered)

    def _units(self, block: _Block) -> BitMap:
        from pyroaring import BitMap

        total: BitMap | None = None
        for alternatives in self.conditions:
            hit = block.opaque.copy()
            for grams in alternatives:
                sets = [block.units_of(gram) for gram in grams]
                # The intersection begins with the smallest.
                sets.sort(key=len)
                found = sets[0] if len(sets) == 1 else BitMap.intersection(*sets)
                hit |= found
            total = hit if total is None else total & hit
        return BitMap() if total is None else total


# -- blocks ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class _Block:
    """Rows of one block."""

    files: Int64s
    """For each file the ordinal, -1 where it does not count, and its units."""
    opaque: BitMap
    rows: dict[int, bytes]
    """Units by trigram."""

    @property
    def num_units(self) -> int:
        return int(self.files[:, 1].sum())

    def units_of(self, gram: int) -> BitMap:
        from pyroaring import BitMap

        data = self.rows.get(gram)
        return BitMap() if data is None else decode_bitmap(memoryview(data), limit=self.num_units)

    def places(self, units: Int64s) -> tuple[Int64s, Int64s]:
        """Return the file of each unit, by its place in the block, and the number of the unit in it."""
        ends = np.cumsum(self.files[:, 1])
        owner = np.searchsorted(ends, units, side="right")
        return owner, units - (ends - self.files[:, 1])[owner]

    def cells(self) -> tuple[Int64s, Int64s]:
        """Return all pairs of a trigram and a unit that has it."""
        nothing = np.zeros(0, np.int64)
        sets = [self.units_of(gram) for gram in self.rows]
        sizes = [len(one) for one in sets]
        if sum(sizes) > _BLOCK_CELLS + _MOST_FILE_CELLS:
            raise IndexFormatError("the catalog has more trigrams in a block than are written")
        units = [_members(one) for one in sets]
        grams = np.repeat(np.fromiter(self.rows, np.int64, len(self.rows)), np.array(sizes, np.int64))
        return grams, np.concatenate([nothing, *units])


def _blocks_of(table: pa.Table) -> Iterator[_Block]:
    """Yield the blocks that rows are of.

    Raises IndexFormatError where a block is not described.
    """
    grams, blocks = _ints(table, "gram"), _ints(table, "block")
    units = table.column("units").to_pylist()
    for number in np.unique(blocks).tolist():
        rows = {int(grams[at]): units[at] for at in np.flatnonzero(blocks == number).tolist()}
        files, opaque = rows.pop(_FILES, None), rows.pop(_OPAQUE, None)
        if files is None or opaque is None:
            raise IndexFormatError("the catalog has trigrams and does not tell of which files")
        described = _files_of(files)
        yield _Block(described, decode_bitmap(memoryview(opaque), limit=int(described[:, 1].sum())), rows)


def _ints(table: pa.Table, name: str) -> Int64s:
    column = table.column(name).combine_chunks()
    array = column.chunk(0) if isinstance(column, pa.ChunkedArray) else column
    return np.asarray(integers(array), np.int64)


def _members(units: BitMap) -> Int64s:
    return np.frombuffer(units.to_array(), np.uint32).astype(np.int64)


def _packed_files(files: Int64s) -> bytes:
    return files.astype("<i4").tobytes()


def _files_of(data: bytes) -> Int64s:
    if len(data) % 8:
        raise IndexFormatError("the catalog has trigrams of a broken list of files")
    files = np.frombuffer(data, "<i4").astype(np.int64).reshape(-1, 2)
    if (
        bool(((files[:, 1] < 0) | (files[:, 1] > _MOST_FILE_UNITS)).any())
        or int(files[:, 1].sum()) > _BLOCK_UNITS + _MOST_FILE_UNITS
        or bool((files[:, 0] < -1).any())
    ):
        raise IndexFormatError("the catalog has trigrams of a broken list of files")
    return files


class _Blocks:
    """Collects trigrams of units, and makes rows of them block by block."""

    def __init__(self) -> None:
        self._done: list[pa.Table] = []
        self._begin()

    def _begin(self) -> None:
        self._files: list[Int64s] = []
        self._grams: list[np.ndarray] = []
        self._units: list[np.ndarray] = []
        self._opaque: list[Bools] = []
        self._num_units = self._cells = 0

    def add(self, files: Int64s, grams: Int64s, units: Int64s, opaque: Bools) -> None:
        """Add files: the ordinal and the number of units of each; trigrams, and for each the unit, counted
        from the first of these files on; and whether each unit may hold anything."""
        self._files.append(files)
        self._grams.append(grams.astype(np.uint32))
        self._units.append((units + self._num_units).astype(np.uint32))
        self._opaque.append(opaque)
        self._num_units += len(opaque)
        self._cells += len(grams)
        if self._cells >= _BLOCK_CELLS or self._num_units >= _BLOCK_UNITS:
            self._close()

    def _close(self) -> None:
        grams, units = np.concatenate(self._grams), np.concatenate(self._units)
        by = np.argsort(grams, kind="stable")
        grams, units = grams[by], units[by]
        starts = np.flatnonzero(np.append(True, grams[1:] != grams[:-1])) if len(grams) else grams
        stops = np.append(starts[1:], len(grams)).tolist()
        opaque = np.flatnonzero(np.concatenate(self._opaque)).astype(np.uint32)
        rows = [_packed_files(np.concatenate(self._files)), encode_bitmap(opaque)]
        rows += [encode_bitmap(units[a:b]) for a, b in zip(starts.tolist(), stops, strict=False)]
        numbers = np.concatenate([[_FILES, _OPAQUE], grams[starts].astype(np.int64)]).astype(np.int32)
        block = np.full(len(numbers), len(self._done), np.int32)
        arrays = [pa.array(numbers), pa.array(block), pa.array(rows, pa.binary())]
        self._done.append(pa.Table.from_arrays(arrays, schema=_SCHEMA))
        self._begin()

    def finish(self) -> pa.Table:
        """Return the rows of all blocks, in the order of the table."""
        if self._files or not self._done:
            self._files = self._files or [np.zeros((0, 2), np.int64)]
            self._grams = self._grams or [np.zeros(0, np.uint32)]
            self._units = self._units or [np.zeros(0, np.uint32)]
            self._opaque = self._opaque or [np.zeros(0, bool)]
            self._close()
        whole = pa.concat_tables(self._done)
        return (
            whole if len(self._done) == 1 else whole.sort_by([("gram", "ascending"), ("block", "ascending")])
        )


class _Builder(IndexTableBuilder):
    def __init__(self, index: Ngrams) -> None:
        super().__init__()
        self._index = index
        self._grams = UnitGrams()
        self._blocks: _Blocks | None = None

    def accepts(self, handle: FileHandle) -> bool:
        """Return whether the file has the column, flat and of text."""
        path = self._index.columns[0]
        schema = handle.arrow_schema
        if len(schema.get_all_field_indices(path[0])) != 1:
            return False
        try:
            kind = type_at(schema, path)
        except (KeyError, ValueError):
            return False
        if isinstance(kind, pa.BaseExtensionType):
            return False
        if pa.types.is_dictionary(kind):
            kind = kind.value_type
        return tag_of(kind) is Tag.BYTES and is_flat(handle, path)

    def add(self, file: int, handle: FileHandle, values: Sequence[pa.ChunkedArray]) -> bool:
        units = file_units(handle, self._index.columns)
        if len(values[0]) != int(units.num_rows.sum()):
            raise ValueError(f"{len(values[0])} values for {int(units.num_rows.sum())} rows")
        if len(units) > _MOST_FILE_UNITS:
            return False
        some = np.flatnonzero(units.num_rows)
        opaque = np.zeros(len(units), bool)
        found: list[np.ndarray] = []
        if len(some):
            firsts = (np.cumsum(units.num_rows) - units.num_rows)[some]
            array = pa.concat_arrays(values[0].chunks)
            found, unclear = self._grams.of(ChunkValues(array, firsts, len(array)), Level.PAGE)
            opaque[some] = unclear
        sizes = np.array([len(one) for one in found], np.int64)
        if int(sizes.sum()) > _MOST_FILE_CELLS:
            return False
        self._blocks = self._blocks or _Blocks()
        files = np.array([[file, len(units)]], np.int64)
        grams = np.concatenate([np.zeros(0, np.uint32), *found])
        self._blocks.add(files, grams, np.repeat(some, sizes), opaque)
        return True

    def finish(self) -> TableRows | None:
        return None if self._blocks is None else TableRows.of(self._blocks.finish())
