"""Credentials of profiles of AWS: found, refreshed, kept apart, and hidden."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from accel.errors import AccelError, StoreError
from accel.options import Options, Transport
from accel.ranges import ByteRange
from accel.store import aws_profile
from accel.store.clients import client_for
from accel.store.identity import credentials_token, lasts
from accel.store.location import parse_url
from accel.store.range_store import RangeStore
from accel.store.storage_options import build_store

FIRST = ByteRange(0, 4)
DATA = b"data of an object"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home without credentials, and an environment without any."""
    for name in list(os.environ):
        if name.startswith("AWS_") or name.lower() in ("http_proxy", "https_proxy", "all_proxy"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".aws").mkdir()
    return tmp_path


@pytest.fixture
def write(home: Path) -> Callable[..., None]:
    """Writes ~/.aws/config and ~/.aws/credentials."""

    def write(config: str = "", credentials: str = "") -> None:
        for name, text in (("config", config), ("credentials", credentials)):
            path = home / ".aws" / name
            path.unlink(missing_ok=True)
            if text:
                path.write_text(text)

    return write


def keys(name: str, number: int = 1) -> str:
    return f"[{name}]\naws_access_key_id = KEY{number}\naws_secret_access_key = SECRET{number}\n"


def build(*, transport: Transport = Transport.AUTO, **options: Any) -> RangeStore:
    return build_store(parse_url("s3://b"), options, options=Options(transport=transport))


def config_of(store: RangeStore) -> dict[str, Any]:
    return dict(store.inner.config)  # type: ignore[attr-defined]


def used_keys(server: Any) -> list[str]:
    """The key that each request was signed with, "" for an anonymous one."""
    found = []
    for request in server.requests:
        text = unquote(request.target) + request.headers.get("authorization", "")
        match = re.search(r"Credential=(\w+)/", text)
        found.append(match[1] if match else "")
    return found


@pytest.mark.parametrize("transport", [Transport.AUTO, Transport.OBSTORE])
@pytest.mark.parametrize(
    "named_by", ["nothing", "option", "variable", "an older variable", "option over variable"]
)
async def test_the_profile_that_is_used(
    server: Any,
    write: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    named_by: str,
    transport: Transport,
) -> None:
    write(credentials=keys("default", 1) + keys("other", 2) + keys("third", 3))
    options = {"endpoint": server.url, "region": "us-east-1"}
    if named_by == "option":
        options["profile"] = "other"
    elif named_by == "option over variable":
        options["profile"] = "other"
        monkeypatch.setenv("AWS_PROFILE", "third")
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "ENVIRONMENT")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "SECRET")
    elif named_by != "nothing":
        monkeypatch.setenv("AWS_PROFILE" if named_by == "variable" else "AWS_DEFAULT_PROFILE", "other")
    server.objects["/b/f"] = DATA
    payload = await build(transport=transport, **options).read("f", FIRST)
    assert bytes(payload.data) == DATA[:4]
    assert used_keys(server) == ["KEY1" if named_by == "nothing" else "KEY2"]


@pytest.mark.parametrize(
    ("options", "variables", "key"),
    [
        ({"access_key_id": "OPTION", "secret_access_key": "S"}, {"AWS_PROFILE": "other"}, "OPTION"),
        ({"fs.s3a.access.key": "OPTION", "fs.s3a.secret.key": "S"}, {}, "OPTION"),
        ({}, {"AWS_ACCESS_KEY_ID": "ENV", "AWS_SECRET_ACCESS_KEY": "S", "AWS_PROFILE": "other"}, "ENV"),
        ({"skip_signature": True}, {}, ""),
        ({}, {"AWS_SKIP_SIGNATURE": "true"}, ""),
        (
            {
                "credential_provider": lambda: {
                    "access_key_id": "MINE",
                    "secret_access_key": "S",
                    "expires_at": None,
                }
            },
            {},
            "MINE",
        ),
    ],
    ids=["options", "hadoop's options", "environment", "anonymous", "anonymous by variable", "provider"],
)
async def test_what_is_given_comes_before_a_profile(
    server: Any,
    write: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    options: dict[str, Any],
    variables: dict[str, str],
    key: str,
) -> None:
    write(credentials=keys("default", 1) + keys("other", 2))
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    server.objects["/b/f"] = DATA
    await build(endpoint=server.url, region="us-east-1", **options).read("f", FIRST)
    assert used_keys(server) == [key]


def test_region_and_endpoint_of_a_profile(
    write: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    write(
        config=(
            "[default]\nregion = eu-north-1\n"
            "[profile own]\nregion = eu-west-3\nendpoint_url = http://127.0.0.1:9\nservices = mine\n"
            "[services mine]\ns3 =\n  endpoint_url = http://127.0.0.1:7\n"
            "[profile plain]\nendpoint_url = http://127.0.0.1:9\n"
        ),
        credentials=keys("default") + keys("own") + keys("plain"),
    )
    assert config_of(build())["region"] == "eu-north-1"
    own = config_of(build(profile="own"))
    assert (own["region"], own["endpoint"]) == ("eu-west-3", "http://127.0.0.1:7")
    assert config_of(build(profile="plain"))["endpoint"] == "http://127.0.0.1:9"
    given = config_of(build(profile="own", region="r", endpoint="http://127.0.0.1:5"))
    assert (given["region"], given["endpoint"]) == ("r", "http://127.0.0.1:5")
    monkeypatch.setenv("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "true")
    assert "endpoint" not in config_of(build(profile="own"))
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.setenv(name, "from-environment")
        assert config_of(build(profile="own")).get("region") in (None, "from-environment")
        monkeypatch.delenv(name)


def test_other_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A profile with no more than a region leaves the credentials to the machine."""
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "elsewhere"))
    (tmp_path / "elsewhere").write_text("[default]\nregion = ap-south-1\n")
    store = build()
    assert config_of(store)["region"] == "ap-south-1"
    assert repr(store.inner.credential_provider) == "MachineCredentials()"  # type: ignore[attr-defined]


PROCESS = """
import datetime as dt, json, pathlib, sys
counter = pathlib.Path(__file__).with_suffix(".count")
count = int(counter.read_text()) + 1 if counter.exists() else 1
counter.write_text(str(count))
seconds = json.loads(pathlib.Path(__file__).with_suffix(".json").read_text())
left = seconds[min(count, len(seconds)) - 1]
if left is None:
    sys.exit("SECRETPRINTED")
end = dt.datetime.now(dt.timezone.utc) + dt.timedelta(seconds=left)
print(json.dumps({"Version": 1, "AccessKeyId": f"KEY{count}", "SecretAccessKey": "S", "SessionToken": "T",
                  "Expiration": end.isoformat()}))
"""


@pytest.fixture
def process(home: Path, write: Callable[..., None]) -> Callable[..., Callable[[], int]]:
    """Makes a `credential_process` whose n-th answer ends after so many seconds; None: it fails. Returns its
    count of calls."""

    def make(*seconds: float | None) -> Callable[[], int]:
        script = home / "process.py"
        script.write_text(PROCESS)
        script.with_suffix(".json").write_text(json.dumps(seconds))
        write(config=f"[profile made]\ncredential_process = {sys.executable} {script}\n")
        counter = script.with_suffix(".count")
        return lambda: int(counter.read_text()) if counter.exists() else 0

    return make


@pytest.mark.parametrize("transport", [Transport.AUTO, Transport.OBSTORE])
async def test_credentials_are_refreshed_before_they_end(
    server: Any, process: Callable[..., Callable[[], int]], transport: Transport
) -> None:
    # The second answer is botocore's own look at the first, which it finds to end too soon.
    count = process(100, 100, 3600)
    server.objects["/b/f"] = server.objects["/b/g"] = DATA
    store = build(transport=transport, profile="made", endpoint=server.url, region="us-east-1")
    assert count() == 0  # a scan that is not run starts nothing
    await store.read("f", FIRST)
    assert count() == 2
    # obstore asks no more than ten times a second.
    threading.Event().wait(0.15)
    await store.read("g", FIRST)
    threading.Event().wait(0.15)
    await store.read("g", FIRST)
    assert used_keys(server) == ["KEY2", "KEY3", "KEY3"]
    assert count() == 3


async def test_a_url_is_not_used_after_its_credentials(
    server: Any, process: Callable[..., Callable[[], int]]
) -> None:
    process(8, 8, 3600)
    server.objects["/b/f"] = DATA
    store = build(profile="made", endpoint=server.url, region="us-east-1")
    await store.read("f", FIRST)
    threading.Event().wait(0.15)
    await store.read("f", FIRST)
    assert used_keys(server) == ["KEY2", "KEY3"]


async def test_what_cannot_be_refreshed_is_used_to_its_end(
    server: Any, process: Callable[..., Callable[[], int]]
) -> None:
    process(100, 100, None)
    server.objects["/b/f"] = server.objects["/b/g"] = DATA
    store = build(profile="made", endpoint=server.url, region="us-east-1")
    await store.read("f", FIRST)
    threading.Event().wait(0.15)
    await store.read("g", FIRST)
    assert used_keys(server) == ["KEY2", "KEY2"]


async def test_stores_share_what_a_program_gave(
    server: Any, process: Callable[..., Callable[[], int]]
) -> None:
    count = process(3600)
    server.objects["/b/f"] = DATA
    for timeout in ("7s", "8s"):
        store = build(profile="made", endpoint=server.url, region="us-east-1", read_timeout=timeout)
        await store.read("f", FIRST)
    assert used_keys(server) == ["KEY1", "KEY1"]
    assert count() == 1


async def read_and_fail(**options: Any) -> StoreError:
    with pytest.raises(StoreError) as caught:
        await build(endpoint="http://127.0.0.1:9", region="us-east-1", **options).read("f", FIRST)
    assert not caught.value.transient
    return caught.value


async def test_a_process_that_fails_says_so_and_is_not_quoted(
    process: Callable[..., Callable[[], int]], home: Path
) -> None:
    count = process(None)
    error = await read_and_fail(profile="made")
    assert error.message == "the profile 'made' gave no credentials: its credential_process failed"
    assert str(home / ".aws" / "config") in str(error.hint)
    assert "SECRETPRINTED" not in str(error) + repr(error) + repr(error.__cause__) + repr(error.__context__)
    assert count() == 1  # the second way of reading does not try again


@pytest.mark.parametrize("program", ["/no/such/program", f"{sys.executable} -c print('SECRETPRINTED')"])
async def test_a_process_that_is_none(write: Callable[..., None], program: str) -> None:
    write(config=f"[profile made]\ncredential_process = {program}\n")
    error = await read_and_fail(profile="made")
    assert error.message.startswith("the profile 'made' gave no credentials: ")
    assert "SECRETPRINTED" not in str(error)


async def test_a_process_that_hangs(write: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aws_profile, "PATIENCE", 0.3)
    write(config="[profile slow]\ncredential_process = sleep 3\n")
    error = await read_and_fail(profile="slow")
    assert error.message == "the profile 'slow' gave no credentials in 0.3 seconds"


class Aws(BaseHTTPRequestHandler):
    """STS and the portal of SSO."""

    asked: list[str]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"])).decode()
        key = re.search(r"Credential=(\w+)/", self.headers["authorization"])
        assert key is not None
        self.asked.append(f"{key[1]} {re.search('Action=([A-Za-z]+)', body)[1]}")  # type: ignore[index]
        if "refused" in body:
            self._send(
                403,
                "<ErrorResponse><Error><Code>SignatureDoesNotMatch</Code><Message>SECRETQUOTED</Message></Error>"
                "</ErrorResponse>",
            )
            return
        end = (datetime.now(UTC) + timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
        self._send(
            200,
            '<AssumeRoleResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleResult><Credentials>'
            f"<AccessKeyId>ROLEKEY</AccessKeyId><SecretAccessKey>S</SecretAccessKey><SessionToken>T</SessionToken>"
            f"<Expiration>{end}</Expiration></Credentials></AssumeRoleResult></AssumeRoleResponse>",
        )

    def do_GET(self) -> None:
        self.asked.append(self.path)
        end = int((datetime.now(UTC) + timedelta(hours=1)).timestamp() * 1000)
        role = {"accessKeyId": "SSOKEY", "secretAccessKey": "S", "sessionToken": "T", "expiration": end}
        self._send(200, json.dumps({"roleCredentials": role}))

    def _send(self, code: int, text: str) -> None:
        self.send_response(code)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """A server of STS and SSO; the list of what it was asked."""
    Aws.asked = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), Aws)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    for service in ("STS", "SSO"):
        monkeypatch.setenv(f"AWS_ENDPOINT_URL_{service}", f"http://127.0.0.1:{server.server_port}")
    yield Aws.asked
    server.shutdown()
    thread.join()
    server.server_close()


ROLE = "role_arn = arn:aws:iam::123456789012:role/reader\nregion = us-east-1\n"


async def test_a_role_is_assumed(server: Any, write: Callable[..., None], aws: list[str]) -> None:
    write(config=f"[profile role]\nsource_profile = base\n{ROLE}", credentials=keys("base"))
    server.objects["/b/f"] = server.objects["/b/g"] = DATA
    store = build(profile="role", endpoint=server.url)
    for path in ("f", "g"):
        await store.read(path, FIRST)
    assert used_keys(server) == ["ROLEKEY", "ROLEKEY"]
    assert aws == ["KEY1 AssumeRole"]


async def test_a_role_that_is_refused(write: Callable[..., None], aws: list[str]) -> None:
    write(
        config="[profile role]\nsource_profile = base\nregion = us-east-1\n"
        "role_arn = arn:aws:iam::123456789012:role/refused\n",
        credentials=keys("base"),
    )
    error = await read_and_fail(profile="role")
    assert error.message == (
        "the profile 'role' gave no credentials: AssumeRole was refused: SignatureDoesNotMatch"
    )
    assert aws == ["KEY1 AssumeRole"]


def test_a_role_whose_code_would_be_asked_for(write: Callable[..., None]) -> None:
    write(
        config=f"[profile outer]\nsource_profile = inner\n{ROLE}"
        f"[profile inner]\nsource_profile = base\nmfa_serial = arn:aws:iam::1:mfa/me\n{ROLE}",
        credentials=keys("base"),
    )
    with pytest.raises(StoreError, match="'inner' asks for the code of an MFA device"):
        build(profile="outer")


SSO = (
    "[profile sso]\nsso_start_url = https://example.awsapps.com/start\nsso_region = us-east-1\n"
    "sso_account_id = 123456789012\nsso_role_name = reader\nregion = us-east-1\n"
)


async def test_sso(
    server: Any, write: Callable[..., None], aws: list[str], home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(aws_profile, "FAILED_FOR", 0.0)
    write(config=SSO)
    cache = home / ".aws/sso/cache"
    # botocore takes it from the home that was there when it was imported.
    monkeypatch.setattr("botocore.credentials.SSOProvider._SSO_TOKEN_CACHE_DIR", str(cache))
    error = await read_and_fail(profile="sso")
    assert error.message == "the profile 'sso' gave no credentials: its session has ended, or never began"
    assert error.hint == "run `aws sso login --profile sso`"
    assert aws == []
    # As after the login: botocore names the file by the hash of the start URL.
    cache.mkdir(parents=True)
    end = (datetime.now(UTC) + timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
    name = hashlib.sha1(b"https://example.awsapps.com/start").hexdigest()
    (cache / f"{name}.json").write_text(json.dumps({"accessToken": "T", "expiresAt": end}))
    server.objects["/b/f"] = DATA
    await build(profile="sso", endpoint=server.url).read("f", FIRST)
    assert used_keys(server) == ["SSOKEY"]
    assert aws == ["/federation/credentials?role_name=reader&account_id=123456789012"]


def test_a_profile_that_there_is_not(
    write: Callable[..., None], home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(credentials=keys("default") + keys("other"))
    credentials, config = home / ".aws/credentials", home / ".aws/config"
    expected = (
        f"s3://b: there is no profile 'none' (looked in {credentials} and {config} (no such file): "
        "there are default, other)"
    )
    with pytest.raises(StoreError) as caught:
        build(profile="none")
    assert str(caught.value) == expected
    monkeypatch.setenv("AWS_PROFILE", "none")
    with pytest.raises(StoreError) as caught:
        build()
    assert str(caught.value) == expected


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"profile": "default", "access_key_id": "K"}, "'profile' is given beside 'access_key_id'"),
        ({"profile": "default", "skip_signature": True}, "'profile' is given beside 'skip_signature'"),
        ({"profile": ""}, "'profile' is not a name"),
        ({"profile": 7}, "'profile' is not a name"),
        ({"profile": "bare"}, "the profile 'bare' has no credentials"),
        ({"profile_name": "default"}, "did you mean profile?"),
    ],
    ids=["beside keys", "beside anonymity", "empty", "a number", "without credentials", "boto3's name"],
)
def test_refused(write: Callable[..., None], options: dict[str, Any], message: str) -> None:
    write(config="[profile bare]\nregion = r\n", credentials=keys("default"))
    with pytest.raises(StoreError) as caught:
        build(**options)
    assert message in str(caught.value)


def test_a_file_that_is_no_configuration(write: Callable[..., None], home: Path) -> None:
    write(config="no section SECRET\n")
    with pytest.raises(StoreError, match="the profile cannot be read: ") as caught:
        build()
    assert str(home / ".aws/config") in str(caught.value)
    assert "SECRET" not in str(caught.value)


def test_without_botocore(write: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    write(credentials=keys("default"))
    monkeypatch.setitem(sys.modules, "botocore", None)
    assert build(region="r").inner.credential_provider is None  # type: ignore[attr-defined]
    with pytest.raises(StoreError, match=r"botocore, which is not installed .*accel-parquet\[aws\]"):
        build(profile="default")


def test_the_places_that_were_searched(
    write: Callable[..., None], home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin = "looked in `storage_options`; in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY of the environment; in the profile "
    end = "; at the service for the cloud's own machines"
    credentials, config = home / ".aws/credentials", home / ".aws/config"
    assert aws_profile.searched_places() == (
        f"{begin}'default' of {credentials} (no such file) and {config} (no such file){end}"
    )
    write(config="[default]\nregion = r\n")
    monkeypatch.setenv("AWS_PROFILE", "mine")
    assert aws_profile.searched_places() == (
        f"{begin}'mine' of {credentials} (no such file) and {config}, which has none{end}"
    )
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    assert "which only botocore reads (pip install 'accel-parquet[aws]' brings it)" in (
        aws_profile.searched_places()
    )


def test_nobody_reads_what_another_profile_fetched(
    write: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    write(credentials=keys("default", 1) + keys("other", 2))
    token = credentials_token("s3://b", {})
    others = {credentials_token("s3://b", {"profile": name}) for name in ("default", "other")}
    monkeypatch.setenv("AWS_PROFILE", "other")
    others.add(credentials_token("s3://b", {}))
    monkeypatch.delenv("AWS_PROFILE")
    given = credentials_token("s3://b", {"access_key_id": "K", "secret_access_key": "S"})
    assert len(others | {token, given}) == 5
    assert lasts(token)
    assert credentials_token("s3://b", {}) == token
    client = client_for("s3://b", storage_options={"region": "r"})
    assert client_for("s3://b", storage_options={"region": "r"}) is client
    # The same profile is another's after this.
    write(credentials=keys("default", 3) + keys("other", 2))
    assert credentials_token("s3://b", {}) not in {token, *others}
    assert client_for("s3://b", storage_options={"region": "r"}) is not client
    # What has credentials of its own does not depend on them.
    assert credentials_token("s3://b", {"access_key_id": "K", "secret_access_key": "S"}) == given


def test_no_secret_is_shown(write: Callable[..., None]) -> None:
    write(credentials=keys("default"))
    store = build(region="r")
    provider = store.inner.credential_provider  # type: ignore[attr-defined]
    assert repr(provider) == "ProfileCredentials('default')"
    assert "SECRET" not in repr(store) + repr(provider) + repr(store.inner)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("variables", "files", "imported"),
    [
        ({}, False, False),
        ({"AWS_ACCESS_KEY_ID": "K", "AWS_SECRET_ACCESS_KEY": "S"}, True, False),
        ({"AWS_WEB_IDENTITY_TOKEN_FILE": "/x", "AWS_ROLE_ARN": "arn"}, True, False),
        ({}, True, True),
    ],
    ids=["nothing", "keys of the environment", "a token of the cluster", "a profile"],
)
def test_botocore_is_imported_only_for_a_profile(
    write: Callable[..., None], variables: dict[str, str], files: bool, imported: bool
) -> None:
    if files:
        write(credentials=keys("default"))
    program = (
        "import sys; from accel.store.clients import client_for; client_for('s3://b', storage_options={'region': 'r'});"
        "client_for('file://'); print('botocore' in sys.modules)"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout.strip() == str(imported)


def test_errors_of_a_profile_are_errors_of_accel() -> None:
    assert issubclass(StoreError, AccelError)
    assert aws_profile.ProfileError.parse(str(aws_profile.ProfileError("message", "hint"))) == (
        "message",
        "hint",
    )
