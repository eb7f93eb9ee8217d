"""How a verb takes the arguments of a scan: spelled out in its signature and docstring, and refused where
there are none."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final, TypeVar

from accel.scanning.spec import SCAN_DEFAULTS, ScanOptions

__all__ = ["FIRST_ROWS", "refuse_unknown", "spells_out"]

F = TypeVar("F", bound=Callable[..., Any])

_ELSEWHERE: Final = {
    **dict.fromkeys(("filter", "filters", "predicate", "query"), "where"),
    **dict.fromkeys(("n_rows", "nrows", "num_rows", "head"), "limit"),
    **dict.fromkeys(("select", "projection", "usecols"), "columns"),
    **dict.fromkeys(("filesystem", "fs"), "store= or storage_options"),
    **dict.fromkeys(
        ("endpoint", "endpoint_url", "region", "credentials", "headers", "config"), "storage_options"
    ),
    **dict.fromkeys(("hive_partitioning", "partition_by"), "partitioning"),
    "row_groups": "selection",
}
"""The names of arguments in other libraries -> their names here."""
FIRST_ROWS: Final = (
    "accel.scan(source, where, order_by=..., limit=n) reads the first rows alone; of a DataFrame, "
    "df.orderBy(...).limit(n) reads all that pass its filters"
)
"""What to write for the first rows in an order, where they cannot be asked for."""
_TAKEN_BY_SCAN: Final = {"order_by": f": {FIRST_ROWS}"}
_PLACE: Final = re.compile(r"^( *)\*\*arguments\n(?:\1 +\S.*\n)+", re.MULTILINE)
"""The entry of a docstring in whose place those of the arguments come."""


def spells_out(options: type, *, as_for: str | None = None) -> Callable[[F], F]:
    """Have a function whose `**arguments` are those of a TypedDict list each of them, as `help` and editors
    show it.

    Parameters
    ----------
    options : type
        `ScanOptions`, or one of its bases.
    as_for : str, optional
        The verb that documents them; None: they are documented here.
    """

    def decorate(function: F) -> F:
        signature = inspect.signature(function)
        own = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
        taken = _taken(options)
        annotations = _annotations(options)
        more = [
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=default,
                annotation=annotations[name],
            )
            for name, default in SCAN_DEFAULTS.items()
            if name in taken
        ]
        function.__signature__ = signature.replace(parameters=[*own, *more])  # type: ignore[attr-defined]
        text = function.__doc__  # None with -OO
        if text is not None and ScanOptions.__doc__ is not None:
            function.__doc__ = _PLACE.sub(lambda found: _entries(taken, found[1], as_for), text)
        return function

    return decorate


def refuse_unknown(verb: str, arguments: Mapping[str, object], options: type) -> None:
    """Raise TypeError for an argument that a verb does not take, naming the one that may be meant."""
    taken = _taken(options)
    for name in arguments:
        if name in taken:
            continue
        if name in SCAN_DEFAULTS:
            raise TypeError(f"{verb}() takes no {name}{_TAKEN_BY_SCAN.get(name, '')}")
        meant = _ELSEWHERE.get(name)
        if meant is None:
            import difflib

            meant = next(iter(difflib.get_close_matches(name, taken, 1)), None)
        advice = f": did you mean {meant}=?" if meant else ""
        raise TypeError(f"{verb}() got an unexpected keyword argument {name!r}{advice}")


@cache
def _taken(options: type) -> tuple[str, ...]:
    names = _annotations(options)
    return tuple(name for name in SCAN_DEFAULTS if name in names)


def _annotations(options: type) -> dict[str, str]:
    """Return the types of the arguments, as they are written."""
    return {
        name: getattr(kind, "__forward_arg__", kind)
        for base in reversed(options.__mro__)
        for name, kind in getattr(base, "__annotations__", {}).items()
    }


def _entries(taken: tuple[str, ...], indent: str, as_for: str | None) -> str:
    if as_for is not None:
        return f"{indent}{', '.join(taken)}\n{indent}    As for `{as_for}`.\n"
    text = inspect.cleandoc(ScanOptions.__doc__ or "")
    lines = text[text.index("----------\n") + len("----------\n") :].splitlines()
    return "".join(f"{indent}{line}".rstrip() + "\n" for line in lines)
