"""Objects in Redis: each is one value, written whole and read by ranges, with a checksum for each block of
it."""

from __future__ import annotations

import asyncio
import secrets
import weakref
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any, Final

from xxhash import xxh3_64_digest, xxh3_64_hexdigest, xxh3_128

from accel.errors import AccelError, ObjectNotFoundError, StoreError
from accel.options import KIB, MIB, Options
from accel.ranges import ByteRange, Suffix
from accel.runtime import io_loop
from accel.store.range_store import ObjectEntry, Payload
from accel.store.redis_connection import RedisAddress
from accel.store.request_errors import ShortObjectError, changed_object

if TYPE_CHECKING:
    from redis.asyncio import Redis

__all__ = ["RedisStore"]

_MOST_CONNECTIONS: Final = 16
_BLOCK: Final = 32 * KIB
"""Bytes of an object between two checksums."""
_CHECKSUM: Final = 8
_STORED_BLOCK: Final = _CHECKSUM + _BLOCK
_MAGIC: Final = b"AcR1"
_HEADER: Final = 68
"""Bytes of the magic, the etag (32), the size (16), and the checksum of these (16), all digits being
hexadecimal."""
_MOST_STORED: Final = 512 * MIB
"""The length of the longest string of Redis."""
APPENDED: Final = 4 * MIB
"""Bytes of an object that are sent at a time."""
_UNFINISHED_MS: Final = 600_000
"""Milliseconds after which Redis removes what a writer that was killed has left."""
_LISTED: Final = 500
"""Objects whose headers are read at a time."""

# All objects expire at the same moment, so that none of them is missed by another: at each use, if half the
# time is over.
_RENEW: Final = """
local function renew(index, prefix, ttl, always)
  local left = redis.call('PTTL', index)
  if ttl == 0 or left == -2 or (not always and left >= ttl / 2) then return end
  local now = redis.call('TIME')
  local moment = string.format('%.0f', now[1] * 1000 + math.floor(now[2] / 1000) + ttl)
  for _, path in ipairs(redis.call('HKEYS', index)) do redis.call('PEXPIREAT', prefix .. path, moment) end
  redis.call('PEXPIREAT', index, moment)
end
"""
# KEYS: object, index. ARGV: etag or '', first byte (negative: so many from the end), end, prefix, ttl.
# Returns the header and the blocks that hold the range; no block where the etag or the range does not fit.
_READ: Final = (
    _RENEW
    + f"""
local header = redis.call('GETRANGE', KEYS[1], 0, {_HEADER - 1})
if ARGV[1] ~= '' and string.sub(header, 5, 36) ~= ARGV[1] then return {{header, ''}} end
local size = tonumber(string.sub(header, 37, 52), 16)
if not size then return {{header, ''}} end
renew(KEYS[2], ARGV[4], tonumber(ARGV[5]), false)
local first, last = tonumber(ARGV[2]), tonumber(ARGV[3])
if first < 0 then first, last = math.max(0, size + first), size end
if last > size or first >= last then return {{header, ''}} end
local start = {_HEADER} + math.floor(first / {_BLOCK}) * {_STORED_BLOCK}
local stop = {_HEADER} + (math.floor((last - 1) / {_BLOCK}) + 1) * {_STORED_BLOCK}
return {{header, redis.call('GETRANGE', KEYS[1], start, stop - 1)}}
"""
)
# KEYS: what was written, object, index. ARGV: path, condition ('', 'absent' or an etag), new etag, stored
# bytes, the most that all objects may take or 0, prefix, ttl. An object that is there already was put by an
# attempt whose answer was lost.
_COMMIT: Final = (
    _RENEW
    + """
local function refuse(reason) redis.call('UNLINK', KEYS[1]) return reason end
if redis.call('STRLEN', KEYS[1]) ~= tonumber(ARGV[4]) then return refuse('lost') end
local current = redis.call('GETRANGE', KEYS[2], 4, 35)
if ARGV[2] ~= '' and current ~= ARGV[3] then
  if ARGV[2] == 'absent' then
    if current ~= '' then return refuse('changed') end
  elseif current ~= ARGV[2] then return refuse('changed') end
end
local total, most = tonumber(ARGV[4]), tonumber(ARGV[5])
if most > 0 then
  local sizes = redis.call('HGETALL', KEYS[3])
  for i = 1, #sizes, 2 do
    if redis.call('EXISTS', ARGV[6] .. sizes[i]) == 0 then redis.call('HDEL', KEYS[3], sizes[i])
    elseif sizes[i] ~= ARGV[1] then total = total + tonumber(sizes[i + 1]) end
  end
  if total > most then return refuse('full') end
end
redis.call('RENAME', KEYS[1], KEYS[2])
redis.call('PERSIST', KEYS[2])
redis.call('HSET', KEYS[3], ARGV[1], ARGV[4])
local left, ttl = redis.call('PTTL', KEYS[3]), tonumber(ARGV[7])
if ttl == 0 and left > 0 then redis.call('PEXPIRE', KEYS[2], left) end
renew(KEYS[3], ARGV[6], ttl, true)
return 'done'
"""
)


class RedisStore:
    """The objects below a prefix of a Redis database: a `RangeStore`, `Header`, `Lister`, `Writer` and
    `Remover`.

    An object is one string: a header, then blocks that each follow their checksum. A hash beside the objects
    has their paths and sizes. Used on one event loop.

    Parameters
    ----------
    address : RedisAddress
        Its settings are `OBJECT_SETTINGS`: with `ttl` all objects expire together so many seconds after the
        last use, and beyond `max_bytes` nothing is written.
    options : Options
        For the timeouts.
    """

    def __init__(self, address: RedisAddress, options: Options) -> None:
        self.address = address
        self.index_key = f"{address.prefix}:objects".encode()
        self.prefix = f"{address.prefix}:object:".encode()
        self._ttl = address.milliseconds("ttl")
        self._max_bytes = int(address.settings.get("max_bytes", 0))
        self.redis: Redis = address.connect(
            connect_timeout=options.connect_timeout, read_timeout=options.read_timeout, most=_MOST_CONNECTIONS
        )
        self._is_registered = False

    def __repr__(self) -> str:
        return f"RedisStore({str(self.address)!r})"

    async def close(self) -> None:
        """Close all connections."""
        await self.redis.aclose()

    async def read(self, path: str, want: ByteRange | Suffix, *, if_match: str | None = None) -> Payload:
        """Read exactly one range of one object; see `RangeStore.read`.

        The etag is the hash of the content.
        """
        first, end = (-want.length, 0) if isinstance(want, Suffix) else (want.start, want.end)
        etag = b"" if if_match is None else if_match.strip('"').encode("utf-8", "replace")
        answer = await self._call(
            path,
            self.redis.eval(
                _READ, 2, self._key(path), self.index_key, etag, first, end, self.prefix, self._ttl
            ),
        )
        header, blocks = answer
        entry = self._entry(path, header)
        if if_match is not None and entry.etag != if_match:
            raise changed_object(path, str(want))
        size = entry.size
        wanted = ByteRange(max(0, size - want.length), max(1, size)) if isinstance(want, Suffix) else want
        if wanted.end > size:
            raise ShortObjectError(path=path, want=wanted, size=size, etag=entry.etag)
        return Payload(self._checked(path, wanted, size, blocks), wanted, size, entry.etag)

    async def head(self, path: str) -> ObjectEntry:
        """Find the size and the etag of an object; see `Header.head`."""
        header = await self._call(path, self.redis.getrange(self._key(path), 0, _HEADER - 1))
        return self._entry(path, header)

    async def list(self, prefix: str) -> AsyncIterator[ObjectEntry]:
        """List the objects at or below a prefix; see `Lister.list`."""
        paths = sorted(
            name.decode("utf-8", "replace")
            for name in await self._call(prefix, self.redis.hkeys(self.index_key))
        )
        below = prefix.rstrip("/") + "/" if prefix else ""
        paths = [path for path in paths if path == prefix or path.startswith(below)]
        for start in range(0, len(paths), _LISTED):
            some = paths[start : start + _LISTED]
            pipe = self.redis.pipeline(transaction=False)
            for path in some:
                pipe.getrange(self._key(path), 0, _HEADER - 1)
            for path, header in zip(some, await self._call(prefix, pipe.execute()), strict=True):
                if header:  # the hash may have objects that Redis has evicted
                    yield self._entry(path, header)

    async def write(
        self,
        path: str,
        parts: AsyncIterator[bytes],
        *,
        size: int,
        if_match: str | None = None,
        if_absent: bool = False,
    ) -> None:
        """Put one object, whole or not at all; see `Writer.write`.

        An object is written under another name, and takes its own in one step.
        """
        stored = _HEADER + size + _CHECKSUM * -(-size // _BLOCK)
        if stored > _MOST_STORED:
            raise StoreError(
                f"an object of {size} bytes is too large for Redis, whose values have at most {_MOST_STORED}",
                path=path,
                hint="an object store, or a directory, takes an index of this size",
            )
        condition = b"absent" if if_absent else (if_match or "").strip('"').encode("utf-8", "replace")
        written = _Written(size)
        unfinished = f"{self.address.prefix}:unfinished:{secrets.token_hex(16)}".encode()
        pipe = self.redis.pipeline(transaction=True)
        pipe.set(unfinished, bytes(_HEADER), px=_UNFINISHED_MS)
        async for part in parts:
            written.add(part)
            if written.waiting >= APPENDED:
                pipe.append(unfinished, written.take())
                await self._call(path, pipe.execute())
        if written.size != size:
            raise AccelError(f"{written.size} bytes were made for an object of {size}", path=path)
        pipe.append(unfinished, written.take(last=True))
        pipe.setrange(unfinished, 0, written.header())
        pipe.eval(
            _COMMIT, 3, unfinished, self._key(path), self.index_key,
            path.encode(), condition, written.etag, stored, self._max_bytes, self.prefix, self._ttl,
        )  # fmt: skip
        *_, outcome = await self._call(path, pipe.execute())
        self._check(path, outcome)

    async def remove(self, path: str) -> None:
        """Remove an object; see `Remover.remove`."""
        pipe = self.redis.pipeline(transaction=True)
        pipe.unlink(self._key(path))
        pipe.hdel(self.index_key, path.encode())
        await self._call(path, pipe.execute())

    def _key(self, path: str) -> bytes:
        return self.prefix + path.encode()

    def _check(self, path: str, outcome: bytes) -> None:
        if outcome == b"changed":
            raise changed_object(path, None)
        if outcome == b"full":
            raise StoreError(
                f"the objects would take more than the max_bytes={self._max_bytes} of the URL",
                path=path,
                hint="raise it, or remove what is not needed (for an index: compact, then vacuum)",
            )
        if outcome != b"done":
            raise StoreError(
                "Redis has lost what was being written, and wrote nothing", path=path, transient=True
            )

    async def _call(self, path: str, request: Any) -> Any:
        """Await a request of the client; raises StoreError."""
        if not self._is_registered:
            self._is_registered = True
            io_loop.at_shutdown(self.close)
            # Nobody closes the store of a client that has made room for others.
            close, loop = self.redis.aclose, asyncio.get_running_loop()
            weakref.finalize(self, io_loop.start_to_end, close, loop).atexit = False
        return await self.address.call(request, path=path)

    def _entry(self, path: str, header: bytes) -> ObjectEntry:
        if not header:
            raise ObjectNotFoundError("there is no such object", path=path)
        if (
            len(header) != _HEADER
            or header[:4] != _MAGIC
            or xxh3_64_hexdigest(header[:52]).encode() != header[52:]
        ):
            raise self._damaged(path)
        return ObjectEntry(path, int(header[36:52], 16), f'"{header[4:36].decode()}"')

    def _checked(self, path: str, span: ByteRange, size: int, blocks: bytes) -> bytes:
        """Return the bytes of a range, out of the blocks that hold it."""
        first = span.start // _BLOCK
        parts = []
        for number, block in enumerate(_blocks(blocks), first):
            data = block[_CHECKSUM:]
            if bytes(block[:_CHECKSUM]) != _block_checksum(data, number):
                raise self._damaged(path)
            parts.append(data)
        last = (span.end - 1) // _BLOCK
        if sum(map(len, parts)) != min((last + 1) * _BLOCK, size) - first * _BLOCK:
            raise self._damaged(path)
        parts[-1] = parts[-1][: span.end - last * _BLOCK]
        parts[0] = parts[0][span.start - first * _BLOCK :]
        return b"".join(parts)

    def _damaged(self, path: str) -> StoreError:
        return StoreError("the value in Redis is damaged", path=path, hint="remove it, or write it anew")


class _Written:
    """The form in which an object is stored, made of its parts as they come."""

    def __init__(self, size: int) -> None:
        self.size = 0
        """The bytes that have come."""
        self._expected = size
        self._hash = xxh3_128()
        self._blocks = 0
        self._buffer = bytearray()

    def add(self, part: bytes) -> None:
        """Add the next part."""
        self.size += len(part)
        self._hash.update(part)
        self._buffer += part

    @property
    def waiting(self) -> int:
        """The bytes that have come and are not taken."""
        return len(self._buffer)

    @property
    def etag(self) -> bytes:
        """The hash of what has come, without quotes."""
        return self._hash.hexdigest().encode()

    def take(self, *, last: bool = False) -> bytes:
        """Return the blocks that are whole, and the rest if it is the last."""
        length = len(self._buffer) if last else len(self._buffer) // _BLOCK * _BLOCK
        out: list[bytes] = []
        for start in range(0, length, _BLOCK):
            data = bytes(self._buffer[start : start + _BLOCK])
            out += (_block_checksum(data, self._blocks), data)
            self._blocks += 1
        del self._buffer[:length]
        return b"".join(out)

    def header(self) -> bytes:
        """Return the header, once everything has come."""
        facts = _MAGIC + self.etag + f"{self.size:016x}".encode()
        return facts + xxh3_64_hexdigest(facts).encode()


def _blocks(stored: bytes) -> Iterator[memoryview]:
    view = memoryview(stored)
    for start in range(0, len(view), _STORED_BLOCK):
        yield view[start : start + _STORED_BLOCK]


def _block_checksum(data: bytes | memoryview, number: int) -> bytes:
    """Return the checksum of a block, which differs for a block at another place."""
    return xxh3_64_digest(data, seed=number)
