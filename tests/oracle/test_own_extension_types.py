"""Extension types that a program defines in Python, which have no hash: asked, counted, written, and read for
Spark."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator

import pyarrow as pa
import pytest

import accel
from accel.decode.spark_types import spark_arrow_schema
from accel.predicate.kinds import kind_of

ROWS = 300


class Ticket(pa.ExtensionType):  # type: ignore[misc]
    """A number that means something to somebody."""

    def __init__(self) -> None:
        super().__init__(pa.int64(), "accel.tests.ticket")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage_type: pa.DataType, serialized: bytes) -> Ticket:
        return cls()


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    pa.register_extension_type(Ticket())
    yield
    pa.unregister_extension_type("accel.tests.ticket")


@pytest.fixture
def path(tmp_path: pathlib.Path) -> str:
    tickets = pa.ExtensionArray.from_storage(Ticket(), pa.array(range(ROWS), pa.int64()))
    table = pa.table({"ticket": tickets, "name": pa.array([f"row {row}" for row in range(ROWS)])})
    found = tmp_path / "tickets.parquet"
    accel.write_table(table, found, page_rows=10, row_group_size=100, indexes={"ticket": "zonemap"})
    return str(found)


def test_they_have_no_hash() -> None:
    with pytest.raises(TypeError, match="unhashable"):
        hash(Ticket())


@pytest.mark.parametrize(
    ("where", "rows"),
    [
        ("ticket = 5", 1),
        ("ticket IN (5, 250, 1000)", 2),
        ("NOT ticket < 290", 10),
        ("ticket IS NULL", 0),
        ("ticket IS NOT NULL AND name = 'row 7'", 1),
    ],
)
def test_they_are_asked_as_their_storage_is(path: str, where: str, rows: int) -> None:
    cache = accel.Cache()
    for _ in range(3):
        found = accel.scan(path, where, cache=cache).to_table()
        assert found.num_rows == rows
        assert found.schema.field("ticket").type == Ticket()
    assert accel.scan(accel.plan(path, where)).to_table().equals(found)


def test_they_are_counted_and_no_more(path: str) -> None:
    assert accel.scan(path).aggregate([("ticket", "count")]).to_pylist() == [{"ticket_count": ROWS}]
    with pytest.raises(accel.SchemaMismatchError, match="there is no max of column 'ticket'"):
        accel.scan(path).aggregate([("ticket", "max")])


def test_spark_takes_their_storage() -> None:
    assert spark_arrow_schema(pa.schema([("ticket", Ticket())])) == pa.schema([("ticket", pa.int64())])


def test_they_compare_as_their_storage() -> None:
    assert kind_of(Ticket()) == kind_of(pa.int64())
    assert kind_of(pa.uuid()) != kind_of(pa.binary(16))
