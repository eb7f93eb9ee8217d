"""Which unit INT96 columns are read to, and whether what indexes say of one is in it."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from accel.decode.arrow import file_schema
from accel.format.model import FileMetadata
from accel.planning.projection import has_instants, indexed_as_read, int96_unit, zoned_schema
from tests.unit.decode.selected import open_metadata

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
