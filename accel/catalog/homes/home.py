"""Where a catalog lies: what every home does, and which one a URL names."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from accel.cache.cache import Cache
    from accel.cache.cache_key import CacheKey
    from accel.catalog.head import CatalogHead, Segment
    from accel.catalog.kinds.kind import TableRows
    from accel.catalog.segments import CatalogSnapshot, SegmentReader
    from accel.metrics import Metrics
    from accel.options import Options
    from accel.store.clients import Connector
    from accel.store.location import Location
    from accel.store.range_store import ObjectEntry

__all__ = ["CatalogHome", "home_at"]


class CatalogHome(Protocol):
    """One catalog in the place where it is stored. Used on the I/O loop.

    A home has one head, which is replaced by compare-and-swap, and segments, which never change: whoever
    reads by an older head finds what that names until `vacuum` removes it. `str` names it without
    credentials.
    """

    key: CacheKey
    """The key of the catalog in caches: another for each catalog, and for the same one with other
    credentials."""
    in_store: bool
    """Whether paths are those of a store that the caller gave."""
    leaves_unfinished: bool = False
    """Whether a builder that is killed may leave files that it was writing, as `is_unfinished` tells them."""

    def is_in(self, directory: Location) -> bool:
        """Return whether the home lies where a scan of that directory would take it for files."""
        ...

    def base(self, head: CatalogHead) -> tuple[str, str]:
        """Return the root of the store, and the path in it, that the paths of the catalog are relative to."""
        ...

    def base_url(self, head: CatalogHead) -> str:
        """Return the directory that the catalog covers, as a source."""
        ...

    def reader(self, *, cache: Cache | None, options: Options, metrics: Metrics) -> SegmentReader:
        """Return what reads the tables of a snapshot."""
        ...

    def cached(self, cache: Cache | None) -> CatalogSnapshot | None:
        """Return what is cached of the catalog, however old it is."""
        from accel.catalog.segments import CatalogSnapshot

        found = None if cache is None else cache.get(self.key)
        return found if isinstance(found, CatalogSnapshot) else None

    async def load(
        self, cache: Cache | None, metrics: Metrics, *, listed: ObjectEntry | None = None
    ) -> tuple[CatalogSnapshot, int]:
        """Return the catalog as its head has it, and the round trips it took.

        A snapshot in the cache is used while it is younger than the cache's `max_age` and this process
        commits nothing, or where a listing has just shown the head that it is of.

        Raises
        ------
        ObjectNotFoundError
            There is no catalog.
        IndexFormatError
            Its head is damaged.
        StoreError
            The home did not answer.
        """
        ...

    async def read_head(self, metrics: Metrics) -> tuple[CatalogSnapshot, int]:
        """Return the catalog as its head is now, and the round trips; raises as `load` does."""
        ...

    def reweigh(self, cache: Cache | None, snapshot: CatalogSnapshot) -> None:
        """Tell the cache that more of a snapshot is read."""
        if cache is not None:
            cache.reweigh(self.key, snapshot, snapshot.nbytes)

    def forget(self, cache: Cache | None) -> None:
        """Drop what is cached of the head."""
        if cache is not None:
            cache.drop(self.key)

    async def put_head(self, head: CatalogHead, *, instead_of: CatalogSnapshot | None) -> None:
        """Commit: put a head in the place of the one that it was made from; None where there was none.

        Raises
        ------
        ObjectChangedError
            Another commit came between.
        StoreError
            The home cannot be written to, or failed.
        """
        ...

    async def put_segment(
        self,
        tables: Mapping[str, TableRows],
        *,
        num_files: int,
        uncovered: Mapping[str, frozenset[int]] | None = None,
    ) -> Segment:
        """Write the tables of a segment, each as an object that nothing names yet.

        Raises
        ------
        AccelError
            Not all rows of a table were written.
        StoreError
            The home cannot be written to, or failed.
        """
        ...

    async def list_objects(self) -> Sequence[ObjectEntry]:
        """List the objects that there are; the paths are the names that heads have for them."""
        ...

    async def delete(self, name: str) -> None:
        """Remove an object of a segment."""
        ...


# Scheme of the URL -> module and attribute of what makes the home: it takes the arguments of `home_at`.
_MAKERS: Final[Mapping[str, str]] = {
    "cassandra": "accel.catalog.homes.key_value:cassandra_home",
    "memory": "accel.catalog.homes.key_value:memory_home",
    "redis": "accel.catalog.homes.key_value:redis_home",
    "rediss": "accel.catalog.homes.key_value:redis_home",
    "sqlite": "accel.catalog.homes.sqlite:SqliteHome.at",
    "postgresql": "accel.catalog.homes.postgres:PostgresHome.at",
    "postgres": "accel.catalog.homes.postgres:PostgresHome.at",
}
_OBJECTS: Final = "accel.catalog.homes.objects:ObjectHome.at"
"""The home for a path, and for the URL of a store."""


def home_at(index: str | os.PathLike[str], connector: Connector, *, in_store: bool) -> CatalogHome:
    """Return the home of the index with that URL or path.

    Parameters
    ----------
    index : str or PathLike
    connector : Connector
        Connects to stores.
    in_store : bool
        The caller gave a store: paths are relative to it.
    """
    scheme, colon, _ = os.fspath(index).partition("://")
    maker = _MAKERS.get(scheme.lower(), _OBJECTS) if colon else _OBJECTS
    module, _, name = maker.partition(":")
    make = import_module(module)
    for attribute in name.split("."):
        make = getattr(make, attribute)
    home: CatalogHome = make(index, connector, in_store=in_store)  # type: ignore[operator]
    return home
