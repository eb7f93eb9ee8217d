"""Checksums of pages: verified, left, or none at all."""

from __future__ import annotations

import io
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import accel
from accel.format.thrift import I32, read_struct, write_struct
from accel.testing import DictStore

ROWS = 600
TABLE = pa.Table.from_arrays(
    [
        pa.array(range(ROWS)),
        pa.array([f"w{n % 7}" for n in range(ROWS)]),
        pa.array([[n, n + 1] for n in range(ROWS)]),
    ],
    names=["n", "w", "l"],
)
UNVERIFIED = accel.Options(verify_checksums=False)


def _written(**settings: Any) -> bytes:
    sink = io.BytesIO()
    keywords: dict[str, Any] = {
        "write_page_checksum": True,
        "write_page_index": False,
        "max_rows_per_page": 100,
        "write_batch_size": 100,
        "row_group_size": 300,
    }
    pq.write_table(TABLE, sink, **keywords | settings)
    return sink.getvalue()


def _with_crc(data: bytes, crc: int) -> bytes:
    """The file with this checksum in every page; offsets and sizes fit."""
    length = int.from_bytes(data[-8:-4], "little")
    footer, _ = read_struct(data[-8 - length : -8])
    out = bytearray(b"PAR1")
    for group in footer[4][1].items:
        for chunk in group[1][1].items:
            meta = chunk[3][1]
            at = meta[11][1] if 11 in meta else meta[9][1]
            end, start, first = at + meta[7][1], len(out), True
            while at < end:
                header, body = read_struct(data, at)
                at = body + header[3][1]
                if header[1][1] == 2:
                    meta[11] = (meta[11][0], len(out))
                elif first:
                    meta[9], first = (meta[9][0], len(out)), False
                header[4] = (I32, crc)
                out += bytes(write_struct(header)) + data[body:at]
            meta[7] = (meta[7][0], len(out) - start)
    blob = bytes(write_struct(footer))
    return bytes(out) + blob + len(blob).to_bytes(4, "little") + b"PAR1"


def _scan(data: bytes, **keywords: Any) -> pa.Table:
    return accel.scan("f", store=DictStore({"f": data}), cache=None, **keywords).to_table()


PAGES: dict[str, dict[str, Any]] = {
    "v1": {},
    "v2": {"data_page_version": "2.0"},
    "plain": {"use_dictionary": False, "compression": "none"},
    "zstd": {"compression": "zstd"},
}


@pytest.mark.parametrize("settings", PAGES.values(), ids=PAGES)
@pytest.mark.parametrize("options", [accel.Options(), UNVERIFIED], ids=["verified", "not verified"])
def test_a_checksum_of_0_stands_for_none(settings: dict[str, Any], options: accel.Options) -> None:
    data = _with_crc(_written(**settings), 0)
    assert _scan(data, options=options).equals(TABLE)
    assert _scan(data, where="n = 450", options=options).to_pylist() == [
        {"n": 450, "w": "w2", "l": [450, 451]}
    ]


@pytest.mark.parametrize("settings", PAGES.values(), ids=PAGES)
def test_a_checksum_that_does_not_match_is_refused_unless_none_is_verified(settings: dict[str, Any]) -> None:
    data = _with_crc(_written(**settings), 77)
    with pytest.raises(accel.ParquetFormatError, match="CRC"):
        _scan(data)
    with pytest.raises(accel.ParquetFormatError, match="CRC"):
        _scan(data, where="n = 450")
    assert _scan(data, options=UNVERIFIED).equals(TABLE)
    assert _scan(data, where="n = 450", options=UNVERIFIED).num_rows == 1
    assert _scan(data, where="w = 'w2' AND n < 10", options=UNVERIFIED).column("n").to_pylist() == [2, 9]


@pytest.mark.parametrize("settings", PAGES.values(), ids=PAGES)
def test_with_a_page_index(settings: dict[str, Any]) -> None:
    data = _written(write_page_index=True, **settings)
    selection = {"f": {0: [(5, 7)], 1: [(299, 300)]}}
    wanted = pa.concat_tables([TABLE.slice(5, 2), TABLE.slice(599, 1)])
    assert _scan(data, options=UNVERIFIED, selection=selection).equals(wanted)
    assert _scan(data, selection=selection).equals(wanted)
