"""The offsets of a stream: the files that it has read, as hashes of their names, whatever their place is
called.

A file is known by its canonical URL, so that one place by another spelling (`s3a://`, `file:`, a pattern, a
symbolic link) is not read anew. Files that have been deleted leave the set as long as the stream names one
place: by another name, for instance a narrower pattern, it does not see all files that it has read.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

import numpy as np

from accel.errors import AccelError
from accel.store.location import SCHEMES, parse_url

__all__ = ["FileNames", "Offset", "SeenFiles"]

Offset: TypeAlias = dict[str, Any]
_VERSION: Final = 2
_BY_SPELLING: Final = 1
"""The version whose hashes are of the URLs as they were spelled."""
_HASH_BYTES: Final = 8
_MOST_SCOPES: Final = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenFiles:
    """The files up to an offset."""

    read: frozenset[int] = frozenset()
    """Files that were read, by their hashes."""
    carried: frozenset[int] = frozenset()
    """Files that hold the rows of others that had been read, and nothing else: `optimize` wrote them."""
    spelled: frozenset[int] = frozenset()
    """Files that were read by a version of accel which hashed their URLs as they were spelled."""
    scopes: frozenset[int] = frozenset()
    """The places that the stream has named, by their hashes."""
    outdated: bool = False
    """Whether the offset itself is of that version."""

    def encode(self) -> Offset:
        """Return it as an offset of Spark."""
        offset: Offset = {"version": _VERSION, "count": len(self.read), "seen": _text(self.read)}
        more = {"carried": self.carried, "spelled": self.spelled, "scopes": self.scopes}
        return offset | {name: _text(hashes) for name, hashes in more.items() if hashes}

    @classmethod
    def decode(cls, offset: Offset) -> SeenFiles:
        """Read an offset of Spark.

        Raises
        ------
        AccelError
            It is no offset of this version, or of the one before.
        """
        try:
            version, count = offset["version"], offset["count"]
            names = ("seen",) if version == _BY_SPELLING else ("seen", "carried", "spelled", "scopes")
            sets = [_hashes(offset.get(name, "")) for name in names]
            valid = version in (_VERSION, _BY_SPELLING) and "seen" in offset and len(sets[0]) == count
        except (KeyError, TypeError, ValueError, AttributeError):
            valid = False
        if not valid:
            raise AccelError(
                'the checkpoint holds no offset of format("accel"), or one of another version',
                hint="begin with a new checkpoint",
            )
        if version == _BY_SPELLING:
            return cls(spelled=sets[0], outdated=True)
        return cls(read=sets[0], carried=sets[1], spelled=sets[2], scopes=sets[3])

    def holds(self, name: int, spellings: Iterable[int]) -> bool:
        """Return whether a file, by the hashes of `FileNames`, needs not be read any more."""
        if name in self.read or name in self.carried:
            return True
        return bool(self.spelled) and not self.spelled.isdisjoint(spellings)

    def without(self, other: SeenFiles) -> SeenFiles:
        """Return the files that were read since another offset."""
        return SeenFiles(read=self.read - other.read, spelled=self.spelled - other.spelled)

    def __len__(self) -> int:
        return len(self.read) + len(self.spelled)

    def after(
        self,
        listed: Mapping[int, Sequence[int]],
        *,
        read: Iterable[int],
        carried: Iterable[int],
        scope: int,
    ) -> SeenFiles:
        """Return the offset after a batch.

        Parameters
        ----------
        listed : mapping
            The files that are there, each with the hashes of its spellings.
        read, carried : iterable of int
            The files of the batch, and those that hold the rows of others which had been read.
        scope : int
            The place, as the stream names it now.
        """
        before, scopes = self, self.scopes | {scope}
        if len(scopes) == 1:
            spellings = {one for several in listed.values() for one in several} if self.spelled else set()
            before = replace(
                self,
                read=self.read & listed.keys(),
                carried=self.carried & listed.keys(),
                spelled=self.spelled & spellings,
            )
        return SeenFiles(
            read=before.read | frozenset(read),
            carried=before.carried | frozenset(carried),
            spelled=before.spelled,
            scopes=scopes if len(scopes) <= _MOST_SCOPES else self.scopes,
        )


def _text(hashes: frozenset[int]) -> str:
    return base64.b64encode(np.array(sorted(hashes), dtype="<u8").tobytes()).decode()


def _hashes(text: str) -> frozenset[int]:
    data = base64.b64decode(text, validate=True)
    return frozenset(np.frombuffer(data, dtype="<u8").tolist())  # raises for bytes left over


class FileNames:
    """The hashes by which a stream knows its files.

    Parameters
    ----------
    storage_options : mapping
        They may name the account of a container in Azure.
    """

    def __init__(self, storage_options: Mapping[str, Any] | None) -> None:
        given = {name.lower(): value for name, value in (storage_options or {}).items()}
        names = ("azure_storage_account_name", "azure_account_name", "account_name")
        account = next((given[name] for name in names if given.get(name)), None)
        self._account = account or os.environ.get("AZURE_STORAGE_ACCOUNT_NAME") or ""
        self._real = functools.lru_cache(maxsize=1 << 16)(os.path.realpath)

    def of(self, root: str, path: str) -> int:
        """Return the hash of a file by its canonical URL."""
        return _hash(self.canonical(root, path))

    def canonical(self, root: str, path: str) -> str:
        """Return the one URL of a file, however the user has spelled it."""
        scheme, _, authority = root.partition("://")
        if scheme == "file":
            folder, _, name = path.rpartition("/")
            return f"file://{self._real('/' + folder).rstrip('/')}/{name}"
        container, at, host = authority.partition("@")
        if scheme == "abfss" and at:
            return f"az://{container}@{host.partition('.')[0]}/{path}"
        if scheme == "az" and self._account:
            return f"az://{authority}@{self._account}/{path}"
        return f"{root}/{path}"

    def spellings(self, root: str, path: str, url: str | None = None) -> tuple[int, ...]:
        """Return the hashes that an earlier version may have given a file, which depended on the spelling of
        its URL."""
        return tuple(_hash(text) for text in _spelled(root, path, url))

    def scope(self, sources: str | Sequence[str], *, listing: str) -> int:
        """Return the hash of the place that a stream names."""
        texts = [sources] if isinstance(sources, str) else sources
        places = []
        for text in texts:
            location = parse_url(text)
            places.append(self.canonical(location.root, location.path.rstrip("/")))
        return _hash("\n".join([listing, *sorted(places)]))


def _spelled(root: str, path: str, url: str | None) -> Iterator[str]:
    if url is not None:
        yield url
    scheme, _, authority = root.partition("://")
    if scheme == "file":
        yield from (f"{before}/{path}" for before in ("", "file://", "file:"))
        return
    for name, of_root in SCHEMES.items():
        if of_root == scheme:
            yield f"{name}://{authority}/{path}"


def _hash(text: str) -> int:
    # Eight bytes: two of a million files have one hash in one of 30 million directories.
    data = text.encode(errors="surrogateescape")
    return int.from_bytes(hashlib.blake2b(data, digest_size=_HASH_BYTES).digest(), "little")
