"""The store of plain HTTP servers and presigned URLs, over aiohttp."""

from __future__ import annotations

import asyncio
import re
import socket
import weakref
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin, urlsplit
from urllib.request import getproxies, proxy_bypass

from aiohttp.abc import AbstractResolver

from accel.errors import ParquetFormatError, StoreError, redact
from accel.options import Options
from accel.ranges import ByteRange, Suffix
from accel.store import io_loop
from accel.store.connection_faults import (
    CLOSED,
    SLOW,
    STALLED,
    ConnectionFault,
    connection_fault,
    names_authorities,
    tls_context,
)
from accel.store.http_response import BodyPlace, proxy_refusal, range_header, read_answer, refusal
from accel.store.range_store import ObjectEntry, Payload
from accel.store.request_errors import IncompleteBodyError, ShortObjectError, code_in
from accel.store.threads import resolve

if TYPE_CHECKING:
    import aiohttp
    from aiohttp.abc import ResolveResult

__all__ = ["HttpStore", "Resolver", "proxy_for"]

_MAX_REDIRECTS = 5
# Statuses whose meaning depends on an error code in the body.
_EXPLAINED = (400, 401, 403)
_MOST_REFUSAL = 8 * 1024
_REDIRECTS = (301, 302, 303, 307, 308)
# The hosts of Azure, in all of its clouds.
_AZURE = re.compile(r"\.(blob|dfs)\.(core|storage|fabric)\.[a-z.]+$")
_NO_TARGET = "the server redirects to what is no https URL"
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_OWN_HEADERS = ("range", "if-match", "accept-encoding", "host", "content-length", "connection")


class HttpStore:
    """A plain HTTP server, which cannot list. The caller's headers are sent with every request to it.

    Parameters
    ----------
    root : str
        "https://host:port".
    storage_options : mapping
        `headers`, which are not sent to another server that it redirects to.
    options : Options
    """

    def __init__(self, root: str, *, storage_options: Mapping[str, Any], options: Options) -> None:
        unknown = sorted(set(storage_options) - {"headers"})
        if unknown:
            raise StoreError(
                f"storage option {unknown[0]!r} means nothing to an HTTP server",
                path=root,
                hint=_other_name(root) or "known: headers",
            )
        headers = dict(storage_options.get("headers") or {})
        for name, value in headers.items():
            if name.lower() in _OWN_HEADERS:
                raise StoreError(f"the header {name!r} is accel's own to send", path=root)
            if _CONTROL.search(f"{name}{value}"):
                raise StoreError(
                    f"the header {name!r} holds a line break or another control character",
                    path=root,
                    hint="a token that was read from a file may end in one: strip it",
                )
        self._root = root
        self._headers = {str(name): str(value) for name, value in headers.items()}
        self._options = options
        self._session: aiohttp.ClientSession | None = None
        self._loop: weakref.ref[asyncio.AbstractEventLoop] | None = None

    @property
    def suffixes(self) -> bool:
        """Whether the end of an object can be read. Azure ignores such a range and sends the whole object."""
        return _AZURE.search(self._root) is None

    def __repr__(self) -> str:
        return f"HttpStore({redact(self._root)!r})"

    async def read(self, path: str, want: ByteRange | Suffix, *, if_match: str | None = None) -> Payload:
        """See `RangeStore.read`.

        If the server ignores the range and sends the whole object, the body is read up to the end of the range, if that is
        within `options.max_unranged_bytes`.
        """
        headers = {"Range": range_header(want)}
        if if_match is not None:
            headers["If-Match"] = if_match
        async with _Exchange(self, "GET", path, headers) as response:
            code = await self._code(response) if response.status in _EXPLAINED else None
            error = refusal(response.status, response.headers, path, want, code=code)
            if error is not None:
                raise error
            answer = read_answer(
                response.status,
                response.headers,
                path=path,
                want=want,
                max_unranged=self._options.max_unranged_bytes,
            )
            return await self._body(response, path, want, answer)

    async def head(self, path: str) -> ObjectEntry:
        """Return the size and etag, by a HEAD request, or by a GET of one byte for a URL, which is presigned for GET only."""
        if "?" not in path:
            async with _Exchange(self, "HEAD", path, {}) as response:
                length = response.headers.get("Content-Length", "")
                if response.status == 200 and length.isascii() and length.isdigit():
                    return ObjectEntry(path, int(length), response.headers.get("ETag"))
                if response.status not in (200, 403, 405, 501):
                    raise refusal(response.status, response.headers, path, None) or _no_size(path)
        try:
            first = await self.read(path, ByteRange(0, 1))
        except ShortObjectError as error:
            if error.size is None:
                raise
            return ObjectEntry(path, error.size, error.etag)
        if first.size is None:
            raise _no_size(path)
        return ObjectEntry(path, first.size, first.etag)

    async def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def _code(self, response: aiohttp.ClientResponse) -> str | None:
        """Return the error code in the body of a refusal, which the object store behind a presigned URL sends."""
        try:
            async with asyncio.timeout(self._options.read_timeout):
                body = await response.content.read(_MOST_REFUSAL)
        except Exception:  # noqa: BLE001 (the status says enough)
            return None
        return code_in(body.decode("latin-1"))

    async def _body(
        self, response: aiohttp.ClientResponse, path: str, want: ByteRange | Suffix, answer: BodyPlace
    ) -> Payload:
        skip = answer.skip
        whole: ByteRange | None = answer.range
        limit = self._options.max_unranged_bytes if whole is None else skip + whole.length
        body = bytearray()
        came = 0
        failure: BaseException | None = None
        try:
            async for part in response.content.iter_any():
                # The bytes of a whole object before the range are dropped.
                fresh = part[max(0, skip - came) :] if came < skip else part
                came += len(part)
                body += fresh
                if came > limit or (whole is not None and came == limit):
                    break
        except Exception as error:  # noqa: BLE001 (`_translate` makes a StoreError of a failed exchange)
            failure = _translate(error, path)
        # Raised outside the except block, as the error of aiohttp, which holds the URL, would be chained.
        if failure is not None:
            if not (isinstance(failure, StoreError) and failure.transient) or whole is None:
                raise failure from failure.__cause__
            raise self._incomplete(failure.message, path, whole, body, answer) from None
        if whole is None:
            return _last(path, want, body, came > limit, limit, answer)
        if came < limit:
            raise self._incomplete(f"the body ended after {len(body)} bytes", path, whole, body, answer)
        del body[whole.length :]
        # The rest of a body must not stay in a pooled connection.
        if not response.content.at_eof():
            response.close()
        return Payload(memoryview(body).toreadonly(), whole, answer.size, answer.etag)

    def _incomplete(
        self, message: str, path: str, whole: ByteRange, body: bytearray, answer: BodyPlace
    ) -> IncompleteBodyError:
        return IncompleteBodyError(
            message,
            path=path,
            range=whole,
            partial=memoryview(body)[: whole.length],
            size=answer.size,
            etag=answer.etag,
        )

    def _open_session(self) -> aiohttp.ClientSession:
        import aiohttp

        loop = asyncio.get_running_loop()
        if self._session is None or self._loop is None or self._loop() is not loop:
            io_loop.check_fork()
            self._loop = weakref.ref(loop)
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(
                    limit=0, ttl_dns_cache=60, resolver=Resolver(self._options.connect_timeout)
                ),
                timeout=aiohttp.ClientTimeout(
                    total=None,
                    sock_connect=self._options.connect_timeout,
                    sock_read=self._options.read_timeout,
                ),
                auto_decompress=False,
                cookie_jar=aiohttp.DummyCookieJar(),
            )
            io_loop.at_shutdown(self.close)
            # For a store that the registry drops.
            weakref.finalize(self, io_loop.start_to_end, self._session.close, loop).atexit = False
        return self._session


class _Exchange:
    """A request and its redirects: an async context manager that returns the last response."""

    def __init__(self, store: HttpStore, method: str, path: str, headers: dict[str, str]) -> None:
        self._store = store
        self._method = method
        self._path = path
        self._headers = headers
        self._response: aiohttp.ClientResponse | None = None

    async def __aenter__(self) -> aiohttp.ClientResponse:
        store, shown = self._store, self._path
        url = f"{store._root}/{self._path}"
        failure: BaseException
        wrong = "this is no URL, or a header is none"
        try:
            for _ in range(_MAX_REDIRECTS + 1):
                self._response = await self._send(url)
                target = self._response.headers.get("Location")
                if self._response.status not in _REDIRECTS or target is None:
                    return self._response
                self._response.release()
                wrong = _NO_TARGET
                url = _redirected(url, target, shown)
            raise StoreError(f"more than {_MAX_REDIRECTS} redirects", path=shown)
        except Exception as error:  # noqa: BLE001 (`_translate` makes a StoreError of a failed exchange)
            server = None if _origin(url) == _origin(store._root) else "{1}:{2}".format(*_origin(url))
            failure = _translate(error, shown, wrong, server)
        raise failure from failure.__cause__

    async def _send(self, url: str) -> aiohttp.ClientResponse:
        from yarl import URL

        session = self._store._open_session()
        headers = {**self._headers, "Accept-Encoding": "identity"}
        if _origin(url) == _origin(self._store._root):
            headers = {**self._store._headers, **headers}
        target = URL(url, encoded=True)  # a presigned URL is signed as it is written
        if _CONTROL.search(target.raw_path_qs):  # aiohttp before 3.14 would send it
            raise ValueError("a control character")
        options, proxy = self._store._options, proxy_for(target.scheme, target.host or "")
        # aiohttp has no limit on what follows an interim response.
        async with asyncio.timeout(options.connect_timeout + options.read_timeout):
            return await session.request(
                self._method,
                target,
                headers=headers,
                allow_redirects=False,
                proxy=proxy,
                # True stands for aiohttp's context, which has read the environment when aiohttp was imported.
                ssl=tls_context() if target.scheme == "https" and names_authorities() else True,
            )

    async def __aexit__(self, kind: object, error: object, trace: object) -> None:
        if self._response is not None:
            # After an error the body may not be read to its end, so the connection is not reused.
            self._response.close() if kind is not None else self._response.release()


def _origin(url: str) -> tuple[str, str, int | None]:
    parts = urlsplit(url)
    port = parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    return parts.scheme, parts.hostname or "", port


def _redirected(url: str, target: str, shown: str) -> str:
    try:
        new = urljoin(url, target)
        scheme, _, _ = _origin(new)
    except ValueError:
        scheme = ""
    if scheme not in ("http", "https") or (scheme == "http" and url.startswith("https:")):
        raise StoreError(_NO_TARGET, path=shown)
    return new


def _no_size(path: str) -> StoreError:
    return StoreError("the server does not tell the object's size", path=path)


def _last(
    path: str, want: ByteRange | Suffix, body: bytearray, over: bool, limit: int, answer: BodyPlace
) -> Payload:
    """Return the requested part of an object that was sent whole and without a length."""
    if over:
        raise StoreError(
            f"the server ignores ranges, and the object is longer than {limit} bytes",
            path=path,
            hint="raise options.max_unranged_bytes",
        )
    size = len(body)
    if size == 0:
        raise ParquetFormatError("the file is empty", path=path)
    if isinstance(want, Suffix):
        got = ByteRange(max(0, size - want.length), size)
    elif want.end <= size:
        got = want
    else:
        raise ShortObjectError(path=path, want=want, size=size, etag=answer.etag)
    return Payload(memoryview(body).toreadonly()[got.start : got.end], got, size, answer.etag)


def _translate(
    error: BaseException, shown: str, wrong: str = "the answer is not HTTP", server: str | None = None
) -> BaseException:
    """Return the error to raise in place of an error of aiohttp.

    `wrong` is the message for a ValueError; `server` names the server if it is not that of the path.
    """
    import aiohttp

    if isinstance(error, (StoreError, ParquetFormatError, asyncio.CancelledError)):
        return error
    if isinstance(error, aiohttp.ClientHttpProxyError):
        return proxy_refusal(error.status, shown)
    fault, cause = _connection_fault(error)
    if fault is not None and isinstance(error, aiohttp.ClientProxyConnectionError):
        server = f"the proxy {error.host}:{error.port}"
        address = "check http_proxy and https_proxy in the environment"
        return fault.error(shown, server=server, address=address, cause=cause)
    if fault is not None:
        return fault.error(
            shown, server=server, address="check the host and the port in the URL", cause=cause
        )
    if isinstance(error, ValueError):
        # Of a URL (as aiohttp's InvalidURL), a host name, or a header; its text may quote the URL.
        return StoreError(f"{wrong} ({type(error).__name__})", path=shown)
    if isinstance(error, aiohttp.ClientError):
        return StoreError(f"the answer is not HTTP ({type(error).__name__})", path=shown)
    return error


def _connection_fault(error: BaseException) -> tuple[ConnectionFault | None, BaseException | None]:
    """Return the fault of a failed exchange, and the error of Python or the system, which holds no URL."""
    import aiohttp

    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        inner: BaseException = error.certificate_error
    elif isinstance(error, aiohttp.ClientConnectorError):
        inner = error.os_error
    elif isinstance(error, asyncio.TimeoutError):
        # The class exists since aiohttp 3.10.
        return (SLOW if type(error).__name__ == "ConnectionTimeoutError" else STALLED), None
    elif isinstance(error, (aiohttp.ClientPayloadError, aiohttp.ServerDisconnectedError)):
        inner = error.__cause__ or error
    elif isinstance(error, (aiohttp.ClientConnectionError, ConnectionError)):
        inner = error
    else:
        return None, None
    if not isinstance(inner, OSError):
        return CLOSED, None
    cause = OSError(inner.errno, inner.strerror) if isinstance(inner, aiohttp.ClientError) else inner
    return connection_fault(cause), cause


def _other_name(root: str) -> str | None:
    """Return a hint for an HTTP URL of a cloud's own, which is better named by the scheme of that cloud."""
    if _AZURE.search(root):
        return "as a blob of Azure it is named az://container/path"
    if root.endswith("//storage.googleapis.com"):
        return "as an object of Google's it is named gs://bucket/path"
    if ".amazonaws.com" in root:
        return "as an object of S3 it is named s3://bucket/path"
    return None


# As in aiohttp's resolver, no address families that this machine has no address of.
_FLAGS = getattr(socket, "AI_MASK", socket.AI_ADDRCONFIG) & socket.AI_ADDRCONFIG
_NUMERIC = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV


class Resolver(AbstractResolver):
    """Replaces aiohttp's resolver, which uses the threads of the event loop and waits without a limit.

    Parameters
    ----------
    timeout : float
        Seconds after which a lookup is given up.
    """

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """Return the addresses of a server; raises OSError."""
        # aiohttp shields the lookup from the cancellation and the timeout of its request.
        async with asyncio.timeout(self._timeout):
            found = await resolve(host, port, family=family, flags=_FLAGS)
        results: list[ResolveResult] = []
        for kind, _, proto, _, address in found:
            shown = address[0]
            if kind == socket.AF_INET6 and address[3]:
                # A link-local address includes its interface; this is no lookup.
                shown, _ = socket.getnameinfo(address, socket.NI_NUMERICHOST | socket.NI_NUMERICSERV)
            results.append(
                {
                    "hostname": host,
                    "host": shown,
                    "port": address[1],
                    "family": kind,
                    "proto": proto,
                    "flags": _NUMERIC,
                }
            )
        return results

    async def close(self) -> None:
        """Do nothing, as there is nothing to release."""


def proxy_for(scheme: str, host: str) -> str | None:
    """Return the URL of the proxy for a host, which may hold a password; None if there is none, or it is reached by TLS."""
    proxy = getproxies().get(scheme)
    if not proxy or urlsplit(proxy).scheme == "https" or proxy_bypass(host):
        return None
    return proxy
