"""What planning asks of dictionaries is among what `explain` tells."""

from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.parquet as pq

import accel
from accel.testing import DictStore, RecordingStore

GROUPS, ROWS = 20, 500


def test_dictionaries_that_prune_are_told_with_the_indexes() -> None:
    names = [f"name {(row // 10 * 7919) % 5003:05}" for row in range(GROUPS * ROWS)]
    sink = io.BytesIO()
    table = pa.table({"key": range(GROUPS * ROWS), "name": names})
    pq.write_table(table, sink, row_group_size=ROWS, compression="none")
    store = RecordingStore(DictStore({"f.parquet": sink.getvalue()}))
    options = accel.Options(probe_min_bytes=0, tail_hint=100, phases="one")
    scan = accel.scan(
        "f.parquet", f"name = '{names[4321]}'", store=store, cache=accel.Cache(), options=options
    )
    told = scan.explain()
    assert told.row_groups[0] < GROUPS
    assert told.requests["indexes"] > 0
    assert told.requests["metadata"] + told.requests["indexes"] == store.requests
    assert told.bytes["metadata"] + told.bytes["indexes"] == store.bytes
    assert scan.to_table().num_rows == names.count(names[4321])
    assert told.bytes["data"] == scan.metrics.bytes
