"""Indexes built over the columns of a file: each column is decoded once, a row group at a time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from accel.errors import AccelError, MemoryLimitError, SchemaMismatchError
from accel.format.model import FileMetadata, OffsetIndex
from accel.indexes.kind import ChunkValues, Level
from accel.indexes.native import signature_of
from accel.options import MIB, Options
from accel.writing.original import At
from accel.writing.scratch import Kept, Scratch
from accel.writing.source import Source
from accel.writing.values import ColumnValues, Texts
from accel.writing.wanted import WantedIndex

__all__ = ["BuiltIndex", "build_indexes"]

_MOST_IDX1_BYTES = 64 * MIB
_NO_PAGES = np.zeros(1, np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class BuiltIndex:
    """One index as bytes."""

    wanted: WantedIndex
    row_group: int
    """-1 for one of the whole file."""
    units: int
    signature: str
    """What values of the column are stored as, for whom a type of the same name is not enough."""
    data: Kept
    seconds: float
    """What building it took, decoding not counted."""


def build_indexes(
    source: Source,
    metadata: FileMetadata,
    offset_indexes: Mapping[At, OffsetIndex],
    wanted: Sequence[WantedIndex],
    *,
    options: Options,
    scratch: Scratch,
    note: Callable[[int], None],
) -> list[BuiltIndex]:
    """Build all wanted indexes.

    Parameters
    ----------
    offset_indexes : mapping
        Of every chunk of a column that wants an index by pages.
    scratch : Scratch
        Keeps their bytes.
    note : callable
        Told the stored bytes of each chunk that was decoded.

    Raises
    ------
    AccelError
        A kind failed, or the column is not of a type that it takes; the column is named.
    """
    by_leaf: dict[int, list[WantedIndex]] = {}
    for index in wanted:
        by_leaf.setdefault(index.leaf.ordinal, []).append(index)
    built: list[BuiltIndex] = []
    for indexes in by_leaf.values():
        values = ColumnValues(source, metadata, indexes[0].leaf, options, texts=Texts.CODED)
        built += _Column(values, offset_indexes, scratch, note).build(indexes)
    # By identity: a kind of the caller's need not be hashable.
    order = {id(index): turn for turn, index in enumerate(wanted)}
    return sorted(built, key=lambda index: (order[id(index.wanted)], index.row_group))


class _Column:
    """The indexes of one column."""

    def __init__(
        self,
        values: ColumnValues,
        offset_indexes: Mapping[At, OffsetIndex],
        scratch: Scratch,
        note: Callable[[int], None],
    ) -> None:
        self.values = values
        self.offset_indexes = offset_indexes
        self.scratch = scratch
        self.note = note
        self.name = ".".join(values.leaf.path)
        self.signature = signature_of(values.type)
        self.elsewhere = 0.0
        """Seconds that went by within a build and are not its own."""

    def build(self, indexes: Sequence[WantedIndex]) -> list[BuiltIndex]:
        grouped = [index for index in indexes if index.level is not Level.FILE]
        whole = [index for index in indexes if index.level is Level.FILE and index.kind is not None]
        texts = [_TextList(index, self) for index in indexes if index.kind is None]
        built: list[BuiltIndex] = []

        def chunks(*, first: bool) -> Iterator[ChunkValues]:
            """The row groups; on the first way through they also feed what is built group by group."""
            if not self.values.metadata.num_row_groups:
                yield ChunkValues(pa.nulls(0, self.values.type), _NO_PAGES, 0)
            for group in range(self.values.metadata.num_row_groups):
                chunk = self._decode(group)
                begun = time.perf_counter()
                for index in grouped if first else ():
                    built.append(self._call(index, iter((chunk,)), group, len(chunk.starts(index.level))))
                for text in texts if first else ():
                    text.add(chunk.array)
                self.elsewhere += time.perf_counter() - begun
                yield chunk

        for turn, index in enumerate(whole):
            built.append(self._call(index, chunks(first=turn == 0), -1, 1))
        if not whole:
            for _ in chunks(first=True):
                pass
        return built + [text.finish() for text in texts]

    def _decode(self, group: int) -> ChunkValues:
        begun = time.perf_counter()
        values = self.values
        at = (group, values.leaf.ordinal)
        index = self.offset_indexes.get(at)
        num_rows = int(values.metadata.group_rows[group])
        array = values.read_group(group, index)
        self.elsewhere += time.perf_counter() - begun
        self.note(int(values.metadata.chunks.compressed[at]))
        return ChunkValues(array, _NO_PAGES if index is None else index.first_row, num_rows)

    def _call(self, index: WantedIndex, chunks: Iterator[ChunkValues], group: int, units: int) -> BuiltIndex:
        assert index.kind is not None
        begun, before = time.perf_counter(), self.elsewhere
        place = f"column {self.name}" + (f", row group {group}" if group >= 0 else "")
        paged = (group, index.leaf.ordinal) in self.offset_indexes
        if index.level is Level.PAGE and units and not paged:
            raise AccelError("the pages are not known, so no index can be made of them", place=place)
        try:
            data = index.kind.build(chunks, level=index.level)
            for _ in chunks:  # a kind that stops early must not keep the others from their row groups
                pass
        except AccelError as error:
            raise error.at(path=self.values.source.name, place=place)
        except Exception as error:
            raise AccelError(
                f"index kind {index.kind_name} failed: {type(error).__name__}: {error}",
                path=self.values.source.name,
                place=place,
            ) from error
        if not isinstance(data, bytes):
            raise AccelError(
                f"index kind {index.kind_name} built a {type(data).__name__}, not bytes", place=place
            )
        seconds = time.perf_counter() - begun - (self.elsewhere - before)
        return BuiltIndex(index, group, units, self.signature, self.scratch.keep(data), seconds)


class _TextList:
    """The distinct texts of a column, for IDX1."""

    def __init__(self, index: WantedIndex, column: _Column) -> None:
        self.index = index
        self.column = column
        self.found: pa.Array | None = None
        self.seconds = 0.0
        kind = column.values.type
        if pa.types.is_dictionary(kind):
            kind = kind.value_type
        if not (pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)):
            raise SchemaMismatchError(f"idx1 lists texts, and column {column.name} is of type {kind}")

    def add(self, array: pa.Array) -> None:
        begun = time.perf_counter()
        if pa.types.is_dictionary(array.type):
            # A dictionary may hold what no row has.
            array = array.dictionary.take(pc.unique(array.indices).drop_null())
        if array.type != pa.large_string():
            array = array.cast(pa.large_string())
        here = pc.unique(array).drop_null()
        self.found = here if self.found is None else pc.unique(pa.concat_arrays([self.found, here]))
        if self.found.nbytes > _MOST_IDX1_BYTES:
            raise MemoryLimitError(
                f"column {self.column.name} has more than {_MOST_IDX1_BYTES} bytes of distinct texts",
                hint="idx1 is for columns of few values",
            )
        self.seconds += time.perf_counter() - begun

    def finish(self) -> BuiltIndex:
        from accel.format.idx1 import encode_idx1

        texts = [] if self.found is None else sorted(self.found.to_pylist())
        signature = self.column.signature
        return BuiltIndex(
            self.index, -1, 1, signature, self.column.scratch.keep(encode_idx1(texts)), self.seconds
        )
