"""Files whose types differ: under every kind of index the rows, or the error, are those of a scan without
one."""

from __future__ import annotations

import datetime
import decimal
import itertools
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

import accel
from accel.testing import DictStore, Layout, write_file

INDEX = "t/_accel"
D = decimal.Decimal
WHEN = datetime.datetime(2024, 5, 1)

COLUMNS: dict[str, pa.Array] = {
    "null": pa.nulls(4),
    "int32": pa.array([1, None, 100, 7], pa.int32()),
    "int64": pa.array([1, None, 2**40, 7], pa.int64()),
    "negative": pa.array([-1, None, -(2**40), -7], pa.int64()),
    "uint64": pa.array([1, None, 2**63, 7], pa.uint64()),
    "float": pa.array([1.0, None, float("nan"), 7.5], pa.float32()),
    "double": pa.array([1.0, None, float("nan"), 1e300], pa.float64()),
    "decimal": pa.array([D("1.00"), None, D("7.25"), D("100")], pa.decimal128(20, 2)),
    "string": pa.array(["1", None, "text", "7"], pa.string()),
    "large_string": pa.array(["1", None, "text", "7"], pa.large_string()),
    "dictionary": pa.array(["1", None, "text", "7"]).dictionary_encode(),
    "binary": pa.array([b"1", None, b"text", b"7"], pa.binary()),
    "bool": pa.array([True, None, False, True]),
    "date": pa.array([WHEN.date(), None, WHEN.date(), WHEN.date()], pa.date32()),
    "timestamp": pa.array([WHEN, None, WHEN, WHEN], pa.timestamp("ms")),
    "timestamp_us": pa.array([WHEN, None, WHEN, WHEN], pa.timestamp("us")),
}
PREDICATES = {
    "number": ["c IS NOT NULL", "c IS NULL", "c = 7", "c > 1000000", "c IN (1, 3)", "other = 1"],
    "text": ["c IS NOT NULL", "c = 'text'", "c LIKE '%ext%'", "c < '1'", "other = 1"],
    "flag": ["c IS NOT NULL", "c", "other = 1"],
    "time": ["c IS NOT NULL", "c > '2024-06-01'", "c = '2024-05-01'", "other = 1"],
}
GROUPS = {
    "number": ["null", "int32", "int64", "negative", "uint64", "double"],
    "text": ["null", "string", "large_string", "binary"],
    "time": ["date", "timestamp", "timestamp_us"],
}
PAIRS = [
    *((group, a, b) for group, names in GROUPS.items() for a, b in itertools.permutations(names, 2)),
    *(("number", *pair) for pair in (("float", "double"), ("double", "int32"), ("decimal", "int32"))),
    ("number", "int32", "float"),
    ("text", "dictionary", "string"),
    *(("number", a, b) for a, b in itertools.permutations(("int64", "string", "bool", "date"), 2)),
]
KINDS = {"bounds": (), "every": ("keys", "distinct", "bloom", "ngram", "zonemap")}
# Files of other types than the first one's are left out, which is what this is about.
pytestmark = pytest.mark.filterwarnings("ignore:the index .* leaves out:UserWarning")


def build(store: DictStore, to: str, kinds: Sequence[str]) -> None:
    """Build an index of those kinds that the types of the files admit."""
    while True:
        try:
            accel.build_index("t/", to=to, indexes={"c": list(kinds)} if kinds else None, store=store)
        except accel.SchemaMismatchError as error:
            (refused,) = [kind for kind in kinds if repr(kind) in str(error)]
            kinds = [kind for kind in kinds if kind != refused]
        else:
            return


def outcome(call: Any) -> Any:
    try:
        return repr(call().to_pylist())
    except accel.AccelError as error:
        return type(error).__name__


@pytest.mark.parametrize(("group", "first", "later"), PAIRS)
def test_an_index_changes_no_outcome(group: str, first: str, later: str) -> None:
    names = [first, later, first]
    tables = [pa.table({"c": COLUMNS[name], "other": [at] * 4}) for at, name in enumerate(names)]
    store = DictStore({f"t/{at}.parquet": write_file(one, Layout()) for at, one in enumerate(tables)})
    for at, indexes in enumerate(KINDS.values()):
        build(store, f"{INDEX}{at}", indexes)
    kind = "text" if first in GROUPS["text"] and first != "null" else group
    kind = "time" if first in GROUPS["time"] else "flag" if first == "bool" else kind
    calls = {
        **{
            where: lambda where=where, **how: accel.scan("t/", where, **how).to_table()
            for where in PREDICATES[kind]
        },
        "projected": lambda **how: accel.scan(
            "t/", PREDICATES[kind][-1], columns=["other"], **how
        ).to_table(),
        "given": lambda **how: accel.scan(
            "t/", "c IS NOT NULL", schema=pa.schema([("c", COLUMNS[later].type)]), **how
        ).to_table(),
        "distinct": lambda **how: accel.distinct("t/", "c", **how),
        "aggregate": lambda **how: accel.scan("t/", **how).aggregate([("c", "count"), ("c", "max")]),
        "given count": lambda **how: accel.scan(
            "t/", schema=pa.schema([("c", COLUMNS[later].type)]), **how
        ).aggregate([("c", "count")]),
        "rows": lambda **how: accel.scan("t/", **how).aggregate([("*", "count")]),
    }
    for name, call in calls.items():
        expected = outcome(lambda call=call: call(store=store, index=None, cache=None))
        for at, listing in ((0, "store"), (1, "store"), (1, "index")):
            found = outcome(
                lambda call=call, at=at, listing=listing: call(
                    store=store, index=f"{INDEX}{at}", listing=listing, cache=None
                )
            )
            assert found == expected, (name, list(KINDS)[at], listing)
