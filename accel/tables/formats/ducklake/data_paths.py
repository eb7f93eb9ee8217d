"""Where the files of a lake are: paths relative to table, schema and lake, or whole ones.

A table names files of its own store, and none above its folders: a catalog that somebody has written to must
not make a reader open what it says.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from accel.arrays import make_scalar, mask, values_array
from accel.errors import TableFormatError
from accel.store.location import parse_url
from accel.tables.climbing import CLIMBING, climbs
from accel.tables.file_urls import encoded_url, is_file_url, percent_encoded
from accel.tables.formats.ducklake.metadata import LakeVersion

__all__ = ["DataPaths"]


@dataclass(frozen=True, slots=True)
class DataPaths:
    """The folder of a table, and the store that its files are in."""

    folder: str
    """With a slash at the end."""
    root: str
    others: frozenset[str] = frozenset()
    """Other stores that files may be in."""

    @classmethod
    def of(cls, found: LakeVersion, data_path: str | None, *, allowed: Collection[str] = ()) -> DataPaths:
        """Return where the files of a table are.

        Raises
        ------
        TableFormatError
            The catalog does not say it, or a path climbs, or is in another store.
        """
        base = data_path or (found.data_path and encoded_url(found.data_path))
        if not base:
            raise TableFormatError("the catalog does not say where the data are", hint="give data_path=")
        at = cls(_with_slash(base), _root_of(base), frozenset(map(_root_of, allowed)))
        for path, relative in found.folders:
            at = replace(at, folder=_with_slash(at.url(path, relative))) if path else at
        return at

    def url(self, path: Any, relative: Any) -> str:
        """Return the URL of one file.

        Raises
        ------
        TableFormatError
            It is refused.
        """
        if not isinstance(path, str) or not path or "\0" in path:
            raise TableFormatError(f"the catalog has {str(path)[:80]!r} where a path belongs")
        remote = self.root.startswith("http")
        if climbs(path) or (remote and climbs(unquote(path))):
            raise TableFormatError("a path of the table climbs above its folder", place=path[:200])
        if relative:
            return self.folder + (percent_encoded(path) if is_file_url(self.folder) else path)
        url = encoded_url(path)
        if _root_of(url) not in {self.root, *self.others}:
            raise TableFormatError(
                f"the table names a file of another store than {self.root!r}, and is not followed there",
                place=path[:200],
                hint="`allowed_stores=` names other stores that its files may lie in",
            )
        return url

    def urls(self, paths: pa.Array, relative: pa.Array) -> pa.Array:
        """Return the URLs of some files: see `url`. Paths that are relative take no time of their own."""
        doubtful = pc.match_substring_regex(paths, rf"{CLIMBING}|\x00|^$")
        if self.root.startswith("http"):
            doubtful = pc.or_(doubtful, pc.match_substring(paths, "%"))
        singly = pc.or_(doubtful, pc.invert(relative))
        folder, nothing = (make_scalar(text, pa.string()) for text in (self.folder, ""))
        below = pc.replace_substring(paths, "%", "%25") if is_file_url(self.folder) else paths
        urls = pc.binary_join_element_wise(folder, below, nothing)
        if not pc.any(singly).as_py():
            return urls
        places = np.flatnonzero(mask(singly)).tolist()
        found = [self.url(paths[place].as_py(), relative[place].as_py()) for place in places]
        return pc.replace_with_mask(urls, singly, values_array(found, pa.string()))


def _with_slash(path: str) -> str:
    return path if path.endswith("/") else f"{path}/"


def _root_of(url: str) -> str:
    """Return the store of a URL; of paths that are none, that of local files."""
    return parse_url(url).root
