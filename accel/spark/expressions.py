"""Catalyst's expressions in the JVM, of which each fact is asked for once, by few calls.

A call takes some 0.1 ms, and as much once more where it returns an object, which the JVM is told to forget.
"""

from __future__ import annotations

from functools import cached_property, lru_cache
from typing import Any, Final

__all__ = ["Expression", "class_of", "items_of", "kind_of_expression"]

_EXPRESSIONS: Final = "org.apache.spark.sql.catalyst.expressions."


def items_of(sequence: Any) -> list[Any]:
    """Return the items of a Scala sequence."""
    return [sequence.apply(at) for at in range(sequence.size())]


def class_of(node: Any) -> str:
    """Return the name of the class of an object."""
    named = _namer(node._gateway_client)
    return str(node.getClass().getName() if named is None else named(node))


@lru_cache(maxsize=1)
def _namer(client: Any) -> Any:
    """Return a function of the JVM that names classes by a single call; None where Spark has it no more."""
    from py4j.java_gateway import JavaClass
    from py4j.protocol import Py4JError

    try:
        return JavaClass("org.apache.commons.lang3.ClassUtils", client).getName
    except Py4JError:
        return None


def kind_of_expression(expression: Any) -> str:
    """Return the name of Spark's class; the whole name of one from elsewhere."""
    return class_of(expression).removeprefix(_EXPRESSIONS)


class Expression:
    """An expression and what was asked of it.

    Parameters
    ----------
    java : JavaObject
    """

    def __init__(self, java: Any) -> None:
        self.java = java

    @cached_property
    def kind(self) -> str:
        """The name of Spark's class; the whole name of one from elsewhere."""
        return kind_of_expression(self.java)

    @cached_property
    def children(self) -> list[Expression]:
        """The expressions that it is made of."""
        return [Expression(child) for child in items_of(self.java.children())]

    @cached_property
    def type_name(self) -> str:
        """The name of its type in Catalyst."""
        return str(self.java.dataType().catalogString())

    @cached_property
    def number(self) -> Any:
        """Of a column, the number by which the plan knows it."""
        return self.java.exprId().id()
