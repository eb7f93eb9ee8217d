"""Names of a predicate, found in a schema."""

from __future__ import annotations

import pyarrow as pa

from accel.errors import ColumnNotFoundError, PredicateError
from accel.predicate.atoms import BoundColumn
from accel.predicate.expr import Column, column_named

__all__ = ["follow", "place", "resolve", "resolve_named"]


def place(position: int) -> int | None:
    """A tree's position as `PredicateError` takes it."""
    return position if position >= 0 else None


def resolve(column: Column, schema: pa.Schema) -> BoundColumn:
    """Find a column: a top-level one, or a field down through structs.

    Its first names may together be one name at the top level, with dots in it, as far as `Column.head` allows. Of such
    readings the first is meant that the schema has, from the shortest name on or, by `Column.whole_first`, the longest.

    Raises
    ------
    ColumnNotFoundError
        There is no such column.
    PredicateError
        The name is ambiguous, or a part of the path has no fields.
    """
    path = column.path
    refusal: PredicateError | ColumnNotFoundError | None = None
    cuts = range(1, column.head + 1)
    for cut in reversed(cuts) if column.whole_first else cuts:
        top = ".".join(path[:cut])
        if not _has(column, top, schema):
            continue
        try:
            return follow(column, (top, *path[cut:]), schema=schema)
        except (PredicateError, ColumnNotFoundError) as error:
            refusal = refusal or error
    missing = refusal or _missing(column, path[0], schema.names)
    if column.head == 1:
        missing.hint = _other_reading(column, schema) or missing.hint
    raise missing


def resolve_named(name: str, schema: pa.Schema) -> BoundColumn:
    """The same for a name that is a value of the caller's."""
    return resolve(column_named(name), schema)


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


def _other_reading(column: Column, schema: pa.Schema) -> str | None:
    """What to write where the dots of an exact name were meant to lead into structs, or those between exact names to be
    part of a name."""
    name, is_text = column.name, column.position >= 0
    if len(column.path) > 1:
        if name not in schema.names:
            return None
        from accel.predicate.sql import name_sql

        return f"the column of that name is {name_sql(Column((name,))) if is_text else repr(name)}"
    meant = column_named(name)
    if meant.head == 1:
        return None
    try:
        resolve(meant, schema)
    except (PredicateError, ColumnNotFoundError):
        return None
    if is_text:
        return f"in double quotes a dot is part of the name; without them {name} is the field of a struct"
    return f"the name of a filter list is exact; the field of a struct is {tuple(name.split('.'))}"


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
