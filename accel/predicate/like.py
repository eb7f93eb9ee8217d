"""LIKE patterns: the regular expression that decides, and the byte range that prunes.

`%` is any run of characters, newlines too, `_` any one character (not byte), and a backslash takes the
next character as it stands. ILIKE: two characters match when their `str.casefold()` is equal, character
by character; that is RE2's case folding, compared with it over all of Unicode (so `k` matches the Kelvin
sign and `s` the long s, but `ß` never matches `ss`).
"""

from __future__ import annotations

from accel.errors import PredicateError
from accel.predicate.atoms import Pattern
from accel.predicate.resolve import place

__all__ = ["compile_pattern", "successor"]

# Characters whose other cases are not ASCII: no byte range of ASCII holds them.
_STRAY = frozenset("kKsS")

_MOST_CHARACTERS = 10_000
"""Of a pattern that RE2 decides, which fails to compile seven times as many wildcards."""
_SHOWN = 40

_ANY = object()
_ONE = object()


def compile_pattern(text: str, *, ignore_case: bool, position: int) -> Pattern:
    """Take a LIKE pattern apart.

    Raises
    ------
    PredicateError
        The pattern ends in a lone backslash, holds a lone surrogate, or is too long to be matched.
    """
    parts = _parts(text, position)
    regex = "".join(".*" if part is _ANY else "." if part is _ONE else _escape(str(part)) for part in parts)
    try:
        regex.encode()
    except UnicodeEncodeError:
        raise PredicateError("the pattern has a lone surrogate", position=place(position)) from None
    open_start = bool(parts) and parts[0] is _ANY
    open_end = bool(parts) and parts[-1] is _ANY
    inner = parts[1 if open_start else 0 : len(parts) - 1 if open_end and len(parts) > 1 else len(parts)]
    if parts == [_ANY]:
        inner = []
    plain = len(inner) == 1 and isinstance(inner[0], str) or not inner
    literal = (str(inner[0]) if inner else "").encode() if plain else None
    if len(text) > _MOST_CHARACTERS and (literal is None or ignore_case):
        raise PredicateError(
            f"the pattern {text[:_SHOWN]!r}... has {len(text)} characters, more than {_MOST_CHARACTERS}",
            position=place(position),
            hint="only of LIKE 'text', 'text%', '%text' and '%text%' the text may be longer",
        )
    lower, upper = _range(str(parts[0]) if parts and isinstance(parts[0], str) else "", ignore_case)
    return Pattern(
        regex=rf"\A(?s:{regex})\z",
        ignore_case=ignore_case,
        literal=literal,
        open_start=open_start,
        open_end=open_end,
        lower=lower,
        upper=upper,
        runs=tuple(part for part in parts if isinstance(part, str)),
        least=sum(len(part) if isinstance(part, str) else part is _ONE for part in parts),
    )


def successor(prefix: bytes) -> bytes | None:
    """The least bytes above everything that starts with `prefix`; None where there is none."""
    head = prefix.rstrip(b"\xff")
    return head[:-1] + bytes([head[-1] + 1]) if head else None


def _parts(text: str, position: int) -> list[object]:
    """Literal runs, `_ANY` (never two in a row) and `_ONE`."""
    parts: list[object] = []
    run: list[str] = []

    def flush() -> None:
        if run:
            parts.append("".join(run))
            run.clear()

    characters = iter(text)
    for character in characters:
        if character == "\\":
            escaped = next(characters, None)
            if escaped is None:
                raise PredicateError(
                    "the pattern ends in a lone backslash",
                    position=place(position),
                    hint="write two backslashes for one",
                )
            run.append(escaped)
        elif character == "%":
            flush()
            if not parts or parts[-1] is not _ANY:
                parts.append(_ANY)
        elif character == "_":
            flush()
            parts.append(_ONE)
        else:
            run.append(character)
    flush()
    return parts


def _escape(run: str) -> str:
    return "".join(c if c.isalnum() or ord(c) > 127 else f"\\x{{{ord(c):x}}}" for c in run)


def _range(run: str, ignore_case: bool) -> tuple[bytes, bytes | None]:
    if not ignore_case:
        prefix = run.encode()
        return prefix, successor(prefix)
    # Upper-case ASCII letters stand before lower-case ones, so the two spellings are the two ends.
    length = next((i for i, c in enumerate(run) if not c.isascii() or c in _STRAY), len(run))
    head = run[:length]
    return head.upper().encode(), successor(head.lower().encode())
