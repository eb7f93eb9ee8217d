"""The schema of one column, as pyarrow reads it."""

from __future__ import annotations

import pytest

from accel.decode.arrow import open_reader
from accel.decode.dictionary_decode import lone_column
from accel.decode.splice import SplicedChunk, plan_splice, splice
from accel.format.model import Physical, Repetition


@pytest.mark.parametrize(
    ("physical", "repetition", "told"),
    [
        (Physical.INT32, Repetition.REQUIRED, "required int32 field_id=-1 n;"),
        (Physical.INT64, Repetition.OPTIONAL, "optional int64 field_id=-1 n;"),
        (Physical.BYTE_ARRAY, Repetition.REQUIRED, "required binary field_id=-1 n;"),
    ],
)
def test_pyarrow_reads_the_same(physical: Physical, repetition: Repetition, told: str) -> None:
    schema = lone_column("n", physical, repetition=repetition)
    plan = plan_splice(schema, {}, fields=[0])
    reader = open_reader(splice(plan, {0: SplicedChunk((b"",), 0, 0, 0)}, num_rows=0))
    assert told in str(reader.metadata.schema)
    (leaf,) = schema.leaves
    assert (leaf.path, leaf.max_definition, leaf.max_repetition) == (
        ("n",),
        int(repetition is Repetition.OPTIONAL),
        0,
    )
