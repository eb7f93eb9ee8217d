"""A forked child of a process that had used accel gets an error at once; one forked before works."""

from __future__ import annotations

import pathlib
import subprocess
import sys

import pytest

PRELUDE = """
import asyncio, multiprocessing, os, sys, threading
from accel.errors import AccelError
from accel.store import io_loop
from accel.store.client import client_for
from accel.store.location import parse_url
from accel.metrics import Metrics

def open_file(store=None):
    url = parse_url("f", in_store=True) if store is not None else parse_url(sys.argv[1] + "/f")
    return client_for(url, store=store), url.path

def blocking(store=None):
    client, path = open_file(store)
    return len(io_loop.run(client.read_tail(path, 5, metrics=Metrics())).data)

def own_loop(store=None):
    client, path = open_file(store)
    return len(asyncio.run(client.read_tail(path, 5, metrics=Metrics())).data)

def bridged(store=None):
    async def main():
        client, path = open_file(store)
        return len((await io_loop.bridge(client.read_tail(path, 5, metrics=Metrics()))).data)
    return asyncio.run(main())

def obstore_store():
    from obstore.store import LocalStore
    return LocalStore(sys.argv[1])

def report(function, *args):
    try:
        return str(function(*args))
    except AccelError as error:
        return "refused" if "spawn or forkserver" in str(error) else repr(error)

def in_child(function, *args):
    read, write = os.pipe()
    sys.stdout.flush()  # else the child says it again when it exits
    child = os.fork()
    if child == 0:
        os.write(write, report(function, *args).encode())
        sys.exit(3)  # runs the exit hooks of the child
    os.close(write)
    said = os.read(read, 1000).decode()
    _, status = os.waitpid(child, 0)
    return said, os.waitstatus_to_exitcode(status)
"""


def outcome(program: str, root: pathlib.Path) -> str:
    (root / "f").write_bytes(bytes(100))
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PRELUDE + program, str(root)],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.stderr == ""
    assert done.returncode == 0
    return done.stdout.strip()


CASES = {
    "blocking, local files": ("blocking()", "blocking"),
    "own loop after blocking": ("blocking()", "own_loop"),
    "bridge after blocking": ("blocking()", "bridged"),
    "blocking, obstore": ("blocking(obstore_store())", "blocking, obstore_store()"),
    "own loop, obstore": ("own_loop(obstore_store())", "own_loop, obstore_store()"),
    "other store after obstore": ("own_loop(obstore_store())", "own_loop"),
}


@pytest.mark.parametrize(("used", "child"), CASES.values(), ids=CASES.keys())
def test_a_child_forked_after_use_is_refused(used: str, child: str, tmp_path: pathlib.Path) -> None:
    program = f"assert {used} == 5\nprint(in_child({child}))\nassert {used} == 5\n"
    assert outcome(program, tmp_path) == "('refused', 3)"


def test_its_own_children_are_refused_too(tmp_path: pathlib.Path) -> None:
    program = "blocking()\nprint(in_child(lambda: in_child(blocking)))\n"
    assert outcome(program, tmp_path) == "(\"('refused', 3)\", 3)"


@pytest.mark.parametrize("store", ["", ", obstore_store()"], ids=["local files", "obstore"])
def test_a_child_forked_before_first_use_works(store: str, tmp_path: pathlib.Path) -> None:
    program = f"print(in_child(blocking{store}))\nprint(in_child(bridged{store}))\nprint(blocking())\n"
    assert outcome(program, tmp_path).splitlines() == ["('5', 3)", "('5', 3)", "5"]


def test_a_fork_while_another_thread_works_does_not_hang(tmp_path: pathlib.Path) -> None:
    program = """
stop = threading.Event()
def busy():
    while not stop.is_set():
        blocking()
thread = threading.Thread(target=busy)
thread.start()
blocking()
print({in_child(blocking) for _ in range(20)})
stop.set()
thread.join()
"""
    assert outcome(program, tmp_path) == "{('refused', 3)}"


def test_what_waits_in_the_parent_is_not_heard_of_in_the_child(tmp_path: pathlib.Path) -> None:
    program = """
begun = threading.Event()
async def wait():
    begun.set()
    try:
        await asyncio.sleep(60)
    finally:
        print("ended by", "the parent" if os.getpid() == parent else "the child", flush=True)
def read():
    try:
        io_loop.run(wait())
    except AccelError:  # the end of the process cancels it
        pass
parent = os.getpid()
threading.Thread(target=read, daemon=True).start()
begun.wait()
print(in_child(blocking), flush=True)
"""
    assert outcome(program, tmp_path) == "('refused', 3)\nended by the parent"


@pytest.mark.parametrize(("method", "said"), [("fork", "refused"), ("spawn", "5")])
def test_multiprocessing(method: str, said: str, tmp_path: pathlib.Path) -> None:
    script = tmp_path / "program.py"
    (tmp_path / "f").write_bytes(bytes(100))
    script.write_text(
        PRELUDE
        + f"""
def main():
    blocking()
    with multiprocessing.get_context({method!r}).Pool(1) as pool:
        print(pool.apply(report, (blocking,)))

if __name__ == "__main__":
    main()
"""
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(script), str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.stdout, done.returncode) == (f"{said}\n", 0)
