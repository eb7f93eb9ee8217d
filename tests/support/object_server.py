"""An HTTP server on a free port of the loopback, whose responses a script can edit byte for byte."""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from obstore.store import S3Store


@dataclass
class Reply:
    """What goes over the wire for one request; a script edits the honest one."""

    status: int
    headers: dict[str, str]
    body: bytes
    delay: float = 0.0
    """Before the head."""
    cut: int | None = None
    """Close the connection after so many bytes of the body."""
    stall: tuple[int, float] | None = None
    """After so many bytes of the body, wait so many seconds."""
    vanish: bool = False
    """Close the connection without an answer."""
    raw: bytes | None = None
    """Sent in place of it all."""


@dataclass
class Request:
    method: str
    target: str
    headers: dict[str, str]


Edit = Callable[[Reply], None]
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def s3_at(url: str, **client: Any) -> S3Store:
    """The bucket `b` at an address, nothing tried again; `client` are options of obstore's client."""
    return S3Store(
        "b",
        endpoint=url,
        access_key_id="KEY",
        secret_access_key="SECRET",
        region="us-east-1",
        client_options={"allow_http": True, **client},  # type: ignore[arg-type]
        retry_config={"max_retries": 0},
    )


def status(code: int, body: bytes = b"", **headers: str) -> Edit:
    """The reply is this one; a header's name is written with underscores."""

    def edit(reply: Reply) -> None:
        reply.status, reply.body = code, body
        reply.headers = {name.replace("_", "-"): value for name, value in headers.items()}

    return edit


@asynccontextmanager
async def serving(serve: Serve, context: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    """Serve on a free port of the loopback meanwhile; yield the port."""
    tasks: set[asyncio.Task[None]] = set()

    async def serve_one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await serve(reader, writer)
        finally:
            writer.transport.abort()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.add(asyncio.ensure_future(serve_one(reader, writer)))

    listening = await asyncio.start_server(accept, "127.0.0.1", 0, ssl=context)
    yield listening.sockets[0].getsockname()[1]
    listening.close()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await asyncio.sleep(0)  # in which aborted transports end


@dataclass
class ObjectServer:
    """Serves `objects` honestly, except where `script` edits the reply to the n-th request."""

    objects: dict[str, bytes] = field(default_factory=dict)
    etags: dict[str, str | None] = field(default_factory=dict)
    script: dict[int, Edit] = field(default_factory=dict)
    always: Edit | None = None
    suffixes: bool = True
    requests: list[Request] = field(default_factory=list)
    connections: int = 0
    """Accepted up to now."""
    url: str = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                lines = head.split("\r\n")
                method, target, _ = lines[0].split(" ")
                headers = {
                    k.lower(): v for k, v in (line.split(": ", 1) for line in lines[1:] if ": " in line)
                }
                number = len(self.requests)
                request = Request(method, target, headers)
                self.requests.append(request)
                reply = self.honest(request)
                if self.always is not None:
                    self.always(reply)
                if number in self.script:
                    self.script[number](reply)
                if not await self._send(writer, reply, method):
                    return
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            writer.transport.abort()

    def honest(self, request: Request) -> Reply:
        path = request.target.partition("?")[0]
        data = self.objects.get(path)
        if data is None:
            return Reply(404, {}, b"no")
        etag = self.etags.get(path, '"v1"')
        headers = {} if etag is None else {"ETag": etag}
        if "if-match" in request.headers and request.headers["if-match"] != etag:
            return Reply(412, {}, b"")
        found = re.fullmatch(r"bytes=(\d*)-(\d*)", request.headers.get("range", ""))
        if found is None:
            return Reply(200, headers, data)
        if not found[1]:
            start, end = max(0, len(data) - int(found[2])), len(data)
            if not self.suffixes:
                return Reply(416, {}, b"")
        else:
            start, end = int(found[1]), min(int(found[2]) + 1, len(data))
        if start >= end:
            return Reply(416, {"Content-Range": f"bytes */{len(data)}"}, b"")
        headers["Content-Range"] = f"bytes {start}-{end - 1}/{len(data)}"
        return Reply(206, headers, data[start:end])

    async def _send(self, writer: asyncio.StreamWriter, reply: Reply, method: str) -> bool:
        if reply.delay:
            await asyncio.sleep(reply.delay)
        if reply.vanish:
            return False
        if reply.raw is not None:
            writer.write(reply.raw)
            await writer.drain()
            return False
        headers = {"Content-Length": str(len(reply.body)), **reply.headers}
        head = f"HTTP/1.1 {reply.status} Status\r\n"
        head += "".join(f"{k}: {v}\r\n" for k, v in headers.items() if v != "")
        writer.write(head.encode("latin-1") + b"\r\n")
        body = b"" if method == "HEAD" else reply.body
        if reply.stall is not None:
            writer.write(body[: reply.stall[0]])
            await writer.drain()
            await asyncio.sleep(reply.stall[1])
            body = body[reply.stall[0] :]
        if reply.cut is not None:
            writer.write(body[: reply.cut])
            await writer.drain()
            await asyncio.sleep(0.02)
            return False
        writer.write(body)
        await writer.drain()
        return True


@pytest.fixture
async def server() -> AsyncIterator[ObjectServer]:
    """An `ObjectServer` under way, with /f holding the bytes 0..250 over and over, 1,000 of them."""
    it = ObjectServer(objects={"/f": bytes(i % 251 for i in range(1000))})
    tasks: set[asyncio.Task[None]] = set()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(it.serve(reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    listening = await asyncio.start_server(accept, "127.0.0.1", 0)
    it.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    yield it
    listening.close()
    for task in list(tasks):
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
