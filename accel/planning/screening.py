"""Files that statistics exclude, many at a time: what planning them one by one would find, for less.

The row groups of all files are judged by one call, as if they were those of one file.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from accel.format.bounds import joined_chunk_bounds
from accel.format.domain import Bounds, Domain
from accel.planning.handle import FileHandle
from accel.planning.pruning import group_bounds
from accel.planning.query import FileQuery
from accel.planning.shelf import Shelf, group_starts
from accel.predicate.constant import constant_bounds
from accel.predicate.evidence import Verdict
from accel.predicate.prune import prune

__all__ = ["excluded_files"]

_LONGEST = 64 * 1024
"""Bytes of a footer; longer ones are not copied to be looked at together."""
_FEWEST = 8
"""Files; of fewer the bounds stay with each."""

Int64s = npt.NDArray[np.int64]


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
    if not asked:
        return excluded
    shelf = asked[0][1].shelf
    if (
        shelf is not None
        and all(leaf in shelf.bounds for _, leaf, _ in query.prunable)
        and shelf.holds([handle for _, handle in asked])
    ):
        found = {path: shelf.bounds[leaf] for path, leaf, _ in query.prunable}
        verdicts = _judge(query, found, shelf.rows, shelf.starts)
    else:
        verdicts = _judge_apart([handle for _, handle in asked], query)
    for (place, _), verdict in zip(asked, verdicts, strict=True):
        excluded[place] = verdict
    return excluded


def _judge_apart(handles: Sequence[FileHandle], query: FileQuery) -> list[bool]:
    """The same for files that were not judged together before, none of them without row groups."""
    found = _learn_together(handles, query)
    if found is not None:
        rows = np.concatenate([handle.metadata.group_rows for handle in handles])
        shelf = Shelf(handles, rows, {leaf: found[path] for path, leaf, _ in query.prunable})
        return _judge(query, found, rows, shelf.starts)
    excluded = [False] * len(handles)
    columns = []
    for _, leaf, kind in query.prunable:
        _learn_bounds(handles, leaf, kind)
        columns.append([group_bounds(handle, leaf, kind) for handle in handles])
    alike: dict[tuple[object, ...], list[tuple[int, FileHandle, tuple[Bounds, ...]]]] = {}
    for place, (handle, *bounds) in enumerate(zip(handles, *columns, strict=True)):
        # What one writer wrote as numbers another may not have: bounds are joined with their like.
        form = tuple([(id(b.domain), b.lower.dtype.char, b.upper.dtype.char) for b in bounds])
        one = place, handle, tuple(bounds)
        if form in alike:
            alike[form].append(one)
        else:
            alike[form] = [one]
    for some in alike.values():
        places, kept, bounds_of = zip(*some, strict=True)
        rows = np.concatenate([handle.metadata.group_rows for handle in kept])
        joined = {
            path: _join([bounds[at] for bounds in bounds_of])
            for at, (path, _, _) in enumerate(query.prunable)
        }
        verdicts = _judge(query, joined, rows, group_starts(kept))
        for place, verdict in zip(places, verdicts, strict=True):
            excluded[place] = verdict
        if len(kept) >= _FEWEST and joined:
            _shelve(kept, rows, {leaf: joined[path] for path, leaf, _ in query.prunable})
    return excluded


def _learn_together(handles: Sequence[FileHandle], query: FileQuery) -> dict[tuple[str, ...], Bounds] | None:
    """The bounds of files that nothing is known of yet, one after the other; None where they are not alike."""
    if len(handles) < _FEWEST or not query.prunable:
        return None
    schema, orders = handles[0].metadata.schema, handles[0].metadata.column_orders
    for handle in handles:
        metadata = handle.metadata
        if (
            metadata.schema is not schema
            or handle.chunk_bounds
            or handle.shelf is not None
            or len(metadata.footer) > _LONGEST
            or any(metadata.column_orders.item(leaf) != orders.item(leaf) for _, leaf, _ in query.prunable)
        ):
            return None
    found = {}
    for path, leaf, kind in query.prunable:
        joined = joined_chunk_bounds([handle.metadata for handle in handles], leaf, arrow_type=kind)
        if joined.domain is Domain.INTEGER and joined.lower.dtype == object:
            return None  # one of them has numbers that take no fixed width, and is to be alone with that
        found[path] = joined
    return found


def _shelve(handles: Sequence[FileHandle], rows: Int64s, bounds: dict[int, Bounds]) -> None:
    """Keep bounds together, with those of other columns that are kept so already."""
    before = handles[0].shelf
    if before is not None and before.holds(handles):
        bounds = before.bounds | bounds
    Shelf(handles, rows, bounds)


def _learn_bounds(handles: Sequence[FileHandle], leaf: int, kind: pa.DataType) -> None:
    """What `group_bounds` finds for each, found for those together that are of one schema object."""
    alike: dict[tuple[int, int], list[FileHandle]] = {}
    for handle in handles:
        metadata = handle.metadata
        known = leaf in handle.chunk_bounds or (handle.shelf is not None and leaf in handle.shelf.bounds)
        if not known and len(metadata.footer) <= _LONGEST:
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


def _judge(
    query: FileQuery, bounds: dict[tuple[str, ...], Bounds], rows: Int64s, starts: Int64s
) -> list[bool]:
    """Whether each file is excluded, of which the row groups lie from `starts` on; none is without any."""
    if query.bound is None:
        raise TypeError("there is no predicate")
    for path, value in query.constants.items():
        bounds[path] = constant_bounds(value, rows)
    some = prune(query.bound, bounds, len(rows)).verdicts() != Verdict.NONE
    some &= rows != 0
    kept: list[bool] = np.logical_or.reduceat(some, starts).tolist()
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
