"""Bytes of a server, cut anywhere and spoilt anyhow: an answer comes as it was sent, or not at all."""

from __future__ import annotations

import asyncio
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from accel.store.http_connection import Connection, LostError, Reply, Request, new_scratch

ROOM = 300_000


class Wire:
    """A transport that goes nowhere."""

    def __init__(self) -> None:
        self.closed = False
        self.sent = b""

    def write(self, data: bytes) -> None:
        self.sent += data

    def abort(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed

    def get_extra_info(self, name: str) -> None:
        """It has no socket."""


def feed(connection: Connection, wire: Wire, data: bytes, cuts: list[int]) -> None:
    """What the event loop does: parts as long as the cuts say, into whatever room the protocol gives."""
    ends = [*sorted({cut for cut in cuts if cut < len(data)}), len(data)]
    start = 0
    for end in ends:
        while start < end and not wire.closed:
            room = connection.get_buffer(-1)
            assert len(room) > 0
            came = min(len(room), end - start)
            room[:came] = data[start : start + came]
            connection.buffer_updated(came)
            start += came


async def converse(answers: list[tuple[bytes, list[int]]]) -> tuple[list[Reply | LostError], Wire]:
    """Ask once for each of these answers, as long as the connection lasts, which then ends."""
    wire, lost = Wire(), []
    connection = Connection(new_scratch(), on_lost=lost.append)
    connection.connection_made(wire)  # type: ignore[arg-type]
    outcomes: list[Reply | LostError] = []
    for data, cuts in answers:
        if not connection.usable:
            break
        asking = asyncio.ensure_future(connection.ask(Request(b"GET"), ROOM))
        await asyncio.sleep(0)
        feed(connection, wire, data, cuts)
        if not asking.done():
            await asyncio.sleep(0)
        if not asking.done():
            wire.closed = True
            connection.connection_lost(None)
        try:
            outcomes.append(await asking)
        except LostError as error:
            outcomes.append(error)
    return outcomes, wire


names = st.sampled_from(["Server", "x-amz-id-2", "ETag", "Content-Range", "Date", "Retry-After"])
values = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=30).map(str.strip)
bodies = st.one_of(
    st.binary(max_size=200), st.integers(1, 200_000).map(lambda n: bytes(n % 251 for n in range(n)))
)
cuts = st.lists(st.integers(0, 200_500), max_size=12)


interim = st.sampled_from([b"", b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 103 x\r\nETag: y\r\n\r\n" * 2])


@st.composite
def responses(draw: Any) -> tuple[bytes, int, dict[str, str], bytes]:
    status = draw(st.sampled_from([200, 206, 403, 404, 503]))
    headers = draw(st.dictionaries(names, values, max_size=5))
    body = draw(bodies) if status == 206 else draw(st.binary(max_size=200))
    lines = [f"HTTP/1.1 {status} Words", *(f"{name}: {value}" for name, value in headers.items())]
    lines.insert(draw(st.integers(1, len(lines))), f"content-length:{len(body)}")
    return draw(interim) + "\r\n".join((*lines, "", "")).encode() + body, status, headers, body


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(responses(), cuts), min_size=1, max_size=4))
def test_whole_answers_come_as_they_were_sent_however_they_are_cut(sent: list[Any]) -> None:
    outcomes, wire = asyncio.run(converse([(response[0], at) for response, at in sent]))
    assert not wire.closed
    for outcome, ((_, status, headers, body), _) in zip(outcomes, sent, strict=True):
        assert isinstance(outcome, Reply)
        assert (outcome.head.status, bytes(outcome.body), outcome.cut) == (status, body, None)
        for name in ("ETag", "Content-Range", "Retry-After"):
            assert outcome.head.headers.get(name) == headers.get(name)


@settings(max_examples=300, deadline=None)
@given(response=responses(), at=cuts, data=st.data())
def test_a_cut_answer_is_a_part_of_it_and_ends_the_connection(
    response: Any, at: list[int], data: Any
) -> None:
    raw, status, _, body = response
    end = data.draw(st.integers(0, len(raw) - 1)) if len(raw) else 0
    (outcome, *_), wire = asyncio.run(converse([(raw[:end], at), (raw, at)]))
    head = len(raw) - len(body)
    assert wire.closed
    if end < head:
        assert isinstance(outcome, LostError)
        assert outcome.begun is (end > 0)
    else:
        assert isinstance(outcome, Reply)
        assert outcome.cut is not None
        assert (outcome.head.status, bytes(outcome.body)) == (status, body[: end - head])


@settings(max_examples=500, deadline=None)
@given(response=responses(), at=cuts, data=st.data())
def test_spoilt_answers_end_in_a_reply_or_a_loss(response: Any, at: list[int], data: Any) -> None:
    raw = bytearray(response[0])
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, min(len(raw) - 1, 400)))
        raw[place] = data.draw(st.integers(0, 255))
    good = b"HTTP/1.1 206 x\r\nContent-Length: 4\r\n\r\ngood"
    outcomes, _ = asyncio.run(converse([(bytes(raw), at), (good, [])]))
    first = outcomes[0]
    if isinstance(first, Reply):
        assert len(first.body) <= ROOM
        assert first.cut is not None or first.head.length in (len(first.body), None) or not len(first.body)
    for later in outcomes[1:]:
        # Only a connection with nothing left in it is used again.
        assert isinstance(later, Reply)
        assert bytes(later.body) == b"good"
