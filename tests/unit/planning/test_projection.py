"""Names and dotted paths to output schemas."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from accel.decode.arrow import file_schema
from accel.errors import ColumnNotFoundError, SchemaMismatchError
from accel.format.model import FileMetadata
from accel.planning.projection import (
    has_instants,
    indexed_as_read,
    int96_unit,
    project_schema,
    settle_schemas,
    split_name,
    zoned_schema,
)
from tests.unit.decode.selected import open_metadata

INNER = pa.struct([("b", pa.int32()), ("c", pa.struct([("d", pa.string()), ("e", pa.bool_())]))])
SCHEMA = pa.schema(
    [("x", pa.int64()), ("a", INNER), ("a.b", pa.date32()), ("p.q", INNER), ("l", pa.list_(INNER))]
)


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("x", ("x",)),
        ("a.b", ("a.b",)),
        ("a.c", ("a", "c")),
        ("a.c.d", ("a", "c", "d")),
        ("p.q.b", ("p.q", "b")),
    ],
)
def test_split_name(name: str, path: tuple[str, ...]) -> None:
    assert split_name(name, SCHEMA) == path


@pytest.mark.parametrize("name", ["y", "a.z", "x.b", "l.b", ""])
def test_unknown_names(name: str) -> None:
    with pytest.raises(ColumnNotFoundError, match="there is no column"):
        split_name(name, SCHEMA)


LATER = pa.schema(
    [("carrier", pa.string()), ("s", INNER), ("l", pa.list_(INNER)), ("t", INNER), ("t", INNER)]
)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("carier", "did you mean 'carrier'?"),
        ("CARRIER", "did you mean 'carrier'?"),
        ("year", "there are 'carrier', 's', 'l', 't', 't'"),
        ("*", "leave out `columns=` for all"),
        ("s.zz", "there are 's.b', 's.c'"),
        ("s.B", "did you mean 's.b'?"),
        ("s.c.f.g", "there are 's.c.d', 's.c.e'"),
        ("s.*", "'s' takes all of it"),
        ("carrier.x", "'carrier' is string: a dotted path goes through structs only"),
        ("s.b.x", "'s.b' is int32: a dotted path goes through structs only"),
        ("t.zz", "there are 't.b', 't.c'"),
        ("zz.b", "there are 'carrier', 's', 'l', 't', 't'"),
        ("\udcff.b", "there are 'carrier', 's', 'l', 't', 't'"),
        ("s.\udcff", "there are 's.b', 's.c'"),
    ],
)
def test_what_there_is_instead_is_told(name: str, hint: str) -> None:
    with pytest.raises(ColumnNotFoundError) as caught:
        split_name(name, LATER)
    assert caught.value.hint == hint


def test_order_asked_for_and_merged_paths() -> None:
    out = project_schema(SCHEMA, ["a.c.e", "x", "a.c.d"])
    assert out == pa.schema(
        [("a", pa.struct([("c", pa.struct([("d", pa.string()), ("e", pa.bool_())]))])), ("x", pa.int64())]
    )


def test_whole_column_beats_its_parts() -> None:
    assert project_schema(SCHEMA, ["a.c", "a"]) == pa.schema([("a", INNER)])


def test_none_is_all_and_empty_is_none() -> None:
    assert project_schema(SCHEMA, None) == SCHEMA
    assert project_schema(SCHEMA, []) == pa.schema([])


def test_refusals() -> None:
    with pytest.raises(ValueError, match="asked for twice"):
        project_schema(SCHEMA, ["x", "x"])
    double = pa.schema([("x", pa.int8()), ("x", pa.int8()), ("y", pa.int8())])
    with pytest.raises(SchemaMismatchError, match="several columns named 'x'"):
        project_schema(double, None)
    assert project_schema(double, ["y"]) == pa.schema([("y", pa.int8())])
    with pytest.raises(TypeError, match="named by a string"):
        project_schema(SCHEMA, [1])  # type: ignore[list-item]


@pytest.mark.parametrize("columns", [None, ("x",), ("a.c.e", "x"), ()])
def test_what_was_settled_is_settled_again_alike(columns: tuple[str, ...] | None) -> None:
    schema = SCHEMA.with_metadata({"k": "v"})
    data_set, output = settle_schemas(schema, columns, alone=True)
    again = settle_schemas(schema, columns, alone=True)
    assert (again[0] is data_set, again[1] is output) == (True, True)
    assert data_set.equals(SCHEMA.remove_metadata(), check_metadata=True)
    assert output.equals(project_schema(schema, columns), check_metadata=True)


def test_of_many_schemas_each_settles_as_its_own() -> None:
    for number in range(40):
        schema = pa.schema([(f"c{number}", pa.int64()), ("x", pa.int32())])
        assert settle_schemas(schema, ("x",), alone=True)[0] == schema


@pytest.mark.parametrize("columns", [(["x"],), (1,)])
def test_what_names_no_column_is_refused_each_time(columns: Any) -> None:
    for _ in range(2):
        with pytest.raises(TypeError, match="a column is named by a string"):
            settle_schemas(SCHEMA, columns, alone=True)


def test_a_name_with_a_lone_surrogate_is_no_columns() -> None:
    """As the command line makes of bytes that are no text."""
    with pytest.raises(ColumnNotFoundError, match=r"no column '\\udcff'"):
        project_schema(SCHEMA, ["\udcff"])


def test_of_several_files_any_column_may_be_null() -> None:
    def required(kind: pa.DataType, name: str = "x") -> pa.Field:
        return pa.field(name, kind, nullable=False)

    def nested(field: Any) -> list[pa.DataType]:
        """What holds an integer made a field by `field`; keys of maps and lists of a fixed size are as they
        are."""
        return [
            pa.int8(),
            pa.struct([field(pa.int8(), "a"), pa.field("b", pa.list_(field(pa.int8())))]),
            pa.large_list(field(pa.struct([field(pa.int8())]))),
            pa.map_(pa.string(), field(pa.struct([field(pa.int8())]), "value"), keys_sorted=True),
            pa.list_(required(pa.int8()), 2),
            pa.uuid(),
        ]

    def schema(field: Any) -> pa.Schema:
        fields = [field(kind, f"c{at}") for at, kind in enumerate(nested(field))]
        return pa.schema(fields, {"k": "v"})

    def optional(kind: pa.DataType, name: str = "x") -> pa.Field:
        return pa.field(name, kind)

    given, expected = schema(required), schema(optional)
    for columns in (None, ("c3", "c1.a")):
        assert settle_schemas(given, columns, alone=True)[1] == project_schema(given, columns)
        data_set, output = settle_schemas(given, columns, alone=False)
        assert data_set.equals(expected.remove_metadata(), check_metadata=True)
        assert output.equals(project_schema(expected, columns), check_metadata=True)
        assert settle_schemas(expected, columns, alone=False)[1] == output


# -- instants ---------------------------------------------------------------------------------------


NS, US = pa.timestamp("ns"), pa.timestamp("us")


def written(kind: pa.DataType, *, int96: bool = True) -> FileMetadata:
    """A file of an integer, a column of this type and a text."""
    schema = pa.schema([("i", pa.int64()), ("at", kind), ("s", pa.string())])
    sink = pa.BufferOutputStream()
    pq.write_table(schema.empty_table(), sink, use_deprecated_int96_timestamps=int96)
    return open_metadata(sink.getvalue().to_pybytes())


@pytest.mark.parametrize(
    "kind",
    [
        NS,
        pa.list_(NS),
        pa.map_(pa.string(), NS),
        pa.struct([("x", pa.list_(pa.int64())), ("at", pa.large_list(pa.struct([("at", NS)])))]),
    ],
    ids=str,
)
def test_the_arrow_schema_tells_the_unit(kind: pa.DataType) -> None:
    metadata = written(kind)
    for unit in ("ns", "us"):
        arrow = file_schema(metadata.schema, metadata.key_value, int96_unit=unit)
        assert int96_unit(metadata.schema, arrow) == unit


UTC = pa.timestamp("ns", "UTC")


@pytest.mark.parametrize(
    ("kind", "zoned"),
    [
        (NS, UTC),
        (pa.list_(NS), pa.list_(UTC)),
        (pa.map_(NS, NS), pa.map_(UTC, UTC)),
        (pa.dictionary(pa.int32(), pa.string()), pa.dictionary(pa.int32(), pa.string())),
        (
            pa.struct([("x", pa.list_(pa.int64())), ("at", pa.large_list(pa.struct([("at", NS)])))]),
            pa.struct([("x", pa.list_(pa.int64())), ("at", pa.large_list(pa.struct([("at", UTC)])))]),
        ),
    ],
    ids=str,
)
def test_int96_may_be_taken_as_instants(kind: pa.DataType, zoned: pa.DataType) -> None:
    metadata = written(kind)
    arrow = file_schema(metadata.schema, metadata.key_value)
    assert arrow.field("at").type == kind
    taken = zoned_schema(metadata.schema, arrow)
    assert taken == (arrow.set(1, arrow.field(1).with_type(zoned)) if zoned != kind else None)


def test_other_timestamps_of_the_file_stay_as_they_are() -> None:
    sink = pa.BufferOutputStream()
    table = pa.schema([("ns", NS), ("s", pa.struct([("ns", NS)]))]).empty_table()
    pq.write_table(table, sink, use_deprecated_int96_timestamps=True)
    old = open_metadata(sink.getvalue().to_pybytes())
    new = written(NS, int96=False)
    arrow = pa.schema([("ns", NS), ("s", pa.struct([("ns", NS)]))])
    assert zoned_schema(old.schema, arrow) == pa.schema([("ns", UTC), ("s", pa.struct([("ns", UTC)]))])
    assert zoned_schema(new.schema, file_schema(new.schema, new.key_value)) is None


def test_without_int96_there_is_none_to_tell() -> None:
    metadata = written(US, int96=False)
    assert not has_instants(metadata.schema, range(3))
    assert int96_unit(metadata.schema, file_schema(metadata.schema, metadata.key_value)) == "ns"


def test_a_schema_that_is_not_of_the_file_tells_nothing() -> None:
    metadata = written(NS)
    for types in ([], [pa.int64()], [pa.int64(), pa.string()], [pa.int64(), pa.timestamp("s")]):
        arrow = pa.schema([(str(place), kind) for place, kind in enumerate(types)])
        assert int96_unit(metadata.schema, arrow) == "ns"


def test_only_some_leaves_are_int96() -> None:
    schema = written(NS).schema
    assert [has_instants(schema, [leaf]) for leaf in range(3)] == [False, True, False]


def test_indexes_tell_nanoseconds_of_int96_and_all_of_others() -> None:
    number, instant = (written(NS).schema.elements[at] for at in (1, 2))
    assert indexed_as_read(number, pa.int64())
    assert [indexed_as_read(instant, kind) for kind in (NS, US, pa.int64())] == [True, False, False]
