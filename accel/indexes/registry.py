"""The index kinds that this process can use, and guarded calls to them.

Kinds are accel's own, those that a caller registers, and those of installed packages. Since a kind may be
foreign code, its answers are checked before they prune rows, and its index is not used where it raises an
exception.
"""

from __future__ import annotations

import importlib
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from typing import Any

import numpy as np

from accel.errors import IndexFormatError
from accel.indexes.kind import IndexKind, ParsedIndex
from accel.indexes.native import signature_of
from accel.indexes.question import LeafOp, LeafQuestion
from accel.predicate.prune import Evidence

__all__ = [
    "ask",
    "ask_all",
    "find_kind",
    "guarded",
    "kinds",
    "make_kind",
    "register_index",
]

_OURS = {
    "bitmap": ("accel.indexes.bitmap", "Bitmap"),
    "bloom": ("accel.indexes.bloom", "Bloom"),
    "distinct": ("accel.indexes.distinct", "Distinct"),
    "idx1": ("accel.indexes.idx1", "Idx1"),
    "ngram": ("accel.indexes.ngram", "Ngram"),
    "sketch": ("accel.indexes.sketch", "Sketch"),
    "zonemap": ("accel.indexes.zonemap", "Zonemap"),
}
_GROUP = "accel.indexes"
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}")
kinds_by_name: dict[str, IndexKind] = {}
packages_seen = False
# Whether this thread is loading packages, which may look up kinds while they are imported.
_loading: ContextVar[bool] = ContextVar("loading", default=False)


def register_index(kind: IndexKind) -> IndexKind:
    """Register a kind under its name, so that files can be written and read with it.

    It replaces a kind that was registered under the same name.

    Parameters
    ----------
    kind : IndexKind
        An instance.

    Returns
    -------
    IndexKind
        The same instance.

    Raises
    ------
    ValueError
        The name is one of accel's own, or is not made of letters, digits, `_`, `.` and `-`, 64 at most.
    TypeError
        The kind is a class instead of an instance, or does not derive from `IndexKind`.
    """
    if isinstance(kind, type):
        raise TypeError(f"register an instance: register_index({kind.__name__}())")
    if not isinstance(kind, IndexKind):
        raise TypeError(f"{type(kind).__name__} is no index kind: it does not derive from IndexKind")
    if not isinstance(kind.name, str) or not _NAME.fullmatch(kind.name):
        raise ValueError(f"{kind.name!r} is no name for an index kind")
    if kind.name in _OURS:
        raise ValueError(f"{kind.name!r} is the name of accel's own index kind")
    kinds_by_name[kind.name] = kind
    return kind


def find_kind(name: str, version: int | None = None) -> IndexKind | None:
    """Return the kind of this name; None where there is none, or it does not read this version."""
    found = _own(name) or kinds_by_name.get(name)
    if found is None:
        _load_packages()
        found = kinds_by_name.get(name)
    if found is None or version is None:
        return found
    return found if version in found.reads else None


def make_kind(spec: str | IndexKind) -> IndexKind:
    """Return the kind that a caller passes: by name, with its defaults, or the kind itself.

    Raises
    ------
    ValueError
        There is no kind of that name.
    """
    if not isinstance(spec, str):
        return spec
    found = find_kind(spec)
    if found is None:
        raise ValueError(f"no index kind {spec!r}; there are {', '.join(sorted(kinds()))}")
    return found


def kinds() -> Mapping[str, IndexKind]:
    """Return all kinds, those of installed packages among them.

    Returns
    -------
    mapping of str to IndexKind
        The kinds by name.
    """
    _load_packages()
    ours = {name: kind for name in _OURS if (kind := _own(name)) is not None}
    return {**kinds_by_name, **ours}


def _own(name: str) -> IndexKind | None:
    home = _OURS.get(name)
    if home is None:
        return None
    kind: IndexKind = getattr(importlib.import_module(home[0]), home[1])()
    return kind


def _load_packages() -> None:
    """Register the kinds that packages announce as entry points; a broken one is a warning."""
    global packages_seen
    if packages_seen or _loading.get():
        return
    token = _loading.set(True)
    try:
        _load_entry_points()
    finally:
        _loading.reset(token)
    # Set last, so that no other thread misses a kind that is still being loaded; two threads may both load.
    packages_seen = True


def _load_entry_points() -> None:
    from importlib.metadata import entry_points

    for point in entry_points(group=_GROUP):
        try:
            found = point.load()
            kind = found() if isinstance(found, type) else found
            if kind.name not in kinds_by_name:
                register_index(kind)
        except Exception as error:  # noqa: BLE001 - whatever a foreign package raises
            warnings.warn(
                f"the index kind {point.name!r} ({point.value}) is passed over: {error}", stacklevel=2
            )


def guarded(call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call a method of a kind, or of an index that it parsed.

    Raises
    ------
    IndexFormatError
        The method raised an exception; the index is then not used.
    """
    try:
        return call(*args, **kwargs)
    except IndexFormatError:
        raise
    except Exception as error:
        raise IndexFormatError(f"an index failed: {type(error).__name__}: {error}") from error


def ask(parsed: ParsedIndex, question: LeafQuestion, *, units: int, signature: str) -> Evidence | None:
    """Ask an index about one leaf, and check its answer; return None where the index cannot tell.

    Parameters
    ----------
    parsed : ParsedIndex
        An index of any kind, trusted or not.
    question : LeafQuestion
        The leaf.
    units : int
        The entries that the answer must have: 1, or the number of pages or of row ranges
        (`len(parsed.first_rows)`).
    signature : str
        The `signature_of` the column's type when the index was built. Where the scan's differs, the answer is
        None.

    Raises
    ------
    IndexFormatError
        The index raised, or its answer is not evidence of that many units.
    """
    if question.op is not LeafOp.IS_NULL and signature != signature_of(question.arrow_type):
        return None
    found: Evidence | None = guarded(parsed.prune, question)
    if found is None:
        return None
    _check(found, units)
    if question.with_null:
        # With a NULL in the list, a value that is not in the list gives NULL.
        return Evidence(found.may_true, np.zeros(units, bool), found.may_null | found.may_false)
    return found


def ask_all(parsed: Any, questions: Sequence[tuple[LeafQuestion, bool]], *, units: int) -> Evidence | None:
    """Ask an index of several columns whether one row can give all leaves their answers, each true or false.

    Return None where the index cannot tell. The caller checks the columns' signatures. Raises as `ask` does.
    """
    together = getattr(parsed, "prune_all", None)
    if together is None or not questions:
        return None
    found: Evidence | None = guarded(together, questions)
    if found is not None:
        _check(found, units)
    return found


def _check(found: object, units: int) -> None:
    if not isinstance(found, Evidence):
        raise IndexFormatError(f"an index answered with {type(found).__name__}, not with Evidence")
    flags = (found.may_true, found.may_false, found.may_null)
    if any(not isinstance(f, np.ndarray) or f.dtype != bool or f.shape != (units,) for f in flags):
        raise IndexFormatError(f"an index answered with other than {units} truth values")
