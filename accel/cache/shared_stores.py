"""The servers of the shared tier: Redis, PostgreSQL, and the memory of the process, found by a URL."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from cachetools import TTLCache

from accel.cache.shared import LOOKED_UP, SharedStore, SharedTier, Stamped
from accel.errors import StoreError
from accel.options import MIB
from accel.store.redis_connection import REDIS_SCHEMES, RedisAddress

if TYPE_CHECKING:
    from redis.asyncio import Redis

__all__ = ["SETTINGS", "MemoryShared", "RedisShared", "open_shared"]

SETTINGS: Final = ("max_bytes", "timeout", "ttl")
"""What the query string of a URL may set."""
_TIMEOUT: Final = 0.1
"""Seconds that a lookup may take, unless the URL says otherwise."""
_TTL: Final = 7 * 86_400.0
"""Seconds after which an entry is removed that was not written anew, unless the URL says otherwise."""
_MAX_BYTES: Final = 1024 * MIB
"""Bytes that all entries may take, unless the URL says otherwise."""
_CONNECTIONS: Final = 4


def open_shared(url: str) -> SharedTier:
    """Return the shared tier on the server that a URL names. Equal URLs share one server object; no request is sent.

    Raises
    ------
    StoreError
        The URL cannot be used.
    AccelError
        The package for that server is missing.
    """
    if not isinstance(url, str):
        raise TypeError(f"shared of a cache is a URL, not {type(url).__name__}")
    scheme, colon, rest = url.partition("://")
    scheme = scheme.lower()
    if not colon or scheme not in ("memory", *REDIS_SCHEMES):
        raise StoreError(
            "this is no URL of a server that a cache can share",
            hint="redis://host:6379/0, rediss://..., postgresql://host/database, or memory://name in one process",
        )
    with _lock:
        if scheme == "memory":
            store = _stores.setdefault(url, MemoryShared())
            return SharedTier(store, name=f"memory://{rest}", timeout=_TIMEOUT)
        address = RedisAddress.parse(url, settings=SETTINGS)
        store = _stores.get(url) or _stores.setdefault(url, RedisShared(address))
        return SharedTier(store, name=str(address), timeout=address.settings.get("timeout", _TIMEOUT))


_stores: dict[str, SharedStore] = {}
_lock = threading.Lock()


class MemoryShared:
    """Entries in this process, for tests."""

    def __init__(self) -> None:
        self._entries: TTLCache[bytes, bytes] = TTLCache(_MAX_BYTES, ttl=_TTL, getsizeof=len)

    async def get_many(self, keys: Sequence[bytes]) -> Stamped:
        """See `SharedStore.get_many`."""
        found = {key: self._entries.get(key) for key in keys}
        return Stamped({key: entry for key, entry in found.items() if entry is not None}, time.time())

    async def put_many(self, entries: Mapping[bytes, bytes]) -> None:
        """See `SharedStore.put_many`."""
        self._entries.update(entries)

    async def close(self) -> None:
        """See `SharedStore.close`."""


# KEYS: members by the moment when they expire, their sizes, the sum of these. ARGV: limit in bytes, milliseconds to live,
# prefix, and for each entry its member and its bytes. The entries that expire first are evicted first.
_PUT: Final = """
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local most, ttl, prefix = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3]
local function drop(member)
  local size = redis.call('HGET', KEYS[2], member)
  if size then redis.call('DECRBY', KEYS[3], size) end
  redis.call('HDEL', KEYS[2], member)
  redis.call('ZREM', KEYS[1], member)
  redis.call('UNLINK', prefix .. member)
end
for _, member in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now, 'LIMIT', 0, 1000)) do drop(member) end
for i = 4, #ARGV, 2 do
  local member, entry = ARGV[i], ARGV[i + 1]
  drop(member)
  redis.call('SET', prefix .. member, entry, 'PX', ttl)
  redis.call('ZADD', KEYS[1], string.format('%.0f', now + ttl), member)
  redis.call('HSET', KEYS[2], member, #entry)
  redis.call('INCRBY', KEYS[3], #entry)
end
while tonumber(redis.call('GET', KEYS[3]) or '0') > most do
  local first = redis.call('ZRANGE', KEYS[1], 0, 0)[1]
  if not first then redis.call('DEL', KEYS[2], KEYS[3]) break end
  drop(first)
end
"""


class RedisShared:
    """Entries in Redis, each a value with a time to live. The server evicts what it likes besides.

    Parameters
    ----------
    address : RedisAddress
        Its settings are `SETTINGS`.
    """

    def __init__(self, address: RedisAddress) -> None:
        self._address = address
        self._prefix = f"{address.prefix}:metadata:".encode()
        self._max_bytes = int(address.settings.get("max_bytes", _MAX_BYTES))
        self._ttl = address.milliseconds("ttl") or round(_TTL * 1000)
        # The tier has limits of its own, and these are the last resort.
        seconds = max(5.0, 10 * address.settings.get("timeout", _TIMEOUT))
        self._redis: Redis = address.connect(connect_timeout=seconds, read_timeout=seconds, most=_CONNECTIONS)

    async def get_many(self, keys: Sequence[bytes]) -> Stamped:
        """See `SharedStore.get_many`."""
        pipe = self._redis.pipeline(transaction=False)
        pipe.time()
        pipe.mget([self._prefix + key for key in keys[:LOOKED_UP]])
        (seconds, micros), entries = await self._address.call(pipe.execute())
        found = {key: entry for key, entry in zip(keys, entries, strict=False) if entry is not None}
        return Stamped(found, seconds + micros / 1e6)

    async def put_many(self, entries: Mapping[bytes, bytes]) -> None:
        """See `SharedStore.put_many`."""
        fitting = [(key, entry) for key, entry in entries.items() if len(entry) <= self._max_bytes]
        about = [self._prefix + name for name in (b"expiry", b"sizes", b"bytes")]
        flat = [part for pair in fitting for part in pair]
        await self._address.call(
            self._redis.eval(_PUT, 3, *about, self._max_bytes, self._ttl, self._prefix, *flat)
        )

    async def close(self) -> None:
        """See `SharedStore.close`."""
        await self._redis.aclose()
