"""Tasks whose checksum is right and whose numbers are not: each is refused, and says what is wrong."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import pyarrow as pa
import pytest

import accel
from accel.errors import ParquetFormatError
from accel.planning.task_arrow import TASK_ARROW_SCHEMA, checksum_of, decode_tasks
from accel.testing import DictStore, Layout, table, write_file

TOP = 2**63 - 1
Row = dict[str, Any]


@cache
def planned(*, page_index: bool = True) -> pa.RecordBatch:
    """One task: rows 10..40 of 40, of which 20..40 are in no doubt; two columns of four pages."""
    columns = table(k=pa.array(range(40)), s=pa.array([f"s{n % 3}" for n in range(40)]))
    data = write_file(columns, Layout(group_rows=40, page_rows=10, page_index=page_index, dictionary=["s"]))
    store = DictStore({"f": data})
    (batch,) = accel.plan("f", "k >= 14", store=store, cache=None).to_arrow().to_batches()
    return batch


def changed(change: Callable[[Row], Any], **how: bool) -> pa.RecordBatch:
    row = planned(**how).to_pylist()[0]
    change(row)
    return pa.RecordBatch.from_pylist([row | {"checksum": checksum_of(row)}], schema=TASK_ARROW_SCHEMA)


def put(name: str, value: Any, *, leaf: int | None = None) -> Callable[[Row], Any]:
    return lambda row: (row if leaf is None else row["leaves"][leaf]).update({name: value})


def test_what_was_planned_is_fine() -> None:
    (task,) = decode_tasks(planned())
    assert list(task.rows) == [(10, 40)]
    (task,) = decode_tasks(changed(lambda row: None, page_index=False))
    assert task.reads_whole_chunks


@pytest.mark.parametrize(
    ("change", "text"),
    [
        pytest.param(put("row_group", -1), "names no row group", id="row group"),
        pytest.param(put("num_rows", -1), "names no row group", id="no rows"),
        pytest.param(put("num_rows", 2**62), "names no row group", id="too many rows"),
        pytest.param(put("num_rows", 39), "not some of the 39", id="fewer rows"),
        pytest.param(put("path", None), "names no row group", id="no path"),
        pytest.param(put("row_starts", []), "not some of the 40", id="no starts"),
        pytest.param(put("row_starts", [-1]), "not some of the 40", id="a negative row"),
        pytest.param(put("row_stops", [TOP]), "not some of the 40", id="a row far away"),
        pytest.param(put("row_stops", [10]), "not some of the 40", id="an empty range"),
        pytest.param(
            lambda row: row.update(row_starts=[10, 12], row_stops=[13, 40]), "not some of", id="overlapping"
        ),
        pytest.param(put("row_starts", [21]), "is sure of rows", id="sure of others"),
        pytest.param(put("row_starts", [9]), "reads no page of rows", id="rows without pages"),
        pytest.param(lambda row: row["leaves"].pop(), "columns of its result", id="a column less"),
        pytest.param(lambda row: row["leaves"].reverse(), "not in order", id="columns the other way round"),
        pytest.param(put("column", 1, leaf=0), "not in order", id="a column twice"),
        pytest.param(put("for_output", False, leaf=1), "columns of its result", id="not for the result"),
        pytest.param(put("for_filter", False, leaf=0), "columns of its filter", id="not for the filter"),
        pytest.param(put("for_filter", True, leaf=1), "columns of its filter", id="no column of the filter"),
        pytest.param(put("dictionary_end", TOP, leaf=1), "outside its file", id="a dictionary outside"),
        pytest.param(put("expansion", float("nan"), leaf=0), "no number of values", id="NaN"),
        pytest.param(put("expansion", float("inf"), leaf=0), "no number of values", id="without end"),
        pytest.param(put("num_values", -1, leaf=0), "no number of values", id="fewer than no values"),
        pytest.param(put("dictionary_pages", -2, leaf=1), "miscounts", id="dictionary pages"),
        pytest.param(put("total_pages", 0, leaf=0), "miscounts", id="read whole, and pages"),
        pytest.param(put("total_pages", 3, leaf=0), "miscounts", id="pages beyond the last"),
        pytest.param(put("ordinal", [1, 1, 2], leaf=0), "miscounts", id="a page twice"),
        pytest.param(put("offset", [0, 1, 2], leaf=0), "outside their chunk", id="pages before the chunk"),
        pytest.param(put("size", [0, 1, 1], leaf=0), "outside their chunk", id="an empty page"),
        pytest.param(put("size", [TOP, 1, 1], leaf=0), "overlap", id="a page larger than anything"),
        pytest.param(
            lambda row: row["leaves"][0]["size"].__setitem__(0, row["leaves"][0]["size"][0] + 1),
            "overlap",
            id="pages that overlap",
        ),
        pytest.param(put("stop_row", [20, 30, 41], leaf=0), "does not have", id="rows beyond the last"),
        pytest.param(put("first_row", [10, 19, 30], leaf=0), "of several pages", id="a row of two pages"),
        pytest.param(put("first_row", [10, 21, 30], leaf=0), "reads no page of rows", id="a row of no page"),
    ],
)
def test_numbers_that_are_wrong_are_refused(change: Callable[[Row], Any], text: str) -> None:
    with pytest.raises(ParquetFormatError, match=text):
        list(decode_tasks(changed(change)))


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(put("num_rows", None), id="no number of rows"),
        pytest.param(put("row_starts", [None]), id="no row"),
        pytest.param(put("expansion", None, leaf=0), id="no expansion"),
        pytest.param(put("chunk_start", -1, leaf=0), id="a chunk before the file"),
        pytest.param(put("dictionary_start", TOP, leaf=1), id="a dictionary that ends before it begins"),
    ],
)
def test_what_is_missing_is_told(change: Callable[[Row], Any]) -> None:
    with pytest.raises(accel.AccelError, match="a scan task does not decode"):
        list(decode_tasks(changed(change)))
