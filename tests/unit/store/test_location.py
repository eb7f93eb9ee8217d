"""URLs and paths: what they name, and what they never show."""

from __future__ import annotations

import os
import pathlib

import pytest

from accel.errors import StoreError
from accel.store.location import Location, has_scheme, parse_url

CASES = {
    "s3": ("s3://bucket/a/b.parquet", "s3", "s3://bucket", "a/b.parquet"),
    "s3a is s3": ("s3a://bucket/a", "s3", "s3://bucket", "a"),
    "scheme in capitals": ("S3://bucket/a", "s3", "s3://bucket", "a"),
    "s3 keys are verbatim": ("s3://b/x%20y?z#1&k=v*[a]", "s3", "s3://b", "x%20y?z#1&k=v*[a]"),
    "bucket alone": ("s3://bucket", "s3", "s3://bucket", ""),
    "trailing slash": ("s3://bucket/dir/", "s3", "s3://bucket", "dir/"),
    "gs": ("gs://bucket/a", "gs", "gs://bucket", "a"),
    "az": ("az://container/a", "az", "az://container", "a"),
    "azure is az": ("azure://container/a", "az", "az://container", "a"),
    "adl is az": ("adl://container/a", "az", "az://container", "a"),
    "abfs of a container alone is az": ("abfs://container/p/a", "az", "az://container", "p/a"),
    "abfss of a container alone is az": ("abfss://container", "az", "az://container", ""),
    "abfss": (
        "abfss://data@Account.dfs.core.windows.net/p/x",
        "abfss",
        "abfss://data@account.dfs.core.windows.net",
        "p/x",
    ),
    "http keeps query and encoding": (
        "https://Host:8443/a%20b/c.parquet?X-Sig=a%2Fb&e=1",
        "https",
        "https://host:8443",
        "a%20b/c.parquet?X-Sig=a%2Fb&e=1",
    ),
    "http drops the fragment": ("http://h/a#part", "http", "http://h", "a"),
    "http encodes a space": ("http://h/a b", "http", "http://h", "a%20b"),
    "http root with a query": ("http://h?x=1", "http", "http://h", "?x=1"),
    "file": ("file:///tmp/a", "file", "file://", "tmp/a"),
    "file, one slash": ("file:/tmp/a", "file", "file://", "tmp/a"),
    "file of localhost": ("file://localhost/tmp/a", "file", "file://", "tmp/a"),
    "file is decoded": ("file:///tmp/a%20b%25", "file", "file://", "tmp/a b%"),
    "path": ("/tmp/a", "file", "file://", "tmp/a"),
    "path is verbatim": ("/tmp/a%20b?*", "file", "file://", "tmp/a%20b?*"),
    "path with slashes": ("/tmp//x/./a/", "file", "file://", "tmp/x/a/"),
    "root": ("/", "file", "file://", ""),
}


@pytest.mark.parametrize(("url", "scheme", "root", "path"), CASES.values(), ids=CASES.keys())
def test_parse(url: str, scheme: str, root: str, path: str) -> None:
    location = parse_url(url)
    assert (location.scheme, location.root, location.path) == (scheme, root, path)


@pytest.mark.parametrize("url", [case[0] for case in CASES.values()], ids=CASES.keys())
def test_its_url_means_the_same(url: str) -> None:
    location = parse_url(url)
    assert parse_url(location.url) == location


def test_azure_account_comes_from_the_host() -> None:
    location = parse_url("abfss://data@acc.dfs.core.windows.net/x")
    assert dict(location.options) == {"account_name": "acc", "container_name": "data"}
    fabric = parse_url("abfss://ws@onelake.dfs.fabric.microsoft.com/x")
    assert fabric.options["use_fabric_endpoint"] == "true"


def test_relative_paths_start_at_the_working_directory(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    here = str(tmp_path).lstrip("/")
    assert parse_url("a/b").path == f"{here}/a/b"
    assert parse_url(pathlib.Path("a")).path == f"{here}/a"
    assert parse_url(".").path == here
    assert parse_url("./").path == f"{here}/"
    assert parse_url("a:b.parquet").path == f"{here}/a:b.parquet"


def test_dots_after_a_link_lead_to_the_parent_of_its_target(tmp_path: pathlib.Path) -> None:
    (tmp_path / "far" / "inner").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "far" / "inner")
    real = os.path.realpath(tmp_path).lstrip("/")
    assert parse_url(f"{tmp_path}/link/../x").path == f"{real}/far/x"


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("a/b", "a/b"),
        ("/a/b", "a/b"),
        ("memory:///a", "a"),
        ("memory://a/b", "a/b"),
        ("s3://bucket/k/x", "k/x"),
    ],
)
def test_in_a_store_of_the_caller_only_the_path_counts(text: str, path: str) -> None:
    assert parse_url(text, in_store=True) == Location("store", "store:", path)


BAD = {
    "unknown scheme": ("ftp://h/x", "accel has no store for ftp://"),
    "memory without a store": ("memory://x", "give the MemoryStore by `store=`"),
    "no bucket": ("s3:///key", "names no bucket or host"),
    "no host": ("https:///x", "names no bucket or host"),
    "credentials, http": ("https://user:pw@host/x", "credentials in a URL are not taken"),
    "credentials, s3": ("s3://key:secret@bucket/x", "credentials in a URL are not taken"),
    "abfss without a container": ("abfss://account.dfs.core.windows.net/x", "abfss://container@account"),
    "file of another host": ("file://server/x", "another host"),
    "relative file URL": ("file:a/b", "must hold an absolute path"),
    "empty": ("", "the path is empty"),
    "NUL": ("/a\0b", "NUL"),
}


@pytest.mark.parametrize(("url", "message"), BAD.values(), ids=BAD.keys())
def test_refused(url: str, message: str) -> None:
    with pytest.raises(StoreError) as caught:
        parse_url(url)
    assert message in str(caught.value)
    assert "pw" not in str(caught.value)
    assert "secret" not in str(caught.value)


def test_a_presigned_url_is_never_shown() -> None:
    location = parse_url("https://host/f.parquet?X-Amz-Signature=SECRET&X-Amz-Credential=KEY")
    for text in (str(location), repr(location), f"{location}"):
        assert "SECRET" not in text
        assert "KEY" not in text
    assert "X-Amz-Signature=***" in str(location)


def test_only_http_takes_no_globs() -> None:
    assert parse_url("s3://b/*").globs
    assert parse_url("/tmp/?").globs
    assert not parse_url("https://h/a?b").globs


@pytest.mark.parametrize("text", ["s3://b/k", "s3a://b", "x+y.z-1://", "FILE:///a", "abc://a\nb"])
def test_what_is_spelt_as_a_url(text: str) -> None:
    assert has_scheme(text)


@pytest.mark.parametrize("text", ["", "a/b", "file:/a", "a/b://c", "1s://b", "://b"])
def test_what_is_spelt_otherwise(text: str) -> None:
    assert not has_scheme(text)
