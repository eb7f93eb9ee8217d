"""A private bucket of a real MinIO, reached by a profile of AWS alone: listing, reading, writing, planning,
Spark's closures."""

from __future__ import annotations

import os
import pickle
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest

import accel
from tests.support.s3 import S3Admin

TABLE = pa.table([pa.array(range(1000))], names=["id"])


@pytest.fixture
def profile(s3: S3Admin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a profile with the server's address and keys, in an environment that has neither."""
    for name in list(os.environ):
        if name.startswith("AWS_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws/config").write_text(
        f"[profile mine]\nregion = us-east-1\nendpoint_url = {s3.url}\n"
        f"aws_access_key_id = {s3.access_key}\naws_secret_access_key = {s3.secret_key}\n"
    )
    return "mine"


def test_everything_by_a_profile(
    s3: S3Admin, bucket: str, profile: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, options = f"s3://{bucket}/t/", {"profile": profile}
    for part in (0, 1):
        accel.write_table(TABLE, f"{url}{part}.parquet", storage_options=options)
    accel.build_index(url, indexes={"id": "keys"}, storage_options=options)
    ask = partial(accel.scan, url, "id = 7", storage_options=options)
    assert ask().count_rows() == 2
    assert ask(cache=None).to_table().num_rows == 2
    plan = accel.plan(url, "id = 7", storage_options=options)
    carried = (
        pickle.dumps(plan) + pickle.dumps(options) + repr(ask()).encode() + str(ask().explain()).encode()
    )
    assert s3.secret_key.encode() not in carried
    assert accel.scan(pickle.loads(pickle.dumps(plan)), storage_options=options).to_table().num_rows == 2
    # By itself, as in other tools.
    monkeypatch.setenv("AWS_PROFILE", profile)
    assert accel.scan(url, "id = 7").count_rows() == 2


def test_a_wrong_key_of_a_profile(s3: S3Admin, bucket: str, profile: str, tmp_path: Path) -> None:
    path = tmp_path / ".aws/config"
    path.write_text(path.read_text().replace(s3.secret_key, "WRONGWORD"))
    with pytest.raises(accel.AccessDeniedError) as caught:
        accel.scan(f"s3://{bucket}/t/", storage_options={"profile": profile}).count_rows()
    assert "WRONGWORD" not in str(caught.value)
