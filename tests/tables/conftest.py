"""Lakes for the tests of tables, and a Hive Metastore with the tables that Spark makes in it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from accel.tables.formats.hive.metastore import Conversation
from tests.support.ducklake import Lake
from tests.support.hive_metastore import HiveMetastore, find_metastore
from tests.support.hive_spark import TABLES
from tests.support.iceberg_rest import IcebergRest, install_iceberg_rest
from tests.support.postgres import Postgres
from tests.support.s3 import S3Admin


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    """A DuckLake whose catalog is in SQLite."""
    with Lake(f"sqlite:///{tmp_path / 'catalog.db'}", tmp_path / "data") as made:
        yield made


@pytest.fixture(params=["sqlite", "duckdb", "postgresql"])
def any_lake(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Lake]:
    """A DuckLake, with its catalog in each of the databases."""
    if request.param == "postgresql":
        server: Postgres = request.getfixturevalue("postgres")
        catalog = server.new_database()
    else:
        catalog = f"{request.param}:///{tmp_path / 'catalog.db'}"
    with Lake(catalog, tmp_path / "data") as made:
        yield made


@pytest.fixture(scope="session")
def metastore() -> Iterator[HiveMetastore]:
    """A Hive Metastore for the whole run; tests use tables of their own."""
    try:
        jars = find_metastore()
    except FileNotFoundError as error:
        if os.environ.get("CI", "").lower() in ("1", "true"):
            raise RuntimeError(f"CI needs a Hive Metastore: {error}") from error
        pytest.skip(f"needs PySpark and Java: {error}")
    with HiveMetastore(jars) as server:
        yield server


@pytest.fixture(scope="session")
def by_spark(metastore: HiveMetastore, tmp_path_factory: pytest.TempPathFactory) -> dict[str, pa.Table]:
    """The tables of `hive_spark`, by name: the rows that Spark reads of them."""
    folder: Path = tmp_path_factory.mktemp("hive")
    command = [sys.executable, "-m", "tests.support.hive_spark", metastore.url, str(metastore.warehouse)]
    done = subprocess.run(
        [*command, str(folder)], capture_output=True, text=True, check=False, timeout=600, cwd=os.getcwd()
    )
    if done.returncode:
        raise RuntimeError(f"Spark made no tables: {done.stderr[-2000:]}")
    return {name: pq.read_table(folder / f"{name}.parquet", partitioning=None) for name in TABLES}


@pytest.fixture(scope="session")
def iceberg_rest(s3: S3Admin) -> Iterator[IcebergRest]:
    """Iceberg's REST catalog for the whole run; tests use namespaces of their own."""
    try:
        jars = install_iceberg_rest()
    except FileNotFoundError as error:
        if os.environ.get("CI", "").lower() in ("1", "true"):
            raise RuntimeError(f"CI needs Iceberg's REST catalog: {error}") from error
        pytest.skip(f"needs Java and Maven: {error}")
    s3.create_bucket("iceberg-rest")
    with IcebergRest(jars, s3, "iceberg-rest") as server:
        yield server


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Any]]:
    """The questions that the metastore is asked: their names, and the filter or the number of names."""
    real = Conversation.ask
    out: list[tuple[str, Any]] = []

    def ask(self: Conversation, method: str, **arguments: Any) -> Any:
        names = arguments.get("names")
        out.append((method, arguments.get("filter") if names is None else len(names)))
        return real(self, method, **arguments)

    monkeypatch.setattr(Conversation, "ask", ask)
    return out
