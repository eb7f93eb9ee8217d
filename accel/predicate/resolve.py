"""Names of a predicate, found in a schema."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from accel.errors import ColumnNotFoundError, PredicateError
from accel.predicate.atoms import BoundColumn
from accel.predicate.expr import Column

__all__ = ["follow", "place", "refuse_missing", "resolve"]


def place(position: int) -> int | None:
    """A tree's position as `PredicateError` takes it."""
    return position if position >= 0 else None


def resolve(column: Column, schema: pa.Schema) -> BoundColumn:
    """Find a column: an exact top-level name first, then its dotted parts down through structs.

    A top-level name may hold dots itself: of those that a path may begin with the longest that has the rest is meant.

    Raises
    ------
    ColumnNotFoundError
        There is no such column.
    PredicateError
        The name is ambiguous, or a part of the path has no fields.
    """
    if _has(column, column.name, schema):
        return follow(column, (column.name,), schema=schema)
    parts = column.parts or ((column.name,) if column.quoted else tuple(column.name.split(".")))
    refusal: PredicateError | ColumnNotFoundError | None = None
    for cut in range(len(parts) - 1, 0, -1):
        head = ".".join(parts[:cut])
        if not _has(column, head, schema):
            continue
        try:
            return follow(column, (head, *parts[cut:]), schema=schema)
        except (PredicateError, ColumnNotFoundError) as error:
            refusal = refusal or error
    missing = refusal or _missing(column, column.name if len(parts) < 2 else parts[0], schema.names)
    if column.quoted:
        missing.hint = _as_path(column, schema) or missing.hint
    raise missing


def refuse_missing(names: Iterable[str], schema: pa.Schema) -> None:
    """Raise what `resolve` raises for names of columns that a schema lacks."""
    for name in names:
        resolve(Column(name), schema)


def _has(column: Column, name: str, schema: pa.Schema) -> bool:
    """Whether there is a top-level column of this name; an error where there are several."""
    found = schema.get_all_field_indices(name)
    if len(found) > 1:
        raise _ambiguous(column, name)
    return bool(found)


def follow(column: Column, path: tuple[str, ...], *, schema: pa.Schema) -> BoundColumn:
    """The column at a path whose first name the schema has once; errors are those of `resolve`."""
    field = schema.field(path[0])
    for depth in range(1, len(path)):
        field = _child(column, field, path, depth)
    return BoundColumn(path, field.type)


def _child(column: Column, field: pa.Field, parts: tuple[str, ...], depth: int) -> pa.Field:
    above, part = ".".join(parts[:depth]), parts[depth]
    kind = field.type
    if not pa.types.is_struct(kind):
        raise PredicateError(
            f"column {above!r} is {field.type} and has no field {part!r}",
            position=place(column.position),
            hint="a dotted path goes through structs only",
        )
    found = kind.get_all_field_indices(part)
    if len(found) > 1:
        raise _ambiguous(column, f"{above}.{part}")
    if not found:
        raise _missing(column, part, [f.name for f in kind], within=above)
    return kind.field(found[0])


def _missing(
    column: Column, name: str, names: list[str], *, within: str | None = None
) -> ColumnNotFoundError:
    import difflib

    close = difflib.get_close_matches(name, names, 3)
    close += [other for other in names if other.lower() == name.lower() and other not in close][:3]
    inside = f" in {within!r}" if within else ""
    if close:
        hint = "did you mean " + " or ".join(repr(other) for other in close) + "?"
    else:
        shown = ", ".join(names[:10]) + (", ..." if len(names) > 10 else "")
        hint = f"there are: {shown}" if names else "there are no columns"
        if names and within is None and column.position >= 0:
            hint += f"; {_as_text(column.name)}"
    detail = f": no {name!r}{inside}" if name != column.name else ""
    return ColumnNotFoundError(
        f"no column {column.name!r}{detail}", column=None if within else name, hint=hint
    )


def _as_path(column: Column, schema: pa.Schema) -> str | None:
    """What to write where the dots of an exact name were meant to lead into structs."""
    try:
        resolve(Column(column.name), schema)
    except (PredicateError, ColumnNotFoundError):
        return None
    if column.position >= 0:
        return (
            f"in double quotes a dot is part of the name; without them {column.name} is the field of a struct"
        )
    return f"the name of a filter list is exact; the field of a struct is {tuple(column.name.split('.'))}"


def _as_text(name: str) -> str:
    """What may be meant by a name, in a predicate that is text."""
    if name in ("None", "none", "nan", "NaN"):
        return "null is NULL, after IS or IS NOT" if "o" in name else "write DOUBLE 'NaN'"
    if len(name) > 60:
        return "text stands in single quotes"
    from accel.predicate.advice import text_advice

    return text_advice(name)


def _ambiguous(column: Column, name: str) -> PredicateError:
    return PredicateError(
        f"column {name!r} is ambiguous: several have that name", position=place(column.position)
    )
