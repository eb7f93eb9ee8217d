"""Replace many files of a directory by others, so that a job that is killed can be finished or taken back.

The new files are written under hidden names. A call of the same job takes over what one that was killed has
written of them. Then the journal is put, by compare-and-swap, and from then on they count: they get their
names, the index outside the files takes them up in one commit, and the old files are removed. Each of these
steps may be done twice, so whoever finds the journal of a job that was killed finishes it. Before a new file
can be seen, a record of what it replaces is put, which stays: a stream that has read the old files does not
read their rows again.

Several calls may be at work in one directory, and each may be suspended anywhere for any time. So none
removes or overwrites what another may need: the journal is only swapped, hidden files are removed by those
whose swap has shown that nobody else counts on them, and all else carries the name of its job.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from accel.errors import ObjectChangedError, ObjectNotFoundError, ParquetFormatError, StoreError
from accel.metrics import Metrics
from accel.options import MIB
from accel.runtime.tasks import Group
from accel.store.client import Client
from accel.store.local_store import checksums_of
from accel.store.location import Location
from accel.store.range_store import Mover, ObjectEntry, Remover, Writer
from accel.store.request_errors import raising_foremost
from accel.store.writes import swap_bytes
from accel.tables.journal import (
    IDLE,
    JOURNAL_NAME,
    STAGE_PREFIX,
    AddedFile,
    Journal,
    JournalState,
    RemovedFile,
    read_journal,
    record_path,
)
from accel.versions import is_weak

__all__ = ["DirectoryCommit"]

T = TypeVar("T")

_AT_ONCE: Final = 32
_MOST_STAGED: Final = 64 * MIB
"""Bytes of a plan or a record."""

Published = Callable[[Journal], Awaitable[None]]
"""Is called when the new files have their names, before the old ones are removed. It may be called again for
the same journal."""


@dataclass(frozen=True, slots=True)
class _Found:
    journal: Journal
    etag: str | None


@dataclass(frozen=True, slots=True)
class _Idle:
    """The journal, or the lack of one, while no job is at work."""

    etag: str | None
    """None where there is no such object."""


class DirectoryCommit:
    """The journal of one directory. Used on the I/O loop.

    Parameters
    ----------
    client : Client
    location : Location
        The directory.
    """

    def __init__(self, client: Client, location: Location) -> None:
        self._client = client
        self.location = location
        path = location.path.strip("/")
        self._directory = f"{path}/" if path else ""
        self._path = self._directory + JOURNAL_NAME
        self._mine: _Found | None = None
        self.taken_over = False
        """Whether this job was begun by another call, which may have left new files."""
        self.left: tuple[str, ...] = ()
        """Old files that were replaced by somebody else after the commit, and so stay."""

    @property
    def id(self) -> str:
        """The name of this job, used once."""
        if self._mine is None:
            raise TypeError("nothing was begun")
        return self._mine.journal.id

    def staged(self, name: str) -> str:
        """Return the path below the directory at which a new file is to be written."""
        return f"{STAGE_PREFIX}{self.id}-{name}"

    async def begin(self, job: str, *, published: Published) -> Journal | None:
        """Finish what a job that was killed has left, and announce this one; the same job before its commit
        is taken over.

        Returns
        -------
        Journal or None
            What was finished, if it was the same job: there is nothing more to do, and nothing was announced.

        Raises
        ------
        StoreError
            The store can do no such thing, or failed.
        ObjectChangedError
            Another job was announced at the same time.
        """
        self._check_store()
        found = await self._read()
        while isinstance(found, _Found) and found.journal.state is JournalState.COMMITTED:
            self._mine = found
            await self._finish(published)
            if found.journal.job == job:
                return found.journal
            found = await self._read()
        if isinstance(found, _Found) and found.journal.job == job:
            await self._put(replace(found.journal, owner=_token()), instead_of=found)
            self.taken_over = True
            return None
        await self._announce(job, instead_of=found)
        return None

    async def begin_anew(self) -> None:
        """Give this job another name, and remove all new files that are there."""
        self.taken_over = False
        mine = self._require()
        await self._announce(mine.journal.job, instead_of=mine)

    async def _announce(self, job: str, *, instead_of: _Found | _Idle) -> None:
        mine = Journal(id=_token(), state=JournalState.WRITING, owner=_token(), job=job)
        # Listed before, so that none is of a job that is announced behind this one.
        staged = await self._list_staged()
        await self._put(mine, instead_of=instead_of)
        # The jobs that wrote these were killed, or find their announcement gone and give up.
        await _each(staged, self._client.remove)

    async def commit(
        self,
        added: Iterable[AddedFile],
        removed: Iterable[RemovedFile],
        *,
        index: str | None,
        notes: Mapping[str, object],
        published: Published,
    ) -> None:
        """Have the new files take the place of the old ones.

        Raises
        ------
        ObjectChangedError
            An old file was changed or removed meanwhile, or another job was begun. Nothing is changed then.
        StoreError
            The store failed. Where the commit was made, the next job in this directory finishes it.
        """
        if self._mine is None:
            raise TypeError("nothing was begun")
        added, removed = tuple(added), tuple(removed)
        await self.check_unchanged(removed)
        await self._check_written(added)
        journal = replace(
            self._mine.journal,
            state=JournalState.COMMITTED,
            added=added,
            removed=removed,
            index=index,
            notes=notes,
        )
        try:
            await self._put(journal, instead_of=self._mine)
        except ObjectChangedError:
            if not await self._was_finished(journal):
                raise
            self._mine = None
        else:
            await self._finish(published)

    async def _was_finished(self, journal: Journal) -> bool:
        """Return whether another call has found this commit, and finished it, before it was read back."""
        there = await self._list()
        record = record_path(journal.id) if journal.removed else None
        names = [file.path for file in journal.added] if record is None else [record]
        return bool(names) and all(name in there for name in names)

    async def abandon(self) -> None:
        """Remove what was written, and the announcement; after a commit, do nothing."""
        if self._mine is None:
            return
        found = await self._read()
        if isinstance(found, _Found) and found.journal.id == self.id:
            mine = self._mine.journal
            if found.journal.state is JournalState.COMMITTED or not _of_one_call(found.journal, mine):
                return  # the next job finishes it, or another call has taken it over and needs what is there
            try:
                await self._swap(IDLE, found.etag)  # from here on nobody takes it over
            except ObjectChangedError:
                return
        await self._remove_staged(of=self.id)
        self._mine = None

    # -- new files without their names -----------------------------------------------------------

    async def staged_files(self) -> dict[str, int]:
        """Return the names and sizes of the new files of this job."""
        start = len(self._directory) + len(self.staged(""))
        entries = await self._client.list_below(f"{self._directory}_accel")
        prefix = self._directory + self.staged("")
        return {entry.path[start:]: entry.size for entry in entries if entry.path.startswith(prefix)}

    async def read_staged(self, name: str) -> bytes:
        """Return the content of a small one; nothing if it is gone, or no small one."""
        path = self._directory + self.staged(name)
        try:
            payload = await self._client.read_tail(path, _MOST_STAGED, metrics=Metrics())
        except (ObjectNotFoundError, ParquetFormatError):
            return b""
        return bytes(payload.data) if payload.size in (None, len(payload.data)) else b""

    async def read_all_staged(self, names: Iterable[str]) -> dict[str, bytes]:
        """Return the content of several, some at once."""
        found: dict[str, bytes] = {}

        async def read(name: str) -> None:
            found[name] = await self.read_staged(name)

        await _each(names, read)
        return found

    async def remove_staged(self, names: Iterable[str]) -> None:
        """Remove some."""
        await _each(names, lambda name: self._client.remove(self._directory + self.staged(name)))

    # -- the steps after the commit --------------------------------------------------------------

    async def _finish(self, published: Published) -> None:
        journal = self._require().journal
        if journal.removed:
            await self._put_record(journal)
        await _each(journal.added, self._publish)
        await published(journal)
        await self._remove_old(journal)
        await self._remove_staged(of=journal.id)
        with contextlib.suppress(ObjectChangedError):  # another call has finished it, too
            await self._swap(IDLE, self._require().etag)
        self._mine = None

    async def _put_record(self, journal: Journal) -> None:
        """Write down which files are replaced by which, unless that was done before."""
        path = self._directory + record_path(journal.id)
        with contextlib.suppress(ObjectChangedError):
            await swap_bytes(self._client, path, journal.record().encode(), if_match=None)

    async def _publish(self, file: AddedFile) -> None:
        """Give a new file its name, if it does not have it."""
        path = self._directory + file.path
        try:
            await self._client.move(self._directory + file.staged, path)
        except ObjectNotFoundError:
            # It was moved before; else it is lost, and the old files have to stay.
            tail = await self._client.read_tail(path, 8, metrics=Metrics())
            if tail.size != file.size:
                raise StoreError(
                    f"the file has {tail.size} bytes in place of {file.size}",
                    path=str(self.location) + file.path,
                    hint=f"all old files are there: remove what {JOURNAL_NAME} lists as added, then that",
                ) from None

    async def _remove_old(self, journal: Journal) -> None:
        there = await self._list()
        left: list[str] = []
        gone: list[str] = []
        for file in journal.removed:
            entry = there.get(file.path)
            if entry is not None and (entry.etag, entry.size) != (file.etag, file.size):
                left.append(file.path)
                continue
            # A job that was killed may have removed the file alone.
            gone += [path for path in (file.path, checksums_of(file.path)) if path in there]
        await _each(gone, lambda path: self._client.remove(self._directory + path))
        self.left = tuple(left)

    async def _remove_staged(self, *, of: str) -> None:
        """Remove the new files of a job that have no names."""
        await _each(await self._list_staged(of), self._client.remove)

    async def _list_staged(self, of: str = "") -> list[str]:
        """Return the paths of new files without their names: those of one job, or of all."""
        entries = await self._client.list_below(f"{self._directory}_accel")
        # A process that was killed leaves hidden files in a local directory.
        prefixes = (self._directory + STAGE_PREFIX + of, f"{self._directory}_accel/.optimize-{of}")
        return [entry.path for entry in entries if entry.path.startswith(prefixes)]

    # -- the journal -----------------------------------------------------------------------------

    def _require(self) -> _Found:
        if self._mine is None:
            raise TypeError("nothing was begun")
        return self._mine

    def _check_store(self) -> None:
        for ability, verb in (
            (Writer, "be written to"),
            (Remover, "remove objects"),
            (Mover, "move objects"),
        ):
            if not isinstance(self._client.store, ability):
                raise StoreError(f"this store cannot {verb}", path=str(self.location))

    async def check_unchanged(self, removed: Iterable[RemovedFile]) -> None:
        """Raise ObjectChangedError if a file is not there any more in the version that was read."""
        there = await self._list()
        for file in removed:
            entry = there.get(file.path)
            if entry is None or (entry.etag, entry.size) != (file.etag, file.size):
                raise ObjectChangedError(
                    "the file was changed or removed while it was rewritten: all files stay as they are",
                    path=str(self.location) + file.path,
                    hint="start again",
                )

    async def _check_written(self, added: Iterable[AddedFile]) -> None:
        start = len(self._directory)
        entries = await self._client.list_below(f"{self._directory}_accel")
        there = {entry.path[start:]: entry.size for entry in entries}
        for file in added:
            if there.get(file.staged) != file.size:
                raise ObjectChangedError(
                    "a new file is gone, or is not as it was written: all files stay as they are",
                    path=str(self.location) + file.staged,
                    hint="have one job at a time in a directory",
                )

    async def _list(self) -> dict[str, ObjectEntry]:
        start = len(self._directory)
        entries = await self._client.list_below(self._directory.rstrip("/"))
        return {entry.path[start:]: entry for entry in entries}

    async def _read(self) -> _Found | _Idle:
        found = await read_journal(self._client, self._path, Metrics())
        if found is None:
            return _Idle(None)
        journal, etag = found
        return _Idle(etag) if journal is None else _Found(journal, etag)

    async def _put(self, journal: Journal, *, instead_of: _Found | _Idle) -> None:
        try:
            await self._swap(journal.encode(), instead_of.etag, first=instead_of == _Idle(None))
        except ObjectChangedError as error:
            raise ObjectChangedError(
                "another job began in this directory: this one changes nothing",
                path=str(self.location),
                hint="have one job at a time in a directory",
            ) from error
        found = await self._read()
        if not isinstance(found, _Found) or not _of_one_call(found.journal, journal):
            raise ObjectChangedError("another job began in this directory", path=str(self.location))
        self._mine = found

    async def _swap(self, data: bytes, etag: str | None, *, first: bool = False) -> None:
        """Put the journal in place of a version of it, or where there is none yet."""
        if not first and (etag is None or is_weak(etag)):
            raise StoreError("the store gives no strong etag, by which to commit", path=self._name)
        await swap_bytes(self._client, self._path, data, if_match=None if first else etag)

    @property
    def _name(self) -> str:
        return str(self.location) + JOURNAL_NAME


def _of_one_call(one: Journal, other: Journal) -> bool:
    return (one.id, one.owner) == (other.id, other.owner)


def _token() -> str:
    return secrets.token_hex(8)


async def _each(items: Iterable[T], do: Callable[[T], Awaitable[None]]) -> None:
    """Do something with all items, some at once."""
    waiting = list(items)
    for start in range(0, len(waiting), _AT_ONCE):
        with raising_foremost():
            async with Group() as group:
                for item in waiting[start : start + _AT_ONCE]:
                    group.create_task(_one(do, item))


async def _one(do: Callable[[T], Awaitable[None]], item: T) -> None:
    await do(item)
