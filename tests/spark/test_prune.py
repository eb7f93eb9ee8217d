"""`accel.spark.prune` and `accel.spark.sql`: the rows are those of Spark's own reader, and each use of accel
reads what it needs.

All queries are asked of views of both readers; what was read is counted by accel's metrics.
"""

from __future__ import annotations

import datetime as dt
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import accel
import accel.spark.pruning
from accel.errors import AccelError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("error:accel.spark.prune"),
]

ROWS = 4_000
NAN = float("nan")
FLOATS = [NAN, -0.0, 0.0, 0.1, -1.5, None]
DAYS = [dt.date(1582, 10, 4), dt.date(1969, 12, 31), dt.date(2013, 2, 28), None]
TIMES = [dt.datetime(1899, 12, 31, 23, 59, 59, 999_999), dt.datetime(2013, 3, 10, 2, 30), None]
TEXTS = ["", "a", "A", "ab%c", "a\\b", "ä", None]


def _cycle(values: list[object], kind: pa.DataType) -> pa.Array:
    return pa.array([values[at % len(values)] for at in range(ROWS)], kind)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table of many types, sorted by id in two files with pages of 500 rows, and TPC-H at scale 0.01."""
    root = tmp_path_factory.mktemp("prune")
    t = pa.table(
        {
            "id": pa.array(range(ROWS), pa.int64()),
            "k": pa.array([at % 7 for at in range(ROWS)], pa.int32()),
            "f64": _cycle(FLOATS, pa.float64()),
            "f32": _cycle(FLOATS, pa.float32()),
            "dec": _cycle([Decimal("1.25"), Decimal("-7.50"), None], pa.decimal128(9, 2)),
            "flag": _cycle([True, False, None], pa.bool_()),
            "s": _cycle(TEXTS, pa.string()),
            "b": _cycle([b"", b"\xff", b"a", None], pa.binary()),
            "day": _cycle(DAYS, pa.date32()),
            "ntz": _cycle(TIMES, pa.timestamp("us")),
            "utc": _cycle(TIMES, pa.timestamp("us", "UTC")),
            "point": pa.array([{"x": at, "y": str(at % 5)} if at % 4 else None for at in range(ROWS)]),
        }
    )
    (root / "t").mkdir()
    for number in range(2):
        pq.write_table(
            t.slice(number * ROWS // 2, ROWS // 2),
            root / "t" / f"{number}.parquet",
            row_group_size=1_000,
            write_page_index=True,
            max_rows_per_page=500,
        )
    generator = Path(sys.executable).with_name("tpchgen-cli")
    subprocess.run(
        [generator, "parquet", "-s", "0.01", "--output-dir", root / "tpch"],
        check=True,
        capture_output=True,
        timeout=120,
    )
    return root


@pytest.fixture(scope="module")
def session(spark: SparkSession, root: Path) -> SparkSession:
    """Views of the same name, with `_own` behind it for Spark's own reader."""
    accel.spark.register(spark)
    for path in [root / "t", *sorted((root / "tpch").iterdir())]:
        spark.read.parquet(str(path)).createOrReplaceTempView(f"{path.stem}_own")
        spark.read.format("accel").load(str(path)).createOrReplaceTempView(f"{path.stem}_a")
    return spark


def _rows(df: DataFrame) -> list[str]:
    return sorted(map(repr, df.collect()))


CONDITIONS = [
    "id IN (7, 3999)",
    "id IN (1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,3000)",
    "f64 = double('NaN')", "f64 > 1", "f64 = 0", "f64 = -0.0D", "f64 <= 0.1D", "NOT f64 > 0.0D",
    "f64 IN (0.0D, 0.1D)", "f32 = 0.1F", "f32 < 0.1F", "f32 > 0.05D", "f32 <=> NULL",
    "dec > 1.2", "dec = 1.25", "dec IN (1.25, 9)", "dec < 1",
    "flag", "NOT flag", "flag <=> true", "flag IS NULL",
    "s = ''", "s >= 'a'", "s LIKE 'a%'", "s LIKE '%\\\\%%'", "s LIKE '%c'", "contains(s, '%')", "upper(s) = 'A'",
    "s IN ('a', 'ä', NULL)", "NOT s IN ('a', 'ä')", "s COLLATE UTF8_LCASE = 'a'",
    "b = X'FF'", "b > X'61'",
    "day = date'1582-10-04'", "day < date'2013-01-01'", "day > '2013-01-01'", "year(day) = 2013",
    "ntz = timestamp_ntz'2013-03-10 02:30:00'", "ntz < timestamp_ntz'1900-01-01 00:00:00'",
    "utc = timestamp'2013-03-10 02:30:00 UTC'", "utc < timestamp'1899-12-31 23:59:59.999999 UTC'", "utc > date'2000-01-01'",
    "point.x < 50", "point IS NULL", "point.y = '3' AND point.x > 100", "NOT (point.x < 50 OR id > 3000)",
    "id < 10 OR (k = 3 AND upper(s) = 'A')", "id < 10 OR upper(s) = 'A'", "NOT (id < 10 AND upper(s) = 'A')",
    "k = 3 AND (s = 'a' OR s IS NULL) AND id % 2 = 0", "id = 2147483648", "k = 2147483648", "k < 2.5", "1000 > id",
    "id BETWEEN 100 AND 120", "id IS NULL",
    "year(utc) = 2013", "year(ntz) IN (2013, 2014, NULL)", "to_date(utc) = '2013-03-09'", "CAST(ntz AS DATE) <= '1899-12-31'",
    "date_trunc('month', utc) >= timestamp'2013-03-01 05:00:00 UTC'", "date_trunc('HOUR', utc) < timestamp'1900-01-01 00:00:00 UTC'",
    "trunc(day, 'MM') = '2013-02-01'", "date_trunc('week', day) > timestamp'2013-02-25 00:00:00'", "2013 <= year(utc) OR id < 5",
    "year(utc) > 2013", "NOT year(utc) = 2013",
]  # fmt: skip


# Of these a part is left to Spark: a collation or a function decides.
LEFT = {
    "point IS NULL", "upper(s) = 'A'", "s COLLATE UTF8_LCASE = 'a'", "id < 10 OR upper(s) = 'A'", "NOT (id < 10 AND upper(s) = 'A')",
    "id < 10 OR (k = 3 AND upper(s) = 'A')", "s LIKE '%\\\\%%'", "NOT year(utc) = 2013",
    "date_trunc('week', day) > timestamp'2013-02-25 00:00:00'",
}  # fmt: skip


def test_a_pushed_filter_keeps_the_rows_of_spark(
    session: SparkSession, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark evaluates all conditions in one job, and accel by itself what each of them became."""
    session.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        tests = ", ".join(f"({condition}) AS c{number}" for number, condition in enumerate(CONDITIONS))
        truth = session.sql(f"SELECT id, {tests} FROM t_own").toArrow()
        pushed: list[Any] = []
        real = accel.spark.pruning.plan_read

        def spy(url: Any, **arguments: Any) -> Any:
            pushed.append(arguments["where"])
            return real(url, **arguments)

        monkeypatch.setattr(accel.spark.pruning, "plan_read", spy)
        for condition in CONDITIONS:
            before = len(pushed)
            accel.spark.sql(session, f"SELECT id FROM t_a WHERE {condition}")
            if len(pushed) == before:
                pushed.append("folded")  # Spark knows that there are no rows
    finally:
        session.conf.set("spark.sql.session.timeZone", "UTC")
    assert len(pushed) == len(CONDITIONS)
    ids, loose = truth["id"], {}
    for number, (condition, where) in enumerate(zip(CONDITIONS, pushed, strict=True)):
        due = set(ids.filter(truth[f"c{number}"]).to_pylist())
        if where == "folded":
            assert not due, condition
            continue
        found = set(accel.scan(root / "t", where, columns=["id"]).to_table()["id"].to_pylist())
        assert due <= found, condition
        if due < found:
            loose[condition] = len(found) - len(due)
    assert set(loose) == LEFT


QUERIES = [
    # A self-join, each side with its own filter.
    "SELECT x.id, y.s FROM t_a x JOIN t_a y ON x.k = y.k AND y.id > 3990 WHERE x.id < 20 AND x.flag",
    # Scalar, IN and EXISTS subqueries; an anti-join.
    "SELECT id FROM t_a WHERE id > (SELECT max(id) - 5 FROM t_a WHERE s = 'a')",
    "SELECT s, count(*) FROM t_a WHERE k IN (SELECT k FROM t_a WHERE id = 5 OR id = 8) AND id < 900 GROUP BY s",
    "SELECT count(*) FROM t_a x WHERE NOT EXISTS (SELECT 1 FROM t_a y WHERE y.id = x.id + 1 AND y.id > 100)",
    "SELECT (SELECT count(*) FROM t_a WHERE flag) AS n, max(dec) FROM t_a WHERE id < 10",
    # A CTE that is used twice, windows, DISTINCT, ROLLUP, outer joins, set operations.
    "WITH c AS (SELECT k, max(id) AS m FROM t_a WHERE id < 1500 GROUP BY k) SELECT p.k, q.m FROM c p JOIN c q ON p.m = q.m + 1",
    "SELECT DISTINCT k, row_number() OVER (PARTITION BY k ORDER BY id) AS r FROM t_a WHERE id BETWEEN 5 AND 90",
    "SELECT k, flag, count(DISTINCT s) FROM t_a WHERE id < 100 GROUP BY ROLLUP (k, flag)",
    "SELECT x.id, y.id AS other FROM t_a x FULL JOIN t_a y ON x.id = y.id + 20 AND y.flag WHERE x.id < 30 OR y.id > 3990",
    "SELECT id, s FROM t_a WHERE id < 3 UNION ALL SELECT id, 'x' FROM t_a WHERE id > 3996 UNION SELECT k, s FROM t_a WHERE k = 1",
    "SELECT s FROM t_a WHERE id < 50 EXCEPT SELECT s FROM t_a WHERE id > 3000 AND s < 'b'",
    "SELECT id, point.y FROM t_a WHERE point.x > 3900 ORDER BY id DESC LIMIT 7",
    "SELECT count(*) FROM t_a", "SELECT min(id), max(f64) FROM t_a", "SELECT Id AS Foo, S FROM t_a WHERE ID = 7",
    # Joins of TPC-H.
    """SELECT l_orderkey, sum(l_extendedprice * (1 - l_discount)), o_orderdate FROM customer_a
       JOIN orders_a ON c_custkey = o_custkey JOIN lineitem_a ON l_orderkey = o_orderkey
       WHERE c_mktsegment = 'BUILDING' AND o_orderdate < date'1995-03-15' AND l_shipdate > date'1995-03-15'
       GROUP BY l_orderkey, o_orderdate""",
    """SELECT s_name, count(*) FROM supplier_a JOIN lineitem_a l ON s_suppkey = l_suppkey
       JOIN orders_a ON o_orderkey = l_orderkey JOIN nation_a ON s_nationkey = n_nationkey
       WHERE o_orderstatus = 'F' AND l_receiptdate > l_commitdate AND n_name = 'SAUDI ARABIA'
         AND EXISTS (SELECT 1 FROM lineitem_a m WHERE m.l_orderkey = l.l_orderkey AND m.l_suppkey <> l.l_suppkey)
         AND NOT EXISTS (SELECT 1 FROM lineitem_a n WHERE n.l_orderkey = l.l_orderkey
                         AND n.l_suppkey <> l.l_suppkey AND n.l_receiptdate > n.l_commitdate)
       GROUP BY s_name""",
    """SELECT sum(l_extendedprice) / 7.0 FROM lineitem_a JOIN part_a ON p_partkey = l_partkey
       WHERE p_brand = 'Brand#23' AND l_quantity < (
         SELECT 0.5 * avg(l_quantity) FROM lineitem_a WHERE l_partkey = p_partkey)""",
]  # fmt: skip


@pytest.mark.parametrize("query", QUERIES)
def test_rows_are_those_of_sparks_own_reader(session: SparkSession, query: str) -> None:
    due = session.sql(query.replace("_a", "_own"))
    found = accel.spark.sql(session, query)
    assert found.columns == due.columns
    assert [f.dataType for f in found.schema] == [f.dataType for f in due.schema]
    assert _rows(found) == _rows(due)
    # Nothing is left that reads by `format("accel")`.
    assert "RelationV2" not in found._jdf.queryExecution().optimizedPlan().toString()


@pytest.mark.parametrize("adaptive", ["true", "false"])
def test_adaptive_execution_is_no_matter(session: SparkSession, adaptive: str) -> None:
    query = "SELECT k, count(*) FROM t_a WHERE id IN (SELECT max(id) FROM t_a GROUP BY k) GROUP BY k"
    session.conf.set("spark.sql.adaptive.enabled", adaptive)
    try:
        found = accel.spark.sql(session, query)
        plan = found._jdf.queryExecution().executedPlan().toString()
        assert ("AdaptiveSparkPlan" in plan) == (adaptive == "true")
        assert sorted(found.collect()) == sorted(session.sql(query.replace("_a", "_own")).collect()) != []
    finally:
        session.conf.unset("spark.sql.adaptive.enabled")


def test_each_side_of_a_self_join_reads_its_own(session: SparkSession) -> None:
    query = "SELECT x.id, y.f64 FROM t_a x JOIN t_a y ON x.k = y.k WHERE x.id < 20 AND y.id >= 3990 AND upper(y.s) = 'A'"
    with accel.spark.metrics(session) as counts:
        pruned = accel.spark.sql(session, query)
        rows = pruned.collect()
    assert len(rows) == len(session.sql(query).collect()) > 0
    assert counts.rows_out == 20 + 9  # of the ten rows with large numbers one has no text
    assert (counts.files.kept, counts.row_groups.kept) == (
        2,
        2,
    )  # each side one, of two files and four row groups
    left, right = accel.spark.explain(pruned).split("\n\n")
    assert "columns: 2 of 12: id, k" in left
    assert "id < 20" in left
    assert "left to Spark" not in left
    assert "columns: 4 of 12: id, k, f64, s" in right
    assert "left to Spark" in right
    assert "upper" in right.partition("left to Spark")[2]


def test_rows_alone_read_no_column(session: SparkSession) -> None:
    pruned = accel.spark.sql(session, "SELECT 1 AS one FROM t_a")
    assert "columns: 0 of 12: (none)" in accel.spark.explain(pruned)
    with accel.spark.metrics(session) as counts:
        assert len(pruned.collect()) == ROWS
    assert counts.bytes == 0
    assert "columns: 1 of 12: k" in accel.spark.explain(session.sql("SELECT k FROM t_a"))


AGGREGATES = [
    ("SELECT count(*), min(id), max(dec) FROM t_a", "count(*), min(id), max(dec)"),
    ("SELECT max(day) - min(day), count(s) FROM t_a WHERE id < 900", None),
    ("SELECT min(day) AS d, max(utc), min(ntz), max(s), min(b), count(point) FROM t_a WHERE k = 3 AND id >= 10", "min(day)"),
    ("SELECT count(flag) + 1, min(point.x) FROM t_a WHERE id > 5000", None),
    ("SELECT min(point.x), count(point.y) FROM t_a WHERE id > 5000", "min(point.x), count(point.y)"),
    ("SELECT min(f64), max(f32) FROM t_a", None),
    ("SELECT count(*) FROM t_a WHERE upper(s) = 'A'", None),
    ("SELECT count(DISTINCT k), max(id) FROM t_a", None),
    ("SELECT max(id) FILTER (WHERE k = 2), count(k) FROM t_a", None),
    ("SELECT id FROM t_a WHERE id > (SELECT max(id) - 3 FROM t_a)", None),
    ("SELECT id FROM t_a WHERE id >= (SELECT max(id) AS m FROM t_a WHERE flag)", "max(id)"),
    ("SELECT k, max(id) FROM t_a GROUP BY k", None),
]  # fmt: skip


@pytest.mark.parametrize(("query", "told"), AGGREGATES)
def test_aggregates_come_from_metadata_where_they_mean_the_same(
    session: SparkSession, query: str, told: str | None
) -> None:
    due = session.sql(query.replace("t_a", "t_own"))
    found = accel.spark.sql(session, query)
    assert [(f.name, f.dataType) for f in found.schema] == [(f.name, f.dataType) for f in due.schema]
    assert _rows(found) == _rows(due)
    assert ("aggregates, computed now" in accel.spark.explain(found)) == (told is not None)
    assert told is None or told in accel.spark.explain(found)


def test_tables_by_url_and_dataframes(session: SparkSession, root: Path) -> None:
    few = session.createDataFrame([(3,), (5,)], "k int")
    query = "SELECT t.id, few.k FROM {t} t JOIN {few} few ON t.k = few.k WHERE t.id < 50"
    found = accel.spark.sql(session, query, t=root / "t", few=few)
    due = session.sql(query, t=session.read.parquet(str(root / "t")), few=few)
    assert _rows(found) == _rows(due)
    assert "pushed: (no filter)" not in accel.spark.explain(found)


def test_tables_of_one_schema_are_not_mixed_up(session: SparkSession, root: Path) -> None:
    """A plan that reads the same twice shares a read; these are not the same."""
    one, other = (accel.spark.table(session, root / "t" / f"{number}.parquet") for number in range(2))
    both = one.where("k = 3").select("id").union(other.where("k = 3").select("id"))
    assert _rows(accel.spark.prune(both)) == _rows(session.sql("SELECT id FROM t_own WHERE k = 3"))
    path = str(root / "t")
    source = session.read.format("accel")
    texts = source.schema("k int").load(path), source.schema("k long").load(path)
    both = texts[0].where("k = 3").union(texts[1].where("k = 3"))
    assert accel.spark.prune(both).count() == both.count()
    with pytest.raises(ValueError, match="cannot be named 'args'"):
        accel.spark.sql(session, "SELECT * FROM {args}", args=path)


def test_a_table_without_prune_has_all_rows(session: SparkSession, root: Path) -> None:
    table = accel.spark.table(session, root / "t", partitioning=None)
    assert table.schema == session.table("t_a").schema
    assert table.where("k = 3").count() == session.table("t_own").where("k = 3").count()
    assert accel.spark.prune(table.where("k = 3")).count() == table.where("k = 3").count()
    with pytest.raises(TypeError, match="no argument 'where'"):
        accel.spark.table(session, root / "t", where="k = 3")


def test_options_of_a_source_stay(session: SparkSession, root: Path) -> None:
    """Its own predicate, its columns, a declared schema; and no filter goes below a limit."""
    source = session.read.format("accel").option("where", "id < 100")
    chosen = source.option("columns", "id,k").load(str(root / "t"))
    assert accel.spark.prune(chosen.where("k = 3")).count() == chosen.where("k = 3").count() == 14
    wide = session.read.format("accel").schema("k long, id long").load(str(root / "t"))
    pruned = accel.spark.prune(wide.where("k = 3 AND id < 100"))
    assert pruned.schema.simpleString() == "struct<k:bigint,id:bigint>"
    assert _rows(pruned) == _rows(wide.where("k = 3 AND id < 100"))
    limited = session.read.format("accel").option("limit", "10").load(str(root / "t")).where("id > 5")
    assert accel.spark.prune(limited).count() == 4
    assert "pushed: (no filter)" in accel.spark.explain(limited)


def test_pushdown_of_the_session_is_no_matter(session: SparkSession) -> None:
    """Filters that a source would take for itself are not lost."""
    accel.spark.register(session, pushdown=True)
    try:
        df = session.sql("SELECT id FROM t_a WHERE id < 5")
        assert accel.spark.prune(df).count() == 5
        assert session.conf.get("spark.sql.python.filterPushdown.enabled") == "true"
    finally:
        session.conf.set("spark.sql.python.filterPushdown.enabled", "false")


def test_cached_relations_stay(session: SparkSession) -> None:
    cached = session.sql("SELECT id, k FROM t_a WHERE id < 100").cache()
    try:
        assert cached.count() == 100
        joined = session.sql("SELECT id, s FROM t_a WHERE id > 90").join(cached.where("k = 3"), "id")
        with accel.spark.metrics(session) as counts:
            assert accel.spark.prune(joined).count() == 1
        assert counts.rows_out == ROWS - 91
    finally:
        cached.unpersist()


def test_sizes_are_true(session: SparkSession) -> None:
    """A small side is sent to all executors; of the data source Spark knows no size."""
    query = "SELECT x.id FROM t_a x JOIN t_a y ON x.id = y.id WHERE y.id < 20"
    pruned = accel.spark.sql(session, query)
    assert "BroadcastHashJoin" in pruned._jdf.queryExecution().executedPlan().toString()
    assert "BroadcastHashJoin" not in session.sql(query)._jdf.queryExecution().executedPlan().toString()


def test_what_is_unknown_stays_as_it_was(session: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    df = session.sql("SELECT id FROM t_a WHERE id < 5")
    monkeypatch.setattr("accel.spark.catalyst.DATASETS", ("org.apache.spark.Nothing",))
    with pytest.warns(UserWarning, match="leaves this DataFrame as it was: this Spark has no Dataset"):
        assert accel.spark.prune(df) is df
    monkeypatch.undo()
    own = session.table("t_own")
    assert accel.spark.prune(own) is own
    assert accel.spark.explain(own) == "no use of accel that can be pruned"


def test_streams_and_others_are_refused(session: SparkSession) -> None:
    stream = session.readStream.format("rate").load()
    with pytest.raises(AccelError, match="streaming DataFrame"):
        accel.spark.prune(stream)
    with pytest.raises(TypeError, match="is a DataFrame, not a str"):
        accel.spark.prune("t_a")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="is a SparkSession, not a str"):
        accel.spark.sql("SELECT 1", "SELECT 1")  # type: ignore[arg-type]


def test_errors_of_files_are_errors(session: SparkSession, tmp_path: Path) -> None:
    """They are no reason to leave a plan as it is."""
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"a": [1, 2]}), path)
    df = session.read.format("accel").load(str(path)).where("a = 1")
    path.write_bytes(b"no parquet")
    with pytest.raises(AccelError, match=r"x\.parquet"):
        accel.spark.prune(df)
