"""How much of a run's files is read at once."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

import accel
from accel.options import MIB
from accel.planning.pages import PieceSize
from accel.scanning.run_limits import RunLimits
from accel.store.network import Network

TASK: Any = SimpleNamespace(file=SimpleNamespace(root="store:"))


def intake(
    *, limit: int | None = None, network: Network | None = None, pieces: int = 8, **options: Any
) -> RunLimits:
    """Of a reader that keeps up to `pieces` of a store's pieces under way."""
    reader: Any = SimpleNamespace(
        options=accel.Options(**options),
        client=lambda root: SimpleNamespace(network=network),
        max_pieces=lambda root: pieces,
    )
    return RunLimits(reader, limit=limit)


@pytest.mark.parametrize(
    ("latency", "bandwidth", "limit", "depth"),
    [
        pytest.param(0.03, 90e6, None, 8, id="the usual network: as the option says"),
        pytest.param(0.2, 100e6, None, 11, id="far and fast: as much as is under way"),
        pytest.param(2.0, 1e9, None, 32, id="never more than four times as many"),
        pytest.param(2.0, 1e9, 10, 1, id="with a limit one after the other"),
    ],
)
def test_reading_ahead_covers_the_network(
    latency: float, bandwidth: float, limit: int | None, depth: int
) -> None:
    network = Network(latency=latency, bandwidth=bandwidth)
    run = intake(limit=limit, network=network, piece_bytes=8 * MIB)
    run.read_ahead(TASK)
    assert run.admission.limit_pieces == depth


def test_no_more_pieces_than_the_store_is_worth_reading_by() -> None:
    run = intake(network=Network(latency=0.001, bandwidth=90e6), pieces=3, piece_bytes=8 * MIB)
    run.read_ahead(TASK)
    assert run.admission.limit_pieces == 3


@pytest.mark.parametrize(
    ("weight", "limit", "part"),
    [
        pytest.param(0, None, 1 / 16, id="nothing"),
        pytest.param(10, None, 1 / 16, id="little"),
        pytest.param(100, None, 0.2, id="a small piece counts twice"),
        pytest.param(150, None, 0.25, id="up to a quarter"),
        pytest.param(600, None, 0.6, id="a large one as the part that it is"),
        pytest.param(5000, None, 1.0, id="one that could not be cut"),
        pytest.param(10, 7, 1.0, id="with a limit each is one"),
    ],
)
def test_what_a_piece_counts_as(weight: int, limit: int | None, part: float) -> None:
    assert intake(limit=limit, piece_bytes=1000).part(weight) == part


@pytest.mark.parametrize(
    ("options", "limit", "size"),
    [
        pytest.param({}, None, PieceSize(12 * MIB, 64 * MIB), id="as the options have it"),
        pytest.param({}, 10, PieceSize(MIB), id="with a limit small, however many columns"),
        pytest.param({"piece_bytes": 1000}, 10, PieceSize(1000), id="smaller ones stay so"),
        pytest.param({"memory_limit": 8 * MIB}, None, PieceSize(MIB, MIB), id="little memory"),
    ],
)
def test_how_large_pieces_are(options: dict[str, Any], limit: int | None, size: PieceSize) -> None:
    assert intake(limit=limit, **options).size == size


def test_rows_wanted_are_those_that_have_not_come_out() -> None:
    run = intake(limit=10)
    wanted = [run.rows_wanted()]
    for passed in (4, 11):
        run.rows_passed = passed
        wanted.append(run.rows_wanted())
    assert (wanted, intake().rows_wanted()) == ([10, 6, 0], None)
