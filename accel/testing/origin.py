"""The client of the server behind a proxy: asks it what was asked, and hands back what it says."""

from __future__ import annotations

import io
import re
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass

from aiohttp import ClientError, ClientResponse, ClientSession, ClientTimeout, TCPConnector
from multidict import CIMultiDict
from yarl import URL

from accel.ranges import Buffer

__all__ = ["Answer", "Origin", "once", "plain_answer"]

# Headers that belong to one connection, not to the message (RFC 9110, 7.6.1).
_HOP_BY_HOP = frozenset(
    ("connection", "keep-alive", "proxy-authenticate", "te", "trailer", "transfer-encoding", "upgrade")
)


@dataclass(slots=True)
class Answer:
    """What is said to one request; its body may still be on its way."""

    status: int
    headers: CIMultiDict[str]
    body: AsyncIterator[Buffer]
    source: ClientResponse | None = None

    def close(self) -> None:
        """Let go of the origin: its connection is kept when the body was read to its end, else dropped."""
        if self.source is not None:
            self.source.close()


class Origin:
    """The server behind, at `url`; None: there is none, and everything is a 404."""

    def __init__(self, url: str | None) -> None:
        self.url = None if url is None else url.rstrip("/")
        self._session: ClientSession | None = None

    async def open(self) -> None:
        """Make the client, on the loop that will use it."""
        self._session = ClientSession(
            connector=TCPConnector(limit=0, keepalive_timeout=60),
            timeout=ClientTimeout(total=None),
            auto_decompress=False,
            read_bufsize=1 << 20,
            skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding", "Content-Type"),
        )

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()

    async def ask(
        self, method: str, target: str, headers: Iterable[tuple[str, str]], body: bytes | None = None
    ) -> Answer:
        """Ask for `target`, path and query as they came; a 502 where the server does not answer."""
        if self._session is None or self.url is None:
            return plain_answer(404, b"this proxy has no origin")
        # A client that was told to use a forward proxy sends the whole URL (RFC 9112, 3.2.2).
        url = URL(self.url + re.sub(r"^http://[^/]*", "", target), encoded=True)
        # aiohttp warns of large bodies that are bytes: this one is there as a whole anyway.
        data = None if body is None else io.BytesIO(body)
        try:
            # The Host header goes on as the client signed it: MinIO checks AWS signatures against it.
            response = await self._session.request(
                method, url, headers=_end_to_end(headers), data=data, allow_redirects=False
            )
        except ClientError as error:
            return plain_answer(502, f"the origin did not answer: {error}".encode())
        passed = _end_to_end(response.headers.items())
        return Answer(response.status, passed, response.content.iter_any(), response)


def _end_to_end(items: Iterable[tuple[str, str]]) -> CIMultiDict[str]:
    headers = CIMultiDict(items)
    for name in _HOP_BY_HOP & {name.lower() for name in headers}:
        del headers[name]
    return headers


async def once(data: Buffer) -> AsyncIterator[Buffer]:
    """A body that is all there."""
    yield data


def plain_answer(status: int, body: bytes, **headers: str) -> Answer:
    """An answer of our own; header names are given with _ for -."""
    merged = CIMultiDict({name.replace("_", "-"): value for name, value in headers.items()})
    merged["Content-Length"] = str(len(body))
    return Answer(status, merged, once(body))
