"""The rules of the Iceberg specification that no engine's table here shows alone: which deletes count for which
file, what stands for a column that a file lacks, and what a partition value says of its column."""

from __future__ import annotations

import datetime
import pathlib
import struct
import zlib
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from pyroaring import BitMap64

import accel
import accel.tables
from accel.testing import RecordingStore
from tests.tables.iceberg_writer import IcebergWriter, parquet_bytes

PATH, POS = 2147483546, 2147483545
COLUMNS = [(1, "id", "long"), (2, "part", "string")]
SPEC = {"spec-id": 0, "fields": [{"source-id": 2, "field-id": 1000, "name": "part", "transform": "identity"}]}
PARTITION = [(1000, "part", "string")]


def data(ids: list[int | None], part: str | None = "a") -> bytes:
    return parquet_bytes(
        {"id": (1, pa.array(ids, pa.int64())), "part": (2, pa.array([part] * len(ids), pa.string()))}
    )


def positions(rows: list[tuple[str, int]]) -> bytes:
    return parquet_bytes(
        {
            "file_path": (PATH, pa.array([f"s3://lake/t/{path}" for path, _ in rows])),
            "pos": (POS, pa.array([pos for _, pos in rows], pa.int64())),
        }
    )


def vector(rows: list[int]) -> bytes:
    body = b"\xd1\xd3\x39\x64" + BitMap64(rows).serialize()
    return struct.pack(">I", len(body)) + body + struct.pack(">I", zlib.crc32(body))


def ids_of(writer: IcebergWriter, where: Any = None, **given: Any) -> list[Any]:
    table = accel.tables.iceberg(writer.save(), **given)
    return accel.scan(table, where, store=writer.store).to_table().column("id").to_pylist()


def two_files(writer: IcebergWriter) -> None:
    """A file of sequence number 2 in partition a, and one in b."""
    files = [
        writer.file("data/a.parquet", data([0, 1, 2, 3]), 4, partition={"part": "a"}),
        writer.file("data/b.parquet", data([10, 11, 12, None], "b"), 4, partition={"part": "b"}),
    ]
    writer.manifest(files, partition=PARTITION, sequence=2)


POSITIONS = [("data/a.parquet", 1), ("data/b.parquet", 2)]


@pytest.mark.parametrize(
    ("sequence", "part", "left"),
    [
        (1, "a", [0, 1, 2, 3, 10, 11, 12, None]),  # older than the files
        (2, "a", [0, 2, 3, 10, 11, 12, None]),  # of the same commit: counts, in its own partition
        (3, "b", [0, 1, 2, 3, 10, 11, None]),
    ],
)
def test_position_deletes_count_for_files_that_are_not_younger_in_their_partition(
    sequence: int, part: str, left: list[int]
) -> None:
    writer = IcebergWriter(COLUMNS, [SPEC])
    two_files(writer)
    file = writer.file("data/d.parquet", positions(POSITIONS), 2, content=1, partition={"part": part})
    writer.manifest([file], partition=PARTITION, content=1, sequence=sequence)
    assert ids_of(writer) == left
    assert ids_of(writer, "id >= 1 AND id < 12") == [i for i in left if i is not None and 1 <= i < 12]


@pytest.mark.parametrize(
    ("sequence", "part", "key", "left"),
    [
        (2, "a", 1, [0, 1, 2, 3, 10, 11, 12, None]),  # of the same commit: counts for older files only
        (3, "a", 1, [0, 2, 3, 10, 11, 12, None]),
        (3, "b", 1, [0, 1, 2, 3, 10, 11, 12, None]),
        (3, "b", None, [0, 1, 2, 3, 10, 11, 12]),
    ],
)
def test_equality_deletes_count_for_older_files_of_their_partition_and_null_equals_null(
    sequence: int, part: str, key: int | None, left: list[int]
) -> None:
    writer = IcebergWriter(COLUMNS, [SPEC])
    two_files(writer)
    body = parquet_bytes({"id": (1, pa.array([key, 99], pa.int64()))})
    file = writer.file("data/e.parquet", body, 2, content=2, equality_ids=[1], partition={"part": part})
    writer.manifest([file], partition=PARTITION, content=1, sequence=sequence)
    assert ids_of(writer) == left


def test_equality_deletes_without_a_partition_count_everywhere() -> None:
    writer = IcebergWriter(COLUMNS, [SPEC, {"spec-id": 1, "fields": []}])
    two_files(writer)
    body = parquet_bytes({"id": (1, pa.array([2, 12], pa.int64()))})
    file = writer.file("data/e.parquet", body, 2, content=2, equality_ids=[1])
    writer.manifest([file], spec=1, content=1, sequence=3)
    assert ids_of(writer) == [0, 1, 3, 10, 11, None]


def test_a_vector_takes_the_place_of_position_deletes_and_is_the_only_one_that_is_read() -> None:
    writer = IcebergWriter(COLUMNS, [SPEC], version=3)
    two_files(writer)
    old = writer.file("data/d.parquet", positions(POSITIONS), 2, content=1, partition={"part": "a"})
    first, second = vector([0, 3]), vector([2])
    puffin = b"PFA1" + first + second
    path = writer.put("data/v.puffin", puffin)
    entries = [
        writer.file(
            "data/v.puffin",
            puffin,
            count,
            content=1,
            file_format="PUFFIN",
            partition={"part": part},
            referenced_data_file=f"s3://lake/t/data/{part}.parquet",
            content_offset=at,
            content_size_in_bytes=length,
        )
        for part, count, at, length in (("a", 2, 4, len(first)), ("b", 1, 4 + len(first), len(second)))
    ]
    writer.manifest([old, *entries], partition=PARTITION, content=1, sequence=3)
    assert path.endswith("v.puffin")
    assert ids_of(writer) == [1, 2, 10, 11, None]
    recording = RecordingStore(writer.store)
    scan = accel.scan(accel.tables.iceberg(writer.save()), "part = 'b'", store=recording)
    assert scan.to_table().num_rows == 3
    read = [call for call in recording.calls if call.path == "t/data/v.puffin"]
    assert [(call.want.start, call.want.end) for call in read] == [(4 + len(first), len(puffin))]
    assert "t/data/d.parquet" not in {call.path for call in recording.calls}


def test_the_partition_value_stands_for_a_column_that_a_file_lacks() -> None:
    writer = IcebergWriter(COLUMNS, [SPEC])
    body = parquet_bytes({"id": (1, pa.array([1, 2], pa.int64()))})
    files = [writer.file(f"data/{part}.parquet", body, 2, partition={"part": part}) for part in ("x", "y")]
    writer.manifest(files, partition=PARTITION)
    table = accel.tables.iceberg(writer.save())
    assert accel.scan(table, store=writer.store).to_table().column("part").to_pylist() == ["x", "x", "y", "y"]
    found = accel.scan(table, "part = 'y' AND id = 2", store=writer.store).to_table()
    assert found.to_pylist() == [{"id": 2, "part": "y"}]


def test_files_without_field_ids_are_read_by_the_name_mapping_or_refused() -> None:
    body = parquet_bytes({"ID": (None, pa.array([5, 6], pa.int64())), "p": (None, pa.array(["u", "v"]))})
    names = '[{"field-id": 1, "names": ["id", "ID"]}, {"field-id": 2, "names": ["part"]}]'
    for properties, refused in (({"schema.name-mapping.default": names}, False), ({}, True)):
        writer = IcebergWriter(COLUMNS, properties=properties)
        writer.manifest([writer.file("data/n.parquet", body, 2)])
        table = accel.tables.iceberg(writer.save())
        if refused:
            with pytest.raises(
                accel.errors.TableFormatError, match="meant by field ids, and the file has none"
            ):
                accel.scan(table, store=writer.store).to_table()
        else:
            found = accel.scan(table, "id = 6", store=writer.store).to_table()
            assert found.to_pylist() == [{"id": 6, "part": None}]


@pytest.mark.parametrize(
    ("kind", "default", "value"),
    [
        ("int", 42, 42),
        ("string", "x", "x"),
        ("decimal(9, 2)", "1.25", "1.25"),
        ("date", "2024-03-01", "2024-03-01"),
        ("timestamp", "2024-03-01T10:00:00.5", "2024-03-01 10:00:00.500000"),
        ("boolean", True, "true"),
        ("double", 1.5, 1.5),
        ("binary", "00ff", None),
    ],
)
def test_a_default_stands_for_a_column_that_files_lack(kind: str, default: Any, value: Any) -> None:
    writer = IcebergWriter([(1, "id", "long"), (9, "added", kind, {"initial-default": default})], version=3)
    writer.manifest([writer.file("data/a.parquet", data([1, 2]), 2)])
    table = accel.tables.iceberg(writer.save())
    found = accel.scan(table, store=writer.store).to_table().column("added")
    assert found.null_count == 0 and len(set(found.to_pylist())) == 1
    if value is not None:
        assert set(found.cast(pa.string()).to_pylist()) == {pa.scalar(value).cast(pa.string()).as_py()}
    assert accel.scan(table, "added IS NULL", store=writer.store).count_rows() == 0
    assert accel.scan(table, "added IS NOT NULL", store=writer.store).count_rows() == 2


TRANSFORMS = [
    ("truncate[10]", "long", -20, [-20, -11], [-21, -10]),
    (
        "truncate[2]",
        "string",
        "ab",
        ["ab", "ab\U0010ffff"],
        ["aa", "ad"],
    ),  # the bound is "ac", which no such value reaches
    ("truncate[2]", "string", "a", ["a"], ["ab", "b"]),
    ("day", "timestamp", 2, [172_800_000_000, 259_199_999_999], [172_799_999_999, 259_200_000_000]),
    ("hour", "timestamptz", 1, [3_600_000_000, 7_199_999_999], [3_599_999_999, 7_200_000_000]),
    ("month", "date", 1, [31, 58], [30, 59]),
    ("year", "date", 54, [19723, 20088], [19722, 20089]),
    ("day", "date", -1, [-1], [-2, 0]),
]


@pytest.mark.parametrize(("transform", "kind", "value", "inside", "outside"), TRANSFORMS)
def test_a_transformed_partition_value_is_a_range_of_its_column(
    transform: str, kind: str, value: Any, inside: list[Any], outside: list[Any]
) -> None:
    spec = {"spec-id": 0, "fields": [{"source-id": 1, "field-id": 1000, "name": "p", "transform": transform}]}
    stored = {
        "long": pa.int64(),
        "string": pa.string(),
        "timestamp": pa.timestamp("us"),
        "timestamptz": pa.timestamp("us", "UTC"),
        "date": pa.date32(),
    }[kind]

    def array(values: list[Any]) -> pa.Array:
        if pa.types.is_date(stored):
            return pa.array(values, pa.int32()).cast(stored)
        return (
            pa.array(values, pa.int64()).cast(stored)
            if pa.types.is_timestamp(stored)
            else pa.array(values, stored)
        )

    writer = IcebergWriter([(1, "v", kind)], [spec])
    body = parquet_bytes({"v": (1, array(inside))})
    avro = "string" if kind == "string" else "int" if kind != "long" else "long"
    writer.manifest(
        [writer.file("data/f.parquet", body, len(inside), partition={"p": value})],
        partition=[(1000, "p", avro)],
    )
    table = accel.tables.iceberg(writer.save())
    for values, is_read in ((inside, True), (outside, False)):
        for scalar in array(values):
            recording = RecordingStore(writer.store)
            where = accel.col("v") == scalar.as_py()
            assert accel.scan(table, where, store=recording, cache=accel.Cache()).count_rows() == int(is_read)
            assert any(call.path == "t/data/f.parquet" for call in recording.calls) == is_read, scalar


def test_buckets_rule_files_out_and_never_the_right_one() -> None:
    """The buckets are those of the specification: 34 of int is 2017239379, iceberg of text 1210000089."""
    from accel.tables.formats.iceberg.transforms import bucket_of

    assert bucket_of([34], pa.int32(), 1 << 30).tolist() == [2017239379 % (1 << 30)]
    assert bucket_of([34], pa.int64(), 1 << 30).tolist() == [2017239379 % (1 << 30)]
    assert bucket_of([1420], pa.decimal128(9, 2), 1 << 31).tolist() == [(-500754589) & 0x7FFFFFFF]
    assert bucket_of([17486], pa.date32(), 1 << 31).tolist() == [(-653330422) & 0x7FFFFFFF]
    assert bucket_of([b"iceberg"], pa.string(), 1 << 31).tolist() == [1210000089]
    assert bucket_of([b"\x00\x01\x02\x03"], pa.binary(), 1 << 31).tolist() == [(-188683207) & 0x7FFFFFFF]
    spec = {
        "spec-id": 0,
        "fields": [{"source-id": 1, "field-id": 1000, "name": "b", "transform": "bucket[8]"}],
    }
    writer = IcebergWriter(COLUMNS, [spec])
    by_bucket: dict[int, list[int]] = {}
    for number in range(100):
        by_bucket.setdefault(int(bucket_of([number], pa.int64(), 8)[0]), []).append(number)
    writer.manifest(
        [
            writer.file(f"data/{bucket}.parquet", data(ids), len(ids), partition={"b": bucket})
            for bucket, ids in by_bucket.items()
        ],
        partition=[(1000, "b", "int")],
    )
    table = accel.tables.iceberg(writer.save())
    for where, files, rows in (
        ("id = 41", 1, 1),
        ("id IN (41, 42)", 2, 2),
        ("NOT (id = 41)", 8, 99),
        ("id = 41 OR id > 97", 8, 3),
        ("id <> 41 AND id < 3", 8, 3),
        ("NOT (id <> 41)", 1, 1),
    ):
        recording = RecordingStore(writer.store)
        scan = accel.scan(table, where, store=recording, cache=accel.Cache())
        assert scan.count_rows() == rows, where
        assert len({call.path for call in recording.calls if "/data/" in call.path}) <= files, where


def test_a_snapshot_is_named_in_one_way_and_has_to_be_there() -> None:
    writer = IcebergWriter(COLUMNS)
    writer.manifest([writer.file("data/a.parquet", data([1]), 1)])
    url = writer.save()
    assert (
        accel.scan(
            accel.tables.iceberg(url, timestamp="1970-01-01T00:00:01"), store=writer.store
        ).count_rows()
        == 1
    )
    with pytest.raises(ValueError, match="snapshot_id and tag"):
        accel.tables.iceberg(url, snapshot_id=7, tag="x")
    for given, text in (
        ({"snapshot_id": 8}, "no snapshot 8"),
        ({"timestamp": "1970-01-01T00:00:00"}, "no snapshot at"),
        ({"branch": "x"}, "no branch 'x'"),
        ({"tag": "main"}, "no tag 'main', but a branch"),
    ):
        with pytest.raises(accel.errors.TableFormatError, match=text):
            accel.scan(accel.tables.iceberg(url, **given), store=writer.store).to_table()


def test_a_table_without_a_snapshot_has_its_columns_and_no_rows() -> None:
    writer = IcebergWriter(COLUMNS, changes={"current-snapshot-id": -1, "snapshots": [], "snapshot-log": []})
    scan = accel.scan(accel.tables.iceberg(writer.save()), "id = 1", store=writer.store)
    assert scan.to_table().schema.names == ["id", "part"] and scan.count_rows() == 0


KEY_BOUNDS = [
    # keys, bounds of the keys, bounds of the file, nulls of the keys and of the file, whether the file is read
    ([2], (2, 2), (0, 3), 0, 0, True),
    ([20], (20, 20), (0, 3), 0, 0, False),
    ([-5], (-5, -5), (0, 3), None, 0, False),
    ([None, 20], (20, 20), (0, 3), 1, 0, False),
    ([None, 20], (20, 20), (0, 3), 1, 1, True),
    ([None, 20], (20, 20), (0, 3), None, None, True),
    ([2], None, (0, 3), 0, 0, True),
    ([2], (2, 2), None, 0, 0, True),
]


@pytest.mark.parametrize(("keys", "bounds", "of_file", "nulls", "nulls_of_file", "is_read"), KEY_BOUNDS)
def test_equality_deletes_are_not_read_for_files_that_cannot_have_their_keys(
    keys: list[Any], bounds: Any, of_file: Any, nulls: int | None, nulls_of_file: int | None, is_read: bool
) -> None:
    def facts(bounds: Any, nulls: int | None) -> dict[str, Any]:
        found: dict[str, Any] = {} if nulls is None else {"null_value_counts": {1: nulls}}
        if bounds is not None:
            found["lower_bounds"] = {1: struct.pack("<q", bounds[0])}
            found["upper_bounds"] = {1: struct.pack("<q", bounds[1])}
        return found

    values = [0, 1, 2, 3] if nulls_of_file == 0 else [0, 1, 2, 3, None]
    writer = IcebergWriter([(1, "id", "long")])
    writer.manifest(
        [
            writer.file(
                "data/a.parquet",
                parquet_bytes({"id": (1, pa.array(values, pa.int64()))}),
                len(values),
                **facts(of_file, nulls_of_file),
            )
        ],
        sequence=1,
    )
    body = parquet_bytes({"id": (1, pa.array(keys, pa.int64()))})
    deletes = writer.file(
        "data/e.parquet", body, len(keys), content=2, equality_ids=[1], **facts(bounds, nulls)
    )
    writer.manifest([deletes], content=1, sequence=2)
    recording = RecordingStore(writer.store)
    found = (
        accel.scan(accel.tables.iceberg(writer.save()), store=recording).to_table().column("id").to_pylist()
    )
    assert found == [value for value in values if value not in keys]
    assert any(call.path == "t/data/e.parquet" for call in recording.calls) == is_read


def test_timestamps_of_old_writers_are_instants() -> None:
    """Spark's files that were added to a table have INT96, which has no zone, and no field ids."""
    import datetime

    at = datetime.datetime(2024, 3, 1, 12, tzinfo=datetime.UTC)
    body = parquet_bytes(
        {"at": (None, pa.array([at, None], pa.timestamp("us", "UTC")))}, use_deprecated_int96_timestamps=True
    )
    names = '[{"field-id": 1, "names": ["at"]}]'
    writer = IcebergWriter([(1, "at", "timestamptz")], properties={"schema.name-mapping.default": names})
    writer.manifest([writer.file("data/a.parquet", body, 2)])
    table = accel.tables.iceberg(writer.save())
    assert accel.scan(table, store=writer.store).to_table()["at"].to_pylist() == [at, None]
    assert accel.scan(table, accel.col("at") == at, store=writer.store).count_rows() == 1


def test_a_variant_is_given_as_the_bytes_of_its_struct_and_refused_where_it_is_shredded() -> None:
    values = [{"metadata": b"\x01\x00\x00", "value": b"\x0c\x07"}, None]
    plain = pa.struct([("metadata", pa.binary()), ("value", pa.binary())])
    shredded = pa.struct([*plain, pa.field("typed_value", pa.int64())])

    def of(kind: pa.DataType) -> IcebergWriter:
        writer = IcebergWriter([(1, "id", "long"), (2, "v", "variant")], version=3)
        ids = pa.array([1, 2], pa.int64())
        body = parquet_bytes({"id": (1, ids), "old": (2, pa.array(values, kind))})
        bounds = {2: b"\x01\x00\x00\x0c\x07"}
        writer.manifest([writer.file("data/a.parquet", body, 2, lower_bounds=bounds, upper_bounds=bounds)])
        return writer

    writer = of(plain)
    table = accel.tables.iceberg(writer.save())
    assert accel.scan(table, store=writer.store).to_table()["v"].to_pylist() == values
    assert accel.scan(table, "v IS NULL", store=writer.store).to_table()["id"].to_pylist() == [2]
    writer = of(shredded)
    table = accel.tables.iceberg(writer.save())
    assert accel.scan(table, store=writer.store, columns=["id"]).to_table().num_rows == 2
    with pytest.raises(accel.AccelError, match="shredded"):
        accel.scan(table, store=writer.store).to_table()


LINEAGE = ["_row_id", "id", "_last_updated_sequence_number"]


def with_lineage(version: int = 3, moved: bool = False) -> IcebergWriter:
    """Files that inherit the ids of their rows, one that has its own, and one that is gone."""
    writer = IcebergWriter(COLUMNS, version=version)
    own = {}
    if moved:
        own["_row_id"] = 2147483540, pa.array([7, None], pa.int64())
        own["_last_updated_sequence_number"] = 2147483539, pa.array([None, 2], pa.int64())
    body = parquet_bytes({"id": (1, pa.array([20, 21], pa.int64())), **own})
    two = {2147483539: (2).to_bytes(8, "little")}
    bounds = {"lower_bounds": two, "upper_bounds": two} if moved else {}
    writer.manifest(
        [
            writer.file("data/a.parquet", data([0, 1, 2]), 3),
            writer.file("data/gone.parquet", data([9]), 1, status=2),
            writer.file("data/b.parquet", data([10, 11]), 2, status=0, sequence=4, first_row_id=500),
            writer.file("data/c.parquet", body, 2, **bounds),
        ],
        sequence=6,
        first_row_id=1000,
    )
    return writer


def test_row_lineage_is_given_where_it_is_named() -> None:
    writer = with_lineage()
    table, store = accel.tables.iceberg(writer.save()), writer.store
    assert accel.scan(table, store=store).to_table().schema.names == ["id", "part"]
    found = accel.scan(table, store=store, columns=LINEAGE).to_table()
    assert found.schema.names == LINEAGE
    ids = [1000, 1001, 1002, 500, 501, 1003, 1004]
    assert found.to_pydict() == {
        "_row_id": ids,
        "id": [0, 1, 2, 10, 11, 20, 21],
        "_last_updated_sequence_number": [6, 6, 6, 4, 4, 6, 6],
    }
    some = accel.scan(table, "id >= 2 AND id < 21", store=store, columns=["_row_id"])
    assert some.to_table()["_row_id"].to_pylist() == [1002, 500, 501, 1003]
    named = "_last_updated_sequence_number"
    changed = accel.scan(table, f"{named} > 4 AND id > 1", store=store, columns=["id", named])
    assert changed.to_table()["id"].to_pylist() == [2, 20, 21]
    plan = accel.plan(table, store=store, columns=LINEAGE)
    assert accel.scan(accel.Plan.from_arrow(plan.to_arrow()), store=store).to_table().equals(found)


def test_rows_that_were_moved_keep_their_lineage_and_others_inherit_it() -> None:
    writer = with_lineage(moved=True)
    table, store = accel.tables.iceberg(writer.save()), writer.store
    assert accel.scan(table, store=store).to_table().schema.names == ["id", "part"]
    cache = accel.Cache()

    def read(where: str | None = None, columns: Sequence[str] = LINEAGE) -> list[tuple[Any, ...]]:
        found = [
            accel.scan(table, where, store=store, columns=columns, cache=cache),
            accel.scan(table, where, store=store, columns=columns, cache=cache),
            accel.scan(accel.plan(table, where, store=store, columns=columns), store=store),
            accel.scan(
                accel.Plan.from_arrow(accel.plan(table, where, store=store, columns=columns).to_arrow()),
                store=store,
            ),
        ]
        rows = [list(zip(*scan.to_table().to_pydict().values(), strict=True)) for scan in found]
        assert rows == [rows[0]] * 4
        return rows[0]

    assert read() == [
        *((1000, 0, 6), (1001, 1, 6), (1002, 2, 6)),
        *((500, 10, 4), (501, 11, 4)),
        *((7, 20, 6), (1004, 21, 2)),
    ]
    assert read("id >= 20") == [(7, 20, 6), (1004, 21, 2)]
    assert read("id >= 20", ["_row_id"]) == [(7,), (1004,)]
    named = "_last_updated_sequence_number"
    assert read(f"{named} = 6 AND id > 1") == [(1002, 2, 6), (7, 20, 6)]
    assert read(f"{named} = 2") == [(1004, 21, 2)]
    assert read(f"{named} < 6", ["id", named]) == [(10, 4), (11, 4), (21, 2)]
    assert read(f"{named} IS NULL", ["id", named]) == []
    scan = accel.scan(table, store=store, columns=[named])
    totals = scan.aggregate([(named, "min"), (named, "max"), (named, "count")]).to_pydict()
    assert list(totals.values()) == [[2], [6], [7]]
    ordered = accel.scan(table, store=store, columns=["id", named], order_by=f"{named}, id desc", limit=3)
    assert ordered.to_table().to_pydict() == {"id": [21, 11, 10], named: [2, 4, 4]}


def test_row_lineage_that_is_not_known_is_refused_by_name() -> None:
    writer = with_lineage(version=2)
    table = accel.tables.iceberg(writer.save())
    with pytest.raises(accel.errors.TableFormatError, match="format version 2"):
        accel.scan(table, store=writer.store, columns=LINEAGE).to_table()
    assert accel.scan(table, store=writer.store).count_rows() == 7
    old = IcebergWriter(COLUMNS, version=3)
    old.manifest([old.file("data/a.parquet", data([1]), 1)])
    table = accel.tables.iceberg(old.save())
    number = accel.scan(table, store=old.store, columns=["_last_updated_sequence_number"]).to_table()
    assert number.to_pydict() == {"_last_updated_sequence_number": [None]}
    with pytest.raises(accel.errors.TableFormatError, match="no numbers"):
        accel.scan(table, store=old.store, columns=["_row_id"]).to_table()
    with pytest.raises(ValueError, match="row_number"):
        accel.scan(table, store=old.store, columns=["_row_id"], row_number="n")


def below(number: int, name: str, kind: Any, **facts: Any) -> dict[str, Any]:
    return {"id": number, "name": name, "required": False, "type": kind, **facts}


NESTED = {
    "type": "struct",
    "fields": [
        below(3, "a", "long"),
        below(4, "b", "long", **{"initial-default": 7}),
        below(
            5,
            "inner",
            {
                "type": "struct",
                "fields": [below(6, "x", "long"), below(7, "t", "string", **{"initial-default": "é"})],
            },
        ),
    ],
}
LISTED = {
    "type": "list",
    "element-id": 9,
    "element-required": False,
    "element": NESTED
    | {"fields": [below(10, "c", "long"), below(11, "d", "date", **{"initial-default": "2024-02-29"})]},
}
MAPPED = {
    "type": "map",
    "key-id": 13,
    "key": "string",
    "value-id": 14,
    "value-required": False,
    "value": {
        "type": "struct",
        "fields": [below(15, "e", "long"), below(16, "f", "double", **{"initial-default": 0.5})],
    },
}


def with_nested(kind: Any) -> pa.DataType:
    """Return a type of Arrow with field ids, of which structs are dicts."""
    if isinstance(kind, dict):
        fields = [(name, number, with_nested(one)) for name, (number, one) in kind.items()]
        return pa.struct(
            [pa.field(name, one, metadata={"PARQUET:field_id": str(number)}) for name, number, one in fields]
        )
    return kind


def nested_defaults() -> IcebergWriter:
    """Files of before and after fields were added to structs: of columns, in structs, lists and maps."""
    columns = [(1, "id", "long"), (2, "s", NESTED), (8, "l", LISTED), (12, "m", MAPPED)]
    writer = IcebergWriter(columns, version=3)
    long = pa.int64()
    old = {
        "id": (1, pa.array([1, 2, 3], long)),
        "s": (
            2,
            pa.array(
                [{"a": 1, "inner": {"x": 1}}, None, {"a": None, "inner": None}],
                with_nested({"a": (3, long), "inner": (5, {"x": (6, long)})}),
            ),
        ),
        "l": (8, pa.array([[{"c": 1}, None], [], None], pa.list_(with_nested({"c": (10, long)})))),
        "m": (
            12,
            pa.array(
                [[("k", {"e": 1}), ("n", None)], [], None],
                pa.map_(pa.string(), with_nested({"e": (15, long)})),
            ),
        ),
    }
    new = {
        "id": (1, pa.array([4, 5], long)),
        "s": (
            2,
            pa.array(
                [
                    {"a": 4, "b": None, "inner": {"x": 4, "t": None}},
                    {"a": 5, "b": 5, "inner": {"x": 5, "t": "t"}},
                ],
                with_nested(
                    {"a": (3, long), "b": (4, long), "inner": (5, {"x": (6, long), "t": (7, pa.string())})}
                ),
            ),
        ),
    }
    before = {"id": (1, pa.array([6], long))}
    files = {"old": (old, 3), "new": (new, 2), "before": (before, 1)}
    writer.manifest(
        [writer.file(f"data/{name}.parquet", parquet_bytes(one), rows) for name, (one, rows) in files.items()]
    )
    return writer


def test_defaults_below_structs_lists_and_maps_stand_for_fields_that_files_lack() -> None:
    writer = nested_defaults()
    table, store = accel.tables.iceberg(writer.save()), writer.store
    day = datetime.date(2024, 2, 29)
    rows = [
        {
            "id": 1,
            "s": {"a": 1, "b": 7, "inner": {"x": 1, "t": "é"}},
            "l": [{"c": 1, "d": day}, None],
            "m": [("k", {"e": 1, "f": 0.5}), ("n", None)],
        },
        {"id": 2, "s": None, "l": [], "m": []},
        {"id": 3, "s": {"a": None, "b": 7, "inner": None}, "l": None, "m": None},
        {"id": 4, "s": {"a": 4, "b": None, "inner": {"x": 4, "t": None}}, "l": None, "m": None},
        {"id": 5, "s": {"a": 5, "b": 5, "inner": {"x": 5, "t": "t"}}, "l": None, "m": None},
        {"id": 6, "s": None, "l": None, "m": None},
    ]
    assert accel.scan(table, store=store).to_table().to_pylist() == rows
    assert accel.scan(table, store=store, columns=["s.b"]).to_table().to_pylist() == [
        {"s": None if row["s"] is None else {"b": row["s"]["b"]}} for row in rows
    ]

    def ids(where: str, columns: Sequence[str] = ("id",)) -> list[int]:
        plan = accel.plan(table, where, store=store, columns=list(columns))
        found = [
            accel.scan(table, where, store=store, columns=list(columns)),
            accel.scan(accel.Plan.from_arrow(plan.to_arrow()), store=store),
        ]
        tables = [scan.to_table() for scan in found]
        assert tables[0].equals(tables[1])
        assert accel.scan(table, where, store=store).count_rows() == tables[0].num_rows
        return tables[0]["id"].to_pylist()

    assert ids("s.b = 7") == [1, 3]
    assert ids("s.b <> 7") == [5]
    assert ids("s.b IS NULL") == [2, 4, 6]
    assert ids("NOT s.b > 5") == [5]
    assert ids("s.b = 7 AND s.a = 1", ["id", "s"]) == [1]
    assert ids("s.b > s.a") == [1]
    assert ids("s.inner.t = 'é'") == [1]
    assert ids("s.inner.t IS NOT NULL OR id = 6", ["id", "s.inner"]) == [1, 5, 6]
    scan = accel.scan(table, store=store)
    totals = scan.aggregate(
        [("s.b", "count"), ("s.b", "sum"), ("s.inner.t", "max"), ("s.a", "sum")]
    ).to_pydict()
    assert list(totals.values()) == [[3], [19], ["é"], [10]]
    assert set(accel.distinct(table, "s.b", store=store).to_pylist()) == {7, 5, None}
    for order, expected in (("s.b", [5, 7, 7]), ("s.b desc", [7, 7, 5])):
        ordered = accel.scan(table, store=store, columns=["s.b"], order_by=order, limit=3).to_table()
        assert [row["s"]["b"] for row in ordered.to_pylist()] == expected
    joined = accel.scan(table, store=store, columns=["s"], schema="union", where="s.inner.x = 1").to_table()
    assert joined.to_pylist() == [{"s": rows[0]["s"]}]


def test_equality_deletes_find_rows_by_a_default_below_a_struct() -> None:
    writer = nested_defaults()
    kind = with_nested({"b": (4, pa.int64())})
    body = parquet_bytes({"s": (2, pa.array([{"b": 7}], kind))})
    delete = writer.file("data/delete.parquet", body, 1, content=2, equality_ids=[4], sequence=5)
    writer.manifest([delete], content=1, sequence=5)
    assert ids_of(writer) == [2, 4, 5, 6]


def test_an_index_of_a_field_with_a_default_loses_no_row(tmp_path: pathlib.Path) -> None:
    writer = nested_defaults()
    table, store = accel.tables.iceberg(writer.save()), writer.store
    index = str(tmp_path / "index")
    with pytest.warns(UserWarning, match="they lack the column"):
        accel.build_index(table, to=index, store=store, indexes={"s.b": "keys", "id": "keys"})
    for where, ids in (("s.b = 7", [1, 3]), ("s.b = 5", [5]), ("id = 3 AND s.b = 7", [3]), ("s.b = 8", [])):
        scan = accel.scan(table, where, store=store, index=index)
        assert scan.to_table()["id"].to_pylist() == ids
