"""`credential_provider=` of each cloud: what it returns is what requests carry."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from accel.errors import StoreError
from accel.options import Options
from accel.ranges import ByteRange
from accel.store.location import parse_url
from accel.store.storage_options import build_store

CLOUDS: dict[str, tuple[str, dict[str, Any], dict[str, str], str]] = {
    "S3": (
        "s3://b",
        {"region": "us-east-1", "virtual_hosted_style_request": "false"},
        {"access_key_id": "KEY7", "secret_access_key": "s", "token": "t"},
        "Credential=KEY7/",
    ),
    "Google": ("gs://b", {}, {"token": "token-7"}, "Bearer token-7"),
    "Azure": ("az://b", {"account_name": "acc"}, {"token": "token-7"}, "Bearer token-7"),
    "Azure by a signature": ("az://b", {"account_name": "acc"}, {"sas_token": "sv=1&sig=s7"}, "sig=s7"),
    "Azure by its key": ("az://b", {"account_name": "acc"}, {"access_key": "a2V5"}, "SharedKey acc:"),
}


@pytest.mark.parametrize("awaited", [False, True], ids=["function", "coroutine function"])
@pytest.mark.parametrize("cloud", CLOUDS)
async def test_requests_carry_what_it_returns(
    server: Any, monkeypatch: pytest.MonkeyPatch, cloud: str, awaited: bool
) -> None:
    monkeypatch.delenv("AWS_PROFILE", raising=False)
    url, options, secrets, carried = CLOUDS[cloud]
    calls = []

    def provide() -> dict[str, Any]:
        calls.append(1)
        return {**secrets, "expires_at": datetime.now(UTC) + timedelta(hours=1)}

    async def provide_async() -> dict[str, Any]:
        return provide()

    provider: Callable[[], Any] = provide_async if awaited else provide
    given = {**options, "endpoint": server.url, "credential_provider": provider, "allow_http": True}
    store = build_store(parse_url(url), given, options=Options())
    with pytest.raises(StoreError, match="there is no such object"):
        await store.read("f", ByteRange(0, 4))
    [request] = server.requests
    assert carried in request.headers.get("authorization", "") + request.target.replace("%2F", "/").replace(
        "X-Amz-", ""
    )
    assert calls == [1]


@pytest.mark.parametrize("cloud", CLOUDS)
async def test_its_failure_is_told(server: Any, cloud: str) -> None:
    url, options, _, _ = CLOUDS[cloud]

    def provide() -> dict[str, Any]:
        raise LookupError("the vault is sealed: token=S3CRET")

    given = {**options, "endpoint": server.url, "credential_provider": provide, "allow_http": True}
    store = build_store(parse_url(url), given, options=Options())
    with pytest.raises(StoreError, match="the vault is sealed") as caught:
        await store.read("f", ByteRange(0, 4))
    assert "S3CRET" not in f"{caught.value} {caught.value!r} {caught.value.__cause__!r}"
    assert server.requests == []
