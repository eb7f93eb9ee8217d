"""What every Spark from 3.5 on has: `read`, `sql` with all that it pushes, `lookup`, `mapInArrow` and `optimize`.

The suite runs it on its own Spark; `make test-spark35`, `test-spark40` and `test-spark42` run it on older ones.
"""

from __future__ import annotations

from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import accel
from accel.spark import pruning

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS = 2_000


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("any")
    t = pa.table(
        {
            "id": range(ROWS),
            "k": pa.array([at % 7 for at in range(ROWS)], pa.int32()),
            "d": pa.array(
                [Decimal(at).scaleb(-2) if at % 3 else None for at in range(ROWS)], pa.decimal128(12, 2)
            ),
            "s": [None if at % 5 == 0 else str(at % 9) for at in range(ROWS)],
            "point": [{"x": at, "y": str(at)} if at % 4 else None for at in range(ROWS)],
        }
    )
    (root / "t").mkdir()
    for number in range(2):
        half = t.slice(number * ROWS // 2, ROWS // 2)
        pq.write_table(half, root / "t" / f"{number}.parquet", write_page_index=True, max_rows_per_page=100)
    return root


def _rows(df: DataFrame) -> list[str]:
    return sorted(map(repr, df.collect()))


QUERIES = [
    ("SELECT a.id, b.s FROM {t} a JOIN {t} b ON a.id = b.id + 3 WHERE a.k = 2 AND b.id < 50 AND upper(b.s) = '4'", "left to Spark"),
    ("SELECT id FROM {t} WHERE id IN (SELECT id FROM {t} WHERE k = 3 AND id < 40)", "keys of a join: id"),
    ("SELECT count(*), min(id), max(s) FROM {t} WHERE id >= 1500", "aggregates, computed now"),
    ("SELECT s, count(*) FROM {t} WHERE point.x > 1900 GROUP BY s", "point.x"),
    ("SELECT 1 AS one FROM {t} WHERE id < 3", "columns: 1 of 5: id"),
    ("WITH c AS (SELECT k, max(id) AS m FROM {t} GROUP BY k) SELECT p.k FROM c p JOIN c q ON p.m = q.m + 1", "columns: 2 of 5"),
    ("SELECT k, sum(d), max(-d) FROM {t} WHERE d > 12.34 AND d * 2 < 38 GROUP BY k", "pushed: d IS NOT NULL AND d > 12.34"),
]  # fmt: skip


@pytest.mark.parametrize(("query", "told"), QUERIES)
def test_sql(spark: SparkSession, root: Path, query: str, told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pruning, "WORTH_BYTES", 0)
    pruned = accel.spark.sql(spark, query, t=root / "t")
    assert _rows(pruned) == _rows(spark.sql(query, t=spark.read.parquet(str(root / "t")))) != []
    assert told in accel.spark.explain(pruned)


def test_reads_tables_and_paths(spark: SparkSession, root: Path) -> None:
    with accel.spark.metrics(spark) as counts:
        read = accel.spark.read(spark, root / "t", where="id < 30 AND k = 2", columns=["id", "point"])
        assert [row.id for row in read.collect()] == [2, 9, 16, 23]
    assert counts.files.kept == 1
    assert accel.spark.prune(read.where("id > 10").select("point")).count() == 2
    assert accel.spark.read(spark, root / "t", planning="executors").count() == ROWS
    assert accel.spark.table(spark, root / "t").where("k = 2 AND id < 30").count() == 4
    paths = spark.createDataFrame([(str(root / "t" / "1.parquet"),)], "path string")
    ask = partial(accel.scan, where="k = 2", columns=["id"])
    assert paths.mapInArrow(ask, "id long").count() == sum(at % 7 == 2 for at in range(ROWS // 2, ROWS))


def test_lookup_and_jobs(spark: SparkSession, root: Path) -> None:
    wanted = spark.createDataFrame([(3, "a"), (1_999, "b"), (1_999, "c"), (None, "d")], "id long, tag string")
    found = accel.spark.lookup(wanted, root / "t", on="id", columns=["k"])
    assert _rows(found) == [
        "Row(id=1999, tag='b', k=4)",
        "Row(id=1999, tag='c', k=4)",
        "Row(id=3, tag='a', k=3)",
    ]
    accel.spark.optimize(spark, str(root / "t"), to=str(root / "sorted"), sort_by="k")
    assert accel.scan(root / "sorted", "k = 5").count_rows() == sum(at % 7 == 5 for at in range(ROWS))
    accel.spark.build_index(spark, str(root / "sorted"), indexes={"id": "keys"})
    assert accel.spark.read(spark, root / "sorted", where="id = 77").count() == 1
