"""The journal of a replacement: which files of a directory give way to which others, and how far that is.

A directory has no commit of its own. Where many of its files are replaced by others, the journal is the commit: an object in
`_accel/` that says which files count. It is there only while files are replaced.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from accel.errors import IndexFormatError

__all__ = ["JOURNAL_NAME", "STAGE_PREFIX", "AddedFile", "Journal", "JournalState", "RemovedFile"]

JOURNAL_NAME: Final = "_accel/optimize.json"
"""The path of the journal, below the directory."""
STAGE_PREFIX: Final = "_accel/optimize-"
"""The beginning of the paths of new files before they have their names; directories skip them."""
_VERSION: Final = 1


class JournalState(enum.StrEnum):
    """How far a replacement is."""

    WRITING = "writing"
    """New files are being written. The old ones count."""
    COMMITTED = "committed"
    """The new files count. Some may not have their names yet, and some old ones may still be there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AddedFile:
    """A new file."""

    staged: str
    """The path at which it was written, below the directory."""
    path: str
    """The path that it gets."""
    size: int
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovedFile:
    """A file that gives way, in the version that was read."""

    path: str
    """Below the directory."""
    size: int
    etag: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Journal:
    """What one job does to the files of a directory."""

    id: str
    """Of the job, used once."""
    state: JournalState
    job: str = ""
    """What the job was asked for: a job that is run again is known by it."""
    added: tuple[AddedFile, ...] = ()
    removed: tuple[RemovedFile, ...] = ()
    index: str | None = None
    """The directory of the index outside the files that is to have the new files, if any."""
    notes: Mapping[str, Any] = field(default_factory=dict)
    """What the job reports."""

    def encode(self) -> bytes:
        """Return the content of the object."""
        return json.dumps({"version": _VERSION, **asdict(self)}, indent=1).encode()

    @classmethod
    def decode(cls, data: bytes) -> Journal:
        """Read the content of the object.

        Raises
        ------
        IndexFormatError
            It is damaged, or of a later version of accel.
        """
        try:
            found = json.loads(data)
            if found.pop("version") != _VERSION:
                raise IndexFormatError("the journal of the directory is of another version of accel")
            journal = cls(
                id=_text(found["id"]),
                state=JournalState(found["state"]),
                job=_text(found["job"]),
                added=tuple(_added(each) for each in found["added"]),
                removed=tuple(_removed(each) for each in found["removed"]),
                index=None if found["index"] is None else _text(found["index"]),
                notes=dict(found["notes"]),
            )
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            if isinstance(error, IndexFormatError):
                raise
            raise IndexFormatError("the journal of the directory is damaged") from error
        return journal

    def settle(self, paths: Iterable[str]) -> Iterator[str]:
        """Yield the paths below the directory that count, given those that a listing shows without hidden ones.

        A new file that does not have its name yet is not among them: it is to be read at the place where it was written.
        """
        gone = {each.path for each in self.removed} if self.state is JournalState.COMMITTED else set()
        new = set() if self.state is JournalState.COMMITTED else {each.path for each in self.added}
        return (path for path in paths if path not in gone and path not in new)


def _added(found: Any) -> AddedFile:
    staged, path = _path(found["staged"]), _path(found["path"])
    if not staged.startswith(STAGE_PREFIX):
        raise ValueError("a new file was written elsewhere")
    return AddedFile(staged=staged, path=path, size=_count(found["size"]), rows=_count(found["rows"]))


def _removed(found: Any) -> RemovedFile:
    return RemovedFile(path=_path(found["path"]), size=_count(found["size"]), etag=_text(found["etag"]))


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("not a text")
    return value


def _path(value: Any) -> str:
    # Whoever reads the journal removes what it names: nothing outside the directory.
    path = _text(value)
    if not path or path.startswith("/") or ".." in path.split("/"):
        raise ValueError("not a path below the directory")
    return path


def _count(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 62:
        raise ValueError("not a number of bytes or rows")
    return value
