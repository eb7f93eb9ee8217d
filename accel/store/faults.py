"""Failures of one request that the client tells apart from all others."""

from __future__ import annotations

import copy
from typing import Final

from accel.errors import AccelError, AccessDeniedError, ObjectChangedError, ObjectNotFoundError, StoreError
from accel.ranges import ByteRange
from accel.store.range_store import version_of

__all__ = [
    "OUT_OF_FILES",
    "IncompleteBodyError",
    "ObjectGoneError",
    "ShortObjectError",
    "SuffixUnsupportedError",
    "changed_object",
    "foremost",
    "one_of",
    "system_error",
    "transient_status",
]

OUT_OF_FILES: Final = (
    "raise the limit (`ulimit -n`), or lower Options.max_requests_in_flight and Options.max_files_in_flight"
)
"""What may be done where the process has as many files open as it may."""


def transient_status(status: int) -> bool:
    """Whether the same request may succeed later: timeouts, throttling, and the server's own failures."""
    return status in (408, 425, 429) or (500 <= status < 600 and status not in (501, 505))


def system_error(
    error: OSError, *, path: str, place: str | None = None, hint: str | None = None
) -> StoreError:
    """What the file system refused; `hint` says what to do where it is a matter of permissions."""
    text = error.strerror or str(error)
    if isinstance(error, PermissionError):
        return AccessDeniedError(text, path=path, place=place, hint=hint or "check its permissions")
    return StoreError(text, path=path, place=place)


def changed_object(path: str, place: str | None) -> ObjectChangedError:
    """What an answer with status 412 stands for."""
    return ObjectChangedError(
        "the object is no longer the version that was asked for",
        path=path,
        place=place,
        hint="read it again",
        status=412,
    )


class IncompleteBodyError(StoreError):
    """A body that ended early: what came of it is kept, so that only the rest is asked for again.

    `range` is what the response promised, of which `partial` holds the first bytes.
    """

    def __init__(
        self,
        message: str,
        *,
        path: str,
        range: ByteRange,
        partial: bytes | bytearray | memoryview,
        size: int | None,
        etag: str | None,
    ) -> None:
        super().__init__(message, path=path, place=str(range), transient=True)
        self.range = range
        self.partial = partial
        self.size = size
        self.etag = version_of(etag)

    def __reduce__(self) -> tuple[object, ...]:
        # Where it is the last word, in another process say, the bytes are of no more use; and a view does not pickle.
        return super().__reduce__()[0], (type(self), self.message, {**self.__dict__, "partial": b""})


class ShortObjectError(StoreError):
    """The object ends before the range does. `size` is the object's, where the store said it."""

    def __init__(self, *, path: str, want: ByteRange, size: int | None, etag: str | None = None) -> None:
        told = "the object is shorter" if size is None else f"the object has only {size} bytes"
        super().__init__(told, path=path, place=str(want), status=416)
        self.size = size
        self.etag = version_of(etag)


class SuffixUnsupportedError(StoreError):
    """This store, or this server, cannot serve the last bytes of an object of unknown size.

    `sent` tells whether a request was spent on finding out; `certain`, whether it is so for all objects.
    """

    def __init__(self, *, path: str, sent: bool, certain: bool, status: int | None = None) -> None:
        super().__init__("the store has no suffix ranges", path=path, status=status)
        self.sent = sent
        self.certain = certain


class ObjectGoneError(ObjectChangedError, ObjectNotFoundError):
    """The object whose metadata was read has been deleted since: changed, and not found."""


def foremost(failures: BaseExceptionGroup[BaseException]) -> BaseException:
    """The one error of a group that says most: another version, else the first of accel's own."""
    flat: list[BaseException] = []
    pending: list[BaseException] = [failures]
    while pending:
        error = pending.pop(0)
        if isinstance(error, BaseExceptionGroup):
            pending.extend(error.exceptions)
        else:
            flat.append(error)
    for kind in (ObjectChangedError, AccelError):
        for error in flat:
            if isinstance(error, kind):
                return error
    return flat[0]


def one_of(error: BaseException) -> BaseException:
    """An error for one of several who are told of it: what each of them adds to it is its own."""
    if not isinstance(error, AccelError):
        return error
    own = copy.copy(error)
    own.__cause__ = error.__cause__
    if hasattr(error, "__notes__"):
        own.__notes__ = list(error.__notes__)
    return own.with_traceback(error.__traceback__)
