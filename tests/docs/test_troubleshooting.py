"""The troubleshooting page quotes errors as they are raised, and leaves no class of them out."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import accel.errors

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/troubleshooting.md").read_text(encoding="utf-8")
SOURCE = "\n".join(path.read_text(encoding="utf-8") for path in sorted(ROOT.glob("accel/**/*.py")))

KINDS = sorted(name for name in accel.errors.__all__ if name.endswith("Error"))
HEADINGS = re.findall(r"^### (.*)$", PAGE, re.MULTILINE)
QUOTED = [(kind, message) for kind, message in re.findall(r"`(\w+Error): ([^`]+)`", PAGE) if kind in KINDS]


def test_messages_are_quoted() -> None:
    assert len(QUOTED) > 10


@pytest.mark.parametrize(("kind", "message"), QUOTED, ids=[message for _, message in QUOTED])
def test_a_quoted_message_is_raised_somewhere(kind: str, message: str) -> None:
    assert message in SOURCE
    assert issubclass(getattr(accel.errors, kind), accel.errors.AccelError)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_error_has_an_entry(kind: str) -> None:
    assert any(f"`{kind}" in heading for heading in HEADINGS)
