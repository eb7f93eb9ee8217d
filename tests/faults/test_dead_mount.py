"""A file system whose server is gone: calls that name it never return. Everything else goes on."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import accel
from accel.testing import DictStore, Layout, table, write_file

ROWS = 200_000
# An event loop has 32 threads of its own at most.
SCANS = 40
PATIENCE = 20


@pytest.fixture
def dead(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[threading.Event, threading.Event]]:
    """Is set when a call waits for what is below /dead; to be set for it to go on."""
    waits, release = threading.Event(), threading.Event()

    def late(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(path: Any, *args: Any, **kwargs: Any) -> Any:
            if str(path).startswith("/dead"):
                waits.set()
                release.wait()
            return real(path, *args, **kwargs)

        return call

    for name in ("open", "stat", "lstat", "scandir", "listdir"):
        monkeypatch.setattr(os, name, late(getattr(os, name)))
    yield waits, release
    release.set()


def in_thread(call: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    return thread


@pytest.mark.parametrize("source", ["/dead/f.parquet", "/dead/", "/dead/*.parquet"])
def test_scans_of_it_hold_up_no_other(
    dead: tuple[threading.Event, threading.Event], source: str, tmp_path: Path
) -> None:
    blob = write_file(
        table(key=pa.array(range(ROWS)), value=pa.array(np.random.default_rng(0).random(ROWS))),
        Layout(group_rows=ROWS, page_rows=20_000, page_index=True, codec="none"),
    )
    (tmp_path / "f").write_bytes(blob)
    told: list[str] = []
    rows: list[int] = []

    def stuck() -> None:
        try:
            accel.scan(source).to_table()
        except accel.AccelError as error:
            told.append(type(error).__name__)

    def alive() -> None:
        for path, store in (("f", DictStore({"f": blob})), (str(tmp_path / "f"), None)):
            cache = accel.Cache(data=0, disk=None if store else tmp_path / "cache")
            rows.append(accel.scan(path, store=store, cache=cache).to_table().num_rows)

    waiting = [in_thread(stuck) for _ in range(SCANS)]
    waits, release = dead
    assert waits.wait(PATIENCE)
    in_thread(alive).join(PATIENCE)
    assert rows == [ROWS, ROWS]
    assert told == []
    assert all(thread.is_alive() for thread in waiting)
    release.set()
    for thread in waiting:
        thread.join(PATIENCE)
    assert told == ["ObjectNotFoundError"] * SCANS
