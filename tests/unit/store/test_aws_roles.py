"""Credentials of the roles of clusters (STS), containers (ECS, EKS) and machines (EC2), from servers as they have
them."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import re
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

from accel.errors import StoreError
from accel.options import Options
from accel.ranges import ByteRange
from accel.store import aws_profile
from accel.store.location import parse_url
from accel.store.range_store import RangeStore
from accel.store.storage_options import build_store

FIRST = ByteRange(0, 4)
DATA = b"data of an object"
IMDS_ROLES = "/latest/meta-data/iam/security-credentials/"


class Roles(BaseHTTPRequestHandler):
    """STS, the service of a container, and that of a machine. The keys are numbered."""

    asked: list[str]
    seconds: float
    fails: str

    def do_PUT(self) -> None:
        self._note()
        self._send(200, "SESSION")

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"])).decode()
        self._note(re.search(r"WebIdentityToken=([^&]*)", body)[1])  # type: ignore[index]
        if self.fails == "refuses":
            self._send(
                403,
                "<ErrorResponse><Error><Code>AccessDenied</Code><Message>Not authorized</Message></Error>"
                "</ErrorResponse>",
            )
            return
        self._send(
            200,
            '<AssumeRoleWithWebIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/">'
            "<AssumeRoleWithWebIdentityResult><Credentials>"
            f"<AccessKeyId>KEY{len(self.asked)}</AccessKeyId><SecretAccessKey>S</SecretAccessKey>"
            f"<SessionToken>T</SessionToken><Expiration>{self._end()}</Expiration>"
            "</Credentials></AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>",
        )

    def do_GET(self) -> None:
        self._note(self.headers.get("authorization") or self.headers.get("x-aws-ec2-metadata-token"))
        if self.fails == "refuses":
            self._send(500, "SECRETQUOTED")
            return
        if self.path == IMDS_ROLES:
            self._send(200, "reader")
            return
        role = {
            "Code": "Success",
            "AccessKeyId": f"KEY{len(self.asked)}",
            "SecretAccessKey": "S",
            "Token": "T",
            "Expiration": self._end(),
        }
        self._send(200, json.dumps(role))

    def _note(self, shown: str | None = None) -> None:
        self.asked.append(f"{self.command} {self.path} {shown or ''}".rstrip())
        if self.fails == "is silent":
            time.sleep(6)

    def _end(self) -> str:
        return (datetime.now(UTC) + timedelta(seconds=self.seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")

    def _send(self, code: int, text: str) -> None:
        try:
            self.send_response(code)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text.encode())
        except ConnectionError:
            self.close_connection = True

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def roles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The URL of the servers, in an environment without credentials."""
    for name in list(os.environ):
        if name.startswith("AWS_") or name.lower() in ("http_proxy", "https_proxy", "all_proxy"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    Roles.asked, Roles.seconds, Roles.fails = [], 3600, ""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Roles)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def environment(kind: str, roles: str, tmp_path: Path) -> dict[str, str]:
    """What a cluster, a container or a machine sets."""
    token = tmp_path / "token"
    token.write_text("sesame")
    return {
        "web identity": {
            "AWS_WEB_IDENTITY_TOKEN_FILE": str(token),
            "AWS_ROLE_ARN": "arn:aws:iam::123456789012:role/reader",
            "AWS_ENDPOINT_URL_STS": roles,
        },
        "ECS": {
            "AWS_CONTAINER_CREDENTIALS_FULL_URI": f"{roles}/credentials",
            "AWS_CONTAINER_AUTHORIZATION_TOKEN": "sesame",
        },
        "EKS": {
            "AWS_CONTAINER_CREDENTIALS_FULL_URI": f"{roles}/credentials",
            "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": str(token),
        },
        "EC2": {"AWS_EC2_METADATA_SERVICE_ENDPOINT": roles},
    }[kind]


ONCE = {
    "web identity": ["POST / sesame"],
    "ECS": ["GET /credentials sesame"],
    "EKS": ["GET /credentials sesame"],
    "EC2": ["PUT /latest/api/token", f"GET {IMDS_ROLES} SESSION", f"GET {IMDS_ROLES}reader SESSION"],
}
kinds = pytest.mark.parametrize("kind", ONCE)


@pytest.fixture
def store(kind: str, roles: str, server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RangeStore:
    for name, value in environment(kind, roles, tmp_path).items():
        monkeypatch.setenv(name, value)
    return store_of(server)


def store_of(server: Any) -> RangeStore:
    server.objects.update({f"/b/{path}": DATA for path in "fg"})
    options = {"endpoint": server.url, "region": "us-east-1"}
    return build_store(parse_url("s3://b"), options, options=Options())


def used_keys(server: Any) -> list[str]:
    """The key that each request was signed with."""
    texts = [unquote(each.target) + each.headers.get("authorization", "") for each in server.requests]
    return re.findall(r"Credential=(\w+)/", " ".join(texts))


async def read_and_fail(store: RangeStore) -> StoreError:
    with pytest.raises(StoreError) as caught:
        await store.read("f", FIRST)
    return caught.value


@kinds
async def test_the_role_is_asked_for_once(kind: str, store: RangeStore, server: Any) -> None:
    for path in "fg":
        assert bytes((await store.read(path, FIRST)).data) == DATA[:4]
    assert Roles.asked == ONCE[kind]
    assert used_keys(server) == [f"KEY{len(ONCE[kind])}"] * 2


# Of a machine's keys that are about to end botocore moves the end: its service may be behind.
@pytest.mark.parametrize("kind", [kind for kind in ONCE if kind != "EC2"])
async def test_keys_are_renewed_before_they_end(kind: str, store: RangeStore, server: Any) -> None:
    Roles.seconds = 60
    await store.read("f", FIRST)
    await asyncio.sleep(0.3)  # obstore asks at most every tenth of a second
    await store.read("g", FIRST)
    assert len(Roles.asked) >= 2 * len(ONCE[kind])
    first, second = used_keys(server)
    assert first != second


@pytest.mark.parametrize("kind", ["EC2"])
async def test_a_silent_machine_is_none(store: RangeStore) -> None:
    """As of a laptop whose network swallows what is sent to the address of the service."""
    Roles.fails = "is silent"
    started = time.monotonic()
    error = await read_and_fail(store)
    assert error.message == aws_profile.NO_CREDENTIALS
    assert "at the service for the cloud's own machines" in (error.hint or "")
    # Two requests of a second each, where a read may take thirty.
    assert time.monotonic() - started < 15
    assert Roles.asked == ["PUT /latest/api/token", f"GET {IMDS_ROLES}"]


@pytest.mark.parametrize("kind", ["EC2"])
async def test_a_machine_whose_service_is_off_is_not_asked(
    store: RangeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    assert (await read_and_fail(store)).message == aws_profile.NO_CREDENTIALS
    assert Roles.asked == []


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("web identity", "AssumeRoleWithWebIdentity was refused: AccessDenied Not authorized"),
        ("ECS", "its service in the container failed"),
    ],
)
async def test_a_refusal_says_why_and_shows_no_secret(store: RangeStore, why: str) -> None:
    Roles.fails = "refuses"
    error = await read_and_fail(store)
    assert error.message == f"the role of this cluster, container or machine gave no credentials: {why}"
    assert "AWS_ROLE_ARN" in (error.hint or "")
    server = urlsplit(os.environ.get("AWS_ENDPOINT_URL_STS", "")).netloc
    assert (error.hint or "").startswith(f"it was asked of {server}; " if server else "see the variables")
    assert not re.search(
        "SECRETQUOTED|sesame", f"{error} {error!r} {error.__cause__!r} {error.__context__!r}"
    )


@pytest.mark.parametrize("kind", ["web identity"])
async def test_a_token_that_is_not_there(
    store: RangeStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(tmp_path / "none"))
    error = await read_and_fail(store)
    assert error.message.endswith(
        "the file of AWS_WEB_IDENTITY_TOKEN_FILE cannot be read: No such file or directory"
    )
    assert Roles.asked == []


@pytest.mark.parametrize("kind", ["web identity"])
async def test_a_server_that_gives_no_answer_in_time(
    store: RangeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(aws_profile, "PATIENCE", 3)
    Roles.fails = "is silent"
    error = await read_and_fail(store)
    assert error.message == (
        "the role of this cluster, container or machine gave no credentials in 3 seconds"
    )
    server = urlsplit(os.environ["AWS_ENDPOINT_URL_STS"]).netloc
    assert (error.hint or "").startswith(f"it was asked of {server}; STS does not answer")


async def test_obstore_finds_them_without_botocore(
    roles: str, server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *given: None if name == "botocore" else real(name, *given)
    )
    monkeypatch.setenv("AWS_METADATA_ENDPOINT", roles)
    assert bytes((await store_of(server).read("f", FIRST)).data) == DATA[:4]
    assert used_keys(server) == ["KEY3"]


async def test_the_variable_of_obstore_is_its_own(
    roles: str, server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_METADATA_ENDPOINT", roles)
    assert bytes((await store_of(server).read("f", FIRST)).data) == DATA[:4]
    assert used_keys(server) == ["KEY3"]
