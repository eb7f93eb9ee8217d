"""Errors of a request name the whole address, and a cancellation that nobody asked for is told as one."""

from __future__ import annotations

import asyncio

import pytest

from accel.errors import AccelError, StoreError
from accel.runtime.tasks import CancellationGuard
from accel.store.location import LOCAL_ROOT
from accel.store.request_errors import ErrorContext


@pytest.mark.parametrize(
    ("root", "path", "named"),
    [
        ("s3://bucket", "a/b", "s3://bucket/a/b"),
        ("store:", "a/b", "a/b"),
        ("", "a/b", "a/b"),
        (LOCAL_ROOT, "tmp/a", "/tmp/a"),
        ("https://host", "a?sig=secret", "https://host/a?sig=***"),
    ],
)
async def test_an_error_names_the_address(root: str, path: str, named: str) -> None:
    error = StoreError("busy", path=path)
    with pytest.raises(StoreError) as caught, ErrorContext(root, path):
        raise error
    assert caught.value is error
    assert error.path == named
    assert "secret" not in str(error)


async def test_what_is_no_error_of_ours_passes() -> None:
    with pytest.raises(ValueError, match="mine"), ErrorContext("s3://bucket", "a"):
        raise ValueError("mine")
    with ErrorContext("s3://bucket", "a"):
        pass


@pytest.mark.parametrize(
    "within", [lambda: ErrorContext("s3://bucket", "a"), CancellationGuard], ids=["naming", "told"]
)
async def test_a_cancellation_that_nobody_asked_for_is_told(within: type[CancellationGuard]) -> None:
    with pytest.raises(AccelError, match="cancelled, and by nobody") as caught, within():
        raise asyncio.CancelledError
    assert caught.value.path == ("s3://bucket/a" if within is not CancellationGuard else None)
    assert caught.value.__suppress_context__


@pytest.mark.parametrize(
    "within", [lambda: ErrorContext("s3://bucket", "a"), CancellationGuard], ids=["naming", "told"]
)
async def test_a_task_that_is_cancelled_ends_so(within: type[CancellationGuard]) -> None:
    async def wait() -> None:
        with within():
            await asyncio.get_running_loop().create_future()

    task = asyncio.create_task(wait())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_one_asked_for_before_is_none_within() -> None:
    async def wait() -> str:
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            with pytest.raises(AccelError, match="by nobody"), CancellationGuard():
                raise asyncio.CancelledError from None
        return "went on"

    task = asyncio.create_task(wait())
    await asyncio.sleep(0)
    task.cancel()
    assert await task == "went on"
