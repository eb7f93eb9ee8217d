"""Names in any case on Spark: as `spark.sql.caseSensitive` says, as Spark's own reader finds them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import accel
from accel.errors import ColumnNotFoundError, PredicateError, SchemaMismatchError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession

pytestmark = [pytest.mark.timeout(600), pytest.mark.filterwarnings("error:accel.spark.prune")]

CASE = "spark.sql.caseSensitive"
ROWS = 1000


def _table(spelling: tuple[str, ...], first: int) -> pa.Table:
    key, name, struct, field = spelling
    numbers = range(first, first + ROWS)
    return pa.table({
        key: pa.array(numbers, pa.int64()),
        name: pa.array([f"n{n % 50}" for n in numbers]),
        struct: pa.array([{field: n % 7, "b": f"b{n}"} for n in numbers]),
    })  # fmt: skip


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files that spell their columns differently, and one with two columns of a name."""
    root = tmp_path_factory.mktemp("case")
    spellings = ("ID", "Name", "S", "Aa"), ("id", "NAME", "s", "aA"), ("Id", "name", "S", "AA")
    for folder, some in (("mixed", spellings), ("alike", (("ID", "Name", "S", "Aa"),) * 3)):
        (root / folder).mkdir()
        for at, spelling in enumerate(some):
            pq.write_table(
                _table(spelling, at * ROWS),
                root / folder / f"{at}.parquet",
                row_group_size=500,
                write_page_index=True,
                max_rows_per_page=100,
            )
    pq.write_table(pa.table({"id": [1], "ID": [2], "z": [3]}), root / "both.parquet")
    return root


@pytest.fixture(scope="module")
def session(spark: SparkSession, root: Path) -> SparkSession:
    accel.spark.register(spark)
    # Spark takes the columns of any of the files.
    own = spark.read.schema(spark.read.parquet(str(root / "alike")).schema).parquet(str(root / "mixed"))
    own.createOrReplaceTempView("t_own")
    spark.read.format("accel").load(str(root / "mixed")).createOrReplaceTempView("t_accel")
    accel.spark.read(spark, str(root / "mixed")).createOrReplaceTempView("t_read")
    return spark


@pytest.fixture
def exact(spark: SparkSession) -> Iterator[SparkSession]:
    """The session, in which case counts."""
    spark.conf.set(CASE, "true")
    try:
        accel.spark.register(spark)
        yield spark
    finally:
        spark.conf.unset(CASE)
        accel.spark.register(spark)


def _rows(frame: DataFrame) -> list[Any]:
    return sorted(map(tuple, frame.collect()))


QUERIES = (
    "SELECT iD, NAME, s.AA FROM {} WHERE Id >= 990 AND ID < 1010",
    "SELECT count(*), max(Id), sum(S.aa) FROM {} WHERE name = 'n7'",
    "SELECT S.B FROM {} WHERE s.aA = 3 AND iD > 2900",
    "SELECT DISTINCT NAME FROM {} WHERE id BETWEEN 1500 AND 1520",
    "SELECT x.ID, y.name FROM {} x JOIN {} y ON x.Id = y.iD WHERE x.id IN (1, 1001, 2001)",
    "SELECT count(*) FROM {}",
)


@pytest.mark.parametrize("query", QUERIES)
@pytest.mark.parametrize("view", ["t_accel", "t_read"])
def test_sql_finds_columns_as_in_sparks_own_reader(session: SparkSession, query: str, view: str) -> None:
    expected = session.sql(query.replace("{}", "t_own"))
    asked = query.replace("{}", view)
    assert _rows(session.sql(asked)) == _rows(expected)
    pruned = accel.spark.sql(session, asked)
    assert _rows(pruned) == _rows(expected)
    assert pruned.columns == session.sql(asked).columns == expected.columns


def test_what_is_pushed_has_the_names_of_the_files(session: SparkSession) -> None:
    told = accel.spark.explain(session.sql("SELECT name FROM t_accel WHERE iD = 1500"))
    assert "ID = 1500" in told
    with accel.spark.metrics(session) as counts:
        assert accel.spark.sql(session, "SELECT name FROM t_accel WHERE iD = 1500").count() == 1
    assert (counts.files.total, counts.files.kept) == (3, 1)


@pytest.mark.parametrize("planning", ["driver", "executors"])
def test_read(session: SparkSession, root: Path, planning: Any) -> None:
    frame = accel.spark.read(
        session,
        str(root / "mixed"),
        where="id >= 999 AND S.AA = 5",
        columns=["NAME", "iD"],
        planning=planning,
    )
    assert frame.columns == ["Name", "ID"]
    assert _rows(frame) == [
        (f"n{n % 50}", n)
        for n in sorted(range(ROWS - 1, 3 * ROWS), key=lambda n: (f"n{n % 50}", n))
        if n % 7 == 5
    ]
    assert frame.where("nAME = 'n0'").select("id").count() == len(
        [n for n in range(ROWS - 1, 3 * ROWS) if n % 7 == 5 and n % 50 == 0]
    )


def test_options_and_a_declared_schema(session: SparkSession, root: Path) -> None:
    def asked() -> DataFrameReader:
        return session.read.format("accel").option("where", "ID < 3 OR id = 2999")

    chosen = asked().option("columns", "nAMe, id").load(str(root / "mixed"))
    assert chosen.columns == ["Name", "ID"]
    assert _rows(chosen.select("ID")) == [(0,), (1,), (2,), (2999,)]
    assert _rows(accel.spark.prune(chosen.select("iD"))) == [(0,), (1,), (2,), (2999,)]
    declared = asked().schema("iD bigint, NAME string, s struct<aa: bigint>").load(str(root / "mixed"))
    expected = [(0, "n0", (0,)), (1, "n1", (1,)), (2, "n2", (2,)), (2999, "n49", (3,))]
    assert declared.columns == ["iD", "NAME", "s"]
    assert _rows(declared) == _rows(accel.spark.prune(declared)) == expected
    # Files that spell it otherwise have no such column.
    with pytest.raises(Exception, match="ColumnNotFoundError: .*no column 'id'"):
        asked().option("caseSensitive", "true").load(str(root / "mixed"))


def test_lookup_and_table(session: SparkSession, root: Path) -> None:
    wanted = session.createDataFrame([(5,), (1005,), (2005,), (9999,)], "key bigint")
    found = accel.spark.lookup(wanted, str(root / "mixed"), on={"KEY": "iD"}, columns=["NAME"])
    assert _rows(found) == [(5, "n5"), (1005, "n5"), (2005, "n5")]
    table = accel.spark.table(session, str(root / "mixed"))
    asked = accel.spark.sql(session, "SELECT name FROM {t} WHERE id = 2007", t=table)
    assert _rows(asked) == [("n7",)]
    assert table.where("Id = 2007").count() == 1


def test_two_columns_of_a_name(session: SparkSession, root: Path) -> None:
    path = str(root / "both.parquet")
    with pytest.raises(Exception, match="COLUMN_ALREADY_EXISTS"):
        session.read.parquet(path).collect()
    with pytest.raises(SchemaMismatchError, match="the columns 'id' and 'ID' differ in case alone"):
        accel.spark.read(session, path)
    with pytest.raises(PredicateError, match="'id' and 'ID' differ in case alone"):
        accel.spark.read(session, path, where="id = 1", columns=["z"])
    assert _rows(accel.spark.read(session, path, columns=["Z"])) == [(3,)]
    with pytest.raises(Exception, match="the columns 'id' and 'ID' differ in case alone"):
        session.read.format("accel").load(path)
    both = accel.spark.read(session, path, case_sensitive=True)
    assert both.columns == ["id", "ID", "z"]


def test_where_case_counts(exact: SparkSession, root: Path) -> None:
    mixed = str(root / "mixed")
    with pytest.raises(ColumnNotFoundError, match="did you mean 'ID'"):
        accel.spark.read(exact, mixed, where="id = 1")
    own = exact.read.schema("ID bigint").parquet(mixed)
    ours = exact.read.format("accel").load(mixed).select("ID")
    # A file that spells it otherwise has no such column.
    assert ours.where("ID IS NULL").count() == own.where("ID IS NULL").count() == 2 * ROWS
    assert accel.spark.prune(ours.where("ID < 3")).count() == 3
    assert accel.spark.read(exact, mixed, where="id = 1500", case_sensitive=False).count() == 1
    assert _rows(accel.spark.read(exact, str(root / "both.parquet"))) == [(1, 2, 3)]
