"""The requests of scans over files with embedded indexes.

The file: 40,000 rows in 4 row groups, pages of 500 rows; `user` is a permutation, so that bounds say nothing;
`city` holds the even ones of 40 texts, and no statistics; the payload is what a wrong guess would cost.
"""

from __future__ import annotations

import pathlib
import warnings

import numpy as np
import pyarrow as pa
import pytest

import accel
from accel.format.embedded import Entry, parse_toc
from accel.indexes import ChunkValues, Evidence, IndexKind, LeafOp, LeafQuestion, Level
from accel.ranges import ByteRange, Kind, Suffix
from accel.testing import DictStore, Layout, RecordingStore, table, write_file

ROWS, GROUP, PAGE = 40_000, 10_000, 500
OPTIONS = accel.Options(tail_hint=256 * 1024, max_gap_bytes=0, probe_min_bytes=0)


@pytest.fixture(scope="module")
def rows() -> pa.Table:
    rng = np.random.default_rng(3)
    return table(
        user=pa.array(rng.permutation(ROWS).astype(np.int64) * 2),
        city=pa.array([f"city {2 * i:02d}" for i in rng.integers(0, 20, ROWS)]),
        note=pa.array(["".join(map(chr, 97 + rng.integers(0, 26, 12))) for _ in range(ROWS)]),
        pad=pa.array(rng.random(ROWS)),
    )


@pytest.fixture(scope="module")
def plain(rows: pa.Table) -> bytes:
    return write_file(
        rows, Layout(group_rows=GROUP, page_rows=PAGE, dictionary=False, statistics=["user", "pad"])
    )


def embedded(plain: bytes, folder: pathlib.Path, indexes: dict[str, object]) -> RecordingStore:
    (folder / "a.parquet").write_bytes(plain)
    accel.embed(str(folder / "a.parquet"), str(folder / "b.parquet"), indexes=indexes)
    return RecordingStore(DictStore({"f.parquet": (folder / "b.parquet").read_bytes()}))


def ask(store: RecordingStore, where: str, cache: accel.Cache, **keywords: object) -> accel.Scan:
    return accel.scan("f.parquet", where, store=store, cache=cache, options=OPTIONS, **keywords)  # type: ignore[arg-type]


@pytest.mark.parametrize("indexes", [{"city": ("distinct", "file")}, {"city": "distinct"}, {"city": "idx1"}])
def test_an_excluded_file_is_one_request_cold_and_none_warm(
    plain: bytes, tmp_path: pathlib.Path, indexes: dict[str, object]
) -> None:
    store = embedded(plain, tmp_path, indexes)
    keywords = {"embedded": {"city": "idx1"}} if indexes == {"city": "idx1"} else {}
    cache = accel.Cache()
    for where in ("city = 'city 07'", "city IN ('a', 'b')", "city = 'city 07' AND user > 100"):
        scan = ask(store, where, cache, **keywords)
        assert scan.to_table().num_rows == 0
        assert scan.metrics.row_groups.kept == 0
    assert [call.want for call in store.calls] == [Suffix(256 * 1024)]
    assert ask(store, "city = 'city 08'", cache, **keywords).count_rows() > 0


def test_an_unlabelled_index_is_not_guessed(plain: bytes, tmp_path: pathlib.Path) -> None:
    store = embedded(plain, tmp_path, {"city": "idx1"})
    labels = parse_footer_keys(store)
    assert labels["distinct_index_offset"].isdigit()
    stripped = store.inner.objects["f.parquet"].replace(b"accel.indexes", b"accel.another")  # type: ignore[attr-defined]
    bare = RecordingStore(DictStore({"f.parquet": stripped}))
    assert ask(bare, "city = 'city 07'", accel.Cache()).to_table().num_rows == 0
    assert bare.requests > 1
    bare.clear()
    scan = ask(bare, "city = 'city 07'", accel.Cache(), embedded={"city": "idx1"})
    assert scan.to_table().num_rows == 0
    assert bare.requests == 1


def parse_footer_keys(store: RecordingStore) -> dict[str, bytes]:
    from accel.format.footer import parse_footer

    data = store.inner.objects["f.parquet"]  # type: ignore[attr-defined]
    start = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    return dict(parse_footer(data[start:-8], file_size=len(data), footer_start=start).key_value)


def test_a_bitmap_lookup_reads_only_the_pages_that_hold_a_hit(
    rows: pa.Table, plain: bytes, tmp_path: pathlib.Path
) -> None:
    store = embedded(plain, tmp_path, {"user": "bitmap"})
    cache = accel.Cache(data=0)
    ask(store, "user = 1", cache).count_rows()
    for place in (5, 2 * GROUP + 3_456):
        key = rows.column("user")[place].as_py()
        scan = ask(store, f"user = {key}", cache)
        assert scan.to_table().to_pylist() == rows.slice(place, 1).to_pylist()
        assert scan.metrics.pages.kept == 4
        assert scan.metrics.rows.kept == PAGE
        assert scan.metrics.requests_by_kind[Kind.PAGE] == 4
    # Asked again, the index is there: one round trip, four pages.
    store.clear()
    again = ask(store, f"user = {rows.column('user')[5].as_py()}", cache)
    assert again.to_table().num_rows == 1
    assert (store.requests, store.waves) == (4, 1)
    store.clear()
    assert ask(store, f"user = {rows.column('user')[5].as_py() + 1}", cache).count_rows() == 0


def test_a_bitmap_of_many_row_groups_is_looked_up_in_one_place(
    rows: pa.Table, tmp_path: pathlib.Path
) -> None:
    layout = Layout(group_rows=GROUP // 5, page_rows=PAGE // 5, dictionary=False, statistics=["user", "pad"])
    store = embedded(write_file(rows, layout), tmp_path, {"user": "bitmap"})
    [entry] = entries_of(store)
    assert (entry.row_group, entry.version, entry.head_again is None) == (-1, 2, False)
    options = accel.Options(tail_hint=4096, max_tail_hint=4096, probe_min_bytes=0)
    cache = accel.Cache(data=0)
    asked = []
    for place in (5, 20_077, 39_999):
        store.clear()
        where = f"user = {rows.column('user')[place].as_py()}"
        scan = accel.scan("f.parquet", where, store=store, cache=cache, options=options)
        assert scan.to_table().to_pylist() == rows.slice(place, 1).to_pylist()
        assert (scan.metrics.pages.kept, scan.metrics.row_groups.kept) == (4, 1)
        asked.append(scan.metrics.requests_by_kind[Kind.INDEX])
        # The bounds of pages of a column in no order would say less.
        assert scan.metrics.requests_by_kind.get(Kind.COLUMN_INDEX, 0) == 0
    # A part each: the head came with the footer.
    assert asked == [1, 1, 1]
    missed = accel.scan("f.parquet", "user = 7", store=store, cache=cache, options=options)
    assert (missed.to_table().num_rows, missed.metrics.row_groups.kept) == (0, 0)
    # Of what it does not answer they are asked for.
    where = f"user = {rows.column('user')[5].as_py()} OR user < 40"
    both = accel.scan("f.parquet", where, store=store, cache=cache, options=options)
    assert both.to_table().num_rows in (20, 21)
    assert both.metrics.requests_by_kind[Kind.COLUMN_INDEX] > 0


def entries_of(store: RecordingStore) -> tuple[Entry, ...]:
    from accel.format.footer import parse_footer

    data = store.inner.objects["f.parquet"]  # type: ignore[attr-defined]
    start = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    toc = parse_toc(parse_footer(data[start:-8], file_size=len(data), footer_start=start))
    assert toc is not None
    return toc.entries


def test_row_ranges_are_finer_than_pages(rows: pa.Table, plain: bytes, tmp_path: pathlib.Path) -> None:
    store = embedded(plain, tmp_path, {"user": accel.indexes.Bitmap(range_rows=1)})
    scan = ask(store, f"user = {rows.column('user')[77].as_py()}", accel.Cache())
    assert scan.to_table().to_pylist() == rows.slice(77, 1).to_pylist()


@pytest.mark.parametrize(
    ("indexes", "where", "most"),
    [
        ({"user": "bloom"}, "user = {key}", 4 * PAGE),
        ({"user": "bloom"}, "user IN ({key}, 1, 3)", 6 * PAGE),
        ({"note": "ngram"}, "note LIKE '%{text}%'", 4 * PAGE),
        ({"note": "ngram"}, "note ILIKE '%{upper}%'", 4 * PAGE),
        ({"city": "distinct"}, "city <> 'city 02' AND city = 'x'", 0),
        ({"city": "zonemap"}, "city > 'city 39'", 0),
    ],
)
def test_kinds_read_few_pages(
    rows: pa.Table, plain: bytes, tmp_path: pathlib.Path, indexes: dict[str, object], where: str, most: int
) -> None:
    store = embedded(plain, tmp_path, indexes)
    note = rows.column("note")[123].as_py()
    where = where.format(key=rows.column("user")[123].as_py(), text=note[2:11], upper=note[2:11].upper())
    scan = ask(store, where, accel.Cache())
    found = scan.to_table()
    without = ask(RecordingStore(DictStore({"f.parquet": plain})), where, accel.Cache()).to_table()
    assert found.equals(without)
    assert scan.metrics.rows.kept <= most


class Prefix(IndexKind):
    """A kind as a user would write it: the first two bytes of every text."""

    name = "first-two"
    version = 1
    levels = frozenset({Level.PAGE})
    ops = frozenset({LeafOp.EQ})

    def build(self, chunks: object, *, level: Level) -> bytes:
        (chunk,) = chunks  # type: ignore[misc]
        return b"\n".join(self._starts(part) for part in chunk.parts(level))

    @staticmethod
    def _starts(part: pa.Array) -> bytes:
        return b",".join(sorted({str(v)[:2].encode() for v in part.to_pylist() if v is not None}))

    def parse(self, data: bytes, *, level: Level, units: int) -> object:
        return Parsed([set(unit.split(b",")) for unit in data.split(b"\n")])


class Parsed:
    broken = False

    def __init__(self, units: list[set[bytes]]) -> None:
        self.units = units
        self.nbytes = 100 * len(units)

    def prune(self, question: LeafQuestion) -> Evidence | None:
        if self.broken:
            raise RuntimeError("a fault of this kind")
        hit = np.array([question.value[:2] in unit for unit in self.units])
        return Evidence(hit, np.ones(len(hit), bool), np.ones(len(hit), bool))


def test_a_users_kind_and_one_that_raises(
    rows: pa.Table, plain: bytes, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    accel.register_index(Prefix())  # type: ignore[abstract]
    store = embedded(plain, tmp_path, {"note": "first-two"})
    key = rows.column("note")[9].as_py()
    scan = ask(store, f"note = '{key}'", accel.Cache())
    assert scan.to_table().to_pylist() == rows.slice(9, 1).to_pylist()
    assert scan.metrics.rows.kept <= ROWS
    absent = ask(store, "note = '!!'", accel.Cache())
    assert absent.count_rows() == 0
    assert absent.metrics.rows.kept == 0
    monkeypatch.setattr(Parsed, "broken", True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        broken = ask(store, f"note = '{key}'", accel.Cache())
        assert broken.to_table().to_pylist() == rows.slice(9, 1).to_pylist()
    assert broken.metrics.indexes_ignored == 4
    assert "a fault of this kind" in broken.metrics.warnings[0]
    assert isinstance(ChunkValues, type)


def test_an_unknown_kind_is_passed_over(rows: pa.Table, plain: bytes, tmp_path: pathlib.Path) -> None:
    store = embedded(plain, tmp_path, {"city": "distinct"})
    data = store.inner.objects["f.parquet"].replace(b'"kind":"distinct"', b'"kind":"stranger"')  # type: ignore[attr-defined]
    data = data.replace(b',"checksum":', b',"unsealed":')
    other = RecordingStore(DictStore({"f.parquet": data}))
    scan = ask(other, "city = 'city 08'", accel.Cache())
    assert scan.count_rows() == sum(c == "city 08" for c in rows.column("city").to_pylist())
    assert scan.metrics.indexes_ignored == 1
    assert "a kind that is not known here: 'stranger', version 1" in scan.metrics.warnings[0]


# --- indexes that are read in parts ---

TAIL = accel.Options(tail_hint=8 * 1024, max_tail_hint=8 * 1024, max_gap_bytes=0, probe_min_bytes=0)


@pytest.mark.parametrize(
    ("index", "where", "parts", "probed"),
    [
        ("bloom", "user = {key}", 1, 1),
        ("bloom", "user = {absent}", 1, 1),
        ("bloom", "user IN ({key}, {absent}, {other})", None, 3),
        ("ngram", "note LIKE '%{three}%'", 1, 1),
        ("ngram", "note LIKE '%{five}%'", None, 3),
        ("ngram", "note ILIKE '%{FIVE}%'", None, 3),
    ],
)
def test_of_a_large_index_the_head_and_the_parts_that_are_asked_for(
    rows: pa.Table,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    index: str,
    where: str,
    parts: int | None,
    probed: int,
) -> None:
    """Cold: the head in one round trip, unless it stands beside the footer too, as that of the larger one
    does; the parts that the question names in the next, each one request; then pages. Asked again, the same
    costs the pages alone."""
    monkeypatch.setattr("accel.planning.embedded.SMALL", 1024)
    whole = table(user=rows.column("user"), note=rows.column("note"), pad=rows.column("pad"))
    plain = write_file(whole, Layout(group_rows=ROWS, page_rows=PAGE, dictionary=False, statistics=["pad"]))
    store = embedded(plain, tmp_path, {"user" if index == "bloom" else "note": index})
    note, user = rows.column("note")[123].as_py(), rows.column("user")[123].as_py()
    where = where.format(
        key=user,
        absent=user + 1,
        other=rows.column("user")[39_999].as_py(),
        three=note[3:6],
        five=note[3:8],
        FIVE=note[3:8].upper(),
    )
    data = store.inner.objects["f.parquet"]  # type: ignore[attr-defined]
    entry = entry_of(data)
    assert entry.head < entry.length
    cache = accel.Cache()

    def run() -> tuple[pa.Table, accel.Scan]:
        scan = accel.scan("f.parquet", where, store=store, cache=cache, options=TAIL)
        return scan.to_table(), scan

    found, scan = run()
    without = accel.scan(
        "f.parquet", where, store=DictStore({"f.parquet": plain}), cache=accel.Cache(), options=TAIL
    )
    assert found.equals(without.to_table())
    calls = [call for call in store.calls if isinstance(call.want, ByteRange)]
    inside = [
        (call.want.start - entry.offset, call.want.end - entry.offset)
        for call in calls
        if entry.offset <= call.want.start < entry.offset + entry.length
    ]
    assert (entry.head_again is None) is (index == "bloom")
    heads = [(0, entry.head)] if entry.head_again is None else []
    assert inside[: len(heads)] == heads
    asked = inside[len(heads) :]
    assert all(start >= entry.head for start, _ in asked)
    assert 1 <= len(asked) <= probed
    assert parts is None or len(asked) == parts
    assert sum(b - a for a, b in inside) < 0.6 * entry.length
    assert scan.metrics.requests_by_kind[Kind.INDEX] == len(inside)
    store.clear()
    again, scan = run()
    assert again.equals(found)
    assert scan.metrics.requests_by_kind.get(Kind.INDEX, 0) == 0
    assert store.requests == scan.metrics.requests_by_kind.get(Kind.PAGE, 0)


def _fails(_: object) -> list[tuple[int, int]]:
    raise RuntimeError("a fault of this kind")


@pytest.mark.parametrize(
    ("wants", "said"),
    [
        (_fails, "a fault of this kind"),
        (lambda _: [(100, 1 << 40)], "asks for [100, 1099511627776) of them"),
        (lambda _: [(-5, 3)], "asks for [-5, 3) of them"),
        (lambda _: [(5, 5)], "asks for [5, 5) of them"),
        (lambda _: [("a", "b")], "ValueError"),
        (lambda _: 3, "TypeError"),
    ],
)
def test_an_index_that_asks_for_what_it_has_not_is_passed_over(
    rows: pa.Table, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, wants: object, said: str
) -> None:
    monkeypatch.setattr("accel.planning.embedded.SMALL", 1024)
    whole = table(user=rows.column("user"), pad=rows.column("pad"))
    plain = write_file(whole, Layout(group_rows=ROWS, page_rows=PAGE, dictionary=False, statistics=["pad"]))
    store = embedded(plain, tmp_path, {"user": "bloom"})
    key = rows.column("user")[123].as_py()
    monkeypatch.setattr("accel.indexes.bloom.ParsedBloom.wants", lambda _, question: wants(question))  # type: ignore[operator]
    scan = accel.scan("f.parquet", f"user = {key}", store=store, cache=accel.Cache(), options=TAIL)
    assert scan.to_table()["user"].to_pylist() == [key]
    assert scan.metrics.indexes_ignored == 1
    [warning] = scan.metrics.warnings
    assert said in warning
    assert "embedded bloom index" in warning


def entry_of(data: bytes) -> Entry:
    from accel.format.footer import parse_footer

    start = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    toc = parse_toc(parse_footer(data[start:-8], file_size=len(data), footer_start=start))
    assert toc is not None
    [entry] = toc.entries
    return entry


# --- zone maps of several columns ---


def test_a_zone_map_of_several_columns_is_asked_for_each(rows: pa.Table, tmp_path: pathlib.Path) -> None:
    """Its units are the pages of `pad`, which no question names; those of the others differ."""
    order = np.argsort(rows.column("note").to_numpy(zero_copy_only=False))
    data = rows.take(pa.array(order)).append_column("number", pa.array(np.arange(ROWS) // 7))
    plain = write_file(data, Layout(group_rows=GROUP, page_rows=PAGE, dictionary=False, statistics=False))
    store = embedded(plain, tmp_path, {"pad": accel.indexes.Zonemap(columns=("number", "lower(note)"))})
    bare = RecordingStore(DictStore({"f.parquet": plain}))
    note = data.column("note")[7_777].as_py()
    for where, most in (
        ("number = 1000", PAGE),
        ("number > 5700", 2 * PAGE),
        (f"note ILIKE '{note[:6].upper()}%'", 2 * PAGE),
        (f"note = '{note}' AND number >= 0", PAGE),
        (f"note = '{note}' AND number < 0", 0),
        ("number IS NULL", 0),
    ):
        cache = accel.Cache()
        scan = ask(store, where, cache)
        found = scan.to_table()
        assert found.equals(ask(bare, where, accel.Cache()).to_table()), where
        assert scan.metrics.rows.kept <= most, where
        count = accel.scan("f.parquet", where, columns=["user"], store=store, options=OPTIONS, cache=None)
        assert count.to_table().num_rows == found.num_rows
        assert count.metrics.rows.kept <= most, where
        assert scan.metrics.warnings == []


def test_a_zone_map_of_tuples_tells_pages_apart_that_share_a_value(tmp_path: pathlib.Path) -> None:
    a, b = np.repeat(np.arange(20), 2_000), np.tile(np.arange(2_000), 20)
    data = table(a=pa.array(a), b=pa.array(b), pad=pa.array(np.random.default_rng(1).random(40_000)))
    plain = write_file(data, Layout(group_rows=GROUP, page_rows=PAGE + 10, dictionary=False))
    store = embedded(plain, tmp_path, {"(a, b)": "zonemap"})
    for where, rows in (
        ("a = 5 AND b = 3", 1),
        ("a = 4 AND b > 1990", 9),
        ("(a = 4 AND b > 1990) OR (a = 7 AND NOT b >= 2)", 11),
    ):
        scan = ask(store, where, accel.Cache())
        assert scan.to_table().num_rows == rows, where
        bare = ask(RecordingStore(DictStore({"f.parquet": plain})), where, accel.Cache())
        assert bare.to_table().num_rows == rows
        assert 2 * scan.metrics.pages.kept <= bare.metrics.pages.kept, where
