"""Stores and credentials by the names that people have: `~`, r2://, hf://, connection strings, emulators."""

from __future__ import annotations

import asyncio
import pathlib
import ssl
from collections.abc import AsyncIterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import trustme

import accel
from accel.errors import StoreError
from accel.options import Options
from accel.store.identity import credentials_token
from accel.store.location import parse_url
from accel.store.storage_options import build_store
from tests.support.object_server import ObjectServer, server

__all__ = ["server"]

VARIABLES = (
    *("R2_ACCOUNT_ID", "R2_ACCESS_KEY_ID", "R2_SECRET_ACCESS_KEY", "STORAGE_EMULATOR_HOST", "HF_TOKEN"),
    *("AWS_CA_BUNDLE", "SSL_CERT_FILE", "SSL_CERT_DIR"),
    *("HF_ENDPOINT", "AZURE_STORAGE_CONNECTION_STRING", "AWS_ENDPOINT_URL", "AWS_REGION"),
)


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


def config_of(url: str, storage_options: dict[str, Any] | None = None) -> dict[str, str]:
    store: Any = build_store(parse_url(url), storage_options, options=Options())
    return {str(name): str(value) for name, value in dict(store.inner.config).items()}


def test_the_home_directory(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    pq.write_table(pa.table({"a": [1]}), tmp_path / "f.parquet")
    assert accel.scan("~/f.parquet").count_rows() == 1
    assert accel.scan("~/*.parquet").count_rows() == 1
    accel.write_table(pa.table({"a": [1, 2]}), "~/g.parquet")
    assert accel.scan(["~/f.parquet", "~/g.parquet"]).count_rows() == 3
    assert parse_url("a~/f").path.endswith("a~/f")


def test_r2(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = {"access_key_id": "KEY", "secret_access_key": "SECRET"}
    config = config_of("r2://lake/a/b.parquet", {"account_id": "acc", **keys})
    assert config["endpoint"] == "https://acc.r2.cloudflarestorage.com"
    assert (config["bucket"], config["region"], config["access_key_id"]) == ("lake", "auto", "KEY")
    with pytest.raises(StoreError, match="r2://lake: r2:// does not say whose bucket it is"):
        config_of("r2://lake/b.parquet", keys)
    for name, value in {"ACCOUNT_ID": "env", "ACCESS_KEY_ID": "K2", "SECRET_ACCESS_KEY": "S2"}.items():
        monkeypatch.setenv(f"R2_{name}", value)
    config = config_of("r2://lake/b.parquet")
    assert (config["endpoint"], config["access_key_id"]) == ("https://env.r2.cloudflarestorage.com", "K2")
    assert (
        config_of("r2://lake/b", {"endpoint": "http://127.0.0.1:9", **keys})["endpoint"]
        == "http://127.0.0.1:9"
    )


async def test_r2_is_read(server: ObjectServer) -> None:
    server.objects["/lake/f.parquet"] = _parquet()
    options = {"endpoint": server.url, "access_key_id": "KEY", "secret_access_key": "SECRET"}
    scan = accel.scan("r2://lake/f.parquet", "a = 3", storage_options=options, cache=None)
    assert (await scan.to_table_async())["a"].to_pylist() == [3]


async def test_hugging_face(server: ObjectServer, monkeypatch: pytest.MonkeyPatch) -> None:
    path = "/datasets/owner/name/resolve/main/data/f%20g.parquet"
    server.objects[path] = _parquet()
    server.objects[path.replace("main", "v1.0")] = _parquet()
    monkeypatch.setenv("HF_ENDPOINT", server.url)
    for url in (
        "hf://datasets/owner/name/data/f g.parquet",
        "hf://datasets/owner/name@v1.0/data/f g.parquet",
    ):
        assert (await accel.scan(url, "a = 3", cache=None).to_table_async()).num_rows == 1
    assert not any("authorization" in request.headers for request in server.requests)
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    await accel.scan("hf://datasets/owner/name/data/f g.parquet", cache=None).to_table_async()
    assert server.requests[-1].headers["authorization"] == "Bearer hf_secret"


def test_the_hub_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    location = parse_url("hf://datasets/a/b/c/d.parquet")
    assert location.url == "https://huggingface.co/datasets/a/b/resolve/main/c/d.parquet"
    for wrong in ("hf://datasets/a/b", "hf://models/a/b/c", "hf://a/b/c.parquet"):
        with pytest.raises(StoreError, match="this names no file of the hub"):
            parse_url(wrong)
    with pytest.raises(StoreError, match="the hub lists no files here"):
        parse_url("hf://datasets/a/b/*.parquet")


async def test_the_token_of_the_hub_goes_to_no_other_server(
    server: ObjectServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.objects["/f.parquet"] = _parquet()
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    assert await accel.scan(f"{server.url}/f.parquet", cache=None).count_rows_async() == 10
    assert not any("authorization" in request.headers for request in server.requests)


CONNECTION = "DefaultEndpointsProtocol=https;AccountName=acc;AccountKey=a2V5;EndpointSuffix=core.windows.net"


def test_connection_strings_of_azure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", CONNECTION)
    config = config_of("az://box/f.parquet")
    assert (config["account_name"], config["account_key"]) == ("acc", "a2V5")
    other = {"account_name": "own", "account_key": "b3du"}
    assert config_of("az://box/f.parquet", other)["account_name"] == "own"
    given = {
        "connection_string": "BlobEndpoint=http://127.0.0.1:10000/dev;SharedAccessSignature=sv=1&sig=x;AccountName=dev"
    }
    config = config_of("az://box/f.parquet", given)
    assert (config["endpoint"], config["account_name"]) == ("http://127.0.0.1:10000/dev", "dev")
    china = CONNECTION.replace("core.windows.net", "core.chinacloudapi.cn")
    assert (
        config_of("az://b/f", {"connection_string": china})["endpoint"]
        == "https://acc.blob.core.chinacloudapi.cn"
    )
    assert (
        config_of("az://b/f", {"connection_string": "UseDevelopmentStorage=true"})["use_emulator"] == "true"
    )
    with pytest.raises(StoreError, match="names no account") as caught:
        config_of("az://b/f", {"connection_string": "AccountKey=c2VjcmV0"})
    assert "c2VjcmV0" not in str(caught.value)


@pytest.mark.parametrize("spelled", ["{}", "http://{}"])
async def test_the_emulator_of_google(
    spelled: str, server: ObjectServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.objects["/box/f%2Eparquet"] = _parquet()
    server.always = lambda reply: reply.headers.update({"Last-Modified": "Mon, 01 Jan 2024 00:00:00 GMT"})
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", spelled.format(server.url.removeprefix("http://")))
    found = await accel.scan("gs://box/f.parquet", "a = 3", cache=None).to_table_async()
    assert found["a"].to_pylist() == [3]
    assert not any("authorization" in request.headers for request in server.requests)


@pytest.mark.parametrize(
    "name", ["R2_SECRET_ACCESS_KEY", "STORAGE_EMULATOR_HOST", "HF_TOKEN", "AZURE_STORAGE_CONNECTION_STRING"]
)
def test_what_the_environment_says_is_part_of_the_keys_of_caches(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = credentials_token("gs://box", None)
    monkeypatch.setenv(name, "another")
    assert credentials_token("gs://box", None) != before


def _parquet(rows: int = 10) -> bytes:
    out = pa.BufferOutputStream()
    pq.write_table(pa.table({"a": list(range(rows))}), out)
    return out.getvalue().to_pybytes()


# -- certificates ------------------------------------------------------------------------------


@pytest.fixture
async def trusted(tmp_path: pathlib.Path) -> AsyncIterator[tuple[ObjectServer, str]]:
    """A server over TLS whose authority the system does not know, and the file of that authority."""
    authority = trustme.CA()
    bundle = tmp_path / "authority.pem"
    authority.cert_pem.write_to_path(str(bundle))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("localhost").configure_cert(context)
    it = ObjectServer(objects={"/box/f.parquet": _parquet(600_000), "/f.parquet": _parquet(600_000)})
    tasks: set[asyncio.Task[None]] = set()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(it.serve(reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    listening = await asyncio.start_server(accept, "127.0.0.1", 0, ssl=context)
    it.url = f"https://localhost:{listening.sockets[0].getsockname()[1]}"
    yield it, str(bundle)
    listening.close()
    for task in list(tasks):
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def count(kind: str, url: str, **storage_options: Any) -> int:
    options = accel.Options(max_attempts=1)
    if kind == "s3":
        keys = {"access_key_id": "KEY", "secret_access_key": "SECRET", "region": "us-east-1", "endpoint": url}
        asked = accel.scan(
            "s3://box/f.parquet",
            "a >= 0",
            storage_options={**keys, **storage_options},
            cache=None,
            options=options,
        )
    else:
        asked = accel.scan(
            f"{url}/f.parquet", "a >= 0", storage_options=storage_options or None, cache=None, options=options
        )
    return (await asked.to_table_async()).num_rows


@pytest.mark.parametrize("kind", ["s3", "https"])
async def test_a_bundle_of_authorities(kind: str, trusted: tuple[ObjectServer, str]) -> None:
    server, bundle = trusted
    with pytest.raises(StoreError, match="certificate"):
        await count(kind, server.url)
    assert await count(kind, server.url, ca_bundle=bundle) == 600_000
    assert await count(kind, server.url, verify=bundle) == 600_000
    with pytest.raises(StoreError, match=r"the authorities in .*none.pem cannot be read"):
        await count(kind, server.url, ca_bundle=f"{bundle}.none.pem")


async def test_the_bundle_of_the_environment(
    trusted: tuple[ObjectServer, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    server, bundle = trusted
    monkeypatch.setenv("AWS_CA_BUNDLE", bundle)
    assert await count("s3", server.url) == 600_000
    with pytest.raises(StoreError, match="certificate"):
        await count("https", server.url)


@pytest.mark.parametrize("kind", ["s3", "https"])
async def test_certificates_that_are_not_verified_are_warned_of(
    kind: str, trusted: tuple[ObjectServer, str]
) -> None:
    server, _ = trusted
    with pytest.warns(UserWarning, match="verify=False: whoever answers for"):
        assert await count(kind, server.url, verify=False) == 600_000


def test_other_clouds_are_told_of_the_environment() -> None:
    with pytest.raises(StoreError, match="SSL_CERT_FILE"):
        build_store(parse_url("gs://box/f"), {"ca_bundle": "x.pem"}, options=Options())
