"""A directory of entries that outlive the process, shared by all processes of one user on one machine.

It is a cache and no more: nothing that goes wrong with it is an error, and nobody waits for anybody. An entry
appears whole by a rename; one that vanishes while it is looked at was not there.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
import threading
import time
from collections.abc import Iterator
from dataclasses import replace

from accel.cache.disk_entry import Kept, decode, encode

__all__ = ["Disk"]

_ENTRY = re.compile(r"[0-9a-f]{64}\.meta")
_UNFINISHED = re.compile(r"\.[0-9a-f]{64}\.[0-9a-f]{16}\.tmp")
# A file that no writer can still be at.
_ABANDONED_SECONDS = 600.0
# The directory is looked through again after so large a part of the limit was written from here, for
# others write too; what must go goes at once with as much more.
_LOOK_AGAIN = 32
_HEADROOM = 16


class Disk:
    """The entries in one directory, the least recently used going first. For use by several threads.

    Parameters
    ----------
    directory : str
        Made when first written to, for its owner alone. One that others can write to is not used.
    limit : int
        Bytes that all entries together may have.
    """

    def __init__(self, directory: str, *, limit: int) -> None:
        self._directory = os.path.abspath(os.path.expanduser(directory))
        self._limit = limit
        self._lock = threading.Lock()
        # What the entries hold, as far as is known here, and what of it was written since the last look.
        self._total: int | None = None
        self._since = 0
        self._problem: str | None = None
        self._told = False
        self.hits = 0
        self.misses = 0

    def read(self, key: bytes) -> Kept | None:
        """The entry of a key, which is then the most recently used; None where there is none to be used."""
        try:
            if not self._usable(create=False):
                return None
            flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
            with open(os.open(self._path(key), flags), "rb") as file:
                found = os.fstat(file.fileno())
                if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
                    return None
                blob = file.read(found.st_size + 1) if found.st_size <= self._limit else b""
                kept = decode(blob, key)
                if kept is None:
                    self._note(f"an entry of the cache directory {self._directory} is damaged, and not used")
                    return None
                with contextlib.suppress(OSError):  # read-only, it serves all the same
                    os.utime(file.fileno())
        except FileNotFoundError:
            return None
        except OSError as error:
            self._fail(error)
            return None
        return kept

    def write(self, key: bytes, kept: Kept) -> None:
        """Keep an entry, in place of what was there; one above the limit is not kept."""
        blob = encode(kept, key)
        if len(blob) > self._limit:
            return
        try:
            if not self._usable():
                return
            self._make_room(len(blob))
            self._put(key, blob)
        except OSError as error:
            self._fail(error)

    def confirm(self, key: bytes, etag: str, checked_at: float) -> None:
        """Note that the store has said of this version, at that time, that it is the current one."""
        kept = self.read(key)
        if kept is not None and kept.etag == etag and kept.checked_at < checked_at:
            self.write(key, replace(kept, checked_at=checked_at))

    def drop(self, key: bytes) -> None:
        """Remove one entry, if it is there."""
        with contextlib.suppress(OSError):
            if self._usable(create=False):
                os.unlink(self._path(key))

    def clear(self) -> None:
        """Remove all entries, whichever process they are of."""
        with contextlib.suppress(OSError):
            if self._usable(create=False):
                for _, _, path in self._entries():
                    with contextlib.suppress(OSError):
                        os.unlink(path)
        with self._lock:
            self._total = None

    def nbytes(self) -> int:
        """What all entries hold now."""
        with contextlib.suppress(OSError):
            return sum(size for _, size, _ in self._entries())
        return 0

    def count(self, *, hit: bool) -> None:
        """Count one look that did, or did not, save the reading of a file's metadata."""
        with self._lock:
            self.hits += hit
            self.misses += not hit

    def problem(self) -> str | None:
        """The first thing that went wrong, told once."""
        with self._lock:
            if self._problem is None or self._told:
                return None
            self._told = True
            return self._problem

    def _path(self, key: bytes) -> str:
        return os.path.join(self._directory, f"{key.hex()}.meta")

    def _usable(self, *, create: bool = True) -> bool:
        """Whether nobody else can have put anything there: who writes entries decides what rows come out."""
        try:
            found = os.stat(self._directory)
        except FileNotFoundError:
            if not create:
                return False
            os.makedirs(self._directory, mode=0o700, exist_ok=True)
            found = os.stat(self._directory)
        if not stat.S_ISDIR(found.st_mode):
            self._note(f"{self._directory} is no directory: nothing is cached there")
            return False
        if found.st_uid != os.geteuid() or found.st_mode & 0o022:
            self._note(
                f"others can write to {self._directory}: nothing is cached there "
                "(name a directory in it that does not exist yet)"
            )
            return False
        return True

    def _put(self, key: bytes, blob: bytes) -> None:
        beside = os.path.join(self._directory, f".{key.hex()}.{os.urandom(8).hex()}.tmp")
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
        handle = os.open(beside, flags, 0o600)
        try:
            with open(handle, "wb") as file:
                file.write(blob)
            os.replace(beside, self._path(key))
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(beside)
            raise

    def _make_room(self, incoming: int) -> None:
        """Remove what was used the longest ago until there is room for so many bytes more."""
        with self._lock:
            self._since += incoming
            if self._total is not None and self._since <= self._limit // _LOOK_AGAIN:
                self._total += incoming
                if self._total <= self._limit:
                    return
            entries = sorted(self._entries())
            total = sum(size for _, size, _ in entries) + incoming
            if total > self._limit:
                goal = max(self._limit - self._limit // _HEADROOM, incoming)
                for _, size, path in entries:
                    if total <= goal:
                        break
                    with contextlib.suppress(OSError):
                        os.unlink(path)
                    total -= size
            self._total, self._since = total, 0

    def _entries(self) -> Iterator[tuple[int, int, str]]:
        """When each entry was used last, its bytes, its path; what is not ours is passed over."""
        abandoned = time.time() - _ABANDONED_SECONDS
        with os.scandir(self._directory) as listing:
            for item in listing:
                with contextlib.suppress(OSError):
                    if _ENTRY.fullmatch(item.name):
                        found = item.stat(follow_symlinks=False)
                        yield found.st_mtime_ns, found.st_size, item.path
                    elif (
                        _UNFINISHED.fullmatch(item.name)
                        and item.stat(follow_symlinks=False).st_mtime < abandoned
                    ):
                        os.unlink(item.path)

    def _fail(self, error: OSError) -> None:
        self._note(f"the cache directory {self._directory} cannot be used: {error.strerror or error}")

    def _note(self, problem: str) -> None:
        with self._lock:
            self._problem = self._problem or problem
