"""A Redis server of its own, on a free port of the loopback, without persistence and with a password."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Mapping
from typing import Self

from tests.support.programs import Program

__all__ = ["RedisServer", "find_redis"]


def find_redis() -> str | None:
    """Find the binary of the server on PATH; None where there is none (Debian has it as `redis-server`)."""
    return shutil.which("redis-server")


class RedisServer:
    """A server, as a context manager. What it holds is gone when it ends, also when it is started again.

    Parameters
    ----------
    binary : str
        What `find_redis` returned.
    password : str
    settings : mapping, optional
        More settings of its configuration file.
    """

    def __init__(
        self,
        binary: str,
        *,
        password: str = "redis-test-password",
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self._binary = binary
        self.password = password
        self._settings = settings or {}
        self.port = 0
        self._running: Program | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *failure: object) -> None:
        self.end()

    def url(self, prefix: str, *, password: str | None = None, **settings: object) -> str:
        """Return the URL of a prefix in its first database."""
        query = "&".join(f"{name}={value}" for name, value in settings.items())
        secret = self.password if password is None else password
        return f"redis://:{secret}@127.0.0.1:{self.port}/0/{prefix}" + (f"?{query}" if query else "")

    def start(self) -> None:
        """Start it; the second time on the same port."""
        before = self.port

        def command(port: int) -> list[str]:
            self.port = before or port
            options = {"port": self.port, "bind": "127.0.0.1", "requirepass": self.password}
            quiet = {"save": "", "appendonly": "no", "daemonize": "no", "enable-debug-command": "yes"}
            return [
                self._binary,
                *(
                    part
                    for name, value in {**options, **quiet, **self._settings}.items()
                    for part in (f"--{name}", str(value))
                ),
            ]

        self._running = Program.start(command, lambda _: self.ask("PING"))

    def end(self) -> None:
        """End it, as a crash would: nothing is written."""
        if self._running is not None:
            self._running.end()
            self._running = None

    def signal(self, number: int) -> None:
        """Send a signal to it."""
        if self._running is not None:
            self._running.signal(number)

    def ask(self, *command: str | bytes) -> bytes:
        """Send a command over a connection of its own, and return the first bytes of the answer; OSError
        where it is refused."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=5) as connection:
            for words in (("AUTH", self.password), command):
                parts = [word.encode() if isinstance(word, str) else word for word in words]
                connection.sendall(
                    b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%b\r\n" % (len(p), p) for p in parts)
                )
                answer = connection.recv(1 << 16)
                if not answer or answer.startswith(b"-"):
                    raise OSError(f"Redis answered {answer!r}")
            return answer
