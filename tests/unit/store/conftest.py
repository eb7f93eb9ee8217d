"""The fixture `server` for the tests of stores over HTTP."""

from __future__ import annotations

from tests.support.object_server import server

__all__ = ["server"]
