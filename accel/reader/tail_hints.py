"""How much of a file's end is read first: by a rule, until a file beside it has shown what its like take."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from accel.cache.cache import Cache, CacheKey, Entry
from accel.options import Options
from accel.planning.file import DataFile
from accel.planning.handle import FileHandle
from accel.planning.opening import LEAST_TAIL, first_tail_bytes
from accel.store.client import Client
from accel.store.location import LOCAL_ROOT

__all__ = ["TailHints"]

_ENOUGH: Final = 16
"""Files that have to show what those of a scan take before the next are asked for no more."""
_LEAST_LEAN: Final = 4 << 10
"""Bytes; a shorter answer is no sooner here."""
_WHOLE: Final = 32 << 10
"""Bytes of a file that comes whole in any case: its data needs no other request then, in this scan and those after it."""
_ABREAST: Final = 8 << 20
"""Bytes that the first reads of all files that are opened at the same time may bring by the rule."""


@dataclass(slots=True)
class _Met:
    """The files of one store that a scan has opened."""

    least_size: int
    """Bytes of the smallest."""
    files: int = 0
    """Those that are not small."""
    took: int = 0
    """The most that one of these took."""


class TailHints:
    """The lengths of first reads, as one scan asks for them; what is learned stays in the cache, by prefix.

    The rule is for files of which nothing is known: thousands bring gigabytes by it. Where many are opened at once they
    share what it may bring, and after some of them a scan asks the others for what these took, and a quarter more.

    `Options.tail_hint`, where it is given, stands in for all that; `Options.max_tail_hint` bounds what is learned.
    """

    def __init__(self, cache: Cache, options: Options) -> None:
        self._cache = cache
        self._options = options
        self._worth: dict[str, int] = {}
        """By store, once for the scan: to ask what is known of the network takes longer than all else here."""
        self._met: dict[str, _Met] = {}
        """By store."""

    def of(self, client: Client, file: DataFile, *, abreast: int = 1) -> int:
        """How many bytes of the end of a file are worth reading first, of so many that are opened at the same time."""
        usual, met = self._usual(client, file), self._met.get(client.token)
        if self._options.tail_hint is not None:
            return usual
        if met is None or met.files < _ENOUGH:
            return min(usual, max(_WHOLE, _ABREAST // abreast))
        lean = max(_LEAST_LEAN, met.took * 5 // 4)
        size = met.least_size if file.size is None else file.size
        return min(usual, lean if size > _WHOLE else max(_WHOLE, lean))

    def _usual(self, client: Client, file: DataFile) -> int:
        """The same by what is known before the scan."""
        learned, given = self._cache.get(_key(client, file)), self._options.tail_hint
        if isinstance(learned, int):
            return max(learned, given or 0)
        if given is not None:
            return given
        worth = self._worth.get(client.token)
        if worth is None:
            # Local files are as near for a second read.
            worth = 0 if client.root == LOCAL_ROOT else client.network.early_bytes
            self._worth[client.token] = worth
        return first_tail_bytes(file.size, worth)

    def learn(self, client: Client, file: DataFile, handle: FileHandle, known: int) -> None:
        """Note what a file took, of whose end `known` bytes were read first."""
        size = handle.id.size
        met = self._met.get(client.token)
        if met is None:
            met = self._met[client.token] = _Met(size)
        met.least_size = min(met.least_size, size)
        whole = size * 5 // 4 <= known  # nothing in it can ask for more
        if whole and size <= _WHOLE:
            return
        took = handle.suggested_tail_bytes()
        met.files += 1
        met.took = max(met.took, took)
        if whole:
            return
        took = min(took * 5 // 4, self._options.max_tail_hint)
        key = _key(client, file)
        learned = self._cache.get(key)
        if isinstance(learned, int):
            better = took > learned
        elif self._options.tail_hint is not None:
            better = took > known
        else:
            # The first of them may show that less will do, too.
            took = max(took, min(LEAST_TAIL, self._options.max_tail_hint))
            better = took != known
        if better:
            self._cache.put(key, took, 256)


def _key(client: Client, file: DataFile) -> CacheKey:
    folder = file.path.partition("?")[0].rpartition("/")[0]
    return CacheKey(client.token, folder, None, Entry.TAIL_HINT)
