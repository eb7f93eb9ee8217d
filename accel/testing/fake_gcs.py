"""fake-gcs-server, an emulator of Google Cloud Storage, for tests: found, or built by Go once.

`python -m accel.testing.fake_gcs` prints the path of the binary, building it first where there is none.
"""

from __future__ import annotations

import pathlib
import sys

from accel.testing.programs import built_by_go, cached, found

__all__ = ["FAKE_GCS_VERSION", "find_fake_gcs", "install_fake_gcs"]

FAKE_GCS_VERSION = "v1.56.1"
"""The pinned module version of github.com/fsouza/fake-gcs-server."""
_PATIENCE = 150.0
"""Seconds that the build may take, within the time that a test has."""


def _cached() -> pathlib.Path:
    return cached(f"fake-gcs-server-{FAKE_GCS_VERSION}")


def find_fake_gcs() -> pathlib.Path | None:
    """The binary: from PATH, else from the cache of tools; None where there is none."""
    return found("fake-gcs-server", _cached())


def install_fake_gcs() -> pathlib.Path:
    """Find the binary, or build it with Go into the cache that all checkouts share.

    Raises
    ------
    FileNotFoundError
        When there is neither the server nor a Go to build it with, or the build fails or takes too long.
    """
    return find_fake_gcs() or built_by_go(
        "github.com/fsouza/fake-gcs-server",
        FAKE_GCS_VERSION,
        target=_cached(),
        takes="about a minute",
        patience=_PATIENCE,
    )


if __name__ == "__main__":
    try:
        print(install_fake_gcs())
    except FileNotFoundError as missing:
        sys.exit(f"no fake-gcs-server: {missing}")
