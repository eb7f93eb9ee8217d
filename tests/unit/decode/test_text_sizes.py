"""Required texts and their pages: a schema that says `required` of what was written as `optional` is found out."""

from __future__ import annotations

import io
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import accel
from accel.format.thrift import read_struct, write_struct
from accel.testing import DictStore

TEXTS = {
    "many": [f"text {i * 7919 % 1000}" for i in range(5000)],
    "of one length": [f"{i:05}" for i in range(5000)],
    "few": ["a"] * 40,
    "nulls": [None if i % 5 == 0 else f"t{i}" for i in range(3000)],
    # With just one in a page its levels take the place of a text, and nothing is left over: that is not seen.
    "two nulls": ["abc", None, "d", None],
    "empty": [""] * 300,
    "one": ["x"],
}


def written(values: list[Any], *, nullable: bool, **settings: Any) -> bytes:
    sink = io.BytesIO()
    schema = pa.schema([pa.field("s", pa.string(), nullable=nullable)])
    keywords: dict[str, Any] = {"write_page_index": True, "data_page_size": 3000, "store_schema": False}
    pq.write_table(
        pa.table([pa.array(values)], schema=schema), sink, row_group_size=2000, **keywords | settings
    )
    return sink.getvalue()


def flipped(data: bytes) -> bytes:
    """The same file, whose schema says `required`; without the histograms that would contradict it."""
    length = int.from_bytes(data[-8:-4], "little")
    footer, _ = read_struct(data[-8 - length : -8])
    for element in footer[2][1].items[1:]:
        element[3] = (element[3][0], 0)
    for group in footer[4][1].items:
        for chunk in group[1][1].items:
            chunk[3][1].pop(16, None)
            for index in (6, 7):
                chunk.pop(index, None)
    made = bytes(write_struct(footer))
    return data[: -8 - length] + made + len(made).to_bytes(4, "little") + b"PAR1"


def rows_of(data: bytes, **keywords: Any) -> list[Any]:
    found = accel.scan("f", store=DictStore({"f": data}), cache=None, **keywords).to_table()
    out: list[Any] = found.column("s").to_pylist()
    return out


@pytest.mark.parametrize("compression", ["none", "snappy"])
@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("dictionary", [False, True], ids=["plain", "dictionary"])
@pytest.mark.parametrize("texts", TEXTS)
def test_levels_are_not_taken_for_texts(texts: str, dictionary: bool, version: str, compression: str) -> None:
    values = TEXTS[texts]
    data = flipped(
        written(
            values,
            nullable=True,
            use_dictionary=dictionary,
            data_page_version=version,
            compression=compression,
        )
    )
    for keywords in (
        {},
        {"selection": {"f": {0: [(0, 1), (2, 3)][: len(values)]}}} if len(values) > 2 else {},
    ):
        try:
            found = rows_of(data, **keywords)
        except accel.ParquetFormatError:
            continue
        assert version == "2.0"
        assert found == ([values[0], values[2]] if keywords else values)


@pytest.mark.parametrize(
    "encoding", ["PLAIN", "DELTA_BYTE_ARRAY", "DELTA_LENGTH_BYTE_ARRAY", "dictionary", "both"]
)
@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("texts", ["many", "of one length", "few", "empty", "one"])
def test_required_texts_are_read(texts: str, version: str, encoding: str) -> None:
    how: dict[str, Any] = {"use_dictionary": encoding in ("dictionary", "both")}
    if encoding == "both":
        how["dictionary_pagesize_limit"] = 500
    elif encoding != "dictionary":
        how["column_encoding"] = encoding
    values = TEXTS[texts]
    data = written(values, nullable=False, data_page_version=version, **how)
    assert rows_of(data) == values
    assert rows_of(data, where="s = 'text 7' OR s = 'a' OR s = '' OR s = 'x'") == [
        value for value in values if value in ("text 7", "a", "", "x")
    ]


@pytest.mark.parametrize("compression", ["none", "snappy", "gzip", "zstd", "brotli", "lz4"])
@pytest.mark.parametrize("kind", [pa.string(), pa.int64(), pa.int32(), pa.binary(3), pa.bool_()], ids=str)
def test_bytes_behind_required_values_are_passed_over(kind: pa.DataType, compression: str) -> None:
    """fastparquet leaves some there."""
    values = [f"t{n:02}" for n in range(40)]
    array = pa.array(values if kind in (pa.string(), pa.binary(3)) else range(4, 44))
    array = array.cast(kind) if kind != pa.bool_() else pa.array([n % 3 == 0 for n in range(40)])
    sink = io.BytesIO()
    table = pa.Table.from_arrays([array], schema=pa.schema([pa.field("s", kind, nullable=False)]))
    pq.write_table(table, sink, use_dictionary=False, compression=compression, store_schema=False)
    data = _with_bytes_behind(sink.getvalue(), compression)
    assert pq.read_table(pa.BufferReader(data)).column("s").to_pylist() == array.to_pylist()
    assert rows_of(data) == array.to_pylist()
    assert rows_of(data, selection={"f": {0: [(7, 9)]}}) == array.to_pylist()[7:9]


def _with_bytes_behind(data: bytes, compression: str) -> bytes:
    """The file of one page with eight bytes more behind its values."""
    length = int.from_bytes(data[-8:-4], "little")
    footer, _ = read_struct(data[-8 - length : -8])
    meta = footer[4][1].items[0][1][1].items[0][3][1]
    header, at = read_struct(data, meta[9][1])
    name = {"none": None, "lz4": "lz4_raw"}.get(compression, compression)
    body = data[at : at + header[3][1]]
    size = header[2][1]
    raw = body if name is None else pa.decompress(body, decompressed_size=size, codec=name, asbytes=True)
    raw += bytes(8)
    body = raw if name is None else pa.compress(raw, codec=name, asbytes=True)
    header[2], header[3] = (header[2][0], len(raw)), (header[3][0], len(body))
    page = bytes(write_struct(header)) + body
    meta[7] = (meta[7][0], len(page))
    made = bytes(write_struct(footer))
    return b"PAR1" + page + made + len(made).to_bytes(4, "little") + b"PAR1"
