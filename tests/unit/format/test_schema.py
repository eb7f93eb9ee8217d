"""The schema tree and its annotations, against pyarrow's own reading of the same files and by hand."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from accel.errors import ParquetFormatError
from accel.format.model import Repetition
from accel.format.schema import ConvertedType, LogicalType, build_schema, read_elements, time_unit
from accel.format.thrift import BINARY, I16, I32, I64, LIST, STRUCT, ThriftList, ThriftReader, write_struct
from tests.unit.format.files import parse, write

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("s", pa.struct([pa.field("a", pa.int8()), pa.field("b", pa.struct([("c", pa.string())]))])),
        pa.field("l", pa.list_(pa.field("item", pa.float16(), nullable=False)), nullable=False),
        pa.field("m", pa.map_(pa.string(), pa.list_(pa.timestamp("us", "UTC")))),
        pa.field("d", pa.decimal128(20, 3)),
        pa.field("u", pa.uint16()),
        pa.field("t", pa.time64("ns")),
        pa.field("f", pa.binary(5)),
        pa.field("n", pa.null()),
    ]
)


def test_the_tree_equals_pyarrows():
    raw = write(SCHEMA.empty_table())
    schema = parse(raw).schema
    theirs = pq.ParquetFile(pa.BufferReader(raw)).schema
    assert schema.names == tuple(SCHEMA.names)
    found = [(".".join(x.path), x.max_definition, x.max_repetition) for x in schema.leaves]
    columns = [theirs.column(i) for i in range(len(theirs))]
    assert found == [(c.path, c.max_definition_level, c.max_repetition_level) for c in columns]
    assert [schema.elements[x.element].physical.name for x in schema.leaves] == [
        c.physical_type for c in columns
    ]
    assert [schema.elements[x.element].type_length for x in schema.leaves] == [
        c.length if c.physical_type == "FIXED_LEN_BYTE_ARRAY" else 0 for c in columns
    ]


def test_annotations_and_shape():
    schema = parse(write(SCHEMA.empty_table())).schema
    by_path = {x.path: schema.elements[x.element] for x in schema.leaves}
    logical = {
        path[0] + str(len(path)): (e.logical_type, dict(e.logical_params)) for path, e in by_path.items()
    }
    assert logical == {
        "id1": (None, {}),
        "s2": (10, {"bits": 8, "signed": 1}),
        "s3": (1, {}),
        "l3": (15, {}),
        "m3": (1, {}),
        "m5": (8, {"utc": 1, "unit": 2}),
        "d1": (5, {"scale": 3, "precision": 20}),
        "u1": (10, {"bits": 16, "signed": 0}),
        "t1": (7, {"utc": 0, "unit": 3}),
        "f1": (None, {}),
        "n1": (11, {}),
    }
    assert schema.field_leaves == ((0, 1), (1, 3), (3, 4), (4, 6), (6, 7), (7, 8), (8, 9), (9, 10), (10, 11))
    assert schema.subtree_ends[0] == len(schema.elements)
    for i, field in enumerate(schema.fields):
        following = (*schema.fields[1:], len(schema.elements))[i]
        assert schema.subtree_ends[field] == following
    deep = schema.leaves[2]
    assert deep.path == ("s", "b", "c")
    assert [schema.elements[i].name for i in deep.ancestors] == ["s", "b"]
    assert schema.elements[schema.leaves[0].element].repetition is Repetition.REQUIRED


def test_raw_is_each_elements_own_encoding():
    metadata = parse(write(SCHEMA.empty_table()))
    for element in metadata.schema.elements:
        assert element.raw in metadata.footer
        again = read_elements(ThriftReader(b"\x1c" + element.raw))
        assert again == [element]


def element(name: str, children: int | None = None, *, repetition: int = 1, **more: int) -> dict:
    fields: dict = {3: (I32, repetition), 4: (BINARY, name.encode())}
    fields |= {1: (I32, 2)} if children is None else {5: (I32, children)}
    return fields | {int(k[1:]): (I32, v) for k, v in more.items()}


def build(*elements: dict):
    encoded = write_struct({2: (LIST, ThriftList(STRUCT, list(elements)))})
    reader = ThriftReader(encoded, 1)
    return build_schema(read_elements(reader))


@pytest.mark.parametrize("kind", [I16, I64])
def test_a_number_of_another_width_is_passed_over_as_pyarrow_does(kind):
    element = {1: (I32, 1), 3: (kind, 1), 4: (BINARY, b"n"), 6: (kind, 18)}
    data = write_struct({2: (LIST, ThriftList(STRUCT, [element]))})
    reader = ThriftReader(data)
    assert next(reader.fields())[0] == 2
    (found,) = read_elements(reader)
    assert (found.repetition, found.converted_type) == (Repetition.REQUIRED, None)


def test_a_column_whose_repetition_is_of_another_type_is_no_optional_one():
    """One flipped bit: pyarrow would read the pages as those of a required column, levels and all."""
    data = write(
        pa.table({"n": pa.array([f"t{n}" for n in range(50)])}), use_dictionary=False, store_schema=False
    )
    start = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    at = data.index(b"\x25\x02\x18\x01n", start)
    damaged = data[:at] + b"\x24" + data[at + 1 :]
    with pytest.raises(ParquetFormatError, match="a histogram of definitions that does not fit the schema"):
        parse(damaged)


def test_a_schema_20000_levels_deep_is_read():
    groups = [element("g", 1) for _ in range(20_000)]
    schema = build(element("root", 1), *groups, element("leaf"))
    (leaf,) = schema.leaves
    assert len(leaf.path) == 20_001
    assert leaf.max_definition == 20_001
    assert set(schema.subtree_ends) == {20_002}


BAD = {
    "no elements": ([], "empty"),
    "too few": ([element("root", 2), element("a")], "fewer elements"),
    "too many": ([element("root", 1), element("a"), element("b")], "more elements"),
    "root without children, one element": ([element("root", 0), element("b")], "more elements"),
    "inner group unfilled": ([element("root", 1), element("g", 2), element("a")], "fewer elements"),
    "negative children": ([element("root", -1)], "negative"),
    "leaf with children": ([element("root", 1), element("a", f5=1)], "has children"),
    "unknown type": ([element("root", 1), element("a", 0, f1=9)], "Physical"),
    "unknown repetition": ([element("root", 1), element("a", repetition=7)], "Repetition"),
    "nameless": ([{5: (I32, 0)}], "without a name"),
    "beyond any level": ([element("root", 1), *[element("g", 1)] * 32_768, element("a")], "levels"),
    "deep and wide": (
        [
            element("root", 1),
            *[x for _ in range(3_000) for x in (element("g", 2), element("a"))],
            element("z"),
        ],
        "deep and wide",
    ),
}


@pytest.mark.parametrize(("elements", "message"), BAD.values(), ids=BAD.keys())
def test_a_tree_that_does_not_add_up_is_refused(elements, message):
    with pytest.raises(ParquetFormatError, match=message):
        build(*elements)


def test_an_empty_group_at_the_top_is_left_out():
    schema = build(element("root", 2), element("g", 0), element("a"))
    assert schema.names == ("a",)
    assert schema.field_leaves == ((0, 1),)
    assert schema.subtree_ends == (2, 2)
    assert build(element("root", 0)).leaves == ()


PLAIN = parse(write(pa.Table.from_arrays([pa.array([1])], names=["t"]))).schema.elements[1]


@pytest.mark.parametrize(
    ("logical", "params", "converted", "unit"),
    [
        pytest.param(LogicalType.TIMESTAMP, {"unit": 1}, None, "ms", id="milliseconds"),
        pytest.param(LogicalType.TIME, {"unit": 2}, None, "us", id="microseconds"),
        pytest.param(LogicalType.TIMESTAMP, {"unit": 3}, None, "ns", id="nanoseconds"),
        pytest.param(LogicalType.TIMESTAMP, {"unit": 4}, None, None, id="a unit to come"),
        pytest.param(LogicalType.TIMESTAMP, {}, None, None, id="no unit"),
        pytest.param(None, {}, ConvertedType.TIME_MILLIS, "ms", id="older, time in ms"),
        pytest.param(None, {}, ConvertedType.TIME_MICROS, "us", id="older, time in us"),
        pytest.param(None, {}, ConvertedType.TIMESTAMP_MILLIS, "ms", id="older, timestamp in ms"),
        pytest.param(None, {}, ConvertedType.TIMESTAMP_MICROS, "us", id="older, timestamp in us"),
        pytest.param(
            LogicalType.TIMESTAMP,
            {"unit": 3},
            ConvertedType.TIMESTAMP_MILLIS,
            "ns",
            id="the newer one counts",
        ),
        pytest.param(None, {}, ConvertedType.DATE, None, id="another type"),
        pytest.param(None, {}, None, None, id="none"),
    ],
)
def test_time_unit(
    logical: int | None, params: dict[str, int], converted: int | None, unit: str | None
) -> None:
    element = replace(PLAIN, logical_type=logical, logical_params=params, converted_type=converted)
    assert time_unit(element) == unit


@pytest.mark.parametrize(
    ("kind", "logical", "converted"),
    [
        (pa.string(), LogicalType.STRING, ConvertedType.UTF8),
        (pa.decimal128(9, 2), LogicalType.DECIMAL, ConvertedType.DECIMAL),
        (pa.date32(), LogicalType.DATE, ConvertedType.DATE),
        (pa.time32("ms"), LogicalType.TIME, None),
        (pa.timestamp("us", "UTC"), LogicalType.TIMESTAMP, ConvertedType.TIMESTAMP_MICROS),
        (pa.uint8(), LogicalType.INTEGER, ConvertedType.UINT_8),
        (pa.int16(), LogicalType.INTEGER, ConvertedType.INT_16),
        (pa.float16(), LogicalType.FLOAT16, None),
        (pa.json_(), LogicalType.JSON, ConvertedType.JSON),
        (pa.uuid(), LogicalType.UUID, None),
        (pa.int64(), None, None),
    ],
    ids=str,
)
def test_what_pyarrow_writes(kind: pa.DataType, logical: int | None, converted: int | None) -> None:
    """The numbers are those of another implementation."""
    element = parse(write(pa.table({"a": pa.nulls(1, kind)}))).schema.elements[1]
    assert (element.logical_type, element.converted_type) == (logical, converted)
