"""A store over a dictionary of bytes: no server, no obstore, strong etags."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import AsyncIterator, Mapping

from accel.errors import ObjectChangedError, ObjectNotFoundError, StoreError
from accel.ranges import ByteRange, Suffix
from accel.store.range_store import ObjectEntry, Payload

__all__ = ["DictStore", "content_etag"]

# Of all stores, that each can be pickled: no read takes an object's bytes and the etag of others.
_replacing = threading.Lock()


def content_etag(data: bytes) -> str:
    """A strong etag that names these bytes: equal content, equal etag."""
    return f'"{hashlib.md5(data, usedforsecurity=False).hexdigest()}"'


class DictStore:
    """A `RangeStore` and `Lister` over objects held in memory.

    Parameters
    ----------
    objects : mapping of str to bytes, optional
        The first content; `put` and `delete` change it later.

    Notes
    -----
    `etags` may be written by a test to make an etag weak, unquoted, or None (the store then gives none).
    Any thread may replace objects. An If-Match is honoured as RFC 9110 asks: by strong comparison, so that a weak
    etag never matches.
    """

    def __init__(self, objects: Mapping[str, bytes] | None = None) -> None:
        self.objects: dict[str, bytes] = {}
        self.etags: dict[str, str | None] = {}
        for path, data in (objects or {}).items():
            self.put(path, data)

    def put(self, path: str, data: bytes) -> None:
        """Write or overwrite one object; its etag follows its content."""
        etag = content_etag(data)
        with _replacing:
            self.objects[path] = data
            self.etags[path] = etag

    def delete(self, path: str) -> None:
        """Remove one object; KeyError when there is none."""
        with _replacing:
            del self.objects[path]
            del self.etags[path]

    async def read(self, path: str, want: ByteRange | Suffix, *, if_match: str | None = None) -> Payload:
        """Answer one range; see `accel.store.range_store.RangeStore`."""
        with _replacing:
            data, etag = self.objects.get(path), self.etags.get(path)
        if data is None:
            raise ObjectNotFoundError("no such object", path=path, status=404)
        if if_match is not None and (etag != if_match or if_match.startswith(("W/", "w/"))):
            raise ObjectChangedError("the object is another version", path=path, status=412)
        span = resolve(want, len(data))
        if span is None:
            raise StoreError("the range is not in the object", path=path, place=str(want), status=416)
        return Payload(data[span.start : span.end], span, len(data), etag)

    async def list(self, prefix: str) -> AsyncIterator[ObjectEntry]:
        """Objects at or below `prefix`, sorted by path."""
        with _replacing:
            found = [(path, len(data), self.etags[path]) for path, data in sorted(self.objects.items())]
        for path, size, etag in found:
            if not prefix or path == prefix or path.startswith(prefix.rstrip("/") + "/"):
                yield ObjectEntry(path, size, etag)


def resolve(want: ByteRange | Suffix, size: int) -> ByteRange | None:
    """The bytes meant by `want` in an object of `size` bytes; None where they are not all there."""
    if isinstance(want, Suffix):
        return ByteRange(max(0, size - want.length), size) if size else None
    return want if want.end <= size else None
