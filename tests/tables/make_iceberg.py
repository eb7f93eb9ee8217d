"""Makes the Iceberg tables of the tests anew, by Spark, with the rows that Spark reads of them.

Run it with an environment of its own, which has pyspark 4.1, and with the jar of iceberg-spark-runtime:

    python tests/tables/make_iceberg.py JAR tests/tables/iceberg

The tables lie below /tmp/lake while they are made, as their metadata name whole paths. Each goes with its rows into
one archive, OUT/NAME.tar.zst. Java writes the tables with equality deletes, whose rows are those of IcebergGenerics.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

LAKE = Path("/tmp/lake")


def session(jar: str):
    from pyspark.sql import SparkSession

    return (
        SparkSession.builder.master("local[2]")
        .config("spark.jars", jar)
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.extensions", "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions")
        .config("spark.sql.catalog.lake", "org.apache.iceberg.spark.SparkCatalog")
        .config("spark.sql.catalog.lake.type", "hadoop")
        .config("spark.sql.catalog.lake.warehouse", f"file:{LAKE}")
        .getOrCreate()
    )


def rows(spark, query: str) -> dict[str, object]:
    found = spark.sql(query)
    names = found.columns
    cast = found.selectExpr(*[f"to_json(named_struct('v', `{name}`)) AS `{name}`" for name in names])
    listed = [[json.loads(value).get("v") for value in row] for row in cast.collect()]
    return {"query": query, "columns": names, "rows": sorted(listed, key=json.dumps)}


def evolving(spark, version: int) -> dict[str, object]:
    """Merge-on-read deletes and updates, partition fields replaced, columns renamed, dropped, added again and
    promoted, in structs too; a branch, a tag, and files in z-order."""
    name = f"lake.db.evolving_v{version}"
    run = spark.sql
    run(
        f"CREATE TABLE {name} (id INT, full_name STRING, score FLOAT, price DECIMAL(9,2), "
        "day DATE, at TIMESTAMP, local TIMESTAMP_NTZ, place STRUCT<city: STRING, zip: INT>, tags ARRAY<STRING>, "
        "counts MAP<STRING, INT>, raw BINARY, gone STRING) USING iceberg PARTITIONED BY (day, bucket(4, id)) "
        f"TBLPROPERTIES ('format-version'='{version}', 'write.delete.mode'='merge-on-read', "
        "'write.update.mode'='merge-on-read', 'write.merge.mode'='merge-on-read', "
        "'write.parquet.page-row-limit'='50', 'write.metadata.delete-after-commit.enabled'='true', "
        "'write.metadata.previous-versions-max'='1')"
    )
    values = (
        "CAST(id AS INT) id, concat('name ', id % 50) n, CAST(id / 3 AS FLOAT) s, CAST(id / 7 AS DECIMAL(9,2)) p, "
        "date_add(DATE'2024-01-01', CAST(id % 3 AS INT)) d, timestampadd(HOUR, id, TIMESTAMP'2024-01-01 00:00:00') t, "
        "CAST(timestampadd(MINUTE, id, TIMESTAMP'1969-12-31 12:00:00') AS TIMESTAMP_NTZ) l, "
        "IF(id % 11 = 0, NULL, named_struct('city', concat('c', id % 5), 'zip', CAST(id AS INT))) pl, "
        "array(concat('t', id % 3)) ta, map('k', CAST(id AS INT)) c, CAST(concat('b', id) AS BINARY) r, 'old' g"
    )
    run(f"INSERT INTO {name} SELECT {values} FROM range(0, 300)")
    run(f"DELETE FROM {name} WHERE id % 17 = 3")
    run(f"ALTER TABLE {name} CREATE TAG first")
    run(f"ALTER TABLE {name} RENAME COLUMN full_name TO title")
    run(f"ALTER TABLE {name} DROP COLUMN gone")
    run(f"ALTER TABLE {name} ALTER COLUMN id TYPE BIGINT")
    run(f"ALTER TABLE {name} ALTER COLUMN score TYPE DOUBLE")
    run(f"ALTER TABLE {name} ALTER COLUMN price TYPE DECIMAL(12,2)")
    run(f"ALTER TABLE {name} ALTER COLUMN place.zip TYPE BIGINT")
    run(f"ALTER TABLE {name} RENAME COLUMN place.city TO town")
    run(f"ALTER TABLE {name} ADD COLUMN place.country STRING")
    run(f"ALTER TABLE {name} ADD COLUMN gone STRING")
    run(f"ALTER TABLE {name} REPLACE PARTITION FIELD bucket(4, id) WITH truncate(6, title)")
    run(f"ALTER TABLE {name} DROP PARTITION FIELD day")
    run(f"ALTER TABLE {name} ADD PARTITION FIELD days(at)")
    later = values.replace("'zip', CAST(id AS INT))", "'zip', id, 'country', 'X')").replace(
        "'old' g", "'new' g"
    )
    run(f"INSERT INTO {name} SELECT {later} FROM range(300, 340)".replace("CAST(id AS INT) id", "id"))
    run(f"UPDATE {name} SET score = -1 WHERE id % 29 = 5")
    run(f"DELETE FROM {name} WHERE title = 'name 7' AND id < 200")
    run(f"ALTER TABLE {name} CREATE BRANCH audit")
    run(
        f"INSERT INTO {name}.branch_audit SELECT {later} FROM range(340, 350)".replace(
            "CAST(id AS INT) id", "id"
        )
    )
    run(f"DELETE FROM {name} WHERE id = 250")
    snapshots = [
        row[0] for row in run(f"SELECT snapshot_id FROM {name}.snapshots ORDER BY committed_at").collect()
    ]
    found = {
        "now": rows(spark, f"SELECT * FROM {name}"),
        "tag:first": rows(spark, f"SELECT * FROM {name} VERSION AS OF 'first'"),
        "branch:audit": rows(spark, f"SELECT * FROM {name} VERSION AS OF 'audit'"),
    }
    for number in snapshots:
        found[f"snapshot:{number}"] = rows(spark, f"SELECT * FROM {name} VERSION AS OF {number}")
    return found


def zordered(spark, version: int) -> dict[str, object]:
    """Files rewritten in z-order, after deletes; periods as partitions, and instants before 1970."""
    name = f"lake.db.zordered_v{version}"
    run = spark.sql
    run(
        f"CREATE TABLE {name} (id BIGINT, at TIMESTAMP, day DATE, word STRING) USING iceberg "
        "PARTITIONED BY (months(at), years(day)) "
        f"TBLPROPERTIES ('format-version'='{version}', 'write.delete.mode'='merge-on-read', "
        "'write.metadata.delete-after-commit.enabled'='true', 'write.metadata.previous-versions-max'='1')"
    )
    values = (
        "id, timestampadd(DAY, CAST(id - 60 AS INT), TIMESTAMP'1970-01-01 12:00:00') t, "
        "date_add(DATE'1969-06-01', CAST(id AS INT)) d, concat('w', id % 13) w"
    )
    run(f"INSERT INTO {name} SELECT {values} FROM range(0, 120)")
    run(f"INSERT INTO {name} VALUES (NULL, NULL, NULL, NULL)")
    run(f"DELETE FROM {name} WHERE word = 'w3'")
    run(
        f"CALL lake.system.rewrite_data_files(table => 'db.zordered_v{version}', strategy => 'sort', "
        "sort_order => 'zorder(id, word)', where => 'id > 90')"
    )
    run(f"ALTER TABLE {name} ADD PARTITION FIELD hours(at)")
    run(f"INSERT INTO {name} SELECT {values} FROM range(500, 505)")
    return {"now": rows(spark, f"SELECT * FROM {name}")}


def pack(name: str, out: Path, found: dict[str, object]) -> None:
    """Pack a table and its rows into one archive."""
    for left in (LAKE / "db" / name).rglob("*.crc"):
        left.unlink()
    out.mkdir(parents=True, exist_ok=True)
    expected = LAKE / "expected.json"
    expected.write_text(json.dumps({"lake": str(LAKE), "versions": found}, separators=(",", ":")))
    plain = out / f"{name}.tar"
    subprocess.run(
        ["tar", "--sort=name", "--mtime=2026-01-01", "--owner=0", "--group=0", "-C", str(LAKE)]
        + ["-cf", str(plain), "expected.json", f"db/{name}"],
        check=True,
    )
    import pyarrow as pa

    (out / f"{name}.tar.zst").write_bytes(pa.Codec("zstd", 19).compress(plain.read_bytes(), asbytes=True))
    plain.unlink()


def equality(jar: str, version: int) -> dict[str, object]:
    """Tables with equality deletes, which Spark does not write."""
    import pyspark

    rows_file = LAKE / "rows.json"
    LAKE.mkdir(exist_ok=True)
    subprocess.run(
        ["java", "-cp", f"{jar}:{Path(pyspark.__file__).parent}/jars/*"]
        + ["--add-opens=java.base/java.nio=ALL-UNNAMED", "--add-opens=java.base/java.lang=ALL-UNNAMED"]
        + [str(Path(__file__).parent / "EqualityDeletes.java")]
        + [f"{LAKE}/db/equality_v{version}", str(version), str(rows_file)],
        check=True,
    )
    found = json.loads(rows_file.read_text())
    rows_file.unlink()
    for one in found.values():
        one["rows"].sort(key=json.dumps)
    return found


def main() -> None:
    jar, out = sys.argv[1], Path(sys.argv[2])
    shutil.rmtree(LAKE, ignore_errors=True)
    for version in (2, 3):
        found = equality(jar, version)
        pack(f"equality_v{version}", out, found)
        print("equality", version, {key: len(value["rows"]) for key, value in found.items()}, flush=True)
    if "--equality" in sys.argv:
        return
    spark = session(jar)
    for make in (evolving, zordered):
        for version in (2, 3):
            found = make(spark, version)
            pack(f"{make.__name__}_v{version}", out, found)
            print(
                make.__name__, version, {key: len(value["rows"]) for key, value in found.items()}, flush=True
            )
    spark.stop()


if __name__ == "__main__":
    main()
