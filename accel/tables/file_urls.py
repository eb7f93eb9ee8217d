"""URLs of local files: accel's are percent-encoded, those in the metadata of most tables are not.

Java's Hadoop, pyiceberg and DuckDB take what follows `file:` as it is: a `%2F` there is a part of a name, as
of the directory of a partition. accel's own URLs of that file have `%252F`.
"""

from __future__ import annotations

__all__ = ["encoded_url", "is_file_url", "percent_encoded"]


def is_file_url(text: str) -> bool:
    """Return whether a text is a URL of a local file, whose path is percent-encoded."""
    return text[:5].lower() == "file:"


def encoded_url(text: str) -> str:
    """Return a URL or path of the metadata of a table as accel's stores take it."""
    return percent_encoded(text) if is_file_url(text) else text


def percent_encoded(path: str) -> str:
    """Return a path as it is written in a URL of a local file; nothing but `%` means something else there."""
    return path.replace("%", "%25")
