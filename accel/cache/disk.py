"""The disk tier of the cache: file metadata in a directory that all processes of one user share.

Nothing that goes wrong with the directory is an error, and no process waits for another.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import stat
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass

from accel.errors import AccelError
from accel.planning.handle import FileHandle
from accel.planning.read_request import Steps, Tail
from accel.ranges import Stash
from accel.runtime.forks import lock_over_forks
from accel.versions import is_weak

__all__ = ["Disk", "StoredMetadata", "decode_bytes", "encode_bytes", "entry_key"]

_ENTRY = re.compile(r"[0-9a-f]{64}\.meta")
_UNFINISHED = re.compile(r"\.[0-9a-f]{64}\.[0-9a-f]{16}\.tmp")
# An unfinished file of this age was abandoned by its writer.
_ABANDONED_SECONDS = 600.0
# The directory is listed again after this process has written 1/32 of the limit, as other processes write
# too. Eviction then frees another 1/16.
_LOOK_AGAIN = 32
_HEADROOM = 16

_MAGIC = b"AcMd"
_VERSION = 1
# Magic, version, length of the etag, key, size of the file, length of the bytes, time of the last check.
_HEAD = struct.Struct("<4sHH32sQQd")
_CHECKSUM_BYTES = 16
_MOST_ETAG_BYTES = 1024


def entry_key(token: str, path: str) -> bytes:
    """Return 32 bytes that identify a file and the credentials that read it, and reveal neither."""
    import hashlib

    name = f"{len(token)}:{token}{path}".encode("utf-8", "surrogatepass")
    return hashlib.blake2b(name, digest_size=32, person=b"accel-metadata").digest()


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredMetadata:
    """The metadata of one version of a file: the bytes that its handle is parsed from.

    An encoded entry has a head of fixed length, the etag, the last bytes of the file, and a checksum of all
    these.
    """

    etag: str
    """Strong, as the store wrote it."""
    size: int
    """The size of the whole file, in bytes."""
    data: bytes
    """The last bytes of the file: page indexes that were read with the footer, and the footer; all of a small
    file."""
    checked_at: float
    """When the store last confirmed that this version is current (`time.time`, in seconds)."""

    @classmethod
    def of(
        cls, handle: FileHandle, answers: list[Stash | Tail], *, checked_at: float
    ) -> StoredMetadata | None:
        """Return the metadata of a file that was just opened with these answers; None without a strong
        etag."""
        etag, size = handle.id.etag, handle.id.size
        if etag is None or not _is_strong(etag) or not answers or not isinstance(answers[0], Tail):
            return None
        tail = answers[0]
        if handle.tail_start >= tail.start:
            data = bytes(tail.data[handle.tail_start - tail.start :])
        else:
            # The tail was too short, and the other answer holds the beginning of the footer.
            parts = (
                part for answer in answers[1:] if not isinstance(answer, Tail) for part in answer.values()
            )
            data = b"".join((*map(bytes, parts), bytes(tail.data)))
        if len(data) != size - handle.tail_start:
            return None
        return cls(etag=etag, size=size, data=data, checked_at=checked_at)

    def encode(self, key: bytes) -> bytes:
        """Return the bytes of an entry; `key` is stored with them."""
        etag = self.etag.encode("utf-8", "surrogatepass")
        head = _HEAD.pack(_MAGIC, _VERSION, len(etag), key, self.size, len(self.data), self.checked_at)
        body = b"".join((head, etag, self.data))
        return body + _checksum(body)

    @classmethod
    def decode(cls, entry: bytes, key: bytes) -> StoredMetadata | None:
        """Return the content of an entry; None unless it is whole, undamaged, and was stored under `key`."""
        if len(entry) < _HEAD.size + _CHECKSUM_BYTES:
            return None
        magic, version, etag_length, own_key, size, length, checked_at = _HEAD.unpack_from(entry)
        if (magic, version, own_key) != (_MAGIC, _VERSION, key):
            return None
        start = _HEAD.size + etag_length
        if len(entry) != start + length + _CHECKSUM_BYTES or length > size or not math.isfinite(checked_at):
            return None
        if _checksum(memoryview(entry)[:-_CHECKSUM_BYTES]) != entry[-_CHECKSUM_BYTES:]:
            return None
        try:
            etag = entry[_HEAD.size : start].decode("utf-8", "surrogatepass")
        except UnicodeDecodeError:
            return None
        data = entry[start : start + length]
        return cls(etag=etag, size=size, data=data, checked_at=checked_at) if _is_strong(etag) else None

    @property
    def tail(self) -> Tail:
        """The bytes, as they would come from the store."""
        return Tail(memoryview(self.data), self.size - len(self.data), self.size, self.etag)

    def reopen(self, steps: Steps[FileHandle]) -> FileHandle | None:
        """Return the handle that the steps which open a file make of these bytes; None if they ask for
        more."""
        try:
            next(steps)
            steps.send(self.tail)
        except StopIteration as done:
            handle: FileHandle = done.value
            return handle
        except AccelError:
            return None
        steps.close()
        return None


_BYTES_MAGIC = b"AcTb"
# Magic, version, key, length of the bytes.
_BYTES_HEAD = struct.Struct("<4sH32sQ")


def encode_bytes(data: bytes | memoryview, key: bytes) -> bytes:
    """Return the entry of bytes that never change; `key` is stored with them."""
    body = b"".join((_BYTES_HEAD.pack(_BYTES_MAGIC, _VERSION, key, len(data)), data))
    return body + _checksum(body)


def decode_bytes(entry: bytes, key: bytes) -> memoryview | None:
    """Return the bytes of such an entry; None unless it is whole, undamaged, and was stored under `key`."""
    if len(entry) < _BYTES_HEAD.size + _CHECKSUM_BYTES:
        return None
    magic, version, own_key, length = _BYTES_HEAD.unpack_from(entry)
    end = _BYTES_HEAD.size + length
    if (magic, version, own_key) != (_BYTES_MAGIC, _VERSION, key) or len(entry) != end + _CHECKSUM_BYTES:
        return None
    if _checksum(memoryview(entry)[:end]) != entry[end:]:
        return None
    return memoryview(entry)[_BYTES_HEAD.size : end]


def _is_strong(etag: str) -> bool:
    return bool(etag.strip('"')) and not is_weak(etag) and len(etag) <= _MOST_ETAG_BYTES


def _checksum(data: bytes | memoryview) -> bytes:
    import hashlib

    return hashlib.blake2b(data, digest_size=_CHECKSUM_BYTES).digest()


class Disk:
    """Entries in a directory, bounded in bytes; the least recently used is evicted first.

    Its methods block, raise nothing, and may be called from any thread. An entry appears whole, by a rename.

    Parameters
    ----------
    directory : str
        Created at the first write, for its owner alone. It is not used if others can write to it.
    limit : int
        Bytes that all entries together may take.
    """

    def __init__(self, directory: str, *, limit: int) -> None:
        self.directory = os.path.abspath(os.path.expanduser(directory))
        self._limit = limit
        self._lock = lock_over_forks()
        # Bytes of all entries, as far as this process knows, and bytes written since the directory was
        # listed.
        self._total: int | None = None
        self._since = 0
        self._problem: str | None = None
        self._is_reported = False
        self.hits = 0
        self.misses = 0

    def __str__(self) -> str:
        return f"directory {self.directory}"

    def get(self, key: bytes) -> bytes | None:
        """Return the entry of a key, which is then the most recently used; None if there is none."""
        try:
            if not self._usable(create=False):
                return None
            flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
            with open(os.open(self._path(key), flags), "rb") as file:
                found = os.fstat(file.fileno())
                if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
                    return None
                entry = file.read(found.st_size + 1) if found.st_size <= self._limit else b""
                with contextlib.suppress(OSError):  # a read-only directory serves all the same
                    os.utime(file.fileno())
        except FileNotFoundError:
            return None
        except OSError as error:
            self._fail(error)
            return None
        return entry

    def put(self, key: bytes, entry: bytes) -> None:
        """Store an entry in place of any earlier one, unless it exceeds the limit by itself."""
        if len(entry) > self._limit:
            return
        try:
            if not self._usable():
                return
            self._make_room(len(entry))
            self._write(key, entry)
        except OSError as error:
            self._fail(error)

    def drop(self, key: bytes) -> None:
        """Remove one entry, if it is there."""
        with contextlib.suppress(OSError):
            if self._usable(create=False):
                os.unlink(self._path(key))

    def clear(self) -> None:
        """Remove all entries, whichever process wrote them."""
        with contextlib.suppress(OSError):
            if self._usable(create=False):
                for _, _, path in self._entries():
                    with contextlib.suppress(OSError):
                        os.unlink(path)
        with self._lock:
            self._total = None

    def nbytes(self) -> int:
        """Return the bytes of all entries."""
        with contextlib.suppress(OSError):
            return sum(size for _, size, _ in self._entries())
        return 0

    def count(self, *, hit: bool) -> None:
        """Count one lookup that did, or did not, save reading the metadata of a file."""
        with self._lock:
            self.hits += hit
            self.misses += not hit

    def note(self, problem: str) -> None:
        """Remember that something is wrong with the directory, or with an entry."""
        with self._lock:
            self._problem = self._problem or problem

    def problem(self) -> str | None:
        """Return the first thing that went wrong, once."""
        with self._lock:
            if self._problem is None or self._is_reported:
                return None
            self._is_reported = True
            return self._problem

    def _path(self, key: bytes) -> str:
        return os.path.join(self.directory, f"{key.hex()}.meta")

    def _usable(self, *, create: bool = True) -> bool:
        """Return whether only this user can have written entries: a forged one could change the rows of a
        scan."""
        try:
            found = os.stat(self.directory)
        except FileNotFoundError:
            if not create:
                return False
            os.makedirs(self.directory, mode=0o700, exist_ok=True)
            found = os.stat(self.directory)
        if not stat.S_ISDIR(found.st_mode):
            self.note(f"{self.directory} is no directory: nothing is cached there")
            return False
        if found.st_uid != os.geteuid() or found.st_mode & 0o022:
            self.note(
                f"others can write to {self.directory}: nothing is cached there "
                "(name a directory in it that does not exist yet)"
            )
            return False
        return True

    def _write(self, key: bytes, entry: bytes) -> None:
        beside = os.path.join(self.directory, f".{key.hex()}.{os.urandom(8).hex()}.tmp")
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
        handle = os.open(beside, flags, 0o600)
        try:
            with open(handle, "wb") as file:
                file.write(entry)
            os.replace(beside, self._path(key))
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(beside)
            raise

    def _make_room(self, incoming: int) -> None:
        """Evict the least recently used entries until there is room for `incoming` more bytes."""
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
        """Yield the time of last use, the bytes and the path of each entry; other files are passed over."""
        abandoned = time.time() - _ABANDONED_SECONDS
        with os.scandir(self.directory) as listing:
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
        self.note(f"the cache directory {self.directory} cannot be used: {error.strerror or error}")
