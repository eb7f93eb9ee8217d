"""Flat columns whose only page counts more values than there are rows, and whose footer says the same: cuDF
wrote such files, where columns lie beside a list (`nested-unsigned-malformed.parquet`). Every reader takes
the first values for the rows."""

from __future__ import annotations

import io
import struct

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import accel
from accel.testing import DictStore

ROWS = 1000
"""Values of each page; the footer claims half as many rows."""
WHOLE, HALF = b"\xd0\x0f", b"\xe8\x07"
"""1000 and 500, as Thrift's compact protocol has them."""
VALUES = pa.array([None if row % 7 == 3 else row for row in range(ROWS)], pa.uint32())
COLUMNS = {
    "struct": pa.StructArray.from_arrays([VALUES, pa.array(map(str, range(ROWS)))], ["u", "t"]),
    "flat": VALUES,
    "required": VALUES.fill_null(1),
}


def written(kind: str, *, groups: int = 1, **given: object) -> bytes:
    column = pa.concat_arrays([COLUMNS[kind]] * groups)
    schema = pa.schema([pa.field("s", column.type, nullable=kind != "required")])
    out = io.BytesIO()
    pq.write_table(pa.table([column], schema), out, row_group_size=ROWS, write_statistics=False, **given)
    return out.getvalue()


def with_half(data: bytes, *places: int) -> bytes:
    """The file, with half the number at some of the places in its footer where it has the number of a group's
    rows."""
    length = struct.unpack("<I", data[-8:-4])[0]
    body, footer = data[: -8 - length], data[-8 - length :]
    parts = footer.split(WHOLE)
    chosen = {place % (len(parts) - 1) for place in places}
    for at in range(len(parts) - 1):
        parts[at] += HALF if at in chosen else WHOLE
    return body + b"".join(parts)


def read(data: bytes, where: str | None = None, **given: object) -> pa.Table:
    return accel.scan("f.parquet", where, store=DictStore({"f.parquet": data}), **given).to_table()


@pytest.mark.parametrize("kind", COLUMNS)
@pytest.mark.parametrize("codec", ["none", "snappy", "zstd"])
@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("dictionary", [False, True])
def test_they_are_read_as_pyarrow_reads_them(kind: str, codec: str, version: str, dictionary: bool) -> None:
    data = with_half(
        written(kind, compression=codec, data_page_version=version, use_dictionary=dictionary), 0, -1
    )
    expected = pq.read_table(io.BytesIO(data))
    assert expected.num_rows == ROWS // 2
    name, cache = ("s.u" if kind == "struct" else "s"), accel.Cache()
    for _ in range(3):
        assert read(data, cache=cache).equals(expected)
        for where, rows in {
            f"{name} = 400": [400],
            f"{name} IN (7, 498, 900)": [7, 498],
            f"{name} > 600": [],
            f"{name} IS NULL": [row for row in range(ROWS // 2) if row % 7 == 3]
            if kind != "required"
            else [],
        }.items():
            assert read(data, where, cache=cache).equals(expected.take(pa.array(rows, pa.int64()))), where


@pytest.mark.parametrize("dictionary", [False, True])
def test_several_row_groups(dictionary: bool) -> None:
    data = written("flat", groups=3, use_dictionary=dictionary)
    for place in (1, 3, 5):  # of each group, the numbers are those of its values and of its rows
        data = with_half(data, place) if place == 1 else with_half(data, place - (place // 2))
    whole = struct.pack("<B", 0xF0) + b"\x2e"
    assert data.count(whole) == 1  # the rows of the file
    data = data.replace(whole, b"\xb8\x17")
    expected = pq.read_table(io.BytesIO(data))
    assert expected.num_rows == 3 * ROWS // 2
    assert read(data, cache=None).equals(expected)
    assert read(data, "s = 400", cache=None).column("s").to_pylist() == [400] * 3


def test_a_number_that_contradicts_the_others_is_refused() -> None:
    data = written("flat", use_dictionary=False, compression="none")
    # The rows of the row group alone, or with the values of the chunk; all of the footer, where the page says
    # otherwise.
    for places in ((-1,), (1, -1), (0, 1, -1)):
        with pytest.raises(accel.ParquetFormatError):
            read(with_half(data, *places), cache=None)
    page = with_half(data, 0, -1)
    first = page.index(WHOLE)
    with pytest.raises(accel.ParquetFormatError):
        read(page[:first] + b"\xd2\x0f" + page[first + 2 :], cache=None)
