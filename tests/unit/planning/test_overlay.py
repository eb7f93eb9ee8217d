"""What a predicate is bound to in a file whose types differ from the data set's."""

from __future__ import annotations

import pyarrow as pa
import pytest

from accel.planning.conform import conformed_columns, overlay
from accel.predicate.bind import bind
from accel.predicate.where import to_expr

MS, S = pa.duration("ms"), pa.duration("s")


@pytest.mark.parametrize(
    ("meant", "file", "bound", "conformed"),
    [
        # The same literal says the same: the file's own type, which its metadata is of.
        (pa.int64(), pa.int8(), pa.int8(), False),
        (pa.decimal128(9, 2), pa.int16(), pa.int16(), False),
        (pa.float64(), pa.float32(), pa.float32(), False),
        (pa.float64(), pa.int32(), pa.int32(), False),
        (pa.timestamp("us"), pa.timestamp("s"), pa.timestamp("s"), False),
        (pa.date64(), pa.date32(), pa.date32(), False),
        (pa.large_string(), pa.string(), pa.string(), False),
        (pa.int8(), pa.null(), pa.null(), False),
        (pa.list_(pa.int64()), pa.list_(pa.int8()), pa.list_(pa.int8()), False),
        # Another thing: the data set's type.
        (MS, S, MS, True),
        (pa.int8(), pa.bool8(), pa.int8(), True),
        (pa.float64(), pa.bool8(), pa.float64(), True),
        (pa.binary(), pa.uuid(), pa.binary(), True),
    ],
    ids=str,
)
@pytest.mark.parametrize("nested", [False, True], ids=["column", "field"])
def test_types(
    meant: pa.DataType, file: pa.DataType, bound: pa.DataType, conformed: bool, *, nested: bool
) -> None:
    def schema(kind: pa.DataType) -> pa.Schema:
        one = pa.schema([("x", kind)])
        return pa.schema([("s", pa.struct(list(one)))]) if nested else one

    found = overlay(schema(meant), schema(file))
    assert found == schema(bound)
    where = bind(to_expr("s.x IS NULL" if nested else "x IS NULL"), found)
    path = ("s", "x") if nested else ("x",)
    assert conformed_columns(where, schema(meant), file=schema(file)) == ({path: meant} if conformed else {})


def test_columns_of_one_of_them() -> None:
    meant = pa.schema([("a", pa.int64()), ("s", pa.struct([("x", MS), ("y", pa.int8())]))])
    file = pa.schema([("s", pa.struct([("own", pa.int8()), ("x", S)])), ("b", pa.int8())])
    assert overlay(meant, file) == pa.schema(
        [("a", pa.int64()), ("s", pa.struct([("own", pa.int8()), ("x", MS), ("y", pa.int8())]))]
    )
