"""Local files as a RangeStore and a Lister.

obstore has a LocalStore too; this one keeps a scan of local files free of obstore's threads (which do
not survive a fork), lists any file name, and distinguishes two versions by nanoseconds."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import stat
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import BinaryIO

from accel.errors import AccelError, ObjectChangedError, ObjectNotFoundError, StoreError
from accel.memory import allocate
from accel.options import MIB
from accel.ranges import ByteRange, Suffix
from accel.runtime.threads import FILES
from accel.store.range_store import ObjectEntry, Payload
from accel.store.request_errors import EmptyObjectError, ShortObjectError, system_error

__all__ = ["FileStore", "checksums_of", "copy_bytes", "write_beside"]

# A range may ask for more bytes than the file has: no more are allocated before the file has given some.
AT_ONCE = 32 * MIB


class FileStore:
    """The file system below `root`, "/" unless a test wants less."""

    def __init__(self, root: str = "/") -> None:
        self._root = root

    def __repr__(self) -> str:
        return f"FileStore({self._root!r})"

    async def read(self, path: str, want: ByteRange | Suffix, *, if_match: str | None = None) -> Payload:
        """Read exactly one range of one object; see `RangeStore.read`.

        The etag is made of inode, size, and the times of the last change.
        """
        # Allocated here, though read into by a thread: what each of many threads has let go of, its allocator
        # keeps.
        room = _allocate(want.length) if isinstance(want, ByteRange) and want.length <= AT_ONCE else None
        return await FILES.run(self._read, path, want, if_match, room)

    async def gather_ranges(
        self, path: str, wants: Sequence[ByteRange], *, if_match: str | None = None
    ) -> Sequence[Payload]:
        """Read ranges of a file that is opened once, all in one thread; see `Gatherer`."""
        few = sum(want.length for want in wants) <= AT_ONCE
        rooms = [_allocate(want.length) if few else None for want in wants]
        return await FILES.run(self._gather, path, wants, if_match, rooms)

    async def head(self, path: str) -> ObjectEntry:
        """Return the size and the etag of one file."""
        return await FILES.run(self._head, path)

    async def list(self, prefix: str) -> AsyncIterator[ObjectEntry]:
        """List the objects at or below a prefix; see `Lister.list`.

        Symbolic links are followed, save into a directory that is being walked.
        """
        for entry in await FILES.run(self._walk, prefix):
            yield entry

    async def write(
        self,
        path: str,
        parts: AsyncIterator[bytes],
        *,
        size: int,
        if_match: str | None = None,
        if_absent: bool = False,
    ) -> None:
        """Put one object, whole or not at all; see `Writer.write`.

        A conditional write holds a lock on a file beside the target, whose name ends in `.lock`.
        """
        if if_match is None and not if_absent:
            await self._write_parts(path, parts, size)
            return
        body = bytearray()
        async for part in parts:
            body += part
        _check_size(len(body), size, path)
        await FILES.run(self._write, path, body, if_match, if_absent)

    async def _write_parts(self, path: str, parts: AsyncIterator[bytes], size: int) -> None:
        """Write the parts as they come, so that no more than one is in memory."""
        with contextlib.ExitStack() as stack:
            file = await FILES.run(lambda: stack.enter_context(write_beside(self._target(path))))
            written = 0
            async for part in parts:
                written += len(part)
                await FILES.run(file.write, part)
            _check_size(written, size, path)
            # What is left is to be written to the disk.
            await FILES.run(stack.close)

    async def remove(self, path: str) -> None:
        """Remove an object; see `Remover.remove`."""
        await FILES.run(self._remove, path)

    async def move(self, path: str, to: str) -> None:
        """Give an object another name; see `Mover.move`."""
        await FILES.run(self._move, path, to)

    def _write(self, path: str, body: bytearray, if_match: str | None, if_absent: bool) -> None:
        target = self._target(path)

        def check() -> None:
            try:
                found: str | None = etag_of(os.stat(target))
            except FileNotFoundError:
                found = None
            if found is not None if if_absent else found != if_match:
                raise ObjectChangedError("the file was changed meanwhile, and is left as it is", path=path)

        with _lock_beside(target), write_beside(target, check=check) as file:
            file.write(body)

    def _target(self, path: str) -> str:
        """Return the real path of a file that is to be written, and make its directory."""
        target = os.path.realpath(os.path.join(self._root, path))
        try:
            os.makedirs(os.path.dirname(target), exist_ok=True)
        except OSError as error:
            raise system_error(error, path=path) from error
        return target

    def _move(self, path: str, to: str) -> None:
        target = os.path.join(self._root, to)
        try:
            os.makedirs(os.path.dirname(target), exist_ok=True)
            remove_checksums(target)
            os.replace(os.path.join(self._root, path), target)
        except OSError as error:
            raise _translate(error, path) from error
        _sync_directory(os.path.dirname(target))

    def _remove(self, path: str) -> None:
        try:
            os.unlink(os.path.join(self._root, path))
            remove_checksums(os.path.join(self._root, path))
        except FileNotFoundError:
            return
        except OSError as error:
            raise system_error(error, path=path) from error

    def _read(
        self, path: str, want: ByteRange | Suffix, if_match: str | None, room: memoryview | None
    ) -> Payload:
        (payload,) = self._gather(path, [want], if_match, [room])
        return payload

    def _gather(
        self,
        path: str,
        wants: Sequence[ByteRange | Suffix],
        if_match: str | None,
        rooms: Sequence[memoryview | None],
    ) -> Sequence[Payload]:
        try:
            # O_NONBLOCK: opening a FIFO must not wait for its writer.
            handle = os.open(os.path.join(self._root, path), os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError as error:
            raise _translate(error, path) from error
        try:
            before = os.fstat(handle)
            if not stat.S_ISREG(before.st_mode):
                raise _not_a_file(path, before)
            etag = etag_of(before)
            if if_match is not None and if_match != etag:
                raise _changed(path, wants[0])
            wanted = [_resolve(path, want, before.st_size, etag) for want in wants]
            _announce(handle, wanted)
            parts = [
                read_at(handle, part, _allocate(part.length) if room is None else room)
                for part, room in zip(wanted, rooms, strict=True)
            ]
            if etag_of(os.fstat(handle)) != etag or any(map(_falls_short, parts, wanted)):
                raise _changed(path, wants[0])
        except OSError as error:
            if isinstance(error, StoreError):
                raise
            raise _translate(error, path) from error
        finally:
            os.close(handle)
        return [Payload(data, part, before.st_size, etag) for data, part in zip(parts, wanted, strict=True)]

    def _head(self, path: str) -> ObjectEntry:
        try:
            found = os.stat(os.path.join(self._root, path))
        except OSError as error:
            raise _translate(error, path) from error
        if not stat.S_ISREG(found.st_mode):
            raise _not_a_file(path, found)
        return ObjectEntry(path, found.st_size, etag_of(found))

    def _walk(self, prefix: str) -> Sequence[ObjectEntry]:
        prefix = prefix.strip("/")
        entries: list[ObjectEntry] = []
        # Each directory with the identities of those it lies in, which end a circle of links.
        pending: list[tuple[str, frozenset[tuple[int, int]]]] = [(prefix, frozenset())]
        while pending:
            path, above = pending.pop()
            try:
                found = os.stat(os.path.join(self._root, path))
            except FileNotFoundError:
                continue  # a broken link, or gone since its directory was read
            except OSError as error:
                raise _translate(error, path) from error
            if stat.S_ISREG(found.st_mode):
                entries.append(ObjectEntry(path, found.st_size, etag_of(found), found.st_mtime))
            identity = (found.st_dev, found.st_ino)
            if not stat.S_ISDIR(found.st_mode) or identity in above:
                continue
            try:
                names = os.listdir(os.path.join(self._root, path))
            except OSError as error:
                raise _translate(error, path) from error
            inside = above | {identity}
            pending.extend((f"{path}/{name}" if path else name, inside) for name in names)
        entries.sort(key=lambda entry: entry.path)
        return entries


def is_unfinished(path: str) -> bool:
    """Return whether a file has a name as `write_beside` gives it while it is written, and leaves it if the
    process is killed."""
    return _UNFINISHED.fullmatch(path.rpartition("/")[2]) is not None


def etag_of(found: os.stat_result) -> str:
    """Return what distinguishes one version of a file from another."""
    return f'"{found.st_ino:x}-{found.st_mtime_ns:x}-{found.st_ctime_ns:x}-{found.st_size:x}"'


def _resolve(path: str, want: ByteRange | Suffix, size: int, etag: str) -> ByteRange:
    if size == 0:
        raise EmptyObjectError(path)
    if isinstance(want, Suffix):
        return ByteRange(max(0, size - want.length), size)
    if want.end > size:
        raise ShortObjectError(path=path, want=want, size=size, etag=etag)
    return want


def _allocate(length: int) -> memoryview:
    # Memory that Arrow's allocator holds ready: fresh pages of the system cost twice what the copy does.
    return memoryview(allocate(length)).cast("B")


def _announce(handle: int, wanted: Sequence[ByteRange]) -> None:
    """Have the system fetch all ranges at the same time, of a file that it does not hold."""
    if len(wanted) > 1 and hasattr(os, "posix_fadvise"):
        for part in wanted:
            os.posix_fadvise(handle, part.start, part.length, os.POSIX_FADV_WILLNEED)


def _falls_short(data: memoryview, wanted: ByteRange) -> bool:
    return len(data) != wanted.length


def read_at(handle: int, wanted: ByteRange, room: memoryview) -> memoryview:
    came = 0
    while came < wanted.length:  # Linux returns at most 2 GiB at a time
        more = os.preadv(handle, [room[came:]], wanted.start + came)
        if not more:
            break
        came += more
    return room[:came].toreadonly()


def _changed(path: str, want: ByteRange | Suffix) -> ObjectChangedError:
    return ObjectChangedError("the file has changed", path=path, place=str(want), hint="read it again")


def _not_a_file(path: str, found: os.stat_result) -> ObjectNotFoundError:
    what = "a directory" if stat.S_ISDIR(found.st_mode) else "not a regular file"
    return ObjectNotFoundError(f"this is {what}", path=path)


def _translate(error: OSError, path: str) -> StoreError:
    if isinstance(error, (FileNotFoundError, NotADirectoryError)):
        return ObjectNotFoundError("there is no such file", path=path)
    return system_error(error, path=path)


@contextlib.contextmanager
def _lock_beside(target: str) -> Iterator[None]:
    """Hold the lock of a file, on one beside that is gone afterwards. The system releases it where the
    process dies."""
    import fcntl

    name = f"{target}.lock"
    while True:
        try:
            handle = os.open(name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise system_error(error, path=target) from error
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            if not _is_named(handle, name):
                continue  # whoever held the lock has removed the file, and the next one locks another
            try:
                yield
            finally:
                with contextlib.suppress(OSError):
                    os.unlink(name)
            return
        finally:
            os.close(handle)


def _is_named(handle: int, name: str) -> bool:
    """Return whether an open file has this name."""
    try:
        return os.path.samestat(os.fstat(handle), os.stat(name))
    except FileNotFoundError:
        return False


BLOCK = 8 * MIB
_CHECKSUMS_MAGIC = b"crc\0"
"""The first bytes of a file of checksums (Hadoop's `ChecksumFileSystem`)."""
_UNFINISHED = re.compile(r"\..*\.[0-9a-f]{16}\.part", re.DOTALL)
_UNSUPPORTED = (errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM, errno.EBADF)


@contextlib.contextmanager
def write_beside(
    target: str, *, like: os.stat_result | None = None, check: Callable[[], None] | None = None
) -> Iterator[BinaryIO]:
    """Open a new file that takes the name `target` when the block ends well, and is removed when it does not.

    It is on disk before it has the name; what is written to its handle goes behind what was flushed. A
    process that is killed leaves the old file as it was, and perhaps a hidden one beside it whose name ends
    in `.part`.

    Parameters
    ----------
    target : str
        A real path: no symbolic link.
    like : stat_result, optional
        The file whose mode and owner it takes over, by default the one that has the name now; what is not
        allowed of that is left out. Until then the new file is for its owner only.
    check : callable, optional
        Called just before it takes the name; may raise.
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
            # Buffered: a raw file may write less than it is given, and that of a full disk only says so the
            # next time.
            with open(handle, "wb") as file:
                yield file
                file.flush()
                _take_over(handle, like)
                os.fsync(handle)
            if check is not None:
                check()
            remove_checksums(target)
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


def checksums_of(path: str) -> str:
    """Return the name of the file in which Hadoop keeps the checksums of another, in the same directory."""
    directory, base = os.path.split(path)
    return os.path.join(directory, f".{base}.crc")


def remove_checksums(target: str) -> None:
    """Remove the file in which Hadoop keeps the checksums of another, so that they do not belie what is
    written in its place.

    Hadoop reads a file without checksums as it is. Another file that happens to have the name stays.
    """
    name = checksums_of(target)
    try:
        with open(name, "rb") as file:
            is_hadoops = file.read(len(_CHECKSUMS_MAGIC)) == _CHECKSUMS_MAGIC
    except OSError:
        return  # there is none
    if is_hadoops:
        os.unlink(name)


def _check_size(made: int, size: int, path: str) -> None:
    if made != size:
        raise AccelError(f"{made} bytes were made for a file of {size}", path=path)


def copy_bytes(source: int, target: int, *, length: int, note: Callable[[int], None]) -> None:
    """Copy the first `length` bytes of one open file to the end of another, in the kernel where it can.

    `note` is called with the bytes of each block. Raises OSError.
    """
    done = 0
    in_kernel = hasattr(os, "copy_file_range")
    while done < length:
        size = min(BLOCK, length - done)
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
