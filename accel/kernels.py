"""Arrow's compute functions by name, without `pyarrow.compute`.

Importing that module takes 25 ms, because it makes a Python function for each of three hundred kernels. The
functions below have the signatures of `pyarrow.compute`; any other name is taken from there when it is first
used.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final

import pyarrow as pa

from accel.memory import pool

__all__ = ["fill_null"]

PLAIN: Final = frozenset(
    {
        "add",
        "and_",
        "and_kleene",
        "divide",
        "equal",
        "filter",
        "greater",
        "greater_equal",
        "if_else",
        "invert",
        "is_nan",
        "is_null",
        "is_valid",
        "less",
        "less_equal",
        "multiply",
        "not_equal",
        "or_",
        "or_kleene",
        "subtract",
        "take",
    }
)
"""Functions that are called without options."""
_NAMES: Final = {"and_": "and", "or_": "or"}
OPTIONS: Final = {
    "ends_with": "MatchSubstringOptions",
    "is_in": "SetLookupOptions",
    "match_substring": "MatchSubstringOptions",
    "match_substring_regex": "MatchSubstringOptions",
    "starts_with": "MatchSubstringOptions",
}


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    if name in PLAIN:
        found: Any = _plain(name)
    elif name in OPTIONS:
        found = _with_options(name)
    else:
        import pyarrow.compute

        found = getattr(pyarrow.compute, name)
    globals()[name] = found
    return found


def _function(name: str) -> Callable[..., Any]:
    # This import takes 5 ms, which a scan without a condition saves.
    from pyarrow._compute import function_registry

    return function_registry().get_function(name).call  # type: ignore[no-any-return]


def _plain(name: str) -> Callable[..., Any]:
    call = _function(_NAMES.get(name, name))
    return lambda *values: call(values, None, pool())


def _with_options(name: str) -> Callable[..., Any]:
    import pyarrow._compute

    call = _function(name)
    make = getattr(pyarrow._compute, OPTIONS[name])
    return lambda values, **options: call([values], make(**options), pool())


def fill_null(values: Any, fill_value: Any) -> Any:
    """Return the values, with `fill_value` where they are null."""
    if isinstance(fill_value, pa.Scalar) and fill_value.type == values.type:
        return _coalesce()([values, fill_value])
    import pyarrow.compute as pc

    return pc.fill_null(values, fill_value)


@functools.cache
def _coalesce() -> Callable[..., Any]:
    return _function("coalesce")
