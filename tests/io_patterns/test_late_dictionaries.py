"""Pages that need a dictionary although the footer says that none does: decoding shows it, and it is fetched
then."""

from __future__ import annotations

from functools import partial

import numpy as np
import pyarrow as pa
import pytest

import accel
from accel.planning import pages as chunk_pages
from accel.testing import DictStore, Layout, RecordingStore, table, write_file

ROWS, GROUP = 8_000, 4_000


@pytest.fixture(scope="module")
def rows() -> pa.Table:
    rng = np.random.default_rng(3)
    names = np.array([f"name {i}" for i in range(40)])
    return table(
        key=pa.array(np.arange(ROWS)),
        a=pa.array(names[rng.integers(0, 40, ROWS)].tolist()),
        b=pa.array(rng.integers(0, 30, ROWS)),
        c=pa.array(rng.random(ROWS)),
    )


@pytest.fixture
def store(rows: pa.Table, monkeypatch: pytest.MonkeyPatch) -> RecordingStore:
    """Of a file whose footer lies."""
    data = write_file(rows, Layout(group_rows=GROUP, page_rows=500, dictionary=["a", "b"]))
    monkeypatch.setattr(chunk_pages, "pages_in_dictionary", lambda chunks, at: 0)
    return RecordingStore(DictStore({"f.parquet": data}))


@pytest.mark.parametrize("phases", ["one", "two"])
@pytest.mark.parametrize("piece_bytes", [8 << 20, 1 << 10], ids=["one piece", "many pieces"])
@pytest.mark.parametrize(
    ("where", "columns"),
    [
        ("b = 7", ["c", "a"]),
        ("c < 0.01", None),
        ("a = 'name 3' AND b > 20", ["key"]),
        ("key >= 100 AND key < 700 AND a > 'name 2'", None),
    ],
)
def test_the_rows_are_all_there(
    store: RecordingStore,
    rows: pa.Table,
    where: str,
    columns: list[str] | None,
    phases: str,
    piece_bytes: int,
) -> None:
    options = accel.Options(phases=phases, piece_bytes=piece_bytes, inline_decode_bytes=0)
    scan = accel.scan("f.parquet", where, columns=columns, store=store, cache=accel.Cache(), options=options)
    found = scan.to_table()
    data = DictStore({"g.parquet": write_file(rows, Layout(dictionary=False))})
    assert found.equals(accel.scan("g.parquet", where, columns=columns, store=data).to_table())
    assert found.num_rows
    assert scan.metrics.late_dictionaries > 0
    assert not scan.metrics.warnings


def test_it_takes_one_trip_more(store: RecordingStore) -> None:
    cache, options = accel.Cache(), accel.Options(tail_hint=4096)
    ask = partial(accel.scan, "f.parquet", columns=["a", "c"], store=store, cache=cache, options=options)
    assert ask("key >= 7000").to_table().num_rows == 1000
    scan = ask("key < 3000")
    assert scan.to_table().num_rows == 3000
    assert (scan.metrics.late_dictionaries, scan.metrics.round_trips) == (1, 2)


def test_a_page_whose_header_does_not_decode_is_named(store: RecordingStore) -> None:
    where = "key >= 3000 AND key < 3100"
    (task,) = accel.plan("f.parquet", where, columns=["a"], store=store).tasks
    data = bytearray(store.inner.objects["f.parquet"])
    at = int(next(reads for reads in task.reads if reads.leaf == 1).offset[0])
    data[at : at + 3] = b"\xff" * 3
    with pytest.raises(accel.ParquetFormatError, match="row group 0, column a, page header") as caught:
        accel.scan(
            "f.parquet", where, columns=["a"], store=DictStore({"f.parquet": bytes(data)}), cache=None
        ).to_table()
    assert caught.value.path == "f.parquet"
