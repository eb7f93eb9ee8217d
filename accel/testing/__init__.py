"""Tools to test programs that use accel: stores that record, delay and fail, and files with a declared
layout."""

from accel.testing.faults import (
    Attempt,
    CutBody,
    Fault,
    FaultStore,
    OtherVersion,
    ShortBody,
    Stall,
    Status,
    WrongRange,
)
from accel.testing.files import Layout, bench_table, table, write_bench_file, write_file
from accel.testing.stores import Call, DictStore, LatencyStore, RecordingStore
from accel.testing.tables import TableFile, TableSource

__all__ = [
    "Attempt",
    "Call",
    "CutBody",
    "DictStore",
    "Fault",
    "FaultStore",
    "LatencyStore",
    "Layout",
    "OtherVersion",
    "RecordingStore",
    "ShortBody",
    "Stall",
    "Status",
    "TableFile",
    "TableSource",
    "WrongRange",
    "bench_table",
    "table",
    "write_bench_file",
    "write_file",
]
