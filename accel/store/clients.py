"""The clients of stores: one for all calls with equal root, options and credentials."""

from __future__ import annotations

import operator
import os
import threading
import weakref
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from cachetools import LRUCache

from accel.errors import AccelError, StoreError, forget_frames
from accel.metrics import Metrics
from accel.options import Options
from accel.runtime.forks import keep_for_ever
from accel.store.carried_store import CarriedClient
from accel.store.client import Client
from accel.store.identity import ByIdentity, StorageOptions, credentials_token
from accel.store.listing import Cuts
from accel.store.location import CARRIED_ROOT, Location, parse_url
from accel.store.network import Network, network_to
from accel.store.range_store import RangeStore
from accel.store.storage_options import build_store

__all__ = ["Clients", "Connector", "RunClients", "client_for"]

C_co = TypeVar("C_co", covariant=True)

# The options that a client depends on; scans that differ in others share it.
_OF_CLIENT = operator.attrgetter(
    "max_gap_bytes",
    "max_coalesced_bytes",
    "max_requests_in_flight",
    "memory_limit",
    "assumed_latency",
    "assumed_bandwidth",
    "connect_timeout",
    "read_timeout",
    "transport",
    "max_attempts",
    "backoff_base",
    "backoff_max",
    "retry_seconds",
    "max_unranged_bytes",
    "allow_unpinned",
)
MOST_CLIENTS = 128
# Different options for which the state of one of the caller's stores is remembered: a timeout may differ in
# every call.
MOST_OF_ONE = 16


class _CallersStore:
    """What is remembered of a store that the caller made. It outlives the clients, which last no longer than
    a scan, and refers to nothing of the caller's."""

    def __init__(self, _: object) -> None:
        self.token = f"store-{os.urandom(8).hex()}"
        self.cuts = Cuts()
        self.networks: LRUCache[tuple[float, float], Network] = LRUCache(MOST_OF_ONE)
        # By options. obstore takes 6 ms to make a store.
        self.transports: LRUCache[tuple[object, ...], RangeStore] = LRUCache(MOST_OF_ONE)
        self.clients: weakref.WeakValueDictionary[tuple[object, ...], Client] = weakref.WeakValueDictionary()


class _Registry:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.clients: LRUCache[tuple[object, ...], Client] = LRUCache(MOST_CLIENTS)
        self.callers_stores = ByIdentity(_CallersStore)


_registry = _Registry()


def _after_fork() -> None:
    # The clients of the parent have its connections, and count its requests.
    remembered = _registry.callers_stores.values()
    keep_for_ever((_registry.clients, [(each.clients, dict(each.transports)) for each in remembered]))
    _registry.lock = threading.Lock()
    _registry.clients = LRUCache(MOST_CLIENTS)
    for each in remembered:
        each.clients = weakref.WeakValueDictionary()
        each.transports.clear()


os.register_at_fork(after_in_child=_after_fork)


def client_for(
    where: Location | str,
    *,
    storage_options: StorageOptions | None = None,
    store: object | None = None,
    options: Options | None = None,
) -> Client:
    """Return the client of a store, which is shared by all calls with equal root, options and credentials.

    Parameters
    ----------
    where : Location or str
        A location, or a root as in `Location.root`.
    storage_options : mapping, optional
        obstore's keys, or Hadoop's `fs.s3a.*`; `headers` for a plain HTTP server.
    store : obstore store or RangeStore, optional
        Replaces the store that `where` names.
    options : Options, optional

    Raises
    ------
    StoreError
    """
    options = Options() if options is None else options
    share = _OF_CLIENT(options)
    if where == CARRIED_ROOT:
        return _client_of_carried(options, share)
    if store is not None:
        return _client_of(store, options, share)
    if where == "store:" or (isinstance(where, Location) and where.scheme == "store"):
        raise StoreError(
            "this path is of a store of the caller's, which is not here", hint="give it by `store=`"
        )
    location = parse_url(where + "/") if isinstance(where, str) else where
    if storage_options is not None and not hasattr(storage_options, "items"):
        raise StoreError(f"storage_options is a {type(storage_options).__name__}, not a mapping")
    if not all(isinstance(name, str) for name in storage_options or ()):
        unnamed = StoreError("storage_options names an option by something else than text")
        unnamed.hides = True
        raise unnamed
    token = credentials_token(location.root, storage_options)
    key = (location.root, token, share)
    with _registry.lock:
        client = _registry.clients.get(key)
        if client is None or _is_broken(client.store):
            try:
                transport = build_store(location, storage_options, options=options)
            except AccelError as error:
                error.hides = True  # all frames from here to the caller hold the options, and these the keys
                raise
            client = Client(transport, root=location.root, token=token, options=options)
            _registry.clients[key] = client
        return client


def _client_of_carried(options: Options, share: tuple[object, ...]) -> Client:
    """Return the client of objects that are their paths, whatever store the caller gave."""
    key = (CARRIED_ROOT, "", share)
    with _registry.lock:
        client = _registry.clients.get(key)
        if client is None:
            client = _registry.clients[key] = CarriedClient(options)
        return client


class Clients(Protocol[C_co]):
    """Finds the clients of stores; they may do no more than whoever asks needs."""

    def client(self, root: str, /) -> C_co:
        """Return the client of a store, by its root as in `Location.root`."""
        ...


class RunClients:
    """The clients of one run, which may read thousands of files: each is looked up once, and its warning
    noted."""

    def __init__(self, clients: Clients[Client], metrics: Metrics | None = None) -> None:
        self._clients = clients
        self._metrics = metrics
        self._found: dict[str, Client] = {}

    def client(self, root: str, /) -> Client:
        """Return the client of a store."""
        found = self._found.get(root)
        if found is None:
            found = self._found[root] = self._clients.client(root)
            metrics, warning = self._metrics, found.warning
            if metrics is not None and warning is not None and warning not in metrics.warnings:
                metrics.warn(warning)
        return found


class Connector:
    """Finds clients with the arguments of one call, which neither its repr nor the frames of an error
    show."""

    def __init__(
        self, *, storage_options: StorageOptions | None, store: object | None, options: Options
    ) -> None:
        self._given: dict[str, Any] = {"storage_options": storage_options, "store": store, "options": options}
        self._otherwise: Callable[[], StorageOptions | None] | None = None

    def otherwise(self, storage_options: Callable[[], StorageOptions | None]) -> None:
        """Take the options of a table where the call gives neither options nor a store.

        Parameters
        ----------
        storage_options : callable
            Returns those that are known by then: a catalog may send them with the table.
        """
        if self._given["storage_options"] is None and self._given["store"] is None:
            self._otherwise = storage_options

    def client(self, where: Location | str, /) -> Client:
        """Return the client of a store; see `client_for`."""
        if self._otherwise is not None:
            return self._client(where, {**self._given, "storage_options": self._otherwise()})
        return self._client(where, self._given)

    def client_beside(self, where: Location, storage_options: StorageOptions | None = None) -> Client:
        """Return the client of a store that is none of those of the call, and so has options of its own."""
        return self._client(where, {"storage_options": storage_options, "options": self._given["options"]})

    def _client(self, where: Location | str, given: dict[str, Any]) -> Client:
        try:
            return client_for(where, **given)
        except AccelError as error:
            forget_frames(error)
            raise


def _client_of(store: Any, options: Options, share: tuple[object, ...]) -> Client:
    with _registry.lock:
        try:
            remembered = _registry.callers_stores.of(store)
        except TypeError:  # it takes no weak reference
            raise _no_store(store) from None
        client = remembered.clients.get(share)
        if client is None or _is_broken(client.store):
            assumed = (options.assumed_latency, options.assumed_bandwidth)
            network = remembered.networks.get(assumed)
            if network is None:
                network = remembered.networks[assumed] = network_to("store:", options)
            client = remembered.clients[share] = Client(
                _transport_of(store, remembered, options, share),
                root="store:",
                token=remembered.token,
                options=options,
                network=network,
                cuts=remembered.cuts,
            )
        return client


def _transport_of(
    store: Any, remembered: _CallersStore, options: Options, share: tuple[object, ...]
) -> RangeStore:
    transport = remembered.transports.get(share)
    if transport is not None and not _is_broken(transport):
        return transport
    if type(store).__module__.partition(".")[0] == "obstore":
        from accel.store.s3_store import adapt

        adapted = adapt(store, options)
        if not adapted.wraps(store):
            remembered.transports[share] = adapted
        return adapted
    # The class is checked first, as that check is cached.
    if issubclass(type(store), RangeStore) or isinstance(store, RangeStore):
        serving: RangeStore = store
        return serving
    raise _no_store(store)


def _is_broken(transport: RangeStore) -> bool:
    """Return whether a transport will always fail (see `ObstoreStore.broken`), so that another has to be
    made."""
    return getattr(transport, "broken", None) is True


def _no_store(store: object) -> StoreError:
    return StoreError(
        f"a {type(store).__name__} cannot serve as a store",
        hint="give an obstore store, or an object with the `read` of accel.stores.RangeStore",
    )
