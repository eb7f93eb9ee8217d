"""Cassandra: the parts of a URL that names a keyspace, sessions with its servers, and errors that show
neither user nor password.

The driver has threads of its own: a few for its housekeeping, and one that serves the sockets of all
sessions, which stays, idle, when they are closed. Requests are sent without a thread of ours, and answers
come back to the event loop by a callback. All that name the same servers, keyspace, user and settings share
one session, which is closed with the last of them, and when nobody has used it for a minute: the driver
would go on trying to reach servers that have ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import threading
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from accel.errors import AccelError, AccessDeniedError, StoreError
from accel.runtime import io_loop
from accel.runtime.forks import keep_for_ever, lock_over_forks, renew_in_child
from accel.runtime.tasks import begin, see
from accel.runtime.threads import DATABASES
from accel.store.connection_faults import CLOSED, STALLED, ConnectionFault, connection_fault
from accel.store.location import numeric_settings
from accel.store.request_errors import quoted

if TYPE_CHECKING:
    from cassandra.cluster import Cluster, Session

__all__ = [
    "CASSANDRA_SCHEMES",
    "OBJECT_SETTINGS",
    "CassandraAddress",
    "CassandraSession",
    "UnclearError",
    "open_session",
]

CASSANDRA_SCHEMES: Final = ("cassandra",)
OBJECT_SETTINGS: Final = ("connect_timeout", "timeout", "ttl")
"""The numbers that the query string may set where the servers hold objects."""
_WORDS: Final = ("ca", "consistency", "datacenter", "serial_consistency", "tls")
_CONSISTENCIES: Final = (
    "ONE", "TWO", "THREE", "QUORUM", "ALL", "LOCAL_QUORUM", "EACH_QUORUM", "LOCAL_ONE",
)  # fmt: skip
_SERIAL_CONSISTENCIES: Final = ("SERIAL", "LOCAL_SERIAL")
_NAME: Final = r"[A-Za-z][A-Za-z0-9_]{0,47}"
_HOST: Final = r"(?:\[[0-9A-Fa-f:.]+\]|[\w.\-]+)"
_PORT: Final = 9042
_MOST_TTL: Final = 20 * 365 * 86_400
"""The longest time to live that Cassandra takes, in seconds."""
_FORM: Final = (
    "cassandra://user:password@host:9042/keyspace#name, with special characters in user and password "
    "percent-encoded"
)
_ADDRESS: Final = "check the host and the port in the URL"
_CONNECT_SECONDS: Final = 10.0
_AT_ONCE: Final = 64
"""Requests of one session that are under way."""
_IDLE_SECONDS: Final = 60.0
"""How long a session stays open that nobody uses."""


@dataclass(frozen=True, slots=True, repr=False, kw_only=True)
class CassandraAddress:
    """A keyspace of a Cassandra cluster, and a name in it. Its text shows neither user nor password."""

    hosts: tuple[str, ...]
    port: int
    keyspace: str
    name: str
    """Which of the indexes in the keyspace is meant; "" for the only one."""
    username: str | None
    password: str | None
    tls: bool
    authorities: str | None
    """The file with the certificates of the authorities that the servers' are signed by; None for those of
    the system, or of the environment variable SSL_CERT_FILE."""
    consistency: str
    serial_consistency: str
    datacenter: str | None
    """The data center whose servers are asked; None for that of the hosts."""
    settings: Mapping[str, float] = field(default_factory=dict)
    """The numbers in the query string, by name."""

    @classmethod
    def parse(cls, url: str, *, settings: Collection[str]) -> CassandraAddress:
        """Return the parts of
        `cassandra://[user:password@]host[,host...][:port]/keyspace[?name=value&...][#name]`.

        Parameters
        ----------
        url : str
        settings : collection of str
            The names in the query string whose values are numbers greater than 0.

        Raises
        ------
        StoreError
            It is no such URL; the error quotes no part of it that may be secret.
        """
        parts = _split(url)
        # What led to an error may quote a part of the URL: so it is no longer there when that is raised.
        if isinstance(parts, str):
            raise _refused(parts)
        words = {name: value for name, value in parts.pairs if name in _WORDS}
        try:
            numbers = numeric_settings([pair for pair in parts.pairs if pair[0] not in _WORDS], settings)
            if numbers.get("ttl", 1) > _MOST_TTL:
                raise StoreError(f"the setting ttl in the URL is above {_MOST_TTL} seconds")
        except StoreError as error:
            raise _refused(error.message) from None
        consistency = words.get("consistency", "LOCAL_QUORUM").upper()
        serial = words.get("serial_consistency", "LOCAL_SERIAL").upper()
        tls = words.get("tls", "true" if "ca" in words else "false").lower()
        for name, value, among in (
            ("consistency", consistency, _CONSISTENCIES),
            ("serial_consistency", serial, _SERIAL_CONSISTENCIES),
            ("tls", tls, ("true", "false")),
        ):
            if value not in among:
                raise _refused(f"the setting {name} in the URL is none of {', '.join(among)}")
        return cls(
            hosts=parts.hosts,
            port=parts.port,
            keyspace=parts.keyspace,
            name=parts.name,
            username=parts.username,
            password=parts.password,
            tls=tls == "true",
            authorities=words.get("ca"),
            consistency=consistency,
            serial_consistency=serial,
            datacenter=words.get("datacenter"),
            settings=numbers,
        )

    def __str__(self) -> str:
        hosts = ",".join(f"[{host}]" if ":" in host else host for host in self.hosts)
        return f"cassandra://{hosts}:{self.port}/{self.keyspace}" + (f"#{self.name}" if self.name else "")

    def __repr__(self) -> str:
        return f"CassandraAddress({str(self)!r})"

    @property
    def ttl(self) -> int:
        """The seconds that what is written stays; 0 for always."""
        seconds = self.settings.get("ttl", 0.0)
        return max(1, round(seconds)) if seconds else 0

    def _of_session(self) -> tuple[object, ...]:
        return (
            self.hosts, self.port, self.keyspace, self.username, self.password, self.tls, self.authorities,
            self.consistency, self.serial_consistency, self.datacenter,
        )  # fmt: skip


@dataclass(frozen=True, slots=True, repr=False)
class _Parts:
    hosts: tuple[str, ...]
    port: int
    keyspace: str
    name: str
    username: str | None
    password: str | None
    pairs: list[tuple[str, str]]


def _split(url: str) -> _Parts | str:
    """Return the parts of a URL of Cassandra, or what is wrong with it."""
    from urllib.parse import parse_qsl, unquote, urlsplit

    try:
        parts = urlsplit(url)
        pairs = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
    except ValueError:
        return "this is no URL of Cassandra"
    user, at, hosts = parts.netloc.rpartition("@")
    username, _, password = user.partition(":")
    found = re.fullmatch(rf"({_HOST}(?:,{_HOST})*)(?::([0-9]{{1,5}}))?", hosts)
    port = int(found[2] or _PORT) if found else 0
    if found is None or not 0 < port < 65_536 or parts.scheme.lower() not in CASSANDRA_SCHEMES:
        return "this is no URL of Cassandra"
    keyspace = parts.path.strip("/")
    if not re.fullmatch(_NAME, keyspace):
        return "the path in a URL of Cassandra is the name of a keyspace: letters, digits and _"
    if parts.fragment and not re.fullmatch(r"[\w.\-]{1,200}", parts.fragment):
        return "the name behind # in a URL of Cassandra has letters, digits and _ . - only"
    return _Parts(
        tuple(host.strip("[]").lower() for host in found[1].split(",")),
        port,
        keyspace,
        parts.fragment,
        unquote(username) if at and username else None,
        unquote(password) if at and password else None,
        pairs,
    )


def _refused(message: str) -> StoreError:
    error = StoreError(message, hint=_FORM)
    error.hides = True
    return error


class UnclearError(StoreError):
    """A request that may have been carried out, or may be yet."""


class CassandraSession:
    """A session with the servers of a cluster, which is opened when it is first used. Used on the I/O loop.

    Parameters
    ----------
    address : CassandraAddress
    connect_timeout, timeout : float
        Seconds until a connection has come about, and until a request is answered.
    idle_seconds : float, optional
        How long it stays open while nobody uses it; the next request opens it again.
    """

    def __init__(
        self,
        address: CassandraAddress,
        *,
        connect_timeout: float,
        timeout: float,
        idle_seconds: float = _IDLE_SECONDS,
    ) -> None:
        self._address = address
        self._connect_timeout = connect_timeout
        self._timeout = timeout
        self._idle_seconds = idle_seconds
        self._users: weakref.WeakSet[object] = weakref.WeakSet()
        self._begin_anew()
        renew_in_child(self._begin_anew)

    def _begin_anew(self) -> None:
        # The connections of a parent, and the threads of the driver, stay with the parent.
        keep_for_ever(getattr(self, "_opened", None))
        self._opened: tuple[Cluster, Session] | None = None
        self._opening: asyncio.Task[None] | None = None
        self._prepared: dict[str, Any] = {}
        self._gate = asyncio.Semaphore(_AT_ONCE)
        self._is_registered = False
        self._requests = 0
        self._idle_since = 0.0
        self._idle_timer: asyncio.TimerHandle | None = None

    @property
    def is_open(self) -> bool:
        """Whether it has connections, and the driver its threads."""
        return self._opened is not None

    def __repr__(self) -> str:
        return f"CassandraSession({str(self._address)!r})"

    def enter(self, user: object) -> None:
        """Note who uses it: it is closed when nobody does any more."""
        if user not in self._users:
            self._users.add(user)
            loop = asyncio.get_running_loop()
            weakref.finalize(user, io_loop.start_to_end, self._end_unused, loop).atexit = False
        if not self._is_registered:
            self._is_registered = True
            io_loop.at_shutdown(self.close)

    async def leave(self, user: object) -> None:
        """Close it, unless others use it."""
        self._users.discard(user)
        await self._end_unused()

    async def close(self) -> None:
        """Close all connections, and end the threads of the driver."""
        if self._opening is not None and not self._opening.done():
            await asyncio.wait([self._opening])
        opened, self._opened = self._opened, None
        self._prepared.clear()
        if opened is not None:
            await DATABASES.run(opened[0].shutdown)

    async def _end_unused(self) -> None:
        if not self._users:
            await self.close()

    @contextlib.contextmanager
    def _in_use(self) -> Iterator[None]:
        self._requests += 1
        try:
            yield
        finally:
            self._requests -= 1
            loop = asyncio.get_running_loop()
            self._idle_since = loop.time()
            if self._idle_timer is None and self._opened is not None:
                self._idle_timer = loop.call_later(self._idle_seconds, self._close_if_idle)

    def _close_if_idle(self) -> None:
        self._idle_timer = None
        if self._opened is None:
            return
        loop = asyncio.get_running_loop()
        closes_at = loop.time() if self._requests else self._idle_since
        closes_at += self._idle_seconds
        if loop.time() < closes_at:
            self._idle_timer = loop.call_at(closes_at, self._close_if_idle)
        else:
            # In one step, so that no request finds a session that is about to be closed.
            (cluster, _), self._opened = self._opened, None
            self._prepared.clear()
            begin(DATABASES.run(cluster.shutdown)).add_done_callback(see)

    async def run(
        self, statement: str, parameters: tuple[object, ...] = (), *, path: str, serial: bool = False
    ) -> list[tuple[Any, ...]]:
        """Run one statement, and return its rows.

        Parameters
        ----------
        statement : str
            Its parameters are written `?`.
        parameters : tuple
        path : str
            Names the object in errors.
        serial : bool
            Whether a statement that reads sees what a compare-and-set has done whose outcome is unclear.

        Raises
        ------
        StoreError
            It failed, and was not carried out.
        UnclearError
            It failed, and may have been carried out.
        AccelError
            The package `cassandra-driver` is missing.
        """
        with self._in_use():
            return await self._run(statement, parameters, path=path, serial=serial)

    async def _run(
        self, statement: str, parameters: tuple[object, ...], *, path: str, serial: bool
    ) -> list[tuple[Any, ...]]:
        session = await self._session(path)
        try:
            if statement not in self._prepared:
                self._prepared[statement] = await DATABASES.run(session.prepare, statement)
            bound = self._prepared[statement].bind(parameters)
            if serial:
                bound.consistency_level = _level(self._address.serial_consistency)
            async with self._gate:
                return await self._answer(session, bound)
        except Exception as error:
            if isinstance(error, AccelError):
                raise
            failure = self._translated(error, path)
        failure.hides = True  # the frames of a connection hold the password
        raise failure

    async def define(self, statement: str, *, path: str) -> None:
        """Run a statement that changes the schema of the keyspace; raises as `run` does."""
        with self._in_use():
            await self._define(statement, path=path)

    async def _define(self, statement: str, *, path: str) -> None:
        session = await self._session(path)
        try:
            await DATABASES.run(session.execute, statement)
        except Exception as error:  # noqa: BLE001 - whatever the driver raises
            failure = self._translated(error, path)
        else:
            return
        failure.hides = True
        raise failure

    async def has_table(self, table: str, *, path: str) -> bool:
        """Return whether the keyspace has a table; raises as `run` does."""
        found = await self.run(
            "SELECT table_name FROM system_schema.tables WHERE keyspace_name = ? AND table_name = ?",
            (self._address.keyspace, table),
            path=path,
        )
        return bool(found)

    async def _answer(self, session: Session, bound: Any) -> list[tuple[Any, ...]]:
        """Send a statement, and wait for its answer without a thread."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Any] = loop.create_future()

        def deliver(how: Callable[[Any], None], what: Any) -> None:
            if not answer.done():
                how(what)

        sent = session.execute_async(bound)
        sent.add_callbacks(
            lambda rows: _call_soon(loop, deliver, answer.set_result, rows),
            lambda error: _call_soon(loop, deliver, answer.set_exception, error),
        )
        rows = await answer
        return list(rows or ())

    async def _session(self, path: str) -> Session:
        while self._opened is None:
            if self._opening is None or self._opening.done():
                self._opening = begin(self._open(path))
                self._opening.add_done_callback(see)
            # Who gives up leaves the connection to the next.
            await asyncio.shield(self._opening)
        return self._opened[1]

    async def _open(self, path: str) -> None:
        self._opened = await self._connected(path)

    async def _connected(self, path: str) -> tuple[Cluster, Session]:
        given_up = threading.Event()
        # The driver has a limit for each step, and none for all of them together.
        seconds = 2 * self._connect_timeout * len(self._address.hosts) + self._timeout
        try:
            async with asyncio.timeout(seconds):
                return await DATABASES.run(self._connect, given_up)
        except TimeoutError:
            failure: AccelError = self._unreachable(STALLED, path)
        except AccelError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever the driver raises
            failure = self._translated(error, path)
        finally:
            given_up.set()
        failure.hides = True
        raise failure

    def _connect(self, given_up: threading.Event) -> tuple[Cluster, Session]:
        """Open a session, on a thread."""
        try:
            from cassandra.auth import PlainTextAuthProvider
            from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile
            from cassandra.policies import (
                DCAwareRoundRobinPolicy,
                FallthroughRetryPolicy,
                RoundRobinPolicy,
                TokenAwarePolicy,
            )
            from cassandra.query import tuple_factory
        except ImportError:
            raise AccelError(
                "Cassandra is reached through the package cassandra-driver, which is not installed",
                path=str(self._address),
                hint="pip install 'accel-parquet[cassandra]'",
            ) from None
        address = self._address
        near = DCAwareRoundRobinPolicy(address.datacenter) if address.datacenter else RoundRobinPolicy()
        profile = ExecutionProfile(
            load_balancing_policy=TokenAwarePolicy(near),
            # Requests are repeated by the callers, which know whether they may be.
            retry_policy=FallthroughRetryPolicy(),
            consistency_level=_level(address.consistency),
            serial_consistency_level=_level(address.serial_consistency),
            request_timeout=self._timeout,
            row_factory=tuple_factory,
        )
        authentication = None
        if address.username is not None:
            authentication = PlainTextAuthProvider(address.username, address.password or "")
        cluster = Cluster(
            contact_points=list(address.hosts),
            port=address.port,
            auth_provider=authentication,
            ssl_context=_tls_context(address) if address.tls else None,
            execution_profiles={EXEC_PROFILE_DEFAULT: profile},
            connect_timeout=self._connect_timeout,
            control_connection_timeout=self._connect_timeout,
            connection_class=_connection_class(str(address)),
            application_name="accel",
            # What nobody asks for here takes two thirds of the time that a connection takes.
            schema_metadata_enabled=False,
            prepare_on_all_hosts=False,
        )
        try:
            session = cluster.connect()
            # A keyspace that is not there has another error than a server that is not.
            session.set_keyspace(address.keyspace)
            session.default_fetch_size = None
            if given_up.is_set():
                raise TimeoutError
        except BaseException:
            cluster.shutdown()
            raise
        return cluster, session

    def _translated(self, error: Exception, path: str) -> StoreError:
        """Return an error of the driver as ours."""
        from cassandra import (
            AuthenticationFailed,
            OperationTimedOut,
            RequestValidationException,
            Timeout,
            Unauthorized,
            Unavailable,
        )
        from cassandra.cluster import NoHostAvailable
        from cassandra.connection import ConnectionException

        text = quoted(" ".join(str(error).split()), 300)
        servers = f"{','.join(self._address.hosts)}:{self._address.port}"
        inner = error
        if isinstance(error, NoHostAvailable) and isinstance(error.errors, Mapping):
            causes = [one for one in error.errors.values() if isinstance(one, Exception)]
            # One that refused says more than those that did not answer.
            inner = next((one for one in causes if isinstance(one, AuthenticationFailed)), None) or (
                causes[0] if causes else error
            )
        if isinstance(inner, AuthenticationFailed):
            return AccessDeniedError(
                f"the Cassandra server {servers} refused the user or the password, or wants one",
                path=path,
                hint="give them in the URL",
            )
        if isinstance(inner, Unauthorized):
            return AccessDeniedError(
                f"the Cassandra server {servers} does not allow this user to do that",
                path=path,
                hint="grant it SELECT and MODIFY on the keyspace, and CREATE for the first build",
            )
        if isinstance(inner, RequestValidationException):
            missing = "keyspace" in text.lower() and "does not exist" in text
            hint = "create the keyspace, with the replication that it is to have" if missing else None
            return StoreError(f"the Cassandra server {servers} answered: {text}", path=path, hint=hint)
        if isinstance(inner, Unavailable):
            return StoreError(
                f"the Cassandra cluster at {servers} has too few live replicas for this consistency",
                path=path,
                transient=True,
            )
        if isinstance(inner, OperationTimedOut | Timeout):
            return _unclear(self._unreachable(STALLED, path))
        if isinstance(inner, OSError):
            return _unclear(self._unreachable(connection_fault(inner), path))
        if isinstance(inner, ConnectionException | NoHostAvailable):
            return _unclear(self._unreachable(CLOSED, path))
        failure = StoreError(
            f"the Cassandra server {servers} failed: {type(inner).__name__}: {text}",
            path=path,
            transient=True,
        )
        return _unclear(failure)

    def _unreachable(self, fault: ConnectionFault, path: str) -> StoreError:
        servers = f"{','.join(self._address.hosts)}:{self._address.port}"
        return fault.error(path, server=servers, address=_ADDRESS, cause=None)


def _unclear(error: StoreError) -> UnclearError:
    return UnclearError(error.message, path=error.path, hint=error.hint, transient=error.transient)


def _call_soon(loop: asyncio.AbstractEventLoop, function: Callable[..., None], *given: Any) -> None:
    try:
        loop.call_soon_threadsafe(function, *given)
    except RuntimeError:  # the process ends, and its loop is closed
        return


def _level(name: str) -> int:
    from cassandra import ConsistencyLevel

    return int(ConsistencyLevel.name_to_value[name])


def _connection_class(path: str) -> Any:
    """Return the driver's reactor: that of libev.

    Its asyncio reactor garbles frames where many requests are sent at once (version 3.30.1: the server closes
    the connection with "CRC mismatch").

    Raises
    ------
    AccelError
        The driver was installed without it.
    """
    try:
        from cassandra.io.libevreactor import LibevConnection
    except Exception:  # noqa: BLE001 - DependencyException of the driver, or an ImportError
        raise AccelError(
            "the package cassandra-driver was installed without its libev extension",
            path=path,
            hint="install the wheel of cassandra-driver, or libev's headers before it is built",
        ) from None
    return LibevConnection


def _tls_context(address: CassandraAddress) -> Any:
    import ssl

    try:
        return ssl.create_default_context(cafile=address.authorities)
    except OSError as error:
        raise StoreError(
            f"the authorities in the file of ca= cannot be read: {error.strerror}", path=str(address)
        ) from None


_sessions: weakref.WeakValueDictionary[tuple[object, ...], CassandraSession] = weakref.WeakValueDictionary()
_lock = lock_over_forks()


def open_session(address: CassandraAddress, *, connect_timeout: float, timeout: float) -> CassandraSession:
    """Return the session of an address, which all have in common that name the same. No request is sent.

    Parameters
    ----------
    address : CassandraAddress
    connect_timeout, timeout : float
        Seconds, where the URL does not set them.
    """
    connecting = address.settings.get("connect_timeout", connect_timeout)
    waiting = address.settings.get("timeout", timeout)
    key = (*address._of_session(), connecting, waiting)
    with _lock:
        session = _sessions.get(key)
        if session is None:
            session = CassandraSession(address, connect_timeout=connecting, timeout=waiting)
            _sessions[key] = session
        return session
