"""Whether obstore tells how a store of the caller's was made."""

from __future__ import annotations

from typing import Any

from obstore.store import AzureStore, GCSStore, S3Store

from accel.store.identity import ByIdentity

__all__ = ["UNTOLD", "tells_config"]

UNTOLD = (
    "obstore cannot tell how the store was made, so it is read through obstore, with retries of obstore's own: "
    "give what concerns the client (allow_http, timeout, ...) by client_options={...}"
)


def tells_config(store: Any) -> bool:
    """Whether its `config` can be asked for.

    Of arguments that are for the client obstore makes keys that it panics over, each time, and Rust writes every panic
    to stderr: so one store is tried once. True of stores that have no `config` to be copied.
    """
    return not isinstance(store, (S3Store, GCSStore, AzureStore)) or _tried.of(store)


def _try(store: Any) -> bool:
    try:
        _ = store.config
    except BaseException as error:  # a panic is no Exception
        if isinstance(error, (KeyboardInterrupt, SystemExit)):
            raise
        return False
    return True


_tried = ByIdentity(_try)
