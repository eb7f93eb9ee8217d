"""Where a store's endpoint is given, and settings that obstore would panic over at the first request."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

from accel.errors import AccelError, StoreError, redact
from accel.options import Options
from accel.store.identity import StorageOptions
from accel.store.location import Location
from accel.store.range_store import RangeStore

__all__ = ["build_store", "check_settings", "endpoint_of", "normalize"]

_AZURE: tuple[tuple[str, ...], tuple[str, ...]] = (
    ("endpoint", "azure_endpoint", "azure_storage_endpoint"),
    ("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT"),
)
# Where an endpoint may be given, and the variables that it may come from otherwise.
_ENDPOINTS: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "s3": (
        ("aws_endpoint_url_s3", "endpoint", "endpoint_url", "aws_endpoint", "aws_endpoint_url"),
        ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"),
    ),
    "gs": (("base_url", "google_base_url", "endpoint"), ("GOOGLE_BASE_URL",)),
    "az": _AZURE,
    "abfss": _AZURE,
}
_HOST = re.compile(r"[\w.-]+|[0-9a-f:.]+", re.ASCII)
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
# Whole documents, of several lines.
_DOCUMENTS = ("service_account", "certificate")


def endpoint_of(scheme: str, config: Mapping[str, Any]) -> str:
    """The endpoint that will be used, "" where that is the provider's own."""
    names, variables = _ENDPOINTS[scheme]
    given = [config.get(name) for name in names] + [os.environ.get(name) for name in variables]
    return next((str(endpoint) for endpoint in given if endpoint), "")


def check_settings(location: Location, config: Mapping[str, Any]) -> None:
    """Refuse an endpoint that is none, and what no header takes.

    Raises
    ------
    StoreError
    """
    for name, value in config.items():
        document = any(word in name for word in _DOCUMENTS)
        if isinstance(value, str) and not document and _CONTROL.search(value):
            raise StoreError(
                f"storage option {name!r} holds a line break or another control character",
                path=location.root,
                hint="what was read from a file may end in one: strip it",
            )
    endpoint = endpoint_of(location.scheme, config)
    _refuse_empty(location, config, endpoint)
    if endpoint and not endpoint.lower().startswith(("http://", "https://")):
        hint = "it begins with http:// or https://"
    elif endpoint and location.scheme in ("s3", "gs") and not _can_be_asked(endpoint):
        hint = "it is http:// or https://, a host, and perhaps a port"
    else:
        return
    raise StoreError(f"the endpoint {redact(endpoint)!r} is no URL", path=location.root, hint=hint)


def _refuse_empty(location: Location, config: Mapping[str, Any], endpoint: str) -> None:
    # As text that was put together of variables may be, one of which is not set.
    names, variables = _ENDPOINTS[location.scheme]
    empty = [f"storage option {name!r}" for name in names if config.get(name) == ""]
    if not endpoint:
        empty += [f"the environment variable {name}" for name in variables if os.environ.get(name) == ""]
    if empty:
        raise StoreError(
            f"{empty[0]} is empty",
            path=location.root,
            hint="leave it out to have the provider's own endpoint",
        )


def _can_be_asked(endpoint: str) -> bool:
    """Whether obstore can make requests to it; Azure's it looks at itself."""
    if not endpoint.isascii() or not endpoint.isprintable() or " " in endpoint:
        return False
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(endpoint)
        _ = parts.port  # raises where it is none
    except ValueError:
        return False
    return parts.hostname is not None and _HOST.fullmatch(parts.hostname) is not None


# What Hadoop's S3A calls them -> what obstore does.
_SPARK = {
    "fs.s3a.endpoint": "endpoint",
    "fs.s3a.endpoint.region": "region",
    "fs.s3a.access.key": "access_key_id",
    "fs.s3a.secret.key": "secret_access_key",
    "fs.s3a.session.token": "session_token",
    "fs.s3a.path.style.access": "virtual_hosted_style_request",
    "fs.s3a.connection.ssl.enabled": "allow_http",
    "fs.s3a.requester.pays.enabled": "request_payer",
}
# Of its other connectors, whose names hold accounts and hosts -> what to give instead.
_SPARK_ELSEWHERE = {
    "fs.azure.account.key": "account_key",
    "fs.azure.sas": "sas_token",
    "fs.azure.account.oauth2.client.id": "client_id",
    "fs.azure.account.oauth2.client.secret": "client_secret",
    "fs.gs.auth.service.account": "service_account_path",
}
# Spark's switches that mean the opposite of obstore's.
_INVERTED = ("fs.s3a.path.style.access", "fs.s3a.connection.ssl.enabled")
# Arguments of an obstore store that are no configuration keys.
_ARGUMENTS = ("client_options", "credential_provider", "prefix")
# What concerns obstore's client: a store that has it among its own settings panics when it is asked for them.
_OF_CLIENT = frozenset(
    (
        *("allow_invalid_certificates", "connect_timeout", "default_content_type", "http1_only"),
        *("http2_keep_alive_interval", "http2_keep_alive_timeout", "http2_keep_alive_while_idle"),
        *("http2_max_frame_size", "http2_only", "pool_idle_timeout", "pool_max_idle_per_host"),
        "proxy_ca_certificate",
        *("proxy_excludes", "proxy_url", "randomize_addresses", "read_timeout", "timeout", "user_agent"),
    )
)
# What obstore's names may begin with.
_PREFIXES = {"s3": "aws_", "gs": "google_", "az": "azure_", "abfss": "azure_"}
# What other libraries call an option of S3 -> what obstore does.
_ELSEWHERE = {
    "key": "access_key_id",
    "secret": "secret_access_key",
    "token": "session_token",
    "access_key": "access_key_id",
    "secret_key": "secret_access_key",
    "anon": "skip_signature",
    "anonymous": "skip_signature",
    "endpoint_override": "endpoint",
    "requester_pays": "request_payer",
}
_OF_ALL = ("skip_signature", "allow_http", "headers", "client_options", "credential_provider")
# Those that are given most, for what is nearly one of them.
_OF_AZURE = (
    *("account_name", "account_key", "sas_token", "endpoint", "tenant_id", "client_id", "client_secret"),
    *("use_emulator", "use_azure_cli", "use_fabric_endpoint"),
)
_COMMON: Mapping[str, tuple[str, ...]] = {
    "s3": (
        *("access_key_id", "secret_access_key", "session_token", "region", "endpoint", "request_payer"),
        *("virtual_hosted_style_request", "unsigned_payload"),
    ),
    "gs": ("service_account_path", "service_account_key", "application_credentials", "base_url"),
    "az": _OF_AZURE,
    "abfss": _OF_AZURE,
}
_UNKNOWN = r"Configuration key: '(.*)' is not valid for store"
_MISTYPED = "object is not an instance of"
_TRUE = ("1", "true", "yes", "on")


def normalize(options: StorageOptions | None) -> dict[str, Any]:
    """Give every option obstore's name."""
    plain: dict[str, Any] = {}
    for name, value in (options or {}).items():
        if value is None:
            raise StoreError(
                f"storage option {name!r} is None", hint="leave it out to have the environment's"
            )
        if name == "headers":
            value = _header_mapping(value)
        key = name.removeprefix("spark.hadoop.")
        if key in _SPARK:
            if key in _INVERTED:
                value = str(value).lower() not in _TRUE
            plain[_SPARK[key]] = value
        elif key.startswith("fs."):
            ours = next((ours for theirs, ours in _SPARK_ELSEWHERE.items() if key.startswith(theirs)), None)
            hint = f"here it is {ours}" if ours else f"of Spark's own: {', '.join(sorted(_SPARK))}"
            raise StoreError(f"storage option {name!r} is not known", hint=hint)
        else:
            plain[name] = value
    if plain.get("request_payer") is False:
        del plain["request_payer"]
    return plain


def _header_mapping(given: Any) -> dict[Any, Any]:
    try:
        return dict(given)
    except (TypeError, ValueError):  # which may quote a secret
        pass
    kind = type(given).__name__
    raise StoreError(f"storage option 'headers' is a {kind}, not a mapping of names to values")


def build_store(
    location: Location, storage_options: StorageOptions | None, *, options: Options
) -> RangeStore:
    """Make the store that a location names.

    Raises
    ------
    StoreError
        An option is not known to that store, or its configuration is incomplete.
    """
    if location.scheme == "memory":
        from accel.store.memory_store import store_named

        return store_named(location.root)
    if location.scheme == "redis":
        from accel.store.redis_connection import OBJECT_SETTINGS, RedisAddress
        from accel.store.redis_store import RedisStore

        url = (storage_options or {})["url"]
        return RedisStore(RedisAddress.parse(url, settings=OBJECT_SETTINGS), options)
    given = normalize(storage_options)
    if location.scheme == "file":
        from accel.store.local_store import FileStore

        return FileStore()
    if location.scheme in ("http", "https"):
        from accel.store.http_store import HttpStore

        return HttpStore(location.root, storage_options=given, options=options)
    return _object_store(location, given, options)


def _object_store(location: Location, given: dict[str, Any], options: Options) -> RangeStore:
    from obstore.store import AzureStore, GCSStore, S3Store

    from accel.store.obstore_errors import translate
    from accel.store.s3_store import adapt

    config = {"headers": None, **location.options, **_folded(given)}
    headers = config.pop("headers")
    arguments: dict[str, Any] = {name: config.pop(name) for name in _ARGUMENTS if name in config}
    if arguments.pop("prefix", None):
        raise StoreError("storage option 'prefix' is not taken", hint="put it into the URL")
    check_settings(location, config)
    if location.scheme == "gs" and "endpoint" in config:
        config.setdefault("base_url", config.pop("endpoint"))  # as for the other clouds
    client: dict[str, Any] = {
        "connect_timeout": f"{max(1, round(options.connect_timeout * 1000))}ms",
        "read_timeout": f"{max(1, round(options.read_timeout * 1000))}ms",
        # obstore's own limit on a whole request: a slow body that does make progress is let through.
        "timeout": "24h",
    }
    if headers:
        client["default_headers"] = dict(headers)
    allow = config.pop(f"{_PREFIXES[location.scheme]}allow_http", None)
    if (allow := config.pop("allow_http", allow)) is not None:
        client["allow_http"] = str(allow).lower() in _TRUE
    elif endpoint_of(location.scheme, config).lower().startswith("http://"):
        # It needs no second permission.
        client["allow_http"] = True
    for name in tuple(config):
        if (plain := name.removeprefix(_PREFIXES[location.scheme])) in _OF_CLIENT:
            client[plain] = config.pop(name)
    more = arguments.pop("client_options", {})
    if not isinstance(more, Mapping):
        raise StoreError(f"storage option 'client_options' is a {type(more).__name__}, not a mapping")
    client.update(more)
    stores: dict[str, Any] = {"s3": S3Store, "gs": GCSStore, "az": AzureStore, "abfss": AzureStore}
    bucket = location.root.partition("://")[2]
    named = {"s3": "bucket", "gs": "bucket"}.get(location.scheme, "container_name")
    if location.scheme != "abfss":
        config[named] = bucket
    failure: BaseException
    try:
        store = stores[location.scheme](
            config=config, client_options=client, retry_config={"max_retries": 0}, **arguments
        )
    except AccelError:
        raise
    except BaseException as error:  # noqa: BLE001 (a Rust panic is no Exception)
        failure = translate(error, location.root)
        unknown = re.search(_UNKNOWN, str(failure))
        if isinstance(failure, StoreError):
            if unknown is not None:
                failure.hint = _suggestion(unknown[1], location.scheme)
            elif _MISTYPED in str(failure):
                failure.hint = _mistyped({**config, **client})
            elif "as Duration" in str(failure):
                failure.hint = "a duration is written with its unit, as in '5s'"
    else:
        return adapt(store, options)
    raise failure from None


def _mistyped(given: Mapping[str, Any]) -> str | None:
    """Which option is of no type that obstore takes; its value may be a secret."""
    from datetime import timedelta

    inside = given.get("default_headers")
    if isinstance(inside, Mapping):
        given = {**given, **{f"headers[{name!r}]": value for name, value in inside.items()}}
    for name, value in given.items():
        if name != "default_headers" and not isinstance(value, (str, bool, timedelta)):
            return f"{name} is given as {type(value).__name__}: write it as text"
    return None


def _folded(given: Mapping[str, Any]) -> dict[str, Any]:
    """Options by their names in lower case: obstore takes them in any."""
    folded: dict[str, Any] = {}
    for name, value in given.items():
        if name.lower() in folded:
            raise StoreError(f"storage option {name!r} is given twice", hint="in any case it is the same")
        folded[name.lower()] = value
    return folded


def _suggestion(key: str, scheme: str) -> str:
    import difflib

    known = (*_COMMON[scheme], *_OF_ALL)
    meant = (
        _ELSEWHERE.get(key) if scheme == "s3" else "skip_signature" if key in ("anon", "anonymous") else None
    )
    meant = meant or next(iter(difflib.get_close_matches(key, known, 1)), None)
    return f"did you mean {meant}?" if meant else f"the names are obstore's: {', '.join(known)} and others"
