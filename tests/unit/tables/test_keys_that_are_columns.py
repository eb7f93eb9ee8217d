"""A key of the folders that is also a column of files: whose value it has, as docs/stores.md says."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import accel
from accel.testing import DictStore, table, write_file

ALONE: dict[str, Any] = {"a": pa.array([1])}
BOTH = ALONE | {"k": pa.array([9])}


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        pytest.param(ALONE, ALONE, [1, 2], id="no column"),
        pytest.param(BOTH, BOTH, [9, 9], id="a column of all"),
        pytest.param(BOTH, ALONE, [9, None], id="a column of the first"),
        pytest.param(ALONE, BOTH, [1, 2], id="a column of a later one"),
    ],
)
def test_whose_value(first: dict[str, Any], second: dict[str, Any], expected: list[int | None]) -> None:
    files = {"d/k=1/f.parquet": write_file(table(**first)), "d/k=2/f.parquet": write_file(table(**second))}
    store = DictStore(files)
    assert accel.scan("d/", store=store).to_table().column("k").to_pylist() == expected
    # What decides for a value decides for the filter.
    for value in (1, 2, 9):
        kept = accel.scan("d/", f"k = {value}", store=store).to_table().column("k").to_pylist()
        assert kept == [one for one in expected if one == value]
    assert accel.scan("d/", "k IS NULL", store=store).count_rows() == expected.count(None)
