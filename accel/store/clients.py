"""One client for one store: the process's registry."""

from __future__ import annotations

import operator
import os
import threading
import weakref
from typing import TYPE_CHECKING, Any, TypeVar

from cachetools import LRUCache

from accel.errors import AccelError, StoreError, forget_frames
from accel.options import Options
from accel.store import runtime
from accel.store.client import Client
from accel.store.identity import ByIdentity
from accel.store.location import Location, parse_url
from accel.store.network import Network, network_to
from accel.store.range_store import RangeStore
from accel.store.storage_options import StorageOptions, build_store, credentials_token

if TYPE_CHECKING:
    from accel.store.listing import Cuts

__all__ = ["Connector", "client_for"]

K = TypeVar("K")
V = TypeVar("V")

# What of the options a client is made of; scans that differ in others still share it.
_OF_CLIENT = operator.attrgetter(
    "max_gap_bytes",
    "max_coalesced_bytes",
    "max_requests_in_flight",
    "memory_limit",
    "assumed_latency",
    "assumed_bandwidth",
    "hedge_share",
    "hedge_factor",
    "hedge_floor",
    "connect_timeout",
    "read_timeout",
    "transport",
    "max_attempts",
    "backoff_base",
    "backoff_max",
    "max_unranged_bytes",
    "allow_unpinned",
)
_MOST = 128
# Of a store of the caller's what is kept for so many different options: a timeout may be another one each time.
_MOST_OF_ONE = 16


class _Registry:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.clients: LRUCache[tuple[object, ...], Client] = LRUCache(_MOST)
        # Of the callers' own stores. Nothing here keeps such a store alive.
        self.tokens = ByIdentity(_new_token, forget=self._forget)
        # What was learned of them outlives their clients, which last no longer than a scan.
        self.networks: dict[str, dict[tuple[float, float], Network]] = {}
        self.cuts: dict[str, Cuts] = {}
        # What reads them, where that holds nothing of the caller's: obstore takes 6 ms to make a store.
        self.transports: dict[str, dict[tuple[object, ...], RangeStore]] = {}
        self.given: weakref.WeakValueDictionary[tuple[object, ...], Client] = weakref.WeakValueDictionary()

    def _forget(self, token: str) -> None:
        for known in (self.cuts, self.networks, self.transports):
            known.pop(token, None)


def _new_token(_: object) -> str:
    return f"store-{os.urandom(8).hex()}"


_registry = _Registry()
# A lock that another thread held at the fork would never be released in the child.
os.register_at_fork(after_in_child=_registry.__init__)  # type: ignore[misc]


def client_for(
    where: Location | str,
    *,
    storage_options: StorageOptions | None = None,
    store: object | None = None,
    options: Options | None = None,
) -> Client:
    """The client of a store; the same one for equal root, options and credentials.

    Parameters
    ----------
    where : Location or str
        A location, or a root as `Location.root` has it.
    storage_options : mapping, optional
        obstore's keys, or Hadoop's `fs.s3a.*`; over HTTP, `headers`.
    store : obstore store or RangeStore, optional
        Takes the place of the one that `where` names.
    options : Options, optional

    Raises
    ------
    StoreError
    """
    runtime.refuse_fork()
    options = Options() if options is None else options
    share = _OF_CLIENT(options)
    if store is not None:
        return _client_of(store, options, share)
    if where == "store:" or (isinstance(where, Location) and where.scheme == "store"):
        raise StoreError(
            "this path is of a store of the caller's, which is not here", hint="give it by store="
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
                error.hides = True  # from here to the caller all frames hold the options, and these the keys
                raise
            client = Client(transport, root=location.root, token=token, options=options)
            _registry.clients[key] = client
        return client


class Connector:
    """`client_for` with the options of one call, which neither it nor a failure shows to who looks at variables."""

    def __init__(
        self, *, storage_options: StorageOptions | None, store: object | None, options: Options
    ) -> None:
        self._given: dict[str, Any] = {"storage_options": storage_options, "store": store, "options": options}

    def client(self, where: Location | str) -> Client:
        """Raises StoreError."""
        try:
            return client_for(where, **self._given)
        except AccelError as error:
            forget_frames(error)
            raise


def _client_of(store: Any, options: Options, share: tuple[object, ...]) -> Client:
    with _registry.lock:
        token = _token_of(store)
        client = _registry.given.get((token, share))
        if client is None or _is_broken(client.store):
            known, assumed = _registry.networks, (options.assumed_latency, options.assumed_bandwidth)
            network = known.get(token, {}).get(assumed) or network_to("store:", options)
            _keep(known, token, under=assumed, value=network)
            cuts = _registry.cuts.get(token)
            if cuts is None:
                from accel.store.listing import Cuts

                cuts = _registry.cuts[token] = Cuts()
            client = Client(
                _transport_of(store, token, options, share),
                root="store:",
                token=token,
                options=options,
                network=network,
                cuts=cuts,
            )
            _registry.given[token, share] = client
        return client


def _token_of(store: Any) -> str:
    """The same for the same object, and never again for another."""
    try:
        return _registry.tokens.of(store)
    except TypeError:
        raise _no_store(store) from None


def _transport_of(store: Any, token: str, options: Options, share: tuple[object, ...]) -> RangeStore:
    kept = _registry.transports.get(token, {}).get(share)
    if kept is not None and not _is_broken(kept):
        _keep(_registry.transports, token, under=share, value=kept)
        return kept
    if type(store).__module__.partition(".")[0] == "obstore":
        from accel.store.direct_store import adapt

        adapted = adapt(store, options)
        if not adapted.wraps(store):
            _keep(_registry.transports, token, under=share, value=adapted)
        return adapted
    # The class first, which is remembered: an object is held against a protocol each time.
    if issubclass(type(store), RangeStore) or isinstance(store, RangeStore):
        serving: RangeStore = store
        return serving
    raise _no_store(store)


def _keep(known: dict[str, dict[K, V]], token: str, *, under: K, value: V) -> None:
    """Of one store for as many options as are in use; those not used for longest go."""
    kept = known.setdefault(token, {})
    kept.pop(under, None)
    while len(kept) >= _MOST_OF_ONE:
        del kept[next(iter(kept))]
    kept[under] = value


def _is_broken(transport: RangeStore) -> bool:
    """Whether it will fail for as long as it lives: see `ObstoreStore.broken`. Another is made in its place."""
    return getattr(transport, "broken", None) is True


def _no_store(store: object) -> StoreError:
    return StoreError(
        f"a {type(store).__name__} cannot serve as a store",
        hint="give an obstore store, or an object with the `read` of accel.stores.RangeStore",
    )
