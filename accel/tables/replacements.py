"""Which files `optimize` has replaced by a file, as the records of its jobs tell."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from accel.errors import IndexFormatError
from accel.metrics import Metrics
from accel.store.clients import Clients
from accel.tables.journal import JournalClient, RemovedFile, job_of_file, read_journal, record_path

__all__ = ["Replacements"]

_WITHOUT_JOBS: Final = ("http://", "https://")
"""Roots of stores that cannot be written to, and so have no records."""


@dataclass(frozen=True, slots=True)
class _Replaced:
    """What a job did in one folder."""

    added: frozenset[str]
    """The paths of its new files, of other folders too."""
    sources: tuple[RemovedFile, ...]
    """The files whose rows the new ones of this folder have."""


class Replacements:
    """Reads the records of jobs, for each folder once. Used on the I/O loop.

    Parameters
    ----------
    clients : Clients
        Those of the stores of the files.
    """

    def __init__(self, clients: Clients[JournalClient]) -> None:
        self._clients = clients
        self._found: dict[tuple[str, str, str], _Replaced | None] = {}
        """By root, folder and job. A record is there before the new files are, so that none will not become
        one."""

    async def sources_of(self, root: str, path: str) -> tuple[RemovedFile, ...] | None:
        """Return the files of whose rows a file has some; None where it replaced none, or no record says so.

        Parameters
        ----------
        root, path : str
            Of the file, as in `FileEntry`. The paths that come out are below the same root, and the same for
            all new files of a job in one folder.

        Raises
        ------
        IndexFormatError
            A record is damaged, or of a later version of accel.
        StoreError
            The store failed.
        """
        job = job_of_file(path)
        if job is None or root.startswith(_WITHOUT_JOBS):
            return None
        folder = path.rpartition("/")[0]
        key = (root, folder, job)
        if key not in self._found:
            self._found[key] = await self._find(root, folder, path, job)
        found = self._found[key]
        return found.sources if found is not None and path in found.added else None

    async def _find(self, root: str, folder: str, path: str, job: str) -> _Replaced | None:
        client = self._clients.client(root)
        for directory in _upwards(folder):
            found = await read_journal(client, directory + record_path(job), Metrics())
            if found is None:
                continue
            record = found[0]
            if record is None:
                raise IndexFormatError("the record of a job is damaged").of(directory + record_path(job))
            if record.id != job:
                continue
            sources = record.replaced_by(path[len(directory) :])
            return _Replaced(
                added=frozenset(directory + file.path for file in record.added),
                sources=tuple(replace(source, path=directory + source.path) for source in sources),
            )
        return None


def _upwards(folder: str) -> Iterator[str]:
    """Yield a folder and those that it lies in: a job may have rewritten the files of any of them."""
    while folder:
        yield f"{folder}/"
        folder = folder.rpartition("/")[0]
    yield ""
