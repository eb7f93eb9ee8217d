"""The ends of files: what first reads fetch along with the footers, and what a source has of them."""

from __future__ import annotations

import enum

from accel.planning.file_entry import FileEntry
from accel.planning.handle import FileHandle
from accel.planning.read_request import Tail
from accel.ranges import ObjectId
from accel.store.client import Client
from accel.versions import is_weak

__all__ = ["KeptTails", "Tails", "given_tail"]

_TAILS_SHARE = 4
"""Tails that tasks read from may take 1/_TAILS_SHARE of `memory_limit`."""


class Tails(enum.Enum):
    """What to do with data that the first read of a file fetches along with the footer."""

    DROP = "drop"
    """The tasks may run elsewhere or much later, so the data is dropped."""
    SERVE = "serve"
    """The tasks of the same run read from it."""


class KeptTails:
    """The data that first reads of files fetched along with their footers.

    Parameters
    ----------
    use : Tails
    limit : int
        Bytes that the scan may hold.
    """

    def __init__(self, use: Tails, limit: int) -> None:
        self._limit = limit
        self._tails: dict[tuple[str, str], tuple[ObjectId, int, memoryview]] | None = (
            {} if use is Tails.SERVE else None
        )
        self._dropped: dict[tuple[str, str], tuple[ObjectId, int]] = {}
        """Where the dropped tails start."""

    def keep(self, client: Client, path: str, tail: Tail, *, among: int) -> None:
        """Let tasks read from the tail of a file, where memory allows that for `among` files."""
        if tail.etag is None:
            return
        if self._tails is None:
            self._dropped[client.token, path] = ObjectId(path, tail.size, tail.etag), tail.start
            return
        if len(tail.data) * among <= self._limit // _TAILS_SHARE:
            pin = ObjectId(path, tail.size, tail.etag)
            self._tails[client.token, path] = (pin, tail.start, tail.data)

    def take(self, client: Client, handle: FileHandle) -> tuple[int, memoryview] | None:
        """Return the data that the first read of this version fetched, and where it starts; it is handed out
        once."""
        found = self._tails.pop((client.token, handle.id.path), None) if self._tails is not None else None
        # Another scan may have loaded the handle, of another version than the tail.
        return found[1:] if found is not None and found[0] == handle.id else None

    def dropped_from(self, client: Client, file: ObjectId) -> int | None:
        """Return where the dropped tail of a version starts; None where there is none."""
        found = self._dropped.get((client.token, file.path))
        return found[1] if found is not None and found[0] == file else None


def given_tail(file: FileEntry) -> Tail | None:
    """Return the end of a file as its source has it.

    None where that is of another version than the entry, or not certain to be of the same.
    """
    facts = file.facts
    if facts is None or facts.tail is None or not file.version.is_same(facts.version):
        return None
    size, etag = facts.version.size, file.etag or facts.version.etag
    if size is None or etag is None or is_weak(etag) or len(facts.tail) > size:
        return None
    return Tail(memoryview(facts.tail), size - len(facts.tail), size, etag)
