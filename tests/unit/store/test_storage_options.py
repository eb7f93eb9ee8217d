"""Storage options: their names, their values, and settings over which obstore would panic."""

from __future__ import annotations

import gc
import pathlib
import re
import weakref
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

import pytest

import accel
from accel.errors import StoreError
from accel.options import Options
from accel.store import identity
from accel.store.clients import client_for
from accel.store.http_store import HttpStore
from accel.store.identity import credentials_token
from accel.store.local_store import FileStore
from accel.store.location import parse_url
from accel.store.obstore_store import ObstoreStore
from accel.store.storage_options import build_store, check_settings, endpoint_of, normalize


@pytest.fixture(autouse=True)
def no_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT", "AWS_ALLOW_HTTP", "AWS_REGION"):
        monkeypatch.delenv(name, raising=False)


KEYS: dict[str, Any] = {"access_key_id": "KEY", "secret_access_key": "SECRET"}


def build(url: str, **options: Any) -> Any:
    return build_store(parse_url(url), options, options=Options(connect_timeout=2.5, read_timeout=7.0))


def test_s3() -> None:
    store = build("s3://bucket/x", region="eu-west-1", **KEYS)
    assert isinstance(store, ObstoreStore)
    inner: Any = store.inner
    assert inner.config == {
        "bucket": "bucket",
        "region": "eu-west-1",
        "access_key_id": "KEY",
        "secret_access_key": "SECRET",
    }
    assert inner.retry_config["max_retries"] == 0
    client = inner.client_options
    assert (str(client["connect_timeout"]), str(client["read_timeout"])) == ("2500ms", "7000ms")
    assert "allow_http" not in client


@pytest.mark.parametrize(
    ("key", "name"),
    [
        *((key, "endpoint") for key in ("endpoint", "endpoint_url", "aws_endpoint_url", "aws_endpoint")),
        *((key, "endpoint") for key in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT", "Endpoint")),
        *((key, "endpoint_url_s3") for key in ("aws_endpoint_url_s3", "AWS_ENDPOINT_URL_S3")),
    ],
)
def test_an_http_endpoint_needs_no_second_permission(key: str, name: str) -> None:
    inner = build("s3://bucket", **{key: "http://127.0.0.1:9000"}, **KEYS).inner
    assert inner.client_options["allow_http"] in (True, "true")
    assert inner.config[name] == "http://127.0.0.1:9000"


@pytest.mark.parametrize("key", ["allow_http", "AWS_ALLOW_HTTP", "aws_allow_http", "Allow_HTTP"])
def test_a_permission_is_for_the_client_however_it_is_spelled(key: str) -> None:
    # Among obstore's own keys it would panic over it.
    for value, said in ((True, "true"), ("false", "false")):
        store = build("s3://bucket", region="eu-west-1", **{key: value}, **KEYS)
        assert (store.warning, str(store.inner.client_options["allow_http"]).lower()) == (None, said)


def test_an_option_is_given_once() -> None:
    with pytest.raises(StoreError, match="'AWS_REGION' is given twice"):
        build("s3://bucket", aws_region="a", AWS_REGION="b", **KEYS)


def test_an_http_endpoint_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9000")
    inner = build("s3://bucket", **KEYS).inner
    assert inner.client_options["allow_http"] in (True, "true")


def test_an_explicit_no_is_respected() -> None:
    inner = build("s3://bucket", endpoint="http://127.0.0.1:9000", allow_http=False, **KEYS).inner
    assert inner.client_options["allow_http"] in (False, "false")


@pytest.mark.parametrize(
    ("given", "hosted"), [(True, False), ("True", False), ("TRUE", False), (False, True), ("False", True)]
)
def test_switches_of_spark_however_they_are_spelt(given: bool | str, hosted: bool) -> None:
    assert normalize({"fs.s3a.path.style.access": given}) == {"virtual_hosted_style_request": hosted}


def test_sparks_names() -> None:
    assert normalize(
        {
            "spark.hadoop.fs.s3a.endpoint": "http://h",
            "fs.s3a.access.key": "KEY",
            "fs.s3a.secret.key": "SECRET",
            "fs.s3a.session.token": "TOKEN",
            "fs.s3a.path.style.access": "true",
            "fs.s3a.endpoint.region": "r",
            "fs.s3a.requester.pays.enabled": True,
        }
    ) == {
        "endpoint": "http://h",
        "access_key_id": "KEY",
        "secret_access_key": "SECRET",
        "session_token": "TOKEN",
        "virtual_hosted_style_request": False,
        "region": "r",
        "request_payer": True,
    }
    with pytest.raises(StoreError, match="'fs.s3a.fast.upload' is not known"):
        normalize({"fs.s3a.fast.upload": "x"})
    with pytest.raises(
        StoreError, match=r"acc\.dfs\.core\.windows\.net' is not known \(here it is account_key\)"
    ):
        normalize({"spark.hadoop.fs.azure.account.key.acc.dfs.core.windows.net": "SECRET"})


@pytest.mark.parametrize(
    ("key", "value"),
    [("skip_signature", True), ("request_payer", True), ("virtual_hosted_style_request", True)],
)
def test_switches(key: str, value: bool) -> None:
    assert build("s3://bucket", **{key: value}, **KEYS).inner.config[key] == "true"


def test_other_clouds() -> None:
    gs = build("gs://bucket", skip_signature=True).inner
    assert gs.config == {"bucket": "bucket", "skip_signature": "true"}
    az = build("az://box", account_name="acc", account_key="aGVsbG8=").inner
    assert (az.config["container_name"], az.config["account_name"]) == ("box", "acc")
    abfss = build("abfss://box@acc.dfs.core.windows.net/x", account_key="aGVsbG8=").inner
    assert (abfss.config["container_name"], abfss.config["account_name"]) == ("box", "acc")


def test_headers_reach_object_stores_too() -> None:
    inner = build("s3://bucket", headers={"x-mine": "1"}, **KEYS).inner
    assert dict(inner.client_options["default_headers"]) == {"x-mine": b"1"}


def test_plain_stores() -> None:
    assert isinstance(build("/tmp/x"), FileStore)
    assert isinstance(build("https://h/x"), HttpStore)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"bogus": "SECRET", **KEYS}, "'bogus' is not valid for store 'S3'"),
        ({"secret_access_key": "SECRET"}, "no credentials were found"),
        ({"prefix": "p", **KEYS}, "'prefix' is not taken"),
    ],
    ids=["unknown key", "half a credential", "prefix"],
)
def test_refused(options: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID", raising=False)
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY", raising=False)
    with pytest.raises(StoreError) as caught:
        build("s3://bucket", **options)
    assert message in str(caught.value)
    assert "SECRET" not in str(caught.value).replace("AWS_SECRET_ACCESS_KEY", "")


def test_a_fingerprint_follows_the_environment_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """However often it was asked for before: a variable set, changed, taken away, or of another's concern."""
    monkeypatch.delenv("AWS_REGION", raising=False)
    found = [credentials_token("s3://b", KEYS), credentials_token("s3://b", KEYS)]
    for value in ("one", "two"):
        monkeypatch.setenv("AWS_REGION", value)
        found += [credentials_token("s3://b", KEYS), credentials_token("s3://b", KEYS)]
    monkeypatch.setenv("SOMETHING_ELSE", "three")
    found.append(credentials_token("s3://b", KEYS))
    monkeypatch.delenv("AWS_REGION")
    found.append(credentials_token("s3://b", KEYS))
    a, b, c = found[0], found[2], found[4]
    assert (found, len({a, b, c})) == ([a, a, b, b, c, c, c, a], 3)


@pytest.mark.parametrize("values", [("1", 1), (1, True), (1, 1.0), ("True", True)], ids=repr)
def test_options_that_are_equal_and_not_the_same_have_their_own_fingerprints(
    values: tuple[object, ...],
) -> None:
    assert len({credentials_token("s3://b", {"allow_http": value}) for value in values}) == len(values)


def test_fingerprints_tell_credentials_apart_and_tell_none(monkeypatch: pytest.MonkeyPatch) -> None:
    one = credentials_token("s3://b", KEYS)
    assert one == credentials_token("s3://b", dict(reversed(KEYS.items())))
    others = {
        one,
        credentials_token("s3://c", KEYS),
        credentials_token("s3://b", None),
        credentials_token("s3://b", {**KEYS, "secret_access_key": "OTHER"}),
        credentials_token("s3://b", {**KEYS, "headers": {"a": "1"}}),
        credentials_token("s3://b", {**KEYS, "headers": {"a": "2"}}),
    }
    assert len(others) == 6
    assert all(re.fullmatch("[0-9a-f]{32}", token) for token in others)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another")
    assert credentials_token("s3://b", KEYS) != one


def test_a_credential_provider_counts_by_identity() -> None:
    def first() -> None: ...
    def second() -> None: ...

    assert credentials_token("s3://b", {"credential_provider": first}) == credentials_token(
        "s3://b", {"credential_provider": first}
    )
    assert credentials_token("s3://b", {"credential_provider": first}) != credentials_token(
        "s3://b", {"credential_provider": second}
    )


class Provider:
    """Takes weak references; `Bare` does not."""

    def __call__(self) -> None: ...
    def provide(self) -> None: ...


class Bare:
    __slots__ = ()

    def provide(self) -> None: ...


@pytest.mark.parametrize("make", [Provider, Bare, lambda: Provider().provide, lambda: Bare().provide])
def test_a_provider_at_the_address_of_one_that_is_gone_is_another(make: Callable[[], object]) -> None:
    count = 3 * identity.MOST_STRONG
    tokens = {credentials_token("s3://b", {"credential_provider": make()}) for _ in range(count)}
    assert len(tokens) == count


@pytest.mark.parametrize("kind", [Provider, Bare])
def test_a_provider_is_known_for_as_long_as_it_lives(kind: type[Provider | Bare]) -> None:
    one, other = kind(), kind()
    providers = (one, one, one.provide, one.provide, other.provide, other)
    a, b, c, d, e, f = (credentials_token("s3://b", {"credential_provider": each}) for each in providers)
    assert ((a, c), len({a, c, e, f})) == ((b, d), 4)


def test_a_provider_is_not_kept_alive_by_its_fingerprint() -> None:
    provider = Provider()
    tracked = weakref.ref(provider)
    credentials_token("s3://b", {"credential_provider": provider.provide})
    known = len(identity.known_objects.by_id)
    del provider
    gc.collect()
    assert (tracked(), len(identity.known_objects.by_id) < known) == (None, True)


class Quiet(str):
    """As those that keep passwords out of logs."""

    def __repr__(self) -> str:
        return "***"


@pytest.mark.parametrize(
    "make",
    [
        lambda n: {"timeout": timedelta(seconds=n)},
        lambda n: {"timeout": timedelta(microseconds=n)},
        lambda n: {"default_headers": [("Authorization", f"{n}")]},
        lambda n: {"default_headers": {Quiet(n): "1"}},
        lambda n: {"default_headers": {"Authorization": Quiet(n)}},
    ],
    ids=["seconds", "microseconds", "pairs", "name", "secret"],
)
def test_a_value_that_is_made_anew_counts_by_what_it_is(make: Callable[[int], object]) -> None:
    tokens = [credentials_token("s3://b", {"client_options": make(n)}) for n in (*range(50), *range(50))]
    assert (len(set(tokens)), tokens[:50]) == (50, tokens[50:])


def test_clients_show_nothing(tmp_path: pathlib.Path) -> None:
    client = client_for(parse_url("s3://bucket/x"), storage_options=KEYS)
    assert repr(client) == "Client('s3://bucket')"
    assert "SECRET" not in repr(client.store) + client.token + client.root


@pytest.mark.parametrize(
    ("given", "hint"),
    [
        ({"timeout": 5}, "timeout is given as int: write it as text"),
        ({"timeout": "5"}, "a duration is written with its unit, as in '5s'"),
        ({"client_options": {"connect_timeout": 0.5}}, "connect_timeout is given as float: write it as text"),
        ({"region": 1}, "region is given as int: write it as text"),
        ({"secret_access_key": b"SECRET"}, "secret_access_key is given as bytes: write it as text"),
        ({"headers": {"X-A": 1}}, "headers['X-A'] is given as int: write it as text"),
    ],
    ids=str,
)
def test_an_option_of_another_type_is_named(given: dict[str, Any], hint: str) -> None:
    with pytest.raises(StoreError) as caught:
        build_store(parse_url("s3://b/x"), {**KEYS, **given}, options=Options())
    assert caught.value.hint == hint
    assert "SECRET" not in str(caught.value)


def test_client_options_are_a_mapping() -> None:
    with pytest.raises(StoreError, match="'client_options' is a int, not a mapping"):
        build_store(parse_url("s3://b/x"), {"client_options": 5}, options=Options())


@pytest.mark.parametrize(
    ("url", "key", "hint"),
    [
        ("s3://b", "acces_key_id", "did you mean access_key_id?"),
        ("s3://b", "key", "did you mean access_key_id?"),
        ("s3://b", "anon", "did you mean skip_signature?"),
        ("s3://b", "endpoint_override", "did you mean endpoint?"),
        ("gs://b", "anon", "did you mean skip_signature?"),
        ("gs://b", "key", "the names are obstore's: service_account_path"),
        ("az://b", "acount_name", "did you mean account_name?"),
        ("abfss://b@acc.dfs.core.windows.net", "sas", "the names are obstore's: account_name"),
    ],
)
def test_an_unknown_option_gets_a_suggestion(url: str, key: str, hint: str) -> None:
    with pytest.raises(StoreError) as caught:
        build(url, **{key: "SECRET"})
    assert f"{key!r} is not valid for store" in caught.value.message
    assert (caught.value.hint or "").startswith(hint)
    assert "SECRET" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "key"), [("s3://b", "endpoint"), ("gs://b", "base_url"), ("az://b", "azure_endpoint")]
)
def test_an_endpoint_without_a_scheme_is_refused_before_obstore_panics(url: str, key: str) -> None:
    with pytest.raises(StoreError, match=r"the endpoint '127\.0\.0\.1:9000' is no URL .*http://") as caught:
        build(url, **{key: "127.0.0.1:9000"})
    assert caught.value.path == url


@pytest.mark.parametrize("headers", ["Authorization: SECRET", 5, ["SECRET"], Options()])
@pytest.mark.parametrize("url", ["s3://b", "http://host"])
def test_headers_that_are_no_mapping(url: str, headers: object) -> None:
    kind = type(headers).__name__
    with pytest.raises(StoreError, match=f"storage option 'headers' is a {kind}, not a mapping") as caught:
        build(url, headers=headers)
    assert caught.value.__context__ is None and "SECRET" not in str(caught.value)


def test_an_endpoint_is_called_so_for_google_too() -> None:
    for name in ("endpoint", "Endpoint", "GOOGLE_BASE_URL"):
        inner = build("gs://bucket", **{name: "http://127.0.0.1:4443"}, skip_signature=True).inner
        assert inner.config["base_url"] == "http://127.0.0.1:4443"
        assert inner.client_options["allow_http"] in (True, "true")


def test_googles_endpoint_may_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOOGLE_BASE_URL", "http://127.0.0.1:4443")
    inner = build("gs://bucket", skip_signature=True).inner
    assert inner.client_options["allow_http"] in (True, "true")


@pytest.mark.parametrize("url", ["az://box", "abfs://box", "adl://box"])
def test_azure_without_an_account(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_NAME", raising=False)
    with pytest.raises(StoreError, match="no credentials were found .*account_name and account_key"):
        build(url)


@pytest.mark.parametrize(
    ("url", "prefix"), [("s3://bucket", "aws_"), ("gs://bucket", "google_"), ("az://acc", "azure_")]
)
@pytest.mark.parametrize("spelled", [str.lower, str.upper])
def test_what_concerns_the_client_goes_to_it(url: str, prefix: str, spelled: Callable[[str], str]) -> None:
    # Among the store's own settings obstore would panic over it, and write so to stderr.
    needs = {"s3": {"region": "eu-west-1", **KEYS}, "gs": {}, "az": {"account_name": "acc"}}[url[:2]]
    given = {
        spelled(f"{prefix}timeout"): "5s",
        spelled("user_agent"): "me",
        "client_options": {"timeout": "7s"},
    }
    store = build(url, skip_signature=True, **needs, **given)
    inner = getattr(store, "inner", store)
    assert inner.client_options["user_agent"] == "me"
    assert str(inner.client_options["timeout"]) in ("7s", "0:00:07")  # whoever names the client means it
    assert {"timeout", "user_agent"}.isdisjoint(inner.config)
    assert store.warning is None


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
