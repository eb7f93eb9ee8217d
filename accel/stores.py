"""What a store of one's own is made of: `RangeStore`, and what it may do besides. For `store=` of `accel.scan`.

Importing this loads nothing; each name is imported when it is first used.
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

_HOMES = {
    "ByteRange": "accel.ranges",
    "Gatherer": "accel.store.range_store",
    "Header": "accel.store.range_store",
    "Lister": "accel.store.range_store",
    "ObjectEntry": "accel.store.range_store",
    "Pager": "accel.store.range_store",
    "Payload": "accel.store.range_store",
    "RangeStore": "accel.store.range_store",
    "Suffix": "accel.ranges",
    "Writer": "accel.store.range_store",
}


def __getattr__(name: str) -> object:
    import importlib

    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'accel.stores' has no attribute {name!r}")
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
