"""A store that is as far away as one likes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

from accel.ranges import ByteRange, Suffix
from accel.store.range_store import ObjectEntry, Payload, RangeStore
from accel.testing.wrapper import Wrapper

__all__ = ["LatencyStore"]


class LatencyStore(Wrapper):
    """Delays every answer by the time that a network would need.

    Parameters
    ----------
    inner : RangeStore
        The store that answers.
    first_byte : float, default 0.03
        Seconds until the first byte of any answer, failures and listings included.
    bandwidth : float or None, default 90e6
        Bytes a second of each response; None for no limit.
    sleep : callable, optional
        What waits; a test puts its own here to assert the delays without waiting.

    Notes
    -----
    For trends and tests only: it has no sockets. Timings worth quoting go through `accel.testing.proxy`.
    """

    def __init__(
        self,
        inner: RangeStore,
        *,
        first_byte: float = 0.03,
        bandwidth: float | None = 90e6,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        super().__init__(inner)
        self.first_byte = first_byte
        self.bandwidth = bandwidth
        self._sleep = sleep

    async def read(self, path: str, want: ByteRange | Suffix, *, if_match: str | None = None) -> Payload:
        """Pass one read on and answer it late."""
        await self._sleep(self.first_byte)
        payload = await self.inner.read(path, want, if_match=if_match)
        if self.bandwidth is not None:
            await self._sleep(len(payload.data) / self.bandwidth)
        return payload

    async def _list(self, prefix: str) -> AsyncIterator[ObjectEntry]:
        await self._sleep(self.first_byte)
        async for entry in super()._list(prefix):
            yield entry
