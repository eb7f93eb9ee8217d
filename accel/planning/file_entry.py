"""The files of a scan as a source names them, in blocks, with what the source knows of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from accel.arrays import from_numpy
from accel.errors import ObjectChangedError, redact
from accel.format.domain import Bounds
from accel.planning.column_bounds import ColumnBounds
from accel.planning.column_mapping import ColumnMapping
from accel.planning.deleted_rows import DeletedRows
from accel.planning.handle import FileHandle
from accel.planning.selection import RowSelection
from accel.versions import FileVersion

__all__ = ["ColumnFigures", "FileBlock", "FileEntry", "FileFacts"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ColumnFigures:
    """The facts of a source about the values of one column in one file, which answer questions about all of
    its rows."""

    type: pa.DataType
    """The type of the column in the file."""
    bounds: Bounds | None = None
    """The bounds of the file, as one unit."""
    values: pa.Array | None = None
    """All distinct values, null among them where there is one."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FileFacts:
    """The facts of a source about one version of one file, and which version that is.

    The facts are used for this version only. Another version is read as if there were no facts, so
    facts that are out of date cost time and never a row.
    """

    version: FileVersion
    """The version that the facts are of. Immutable: whoever has them vouches for what is at the path."""
    handle: FileHandle | None = None
    """The parsed metadata, which is not requested then."""
    tail: bytes | None = None
    """The last bytes of the file, its footer among them, which are not requested then. Used where the entry's
    own etag is that of this version."""
    round_trips: int | None = None
    """Those that it took this very run to get the handle. None where the handle is older: then a request to
    the store finds out whether it is current, unless the entry's own etag says so."""
    figures: Mapping[tuple[str, ...], ColumnFigures] = field(default_factory=dict)
    """By the path of the column. They answer questions about all rows; `FileBlock.bounds` rules files out."""
    num_rows: int | None = None
    """The rows of the file."""
    all_match: bool = False
    """Whether every row of the file matches the predicate of the scan."""
    may_match: Mapping[int, RowSelection] | None = None
    """By row group, the rows that may match the predicate of the scan; row groups that are not named hold
    none. A hint: without a predicate it is not used. None says nothing."""


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
    """Values of the partition columns (Python values or their texts, None for null), in the order of the
    block's schema."""
    facts: FileFacts | None = field(default=None, compare=False)
    """The facts of the source about the file's content."""
    immutable: bool = False
    """Whether the source vouches that the path never holds another version."""
    deleted: DeletedRows | None = field(default=None, compare=False)
    """The rows that are gone: they are in no result and no count, with or without a predicate."""
    selected: Mapping[int, RowSelection] | None = field(default=None, compare=False)
    """By row group, the only rows that are read; row groups that are not named are left out. None: all rows.
    Unlike `FileFacts.may_match` it is no hint."""
    columns: ColumnMapping | None = field(default=None, compare=False)
    """Which columns of the file are meant by the names of the data set; None: those of the same names."""
    footer_bytes: int | None = field(default=None, compare=False)
    """The bytes of its end that hold the footer, where the source knows them: they are read first. Where they
    are too few, it costs another request."""
    first_row: int = field(default=0, compare=False)
    """The number of its first row, where numbers of rows are asked for: a source may number the rows of all
    files."""
    pinned: bool = field(default=False, compare=False)
    """The file is read in this version or not at all."""
    modified: float | None = field(default=None, compare=False)
    """When it was changed last, in seconds since 1970, where a listing tells."""

    @property
    def stored_columns(self) -> ColumnMapping | None:
        """`columns` under the names that outlive a rename; None where the file has no mapping."""
        return None if self.columns is None else self.columns.stored

    @property
    def version(self) -> FileVersion:
        """What is known of the version that the source means."""
        return FileVersion(self.size, self.etag, self.immutable)

    def refuse_other(self, handle: FileHandle) -> None:
        """Raise ObjectChangedError where the file was opened in another version than its source is certain
        of: of a path that never changes, of an entry that is pinned, or of rows that are gone."""
        certain = self.immutable or self.pinned or (self.deleted is not None and self.etag is not None)
        version = self.version
        if certain and version != handle.version and not version.is_same(handle.version):
            raise ObjectChangedError(
                f"the file is not the one that its source names: it has {handle.size} bytes and the ETag "
                f"{handle.etag}, {self.size} and {self.etag} were expected",
                path=self.url,
            )

    def __repr__(self) -> str:
        return f"FileEntry({redact(self.url)!r}, partition={self.partition!r})"


@dataclass(frozen=True, slots=True)
class FileBlock:
    """Some files of a source, in order, with what is known of them in columns."""

    files: Sequence[FileEntry]
    """They may be made when they are looked at: see `scanning.file_source.FileColumns`."""
    partition_schema: pa.Schema
    """The columns whose values are those of `FileEntry.partition`; the same in all blocks of a source."""
    round_trips: int
    """Dependent requests that finding the files took; 0 for files that are named."""
    catalog_trips: int = 0
    """Those of `round_trips` that an index outside the files took, beyond the listing."""
    more: bool = False
    """Whether another block follows."""
    listed: bool = True
    """Whether the etags of the files are those that the store has just reported."""
    bounds: Mapping[tuple[str, ...], ColumnBounds] = field(default_factory=dict)
    """By the path of a column of the data set. They rule out files of a known version before these are
    opened."""
    partition_values: Mapping[str, pa.Array] = field(default_factory=dict)
    """The values of some partition columns once more, as arrays with a value for each file."""
    num_rows: pa.Array | None = None
    """The rows of each file, the deleted ones included: integers, null where unknown."""

    def with_files(self, files: Sequence[FileEntry], places: Sequence[int]) -> FileBlock:
        """Return the block with some of its files, and with what is known of those.

        Parameters
        ----------
        files : sequence of FileEntry
            The files that are left, perhaps with more facts.
        places : sequence of int
            Where they were in the block.

        Returns
        -------
        FileBlock
            The same block otherwise.
        """
        if not (self.bounds or self.partition_values or self.num_rows is not None):
            return replace(self, files=files)
        at = from_numpy(np.array(places, np.int64))

        return replace(
            self,
            files=files,
            bounds={path: found.take(at) for path, found in self.bounds.items()},
            partition_values={name: array.take(at) for name, array in self.partition_values.items()},
            num_rows=None if self.num_rows is None else self.num_rows.take(at),
        )
