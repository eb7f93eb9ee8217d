"""What the instruments share: a store around a store."""

from __future__ import annotations

from collections.abc import AsyncIterator

from accel.store.range_store import Lister, ObjectEntry, RangeStore

__all__ = ["Wrapper"]


class Wrapper:
    """A store that passes every call on; it lists exactly where the inner one does.

    Instruments go around the lowest store, below merging and retries, so that they see what is really sent.
    """

    def __init__(self, inner: RangeStore) -> None:
        self.inner = inner
        # Set on the instance, so that isinstance(self, Lister) says what the inner store can do.
        if isinstance(inner, Lister):
            self.list = self._list

    def _list(self, prefix: str) -> AsyncIterator[ObjectEntry]:
        if not isinstance(self.inner, Lister):
            raise TypeError(f"{type(self.inner).__name__} cannot list")
        return self.inner.list(prefix)
