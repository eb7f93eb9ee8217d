"""Versions of objects: what identifies one, and which two are certainly the same.

Source: RFC 9110, 8.8.3 (entity tags).
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["FileVersion", "is_weak", "same_etag"]


def is_weak(etag: str) -> bool:
    """Return whether an etag is weak. A weak one never satisfies If-Match, so it is compared with every
    response instead."""
    return etag.startswith(("W/", "w/"))


def same_etag(one: str, other: str) -> bool:
    """Return whether two etags match weakly (RFC 9110, 8.8.3.2). Quotes are ignored, as some stores leave
    them out."""
    return one == other or _opaque(one) == _opaque(other)


def _opaque(etag: str) -> str:
    return (etag[2:] if is_weak(etag) else etag).strip('"')


@dataclass(frozen=True, slots=True)
class FileVersion:
    """One version of the file at a path, as far as it is known.

    Examples
    --------
    >>> FileVersion(10, '"a"').is_same(FileVersion(10, '"a"'))
    True
    >>> FileVersion(10).is_same(FileVersion(10))
    False
    >>> FileVersion(10, immutable=True).is_same(FileVersion(10))
    True
    """

    size: int | None = None
    """Bytes; None where unknown."""
    etag: str | None = None
    """The ETag as the store writes it; None where unknown."""
    immutable: bool = False
    """Whether whoever names the path vouches that it never holds another version, as the log of a table
    does."""

    def is_same(self, other: FileVersion) -> bool:
        """Return whether both are certainly the same version of the file at one path.

        Parameters
        ----------
        other : FileVersion
            What somebody else knows of the file at the same path.

        Returns
        -------
        bool
            False where they differ, and where it is not known.
        """
        if self.size is not None and other.size is not None and self.size != other.size:
            return False
        if self.etag is not None and other.etag is not None:
            return same_etag(self.etag, other.etag)
        return self.immutable or other.immutable
