"""What a store of one's own is made of: `RangeStore`, and what it may do besides. For `store=` of `accel.scan`.

Importing this loads nothing; each name is imported when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from accel.io.store import Gatherer, Header, Lister, ObjectEntry, Pager, Payload, RangeStore, Writer
    from accel.ranges import ByteRange, Suffix

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
    "Gatherer": "accel.io.store",
    "Header": "accel.io.store",
    "Lister": "accel.io.store",
    "ObjectEntry": "accel.io.store",
    "Pager": "accel.io.store",
    "Payload": "accel.io.store",
    "RangeStore": "accel.io.store",
    "Suffix": "accel.ranges",
    "Writer": "accel.io.store",
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
