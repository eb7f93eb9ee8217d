"""The kinds of index of a catalog: how they are asked for, what they cover, and that merging and verifying
know them."""

from __future__ import annotations

import asyncio
import datetime
import decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import accel
from accel.catalog.inspecting import inspect_index, verify_index
from accel.testing import DictStore, Layout, write_file

INDEX = "t/_accel"


def directory(*tables: pa.Table, **layout: Any) -> DictStore:
    how = Layout(**({"group_rows": 20, "page_rows": 5} | layout))
    return DictStore({f"t/{at}.parquet": write_file(one, how) for at, one in enumerate(tables)})


def asked(store: DictStore, where: str, **given: Any) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The rows with the index, which are those without it, and what the tables ruled out."""
    scan = accel.scan("t/", where, index=INDEX, store=store, cache=None, **given)
    found = scan.to_table()
    assert scan.metrics.warnings == []
    assert found.equals(accel.scan("t/", where, index=None, store=store, cache=None, **given).to_table()), (
        where
    )
    return found.to_pylist(), scan.metrics.catalog_dropped


NUMBERS = [pa.table({"a": [at] * 40, "b": list(range(40)), "s": [f"text {at}"] * 40}) for at in range(4)]


# -- asking for them ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("indexes", "spelled"),
    [
        ({"a": "keys"}, {"a": ["keys"]}),
        ({"a": ["keys", "bloom", "keys"]}, {"a": ["keys", "bloom"]}),
        ({("a", "b"): "keys"}, {"a, b": ["keys"]}),
        ({"lower(s)": "zonemap"}, {"lower(s)": ["zonemap"]}),
        ({'lower("s")': "zonemap", "a": "zonemap"}, {"lower(s)": ["zonemap"], "a": ["zonemap"]}),
        ({"a name": "distinct", "st.v": "ngram"}, {"a name": ["distinct"], "st.v": ["ngram"]}),
        ({'"a"': "keys", '"st"."v"': "bloom", 'lower(st."v")': "zonemap"},
         {"a": ["keys"], "st.v": ["bloom"], "lower(st.v)": ["zonemap"]}),
        ({"x.y": ["keys", "zonemap"], '"x.y"': "bloom"}, {'"x.y"': ["keys", "zonemap", "bloom"]}),
        ({'st."u.w"': ["keys", "zonemap"]}, {'st."u.w"': ["keys", "zonemap"]}),
        ({("a", '"x.y"', "st.v"): "keys"}, {'a, "x.y", st.v': ["keys"]}),
    ],
)  # fmt: skip
def test_they_are_spelled_by_columns(indexes: Any, spelled: Any) -> None:
    more = pa.table({"a name": [1] * 40, "st": [{"v": "text", "u.w": 1}] * 40, "x.y": [2] * 40})
    whole = NUMBERS[0]
    for name in more.schema.names:
        whole = whole.append_column(name, more.column(name))
    store = directory(whole)
    accel.build_index("t/", indexes=indexes, store=store)
    found = inspect_index(INDEX, store=store)
    assert {of: list(kinds) for of, kinds in found.indexes.items()} == spelled
    names = [one.table for one in found.tables]
    assert names == ["files", "bounds", *(f"{kind} {of}" for of, kinds in spelled.items() for kind in kinds)]


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"indexes": {"aa": "keys"}}, accel.ColumnNotFoundError, r"t/: no file has the column .* 'aa' \(did you mean 'a'"),
        ({"columns": ["a", "aa"]}, accel.ColumnNotFoundError, "no file has the column .* 'aa'"),
        ({"indexes": {"a": "ngram"}}, accel.SchemaMismatchError, "kind 'ngram' of a: the column is int64 .*one text"),
        ({"indexes": {"lower(a)": "zonemap"}}, accel.SchemaMismatchError, r"'zonemap' of lower\(a\): the column is int64"),
        ({"indexes": {"l": "keys"}}, accel.SchemaMismatchError, "the column is list<"),
        ({"indexes": {"st": "bloom"}}, accel.SchemaMismatchError, "the column is struct<"),
        ({"columns": ["l"]}, accel.SchemaMismatchError, "no file can have bounds: the column is list<"),
        ({"indexes": {"p": "keys"}}, accel.ColumnNotFoundError, "'p': its values are in the paths"),
        ({"columns": ["p"]}, accel.ColumnNotFoundError, "'p': its values are in the paths"),
        ({"indexes": {("a", "other"): "keys"}}, accel.ColumnNotFoundError, "no file has all columns of .*'keys' of a, other"),
        ({"indexes": {'"st.v"': "keys"}}, accel.ColumnNotFoundError, "st.v"),
    ],
)  # fmt: skip
def test_what_no_file_can_have_is_refused_before_anything_is_written(
    given: Any, error: type[Exception], message: str
) -> None:
    whole = (
        NUMBERS[0].append_column("l", pa.array([[1]] * 40)).append_column("st", pa.array([{"v": "x"}] * 40))
    )
    other = pa.table({"other": [1]})
    store = DictStore({"t/p=1/0.parquet": write_file(whole), "t/p=2/1.parquet": write_file(other)})
    before = dict(store.objects)
    with pytest.raises(error, match=message):
        accel.build_index("t/", store=store, **given)
    assert store.objects == before
    # Nor does an index that is there take it up.
    accel.build_index("t/", store=store)
    before = dict(store.objects)
    if "indexes" in given:
        with pytest.raises(error, match=message):
            accel.build_index("t/", store=store, **given)
    assert store.objects == before


def test_what_some_files_lack_is_noted(capsys: pytest.CaptureFixture[str], tmp_path: Any) -> None:
    from accel.cli.main import main

    store = directory(*NUMBERS, pa.table({"b": [1]}))
    told = "the index 'keys a' leaves out 1 of 5 files that were added: they lack the column"
    with pytest.warns(UserWarning, match=told) as caught:
        report = accel.build_index("t/", indexes={"a": "keys", "b": "keys"}, store=store)
    assert (len(caught), len(report.notes)) == (1, 1)
    assert report.notes[0].startswith(told)
    # Once for each file: a refresh that adds none has nothing to say.
    assert accel.refresh_index(INDEX, store=store).notes == ()
    for path, data in store.objects.items():
        if "_accel" not in path:
            (tmp_path / path.rpartition("/")[2]).write_bytes(data)
    assert main(["index", "build", str(tmp_path), "--index", "a=keys"]) == 0
    assert f"warning: {told}" in capsys.readouterr().err


@pytest.mark.parametrize("indexes", ["tailnum", ["tailnum"], {5: "keys"}, {("a", 5): "keys"}, {"a": None}])
def test_other_types_are_refused_by_name(indexes: Any) -> None:
    with pytest.raises(TypeError, match=r"indexes (maps|names) columns|kinds of index are given by name"):
        accel.build_index("t/", indexes=indexes, store=directory(*NUMBERS))


@pytest.mark.parametrize(
    ("indexes", "message"),
    [
        ({"a": "btree"}, "no index of kind 'btree' outside the files"),
        ({"a": 5}, "given by name, not as int"),
        ({"a": [5]}, "no index of kind 5"),
        ({("a", "b"): "ngram"}, "'ngram' is of one column"),
        ({("a", "a"): "keys"}, "names a column twice"),
        ({tuple("abcdefghi"): "keys"}, "8 columns at most"),
        ({"(a, b)": "zonemap"}, "is of one column"),
        ({"upper(s)": "zonemap"}, "upper"),
        ({"lower(s": "zonemap"}, "lower"),
        ({("lower(a)", "b"): "zonemap"}, "one column"),
    ],
)
def test_what_is_no_index_is_refused(indexes: Any, message: str) -> None:
    store = directory(*NUMBERS)
    with pytest.raises((ValueError, TypeError), match=message):
        accel.build_index("t/", indexes=indexes, store=store)
    assert not any("_accel" in path for path in store.objects)


@pytest.mark.parametrize("name", ["a,b", "lower(s)", " a", 'a"b', "a b"])
@pytest.mark.parametrize("kind", ["keys", "distinct", "bloom", "ngram"])
def test_strange_names_of_columns(name: str, kind: str) -> None:
    store = directory(*(pa.table({name: [f"{at} and more"] * 40, "z": range(40)}) for at in (3, 1, 2)))
    accel.build_index("t/", indexes={name: kind}, columns=[], store=store)
    quoted = '"' + name.replace('"', '""') + '"'
    rows, dropped = asked(store, f"{quoted} = '1 and more'")
    assert len(rows) == 40
    (counts,) = dropped.values()
    assert counts["files"] == 1
    assert verify_index(INDEX, store=store).is_empty


# -- what they answer --------------------------------------------------------------------------------


def test_keys_of_several_columns_answer_by_those_that_lead() -> None:
    tables = [
        pa.table({"a": [row % 3 for row in range(40)], "b": [None, at, 9, at] * 10, "c": [at] * 40})
        for at in range(4)
    ]
    store = directory(*tables)
    accel.build_index("t/", indexes={("a", "b", "c"): "keys"}, columns=[], store=store)
    name = "keys a, b, c"
    for where, files in {
        "a = 1 AND b = 3": 2,
        "a = 1 AND b IN (2, 3) AND c = 3": 2,
        "a = 5": 3,
        "a IN (7, 8, NULL)": 3,
        "a = 1 AND c = 9 AND b = 9": 3,
        # The null of `b` stands beside an `a` that matches.
        "a = 1 AND c = 2": 0,
        "a = 2": 0,
        "a = 1 AND b IS NULL": 0,
    }.items():
        _, dropped = asked(store, where)
        assert dropped.get(name, {}).get("files", 0) == files, where
    for where in ("b = 3", "b = 3 AND c = 3", "NOT a = 1", "a > 5", "a = 7 OR b = 7"):
        _, dropped = asked(store, where)
        assert dropped == {}, where


@pytest.mark.parametrize(
    ("where", "files"),
    [
        ("s LIKE '%needle%'", 2),
        ("s ILIKE '%NeEdLe%'", 2),
        ("s = 'a needle'", 2),
        ("s IN ('a needle', 'not there at all')", 2),
        ("s LIKE 'a need%'", 2),
        ("s LIKE '%needle%' OR s LIKE '%hay 0%'", 1),
        ("s LIKE '%needle%' AND b < 5", 2),
        ("s LIKE '%needle%' OR b < 5", 0),
        ("s LIKE '%ne%'", 0),
        ("NOT s LIKE '%needle%'", 0),
        ("s LIKE '%hay%'", 0),
        ("s ILIKE '%STRASSE%'", 2),
        ("s IS NULL", 0),
    ],
)
def test_trigrams(where: str, files: int) -> None:
    texts = [["hay 0 hay", None] * 20, ["hay 1 hay", "straße"] * 20, ["hay", *["a needle"] * 19] * 2]
    store = directory(*(pa.table({"s": some, "b": range(40)}) for some in texts))
    accel.build_index("t/", indexes={"s": "ngram"}, columns=[], store=store)
    _, dropped = asked(store, where)
    # The first file stays, whatever is in it: it may be one of those that were ruled out.
    assert dropped.get("ngram s", {}).get("files", 0) in (files, files - 1)


def test_text_that_is_not_utf8_may_match_anything() -> None:
    store = directory(
        pa.table({"s": pa.array([b"plain text"] * 40)}),
        pa.table({"s": pa.array([b"\xff\xfe needle", b"hay"] * 20)}),
        pa.table({"s": pa.array([b"needle in it", None] * 20)}),
        pa.table({"s": pa.array([b"hay and more"] * 40)}),
    )
    accel.build_index("t/", indexes={"s": "ngram"}, columns=[], store=store)
    schema = pa.schema([("s", pa.binary())])
    for scan in (None, accel.Cache()):
        found = accel.scan(
            "t/", accel.col("s") == b"needle in it", index=INDEX, store=store, cache=scan, schema=schema
        )
        assert found.to_table().num_rows == 20
        assert found.metrics.catalog_dropped["ngram s"]["files"] == 1
    assert verify_index(INDEX, store=store).is_empty


def test_values_of_files_answer_any_part_of_a_predicate() -> None:
    tables = [pa.table({"c": [f"x{at}", f"z{at}", None] * 14, "n": [at] * 42}) for at in range(4)]
    store = directory(*tables)
    accel.build_index("t/", indexes={"c": "distinct"}, columns=[], store=store)
    for where, files in {
        "c = 'x3'": 2,
        "c LIKE '%3'": 2,
        "c > 'z2'": 2,
        "NOT (c <> 'z1')": 2,
        "c IN ('y', 'z2')": 2,
        "c = 'x9' OR c LIKE 'q%'": 3,
        "(c = 'x3' AND n = 3) OR c = 'z2'": 1,
        "c IS NULL": 0,
        "c <> 'x1'": 0,
    }.items():
        _, dropped = asked(store, where)
        assert dropped.get("distinct c", {}).get("files", 0) == files, where


def test_a_file_of_too_many_values_is_not_covered_by_distinct() -> None:
    store = directory(
        pa.table({"c": ["a"] * 5000}), pa.table({"c": [f"v{at}" for at in range(5000)]}), group_rows=5000
    )
    with pytest.warns(UserWarning, match="'distinct c' leaves out 1 of 2 files that were added"):
        report = accel.build_index("t/", indexes={"c": "distinct"}, columns=[], store=store)
    assert ["have too many values" in note for note in report.notes] == [True]
    (table,) = (one for one in inspect_index(INDEX, store=store).tables if one.table == "distinct c")
    assert (table.rows, table.uncovered) == (1, 1)
    rows, _ = asked(store, "c = 'v4999'")
    assert len(rows) == 1
    _, dropped = asked(store, "c = 'nothing'")
    assert dropped == {}


def test_filters_of_files_and_values_of_other_types() -> None:
    store = directory(
        pa.table({"k": pa.array(range(0, 4000, 2), pa.int64())}),
        pa.table({"k": pa.array(range(1, 4000, 2), pa.int64())}),
        pa.table({"k": pa.array(range(10_000, 10_040), pa.int32())}),
        pa.table({"k": pa.nulls(40, pa.int64())}),
        group_rows=5000,
        page_rows=500,
    )
    accel.build_index("t/", indexes={"k": "bloom"}, columns=[], store=store)
    for where, files in {
        "k = 1001": 2,
        "k IN (1001, 1003)": 2,
        "k = 10001": 2,
        "k = 7.0": 2,
        "k = -5": 3,
    }.items():
        rows, dropped = asked(store, where)
        assert len(rows) == {"k IN (1001, 1003)": 2, "k = -5": 0}.get(where, 1)
        assert dropped["bloom k"]["files"] == files, where
    _, dropped = asked(store, "k > 5 AND k < 70")
    assert dropped == {}


def test_bounds_of_expressions_rule_out_files_and_row_groups() -> None:
    def days(year: int) -> list[datetime.datetime]:
        return [datetime.datetime(year + row // 20, 1 + row % 12, 3, row % 5) for row in range(40)]

    tables = [
        pa.table(
            {
                "t": pa.array(days(2000 + 10 * at), pa.timestamp("us")),
                "s": [("N%d" if row % 2 else "n%d") % (10 * at + row // 20) for row in range(40)],
            }
        )
        for at in range(4)
    ]
    store = directory(*tables)
    indexes = dict.fromkeys(("year(t)", "hour(t)", "lower(s)"), "zonemap")
    accel.build_index("t/", indexes=indexes, columns=[], store=store)
    rows, dropped = asked(store, "s ILIKE 'N30'")
    assert len(rows) == 20
    assert dropped["zonemap lower(s)"] == {"files": 2, "row_groups": 1, "pages": 0, "rows": 20}
    rows, dropped = asked(store, "t = TIMESTAMP '2011-05-03 04:00:00'")
    assert dropped["zonemap year(t)"]["files"] == 2
    rows, dropped = asked(store, "t IN (TIMESTAMP '2011-05-03 07:00:00')")
    assert rows == []
    assert sum(counts["files"] for counts in dropped.values()) == 3


# -- keeping them ------------------------------------------------------------------------------------

ALL: dict[Any, Any] = {
    "a": ["keys", "distinct", "bloom", "zonemap"],
    ("a", "b"): "keys",
    "s": ["ngram", "keys"],
    "lower(s)": "zonemap",
}


def test_refreshing_and_merging_keep_every_kind_right() -> None:
    store = directory(*NUMBERS)
    accel.build_index("t/", indexes=ALL, store=store)
    store.put("t/5.parquet", write_file(pa.table({"a": [7] * 40, "b": range(40), "s": ["new text"] * 40})))
    store.delete("t/2.parquet")
    store.put(
        "t/1.parquet", write_file(pa.table({"a": [8, None] * 20, "b": range(40), "s": [None, "other"] * 20}))
    )
    for keep in (accel.refresh_index, accel.compact_index):
        keep(INDEX, store=store)
        assert verify_index(INDEX, store=store).is_empty
        for where, count in {
            "a = 7": 40,
            "a = 2": 0,
            "a = 8 AND b = 2": 1,
            "s LIKE '%new%'": 40,
            "s LIKE '%text 2%'": 0,
            "s = 'other'": 20,
            "s ILIKE 'OTHER'": 20,
        }.items():
            rows, _ = asked(store, where)
            assert len(rows) == count, where
    assert {one.table: one.uncovered for one in inspect_index(INDEX, store=store).tables} == dict.fromkeys(
        [
            "files",
            "bounds",
            "keys a",
            "distinct a",
            "bloom a",
            "zonemap a",
            "keys a, b",
            "ngram s",
            "keys s",
            "zonemap lower(s)",
        ],
        0,
    )


# -- asking for more later ---------------------------------------------------------------------------


def test_an_index_takes_up_the_kinds_that_it_lacks() -> None:
    store = directory(*NUMBERS[:3], NUMBERS[3].append_column("none", pa.array([1] * 40)))
    accel.build_index("t/", store=store)
    assert asked(store, "s LIKE '%text 2%'")[1] == {}
    with pytest.warns(UserWarning, match="'keys none' leaves out 3 of 4 files that were added"):
        more = accel.build_index("t/", indexes={"s": "ngram", "none": "keys"}, store=store)
    assert (more.files, more.added, more.removed, more.unchanged) == (4, 4, 4, 0)
    rows, dropped = asked(store, "s LIKE '%text 2%'")
    assert len(rows) == 40 and "ngram s" in dropped
    # Those that are there stay, whatever is asked for; and files that an index cannot cover are described
    # once.
    for again in ({"s": "ngram"}, {"none": "keys"}, {}):
        same = accel.build_index("t/", indexes=again, store=store)
        assert (same.generation, same.added, same.unchanged) == (more.generation, 0, 4), again
    with pytest.warns(UserWarning, match="'keys none' leaves out 3 of 4 files that were added"):
        both = accel.build_index("t/", indexes={"s": "distinct"}, store=store)
    assert (both.files, both.added) == (4, 4)
    assert {one.table for one in inspect_index(INDEX, store=store).tables} == {
        "files", "bounds", "keys none", "ngram s", "distinct s",
    }  # fmt: skip
    assert verify_index(INDEX, store=store).is_empty


class Killed(Exception):
    """Ends a builder."""


@pytest.mark.parametrize("compacted", [False, True])
def test_a_later_kind_is_finished_by_a_refresh(compacted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The builder is killed after its first segment of two; files of which it did not come to that are read
    meanwhile."""
    monkeypatch.setattr("accel.catalog.building.builder.SEGMENT_FILES", 2)
    store = directory(*NUMBERS)
    accel.build_index("t/", store=store)

    def look(done: int, total: int) -> None:
        if done == total:
            raise Killed

    with pytest.raises(Killed):
        accel.build_index("t/", indexes={"s": "ngram"}, store=store, progress=look)
    monkeypatch.undo()
    if compacted:
        accel.compact_index(INDEX, store=store)
        assert accel.compact_index(INDEX, store=store).segments == 2
    uncovered = {one.table: one.uncovered for one in inspect_index(INDEX, store=store).tables}
    assert uncovered == {"files": 0, "bounds": 0, "ngram s": 2}
    assert len(asked(store, "s LIKE '%text 3%'")[0]) == 40
    report = accel.refresh_index(INDEX, store=store)
    assert (report.files, report.added, report.unchanged) == (4, 2, 2)
    assert accel.compact_index(INDEX, store=store).segments == 1
    uncovered = {one.table: one.uncovered for one in inspect_index(INDEX, store=store).tables}
    assert uncovered == {"files": 0, "bounds": 0, "ngram s": 0}
    assert len(asked(store, "s LIKE '%text 3%'")[0]) == 40
    assert verify_index(INDEX, store=store).is_empty


def test_builders_that_ask_for_different_kinds_at_the_same_time() -> None:
    store = directory(*NUMBERS)
    kinds: list[dict[str, str]] = [{"s": "ngram"}, {"a": "keys"}, {"a": "distinct"}, {"s": "ngram"}]

    async def build() -> None:
        async with asyncio.TaskGroup() as group:
            for each in kinds:
                group.create_task(accel.build_index_async("t/", indexes=each, store=store))

    asyncio.run(build())
    accel.refresh_index(INDEX, store=store)
    uncovered = {one.table: one.uncovered for one in inspect_index(INDEX, store=store).tables}
    assert uncovered == {"files": 0, "bounds": 0, "ngram s": 0, "keys a": 0, "distinct a": 0}
    assert verify_index(INDEX, store=store).is_empty


def test_files_of_other_types_and_without_the_column_are_read() -> None:
    store = directory(
        pa.table({"a": pa.array([1] * 40, pa.int64()), "s": ["abc"] * 40}),
        pa.table({"a": pa.array([2] * 40, pa.int32()), "s": ["abd"] * 40}),
        pa.table({"b": [3] * 40, "s": ["abe"] * 40}),
        pa.table(
            {
                "a": pa.array([4] * 40, pa.int64()),
                "b": [4] * 40,
                "s": pa.array(["abf"] * 40).dictionary_encode(),
            }
        ),
        pa.table({"a": pa.array([], pa.int64()), "s": pa.array([], pa.string())}),
    )
    with pytest.warns(UserWarning, match=r"leaves out \d of 5 files that were added"):
        accel.build_index("t/", indexes=ALL, store=store)
    schema = pa.schema([("a", pa.int64()), ("s", pa.string())])
    for keep in (accel.refresh_index, accel.compact_index):
        keep(INDEX, store=store)
        for where, count in {
            "a = 2": 40,
            "a = 4": 40,
            "a = 3": 0,
            "a IS NULL": 40,
            "s LIKE '%abf%'": 40,
        }.items():
            rows, _ = asked(store, where, schema=schema)
            assert len(rows) == count, where
        assert verify_index(INDEX, store=store).is_empty


def test_verify_finds_what_an_index_says_that_is_not_so() -> None:
    store, other = directory(*NUMBERS), directory(*NUMBERS)
    accel.build_index("t/", indexes=ALL, store=store)
    # Of the same name, size, and etag, but with other values.
    changed = pa.table({"a": [at + 3 for at in [0] * 40], "b": list(range(40)), "s": ["texs 0"] * 40})
    data = write_file(changed, Layout(group_rows=20, page_rows=5))
    assert verify_index(INDEX, store=store).is_empty
    assert len(data) == len(other.objects["t/0.parquet"])
    etag = store.etags["t/0.parquet"]
    store.put("t/0.parquet", data)
    store.etags["t/0.parquet"] = etag
    found = verify_index(INDEX, store=store)
    assert list(found.wrong) == ["0.parquet"]


def test_an_index_of_a_kind_of_later_versions_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    store = directory(*NUMBERS)
    accel.build_index("t/", indexes=ALL, store=store)
    known = __import__("accel.catalog.kinds.registry", fromlist=["KINDS"])
    monkeypatch.setattr(known, "KINDS", {"keys": known.KINDS["keys"]})
    rows, dropped = asked(store, "s LIKE '%text 3%'")
    assert len(rows) == 40
    assert "ngram s" not in dropped
    accel.compact_index(INDEX, store=store)
    asked(store, "a = 3")


@pytest.mark.parametrize(
    ("indexes", "where"), [({"a": "keys"}, "a = {}"), ({"s": "ngram"}, "s LIKE '%text {}%'")], ids=str
)
@pytest.mark.parametrize("hint", [8, 700, 1000, 1 << 20], ids="tail of {} bytes".format)
def test_pages_are_found_however_a_file_was_opened_before(
    indexes: dict[str, str], where: str, hint: int
) -> None:
    values = [number * 7 % 40 + 100 for number in range(40)]
    store = directory(*(pa.table({"a": values, "s": [f"text {one}" for one in values]}) for _ in range(2)))
    accel.build_index("t/", indexes=indexes, columns=[], store=store)
    for value in values[5:20:5]:
        # What it opens stays in the cache with as much of its end as was read.
        cache = accel.Cache()
        accel.scan(
            "t/", "a >= 0", index=None, store=store, cache=cache, options=accel.Options(tail_hint=hint)
        ).to_table()
        scan = accel.scan("t/", where.format(value), index=INDEX, store=store, cache=cache)
        assert scan.to_table()["a"].to_pylist() == [value, value]
        assert scan.metrics.warnings == []
        (counts,) = scan.metrics.catalog_dropped.values()
        assert counts["rows"] == 70


def test_pages_of_a_file_whose_page_indexes_are_too_long_for_an_index() -> None:
    columns = {f"c{at}": range(1000) for at in range(36)}
    one = pa.table({"a": [number * 7 % 1000 for number in range(1000)]} | columns)
    store = directory(one, page_rows=1, group_rows=250)
    options = accel.Options(tail_hint=1 << 22)
    accel.build_index("t/", indexes={"a": "keys"}, columns=[], store=store, options=options)
    for value in (7, 14, 21, 7 * 600 % 1000):
        rows, dropped = asked(store, f"a = {value}")
        assert len(rows) == 1
        assert dropped["keys a"]["rows"] == 750


def test_zeros_of_either_sign_are_one_value_of_a_merge() -> None:
    store = DictStore({"t/a.parquet": write_file(pa.table({"x": [1.5, 2.0]}))})
    accel.build_index("t/", indexes={"x": ["distinct", "keys"]}, store=store)
    store.put("t/b.parquet", write_file(pa.table({"x": [0.0, -0.0, 3.0]})))
    accel.refresh_index("t/_accel", store=store)
    assert accel.compact_index("t/_accel", store=store).segments == 1
    assert verify_index("t/_accel", store=store).is_empty
    for where in ("x = 0", "x = -0.0", "x <= 0"):
        found = accel.scan("t/", where, store=store, index="t/_accel", cache=None).to_table()
        assert [repr(value) for value in found.column("x").to_pylist()] == ["0.0", "-0.0"]


@pytest.mark.parametrize("kind", ["keys", "distinct"])
@pytest.mark.parametrize(
    ("type", "values", "where"),
    [
        (pa.float16(), [-0.0, 1.5, None], "a IN (0.0, 7, NULL)"),
        (pa.decimal32(7, 2), [decimal.Decimal("1.25"), decimal.Decimal("-3.10"), None], "a = 1.25"),
        (pa.decimal64(15, 3), [decimal.Decimal("-3.1"), decimal.Decimal("1.255"), None], "a = -3.1"),
        (pa.string_view(), ["x", "a longer text than a view has room for", None], "a = 'x'"),
        (pa.binary_view(), [b"x", b"\xff" * 70, None], "a = 'x'"),
    ],
    ids=str,
)
def test_types_that_pyarrow_does_not_sort(
    kind: str, type: pa.DataType, values: list[Any], where: str
) -> None:
    taken = [np.float16(one) if one is not None and pa.types.is_float16(type) else one for one in values]
    store = directory(*(pa.table({"a": pa.array(some, type)}) for some in (taken, taken[1:], taken[1:])))
    accel.build_index("t/", indexes={"a": kind}, columns=[], store=store)
    rows, dropped = asked(store, where)
    assert rows
    assert dropped[f"{kind} a"]["files"] == 2
    assert verify_index(INDEX, store=store).is_empty


def test_a_file_with_more_text_than_an_array_holds_is_not_covered(monkeypatch: pytest.MonkeyPatch) -> None:
    store = directory(*NUMBERS)
    joined = pa.concat_arrays

    def concat_arrays(arrays: list[pa.Array]) -> pa.Array:
        if arrays[0][0].as_py() == "text 2":
            raise pa.ArrowInvalid("offset overflow while concatenating arrays")
        return joined(arrays)

    monkeypatch.setattr(pa, "concat_arrays", concat_arrays)
    with pytest.warns(UserWarning, match="'ngram s' leaves out 1 of 4 files"):
        accel.build_index("t/", indexes={"s": "ngram"}, columns=[], store=store)
    monkeypatch.undo()
    rows, dropped = asked(store, "s LIKE '%ext 3%'")
    assert len(rows) == 40
    assert dropped["ngram s"]["files"] == 1
