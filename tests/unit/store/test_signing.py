"""Which stores are read by presigned URLs, and what those are."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from obstore.store import AzureStore, GCSStore, LocalStore, MemoryStore, S3Store

from accel.options import Options
from accel.store import s3_store
from accel.store.http_connections import Origin, Timeouts
from accel.store.s3_store import signer_of

OPTIONS = Options(connect_timeout=3.0, read_timeout=4.0)
KEYS = {"access_key_id": "KEY", "secret_access_key": "SECRET", "region": "eu-north-1"}
HTTP = {"endpoint": "http://127.0.0.1:9000", "client_options": {"allow_http": True}}


@pytest.fixture(autouse=True)
def no_surroundings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


def s3(**more: Any) -> S3Store:
    return S3Store("bucket", **{**KEYS, **more})


async def test_a_signed_url() -> None:
    signer = signer_of(s3(**HTTP), OPTIONS)
    assert signer is not None
    signed = await signer.sign("a b/ü%.parquet")
    assert signed is not None
    assert (signed.origin, signed.authority) == (Origin("127.0.0.1", 9000, False), "127.0.0.1:9000")
    path, _, query = signed.target.partition("?")
    assert path == "/bucket/a%20b/%C3%BC%25.parquet"
    assert "X-Amz-Expires=900&X-Amz-SignedHeaders=host" in query
    assert "X-Amz-Signature=" in query
    assert await signer.sign("a b/ü%.parquet") is signed
    signer.forget("a b/ü%.parquet")
    assert await signer.sign("a b/ü%.parquet") is not signed
    assert "Signature" not in repr(signed) + repr(signer)


async def test_urls_are_made_anew_before_they_end(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(s3_store, "time", SimpleNamespace(monotonic=lambda: now[0]))
    signer = signer_of(s3(), OPTIONS)
    assert signer is not None
    first = await signer.sign("f")
    now[0] = 239.0
    assert await signer.sign("f") is first
    now[0] = 241.0
    assert await signer.sign("f") is not first
    assert s3_store.VALID.total_seconds() > 2 * 241


async def test_other_servers() -> None:
    signer = signer_of(s3(), OPTIONS)
    assert signer is not None
    signed = await signer.sign("f")
    assert signed is not None
    assert signed.origin == Origin("s3.eu-north-1.amazonaws.com", 443, True)
    assert signed.authority == "s3.eu-north-1.amazonaws.com"
    hosted = signer_of(s3(virtual_hosted_style_request=True, prefix="below"), OPTIONS)
    assert hosted is not None
    signed = await hosted.sign("f")
    assert signed is not None
    assert (signed.authority, signed.target.partition("?")[0]) == (
        "bucket.s3.eu-north-1.amazonaws.com",
        "/below/f",
    )


URLS = {
    "http://h:9000/b/f?q=1": (Origin("h", 9000, False), "h:9000", "/b/f?q=1"),
    "http://h/b/f?q=1": (Origin("h", 80, False), "h", "/b/f?q=1"),
    "https://h/f?q=1": (Origin("h", 443, True), "h", "/f?q=1"),
    "https://[::1]:9/f?q": (Origin("::1", 9, True), "[::1]:9", "/f?q"),
    "https://user@h/f?q=1": None,
    "https://user:word@h:9/f?q=1": None,
    "https://h": None,
    "https:///f?q=1": None,
    "ftp://host/f?q=1": None,
    "https://h?x/f?q=1": None,
    "HTTPS://h/f?q=1": (Origin("h", 443, True), "h", "/f?q=1"),
    "https://h x/f?q=1": None,
    "https://h#x/f?q=1": None,
    "https://h/f?q=1#part": None,
    "https://h/f g?q=1": None,
    "https://h/f?q=1\r\nX: y": None,
    "https://h/f?q=\x7f": None,
    "https://h/ü?q=1": None,
    "https://h ö/f?q=1": None,
    "": None,
}


@pytest.mark.parametrize("before", [None, "http://h:9000/b/g?q=2", "https://h/f#"])
@pytest.mark.parametrize("url", URLS)
async def test_urls_are_taken_apart(monkeypatch: pytest.MonkeyPatch, url: str, before: str | None) -> None:
    signer = signer_of(s3(client_options={"allow_http": True}), OPTIONS)
    assert signer is not None
    for number, given in enumerate([url] if before is None else [before, url, before, url]):
        monkeypatch.setattr(s3_store.obstore, "sign", lambda *_, given=given: given)
        signed = await signer.sign(f"f{number}")
    expected = URLS[url]
    if expected is None:
        assert signed is None
    else:
        assert signed is not None
        assert (signed.origin, signed.authority, signed.target) == expected


async def test_plain_http_only_where_it_is_allowed() -> None:
    signer = signer_of(s3(endpoint="http://127.0.0.1:9000"), OPTIONS)
    assert signer is not None
    assert await signer.sign("f") is None


async def test_credentials_that_come_from_elsewhere() -> None:
    calls = []

    def provide() -> Any:
        calls.append(1)
        return {"access_key_id": "KEY", "secret_access_key": "SECRET", "token": "T", "expires_at": None}

    signer = signer_of(S3Store("bucket", region="eu-north-1", credential_provider=provide), OPTIONS)
    assert signer is not None
    signed = await signer.sign("f")
    assert signed is not None
    assert "X-Amz-Security-Token=T" in signed.target
    assert calls == [1]


TIMEOUTS = {
    "accel's": ({}, Timeouts(3.0, 4.0)),
    "its maker's": ({"connect_timeout": "500ms", "read_timeout": "2m"}, Timeouts(0.5, 120.0)),
    "a day for all of it": ({"timeout": "24h"}, Timeouts(3.0, 4.0)),
}


@pytest.mark.parametrize(("client", "timeouts"), TIMEOUTS.values(), ids=TIMEOUTS)
def test_timeouts(client: dict[str, Any], timeouts: Timeouts) -> None:
    signer = signer_of(s3(client_options=client), OPTIONS)
    assert signer is not None
    assert signer.timeouts == timeouts


SIGNED = {
    "what is switched off": {"skip_signature": False, "request_payer": False, "s3_express": False},
    "what concerns writing": {"checksum_algorithm": "SHA256", "unsigned_payload": True},
    "no retries": {"retry_config": {"max_retries": 0}},
}


@pytest.mark.parametrize("more", SIGNED.values(), ids=SIGNED)
def test_what_has_no_effect_on_reads(more: dict[str, Any]) -> None:
    assert signer_of(s3(**more), OPTIONS) is not None


OTHERS = {
    "anonymous": lambda: s3(skip_signature=True),
    "requester pays": lambda: s3(request_payer=True),
    "a customer's key": lambda: s3(config={"aws_sse_customer_key_base64": "a2V5"}),
    "a directory bucket": lambda: S3Store("b--use1-az4--x-s3", **KEYS),
    "S3 express": lambda: S3Store("b--use1-az4--x-s3", s3_express=True, **KEYS),
    "headers": lambda: s3(client_options={"default_headers": {"x-mine": "1"}}),
    "a proxy": lambda: s3(client_options={"proxy_url": "http://127.0.0.1:1"}),
    "any certificate": lambda: s3(client_options={"allow_invalid_certificates": True}),
    "half a minute for all of it": lambda: s3(client_options={"timeout": "30s"}),
    "a time of another form": lambda: s3(client_options={"read_timeout": "1min 5s"}),
    "its own retries": lambda: s3(retry_config={"max_retries": 3}),
    "a config that panics": lambda: S3Store("b", allow_http=True, access_key_id="K", secret_access_key="S"),
    "Google": lambda: GCSStore("b", skip_signature=True),
    "Azure": lambda: AzureStore("c", account_name="a", skip_signature=True),
    "memory": MemoryStore,
    "a folder": LocalStore,
    "no obstore": object,
}


@pytest.mark.parametrize("make", OTHERS.values(), ids=OTHERS)
def test_what_is_left_to_obstore(make: Any) -> None:
    assert signer_of(make(), OPTIONS) is None


@pytest.mark.parametrize("name", ["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "http_proxy"])
def test_a_proxy_of_the_surroundings_is_left_to_obstore(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "http://127.0.0.1:1")
    assert signer_of(s3(), OPTIONS) is None


@pytest.mark.parametrize(
    ("name", "value", "signed"),
    [
        ("AWS_SKIP_SIGNATURE", "true", False),
        ("AWS_SKIP_SIGNATURE", "false", True),
        ("aws_request_payer", "true", False),
        ("AWS_SSE_CUSTOMER_KEY_BASE64", "a2V5", False),
        ("AWS_PROXY_URL", "http://127.0.0.1:1", False),
        ("AWS_PROFILE", "mine", True),
    ],
)
def test_the_environment_counts(monkeypatch: pytest.MonkeyPatch, name: str, value: str, signed: bool) -> None:
    monkeypatch.setenv(name, value)
    assert (signer_of(s3(), OPTIONS) is not None) is signed


async def test_keys_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {**KEYS, "session_token": "T", "allow_http": "true"}.items():
        monkeypatch.setenv(f"AWS_{name.upper()}", value)
    signer = signer_of(S3Store("bucket", endpoint="http://127.0.0.1:9000"), OPTIONS)
    assert signer is not None
    signed = await signer.sign("f")
    assert signed is not None
    assert "Credential=KEY" in signed.target
    assert "X-Amz-Security-Token=T" in signed.target
