"""What lookups in the kinds of index of a catalog send: exact requests, round trips and bytes, and what they
rule out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import accel
from accel.testing import DictStore, Layout, RecordingStore, table, write_file

FILES, ROWS, PAGE_ROWS = 40, 1000, 100
NEEDLE = "zq-needle-xj"
INDEXES: dict[Any, Any] = {
    "key": ["keys", "bloom"],
    ("tenant", "key"): "keys",
    "text": "ngram",
    "carrier": "distinct",
    "lower(name)": "zonemap",
}


def file(number: int) -> bytes:
    r = np.random.default_rng(number)
    words = np.array([f"{word:05x}" for word in range(0, 1 << 20, 1 << 10)])
    texts = [" ".join(some) for some in words[r.integers(0, len(words), (ROWS, 6))]]
    if number == 7:
        texts[450] = f"a {NEEDLE} in it"
    columns = table(
        key=pa.array(number + FILES * r.permutation(ROWS)),
        tenant=pa.array(np.sort(r.integers(0, 5, ROWS))),
        text=pa.array(texts),
        carrier=pa.array([f"{'abc'[i % 3]}{number % 5}" for i in range(ROWS)]),
        name=pa.array([("N%04d" if i % 2 else "n%04d") % (number * ROWS + i) for i in range(ROWS)]),
    )
    return write_file(columns, Layout(page_rows=PAGE_ROWS, dictionary=False))


@pytest.fixture(scope="module")
def built() -> DictStore:
    store = DictStore({f"d/part-{number:02}.parquet": file(number) for number in range(FILES)})
    with pytest.MonkeyPatch.context() as patch:
        # As of a large index: the head holds the ends of the objects, and the tables of files and bounds.
        patch.setattr("accel.catalog.homes.objects.INLINE_BYTES", 200_000)
        accel.build_index("d/", indexes=INDEXES, store=store)
    return store


class Sent:
    """What a scan as the index lists files sent: the objects by wave, without the stamps in their names."""

    def __init__(self, built: DictStore, where: str, *, compare: bool = True) -> None:
        # Of many files that begin together each takes a turn of the loop.
        store = RecordingStore(DictStore(built.objects), settle=100)
        scan = accel.scan("d/", where, index="d/_accel", listing="index", store=store, cache=None)
        self.rows = scan.to_table().num_rows
        if compare:
            expected = accel.scan("d/", where, index=None, store=built, cache=None)
            assert self.rows == expected.count_rows()
        self.metrics = scan.metrics
        self.requests, self.bytes, self.depth = store.requests, store.bytes, store.depth
        waves: list[set[str]] = [set() for _ in range(store.depth)]
        for call in store.calls:
            waves[call.wave - 1].add(call.path.removeprefix("d/_accel/").removeprefix("d/").split("-2")[0])
        self.waves = [sorted(wave) for wave in waves]
        assert (scan.metrics.requests, scan.metrics.bytes, scan.metrics.round_trips) == (
            self.requests,
            self.bytes,
            self.depth,
        )


def page_of_text(seed: int, needle: str | None = None) -> bytes:
    r = np.random.default_rng(seed)
    words = np.array(["".join(some) for some in r.choice(list("etaoinshrdlu"), (400, 6))])
    texts = [" ".join(some) for some in words[r.integers(0, len(words), (4000, 10))]]
    if needle is not None:
        texts[1234] = needle
    return write_file(table(text=pa.array(texts)), Layout(page_rows=1000, dictionary=False))


def test_a_rare_text_among_many_files_takes_three_trips_and_a_fiftieth_of_their_bytes() -> None:
    pages = [page_of_text(seed) for seed in range(4)]
    store = DictStore({f"d/{number:03}.parquet": pages[number % 4] for number in range(100)})
    store.put("d/047.parquet", page_of_text(9, f"the {NEEDLE}"))
    size = sum(map(len, store.objects.values()))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("accel.catalog.homes.objects.INLINE_BYTES", 50_000)
        accel.build_index("d/", indexes={"text": "ngram"}, store=store)
    sent = Sent(store, f"text LIKE '%{NEEDLE}%'", compare=False)
    assert sent.rows == 1
    assert sent.waves == [["head"], ["ngram"], ["047.parquet"]]
    # The head, runs of pages of the table, and the page that has the text.
    assert sent.requests == 1 + 1 + 1
    assert sent.bytes < size / 50


def test_what_trigrams_rule_out_is_counted(built: DictStore) -> None:
    sent = Sent(built, f"text LIKE '%{NEEDLE}%'")
    assert sent.rows == 1
    assert sent.waves == [["head"], ["ngram"], ["part-07.parquet"]]
    # The first file of all stays for its schema, and none of its rows is read.
    assert sent.metrics.catalog_dropped == {
        "ngram text": {"files": FILES - 2, "row_groups": 0, "pages": 9, "rows": ROWS - PAGE_ROWS}
    }


@pytest.mark.parametrize(
    ("where", "rows", "waves"),
    [
        (f"text ILIKE '%{NEEDLE.upper()}%'", 1, [["head"], ["ngram"], ["part-07.parquet"]]),
        (f"text = 'a {NEEDLE} in it'", 1, [["head"], ["ngram"], ["part-07.parquet"]]),
        ("text LIKE '%zq-nothing-xj%'", 0, [["head"], ["ngram"]]),
        ("key = 10007", 1, None),
        ("tenant = 3 AND key = 10007", 0, [["head"]]),
        ("carrier IN ('a2', 'b2', 'c2') AND key = 10007", 1, None),
    ],
)
def test_lookups_take_three_trips_at_most(
    built: DictStore, where: str, rows: int | None, waves: list[list[str]] | None
) -> None:
    sent = Sent(built, where)
    assert rows is None or sent.rows == rows
    assert sent.depth <= 3
    if waves is not None:
        assert sent.waves == waves


def test_a_repeated_lookup_sends_nothing(built: DictStore) -> None:
    cache = accel.Cache()
    store = RecordingStore(DictStore(built.objects))
    for sends in (True, False):
        store.clear()
        scan = accel.scan(
            "d/", f"text LIKE '%{NEEDLE}%'", index="d/_accel", listing="index", store=store, cache=cache
        )
        assert scan.to_table().num_rows == 1
        assert bool(store.requests) == sends


def test_each_kind_tells_what_it_rules_out(built: DictStore) -> None:
    def dropped(where: str) -> dict[str, dict[str, int]]:
        return Sent(built, where, compare=False).metrics.catalog_dropped

    # One file in five has it; the first file of all stays.
    assert dropped("carrier = 'b1'") == {"distinct carrier": {"files": FILES - 1 - 8}}
    assert dropped("NOT carrier IN ('a0', 'b0', 'c0')") == {"distinct carrier": {"files": 8 - 1}}
    # One file has such names, in either case.
    assert dropped("name ILIKE 'n0701%'")["zonemap lower(name)"]["files"] == FILES - 1
    # Evidence of two indexes about the sides of an OR.
    both = dropped("key = 10007 OR carrier = 'b'")
    assert sum(counts["files"] for counts in both.values()) == FILES - 2
    # The pair is in no page, though both values are in the file.
    pair = dropped("tenant = 3 AND key = 10007")
    assert sum(counts.get("files", 0) for counts in pair.values()) == FILES - 1
    assert pair["keys tenant, key"]["files"] == 1


def test_explain_shows_the_tables(built: DictStore) -> None:
    store = DictStore(built.objects)
    explained = accel.scan(
        "d/", f"text LIKE '%{NEEDLE}%'", index="d/_accel", store=store, cache=None
    ).explain()
    assert explained.catalog == (2, FILES)
    assert f"    ngram text dropped {FILES - 2} files, 9 pages, 900 rows\n" in str(explained)
    assert explained.requests["catalog"] > 1
    assert explained.bytes["catalog"] > len(built.objects["d/_accel/head"])
