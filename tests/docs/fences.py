"""The fenced blocks of a Markdown page, with what the page says about running them.

A block in a language that runs is run. One that cannot be says why in a comment just before it,
`<!-- not run: needs an account -->`. A text block after `<!-- prints -->` is the exact output of the block
before it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["PYTHON", "SHELL", "Fence", "read_fences"]

PYTHON = frozenset({"python", "py", "pycon"})
SHELL = frozenset({"shell", "sh", "bash", "console"})

_OPENING = re.compile(r"^(?P<indent> *)(?P<ticks>`{3,}|~{3,})\s*(?P<language>[\w+-]*)")
_NOT_RUN = re.compile(r"^<!--\s*not run:\s*(?P<reason>\S.*?)\s*-->$")
_PRINTS = "<!-- prints -->"


@dataclass(frozen=True)
class Fence:
    """One block. `line` is the page's line number of its first line of code."""

    language: str
    code: str
    line: int
    reason: str | None = None
    prints: str | None = None

    @property
    def runs(self) -> bool:
        return self.language in PYTHON | SHELL and self.reason is None


def read_fences(text: str) -> list[Fence]:
    """The blocks of a page in order; a block that shows output is folded into the one that prints it.

    Raises ValueError for a block that never ends, and for output that no block prints.
    """
    fences: list[Fence] = []
    lines = text.splitlines()
    remark = ""
    at = 0
    while at < len(lines):
        opening = _OPENING.match(lines[at])
        if opening is None:
            remark = lines[at].strip() or remark
            at += 1
            continue
        first = at + 1
        end = next((i for i in range(first, len(lines)) if lines[i].strip() == opening["ticks"]), None)
        if end is None:
            raise ValueError(f"line {at + 1}: the block never ends")
        indent = len(opening["indent"])
        body = "\n".join(line[indent:] for line in lines[first:end]) + "\n"
        if remark == _PRINTS:
            if not fences or fences[-1].prints is not None or not fences[-1].runs:
                raise ValueError(f"line {at + 1}: no block prints this")
            last = fences.pop()
            fences.append(Fence(last.language, last.code, last.line, None, body))
        else:
            found = _NOT_RUN.match(remark)
            reason = found["reason"] if found else None
            fences.append(Fence(opening["language"].lower(), body, first + 1, reason))
        remark = ""
        at = end + 1
    return fences
