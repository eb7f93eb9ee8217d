"""TPC-H's queries that filter lineitem, by SQL over views of format("accel"): the rows are those of Spark's
own reader."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import accel

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(600)  # for the long run

FILES = 4
READ_BY_ACCEL = ("lineitem", "customer", "orders", "part")
ALSO_LARGE = {"q3", "q7", "q10", "q21"}

# Without LIMIT, as rows may tie. A query that looks at lineitem twice has a view for each, because Spark 4.3
# mixes the filters of one up if they are taken.
QUERIES = {
    "q1": """
        SELECT l_returnflag, l_linestatus, sum(l_quantity), sum(l_extendedprice),
               sum(l_extendedprice * (1 - l_discount)), sum(l_extendedprice * (1 - l_discount) * (1 + l_tax)),
               avg(l_quantity), avg(l_extendedprice), avg(l_discount), count(*)
        FROM lineitem WHERE l_shipdate <= date'1998-12-01' - INTERVAL 90 DAYS
        GROUP BY l_returnflag, l_linestatus""",
    "q3": """
        SELECT l_orderkey, sum(l_extendedprice * (1 - l_discount)), o_orderdate, o_shippriority
        FROM customer JOIN orders ON c_custkey = o_custkey JOIN lineitem ON l_orderkey = o_orderkey
        WHERE c_mktsegment = 'BUILDING' AND o_orderdate < date'1995-03-15' AND l_shipdate > date'1995-03-15'
        GROUP BY l_orderkey, o_orderdate, o_shippriority""",
    "q4": """
        SELECT o_orderpriority, count(*) FROM orders
        WHERE o_orderdate >= date'1993-07-01' AND o_orderdate < date'1993-10-01' AND EXISTS (
            SELECT 1 FROM lineitem WHERE l_orderkey = o_orderkey AND l_commitdate < l_receiptdate)
        GROUP BY o_orderpriority""",
    "q6": """
        SELECT sum(l_extendedprice * l_discount), count(*) FROM lineitem
        WHERE l_shipdate >= date'1994-01-01' AND l_shipdate < date'1995-01-01'
          AND l_discount BETWEEN 0.05 AND 0.07 AND l_quantity < 24""",
    "q7": """
        SELECT n1.n_name, n2.n_name, year(l_shipdate), sum(l_extendedprice * (1 - l_discount))
        FROM supplier JOIN lineitem ON s_suppkey = l_suppkey JOIN orders ON o_orderkey = l_orderkey
        JOIN customer ON c_custkey = o_custkey JOIN nation n1 ON s_nationkey = n1.n_nationkey
        JOIN nation n2 ON c_nationkey = n2.n_nationkey
        WHERE (n1.n_name = 'FRANCE' AND n2.n_name = 'GERMANY' OR n1.n_name = 'GERMANY' AND n2.n_name = 'FRANCE')
          AND l_shipdate BETWEEN date'1995-01-01' AND date'1996-12-31'
        GROUP BY 1, 2, 3""",
    "q10": """
        SELECT c_custkey, c_name, sum(l_extendedprice * (1 - l_discount)), c_acctbal, n_name
        FROM customer JOIN orders ON c_custkey = o_custkey JOIN lineitem ON l_orderkey = o_orderkey
        JOIN nation ON c_nationkey = n_nationkey
        WHERE o_orderdate >= date'1993-10-01' AND o_orderdate < date'1994-01-01' AND l_returnflag = 'R'
        GROUP BY c_custkey, c_name, c_acctbal, n_name""",
    "q12": """
        SELECT l_shipmode, count_if(o_orderpriority IN ('1-URGENT', '2-HIGH')),
               count_if(NOT o_orderpriority IN ('1-URGENT', '2-HIGH'))
        FROM orders JOIN lineitem ON o_orderkey = l_orderkey
        WHERE l_shipmode IN ('MAIL', 'SHIP') AND l_commitdate < l_receiptdate AND l_shipdate < l_commitdate
          AND l_receiptdate >= date'1994-01-01' AND l_receiptdate < date'1995-01-01'
        GROUP BY l_shipmode""",
    "q14": """
        SELECT sum(if(p_type LIKE 'PROMO%', l_extendedprice * (1 - l_discount), 0)),
               sum(l_extendedprice * (1 - l_discount))
        FROM lineitem JOIN part ON l_partkey = p_partkey
        WHERE l_shipdate >= date'1995-09-01' AND l_shipdate < date'1995-10-01'""",
    "q15": """
        WITH revenue AS (
            SELECT l_suppkey AS supplier_no, sum(l_extendedprice * (1 - l_discount)) AS total FROM lineitem
            WHERE l_shipdate >= date'1996-01-01' AND l_shipdate < date'1996-04-01' GROUP BY l_suppkey),
        highest AS (
            SELECT l_suppkey AS supplier_no, sum(l_extendedprice * (1 - l_discount)) AS total FROM lineitem_2
            WHERE l_shipdate >= date'1996-01-01' AND l_shipdate < date'1996-04-01' GROUP BY l_suppkey)
        SELECT s_suppkey, s_name, total FROM supplier JOIN revenue ON s_suppkey = supplier_no
        WHERE total = (SELECT max(total) FROM highest)""",
    "q19": """
        SELECT sum(l_extendedprice * (1 - l_discount)), count(*) FROM lineitem JOIN part ON p_partkey = l_partkey
        WHERE l_shipmode IN ('AIR', 'AIR REG') AND l_shipinstruct = 'DELIVER IN PERSON' AND (
            p_brand = 'Brand#12' AND p_container LIKE 'SM%' AND l_quantity BETWEEN 1 AND 21 AND p_size <= 25
            OR p_brand = 'Brand#23' AND p_container LIKE 'MED%' AND l_quantity BETWEEN 10 AND 30
            OR p_brand LIKE 'Brand#3_' AND p_container LIKE 'LG%' AND l_quantity >= 20)""",
    "q20": """
        SELECT s_name FROM supplier WHERE s_suppkey IN (
            SELECT ps_suppkey FROM partsupp JOIN part ON ps_partkey = p_partkey
            WHERE p_name LIKE 'f%' AND ps_availqty > (
                SELECT 0.5 * sum(l_quantity) FROM lineitem WHERE l_partkey = ps_partkey AND l_suppkey = ps_suppkey
                AND l_shipdate >= date'1994-01-01' AND l_shipdate < date'1995-01-01'))""",
    "q21": """
        SELECT s_name, count(*) FROM supplier JOIN lineitem l ON s_suppkey = l.l_suppkey
        JOIN orders ON o_orderkey = l.l_orderkey JOIN nation ON s_nationkey = n_nationkey
        WHERE o_orderstatus = 'F' AND l.l_receiptdate > l.l_commitdate AND n_name = 'SAUDI ARABIA'
          AND EXISTS (SELECT 1 FROM lineitem_2 m WHERE m.l_orderkey = l.l_orderkey AND m.l_suppkey <> l.l_suppkey)
          AND NOT EXISTS (
            SELECT 1 FROM lineitem_3 n WHERE n.l_orderkey = l.l_orderkey AND n.l_suppkey <> l.l_suppkey
            AND n.l_receiptdate > n.l_commitdate)
        GROUP BY s_name""",
}


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory, large: bool) -> Path:
    """TPC-H at scale 0.01, or 0.1; lineitem in four files by the day of shipping, with pages of 1,000
    rows."""
    root = tmp_path_factory.mktemp("tpch")
    generator = Path(sys.executable).with_name("tpchgen-cli")
    scale = "0.1" if large else "0.01"
    subprocess.run(
        [generator, "parquet", "-s", scale, "--output-dir", root],
        check=True,
        capture_output=True,
        timeout=120,
    )
    lines = pq.read_table(root / "lineitem.parquet")
    # The generator asks for string views, which pyarrow does not sort.
    plain = [f.with_type(pa.string()) if f.type == pa.string_view() else f for f in lines.schema]
    lines = lines.cast(pa.schema(plain)).sort_by("l_shipdate")
    (root / "lineitem.parquet").unlink()
    (root / "lineitem").mkdir()
    each = -(-lines.num_rows // FILES)
    for number in range(FILES):
        pq.write_table(
            lines.slice(number * each, each),
            root / "lineitem" / f"{number}.parquet",
            row_group_size=8_000,
            write_page_index=True,
            max_rows_per_page=1_000,
        )
    return root


@pytest.fixture(scope="module")
def session(spark: SparkSession, tables: Path) -> SparkSession:
    """Tables that no query filters, and all tables under another name, by Spark's own reader."""
    for path in sorted(tables.iterdir()):
        own = spark.read.parquet(str(path))
        for name in (f"{path.stem}_own", *([path.stem] if path.stem not in READ_BY_ACCEL else [])):
            own.createOrReplaceTempView(name)
    return spark


def _own(query: str) -> str:
    return re.sub(rf"\b({'|'.join(READ_BY_ACCEL)})(_\d)?\b", r"\1_own", query)


def _make_views(spark: SparkSession, tables: Path, query: str, *, pushdown: bool) -> None:
    """Views of this query alone, with its columns."""
    accel.spark.register(spark, pushdown=pushdown)
    for view in sorted(set(re.findall(rf"\b(?:{'|'.join(READ_BY_ACCEL)})(?:_\d)?\b", query))):
        name = view.partition("_")[0]
        path = tables / (name if name == "lineitem" else f"{name}.parquet")
        columns = ", ".join(c for c in accel.scan(path).schema.names if re.search(rf"\b{c}\b", query))
        spark.sql(
            f"CREATE OR REPLACE TEMPORARY VIEW {view} USING accel OPTIONS (path '{path}', columns '{columns}')"
        )


@pytest.mark.parametrize("name", QUERIES)
def test_rows_are_those_of_spark(session: SparkSession, tables: Path, large: bool, name: str) -> None:
    if name in ALSO_LARGE and not large:
        pytest.skip("left to the long run: --large")
    query = QUERIES[name]
    due = sorted(map(repr, session.sql(_own(query)).collect()))
    assert due
    for pushdown in (False, True):
        _make_views(session, tables, query, pushdown=pushdown)
        assert sorted(map(repr, session.sql(query).collect())) == due, pushdown


def test_pushed_filters_prune(session: SparkSession, tables: Path) -> None:
    """Of lineitem, Q6 reads the pages of one year, and takes the rows of its answer out of them."""
    _make_views(session, tables, QUERIES["q6"], pushdown=True)
    with accel.spark.metrics(session) as counts:
        (row,) = session.sql(QUERIES["q6"]).collect()
    assert counts.rows_out == row[1] > 0
    assert counts.files.kept < counts.files.total == FILES
    assert counts.row_groups.kept < counts.row_groups.total
