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

__all__ = [
    "authorities_of",
    "build_store",
    "check_settings",
    "endpoint_of",
    "is_storage_option",
    "normalize",
    "storage_option_meant",
]

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
    """Return the endpoint that will be used, "" where that is the provider's own."""
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
    elif endpoint and location.scheme in ("s3", "gs") and not _is_usable(endpoint):
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


def _is_usable(endpoint: str) -> bool:
    """Return whether obstore can make requests to an endpoint. It checks that of Azure itself."""
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
_PROFILE = ("profile", "aws_profile")
_REGIONS = ("aws_region", "region", "aws_default_region", "default_region")
# What concerns obstore's client: a store that has it among its own settings panics when they are read.
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
    "profile_name": "profile",
    "aws_profile_name": "profile",
}
_OF_ALL = (
    *("skip_signature", "allow_http", "headers", "client_options", "credential_provider"),
    *("ca_bundle", "verify"),
)
# Those that are given most, for what is nearly one of them.
_OF_AZURE = (
    *("account_name", "account_key", "sas_token", "endpoint", "tenant_id", "client_id", "client_secret"),
    *("use_emulator", "use_azure_cli", "use_fabric_endpoint", "connection_string"),
)
_COMMON: Mapping[str, tuple[str, ...]] = {
    "s3": (
        *("access_key_id", "secret_access_key", "session_token", "region", "endpoint", "request_payer"),
        *("virtual_hosted_style_request", "unsigned_payload", "profile", "account_id"),
    ),
    "gs": ("service_account_path", "service_account_key", "application_credentials", "base_url"),
    "az": _OF_AZURE,
    "abfss": _OF_AZURE,
}
_NAMED = frozenset(
    (*_OF_ALL, *_OF_CLIENT, *_PROFILE, *(name for names in _COMMON.values() for name in names))
    + tuple(name for names, _ in _ENDPOINTS.values() for name in names)
)
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


def is_storage_option(name: str) -> bool:
    """Return whether a store of any kind takes an option of this name, in whatever case, or Hadoop has it
    (`fs.…`).

    The names are obstore's own, so that it is queried for those that are not among the common ones.
    """
    name = name.lower().removeprefix("spark.hadoop.")
    if name.startswith("fs."):
        return True  # `normalize` says which of these are taken
    if name in _ARGUMENTS:
        return False  # no text says what they are
    plain = name
    for prefix in dict.fromkeys(_PREFIXES.values()):
        plain = plain.removeprefix(prefix)
    return name in _NAMED or plain in _OF_CLIENT or _known_to_obstore(name)


def _known_to_obstore(name: str) -> bool:
    from obstore.store import AzureStore, GCSStore, S3Store

    cloud: Any
    for cloud, place in ((S3Store, "bucket"), (GCSStore, "bucket"), (AzureStore, "container_name")):
        try:
            cloud(config={place: "none", name: "none"})
        except BaseException as error:  # noqa: BLE001 (a Rust panic is no Exception)
            if re.search(_UNKNOWN, str(error)):
                continue
        return True
    return False


def storage_option_meant(name: str) -> str | None:
    """Return the storage option that a name of other libraries, or a misspelt one, seems to mean."""
    import difflib

    name = name.lower()
    close = difflib.get_close_matches(name, sorted(_NAMED), 1, 0.85)
    return _ELSEWHERE.get(name) or next(iter(close), None)


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
    if location.scheme == "cassandra":
        from accel.store import cassandra_connection
        from accel.store.cassandra_store import CassandraStore

        address = cassandra_connection.CassandraAddress.parse(
            (storage_options or {})["url"], settings=cassandra_connection.OBJECT_SETTINGS
        )
        return CassandraStore(address, options)
    given = normalize(storage_options)
    if location.scheme == "file":
        from accel.store.local_store import FileStore

        return FileStore()
    if location.scheme in ("http", "https"):
        from accel.store.http_store import HttpStore

        authorities = authorities_of(given, location)
        return HttpStore(location.root, storage_options=given, options=options, authorities=authorities)
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
    _add_what_the_machine_says(location, config, arguments)
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
    authorities = authorities_of(config, location)
    if authorities is None:
        client["allow_invalid_certificates"] = True
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
        failure = translate(error, location.root, None)
        unknown = re.search(_UNKNOWN, str(failure))
        if isinstance(failure, StoreError):
            if unknown is not None:
                failure.hint = _suggestion(unknown[1], location.scheme)
            elif _MISTYPED in str(failure):
                failure.hint = _mistyped({**config, **client})
            elif "as Duration" in str(failure):
                failure.hint = "a duration is written with its unit, as in '5s'"
    else:
        return adapt(store, options, authorities=authorities or "")
    raise failure from None


def authorities_of(config: dict[str, Any], location: Location) -> str | None:
    """Take the options about certificates out of a configuration.

    Returns
    -------
    str or None
        The file of the authorities, "" for those of the system; None where no certificate is verified.
    """
    verify, bundle = config.pop("verify", True), config.pop("ca_bundle", None)
    if isinstance(verify, str) and verify.lower() not in ("true", "false"):
        verify, bundle = True, bundle or verify  # as boto3 has it
    if str(verify).lower() == "false":
        import warnings

        warnings.warn(
            f"verify=False: whoever answers for {location.root} is believed, and gets the credentials",
            stacklevel=2,
        )
        return None
    if bundle and location.scheme in ("gs", "az", "abfss"):
        raise StoreError(
            "`ca_bundle` is for S3 and web servers",
            path=location.root,
            hint="for this cloud, set the environment variable SSL_CERT_FILE before the process starts",
        )
    from accel.store.connection_faults import names_authorities, tls_context

    if not bundle and location.scheme == "s3" and not names_authorities():
        bundle = os.environ.get("AWS_CA_BUNDLE")
    if not bundle:
        return ""
    path = os.path.expanduser(str(bundle))
    tls_context(path)  # where it cannot be read, that is said at once
    return path


def _add_what_the_machine_says(location: Location, config: dict[str, Any], arguments: dict[str, Any]) -> None:
    """Add what files and variables say that obstore does not read."""
    service = config.pop("service", None)
    if service == "r2":
        _add_r2(location, config)
    elif location.scheme == "s3":
        _add_profile(location, config, arguments)
    elif location.scheme == "gs":
        _add_emulator(config)
    else:
        _add_connection_string(location, config)


def _add_r2(location: Location, config: dict[str, Any]) -> None:
    """Add the endpoint of an account of Cloudflare's R2, and its keys where the environment has them."""
    account = config.pop("account_id", None) or os.environ.get("R2_ACCOUNT_ID")
    if not endpoint_of("s3", config):
        if not account:
            raise StoreError(
                "r2:// does not say whose bucket it is",
                path=location.root,
                hint="give the storage option account_id, or set R2_ACCOUNT_ID",
            )
        config["endpoint"] = f"https://{account}.r2.cloudflarestorage.com"
    config.setdefault("region", "auto")
    for name in ("access_key_id", "secret_access_key"):
        found = os.environ.get(f"R2_{name.upper()}")
        if found and name not in config:
            config[name] = found


def _add_emulator(config: dict[str, Any]) -> None:
    """Add the server that STORAGE_EMULATOR_HOST names, as Google's own libraries do: it takes any request."""
    server = os.environ.get("STORAGE_EMULATOR_HOST")
    if server and not endpoint_of("gs", config):
        config["base_url"] = server if "://" in server else f"http://{server}"
        config.setdefault("skip_signature", "true")


_CONNECTION: Mapping[str, str] = {
    "accountname": "account_name",
    "accountkey": "account_key",
    "sharedaccesssignature": "sas_token",
    "blobendpoint": "endpoint",
}
"""Parts of a connection string of Azure -> obstore's names."""
_SAYS_ACCOUNT = ("account_name", "account_key", "sas_token", "use_emulator", "azure_storage_account_name")


def _add_connection_string(location: Location, config: dict[str, Any]) -> None:
    """Add what a connection string of Azure says: the storage option, or that of the environment where no
    option names an account."""
    text = config.pop("connection_string", None)
    if text is None and not any(name in config for name in _SAYS_ACCOUNT):
        text = os.environ.get("AZURE_STORAGE_CONNECTION_STRING")
    if not text:
        return
    parts = {
        name.strip().lower(): value.strip()
        for name, equals, value in (part.partition("=") for part in str(text).split(";"))
        if equals
    }
    if parts.get("usedevelopmentstorage", "").lower() == "true":
        config.setdefault("use_emulator", "true")
        return
    if "accountname" not in parts and "blobendpoint" not in parts:
        failure = StoreError("the connection string names no account", path=location.root)
        failure.hides = True
        raise failure
    for theirs, ours in _CONNECTION.items():
        if theirs in parts:
            config.setdefault(ours, parts[theirs])
    suffix = parts.get("endpointsuffix")
    if suffix and suffix != "core.windows.net" and "endpoint" not in config:
        protocol = parts.get("defaultendpointsprotocol", "https")
        config["endpoint"] = f"{protocol}://{parts['accountname']}.blob.{suffix}"


def _add_profile(location: Location, config: dict[str, Any], arguments: dict[str, Any]) -> None:
    """Add what a profile of AWS says, where neither options nor the environment say it."""
    from accel.store.aws_profile import find_profile

    profile = find_profile({**arguments, **config}, root=location.root)
    for name in _PROFILE:
        config.pop(name, None)
    if profile is None:
        return
    if profile.credentials is not None:
        arguments["credential_provider"] = profile.credentials
    regional = any(config.get(name) for name in _REGIONS) or any(
        os.environ.get(name.upper()) for name in _REGIONS if name.startswith("aws_")
    )
    if profile.region and not regional:
        config["region"] = profile.region
    if profile.endpoint and not endpoint_of(location.scheme, config):
        config["endpoint"] = profile.endpoint


def _mistyped(given: Mapping[str, Any]) -> str | None:
    """Return which option is of no type that obstore takes, without its value, which may be a secret."""
    from datetime import timedelta

    inside = given.get("default_headers")
    if isinstance(inside, Mapping):
        given = {**given, **{f"headers[{name!r}]": value for name, value in inside.items()}}
    for name, value in given.items():
        if name != "default_headers" and not isinstance(value, (str, bool, timedelta)):
            return f"{name} is given as {type(value).__name__}: write it as text"
    return None


def _folded(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return options by their names in lower case: obstore takes them in any."""
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
