"""Whether cached metadata may be used unasked."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from accel.cache.cache import Cache
from accel.cache.freshness import MetadataFreshness
from accel.metrics import Metrics
from accel.options import Options
from accel.planning.file_entry import FileEntry
from accel.ranges import ObjectId
from accel.store.client import Client
from accel.testing import DictStore


@pytest.mark.parametrize(
    ("etag", "listed_size", "listed_etag", "usable"),
    [
        pytest.param('"v1"', None, None, True, id="not listed"),
        pytest.param('"v1"', 100, None, True, id="of its size"),
        pytest.param('"v1"', 101, None, False, id="of another size"),
        pytest.param('"v1"', 100, '"v1"', True, id="of its version"),
        pytest.param('"v1"', 101, '"v1"', False, id="of its version and another size"),
        pytest.param('"v1"', 100, '"v2"', False, id="of another version"),
        pytest.param(None, 100, None, False, id="of no version"),
    ],
)
def test_a_young_handle_is_used_unless_a_listing_shows_another_file(
    etag: str | None, listed_size: int | None, listed_etag: str | None, usable: bool
) -> None:
    freshness = MetadataFreshness(Cache(max_age=60), Metrics())
    client = Client(DictStore(), root="store:", token="t", options=Options())
    handle: Any = SimpleNamespace(id=ObjectId("f", 100, etag), etag=etag, size=100, checked_at=1000.0)
    file = FileEntry("store:", "f", "f", listed_size, listed_etag, ())
    assert freshness.is_usable(client, handle, file=file, now=1001.0) is usable


@pytest.mark.parametrize(
    ("listed_at", "now", "checked_at"),
    [
        pytest.param(2000.0, 2000.1, 2000.0, id="used at once"),
        pytest.param(2000.0, 9000.0, 2000.0, id="used long after"),
        pytest.param(500.0, 2000.0, 1000.0, id="listed before it was checked"),
    ],
)
def test_a_listing_is_a_check_of_when_it_was_begun(listed_at: float, now: float, checked_at: float) -> None:
    freshness = MetadataFreshness(Cache(max_age=60), Metrics())
    client = Client(DictStore(), root="store:", token="t", options=Options())
    handle: Any = SimpleNamespace(id=ObjectId("f", 100, '"v1"'), etag='"v1"', size=100, checked_at=1000.0)
    freshness.note_listing(listed_at)
    assert freshness.is_usable(client, handle, file=FileEntry("store:", "f", "f", 100, '"v1"', ()), now=now)
    assert handle.checked_at == checked_at
