"""Small pieces of many files that are alike: those that are in memory at about the same time are decoded
together.

The first of them waits for others, as long as some come with each step of the event loop, and decodes all. A
file that is decoded by itself costs some hundred microseconds of Python, however few its rows are.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeAlias

import pyarrow as pa

from accel.planning.task import ScanTask
from accel.reader.task_reads import PieceRead
from accel.store.gate import Slot

if TYPE_CHECKING:
    from accel.decode.stack import Layer, StackKind

__all__ = ["AlikePieces"]

Decode: TypeAlias = "Callable[[Sequence[Layer]], Awaitable[list[list[pa.RecordBatch]] | None]]"
"""Returns the batches of each layer; None where each has to be decoded by itself."""
_Batches: TypeAlias = "list[pa.RecordBatch] | None"

LEAST: Final = 4
"""Pieces below which they are decoded one by one: see `decode.stack`."""
MOST: Final = 64
_MOST_BYTES: Final = 2 << 20
"""Bytes of the pieces in memory, so that other threads have some to decode as well."""
_IDLE_STEPS: Final = 3
"""Steps of the event loop without another piece, after which no more are waited for."""


@dataclass(frozen=True, slots=True, eq=False)
class _Group:
    """Pieces that wait to be decoded together."""

    layers: list[Layer] = field(default_factory=list)
    others: list[asyncio.Future[_Batches]] = field(default_factory=list)
    """The results of all pieces but the first."""

    def is_full(self) -> bool:
        held = sum(layer.piece.held_bytes for layer in self.layers)
        return len(self.layers) >= MOST or held >= _MOST_BYTES

    def deliver(self, found: Sequence[_Batches]) -> None:
        """Hand out the results of all pieces but the first; those that were cancelled are passed over."""
        for other, batches in zip(self.others, found, strict=True):
            if not other.done():
                other.set_result(batches)


class AlikePieces:
    """Decodes the small pieces of one scan's files. It is used on one event loop.

    Parameters
    ----------
    decode : callable
    """

    def __init__(self, decode: Decode) -> None:
        self._decode = decode
        self._open: dict[Hashable, _Group] = {}

    async def decode(self, task: ScanTask, read: PieceRead, permit: Slot | None) -> _Batches:
        """Return the batches of a piece, decoded with others; None where it has to be decoded by itself.

        `permit` is taken by the piece that decodes for the others.
        """
        from accel.decode.stack import Layer, stack_kind

        kind = stack_kind(task, read.piece)
        if kind is None:
            return None
        key, layer = _key(task, kind), Layer(task, read.piece, read.leaves)
        group = self._open.get(key)
        if group is not None:
            group.layers.append(layer)
            group.others.append(asyncio.get_running_loop().create_future())
            return await group.others[-1]
        group = self._open[key] = _Group([layer])
        found: Sequence[_Batches] | None = None
        try:
            try:
                await _filled(group)
            finally:
                del self._open[key]
            if len(group.layers) >= LEAST:
                found = await self._decoded(group, permit)
        finally:
            # Where this piece is cancelled, each of the others is decoded by itself.
            group.deliver([None] * len(group.others) if found is None else found[1:])
        return None if found is None else found[0]

    async def _decoded(self, group: _Group, permit: Slot | None) -> Sequence[_Batches] | None:
        if permit is None:
            return await self._decode(group.layers)
        async with permit:
            return await self._decode(group.layers)


async def _filled(group: _Group) -> None:
    """Wait until a group is full, or no more pieces come."""
    idle = 0
    while idle < _IDLE_STEPS and not group.is_full():
        before = len(group.layers)
        await asyncio.sleep(0)
        idle = idle + 1 if len(group.layers) == before else 0


def _key(task: ScanTask, kind: StackKind) -> Hashable:
    """Return what files share of which pieces are decoded together. What is compiled for one schema is one
    object in all files that have it."""
    file = task.file
    shared = id(file.schema), id(file.arrow_schema), id(file.query)
    return *shared, file.created_by, file.int96_unit, tuple(file.key_value.items()), kind
