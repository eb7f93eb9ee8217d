"""The folder in which data is made once."""

from pathlib import Path

import pytest

from bench.data.folder import data_folder, made, need_room


def test_data_is_made_once_and_all_or_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACCEL_BENCH_DATA", str(tmp_path))
    assert data_folder() == tmp_path

    def fail(path: Path) -> None:
        path.write_text("half")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        made("a/b", fail)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
    first = made("a/b", lambda path: path.write_text("whole"))
    assert made("a/b", fail) == first
    assert first.read_text() == "whole"


def test_a_disk_that_is_too_small_is_said_beforehand(tmp_path: Path) -> None:
    need_room(tmp_path, 1)
    with pytest.raises(SystemExit, match="ACCEL_BENCH_DATA names another folder"):
        need_room(tmp_path, 1 << 60)
