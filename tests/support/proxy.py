"""The proxy in a thread, for tests, or in a process of its own, for the benchmark; either has a path that
controls it.

`python -m tests.support.proxy --origin http://127.0.0.1:9000 --first-byte 0.03 --bandwidth 90e6` prints the
URL that it listens on, and serves until its standard input is closed. Either may listen on a second port by
TLS: the same store, the same log.
"""

from __future__ import annotations

import abc
import argparse
import asyncio
import concurrent.futures
import contextlib
import dataclasses
import json
import os
import pathlib
import ssl
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any, Self

from aiohttp import web

from tests.support.caching_proxy import CachingProxy
from tests.support.certificate import Certificate
from tests.support.object_cache import DEFAULT_CACHE_BYTES, ObjectCache
from tests.support.relay import Etags, Passage, Relay, RelayScript
from tests.support.responses import Origin
from tests.support.s3 import S3Admin

__all__ = ["Proxy", "ProxyProcess", "serve", "serve_caching"]

_CONTROL = "/.proxy"
"""A GET returns the log as JSON; a POST too, and then clears it and applies the settings of its body."""
_BACKLOG = 4096
"""Connections that may wait to be accepted. The system drops a connection beyond them and the client tries
again after a second, which would be measured for a client that opens many at once."""
_FIELDS = tuple(field.name for field in dataclasses.fields(Passage))
_ROOT = pathlib.Path(__file__).resolve().parents[2]
_KEYS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")


class _Counts(abc.ABC):
    """The counts that both kinds of proxy derive from their log."""

    @property
    @abc.abstractmethod
    def passages(self) -> list[Passage]:
        """Every request since the start or the last reset, in the order of arrival."""

    @property
    def requests(self) -> int:
        """Requests that arrived."""
        return len(self.passages)

    @property
    def bytes(self) -> int:
        """Body bytes that were sent back."""
        return sum(passage.sent for passage in self.passages)

    def by_path(self) -> dict[tuple[str, str], tuple[int, int]]:
        """Count requests and body bytes by method and path, without the query."""
        counts: dict[tuple[str, str], tuple[int, int]] = {}
        for passage in self.passages:
            name = (passage.method, passage.path.partition("?")[0])
            requests, sent = counts.get(name, (0, 0))
            counts[name] = (requests + 1, sent + passage.sent)
        return counts


class Proxy(_Counts):
    """The proxy in a thread of its own, as a context manager.

    Parameters
    ----------
    origin : str or None
        URL of the server behind; None when the script answers everything by `Substitute`.
    first_byte : float, default 0
        Seconds from a request's arrival to the first byte of its answer, the origin's own time included.
    bandwidth : float, optional
        Bytes a second of each response; by default as fast as it goes.
    etags : Etags, default KEEP
        What the relay does to the ETag header of every response.
    script : sequence of faults or callable, optional
        The fault of the first request, the second, and so on; or a function of the `Passage`, called on the
        proxy's thread, which may also change the origin before the request gets there.
    certificate : Certificate, optional
        Listen at `secure_url` too.
    """

    def __init__(
        self,
        origin: str | None,
        *,
        first_byte: float = 0.0,
        bandwidth: float | None = None,
        etags: Etags = Etags.KEEP,
        script: RelayScript = (),
        certificate: Certificate | None = None,
    ) -> None:
        self.relay = Relay(origin, first_byte=first_byte, bandwidth=bandwidth, etags=etags, script=script)
        self.url = self.secure_url = ""
        self._secure = None if certificate is None else certificate.server_context()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        ready: concurrent.futures.Future[Sequence[str]] = concurrent.futures.Future()

        async def main() -> None:
            self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
            await serve(self.relay, port=0, ready=ready.set_result, stop=self._stop, secure=self._secure)

        def run() -> None:
            try:
                asyncio.run(main())
            except BaseException as error:
                if ready.done():
                    raise
                ready.set_exception(error)

        self._thread = threading.Thread(target=run, name="accel-proxy", daemon=True)
        self._thread.start()
        self.url, self.secure_url, *_ = *ready.result(timeout=30), ""
        return self

    def __exit__(self, *failure: object) -> None:
        if self._loop is not None and self._stop is not None and self._thread is not None:
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join(timeout=30)

    @property
    def passages(self) -> list[Passage]:
        """Every request since the start or the last reset, in the order of arrival."""
        return list(self.relay.passages)

    def reset(self, script: RelayScript = ()) -> None:
        """Clear the log, and play `script` from its start."""
        self.relay.reset(script)


class ProxyProcess(_Counts):
    """The proxy in a process of its own, so that it shares no GIL with what is measured.

    Takes `origin`, `first_byte` and `bandwidth` as `Proxy` does; it has no faults.

    Parameters
    ----------
    cache_as : S3Admin, optional
        The keys that may read the origin's objects. Each object is then read once, whole, and served from the
        memory of the proxy to every client: the origin checks the signatures only of requests that still
        reach it.
    cache_bytes : int
        Bytes of objects that may be cached.
    certificate : Certificate, optional
        Listen at `secure_url` too.
    """

    def __init__(
        self,
        origin: str,
        *,
        first_byte: float = 0.0,
        bandwidth: float | None = None,
        cache_as: S3Admin | None = None,
        cache_bytes: int = DEFAULT_CACHE_BYTES,
        certificate: Certificate | None = None,
    ) -> None:
        self.url = self.secure_url = ""
        self._command = [sys.executable, "-m", "tests.support.proxy", "--origin", origin]
        self._command += ["--first-byte", repr(first_byte), "--bandwidth", repr(bandwidth or 0.0)]
        if certificate is not None:
            self._command += ["--certificate", str(certificate.server)]
        self._environment = dict(os.environ)
        if cache_as is not None:
            self._command += ["--cache-bytes", str(cache_bytes)]
            self._environment |= dict(zip(_KEYS, (cache_as.access_key, cache_as.secret_key), strict=True))
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            self._command,
            cwd=_ROOT,  # `tests` is found there
            env=self._environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        if self._process.stdout is not None:
            self.url, self.secure_url, *_ = *self._process.stdout.readline().split(), "", ""
        if not self.url:
            raise RuntimeError(f"the proxy did not start: exit status {self._process.wait(30)}")
        return self

    def __exit__(self, *failure: object) -> None:
        if self._process is not None:
            # The end of its standard input ends it, also when this process is killed.
            try:
                self._process.communicate(timeout=30)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.communicate()

    @property
    def passages(self) -> list[Passage]:
        """Every request since the start or the last reset, in the order of arrival."""
        return self._control(None)

    def reset(self, **settings: float) -> None:
        """Clear the log, and set `first_byte` and `bandwidth` where given; `invalidate=True` empties the
        cache."""
        self._control(settings)

    def read(self, paths: Iterable[str]) -> None:
        """Read objects ("/bucket/key") into the cache, if there is one, and clear the log."""
        self._control({"read": list(paths)})

    def _control(self, settings: Mapping[str, object] | None) -> list[Passage]:
        body = None if settings is None else json.dumps(settings).encode()
        with urllib.request.urlopen(self.url + _CONTROL, data=body, timeout=600) as answer:
            return [Passage(**passage) for passage in json.load(answer)]


async def serve(
    relay: Relay,
    *,
    port: int,
    ready: Callable[[Sequence[str]], None],
    stop: asyncio.Event,
    secure: ssl.SSLContext | None = None,
) -> None:
    """Serve `relay` on 127.0.0.1 until `stop`; `port` 0 takes a free one.

    With `secure`, serve it by TLS on another port too. `ready` is called with the URLs.
    """

    async def control(request: web.Request) -> web.Response:
        log = _log_of(relay.passages)
        if request.method == "POST":
            _configure(relay, await request.json())
        return web.Response(body=log, content_type="application/json")

    app = web.Application(client_max_size=1 << 30)
    app.router.add_route("*", _CONTROL, control)
    app.router.add_route("*", "/{path:.*}", relay.handle)
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.2)
    await relay.open()
    await runner.setup()
    try:
        if runner.server is None:
            raise RuntimeError("the runner of the proxy has no server")
        listeners = await _listen(runner.server, port, secure)
        ready([url for _, url in listeners])
        await stop.wait()
        await _stop_accepting(listeners)
        # A client that no longer reads would hold a closing connection open for ever.
        for connection in runner.server.connections:
            if connection.transport is not None:
                connection.transport.abort()
    finally:
        await runner.cleanup()
        await relay.close()
        await _run_callbacks()


async def serve_caching(
    proxy: CachingProxy,
    *,
    port: int,
    ready: Callable[[Sequence[str]], None],
    stop: asyncio.Event,
    secure: ssl.SSLContext | None = None,
) -> None:
    """Serve `proxy` as `serve` serves a relay."""

    async def control(method: str, body: bytes) -> bytes:
        log = _log_of(proxy.passages)
        if method == "POST":
            settings = json.loads(body)
            _configure(proxy, settings)
            if settings.get("invalidate"):
                proxy.invalidate()
            if settings.get("read"):
                proxy.listings.clear()  # objects to read were written before
            await proxy.objects.read(settings.get("read", ()))
        return log

    proxy.control_path, proxy.control = _CONTROL, control
    await proxy.origin.open()
    try:
        listeners = await _listen(proxy.connect, port, secure)
        ports = [url.rpartition(":")[2] for _, url in listeners]
        proxy.hosts = frozenset(f"{host}:{port}" for host in ("127.0.0.1", "localhost") for port in ports)
        ready([url for _, url in listeners])
        await stop.wait()
        await _stop_accepting(listeners)
        proxy.abort()
    finally:
        await _run_callbacks()
        await proxy.objects.close()
        await proxy.origin.close()
        await _run_callbacks()


def _log_of(passages: Sequence[Passage]) -> bytes:
    return json.dumps([{name: getattr(passage, name) for name in _FIELDS} for passage in passages]).encode()


def _configure(network: Relay | CachingProxy, settings: dict[str, Any]) -> None:
    network.first_byte = settings.get("first_byte", network.first_byte)
    network.bandwidth = settings.get("bandwidth", network.bandwidth)
    network.reset()


async def _listen(
    factory: Callable[[], asyncio.Protocol], port: int, secure: ssl.SSLContext | None
) -> list[tuple[asyncio.Server, str]]:
    """Listen on 127.0.0.1, and by TLS on another port; each listener with its URL."""
    loop, found = asyncio.get_running_loop(), []
    for scheme, wanted, context in (("http", port, None), ("https", 0, secure)):
        if scheme == "https" and context is None:
            continue
        listener = await loop.create_server(factory, "127.0.0.1", wanted, backlog=_BACKLOG, ssl=context)
        found.append((listener, f"{scheme}://127.0.0.1:{listener.sockets[0].getsockname()[1]}"))
    return found


async def _stop_accepting(listeners: Sequence[tuple[asyncio.Server, str]]) -> None:
    """Close listeners after what they accepted has become a connection; closed in between, it would leak the
    socket."""
    for sock in [sock for listener, _ in listeners for sock in listener.sockets]:
        # uvloop does that by itself, and does not expose its sockets.
        with contextlib.suppress(RuntimeError):
            asyncio.get_running_loop().remove_reader(sock)
    await _run_callbacks()
    for listener, _ in listeners:
        listener.close()


async def _run_callbacks() -> None:
    """Let the loop run the callbacks that open and close sockets."""
    for _ in range(5):
        await asyncio.sleep(0)


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve until standard input ends."""
    parser = argparse.ArgumentParser(prog="python -m tests.support.proxy", description="A slow network.")
    parser.add_argument("--origin", required=True, help="URL of the server behind")
    parser.add_argument("--port", type=int, default=0, help="0 (the default) takes a free one")
    parser.add_argument("--first-byte", type=float, default=0.03, help="seconds, the origin's time included")
    parser.add_argument(
        "--bandwidth", type=float, default=90e6, help="bytes a second of a response; 0: no limit"
    )
    parser.add_argument(
        "--cache-bytes",
        type=int,
        default=0,
        help=f"bytes of objects to serve from memory, read with the keys in {' and '.join(_KEYS)}",
    )
    parser.add_argument("--certificate", type=pathlib.Path, help="serve by TLS too: key and chain in PEM")
    chosen = parser.parse_args(arguments)
    network = {"first_byte": chosen.first_byte, "bandwidth": chosen.bandwidth or None}

    secure = None
    if chosen.certificate is not None:
        secure = Certificate(chosen.certificate, chosen.certificate).server_context()

    def announce(urls: Sequence[str]) -> None:
        print(*urls, flush=True)

    async def run() -> None:
        stop, loop = asyncio.Event(), asyncio.get_running_loop()

        def watch() -> None:
            sys.stdin.buffer.read()
            loop.call_soon_threadsafe(stop.set)

        threading.Thread(target=watch, daemon=True).start()
        if chosen.cache_bytes:
            reader = S3Admin(chosen.origin, access_key=os.environ[_KEYS[0]], secret_key=os.environ[_KEYS[1]])
            origin = Origin(chosen.origin)
            proxy = CachingProxy(origin, ObjectCache(origin, reader, limit=chosen.cache_bytes), **network)
            await serve_caching(proxy, port=chosen.port, ready=announce, stop=stop, secure=secure)
        else:
            relay = Relay(chosen.origin, **network)
            await serve(relay, port=chosen.port, ready=announce, stop=stop, secure=secure)

    _run(run())


def _run(main: Coroutine[Any, Any, None]) -> None:
    """Run on uvloop where it is installed: it takes half the CPU of asyncio's own loop."""
    try:
        import uvloop
    except ModuleNotFoundError:
        asyncio.run(main)
    else:
        uvloop.run(main)


if __name__ == "__main__":
    main()
