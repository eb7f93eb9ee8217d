"""Threads that decode while the I/O loop goes on."""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ParamSpec, Self, TypeVar

import pyarrow as pa
from cachetools import LRUCache

from accel.errors import AccelError, refuse_unforeseen
from accel.memory import choose_pool, pool, unused_of
from accel.planning.pages import Piece
from accel.planning.selection import RowSelection
from accel.planning.task import ScanTask
from accel.store.threads import Threads

if TYPE_CHECKING:
    from accel.decode.chunks import LeafBytes
    from accel.decode.stack import Layer

__all__ = [
    "DecodePiece",
    "DecodePool",
    "DecodeStack",
    "MatchPiece",
    "release_now_and_then",
]

P = ParamSpec("P")
R = TypeVar("R")


class DecodePool:
    """A thread pool, its threads started as they are needed.

    Parameters
    ----------
    threads : int
        0 means one a core (`options.decode_threads`).

    pyarrow lets go of the GIL while it decodes, so that threads help.
    """

    def __init__(self, threads: int = 0) -> None:
        self.threads = threads or _count_cores()
        self._threads = Threads("accel-decode", self.threads, patience=_PATIENCE)
        weakref.finalize(self, self._threads.end).atexit = False

    @classmethod
    def shared(cls, threads: int = 0) -> DecodePool:
        """The process's pool of that many threads. Nobody closes it: its threads end with the process, or once nobody
        holds it and some of other sizes were asked for since."""
        # A scan begins: whose memory it is put into may have been settled anew.
        choose_pool()
        # By process: the threads of a pool do not survive a fork.
        process = os.getpid()
        with _shared_lock:
            found = _recent.get((process, threads))
            if found is None:
                # To count cores takes longer than all else here.
                counted = threads or _count_cores()
                found = _alive.get((process, counted))
                if found is None:
                    found = _alive[process, counted] = cls(counted)
                _recent[process, threads] = found
            return found

    async def run(self, fn: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Call `fn` on a thread of the pool: see `Threads.run`."""
        return await self._threads.run(fn, *args, **kwargs)

    def begin(self, fn: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> asyncio.Future[R]:
        """See `Threads.begin`."""
        return self._threads.begin(fn, *args, **kwargs)

    def close(self) -> None:
        """See `Threads.close`."""
        self._threads.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def release_now_and_then(nbytes: int) -> None:
    """Give back what Arrow's allocator keeps for this thread when that may be much; told what is decoded next.

    Not each time: what was given back is met again as fresh pages of the system, and each costs more than what is
    decoded into it.
    """
    total = getattr(_decoded, "nbytes", 0) + nbytes
    if total >= _LOOK_EVERY:
        total = 0
        if _slack.is_much():
            (pool() or pa.default_memory_pool()).release_unused()
            _slack.settle()
    _decoded.nbytes = total


class _Slack:
    """What the process holds beyond what Arrow says is in use, less what that was at its least.

    The least is what others than Arrow hold: the interpreter, libraries, the caller.
    """

    def __init__(self) -> None:
        self._least: int | None = None

    def is_much(self) -> bool:
        """Whether the allocator seems to keep more than it may; yes where the system does not tell."""
        beside = _beside_arrow()
        if beside is None:
            return True
        if self._least is None or beside < self._least:
            self._least = beside
        return beside - self._least > _MOST_UNUSED

    def settle(self) -> None:
        """After a release: if as much is held still, it is somebody else's who has come to hold more."""
        beside = _beside_arrow()
        if beside is not None and self._least is not None:
            self._least = max(self._least, beside - _MOST_UNUSED)


def _beside_arrow() -> int | None:
    try:
        with open("/proc/self/statm", "rb") as file:
            resident = int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return None
    return unused_of(resident)


# Seconds; what a piece takes to decode is far less.
_PATIENCE = 10.0
_LOOK_EVERY = 128 << 20
_MOST_UNUSED = 128 << 20
_decoded = threading.local()
_slack = _Slack()
# Sizes that are kept while nobody uses them, as the next scan will.
_MOST_SHARED = 8
_recent: LRUCache[tuple[int, int], DecodePool] = LRUCache(_MOST_SHARED)
_alive: weakref.WeakValueDictionary[tuple[int, int], DecodePool] = weakref.WeakValueDictionary()
_shared_lock = threading.Lock()


def _count_cores() -> int:
    try:
        return max(1, len(os.sched_getaffinity(0)))
    except AttributeError:
        # Not on macOS and Windows.
        return os.cpu_count() or 1


@dataclass(frozen=True, slots=True)
class DecodePiece:
    """`decode_piece` of what was fetched of one."""

    task: ScanTask
    piece: Piece
    leaves: Mapping[int, LeafBytes]
    batch_rows: int
    memory_limit: int
    verify_checksums: bool
    found: list[RowSelection] | None
    left: list[int]
    """Given the leaves that a direct decoder left to pyarrow."""

    def __call__(self) -> list[pa.RecordBatch]:
        from accel.decode.piece import decode_piece

        try:
            with refuse_unforeseen(f"row group {self.task.row_group}"):
                return decode_piece(
                    self.task,
                    self.piece,
                    self.leaves,
                    batch_rows=self.batch_rows,
                    memory_limit=self.memory_limit,
                    verify_checksums=self.verify_checksums,
                    found=self.found,
                    left=self.left,
                )
        except AccelError as error:
            raise error.of(self.task.file.url) from error.__cause__


@dataclass(frozen=True, slots=True)
class MatchPiece:
    """`match_piece` of what was fetched of one."""

    task: ScanTask
    piece: Piece
    leaves: Mapping[int, LeafBytes]
    memory_limit: int
    verify_checksums: bool
    left: list[int]

    def __call__(self) -> RowSelection:
        from accel.decode.piece import match_piece

        try:
            with refuse_unforeseen(f"row group {self.task.row_group}"):
                return match_piece(
                    self.task,
                    self.piece,
                    fetched=self.leaves,
                    memory_limit=self.memory_limit,
                    verify_checksums=self.verify_checksums,
                    left=self.left,
                )
        except AccelError as error:
            raise error.of(self.task.file.url) from error.__cause__


@dataclass(frozen=True, slots=True)
class DecodeStack:
    """`decode_stack` of what was fetched of several."""

    layers: Sequence[Layer]
    batch_rows: int
    memory_limit: int
    verify_checksums: bool

    def __call__(self) -> list[pa.RecordBatch] | None:
        from accel.decode.stack import decode_stack

        return decode_stack(
            self.layers,
            batch_rows=self.batch_rows,
            memory_limit=self.memory_limit,
            verify_checksums=self.verify_checksums,
        )
