"""Iceberg tables by pyiceberg's catalogs, and its opened tables: what accel reads is what pyiceberg reads, and the
metadata come by accel's own stores."""

from __future__ import annotations

import pickle
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import accel
import accel.tables
from accel.errors import TableFormatError

sql = pytest.importorskip("pyiceberg.catalog.sql", reason="pyiceberg is not installed")

ROWS = pa.table(
    {
        "id": pa.array(range(600), pa.int64()),
        "name": pa.array([None if i % 9 == 0 else f"n{i % 7}" for i in range(600)]),
        "x": pa.array([i / 3 for i in range(600)]),
    }
)


@pytest.fixture(name="made", scope="module")
def made_catalog(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Any, Path]]:
    place = tmp_path_factory.mktemp("lake")
    catalog = sql.SqlCatalog("c", uri=f"sqlite:///{place}/c.db", warehouse=f"file://{place}")
    catalog.create_namespace("db")
    table = catalog.create_table("db.t", schema=ROWS.schema)
    for start in range(0, 600, 100):
        table.append(ROWS.slice(start, 100))
    table.delete("id = 7 or id = 555")
    with table.update_schema() as update:
        update.rename_column("name", "label")
    table.append(ROWS.slice(0, 3).rename_columns(["id", "label", "x"]))
    yield catalog, place
    catalog.close()


@pytest.mark.parametrize("warehouse", ["lake", "100%25 of it"])
def test_partitions_whose_directories_are_percent_encoded(tmp_path: Path, warehouse: str) -> None:
    catalog = sql.SqlCatalog(
        "c", uri=f"sqlite:///{tmp_path}/c.db", warehouse=f"file://{tmp_path}/{warehouse}"
    )
    catalog.create_namespace("db")
    names = ["plain", "ü", "a b", "a/b", "x%20y", "#?", "é+"]
    rows = pa.table({"id": range(len(names)), "name": names})
    table = catalog.create_table("db.t", schema=rows.schema)
    with table.update_spec() as update:
        update.add_identity("name")
    table.append(rows)
    for source in (table, accel.tables.iceberg("db.t", catalog=catalog)):
        assert accel.scan(source, cache=None).to_table().sort_by("id").equals(rows)
        assert accel.scan(source, "name = 'x%20y'", cache=None).to_pylist() == [{"id": 4, "name": "x%20y"}]
    catalog.close()


def test_a_catalog_is_an_object_or_properties(made: tuple[Any, Path]) -> None:
    catalog, place = made
    opened = catalog.load_table("db.t")
    expected = sorted(opened.scan(row_filter="label = 'n3'").to_arrow().to_pylist(), key=repr)
    properties = {
        "type": "sql",
        "name": "c",
        "uri": f"sqlite:///{place}/c.db",
        "warehouse": f"file://{place}",
    }
    for table in (
        accel.tables.iceberg("db.t", catalog=catalog),
        accel.tables.iceberg("db.t", catalog=properties),
        accel.tables.iceberg(opened),
        opened,
        opened.metadata_location,
        str(place / "db" / "t"),
    ):
        given = {"table": "iceberg"} if table is opened.metadata_location else {}
        found = accel.scan(table, "label = 'n3'", **given).to_table()
        assert sorted(found.to_pylist(), key=repr) == expected, table
        assert accel.scan(table, **given).count_rows() == opened.scan().to_arrow().num_rows


def test_files_of_pyiceberg_that_are_read_as_files_are_warned_of(made: tuple[Any, Path]) -> None:
    """Below `data/` nothing names the table; a file that was dropped comes back, which nobody is to wonder at."""
    _, place = made
    data = place / "db" / "t" / "data"
    for source in (str(data), f"{data}/*.parquet", [str(path) for path in data.iterdir()]):
        scan = accel.scan(source, columns=["id"])
        with pytest.warns(UserWarning, match="pyiceberg") as told:
            rows = scan.to_table()
        assert rows.num_rows > 0 and len(told) == 1 and len(scan.metrics.warnings) == 1
    one = str(next(data.iterdir()))
    elsewhere = place / "elsewhere"
    elsewhere.mkdir()
    pq.write_table(ROWS, elsewhere / Path(one).name)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert accel.scan(str(data), table=None, columns=["id"]).count_rows() > 0
        assert accel.scan(one).count_rows() > 0  # it is meant
        assert accel.scan(str(elsewhere)).count_rows() == 600
        assert accel.scan(str(place / "db" / "t")).count_rows() == 601


def test_an_opened_table_is_read_in_the_version_it_was_opened_in(made: tuple[Any, Path]) -> None:
    catalog, _ = made
    catalog.create_table("db.grows", schema=ROWS.schema).append(ROWS.slice(0, 10))
    opened = catalog.load_table("db.grows")
    named = accel.tables.iceberg("db.grows", catalog=catalog)
    catalog.load_table("db.grows").append(ROWS.slice(10, 5))
    assert accel.scan(opened).count_rows() == 10
    assert accel.scan(named, cache=accel.Cache()).count_rows() == 15


def test_the_newest_version_is_asked_for_again_once_it_is_old(made: tuple[Any, Path]) -> None:
    catalog, _ = made
    catalog.create_table("db.aged", schema=ROWS.schema).append(ROWS.slice(0, 10))
    named = accel.tables.iceberg("db.aged", catalog=catalog)
    aged, fresh = accel.Cache(max_age=0), accel.Cache(max_age=600)
    assert accel.scan(named, cache=fresh).count_rows() == 10
    catalog.load_table("db.aged").append(ROWS.slice(0, 1))
    assert accel.scan(named, cache=fresh).count_rows() == 10
    assert accel.scan(named, cache=aged).count_rows() == 11


def test_errors_of_a_catalog_name_the_table_and_show_no_credential(made: tuple[Any, Path]) -> None:
    catalog, _ = made
    with pytest.raises(TableFormatError, match="no table 'db.nix'"):
        accel.scan(accel.tables.iceberg("db.nix", catalog=catalog)).to_table()
    secret = {"type": "rest", "uri": "http://127.0.0.1:9/", "token": "TOP-SECRET"}
    with pytest.raises(accel.AccelError) as caught:
        accel.scan(accel.tables.iceberg("db.t", catalog=secret)).to_table()
    assert "TOP-SECRET" not in str(caught.value)
    with pytest.raises(accel.AccelError):
        accel.scan(accel.tables.iceberg("db.t", catalog={"type": "no such"})).to_table()
    with pytest.raises(TypeError):
        accel.scan(accel.tables.iceberg("db.t", catalog=7)).to_table()


def test_a_table_pickles_without_what_a_catalog_has_sent(made: tuple[Any, Path]) -> None:
    _, place = made
    properties = {
        "type": "sql",
        "name": "c",
        "uri": f"sqlite:///{place}/c.db",
        "warehouse": f"file://{place}",
        "s3.secret-access-key": "given-by-the-user",
    }
    table = accel.tables.iceberg("db.t", catalog=properties)
    assert accel.scan(table, "id = 3").count_rows() == 1
    assert table.vended_options == {"secret_access_key": "given-by-the-user"}
    again = pickle.loads(pickle.dumps(table))
    assert again.vended_options is None
    assert accel.scan(again, "id = 3").count_rows() == 1


def test_importing_accel_and_a_table_by_its_path_load_no_pyiceberg(made: tuple[Any, Path]) -> None:
    _, place = made
    program = (
        "import sys, accel, accel.tables\n"
        f"print(accel.scan(accel.tables.iceberg({str(place / 'db' / 't')!r}), 'id = 3').count_rows())\n"
        "print([name for name in sys.modules if name.split('.')[0] in ('pyiceberg', 'fastavro', 'pydantic')])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=100
    )
    assert done.stdout.split() == ["1", "[]"]
