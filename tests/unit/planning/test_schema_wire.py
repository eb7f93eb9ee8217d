"""A schema cut to some columns, as bytes, and read back."""

from __future__ import annotations

import pyarrow as pa
import pytest

from accel.decode.arrow import file_schema
from accel.errors import ParquetFormatError
from accel.planning.task_arrow import decode_schema, encode_schema
from accel.testing import Layout, write_file
from tests.support.file_steps import Bytes

SCHEMA = pa.schema(
    [
        ("a", pa.int8()),
        ("s", pa.struct([("x", pa.large_string()), ("y", pa.list_(pa.duration("ms")))])),
        ("d", pa.dictionary(pa.int32(), pa.string())),
        ("m", pa.map_(pa.string(), pa.int64())),
        ("z", pa.decimal128(9, 2)),
    ]
)
"""Leaves: a 0, s.x 1, s.y 2, d 3, m.key 4, m.value 5, z 6."""


@pytest.mark.parametrize("stored", [True, False], ids=["ARROW:schema", "none"])
@pytest.mark.parametrize(
    ("leaves", "columns", "renumbered"),
    [
        ([], [], {}),
        ([0], ["a"], {0: 0}),
        ([2], ["s"], {1: 0, 2: 1}),
        ([6, 3], ["d", "z"], {3: 0, 6: 1}),
        ([5, 1], ["s", "m"], {1: 0, 2: 1, 4: 2, 5: 3}),
        (range(7), SCHEMA.names, {i: i for i in range(7)}),
    ],
)
def test_there_and_back(
    leaves: list[int], columns: list[str], renumbered: dict[int, int], stored: bool
) -> None:
    handle = Bytes(write_file(SCHEMA.empty_table(), Layout(arrow_schema=stored))).open()
    schema, key_value = handle.metadata.schema, handle.metadata.key_value
    footer, arrow, numbers = encode_schema(
        schema, handle.arrow_schema, key_value=key_value, leaves=leaves, created_by="the writer"
    )
    assert arrow.names == columns
    assert numbers == renumbered
    back = decode_schema(footer)
    assert back.created_by == "the writer"
    assert [leaf.path for leaf in back.schema.leaves] == [schema.leaves[i].path for i in sorted(renumbered)]
    assert [leaf.max_definition for leaf in back.schema.leaves] == [
        schema.leaves[i].max_definition for i in sorted(renumbered)
    ]
    assert ("ARROW:schema" in back.key_value) is stored
    if columns:
        # Types that only ARROW:schema tells survive the cut.
        assert file_schema(back.schema, back.key_value).equals(arrow)


@pytest.mark.parametrize("footer", [b"", b"\x00", b"\x15", b"xxxx", b"\x15\x02\x19\x4c"])
def test_damage(footer: bytes) -> None:
    with pytest.raises(ParquetFormatError):
        decode_schema(footer)


def test_what_is_no_footer() -> None:
    with pytest.raises(ParquetFormatError, match="a scan task has no schema"):
        decode_schema(None)  # type: ignore[arg-type]
