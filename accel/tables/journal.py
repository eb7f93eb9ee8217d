"""The journal of a replacement: which files of a directory give way to which others, and how far that is.

A directory has no commit of its own. Where many of its files are replaced by others, the journal is the
commit: an object in `_accel/` that says which files count. It is only ever replaced in the version that was
read, and never removed, as few stores remove an object in one version alone: between jobs it says that there
is none. What stays besides is a record of which files were replaced by which, for those who have read the old
ones: the name of a new file tells the record.
"""

from __future__ import annotations

import enum
import json
import operator
import re
from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final, Protocol

from accel.errors import IndexFormatError, ObjectNotFoundError
from accel.metrics import Metrics
from accel.options import MIB
from accel.store.range_store import ObjectEntry, Payload
from accel.tables.climbing import climbs

__all__ = [
    "IDLE",
    "JOURNAL_NAME",
    "STAGE_PREFIX",
    "AddedFile",
    "Journal",
    "JournalState",
    "RemovedFile",
    "job_of_file",
    "name_of_added",
    "partition_folder",
    "read_journal",
    "record_path",
    "settle_listing",
]

JOURNAL_NAME: Final = "_accel/optimize.json"
"""The path of the journal, below the directory."""
IDLE: Final = b"{}"
"""The content of the journal while no job is at work; any other is longer."""
STAGE_PREFIX: Final = "_accel/optimize-"
"""The beginning of the paths of new files before they have their names; directories skip them."""
_RECORD_PREFIX: Final = "_accel/replaced-"
_ADDED: Final = re.compile(r"part-\d{5,}-([0-9a-f]{16})\.parquet", re.ASCII)
_VERSION: Final = 1
_MOST_BYTES: Final = 256 * MIB
_path_of = operator.attrgetter("path")


def name_of_added(number: int, job: str) -> str:
    """Return the name that a new file of a job gets in its folder, which tells the job."""
    return f"part-{number:05d}-{job}.parquet"


def job_of_file(path: str) -> str | None:
    """Return the job that wrote a file, by its name; None where it is no name of a job."""
    found = _ADDED.fullmatch(path.rpartition("/")[2])
    return None if found is None else found[1]


def record_path(job: str) -> str:
    """Return the path, below the directory, of the record of what a job has replaced."""
    return f"{_RECORD_PREFIX}{job}.json"


def partition_folder(path: str) -> str:
    """Return the partition folder of a file (`year=2024/month=1/`), in which its rows stay; "" if it is in
    none."""
    segments = path.split("/")[:-1]
    spelling = [at for at, segment in enumerate(segments) if "=" in segment]
    depth = spelling[-1] + 1 if spelling else 0
    return "".join(f"{segment}/" for segment in segments[:depth])


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
    owner: str = ""
    """Of the call that carries the job out, used once: where a job is run again, the call before gives up."""
    job: str = ""
    """The hash of the arguments of the job, by which a job that is run again is recognized."""
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
                owner=_text(found.get("owner", "")),
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

    def record(self) -> Journal:
        """Return what stays of the journal when the job is done: which files were replaced by which."""
        return replace(self, owner="", index=None, notes={})

    def replaced_by(self, path: str) -> tuple[RemovedFile, ...]:
        """Return the old files of whose rows a new file has some: all those of its partition folder."""
        folder = partition_folder(path)
        return tuple(file for file in self.removed if partition_folder(file.path) == folder)

    def hidden(self, there: Mapping[str, ObjectEntry]) -> Collection[str] | None:
        """Return the paths below the directory that do not count; None if neither the old files nor the new
        ones are all there.

        The old files are removed when all new ones have their names, so that a listing has all of either,
        unless it was made while that happened.

        Parameters
        ----------
        there : mapping
            What a listing shows, by the path below the directory.
        """
        if self.state is JournalState.WRITING:
            return ()
        if all(file.path in there for file in self.added):
            return {file.path for file in self.removed if _is_there(file, there)}
        if all(_is_there(file, there) for file in self.removed):
            return {file.path for file in self.added}
        return None


def _is_there(file: RemovedFile, there: Mapping[str, ObjectEntry]) -> bool:
    found = there.get(file.path)
    return found is not None and (found.etag, found.size) == (file.etag, file.size)


class JournalClient(Protocol):
    """The part of `store.client.Client` that reads a journal."""

    async def read_tail(self, path: str, length: int, *, metrics: Metrics) -> Payload:
        """Return the last bytes of an object."""
        ...


async def read_journal(
    client: JournalClient, path: str, metrics: Metrics
) -> tuple[Journal | None, str | None] | None:
    """Return the journal at a path, or None while no job is at work, and its etag; None if there is no such
    object.

    Raises
    ------
    IndexFormatError
        It is damaged, or of a later version of accel.
    StoreError
        The store failed.
    """
    try:
        payload = await client.read_tail(path, _MOST_BYTES, metrics=metrics)
    except ObjectNotFoundError:
        return None
    try:
        if payload.size is not None and payload.size > len(payload.data):
            raise IndexFormatError("the journal of the directory is too large")
        data = bytes(payload.data)
        return None if data == IDLE else Journal.decode(data), payload.etag
    except IndexFormatError as error:
        raise error.of(path) from error.__cause__


async def settle_listing(
    entries: Sequence[ObjectEntry], prefix: str, client: JournalClient, metrics: Metrics
) -> Sequence[ObjectEntry] | None:
    """Return the entries of a directory that count, if files are being replaced; None if it has to be listed
    again."""
    below = f"{prefix}/" if prefix else ""
    path = below + JOURNAL_NAME
    at = bisect_left(entries, path, key=_path_of)
    if at == len(entries) or entries[at].path != path or entries[at].size == len(IDLE):
        return entries
    found = await read_journal(client, path, metrics)
    if found is None or found[0] is None:
        return None
    start = len(below)
    hidden = found[0].hidden({entry.path[start:]: entry for entry in entries})
    if hidden is None:
        return None
    return [entry for entry in entries if entry.path[start:] not in hidden] if hidden else entries


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
    if not path or path.startswith("/") or climbs(path):
        raise ValueError("not a path below the directory")
    return path


def _count(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 62:
        raise ValueError("not a number of bytes or rows")
    return value
