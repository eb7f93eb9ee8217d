"""format("accel") in a real Spark: DataFrames, declared schemas, SQL, its options, and what executors
request."""

from __future__ import annotations

import datetime
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import accel
from accel.scanning.spec import OnError
from accel.spark.source_options import REFUSED_OPTIONS, read_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tests.support.proxy import Proxy
    from tests.support.s3 import S3Admin

MONTHS, ROWS = 3, 40
SECRET = "a-secret-of-this-test"


def _table(month: int) -> pa.Table:
    numbers = [month * ROWS + n for n in range(ROWS)]
    names = [f"name {n % 7}" for n in numbers]
    return pa.table(
        {"id": pa.array(numbers, pa.int64()), "name": pa.array(names), "half": [n / 2 for n in numbers]}
    )


def storage_options() -> dict[str, str]:
    """The credentials that a test names."""
    return {"access_key_id": "somebody", "secret_access_key": SECRET}


def no_options() -> str:
    """No credentials at all."""
    return SECRET


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("source") / "months"
    for month in range(MONTHS):
        path = root / f"month={month}" / "part.parquet"
        path.parent.mkdir(parents=True)
        pq.write_table(
            _table(month), path, row_group_size=ROWS // 2, write_page_index=True, max_rows_per_page=10
        )
    return root


@pytest.fixture(scope="module")
def source(spark: SparkSession) -> SparkSession:
    accel.spark.register(spark)
    return spark


def _load(spark: SparkSession, path: Path | str, **options: object) -> DataFrame:
    return spark.read.format("accel").options(**{k: str(v) for k, v in options.items()}).load(str(path))


def _ids(frame: DataFrame) -> list[int]:
    return [row["id"] for row in frame.collect()]


def test_all_rows_in_order(source: SparkSession, folder: Path) -> None:
    frame = _load(source, folder)
    assert frame.schema.simpleString() == "struct<id:bigint,name:string,half:double,month:bigint>"
    assert _ids(frame) == list(range(MONTHS * ROWS))
    assert frame.rdd.getNumPartitions() == 2


def test_one_load_answers_several_questions(source: SparkSession, folder: Path) -> None:
    """Spark 4.3 would mix them up if its filters were taken: they are not."""
    frame = _load(source, folder)
    assert frame.where("id = 3").unionAll(frame.where("id > 117")).select("id").collect() == [
        (3,),
        (118,),
        (119,),
    ]
    assert frame.count() == MONTHS * ROWS


def test_options_of_a_question(source: SparkSession, folder: Path) -> None:
    with accel.spark.metrics(source) as counts:
        frame = _load(source, folder, columns="name, id", where="month = 1 AND name = 'name 3'", partitions=1)
        assert frame.schema.simpleString() == "struct<name:string,id:bigint>"
        assert _ids(frame) == [n for n in range(ROWS, 2 * ROWS) if n % 7 == 3]
    assert (counts.files.kept, counts.files.total) == (1, MONTHS)
    assert counts.rows_out == 5


def test_a_count_reads_no_column(source: SparkSession, folder: Path) -> None:
    with accel.spark.metrics(source) as counts:
        assert _load(source, folder, columns="").count() == MONTHS * ROWS
    assert counts.rows_out == MONTHS * ROWS
    assert not any(str(kind) in ("data page", "column chunk") for kind in counts.requests_by_kind)


def test_a_limit(source: SparkSession, folder: Path) -> None:
    assert _ids(_load(source, folder, limit=45)) == list(range(45))
    assert _load(source, folder, limit=0).count() == 0


def test_a_declared_schema(source: SparkSession, folder: Path) -> None:
    """It chooses and widens columns; one that no file has is null."""
    frame = source.read.format("accel").schema("half double, missing int, id decimal(20,0)").load(str(folder))
    assert frame.limit(2).collect() == [(0.0, None, 0), (0.5, None, 1)]
    wrong = source.read.format("accel").schema("id int").load(str(folder))
    with pytest.raises(Exception, match="SchemaMismatchError"):
        wrong.collect()
    with pytest.raises(Exception, match="leave the option columns out"):
        source.read.format("accel").schema("id bigint").option("columns", "id").load(str(folder)).collect()


def test_sql(source: SparkSession, folder: Path) -> None:
    source.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW months USING accel OPTIONS (path '{folder}', where 'id < 50')"
    )
    found = source.sql(
        "SELECT month, count(*) AS n FROM months WHERE half >= 10 GROUP BY month ORDER BY month"
    )
    assert found.collect() == [(0, 20), (1, 10)]


def test_batches_are_those_of_the_session(source: SparkSession, folder: Path) -> None:
    source.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "7")
    try:
        frame = _load(source, folder, partitions=1, columns="id")
        sizes = frame.mapInArrow(_sizes, "n int").collect()
    finally:
        source.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    assert max(row.n for row in sizes) == 7
    assert sum(row.n for row in sizes) == MONTHS * ROWS


def _sizes(batches: Any) -> Any:
    for batch in batches:
        yield pa.RecordBatch.from_arrays([pa.array([batch.num_rows], pa.int32())], names=["n"])


def test_a_changed_schema_is_refused(source: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "f.parquet"
    pq.write_table(pa.table({"id": [1]}), path)
    frame = _load(source, path)
    pq.write_table(pa.table({"id": ["x"], "more": [1]}), path)
    with pytest.raises(Exception, match=r"SchemaMismatchError: .*f.parquet.*load them again"):
        frame.collect()


def test_an_object_replaced_between_plan_and_read(source: SparkSession, tmp_path: Path) -> None:
    """The first line of the driver's error names the file."""
    path = tmp_path / "f.parquet"
    pq.write_table(_table(0), path)
    frame = _load(source, path)
    frame.rdd.getNumPartitions()  # plans
    pq.write_table(_table(1).slice(3), path)
    with pytest.raises(Exception, match="ObjectChangedError") as caught:
        frame.collect()
    first = next(line for line in str(caught.value).splitlines() if "accel.errors" in line)
    assert "ObjectChangedError: " in first
    assert str(path) in first
    assert "Traceback" not in str(caught.value).split("accel.errors")[0]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"colums": "id"}, "has no option 'colums', and neither has a store: did you mean columns?"),
        ({"basePath": "/"}, "has no option basePath: load the base directory"),
        ({"orderBy": "id desc"}, r"has no option orderBy: accel.scan\(source, where, order_by="),
        ({"where": "id >"}, "PredicateError: expected a column or a literal"),
        ({"columns": "nope"}, "ColumnNotFoundError: .*there is no column 'nope'"),
    ],
    ids=["misspelt", "an option of Spark", "an order", "predicate", "column"],
)
def test_wrong_options(source: SparkSession, folder: Path, options: dict[str, str], told: str) -> None:
    with pytest.raises(Exception, match=told):
        _load(source, folder, **options)


def test_an_index_that_is_named_and_not_there(source: SparkSession, folder: Path, tmp_path: Path) -> None:
    named = str(tmp_path / "none")
    with pytest.raises(
        Exception, match=rf"ObjectNotFoundError: {named}/: there is no index \(build it, or leave"
    ):
        _load(source, folder, index=named).collect()
    for index in ("none", "auto"):
        assert _load(source, folder, index=index).count() > 0


def test_options_of_sparks_file_source() -> None:
    """They mean what they mean in Spark; false is Spark's default, and changes nothing."""
    flags = dict.fromkeys(("mergeSchema", "recursiveFileLookup", "ignoreMissingFiles", "ignoreCorruptFiles"))
    assert read_options({"path": "x", **dict.fromkeys(flags, "false")}) == read_options({"path": "x"})
    found = read_options({"path": "x", **dict.fromkeys(flags, "true")})
    assert (found.merge_schema, found.partitioning, found.on_error) == (True, None, OnError.SKIP)
    assert found.planning()["schema"] == "union"
    named = read_options({"path": "x", "recursiveFileLookup": "true", "partitioning": "hive"})
    assert named.partitioning == "hive"


def test_the_table_of_refused_options_is_that_of_the_code() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "spark.md").read_text()
    table = page.partition("<!-- refused options -->")[2].partition("\n\n")[0]
    cells = [line.split("|")[1] for line in table.splitlines()[3:]]
    named = {name for cell in cells for name in re.findall(r"`(\w+)`", cell)}
    assert named == {option.name for option in REFUSED_OPTIONS.values()}
    for name in named:
        with pytest.raises(ValueError, match=f"no option {name}: "):
            read_options({"path": "x", name: "1"})


@pytest.mark.parametrize(
    ("options", "kept"),
    [
        ({"modifiedAfter": "2024-06-01T11:00:00Z"}, ["2", "3"]),
        ({"modifiedBefore": "2024-06-01T11:00:00", "timeZone": "UTC"}, ["0"]),
        ({"modifiedAfter": "2024-06-01T12:00:00", "timeZone": "Europe/Berlin", "pathGlobFilter": "[0-2]*"}, ["1", "2"]),
        ({"modifiedAfter": "2024-06-01T10:00:00+00:00", "modifiedBefore": "2024-06-01T13:00:00Z"}, ["1", "2"]),
    ],
    ids=["after", "before", "a zone, and names", "between"],
)  # fmt: skip
def test_files_of_a_time(
    source: SparkSession, tmp_path: Path, options: dict[str, str], kept: list[str]
) -> None:
    """As of Spark's own source, whose sessions here have UTC: the times themselves are outside."""
    for number in range(4):
        path = tmp_path / f"{number}.parquet"
        pq.write_table(pa.table({"name": [str(number)]}), path)
        hour = datetime.datetime(2024, 6, 1, 10 + number, tzinfo=datetime.UTC).timestamp()
        os.utime(path, (hour, hour))
    frame = _load(source, tmp_path, **options)
    assert sorted(row.name for row in frame.collect()) == kept
    if options.get("timeZone", "UTC") == "UTC":  # in other zones Spark 4.3 shifts the times of the files, too
        own = source.read.options(**options).parquet(str(tmp_path))
        assert sorted(row.name for row in own.collect()) == kept
    assert accel.spark.prune(frame.select("name")).count() == len(kept)


def test_files_of_a_time_that_is_unknown(source: SparkSession, tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [1]}), tmp_path / "0.parquet")
    after = {"modifiedAfter": "2020-01-01T00:00:00Z"}
    with pytest.raises(Exception, match="needs the times of files, .* load the directory"):
        _load(source, tmp_path / "0.parquet", **after)
    with pytest.raises(Exception, match="ObjectNotFoundError: .*modifiedAfter leaves no file"):
        _load(source, tmp_path, modifiedAfter="2999-01-01T00:00:00Z")


def test_merged_schema(source: SparkSession, tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [1, 2]}), tmp_path / "0.parquet")
    pq.write_table(pa.table({"a": [3], "b": ["x"]}), tmp_path / "1.parquet")
    merged = _load(source, tmp_path, mergeSchema="true")
    own = source.read.option("mergeSchema", "true").parquet(str(tmp_path))
    assert merged.schema == own.schema
    assert sorted(merged.collect()) == sorted(own.collect())
    assert accel.spark.prune(merged.where("a > 1")).count() == 2
    assert _load(source, tmp_path).columns == ["a"]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({}, "needs a path"),
        ({"path": "x", "limit": "-1"}, "option limit is a whole number of at least 0, not '-1'"),
        ({"path": "x", "partitions": "0"}, "option partitions is a whole number of at least 1"),
        ({"path": "x", "glob": "maybe"}, "option glob is true or false, not 'maybe'"),
        ({"path": "x", "onError": "ignore"}, "option onerror is raise or skip, not 'ignore'"),
        ({"path": "x", "credentials": "nothing"}, "credentials names a function"),
        ({"path": "x", "columns": '["a", 1]'}, "option columns is a list of names in JSON"),
        ({"path": "x", "memory_limit": "much"}, "option memory_limit is a whole number, not 'much'"),
        ({"paths": "[1"}, "option paths is no JSON list"),
        ({"path": "x", "modifiedAfter": "2024-01-01"}, "modifiedAfter needs a zone: 2024-01-01T00:00:00Z"),
        (
            {"path": "x", "modifiedBefore": "soon"},
            "modifiedBefore is a time as 2024-06-01T13:00:00, not 'soon'",
        ),
        ({"path": "x", "modifiedBefore": "2024-01-01", "timeZone": "Mars"}, "timeZone is the name of a zone"),
        ({"path": "x", "timeZone": "UTC"}, "timeZone is that of modifiedAfter and modifiedBefore"),
        ({"path": "x", "maxBytesPerTrigger": "much"}, "maxbytespertrigger is a number of bytes, as 512m"),
        ({"path": "x", "maxBytesPerTrigger": "0"}, "maxbytespertrigger is a number of bytes, as 512m"),
        ({"path": "x", "latestFirst": "maybe"}, "latestfirst is true or false"),
        ({"path": "x", "mergeSchema": "maybe"}, "option mergeSchema is true or false, not 'maybe'"),
        (
            {"path": "x", "ignoreMissingFiles": "true"},
            "takes option ignoreMissingFiles only together with ignoreCorruptFiles",
        ),
        (
            {"path": "x", "ignoreCorruptFiles": "true", "ignoreMissingFiles": "false"},
            "takes option ignoreCorruptFiles only together with ignoreMissingFiles",
        ),
        ({"path": "x", "basePath": "y"}, "no option basePath: load the base directory"),
        ({"path": "x", "cleanSource": "delete"}, "no option cleanSource: remove or move files"),
        ({"path": "x", "maxFileAge": "1d"}, "no option maxFileAge: each file is read once"),
        ({"path": "x", "STARTINGOFFSETS": "latest"}, "no option startingOffsets: it reads files"),
        ({"path": "x", "zzz": "1"}, "no option 'zzz', and neither has a store: docs/spark.md"),
        ({"path": "x", "acces_key_id": "k"}, "did you mean access_key_id"),
        ({"path": "x", "secret": "k"}, "no option 'secret', .*did you mean secret_access_key"),
        ({"path": "x", "on_eror": "skip"}, "did you mean onError"),
        ({"path": "x", "provider": "accel"}, "catalog passes no option of a table .*CREATE TEMPORARY VIEW"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_options_that_are_none(options: dict[str, str], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        read_options(options)


def test_options_read() -> None:
    """Names in any case; what is no option of accel's is one of the store."""
    asked = read_options(
        {
            "PATHS": '["a", "b"]',
            "Columns": '["x,y"]',
            "index": "none",
            "memory_limit": "1000000",
            "region": "eu-secret-7",
        }
    )
    assert asked.source == ["a", "b"]
    assert asked.columns == ["x,y"]
    assert asked.index is None
    assert asked.options == accel.Options(memory_limit=1_000_000)
    assert asked.storage_options == {"region": "eu-secret-7"}
    assert "eu-secret-7" not in repr(asked)


@pytest.mark.parametrize(
    "name",
    [
        *(
            "region",
            "endpoint",
            "AWS_ENDPOINT_URL",
            "aws_default_region",
            "sas_token",
            "bearer_token",
            "s3_express",
        ),
        *(
            "google_service_account",
            "azure_storage_account_name",
            "timeout",
            "allow_http",
            "aws_timeout",
            "proxy_url",
        ),
        *(
            "fs.s3a.endpoint",
            "spark.hadoop.fs.s3a.access.key",
            "skip_signature",
            "conditional_put",
            "profile",
            "aws_profile",
        ),
    ],
)
def test_options_of_stores_are_known(name: str) -> None:
    """Those of each cloud, by obstore's names, with and without prefix, and Hadoop's."""
    assert read_options({"path": "x", name: "1"}).storage_options == {name.lower(): "1"}


def test_executors_request_data_alone(
    source: SparkSession, s3: S3Admin, make_proxy: Callable[..., Proxy], folder: Path
) -> None:
    """Planning lists and reads footers; then each file's pages are read, and nothing else."""
    proxy = make_proxy(s3.url)
    bucket = "spark-source"
    s3.create_bucket(bucket)
    for path in sorted(folder.glob("*/*.parquet")):
        s3.put(bucket, f"t/{path.relative_to(folder).as_posix()}", path.read_bytes())
    # The whole file would come with its footer.
    options = {**s3.storage_options(), "endpoint": proxy.url, "tail_hint": "64", "partitions": "1"}
    frame = _load(source, f"s3://{bucket}/t/", where="id = 3 OR id = 90", columns="id", **options)
    frame.rdd.getNumPartitions()  # plans
    proxy.reset()
    with accel.spark.metrics(source) as counts:
        assert _ids(frame) == [3, 90]
    requests = [(p.method, unquote(p.path.partition("?")[0])) for p in proxy.passages]
    assert sorted(set(requests)) == [("GET", f"/{bucket}/t/month={month}/part.parquet") for month in (0, 2)]
    assert all(passage.range for passage in proxy.passages)
    # The job counts its planning too.
    metadata = ("listing", "tail", "footer", "page index")
    assert len(requests) == sum(n for kind, n in counts.requests_by_kind.items() if str(kind) not in metadata)
    # What the pages were read for once is in the worker's cache; another worker may take a task and read them
    # again.
    with accel.spark.metrics(source) as again:
        for _ in range(4):
            assert _ids(frame) == [3, 90]
    assert proxy.requests <= 2 * len(requests)
    assert again.data_hits + again.rows_recalled > 0


def test_no_secret_in_plans_and_tasks(source: SparkSession, folder: Path) -> None:
    """Neither in the plan, nor in a partition: in the pickled reader alone."""
    frame = _load(source, folder, secret_access_key=SECRET)
    assert frame.count() == MONTHS * ROWS
    assert SECRET not in frame._jdf.queryExecution().toString()
    scan = frame._jdf.queryExecution().executedPlan().collectLeaves().head()
    partitions = scan.batch().planInputPartitions()
    assert len(partitions) == 2
    assert all(SECRET.encode() not in bytes(partition.pickedPartition()) for partition in partitions)


def test_credentials_by_name(source: SparkSession, folder: Path) -> None:
    from accel.spark.credentials import with_credentials

    name = f"{__name__}:storage_options"
    assert with_credentials({"glob": True, "storage_options": {"region": "x"}}, name) == {
        "glob": True,
        "storage_options": {"region": "x", "access_key_id": "somebody", "secret_access_key": SECRET},
    }
    assert (
        _load(source, folder, credentials="tests.spark.test_data_source:storage_options").count()
        == MONTHS * ROWS
    )
    with pytest.raises(accel.StoreError, match="cannot be imported"):
        with_credentials({}, "no_such_module:f")
    with pytest.raises(accel.StoreError, match=r"gave a str, not a mapping$"):
        with_credentials({}, f"{__name__}:no_options")


def test_a_broken_file_is_skipped_if_asked_for(source: SparkSession, tmp_path: Path) -> None:
    """Broken when it was planned, or gone when it is read."""
    for number in range(3):
        pq.write_table(_table(number), tmp_path / f"{number}.parquet")
    (tmp_path / "3.parquet").write_bytes(b"PAR1 is not enough PAR1")
    with pytest.raises(Exception, match=r"ParquetFormatError: .*3\.parquet"):
        _load(source, tmp_path).collect()
    with accel.spark.metrics(source) as counts:
        frame = _load(source, tmp_path, onError="skip", partitions=1)
        frame.rdd.getNumPartitions()  # plans
        (tmp_path / "1.parquet").unlink()
        assert _ids(frame) == [*range(ROWS), *range(2 * ROWS, 3 * ROWS)]
    assert [text.partition(":")[0] for text in counts.warnings] == ["skipped", "skipped"]
    assert "3.parquet" in counts.warnings[0]
    assert "1.parquet" in counts.warnings[1]


def test_the_first_file_may_be_the_broken_one(source: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "0.parquet").write_bytes(b"junk")
    pq.write_table(_table(1), tmp_path / "1.parquet")
    for frame in (
        _load(source, tmp_path, onError="skip"),
        source.read.format("accel").schema("id bigint").option("onError", "skip").load(str(tmp_path)),
        accel.spark.read(source, str(tmp_path), on_error="skip"),
    ):
        assert _ids(frame) == list(range(ROWS, 2 * ROWS))


def test_a_table_of_the_catalog_is_refused(source: SparkSession, folder: Path) -> None:
    """Spark passes none of its options: it is refused when it is made or, with columns of its own, when it is
    read."""
    with pytest.raises(
        Exception, match=r"ValueError: Spark's catalog passes no option .*CREATE TEMPORARY VIEW"
    ):
        source.sql(f"CREATE TABLE lost USING accel OPTIONS (path '{folder}')")
    source.sql(f"CREATE TABLE lost (id bigint) USING accel OPTIONS (path '{folder}')")
    try:
        with pytest.raises(Exception, match=r"If this is a table, .*CREATE TEMPORARY VIEW"):
            source.sql("SELECT * FROM lost").collect()
    finally:
        source.sql("DROP TABLE lost")


def test_it_only_reads(source: SparkSession, tmp_path: Path) -> None:
    rows = source.range(3)
    stream = source.readStream.format("rate").load()
    for write in (
        lambda: rows.write.format("accel").mode("append").save(str(tmp_path)),
        lambda: rows.write.format("accel").mode("overwrite").save(str(tmp_path)),
        lambda: source.sql(f"CREATE TABLE made USING accel OPTIONS (path '{tmp_path}') AS SELECT 1 AS a"),
        lambda: (
            stream.writeStream.format("accel")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .start(str(tmp_path / "out"))
            .awaitTermination(100)
        ),
    ):
        with pytest.raises(Exception, match=r'AccelError: format\("accel"\) only reads') as caught:
            write()
        assert "Traceback" not in str(caught.value)


def test_a_view_over_files_that_were_replaced(source: SparkSession, tmp_path: Path) -> None:
    """Whoever writes SQL is told what to write; REFRESH TABLE reaches no Python source."""
    view = f"CREATE OR REPLACE TEMPORARY VIEW changing USING accel OPTIONS (path '{tmp_path}')"
    pq.write_table(_table(0), tmp_path / "0.parquet")
    source.sql(view)
    count = "SELECT count(*) AS n FROM changing"
    assert source.sql(count).collect() == [(ROWS,)]
    pq.write_table(_table(1).slice(3), tmp_path / "0.parquet")
    source.sql("REFRESH TABLE changing")
    with pytest.raises(Exception, match=r"made again by CREATE OR REPLACE TEMPORARY VIEW") as caught:
        source.sql(count).collect()
    assert "accel.plan" not in str(caught.value)
    assert accel.spark.sql(source, count).collect() == [(ROWS - 3,)]  # which plans at each call
    source.sql(view)
    assert source.sql(count).collect() == [(ROWS - 3,)]
    pq.write_table(_table(2), tmp_path / "2.parquet")
    pinned = accel.spark.sql(source, "SELECT name FROM changing")
    assert (pinned.count(), source.sql(count).collect()) == (2 * ROWS - 3, [(ROWS - 3,)])


def test_workers_import_nothing_heavy(source: SparkSession, folder: Path) -> None:
    plan = accel.plan(str(folder), columns=["id"])
    tasks = source.createDataFrame(plan.to_arrow())
    found = tasks.coalesce(1).mapInArrow(_heavy_modules, "name string").collect()
    assert [row.name for row in found] == []


def _heavy_modules(batches: Any) -> Any:
    import sys

    before = set(sys.modules)
    for _ in accel.scan(batches):
        pass
    heavy = {"pandas", "pyarrow.dataset", "pyarrow.acero", "pyarrow.parquet", "aiohttp", "sqlglot", "fsspec"}
    yield pa.RecordBatch.from_arrays(
        [pa.array(sorted(heavy & (set(sys.modules) - before)), pa.string())], names=["name"]
    )


def test_a_profile_of_aws_is_an_option_of_the_store() -> None:
    """Only its name travels: each process looks it up in its own files."""
    assert read_options({"path": "s3://b/", "profile": "mine"}).storage_options == {"profile": "mine"}
