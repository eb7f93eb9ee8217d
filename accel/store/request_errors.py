"""Errors of requests, the texts of servers that they may quote, and the names by which they call objects."""

from __future__ import annotations

import contextlib
import copy
import re
from collections.abc import Iterator
from types import MappingProxyType, TracebackType
from typing import Final

from accel.errors import (
    AccelError,
    AccessDeniedError,
    ObjectChangedError,
    ObjectNotFoundError,
    ParquetFormatError,
    StoreError,
    redact,
)
from accel.ranges import ByteRange
from accel.runtime.tasks import CancellationGuard
from accel.store.location import LOCAL_ROOT
from accel.store.range_store import version_of

__all__ = [
    "CREDENTIAL_FAULTS",
    "OUT_OF_FILES",
    "EmptyObjectError",
    "ErrorContext",
    "IncompleteBodyError",
    "ObjectGoneError",
    "ShortObjectError",
    "SuffixUnsupportedError",
    "changed_object",
    "code_in",
    "foremost",
    "own_copy_of",
    "quoted",
    "raising_foremost",
    "short_answer",
    "system_error",
    "transient_code",
    "transient_status",
]

OUT_OF_FILES: Final = (
    "raise the limit (`ulimit -n`), or lower `options.max_requests_in_flight` and "
    "`options.max_files_in_flight`"
)
"""The hint for a process that has reached its limit of open files."""


def transient_status(status: int) -> bool:
    """Return whether the same request may succeed later: after timeouts, throttling, and failures of the
    server."""
    return status in (408, 425, 429) or (500 <= status < 600 and status not in (501, 505))


_TRANSIENT_CODES: Final = frozenset(
    ("InternalError", "OperationTimedOut", "RequestTimeout", "ServerBusy", "ServiceUnavailable", "SlowDown")
)


def transient_code(code: str | None) -> bool:
    """Return whether the error code of a server says that the same request may succeed later.

    S3 sends RequestTimeout with status 400, which otherwise means a request that is not understood.
    """
    return code in _TRANSIENT_CODES


def system_error(
    error: OSError, *, path: str, place: str | None = None, hint: str | None = None
) -> StoreError:
    """Return the error for a failure of the file system; `hint` is used if permissions are missing."""
    text = error.strerror or str(error)
    if isinstance(error, PermissionError):
        return AccessDeniedError(text, path=path, place=place, hint=hint or "check its permissions")
    return StoreError(text, path=path, place=place)


def changed_object(path: str, place: str | None) -> ObjectChangedError:
    """Return the error that status 412 stands for."""
    return ObjectChangedError(
        "the object is no longer the version that was asked for",
        path=path,
        place=place,
        hint="read it again",
        status=412,
    )


class IncompleteBodyError(StoreError):
    """A body that ended early. It carries the bytes received, so that only the rest is requested again.

    `range` is the range that was wanted; `partial` holds its first bytes. `stated` says that the response
    promised no more than these: a server may send fewer bytes at a time than were requested.
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
        stated: bool = False,
    ) -> None:
        super().__init__(message, path=path, place=str(range), transient=True)
        self.range = range
        self.stated = stated
        self.partial = partial
        self.size = size
        self.etag = version_of(etag)

    def __reduce__(self) -> tuple[object, ...]:
        # In another process the bytes are of no use, and a view does not pickle.
        return super().__reduce__()[0], (type(self), self.message, {**self.__dict__, "partial": b""})


def short_answer(
    path: str,
    wanted: ByteRange,
    partial: bytes | bytearray | memoryview,
    *,
    size: int | None,
    etag: str | None,
) -> IncompleteBodyError:
    """Return the error for a response that is whole, and holds only the first bytes of the wanted range."""
    return IncompleteBodyError(
        f"the store answered with {len(partial)} bytes of {wanted.length}",
        path=path,
        range=wanted,
        partial=partial,
        size=size,
        etag=etag,
        stated=True,
    )


class EmptyObjectError(ParquetFormatError):
    """The object has no bytes, so it is no Parquet file; it may be the marker of a directory."""

    def __init__(self, path: str) -> None:
        super().__init__("the file is empty", path=path)


class ShortObjectError(StoreError):
    """The object ends before the range does. `size` is that of the object, if the store gave it."""

    def __init__(self, *, path: str, want: ByteRange, size: int | None, etag: str | None = None) -> None:
        message = "the object is shorter" if size is None else f"the object has only {size} bytes"
        super().__init__(message, path=path, place=str(want), status=416)
        self.size = size
        self.etag = version_of(etag)


class SuffixUnsupportedError(StoreError):
    """The store cannot read the last bytes of an object of unknown size.

    `sent` says whether a request was sent; `certain`, whether this holds for all objects.
    """

    def __init__(self, *, path: str, sent: bool, certain: bool, status: int | None = None) -> None:
        super().__init__("the store has no suffix ranges", path=path, status=status)
        self.sent = sent
        self.certain = certain


class ObjectGoneError(ObjectChangedError, ObjectNotFoundError):
    """The object has been deleted since its metadata was read, so it is both changed and not found."""


def foremost(failures: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the most significant error of a group: an ObjectChangedError, else the first AccelError."""
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


@contextlib.contextmanager
def raising_foremost() -> Iterator[None]:
    """Raise the most significant error of a group in place of the group."""
    try:
        yield
    except BaseExceptionGroup as failures:
        failure = foremost(failures)
        # A traceback shows its own cause, if it has one, and not the group.
        failure.__suppress_context__ = True
        raise failure


def own_copy_of(error: BaseException) -> BaseException:
    """Return a copy of an AccelError that several tasks receive, so that each can add to its own."""
    if not isinstance(error, AccelError):
        return error
    own = copy.copy(error)
    own.__cause__ = error.__cause__
    if hasattr(error, "__notes__"):
        own.__notes__ = list(error.__notes__)
    return own.with_traceback(error.__traceback__)


_CODE = re.compile(r"<Code>([A-Za-z0-9_.]{1,80})</Code>")
_SCOPE = "the region, or a credential, is not what the store expects: check them in `storage_options`"
_EXPIRED = "the credentials have expired: get new ones"
_TOKEN = "session_token is wrong, or has expired"
_CLOCK = "this machine's clock is wrong"

CREDENTIAL_FAULTS: Final = MappingProxyType(
    {
        "ExpiredToken": _EXPIRED,
        "TokenRefreshRequired": _EXPIRED,
        "InvalidToken": _TOKEN,
        "InvalidTokenId": _TOKEN,
        "InvalidAccessKeyId": "the store knows no such access_key_id",
        "SignatureDoesNotMatch": "secret_access_key or account_key is wrong, or a proxy changes what is sent",
        "RequestTimeTooSkewed": _CLOCK,
        "RequestExpired": _CLOCK,
        "AuthorizationHeaderMalformed": _SCOPE,
        "AuthorizationQueryParametersError": _SCOPE,
    }
)
"""Hints by error code. Some of these codes come with status 400, which otherwise means a request that is not
understood."""

_MOST_TEXT = 1024
# A server may quote the request.
_NAMED = re.compile(
    r"([\w-]*(?:signature|credential|token|secret|password|\bsig)[\w-]*[\"']?\s*[=:]\s*[\"']?)[^\s,;&'\"<>]+",
    re.IGNORECASE,
)
_SCHEME = re.compile(r"\b(Bearer|Basic)\s+[^\s,;'\"]+", re.IGNORECASE)
# Longer than an MD5 or a UUID.
_OPAQUE = re.compile(r"(?=[0-9+_%~-]*[A-Za-z])([A-Za-z0-9+_%~-]{8})[A-Za-z0-9+_%~-]{32,}")


def code_in(body: str) -> str | None:
    """Return the error code in the body of a response of S3, or None."""
    found = _CODE.search(body)
    return None if found is None else quoted(found[1], 80)


def quoted(text: str, most: int) -> str:
    """Return at most `most` characters of a text of a server, with anything that looks like a credential
    masked."""
    if len(text) > _MOST_TEXT:
        # Cut between words, as a part of a credential would not be recognised.
        text = text[:_MOST_TEXT].rpartition(" ")[0]
    text = _SCHEME.sub(r"\1 ***", _NAMED.sub(r"\1***", redact(text)))
    return _OPAQUE.sub(r"\1***", text)[:most]


class ErrorContext(CancellationGuard):
    """A context that completes the path in errors to the whole address of an object, of which a store knows
    only the path.

    Parameters
    ----------
    root : str
        The root of the store.
    path : str
    """

    __slots__ = ("_path", "_root")

    def __init__(self, root: str, path: str) -> None:
        self._root, self._path = root, path

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is None:
            return
        try:
            super().__exit__(kind, error, traceback)
        except AccelError as raised:
            self._name(raised)
            raise
        if isinstance(error, AccelError):
            self._name(error)

    def _name(self, error: AccelError) -> None:
        path = self._path
        base = f"{path.rstrip('/')}/".lstrip("/")
        if error.path and error.path.startswith(base) and error.path[0] != "/" and "://" not in error.path:
            path = error.path  # an object or directory below a listed one
        whole = path if self._root in ("store:", "") else f"{self._root}/{path}"
        error.path = redact(whole.removeprefix(LOCAL_ROOT))
