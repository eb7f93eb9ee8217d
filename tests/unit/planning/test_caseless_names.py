"""How files have the columns of a data set, whatever their case."""

from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from accel.errors import ColumnNotFoundError, SchemaMismatchError
from accel.format.footer import parse_footer
from accel.format.model import ParquetSchema
from accel.planning.caseless_names import CaselessNames, refuse_alike, spelled_like
from accel.planning.projection import spelled_name, split_name

DEEP = pa.struct([("Xx", pa.int64()), ("list", pa.large_list(pa.struct([("Yy", pa.int8())])))])


def parquet(schema: pa.Schema) -> ParquetSchema:
    sink = io.BytesIO()
    pq.write_table(schema.empty_table(), sink, store_schema=False)
    data = sink.getvalue()
    length = int.from_bytes(data[-8:-4], "little")
    return parse_footer(
        data[-8 - length : -8], file_size=len(data), footer_start=len(data) - 8 - length
    ).schema


def paths(schema: ParquetSchema) -> list[str]:
    return [".".join(leaf.path) for leaf in schema.leaves]


def test_a_file_that_spells_them_alike_keeps_its_schema() -> None:
    wanted = pa.schema([("Id", pa.int64()), ("s", DEEP), ("other", pa.int8())])
    file = parquet(pa.schema([("Id", pa.int64()), ("s", DEEP), ("OTHER", pa.int8()), ("more", pa.int8())]))
    assert CaselessNames(wanted, {"Id"}).relabel(file) is file
    assert CaselessNames(wanted, {"Id", "s"}).relabel(file) is file
    assert CaselessNames(wanted, {"Id", "other"}).relabel(file) is not file


def test_another_file_is_seen_under_the_names_of_the_data_set() -> None:
    wanted = pa.schema([("Id", pa.int64()), ("s", DEEP), ("m", pa.map_(pa.string(), DEEP))])
    deep = pa.struct([("xX", pa.int64()), ("LIST", pa.large_list(pa.struct([("YY", pa.int8())])))])
    file = parquet(pa.schema([("M", pa.map_(pa.string(), deep)), ("ID", pa.int64()), ("S", deep)]))
    names = CaselessNames(wanted, {"Id", "s", "m"})
    found = names.relabel(file)
    assert paths(found) == [
        "m.key_value.key",
        "m.key_value.value.Xx",
        "m.key_value.value.list.list.element.Yy",
        "Id",
        "s.Xx",
        "s.list.list.element.Yy",
    ]
    assert names.relabel(file) is found
    # Scans of one data set share it.
    assert CaselessNames.of(wanted, {"Id"}) is CaselessNames.of(wanted, {"Id"})


def test_two_columns_of_a_file_that_are_the_same_one() -> None:
    file = parquet(pa.schema([("id", pa.int64()), ("ID", pa.int64()), ("x", pa.int64())]))
    wanted = pa.schema([("Id", pa.int64()), ("X", pa.int64())])
    assert paths(CaselessNames(wanted, {"X"}).relabel(file))[2] == "X"
    with pytest.raises(
        SchemaMismatchError, match="the columns 'id' and 'ID' of the file are both 'Id', case aside"
    ):
        CaselessNames(wanted, {"Id"}).relabel(file)


def test_alike_names_at_any_depth() -> None:
    twice = pa.struct([("a", pa.int8()), ("A", pa.int8())])
    refuse_alike(pa.schema([("a", pa.int8()), ("b", DEEP)]))
    for kind in (twice, pa.list_(twice), pa.map_(pa.string(), twice)):
        with pytest.raises(SchemaMismatchError, match="differ in case alone"):
            refuse_alike(pa.schema([("s", kind)]))
    with pytest.raises(SchemaMismatchError, match="the columns 's.a' and 's.a' have one name"):
        refuse_alike(pa.schema([("s", pa.struct([("a", pa.int8()), ("a", pa.int8())]))]))


def test_types_are_spelled_like_others() -> None:
    given = pa.field("X", pa.map_(pa.string(), pa.list_(pa.struct([("B", pa.int8()), ("new", pa.int8())]))))
    like = pa.field("x", pa.map_(pa.string(), pa.list_(pa.struct([("b", pa.int64())]))))
    assert spelled_like(given, like) == pa.field(
        "x", pa.map_(pa.string(), pa.list_(pa.struct([("b", pa.int8()), ("new", pa.int8())])))
    )


@pytest.mark.parametrize(
    ("name", "path", "spelled"),
    [
        ("X", ("x",), "x"),
        ("a.B", ("A.b",), "A.b"),
        ("A.D", ("a", "d"), "a.d"),
        ('a."b.c"', ("a", "B.c"), '"a"."B.c"'),
        ('"q"', ('"Q"',), '"Q"'),
        ("ä", ("Ä",), "Ä"),
    ],
)
def test_names_as_a_schema_spells_them(name: str, path: tuple[str, ...], spelled: str) -> None:
    inner = pa.struct([("B.c", pa.int8()), ("d", pa.int8())])
    schema = pa.schema(
        [("x", pa.int8()), ("A.b", pa.int8()), ("a", inner), ('"Q"', pa.int8()), ("Ä", pa.int8())]
    )
    assert split_name(name, schema, case_sensitive=False) == path
    assert spelled_name(name, schema) == spelled
    assert split_name(spelled, schema) == path
    with pytest.raises(ColumnNotFoundError, match="there is no column"):
        split_name(f"{name}!", schema, case_sensitive=False)
    assert spelled_name(f"{name}!", schema) == f"{name}!"
