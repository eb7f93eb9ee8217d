"""Tables of a Hive Metastore that say something unusual, made by Thrift."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import accel
from accel.tables.formats.hive.described import DescribedTable
from accel.tables.formats.hive.thrift_types import Table
from accel.testing import write_file
from tests.support.hive_metastore import HiveMetastore
from tests.support.hive_tables import make_partitions, make_table, parquet_at
from tests.support.s3 import S3Admin
from tests.tables.stored_tables import stored_table

FRESH: dict[str, Any] = {"cache": None}


def scan(metastore: HiveMetastore, table: str, where: str | None = None, **given: Any) -> accel.Scan:
    return accel.scan(accel.tables.hive(metastore.url, table), where, **{**FRESH, **given})


@pytest.fixture
def name() -> str:
    return f"t{secrets.token_hex(6)}"


def put(folder: Path, table: pa.Table, name: str = "a.parquet") -> str:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(write_file(table))
    return str(folder)


COLUMNS = {"id": "bigint", "label": "string"}


def numbers(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "label": [f"l{at}" for at in ids]})


def test_partitions_lie_anywhere_and_in_several_stores(
    metastore: HiveMetastore, name: str, tmp_path: Path, minio: S3Admin, bucket: str
) -> None:
    make_table(metastore.url, name, parquet_at(f"file:{tmp_path}/t", COLUMNS), keys={"k": "int"})
    put(tmp_path / "t" / "k=1", numbers(1, 2))
    put(tmp_path / "elsewhere" / "100%25 x", numbers(3))
    put(tmp_path / "elsewhere" / "100%25 x" / "_temporary", numbers(99))
    put(tmp_path / "elsewhere" / "100%25 x" / "deeper", numbers(4))
    put(tmp_path / "elsewhere" / "100%25 x", numbers(98), ".hidden.parquet")
    (tmp_path / "elsewhere" / "100%25 x" / "empty.parquet").write_bytes(b"")
    minio.put(bucket, "other/a.parquet", write_file(numbers(5, 6)))
    made = [
        ("1", f"file:{tmp_path}/t/k=1"),
        ("2", f"file:{tmp_path}/elsewhere/100%25 x"),
        ("3", f"s3a://{bucket}/other"),
        ("4", f"file:{tmp_path}/nowhere"),
    ]
    make_partitions(metastore.url, name, [([k], parquet_at(place, COLUMNS)) for k, place in made])
    # What the metastore does not name does not count.
    put(tmp_path / "t" / "k=9", numbers(97))
    options = minio.storage_options()
    found = scan(metastore, name, storage_options=options).to_table()
    assert [(row["id"], row["k"]) for row in found.to_pylist()] == [
        (1, 1),
        (2, 1),
        (3, 2),
        (4, 2),
        (5, 3),
        (6, 3),
    ]
    assert scan(metastore, name, "k = 3 AND id > 5", storage_options=options).to_table()[
        "id"
    ].to_pylist() == [6]
    with_table = accel.tables.hive(metastore.url, name, storage_options=options)
    assert accel.scan(with_table, "k >= 3", cache=None).count_rows() == 2


def test_a_directory_of_many_partitions_is_listed_once(
    metastore: HiveMetastore, name: str, tmp_path: Path, asked: list[tuple[str, Any]]
) -> None:
    make_table(metastore.url, name, parquet_at(f"file:{tmp_path}/t", COLUMNS), keys={"k": "int"})
    for at in range(12):
        put(tmp_path / "t" / f"k={at}", numbers(at))
        put(
            tmp_path / "t" / f"k={at}x", numbers(1000 + at)
        )  # a directory that begins alike, and is none of it
    put(tmp_path / "other", numbers(12))
    places = [(str(at), f"{tmp_path}/t/k={at}") for at in range(12)] + [("12", f"{tmp_path}/other")]
    make_partitions(metastore.url, name, [([k], parquet_at(f"file:{at}", COLUMNS)) for k, at in places])
    found = scan(metastore, name)
    assert found.to_table()["id"].to_pylist() == sorted(range(13), key=str)
    assert found.metrics.table is not None
    # The table, names, partitions; the directory above twelve of them, and the other one.
    assert found.metrics.table.log_requests == len(asked) - 2 + 2


def test_columns_are_matched_without_regard_to_case(
    metastore: HiveMetastore, name: str, tmp_path: Path
) -> None:
    columns = {"userid": "bigint", "s": "struct<innera:int,b:array<struct<cc:string>>>", "late": "double"}
    make_table(metastore.url, name, parquet_at(put_nested(tmp_path), columns), keys={"p": "string"})
    storage = parquet_at(f"file:{tmp_path}/t", columns)
    make_partitions(metastore.url, name, [(["x"], storage)])
    expected = {"userid": 7, "s": {"innera": 1, "b": [{"cc": "z"}]}, "late": None, "p": "x"}
    assert scan(metastore, name).to_table().to_pylist() == [expected]
    assert scan(metastore, name, "s.innera = 1 AND userid = 7").count_rows() == 1
    assert scan(metastore, name, "s.innera = 2").count_rows() == 0
    # Where two columns of a file are meant, neither is.
    put(tmp_path / "t", pa.table({"UserId": pa.array([1], pa.int64()), "USERID": pa.array([2], pa.int64())}))
    with pytest.raises(accel.AccelError, match="are both 'userid'"):
        scan(metastore, name).to_table()


def put_nested(tmp_path: Path) -> str:
    kind = pa.struct([("InnerA", pa.int32()), ("B", pa.list_(pa.struct([("Cc", pa.string())])))])
    inner = pa.array([{"InnerA": 1, "B": [{"Cc": "z"}]}], kind)
    # The partition column of a file does not count.
    return put(tmp_path / "t", pa.table({"USERID": pa.array([7], pa.int32()), "S": inner, "P": ["other"]}))


@pytest.mark.parametrize("properties", [{}, {"transactional_properties": "insert_only"}])
def test_a_transactional_table_is_refused(properties: dict[str, str]) -> None:
    """No metastore of the tests takes one of Parquet files."""
    table = Table(
        tableName="t",
        dbName="default",
        sd=parquet_at("file:/t", COLUMNS),
        partitionKeys=[],
        parameters={"transactional": "TRUE", **properties},
        tableType="MANAGED_TABLE",
    )
    with pytest.raises(accel.TableFormatError, match=r"h/t: this is a transactional \(ACID\) table, .*Hive"):
        DescribedTable.of(table, shown="thrift://h/t")


@pytest.mark.parametrize(
    ("storage", "given", "message"),
    [
        ({"inputFormat": "org.apache.hadoop.hive.ql.io.orc.OrcInputFormat"}, {}, "OrcInputFormat' is not that"),
        ({"inputFormat": "org.apache.hudi.hadoop.HoodieParquetInputFormat"}, {}, "Hudi's tables are not read"),
        ({"serde": "org.apache.hadoop.hive.serde2.lazy.LazySimpleSerDe"}, {}, "LazySimpleSerDe' is not that"),
        ({"parameters": {"parquet.column.index.access": "true"}}, {}, "matched by position"),
        ({}, {"parameters": {"spark.sql.sources.schema": "{"}}, "the schema of the table cannot be read"),
        ({}, {"parameters": {"spark.sql.sources.schema.numParts": "2"}}, "a part of spark.sql.sources.schema"),
        ({}, {"parameters": {"storage_handler": "org.x.HBase"}}, "its rows are in 'org.x.HBase'"),
        ({}, {"parameters": {"table_type": "ICEBERG"}}, "an Iceberg table without a metadata_location"),
        (
            {},
            {"parameters": {
                "spark.sql.sources.provider": "parquet",
                "spark.sql.sources.schema.numPartCols": "1",
                "spark.sql.sources.schema":
                    '{"type":"struct","fields":[{"name":"id","type":"long","nullable":true,"metadata":{}}]}',
            }},
            "its partitions are not in the metastore",
        ),
    ],
)  # fmt: skip
def test_tables_that_cannot_be_read_are_refused_by_name(
    metastore: HiveMetastore,
    name: str,
    tmp_path: Path,
    storage: dict[str, Any],
    given: dict[str, Any],
    message: str,
) -> None:
    place = put(tmp_path / "t", numbers(1))
    make_table(metastore.url, name, parquet_at(f"file:{place}", COLUMNS, **storage), **given)
    with pytest.raises(accel.TableFormatError, match=message) as refused:
        scan(metastore, name).to_table()
    assert refused.value.path == f"{metastore.url}/default.{name}"


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("uniontype<int,string>", "type 'uniontype'"),
        ("char(3)", r"type 'char\(3\)'"),
        ("interval_day_time", "type 'interval_day_time'"),
        ("decimal(39,0)", r"type 'decimal\(39,0\)'"),
    ],
)
def test_types_that_are_not_read_are_refused_by_name(
    metastore: HiveMetastore, name: str, tmp_path: Path, kind: str, message: str
) -> None:
    place = put(tmp_path / "t", numbers(1))
    make_table(metastore.url, name, parquet_at(f"file:{place}", {"id": "bigint", "odd": kind}))
    with pytest.raises(accel.TableFormatError, match=message) as refused:
        scan(metastore, name).to_table()
    assert refused.value.place == "column odd"


def test_a_partition_of_another_format_is_refused_where_it_is_needed(
    metastore: HiveMetastore, name: str, tmp_path: Path
) -> None:
    make_table(metastore.url, name, parquet_at(f"file:{tmp_path}/t", COLUMNS), keys={"k": "int"})
    good, text = put(tmp_path / "a", numbers(1)), put(tmp_path / "b", numbers(2))
    other = parquet_at(f"file:{text}", COLUMNS, inputFormat="org.apache.hadoop.mapred.TextInputFormat")
    make_partitions(metastore.url, name, [(["1"], parquet_at(f"file:{good}", COLUMNS)), (["2"], other)])
    assert scan(metastore, name, "k = 1").to_table()["id"].to_pylist() == [1]
    with pytest.raises(accel.TableFormatError, match="TextInputFormat' is not that of Parquet") as refused:
        scan(metastore, name).to_table()
    assert refused.value.place == "partition k=2"


def test_a_partition_value_that_is_none_of_its_type(
    metastore: HiveMetastore, name: str, tmp_path: Path
) -> None:
    place = put(tmp_path / "t", numbers(1))
    make_table(metastore.url, name, parquet_at(f"file:{place}", COLUMNS), keys={"k": "int"})
    make_partitions(metastore.url, name, [(["seven"], parquet_at(f"file:{place}", COLUMNS))])
    with pytest.raises(accel.TableFormatError, match="a value of the partition column 'k' is no int32"):
        scan(metastore, name).to_table()


def test_numbers_of_partitions_are_compared_as_numbers(
    metastore: HiveMetastore, name: str, tmp_path: Path
) -> None:
    make_table(metastore.url, name, parquet_at(f"file:{tmp_path}", COLUMNS), keys={"k": "int"})
    places = [(text, put(tmp_path / text, numbers(at))) for at, text in enumerate(["07", "8", "10", "-3"])]
    made = [([text], parquet_at(f"file:{place}", COLUMNS)) for text, place in places]
    made.append(
        (["__HIVE_DEFAULT_PARTITION__"], parquet_at(f"file:{put(tmp_path / 'null', numbers(9))}", COLUMNS))
    )
    make_partitions(metastore.url, name, made)
    for where, ids in (
        ("k = 7", [0]), ("k > 7", [1, 2]), ("k < 8", [0, 3]), ("k <> 7", [1, 2, 3]), ("k IN (7, 10)", [0, 2]),
        ("k IS NULL", [9]), ("NOT k = 7", [1, 2, 3]), ("k = -3", [3]),
    ):  # fmt: skip
        assert sorted(scan(metastore, name, where).to_table()["id"].to_pylist()) == ids, where


def test_statistics_are_never_an_answer(metastore: HiveMetastore, name: str, tmp_path: Path) -> None:
    place = put(tmp_path / "t", numbers(1, 2, 3))
    wrong = {
        "numRows": "99", "numFiles": "7", "spark.sql.statistics.numRows": "99",
        "spark.sql.statistics.colStats.id.min": "50", "spark.sql.statistics.colStats.id.max": "60",
    }  # fmt: skip
    make_table(metastore.url, name, parquet_at(f"file:{place}", COLUMNS), parameters=wrong)
    assert scan(metastore, name).count_rows() == 3
    assert scan(metastore, name, "id < 3").count_rows() == 2


def test_a_file_that_is_replaced_is_seen(metastore: HiveMetastore, name: str, tmp_path: Path) -> None:
    place = put(tmp_path / "t", numbers(1))
    make_table(metastore.url, name, parquet_at(f"file:{place}", COLUMNS))
    cache = accel.Cache()
    assert scan(metastore, name, cache=cache).to_table()["id"].to_pylist() == [1]
    put(tmp_path / "t", numbers(2, 3))
    assert scan(metastore, name, cache=cache).to_table()["id"].to_pylist() == [2, 3]


def test_a_delta_table_goes_to_its_reader(metastore: HiveMetastore, name: str, tmp_path: Path) -> None:
    log = tmp_path / "t" / "_delta_log"
    log.mkdir(parents=True)
    schema = '{\\"type\\":\\"struct\\",\\"fields\\":[{\\"name\\":\\"id\\",\\"type\\":\\"long\\",\\"nullable\\":true,\\"metadata\\":{}}]}'
    data = write_file(pa.table({"id": pa.array([1, 2], pa.int64())}))
    (tmp_path / "t" / "a.parquet").write_bytes(data)
    put(tmp_path / "t", numbers(9), "dropped.parquet")
    (log / "00000000000000000000.json").write_text(
        '{"protocol":{"minReaderVersion":1,"minWriterVersion":2}}\n'
        f'{{"metaData":{{"id":"x","format":{{"provider":"parquet","options":{{}}}},"schemaString":"{schema}",'
        '"partitionColumns":[],"configuration":{}}}\n'
        f'{{"add":{{"path":"a.parquet","partitionValues":{{}},"size":{len(data)},"modificationTime":1,'
        '"dataChange":true}}\n'
    )
    make_table(
        metastore.url,
        name,
        parquet_at(f"file:{tmp_path}/t", COLUMNS),
        parameters={"spark.sql.sources.provider": "delta"},
    )
    found = scan(metastore, name)
    assert found.to_table().to_pylist() == [{"id": 1}, {"id": 2}]
    assert found.metrics.table is not None
    assert (found.metrics.table.format, found.metrics.table.version, found.metrics.table.files) == (
        "Delta",
        0,
        1,
    )


def test_an_iceberg_table_goes_to_its_reader(metastore: HiveMetastore, name: str) -> None:
    stored = stored_table("evolving_v2")
    metadata = max(path for path in stored.objects if path.endswith(".metadata.json"))
    parameters = {"table_type": "ICEBERG", "metadata_location": f"/{metadata}"}
    make_table(metastore.url, name, parquet_at(None, COLUMNS), parameters=parameters)
    found = scan(metastore, name, store=stored.store)
    directly = accel.scan(accel.tables.iceberg(f"/{metadata}"), store=stored.store, cache=None)
    assert found.to_table().equals(directly.to_table())
    assert found.count_rows() == directly.count_rows() > 0
    assert found.metrics.table is not None
    assert found.metrics.table.format == "Iceberg"


# -- names and addresses -----------------------------------------------------------------------------


def test_a_table_or_database_that_is_not_there(metastore: HiveMetastore) -> None:
    for table in ("nowhere", "nowhere.t"):
        with pytest.raises(accel.ObjectNotFoundError, match="the metastore has no such table"):
            scan(metastore, table).to_table()


def test_servers_are_tried_in_turn(metastore: HiveMetastore, name: str, tmp_path: Path) -> None:
    place = put(tmp_path / "t", numbers(1))
    make_table(metastore.url, name, parquet_at(f"file:{place}", COLUMNS))
    for urls in (f"thrift://127.0.0.1:1,{metastore.url}", ["thrift://127.0.0.1:1", metastore.url]):
        table = accel.tables.hive(urls, f"DEFAULT.{name.upper()}")
        assert accel.scan(table, cache=None).count_rows() == 1


@pytest.mark.parametrize(
    "url", ["http://h", "thrift://", "thrift://u:p@h", "thrift://h:0", "h:9083", "thrift://h/x"]
)
def test_a_url_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(accel.StoreError, match="no URL of a Hive Metastore") as refused:
        accel.tables.hive(url, "t")
    assert "u:p" not in str(refused.value)


@pytest.mark.parametrize("table", ["", "a.b.c", "a b", ".t", "a/b"])
def test_a_name_that_is_none_is_refused(table: str) -> None:
    with pytest.raises(ValueError, match="a table is named by"):
        accel.tables.hive("thrift://h", table)
