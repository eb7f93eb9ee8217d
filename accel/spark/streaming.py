"""`readStream.format("accel")`: every file of a growing directory once.

An offset is the set of files that have been read, as hashes of their names. So it needs no clock, no order of names and no
state of its own: a restarted query has it from its checkpoint, and the files of a batch are those of its end without those
of its start. Files that have been deleted leave the set, so that it grows with the directory and not with time.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxFiles,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from accel.api import plan, scan
from accel.errors import AccelError, ObjectNotFoundError
from accel.metrics import Metrics
from accel.planning.file_entry import FileBlock, FileEntry
from accel.scanning.spec import OnError
from accel.spark.credentials import with_credentials
from accel.spark.executing import one_line_errors
from accel.spark.partition_reading import check_columns, make_partitions, name_of, read_partition
from accel.spark.source_options import SourceOptions
from accel.store import io_loop

if TYPE_CHECKING:
    from pyspark import Accumulator

__all__ = ["AccelStreamReader", "decode_offset", "encode_offset"]

_VERSION = 1
_HASH_BYTES = 8
Offset: TypeAlias = dict[str, Any]


def encode_offset(seen: frozenset[int]) -> Offset:
    """Return a set of files, by their hashes, as an offset of Spark."""
    hashes = np.array(sorted(seen), dtype="<u8")
    return {"version": _VERSION, "count": len(hashes), "seen": base64.b64encode(hashes.tobytes()).decode()}


def decode_offset(offset: Offset) -> frozenset[int]:
    """Return the set of files of an offset.

    Raises
    ------
    AccelError
        It is no offset of this version.
    """
    try:
        version, count, seen = (
            offset["version"],
            offset["count"],
            base64.b64decode(offset["seen"], validate=True),
        )
    except (KeyError, TypeError, ValueError):
        version, count, seen = None, 0, b""
    if version != _VERSION or len(seen) != count * _HASH_BYTES:
        raise AccelError(
            'the checkpoint holds no offset of format("accel"), or one of another version',
            hint="begin with a new checkpoint",
        )
    return frozenset(np.frombuffer(seen, dtype="<u8").tolist())


def _hash(file: FileEntry) -> int:
    # Eight bytes: two of a million files have one hash in one of 30 million directories.
    return int.from_bytes(hashlib.blake2b(file.url.encode(), digest_size=_HASH_BYTES).digest(), "little")


class AccelStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Lists the files on the driver, plans the new ones of a batch, and reads them on the executors.

    Parameters
    ----------
    asked : SourceOptions
    schema : StructType
        The columns that Spark expects.
    columns : pyarrow.Schema
        The same in Arrow's types.
    parallelism : int
    counts : Accumulator or None
    """

    def __init__(
        self,
        asked: SourceOptions,
        schema: StructType,
        columns: pa.Schema,
        *,
        parallelism: int,
        counts: Accumulator[Metrics] | None,
    ) -> None:
        if asked.limit is not None:
            raise ValueError("a stream has no limit: leave the option limit out")
        self._asked = asked
        self._schema = schema
        self._columns = columns
        self._parallelism = parallelism
        self._counts = counts
        self._target: frozenset[int] | None = None
        """The files that a query with `availableNow` is to read."""

    # -- on the driver ---------------------------------------------------------------------------

    def initialOffset(self) -> Offset:
        """Return the offset before the first file."""
        return encode_offset(frozenset())

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return what the option `maxFilesPerTrigger` says."""
        most = self._asked.max_files
        return ReadAllAvailable() if most is None else ReadMaxFiles(most)

    def prepareForTriggerAvailableNow(self) -> None:
        """Note the files that are there now: a query with `availableNow` ends with them."""
        with one_line_errors():
            self._target = frozenset(self._files()[0])

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """Return the offset after the next batch; `start` itself where there is no new file."""
        with one_line_errors():
            seen = decode_offset(start)
            listed = self._files()[0]
            fresh = [
                each for each in listed if each not in seen and (self._target is None or each in self._target)
            ]
            most = getattr(limit, "max_files", None)
            fresh = fresh if most is None else fresh[:most]
            if not fresh:
                return start
            return encode_offset((seen & listed.keys()) | frozenset(fresh))

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """Plan the files of one batch."""
        with one_line_errors():
            wanted = decode_offset(end) - decode_offset(start)
            if not wanted:
                return []
            asked = self._asked
            listed, block = self._files()
            files = [file for each, file in listed.items() if each in wanted]
            if len(files) < len(wanted) and asked.on_error is OnError.RAISE:
                raise ObjectNotFoundError(
                    f"{len(wanted) - len(files)} of {len(wanted)} files of a batch have been deleted since it began",
                    path=name_of(asked.source),
                    hint="the option onError=skip goes on without them",
                )
            if not files:
                return []
            keywords = with_credentials(asked.planning(), asked.credentials)
            keywords |= {"index": None, "listing": "store", "glob": False, "on_error": asked.on_error.value}
            keywords["partitioning"] = block.partition_schema if len(block.partition_schema) else None
            planned = plan(
                [file.url for file in files],
                asked.where,
                schema=self._columns,
                columns=self._schema.names,
                **keywords,
            )
            check_columns(planned.schema, self._schema, asked, "their types do not widen to those")
            return make_partitions(planned, asked, self._parallelism)

    def _files(self) -> tuple[dict[int, FileEntry], FileBlock]:
        """Return all files, by their hashes in the order of the listing."""
        keywords = with_credentials(self._asked.planning(), self._asked.credentials)
        engine = scan(self._asked.source, **keywords)._engine

        async def find() -> tuple[dict[int, FileEntry], FileBlock]:
            found = engine.resolve(Metrics())
            try:
                first = await found.first_block()
            except ObjectNotFoundError:
                return {}, FileBlock((), pa.schema([]), 0)  # the first file is still to come
            listed: dict[int, FileEntry] = {}
            block: FileBlock | None = first
            while block is not None:
                listed.update((_hash(file), file) for file in block.files)
                block = await found.next_block()
            return listed, first

        return io_loop.run(find())

    # -- on an executor --------------------------------------------------------------------------

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the tasks of a partition."""
        return read_partition(partition, self._asked, self._schema, counts=self._counts)
