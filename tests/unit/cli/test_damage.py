"""`accel inspect` over damaged files: it tells what it can or what is wrong, and never breaks."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pytest

from accel.cli.main import main
from accel.testing import Layout, write_file


def test_flipped_bytes_and_cut_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = pa.Table.from_arrays(
        [pa.array(range(300)), pa.array([f"s{i}" for i in range(300)]), pa.array([[i] for i in range(300)])],
        names=["a", "b", "c"],
    )
    whole = write_file(table, Layout(group_rows=100, page_rows=20))
    random_bytes = random.Random(20261121)
    path = tmp_path / "f.parquet"
    statuses = []
    for number in range(250):
        data = bytearray(whole)
        # The end of the file is where its metadata is.
        for _ in range(random_bytes.randint(1, 4)):
            data[-random_bytes.randint(1, 6000) % len(data)] = random_bytes.randrange(256)
        if number % 5 == 0:
            del data[random_bytes.randrange(len(data)) :]
        path.write_bytes(data)
        status = main(["inspect", str(path), *(["--json"] if number % 2 else ["--row-groups"])])
        out, err = capsys.readouterr()
        statuses.append(status)
        assert status in (0, 1), (number, err)
        assert (status == 1) == err.startswith("accel: error: "), (number, err)
        assert bool(out) == (status == 0), number
        assert "\x1b" not in out + err
    assert {0, 1} == set(statuses)
