"""The store of plain HTTP servers and presigned URLs, over connections of accel's own."""

from __future__ import annotations

import os
import re
import ssl
from base64 import b64encode
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any
from urllib.parse import SplitResult, quote, unquote, urljoin, urlsplit

from accel.errors import AccelError, StoreError, redact
from accel.options import Options
from accel.ranges import ByteRange, Suffix
from accel.store.http_connection import LostError, Reply, Request
from accel.store.http_connections import (
    Origin,
    Proxy,
    ProxyRefusedError,
    Timeouts,
    UnreachableError,
    connection_error,
    connections_to,
)
from accel.store.http_response import (
    BodyPlace,
    ResponseHead,
    proxy_refusal,
    range_header,
    read_answer,
    refusal,
)
from accel.store.proxies import PROXY_ADDRESS, named_proxy, proxy_for
from accel.store.range_store import ObjectEntry, Payload, can_be_sent
from accel.store.request_errors import (
    EmptyObjectError,
    ShortObjectError,
    code_in,
)

__all__ = ["HttpStore", "redirected"]

_MAX_REDIRECTS = 5
# Statuses whose meaning depends on an error code in the body.
_EXPLAINED = (400, 401, 403)
_MOST_REFUSAL = 8 * 1024
_REDIRECTS = (301, 302, 303, 307, 308)
# The hosts of Azure, in all of its clouds.
_AZURE = re.compile(r"\.(blob|dfs)\.(core|storage|fabric)\.[a-z.]+$")
_NO_TARGET = "the server redirects to what is no https URL"
_PORTS = {"http": 80, "https": 443}
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
# A URL is sent as a server wrote it, but for what is not ASCII.
_URL_SAFE = "".join(map(chr, range(0x21, 0x7F)))
_AGENT = "User-Agent"
_OF_ALL = {"Accept-Encoding": "identity", _AGENT: "accel"}
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
    authorities : str or None
        The file of those that certificates are verified by, "" for those of the system, None: none is.
    """

    def __init__(
        self,
        root: str,
        *,
        storage_options: Mapping[str, Any],
        options: Options,
        authorities: str | None = "",
    ) -> None:
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
        self._server = _server_of(root)
        # Bytes of UTF-8, of which each is one character, as in what is read of responses.
        self._headers = {
            _AGENT if str(name).lower() == "user-agent" else str(name): str(value).encode().decode("latin-1")
            for name, value in headers.items()
        }
        token = os.environ.get("HF_TOKEN", "").strip()
        if token and root == _hub() and not any(name.lower() == "authorization" for name in headers):
            self._headers["Authorization"] = f"Bearer {token}"
        self._options = options
        self._authorities = authorities
        self._timeouts = Timeouts(options.connect_timeout, options.read_timeout)

    @property
    def suffixes(self) -> bool:
        """Whether the end of an object can be read. Azure ignores such a range and sends the whole object."""
        return _AZURE.search(self._root) is None

    def __repr__(self) -> str:
        return f"HttpStore({redact(self._root)!r})"

    async def read(self, path: str, want: ByteRange | Suffix, *, if_match: str | None = None) -> Payload:
        """Read exactly one range of one object; see `RangeStore.read`.

        If the server ignores the range and sends the whole object, the body is read up to the end of the
        range, if that is within `options.max_unranged_bytes`.
        """
        headers = {"Range": range_header(want)}
        if if_match is not None:
            headers["If-Match"] = if_match
        most = self._options.max_unranged_bytes
        reply = await self._ask("GET", path, headers, want)
        head = reply.head
        code = code_in(str(reply.body[:_MOST_REFUSAL], "latin-1")) if head.status in _EXPLAINED else None
        error = refusal(head.status, head.headers, path, want, code=code)
        if error is not None:
            raise error
        place = read_answer(head.status, head.headers, path=path, want=want, max_unranged=most)
        cut = None if reply.cut is None else reply.cut.value
        if place.range is not None:
            return place.payload(reply.body, path, cut=cut)
        if cut is not None:
            raise StoreError(cut, path=path, transient=True)
        return _last(path, want, reply.body, most, place)

    async def head(self, path: str) -> ObjectEntry:
        """Return the size and etag, by a HEAD request, or by a GET of one byte for a URL, which is presigned
        for GET only."""
        if "?" not in path:
            head = (await self._ask("HEAD", path, {}, None)).head
            if head.status == 200 and head.length is not None:
                return ObjectEntry(path, head.length, head.headers.get("ETag"))
            if head.status not in (200, 403, 405, 501):
                raise refusal(head.status, head.headers, path, None) or _no_size(path)
        try:
            first = await self.read(path, ByteRange(0, 1))
        except ShortObjectError as error:
            if error.size is None:
                raise
            return ObjectEntry(path, error.size, error.etag)
        if first.size is None:
            raise _no_size(path)
        return ObjectEntry(path, first.size, first.etag)

    async def _ask(
        self, method: str, path: str, headers: Mapping[str, str], want: ByteRange | Suffix | None
    ) -> Reply:
        """Return the response to a request, after redirects."""
        url, wrong = f"{self._root}/{path}", "this is no URL, or a header is none"
        window = partial(_window, want, path, self._options.max_unranged_bytes)
        for _ in range(_MAX_REDIRECTS + 1):
            failure: StoreError
            try:
                reply = await self._send(method, url, headers, window)
            except ProxyRefusedError as error:
                failure = proxy_refusal(error.status, path)
            except (LostError, UnreachableError, ValueError) as error:
                failure = self._failure(error, url, path, wrong)
            else:
                target = reply.head.headers.get("Location")
                if reply.head.status not in _REDIRECTS or target is None:
                    return reply
                url, wrong = redirected(url, target, path), _NO_TARGET
                continue
            # Raised outside the except blocks, as the errors there would be chained.
            raise failure from failure.__cause__
        raise StoreError(f"more than {_MAX_REDIRECTS} redirects", path=path)

    async def _send(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        window: Callable[[ResponseHead], range],
    ) -> Reply:
        """Send one request.

        Raises
        ------
        LostError, UnreachableError
        ValueError
            The URL, or a header, cannot be sent.
        """
        parts = urlsplit(url)
        scheme, name, port = _server_of(url)
        host = name if name.isascii() else name.encode("idna").decode("ascii")
        if not host or port is None or ("%" in host and ":" not in host) or not url.isprintable():
            raise ValueError("no URL")
        # The caller's headers are sent to no other server.
        at_home = (scheme, name, port) == self._server
        sent = {**_OF_ALL, **(self._headers if at_home else _authorization(parts)), **headers}
        place = url.partition("://")[2][len(parts.netloc) :].partition("#")[0]
        target = place if place.startswith("/") else f"/{place}"
        shown = f"[{host.partition('%')[0]}]" if ":" in host else host
        authority = shown if port == _PORTS[scheme] else f"{shown}:{port}"
        proxy, tls = _proxy_of(scheme, host), scheme == "https"
        if proxy is not None and not tls:
            target = f"http://{authority}{target}"
            if proxy.authorization is not None:
                sent["Proxy-Authorization"] = proxy.authorization
        request = Request(_text_of(method, target, authority, sent), window=window, bodiless=method == "HEAD")
        origin = Origin(host, port, tls, self._authorities if tls else "", proxy)
        return await connections_to(origin, self._timeouts).ask(request, 0)

    def _failure(
        self, error: LostError | UnreachableError | ValueError, url: str, path: str, wrong: str
    ) -> StoreError:
        """Return the error to raise. `wrong` is the message if the URL cannot be requested."""
        reached = error.failure if isinstance(error, UnreachableError) else None
        if isinstance(reached, ValueError) and not isinstance(reached, OSError):
            error = reached  # of a name that is none
        if isinstance(error, ValueError):  # its text may quote the URL
            return StoreError(f"{wrong} ({type(error).__name__})", path=path)
        scheme, host, port = _server_of(url)
        proxy = named_proxy(proxy_for(scheme, host)) if _proxy_of(scheme, host) is not None else None
        by_proxy = proxy and isinstance(error, UnreachableError) and not isinstance(reached, ssl.SSLError)
        server = None if (scheme, host, port) == self._server else f"{host}:{port}"
        return connection_error(
            error,
            path,
            server=", ".join(filter(None, (server, proxy))) or None,
            address=PROXY_ADDRESS if by_proxy else "check the host and the port in the URL",
        )


def _text_of(method: str, target: str, authority: str, headers: Mapping[str, str]) -> bytes:
    """Return a request; raise ValueError if a part of it cannot be sent."""
    line = f"{authority}{target}"
    if not can_be_sent(line) or " " in line or any(map(_CONTROL.search, headers.values())):
        raise ValueError("a control character")
    lines = [f"{method} {target} HTTP/1.1", f"Host: {authority}"]
    lines += (f"{name}: {value}" for name, value in headers.items())
    return "\r\n".join((*lines, "", "")).encode("latin-1")


def _window(want: ByteRange | Suffix | None, path: str, most: int, head: ResponseHead) -> range:
    """Return which bytes of a body are read: the wanted range, or the code of an error.

    Of an object of unknown length that is sent whole, `most` bytes are read, and one more to tell that it is
    longer.
    """
    if want is None or head.status not in (200, 206):
        return range(_MOST_REFUSAL)
    try:
        place = read_answer(head.status, head.headers, path=path, want=want, max_unranged=most)
    except AccelError:  # which is raised again when the response is read
        return range(0)
    return range(most + 1) if place.length is None else range(place.skip, place.skip + place.length)


def _hub() -> str:
    """Return the root of Hugging Face's hub, to which its token goes."""
    return (os.environ.get("HF_ENDPOINT") or "https://huggingface.co").rstrip("/")


def _proxy_of(scheme: str, host: str) -> Proxy | None:
    """Return the proxy for a host; None if there is none, or none that is reached without TLS.

    Raises
    ------
    ValueError
        Its URL is none.
    """
    url = proxy_for(scheme, host)
    parts = urlsplit(url or "")
    if parts.scheme != "http" or not parts.hostname:
        return None
    return Proxy(parts.hostname, parts.port or 80, _authorization(parts).get("Authorization"))


def _authorization(parts: SplitResult) -> dict[str, str]:
    """Return the header for the user that a URL names."""
    if parts.username is None:
        return {}
    user = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return {"Authorization": f"Basic {b64encode(user.encode()).decode()}"}


def _server_of(url: str) -> tuple[str, str, int | None]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname or "", parts.port or _PORTS.get(parts.scheme)


def redirected(url: str, target: str, shown: str) -> str:
    """Return the URL that a response redirects to, by its header Location.

    Raises
    ------
    StoreError
        It is no URL of a web server, or leaves TLS.
    """
    try:
        if _CONTROL.search(target):
            raise ValueError("a control character")
        # Some servers send bytes of UTF-8.
        new = urljoin(url, quote(target.encode("latin-1").decode(), safe=_URL_SAFE))
        scheme, _, _ = _server_of(new)
    except ValueError:
        scheme = ""
    if scheme not in ("http", "https") or (scheme == "http" and url.startswith("https:")):
        raise StoreError(_NO_TARGET, path=shown)
    return new


def _no_size(path: str) -> StoreError:
    return StoreError("the server does not tell the object's size", path=path)


def _last(path: str, want: ByteRange | Suffix, body: memoryview, most: int, place: BodyPlace) -> Payload:
    """Return the end of an object that was sent whole and without a length."""
    size = len(body)
    if size > most:
        raise StoreError(
            f"the server ignores ranges, and the object is longer than {most} bytes",
            path=path,
            hint="raise `options.max_unranged_bytes`",
        )
    if size == 0:
        raise EmptyObjectError(path)
    start = max(0, size - want.length)
    return Payload(body[start:], ByteRange(start, size), size, place.etag)


def _other_name(root: str) -> str | None:
    """Return a hint for an HTTP URL of a cloud's own, which is better named by the scheme of that cloud."""
    if _AZURE.search(root):
        return "as a blob of Azure it is named az://container/path"
    if root.endswith("//storage.googleapis.com"):
        return "as an object of Google's it is named gs://bucket/path"
    if ".amazonaws.com" in root:
        return "as an object of S3 it is named s3://bucket/path"
    return None
