"""The state of a Delta table in one version: its protocol, its metadata and its files, as columns.

Source: the Delta protocol, "Action Reconciliation".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from accel.arrays import Int64s, from_numpy, integers, make_scalar, mask
from accel.errors import TableFormatError
from accel.memory import returning_pool
from accel.tables.formats.delta.actions import FileActions
from accel.tables.formats.delta.protocol import Metadata, Protocol
from accel.tables.formats.delta.schema import TableSchema

__all__ = ["CheckpointPart", "CheckpointRows", "ContradictionError", "LogState", "TableFiles", "reconcile"]


@dataclass(frozen=True, slots=True, eq=False)
class TableFiles:
    """The files of a version, in the order in which the log has added them."""

    path: pa.Array
    """Decoded; relative to the table, or absolute."""
    size: pa.Array
    partition: Mapping[str, pa.Array]
    """By physical name, the texts of the partition values."""
    vector: pa.Array
    stats: pa.Array
    """The statistics of files that commits have added, as JSON; null for those of the checkpoint."""
    checkpoint_row: np.ndarray[Any, np.dtype[np.int64]]
    """The place of a file among those that the checkpoint adds; -1 for files of commits."""

    def __len__(self) -> int:
        return len(self.path)

    @property
    def nbytes(self) -> int:
        """The memory that they take."""
        arrays = (self.path, self.size, self.vector, self.stats, *self.partition.values())
        return int(sum(array.nbytes for array in arrays)) + self.checkpoint_row.nbytes


@dataclass(frozen=True, slots=True)
class CheckpointPart:
    """A file of a checkpoint."""

    url: str
    size: int
    etag: str | None = None
    """As the listing of the log has shown it; sidecars are not listed, and have names that are used once."""


@dataclass(frozen=True, slots=True)
class CheckpointRows:
    """The objects of a checkpoint that have rows of files, by which its statistics are read when they are
    needed."""

    version: int
    parquet: tuple[CheckpointPart, ...]
    """Its Parquet files, in order."""


@dataclass(frozen=True, eq=False)
class LogState:
    """What the log says of one version."""

    version: int
    protocol: Protocol
    metadata: Metadata
    files: TableFiles
    checkpoint: CheckpointRows | None
    json_stats: pa.Array | None = None
    """The statistics of the files that a checkpoint in JSON adds itself."""
    timestamp: int | None = None
    """The time within the commit of the version, in milliseconds."""

    @cached_property
    def schema(self) -> TableSchema:
        """The columns of the version."""
        return TableSchema.parse(
            self.metadata.schema_text, self.metadata.partition_columns, self.metadata.mode(self.protocol)
        )

    @property
    def nbytes(self) -> int:
        """The memory that it takes."""
        return self.files.nbytes + len(self.metadata.schema_text) * 4 + 4096


def reconcile(
    base: TableFiles | None,
    actions: FileActions,
    *,
    partition: Sequence[str],
    in_checkpoint: int = 0,
    local: bool = False,
) -> TableFiles:
    """Return the files that are there after some actions.

    Parameters
    ----------
    base : TableFiles, optional
        The files before.
    actions : FileActions
    partition : sequence of str
        The physical names of the partition columns.
    in_checkpoint : int
        How many of the first actions are those of the checkpoint.
    local : bool
        Whether the table is local, so that `file:` and a bare absolute path are the same.

    Raises
    ------
    TableFormatError
        A file is there twice.
    """
    paths = _decoded(actions.path, local=local)
    keys = _keys(paths, actions.vector)
    before = 0 if base is None else len(base)
    if base is not None:
        keys = pa.concat_arrays([_keys(base.path, base.vector), keys])
    with_vectors = actions.vector.null_count < len(actions) or (
        base is not None and base.vector.null_count < len(base)
    )
    codes = _codes(keys)
    _refuse_contradictions(codes[before:], actions, paths)
    # Of the actions on a file the last one counts.
    last = np.arange(len(codes))
    if len(codes) and int(codes.max()) + 1 < len(codes):
        _, backward = np.unique(codes[::-1], return_index=True)
        last = np.sort(len(codes) - 1 - backward)
    added = np.concatenate([np.ones(before, bool), actions.added])
    live = last[added[last]]
    rows = np.full(len(codes), -1, np.int64)
    if base is not None:
        rows[:before] = base.checkpoint_row
    elif in_checkpoint:
        number = np.cumsum(actions.added[:in_checkpoint]) - 1
        rows[:in_checkpoint] = number
    at = from_numpy(live.astype(np.int64))

    def chosen(first: pa.Array | None, second: pa.Array) -> pa.Array:
        whole = second if first is None else pa.concat_arrays([first, second], memory_pool=returning_pool())
        # In order they are ascending: as many are all.
        return whole if len(at) == len(whole) else pc.take(whole, at, memory_pool=returning_pool())

    found = TableFiles(
        path=chosen(None if base is None else base.path, paths),
        size=chosen(None if base is None else base.size, actions.size),
        partition={
            name: chosen(
                None if base is None else base.partition.get(name, pa.nulls(before, pa.string())),
                actions.partition[name],
            )
            for name in partition
        },
        vector=chosen(None if base is None else base.vector, actions.vector),
        stats=chosen(None if base is None else base.stats, actions.stats),
        checkpoint_row=rows[live],
    )
    if with_vectors:
        # Without them paths are keys, of which each is left once.
        _refuse_twice(found.path)
    return found


class ContradictionError(TableFormatError):
    """One commit says two things of a file."""

    commit: int
    """Its number among those that were read together."""


def _refuse_contradictions(codes: Int64s, actions: FileActions, paths: pa.Array) -> None:
    """Raise ContradictionError where a commit has two actions on one file and deletion vector."""
    if not len(codes) or bool(actions.added.all()):
        return
    both = codes * (int(actions.commit.max()) + 2) + actions.commit + 1
    _, inverse, counts = np.unique(both, return_inverse=True, return_counts=True)
    # What is said twice alike does no harm.
    added = np.bincount(inverse, actions.added, len(counts))
    mixed = (added > 0) & (added < counts)
    if mixed.any():
        place = int(np.flatnonzero(mixed[inverse])[0])
        error = ContradictionError(f"the file {paths[place].as_py()!r:.200} has two actions in one commit")
        error.commit = int(actions.commit[place])
        raise error


def _refuse_twice(paths: pa.Array) -> None:
    codes = _codes(paths)
    if len(codes) and int(codes.max()) + 1 < len(codes):
        counts = np.bincount(codes)
        place = int(np.flatnonzero(counts[codes] > 1)[0])
        raise TableFormatError(
            f"the log has the file {paths[place].as_py()!r:.200} twice, with different deletion vectors"
        )


def _keys(paths: pa.Array, vectors: pa.Array) -> pa.Array:
    """Return what identifies a file together with its deletion vector."""
    if vectors.null_count == len(vectors):
        return paths
    nothing, between = (make_scalar(text, pa.string()) for text in ("", "\0"))
    parts = [pc.struct_field(vectors, name) for name in ("storageType", "pathOrInlineDv")]
    parts.append(pc.struct_field(vectors, "offset").cast(pa.string()))
    marked = pc.binary_join_element_wise(paths, *(pc.fill_null(part, nothing) for part in parts), between)
    return pc.if_else(vectors.is_valid(), marked, paths)


def _codes(keys: pa.Array) -> Int64s:
    """Return numbers from 0 on, the same for equal keys and no others.

    They are sorted for that: a table of hashes takes several times their memory.
    """
    if not len(keys):
        return np.zeros(0, np.int64)
    order = pc.sort_indices(keys)
    ordered = pc.take(keys, order, memory_pool=returning_pool())
    differs = ~mask(pc.equal(ordered.slice(1), ordered.slice(0, len(keys) - 1)))
    codes = np.empty(len(keys), np.int64)
    codes[integers(order)] = np.append(0, np.cumsum(differs))
    return codes


def _decoded(paths: pa.Array, *, local: bool) -> pa.Array:
    """Return paths without percent-encoding."""
    if len(paths) and pc.any(pc.match_substring(paths, "%")).as_py():
        try:
            paths = pa.array([unquote(path, errors="strict") for path in paths.to_pylist()], pa.string())
        except UnicodeDecodeError as error:
            raise TableFormatError("a path of the log is no text") from error
    if local and len(paths) and pc.any(pc.starts_with(paths, "file:")).as_py():
        paths = pc.replace_substring_regex(paths, r"^file:/+", "/")
    return paths
