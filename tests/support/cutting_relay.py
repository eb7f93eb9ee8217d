"""A TCP relay that closes connections at random: before a request has reached the server, or before its
answer comes back."""

from __future__ import annotations

import contextlib
import random
import socket
import socketserver
import threading
from typing import Self

__all__ = ["CuttingRelay"]


class CuttingRelay:
    """Relays to a port of the loopback, as a context manager.

    Parameters
    ----------
    port : int
        The server's.
    rate : float
        The share of pieces of data, of either direction, in whose place the connection ends.
    seed : int
    """

    def __init__(self, port: int, *, rate: float, seed: int) -> None:
        self._target = port
        self.rate = rate
        self._random = random.Random(seed)
        self._sockets: set[socket.socket] = set()
        self.cuts = 0
        """Connections that were closed."""

    def __enter__(self) -> Self:
        relay = self

        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                relay._relay(self.request)

        class Server(socketserver.ThreadingTCPServer):
            daemon_threads = True

        self._server = Server(("127.0.0.1", 0), Handler)
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *failure: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        for each in list(self._sockets):
            self._close(each)

    def _relay(self, client: socket.socket) -> None:
        try:
            server = socket.create_connection(("127.0.0.1", self._target), timeout=5)
        except OSError:
            client.close()
            return
        server.settimeout(None)
        both = (client, server)
        self._sockets.update(both)
        back = threading.Thread(target=self._pump, args=(server, client, both), daemon=True)
        back.start()
        self._pump(client, server, both)
        back.join(5)

    def _pump(
        self, source: socket.socket, target: socket.socket, both: tuple[socket.socket, socket.socket]
    ) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                if self._random.random() < self.rate:
                    self.cuts += 1
                    break
                target.sendall(data)
        for each in both:
            self._close(each)

    def _close(self, each: socket.socket) -> None:
        with contextlib.suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
        each.close()
        self._sockets.discard(each)
