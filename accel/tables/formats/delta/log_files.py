"""The objects of a Delta log by their names, and which of them make up one version.

Source: the Delta protocol, "Delta Log Entries", "Checkpoints", "Log Compaction Files".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from accel.errors import TableFormatError
from accel.store.range_store import ObjectEntry

__all__ = ["Checkpoint", "CommitFile", "LogListing", "LogSegment", "version_prefix"]

_COMMIT: Final = re.compile(r"(\d{20})\.json", re.ASCII)
_COMPACTED: Final = re.compile(r"(\d{20})\.(\d{20})\.compacted\.json", re.ASCII)
_CHECKPOINT: Final = re.compile(
    r"(\d{20})\.checkpoint(?:\.(?P<part>\d{10})\.(?P<parts>\d{10})|\.(?P<uuid>[0-9a-fA-F-]{36}))?\.(?P<form>parquet|json)",
    re.ASCII,
)
_STAGED: Final = re.compile(r"_staged_commits/(\d{20})\.[0-9a-fA-F-]{36}\.json", re.ASCII)
_MOST_PARTS: Final = 100_000
_MOST_VERSION: Final = (1 << 63) - 1


def version_prefix(version: int) -> str:
    """Return the beginning of the names of the objects of a version; it sorts before all of them."""
    return f"{version:020d}"


@dataclass(frozen=True, slots=True)
class CommitFile:
    """The actions of one version, or of several that were compacted."""

    first: int
    last: int
    entry: ObjectEntry


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The whole state of one version."""

    version: int
    parts: tuple[ObjectEntry, ...]
    """All its parts in order; without the sidecars of a v2 checkpoint, which may have any name."""


@dataclass(frozen=True, slots=True)
class LogSegment:
    """The objects that make up one version."""

    version: int
    checkpoint: Checkpoint | None
    commits: tuple[CommitFile, ...]
    """The commits after the checkpoint, in order; compacted ones stand for several."""
    single: tuple[CommitFile, ...] | None = None
    """The same commits one by one, if some are compacted and none is gone."""

    @property
    def tip(self) -> tuple[str, int, str | None]:
        """What tells this version from one of the same number in a table that was made anew at the path."""
        entry = self.commits[-1].entry if self.commits else self.checkpoint.parts[0]  # type: ignore[union-attr]
        return entry.path.rpartition("/")[2], entry.size, entry.etag


@dataclass(frozen=True, slots=True, eq=False)
class LogListing:
    """What a listing of a log shows."""

    commits: Mapping[int, ObjectEntry]
    checkpoints: Sequence[Checkpoint] = ()
    """The complete ones, by version."""
    compacted: Mapping[int, Sequence[CommitFile]] = field(default_factory=dict)
    """By their first version."""
    staged: int = -1
    """The greatest version that was staged for a catalog."""

    @classmethod
    def of(cls, entries: Iterable[ObjectEntry], prefix: str, *, preferred: str | None = None) -> LogListing:
        """Read the names of a listing.

        Parameters
        ----------
        entries : iterable of ObjectEntry
        prefix : str
            The path of the log, without a trailing slash.
        preferred : str, optional
            The name of a checkpoint, as `_last_checkpoint` has it, which is taken where there are several of
            its version.
        """
        start = len(prefix) + 1 if prefix else 0
        commits: dict[int, ObjectEntry] = {}
        compacted: dict[int, list[CommitFile]] = {}
        parts: dict[tuple[int, int], dict[int, ObjectEntry]] = {}
        single: dict[int, Checkpoint] = {}
        staged = -1
        for entry in entries:
            name = entry.path[start:]
            if found := _COMMIT.fullmatch(name):
                commits[int(found[1])] = entry
            elif found := _CHECKPOINT.fullmatch(name):
                version = int(found[1])
                if found["part"] is not None:
                    if found["form"] == "parquet":
                        parts.setdefault((version, int(found["parts"])), {})[int(found["part"])] = entry
                elif (found["uuid"] is not None or found["form"] == "parquet") and (
                    version not in single or name == preferred
                ):
                    single[version] = Checkpoint(version, (entry,))
            elif found := _COMPACTED.fullmatch(name):
                first, last = int(found[1]), int(found[2])
                if first <= last:
                    compacted.setdefault(first, []).append(CommitFile(first, last, entry))
            elif found := _STAGED.fullmatch(name):
                staged = max(staged, int(found[1]))
        for (version, count), there in parts.items():
            if (
                version not in single
                and 0 < count <= _MOST_PARTS
                and sorted(there) == list(range(1, count + 1))
            ):
                single[version] = Checkpoint(version, tuple(there[at] for at in range(1, count + 1)))
        if max((*commits, *single), default=0) > _MOST_VERSION:
            raise TableFormatError("the log has a version above those that Delta counts")
        return cls(commits, [single[version] for version in sorted(single)], compacted, staged)

    @property
    def latest(self) -> int:
        """The greatest version; -1 where there is none."""
        return max(max(self.commits, default=-1), self.checkpoints[-1].version if self.checkpoints else -1)

    def segment(self, version: int | None = None, *, known: int | None = None) -> LogSegment:
        """Return what makes up a version.

        Parameters
        ----------
        version : int, optional
            The newest one, if none is given.
        known : int, optional
            A version whose state is known, which stands for a checkpoint.

        Raises
        ------
        TableFormatError
            There is no such version, or the log lacks a part of it.
        """
        latest = self.latest
        if latest < 0 and known is None:
            raise TableFormatError("the log has neither commits nor checkpoints")
        last = max(latest, -1 if known is None else known) if version is None else version
        if last > max(latest, -1 if known is None else known):
            raise TableFormatError(
                f"there is no version {last}: the newest one is {latest}",
                hint="give a version that the table has, or none for the newest",
            )
        if self.staged > last and version is None:
            raise TableFormatError(
                f"version {self.staged} is staged for a catalog, which alone knows whether it counts",
                hint="read the table by its catalog, or a version= that is published",
            )
        usable = [found for found in self.checkpoints if found.version <= last]
        checkpoint = usable[-1] if usable else None
        start = -1 if checkpoint is None else checkpoint.version
        if known is not None and start <= known <= last:
            checkpoint, start = None, known
        commits = self._commits(start + 1, last)
        single = None
        if any(found.first < found.last for found in commits) and all(
            version in self.commits for version in range(start + 1, last + 1)
        ):
            single = tuple(
                CommitFile(version, version, self.commits[version]) for version in range(start + 1, last + 1)
            )
        return LogSegment(last, checkpoint, commits, single)

    def _commits(self, first: int, last: int) -> tuple[CommitFile, ...]:
        out = []
        at = first
        while at <= last:
            spans = [found for found in self.compacted.get(at, ()) if found.last <= last and found.last > at]
            if spans:
                chosen = max(spans, key=lambda found: found.last)
            elif at in self.commits:
                chosen = CommitFile(at, at, self.commits[at])
            else:
                raise TableFormatError(
                    f"the log lacks version {at}, which version {last} is built on",
                    hint="the log was cleaned up to a later version, or has lost files; read a version that "
                    "is whole",
                )
            out.append(chosen)
            at = chosen.last + 1
        return tuple(out)
