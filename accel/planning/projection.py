"""Projection: from column names to the Arrow schema of the result and the leaves of a file."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress

import pyarrow as pa

from accel.arrays import change_fields
from accel.errors import ColumnNotFoundError, PredicateError, SchemaMismatchError
from accel.format.model import INT96_UNIT, Leaf, ParquetSchema, Physical, SchemaElement
from accel.predicate.expr import column_named, column_of, quoted_name, quoted_path

__all__ = [
    "children_of",
    "field_leaves",
    "find_type",
    "has_instants",
    "indexed_as_read",
    "int96_unit",
    "leaves_type",
    "match_fields",
    "narrow_type",
    "nearest_names",
    "path_leaves",
    "project_schema",
    "settle_schemas",
    "spelled_name",
    "split_name",
    "type_at",
    "zoned_schema",
]

# The schemas settled last, by the schema object and the columns: repeated lookups share them.
_MOST_SETTLED = 16
_settled: dict[object, tuple[pa.Schema, pa.Schema, pa.Schema]] = {}


def settle_schemas(
    schema: pa.Schema, columns: tuple[str, ...] | None, *, alone: bool, folded: bool = False
) -> tuple[pa.Schema, pa.Schema]:
    """Return the schema of a data set, without metadata, and that of its result: see `project_schema`.

    With `folded` the result is not handed out, and may have several columns of a name: aggregates name those
    that they take. Unless it is that of the one file of the data set, which is `alone`, any column may be
    null, as another file may lack it or not require it. The same object and columns give the same objects.
    """
    named = columns is None or all(isinstance(name, str) for name in columns)
    key = (
        (id(schema), columns, alone, folded) if named else None
    )  # names that are no strings are refused below
    found = _settled.get(key)
    if found is None:
        whole = schema if alone else _nullable_schema(schema)
        # The entry keeps the schema alive: its id stays its own.
        output = whole if folded and columns is None else project_schema(whole, columns)
        found = (schema, whole.remove_metadata(), output)
        if len(_settled) >= _MOST_SETTLED:
            _settled.clear()
        _settled[key] = found
    return found[1:]


def _nullable_schema(schema: pa.Schema) -> pa.Schema:
    """Return the same columns, nullable at every depth.

    Keys of maps never are; lists of a fixed size and extension types stay as they are.
    """
    return pa.schema([_nullable(field) for field in schema], schema.metadata)


def _nullable(field: pa.Field) -> pa.Field:
    if pa.types.is_nested(field.type) and not pa.types.is_fixed_size_list(field.type):
        field = field.with_type(change_fields(field.type, _nullable) or field.type)
    return field if field.nullable else field.with_nullable(True)


def type_at(schema: pa.Schema, path: tuple[str, ...]) -> pa.DataType:
    """Return the type of the field that a path leads to, through structs; of several of one name the
    first."""
    kind = schema.field(schema.get_all_field_indices(path[0])[0]).type
    for name in path[1:]:
        kind = kind.field(name).type
    return kind


def split_name(name: str, schema: pa.Schema, *, case_sensitive: bool = True) -> tuple[str, ...]:
    """Split a column name into a path: an exact top-level name wins over a dotted path into structs, and that
    over a path whose names are quoted as in a predicate.

    The path has the names of the schema, from which those of the name may differ in case unless it is
    `case_sensitive`.

    Raises
    ------
    ColumnNotFoundError
        There is no such column.
    SchemaMismatchError
        A struct on the way has several fields of that name, or columns that the name means differ in case
        alone.
    """
    with suppress(UnicodeEncodeError):  # a lone surrogate is in no name
        path = _find(name, schema) if case_sensitive else _find_caseless(name, schema)
        if path is not None:
            return path
        _refuse_several(name, schema)
        path = quoted_path(name)
        if path is not None:
            at = schema.get_field_index(path[0])
            if at >= 0 and find_type(schema.field(at).type, path[1:]) is not None:
                return path
    raise ColumnNotFoundError(f"there is no column {name!r}", column=name, hint=_instead(name, schema))


def _find_caseless(name: str, schema: pa.Schema) -> tuple[str, ...] | None:
    from accel.predicate.bind import resolve

    name.encode()  # as a search by the name itself does, it raises for a lone surrogate
    quoted = quoted_path(name)
    try:
        for column in (column_named(name), *(() if quoted is None else (column_of(quoted),))):
            with suppress(ColumnNotFoundError):
                return resolve(column, schema, ignore_case=True).path
    except PredicateError as error:
        raise SchemaMismatchError(error.message, hint=error.hint) from None
    return None


def spelled_name(name: str, schema: pa.Schema) -> str:
    """Return a column name, or a dotted path, as a schema spells it, whatever its case; one that the schema
    lacks stays as it is.

    Raises
    ------
    SchemaMismatchError
        As `split_name` raises it.
    """
    try:
        path = split_name(name, schema, case_sensitive=False)
    except ColumnNotFoundError:
        return name
    plain = ".".join(path)
    if _find(plain, schema) == path:
        return plain
    return ".".join(map(quoted_name, path))


def _refuse_several(name: str, schema: pa.Schema) -> None:
    parts = name.split(".")
    for cut in range(1, len(parts)):
        head = ".".join(parts[:cut])
        path = _find(head, schema)
        kind = None if path is None else type_at(schema, path)
        if kind is None or not pa.types.is_struct(kind):
            continue
        if len(kind.get_all_field_indices(parts[cut])) > 1:
            raise SchemaMismatchError(
                f"the file has several columns named {head + '.' + parts[cut]!r}",
                hint=f"{head!r} takes all of it",
            )


def _instead(name: str, schema: pa.Schema) -> str:
    """Suggest columns for a missing name; for a path, the fields of its last struct."""
    if name == "*":
        return "leave out `columns=` for all"
    parts = name.split(".")
    with suppress(UnicodeEncodeError):
        for cut in range(len(parts) - 1, 0, -1):
            head = ".".join(parts[:cut])
            path = _find(head, schema)
            if path is None:
                continue
            kind = type_at(schema, path)
            if not pa.types.is_struct(kind):
                return f"{head!r} is {kind}: a dotted path goes through structs only"
            if parts[cut] == "*":
                return f"{head!r} takes all of it"
            return nearest_names(parts[cut], [field.name for field in kind], f"{head}.")
    return nearest_names(name, schema.names)


def nearest_names(name: str, names: Sequence[str], above: str = "") -> str:
    """Return the names that may be meant by one that is not among them, or else those that there are."""
    import difflib

    close = difflib.get_close_matches(name, names, n=3)
    close = close or [other for other in names if other.lower() == name.lower()][:3]
    if close:
        return f"did you mean {', '.join(repr(above + other) for other in close)}?"
    return f"there are {_some([above + other for other in names])}"


def _find(name: str, schema: pa.Schema) -> tuple[str, ...] | None:
    if schema.get_field_index(name) >= 0 or len(schema.get_all_field_indices(name)) > 1:
        return (name,)
    # A top-level name may hold dots itself: take the longest that exists.
    parts = name.split(".")
    for cut in range(len(parts) - 1, 0, -1):
        head = ".".join(parts[:cut])
        index = schema.get_field_index(head)
        if index >= 0 and find_type(schema.field(index).type, parts[cut:]) is not None:
            return (head, *parts[cut:])
    return None


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(map(repr, names[:12]))
    return shown + (f" and {len(names) - 12} more" if len(names) > 12 else "") if names else "no columns"


def find_type(kind: pa.DataType, path: Sequence[str]) -> pa.DataType | None:
    """Return the type of the field that a path through structs leads to, if there is one, and one only."""
    for name in path:
        index = kind.get_field_index(name) if pa.types.is_struct(kind) else -1
        if index < 0:
            return None
        kind = kind.field(index).type
    return kind


def project_schema(schema: pa.Schema, columns: Sequence[str] | None) -> pa.Schema:
    """Return the schema of a scan's result: `columns` in the given order, None for all.

    Several dotted paths into one top-level column give that column once, holding just what was named,
    in the file's order. Metadata stay: what pandas notes there makes its types and its index again.

    Raises
    ------
    ColumnNotFoundError
        A name is not there.
    ValueError
        A name is given twice, or a name of the result would stand for two columns.
    """
    if columns is None:
        _refuse_duplicates(schema.names, among=schema)
        return schema
    wanted: dict[str, list[tuple[str, ...]]] = {}
    seen: set[tuple[str, ...]] = set()
    for name in columns:
        if not isinstance(name, str):
            raise TypeError(f"a column is named by a string, not {name!r}")
        path = split_name(name, schema)
        if path in seen:
            raise ValueError(f"column {name!r} is asked for twice")
        seen.add(path)
        wanted.setdefault(path[0], []).append(path[1:])
    fields = []
    counts = Counter(schema.names)
    for top, paths in wanted.items():
        _refuse_duplicates([top] * counts[top], among=schema)
        field = schema.field(top)
        fields.append(field if () in paths else field.with_type(narrow_type(field.type, paths)))
    return pa.schema(fields, schema.metadata)


def _refuse_duplicates(names: Sequence[str], *, among: pa.Schema) -> None:
    twice = {n for n in names if names.count(n) > 1} if len(set(names)) != len(names) else None
    if twice:
        raise SchemaMismatchError(
            f"the file has several columns named {_some(sorted(twice))}", hint=_others(among.names)
        )


def _others(names: Sequence[str]) -> str:
    counts = Counter(names)
    once = [name for name in names if counts[name] == 1]
    if not once:
        return "`count_rows` can count its rows"
    return f"the others can be read, by `columns=` {', '.join(once[:12])}"


def match_fields(fields: pa.StructType, among: pa.StructType) -> list[int]:
    """Return the place of each field of a struct among those of another, by its name; -1 where that lacks it.

    Of several fields of one name the first goes with the first, and so on.
    """
    if len({field.name for field in fields}) == fields.num_fields:
        return [next(iter(among.get_all_field_indices(field.name)), -1) for field in fields]
    seen: Counter[str] = Counter()
    places = []
    for field in fields:
        found = among.get_all_field_indices(field.name)
        places.append(found[seen[field.name]] if seen[field.name] < len(found) else -1)
        seen[field.name] += 1
    return places


def narrow_type(kind: pa.DataType, paths: Sequence[tuple[str, ...]]) -> pa.DataType:
    """Return the type cut down to the struct fields that these paths lead to, in its own order; `()` is all
    of it."""
    if () in paths:
        return kind
    fields = []
    for child in kind:
        below = [path[1:] for path in paths if path[0] == child.name]
        if below:
            fields.append(child.with_type(narrow_type(child.type, below)))
    return pa.struct(fields)


def _subtree(schema: ParquetSchema, element: int) -> list[int]:
    first, end = (
        bisect_left(schema.leaves, at, key=_element) for at in (element, schema.subtree_ends[element])
    )
    return list(range(first, end))


def _element(leaf: Leaf) -> int:
    return leaf.element


def children_of(schema: ParquetSchema, element: int) -> list[int]:
    """Return the elements that are the children of one in the schema tree."""
    out = []
    child = element + 1
    while child < schema.subtree_ends[element]:
        out.append(child)
        child = schema.subtree_ends[child]
    return out


def field_leaves(schema: ParquetSchema, arrow: pa.Schema, name: str, wanted: pa.DataType) -> list[int]:
    """Return the leaves of top-level column `name` that a result of type `wanted` takes.

    A struct's children are matched by name; where none of those wanted is in the file, its first leaf
    stands in, for the struct's own nulls. Lists and maps are taken whole.
    """
    index = arrow.get_field_index(name)
    return _leaves(schema, schema.fields[index], arrow.field(index).type, wanted)


def _leaves(schema: ParquetSchema, element: int, have: pa.DataType, wanted: pa.DataType) -> list[int]:
    if not (pa.types.is_struct(have) and pa.types.is_struct(wanted)):
        return _subtree(schema, element)
    out: list[int] = []
    for child, kind, index in zip(
        children_of(schema, element), have, match_fields(have, wanted), strict=True
    ):
        if index >= 0:
            out += _leaves(schema, child, kind.type, wanted.field(index).type)
    return out or _subtree(schema, element)[:1]


def leaves_type(
    schema: ParquetSchema, element: int, have: pa.DataType, *, leaves: Collection[int]
) -> pa.DataType:
    """Return the type of a column, or of what lies in one, cut down to some of its leaves: structs keep the
    children that have one, and lose an extension type around them.

    Raises
    ------
    SchemaMismatchError
        Something else than a struct would be cut.
    """
    if all(leaf in leaves for leaf in _subtree(schema, element)):
        return have
    if isinstance(have, pa.BaseExtensionType):
        return leaves_type(schema, element, have.storage_type, leaves=leaves)
    if not pa.types.is_struct(have):
        raise SchemaMismatchError(f"of {have} only a part is asked for", hint="ask for the column as a whole")
    fields = [
        field.with_type(leaves_type(schema, child, field.type, leaves=leaves))
        for child, field in zip(children_of(schema, element), have, strict=True)
        if any(leaf in leaves for leaf in _subtree(schema, child))
    ]
    return pa.struct(fields)


def path_leaves(schema: ParquetSchema, arrow: pa.Schema, *, path: tuple[str, ...]) -> list[int] | None:
    """Return the leaves below a path through structs, or None where the file has no such column."""
    index = arrow.get_field_index(path[0])
    if index < 0:
        return None
    element, kind = schema.fields[index], arrow.field(index).type
    for name in path[1:]:
        if not pa.types.is_struct(kind):
            return None
        at = kind.get_field_index(name)
        if at < 0:
            return None
        element, kind = children_of(schema, element)[at], kind.field(at).type
    return _subtree(schema, element)


def has_instants(schema: ParquetSchema, leaves: Sequence[int]) -> bool:
    """Return whether a leaf among these is INT96."""
    elements = schema.elements
    return any(elements[schema.leaves[leaf].element].physical is Physical.INT96 for leaf in leaves)


def int96_unit(schema: ParquetSchema, arrow: pa.Schema) -> str:
    """Return the unit that the INT96 columns of a file are read to by its Arrow schema: "us", else "ns".

    Parameters
    ----------
    arrow : pyarrow.Schema
        The Arrow schema of the same columns, with all leaves of each.
    """
    if not has_instants(schema, range(len(schema.leaves))):
        return INT96_UNIT
    for leaf, kind in zip(schema.leaves, _leaf_types(arrow.types), strict=False):
        if schema.elements[leaf.element].physical is Physical.INT96:
            return "us" if pa.types.is_timestamp(kind) and kind.unit == "us" else INT96_UNIT
    return INT96_UNIT


def indexed_as_read(element: SchemaElement, kind: pa.DataType) -> bool:
    """Return whether indexes of a column are in the type that it is read to.

    Those of INT96 are in nanoseconds.
    """
    if element.physical is not Physical.INT96:
        return True
    return bool(pa.types.is_timestamp(kind) and kind.unit == INT96_UNIT)


def zoned_schema(schema: ParquetSchema, arrow: pa.Schema) -> pa.Schema | None:
    """Return `arrow` with a zone on its INT96 timestamps, which are instants in UTC; None where there are
    none."""
    if not has_instants(schema, range(len(schema.leaves))):
        return None
    physical = iter([schema.elements[leaf.element].physical for leaf in schema.leaves])
    return pa.schema([field.with_type(_zoned(field.type, physical)) for field in arrow])


def _zoned(kind: pa.DataType, physical: Iterator[Physical | None]) -> pa.DataType:
    """Return a type with a zone on its INT96 timestamps.

    `physical` yields the physical types of the leaves, from the first of `kind` on.
    """

    def zoned(field: pa.Field) -> pa.Field:
        return field.with_type(_zoned(field.type, physical))

    changed = None if pa.types.is_fixed_size_list(kind) else change_fields(kind, zoned, keys=zoned)
    if changed is not None:
        return changed
    stored = [next(physical, None) for _ in _leaf_types([kind])]
    return (
        pa.timestamp(kind.unit, "UTC") if stored == [Physical.INT96] and pa.types.is_timestamp(kind) else kind
    )


def _leaf_types(kinds: Sequence[pa.DataType]) -> Iterator[pa.DataType]:
    for kind in kinds:
        if isinstance(kind, pa.BaseExtensionType):
            kind = kind.storage_type
        if kind.num_fields or pa.types.is_struct(kind):
            yield from _leaf_types([kind.field(at).type for at in range(kind.num_fields)])
        else:
            yield kind
