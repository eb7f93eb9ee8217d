"""How much of a file's end is read first: by a rule, until a file beside it has shown what its like take."""

from __future__ import annotations

from accel.io.cache import Cache
from accel.io.client import Client
from accel.io.location import LOCAL_ROOT
from accel.options import Options
from accel.planning.file import DataFile
from accel.planning.handle import FileHandle
from accel.planning.opening import LEAST_TAIL, first_tail_bytes

__all__ = ["TailHints"]


class TailHints:
    """The lengths of first reads, as one scan asks for them; what is learned stays in the cache, by prefix.

    `Options.tail_hint`, where it is given, stands in for the rule; `Options.max_tail_hint` bounds what is learned.
    """

    def __init__(self, cache: Cache, options: Options) -> None:
        self._cache = cache
        self._options = options
        self._worth: dict[str, int] = {}
        """By store, once for the scan: to ask what is known of the network takes longer than all else here."""

    def of(self, client: Client, file: DataFile) -> int:
        """How many bytes of the end of a file are worth reading first."""
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
        if handle.id.size * 5 // 4 <= known:
            return  # nothing in it can ask for more
        took = min(handle.suggested_tail_bytes() * 5 // 4, self._options.max_tail_hint)
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


def _key(client: Client, file: DataFile) -> tuple[str, str, str]:
    return "hint", client.token, file.path.partition("?")[0].rpartition("/")[0]
