"""What users get wrong, and what they are told: the class, the file, the place, the hint."""

from __future__ import annotations

import asyncio
import inspect
import io
import os
import pickle
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import accel
from accel.scanning.spec import check_arguments, is_planned, is_stream
from accel.store.request_errors import EmptyObjectError
from accel.testing import DictStore, table, write_file

GOOD = write_file(table(id=[1, 2, 3], name=["a", "b", "c"], price=[1.5, 2.5, None]))
SECRET = "https://host/data/f.parquet?X-Amz-Signature=SECRET"


@pytest.fixture(scope="module")
def store() -> DictStore:
    return DictStore(
        {
            "good.parquet": GOOD,
            "text.parquet": b"id,name\n1,a\n2,b\n3,c\n",
            "cut.parquet": GOOD[:-20],
            "empty.parquet": b"",
            "dir/_SUCCESS": b"",
            "sub/a.parquet": GOOD,
        }
    )


def batches(*names: str) -> Iterator[pa.RecordBatch]:
    return iter([pa.RecordBatch.from_arrays([pa.array(["good.parquet"])] * len(names), names=list(names))])


Ask = Callable[[DictStore], object]


def scan(*args: Any, **keywords: Any) -> Ask:
    return lambda store: accel.scan(*args, store=store, cache=None, **keywords).to_table()


MISTAKES = {
    "typo in columns": (
        scan("good.parquet", columns=["id", "nmae"]),
        accel.ColumnNotFoundError,
        "good.parquet: there is no column 'nmae' (did you mean 'name'?)",
    ),
    "another case in columns": (
        scan("good.parquet", columns=["ID"]),
        accel.ColumnNotFoundError,
        "good.parquet: there is no column 'ID' (did you mean 'id'?)",
    ),
    "a path into what is no struct": (
        scan("good.parquet", columns=["name.first"]),
        accel.ColumnNotFoundError,
        "good.parquet: there is no column 'name.first' ('name' is string: a dotted path goes through structs only)",
    ),
    "a column twice": (
        scan("good.parquet", columns=["id", "id"]),
        ValueError,
        "column 'id' is asked for twice",
    ),
    "columns as text": (
        scan("good.parquet", columns="id"),
        TypeError,
        "columns is a list of names, not the string 'id': write ['id']",
    ),
    "a star for columns": (
        scan("good.parquet", columns="*"),
        TypeError,
        "columns is a list of names, not '*': None takes all",
    ),
    "a column by number": (
        scan("good.parquet", columns=[1]),
        TypeError,
        "a column is named by a string, not 1",
    ),
    "typo in where": (
        scan("good.parquet", "id > 1 AND nmae = 'a'"),
        accel.ColumnNotFoundError,
        "good.parquet: no column 'nmae' (did you mean 'name'?)",
    ),
    "a literal of the wrong type": (
        scan("good.parquet", "name = 'a' AND id = 'x'"),
        accel.PredicateError,
        (
            "good.parquet: column 'id' (int64) cannot be compared with 'x' (write a number, without quotes)\n"
            "  name = 'a' AND id = 'x'\n"
            "                      ^"
        ),
    ),
    "a column that is no condition": (
        scan("good.parquet", "id > 1 OR name"),
        accel.PredicateError,
        (
            "good.parquet: column 'name' (string) is not boolean and is no predicate alone "
            "(compare it with something)\n"
            "  id > 1 OR name\n"
            "            ^"
        ),
    ),
    "the same without text": (
        scan("good.parquet", [("id", "=", "x")]),
        accel.PredicateError,
        "good.parquet: column 'id' (int64) cannot be compared with 'x' (write a number, without quotes)",
    ),
    "a missing file": (
        scan("nope.parquet"),
        accel.ObjectNotFoundError,
        "nope.parquet: no such object",
    ),
    "a missing file among others": (
        scan(["good.parquet", "nope.parquet"]),
        accel.ObjectNotFoundError,
        "nope.parquet: no such object",
    ),
    "a missing directory": (
        scan("nope/"),
        accel.ObjectNotFoundError,
        "nope/: the directory holds no data file (names that begin with _ or . and empty markers do not count)",
    ),
    "a directory without data": (
        scan("dir/"),
        accel.ObjectNotFoundError,
        "dir/: the directory holds no data file (names that begin with _ or . and empty markers do not count)",
    ),
    "a pattern that matches nothing": (
        scan("sub/*.csv"),
        accel.ObjectNotFoundError,
        "sub/*.csv: nothing matches the pattern (an object whose name holds *, ? or [ is named with `glob=False`)",
    ),
    "no files at all": (
        scan([]),
        accel.ObjectNotFoundError,
        "the source names no files",
    ),
    "an empty file": (
        scan("empty.parquet"),
        EmptyObjectError,  # a ParquetFormatError
        "empty.parquet: the file is empty",
    ),
    "what is no source": (
        scan(42),
        TypeError,
        "a int is no source: give a path or URL, a list of them, or a Plan",
    ),
    "a source that is None in a list": (
        scan(["good.parquet", None]),
        TypeError,
        "a source is a path, a URL, or a list of these, not a NoneType",
    ),
    "a limit below zero": (
        scan("good.parquet", limit=-1),
        ValueError,
        "limit is a non-negative int, not -1",
    ),
    "a limit that is a flag": (
        scan("good.parquet", limit=True),
        ValueError,
        "limit is a non-negative int, not True",
    ),
    "a schema that is none": (
        scan("good.parquet", schema={"id": "int64"}),
        TypeError,
        'schema is a pyarrow.Schema or "union", not a dict',
    ),
    "an unknown partitioning": (
        scan("good.parquet", partitioning="directory"),
        ValueError,
        "partitioning is 'auto', 'hive', None, or a pyarrow.Schema, not 'directory'",
    ),
    "partitions of an iterator by their looks": (
        scan(batches("path"), partitioning="hive"),
        ValueError,
        (
            "partitioning='hive' is not for an iterator, which shows some of the paths at a time: give the keys and "
            "their types, partitioning=pyarrow.schema([...])"
        ),
    ),
    "a selection of an unknown file": (
        scan("good.parquet", selection={"god.parquet": {0: [(0, 1)]}}),
        ValueError,
        "selection names 'god.parquet', which is not among the files of the scan; did you mean 'good.parquet'?",
    ),
    "a selection by a presigned URL": (
        scan("good.parquet", selection={SECRET: {0: [(0, 1)]}}),
        ValueError,
        (
            "selection names 'https://host/data/f.parquet?X-Amz-Signature=***', "
            "which is not among the files of the scan"
        ),
    ),
    "a selection that is a list": (
        scan("good.parquet", selection=["good.parquet"]),
        TypeError,
        "selection is a mapping of files to row groups to row ranges, not a list",
    ),
    "a selection without row groups": (
        scan("good.parquet", selection={"good.parquet": [(0, 1)]}),
        TypeError,
        "selection['good.parquet'] is a mapping of row groups to row ranges, not [(0, 1)]",
    ),
    "a selection of a named row group": (
        scan("good.parquet", selection={"good.parquet": {"0": [(0, 1)]}}),
        TypeError,
        "selection['good.parquet'] has a row group '0', which is not an int",
    ),
    "a selection of numbers": (
        scan("good.parquet", selection={"good.parquet": {0: [1, 2]}}),
        ValueError,
        (
            "selection['good.parquet'][0] is a list of (start, stop) with 0 <= start <= stop: "
            "cannot unpack non-iterable int object"
        ),
    ),
    "a selection backwards": (
        scan("good.parquet", selection={"good.parquet": {0: [(2, 1)]}}),
        ValueError,
        (
            "selection['good.parquet'][0] is a list of (start, stop) with 0 <= start <= stop: "
            "a row range is negative or ends before it starts"
        ),
    ),
    "where that is no predicate": (
        scan("good.parquet", 42),
        accel.PredicateError,
        "a int is no predicate (give text, a list of (name, op, value), or accel.col(name) compared with something)",
    ),
    "where beside a plan": (
        lambda store: accel.scan(accel.plan("good.parquet", store=store), "id = 1", store=store),
        ValueError,
        "where: a plan has its own; plan again with them",
    ),
    "columns and selection beside tasks": (
        lambda store: accel.scan(
            list(accel.plan("good.parquet", store=store).tasks), columns=["id"], selection={}, store=store
        ),
        ValueError,
        "columns, selection: a plan has its own; plan again with them",
    ),
    "partitioning beside a plan": (
        lambda store: accel.scan(accel.plan("good.parquet", store=store), partitioning=None, store=store),
        ValueError,
        "partitioning: a plan has its own; plan again with them",
    ),
    "partitioning beside a stream of tasks": (
        lambda store: accel.scan(
            iter(accel.plan("good.parquet", store=store)),
            partitioning=pa.schema([("month", pa.int32())]),
            store=store,
        ).to_table(),
        ValueError,
        "partitioning: a plan has its own; plan again with them",
    ),
    "schema and embedded beside a stream of tasks": (
        lambda store: accel.scan(
            iter(accel.plan("good.parquet", store=store).to_arrow().to_batches()),
            schema=pa.schema([("id", pa.string())]),
            embedded={"id": "idx1"},
            store=store,
        ).to_table(),
        ValueError,
        "schema, embedded: a plan has its own; plan again with them",
    ),
    "embedded for no column": (
        lambda store: accel.scan("good.parquet", embedded={"idd": "idx1"}, store=store).to_table(),
        accel.ColumnNotFoundError,
        "good.parquet: no column 'idd' (did you mean 'id'?)",
    ),
    "embedded for what is no name": (
        scan("good.parquet", embedded={1: "idx1"}),
        ValueError,
        (
            "embedded names the one column that the files' IDX1 index covers, as in {'category': 'idx1'}, "
            "not {1: 'idx1'}"
        ),
    ),
    "batches without a path": (
        scan(batches("file", "size")),
        ValueError,
        "record batches to scan have a `path` column, or are tasks of a plan; these have ['file', 'size']",
    ),
    "batches with paths that are missing": (
        scan(iter([pa.RecordBatch.from_arrays([pa.array([None, "x"])], names=["path"])])),
        ValueError,
        "the `path` column of the record batches to scan holds other than text",
    ),
    "an iterator of names": (
        scan(iter(["good.parquet"])),
        TypeError,
        "the iterator gives a str, not record batches; give paths as a list",
    ),
    "an open file": (
        scan(io.BytesIO(GOOD)),
        TypeError,
        (
            "a BytesIO is no source: give a path or URL, a list of them, or a Plan; "
            "bytes can be an object of an obstore MemoryStore"
        ),
    ),
    "bytes": (
        scan(GOOD),
        TypeError,
        (
            "a bytes is no source: give a path or URL, a list of them, or a Plan; "
            "bytes can be an object of an obstore MemoryStore"
        ),
    ),
    "a set of paths": (
        scan({"good.parquet"}),
        TypeError,
        "a set is no source: give a path or URL, a list of them, or a Plan; sorted makes a list of a set",
    ),
    "an array of paths": (
        scan(np.array(["good.parquet"])),
        TypeError,
        "a ndarray is no source: give a path or URL, a list of them, or a Plan; its tolist() makes a list",
    ),
    "a data set of pyarrow": (
        scan(type("FileSystemDataset", (), {"files": ["good.parquet"]})()),
        TypeError,
        (
            "a FileSystemDataset is no source: give a path or URL, a list of them, or a Plan; "
            "its .files are such a list"
        ),
    ),
    "a table": (
        scan(table(id=[1])),
        TypeError,
        (
            "a Table is no source: give a path or URL, a list of them, or a Plan; "
            "tasks in a table are read by accel.Plan.from_arrow"
        ),
    ),
    "columns to rename": (
        scan("good.parquet", columns={"id": "key"}),
        TypeError,
        "columns is a list of names, not a dict",
    ),
    "columns in no order": (
        scan("good.parquet", columns={"id", "name"}),
        TypeError,
        "columns is a list of names, not a set",
    ),
    "columns that are an expression": (
        scan("good.parquet", columns=accel.col("id")),
        TypeError,
        "columns is a list of names, not a ColumnExpr",
    ),
    "an order by a column": (
        scan("good.parquet", order="price"),
        TypeError,
        "order is True or False, not 'price'",
    ),
    "a pattern for glob": (
        scan("good.parquet", glob="*.parquet"),
        TypeError,
        "glob is True or False, not '*.parquet'",
    ),
    "an iterator of paths": (
        scan(iter([Path("good.parquet")])),
        TypeError,
        "the iterator gives a PosixPath, not record batches; give paths as a list",
    ),
    "braces": (
        scan("sub/{a,b}*.parquet"),
        accel.ObjectNotFoundError,
        (
            "sub/{a,b}*.parquet: nothing matches the pattern (an object whose name holds *, ? or [ is named "
            "with `glob=False`; braces are not expanded, a list of patterns is taken)"
        ),
    ),
    "an option that the environment lacks": (
        lambda store: accel.scan("s3://bucket/x", storage_options={"region": None}).to_table(),
        accel.StoreError,
        "storage option 'region' is None (leave it out to have the environment's)",
    ),
    "options in a dict": (
        scan("good.parquet", options={"batch_rows": 10}),
        TypeError,
        "options is an accel.Options, not a dict",
    ),
    "options of an embedding in a dict": (
        lambda store: accel.embed("good.parquet", "b.parquet", indexes={}, store=store, options={}),  # type: ignore[arg-type]
        TypeError,
        "options is an accel.Options, not a dict",
    ),
    "options of a file to write in a dict": (
        lambda store: accel.write_table(table(id=[1]), "b.parquet", store=store, options={}),  # type: ignore[arg-type]
        TypeError,
        "options is an accel.Options, not a dict",
    ),
    "a field as partitioning": (
        scan("good.parquet", partitioning=pa.field("id", pa.int64())),
        ValueError,
        "partitioning is 'auto', 'hive', None, or a pyarrow.Schema, not pyarrow.Field<id: int64>",
    ),
    "a bar for progress": (
        lambda store: accel.embed("good.parquet", indexes={}, store=store, progress=True),  # type: ignore[arg-type]
        TypeError,
        "progress is something to call, not a bool",
    ),
    "a dry run by text": (
        lambda store: accel.embed("good.parquet", indexes={}, store=store, dry_run="no"),  # type: ignore[arg-type]
        TypeError,
        "dry_run is True or False, not 'no'",
    ),
    "tasks as rows": (
        lambda store: accel.Plan.from_arrow(accel.plan("good.parquet", store=store).to_arrow().to_pylist()),
        TypeError,
        "tasks come as a pyarrow.Table or RecordBatch, not as a list",
    ),
    "a Spark schema of a scan": (
        lambda store: accel.spark.spark_ddl(accel.scan("good.parquet", store=store)),
        TypeError,
        "this takes a pyarrow.Schema, such as scan.schema, not a Scan",
    ),
    "a Spark session that there is not": (
        lambda store: accel.spark.read(None, "good.parquet", store=store),  # type: ignore[arg-type]
        TypeError,
        "the first argument is a SparkSession, not a NoneType",
    ),
    "no cache by False": (
        lambda store: accel.scan("good.parquet", store=store, cache=False),  # type: ignore[arg-type]
        TypeError,
        "cache is an accel.Cache, or None for none, not False",
    ),
    "a directory for a cache": (
        lambda store: accel.plan("good.parquet", store=store, cache="metadata"),
        TypeError,
        "cache is an accel.Cache, or None for none, not 'metadata'",
    ),
    "text in double quotes": (
        scan("good.parquet", 'name = "xyz"'),
        accel.ColumnNotFoundError,
        "good.parquet: no column 'xyz' (there are: id, name, price; text stands in single quotes: 'xyz')",
    ),
    "a column of another file": (
        scan(["good.parquet", "good.parquet"], "later = 1"),
        accel.ColumnNotFoundError,
        (
            "good.parquet: no column 'later' (there are: id, name, price; text stands in single quotes: 'later'; "
            'the columns are those of the first file, `schema="union"` takes those of all)'
        ),
    ),
    "a column that is misspelt, of several files": (
        scan(["good.parquet", "good.parquet"], "nam = 'x'"),
        accel.ColumnNotFoundError,
        "good.parquet: no column 'nam' (did you mean 'name'?)",
    ),
    "a whole statement": (
        scan("good.parquet", "SELECT * FROM good WHERE id = 1"),
        accel.PredicateError,
        (
            "unexpected character '*' (give the condition alone, without SELECT or WHERE)\n"
            "  SELECT * FROM good WHERE id = 1\n"
            "         ^"
        ),
    ),
    "a number in quotes": (
        scan("good.parquet", "id = '5'"),
        accel.PredicateError,
        (
            "good.parquet: column 'id' (int64) cannot be compared with '5' (write a number, without quotes)\n"
            "  id = '5'\n"
            "       ^"
        ),
    ),
    "a list of texts": (
        scan("good.parquet", ["id = 1", "price > 1"]),
        accel.PredicateError,
        (
            "expected terms (name, op, value) in a filter list, found 'id = 1' "
            "(join conditions by AND in one text, or by & and | where they are of accel.col)"
        ),
    ),
    "a scan to pickle": (
        lambda store: pickle.dumps(accel.scan("good.parquet", store=store)),
        TypeError,
        "a scan does not pickle: pickle accel.plan(...), or functools.partial(accel.scan, ...)",
    ),
    "a clause": (
        scan("good.parquet", "where id = 1"),
        accel.PredicateError,
        (
            "expected AND, OR or the end, found id (give the condition alone, without SELECT or WHERE)\n"
            "  where id = 1\n"
            "        ^"
        ),
    ),
    "a list in brackets": (
        scan("good.parquet", "id IN [1, 2]"),
        accel.PredicateError,
        (
            "unexpected character '[' (a field of a struct is written a.b; a list stands in parentheses, as in IN (1, 2); "
            'names are quoted with double quotes: "a name")\n'
            "  id IN [1, 2]\n"
            "        ^"
        ),
    ),
    "options in a URL": (
        scan("s3://bucket/x.parquet?region=eu-west-1"),
        accel.ObjectNotFoundError,
        (
            "s3://bucket/x.parquet?region=***: nothing matches the pattern (an object whose name holds *, ? or [ "
            "is named with `glob=False`; options are no part of a URL, but given by `storage_options`)"
        ),
    ),
    "a limit to plan": (
        lambda store: accel.plan("good.parquet", store=store, limit=3),
        TypeError,
        "plan() takes no limit",
    ),
    "an order to plan": (
        lambda store: asyncio.run(accel.plan_async("good.parquet", store=store, order=False)),
        TypeError,
        "plan_async() takes no order",
    ),
    "first rows in an order to plan": (
        lambda store: accel.plan("good.parquet", store=store, order_by="id desc"),
        TypeError,
        (
            "plan() takes no order_by: accel.scan(source, where, order_by=..., limit=n) reads the first rows "
            "alone; of a DataFrame, df.orderBy(...).limit(n) reads all that pass its filters"
        ),
    ),
    "columns of distinct values": (
        lambda store: accel.distinct("good.parquet", "id", store=store, columns=["id"]),
        TypeError,
        "distinct() takes no columns",
    ),
    "a keyword that is misspelt": (
        lambda store: accel.plan("good.parquet", store=store, colums=["id"]),
        TypeError,
        "plan() got an unexpected keyword argument 'colums': did you mean columns=?",
    ),
    "pyarrow's name of the predicate": (
        lambda store: accel.scan("good.parquet", store=store, filters=[("id", "=", 1)]),
        TypeError,
        "scan() got an unexpected keyword argument 'filters': did you mean where=?",
    ),
    "pyarrow's name of the store": (
        lambda store: accel.scan("good.parquet", filesystem=store),
        TypeError,
        "scan() got an unexpected keyword argument 'filesystem': did you mean store= or storage_options=?",
    ),
    "a keyword that is nothing here": (
        lambda store: accel.scan("good.parquet", store=store, use_threads=True),
        TypeError,
        "scan() got an unexpected keyword argument 'use_threads'",
    ),
    "head of less than nothing": (
        lambda store: accel.scan("good.parquet", store=store).head(-1),
        ValueError,
        "a number of rows is a non-negative int, not -1",
    ),
    "explain of an iterator": (
        lambda store: accel.scan(batches("path"), store=store).explain(),
        accel.AccelError,
        "a scan over an iterator cannot be explained (explain a scan of the paths as a list)",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_told_in_full(store: DictStore, mistake: str) -> None:
    ask, kind, text = MISTAKES[mistake]
    with pytest.raises(kind) as caught:
        ask(store)
    assert type(caught.value) is kind
    assert str(caught.value) == text


@pytest.mark.parametrize("name", ["text.parquet", "cut.parquet"])
def test_what_is_no_parquet_file_is_named(store: DictStore, name: str) -> None:
    with pytest.raises(accel.ParquetFormatError) as caught:
        accel.scan(name, store=store, cache=None).to_table()
    assert caught.value.path == name
    assert "magic" in str(caught.value) or "not a Parquet file" in str(caught.value)


def test_local_files_are_named_by_their_path(tmp_path: Path) -> None:
    missing = tmp_path / "nope.parquet"
    with pytest.raises(accel.ObjectNotFoundError) as caught:
        accel.scan(missing).to_table()
    assert caught.value.path == str(missing)
    assert isinstance(caught.value, FileNotFoundError)


@pytest.mark.parametrize(
    ("path", "hint"),
    [
        ("$NO/such.parquet", "variables are not expanded: os.path.expandvars does that"),
        ("s3:/bucket/x.parquet", "a URL has two slashes: s3://bucket/path"),
        ("s3:bucket/x.parquet", "a URL has two slashes: s3://bucket/path"),
        (r"C:\data\x.parquet", "folders are separated by / here"),
        ("file:/no/k=a%3Ab/x.parquet", "a file: URL is percent-encoded, % itself as %25; a bare path is not"),
        ("file:/no/such.parquet", None),
        ("file:///no/such.parquet", None),
        ("no/{a,b}.parquet", "braces are not expanded, a list of paths is taken"),
        ("no/such.parquet", f"looked for in {os.getcwd()}"),
        (f"{os.getcwd()}/no/such.parquet", None),
        (
            "no/*.parquet",
            f"an object whose name holds *, ? or [ is named with `glob=False`; looked for in {os.getcwd()}",
        ),
    ],
)
def test_a_path_that_was_meant_otherwise(path: str, hint: str | None) -> None:
    with pytest.raises(accel.ObjectNotFoundError) as caught:
        accel.scan(path).to_table()
    assert (caught.value.path, caught.value.hint) == (path, hint)


def test_what_may_not_be_seen_is_not_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hidden, stat = tmp_path / "private" / "x.parquet", os.stat

    def refuse(path: Any, **keywords: Any) -> os.stat_result:
        if str(path) == str(hidden):
            raise PermissionError(13, "Permission denied", path)
        return stat(path, **keywords)

    monkeypatch.setattr(os, "stat", refuse)  # permissions do not bind whoever may be root
    with pytest.raises(accel.StoreError, match="Permission denied .check the permissions of the directories"):
        accel.scan(hidden).to_table()


@pytest.mark.parametrize(
    ("verb", "without", "own"),
    [
        (accel.plan, {"limit", "order", "order_by", "on_error"}, {"on_error"}),
        (accel.plan_async, {"limit", "order", "order_by", "on_error"}, {"on_error"}),
        (
            accel.spark.read,
            {"order", "order_by", "on_error", "learn", "source", "case_sensitive"},
            {"spark", "url", "partitions", "planning", "on_error", "credentials", "case_sensitive"},
        ),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_verbs_spell_out_the_keywords_of_a_scan(
    verb: Callable[..., Any], without: set[str], own: set[str]
) -> None:
    def spelt(of: Callable[..., Any], but: set[str]) -> dict[str, tuple[object, object]]:
        parameters = inspect.signature(of).parameters.values()
        return {p.name: (p.annotation, p.default) for p in parameters if p.name not in but}

    assert spelt(verb, own) == spelt(accel.scan, without)


@pytest.mark.parametrize(
    "verb", [accel.scan, accel.plan, accel.distinct, accel.plan_async, accel.distinct_async, accel.spark.read]
)
def test_help_lists_every_argument_with_its_meaning(verb: Callable[..., Any]) -> None:
    text, parameters = inspect.getdoc(verb) or "", inspect.signature(verb).parameters
    told = text[text.index("Parameters\n") : text.index("Returns\n")]
    assert [name for name in parameters if not re.search(rf"^(\w+, )*{name}\b", told, re.MULTILINE)] == []
    assert all(p.kind is not p.VAR_KEYWORD for p in parameters.values())


def test_a_type_checker_checks_the_arguments(tmp_path: Path) -> None:
    mypy = pytest.importorskip("mypy.api", reason="needs mypy, of the extra `lint`")
    program = tmp_path / "program.py"
    program.write_text(
        "from pathlib import Path\n"
        "import accel\n"
        "accel.scan('x', 'a > 1', limit=1, selection={Path('f'): {0: [(0, 1)]}}, schema='union')\n"
        "accel.plan(Path('x'), learn=True, on_error='skip', timeout=5)\n"
        "accel.scan('x', limit='all')\n"
        "accel.scan('x', colums=['a'])\n"
        "accel.plan('x', limit=3)\n"
        "accel.distinct('x', 'a', columns=['a'])\n"
    )
    out, _, _ = mypy.run([str(program), "--follow-imports=silent", "--ignore-missing-imports"])
    assert [line.split(": ")[0].rpartition(":")[2] for line in out.splitlines() if ": error:" in line] == [
        "5",
        "6",
        "7",
        "8",
    ], out


def test_numbers_of_numpy_count_rows(store: DictStore) -> None:
    asked = accel.scan("good.parquet", store=store, limit=np.int64(2))  # type: ignore[arg-type]
    assert (asked.to_table().num_rows, asked.head(np.uint8(1)).num_rows) == (2, 1)  # type: ignore[arg-type]


def test_a_column_may_be_called_where() -> None:
    file = DictStore({"f": write_file(table(where=[1, 2]))})
    assert accel.scan("f", "where = 2", store=file).count_rows() == 1


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("s4://bucket/x.parquet", "accel has no store for s4://"),
        ("s3:///x.parquet", "the URL names no bucket or host"),
        ("s3://key:secret@bucket/x.parquet", "credentials in a URL are not taken"),
        ("memory://x.parquet", "a memory:// URL names no store by itself"),
    ],
)
def test_urls_that_name_nothing(url: str, text: str) -> None:
    with pytest.raises(accel.StoreError) as caught:
        accel.scan(url).to_table()
    assert caught.value.message == text
    assert "secret" not in str(caught.value)


def test_the_text_of_where_is_kept_and_shown_on_its_line() -> None:
    where = "id > 0\n  AND name = 'a'\n  AND id = 'x'"
    with pytest.raises(accel.PredicateError) as caught:
        accel.scan("good.parquet", where, store=DictStore({"good.parquet": GOOD})).to_table()
    assert caught.value.text == where
    assert str(caught.value).splitlines()[1:] == ["    AND id = 'x'", "             ^"]


def test_a_scan_tells_what_it_asks() -> None:
    file = DictStore({})
    asked = accel.scan("f", 'id IN (1, 2, 3, 4) AND "a b" = 1', columns=["id", "a.b"], limit=3, store=file)
    assert repr(asked) == 'Scan(f, where=id IN (1, 2, 3, … 1 more) AND "a b" = 1, columns=[id, a.b], limit=3)'
    asked = accel.scan(["f", "g"], [("id", "=", "x" * 1000)], selection={"f": {0: [(0, 1)]}}, store=file)
    assert repr(asked) == f"Scan(2 sources, where=id = '{'x' * 111}..., selection=1 files)"
    asked = accel.scan("f", columns=[f"column {i}" for i in range(1000)], store=file)
    assert repr(asked).endswith("...])") and len(repr(asked)) < 150


def test_credentials_are_in_no_repr() -> None:
    asked = accel.scan(SECRET, storage_options={"headers": {"Authorization": "SECRET"}})
    assert repr(asked) == "Scan(https://host/data/f.parquet?X-Amz-Signature=***)"


def check(source: object, **keywords: Any) -> Any:
    given: dict[str, Any] = {
        "columns": None,
        "limit": None,
        "selection": None,
        "schema": None,
        "partitioning": "auto",
        "glob": True,
        "order": True,
        "options": accel.Options(),
    }
    return check_arguments(source, **(given | keywords))


def test_the_spec_of_good_arguments() -> None:
    options = accel.Options(batch_rows=5)
    schema = pa.schema([("id", pa.int64())])
    spec = check("f", where="id = 1", columns=["id"], limit=3, schema=schema, order=False, options=options)
    assert (spec.source, spec.where_text, spec.columns, spec.limit) == ("f", "id = 1", ("id",), 3)
    assert (spec.schema, spec.order, spec.options, spec.by_position) == (schema, False, options, False)
    assert spec.where is not None
    assert (spec.partitioning, spec.glob, spec.selection) == ("hive", True, None)


def test_an_iterator_is_matched_by_position_and_its_paths_are_left_alone() -> None:
    spec = check(batches("path"))
    assert (spec.by_position, spec.partitioning) == (True, None)
    keys = pa.schema([("month", pa.int64())])
    assert check(batches("path"), partitioning=keys).partitioning == keys


@pytest.mark.parametrize(
    ("source", "stream", "planned"),
    [
        pytest.param("x", False, False, id="text"),
        pytest.param(["x"], False, False, id="list"),
        pytest.param([], False, False, id="nothing"),
        pytest.param(iter([]), True, False, id="iterator"),
        pytest.param(accel.Plan([], schema=pa.schema([])), False, True, id="plan"),
    ],
)
def test_kinds_of_source(source: object, stream: bool, planned: bool) -> None:
    assert (is_stream(source), is_planned(source)) == (stream, planned)
