"""The pure parts of the Iceberg reader: Avro, single values, deletion vectors."""

from __future__ import annotations

import asyncio
import io
import math
import pickle
import struct
import time
from decimal import Decimal
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accel.errors import StoreError, TableFormatError
from accel.store.expiring_credentials import ExpiringCredentials, Granted
from accel.tables.formats.iceberg.avro import decode_numbers, open_avro
from accel.tables.formats.iceberg.manifests import ByField
from accel.tables.formats.iceberg.single_values import decode_values
from accel.tables.formats.iceberg.vended import expiry_of, options_of, provider_for

LONGS = st.integers(-(1 << 63), (1 << 63) - 1)
PAIRS = {
    "type": "array",
    "items": {
        "type": "record",
        "name": "pair",
        "fields": [{"name": "key", "type": "int"}, {"name": "value", "type": "long"}],
    },
}
BYTES = {
    "type": "array",
    "items": {
        "type": "record",
        "name": "other",
        "fields": [{"name": "key", "type": "int"}, {"name": "value", "type": "bytes"}],
    },
}
SCHEMA = {
    "type": "record",
    "name": "r",
    "fields": [
        {"name": "a", "type": "long"},
        {"name": "b", "type": ["null", "string"]},
        {"name": "c", "type": {"type": "array", "items": "int"}},
        {"name": "d", "type": ["null", "double"]},
        {"name": "e", "type": {"type": "fixed", "name": "f", "size": 3}},
        {"name": "f", "type": "boolean"},
        {"name": "g", "type": {"type": "map", "values": "float"}},
        {"name": "n", "type": ["null", PAIRS]},
        {"name": "m", "type": ["null", BYTES]},
    ],
}
INTS = st.integers(-(1 << 31), (1 << 31) - 1)


def listed(values: st.SearchStrategy) -> st.SearchStrategy:
    pair = st.fixed_dictionaries({"key": INTS, "value": values})
    return st.none() | st.lists(pair, max_size=70)


RECORDS = st.lists(
    st.fixed_dictionaries(
        {
            "a": LONGS,
            "b": st.none() | st.text(max_size=5),
            "c": st.lists(INTS, max_size=5),
            "d": st.none() | st.floats(allow_nan=False),
            "e": st.binary(min_size=3, max_size=3),
            "f": st.booleans(),
            "g": st.dictionaries(st.text(max_size=3), st.floats(width=32, allow_nan=False), max_size=2),
            "n": listed(LONGS),
            "m": listed(st.binary(max_size=200)),
        }
    ),
    max_size=8,
)


@settings(deadline=None, max_examples=60)
@given(records=RECORDS, codec=st.sampled_from(["null", "deflate"]))
def test_avro_files_are_read_as_fastavro_writes_them(records: list, codec: str) -> None:
    out = io.BytesIO()
    fastavro.writer(out, SCHEMA, records, codec=codec)
    read = [record for block in open_avro(memoryview(out.getvalue())).blocks() for record in block]
    assert len(read) == len(records)
    for have, want in zip(read, records, strict=True):
        assert {name: have[name] for name in "abcdef"} == {name: want[name] for name in "abcdef"}
        assert {pair["key"]: pair["value"] for pair in have["g"]} == want["g"]
    numbers = ByField.of_numbers([record["n"] for record in read])
    texts = ByField.of_bytes([record["m"] for record in read])
    for name, found in (("n", numbers), ("m", texts)):
        maps = [{pair["key"]: pair["value"] for pair in one[name] or ()} for one in records]
        for field in {key for each in maps for key in each}:
            assert found.of(field).to_pylist() == [each.get(field) for each in maps]


@settings(deadline=None, max_examples=200)
@given(st.binary(max_size=60), st.integers(0, 3))
def test_bytes_that_are_no_avro_are_refused(data: bytes, keep: int) -> None:
    out = io.BytesIO()
    fastavro.writer(out, SCHEMA, [])
    for content in (data, out.getvalue() + data, out.getvalue()[: -keep or None] + data):
        try:
            for _ in open_avro(memoryview(content)).blocks():
                pass
        except TableFormatError:
            continue


@given(st.lists(LONGS, max_size=50))
def test_numbers_are_decoded_together(numbers: list[int]) -> None:
    out = io.BytesIO()
    for number in numbers:
        fastavro.schemaless_writer(out, "long", number)
    assert decode_numbers(out.getvalue()).tolist() == numbers
    for bad in (b"\x80", b"\x80" * 11 + b"\x00", out.getvalue() + b"\xff"):
        with pytest.raises(TableFormatError):
            decode_numbers(bad)


CASES = [
    (pa.int32(), struct.pack("<i", -5), -5),
    (pa.int64(), struct.pack("<q", 1 << 40), 1 << 40),
    (pa.int64(), struct.pack("<i", -5), -5),  # written before the column was promoted
    (pa.float64(), struct.pack("<f", 1.5), 1.5),
    (pa.float64(), struct.pack("<d", -0.0), -0.0),
    (pa.float32(), struct.pack("<f", 2.5), 2.5),
    (pa.bool_(), b"\x01", True),
    (pa.string(), "é".encode(), "é"),
    (pa.string(), b"\xff\xfe", None),
    (pa.binary(), b"\x00\xff", b"\x00\xff"),
    (pa.binary(2), b"ab", b"ab"),
    (pa.binary(2), b"abc", None),
    (pa.decimal128(9, 2), (-12345).to_bytes(3, "big", signed=True), Decimal("-123.45")),
    (pa.decimal128(9, 2), b"\x7f" * 16, None),
    (pa.decimal128(9, 2), b"", None),
    (pa.date32(), struct.pack("<i", 1), "1970-01-02"),
    (pa.timestamp("us"), struct.pack("<q", 1_000_000), "1970-01-01 00:00:01"),
    (pa.timestamp("us"), struct.pack("<i", 1), "1970-01-02 00:00:00"),  # written as a date
    (pa.timestamp("ns", "UTC"), struct.pack("<q", 5), "1970-01-01 00:00:00.000000005+00:00"),
    (pa.time64("us"), struct.pack("<q", 1_000_000), "00:00:01"),
    (pa.int32(), b"\x00" * 8, None),
    (pa.int64(), b"\x00" * 5, None),
]


@pytest.mark.parametrize(("kind", "given_", "value"), CASES)
def test_single_values_are_decoded_and_what_is_none_is_null(
    kind: pa.DataType, given_: bytes, value: object
) -> None:
    # In the midst of others, and sliced, as columns of manifests are.
    array = pa.array([b"zz", None, given_, b"", given_], pa.binary()).slice(1)
    found = decode_values(array, kind)
    assert found.type == kind and len(found) == 4 and not found[0].is_valid
    for scalar in (found[1], found[3]):
        if value is None:
            assert not scalar.is_valid
        elif isinstance(value, str) and not pa.types.is_string(kind):
            assert str(scalar.value if kind == pa.timestamp("ns", "UTC") else scalar.as_py()) == (
                "5" if kind == pa.timestamp("ns", "UTC") else value
            )
        else:
            assert scalar.as_py() == value
            if isinstance(value, float):
                assert math.copysign(1, scalar.as_py()) == math.copysign(1, value)
    assert decode_values(array, pa.list_(pa.int32())) is None


def test_a_hundred_thousand_files_are_looked_up_at_once() -> None:
    counts = np.full(100_000, 3, np.int64)
    ids = np.tile(np.array([1, 2, 3]), 100_000)
    found = ByField(counts, ids, pa.array(np.arange(300_000))).of(2)
    assert found.to_numpy()[:3].tolist() == [1, 4, 7] and len(found) == 100_000


S3_PROPERTIES = {
    "s3.endpoint": "http://127.0.0.1:9000",
    "s3.access-key-id": "k",
    "s3.secret-access-key": "s",
    "s3.session-token": "t",
    "client.region": "eu-west-1",
    "s3.path-style-access": "true",
    "s3.session-token-expires-at-ms": "1700000000000",
    "warehouse": "x",
}
S3_PLACE = {
    "endpoint": "http://127.0.0.1:9000",
    "region": "eu-west-1",
    "allow_http": "true",
    "virtual_hosted_style_request": "false",
}


def test_properties_of_a_catalog_become_storage_options() -> None:
    secrets = {"access_key_id": "k", "secret_access_key": "s", "session_token": "t"}
    assert options_of(S3_PROPERTIES) == {**S3_PLACE, **secrets}
    assert expiry_of(S3_PROPERTIES) == 1_700_000_000
    assert options_of({"warehouse": "x"}) is None and expiry_of({"warehouse": "x"}) is None
    of_azure = {"adls.sas-token.lake.dfs.core.windows.net": "sv=1", "adls.sas-token.other": "no"}
    assert options_of(of_azure) == {"account_name": "lake", "sas_token": "sv=1"}
    wanted = {**of_azure, "adls.account-name": "other"}
    assert options_of(wanted) == {"account_name": "other", "sas_token": "no"}


def test_credentials_that_end_come_by_one_provider_for_each_table() -> None:
    asked: list[int] = []

    def grant() -> Granted:
        asked.append(1)
        return Granted({"access_key_id": f"k{len(asked)}"}, time.time() + (30 if len(asked) == 1 else 3600))

    one = provider_for("catalog", "db.one", grant)
    assert provider_for("catalog", "db.one", grant) is one is not provider_for("catalog", "db.two", grant)
    options = options_of({**S3_PROPERTIES, "s3.session-token-expires-at-ms": "nonsense"}, lambda: one)
    assert options == {**S3_PLACE, "credential_provider": one}
    first = asyncio.run(one())
    assert first == {"access_key_id": "k", "secret_access_key": "s", "token": "t", **_end(first)}
    assert not asked and 0 < (one.seconds_left or 0) <= 900  # nobody says when the token ends
    one.take(Granted({"access_key_id": "ended"}, time.time() - 1))
    assert asyncio.run(one())["access_key_id"] == "k1"
    assert asyncio.run(one())["access_key_id"] == "k1"  # it has just been asked for
    assert len(asked) == 1
    with pytest.raises(TypeError):
        pickle.dumps(one)
    google = options_of({"gcs.oauth2.token": "g"}) or {}
    assert asyncio.run(google["credential_provider"]()) == {"token": "g", "expires_at": None}


def _end(given: dict[str, Any]) -> dict[str, Any]:
    return {"expires_at": given["expires_at"]}


def test_old_credentials_serve_as_long_as_they_last_where_a_catalog_gives_no_new_ones() -> None:
    def fail() -> Granted:
        raise StoreError("the catalog is down")

    provider = ExpiringCredentials(fail)
    with pytest.raises(StoreError, match="down"):
        asyncio.run(provider())
    provider.take(Granted({"token": "t"}, time.time() + 40))
    provider._taken -= 10
    assert asyncio.run(provider())["token"] == "t"
    provider.take(Granted({"token": "t"}, time.time() + 1))
    provider._taken -= 10
    with pytest.raises(StoreError, match="down"):
        asyncio.run(provider())
