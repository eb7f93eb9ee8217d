"""A scan's question put to files of several schemas."""

from __future__ import annotations

import dataclasses
import pickle
from typing import Any

import pyarrow as pa
import pytest

from accel.decode.arrow import file_schema
from accel.errors import SchemaMismatchError
from accel.planning.projection import project_schema
from accel.planning.query import FileQuery, Question, compile_query, constant_fields
from accel.predicate.where import to_expr
from accel.testing import write_file
from tests.support.file_steps import Bytes

STRUCT = pa.struct([("x", pa.int64()), ("y", pa.string())])
SCHEMA = pa.schema([("a", pa.int64()), ("s", STRUCT), ("l", pa.list_(pa.int64())), ("z", pa.string())])
"""Leaves: a 0, s.x 1, s.y 2, l 3, z 4."""


def ask(
    where: Any = None,
    columns: list[str] | None = None,
    *,
    schema: pa.Schema = SCHEMA,
    file: pa.Schema = SCHEMA,
    partition: dict[str, pa.Scalar] | None = None,
) -> FileQuery:
    partition = partition or {}
    data_set = pa.schema([*schema, *(pa.field(n, v.type) for n, v in partition.items())])
    handle = Bytes(write_file(file.empty_table())).open()
    question = Question(to_expr(where), data_set, project_schema(data_set, columns), tuple(partition))
    return compile_query(
        question,
        file_schema=handle.metadata.schema,
        arrow_schema=file_schema(handle.metadata.schema, handle.metadata.key_value),
        partition=partition,
        url="u",
    )


@pytest.mark.parametrize(
    ("columns", "leaves"),
    [
        (None, (0, 1, 2, 3, 4)),
        ([], ()),
        (["z", "a"], (0, 4)),
        (["s"], (1, 2)),
        (["s.y"], (2,)),
        (["s.y", "s.x"], (1, 2)),
        (["l"], (3,)),
    ],
)
def test_leaves_that_come_out(columns: list[str] | None, leaves: tuple[int, ...]) -> None:
    query = ask(columns=columns)
    assert (query.output_leaves, query.filter_leaves, query.bound) == (leaves, (), None)
    assert query.output == project_schema(SCHEMA, columns)


@pytest.mark.parametrize(
    ("where", "paths"),
    [
        ("a = 1", {("a",): (0,)}),
        ("a = 1 OR z = 'x' AND a < 5", {("a",): (0,), ("z",): (4,)}),
        ("s.x = 1", {("s", "x"): (1,)}),
        ("s IS NULL", {("s",): (1, 2)}),
        ("l IS NULL", {("l",): (3,)}),
    ],
)
def test_leaves_that_filter(where: str, paths: dict[tuple[str, ...], tuple[int, ...]]) -> None:
    query = ask(where, ["z"])
    assert dict(query.filter_paths) == paths
    assert query.filter_leaves == tuple(sorted({x for leaves in paths.values() for x in leaves}))
    assert (query.output_leaves, dict(query.constants)) == ((4,), {})


def test_what_the_file_lacks_is_null() -> None:
    query = ask("z = 'x' AND s.y IS NULL", ["z", "a"], file=pa.schema([("a", pa.int64())]))
    assert dict(query.filter_paths) == {}
    assert {path: (v.is_valid, v.type) for path, v in query.constants.items()} == {
        ("z",): (False, pa.string()),
        ("s", "y"): (False, pa.string()),
    }
    assert {n: (v.is_valid, v.type) for n, v in query.output_constants.items()} == {"z": (False, pa.string())}
    assert query.output_leaves == (0,)


def test_a_struct_that_lacks_what_is_wanted_gives_its_own_nulls() -> None:
    file = pa.schema([("s", pa.struct([("x", pa.int64())]))])
    assert ask(columns=["s.y"], file=file).output_leaves == (0,)
    assert dict(ask("s.y = 'a'", ["s"], file=file).constants).keys() == {("s", "y")}


def test_a_field_that_a_struct_in_a_struct_lacks_is_a_constant() -> None:
    whole = pa.struct([("u", pa.int64()), ("v", pa.struct([("w", pa.int64()), ("x", pa.string())]))])
    cut = pa.struct([("v", pa.struct([("w", pa.int8())])), ("own", pa.int8())])
    schema, file = (pa.schema([("s", pa.struct([("t", kind)]))]) for kind in (whole, cut))
    query = ask("s.t.u = 1 OR s.t.v.x = 'a' OR s.t.v.w = 3", [], schema=schema, file=file)
    assert query.bound is not None
    assert [(".".join(column.path), column.type) for column in query.bound.columns] == [
        ("s.t.u", pa.int64()),
        ("s.t.v.x", pa.string()),
        ("s.t.v.w", pa.int8()),
    ]
    assert dict(query.constants) == {
        ("s", "t", "u"): pa.scalar(None, pa.int64()),
        ("s", "t", "v", "x"): pa.scalar(None, pa.string()),
    }
    assert dict(query.filter_paths) == {("s", "t", "v", "w"): (0,)}


def test_partition_columns_are_constants() -> None:
    partition = {"p": pa.scalar(7, pa.int64())}
    query = ask("p = 7 AND a = 1", ["p", "a"], partition=partition)
    assert dict(query.constants) == {("p",): pa.scalar(7, pa.int64())}
    assert dict(query.output_constants) == {"p": pa.scalar(7, pa.int64())}
    assert (query.filter_leaves, query.output_leaves) == ((0,), (0,))


def test_a_partition_column_hides_the_files_own() -> None:
    """Where the first file had no such column."""
    partition = {"p": pa.scalar(7, pa.int64())}
    file = pa.schema([("a", pa.int64()), ("p", pa.string())])
    query = ask("p = 7", ["p"], schema=pa.schema([("a", pa.int64())]), file=file, partition=partition)
    assert (query.output_leaves, query.filter_leaves) == ((), ())
    assert query.output_constants["p"].as_py() == 7


def test_the_predicate_is_bound_to_the_files_own_types() -> None:
    query = ask("a = 1", [], file=pa.schema([("a", pa.int8())]))
    assert query.bound is not None
    assert [column.type for column in query.bound.columns] == [pa.int8()]


def test_a_column_that_is_conformed_has_no_metadata_to_ask() -> None:
    schema = pa.schema([("x", pa.duration("ms")), ("y", pa.int64())])
    file = pa.schema([("x", pa.duration("s")), ("y", pa.int8())])
    query = ask("x = 60000 AND y = 1", [], schema=schema, file=file)
    assert dict(query.conformed) == {("x",): pa.duration("ms")}
    assert query.prunable == ((("y",), 1, pa.int8()),)
    assert dict(query.filter_paths) == {("x",): (0,), ("y",): (1,)}
    with pytest.raises(SchemaMismatchError) as caught:
        ask("x = 60", [], schema=file, file=schema)
    assert caught.value.path == "u"


def test_types_that_do_not_fit_name_the_file() -> None:
    with pytest.raises(SchemaMismatchError) as caught:
        ask(columns=["a"], file=pa.schema([("a", pa.string())]))
    assert caught.value.path == "u"
    # Of no concern where the column is neither asked for nor compared.
    assert ask(columns=["z"], file=pa.schema([("a", pa.string())])).output_leaves == ()


PAIR = pa.struct([("x", pa.int32()), ("y", pa.int32())])


@pytest.mark.parametrize(
    ("meant", "file", "where", "message"),
    [
        (pa.int64(), pa.string(), "a = 1", "column 'a' is string here and int64"),
        (pa.int64(), pa.string(), "a IS NULL", "column 'a' is string here and int64"),
        (pa.duration("s"), pa.duration("ms"), "a IS NULL", "column 'a' is duration[ms] here and duration[s]"),
        (
            pa.uuid(),
            pa.binary(16),
            "a IS NULL",
            "column 'a' is fixed_size_binary[16] here and extension<arrow.uuid>",
        ),
        (pa.float64(), pa.decimal128(9, 0), "a = 1", "column 'a' is decimal128(9, 0) here and double"),
        (PAIR, pa.struct([("x", pa.int64())]), "a.x = 1", "column 'a.x' is int64 here and int32"),
        (PAIR, pa.int32(), "a.x IS NULL", f"column 'a' is int32 here and {PAIR}"),
    ],
    ids=str,
)
def test_a_predicate_over_a_type_that_does_not_fit(
    meant: pa.DataType, file: pa.DataType, where: str, message: str
) -> None:
    with pytest.raises(SchemaMismatchError) as caught:
        ask(where, [], schema=pa.schema([("a", meant)]), file=pa.schema([("a", file)]))
    hint = "give `schema=` with a type that holds both"
    assert str(caught.value) == f"u: {message} in the scan's schema ({hint})"


def test_a_predicate_over_a_field_beside_others_that_do_not_fit() -> None:
    file = pa.schema([("a", pa.struct([("x", pa.int16()), ("y", pa.string())]))])
    query = ask("a.x = 1", [], schema=pa.schema([("a", PAIR)]), file=file)
    assert dict(query.filter_paths) == {("a", "x"): (0,)}


@pytest.mark.parametrize(("where", "columns"), [(None, ["a"]), ("a = 1", [])])
def test_names_that_stand_for_two_columns_of_a_later_file(where: str | None, columns: list[str]) -> None:
    file = pa.schema([("a", pa.int64()), ("a", pa.int64()), ("z", pa.string())])
    with pytest.raises(SchemaMismatchError) as caught:
        ask(where, columns, file=file)
    assert str(caught.value) == (
        "u: the file has 2 columns named 'a' (name others in `columns=` and `where=`)"
    )
    assert ask("z = 'x'", ["z"], file=file).output_leaves == (2,)


def test_partition_values_in_the_data_sets_types() -> None:
    schema = pa.schema([("a", pa.int64()), ("p", pa.int16()), ("q", pa.string())])
    question = Question(None, schema, schema, ("p",))
    assert constant_fields(question, ["p", "q"], partition=[5, "x"]) == {"p": pa.scalar(5, pa.int16())}
    assert not constant_fields(question, ["p", "q"], partition=[None, "x"])["p"].is_valid


def compiled(question: Question, file: pa.Schema, handles: list[Any], at: int, **partition: Any) -> FileQuery:
    handle = handles[at]
    return compile_query(
        question,
        file_schema=handle.metadata.schema,
        arrow_schema=file.with_metadata({"of": str(at)}),
        partition={name: pa.scalar(value) for name, value in partition.items()},
        url=f"file {at}",
    )


def test_a_question_is_compiled_once_for_each_schema() -> None:
    file = pa.schema([("a", pa.int64())])
    data_set = pa.schema([("a", pa.int64()), ("b", pa.string()), ("p", pa.int64())])
    question = Question(to_expr("a = 1 AND b = 'x' AND p < 3"), data_set, data_set, ("p",))
    same = Bytes(write_file(file.empty_table())).open()
    other = Bytes(write_file(file.empty_table())).open()
    handles = [same, same, other]
    first = compiled(question, file, handles, 0)
    assert compiled(question, file, handles, 1) is first
    # Of an equal schema that is another object it is compiled anew, to the same.
    assert compiled(question, file, handles, 2) is not first
    assert compiled(question, file, handles, 2).bound == first.bound
    assert (first.constants, first.output_constants) == (
        {("b",): pa.scalar(None, pa.string()), ("p",): pa.scalar(None, pa.int64())},
        {"b": pa.scalar(None, pa.string()), "p": pa.scalar(None, pa.int64())},
    )
    # What the path spells is of each file.
    for value in (1, 2):
        query = compiled(question, file, handles, 0, p=value)
        assert (query.bound, query.filter_paths) == (first.bound, first.filter_paths)
        assert query.constants == {("b",): pa.scalar(None, pa.string()), ("p",): pa.scalar(value)}
        assert query.output_constants == {"b": pa.scalar(None, pa.string()), "p": pa.scalar(value)}
    assert compiled(question, file, handles, 0) is first


def test_what_was_compiled_is_of_one_question() -> None:
    file = pa.schema([("a", pa.int64()), ("b", pa.string())])
    handles = [Bytes(write_file(file.empty_table())).open()]
    question = Question(to_expr("a = 1"), file, file, ())
    first = compiled(question, file, handles, 0)
    counting = dataclasses.replace(question, output=pa.schema([]))
    assert compiled(counting, file, handles, 0).output_leaves == ()
    assert compiled(question, file, handles, 0) is first
    again = pickle.loads(pickle.dumps(question))
    assert again.output == question.output
    assert compiled(again, file, handles, 0) is not first


def test_a_file_of_the_same_parquet_schema_and_another_arrow_schema() -> None:
    """As after a writer that stores its Arrow schema came one that does not."""
    file = pa.schema([("a", pa.int64()), ("b", pa.string())])
    handles = [Bytes(write_file(file.empty_table())).open()]
    large = pa.schema([("a", pa.int64()), ("b", pa.large_string())])
    question = Question(to_expr("b = 'x'"), file, file, ())
    kinds = []
    for schema in (file, large, file):
        bound = compiled(question, schema, handles, 0).bound
        assert bound is not None
        kinds.append(bound.columns[0].type)
    assert kinds == [pa.string(), pa.large_string(), pa.string()]


def test_an_error_is_raised_for_every_file() -> None:
    file = pa.schema([("a", pa.string())])
    handles = [Bytes(write_file(file.empty_table())).open()] * 2
    question = Question(None, pa.schema([("a", pa.int64())]), pa.schema([("a", pa.int64())]), ())
    for at in range(2):
        with pytest.raises(SchemaMismatchError, match=f"file {at}"):
            compiled(question, file, handles, at)


def test_of_very_many_schemas_some_are_forgotten() -> None:
    file = pa.schema([("a", pa.int64())])
    question = Question(to_expr("a = 1"), file, file, ())
    handles = [Bytes(write_file(file.empty_table())).open() for _ in range(200)]
    found = [compiled(question, file, handles, at) for at in range(200)]
    assert len({id(query) for query in found}) == 200
    assert compiled(question, file, handles, 199) is found[199]
    assert compiled(question, file, handles, 0) is not found[0]


@pytest.mark.parametrize("columns", [None, ["z", "a"], ["s.y"], []])
def test_what_questions_share_is_what_each_would_find(columns: list[str] | None) -> None:
    """Of one result's schema object, asked with several predicates of files of several schemas, by turns."""
    output = project_schema(SCHEMA, columns)
    files = [SCHEMA, pa.schema([("z", pa.string()), ("s", STRUCT)]), pa.schema([SCHEMA.field(0)])]
    handles = [Bytes(write_file(file.empty_table())).open() for file in files]
    for where in (None, "a = 1", "z = 'x' OR s.x IS NULL"):
        for handle in (*handles, handles[0]):
            found = [
                compile_query(
                    Question(None if where is None else to_expr(where), SCHEMA, schema, ()),
                    file_schema=handle.metadata.schema,
                    arrow_schema=file_schema(handle.metadata.schema, handle.metadata.key_value),
                    partition={},
                    url="u",
                )
                for schema in (output, project_schema(SCHEMA, columns))  # the second is a new object
            ]
            shared, fresh = ({f: getattr(q, f) for f in FileQuery.__match_args__} for q in found)
            assert shared == fresh


def test_the_mark_of_a_question_is_that_of_its_predicate() -> None:
    def mark(text: str | None) -> int | None:
        where = to_expr(text)
        return Question(where, pa.schema([]), pa.schema([]), ()).compiled.mark(where)

    assert mark("a = 1") == mark("a = 1") == mark(" a  = 1")
    assert len({mark(text) for text in ("a = 1", "a = 2", "b = 1", "a <> 1", "a IN (1, 2)", None)}) == 6
    # One that takes long to be looked through has none.
    assert mark(f"a IN ({', '.join(map(str, range(6000)))})") is None
