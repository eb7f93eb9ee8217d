"""What the first scan of a process needs once its bytes have come, loaded while they are on their way.

Else a first lookup loads the modules that bind, decode and evaluate, and Arrow's kernels, before its round trips,
between them and after them: some 25 ms, which the network leaves free.
"""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING

from accel.store.location import LOCAL_ROOT

if TYPE_CHECKING:
    from accel.store.client import Client
    from accel.store.fetch import Gate

__all__ = ["load_ahead"]

# Seconds; what is under way has been sent by then.
_AFTER = 0.002
# How often nothing may be under way before it is left to whoever needs it.
_LOOKS = 200
# In the order in which they are needed; each after what it imports, so that none holds up the loop for long.
_BINDING = ("accel.predicate.resolve", "accel.predicate.coerce", "accel.predicate.bind")
_READING = (
    "accel.cache.byte_tier",
    "accel.decode.dictionary",
    "accel.decode.entries",
    "accel.decode.texts",
    "accel.decode.picks",
    "accel.decode.columns",
    "accel.decode.piece",
    "accel.decode.mixed",
    "pyarrow._compute",
)
_FILTERING = ("accel.predicate.evaluate",)

_binding, _reading, _filtering = deque(_BINDING), deque(_READING), deque(_FILTERING)
# On which loop somebody looks already, for a scan with a filter or without: a thousand scans need no more.
_looking: dict[bool, asyncio.AbstractEventLoop] = {}


def load_ahead(client: Client, where: object) -> None:
    """On the I/O loop, as a scan begins to read of a store: load the rest of what it needs, with `where` or without.

    Not where the store is this machine, which leaves no time for it.
    """
    filtered = where is not None
    if client.root == LOCAL_ROOT or not any(_wanted(filtered)):
        return
    loop = asyncio.get_running_loop()
    if _looking.get(filtered) is not loop:
        _looking[filtered] = loop
        loop.call_later(_AFTER, _load_next, client.gate, filtered, _LOOKS)


def _wanted(filtered: bool) -> Sequence[deque[str]]:
    return (_binding, _reading, _filtering) if filtered else (_reading,)


def _load_next(gate: Gate, filtered: bool, looks: int) -> None:
    """One module while a request is under way, then whatever has come, then the next."""
    wanted = _wanted(filtered)
    for modules in wanted:
        # Where there was no time for it, whoever needed it has loaded it.
        while modules and modules[0] in sys.modules:
            modules.popleft()
    left = next(filter(None, wanted), None)
    if left is None or not looks:
        _looking.pop(filtered, None)
        return
    loop = asyncio.get_running_loop()
    if gate.requests:
        import_module(left.popleft())
        loop.call_soon(_load_next, gate, filtered, looks)
    else:
        # What has come is seen to first.
        loop.call_later(_AFTER, _load_next, gate, filtered, looks - 1)
