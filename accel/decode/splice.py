"""A small Parquet file is spliced in memory from chosen pages, for pyarrow to decode.

Its footer describes just these pages. The parts of the footer that depend on the schema alone are cached.
"""

from __future__ import annotations

import base64
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import pyarrow as pa
from cachetools import LRUCache

from accel.arrays import Filled, join_buffers
from accel.decode.extensions import stored_type
from accel.errors import ParquetFormatError
from accel.format.footer import ARROW_SCHEMA_KEY, MAGIC
from accel.format.model import ParquetSchema, Physical, SchemaElement
from accel.format.thrift import (
    BINARY,
    I32,
    STRUCT,
    Struct,
    encode_list_header,
    encode_varint,
    encode_zigzag,
    write_struct,
)
from accel.memory import pool
from accel.ranges import Buffer
from accel.runtime.forks import lock_over_forks

__all__ = [
    "SchemaMemo",
    "SplicePlan",
    "SplicedChunk",
    "plan_splice",
    "splice",
    "splice_groups",
]

T = TypeVar("T")


class SchemaMemo(Generic[T]):
    """A thread-safe LRU cache of values that are computed from a schema, its key-value metadata and a
    question.

    Parameters
    ----------
    entries : int
        The most values in the cache.

    Notes
    -----
    Schemas are compared by identity and metadata by content: the scans of one cached file share its schema,
    and each has its own mapping.
    """

    def __init__(self, entries: int) -> None:
        self._lock = lock_over_forks()
        self._entries: LRUCache[Hashable, tuple[ParquetSchema, Mapping[str, bytes], T]] = LRUCache(entries)

    def get(self, schema: ParquetSchema, key_value: Mapping[str, bytes], question: Hashable) -> T | None:
        """Return the value that was put for these, or None."""
        with self._lock:
            entry = self._entries.get((id(schema), question))
        # The entry keeps its schema alive, so comparing identities excludes an id that was used again.
        if entry is None or entry[0] is not schema:
            return None
        return entry[2] if entry[1] is key_value or entry[1] == key_value else None

    def put(self, schema: ParquetSchema, key_value: Mapping[str, bytes], question: Hashable, value: T) -> T:
        """Cache a value and return it."""
        with self._lock:
            self._entries[id(schema), question] = (schema, key_value, value)
        return value


_MAX_DEPTH = 100
"""pyarrow builds its schema by recursion."""


@dataclass(frozen=True, slots=True, eq=False)
class SplicePlan:
    """The parts of a synthetic footer that do not depend on the pages."""

    schema: ParquetSchema
    fields: tuple[int, ...]
    """The top-level fields, ascending, as positions in `schema.fields`."""
    leaves: tuple[int, ...]
    """All leaves of these fields; the position of a leaf here is its column in the file."""
    head: bytes
    """FileMetaData up to its schema."""
    tail: bytes
    """FileMetaData beginning with its key-value metadata."""
    columns: tuple[bytes, ...]
    """ColumnChunk up to its path, for each leaf."""
    indexed: frozenset[int]
    """The leaves that are columns of INT32 in the spliced file, whatever they are in the schema."""

    def column(self, leaf: int) -> int:
        """Return the position of a leaf among the columns of the spliced file."""
        return self.leaves.index(leaf)


@dataclass(frozen=True, slots=True)
class SplicedChunk:
    """The pages of one leaf in a spliced file."""

    parts: tuple[Buffer | Filled, ...]
    codec: int
    num_values: int
    uncompressed: int


_plans: SchemaMemo[SplicePlan] = SchemaMemo(64)


def plan_splice(
    schema: ParquetSchema,
    key_value: Mapping[str, bytes],
    *,
    fields: Sequence[int],
    carry_metadata: bool = False,
    created_by: str = "",
    indexed: Collection[int] = (),
) -> SplicePlan:
    """Return the reusable parts of a footer for some top-level fields.

    Parameters
    ----------
    key_value : mapping
        The file's; its Arrow schema is cut to `fields`. An Arrow schema with another number of fields is
        dropped, because pyarrow ignores it.
    carry_metadata : bool
        Whether to carry over the other keys and composite extension types, for a file that only has a schema.
    created_by : str
        The file's writer: pyarrow corrects what some old writers did wrong.
    indexed : collection of int
        Leaves that are top-level fields and have only dictionary-encoded pages, which become columns of
        INT32.

    Raises
    ------
    ParquetFormatError
        The stored Arrow schema cannot be read, or the fields nest too deeply.
    """
    chosen = tuple(sorted(set(fields)))
    changed = frozenset(indexed)
    question = (chosen, carry_metadata, created_by, changed)
    plan = _plans.get(schema, key_value, question)
    if plan is None:
        plan = _build_plan(schema, key_value, chosen, carry_metadata, created_by, changed)
        _plans.put(schema, key_value, question, plan)
    return plan


def _build_plan(
    schema: ParquetSchema,
    key_value: Mapping[str, bytes],
    fields: tuple[int, ...],
    carry_metadata: bool,
    created_by: str,
    indexed: frozenset[int],
) -> SplicePlan:
    leaves: list[int] = []
    elements: list[bytes] = []
    integers: set[int] = set()
    for field in fields:
        leaves.extend(range(*schema.field_leaves[field]))
        top = schema.fields[field]
        if leaves[-1] in indexed:
            integers.add(field)
            elements.append(_integer_element(schema.elements[top]))
            continue
        elements.extend(e.raw for e in schema.elements[top : schema.subtree_ends[top]])
    columns: list[bytes] = []
    for ordinal in leaves:
        leaf = schema.leaves[ordinal]
        if len(leaf.ancestors) > _MAX_DEPTH:
            raise ParquetFormatError(
                f"a column is nested {len(leaf.ancestors)} levels deep, more than {_MAX_DEPTH}",
                place=f"column {'.'.join(leaf.path[:3])}...",
            )
        physical = Physical.INT32 if ordinal in indexed else schema.elements[leaf.element].physical
        if physical is None:
            raise ParquetFormatError(
                "a column without a physical type", place=f"column {'.'.join(leaf.path)}"
            )
        # file_offset 0; meta_data: type, no encodings and no path, which pyarrow takes from elsewhere.
        columns.append(b"\x26\x00\x1c\x15" + encode_zigzag(physical) + b"\x19\x05\x19\x08\x15")
    root: Struct = {4: (BINARY, b"schema"), 5: (I32, len(fields))}
    head = (
        b"\x15\x04\x19"
        + encode_list_header(STRUCT, 1 + len(elements))
        + write_struct(root)
        + b"".join(elements)
    )
    pairs = _pairs(key_value, fields, len(schema.fields), carry_metadata, integers)
    tail = b""
    if pairs:
        tail = (
            b"\x19"
            + encode_list_header(STRUCT, len(pairs))
            + b"".join(
                write_struct({1: (BINARY, k.encode("utf-8", "surrogateescape")), 2: (BINARY, v)})
                for k, v in pairs
            )
        )
    if created_by:
        text = created_by.encode("utf-8", "surrogateescape")
        tail += (b"\x18" if pairs else b"\x28") + encode_varint(len(text)) + text
    return SplicePlan(schema, fields, tuple(leaves), head, tail + b"\x00", tuple(columns), indexed)


def _integer_element(element: SchemaElement) -> bytes:
    fields: Struct = {
        1: (I32, int(Physical.INT32)),
        3: (I32, int(element.repetition)),
        4: (BINARY, element.name.encode("utf-8", "surrogateescape")),
    }
    return write_struct(fields)


def _pairs(
    key_value: Mapping[str, bytes],
    fields: tuple[int, ...],
    num_fields: int,
    carry_metadata: bool,
    integers: Collection[int],
) -> list[tuple[str, bytes]]:
    pairs = [(k, v) for k, v in key_value.items() if k != ARROW_SCHEMA_KEY] if carry_metadata else []
    encoded = key_value.get(ARROW_SCHEMA_KEY)
    if encoded is None:
        return pairs
    if len(fields) == num_fields and not integers and (carry_metadata or not _tells_of_extensions(encoded)):
        return [*pairs, (ARROW_SCHEMA_KEY, encoded)]
    try:
        message = base64.b64decode(encoded, validate=True)
        stored = pa.ipc.read_schema(pa.py_buffer(message))
    except (ValueError, OSError, pa.ArrowException) as error:
        raise ParquetFormatError(
            f"the stored Arrow schema cannot be read: {error}", place="footer"
        ) from error
    if len(stored) != num_fields:
        return pairs
    cut_fields = [stored.field(i).with_type(pa.int32()) if i in integers else stored.field(i) for i in fields]
    if not carry_metadata and _EXTENSION_KEY in message:
        cut_fields = [field.with_type(stored_type(field.type)) for field in cut_fields]
    cut = pa.schema(cut_fields, metadata=stored.metadata)
    return [*pairs, (ARROW_SCHEMA_KEY, base64.b64encode(cut.serialize(memory_pool=pool()).to_pybytes()))]


def _tells_of_extensions(encoded: bytes) -> bool:
    try:
        return _EXTENSION_KEY in base64.b64decode(encoded, validate=True)
    except ValueError:
        return False


_EXTENSION_KEY = b"ARROW:extension:name"


def splice(plan: SplicePlan, chunks: Mapping[int, SplicedChunk], *, num_rows: int) -> pa.Buffer:
    """Return a Parquet file with one row group of these chunks (by leaf); without chunks it has no row group.

    `num_rows` is at least the number of rows of the longest column, because pyarrow reads no more.
    """
    return (
        splice_groups(plan, [chunks], num_rows=[num_rows]) if chunks else splice_groups(plan, (), num_rows=())
    )


def splice_groups(
    plan: SplicePlan, groups: Sequence[Mapping[int, SplicedChunk]], *, num_rows: Sequence[int]
) -> pa.Buffer:
    """Return a Parquet file with several row groups, as `splice` does with one."""
    parts: list[Buffer | Filled] = [MAGIC]
    position = len(MAGIC)
    footer = [
        plan.head,
        b"\x16",
        encode_zigzag(sum(num_rows)),
        b"\x19",
        encode_list_header(STRUCT, len(groups)),
    ]
    for chunks, rows in zip(groups, num_rows, strict=True):
        # RowGroup: columns, bytes, rows.
        counted = encode_zigzag(rows)
        footer += [b"\x19", encode_list_header(STRUCT, len(plan.leaves))]
        for start, leaf in zip(plan.columns, plan.leaves, strict=True):
            chunk = chunks.get(leaf)
            if chunk is None:
                footer += [start, b"\x00\x16", counted, b"\x16\x00\x16\x00\x26\x08\x00\x00"]
                continue
            size = sum(map(len, chunk.parts))
            # codec, num_values, sizes; then the offset of the first page, dictionary or data.
            footer.append(
                b"%b%b\x16%b\x16%b\x16%b\x26%b\x00\x00"
                % (
                    start,
                    encode_zigzag(chunk.codec),
                    counted if chunk.num_values <= rows else encode_zigzag(chunk.num_values),
                    encode_zigzag(chunk.uncompressed),
                    encode_zigzag(size),
                    encode_zigzag(position),
                )
            )
            parts.extend(chunk.parts)
            position += size
        footer += [b"\x16", encode_zigzag(position), b"\x16", counted, b"\x00"]
    footer.append(plan.tail)
    length = sum(map(len, footer))
    return join_buffers((*parts, b"".join((*footer, length.to_bytes(4, "little"), MAGIC))))
