"""The values of one column of a file, decoded a row group at a time."""

from __future__ import annotations

import enum
import itertools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from accel.arrays import whole
from accel.decode.arrow import projected_schema
from accel.decode.chunks import ChunkPages
from accel.decode.columns import StoredRowGroup, decode_columns
from accel.decode.dictionary_arrays import Values
from accel.errors import ColumnNotFoundError, MemoryLimitError, SchemaMismatchError
from accel.format.model import FileMetadata, Leaf, OffsetIndex
from accel.indexes.kind import ChunkValues
from accel.options import MIB, Options
from accel.planning.pages import DICTIONARY_ENCODINGS
from accel.planning.selection import RowSelection
from accel.predicate.expr import quoted_path
from accel.writing.original import At
from accel.writing.source import Source

if TYPE_CHECKING:
    from accel.arrays import Int64s

__all__ = ["ColumnValues", "Texts", "find_leaf", "flat_leaf", "join_parts", "whole_chunk"]


_TEXTS = (pa.string(), pa.large_string(), pa.binary(), pa.large_binary())
_PIECE_BYTES = 8 * MIB
"""Stored bytes that are read and decoded at once."""
_PIECE_ROWS = 1 << 19
"""Rows that are decoded at once: few bytes may hold many."""


def find_leaf(metadata: FileMetadata, column: str | tuple[str, ...]) -> Leaf:
    """Return the leaf that a name, a dotted path, one with names in double quotes, or a tuple of names means;
    a top-level name wins over a field of a struct.

    Raises
    ------
    ColumnNotFoundError
        There is no such column.
    SchemaMismatchError
        The column does not have one value per row, being a struct or inside a list, or there are several of
        that name.
    """
    schema = metadata.schema
    if isinstance(column, str):
        shown, names = column, column.split(".")
        paths = [(".".join(names[:cut]), *names[cut:]) for cut in range(len(names), 0, -1)]
        quoted = quoted_path(column)
        paths += [] if quoted is None else [quoted]
    else:
        shown, paths = ".".join(column), [column]
    for path in paths:
        below = [leaf for leaf in schema.leaves if leaf.path[: len(path)] == path]
        if not below:
            continue
        leaf = next((leaf for leaf in below if leaf.path == path), None)
        if leaf is None:
            raise SchemaMismatchError(f"column {shown} is nested", hint="name one of its fields, if a struct")
        _refuse_namesakes(metadata, path)
        if not flat_leaf(leaf):
            raise SchemaMismatchError(f"column {shown} is inside a list", hint="index a flat column")
        return leaf
    import difflib

    close = difflib.get_close_matches(shown, schema.names, 3)
    hint = f"did you mean {' or '.join(close)}?" if close else f"there are {', '.join(schema.names[:20])}"
    raise ColumnNotFoundError(f"no column {shown}", hint=hint)


def _refuse_namesakes(metadata: FileMetadata, path: tuple[str, ...]) -> None:
    """Refuse columns of the same name, as scans do: nothing could use the index."""
    for depth in range(1, len(path) + 1):
        name = path[:depth]
        alike = [leaf for leaf in metadata.schema.leaves if leaf.path[:depth] == name]
        if len({(*leaf.ancestors, leaf.element)[depth - 1] for leaf in alike}) > 1:
            raise SchemaMismatchError(
                f"the file has several columns named {'.'.join(name)!r}", hint="name others in `indexes=`"
            )


def flat_leaf(leaf: Leaf) -> bool:
    """Return whether a column has one value per row."""
    return leaf.max_repetition == 0


def whole_chunk(source: Source, metadata: FileMetadata, at: At) -> ChunkPages:
    """Read a chunk as a whole."""
    chunks = metadata.chunks
    [data] = source.read([(int(chunks.start[at]), int(chunks.end[at]))])
    return ChunkPages(
        leaf=at[1],
        codec=int(chunks.codec[at]),
        dictionary=None,
        buffers=(data,),
        first_rows=np.zeros(1, np.int64),
        stop_rows=np.full(1, int(metadata.group_rows[at[0]]), np.int64),
        num_values=int(chunks.num_values[at]),
        whole=True,
    )


class Texts(enum.Enum):
    """How text and binary columns are decoded."""

    PLAIN = "plain"
    """As a scan decodes them."""
    CODED = "coded"
    """As dictionary arrays if the file has dictionaries, which spares making and comparing every value."""


class ColumnValues:
    """Decodes one column of one file, in pieces of bounded size."""

    def __init__(
        self,
        source: Source,
        metadata: FileMetadata,
        *,
        leaf: Leaf,
        options: Options,
        texts: Texts = Texts.PLAIN,
    ) -> None:
        self.source = source
        self.metadata = metadata
        self.leaf = leaf
        self.options = options
        self.arrow_schema = projected_schema(metadata.schema, metadata.key_value, leaves=[leaf.ordinal])
        kind = self.arrow_schema.field(0).type
        self.coded = (
            texts is Texts.CODED and len(leaf.path) == 1 and kind in _TEXTS and self._has_dictionaries()
        )

    def _has_dictionaries(self) -> bool:
        encodings = self.metadata.chunks.encodings[:, self.leaf.ordinal]
        return bool((encodings & DICTIONARY_ENCODINGS).any())

    @property
    def type(self) -> pa.DataType:
        """The type of the arrays."""
        found = self.arrow_schema.field(0).type
        for name in self.leaf.path[1:]:
            found = found.field(name).type
        return pa.dictionary(pa.int32(), found) if self.coded else found

    def read_runs(self, group: int, index: OffsetIndex | None) -> Iterator[ChunkValues]:
        """Yield the values of one row group in order, a bounded run of whole pages at a time; all at once
        without an index.

        Raises
        ------
        MemoryLimitError
            A run exceeds `options.memory_limit`.
        """
        num_rows = int(self.metadata.group_rows[group])
        if not num_rows:
            return
        if index is None:
            pages = whole_chunk(self.source, self.metadata, (group, self.leaf.ordinal))
            yield self._decode(group, pages, 0, num_rows, np.zeros(1, np.int64))
            return
        at = (group, self.leaf.ordinal)
        start = int(self.metadata.chunks.start[at])
        dictionary = None
        if start < int(index.offset[0]):
            [dictionary] = self.source.read([(start, int(index.offset[0]))])
        for lo, hi in itertools.pairwise(self._cuts(index, at)):
            pages = self._pages(index, lo, hi, dictionary, at, num_rows)
            first, last = int(pages.first_rows[0]), int(pages.stop_rows[-1])
            yield self._decode(group, pages, first, last, pages.first_rows - first)

    def _cuts(self, index: OffsetIndex, at: At) -> list[int]:
        """Return the pages at which to cut: by stored bytes, or the bytes that they probably decode to, and
        by rows."""
        chunks = self.metadata.chunks
        expansion = max(1.0, int(chunks.uncompressed[at]) / max(1, int(chunks.compressed[at])) / 4)
        most = max(1, min(_PIECE_BYTES, self.options.memory_limit // 8))
        pieces = (np.cumsum(index.size) * expansion // most).astype(np.int64) + index.first_row // _PIECE_ROWS
        return [0, *(np.flatnonzero(np.diff(pieces)) + 1).tolist(), index.num_pages]

    def _pages(
        self, index: OffsetIndex, lo: int, hi: int, dictionary: memoryview | None, at: At, num_rows: int
    ) -> ChunkPages:
        begin, end = int(index.offset[lo]), int(index.offset[hi - 1] + index.size[hi - 1])
        [data] = self.source.read([(begin, end)])
        spans = zip((index.offset[lo:hi] - begin).tolist(), index.size[lo:hi].tolist(), strict=True)
        return ChunkPages(
            leaf=self.leaf.ordinal,
            codec=int(self.metadata.chunks.codec[at]),
            dictionary=dictionary,
            buffers=tuple(data[start : start + size] for start, size in spans),
            first_rows=index.first_row[lo:hi],
            stop_rows=np.append(index.first_row[1:], num_rows)[lo:hi],
            num_values=int(self.metadata.chunks.num_values[at]),
            whole=False,
        )

    def _decode(
        self, group: int, pages: ChunkPages, start: int, stop: int, first_rows: Int64s
    ) -> ChunkValues:
        try:
            metadata = self.metadata
            [array] = decode_columns(
                StoredRowGroup(
                    self.source.name, group, metadata.schema, metadata.key_value, metadata.created_by
                ),
                {self.leaf.ordinal: pages},
                rows=RowSelection(np.array([start], np.int64), np.array([stop], np.int64)),
                arrow_schema=self.arrow_schema,
                values=Values.INDEXED if self.coded else Values.DECODED,
                memory_limit=self.options.memory_limit,
                verify_checksums=self.options.verify_checksums,
            )
        except SchemaMismatchError as error:
            error.hint = "indexes tell nanoseconds of INT96: give this column none"
            raise
        parts = array.chunks if isinstance(array, pa.ChunkedArray) else [array]
        if self.coded:
            # If a chunk falls back to another encoding, some runs are dictionary arrays, and some are not.
            fields = [_as_dictionary(part) for part in parts]
        else:
            fields = [_field_of(part, self.leaf.path[1:]) for part in parts]
        if sum(part.nbytes for part in fields) > self.options.memory_limit:
            raise MemoryLimitError(
                f"the column's values come to more than {self.options.memory_limit} bytes",
                path=self.source.name,
                place=f"row group {group}, column {'.'.join(self.leaf.path)}",
                hint="raise `options.memory_limit`, or write smaller pages",
            )
        return ChunkValues(join_parts(fields) if fields else pa.nulls(0, self.type), first_rows, stop - start)


def _as_dictionary(array: pa.Array) -> pa.Array:
    return array if pa.types.is_dictionary(array.type) else array.dictionary_encode()


def _field_of(array: pa.Array, path: tuple[str, ...]) -> pa.Array:
    """Return a field of nested structs, null wherever one of them is."""
    if isinstance(array.type, pa.BaseExtensionType):
        array = array.storage if path else array
    for name in path:
        array = pc.struct_field(array, indices=[array.type.get_field_index(name)])
    return array


def join_parts(parts: Sequence[pa.Array]) -> pa.Array:
    """Join arrays to one; of the large type if 32-bit offsets cannot hold it."""
    if len(parts) == 1:
        return parts[0]
    kind = parts[0].type
    if sum(part.nbytes for part in parts) > 1 << 30:
        wide = {pa.string().id: pa.large_string(), pa.binary().id: pa.large_binary()}
        if kind.id in wide:
            return pa.concat_arrays([part.cast(wide[kind.id]) for part in parts])
    if pa.types.is_dictionary(kind):
        return whole(pa.chunked_array(parts).unify_dictionaries())
    return pa.concat_arrays(parts)
