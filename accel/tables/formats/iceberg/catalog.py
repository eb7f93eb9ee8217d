"""Catalogs of pyiceberg: where the metadata file of a table is, and the credentials that come with it.

Nothing but that is asked of them. The metadata file is read by accel's stores: catalogs that would read it
get a `FileIO` that notes its location instead.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from accel.errors import AccelError, StoreError, TableFormatError, redact
from accel.runtime.forks import lock_over_forks
from accel.store.expiring_credentials import EARLY, Granted
from accel.store.identity import ByIdentity
from accel.tables.file_urls import encoded_url
from accel.tables.formats.iceberg.vended import expiry_of, granted_by, options_of, provider_for

__all__ = ["Located", "MetadataLocator", "locate"]


@dataclass(frozen=True, slots=True)
class Located:
    """What a catalog says of a table."""

    metadata_url: str
    storage_options: Mapping[str, Any] | None = field(repr=False)
    """The credentials of its files, as accel's stores take them; None where it names none."""
    expires: float | None = None
    """When these end, in seconds since 1970."""
    located_at: float = 0.0
    """When the catalog was asked, by the monotonic clock."""

    def is_fresh(self, max_age: float) -> bool:
        """Return whether it may be used without asking again."""
        if self.expires is not None and time.time() > self.expires - EARLY:
            return False
        return time.monotonic() - self.located_at < max_age


class _Found(BaseException):
    """Ends the catalog's work where it begins to read the metadata file."""

    def __init__(self, location: str, properties: Mapping[str, Any]) -> None:
        super().__init__("the metadata file is read by accel")
        self.location = location
        self.properties = properties


class MetadataLocator:
    """What pyiceberg takes for a `FileIO`: it reads nothing, and ends the call that wants it to."""

    def __init__(self, properties: Mapping[str, Any] | None = None) -> None:
        self.properties = dict(properties or {})

    def new_input(self, location: str) -> Any:
        """End the call; the location goes to `locate`."""
        raise _Found(location, self.properties)

    def new_output(self, location: str) -> Any:
        """Refuse to write."""
        raise TableFormatError("accel writes nothing into a catalog")

    def delete(self, location: Any) -> None:
        """Refuse to delete."""
        raise TableFormatError("accel deletes nothing of a catalog")


_loaded: dict[str, Any] = {}
_lock = lock_over_forks()
_objects = ByIdentity(lambda _: f"object {os.urandom(16).hex()}", most_strong=100)


def locate(catalog: Any, name: str) -> Located:
    """Ask a catalog where a table is. This waits for it: call it in a thread.

    Parameters
    ----------
    catalog : str, mapping or pyiceberg.catalog.Catalog
    name : str
        The name of the table in it, such as "db.events".

    Raises
    ------
    TableFormatError
        There is no such catalog or table.
    StoreError
        The catalog does not answer.
    """
    located_at = time.monotonic()
    location, properties = _ask(catalog, name)

    def grant() -> Granted:
        return granted_by(_ask(catalog, name)[1])

    options = options_of(properties, lambda: provider_for(_key(catalog), name, grant))
    return Located(encoded_url(location), options, expiry_of(properties), located_at)


def _ask(catalog: Any, name: str) -> tuple[str, Mapping[str, Any]]:
    """Return where the metadata file of a table is, and the properties of its `FileIO`."""
    opened = _opened(catalog)
    try:
        table = opened.load_table(name)
    except _Found as found:
        return found.location, found.properties
    except AccelError as error:
        failure = error
        failure.hides = True  # its frames hold the catalog
    except Exception as error:  # noqa: BLE001 - whatever a catalog's client raises
        failure = _failure(error, name)
    else:
        return str(table.metadata_location), table.io.properties
    # What it came of may hold a URL with a password: so it is no context of it.
    raise failure


def _key(catalog: Any) -> str:
    """Return what tells a catalog from others."""
    if isinstance(catalog, str):
        return repr(catalog)
    if isinstance(catalog, Mapping):
        return repr(sorted((str(name), repr(value)) for name, value in catalog.items()))
    return _objects.of(catalog)


def _opened(catalog: Any) -> Any:
    if not isinstance(catalog, str | Mapping):
        if not hasattr(catalog, "load_table"):
            raise TypeError(f"catalog is a name, a mapping or a Catalog of pyiceberg, not {catalog!r:.80}")
        return catalog
    try:
        from pyiceberg.catalog import load_catalog
    except ImportError:
        raise TableFormatError(
            "catalogs need the package pyiceberg", hint="pip install 'accel-parquet[iceberg]'"
        ) from None
    ours = {"py-io-impl": f"{__name__}.{MetadataLocator.__name__}"}
    key = _key(catalog)
    with _lock:
        found = _loaded.get(key)
        if found is not None:
            return found
        try:
            if isinstance(catalog, str):
                found = load_catalog(catalog, **ours)
            else:
                given = {str(name): value for name, value in catalog.items()}
                found = load_catalog(given.pop("name", "default"), **{**given, **ours})
        except Exception as error:  # noqa: BLE001 - whatever a catalog's client raises
            failure = _failure(error, "")
        else:
            _loaded[key] = found
            return found
    raise failure


def _failure(error: Exception, name: str) -> AccelError:
    """Return the error of a catalog as one of accel, without credentials that its text or its frames hold."""
    failure = _translated(error, name)
    failure.hides = True
    return failure


def _translated(error: Exception, name: str) -> AccelError:
    kind = type(error).__name__
    text = redact(str(error)).splitlines()[0][:200] if str(error) else ""
    if kind in (
        "NoSuchTableError",
        "NoSuchNamespaceError",
        "NoSuchIcebergTableError",
        "NoSuchIdentifierError",
    ):
        return TableFormatError(f"the catalog has no table {name!r}", path=name)
    if kind in ("NotInstalledError", "ImportError", "ModuleNotFoundError"):
        return TableFormatError(f"the catalog needs a package that is missing: {text}", path=name or None)
    if kind in ("ValueError", "TypeError", "ValidationError"):
        return TableFormatError(
            f"the catalog is not configured so that it opens: {kind}: {text}", path=name or None
        )
    return StoreError(f"the catalog did not answer: {kind}: {text}", path=name or None)
