"""Whoever opens many connections at once is not measured by those that the proxy leaves unanswered."""

from __future__ import annotations

import os
import select
import signal
import socket
import time
from contextlib import ExitStack
from urllib.parse import urlsplit

import pytest

from accel.testing.proxy import ProxyProcess
from accel.testing.s3 import S3Admin

AT_ONCE = 512


@pytest.mark.parametrize("keep", [None, S3Admin("http://127.0.0.1:9")], ids=["relay", "frontage"])
def test_many_connections_at_once_come_about(keep: S3Admin | None) -> None:
    """While the process does not even run: it is the system that answers them, as many as it was told."""
    with ProxyProcess("http://127.0.0.1:9", keep=keep) as proxy, ExitStack() as stack:
        process = proxy._process
        assert process is not None
        port = urlsplit(proxy.url).port
        os.kill(process.pid, signal.SIGSTOP)
        stack.callback(os.kill, process.pid, signal.SIGCONT)
        waiting, poll = {}, select.poll()
        for _ in range(AT_ONCE):
            one = stack.enter_context(socket.socket())
            one.setblocking(False)
            one.connect_ex(("127.0.0.1", port))
            poll.register(one, select.POLLOUT)
            waiting[one.fileno()] = one
        # One that is not answered is asked for again after a second.
        deadline = time.monotonic() + 0.8
        while waiting and (left := deadline - time.monotonic()) > 0:
            for number, _ in poll.poll(left * 1000):
                poll.unregister(waiting.pop(number))
        assert not waiting, f"{len(waiting)} of {AT_ONCE}"
