"""obstore's calls are known until its threads have let go of them, however they end."""

from __future__ import annotations

import ast
import asyncio
import gc
import os
import time
from collections.abc import Iterator
from pathlib import Path

import obstore
import pytest
from obstore.store import LocalStore, MemoryStore

import accel
from accel.errors import AccelError, StoreError
from accel.ranges import ByteRange
from accel.store import obstore_store as obstore_chunks
from accel.store import tasks as obstore_calls
from accel.store.obstore_store import ObstoreStore
from accel.store.request_errors import IncompleteBodyError
from accel.store.tasks import TrackedStream, all_released, tracked
from tests.support.object_server import ObjectServer, Reply, s3_at


@pytest.fixture(autouse=True)
def nothing_collects() -> Iterator[None]:
    """What only a collection of cycles would let go of is not let go of by the end of a process."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def soon(seconds: float = 5.0) -> bool:
    patience = time.monotonic() + seconds
    while not all_released():
        if time.monotonic() > patience:
            return False
        time.sleep(0.001)
    return True


def test_a_call_is_known_while_somebody_holds_it() -> None:
    async def one() -> None:
        call: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        assert tracked(call) is call
        assert not all_released()
        del call
        assert all_released()

    asyncio.run(one())


def test_what_was_read_is_let_go_of(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(bytes(100))
    store = ObstoreStore(LocalStore(str(tmp_path)))
    payload = asyncio.run(store.read("x", ByteRange(10, 20)))
    assert bytes(payload.data) == bytes(10)
    assert soon()


def test_a_failure_that_is_kept_keeps_no_call(tmp_path: Path) -> None:
    with pytest.raises(AccelError) as caught:
        asyncio.run(ObstoreStore(LocalStore(str(tmp_path))).read("missing", ByteRange(0, 1)))
    assert soon(), caught.value


@pytest.mark.parametrize("how", ["refused", "given up"])
async def test_a_listing_that_fails_keeps_no_call(
    server: ObjectServer, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    def edit(reply: Reply) -> None:
        reply.status, reply.delay, reply.body = 403, 0.0 if how == "refused" else 0.3, b""

    monkeypatch.setattr(obstore_chunks, "_CHUNK_TIMEOUTS", 1)
    server.always = edit
    with pytest.raises(StoreError) as caught:
        await anext(ObstoreStore(s3_at(server.url), read_timeout=0.1).pages("d"))
    assert ("listed nothing more" in str(caught.value)) == (how == "given up")
    assert await asyncio.to_thread(soon), caught.value


async def test_a_body_that_is_cut_keeps_no_call(server: ObjectServer) -> None:
    def cut(reply: Reply) -> None:
        reply.cut = 5

    server.objects["/b/f"] = bytes(600 * 1024)
    server.always = cut
    store = ObstoreStore(s3_at(server.url))
    for _ in range(2):  # in one piece, and then in parts
        with pytest.raises(IncompleteBodyError) as caught:
            await store.read("f", ByteRange(0, 600 * 1024))
        assert await asyncio.to_thread(soon), caught.value


def test_cancelled_calls_are_known_until_their_threads_have_ended(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(bytes(100))
    store = ObstoreStore(LocalStore(str(tmp_path)))
    known = []

    async def many() -> None:
        reads = [asyncio.ensure_future(store.read("x", ByteRange(0, 1))) for _ in range(20)]
        await asyncio.sleep(0)
        known.append(len(obstore_calls._unfinished_calls))
        for read in reads:
            read.cancel()
        await asyncio.wait(reads)

    asyncio.run(many())
    assert known == [20]
    assert soon()


def test_each_step_of_a_stream_is_watched() -> None:
    store = MemoryStore()
    store.put("x", bytes(range(200)))

    async def parts() -> bytes:
        result = await obstore.get_async(store, "x")
        stream = TrackedStream(result.stream(min_chunk_size=1))
        step = anext(stream)
        assert not all_released()
        taken = bytes(await step)
        del step
        return taken + b"".join([bytes(part) async for part in stream])

    assert asyncio.run(parts()) == bytes(range(200))
    assert soon()


def test_a_fork_knows_nothing_of_its_parents_calls() -> None:
    class Call:
        def __await__(self) -> Iterator[None]:
            yield

    call = tracked(Call())
    child = os.fork()
    if child == 0:
        os._exit(0 if all_released() else 1)
    assert not all_released()
    del call
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def unwatched(source: str) -> list[int]:
    """Lines of asynchronous calls of obstore's that do not go through `tracked` or `TrackedStream`."""
    tree = ast.parse(source)
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    seen = {
        id(inside)
        for call in calls
        if isinstance(call.func, ast.Name) and call.func.id in ("tracked", "TrackedStream")
        for inside in ast.walk(call.args[0])
    }
    return sorted(
        call.lineno
        for call in calls
        if isinstance(call.func, ast.Attribute)
        and (
            (ast.unparse(call.func.value) == "obstore" and call.func.attr.endswith("_async"))
            or call.func.attr in ("bytes_async", "stream", "__anext__")
        )
        and id(call) not in seen
    )


def test_every_call_is_watched() -> None:
    assert unwatched("a = obstore.get_async(s)\nb = tracked(obstore.get_async(s))\nc = r.stream()\n") == [
        1,
        3,
    ]
    users = [
        path
        for path in sorted(Path(accel.__file__).parent.rglob("*.py"))
        if "import obstore\n" in path.read_text()
    ]
    assert len(users) >= 2
    assert {path.name: unwatched(path.read_text()) for path in users} == {path.name: [] for path in users}
