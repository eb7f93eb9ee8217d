"""Files that statistics exclude, many at a time: what planning them one by one would find, for less.

The row groups of all files are judged by one call, as if they were those of one file.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from accel.format.bounds import joined_chunk_bounds
from accel.format.domain import Bounds, Domain
from accel.format.model import FileMetadata
from accel.format.writers import doubts_about
from accel.planning.handle import FileHandle
from accel.planning.pruning import group_bounds
from accel.planning.query import FileQuery
from accel.planning.shelf import Shelf, group_starts
from accel.predicate.prune import Verdict, constant_bounds, prune

if TYPE_CHECKING:
    from accel.arrays import Int64s
    from accel.format.packed import SharedMetadata

__all__ = ["excluded_files"]

_LONGEST = 64 * 1024
"""Bytes of a footer; longer ones are not copied to be looked at together."""
_FEWEST = 8
"""Files; of fewer the bounds stay with each."""


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
    excluded = [not handle.num_row_groups for handle in handles]
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
    for (place, handle), verdict in zip(asked, verdicts, strict=True):
        excluded[place] = verdict
        if verdict and handle.shelf is not None:
            handle.fold()
    return excluded


def _judge_apart(handles: Sequence[FileHandle], query: FileQuery) -> list[bool]:
    """The same for files that were not judged together before, none of them without row groups."""
    found = _learn_together(handles, query)
    if found is not None:
        shelf = _shelve(handles, _rows_of(handles), {leaf: found[path] for path, leaf, _ in query.prunable})
        return _judge(query, found, shelf.rows, shelf.starts)
    excluded = [False] * len(handles)
    columns = [_bounds_of(handles, leaf, kind) for _, leaf, kind in query.prunable]
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
        rows = _rows_of(kept)
        joined = {
            path: Bounds.join([bounds[at] for bounds in bounds_of]) if len(kept) > 1 else bounds_of[0][at]
            for at, (path, _, _) in enumerate(query.prunable)
        }
        verdicts = _judge(query, joined, rows, group_starts(kept))
        for place, verdict in zip(places, verdicts, strict=True):
            excluded[place] = verdict
        if len(kept) >= _FEWEST and joined:
            _shelve(kept, rows, {leaf: joined[path] for path, leaf, _ in query.prunable})
        else:
            for handle, bounds in zip(kept, bounds_of, strict=True):
                for (_, leaf, _), known in zip(query.prunable, bounds, strict=True):
                    handle.chunk_bounds[leaf] = known
    return excluded


def _learn_together(handles: Sequence[FileHandle], query: FileQuery) -> dict[tuple[str, ...], Bounds] | None:
    """The bounds of files of which nothing is known yet, or other columns' only, one after the other; None where they
    are not alike."""
    if len(handles) < _FEWEST or not query.prunable:
        return None
    first, shelf = handles[0].kin, handles[0].shelf
    for handle in handles:
        kin = handle.kin
        if (
            kin.schema is not first.schema
            or handle.keeps_bounds
            or handle.shelf is not shelf
            or handle.footer_bytes > _LONGEST
            or (kin is not first and not _bounded_alike(kin, first, query))
        ):
            return None
    if shelf is not None and not shelf.holds(handles):
        return None
    files = [handle.pack() for handle in handles]
    found = {}
    for path, leaf, kind in query.prunable:
        joined = None if shelf is None else shelf.bounds.get(leaf)
        if joined is None:
            joined = joined_chunk_bounds(files, leaf, arrow_type=kind)
        if joined.domain is Domain.INTEGER and joined.lower.dtype == object:
            return None  # one of them has numbers that take no fixed width, and is to be alone with that
        found[path] = joined
    return found


def _shelve(handles: Sequence[FileHandle], rows: Int64s, bounds: dict[int, Bounds]) -> Shelf:
    """Keep bounds together, with those of other columns that are kept so already."""
    before = handles[0].shelf
    if before is not None and before.holds(handles):
        bounds = before.bounds | bounds
    return Shelf(handles, rows, bounds)


def _bounds_of(handles: Sequence[FileHandle], leaf: int, kind: pa.DataType) -> list[Bounds]:
    """What `group_bounds` finds for each, found for those together that are of one schema object."""
    found: list[Bounds | None] = []
    alike: dict[tuple[object, ...], list[int]] = {}
    for place, handle in enumerate(handles):
        bounds = handle.kept_bounds(leaf)
        if bounds is None and handle.shelf is not None:
            bounds = handle.shelf.of(handle, leaf)
        found.append(bounds)
        if bounds is None and handle.footer_bytes <= _LONGEST:
            kin = handle.kin
            form = id(kin.schema), int(kin.column_orders[leaf]), doubts_about(kin, leaf, arrow_type=kind)
            alike.setdefault(form, []).append(place)
    for places in alike.values():
        if len(places) == 1:
            continue
        joined = joined_chunk_bounds([handles[place].pack() for place in places], leaf, arrow_type=kind)
        if joined.domain is Domain.INTEGER and joined.lower.dtype == object:
            continue  # one of them has numbers that take no fixed width, and is to be alone with that
        begin = 0
        for place in places:
            end = begin + handles[place].num_row_groups
            found[place] = joined.part(begin, end)
            begin = end
    return [
        group_bounds(handle, leaf, kind=kind) if bounds is None else bounds
        for handle, bounds in zip(handles, found, strict=True)
    ]


def _bounded_alike(
    one: SharedMetadata | FileMetadata, other: SharedMetadata | FileMetadata, query: FileQuery
) -> bool:
    """Whether bounds of the columns that are asked for are of the same order, and as much believed."""
    orders = one.column_orders, other.column_orders
    return all(
        orders[0].item(leaf) == orders[1].item(leaf)
        and doubts_about(one, leaf, arrow_type=kind) == doubts_about(other, leaf, arrow_type=kind)
        for _, leaf, kind in query.prunable
    )


def _rows_of(handles: Sequence[FileHandle]) -> Int64s:
    """Of each row group, one file's after the other's."""
    return np.concatenate([handle.group_rows for handle in handles])


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
