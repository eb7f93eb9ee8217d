"""A scan with a catalog in Redis, in Cassandra, or in memory, is the scan without it, whatever became of the files
meanwhile."""

from __future__ import annotations

import uuid

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from tests.property.test_catalog import Histories
from tests.support.cassandra import Cassandra
from tests.support.redis_server import RedisServer

BRIEF = settings(max_examples=8, stateful_step_count=12, deadline=None)


class MemoryHistories(Histories):
    def place(self) -> str:
        return f"memory://{uuid.uuid4().hex}"


class CassandraHistories(Histories):
    server: Cassandra
    keyspace: str

    def place(self) -> str:
        return self.server.url(self.keyspace, uuid.uuid4().hex, ttl=600)


class RedisHistories(Histories):
    server: RedisServer

    def place(self) -> str:
        return self.server.url(uuid.uuid4().hex, ttl=600, max_bytes=50_000_000)


def test_histories_beside_a_catalog_in_memory() -> None:
    run_state_machine_as_test(MemoryHistories, settings=BRIEF)


def test_histories_beside_a_catalog_in_redis(
    redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RedisHistories, "server", redis_server, raising=False)
    run_state_machine_as_test(RedisHistories, settings=BRIEF)


def test_histories_beside_a_catalog_in_cassandra(
    cassandra: Cassandra, keyspace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CassandraHistories, "server", cassandra, raising=False)
    monkeypatch.setattr(CassandraHistories, "keyspace", keyspace, raising=False)
    run_state_machine_as_test(CassandraHistories, settings=BRIEF)
