"""The proxy that the environment names for a server.

aiohttp would find it too, and with it send to any server what `~/.netrc` holds for it: nobody has given that to accel, it
does not go together with an `Authorization` of the caller's, or with a presigned URL, and takes two threads a request.
"""

from __future__ import annotations

from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

__all__ = ["proxy_for"]


def proxy_for(scheme: str, host: str) -> str | None:
    """Its URL, which may hold a password; None where there is none, or only one that is itself spoken to over TLS."""
    proxy = getproxies().get(scheme)
    if not proxy or urlsplit(proxy).scheme == "https" or proxy_bypass(host):
        return None
    return proxy
