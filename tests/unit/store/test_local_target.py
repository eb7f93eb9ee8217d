from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from accel.errors import AccelError, StoreError
from accel.store import local_store as local_target
from accel.store.local_store import copy_bytes, write_beside


def test_the_name_is_given_at_the_end(tmp_path: Path) -> None:
    target = tmp_path / "a"
    target.write_bytes(b"old")
    with write_beside(str(target)) as file:
        file.write(b"new")
        assert target.read_bytes() == b"old"
        assert len(list(tmp_path.iterdir())) == 2
    assert target.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [target]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, AccelError])
def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path: Path, error: type[BaseException]) -> None:
    target = tmp_path / "a"
    target.write_bytes(b"old")
    with pytest.raises(error), write_beside(str(target)) as file:
        file.write(b"new")
        raise error("no")
    assert target.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [target]


def test_a_check_that_fails_leaves_the_old_file(tmp_path: Path) -> None:
    target = tmp_path / "a"
    target.write_bytes(b"old")

    def check() -> None:
        assert target.read_bytes() == b"old"
        raise AccelError("changed")

    with pytest.raises(AccelError, match="changed"), write_beside(str(target), check=check) as file:
        file.write(b"new")
    assert target.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [target]


@pytest.mark.parametrize("mode", [0o640, 0o2640], ids=oct)
def test_mode_is_taken_over(tmp_path: Path, mode: int) -> None:
    target = tmp_path / "a"
    target.write_bytes(b"old")
    target.chmod(mode)
    with write_beside(str(target), like=os.stat(target)) as file:
        file.write(b"new")
    assert stat.S_IMODE(target.stat().st_mode) == mode


@pytest.mark.parametrize("target", ["missing/a", "."], ids=["no directory", "a directory"])
def test_what_cannot_be_written_is_a_store_error(tmp_path: Path, target: str) -> None:
    with pytest.raises(StoreError), write_beside(str(tmp_path / target)):
        raise RuntimeError("unreachable")
    assert list(tmp_path.iterdir()) == []


def test_a_name_that_leaves_no_room_for_a_longer_one(tmp_path: Path) -> None:
    target = tmp_path / ("n" * 250)
    with write_beside(str(target)) as file:
        file.write(b"new")
    assert target.read_bytes() == b"new"


@pytest.mark.skipif(sys.platform == "win32", reason="has no limit of a file's size")
def test_what_finds_room_only_in_part_is_not_taken_for_written(tmp_path: Path) -> None:
    target = tmp_path / "a"
    script = f"""
import resource
from accel.errors import StoreError
from accel.store.local_store import write_beside
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
try:
    with write_beside({str(target)!r}) as file:
        file.write(bytes(3 << 19))
except StoreError as error:
    print(error.message)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], timeout=60, check=True, capture_output=True, text=True
    )
    assert done.stdout == "File too large\n"
    assert list(tmp_path.iterdir()) == []


STEPS = ("open", "write", "fsync", "check", "replace", "after")


@pytest.mark.parametrize("step", STEPS)
def test_killed_at_any_step_there_is_the_old_file_or_the_new(tmp_path: Path, step: str) -> None:
    target = tmp_path / "a"
    target.write_bytes(b"old")
    script = f"""
import os, signal
from accel.store.local_store import write_beside
def die(*args): os.kill(os.getpid(), signal.SIGKILL)
step = {step!r}
if step == "fsync": os.fsync = die
if step == "replace": os.replace = die
with write_beside({str(target)!r}, check=die if step == "check" else None) as file:
    if step == "open": die()
    file.write(b"ne")
    if step == "write": die()
    file.write(b"w")
die()
"""
    done = subprocess.run([sys.executable, "-c", script], timeout=60, check=False)
    assert done.returncode == -9
    assert target.read_bytes() == (b"new" if step == "after" else b"old")
    rest = [path.name for path in tmp_path.iterdir() if path != target]
    assert len(rest) == (0 if step == "after" else 1)
    assert all(name.startswith(".a.") and name.endswith(".part") for name in rest)


@pytest.mark.parametrize("way", ["kernel", "blocks"])
def test_bytes_are_copied_from_the_front(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    monkeypatch.setattr(local_target, "_BLOCK", 1000)
    if way == "blocks":

        def refuse(*args: object, **more: object) -> int:
            raise OSError(errno.EXDEV, "no")

        monkeypatch.setattr(os, "copy_file_range", refuse)
    data = bytes(range(256)) * 20
    (tmp_path / "a").write_bytes(data)
    told: list[int] = []
    with open(tmp_path / "a", "rb") as source, open(tmp_path / "b", "wb") as target:
        copy_bytes(source.fileno(), target.fileno(), length=4321, note=told.append)
    assert (tmp_path / "b").read_bytes() == data[:4321]
    assert sum(told) == 4321
    with (
        open(tmp_path / "a", "rb") as source,
        open(tmp_path / "b", "wb") as target,
        pytest.raises(OSError, match="shorter"),
    ):
        copy_bytes(source.fileno(), target.fileno(), length=len(data) + 1, note=told.append)


@pytest.mark.parametrize("told", [True, False])
def test_what_was_private_stays_so(tmp_path: Path, told: bool) -> None:
    target = tmp_path / "a"
    target.write_bytes(b"old")
    target.chmod(0o640)
    with write_beside(str(target), like=os.stat(target) if told else None) as file:
        file.write(b"new")
        assert stat.S_IMODE(os.fstat(file.fileno()).st_mode) == 0o600
    assert stat.S_IMODE(target.stat().st_mode) == 0o640
    assert target.read_bytes() == b"new"
