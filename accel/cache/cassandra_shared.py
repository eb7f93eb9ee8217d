"""The shared tier in Cassandra: each entry is a row with a time to live."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from accel.cache.shared import LOOKED_UP, Stamped
from accel.runtime.tasks import Group
from accel.store.cassandra_connection import CassandraAddress, open_session
from accel.store.request_errors import raising_foremost

__all__ = ["SETTINGS", "CassandraShared"]

SETTINGS: Final = ("timeout", "ttl")
"""What the query string of a URL may set, beside what names the servers."""
_TABLE: Final = "accel_metadata"
_CREATE: Final = f"CREATE TABLE IF NOT EXISTS {_TABLE} (key blob PRIMARY KEY, entry blob)"
_SELECT: Final = f"SELECT entry, toUnixTimestamp(now()) FROM {_TABLE} WHERE key = ?"
_INSERT: Final = f"INSERT INTO {_TABLE} (key, entry) VALUES (?, ?) USING TTL ?"
_CLOCK: Final = "SELECT toUnixTimestamp(now()) FROM system.local"


class CassandraShared:
    """Entries in a table of a keyspace. Nothing is evicted but what has expired.

    Parameters
    ----------
    address : CassandraAddress
        Its settings are `SETTINGS`.
    timeout : float
        Seconds that a lookup may take.
    ttl : float
        Seconds that an entry stays.
    """

    def __init__(self, address: CassandraAddress, *, timeout: float, ttl: float) -> None:
        # The tier has limits of its own, and these are the last resort.
        seconds = max(5.0, 10 * timeout)
        self._session = open_session(replace(address, settings={}), connect_timeout=seconds, timeout=seconds)
        self._ttl = max(1, round(ttl))
        self._shown = str(address)
        self._has_table = False

    async def get_many(self, keys: Sequence[bytes]) -> Stamped:
        """Return the entries of some keys, which are asked for at once; see `SharedStore.get_many`."""
        wanted = keys[:LOOKED_UP] if await self._table_exists() else ()
        answers = await self._all([(_CLOCK, ()), *((_SELECT, (key,)) for key in wanted)])
        found = {
            key: bytes(rows[0][0])
            for key, rows in zip(wanted, answers[1:], strict=True)
            if rows and rows[0][0] is not None
        }
        # Servers may have different clocks; by the last of them nothing looks younger than it is.
        moments = [rows[0][-1] for rows in answers if rows]
        return Stamped(found, max(moments) / 1000)

    async def put_many(self, entries: Mapping[bytes, bytes]) -> None:
        """Store entries in place of what was there; see `SharedStore.put_many`."""
        if not await self._table_exists():
            await self._session.define(_CREATE, path=self._shown)
            self._has_table = True
        await self._all([(_INSERT, (key, entry, self._ttl)) for key, entry in entries.items()])

    async def close(self) -> None:
        """Close all connections; see `SharedStore.close`."""
        await self._session.leave(self)

    async def _table_exists(self) -> bool:
        if not self._has_table:
            self._session.enter(self)
            self._has_table = await self._session.has_table(_TABLE, path=self._shown)
        return self._has_table

    async def _all(self, statements: Sequence[tuple[str, tuple[object, ...]]]) -> list[list[Any]]:
        """Run statements at once, and return the rows of each."""
        self._session.enter(self)
        with raising_foremost():
            async with Group() as group:
                tasks = [
                    group.create_task(self._session.run(statement, given, path=self._shown))
                    for statement, given in statements
                ]
        return [task.result() for task in tasks]
