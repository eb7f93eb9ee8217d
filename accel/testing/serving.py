"""A relay or a frontage as a server on a port of its own, with a path that tells what passed and sets the network."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
from collections.abc import Callable, Sequence
from typing import Any

from aiohttp import web

from accel.testing.frontage import Frontage
from accel.testing.relay import Passage, Relay

__all__ = ["CONTROL", "serve", "serve_kept"]

CONTROL = "/.proxy"
"""A GET answers with the passages as JSON; a POST too, after which it forgets them and sets what its body says."""
_BACKLOG = 4096
"""Connections that wait to be accepted. One that is asked for beyond them is not answered, and tries again after a second:
who opens many at once would be measured by that."""
_FIELDS = tuple(field.name for field in dataclasses.fields(Passage))


async def serve(relay: Relay, *, port: int, ready: Callable[[int], None], stop: asyncio.Event) -> None:
    """Serve `relay` on 127.0.0.1 until `stop`; `port` 0 takes a free one, and `ready` is told which."""

    async def control(request: web.Request) -> web.Response:
        seen = _told(relay.passages)
        if request.method == "POST":
            _set(relay, await request.json())
        return web.Response(body=seen, content_type="application/json")

    app = web.Application(client_max_size=1 << 30)
    app.router.add_route("*", CONTROL, control)
    app.router.add_route("*", "/{path:.*}", relay.handle)
    loop = asyncio.get_running_loop()
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.2)
    await relay.open()
    await runner.setup()
    try:
        if runner.server is None:
            raise RuntimeError("the runner of the proxy has no server")
        listener = await loop.create_server(runner.server, "127.0.0.1", port, backlog=_BACKLOG)
        ready(listener.sockets[0].getsockname()[1])
        await stop.wait()
        await _deafen(listener)
        # A client that no longer reads would keep a closing connection open for ever.
        for connection in runner.server.connections:
            if connection.transport is not None:
                connection.transport.abort()
    finally:
        await runner.cleanup()
        await relay.close()
        await _turns()


async def serve_kept(
    front: Frontage, *, port: int, ready: Callable[[int], None], stop: asyncio.Event
) -> None:
    """Serve `front` as `serve` does a relay."""

    async def control(method: str, body: bytes) -> bytes:
        seen = _told(front.passages)
        if method == "POST":
            wanted = json.loads(body)
            _set(front, wanted)
            if wanted.get("forget"):
                front.forget()
            if wanted.get("read"):
                front.directory.forget()  # who says what there is to read has written it
            await front.shelf.read(wanted.get("read", ()))
        return seen

    front.control_path, front.control = CONTROL, control
    await front.origin.open()
    try:
        loop = asyncio.get_running_loop()
        listener = await loop.create_server(front.connect, "127.0.0.1", port, backlog=_BACKLOG)
        port = listener.sockets[0].getsockname()[1]
        front.hosts = frozenset((f"127.0.0.1:{port}", f"localhost:{port}"))
        ready(port)
        await stop.wait()
        await _deafen(listener)
        front.abort()
    finally:
        await _turns()
        await front.shelf.close()
        await front.origin.close()
        await _turns()


def _told(passages: Sequence[Passage]) -> bytes:
    return json.dumps([{name: getattr(passage, name) for name in _FIELDS} for passage in passages]).encode()


def _set(network: Relay | Frontage, wanted: dict[str, Any]) -> None:
    network.first_byte = wanted.get("first_byte", network.first_byte)
    network.bandwidth = wanted.get("bandwidth", network.bandwidth)
    network.reset()


async def _deafen(listener: asyncio.Server) -> None:
    """Accept nothing more, then let what was accepted become a connection: a listener that is closed
    in between loses it with its socket open."""
    for sock in listener.sockets:
        # uvloop takes care of that by itself, and lets nobody touch its sockets.
        with contextlib.suppress(RuntimeError):
            asyncio.get_running_loop().remove_reader(sock)
    await _turns()
    listener.close()


async def _turns() -> None:
    """Let the loop run the callbacks in which sockets are opened and closed."""
    for _ in range(5):
        await asyncio.sleep(0)
