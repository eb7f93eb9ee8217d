"""Listings of S3 over connections of accel's own, as obstore takes any answer of status 200 for a listing."""

from __future__ import annotations

import hashlib
import hmac
import inspect
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import parse_qsl, quote

from accel.errors import StoreError
from accel.options import KIB, MIB
from accel.runtime.threads import WORK
from accel.store.http_connection import LostError, Reply, Request
from accel.store.http_connections import Origin, Timeouts, UnreachableError, connections_to
from accel.store.http_response import refusal
from accel.store.listing_page import ListingPage, no_listing, parse_page
from accel.store.range_store import ObjectEntry, can_be_sent
from accel.store.request_errors import code_in, transient_code, transient_status

__all__ = ["BucketUrl", "CredentialSource", "Credentials", "NotOursError", "S3Pages", "bucket_url"]

_MOST_PAGE: Final = 32 * MIB
"""Bytes of a page: 1,000 keys of 1,024 bytes, each of them escaped, fit."""
_PARSED_AT_ONCE: Final = 16 * KIB
"""A longer page is parsed in a thread: 1,000 keys take some milliseconds."""
_EMPTY_HASH: Final = hashlib.sha256(b"").hexdigest()
_RENEWED_SECONDS: Final = 300.0
"""Seconds before their end at which credentials are renewed."""
_UNLIMITED_SECONDS: Final = 60.0
"""Seconds after which a provider is called again that gives its credentials no end."""
_REFUSES_START: Final = frozenset((400, 405, 501))


@dataclass(frozen=True, slots=True, repr=False)
class Credentials:
    """What signs a request."""

    access_key_id: str
    secret_access_key: str
    token: str | None

    @property
    def sendable(self) -> bool:
        """Whether they can be part of a header."""
        return can_be_sent(self.access_key_id) and can_be_sent(self.token or "")


@dataclass(frozen=True, slots=True, repr=False)
class BucketUrl:
    """Where a bucket is listed."""

    origin: Origin
    authority: str
    path: str
    """The percent-encoded path of the bucket, "/" if the host names it."""
    region: str
    access_key_id: str
    token: str | None


def bucket_url(origin: Origin, authority: str, target: str, *, key: str) -> BucketUrl | None:
    """Return where the bucket is listed, by the target of the presigned URL of an object; None if that is not
    plain.

    Parameters
    ----------
    origin, authority, target
        The parts of the URL.
    key : str
        The name of that object, which needs no encoding.
    """
    path, _, query = target.partition("?")
    fields = dict(parse_qsl(query))
    scope = fields.get("X-Amz-Credential", "").rsplit("/", 4)
    if len(scope) != 5 or not path.endswith(f"/{key}"):
        return None
    access_key_id, _, region, _, _ = scope
    bucket = path.removesuffix(f"/{key}") or "/"
    return BucketUrl(origin, authority, bucket, region, access_key_id, fields.get("X-Amz-Security-Token"))


class CredentialSource:
    """The credentials of a store: those that it was made with, or those of its provider, until they end.

    Parameters
    ----------
    secret_access_key : str or None
        The secret that belongs to the key in the URLs of the store.
    provider : callable or None
        A credential provider of obstore, which may be a coroutine function.
    """

    def __init__(self, secret_access_key: str | None, provider: Callable[[], Any] | None) -> None:
        self._secret = secret_access_key
        self._provider = provider
        self._cached: tuple[float, Credentials] | None = None

    async def credentials(self, url: BucketUrl) -> Credentials | None:
        """Return the credentials; None if only obstore has them, or the provider fails, whose error obstore
        raises."""
        if self._provider is None:
            if self._secret is None:
                return None
            return Credentials(url.access_key_id, self._secret, url.token)
        now = time.time()
        if self._cached is not None and now < self._cached[0]:
            return self._cached[1]
        try:
            if inspect.iscoroutinefunction(self._provider) or inspect.iscoroutinefunction(
                getattr(self._provider, "__call__", None)  # noqa: B004 (an object may be asynchronous to call)
            ):
                given = await self._provider()
            else:
                given = await WORK.run(self._provider)  # it may wait for a network
                if inspect.isawaitable(given):
                    given = await given
            found = Credentials(given["access_key_id"], given["secret_access_key"], given.get("token"))
            ends = given.get("expires_at")
            until = now + _UNLIMITED_SECONDS if ends is None else ends.timestamp() - _RENEWED_SECONDS
        except Exception:  # noqa: BLE001 (of the caller's own code)
            return None
        self._cached = until, found
        return found


class S3Pages:
    """The pages of one listing. After a failure the same page can be requested again.

    Parameters
    ----------
    url : BucketUrl
    credentials : CredentialSource
    timeouts : Timeouts
    prefix : str
        As in `Pager.pages`.
    after : str or None
        As in `Pager.pages`.
    """

    def __init__(
        self,
        url: BucketUrl,
        credentials: CredentialSource,
        *,
        timeouts: Timeouts,
        prefix: str,
        after: str | None,
    ) -> None:
        self.more: bool | None = True
        """Whether the server says that pages follow. Once it does so without a token, the iteration ends."""
        self.begun = False
        """Whether a page has come."""
        self._url = url
        self._credentials = credentials
        self._timeouts = timeouts
        self._prefix = prefix
        self._after = after
        self._token: str | None = None
        self._ended = False

    @property
    def origin(self) -> Origin:
        """The server."""
        return self._url.origin

    async def next_page(self) -> Sequence[ObjectEntry] | None:
        """Return the entries of the next page, which may be none; None after the last.

        Raises
        ------
        StoreError
            The request failed, or its answer is no listing. The next call repeats it.
        NotOursError
            The first request failed for a reason that obstore knows better how to tell.
        """
        if self._ended:
            return None
        page = await self._request()
        if page.token is not None and page.token == self._token and not page.entries:
            raise StoreError(
                "the store sends empty pages without an end: the continuation token of a page leads to that "
                "page",
                path=self._prefix,
                hint="name the files",
            )
        self.begun = True
        self.more, self._token = page.truncated, page.token
        self._ended = page.token is None
        return page.entries

    async def _request(self) -> ListingPage:
        credentials = await self._credentials.credentials(self._url)
        if credentials is None or not credentials.sendable:
            raise NotOursError
        query = {
            "list-type": "2",
            "prefix": f"{self._prefix.rstrip('/')}/" if self._prefix.rstrip("/") else "",
        }
        if self._token is not None:
            query["continuation-token"] = self._token
        elif self._after is not None:
            query["start-after"] = self._after
        text = _signed_request(self._url, query, credentials, datetime.now(UTC))
        try:
            reply = await connections_to(self._url.origin, self._timeouts).ask(Request(text, 200), _MOST_PAGE)
        except (UnreachableError, LostError) as error:
            if not self.begun and isinstance(error, UnreachableError):
                raise NotOursError from None
            message = error.loss.value if isinstance(error, LostError) else "the server is unreachable"
            failure = StoreError(message, path=self._prefix, transient=True)
        else:
            return await self._page_in(reply)
        raise failure from None

    async def _page_in(self, reply: Reply) -> ListingPage:
        status, path = reply.head.status, self._prefix
        if reply.cut is not None:
            raise StoreError(f"{reply.cut.value} within a listing", path=path, transient=True)
        if status == 200:
            if reply.head.length is None and not reply.head.chunked:
                raise NotOursError  # the body ends with the connection
            if len(reply.body) <= _PARSED_AT_ONCE:
                return parse_page(reply.body, path)
            return await WORK.run(parse_page, reply.body, path)
        code = code_in(str(reply.body, "latin-1"))
        lists_from = self._after is not None and self._token is None
        ours = transient_status(status) or transient_code(code) or (lists_from and status in _REFUSES_START)
        if not ours and not self.begun:
            raise NotOursError
        error = refusal(status, reply.head.headers, path, None, code=code)
        raise no_listing(path) if error is None else error


class NotOursError(Exception):
    """A listing is left to obstore."""


def _signed_request(
    url: BucketUrl, query: Mapping[str, str], credentials: Credentials, now: datetime
) -> bytes:
    """Return a GET of a bucket, signed by version 4 of AWS's signatures."""
    moment = now.strftime("%Y%m%dT%H%M%SZ")
    scope = f"{moment[:8]}/{url.region}/s3/aws4_request"
    line = "&".join(f"{name}={quote(value, safe='-_.~')}" for name, value in sorted(query.items()))
    headers = {"host": url.authority, "x-amz-content-sha256": _EMPTY_HASH, "x-amz-date": moment}
    if credentials.token is not None:
        headers["x-amz-security-token"] = credentials.token
    names = ";".join(headers)
    canonical = "\n".join(
        ("GET", url.path, line, *(f"{n}:{v}" for n, v in headers.items()), "", names, _EMPTY_HASH)
    )
    digest = hashlib.sha256(canonical.encode()).hexdigest()
    key = f"AWS4{credentials.secret_access_key}".encode()
    for part in scope.split("/"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    signed = f"AWS4-HMAC-SHA256\n{moment}\n{scope}\n{digest}"
    signature = hmac.new(key, signed.encode(), hashlib.sha256).hexdigest()
    credential = f"{credentials.access_key_id}/{scope}"
    signed_by = f"Credential={credential}, SignedHeaders={names}, Signature={signature}"
    lines = [
        f"GET {url.path}?{line} HTTP/1.1",
        f"Host: {url.authority}",
        *(f"{name}: {value}" for name, value in headers.items() if name != "host"),
        f"Authorization: AWS4-HMAC-SHA256 {signed_by}",
        "Accept-Encoding: identity",
        "User-Agent: accel",
    ]
    return "\r\n".join((*lines, "", "")).encode("ascii")
