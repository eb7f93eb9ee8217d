"""Azurite, Microsoft's emulator of Azure Blob Storage: found, or installed by npm once, then started on a
free port."""

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

from tests.support.programs import Program, cached_path, find_program

__all__ = ["KEY", "Azurite", "install_azurite"]

_VERSION = "3.37.0"
"""The pinned version of npm's package azurite."""
ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""The key of the account that every emulator has; it is no secret."""
_API = "2021-12-02"
_INSTALL_SECONDS = 150.0
"""The installation may take so long, which is less than a test may take."""


def install_azurite() -> pathlib.Path:
    """Find the program, or install it with npm into the cache that all checkouts share.

    Raises
    ------
    FileNotFoundError
        When there is neither an Azurite nor an npm to install it with, or that fails or takes too long.
    """
    target = cached_path(f"azurite-{_VERSION}")
    installed = target / "node_modules" / ".bin" / "azurite-blob"
    found = find_program("azurite-blob", installed)
    if found is not None:
        return found
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        raise FileNotFoundError("no azurite-blob on PATH, and no npm and node to install it with")
    target.parent.mkdir(parents=True, exist_ok=True)
    print(f"installing Azurite {_VERSION} once (about a minute) into {target.parent}", file=sys.stderr)
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        command = [npm, "install", "--no-fund", "--no-audit", "--ignore-scripts", "--prefix", scratch]
        # Without a network, npm fails soon.
        command += ["--fetch-retries", "1", "--fetch-timeout", "20000", f"azurite@{_VERSION}"]
        try:
            done = subprocess.run(command, stdout=sys.stderr, check=False, timeout=_INSTALL_SECONDS)
        except subprocess.TimeoutExpired:
            raise FileNotFoundError(f"npm install azurite@{_VERSION} takes too long") from None
        if done.returncode:
            raise FileNotFoundError(f"npm install azurite@{_VERSION} ended with status {done.returncode}")
        # A rename, so that two installations at once do not see half of each other's files.
        if not target.exists():
            os.rename(scratch, target)
            os.mkdir(scratch)  # for the end of the block to remove
    return installed


class Azurite:
    """An Azurite that stores its blobs in memory, as a context manager.

    Parameters
    ----------
    program : path
        What `install_azurite` returned.
    """

    def __init__(self, program: str | os.PathLike[str]) -> None:
        self.program = os.fspath(program)
        self.endpoint = ""
        """The URL of the account: "http://127.0.0.1:10000/devstoreaccount1"."""
        self._running: Program | None = None

    def __enter__(self) -> Self:
        self._running = Program.start(self._command, self._connect)
        return self

    def __exit__(self, *failure: object) -> None:
        if self._running is not None:
            self._running.end()

    def storage_options(self) -> dict[str, str]:
        """Return obstore's options for the account."""
        return {"account_name": ACCOUNT, "account_key": KEY, "endpoint": self.endpoint}

    def create_container(self, name: str) -> None:
        """Make a container."""
        date = formatdate(usegmt=True)
        empty = "\n" * 12  # headers that this request lacks
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
