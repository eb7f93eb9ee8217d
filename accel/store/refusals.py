"""What a server says of why it refuses: its own word for it, and what of its text may be shown."""

from __future__ import annotations

import re
from types import MappingProxyType
from typing import Final

from accel.errors import redact

__all__ = ["CREDENTIAL_FAULTS", "code_in", "quoted"]

_CODE = re.compile(r"<Code>([A-Za-z0-9_.]{1,80})</Code>")
_SCOPE = "the region, or a credential, is not what the store expects: check them in storage_options"
_EXPIRED = "the credentials have expired: get new ones"
_TOKEN = "session_token is wrong, or has expired"
_CLOCK = "this machine's clock is wrong"

CREDENTIAL_FAULTS: Final = MappingProxyType(
    {
        "ExpiredToken": _EXPIRED,
        "TokenRefreshRequired": _EXPIRED,
        "InvalidToken": _TOKEN,
        "InvalidTokenId": _TOKEN,
        "InvalidAccessKeyId": "the store knows no such access_key_id",
        "SignatureDoesNotMatch": "secret_access_key or account_key is wrong, or a proxy changes what is sent",
        "RequestTimeTooSkewed": _CLOCK,
        "RequestExpired": _CLOCK,
        "AuthorizationHeaderMalformed": _SCOPE,
        "AuthorizationQueryParametersError": _SCOPE,
    }
)
"""By code, what to do. Some of these come with status 400, which else may mean that the request was not understood."""

_MOST_TEXT = 1024
# A server may give back what it was sent.
_NAMED = re.compile(
    r"([\w-]*(?:signature|credential|token|secret|password|\bsig)[\w-]*[\"']?\s*[=:]\s*[\"']?)[^\s,;&'\"<>]+",
    re.IGNORECASE,
)
_SCHEME = re.compile(r"\b(Bearer|Basic)\s+[^\s,;'\"]+", re.IGNORECASE)
# Longer than an MD5 or a UUID.
_OPAQUE = re.compile(r"(?=[0-9+_%~-]*[A-Za-z])([A-Za-z0-9+_%~-]{8})[A-Za-z0-9+_%~-]{32,}")


def code_in(body: str) -> str | None:
    """The word that S3 has for what went wrong, out of the body of its answer; None where there is none."""
    found = _CODE.search(body)
    return None if found is None else quoted(found[1], 80)


def quoted(text: str, most: int) -> str:
    """A server's text, fit for a message: at most so many characters, without what looks like a credential."""
    if len(text) > _MOST_TEXT:
        # Not within a word, of which the rest would not be known for what it is.
        text = text[:_MOST_TEXT].rpartition(" ")[0]
    text = _SCHEME.sub(r"\1 ***", _NAMED.sub(r"\1***", redact(text)))
    return _OPAQUE.sub(r"\1***", text)[:most]
