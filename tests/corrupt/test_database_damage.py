"""Damaged databases: the right rows and a warning, or an AccelError; never anything else.

Bytes of a file of SQLite are changed wherever they may be. In both dialects rows of the tables are changed as
SQL changes them, which no checksum of the database notices.
"""

from __future__ import annotations

import random
import sqlite3
import uuid
import warnings
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import accel
from accel.catalog.homes import sql_pages, sql_tables
from accel.catalog.homes.sqlite import SqliteDatabase
from accel.testing import DictStore, Layout, write_file
from tests.support.postgres import Postgres

FILES = 12
QUESTIONS = [None, "k = 512", "k >= 1115", "k < 0", "s = 'text 707'", "id = 77", "k = 213 OR s IS NULL"]
Damage = Callable[[random.Random, bytes], bytes]


def file(number: int) -> bytes:
    keys = np.arange(100 * number, 100 * number + 20)
    texts = pa.array([f"text {key}" if key % 5 else None for key in keys])
    ids = pa.array(np.arange(20) * FILES + number)
    return write_file(pa.table({"k": keys, "s": texts, "id": ids}), Layout(group_rows=10, page_rows=5))


@pytest.fixture(scope="module", autouse=True)
def _small_pages() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (("BOUNDS_ROWS", 2), ("PAGE_ROWS", 16), ("FEW_PAGES", 1)):
            patch.setattr(sql_pages, name, value)
        patch.setattr(sql_tables, "AT_ONCE", 5)
        yield


@pytest.fixture(scope="module")
def store() -> DictStore:
    return DictStore({f"t/{number:02}.parquet": file(number) for number in range(FILES)})


class Answers:
    """The right answers, read without an index; the files are cached, so that asking costs little."""

    def __init__(self, store: DictStore) -> None:
        self._store = store
        self._listings = random.Random(1)
        self._cache = accel.Cache(max_age=1e9)
        self.right = {where: self._rows(where, index=None)[0] for where in QUESTIONS}

    def _rows(self, where: str | None, **given: Any) -> tuple[list[Any], Any]:
        scan = accel.scan("t/", where, store=self._store, **({"cache": self._cache} | given))
        return scan.to_table().to_pylist(), scan.metrics

    def check(self, index: str, where: str | None) -> str:
        """Ask; what is not right must be a refusal. Returns how the plain scan took it."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            # Each way with a cache of its own: no head is remembered.
            found, metrics = self._rows(where, index=index, cache=None)
            assert found == self.right[where], where
            outcome = "passed over" if metrics.indexes_ignored else "used"
            if outcome == "passed over":
                assert any("not used" in text or "no index" in text for text in metrics.warnings)
            strict: dict[str, Any] = {
                "options": accel.Options(strict=True),
                "listing": self._listings.choice(["store", "index"]),
            }
            try:
                assert self._rows(where, index=index, cache=None, **strict)[0] == self.right[where], where
            except accel.AccelError:
                assert strict["listing"] == "index" or outcome == "passed over"
        return outcome


@pytest.fixture(scope="module")
def answers(store: DictStore) -> Answers:
    return Answers(store)


# -- bytes of a file ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def good(store: DictStore, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("good") / "index.db"
    accel.build_index("t/", to=f"sqlite:///{path}", indexes={"id": "keys"}, store=store)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return path.read_bytes()


def flipped(r: random.Random, data: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(r.choice([1, 4, 100])):
        changed[r.randrange(len(data))] ^= r.randrange(1, 256)
    return bytes(changed)


def zeroed(r: random.Random, data: bytes) -> bytes:
    start = r.randrange(len(data))
    end = min(len(data), start + r.choice([16, 4096, 30_000]))
    return data[:start] + bytes(end - start) + data[end:]


def swapped(r: random.Random, data: bytes) -> bytes:
    """Two pages of the file, or of tables that lie in them, have changed their places."""
    pages = [data[start : start + 4096] for start in range(0, len(data), 4096)]
    a, b = r.sample(range(len(pages)), 2)
    pages[a], pages[b] = pages[b], pages[a]
    return b"".join(pages)


def cut(r: random.Random, data: bytes) -> bytes:
    return data[: r.randrange(len(data))]


def other(r: random.Random, data: bytes) -> bytes:
    return r.choice([b"", b"SQLite format 3\0", r.randbytes(len(data)), bytes(len(data))])


@pytest.mark.parametrize("damage", [flipped, zeroed, swapped, cut, other])
def test_damaged_files(good: bytes, answers: Answers, tmp_path: Path, damage: Damage) -> None:
    r = random.Random(damage.__name__)
    outcomes = []
    for number in range(5):
        path = tmp_path / f"{number}.db"
        path.write_bytes(damage(r, good))
        for where in r.sample(QUESTIONS, 1):
            outcomes.append(answers.check(f"sqlite:///{path}", where))
    assert "passed over" in outcomes


# -- rows --------------------------------------------------------------------------------------------


class Tables:
    """The SQL tables of an index, changed behind its back."""

    def __init__(self, index: str) -> None:
        self.index = index
        self._name = index.partition("#")[2] or "accel"

    def run(self, statement: str, *parameters: Any) -> int:
        """Run a statement about the tables {head}, {objects} and {pages}; return how many rows it changed."""
        names = {table: f"{self._name}_{table}" for table in ("head", "objects", "pages")}
        statement = statement.format(**names)
        if self.index.startswith("sqlite"):
            with closing(sqlite3.connect(SqliteDatabase.at(self.index).path)) as connection, connection:
                return connection.execute(statement, parameters).rowcount
        import psycopg

        with psycopg.connect(self.index.partition("#")[0]) as connection:
            return connection.execute(statement.replace("?", "%s"), parameters).rowcount


@pytest.fixture(params=["sqlite", "postgresql"])
def tables(request: pytest.FixtureRequest, good: bytes, store: DictStore, tmp_path: Path) -> Tables:
    if request.param == "sqlite":
        (tmp_path / "index.db").write_bytes(good)
        return Tables(f"sqlite:///{tmp_path}/index.db")
    server: Postgres = request.getfixturevalue("postgres")
    index = f"{server.url()}#d{uuid.uuid4().hex[:16]}"
    accel.build_index("t/", to=index, indexes={"id": "keys"}, store=store)
    return Tables(index)


# The rows of which each change is tried one after the other, and what it does to one; pages of keys, of
# bounds and of files.
CHANGES = {
    "gone": "DELETE FROM {pages} WHERE object = ? AND part = ? AND number = ?",
    "no floor": "UPDATE {pages} SET floor = NULL WHERE object = ? AND part = ? AND number = ?",
    "no reach": "UPDATE {pages} SET reach = NULL WHERE object = ? AND part = ? AND number = ?",
    "a high floor": "UPDATE {pages} SET floor = most WHERE object = ? AND part = ? AND number = ?",
    "a low reach": "UPDATE {pages} SET reach = floor WHERE object = ? AND part = ? AND number = ?",
    "a low most": "UPDATE {pages} SET most = floor WHERE object = ? AND part = ? AND number = ?",
    "another number": "UPDATE {pages} SET number = number + 1000 WHERE object = ? AND part = ? AND number = ?",
    "another digest": "UPDATE {pages} SET digest = seal WHERE object = ? AND part = ? AND number = ?",
    "no content": "UPDATE {pages} SET content = seal WHERE object = ? AND part = ? AND number = ?",
}


@pytest.mark.parametrize("change", CHANGES)
def test_damaged_rows(tables: Tables, store: DictStore, answers: Answers, change: str) -> None:
    r = random.Random(change)
    outcomes = []
    for _ in range(2):
        index = Tables(tables.index)
        # Objects are counted from 1: files, bounds, keys.
        place = (r.randrange(1, 4), r.randrange(4), r.randrange(8))
        changed = index.run(CHANGES[change], *place)
        for where in r.sample(QUESTIONS, 2):
            outcomes.append(answers.check(index.index, where))
        assert changed in (0, 1)
    assert set(outcomes) <= {"used", "passed over"}


def test_all_rows_of_bounds_that_claim_nothing(tables: Tables, answers: Answers) -> None:
    """A change of all rows alike: no row contradicts another."""
    tables.run("UPDATE {pages} SET most = floor, reach = floor WHERE floor IS NOT NULL")
    assert {answers.check(tables.index, where) for where in ("k = 512", "id = 77")} == {"passed over"}
    tables.run("DELETE FROM {pages} WHERE floor IS NOT NULL")
    assert {answers.check(tables.index, where) for where in ("k = 512", "id = 77")} == {"passed over"}


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE {head} SET content = version",
        "UPDATE {head} SET version = 'x'",
        "DELETE FROM {head}",
        "DELETE FROM {objects}",
        "DROP TABLE {pages}",
        "DROP TABLE {head}",
    ],
)
def test_damaged_heads(tables: Tables, store: DictStore, answers: Answers, statement: str) -> None:
    if "content" in statement and tables.index.startswith("postgresql"):
        statement = "UPDATE {head} SET content = 'x'"
    tables.run(statement)
    outcomes = {answers.check(tables.index, where) for where in ("k = 512", None, "id = 77")}
    # Names of objects are only needed to remove them, and a version names nothing.
    harmless = "objects" in statement or "version =" in statement
    assert outcomes == {"used" if harmless else "passed over"}
    try:
        accel.refresh_index(tables.index, store=store)
    except accel.AccelError:
        assert not harmless


def test_pages_of_another_index(tables: Tables, store: DictStore, answers: Answers) -> None:
    """A backup of a table, restored over a newer one: the head names objects that are others by now."""
    old = tables.run("UPDATE {objects} SET name = name || 'x'")
    assert old == 3
    tables.run("UPDATE {pages} SET object = -object")
    tables.run("UPDATE {pages} SET object = 4 + object")
    assert {answers.check(tables.index, where) for where in ("k = 512", "id = 77")} == {"passed over"}
