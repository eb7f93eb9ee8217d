"""`prune` over DataFrames of `accel.spark.read`; fields of structs; what Spark's plans and the counts say of a read."""

from __future__ import annotations

import logging
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import accel
from accel.spark import read_records

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
ROWS = 2_000


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Path:
    """Two files sorted by id, with a struct of which one field is large."""
    root = tmp_path_factory.mktemp("reads")
    points = [
        {"x": at, "deep": {"a": str(at), "b": None if at % 3 else "b"}, "big": f"{at:04}" * 200}
        if at % 5
        else None
        for at in range(ROWS)
    ]
    t = pa.table({"id": range(ROWS), "k": [at % 7 for at in range(ROWS)], "point": points})
    for number in range(2):
        pq.write_table(
            t.slice(number * ROWS // 2, ROWS // 2), root / f"{number}.parquet", row_group_size=500,
            use_dictionary=False, write_page_index=True, compression="none",
        )  # fmt: skip
    accel.spark.register(spark)
    return root


def _rows(df: DataFrame) -> list[str]:
    return sorted(map(repr, df.collect()))


def test_a_read_is_pruned_in_the_files_it_was_made_of(
    spark: SparkSession, root: Path, tmp_path: Path
) -> None:
    read = accel.spark.read(spark, root, where="k < 3")
    asked = read.where("id < 20 AND upper(string(k)) = '2'").select("id")
    pruned = accel.spark.prune(asked)
    due = _rows(asked)
    assert _rows(pruned) == due != []
    told = accel.spark.explain(pruned)
    assert "columns: 2 of 3: id, k" in told
    assert "id < 20" in told
    with accel.spark.metrics(spark) as counts:
        assert accel.spark.prune(asked).count() == len(due)
    assert (counts.files.kept, counts.rows_out) == (1, sum(at % 7 < 3 for at in range(20)))
    # All is pushed already, and there is nothing to gain.
    again = accel.spark.prune(pruned)
    assert again is pruned or _rows(again) == _rows(pruned)
    assert accel.spark.prune(read) is read
    assert "it stays as accel.spark.read has made it" in accel.spark.explain(read)

    # Rows of a file that came later, or that was replaced, are not in a DataFrame that was made before.
    for number in range(2):
        (tmp_path / f"{number}.parquet").write_bytes((root / f"{number}.parquet").read_bytes())
    early = accel.spark.read(spark, tmp_path).where("id < 9").select("id")
    pq.write_table(pq.read_table(root / "0.parquet").slice(0, 5), tmp_path / "2.parquet")
    assert accel.spark.prune(early).count() == early.count() == 9
    late = accel.spark.read(spark, tmp_path).where("id < 9").select("id")
    assert accel.spark.prune(late).count() == late.count() == 14


def test_reads_keep_their_limits_fields_and_file_paths(spark: SparkSession, root: Path) -> None:
    limited = accel.spark.read(spark, root, limit=10)
    assert accel.spark.prune(limited.where("id >= 5").select("id")).count() == 5
    fields = accel.spark.read(spark, root, columns=["point.x", "id"]).where("id = 7")
    assert accel.spark.prune(fields.select("point")).collect() == fields.select("point").collect()
    of_files = accel.spark.read(spark, root, file_path="file").where("file LIKE '%/1.parquet' AND id < 1010")
    pruned = accel.spark.prune(of_files.select("file", "id"))
    assert _rows(pruned) == _rows(of_files.select("file", "id"))
    assert pruned.count() == 10
    numbered = accel.spark.read(spark, root, file_path="file", row_number="row").where("row < 3 AND id >= 1")
    assert _rows(accel.spark.prune(numbered)) == _rows(numbered)
    assert "left to Spark: (row IS NOT NULL) AND (row < 3L)" in accel.spark.explain(numbered)
    of_table = accel.spark.table(spark, root, row_number="row").where("row = 2").select("id", "row")
    assert sorted(accel.spark.prune(of_table).collect()) == [(2, 2), (ROWS // 2 + 2, 2)]
    most = accel.spark.prune(numbered.selectExpr("max(row)", "count(*)")).collect()
    assert most == numbered.selectExpr("max(row)", "count(*)").collect()
    of_source = spark.read.format("accel").option("filePath", "file").load(str(root))
    assert of_source.columns == ["id", "k", "point", "file"]
    assert accel.spark.prune(of_source.where("id = 3").select("file")).collect()[0][0].endswith("0.parquet")
    of_numbers = (
        spark.read.format("accel").option("filePath", "file").option("rowNumber", "row").load(str(root))
    )
    assert of_numbers.columns == ["id", "k", "point", "file", "row"]
    asked = of_numbers.where("row = 2 AND id > 2").select("id", "row")
    assert asked.collect() == accel.spark.prune(asked).collect() == [(ROWS // 2 + 2, 2)]
    pushing = spark.read.format("accel").options(rowNumber="row", pushdown="true").load(str(root))
    spark.conf.set(PUSHDOWN, "true")
    try:
        assert pushing.where("row = 2 AND id > 2").select("id", "row").collect() == [(ROWS // 2 + 2, 2)]
    finally:
        spark.conf.unset(PUSHDOWN)
    named = spark.read.format("accel").options(rowNumber="row").schema("row long, id long").load(str(root))
    own = named.where("row = 2 AND id > 2")
    assert own.collect() == accel.spark.prune(own).collect() == [(2, ROWS // 2 + 2)]
    wide = of_source.schema["file"], of_source.schema["id"]
    declared = spark.read.format("accel").option("filePath", "file").schema(f"id long, {wide[0].name} string")
    assert declared.load(str(root)).where("id = 3").collect()[0].file.endswith("/0.parquet")


def test_names_of_files_choose(spark: SparkSession, root: Path) -> None:
    for pattern, ids in [("{0,7}.par*", ROWS // 2), ("[^0].parquet", ROWS // 2), ("?.parquet", ROWS)]:
        chosen = spark.read.format("accel").option("pathGlobFilter", pattern).load(str(root))
        own = spark.read.option("pathGlobFilter", pattern).parquet(str(root))
        assert chosen.count() == own.count() == ids
        assert accel.spark.prune(chosen.select("id")).count() == ids
    with pytest.raises(Exception, match="pathGlobFilter leaves no file"):
        spark.read.format("accel").option("pathGlobFilter", "x*").load(str(root))
    with pytest.raises(Exception, match="not closed"):
        spark.read.format("accel").option("pathGlobFilter", "{a,b").load(str(root))


FIELDS = [
    ("SELECT point.x FROM {t} WHERE id < 30", "point.x"),
    (
        "SELECT sum(point.x), count(point.deep.a) FROM {t} WHERE point.deep.b = 'b'",
        "point.deep.a, point.deep.b, point.x",
    ),
    ("SELECT point.deep FROM {t} WHERE (point IS NULL OR id = 1) AND id < 900", "point.deep"),
    ("SELECT id FROM {t} WHERE point IS NULL", "point.x"),
    (
        "SELECT a.id, b.point.x FROM {t} a JOIN {t} b ON a.id = b.point.x WHERE a.point.deep.a = '12'",
        "point.deep.a",
    ),
    ("SELECT point, point.x FROM {t} WHERE id = 8", None),
]


@pytest.mark.parametrize(("query", "paths"), FIELDS)
def test_fields_of_structs_are_read_alone(
    spark: SparkSession, root: Path, query: str, paths: str | None
) -> None:
    pruned = accel.spark.sql(spark, query, t=root)
    due = spark.sql(query, t=spark.read.parquet(str(root)))
    assert _rows(pruned) == _rows(due) != []
    assert [field.dataType for field in pruned.schema] == [field.dataType for field in due.schema]
    told = accel.spark.explain(pruned)
    if paths is None:
        assert ": id, point\n" in told
    else:
        assert paths in told
        with accel.spark.metrics(spark) as counts:
            accel.spark.sql(spark, query, t=root).collect()
        # The large field is 80 % of the files.
        assert counts.bytes < 0.2 * sum(path.stat().st_size for path in root.iterdir())


def test_plans_name_the_read(spark: SparkSession, root: Path) -> None:
    read = accel.spark.read(spark, root, where="id < 700", columns=["id"])
    plan = read._jdf.queryExecution().toString()
    assert f"accel {root}: 1 of 2 files, " in plan
    assert "; id < 700 [read " in plan
    secret = accel.spark.read(spark, [f"{root}/0.parquet", f"{root}/1.parquet"], columns=["k"])
    assert "accel 2 sources: 2 of 2 files" in secret._jdf.queryExecution().toString()


def test_old_records_go(spark: SparkSession, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A read of which nothing is known any more is left as it is."""
    read = accel.spark.read(spark, root).where("id < 5").select("id")
    monkeypatch.setattr(read_records, "MOST", 1)
    accel.spark.read(spark, root, columns=["k"])
    assert accel.spark.prune(read) is read
    assert read.count() == 5


def test_what_is_read_in_vain_is_said_once(
    spark: SparkSession, root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "accel.spark"), accel.spark.metrics(spark) as counts:
        for _ in range(2):
            # The text is that of no other test.
            assert spark.read.format("accel").load(f"{root}/").where("id = 3").count() == 1
    assert len(counts.warnings) == 2
    assert 'format("accel") read all 3 columns of ' in counts.warnings[0]
    assert "accel.spark.prune(df)" in counts.warnings[0]
    assert [record.message for record in caplog.records] == counts.warnings[:1]
    with accel.spark.metrics(spark) as counts:
        few = spark.read.format("accel").option("columns", "id").load(str(root)).where("id = 3")
        assert few.count() == accel.spark.prune(few).count() == 1
    assert counts.warnings == []


DECIMALS = [
    "SELECT * FROM {t}",
    "SELECT short, sum(long), max(wide) FROM {t} WHERE short > 1.2 AND long <> -7.5 GROUP BY short",
    "SELECT id, nested.d FROM {t} WHERE nested.d < 3 AND edge IS NOT NULL",
    "SELECT a.id, b.edge * 2 FROM {t} a JOIN {t} b ON a.short = b.short AND a.long = b.long WHERE a.edge > 0 AND b.id < 40",
    "SELECT count(*), max(edge), min(short) FROM {t}",
]  # fmt: skip


@pytest.mark.parametrize("query", DECIMALS)
def test_decimals_keep_their_values_and_types(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, query: str
) -> None:
    """Those of at most 18 digits come to Spark as whole numbers, whichever way their file stores them."""
    largest = Decimal(10**18 - 1).scaleb(-3)
    values: list[list[Decimal | None]] = [
        [Decimal("1.25"), Decimal("-7.50"), None],
        [Decimal("-7.5"), Decimal("0.1"), Decimal(0), None],
        [largest, -largest, Decimal("0.001"), None],
    ]
    columns = [[each[at % len(each)] for at in range(100)] for each in values]
    table = pa.table(
        {
            "id": range(100),
            "short": pa.array(columns[0], pa.decimal128(4, 2)),
            "long": pa.array(columns[1], pa.decimal128(12, 1)),
            "edge": pa.array(columns[2], pa.decimal128(18, 3)),
            "wide": pa.array(columns[2], pa.decimal128(19, 3)),
            "nested": pa.array([{"d": one, "e": one} for one in columns[1]], pa.struct(
                [("d", pa.decimal128(5, 1)), ("e", pa.decimal128(5, 1))])),
        }
    )  # fmt: skip
    for as_integers in (True, False):
        path = tmp_path_factory.mktemp("decimals") / "t.parquet"
        pq.write_table(table, path, store_decimal_as_integer=as_integers)
        due = spark.sql(query, t=spark.read.parquet(str(path)))
        found = accel.spark.sql(spark, query, t=path)
        assert _rows(found) == _rows(due) != []
        assert [field.dataType for field in found.schema] == [field.dataType for field in due.schema]
        # What was pruned may be pruned once more, and so may what was read.
        again = accel.spark.prune(found.where("id < 30 AND id >= 0") if "id" in found.columns else found)
        assert _rows(again) == _rows(due.where("id < 30") if "id" in due.columns else due)
        read = accel.spark.read(spark, path).where("short >= 1.25 AND edge < 1").select("id", "edge")
        assert _rows(accel.spark.prune(read)) == _rows(read) != []


def test_a_decimal_of_a_pruned_read_is_no_number_to_push(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"d": pa.array([Decimal("1.25"), Decimal("9.00")]), "id": [1, 2]}), path)
    pruned = accel.spark.prune(accel.spark.table(spark, path).where("id > 0"))
    again = accel.spark.prune(pruned.where("d = 1.25").select("id"))
    assert [row.id for row in again.collect()] == [1]
    assert "left to Spark" in accel.spark.explain(again)
