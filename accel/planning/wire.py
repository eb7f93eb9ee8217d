"""Scan tasks as Arrow rows: what travels from a driver to its executors.

One row a task, self-contained: the schema of the file is cut down to the columns that the task reads. No
credential is part of it; a presigned URL is, because reading takes it.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from accel.errors import AccelError, ParquetFormatError
from accel.planning.file import ObjectId
from accel.planning.pages import LeafReads
from accel.planning.query import Question, compile_query
from accel.planning.schema_wire import decode_schema, encode_schema
from accel.planning.selection import RowSelection
from accel.planning.task import ScanTask, TaskFile
from accel.planning.task_check import check_task
from accel.predicate import codec
from accel.ranges import ByteRange

__all__ = ["TASK_ARROW_SCHEMA", "are_tasks", "checksum_of", "decode_tasks", "encode_tasks"]

_VERSION = 3
_LONGS = pa.list_(pa.int64())
# Rows that agree on these are of one file and one question.
_OF_FILE = (
    *("root", "path", "url", "etag", "size", "footer", "arrow_schema"),
    *("where", "data_schema", "output_schema", "partition"),
)
# Columns that a listing of files may well have too: only the others tell tasks from one.
_OF_LISTINGS = frozenset(
    {"version", "root", "path", "url", "size", "etag", "num_rows", "rows", "bytes", "share", "partition"}
    | {"where", "checksum"}
)
_PAGES = ("ordinal", "offset", "size", "first_row", "stop_row")

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
        *((name, _LONGS) for name in _PAGES),
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
        ("sure_starts", _LONGS),
        ("sure_stops", _LONGS),
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
"""The columns of a task row. `rows` and `bytes` are there to be looked at, and to balance by; `checksum` is that of all
others, for a task that is damaged on its way may well be one of other rows."""


def are_tasks(names: Collection[str]) -> bool:
    """Whether columns of these names are tasks, rather than a listing of files.

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
            hint="keep the columns of a plan's tasks as they are, or give only their `path` to read whole files",
        )
    return True


def encode_tasks(tasks: Sequence[ScanTask]) -> pa.RecordBatch:
    """One row a task, in order, of `TASK_ARROW_SCHEMA`."""
    shared: dict[int, dict[str, Any]] = {}
    rows = []
    for task in tasks:
        key = id(task.file)
        if key not in shared:
            shared[key] = _encode_file(task.file)
        row = _encode_task(task, shared[key])
        rows.append(row | {"checksum": checksum_of(row)})
    return pa.RecordBatch.from_pylist(rows, schema=TASK_ARROW_SCHEMA)


def _encode_file(file: TaskFile) -> dict[str, Any]:
    question, query = file.question, file.query
    leaves = sorted({*query.output_leaves, *query.filter_leaves})
    footer, arrow, renumbered = encode_schema(
        file.schema, file.arrow_schema, file.key_value, leaves, created_by=file.created_by
    )
    names = [n for n in question.partition_names if n in file.partition]
    values = pa.RecordBatch.from_arrays([_one(file.partition[n]) for n in names], names=names)
    used = {c.path[0] for c in query.bound.columns} if query.bound is not None else set()
    used |= set(question.output.names)
    data_schema = pa.schema([f for f in question.schema if f.name in used])
    return {
        "version": _VERSION,
        "root": file.root,
        "path": file.id.path,
        "url": file.url,
        "size": file.id.size,
        "etag": file.id.etag,
        "footer": footer,
        "arrow_schema": arrow.serialize().to_pybytes(),
        "where": None if question.where is None else codec.encode(question.where),
        "data_schema": data_schema.serialize().to_pybytes(),
        "output_schema": question.output.serialize().to_pybytes(),
        "partition": _to_ipc(values),
        "_leaves": renumbered,
    }


def _one(value: pa.Scalar) -> pa.Array:
    return pa.nulls(1, value.type) if not value.is_valid else pa.repeat(value, 1)


def _to_ipc(batch: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


def _encode_task(task: ScanTask, shared: Mapping[str, Any]) -> dict[str, Any]:
    row = {k: v for k, v in shared.items() if not k.startswith("_")}
    row |= {
        "row_group": task.row_group,
        "num_rows": task.num_rows,
        "rows": task.rows.count,
        "bytes": task.nbytes,
        "row_starts": task.rows.starts.tolist(),
        "row_stops": task.rows.stops.tolist(),
        "sure_starts": task.sure.starts.tolist(),
        "sure_stops": task.sure.stops.tolist(),
        "share": task.share,
        "leaves": [_encode_reads(r, shared["_leaves"]) for r in task.reads],
    }
    return row


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
        **{name: getattr(reads, name).tolist() for name in _PAGES},
    }


def checksum_of(row: Mapping[str, Any]) -> int:
    """CRC-32 of a task's columns, whichever process has them, and whether it has read or is to write them."""
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


def decode_tasks(batch: pa.RecordBatch) -> Iterator[ScanTask]:
    """The tasks of a batch, in its order. Rows that follow each other and share a file share its parts.

    Raises
    ------
    AccelError
        The batch does not hold tasks of this version.
    """
    last: tuple[Any, TaskFile] | None = None
    for row in batch.to_pylist():
        if row.get("version") != _VERSION:
            raise AccelError(
                f"not a scan task of version {_VERSION}", hint="plan with the same version of accel as scans"
            )
        try:
            if row["checksum"] != checksum_of(row):
                raise AccelError("a scan task is damaged: its checksum is another", path=_url_of(row))
            key = tuple(row[name] for name in _OF_FILE)
            if last is None or last[0] != key:
                last = (key, _decode_file(row))
            task = _decode_task(row, last[1])
            check_task(task)
        except AccelError:
            raise
        except (
            *(ArithmeticError, AttributeError, LookupError, MemoryError, OSError, StopIteration),
            *(TypeError, ValueError, pa.ArrowException),
        ) as error:
            raise AccelError(f"a scan task does not decode: {error}", path=_url_of(row)) from error
        yield task


def _url_of(row: Mapping[str, Any]) -> str | None:
    url = row.get("url")
    return url if isinstance(url, str) else None


def _decode_file(row: Mapping[str, Any]) -> TaskFile:
    metadata = decode_schema(row["footer"])
    schema = metadata.schema
    arrow_schema = pa.ipc.read_schema(pa.py_buffer(row["arrow_schema"]))
    values = pa.ipc.open_stream(pa.py_buffer(row["partition"])).read_next_batch()
    values.validate(full=True)
    if values.num_columns and values.num_rows != 1:
        raise ParquetFormatError(f"a scan task has {values.num_rows} values of each partition column")
    partition = {n: values.column(i)[0] for i, n in enumerate(values.schema.names)}
    question = Question(
        where=None if row["where"] is None else codec.decode(row["where"]),
        schema=pa.ipc.read_schema(pa.py_buffer(row["data_schema"])),
        output=pa.ipc.read_schema(pa.py_buffer(row["output_schema"])),
        partition_names=tuple(partition),
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
        key_value=metadata.key_value,
        created_by=metadata.created_by,
        partition=partition,
        question=question,
        query=query,
    )


def _decode_task(row: Mapping[str, Any], file: TaskFile) -> ScanTask:
    reads = tuple(_decode_reads(leaf, len(file.schema.leaves), file.id.size) for leaf in row["leaves"])
    return ScanTask(
        file=file,
        row_group=row["row_group"],
        num_rows=row["num_rows"],
        rows=RowSelection(_longs(row["row_starts"]), _longs(row["row_stops"])),
        sure=RowSelection(_longs(row["sure_starts"]), _longs(row["sure_stops"])),
        reads=reads,
        share=min(1.0, max(0.0, float(row["share"]))),
    )


def _longs(values: Sequence[int]) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.array(values, np.int64)


def _decode_reads(leaf: Mapping[str, Any], num_leaves: int, size: int) -> LeafReads:
    pages = {name: _longs(leaf[name]) for name in _PAGES}
    lengths = {len(p) for p in pages.values()}
    if len(lengths) != 1 or not 0 <= leaf["leaf"] < num_leaves:
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
        total_pages=leaf["total_pages"],
        **pages,
    )
