"""Which extension types columns are decoded without."""

from __future__ import annotations

import pyarrow as pa
import pytest

from accel.decode.extensions import is_composite, stored_type


def around(storage: pa.DataType) -> pa.DataType:
    return pa.opaque(storage, "kind", "vendor")


CODED = pa.dictionary(pa.int8(), pa.string())
POINT = pa.struct([pa.field("x", pa.float64(), nullable=False), ("y", pa.float64())])


@pytest.mark.parametrize(
    ("kind", "bare"),
    [
        pytest.param(around(CODED), CODED, id="dictionary"),
        pytest.param(around(POINT), POINT, id="struct"),
        pytest.param(around(pa.list_(POINT)), pa.list_(POINT), id="list of structs"),
        pytest.param(around(pa.list_(CODED)), pa.list_(CODED), id="list of a dictionary"),
        pytest.param(around(around(CODED)), CODED, id="one in another"),
        pytest.param(
            pa.struct([pa.field("d", around(CODED), nullable=False), ("u", pa.uuid())]),
            pa.struct([pa.field("d", CODED, nullable=False), ("u", pa.uuid())]),
            id="in a struct",
        ),
        pytest.param(pa.large_list(around(POINT)), pa.large_list(POINT), id="in a list"),
        pytest.param(pa.list_view(around(POINT)), pa.list_view(POINT), id="in a view of a list"),
        pytest.param(
            pa.large_list_view(around(CODED)), pa.large_list_view(CODED), id="in a view of a large list"
        ),
        pytest.param(pa.list_(around(POINT), 2), pa.list_(POINT, 2), id="in a list of a fixed size"),
        pytest.param(
            pa.map_(around(CODED), around(POINT), keys_sorted=True),
            pa.map_(CODED, POINT, keys_sorted=True),
            id="in a map",
        ),
    ],
)
def test_those_around_several_leaves_or_a_dictionary(kind: pa.DataType, bare: pa.DataType) -> None:
    assert is_composite(kind)
    assert stored_type(kind) == bare
    assert not is_composite(bare)


@pytest.mark.parametrize(
    "kind",
    [
        pa.int64(),
        CODED,
        POINT,
        pa.uuid(),
        around(pa.list_(pa.int8())),
        around(pa.struct([("only", pa.string())])),
        pa.fixed_shape_tensor(pa.float32(), (2, 2)),
        pa.map_(pa.string(), pa.json_()),
    ],
    ids=str,
)
def test_others_stay(kind: pa.DataType) -> None:
    assert not is_composite(kind)
    assert stored_type(kind) is kind
