"""The properties of an Iceberg `FileIO` as storage options: what a catalog sends with a table, or was given.

Credentials that end become a provider, which asks the catalog again before that. One provider serves a table
of a catalog as long as the process lives: stores, and what is cached of them, are known by it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from cachetools import LRUCache

from accel.runtime.forks import lock_over_forks
from accel.store.expiring_credentials import ExpiringCredentials, Granted

__all__ = ["expiry_of", "granted_by", "options_of", "provider_for"]

_PLACES: Final[Mapping[str, str]] = {
    "s3.endpoint": "endpoint",
    "s3.region": "region",
    "client.region": "region",
    "adls.account-name": "account_name",
}
_SECRETS: Final[Mapping[str, str]] = {
    "s3.access-key-id": "access_key_id",
    "s3.secret-access-key": "secret_access_key",
    "s3.session-token": "session_token",
    "client.access-key-id": "access_key_id",
    "client.secret-access-key": "secret_access_key",
    "client.session-token": "session_token",
    "adls.account-key": "account_key",
    "adls.sas-token": "sas_token",
    "adls.tenant-id": "tenant_id",
    "adls.client-id": "client_id",
    "adls.client-secret": "client_secret",
    "gcs.oauth2.token": "token",
}
_OF_ACCOUNT: Final = "adls.sas-token."
"""REST catalogs name the account behind it, with or without its host."""
_EXPIRY: Final = (
    "s3.session-token-expires-at-ms",
    "adls.sas-token-expires-at-ms",
    "gcs.oauth2.token-expires-at",
)
_PROVIDED: Final = {
    "access_key_id": "access_key_id",
    "secret_access_key": "secret_access_key",
    "session_token": "token",
    "sas_token": "sas_token",
    "token": "token",
}
"""What obstore's providers call the options that may end."""
_PASSING: Final = frozenset({"session_token", "sas_token"})
_ASSUMED: Final = 900.0
"""Seconds that tokens last of which nobody says when they end: AWS gives none for less."""
_MOST_PROVIDERS: Final = 1000
_TRUE: Final = "true"

_lock = lock_over_forks()
_providers: LRUCache[tuple[str, str], ExpiringCredentials] = LRUCache(_MOST_PROVIDERS)


def expiry_of(properties: Mapping[str, Any]) -> float | None:
    """Return when credentials end, in seconds since 1970; None where that is not said."""
    found = []
    for name, value in properties.items():
        if name.startswith(_EXPIRY):
            try:
                found.append(float(value) / 1000)
            except (TypeError, ValueError):
                continue
    return min(found, default=None)


def options_of(
    properties: Mapping[str, Any], provider: Callable[[], ExpiringCredentials] | None = None
) -> dict[str, Any] | None:
    """Return the storage options that the properties of a `FileIO` come to; None where they name none.

    Parameters
    ----------
    properties : mapping
        Such as "s3.access-key-id", as catalogs send or are given them.
    provider : callable, optional
        Returns the provider that takes credentials which end; without one they are given as they are.
    """
    options = _chosen(properties, _PLACES)
    secrets = _secrets(properties)
    account = secrets.pop("account_name", None)
    if account is not None:
        options.setdefault("account_name", account)
    granted = granted_by(properties)
    ends = provider is not None and granted.expires is not None
    if granted.values and (ends or "token" in secrets):
        # A token of Google has no other way to the store.
        one = ExpiringCredentials(lambda: granted) if provider is None else provider()
        one.take(granted)
        secrets = {name: value for name, value in secrets.items() if name not in _PROVIDED}
        options["credential_provider"] = one
    options |= secrets
    if options.get("endpoint", "").lower().startswith("http://"):
        options["allow_http"] = _TRUE
    virtual = properties.get("s3.force-virtual-addressing")
    path_style = properties.get("s3.path-style-access")
    if virtual is not None:
        options["virtual_hosted_style_request"] = str(str(virtual).lower() == _TRUE).lower()
    elif path_style is not None:
        options["virtual_hosted_style_request"] = str(str(path_style).lower() != _TRUE).lower()
    return options or None


def granted_by(properties: Mapping[str, Any]) -> Granted:
    """Return the credentials among the properties of a `FileIO`."""
    secrets = _secrets(properties)
    values = {_PROVIDED[name]: value for name, value in secrets.items() if name in _PROVIDED}
    expires = expiry_of(properties)
    if expires is None and _PASSING.intersection(secrets):
        expires = time.time() + _ASSUMED
    return Granted(values, expires)


def provider_for(catalog: str, name: str, ask: Callable[[], Granted]) -> ExpiringCredentials:
    """Return the provider of a table of a catalog, always the same one.

    Parameters
    ----------
    catalog : str
        What tells the catalog from others.
    name : str
        The name of the table in it.
    ask : callable
        Called in a thread for new credentials.
    """
    key = (catalog, name)
    with _lock:
        found = _providers.get(key)
        if found is None:
            found = _providers[key] = ExpiringCredentials(ask)
        return found


def _chosen(properties: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for name, option in names.items():
        value = properties.get(name)
        if value is not None and option not in out:
            out[option] = str(value)
    return out


def _secrets(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that are secret, and the account of Azure that a token names."""
    found = _chosen(properties, _SECRETS)
    if "sas_token" not in found:
        wanted = properties.get("adls.account-name")
        for name, value in properties.items():
            account = name.removeprefix(_OF_ACCOUNT).partition(".")[0]
            if name.startswith(_OF_ACCOUNT) and value is not None and wanted in (None, account):
                return {**found, "account_name": account, "sas_token": str(value)}
    return found
