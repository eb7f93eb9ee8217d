"""Files of many writers are rewritten by every job, and read by others as before: the types, the values and
the stored schema.

`tests/spark/test_rewritten_types.py` has the same with Spark as writer, job and reader.
"""

from __future__ import annotations

import datetime as dt
import decimal
import json
import shutil
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import accel
from accel.cli.main import main
from accel.errors import SchemaMismatchError
from accel.format.footer import parse_footer, parse_tail
from accel.format.model import Repetition
from accel.format.thrift import BINARY, I32, STRUCT, Struct
from accel.writing.column_forms import form_of, nodes_of
from tests.interop.edited import chunk_of, edit_footer, write

ROWS = 40
DUCKDB = """
    select i as id, uuid() as u, to_days(i::int) as iv, '12:00:01+00'::timetz as tz, timestamptz '2020-01-01 00:00:00+00' + to_hours(i) as ttz,
    timestamp '2020-01-01' + to_hours(i) as ts, timestamp_ns '2020-01-01' as tns, (i / 4)::decimal(4, 2) as d4, i::decimal(18, 2) as d18,
    -i::decimal(30, 2) as d30, i::utinyint as u8, i::ubigint as u64, '{"a":1}'::json as j, 'x'::blob as b,
    date '1500-01-01' as dd, time '12:00:00' as t, [1.25::decimal(9, 3), null] as l,
    {'a': '12:00:00+00'::timetz, 'd': 2.5::decimal(9, 3)} as s, map {'k': 1.5::decimal(5, 1)} as m
    from range(40) r(i)
"""


def instants() -> pa.Table:
    """Timestamps at any depth, with nulls, and beyond microseconds."""
    nanos = [None if i % 7 == 0 else (i * 3_600_000_000_007 - 10**16) for i in range(ROWS)]
    times = pa.array(nanos, pa.timestamp("ns"))
    return pa.table(
        {
            "id": pa.array(range(ROWS), pa.int64()),
            "ts": times,
            "l": pa.ListArray.from_arrays(pa.array(range(ROWS + 1), pa.int32()), times),
            "s": pa.StructArray.from_arrays(
                [times, pa.array([dt.timedelta(seconds=i) for i in range(ROWS)])], names=["t", "d"]
            ),
            "m": pa.array([[("k", nano)] for nano in nanos], pa.map_(pa.string(), pa.timestamp("ns"))),
        }
    )


def many_types() -> pa.Table:
    numbers = range(ROWS)
    fields = [
        pa.field("id", pa.int64(), metadata={"PARQUET:field_id": "3"}),
        pa.field("u16", pa.uint16(), nullable=False),
        pa.field("d9", pa.decimal128(9, 2)),
        pa.field("d18", pa.decimal128(18, 4)),
        pa.field("d38", pa.decimal128(38, 4)),
        pa.field("c", pa.dictionary(pa.int8(), pa.string())),
        pa.field("big", pa.large_string()),
        pa.field("dur", pa.duration("ms")),
        pa.field("f16", pa.float16()),
        pa.field("ny", pa.timestamp("us", "America/New_York")),
        pa.field("uuid", pa.uuid()),
        pa.field("l", pa.list_(pa.field("element", pa.decimal128(7, 2), metadata={"PARQUET:field_id": "9"}))),
    ]
    values: list[Any] = [
        pa.array(numbers, pa.int64()),
        pa.array(numbers, pa.uint16()),
        pa.array([decimal.Decimal(-i) / 4 for i in numbers], pa.decimal128(9, 2)),
        pa.array([decimal.Decimal(i) for i in numbers], pa.decimal128(18, 4)),
        pa.array([decimal.Decimal(i) * 10**20 for i in numbers], pa.decimal128(38, 4)),
        pa.array(["ab"[i % 2] for i in numbers]).dictionary_encode().cast(fields[5].type),
        pa.array([str(i) for i in numbers], pa.large_string()),
        pa.array([dt.timedelta(seconds=i) for i in numbers], pa.duration("ms")),
        pa.array([float(i) for i in numbers], pa.float64()).cast(pa.float16()),
        pa.array([dt.datetime(2020, 1, 1, tzinfo=dt.UTC)] * ROWS, pa.timestamp("us", "America/New_York")),
        pa.array([uuid.UUID(int=i).bytes for i in numbers], pa.uuid()),
        pa.array([[decimal.Decimal(i), None] for i in numbers], pa.list_(pa.decimal128(7, 2))).cast(fields[11].type),
    ]  # fmt: skip
    return pa.Table.from_arrays(values, schema=pa.schema(fields))


def annotated() -> bytes:
    """A file of annotations that pyarrow does not write: ENUM, BSON, one of a later format, times in UTC, a
    small decimal in INT64."""
    table = pa.table(
        {
            "id": pa.array(range(ROWS), pa.int64()),
            "e": pa.array([b"ok", b"sad"] * (ROWS // 2)),
            "b": pa.array([b"\x05\0\0\0\0"] * ROWS),
            "new": pa.array([b"\x01"] * ROWS),
            "t": pa.array([1000 * i for i in range(ROWS)], pa.int64()),
            "d": pa.array([-i for i in range(ROWS)], pa.int64()),
            "s": pa.array([{"e": b"x"}] * ROWS),
        }
    )

    def edit(fields: Struct) -> None:
        elements = fields[2][1].items
        elements[2] |= {6: (I32, 4), 10: (STRUCT, {4: (STRUCT, {})})}
        elements[3] |= {6: (I32, 20), 10: (STRUCT, {13: (STRUCT, {})})}
        elements[4] |= {10: (STRUCT, {18: (STRUCT, {1: (BINARY, b"OGC:CRS84")})})}
        elements[5] |= {10: (STRUCT, {7: (STRUCT, {1: (1, True), 2: (STRUCT, {2: (STRUCT, {})})})})}
        decimals: Struct = {1: (I32, 1), 2: (I32, 5)}
        elements[6] |= {6: (I32, 5), 7: (I32, 1), 8: (I32, 5), 10: (STRUCT, {5: (STRUCT, decimals)})}
        elements[8] |= {6: (I32, 4), 9: (I32, 17), 10: (STRUCT, {4: (STRUCT, {})})}

    return edit_footer(write(table, store_schema=False), edit)


def repeated() -> bytes:
    """A file of lists without groups of their own, of ENUM and of integers."""
    items = {"e": pa.array([[b"ok", b"sad"]] * ROWS), "i": pa.array([[1, 2]] * ROWS)}
    fields = [
        pa.field(name, pa.list_(pa.field("element", column.type.value_type, nullable=False)), nullable=False)
        for name, column in items.items()
    ]
    arrays = [column.cast(field.type) for column, field in zip(items.values(), fields, strict=True)]
    schema = pa.schema([pa.field("id", pa.int64()), *fields])
    table = pa.Table.from_arrays([pa.array(range(ROWS)), *arrays], schema=schema)

    def edit(fields: Struct) -> None:
        elements = fields[2][1].items
        for at, annotation in ((2, {6: (I32, 4), 10: (STRUCT, {4: (STRUCT, {})})}), (5, {})):
            name = elements[at][4]
            elements[at + 2] |= {3: (I32, 2), 4: name, **annotation}
        fields[2][1].items[:] = [elements[0], elements[1], elements[4], elements[7]]
        for column, name in ((1, b"e"), (2, b"i")):
            chunk_of(fields, column=column)[3][1][3][1].items[:] = [name]

    return edit_footer(write(table, store_schema=False), edit)


def write_duckdb(path: Path) -> None:
    duckdb.sql(f"copy ({DUCKDB}) to '{path}' (format parquet)")


def write_fastparquet(path: Path) -> None:
    import fastparquet
    import pandas as pd

    frame = pd.DataFrame(
        {
            "id": range(ROWS),
            "t": pd.date_range("2020-01-01", periods=ROWS, freq="h"),
            "j": [{"a": i} for i in range(ROWS)],
            "c": pd.Categorical(["a", "b"] * (ROWS // 2)),
        }
    )
    fastparquet.write(str(path), frame, times="int96", object_encoding={"j": "json"})


def write_arro3(path: Path) -> None:
    import arro3.io

    arro3.io.write_parquet(instants().append_column("u", pa.array(range(ROWS), pa.uint32())), str(path))


def write_polars(path: Path) -> None:
    import polars as pl

    pl.DataFrame(many_types().drop_columns(["f16", "uuid"])).write_parquet(path)


WRITERS: dict[str, Callable[[Path], object]] = {
    "pyarrow-int96": lambda path: pq.write_table(instants(), path, use_deprecated_int96_timestamps=True),
    "pyarrow-int96-foreign": lambda path: pq.write_table(
        instants(), path, use_deprecated_int96_timestamps=True, store_schema=False
    ),
    "pyarrow-decimals-in-integers": lambda path: pq.write_table(
        many_types(), path, store_decimal_as_integer=True
    ),
    "pyarrow": lambda path: pq.write_table(many_types(), path),
    "annotations": lambda path: path.write_bytes(annotated()),
    "repeated": lambda path: path.write_bytes(repeated()),
    "duckdb": write_duckdb,
    "fastparquet": write_fastparquet,
    "arro3": write_arro3,
    "polars": write_polars,
}


def _scanned(directory: Path) -> None:
    [path] = directory.glob("*.parquet")
    accel.write_table(accel.scan(str(path), cache=None), path)


def _embedded(directory: Path) -> None:
    accel.embed_files(directory, indexes={"id": "distinct"})


def _by_command(directory: Path) -> None:
    [path] = directory.glob("*.parquet")
    assert main(["scan", str(path), "-o", str(path.with_suffix(".new")), "--format", "parquet"]) == 0
    path.with_suffix(".new").rename(path)


JOBS: dict[str, Callable[[Path], object]] = {
    "command": _by_command,
    "optimize": accel.optimize,
    "sorted": lambda directory: accel.optimize(directory, sort_by=[("id", "descending")]),
    "z-order": lambda directory: accel.optimize(directory, z_order=["id"]),
    "embed": _embedded,
    "write_table": _scanned,
}


def _columns(path: Path | str) -> dict[tuple[str, ...], Any]:
    """What each leaf and group stores, and its field id."""
    raw = Path(path).read_bytes()
    start = len(raw) - 8 - parse_tail(raw[-8:]).length
    schema = parse_footer(raw[start:-8], file_size=len(raw), footer_start=start).schema
    nodes = nodes_of(schema, pq.read_schema(path))
    elements = {path: schema.elements[at] for path, at in nodes.items()}
    return {
        path: (form_of(element), element.repetition is Repetition.OPTIONAL, element.field_id)
        for path, element in elements.items()
        # The groups of lists may have other names, or be none.
        if form_of(element) != ("group",) or element.field_id is not None
    }


def _by_duckdb(paths: list[str]) -> tuple[list[Any], list[Any]]:
    with duckdb.connect() as connection:
        connection.sql("set timezone = 'America/New_York'")
        try:
            found = connection.sql(f"from read_parquet({paths}) order by id")
        except duckdb.IOException as error:  # it knows no BSON
            return [str(error)], []
        # As text, because Python's values of zones need another package.
        return found.types, connection.sql("select columns(*)::varchar from found").fetchall()


def _read(directory: Path) -> dict[str, Any]:
    paths = sorted(map(str, directory.glob("*.parquet")))
    file = pq.ParquetFile(paths[0])
    table = pa.concat_tables([pq.read_table(path) for path in paths])
    at = table.column("id").to_pylist()
    order = sorted(range(len(at)), key=lambda row: at[row])
    return {
        "stored": _columns(paths[0]),
        "types": [(field.name, field.type, field.nullable) for field in table.schema],
        "pyarrow": [table.slice(row, 1).to_pylist() for row in order],
        "duckdb": _by_duckdb(paths),
        "keys": {key for key in file.metadata.metadata or {} if key not in (b"accel.indexes", b"pandas")},
    }


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    root = tmp_path_factory.mktemp("originals")
    for name, writer in WRITERS.items():
        writer(root / f"{name}.parquet")
    return root


@pytest.mark.parametrize("job", JOBS)
@pytest.mark.parametrize("writer", WRITERS)
def test_rewritten_files_are_read_as_before(originals: Path, tmp_path: Path, writer: str, job: str) -> None:
    shutil.copy(originals / f"{writer}.parquet", tmp_path / "0.parquet")
    before = _read(tmp_path)
    JOBS[job](tmp_path)
    after = _read(tmp_path)
    for part, found in before.items():
        assert after[part] == found, part


@pytest.mark.parametrize(
    ("writer", "question"),
    [
        ("duckdb", "d4 = 2.5"),
        ("duckdb", "d30 > -3"),
        ("duckdb", "u64 >= 38"),
        ("pyarrow-decimals-in-integers", "d9 < -9.25"),
        ("annotations", "d = -1.5"),
    ],
)
def test_statistics_of_rewritten_columns_hold(
    originals: Path, tmp_path: Path, writer: str, question: str
) -> None:
    """Those of plain numbers, where they are in the order of the column; others are left out."""
    shutil.copy(originals / f"{writer}.parquet", tmp_path / "0.parquet")
    before = accel.scan(str(tmp_path), question, columns=["id"], cache=None).to_table()
    assert before.num_rows
    accel.optimize(tmp_path, row_group_size=5, page_rows=2)
    scan = accel.scan(str(tmp_path), question, columns=["id"], cache=None)
    assert scan.to_table().equals(before)
    assert scan.metrics.rows.kept <= 14
    if writer == "duckdb":
        found = duckdb.sql(f"select count(*) from '{tmp_path}/*.parquet' where {question}").fetchone()
        assert found == (before.num_rows,)


def test_int96_is_sorted_by_its_instants_and_declares_no_order(tmp_path: Path) -> None:
    pq.write_table(instants(), tmp_path / "0.parquet", use_deprecated_int96_timestamps=True)
    accel.optimize(tmp_path, sort_by=[("ts", "descending"), "id"])
    [path] = tmp_path.glob("*.parquet")
    found = pq.read_table(path)
    expected = instants().sort_by([("ts", "descending"), ("id", "ascending")])
    assert found.column("id").equals(expected.column("id"))
    assert pq.read_metadata(path).row_group(0).sorting_columns == ()
    chunk = pq.read_metadata(path).row_group(0).column(1)
    assert (chunk.physical_type, chunk.statistics) == ("INT96", None)


def test_years_that_nanoseconds_do_not_hold_stay(tmp_path: Path) -> None:
    """The bytes of INT96 are copied: Spark's 9999-12-31, and a time of day of more than a day."""
    stored = [(0, 2_440_588), (5, 5_373_484), (90_000_000_000_000, 2_440_588), (7, 1_721_426)]
    raw = b"".join(time.to_bytes(8, "little") + day.to_bytes(4, "little") for time, day in stored)
    array = pa.Array.from_buffers(pa.binary(12), 4, [None, pa.py_buffer(raw)])
    table = pa.table({"id": pa.array(range(4)), "ts": array})

    def edit(fields: Struct) -> None:
        element = fields[2][1].items[2]
        element[1] = (I32, 3)
        del element[2]
        fields[4][1].items[0][1][1].items[1][3][1][1] = (I32, 3)

    (tmp_path / "0.parquet").write_bytes(
        edit_footer(write(table, store_schema=False, write_statistics=False), edit)
    )
    before = _by_duckdb([str(tmp_path / "0.parquet")])
    accel.optimize(tmp_path, sort_by="ts")
    [path] = tmp_path.glob("*.parquet")
    assert _by_duckdb([str(path)]) == before
    assert pq.read_table(path, columns=["id"]).column("id").to_pylist() == [3, 0, 2, 1]


def test_what_no_file_can_store_is_refused_before_a_file_is_touched(tmp_path: Path) -> None:
    pq.write_table(instants(), tmp_path / "0.parquet", use_deprecated_int96_timestamps=True)
    with pytest.raises(SchemaMismatchError, match=r"'ts' is INT96.*leave out int96_unit"):
        accel.optimize(tmp_path, options=accel.Options(int96_unit="us"))
    pq.write_table(instants(), tmp_path / "1.parquet")
    with pytest.raises(
        SchemaMismatchError, match=r"'ts' is stored as INT96 here and as TIMESTAMP in ns, local"
    ):
        accel.optimize(tmp_path, sort_by="id")
    assert sorted(path.name for path in tmp_path.glob("*.parquet")) == ["0.parquet", "1.parquet"]
    (tmp_path / "1.parquet").unlink()
    with pytest.raises(ValueError, match="INT96, which has no other encoding"):
        accel.optimize(tmp_path, use_dictionary=False, column_encoding={"ts": "BYTE_STREAM_SPLIT"})
    assert [path.name for path in tmp_path.glob("*.parquet")] == ["0.parquet"]


def test_different_field_ids_of_one_column_are_refused(tmp_path: Path) -> None:
    for number in range(2):
        field = pa.field("a", pa.int64(), metadata={"PARQUET:field_id": str(number + 1)})
        pq.write_table(pa.table([pa.array([1])], schema=pa.schema([field])), tmp_path / f"{number}.parquet")
    with pytest.raises(SchemaMismatchError, match="field id 2 here and 1 in files before"):
        accel.optimize(tmp_path)


def _with_metadata(path: Path, metadata: dict[str, str], table: pa.Table | None = None) -> None:
    table = pa.table({"a": pa.array([1, 2])}) if table is None else table
    pq.write_table(table.replace_schema_metadata(metadata), path)


def _spark_schema(kind: str, **metadata: str) -> str:
    fields = [{"name": "a", "type": kind, "nullable": True, "metadata": metadata}]
    return json.dumps({"type": "struct", "fields": fields})


SCHEMA = "org.apache.spark.sql.parquet.row.metadata"
VERSION = "org.apache.spark.version"
ZONE = "org.apache.spark.timeZone"


@pytest.mark.parametrize(
    ("one", "other", "merged"),
    [
        ({VERSION: "3.5.1"}, {VERSION: "4.0.0"}, {VERSION: "4.0.0"}),
        ({VERSION: "3.5.1"}, {}, {VERSION: "3.5.1"}),
        ({VERSION: "2.4.8"}, {VERSION: "3.5.1"}, "another calendar"),
        ({VERSION: "2.4.8"}, {VERSION: "2.3.0"}, {VERSION: "2.4.8"}),
        (
            {VERSION: "3.5.1", "org.apache.spark.legacyINT96": "", ZONE: "Asia/Tokyo"},
            {VERSION: "3.5.1", "org.apache.spark.legacyINT96": "x", ZONE: "Asia/Tokyo"},
            {VERSION: "3.5.1", "org.apache.spark.legacyINT96": "", ZONE: "Asia/Tokyo"},
        ),
        (
            {VERSION: "3.5.1", "org.apache.spark.legacyDateTime": "", ZONE: "Asia/Tokyo"},
            {VERSION: "3.5.1", "org.apache.spark.legacyDateTime": "", ZONE: "UTC"},
            "another calendar",
        ),
        ({SCHEMA: _spark_schema("interval day")}, {}, "only Spark's own schema tells"),
        ({SCHEMA: _spark_schema("interval day")}, {SCHEMA: _spark_schema("long")}, "another type for Spark"),
        (
            {SCHEMA: _spark_schema("interval day", comment="one")},
            {SCHEMA: _spark_schema("interval day", comment="other")},
            {SCHEMA: _spark_schema("interval day", comment="one").replace(": ", ":").replace(", ", ",")},
        ),
        ({SCHEMA: _spark_schema("integer")}, {SCHEMA: _spark_schema("long")}, {}),
        ({"owner": "me", "x": "1"}, {"owner": "me", "x": "2"}, {"owner": "me"}),
    ],
    ids=[
        "versions", "one version", "an old version", "old versions", "marks", "zones", "an interval of some files",
        "an interval and a number", "comments", "widened", "one's own",
    ],
)  # fmt: skip
def test_metadata_of_several_files(
    tmp_path: Path, one: dict[str, str], other: dict[str, str], merged: dict[str, str] | str
) -> None:
    _with_metadata(tmp_path / "0.parquet", one)
    _with_metadata(tmp_path / "1.parquet", other)
    if isinstance(merged, str):
        with pytest.raises(SchemaMismatchError, match=merged):
            accel.optimize(tmp_path)
        return
    accel.optimize(tmp_path)
    [path] = tmp_path.glob("*.parquet")
    found = {key.decode(): value.decode() for key, value in pq.read_metadata(path).metadata.items()}
    assert {
        key: value for key, value in found.items() if key not in ("ARROW:schema", "accel.indexes")
    } == merged


def test_the_index_of_pandas_stays(tmp_path: Path) -> None:
    import pandas as pd

    for number in range(2):
        frame = pd.DataFrame({"a": [number, 2]}, index=pd.Index([f"x{number}", "y"], name="key"))
        frame.to_parquet(tmp_path / f"{number}.parquet")
    accel.optimize(tmp_path, sort_by="a")
    [path] = tmp_path.glob("*.parquet")
    found = pd.read_parquet(path)
    assert (found.index.name, found.index.tolist()) == ("key", ["x0", "x1", "y", "y"])


def test_a_projection_leaves_out_the_columns_of_sparks_schema(tmp_path: Path) -> None:
    fields = [{"name": name, "type": "interval day", "nullable": True, "metadata": {}} for name in "ab"]
    table = pa.table({"a": [1, 2], "b": [3, 4]})
    _with_metadata(tmp_path / "0.parquet", {SCHEMA: json.dumps({"type": "struct", "fields": fields})}, table)
    accel.write_table(accel.scan(str(tmp_path / "0.parquet"), columns=["b"]), tmp_path / "1.parquet")
    found = json.loads(pq.read_metadata(tmp_path / "1.parquet").metadata[SCHEMA.encode()])
    assert found["fields"] == fields[1:]


def test_a_plan_is_written_like_its_scan(tmp_path: Path) -> None:
    pq.write_table(instants(), tmp_path / "0.parquet", use_deprecated_int96_timestamps=True)
    accel.write_table(accel.scan(accel.plan(str(tmp_path / "0.parquet"), "id > 5")), tmp_path / "1.parquet")
    found = pq.ParquetFile(tmp_path / "1.parquet")
    assert _columns(tmp_path / "1.parquet") == _columns(tmp_path / "0.parquet")
    assert found.read().equals(instants().slice(6))
