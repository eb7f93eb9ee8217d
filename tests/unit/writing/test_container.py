from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

import accel
from accel.format.embedded import parse_toc
from accel.writing import embed
from tests.unit.writing.files import metadata_of, read_all, sample, write


def test_idx1_stands_where_the_footer_says(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet")
    embed(path, indexes={"id": "bitmap", "category": ["distinct", "idx1"]})
    data = Path(path).read_bytes()
    at = int(pq.read_metadata(path).metadata[b"distinct_index_offset"])
    length = int.from_bytes(data[at + 4 : at + 12], "little")
    values = data[at + 12 : at + 12 + length].decode().split("\n")
    assert data[at : at + 4] == b"IDX1"
    assert values == sorted({v for v in sample().column("category").to_pylist() if v is not None})


def test_again_takes_the_place_of_what_was_there(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet")
    embed(path, indexes={"id": "bitmap"})
    once = Path(path).read_bytes()
    embed(path, indexes={"id": ["bitmap", "zonemap"], "category": "idx1"})
    embed(path, indexes={"id": "bitmap", "category": "idx1"})
    embed(path, indexes={"id": "bitmap", "category": "idx1"})
    twice = Path(path).read_bytes()
    at = int(metadata_of(path).key_value["distinct_index_offset"])
    length = 12 + int.from_bytes(twice[at + 4 : at + 12], "little")
    # All that is left of the runs between is the IDX1 and its keys.
    assert len(twice) - len(once) < length + 600
    assert read_all(path).equals(sample())


def test_idx1_that_is_not_asked_for_again_stays(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet")
    embed(path, indexes={"category": "idx1"})
    at = int(metadata_of(path).key_value["distinct_index_offset"])
    before = Path(path).read_bytes()
    length = 12 + int.from_bytes(before[at + 4 : at + 12], "little")
    embed(path, indexes={"id": "distinct"})
    assert metadata_of(path).key_value["distinct_index_offset"] == str(at).encode()
    assert Path(path).read_bytes()[at : at + length] == before[at : at + length]
    assert labels(path) == [("idx1", ("category",), at), ("distinct", ("id",), None)]
    embed(path, indexes={})
    assert labels(path) == [("idx1", ("category",), at)]
    scan = accel.scan(path, "category = 'cat-5x'", cache=None)
    assert scan.count_rows() == 0
    assert scan.metrics.row_groups.kept == 0
    embed(path, indexes={"code": "idx1"})
    [(_, column, _)] = labels(path)
    assert column == ("code",)


def labels(path: str) -> list[tuple[str, tuple[str, ...], int | None]]:
    """Of each index its kind and column, and of an IDX1 its place."""
    toc = parse_toc(metadata_of(path))
    assert toc is not None
    found = {(e.kind, e.column, e.offset if e.kind == "idx1" else None): None for e in toc.entries}
    return list(found)


def test_a_label_of_an_idx1_that_somebody_replaced_goes(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet")
    embed(path, indexes={"category": "idx1"})
    data = Path(path).read_bytes()
    at = metadata_of(path).key_value["distinct_index_offset"]
    other = str(int(at) - 1).encode()
    Path(path).write_bytes(
        data.replace(
            b"distinct_index_offset\x18" + bytes([len(at)]) + at,
            b"distinct_index_offset\x18" + bytes([len(at)]) + other,
        )
    )
    assert metadata_of(path).key_value["distinct_index_offset"] == other
    embed(path, indexes={"id": "distinct"})
    assert [kind for kind, _, _ in labels(path)] == ["distinct"]


def test_what_building_took_is_told_but_to_reproducible_builds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "a.parquet")
    indexes = {"id": ["bitmap", "zonemap"], "category": "idx1"}
    embed(path, indexes=indexes)
    toc = parse_toc(metadata_of(path))
    assert toc is not None
    assert {entry.kind for entry in toc.entries} == {"bitmap", "zonemap", "idx1"}
    assert all(entry.seconds is not None and 0 <= entry.seconds < 60 for entry in toc.entries)
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "0")
    copies = []
    for name in ("b.parquet", "c.parquet"):
        embed(path, str(tmp_path / name), indexes=indexes)
        copies.append((tmp_path / name).read_bytes())
    assert copies[0] == copies[1]
    toc = parse_toc(metadata_of(tmp_path / "b.parquet"))
    assert toc is not None
    assert {entry.seconds for entry in toc.entries} == {None}


def test_without_indexes_the_earlier_ones_go(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet")
    embed(path, indexes={})
    before = Path(path).read_bytes()
    embed(path, indexes={"id": "bitmap"})
    embed(path, indexes={})
    assert Path(path).read_bytes() == before


@pytest.mark.parametrize(
    "toc",
    [
        b"",
        b"{",
        b"[]",
        b"7",
        b"\xff\xfe",
        b'{"indexes": 7}',
        b'{"indexes": [{"offset": "4", "length": "9", "kind": "x"}]}',
        b'{"indexes": [{"offset": -9, "length": 999999999999, "kind": "x"}]}',
        b'{"indexes": [{"offset": 4, "length": 999999999999, "kind": "x"}]}',
        b"[" * 100_000,
    ],
    ids=range(10),
)
def test_a_table_of_contents_that_makes_no_sense(tmp_path: Path, toc: bytes) -> None:
    table = sample().replace_schema_metadata({b"accel.indexes": toc})
    path = write(tmp_path / "a.parquet", table)
    embed(path, indexes={"id": "distinct"})
    assert read_all(path).drop_columns([]).equals(sample())
    assert metadata_of(path).key_value["accel.indexes"].startswith(b'{"version":1')
