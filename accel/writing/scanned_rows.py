"""The rows of a scan, to be written in the types that its files store."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import aclosing
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from accel.arrays import from_numpy, integers, list_items, map_lists, pack_bits, validity
from accel.errors import SchemaMismatchError
from accel.metrics import Metrics
from accel.options import Int96Unit
from accel.runtime import io_loop
from accel.scanning.spec import is_planned, is_stream
from accel.writing.merged_footers import MergedFooters
from accel.writing.stored_types import INSTANT_BYTES, SeenTypes, StoredTypes

if TYPE_CHECKING:
    from accel.scanning.engine import Engine
    from accel.scanning.scan import Scan

__all__ = ["find_stored_types", "plain_rows", "with_way_out"]

_AT_ONCE: Final = 64
"""Files that are opened at once."""
_EPOCH: Final = 2_440_588
"""The Julian day of 1970-01-01."""
_NANOS_PER_DAY: Final = 86_400_000_000_000


def with_way_out(batches: Iterator[pa.RecordBatch]) -> Generator[pa.RecordBatch, None, None]:
    """Yield the batches of a scan that are to be written; its errors say how they can be."""
    try:
        yield from batches
    except SchemaMismatchError as error:
        raise _tell_way_out(error) from error.__cause__


def _tell_way_out(error: SchemaMismatchError) -> SchemaMismatchError:
    if error.hint is not None and "int96_unit" in error.hint:
        # Without a zone they would be other timestamps for whoever reads the new file.
        error.hint = (
            'scan with `Options(int96_unit="us_utc")`, by which INT96 is written as TIMESTAMP in microseconds'
        )
    return error


def find_stored_types(scan: Scan, schema: pa.Schema) -> StoredTypes | None:
    """Return how the files of a scan store its columns; None for a scan over record batches, whose files are
    not there to be looked at.

    Parameters
    ----------
    scan : Scan
    schema : pyarrow.Schema
        The schema of its rows.

    Raises
    ------
    SchemaMismatchError
        No file can store a column as all files of the scan do.
    """
    engine = scan.engine
    if is_stream(engine.spec.source):
        return None
    seen, footers = SeenTypes(), MergedFooters()
    if is_planned(engine.spec.source):
        for file in {id(task.file): task.file for task in io_loop.run(engine.plan(Metrics())).tasks}.values():
            seen.add(file.schema, file.arrow_schema, file.key_value, url=file.url)
    else:
        io_loop.run(_look_at_files(engine, seen, footers))
    if engine.spec.options.int96_unit != Int96Unit.AUTO:
        seen.forget_instants()
    merged = footers.settle(schema.names)
    metadata = {**(schema.metadata or {}), **merged} if is_planned(engine.spec.source) else merged
    return seen.settle(schema.with_metadata(metadata or None))


def plain_rows(rows: pa.Table, stored: StoredTypes) -> pa.Table:
    """Return rows of a scan in the types that store them."""
    columns = [
        pa.chunked_array([_plain(chunk, field.type) for chunk in column.chunks], field.type)
        for column, field in zip(rows.columns, stored.schema, strict=True)
    ]
    return pa.Table.from_arrays(columns, schema=stored.schema)


async def _look_at_files(engine: Engine, seen: SeenTypes, footers: MergedFooters) -> None:
    async with aclosing(engine.resolve(Metrics())) as source:
        block = await source.first_block()
        while True:
            for start in range(0, len(block.files), _AT_ONCE):
                files = block.files[start : start + _AT_ONCE]
                for file, handle in zip(files, await source.reader.open_all(files), strict=True):
                    shared = handle.shared
                    seen.add(shared.schema, handle.arrow_schema, shared.key_value, url=file.url)
                    footers.add(handle.arrow_schema.metadata or {}, url=file.url)
            following = await source.next_block()
            if following is None:
                return
            block = following


def _plain(array: pa.Array, to: pa.DataType) -> pa.Array:
    """Return values in the plain type that stores them."""
    while isinstance(array, pa.ExtensionArray):
        array = array.storage
    kind, types = array.type, pa.types
    if kind.equals(to):
        return array
    if types.is_dictionary(kind):
        return _plain(array.dictionary_decode(), to)
    if types.is_null(kind):
        return pa.nulls(len(array), to)
    nulls = array.is_null() if array.null_count else None
    if types.is_struct(to):
        children = [_plain(array.field(at), to.field(at).type) for at in range(to.num_fields)]
        return pa.StructArray.from_arrays(children, fields=list(to), mask=nulls)
    if types.is_map(to):
        lists = map_lists(array)
        entries = list_items(lists)
        keys, items = _plain(entries.field(0), to.key_type), _plain(entries.field(1), to.item_type)
        return pa.MapArray.from_arrays(_offsets(lists), keys, items, type=to, mask=nulls)
    if types.is_list(to):
        values = _plain(list_items(array), to.value_type)
        return pa.ListArray.from_arrays(_offsets(array), values, type=to, mask=nulls)
    if types.is_timestamp(kind) and types.is_fixed_size_binary(to):
        return _instants(array)
    if types.is_decimal(kind) and types.is_integer(to):
        numbers = from_numpy(np.where(validity(array), integers(array), 0).astype(np.int64)).cast(to)
        return numbers if nulls is None else pc.if_else(nulls, pa.nulls(1, to)[0], numbers)
    return array.cast(to)


def _offsets(lists: pa.Array) -> pa.Array:
    lengths = np.where(validity(lists), integers(pc.list_value_length(lists).cast(pa.int64())), 0)
    return from_numpy(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)).cast(pa.int32())


def _instants(array: pa.Array) -> pa.Array:
    """Return timestamps in nanoseconds as INT96."""
    valid = validity(array)
    nanos = np.where(valid, integers(array.view(pa.int64())), 0)
    stored = np.empty(len(array), [("time", "<i8"), ("day", "<u4")])
    stored["time"] = nanos % _NANOS_PER_DAY
    stored["day"] = nanos // _NANOS_PER_DAY + _EPOCH
    nulls = None if bool(valid.all()) else pack_bits(valid)
    return pa.Array.from_buffers(
        pa.binary(INSTANT_BYTES), len(array), [nulls, pa.py_buffer(stored.tobytes())]
    )
