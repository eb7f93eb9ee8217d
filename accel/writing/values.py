"""The values of one column, a row group at a time, decoded from the file that they stand in."""

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
from accel.decode.columns import decode_columns
from accel.decode.indexed import Values
from accel.errors import ColumnNotFoundError, MemoryLimitError, SchemaMismatchError
from accel.format.model import FileMetadata, Leaf, OffsetIndex
from accel.indexes.kind import ChunkValues
from accel.options import MIB, Options
from accel.planning.pages import DICTIONARY_ENCODINGS
from accel.planning.selection import RowSelection
from accel.writing.original import At
from accel.writing.source import Source

if TYPE_CHECKING:
    from accel.arrays import Int64s

__all__ = ["ColumnValues", "Texts", "find_leaf", "flat_leaf", "join_parts", "whole_chunk"]


_TEXTS = (pa.string(), pa.large_string(), pa.binary(), pa.large_binary())
_PIECE_BYTES = 8 * MIB
"""Stored bytes that are read and decoded at once."""
_PIECE_ROWS = 1 << 19
"""Rows, likewise: few bytes may hold many."""


def find_leaf(metadata: FileMetadata, column: str | tuple[str, ...]) -> Leaf:
    """The leaf that a name or dotted path means, or a path given name by name; of what a dotted path may mean a top-level
    name wins over a field, and of several the longest.

    Raises
    ------
    ColumnNotFoundError
        There is none.
    SchemaMismatchError
        It is not one value a row: a struct as a whole, or something inside a list. Or there are several of that name.
    """
    schema = metadata.schema
    if isinstance(column, str):
        shown, names = column, column.split(".")
        paths = [(".".join(names[:cut]), *names[cut:]) for cut in range(len(names), 0, -1)]
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
    """As scans do: an index of one of them would be of no use."""
    for depth in range(1, len(path) + 1):
        name = path[:depth]
        alike = [leaf for leaf in metadata.schema.leaves if leaf.path[:depth] == name]
        if len({(*leaf.ancestors, leaf.element)[depth - 1] for leaf in alike}) > 1:
            raise SchemaMismatchError(
                f"the file has several columns named {'.'.join(name)!r}", hint="name others in indexes="
            )


def flat_leaf(leaf: Leaf) -> bool:
    """Whether the column has one value a row."""
    return leaf.max_repetition == 0


def whole_chunk(source: Source, metadata: FileMetadata, at: At) -> ChunkPages:
    """A chunk read as it stands in the file, its pages not known one by one."""
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
    """How text and binary columns come out."""

    PLAIN = "plain"
    """As a scan has them."""
    CODED = "coded"
    """As dictionary arrays where the file has them so, which spares making and comparing every value."""


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
        """Of the arrays."""
        found = self.arrow_schema.field(0).type
        for name in self.leaf.path[1:]:
            found = found.field(name).type
        return pa.dictionary(pa.int32(), found) if self.coded else found

    def read_runs(self, group: int, index: OffsetIndex | None) -> Iterator[ChunkValues]:
        """All values of one row group in order, a bounded run of whole pages at a time; all at once where the pages are
        not known.

        Raises
        ------
        MemoryLimitError
            A run is more than `options.memory_limit`.
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
        """Pages to cut at: by stored bytes, or by what they are expected to decode to, and by rows."""
        chunks = self.metadata.chunks
        expansion = max(1.0, int(chunks.uncompressed[at]) / max(1, int(chunks.compressed[at])) / 4)
        most = max(1, min(_PIECE_BYTES, self.options.memory_limit // 8))
        turns = (np.cumsum(index.size) * expansion // most).astype(np.int64) + index.first_row // _PIECE_ROWS
        return [0, *(np.flatnonzero(np.diff(turns)) + 1).tolist(), index.num_pages]

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
            [array] = decode_columns(
                self.metadata.schema,
                self.metadata.key_value,
                chunks={self.leaf.ordinal: pages},
                rows=RowSelection(np.array([start], np.int64), np.array([stop], np.int64)),
                arrow_schema=self.arrow_schema,
                leaves=[self.leaf.ordinal],
                path=self.source.name,
                row_group=group,
                values=Values.INDEXED if self.coded else Values.DECODED,
                memory_limit=self.options.memory_limit,
                created_by=self.metadata.created_by,
                verify_checksums=self.options.verify_checksums,
            )
        except SchemaMismatchError as error:
            # Whatever a scan may do about it.
            error.hint = "indexes tell nanoseconds of INT96: give this column none"
            raise
        parts = array.chunks if isinstance(array, pa.ChunkedArray) else [array]
        if self.coded:
            # Of a chunk that falls back to another encoding some runs come as indices, and some as texts.
            dug = [_as_dictionary(part) for part in parts]
        else:
            dug = [_dig(part, self.leaf.path[1:]) for part in parts]
        if sum(part.nbytes for part in dug) > self.options.memory_limit:
            raise MemoryLimitError(
                f"the column's values come to more than {self.options.memory_limit} bytes",
                path=self.source.name,
                place=f"row group {group}, column {'.'.join(self.leaf.path)}",
                hint="raise options.memory_limit, or write smaller pages",
            )
        return ChunkValues(join_parts(dug) if dug else pa.nulls(0, self.type), first_rows, stop - start)


def _as_dictionary(array: pa.Array) -> pa.Array:
    """Texts as a dictionary array, which is what they are already where their pages name entries of one."""
    return array if pa.types.is_dictionary(array.type) else array.dictionary_encode()


def _dig(array: pa.Array, path: tuple[str, ...]) -> pa.Array:
    """A field of structs, null where any of them is."""
    if isinstance(array.type, pa.BaseExtensionType):
        array = array.storage if path else array
    for name in path:
        array = pc.struct_field(array, indices=[array.type.get_field_index(name)])
    return array


def join_parts(parts: Sequence[pa.Array]) -> pa.Array:
    """One array; where 32-bit offsets cannot hold it, of the large type."""
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
