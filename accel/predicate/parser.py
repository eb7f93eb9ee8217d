"""Parses predicate text: tokens, operands, and the tree of conditions.

The dialect is described in docs/predicates.md. Conditions are parsed without recursion.
"""

from __future__ import annotations

import datetime
import re
from dataclasses import dataclass, field
from typing import NamedTuple, NoReturn

from accel.errors import PredicateError
from accel.predicate.expr import (
    MAX_DEPTH,
    And,
    Column,
    Compare,
    Constant,
    Expr,
    IsNull,
    Like,
    Literal,
    Not,
    Op,
    Operand,
    Or,
    Value,
    check_pattern,
    column_of,
    depth_of,
    join,
)
from accel.predicate.in_list import list_member
from accel.predicate.literal import TYPE_WORDS, compare_values, number_from_text, typed_from_text
from accel.predicate.moment_syntax import (
    CALLED,
    FUNCTIONS,
    ONLY_FUNCTIONS,
    PRESENT,
    read_function,
    read_moves,
    read_present,
)
from accel.predicate.moments import Truncated
from accel.predicate.sql import OPERATOR_WORDS, name_sql, text_hint

__all__ = [
    "COMPARISONS",
    "Token",
    "parse",
    "tokenize",
]

MAX_LENGTH = 1 << 24
"""Longest predicate text, in characters."""

# A name is letters, digits and non-ASCII characters; the negated class compiles fifty times faster.
# Quantifiers are possessive, so that an unclosed literal does not match as a shorter one.
_TOKEN = re.compile(
    r"""[ \t\r\n\f\v]*+(?:
      (?P<name>[^\x00-@\[-^`{-\x7f][^\x00-\#%-/:-@\[-^`{-\x7f]*+)
    | (?P<number>(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(?:[eE][+-]?[0-9]++)?)
    | (?P<text>'[^']*+(?:''[^']*+)*+')
    | (?P<quoted>"[^"]*+(?:""[^"]*+)*+")
    | (?P<op><>|<=|>=|<|>|!=|==|=)
    | (?P<mark>--|/\*|[(),.+-])
    | (?P<end>\Z)
    )""",
    re.VERBOSE,
)
_GAP = " \t\r\n\f\v"
_LETTERS = frozenset("LMN")

_HINTS = {
    "`": 'names are quoted with double quotes: "a name"',
    "[": 'a field of a struct is written a.b; a list stands in parentheses, as in IN (1, 2); names are quoted with double quotes: "a name"',  # noqa: E501
    "&": "write AND",
    "|": "write OR",
    "!": "write NOT, or <> for not equal",
    "~": "write NOT, or LIKE",
    ":": "casts and parameters are not supported; write a typed literal such as DATE '2013-01-31'",
    ";": "one condition, with nothing after it",
    "%": "neither arithmetic nor parameters are supported; LIKE takes 'a%' in quotes",
    "*": "arithmetic is not supported",
    "/": "arithmetic is not supported",
    "?": "parameters are not supported: write the value itself, or build the condition with `accel.col`",
    "$": "parameters are not supported: write the value itself, or build the condition with `accel.col`",
    "@": "parameters are not supported: write the value itself, or build the condition with `accel.col`",
    "{": "a list stands in parentheses, as in IN (1, 2)",
}


class Token(NamedTuple):
    """One token of a predicate.

    `kind` is "name", "quoted" (a name in double quotes), "number", "text", "op", "mark" or "end".
    `value` is its text without quotes. `word` is what the grammar compares: an unquoted name in
    upper case, the characters of an operator or mark, else empty.
    """

    kind: str
    value: str
    position: int
    word: str


def tokenize(text: str) -> list[Token]:
    """Split text into tokens, the last of kind "end"; raise `PredicateError` at a character that begins
    none."""
    if len(text) > MAX_LENGTH:
        raise PredicateError(
            f"the predicate has {len(text):,} characters, more than {MAX_LENGTH:,}",
            hint="pass long key lists as `accel.col(name).isin(array)`",
        )
    if not text.isascii():
        _check_encodable(text)
    out: list[Token] = []
    match = _TOKEN.match
    position = 0
    while True:
        found = match(text, position)
        if found is None:
            raise _fault(text, position)
        kind = found.lastgroup or ""
        value = found[kind]
        position = found.end()
        start = position - len(value)
        if kind == "name":
            if value.isascii():
                out.append(Token(kind, value, start, value.upper()))
            else:
                _check_name(text, value, start)
                out.append(Token(kind, value, start, ""))
        elif kind == "op":
            out.append(Token(kind, value, start, value))
        elif kind == "text":
            out.append(Token(kind, value[1:-1].replace("''", "'"), start, ""))
        elif kind == "number":
            _check_number_end(text, position)
            out.append(Token(kind, value, start, ""))
        elif kind == "mark":
            if len(value) > 1:
                raise PredicateError("comments are not supported", text=text, position=start)
            out.append(Token(kind, value, start, value))
        elif kind == "quoted":
            out.append(Token(kind, value[1:-1].replace('""', '"'), start, ""))
        else:
            out.append(Token("end", "", start, ""))
            return out


def _check_encodable(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        # Replace each surrogate by "?", so that the text can be printed and positions stay.
        shown = text.encode("utf-8", "replace").decode()
        raise PredicateError("a lone surrogate is no character", text=shown, position=error.start) from None


def _check_name(text: str, name: str, start: int) -> None:
    import unicodedata

    for index, char in enumerate(name):
        category = unicodedata.category(char)
        if category[0] not in _LETTERS and char not in "_$" and category != "Pc":
            raise PredicateError(
                f"unexpected character {char!r} (U+{ord(char):04X})",
                text=text,
                position=start + index,
                hint=(
                    "write a name with such characters in straight double quotes, text in straight single "
                    "ones"
                ),
            )


def _check_number_end(text: str, end: int) -> None:
    if end < len(text) and (text[end].isalnum() or text[end] in "_$."):
        raise PredicateError(f"unexpected {text[end]!r} after a number", text=text, position=end)


def _fault(text: str, position: int) -> PredicateError:
    position = len(text) - len(text[position:].lstrip(_GAP))
    char = text[position]
    if char == "'":
        return PredicateError(
            "this text is not closed",
            text=text,
            position=position,
            hint="a quote inside text is doubled: 'it''s'",
        )
    if char == '"':
        return PredicateError("this quoted name is not closed", text=text, position=position)
    return PredicateError(
        f"unexpected character {char!r}", text=text, position=position, hint=_HINTS.get(char)
    )


_AFTER = {
    **dict.fromkeys(
        ("+", "-"),
        "arithmetic is for dates, as in CURRENT_DATE - 7; dates and times stand in quotes",
    ),
    "ESCAPE": "the escape character of LIKE is the backslash, always",
    "(": ONLY_FUNCTIONS,
    "LIMIT": "the condition alone stands here: `limit=` is an argument of its own",
    "OFFSET": "the condition alone stands here: rows are not skipped",
    "ORDER": "the condition alone stands here: rows come in file order, and are sorted in what they are read into",  # noqa: E501
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
"""Hints by the word that follows a complete condition."""

_CONSTANTS = {"TRUE": True, "FALSE": False, "NULL": None}

COMPARISONS = {
    "=": Op.EQ,
    "==": Op.EQ,
    "<>": Op.NE,
    "!=": Op.NE,
    "<": Op.LT,
    "<=": Op.LE,
    ">": Op.GT,
    ">=": Op.GE,
}
_NEGATABLE = frozenset(("IN", "BETWEEN", "LIKE", "ILIKE"))


@dataclass(slots=True)
class _Group:
    """An open parenthesis (or the whole text): its terms so far, and the NOTs before the next term."""

    position: int
    alternatives: list[Expr] = field(default_factory=list)
    terms: list[Expr] = field(default_factory=list)
    nots: int = 0


_AFTER_IS = {
    "NAN": "write = DOUBLE 'NaN'",
    "NONE": "write NULL",
    "NA": "write NULL",
    "IN": "write IN, without IS",
}

# The beginning of a statement; a condition begins so only with a column of that name.
_CLAUSE = r"\s*(?:select|where)\s+[\w\"*]"


def parse(text: str) -> Expr:
    """Parse a predicate.

    Raises PredicateError where the text does not parse, which has the text and the position of the unexpected
    character.
    """
    try:
        return _Parser(text).whole()
    except PredicateError as error:
        if re.match(_CLAUSE, text, re.IGNORECASE):
            error.hint = "give the condition alone, without SELECT or WHERE"
        raise


def _as_name(text: str) -> str:
    return f"single quotes make a text; the column is written {name_sql(column_of([text]))}"


class _Parser:
    """The tokens of a predicate, the index of the next one, and the grammar."""

    __slots__ = ("_index", "_now", "_text", "_tokens")

    def __init__(self, text: str) -> None:
        self._text = text
        self._now: datetime.datetime | None = None
        self._tokens = tokenize(text)
        self._index = 0

    @property
    def token(self) -> Token:
        """The next token."""
        return self._tokens[self._index]

    def skip(self) -> None:
        """Go on behind the next token."""
        self._index += 1

    def now(self) -> datetime.datetime:
        """Return the present, the same one for the whole predicate."""
        self._now = self._now or datetime.datetime.now(datetime.UTC).replace(microsecond=0)
        return self._now

    # NOT, AND, OR and parentheses.

    def whole(self) -> Expr:
        if self._tokens[0].kind == "end":
            raise self.error("the predicate is empty", 0, "leave out `where=` to keep every row")
        groups = [_Group(0)]
        nesting = 0
        deepest = 0
        while True:
            group = groups[-1]
            while self._at_not():
                group.nots += 1
                nesting += 1
                self._check_nesting(nesting)
                self._index += 1
            token = self._tokens[self._index]
            if token.word == "(":
                nesting += 1
                self._check_nesting(nesting)
                deepest = max(deepest, token.position)
                groups.append(_Group(token.position))
                self._index += 1
                continue
            node: Expr | Operand | Truncated = self._condition(self._operand())
            while True:
                nesting -= group.nots
                word = self._tokens[self._index].word
                if word == ")" and len(groups) > 1 and self._is_empty(group):
                    closed: Expr | Operand | Truncated = node  # a parenthesised operand may still be compared
                else:
                    self._add(group, node)
                    if word == "AND":
                        break
                    self._close_terms(group)
                    if word == "OR":
                        break
                    closed = join(Or, group.alternatives)
                    if word != ")" or len(groups) == 1:
                        return self._finish(groups, closed, deepest)
                self._index += 1
                nesting -= 1
                groups.pop()
                group = groups[-1]
                node = self._condition(closed)
            self._index += 1

    @staticmethod
    def _is_empty(group: _Group) -> bool:
        return not (group.nots or group.terms or group.alternatives)

    def _at_not(self) -> bool:
        token = self._tokens[self._index]
        if token.word != "NOT":
            return False
        # In `not = 1` and `not)` the word can only be a column.
        following = self._tokens[self._index + 1]
        return following.kind not in ("op", "end") and following.word not in (")", ",", ".")

    def _add(self, group: _Group, node: Expr | Operand | Truncated) -> None:
        term = self._as_condition(node)
        for _ in range(group.nots):
            term = Not(term)
        group.nots = 0
        group.terms.append(term)

    def _close_terms(self, group: _Group) -> None:
        group.alternatives.append(join(And, group.terms))
        group.terms = []

    def _finish(self, groups: list[_Group], expr: Expr, deepest: int) -> Expr:
        token = self._tokens[self._index]
        if len(groups) > 1:
            self.fail(f"AND, OR or the ) of the ( at {groups[-1].position}", self._hint_after())
        if token.kind != "end":
            self.fail("AND, OR or the end", self._hint_after())
        if depth_of(expr) > MAX_DEPTH:
            raise self.error(f"nested deeper than {MAX_DEPTH} levels", deepest)
        return expr

    def _as_condition(self, node: Expr | Operand | Truncated) -> Expr:
        if isinstance(node, Truncated):
            raise self.error(
                "expected a condition, found a function", node.position, "compare it with a literal"
            )
        if not isinstance(node, Literal):
            return node
        if node.value is None or isinstance(node.value, bool):
            return Constant(node.value)
        raise self.error("expected a condition, found a literal", node.position, "compare it with a column")

    # One condition.

    def _condition(self, left: Expr | Operand | Truncated) -> Expr | Operand | Truncated:
        """Read the rest of the condition that begins with an operand; return a whole condition unchanged."""
        if not isinstance(left, Column | Literal | Truncated):
            return left
        token = self._tokens[self._index]
        op = COMPARISONS.get(token.word)
        if op is not None:
            self._index += 1
            return self._compared(op, left, self._right(), token.position)
        word = token.word
        if word == "IS":
            return self._is(left)
        negated = word == "NOT"
        if negated:
            word = self._tokens[self._index + 1].word
            if word not in _NEGATABLE:
                self._index += 1
                self.fail("IN, BETWEEN, LIKE or ILIKE after NOT")
            self._index += 1
        if word == "IN":
            found = self._in(left, token.position)
        elif word == "BETWEEN":
            found = self._between(left, token.position)
        elif word in ("LIKE", "ILIKE"):
            found = self._like(left, token.position, ignore_case=word == "ILIKE")
        else:
            return left
        return Not(found) if negated else found

    def _compared(self, op: Op, left: Operand | Truncated, right: Operand | Truncated, position: int) -> Expr:
        if isinstance(left, Truncated):
            return self._in_span(op, left, right)
        if isinstance(right, Truncated):
            return self._in_span(op, right, left, mirrored=True)
        if isinstance(left, Column) or isinstance(right, Column):
            return Compare(op, left, right, position)
        try:
            return Constant(compare_values(op, left.value, right.value))
        except ValueError as error:
            hint = _as_name(left.value) if isinstance(left.value, str) else None
            raise self.error(str(error), right.position, hint) from None

    def _in_span(self, op: Op, cut: Truncated, other: Operand | Truncated, *, mirrored: bool = False) -> Expr:
        if not isinstance(other, Literal):
            raise self.error("expected a literal to compare the function with", other.position)
        try:
            return cut.compared(op, other.value, mirrored=mirrored)
        except ValueError as error:
            raise self.error(str(error), other.position) from None

    def _is(self, left: Operand | Truncated) -> Expr:
        position = self._tokens[self._index].position
        self._index += 1
        negated = self.take("NOT")
        if self.take("NULL"):
            if isinstance(left, Column | Truncated):
                column = left.column if isinstance(left, Truncated) else left
                found: Expr = IsNull(column, position)
                return Not(found) if negated else found
            return Constant((left.value is None) != negated)
        if self.take("DISTINCT"):
            if not self.take("FROM"):
                self.fail("FROM after DISTINCT")
            op = Op.NOT_DISTINCT if negated else Op.DISTINCT
            return self._compared(op, left, self._right(), position)
        for word in ("TRUE", "FALSE"):
            if self._tokens[self._index].word == word:
                literal = Literal(word == "TRUE", self._tokens[self._index].position)
                self._index += 1
                op = Op.DISTINCT if negated else Op.NOT_DISTINCT
                return self._compared(op, left, literal, position)
        self.fail(
            "NULL, DISTINCT FROM, TRUE or FALSE" if negated else "NULL, NOT, DISTINCT FROM, TRUE or FALSE",
            _AFTER_IS.get(self._tokens[self._index].word),
        )

    def _in(self, left: Operand | Truncated, position: int) -> Expr:
        self._index += 1
        if not self.take("("):
            self.fail("( after IN", "a list stands in parentheses, as in IN (1, 2)")
        is_query = self._tokens[self._index].word == "SELECT"
        members: list[Operand | Truncated] = []
        while not self.take(")"):
            if members and not self.take(","):
                self.fail(
                    ", or ) in the list of IN", "queries within are not supported" if is_query else None
                )
            members.append(self._right())
        values: list[Value] = []
        for member in members:
            if isinstance(member, Literal):
                values.append(member.value)
        if isinstance(left, Column) and len(values) == len(members):
            return list_member(left, values, position=position)
        # A list with columns, or a literal on the left: expand IN to equalities joined by OR.
        answers = [self._compared(Op.EQ, left, member, position) for member in members]
        if all(isinstance(answer, Constant) for answer in answers):
            found = {answer.value for answer in answers if isinstance(answer, Constant)}
            return Constant(True if True in found else None if None in found else False)
        return join(Or, answers)

    def _between(self, left: Operand | Truncated, position: int) -> Expr:
        self._index += 1
        low = self._right()
        if not self.take("AND"):
            self.fail("AND between the bounds of BETWEEN")
        high = self._right()
        return And((self._compared(Op.GE, left, low, position), self._compared(Op.LE, left, high, position)))

    def _like(self, left: Operand | Truncated, position: int, *, ignore_case: bool) -> Expr:
        if isinstance(left, Truncated):
            raise self.error("LIKE takes text", left.position)
        self._index += 1
        pattern = self._right()
        if isinstance(pattern, Literal) and pattern.value is None:
            return self._compared(Op.EQ, left, pattern, position)  # always null
        if not isinstance(pattern, Literal) or not isinstance(pattern.value, str):
            hint = text_hint(pattern.name) if isinstance(pattern, Column) else None
            raise self.error("expected a pattern: a text literal", pattern.position, hint)
        try:
            check_pattern(pattern.value)
        except ValueError as error:
            raise self.error(str(error), pattern.position) from None
        if isinstance(left, Column):
            return Like(left, pattern.value, ignore_case, position)
        if left.value is None:
            return Constant(None)
        if not isinstance(left.value, str):
            raise self.error("LIKE takes text", left.position)
        from accel.predicate.evaluate import matches_like

        return Constant(matches_like(left.value, pattern.value, ignore_case=ignore_case))

    # Operands.

    def take(self, word: str) -> bool:
        if self._tokens[self._index].word == word:
            self._index += 1
            return True
        return False

    def _right(self) -> Operand | Truncated:
        """Read an operand, in parentheses or not."""
        opened = 0
        while self.take("("):
            opened += 1
            self._check_nesting(opened)
        operand = self._operand()
        for _ in range(opened):
            if not self.take(")"):
                self.fail(")", self._hint_after())
        return operand

    def _operand(self) -> Operand | Truncated:
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
            return self.column()
        if word in ("-", "+"):
            self._index += 1
            number = self._tokens[self._index]
            if number.kind != "number":
                self.fail(f"a number after {word}")
            self._index += 1
            return self._number(number, position, negative=word == "-")
        self.fail("a column or a literal", self._hint_operand())

    def _hint_operand(self) -> str | None:
        """Return a hint for a token that is no operand, by the token before it."""
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

    def _named(self, token: Token) -> Operand | Truncated:
        following = self._tokens[self._index + 1]
        word = token.word
        if word in _CONSTANTS and following.word != ".":
            self._index += 1
            return Literal(_CONSTANTS[word], token.position)
        if word in PRESENT and (following.word == "(" if word in CALLED else following.word != "."):
            return read_moves(self, read_present(self, self.now))
        if following.kind == "text":
            return read_moves(self, self._typed(token, following))
        if following.word == "(" and word in FUNCTIONS:
            return read_function(self)
        if word in OPERATOR_WORDS and self._starts_operand(following):
            self.fail("a column or a literal", f'a column of this name is written "{token.value}" here')
        if following.word == "(" and word not in OPERATOR_WORDS:
            self._index += 1
            self.fail("an operator", ONLY_FUNCTIONS)
        return self.column()

    @staticmethod
    def _starts_operand(token: Token) -> bool:
        if token.kind == "name":
            return token.word not in OPERATOR_WORDS
        return token.kind in ("quoted", "number", "text")

    def _typed(self, token: Token, text: Token) -> Literal:
        if token.word not in TYPE_WORDS:
            self.fail(
                "an operator",
                f"there is no literal {token.value} '…', only DATE, TIME, TIMESTAMP, DOUBLE and X",
            )
        self._index += 2
        try:
            return Literal(typed_from_text(token.word, text.value), token.position)
        except ValueError as error:
            raise self.error(str(error), text.position) from None

    def _number(self, token: Token, position: int, *, negative: bool) -> Literal:
        try:
            value = number_from_text(token.value)
        except ValueError as error:
            raise self.error(str(error), token.position) from None
        if negative:
            # copy_negate: the minus operator would round to the context's precision.
            value = -value if isinstance(value, int) else value.copy_negate()
        return Literal(value, position)

    def column(self) -> Column:
        tokens = self._tokens
        position = tokens[self._index].position
        path = [tokens[self._index].value]
        quoted = [tokens[self._index].kind == "quoted"]
        self._index += 1
        while self.take("."):
            token = tokens[self._index]
            if token.kind not in ("name", "quoted"):
                self.fail("a name after the dot")
            path.append(token.value)
            quoted.append(token.kind == "quoted")
            self._index += 1
        head = quoted.index(True) if True in quoted else len(path)
        return column_of(path, head=max(head, 1), position=position)

    # Errors.

    def error(self, message: str, position: int, hint: str | None = None) -> PredicateError:
        return PredicateError(message, text=self._text, position=position, hint=hint)

    def fail(self, expected: str, hint: str | None = None) -> NoReturn:
        token = self._tokens[self._index]
        if token.kind == "end":
            found = "the end"
        elif token.kind == "text":
            found = "text"
        else:
            found = token.value if token.kind != "quoted" else f'"{token.value}"'
            found = f"{found[:37]}..." if len(found) > 40 else found
        raise self.error(f"expected {expected}, found {found}", token.position, hint)

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
            raise self.error(f"nested deeper than {MAX_DEPTH} levels", position)
