"""Objects in Cassandra: each is a row that names its version, and a body in parts, each with a checksum.

A body is written under a name of its own. The row is replaced by compare-and-set, and only then names the new
body, so that an object appears whole or not at all. What a row no longer names, or does not name yet, is
listed as garbage, which later commits remove.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from xxhash import xxh3_64_digest, xxh3_64_hexdigest

from accel.errors import AccelError, ObjectNotFoundError, StoreError
from accel.options import KIB, Options
from accel.ranges import ByteRange, Suffix
from accel.runtime.tasks import Group
from accel.store.cassandra_connection import CassandraAddress, UnclearError, open_session
from accel.store.range_store import ObjectEntry, Payload
from accel.store.request_errors import ShortObjectError, changed_object, raising_foremost

__all__ = ["CassandraStore"]

_PART: Final = 64 * KIB
"""Bytes of an object in one part; Cassandra's heap holds several copies of each that is under way."""
_CHECKSUM: Final = 8
_WRITTEN_AT_ONCE: Final = 16
"""Parts of one object that are being written."""
_READS: Final = 5
"""Reads of an object that commits may interrupt, one after the other."""
_TRIES: Final = 6
"""Compare-and-sets of one version, until it is clear whether it was put."""
FIRST_PAUSE: Final = 0.05
"""Seconds before the second of them; each later pause is twice as long."""
_UNFINISHED: Final = 86_400
"""Seconds that a body may take to be written."""
_RETIRED: Final = 600
"""Seconds for which the body of a replaced version stays, for who is reading it."""
_REMOVED_AT_ONCE: Final = 64
_OBJECTS: Final = (
    "CREATE TABLE IF NOT EXISTS accel_objects "
    "(name text, path text, version text, size bigint, seal text, PRIMARY KEY ((name), path))"
)
_PARTS: Final = (
    "CREATE TABLE IF NOT EXISTS accel_parts (body text, part int, data blob, PRIMARY KEY ((body, part)))"
)
_GARBAGE: Final = (
    "CREATE TABLE IF NOT EXISTS accel_garbage "
    "(name text, body text, parts int, since bigint, grace int, PRIMARY KEY ((name), body))"
)
_ROW: Final = "SELECT version, size, seal FROM accel_objects WHERE name = ? AND path = ?"
_ROWS: Final = "SELECT path, version, size, seal, TTL(version) FROM accel_objects WHERE name = ?"
_UPDATE: Final = (
    "UPDATE accel_objects USING TTL ? SET version = ?, size = ?, seal = ? WHERE name = ? AND path = ? "
    "IF version = ?"
)
_DELETE: Final = "DELETE FROM accel_objects WHERE name = ? AND path = ? IF version = ?"
GET_PART: Final = "SELECT data FROM accel_parts WHERE body = ? AND part = ?"
PUT_PART: Final = "INSERT INTO accel_parts (body, part, data) VALUES (?, ?, ?) USING TTL ?"
DROP_PART: Final = "DELETE FROM accel_parts WHERE body = ? AND part = ?"
_PUT_GARBAGE: Final = (
    "INSERT INTO accel_garbage (name, body, parts, since, grace) "
    "VALUES (?, ?, ?, toUnixTimestamp(now()), ?) USING TTL ?"
)
GET_GARBAGE: Final = (
    "SELECT body, parts, since, grace, toUnixTimestamp(now()) FROM accel_garbage WHERE name = ?"
)
_DROP_GARBAGE: Final = "DELETE FROM accel_garbage WHERE name = ? AND body = ?"


_Found: TypeAlias = list[Any]
"""Rows as the driver gives them; the class below has a method of the name `list`."""


@dataclass(frozen=True, slots=True)
class _Row:
    """The row of an object."""

    path: str
    version: str
    """The name of the body, which is new with each version: 32 hexadecimal digits."""
    size: int

    @property
    def entry(self) -> ObjectEntry:
        return ObjectEntry(self.path, self.size, f'"{self.version}"')

    @property
    def parts(self) -> int:
        return -(-self.size // _PART)

    @property
    def seal(self) -> str:
        return xxh3_64_hexdigest(f"{self.version} {self.size} {self.path}".encode())


class CassandraStore:
    """The objects of one name in a keyspace: a `RangeStore`, `Header`, `Lister`, `Writer` and `Remover`.

    Parameters
    ----------
    address : CassandraAddress
    options : Options
        Its timeouts hold where the URL sets none.
    """

    def __init__(self, address: CassandraAddress, options: Options) -> None:
        self._address = address
        self.name = address.name or "accel"
        self._ttl = address.ttl
        self.session = open_session(
            address, connect_timeout=options.connect_timeout, timeout=options.read_timeout
        )
        self._has_tables = False

    def __repr__(self) -> str:
        return f"CassandraStore({str(self._address)!r})"

    async def close(self) -> None:
        """Close the session, unless other stores of the same servers use it."""
        await self.session.leave(self)

    async def read(self, path: str, want: ByteRange | Suffix, *, if_match: str | None = None) -> Payload:
        """Read exactly one range of one object; see `RangeStore.read`."""
        for _ in range(_READS):
            row, stored = await self._row_and_parts(path, want, if_match)
            if if_match is not None and row.entry.etag != if_match:
                raise changed_object(path, str(want))
            size = row.size
            wanted = ByteRange(max(0, size - want.length), max(1, size)) if isinstance(want, Suffix) else want
            if wanted.end > size:
                raise ShortObjectError(path=path, want=wanted, size=size, etag=row.entry.etag)
            if stored is None:
                stored = await self._parts(path, row.version, wanted)
            if all(stored):
                return Payload(self._checked(row, wanted, stored), wanted, size, row.entry.etag)
            if (await self.row(path)).version == row.version:
                raise self._damaged(path)
        raise changed_object(path, str(want))

    async def head(self, path: str) -> ObjectEntry:
        """Find the size and the etag of an object; see `Header.head`."""
        return (await self.row(path)).entry

    async def list(self, prefix: str) -> AsyncIterator[ObjectEntry]:
        """List the objects at or below a prefix; see `Lister.list`."""
        below = prefix.rstrip("/") + "/" if prefix else ""
        for row, _ in sorted(await self._rows(prefix), key=lambda one: one[0].path):
            if row.path == prefix or row.path.startswith(below):
                yield row.entry

    async def write(
        self,
        path: str,
        parts: AsyncIterator[bytes],
        *,
        size: int,
        if_match: str | None = None,
        if_absent: bool = False,
    ) -> None:
        """Put one object, whole or not at all; see `Writer.write`."""
        await self._make_tables(path)
        body = secrets.token_hex(16)
        count = -(-size // _PART)
        await self._note_garbage(path, body, count, grace=_UNFINISHED)
        await self._put_body(path, body, parts, size)
        row = _Row(path, body, size)
        expected = (if_match or "").strip('"')
        ttl = await self._ttl_of_commit(path) if if_match or if_absent else self._ttl
        try:
            replaced = await self._swap(row, expected, if_absent=if_absent, ttl=ttl)
        except UnclearError:
            raise  # the row may name the body yet
        except StoreError:
            await self._drop(path, body, count)
            raise
        await self.run(path, _DROP_GARBAGE, self.name, body)
        for old in replaced:
            await self._note_garbage(path, old.version, old.parts, grace=_RETIRED)
        if if_match or if_absent:
            await self._collect_garbage(path)

    async def remove(self, path: str) -> None:
        """Remove an object; see `Remover.remove`."""
        try:
            row = await self.row(path)
        except ObjectNotFoundError:
            return
        await self._note_garbage(path, row.version, row.parts, grace=_RETIRED)
        outcome = await self.run(path, _DELETE, self.name, path, row.version)
        if outcome[0][0]:
            await self._drop(path, row.version, row.parts)
        else:
            await self.run(path, _DROP_GARBAGE, self.name, row.version)

    # -- rows and bodies -------------------------------------------------------------------------

    async def run(self, path: str, statement: str, *given: object, serial: bool = False) -> _Found:
        self.session.enter(self)
        return await self.session.run(statement, given, path=path, serial=serial)

    async def row(self, path: str, *, serial: bool = False) -> _Row:
        """Return the row of an object.

        Raises
        ------
        ObjectNotFoundError
            There is none.
        StoreError
            It is damaged, or the servers did not answer.
        """
        if not await self._tables_exist(path):
            raise ObjectNotFoundError("there is no such object", path=path)
        found = await self.run(path, _ROW, self.name, path, serial=serial)
        if not found or found[0][0] is None:
            raise ObjectNotFoundError("there is no such object", path=path)
        return self._checked_row(path, *found[0])

    async def _rows(self, path: str) -> _Found:
        """Return the rows of all objects, and the seconds that each still has to live."""
        if not await self._tables_exist(path):
            return []
        found = await self.run(path, _ROWS, self.name)
        return [(self._checked_row(one[0], *one[1:4]), one[4]) for one in found if one[1] is not None]

    def _checked_row(self, path: str, version: Any, size: Any, seal: Any) -> _Row:
        if not isinstance(size, int) or size < 0 or not isinstance(version, str) or len(version) != 32:
            raise self._damaged(path)
        row = _Row(path, version, size)
        if seal != row.seal:
            raise self._damaged(path)
        return row

    async def _row_and_parts(
        self, path: str, want: ByteRange | Suffix, if_match: str | None
    ) -> tuple[_Row, _Found | None]:
        """Return the row of an object, and the parts that hold a range where the version that is wanted tells
        their names: both are read at once then."""
        body = (if_match or "").strip('"')
        if not body or isinstance(want, Suffix):
            return await self.row(path), None
        with raising_foremost():
            async with Group() as group:
                row = group.create_task(self.row(path))
                parts = group.create_task(self._parts(path, body, want))
        return row.result(), parts.result()

    async def _parts(self, path: str, body: str, span: ByteRange) -> _Found:
        """Return the rows of the parts that hold a range of a body; an empty list for one that is not
        there."""
        with raising_foremost():
            async with Group() as group:
                tasks = [
                    group.create_task(self.run(path, GET_PART, body, part))
                    for part in range(span.start // _PART, (span.end - 1) // _PART + 1)
                ]
        return [task.result() for task in tasks]

    def _checked(self, row: _Row, span: ByteRange, found: _Found) -> bytes:
        """Return the bytes of a range, out of the rows of the parts that hold it."""
        first, last = span.start // _PART, (span.end - 1) // _PART
        data = []
        for number, one in enumerate(found, first):
            stored = bytes(one[0][0] or b"")
            part = stored[_CHECKSUM:]
            is_whole = len(part) == min(_PART, row.size - number * _PART)
            if not is_whole or stored[:_CHECKSUM] != _part_checksum(part, number):
                raise self._damaged(row.path)
            data.append(part)
        data[-1] = data[-1][: span.end - last * _PART]
        data[0] = data[0][span.start - first * _PART :]
        return b"".join(data)

    async def _put_body(self, path: str, body: str, parts: AsyncIterator[bytes], size: int) -> None:
        """Write the parts of a body."""
        buffer, count, written = bytearray(), 0, 0
        at_once = asyncio.Semaphore(_WRITTEN_AT_ONCE)

        async def put(number: int, data: bytes) -> None:
            try:
                stored = _part_checksum(data, number) + data
                await self.run(path, PUT_PART, body, number, stored, self._ttl)
            finally:
                at_once.release()

        with raising_foremost():
            async with Group() as group:
                async for some in parts:
                    written += len(some)
                    buffer += some
                    while len(buffer) >= _PART:
                        data = bytes(buffer[:_PART])
                        del buffer[:_PART]
                        await at_once.acquire()
                        group.create_task(put(count, data))
                        count += 1
                if buffer:
                    await at_once.acquire()
                    group.create_task(put(count, bytes(buffer)))
        if written != size:
            raise AccelError(f"{written} bytes were made for an object of {size}", path=path)

    def _damaged(self, path: str) -> StoreError:
        return StoreError("the object in Cassandra is damaged", path=path, hint="remove it, or write it anew")

    # -- compare-and-set -------------------------------------------------------------------------

    async def _swap(self, row: _Row, expected: str, *, if_absent: bool, ttl: int) -> Sequence[_Row]:
        """Put a row in the place of the one with the expected version, of none, or of whichever there is.

        An outcome that is unclear is settled by reading again, which finishes what was begun. As the version
        names a body that nobody else has, the statement may then be sent again.

        Returns
        -------
        sequence of _Row
            The rows that it may have replaced: none of them is there any more.

        Raises
        ------
        ObjectChangedError
            There is another version.
        StoreError
            It was not put.
        UnclearError
            Whether it was put is not known.
        """
        pause = FIRST_PAUSE
        before: tuple[_Row, ...] = ()
        failure: StoreError = changed_object(row.path, None)
        for attempt in range(_TRIES):
            try:
                current = await self.row(row.path, serial=attempt > 0)
            except ObjectNotFoundError:
                current = None
            if current is not None and current.version == row.version:
                return before
            version = current.version if current is not None else None
            if (expected and version != expected) or (if_absent and current is not None):
                raise changed_object(row.path, None)
            before += () if current is None else (current,)
            try:
                if await self.put_row(row, version, ttl=ttl):
                    return before
            except UnclearError as error:
                failure = error
            await asyncio.sleep(pause * (0.5 + secrets.randbelow(1000) / 1000))
            pause *= 2
        raise failure

    async def put_row(self, row: _Row, version: str | None, *, ttl: int) -> bool:
        """Put a row in the place of a version, or of none; return whether that was done."""
        given = (ttl, row.version, row.size, row.seal, self.name, row.path, version)
        outcome = await self.run(row.path, _UPDATE, *given)
        return bool(outcome and outcome[0][0])

    # -- what expires, and what nothing names ----------------------------------------------------

    async def _ttl_of_commit(self, path: str) -> int:
        """Return the seconds that a head may live: not longer than any object that it may name, of which
        those with less than half of their time left are written anew."""
        if not self._ttl:
            return 0
        least = self._ttl
        for row, left in await self._rows(path):
            if row.path == path or left is None:
                continue
            if left < self._ttl // 2:
                await self._renew(row)
            else:
                least = min(least, left)
        return max(1, least)

    async def _renew(self, row: _Row) -> None:
        for number in range(row.parts):
            found = await self.run(row.path, GET_PART, row.version, number)
            if not found:
                return  # it expires, or was removed: who reads it is told so
            await self.run(row.path, PUT_PART, row.version, number, found[0][0], self._ttl)
        await self.put_row(row, row.version, ttl=self._ttl)

    async def _note_garbage(self, path: str, body: str, parts: int, *, grace: int) -> None:
        """List a body that no row names, or that none names yet, to be removed after `grace` seconds."""
        await self.run(path, _PUT_GARBAGE, self.name, body, parts, grace, self._ttl)

    async def _collect_garbage(self, path: str) -> None:
        """Remove the bodies that nothing has named for long enough."""
        garbage = await self.run(path, GET_GARBAGE, self.name)
        if not garbage:
            return
        named = {row.version for row, _ in await self._rows(path)}
        for body, parts, since, grace, now in garbage[:_REMOVED_AT_ONCE]:
            if None not in (parts, since, grace) and now - since > 1000 * grace and body not in named:
                await self._drop(path, body, parts)

    async def _drop(self, path: str, body: str, parts: int) -> None:
        """Remove a body, and that it is garbage."""
        for number in range(parts):
            await self.run(path, DROP_PART, body, number)
        await self.run(path, _DROP_GARBAGE, self.name, body)

    # -- tables ----------------------------------------------------------------------------------

    async def _tables_exist(self, path: str) -> bool:
        if not self._has_tables:
            self.session.enter(self)
            self._has_tables = await self.session.has_table("accel_garbage", path=path)
        return self._has_tables

    async def _make_tables(self, path: str) -> None:
        """Make the tables where they are missing; the last of them shows that all are there."""
        if not await self._tables_exist(path):
            for statement in (_OBJECTS, _PARTS, _GARBAGE):
                await self.session.define(statement, path=path)
            self._has_tables = True


def _part_checksum(data: bytes, number: int) -> bytes:
    """Return the checksum of a part, which differs for a part at another place."""
    return xxh3_64_digest(data, seed=number)
