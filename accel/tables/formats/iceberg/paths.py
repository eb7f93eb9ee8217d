"""The paths that the metadata of a table name, and which of them are read.

A table names its files by whole URLs. Whoever can write to one table could so have any file read, with the
credentials and from the machine of the reader: only stores that the table was opened with, or that the user
allows, are read from.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from accel.arrays import values_array
from accel.errors import TableFormatError, redact
from accel.store.location import has_scheme, parse_url
from accel.tables.climbing import climbs
from accel.tables.file_urls import encoded_url, is_file_url, percent_encoded

if TYPE_CHECKING:
    from accel.store.location import Location

__all__ = ["TablePaths"]

_ROOT: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*://[^/?#]*/|file:/(?!/)|/(?!/)")
"""How URLs begin that lie in one store."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TablePaths:
    """The paths of one table."""

    roots: frozenset[str]
    """The stores that files may lie in."""
    in_store: bool
    """Whether the user gave a store, in which all paths lie."""
    moved_from: str | None = None
    """Where the table was when its paths were written, if it may have been moved."""
    moved_to: str | None = None
    """Where it is now."""

    @classmethod
    def of(
        cls,
        metadata_url: str,
        *,
        location: str,
        in_store: bool,
        allowed: Collection[str] = (),
        moved: bool = False,
    ) -> TablePaths:
        """Return the paths of a table.

        Parameters
        ----------
        metadata_url : str
            The metadata file that was read.
        location : str
            The place of the table, by that file.
        in_store : bool
            Whether the user gave a store.
        allowed : collection of str
            URLs of other stores that files may lie in.
        moved : bool
            Whether files below the place of the table are looked for below the directory in which the
            metadata file was found.
        """
        here = metadata_url.rpartition("/")[0].rpartition("/")[0]
        roots = {parse_url(url, in_store=in_store).root for url in (metadata_url, *allowed)}
        return cls(
            roots=frozenset(roots),
            in_store=in_store,
            moved_from=location.rstrip("/") + "/" if moved else None,
            moved_to=here + "/" if moved else None,
        )

    def resolve(self, path: str) -> str:
        """Return the URL of a path of the metadata.

        Raises
        ------
        TableFormatError
            It is none that may be read.
        """
        if self.moved_from is not None and path.startswith(self.moved_from):
            below = self._checked(path)[len(self.moved_from) :]
            return f"{self.moved_to}{percent_encoded(below) if is_file_url(str(self.moved_to)) else below}"
        location = self._location(self._checked(path))
        if location.root not in self.roots:
            raise TableFormatError(
                f"the table names the file {redact(path)!r}, which lies in another store than the table",
                hint="`allowed_stores=` names other stores that its files may lie in",
            )
        return encoded_url(path)

    def resolve_all(self, paths: pa.Array) -> pa.Array:
        """Return the URLs of paths of the metadata.

        Raises
        ------
        TableFormatError
            One is none that may be read.
        """
        if not len(paths):
            return paths
        first = paths[0].as_py()
        root = _ROOT.match(first)
        if root is not None and self.moved_from is None and self.resolve(f"{root[0]}x"):
            # What begins as one that may be read lies in the same store.
            begin_alike = pc.all(pc.starts_with(paths, root[0])).as_py()
            doubtful = ("..", "%") if is_file_url(root[0]) else ("..",)
            if begin_alike and not any(pc.any(pc.match_substring(paths, one)).as_py() for one in doubtful):
                return paths
        # Most paths of a manifest lie in a few directories: one of each is looked at.
        parts = pc.extract_regex(paths, r"^(?s)(?P<place>.*/)?(?P<name>[^/]*)$")
        places = parts.field("place").dictionary_encode()
        known = {}
        for place in places.dictionary.to_pylist():
            known[place] = self.resolve(f"{place or ''}x")[:-1]
        names = parts.field("name")
        local = any(map(is_file_url, known.values())) and pc.any(pc.match_substring(names, "%")).as_py()
        if not local and all(place == found for place, found in known.items()):
            return paths
        fronts = pa.DictionaryArray.from_arrays(
            places.indices,
            values_array([known[place] for place in places.dictionary.to_pylist()], pa.string()),
        ).dictionary_decode()
        if local:
            of_files = pc.starts_with(fronts, "file:", ignore_case=True)
            names = pc.if_else(of_files, pc.replace_substring(names, "%", "%25"), names)
        return pc.binary_join_element_wise(fronts, names, "")

    def _checked(self, path: str) -> str:
        if climbs(path):
            raise TableFormatError(f"the table names the file {redact(path)!r}, a path that climbs")
        return path

    def _location(self, path: str) -> Location:
        if not has_scheme(path) and not path.startswith(("/", "file:")) and not self.in_store:
            raise TableFormatError(f"the table names the file {redact(path)!r}, which is no whole path")
        return parse_url(path, in_store=self.in_store)
