"""Objects in memory: of one store, or of one that the whole process finds by its name."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Mapping

from accel.errors import ObjectChangedError, ObjectNotFoundError, StoreError
from accel.ranges import ByteRange, Suffix
from accel.runtime.forks import lock_over_forks
from accel.store.range_store import ObjectEntry, Payload

__all__ = ["DictStore", "content_etag", "store_named"]

# No read may see the bytes of one version with the etag of another. One lock for all stores keeps each store
# picklable.
_replacing = lock_over_forks()


def content_etag(data: bytes) -> str:
    """Return a strong etag of some content: equal content has an equal etag."""
    return f'"{hashlib.md5(data, usedforsecurity=False).hexdigest()}"'


class DictStore:
    """A `RangeStore`, `Lister`, `Writer` and `Remover` over objects in memory.

    Parameters
    ----------
    objects : mapping of str to bytes, optional
        The first content; `put` and `delete` change it later.

    Notes
    -----
    A test may write to `etags` to make an etag weak, unquoted, or None, which means that the store gives
    none. Any thread may replace objects. If-Match compares strongly, as RFC 9110 requires, so a weak etag
    never matches.
    """

    def __init__(self, objects: Mapping[str, bytes] | None = None) -> None:
        self.objects: dict[str, bytes] = {}
        self.etags: dict[str, str | None] = {}
        self.modified: dict[str, float] = {}
        for path, data in (objects or {}).items():
            self.put(path, data)

    def put(self, path: str, data: bytes) -> None:
        """Write or overwrite one object, and give it an etag of its content.

        Parameters
        ----------
        path : str
            The name of the object.
        data : bytes
            The content.
        """
        etag = content_etag(data)
        with _replacing:
            self.objects[path] = data
            self.etags[path] = etag

    def delete(self, path: str) -> None:
        """Remove one object.

        Parameters
        ----------
        path : str
            The name of the object.

        Raises
        ------
        KeyError
            There is no such object.
        """
        with _replacing:
            del self.objects[path]
            del self.etags[path]

    async def read(self, path: str, want: ByteRange | Suffix, *, if_match: str | None = None) -> Payload:
        """Answer one range; see `RangeStore.read`."""
        with _replacing:
            data, etag = self.objects.get(path), self.etags.get(path)
        if data is None:
            raise ObjectNotFoundError("no such object", path=path, status=404)
        if if_match is not None and (etag != if_match or if_match.startswith(("W/", "w/"))):
            raise ObjectChangedError("the object is another version", path=path, status=412)
        span = _resolve(want, len(data))
        if span is None:
            raise StoreError("the range is not in the object", path=path, place=str(want), status=416)
        return Payload(data[span.start : span.end], span, len(data), etag)

    async def write(
        self,
        path: str,
        parts: AsyncIterator[bytes],
        *,
        size: int,
        if_match: str | None = None,
        if_absent: bool = False,
    ) -> None:
        """Put one object; see `accel.store.range_store.Writer`."""
        data = b"".join([part async for part in parts])
        if len(data) != size:
            raise StoreError(f"{len(data)} bytes came for an object of {size}", path=path)
        with _replacing:
            found = self.etags.get(path)
            if (if_absent and path in self.objects) or (if_match is not None and found != if_match):
                raise ObjectChangedError("the object is another version", path=path, status=412)
            self.objects[path], self.etags[path] = data, content_etag(data)

    async def remove(self, path: str) -> None:
        """Remove one object, if it is there; see `accel.store.range_store.Remover`."""
        with _replacing:
            self.objects.pop(path, None)
            self.etags.pop(path, None)

    async def move(self, path: str, to: str) -> None:
        """Rename one object; see `accel.store.range_store.Mover`."""
        with _replacing:
            if path not in self.objects:
                raise ObjectNotFoundError("no such object", path=path, status=404)
            self.objects[to], self.etags[to] = self.objects.pop(path), self.etags.pop(path)

    async def list(self, prefix: str) -> AsyncIterator[ObjectEntry]:
        """List the objects at or below a prefix, by path; see `Lister.list`."""
        with _replacing:
            found = [(path, len(data), self.etags[path]) for path, data in sorted(self.objects.items())]
        for path, size, etag in found:
            if not prefix or path == prefix or path.startswith(prefix.rstrip("/") + "/"):
                yield ObjectEntry(path, size, etag, self.modified.get(path))


def _resolve(want: ByteRange | Suffix, size: int) -> ByteRange | None:
    """Return the range of an object of `size` bytes that is wanted; None if it does not lie in the object."""
    if isinstance(want, Suffix):
        return ByteRange(max(0, size - want.length), size) if size else None
    return want if want.end <= size else None


_named: dict[str, DictStore] = {}


def store_named(name: str) -> DictStore:
    """Return the store of that name, which lasts as long as the process; the first call makes it."""
    return _named.setdefault(name, DictStore())
