"""A page header that counts fewer or more values than the page has: the right rows come, or an error.

Items of the last row of such a page of lists would go missing without a sign: the number of rows is right,
and a page's checksum does not cover its header.
"""

from __future__ import annotations

import copy
import io
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import accel
import accel.reader.reader
from accel.testing import DictStore
from tests.corrupt.page_parts import Parts

ROWS = 48
PAGE_ROWS = 16
PATH = "dir/lists.parquet"
VALUES = 11
"""The number of values in the header of a data page of either version, as `Page.sizes` has it."""


def _lists() -> list[list[int]]:
    """Lists of 0 to 4 items; those that end a page have several."""
    return [
        [(7 * row + item) % 9 for item in range(4 if row % PAGE_ROWS == PAGE_ROWS - 1 else row % 5)]
        for row in range(ROWS)
    ]


def _shapes() -> dict[str, pa.Array]:
    lists = _lists()
    return {
        "integers": pa.array(lists, pa.list_(pa.int32())),
        "nulls": pa.array(
            [None if n % 11 == 3 else [None if v == 4 else v for v in some] for n, some in enumerate(lists)],
            pa.list_(pa.int64()),
        ),
        "texts": pa.array([[f"{v:03d}" for v in some] for some in lists], pa.list_(pa.string())),
        "lists": pa.array([[some[:2], some[2:]] for some in lists], pa.list_(pa.list_(pa.int32()))),
        "structs": pa.array(
            [[{"x": v, "y": str(v)} for v in some] for some in lists],
            pa.list_(pa.struct([("x", pa.int32()), ("y", pa.string())])),
        ),
        "in a struct": pa.array([{"x": some} for some in lists], pa.struct([("x", pa.list_(pa.float64()))])),
        "maps": pa.array(
            [[(str(n), v) for n, v in enumerate(some)] for some in lists], pa.map_(pa.string(), pa.int32())
        ),
        # Long runs of one level.
        "many items": pa.array([list(range(19)) for _ in lists], pa.list_(pa.int32())),
        "full groups": pa.array([[True] * 8 for _ in lists], pa.list_(pa.bool_())),
        "flat": pa.array([sum(some) or None for some in lists], pa.int64()),
    }


def _read(data: bytes, where: str | None) -> list[dict[str, Any]] | None:
    """The rows, or None where they are refused."""
    try:
        scan = accel.scan(PATH, store=DictStore({PATH: data}), cache=accel.Cache(), where=where)
        return scan.to_table().to_pylist()
    except accel.ParquetFormatError as error:
        assert "lists.parquet" in str(error)
        return None


@pytest.mark.parametrize("indexed", [True, False], ids=["page index", "no page index"])
@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("shape", _shapes())
def test_a_wrong_count_never_gives_other_rows(
    shape: str, version: str, indexed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    # However small the file is, its page index is to be met.
    monkeypatch.setattr(accel.reader.reader, "WHOLE_BYTES", 0)
    table = pa.table({"n": pa.array(range(ROWS), pa.int32()), "c": _shapes()[shape]})
    sink = io.BytesIO()
    pq.write_table(
        table,
        sink,
        compression="snappy" if shape in ("texts", "structs") else "none",
        use_dictionary=shape in ("nulls", "structs", "many items"),
        data_page_version=version,
        write_page_index=indexed,
        max_rows_per_page=PAGE_ROWS,
        write_batch_size=PAGE_ROWS,
    )
    data = sink.getvalue()
    stored = pq.ParquetFile(io.BytesIO(data)).schema
    columns = [stored.column(leaf) for leaf in range(len(stored))]
    parts = Parts(data, [(c.max_repetition_level, c.max_definition_level) for c in columns])
    want = table.to_pylist()
    assert _read(data, None) == want
    for (group, leaf), chunk in parts.chunks.items():
        pages = [n for n, page in enumerate(chunk.pages) if page.kind != 2] if leaf else []
        for at, number in enumerate(pages):
            # All rows need the page, and so do those that it has.
            rows = slice(at * PAGE_ROWS, (at + 1) * PAGE_ROWS)
            where = f"n >= {rows.start} AND n < {rows.stop}"
            assert _read(data, where) == want[rows]
            for delta in (-1, -3, -8, 1):
                page = copy.deepcopy(chunk.pages[number])
                page.sizes[VALUES] = delta
                changed = parts.assemble({(group, leaf, number): page})
                assert (_read(changed, None), _read(changed, where)) == (None, None), (leaf, number, delta)
