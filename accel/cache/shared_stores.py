"""The servers of the shared tier: Redis, PostgreSQL, Cassandra, and the memory of the process, found by a
URL."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

from cachetools import TTLCache

from accel.cache.shared import LOOKED_UP, SharedStore, SharedTier, Stamped
from accel.errors import StoreError
from accel.options import MIB
from accel.runtime.forks import keep_for_ever, lock_over_forks, renew_in_child
from accel.store.cassandra_connection import CASSANDRA_SCHEMES, CassandraAddress
from accel.store.postgres_connection import POSTGRES_SCHEMES, PostgresAddress
from accel.store.redis_connection import REDIS_SCHEMES, RedisAddress

if TYPE_CHECKING:
    from psycopg import AsyncConnection
    from redis.asyncio import Redis

__all__ = ["MemoryShared", "PostgresShared", "RedisShared", "open_shared"]

T = TypeVar("T")

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
    """Return the shared tier on the server that a URL names. Equal URLs share one server object; no request
    is sent.

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
    if not colon or scheme not in ("memory", *CASSANDRA_SCHEMES, *POSTGRES_SCHEMES, *REDIS_SCHEMES):
        unknown = StoreError(
            "this is no URL of a server that a cache can share",
            hint=(
                "redis://host:6379/0, rediss://..., postgresql://host/database, cassandra://host/keyspace, "
                "or memory://name in one process"
            ),
        )
        unknown.hides = True
        raise unknown
    address: CassandraAddress | RedisAddress | PostgresAddress
    with _lock:
        store = _stores.get(url)
        if scheme == "memory":
            _stores[url] = store = store or MemoryShared()
            return SharedTier(store, name=f"memory://{rest}", timeout=_TIMEOUT)
        if scheme in CASSANDRA_SCHEMES:
            from accel.cache import cassandra_shared

            address = CassandraAddress.parse(url, settings=cassandra_shared.SETTINGS)
            store = store or cassandra_shared.CassandraShared(
                address,
                timeout=address.settings.get("timeout", _TIMEOUT),
                ttl=address.settings.get("ttl", _TTL),
            )
        elif scheme in POSTGRES_SCHEMES:
            address = PostgresAddress.parse(url, settings=SETTINGS)
            store = store or PostgresShared(address)
        else:
            address = RedisAddress.parse(url, settings=SETTINGS)
            store = store or RedisShared(address)
        _stores[url] = store
        return SharedTier(store, name=str(address), timeout=address.settings.get("timeout", _TIMEOUT))


_stores: dict[str, SharedStore] = {}
_lock = lock_over_forks()


class MemoryShared:
    """Entries in this process, for tests."""

    def __init__(self) -> None:
        self.entries: TTLCache[bytes, bytes] = TTLCache(_MAX_BYTES, ttl=_TTL, getsizeof=len)

    async def get_many(self, keys: Sequence[bytes]) -> Stamped:
        """Return the entries of some keys in one round trip; see `SharedStore.get_many`."""
        found = {key: self.entries.get(key) for key in keys}
        return Stamped({key: entry for key, entry in found.items() if entry is not None}, time.time())

    async def put_many(self, entries: Mapping[bytes, bytes]) -> None:
        """Store entries in place of what was there; see `SharedStore.put_many`."""
        self.entries.update(entries)

    async def close(self) -> None:
        """Close all connections; see `SharedStore.close`."""


# KEYS: members by the moment when they expire, their sizes, the sum of these. ARGV: limit in bytes,
# milliseconds to live, prefix, and for each entry its member and its bytes. The entries that expire first are
# evicted first.
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
-- Redis may have evicted what is noted here.
if redis.call('ZCARD', KEYS[1]) == 0 or redis.call('HLEN', KEYS[2]) == 0 then
  redis.call('DEL', KEYS[1], KEYS[2], KEYS[3])
elseif redis.call('EXISTS', KEYS[3]) == 0 then
  for _, size in ipairs(redis.call('HVALS', KEYS[2])) do redis.call('INCRBY', KEYS[3], size) end
end
for _, member in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now, 'LIMIT', 0, 1000)) do
  drop(member)
end
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
  if not first then break end
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
        self.prefix = f"{address.prefix}:metadata:".encode()
        self._max_bytes = int(address.settings.get("max_bytes", _MAX_BYTES))
        self._ttl = address.milliseconds("ttl") or round(_TTL * 1000)
        # The tier has limits of its own, and these are the last resort.
        seconds = max(5.0, 10 * address.settings.get("timeout", _TIMEOUT))
        self.redis: Redis = address.connect(connect_timeout=seconds, read_timeout=seconds, most=_CONNECTIONS)

    async def get_many(self, keys: Sequence[bytes]) -> Stamped:
        """Return the entries of some keys in one round trip; see `SharedStore.get_many`."""
        pipe = self.redis.pipeline(transaction=False)
        pipe.time()
        pipe.mget([self.prefix + key for key in keys[:LOOKED_UP]])
        (seconds, micros), entries = await self._address.call(pipe.execute())
        found = {key: entry for key, entry in zip(keys, entries, strict=False) if entry is not None}
        return Stamped(found, seconds + micros / 1e6)

    async def put_many(self, entries: Mapping[bytes, bytes]) -> None:
        """Store entries in place of what was there; see `SharedStore.put_many`."""
        fitting = [(key, entry) for key, entry in entries.items() if len(entry) <= self._max_bytes]
        about = [self.prefix + name for name in (b"expiry", b"sizes", b"bytes")]
        flat = [part for pair in fitting for part in pair]
        await self._address.call(
            self.redis.eval(_PUT, 3, *about, self._max_bytes, self._ttl, self.prefix, *flat)
        )

    async def close(self) -> None:
        """Close all connections; see `SharedStore.close`."""
        await self.redis.aclose()


_CREATE: Final = """
CREATE TABLE IF NOT EXISTS accel_metadata (
    key bytea PRIMARY KEY, entry bytea NOT NULL, expires_at timestamptz NOT NULL
);
CREATE INDEX IF NOT EXISTS accel_metadata_expiry ON accel_metadata (expires_at)
"""
_SELECT: Final = """
SELECT key, entry, extract(epoch FROM clock_timestamp())::float8 FROM accel_metadata
WHERE key = ANY(%(keys)s) AND expires_at > now()
UNION ALL SELECT NULL, NULL, extract(epoch FROM clock_timestamp())::float8
"""
_INSERT: Final = """
INSERT INTO accel_metadata
SELECT key, entry, now() + make_interval(secs => %(ttl)s)
FROM unnest(%(keys)s::bytea[], %(entries)s::bytea[]) AS new (key, entry) ORDER BY key
ON CONFLICT (key) DO UPDATE SET entry = EXCLUDED.entry, expires_at = EXCLUDED.expires_at
"""
_EXPIRE: Final = "DELETE FROM accel_metadata WHERE expires_at <= now()"
_EVICT: Final = """
WITH sized AS (
    SELECT key, sum(octet_length(entry)) OVER (ORDER BY expires_at DESC, key) AS newer,
        sum(octet_length(entry)) OVER () AS total
    FROM accel_metadata
)
DELETE FROM accel_metadata USING sized
WHERE accel_metadata.key = sized.key AND sized.total > %(most)s AND sized.newer > %(goal)s
"""
_TURN: Final = "SELECT pg_try_advisory_xact_lock(7233173838501)"
"""One process at a time evicts; the number stands for that."""
_EVICT_AFTER: Final = 32
"""Old entries are evicted each time that this process has written 1/32 of the limit, until 1/16 is free."""


class PostgresShared:
    """Entries in a table of PostgreSQL, over one connection.

    Parameters
    ----------
    address : PostgresAddress
    """

    def __init__(self, address: PostgresAddress) -> None:
        self._address = address
        self._max_bytes = int(address.settings.get("max_bytes", _MAX_BYTES))
        self._ttl = address.settings.get("ttl", _TTL)
        self._begin_anew()
        renew_in_child(self._begin_anew)
        self._written: int | None = None
        """Bytes that were written since entries were evicted; None before the first time."""

    def _begin_anew(self) -> None:
        # The connection of a parent ends with the parent.
        keep_for_ever(getattr(self, "_connection", None))
        self._connection: AsyncConnection[Any] | None = None
        self._lock = asyncio.Lock()

    async def get_many(self, keys: Sequence[bytes]) -> Stamped:
        """Return the entries of some keys in one round trip; see `SharedStore.get_many`."""

        async def select(connection: AsyncConnection[Any]) -> list[tuple[bytes | None, bytes, float]]:
            cursor = await connection.execute(_SELECT, {"keys": list(keys)}, binary=True)
            return await cursor.fetchall()

        rows = await self._call(select)
        return Stamped({key: entry for key, entry, _ in rows if key is not None}, max(row[2] for row in rows))

    async def put_many(self, entries: Mapping[bytes, bytes]) -> None:
        """Store entries in place of what was there; see `SharedStore.put_many`."""
        fitting = {key: entry for key, entry in entries.items() if len(entry) <= self._max_bytes}
        written = sum(map(len, fitting.values()))
        evicts = self._written is None or self._written + written > self._max_bytes // _EVICT_AFTER

        async def insert(connection: AsyncConnection[Any]) -> None:
            values = {"ttl": self._ttl, "keys": list(fitting), "entries": list(fitting.values())}
            await connection.execute(_INSERT, values)
            if evicts:
                async with connection.transaction():
                    turn = await (await connection.execute(_TURN)).fetchone()
                    if turn is not None and turn[0]:
                        goal = self._max_bytes - self._max_bytes // 16
                        await connection.execute(_EXPIRE)
                        await connection.execute(_EVICT, {"most": self._max_bytes, "goal": goal})

        await self._call(insert)
        self._written = 0 if evicts else (self._written or 0) + written

    async def close(self) -> None:
        """Close all connections; see `SharedStore.close`."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    async def _call(self, work: Callable[[AsyncConnection[Any]], Awaitable[T]]) -> T:
        """Do something over the connection, which is closed where that fails or is cancelled."""
        from psycopg import Error

        async with self._lock:
            try:
                if self._connection is None:
                    self._connection = await self._connect()
                return await work(self._connection)
            except (Error, OSError) as error:
                failure = self._address.failure(error)
                await self.close()
            except BaseException:
                await self.close()
                raise
        raise failure

    async def _connect(self) -> AsyncConnection[Any]:
        from psycopg import Error

        connection = await self._address.connect_async(connect_timeout=5)
        try:
            await connection.execute(_CREATE)
        except Error:  # another process makes it at this moment, or this one may only read and write
            await connection.rollback()
        return connection
