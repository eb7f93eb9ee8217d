"""Extension types around dictionaries, structs and lists, at any depth, against pyarrow's read of the whole
file.

Read without rows, or batch by batch, those around a dictionary end the process in pyarrow; of some of the
leaves it makes none of the others.
"""

from __future__ import annotations

import pathlib

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import accel
from accel.testing import write_file

ROWS = 600


def around(storage: pa.Array) -> pa.Array:
    return pa.ExtensionArray.from_storage(pa.opaque(storage.type, "kind", "vendor"), storage)


def lists(values: pa.Array) -> pa.Array:
    """Each row of one value or none, some of them null."""
    offsets = pa.array([None if row % 17 == 5 else row for row in range(ROWS)] + [ROWS], pa.int32())
    return pa.ListArray.from_arrays(offsets, values)


def structs(**fields: pa.Array) -> pa.Array:
    nothing = pa.array([row % 13 == 3 for row in range(ROWS)])
    return pa.StructArray.from_arrays(list(fields.values()), list(fields), mask=nothing)


NUMBERS = pa.array(range(ROWS), pa.int64())
TEXTS = pa.array([None if row % 11 == 0 else f"text {row * 7919}" for row in range(ROWS)])
CODED = pa.array([None if row % 11 == 0 else f"name {row % 7}" for row in range(ROWS)]).dictionary_encode()
COLUMNS = {
    "dictionary": around(CODED),
    "in a struct": structs(d=around(CODED), s=TEXTS, n=NUMBERS),
    "in two structs": structs(i=structs(d=around(CODED), n=NUMBERS), n=NUMBERS),
    "in a list": lists(around(CODED)),
    "in a list of structs": lists(structs(d=around(CODED), n=NUMBERS)),
    "in a view of a list": pa.ListViewArray.from_arrays(
        pa.array(range(ROWS), pa.int32()),
        pa.array([row % 3 != 1 for row in range(ROWS)]).cast(pa.int32()),
        around(structs(d=CODED, n=NUMBERS)),
    ),
    "in lists of two": pa.FixedSizeListArray.from_arrays(
        pa.concat_arrays([around(structs(s=TEXTS, n=NUMBERS))] * 2), 2
    ),
    "in a map": pa.MapArray.from_arrays(list(range(ROWS + 1)), NUMBERS, around(CODED)),
    "a struct": around(structs(s=TEXTS, n=NUMBERS)),
    "a struct in a struct": structs(o=around(structs(s=TEXTS, n=NUMBERS)), n=NUMBERS),
    "a struct of a dictionary": around(structs(d=CODED, n=NUMBERS)),
    "a list of structs": around(lists(structs(s=TEXTS, n=NUMBERS))),
    "a list of a dictionary": around(lists(CODED)),
}
PARTS = {
    "in a struct": [["x.d"], ["x.n"], ["x.s", "x.d"]],
    "in two structs": [["x.i.d"], ["x.i"], ["x.n"]],
    "a struct in a struct": [["x.o"], ["x.n"]],
}
WHERE = {
    None: range(ROWS),
    "key IN (3, 199, 200, 577)": (3, 199, 200, 577),
    "key >= 250 AND key < 260": range(250, 260),
    "key < 0": (),
}


def write(path: pathlib.Path, name: str, **options: object) -> pa.Table:
    table = pa.table({"key": NUMBERS, "x": COLUMNS[name]})
    pq.write_table(
        table,
        path,
        row_group_size=200,
        data_page_size=128,
        write_batch_size=10,
        write_page_index=True,
        **options,
    )
    return pq.read_table(path)


@pytest.mark.parametrize("encoded", [True, False], ids=["encoded", "plain"])
@pytest.mark.parametrize("name", COLUMNS)
def test_they_come_as_pyarrow_reads_them(tmp_path: pathlib.Path, name: str, encoded: bool) -> None:
    path = tmp_path / "dressed.parquet"
    whole = write(path, name, use_dictionary=encoded)
    cache = accel.Cache()
    for where, rows in WHERE.items():
        expected = whole.take(pa.array(rows, pa.int64()))
        for _ in range(2):
            found = accel.scan(str(path), where, cache=cache).to_table()
            found.validate(full=True)
            assert found.schema.equals(whole.schema)
            assert found.to_pylist() == expected.to_pylist()
        first = accel.scan(str(path), where, limit=3).to_table()
        assert first.to_pylist() == expected.slice(0, 3).to_pylist()


@pytest.mark.parametrize("name", PARTS)
def test_parts_of_structs_that_hold_them(tmp_path: pathlib.Path, name: str) -> None:
    path = tmp_path / "dressed.parquet"
    whole = write(path, name)
    for columns in PARTS[name]:
        found = accel.scan(str(path), "key >= 190 AND key < 420", columns=columns).to_table()
        found.validate(full=True)
        for column in columns:
            there, rows = found["x"].combine_chunks(), whole["x"].combine_chunks().slice(190, 230)
            for part in column.split(".")[1:]:
                there, rows = (array.field(array.type.get_field_index(part)) for array in (there, rows))
            assert there.type == rows.type
            assert there.to_pylist() == rows.to_pylist()


@pytest.mark.parametrize("name", COLUMNS)
def test_only_the_pages_of_the_rows_are_read(tmp_path: pathlib.Path, name: str) -> None:
    path = tmp_path / "dressed.parquet"
    write(path, name)
    scan = accel.scan(str(path), "key = 305")
    assert scan.to_table().num_rows == 1
    assert scan.metrics.fallbacks == 0
    assert scan.metrics.warnings == []
    assert 4 * scan.metrics.pages.kept < scan.metrics.pages.total


@pytest.mark.parametrize("name", COLUMNS)
def test_a_file_without_rows(tmp_path: pathlib.Path, name: str) -> None:
    path = tmp_path / "nothing.parquet"
    empty = pa.table({"key": NUMBERS, "x": COLUMNS[name]}).slice(0, 0)
    path.write_bytes(write_file(empty))
    found = accel.scan(str(path)).to_table()
    assert found.num_rows == 0 and found.schema.equals(empty.schema)
    assert list(accel.scan(str(path))) == []


def test_long_texts_that_many_rows_name_take_no_more_than_the_limit(tmp_path: pathlib.Path) -> None:
    """As text they would come to 60 MB, and be decoded by steps; behind a dictionary they are few."""
    path = tmp_path / "long.parquet"
    coded = pa.array([f"{row % 3}" * 100_000 for row in range(ROWS)]).dictionary_encode()
    table = pa.table({"flat": around(coded), "deep": structs(d=around(coded), n=NUMBERS)})
    pq.write_table(table, path)
    found = accel.scan(str(path), options=accel.Options(memory_limit=8 << 20)).to_table()
    assert found.to_pylist() == table.to_pylist()


def test_a_path_does_not_lead_through_them(tmp_path: pathlib.Path) -> None:
    """It was taken for a column that is not there: null in every row."""
    path = tmp_path / "dressed.parquet"
    write(path, "a struct")
    for where in ("x.n = 7", "x.n IS NULL", "NOT (x.n IS NULL)"):
        with pytest.raises(accel.PredicateError, match="a dotted path goes through structs only"):
            accel.scan(str(path), where).to_table()
    with pytest.raises(accel.ColumnNotFoundError, match="a dotted path goes through structs only"):
        accel.scan(str(path), columns=["x.n"]).to_table()
