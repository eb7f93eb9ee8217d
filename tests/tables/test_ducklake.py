"""DuckLake tables: each feature alone, what is refused, and what is asked of the catalog."""

from __future__ import annotations

import asyncio
import datetime
import pathlib
import pickle
import sqlite3
import subprocess
import sys
from contextlib import closing
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import accel
from accel.errors import StoreError, TableFormatError
from accel.ranges import Suffix
from accel.testing import DictStore, RecordingStore
from tests.support.cutting_relay import CuttingRelay
from tests.support.ducklake import Lake, matching, same_rows
from tests.support.postgres import Postgres


def table_of(lake: Lake, name: str = "events", **options: object) -> accel.FileSource:
    return accel.tables.ducklake(lake.catalog, name, **options)  # type: ignore[no-any-return]


def change(lake: Lake, *statements: str) -> None:
    """Change the catalog, as nobody should."""
    lake.close()
    with closing(sqlite3.connect(lake.catalog.removeprefix("sqlite:///"))) as connection:
        for statement in statements:
            connection.execute(statement)
        connection.commit()


def agrees(lake: Lake, *wheres: str, name: str = "events", first: int = 1) -> None:
    """Fail where a version does not read as in DuckDB; of catalogs that are none of SQLite's the last ones."""
    last = lake.version()
    few = range(first, last - 1, 3) if lake.catalog.startswith("sqlite") else ()
    expected = {version: lake.at(version, name) for version in (*few, max(first, last - 1), last)}
    lake.close()
    for version, rows in expected.items():
        for where in ("", *wheres):
            found = accel.scan(table_of(lake, name, version=version), where or None).to_table()
            same_rows(found, matching(rows, where))


# -- versions ------------------------------------------------------------------------------------


def test_a_version_is_found_by_number_and_by_time(lake: Lake) -> None:
    lake.run("CREATE TABLE events (id INT)")
    for number in range(3):
        lake.run(f"INSERT INTO events VALUES ({number})")
    times = lake.query("SELECT snapshot_id, snapshot_time FROM lake.snapshots()").to_pylist()
    lake.close()
    for row in times[1:]:
        count = row["snapshot_id"] - 1
        assert accel.scan(table_of(lake, version=row["snapshot_id"])).count_rows() == count
        assert accel.scan(table_of(lake, timestamp=row["snapshot_time"])).count_rows() == count
        text = row["snapshot_time"].astimezone(datetime.UTC).isoformat()
        assert accel.scan(table_of(lake, timestamp=text)).count_rows() == count
    scan = accel.scan(table_of(lake))
    assert scan.count_rows() == 3
    assert scan.metrics.table is not None
    assert scan.metrics.table.version == times[-1]["snapshot_id"]
    assert scan.metrics.table.location == f"{lake.catalog}/main.events"


def test_versions_that_are_not_there(lake: Lake) -> None:
    lake.run("CREATE TABLE events (id INT)")
    with pytest.raises(TableFormatError, match="no version 77") as caught:
        accel.scan(table_of(lake, version=77)).count_rows()
    assert "0 to 1" in str(caught.value.hint)
    assert "main.events" in str(caught.value)
    with pytest.raises(TableFormatError, match="no version is as old as 1999"):
        accel.scan(table_of(lake, timestamp="1999-01-01")).count_rows()
    with pytest.raises(TableFormatError, match=r"no tables are called 'main\.events' in version 0"):
        accel.scan(table_of(lake, version=0)).count_rows()
    with pytest.raises(ValueError, match="a version and a timestamp"):
        table_of(lake, version=1, timestamp="2024-01-01")


def test_names_may_be_quoted(lake: Lake) -> None:
    lake.run(
        'CREATE SCHEMA "a.b"',
        'CREATE TABLE "a.b"."t ""x""" (id INT)',
        'INSERT INTO "a.b"."t ""x""" VALUES (1)',
    )
    assert accel.scan(table_of(lake, '"a.b"."t ""x"""')).count_rows() == 1
    with pytest.raises(ValueError, match="no name of a table"):
        table_of(lake, "a.b.c")


def test_a_table_stays_at_its_version_for_a_run_and_asks_again_for_the_next(lake: Lake) -> None:
    lake.run("CREATE TABLE events (id INT)", "INSERT INTO events VALUES (1)")
    scan = accel.scan(table_of(lake), cache=accel.Cache(max_age=0))
    assert scan.count_rows() == 1
    lake.run("INSERT INTO events SELECT * FROM range(20)")
    assert scan.count_rows() == 21
    assert pickle.loads(pickle.dumps(table_of(lake))).location == table_of(lake).location


# -- rows ----------------------------------------------------------------------------------------

SCALARS = {
    "boolean": "true",
    "tinyint": "-5",
    "smallint": "-300",
    "int": "-70000",
    "bigint": "-9000000000",
    "utinyint": "200",
    "usmallint": "60000",
    "uinteger": "4000000000",
    "ubigint": "18000000000000000000",
    "float": "1.1",
    "double": "'nan'",
    "decimal(4,1)": "1.5",
    "decimal(38,10)": "-1234567890.5",
    "time": "'12:34:56.789'",
    "date": "'2024-02-29'",
    "timestamp": "'2024-02-29 01:02:03.5'",
    "timestamp_ms": "'2024-02-29 01:02:03.5'",
    "timestamp_ns": "'2024-02-29 01:02:03.123456789'",
    "timestamp_s": "'1924-02-29 01:02:03'",
    "timestamptz": "'2024-02-29 01:02:03.5+02'",
    "varchar": "'aé\\b''c' || chr(0) || 'x'",
    "blob": r"'\x00\xFFab'::BLOB",
    "json": """'{"a": [1,2]}'""",
}


def test_inlined_rows_of_all_types_are_those_of_duckdb(any_lake: Lake) -> None:
    columns = ", ".join(f"c{at} {kind}" for at, kind in enumerate(SCALARS))
    any_lake.run(f"CREATE TABLE events (id INT, {columns})")
    any_lake.run(
        f"INSERT INTO events SELECT 1, {', '.join(SCALARS.values())}", "INSERT INTO events (id) VALUES (2)"
    )
    assert any_lake.query("SELECT count(*) AS n FROM glob('" + any_lake.data + "/**')")["n"][0].as_py() == 0
    agrees(any_lake, "id = 1")


def test_what_parquet_has_no_type_for_is_read_as_files_have_it(any_lake: Lake) -> None:
    any_lake.run("CREATE TABLE events (h HUGEINT, z TIMETZ, i INTERVAL, u UUID, s STRUCT(u UUID))")
    row = "-9007199254740993::HUGEINT, '01:34:56+02'::TIMETZ, INTERVAL '14 months 2 days 3 seconds'"
    key = "'0191d6a0-0000-7000-8000-000000000001'::UUID"
    any_lake.run(f"INSERT INTO events SELECT {row}, {key}, {{'u': {key}}}")
    any_lake.run(f"INSERT INTO events SELECT {row}, {key}, {{'u': {key}}} FROM range(20)")
    any_lake.close()
    rows = accel.scan(table_of(any_lake)).to_table()
    assert rows.num_rows == 21
    assert len({repr(row) for row in rows.to_pylist()}) == 1
    (found,) = rows.slice(0, 1).to_pylist()
    assert (found["h"], found["z"]) == (-9007199254740992.0, datetime.time(23, 34, 56))
    assert found["i"] == b"".join(part.to_bytes(4, "little") for part in (14, 2, 3000))
    assert str(found["u"]) == "0191d6a0-0000-7000-8000-000000000001"
    assert accel.scan(table_of(any_lake), f"u = '{found['u']}'").count_rows() == 21


def test_inlined_structs_lists_and_maps(any_lake: Lake) -> None:
    kinds = "id INT, s STRUCT(a INT, b VARCHAR), l VARCHAR[], m MAP(VARCHAR, INT), ll INT[][], f DOUBLE[]"
    any_lake.run(f"CREATE TABLE events ({kinds}, n STRUCT(x BLOB, y TIMESTAMP)[])")
    words = "['NULL', NULL, '', 'a b', ' c', 'it''s', '\"q\"', '\\', '[x]', '{y}', 'a=b', 'a,b', '(z)', 'é:', 'null']"
    any_lake.run(
        f"INSERT INTO events VALUES (1, {{'a': 1, 'b': 'x, y'}}, {words}, MAP {{'k=1': 2, '': NULL, 'it''s': 3}}, "
        "[[1, NULL], [], NULL], ['inf', '-inf', 'nan', 1e-300], "
        r"[{'x': '\x00a,'::BLOB, 'y': TIMESTAMP '2024-01-01'}, NULL])",
        "INSERT INTO events (id) VALUES (2)",
        "INSERT INTO events VALUES (3, {'a': NULL, 'b': NULL}, [], MAP {}, [], [], [])",
    )
    agrees(any_lake, "s.a = 1")


def test_inlined_rows_follow_their_columns_through_all_schema_versions(any_lake: Lake) -> None:
    any_lake.run(
        "CREATE TABLE events (id INT, a FLOAT, d DATE, e DECIMAL(4, 1), s STRUCT(x INT), gone INT)",
        "INSERT INTO events VALUES (1, 1.5, '2024-02-29', 7.5, {'x': 1}, 9)",
        "ALTER TABLE events DROP COLUMN gone",
        "ALTER TABLE events ALTER id SET TYPE BIGINT",
        "INSERT INTO events VALUES (2, NULL, NULL, NULL, NULL)",
        "ALTER TABLE events RENAME COLUMN a TO b",
        "ALTER TABLE events ALTER b SET TYPE DOUBLE",
        "ALTER TABLE events ALTER d SET TYPE TIMESTAMP",
        "ALTER TABLE events ALTER e SET TYPE DECIMAL(9, 3)",
        "ALTER TABLE events ADD COLUMN s.y VARCHAR",
        "ALTER TABLE events RENAME COLUMN s.x TO z",
        "ALTER TABLE events ADD COLUMN gone VARCHAR DEFAULT 'it''s'",
        "INSERT INTO events VALUES (3, 2.5, '2024-03-01', 1.125, {'z': 2, 'y': 'q'}, NULL)",
        "UPDATE events SET b = 0 WHERE id = 1",
    )
    agrees(any_lake, "id > 1", "id = 1")


def test_delete_files_and_deletion_vectors(any_lake: Lake) -> None:
    any_lake.run("CALL lake.set_option('data_inlining_row_limit', 0)", "CREATE TABLE events (id INT)")
    for vectors in ("false", "true"):
        any_lake.run(
            f"CALL lake.set_option('write_deletion_vectors', {vectors})",
            "INSERT INTO events SELECT * FROM range(100)",
            "DELETE FROM events WHERE id < 5",
            "DELETE FROM events WHERE id > 90",
        )
    formats = "SELECT DISTINCT format FROM __ducklake_metadata_lake.ducklake_delete_file ORDER BY 1"
    assert any_lake.query(formats)["format"].to_pylist() == ["parquet", "puffin"]
    agrees(any_lake, "id < 10", first=3)


def test_merged_files_are_read_as_of_each_version(any_lake: Lake) -> None:
    any_lake.run("CREATE TABLE events (id INT)")
    for number in range(4):
        any_lake.run(f"INSERT INTO events SELECT * FROM range({number * 20}, {number * 20 + 20})")
    any_lake.run("INSERT INTO events VALUES (100)", "DELETE FROM events WHERE id IN (7, 30)")
    any_lake.run("CALL ducklake_flush_inlined_data('lake')", "CALL ducklake_merge_adjacent_files('lake')")
    merged = (
        "SELECT count(*) AS n FROM __ducklake_metadata_lake.ducklake_data_file WHERE partial_max IS NOT NULL"
    )
    assert any_lake.query(merged)["n"][0].as_py() > 0
    agrees(any_lake, "id = 30", first=1)
    assert accel.scan(table_of(any_lake, version=3)).count_rows() == 40


def test_files_that_others_have_written(any_lake: Lake, tmp_path: pathlib.Path) -> None:
    for folder in ("p=5/q=x%20y", "p=6/q=__HIVE_DEFAULT_PARTITION__"):
        (tmp_path / "other" / folder).mkdir(parents=True)
        rows = {"ID": pa.array([1, 2], pa.int32()), "s": [{"a": 1, "z": 2}, None], "l": [[{"k": 1}], []]}
        pq.write_table(pa.table(rows), tmp_path / "other" / folder / "f.parquet")
    any_lake.run(
        "CREATE TABLE events (id BIGINT, s STRUCT(a BIGINT, z BIGINT), l STRUCT(k BIGINT)[], p INT, q VARCHAR)",
        "INSERT INTO events SELECT i, {'a': 1, 'z': 2}, [{'k': 1}], 5, 'own' FROM range(20) r(i)",
        f"CALL ducklake_add_data_files('lake', 'events', '{tmp_path}/other/*/*/*.parquet', hive_partitioning => true)",
        "ALTER TABLE events RENAME COLUMN s TO t",
        "ALTER TABLE events DROP COLUMN l",
    )
    agrees(any_lake, "p = 5", "id = 2", first=2)


def test_partitioned_tables(any_lake: Lake) -> None:
    any_lake.run(
        "CREATE TABLE events (id INT, r VARCHAR, ts TIMESTAMP)",
        "ALTER TABLE events SET PARTITIONED BY (r, year(ts))",
        "INSERT INTO events SELECT i, CASE WHEN i % 5 > 0 THEN 'r ' || (i % 3) END, "
        "TIMESTAMP '2020-01-01' + INTERVAL (i * 20) DAY FROM range(60) t(i)",
        "ALTER TABLE events SET PARTITIONED BY (bucket(4, id))",
        "INSERT INTO events SELECT i, 'x', NULL FROM range(60, 90) t(i)",
    )
    agrees(any_lake, "r = 'r 1'", "r IS NULL", "ts < TIMESTAMP '2021-01-01'", "id = 77", first=2)


def test_a_plan_carries_inlined_rows_to_another_process(lake: Lake, tmp_path: pathlib.Path) -> None:
    lake.run("CREATE TABLE events (id INT, name VARCHAR)", "INSERT INTO events VALUES (1, 'a'), (2, 'b')")
    lake.run("INSERT INTO events SELECT i, 'c' FROM range(3, 40) r(i)", "DELETE FROM events WHERE id = 5")
    (tmp_path / "plan").write_bytes(pickle.dumps(accel.plan(table_of(lake), "id < 10")))
    lake.close()
    pathlib.Path(lake.catalog.removeprefix("sqlite:///")).unlink()
    read = "import accel, pickle, sys; plan = pickle.load(open(sys.argv[1], 'rb'))"
    show = "print(sorted(accel.scan(plan).to_table()['id'].to_pylist()))"
    command = [sys.executable, "-c", f"{read}; {show}", str(tmp_path / "plan")]
    ran = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert ran.stdout.strip() == "[1, 2, 3, 4, 6, 7, 8, 9]"


# -- what is asked -------------------------------------------------------------------------------


def test_the_filter_goes_into_the_query_and_answers_are_kept(lake: Lake) -> None:
    from accel.predicate.where import to_expr
    from accel.tables.formats.ducklake.databases import database_at
    from accel.tables.formats.ducklake.table import DuckLakeSource

    lake.run(
        "CREATE TABLE events (id INT, name VARCHAR)", "CALL lake.set_option('data_inlining_row_limit', 0)"
    )
    for number in range(12):
        lake.run(f"INSERT INTO events SELECT i, 'n' || i FROM range({number * 10}, {number * 10 + 10}) r(i)")
    lake.close()
    source = table_of(lake).source()
    assert isinstance(source, DuckLakeSource)

    def asked(where: str | None) -> tuple[int, int, int]:
        found, session = database_at(lake.catalog).read(
            lambda session: source.ask(to_expr(where), None, None, session)
        )
        return sum(map(len, found.pages)), session.queries, session.rows

    of_nothing = asked("id = -1")
    assert of_nothing[0] == 0
    assert asked("id = 57") == (1, of_nothing[1], of_nothing[2] + 1)
    assert asked("id BETWEEN 35 AND 44") == (2, of_nothing[1], of_nothing[2] + 2)
    assert asked("name = 'n101'")[0] == 3
    assert asked(None) == (12, of_nothing[1], of_nothing[2] + 12)
    assert of_nothing[1] == 9

    def queries(cache: accel.Cache, where: str) -> int:
        scan = accel.scan(table_of(lake), where, cache=cache)
        scan.to_table()
        assert scan.metrics.table is not None
        return scan.metrics.table.log_requests

    cache = accel.Cache(max_age=0)
    assert [queries(cache, where) for where in ("id = 1", "id = 1", "id = 2")] == [9, 1, 2]
    lake.run("INSERT INTO events VALUES (1, 'new')")
    lake.close()
    assert queries(cache, "id = 1") == 9
    cache = accel.Cache(max_age=600)
    assert [queries(cache, where) for where in ("id = 1", "id = 1")] == [9, 0]


def test_one_row_takes_two_requests_of_a_cold_process(lake: Lake) -> None:
    lake.run(
        "CREATE TABLE events (id BIGINT, x DOUBLE)", "CALL lake.set_option('data_inlining_row_limit', 0)"
    )
    for number in range(4):
        lake.run(
            f"INSERT INTO events SELECT i, random() FROM range({number * 20_000}, {number * 20_000 + 20_000}) r(i)"
        )
    lake.close()
    scan = accel.scan(table_of(lake), "id = 30000")
    assert scan.to_table().num_rows == 1
    assert scan.metrics.requests == 2
    facts = scan.metrics.table
    assert facts is not None
    assert (facts.files, facts.excluded_by_bounds) == (4, 3)  # the catalog has kept three to itself


# -- what is refused -----------------------------------------------------------------------------


def test_an_encrypted_lake_is_refused(tmp_path: pathlib.Path) -> None:
    with Lake(f"sqlite:///{tmp_path / 'c.db'}", tmp_path / "data", "encrypted") as lake:
        lake.run("CREATE TABLE events (id INT)", "INSERT INTO events SELECT * FROM range(20)")
        with pytest.raises(TableFormatError, match="encrypted") as caught:
            accel.scan(table_of(lake)).to_table()
        assert "keys" in str(caught.value.hint)


SPOILT = {
    "another version": (
        "UPDATE ducklake_metadata SET value = '0.4' WHERE key = 'version'",
        "of version '0.4'",
    ),
    "no version": ("DELETE FROM ducklake_metadata", "of version 'None'"),
    "no catalog": ("DROP TABLE ducklake_metadata", "holds no DuckLake"),
    "a lost table": ("DROP TABLE ducklake_column", "holds no DuckLake"),
    "a path that climbs": ("UPDATE ducklake_data_file SET path = '../../../secret.parquet'", "climbs"),
    "a folder that climbs": ("UPDATE ducklake_table SET path = 'a/../../b/'", "climbs"),
    "another host": (
        "UPDATE ducklake_data_file SET path = 's3://elsewhere/x.parquet', path_is_relative = 0",
        "another store",
    ),
    "another scheme": (
        "UPDATE ducklake_data_file SET path = 'ftp://elsewhere/x.parquet', path_is_relative = 0",
        "no store for ftp",
    ),
    "no path": ("UPDATE ducklake_data_file SET path = NULL", "without path"),
    "bytes for a path": ("UPDATE ducklake_data_file SET path = X'FF00'", "path of a file"),
    "a negative size": ("UPDATE ducklake_data_file SET file_size_bytes = -5", "negative size"),
    "text for rows": ("UPDATE ducklake_data_file SET record_count = 'many'", "rows of a file"),
    "another format": ("UPDATE ducklake_data_file SET file_format = 'orc'", "format 'orc'"),
    "an encrypted file": ("UPDATE ducklake_data_file SET encryption_key = 'a2V5'", "encrypted"),
    "a mapping that is not there": (
        "UPDATE ducklake_data_file SET mapping_id = 99",
        "lacks the mapping|no mapping",
    ),
    "an unknown type": ("UPDATE ducklake_column SET column_type = 'blink'", "of the type 'blink'"),
    "a cycle of columns": ("UPDATE ducklake_column SET parent_column = column_id", "no columns|lies in one"),
    "one id twice": ("UPDATE ducklake_column SET column_id = 1", "the id 1"),
    "one name twice": ("UPDATE ducklake_column SET column_name = 'id'", "one name"),
    "a nonsense default": (
        "UPDATE ducklake_column SET initial_default = 'x' WHERE column_name = 'id'",
        "is no int32",
    ),
    "a nonsense inlined value": ("UPDATE ducklake_inlined_data_1_1 SET d = 'tomorrow'", "'tomorrow'"),
    "a large inlined value": ("UPDATE ducklake_inlined_data_1_1 SET id = 9999999999", "is no int32"),
    "another inlined table": (
        "UPDATE ducklake_inlined_data_tables SET table_name = 'ducklake_metadata'",
        "for rows",
    ),
    "nonsense deletes": ("UPDATE ducklake_inlined_delete_1 SET row_id = 'x'", "deleted rows"),
    "a delete beyond the file": ("UPDATE ducklake_inlined_delete_1 SET row_id = 5000000", "row 5000000"),
    "a size that lies": ("UPDATE ducklake_data_file SET file_size_bytes = file_size_bytes + 1", "."),
}


@pytest.mark.parametrize("case", SPOILT)
def test_a_catalog_that_was_spoilt_is_an_error(lake: Lake, case: str) -> None:
    lake.run("CREATE TABLE events (id INT, d DATE)", "INSERT INTO events VALUES (1, '2024-01-01')")
    lake.run(
        "INSERT INTO events SELECT i, DATE '2024-01-01' FROM range(20) r(i)",
        "DELETE FROM events WHERE id = 7",
    )
    statement, message = SPOILT[case]
    change(lake, statement)
    with pytest.raises(accel.AccelError, match=message) as caught:
        accel.scan(table_of(lake)).to_table()
    assert "catalog.db" in str(caught.value) or "parquet" in str(caught.value)


@pytest.mark.parametrize("bound", ["'x'", "''", "X'FF'", "'1e99999'", "'-'", "NULL"])
def test_statistics_that_are_none_keep_the_file(lake: Lake, bound: str) -> None:
    lake.run("CREATE TABLE events (id INT, x DOUBLE, d DATE, t TIMESTAMPTZ, n DECIMAL(9, 2))")
    lake.run(
        "INSERT INTO events SELECT i, i, DATE '2024-01-01' + i::INT, '2024-01-01', i FROM range(20) r(i)"
    )
    spoilt = f"min_value = {bound}, max_value = {bound}, null_count = NULL, contains_nan = NULL"
    change(lake, f"UPDATE ducklake_file_column_stats SET {spoilt}")
    for where in ("id = 7 AND t > TIMESTAMP '2023-01-01'", "x = 7", "n = 7", "d = DATE '2024-01-08'"):
        assert accel.scan(table_of(lake), where).count_rows() == 1


def test_statistics_that_are_none_keep_the_file_in_any_database(any_lake: Lake) -> None:
    any_lake.run("CREATE TABLE events (id INT, x DOUBLE, d DATE)")
    any_lake.run("INSERT INTO events SELECT i, i, DATE '2024-01-01' + i::INT FROM range(20) r(i)")
    any_lake.close()
    for bound in ("x", "1e99999", "-"):
        spoilt = f"UPDATE ducklake_file_column_stats SET min_value = '{bound}', max_value = '{bound}'"
        if any_lake.catalog.startswith("sqlite"):
            change(any_lake, spoilt)
        elif any_lake.catalog.startswith("duckdb"):
            import duckdb

            with duckdb.connect(any_lake.catalog.removeprefix("duckdb:///")) as connection:
                connection.execute(spoilt)
        else:
            import psycopg

            with psycopg.connect(any_lake.catalog, autocommit=True) as server:
                server.execute(spoilt.encode())
        for where in ("id = 7", "x = 7", "d = DATE '2024-01-08'"):
            found = accel.scan(table_of(any_lake), where, cache=accel.Cache(max_age=0))
            assert found.count_rows() == 1


def test_a_file_that_is_gone_says_so(lake: Lake) -> None:
    lake.run("CREATE TABLE events (id INT)", "INSERT INTO events SELECT * FROM range(20)")
    lake.close()
    for path in pathlib.Path(lake.data).rglob("*.parquet"):
        path.unlink()
    with pytest.raises(accel.ObjectNotFoundError, match="ducklake-"):
        accel.scan(table_of(lake)).to_table()


def test_catalogs_that_are_none(tmp_path: pathlib.Path) -> None:
    (tmp_path / "text.db").write_text("no database" * 100)
    (tmp_path / "empty.db").write_bytes(b"")
    for kind in ("sqlite", "duckdb"):
        with pytest.raises(StoreError, match="no such file"):
            accel.scan(accel.tables.ducklake(f"{kind}:///{tmp_path}/none.db", "t")).to_table()
        with pytest.raises(accel.AccelError, match="text.db"):
            accel.scan(accel.tables.ducklake(f"{kind}:///{tmp_path}/text.db", "t")).to_table()
        with pytest.raises(accel.AccelError, match="empty.db"):
            accel.scan(accel.tables.ducklake(f"{kind}:///{tmp_path}/empty.db", "t")).to_table()
    for url in ("mysql://u:secret@host/db", "lake.db", "sqlite://host", "sqlite:///", "sqlite:///a?b"):
        with pytest.raises(StoreError) as caught:
            accel.tables.ducklake(url, "t")
        assert "secret" not in str(caught.value)


def test_a_catalog_whose_connections_end_is_asked_again(postgres: Postgres, tmp_path: pathlib.Path) -> None:
    with Lake(postgres.new_database(), tmp_path / "data") as lake:
        lake.run("CREATE TABLE events (id INT)", "INSERT INTO events SELECT * FROM range(100)")
    address = urlsplit(lake.catalog)
    with CuttingRelay(address.port or 0, rate=0.01, seed=5) as relay:
        place = lake.catalog.replace(f":{address.port}/", f":{relay.port}/")
        table, options = (
            accel.tables.ducklake(place, "events"),
            accel.Options(backoff_base=0.001, max_attempts=9),
        )
        retries = 0
        while not retries:
            scan = accel.scan(table, "id >= 90", cache=None, options=options)
            assert scan.count_rows() == 10
            retries += scan.metrics.retries
        assert relay.cuts
        relay.rate = 1.0
        with pytest.raises(StoreError, match="9 times"):
            accel.scan(table, cache=None, options=options).count_rows()


def test_a_server_that_is_down_or_holds_no_lake(postgres: Postgres) -> None:
    with pytest.raises(StoreError, match="PostgreSQL failed") as caught:
        accel.scan(accel.tables.ducklake("postgresql://me:verysecret@127.0.0.1:1/db", "t")).to_table()
    assert "verysecret" not in repr(caught.value) + str(caught.value)
    table = accel.tables.ducklake(postgres.new_database(), "t")
    with pytest.raises(TableFormatError, match="holds no DuckLake") as refused:
        accel.scan(table).to_table()
    assert postgres.password not in str(refused.value) + repr(table) + str(table)


def test_the_data_may_be_elsewhere(lake: Lake, tmp_path: pathlib.Path) -> None:
    lake.run("CREATE TABLE events (id INT)", "INSERT INTO events SELECT * FROM range(20)")
    lake.close()
    pathlib.Path(lake.data).rename(tmp_path / "moved")
    assert accel.scan(table_of(lake, data_path=f"{tmp_path}/moved")).to_table().num_rows == 20


@pytest.mark.parametrize("data", ["{}/da%20ta", "file://{}/data", "file://{}/da%20ta"])
def test_what_is_percent_encoded_in_a_path_is_a_part_of_its_name(tmp_path: pathlib.Path, data: str) -> None:
    names = "VALUES (0, 'plain'), (1, 'ü'), (2, 'a b'), (3, 'a/b'), (4, 'x%20y'), (5, '#?'), (6, '..')"
    with Lake(f"sqlite:///{tmp_path}/catalog.db", data.format(tmp_path)) as lake:
        lake.run(
            "CALL lake.set_option('data_inlining_row_limit', 0)",
            "CREATE TABLE events (id INT, name VARCHAR)",
            "ALTER TABLE events SET PARTITIONED BY (name)",
            f"INSERT INTO events {names}",
            "DELETE FROM events WHERE id = 2",
        )
        table = table_of(lake)
        found = accel.scan(table, file_path="file").to_table().sort_by("id")
        assert found["id"].to_pylist() == [0, 1, 3, 4, 5, 6]
        assert accel.scan(table, "name = 'x%20y'").to_pylist() == [{"id": 4, "name": "x%20y"}]
        again = accel.scan(found["file"].to_pylist(), "id <> 2", table=None, partitioning=None)
        assert again.to_table()["id"].to_pylist() == [0, 1, 3, 4, 5, 6]


def test_a_scan_in_a_loop_of_the_callers(lake: Lake) -> None:
    lake.run("CREATE TABLE events (id INT)", "INSERT INTO events SELECT * FROM range(20)")

    async def rows() -> int:
        return sum([batch.num_rows async for batch in accel.scan(table_of(lake), "id > 4")])

    assert asyncio.run(rows()) == 15


def test_what_is_requested_of_a_store(lake: Lake, tmp_path: pathlib.Path) -> None:
    lake.run(
        "CREATE TABLE events (id BIGINT, x DOUBLE)", "CALL lake.set_option('data_inlining_row_limit', 0)"
    )
    for start in (0, 20_000, 40_000):
        lake.run(f"INSERT INTO events SELECT i, hash(i) / 7 FROM range({start}, {start + 20_000}) r(i)")
        lake.run(f"DELETE FROM events WHERE id = {start + 1}")
    (footer,) = lake.query(
        "SELECT footer_size FROM __ducklake_metadata_lake.ducklake_data_file WHERE data_file_id = "
        "(SELECT min(data_file_id) + 2 FROM __ducklake_metadata_lake.ducklake_data_file)"
    ).to_pylist()
    lake.close()
    files = {
        path.relative_to(lake.data).as_posix(): path.read_bytes()
        for path in pathlib.Path(lake.data).rglob("*.parquet")
    }
    store = RecordingStore(DictStore({f"lake/{path}": data for path, data in files.items()}))
    scan = accel.scan(table_of(lake, data_path="lake"), "id = 20005", store=store, cache=accel.Cache())
    assert scan.to_table()["id"].to_pylist() == [20_005]
    asked = [(call.path.endswith("-delete.parquet"), call.want, call.wave) for call in store.calls]
    assert (False, Suffix(footer["footer_size"] + 8), 1) in asked
    assert len({call.path for call in store.calls}) == 2
    assert len(asked) == 3
    assert scan.metrics.round_trips == 3  # the catalog, footer and deletes, pages


def write_with_page_index(path: pathlib.Path, start: int, stop: int, *, ids: bool) -> None:
    fields = [
        pa.field(name, kind, metadata={"PARQUET:field_id": str(at)} if ids else None)
        for at, (name, kind) in enumerate((("id", pa.int64()), ("x", pa.float64())), 1)
    ]
    values = [pa.array(range(start, stop), pa.int64()), pa.array([float(start)] * (stop - start))]
    rows = pa.table(values, schema=pa.schema(fields))
    pq.write_table(rows, path, write_page_index=True, data_page_size=4096, use_dictionary=False)


def lookup(lake: Lake, key: int, cache: accel.Cache) -> tuple[int, int]:
    """Return the requests and bytes that looking up one row takes."""
    scan = accel.scan(table_of(lake), f"id = {key}", cache=cache)
    assert scan.to_table()["id"].to_pylist() == [key]
    return scan.metrics.requests, scan.metrics.bytes


def test_page_indexes_of_added_files_come_along_with_their_footers(
    lake: Lake, tmp_path: pathlib.Path
) -> None:
    for start in (0, 60_000):
        write_with_page_index(tmp_path / f"{start}.parquet", start, start + 60_000, ids=False)
    lake.run(
        "CREATE TABLE events (id BIGINT, x DOUBLE)",
        f"CALL ducklake_add_data_files('lake', 'events', '{tmp_path}/*.parquet')",
    )
    lake.close()
    requests, nbytes = lookup(lake, 61_000, accel.Cache())
    assert requests == 2
    assert nbytes < (128 << 10) + 50_000


def test_page_indexes_of_the_lakes_own_files_are_learned(lake: Lake) -> None:
    lake.run(
        "CREATE TABLE events (id BIGINT, x DOUBLE)", "CALL lake.set_option('data_inlining_row_limit', 0)"
    )
    for start in (0, 20_000, 40_000):
        lake.run(f"INSERT INTO events SELECT i, 0 FROM range({start}, {start + 20_000}) r(i)")
    lake.close()
    cache = accel.Cache()
    of_duckdb = [lookup(lake, key, cache) for key in (30_000, 50_000)]
    assert [requests for requests, _ in of_duckdb] == [2, 2]  # DuckDB writes no page index
    with closing(sqlite3.connect(lake.catalog.removeprefix("sqlite:///"))) as connection:
        files = connection.execute("SELECT data_file_id, path FROM ducklake_data_file ORDER BY 1").fetchall()
    changes = []
    for start, (number, name) in zip((0, 20_000, 40_000), files, strict=True):
        (path,) = pathlib.Path(lake.data).rglob(name)
        write_with_page_index(path, start, start + 20_000, ids=True)
        footer = pq.read_metadata(path).serialized_size
        changes.append(
            f"UPDATE ducklake_data_file SET file_size_bytes = {path.stat().st_size}, footer_size = {footer} "
            f"WHERE data_file_id = {number}"
        )
    change(lake, *changes)
    cache = accel.Cache()
    assert [lookup(lake, key, cache)[0] for key in (30_000, 50_000, 10_000)] == [3, 2, 2]
    assert lookup(lake, 30_001, cache)[0] == 1


def test_an_index_outside_the_files_serves_every_version(lake: Lake, tmp_path: pathlib.Path) -> None:
    lake.run("CREATE TABLE events (id BIGINT, key VARCHAR)")
    for start in range(0, 5000, 1000):
        lake.run(
            f"INSERT INTO events SELECT i, 'k' || (hash(i) % 100000) FROM range({start}, {start + 1000}) r(i)"
        )
    lake.run("INSERT INTO events VALUES (99999, 'inlined')")
    key = lake.query("SELECT key FROM events WHERE id = 2500")["key"][0].as_py()
    index = str(tmp_path / "index")
    report = accel.build_index(table_of(lake), to=index, indexes={"key": "keys"})
    assert (report.files, len(report.skipped)) == (5, 1)
    lake.run("DELETE FROM events WHERE id = 10", "ALTER TABLE events RENAME COLUMN key TO name")
    lake.run("INSERT INTO events SELECT 6000 + i, 'later' FROM range(20) r(i)")
    newest = lake.version()
    lake.close()
    for name, version in (("key", newest - 3), ("name", newest)):
        table = table_of(lake, version=version)
        for value, count in (
            (key, 1),
            ("inlined", 1),
            ("none", 0),
            ("later", 20 if version == newest else 0),
        ):
            scan = accel.scan(table, f"{name} = '{value}'", index=index)
            assert scan.to_table().num_rows == count
