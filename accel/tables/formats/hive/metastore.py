"""A Hive Metastore: its addresses, connections to it, and the questions that a reader asks.

The service speaks Thrift's binary protocol over plain sockets. A conversation runs on a thread; whoever waits
for it may be cancelled, which ends its connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

from accel.errors import AccelError, ObjectNotFoundError, StoreError, TableFormatError
from accel.options import MIB
from accel.runtime.threads import DATABASES
from accel.store.connection_faults import CLOSED, STALLED, connection_fault
from accel.store.request_errors import quoted

if TYPE_CHECKING:
    from accel.tables.formats.hive.thrift_types import Partition, Table

__all__ = ["Conversation", "Metastore", "RefusedError", "metastore_at"]

T = TypeVar("T")

_PORT: Final = 9083
_ADDRESS: Final = "check the host and the port in the URL"
_FORM: Final = "thrift://host:9083, or several of them, separated by commas"
MOST_BYTES: Final = 256 * MIB
"""Bytes of one answer, beyond which it is refused."""
_MOST_TEXT: Final = 16 * MIB
_MOST_ITEMS: Final = 1_000_000
_BUFFER: Final = 256 * 1024
SLOWEST: Final = 10
"""An answer may take so many times what the server may take until the next bytes of it."""
_PAGE: Final = 500
"""Partitions that are asked for at a time by their names."""
_ALL: Final = -1


class RefusedError(StoreError):
    """The metastore answered with one of its exceptions: it does not do what it was asked."""


@dataclass(frozen=True, slots=True)
class Metastore:
    """The servers of one metastore, which are tried in turn."""

    servers: tuple[tuple[str, int], ...]
    connect_timeout: float = 10.0
    read_timeout: float = 30.0

    def __str__(self) -> str:
        return ",".join(f"thrift://{_shown(server)}" for server in self.servers)

    async def run(self, work: Callable[[Conversation], T]) -> T:
        """Ask the first server that answers, on a thread.

        Parameters
        ----------
        work : callable
            Asks; it is called again where a server fails, with the next one.

        Raises
        ------
        StoreError
            No server answers.
        RefusedError
            One answers with an exception.
        ObjectNotFoundError
            There is no such table.
        TableFormatError
            An answer is none.
        AccelError
            The package `thrift` is missing.
        """
        failure: StoreError | None = None
        for server in self.servers:
            talk = Conversation(self, server)
            try:
                return await DATABASES.run(talk.hold, work)
            except (RefusedError, ObjectNotFoundError):
                raise
            except StoreError as error:
                failure = error
            except asyncio.CancelledError:
                talk.abort()
                raise
        raise failure if failure is not None else StoreError("no server is named", path=str(self))

    def ask_now(self, method: str, **arguments: Any) -> Any:
        """Ask the first server one question, and wait for the answer; raises as `run` does."""
        return Conversation(self, self.servers[0]).hold(lambda talk: talk.ask(method, **arguments))


def _shown(server: tuple[str, int]) -> str:
    host, port = server
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def metastore_at(uris: str | Sequence[str]) -> Metastore:
    """Return the metastore of one or more URLs `thrift://host[:port]`.

    Raises
    ------
    StoreError
        One is none.
    TypeError
        It is no text.
    """
    given = [uris] if isinstance(uris, str) else list(uris)
    if not all(isinstance(one, str) for one in given):
        raise TypeError("the URL of a metastore is a text, or a list of texts")
    servers = []
    for one in (part.strip() for text in given for part in text.split(",")):
        found = re.fullmatch(
            r"thrift://(\[[0-9A-Fa-f:.]+\]|[\w.\-]+)(?::([0-9]{1,5}))?/?", one, re.IGNORECASE
        )
        port = int(found[2] or _PORT) if found else 0
        if found is None or not 0 < port < 65_536:
            refused = StoreError("this is no URL of a Hive Metastore", hint=_FORM)
            refused.hides = True  # it may hold a password
            raise refused
        servers.append((found[1].strip("[]"), port))
    return Metastore(tuple(servers))


class Conversation:
    """The questions over one connection. Used on one thread."""

    def __init__(self, metastore: Metastore, server: tuple[str, int]) -> None:
        self._metastore = metastore
        self._server = server
        self._socket: socket.socket | None = None
        self._is_aborted = False
        self._deadline = 0.0
        self._left = 0
        self._number = 0
        self.requests = 0
        """Questions that were asked."""

    def abort(self) -> None:
        """End the connection, from any thread."""
        self._is_aborted = True
        connection = self._socket
        if connection is not None:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def hold(self, work: Callable[[Conversation], T]) -> T:
        """Open the connection, ask, and close it."""
        _load_thrift()
        with self._translating():
            self._socket = socket.create_connection(self._server, self._metastore.connect_timeout)
        try:
            if self._is_aborted:
                raise StoreError("the question was given up", path=self._url)
            return work(self)
        finally:
            self._socket.close()
            self._socket = None

    # -- questions -------------------------------------------------------------------------------

    def table(self, database: str, name: str) -> Table:
        """Return a table; ObjectNotFoundError where there is none."""
        from thrift.Thrift import TApplicationException

        from accel.tables.formats.hive.thrift_types import table_request

        try:
            found: Table = self.ask("get_table", dbname=database, tbl_name=name)
        except TApplicationException as error:
            if error.type != TApplicationException.UNKNOWN_METHOD:
                raise self._refused(str(error)) from None
            # Hive 4 has only this one, and Hive 1 only the other one.
            found = self.ask("get_table_req", req=table_request(database, name)).table
        if found is None:
            raise self._nonsense("a table that is none")
        return found

    def names(self, database: str, table: str) -> list[str]:
        """Return the names of all partitions: `key=value/...`, percent-encoded."""
        return list(self.ask("get_partition_names", db_name=database, tbl_name=table, max_parts=_ALL) or ())

    def by_filter(self, database: str, table: str, text: str) -> list[Partition]:
        """Return the partitions that a filter names; RefusedError where the server does not take it."""
        return list(
            self.ask(
                "get_partitions_by_filter", db_name=database, tbl_name=table, filter=text, max_parts=_ALL
            )
            or ()
        )

    def by_names(self, database: str, table: str, names: Sequence[str]) -> Iterator[Partition]:
        """Yield the partitions of some names, in pages; those that are gone meanwhile are left out."""
        for start in range(0, len(names), _PAGE):
            some = list(names[start : start + _PAGE])
            yield from self.ask("get_partitions_by_names", db_name=database, tbl_name=table, names=some) or ()

    def ask(self, method: str, **arguments: Any) -> Any:
        """Send one question, and return what its answer holds."""
        from thrift.protocol.TBinaryProtocol import TBinaryProtocolAccelerated
        from thrift.Thrift import TApplicationException, TMessageType
        from thrift.transport.TTransport import TBufferedTransport

        from accel.tables.formats.hive.thrift_types import METHODS

        given, result = METHODS[method]
        self._deadline = time.monotonic() + SLOWEST * self._metastore.read_timeout
        self._left = MOST_BYTES
        self._number += 1
        self.requests += 1
        transport = TBufferedTransport(_Bytes(self), _BUFFER)
        protocol = TBinaryProtocolAccelerated(
            transport, string_length_limit=_MOST_TEXT, container_length_limit=_MOST_ITEMS
        )
        answer = result()
        with self._translating():
            protocol.writeMessageBegin(method, TMessageType.CALL, self._number)
            given(**arguments).write(protocol)
            protocol.writeMessageEnd()
            transport.flush()
            self._check_first_bytes(transport)
            name, kind, number = protocol.readMessageBegin()
            if kind == TMessageType.EXCEPTION:
                refusal = TApplicationException()
                refusal.read(protocol)
            else:
                refusal = None
                if (name, kind, number) != (method, TMessageType.REPLY, self._number):
                    raise self._nonsense("an answer to another question")
                answer.read(protocol)
        if refusal is not None:
            raise refusal if method == "get_table" else self._refused(str(refusal))
        for field in answer.thrift_spec:
            refused = None if field is None or field[0] == 0 else getattr(answer, field[2])
            if refused is not None:
                # The second of all methods that read is that there is no such table.
                if field[0] == 2:
                    raise ObjectNotFoundError(
                        f"the metastore has no such table: {quoted(refused.message or '', 200)}",
                        path=self._url,
                    )
                raise self._refused(refused.message or "")
        return answer.success

    # -- bytes -----------------------------------------------------------------------------------

    def send(self, data: bytes) -> None:
        """Send bytes."""
        connection = self._socket
        if connection is None:
            raise ConnectionError("the connection is closed")
        connection.settimeout(self._metastore.read_timeout)
        connection.sendall(data)

    def receive(self, most: int) -> bytes:
        """Return some of the next bytes of an answer."""
        connection = self._socket
        if connection is None:
            raise ConnectionError("the connection is closed")
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        connection.settimeout(min(left, self._metastore.read_timeout))
        data = connection.recv(min(most, _BUFFER))
        if not data:
            raise EOFError
        self._left -= len(data)
        if self._left < 0:
            raise self._nonsense(f"an answer of more than {MOST_BYTES} bytes")
        return data

    def _check_first_bytes(self, transport: Any) -> None:
        """Raise StoreError where the server speaks another protocol, by the name of that."""
        first = bytes(transport.cstringio_refill(b"", 4).getvalue()[:8])
        if first[:2] == b"\x80\x01":
            return
        if first[:1] in (b"\x01", b"\x02", b"\x03", b"\x04", b"\x05") and first[1:2] == b"\0":
            what = "wants SASL (Kerberos, LDAP), which accel does not speak"
        elif first[:2] in (b"\x15\x03", b"\x16\x03"):
            what = "wants TLS, which accel does not speak to a metastore"
        elif first[:4] == b"HTTP":
            what = "speaks HTTP: it is no metastore, or one in the HTTP mode, which accel does not speak"
        elif first[4:6] == b"\x80\x01":
            what = "uses framed Thrift (hive.metastore.thrift.framed.transport.enabled), which accel does not"
        else:
            raise self._nonsense("bytes that are no Thrift message")
        raise StoreError(f"the server {what}", path=self._url)

    @property
    def _url(self) -> str:
        return f"thrift://{_shown(self._server)}"

    def _refused(self, text: str) -> RefusedError:
        return RefusedError(f"the metastore refused: {quoted(' '.join(text.split()), 300)}", path=self._url)

    def _nonsense(self, what: str) -> TableFormatError:
        return TableFormatError(f"the metastore sent {what}", path=self._url, hint="is it a Hive Metastore?")

    @contextlib.contextmanager
    def _translating(self) -> Iterator[None]:
        """Raise what goes wrong with the connection, or with the bytes of an answer, as ours."""
        from thrift.protocol.TProtocol import TProtocolException
        from thrift.Thrift import TException
        from thrift.transport.TTransport import TTransportException

        url, server = self._url, _shown(self._server)
        try:
            yield
        except AccelError:
            raise
        except TimeoutError:
            failure: AccelError = STALLED.error(url, server=server, address=_ADDRESS, cause=None)
        except OSError as error:
            failure = connection_fault(error).error(url, server=server, address=_ADDRESS, cause=None)
        except (EOFError, TTransportException):
            failure = CLOSED.error(url, server=server, address=_ADDRESS, cause=None)
            failure.hint = "a server that wants SASL (Kerberos), which accel does not speak, may close it"
        except (TProtocolException, TException) as error:
            failure = self._nonsense(f"an answer that is none: {quoted(str(error), 200)}")
        except (TypeError, ValueError, OverflowError, RecursionError, MemoryError, AttributeError) as error:
            failure = self._nonsense(f"an answer that is none: {quoted(repr(error), 200)}")
        else:
            return
        raise failure


class _Bytes:
    """What `thrift` calls a transport: bytes of a conversation, sent when they are flushed."""

    def __init__(self, talk: Conversation) -> None:
        self._talk = talk

    def read(self, most: int) -> bytes:
        return self._talk.receive(most)

    def readAll(self, size: int) -> bytes:
        parts = []
        while size > 0:
            parts.append(self._talk.receive(size))
            size -= len(parts[-1])
        return b"".join(parts)

    def write(self, data: bytes) -> None:
        self._talk.send(data)

    def flush(self) -> None:
        """Return at once, as bytes are sent when they are written."""


def _load_thrift() -> None:
    try:
        import thrift.Thrift  # noqa: F401 - whether it is there
    except ImportError:
        raise AccelError(
            "a Hive Metastore is reached through the package thrift, which is not installed",
            hint="pip install 'accel-parquet[hive]'",
        ) from None
