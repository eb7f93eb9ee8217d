"""Catalogs in Redis, in Cassandra, and in the memory of the process: objects as in a store, below a prefix
or a name."""

from __future__ import annotations

import os

from accel.catalog.homes.objects import ObjectHome
from accel.store import cassandra_connection
from accel.store.clients import Connector
from accel.store.location import Location
from accel.store.redis_connection import OBJECT_SETTINGS, RedisAddress

__all__ = ["cassandra_home", "memory_home", "redis_home"]


def cassandra_home(index: str | os.PathLike[str], connector: Connector, *, in_store: bool) -> ObjectHome:
    """Return the home of the name in a keyspace that a `cassandra://` URL gives; the arguments are those of
    `home_at`.

    Raises
    ------
    StoreError
        The URL cannot be used.
    """
    url = os.fspath(index)
    address = cassandra_connection.CassandraAddress.parse(url, settings=cassandra_connection.OBJECT_SETTINGS)
    location = Location("cassandra", str(address), "")
    return ObjectHome(connector.client_beside(location, {"url": url}), location, in_store=in_store)


def redis_home(index: str | os.PathLike[str], connector: Connector, *, in_store: bool) -> ObjectHome:
    """Return the home below the prefix that a `redis://` URL names; the arguments are those of `home_at`.

    Raises
    ------
    StoreError
        The URL cannot be used.
    AccelError
        The package `redis` is missing.
    """
    url = os.fspath(index)
    location = Location("redis", str(RedisAddress.parse(url, settings=OBJECT_SETTINGS)), "")
    return ObjectHome(connector.client_beside(location, {"url": url}), location, in_store=in_store)


def memory_home(index: str | os.PathLike[str], connector: Connector, *, in_store: bool) -> ObjectHome:
    """Return the home of that name in this process; `memory://` with more than a name is a path in the store
    of the caller.

    Raises
    ------
    StoreError
        It is a path, and the caller gave no store.
    """
    text = os.fspath(index)
    name = text.partition("://")[2].removesuffix("/")
    if not name or "/" in name:
        return ObjectHome.at(text, connector, in_store=in_store)
    location = Location("memory", f"memory://{name}", "")
    return ObjectHome(connector.client_beside(location), location, in_store=in_store)
