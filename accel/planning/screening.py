"""Files that statistics exclude, many at a time: what planning them one by one would find, for less.

The row groups of all files are judged by one call, as if they were those of one file.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from accel.format.bounds import joined_chunk_bounds
from accel.format.domain import Bounds, Domain
from accel.planning.handle import FileHandle
from accel.planning.pruning import group_bounds
from accel.planning.query import FileQuery
from accel.predicate.constant import constant_bounds
from accel.predicate.evidence import Verdict
from accel.predicate.prune import prune

__all__ = ["excluded_files"]

_LONGEST = 64 * 1024
"""Bytes of a footer; longer ones are not copied to be looked at together."""


def excluded_files(handles: Sequence[FileHandle], query: FileQuery) -> list[bool]:
    """Of each file, whether `prune_row_groups` drops all of its row groups.

    Parameters
    ----------
    handles : sequence of FileHandle
        Files of the schema that `query` was compiled for.
    query : FileQuery
        The same for all of them, constants included.
    """
    if query.bound is None or not handles:
        return [False] * len(handles)
    excluded = [not len(handle.metadata.group_rows) for handle in handles]
    asked = [(place, handle) for place, handle in enumerate(handles) if not excluded[place]]
    columns = []
    for _, leaf, kind in query.prunable:
        _learn_bounds([handle for _, handle in asked], leaf, kind)
        columns.append([group_bounds(handle, leaf, kind) for _, handle in asked])
    alike: dict[tuple[object, ...], list[tuple[int, FileHandle, tuple[Bounds, ...]]]] = {}
    for (place, handle), *bounds in zip(asked, *columns, strict=True):
        # What one writer wrote as numbers another may not have: bounds are joined with their like.
        form = tuple([(id(b.domain), b.lower.dtype.char, b.upper.dtype.char) for b in bounds])
        one = place, handle, tuple(bounds)
        if form in alike:
            alike[form].append(one)
        else:
            alike[form] = [one]
    for some in alike.values():
        places, kept, found = zip(*some, strict=True)
        for place, verdict in zip(places, _judge(kept, query, found), strict=True):
            excluded[place] = verdict
    return excluded


def _learn_bounds(handles: Sequence[FileHandle], leaf: int, kind: pa.DataType) -> None:
    """What `group_bounds` finds for each, found for those together that are of one schema object."""
    alike: dict[tuple[int, int], list[FileHandle]] = {}
    for handle in handles:
        metadata = handle.metadata
        if leaf not in handle.chunk_bounds and len(metadata.footer) <= _LONGEST:
            form = id(metadata.schema), int(metadata.column_orders[leaf])
            alike.setdefault(form, []).append(handle)
    for some in alike.values():
        if len(some) == 1:
            continue
        joined = joined_chunk_bounds([handle.metadata for handle in some], leaf, arrow_type=kind)
        if joined.domain is Domain.INTEGER and joined.lower.dtype == object:
            continue  # one of them has numbers that take no fixed width, and is to be alone with that
        begin = 0
        for handle in some:
            end = begin + handle.metadata.num_row_groups
            handle.chunk_bounds[leaf] = joined.part(begin, end)
            begin = end


def _judge(handles: Sequence[FileHandle], query: FileQuery, found: Sequence[Sequence[Bounds]]) -> list[bool]:
    """Whether each file, none of them without row groups, is excluded; the bounds of a column are alike."""
    if query.bound is None:
        raise TypeError("there is no predicate")
    rows = np.concatenate([handle.metadata.group_rows for handle in handles])
    joined = {path: _join([bounds[at] for bounds in found]) for at, (path, _, _) in enumerate(query.prunable)}
    for path, value in query.constants.items():
        joined[path] = constant_bounds(value, rows)
    some = prune(query.bound, joined, len(rows)).verdicts() != Verdict.NONE
    some &= rows != 0
    counts = np.array([handle.metadata.num_row_groups for handle in handles], np.int64)
    kept: list[bool] = np.logical_or.reduceat(some, np.cumsum(counts) - counts).tolist()
    return [not keep for keep in kept]


def _join(parts: Sequence[Bounds]) -> Bounds:
    """The units of one after those of the other."""
    if len(parts) == 1:
        return parts[0]
    return Bounds(
        domain=parts[0].domain,
        lower=np.concatenate([part.lower for part in parts]),
        upper=np.concatenate([part.upper for part in parts]),
        has_lower=np.concatenate([part.has_lower for part in parts]),
        has_upper=np.concatenate([part.has_upper for part in parts]),
        num_values=np.concatenate([part.num_values for part in parts]),
        null_count=np.concatenate([part.null_count for part in parts]),
        nan_count=np.concatenate([part.nan_count for part in parts]),
    )
