"""Messages of accel in the words of the command line.

accel marks the arguments that its messages name with backticks: `columns=`, `table=None`, `options.strict`.
"""

from __future__ import annotations

import dataclasses
import re
from typing import Final

from accel.errors import AccelError
from accel.options import Options

__all__ = ["for_command_line", "reword"]

_MARKED: Final = re.compile(r"`([^`\n]+)`")
_DEFAULTS: Final = {field.name: field.default for field in dataclasses.fields(Options)}
_SAME_NAME: Final = {"columns", "limit", "listing", "partitioning", "table", "version", "where"}
_OTHER_NAME: Final = {
    "accel.build_index": "accel index build",
    "accel.embed_files": "accel embed",
    "allow_http=True": "--storage-option allow_http=true",
    "case_sensitive=True": "leaving out --ignore-case",
    "count_rows": "--count",
    "dst": "DST",
    "file_path=": "--file-path",
    "glob=False": "--no-glob",
    "indexes=": "--index",
    "order_by=": "--order-by",
    'schema="union"': "--schema union",
    "skip_signature=True": "--anonymous",
    "storage_options": "--storage-option",
    "storage_options={'headers': {'Authorization': ...}}": "--header 'Authorization: ...'",
}
_ONLY_IN_PYTHON: Final = ("accel.", "allowed_stores=", "learn=", "metrics.", "schema=", "store=")


def reword(text: str) -> str:
    """Return a message with the command line's options in place of the arguments that it marks; those that
    have none are said to be Python's."""
    return _MARKED.sub(lambda found: _spell(found[1]) or found[0], text)


def for_command_line(error: Exception) -> str:
    """Return the text of an error as the command prints it; what it quotes of the command stays."""
    if isinstance(error, AccelError):
        error.message = reword(error.message)
        error.hint = error.hint and reword(error.hint)
        return str(error)
    return reword(str(error)) or type(error).__name__


def _spell(marked: str) -> str | None:
    """Return how the command line writes what is marked, None for what is no argument."""
    if marked in _OTHER_NAME:
        return _OTHER_NAME[marked]
    if marked.startswith(_ONLY_IN_PYTHON):
        return f"{marked} in Python"
    name, equals, value = marked.partition("=")
    # A schema of the partition columns has the columns that the paths spell, as far as a command can say so.
    value = "hive" if value.startswith("pyarrow.schema") else value.strip('"').lower()
    if equals and name in _SAME_NAME:
        return f"--{name} {value}".rstrip()
    setting = re.fullmatch(r"""options\.(\w+)|Options\((\w+)="?(\w+)"?\)""", marked)
    if setting is None:
        return None
    name, value = setting[1] or setting[2], (setting[3] or "").lower()
    if name == "int96_unit":
        return f"--int96-unit {value}".rstrip()
    if isinstance(_DEFAULTS.get(name), bool):
        value = value or "true"
    return f"--option {name}={value}" if value else f"--option {name}"
