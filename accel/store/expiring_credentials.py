"""Credentials that end, and are asked for anew before that, such as a catalog sends with a table."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar, Final

from accel.errors import AccelError, StoreError
from accel.runtime.threads import CREDENTIALS

__all__ = ["EARLY", "ExpiringCredentials", "Granted"]

EARLY: Final = 60.0
"""Seconds before their end in which credentials are asked for anew."""
_LEAST_LEFT: Final = 5.0
"""Seconds that credentials are used for still, where no others can be had."""
_PATIENCE: Final = 60.0
"""Seconds after which no answer is waited for."""
_PAUSE: Final = 2.0
"""Seconds after an answer before the next question: some grant less time than `EARLY`."""


@dataclass(frozen=True, slots=True)
class Granted:
    """Credentials as obstore's providers return them, without their end."""

    values: Mapping[str, Any] = field(repr=False)
    """Such as "access_key_id", "secret_access_key" and "token" of S3."""
    expires: float | None
    """When they end, in seconds since 1970; None if they do not."""


class ExpiringCredentials:
    """A `credential_provider` of obstore. One object serves a place for good, so that its stores and what is
    cached of them stay the same when the credentials change.

    Parameters
    ----------
    ask : callable
        Called in a thread for new credentials.
    """

    refresh_threshold: ClassVar[timedelta] = timedelta(seconds=EARLY)
    """obstore asks again when no more than this is left."""

    def __init__(self, ask: Callable[[], Granted]) -> None:
        self._ask = ask
        self._last: Granted | None = None
        self._taken = 0.0

    def __repr__(self) -> str:
        return "ExpiringCredentials()"

    def __reduce__(self) -> Any:
        raise TypeError("credentials that end do not pickle: each process asks for its own")

    def take(self, granted: Granted) -> None:
        """Take credentials that came without being asked for here."""
        self._last, self._taken = granted, time.monotonic()

    @property
    def seconds_left(self) -> float | None:
        """The seconds until the last credentials end; None if they do not."""
        end = None if self._last is None else self._last.expires
        return None if end is None else end - time.time()

    async def __call__(self) -> dict[str, Any]:
        """Return the credentials, with the time when they end.

        Raises
        ------
        StoreError
            There are no new ones, and the old ones have ended.
        """
        left = self.seconds_left
        fresh = left is None or left > EARLY or (left > 0 and time.monotonic() - self._taken < _PAUSE)
        if self._last is None or not fresh:
            try:
                async with asyncio.timeout(_PATIENCE):
                    self.take(await CREDENTIALS.run(self._ask))
            except (AccelError, TimeoutError) as error:
                if self._last is None or left is None or left < _LEAST_LEFT:
                    if isinstance(error, TimeoutError):
                        raise StoreError("new credentials did not come in time") from None
                    raise
        return self._as_given()

    def _as_given(self) -> dict[str, Any]:
        last = self._last
        if last is None:
            raise StoreError("there are no credentials")
        end = None if last.expires is None else datetime.fromtimestamp(last.expires, UTC)
        return {**last.values, "expires_at": end}
