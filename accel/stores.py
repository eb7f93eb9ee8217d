"""The protocols of a store for `store=`: `RangeStore` is all it must implement, the others are optional."""

from accel.ranges import ByteRange, Suffix
from accel.store.range_store import (
    Gatherer,
    Header,
    Lister,
    Mover,
    ObjectEntry,
    Pager,
    Payload,
    RangeStore,
    Remover,
    Writer,
)

__all__ = [
    "ByteRange",
    "Gatherer",
    "Header",
    "Lister",
    "Mover",
    "ObjectEntry",
    "Pager",
    "Payload",
    "RangeStore",
    "Remover",
    "Suffix",
    "Writer",
]
