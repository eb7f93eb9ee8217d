"""Keys of what is asked: equal ones for one question, and no two questions share one."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from accel.planning.evolution import NO_EVOLUTION, Evolution, FieldDefaults
from accel.planning.promotion import Promotion
from accel.planning.query import FileQuery, Question
from accel.planning.question_keys import predicate_key, rows_key
from accel.planning.selection import RowSelection
from accel.predicate.bind import bind
from accel.predicate.where import to_expr

RESULT = pa.schema({"a": pa.int64(), "b": pa.string()})
SCHEMA = pa.schema(
    {
        "i": pa.int64(),
        "small": pa.int32(),
        "f": pa.float64(),
        "s": pa.string(),
        "b": pa.binary(),
        "d": pa.decimal128(9, 2),
        "t": pa.timestamp("us"),
        "z": pa.timestamp("us", "UTC"),
    }
)


def query(where: Any, **changed: Any) -> FileQuery:
    fields: dict[str, Any] = {
        "bound": None if where is None else bind(to_expr(where), changed.pop("schema", SCHEMA)),
        "filter_paths": {},
        "constants": {},
        "output": pa.schema([]),
        "output_leaves": (),
        "filter_leaves": (),
        "output_constants": {},
        "prunable": (),
    }
    return FileQuery(**{**fields, **changed})


def key_of(of: FileQuery, int96_unit: str) -> bytes | None:
    """The predicate's key for a file that this question is compiled for."""
    question = Question(None, SCHEMA, SCHEMA, ())
    file: Any = SimpleNamespace(query=of, int96_unit=int96_unit, question=question)
    return predicate_key(file)


def test_predicates_that_select_other_rows_have_other_keys() -> None:
    texts = [
        "i = 1",
        "i = 2",
        "i <> 1",
        "i < 1",
        "i <= 1",
        "small = 1",
        "f = 1",
        "f = 1.5",
        "f = -0.0",
        "f < 0.0",
        "s = '1'",
        "s = ' 1'",
        "s LIKE '1%'",
        "s LIKE '1_'",
        "s LIKE '%1'",
        "b = X'31'",
        "d = 1.00",
        "d = 1.01",
        "t = TIMESTAMP '2020-01-01'",
        "t = TIMESTAMP '2020-01-01 00:00:00.000001'",
        "z = TIMESTAMP '2020-01-01'",
        "i IS NULL",
        "i IS NOT NULL",
        "NOT (i = 1)",
        "i = 1 AND small = 1",
        "i = 1 OR small = 1",
        "i IN (1, 2)",
        "i IN (1, 3)",
        "i = small",
        "i < small",
    ]
    keys = {text: key_of(query(text), "ns") for text in texts}
    assert None not in keys.values()
    same = [(a, b) for a, b in itertools.combinations(texts, 2) if keys[a] == keys[b]]
    # Without nulls or NaN in the way these are the same atoms.
    assert same == [("i <> 1", "NOT (i = 1)")]
    assert keys == {text: key_of(query(text), "ns") for text in texts}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({}, {"constants": {("month",): pa.scalar(7)}}),
        ({"constants": {("month",): pa.scalar(7)}}, {"constants": {("month",): pa.scalar(8)}}),
        (
            {"constants": {("month",): pa.scalar(7)}},
            {"constants": {("month",): pa.scalar(7, pa.int32())}},
        ),
        ({"constants": {("month",): pa.scalar(7)}}, {"constants": {("month",): pa.scalar(None, pa.int64())}}),
        (
            {"constants": {("p",): pa.scalar("a" * 60 + "b")}},
            {"constants": {("p",): pa.scalar("a" * 60 + "c")}},
        ),
        (
            {"constants": {("p",): pa.scalar(1, pa.timestamp("ns"))}},
            {"constants": {("p",): pa.scalar(2, pa.timestamp("ns"))}},
        ),
        ({"conformed": {("i",): pa.float64()}}, {}),
        ({"conformed": {("i",): pa.float64()}}, {"conformed": {("i",): pa.int64()}}),
        ({}, {"schema": SCHEMA.set(0, pa.field("i", pa.int32()))}),
    ],
    ids=[
        "none",
        "value",
        "width",
        "null",
        "text",
        "nanoseconds",
        "conformed",
        "conformed to",
        "the file's type",
    ],
)
def test_what_else_says_which_rows_match_is_in_the_key(one: dict[str, Any], other: dict[str, Any]) -> None:
    keys = [key_of(query("i = 1", **changed), "ns") for changed in (one, dict(one), other)]
    assert None not in keys
    assert keys[0] == keys[1]
    assert keys[0] != keys[2]


def test_the_unit_of_int96_is_in_the_key() -> None:
    asked = query("i = 1")
    assert key_of(asked, "ns") != key_of(asked, "us")


def test_what_is_no_predicate_or_a_long_one_has_no_key() -> None:
    assert key_of(query(None), "ns") is None
    assert key_of(query(f"i IN ({', '.join(map(str, range(0, 9000, 7)))})"), "ns") is None


class Task:
    """Of a `ScanTask` what a key is made of."""

    def __init__(
        self,
        row_group: int,
        *,
        int96_unit: str = "ns",
        where: str | None = None,
        first_row: int = 0,
        evolution: Evolution = NO_EVOLUTION,
        **asked: Any,
    ) -> None:
        self.query = query(where, **{"output": RESULT, "output_leaves": (0, 1), **asked})
        self.int96_unit = int96_unit
        self.question = Question(None, SCHEMA, RESULT, (), evolution=evolution)
        self.first_row = first_row
        self.row_group, self.file = row_group, self


def key(
    *,
    row_group: int = 1,
    rows: Any = ((3, 4), (7, 9)),
    certain: Any = None,
    batch_rows: int = 100,
    **asked: Any,
) -> tuple[bytes, ...] | None:
    task: Any = Task(row_group, **asked)
    task.rows = RowSelection.of(rows)
    task.certain = task.rows if certain is None else RowSelection.of(certain)
    return rows_key(task, batch_rows=batch_rows)


def test_the_same_question_has_one_key() -> None:
    assert key() == key()
    constants = {"year": pa.scalar(2013, pa.int32()), "none": pa.scalar(None, pa.string())}
    assert key(output_constants=constants) == key(output_constants=dict(constants))


OTHERS: dict[str, dict[str, Any]] = {
    "row group": {"row_group": 2},
    "rows": {"rows": ((3, 4), (7, 10))},
    "rows, as many": {"rows": ((3, 5), (7, 8))},
    "none": {"rows": ()},
    "rows of a batch": {"batch_rows": 10},
    "unit": {"int96_unit": "us"},
    "columns": {"output": pa.schema({"a": pa.int64()}), "output_leaves": (0,)},
    "columns of one name": {"output_leaves": (0, 2)},
    "order": {"output": pa.schema({"b": pa.string(), "a": pa.int64()})},
    "type": {"output": pa.schema({"a": pa.int32(), "b": pa.string()})},
    "nullable": {"output": pa.schema([pa.field("a", pa.int64(), nullable=False), ("b", pa.string())])},
    "metadata": {"output": RESULT.with_metadata({"k": "v"})},
    "metadata of a field": {
        "output": pa.schema([pa.field("a", pa.int64(), metadata={"k": "v"}), ("b", pa.string())])
    },
    "value of the path": {"output_constants": {"year": pa.scalar(2013)}},
    "another value of it": {"output_constants": {"year": pa.scalar(2014)}},
    "its type": {"output_constants": {"year": pa.scalar(2013, pa.int32())}},
    "null": {"output_constants": {"year": pa.scalar(None, pa.int64())}},
    "number of the first row": {"first_row": 7},
    "changes of types": {"evolution": Evolution(Promotion.SQL)},
    "a default": {"evolution": Evolution(defaults=FieldDefaults({("a", "b"): pa.scalar(1)}))},
    "another default": {"evolution": Evolution(defaults=FieldDefaults({("a", "b"): pa.scalar(2)}))},
    "what nulls stand for": {"coalesced": {"a": pa.scalar(1)}},
    "another value of that": {"coalesced": {"a": pa.scalar(2)}},
}


def test_every_other_question_has_another() -> None:
    keys = [key(), *(key(**asked) for asked in OTHERS.values())]
    assert None not in keys
    assert len(set(keys)) == 1 + len(OTHERS)


IN_DOUBT: dict[str, dict[str, Any]] = {
    "predicate": {"where": "i = 2"},
    "its column": {"where": "small = 1"},
    "column of the path": {"constants": {("month",): pa.scalar(7)}},
    "the file's type": {"schema": SCHEMA.set(0, pa.field("i", pa.int32()))},
    "conformed": {"conformed": {("i",): pa.float64()}},
    "some are certain": {"certain": ((3, 4),)},
    "others are": {"certain": ((7, 8),)},
    "as many others": {"certain": ((8, 9),)},
    "all are": {"certain": None},
    "rows": {"rows": ((3, 4), (7, 10))},
    "result": {"output_leaves": (0, 2)},
}


def test_of_rows_in_doubt_the_predicate_is_in_the_key() -> None:
    asked: dict[str, Any] = {"where": "i = 1", "certain": ()}
    keys = [key(**asked), *(key(**{**asked, **other}) for other in IN_DOUBT.values())]
    assert None not in keys
    assert keys[0] == key(**asked)
    assert len(set(keys)) == 1 + len(IN_DOUBT)


def test_of_rows_that_are_sure_it_is_not() -> None:
    assert key(where="i = 1") == key(where="i = 2") == key()


def test_a_long_predicate_has_no_key_where_rows_are_in_doubt() -> None:
    long = f"i IN ({', '.join(map(str, range(0, 9000, 7)))})"
    assert key(where=long, certain=((3, 4),)) is None
    assert key(where=long) == key()


class Mine(pa.ExtensionType):  # type: ignore[misc]
    """A type whose pickle cannot be read, as its class is not to be found."""

    def __init__(self) -> None:
        super().__init__(pa.int64(), "mine")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage: pa.DataType, serialized: bytes) -> Mine:
        return cls()

    def __reduce__(self) -> Any:
        raise TypeError("not this one")


def test_what_does_not_pickle_has_no_key() -> None:
    constant = pa.ExtensionArray.from_storage(Mine(), pa.array([None], pa.int64()))[0]
    assert key(output_constants={"year": constant}) is None
    assert key(where="i = 1", certain=(), constants={("p",): constant}) is None
    assert key_of(query("i = 1", constants={("p",): constant}), "ns") is None


def test_an_extension_type_is_not_its_storage() -> None:
    """Serialized they are the same bytes."""
    metadata = {"ARROW:extension:metadata": "", "ARROW:extension:name": "arrow.json"}
    text = pa.schema([pa.field("b", pa.string(), metadata=metadata)])
    json = pa.schema([pa.field("b", pa.json_())])
    assert text.serialize().to_pybytes() == json.serialize().to_pybytes()
    assert key(output=text) != key(output=json)


def test_rows_of_many_bounds_have_no_key() -> None:
    few = [(2 * at, 2 * at + 1) for at in range(1024)]
    assert key(rows=few) is not None
    assert key(rows=[(2 * at, 2 * at + 1) for at in range(2000)]) is None
