"""Predicate text to the tree: the dialect of docs/predicates.md.

No recursion: parentheses are a stack of groups, so that no text can exhaust the interpreter's own.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from accel.errors import PredicateError
from accel.predicate.cursor import MAX_DEPTH, Cursor
from accel.predicate.expr import (
    MAX_LIST,
    And,
    Column,
    Compare,
    Constant,
    Expr,
    InList,
    IsNull,
    Like,
    Literal,
    Not,
    Op,
    Operand,
    Or,
    Value,
    column_of,
    depth_of,
    join,
)

__all__ = ["MAX_DEPTH", "parse"]

_OPS = {
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
    """An open parenthesis (or the whole text): the ORs of ANDs met so far, and the NOTs that wait."""

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

# How a statement begins, and a condition does not, save on a column of that name.
_CLAUSE = r"\s*(?:select|where)\s+[\w\"*]"


def parse(text: str) -> Expr:
    """The tree of a predicate.

    Raises
    ------
    PredicateError
        With the text, and the position of the character where something else was expected.
    """
    try:
        return _Parser(text).whole()
    except PredicateError as error:
        if re.match(_CLAUSE, text, re.IGNORECASE):
            error.hint = "give the condition alone, without SELECT or WHERE"
        raise


def _as_text(name: str) -> str:
    from accel.predicate.advice import text_advice

    return text_advice(name)


def _as_name(text: str) -> str:
    from accel.predicate.sql import name_sql

    return f"single quotes make a text; the column is written {name_sql(column_of([text]))}"


def _listed(column: Column, values: list[Value], position: int) -> Expr:
    if len(values) <= MAX_LIST:
        return InList(column, tuple(values), position)
    from accel.predicate.members import list_member

    return list_member(column, values, position=position)


class _Parser(Cursor):
    __slots__ = ()

    # Conditions, joined by NOT, AND, OR and parentheses.

    def whole(self) -> Expr:
        if self._tokens[0].kind == "end":
            raise self._error("the predicate is empty", 0, "pass None to keep every row")
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
            node: Expr | Operand = self._condition(self._operand())
            while True:
                nesting -= group.nots
                word = self._tokens[self._index].word
                if word == ")" and len(groups) > 1 and self._is_bare(group):
                    closed: Expr | Operand = node  # a parenthesised operand may still be compared
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
    def _is_bare(group: _Group) -> bool:
        return not (group.nots or group.terms or group.alternatives)

    def _at_not(self) -> bool:
        token = self._tokens[self._index]
        if token.word != "NOT":
            return False
        # `not = 1`, `not)`: the word can only be a column here.
        following = self._tokens[self._index + 1]
        return following.kind not in ("op", "end") and following.word not in (")", ",", ".")

    def _add(self, group: _Group, node: Expr | Operand) -> None:
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
            self._fail(f"AND, OR or the ) of the ( at {groups[-1].position}", self._hint_after())
        if token.kind != "end":
            self._fail("AND, OR or the end", self._hint_after())
        if depth_of(expr) > MAX_DEPTH:
            raise self._error(f"nested deeper than {MAX_DEPTH} levels", deepest)
        return expr

    def _as_condition(self, node: Expr | Operand) -> Expr:
        if not isinstance(node, Literal):
            return node
        if node.value is None or isinstance(node.value, bool):
            return Constant(node.value)
        raise self._error("expected a condition, found a literal", node.position, "compare it with a column")

    # One condition.

    def _condition(self, left: Expr | Operand) -> Expr | Operand:
        """What follows an operand makes it a condition; what follows a condition leaves it as it is."""
        if not isinstance(left, Column | Literal):
            return left
        token = self._tokens[self._index]
        op = _OPS.get(token.word)
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
                self._fail("IN, BETWEEN, LIKE or ILIKE after NOT")
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

    def _compared(self, op: Op, left: Operand, right: Operand, position: int) -> Expr:
        if isinstance(left, Column) or isinstance(right, Column):
            return Compare(op, left, right, position)
        from accel.predicate.fold import compare_values

        try:
            return Constant(compare_values(op, left.value, right.value))
        except ValueError as error:
            hint = _as_name(left.value) if isinstance(left.value, str) else None
            raise self._error(str(error), right.position, hint) from None

    def _is(self, left: Operand) -> Expr:
        position = self._tokens[self._index].position
        self._index += 1
        negated = self._take("NOT")
        if self._take("NULL"):
            if isinstance(left, Column):
                found: Expr = IsNull(left, position)
                return Not(found) if negated else found
            return Constant((left.value is None) != negated)
        if self._take("DISTINCT"):
            if not self._take("FROM"):
                self._fail("FROM after DISTINCT")
            op = Op.NOT_DISTINCT if negated else Op.DISTINCT
            return self._compared(op, left, self._right(), position)
        for word in ("TRUE", "FALSE"):
            if self._tokens[self._index].word == word:
                literal = Literal(word == "TRUE", self._tokens[self._index].position)
                self._index += 1
                op = Op.DISTINCT if negated else Op.NOT_DISTINCT
                return self._compared(op, left, literal, position)
        self._fail(
            "NULL, DISTINCT FROM, TRUE or FALSE" if negated else "NULL, NOT, DISTINCT FROM, TRUE or FALSE",
            _AFTER_IS.get(self._tokens[self._index].word),
        )

    def _in(self, left: Operand, position: int) -> Expr:
        self._index += 1
        if not self._take("("):
            self._fail("( after IN", "a list stands in parentheses, as in IN (1, 2)")
        if isinstance(left, Column):
            plain = self._plain_list()
            if plain is not None:
                return _listed(left, plain, position)
        is_query = self._tokens[self._index].word == "SELECT"
        members: list[Operand] = []
        while not self._take(")"):
            if members and not self._take(","):
                self._fail(
                    ", or ) in the list of IN", "queries within are not supported" if is_query else None
                )
            members.append(self._right())
        values: list[Value] = []
        for member in members:
            if isinstance(member, Literal):
                values.append(member.value)
        if isinstance(left, Column) and len(values) == len(members):
            return _listed(left, values, position)
        # A list that holds columns, or a literal on the left: what IN stands for.
        answers = [self._compared(Op.EQ, left, member, position) for member in members]
        if all(isinstance(answer, Constant) for answer in answers):
            found = {answer.value for answer in answers if isinstance(answer, Constant)}
            return Constant(True if True in found else None if None in found else False)
        return join(Or, answers)

    def _between(self, left: Operand, position: int) -> Expr:
        self._index += 1
        low = self._right()
        if not self._take("AND"):
            self._fail("AND between the bounds of BETWEEN")
        high = self._right()
        return And((self._compared(Op.GE, left, low, position), self._compared(Op.LE, left, high, position)))

    def _like(self, left: Operand, position: int, *, ignore_case: bool) -> Expr:
        self._index += 1
        pattern = self._right()
        if isinstance(pattern, Literal) and pattern.value is None:
            return self._compared(Op.EQ, left, pattern, position)  # null in any case
        if not isinstance(pattern, Literal) or not isinstance(pattern.value, str):
            hint = _as_text(pattern.name) if isinstance(pattern, Column) else None
            raise self._error("expected a pattern: a text literal", pattern.position, hint)
        from accel.predicate.fold import check_pattern, like_value

        try:
            check_pattern(pattern.value)
        except ValueError as error:
            raise self._error(str(error), pattern.position) from None
        if isinstance(left, Column):
            return Like(left, pattern.value, ignore_case, position)
        if left.value is None:
            return Constant(None)
        if not isinstance(left.value, str):
            raise self._error("LIKE takes text", left.position)
        return Constant(like_value(left.value, pattern.value, ignore_case=ignore_case))
