"""The folder in which data is made once."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

__all__ = ["data_folder", "made", "need_room"]

VERSION = "3"
"""Part of every path: raised when what is made changes."""


def data_folder() -> Path:
    """`ACCEL_BENCH_DATA`, else bench-data/ of the checkout."""
    chosen = os.environ.get("ACCEL_BENCH_DATA")
    return Path(chosen) if chosen else Path(__file__).resolve().parents[2] / "bench-data"


def made(name: str, make: Callable[[Path], None]) -> Path:
    """The file or folder of this name; `make` writes it where it does not exist yet, all or nothing."""
    path = data_folder() / f"v{VERSION}" / name
    if path.exists():
        return path
    print(f"making {name}", flush=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f"{path.name}.{os.getpid()}.unfinished")
    try:
        make(unfinished)
        os.replace(unfinished, path)
    finally:
        if unfinished.is_dir():
            shutil.rmtree(unfinished)
        else:
            unfinished.unlink(missing_ok=True)
    return path


def need_room(folder: Path, size: int) -> None:
    """End with what to do where a folder's disk has less than so many bytes free."""
    free = shutil.disk_usage(folder).free
    if free < size:
        raise SystemExit(
            f"making the data takes {size / 1e9:.1f} GB of disk for a while, and {folder} has {free / 1e9:.1f} GB free: "
            "ACCEL_BENCH_DATA names another folder"
        )
