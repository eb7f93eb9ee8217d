"""Hints of accel's errors in the words of the command line: they name keywords of Python where they are raised."""

from __future__ import annotations

import dataclasses
import re
from typing import Final

from accel.errors import AccelError
from accel.options import Options

__all__ = ["for_command_line", "reword"]


def _setting(found: re.Match[str]) -> str:
    name = found[1]
    defaults = {field.name: field.default for field in dataclasses.fields(Options)}
    if name not in defaults:
        return found[0]
    return f"--option {name}=true" if isinstance(defaults[name], bool) else f"--option {name}"


# Whole phrases before the keywords in them. What follows a quote may be a name of the user's.
_SPELLED: Final = tuple(
    (re.compile(python), spelled)
    for python, spelled in (
        (r"\bstorage_options=\{'headers': \{'Authorization': \.\.\.\}\}", "--header 'Authorization: ...'"),
        (r"\bskip_signature=True", "--anonymous"),
        (r"\ballow_http=True", "--storage-option allow_http=true"),
        (r"\bstorage_options\b", "--storage-option"),
        (r'\bOptions\(int96_unit="(\w+)"\)', r"--int96-unit \1"),
        (r"(?<!['\"\w.])[Oo]ptions\.(\w+)", _setting),
        (r"\bgive partitioning=pyarrow\.schema\(\[.*\]\)", "leave out --partitioning none"),
        (r"\bpartitioning=pyarrow\.schema\(\[.*\]\)", "leaving out --partitioning none"),
        (r"\bpartitioning=None", "--partitioning none"),
        (r"\bglob=False", "--no-glob"),
        (r"\bcolumns=None takes all", "leave out --columns for all"),
        (r"(?<!['\"\w])(columns|where|limit)=(?![^\s,;)])", r"--\1"),
        (r"(?<!['\"\w])indexes=(?![^\s,;)])", "--index"),
        (r"\bpass None to keep every row", "leave out --where to keep every row"),
        (r"\bdst\b", "DST"),
        (r"\bcount_rows\b", "--count"),
        (r"; build the condition with accel\.col\b", "; write the value itself"),
        (r", and any obstore store by store=", ""),
    )
)
_ONLY_IN_PYTHON = re.compile(r"(?<!['\"\w])(?:schema|store)=(?![^\s,;)])|\baccel\.\w+\(")


def reword(hint: str) -> str:
    """Return the hint with the command line's own options; what it has none for is said to be of Python."""
    for pattern, spelled in _SPELLED:
        hint = pattern.sub(spelled, hint)
    return f"in Python, {hint}" if _ONLY_IN_PYTHON.search(hint) else hint


def for_command_line(error: Exception) -> str:
    """Return the error's text as the command prints it; only what accel itself advises is reworded."""
    if isinstance(error, AccelError) and error.hint:
        error.hint = reword(error.hint)
    return str(error) or type(error).__name__
