"""The addresses of servers, looked up by threads of their own.

A lookup blocks, for half a minute where nobody answers it. Among the threads that an event loop has for all blocking
work, those of a few dead names would keep every other store waiting.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import threading
from concurrent.futures import Future
from typing import Any, NamedTuple, TypeAlias

__all__ = ["resolve"]

_MOST = 64
"""Names looked up at a time: each has a thread, as the living must not wait for the dead."""

AddressInfo: TypeAlias = tuple[Any, ...]


class _Question(NamedTuple):
    host: str
    port: int
    family: int
    flags: int


class _State:
    """All that a fork makes worthless."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.asked: dict[_Question, Future[list[AddressInfo]]] = {}


_state = _State()


async def resolve(host: str, port: int, *, family: int = 0, flags: int = 0) -> list[AddressInfo]:
    """What `socket.getaddrinfo` says of a TCP server; asked once for all that want to know the same meanwhile.

    Being cancelled leaves the lookup to its thread, which nothing waits for: not even the end of the process.

    Raises
    ------
    OSError, ValueError
        As `getaddrinfo` does; also where too many lookups are under way, which may pass.
    """
    loop = asyncio.get_running_loop()
    answer = _ask(_Question(host, port, family, flags))
    told: asyncio.Future[None] = loop.create_future()

    def deliver(_: object) -> None:
        with contextlib.suppress(RuntimeError):  # the caller's loop was closed meanwhile
            loop.call_soon_threadsafe(settle)

    def settle() -> None:
        if not told.done():
            told.set_result(None)

    answer.add_done_callback(deliver)
    await told
    return answer.result()


def _ask(question: _Question) -> Future[list[AddressInfo]]:
    with _state.lock:
        answer = _state.asked.get(question)
        if answer is not None:
            return answer
        if len(_state.asked) >= _MOST:
            raise socket.gaierror(socket.EAI_AGAIN, "too many names are being looked up")
        answer = Future()
        # Daemons: at exit Python would wait for all others.
        thread = threading.Thread(target=_look_up, args=(question, answer), name="accel-name", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            raise socket.gaierror(socket.EAI_AGAIN, str(error)) from None
        _state.asked[question] = answer
        return answer


def _look_up(question: _Question, answer: Future[list[AddressInfo]]) -> None:
    found: list[AddressInfo] = []
    failure: BaseException | None = None
    try:
        found = socket.getaddrinfo(
            question.host, question.port, question.family, socket.SOCK_STREAM, 0, question.flags
        )
    except BaseException as error:  # noqa: BLE001 (of whoever asks)
        failure = error
    with _state.lock:
        _state.asked.pop(question, None)
    if failure is None:
        answer.set_result(found)
    else:
        answer.set_exception(failure)


os.register_at_fork(after_in_child=_state.__init__)  # type: ignore[misc]
