"""Each fault does what its name says, to the request it was written for and to no other."""

from __future__ import annotations

import asyncio

import pytest

from accel.errors import ObjectChangedError, ObjectNotFoundError, StoreError
from accel.ranges import ByteRange, Suffix
from accel.store.request_errors import IncompleteBodyError
from accel.testing import (
    Attempt,
    CutBody,
    Fault,
    FaultStore,
    OtherVersion,
    ShortBody,
    Stall,
    Status,
    WrongRange,
)
from accel.testing.stores import DictStore, content_etag

A, B = bytes(range(100)), bytes(range(100, 200))
WANT = ByteRange(10, 20)


@pytest.mark.parametrize(
    ("fault", "error", "status", "transient", "retry_after"),
    [
        pytest.param(Status(404), ObjectNotFoundError, 404, False, None, id="404"),
        pytest.param(Status(412), ObjectChangedError, 412, False, None, id="412"),
        pytest.param(Status(403), StoreError, 403, False, None, id="403"),
        pytest.param(Status(429, 0.5), StoreError, 429, True, 0.5, id="429"),
        pytest.param(Status(503, 2.0), StoreError, 503, True, 2.0, id="503"),
    ],
)
async def test_failures(
    fault: Fault, error: type[StoreError], status: int | None, transient: bool, retry_after: float | None
) -> None:
    store = FaultStore(DictStore({"f": A}), [fault])
    with pytest.raises(error) as caught:
        await store.read("f", WANT)
    found = caught.value
    assert (type(found), found.status, found.transient, found.retry_after) == (
        error,
        status,
        transient,
        retry_after,
    )
    assert (await store.read("f", WANT)).data == A[10:20]


async def test_a_cut_body_keeps_what_came() -> None:
    with pytest.raises(IncompleteBodyError) as caught:
        await FaultStore(DictStore({"f": A}), [CutBody(4)]).read("f", WANT)
    found = caught.value
    assert (bytes(found.partial), found.range, found.size, found.etag) == (
        A[10:14],
        WANT,
        100,
        content_etag(A),
    )
    assert found.transient


async def test_short_body_claims_what_it_lacks() -> None:
    payload = await FaultStore(DictStore({"f": A}), [ShortBody(3)]).read("f", WANT)
    assert (bytes(payload.data), payload.range) == (A[10:17], WANT)


async def test_wrong_range_says_what_it_holds() -> None:
    payload = await FaultStore(DictStore({"f": A}), [WrongRange(5)]).read("f", WANT)
    assert (bytes(payload.data), payload.range) == (A[15:25], ByteRange(15, 25))


async def test_stall_outlasts_a_timeout_and_ends_when_cancelled() -> None:
    store = FaultStore(DictStore({"f": A}), [Stall()])
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await store.read("f", WANT)
    assert (await store.read("f", WANT)).data == A[10:20]


async def test_other_version_answers_from_the_other_store() -> None:
    a, b = DictStore({"f": A}), DictStore({"f": B})
    pin = content_etag(A)
    blind = await FaultStore(a, [OtherVersion(b)]).read("f", WANT, if_match=pin)
    assert (blind.data, blind.etag) == (B[10:20], content_etag(B))
    with pytest.raises(ObjectChangedError):
        await FaultStore(a, [OtherVersion(b, honour_if_match=True)]).read("f", WANT, if_match=pin)


async def test_a_script_may_decide_for_each_request() -> None:
    def script(attempt: Attempt) -> Fault | None:
        return Status(404) if attempt.want == Suffix(8) else None

    store = FaultStore(DictStore({"f": A}), script)
    assert (await store.read("f", WANT)).data == A[10:20]
    with pytest.raises(ObjectNotFoundError):
        await store.read("f", Suffix(8))
    assert store.attempts == [Attempt(0, "f", WANT, None), Attempt(1, "f", Suffix(8), None)]
