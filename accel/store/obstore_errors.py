"""Errors of obstore, translated into those of accel. Only their text has the HTTP status."""

from __future__ import annotations

import asyncio
import errno
import os
import re
from typing import Final
from urllib.parse import urlsplit

from obstore import exceptions

from accel.errors import AccelError, AccessDeniedError, ObjectNotFoundError, StoreError
from accel.ranges import ByteRange, Suffix
from accel.store.aws_profile import NO_CREDENTIALS, ProfileError, searched_places
from accel.store.connection_faults import obstore_fault
from accel.store.listing_page import no_listing
from accel.store.proxies import PROXY_ADDRESS, named_proxy, proxy_for
from accel.store.request_errors import (
    CREDENTIAL_FAULTS,
    OUT_OF_FILES,
    ShortObjectError,
    SuffixUnsupportedError,
    changed_object,
    code_in,
    quoted,
    transient_code,
    transient_status,
)

__all__ = ["S3_ADDRESS", "panicked", "shorter_range", "translate"]

# Both patterns of the debug part span lines; in a path or body that is quoted there, line ends are escaped.
_STATUS = re.compile(r"inner: Status \{\s+status: (\d{3}),")
_KIND = re.compile(r"HttpError \{\s+kind: (\w+),")
_BODY = re.compile(r"(non-2xx status code: \d{3}[^:]*):.*", re.DOTALL)
# In the debug part, or in the error of Python that caused a panic. If no certificates were loaded, it does
# not say why.
_NO_FILES = re.compile(r"\bOs \{\s+code: 2[34],|\bOSError\(2[34],")
_NO_AUTHORITIES = "No CA certificates were loaded"
_SERVER = re.compile(r"Error performing [A-Z]+ (\w+)://(?:[^/\s?]*@)?([^/\s?@]+)")
_LENGTH = re.compile(r"length: (\d+),|object was only (\d+) bytes long")
# A suffix of an empty object, and a server without suffix ranges, both lead to one of these.
_ODD_RANGE = (
    "NotPartial",
    "ParseContentRange",
    "NoContentRange",
    "InvalidRange",
    "UnexpectedRange",
    "Range {",
)
# An error of a profile, as obstore quotes it.
_PROFILE = re.compile(r"External AWS credential provider: ProfileError: ([^\n]*)")
# The servers that obstore asks for credentials if none are given.
_METADATA = re.compile(
    r"Error performing [A-Z]+ https?://(169\.254\.169\.254|169\.254\.170\.2|metadata\.google\.internal)[:/]"
)

# A request for the credentials of a role: obstore does not quote its URL.
_ROLE = re.compile(r"Generic S3 error: Error performing POST REDACTED ")

_UNEXPECTED = re.compile(
    r"UnexpectedRange \{\s+expected: (\d{1,19})\.\.(\d{1,19}),\s+actual: (\d{1,19})\.\.(\d{1,19}),"
)
_STORE = re.compile(r"Generic (S3|GCS|MicrosoftAzure) error")
# The credentials of each store, by the name that obstore has for it.
_CREDENTIALS = {
    "S3": "access_key_id and secret_access_key",
    "GCS": "service_account_path",
    "MicrosoftAzure": "account_name and account_key (or sas_token)",
}
_SEARCHED = {
    "GCS": (
        "`storage_options`; in GOOGLE_SERVICE_ACCOUNT, GOOGLE_SERVICE_ACCOUNT_KEY and "
        "GOOGLE_APPLICATION_CREDENTIALS of the "
        "environment; in ~/.config/gcloud/application_default_credentials.json; at the service for the "
        "cloud's own machines"
    ),
    "MicrosoftAzure": (
        "`storage_options`; in AZURE_STORAGE_ACCOUNT_NAME, AZURE_STORAGE_ACCOUNT_KEY and other AZURE_ "
        "variables of the environment; at the service for the cloud's own machines"
    ),
}
S3_ADDRESS: Final = "check `region` and `endpoint` in `storage_options`"
"""The hint for an address of S3 that may be wrong."""
_ADDRESS = {
    "S3": S3_ADDRESS,
    "GCS": "check `base_url` in `storage_options`",
    "MicrosoftAzure": "check `account_name` and `endpoint` in `storage_options`",
}
_DENIED = (
    "check the credentials and the object's name: a store may answer so where there is no such object; "
    "`skip_signature=True` reads public buckets"
)
_BELONGS = (
    "a bucket, an option or a variable of the environment may hold what belongs in no URL or header, such "
    "as a line break at its end, or be empty"
)
# About a listed key with empty segments, `.`, `..` or control characters.
_BAD_KEY = "Encountered object with invalid path"
# About an answer that obstore cannot parse as a listing.
_NO_LISTING = "Got invalid list response"
# About the path of a request.
_BAD_PATH = "Could not parse path: "
_NO_BUCKET = ("NoSuchBucket", "ContainerNotFound")


def panicked(error: BaseException) -> bool:
    """Return whether an error is a panic of obstore, in the call itself or in a thread of its own."""
    return type(error).__name__ in ("PanicException", "RustPanic")


def translate(
    error: BaseException, path: str, store: object, *, want: ByteRange | Suffix | None = None
) -> BaseException:
    """Return the error to raise for an error of obstore.

    `store` is the store of obstore that raised it, whose options may name a proxy; None if it was not made.

    The text is cut to its first line and redacted, as the rest may quote a response. Cancellation, interrupts
    and AccelErrors are returned as they are. A panic of Rust, which is a BaseException, becomes a StoreError.
    """
    if isinstance(error, (AccelError, asyncio.CancelledError, KeyboardInterrupt, SystemExit, GeneratorExit)):
        return error
    place = None if want is None else str(want)
    raw = str(error)
    text, _, debug = raw.partition("\n\nDebug source:\n")
    code = code_in(raw)
    text = quoted(_BODY.sub(r"\1", text).split("\n", 1)[0], 500) + (f" [{code}]" if code else "")
    found = _STATUS.search(debug)
    status = int(found[1]) if found else None
    hint = OUT_OF_FILES if status is None and _lacked_files(raw) else None
    if panicked(error):
        return StoreError(f"obstore panicked: {text}", path=path, place=place, hint=hint or _BELONGS)
    if hint is not None:
        return StoreError(text, path=path, place=place, hint=hint, transient=True)
    if (refused := _PROFILE.search(raw)) is not None:
        message, hint = ProfileError.parse(refused[1])
        if message == NO_CREDENTIALS:
            hint = _give_credentials(raw)
        return StoreError(message, path=path, place=place, hint=hint)
    if _METADATA.search(text):
        # The metadata service of the cloud's own machines: this is not one of them.
        failure = StoreError(NO_CREDENTIALS, path=path, place=place, hint=_give_credentials(raw))
        failure.__cause__ = exceptions.GenericError(text)
        return failure
    address = _ADDRESS[_store_of(raw)]
    if _ROLE.search(text):
        why = "it cannot be reached" if status is None else f"it answered with status {status}"
        message = f"STS gave no credentials of a role: {why}" + (f" [{code}]" if code else "")
        busy = status is not None and (transient_code(code) or transient_status(status))
        return StoreError(
            message, path=path, place=place, hint=_asked_of_sts(), status=status, transient=busy
        )
    if status is not None:
        # The text of obstore includes the URL and the microseconds.
        text = f"the store answered with status {status}" + (f" [{code}]" if code else "")
    if isinstance(error, FileNotFoundError) or status == 404:
        hint = "there is no such bucket" if code in _NO_BUCKET else None
        return ObjectNotFoundError("there is no such object", path=path, hint=hint, status=404)
    if isinstance(error, exceptions.PreconditionError):
        return changed_object(path, place)
    denied = isinstance(error, (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError))
    # For a suffix range, a 400 without such a code may mean that the server has none.
    if denied or status in (401, 403) or (status == 400 and code in CREDENTIAL_FAULTS):
        status = status or (403 if isinstance(error, exceptions.PermissionDeniedError) else 401)
        hint = CREDENTIAL_FAULTS.get(code or "", _DENIED)
        return AccessDeniedError(text, path=path, place=place, hint=hint, status=status)
    if isinstance(error, exceptions.NotSupportedError) and isinstance(want, Suffix):
        return SuffixUnsupportedError(path=path, sent=False, certain=True)
    if isinstance(error, PermissionError) or "(os error 13)" in text:
        return AccessDeniedError(text, path=path, place=place, hint="check its permissions")
    client = dict(getattr(store, "client_options", None) or {})
    proxy = client.get("proxy_url")
    return _generic(text, debug, path, want=want, status=status, code=code, address=address, proxy=proxy)


def shorter_range(error: BaseException, want: ByteRange | Suffix) -> tuple[ByteRange, ByteRange] | None:
    """Return the wanted range and its first part that a server has sent in its place; None for all other
    errors.

    Nobody has checked yet that the end of the wanted range is the end of the object, for a suffix.
    """
    found = _UNEXPECTED.search(str(error)) if isinstance(error, exceptions.GenericError) else None
    if found is None:
        return None
    first, last, start, end = map(int, found.groups())
    if start != first or not start < end < last:
        return None
    if isinstance(want, ByteRange):
        return (want, ByteRange(start, end)) if (first, last) == (want.start, want.end) else None
    return (ByteRange(first, last), ByteRange(start, end)) if last - first <= want.length else None


def _lacked_files(raw: str) -> bool:
    """Return whether the process has reached its limit of open files."""
    if _NO_FILES.search(raw):
        return True
    if _NO_AUTHORITIES not in raw:
        return False
    try:
        os.close(os.open(os.devnull, os.O_RDONLY))
    except OSError as error:
        return error.errno in (errno.EMFILE, errno.ENFILE)
    return False


def _store_of(raw: str) -> str:
    found = _STORE.search(raw)
    return "S3" if found is None else found[1]


def _give_credentials(raw: str) -> str:
    store = _store_of(raw)
    places = searched_places() if store == "S3" else f"looked in {_SEARCHED[store]}"
    return (
        f"give {_CREDENTIALS[store]} in `storage_options` or the environment, "
        f"or `skip_signature=True` for a public bucket; {places}"
    )


def _asked_of_sts() -> str:
    """Return which server is asked for the credentials of a role, as far as the environment tells."""
    server = urlsplit(os.environ.get("AWS_ENDPOINT_URL_STS", "")).netloc.rpartition("@")[2]
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or "<region>"
    return (
        f"it was asked of {server or f'sts.{region}.amazonaws.com'}; see the variables AWS_ROLE_ARN, "
        f"AWS_WEB_IDENTITY_TOKEN_FILE and AWS_ENDPOINT_URL_STS"
    )


def _generic(
    text: str,
    debug: str,
    path: str,
    *,
    want: ByteRange | Suffix | None,
    status: int | None,
    code: str | None,
    address: str,
    proxy: str | None,
) -> StoreError:
    if status == 412:
        return changed_object(path, None if want is None else str(want))
    busy = transient_code(code)
    odd = status in (400, 416, 501) if status is not None else any(odd in debug for odd in _ODD_RANGE)
    odd = odd and not busy
    if isinstance(want, Suffix) and odd:
        return SuffixUnsupportedError(path=path, sent=True, certain=False, status=status)
    if isinstance(want, ByteRange):
        length = _LENGTH.search(debug) or _LENGTH.search(text)
        if status == 416 or (length and ("InvalidRange" in debug or "Invalid range" in text)):
            return ShortObjectError(
                path=path, want=want, size=int(length[1] or length[2]) if length else None
            )
    place = None if want is None else str(want)
    if status is not None:
        hint = address if status in (301, 307, 400) and not busy else None
        transient = busy or transient_status(status)
        return StoreError(text, path=path, place=place, hint=hint, status=status, transient=transient)
    if _NO_LISTING in text:
        return no_listing(path)
    if _BAD_PATH in text:
        hint = "a path in a store has no empty segment, no . and no .., and begins at its root"
        return StoreError(text, path=path, place=place, hint=hint)
    if _BAD_KEY in text:
        hint = "obstore takes no such key: rename or delete that object, or name the files to read"
        return StoreError(text, path=path, place=place, hint=hint)
    if "BareRedirect" in debug:
        return StoreError(text, path=path, place=place, hint=address)
    if "MissingAccessKeyId" in debug or "MissingSecretAccessKey" in debug or "MissingAccount" in debug:
        return StoreError(NO_CREDENTIALS, path=path, place=place, hint=_give_credentials(text))
    fault = obstore_fault(debug)
    if fault is not None:
        found = _SERVER.search(text)
        server = quoted(found[2], 100) if found else None
        through = named_proxy(proxy or (proxy_for(found[1], found[2].partition(":")[0]) if found else None))
        if through is not None:
            server, address = f"{server}, {through}" if server else through, PROXY_ADDRESS
        cause = exceptions.GenericError(_without_layout(debug))
        return fault.error(path, place=place, server=server, address=address, cause=cause)
    kind = _KIND.search(debug)
    if kind is not None and kind[1] == "Unknown" and "builder error" in text:
        address = "an endpoint of http:// is only spoken to with `allow_http=True`"
    return StoreError(
        f"{text} ({kind[1].lower()})" if kind else text,
        path=path,
        place=place,
        hint=address if kind and kind[1] in ("Connect", "Unknown") else None,
        transient=kind is not None and _is_transient(kind[1], debug),
    )


def _without_layout(debug: str) -> str:
    """Return obstore's description of a failed connection in one line, without the URL before it."""
    start = max(0, debug.find("HttpError {"))
    return quoted(" ".join(debug[start:].split()), 1000)


def _is_transient(kind: str, debug: str) -> bool:
    if kind in ("Connect", "Timeout", "Interrupted"):
        return True
    # A connection lost during the request, as opposed to a URL that cannot be sent.
    return kind == "Request" and "hyper::Error" in debug
