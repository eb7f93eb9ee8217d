"""How a stream treats the files that `optimize` has written: by which of the files that they replace it has
read."""

from __future__ import annotations

import enum
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from accel.planning.file_entry import FileEntry
from accel.spark.stream_offsets import FileNames, SeenFiles
from accel.tables.journal import RemovedFile, job_of_file
from accel.tables.replacements import Replacements

__all__ = ["Lineage", "Share", "SharesOf"]


class Share(enum.Enum):
    """How many of the rows of a file are those of files that an offset holds."""

    NONE = "none"
    SOME = "some"
    ALL = "all"


@dataclass(frozen=True, slots=True)
class _Source:
    """A file that was replaced."""

    file: RemovedFile
    name: int
    """See `FileNames.of`."""

    @property
    def path(self) -> str:
        """The path in the store."""
        return self.file.path

    def is_there(self, listed: Mapping[int, FileEntry]) -> bool:
        """Return whether it is listed, in the version that was replaced."""
        entry = listed.get(self.name)
        if entry is None:
            return False
        return entry.etag is None or (entry.etag, entry.size) == (self.file.etag, self.file.size)


class Lineage:
    """The files that others replace, by the records of `optimize`. Used on the I/O loop.

    Parameters
    ----------
    names : FileNames
    replacements : Replacements
    """

    def __init__(self, names: FileNames, replacements: Replacements) -> None:
        self.names = names
        self._replacements = replacements
        self._hashed: dict[tuple[str, str, str | None], Sequence[_Source]] = {}

    async def sources_of(self, root: str, path: str) -> Sequence[_Source] | None:
        """Return the files that a file replaces, together with others of its job in its folder; None if it
        replaces none."""
        sources = await self._replacements.sources_of(root, path)
        if sources is None:
            return None
        key = _place_of(root, path)
        if key not in self._hashed:
            self._hashed[key] = [_Source(one, self.names.of(root, one.path)) for one in sources]
        return self._hashed[key]

    async def is_early(self, file: FileEntry, listed: Mapping[int, FileEntry]) -> bool:
        """Return whether a file is listed beside one that it replaces, which is about to be removed: its turn
        is later."""
        sources = await self.sources_of(file.root, file.path)
        return sources is not None and any(source.is_there(listed) for source in sources)


class SharesOf:
    """Tells which files have rows of those that an offset holds.

    Parameters
    ----------
    seen : SeenFiles
    lineage : Lineage
    """

    def __init__(self, seen: SeenFiles, lineage: Lineage) -> None:
        self._seen = seen
        self._lineage = lineage
        self._shares: dict[tuple[str, str, str | None], tuple[Share, frozenset[int]]] = {}

    async def of(self, file: FileEntry) -> tuple[Share, frozenset[int]]:
        """Return the share of a file that the offset does not hold itself, and the files of the offset that
        it replaces.

        A file may replace others that replaced some before: all of them are followed to those that the offset
        holds, or that replaced none.
        """
        root = file.root
        if await self._lineage.sources_of(root, file.path) is None:
            return Share.NONE, frozenset()
        key = _place_of(root, file.path)
        if key not in self._shares:
            self._shares[key] = await self._follow(file)
        return self._shares[key]

    async def _follow(self, file: FileEntry) -> tuple[Share, frozenset[int]]:
        root, reached, others = file.root, set[int](), False
        visited, waiting = {file.path}, [file.path]
        while waiting:
            sources = await self._lineage.sources_of(root, waiting.pop())
            if sources is None:
                others = True
                continue
            for source in sources:
                held = self._held(file, source)
                reached |= held
                if not held and source.path not in visited:
                    visited.add(source.path)
                    waiting.append(source.path)
        share = (Share.SOME if others else Share.ALL) if reached else Share.NONE
        return share, frozenset(reached)

    def _held(self, file: FileEntry, source: _Source) -> set[int]:
        """Return the hashes by which the offset holds a file that another one has replaced; none if it does
        not."""
        seen = self._seen
        held = {source.name} if source.name in seen.read or source.name in seen.carried else set()
        if seen.spelled:
            url = _url_beside(file, source.path)
            held |= seen.spelled.intersection(self._lineage.names.spellings(file.root, source.path, url))
        return held


def _url_beside(file: FileEntry, path: str) -> str | None:
    """Return the URL of another path, spelled as that of a file is."""
    shared = os.path.commonprefix([file.url[::-1], file.path[::-1]])
    above = file.path[: len(file.path) - len(shared)]
    return file.url[: len(file.url) - len(shared)] + path[len(above) :] if path.startswith(above) else None


def _place_of(root: str, path: str) -> tuple[str, str, str | None]:
    """Return what the new files of a job in one folder, which replace the same files, have in common."""
    return root, path.rpartition("/")[0], job_of_file(path)
