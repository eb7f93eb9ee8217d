"""Text without case, as indexes hold it: folded by one Python and asked for by another.

`str.casefold` never changes for a character once Unicode has it. One that this Python's Unicode lacks may fold to another
in a later one: what it folds to here says nothing there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from accel.indexes.question import LeafQuestion

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["asks_ascii", "fold", "fold_all", "fold_settled", "is_settled"]

_ASCII = bytes(range(128))


def fold(text: bytes) -> bytes:
    """The text folded; raises UnicodeDecodeError for what is no UTF-8."""
    return text.lower() if text.isascii() else text.decode().casefold().encode()


def fold_all(texts: Sequence[bytes]) -> list[bytes] | None:
    """All of them folded; None where one is no UTF-8, or not settled."""
    if b"".join(texts).isascii():
        return [text.lower() for text in texts]
    try:
        folded = [fold(text) for text in texts]
    except UnicodeDecodeError:
        return None
    return folded if is_settled(b"".join(folded)) else None


def fold_settled(text: bytes) -> bytes | None:
    """The text folded; None where it is no UTF-8, or not settled."""
    found = fold_all((text,))
    return None if found is None else found[0]


def is_settled(text: bytes) -> bool:
    """Whether this Python's Unicode has all characters of a text, folded or not, that any will have; it must be UTF-8."""
    if text.isascii():
        return True
    shown = text.translate(None, _ASCII).decode()
    if shown.isprintable():  # as no character is that is missing, and nearly all others are
        return True
    from unicodedata import category

    return all(category(character) != "Cn" or _is_none(ord(character)) for character in set(shown))


def _is_none(code: int) -> bool:
    """Whether Unicode says that it never is a character."""
    return code & 0xFFFE == 0xFFFE or 0xFDD0 <= code <= 0xFDEF


def asks_ascii(question: LeafQuestion) -> bool:
    """Whether the texts of a question are ASCII: no character that Unicode may get folds to what they hold."""
    texts = question.values if question.pattern is None else question.pattern.runs
    return all(text.isascii() for text in texts if isinstance(text, bytes | str))
