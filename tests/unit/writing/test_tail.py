from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import accel
from accel.errors import ParquetFormatError
from accel.format.embedded import TOC_KEY, Entry, parse_toc, unpack_head
from accel.format.footer import parse_footer
from accel.format.model import FileMetadata
from accel.format.thrift import BINARY, I64, STRUCT, read_struct, write_struct
from accel.testing import DictStore, Layout, RecordingStore, write_file
from accel.writing import embed
from accel.writing.tail import edit_footer
from tests.unit.writing.files import metadata_of, read_all, sample, write


@pytest.fixture(scope="module")
def metadata(tmp_path_factory: pytest.TempPathFactory) -> FileMetadata:
    path = write(tmp_path_factory.mktemp("footer") / "a.parquet", write_page_index=True)
    return metadata_of(path)


def places_of(metadata: FileMetadata) -> np.ndarray:
    chunks = metadata.chunks
    return np.stack(
        [
            chunks.offset_index_offset,
            chunks.offset_index_length,
            chunks.column_index_offset,
            chunks.column_index_length,
        ]
    )


def parsed(footer: bytes, metadata: FileMetadata) -> FileMetadata:
    return parse_footer(footer, file_size=1 << 40, footer_start=metadata.footer_start)


def test_nothing_changed_is_the_same_bytes(metadata: FileMetadata) -> None:
    assert edit_footer(metadata.footer, places=places_of(metadata), key_value={}) == metadata.footer


def test_places_are_set_and_removed_and_all_else_stays(metadata: FileMetadata) -> None:
    shape = metadata.chunks.start.shape
    numbers = np.arange(np.prod(shape), dtype=np.int64).reshape(shape) + 5
    none = np.full(shape, -1, np.int64)
    footer = edit_footer(metadata.footer, places=np.stack([numbers, numbers * 2, none, none]), key_value={})
    found = parsed(footer, metadata).chunks
    assert found.offset_index_offset.tolist() == numbers.tolist()
    assert found.offset_index_length.tolist() == (numbers * 2).tolist()
    assert (found.column_index_offset == -1).all()
    assert (found.column_index_length == -1).all()
    assert edit_footer(footer, places=places_of(metadata), key_value={}) == metadata.footer


def test_keys_are_added_replaced_and_removed_in_place(metadata: FileMetadata) -> None:
    def edit(footer: bytes, **pairs: bytes | None) -> bytes:
        return edit_footer(footer, places=places_of(metadata), key_value=pairs)

    before = dict(metadata.key_value)
    footer = edit(metadata.footer, ours=b"\xff\x00one", theirs=b"two")
    assert dict(parsed(footer, metadata).key_value) == {**before, "ours": b"\xff\x00one", "theirs": b"two"}
    again = edit(footer, ours=b"three")
    assert list(parsed(again, metadata).key_value.items()) == [
        *before.items(),
        ("theirs", b"two"),
        ("ours", b"three"),
    ]
    assert edit(again, ours=None, theirs=None) == metadata.footer


def test_a_footer_without_keys_gets_the_list(metadata: FileMetadata) -> None:
    fields, _ = read_struct(metadata.footer)
    del fields[5]
    footer = edit_footer(write_struct(fields), places=places_of(metadata), key_value={"k": b"v"})
    assert dict(parsed(footer, metadata).key_value) == {"k": b"v"}


def test_fields_that_nobody_knows_stay(metadata: FileMetadata) -> None:
    fields, _ = read_struct(metadata.footer)
    unknown = (STRUCT, {1: (BINARY, b"future"), 40: (I64, -3)})
    fields[900] = unknown
    group = fields[4][1].items[0]
    group[77] = unknown
    chunk = group[1][1].items[2]
    chunk[55] = unknown
    chunk[3][1][99] = unknown
    footer = write_struct(fields)
    assert edit_footer(footer, places=places_of(metadata), key_value={}) == footer
    edited, _ = read_struct(edit_footer(footer, places=places_of(metadata), key_value={"k": b"v"}))
    chunk = edited[4][1].items[0][1][1].items[2]
    assert edited[900] == edited[4][1].items[0][77] == chunk[55] == chunk[3][1][99] == unknown


def test_type_orders_take_the_place_of_none(metadata: FileMetadata) -> None:
    fields, _ = read_struct(metadata.footer)
    leaves = len(metadata.schema.leaves)
    orders = fields.pop(7)
    footer = edit_footer(write_struct(fields), places=places_of(metadata), key_value={}, type_orders=leaves)
    assert read_struct(footer)[0][7] == orders
    assert footer == metadata.footer


@pytest.mark.parametrize("shape", [(2, 11), (3, 9), (4, 11)], ids=str)
def test_other_row_groups_or_columns_are_refused(metadata: FileMetadata, shape: tuple[int, int]) -> None:
    assert metadata.chunks.start.shape == (3, 10)
    none = np.full(shape, -1, np.int64)
    with pytest.raises(ParquetFormatError, match=r"were read"):
        edit_footer(metadata.footer, places=np.stack([none] * 4), key_value={})


def test_a_field_twice_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", pa.table({"a": [1]}))
    metadata = metadata_of(path)
    # num_rows once more, by its long header, before STOP.
    footer = metadata.footer[:-1] + b"\x06\x06\x02\x00"
    with pytest.raises(ParquetFormatError, match="twice"):
        edit_footer(footer, places=places_of(metadata), key_value={})


@pytest.mark.parametrize("length", [1, 40, 400, 1500])
def test_a_cut_footer_is_a_format_error(metadata: FileMetadata, length: int) -> None:
    with pytest.raises(ParquetFormatError):
        edit_footer(metadata.footer[:length], places=places_of(metadata), key_value={})


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


# The heads of large indexes stand once more beside the footer, where the first read brings them.
ROWS = 24_000
NAME = "f.parquet"


@pytest.fixture(scope="module")
def rows() -> pa.Table:
    keys = [(n * 7919 + 13) % ROWS * 3 for n in range(ROWS)]
    columns = [pa.array(keys, pa.int64()), pa.array([f"text {n % 900}" for n in range(ROWS)])]
    return pa.Table.from_arrays([*columns, pa.array(range(ROWS))], names=["key", "text", "place"])


@pytest.fixture
def path(tmp_path: Path, rows: pa.Table) -> str:
    file = tmp_path / NAME
    file.write_bytes(write_file(rows, Layout(group_rows=ROWS // 2, page_rows=500)))
    embed(file, indexes={"key": "bitmap", "text": ["distinct", "bitmap"]})
    return str(file)


def entries(path: str) -> tuple[Entry, ...]:
    toc = parse_toc(metadata_of(path))
    assert toc is not None
    return toc.entries


def test_each_is_what_the_index_begins_with(path: str) -> None:
    data, again = Path(path).read_bytes(), []
    for entry in entries(path):
        assert (entry.head_again is not None) is (entry.length > 64 << 10), entry
        if entry.head_again is not None:
            offset, length = entry.head_again
            first = data[entry.offset : entry.offset + entry.head]
            assert unpack_head(data[offset : offset + length], entry.head) == first
            again.append(offset + length)
    assert again
    assert again[-1] == metadata_of(path).footer_start


def test_embedding_again_leaves_none_behind(path: str) -> None:
    size = Path(path).stat().st_size
    embed(path, indexes={"key": "bitmap", "text": ["distinct", "bitmap"]})
    assert abs(Path(path).stat().st_size - size) < 40  # the seconds that it took, in digits


def scanned(data: bytes, key: int, **options: int) -> tuple[pa.Table, accel.Scan, RecordingStore]:
    store = RecordingStore(DictStore({NAME: data}))
    scan = accel.scan(
        NAME,
        f"key = {key}",
        store=store,
        cache=accel.Cache(),
        options=accel.Options(probe_min_bytes=0, **options),
    )
    return scan.to_table(), scan, store


@pytest.mark.parametrize("place", [0, 1, 11_999, 12_000, 23_999])
def test_lookups_save_a_round_trip_and_find_the_same(path: str, rows: pa.Table, place: int) -> None:
    wanted = rows.slice(place, 1).to_pylist()
    data, key = Path(path).read_bytes(), wanted[0]["key"]
    tail = len(data) - min(e.head_again[0] for e in entries(path) if e.head_again)
    found, scan, store = scanned(data, key, tail_hint=tail, max_tail_hint=tail)
    assert found.to_pylist() == wanted
    assert (scan.metrics.indexes_ignored, scan.metrics.rows.kept) == (0, 500)
    spans = [(e.offset, e.offset + e.head) for e in entries(path) if e.head_again]
    asked = [(call.range.start, call.range.end) for call in store.calls if call.range is not None]
    assert not set(spans) & set(asked)


@pytest.mark.parametrize(
    "place",
    [None, [], 9, "x", [3], [3, 9], [1 << 62, 9], [9, 1 << 62], [True, 9], [90, 0], [90, -1], {"a": 1}],
    ids=repr,
)
def test_a_place_that_is_none_is_passed_over(path: str, place: object) -> None:
    metadata = metadata_of(path)
    toc = json.loads(metadata.key_value[TOC_KEY])
    del toc["checksum"]
    for run in toc["indexes"]:
        run["heads_again"] = [place] * len(run["at"])
    metadata.key_value[TOC_KEY] = json.dumps(toc).encode()  # type: ignore[index]
    parsed = parse_toc(metadata)
    assert parsed is not None
    assert {entry.head_again for entry in parsed.entries} == {None}


def test_one_that_does_not_verify_costs_no_row(path: str, rows: pa.Table) -> None:
    wanted = rows.slice(77, 1).to_pylist()
    data = bytearray(Path(path).read_bytes())
    for entry in entries(path):
        if entry.head_again:
            data[entry.head_again[0] + 20] ^= 1
    found, scan, _ = scanned(bytes(data), wanted[0]["key"])
    assert found.to_pylist() == wanted
    assert scan.metrics.indexes_ignored == 2  # of each row group


def test_page_indexes_that_come_with_the_footer_still_do(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    packed = [e.head_again[1] for e in entries(path) if e.head_again]
    metadata = metadata_of(path)
    first = int(metadata.chunks.column_index_offset.min())
    near = metadata.file_size - first - sum(packed)
    monkeypatch.setattr("accel.writing.tail.MOST_TAIL", near + packed[0] + 2048)
    embed(path, indexes={"key": "bitmap", "text": ["distinct", "bitmap"]})
    assert sum(e.head_again is not None for e in entries(path)) == 1
    monkeypatch.setattr("accel.writing.tail.MOST_TAIL", near - 4096)
    embed(path, indexes={"key": "bitmap", "text": ["distinct", "bitmap"]})
    assert sum(e.head_again is not None for e in entries(path)) == len(packed)
