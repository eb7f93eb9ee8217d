"""One page of a listing of S3, as the answer to ListObjectsV2 holds it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final

from accel.errors import AccessDeniedError, StoreError
from accel.store.range_store import ObjectEntry
from accel.store.request_errors import CREDENTIAL_FAULTS, quoted

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

__all__ = ["ListingPage", "no_listing", "parse_page"]

_MOST_DIGITS: Final = 19
_NO_RETRY: Final = frozenset(("AccessDenied", "NoSuchBucket", *CREDENTIAL_FAULTS))
_BAD_KEY: Final = "rename or delete that object, or name the files to read"


@dataclass(frozen=True, slots=True)
class ListingPage:
    """One page of a listing."""

    entries: Sequence[ObjectEntry]
    truncated: bool
    """Whether more pages follow."""
    token: str | None
    """The continuation token of the next page; None if the listing has ended, or the server has none."""


def no_listing(path: str) -> StoreError:
    """Return the error for an answer that is no listing, which may come right the next time."""
    return StoreError(
        "the store answered a listing with something else",
        path=path,
        hint="the endpoint may be another server's, or a proxy answers in its place",
        transient=True,
    )


def parse_page(body: bytes | memoryview, path: str) -> ListingPage:
    """Parse the body of an answer with status 200.

    Parameters
    ----------
    body : bytes
    path : str
        The prefix, for errors.

    Raises
    ------
    StoreError
        It is no listing: an `<Error>`, which is named, a page for humans, or cut short. Or it holds a key
        that cannot be read by obstore.
    """
    from xml.etree.ElementTree import ParseError, fromstring

    raw = bytes(body)
    if b"<!DOCTYPE" in raw or b"<!doctype" in raw:  # HTML; and entities are not expanded
        raise no_listing(path)
    try:
        root = fromstring(raw)
    except (ParseError, ValueError, LookupError):  # LookupError: an unknown encoding
        raise no_listing(path) from None
    kind = _plain(root.tag)
    if kind == "Error":
        raise _error_in(root, path)
    if kind != "ListBucketResult":
        raise no_listing(path)
    truncated: bool | None = None
    token: str | None = None
    entries: list[ObjectEntry] = []
    for child in root:
        tag = _plain(child.tag)
        if tag == "Contents":
            entries.append(_entry(child, path))
        elif tag == "IsTruncated":
            truncated = (child.text or "").strip().lower() == "true"
        elif tag == "NextContinuationToken":
            token = child.text or None
    if truncated is None:
        truncated = token is not None
    # Some servers send a token even beside the last page.
    return ListingPage(entries, truncated, token if truncated else None)


def _plain(tag: str) -> str:
    """Return a tag without its namespace, which some servers leave out."""
    return tag.rpartition("}")[2]


def _error_in(root: Element, path: str) -> StoreError:
    code = next((child.text or "" for child in root if _plain(child.tag) == "Code"), "").strip()
    shown = quoted(code, 80)
    kind = AccessDeniedError if code == "AccessDenied" else StoreError
    return kind(
        "the store answered a listing with an error" + (f" [{shown}]" if shown else ""),
        path=path,
        hint=CREDENTIAL_FAULTS.get(code),
        transient=code not in _NO_RETRY,
    )


def _entry(contents: Element, path: str) -> ObjectEntry:
    key = size = etag = modified = None
    for child in contents:
        tag = _plain(child.tag)
        if tag == "Key":
            key = child.text
        elif tag == "Size":
            size = child.text
        elif tag == "ETag":
            etag = child.text
        elif tag == "LastModified":
            modified = child.text
    digits = (size or "").strip()
    if not key or not (digits.isascii() and digits.isdigit() and len(digits) <= _MOST_DIGITS):
        raise no_listing(path)
    # As obstore has them, by which objects are read: a directory marker without its slash.
    name = key.removesuffix("/")
    _check_key(name, path)
    return ObjectEntry(name, int(digits), etag, None if modified is None else _seconds(modified))


def _seconds(text: str) -> float | None:
    """Return a time as seconds since 1970; None where it is none."""
    try:
        return datetime.fromisoformat(text.strip()).timestamp()
    except (ValueError, OverflowError):
        return None


def _check_key(key: str, path: str) -> None:
    """Refuse a key under which obstore would read no object, or another one."""
    if key.isprintable() and key and key[0] not in "/." and "//" not in key and "/." not in key:
        return
    for segment in key.split("/"):
        if segment in ("", ".", ".."):
            why = f"the segment {segment!r}"
        elif any(ord(letter) < 32 or ord(letter) == 127 for letter in segment):
            why = "a control character"
        else:
            continue
        hint = f"obstore takes no such key: {_BAD_KEY}"
        raise StoreError(f"a listed key holds {why}: {quoted(key, 200)!a}", path=path, hint=hint)
