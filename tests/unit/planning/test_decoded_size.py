"""What chunks are taken to decode to, from what their footer says."""

from __future__ import annotations

import pyarrow as pa
import pytest

from accel.planning.pages import decoded_bytes, level_bytes
from accel.testing import Layout, write_file
from tests.unit.decode.selected import open_metadata

ROWS = 5_000
KINDS = {
    "booleans": (pa.bool_(), 2, 2),
    "required booleans": (pa.bool_(), 2, 0),
    "integers": (pa.int32(), 4, 2),
    "required doubles": (pa.float64(), 8, 0),
    "of fixed length": (pa.binary(5), 5, 2),
    "texts": (pa.string(), 4, 2),
    "lists of booleans": (pa.list_(pa.bool_()), 2, 4),
    "structs of booleans": (pa.struct({"a": pa.bool_()}), 2, 2),
}


@pytest.mark.parametrize("name", KINDS)
def test_values_are_counted_where_pages_hold_next_to_nothing(name: str) -> None:
    kind, width, levels = KINDS[name]
    required = name.startswith("required")
    values = pa.array([0] * ROWS, pa.int8()).cast(kind) if required else pa.nulls(ROWS, kind)
    rows = pa.Table.from_arrays([values], schema=pa.schema([pa.field("c", kind, nullable=not required)]))
    metadata = open_metadata(write_file(rows, Layout()))
    assert level_bytes(metadata.schema.leaves[0]) == levels
    of_lists = levels if pa.types.is_list(kind) else 0
    assert decoded_bytes(metadata, 0, 0) == ROWS * (width + of_lists)
