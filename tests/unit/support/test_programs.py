"""Server programs: on a port of their own, waited for, ended; one that does not come up is told of."""

from __future__ import annotations

import socket
import sys

import pytest

from tests.support.programs import Program

_SERVES = "import os, socket, sys, time; s = socket.create_server(('127.0.0.1', int(sys.argv[1])));"


def _connect(port: int) -> None:
    socket.create_connection(("127.0.0.1", port), 1.0).close()


def test_a_program_answers_until_it_is_ended() -> None:
    ports: list[int] = []

    def command(port: int) -> list[str]:
        ports.append(port)
        return [sys.executable, "-c", f"{_SERVES} time.sleep(60)", str(port)]

    running = Program.start(command, _connect)
    _connect(ports[-1])
    running.end()
    with pytest.raises(OSError, match="refused"):
        _connect(ports[-1])


def test_it_is_given_what_it_is_to_find_in_its_environment() -> None:
    ports: list[int] = []

    def command(port: int) -> list[str]:
        ports.append(port)
        code = f"{_SERVES} s.accept()[0].sendall(os.environ['GREETING'].encode()); time.sleep(60)"
        return [sys.executable, "-c", code, str(port)]

    heard: list[bytes] = []

    def greeted(port: int) -> None:
        with socket.create_connection(("127.0.0.1", port), 5.0) as connection:
            heard.append(connection.recv(100))

    Program.start(command, greeted, environment={"GREETING": "welcome"}).end()
    assert heard == [b"welcome"]


def test_one_that_ends_at_once_is_tried_on_other_ports_and_told_of() -> None:
    ports: list[int] = []

    def command(port: int) -> list[str]:
        ports.append(port)
        return [sys.executable, "-S", "-c", "raise SystemExit(3)"]

    with pytest.raises(RuntimeError, match="did not start"):
        Program.start(command, _connect)
    assert len(ports) == 5
