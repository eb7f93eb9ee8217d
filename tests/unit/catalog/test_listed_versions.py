"""`listing="index"` where files were replaced since: that is told, and one scan has one answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import accel

FILES, ROWS = 3, 1000
TOLD = r"a file was replaced since the index at .*/data/_accel/ was refreshed: .*/data/1.parquet\."


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A directory of whose files one was replaced by a larger one since its index was built."""
    directory = tmp_path / "data"
    directory.mkdir()
    for number in range(FILES):
        write(directory, number, ROWS)
    accel.build_index(directory)
    write(directory, 1, 3 * ROWS)
    return directory


def write(directory: Path, number: int, rows: int) -> None:
    pq.write_table(pa.table({"k": range(rows)}), directory / f"{number}.parquet")


def scan(data: Path, where: str | None = None, **given: Any) -> accel.Scan:
    return accel.scan(data, where, **({"listing": "index", "cache": None} | given))


@pytest.mark.parametrize("cached", [True, False])
def test_it_is_read_as_it_is_and_counted_so_from_then_on(data: Path, cached: bool) -> None:
    found = scan(data, cache=accel.Cache() if cached else None)
    for ask in (lambda: found.to_table().num_rows, found.count_rows) * 2:
        with pytest.warns(UserWarning, match=TOLD):
            assert ask() == 5 * ROWS
        assert found.metrics.catalog_stale == 1
        assert [str(data / "1.parquet") in text for text in found.metrics.warnings] == [True]


def test_once_the_index_has_counted_another_version_is_an_error(data: Path) -> None:
    found = scan(data)
    assert [found.count_rows(), found.count_rows()] == [3 * ROWS, 3 * ROWS]
    for _ in range(2):
        with pytest.raises(accel.ObjectChangedError, match="replaced since the index listed it") as raised:
            found.to_table()
        assert str(data / "1.parquet") in str(raised.value)
        assert "refresh the index" in str(raised.value)
    # A scan of its own has an answer of its own.
    with pytest.warns(UserWarning, match=TOLD):
        assert scan(data).to_table().num_rows == 5 * ROWS
    accel.refresh_index(data / "_accel")
    assert scan(data).count_rows() == scan(data).to_table().num_rows == 5 * ROWS


def test_many_are_told_at_once(data: Path) -> None:
    for number in range(10, 20):
        write(data, number, ROWS)
    accel.refresh_index(data / "_accel")
    for number in range(10, 20):
        write(data, number, 2 * ROWS)
    found = scan(data, "k >= 0")
    with pytest.warns(UserWarning, match=r"10 files were replaced .* and 7 more\. ") as caught:
        rows = found.to_table().num_rows
    assert rows == (5 + 20) * ROWS
    assert (len(caught), found.metrics.catalog_stale) == (1, 10)


def test_nothing_is_told_where_nothing_was_replaced(data: Path) -> None:
    accel.refresh_index(data / "_accel")
    found = scan(data)
    assert (found.count_rows(), found.to_table().num_rows) == (5 * ROWS, 5 * ROWS)
    assert (found.metrics.catalog_stale, found.metrics.warnings) == (0, [])
    # The store lists the versions of now, which the index may not know.
    write(data, 1, 2 * ROWS)
    found = scan(data, listing="store")
    assert (found.count_rows(), found.to_table().num_rows) == (4 * ROWS, 4 * ROWS)
    assert (found.metrics.catalog_stale, found.metrics.warnings) == (1, [])
