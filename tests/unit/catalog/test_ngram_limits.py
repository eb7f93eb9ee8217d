"""The kind `ngram` takes no more memory than its limits allow, whatever its table claims and whatever files
hold."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyroaring import BitMap

import accel
from accel.catalog.kinds import ngrams
from accel.catalog.kinds.kind import CatalogIndex
from accel.catalog.kinds.registry import indexes_of
from accel.testing import DictStore, Layout, write_file

FILES, OPAQUE = -2, -1
"""Stand for a trigram in the rows that describe a block."""
GRAM = int.from_bytes(b"abc", "big")


def index() -> CatalogIndex:
    (found,) = indexes_of({"s": ["ngram"]})
    return found


def every(count: int) -> bytes:
    bitmap = BitMap()
    bitmap.add_range(0, count)
    bitmap.run_optimize()
    return bytes(bitmap.serialize())


def table(files: list[tuple[int, int]], rows: dict[int, bytes], opaque: bytes | None = None) -> pa.Table:
    """The table of one block."""
    described = np.array(files, "<i4").tobytes()
    units = {FILES: described, OPAQUE: every(0) if opaque is None else opaque, **rows}
    grams = sorted(units)
    return pa.table(
        {
            "gram": pa.array(grams, pa.int32()),
            "block": pa.array([0] * len(grams), pa.int32()),
            "units": pa.array([units[gram] for gram in grams], pa.binary()),
        }
    )


@pytest.fixture
def few_bytes() -> Iterator[None]:
    # What is imported on the first call does not count.
    index().merged([table([(0, 1)], {})])
    index().by_file(table([(0, 1)], {}), 1)
    tracemalloc.start()
    yield
    try:
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.usefixtures("few_bytes")
@pytest.mark.parametrize(
    "files",
    [
        [(0, (1 << 31) - 1)],
        [(0, (1 << 18) + 1)],
        [(0, -1)],
        [(0, 1 << 18)] * 20,
        [(-2, 1)],
    ],
    ids=["units", "one too many", "fewer than none", "units of many files", "no file"],
)
def test_units_that_no_file_has_are_refused(files: list[tuple[int, int]]) -> None:
    for read in (lambda rows: index().merged([rows]), lambda rows: index().by_file(rows, 20)):
        with pytest.raises(accel.IndexFormatError, match="broken list of files"):
            read(table(files, {}))


@pytest.mark.usefixtures("few_bytes")
def test_trigrams_that_no_block_has_are_refused() -> None:
    units = 1 << 18
    # 2**28 cells in a few kilobytes.
    rows = dict.fromkeys(range(1 << 10), every(units))
    with pytest.raises(accel.IndexFormatError, match="more trigrams in a block than are written"):
        index().merged([table([(0, units)], rows)])


def test_members_behind_the_units_of_a_block_are_refused() -> None:
    for rows, opaque in (({GRAM: every(6)}, None), ({}, every(6))):
        with pytest.raises(accel.IndexFormatError, match="members that are not"):
            index().merged([table([(0, 2), (1, 3)], rows, opaque)])


@pytest.fixture
def files() -> DictStore:
    rows = [pa.table({"s": [f"{word} {n}" for n in range(40)]}) for word in ("harbour", "mountain", "river")]
    layout = Layout(page_rows=10, group_rows=20)
    return DictStore({f"t/{n}.parquet": write_file(one, layout) for n, one in enumerate(rows)})


def found(store: DictStore, where: str) -> tuple[list[Any], int]:
    """The rows, and the files that the index has ruled out."""
    with accel.scan("t/", store=store, where=where, index="auto") as scan:
        rows = scan.to_table().to_pylist()
        return rows, scan.metrics.catalog_dropped.get("ngram s", {}).get("files", 0)


def test_files_of_more_hits_than_are_held_are_read(files: DictStore, monkeypatch: pytest.MonkeyPatch) -> None:
    accel.build_index("t/", indexes={"s": "ngram"}, columns=[], store=files)
    rows, dropped = found(files, "s LIKE '%arbour 3%'")
    assert (len(rows), dropped) == (11, 2)
    # Nothing is told of the files of the block any more, so that all of them are read.
    monkeypatch.setattr(ngrams, "MOST_HITS", 1)
    assert found(files, "s LIKE '%arbour 3%'") == (rows, 0)


@pytest.mark.parametrize(("name", "most"), [("_MOST_FILE_UNITS", 3), ("_MOST_FILE_CELLS", 20)])
def test_files_of_more_than_the_index_takes_are_not_covered(
    files: DictStore, name: str, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ngrams, name, most)
    with pytest.warns(UserWarning, match="'ngram s' leaves out 3 of 3 files"):
        accel.build_index("t/", indexes={"s": "ngram"}, columns=[], store=files)
    rows, dropped = found(files, "s LIKE '%arbour 3%'")
    assert (len(rows), dropped) == (11, 0)
