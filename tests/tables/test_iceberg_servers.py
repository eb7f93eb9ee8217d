"""Iceberg tables in the catalogs that are servers: Iceberg's own REST catalog, a Hive Metastore, and Glue. Each
table is made by pyiceberg in the test; accel reads what pyiceberg reads, with the credentials of the catalog."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import accel
import accel.tables
from accel.errors import TableFormatError

if TYPE_CHECKING:
    from tests.support.hive_metastore import HiveMetastore
    from tests.support.iceberg_rest import IcebergRest
    from tests.support.s3 import S3Admin

pytest.importorskip("pyiceberg", reason="pyiceberg is not installed")

ROWS = pa.table(
    {
        "id": pa.array(range(90), pa.int64()),
        "name": pa.array([None if i % 9 == 0 else f"n{i % 7}" for i in range(90)]),
    }
)


@pytest.fixture(autouse=True)
def _no_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the environment has is not what the catalog has."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="session")
def glue(s3: S3Admin) -> Iterator[dict[str, str]]:
    """The properties of a catalog in moto's Glue, with its tables in the S3 server."""
    moto = pytest.importorskip("moto.server", reason="moto is not installed")
    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    try:
        s3.create_bucket("iceberg-glue")
        host, port = server.get_host_and_port()
        yield {
            "type": "glue",
            "glue.endpoint": f"http://{host}:{port}",
            "glue.region": "us-east-1",
            "glue.access-key-id": "any",
            "glue.secret-access-key": "any",
            "warehouse": "s3://iceberg-glue/warehouse",
            "s3.endpoint": s3.url,
            "s3.region": "us-east-1",
            "s3.access-key-id": s3.access_key,
            "s3.secret-access-key": s3.secret_key,
            "s3.path-style-access": "true",
        }
    finally:
        server.stop()


def check(properties: dict[str, str], maker: Any = None) -> accel.tables.IcebergTable:
    """Make a table in a catalog, and read it by the catalog's properties and by the object.

    Parameters
    ----------
    properties : dict
        Those of the catalog.
    maker : Catalog, optional
        Another one that makes the table, of which this one is told.
    """
    from pyiceberg.catalog import load_catalog

    catalog = load_catalog("made", **properties)
    maker = maker or catalog
    for each in (catalog, maker):
        each.create_namespace_if_not_exists("lake")
    made = maker.create_table("lake.events", schema=ROWS.schema)
    for start in range(0, 90, 30):
        made.append(ROWS.slice(start, 30))
    made.delete("id = 24")
    with made.update_schema() as update:
        update.rename_column("name", "label")
    made.append(ROWS.slice(0, 3).rename_columns(["id", "label"]))

    def publish() -> None:
        if maker is not catalog:
            if catalog.table_exists("lake.events"):
                catalog.drop_table("lake.events")
            catalog.register_table("lake.events", made.metadata_location)

    publish()
    where = "label = 'n3' AND id > 20"
    expected = sorted(made.scan(row_filter=where).to_arrow().to_pylist(), key=repr)
    named = accel.tables.iceberg("lake.events", catalog=properties)
    for table in (named, accel.tables.iceberg("lake.events", catalog=catalog), made):
        found = accel.scan(table, where).to_table()
        assert found.schema.names == ["id", "label"]
        assert sorted(found.to_pylist(), key=repr) == expected != [], table
    first = made.history()[0].snapshot_id
    old = accel.tables.iceberg("lake.events", catalog=properties, snapshot_id=first)
    assert accel.scan(old).to_table().to_pylist() == ROWS.slice(0, 30).to_pylist()
    # What is committed later is seen once the answer of the catalog is old.
    made.append(ROWS.slice(0, 1).rename_columns(["id", "label"]))
    publish()
    assert accel.scan(named, cache=accel.Cache(max_age=0)).count_rows() == made.scan().count()
    with pytest.raises(TableFormatError, match="no table 'lake.other'"):
        accel.scan(accel.tables.iceberg("lake.other", catalog=properties)).to_table()
    return named


def test_the_rest_catalog_of_iceberg_vends_credentials_that_end(iceberg_rest: IcebergRest) -> None:
    properties = iceberg_rest.properties
    assert not [name for name in properties if "secret" in name or "token" in name]
    table = check(properties)
    vended = table.vended_options
    assert vended is not None and "secret_access_key" not in vended
    left = vended["credential_provider"].seconds_left
    assert left is not None and 60 < left <= 3600 and "secret" not in repr(vended).lower()
    # Whoever is given them reads the table by its path, and nobody else does.
    from pyiceberg.catalog import load_catalog

    path = load_catalog("made", **properties).load_table("lake.events").metadata_location
    rows = accel.scan(table).count_rows()
    assert accel.scan(path, table="iceberg", storage_options=table.vend()).count_rows() == rows
    without = {name: value for name, value in vended.items() if name != "credential_provider"}
    with pytest.raises(accel.AccelError):
        accel.scan(path, table="iceberg", storage_options={**without, "skip_signature": "true"}).to_table()


def test_a_hive_metastore_names_the_metadata_file(metastore: HiveMetastore, tmp_path: Path) -> None:
    """This metastore has no locks, which pyiceberg commits by: another catalog makes the table."""
    from pyiceberg.catalog.sql import SqlCatalog

    properties = {"type": "hive", "uri": metastore.url, "warehouse": f"file://{metastore.warehouse}"}
    maker = SqlCatalog("maker", uri=f"sqlite:///{tmp_path}/c.db", warehouse=f"file://{tmp_path}")
    try:
        assert check(properties, maker).vended_options is None
    finally:
        maker.close()


def test_glue_names_the_metadata_file(glue: dict[str, str]) -> None:
    table = check(glue)
    vended = table.vended_options
    assert vended is not None and vended["secret_access_key"] == glue["s3.secret-access-key"]


def test_a_catalog_that_is_down_or_answers_nonsense_is_an_error_without_credentials(
    metastore: HiveMetastore,
) -> None:
    for properties in (
        {"type": "hive", "uri": "thrift://127.0.0.1:9"},
        {"type": "glue", "glue.endpoint": "http://127.0.0.1:9", "glue.region": "us-east-1"},
        {"type": "rest", "uri": metastore.url.replace("thrift", "http")},
    ):
        given = {**properties, "token": "TOP-SECRET", "s3.secret-access-key": "TOP-SECRET"}
        with pytest.raises(accel.AccelError) as caught:
            accel.scan(accel.tables.iceberg("lake.events", catalog=given)).to_table()
        assert "TOP-SECRET" not in str(caught.value)
