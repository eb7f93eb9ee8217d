"""The commits of a Delta log, replayed on what the log said before them.

They are taken some at a time, as their bytes in JSON are several times what comes of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pyarrow as pa

from accel.arrays import from_numpy
from accel.errors import AccelError, TableFormatError
from accel.memory import returning_pool
from accel.options import MIB
from accel.tables.formats.delta.actions import (
    FileActions,
    TableActions,
    read_file_actions,
    read_table_actions,
)
from accel.tables.formats.delta.checkpoints import ParquetRows
from accel.tables.formats.delta.log_state import CheckpointRows, LogState, reconcile
from accel.tables.formats.delta.protocol import Metadata, Protocol
from accel.tables.formats.delta.schema import TableSchema

__all__ = ["LoadedCheckpoint", "Replay", "physical_partition"]

_LARGE: Final = 8 * MIB
"""Bytes of commits beyond which what reading them took is returned to the system, in milliseconds."""


@dataclass(frozen=True, slots=True, eq=False)
class LoadedCheckpoint:
    """A checkpoint as it was read."""

    table: TableActions
    json_files: FileActions | None
    groups: tuple[ParquetRows, ...]
    rows: CheckpointRows


class Replay:
    """Makes the state of a version of a checkpoint, or of an earlier version, and of the commits after it.

    Parameters
    ----------
    version : int
    base : LogState, optional
        The earlier version.
    named : callable
        Returns an error that names the log and a version.
    local : bool
        Whether the table is local.
    """

    def __init__(
        self,
        version: int,
        base: LogState | None,
        *,
        named: Callable[[AccelError, int], AccelError],
        local: bool,
    ) -> None:
        self._version, self._base = version, base
        self.checkpoint: LoadedCheckpoint | None = None
        self._named, self._local = named, local
        self._protocol = None if base is None else base.protocol
        self._metadata = None if base is None else base.metadata
        self._timestamp: int | None = None
        self._partition: tuple[str, ...] | None = None
        self._parts: list[FileActions] = []
        self._commits = self._commit_bytes = 0

    def begin(self, checkpoint: LoadedCheckpoint) -> None:
        """Begin with a checkpoint, before any commit is taken."""
        self.checkpoint = checkpoint
        self._note(checkpoint.rows.version, checkpoint.table)

    def add(self, versions: Sequence[int], commits: Sequence[memoryview], *, last: bool) -> None:
        """Take the next commits.

        Parameters
        ----------
        versions : sequence of int
            The last version of each commit.
        commits : sequence of memoryview
        last : bool
            Whether no others follow; `finish` returns the state then.

        Raises
        ------
        TableFormatError
            One cannot be read; or the partition columns have changed since the commits that were taken
            before, which have to be taken together with these.
        """
        for version, actions in [
            (version, self._table_actions(version, commit))
            for version, commit in zip(versions, commits, strict=True)
        ]:
            self._note(version, actions)
        protocol, metadata = self._known()
        if last:
            protocol.check()
        partition = physical_partition(protocol, metadata)
        if self._partition not in (None, partition):
            raise TableFormatError("the partition columns have changed within the log")
        self._partition = partition
        self._parts += [
            replace(part, commit=part.commit + self._commits)
            for part in self._file_actions(versions, commits, partition)
        ]
        self._commits += len(commits)
        self._commit_bytes += sum(map(len, commits))

    def finish(self) -> LogState:
        """Return the state of the version.

        Raises
        ------
        ContradictionError
            A commit says two things of a file.
        TableFormatError
            The log has a file twice.
        """
        base, checkpoint = self._base, self.checkpoint
        partition = self._partition or ()
        before = [] if checkpoint is None else _files_of(checkpoint, partition)
        rows = None if base is None else base.checkpoint
        json_stats = None if base is None else base.json_stats
        if checkpoint is not None:
            rows, json_files = checkpoint.rows, checkpoint.json_files
            json_stats = None if json_files is None else json_files.stats.filter(from_numpy(json_files.added))
        in_checkpoint = sum(map(len, before))
        actions = FileActions.concat([*before, *self._parts, FileActions.none(partition)])
        # What they are made of would take as much again.
        before, self._parts = [], []
        if self._commit_bytes > _LARGE:
            returning_pool().release_unused()
        files = reconcile(
            None if base is None else base.files,
            actions,
            partition=partition,
            in_checkpoint=in_checkpoint,
            local=self._local,
        )
        protocol, metadata = self._known()
        return LogState(
            version=self._version,
            protocol=protocol,
            metadata=metadata,
            files=files,
            checkpoint=rows,
            json_stats=json_stats,
            timestamp=self._timestamp,
        )

    def _note(self, version: int, actions: TableActions) -> None:
        """Note what a commit, or the checkpoint, says of the table."""
        try:
            if actions.protocol is not None:
                self._protocol = Protocol.of(actions.protocol)
            if actions.metadata is not None:
                self._metadata = Metadata.of(actions.metadata)
        except AccelError as error:
            raise self._named(error, version) from error.__cause__
        self._timestamp = actions.timestamp

    def _known(self) -> tuple[Protocol, Metadata]:
        if self._protocol is None or self._metadata is None:
            raise TableFormatError(
                f"the log has no {'protocol' if self._protocol is None else 'metadata'} up to version "
                f"{self._version}"
            )
        return self._protocol, self._metadata

    def _table_actions(self, version: int, commit: memoryview) -> TableActions:
        try:
            return read_table_actions(commit)
        except AccelError as error:
            raise self._named(error, version) from error.__cause__

    def _file_actions(
        self, versions: Sequence[int], commits: Sequence[memoryview], partition: Sequence[str]
    ) -> list[FileActions]:
        try:
            return read_file_actions(commits, partition)
        except AccelError:
            # All are read together; by itself the one that is broken shows.
            for version, commit in zip(versions, commits, strict=True):
                try:
                    read_file_actions([commit], partition)
                except AccelError as error:
                    raise self._named(error, version) from error.__cause__
            raise


def _files_of(checkpoint: LoadedCheckpoint, partition: Sequence[str]) -> list[FileActions]:
    """Return the files of a checkpoint, in parts; those of its JSON come first."""
    parts: list[FileActions] = []
    json_files = checkpoint.json_files
    if json_files is not None:
        nothing = pa.nulls(len(json_files), pa.string())
        parts.append(
            replace(
                json_files,
                commit=np.full(len(json_files), -1, np.int64),
                partition={name: json_files.partition.get(name, nothing) for name in partition},
            )
        )
    return parts + [rows.files(tuple(partition)) for rows in checkpoint.groups]


def physical_partition(protocol: Protocol | None, metadata: Metadata | None) -> tuple[str, ...]:
    """Return the physical names of the partition columns."""
    if metadata is None or not metadata.partition_columns:
        return ()
    if protocol is None or metadata.mode(protocol) == "none":
        return metadata.partition_columns
    schema = TableSchema.parse(metadata.schema_text, metadata.partition_columns, metadata.mode(protocol))
    return tuple(schema.physical[name] for name in metadata.partition_columns)
