"""A directory as a store by which a process of a Spark job is killed, or slowed, the first time that it does
a certain thing."""

from __future__ import annotations

import asyncio
import enum
import os
import signal
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from accel.ranges import ByteRange, Suffix
from accel.store.local_store import FileStore
from accel.store.range_store import Payload

__all__ = ["HinderedStore", "Hindrance"]


class Hindrance(enum.StrEnum):
    """What happens to the process."""

    WORKER_KILLED = "worker killed"
    EXECUTOR_KILLED = "executor killed"
    SLOW = "slow"


class HinderedStore(FileStore):
    """The files below `root`. It pickles.

    Parameters
    ----------
    root : Path
    marks : Path
        A directory that tells all processes what has happened.
    hindrance : Hindrance
    at : str
        "read" or "write": after the first of these in any process but this one.
    seconds : float
        How long a slow process waits.
    """

    def __init__(
        self, root: Path, marks: Path, hindrance: Hindrance, *, at: str, seconds: float = 30.0
    ) -> None:
        super().__init__(str(root))
        self._mark = str(marks / f"{hindrance} at {at}")
        self._hindrance, self._at, self._seconds = hindrance, at, seconds
        self._driver = os.getpid()

    @property
    def has_happened(self) -> bool:
        """Whether a process was hindered."""
        return os.path.exists(self._mark)

    async def read(self, path: str, want: ByteRange | Suffix, *, if_match: str | None = None) -> Payload:
        found = await super().read(path, want, if_match=if_match)
        await self._hinder("read")
        return found

    async def gather_ranges(
        self, path: str, wants: Sequence[ByteRange], *, if_match: str | None = None
    ) -> Sequence[Payload]:
        found = await super().gather_ranges(path, wants, if_match=if_match)
        await self._hinder("read")
        return found

    async def write(
        self,
        path: str,
        parts: AsyncIterator[bytes],
        *,
        size: int,
        if_match: str | None = None,
        if_absent: bool = False,
    ) -> None:
        await super().write(path, parts, size=size, if_match=if_match, if_absent=if_absent)
        await self._hinder("write")

    async def _hinder(self, what: str) -> None:
        if what != self._at or os.getpid() == self._driver:
            return
        try:
            os.close(os.open(self._mark, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return
        if self._hindrance is Hindrance.SLOW:
            await asyncio.sleep(self._seconds)
            return
        if self._hindrance is Hindrance.EXECUTOR_KILLED:
            os.kill(_parent(os.getppid()), signal.SIGKILL)
        else:
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(60)  # noqa: ASYNC251 (the process ends here)


def _parent(pid: int) -> int:
    """Return the parent of a process: of a daemon of Python workers, the executor."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
