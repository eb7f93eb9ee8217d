"""The registry: who shares a client, and who does not."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest
from obstore.store import MemoryStore, S3Store

from accel.errors import StoreError
from accel.options import Options
from accel.store import clients as client_module
from accel.store.clients import client_for
from accel.store.location import parse_url
from accel.store.obstore_store import ObstoreStore
from accel.testing import DictStore

KEYS: dict[str, Any] = {"access_key_id": "KEY", "secret_access_key": "SECRET"}

pytestmark = pytest.mark.usefixtures("few_to_collect")


def test_equal_roots_and_options_share() -> None:
    one = client_for(parse_url("s3://bucket/a"), storage_options=KEYS)
    assert client_for(parse_url("s3a://bucket/b"), storage_options=dict(KEYS)) is one
    assert client_for("s3://bucket", storage_options=KEYS) is one
    assert (one.root, one.options) == ("s3://bucket", Options())


def test_options_that_a_client_is_not_made_of_do_not_count() -> None:
    one = client_for("file://")
    assert client_for("file://", options=Options(batch_rows=7)) is one
    other = client_for("file://", options=Options(max_gap_bytes=7))
    assert other is not one
    assert other.options.max_gap_bytes == 7
    assert other.token == one.token


def test_other_credentials_have_another_client_and_token() -> None:
    one = client_for("s3://bucket", storage_options=KEYS)
    other = client_for("s3://bucket", storage_options={**KEYS, "access_key_id": "OTHER"})
    assert other is not one
    assert other.token != one.token


@pytest.mark.parametrize(
    "root",
    [
        "s3://bucket",
        "gs://bucket",
        "az://box",
        "abfss://box@acc.dfs.core.windows.net",
        "https://h:1",
        "file://",
    ],
)
def test_a_root_is_enough(root: str) -> None:
    options: dict[str, dict[str, Any]] = {
        "s3": KEYS,
        "gs": {"skip_signature": True},
        "az": {"account_name": "acc", "account_key": "aGVsbG8="},
        "abfss": {"account_key": "aGVsbG8="},
    }
    assert client_for(root, storage_options=options.get(root.partition(":")[0])).root == root


@pytest.mark.parametrize("kind", [MemoryStore, DictStore])
def test_a_given_store_is_known_by_identity(kind: type[Any]) -> None:
    store, equal = kind(), kind()
    where = parse_url("x", in_store=True)
    one = client_for(where, store=store)
    assert client_for(where, store=store) is one
    assert client_for("s3://whatever", store=store) is one
    assert client_for(where, store=equal).token != one.token
    tuned = client_for(where, store=store, options=Options(max_gap_bytes=7))
    assert tuned is not one
    assert tuned.token == one.token
    assert isinstance(one.store, ObstoreStore) == (kind is MemoryStore)


def test_the_token_of_a_given_store_outlives_its_client() -> None:
    store = MemoryStore()
    token = client_for("store:", store=store).token
    gc.collect()
    assert client_for("store:", store=store).token == token


def test_a_given_store_is_not_kept_alive() -> None:
    store = DictStore({"f": bytes(10)})
    tracked = weakref.ref(store)
    client_for("store:", store=store)
    del store
    gc.collect()
    assert tracked() is None


def test_a_path_of_an_absent_store_is_refused() -> None:
    for where in ("store:", parse_url("x", in_store=True)):
        with pytest.raises(StoreError, match="give it by `store=`"):
            client_for(where)


@pytest.mark.parametrize("store", ["s3://bucket", object(), 7], ids=["text", "object", "number"])
def test_what_is_no_store_is_refused(store: object) -> None:
    with pytest.raises(StoreError, match=r"cannot serve as a store .* of accel\.stores\.RangeStore\)"):
        client_for("store:", store=store)


def test_storage_options_must_be_a_mapping() -> None:
    with pytest.raises(StoreError, match="storage_options is a str"):
        client_for("s3://bucket", storage_options="key=value")  # type: ignore[arg-type]


@pytest.mark.parametrize("name", [1, None, b"region"], ids=repr)
@pytest.mark.parametrize("where", ["s3://bucket", "file://"])
def test_storage_options_are_named_by_text(name: object, where: str) -> None:
    with pytest.raises(StoreError, match="something else than text"):
        client_for(where, storage_options={"region": "eu", name: "x"})  # type: ignore[dict-item]


def test_what_was_learned_of_a_store_outlives_its_clients() -> None:
    store = DictStore()
    first = client_for("store:", store=store)
    network = first.network
    del first
    gc.collect()
    assert client_for("store:", store=store).network is network
    assert client_for("store:", store=store, options=Options(piece_bytes=7)).network is network
    assert client_for("store:", store=store, options=Options(assumed_latency=1.0)).network.latency == 1.0
    assert client_for("store:", store=DictStore()).network is not network


def test_what_was_learned_goes_with_the_store() -> None:
    for make in (DictStore, MemoryStore):
        store: Any = make()
        learned = weakref.ref(client_for("store:", store=store).network)
        gc.collect()
        assert learned() is not None
        del store
        gc.collect()
        assert learned() is None


def test_where_listings_are_cut_outlives_clients() -> None:
    store = MemoryStore()
    first = client_for("store:", store=store)
    cuts = first.listings.cuts
    del first
    gc.collect()
    assert client_for("store:", store=store).listings.cuts is cuts
    assert client_for("store:", store=MemoryStore()).listings.cuts is not cuts


def test_where_listings_are_cut_is_not_shared_between_credentials() -> None:
    one, other = (
        client_for("s3://bucket/", storage_options={"access_key_id": key, "secret_access_key": "s"})
        for key in "ab"
    )
    assert one.listings.cuts is not other.listings.cuts


def test_what_reads_a_given_store_is_made_once_and_does_not_keep_it() -> None:
    def given(**more: Any) -> Any:
        return S3Store("b", region="us-east-1", access_key_id="K", secret_access_key="S", **more)

    store = given()
    client = client_for("store:", store=store)
    first = client.store
    del client
    gc.collect()
    assert client_for("store:", store=store).store is first
    assert client_for("store:", store=store, options=Options(read_timeout=1.0)).store is not first
    # Read through the very object, it is adapted each time: what is kept would keep it.
    for make in (lambda: given(retry_config={"max_retries": 1}), MemoryStore):
        other = make()
        assert client_for("store:", store=other).store.wraps(other)  # type: ignore[attr-defined]
        tracked = weakref.ref(other)
        del other
        gc.collect()
        assert tracked() is None
    tracked = weakref.ref(store)
    del store
    gc.collect()
    assert tracked() is None


def test_of_a_given_store_little_is_kept_whatever_the_options() -> None:
    """A timeout that is what is left of a deadline is another one each time."""
    store = S3Store("b", region="us-east-1", access_key_id="K", secret_access_key="S")
    usual = client_for("store:", store=store)
    reading, network = usual.store, usual.network
    del usual
    for n in range(2 * client_module.MOST_OF_ONE):
        other = Options(read_timeout=1.0 + n, assumed_latency=1.0 + n)
        assert client_for("store:", store=store, options=other).network.latency == 1.0 + n
        gc.collect()
        again = client_for("store:", store=store)
        assert (again.store is reading, again.network is network) == (True, True)
        del again


def test_a_client_whose_store_is_broken_is_not_given_again() -> None:
    given = S3Store("b", region="us-east-1", access_key_id="K", secret_access_key="S")
    asks = (
        lambda: client_for("s3://bucket", storage_options=KEYS),
        lambda: client_for("store:", store=given),
    )
    for ask in asks:
        first = ask()
        assert isinstance(first.store, ObstoreStore)
        first.store.broken = True
        second = ask()
        assert (second.store is first.store, second.token) == (False, first.token)
        assert ask() is second


def test_of_more_clients_than_there_is_room_for_those_not_used_for_longest_go() -> None:
    many = [client_for(f"s3://bucket-{n}", storage_options=KEYS) for n in range(client_module.MOST_CLIENTS)]
    assert client_for("s3://bucket-0", storage_options=KEYS) is many[0]
    client_for("s3://one-more", storage_options=KEYS)
    assert client_for("s3://bucket-0", storage_options=KEYS) is many[0]
    assert client_for("s3://bucket-1", storage_options=KEYS) is not many[1]
