"""Proxies: which one a server is reached by, and how errors name it."""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

__all__ = ["PROXY_ADDRESS", "named_proxy", "proxy_for"]

PROXY_ADDRESS: Final = (
    "check the proxy: http_proxy and https_proxy in the environment, proxy_url in `storage_options`"
)
"""The hint where a proxy cannot be reached."""


def proxy_for(scheme: str, host: str) -> str | None:
    """Return the URL of the proxy that the environment names for a host; None if there is none.

    It may hold a password.

    Parameters
    ----------
    scheme : str
        "http" or "https".
    host : str
    """
    proxies = getproxies()
    proxy = proxies.get(scheme) or proxies.get("all")
    return None if not proxy or proxy_bypass(host) else proxy


def named_proxy(url: str | None) -> str | None:
    """Return how an error names a proxy: without user and password. None for none.

    Examples
    --------
    >>> named_proxy("http://user:secret@proxy.example:3128/")
    'by the proxy proxy.example:3128'
    """
    if not url:
        return None
    _, _, server = urlsplit(url if "://" in url else f"http://{url}").netloc.rpartition("@")
    return f"by the proxy {server}"
