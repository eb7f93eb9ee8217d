"""Instruments to test against: stores that record, delay and fail, and files with a declared layout."""

from accel.testing.faults import CutBody, FaultStore, OtherVersion, ShortBody, Stall, Status, WrongRange
from accel.testing.files import Layout, bench_table, flights_table, table, write_bench_file, write_file
from accel.testing.latency import LatencyStore
from accel.testing.memory import DictStore
from accel.testing.recording import Call, RecordingStore

__all__ = [
    "Call",
    "CutBody",
    "DictStore",
    "FaultStore",
    "LatencyStore",
    "Layout",
    "OtherVersion",
    "RecordingStore",
    "ShortBody",
    "Stall",
    "Status",
    "WrongRange",
    "bench_table",
    "flights_table",
    "table",
    "write_bench_file",
    "write_file",
]
