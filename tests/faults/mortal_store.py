"""A store whose process dies at a chosen change."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

from accel.ranges import ByteRange, Suffix
from accel.store.range_store import Payload
from accel.testing import DictStore

__all__ = ["Killed", "MortalStore"]


class Killed(BaseException):
    """The process ends here."""


class MortalStore(DictStore):
    """A store that is not reached any more after some changes; the last one is made, or is not."""

    def __init__(self) -> None:
        super().__init__()
        self.changes: list[str] = []
        self.reads: list[tuple[str, int]] = []
        """The path and the first byte of each read of a range."""
        self.moved = 0
        self.dies_at: int | None = None
        self.makes_the_last = False

    def revive(self) -> None:
        self.dies_at = None
        self.changes.clear()

    async def _change(self, what: str, make: Callable[[], object]) -> None:
        number = len(self.changes)
        self.changes.append(what)
        if self.dies_at is not None and number >= self.dies_at:
            if number == self.dies_at and self.makes_the_last:
                await make()  # type: ignore[misc]
            raise Killed

    async def write(
        self,
        path: str,
        parts: AsyncIterator[bytes],
        *,
        size: int,
        if_match: str | None = None,
        if_absent: bool = False,
    ) -> None:
        def make() -> object:
            return DictStore.write(self, path, parts, size=size, if_match=if_match, if_absent=if_absent)

        await self._change(f"write {path}", make)
        await make()  # type: ignore[misc]

    async def remove(self, path: str) -> None:
        await self._change(f"remove {path}", lambda: DictStore.remove(self, path))
        await super().remove(path)

    async def move(self, path: str, to: str) -> None:
        await self._change(f"move {path}", lambda: DictStore.move(self, path, to))
        await super().move(path, to)
        self.moved += 1

    async def read(self, path: str, want: ByteRange | Suffix, *, if_match: str | None = None) -> Payload:
        if isinstance(want, ByteRange):
            self.reads.append((path, want.start))
        return await super().read(path, want, if_match=if_match)
