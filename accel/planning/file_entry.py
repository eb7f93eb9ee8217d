"""The files of a scan as a source names them, in blocks, with what the source knows of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from accel.errors import redact
from accel.planning.handle import FileHandle
from accel.planning.selection import RowSelection

__all__ = ["FileBlock", "FileEntry", "FileFacts", "ValueRange", "match_selection"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueRange:
    """The facts of a source about the values of one column in one file.

    Bounds may be wider than the values, and are None where they are unknown. NaN lies within no bounds: a float column
    for which `nan_count` is None may hold it.
    """

    lower: pa.Scalar | None = None
    upper: pa.Scalar | None = None
    null_count: int | None = None
    nan_count: int | None = None
    num_rows: int | None = None
    exact: bool = False
    """Whether both bounds are values of the column."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FileFacts:
    """The facts of a source about one version of one file, and which version that is.

    The facts are used for this version only. Another version is read as if there were no facts, so
    facts that are out of date cost time and never a row.
    """

    size: int | None
    etag: str | None
    """The ETag of the version, as the store writes it. None, with no size: the source vouches for every version, and has
    `rows` alone."""
    handle: FileHandle | None = None
    """The parsed metadata, which is not requested then."""
    tail: bytes | None = None
    """The last bytes of the file, its footer among them, which are not requested then. Used where the entry's own etag is
    that of this version."""
    pinned: bool = False
    """The file is read in this version or not at all: another one is an ObjectChangedError."""
    round_trips: int | None = None
    """Those that it took this very run to get the handle. None where the handle is older: then a request to the store finds
    out whether it is current, unless the entry's own etag says so."""
    bounds: Mapping[tuple[str, ...], ValueRange] = field(default_factory=dict)
    """By the path of the column. They exclude a file before it is opened."""
    values: Mapping[tuple[str, ...], pa.Array] = field(default_factory=dict)
    """By the path of a column, all of its distinct values, null among them where there is one."""
    num_rows: int | None = None
    """The rows of the file."""
    all_match: bool = False
    """Whether every row of the file matches the predicate of the scan."""
    rows: Mapping[int, RowSelection] | None = None
    """By row group, the rows that may match; row groups that are not named hold none. None says nothing."""


@dataclass(frozen=True, slots=True)
class FileEntry:
    """One Parquet file to read."""

    root: str
    """The store it lives in, as `store.location` names it: "s3://bucket", "file://", "https://host", ..."""
    path: str
    """Relative to the root, as the store takes it."""
    url: str
    """The name that users see: in errors (redacted) and as the key of `selection=`."""
    size: int | None = None
    """The size in bytes, where a listing gives it."""
    etag: str | None = None
    """The ETag of the current version, where a listing gives it."""
    partition: tuple[object, ...] = ()
    """Values of the partition columns (Python values or their texts, None for null), in the order of the block's schema."""
    facts: FileFacts | None = field(default=None, compare=False)
    """The facts of the source about the file's content."""

    def __repr__(self) -> str:
        return f"FileEntry({redact(self.url)!r}, partition={self.partition!r})"


@dataclass(frozen=True, slots=True)
class FileBlock:
    """Some files of a source, in order, and the partition columns that their paths spell."""

    files: tuple[FileEntry, ...]
    partition_schema: pa.Schema
    """The same in all blocks of a source."""
    round_trips: int
    """Dependent requests that finding the files took; 0 for files that are named."""
    catalog_trips: int = 0
    """Those of `round_trips` that an index outside the files took, beyond the listing."""
    more: bool = False
    """Whether another block follows."""
    listed: bool = True
    """Whether the etags of the files are those that the store had when it was asked for them just now."""


def match_selection(
    selection: Mapping[str, Mapping[int, RowSelection]], files: Sequence[FileEntry]
) -> dict[str, dict[int, RowSelection]]:
    """Return the caller's own rows by the URLs of the files, which may have been named by their paths.

    Raises
    ------
    ValueError
        A name belongs to no file, or to several.
    """
    urls_by_name: dict[str, set[str]] = {}
    for file in files:
        urls_by_name.setdefault(file.path, set()).add(file.url)
        if file.root == "file://":
            # The whole path will do too, however the source was spelt.
            urls_by_name.setdefault(f"/{file.path.lstrip('/')}", set()).add(file.url)
    # A URL wins over equal paths of other files.
    urls_by_name.update((file.url, {file.url}) for file in files)
    out: dict[str, dict[int, RowSelection]] = {}
    for name, groups in selection.items():
        urls = urls_by_name.get(name) or urls_by_name.get(name.removeprefix("file://"), set())
        if len(urls) > 1:
            raise ValueError(
                f"selection names {redact(name)!r}, which is the path of {len(urls)} files of the scan; "
                f"name them by their URLs, as {redact(min(urls))!r}"
            )
        if not urls:
            import difflib

            close = difflib.get_close_matches(name, urls_by_name, n=1)
            hint = f"; did you mean {redact(close[0])!r}?" if close else ""
            raise ValueError(
                f"selection names {redact(name)!r}, which is not among the files of the scan{hint}"
            )
        (url,) = urls
        rows = out.setdefault(url, {})
        for group, ranges in groups.items():
            rows[group] = rows[group].union(ranges) if group in rows else ranges
    return out
