"""Systems of the benchmark: the protocol of their processes, and a query in the words of each."""

import dataclasses
import datetime as dt
import io
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from bench.peers import exact, sql
from bench.peers.child import Child
from bench.peers.endpoint import Endpoint
from bench.peers.layout import merge
from bench.peers.protocol import Answer, Peer, PeerError, Unsupported
from bench.peers.registry import PEERS
from bench.peers.worker import serve
from bench.queries import Query, to_json

ROOT = Path(__file__).resolve().parents[3]
ENDPOINT = Endpoint("http://127.0.0.1:1", "id", "secret", "us-east-1", "bucket")
MOMENT = dt.datetime(2013, 1, 1, 5, tzinfo=dt.UTC)


def asked(name: str, *where: tuple[str, str, object]) -> Query:
    return Query(name, ("a.parquet",), ("x",), where)


# -- the worker ------------------------------------------------------------------------------------


class Fake(Peer):
    """Does as the name of the query says."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def open(self, endpoint: Endpoint) -> None:
        self.seen.append(f"open {endpoint.bucket}")

    def prepare(self, query: Query) -> None:
        self.seen.append(f"prepare {query.name}")

    def run(self, query: Query) -> Answer:
        self.seen.append(f"run {query.name}")
        if query.name == "unsupported":
            raise Unsupported("no such words")
        if query.name == "error":
            raise RuntimeError("it broke")
        return Answer(rows=7, first=0.25)

    def forget(self) -> None:
        self.seen.append("forget")

    def concurrently(self, queries: Sequence[Query]) -> list[int]:
        return [len(query.name) for query in queries]


def ask(peer: Peer, *requests: dict[str, object]) -> list[dict[str, object]]:
    replies = io.StringIO()
    serve(peer, io.StringIO("".join(json.dumps(request) + "\n" for request in requests)), replies)
    return [json.loads(line) for line in replies.getvalue().splitlines()]


def test_every_request_gets_one_reply_with_what_it_took() -> None:
    peer = Fake()
    replies = ask(
        peer,
        {"open": dataclasses.asdict(ENDPOINT)},
        {"run": to_json(asked("one"))},
        {"forget": True},
        {"concurrently": [to_json(asked("four")), to_json(asked("seven"))]},
    )
    assert [(reply["rows"], reply["each"]) for reply in replies] == [(0, []), (7, []), (0, []), (9, [4, 5])]
    assert replies[1]["first"] == 0.25
    assert all(
        set(reply) == {"seconds", "first", "rows", "cpu", "peak", "each", "digest"} for reply in replies
    )
    assert all(reply["peak"] > 1 << 20 and reply["cpu"] >= 0 < reply["seconds"] for reply in replies)
    assert peer.seen == ["open bucket", "prepare one", "run one", "forget", "prepare four", "prepare seven"]


def test_what_fails_is_told_and_the_next_request_is_answered() -> None:
    replies = ask(
        Fake(),
        {"run": to_json(asked("unsupported"))},
        {"run": to_json(asked("error"))},
        {"leap": True},
        {"run": to_json(asked("one"))},
    )
    assert replies[0] == {"unsupported": "no such words"}
    assert "RuntimeError: it broke" in str(replies[1]["error"])
    assert "no such verb: 'leap'" in str(replies[2]["error"])
    assert replies[3]["rows"] == 7


# -- the child -------------------------------------------------------------------------------------

FAKE = """
import os, subprocess, sys, time
from bench.peers import worker
from bench.peers.protocol import Answer, Peer, Unsupported

class Fake(Peer):
    def open(self, endpoint):
        print("noise on standard output")
        os.system("echo noise of what it starts")
    def run(self, query):
        print("more noise", flush=True)
        if query.name == "sleep":
            subprocess.Popen(["sleep", "600"])
            time.sleep(600)
        if query.name == "die":
            print("last words", file=sys.stderr, flush=True)
            os._exit(3)
        if query.name == "started":
            return Answer(subprocess.Popen(["sleep", "600"]).pid, 0)
        if query.name == "error":
            raise RuntimeError("it broke")
        if query.name == "unsupported":
            raise Unsupported("no such words")
        return Answer(5, 0.5)
    def forget(self):
        pass
    def concurrently(self, queries):
        return [1] * len(queries)

worker.PEERS["fake"] = Fake
worker.main()
"""


def fake(*, limit: float = 60.0) -> Child:
    return Child("fake", limit=limit, command=[sys.executable, "-c", FAKE, "fake"])


@pytest.fixture(autouse=True)
def from_the_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


def runs(pid: int) -> bool:
    """Whether a process is there, and no zombie that nobody has asked for."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_child_answers_through_the_noise_and_ends_by_itself() -> None:
    with fake() as child:
        child.open(ENDPOINT)
        assert child.run(asked("one")).rows == 5
        assert child.run(asked("one")).first == 0.5
        assert child.forget().rows == 0
        assert child.concurrently([asked("one"), asked("two")]).each == (1, 1)
        with pytest.raises(Unsupported, match="fake: no such words"):
            child.run(asked("unsupported"))
        with pytest.raises(PeerError, match="it broke"):
            child.run(asked("error"))
        assert child.run(asked("one")).rows == 5
        assert child.close() == 0


def test_a_call_beyond_its_limit_ends_the_process_and_open_starts_another() -> None:
    with fake(limit=20.0) as child:
        child.open(ENDPOINT)
        child.limit = 0.5
        started = time.monotonic()
        with pytest.raises(PeerError, match=r"fake took longer than 0\.5 s"):
            child.run(asked("sleep"))
        assert time.monotonic() - started < 10
        with pytest.raises(PeerError, match="not open"):
            child.run(asked("one"))
        child.limit = 20.0
        child.open(ENDPOINT)
        assert child.run(asked("one")).rows == 5


def test_a_process_that_dies_leaves_its_status_and_last_words() -> None:
    with fake() as child:
        child.open(ENDPOINT)
        with pytest.raises(PeerError, match=r"(?s)ended with status 3: .*last words"):
            child.run(asked("die"))


@pytest.mark.skipif(not Path("/proc").exists(), reason="counts processes by /proc")
def test_what_a_system_starts_is_counted_and_ended_with_it() -> None:
    with fake() as child:
        child.open(ENDPOINT)
        idle = child.run(asked("one"))
        pid = child.run(asked("started")).rows
        assert runs(pid)
        # Memory of a process that runs is counted; what one used that has ended is this process's own.
        assert child.run(asked("one")).peak > idle.peak
        child.close()
        deadline = time.monotonic() + 10
        while runs(pid) and time.monotonic() < deadline:
            os.sched_yield()
        assert not runs(pid)


def test_a_worker_of_no_known_name_dies_at_once() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "bench.peers.worker", "none"], input=b"", capture_output=True, check=False
    )
    assert done.returncode != 0
    assert b"KeyError: 'none'" in done.stderr


def test_the_registry_has_every_system() -> None:
    assert list(PEERS) == [
        "accel",
        "datafusion",
        "datafusion-pushdown",
        "duckdb",
        "duckdb-cached",
        "polars",
        "pyarrow",
        "arro3",
        "spark",
        "floor",
    ]


# -- a query in the words of each ------------------------------------------------------------------

CONDITIONS = {
    "int": (("k", "=", 7), '"k" = 7'),
    "negative": (("k", ">", -7), '"k" > -7'),
    "float": (("v", "<=", 0.05), '"v" <= 0.05'),
    "text": (("s", "=", "it's"), "\"s\" = 'it''s'"),
    "name": (('a"b', "<", 1), '"a""b" < 1'),
    "date": (("d", ">=", dt.date(1994, 1, 1)), "\"d\" >= DATE '1994-01-01'"),
    "moment": (("t", "<", MOMENT), "\"t\" < TIMESTAMP '2013-01-01 05:00:00+00:00'"),
    "naive moment": (
        ("t", "<", MOMENT.replace(tzinfo=None)),
        "\"t\" < TIMESTAMP '2013-01-01 05:00:00'",
    ),
    "in": (("k", "in", (1, 2, 3)), '"k" IN (1, 2, 3)'),
    "in of text": (("s", "in", ("a", "b'")), "\"s\" IN ('a', 'b''')"),
    "prefix": (("s", "prefix", "ab"), "\"s\" LIKE 'ab%'"),
}


@pytest.mark.parametrize("name", list(CONDITIONS))
def test_conditions_in_sql(name: str) -> None:
    condition, text = CONDITIONS[name]
    assert sql.condition(*condition) == text


def test_a_prefix_with_a_wildcard_is_refused() -> None:
    with pytest.raises(ValueError, match="wildcard"):
        sql.condition("s", "prefix", "a_")


@pytest.mark.parametrize(
    ("query", "text"),
    [
        (Query("q", ("a",)), "SELECT * FROM t"),
        (Query("q", ("a",), ("x", "y")), 'SELECT "x", "y" FROM t'),
        (
            Query("q", ("a",), ("x",), (("k", ">=", 1), ("k", "<", 3))),
            'SELECT "x" FROM t WHERE "k" >= 1 AND "k" < 3',
        ),
        (Query("q", ("a",), ("x",), (("k", "=", 1),), count=True), 'SELECT count(*) FROM t WHERE "k" = 1'),
    ],
    ids=["all", "columns", "conjunction", "count"],
)
def test_statements(query: Query, text: str) -> None:
    assert sql.select(query, "t") == text


def test_names_in_the_quotes_of_another_dialect() -> None:
    assert sql.select(asked("q", ("k", "=", 1)), "t", quote="`") == "SELECT `x` FROM t WHERE `k` = 1"


SCHEMA = pa.schema(
    {
        "k": pa.int64(),
        "v": pa.decimal128(15, 2),
        "s": pa.string(),
        "t": pa.timestamp("us", tz="UTC"),
        "d": pa.date32(),
    }
)

POLARS = {
    "int": (("k", "=", 7), '[(col("k")) == (dyn int: 7)]'),
    "less": (("k", "<", 7), '[(col("k")) < (dyn int: 7)]'),
    "in": (("k", "in", (1, 2)), 'col("k").is_in([[1, 2]])'),
    "prefix": (("s", "prefix", "ab"), 'col("s").str.starts_with(["ab"])'),
    "date": (("d", ">=", dt.date(1994, 1, 1)), '[(col("d")) >= (1994-01-01)]'),
}


@pytest.mark.parametrize("name", list(POLARS))
def test_conditions_of_polars(name: str) -> None:
    pytest.importorskip("polars")
    from bench.peers.polars import expression

    condition, text = POLARS[name]
    assert str(expression(asked("q", condition))) == text


ARROW = {
    "int": (("k", "=", 7), "(k == 7)"),
    "decimal": (("v", "<=", 0.05), "(v <= 0.05)"),
    "moment": (("t", "<", MOMENT), "(t < 2013-01-01 05:00:00.000000Z)"),
    "date": (("d", ">=", dt.date(1994, 1, 1)), "(d >= 1994-01-01)"),
    "prefix": (("s", "prefix", "ab"), 'starts_with(s, {pattern="ab", ignore_case=false})'),
}


@pytest.mark.parametrize("name", list(ARROW))
def test_conditions_of_pyarrow(name: str) -> None:
    from bench.peers.pyarrow import expression

    condition, text = ARROW[name]
    assert str(expression(asked("q", condition), SCHEMA)) == text


def test_no_conditions_are_no_expression() -> None:
    from bench.peers.polars import expression as of_polars
    from bench.peers.pyarrow import expression as of_pyarrow

    assert of_polars(asked("q")) is None
    assert of_pyarrow(asked("q"), SCHEMA) is None
    assert exact.compile_mask(asked("q"), SCHEMA) is None


@pytest.mark.parametrize(
    ("condition", "wanted"),
    [
        (("k", "=", 2), [False, True, None]),
        (("k", "in", (1, 2)), [True, True, False]),
        (("v", "<", 0.05), [True, False, None]),
        (("s", "prefix", "ab"), [True, False, None]),
    ],
    ids=["equal", "in", "decimal", "prefix"],
)
def test_conditions_over_arrays(condition: tuple[str, str, object], wanted: list[bool | None]) -> None:
    columns = {
        "k": pa.array([1, 2, None], SCHEMA.field("k").type),
        "v": pa.array(
            [
                exact.scalar(0.04, SCHEMA.field("v").type).as_py(),
                exact.scalar(0.05, SCHEMA.field("v").type).as_py(),
                None,
            ],
            SCHEMA.field("v").type,
        ),
        "s": pa.array(["abc", "b", None], pa.string()),
    }
    mask = exact.compile_mask(asked("q", condition), SCHEMA)
    assert mask is not None
    assert mask(columns).to_pylist() == wanted


@pytest.mark.parametrize(
    ("ranges", "requests"),
    [
        ([], []),
        ([(10, 20)], [(10, 20)]),
        ([(50, 60), (10, 20), (10, 20)], [(10, 20), (50, 60)]),
        ([(10, 20), (25, 30)], [(10, 30)]),
        ([(10, 20), (26, 30)], [(10, 20), (26, 30)]),
        ([(0, 250)], [(0, 83), (83, 166), (166, 250)]),
        ([(0, 100)], [(0, 100)]),
    ],
    ids=["none", "one", "twice, unordered", "a gap", "beyond the gap", "split", "just not split"],
)
def test_the_floor_merges_and_splits(ranges: list[tuple[int, int]], requests: list[tuple[int, int]]) -> None:
    assert merge(ranges, gap=5, longest=100) == requests
