"""URLs of PostgreSQL: what each part is, and that neither user nor password is shown."""

from __future__ import annotations

import sys

import pytest

import accel
from accel.store.postgres_connection import PostgresAddress
from tests.support.postgres import Postgres

SECRET = "s3cret"


@pytest.mark.parametrize(
    ("url", "name", "settings"),
    [
        ("postgresql://h/d", "postgresql://h:5432/d", {}),
        ("postgres://u:s3cret@h:1/d", "postgresql://h:1/d", {}),
        ("postgresql://u:s3cret%2F%40@h/d?ttl=5&sslmode=require", "postgresql://h:5432/d", {"ttl": 5.0}),
        ("postgresql://h/d?user=u&password=s3cret&port=7", "postgresql://h:7/d", {}),
        ("postgresql://a:1,b:2/d", "postgresql://a:1,b:2/d", {}),
        ("postgresql://[::1]:3/d", "postgresql://[::1]:3/d", {}),
        ("postgresql://h/d?options=-c%20x%3D1&ttl=5", "postgresql://h:5432/d", {"ttl": 5.0}),
        ("postgresql:///d", "postgresql://localhost:5432/d", {}),
    ],
)
def test_what_is_shown_of_a_url(url: str, name: str, settings: dict[str, float]) -> None:
    address = PostgresAddress.parse(url, settings=("ttl",))
    assert (str(address), repr(address), address.settings) == (name, f"PostgresAddress({name!r})", settings)
    assert "ttl" not in address.conninfo


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://u:s3cret@h:x/d",
        "postgresql://u:s3cret/x@h/d",
        "postgresql://u:1/s3cret@h/d",
        "postgresql://u:1/s3cret/d",
        "postgresql://u:a#s3cret@h/d",
        "postgresql://u@h/d?s3cret=1",
        "postgresql://u:%zz@h/d",
        "postgresql://h/d\0s3cret",
        "mysql://u:s3cret@h/d",
        "host=h password=s3cret",
    ],
)
def test_what_is_no_url_is_refused_without_being_quoted(url: str) -> None:
    with pytest.raises(accel.StoreError, match="no URL of PostgreSQL") as refused:
        PostgresAddress.parse(url)
    assert SECRET not in f"{refused.value!s} {refused.value!r} {refused.value.__dict__}"
    assert refused.value.hides


def test_the_package_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(accel.StoreError, match=r"accel-parquet\[postgres\]"):
        PostgresAddress.parse("postgresql://h/d")


@pytest.mark.parametrize(
    ("url", "text", "shown"),
    [
        ("postgresql://bob:s3cret@h/d", 'no password for user "bob", not s3cret', 'no password for user "***", not ***'),
        ("postgresql://bob:s3%2Fcret@h/d", "s3/cret and s3%2Fcret", "*** and ***"),
        ("postgresql://h/d?user=bob&sslpassword=s3cret", "bob's bobby\n s3cret", "***'s bobby ***"),
        ("postgresql://a:b@h/d", "a database said a b", "*** data***ase said *** ***"),
    ],
)  # fmt: skip
def test_errors_do_not_show_what_the_url_hides(url: str, text: str, shown: str) -> None:
    failure = PostgresAddress.parse(url).failure(OSError(text))
    assert (failure.message, failure.path) == (f"PostgreSQL failed: {shown}", "postgresql://h:5432/d")
    assert failure.hides
    assert failure.transient


def test_a_server_that_refuses_shows_neither(postgres: Postgres) -> None:
    import psycopg

    address = PostgresAddress.parse(postgres.url(password=SECRET))
    with pytest.raises(psycopg.OperationalError) as refused:
        address.connect(connect_timeout=5)
    text = str(address.failure(refused.value))
    assert "authentication failed" in text
    assert SECRET not in text
    assert address.users
    assert not any(f'"{user}"' in text for user in address.users)


def test_the_url_wins_over_defaults(postgres: Postgres) -> None:
    address = PostgresAddress.parse(f"{postgres.url()}?application_name=mine")
    with address.connect(application_name="accel", connect_timeout="10") as connection:
        assert connection.info.get_parameters()["application_name"] == "mine"
        assert connection.info.get_parameters()["connect_timeout"] == "10"
