"""What tests of the reader look at."""

from __future__ import annotations

from typing import Any

import pytest

from accel.decode import stack


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, bool]]:
    """Of each stack: how many row groups or files it has, and whether these are decoded together."""
    found: list[tuple[int, bool]] = []
    decode = stack.decode_stack

    def look(layers: Any, **settings: Any) -> Any:
        batches = decode(layers, **settings)
        found.append((len(layers), batches is not None))
        return batches

    monkeypatch.setattr(stack, "decode_stack", look)
    return found
