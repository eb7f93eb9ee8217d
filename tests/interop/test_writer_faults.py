"""Files of writers with known faults, and whatever contradicts itself: read as pyarrow reads all rows."""

from __future__ import annotations

import datetime
import decimal
import io
import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import accel
from accel.cli.main import main
from accel.format.bloom import BLOCK_BYTES, parse_bloom_header
from accel.format.footer import parse_footer, parse_tail
from accel.format.model import FileMetadata
from accel.format.thrift import STRUCT
from tests.interop.edited import clear_bytes, edit_footer, rewrite_index, statistics, write, written_by

FOLDER = Path(__file__).parent / "writers"
FILES = (
    "arrow2_categorical_nulls",
    "arrow_cpp_10_dictionary_bounds",
    "arrow_cpp_4_dictionary_nulls",
    "empty_bloom",
    "null_type_with_values",
    "parquet_go_cut_page_bounds",
    "polars_1_34_boolean_min",
    "polars_1_44_null_count",
)
QUESTIONS = [
    question
    for question in json.loads((FOLDER / "expected.json").read_text())
    if question["file"].removesuffix(".parquet") in FILES
]
ASKING = accel.Options(probe_min_bytes=0)
"""Of files as small as these bloom filters and dictionaries would not be asked."""


def ask(source: Any, question: dict[str, Any], **more: Any) -> Any:
    """The answer to a question of expected.json."""
    if "aggregate" in question:
        scan = accel.scan(source, options=ASKING, **more)
        return scan.aggregate([tuple(question["aggregate"])]).column(0)[0].as_py()
    found = {
        accel.scan(source, question["where"], options=ASKING, **more).count_rows(),
        accel.scan(source, question["where"], options=ASKING, **more).to_table().num_rows,
    }
    assert len(found) == 1
    return found.pop()


def title(question: dict[str, Any]) -> str:
    what = question.get("aggregate") or question["where"]
    return f"{question['file'].removesuffix('.parquet')}: {what}"


def value_of(question: dict[str, Any]) -> Any:
    return question["value"] if "aggregate" in question else question["rows"]


@pytest.mark.parametrize("question", QUESTIONS, ids=title)
def test_a_question_is_answered_right(question: dict[str, Any]) -> None:
    path, cache = str(FOLDER / question["file"]), accel.Cache()
    assert ask(path, question, cache=cache) == value_of(question)
    # What was met before says no more.
    assert ask(path, question, cache=cache) == value_of(question)
    if "where" in question:
        plan = accel.plan(path, where=question["where"], options=ASKING, cache=accel.Cache())
        again = accel.Plan.from_arrow(plan.to_arrow())
        assert accel.scan(again, cache=accel.Cache()).to_table().num_rows == question["rows"]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, int]]:
    """For each file a directory of some copies of it, and of the same rows by a writer without faults."""
    found = {}
    for name in FILES:
        folder = tmp_path_factory.mktemp(name)
        raw = (FOLDER / f"{name}.parquet").read_bytes()
        table = pq.read_table(io.BytesIO(raw))
        sound = raw if pa.types.is_null(table.schema.field(0).type) else write(table)
        for number in range(18):
            (folder / f"{number:02}.parquet").write_bytes(sound if number % 2 else raw)
        found[name] = folder, 18
    return found


@pytest.mark.parametrize("question", QUESTIONS, ids=title)
def test_files_that_are_judged_together_are_judged_each_by_its_writer(
    question: dict[str, Any], folders: dict[str, tuple[Path, int]]
) -> None:
    folder, copies = folders[question["file"].removesuffix(".parquet")]
    value = value_of(question)
    counted = "where" in question or question["aggregate"][1] == "count"
    assert ask(f"{folder}/", question, cache=accel.Cache()) == (value * copies if counted else value)


@pytest.mark.parametrize("name", [name for name in FILES if name != "null_type_with_values"])
def test_indexes_put_into_the_file_change_no_answer(name: str, tmp_path: Path) -> None:
    table = pq.read_table(FOLDER / f"{name}.parquet")
    path = tmp_path / "indexed.parquet"
    accel.embed(FOLDER / f"{name}.parquet", path, indexes={table.schema.names[0]: ["zonemap", "distinct"]})
    for question in QUESTIONS:
        if question["file"] == f"{name}.parquet":
            assert ask(str(path), question, cache=accel.Cache()) == value_of(question), title(question)


# -- files made here: each fault, and its like
# -----------------------------------------------------------------------


def i64(value: int) -> bytes:
    return value.to_bytes(8, "little", signed=True)


def numbers_in_bytes(values: list[int | None]) -> pa.Array:
    return pa.array([None if v is None else decimal.Decimal(v) for v in values], pa.decimal128(30, 0))


def big(value: int) -> bytes:
    return value.to_bytes(13, "big", signed=True)


def coded(values: list[str | None]) -> pa.Array:
    return pa.array(values).dictionary_encode()


WORDS = ["a", None, "b", "a", "z", None, "c", "z"]
DAY = datetime.datetime(2026, 1, 1)
TIMES = [DAY + datetime.timedelta(minutes=i) for i in range(8)]
MICROS = [int((t - datetime.datetime(1970, 1, 1)).total_seconds()) * 1_000_000 for t in TIMES]

FAULTS: dict[str, tuple[list[str], pa.Array, dict[str, Any]]] = {
    "PARQUET-251": (
        ["parquet-mr version 1.7.0 (build x)", "parquet-mr", "parquet-mr version 1.5.0-cdh5.4.0"],
        pa.array(WORDS),
        {"low": b"b", "high": b"c"},
    ),
    "nulls of dictionary arrays": (
        [
            "parquet-cpp version 1.5.1-SNAPSHOT",
            "parquet-cpp-arrow version 3.0.0",
            "parquet-cpp-arrow version 5.0.0",
        ],
        coded(WORDS),
        {"nulls": 0},
    ),
    "the first chunk only": (
        [
            "parquet-cpp-arrow version 6.0.0",
            "parquet-cpp-arrow version 10.0.1",
            "PARQUET-CPP-ARROW version 9.0.0",
        ],
        coded(WORDS),
        {"nulls": 1, "low": b"a", "high": b"b"},
    ),
    "decimals in bytes": (
        [
            "parquet-cpp version 1.5.1-SNAPSHOT",
            "parquet-cpp-arrow version 3.0.0",
            "parquet-rs version 12.0.0",
            "Polars",
            "github.com/parquet-go/parquet-go version 0.32.0(build )",
            "github.com/segmentio/parquet-go version v0.0.0-20230427215636-d483faba23a5(build )",
            "ClickHouse v25.7.3.22",
        ],
        numbers_in_bytes([-5, None, -3, -1, 2, 3, 7, -5]),
        {"low": big(-5), "high": big(-1)},
    ),
    "shorter is less": (
        ["parquet-rs version 5.1.0", "parquet-rs version 4.4.0 (build 1)"],
        pa.array(["andover", "reading", "bedford", "tewsbury", "lexington", None]),
        {"low": b"andover", "high": b"lexington"},
    ),
    "nulls of arrow2": (["Arrow2 - Native Rust implementation of Arrow"], coded(WORDS), {"nulls": 0}),
    "nulls of each page": (["Polars"], pa.array(WORDS), {"nulls": 4}),
    "nulls of each page, as many as rows": (["Polars"], pa.array(WORDS), {"nulls": 8}),
    "nulls of each page, without bounds": (
        ["Polars"],
        pa.array(WORDS),
        {"nulls": 8, "low": None, "high": None},
    ),
    "booleans below nulls": (
        ["Polars"],
        pa.array([True, None, True, None]),
        {"low": b"\0", "high": b"\1"},
    ),
    "booleans below nulls, false": (
        ["Polars"],
        pa.array([False, None, False, None]),
        {"low": b"\0", "high": b"\1"},
    ),
    "nulls not counted": (["parquet-go version latest", "parquet-go"], pa.array(WORDS), {"nulls": 0}),
    "timestamps": (
        ["Parquet.Net version 4.25.0 (build x)", "Parquet.Net version 6.0.3", "parquet-dotnet version 3.1.0"],
        pa.array(TIMES, pa.timestamp("us")),
        {"low": i64(MICROS[0] - 7_200_000_000), "high": i64(MICROS[0] - 3_600_000_000)},
    ),
    # Whoever wrote it.
    "as many nulls as rows, beside bounds": (
        ["parquet-cpp-arrow version 26.0.1", "", "nobody"],
        pa.array(WORDS),
        {"nulls": 8, "low": b"a", "high": b"z"},
    ),
    "as many nulls as rows, beside one bound": (
        ["DuckDB version v1.5.5"],
        pa.array([4, None, 9, 2]),
        {"nulls": 4, "low": i64(2), "high": None},
    ),
    "bounds of nothing": (
        ["parquet-cpp-arrow version 26.0.1"],
        pa.array([None, None, None], pa.int64()),
        {"nulls": 3, "low": i64(0), "high": i64(0)},
    ),
    "an upper bound that could not be raised": (
        ["parquet-mr version 1.15.0"],
        pa.array([b"\xff\xff\x01", b"\xff\xff\xff", b"a"]),
        {"low": b"a", "high": b"\xff\xff"},
    ),
}


def made(array: pa.Array, changed: dict[str, Any], created_by: str, **options: Any) -> bytes:
    table = pa.Table.from_arrays([array, pa.array(range(len(array)))], ["c", "row"])
    return written_by(statistics(write(table, **options), **changed), created_by)


def answers(values: list[Any], points: list[Any]) -> Iterator[tuple[Any, list[int]]]:
    """Questions in pyarrow's form, and the rows that match."""

    def rows(test: Callable[[Any], bool]) -> list[int]:
        return [row for row, value in enumerate(values) if value is not None and test(value)]

    for point in points:
        yield [("c", "=", point)], rows(lambda v, p=point: v == p)
        yield [("c", "!=", point)], rows(lambda v, p=point: v != p)
        yield [("c", "in", [point])], rows(lambda v, p=point: v == p)
        yield [("c", "<=", point)], rows(lambda v, p=point: v <= p)
        yield [("c", ">=", point)], rows(lambda v, p=point: v >= p)
        yield [("c", ">", point)], rows(lambda v, p=point: v > p)
        yield [("c", "<", point)], rows(lambda v, p=point: v < p)


def check(source: str, values: list[Any], copies: int = 1) -> None:
    """All questions about column `c` of one file, or of some copies of it."""
    cache = accel.Cache()

    def rows(where: Any) -> list[int]:
        scan = accel.scan(source, where, columns=["row"], options=ASKING, cache=cache)
        found: list[int] = scan.to_table().column("row").to_pylist()
        assert scan.count_rows() == len(found)
        return found

    there = [value for value in values if value is not None]
    absent = [row for row, value in enumerate(values) if value is None]
    assert rows("c IS NULL") == absent * copies
    assert rows("c IS NOT NULL") == [row for row in range(len(values)) if row not in absent] * copies
    points = sorted(set(there))
    if copies > 1:
        points = [points[0], points[-1]]
    elif len(points) > 5:
        points = [points[0], points[1], points[len(points) // 2], points[-1]]
    for where, expected in answers(values, points):
        assert rows(where) == expected * copies, where
    asked = [("c", "count"), ("c", "min"), ("c", "max")]
    found = accel.scan(source, options=ASKING, cache=cache).aggregate(asked).to_pylist()[0]
    assert list(found.values()) == [
        len(there) * copies,
        min(there, default=None),
        max(there, default=None),
    ]


CASES = [(name, writer) for name, (writers, _, _) in FAULTS.items() for writer in writers]


@pytest.mark.parametrize("pages", [1 << 20, 1], ids=["one page", "small pages"])
@pytest.mark.parametrize(
    ("name", "writer"), CASES, ids=[f"{name}, {writer or 'unnamed'}" for name, writer in CASES]
)
def test_a_fault_loses_no_row_and_adds_none(name: str, writer: str, pages: int, tmp_path: Path) -> None:
    _, array, changed = FAULTS[name]
    raw = made(array, changed, writer, data_page_size=pages, write_batch_size=2, write_page_index=pages == 1)
    (tmp_path / "f.parquet").write_bytes(raw)
    check(str(tmp_path / "f.parquet"), array.to_pylist())


@pytest.mark.parametrize(
    "name", [name for name in FAULTS if FAULTS[name][1].type != pa.null() and len(FAULTS[name][1]) == 8]
)
def test_a_fault_among_files_of_others(name: str, tmp_path: Path) -> None:
    writers, array, changed = FAULTS[name]
    sound = {"nulls": array.null_count}
    for number in range(12):
        writer = writers[number % len(writers)]
        raw = (
            made(array, changed, writer)
            if number % 3
            else made(array, sound, "parquet-cpp-arrow version 26.0.1")
        )
        (tmp_path / f"{number:02}.parquet").write_bytes(raw)
    check(f"{tmp_path}/", array.to_pylist(), copies=12)


def test_dictionary_arrays_are_told_by_the_schema_of_each_file(tmp_path: Path) -> None:
    """The data set's column is text in the first file, a dictionary array in others."""
    for number in range(10):
        array = pa.array(WORDS) if number == 0 else coded(WORDS)
        changed = {} if number == 0 else {"nulls": 0, "low": b"a", "high": b"b"}
        raw = made(array, changed, "parquet-cpp-arrow version 10.0.1")
        (tmp_path / f"{number}.parquet").write_bytes(raw)
    schema = pa.schema([("c", pa.string()), ("row", pa.int64())])
    scan = accel.scan(f"{tmp_path}/", "c = 'z'", schema=schema, options=ASKING, cache=accel.Cache())
    assert scan.to_table().column("row").to_pylist() == [4, 7] * 10


# -- page bounds
# ------------------------------------------------------------------------------------------------------

LONG = [f"key-{i:04}-of-a-long-text" for i in range(64)]


def paged(
    array: pa.Array, change: Callable[[dict[str, list[Any]]], None], writer: str, **options: Any
) -> bytes:
    table = pa.Table.from_arrays([array, pa.array(range(len(array)))], ["c", "row"])
    settings = {"data_page_size": 1, "write_batch_size": 8, "write_page_index": True, "use_dictionary": False}
    return written_by(rewrite_index(write(table, **settings | options), 0, change=change), writer)


def cut(length: int) -> Callable[[dict[str, list[Any]]], None]:
    def change(lists: dict[str, list[Any]]) -> None:
        for name in ("low", "high"):
            lists[name] = [value[:length] for value in lists[name]]

    return change


def put(**values: Any) -> Callable[[dict[str, list[Any]]], None]:
    """One value for all pages, or one list."""

    def change(lists: dict[str, list[Any]]) -> None:
        for name, value in values.items():
            pages = len(lists["low"])
            lists[name] = value if isinstance(value, list) else [value] * pages

    return change


NOW = "parquet-cpp-arrow version 26.0.1"
PAGES = {
    "cut, and not raised": (
        pa.array(LONG),
        cut(6),
        "github.com/segmentio/parquet-go version v0.0.0-20230101(build )",
    ),
    "cut, and not raised, by others": (pa.array(LONG), cut(6), "nobody"),
    "cut where no byte could be raised": (
        pa.array([b"\xff" * 16 + i.to_bytes(2, "big") for i in range(64)]),
        cut(16),
        "github.com/parquet-go/parquet-go version 0.32.0(build )",
    ),
    "empty": (pa.array(LONG), put(low=b"", high=b""), NOW),
    "empty, of one page": (pa.array(LONG), put(low=[b""] * 8, high=[b"", *(v.encode() for v in LONG[15::8])]), NOW),
    "empty, of null pages that are not": (pa.array(LONG), put(low=b"", high=b"", null_pages=True), NOW),
    "outside": (pa.array(range(64)), put(low=i64(100), high=i64(200)), NOW),
    "outside, one page": (pa.array(range(64)), put(low=[i64(100), *map(i64, range(8, 64, 8))], high=[i64(200), *map(i64, range(15, 64, 8))]), NOW),
    "too narrow together": (pa.array(range(64)), put(low=i64(20), high=i64(30)), NOW),
    "all null, and bounds": (pa.array(range(64)), put(nulls=8), NOW),
    "more nulls than the chunk": (pa.array([None, *range(63)]), put(nulls=3), NOW),
    "fewer nulls than the chunk": (pa.array([None, 1, 2, None] * 16), put(nulls=0), NOW),
}  # fmt: skip


@pytest.mark.parametrize(("array", "change", "writer"), PAGES.values(), ids=PAGES.keys())
def test_page_bounds_that_contradict_their_chunk_lose_no_row(
    array: pa.Array, change: Callable[[dict[str, list[Any]]], None], writer: str, tmp_path: Path
) -> None:
    (tmp_path / "f.parquet").write_bytes(paged(array, change, writer))
    check(str(tmp_path / "f.parquet"), array.to_pylist())


def cut_and_raised(lists: dict[str, list[Any]]) -> None:
    lists["low"] = [value[:8] for value in lists["low"]]
    lists["high"] = [value[:7] + bytes((value[7] + 1,)) for value in lists["high"]]


SOUND = {
    "as written": (pa.array(LONG), lambda lists: None),
    "cut and raised": (pa.array(LONG), cut_and_raised),
    "numbers": (pa.array(range(64)), lambda lists: None),
    "floats with zeros": (pa.array([float(i // 8) - 4 for i in range(64)]), lambda lists: None),
    "null pages": (pa.array([None] * 8 + list(range(56))), lambda lists: None),
}


@pytest.mark.parametrize(("array", "change"), SOUND.values(), ids=SOUND.keys())
def test_page_bounds_that_contradict_nothing_are_used(
    array: pa.Array, change: Callable[[dict[str, list[Any]]], None], tmp_path: Path
) -> None:
    # Files as small as that are read whole, but for what a cached index says.
    many = pa.concat_arrays([array] + [array.slice(63)] * 2000)
    options = {"write_batch_size": 8, "column_encoding": {"c": "PLAIN"}, "use_dictionary": False}
    (tmp_path / "f.parquet").write_bytes(paged(many, change, NOW, **options))
    scan = accel.scan(str(tmp_path / "f.parquet"), [("c", "<", array[40].as_py())], cache=accel.Cache())
    assert scan.to_table().num_rows == sum(v is not None and v < array[40].as_py() for v in array.to_pylist())
    # Of two columns.
    assert scan.metrics.pages.kept <= 12


# -- bloom filters
# ----------------------------------------------------------------------------------------------------


def parsed(raw: bytes) -> FileMetadata:
    start = len(raw) - 8 - parse_tail(raw[-8:]).length
    return parse_footer(raw[start:-8], file_size=len(raw), footer_start=start)


def bloomed(ndv: int, values: int = 64) -> bytes:
    array = pa.array([f"word {i:03}" for i in range(values)])
    table = pa.Table.from_arrays([array, pa.array(range(values))], ["c", "row"])
    return write(table, bloom_filter_options={"c": {"ndv": ndv}}, write_statistics=["row"])


def without_bits(raw: bytes, blocks: slice = slice(None)) -> bytes:
    metadata = parsed(raw)
    start = int(metadata.chunks.bloom_offset[0, 0])
    header = parse_bloom_header(raw[start : start + 64])
    spans = [
        (at, at + BLOCK_BYTES)
        for at in range(start + header.length, start + header.length + header.num_bytes, BLOCK_BYTES)[blocks]
    ]
    return clear_bytes(raw, spans)


BLOOMS = {
    "small": (without_bits(bloomed(64)), NOW),
    "large": (without_bits(bloomed(100_000)), NOW),
    "arrow-go, of some pages": (without_bits(bloomed(64), slice(1, None)), "parquet-go version 18.5.0"),
    "arrow-go, the first with the fault": (
        without_bits(bloomed(64), slice(1, None)),
        "parquet-go version 18.4.0",
    ),
}


@pytest.mark.parametrize(("raw", "writer"), BLOOMS.values(), ids=BLOOMS.keys())
def test_a_bloom_filter_without_bits_loses_no_row(raw: bytes, writer: str, tmp_path: Path) -> None:
    path, cache = tmp_path / "f.parquet", accel.Cache()
    path.write_bytes(written_by(raw, writer))
    accel.embed(path, tmp_path / "g.parquet", indexes={"row": "zonemap"})
    for source in (path, path, tmp_path / "g.parquet"):
        for number in (0, 1, 17, 63):
            scan = accel.scan(str(source), f"c = 'word {number:03}'", options=ASKING, cache=cache)
            assert scan.to_table().column("row").to_pylist() == [number]
        assert (
            accel.scan(str(source), "c IN ('word 005', 'x')", options=ASKING, cache=cache).count_rows() == 1
        )
        assert accel.scan(str(source), "c = 'no word'", options=ASKING, cache=cache).count_rows() == 0


@pytest.mark.parametrize("ndv", [64, 3_000], ids=["full", "sparse"])
def test_a_bloom_filter_with_few_bits_still_excludes(ndv: int, tmp_path: Path) -> None:
    (tmp_path / "f.parquet").write_bytes(bloomed(ndv))
    excluded = 0
    for number in range(20):
        where = f"c = 'no {number}'"
        scan = accel.scan(str(tmp_path / "f.parquet"), where, options=ASKING, cache=accel.Cache())
        assert scan.to_table().num_rows == 0
        excluded += scan.metrics.row_groups.kept == 0
    # Of a filter that is full one key in twenty passes, on average.
    assert excluded >= 14


# -- the rest
# ---------------------------------------------------------------------------------------------------------


def stored_as_null(nullable: bool, count: int = 6) -> bytes:
    """A column of logical type Null over stored values."""
    values = pa.array([1, None, 3, 4, None, 6][:count] if nullable else range(count), pa.int64())
    schema = pa.schema([pa.field("a", pa.int64(), nullable=nullable), ("row", pa.int64())])
    raw = write(pa.Table.from_arrays([values, pa.array(range(count))], schema=schema), store_schema=False)

    def edit(fields: Any) -> None:
        fields[2][1].items[1][10] = (STRUCT, {11: (STRUCT, {})})

    return edit_footer(raw, edit)


@pytest.mark.parametrize("nullable", [True, False], ids=["optional", "required"])
def test_values_below_the_type_null_are_null(nullable: bool, tmp_path: Path) -> None:
    path = tmp_path / "f.parquet"
    path.write_bytes(stored_as_null(nullable))
    full = pq.read_table(path).column("a")
    assert (full.type, full.null_count) == (pa.null(), 6)
    for cache in (accel.Cache(), accel.Cache()):
        assert accel.scan(str(path), "a IS NOT NULL", cache=cache).count_rows() == 0
        assert accel.scan(str(path), "a IS NULL", cache=cache).count_rows() == 6
        found = accel.scan(str(path), cache=cache).aggregate([("a", "count"), ([], "count_all")])
        assert found.to_pylist() == [{"a_count": 0, "count_all": 6}]
        some = accel.scan(str(path), "row > 2", cache=cache).aggregate([("a", "count"), ([], "count_all")])
        assert some.to_pylist() == [{"a_count": 0, "count_all": 3}]


def test_inspect_shows_what_is_believed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    array, changed = coded(WORDS), {"nulls": 0, "low": b"a", "high": b"b"}
    shown = []
    for number, writer in enumerate(["parquet-cpp-arrow version 10.0.1", "parquet-cpp-arrow version 26.0.1"]):
        path = tmp_path / f"{number}.parquet"
        path.write_bytes(made(array, changed, writer))
        assert main(["inspect", str(path), "--json"]) == 0
        column = json.loads(capsys.readouterr().out)["columns"][0]
        shown.append((column["nulls"], column["min"], column["max"], column["statistics"]))
    assert shown == [(None, None, None, 0), (0, "a", "b", 1)]


WRITERS = [
    "",
    "Polars",
    NOW,
    "parquet-cpp-arrow version 10.0.1",
    "parquet-cpp-arrow version 4.0.0",
    "parquet-go",
]


@pytest.mark.parametrize("seed", range(40))
def test_random_contradictions_lose_no_row_and_add_none(seed: int, tmp_path: Path) -> None:
    """Statistics that are right, but for a null count or a column index that these, or the writer, give
    away."""
    rng = random.Random(seed)
    kind = rng.choice(["text", "number", "coded"])
    pool: list[Any] = [f"v{i}" for i in range(9)] if kind != "number" else list(range(9))
    values = [rng.choice([None, *pool]) for _ in range(32)]
    if all(value is None for value in values):
        values[0] = pool[0]
    array = coded(values) if kind == "coded" else pa.array(values)
    table = pa.Table.from_arrays([array, pa.array(range(32))], ["c", "row"])
    paged_too = rng.random() < 0.7
    settings = {"data_page_size": 1, "write_batch_size": 4, "use_dictionary": rng.random() < 0.5}
    raw = write(table, write_page_index=paged_too, **settings)
    writer = rng.choice(WRITERS)
    if paged_too:
        there = sorted(value for value in values if value is not None)
        raw_of = (lambda v: v.encode()) if kind != "number" else i64
        outside = (lambda: raw_of("w")) if kind != "number" else (lambda: i64(99))
        change = rng.choice(
            [
                put(low=outside(), high=outside()),
                put(low=raw_of(there[0]), high=raw_of(there[0])) if there[0] != there[-1] else put(nulls=4),
                put(null_pages=True),
                put(nulls=4),
                put(low=b"", high=b""),
            ]
        )
        raw = rewrite_index(raw, 0, change=change)
    if rng.random() < 0.5:
        raw = statistics(raw, nulls=32)
    if writer == "Polars" and rng.random() < 0.5 and settings["use_dictionary"]:
        raw = statistics(raw, nulls=rng.randrange(1, 32))
    if "parquet-cpp-arrow version 4" in writer and kind == "coded" or writer == "parquet-go":
        raw = statistics(raw, nulls=0)
    (tmp_path / "f.parquet").write_bytes(written_by(raw, writer))
    check(str(tmp_path / "f.parquet"), values)
