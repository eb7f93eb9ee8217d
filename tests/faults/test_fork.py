"""A forked child makes itself a new runtime, and leaves that of its parent alone, which goes on."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import os
import pathlib
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import AsyncIterator

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import trustme

from tests.support.object_server import ObjectServer

PRELUDE = """
import asyncio, gc, multiprocessing, os, sys, threading, time
from accel.errors import AccelError
from accel.options import Options
from accel.runtime import io_loop
from accel.store.clients import client_for
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

def s3_store(**given):
    from obstore.store import S3Store
    keys = given or {"access_key_id": "KEY", "secret_access_key": "SECRET"}
    options = {"allow_http": True} if sys.argv[1].startswith("http:") else {}
    return S3Store("b", endpoint=sys.argv[1], region="us-east-1", client_options=options, **keys)

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
        gc.collect()
        sys.exit(3)  # runs the exit hooks of the child
    os.close(write)
    said = os.read(read, 1000).decode()
    _, status = os.waitpid(child, 0)
    return said, os.waitstatus_to_exitcode(status)
"""


def run(program: str, *arguments: object, timeout: float = 60, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PRELUDE + program, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
        env={**os.environ, **environment},
    )
    assert done.stderr == ""
    assert done.returncode == 0
    return done.stdout.strip()


def outcome(program: str, root: pathlib.Path) -> str:
    (root / "f").write_bytes(bytes(100))
    return run(program, root)


CASES = {
    "blocking, local files": ("blocking()", "blocking"),
    "own loop after blocking": ("blocking()", "own_loop"),
    "bridge after blocking": ("blocking()", "bridged"),
    "other store after obstore": ("own_loop(obstore_store())", "own_loop"),
}


@pytest.mark.parametrize(("used", "child"), CASES.values(), ids=CASES.keys())
def test_a_child_forked_after_use_reads(used: str, child: str, tmp_path: pathlib.Path) -> None:
    program = f"assert {used} == 5\nprint(in_child({child}))\nassert {used} == 5\n"
    assert outcome(program, tmp_path) == "('5', 3)"


@pytest.mark.parametrize("face", ["blocking", "own_loop", "bridged"])
def test_a_child_of_a_parent_that_used_obstore_is_told_so_by_obstore(
    face: str, tmp_path: pathlib.Path
) -> None:
    program = f"store = obstore_store()\nassert {face}(store) == 5\nprint(in_child({face}, store))\n"
    program += f"assert {face}(store) == 5\n"
    assert outcome(program, tmp_path) == "('refused', 3)"


def test_children_of_children_read_and_are_refused_alike(tmp_path: pathlib.Path) -> None:
    program = """
store = obstore_store()
blocking(), blocking(store)
print(in_child(lambda: (blocking(), in_child(lambda: (blocking(), in_child(blocking))))))
print(in_child(lambda: in_child(blocking, store)))
"""
    nested = '("(5, (\\"(5, (\'5\', 3))\\", 3))", 3)'
    said = outcome(program, tmp_path).splitlines()
    assert said[0].count("5") == 3 and said[0].count("refused") == 0, (said, nested)
    assert said[1] == "(\"('refused', 3)\", 3)"


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
print({in_child(blocking) for _ in range(12)})
stop.set()
thread.join()
"""
    assert outcome(program, tmp_path) == "{('5', 3)}"


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
    assert outcome(program, tmp_path) == "('5', 3)\nended by the parent"


def test_locks_of_other_threads_are_free_in_the_child(tmp_path: pathlib.Path) -> None:
    program = """
from accel.runtime.forks import lock_over_forks
lock = lock_over_forks()
def hold(seconds):
    with lock:
        held.set()
        time.sleep(seconds)
for seconds in (0.05, 30):
    held = threading.Event()
    threading.Thread(target=hold, args=(seconds,), daemon=True).start()
    held.wait()
    print(in_child(lambda: lock.acquire(timeout=0)))
"""
    assert outcome(program, tmp_path).splitlines() == ["('True', 3)", "('True', 3)"]


@pytest.fixture
async def served(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> AsyncIterator[ObjectServer]:
    """A server of `/f` and `/b/f`, over TLS where the parameter says so."""
    it = ObjectServer(objects={"/f": bytes(1000), "/b/f": bytes(1000)})
    context = None
    if request.param == "https":
        authority = trustme.CA()
        authority.cert_pem.write_to_path(str(tmp_path / "authority.pem"))
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        authority.issue_cert("localhost").configure_cert(context)
    tasks: set[asyncio.Task[None]] = set()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(it.serve(reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    listening = await asyncio.start_server(accept, "127.0.0.1", 0, ssl=context)
    it.url = f"{request.param}://localhost:{listening.sockets[0].getsockname()[1]}"
    yield it
    listening.close()
    for task in list(tasks):
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.parametrize("served", ["http", "https"], indirect=True)
@pytest.mark.parametrize("store", ["", "s3_store()"], ids=["a web server", "S3"])
async def test_connections_stay_with_the_parent(
    served: ObjectServer, store: str, tmp_path: pathlib.Path
) -> None:
    """Each of both children opens a connection, and the parent goes on over its own."""
    program = f"""
given = [{store}]
print(blocking(*given), in_child(blocking, *given), blocking(*given), in_child(blocking, *given), blocking(*given))
"""
    trusted = {"SSL_CERT_FILE": str(tmp_path / "authority.pem")} if served.url.startswith("https") else {}
    said = await asyncio.to_thread(run, program, served.url, **trusted)
    assert said == "5 ('5', 3) 5 ('5', 3) 5"
    assert (served.connections, len(served.requests)) == (3, 5)


@pytest.mark.parametrize("way", ["Popen(preexec_fn=)", "fork"])
def test_a_number_that_was_a_closed_sockets_stays_with_the_file_that_has_it(
    way: str, tmp_path: pathlib.Path
) -> None:
    """A transport that something refers to outlives its socket, and the next pipe gets the socket's number.

    `Popen(preexec_fn=)` runs what is registered for forks in the child; so pyspark starts its JVM, which
    ends when its standard input does.
    """
    program = """
kept = []
async def talk():
    server = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0)
    for _ in range(8):
        _, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        kept.append(writer.transport)
    for each in kept:
        each.abort()
    server.close()
    await asyncio.sleep(0.1)
io_loop.run(talk())
"""
    started = """
import subprocess
pipe = subprocess.PIPE
program = subprocess.Popen(["cat"], stdin=pipe, stdout=pipe, preexec_fn=lambda: None)
print(program.communicate(b"through", timeout=20)[0].decode())
"""
    forked = """
pipes = [os.pipe() for _ in range(4)]
def through():
    for number, (read, write) in enumerate(pipes):
        os.write(write, bytes([number]))
        assert os.read(read, 1) == bytes([number])
    return "through"
print(in_child(through)[0])
"""
    assert run(program + (forked if way == "fork" else started), tmp_path) == "through"


@pytest.mark.parametrize("served", ["http"], indirect=True)
async def test_children_sign_by_a_provider_and_refuse_what_needs_obstore(served: ObjectServer) -> None:
    program = """
def provide():
    return {"access_key_id": "KEY", "secret_access_key": "SECRET", "expires_at": None}
async def provide_async():
    return provide()
plain, waiting = s3_store(credential_provider=provide), s3_store(credential_provider=provide_async)
print(blocking(plain), blocking(waiting))
print(in_child(blocking, plain), in_child(blocking, waiting))
def write():
    async def parts():
        yield b"x"
    client, _ = open_file(plain)
    return io_loop.run(client.store.write("g", parts(), size=1))
print(in_child(write))
"""
    said = await asyncio.to_thread(run, program, served.url)
    assert said.splitlines() == ["5 5", "('5', 3) ('refused', 3)", "('refused', 3)"]


@pytest.fixture
def flights(tmp_path: pathlib.Path) -> pathlib.Path:
    """Four files of 1,000 rows each, whose `n` are 0 to 3,999."""
    for part in range(4):
        numbers = list(range(part * 1000, (part + 1) * 1000))
        pq.write_table(pa.table({"n": numbers}), tmp_path / f"{part}.parquet", row_group_size=250)
    return tmp_path


SCANS = """
import accel
scan = accel.scan(sys.argv[1], "n >= 100", cache=accel.Cache())
def total(low=100):
    return accel.scan(sys.argv[1], f"n >= {low}", columns=["n"], cache=cache).to_table()["n"].to_pylist()
cache = accel.Cache()
"""


def test_a_cache_that_the_parent_filled_serves_the_child(flights: pathlib.Path) -> None:
    program = (
        SCANS
        + """
assert len(total()) == 3900
before = cache.stats()
def again():
    rows = len(total(200))
    after = cache.stats()
    return rows, after.entries == before.entries, after.hits > before.hits
print(in_child(again))
"""
    )
    assert run(program, flights) == "('(3800, True, True)', 3)"


def test_scans_under_way_in_the_parent_end_there_and_the_same_scan_runs_in_children(
    flights: pathlib.Path,
) -> None:
    program = (
        SCANS
        + """
stop = threading.Event()
wrong = []
def busy():
    while not stop.is_set():
        if scan.count_rows() != 3900 or len(total()) != 3900:
            wrong.append(1)
threads = [threading.Thread(target=busy) for _ in range(3)]
for thread in threads:
    thread.start()
print({in_child(lambda: (scan.count_rows(), len(total()))) for _ in range(6)})
stop.set()
for thread in threads:
    thread.join()
print(wrong)
"""
    )
    assert run(program, flights) == "{('(3900, 3900)', 3)}\n[]"


WORKERS = """
import concurrent.futures
def share(worker, of=2):
    # What a map-style or iterable data set does in a worker of PyTorch's DataLoader, which forks after the first
    # batches were read in the parent.
    tasks = accel.plan(sys.argv[1], cache=cache).tasks[worker::of]
    return sum(batch.num_rows for batch in accel.scan(tasks, cache=cache))
def main(method):
    assert share(0, 1) == 4000
    context = multiprocessing.get_context(method)
    with context.Pool(2) as pool:
        print(sum(pool.map(share, range(2))))
    with concurrent.futures.ProcessPoolExecutor(2, mp_context=context) as pool:
        print(sum(pool.map(share, range(2))))
    said = context.Queue()
    def feed(worker):
        said.put(share(worker))
    if method == "fork":
        processes = [context.Process(target=feed, args=(i,), daemon=True) for i in range(2)]
        for process in processes:
            process.start()
        print(said.get(timeout=30) + said.get(timeout=30))
        for process in processes:
            process.join()
    assert share(0, 1) == 4000
"""


def test_multiprocessing(flights: pathlib.Path) -> None:
    """Pools and processes, as a DataLoader has them; the queue hands over what its workers read."""
    program = SCANS + WORKERS + "main('fork')\n"
    assert run(program, flights).split() == ["4000"] * 3


APP = """
import json, os, sys, threading
import accel
CACHE = accel.Cache()
ROWS = accel.scan({root!r}, "n >= 100", cache=CACHE).count_rows()  # as a warm-up does
PARENT = os.getpid()
def app(environ, start):
    found = accel.scan({root!r}, "n >= 100", cache=CACHE).count_rows()
    start("200 OK", [("Content-Type", "application/json")])
    return [json.dumps([ROWS, found, os.getpid() != PARENT]).encode()]
"""


def test_gunicorn_preload(flights: pathlib.Path) -> None:
    """The application reads when it is loaded, in the arbiter, and then in each forked worker."""
    pytest.importorskip("gunicorn")
    (flights / "_served.py").write_text(APP.format(root=str(flights)))
    listening = flights / "_socket"
    command = ["-m", "gunicorn", "--preload", "--workers", "2", "--bind", f"unix:{listening}", "_served:app"]
    log = flights / "_log"
    with open(log, "wb") as errors:
        serving = subprocess.Popen(
            [sys.executable, *command], cwd=flights, stderr=errors, env={**os.environ, **_on_path()}
        )
    try:
        said = [_ask(str(listening), log, until=time.monotonic() + 60) for _ in range(4)]
    finally:
        serving.terminate()
        serving.wait(20)
    assert said == [b"[3900, 3900, true]"] * 4, log.read_text()


def _on_path() -> dict[str, str]:
    return {"PYTHONPATH": os.pathsep.join(sys.path)}


def _ask(path: str, log: pathlib.Path, *, until: float) -> bytes:
    while True:
        with contextlib.closing(http.client.HTTPConnection("app")) as connection:
            connection.sock = socket.socket(socket.AF_UNIX)
            connection.sock.settimeout(20)
            try:
                connection.sock.connect(path)
                connection.request("GET", "/")
                return connection.getresponse().read()
            except (FileNotFoundError, ConnectionRefusedError):
                if time.monotonic() > until:
                    raise AssertionError(log.read_text()) from None
        time.sleep(0.1)


TASKS = """
import os
import celery
import accel
ROWS = accel.scan({root!r}, "n >= 100").count_rows()
PARENT = os.getpid()
app = celery.Celery("tasks", broker="filesystem://", backend="file://{work}")
app.conf.broker_transport_options = {{
    name: "{work}" for name in ("data_folder_in", "data_folder_out", "control_folder")
}}
@app.task
def count(low):
    return accel.scan({root!r}, f"n >= {{low}}").count_rows(), os.getpid() != PARENT
"""


def test_celery_prefork(flights: pathlib.Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """The tasks' module reads when the worker imports it, and its tasks read in processes forked from that."""
    pytest.importorskip("celery")
    work = tmp_path_factory.mktemp("celery")
    (work / "_tasks.py").write_text(TASKS.format(root=str(flights), work=str(work)))
    log = work / "_log"
    environment = {**os.environ, **_on_path()}
    command = ["-m", "celery", "-A", "_tasks", "worker", "--pool", "prefork", "-c", "2", "-l", "warning"]
    command += ["--without-gossip", "--without-mingle", "--without-heartbeat"]
    with open(log, "wb") as errors:
        working = subprocess.Popen(
            [sys.executable, *command], cwd=work, stdout=errors, stderr=errors, env=environment
        )
    ask = "from _tasks import count\nsent = [count.delay(low) for low in (0, 100, 3000)]\n"
    ask += "print([each.get(timeout=60) for each in sent])\n"
    try:
        asked = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", ask],
            cwd=work,
            env=environment,
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
        )
    finally:
        working.terminate()
        working.wait(20)
    assert asked.stdout == "[[4000, True], [3900, True], [1000, True]]\n", (asked.stderr, log.read_text())
