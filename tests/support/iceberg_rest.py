"""Iceberg's own REST catalog on a free port of the loopback: over SQLite, with its tables in an S3 server, whose
credentials it sends with each table."""

from __future__ import annotations

import pathlib
import urllib.request
from typing import TYPE_CHECKING

from tests.support.maven import JAVA_SOURCES, find_java, install_jars
from tests.support.programs import DirectoryProgram

if TYPE_CHECKING:
    from tests.support.s3 import S3Admin

__all__ = ["IcebergRest", "install_iceberg_rest"]

VERSION = "1.11.0"
"""That of the pom file."""
_SECONDS = 3600


def install_iceberg_rest() -> pathlib.Path:
    """Return the folder of its jars.

    Raises
    ------
    FileNotFoundError
        There is no Java, no Maven, or Maven does not get them.
    """
    find_java()
    return install_jars("iceberg-rest", VERSION)


class IcebergRest(DirectoryProgram):
    """A server, for the time of a `with`.

    Parameters
    ----------
    jars : Path
        What `install_iceberg_rest` returned.
    s3 : S3Admin
        The server of its tables.
    bucket : str
        The bucket of its tables, which there is.
    """

    name = "iceberg-rest"
    start_seconds = 120.0

    def __init__(self, jars: pathlib.Path, s3: S3Admin, bucket: str) -> None:
        super().__init__()
        self._jars, self._s3, self._bucket = jars, s3, bucket

    @property
    def properties(self) -> dict[str, str]:
        """The properties by which pyiceberg opens it. They hold no credentials."""
        return {
            "type": "rest",
            "uri": f"http://127.0.0.1:{self.port}",
            "s3.endpoint": self._s3.url,
            "s3.region": "us-east-1",
            "s3.path-style-access": "true",
        }

    def command(self, port: int) -> list[str]:
        self.port = port
        given = {
            "catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog",
            "uri": f"jdbc:sqlite:{self.directory}/catalog.db",
            "jdbc.user": "user",
            "jdbc.password": "password",
            "jdbc.schema-version": "V1",
            "warehouse": f"s3://{self._bucket}/warehouse",
            "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
            "s3.endpoint": self._s3.url,
            "s3.path-style-access": "true",
            "client.region": "us-east-1",
            "include-credentials": "true",
            **self._temporary(),
        }
        return [
            find_java(),
            "-Xmx256m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-Daws.region=us-east-1",
            "-cp",
            f"{self._jars}/*",
            str(JAVA_SOURCES / "RestCatalog.java"),
            str(port),
            *(f"{name}={value}" for name, value in given.items()),
        ]

    def _temporary(self) -> dict[str, str]:
        """Return credentials of the S3 server that end."""
        import boto3

        client = boto3.client(
            "sts",
            endpoint_url=self._s3.url,
            region_name="us-east-1",
            aws_access_key_id=self._s3.access_key,
            aws_secret_access_key=self._s3.secret_key,
        )
        role = "arn:aws:iam::123456789012:role/lake"
        given = client.assume_role(RoleArn=role, RoleSessionName="lake", DurationSeconds=_SECONDS)
        found = given["Credentials"]
        return {
            "s3.access-key-id": found["AccessKeyId"],
            "s3.secret-access-key": found["SecretAccessKey"],
            "s3.session-token": found["SessionToken"],
            "s3.session-token-expires-at-ms": str(int(found["Expiration"].timestamp() * 1000)),
        }

    def ready(self, port: int) -> None:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/config", timeout=5) as answer:
            answer.read()
