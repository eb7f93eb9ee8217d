"""Objects whose path is their content: the rows of a table that no file holds, which its catalog has.

Whoever has the path has the object, so a task that is carried to another process carries its rows.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from typing import Final

from accel.coalesce import Merging
from accel.errors import ObjectNotFoundError, StoreError
from accel.metrics import Metrics
from accel.options import Options
from accel.ranges import ByteRange, ObjectId, Stash, Suffix, Want
from accel.store.client import Client
from accel.store.location import CARRIED_ROOT
from accel.store.range_store import Payload

__all__ = ["CarriedClient", "carried_path"]

_ETAG: Final = '"carried"'
"""A path never holds another version."""


def carried_path(content: bytes) -> str:
    """Return the path of an object with some content."""
    return base64.urlsafe_b64encode(content).decode()


class CarriedStore:
    """A `RangeStore` of objects that are their paths."""

    async def read(self, path: str, want: ByteRange | Suffix, *, if_match: str | None = None) -> Payload:
        """Answer one range; see `RangeStore.read`."""
        try:
            data = base64.b64decode(path, altchars=b"-_", validate=True)
        except (ValueError, binascii.Error):
            raise ObjectNotFoundError("this is no path of an object that is its path", status=404) from None
        if isinstance(want, Suffix):
            want = ByteRange(max(0, len(data) - want.length), len(data))
        if want.end > len(data) or not data:
            raise StoreError("the range is not in the object", place=str(want), status=416)
        return Payload(data[want.start : want.end], want, len(data), _ETAG)


class CarriedClient(Client):
    """Reads objects that are their paths. That takes no request, and none is counted."""

    def __init__(self, options: Options) -> None:
        # Tokens that begin so mean something in this process alone: nothing is cached on disk.
        super().__init__(CarriedStore(), root=CARRIED_ROOT, token="process-carried", options=options)

    async def read(
        self,
        path: str,
        wants: Sequence[Want],
        *,
        pin: ObjectId | None,
        metrics: Metrics,
        merging: Merging | None = None,
    ) -> Stash:
        """Return the wanted ranges of one object; see `Client.read`."""
        return await super().read(path, wants, pin=pin, metrics=Metrics(), merging=merging)

    async def read_tail(
        self, path: str, length: int, *, metrics: Metrics, pin: ObjectId | None = None
    ) -> Payload:
        """Return the last bytes of one object; see `Client.read_tail`."""
        return await super().read_tail(path, length, metrics=Metrics(), pin=pin)
