from __future__ import annotations

import asyncio
import io
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import obstore
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from obstore.store import LocalStore, MemoryStore

from accel.errors import (
    AccelError,
    ColumnNotFoundError,
    EncryptedFileError,
    ObjectChangedError,
    ObjectNotFoundError,
    ParquetFormatError,
    SchemaMismatchError,
    StoreError,
)
from accel.format.page_index import parse_column_index, parse_offset_index
from accel.options import Options
from accel.ranges import ByteRange, Suffix
from accel.writing import EmbedProgress, embed, embed_async, source
from accel.writing.tail import edit_footer
from tests.unit.writing.files import metadata_of, read_all, read_bytes, sample, write


def page_indexes(path: str | Path) -> dict[tuple[int, int], tuple[Any, ...]]:
    """What the page index says of each chunk, as plain values."""
    data = Path(path).read_bytes()
    metadata = metadata_of(path)
    chunks = metadata.chunks
    found: dict[tuple[int, int], tuple[Any, ...]] = {}
    for group, leaf in np.ndindex(chunks.start.shape):
        at = (group, leaf)
        if chunks.offset_index_offset[at] <= 0:
            continue
        begin = int(chunks.offset_index_offset[at])
        index = parse_offset_index(
            data[begin : begin + int(chunks.offset_index_length[at])],
            num_rows=int(metadata.group_rows[group]),
            lower=int(chunks.start[at]),
            upper=int(chunks.end[at]),
        )
        bounds: tuple[Any, ...] = ()
        begin = int(chunks.column_index_offset[at])
        if begin > 0:
            column = parse_column_index(
                data[begin : begin + int(chunks.column_index_length[at])], num_pages=index.num_pages
            )
            spans = zip(column.min_start, column.min_length, column.max_start, column.max_length, strict=True)
            pairs = [(column.blob[a : a + n], column.blob[b : b + m]) for a, n, b, m in spans]
            bounds = (
                column.null_pages.tolist(), column.boundary_order, column.null_count.tolist(), pairs
            )  # fmt: skip
        found[at] = (index.offset.tolist(), index.size.tolist(), index.first_row.tolist(), bounds)
    return found


def without_page_index(path: str) -> None:
    """The same file, as if its writer had made none."""
    metadata = metadata_of(path)
    none = np.full(metadata.chunks.start.shape, -1, np.int64)
    footer = edit_footer(metadata.footer, places=np.stack([none] * 4), key_value={})
    data = Path(path).read_bytes()[: int(metadata.chunks.end.max())]
    Path(path).write_bytes(data + footer + len(footer).to_bytes(4, "little") + b"PAR1")


@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_the_page_index_that_is_added_is_the_writers_own(tmp_path: Path, version: str) -> None:
    path = write(tmp_path / "a.parquet", data_page_version=version, write_page_index=True)
    truth = page_indexes(path)
    without_page_index(path)
    assert page_indexes(path) == {}
    report = embed(path, indexes={})
    found = page_indexes(path)
    assert (report.page_indexes_added, report.column_indexes_added) == (30, 27)
    assert report.pages_unknown == ()
    assert found.keys() == truth.keys()
    tags = [leaf.ordinal for leaf in metadata_of(path).schema.leaves if leaf.max_repetition]
    for at, (offset, size, first_row, bounds) in truth.items():
        assert found[at] == (offset, size, first_row, () if at[1] in tags else bounds), at
    assert len(truth) == 30
    assert read_all(path).equals(sample())


def test_a_complete_file_gets_the_same_bytes_again(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", write_page_index=True)
    before = Path(path).read_bytes()
    report = embed(path, indexes={})
    assert Path(path).read_bytes() == before
    assert (report.page_indexes_added, report.size_before, report.size_after) == (0, len(before), len(before))


def test_twice_is_as_once(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet")
    embed(path, indexes={})
    once = Path(path).read_bytes()
    embed(path, indexes={})
    assert Path(path).read_bytes() == once


def test_data_keys_and_blooms_stay_where_they_are(tmp_path: Path) -> None:
    blooms = {"id": {"ndv": 1000}, "category": {"ndv": 30}}
    path = write(tmp_path / "a.parquet", bloom_filter_options=blooms)
    old, before = metadata_of(path), Path(path).read_bytes()
    embed(path, indexes={})
    new, after = metadata_of(path), Path(path).read_bytes()
    assert after[: old.footer_start] == before[: old.footer_start]
    assert new.key_value == old.key_value
    assert set(old.key_value) == {"ARROW:schema", "owner", "empty"}
    assert (old.chunks.bloom_offset > 0).sum() == 6
    assert new.chunks.bloom_offset.tolist() == old.chunks.bloom_offset.tolist()


def test_what_others_put_behind_the_page_index_stays(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", write_page_index=True)
    data = Path(path).read_bytes()
    metadata = metadata_of(path)
    foreign = b"SOMETHING OF SOMEBODY'S"
    Path(path).write_bytes(data[: metadata.footer_start] + foreign + data[metadata.footer_start :])
    embed(path, indexes={})
    after = Path(path).read_bytes()
    assert after[metadata.footer_start :].startswith(foreign)
    assert page_indexes(path).keys() == {(g, c) for g in range(3) for c in range(10)}
    assert read_all(path).equals(sample())


def test_to_another_name_the_source_is_untouched(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet")
    before = Path(path).read_bytes()
    report = embed(path, tmp_path / "b.parquet", indexes={})
    assert Path(path).read_bytes() == before
    assert report.path == str(tmp_path / "b.parquet")
    assert read_all(tmp_path / "b.parquet").equals(sample())
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.parquet", "b.parquet"]


def test_a_symbolic_link_stays_one(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet")
    link = tmp_path / "link.parquet"
    link.symlink_to(path)
    embed(link, indexes={})
    assert link.is_symlink()
    assert len(page_indexes(path)) == 30


def test_a_dry_run_writes_nothing(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet")
    before = Path(path).read_bytes()
    report = embed(path, indexes={}, dry_run=True)
    assert not report.written
    assert (report.page_indexes_added, Path(path).read_bytes()) == (30, before)
    assert embed(path, indexes={}).size_after == report.size_after


def change_meanwhile(monkeypatch: pytest.MonkeyPatch, change: Any) -> None:
    """Have something happen once the copy is complete."""
    original = source.LocalSource.check_unchanged

    def check(self: source.LocalSource) -> None:
        change()
        original(self)

    monkeypatch.setattr(source.LocalSource, "check_unchanged", check)


@pytest.mark.parametrize("how", ["rewritten", "replaced", "touched", "removed", "appended"])
def test_a_change_meanwhile_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    path = Path(write(tmp_path / "a.parquet"))
    theirs = path.read_bytes()[::-1]

    def change() -> None:
        if how == "rewritten":
            path.write_bytes(theirs)
        elif how == "replaced":
            (tmp_path / "other").write_bytes(theirs)
            os.replace(tmp_path / "other", path)
        elif how == "touched":
            os.utime(path, ns=(1, 1))
        elif how == "removed":
            path.unlink()
        else:
            with open(path, "ab") as file:
                file.write(b"x")

    expected = path.read_bytes()
    change_meanwhile(monkeypatch, change)
    with pytest.raises(ObjectChangedError, match="changed meanwhile"):
        embed(path, indexes={})
    if how == "removed":
        assert list(tmp_path.iterdir()) == []
    else:
        assert list(tmp_path.iterdir()) == [path]
        assert path.read_bytes() == {"touched": expected, "appended": expected + b"x"}.get(how, theirs)


def test_progress_is_told_and_may_end_it(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet")
    before = Path(path).read_bytes()
    calls: list[EmbedProgress] = []
    report = embed(path, tmp_path / "b.parquet", indexes={}, progress=calls.append)
    assert [p.stage for p in calls] == sorted((p.stage for p in calls), key=["index", "copy"].index)
    assert (calls[-1].done, calls[-1].total) == (report.size_after, report.size_after)

    def stop(now: EmbedProgress) -> None:
        if now.stage == "copy":
            raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        embed(path, indexes={}, progress=stop)
    assert Path(path).read_bytes() == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.parquet", "b.parquet"]


async def test_async_is_the_same(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet")
    report = await embed_async(path, indexes={})
    assert report.page_indexes_added == 30
    assert read_all(path).equals(sample())


@pytest.mark.parametrize("times", [1, 3])
async def test_cancelling_leaves_the_file_as_it_was(tmp_path: Path, times: int) -> None:
    path = write(tmp_path / "a.parquet")
    before = Path(path).read_bytes()
    loop = asyncio.get_running_loop()
    reached, go = asyncio.Event(), asyncio.Event()

    def progress(now: EmbedProgress) -> None:
        loop.call_soon_threadsafe(reached.set)
        asyncio.run_coroutine_threadsafe(go.wait(), loop).result()

    task = asyncio.create_task(embed_async(path, indexes={}, progress=progress))
    await reached.wait()
    for _ in range(times):
        task.cancel()
        for _ in range(5):
            await asyncio.sleep(0)
    left_its_thread = task.done()
    go.set()
    assert not left_its_thread
    with pytest.raises(asyncio.CancelledError):
        await task
    assert Path(path).read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["a.parquet"]


@pytest.mark.parametrize(
    ("indexes", "error", "message"),
    [
        pytest.param(
            {"nope": "distinct"}, ColumnNotFoundError, "no column nope .there are id, ", id="no column"
        ),
        pytest.param({"catgory": "distinct"}, ColumnNotFoundError, "did you mean category", id="nearly one"),
        pytest.param({"tags": "distinct"}, SchemaMismatchError, "nested", id="list"),
        pytest.param({"place": "distinct"}, SchemaMismatchError, "nested", id="struct"),
        pytest.param({"id": "nope"}, ValueError, "no index kind 'nope'", id="no kind"),
        pytest.param({"id": 7}, TypeError, "7 is no index kind", id="number"),
        pytest.param({"id": ("distinct", "row range")}, ValueError, "no level 'row range'", id="level"),
        pytest.param({"category": "idx1", "code": "idx1"}, ValueError, "one idx1", id="idx1 twice"),
        pytest.param({"id": ["distinct", "distinct"]}, ValueError, "twice", id="twice"),
        pytest.param({"category": ("idx1", "page")}, ValueError, "whole file", id="idx1 by page"),
        pytest.param({"id": "idx1"}, SchemaMismatchError, "idx1 lists texts", id="idx1 of numbers"),
        pytest.param(["id"], TypeError, "maps columns", id="no mapping"),
        pytest.param({1: "bitmap"}, TypeError, "names a column by text, not by 1", id="column by number"),
    ],
)
def test_what_cannot_be_indexed(tmp_path: Path, indexes: Any, error: type[Exception], message: str) -> None:
    path = write(tmp_path / "a.parquet")
    before = Path(path).read_bytes()
    with pytest.raises(error, match=message):
        embed(path, indexes=indexes)
    assert Path(path).read_bytes() == before


@pytest.mark.parametrize(
    ("data", "error"),
    [
        pytest.param(b"", ParquetFormatError, id="empty"),
        pytest.param(b"PAR1", ParquetFormatError, id="short"),
        pytest.param(b"x" * 100, ParquetFormatError, id="no parquet"),
        pytest.param(b"PAR1" + b"\0" * 50 + b"\x10\0\0\0PARE", EncryptedFileError, id="encrypted footer"),
        pytest.param(b"PAR1" + b"\0" * 50 + b"\xff\xff\0\0PAR1", ParquetFormatError, id="long footer"),
    ],
)
def test_files_that_are_none(tmp_path: Path, data: bytes, error: type[Exception]) -> None:
    path = tmp_path / "a.parquet"
    path.write_bytes(data)
    with pytest.raises(error, match=r"a\.parquet"):
        embed(path, indexes={})
    assert path.read_bytes() == data


def test_a_missing_file_and_a_directory(tmp_path: Path) -> None:
    with pytest.raises(ObjectNotFoundError, match="no such file"):
        embed(tmp_path / "none.parquet", indexes={})
    one = "`accel.embed_files` takes a directory; of a pattern, each file is given by itself"
    with pytest.raises(ObjectNotFoundError, match=f"regular file .{one}"):
        embed(tmp_path, indexes={})
    with pytest.raises(ObjectNotFoundError, match=f"no such file .{one}"):
        embed(tmp_path / "*.parquet", indexes={})
    with pytest.raises(TypeError, match="call it for each of a list"):
        embed([tmp_path], indexes={})  # type: ignore[arg-type]
    path = write(tmp_path / "a.parquet")
    with pytest.raises(StoreError, match="directory"):
        embed(path, str(tmp_path) + "/", indexes={})


def stored(store: Any) -> bytes:
    obstore.put(store, "in/a.parquet", _file())
    return _file()


def _file(**more: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(sample(), sink, row_group_size=1000, max_rows_per_page=128, **more)
    return sink.getvalue()


def test_in_a_store_to_another_name() -> None:
    store = MemoryStore()
    before = stored(store)
    report = embed("in/a.parquet", "out/b.parquet", indexes={}, store=store)
    assert report.page_indexes_added == 30
    after = bytes(obstore.get(store, "out/b.parquet").bytes())
    assert len(after) == report.size_after
    assert read_bytes(after).equals(sample())
    assert bytes(obstore.get(store, "in/a.parquet").bytes()) == before


def test_in_place_in_a_store_by_one_conditional_put() -> None:
    store = MemoryStore()
    stored(store)
    embed("in/a.parquet", indexes={}, store=store)
    assert read_bytes(bytes(obstore.get(store, "in/a.parquet").bytes())).equals(sample())


def test_in_place_above_the_limit_is_refused() -> None:
    store = MemoryStore()
    before = stored(store)
    with pytest.raises(StoreError, match="cannot be replaced in place: one request takes up to 1000"):
        embed("in/a.parquet", indexes={}, store=store, options=Options(max_conditional_put_bytes=1000))
    assert bytes(obstore.get(store, "in/a.parquet").bytes()) == before


def test_another_version_in_the_store_is_kept() -> None:
    store = MemoryStore()
    stored(store)

    def change(now: EmbedProgress) -> None:
        if now.stage == "copy" and now.done == now.total:
            obstore.put(store, "in/a.parquet", b"theirs")

    with pytest.raises(ObjectChangedError, match="changed meanwhile"):
        embed("in/a.parquet", indexes={}, store=store, progress=change)
    assert bytes(obstore.get(store, "in/a.parquet").bytes()) == b"theirs"


@pytest.mark.parametrize("stage", ["index", "copy"])
def test_a_change_while_it_is_read_ends_it(stage: str) -> None:
    store = MemoryStore()
    stored(store)

    def change(now: EmbedProgress) -> None:
        if now.stage == stage and now.done == 0:
            obstore.put(store, "in/a.parquet", _file(compression="none"))

    with pytest.raises(ObjectChangedError, match=r"^in/a\.parquet\b"):
        embed("in/a.parquet", "out/b.parquet", indexes={}, store=store, progress=change)
    with pytest.raises(FileNotFoundError):
        obstore.head(store, "out/b.parquet")


def test_a_store_without_conditional_puts(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    store = LocalStore(tmp_path)
    before = stored(store)
    with pytest.raises(StoreError, match="cannot replace one certain version"):
        embed("in/a.parquet", indexes={}, store=store)
    assert (tmp_path / "in/a.parquet").read_bytes() == before
    embed("in/a.parquet", "in/b.parquet", indexes={}, store=store)
    assert read_all(tmp_path / "in/b.parquet").equals(sample())


async def test_a_store_that_only_reads() -> None:
    class Reader:
        def __init__(self) -> None:
            self.inner = MemoryStore()
            stored(self.inner)

        async def read(self, path: str, want: ByteRange | Suffix, *, if_match: str | None = None) -> Any:
            from accel.store.obstore_store import ObstoreStore

            return await ObstoreStore(self.inner).read(path, want, if_match=if_match)

    with pytest.raises(StoreError, match="cannot be written"):
        await embed_async("in/a.parquet", "b.parquet", indexes={}, store=Reader())


def test_columns_in_other_files_are_refused(tmp_path: Path) -> None:
    from accel.format.thrift import BINARY, read_struct, write_struct

    path = Path(write(tmp_path / "a.parquet"))
    metadata = metadata_of(path)
    fields, _ = read_struct(metadata.footer)
    fields[4][1].items[0][1][1].items[0][1] = (BINARY, b"b.parquet")
    footer = write_struct(fields)
    data = path.read_bytes()[: metadata.footer_start]
    path.write_bytes(data + footer + len(footer).to_bytes(4, "little") + b"PAR1")
    with pytest.raises(ParquetFormatError, match="other files"):
        embed(path, indexes={})


def test_encrypted_columns_and_signed_footers_are_refused(tmp_path: Path) -> None:
    from accel.format.thrift import STRUCT, read_struct, write_struct

    for number in ("column", "footer"):
        path = Path(write(tmp_path / "a.parquet"))
        metadata = metadata_of(path)
        fields, _ = read_struct(metadata.footer)
        if number == "column":
            fields[4][1].items[0][1][1].items[0][8] = (STRUCT, {1: (STRUCT, {})})
        else:
            fields[8] = (STRUCT, {1: (STRUCT, {})})
        footer = write_struct(fields)
        data = path.read_bytes()[: metadata.footer_start]
        path.write_bytes(data + footer + len(footer).to_bytes(4, "little") + b"PAR1")
        with pytest.raises(EncryptedFileError):
            embed(path, indexes={})


def test_a_damaged_page_index_is_made_anew(tmp_path: Path) -> None:
    path = Path(write(tmp_path / "a.parquet", write_page_index=True))
    truth = page_indexes(path)
    data = bytearray(path.read_bytes())
    begin = int(metadata_of(path).chunks.offset_index_offset[1, 0])
    data[begin] = 0
    path.write_bytes(bytes(data))
    report = embed(path, indexes={})
    (warning,) = report.warnings
    assert warning.startswith(f"{path}, row group 1, column id, offset index: ")
    assert warning.endswith(": this page index is made anew")
    assert report.page_indexes_added == 1
    assert page_indexes(path) == truth


@pytest.mark.parametrize("rows", [0, 1])
def test_tiny_files(tmp_path: Path, rows: int) -> None:
    table = sample(3).slice(0, rows)
    path = write(tmp_path / "a.parquet", table)
    embed(path, indexes={})
    assert read_all(path).equals(table)


def test_unknown_rows_of_pages_add_nothing(tmp_path: Path) -> None:
    # A chunk whose page headers lie about the values: its pages cannot be located.
    path = Path(write(tmp_path / "a.parquet", pa.table({"a": [1, 2, 3], "b": [1, 2, 3]})))
    shutil.copy(path, tmp_path / "b.parquet")
    from accel.format.thrift import I64, read_struct, write_struct

    metadata = metadata_of(path)
    fields, _ = read_struct(metadata.footer)
    fields[4][1].items[0][1][1].items[0][3][1][5] = (I64, 4)
    footer = write_struct(fields)
    data = path.read_bytes()[: metadata.footer_start]
    path.write_bytes(data + footer + len(footer).to_bytes(4, "little") + b"PAR1")
    report = embed(path, indexes={})
    assert report.pages_unknown == ("a",)
    assert page_indexes(path) == {}


def test_errors_are_of_accel() -> None:
    assert issubclass(ObjectChangedError, AccelError)
