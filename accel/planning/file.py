"""A file of a scan, as the tables room finds it and the planner takes it."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from accel.errors import redact

__all__ = ["DataFile", "Listing", "ObjectId"]


@dataclass(frozen=True, slots=True)
class ObjectId:
    """One version of one object: what a pinned read must find again.

    `etag` is as the store wrote it; None where the store gives none.
    """

    path: str
    size: int
    etag: str | None

    def __repr__(self) -> str:
        # Over HTTP the path holds the query string, which may be a signature.
        return f"ObjectId({redact(self.path)!r}, {self.size} bytes, etag={self.etag!r})"


@dataclass(frozen=True, slots=True)
class DataFile:
    """One Parquet file to read."""

    root: str
    """The store it lives in, as `store.location` names it: "s3://bucket", "file://", "https://host", ..."""
    path: str
    """Relative to the root, as the store takes it."""
    url: str
    """What the user would call it; shown (redacted) in errors, and the key of `selection=`."""
    size: int | None = None
    """Known from a listing, else None."""
    etag: str | None = None
    """Known from a listing, else None."""
    partition: tuple[object, ...] = ()
    """Values of the partition columns (Python values or their texts, None for null), in the listing's schema order."""

    def __repr__(self) -> str:
        return f"DataFile({redact(self.url)!r}, partition={self.partition!r})"


@dataclass(frozen=True, slots=True)
class Listing:
    """The files of a source, in order, and the partition columns that their paths spell."""

    files: tuple[DataFile, ...]
    partition_schema: pa.Schema
    round_trips: int
    """Dependent requests that listing took; 0 for named files."""
