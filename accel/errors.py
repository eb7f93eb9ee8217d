"""The exceptions of accel, which name the file, the place in it, and what to do."""

from __future__ import annotations

import os
import re
from errno import EACCES, ENOENT
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from traceback import FrameSummary

__all__ = [
    "AccelError",
    "AccessDeniedError",
    "ColumnNotFoundError",
    "EncryptedFileError",
    "IndexFormatError",
    "MemoryLimitError",
    "ObjectChangedError",
    "ObjectNotFoundError",
    "ParquetFormatError",
    "PredicateError",
    "ScanTimeoutError",
    "SchemaMismatchError",
    "StoreError",
    "TableFormatError",
    "forget_frames",
    "redact",
    "refuse_unforeseen",
]

# Compiled at first use, as few texts match. Each pattern ends where the next match may begin, so a text is
# scanned once.
_QUERY = r"(?<=[?&])([^?=&\s]+)=[^&\s'\")]*"
# A password may contain an @.
_USERINFO = r"(?<=://)[^/?#\s]+@"
_WEB = ("http://", "https://")
_WEB_QUERY = r"https?://(?:(?!https?://)[^\s'\"?])+\?[^\s'\")]+"
_HIDDEN = "***"
_OWN = os.path.dirname(__file__) + os.sep
_SHELL = f"{os.sep}IPython{os.sep}"


def redact(text: str) -> str:
    """Hide possible credentials in URLs: user info and the values of the query string."""
    if "@" in text:
        text = re.sub(_USERINFO, f"{_HIDDEN}@", text)
    if text[:8].lower().startswith(_WEB):
        return _without_values(text)
    if "?" in text and "://" in text:
        text = re.sub(_WEB_QUERY, lambda found: _without_values(found[0]), text, flags=re.IGNORECASE)
    return re.sub(_QUERY, rf"\1={_HIDDEN}", text) if "=" in text else text


def _without_values(url: str) -> str:
    """Return a URL with only the names of its query parameters; one without a value is hidden, as it may be a
    token."""
    url, mark, _ = url.partition("#")
    fragment = f"#{_HIDDEN}" if mark else ""
    front, mark, query = url.partition("?")
    parts = []
    for part in query.split("&"):
        name, _, value = part.partition("=")
        # A value of = alone may be the padding of a token.
        is_named = name and value.strip("=")
        parts.append(f"{name}={_HIDDEN}" if is_named else _HIDDEN if part else part)
    return f"{front}{mark}{'&'.join(parts)}{fragment}"


def _is_outside(frame: FrameSummary) -> bool:
    """Return whether a frame is of the caller, and not of accel."""
    return not frame.filename.startswith(_OWN)


def forget_frames(error: BaseException) -> None:
    """Drop the frames of an error that hides something, and of its causes.

    Tools that show the variables of frames (rich, pytest, error trackers) would show it in clear.
    """
    if not (getattr(error, "hides", False) or _HIDDEN in str(error)):
        return
    pending: list[BaseException | None] = [error]
    seen: set[int] = set()
    while pending:
        each = pending.pop()
        if each is None or id(each) in seen:
            continue
        seen.add(id(each))
        each.__traceback__ = None
        pending += (each.__cause__, each.__context__)
        if isinstance(each, BaseExceptionGroup):
            pending.extend(each.exceptions)


class AccelError(Exception):
    """The root of the errors that accel raises on purpose; only wrong arguments raise a plain `TypeError` or
    `ValueError`.

    Parameters
    ----------
    message : str
        What happened.
    path : str, optional
        The file it happened in; URLs are redacted.
    place : str, optional
        Where in the file: "footer", "row group 3, column a.b, page 7", "bytes 10..20".
    hint : str, optional
        What the reader of the message can do.
    """

    hides = False
    """Whether its frames hold credentials: see `forget_frames`."""

    def __init__(
        self,
        message: str,
        *,
        path: str | None = None,
        place: str | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.path = None if path is None else redact(path)
        self.place = place
        self.hint = hint

    def __str__(self) -> str:
        where = ", ".join(part for part in (self.path, self.place) if part)
        text = f"{where}: {self.message}" if where else self.message
        return f"{text} ({self.hint})" if self.hint else text

    def __reduce__(self) -> tuple[object, ...]:
        # Exceptions are pickled by their positional arguments, which would lose the keywords.
        return (_rebuild, (type(self), self.message, self.__dict__))

    def _render_traceback_(self) -> list[str]:
        """Return what IPython prints of the error: the caller's own lines down to the call of accel, and the
        message. The rest is in `__traceback__`."""
        import traceback
        from itertools import takewhile

        frames = traceback.extract_tb(self.__traceback__)
        # Those of IPython lie before the cell.
        own = [one for one in takewhile(_is_outside, frames) if _SHELL not in one.filename]
        lines = ["Traceback (most recent call last):\n", *traceback.format_list(own)] if own else []
        return "".join([*lines, *traceback.format_exception_only(self)]).splitlines()

    def at(self, *, path: str | None = None, place: str | None = None) -> AccelError:
        """Fill in the file and the place if an inner layer did not know them.

        Parameters
        ----------
        path : str, optional
            The file.
        place : str, optional
            The place in it.

        Returns
        -------
        AccelError
            The error itself.
        """
        if self.path is None and path is not None:
            self.path = redact(path)
        if self.place is None:
            self.place = place
        return self

    def within(self, place: str) -> AccelError:
        """Name what the place lies in, or the place if there is none yet.

        Parameters
        ----------
        place : str
            The enclosing place.

        Returns
        -------
        AccelError
            The error itself.
        """
        self.place = f"{place}, {self.place}" if self.place else place
        return self

    def of(self, url: str) -> AccelError:
        """Name the file as the user does; inner layers know only its path in the store.

        Parameters
        ----------
        url : str
            The URL.

        Returns
        -------
        AccelError
            The error itself.
        """
        self.path = redact(url)
        return self


def _rebuild(kind: type[AccelError], message: str, state: dict[str, object]) -> AccelError:
    try:
        error = kind.__new__(kind)
    except TypeError:
        # Classes that are also a MemoryError are not made by `object.__new__`.
        error = Exception.__new__(kind)
    Exception.__init__(error, message)
    error.__dict__.update(state)
    return error


class ParquetFormatError(AccelError, ValueError):
    """The bytes are not valid Parquet, or use a feature that accel cannot read."""


class IndexFormatError(AccelError, ValueError):
    """An index, of accel or of the file, fails verification."""


class EncryptedFileError(AccelError, ValueError):
    """The file, or a column that the scan needs, is encrypted."""


class StoreError(AccelError, OSError):
    """A store did not respond, or not with the requested bytes.

    `transient` says whether the same request may succeed later, `status` is the HTTP status if one is known,
    and `retry_after` the seconds that the server asks to wait. As for any OSError, `filename` and `strerror`
    are the path and the message.
    """

    def __init__(
        self,
        message: str,
        *,
        path: str | None = None,
        place: str | None = None,
        hint: str | None = None,
        transient: bool = False,
        status: int | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message, path=path, place=place, hint=hint)
        self.transient = transient
        self.status = status
        self.retry_after = retry_after

    @property
    def filename(self) -> str | None:
        """The file, as of other OSErrors."""
        return self.path

    @property
    def strerror(self) -> str:  # type: ignore[override]
        """The message, as of other OSErrors."""
        return self.message


class ObjectNotFoundError(StoreError, FileNotFoundError):
    """There is no object of that name, or none that matches the pattern. `errno` is ENOENT, as for any
    FileNotFoundError."""

    errno = ENOENT


class AccessDeniedError(StoreError, PermissionError):
    """The file system, or a store with status 401 or 403, refused to read or write. `errno` is EACCES, as for
    most PermissionErrors."""

    errno = EACCES


class ObjectChangedError(StoreError):
    """The object is no longer the version whose metadata was read."""


class PredicateError(AccelError, ValueError):
    """A `where` that cannot be parsed, or compares what cannot be compared.

    If the predicate was text, `text` is the predicate and `position` the index of the wrong character in it;
    the message shows both.
    """

    def __init__(
        self,
        message: str,
        *,
        text: str | None = None,
        position: int | None = None,
        path: str | None = None,
        place: str | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message, path=path, place=place, hint=hint)
        self.text = text
        self.position = position if position is None or position >= 0 else None

    def __str__(self) -> str:
        base = super().__str__()
        if self.text is None or self.position is None:
            return base
        before = self.text[: self.position]
        line_start = before.rfind("\n") + 1
        line_end = self.text.find("\n", self.position)
        line = self.text[line_start : len(self.text) if line_end < 0 else line_end]
        column = self.position - line_start
        if len(line) > 120:
            cut = max(0, column - 60)
            line, column = line[cut : cut + 120], column - cut
        return f"{base}\n  {line}\n  {' ' * column}^"


class ColumnNotFoundError(AccelError, KeyError):
    """The file or the data set has no column of this name.

    `column` is the name if the top-level column is missing.
    """

    def __init__(
        self,
        message: str,
        *,
        column: str | None = None,
        path: str | None = None,
        place: str | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message, path=path, place=place, hint=hint)
        self.column = column


class SchemaMismatchError(AccelError, ValueError):
    """The schemas of the files of one scan contradict each other, or the data does not fit a schema."""


class TableFormatError(AccelError, ValueError):
    """What a table or another source says of its files contradicts itself or the files, or is not
    supported."""


class ScanTimeoutError(AccelError, TimeoutError):
    """A call was not done within its `timeout`. Nothing of it is in flight any more."""


class MemoryLimitError(AccelError, MemoryError):
    """One piece that cannot be cut is larger than `options.memory_limit`."""


class refuse_unforeseen:
    """A context that turns any other exception into an AccelError, for functions that read bytes that may be
    damaged.

    Foreseen damage raises its own errors; for unforeseen damage, too, callers have to catch only one kind of
    error.

    Parameters
    ----------
    place : str
        Where in the file it happened.
    """

    __slots__ = ("_place",)

    def __init__(self, place: str) -> None:
        self._place = place

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None or isinstance(error, AccelError) or not isinstance(error, Exception):
            return
        if isinstance(error, MemoryError):
            raise MemoryLimitError(f"no memory to read it: {error}", place=self._place) from error
        raise ParquetFormatError(
            f"it cannot be read: {type(error).__name__}: {redact(str(error))}",
            place=self._place,
            hint="the file seems to be damaged; if it is not, please report this",
        ) from error
