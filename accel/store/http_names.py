"""aiohttp's lookups of names, by `store.names`."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING

from aiohttp.abc import AbstractResolver

from accel.store.names import resolve

if TYPE_CHECKING:
    from aiohttp.abc import ResolveResult

__all__ = ["Names"]

# No addresses of a kind that this machine has none of itself, as aiohttp's own resolver asks.
_ASKED = getattr(socket, "AI_MASK", socket.AI_ADDRCONFIG) & socket.AI_ADDRCONFIG
_NUMERIC = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV


class Names(AbstractResolver):
    """In place of aiohttp's resolver, which takes the event loop's threads, and waits without end.

    Parameters
    ----------
    patience : float
        Seconds until a lookup is given up.
    """

    def __init__(self, patience: float) -> None:
        self._patience = patience

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """The server's addresses; raises OSError."""
        # aiohttp shields this from the end of the request that it is for.
        async with asyncio.timeout(self._patience):
            found = await resolve(host, port, family=family, flags=_ASKED)
        results: list[ResolveResult] = []
        for kind, _, proto, _, address in found:
            shown = address[0]
            if kind == socket.AF_INET6 and address[3]:
                # The address of one link says which; no lookup.
                shown, _ = socket.getnameinfo(address, socket.NI_NUMERICHOST | socket.NI_NUMERICSERV)
            results.append(
                {
                    "hostname": host,
                    "host": shown,
                    "port": address[1],
                    "family": kind,
                    "proto": proto,
                    "flags": _NUMERIC,
                }
            )
        return results

    async def close(self) -> None:
        """Nothing is held."""
