"""A cache directory to which anything happens between scans: the rows are those of the files, and nothing is
raised."""

from __future__ import annotations

import os
import random
import shutil
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest

import accel
from accel.testing import Layout, write_file

SEED = 20_261_121
ROWS = 60
NAMES = ("a.parquet", "b.parquet", "c.parquet")
QUESTIONS: dict[str | None, Callable[[int], bool]] = {
    None: lambda key: True,
    "key >= 20 AND key < 31": lambda key: 20 <= key < 31,
    "key = 59": lambda key: key == 59,
    "key IN (0, 7, 99)": lambda key: key in (0, 7, 99),
}


def data_of(version: int) -> bytes:
    """Files of all versions are of one size, as far as that can be."""
    keys = pa.array(range(ROWS), pa.int64())
    table = pa.Table.from_arrays([keys, pa.array([version] * ROWS, pa.int64())], names=["key", "version"])
    return write_file(table, Layout(group_rows=20, page_rows=5))


class Folder:
    """Files, their versions, and a cache directory beside them."""

    def __init__(self, folder: Path, rng: random.Random) -> None:
        self.rng = rng
        self.files = {name: folder / name for name in NAMES}
        self.versions = dict.fromkeys(NAMES, 0)
        self.where = folder / "cache"
        self.last = 0
        for name in NAMES:
            self.replace(name)

    def replace(self, name: str) -> None:
        """A new version takes the place of the file."""
        self.last += 1
        self.versions[name] = self.last
        beside = self.files[name].with_suffix(".new")
        beside.write_bytes(data_of(self.last))
        os.replace(beside, self.files[name])

    def check(self, cache: accel.Cache) -> str | None:
        """One question of all files."""
        where = self.rng.choice(list(QUESTIONS))
        wanted = [
            {"key": key, "version": self.versions[name]}
            for name in NAMES
            for key in range(ROWS)
            if QUESTIONS[where](key)
        ]
        scan = accel.scan([str(path) for path in self.files.values()], where, cache=cache)
        found = scan.to_table().to_pylist()
        return None if found == wanted else f"{where}: {found[:3]} of {len(found)}, due are {len(wanted)}"

    def spoil(self) -> str:
        """Do something to the directory."""
        rng = self.rng
        entries = sorted(self.where.glob("*.meta")) if self.where.is_dir() else []
        deed = rng.choice(
            ["flip", "flip", "flips", "cut", "more", "swap", "copy", "drop", "fill", "rename", "folder"]
        )
        if not entries:
            return "none"
        one, other = rng.choice(entries), rng.choice(entries)
        if not one.is_file() or not other.is_file():
            shutil.rmtree(one if one.is_dir() else other)
            return "folder away"
        data = bytearray(one.read_bytes())
        if deed in ("flip", "flips"):
            for _ in range(1 if deed == "flip" else 9):
                if data:
                    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
            one.write_bytes(data)
        elif deed == "cut":
            one.write_bytes(data[: rng.randrange(len(data) + 1)])
        elif deed == "more":
            one.write_bytes(data + bytes(rng.randrange(1, 9)))
        elif deed == "swap":
            one.write_bytes(other.read_bytes())
            other.write_bytes(data)
        elif deed == "copy":
            other.write_bytes(data)
        elif deed == "drop":
            one.unlink()
        elif deed == "fill":
            one.write_bytes(bytes(rng.randrange(256) for _ in range(len(data))))
        elif deed == "rename":
            one.rename(one.with_name(f"{rng.getrandbits(256):064x}.meta"))
        else:
            one.unlink()
            one.mkdir()
        return deed


@pytest.mark.timeout(300)
@pytest.mark.parametrize("turn", range(3))
def test_whatever_happens_to_the_entries(tmp_path: Path, turn: int, large: bool) -> None:
    folder = Folder(tmp_path, random.Random(SEED + turn))
    for _ in range(400 if large else 40):
        deeds = [folder.spoil() for _ in range(folder.rng.choice([0, 1, 1, 3]))]
        if folder.rng.random() < 0.3:
            folder.replace(folder.rng.choice(NAMES))
            deeds.append("replaced")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            wrong = folder.check(accel.Cache(disk=folder.where, max_age=0))
        assert wrong is None, (deeds, wrong)
    assert list(folder.where.glob("*.meta"))


@pytest.mark.timeout(300)
def test_whatever_happens_to_the_entries_while_others_read_and_write_them(
    tmp_path: Path, large: bool
) -> None:
    folder = Folder(tmp_path, random.Random(SEED))

    def reading(turn: int) -> list[str]:
        reader = Folder.__new__(Folder)
        reader.__dict__.update(folder.__dict__, rng=random.Random(turn))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = [reader.check(accel.Cache(disk=folder.where)) for _ in range(120 if large else 20)]
        return [wrong for wrong in found if wrong is not None]

    with ThreadPoolExecutor(4) as pool:
        running = [pool.submit(reading, turn) for turn in range(4)]
        while not all(each.done() for each in running):
            try:
                folder.spoil()
            except OSError:
                continue  # somebody else was quicker
        assert [wrong for each in running for wrong in each.result()] == []
