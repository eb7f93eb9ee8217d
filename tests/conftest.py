"""What all tests share: an S3 server, a proxy before it, and the sizes of the generated cases."""

from __future__ import annotations

import gc
import math
import os
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from hypothesis import HealthCheck, settings

from accel.store import writes
from tests.support import dropped_generators, older_pyarrow, steady_disk
from tests.support.cassandra import Cassandra, find_cassandra
from tests.support.postgres import Postgres, find_postgres
from tests.support.proxy import Proxy
from tests.support.redis_server import RedisServer, find_redis
from tests.support.s3 import Minio, Moto, S3Admin, find_minio, install_minio

# Tests start hundreds of processes, each of which would compile the modules of accel that it loads. A
# container's setting, which is made for an image that stays small, would also have each run compile all
# tests.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# The workers of a local Spark take the first Python they find unless told; that one may lack pyarrow.
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)

older_pyarrow.install()
steady_disk.install()

_SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]
settings.register_profile(
    "default", max_examples=40, derandomize=True, deadline=None, suppress_health_check=_SLOW
)
settings.register_profile(
    "large", max_examples=3000, deadline=None, suppress_health_check=_SLOW, print_blob=True
)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--large", action="store_true", help="many more generated cases, with a printed seed")


def pytest_configure(config: pytest.Config) -> None:
    large = config.getoption("--large") or os.environ.get("ACCEL_LARGE") == "1"
    settings.load_profile("large" if large else "default")


@pytest.fixture(autouse=True)
def nothing_written() -> None:
    """What tests before this one have written would be asked for first: many stores of theirs have one root,
    and paths are few."""
    known = writes.recent_writes
    known.clear()
    known.others = -math.inf


@pytest.fixture(autouse=True)
def no_dropped_generators() -> Iterator[None]:
    """A generator that is dropped before its end leaves the I/O loop a task to close it, whenever the garbage
    collector finds it: the test fails during which that happened."""
    dropped_generators.watch()
    yield
    dropped_generators.check()


@pytest.fixture(scope="session")
def large(request: pytest.FixtureRequest) -> bool:
    """Whether `--large` (or ACCEL_LARGE=1) asks for the long run."""
    return bool(request.config.getoption("--large")) or os.environ.get("ACCEL_LARGE") == "1"


def _in_ci() -> bool:
    return os.environ.get("CI", "").lower() in ("1", "true")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    older_pyarrow.skip_what_needs_newer(items)


def pytest_collection_finish() -> None:
    """Leave what was collected to itself: many tests run the garbage collector, which would go through it
    each time."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="module")
def few_to_collect() -> None:
    """Leave what earlier tests have left to itself, for a module whose tests run the garbage collector again
    and again."""
    gc.collect()
    gc.freeze()


def pytest_report_header(config: pytest.Config) -> str:
    found = find_minio()
    if found is not None:
        return "S3 server: MinIO"
    return (
        "S3 server: no MinIO yet; it is built by Go if there is one, else moto[server] stands in (not in CI)"
    )


@pytest.fixture(scope="session")
def s3(pytestconfig: pytest.Config) -> Iterator[S3Admin]:
    """An S3 server for the whole run: a real MinIO, or moto where none can be had outside CI."""
    with ExitStack() as stack:
        try:
            server: S3Admin = stack.enter_context(Minio(install_minio()))
        except (FileNotFoundError, RuntimeError) as error:
            if _in_ci():
                raise RuntimeError(f"CI needs a real MinIO: {error}") from error
            print(f"\nno MinIO ({error}): these tests run against moto[server]", file=sys.__stderr__)
            server = stack.enter_context(Moto())
        yield server


@pytest.fixture(scope="session")
def minio(s3: S3Admin) -> S3Admin:
    """A real MinIO; the test is skipped where only moto stands in (in CI its absence is a failure)."""
    if s3.kind != "minio":
        pytest.skip("needs a real MinIO: neither on PATH nor could it be built")
    return s3


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """A private PostgreSQL; the test is skipped where its programs are missing."""
    programs = find_postgres()
    if programs is None:
        pytest.skip("needs the programs of PostgreSQL: on Debian, apt-get install postgresql")
    with Postgres(programs) as server:
        yield server


@pytest.fixture(scope="session")
def redis_server() -> Iterator[RedisServer]:
    """A Redis server for the whole run; tests use prefixes of their own."""
    binary = find_redis()
    if binary is None:
        if _in_ci():
            raise RuntimeError("CI needs redis-server: apt-get update && apt-get install redis-server")
        pytest.skip("needs redis-server on PATH: apt-get update && apt-get install redis-server")
    with RedisServer(binary) as server:
        yield server


@pytest.fixture(scope="session")
def cassandra() -> Iterator[Cassandra]:
    """A Cassandra server for the whole run; tests use keyspaces or names of their own."""
    try:
        jars = find_cassandra()
    except FileNotFoundError as error:
        if _in_ci():
            raise RuntimeError(f"CI needs Cassandra: {error}") from error
        pytest.skip(f"needs Cassandra: {error}")
    with Cassandra(jars) as server:
        yield server


@pytest.fixture(scope="session")
def keyspace(cassandra: Cassandra) -> str:
    """A keyspace of that server, for tests that use names of their own."""
    return cassandra.new_keyspace()


@pytest.fixture
def bucket(s3: S3Admin) -> str:
    """A new, empty bucket."""
    name = f"test-{uuid.uuid4().hex[:12]}"
    s3.create_bucket(name)
    return name


@pytest.fixture
def s3_options(s3: S3Admin) -> dict[str, str]:
    """The `storage_options` that reach the S3 server directly."""
    return s3.storage_options()


@pytest.fixture
def make_proxy() -> Iterator[Callable[..., Proxy]]:
    """Starts proxies that are stopped when the test ends; takes what `Proxy` takes."""
    with ExitStack() as stack:

        def start(origin: str | None, **settings: object) -> Proxy:
            return stack.enter_context(Proxy(origin, **settings))  # type: ignore[arg-type]

        yield start


@pytest.fixture
def proxy(s3: S3Admin, make_proxy: Callable[..., Proxy]) -> Proxy:
    """A proxy before the S3 server that changes nothing until told; `proxy.url` is its endpoint."""
    return make_proxy(s3.url)
