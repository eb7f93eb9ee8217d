"""Which questions about whole files a catalog answers by itself: never another answer than that of the
files."""

from __future__ import annotations

import datetime
import decimal
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import accel
from accel.testing import DictStore, Layout, write_file

FILES = 4
MOMENT = datetime.datetime(2020, 5, 17, 12)
HOUR = datetime.timedelta(hours=1)


def column(kind: pa.DataType, values: list[Any]) -> list[pa.Array]:
    """A column of each file: a file holds four of the values, from one further on than the file before."""
    return [pa.array((values[at:] + values[:at])[:4], kind) for at in range(FILES)]


def same(kind: pa.DataType, values: list[Any]) -> list[pa.Array]:
    """A column that holds one value in each file."""
    return [pa.array([values[at % len(values)]] * 4, kind) for at in range(FILES)]


NUMBERS = [5, -3, 7, 0, 2, 11]
ONES = ("min", "max", "count", "sum")
EVERY = ("min", "max", "count")
CASES: dict[str, tuple[list[pa.Array], tuple[str, ...], bool]] = {
    # The columns; the aggregates, and whether distinct values, that need no metadata of a file but the first.
    "int64": (column(pa.int64(), NUMBERS), EVERY, False),
    "int64 of one value": (same(pa.int64(), [4, 9]), ONES, True),
    "int64 with nulls": (same(pa.int64(), [None, 3, None]), ONES, True),
    "int64 of neighbours": ([pa.array([4, 5, 5, 4])] * FILES, EVERY, True),
    "int64 at its ends": ([pa.array([2**63 - 1, -(2**63), 0, 1])] * FILES, EVERY, False),
    "uint64": (column(pa.uint64(), [2**64 - 1, 0, 2**63, 4, 5]), EVERY, False),
    "int8": (column(pa.int8(), [-128, 127, 0, 1]), EVERY, False),
    "float64 of unknown NaN": (column(pa.float64(), [0.5, -0.0, math.nan, 1.5]), ("count",), False),
    "date32": (column(pa.date32(), [MOMENT.date() + 24 * at * HOUR for at in range(6)]), EVERY, False),
    "timestamp": (column(pa.timestamp("us"), [MOMENT + at * HOUR for at in range(6)]), EVERY, False),
    "timestamp in seconds": (column(pa.timestamp("s"), [MOMENT + at * HOUR for at in range(6)]), EVERY, False),
    "timestamp of one value": (same(pa.timestamp("ms", "UTC"), [MOMENT, MOMENT + HOUR]), EVERY, True),
    "time64": (column(pa.time64("us"), [datetime.time(at) for at in range(6)]), EVERY, False),
    "decimal": (column(pa.decimal128(9, 2), list(map(decimal.Decimal, ["1.25", "-7", "3", "4"]))), EVERY, False),
    "decimal of one value": (same(pa.decimal128(9, 2), [decimal.Decimal("1.25"), decimal.Decimal(-7)]), ONES, True),
    "bool": (column(pa.bool_(), [True, False, True, True]), EVERY, True),
    "bool of one value": (same(pa.bool_(), [True, False]), ONES, True),
    "string": (column(pa.string(), ["b", "a", "c", "d"]), EVERY, False),
    "string of one value": (same(pa.string(), ["b", "a", ""]), EVERY, True),
    "string of one long value": (same(pa.string(), ["b" * 70, "a" * 80]), ("count",), False),
    "binary": (same(pa.binary(), [b"\xff", b"\x00"]), EVERY, True),
    "dictionary": (same(pa.dictionary(pa.int8(), pa.string()), ["x", "y"]), EVERY, True),
    "all null": (same(pa.int32(), [None]), ONES, True),
    "list": ([pa.array([[1], None, [], [2, 3]])] * FILES, (), False),
}  # fmt: skip


def files(arrays: list[pa.Array], **layout: Any) -> DictStore:
    store = DictStore({
        f"d/{at}.parquet": write_file(
            pa.table({"v": array, "k": pa.array(np.arange(len(array)) + 4 * at)}),
            Layout(**({"group_rows": 2, "page_rows": 1} | layout)),
        )
        for at, array in enumerate(arrays)
    })  # fmt: skip
    accel.build_index("d/", store=store)
    return store


def scans(store: DictStore, where: str | None = None, **given: Any) -> tuple[accel.Scan, accel.Scan]:
    """With the catalog, and without."""
    plain = accel.scan("d/", where, store=store, cache=None, index=None, **given)
    return accel.scan("d/", where, store=store, cache=None, index="d/_accel", **given), plain


def opened(scan: accel.Scan) -> int:
    """Files of which the metadata was looked at: each has two row groups."""
    return scan.metrics.row_groups.total // 2


@pytest.mark.parametrize("name", CASES)
def test_what_needs_no_metadata_of_the_files(name: str) -> None:
    """But for the first, which settles the types of the question."""
    arrays, answered, has_distinct = CASES[name]
    store = files(arrays)
    for function, where in (("min", None), ("max", "k >= 0"), ("count", "k >= 0"), ("sum", None)):
        scan, plain = scans(store, where)
        asked = [("v", function), ([], "count_all")]
        try:
            expected = plain.aggregate(asked)
        except accel.SchemaMismatchError:
            with pytest.raises(accel.SchemaMismatchError):
                scan.aggregate(asked)
            continue
        found = scan.aggregate(asked)
        assert (found.schema, repr(found.to_pylist())) == (expected.schema, repr(expected.to_pylist()))
        assert opened(scan) == (0 if function in answered else FILES), function
    scan, plain = scans(store)
    if name == "list":
        with pytest.raises(accel.SchemaMismatchError, match="no order"):
            scan.distinct("v")
        return
    found, expected = scan.distinct("v"), plain.distinct("v")
    assert (found.type, repr(found.to_pylist())) == (expected.type, repr(expected.to_pylist()))
    assert opened(scan) == (0 if has_distinct else FILES)
    assert scan.metrics.distinct_units.get("files by catalog", 0) == (FILES if has_distinct else 0)


def test_only_files_whose_rows_all_match_are_answered() -> None:
    scan, plain = scans(files(CASES["int64"][0]), "k >= 6")
    asked = [("v", "min"), ("v", "max"), ([], "count_all")]
    assert scan.aggregate(asked) == plain.aggregate(asked)
    assert opened(scan) == 2  # the first one, which matches nowhere, and the one that matches in part


def test_files_of_other_columns_are_opened() -> None:
    """As a scan without the catalog says what is wrong with them."""
    arrays = [*CASES["int64"][0][:3], pa.array([1.5, 2.5])]
    scan, plain = scans(files(arrays))
    assert scan.count_rows() == plain.count_rows() == 14
    assert scan.metrics.row_groups.total == 1
    for each in (scan, plain):
        with pytest.raises(accel.SchemaMismatchError):
            each.aggregate([("v", "min")])


@pytest.mark.parametrize(
    "given", [{"limit": 3}, {"selection": {"d/1.parquet": {0: [(0, 1)]}}}], ids=["limit", "selection"]
)
def test_rows_that_are_chosen_otherwise_are_read(given: dict[str, Any]) -> None:
    scan, plain = scans(files(CASES["int64 of one value"][0]), **given)
    asked = [("v", "min"), ("v", "sum"), ([], "count_all")]
    assert scan.aggregate(asked) == plain.aggregate(asked)
    assert scan.distinct("v") == plain.distinct("v")


def test_a_file_that_was_replaced_is_opened() -> None:
    store = files(CASES["int64"][0])
    store.put("d/2.parquet", write_file(pa.table({"v": [100, 200], "k": [1, 2]})))
    scan, _ = scans(store)
    assert scan.aggregate([("v", "max"), ([], "count_all")]).to_pylist() == [{"v_max": 200, "count_all": 14}]
    assert (scan.metrics.row_groups.total, scan.metrics.catalog_stale) == (1, 1)


def test_with_the_list_of_the_index_a_count_is_that_of_the_list() -> None:
    """What the index lists counts, in the versions that it lists; a scan that answered so does not read other
    versions."""
    store = files(CASES["int64"][0])
    store.put("d/2.parquet", write_file(pa.table({"v": [100, 200], "k": [1, 2]})))
    scan = accel.scan("d/", store=store, cache=None, index="d/_accel", listing="index")
    assert scan.count_rows() == 16
    with pytest.raises(accel.ObjectChangedError, match="has answered by the index before"):
        scan.to_table()
    other = accel.scan("d/", store=store, cache=None, index="d/_accel", listing="index")
    with pytest.warns(UserWarning, match=r"replaced since the index .*: d/2.parquet"):
        found = other.to_table().num_rows, other.count_rows()
    assert found == (14, 14)


def test_bounds_that_are_marked_as_no_values_are_not_taken_for_values() -> None:
    from accel.catalog.describing import BoundsTable
    from accel.planning.handle import FileHandle
    from accel.ranges import ObjectId
    from tests.unit.format.files import parse

    data = write_file(pa.table({"v": [1, 5, 9]}))
    metadata = parse(data)
    flags = np.array([[0]], np.int8)
    for marked in (False, True):
        chunks = replace(metadata.chunks, min_exact=flags) if marked else metadata.chunks
        handle = FileHandle(
            ObjectId("f", len(data), '"1"'),
            replace(metadata, chunks=chunks),
            arrow_schema=pa.schema([("v", pa.int64())]),
            tail_start=metadata.footer_start,
        )
        table = BoundsTable()
        table.add([(0, handle)])
        whole = table.finish().to_pylist()[0]
        assert whole["row_group"] == -1
        assert (whole["lower_exact"], whole["upper_exact"], whole["null_count"]) == (not marked, True, 0)
