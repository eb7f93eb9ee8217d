"""Which proxy a server is reached by."""

from __future__ import annotations

import pytest

from accel.store.http_store import proxy_for


@pytest.fixture(autouse=True)
def none_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.mark.parametrize(
    ("variables", "scheme", "host", "proxy"),
    [
        pytest.param({}, "https", "h", None, id="none"),
        pytest.param({"https_proxy": "http://p:1"}, "https", "h", "http://p:1", id="named"),
        pytest.param({"HTTPS_PROXY": "http://p:1"}, "https", "h", "http://p:1", id="in capitals"),
        pytest.param({"https_proxy": "http://p:1"}, "http", "h", None, id="for the other scheme"),
        pytest.param({"https_proxy": "https://p:1"}, "https", "h", None, id="over TLS"),
        pytest.param({"https_proxy": "http://p:1", "no_proxy": "h,i"}, "https", "h", None, id="not for this"),
        pytest.param(
            {"https_proxy": "http://p:1", "no_proxy": "i"}, "https", "h", "http://p:1", id="but this"
        ),
        pytest.param({"https_proxy": ""}, "https", "h", None, id="empty"),
    ],
)
def test_what_the_environment_says(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], scheme: str, host: str, proxy: str | None
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert proxy_for(scheme, host) == proxy
