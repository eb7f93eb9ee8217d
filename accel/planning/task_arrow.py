"""Scan tasks as Arrow rows: what travels from a driver to its executors.

A row is one task and self-contained: the schema of the file is cut down to the columns that the task reads.
It holds no credential; it holds a presigned URL, because reading takes it. Values that all rows of a table
share, as a predicate with a long list, may travel once beside them; the checksum of a row is that of the
whole row.
"""

from __future__ import annotations

import base64
import binascii
import itertools
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from accel.arrays import to_ipc
from accel.errors import AccelError, ParquetFormatError
from accel.format.footer import ARROW_SCHEMA_KEY, parse_footer
from accel.format.model import FileMetadata, ParquetSchema
from accel.format.thrift import BINARY, I32, I64, LIST, STRUCT, Struct, ThriftList, read_struct, write_struct
from accel.planning.evolution import Evolution
from accel.planning.pages import LeafReads
from accel.planning.projection import int96_unit
from accel.planning.query import Question, compile_query
from accel.planning.selection import RowSelection
from accel.planning.task import ScanTask, TaskFile, check_task
from accel.predicate import codec
from accel.ranges import ByteRange, ObjectId

__all__ = [
    "PAGE_LISTS",
    "QUESTION_COLUMNS",
    "TASK_ARROW_SCHEMA",
    "are_tasks",
    "checksum_of",
    "decode_schema",
    "decode_tasks",
    "encode_batches",
    "encode_schema",
    "join_rows",
    "rows_of",
    "take_out",
]

_LONGS = pa.list_(pa.int64())
QUESTION_COLUMNS = ("where", "data_schema", "output_schema")
"""The columns that hold the question."""
PAGE_LISTS = ("ordinal", "offset", "size", "first_row", "stop_row")

_LEAF = pa.struct(
    [
        ("leaf", pa.int32()),
        ("column", pa.int32()),
        ("codec", pa.int32()),
        ("chunk_start", pa.int64()),
        ("chunk_end", pa.int64()),
        ("dictionary_start", pa.int64()),
        ("dictionary_end", pa.int64()),
        ("dictionary_pages", pa.int32()),
        ("num_values", pa.int64()),
        ("expansion", pa.float64()),
        ("for_filter", pa.bool_()),
        ("for_output", pa.bool_()),
        ("total_pages", pa.int32()),
        *((name, _LONGS) for name in PAGE_LISTS),
    ]
)

TASK_ARROW_SCHEMA = pa.schema(
    [
        ("version", pa.int32()),
        ("root", pa.string()),
        ("path", pa.string()),
        ("url", pa.string()),
        ("size", pa.int64()),
        ("etag", pa.string()),
        ("row_group", pa.int32()),
        ("num_rows", pa.int64()),
        ("rows", pa.int64()),
        ("bytes", pa.int64()),
        ("row_starts", _LONGS),
        ("row_stops", _LONGS),
        ("certain_starts", _LONGS),
        ("certain_stops", _LONGS),
        ("share", pa.float64()),
        ("footer", pa.binary()),
        ("arrow_schema", pa.binary()),
        ("where", pa.binary()),
        ("data_schema", pa.binary()),
        ("output_schema", pa.binary()),
        ("partition", pa.binary()),
        ("leaves", pa.list_(_LEAF)),
        ("checksum", pa.int64()),
    ]
)
"""The columns of a task row. `rows` and `bytes` are there to be looked at, and to balance by; `checksum` is
that of all others, for a task that is damaged on its way may well be one of other rows."""

# Columns that a listing of files may well have too: only the others tell tasks from one.
_OF_LISTINGS = frozenset(
    {"version", "root", "path", "url", "size", "etag", "num_rows", "rows", "bytes", "share", "partition"}
    | {"where", "checksum"}
)


def are_tasks(names: Collection[str]) -> bool:
    """Return whether columns of these names are tasks, rather than a listing of files.

    Raises
    ------
    AccelError
        They are, but some columns of a task are missing: what is left names files too, and reading those
        whole would give rows that the plan left out.
    """
    due = TASK_ARROW_SCHEMA.names
    if not any(name in names for name in due if name not in _OF_LISTINGS):
        return False
    missing = [name for name in due if name not in names]
    if missing:
        raise AccelError(
            f"these are tasks of a plan without the columns {missing}",
            hint=(
                "keep the columns of a plan's tasks as they are, or give only their `path` to read whole "
                "files"
            ),
        )
    return True


def checksum_of(row: Mapping[str, Any]) -> int:
    """Return the CRC-32 of a task's columns, the same in every process, before writing and after reading."""
    crc = 0
    values: list[Any] = []
    for field in TASK_ARROW_SCHEMA:
        value = row[field.name] if field.name != "checksum" else None
        if isinstance(value, str):
            value = value.encode("utf-8", "surrogatepass")
        if isinstance(value, bytes):
            crc = zlib.crc32(value, crc)
            value = len(value)
        if field.name == "leaves":
            leaves = row["leaves"] or ()
            values += [[_plain(leaf[part.name]) for part in _LEAF] for leaf in leaves]
        else:
            values.append(_plain(value))
    # Numbers, none, and lists of them: as text they are the same everywhere.
    return zlib.crc32(repr(values).encode("ascii"), crc)


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


_NUM_CHILDREN = 5
# Where the Thrift bytes of a footer may start at the earliest: after the magic.
_START = 4


def encode_schema(
    schema: ParquetSchema,
    arrow: pa.Schema,
    *,
    key_value: Mapping[str, bytes],
    leaves: Sequence[int],
    created_by: str = "",
) -> tuple[bytes, pa.Schema, dict[int, int]]:
    """Cut a schema down to the top-level columns that hold `leaves`.

    Returns
    -------
    footer : bytes
        For `decode_schema`.
    arrow : pyarrow.Schema
        The same columns of the Arrow schema.
    renumbered : dict
        The new ordinal of every leaf of those columns, by its old one.
    """
    wanted = set(leaves)
    fields = [
        i
        for i, (first, last) in enumerate(schema.field_leaves)
        if any(x in wanted for x in range(first, last))
    ]
    root, _ = read_struct(schema.elements[0].raw)
    root[_NUM_CHILDREN] = (I32, len(fields))
    elements = [root]
    renumbered: dict[int, int] = {}
    for i in fields:
        start = schema.fields[i]
        for element in range(start, schema.subtree_ends[start]):
            elements.append(read_struct(schema.elements[element].raw)[0])
        for leaf in range(*schema.field_leaves[i]):
            renumbered[leaf] = len(renumbered)
    footer: Struct = {
        1: (I32, 1),
        2: (LIST, ThriftList(STRUCT, elements)),
        3: (I64, 0),
        4: (LIST, ThriftList(STRUCT, [])),
    }
    original = _cut_arrow(key_value.get(ARROW_SCHEMA_KEY), fields, len(schema.fields))
    if original is not None:
        pair: Struct = {1: (BINARY, ARROW_SCHEMA_KEY.encode()), 2: (BINARY, original)}
        footer[5] = (LIST, ThriftList(STRUCT, [pair]))
    if created_by:
        footer[6] = (BINARY, created_by.encode())
    return write_struct(footer), pa.schema([arrow.field(i) for i in fields]), renumbered


def _cut_arrow(value: bytes | None, fields: Sequence[int], num_fields: int) -> bytes | None:
    if value is None:
        return None
    try:
        schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(value)))
    except (binascii.Error, pa.ArrowException, OSError):
        return None
    if len(schema) != num_fields:
        return None
    return base64.b64encode(pa.schema([schema.field(i) for i in fields]).serialize().to_pybytes())


def decode_schema(footer: bytes) -> FileMetadata:
    """Parse the output of `encode_schema`: the schema, the key-value metadata, the writer.

    Raises
    ------
    ParquetFormatError
    """
    if not isinstance(footer, bytes):
        raise ParquetFormatError("a scan task has no schema")
    return parse_footer(footer, file_size=_START + len(footer) + 8, footer_start=_START)


_LONG = 64 << 10
_PREFIX = b"accel.shared."


def take_out(batches: Iterable[pa.RecordBatch]) -> tuple[list[pa.RecordBatch], dict[str, bytes]]:
    """Take the values that all rows share out of batches of tasks; none where they are small."""
    import pyarrow.compute as pc

    shared: dict[str, bytes] | None = None
    out = []
    for batch in batches:
        if shared is None and batch.num_rows:
            shared = _first(batch)
        for name, value in (shared or {}).items():
            index = batch.schema.get_field_index(name)
            column = batch.column(index)
            # A column with nulls of its own is left: null stands for a value that was taken out.
            if column.null_count == 0 and pc.all(pc.equal(column, pa.scalar(value, column.type))).as_py():
                batch = batch.set_column(index, batch.schema.field(index), pa.nulls(len(batch), column.type))
        out.append(batch)
    return out, shared or {}


def _first(batch: pa.RecordBatch) -> dict[str, bytes]:
    values = {name: batch.column(name)[0].as_py() for name in QUESTION_COLUMNS}
    found = {name: value for name, value in values.items() if value is not None}
    return found if sum(map(len, found.values())) > _LONG else {}


def join_rows(batch: pa.RecordBatch, shared: Mapping[str, bytes]) -> pa.RecordBatch:
    """Return the batch with what was taken out of its rows, which `rows_of` puts back."""
    return batch.replace_schema_metadata({_PREFIX + name.encode(): value for name, value in shared.items()})


def rows_of(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """Return the rows, whole."""
    metadata = batch.schema.metadata or {}
    shared = {name: metadata.get(_PREFIX + name.encode()) for name in QUESTION_COLUMNS}
    rows: list[dict[str, Any]] = batch.to_pylist()
    for name, value in shared.items():
        if value is not None:
            for row in rows:
                row[name] = value if row.get(name) is None else row[name]
    return rows


_VERSION = 5
_ROW_NUMBER = b"row_number"
"""Names, with the partition values, the one that is the number of the first row of the task's row group."""
# Rows that agree on these are of one file and one question.
_OF_FILE = (
    *("root", "path", "url", "etag", "size", "footer", "arrow_schema"),
    *QUESTION_COLUMNS,
    "partition",
)


def encode_batches(tasks: Sequence[ScanTask], *, most_rows: int, most_bytes: int) -> Iterator[pa.RecordBatch]:
    """Encode tasks in batches that end before so many rows or bytes; each has at least one row."""
    rows: list[dict[str, Any]] = []
    nbytes = 0
    for row in _encode_rows(tasks):
        size = sum(len(value) for value in row.values() if isinstance(value, bytes))
        if rows and (len(rows) == most_rows or nbytes + size > most_bytes):
            yield _to_batch(rows)
            rows, nbytes = [], 0
        rows.append(row)
        nbytes += size
    if rows:
        yield _to_batch(rows)


def _to_batch(rows: Sequence[Mapping[str, Any]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(rows, schema=TASK_ARROW_SCHEMA)


def _encode_rows(tasks: Sequence[ScanTask]) -> Iterator[dict[str, Any]]:
    # A long predicate is encoded once, not for every file.
    question: Question | None = None
    where: bytes | None = None
    for _, of_file in itertools.groupby(tasks, lambda task: id(task.file)):
        first, *others = of_file
        if first.file.question is not question:
            question = first.file.question
            where = None if question.where is None else codec.encode(question.where)
        shared, renumbered = _encode_file(first.file, where)
        for task in (first, *others):
            row = shared | _encode_task(task, renumbered)
            if question.row_number is not None:
                row["partition"] = _encode_partition(task.file, first_row=task.first_row)
            yield row | {"checksum": checksum_of(row)}


def _encode_file(file: TaskFile, where: bytes | None) -> tuple[dict[str, Any], dict[int, int]]:
    """Encode what the tasks of a file share; returns the new ordinals of its leaves, too."""
    _check_name(file)
    question, query = file.question, file.query
    leaves = sorted({*query.output_leaves, *query.filter_leaves})
    footer, arrow, renumbered = encode_schema(
        file.schema, file.arrow_schema, key_value=file.key_value, leaves=leaves, created_by=file.created_by
    )
    used = {c.path[0] for c in query.bound.columns} if query.bound is not None else set()
    used |= set(question.output.names)
    data_schema = pa.schema([f for f in question.schema if f.name in used], question.evolution.metadata)
    shared = {
        "version": _VERSION,
        "root": file.root,
        "path": file.id.path,
        "url": file.url,
        "size": file.id.size,
        "etag": file.id.etag,
        "footer": footer,
        "arrow_schema": arrow.serialize().to_pybytes(),
        "where": where,
        "data_schema": data_schema.serialize().to_pybytes(),
        "output_schema": question.output.remove_metadata().serialize().to_pybytes(),
        "partition": _encode_partition(file),
    }
    return shared, renumbered


def _encode_partition(file: TaskFile, *, first_row: int = 0) -> bytes:
    """Encode the partition values, and in that form the number of the first row, where rows are numbered."""
    values, name = dict(file.partition), file.question.row_number
    if name is not None:
        values[name] = pa.scalar(first_row, pa.int64())
    fields = [pa.field(key, value.type) for key, value in values.items()]
    schema = pa.schema(fields, None if name is None else {_ROW_NUMBER: name.encode()})
    return to_ipc(pa.RecordBatch.from_arrays([_one(value) for value in values.values()], schema=schema))


def _check_name(file: TaskFile) -> None:
    try:
        f"{file.url}{file.id.path}".encode()
    except UnicodeEncodeError as error:
        raise AccelError("tasks of a file whose name is not UTF-8 cannot travel", path=file.url) from error


def _one(value: pa.Scalar) -> pa.Array:
    return pa.nulls(1, value.type) if not value.is_valid else pa.repeat(value, 1)


def _encode_task(task: ScanTask, renumbered: Mapping[int, int]) -> dict[str, Any]:
    return {
        "row_group": task.row_group,
        "num_rows": task.num_rows,
        "rows": task.rows.count,
        "bytes": task.nbytes,
        "row_starts": task.rows.starts.tolist(),
        "row_stops": task.rows.stops.tolist(),
        "certain_starts": task.certain.starts.tolist(),
        "certain_stops": task.certain.stops.tolist(),
        "share": task.share,
        "leaves": [_encode_reads(reads, renumbered) for reads in task.reads],
    }


def _encode_reads(reads: LeafReads, renumbered: Mapping[int, int]) -> dict[str, Any]:
    dictionary = reads.dictionary
    return {
        "leaf": renumbered[reads.leaf],
        "column": reads.column,
        "codec": reads.codec,
        "chunk_start": reads.chunk.start,
        "chunk_end": reads.chunk.end,
        "dictionary_start": None if dictionary is None else dictionary.start,
        "dictionary_end": None if dictionary is None else dictionary.end,
        "dictionary_pages": reads.dictionary_pages,
        "num_values": reads.num_values,
        "expansion": reads.expansion,
        "for_filter": reads.for_filter,
        "for_output": reads.for_output,
        "total_pages": reads.total_pages,
        **{name: getattr(reads, name).tolist() for name in PAGE_LISTS},
    }


def decode_tasks(batch: pa.RecordBatch) -> Iterator[ScanTask]:
    """Yield the tasks of a batch, in its order. Rows that follow each other and share a file share its parts.

    Raises
    ------
    AccelError
        The batch does not hold tasks of this version.
    """
    last: _Decoded | None = None
    for row in rows_of(batch):
        if row.get("version") != _VERSION:
            raise AccelError(
                f"not a scan task of version {_VERSION}",
                path=_url_of(row),
                hint="plan with the same version of accel as scans",
            )
        try:
            if row["checksum"] != checksum_of(row):
                raise AccelError("a scan task is damaged: its checksum is another", path=_url_of(row))
            if last is None or any(last[0][name] != row[name] for name in _OF_FILE):
                last = (row, _decode_file(row, last))
            task = _decode_task(row, last[1])
            check_task(task)
        except AccelError as error:
            raise error.at(path=_url_of(row))
        except (
            *(ArithmeticError, AttributeError, LookupError, MemoryError, OSError, StopIteration),
            *(TypeError, ValueError, pa.ArrowException),
        ) as error:
            raise AccelError(f"a scan task does not decode: {error}", path=_url_of(row)) from error
        yield task


def _url_of(row: Mapping[str, Any]) -> str | None:
    url = row.get("url")
    return url if isinstance(url, str) else None


_Decoded: TypeAlias = tuple[Mapping[str, Any], TaskFile]
"""A row, and the file that it is of."""


def _decode_file(row: Mapping[str, Any], before: _Decoded | None) -> TaskFile:
    """Decode a file; it shares equal parts, as a long predicate, with the file before."""
    schema, key_value, created_by = _decode_footer(row, before)
    arrow_schema = pa.ipc.read_schema(pa.py_buffer(row["arrow_schema"]))
    if tuple(arrow_schema.names) != schema.names:
        raise ParquetFormatError("the two schemas of a scan task do not name the same columns")
    values = pa.ipc.open_stream(pa.py_buffer(row["partition"])).read_next_batch()
    values.validate(full=True)
    if values.num_columns and values.num_rows != 1:
        raise ParquetFormatError(f"a scan task has {values.num_rows} values of each partition column")
    partition = {n: values.column(i)[0] for i, n in enumerate(values.schema.names)}
    numbered = (values.schema.metadata or {}).get(_ROW_NUMBER)
    question = _decode_question(
        row, tuple(partition), before, row_number=None if numbered is None else numbered.decode()
    )
    query = compile_query(
        question, file_schema=schema, arrow_schema=arrow_schema, partition=partition, url=row["url"]
    )
    return TaskFile(
        root=row["root"],
        url=row["url"],
        id=ObjectId(row["path"], row["size"], row["etag"]),
        schema=schema,
        arrow_schema=arrow_schema,
        key_value=key_value,
        created_by=created_by,
        partition=partition,
        question=question,
        query=query,
        int96_unit=int96_unit(schema, arrow_schema),
    )


def _decode_footer(
    row: Mapping[str, Any], before: _Decoded | None
) -> tuple[ParquetSchema, Mapping[str, bytes], str]:
    if before is not None and before[0]["footer"] == row["footer"]:
        return before[1].schema, before[1].key_value, before[1].created_by
    metadata = decode_schema(row["footer"])
    return metadata.schema, metadata.key_value, metadata.created_by


def _decode_question(
    row: Mapping[str, Any],
    partition_names: tuple[str, ...],
    before: _Decoded | None,
    *,
    row_number: str | None,
) -> Question:
    same = (
        before is not None
        and before[1].question.partition_names == partition_names
        and before[1].question.row_number == row_number
    )
    if before is not None and same and all(before[0][name] == row[name] for name in QUESTION_COLUMNS):
        return before[1].question
    schema = pa.ipc.read_schema(pa.py_buffer(row["data_schema"]))
    return Question(
        where=None if row["where"] is None else codec.decode(row["where"]),
        schema=schema.remove_metadata(),
        output=pa.ipc.read_schema(pa.py_buffer(row["output_schema"])),
        partition_names=partition_names,
        row_number=row_number,
        evolution=Evolution.decode(schema.metadata),
    )


def _decode_task(row: Mapping[str, Any], file: TaskFile) -> ScanTask:
    reads = tuple(_decode_reads(leaf, file.schema, file.id.size) for leaf in row["leaves"])
    name = file.question.row_number
    first_row = 0 if name is None else file.partition[name].as_py()
    if not isinstance(first_row, int):
        raise ParquetFormatError("a scan task does not say which row its row group begins with")
    return ScanTask(
        file=file,
        row_group=row["row_group"],
        num_rows=row["num_rows"],
        rows=RowSelection(_longs(row["row_starts"]), _longs(row["row_stops"])),
        certain=RowSelection(_longs(row["certain_starts"]), _longs(row["certain_stops"])),
        reads=reads,
        share=min(1.0, max(0.0, float(row["share"]))),
        first_row=first_row,
    )


def _longs(values: Sequence[int]) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.array(values, np.int64)


def _decode_reads(leaf: Mapping[str, Any], schema: ParquetSchema, size: int) -> LeafReads:
    pages = {name: _longs(leaf[name]) for name in PAGE_LISTS}
    lengths = {len(p) for p in pages.values()}
    if len(lengths) != 1 or not 0 <= leaf["leaf"] < len(schema.leaves):
        raise ParquetFormatError("the page lists of a scan task do not fit together")
    if leaf["chunk_end"] > size:
        raise ParquetFormatError("a scan task names pages outside its file")
    dictionary = None
    if leaf["dictionary_start"] is not None:
        dictionary = ByteRange(leaf["dictionary_start"], leaf["dictionary_end"])
    return LeafReads(
        leaf=leaf["leaf"],
        column=leaf["column"],
        codec=leaf["codec"],
        chunk=ByteRange(leaf["chunk_start"], leaf["chunk_end"]),
        dictionary=dictionary,
        dictionary_pages=leaf["dictionary_pages"],
        num_values=leaf["num_values"],
        expansion=leaf["expansion"],
        for_filter=leaf["for_filter"],
        for_output=leaf["for_output"],
        max_repetition=schema.leaves[leaf["leaf"]].max_repetition,
        total_pages=leaf["total_pages"],
        **pages,
    )
