"""The local disk as the tests know it: as fast as accel assumes, however busy the machine is.

What is read over and what is fetched early follows from the measured latency and bandwidth. Local files are
one store for all tests of a process, so that a slow moment in one test would change the requests of the next.
"""

from __future__ import annotations

from unittest import mock

from accel.options import Options
from accel.store import client
from accel.store.location import LOCAL_ROOT
from accel.store.network import Network, network_to

__all__ = ["install"]


class _SteadyNetwork(Network):
    """A network that learns nothing: its estimates are the assumed ones."""

    def observe(self, nbytes: int, seconds: float, *, in_flight: float = 1) -> None:
        pass


def _steady_network_to(root: str, options: Options) -> Network:
    network = network_to(root, options)
    if root == LOCAL_ROOT:
        network.__class__ = _SteadyNetwork
    return network


def install() -> None:
    """Have the clients of local files that are made from now on assume the same disk."""
    mock.patch.object(client, "network_to", _steady_network_to).start()
