"""The options of `format("accel")`: texts, as Spark passes them, become the keywords of a scan."""

from __future__ import annotations

import dataclasses
import difflib
import enum
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from accel.options import Options
from accel.scanning.spec import OnError
from accel.spark.credentials import check_name

__all__ = ["SourceOptions", "read_options"]

_TRUE, _FALSE = ("true", "1", "yes", "on"), ("false", "0", "no", "off")
_SETTINGS = {setting.name: setting.default for setting in dataclasses.fields(Options)}


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """What a user asked of `format("accel")`."""

    source: str | list[str] = field(repr=False)
    """The URL or path, or several."""
    where: str | None = None
    columns: list[str] | None = None
    limit: int | None = None
    index: str | None = "auto"
    listing: str = "store"
    partitioning: str | None = "auto"
    glob: bool = True
    partitions: int | None = None
    pushdown: bool | None = None
    """Whether Spark's filters are taken; None: as the session says."""
    on_error: OnError = OnError.RAISE
    max_files: int | None = None
    """The most files of one batch of a stream."""
    credentials: str | None = None
    options: Options = field(default_factory=Options)
    storage_options: Mapping[str, str] | None = field(default=None, repr=False)

    def planning(self) -> dict[str, Any]:
        """Return the keywords of `accel.plan`, without source, predicate and columns."""
        return {
            "index": self.index,
            "listing": self.listing,
            "partitioning": self.partitioning,
            "glob": self.glob,
            "options": self.options.for_spark(),
            "storage_options": self.storage_options,
        }


def read_options(given: Mapping[str, str]) -> SourceOptions:
    """Read the options of a data source; their names are in lower case.

    What is none of accel's own options, nor a setting of `accel.Options`, is a storage option.

    Raises
    ------
    ValueError
        An option is missing, has a value that is none, or its name nearly is that of another one.
    """
    left = {name.lower(): value for name, value in given.items()}
    values: dict[str, Any] = {"source": _source(left.pop("path", None), left.pop("paths", None))}
    for name, (key, read) in _READERS.items():
        if name in left:
            values[key] = read(name, left.pop(name))
    settings = {name: _setting(name, left.pop(name)) for name in _SETTINGS if name in left}
    for name in left:
        meant = difflib.get_close_matches(name, (*_READERS, *_SETTINGS), 1, 0.85)
        if meant:
            raise ValueError(f'format("accel") has no option {name!r}: did you mean {meant[0]}?')
    return SourceOptions(**values, options=Options(**settings), storage_options=left or None)


def _source(path: str | None, paths: str | None) -> str | list[str]:
    if paths is not None and paths.startswith("["):
        several = _strings("paths", paths)
        return [path, *several] if path is not None else several
    if not path:
        raise ValueError('format("accel") needs a path: load(url), or the option path in SQL')
    return path


def _strings(name: str, text: str) -> list[str]:
    try:
        found = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"option {name} is no JSON list: {error}") from None
    if not isinstance(found, list) or not all(isinstance(item, str) for item in found):
        raise ValueError(f"option {name} is a list of names in JSON, not {text!r:.80}")
    return found


def _names(name: str, text: str) -> list[str]:
    if text.lstrip().startswith("["):
        return _strings(name, text)
    return [part.strip() for part in text.split(",") if part.strip()]


def _text(name: str, text: str) -> str:
    return text


def _or_none(name: str, text: str) -> str | None:
    return None if text.lower() == "none" else text


def _flag(name: str, text: str) -> bool:
    if text.lower() not in (*_TRUE, *_FALSE):
        raise ValueError(f"option {name} is true or false, not {text!r:.80}")
    return text.lower() in _TRUE


def _count(name: str, text: str, least: int = 0) -> int:
    if not (text.isascii() and text.isdigit()) or len(text) > 18 or int(text) < least:
        raise ValueError(f"option {name} is a whole number of at least {least}, not {text!r:.80}")
    return int(text)


def _number(name: str, text: str) -> int:
    return _count(name, text, 1)


def _on_error(name: str, text: str) -> OnError:
    try:
        return OnError(text.lower())
    except ValueError:
        raise ValueError(f"option {name} is raise or skip, not {text!r:.80}") from None


def _credentials(name: str, text: str) -> str:
    return check_name(text)


_READERS: dict[str, tuple[str, Callable[[str, str], Any]]] = {
    "where": ("where", _text),
    "columns": ("columns", _names),
    "limit": ("limit", _count),
    "index": ("index", _or_none),
    "listing": ("listing", _text),
    "partitioning": ("partitioning", _or_none),
    "glob": ("glob", _flag),
    "partitions": ("partitions", _number),
    "pushdown": ("pushdown", _flag),
    "onerror": ("on_error", _on_error),
    "maxfilespertrigger": ("max_files", _number),
    "credentials": ("credentials", _credentials),
}


def _setting(name: str, text: str) -> Any:
    default = _SETTINGS[name]
    if isinstance(default, bool):
        return _flag(name, text)
    if isinstance(default, enum.Enum):
        return text
    kind = float if isinstance(default, float) else int
    try:
        return kind(text)
    except ValueError:
        what = "number" if kind is float else "whole number"
        raise ValueError(f"option {name} is a {what}, not {text!r:.80}") from None
