"""One system in a process of its own, asked over JSON lines.

`python -m bench.peers.worker <name>` reads requests from standard input, one a line, and answers each with
one line on standard output:

    {"open": {"url": ..., "access_key_id": ..., ...}}
    {"run": "<query as JSON>"}
    {"concurrently": ["<query as JSON>", ...]}
    {"forget": true}

    {"seconds": ..., "first": ..., "rows": ..., "cpu": ..., "peak": ..., "each": [...], "digest": ...}
    {"unsupported": "<what it lacks>"}
    {"error": "<traceback>"}

It ends when its standard input does. What a library prints goes to standard error.
"""

from __future__ import annotations

import dataclasses
import gc
import json
import os
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any, TextIO

from bench.peers.digest import digest
from bench.peers.endpoint import Endpoint
from bench.peers.footprint import Footprint
from bench.peers.protocol import Answer, Measured, Peer, Unsupported
from bench.peers.registry import PEERS
from bench.queries import from_json

__all__ = ["answer", "main", "serve"]


def answer(peer: Peer, request: dict[str, Any]) -> dict[str, Any]:
    """The reply to one request."""
    try:
        return dataclasses.asdict(_measure(_work(peer, request)))
    except Unsupported as lacking:
        return {"unsupported": str(lacking)}
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException:  # noqa: BLE001 - a Rust panic is no Exception
        return {"error": traceback.format_exc()}


def _work(peer: Peer, request: dict[str, Any]) -> Callable[[], Answer | list[int] | None]:
    """What is to be timed, everything before it done."""
    ((verb, given),) = request.items()
    match verb:
        case "open":
            endpoint = Endpoint(**given)
            endpoint.trust()
            return lambda: peer.open(endpoint)
        case "run":
            query = from_json(given)
            peer.prepare(query)
            return lambda: peer.run(query)
        case "concurrently":
            queries = [from_json(each) for each in given]
            for query in queries:
                peer.prepare(query)
            return lambda: peer.concurrently(queries)
        case "forget":
            return peer.forget
    raise ValueError(f"no such verb: {verb!r}")


def _measure(work: Callable[[], Answer | list[int] | None]) -> Measured:
    # What earlier calls left behind is no cost of this one.
    gc.collect()
    footprint = Footprint()
    started = time.perf_counter()
    done = work()
    seconds = time.perf_counter() - started
    cpu, peak = footprint.end()
    if isinstance(done, Answer):
        return Measured(seconds, done.first, done.rows, cpu, peak, digest=digest(done.values))
    each = tuple(done or ())
    return Measured(seconds, seconds, sum(each), cpu, peak, each)


def serve(peer: Peer, requests: TextIO, replies: TextIO) -> None:
    """Answer requests until there are no more."""
    for line in requests:
        replies.write(json.dumps(answer(peer, json.loads(line))) + "\n")
        replies.flush()


def main() -> None:
    """Serve the system that is named on the command line."""
    # The protocol keeps the real pipes; the library, and what it starts, get stderr and nothing.
    requests = os.fdopen(os.dup(0), encoding="utf-8")
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    serve(PEERS[sys.argv[1]](), requests, replies)


if __name__ == "__main__":
    main()
