"""What the first scan of a process needs once its bytes have come, loaded while they are on their way.

Else a first lookup loads the modules that bind, evaluate and decode, and Arrow's kernels, between its round trips and
after them: some 20 ms, which the network leaves free.
"""

from __future__ import annotations

import asyncio
from collections import deque
from importlib import import_module

__all__ = ["load_ahead"]

_LOCAL = "file://"
# What is under way has been sent by then.
_AFTER = 0.002
# In the order in which they are needed; each after what it imports, so that none holds up the loop for long.
_MODULES = (
    "accel.predicate.resolve",
    "accel.predicate.coerce",
    "accel.predicate.bind",
    "accel.io.spans",
    "accel.io.data_cache",
    "accel.io.pool",
    "pyarrow._compute",
    "accel.predicate.evaluate",
    "accel.decode.mixed",
)
_left = deque(_MODULES)


def load_ahead(root: str, where: object) -> None:
    """On the I/O loop, as a scan begins to read: load the rest of what one with a condition needs.

    Not where the store is this machine, which leaves no time for it.
    """
    if _left and where is not None and root != _LOCAL:
        asyncio.get_running_loop().call_later(_AFTER, _load_next)


def _load_next() -> None:
    """One module, then whatever has come, then the next."""
    if _left:
        import_module(_left.popleft())
        asyncio.get_running_loop().call_soon(_load_next)
