from __future__ import annotations

import datetime
import decimal
import math
import os
import pickle
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pytest

import accel
from accel.arrays import make_scalar
from accel.errors import SchemaMismatchError
from accel.tables.partition_paths import NULL, Spelling, hint_of_key, settle, spell
from accel.testing import DictStore, table, write_file


@pytest.mark.parametrize(
    ("path", "keys", "values"),
    [
        pytest.param("year=2013/month=01", ("year", "month"), ("2013", "01"), id="two"),
        pytest.param("t/year=2013/raw", ("year",), ("2013",), id="between plain directories"),
        pytest.param("a=b=c", ("a",), ("b=c",), id="equals sign in the value"),
        pytest.param("a%3Db=c%2Fd%20e", ("a=b",), ("c/d e",), id="encoded"),
        pytest.param("a=100%", ("a",), ("100%",), id="a lone percent sign"),
        pytest.param("a=%FF", ("a",), ("%FF",), id="encoded, but not UTF-8"),
        pytest.param("name=Zoë", ("name",), ("Zoë",), id="unicode"),
        pytest.param(f"a={NULL}", ("a",), (None,), id="null"),
        pytest.param("a=%5F%5FHIVE_DEFAULT_PARTITION__", ("a",), (None,), id="null, encoded"),
        pytest.param(
            "a=%255F_HIVE_DEFAULT_PARTITION__", ("a",), ("%5F_HIVE_DEFAULT_PARTITION__",), id="no null"
        ),
        pytest.param("a=", ("a",), ("",), id="empty value"),
        pytest.param("=a", (), (), id="no key"),
        pytest.param("a+b=c+d", ("a+b",), ("c+d",), id="a plus sign stays"),
    ],
)
def test_what_directories_spell(path: str, keys: tuple[str, ...], values: tuple[str | None, ...]) -> None:
    assert spell("u", path.split("/")) == Spelling("u", keys, values)


@pytest.mark.parametrize("again", ["a=2", "a=1", "%61=2", f"a={NULL}", "b=9/a=3"])
def test_of_a_key_that_occurs_twice_the_first_counts(again: str) -> None:
    found = spell("u", ["a=1", *again.split("/"), "b=9"])
    assert found == Spelling("u", ("a", "b"), ("1", "9"))


@pytest.mark.parametrize(
    ("texts", "kind", "values"),
    [
        pytest.param(["1", "02", "-3"], pa.int64(), [1, 2, -3], id="integers, leading zeros"),
        pytest.param(["1", None], pa.int64(), [1, None], id="integers and null"),
        pytest.param(["9223372036854775807"], pa.int64(), [2**63 - 1], id="greatest int64"),
        pytest.param(["9223372036854775808"], pa.string(), ["9223372036854775808"], id="beyond int64"),
        pytest.param(["1", "x"], pa.string(), ["1", "x"], id="one is text"),
        pytest.param(["1_0"], pa.string(), ["1_0"], id="an underscore is no digit"),
        pytest.param(["٣"], pa.string(), ["٣"], id="Arabic digits are text"),
        pytest.param([" 1"], pa.string(), [" 1"], id="a blank"),
        pytest.param(["1.5"], pa.string(), ["1.5"], id="a fraction"),
        pytest.param(["2013-02-28"], pa.date32(), [datetime.date(2013, 2, 28)], id="date"),
        pytest.param(["2013-02-30"], pa.string(), ["2013-02-30"], id="no such day"),
        pytest.param(["2013-2-3"], pa.string(), ["2013-2-3"], id="not quite a date"),
        pytest.param(["2013-02-28", "2013"], pa.string(), ["2013-02-28", "2013"], id="date and integer"),
        pytest.param([None, None], pa.string(), [None, None], id="nulls alone"),
        pytest.param(["", "1"], pa.string(), ["", "1"], id="empty"),
        pytest.param(["true"], pa.string(), ["true"], id="booleans are text"),
    ],
)
def test_types_are_inferred_over_all_files(
    texts: list[str | None], kind: pa.DataType, values: list[object]
) -> None:
    spellings = [Spelling(str(i), ("k",), (text,)) for i, text in enumerate(texts)]
    assert settle(spellings, strict=True) == (pa.schema([("k", kind)]), [(value,) for value in values])


def test_one_directory_must_agree_on_its_keys() -> None:
    spellings = [spell("d/a=1/b=2/x", ["a=1", "b=2"]), spell("d/a=1/y", ["a=1"])]
    with pytest.raises(SchemaMismatchError) as caught:
        settle(spellings, strict=True)
    assert str(caught.value) == (
        "d/a=1/y: partition keys a here, but a/b in d/a=1/b=2/x "
        "(`partitioning=None` reads the files without partition columns)"
    )


@pytest.mark.parametrize("strict", [True, False])
def test_keys_may_stand_in_another_order(strict: bool) -> None:
    paths = (["a=1", "b=x", "c=2024-01-01"], ["c=2024-01-02", "a=2", "b=y"], ["b=z", "c=2024-01-03", "a=3"])
    schema, values = settle([spell("/".join(path), path) for path in paths], strict=strict)
    assert schema == pa.schema([("a", pa.int64()), ("b", pa.string()), ("c", pa.date32())])
    days = [datetime.date(2024, 1, day) for day in (1, 2, 3)]
    assert values == [(1, "x", days[0]), (2, "y", days[1]), (3, "z", days[2])]


def test_in_another_order_they_are_the_same_keys_still() -> None:
    spellings = [spell("x", ["a=1", "b=2"]), spell("y", ["b=2", "c=1"])]
    with pytest.raises(SchemaMismatchError, match="y: partition keys b/c here, but a/b in x"):
        settle(spellings, strict=True)


def test_named_files_keep_what_they_share() -> None:
    spellings = [
        spell("x", ["r=eu", "a=1", "b=2"]),
        spell("y", ["a=07", "q=0", "r=us"]),
        spell("z", ["r=", "a=3"]),
    ]
    assert settle(spellings, strict=False) == (
        pa.schema([("r", pa.string()), ("a", pa.int64())]),
        [("eu", 1), ("us", 7), ("", 3)],
    )


def test_no_partitions() -> None:
    assert settle([spell("x", []), spell("y", [])], strict=True) == (pa.schema([]), [(), ()])
    assert settle([], strict=True) == (pa.schema([]), [])


def test_types_given_by_the_caller() -> None:
    types = pa.schema(
        [
            ("price", pa.decimal128(8, 2)),
            ("flag", pa.bool_()),
            ("name", pa.dictionary(pa.int32(), pa.string())),
            ("at", pa.timestamp("us")),
            ("n", pa.int8()),
        ]
    )
    names = ["n=7", "name=x", "flag=true", "price=1.50", "at=2013-01-02 03:04:05", "left=out"]
    nulls = [f"{key}={NULL}" for key in ("n", "name", "flag", "price", "at")]
    assert settle([spell("x", names), spell("y", nulls)], types, strict=True) == (
        types,
        [
            (decimal.Decimal("1.50"), True, "x", "2013-01-02 03:04:05", 7),
            (None, None, None, None, None),
        ],
    )


def test_nanoseconds_take_no_pandas() -> None:
    """Without pandas a scalar of nanoseconds has no Python value, and with it that has pandas imported."""
    text, types = "2013-01-02 03:04:05.123456789", pa.schema([("at", pa.timestamp("ns"))])
    spellings = [spell("x", [f"at={text}"]), spell("y", [f"at={NULL}"])]
    assert settle(spellings, types, strict=True) == (types, [(text,), (None,)])
    assert make_scalar(text, types[0].type).value == 1_357_095_845_123_456_789
    with pytest.raises(SchemaMismatchError, match="'soon' of 'at' is not of type"):
        settle([spell("x", ["at=soon"])], types, strict=True)


def test_two_zeros_are_two_values() -> None:
    paths = ["d/t=-0.0/f", "d/t=0.0/f"]
    store = DictStore({path: write_file(table(id=[at])) for at, path in enumerate(paths)})
    types = pa.schema([("t", pa.float64())])
    scan = accel.scan("d/", "t = 0", store=store, cache=None, partitioning=types)
    assert [math.copysign(1, row["t"]) for row in scan.to_table().to_pylist()] == [-1, 1]


@pytest.mark.parametrize(
    ("kind", "texts"),
    [
        pytest.param(
            pa.timestamp("us", "America/New_York"),
            ["2023-11-05T05:30:00Z", "2023-11-05T06:30:00Z"],
            id="hours that a clock set back shows alike",
        ),
        pytest.param(pa.timestamp("ns"), ["2023-11-05 05:30:00.123456789", "2023-11-05"], id="nanoseconds"),
        pytest.param(pa.timestamp("us"), ["0000-01-01", "9999-12-31"], id="moments of the year 0"),
        pytest.param(pa.date32(), ["0000-01-01", "9999-12-31"], id="days of the year 0"),
        pytest.param(pa.float64(), ["0.0", "-0.0"], id="zeros"),
    ],
)
def test_values_that_python_takes_for_one_or_has_none_for_stay_texts(
    kind: pa.DataType, texts: list[str]
) -> None:
    types = pa.schema([("k", kind)])
    spellings = [spell(text, [f"k={text}"]) for text in texts]
    assert settle(spellings, types, strict=True) == (types, [(text,) for text in texts])


@pytest.mark.parametrize("directory", ["k=\udcff", "\udcff=1"])
def test_a_directory_whose_name_is_not_utf_8_is_told(directory: str) -> None:
    assert spell("u", ["\udcff"]) == Spelling("u", (), ())
    with pytest.raises(SchemaMismatchError, match="not UTF-8.*partitioning=None"):
        spell("u", [directory])


@pytest.mark.parametrize(
    ("directories", "message"),
    [
        (["n=300"], "second: partition value '300' of 'n' is not of type int8"),
        (["n=x"], "second: partition value 'x' of 'n' is not of type int8"),
        (["n="], "second: partition value '' of 'n' is not of type int8"),
        (
            ["m=1"],
            "second: the path does not spell the partition key 'n' (`partitioning=None` reads the files ",
        ),
    ],
)
def test_a_value_that_does_not_fit_names_its_file(directories: list[str], message: str) -> None:
    spellings = [spell("first", ["n=1"]), spell("second", directories)]
    with pytest.raises(SchemaMismatchError) as caught:
        settle(spellings, pa.schema([("n", pa.int8())]), strict=True)
    assert str(caught.value).startswith(message)


ABOVE = "'k' is in the path, but of a folder only what is below it makes columns: name the folder above k=, or a pattern"
TYPES = "`partitioning=pyarrow.schema([('k', ...)])`"


@pytest.mark.parametrize(
    ("url", "source", "partitioning", "hint"),
    [
        pytest.param("t/k=1/f", "t/k=1", "hive", f"{ABOVE}, t/k=1/*", id="above the folder"),
        pytest.param("t/k=1/f", "t/k=1/", "hive", f"{ABOVE}, t/k=1/*", id="a slash at the end"),
        pytest.param("t/k=1/f", ["t/k=1"], "hive", f"{ABOVE}, t/k=1/*", id="a list of one folder"),
        pytest.param("t/k=1/f", Path("t/k=1"), "hive", f"{ABOVE}, t/k=1/*", id="a path of a folder"),
        pytest.param("t/k=1/n=2/f", "t/k=1", "hive", f"{ABOVE}, t/k=1/*", id="another key below the folder"),
        pytest.param(
            "t/k=1/f", ["t/k=1"], None, f"{ABOVE}, t/k=1/*, and give {TYPES}", id="and not asked for"
        ),
        pytest.param(
            "s3://u:secret@b/k=1/f",
            "s3://u:secret@b/k=1",
            "hive",
            f"{ABOVE}, s3://***@b/k=1/*",
            id="redacted",
        ),
        pytest.param(
            "t/k=1/f", "t/", None, f"'k' is in the path: {TYPES} makes it a column", id="not asked for"
        ),
        pytest.param(
            "t/k=1/f", "t/k=1/f", None, f"'k' is in the path: {TYPES} makes it a column", id="a file"
        ),
        pytest.param(
            "t/k=1/f",
            ["t/k=1/f", "t/f"],
            pa.schema([("n", pa.int64())]),
            f"'k' is in the path: {TYPES} makes it a column",
            id="others asked for",
        ),
        pytest.param(
            "t/k=1/f",
            ["t/k=1/f", "t/f"],
            "hive",
            "'k' is in this path, but not in those of all files",
            id="not in all",
        ),
        pytest.param("t/kk=1/f", "t/", None, None, id="another key"),
        pytest.param("t/k/f", "t/", None, None, id="no key"),
        pytest.param("t/k=1", "t/", None, None, id="a file of that name"),
    ],
)
def test_the_hint_where_a_missing_column_is_in_the_path(
    url: str, source: object, partitioning: object, hint: str | None
) -> None:
    assert hint_of_key("k", url, source=source, partitioning=partitioning) == hint  # type: ignore[arg-type]


def test_a_key_above_the_folder_that_types_ask_for() -> None:
    with pytest.raises(SchemaMismatchError) as caught:
        settle([spell("t/k=1/f", [])], pa.schema([("k", pa.int64())]), strict=True)
    assert str(caught.value) == f"t/k=1/f: the path does not spell the partition key 'k' ({ABOVE})"


# A key of the folders that is also a column of files: whose value it has, as docs/stores.md says.
ALONE: dict[str, Any] = {"a": pa.array([1])}
BOTH = ALONE | {"k": pa.array([9])}


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        pytest.param(ALONE, ALONE, [1, 2], id="no column"),
        pytest.param(BOTH, BOTH, [9, 9], id="a column of all"),
        pytest.param(BOTH, ALONE, [9, None], id="a column of the first"),
        pytest.param(ALONE, BOTH, [1, 2], id="a column of a later one"),
    ],
)
def test_whose_value(first: dict[str, Any], second: dict[str, Any], expected: list[int | None]) -> None:
    files = {"d/k=1/f.parquet": write_file(table(**first)), "d/k=2/f.parquet": write_file(table(**second))}
    store = DictStore(files)
    assert accel.scan("d/", store=store).to_table().column("k").to_pylist() == expected
    # What decides for a value decides for the filter.
    for value in (1, 2, 9):
        kept = accel.scan("d/", f"k = {value}", store=store).to_table().column("k").to_pylist()
        assert kept == [one for one in expected if one == value]
    assert accel.scan("d/", "k IS NULL", store=store).count_rows() == expected.count(None)


# What paths spell, from files to rows and back: values that Python cannot tell apart, bytes, names that are
# no text.
MONEY = b"k=caf\xe9"
"""As Latin-1 has it."""


def test_the_hour_that_a_clock_set_back_shows_twice() -> None:
    hours = ["2023-11-05T05:30:00Z", "2023-11-05T06:30:00Z"]
    store = DictStore({f"d/k={hour}/f": write_file(table(i=pa.array([i]))) for i, hour in enumerate(hours)})
    types = pa.schema([("k", pa.timestamp("us", "America/New_York"))])
    found = accel.scan("d/", partitioning=types, store=store).to_table()
    assert found["k"].cast(pa.int64()).to_pylist() == [1_699_162_200_000_000, 1_699_165_800_000_000]
    for i, hour in enumerate(hours):
        kept = accel.scan("d/", f"k = '{hour}'", partitioning=types, store=store).to_table()
        assert kept["i"].to_pylist() == [i]


@pytest.mark.parametrize(
    "kind",
    [pa.binary(), pa.large_binary(), pa.binary_view(), pa.binary(3), pa.dictionary(pa.int8(), pa.binary())],
)
def test_digits_of_bytes_are_no_number(kind: pa.DataType) -> None:
    store = DictStore({"d/k=007/f": write_file(table(i=pa.array([1])))})
    schema = pa.schema([("i", pa.int64()), ("k", kind)])
    assert accel.scan("d/", schema=schema, store=store).to_table()["k"].to_pylist() == [b"007"]
    assert accel.scan("d/", "k = '007'", schema=schema, store=store).count_rows() == 1


def write(path: bytes) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(write_file(table(i=pa.array([1]))))


def test_a_folder_whose_name_is_not_utf_8(tmp_path: Path) -> None:
    write(os.fsencode(tmp_path) + b"/" + MONEY + b"/f.parquet")
    with pytest.raises(accel.SchemaMismatchError, match="is not UTF-8"):
        accel.scan(f"{tmp_path}/").count_rows()
    assert accel.scan(f"{tmp_path}/", partitioning=None).count_rows() == 1


def test_a_file_whose_name_is_not_utf_8(tmp_path: Path) -> None:
    name = os.fsencode(tmp_path) + b"/caf\xe9.parquet"
    write(name)
    for source in (tmp_path, f"file://{tmp_path}/", f"file://{quote(name)}", f"file://{tmp_path}/caf%E9*"):
        assert accel.scan(source).to_table()["i"].to_pylist() == [1]
    plan = accel.plan(tmp_path)
    assert accel.scan(plan).count_rows() == 1
    with pytest.raises(accel.AccelError, match="not UTF-8"):
        pickle.dumps(plan)
