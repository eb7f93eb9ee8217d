"""Which of accel's own kinds have what a kind may have besides."""

from __future__ import annotations

from typing import Any

import pytest

from accel.indexes import kinds
from accel.indexes.kind import CoveringKind, JoinableKind, PartedKind, StreamedKind

HAVE: dict[type[Any], set[str]] = {
    StreamedKind: {"bitmap", "bloom", "distinct", "ngram", "sketch", "zonemap"},
    PartedKind: {"bitmap", "bloom", "ngram"},
    JoinableKind: {"bitmap"},
    CoveringKind: {"zonemap"},
}


@pytest.mark.parametrize("capability", HAVE, ids=lambda capability: capability.__name__)
def test_kinds_that_have_it(capability: type[Any]) -> None:
    own = {name for name in {*vars(capability), *capability.__annotations__} if not name.startswith("_")}
    assert own
    found = {name for name, kind in kinds().items() if all(hasattr(kind, member) for member in own)}
    assert found == HAVE[capability]
