"""The page headers of many chunks, read together with numpy: the first of each, then the second of each, and
so on.

Source: parquet-format `parquet.thrift` (PageHeader and the headers in it).

A chunk with anything that is wrong or not as writers usually write it is left to `format.page_header`, which
reads its headers one by one: both ways give the same numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from accel.format.model import PageTable, PageType
from accel.format.thrift_batch import PAGE_FIELDS, StructBatch, as_words
from accel.ranges import Buffer

if TYPE_CHECKING:
    from accel.arrays import Bools, Int64s

__all__ = ["walk_usual"]

_FRONT: Final = 96
"""Bytes that hold a usual header."""
_MOST: Final = 0x7FFF_FFFF
_PLACE: Final = {name: place for place, name in enumerate(PageTable._fields)}


def walk_usual(
    bufs: Sequence[Buffer], *, num_values: Sequence[int | None], max_pages: int
) -> tuple[Int64s, Int64s, Bools]:
    """Read the pages of several chunks, as `walk_chunks` does.

    Returns
    -------
    numbers : array
        The columns of a PageTable, of the pages in any order.
    owners : array
        For each of these pages, the place of its chunk; the pages of one chunk are in order.
    left : array
        The chunks of which no page was read.
    """
    views = [memoryview(buf) for buf in bufs]
    sizes = np.array([view.nbytes for view in views], np.int64)
    due = np.array([_MOST << 16 if many is None else many for many in num_values], np.int64)
    position, seen = np.zeros_like(sizes), np.zeros_like(sizes)
    left = np.zeros(len(bufs), np.bool_)
    found: list[Int64s] = [np.empty((len(_PLACE), 0), np.int64)]
    owners: list[Int64s] = [np.empty(0, np.int64)]
    active = np.flatnonzero((sizes > 0) & (due > 0))
    for _ in range(max_pages):
        if not len(active):
            break
        start = position[active]
        fronts = [
            bytes(views[chunk][at : at + _FRONT]).ljust(_FRONT, b"\0")
            for chunk, at in zip(active.tolist(), start.tolist(), strict=True)
        ]
        numbers, usual = _read(fronts)
        body, end = numbers[_PLACE["body"]], numbers[_PLACE["end"]]
        usual &= body <= np.minimum(_FRONT, sizes[active] - start)
        numbers[: _PLACE["end"] + 1] += start
        usual &= end <= sizes[active]
        left[active[~usual]] = True
        found.append(numbers)
        owners.append(active)
        is_data = numbers[_PLACE["type"]] != PageType.DICTIONARY_PAGE
        seen[active] += np.where(is_data, numbers[_PLACE["num_values"]], 0)
        position[active] = end
        active = active[usual & (end < sizes[active]) & (seen[active] < due[active])]
    left[active] = True
    owner = np.concatenate(owners)
    kept = ~left[owner]
    return np.concatenate(found, axis=1)[:, kept], owner[kept], left


def _read(fronts: Sequence[bytes]) -> tuple[Int64s, Bools]:
    """Return the columns of a PageTable with a page for each header, whose place is that in its front, and
    which of them are usual."""
    numbers = np.full((len(_PLACE), len(fronts)), -1, np.int64)
    starts = np.arange(len(fronts)) * _FRONT
    batch = StructBatch(as_words(b"".join((*fronts, bytes(2 * _FRONT)))), starts)
    try:
        read = batch.read(PAGE_FIELDS)
    except IndexError:  # a length leads out of all fronts
        return numbers, np.zeros(len(fronts), np.bool_)
    if not read.keys() >= {"type", "uncompressed", "compressed"}:
        return numbers, np.zeros(len(fronts), np.bool_)
    kind, stored = read["type"], read["compressed"]
    columns = PageTable._make(numbers)
    columns.start[:] = 0
    columns.body[:] = batch.pos - starts
    columns.end[:] = columns.body + stored
    columns.uncompressed[:] = read["uncompressed"]
    columns.type[:] = kind
    columns.is_compressed[:] = 1
    columns.level_bytes[:] = columns.definition_bytes[:] = 0
    if "crc" in read:
        columns.crc[:] = read["crc"]
    usual = ~batch.irregular & (stored >= 0) & (stored <= _MOST)
    known = _take_v1(columns, read, kind == PageType.DATA_PAGE)
    known |= _take_dictionary(columns, read, kind == PageType.DICTIONARY_PAGE)
    known |= _take_v2(columns, read, kind == PageType.DATA_PAGE_V2)
    usual &= known & (columns.uncompressed >= 0) & (columns.uncompressed <= _MOST)
    usual &= (columns.num_values >= 0) & (columns.num_values <= _MOST)
    usual &= (columns.encoding >= 0) & (columns.encoding <= 127)
    return numbers, usual


def _take_v1(columns: PageTable, read: dict[str, Int64s], of_kind: Bools) -> Bools:
    """Fill in the columns of v1 data pages; return which headers are of one."""
    if not of_kind.any() or not read.keys() >= {"v1_num_values", "v1_encoding", "v1_level_encoding"}:
        return np.zeros_like(of_kind)
    np.copyto(columns.num_values, read["v1_num_values"], where=of_kind)
    np.copyto(columns.encoding, read["v1_encoding"], where=of_kind)
    np.copyto(columns.level_encoding, np.minimum(read["v1_level_encoding"], 127), where=of_kind)
    repetition = read.get("v1_repetition")
    if repetition is None:
        return np.zeros_like(of_kind)
    out: Bools = of_kind & (read["v1_level_encoding"] >= 0) & (repetition >= 0)
    return out


def _take_dictionary(columns: PageTable, read: dict[str, Int64s], of_kind: Bools) -> Bools:
    """Fill in the columns of dictionary pages; return which headers are of one."""
    if not of_kind.any() or not read.keys() >= {"dictionary_num_values", "dictionary_encoding"}:
        return np.zeros_like(of_kind)
    np.copyto(columns.num_values, read["dictionary_num_values"], where=of_kind)
    np.copyto(columns.encoding, read["dictionary_encoding"], where=of_kind)
    return of_kind


_V2: Final = ("v2_num_values", "v2_num_nulls", "v2_num_rows", "v2_encoding", "v2_definition", "v2_repetition")


def _take_v2(columns: PageTable, read: dict[str, Int64s], of_kind: Bools) -> Bools:
    """Fill in the columns of v2 data pages; return which headers are of one."""
    if not of_kind.any() or not all(name in read for name in _V2):
        return np.zeros_like(of_kind)
    values, nulls, rows, encoding, definition, repetition = (read[name] for name in _V2)
    levels = definition + repetition
    for column, numbers in (
        (columns.num_values, values),
        (columns.num_nulls, nulls),
        (columns.num_rows, rows),
        (columns.encoding, encoding),
        (columns.level_bytes, levels),
        (columns.definition_bytes, definition),
    ):
        np.copyto(column, numbers, where=of_kind)
    if "v2_compressed" in read:
        np.copyto(columns.is_compressed, np.abs(read["v2_compressed"]), where=of_kind)
    stored = np.minimum(read["compressed"], read["uncompressed"])
    out: Bools = of_kind & (definition >= 0) & (repetition >= 0) & (levels <= stored)
    out &= (nulls >= 0) & (nulls <= values) & (rows >= 0) & (rows <= values)
    return out
