"""What a forked child does with the runtime of its parent.

Threads do not survive a fork, so the child makes itself a new I/O loop, new threads and new connections. What
it inherits of these is neither used nor closed, as the parent goes on with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import selectors
import socket
import sys
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

__all__ = ["FORK_HINT", "abandon_loop", "keep_for_ever", "lock_over_forks", "renew_in_child"]

FORK_HINT = "use multiprocessing's spawn or forkserver, or fork before the first use"
# Seconds that a fork waits for all locks together, which are held for microseconds, and for the imports of
# other threads, and between two looks at these.
_LOCK_SECONDS = 1.0
_IMPORT_SECONDS = 2.0
_IMPORT_LOOK = 0.002


class _Forks:
    """The locks and the resets of this process."""

    def __init__(self) -> None:
        self.locks: weakref.WeakSet[threading.Lock] = weakref.WeakSet()
        self.held: list[threading.Lock] = []
        self.resets: list[weakref.WeakMethod[Callable[[], object]]] = []

    def before(self) -> None:
        """Take all locks, so that what they guard is whole in the child.

        No lock is waited for without end: the thread that forks may hold one itself. Modules that other
        threads are importing could never be imported in the child, and accel imports late.
        """
        until = time.monotonic() + _IMPORT_SECONDS
        while _others_import() and time.monotonic() < until:
            time.sleep(_IMPORT_LOOK)
        until = time.monotonic() + _LOCK_SECONDS
        for lock in list(self.locks):
            if lock.acquire(timeout=max(0.0, until - time.monotonic())):
                self.held.append(lock)

    def after_in_parent(self) -> None:
        """Give the locks back."""
        held, self.held = self.held, []
        for lock in held:
            lock.release()

    def after_in_child(self) -> None:
        """Free all locks, also those of threads that are gone, and reset what belongs to the parent."""
        self.held = []
        for lock in list(self.locks):
            if lock.locked():
                lock.release()
        for each in self.resets:
            reset = each()
            if reset is not None:
                reset()


def _others_import() -> bool:
    """Return whether other threads hold locks of Python's on modules, which a fork does not free."""
    locks = getattr(sys.modules.get("_frozen_importlib"), "_module_locks", {})
    this = threading.get_ident()
    held = (reference() for reference in list(locks.values()))
    return any(getattr(lock, "owner", None) not in (None, this) for lock in held)


_forks = _Forks()
os.register_at_fork(
    before=_forks.before,
    after_in_parent=_forks.after_in_parent,
    after_in_child=_forks.after_in_child,
)


def lock_over_forks() -> threading.Lock:
    """Return a lock that is free in a forked child. It is held briefly, and no other is taken meanwhile."""
    lock = threading.Lock()
    _forks.locks.add(lock)
    return lock


def renew_in_child(reset: Callable[[], object]) -> None:
    """Register a bound method that is called in a forked child while its object is alive."""
    _forks.resets = [each for each in _forks.resets if each() is not None]
    _forks.resets.append(weakref.WeakMethod(reset))


def keep_for_ever(inherited: object) -> None:
    """Keep an object of the parent from being finalized in this child, also when the process ends.

    Its finalizers would end connections, or remove files, that the parent uses.
    """
    with contextlib.suppress(ImportError):
        import ctypes

        ctypes.pythonapi.Py_IncRef(ctypes.py_object(inherited))


def abandon_loop(loop: asyncio.AbstractEventLoop) -> bool:
    """Cut the event loop of the parent, and all its sockets, off from what the parent has.

    The selector of Linux belongs to both processes: a socket that the child unregistered would fall silent in
    the parent. So the loop gets a selector of its own. Its sockets are replaced by one whose other end is
    closed, as farewells of TLS would else be sent between the messages of the parent. A transport outlives
    its socket, whose number another file may have by then, such as the standard input of a program that
    `subprocess` starts with `preexec_fn`: so the sockets that are open are asked for their numbers.

    Returns
    -------
    bool
        False for a loop of another kind than asyncio's own, which cannot be abandoned.
    """
    if not isinstance(loop, asyncio.SelectorEventLoop):
        return False
    inner: Any = loop
    keep_for_ever((loop, inner._selector))
    sockets = [getattr(transport, "_sock", None) for transport in list(inner._transports.values())]
    inner._selector = selectors.DefaultSelector()
    nowhere, other_end = socket.socketpair()
    other_end.close()
    for each in sockets:
        if each is not None and each.fileno() >= 0:
            with contextlib.suppress(OSError):
                os.dup2(nowhere.fileno(), each.fileno(), inheritable=False)
    nowhere.close()
    return True
