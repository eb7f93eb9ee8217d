"""The types of a table as its files store them, so that a rewrite stores them alike.

pyarrow writes many columns back as another type than it has read: INT96 as nanoseconds without a zone,
decimals in integers as bytes, ENUM, BSON, INTERVAL, VARIANT and types that it does not know without their
annotation, times in UTC as local ones. Which ones, a file without rows says that it writes. Such a leaf is
read as the plain numbers or bytes that are stored, written as these, and the footer of the new file gets its
annotation back. So no value of it is decoded, and none can change.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from accel.arrays import change_fields, pack_bits, validity
from accel.errors import SchemaMismatchError
from accel.format.footer import ARROW_SCHEMA_KEY, parse_footer, parse_tail
from accel.format.model import FileMetadata, ParquetSchema, Physical, SchemaElement
from accel.format.thrift import I32, Struct, read_struct, write_struct
from accel.writing.column_forms import (
    Form,
    NodePath,
    agree,
    child_paths,
    form_of,
    leaf_types,
    nodes_of,
    spelled,
)
from accel.writing.storable import arrow_schema_pairs, plain_schema, refusals

__all__ = ["INSTANT_BYTES", "INSTANT_MARK", "Annotation", "SeenTypes", "StoredTypes", "instant_keys"]

INSTANT_BYTES: Final = 12
"""Bytes of an INT96: nanoseconds of the day, and the Julian day."""
INSTANT_MARK: Final = b"accel.int96"
"""The key of the metadata of a field whose bytes are INT96."""

_TYPE, _TYPE_LENGTH, _REPETITION, _NAME, _CHILDREN, _FIELD_ID = 1, 2, 3, 4, 5, 9
_ANNOTATION: Final = (6, 7, 8, 10)
"""Fields of a SchemaElement: converted type, scale, precision, logical type."""
_ORDERED: Final = frozenset(
    {"text", "ENUM", "JSON", "BSON", "UUID", "bytes", "date", "time", "timestamp", "number"}
)
"""Forms whose values have the order of the plain type that stores them."""
_PLAIN: Final[Mapping[Physical, pa.DataType]] = {
    Physical.BOOLEAN: pa.bool_(),
    Physical.INT32: pa.int32(),
    Physical.INT64: pa.int64(),
    Physical.FLOAT: pa.float32(),
    Physical.DOUBLE: pa.float64(),
    Physical.BYTE_ARRAY: pa.binary(),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Annotation:
    """What pyarrow would not write about a node, which its element in the footer gets."""

    fields: bytes | None = None
    """The Thrift bytes of the fields of the annotation; None leaves what pyarrow writes."""
    field_id: int | None = None
    plain: Physical | None = None
    """How a leaf is stored that is read without its annotation; None for others, and for groups."""
    width: int = 0
    """Bytes of a value of fixed length."""
    ordered: bool = False
    """Whether the statistics that pyarrow makes of the plain values hold."""

    @property
    def is_instant(self) -> bool:
        """Whether it is an INT96."""
        return self.plain is Physical.INT96

    def plain_type(self) -> pa.DataType | None:
        """Return the Arrow type of the plain values; None where the leaf is read as it is."""
        if self.plain is None:
            return None
        if self.plain is Physical.INT96:
            return pa.binary(INSTANT_BYTES)
        if self.plain is Physical.FIXED_LEN_BYTE_ARRAY:
            return pa.binary(self.width)
        return _PLAIN[self.plain]

    def stripped(self, element: SchemaElement) -> SchemaElement:
        """Return an element without its annotation; INT96 as fixed bytes, whose pages have the same
        encoding."""
        fields, _ = read_struct(element.raw)
        kept: Struct = {number: entry for number, entry in fields.items() if number not in _ANNOTATION}
        physical, width = element.physical, element.type_length
        if physical is Physical.INT96:
            physical, width = Physical.FIXED_LEN_BYTE_ARRAY, INSTANT_BYTES
            kept |= {_TYPE: (I32, int(physical)), _TYPE_LENGTH: (I32, width)}
        return replace(
            element,
            physical=physical,
            type_length=width,
            converted_type=None,
            logical_type=None,
            logical_params={},
            scale=0,
            precision=0,
            raw=write_struct(kept),
        )

    def restored(self, element: SchemaElement) -> bytes:
        """Return the Thrift bytes of an element of a new file with the annotation."""
        fields, _ = read_struct(element.raw)
        if self.fields is not None:
            fields = {number: entry for number, entry in fields.items() if number not in _ANNOTATION}
            fields |= read_struct(self.fields)[0]
        if self.is_instant:
            fields[_TYPE] = (I32, int(Physical.INT96))
            fields.pop(_TYPE_LENGTH, None)
        if self.field_id is not None:
            fields[_FIELD_ID] = (I32, self.field_id)
        return write_struct(fields)


class _Seen(NamedTuple):
    """A node of one file."""

    element: SchemaElement
    kind: pa.DataType | None
    """The type that a leaf is read to."""
    url: str


@dataclass(slots=True)
class SeenTypes:
    """What the files of a table store, file by file."""

    forms: dict[NodePath, dict[Form, _Seen]] = field(default_factory=dict)
    """For each node, its forms, each as the first file has it."""
    ids: dict[NodePath, dict[int, str]] = field(default_factory=dict)
    """For each node, its field ids."""
    arrow_schemas: bool = False
    """Whether a file has an Arrow schema."""
    _last: tuple[ParquetSchema, pa.Schema] | None = None

    def add(
        self, schema: ParquetSchema, arrow: pa.Schema, key_value: Mapping[str, bytes], *, url: str
    ) -> None:
        """Note the types of one more file."""
        self.arrow_schemas |= ARROW_SCHEMA_KEY in key_value
        if self._last is not None and self._last[0] is schema and self._last[1] is arrow:
            return
        self._last = schema, arrow
        kinds = _leaf_kinds(arrow)
        for path, at in nodes_of(schema, arrow).items():
            element = schema.elements[at]
            seen = _Seen(element, kinds.get(path), url)
            self.forms.setdefault(path, {}).setdefault(form_of(element), seen)
            if element.field_id is not None and element.field_id >= 0:
                self.ids.setdefault(path, {}).setdefault(element.field_id, url)

    def forget_instants(self) -> None:
        """Leave INT96 to what it is read to, as the caller has chosen that."""
        for forms in self.forms.values():
            forms.pop(("INT96",), None)
        self.forms = {path: forms for path, forms in self.forms.items() if forms}

    @property
    def instants(self) -> str | None:
        """The name of a column that holds INT96, if there is one."""
        return next((path[0] for path, forms in self.forms.items() if ("INT96",) in forms), None)

    def settle(self, schema: pa.Schema) -> StoredTypes:
        """Return how the rows of all files are stored alike.

        Parameters
        ----------
        schema : pyarrow.Schema
            The columns of the table as readers of Arrow find them.

        Raises
        ------
        SchemaMismatchError
            A column stores different things in two files, or has two field ids.
        """
        written, _ = _written(schema)
        at, kinds = nodes_of(written.schema, schema), _leaf_kinds(schema)
        annotations: dict[NodePath, Annotation] = {}
        for path, forms in self.forms.items():
            if path not in at:
                continue
            new = written.schema.elements[at[path]]
            annotation = _annotation(path, forms, wide=form_of(new), kind=kinds.get(path))
            ids = self.ids.get(path, {})
            if len(ids) > 1:
                (one, _), (other, url) = list(ids.items())[:2]
                raise SchemaMismatchError(
                    f"column {_dotted(path)!r} has the field id {other} here and {one} in files before",
                    path=url,
                    hint=_APART,
                )
            number = next(iter(ids), None)
            if number is not None and (annotation is not None or number != new.field_id):
                annotation = replace(annotation or Annotation(), field_id=number)
            if annotation is not None:
                annotations[path] = annotation
        return StoredTypes.of(schema, annotations, arrow_schema=self.arrow_schemas)


def _leaf_kinds(schema: pa.Schema) -> dict[NodePath, pa.DataType]:
    return {path: kind for column in schema for path, kind in leaf_types(column.type, (column.name,))}


def _annotation(
    path: NodePath, forms: Mapping[Form, _Seen], *, wide: Form, kind: pa.DataType | None
) -> Annotation | None:
    """Return what is to be restored of a node that pyarrow writes as `wide`, and reads to `kind`."""
    first, seen = next(iter(forms.items()))
    if len(forms) == 1 and first == wide:
        return None
    if len(forms) > 1 or (seen.kind is not None and seen.kind != kind):
        for form, each in forms.items():
            if not agree(form, wide):
                other = next((one for one in forms if one != form), wide)
                raise SchemaMismatchError(
                    f"column {_dotted(path)!r} is stored as {spelled(form)} here and as {spelled(other)} "
                    "elsewhere",
                    path=each.url,
                    hint=_APART,
                )
        return None
    element = seen.element
    fields, _ = read_struct(element.raw)
    kept = write_struct({number: fields[number] for number in _ANNOTATION if number in fields})
    signed = first[0] == "integer" and bool(first[2])
    in_integers = first[0] == "decimal" and first[1] is not None
    return Annotation(
        fields=kept,
        plain=element.physical,
        width=element.type_length,
        ordered=first[0] in _ORDERED or signed or in_integers,
    )


_APART: Final = "no file can store both: rewrite these files by themselves"


def _dotted(path: NodePath) -> str:
    return ".".join(path)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class StoredTypes:
    """How the rows of a table are stored: the types in which they are read and written, and what the footer
    says besides. It pickles."""

    original: pa.Schema
    """The columns as readers of Arrow find them."""
    schema: pa.Schema
    """The columns in the types in which rows are read, sorted and written."""
    annotations: Mapping[NodePath, Annotation]
    """What pyarrow does not write, by node."""
    arrow_schema: bool
    """Whether the files get an Arrow schema: without one readers choose the types, as they did."""

    @classmethod
    def of(
        cls, original: pa.Schema, annotations: Mapping[NodePath, Annotation], *, arrow_schema: bool
    ) -> StoredTypes:
        """Return the stored types of columns with these annotations."""
        changed = {path[0] for path, each in annotations.items() if each.plain is not None}
        fields = [_plain_field(field, annotations) if field.name in changed else field for field in original]
        return cls(
            original=original,
            schema=pa.schema(fields, metadata=original.metadata),
            annotations=annotations,
            arrow_schema=arrow_schema,
        )

    def of_columns(self, names: Sequence[str]) -> StoredTypes:
        """Return the same for some of the columns."""
        return replace(
            self,
            original=pa.schema([self.original.field(name) for name in names]),
            schema=pa.schema([self.schema.field(name) for name in names]),
            annotations={path: each for path, each in self.annotations.items() if path[0] in set(names)},
        )

    @property
    def is_plain(self) -> bool:
        """Whether rows are read in the types that readers find."""
        return not any(each.plain is not None for each in self.annotations.values())

    def key_value(self) -> dict[str | bytes, bytes]:
        """Return the key-value pairs of the new files."""
        if self.arrow_schema:
            return arrow_schema_pairs(self.original, self.original.names)
        return dict(self.original.metadata or {})

    def strip(self, schema: ParquetSchema, arrow: pa.Schema) -> ParquetSchema | None:
        """Return the schema of a file without the annotations that are restored in the end; None if it has
        none of these.

        Raises
        ------
        SchemaMismatchError
            The file stores something else than it did.
        """
        changed = {}
        for path, at in nodes_of(schema, arrow).items():
            annotation = self.annotations.get(path)
            element = schema.elements[at]
            if annotation is None or annotation.plain is None:
                continue
            if element.physical is not annotation.plain:
                raise SchemaMismatchError(f"column {_dotted(path)!r} is stored in another type than before")
            changed[at] = annotation.stripped(element)
        if not changed:
            return None
        elements = tuple(changed.get(at, element) for at, element in enumerate(schema.elements))
        return replace(schema, elements=elements)

    def writer_settings(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Return the options of pyarrow's writer by which all leaves are written as they are to be stored.

        Raises
        ------
        ValueError
            A leaf is to be INT96 in an encoding that has none.
        """
        given = dict(settings)
        if self.is_plain:
            return given
        written, names = _written(plain_schema(self.schema))
        by_leaf = {at: path for path, at in nodes_of(written.schema, self.schema).items()}
        unordered = set()
        for name, leaf in zip(names, written.schema.leaves, strict=True):
            annotation = self.annotations.get(by_leaf[leaf.element])
            if annotation is None or annotation.plain is None:
                continue
            if not annotation.ordered:
                unordered.add(name)
            if annotation.is_instant:
                _check_encodings(name, given)
        chosen = given.get("write_statistics", True)
        if unordered and chosen is not False:
            given["write_statistics"] = [
                name for name in (names if chosen is True else chosen) if name not in unordered
            ]
        return given


def _check_encodings(name: str, settings: Mapping[str, Any]) -> None:
    encodings, split = settings.get("column_encoding"), settings.get("use_byte_stream_split")
    chosen = encodings.get(name) if isinstance(encodings, Mapping) else encodings
    splits = split is True or (isinstance(split, Sequence) and name in split)
    if splits or (chosen is not None and chosen != "PLAIN"):
        raise ValueError(
            f"column {name!r} is INT96, which has no other encoding than PLAIN and by dictionary: "
            "name the other columns in column_encoding and use_byte_stream_split"
        )


def _plain_field(field: pa.Field, annotations: Mapping[NodePath, Annotation]) -> pa.Field:
    """Return a field as a file without an Arrow schema, and without the annotations, is read."""
    plain = _replaced(field, (field.name,), annotations)
    _, found = _read_back(pa.schema([plain]))
    [read] = found
    metadata = {key: value for key, value in (field.metadata or {}).items() if key.startswith(b"PARQUET:")}
    own = annotations.get((field.name,))
    if own is not None and own.is_instant:
        metadata[INSTANT_MARK] = b""
    return read.with_metadata(metadata or None)


def _replaced(field: pa.Field, path: NodePath, annotations: Mapping[NodePath, Annotation]) -> pa.Field:
    """Return a field with plain types in place of the annotated leaves."""
    kind = field.type
    while isinstance(kind, pa.BaseExtensionType) and (
        kind.storage_type.num_fields or annotations.get(path) is not None
    ):
        kind = kind.storage_type
    inside = iter(child_paths(kind, path))

    def change(below: pa.Field) -> pa.Field:
        return _replaced(below, next(inside)[0], annotations)

    annotation = annotations.get(path)
    plain = None if annotation is None else annotation.plain_type()
    if plain is not None:
        return field.with_type(plain)
    if pa.types.is_list_view(kind) or pa.types.is_large_list_view(kind):
        return field.with_type(pa.list_(change(kind.value_field)))
    return field.with_type(change_fields(kind, change, keys=change) or kind)


def _written(schema: pa.Schema) -> tuple[FileMetadata, list[str]]:
    """Return the footer that pyarrow writes for a table, and the names of its leaves."""
    metadata, names, _ = _probe(schema.remove_metadata())
    return metadata, names


def _read_back(schema: pa.Schema) -> tuple[FileMetadata, pa.Schema]:
    """Return the footer of a table without an Arrow schema, and the types that it is read to."""
    metadata, _, arrow = _probe(schema)
    return metadata, arrow


def _probe(schema: pa.Schema) -> tuple[FileMetadata, list[str], pa.Schema]:
    import pyarrow.parquet as pq

    sink = io.BytesIO()
    with refusals(), pq.ParquetWriter(sink, plain_schema(schema), store_schema=False):
        pass
    data = sink.getvalue()
    start = len(data) - 8 - parse_tail(data[-8:]).length
    metadata = parse_footer(data[start:-8], file_size=len(data), footer_start=start)
    names = [".".join(leaf.path) for leaf in metadata.schema.leaves]
    return metadata, names, pq.ParquetFile(io.BytesIO(data)).schema_arrow


_STORED: Final = np.dtype([("time", "<i8"), ("day", "<u4")])
_NANOS_PER_DAY: Final = 86_400_000_000_000
_DAY_BASE: Final = 1 << 33
"""Makes the days of all INT96 positive."""


def instant_keys(stored: pa.Array) -> pa.Array:
    """Return bytes that sort as the instants of INT96 do; nulls stay."""
    valid = validity(stored)
    raw = np.zeros(len(stored), _STORED)
    buffer = stored.buffers()[1]
    if buffer is not None:
        raw = np.frombuffer(buffer, _STORED, len(stored), stored.offset * INSTANT_BYTES)
    time = raw["time"].astype(np.int64)
    day = raw["day"].astype(np.int64) + time // _NANOS_PER_DAY + _DAY_BASE
    keys = np.zeros((len(stored), 16), np.uint8)
    keys[:, :8] = day.astype(">u8").view(np.uint8).reshape(-1, 8)
    keys[:, 8:] = (time % _NANOS_PER_DAY).astype(">u8").view(np.uint8).reshape(-1, 8)
    nulls = None if bool(valid.all()) else pack_bits(valid)
    return pa.Array.from_buffers(pa.binary(16), len(stored), [nulls, pa.py_buffer(keys.tobytes())])
