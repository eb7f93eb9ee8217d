"""Asynchronous generators of accel that were dropped before their end.

Python leaves the event loop a task that closes such a generator, at whatever moment the garbage collector
finds it: what it had under way goes on until then, and nobody waits for its end.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncGenerator
from pathlib import Path
from types import CodeType
from typing import Any

import accel
from accel.runtime import io_loop

_HOME = str(Path(accel.__file__).parent) + os.sep
_dropped: list[str] = []
_watched: list[asyncio.AbstractEventLoop] = []


def watch() -> None:
    """Note from now on what is dropped of the generators that the I/O loop has begun. A loop that was not
    started yet is watched by the test after the one that starts it."""
    loop = io_loop.loop_state.loop
    if loop is not None and loop not in _watched:
        _watched[:] = [loop]
        io_loop.run(_set_hooks())


def check() -> None:
    """Fail if any was dropped since the last call."""
    dropped, _dropped[:] = list(_dropped), []
    if dropped:
        raise AssertionError(f"generators were dropped before their end: {dropped}")


async def _set_hooks() -> None:
    close = sys.get_asyncgen_hooks().finalizer

    def note(generator: AsyncGenerator[Any, Any]) -> None:
        code: CodeType = generator.ag_code  # type: ignore[attr-defined]
        if code.co_filename.startswith(_HOME):
            _dropped.append(code.co_qualname)
        if close is not None:
            close(generator)

    sys.set_asyncgen_hooks(finalizer=note)
