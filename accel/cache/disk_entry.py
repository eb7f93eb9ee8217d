"""What is kept on disk of one version of a file: the bytes that its handle is made of again.

An entry is a head of fixed length, the etag, the file's last bytes, and a checksum over all that. Whatever
is wrong with one, it is no entry.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Generator
from dataclasses import dataclass

from accel.errors import AccelError
from accel.planning.handle import FileHandle
from accel.planning.read_request import ReadRequest, Steps, Tail, TailRequest
from accel.ranges import Stash
from accel.store.range_store import is_weak

__all__ = ["Kept", "decode", "encode", "entry_key", "kept_of", "recorded", "reopen"]

_MAGIC = b"AcMd"
_VERSION = 1
# Magic, version, length of the etag, key, size of the file, length of the bytes, time of the last check.
_HEAD = struct.Struct("<4sHH32sQQd")
_CHECKSUM_BYTES = 16
_MOST_ETAG_BYTES = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """One version of one file, as far as its metadata goes."""

    etag: str
    """Strong, as the store wrote it."""
    size: int
    """Of the whole file, in bytes."""
    data: bytes
    """The file's last bytes: page indexes where they were at hand, and the footer; all of a small file."""
    checked_at: float
    """When the store last said that this is the current version (`time.time`, in seconds)."""


def entry_key(token: str, path: str) -> bytes:
    """32 bytes that stand for one file as one set of credentials sees it, and tell neither."""
    import hashlib

    name = f"{len(token)}:{token}{path}".encode("utf-8", "surrogatepass")
    return hashlib.blake2b(name, digest_size=32, person=b"accel-metadata").digest()


def encode(kept: Kept, key: bytes) -> bytes:
    """The bytes of an entry."""
    etag = kept.etag.encode("utf-8", "surrogatepass")
    head = _HEAD.pack(_MAGIC, _VERSION, len(etag), key, kept.size, len(kept.data), kept.checked_at)
    body = b"".join((head, etag, kept.data))
    return body + _checksum(body)


def decode(blob: bytes, key: bytes) -> Kept | None:
    """What an entry says; None unless it is whole, unharmed, and the entry of that key."""
    if len(blob) < _HEAD.size + _CHECKSUM_BYTES:
        return None
    magic, version, etag_length, own_key, size, length, checked_at = _HEAD.unpack_from(blob)
    if (magic, version, own_key) != (_MAGIC, _VERSION, key):
        return None
    start = _HEAD.size + etag_length
    if len(blob) != start + length + _CHECKSUM_BYTES or length > size or not math.isfinite(checked_at):
        return None
    if _checksum(memoryview(blob)[:-_CHECKSUM_BYTES]) != blob[-_CHECKSUM_BYTES:]:
        return None
    try:
        etag = blob[_HEAD.size : start].decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return None
    data = blob[start : start + length]
    return Kept(etag=etag, size=size, data=data, checked_at=checked_at) if _is_strong(etag) else None


def recorded(steps: Steps[FileHandle], seen: list[Stash | Tail]) -> Steps[FileHandle]:
    """The same steps; their answers are in `seen` at the end."""
    seen.clear()

    def recording() -> Generator[ReadRequest | TailRequest, Stash | Tail, FileHandle]:
        try:
            need = next(steps)
            while True:
                answer = yield need
                seen.append(answer)
                need = steps.send(answer)
        except StopIteration as done:
            handle: FileHandle = done.value
            return handle

    return recording()


def kept_of(handle: FileHandle, seen: list[Stash | Tail], *, checked_at: float) -> Kept | None:
    """What to keep of a file that was just opened by these answers; None without a strong etag."""
    etag, size = handle.id.etag, handle.id.size
    if etag is None or not _is_strong(etag) or not seen or not isinstance(seen[0], Tail):
        return None
    tail = seen[0]
    if handle.tail_start >= tail.start:
        data = bytes(tail.data[handle.tail_start - tail.start :])
    else:
        # The tail was too short for the footer, whose beginning is the one other answer.
        rest = [
            bytes(part) for answer in seen[1:] if not isinstance(answer, Tail) for part in answer.values()
        ]
        data = b"".join((*rest, bytes(tail.data)))
    if len(data) != size - handle.tail_start:
        return None
    return Kept(etag=etag, size=size, data=data, checked_at=checked_at)


def reopen(kept: Kept, steps: Steps[FileHandle]) -> FileHandle | None:
    """Run the steps that open a file on what is kept of it; None where that does not do."""
    try:
        next(steps)
        steps.send(Tail(memoryview(kept.data), kept.size - len(kept.data), kept.size, kept.etag))
    except StopIteration as done:
        handle: FileHandle = done.value
        return handle
    except AccelError:
        return None
    steps.close()
    return None


def _is_strong(etag: str) -> bool:
    return bool(etag.strip('"')) and not is_weak(etag) and len(etag) <= _MOST_ETAG_BYTES


def _checksum(data: bytes | memoryview) -> bytes:
    import hashlib

    return hashlib.blake2b(data, digest_size=_CHECKSUM_BYTES).digest()
