"""The kind `bloom`: a filter of the values that a column has in each file, for columns of many.

It answers `=` and IN. It takes about 10.5 bits for each distinct value of a file, where `keys` takes a row
for each value and page; a lookup reads a piece of every file's filter, so it is for hundreds of files, and
`keys` is for thousands.

The filter of a file is cut by hash into a power of two of parts, and each part is a row. The slot of part `p`
of `n` is `n + p`, so that the parts which have a given hash are in few slots, and the rows of a slot lie
together.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, Final

import numpy as np
import pyarrow as pa

from accel.catalog.kinds.distincts import EvidenceHits
from accel.catalog.kinds.keys import key_type
from accel.catalog.kinds.kind import (
    CatalogQuestion,
    FileRowsBuilder,
    Hits,
    IndexTableBuilder,
    Lookup,
    RowwiseIndex,
    TableEncoding,
    check_ordinals,
    file_column,
)
from accel.errors import IndexFormatError
from accel.indexes.bloom import MOST_PARTS, WORDS, Bloom, block_counts, probe_part, set_bits, value_hashes
from accel.indexes.kind import IndexKind
from accel.indexes.native import hash_natives, signature_of
from accel.indexes.question import LeafOp, LeafQuestion
from accel.planning.handle import FileHandle
from accel.predicate.atoms import Node
from accel.predicate.expr import Column, InList
from accel.predicate.prune import Evidence

if TYPE_CHECKING:
    from accel.arrays import Bools, Uint64s

__all__ = ["Blooms"]

_PAGE_ROWS: Final = 512
_PART_BLOCKS: Final = 8
"""Blocks of a part, about."""
_BLOCK_BYTES: Final = 4 * WORDS
_MOST_VALUES: Final = 50
"""An IN of more values is not looked up: it would read most of the table."""
_SCHEMA: Final = pa.schema(
    [
        pa.field("slot", pa.int32(), nullable=False),
        pa.field("file", pa.int32(), nullable=False),
        pa.field("signature", pa.string(), nullable=False),
        pa.field("blocks", pa.binary(), nullable=False),
    ]
)


class Blooms(RowwiseIndex):
    """Filters of the values of a column by file."""

    embedded: ClassVar[type[IndexKind] | None] = Bloom

    @property
    def order(self) -> Sequence[tuple[str, str]]:
        """The columns that its table is sorted by; see `CatalogIndex.order`."""
        return (("slot", "ascending"), ("file", "ascending"))

    def encoding(self, schema: pa.Schema, num_rows: int | None) -> TableEncoding:
        """Return how a table is written; see `CatalogIndex.encoding`."""
        delta = dict.fromkeys(("slot", "file"), "DELTA_BINARY_PACKED")
        return TableEncoding(
            page_rows=_PAGE_ROWS,
            use_dictionary=["signature"],
            column_encoding=delta,
            write_statistics=("slot", "file"),
        )

    def builder(self) -> IndexTableBuilder:
        """Begin the table of a segment; see `CatalogIndex.builder`."""
        return _Builder(self)

    def ask(self, question: CatalogQuestion, stored: pa.Schema) -> Lookup | None:
        """Return what a question needs of a table; see `CatalogIndex.ask`."""
        questions: list[tuple[Node, LeafQuestion, Uint64s]] = [
            (node, leaf, hash_natives(leaf.values, leaf.tag))
            for node, leaf in self.leaf_questions(question)
            if leaf.op is not LeafOp.IS_NULL and leaf.tag is not None and len(leaf.values) <= _MOST_VALUES
        ]
        every = [key for _, _, hashes in questions for key in hashes.tolist()]
        if not questions or len(every) > _MOST_VALUES:
            return None
        slots = sorted({slot for key in every for slot in _slots(key)})

        def hits(rows: pa.Table, covered: Bools) -> Hits:
            parts = _Parts(rows, covered)
            found = {id(node): parts.evidence(leaf, hashes) for node, leaf, hashes in questions}
            return EvidenceHits(tuple(node for node, _, _ in questions), found)

        return Lookup(_SCHEMA.names, InList(Column(("slot",)), tuple(slots)), hits)


def _slots(key: int) -> list[int]:
    """Return the slots of a hash in filters of 1 part to `MOST_PARTS`."""
    counts = [1 << at for at in range(MOST_PARTS.bit_length())]
    return [parts + ((key >> 32) * parts >> 32) for parts in counts]


class _Parts:
    """Rows of the slots that were looked up."""

    def __init__(self, rows: pa.Table, covered: Bools) -> None:
        self._covered = covered
        self._files = check_ordinals(file_column(rows), len(covered))
        self._signatures = rows.column("signature").to_pylist()
        self._blocks: list[bytes] = rows.column("blocks").to_pylist()
        if any(not blocks or len(blocks) % _BLOCK_BYTES for blocks in self._blocks):
            raise IndexFormatError("the catalog has a bloom filter of a wrong length")
        slots = rows.column("slot").to_pylist()
        self._rows: dict[int, list[int]] = {}
        for at, slot in enumerate(slots):
            self._rows.setdefault(slot, []).append(at)

    def evidence(self, question: LeafQuestion, hashes: Uint64s) -> Evidence:
        """Return the outcomes that a test for equality may have in each file."""
        hit = ~self._covered
        signature = signature_of(question.arrow_type)
        for key in hashes:
            for slot in _slots(int(key)):
                at = self._rows.get(slot, [])
                if not at:
                    continue
                counts = np.array([len(self._blocks[row]) // _BLOCK_BYTES for row in at], np.int64)
                words = np.frombuffer(b"".join(self._blocks[row] for row in at), "<u4")
                found = probe_part(key, words, counts, parts=1 << (slot.bit_length() - 1))
                hit[self._files[at][found]] = True
        # Values of other types hash in another way.
        other = [own != signature for own in self._signatures]
        hit[self._files[other]] = True
        everything = np.ones(len(hit), bool)
        return Evidence(hit, everything, everything)


class _Builder(FileRowsBuilder):
    def __init__(self, index: Blooms) -> None:
        super().__init__(index.order)
        self._index = index

    def accepts(self, handle: FileHandle) -> bool:
        """Return whether the file has the column, flat and of a type whose values are looked up."""
        return key_type(handle, self._index.columns[0]) is not None

    def add(self, file: int, handle: FileHandle, values: Sequence[pa.ChunkedArray]) -> bool:
        column = values[0]
        array = pa.concat_arrays(column.chunks) if column.num_chunks else pa.nulls(0, column.type)
        hashes = value_hashes(array)
        count = int(block_counts(np.array([len(hashes)], np.int64), Bloom().fpp)[0])
        if not count:
            self.rows.add(_SCHEMA.empty_table())
            return True
        parts = min(MOST_PARTS, 1 << max(0, (count // _PART_BLOCKS).bit_length() - 1))
        each = -(-count // parts)
        words = np.zeros(parts * each * WORDS, np.uint32)
        set_bits(words, hashes, 0, parts * each)
        blocks = words.astype("<u4").reshape(parts, each * WORDS)
        arrays = [
            pa.array(np.arange(parts, 2 * parts, dtype=np.int32)),
            pa.array(np.full(parts, file, np.int32)),
            pa.repeat(pa.scalar(signature_of(column.type)), parts),
            pa.array([one.tobytes() for one in blocks], pa.binary()),
        ]
        self.rows.add(pa.Table.from_arrays(arrays, schema=_SCHEMA))
        return True
