"""URLs made like one of obstore's: the same to the letter, or none."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

import obstore
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from obstore.store import S3Store

from accel.io import presigned
from accel.io.presigned import Template, learn_template

# The example in Amazon's documentation, with its key.
HOST = "examplebucket.s3.amazonaws.com"
SECRET = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
SIGNATURE = "aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404"
QUERY = (
    "X-Amz-Algorithm=AWS4-HMAC-SHA256"
    "&X-Amz-Credential=AKIAIOSFODNN7EXAMPLE%2F20130524%2Fus-east-1%2Fs3%2Faws4_request"
    "&X-Amz-Date=20130524T000000Z&X-Amz-Expires=86400&X-Amz-SignedHeaders=host"
)
TARGET = f"/test.txt?{QUERY}&X-Amz-Signature={SIGNATURE}"


def test_the_documented_example() -> None:
    template = learn_template(TARGET, HOST, "test.txt", SECRET)
    assert template is not None
    assert template.target("test.txt") == TARGET
    assert template.target("other.txt") not in (None, TARGET)
    assert SECRET not in repr(template)
    assert SIGNATURE not in repr(template)


UNLIKE = {
    "another key": (TARGET, HOST, "test.txt", SECRET + "x"),
    "another host": (TARGET, "elsewhere.s3.amazonaws.com", "test.txt", SECRET),
    "another object": (TARGET, HOST, "best.txt", SECRET),
    "another signature": (TARGET[:-1] + "5", HOST, "test.txt", SECRET),
    "one parameter more": (
        TARGET.replace("&X-Amz-Sig", "&x-id=GetObject&X-Amz-Sig"),
        HOST,
        "test.txt",
        SECRET,
    ),
    "no query": ("/test.txt", HOST, "test.txt", SECRET),
    "an object that is not plain": (TARGET, HOST, "t est.txt", SECRET),
}


@pytest.mark.parametrize("given", UNLIKE.values(), ids=UNLIKE)
def test_nothing_is_learned_of_what_would_not_be_made_alike(given: tuple[str, str, str, str]) -> None:
    assert learn_template(*given) is None


@pytest.mark.parametrize(
    "path", ["", "/a", "a/", "a//b", ".", "..", "a/../b", "./a", "a b", "a%20b", "ü", "a?b", "a\n"]
)
def test_what_is_not_plain_is_left_to_obstore(path: str) -> None:
    template = learn_template(TARGET, HOST, "test.txt", SECRET)
    assert template is not None
    assert template.target(path) is None


def test_one_that_is_old_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(presigned.time, "monotonic", lambda: now[0])
    template = learn_template(TARGET, HOST, "test.txt", SECRET)
    assert template is not None
    now[0] = 159.0
    assert template.target("test.txt") == TARGET
    now[0] = 160.0
    assert template.target("test.txt") is None


STORES: dict[str, dict[str, Any]] = {
    "by path": {"endpoint": "http://127.0.0.1:9000", "client_options": {"allow_http": True}},
    "by name": {"virtual_hosted_style_request": True},
    "below a prefix": {"prefix": "a=b/c d"},
    "with a session": {"session_token": "T+/=ab"},
}
NAMES = st.from_regex(r"[A-Za-z0-9_=.-]{1,12}(/[A-Za-z0-9_=.-]{1,12}){0,3}", fullmatch=True)


@pytest.mark.parametrize("more", STORES.values(), ids=STORES)
@settings(max_examples=25, deadline=None)
@given(path=NAMES)
def test_what_obstore_makes(more: dict[str, Any], path: str) -> None:
    store = S3Store("bucket", access_key_id="KEY", secret_access_key="S/+x", region="eu-north-1", **more)

    def made(path: str) -> tuple[str, str, str]:
        url = urlsplit(obstore.sign(store, "GET", path, timedelta(minutes=15)))
        return url.netloc, f"{url.path}?{url.query}", url.query.partition("&X-Amz-Date=")[2][:16]

    def learned() -> tuple[Template | None, str]:
        host, target, moment = made("first=1/x.parquet")
        return learn_template(target, host, "first=1/x.parquet", "S/+x"), moment

    template, moment = learned()
    assert template is not None
    own = template.target(path)
    assume(own is not None)  # dots
    _, target, then = made(path)
    assume(then == moment)
    assert own == target
