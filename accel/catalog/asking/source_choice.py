"""Which source of files answers a scan: the caller's own, paths, or an index outside the files."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, cast

from accel.scanning.file_source import FileSource
from accel.scanning.spec import AUTO, ScanSpec, is_source
from accel.store.clients import Connector
from accel.tables.table import Table

if TYPE_CHECKING:
    from accel.cache.cache import Cache
    from accel.catalog.asking.beside_table import Listed
    from accel.catalog.asking.listed_versions import ListedVersions
    from accel.catalog.homes.home import CatalogHome
    from accel.scanning.files_index import FilesIndex
    from accel.scanning.spec import Path
    from accel.tables.path_source import PathSource

__all__ = ["SourceChoice"]


class SourceChoice:
    """Chooses the source of each run of a scan.

    Parameters
    ----------
    spec : ScanSpec
    connector : Connector
        Reaches the stores of the files and of the index.
    index, listing, learn, cache
        As for `accel.scan`.

    Raises
    ------
    TypeError, ValueError
        An argument is of another type, or they contradict each other.
    """

    def __init__(
        self,
        spec: ScanSpec,
        connector: Connector,
        *,
        index: Path | FilesIndex | None,
        listing: str,
        learn: bool,
        cache: Cache | None,
    ) -> None:
        _check_index(index, listing, spec, learn=learn)
        self._connector = connector
        self._index = index
        self._listing = listing
        self._learn = learn
        self._cache = cache
        self._source = spec.source
        self._in_store = spec.in_store
        self._versions: ListedVersions | None = None

    def make(self, spec: ScanSpec) -> FileSource:
        """Return the source of one run."""
        index, may_be_beside = self._index, self._listing == "store" and not self._learn
        own = _own_source(spec.source)
        if own is not None and (index is None or index == AUTO):
            directory = spec.source.directory if isinstance(spec.source, Table) else None
            if index is None or directory is None:
                return own
            return self._beside_table(own, directory, None, spec)
        beside = index == AUTO and isinstance(spec.source, str | os.PathLike) and may_be_beside
        paths = self._paths(spec, beside=beside)
        if beside:
            from accel.catalog.asking.published import IndexBesideFiles

            return self._recognised(
                IndexBesideFiles(paths, spec, self._connector, cache=self._cache), paths, spec, beside=True
            )
        if index is None or (index == AUTO and may_be_beside):
            return self._recognised(paths, paths, spec)
        if not isinstance(index, str | os.PathLike):
            from accel.catalog.asking.own_index import OwnIndexSource

            return OwnIndexSource(index, os.fspath(spec.source), in_store=self._in_store, files=paths)
        if own is None and may_be_beside:
            return self._indexed(self._recognised(paths, paths, spec), spec)
        return self._indexed(own or paths, spec)

    def _beside_table(
        self, table: FileSource, directory: str, listed: Listed | None, spec: ScanSpec
    ) -> FileSource:
        """Return a table without the files that an index in its directory rules out."""
        from accel.catalog.asking.beside_table import IndexBesideTable

        return IndexBesideTable(table, directory, spec, self._connector, cache=self._cache, listed=listed)

    def _recognised(
        self, files: FileSource, paths: PathSource, spec: ScanSpec, *, beside: bool = False
    ) -> FileSource:
        """Return the files of a path, or the table that it turns out to be."""
        if spec.table is None or not isinstance(spec.source, str | os.PathLike):
            return files
        from accel.tables.recognised_source import RecognisedSource

        name = os.fsdecode(spec.source)

        def with_index(table: FileSource, *, has_listed: bool) -> FileSource:
            from accel.catalog.asking.beside_table import Listed

            listed = Listed(paths.noticed) if has_listed else None
            return self._beside_table(table, name, listed, spec)

        return RecognisedSource(
            files,
            paths,
            name,
            in_store=self._in_store,
            cache=self._cache,
            with_index=with_index if beside else None,
        )

    def _paths(self, spec: ScanSpec, *, beside: bool) -> PathSource:
        from accel.catalog.asking.published import INDEX_HEAD
        from accel.tables.path_source import PathSource

        return PathSource(
            spec.source,
            partitioning=spec.partitioning,
            glob=spec.glob,
            as_files=spec.table is None,
            in_store=self._in_store,
            text_columns=spec.texts,
            spelled_as=spec.spelled_as,
            cache=self._cache,
            notice=INDEX_HEAD if beside else None,
        )

    def _indexed(self, files: FileSource, spec: ScanSpec) -> FileSource:
        """Return files that an index which is named prunes, and lists where it is told to."""
        from accel.catalog.asking.listed_versions import ListedVersions
        from accel.catalog.asking.pruning import CatalogPruner
        from accel.catalog.asking.source import CatalogSource, Listing

        self._versions = self._versions or ListedVersions()  # all runs of the scan share it
        home = self._home()
        learner = None
        if self._learn:
            from accel.catalog.building.learning import first_head, learner_of

            make = first_head(spec, beside=self._index == AUTO, in_store=self._in_store)
            learner = learner_of(home, self._connector, options=spec.options, make=make)
        return CatalogSource(
            files,
            CatalogPruner(home, spec, cache=self._cache, may_lack=self._learn),
            spec,
            listing=Listing(self._listing),
            learner=learner,
            versions=self._versions,
        )

    def _home(self) -> CatalogHome:
        from accel.catalog.asking.published import index_beside
        from accel.catalog.homes.home import home_at

        named = index_beside(os.fspath(self._source)) if self._index == AUTO else cast("Path", self._index)
        return home_at(named, self._connector, in_store=self._in_store)

    async def settle(self) -> None:
        """Wait until the index has taken in what it learns."""
        from accel.catalog.building.learning import settle_learning

        await settle_learning(self._home())


def _own_source(source: object) -> FileSource | None:
    """Return a source that is no path; None for paths."""
    if isinstance(source, FileSource):
        return source
    return cast("FileSource", source.source()) if is_source(source) else None  # type: ignore[attr-defined]


def _check_index(index: Path | FilesIndex | None, listing: str, spec: ScanSpec, *, learn: bool) -> None:
    if not (index is None or isinstance(index, str | os.PathLike) or hasattr(index, "files")):
        raise TypeError(f"index is a directory, an index of your own, or None, not {index!r:.80}")
    if is_source(spec.source):
        if not (index is None or isinstance(index, str | os.PathLike)):
            raise ValueError(
                "an index of your own names the files itself: it goes with a path, not with a source"
            )
        if listing == "index":
            raise ValueError('`listing="index"` is for paths: this source says itself which files there are')
    if listing not in ("store", "index"):
        raise ValueError(f'listing is "store" or "index", not {listing!r:.80}')
    if not isinstance(learn, bool):
        raise TypeError(f"learn is True or False, not {learn!r:.80}")
    if learn:
        if not isinstance(index, str | os.PathLike):
            raise ValueError("`learn=True` needs the directory of an index, which build_index makes")
        if listing == "index":
            raise ValueError('`learn=True` needs `listing="store"`: the list of an index has no other files')
        if index == AUTO and not isinstance(spec.source, str | os.PathLike):
            raise ValueError("name the index: `learn=True` finds none beside a list of files")
    if listing == "index":
        if index is None:
            raise ValueError('`listing="index"` needs an index')
        if index == AUTO and not isinstance(spec.source, str | os.PathLike):
            raise ValueError('name the index: `listing="index"` finds none beside a list of files')
