"""What paths spell, from files to rows and back: values that Python cannot tell apart, bytes, names that are no text."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from urllib.parse import quote

import pyarrow as pa
import pytest

import accel
from accel.testing import DictStore, table, write_file

MONEY = b"k=caf\xe9"
"""As Latin-1 has it."""


def test_the_hour_that_a_clock_set_back_shows_twice() -> None:
    hours = ["2023-11-05T05:30:00Z", "2023-11-05T06:30:00Z"]
    store = DictStore({f"d/k={hour}/f": write_file(table(i=pa.array([i]))) for i, hour in enumerate(hours)})
    types = pa.schema([("k", pa.timestamp("us", "America/New_York"))])
    found = accel.scan("d/", partitioning=types, store=store).to_table()
    assert found["k"].cast(pa.int64()).to_pylist() == [1_699_162_200_000_000, 1_699_165_800_000_000]
    for i, hour in enumerate(hours):
        kept = accel.scan("d/", f"k = '{hour}'", partitioning=types, store=store).to_table()
        assert kept["i"].to_pylist() == [i]


@pytest.mark.parametrize(
    "kind",
    [pa.binary(), pa.large_binary(), pa.binary_view(), pa.binary(3), pa.dictionary(pa.int8(), pa.binary())],
)
def test_digits_of_bytes_are_no_number(kind: pa.DataType) -> None:
    store = DictStore({"d/k=007/f": write_file(table(i=pa.array([1])))})
    schema = pa.schema([("i", pa.int64()), ("k", kind)])
    assert accel.scan("d/", schema=schema, store=store).to_table()["k"].to_pylist() == [b"007"]
    assert accel.scan("d/", "k = '007'", schema=schema, store=store).count_rows() == 1


def write(path: bytes) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(write_file(table(i=pa.array([1]))))


def test_a_folder_whose_name_is_not_utf_8(tmp_path: Path) -> None:
    write(os.fsencode(tmp_path) + b"/" + MONEY + b"/f.parquet")
    with pytest.raises(accel.SchemaMismatchError, match="is not UTF-8"):
        accel.scan(f"{tmp_path}/").count_rows()
    assert accel.scan(f"{tmp_path}/", partitioning=None).count_rows() == 1


def test_a_file_whose_name_is_not_utf_8(tmp_path: Path) -> None:
    name = os.fsencode(tmp_path) + b"/caf\xe9.parquet"
    write(name)
    for source in (tmp_path, f"file://{tmp_path}/", f"file://{quote(name)}", f"file://{tmp_path}/caf%E9*"):
        assert accel.scan(source).to_table()["i"].to_pylist() == [1]
    plan = accel.plan(tmp_path)
    assert accel.scan(plan).count_rows() == 1
    with pytest.raises(accel.AccelError, match="not UTF-8"):
        pickle.dumps(plan)
