"""The docstring of every function begins with a verb in its base form, and no text has words of our own."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MODULES = sorted((ROOT / "accel").rglob("*.py"))

VERBS = frozenset(
    re.findall(
        r"\w+",
        """
        Add Aggregate Allow Announce Answer Append Apply Ask Assign Attach Await Begin Bind Bring Build Cache
        Call Cancel Cast Check Choose Clear Close Collect Combine Commit Compare Compile Complete Compress
        Compute Concatenate Continue Convert Copy Count Create Cut Decode Decompress Delete Derive Describe
        Detect Discard Do Drop Encode End Ensure Escape Estimate Evaluate Evict Exclude Expect Explain Extend
        Fetch Fill Filter Find Finish Flatten Fold Forget Format Free Gather Give Go Group Guess Hand Have
        Hide Hold Ignore Implement Insert Join Judge Keep Lay Learn Leave Let Limit List Load Locate Look Make
        Map Mark Match Measure Merge Move Multiply Name Narrow Normalise Note Observe Open Order Pack Pair
        Parse Pass Plan Predict Prepare Print Produce Prune Publish Put Query Raise Rank Read Record Recover
        Reduce Refresh Refuse Register Reject Release Remember Remove Rename Render Replace Report Request
        Require Reset Resolve Restore Resume Retry Return Rewrite Round Rule Run Save Scale Scan Schedule
        Search Seek Select Send Serialise Serialize Set Settle Shorten Show Shrink Skip Slice Sort Split Start Stop
        Store Suggest Sum Swap Take Tally Tell Test Track Translate Trim Try Turn Update Use Validate Verify
        Visit Wait Walk Warn Weigh Widen Wrap Write Yield
        """,
    )
)
"""The verbs that docstrings begin with. A new one is added here."""

PRIVATE_WORDS = re.compile(r"\b(abreast|at hand|in doubt|speaks? of|tellable)\b", re.IGNORECASE)
"""Words that only this project used for things that have names in the field."""
PRIVATE_NAMES = re.compile(r"(?:^|_)(?:abreast|at_hand|sure|tellable|unusual)(?:_|$)", re.IGNORECASE)
"""The same, in names of code."""

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef


def is_noun_phrase(function: FunctionNode) -> bool:
    """Return whether the docstring may name a thing: that of a property, or of a special method."""
    names = {ast.unparse(decorator).rpartition(".")[2] for decorator in function.decorator_list}
    is_special = function.name.startswith("__") and function.name.endswith("__")
    return is_special or not names.isdisjoint({"property", "cached_property", "setter"})


def first_words(source: str) -> Iterator[tuple[str, str]]:
    """Yield the name and the first word of each function with a docstring that has to begin with a verb."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, FunctionNode) and not is_noun_phrase(node):
            text = ast.get_docstring(node)
            if text:
                yield node.name, re.split(r"[\s,.:;]", text, maxsplit=1)[0]


def without_verb(source: str) -> list[str]:
    """Return the functions whose docstring begins with another word, as `name: Word`."""
    return [f"{name}: {word}" for name, word in first_words(source) if word not in VERBS]


def private_words(source: str) -> list[str]:
    """Return the private words of docstrings and comments; names of code, and of parameters, are left
    aside."""
    texts = [
        node.value.value
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    ]
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    texts += [token.string for token in tokens if token.type == tokenize.COMMENT]
    plain = (re.sub(r"`[^`]*`|^\s*\w+ : .*$", "", text, flags=re.MULTILINE) for text in texts)
    return [word for text in plain for word in PRIVATE_WORDS.findall(" ".join(text.split()))]


def private_names(source: str) -> set[str]:
    """Return the names of code that are private words."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    names = {token.string for token in tokens if token.type == tokenize.NAME}
    return {name for name in names if PRIVATE_NAMES.search(name)}


@pytest.mark.parametrize("module", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_docstrings_are_plain(module: Path) -> None:
    source = module.read_text(encoding="utf-8")
    assert (without_verb(source), private_words(source), private_names(source)) == ([], [], set())


def test_what_is_not_plain_is_found() -> None:
    source = '''
def one():
    """Whether it is one."""

def two():
    """Returns 2."""

def three():
    """Return 3, if `abreast` is at
    hand.

    Parameters
    ----------
    abreast : int
    """
    return 3  # in doubt

class Four:
    @property
    def size(self):
        """The size."""

    def __len__(self):
        """How many there are."""
'''
    assert without_verb(source) == ["one: Whether", "two: Returns"]
    assert private_words(source) == ["at hand", "in doubt"]
    assert private_names("def f(is_sure, measure, at_hand): Unusual") == {"is_sure", "at_hand", "Unusual"}
