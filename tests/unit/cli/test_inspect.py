from __future__ import annotations

import datetime
import json
import random
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import accel
from accel.cli.layout import judge_order
from accel.cli.main import main
from accel.testing import Layout, write_file


def inspect(path: Path, capsys: pytest.CaptureFixture[str], *more: str) -> dict[str, Any]:
    assert main(["inspect", str(path), "--json", *more]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    printed: dict[str, Any] = json.loads(out)
    return printed


def column(printed: dict[str, Any], name: str) -> dict[str, Any]:
    return next(c for c in printed["columns"] if c["name"] == name)


def test_the_layout_is_what_pyarrow_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    n = 1000
    table = pa.Table.from_arrays(
        [
            pa.array(range(n)),
            pa.array([None if i % 10 == 0 else f"s{i % 50:02}" for i in range(n)]),
            pa.StructArray.from_arrays([pa.array(np.arange(n, 0, -1.0))], names=["x"]),
            pa.array([[i] for i in range(n)], pa.list_(pa.int16())),
        ],
        names=["id", "s", "st", "l"],
    )
    path = tmp_path / "f.parquet"
    path.write_bytes(
        write_file(table, Layout(group_rows=400, page_rows=100, codec="snappy", dictionary=["s"]))
    )
    printed = inspect(path, capsys)
    truth = pq.ParquetFile(path).metadata
    assert {
        key: printed[key] for key in ("url", "size", "rows", "created_by", "version", "sorting", "advice")
    } == {
        "url": str(path),
        "size": path.stat().st_size,
        "rows": n,
        "created_by": truth.created_by,
        "version": 2,
        "sorting": [],
        "advice": [],
    }
    assert printed["footer_bytes"] == truth.serialized_size + 8
    assert printed["tail_bytes"] == printed["footer_bytes"] + printed["index_bytes"]
    assert printed["key_value"].keys() == {"ARROW:schema"}
    assert [group["rows"] for group in printed["row_groups"]] == [400, 400, 200]
    chunks = [[truth.row_group(g).column(c) for g in range(3)] for c in range(4)]
    assert [c["compressed"] for c in printed["columns"]] == [
        sum(x.total_compressed_size for x in cs) for cs in chunks
    ]
    assert [c["uncompressed"] for c in printed["columns"]] == [
        sum(x.total_uncompressed_size for x in cs) for cs in chunks
    ]
    shown = ("name", "physical", "type", "codecs", "encodings", "pages", "nulls", "min", "max", "order")
    assert [[c[key] for key in shown] for c in printed["columns"]] == [
        ["id", "INT64", "int64", ["SNAPPY"], ["PLAIN"], 10, 0, "0", "999", "ascending"],
        ["s", "BYTE_ARRAY", "string", ["SNAPPY"], ["RLE_DICTIONARY"], 10, 100, "s01", "s49", "scattered"],
        ["st.x", "DOUBLE", "double", ["SNAPPY"], ["PLAIN"], 10, 0, "1.0", "1000.0", "descending"],
        ["l.list.element", "INT32", "int16", ["SNAPPY"], ["PLAIN"], 10, 0, None, None, "unknown"],
    ]


@pytest.mark.parametrize(
    ("values", "low", "high"),
    [
        pytest.param(pa.array([-1, 2**31], pa.int64()), "-1", "2147483648", id="int"),
        pytest.param(pa.array([1, 2**64 - 1], pa.uint64()), "1", "18446744073709551615", id="uint64"),
        pytest.param(
            pa.array([Decimal("-1.50"), Decimal("0.05")], pa.decimal128(30, 2)), "-1.50", "0.05", id="decimal"
        ),
        pytest.param(pa.array([datetime.date(2013, 1, 2)]), "2013-01-02", "2013-01-02", id="date"),
        pytest.param(
            pa.array([0, 1], pa.timestamp("us", "UTC")),
            "1970-01-01 00:00:00.000000Z",
            "1970-01-01 00:00:00.000001Z",
            id="timestamp",
        ),
        pytest.param(pa.array(["\x1b[31m", "z" * 40]), "\\x1b[31m", "z" * 31 + "…", id="text"),
        pytest.param(pa.array([b"\x00", b"\xff"], pa.binary()), "x'00'", "x'ff'", id="binary"),
        pytest.param(pa.array([True, False]), "false", "true", id="bool"),
        pytest.param(pa.array([1.5, 2.5], pa.float32()), "1.5", "2.5", id="float"),
        pytest.param(pa.array([None], pa.int8()), None, None, id="all null"),
        pytest.param(pa.array([[1]], pa.list_(pa.int8())), None, None, id="list"),
    ],
)
def test_the_least_and_greatest_values(
    values: pa.Array, low: str | None, high: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "f.parquet"
    pq.write_table(pa.Table.from_arrays([values], names=["x"]), path)
    printed = inspect(path, capsys)["columns"][0]
    assert (printed["min"], printed["max"]) == (low, high)


@pytest.mark.parametrize(
    ("lower", "upper", "order", "overlap"),
    [
        ([0, 10, 20, 30], [9, 19, 29, 39], "ascending", 0.25),
        ([0, 10, 20, 30], [10, 20, 30, 40], "ascending", 1.75 / 4),
        ([30, 20, 10, 0], [39, 29, 19, 9], "descending", 0.25),
        ([20, 0, 30, 10], [29, 9, 39, 19], "clustered", 0.25),
        ([0, 0, 0, 0], [9, 9, 9, 9], "scattered", 1.0),
        ([5], [6], "unknown", None),
        ([], [], "unknown", None),
    ],
)
def test_how_units_lie(lower: list[int], upper: list[int], order: str, overlap: float | None) -> None:
    assert judge_order(np.array(lower), np.array(upper)) == (order, overlap)


ROWS = 300_000


def scattered() -> pa.Table:
    random = np.random.default_rng(7)
    return pa.Table.from_arrays(
        [
            pa.array(random.permutation(ROWS)),
            pa.array([f"{x:032x}" for x in random.integers(0, 2**60, ROWS)]),
        ],
        names=["id", "text"],
    )


@pytest.fixture(scope="module")
def table() -> pa.Table:
    return scattered()


@pytest.mark.parametrize(
    ("keywords", "advice"),
    [
        pytest.param(
            {"write_page_index": False, "row_group_size": ROWS // 2},
            [
                "no page index: a lookup reads whole column chunks",
                "no column is sorted",
                "dictionaries outgrown in id, text: ",
            ],
            id="no page index",
        ),
        pytest.param(
            {"write_page_index": True, "use_dictionary": False},
            ["no column is sorted or clustered: "],
            id="unsorted only",
        ),
        pytest.param(
            {"write_page_index": True, "use_dictionary": False, "write_statistics": False},
            ["no column index for id, text", "no usable statistics for id, text: "],
            id="no statistics",
        ),
        pytest.param(
            {"write_page_index": True, "use_dictionary": False, "compression": "none"},
            ["no column is sorted", "id, text not compressed: "],
            id="uncompressed",
        ),
        pytest.param(
            {"write_page_index": True, "use_dictionary": False, "compression": "gzip"},
            ["no column is sorted", "id, text in gzip: "],
            id="gzip",
        ),
        pytest.param(
            {"write_page_index": True, "use_dictionary": False, "row_group_size": 10_000},
            ["no column is sorted", "30 row groups of "],
            id="tiny row groups",
        ),
        pytest.param(
            {
                "write_page_index": True,
                "use_dictionary": False,
                "data_page_size": 64 << 20,
                "max_rows_per_page": ROWS,
                "write_batch_size": ROWS,
                "row_group_size": ROWS // 2,
            },
            ["no column is sorted", "pages of up to "],
            id="huge pages",
        ),
    ],
)
def test_advice(
    keywords: dict[str, Any],
    advice: list[str],
    table: pa.Table,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / "f.parquet"
    pq.write_table(table, path, **keywords)
    printed = inspect(path, capsys)["advice"]
    assert [line[: len(start)] for line, start in zip(printed, advice, strict=True)] == advice


def test_a_good_file_needs_no_advice(
    table: pa.Table, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "f.parquet"
    order = np.argsort(table.column("id").to_numpy())
    path.write_bytes(write_file(table.take(order), Layout(group_rows=100_000, dictionary=False)))
    assert inspect(path, capsys)["advice"] == []
    assert main(["inspect", str(path)]) == 0
    out = capsys.readouterr().out
    assert out.endswith("\n  nothing to advise\n")
    assert "  rows       300,000 in 3 row groups\n" in out


def test_int96(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stamps = pa.array(np.random.default_rng(1).integers(0, 2**50, 100_000), pa.timestamp("ns"))
    path = tmp_path / "f.parquet"
    pq.write_table(
        pa.Table.from_arrays([stamps], names=["at"]),
        path,
        use_deprecated_int96_timestamps=True,
        use_dictionary=False,
    )
    printed = inspect(path, capsys)
    assert (printed["columns"][0]["physical"], printed["columns"][0]["min"]) == ("INT96", None)
    assert printed["advice"][-1].startswith("at stored as INT96, which has no usable statistics: ")


def test_a_directory_and_what_is_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = write_file(pa.Table.from_arrays([pa.array([1, 2])], names=["a\x1b[2J"]))
    for i in range(22):
        (tmp_path / f"{i:02}.parquet").write_bytes(one)
    assert main(["inspect", str(tmp_path), "--row-groups"]) == 0
    out, err = capsys.readouterr()
    assert [line for line in out.splitlines() if line.endswith(".parquet")] == [
        f"{tmp_path}/{i:02}.parquet" for i in range(20)
    ]
    assert err == "accel: 2 more files are not shown: name the one to inspect\n"
    assert "\x1b" not in out
    assert "a\\x1b[2J" in out
    assert "row group" in out


def test_a_file_without_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "f.parquet"
    pq.write_table(pa.Table.from_arrays([pa.array([], pa.int8())], names=["a"]), path)
    printed = inspect(path, capsys)
    assert (printed["rows"], printed["advice"], column(printed, "a")["min"]) == (0, [], None)
    assert main(["inspect", str(path)]) == 0
    assert "nothing to advise" in capsys.readouterr().out


def test_a_file_without_columns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "none.parquet"
    pq.write_table(pa.table({"a": [1, 2]}).select([]), path)
    assert main(["inspect", str(path)]) == 0
    assert "codec" in capsys.readouterr().out
    assert inspect(path, capsys)["columns"] == []


def test_what_is_no_parquet(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "f.parquet"
    path.write_bytes(b"this is no Parquet file at all")
    assert main(["inspect", str(path)]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"accel: error: {path}")


def test_embedded_indexes_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = pa.Table.from_arrays([pa.array([f"c{i % 5}" for i in range(1000)])], names=["city"])
    accel.write_table(rows, str(tmp_path / "f.parquet"), indexes={"city": "distinct"})
    assert main(["inspect", str(tmp_path / "f.parquet")]) == 0
    assert "distinct of city by page" in capsys.readouterr().out
    assert main(["inspect", "--json", str(tmp_path / "f.parquet")]) == 0
    (printed,) = json.loads(capsys.readouterr().out)["embedded"]
    assert (printed["kind"], printed["column"], printed["level"], printed["count"]) == (
        "distinct",
        "city",
        "page",
        1,
    )
    assert printed["bytes"] > 0


def test_embedded_indexes_of_another_file_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A rewrite by what keeps the footer's keys."""
    path = tmp_path / "f.parquet"
    accel.write_table(pa.table({"a": [1, 2, 3]}), path, indexes={"a": "bitmap"})
    toc = pq.read_metadata(path).metadata[b"accel.indexes"]
    pq.write_table(pa.table({"a": [4, 5]}).replace_schema_metadata({"accel.indexes": toc}), path)
    assert main(["inspect", str(path)]) == 0
    reason = "the indexes were made for another file (the file was rewritten since; embed them again)"
    assert capsys.readouterr().err == f"accel: warning: {path}, footer key accel.indexes: {reason}\n"


# `accel inspect` over damaged files: it tells what it can or what is wrong, and never breaks.
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
