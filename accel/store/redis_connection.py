"""Redis servers: the parts of a URL that names one, connections to it, and errors that show neither user nor
password."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeVar

from accel.errors import AccelError, AccessDeniedError, StoreError
from accel.runtime.forks import renew_in_child
from accel.store.connection_faults import CLOSED, STALLED, ConnectionFault, connection_fault
from accel.store.location import numeric_settings

if TYPE_CHECKING:
    from urllib.parse import SplitResult

    from redis.asyncio import Redis

__all__ = ["OBJECT_SETTINGS", "REDIS_SCHEMES", "RedisAddress"]

REDIS_SCHEMES: Final = ("redis", "rediss")
T = TypeVar("T")

OBJECT_SETTINGS: Final = ("max_bytes", "ttl")
"""What the query string may set where the server holds objects."""
_PORT: Final = 6379
_MOST_DATABASE: Final = 1 << 16
_FORM: Final = (
    "redis://user:password@host:6379/0/prefix, with special characters in user and password percent-encoded"
)
_ADDRESS: Final = "check the host and the port in the URL"
_PREFIX: Final = "accel"


@dataclass(frozen=True, slots=True, repr=False)
class RedisAddress:
    """A Redis server, a database of it, and the prefix of the keys there. Its text shows neither user nor
    password."""

    host: str
    port: int
    database: int
    prefix: str
    """What all keys begin with."""
    tls: bool
    username: str | None
    password: str | None
    settings: Mapping[str, float] = field(default_factory=dict)
    """The numbers in the query string, by name."""

    @classmethod
    def parse(cls, url: str, *, settings: Collection[str]) -> RedisAddress:
        """Return the parts of
        `redis[s]://[[user]:password@]host[:port][/database[/prefix]][?name=number&...]`.

        Parameters
        ----------
        url : str
        settings : collection of str
            The names that the query string may have. Their values are greater than 0.

        Raises
        ------
        StoreError
            It is no such URL; the error quotes no part of it that may be secret.
        """
        from urllib.parse import unquote

        split = _split(url)
        # What led to an error may quote a part of the URL: so it is no longer there when that is raised.
        if split is None:
            raise _refused("this is no URL of Redis")
        parts, port, query = split
        database, _, prefix = parts.path.strip("/").partition("/")
        if database and not (re.fullmatch(r"[0-9]{1,5}", database) and int(database) < _MOST_DATABASE):
            raise _refused("the first part of the path in a URL of Redis is the number of a database")
        try:
            numbers = numeric_settings(query, settings)
        except StoreError as error:
            raise _refused(error.message) from None
        return cls(
            host=parts.hostname or "",
            port=port,
            database=int(database or 0),
            prefix=unquote(prefix) or _PREFIX,
            tls=parts.scheme.lower() == "rediss",
            username=unquote(parts.username) if parts.username else None,
            password=unquote(parts.password) if parts.password else None,
            settings=numbers,
        )

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        scheme = "rediss" if self.tls else "redis"
        return f"{scheme}://{host}:{self.port}/{self.database}/{self.prefix}"

    def __repr__(self) -> str:
        return f"RedisAddress({str(self)!r})"

    def milliseconds(self, setting: str) -> int:
        """Return a setting that is given in seconds; 0 if it is not given."""
        seconds = self.settings.get(setting, 0.0)
        return max(1, round(seconds * 1000)) if seconds else 0

    def connect(self, *, connect_timeout: float, read_timeout: float, most: int) -> Redis:
        """Return a client with at most `most` connections, which are opened when they are needed.

        Raises
        ------
        AccelError
            The package `redis` is missing.
        """
        try:
            from redis.asyncio import BlockingConnectionPool, Connection, Redis, SSLConnection
            from redis.asyncio.retry import Retry
            from redis.backoff import NoBackoff
        except ImportError:
            raise AccelError(
                "Redis is reached through the package redis, which is not installed",
                path=str(self),
                hint="pip install 'accel-parquet[redis]'",
            ) from None
        pool: Any = BlockingConnectionPool(
            max_connections=most,
            timeout=read_timeout,
            connection_class=SSLConnection if self.tls else Connection,
            host=self.host,
            port=self.port,
            db=self.database,
            username=self.username,
            password=self.password,
            socket_connect_timeout=connect_timeout,
            socket_timeout=read_timeout,
            # Requests are repeated by the callers, which know whether they may be.
            retry=Retry(NoBackoff(), 0),
            protocol=2,
        )
        renew_in_child(pool.reset)
        return Redis.from_pool(pool)

    async def call(self, request: Awaitable[T], *, path: str | None = None) -> T:
        """Await a request of the client.

        Raises
        ------
        StoreError
            It failed.
        """
        from redis.exceptions import RedisError

        try:
            return await request
        except (RedisError, OSError) as error:
            failure = self._translated(error, str(self) if path is None else path)
        failure.hides = True  # the frames of a connection hold the password
        raise failure

    def _translated(self, error: Exception, path: str) -> StoreError:
        from redis import exceptions

        server = f"{self.host}:{self.port}"
        if isinstance(error, exceptions.AuthenticationError | exceptions.AuthorizationError):
            return AccessDeniedError(
                f"the Redis server {server} refused the user or the password, or wants one",
                path=path,
                hint="give them in the URL",
            )
        if isinstance(error, exceptions.NoPermissionError):
            return AccessDeniedError(
                f"the Redis server {server} does not allow this user to do that",
                path=path,
                hint="check its ACL",
            )
        if isinstance(error, exceptions.BusyLoadingError | exceptions.TryAgainError):
            return StoreError(f"the Redis server {server} is loading its data", path=path, transient=True)
        cluster = exceptions.AskError, exceptions.ClusterError, exceptions.ClusterCrossSlotError
        if isinstance(error, cluster):
            return StoreError(
                f"the Redis server {server} is part of a Redis Cluster, which accel does not serve",
                path=path,
                hint="name a server without cluster mode, or a proxy before the cluster",
            )
        if isinstance(error, exceptions.OutOfMemoryError) or "OOM command" in str(error):
            return StoreError(
                f"the Redis server {server} has no memory left",
                path=path,
                hint="raise its maxmemory, or free some",
            )
        if isinstance(error, exceptions.TimeoutError):
            return self._unreachable(STALLED, path)
        if isinstance(error, exceptions.ConnectionError):
            cause = error.__cause__ or error.__context__
            return self._unreachable(connection_fault(cause) if isinstance(cause, OSError) else CLOSED, path)
        # The texts of Redis name commands and keys, and no values.
        return StoreError(f"the Redis server {server} answered: {str(error)[:200]}", path=path)

    def _unreachable(self, fault: ConnectionFault, path: str) -> StoreError:
        return fault.error(path, server=f"{self.host}:{self.port}", address=_ADDRESS, cause=None)


def _split(url: str) -> tuple[SplitResult, int, list[tuple[str, str]]] | None:
    """Return the parts of a URL of Redis, its port, and the pairs of its query string; None if it is none."""
    from urllib.parse import parse_qsl, urlsplit

    try:
        parts = urlsplit(url)
        port = parts.port or _PORT
        query = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
    except ValueError:
        return None
    is_cut = "@" in parts.path or "@" in parts.query or bool(parts.fragment)  # in the middle of a password
    if is_cut or not parts.hostname or parts.scheme.lower() not in REDIS_SCHEMES:
        return None
    return parts, port, query


def _refused(message: str) -> StoreError:
    error = StoreError(message, hint=_FORM)
    error.hides = True
    return error
