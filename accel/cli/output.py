"""The files and formats that a command writes."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import os
import stat
import sys
import warnings
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol

import numpy as np
import pyarrow as pa

from accel.arrays import bools, bytes_array, bytes_of, is_zoned
from accel.cli.arguments import UsageError
from accel.cli.values import arrow_moments, is_number, moment_texts, plain_values, safe_text, shown_values
from accel.cli.wording import reword
from accel.errors import redact
from accel.store.local_store import write_beside
from accel.store.location import has_scheme
from accel.writing.scanned_rows import plain_rows
from accel.writing.stored_footer import restored_end
from accel.writing.stored_types import StoredTypes

if TYPE_CHECKING:
    from accel.metrics import Metrics

__all__ = [
    "ArrowSink",
    "CsvSink",
    "JsonSink",
    "MarkdownSink",
    "ParquetSink",
    "Sink",
    "TsvSink",
    "open_output",
    "print_json",
    "say",
    "say_warnings",
    "standard_output",
    "warnings_as_lines",
    "write_page",
]

_MOST_WARNINGS = 5


def standard_output() -> BinaryIO:
    """Return standard output, for bytes."""
    sys.stdout.flush()
    return sys.stdout.buffer


def print_json(value: Any) -> None:
    """Print an object as JSON in one line, in UTF-8 whatever the encoding of standard output."""
    line = json.dumps(value, default=str, ensure_ascii=False) + "\n"
    # Names that are not valid text hold surrogates, which JSON escapes alike.
    standard_output().write(line.encode("utf-8", "backslashreplace"))


def say(text: str) -> None:
    """Print a line for people on standard error."""
    print(f"accel: {text}", file=sys.stderr)


@contextlib.contextmanager
def warnings_as_lines() -> Iterator[Collection[str]]:
    """Print Python's warnings as lines of the command, without places in accel's code; yield those printed so
    far."""
    shown: dict[str, None] = {}

    def show(message: Warning | str, *_place: object, **_more: object) -> None:
        if str(message) not in shown:
            shown[str(message)] = None
            say(f"warning: {reword(str(message))}")

    with warnings.catch_warnings():
        warnings.simplefilter("default", UserWarning)
        warnings.showwarning = show
        yield shown


def say_warnings(metrics: Metrics, shown: Collection[str] = ()) -> None:
    """Print the first few warnings of a run, without those in `shown`."""
    left = [warning for warning in metrics.warnings if warning not in shown]
    for warning in left[:_MOST_WARNINGS]:
        say(f"warning: {reword(warning)}")


@contextlib.contextmanager
def open_output(name: str | None) -> Iterator[BinaryIO]:
    """Open standard output for None and "-", else a file that appears only once all is written.

    A file of that name stays as it is until then, and its mode and owner are taken over. A device or a named
    pipe is written to directly.

    Raises
    ------
    StoreError
        The file cannot be written.
    UsageError
        The name is a URL.
    """
    if name is None or name == "-":
        yield standard_output()
        return
    if has_scheme(name):
        raise UsageError(f"-o writes to this machine: {redact(name)!r} is a URL, not a path")
    target = os.path.realpath(name)
    found = None
    with contextlib.suppress(FileNotFoundError):
        found = os.stat(target)
        if not stat.S_ISREG(found.st_mode) and not stat.S_ISDIR(found.st_mode):
            with open(target, "wb") as device:
                yield device
            return
    with write_beside(target, like=found) as file:
        yield file


def write_page(name: str, text: str) -> None:
    """Write a page of HTML to a file, or to standard output for "-"."""
    with open_output(name) as file:
        file.write(text.encode())


# Limits of a row group: enough rows to compress and prune well, in bounded memory.
_GROUP_ROWS = 1 << 20
_GROUP_BYTES = 128 << 20


class Sink(Protocol):
    """Takes the record batches of one scan, in order, then is closed."""

    def write(self, batch: pa.RecordBatch) -> None:
        """Write one batch."""
        ...

    def close(self) -> None:
        """Write the end of the output; the file itself stays open."""
        ...


class CsvSink:
    """RFC 4180 with a header. Null is empty, empty text is `""`; nested columns are JSON, binary is
    base64."""

    def __init__(self, out: BinaryIO, schema: pa.Schema) -> None:
        self._out = out
        header = io.StringIO()
        csv.writer(header, lineterminator="\n").writerow(schema.names)
        out.write(header.getvalue().encode("utf-8", "surrogateescape"))

    def write(self, batch: pa.RecordBatch) -> None:
        from pyarrow import csv as arrow_csv

        if not batch.num_columns:
            self._out.write(b"\n" * batch.num_rows)
            return
        columns = [_flat(column) for column in batch.columns]
        text = io.BytesIO()
        names = [str(i) for i in range(len(columns))]
        flat = pa.RecordBatch.from_arrays(columns, names=names)
        arrow_csv.write_csv(flat, text, arrow_csv.WriteOptions(include_header=False))
        self._out.write(text.getbuffer())

    def close(self) -> None:
        self._out.flush()


class TsvSink:
    """A line for each row, with tabs between the values, for `cut` and `awk`: nothing is quoted, and tabs,
    line ends and backslashes in texts are escaped, as \\t, \\n, \\r and \\\\. Null is empty."""

    def __init__(self, out: BinaryIO, schema: pa.Schema) -> None:
        self._out = out
        names = [name.translate(_ESCAPES) for name in schema.names]
        out.write(("\t".join(names) + "\n").encode("utf-8", "surrogateescape"))

    def write(self, batch: pa.RecordBatch) -> None:
        import pyarrow.compute as pc

        if not batch.num_columns:
            self._out.write(b"\n" * batch.num_rows)
            return
        columns = []
        for column in batch.columns:
            flat = _flat(column).cast(pa.large_string())
            for code, escaped in _ESCAPES.items() if not is_number(column.type) else ():
                flat = pc.replace_substring(flat, chr(code), escaped)
            columns.append(flat)
        filled = {"null_handling": "replace", "null_replacement": ""}
        lines = pc.binary_join_element_wise(*columns, pa.scalar("\t", pa.large_string()), **filled)
        # As bytes: texts of a file may be no UTF-8.
        self._out.write(b"\n".join([*lines.cast(pa.large_binary()).to_pylist(), b""]))

    def close(self) -> None:
        self._out.flush()


_ESCAPES = {ord("\\"): "\\\\", ord("\t"): "\\t", ord("\n"): "\\n", ord("\r"): "\\r"}
"""The backslash comes first: it is part of the others."""


class MarkdownSink:
    """A table of Markdown, row by row as they come: columns are not padded. Null is empty."""

    def __init__(self, out: BinaryIO, schema: pa.Schema) -> None:
        self._out = out
        self._has_columns = bool(schema.names)
        if self._has_columns:
            self._write_row([safe_text(name) for name in schema.names])
            self._write_row(["---:" if is_number(field.type) else "---" for field in schema])

    def write(self, batch: pa.RecordBatch) -> None:
        columns = [shown_values(column) for column in batch.columns]
        for row in zip(*columns, strict=True):
            self._write_row(["" if text is None else text for text in row])

    def _write_row(self, texts: Sequence[str]) -> None:
        cells = (text.replace("\\", "\\\\").replace("|", "\\|") for text in texts)
        self._out.write(f"| {' | '.join(cells)} |\n".encode("utf-8", "backslashreplace"))

    def close(self) -> None:
        self._out.flush()


def _flat(column: pa.Array) -> pa.Array:
    """Return the column as pyarrow can write it to CSV: numbers, dates and times unquoted, all else as
    text."""
    kind, types = column.type, pa.types
    if types.is_timestamp(kind) or types.is_date(kind) or types.is_time(kind):
        if not (types.is_timestamp(kind) and is_zoned(kind)):
            return column
        import pyarrow.compute as pc

        # With a zone, Arrow writes another moment for one that it has no text for.
        if pc.any(pc.starts_with(arrow_moments(column), "<")).as_py():
            return _as_texts(moment_texts(column))
        return column.cast(pa.timestamp(kind.unit, "UTC"))
    if types.is_primitive(kind) and not types.is_temporal(kind):
        return column
    if types.is_string(kind) or types.is_large_string(kind) or types.is_null(kind) or types.is_decimal(kind):
        return column
    return _as_texts(plain_values(column))


def _as_texts(values: list[Any]) -> pa.Array:
    valid = np.array([v is not None for v in values], bool)
    texts = [b"" if v is None else (v if isinstance(v, str) else _dump(v)).encode() for v in values]
    buffers = bytes_array(texts, pa.large_string()).buffers()
    return pa.Array.from_buffers(
        pa.large_string(), len(values), [bools(valid).buffers()[1], *buffers[1:]], int((~valid).sum())
    )


class JsonSink:
    """One JSON object per line, with values as `plain_values` gives them."""

    def __init__(self, out: BinaryIO, schema: pa.Schema) -> None:
        self._out = out
        self._names = schema.names

    def write(self, batch: pa.RecordBatch) -> None:
        if not self._names:
            self._out.write(b"{}\n" * batch.num_rows)
            return
        columns = [plain_values(column) for column in batch.columns]
        lines = [_dump(dict(zip(self._names, row, strict=True))) for row in zip(*columns, strict=True)]
        if lines:
            self._out.write(("\n".join(lines) + "\n").encode("utf-8", "replace"))

    def close(self) -> None:
        self._out.flush()


def _dump(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


class ArrowSink:
    """The Arrow IPC streaming format."""

    def __init__(self, out: BinaryIO, schema: pa.Schema) -> None:
        self._out = out
        self._writer = pa.ipc.new_stream(_Unclosed(out), schema)

    def write(self, batch: pa.RecordBatch) -> None:
        self._writer.write_batch(batch)

    def close(self) -> None:
        self._writer.close()
        self._out.flush()


class ParquetSink:
    """One Parquet file: zstd, with a page index, in row groups of up to a million rows."""

    def __init__(self, out: BinaryIO, schema: pa.Schema, *, stored: StoredTypes | None = None) -> None:
        from pyarrow.parquet import ParquetWriter

        self._out = _Unclosed(out)
        self._schema = schema
        self._stored = stored
        settings: dict[str, Any] = {"compression": "zstd", "write_page_index": True}
        written = schema
        if stored is not None:
            settings = {**stored.writer_settings(settings), "store_schema": False}
            written = stored.schema.remove_metadata()
        self._writer = ParquetWriter(self._out, written, **settings)
        self._batches: list[pa.RecordBatch] = []
        self._rows = self._bytes = 0

    def write(self, batch: pa.RecordBatch) -> None:
        self._batches.append(batch)
        self._rows += batch.num_rows
        self._bytes += bytes_of(batch)
        if self._rows >= _GROUP_ROWS or self._bytes >= _GROUP_BYTES:
            self._flush()

    def _flush(self) -> None:
        if self._rows:
            table = pa.Table.from_batches(self._batches, self._schema)
            if self._stored is not None:
                table = plain_rows(table, self._stored)
            self._writer.write_table(table, row_group_size=self._rows)
        self._batches = []
        self._rows = self._bytes = 0

    def close(self) -> None:
        self._flush()
        stored = self._stored
        if stored is None:
            self._writer.close()
        else:
            self._writer.add_key_value_metadata(stored.key_value())
            end = self._out.collect(self._writer.close)
            self._out.write(restored_end(end, stored, size=self._out.tell() + len(end)))
        self._out.flush()


class _Unclosed(io.RawIOBase):
    """A file for pyarrow to write to: it counts the position, which a pipe has not, and stays open."""

    def __init__(self, out: BinaryIO) -> None:
        self._out = out
        self._position = 0
        self._collected: list[bytes] | None = None

    def collect(self, close: Callable[[], object]) -> bytes:
        """Return what is written by a call, which goes nowhere else."""
        at, self._collected = self._position, []
        close()
        collected, self._collected, self._position = b"".join(self._collected), None, at
        return collected

    def flush(self) -> None:
        self._out.flush()

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def write(self, data: Any) -> int:
        if self._collected is None:
            self._out.write(data)
        else:
            self._collected.append(bytes(data))
        self._position += len(data)
        return len(data)
