"""Microsoft's emulator of Azure Blob Storage for tests: found, or installed by npm once, then started on a free port.

`python -m accel.testing.azurite` prints the path of the program, installing it first where there is none.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import urllib.request
from email.utils import formatdate
from typing import Self

from accel.testing.programs import Program, cached

__all__ = ["AZURITE_VERSION", "Azurite", "find_azurite", "install_azurite"]

AZURITE_VERSION = "3.37.0"
"""The pinned version of npm's package azurite."""
ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""The account that every emulator has, and its key, which is no secret."""
_API = "2021-12-02"
_PATIENCE = 150.0
"""Seconds that the installation may take, within the time that a test has."""


def _cached() -> pathlib.Path:
    return cached(f"azurite-{AZURITE_VERSION}")


def find_azurite() -> pathlib.Path | None:
    """The program: from PATH, else from the cache of tools; None where there is none."""
    on_path = shutil.which("azurite-blob")
    if on_path:
        return pathlib.Path(on_path)
    program = _cached() / "node_modules" / ".bin" / "azurite-blob"
    return program if program.exists() else None


def install_azurite() -> pathlib.Path:
    """Find the program, or install it with npm into the cache that all checkouts share.

    Raises
    ------
    FileNotFoundError
        When there is neither an Azurite nor an npm to install it with, or that fails or takes too long.
    """
    found = find_azurite()
    if found is not None:
        return found
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        raise FileNotFoundError("no azurite-blob on PATH, and no npm and node to install it with")
    target = _cached()
    target.parent.mkdir(parents=True, exist_ok=True)
    print(f"installing Azurite {AZURITE_VERSION} once (about a minute) into {target.parent}", file=sys.stderr)
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        command = [npm, "install", "--no-fund", "--no-audit", "--ignore-scripts", "--prefix", scratch]
        # Where there is no network that is soon said.
        command += ["--fetch-retries", "1", "--fetch-timeout", "20000", f"azurite@{AZURITE_VERSION}"]
        try:
            done = subprocess.run(command, stdout=sys.stderr, check=False, timeout=_PATIENCE)
        except subprocess.TimeoutExpired:
            raise FileNotFoundError(f"npm install azurite@{AZURITE_VERSION} takes too long") from None
        if done.returncode:
            raise FileNotFoundError(
                f"npm install azurite@{AZURITE_VERSION} ended with status {done.returncode}"
            )
        # A rename, so that two installations at once do not see half of each other's files.
        if not target.exists():
            os.rename(scratch, target)
            os.mkdir(scratch)  # for the end of the block to remove
    return target / "node_modules" / ".bin" / "azurite-blob"


class Azurite:
    """An Azurite that keeps its blobs in memory, as a context manager.

    Parameters
    ----------
    program : path
        What `install_azurite` returned.
    """

    def __init__(self, program: str | os.PathLike[str]) -> None:
        self.program = os.fspath(program)
        self.endpoint = ""
        """Of the account: "http://127.0.0.1:10000/devstoreaccount1"."""
        self._running: Program | None = None

    def __enter__(self) -> Self:
        self._running = Program.start(self._command, self._connect)
        return self

    def __exit__(self, *failure: object) -> None:
        if self._running is not None:
            self._running.end()

    def storage_options(self) -> dict[str, str]:
        """Obstore's options for the account."""
        return {"account_name": ACCOUNT, "account_key": KEY, "endpoint": self.endpoint}

    def create_container(self, name: str) -> None:
        """Make a container."""
        date = formatdate(usegmt=True)
        empty = "\n" * 12  # headers that this request has not
        lines = f"PUT{empty}x-ms-date:{date}\nx-ms-version:{_API}\n"
        text = f"{lines}/{ACCOUNT}/{ACCOUNT}/{name}\nrestype:container"
        signature = base64.b64encode(
            hmac.new(base64.b64decode(KEY), text.encode(), hashlib.sha256).digest()
        ).decode()
        headers = {
            "x-ms-date": date,
            "x-ms-version": _API,
            "Authorization": f"SharedKey {ACCOUNT}:{signature}",
            "Content-Length": "0",
        }
        url = f"{self.endpoint}/{name}?restype=container"
        request = urllib.request.Request(url, method="PUT", headers=headers)
        with urllib.request.urlopen(request, timeout=60):
            pass

    def _command(self, port: int) -> list[str]:
        self.endpoint = f"http://127.0.0.1:{port}/{ACCOUNT}"
        command = [self.program, "--blobHost", "127.0.0.1", "--blobPort", str(port), "--silent"]
        return [*command, "--inMemoryPersistence", "--disableTelemetry", "--skipApiVersionCheck"]

    def _connect(self, port: int) -> None:
        socket.create_connection(("127.0.0.1", port), 1.0).close()


if __name__ == "__main__":
    try:
        print(install_azurite())
    except FileNotFoundError as missing:
        sys.exit(f"no Azurite: {missing}")
