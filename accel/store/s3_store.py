"""The store of S3 that reads and lists over connections of accel's own; obstore does all else."""

from __future__ import annotations

import inspect
import os
import re
import time
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

import obstore
from cachetools import LRUCache, TTLCache
from obstore.store import S3Store

from accel.errors import StoreError
from accel.options import KIB, Options, Transport
from accel.ranges import ByteRange, Suffix
from accel.runtime.tasks import obstore_is_lost, tracked
from accel.runtime.threads import WORK
from accel.store.aws_profile import ProfileCredentials
from accel.store.expiring_credentials import ExpiringCredentials
from accel.store.http_connection import Loss, LostError, Reply, Request
from accel.store.http_connections import (
    Origin,
    Timeouts,
    UnreachableError,
    connection_error,
    connections_to,
)
from accel.store.http_response import range_header, read_answer, refusal
from accel.store.obstore_errors import S3_ADDRESS, translate
from accel.store.obstore_store import ObstoreStore, has_readable_config, without_retries
from accel.store.range_store import ObjectEntry, Payload, StatedPages, can_be_sent
from accel.store.request_errors import (
    code_in,
    transient_code,
    transient_status,
)
from accel.store.s3_listing import CredentialSource, NotOursError, S3Pages, bucket_url

__all__ = ["DirectStore", "Signed", "Signer", "adapt", "signer_of"]

# Credentials that expire are renewed by obstore five minutes before, so a URL outlives its time in the cache.
VALID = timedelta(minutes=15)
_REUSED_SECONDS = 240.0
_MOST_URLS = 4096
# A URL is left as long before its credentials end: for a request that is on its way, and clocks that differ.
_LEAST_LEFT = 10.0
_MOST_WHOLE = 3600.0
# Other settings may need headers, another kind of signature, or other rules, which obstore follows.
_CONFIG = frozenset(
    (
        "access_key_id",
        "bucket",
        "checksum_algorithm",
        "conditional_put",
        "copy_if_not_exists",
        "default_region",
        "endpoint",
        "imdsv1_fallback",
        "metadata_endpoint",
        "region",
        "secret_access_key",
        "session_token",
        "unsigned_payload",
        "virtual_hosted_style_request",
    )
)
_OFF = ("disable_tagging", "request_payer", "s3_express", "skip_signature")
_CLIENT = frozenset(("allow_http", "connect_timeout", "read_timeout", "timeout"))
# Settings that obstore also takes from the environment, and does not show; others there have no effect on
# reads.
_FROM_ENVIRONMENT = (
    "allow_invalid_certificates",
    "connect_timeout",
    "http2_only",
    "proxy_ca_certificate",
    "proxy_url",
    "read_timeout",
    "request_payer",
    "root_certificate",
    "s3_express",
    "skip_signature",
    "sse_customer_key_base64",
    "timeout",
)
_PORTS = {"http": 80, "https": 443}
_PROXIES = ("http_proxy", "https_proxy", "all_proxy")
_TIME = re.compile(r"([0-9]{1,9})(ms|s|m|h)")
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


@dataclass(frozen=True, slots=True)
class Signed:
    """A presigned URL, in the parts that a request has."""

    origin: Origin
    authority: str
    """The Host header that was signed."""
    target: str
    """Path and query, which entitle to read the object. They appear only in the request."""

    def __repr__(self) -> str:
        return f"Signed({self.authority!r})"


class Signer:
    """Makes the presigned URLs of one store, each used for some minutes. They are credentials, and stay in
    memory."""

    def __init__(
        self,
        store: S3Store,
        *,
        timeouts: Timeouts,
        at_once: bool,
        plain: bool,
        credentials: CredentialSource | None = None,
        authorities: str = "",
    ) -> None:
        self._store = store
        self._authorities = authorities
        self.timeouts = timeouts
        self.credentials = credentials
        """Those that sign requests other than for objects; None if only obstore has them."""
        self._at_once = at_once
        self._plain = plain
        # With the time until which it is used; a TTLCache of many entries costs more than to sign a URL.
        self._urls: LRUCache[str, tuple[float, Signed]] = LRUCache(_MOST_URLS)
        self._server: _Server | None = None

    async def sign(self, path: str) -> Signed | None:
        """Return the URL of an object; None if obstore should read it.

        Raises
        ------
        BaseException
            An error of obstore, which may find no credentials.
        """
        now = time.monotonic()
        cached = self._urls.get(path)
        if cached is not None and now < cached[0]:
            return cached[1]
        if self._at_once:
            url = obstore.sign(self._store, "GET", path, VALID)
        elif obstore_is_lost():
            if not self._signs_alone:
                return None
            url = await WORK.run(obstore.sign, self._store, "GET", path, VALID)
        else:
            url = await tracked(obstore.sign_async(self._store, "GET", path, VALID))
        signed = self._split(url)
        if signed is not None:
            self._urls[path] = now + self._reusable_seconds(), signed
        return signed

    @property
    def _signs_alone(self) -> bool:
        """Whether obstore signs without its threads, as it does with a provider that is a plain function."""
        provider = self._store.credential_provider
        call = getattr(provider, "__call__", None)  # noqa: B004 (an object may be asynchronous to call)
        return provider is not None and not any(map(inspect.iscoroutinefunction, (provider, call)))

    def forget(self, path: str) -> None:
        """Drop the URL of an object after it was refused."""
        self._urls.pop(path, None)

    def _reusable_seconds(self) -> float:
        """Return how long a URL is used, which ends before the credentials it was signed with."""
        provider = self._store.credential_provider
        left = (
            provider.seconds_left if isinstance(provider, (ProfileCredentials, ExpiringCredentials)) else None
        )
        return _REUSED_SECONDS if left is None else min(_REUSED_SECONDS, left - _LEAST_LEFT)

    def _split(self, url: str) -> Signed | None:
        end = url.find("/", len("https://"))
        front, target = url[:end], url[end:]
        # All URLs of a store begin alike, and to parse one takes as long as to sign it.
        server = self._server
        if server is None or server.front != front:
            server = self._server = _server_of(front, self._authorities)
        if end < 0 or server.origin is None or not (server.origin.tls or self._plain):
            return None
        if not _sendable(target) or "#" in target:
            return None
        return Signed(server.origin, server.authority, target)


@dataclass(frozen=True, slots=True)
class _Server:
    """The scheme and server that URLs begin with."""

    front: str
    authority: str
    origin: Origin | None
    """None if the server is not plainly a host and a port."""


def _sendable(text: str) -> bool:
    """Return whether a text can appear in a request line or a header as it is."""
    return can_be_sent(text) and " " not in text


def _server_of(front: str, authorities: str = "") -> _Server:
    parts = urlsplit(front)
    host, authority, usual_port = parts.hostname, parts.netloc, _PORTS.get(parts.scheme)
    whole = front.endswith(f"://{authority}") and _sendable(authority)
    if usual_port is None or host is None or parts.username is not None or not whole:
        return _Server(front, authority, None)
    tls = parts.scheme == "https"
    return _Server(front, authority, Origin(host, parts.port or usual_port, tls, authorities if tls else ""))


def signer_of(store: Any, options: Options, authorities: str = "") -> Signer | None:
    """Return a signer if plain GETs of presigned URLs fulfil all settings of the store, else None.

    It is None for other clouds than S3, anonymous access, requester pays, customer-provided keys, directory
    buckets, headers, proxies, retries of obstore, and any setting that is not known to have no effect on
    reads.
    """
    if not isinstance(store, S3Store) or "--x-s3" in repr(store):
        return None
    if any(_environment(name) for name in _PROXIES) or any(
        _from_environment(name) for name in _FROM_ENVIRONMENT
    ):
        return None
    if not has_readable_config(store):
        return None
    try:
        config = {str(name): str(value) for name, value in dict(store.config).items()}
        client = {str(name): str(value) for name, value in dict(store.client_options or {}).items()}
        retries = store.retry_config
        provider = store.credential_provider
    except BaseException as error:  # obstore panics over some legal arguments
        if isinstance(error, (KeyboardInterrupt, SystemExit)):
            raise
        return None
    if retries is not None and retries.get("max_retries") != 0:
        return None
    wanted = {name for name in config if not (name in _OFF and config[name].lower() == "false")}
    timeouts = _timeouts(client, options)
    if not wanted <= _CONFIG or timeouts is None:
        return None
    at_once = provider is None and all(
        name in config or _from_environment(name) for name in ("access_key_id", "secret_access_key")
    )
    plain = client.get("allow_http", _from_environment("allow_http")) == "true"
    secret = config.get("secret_access_key") or _environment("aws_secret_access_key") or None
    credentials = None if provider is None and not at_once else CredentialSource(secret, provider)
    return Signer(
        store,
        timeouts=timeouts,
        at_once=at_once,
        plain=plain,
        credentials=credentials,
        authorities=authorities,
    )


def _environment(name: str) -> str:
    return os.environ.get(name) or os.environ.get(name.upper()) or ""


def _from_environment(name: str) -> str:
    """Return what obstore takes from the environment, in lower case; "" if it is missing or false."""
    value = _environment(f"aws_{name}")
    return "" if value.lower() in ("0", "false", "off", "no") else value.lower()


def _timeouts(client: dict[str, str], options: Options) -> Timeouts | None:
    """Return the timeouts of the client options; None for an unknown option, or a limit on whole
    responses."""
    if not set(client) <= _CLIENT:
        return None
    seconds: dict[str, float] = {}
    for name in ("connect_timeout", "read_timeout", "timeout"):
        if name in client:
            match = _TIME.fullmatch(client[name])
            if match is None:
                return None
            seconds[name] = int(match[1]) * _UNITS[match[2]]
    if seconds.get("timeout", _MOST_WHOLE) < _MOST_WHOLE:
        return None
    return Timeouts(
        seconds.get("connect_timeout", options.connect_timeout),
        seconds.get("read_timeout", options.read_timeout),
    )


# Servers that refused a request which obstore then fulfilled: for a minute, obstore does all reads.
left_to_obstore: TTLCache[Origin, bool] = TTLCache(256, 60.0)
# The same for listings.
_listed_by_obstore: TTLCache[Origin, bool] = TTLCache(256, 60.0)
# The object whose URL shows where its bucket is listed. No such object is read.
_ANY_KEY = "x"
# obstore decrypts in several threads, the event loop in one (24 bodies of 4 MiB at once: 0.31 instead of 0.17
# s).
_MOST_OVER_TLS = 256 * KIB


def adapt(store: object, options: Options, *, authorities: str = "") -> ObstoreStore:
    """Return the adapter by which accel reads an obstore store.

    `authorities` is the file of those that certificates are verified by, which obstore cannot be told.
    """
    own = without_retries(store)
    signer = None if options.transport == Transport.OBSTORE else signer_of(own, options, authorities)
    if signer is None:
        return ObstoreStore(own, read_timeout=options.read_timeout)
    return DirectStore(own, signer, read_timeout=options.read_timeout)


def _better_by_obstore(origin: Origin) -> bool:
    """Return whether obstore reads long ranges: it decrypts in several threads, if it can be used."""
    return origin.tls and not origin.authorities and not obstore_is_lost()


class DirectStore(ObstoreStore):
    """An S3 store that is read over connections of accel's own where possible.

    Parameters
    ----------
    store : obstore.store.S3Store
    signer : Signer
        The signer of that store.
    read_timeout : float, optional
        See `ObstoreStore`.
    """

    def __init__(self, store: object, signer: Signer, *, read_timeout: float | None = None) -> None:
        super().__init__(store, read_timeout=read_timeout)
        self.signer = signer

    async def read(self, path: str, want: ByteRange | Suffix, *, if_match: str | None = None) -> Payload:
        """Read exactly one range of one object; see `RangeStore.read`.

        A request that S3 refuses because of its form is sent again by obstore.
        """
        signed = await self._sign(path)
        if (
            signed is None
            or signed.origin in left_to_obstore
            or (want.length > _MOST_OVER_TLS and _better_by_obstore(signed.origin))
        ):
            return await super().read(path, want, if_match=if_match)
        payload = await self._ask(signed, path, want, if_match)
        if payload is None:
            self.signer.forget(path)
            payload = await super().read(path, want, if_match=if_match)
            left_to_obstore[signed.origin] = True
        return payload

    async def _sign(self, path: str) -> Signed | None:
        try:
            return await self.signer.sign(path)
        except BaseException as error:
            if isinstance(translate(error, path, self.inner), StoreError):
                return None  # such as missing credentials: obstore raises it again
            raise

    def pages(self, prefix: str, *, after: str | None = None) -> AsyncGenerator[Sequence[ObjectEntry], None]:
        """List the objects at or below a prefix page by page; see `Pager.pages`.

        A listing whose first request cannot be sent, or is refused, is left to obstore.
        """
        return _DirectPages(self, prefix, after)

    def pages_by_obstore(self, prefix: str, after: str | None) -> AsyncGenerator[Sequence[ObjectEntry], None]:
        """Return the pages that obstore lists."""
        return super().pages(prefix, after=after)

    async def own_pages(self, prefix: str, after: str | None) -> S3Pages | None:
        """Return the pages that are listed over connections of accel's own; None if obstore should list."""
        credentials = self.signer.credentials
        if credentials is None or self.inner.prefix:
            return None
        signed = await self._sign(_ANY_KEY)
        if signed is None or signed.origin in _listed_by_obstore:
            return None
        url = bucket_url(signed.origin, signed.authority, signed.target, key=_ANY_KEY)
        if url is None:
            return None
        return S3Pages(url, credentials, timeouts=self.signer.timeouts, prefix=prefix, after=after)

    async def _ask(
        self, signed: Signed, path: str, want: ByteRange | Suffix, if_match: str | None
    ) -> Payload | None:
        """Return the response; None if obstore should read the range."""
        request = _request(signed, want, if_match)
        if request is None:
            return None
        try:
            reply = await connections_to(signed.origin, self.signer.timeouts).ask(request, want.length)
        except UnreachableError:
            if not obstore_is_lost():
                return None
            failure = StoreError("the server is unreachable", path=path, place=str(want), transient=True)
        except LostError as error:
            if error.loss is Loss.GARBLED:
                return None
            failure = connection_error(error, path, place=str(want), address=S3_ADDRESS)
        else:
            return _payload(reply, path, want)
        raise failure from failure.__cause__


class _DirectPages(StatedPages):
    """The pages of one listing of a `DirectStore`."""

    def __init__(self, store: DirectStore, prefix: str, after: str | None) -> None:
        self._store = store
        self._prefix, self._after = prefix, after
        self._own: S3Pages | None = None
        self._by_obstore: AsyncGenerator[Sequence[ObjectEntry], None] | None = None
        self._refused: Origin | None = None

    async def asend(self, value: None) -> Sequence[ObjectEntry]:
        """Return the next page."""
        page = None
        if self._by_obstore is None:
            page = await self._next_own()
        if self._by_obstore is not None:
            page = await anext(self._by_obstore)
            if self._refused is not None:
                _listed_by_obstore[self._refused] = True
                self._refused = None
        if page is None:
            raise StopAsyncIteration
        return page

    async def _next_own(self) -> Sequence[ObjectEntry] | None:
        own = self._own
        if own is None:
            own = self._own = await self._store.own_pages(self._prefix, self._after)
        if own is not None:
            self.resumable = True
            try:
                page = await own.next_page()
            except NotOursError:
                self._refused = own.origin
            else:
                self.more = own.more
                return page
        self.resumable, self.more = False, None
        self._by_obstore = self._store.pages_by_obstore(self._prefix, self._after)
        return None

    async def aclose(self) -> None:
        """End the listing of obstore, if that lists."""
        self.resumable = False
        if self._by_obstore is not None:
            await self._by_obstore.aclose()


def _request(signed: Signed, want: ByteRange | Suffix, if_match: str | None) -> Request | None:
    """Return the request to send; None if an etag cannot be a header."""
    lines = [
        f"GET {signed.target} HTTP/1.1",
        f"Host: {signed.authority}",
        f"Range: {range_header(want)}",
        "Accept-Encoding: identity",
        "User-Agent: accel",
    ]
    if if_match is not None:
        if not can_be_sent(if_match):
            return None
        lines.append(f"If-Match: {if_match}")
    return Request("\r\n".join((*lines, "", "")).encode("ascii"))


def _payload(reply: Reply, path: str, want: ByteRange | Suffix) -> Payload | None:
    head = reply.head
    if head.status != 206:
        _raise_refusal(reply, path, want)
        return None
    if head.length is None:
        return None
    answer = read_answer(206, head.headers, path=path, want=want, max_unranged=0)
    if answer.range is None or head.length != answer.length:
        raise StoreError(
            f"the store sent {head.length} bytes that are not the wanted ones", path=path, place=str(want)
        )
    return answer.payload(reply.body, path, cut=None if reply.cut is None else reply.cut.value)


def _raise_refusal(reply: Reply, path: str, want: ByteRange | Suffix) -> None:
    """Raise the error of a status that obstore would get too; all others are left to obstore."""
    status, headers = reply.head.status, reply.head.headers
    code = code_in(str(reply.body, "latin-1"))
    if status not in (404, 412, 416) and not transient_status(status) and not transient_code(code):
        return
    error = refusal(status, headers, path, want, code=code)
    if error is not None:
        raise error
