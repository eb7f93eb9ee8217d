"""Checkpoints of a Delta log: the whole state of a version, in Parquet files or in JSON with sidecars.

They are read by accel's own scan, and only the columns that are needed. Which of them are there the footers
say, so that these are opened first.

Source: the Delta protocol, "Checkpoints", "Checkpoint Schema", "Sidecar Files".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from accel.arrays import from_numpy, make_scalar, mask
from accel.errors import TableFormatError
from accel.runtime.tasks import Group
from accel.store.request_errors import raising_foremost
from accel.tables.formats.delta.actions import (
    VECTOR_TYPE,
    FileActions,
    Sidecar,
    TableActions,
    checked,
    sidecar_of,
)
from accel.tables.formats.delta.log_state import CheckpointPart
from accel.tables.formats.delta.schema import StatisticsLeaf
from accel.tables.formats.delta.statistics import FileStatistics, read_parsed, read_texts
from accel.tables.metadata_objects import MetadataObjects

__all__ = ["CheckpointReader", "ParquetRows"]

_ADD_FIELDS = ("path", "size", "partitionValues", "deletionVector")


@dataclass(frozen=True, slots=True, eq=False)
class ParquetRows:
    """What Parquet files of a checkpoint have."""

    table: TableActions
    adds: pa.StructArray | None
    """The files that they add, with the fields that were read; None where they have none."""
    wanted: frozenset[tuple[str, ...]]
    """The physical paths of the columns whose statistics were read, where they are columns of their own."""

    def __len__(self) -> int:
        return 0 if self.adds is None else len(self.adds)

    def files(self, partition: Sequence[str]) -> FileActions:
        """Return the files, with the values of the partition columns of these physical names.

        Raises
        ------
        TableFormatError
            A row names no file, or no size.
        """
        adds = self.adds
        if adds is None:
            return FileActions.none(partition)
        vector = pa.nulls(len(adds), VECTOR_TYPE)
        if _has(adds.type, "deletionVector"):
            vector = _vectors(pc.struct_field(adds, "deletionVector"))
        try:
            return checked(
                FileActions(
                    path=pc.struct_field(adds, "path").cast(pa.string()),
                    size=pc.struct_field(adds, "size").cast(pa.int64()),
                    added=np.ones(len(adds), bool),
                    partition=_partition_texts(adds, partition),
                    vector=vector,
                    stats=pa.nulls(len(adds), pa.string()),
                    commit=np.full(len(adds), -1, np.int64),
                )
            )
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, KeyError) as error:
            raise TableFormatError(
                f"a checkpoint has other columns than it should: {error!s:.160}"
            ) from error

    def only_texts(self) -> ParquetRows | None:
        """Return the rows with nothing but statistics in JSON; None where they have none, or in columns."""
        adds = self.adds
        if adds is None:
            return self
        if _has(adds.type, "stats_parsed") or not _has(adds.type, "stats"):
            return None
        texts = pc.struct_field(adds, "stats")
        return ParquetRows(TableActions(), pa.StructArray.from_arrays([texts], names=["stats"]), frozenset())

    def statistics(self, leaves: Sequence[StatisticsLeaf]) -> tuple[FileStatistics, int] | None:
        """Return the statistics of columns, and how many cannot be read; None where they were not read."""
        adds = self.adds
        if adds is None:
            return read_texts(pa.nulls(0, pa.string()), leaves)
        if _has(adds.type, "stats_parsed"):
            if not {leaf.physical for leaf in leaves} <= self.wanted:
                return None
            return read_parsed(pc.struct_field(adds, "stats_parsed"), leaves), 0
        if _has(adds.type, "stats"):
            return read_texts(pc.struct_field(adds, "stats").cast(pa.string()), leaves)
        return None


class CheckpointReader:
    """Reads the Parquet files of checkpoints, for one run.

    Parameters
    ----------
    objects : MetadataObjects
    """

    def __init__(self, objects: MetadataObjects) -> None:
        self._objects = objects

    async def read_all(
        self,
        parts: Sequence[CheckpointPart],
        statistics: Sequence[tuple[str, ...]] | None,
        *,
        only_statistics: bool = False,
    ) -> list[ParquetRows]:
        """Return the actions of several Parquet files, which are read at the same time: see `read`."""
        with raising_foremost():
            async with Group() as group:
                tasks = [
                    group.create_task(self.read(part, statistics, only_statistics=only_statistics))
                    for part in parts
                ]
        return [task.result() for task in tasks]

    async def read(
        self,
        part: CheckpointPart,
        statistics: Sequence[tuple[str, ...]] | None,
        *,
        only_statistics: bool = False,
    ) -> ParquetRows:
        """Return the actions of a Parquet file.

        Parameters
        ----------
        part : CheckpointPart
        statistics : sequence of tuple of str, optional
            The physical paths of the columns whose statistics are wanted; None for no statistics.
        only_statistics : bool
            Whether nothing else is.
        """

        async def read() -> pa.Table | None:
            rows = self._objects.rows(
                [part.url],
                schema=lambda schema: _chosen(schema, statistics, only_statistics=only_statistics),
                sizes=[part.size],
            )
            batches = [batch async for batch in rows]
            return pa.Table.from_batches(batches) if batches else None

        async def packed() -> memoryview:
            return _packed(await read())

        if self._objects.stores(part.url, etag=part.etag):
            what = f"checkpoint {part.size} {only_statistics} {statistics!r}"
            table = _unpacked(await self._objects.stored(part.url, packed, what=what, etag=part.etag))
        else:
            table = await read()
        if table is None:
            return ParquetRows(TableActions(), None, frozenset())
        found_actions = TableActions() if only_statistics else _table_actions(table)
        return ParquetRows(found_actions, _adds(table), frozenset(statistics or ()))


def _packed(table: pa.Table | None) -> memoryview:
    """Return rows as the disk tier has them."""
    if table is None:
        return memoryview(b"")
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
        writer.write_table(table)
    return memoryview(sink.getvalue())


def _unpacked(data: memoryview) -> pa.Table | None:
    """Return rows that the disk tier had; None where there were none."""
    return pa.ipc.open_stream(pa.py_buffer(data)).read_all() if len(data) else None


def _chosen(
    schema: pa.Schema, statistics: Sequence[tuple[str, ...]] | None, *, only_statistics: bool
) -> pa.Schema:
    """Return the part of the schema of a checkpoint that is read."""
    fields: list[pa.Field] = []
    add = _struct_of(schema, "add")
    if add is not None:
        below = [add.field(name) for name in _ADD_FIELDS if _has(add, name)]
        if only_statistics:
            below = [field for field in below if field.name == "path"]
        if statistics is not None:
            parsed = _struct_of(add, "stats_parsed")
            chosen = None if parsed is None else _chosen_statistics(parsed, statistics)
            if chosen is not None:
                below.append(pa.field("stats_parsed", chosen))
            elif _has(add, "stats"):
                below.append(add.field("stats"))
        fields.append(pa.field("add", pa.struct(below)))
    if not only_statistics:
        fields += [schema.field(name) for name in ("metaData", "protocol", "sidecar") if name in schema.names]
    # A part may have other actions only.
    return pa.schema(fields or [schema.field(0)])


def _chosen_statistics(parsed: pa.StructType, paths: Sequence[tuple[str, ...]]) -> pa.StructType | None:
    """Return the part of statistics in columns that is read."""
    fields = [parsed.field(name) for name in ("numRecords", "tightBounds") if _has(parsed, name)]
    for which in ("minValues", "maxValues", "nullCount"):
        above = _struct_of(parsed, which)
        below = None if above is None else _subset(above, paths)
        if below is not None:
            fields.append(pa.field(which, below))
    return pa.struct(fields) if fields else None


def _subset(kind: pa.StructType, paths: Sequence[tuple[str, ...]]) -> pa.StructType | None:
    """Return the struct with nothing but what lies at paths; None where nothing does."""
    fields = []
    for name in dict.fromkeys(path[0] for path in paths if path):
        if not _has(kind, name):
            continue
        field = kind.field(name)
        if pa.types.is_struct(field.type):
            below = _subset(field.type, [path[1:] for path in paths if path and path[0] == name])
            if below is not None:
                fields.append(pa.field(name, below))
        elif not pa.types.is_nested(field.type) and (name,) in paths:
            fields.append(field)
    return pa.struct(fields) if fields else None


def _struct_of(above: pa.Schema | pa.StructType, name: str) -> pa.StructType | None:
    found = above.get_field_index(name)
    if found < 0:
        return None
    kind = above.field(found).type
    return kind if pa.types.is_struct(kind) else None


def _has(above: pa.StructType, name: str) -> bool:
    return bool(above.get_field_index(name) >= 0)


def _adds(table: pa.Table) -> pa.StructArray | None:
    """Return the rows that add a file."""
    if "add" not in table.schema.names:
        return None
    column = table.column("add").combine_chunks()
    adds = column.chunk(0) if isinstance(column, pa.ChunkedArray) else column
    # Where no field of it is there, a struct may come as null, or not.
    return adds.take(from_numpy(np.flatnonzero(mask(pc.struct_field(adds, "path").is_valid()))))


def _partition_texts(adds: pa.StructArray, partition: Sequence[str]) -> dict[str, pa.Array]:
    if not partition:
        return {}
    if adds.type.get_field_index("partitionValues") < 0:
        return {name: pa.nulls(len(adds), pa.string()) for name in partition}
    values = pc.struct_field(adds, "partitionValues")
    if not pa.types.is_map(values.type):
        raise TableFormatError("the partition values of a checkpoint are no map")
    return {
        name: pc.map_lookup(values, make_scalar(name, values.type.key_type), "first").cast(pa.string())
        for name in partition
    }


def _vectors(found: pa.StructArray) -> pa.Array:
    """Return deletion vectors in their type, null where there is none."""
    n = len(found)
    arrays = []
    for field in VECTOR_TYPE:
        have = found.type.get_field_index(field.name) >= 0
        arrays.append(
            pc.struct_field(found, field.name).cast(field.type) if have else pa.nulls(n, field.type)
        )
    valid = mask(arrays[0].is_valid())
    return pa.StructArray.from_arrays(arrays, fields=list(VECTOR_TYPE), mask=from_numpy(~valid))


def _table_actions(table: pa.Table) -> TableActions:
    """Return what the rows of a checkpoint say of the table."""
    one: dict[str, Any] = {}
    for name, inner in (("metaData", "schemaString"), ("protocol", "minReaderVersion")):
        if name in table.schema.names:
            column = table.column(name)
            if pa.types.is_struct(column.type) and column.type.get_field_index(inner) >= 0:
                for chunk in column.chunks:
                    valid = np.flatnonzero(mask(pc.struct_field(chunk, inner).is_valid()))
                    if len(valid):
                        one[name] = chunk[int(valid[-1])].as_py()
    sidecars: list[Sidecar] = []
    if "sidecar" in table.schema.names and pa.types.is_struct(table.column("sidecar").type):
        for chunk in table.column("sidecar").chunks:
            there = mask(pc.struct_field(chunk, "path").is_valid())
            sidecars += [sidecar_of(chunk[int(at)].as_py()) for at in np.flatnonzero(there)]
    return TableActions(protocol=one.get("protocol"), metadata=one.get("metaData"), sidecars=tuple(sidecars))
