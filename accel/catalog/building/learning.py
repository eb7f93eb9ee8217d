"""What scans learn for an index outside the files: the metadata of files that it lacks, committed beside the
answers.

A scan that learns shows the files that it has opened and that the index does not know in their current
version. They are committed together, at most so often, by one task for each index, which no scan waits for.
Whoever closes a scan waits for that task for a limited time; the end of the process commits what is left, in
a limited time as well. A commit that fails is a metric and one warning, and the next scan meets the same
files again.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import time
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from accel.cache.cache_key import CacheKey
from accel.catalog.building.builder import CatalogBuilder
from accel.catalog.describing import metadata_bytes
from accel.catalog.head import CatalogHead
from accel.catalog.homes.home import CatalogHome
from accel.catalog.homes.objects import directory_at
from accel.errors import AccelError, ObjectNotFoundError, StoreError
from accel.metrics import Metrics
from accel.options import Options
from accel.planning.file_entry import FileEntry, FileFacts
from accel.planning.handle import FileHandle
from accel.runtime import io_loop
from accel.runtime.tasks import begin
from accel.scanning.spec import ScanSpec
from accel.store.client import Client
from accel.store.clients import Clients
from accel.tables.named_source import has_hidden_name, split_glob
from accel.tables.partition_paths import is_utf8
from accel.versions import is_weak

__all__ = ["IndexLearner", "first_head", "learner_of", "settle_learning"]

BATCH_FILES: Final = 256
"""Files that are committed as soon as so many were met."""
INTERVAL_SECONDS: Final = 30.0
"""Fewer files are committed if so much time has passed since the last commit of this process."""
_MOST_WAITING: Final = 20_000
"""Files that may wait to be committed; the next scans meet the others again."""
_CLOSE_SECONDS: Final = 10.0
"""Seconds that closing a scan waits for a commit under way."""
_EXIT_SECONDS: Final = 1.5
"""Seconds that the end of the process spends on what was not committed."""


class LearningBuilder(CatalogBuilder):
    """Builds a catalog from what scans have opened."""

    async def learn(self, files: Sequence[FileEntry], *, make: CatalogHead | None) -> list[str]:
        """Add files that scans have opened, whose facts have their metadata, and return the URLs of those
        that are added.

        Files that do not lie in the directory of the catalog, or that others have added meanwhile, are passed
        over. Raises StoreError where all lie elsewhere, and as `refresh` does.
        """
        try:
            found = await self._find(make)
        except ObjectNotFoundError as error:
            raise StoreError(
                "there is no index, and a scan makes one for a single directory only", hint="build the index"
            ) from error
        head = found if isinstance(found, CatalogHead) else found.head
        if head.indexes:
            raise StoreError("its kinds of index take the values of the files", hint="refresh the index")
        root, base = self._home.base(head)
        beside = head.base == "."
        if not beside and self._home.is_in(directory_at(head.base, in_store=self._home.in_store)):
            raise StoreError("the index and the files cannot share a directory", hint="name another one")
        inside = {
            path: file
            for file in files
            if file.root == root
            and file.path.startswith(base)
            and not has_hidden_name(path := file.path[len(base) :])
            and is_utf8(path)
        }
        if not inside:
            covered = self._home.base_url(head)
            raise StoreError(
                f"it covers {covered}, where none of them lies", hint="name an index of their directory"
            )
        snapshot = await self._create(found) if isinstance(found, CatalogHead) else found
        known = await self._files_of(snapshot)
        new = [
            (path, file)
            for path, file in sorted(inside.items())
            if path not in known or not known[path].is_of(file)
        ]
        described = await self.describer.describe_all(new, snapshot.head, self._home)
        await self.commit(described, completes=False, snapshot=snapshot)
        learned = {path for one in described for path in one.listed}
        return [file.url for path, file in new if path in learned]


class IndexLearner:
    """Commits what the scans of this process learn for one index. Used on the I/O loop.

    Parameters
    ----------
    home : CatalogHome
        Where the index is, or is to be.
    clients : Clients
        Those of the stores of the files.
    options : Options
    make : CatalogHead or None
        The head to begin with where there is no index; None where a scan's source is no directory, which an
        index could cover.
    """

    def __init__(
        self,
        home: CatalogHome,
        clients: Clients[Client],
        *,
        options: Options,
        make: CatalogHead | None,
    ) -> None:
        self._home = home
        self._clients = clients
        self._options = options
        self.make = make
        self._waiting: dict[str, tuple[FileEntry, Metrics]] = {}
        """By URL: files with their metadata, and the counts of the scan that met them."""
        self._task: asyncio.Task[None] | None = None
        self._committed_at = -math.inf
        self._has_warned = False
        io_loop.at_shutdown(self.finish)

    def meet(self, files: Iterable[tuple[FileEntry, FileHandle]], metrics: Metrics) -> None:
        """Take in files that a scan has opened and that the index does not know. Nothing is awaited.

        Parameters
        ----------
        files : iterable of (FileEntry, FileHandle)
            The entries are those of a listing. A file without a strong etag is passed over with a note, and
            so is one that was replaced since it was listed.
        metrics : Metrics
            The counts of the scan.
        """
        unversioned = 0
        for file, handle in files:
            if file.etag is None or is_weak(file.etag):
                unversioned += 1
                continue
            if (handle.etag, handle.size) != (file.etag, file.size):
                continue
            if len(self._waiting) >= _MOST_WAITING:
                break
            facts = FileFacts(version=handle.version, tail=metadata_bytes(handle))
            self._waiting[file.url] = replace(file, facts=facts), metrics
        if unversioned:
            self._tell([metrics], unversioned, "the store gives them no strong etag")
        if self._task is None and self._is_due():
            self._task = begin(self._work())

    def _is_due(self) -> bool:
        late = time.monotonic() - self._committed_at >= INTERVAL_SECONDS
        return len(self._waiting) >= BATCH_FILES or (late and bool(self._waiting))

    async def _work(self) -> None:
        try:
            while self._is_due():
                await self._commit()
        finally:
            self._task = None

    async def _commit(self) -> None:
        batch, self._waiting = self._waiting, {}
        try:
            builder = LearningBuilder(self._home, self._clients, options=self._options)
            learned = await builder.learn([file for file, _ in batch.values()], make=self.make)
        except AccelError as error:
            self._note_failure(batch, str(error))
        except Exception as error:  # noqa: BLE001 - an answer never fails for what is learned beside it
            self._note_failure(batch, f"{type(error).__name__}: {error}")
        except asyncio.CancelledError:
            self._waiting = {**batch, **self._waiting}
            raise
        else:
            for url in learned:
                batch[url][1].add("catalog_learned")
        finally:
            self._committed_at = time.monotonic()

    def _note_failure(self, batch: Mapping[str, tuple[FileEntry, Metrics]], reason: str) -> None:
        scans = {id(metrics): metrics for _, metrics in batch.values()}.values()
        self._tell(scans, len(batch), reason)

    def _tell(self, scans: Iterable[Metrics], files: int, reason: str) -> None:
        """Note in the counts of scans that files were not learned; the first time it is a warning, too."""
        text = f"the index at {self._home} did not learn {files} file{'s' * (files > 1)}: {reason}"
        for metrics in scans:
            metrics.add("learning_failures")
            metrics.warn(text, is_shown=not self._has_warned)
        if not self._has_warned:
            self._has_warned = True
            with contextlib.suppress(Warning):
                warnings.warn(text, stacklevel=2)

    async def settle(self) -> None:
        """Wait for a commit under way, for a limited time; it is cancelled then, and its files wait for the
        next one."""
        task = self._task
        if task is not None:
            _, late = await asyncio.wait((task,), timeout=_CLOSE_SECONDS)
            if late:
                task.cancel()
                await asyncio.wait((task,))

    async def finish(self) -> None:
        """Commit at exit what was not committed, in a limited time."""
        if self._waiting:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_EXIT_SECONDS):
                    await self._commit()


def first_head(spec: ScanSpec, *, beside: bool, in_store: bool) -> CatalogHead | None:
    """Return the head with which a scan begins an index that is not there: it covers the directory that is
    scanned.

    None where the source of the scan is a list, or a pattern, or the batches of a stream.
    """
    source = spec.source
    if not isinstance(source, str | os.PathLike) or (spec.glob and split_glob(os.fspath(source)) is not None):
        return None
    base = "." if beside else directory_at(source, in_store=in_store).url
    return CatalogHead(base=base, complete=False)


async def settle_learning(home: CatalogHome) -> None:
    """Wait for what is being committed to an index, for a limited time."""
    found = _learners.get(home.key)
    if found is not None:
        await found.settle()


_learners: dict[CacheKey, IndexLearner] = {}
os.register_at_fork(after_in_child=_learners.clear)  # they commit on the loop of the parent


def learner_of(
    home: CatalogHome,
    clients: Clients[Client],
    *,
    options: Options,
    make: CatalogHead | None,
) -> IndexLearner:
    """Return what all scans of this process learn for an index by: see `IndexLearner`."""
    found = _learners.get(home.key)
    if found is None:
        found = _learners[home.key] = IndexLearner(home, clients, options=options, make=make)
    found.make = found.make or make
    return found
