"""Index kinds: build, parse, prune. Pure; each name is imported when it is first used."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from accel.indexes.bitmap import Bitmap as Bitmap
    from accel.indexes.bloom import Bloom as Bloom
    from accel.indexes.distinct import Distinct as Distinct
    from accel.indexes.kind import ChunkValues as ChunkValues
    from accel.indexes.kind import IndexBuilder as IndexBuilder
    from accel.indexes.kind import IndexKind as IndexKind
    from accel.indexes.kind import Level as Level
    from accel.indexes.kind import ParsedIndex as ParsedIndex
    from accel.indexes.kind import PartedIndex as PartedIndex
    from accel.indexes.kind import Presence as Presence
    from accel.indexes.native import native_values as native_values
    from accel.indexes.ngram import Ngram as Ngram
    from accel.indexes.question import LeafOp as LeafOp
    from accel.indexes.question import LeafQuestion as LeafQuestion
    from accel.indexes.registry import kinds as kinds
    from accel.indexes.registry import register_index as register_index
    from accel.indexes.sketch import Sketch as Sketch
    from accel.indexes.zonemap import Zonemap as Zonemap
    from accel.predicate.prune import Evidence as Evidence

_NAMES = {
    "accel.indexes.bitmap": ("Bitmap",),
    "accel.indexes.bloom": ("Bloom",),
    "accel.indexes.distinct": ("Distinct",),
    "accel.indexes.kind": (
        *("ChunkValues", "IndexBuilder", "IndexKind", "Level", "ParsedIndex", "PartedIndex", "Presence"),
    ),
    "accel.indexes.native": ("native_values",),
    "accel.indexes.ngram": ("Ngram",),
    "accel.indexes.question": ("LeafOp", "LeafQuestion"),
    "accel.indexes.registry": ("kinds", "register_index"),
    "accel.indexes.sketch": ("Sketch",),
    "accel.indexes.zonemap": ("Zonemap",),
    "accel.predicate.prune": ("Evidence",),
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names}

__all__ = sorted(_MODULES)  # noqa: PLE0605 - a list, of what is above


def __getattr__(name: str) -> object:
    import importlib

    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module 'accel.indexes' has no attribute {name!r}")
    value = getattr(importlib.import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
