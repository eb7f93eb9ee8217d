"""A local file written beside its name, and given the name when all of it is there and verified."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
from collections.abc import Callable, Iterator
from typing import BinaryIO

from accel.errors import AccelError, StoreError
from accel.options import MIB
from accel.store.faults import system_error

__all__ = ["copy_bytes", "write_beside"]

_BLOCK = 8 * MIB
_UNSUPPORTED = (errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM, errno.EBADF)


@contextlib.contextmanager
def write_beside(
    target: str, *, like: os.stat_result | None = None, check: Callable[[], None] | None = None
) -> Iterator[BinaryIO]:
    """A new file that takes the name `target` when the block ends well, and is gone when it does not.

    It is on disk before it has the name; what is written to its handle goes behind what was flushed. A process that is killed leaves the old file as it was, and perhaps
    a hidden one beside it whose name ends in `.part`.

    Parameters
    ----------
    target : str
        A real path: no symbolic link.
    like : stat_result, optional
        The file whose mode and owner it takes over, by default the one that has the name now; what is not allowed of
        that is left out. Until then the new file is for its owner only.
    check : callable, optional
        Asked just before it takes the name; may raise.
    """
    if os.path.isdir(target):
        raise StoreError("this is a directory", path=target, hint="name a file")
    if like is None:
        with contextlib.suppress(OSError):
            like = os.stat(target)
    directory, base = os.path.split(target)
    beside = os.path.join(directory, f".{base[:200]}.{secrets.token_hex(8)}.part")
    try:
        # Not for others to read while it is written, where the file in whose place it comes was not.
        mode = 0o666 if like is None else 0o600
        try:
            # Within: a signal may come as soon as it is there.
            handle = os.open(beside, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
            # Buffered: a raw file may write less than it is given, and that of a full disk only says so the next time.
            with open(handle, "wb") as file:
                yield file
                file.flush()
                _take_over(handle, like)
                os.fsync(handle)
            if check is not None:
                check()
            os.replace(beside, target)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(beside)
            raise
        _sync_directory(directory)
    except OSError as error:
        if isinstance(error, AccelError):
            raise
        raise system_error(error, path=target) from error


def copy_bytes(source: int, target: int, *, length: int, note: Callable[[int], None]) -> None:
    """Copy the first `length` bytes of one open file to the end of another, in the kernel where it can.

    `note` is told the bytes of each block. Raises OSError.
    """
    done = 0
    in_kernel = hasattr(os, "copy_file_range")
    while done < length:
        size = min(_BLOCK, length - done)
        if in_kernel:
            try:
                size = os.copy_file_range(source, target, size, offset_src=done)
            except OSError as error:
                if error.errno not in _UNSUPPORTED:
                    raise
                in_kernel = False
                continue
        else:
            size = _copy_block(source, target, done, size)
        if size == 0:
            raise OSError(errno.EIO, "the file became shorter while it was copied")
        done += size
        note(size)


def _copy_block(source: int, target: int, start: int, size: int) -> int:
    data = memoryview(os.pread(source, size, start))
    written = 0
    while written < len(data):
        written += os.write(target, data[written:])
    return written


def _take_over(handle: int, like: os.stat_result | None) -> None:
    if like is None:
        return
    with contextlib.suppress(OSError):
        os.fchown(handle, like.st_uid, like.st_gid)
    # After the owner: a change of owner clears some bits of the mode.
    with contextlib.suppress(OSError):
        os.fchmod(handle, like.st_mode & 0o7777)


def _sync_directory(directory: str) -> None:
    with contextlib.suppress(OSError):
        handle = os.open(directory or ".", os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
