"""The keys of a small side of a join as the question to the other side."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import accel
from accel.spark import pruning

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS = 4_000


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Path:
    root = tmp_path_factory.mktemp("joins")
    (root / "t").mkdir()
    t = pa.table(
        {
            "id": pa.array(range(ROWS)),
            "k": pa.array([None if at % 11 == 0 else at // 40 for at in range(ROWS)], pa.int32()),
            "s": [f"s{at // 100}" for at in range(ROWS)],
            "f": [float(at) for at in range(ROWS)],
        }
    )
    for number in range(4):
        pq.write_table(
            t.slice(number * ROWS // 4, ROWS // 4), root / "t" / f"{number}.parquet", row_group_size=500,
            max_rows_per_page=100, write_page_index=True,
        )  # fmt: skip
    few = pa.table({"k": pa.array([3, 3, 4, None, 99], pa.int32()), "s": ["s1", "s1", "s1", "s0", "no"]})
    pq.write_table(few, root / "few.parquet")
    accel.spark.register(spark)
    return root


@pytest.fixture(autouse=True)
def anything_is_worth_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pruning, "WORTH_BYTES", 0)


def _rows(df: DataFrame) -> list[str]:
    return sorted(map(repr, df.collect()))


QUERIES = [
    # Inner joins, by one key and by two; a filter beside the keys; expressions above the reads.
    ("SELECT t.id, few.s FROM {t} t JOIN {few} few ON t.k = few.k", "keys of a join: k"),
    ("SELECT t.id FROM {t} t JOIN {few} few ON t.k = few.k AND t.s = few.s WHERE t.id % 2 = 0", "keys of a join: k, s|s, k"),
    ("SELECT id + 1, n FROM {t} JOIN (SELECT DISTINCT k AS kk, s AS n FROM {few} WHERE k > 2) ON k = kk", None),
    # The kinds of joins; of an outer or an anti join only the side that may lose rows.
    ("SELECT id FROM {t} WHERE k IN (SELECT k FROM {few} WHERE s = 's1')", "keys of a join: k"),
    ("SELECT id FROM {t} t WHERE EXISTS (SELECT 1 FROM {few} f WHERE f.k = t.k AND f.s <> t.s)", "keys of a join: k"),
    ("SELECT few.s, t.id FROM {few} few LEFT JOIN {t} t ON few.k = t.k AND t.id > 130", "keys of a join: k"),
    ("SELECT few.s, t.id FROM {t} t RIGHT JOIN {few} few ON few.k = t.k", "keys of a join: k"),
    ("SELECT few.s FROM {few} few LEFT ANTI JOIN {t} t ON few.k = t.k", "keys of a join: k"),
    ("SELECT t.id, few.s FROM {t} t FULL JOIN {few} few ON few.k = t.k WHERE t.id < 9 OR t.id IS NULL", None),
    ("SELECT id FROM {t} WHERE id < 200 AND k NOT IN (SELECT k FROM {few} WHERE k IS NOT NULL)", None),
    # A star, a self-join, a side that is an aggregate or a window.
    ("SELECT a.id FROM {t} a JOIN {few} x ON a.k = x.k JOIN {few} y ON a.s = y.s WHERE y.k = 4", "keys of a join"),
    ("SELECT a.id, b.id AS other FROM {t} a JOIN {t} b ON a.k = b.k WHERE b.id < 3 OR b.id = 99", "keys of a join"),
    ("SELECT t.id FROM {t} t JOIN (SELECT s, max(k) AS m FROM {few} GROUP BY s) g ON t.k = g.m", None),
    ("SELECT t.id, r FROM {few} f JOIN (SELECT id, k, row_number() OVER (PARTITION BY k ORDER BY id) AS r FROM {t}) t ON t.k = f.k", None),
    # Keys of floats, and of other types, are Spark's.
    ("SELECT x.id FROM {t} x JOIN (SELECT f * 2 AS g FROM {t} WHERE id < 4) y ON x.f = y.g", None),
    ("SELECT t.id FROM {t} t JOIN {few} few ON t.id = few.k", None),
]  # fmt: skip


@pytest.mark.parametrize(("query", "told"), QUERIES)
def test_rows_stay_and_keys_are_asked_for(
    spark: SparkSession, root: Path, query: str, told: str | None
) -> None:
    pruned = accel.spark.sql(spark, query, t=root / "t", few=root / "few.parquet")
    own = {"t": spark.read.parquet(str(root / "t")), "few": spark.read.parquet(str(root / "few.parquet"))}
    assert _rows(pruned) == _rows(spark.sql(query, **own)) != []
    explained = accel.spark.explain(pruned)
    if told is not None:
        assert any(one in explained for one in told.split("|")), explained
    elif "DISTINCT" not in query:
        assert "keys of a join" not in explained


def test_keys_read_less_and_can_be_left_out(
    spark: SparkSession, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    query, counted = "SELECT t.f FROM {t} t JOIN {few} few ON t.k = few.k WHERE few.s = 's1'", []
    for join_keys in (True, False):
        with accel.spark.metrics(spark) as counts:
            found = accel.spark.sql(spark, query, join_keys=join_keys, t=root / "t", few=root / "few.parquet")
            assert found.count() == 3 * 36
        counted.append(counts.rows_out)
    narrowed, whole = counted
    assert narrowed < 200
    assert whole > 3_000
    monkeypatch.setattr(pruning, "WORTH_BYTES", 1 << 30)
    small = accel.spark.sql(spark, query, t=root / "t", few=root / "few.parquet")
    assert "keys of a join" not in accel.spark.explain(small)


def test_a_side_that_may_change_gives_no_keys(spark: SparkSession, root: Path) -> None:
    """Its rows are computed twice."""
    t = accel.spark.table(spark, root / "t")
    few = accel.spark.table(spark, root / "few.parquet")
    for other in (
        few.limit(2),
        few.where("rand() < 0.5"),
        spark.read.parquet(str(root / "few.parquet")),
        few.mapInArrow(lambda batches: batches, few.schema),
    ):
        assert "keys of a join" not in accel.spark.explain(t.join(other.select("k"), "k"))
    values = t.join(spark.range(3, 5).selectExpr("int(id) AS k"), "k")
    assert "keys of a join: k" in accel.spark.explain(values)
    assert accel.spark.prune(values).count() == values.count() > 70
