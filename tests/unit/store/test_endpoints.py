"""Settings that would make obstore panic are refused by name, before it is asked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

import accel
from accel.errors import StoreError
from accel.store.location import parse_url
from accel.store.storage_options import check_settings, endpoint_of

VARIABLES = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT", "GOOGLE_BASE_URL", "AZURE_ENDPOINT")


@pytest.fixture(autouse=True)
def no_endpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


def refusal(url: str, config: Mapping[str, Any]) -> str:
    with pytest.raises(StoreError) as caught:
        check_settings(parse_url(url), config)
    assert "SECRET" not in str(caught.value)
    return str(caught.value)


EMPTY = "is empty (leave it out to have the provider's own endpoint)"


@pytest.mark.parametrize(
    ("url", "name"), [("s3://b", "endpoint"), ("s3://b", "aws_endpoint_url"), ("gs://b", "endpoint")]
)
def test_an_endpoint_that_is_empty(url: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert refusal(url, {name: ""}) == f"{url}: storage option {name!r} {EMPTY}"
    monkeypatch.setenv("AWS_ENDPOINT", "http://127.0.0.1:9000")
    assert refusal(url, {name: ""}) == f"{url}: storage option {name!r} {EMPTY}"


@pytest.mark.parametrize(
    ("url", "name"), [("s3://b", name) for name in VARIABLES[:3]] + [("gs://b", "GOOGLE_BASE_URL")]
)
def test_a_variable_that_is_empty(url: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "")
    assert refusal(url, {}) == f"{url}: the environment variable {name} {EMPTY}"
    check_settings(parse_url(url), {"endpoint": "http://127.0.0.1:9000"})


NO_URLS = {
    "no host": "http://",
    "no host, a path": "https:///x",
    "half an address": "http://[::1",
    "a port in words": "http://minio:SECRET",
    "a port that is too large": "http://minio:99999",
    "a space in the host": "http://a b",
    "a space at the end": "http://minio:9000 ",
    "an escape": "http://%7a",
    "a letter beyond ASCII": "http://\u00e9.example",
    "no scheme": "minio:9000",
}


@pytest.mark.parametrize("url", ["s3://b", "gs://b"])
@pytest.mark.parametrize("endpoint", NO_URLS.values(), ids=NO_URLS)
def test_an_endpoint_that_is_no_url(url: str, endpoint: str) -> None:
    with pytest.raises(StoreError, match=r"^(s3|gs)://b: the endpoint .* is no URL \(it .*https://"):
        check_settings(parse_url(url), {"endpoint": endpoint})


@pytest.mark.parametrize(
    "endpoint",
    ["http://127.0.0.1:9000", "HTTPS://Host_1.example", "http://[::1]:9000/", "https://u@h:1/path", ""],
)
def test_an_endpoint_that_is_one(endpoint: str) -> None:
    config = {"endpoint": endpoint} if endpoint else {}
    for url in ("s3://b", "gs://b", "az://b"):
        check_settings(parse_url(url), config)
        assert endpoint_of(parse_url(url).scheme, config) == endpoint


@pytest.mark.parametrize("name", ["access_key_id", "aws_session_token", "region", "endpoint", "account_name"])
def test_a_line_break_at_the_end(name: str) -> None:
    assert refusal("s3://b", {name: "http://SECRET\n"}) == (
        f"s3://b: storage option {name!r} holds a line break or another control character "
        "(what was read from a file may end in one: strip it)"
    )


def test_a_document_has_lines() -> None:
    check_settings(parse_url("gs://b"), {"service_account_key": "{\n}\n", "google_service_account_key": "\n"})


def test_what_only_obstore_meets_is_told_with_a_hint(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AWS_SESSION_TOKEN", "SECRET\n")
    keys = {
        "access_key_id": "k",
        "secret_access_key": "SECRET",
        "region": "r",
        "endpoint": "http://127.0.0.1:9",
    }
    with pytest.raises(
        StoreError, match="obstore panicked: .*a variable of the environment may hold"
    ) as caught:
        accel.scan("s3://b/x.parquet", storage_options=keys, cache=None).to_table()
    assert "SECRET" not in str(caught.value) + capfd.readouterr().err
