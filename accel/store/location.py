"""URLs and paths, split into the root of a store and the path of an object below it."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from accel.errors import StoreError, redact

__all__ = [
    "CARRIED_ROOT",
    "LOCAL_ROOT",
    "SCHEMES",
    "Location",
    "has_scheme",
    "numeric_settings",
    "parse_url",
    "url_in",
]

LOCAL_ROOT = "file://"
"""The root of local files."""
CARRIED_ROOT = "data:"
"""The root of objects that are their paths (`store.carried_store`), as the scheme `data:` has it."""

# Schemes -> the scheme of the root, which is the same for equal stores, so that they share one client.
SCHEMES: Mapping[str, str] = {
    "s3": "s3",
    "s3a": "s3",
    "r2": "r2",
    "hf": "hf",
    "gs": "gs",
    "gcs": "gs",
    "az": "az",
    "azure": "az",
    "adl": "az",
    "abfs": "abfss",
    "abfss": "abfss",
    "http": "http",
    "https": "https",
    "file": "file",
    "memory": "memory",
}
_MOST_SETTING = 1 << 52
_SCHEME = r"([A-Za-z][A-Za-z0-9+.\-]*)://(.*)"
# Characters that stay as they are: the URL is already encoded, and only illegal characters are quoted.
_URL_SAFE = "%/:=&?~#+!$,;'@()*[]|\"<>^`{}\\"


@dataclass(frozen=True, slots=True, repr=False)
class Location:
    """The location of an object, a prefix, or a glob.

    `str()` and `repr()` hide the values of a query string, as a presigned URL is a credential.
    """

    scheme: str
    """One of "s3", "gs", "az", "abfss", "http", "https", "file", or "store" for a store that the caller
    gave."""
    root: str
    """The root of the store: "s3://bucket", "https://host:port", "file://", ..."""
    path: str
    """The path below the root, without a leading slash. An HTTP path includes the query string, and stays
    percent-encoded."""
    options: Mapping[str, str] = field(default_factory=dict, hash=False)
    """Options that the URL implies, by obstore's names (for Azure, `account_name`)."""

    @property
    def url(self) -> str:
        """The whole address, in clear, as `parse_url` takes it; the absolute path of a local file."""
        if self.scheme == "store":
            return self.path
        return f"/{self.path}" if self.scheme == "file" else f"{self.root}/{self.path}"

    @property
    def globs(self) -> bool:
        """Whether `*`, `?` and `[` in the path may form a pattern: not over HTTP."""
        return self.scheme not in ("http", "https")

    def __str__(self) -> str:
        # In other paths `?` and `@` are parts of a key, as URLs with a user name are refused.
        return self.url if self.globs else redact(self.url)

    def __repr__(self) -> str:
        return f"Location({str(self)!r})"


def url_in(root: str, path: str) -> str:
    """Return the whole address of a path in a store, as messages have it: a local one with its leading slash,
    and that of a store that the caller gave as it is."""
    if root == LOCAL_ROOT:
        return f"/{path}"
    return f"{root}/{path}" if "://" in root else path


def parse_url(url: str | os.PathLike[str], *, in_store: bool = False) -> Location:
    """Split a URL or a path into the store's root and the path in it.

    Parameters
    ----------
    url : str or PathLike
        A bare path (relative ones from the working directory), `file:`, `s3://`, `s3a://`, `gs://`, `az://`,
        `azure://`, `abfs[s]://container@account.dfs.core.windows.net/` or, as fsspec has it,
        `abfs[s]://container/`, `http://`, `https://`, `r2://bucket/` of Cloudflare, or
        `hf://datasets/owner/name/path`, a file of Hugging Face's hub. `~/` is the home directory.
    in_store : bool
        The caller gave a store: a bare path is relative to its root, and only the path of a URL is used.

    Returns
    -------
    Location

    Raises
    ------
    StoreError
        The scheme is not known, or the URL lacks a bucket or host, or carries a user name.

    Notes
    -----
    `file:` URLs are percent-decoded; bare paths and keys of object stores are used as they are; HTTP URLs
    stay encoded. A trailing slash stays.
    """
    text = os.fspath(url)
    if not isinstance(text, str):
        raise StoreError("a path must be text, not bytes")
    if not text:
        raise StoreError("the path is empty")
    if "\0" in text:
        raise StoreError("a path cannot hold a NUL character")
    if text[:5].lower() == "file:":
        path = _file_url(text)
        return Location("store", "store:", path.lstrip("/")) if in_store else _local(path)
    match = _split_scheme(text)
    if match is None:
        return Location("store", "store:", text.lstrip("/")) if in_store else _local(text)
    scheme = SCHEMES.get(match[1].lower())
    if scheme is None:
        raise StoreError(
            f"accel has no store for {match[1]}://",
            path=text,
            hint=f"it has {', '.join(sorted(SCHEMES))}, bare paths, and any obstore store by `store=`",
        )
    rest = match[2]
    if in_store:
        return Location("store", "store:", _in_store(scheme, rest))
    if scheme == "memory":
        raise StoreError(
            "a memory:// URL names no store by itself", path=text, hint="give the MemoryStore by `store=`"
        )
    if scheme in ("http", "https"):
        return _http(scheme, rest, text)
    if scheme == "hf":
        return _hub(rest, text)
    if scheme == "abfss":
        return _abfss(rest, text)
    bucket, _, key = rest.partition("/")
    _check_host(bucket, text)
    if scheme == "r2":
        # Its root says whose service it is; all else is S3's.
        return Location("s3", f"r2://{bucket}", key, {"service": "r2"})
    return Location(scheme, f"{scheme}://{bucket}", key)


def numeric_settings(pairs: Iterable[tuple[str, str]], names: Collection[str]) -> dict[str, float]:
    """Return the numbers greater than 0 that the query string of a URL sets, by name.

    Raises
    ------
    StoreError
        A name is not one of `names`, or a value no such number; it is not quoted.
    """
    numbers: dict[str, float] = {}
    for name, value in pairs:
        if name not in names:
            raise StoreError(f"the URL may set {', '.join(sorted(names))}, and nothing else")
        if not re.fullmatch(r"[0-9]{1,16}(\.[0-9]{1,9})?", value) or not 0 < float(value) <= _MOST_SETTING:
            raise StoreError(f"the setting {name} in the URL is no number greater than 0")
        numbers[name] = float(value)
    return numbers


def has_scheme(text: str) -> bool:
    """Return whether a text is a URL, of whatever scheme."""
    return _split_scheme(text) is not None


def _split_scheme(text: str) -> re.Match[str] | None:
    return re.fullmatch(_SCHEME, text, re.DOTALL) if "://" in text else None


def _in_store(scheme: str, rest: str) -> str:
    if scheme == "memory":
        return rest.lstrip("/")
    return rest.partition("/")[2]


def _check_host(host: str, url: str) -> None:
    if not host:
        raise StoreError("the URL names no bucket or host", path=url)
    if "@" in host:
        raise StoreError(
            "credentials in a URL are not taken",
            path=url,
            hint="give them by `storage_options`, or by the store's environment variables",
        )


def _http(scheme: str, rest: str, url: str) -> Location:
    rest = rest.partition("#")[0]
    cut = re.search(r"[/?]", rest)
    host = rest if cut is None else rest[: cut.start()]
    path = "" if cut is None else rest[cut.start() :].removeprefix("/")
    _check_host(host, url)
    from urllib.parse import quote, urlsplit

    try:
        _ = urlsplit(f"{scheme}://{host}").port
    except ValueError:
        raise StoreError("the URL's host, or its port, is none", path=url) from None
    return Location(scheme, f"{scheme}://{host.lower()}", quote(path, safe=_URL_SAFE))


def _abfss(rest: str, url: str) -> Location:
    authority, _, key = rest.partition("/")
    container, at, host = authority.partition("@")
    if container and not at and "." not in container and ":" not in container:
        return Location("az", f"az://{container}", key)
    if not (container and host) or ":" in container:
        raise StoreError(
            "not an abfss URL", path=url, hint="abfss://container@account.dfs.core.windows.net/path"
        )
    host = host.lower()
    options = {"account_name": host.partition(".")[0], "container_name": container}
    if host.endswith(".fabric.microsoft.com"):
        options["use_fabric_endpoint"] = "true"
    return Location("abfss", f"abfss://{container}@{host}", key, options)


def _file_url(url: str) -> str:
    rest = url[5:]
    if rest.startswith("//"):
        host, slash, path = rest[2:].partition("/")
        if host.lower() not in ("", "localhost"):
            raise StoreError("a file: URL of another host", path=url, hint="file:///path has three slashes")
        rest = slash + path
    if not rest.startswith("/"):
        raise StoreError("a file: URL must hold an absolute path", path=url)
    if "%" not in rest:
        return rest
    from urllib.parse import unquote

    # As `os` decodes names that are not UTF-8.
    return unquote(rest, errors="surrogateescape")


def _hub(rest: str, url: str) -> Location:
    """Return the web address of a file of Hugging Face's hub: hf://datasets/OWNER/NAME[@REVISION]/PATH."""
    from urllib.parse import quote

    parts = re.fullmatch(r"(datasets|spaces)/([^/@]+/[^/@]+)(?:@([^/]+))?/(.+)", rest, re.DOTALL)
    if parts is None:
        raise StoreError(
            "this names no file of the hub",
            path=url,
            hint="it is hf://datasets/OWNER/NAME/PATH, with NAME@REVISION for another revision than main",
        )
    kind, repository, revision, path = parts.groups()
    if any(character in path for character in "*?["):
        raise StoreError(
            "the hub lists no files here", path=url, hint="name the files; a list of them is taken"
        )
    server = (os.environ.get("HF_ENDPOINT") or "https://huggingface.co").rstrip("/")
    scheme, _, host = server.partition("://")
    revision = quote(revision or "main", safe="%")
    return _http(scheme, f"{host}/{kind}/{repository}/resolve/{revision}/{quote(path)}", url)


def _local(path: str) -> Location:
    if path == "~" or path.startswith("~/"):
        path = os.path.expanduser(path)
    directory = path.endswith(("/", "/."))
    parts = path.split("/")
    if ".." in parts:
        # `..` after a symbolic link leads to the parent of what it points at.
        last = len(parts) - parts[::-1].index("..")
        path = os.path.join(os.path.realpath("/".join(parts[:last])), *parts[last:])
    absolute = os.path.abspath(path).lstrip("/")
    return Location("file", LOCAL_ROOT, absolute + "/" if directory and absolute else absolute)
