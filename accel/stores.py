"""The protocols of a store for `store=`: `RangeStore` is all it must implement, the others are optional.

Each name is imported when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from accel.ranges import ByteRange, Suffix
    from accel.store.range_store import (
        Gatherer,
        Header,
        Lister,
        ObjectEntry,
        Pager,
        Payload,
        RangeStore,
        Writer,
    )

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


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'accel.stores' has no attribute {name!r}")
    from accel import ranges
    from accel.store import range_store

    value = getattr(ranges if name in ("ByteRange", "Suffix") else range_store, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
