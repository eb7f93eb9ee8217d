"""What requests tell of the network: latency, bandwidth, company, stragglers."""

from __future__ import annotations

import pickle
import random

import pytest

from accel.coalesce import Merging, RequestShape
from accel.errors import ObjectNotFoundError
from accel.metrics import Metrics
from accel.options import MIB, Options
from accel.ranges import ByteRange, Kind, ReadKey, Want
from accel.store.client import Client
from accel.store.network import Network
from accel.testing import DictStore, LatencyStore

KIB = 1024


def fresh() -> Network:
    return Network(latency=0.03, bandwidth=90e6)


def test_until_something_is_known() -> None:
    network = fresh()
    assert (network.latency, network.bandwidth, network.total_bandwidth) == (0.03, 90e6, 360e6)
    assert network.bytes_to_cover() == 10_800_000
    assert repr(network) == "Network(30.0 ms, 90 MB/s)"


@pytest.mark.parametrize("seen", [1, 2])
def test_one_or_two_requests_prove_nothing(seen: int) -> None:
    network = fresh()
    for _ in range(seen):
        network.observe(KIB, 5.0)
        network.observe(MIB, 5.0)
    assert (network.latency, network.bandwidth) == (0.03, 90e6)


@pytest.mark.parametrize("latency", [0.0003, 0.001, 0.01, 0.03])
@pytest.mark.parametrize("bandwidth", [10e6, 90e6, 1e9])
def test_what_the_network_is(latency: float, bandwidth: float) -> None:
    """Within a fifth, from requests that vary by a tenth, one in ten of which takes three times as long."""
    rng = random.Random(f"{latency} {bandwidth}")
    network = fresh()
    for _ in range(100):
        slow = 3.0 if rng.random() < 0.1 else 1.0
        for nbytes in (8 * KIB, 8 * MIB):
            network.observe(nbytes, rng.uniform(0.95, 1.05) * slow * (latency + nbytes / bandwidth))
    assert network.latency == pytest.approx(latency, rel=0.2, abs=8 * KIB / bandwidth)
    assert network.bandwidth == pytest.approx(bandwidth, rel=0.2)


def test_a_transfer_that_the_wait_hides() -> None:
    """Of 1 GB/s over 100 ms an 8 MiB request shows little: less is claimed, not more."""
    network = fresh()
    for _ in range(100):
        network.observe(KIB, 0.1)
        network.observe(8 * MIB, 0.1 + 8 * MIB / 1e9)
    assert 300e6 < network.bandwidth < 1e9


def test_the_store_that_gets_slower_is_noticed() -> None:
    network = fresh()
    for _ in range(200):
        network.observe(KIB, 0.01)
    for _ in range(128):
        network.observe(KIB, 0.2)
    assert network.latency == pytest.approx(0.2, rel=0.01)


def test_what_is_neither_small_nor_large_tells_nothing() -> None:
    network = fresh()
    for nbytes in (64 * KIB + 1, 512 * KIB - 1):
        for _ in range(10):
            network.observe(nbytes, 100.0)
    assert (network.latency, network.bandwidth) == (0.03, 90e6)


@pytest.mark.parametrize(
    ("shared", "total"),
    [(True, 90e6), (False, 720e6)],
    ids=["one link for all", "each stream its own limit"],
)
def test_many_streams(shared: bool, total: float) -> None:
    network = fresh()
    for _ in range(10):
        network.observe(KIB, 0.001)
        for company in (1, 8):
            rate = 90e6 / company if shared else 90e6
            network.observe(8 * MIB, 0.001 + 8 * MIB / rate, in_flight=company)
    assert network.bandwidth == pytest.approx(90e6, rel=0.02)
    assert network.total_bandwidth == pytest.approx(total, rel=0.02)


@pytest.mark.parametrize(
    ("rates", "total"),
    [
        ({1: 90e6, 2: 75e6}, 300e6),
        ({1: 90e6, 3: 60e6}, 240e6),
        ({2: 75e6}, 300e6),
        ({1: 90e6, 2: 45e6}, 90e6),
        ({1: 90e6, 3: 30e6}, 90e6),
        ({1: 90e6, 2: 75e6, 4: 40e6}, 160e6),
    ],
    ids=["two", "three", "two, never one", "two share a link", "three do", "four disturb each other"],
)
def test_more_company_than_was_seen(rates: dict[int, float], total: float) -> None:
    """Else who once read in two streams would never find out that four bring more."""
    network = fresh()
    for _ in range(10):
        network.observe(KIB, 0.001)
        for company, rate in rates.items():
            network.observe(8 * MIB, 0.001 + 8 * MIB / rate, in_flight=company)
    assert network.total_bandwidth == pytest.approx(total, rel=0.02)


def test_a_busy_machine_does_not_look_like_a_slow_network() -> None:
    """What held most streams up, company or the processor, says nothing of what one of them could bring."""
    network = fresh()
    for held_up in (8, 6, 1, 4, 1, 9, 1, 5):
        network.observe(KIB, 0.03)
        network.observe(2 * MIB, 0.03 + held_up * 2 * MIB / 90e6, in_flight=20)
        network.observe(2 * MIB, 0.03 + 8 * 2 * MIB / 90e6, in_flight=5)
    assert network.bandwidth == pytest.approx(90e6, rel=0.01)
    assert (network.gap_bytes, network.early_bytes) == (32 * KIB, 512 * KIB)


def test_company_never_makes_a_stream_faster() -> None:
    """The best of what was seen in any company is what one stream brings at least."""
    network = fresh()
    for _ in range(4):
        network.observe(2 * MIB, 0.03 + 2 * MIB / 20e6, in_flight=2)
        network.observe(2 * MIB, 0.03 + 2 * MIB / 60e6, in_flight=16)
    assert network.bandwidth == pytest.approx(60e6)


def test_only_company_was_seen() -> None:
    """The rate of one is then what one of many had."""
    network = fresh()
    for _ in range(10):
        network.observe(8 * MIB, 8 * MIB / 10e6, in_flight=9)
    assert network.total_bandwidth == pytest.approx(9 * network.bandwidth, rel=1e-6)


@pytest.mark.parametrize(
    ("nbytes", "seconds", "cover"),
    [
        (0, 0.0, 360),  # 1 us at what four times is assumed of one stream
        (1, -1.0, 356),
        (10**12, 0.0, pytest.approx(24 * 10**16)),
        (MIB, 1e9, 1),
    ],
)
def test_nonsense_leaves_it_sane(nbytes: int, seconds: float, cover: int) -> None:
    network = fresh()
    for _ in range(30):
        network.observe(nbytes, seconds, in_flight=0)
    assert network.latency > 0
    assert 0 < network.bandwidth <= network.total_bandwidth
    assert network.bytes_to_cover() == cover


def test_memory_is_bounded() -> None:
    network = fresh()
    rng = random.Random(3)
    for _ in range(20_000):
        network.observe(rng.choice([KIB, MIB]), rng.random(), in_flight=rng.randrange(1, 65))
    assert len(pickle.dumps(network)) < 16_000


def client_over(store: object, **options: float) -> Client:
    return Client(store, root="store:", token="t", options=Options(**options))  # type: ignore[arg-type]


def want(length: int) -> Want:
    return Want(ReadKey(Kind.PAGE, 0, 0, length), ByteRange(0, length))


async def test_a_client_learns_from_its_requests() -> None:
    store = LatencyStore(DictStore({"f": bytes(2 * MIB)}), first_byte=0.06, bandwidth=20e6)
    client = client_over(store)
    pin = None
    for length in 4 * [KIB, 2 * MIB]:
        await client.read("f", [want(length)], pin=pin, metrics=Metrics())
    # Long enough for a busy machine to add little to it.
    assert 0.06 <= client.network.latency < 0.12
    assert 10e6 < client.network.bandwidth < 30e6


async def test_failures_tell_nothing() -> None:
    client = client_over(DictStore({}))
    for _ in range(5):
        with pytest.raises(ObjectNotFoundError):
            await client.read("nothing", [want(10)], pin=None, metrics=Metrics())
    assert client.network.latency == 0.03


def test_where_it_starts() -> None:
    assumed = client_over(DictStore(), assumed_latency=0.2, assumed_bandwidth=1e6).network
    assert (assumed.latency, assumed.bandwidth) == (0.2, 1e6)
    local = Client(DictStore(), root="file://", token="t", options=Options())
    assert local.network.latency < 0.001
    assert local.network.bandwidth > 1e9
    assert local.network.few_streams == 1


@pytest.mark.parametrize(
    ("bandwidth", "gap"),
    [(1e3, 4 * KIB), (10e6, 4 * KIB), (90e6, 32 * KIB), (200e6, 64 * KIB), (1e9, 256 * KIB), (1e12, MIB)],
)
def test_a_gap_is_what_comes_while_a_request_is_made(bandwidth: float, gap: int) -> None:
    assert Network(latency=0.03, bandwidth=bandwidth).gap_bytes == gap


@pytest.mark.parametrize(
    ("latency", "bandwidth", "early", "trip"),
    [
        (0.03, 90e6, 512 * KIB, 2 * MIB),
        (0.1, 90e6, 2 * MIB, 8 * MIB),
        (0.001, 90e6, 16 * KIB, 64 * KIB),
        (0.03, 1e6, 4 * KIB, 64 * KIB),
        # Decoding bounds what a trip may save, however fast bytes come.
        (0.03, 1e12, 4 * 1024 * MIB, 4 * MIB),
    ],
)
def test_what_a_round_trip_is_worth(latency: float, bandwidth: float, early: int, trip: int) -> None:
    network = Network(latency=latency, bandwidth=bandwidth)
    assert (network.early_bytes, network.trip_bytes) == (early, trip)


def test_what_requests_look_like_changes_seldom() -> None:
    """A store that varies by a third about its bandwidth keeps its gap; one that is four times as fast does
    not."""
    network = fresh()
    assert (network.gap_bytes, network.few_streams) == (32 * KIB, 8)
    rng = random.Random(1)
    for _ in range(200):
        network.observe(KIB, 0.001)
        network.observe(8 * MIB, 8 * MIB / (90e6 * rng.uniform(0.75, 1.33)))
        assert (network.gap_bytes, network.few_streams) == (32 * KIB, 8)
    for _ in range(20):
        network.observe(8 * MIB, 8 * MIB / 400e6)
    assert network.gap_bytes == 128 * KIB


def test_one_link_for_all_is_not_split() -> None:
    """Eight at once, which share what one has alone: on average, each saw four and a half under way."""
    network = fresh()
    for _ in range(20):
        network.observe(8 * MIB, 8 * MIB / 90e6, in_flight=1)
        network.observe(8 * MIB, 8 * MIB * 8 / 90e6, in_flight=4.5)
    assert network.few_streams == 1


@pytest.mark.parametrize(
    ("company", "rate", "streams"),
    [
        # Alone, or undisturbed by so many: more are tried.
        ([1], [90e6], 8),
        ([1, 4.5], [90e6, 80e6], 16),
        ([4.5], [90e6], 16),
        ([1, 9], [90e6, 90e6], 16),
        # Eight that have half of what one has bring four times as much, sixteen with a quarter too.
        ([1, 4.5], [90e6, 45e6], 4),
        ([1, 9], [90e6, 22e6], 4),
        ([1, 4.5, 9], [90e6, 80e6, 50e6], 8),
        ([1, 4.5, 9], [90e6, 45e6, 22e6], 4),
    ],
)
def test_how_many_streams_are_worth_having(company: list[float], rate: list[float], streams: int) -> None:
    network = fresh()
    for _ in range(20):
        for at_once, each in zip(company, rate, strict=True):
            network.observe(8 * MIB, network.latency + 8 * MIB / each, in_flight=at_once)
    assert network.few_streams == streams


def test_a_busy_machine_is_not_taken_for_a_shared_link() -> None:
    """Of eight at once most wait for a processor, and one or two are as quick as one that is alone."""
    network = fresh()
    for number in range(20):
        network.observe(8 * MIB, network.latency + 8 * MIB / 90e6, in_flight=1)
        rate = 80e6 if number % 4 == 0 else 8e6
        network.observe(8 * MIB, network.latency + 8 * MIB / rate, in_flight=4.5)
    assert network.few_streams == 16


def test_what_was_not_worth_it_is_tried_again() -> None:
    """Eight that were held up once; after a while alone eight are tried, and then it is seen that nothing
    holds them up, or that it still does."""

    def alone(network: Network, times: int) -> None:
        for _ in range(times):
            network.observe(8 * MIB, network.latency + 8 * MIB / 90e6, in_flight=1)

    def eight(network: Network, rate: float) -> None:
        for _ in range(8):
            network.observe(MIB, network.latency + MIB / rate, in_flight=4.5)

    for later, streams in ((90e6, 16), (11e6, 1)):
        network = fresh()
        for _ in range(5):
            network.observe(KIB, network.latency)
        alone(network, 5)
        eight(network, 11e6)
        assert network.few_streams == 1
        alone(network, 31)
        assert network.few_streams == 1
        alone(network, 1)
        assert network.few_streams == 8
        eight(network, later)
        assert network.few_streams == streams


def test_little_company_is_remembered_while_all_have_much() -> None:
    """Otherwise it would not be known what they lose by it."""
    network = fresh()
    for _ in range(5):
        network.observe(8 * MIB, network.latency + 8 * MIB / 90e6, in_flight=1)
    for _ in range(100):
        network.observe(8 * MIB, network.latency + 8 * MIB / 11e6, in_flight=9)
    assert network.few_streams == 2


def test_many_requests_are_weighed_by_all_streams() -> None:
    """0.4 ms at four times 90 MB/s; and what is sent while 30 ms pass. Both powers of two that stay."""
    network = fresh()
    assert (network.wide_gap_bytes, network.few_requests) == (128 * KIB, 64)
    for _ in range(20):
        network.observe(1000, 0.002)
    assert network.few_requests == 8
    for _ in range(20):
        for company in (1, 8):
            network.observe(8 * MIB, 8 * MIB * company / 90e6, in_flight=company)
    assert network.wide_gap_bytes == network.gap_bytes == 32 * KIB


def test_the_shape_of_requests() -> None:
    learned = client_over(DictStore()).shape()
    assert learned.merging(100) == Merging(32 * KIB, 512 * KIB, 128 * KIB, 64)
    assert learned.merging(8 * MIB, reads=2) == Merging(32 * KIB, MIB, 128 * KIB, 32)
    assert learned.merging(100 * MIB, reads=100) == Merging(32 * KIB, 8 * MIB, 128 * KIB, 1)
    told = client_over(DictStore(), max_gap_bytes=0, max_coalesced_bytes=77).shape()
    assert told.merging(100 * MIB) == Merging(0, 77, 0, 64)
    alone = RequestShape(gap_bytes=7, wide_gap_bytes=9, few_requests=3, streams=1)
    assert alone.merging(100) == Merging(7, 8 * MIB, 9, 3)
