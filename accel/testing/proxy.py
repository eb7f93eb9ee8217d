"""The proxy in its own thread, for tests, or in its own process, for the benchmark.

`python -m accel.testing.proxy --origin http://127.0.0.1:9000 --first-byte 0.03 --bandwidth 90e6` prints the
URL that it listens on, and serves until its standard input is closed.
"""

from __future__ import annotations

import abc
import argparse
import asyncio
import concurrent.futures
import json
import os
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from typing import Any, Self

from accel.testing.frontage import Frontage
from accel.testing.origin import Origin
from accel.testing.relay import Etags, Passage, Relay, RelayScript
from accel.testing.s3 import S3Admin
from accel.testing.serving import CONTROL, serve, serve_kept
from accel.testing.shelf import LIMIT, Shelf

__all__ = ["Proxy", "ProxyProcess"]

_KEYS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")


class _Counts(abc.ABC):
    """What both faces of the proxy tell of what passed."""

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
        """Requests and body bytes of each (method, path), without the query."""
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
        What becomes of the ETag header of every response.
    script : sequence of faults or callable, optional
        The fault of the first request, the second, and so on; or a function of the `Passage`, called on the
        proxy's thread, which may also change the origin before the request gets there.
    """

    def __init__(
        self,
        origin: str | None,
        *,
        first_byte: float = 0.0,
        bandwidth: float | None = None,
        etags: Etags = Etags.KEEP,
        script: RelayScript = (),
    ) -> None:
        self.relay = Relay(origin, first_byte=first_byte, bandwidth=bandwidth, etags=etags, script=script)
        self.url = ""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        ready: concurrent.futures.Future[int] = concurrent.futures.Future()

        async def main() -> None:
            self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
            await serve(self.relay, port=0, ready=ready.set_result, stop=self._stop)

        def run() -> None:
            try:
                asyncio.run(main())
            except BaseException as error:
                if ready.done():
                    raise
                ready.set_exception(error)

        self._thread = threading.Thread(target=run, name="accel-proxy", daemon=True)
        self._thread.start()
        self.url = f"http://127.0.0.1:{ready.result(timeout=30)}"
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
        """Forget what passed, and play `script` from its start."""
        self.relay.reset(script)


class ProxyProcess(_Counts):
    """The proxy in a process of its own, so that it shares no GIL with what is measured.

    Takes `origin`, `first_byte` and `bandwidth` as `Proxy` does; it has no faults.

    Parameters
    ----------
    keep : S3Admin, optional
        Who may read the origin's objects. Each is then read once, whole, and answered from the memory of the proxy
        (`accel.testing.shelf`), whoever asks: signatures are checked by the origin only of what it is still asked.
    limit : int
        Bytes of objects kept.
    """

    def __init__(
        self,
        origin: str,
        *,
        first_byte: float = 0.0,
        bandwidth: float | None = None,
        keep: S3Admin | None = None,
        limit: int = LIMIT,
    ) -> None:
        self.url = ""
        self._command = [sys.executable, "-m", "accel.testing.proxy", "--origin", origin]
        self._command += ["--first-byte", repr(first_byte), "--bandwidth", repr(bandwidth or 0.0)]
        self._environment = dict(os.environ)
        if keep is not None:
            self._command += ["--keep", str(limit)]
            self._environment |= dict(zip(_KEYS, (keep.access_key, keep.secret_key), strict=True))
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            self._command, env=self._environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        if self._process.stdout is not None:
            self.url = self._process.stdout.readline().strip()
        if not self.url:
            raise RuntimeError(f"the proxy did not start: exit status {self._process.wait(30)}")
        return self

    def __exit__(self, *failure: object) -> None:
        if self._process is not None:
            # The end of its standard input ends it, also when this process dies without a word.
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
        """Forget what passed; `first_byte` and `bandwidth` may be set anew, `forget=True` empties the shelf."""
        self._control(settings)

    def read(self, paths: Iterable[str]) -> None:
        """Have objects read into memory now ("/bucket/key"), and forget what passed; without `keep` that is all."""
        self._control({"read": list(paths)})

    def _control(self, settings: Mapping[str, object] | None) -> list[Passage]:
        body = None if settings is None else json.dumps(settings).encode()
        with urllib.request.urlopen(self.url + CONTROL, data=body, timeout=600) as answer:
            return [Passage(**passage) for passage in json.load(answer)]


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve until standard input ends."""
    parser = argparse.ArgumentParser(prog="python -m accel.testing.proxy", description="A slow network.")
    parser.add_argument("--origin", required=True, help="URL of the server behind")
    parser.add_argument("--port", type=int, default=0, help="0 (the default) takes a free one")
    parser.add_argument("--first-byte", type=float, default=0.03, help="seconds, the origin's time included")
    parser.add_argument(
        "--bandwidth", type=float, default=90e6, help="bytes a second of a response; 0: no limit"
    )
    parser.add_argument(
        "--keep",
        type=int,
        default=0,
        help=f"bytes of objects to answer from memory, read as {' and '.join(_KEYS)} say",
    )
    chosen = parser.parse_args(arguments)
    network = {"first_byte": chosen.first_byte, "bandwidth": chosen.bandwidth or None}

    def tell(port: int) -> None:
        print(f"http://127.0.0.1:{port}", flush=True)

    async def run() -> None:
        stop, loop = asyncio.Event(), asyncio.get_running_loop()

        def watch() -> None:
            sys.stdin.buffer.read()
            loop.call_soon_threadsafe(stop.set)

        threading.Thread(target=watch, daemon=True).start()
        if chosen.keep:
            reader = S3Admin(chosen.origin, access_key=os.environ[_KEYS[0]], secret_key=os.environ[_KEYS[1]])
            origin = Origin(chosen.origin)
            front = Frontage(origin, Shelf(origin, reader, limit=chosen.keep), **network)
            await serve_kept(front, port=chosen.port, ready=tell, stop=stop)
        else:
            await serve(Relay(chosen.origin, **network), port=chosen.port, ready=tell, stop=stop)

    _run(run())


def _run(main: Coroutine[Any, Any, None]) -> None:
    """By uvloop where there is one: half the CPU of asyncio's own."""
    try:
        import uvloop
    except ModuleNotFoundError:
        asyncio.run(main)
    else:
        uvloop.run(main)


if __name__ == "__main__":
    main()
