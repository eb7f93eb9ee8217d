"""Partition columns, which the paths of files spell, rule files out by the catalog, before anything is read
of these files."""

from __future__ import annotations

import datetime
import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import accel
from accel.catalog.asking.partitions import FilePartitions
from accel.testing import DictStore, RecordingStore, write_file
from tests.support.postgres import Postgres
from tests.support.redis_server import RedisServer

NULL = "__HIVE_DEFAULT_PARTITION__"
PATHS = [
    "year=2023/day=2023-05-01/city=Oslo/a.parquet",
    "year=2023/day=2023-05-02/city=a%2Fb%3Dc%20d/a.parquet",
    "year=2023/day=2023-05-02/city=a%2Fb%3Dc%20d/b.parquet",
    f"year=2024/day={NULL}/city={NULL}/a.parquet",
    "year=2024/day=2024-02-29/city=%C3%89vora/a.parquet",
    f"year={NULL}/day=2024-03-01/city=Oslo/a.parquet",
    "year=-7/day=2024-03-01/city=10/a.parquet",
]
"""Each file has `x` from 10 times its place here on."""
CASES: dict[str, tuple[str, int]] = {
    "int equal": ("year = 2023", 3),
    "int in order": ("year < 2024", 4),
    "int as a float": ("year = 2024.0", 2),
    "int in a list": ("year IN (2023, -7, NULL)", 4),
    "int and null": ("year IS NULL", 1),
    "int not": ("NOT (year = 2023)", 3),
    "int distinct from": ("year IS DISTINCT FROM 2023", 4),
    "date equal": ("day = '2023-05-02'", 2),
    "date between": ("day BETWEEN '2024-01-01' AND '2024-02-29'", 1),
    "date and null": ("day IS NULL", 1),
    "text equal": ("city = 'Oslo'", 2),
    "text decoded": ("city = 'a/b=c d'", 2),
    "text not decoded": ("city = 'a%2Fb%3Dc%20d'", 0),
    "text above ASCII": ("city = 'Évora'", 1),
    "text by prefix": ("city LIKE 'O%'", 2),
    "text and null": ("city IS NOT NULL", 6),
    "text of digits": ("city = '10'", 1),
    "several": ("year = 2023 AND city = 'Oslo'", 1),
    "beside a column": ("year = 2023 AND x >= 20", 1),
    "or a column": ("year = 2024 OR x < 5", 3),
    "nothing": ("year = 1999", 0),
    "columns with each other": ("year > x", 5),
}
"""By name: the predicate, and the files that it leaves."""


def file(at: int) -> bytes:
    return write_file(pa.table({"x": list(range(10 * at, 10 * at + 10))}))


@pytest.fixture(params=["objects", "memory", "redis", "sqlite", "postgresql"])
def index(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an index that is not there yet."""
    name = uuid.uuid4().hex[:16]
    if request.param == "redis":
        server: RedisServer = request.getfixturevalue("redis_server")
        return server.url(name, ttl=600, max_bytes=50_000_000)
    if request.param == "postgresql":
        database: Postgres = request.getfixturevalue("postgres")
        return f"{database.url()}#i{name}"
    return {"sqlite": f"sqlite:///{tmp_path}/i.db", "memory": f"memory://{name}"}.get(request.param, "i/")


def test_files_are_ruled_out_by_their_paths(index: str) -> None:
    store = DictStore({f"t/{path}": file(at) for at, path in enumerate(PATHS)})
    accel.build_index("t/", to=index, store=store)
    check(store, index, "store", "index")
    # A segment of which a file was dropped tells less in the head, and the dropped one spells other types.
    store.put("t/year=1/day=x/city=y/z.parquet", file(50))
    accel.refresh_index(index, store=store)
    store.delete("t/year=1/day=x/city=y/z.parquet")
    accel.refresh_index(index, store=store)
    check(store, index, "index")


def check(store: DictStore, index: str, *listings: str) -> None:
    for name, (where, files) in CASES.items():
        expected = accel.scan("t/", where, store=store, index=None, cache=None).to_table()
        # The first file stays, as it settles the schema.
        first = expected.column("x").to_pylist()[:1] != [60]
        for listing in listings:
            given: dict[str, Any] = {"store": store, "index": index, "listing": listing, "cache": None}
            scan = accel.scan("t/", where, **given)
            assert scan.to_table().equals(expected), (name, listing)
            found = scan.metrics.catalog
            assert (found.total, found.kept) == (len(PATHS), files + first), (name, listing)
        assert accel.scan("t/", where, **given).count_rows() == expected.num_rows, name


def test_files_that_are_ruled_out_are_not_asked_for() -> None:
    store = RecordingStore(DictStore({f"t/{path}": file(at) for at, path in enumerate(PATHS)}))
    accel.build_index("t/", to="i/", store=store.inner)
    scan = accel.scan(
        "t/", "day = '2024-02-29'", store=store, index="i/", listing="index", cache=accel.Cache(data=0)
    )
    assert scan.to_table().to_pylist() == [
        {"x": 40 + at, "year": 2024, "day": datetime.date(2024, 2, 29), "city": "Évora"} for at in range(10)
    ]
    assert {call.path for call in store.calls} == {"i/head", f"t/{PATHS[4]}"}
    store.clear()
    # What the paths prove of all rows takes no more.
    assert accel.scan("t/", "year = 2023", store=store, index="i/", listing="index").count_rows() == 30
    assert {call.path for call in store.calls} <= {"i/head"}


@pytest.mark.parametrize(
    ("schema", "where", "files"),
    [
        (pa.schema([("year", pa.string()), ("day", pa.string()), ("city", pa.string())]), "year = '2023'", 3),
        (
            pa.schema([("day", pa.timestamp("us")), ("year", pa.int16()), ("city", pa.string())]),
            "year > 2000 AND day < '2023-05-02'",
            1,
        ),
        (pa.schema([("city", pa.dictionary(pa.int32(), pa.string()))]), "city = 'Oslo'", 2),
        (pa.schema([("year", pa.float64())]), "year <= 2023", 4),
        (pa.schema([("year", pa.decimal128(8, 2))]), "year = 2024.00", 2),
    ],
    ids=["all text", "other types and order", "a dictionary", "floats", "decimals"],
)
def test_types_that_the_caller_gives(schema: pa.Schema, where: str, files: int) -> None:
    store = DictStore({f"t/{path}": file(at) for at, path in enumerate(PATHS)})
    accel.build_index("t/", to="i/", store=store)
    given: dict[str, Any] = {"store": store, "cache": None, "partitioning": schema}
    expected = accel.scan("t/", where, index=None, **given).to_table()
    for listing in ("store", "index"):
        scan = accel.scan("t/", where, index="i/", listing=listing, **given)
        assert scan.to_table().equals(expected)
        assert files <= scan.metrics.catalog.kept <= files + 1
    assert expected.num_rows == 10 * files


def test_files_of_other_segments_settle_the_types() -> None:
    """Three commits: numbers, then dates, then numbers again whose directory has a text beside them."""
    store = DictStore({"t/k=1/a.parquet": file(0), "t/k=30/a.parquet": file(1)})
    accel.build_index("t/", to="i/", store=store)

    def rows(where: str, listing: str) -> list[Any]:
        scan = accel.scan("t/", where, store=store, index="i/", listing=listing, cache=None)
        return scan.to_table().column("k").unique().to_pylist()

    assert rows("k > 4", "index") == rows("k > 4", "store") == [30]
    store.put("t/k=2020-01-01/a.parquet", file(2))
    accel.refresh_index("i/", store=store)
    for listing in ("index", "store"):
        assert rows("k > '3'", listing) == ["30"]
        assert rows("k < '3'", listing) == ["1", "2020-01-01"]
    store.delete("t/k=2020-01-01/a.parquet")
    store.put(f"t/k={NULL}/a.parquet", file(3))
    accel.refresh_index("i/", store=store)
    for listing in ("index", "store"):
        assert rows("k > 4 OR k IS NULL", listing) == [30, None]
    store.put("t/j=1/a.parquet", file(4))
    accel.refresh_index("i/", store=store)
    for listing in ("index", "store"):
        with pytest.raises(accel.SchemaMismatchError, match="partition keys"):
            rows("k > 4", listing)


def test_values_of_paths() -> None:
    found = FilePartitions.of_paths(
        pa.schema([("b", pa.int64()), ("a", pa.string())]),
        ["a=x/b=1/0", "a=%20/b=007/1", "a=x/b=1/2", "a=dropped/b=no number/3"],
        pa.array([True, True, True, False]).to_numpy(zero_copy_only=False),
    )
    assert (found.values, found.codes.tolist()) == ([(1, "x"), (7, " ")], [0, 1, 0, 0])
