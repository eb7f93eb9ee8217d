"""Every public function, method and class has a whole numpydoc docstring: parameters, results and all
fields."""

from __future__ import annotations

import ast
import dataclasses
import enum
import inspect
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from numpydoc.validate import validate

import accel
import accel.testing
from accel.decode import spark_types
from tests.docs.reference import PAGES, read_entries

FACES = (accel, accel.indexes, accel.spark, accel.stores, accel.testing)
ROOT = Path(__file__).resolve().parents[2]
ENTRIES = [
    entry
    for page in PAGES
    if "/api/" in page
    for entry in read_entries((ROOT / page).read_text(encoding="utf-8"))
]
CODES = {
    "GL06": "unknown section",
    "GL07": "sections in another order",
    "GL08": "no docstring",
    "PR01": "parameter not documented",
    "PR02": "parameter that does not exist",
    "PR07": "parameter without a description",
    "RT01": "no Returns",
    "RT03": "result without a description",
    "YD01": "no Yields",
}
OF_SIGNATURES = {"PR01", "RT01", "YD01"}


def is_described(name: str) -> bool:
    """Return whether the API page describes a `Class.member`; `accel.testing` is not on that page."""
    owner, _, member = name.partition(".")
    for entry in ENTRIES:
        if entry.path.rpartition(".")[2] == owner:
            return member not in entry.without and (entry.members is None or member in entry.members)
    return True


def public_objects() -> Iterator[tuple[str, Any]]:
    found = {spark_types.spark_conversion, spark_types.to_spark_batch}
    found |= {getattr(face, name) for face in FACES for name in face.__all__ if name not in ("TASK_SCHEMA",)}
    for each in sorted((e for e in found if callable(e)), key=lambda e: (e.__module__, e.__qualname__)):
        yield f"{each.__module__}.{each.__qualname__}", each
        if inspect.isclass(each) and not issubclass(each, enum.Enum):
            for name, member in vars(each).items():
                own = inspect.isfunction(member) or isinstance(member, classmethod | staticmethod | property)
                if own and not name.startswith("_") and is_described(f"{each.__name__}.{name}"):
                    yield f"{each.__module__}.{each.__qualname__}.{name}", member


OBJECTS = dict(public_objects())


def problems(name: str, found: Any) -> list[str]:
    errors = [(code, text) for code, text in validate(name)["errors"] if code in CODES]
    text = inspect.getdoc(getattr(found, "__func__", found)) or ""
    signature_is_elsewhere = (
        isinstance(found, property)
        or "see `" in text.partition("\n\n")[0].lower()  # the protocol that it implements
        or (inspect.isclass(found) and not takes_arguments(found))
    )
    return [
        f"{code} {text}" for code, text in errors if not (signature_is_elsewhere and code in OF_SIGNATURES)
    ]


def takes_arguments(found: type) -> bool:
    """Return whether users construct the class, and by arguments that are not fields with a docstring of
    their own."""
    return not (
        issubclass(found, (enum.Enum, BaseException, accel.Scan, accel.Plan))
        or getattr(found, "_is_protocol", False)
        or dataclasses.is_dataclass(found)
        or "__init__" not in vars(found)
    )


@pytest.mark.parametrize("name", OBJECTS)
def test_parameters_and_results_are_documented(name: str) -> None:
    assert problems(name, OBJECTS[name]) == []


def fields_without_text(found: type) -> list[str]:
    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(found))).body
    body = tree.body  # type: ignore[attr-defined]
    return [
        node.target.id
        for node, after in zip(body, [*body[1:], ast.Pass()], strict=True)
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
        if not node.target.id.startswith("_") and "ClassVar" not in ast.unparse(node.annotation)
        if f"\n{node.target.id} :" not in inspect.cleandoc(found.__doc__ or "")
        if not (isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant))
        if is_described(f"{found.__name__}.{node.target.id}")
    ]


@pytest.mark.parametrize("name", [n for n, found in OBJECTS.items() if dataclasses.is_dataclass(found)])
def test_fields_are_documented(name: str) -> None:
    assert fields_without_text(OBJECTS[name]) == []


def example(one: int, two: int) -> int:
    """Add two numbers.

    Parameters
    ----------
    one : int
        The first.

    Returns
    -------
    int
        The sum.
    """
    return one + two


@dataclasses.dataclass
class Example:
    """Two fields."""

    one: int
    """The first."""
    two: int


def test_what_is_missing_is_found() -> None:
    assert problems(f"{__name__}.example", example) == ["PR01 Parameters {'two'} not documented"]
    assert fields_without_text(Example) == ["two"]
