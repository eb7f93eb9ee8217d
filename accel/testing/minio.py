"""A real MinIO for tests and benchmarks: found, or built by Go once, then started on a free port.

`python -m accel.testing.minio` prints the path of the binary, building it first where there is none.
"""

from __future__ import annotations

import os
import pathlib
import sys
import tempfile
from typing import Self

from accel.testing.programs import Program, built_by_go, cached, found
from accel.testing.s3 import S3Admin

__all__ = ["MINIO_VERSION", "Minio", "find_minio", "install_minio"]

MINIO_VERSION = "v0.0.0-20260212201848-7aac2a2c5b7c"
"""The pinned module version of github.com/minio/minio."""


def _cached() -> pathlib.Path:
    return cached(f"minio-{MINIO_VERSION}")


def find_minio() -> pathlib.Path | None:
    """The binary: from PATH, else from the cache of tools; None where there is none."""
    return found("minio", _cached())


def install_minio() -> pathlib.Path:
    """Find the binary, or build it with Go into the cache that all checkouts share.

    Raises
    ------
    FileNotFoundError
        When there is neither a MinIO nor a Go to build it with, or the build fails.
    """
    return find_minio() or built_by_go(
        "github.com/minio/minio", MINIO_VERSION, target=_cached(), takes="about three minutes"
    )


class Minio(S3Admin):
    """A MinIO server over a directory of its own, as a context manager.

    Parameters
    ----------
    binary : path
        What `install_minio` returned.
    """

    kind = "minio"

    def __init__(self, binary: str | os.PathLike[str]) -> None:
        super().__init__()
        self.binary = os.fspath(binary)
        self._running: Program | None = None
        self._data: tempfile.TemporaryDirectory[str] | None = None

    def __enter__(self) -> Self:
        self._data = tempfile.TemporaryDirectory(prefix="accel-minio-")
        settings = {
            "MINIO_ROOT_USER": self.access_key,
            "MINIO_ROOT_PASSWORD": self.secret_key,
            "MINIO_BROWSER": "off",
            "MINIO_UPDATE": "off",
            "MINIO_DOMAIN": "localhost",
        }
        try:
            # A signed request: the health checks say yes before the keys are known.
            self._running = Program.start(self._command, lambda _: self.list_buckets(), environment=settings)
        except BaseException:
            self._data.cleanup()
            raise
        return self

    def __exit__(self, *failure: object) -> None:
        if self._running is not None:
            self._running.end()
        if self._data is not None:
            self._data.cleanup()

    def _command(self, port: int) -> list[str]:
        self.url = f"http://127.0.0.1:{port}"
        data = "" if self._data is None else self._data.name
        return [self.binary, "server", "--quiet", "--address", f"127.0.0.1:{port}", data]


if __name__ == "__main__":
    try:
        print(install_minio())
    except FileNotFoundError as missing:
        sys.exit(f"no MinIO: {missing}")
