"""Packages that cannot stand beside the others in one environment: each set in a folder of the cache of tools."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import tempfile

__all__ = ["find_packages", "install_packages", "tools"]


def tools() -> pathlib.Path:
    """The folder that all checkouts share."""
    cache = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    return pathlib.Path(cache) / "accel-tools"


def _folder(requirement: str) -> pathlib.Path:
    version = f"py{sys.version_info.major}{sys.version_info.minor}"
    return tools() / f"{requirement.replace('==', '-')}-{version}"


def find_packages(requirement: str) -> pathlib.Path | None:
    """The folder with "name==version" and what that needs; None when it is not installed yet."""
    folder = _folder(requirement)
    return folder if folder.exists() else None


def install_packages(requirement: str) -> pathlib.Path:
    """Find that folder, or let pip fill it.

    Raises
    ------
    FileNotFoundError
        pip failed: mostly, the package index is out of reach.
    """
    found = find_packages(requirement)
    if found is not None:
        return found
    folder = _folder(requirement)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        target = pathlib.Path(scratch) / "packages"
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(target), requirement]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise FileNotFoundError(f"pip install {requirement}: {done.stderr.strip()[-500:]}")
        try:
            # A rename, so that two installations at once do not see half of each other's.
            os.replace(target, folder)
        except OSError:
            if not folder.exists():
                raise
    return folder
