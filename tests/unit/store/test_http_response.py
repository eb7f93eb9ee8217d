"""HTTP responses: their heads, and the errors that refusals mean."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from obstore.store import S3Store

from accel.errors import ObjectChangedError, StoreError
from accel.metrics import Metrics
from accel.options import Options, Transport
from accel.ranges import ByteRange, Kind, ObjectId, ReadKey, Suffix, Want
from accel.store.client import Client
from accel.store.http_response import ResponseHead, read_answer, read_head
from accel.store.http_store import HttpStore
from accel.store.range_store import RangeStore
from accel.store.request_errors import CREDENTIAL_FAULTS, SuffixUnsupportedError, code_in, quoted
from accel.store.s3_store import DirectStore, adapt
from tests.support.object_server import status


def test_a_plain_head() -> None:
    raw = (
        b'HTTP/1.1 206 Partial Content\r\nServer: x\r\ncontent-LENGTH: 10\r\nETag:  "v1" \r\n'
        b"Content-Range: bytes 0-9/100\r\nX-Amz-Meta-a: content-length: 5"
    )
    headers = {"Content-Length": "10", "ETag": '"v1"', "Content-Range": "bytes 0-9/100"}
    assert read_head(raw) == ResponseHead(206, headers, 10, True)


KEEPS = {
    "1.1": (b"HTTP/1.1 200 OK", True),
    "1.0": (b"HTTP/1.0 200 OK\r\nConnection: keep-alive", False),
    "close": (b"HTTP/1.1 200 OK\r\nConnection: Close", False),
    "close among others": (b"HTTP/1.1 200 OK\r\nConnection: x, close", False),
    "keep-alive": (b"HTTP/1.1 200\r\nConnection: keep-alive", True),
    "two lines": (b"HTTP/1.1 200\r\nConnection: close\r\nConnection: keep-alive", False),
    "two other lines": (b"HTTP/1.1 200\r\nConnection: keep-alive\r\nConnection: x", True),
}


@pytest.mark.parametrize(("raw", "keeps"), KEEPS.values(), ids=KEEPS)
def test_whether_the_connection_is_kept(raw: bytes, keeps: bool) -> None:
    assert read_head(raw).keep_alive is keeps


LENGTHS = {
    "said": (b"Content-Length: 007", 7),
    "not said": (b"Server: x", None),
    "in chunks": (b"Transfer-Encoding: chunked", None),
    "said twice": (b"Content-Length: 7\r\nContent-Length: 7", 7),
    "both": (b"Content-Length: 7\r\nTransfer-Encoding: chunked", None),
}


@pytest.mark.parametrize("line", [b"204 No Content", b"304 Not Modified\r\nContent-Length: 7"])
def test_no_body(line: bytes) -> None:
    assert (read_head(b"HTTP/1.1 " + line).length, read_head(b"HTTP/1.1 " + line).chunked) == (0, False)


@pytest.mark.parametrize("status", [100, 102, 103])
def test_an_interim_head_is_told_apart(status: int) -> None:
    assert read_head(b"HTTP/1.1 %d x" % status).interim
    assert not read_head(b"HTTP/1.1 200 OK").interim


@pytest.mark.parametrize(("line", "length"), LENGTHS.values(), ids=LENGTHS)
def test_the_length_of_the_body(line: bytes, length: int | None) -> None:
    assert read_head(b"HTTP/1.1 206 x\r\n" + line).length == length


REFUSED = {
    "empty": b"",
    "another protocol": b"HTTP/2 200 OK",
    "a version to come": b"HTTP/1.2 200 OK",
    "an interim response that changes the protocol": b"HTTP/1.1 101 Switching Protocols",
    "no status": b"HTTP/1.1 OK",
    "a status of four digits": b"HTTP/1.1 2060 x",
    "no colon": b"HTTP/1.1 200 OK\r\nContent-Length 5",
    "no name": b"HTTP/1.1 200 OK\r\n: 5",
    "a folded line": b"HTTP/1.1 200 OK\r\nETag: a\r\n b: c",
    "a blank before the colon": b"HTTP/1.1 200 OK\r\nContent-Length : 5",
    "a lone line feed": b"HTTP/1.1 200 OK\r\nX: a\nContent-Length: 5",
    "a lone carriage return": b"HTTP/1.1 200 OK\r\nETag: a\rContent-Length: 5",
    "two lengths": b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\ncontent-length: 6",
    "a negative length": b"HTTP/1.1 200 OK\r\nContent-Length: -5",
    "a signed length": b"HTTP/1.1 200 OK\r\nContent-Length: +5",
    "a length of other digits": "HTTP/1.1 200 OK\r\nContent-Length: ٥".encode(),
    "a length without end": b"HTTP/1.1 200 OK\r\nContent-Length: " + b"9" * 20,
    "a body in two encodings": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked",
    "chunks before there were any": b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked",
    "two ranges": b"HTTP/1.1 206 x\r\nContent-Range: bytes 0-1/2\r\nContent-Range: bytes 0-1/3",
}


@pytest.mark.parametrize("raw", REFUSED.values(), ids=REFUSED)
def test_what_is_refused(raw: bytes) -> None:
    with pytest.raises(ValueError, match=r"head|twice|number|encoding"):
        read_head(raw)


PARTS = st.lists(
    st.one_of(
        st.sampled_from(
            [
                b"\r\n",
                b"\n",
                b"\r",
                b":",
                b" ",
                b"ETag",
                b"content-length",
                b"Content-Length: 5",
                b"\r\nEtag: a",
            ]
            + [b"connection:close", b"HTTP/1.1 206 x", b"x", b"\t", b"\x00", b"\xff", b"Content-Range", b"7"]
        ),
        st.binary(max_size=3),
    ),
    max_size=12,
)


@settings(max_examples=400, deadline=None)
@given(PARTS)
def test_whatever_comes_is_read_by_lines_or_refused(parts: list[bytes]) -> None:
    raw = b"HTTP/1.1 206 Partial Content\r\nServer: x\r\n" + b"".join(parts)
    try:
        head = read_head(raw)
    except ValueError:
        return
    lines = [line.partition(b":") for line in raw.split(b"\r\n")[1:]]
    assert not any(b"\n" in line or b"\r" in line for line in raw.split(b"\r\n"))
    assert all(colon and name == name.strip() for name, colon, _ in lines)
    values: dict[str, str] = {}
    for name, _, value in lines:
        key, text = name.lower().decode("latin-1"), value.strip().decode("latin-1")
        values[key] = f"{values[key]}, {text}" if key == "connection" and key in values else text
    assert (
        head.headers.items()
        == {name: values[name.lower()] for name in HEADERS if name.lower() in values}.items()
    )


HEADERS = [
    *("Connection", "Content-Encoding", "Content-Length", "Content-Range"),
    *("ETag", "Location", "Retry-After", "Transfer-Encoding", "x-ms-version"),
]


SIGNATURE = "c5316eaf9da3679c063dbd6aae8ac5524c4ed9fed7cb234e4c49e7f9e4312f5b"


@pytest.fixture(params=["http", "direct", "obstore"])
async def store(request: pytest.FixtureRequest, server: Any) -> RangeStore:
    server.objects["/b/f"] = server.objects["/f"]
    if request.param == "http":
        return HttpStore(server.url, storage_options={}, options=Options())
    given = S3Store(
        "b",
        endpoint=server.url,
        access_key_id="KEY",
        secret_access_key="SECRET",
        region="us-east-1",
        client_options={"allow_http": True},
    )
    return adapt(
        given, Options(transport=Transport.OBSTORE if request.param == "obstore" else Transport.AUTO)
    )


@pytest.mark.parametrize("code", CREDENTIAL_FAULTS)
async def test_a_credentials_fault_is_told_and_taken_for_nothing_else(
    server: Any, store: RangeStore, code: str
) -> None:
    """Status 400 for the end of an object may else mean that the server knows no such ranges."""
    server.always = status(400, f"<Error><Code>{code}</Code><Message>hunter2</Message></Error>".encode())
    client = Client(store, root="s3://b", token="t", options=Options(max_attempts=1))
    with pytest.raises(StoreError) as caught:
        await client.read_tail("f", 10, metrics=Metrics())
    assert f"status 400 [{code}] ({CREDENTIAL_FAULTS[code]})" in str(caught.value)
    assert (caught.value.status, "hunter2" in str(caught.value)) == (400, False)
    assert {(r.method, r.headers["range"]) for r in server.requests} == {("GET", "bytes=-10")}


async def test_any_other_400_may_be_of_the_range(server: Any, store: RangeStore) -> None:
    refused = status(400, b"<Error><Code>InvalidArgument</Code></Error>")
    server.script |= {0: refused, 1: refused} if isinstance(store, DirectStore) else {0: refused}
    server.always = lambda reply: reply.headers.update({"Last-Modified": "Wed, 21 Oct 2015 07:28:00 GMT"})
    client = Client(store, root="s3://b", token="t", options=Options(max_attempts=1))
    tail = await client.read_tail("f", 10, metrics=Metrics())
    assert (bytes(tail.data), tail.range) == (server.objects["/f"][-10:], ByteRange(990, 1000))


ECHOES = {
    "a named one": f"X-Amz-Signature={SIGNATURE}",
    "in a URL": f"http://h/f?X-Amz-Signature={SIGNATURE}",
    "alone": SIGNATURE,
    "an encoded one": f"X-Amz-Signature%3D{SIGNATURE}",
}


@pytest.mark.parametrize("echo", ECHOES.values(), ids=ECHOES)
async def test_what_a_server_gives_back_of_a_signature_is_not_shown(
    server: Any, store: RangeStore, echo: str
) -> None:
    told = []
    for edit in (
        lambda reply: reply.headers.update({"Content-Range": f"bytes 10-19/1000 {echo}"}),
        lambda reply: reply.headers.update({"Content-Encoding": echo}),
        status(403, f"<Error><Code>{echo}</Code></Error>".encode()),
        status(400, f"<Error><Code>{echo}</Code></Error>".encode()),
    ):
        server.always = edit
        try:
            await store.read("f", ByteRange(10, 20))
        except StoreError as error:
            told.append(f"{error} {error!r}")
    assert len(told) >= 3  # obstore passes over an encoding
    assert not any(SIGNATURE[8:20] in text for text in told)


async def test_an_etag_that_is_a_signature_is_not_shown(server: Any, store: RangeStore) -> None:
    server.always = lambda reply: reply.headers.update({"ETag": f'"{SIGNATURE}"'})
    client = Client(store, root="s3://b", token="t", options=Options(max_attempts=1))
    want = Want(ReadKey(Kind.PAGE, 0, 0, 0), ByteRange(0, 10))
    with pytest.raises(ObjectChangedError, match=r'was W/"v1" and is "?c5316ea') as caught:
        await client.read("f", [want], pin=ObjectId("f", 1000, 'W/"v1"'), metrics=Metrics())
    assert SIGNATURE[8:20] not in str(caught.value)


QUOTED = {
    "bytes 0-9223372036854775807/9223372036854775807": "bytes 0-9223372036854775807/9223372036854775807",
    '"9b2cf535f27731c974343645a3985328-12"': '"9b2cf535f27731c974343645a3985328-12"',
    "0.3f2b5c1e-7a8b-4c3d-9e0f-112233445566": "0.3f2b5c1e-7a8b-4c3d-9e0f-112233445566",
    "9" * 60: "9" * 60,
    "Bearer hunter2": "Bearer ***",
    'Credential=K/2026, Signature="abc"': 'Credential=***, Signature="***"',
    '{"session_token": "abc"}': '{"session_token": "***"}',
    "GET http://u:p@h/f?sig=abc&x=y HTTP": "GET http://***@h/f?sig=***&x=*** HTTP",
    "a " + "x" * 2000: "a",
}


@pytest.mark.parametrize(("text", "shown"), QUOTED.items(), ids=[key[:20] for key in QUOTED])
def test_what_is_shown_of_a_text(text: str, shown: str) -> None:
    assert quoted(text, 100) == shown


def test_a_code_is_a_word() -> None:
    assert code_in("<Error><Code>NoSuchKey</Code></Error>") == "NoSuchKey"
    assert code_in("<Error><Code>no such key</Code></Error>") is None
    assert code_in(f"<Code>{SIGNATURE}</Code>") == "c5316eaf***"


# -- fewer bytes than were asked for -------------------------------------------------------------


@pytest.mark.parametrize(
    ("want", "content", "whole", "came"),
    [
        pytest.param(ByteRange(10, 50), "bytes 10-19/100", ByteRange(10, 50), 10, id="a range"),
        pytest.param(ByteRange(10, 50), "bytes 10-19/*", ByteRange(10, 50), 10, id="of unknown size"),
        pytest.param(Suffix(40), "bytes 60-69/100", ByteRange(60, 100), 10, id="the end"),
        pytest.param(Suffix(200), "bytes 0-69/100", ByteRange(0, 100), 70, id="more than there is"),
    ],
)
def test_a_part_of_the_range_is_told(want: Any, content: str, whole: ByteRange, came: int) -> None:
    place = read_answer(206, {"Content-Range": content}, path="f", want=want, max_unranged=0)
    assert (place.range, place.length, place.skip) == (whole, came, 0)


def test_the_last_bytes_alone_of_the_end_are_no_answer() -> None:
    with pytest.raises(SuffixUnsupportedError):
        read_answer(206, {"Content-Range": "bytes 90-99/100"}, path="f", want=Suffix(40), max_unranged=0)
