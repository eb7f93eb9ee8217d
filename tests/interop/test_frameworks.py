"""What docs/engines.md says of Ibis, dask, Daft and Ray Data; a test of one that is not installed is skipped."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import accel
import accel.polars

FILES, ROWS = 4, 1_000


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number in range(FILES):
        ids = range(number * ROWS, (number + 1) * ROWS)
        table = pa.table({"id": ids, "word": [f"w{i % 7}" for i in ids]})
        pq.write_table(table, tmp_path / f"{number}.parquet", row_group_size=250)
    return tmp_path


def _not_installed(name: str) -> str:
    return f"{name} is not installed: pip install {name}"


class TestIbis:
    def test_a_data_set_is_a_table_into_which_filters_are_pushed(self, folder):
        ibis = pytest.importorskip("ibis", reason=_not_installed("ibis-framework[duckdb]"))
        events: list[accel.Event] = []
        options = accel.Options(on_event=events.append)
        table = ibis.memtable(accel.dataset(folder, options=options, cache=None))
        found = table.filter(table.id == 2_345).select("word").to_pyarrow()
        assert found["word"].to_pylist() == ["w0"]
        assert [event.counts["rows_out"] for event in events if event.name == "scan ended"] == [1]

    def test_a_lazy_frame_is_a_table_of_its_polars(self, folder):
        ibis = pytest.importorskip("ibis", reason=_not_installed("ibis-framework[polars]"))
        connection = ibis.polars.connect({"t": accel.polars.scan(folder)})
        table = connection.table("t")
        assert table.filter(table.id == 5).select("word").to_pyarrow()["word"].to_pylist() == ["w5"]


def test_dask_maps_a_scan_over_files(folder):
    frames = pytest.importorskip("dask.dataframe", reason=_not_installed("dask[dataframe]"))

    def read(path: str) -> object:
        return accel.scan(path, "id >= 990 AND id < 1500").to_pandas()

    found = frames.from_map(read, sorted(map(str, folder.iterdir())))
    assert (found.npartitions, len(found.compute())) == (FILES, 510)


def test_daft_takes_tables(folder):
    daft = pytest.importorskip("daft", reason=_not_installed("daft"))
    frame = daft.from_arrow(accel.scan(folder, "id < 10").to_table())
    assert frame.where(daft.col("id") == 5).to_pydict() == {"id": [5], "word": ["w5"]}


def test_ray_takes_tables(folder):
    ray = pytest.importorskip("ray", reason=_not_installed("ray[data]"))
    data = pytest.importorskip("ray.data", reason=_not_installed("ray[data]"))
    ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False, object_store_memory=100 << 20)
    try:
        found = data.from_arrow(accel.scan(folder, "id < 2").to_table()).take_all()
    finally:
        ray.shutdown()
    assert found == [{"id": 0, "word": "w0"}, {"id": 1, "word": "w1"}]
