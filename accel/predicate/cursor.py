"""A place in the tokens of a predicate: what is expected there, and the operands read from it."""

from __future__ import annotations

from typing import NoReturn

from accel.errors import PredicateError
from accel.predicate.expr import Column, Literal, Operand, Value, column_of
from accel.predicate.lexer import Token, tokenize
from accel.predicate.literal_text import TYPE_WORDS, number_from_text, typed_from_text

__all__ = ["MAX_DEPTH", "OPERATOR_WORDS", "Cursor"]

MAX_DEPTH = 200
"""How deep a tree may be, and how many parentheses and NOTs may be open at one place."""

OPERATOR_WORDS = frozenset(("AND", "OR", "NOT", "IS", "IN", "BETWEEN", "LIKE", "ILIKE"))
"""The words that can follow an operand; where an operand is due, each may still be a column."""

_AFTER = {
    **dict.fromkeys(("+", "-"), "arithmetic is not supported; dates and times stand in quotes"),
    "ESCAPE": "the escape character of LIKE is the backslash, always",
    "(": "functions are not supported",
    "LIMIT": "the condition alone stands here: limit= is an argument of its own",
    "OFFSET": "the condition alone stands here: rows are not skipped",
    "ORDER": "the condition alone stands here: rows come in file order, and are sorted in what they are read into",
    **dict.fromkeys(
        ("GROUP", "HAVING"), "the condition alone stands here: rows are grouped in what they are read into"
    ),
    "CONTAINS": "write LIKE '%text%'",
    **dict.fromkeys(("STARTSWITH", "STARTS_WITH"), "write LIKE 'text%'"),
    **dict.fromkeys(("ENDSWITH", "ENDS_WITH"), "write LIKE '%text'"),
    **dict.fromkeys(
        ("RLIKE", "REGEXP", "SIMILAR", "GLOB", "MATCHES"), "LIKE is the one kind of pattern, of % and _"
    ),
    "ISNULL": "write IS NULL",
    "NOTNULL": "write IS NOT NULL",
}
"""What may be meant by what stands where a condition has ended."""

_CONSTANTS = {"TRUE": True, "FALSE": False, "NULL": None}


class Cursor:
    """The tokens of a predicate and the index of the next one."""

    __slots__ = ("_index", "_text", "_tokens")

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = tokenize(text)
        self._index = 0

    # What goes wrong.

    def _error(self, message: str, position: int, hint: str | None = None) -> PredicateError:
        return PredicateError(message, text=self._text, position=position, hint=hint)

    def _fail(self, expected: str, hint: str | None = None) -> NoReturn:
        token = self._tokens[self._index]
        if token.kind == "end":
            found = "the end"
        elif token.kind == "text":
            found = "text"
        else:
            found = token.value if token.kind != "quoted" else f'"{token.value}"'
            found = f"{found[:37]}..." if len(found) > 40 else found
        raise self._error(f"expected {expected}, found {found}", token.position, hint)

    def _hint_after(self) -> str | None:
        token = self._tokens[self._index]
        if token.kind == "op":
            return "comparisons do not chain; join them by AND, or use BETWEEN"
        if token.word in _AFTER:
            return _AFTER[token.word]
        if token.word in OPERATOR_WORDS:
            return f"{token.word} takes a column or a literal on its left"
        if token.kind in ("name", "quoted", "text"):
            return (
                "the operators are = <> < <= > >= IN BETWEEN LIKE ILIKE IS; "
                "names with other characters than letters, digits and _ need double quotes"
            )
        return None

    def _check_nesting(self, nesting: int) -> None:
        if nesting > MAX_DEPTH:
            position = self._tokens[self._index].position
            raise self._error(f"nested deeper than {MAX_DEPTH} levels", position)

    # Operands.

    def _take(self, word: str) -> bool:
        if self._tokens[self._index].word == word:
            self._index += 1
            return True
        return False

    def _right(self) -> Operand:
        """An operand, in parentheses or not."""
        opened = 0
        while self._take("("):
            opened += 1
            self._check_nesting(opened)
        operand = self._operand()
        for _ in range(opened):
            if not self._take(")"):
                self._fail(")", self._hint_after())
        return operand

    def _plain_list(self) -> list[Value] | None:
        """The values up to the next `)`, which is passed, where all are numbers and texts: what `_right` would find.

        None where there is anything else: it is left to the plain way, with the place as it was.
        """
        tokens, at = self._tokens, self._index
        values: list[Value] = []
        while (kind := tokens[at].kind) in ("number", "text"):
            word = tokens[at + 1].word
            if word not in (",", ")"):
                return None
            value = tokens[at].value
            try:
                values.append(number_from_text(value) if kind == "number" else value)
            except ValueError:
                return None
            at += 2
            if word == ")":
                self._index = at
                return values
        return None

    def _operand(self) -> Operand:
        token = self._tokens[self._index]
        kind, value, position, word = token
        if kind == "name":
            return self._named(token)
        if kind == "text":
            self._index += 1
            return Literal(value, position)
        if kind == "number":
            self._index += 1
            return self._number(token, position, negative=False)
        if kind == "quoted":
            return self._column()
        if word in ("-", "+"):
            self._index += 1
            number = self._tokens[self._index]
            if number.kind != "number":
                self._fail(f"a number after {word}")
            self._index += 1
            return self._number(number, position, negative=word == "-")
        self._fail("a column or a literal", self._hint_operand())

    def _hint_operand(self) -> str | None:
        """Of what is no operand, by what stands before it."""
        token = self._tokens[self._index]
        before = self._tokens[self._index - 1] if self._index else token
        if token.kind == "op" and before.kind == "op":
            both = before.word + token.word
            if both == "<=>":
                return "write IS NOT DISTINCT FROM"
            return "the operators are = <> < <= > >="
        if token.word == ")" and before.word == ",":
            return "a list ends without a comma"
        return None

    def _named(self, token: Token) -> Operand:
        following = self._tokens[self._index + 1]
        word = token.word
        if word in _CONSTANTS and following.word != ".":
            self._index += 1
            return Literal(_CONSTANTS[word], token.position)
        if following.kind == "text":
            return self._typed(token, following)
        if word in OPERATOR_WORDS and self._starts_operand(following):
            self._fail("a column or a literal", f'a column of this name is written "{token.value}" here')
        if following.word == "(" and word not in OPERATOR_WORDS:
            self._index += 1
            self._fail("an operator", "functions are not supported")
        return self._column()

    @staticmethod
    def _starts_operand(token: Token) -> bool:
        if token.kind == "name":
            return token.word not in OPERATOR_WORDS
        return token.kind in ("quoted", "number", "text")

    def _typed(self, token: Token, text: Token) -> Literal:
        if token.word not in TYPE_WORDS:
            self._fail(
                "an operator",
                f"there is no literal {token.value} '…', only DATE, TIME, TIMESTAMP, DOUBLE and X",
            )
        self._index += 2
        try:
            return Literal(typed_from_text(token.word, text.value), token.position)
        except ValueError as error:
            raise self._error(str(error), text.position) from None

    def _number(self, token: Token, position: int, *, negative: bool) -> Literal:
        try:
            value = number_from_text(token.value)
        except ValueError as error:
            raise self._error(str(error), token.position) from None
        if negative:
            # copy_negate: the minus operator would round to the context's precision.
            value = -value if isinstance(value, int) else value.copy_negate()
        return Literal(value, position)

    def _column(self) -> Column:
        tokens = self._tokens
        position = tokens[self._index].position
        path = [tokens[self._index].value]
        quoted = [tokens[self._index].kind == "quoted"]
        self._index += 1
        while self._take("."):
            token = tokens[self._index]
            if token.kind not in ("name", "quoted"):
                self._fail("a name after the dot")
            path.append(token.value)
            quoted.append(token.kind == "quoted")
            self._index += 1
        head = quoted.index(True) if True in quoted else len(path)
        return column_of(path, head=max(head, 1), position=position)
