"""A catalog in a database: the verbs, what is looked up in it and how, and what happens where it is down."""

from __future__ import annotations

import gc
import os
import pickle
import sqlite3
import subprocess
import sys
import traceback
import uuid
import warnings
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pytest

import accel
from accel.catalog.homes import sql_pages, sql_tables
from accel.catalog.homes.sql_database import Tables
from accel.catalog.homes.sql_home import DatabaseHome
from accel.catalog.inspecting import inspect_index, verify_index
from accel.testing import DictStore, Layout, write_file
from tests.support.postgres import Postgres

pytestmark = pytest.mark.usefixtures("few_to_collect")

FILES = 30


def file(number: int) -> bytes:
    r = np.random.default_rng(number)
    columns: dict[str, pa.Array] = {
        "k": pa.array(np.arange(10 * number, 10 * number + 10)),
        "id": pa.array(np.arange(10) * FILES + number),
        "t": pa.array([f"text {10 * number + at:05} {'x' * 90}" for at in range(10)]),
        "noise": pa.array(r.standard_normal(10)),
        "half": pa.array([number if number % 3 else None] * 10, pa.int64()),
    }
    if number % 7 == 5:
        # It is absent, and so are its bounds.
        del columns["half"]
    return write_file(pa.table(columns), Layout(group_rows=5, page_rows=5))


@pytest.fixture(scope="module")
def objects() -> dict[str, bytes]:
    return {f"t/{number:02}.parquet": file(number) for number in range(FILES)}


@pytest.fixture
def store(objects: dict[str, bytes]) -> DictStore:
    return DictStore(objects)


@pytest.fixture(autouse=True, scope="module")
def _small_pages() -> Iterator[None]:
    """So that a few files are many pages."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (("BOUNDS_ROWS", 2), ("PAGE_ROWS", 16), ("FEW_PAGES", 1)):
            patch.setattr(sql_pages, name, value)
        patch.setattr(sql_tables, "AT_ONCE", 7)
        yield


@pytest.fixture(scope="module")
def right(objects: dict[str, bytes]) -> dict[str | None, list[Any]]:
    """The answers without an index."""
    store, cache = DictStore(objects), accel.Cache()
    return {where: rows(store, where, index=None, cache=cache)[0] for where in QUESTIONS}


@pytest.fixture(params=["sqlite", "postgresql"])
def index(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an index that is not there yet."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/index.db"
    server: Postgres = request.getfixturevalue("postgres")
    return f"{server.url()}#i{uuid.uuid4().hex[:16]}"


def rows(store: DictStore, where: str | None, **given: Any) -> tuple[list[Any], Any]:
    scan = accel.scan("t/", where, store=store, schema=SCHEMA, **({"cache": None} | given))
    return scan.to_table().to_pylist(), scan.metrics


SCHEMA = pa.schema(
    [("k", pa.int64()), ("id", pa.int64()), ("t", pa.string()), ("noise", pa.float64()), ("half", pa.int64())]
)
QUESTIONS = [
    None,
    "k = 203",
    "k >= 290 OR k < 3",
    "k IN (5, 105, 205, 100000)",
    "k = -1",
    "id = 207",
    "id IN (7, 8) AND k < 300",
    "t LIKE 'text 0012%'",
    "t >= 'text 00290'",
    "noise > 2",
    "noise < -2 AND k > 100",
    "half = 16",
    "half IS NULL AND k BETWEEN 100 AND 150",
    "half > 25",
    "half < 4 AND noise < 5 AND NOT (k = 12)",
    "half <> 16 AND k < 60",
]


# -- the verbs ---------------------------------------------------------------------------------------


def test_scans_with_it_are_the_scans_without(
    store: DictStore, right: dict[str | None, list[Any]], index: str
) -> None:
    report = accel.build_index("t/", to=index, indexes={"id": "keys"}, store=store)
    assert (report.files, report.added, report.segments) == (FILES, FILES, 1)
    cache = accel.Cache()
    for where in QUESTIONS:
        for given in ({"listing": "index"}, {"cache": cache}):
            found, metrics = rows(store, where, index=index, **given)
            assert found == right[where], (where, given)
            assert metrics.warnings == []
            assert metrics.catalog.total == FILES


def test_it_rules_out_what_an_index_in_a_store_does(store: DictStore, tmp_path: Path) -> None:
    index = f"sqlite:///{tmp_path}/index.db"
    for place in (index, "x/"):
        accel.build_index("t/", to=place, indexes={"id": "keys"}, store=store)
    cache = accel.Cache()
    for where in QUESTIONS:
        left = [
            rows(store, where, index=place, listing="index", cache=cache)[1].catalog.kept
            for place in (index, "x/")
        ]
        # Few files are left to their metadata: see `_FEW_FILES`.
        assert left[1] <= left[0] <= left[1] + 12, where


def test_it_is_kept(store: DictStore, index: str) -> None:
    accel.build_index("t/", to=index, store=store)
    for number in (3, 4):
        store.put(f"t/{number:02}.parquet", file(number + 100))
    store.delete("t/05.parquet")
    store.put("t/99.parquet", file(99))
    stale, metrics = rows(store, "k >= 980", index=index)
    assert {row["k"] // 10 for row in stale} == {99, 103, 104}
    assert metrics.catalog_stale == 3
    report = accel.refresh_index(index, store=store)
    assert (report.files, report.added, report.removed, report.unchanged) == (FILES, 3, 3, FILES - 3)
    assert report.segments == 2
    assert verify_index(index, store=store).is_empty
    assert accel.compact_index(index, store=store).segments == 1
    assert verify_index(index, store=store).is_empty
    described = inspect_index(index, store=store)
    assert (described.files, described.rows, described.retired) == (FILES, 10 * FILES, 4)
    vacuumed = accel.vacuum_index(index, grace=0, store=store)
    assert len(vacuumed.deleted) == 4
    assert accel.vacuum_index(index, grace=0, store=store).deleted == ()
    expected = rows(store, "half < 20", index=None)[0]
    assert rows(store, "half < 20", index=index)[0] == expected
    plan = accel.plan("t/", "k = 203", index=index, store=store, cache=None)
    assert plan.explain().catalog == (2, FILES)
    assert accel.scan("t/", index=index, store=store, cache=None).count_rows() == 10 * FILES


def test_a_commit_of_this_process_is_seen_by_its_next_scan(store: DictStore, index: str) -> None:
    cache = accel.Cache()
    accel.build_index("t/", to=index, store=store)
    assert rows(store, "k = 995", index=index, listing="index", cache=cache)[0] == []
    store.put("t/99.parquet", file(99))
    accel.refresh_index(index, store=store)
    assert len(rows(store, "k = 995", index=index, listing="index", cache=cache)[0]) == 1
    # A cache that trusts nothing asks, and reads nothing again.
    distrustful = accel.Cache(max_age=0)
    first = rows(store, "k = 7", index=index, listing="index", cache=distrustful)[1]
    again = rows(store, "k = 7", index=index, listing="index", cache=distrustful)[1]
    assert again.bytes_by_kind["catalog"] < first.bytes_by_kind["catalog"] / 3


def test_several_indexes_share_a_database(store: DictStore, index: str) -> None:
    place = index.partition("#")[0]
    name = f"i{uuid.uuid4().hex[:12]}"
    store.put("u/0.parquet", file(0))
    accel.build_index("t/", to=f"{place}#{name}_a", store=store)
    accel.build_index("u/", to=f"{place}#{name}_b", store=store)
    assert inspect_index(f"{place}#{name}_a", store=store).files == FILES
    assert inspect_index(f"{place}#{name}_b", store=store).files == 1
    with pytest.raises(accel.StoreError, match="covers t/, not u/"):
        accel.build_index("u/", to=f"{place}#{name}_a", store=store)


def test_the_command_line(tmp_path: Path, index: str, capsys: pytest.CaptureFixture[str]) -> None:
    from accel.cli.main import main

    (tmp_path / "t").mkdir()
    for number in range(3):
        (tmp_path / "t" / f"{number}.parquet").write_bytes(file(number))
    for verb in (["build", f"{tmp_path}/t", "--to", index], *(["refresh", index], ["compact", index])):
        assert main(["index", *verb]) == 0
    assert main(["index", "inspect", index]) == 0
    assert main(["index", "verify", index]) == 0
    assert main(["index", "vacuum", index]) == 0
    assert "3 files" in capsys.readouterr().out
    (tmp_path / "t" / "1.parquet").write_bytes(file(9))
    assert main(["index", "verify", index]) == 1


# -- what is sent, and what serves it ----------------------------------------------------------------


def test_only_pages_whose_bounds_survive_travel(store: DictStore, index: str) -> None:
    accel.build_index("t/", to=index, store=store)
    cache = accel.Cache()
    rows(store, None, index=index, listing="index", cache=cache)
    accel.scan("t/", "k = 1", index=index, store=store, cache=cache).count_rows()
    taken = {}
    for where in ("k = 203", "k >= 0", "k = -1"):
        found = rows(store, where, index=index, listing="index", cache=cache)[1]
        taken[where] = found.bytes_by_kind.get("catalog", 0)
    assert taken["k = -1"] == 0
    assert 0 < taken["k = 203"] < taken["k >= 0"] / 8


def plans(index: str, statement: str, parameters: list[Any]) -> str:
    if index.startswith("sqlite"):
        with closing(sqlite3.connect(index.removeprefix("sqlite:///"))) as connection:
            found = connection.execute(f"EXPLAIN QUERY PLAN {statement}", parameters).fetchall()
            return "\n".join(row[3] for row in found)
    import psycopg

    with psycopg.connect(index.partition("#")[0]) as connection:
        connection.execute("SET enable_seqscan = off")
        connection.execute(f"ANALYZE {statement.split('FROM ')[1].split()[0].strip(',')}")
        found = connection.execute(f"EXPLAIN {statement.replace('?', '%s')}", parameters).fetchall()
        return "\n".join(row[0] for row in found)


def test_an_index_of_the_database_serves_each_query(store: DictStore, index: str) -> None:
    accel.build_index("t/", to=index, store=store)
    name = "accel" if "#" not in index else index.partition("#")[2]
    tables = Tables(name, binary="", identity="")
    pages = tables.pages
    interval = [1, 0, b"a", 1, 0, b"b", 9, b"b", b"a", 1, 0, -1, 256]
    ranged = plans(index, tables.in_range(), interval)
    for key in ("reach", "floor"):
        assert f"{pages}_by_{key}" in ranged
        assert ranged.count("object=?") >= 3 or "Index Cond" in ranged
    others = [(tables.of_parts(2), [1, 0, 1, 0, -1, 9]), (tables.by_number(3), [1, 0, 1, 2, 3])]
    for statement, parameters in [*others, (tables.in_range(), interval)]:
        plan = plans(index, statement, parameters)
        # No table is read from one end to the other; `ends` is one row.
        assert "SCAN" not in plan.replace("INDEX SCAN", "").replace("SCAN ends", "").replace(
            "SCAN CONSTANT ROW", ""
        )
        assert "Seq Scan" not in plan
        assert "SEARCH" in plan or "Index" in plan


def test_a_column_without_any_value_rules_all_files_out(index: str) -> None:
    nothing = write_file(pa.table({"k": pa.nulls(4, pa.int64()), "id": pa.array(range(4))}))
    store = DictStore({f"t/{number:02}.parquet": nothing for number in range(FILES)})
    accel.build_index("t/", to=index, store=store)
    for where in ("k = 7", "k > -5 AND id >= 0", "k BETWEEN 1 AND 3 OR k = 9"):
        found, metrics = rows(store, where, index=index)
        assert found == []
        # One file is kept for the columns of the result.
        assert (metrics.catalog.kept, metrics.catalog.total) == (1, FILES)


# -- where it is not there ---------------------------------------------------------------------------


def test_an_index_that_is_not_there(store: DictStore, index: str, tmp_path: Path) -> None:
    expected, _ = rows(store, "k = 203", index=None)
    for place in (index, f"sqlite:///{tmp_path}/none/index.db"):
        with pytest.warns(UserWarning, match="no index"):
            found, metrics = rows(store, "k = 203", index=place)
        assert found == expected
        assert metrics.indexes_ignored == 1
        with pytest.raises(accel.ObjectNotFoundError):
            rows(store, "k = 203", index=place, options=accel.Options(strict=True))
        with pytest.raises(accel.ObjectNotFoundError):
            rows(store, "k = 203", index=place, listing="index")
        for verb in (accel.refresh_index, accel.compact_index, accel.vacuum_index, inspect_index):
            with pytest.raises(accel.ObjectNotFoundError):
                verb(place, store=store)
    assert not (tmp_path / "index.db").exists()


def test_a_scan_goes_on_without_a_server_that_is_down(store: DictStore, postgres: Postgres) -> None:
    from tests.support.postgres import find_postgres

    programs = find_postgres()
    assert programs is not None
    with Postgres(programs) as server:
        index = server.new_database()
        accel.build_index("t/", to=index, store=store)
        cache = accel.Cache()
        expected, _ = rows(store, "k = 203", index=index, cache=cache)
        server.stop()
        # The head is cached, and a connection seems to be open.
        for given in ({"cache": cache}, {"cache": None}):
            with pytest.warns(UserWarning, match="is not used"):
                found, metrics = rows(store, "k = 203", index=index, **given)
            assert found == expected
            assert metrics.indexes_ignored == 1
            assert "is not used" in metrics.warnings[0]
        with pytest.raises(accel.StoreError, match="PostgreSQL failed"):
            rows(store, "k = 203", index=index, options=accel.Options(strict=True))
        with pytest.raises(accel.StoreError, match="PostgreSQL failed"):
            accel.refresh_index(index, store=store)


def test_a_connection_that_the_server_has_ended_is_made_again(store: DictStore, postgres: Postgres) -> None:
    import psycopg

    index = postgres.new_database()
    accel.build_index("t/", to=index, store=store)
    expected, _ = rows(store, "k = 203", index=index)
    with psycopg.connect(postgres.url(), autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s",
            (index.rpartition("/")[2],),
        )
    found, metrics = rows(store, "k = 203", index=index)
    assert (found, metrics.warnings) == (expected, [])


def test_indexes_in_a_database_share_its_connections(store: DictStore, postgres: Postgres) -> None:
    import psycopg

    database = postgres.new_database()
    for number in range(6):
        accel.build_index("t/", to=f"{database}#share{number}", store=store)
        rows(store, "k = 203", index=f"{database}#share{number}")
    with psycopg.connect(postgres.url(), autocommit=True) as connection:
        query = "SELECT count(*) FROM pg_stat_activity WHERE datname = %s"
        ((count,),) = connection.execute(query, (database.rpartition("/")[2],)).fetchall()
    assert 1 <= count <= 4


def test_a_file_that_was_replaced_is_read_anew(store: DictStore, tmp_path: Path) -> None:
    index = f"sqlite:///{tmp_path}/index.db"
    accel.build_index("t/", to=index, store=store)
    rows(store, "k = 203", index=index)
    for path in tmp_path.iterdir():
        path.unlink()
    with pytest.warns(UserWarning, match="no index"):
        rows(store, "k = 203", index=index)
    assert accel.build_index("t/", to=index, store=store).added == FILES
    assert rows(store, "k = 203", index=index)[1].catalog.total == FILES


def put_over(new: Path, old: Path) -> None:
    new.replace(old)


def copy_over(new: Path, old: Path) -> None:
    old.write_bytes(new.read_bytes())
    new.unlink()


@pytest.mark.parametrize("put", [put_over, copy_over])
@pytest.mark.parametrize("listing", ["store", "index"])
def test_a_file_that_was_replaced_by_a_newer_one(
    store: DictStore, tmp_path: Path, listing: str, put: Callable[[Path, Path], None]
) -> None:
    index, cache = f"sqlite:///{tmp_path}/index.db", accel.Cache()
    given: dict[str, Any] = {"index": index, "listing": listing, "cache": cache}
    accel.build_index("t/", to=index, store=store)
    assert rows(store, "k >= 0", **given)[1].catalog.total == FILES
    store.put("t/99.parquet", file(99))
    accel.build_index("t/", to=f"sqlite:///{tmp_path}/new.db", store=store)
    # The file is all that there is of either.
    assert sorted(path.name for path in tmp_path.iterdir()) == ["index.db", "new.db"]
    put(tmp_path / "new.db", tmp_path / "index.db")
    for where, count in (
        (None, 10 * FILES + 10),
        ("k = 995", 1),
        ("k = 203", 1),
        ("k >= 0", 10 * FILES + 10),
    ):
        found, metrics = rows(store, where, **given)
        assert (len(found), metrics.warnings, metrics.catalog_stale) == (count, [], 0), where
        assert metrics.catalog.total == FILES + 1
    # It is kept in its place.
    store.delete("t/99.parquet")
    assert accel.refresh_index(index, store=store).files == FILES
    assert rows(store, "k = 995", **given)[0] == []


@pytest.mark.parametrize("put", [put_over, copy_over])
def test_a_file_that_is_replaced_between_the_reads_of_a_scan(
    store: DictStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, put: Callable[[Path, Path], None]
) -> None:
    index = f"sqlite:///{tmp_path}/index.db"
    accel.build_index("t/", to=index, store=store)
    store.put("t/99.parquet", file(99))
    for listing in ("store", "index"):
        accel.build_index("t/", to=f"sqlite:///{tmp_path}/new.db", store=store)
        load = DatabaseHome.load

        async def replaced_after(
            self: DatabaseHome, *args: Any, load: Callable[..., Any] = load, **more: Any
        ) -> Any:
            found = await load(self, *args, **more)
            if (tmp_path / "new.db").exists():
                put(tmp_path / "new.db", tmp_path / "index.db")
            return found

        with monkeypatch.context() as patch:
            patch.setattr(DatabaseHome, "load", replaced_after)
            found, metrics = rows(store, "k = 995", index=index, listing=listing)
        assert (len(found), metrics.warnings, metrics.catalog.total) == (1, [], FILES + 1)


def test_a_build_notices_that_its_database_was_replaced(
    store: DictStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index, put_head = f"sqlite:///{tmp_path}/index.db", DatabaseHome.put_head
    accel.build_index("t/", to=index, store=store)
    before = (tmp_path / "index.db").read_bytes()

    async def restored_before(self: DatabaseHome, *args: Any, **more: Any) -> None:
        (tmp_path / "index.db").write_bytes(before)
        await put_head(self, *args, **more)

    monkeypatch.setattr(DatabaseHome, "put_head", restored_before)
    store.put("t/99.parquet", file(99))
    with pytest.raises(accel.StoreError, match="lacks what this builder has written"):
        accel.refresh_index(index, store=store)
    monkeypatch.undo()
    assert rows(store, "k = 203", index=index, listing="index")[1].warnings == []
    assert accel.refresh_index(index, store=store).files == FILES + 1


def test_no_file_stays_open(store: DictStore, tmp_path: Path) -> None:
    def opened() -> list[str]:
        found = []
        for number in os.listdir("/proc/self/fd"):
            with suppress(FileNotFoundError):  # that of the list itself
                found.append(os.readlink(f"/proc/self/fd/{number}"))
        return [path for path in found if path.startswith(str(tmp_path))]

    if not Path("/proc/self/fd").exists():
        pytest.skip("the open files of a process are read from /proc")
    for number in range(3):
        index = f"sqlite:///{tmp_path}/{number}.db"
        accel.build_index("t/", to=index, store=store)
        rows(store, "k = 203", index=index)
        rows(store, "k = 203", index=index, listing="index")
    assert opened() == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0.db", "1.db", "2.db"]


# -- URLs --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url",
    [
        "sqlite://",
        "sqlite:///",
        "sqlite://host/index.db",
        "sqlite:///index.db?mode=ro",
        "sqlite:///index.db#a name",
        "sqlite:///index.db#1",
        "postgresql://h:port/db",
        "postgresql://h/db#a;b",
    ],
)
def test_urls_that_name_nothing_are_refused(store: DictStore, url: str) -> None:
    with pytest.raises(accel.StoreError):
        accel.build_index("t/", to=url, store=store)


def test_relative_and_quoted_paths_of_sqlite(
    store: DictStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    accel.build_index("t/", to="sqlite:///a%20%23%3f.db", store=store)
    assert (tmp_path / "a #?.db").exists()
    assert rows(store, "k = 7", index=f"sqlite:///{tmp_path}/a%20%23%3F.db")[1].catalog.total == FILES


def test_a_file_of_sqlite_among_the_data_is_refused(tmp_path: Path) -> None:
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "0.parquet").write_bytes(file(0))
    with pytest.raises(accel.StoreError, match="share a directory"):
        accel.build_index(tmp_path / "t", to=f"sqlite:///{tmp_path}/t/index.db")
    report = accel.build_index(tmp_path / "t", to=f"sqlite:///{tmp_path}/t/_index.db")
    assert report.files == 1
    assert accel.scan(tmp_path / "t", index=f"sqlite:///{tmp_path}/t/_index.db").count_rows() == 10


def test_a_package_that_is_missing_is_named(store: DictStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(accel.StoreError, match=r"accel-parquet\[postgres\]"):
        accel.build_index("t/", to="postgresql://h/db", store=store)


def test_neither_dialect_is_imported_before_it_is_named() -> None:
    code = (
        "import sys, accel; from accel.testing import DictStore, write_file; import pyarrow as pa\n"
        "s = DictStore({'t/0.parquet': write_file(pa.table({'k': pa.array([1])}))}); accel.build_index('t/', store=s)\n"
        "accel.scan('t/', store=s).to_table()\n"
        "print([name for name in ('sqlite3', 'psycopg') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"


# -- the password ------------------------------------------------------------------------------------


class Heard:
    """All that a call shows: what it returns or raises, warnings, and what tools show of frames."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def listen(self, call: Callable[[], Any]) -> None:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                found = call()
            except Exception as error:  # noqa: BLE001 - all of them are looked at
                shown = traceback.TracebackException.from_exception(error, capture_locals=True)
                # The frames of accel; those of this test hold the URL.
                frames = [frame for frame in shown.stack if f"{os.sep}tests{os.sep}" not in frame.filename]
                self.texts += [repr(error), str(error), repr(error.__dict__)]
                self.texts += [f"{frame} {frame.locals}" for frame in frames]
                self.texts += [repr(error.__context__), repr(error.__cause__)]
            else:
                self.texts += [repr(found), str(found)]
                for name in ("metrics", "explain"):
                    part = getattr(found, name, None)
                    part = part() if callable(part) else part
                    self.texts += [repr(part), str(getattr(part, "warnings", ""))]
                if isinstance(found, accel.Plan):
                    self.texts += [
                        repr(found.tasks),
                        repr(pickle.dumps(found)),
                        repr(found.to_arrow().to_pylist()),
                    ]
        self.texts += [str(one.message) for one in caught]


def test_the_password_is_shown_nowhere(store: DictStore, postgres: Postgres) -> None:
    heard, password = Heard(), postgres.password
    index = f"{postgres.url()}#s{uuid.uuid4().hex[:16]}"
    given: dict[str, Any] = {"store": store, "cache": None}

    def scanned(place: str, **more: Any) -> accel.Scan:
        scan = accel.scan("t/", "k = 203", index=place, **given, **more)
        scan.to_table()
        return scan

    heard.listen(lambda: accel.build_index("t/", to=index, store=store))
    for verb in (accel.refresh_index, accel.compact_index, inspect_index, verify_index, accel.vacuum_index):
        heard.listen(lambda verb=verb: verb(index, store=store))
    strict = {"options": accel.Options(strict=True)}
    for place in (index, f"{index}_none", index.replace("127.0.0.1:", "127.0.0.1:1"), index + "x" * 99):
        for more in ({}, strict, {"listing": "index"}):
            heard.listen(lambda place=place, more=more: scanned(place, **more))
        heard.listen(lambda place=place: accel.plan("t/", "k = 203", index=place, **given))
        heard.listen(lambda place=place: accel.build_index("u/", to=place, store=store))
    wrong = postgres.url(password=password + "wrong")
    heard.listen(lambda: scanned(wrong, **strict))
    heard.listen(lambda: scanned(wrong))
    # As somebody writes it who does not quote it.
    for start in ("postgresql://u:", "postgresql://u:1", "postgres://:"):
        heard.listen(lambda start=start: scanned(f"{start}{password}@127.0.0.1/db", **strict))
        heard.listen(lambda start=start: accel.build_index("t/", to=f"{start}{password}@h/db", store=store))
    heard.listen(lambda: scanned(f"postgresql://h/db?password={quote(password, safe='')}&port=x", **strict))
    everything = "\n".join(heard.texts)
    assert "PostgreSQL failed" in everything
    assert len(heard.texts) > 100
    secret = password.split("/")[1].split("@")[0]
    assert len(secret) == 16
    for text in heard.texts:
        assert secret not in text


@pytest.fixture(autouse=True)
def _connections_are_closed() -> Iterator[None]:
    yield
    if "accel.catalog.homes.postgres" in sys.modules:
        from accel.catalog.homes.postgres import close_idle

        close_idle()
    gc.collect()


def test_a_child_of_a_fork_leaves_the_connections_of_its_parent_alone(store: DictStore, index: str) -> None:
    accel.build_index("t/", to=index, store=store)
    expected, _ = rows(store, "k = 203", index=index)
    child = os.fork()
    if not child:
        gc.collect()
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert rows(store, "k = 203", index=index)[0] == expected


def test_shares_of_it_and_what_scans_learn(store: DictStore, index: str) -> None:
    from accel.catalog.shares import commit_shares, describe_shares, plan_shares

    shares = plan_shares("t/", to=index, shares=3, store=store)
    described = [
        batch
        for share in shares.to_batches(max_chunksize=1)
        for batch in describe_shares([share], index=index, store=store)
    ]
    report = commit_shares(index, pa.Table.from_batches(described), store=store)
    assert (report.files, report.segments) == (FILES, 3)
    assert verify_index(index, store=store).is_empty
    store.put("t/99.parquet", file(99))
    scan = accel.scan("t/", "k = 995", index=index, learn=True, store=store, cache=None)
    assert scan.to_table().num_rows == 1
    scan.close()
    assert inspect_index(index, store=store).files == FILES + 1


def test_a_scan_that_learns_makes_the_index(store: DictStore, index: str) -> None:
    scan = accel.scan("t/", "k = 205", index=index, learn=True, store=store, cache=None)
    assert scan.to_table().num_rows == 1
    scan.close()
    assert inspect_index(index, store=store).files == FILES
