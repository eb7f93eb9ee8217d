"""`optimize`: the same rows in the promised order, whatever their types, and the layout that was asked
for."""

from __future__ import annotations

import datetime
import decimal
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import accel
from accel.errors import ObjectChangedError, SchemaMismatchError, StoreError
from accel.testing import DictStore
from accel.writing.sort_order import read_ordering, sort_table
from accel.writing.table_writer import storable

SMALL = accel.Options(memory_limit=400_000)
"""So little that rows are sorted on disk, in many runs."""
UTC = datetime.UTC


def values(r: random.Random, rows: int) -> dict[str, pa.Array]:
    """Columns of many types, with nulls and values that are there often."""

    def some(make: Any, kind: pa.DataType) -> pa.Array:
        return pa.array([None if r.random() < 0.1 else make() for _ in range(rows)], kind)

    words = ["", "a", "ab", "b", "ä", "\U0001f600", "zz"]
    floats = [float("nan"), float("inf"), -float("inf"), -0.0, 0.0, 1.5, -2.25]
    start = datetime.datetime(1950, 1, 1, tzinfo=UTC)
    return {
        "n": some(lambda: r.randrange(-50, 50), pa.int32()),
        "u": some(lambda: r.randrange(2**64), pa.uint64()),
        "s": some(lambda: r.choice(words), pa.string()),
        "d": some(lambda: r.choice(words), pa.string()).dictionary_encode(),
        "f": some(lambda: r.choice(floats), pa.float64()),
        "h": some(lambda: r.choice(floats), pa.float32()),
        "b": some(lambda: r.random() < 0.5, pa.bool_()),
        "x": some(lambda: r.randbytes(3), pa.binary(3)),
        "m": some(lambda: decimal.Decimal(r.randrange(-999, 999)).scaleb(-1), pa.decimal128(9, 1)),
        "t": some(lambda: start + datetime.timedelta(seconds=r.randrange(10**9)), pa.timestamp("us", "UTC")),
        "day": some(lambda: datetime.date(2000, 1, 1 + r.randrange(28)), pa.date32()),
        "l": pa.array([[r.randrange(9)] * r.randrange(3) for _ in range(rows)], pa.list_(pa.int8())),
        "o": pa.array([{"k": r.randrange(5), "w": r.choice(words)} for _ in range(rows)]),
        "id": pa.array(r.sample(range(10**6), rows), pa.int64()),
    }


def write_directory(path: Path, *, files: int, rows: int, seed: int) -> pa.Table:
    r = random.Random(seed)
    tables = [pa.table(values(r, r.randrange(rows))) for _ in range(files)]
    for number, table in enumerate(tables):
        pq.write_table(table, path / f"{number}.parquet", row_group_size=97)
    return accel.scan(str(path), cache=None).to_table()


def rows_of(table: pa.Table) -> list[str]:
    """The rows as texts, in which NaN equals itself and the zeros differ."""
    return [repr(row) for row in table.to_pylist()]


SORTS: Mapping[str, Sequence[Any]] = {
    "one": ["n"],
    "text, down": [("s", "descending"), "id"],
    "categories": ["d", ("f", "descending"), "id"],
    "floats": ["f", "h", ("id", "descending")],
    "decimals": [("m", "descending"), "b", "x"],
    "times": ["t", "day"],
    "unsigned": [("u", "descending")],
}


@pytest.mark.parametrize("options", [accel.Options(), SMALL], ids=["in memory", "on disk"])
@pytest.mark.parametrize("sort_by", SORTS.values(), ids=list(SORTS))
def test_rows_are_the_same_in_the_promised_order(
    tmp_path: Path, sort_by: Sequence[Any], options: accel.Options
) -> None:
    before = write_directory(tmp_path, files=4, rows=400, seed=len(str(sort_by)))
    report = accel.optimize(tmp_path, sort_by=sort_by, target_file_size=12_000, options=options)
    after = accel.scan(str(tmp_path), cache=None).to_table()
    assert after.schema == before.schema
    assert sorted(rows_of(after)) == sorted(rows_of(before))
    keys = [name if isinstance(name, str) else name[0] for name in sort_by]
    plain = storable(before)
    ordered = sort_table(plain, read_ordering(plain, sort_by)).select(keys)
    assert rows_of(after.select(keys)) == rows_of(ordered)
    assert (report.rows, report.files_before) == (before.num_rows, 4)
    assert report.files_after == len(list(tmp_path.glob("*.parquet"))) > 1
    (job,) = {path.stem.split("-")[2] for path in tmp_path.glob("*.parquet")}
    assert sorted(path.name for path in (tmp_path / "_accel").iterdir()) == [
        "optimize.json",
        f"replaced-{job}.json",
    ]


@pytest.mark.parametrize(
    "columns",
    [["n"], ["s", "f"], ["u", "d", "t"], ["m", "x", "b", "day", "h", "n", "f", "s"]],
    ids=lambda columns: " ".join(columns),
)
def test_a_z_curve_has_the_same_rows(tmp_path: Path, columns: list[str]) -> None:
    before = write_directory(tmp_path, files=3, rows=500, seed=7)
    accel.optimize(tmp_path, z_order=columns, target_file_size=10_000, options=SMALL)
    after = accel.scan(str(tmp_path), cache=None).to_table()
    assert sorted(rows_of(after)) == sorted(rows_of(before))


def test_a_z_curve_rules_out_by_each_of_its_columns(tmp_path: Path) -> None:
    r = random.Random(3)
    rows = 20_000
    table = pa.table(
        {
            "a": [r.randrange(10**9) for _ in range(rows)],
            "b": [int(r.paretovariate(1)) for _ in range(rows)],
            "c": [f"{r.randrange(10**6):06}" for _ in range(rows)],
        }
    )
    pq.write_table(table, tmp_path / "0.parquet")
    accel.optimize(tmp_path, z_order=["a", "b", "c"], page_rows=100, options=accel.Options())
    for where in ("a < 10000000", "c BETWEEN '500000' AND '510000'", "b = 1000"):
        scan = accel.scan(str(tmp_path), where, cache=None)
        scan.to_table()
        assert scan.metrics.rows.kept < rows / 2, (where, scan.metrics.rows)


def test_without_an_order_rows_stay_in_theirs(tmp_path: Path) -> None:
    before = write_directory(tmp_path, files=5, rows=200, seed=1)
    report = accel.optimize(tmp_path)
    after = accel.scan(str(tmp_path), cache=None).to_table()
    assert rows_of(after) == rows_of(before)
    assert report.files_after == 1


def test_into_another_directory(tmp_path: Path) -> None:
    source, target = tmp_path / "from", tmp_path / "to"
    source.mkdir()
    before = write_directory(source, files=3, rows=200, seed=2)
    names = sorted(path.name for path in source.iterdir())
    report = accel.optimize(source, to=target, sort_by="id")
    assert sorted(path.name for path in source.iterdir()) == names
    after = accel.scan(str(target), cache=None).to_table()
    assert after.column("id").to_pylist() == sorted(before.column("id").to_pylist())
    assert report.directory == f"{target}/"
    with pytest.raises(StoreError, match="has 1 files already"):
        accel.optimize(source, to=target)
    with pytest.raises(StoreError, match="lies in the other"):
        accel.optimize(source, to=source / "inside")


def test_rows_of_a_partition_stay_in_its_folder(tmp_path: Path) -> None:
    for month in (1, 2):
        for number in range(3):
            folder = tmp_path / f"month={month}"
            folder.mkdir(exist_ok=True)
            table = pa.table({"id": [number * 10 + 9, number * 10 + month]})
            pq.write_table(table, folder / f"{number}.parquet")
    before = accel.scan(str(tmp_path), cache=None).to_table()
    report = accel.optimize(tmp_path, sort_by="id")
    after = accel.scan(str(tmp_path), cache=None).to_table()
    assert sorted(rows_of(after)) == sorted(rows_of(before))
    assert (report.files_before, report.files_after) == (6, 2)
    assert [len(list((tmp_path / f"month={m}").iterdir())) for m in (1, 2)] == [1, 1]


def test_columns_of_all_files_stay(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": pa.array([1, 2], pa.int32())}), tmp_path / "0.parquet")
    pq.write_table(pa.table({"a": pa.array([2**40]), "b": ["x"]}), tmp_path / "1.parquet")
    accel.optimize(tmp_path, sort_by=[("a", "descending")])
    after = accel.scan(str(tmp_path), cache=None).to_table()
    assert after.to_pylist() == [{"a": 2**40, "b": "x"}, {"a": 2, "b": None}, {"a": 1, "b": None}]


def _struct(**fields: pa.DataType) -> pa.StructType:
    return pa.struct([pa.field(name, kind) for name, kind in fields.items()])


A, AB, C = _struct(a=pa.int32()), _struct(a=pa.int64(), b=pa.string()), _struct(c=pa.bool_())
ALL = _struct(a=pa.int64(), b=pa.string(), c=pa.bool_())


@pytest.mark.parametrize(
    ("kinds", "whole", "values", "expected"),
    [
        (
            [A, AB, C],
            ALL,
            [{"a": 1}, {"a": 2, "b": "two"}, {"c": True}],
            [
                {"a": 1, "b": None, "c": None},
                {"a": 2, "b": "two", "c": None},
                {"a": None, "b": None, "c": True},
            ],
        ),
        (
            [pa.list_(A), pa.list_(AB)],
            pa.list_(AB),
            [[{"a": 1}], [{"a": 2, "b": "two"}]],
            [[{"a": 1, "b": None}], [{"a": 2, "b": "two"}]],
        ),
        (
            [pa.list_(A), pa.large_list(C)],
            pa.large_list(_struct(a=pa.int32(), c=pa.bool_())),
            [[{"a": 1}], [{"c": True}]],
            [[{"a": 1, "c": None}], [{"a": None, "c": True}]],
        ),
        (
            [pa.map_(pa.string(), A), pa.map_(pa.string(), AB)],
            pa.map_(pa.string(), AB),
            [[("k", {"a": 1})], [("k", {"a": 2, "b": "two"})]],
            [[("k", {"a": 1, "b": None})], [("k", {"a": 2, "b": "two"})]],
        ),
        (
            [_struct(o=A), _struct(o=AB, p=pa.int8())],
            _struct(o=AB, p=pa.int8()),
            [{"o": {"a": 1}}, {"o": {"a": 2, "b": "two"}, "p": 3}],
            [{"o": {"a": 1, "b": None}, "p": None}, {"o": {"a": 2, "b": "two"}, "p": 3}],
        ),
    ],
    ids=["structs", "lists", "lists of other offsets", "maps", "structs in structs"],
)
@pytest.mark.parametrize("later_first", [False, True])
def test_fields_of_structs_in_all_files_stay(
    tmp_path: Path,
    kinds: list[pa.DataType],
    whole: pa.DataType,
    values: list[Any],
    expected: list[Any],
    later_first: bool,
) -> None:
    for number, (kind, value) in enumerate(zip(kinds, values, strict=True)):
        name = f"{9 - number if later_first else number}.parquet"
        pq.write_table(pa.table({"id": [number], "o": pa.array([value], kind)}), tmp_path / name)
    accel.optimize(tmp_path, sort_by="id")
    found = accel.scan(str(tmp_path)).to_table()
    assert found["o"].to_pylist() == expected or later_first
    assert _leaves(found.schema.field("o").type) == _leaves(whole)
    assert [_without_nulls(one) for one in found["o"].to_pylist()] == [_without_nulls(one) for one in values]


def _leaves(kind: pa.DataType, name: str = "") -> set[tuple[str, str]]:
    """The leaves of a type, by the names of the fields of structs that they are in."""
    if not kind.num_fields:
        return {(name, str(kind))}
    below = [kind.field(at) for at in range(kind.num_fields)]
    inside = [
        f"{name}.{one.name}" if pa.types.is_struct(kind) else f"{name}[{at}]" for at, one in enumerate(below)
    ]
    return {leaf for one, place in zip(below, inside, strict=True) for leaf in _leaves(one.type, place)}


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nulls(one) for name, one in value.items() if one is not None}
    return [_without_nulls(one) for one in value] if isinstance(value, list | tuple) else value


def test_files_that_do_not_go_together_stay(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [1]}), tmp_path / "0.parquet")
    pq.write_table(pa.table({"a": ["x"]}), tmp_path / "1.parquet")
    with pytest.raises(SchemaMismatchError, match=r"column 'a' is string here and int64"):
        accel.optimize(tmp_path)
    dates = {b"org.apache.spark.legacyDateTime": b""}
    pq.write_table(pa.table({"a": [1]}).replace_schema_metadata(dates), tmp_path / "1.parquet")
    with pytest.raises(SchemaMismatchError, match="another calendar"):
        accel.optimize(tmp_path)
    assert sorted(path.name for path in tmp_path.glob("*.parquet")) == ["0.parquet", "1.parquet"]
    assert [path.name for path in (tmp_path / "_accel").iterdir()] == ["optimize.json"]


def test_the_layout_is_as_asked(tmp_path: Path) -> None:
    table = pa.table({"id": range(50_000), "name": [f"n{i % 100}" for i in range(50_000)]})
    pq.write_table(table.replace_schema_metadata({"owner": "me"}), tmp_path / "0.parquet")
    accel.optimize(
        tmp_path, sort_by="id", row_group_size=10_000, page_rows=500, blooms=["name"],
        indexes={"name": "distinct"}, compression="snappy",
    )  # fmt: skip
    (path,) = tmp_path.glob("*.parquet")
    metadata = pq.read_metadata(path)
    assert [metadata.row_group(at).num_rows for at in range(metadata.num_row_groups)] == [10_000] * 5
    chunk = metadata.row_group(0).column(1)
    assert chunk.compression == "SNAPPY"
    assert metadata.row_group(0).sorting_columns[0].column_index == 0
    assert metadata.metadata[b"owner"] == b"me"
    assert b"accel.indexes" in metadata.metadata
    scan = accel.scan(str(tmp_path), "id = 7", cache=None)
    assert scan.to_table().num_rows == 1
    assert scan.metrics.rows.kept <= 500


def test_the_checksums_of_hadoop_go_with_the_old_files(tmp_path: Path) -> None:
    """Of a store that does not do it itself, too; those of other files stay."""
    pq.write_table(pa.table({"a": [1]}), tmp_path / "0.parquet")
    for name in (".0.parquet.crc", "._SUCCESS.crc"):
        (tmp_path / name).write_bytes(b"crc\0\0\0\x02\0")
    accel.optimize(tmp_path)
    assert [path.name for path in tmp_path.glob(".*")] == ["._SUCCESS.crc"]
    store = DictStore(
        {"t/0.parquet": next(tmp_path.glob("*.parquet")).read_bytes(), "t/.0.parquet.crc": b"crc\0"}
    )
    accel.optimize("t", store=store)
    assert [path for path in store.objects if path.endswith(".crc")] == []


def test_a_table_without_rows_keeps_its_columns(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": pa.array([], pa.int16())}), tmp_path / "0.parquet")
    report = accel.optimize(tmp_path, sort_by="a", blooms=["a"])
    assert (report.rows, report.files_after) == (0, 1)
    assert accel.scan(str(tmp_path), cache=None).to_table().schema == pa.schema([("a", pa.int16())])


def test_the_index_beside_the_files_takes_part(tmp_path: Path) -> None:
    before = write_directory(tmp_path, files=4, rows=300, seed=9)
    index = accel.build_index(tmp_path).index
    report = accel.optimize(tmp_path, sort_by="id", target_file_size=10_000)
    assert report.index == index
    scan = accel.scan(str(tmp_path), "id >= 0", index=index, listing="index", cache=None)
    assert sorted(rows_of(scan.to_table())) == sorted(rows_of(before))
    assert scan.metrics.catalog_stale == 0
    assert scan.metrics.requests_by_kind.get("metadata", 0) == 0


REFUSED: Mapping[str, tuple[dict[str, Any], type[Exception], str]] = {
    "two orders": ({"sort_by": "id", "z_order": "id"}, ValueError, "one order"),
    "no such column": ({"sort_by": "none"}, ValueError, "no column 'none'"),
    "no such column of a curve": ({"z_order": ["none"]}, ValueError, "no column 'none'"),
    "a list has no order": ({"sort_by": "l"}, ValueError, "has no order"),
    "the same twice": ({"z_order": ["id", "id"]}, ValueError, "different columns"),
    "preset": ({"preset": "fast"}, ValueError, "scan, random-access"),
    "size": ({"target_file_size": 0}, ValueError, "above 0"),
    "too large": ({"target_file_size": 1 << 40}, ValueError, "at most"),
    "rows": ({"page_rows": 1.5}, TypeError, "whole number"),
    "bloom of a list": ({"blooms": ["l"]}, ValueError, "no bloom filter"),
    "option": ({"no_such_option": 1}, TypeError, "no_such_option"),
    "no index there": ({"index": "nowhere"}, FileNotFoundError, "there is no index"),
    "bad index": ({"indexes": {"none": "distinct"}}, KeyError, "none"),
}


@pytest.mark.parametrize(("given", "error", "text"), REFUSED.values(), ids=list(REFUSED))
def test_what_cannot_be_done_changes_nothing(
    tmp_path: Path, given: dict[str, Any], error: type[Exception], text: str
) -> None:
    before = write_directory(tmp_path, files=2, rows=50, seed=4)
    with pytest.raises(error, match=text):
        accel.optimize(tmp_path, **given)
    assert rows_of(accel.scan(str(tmp_path), cache=None).to_table()) == rows_of(before)
    left = [path.name for path in tmp_path.rglob("*") if path.is_file()]
    assert set(left) - {"optimize.json"} == {"0.parquet", "1.parquet"}


def test_a_file_that_changes_meanwhile_is_not_lost(tmp_path: Path) -> None:
    write_directory(tmp_path, files=3, rows=100, seed=5)
    theirs = pa.table({"id": pa.array([1], pa.int64())})

    def change(now: accel.JobProgress) -> None:
        if now.stage == "write":
            pq.write_table(theirs, tmp_path / "1.parquet")

    with pytest.raises(ObjectChangedError, match="changed or removed"):
        accel.optimize(tmp_path, sort_by="id", progress=change)
    assert pq.read_table(tmp_path / "1.parquet").equals(theirs)
    assert sorted(path.name for path in tmp_path.glob("*.parquet")) == [f"{n}.parquet" for n in range(3)]
    # Once it is asked again, what is there now is rewritten.
    accel.optimize(tmp_path, sort_by="id")


def test_the_later_of_two_jobs_wins(tmp_path: Path) -> None:
    before = write_directory(tmp_path, files=3, rows=100, seed=6)
    begun = []

    def other(now: accel.JobProgress) -> None:
        if now.stage == "write" and not begun:
            begun.append(accel.optimize(tmp_path, sort_by="n"))

    with pytest.raises(ObjectChangedError, match=r"changed or removed|another job"):
        accel.optimize(tmp_path, sort_by="id", progress=other)
    after = accel.scan(str(tmp_path), cache=None).to_table()
    assert sorted(rows_of(after)) == sorted(rows_of(before))
    assert begun[0].rows == before.num_rows


def test_a_store_that_cannot_move_is_refused() -> None:
    class Lesser(DictStore):
        move = None  # type: ignore[assignment]

    store = Lesser()
    with pytest.raises(StoreError, match="cannot move objects"):
        accel.optimize("table", store=store)


async def test_from_a_coroutine(tmp_path: Path) -> None:
    before = write_directory(tmp_path, files=3, rows=100, seed=8)
    seen: list[accel.JobProgress] = []
    report = await accel.optimize_async(tmp_path, sort_by="id", progress=seen.append)
    assert report.rows == before.num_rows
    assert [now for now in seen if now.stage == "write"][-1].done == before.num_rows
