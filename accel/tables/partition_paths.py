"""Partition columns that paths spell: `.../year=2013/month=01/part-0.parquet`.

The rules are those of Hive and Spark: a directory `key=value`, both %-encoded where they hold odd
characters, `__HIVE_DEFAULT_PARTITION__` for null.
"""

from __future__ import annotations

import datetime
import os
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import pyarrow as pa

from accel.arrays import make_scalar
from accel.errors import SchemaMismatchError, redact

__all__ = [
    "NULL",
    "SpelledColumn",
    "Spelling",
    "hint_of_key",
    "is_utf8",
    "settle",
    "settle_types",
    "spell",
    "spelled_columns",
]

NULL = "__HIVE_DEFAULT_PARTITION__"
_INTEGER = re.compile(r"-?[0-9]{1,19}")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_INT64 = range(-(2**63), 2**63)
_LONG = 256
"""Characters of a value that is longer than what a head is to hold."""
_OFF = "`partitioning=None` reads the files without partition columns"


@dataclass(frozen=True, slots=True)
class Spelling:
    """The keys and values in the path of one file, in path order. Values are text, or None for null."""

    url: str
    keys: tuple[str, ...]
    values: tuple[str | None, ...]


def spell(url: str, directories: Iterable[str]) -> Spelling:
    """Read the `key=value` segments of the directories of a file. The first of two equal keys counts, as for
    pyarrow.

    Raises
    ------
    SchemaMismatchError
        The name of a local directory is not UTF-8.
    """
    keys: list[str] = []
    values: list[str | None] = []
    for segment in directories:
        key, equals, value = segment.partition("=")
        if not equals or not key:
            continue
        if not (segment.isascii() or is_utf8(segment)):
            raise SchemaMismatchError(
                f"the name of its directory {segment!a} is not UTF-8", path=url, hint=_OFF
            )
        key = _decode(key)
        if key in keys:
            continue
        keys.append(key)
        text = _decode(value)  # some writers encode the underscores of NULL
        values.append(None if text == NULL else text)
    return Spelling(url, tuple(keys), tuple(values))


def settle(
    spellings: Sequence[Spelling],
    types: pa.Schema | None = None,
    *,
    strict: bool,
    as_text: Collection[str] = (),
    spelled_as: Collection[str] | None = None,
) -> tuple[pa.Schema, list[tuple[object, ...]]]:
    """Settle names and types of the partition columns over all files at once.

    Parameters
    ----------
    spellings : sequence of Spelling
        The spellings of all files.
    types : pyarrow.Schema, optional
        The columns and their types, in order; keys that it does not name are left out. Without it a column is
        int64 if every value is an integer (leading zeros allowed), date32 if every value is `YYYY-MM-DD`, and
        string otherwise or if all values are null.
    strict : bool
        True for one directory: every file must spell the same keys, in any order; the first file sets the
        order of the columns. False for files that are named one by one: the keys that all of them spell
        become columns.
    as_text : collection of str
        Keys whose values are strings, whatever they look like.
    spelled_as : collection of str, optional
        Given where keys that differ in case alone are the same: columns of the data set, whose names the
        columns get. Others are called as `types` or the first file spells them. None compares exactly.

    Returns
    -------
    schema : pyarrow.Schema
        The partition columns.
    values : list of tuple
        The values of each file in the order of the schema: Python values, or the text of a value that Python
        lacks; None for null.

    Raises
    ------
    SchemaMismatchError
        Two files disagree on the keys, a key of `types` is missing, or a value does not fit its type.
    """
    if spelled_as is not None:
        names = _Names((*spelled_as, *(() if types is None else types.names)))
        spellings = [names.respelled(one) for one in spellings]
        as_text = {names.of(key) for key in as_text}
        if types is not None:
            types = pa.schema([field.with_name(names.of(field.name)) for field in types])
    if not spellings:
        return types if types is not None else pa.schema([]), []
    keys = list(spellings[0].keys)
    if types is not None:
        keys = list(types.names)
        _require(spellings, keys)
    elif strict:
        _same_keys(spellings)
    else:
        shared = set(keys).intersection(*(s.keys for s in spellings))
        keys = [key for key in keys if key in shared]
    fields: list[Any] = []
    columns: list[list[object]] = []
    for key in keys:
        texts = [s.values[s.keys.index(key)] for s in spellings]
        distinct = list(dict.fromkeys(text for text in texts if text is not None))
        if types is None:
            kind, values = (pa.string(), list(distinct)) if key in as_text else _infer(distinct)
            field = pa.field(key, kind)
        else:
            field = types.field(key)
            values = _convert(distinct, field, texts, spellings)
        lookup: dict[str | None, object] = dict(zip(distinct, values, strict=True))
        lookup[None] = None
        fields.append(field)
        columns.append([lookup[text] for text in texts])
    rows: list[tuple[object, ...]] = list(zip(*columns, strict=True)) if columns else [()] * len(spellings)
    return pa.schema(fields), rows


class _Names:
    """Names by which keys are called that are compared without regard to case."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names: dict[str, str] = {}
        for name in names:
            self.of(name)

    def of(self, key: str) -> str:
        """Return the name of a key: the one that was met first."""
        return self._names.setdefault(key.lower(), key)

    def respelled(self, spelling: Spelling) -> Spelling:
        """Return what a path spells, under these names. The first of two keys of one name counts."""
        keys = [self.of(key) for key in spelling.keys]
        if (*keys,) == spelling.keys:
            return spelling
        values: dict[str, str | None] = {}
        for key, value in zip(keys, spelling.values, strict=True):
            values.setdefault(key, value)
        return Spelling(spelling.url, tuple(values), tuple(values.values()))


@dataclass(frozen=True, slots=True)
class SpelledColumn:
    """What the paths of some files spell for one key."""

    kind: pa.DataType
    """The type that `settle` gives these values; null where no path spells one."""
    lower: str | None
    """The least value as it is spelled, in the order of `kind`; None where there is none, or it is long."""
    upper: str | None
    has_null: bool


def spelled_columns(directories: Iterable[str]) -> Mapping[str, SpelledColumn] | None:
    """Return what paths below one directory spell, by key, in the order of the first; None where their keys
    differ.

    Parameters
    ----------
    directories : iterable of str
        The directories of files, below that one.
    """
    try:
        spellings = [spell(one, one.split("/")) for one in dict.fromkeys(directories)]
        _same_keys(spellings)
    except SchemaMismatchError:
        return None
    found = {}
    for key in spellings[0].keys:
        texts = [s.values[s.keys.index(key)] for s in spellings]
        distinct = list(dict.fromkeys(text for text in texts if text is not None))
        kind, values = _infer(distinct)
        in_order = [text for _, text in sorted(zip(values, distinct, strict=True))]
        lower, upper = (
            next((t for t in some if len(t) <= _LONG), None) for some in (in_order[:1], in_order[-1:])
        )
        found[key] = SpelledColumn(kind if distinct else pa.null(), lower, upper, None in texts)
    return found


def settle_types(
    parts: Sequence[Mapping[str, SpelledColumn]],
    *,
    as_text: Collection[str] = (),
    spelled_as: Collection[str] | None = None,
) -> pa.Schema | None:
    """Return the partition columns of all files together, as `settle` does, by what the paths of some at a
    time spell.

    None where the keys of some files differ from those of others.

    Parameters
    ----------
    parts : sequence of mapping
        As `spelled_columns` returns them. The first is that of the first file.
    as_text : collection of str
    spelled_as : collection of str, optional
        As for `settle`. A key that it spells otherwise is left to `settle`.
    """
    keys = list(parts[0])
    if spelled_as is not None:
        names = _Names((*spelled_as, *as_text, *keys))
        if any(names.of(key) != key for key in keys):
            return None
    if any(part.keys() != parts[0].keys() for part in parts):
        return None
    fields = []
    for key in keys:
        kinds = {part[key].kind for part in parts} - {pa.null()}
        kind = kinds.pop() if len(kinds) == 1 and key not in as_text else pa.string()
        fields.append(pa.field(key, kind))
    return pa.schema(fields)


def hint_of_key(name: str, url: str, *, source: Any, partitioning: str | pa.Schema | None) -> str | None:
    """Return a hint about a missing column that the path of a file spells as a key; None if it does not.

    `source` and `partitioning` are those of the scan: the key is not wanted, is above the only folder, or is
    not in the paths of all files.
    """
    if not _spells(name, url.split("/")[:-1]):
        return None
    types = f"`partitioning=pyarrow.schema([({name!r}, ...)])`"
    only = source[0] if isinstance(source, list | tuple) and len(source) == 1 else source
    if isinstance(only, str | os.PathLike):
        folder = os.fsdecode(only).rstrip("/")
        if url.startswith(f"{folder}/") and _spells(name, folder.split("/")):
            also = "" if partitioning == "hive" else f", and give {types}"
            return f"{_above(name)}, {redact(folder)}/*{also}"
    if partitioning == "hive":
        return f"{name!r} is in this path, but not in those of all files"
    return f"{name!r} is in the path: {types} makes it a column"


def _spells(name: str, segments: Iterable[str]) -> bool:
    return any("=" in segment and _decode(segment.partition("=")[0]) == name for segment in segments)


def _above(name: str) -> str:
    return (
        f"{name!r} is in the path, but of a folder only what is below it makes columns: name the folder "
        f"above {name}=, or a pattern"
    )


def is_utf8(name: str) -> bool:
    """Return whether a path or a part of it is text: the names of local files may be any bytes."""
    try:
        name.encode()
    except UnicodeEncodeError:  # `os` makes surrogates of other bytes
        return False
    return True


def _decode(text: str) -> str:
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError:
        return text


def _infer(texts: list[str]) -> tuple[Any, list[Any]]:
    if texts and all(_INTEGER.fullmatch(text) for text in texts):
        numbers = [int(text) for text in texts]
        if all(number in _INT64 for number in numbers):
            return pa.int64(), numbers
    if texts and all(_DATE.fullmatch(text) for text in texts):
        try:
            return pa.date32(), [datetime.date.fromisoformat(text) for text in texts]
        except ValueError:
            pass
    return pa.string(), list(texts)


def _convert(
    distinct: list[str], field: Any, texts: list[str | None], spellings: Sequence[Spelling]
) -> list[object]:
    kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
    values: list[object] = []
    for text in distinct:
        try:
            value = make_scalar(text, kind)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise SchemaMismatchError(
                f"partition value {text!r} of {field.name!r} is not of type {kind}",
                path=spellings[texts.index(text)].url,
            ) from error
        values.append(text if _exceeds_python(kind) else value.as_py())
    return values


def _exceeds_python(kind: pa.DataType) -> bool:
    """Return whether Python cannot tell all values apart, or lacks some.

    It takes the two hours of a clock set back for equal, and the two zeros; it has no nanoseconds and no year
    0.
    """
    return bool(pa.types.is_timestamp(kind) or pa.types.is_date(kind) or pa.types.is_floating(kind))


def _require(spellings: Sequence[Spelling], keys: list[str]) -> None:
    for spelling in spellings:
        for key in keys:
            if key not in spelling.keys:
                raise SchemaMismatchError(
                    f"the path does not spell the partition key {key!r}",
                    path=spelling.url,
                    hint=_above(key) if _spells(key, spelling.url.split("/")[:-1]) else _OFF,
                )


def _same_keys(spellings: Sequence[Spelling]) -> None:
    first = spellings[0]
    for other in spellings:
        if other.keys != first.keys and set(other.keys) != set(first.keys):
            raise SchemaMismatchError(
                f"partition keys {_show(other)} here, but {_show(first)} in {first.url}",
                path=other.url,
                hint=_OFF,
            )


def _show(spelling: Spelling) -> str:
    return "/".join(spelling.keys) or "none"
