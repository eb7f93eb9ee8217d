"""The protocols of a store for `store=`: `RangeStore` is all it must implement, the others are optional."""

from accel.ranges import ByteRange, Suffix
from accel.store.range_store import Gatherer, Header, Lister, ObjectEntry, Pager, Payload, RangeStore, Writer

__all__ = [
    "ByteRange",
    "Gatherer",
    "Header",
    "Lister",
    "ObjectEntry",
    "Pager",
    "Payload",
    "RangeStore",
    "Suffix",
    "Writer",
]
