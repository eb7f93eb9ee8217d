"""A private PostgreSQL on the loopback: a new cluster in a temporary directory, which is gone with the
server."""

from __future__ import annotations

import os
import pathlib
import pwd
import secrets
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Sequence
from types import TracebackType
from typing import Self
from urllib.parse import quote

from tests.support.programs import Program

__all__ = ["Postgres", "find_postgres"]

_INSTALLED = "/usr/lib/postgresql"
"""Where Debian and Ubuntu put the server's programs, a directory for each version: they are not on PATH."""
_SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    # A test that loses the power starts again.
    "fsync": "off",
    "max_connections": "60",
    "shared_buffers": "64MB",
}


def find_postgres() -> pathlib.Path | None:
    """Find the directory of the server's programs; None where there is none."""
    on_path = shutil.which("initdb")
    if on_path:
        return pathlib.Path(on_path).resolve().parent
    found = pathlib.Path(_INSTALLED).glob("*/bin/initdb")
    newest = max(found, key=lambda path: int(path.parts[-3].partition(".")[0]), default=None)
    return None if newest is None else newest.parent


class Postgres:
    """A server, for the time of a `with`.

    Parameters
    ----------
    programs : Path
        As `find_postgres` returns it.
    """

    user = "accel"

    def __init__(self, programs: pathlib.Path) -> None:
        self._programs = programs
        # One that a URL has to quote.
        self.password = f"p/{secrets.token_hex(8)}@:#%"
        self._directory = ""
        self.port = 0
        self._program: Program | None = None

    def __enter__(self) -> Self:
        self._directory = tempfile.mkdtemp(prefix="accel-postgres-")
        data = self._data
        os.mkdir(data, 0o700)
        secret = pathlib.Path(self._directory, "password")
        secret.write_text(self.password)
        os.chmod(self._directory, 0o711)
        os.chmod(secret, 0o644)
        account = _account()
        if account is not None:
            os.chown(data, account.pw_uid, account.pw_gid)
        initdb = ["initdb", "-D", data, "-U", self.user, "-A", "scram-sha-256", f"--pwfile={secret}", "-N"]
        self._run([*initdb, "--encoding=UTF8", "--locale=C"])
        settings = [part for name, value in _SETTINGS.items() for part in ("-c", f"{name}={value}")]

        def command(port: int) -> Sequence[str]:
            self.port = port
            return self._as_account([self._path("postgres"), "-D", data, "-p", str(port), *settings])

        self._program = Program.start(command, self._ready)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        shutil.rmtree(self._directory, ignore_errors=True)

    def stop(self) -> None:
        """End the server, whoever is connected."""
        if self._program is not None:
            self._run(["pg_ctl", "stop", "-D", self._data, "-m", "fast", "-w"], check=False)
            self._program.end()
            self._program = None

    def url(self, database: str = "postgres", *, password: str | None = None) -> str:
        """Return the URL of a database."""
        secret = quote(self.password if password is None else password, safe="")
        return f"postgresql://{self.user}:{secret}@127.0.0.1:{self.port}/{database}"

    def new_database(self) -> str:
        """Make a database and return its URL."""
        import psycopg

        name = f"test_{secrets.token_hex(6)}"
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")
        return self.url(name)

    @property
    def _data(self) -> str:
        return os.path.join(self._directory, "data")

    def _path(self, name: str) -> str:
        return str(self._programs / name)

    def _run(self, command: Sequence[str], *, check: bool = True) -> None:
        name, *arguments = command
        whole = self._as_account([self._path(name), *arguments])
        done = subprocess.run(whole, capture_output=True, check=False, cwd="/", timeout=60)
        if check and done.returncode:
            raise RuntimeError(f"{name} ended with status {done.returncode}: {done.stderr.decode()[-500:]}")

    def _as_account(self, command: Sequence[str]) -> list[str]:
        account = _account()
        if account is None:
            return list(command)
        ids = ["--reuid", str(account.pw_uid), "--regid", str(account.pw_gid), "--clear-groups"]
        return ["setpriv", *ids, *command]

    def _ready(self, port: int) -> None:
        import psycopg

        with socket.create_connection(("127.0.0.1", port), 1):
            pass
        try:
            psycopg.connect(self.url(), connect_timeout=5).close()
        except psycopg.OperationalError as error:
            raise OSError(str(error)) from None


def _account() -> pwd.struct_passwd | None:
    """Who the server runs as: it refuses to run as root."""
    if os.geteuid():
        return None
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise RuntimeError("PostgreSQL does not run as root, and there is no other account")
