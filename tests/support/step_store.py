"""A directory as a store whose changes are numbered, by whichever process they are made, and at one of which
a job dies.

The number of a change is settled under a lock of a file, so that a driver and the workers of Spark count
together. From the chosen change on none is made any more, as if a machine had gone with all of its processes.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

from accel.errors import ObjectChangedError
from accel.store.local_store import FileStore, etag_of, write_beside

__all__ = ["ChangeStore", "Killed", "StepStore"]


class Killed(BaseException):
    """The process ends here."""


class ChangeStore(FileStore):
    """The base of directories that do something else at a change, which `_change` is told of before it is
    made."""

    async def write(
        self,
        path: str,
        parts: AsyncIterator[bytes],
        *,
        size: int,
        if_match: str | None = None,
        if_absent: bool = False,
    ) -> None:
        write = super().write
        await self._change(
            f"write {path}", lambda: write(path, parts, size=size, if_match=if_match, if_absent=if_absent)
        )

    async def remove(self, path: str) -> None:
        remove = super().remove
        await self._change(f"remove {path}", lambda: remove(path))

    async def move(self, path: str, to: str) -> None:
        move = super().move
        await self._change(f"move {path}", lambda: move(path, to))

    async def _change(self, what: str, make: Callable[[], Awaitable[None]]) -> None:
        await make()


class StepStore(ChangeStore):
    """The files below `root`. What happened so far, and where it ends, is in the file `state`, and not in the
    object, which pickles."""

    def __init__(self, root: Path, state: Path) -> None:
        super().__init__(str(root))
        self._state = str(state)
        if not state.exists():
            self._save({"steps": [], "dies_at": None, "makes_the_last": False, "dead": False, "group": None})

    def arm(self, dies_at: int | None, *, makes_the_last: bool = False, group: int | None = None) -> None:
        """Count from 0 again, and die at a change; `group` is a process group that really is killed then."""
        self._save(
            {"steps": [], "dies_at": dies_at, "makes_the_last": makes_the_last, "dead": False, "group": group}
        )

    @property
    def steps(self) -> list[str]:
        """The changes since it was armed."""
        with self._locked() as state:
            return list(state["steps"])

    async def _change(self, what: str, make: Callable[[], Awaitable[None]]) -> None:
        with self._locked() as state:
            dead, dies = state["dead"], len(state["steps"]) == state["dies_at"]
            if not dead:
                state["steps"].append(what)
                state["dead"] = dies
        if not dead and (not dies or state["makes_the_last"]):
            await make()
        if dies and state["group"] is not None:
            os.killpg(state["group"], signal.SIGKILL)
        if dead or dies:
            if state["group"] is not None:
                await asyncio.sleep(60)  # until the signal comes
            raise Killed

    def _write(self, path: str, body: bytearray, if_match: str | None, if_absent: bool) -> None:
        """Compare and swap under one lock for all files, as objects of a table have no lock beside them."""
        with open(f"{self._state}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            target = Path(self._root, path)
            found = etag_of(target.stat()) if target.exists() else None
            if found is not None if if_absent else found != if_match:
                raise ObjectChangedError("the file was changed meanwhile", path=path)
            target.parent.mkdir(parents=True, exist_ok=True)
            with write_beside(os.path.realpath(target)) as file:
                file.write(body)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[dict[str, Any]]:
        with open(self._state, "r+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            state = json.load(file)
            yield state
            file.seek(0)
            json.dump(state, file)
            file.truncate()

    def _save(self, state: dict[str, Any]) -> None:
        with open(self._state, "w") as file:
            json.dump(state, file)
