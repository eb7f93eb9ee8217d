"""`case_sensitive=False`: what is found, how it is spelled, and what is refused."""

from __future__ import annotations

from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import accel
from accel.errors import ColumnNotFoundError, PredicateError, SchemaMismatchError
from accel.testing import DictStore, TableFile, TableSource, table, write_file

FIRST = pa.table({
    "ID": [1, 2, 3],
    "Name": ["x", "y", "z"],
    "S": [{"Aa": n, "b": [{"Qq": n}]} for n in (1, 2, 3)],
})  # fmt: skip
OTHER = pa.table({"name": ["u", "v"], "s": [{"aA": n, "B": [{"qQ": n}]} for n in (3, 4)], "id": [3, 4]})
BOTH = table(id=[1], ID=[2], z=[3])
FILES = {
    "d/a.parquet": write_file(FIRST),
    "d/b.parquet": write_file(OTHER),
    "both.parquet": write_file(BOTH),
    "e/a.parquet": write_file(table(z=[3], id=[7])),
    "e/b.parquet": write_file(BOTH),
}
ALIKE = "column 'Id' is ambiguous: 'id' and 'ID' differ in case alone"


def ask(source: Any, where: Any = None, *, files: Any = None, **keywords: Any) -> accel.Scan:
    given: dict[str, Any] = {"store": DictStore(files or FILES), "cache": None, "case_sensitive": False}
    return accel.scan(source, where, **(given | keywords))


def rows(source: Any, where: Any = None, **keywords: Any) -> list[dict[str, Any]]:
    return ask(source, where, **keywords).to_table().to_pylist()


@pytest.mark.parametrize(
    "where",
    [
        "iD >= 3 AND s.AA > 0",
        '"id" >= 3',
        "S.aa >= 3",
        [("Id", ">=", 3)],
        [(("s", "aa"), ">=", 3)],
        accel.col("iD") >= 3,
        accel.col("s")["AA"] >= 3,
        pc.field("iD") >= 3,
        pc.field("id").isin([3, 4, 5]),
        "id IN (3, 4) AND NOT NAME LIKE 'q%' AND s IS NOT NULL",
        "id > 2 AND id >= s.aa",
    ],
)
def test_names_in_a_predicate(where: Any) -> None:
    assert rows("d/", where, columns=["id"]) == [{"ID": 3}, {"ID": 3}, {"ID": 4}]


def test_the_first_file_says_how_columns_are_spelled() -> None:
    found = ask("d/", "id = 3", columns=["NAME", "s.AA", "iD"])
    assert found.schema.names == ["Name", "S", "ID"]
    assert found.to_table().to_pylist() == [
        {"Name": "z", "S": {"Aa": 3}, "ID": 3},
        {"Name": "u", "S": {"Aa": 3}, "ID": 3},
    ]
    last = {"ID": 4, "Name": "v", "S": {"Aa": 4, "b": [{"Qq": 4}]}}
    assert rows("d/", "id = 4") == [last]
    assert rows(["d/b.parquet", "d/a.parquet"], "id = 1") == [
        {"name": "x", "s": {"aA": 1, "B": [{"qQ": 1}]}, "id": 1}
    ]
    schema = pa.schema([("iD", pa.int64()), ("s", pa.struct([("AA", pa.int64())]))])
    assert rows("d/", "id = 4", schema=schema) == [{"iD": 4, "s": {"AA": 4}}]


def test_case_counts_where_nothing_is_said() -> None:
    assert rows("d/", "ID > 2", case_sensitive=True, columns=["ID"]) == [{"ID": 3}]
    with pytest.raises(ColumnNotFoundError, match="did you mean 'ID'"):
        rows("d/", "id > 2", case_sensitive=True)
    with pytest.raises(TypeError, match="case_sensitive is True or False, not None"):
        ask("d/", case_sensitive=None)


def test_the_union_of_schemas_has_a_column_once() -> None:
    files = {
        "u/a.parquet": write_file(pa.table({"a": pa.array([1], pa.int32()), "S": [{"X": 1}]})),
        "u/b.parquet": write_file(pa.table({"New": ["n"], "A": [2], "s": [{"x": 2, "y": 3}]})),
        "u/c.parquet": write_file(pa.table({"NEW": ["m"], "s": [{"Y": 4}]})),
    }
    found = ask("u/", "new IS NOT NULL OR a = 1", files=files, schema="union").to_table()
    assert found.schema == pa.schema([
        ("a", pa.int64()),
        ("S", pa.struct([("X", pa.int64()), ("y", pa.int64())])),
        ("New", pa.string()),
    ])  # fmt: skip
    assert found.to_pylist() == [
        {"a": 1, "S": {"X": 1, "y": None}, "New": None},
        {"a": 2, "S": {"X": 2, "y": 3}, "New": "n"},
        {"a": None, "S": {"X": None, "y": 4}, "New": "m"},
    ]
    with pytest.raises(SchemaMismatchError, match=r"e/b.parquet: the columns 'id' and 'ID' differ in case"):
        rows("e/", schema="union")


def test_other_verbs() -> None:
    scan = ask("d/")
    assert scan.distinct("nAME").to_pylist() == ["u", "v", "x", "y", "z"]
    assert scan.distinct("s.AA").to_pylist() == [1, 2, 3, 4]
    asked = [("iD", "max"), ("lower(NAME)", "min"), ([], "count_all")]
    assert scan.aggregate(asked).to_pylist() == [{"iD_max": 4, "lower(NAME)_min": "u", "count_all": 5}]
    assert scan.count_rows() == 5
    top = {"order_by": "ID desc, NAME", "limit": 2}
    assert rows("d/", columns=["iD", "name"], **top) == [{"ID": 4, "Name": "v"}, {"ID": 3, "Name": "u"}]
    assert rows("d/", columns=["Name"], **top) == [{"Name": "v"}, {"Name": "u"}]
    order = ask("d/", columns=["Name"], **(top | {"order_by": "id desc"})).explain().order
    assert order is not None and [one.bound for one in order.first] == ["id <= 4"]
    given: dict[str, Any] = {"store": DictStore(FILES), "case_sensitive": False}
    assert accel.rows("d/", 2, 2, columns=["id"], **given).to_pylist() == [{"ID": 3}, {"ID": 3}]
    assert accel.distinct("d/", "ID", "id > 2", **given).to_pylist() == [3, 4]
    assert "where    ID = 4" in str(ask("d/", "id=4").explain())


def test_a_plan_and_the_batches_of_map_in_arrow() -> None:
    store = DictStore(FILES)
    planned = accel.plan("d/", "id >= 3", columns=["NAME"], store=store, case_sensitive=False)
    expected = [{"Name": "z"}, {"Name": "u"}, {"Name": "v"}]
    assert accel.scan(planned, store=store).to_table().to_pylist() == expected
    assert (
        accel.scan(accel.Plan.from_arrow(planned.to_arrow()), store=store).to_table().to_pylist() == expected
    )
    assert accel.scan(planned, store=store, case_sensitive=False).distinct("NAME").to_pylist() == [
        "u",
        "v",
        "z",
    ]
    files = {"a.parquet": write_file(table(A=[1], b=[2])), "b.parquet": write_file(table(a=[3], B=[4]))}
    paths = [pa.record_batch({"path": [name]}) for name in files]
    scan = partial(accel.scan, store=DictStore(files), case_sensitive=False)
    assert [batch.to_pylist() for batch in scan(iter(paths))] == [[{"A": 1, "b": 2}], [{"A": 3, "b": 4}]]
    swapped = {**files, "b.parquet": write_file(table(B=[4], a=[3]))}
    scan = partial(accel.scan, store=DictStore(swapped), case_sensitive=False)
    with pytest.raises(SchemaMismatchError, match="its columns differ in name or order"):
        list(scan(iter(paths)))


def test_a_data_set_for_engines() -> None:
    found = accel.dataset("d/", store=DictStore(FILES), case_sensitive=False)
    assert found.to_table(columns=["ID"], filter=pc.field("ID") > 2)["ID"].to_pylist() == [3, 3, 4]


# -- two columns of one name -------------------------------------------------------------------------


@pytest.mark.parametrize("source", ["both.parquet", "e/"])
@pytest.mark.parametrize("keywords", [{"where": "Id = 1", "columns": ["z"]}, {"columns": ["Id"]}])
def test_a_name_that_means_two_columns(source: str, keywords: Any) -> None:
    with pytest.raises((PredicateError, SchemaMismatchError), match=r"'id' and 'ID'"):
        rows(source, **keywords)


def test_which_columns_a_name_means_is_said() -> None:
    with pytest.raises(PredicateError, match=ALIKE):
        rows("both.parquet", "Id = 1")
    with pytest.raises(SchemaMismatchError, match=ALIKE):
        rows("both.parquet", columns=["Id"])
    with pytest.raises(SchemaMismatchError, match=ALIKE):
        ask("both.parquet").distinct("Id")
    with pytest.raises(SchemaMismatchError, match=ALIKE):
        rows("both.parquet", order_by="Id", limit=1, columns=["z"])
    with pytest.raises(
        SchemaMismatchError, match=r"both.parquet: the columns 'id' and 'ID' differ in case alone"
    ):
        rows("both.parquet")
    with pytest.raises(
        SchemaMismatchError, match=r"e/b.parquet: the columns 'id' and 'ID' of the file are both 'id'"
    ):
        rows("e/", "id > 0")
    # Also where a name is spelled exactly.
    with pytest.raises(PredicateError, match="'id' is ambiguous"):
        rows("both.parquet", "id = 1")


@pytest.mark.parametrize("source", ["both.parquet", "e/"])
def test_what_others_are_called_does_not_matter(source: str) -> None:
    count = 1 if source == "both.parquet" else 2
    assert rows(source, "Z = 3", columns=["z"]) == [{"z": 3}] * count
    assert ask(source).count_rows() == count
    assert ask(source).distinct("Z").to_pylist() == [3]


def test_fields_of_a_struct_in_two_cases() -> None:
    kind = pa.struct([("x", pa.int64()), ("X", pa.int64()), ("y", pa.int64())])
    both = pa.table({"s": pa.array([{"x": 1, "X": 2, "y": 3}], kind)})
    single = pa.table({"s": pa.array([{"x": 5, "y": 6}])})
    files = {
        "s.parquet": write_file(both),
        "f/a.parquet": write_file(single),
        "f/b.parquet": write_file(both),
    }
    assert rows("s.parquet", "S.Y = 3", columns=["S.Y"], files=files) == [{"s": {"y": 3}}]
    with pytest.raises(
        PredicateError, match="column 's.x' is ambiguous: 's.x' and 's.X' differ in case alone"
    ):
        rows("s.parquet", "s.x = 1", files=files)
    with pytest.raises(SchemaMismatchError, match="the columns 's.x' and 's.X' differ in case alone"):
        rows("s.parquet", files=files)
    with pytest.raises(
        SchemaMismatchError, match="f/b.parquet: the columns 'x' and 'X' of the file are both 'x'"
    ):
        rows("f/", files=files)


def test_a_condition_that_pyarrow_evaluates_itself() -> None:
    files = {"a.parquet": write_file(table(Ab=[1, 2], c=[1, 3]))}
    condition = pc.field("Ab") == pc.field("c")
    assert rows("a.parquet", condition, files=files) == [{"Ab": 1, "c": 1}]
    with pytest.raises(PredicateError, match=r"names AB, c in another case than the files \(write Ab, c\)"):
        rows("a.parquet", pc.field("AB") == pc.field("c"), files=files)


# -- columns that are not in the files ---------------------------------------------------------------


def day(name: str, values: list[int], **more: list[int]) -> bytes:
    return write_file(pa.table({name: values, **more}))


def test_partition_keys() -> None:
    files = {"p/Day=1/a.parquet": day("x", [1, 2]), "p/day=2/b.parquet": day("X", [3])}
    assert rows("p/", "DAY = 2", files=files) == [{"x": 3, "Day": 2}]
    one = ask("p/", "DAY = 2", files=files)
    assert one.to_table().num_rows == 1
    assert (one.metrics.files.total, one.metrics.files.kept) == (2, 1)
    assert rows("p/", columns=["dAY"], files=files) == [{"Day": 1}, {"Day": 1}, {"Day": 2}]
    assert ask("p/", files=files).distinct("DAY").to_pylist() == [1, 2]
    with pytest.raises(SchemaMismatchError, match="partition keys day here, but Day"):
        rows("p/", files=files, case_sensitive=True)
    typed = pa.schema([("dAy", pa.int8())])
    assert (
        ask("p/", "day = 2", files=files, partitioning=typed).to_table().schema.field("dAy").type == pa.int8()
    )
    whole = pa.schema([("X", pa.int64()), ("DAY", pa.string())])
    assert rows("p/", "day = '2'", files=files, schema=whole) == [{"X": 3, "DAY": "2"}]


def test_a_column_of_the_files_wins_over_a_key_in_another_case() -> None:
    files = {"p/day=1/a.parquet": day("Day", [7]), "p/day=2/b.parquet": day("DAY", [8])}
    assert rows("p/", files=files) == [{"Day": 7}, {"Day": 8}]
    assert rows("p/", "day = 8", files=files) == [{"Day": 8}]
    # A key that only later files have as a column has the value of the folder.
    files = {"p/day=1/a.parquet": day("x", [7]), "p/day=2/b.parquet": day("x", [8], DAY=[9])}
    assert rows("p/", "DAY > 0", files=files) == [{"x": 7, "day": 1}, {"x": 8, "day": 2}]


def test_columns_that_the_scan_adds() -> None:
    added = {"file_path": "file", "row_number": "row"}
    found = rows("d/", "FILE = 'd/b.parquet' AND id = 4", columns=["File", "ROW", "ID"], **added)
    assert found == [{"file": "d/b.parquet", "row": 1, "ID": 4}]
    with pytest.raises(SchemaMismatchError, match="file_path adds a column 'name'"):
        rows("d/", file_path="name")
    with pytest.raises(PredicateError, match="is the number of the row"):
        rows("d/", "ROW = 1", **added)


def test_a_table_that_says_its_schema() -> None:
    schema = pa.schema([("Id", pa.int64()), ("name", pa.string())])
    files = [
        TableFile(path=path, size=len(FILES[path]), num_rows=count, lower={"Id": low}, upper={"Id": high})
        for path, count, low, high in (("d/a.parquet", 3, 1, 3), ("d/b.parquet", 2, 3, 4))
    ]
    source = TableSource(schema, files)
    scan = ask(source, "ID = 4", columns=["NAME"])
    assert scan.to_table().to_pylist() == [{"name": "v"}]
    assert (scan.metrics.files.total, scan.metrics.files.kept) == (2, 1)
    assert ask(source, "ID > 2").distinct("NAME").to_pylist() == ["u", "v", "z"]
