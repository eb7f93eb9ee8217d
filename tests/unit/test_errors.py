"""Errors name the file, the place and what to do; they travel, and hold no credentials."""

from __future__ import annotations

import copy
import errno
import inspect
import linecache
import os
import pickle
import time
import traceback

import pytest

import accel
from accel import errors
from accel.errors import (
    AccelError,
    MemoryLimitError,
    ObjectNotFoundError,
    ParquetFormatError,
    PredicateError,
    StoreError,
    redact,
    refuse_unforeseen,
)
from accel.store.request_errors import ObjectGoneError
from accel.testing import DictStore, table, write_file

KINDS = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, AccelError)]
BUILTIN = {
    "ParquetFormatError": ValueError,
    "IndexFormatError": ValueError,
    "EncryptedFileError": ValueError,
    "StoreError": OSError,
    "AccessDeniedError": PermissionError,
    "ObjectNotFoundError": FileNotFoundError,
    "ObjectChangedError": OSError,
    "PredicateError": ValueError,
    "ColumnNotFoundError": KeyError,
    "SchemaMismatchError": ValueError,
    "MemoryLimitError": MemoryError,
    "ScanTimeoutError": TimeoutError,
    "TableFormatError": ValueError,
}


@pytest.mark.parametrize("kind", KINDS)
def test_each_is_public_and_of_the_builtin_kind_one_expects(kind: type[AccelError]) -> None:
    assert getattr(accel, kind.__name__) is kind
    if kind is not AccelError:
        assert issubclass(kind, BUILTIN[kind.__name__])


@pytest.mark.parametrize("kind", KINDS)
def test_each_tells_itself_and_travels(kind: type[AccelError]) -> None:
    error = kind("it broke", path="s3://b/f", place="footer", hint="mend it")
    assert str(error) == "s3://b/f, footer: it broke (mend it)"
    for other in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(other) is kind
        assert str(other) == str(error)
        assert vars(other) == vars(error)


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        ({}, "it broke"),
        ({"path": "f"}, "f: it broke"),
        ({"place": "footer"}, "footer: it broke"),
        ({"hint": "mend it"}, "it broke (mend it)"),
    ],
)
def test_what_is_not_known_is_left_out(parts: dict[str, str], text: str) -> None:
    assert str(AccelError("it broke", **parts)) == text  # type: ignore[arg-type]


def test_outer_layers_fill_in_what_inner_ones_do_not_know() -> None:
    error = AccelError("it broke", place="page 3")
    assert error.at(path="f", place="footer") is error
    assert (error.path, error.place) == ("f", "page 3")
    error.at(path="g")
    assert error.path == "f"
    assert error.of("https://u:p@h/f?sig=x").path == "https://***@h/f?sig=***"


@pytest.mark.parametrize(
    ("text", "hidden"),
    [
        ("s3://bucket/a=1/f.parquet", "s3://bucket/a=1/f.parquet"),
        ("https://h/f?X-Amz-Signature=abc&X-Amz-Date=1", "https://h/f?X-Amz-Signature=***&X-Amz-Date=***"),
        ("https://user:pass@h/f", "https://***@h/f"),
        ("at https://h/f?sig=abc, twice", "at https://h/f?sig=***, twice"),
        ("/local/path/a=b.parquet", "/local/path/a=b.parquet"),
        ("data/part-?.parquet", "data/part-?.parquet"),
        ("s3://bucket/part-?.parquet", "s3://bucket/part-?.parquet"),
        ("https://h/f", "https://h/f"),
        ("https://h/f?", "https://h/f?"),
        ("https://h/f?abc", "https://h/f?***"),
        ("HTTPS://h/f?abc", "HTTPS://h/f?***"),
        ("https://h/f?versionId=2&abc", "https://h/f?versionId=***&***"),
        ("https://h/f?abc==&=abc&", "https://h/f?***&***&"),
        ("https://h/f?acl=/(a|b)/*~hmac=abc&x=y'abc", "https://h/f?acl=***&x=***"),
        ('https://h/f?x=y"abc z', "https://h/f?x=***"),
        ("https://h/f?x=***&***", "https://h/f?x=***&***"),
        ("https://h/f?x=y#abc", "https://h/f?x=***#***"),
        ("https://h/f#abc", "https://h/f#***"),
        ("['https://h/f?abc', 'http://i/g?x=abc']", "['https://h/f?***', 'http://i/g?x=***']"),
        ("no answer (https://h/f?abc) came", "no answer (https://h/f?***) came"),
    ],
)
def test_redacted(text: str, hidden: str) -> None:
    assert redact(text).rstrip(", twice") == hidden.rstrip(", twice")
    assert "abc" not in redact(text)
    assert "pass" not in redact(text)


@pytest.mark.parametrize("kind", [ObjectNotFoundError, ObjectGoneError])
def test_what_is_not_there_is_told_as_of_any_file(kind: type[ObjectNotFoundError]) -> None:
    error = kind("there is no such file", path="f", status=404)
    for each in (error, pickle.loads(pickle.dumps(error)).of("s3://b/f")):
        assert (each.errno, each.filename, each.strerror) == (
            errno.ENOENT,
            each.path,
            "there is no such file",
        )
        assert str(each) == f"{each.path}: there is no such file"


def test_store_errors_say_whether_to_try_again() -> None:
    error = StoreError("busy", transient=True, status=503, retry_after=2.5)
    other = pickle.loads(pickle.dumps(error))
    assert (other.transient, other.status, other.retry_after) == (True, 503, 2.5)


@pytest.mark.parametrize(
    ("text", "position", "shown"),
    [
        ("a = x", 4, "  a = x\n      ^"),
        ("a = 1\nAND b\nOR c", 10, "  AND b\n      ^"),
        ("a", 1, "  a\n   ^"),
        ("x" * 300 + "!" + "y" * 300, 300, "  " + "x" * 60 + "!" + "y" * 59 + "\n  " + " " * 60 + "^"),
    ],
)
def test_a_predicate_shows_the_character(text: str, position: int, shown: str) -> None:
    assert str(PredicateError("no", text=text, position=position)) == f"no\n{shown}"
    assert str(PredicateError("no", text=text)) == str(PredicateError("no", position=position)) == "no"


@pytest.mark.parametrize("part", ["http://", "http://a", "?", "&a", "://", "https://h/p?", "x@", "://a@"])
def test_what_hides_credentials_goes_through_a_long_text_once(part: str) -> None:
    """A server's text, or a path, may be made of nothing but beginnings of what is looked for."""
    began = time.process_time()
    for text in (part * 50_000, f"x? {part * 50_000}", f"x? {part * 50_000} ="):
        redact(text)
    assert time.process_time() - began < 2.0


def test_addresses_in_one_another_are_found() -> None:
    assert redact("of http://h/http://g/f?SECRET") == "of http://h/http://g/f?***"
    assert redact("of http://h/?http://g/f?SECRET") == "of http://h/?***"
    assert redact("s3://b/f??a=SECRET&b?c=SECRET") == "s3://b/f??a=***&b?c=***"


@pytest.mark.parametrize(
    "error",
    [KeyError("e"), IndexError("list"), ValueError("x"), ZeroDivisionError(), RecursionError()],
    ids=repr,
)
def test_what_nobody_foresaw_becomes_an_accel_error(error: Exception) -> None:
    with (
        pytest.raises(
            ParquetFormatError, match=f"row group 3: it cannot be read: {type(error).__name__}"
        ) as caught,
        refuse_unforeseen("row group 3"),
    ):
        raise error
    assert caught.value.__cause__ is error


def test_other_errors_stay_as_they_are() -> None:
    for error in (StoreError("gone"), KeyboardInterrupt(), GeneratorExit()):
        with pytest.raises(type(error)) as caught, refuse_unforeseen("footer"):
            raise error
        assert caught.value is error
    with pytest.raises(MemoryLimitError, match="footer: no memory"), refuse_unforeseen("footer"):
        raise MemoryError("4 TiB")


def _fails(cell: str) -> AccelError:
    """The error of a cell, as a notebook has it."""
    name = "<ipython-input-1>"
    linecache.cache[name] = (len(cell), None, cell.splitlines(keepends=True), name)
    store = DictStore({"f": write_file(table(carrier=["HA"]))})
    with pytest.raises(AccelError) as caught:
        # As IPython does, whose own frames are not shown.
        runner = compile("exec(cell, scope)", f"{os.sep}IPython{os.sep}core.py", "exec")
        exec(runner, {"cell": compile(cell, name, "exec"), "scope": {"accel": accel, "store": store}})  # noqa: S102
    return caught.value


@pytest.mark.parametrize(
    ("cell", "lines"),
    [
        (
            "def ask():\n    return accel.scan('f', 'carier = 1', store=store).to_table()\n\nask()\n",
            [
                '  File "<ipython-input-1>", line 4, in <module>',
                "    ask()",
                '  File "<ipython-input-1>", line 2, in ask',
                "    return accel.scan('f', 'carier = 1', store=store).to_table()",
                "accel.errors.ColumnNotFoundError: f: no column 'carier' (did you mean 'carrier'?)",
            ],
        ),
        (
            "accel.scan('f', 'carrier = = 1', store=store)\n",
            [
                '  File "<ipython-input-1>", line 1, in <module>',
                "    accel.scan('f', 'carrier = = 1', store=store)",
                "accel.errors.PredicateError: expected a column or a literal, found = (the operators are = <> < <= > >=)",
                "  carrier = = 1",
                "            ^",
            ],
        ),
    ],
    ids=["a misspelt column", "no predicate"],
)
def test_a_notebook_shows_the_lines_of_its_cells(cell: str, lines: list[str]) -> None:
    error = _fails(cell)
    # Newer Pythons point at parts of a line.
    shown = [line for line in error._render_traceback_() if line.count("^") < 2]
    assert shown[0] == "Traceback (most recent call last):"
    assert shown[-len(lines) :] == lines
    assert "IPython" not in "".join(shown)
    assert len(traceback.extract_tb(error.__traceback__)) > 4


def test_an_error_that_was_not_raised_shows_its_message() -> None:
    assert StoreError("gone", path="f")._render_traceback_() == ["accel.errors.StoreError: f: gone"]
