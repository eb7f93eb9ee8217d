"""Peak memory where the kernel tells none of one call."""

import resource
import sys
from types import SimpleNamespace

import pytest

from bench.peers import footprint


@pytest.mark.parametrize(("platform", "peak"), [("linux", 5000 * 1024), ("darwin", 5000)])
def test_the_most_of_the_whole_life_is_in_bytes(
    monkeypatch: pytest.MonkeyPatch, platform: str, peak: int
) -> None:
    used = SimpleNamespace(ru_maxrss=5000, ru_utime=0.0, ru_stime=0.0)
    monkeypatch.setattr(resource, "getrusage", lambda who: used)
    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.setattr(footprint, "_peak", lambda pid: 0)
    monkeypatch.setattr(footprint, "_session", list)
    assert footprint.Footprint().end() == (0.0, peak)
