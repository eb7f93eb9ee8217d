"""Where a store's endpoint is given, and settings that obstore would panic over at the first request."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

from accel.errors import StoreError, redact
from accel.store.location import Location

__all__ = ["check_settings", "endpoint_of"]

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
