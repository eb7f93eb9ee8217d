from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import accel
from accel.errors import AccelError, MemoryLimitError, SchemaMismatchError
from accel.format.embedded import parse_toc
from accel.format.footer import parse_footer
from accel.indexes import Bitmap, Bloom, Distinct, Ngram, Sketch, Zonemap
from accel.indexes.kind import ChunkValues, IndexKind, Level
from accel.options import Options
from accel.testing import Layout, write_file
from accel.writing.index_building import MANY_GROUPS, BuiltIndex, TimedBuilder
from accel.writing.original import open_original
from accel.writing.scratch import Scratch, ScratchBytes
from accel.writing.survey import Survey
from accel.writing.values import ColumnValues
from accel.writing.wanted import read_wanted
from tests.unit.writing.files import as_source, read_all, sample, write


def build(path: str | Path, indexes: Any, **options: Any) -> list[tuple[BuiltIndex, bytes]]:
    source = as_source(path)
    chosen, scratch = Options(**options), Scratch(memory_bytes=100)
    try:
        original = open_original(source, options=chosen)
        wanted = read_wanted(indexes, original.metadata)
        _, built = Survey(original, wanted, options=chosen, scratch=scratch).run(lambda count: None)
        return [(index, index.data.read()) for index in built]
    finally:
        source.close()


@pytest.mark.parametrize("index", [False, True], ids=["pages found", "pages known"])
@pytest.mark.parametrize(
    "kind", [Distinct(), Bitmap(), Bloom(), Zonemap(), Ngram(), Sketch()], ids=lambda kind: kind.name
)
def test_the_bytes_are_those_of_the_values(tmp_path: Path, kind: IndexKind, index: bool) -> None:
    path = write(tmp_path / "a.parquet", write_page_index=index)
    column = sample().column("category").combine_chunks()
    firsts = np.arange(0, 1000, 128)
    chunks = [ChunkValues(column.slice(1000 * g, 1000), firsts, 1000) for g in range(3)]
    levels = sorted(kind.levels)
    built = build(path, {"category": [(kind, str(level)) for level in levels]})
    found = {(i.wanted.level, i.row_group): data for i, data in built}
    assert len(found) == len(built) == sum(1 if level is Level.FILE else 3 for level in levels)
    for (level, group), data in found.items():
        if level is Level.FILE:
            truth = kind.build(iter(chunks), level=level)
        else:
            truth = kind.build(iter(chunks[group : group + 1]), level=level)
        # Values come coded by the file's dictionary, so they may stand in another order.
        assert len(data) == len(truth) or kind.name in ("bitmap", "ngram")
        if level is not Level.ROW_RANGE:
            units = 8 if level is Level.PAGE else 1
            assert kind.parse(data, level=level, units=units).nbytes > 0
            (entry,) = [i for i, _ in built if (i.wanted.level, i.row_group) == (level, group)]
            assert entry.units == units


class Recorder(IndexKind):
    """Keeps what it is given."""

    name = "recorder"
    levels = frozenset(Level)

    def __init__(self) -> None:
        self.seen: list[tuple[Level, list[ChunkValues]]] = []

    def build(self, chunks: Any, *, level: Level) -> bytes:
        self.seen.append((level, list(chunks)))
        return b"recorded"


@pytest.mark.parametrize(
    "name", ["id", "category", "price", "flag", "place.x", "place.y", "money", "at", "code"]
)
def test_what_a_kind_gets(tmp_path: Path, name: str) -> None:
    path = write(tmp_path / "a.parquet")
    kind = Recorder()
    build(path, {name: [(kind, "file"), (kind, "page")]})
    top, _, field = name.partition(".")
    column = read_all(path).column(top)
    if field:
        column = pa.chunked_array([part.flatten()["xy".index(field)] for part in column.chunks])
    truth = column.combine_chunks()
    if pa.types.is_dictionary(truth.type):
        truth = truth.dictionary_decode()
    by_level: dict[Level, list[list[ChunkValues]]] = {}
    for level, chunks in kind.seen:
        by_level.setdefault(level, []).append(chunks)
    assert [len(chunks) for chunks in by_level[Level.FILE]] == [3]
    assert [len(chunks) for chunks in by_level[Level.PAGE]] == [1, 1, 1]
    for group, chunk in enumerate(by_level[Level.FILE][0]):
        assert chunk is by_level[Level.PAGE][group][0]  # decoded once
        array = chunk.array
        if pa.types.is_dictionary(array.type):
            array = array.dictionary_decode()
        assert array.equals(truth.slice(1000 * group, 1000))
        assert (chunk.num_rows, chunk.first_rows.tolist()) == (1000, list(range(0, 1000, 128)))


def test_a_kind_that_stops_early_keeps_nobody_from_their_row_groups(tmp_path: Path) -> None:
    class Hasty(Recorder):
        def build(self, chunks: Any, *, level: Level) -> bytes:
            return b"first" if next(iter(chunks)) else b""

    path = write(tmp_path / "a.parquet")
    recorder = Recorder()
    build(path, {"id": [(Hasty(), "file"), (recorder, "page")]})
    assert len(recorder.seen) == 3


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        pytest.param(lambda: 1 / 0, r"recorder failed: ZeroDivisionError: .*", id="raises"),
        pytest.param(lambda: "text", "recorder built a str, not bytes", id="no bytes"),
    ],
)
def test_a_kind_that_fails_is_named(tmp_path: Path, answer: Any, message: str) -> None:
    class Broken(Recorder):
        def build(self, chunks: Any, *, level: Level) -> bytes:
            return answer()  # type: ignore[no-any-return]

    path = write(tmp_path / "a.parquet")
    with pytest.raises(AccelError, match=message) as caught:
        build(path, {"id": Broken()})
    assert "column id, row group 0" in str(caught.value)


def test_a_file_without_row_groups(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", sample(3).slice(0, 0))
    kind = Recorder()
    built = build(path, {"id": [(kind, "file"), (kind, "page")]})
    assert {i.wanted.level for i, _ in built} >= {Level.FILE}


class TestIdx1:
    def test_the_bytes(self, tmp_path: Path) -> None:
        values = ["foo", "bär", None, "foo", "", "qux"] * 3
        path = write(tmp_path / "a.parquet", pa.table({"c": values}))
        [(_, data)] = build(path, {"c": "idx1"})
        body = "\nbär\nfoo\nqux".encode()
        assert data == b"IDX1" + len(body).to_bytes(8, "little") + body

    @pytest.mark.parametrize("dictionary", [True, False])
    def test_every_row_group_counts(self, tmp_path: Path, dictionary: bool) -> None:
        table = pa.table({"c": [f"v{i // 10:03d}" for i in range(3000)]})
        path = write(tmp_path / "a.parquet", table, use_dictionary=dictionary)
        [(_, data)] = build(path, {"c": "idx1"})
        assert data[12:].decode().split("\n") == [f"v{i:03d}" for i in range(300)]

    @pytest.mark.parametrize("values", [["a\nb"], ["a\r"], [""]], ids=repr)
    def test_what_would_read_back_as_another_is_refused(self, tmp_path: Path, values: list[str]) -> None:
        path = write(tmp_path / "a.parquet", pa.table({"c": values}))
        with pytest.raises(SchemaMismatchError, match="idx1"):
            build(path, {"c": "idx1"})

    def test_nulls_alone(self, tmp_path: Path) -> None:
        path = write(tmp_path / "a.parquet", pa.table({"c": pa.array([None, None], pa.string())}))
        [(_, data)] = build(path, {"c": "idx1"})
        assert data == b"IDX1" + bytes(8)


class TestMemory:
    """A row group of 54 kB, in pages of 7 kB, where 20 kB are allowed."""

    @pytest.fixture
    def path(self, tmp_path: Path) -> str:
        table = pa.table({"c": [f"{i:050d}" for i in range(3000)]})
        return write(tmp_path / "a.parquet", table, use_dictionary=False)

    @pytest.mark.parametrize("kind", ["distinct", "bitmap", "bloom", "ngram", "zonemap", "sketch"])
    def test_kinds_that_are_built_run_by_run_need_not_hold_a_row_group(self, path: str, kind: str) -> None:
        few, many = build(path, {"c": kind}, memory_limit=20_000), build(path, {"c": kind})
        assert [data for _, data in few] == [data for _, data in many]

    @pytest.mark.parametrize("level", ["page", "file"])
    def test_others_are_refused(self, path: str, level: str) -> None:
        with pytest.raises(MemoryLimitError, match="row group 0, column c"):
            build(path, {"c": (Recorder(), level)}, memory_limit=20_000)

    def test_a_page_beyond_the_limit(self, path: str) -> None:
        with pytest.raises(MemoryLimitError, match="row group 0, column c"):
            build(path, {"c": "distinct"}, memory_limit=5_000)


def test_several_indexes_of_a_file_decode_it_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "a.parquet")
    decoded = []
    read = ColumnValues.read_runs

    def counted(self: ColumnValues, group: int, index: Any) -> Any:
        decoded.append((self.leaf.path, group))
        return read(self, group, index)

    monkeypatch.setattr(ColumnValues, "read_runs", counted)
    whole = [(kind, "file") for kind in ("distinct", "zonemap", "sketch", Recorder(), Renamed())]
    built = build(path, {"category": [*whole, "idx1", "bitmap"]})
    assert len(built) == 9
    assert [at for at in decoded if at[0] == ("category",)] == [(("category",), group) for group in range(3)]


class Renamed(Recorder):
    name = "another"


def test_several_columns_arrive_as_structs(tmp_path: Path) -> None:
    """Cut at the pages of the first, or of the column that the index is asked for."""

    class Pair(Recorder):
        inputs = ("place.x", "category")

    path = write(tmp_path / "a.parquet")
    table = read_all(path)
    kind = Pair()
    [*built] = build(path, {"*": (kind, "page"), "id": (kind, "file")})
    assert {(i.wanted.column, i.wanted.leaf.path, i.wanted.level, i.units) for i, _ in built} == {
        ("place.x, category", ("place", "x"), Level.PAGE, 8),
        ("place.x, category", ("id",), Level.FILE, 1),
    }
    x = [None if p is None else p["x"] for p in table.column("place").to_pylist()]
    truth = list(zip(x, table.column("category").to_pylist(), strict=True))
    for level, chunks in kind.seen:
        for chunk in chunks:
            first, second = (
                part.dictionary_decode() if pa.types.is_dictionary(part.type) else part
                for part in chunk.array.flatten()
            )
            found = list(zip(first.to_pylist(), second.to_pylist(), strict=True))
            assert found in [truth[start : start + 1000] for start in (0, 1000, 2000)]
            assert chunk.first_rows.tolist() == list(range(0, 1000, 128)), level


def chunk(value: int) -> ChunkValues:
    return ChunkValues(pa.array([value]), np.zeros(1, np.int64), 1)


class Sum(IndexKind):
    name = "sum"
    levels = frozenset(Level)
    most = 99
    """Chunks that it takes."""

    def build(self, chunks: Iterable[ChunkValues], *, level: Level) -> bytes:
        total = 0
        for count, each in enumerate(chunks):
            total += each.array[0].as_py()
            if total == 13:
                raise RuntimeError("thirteen")
            if count + 1 == self.most:
                break
        return str(total).encode()


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("accel-index")]


@pytest.mark.parametrize("level", [Level.FILE, Level.PAGE])
def test_a_kind_without_a_builder(level: Level) -> None:
    builder = TimedBuilder(Sum(), level)
    for value in (1, 2, 3):
        builder.add(chunk(value))
    assert builder.finish() == b"6"
    builder.close()
    assert threads() == []


def test_one_that_stops_early_is_given_no_more() -> None:
    kind = Sum()
    kind.most = 2  # type: ignore[misc]
    builder = TimedBuilder(kind, Level.FILE)
    for value in (1, 2, 3, 4):
        builder.add(chunk(value))
    assert builder.finish() == b"3"


def test_one_that_asks_for_nothing() -> None:
    class Nothing(Sum):
        def build(self, chunks: Any, *, level: Level) -> bytes:
            return b"nothing"

    builder = TimedBuilder(Nothing(), Level.FILE)
    builder.add(chunk(1))
    assert builder.finish() == b"nothing"


def test_one_that_fails() -> None:
    builder = TimedBuilder(Sum(), Level.FILE)
    builder.add(chunk(13))
    builder.add(chunk(1))
    with pytest.raises(RuntimeError, match="thirteen"):
        builder.finish()
    assert threads() == []


def test_one_that_is_left_half_way() -> None:
    builder = TimedBuilder(Sum(), Level.FILE)
    builder.add(chunk(1))
    assert len(threads()) == 1
    builder.close()
    assert threads() == []


def test_seconds_are_those_of_the_kind_alone() -> None:
    class Slow(Sum):
        def build(self, chunks: Any, *, level: Level) -> bytes:
            for _ in chunks:
                until = time.thread_time() + 0.02
                while time.thread_time() < until:
                    pass
            return b""

    for level in (Level.FILE, Level.PAGE):
        builder = TimedBuilder(Slow(), level)
        for value in range(3):
            builder.add(chunk(value))
        time.sleep(0.05)
        builder.finish()
        assert 0.05 < builder.seconds < 0.5


# Indexes of many row groups joined to one.
PAGE, PAGES = 50, 4


def rows(groups: int) -> pa.Table:
    count = groups * PAGE * PAGES
    keys = np.random.default_rng(5).permutation(count)
    return pa.Table.from_arrays([pa.array(keys), pa.array(keys % 7)], names=["key", "few"])


def entries(path: Path) -> list[tuple[str, int, str, int, int]]:
    data = path.read_bytes()
    start = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    toc = parse_toc(parse_footer(data[start:-8], file_size=len(data), footer_start=start))
    assert toc is not None
    return [(e.kind, e.version, e.level, e.row_group, e.units) for e in toc.entries]


@pytest.mark.parametrize("groups", [1, MANY_GROUPS - 1, MANY_GROUPS, 9])
def test_many_row_groups_have_one_bitmap(tmp_path: Path, groups: int) -> None:
    path = tmp_path / "a.parquet"
    path.write_bytes(write_file(rows(groups), Layout(group_rows=PAGE * PAGES, page_rows=PAGE)))
    report = accel.embed(str(path), str(path), indexes={"key": ["bitmap", "bloom"], "few": "distinct"})
    each = [(group, PAGES) for group in range(groups)]
    bitmaps = [("bitmap", 1, "page", *one) for one in each]
    if groups >= MANY_GROUPS:
        bitmaps = [("bitmap", 2, "page", -1, groups * PAGES)]
    others = [
        (kind, version, "page", *one) for kind, version in (("bloom", 2), ("distinct", 1)) for one in each
    ]
    assert entries(path) == bitmaps + others
    index = report.indexes[0]
    assert (index.count, index.units) == (len(bitmaps), groups * PAGES)
    # Embedded once more, from what is there.
    accel.embed(str(path), str(path), indexes={"key": "bitmap"})
    assert entries(path) == bitmaps


def test_pieces_are_one_after_the_other() -> None:
    scratch = Scratch(memory_bytes=4)
    joined = ScratchBytes.joined(
        [scratch.store(b"abc"), scratch.store(b"defg"), ScratchBytes.joined([scratch.store(b"h")])]
    )
    assert (joined.length, joined.read(), joined.read(2, 5)) == (8, b"abcdefgh", b"cde")
    assert list(joined.pieces()) == [b"abc", b"defg", b"h"]
    assert scratch.store(b"0123456789").read(3, 6) == b"345"
